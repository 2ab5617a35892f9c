"""Processes at once all connections of a batch on which only the expected happens.

Processing connections one by one costs more than their packets do.  ``feed_together`` takes whole messages with the
next PSNs, RDMA Reads with all of their responses, and acknowledgements of what was sent.  Everything else is left to
``RcLink.feed``, which is the reference; a property test holds the two equal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bytes, Int64s, Rows, copied, places, take
from ...layers import opcodes
from ...serial import PSN
from ..health import seen_rows
from ..operations import Operation
from ..runs import EXTRA, Run, SendRun, TransferRun
from ..sections import BEYOND, Matched, Packets, QueueSections, reads_of
from .assembly import SEND_ONLY, transfer_rows
from .health import CONGESTION_EXPERIENCED, PAUSE
from .link import RcLink
from .lost_packets import ENDS, STARTS
from .reads import FULL, READ_REQUEST, note_responses
from .seen_psns import KEPT, sent_rows

MANY = 4
"""Number of connections in a batch from which on this is faster."""
MAX_SECTION = 1 << 20
"""Limit of PSNs of one send queue in a batch, so that none occurs twice."""
_REQUESTS = (SEND_ONLY & ~opcodes.IS_RESPONSE) | (opcodes.IS_WRITE & (EXTRA == 0)) | opcodes.IS_READ_REQUEST
_ANSWERS = opcodes.IS_ACKNOWLEDGE | opcodes.IS_READ_RESPONSE

Portion = tuple[RcLink, Int64s, Int64s]
"""A connection and the indices of its packets in a batch, by sender."""


def feed_together(
    data: Bytes, rows: Rows, portions: Sequence[Portion], runs: list[tuple[RcLink, Run]] | None
) -> tuple[list[tuple[int, RcLink, Operation]], list[Portion]]:
    """Do ``RcLink.feed`` and ``RcLink.settle`` for each connection that is in order; returns the other portions,
    too."""
    expecting = [link.expecting for link, _, _ in portions] if len(portions) >= MANY else []
    eligible = [portion for portion, is_expecting in zip(portions, expecting, strict=False) if is_expecting]
    if len(eligible) < MANY:
        return [], [*portions]
    links = [link for link, _, _ in eligible]
    parts = [part for _, *both in eligible for part in both]
    counts = np.array([len(part) for part in parts])
    table = take(rows, np.concatenate(parts))
    senders = QueueSections(np.repeat(np.arange(len(counts)), counts), len(counts))
    good, requests, answers = _in_order(table, senders, links)
    right = good[::2] & good[1::2]
    chosen: list[int] = places(right).tolist()
    if len(chosen) < MANY:
        return [], [*portions]
    left = [portion for portion, is_expecting in zip(portions, expecting, strict=True) if not is_expecting]
    if len(chosen) < len(links):
        left += [eligible[index] for index in places(~right).tolist()]
        requests, answers = (packets.of(np.repeat(right, 2)) for packets in (requests, answers))
    _note_packets(table, senders, links, chosen)
    _note_health(requests, answers, links, chosen)
    made = _deliver(data, requests, answers, links, chosen)
    if runs is None:
        return [(order, link, operation) for link, run in made for order, operation in run.delivered()], left
    runs += made
    return [], left


def _in_order(
    table: Rows, senders: QueueSections, links: Sequence[RcLink]
) -> tuple[NDArray[np.bool_], Packets, Packets]:
    """Which sections have only packets in order; the requests; the answers, at the PSNs they answer."""
    count = 2 * len(links)
    owners, opcode, length = senders.owners, table["opcode"], table["length"]
    heads = np.array([queue.head for link in links for queue in link.queues], np.int64)
    before = np.array([answer.acked for link in links for answer in link.health.answers], np.int64)
    mtus = np.repeat(np.array([link.connection.path_mtu or 0 for link in links], np.int64), 2)
    good, mtu = np.ones(count, np.bool_), mtus[owners]
    reading = opcodes.IS_READ_RESPONSE[opcode]
    fits = np.where(FULL[opcode], length == mtu, (length <= mtu) | (mtu == 0))
    fits &= (table["headers"] == 1) & (table["ecn"] != CONGESTION_EXPERIENCED)
    asking = (length == 0) & (mtu > 0) & (table["dma_length"] > 0)
    requesting = _REQUESTS[opcode] & np.where(opcode == READ_REQUEST, asking, length > 0)
    answering = _ANSWERS[opcode] & (table["syndrome"] >> 5 == opcodes.ACK) & ((length > 0) == reading)
    good[owners[~(fits & (requesting | answering))]] = False
    carrying = places(length > 0)
    times, parts = table["time"][carrying], senders.part(carrying)
    good[parts.owners[1:][(times[1:] < times[:-1]) & parts.goes_on]] = False
    requests = take(table, requesting)
    asked = QueueSections(owners[requesting], count)
    spans, reads = np.ones(len(requests), np.int64), places(requests["opcode"] == READ_REQUEST)
    lengths = requests["dma_length"][reads].astype(np.int64)
    spans[reads] = np.minimum(-(-lengths // mtus[asked.owners[reads]]), MAX_SECTION)
    total = np.append(0, np.cumsum(spans))
    furthest = heads + np.diff(total[asked.starts])
    good &= furthest - heads < MAX_SECTION
    ends = (heads - total[asked.starts[:-1]])[asked.owners] + total[1:]
    psns = ends - spans
    good[asked.owners[(requests["psn"] != psns % PSN.modulus) | _broken(requests, asked)]] = False
    answers, answered = take(table, answering), owners[answering] ^ 1
    order = answered.argsort(kind="stable")
    answers, answered = take(answers, order), answered[order]
    behind = furthest[answered]
    acked = (answers["psn"].astype(np.int64) - behind + PSN.half) % PSN.modulus - PSN.half + behind
    wrong = (acked >= behind) | (acked < before[answered])
    fresh = places(~wrong & (acked >= heads[answered]))
    keys = asked.owners * BEYOND + psns - heads[asked.owners]
    sought = answered[fresh] * BEYOND + acked[fresh] - heads[answered[fresh]]
    wrong[fresh] |= requests["frame"][keys.searchsorted(sought, side="right") - 1] > answers["frame"][fresh]
    wrong[1:] |= (answered[1:] == answered[:-1]) & (acked[1:] < acked[:-1])
    good[answered[wrong]] = False
    both = Packets(requests, psns, ends, asked), Packets(answers, acked, acked + 1, QueueSections(answered, count))
    return good & _all_read(*both, mtus), *both


def _broken(rows: Rows, sections: QueueSections) -> NDArray[np.bool_]:
    """Which requests show a message that is incomplete, or has another size than it announced."""
    if not len(rows):
        return np.zeros(0, np.bool_)
    starts, ends = STARTS[rows["opcode"]], ENDS[rows["opcode"]]
    broken: NDArray[np.bool_] = np.append(True, ends[:-1] | ~sections.goes_on) != starts
    broken |= ~np.append(sections.goes_on, False) & ~ends
    first = np.maximum.accumulate(np.where(starts, np.arange(len(rows)), 0))
    sums = np.cumsum(rows["length"], dtype=np.int64)
    sizes = sums - sums[first] + rows["length"][first]
    broken |= ends & opcodes.IS_WRITE[rows["opcode"]] & (sizes != rows["dma_length"][first])
    return broken


def _all_read(requests: Packets, answers: Packets, mtus: Int64s) -> NDArray[np.bool_]:
    """By queue, whether the responses are exactly those of its RDMA Reads, each once; ``mtus``: by queue."""
    reads, responses = reads_of(requests, answers)
    asking, answering = requests.sections.owners[reads], answers.sections.owners[responses]
    sizes = (requests.ends - requests.psns)[reads]
    good: NDArray[np.bool_] = np.bincount(asking, sizes, len(mtus)) == np.bincount(answering, minlength=len(mtus))
    if not len(reads):
        return good
    kept, answered = good[asking], good[answering]
    reads, sizes, responses, answering = reads[kept], sizes[kept], responses[answered], answering[answered]
    steps = np.arange(len(responses)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    mtu = mtus[answering]
    left = np.repeat(requests.rows["dma_length"][reads].astype(np.int64), sizes) - steps * mtu
    wrong = answers.psns[responses] != np.repeat(requests.psns[reads], sizes) + steps
    wrong |= answers.rows["length"][responses] != np.minimum(left, mtu)
    good[answering[wrong]] = False
    return good


def _note_packets(table: Rows, senders: QueueSections, links: Sequence[RcLink], chosen: Sequence[int]) -> None:
    """Count packets and bytes, and note the times of payload."""
    sizes = senders.sums(table["length"])
    (first_frames, last_frames), (first_times, last_times) = map(senders.ends, (table["frame"], table["time"]))
    carrying = places(table["length"] > 0)
    times, parts = table["time"][carrying], senders.part(carrying)
    steps = np.diff(times, prepend=times[:1])
    steps[parts.within == 0] = 0
    active, (firsts, lasts) = parts.sums(np.where(steps <= PAUSE, steps, 0)), parts.ends(times)
    for index in chosen:
        link = links[index]
        link.forgotten = False
        for sender in (0, 1):
            section = 2 * index + sender
            first, end = senders[section]
            if first < end:
                began, last = (first_frames[section], first_times[section]), (last_frames[section], last_times[section])
                link.connection.passed(sender, end - first, sizes[section], began, last)
                link.packets += end - first
                counts = link.health.sent[sender]
                counts.passed(end - first, last[1])
                if sizes[section]:
                    counts.carried(sizes[section], firsts[section], lasts[section], active[section])


def _note_health(requests: Packets, answers: Packets, links: Sequence[RcLink], chosen: Sequence[int]) -> None:
    """Count acknowledgements, and their delays."""
    rows, _, behind, sections = requests
    times, frames = np.ascontiguousarray(rows["time"]), np.ascontiguousarray(rows["frame"])
    _, reached = sections.ends(behind)
    answered = seen_rows(answers.rows, answers.psns, answers.ends, answers.rows["opcode"])
    responses = reads_of(requests, answers)[1]
    read_by = answers.sections.part(responses)
    _, read = read_by.ends(answers.ends[responses])
    matched = Matched(requests, answers, links)
    for index in chosen:
        link = links[index]
        health, remember = link.health, not link.closing
        for sender in (0, 1):
            section = 2 * index + sender
            first, end = sections[section]
            low, high = answers.sections[section]
            if first == end and low == high:
                continue
            queue = health.retransmissions[sender]
            reading, last = read_by[section]
            queue.passed(
                reached[section] if first < end else None, low < high, read[section] if reading < last else None
            )
            if remember and first < end:
                queue.silences.note(frames[first:end], times[first:end])
            if remember and low < high:
                queue.remember(copied(answered[low:high]))
            health.answers[sender].passed(matched.of(section))
        health.renew()


def _deliver(
    data: Bytes, requests: Packets, answers: Packets, links: Sequence[RcLink], chosen: Sequence[int]
) -> list[tuple[RcLink, Run]]:
    """Make runs of Operations of the requests."""
    rows, psns, behind, sections = requests
    sending = SEND_ONLY[rows["opcode"]]
    sends, moving = places(sending), places(~sending)
    sent_by, moved_by = sections.part(sends), sections.part(moving)
    send_rows, move_rows = take(rows, sends), take(rows, moving)
    starts = places(STARTS[move_rows["opcode"]])
    transfers, by = transfer_rows(move_rows, starts, places(ENDS[move_rows["opcode"]])), moved_by.part(starts)
    for name in ("first", "behind"):
        transfers[name] -= moved_by.starts[by.owners].astype(np.int32)
    reads, responses = reads_of(requests, answers)
    read, read_by = places(move_rows["opcode"][starts] == READ_REQUEST), sections.part(reads)
    response_rows, answered_by = take(answers.rows, responses), answers.sections.part(responses)
    until = np.cumsum(behind[reads] - psns[reads])
    note_responses(transfers, read, response_rows, until - (behind - psns)[reads], until)
    for name in ("first", "behind"):
        transfers[name][read] -= answered_by.starts[read_by.owners].astype(np.int32)
    sent = sent_rows(rows, psns, behind)
    (_, acked), (_, reached), (_, frames) = (
        answers.sections.ends(answers.ends), sections.ends(behind), sections.ends(rows["frame"])
    )  # fmt: skip
    runs: list[tuple[RcLink, Run]] = []
    for index in chosen:
        link = links[index]
        for sender, queue in enumerate(link.queues):
            section = 2 * index + sender
            low, high = answers.sections[section]
            if low < high:
                queue.acked = max(queue.acked, acked[section])
            first, end = sections[section]
            if first == end:
                continue
            made: list[Run] = []
            low, high = sent_by[section]
            if low < high:
                made.append(SendRun(data, send_rows[low:high], sender))
            low, high = by[section]
            if low < high:
                # The payload of transfers may be looked at later: keep it apart from that of other connections.
                carriers = copied(moved_by.cut(move_rows, section))
                run = TransferRun(data, carriers, None, transfers[low:high], sender)
                made.append(run)
                first_read, last_read = read_by[section]
                if first_read < last_read:
                    run.responses = copied(answered_by.cut(response_rows, section))
                    mine = reads[first_read:last_read]
                    queue.reads.completed(run, read[first_read:last_read] - low, psns[mine], behind[mine])
            runs += [(link, run) for run in made]
            queue.passed(made, reached[section], frames[section], not link.closing)
            if not link.closing:
                queue.sent.keep(copied(sent[max(first, end - KEPT) : end]), data, queue.acked)
    return runs
