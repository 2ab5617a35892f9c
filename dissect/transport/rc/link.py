"""One Reliable Connection as it is observed: its two send queues, and the order of events over both.

Where a batch has a few packets of each of many connections, looking at one connection after the other costs more than
the packets.  ``feed_together`` takes the packets of those at once on which nothing but the expected happened: requests
of one packet each with the PSNs that come next, and acknowledgements of what was sent.  All else is left to
``RcLink.feed``, which is the reference; a property test holds the two equal.
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from ...arrays import Bytes, Int64s, Rows, copied, places, take
from ...layers import opcodes
from ...serial import PSN
from ..connection import Connection
from ..health import AnsweredBatch, seen_rows
from ..operations import Delivered, Operation
from ..runs import EXTRA, Run, SendRun, TransferRun
from .assembly import SEND_ONLY, WRITE_ONLY, transfer_rows
from .cm import ConnectionRequest
from .health import CONGESTION_EXPERIENCED, PAUSE, RcHealth
from .lost_packets import COPIES_FOLLOW, PacketClock
from .reads import mtu_change
from .seen_psns import SentRequests, sent_rows
from .send_queue import SendQueue


class Resting(NamedTuple):
    """All that such a queue has to know; PSNs are unwrapped."""

    head: int | None
    base: int | None
    acked: int
    order: int
    """Frame of the last message."""
    started: bool
    delivered: bool


def at_rest(queue: SendQueue) -> Resting | None:
    """Behind ``forget``: what is enough to make it again; None where there is more."""
    messages = queue.messages
    under_way = queue.held or queue.responses or queue.stray or queue.reads.reads or queue.gap_proved
    remembered = queue.before_base or queue.given_up or queue.has_detached or not queue.missing.none
    if under_way or remembered or not messages.idle:
        return None
    return Resting(queue.head, queue.base, queue.acked, messages.order, queue.started, messages.delivered)


def resumed(connection: Connection, sender: int, known: Resting, sent: SentRequests | None = None) -> SendQueue:
    """The queue goes on where it rested."""
    queue = SendQueue(connection, sender, sent=sent)
    queue.head, queue.base, queue.acked = known[:3]
    queue.started = known.started
    queue.messages.resume(known.order, known.delivered)
    return queue


PATIENCE = 5_000_000_000
"""Nanoseconds without any packet of a connection, after which a lost one is not retransmitted any more."""
SETTLED = 10_000_000_000
"""The same, after which no retransmission is expected at all."""


class RcLink:
    """A connection and the observers of its two send queues."""

    __slots__ = ("_queues", "_resting", "closing", "connection", "forgotten", "health", "packets", "request", "waiting")

    def __init__(self, connection: Connection, request: ConnectionRequest | None) -> None:
        self.connection = connection
        self._queues: tuple[SendQueue, ...] | None = None
        """None before any packet, and where they rest: of a connection that is over few packets come."""
        self._resting: bytes | None = None
        """Of both, in the least memory."""
        self.health = RcHealth(connection)
        self.request = request
        """The CM REQ, None where none was seen."""
        self.packets = 0
        self.closing = False
        """Disconnected in this batch."""
        self.forgotten = False
        """It was quiet for so long that no repetition is expected."""
        self.waiting: Sequence[tuple[int, Operation]] = ()

    @property
    def queues(self) -> tuple[SendQueue, ...]:
        """Of endpoint 0 and 1."""
        if self._queues is None:
            connection = self.connection
            resting = None if self._resting is None else marshal.loads(self._resting)
            sent = [queue.sent for queue in self.health.retransmissions]
            self._queues = tuple(
                [
                    resumed(connection, sender, Resting(*resting[sender]), sent[sender])
                    if resting is not None
                    else SendQueue(connection, sender, connection.endpoints[1 - sender].start_psn, sent[sender])
                    for sender in (0, 1)
                ]
            )
            self._resting = None
        return self._queues

    @property
    def expecting(self) -> bool:
        """Nothing unusual is under way, and it is known which packets come next."""
        first, second = self.queues
        return (
            not self.waiting
            and first.expecting
            and second.expecting
            and self.health.expecting((first.head, second.head))
        )

    def feed(self, data: Bytes, sent: tuple[Rows, Rows], runs: list[Run] | None = None) -> Delivered:
        """Packets of one batch, by sender, each in capture order; Operations in the order of events.

        Where ``runs`` is given, plain Operations that need not wait behind a gap are put there.
        """
        if (change := mtu_change(sent)) is not None:
            (a, b), (c, d) = (np.split(rows, [rows["frame"].searchsorted(change)]) for rows in sent)
            return [*self.feed(data, (a, c), runs), *self.feed(data, (b, d), runs)]
        connection = self.connection
        split: list[tuple[Rows, Rows]] = []
        for sender, rows in enumerate(sent):
            responding = opcodes.IS_RESPONSE[rows["opcode"]]
            split.append((take(rows, ~responding), take(rows, responding)))
            if not len(rows):
                continue
            frames, times = rows["frame"], rows["time"]
            ends = [(int(frames[at]), int(times[at])) for at in (0, -1)]
            connection.passed(sender, len(rows), int(rows["length"].sum()), *ends)
        clock = PacketClock(self.packets, sent[0]["frame"], sent[1]["frame"])
        self.packets = clock.now
        self.forgotten = False
        fresh: list[tuple[Delivered, list[Run]]] = []
        for sender in (0, 1):
            made: list[Run] | None = None if runs is None else []
            delivered = self.queues[sender].feed(data, split[sender][0], split[1 - sender][1], clock, made)
            fresh.append((delivered, made or []))
        waiting, mark = [*self.waiting], self._mark
        for delivered, plain in fresh:
            left: list[tuple[int, int, Operation]] = []
            for run in plain:
                if mark is not None and run.last_place >= mark:
                    left += run.cut(mark)
                if runs is not None and len(run):
                    runs.append(run)
            # What is no row of a run waited for the packet that has the same place, or for a row.
            left.sort(key=itemgetter(0, 1))
            waiting += [(place, operation) for place, _, operation in left] + delivered
        self.health.feed(sent, split, (self.queues[0].reusing, self.queues[1].reusing))
        return self._release(waiting)

    def begin(self, place: int) -> None:
        """What waits happens no sooner than at this place in the order of events."""
        self.waiting = tuple((max(order, place), operation) for order, operation in self.waiting)
        for queue in self.queues:
            queue.messages.order = max(queue.messages.order, place)

    @property
    def _mark(self) -> int | None:
        """The first frame of either queue that waits behind a gap."""
        return min((held.frame for queue in self.queues for held in queue.held), default=None)

    def _release(self, waiting: Delivered) -> Delivered:
        """What of it happened before the first packet that still waits behind a gap, on either queue."""
        waiting.sort(key=itemgetter(0))
        mark, count = self._mark, len(waiting)
        if mark is not None:
            count = next((index for index, (order, _) in enumerate(waiting) if order >= mark), count)
        self.waiting = tuple(waiting[count:])
        return waiting[:count]

    def open_since(self, sender: int) -> int | None:
        """The first frame of a message of ``sender`` that is not complete, and may still become so."""
        return None if self._queues is None else self.queues[sender].open_since()

    def settle(self) -> None:
        """The batch is over: keep what later packets are compared with, unless none is expected."""
        for queue in self._queues or ():
            queue.settle(not self.closing)
        for _, operation in self.waiting:
            operation.payload.own_rows()

    def forget(self) -> None:
        """The connection is over: what could be repeated will not be."""
        self.closing = False
        self.health.flush()
        if self._queues is None:
            return
        for queue in self.queues:
            queue.forget()
        first, second = map(at_rest, self.queues)
        if first is not None and second is not None:
            self._resting, self._queues = marshal.dumps((tuple(first), tuple(second))), None

    def idle(self, since: int) -> Delivered:
        """No packet came for ``since`` nanoseconds: gaps that are still open will not be filled."""
        if since >= SETTLED and not self.forgotten:
            self.forgotten = True
            self.forget()
            if self.connection.ended_by:
                return self.finish()
        return self.give_up_gaps(filled=since < PATIENCE) if since >= COPIES_FOLLOW else []

    def give_up_gaps(self, filled: bool) -> Delivered:
        """What waits behind gaps, or only what waits behind ``filled`` ones, waits no longer."""
        if self._queues is None or not any(queue.held for queue in self._queues):
            return []
        waiting = [*self.waiting]
        for queue in self._queues:
            waiting += queue.give_up_gaps(filled)
        return self._release(waiting)

    @property
    def gap_filled(self) -> bool:
        """Something waits only because it may be retransmitted."""
        return any(queue.gap_filled for queue in self._queues or ())

    def finish(self) -> Delivered:
        """Nothing more is expected."""
        waiting = [*self.waiting]
        for queue in self._queues or ():
            waiting += queue.finish()
        waiting.sort(key=itemgetter(0))
        self.waiting = ()
        return waiting

    def release(self) -> None:
        """No packet comes any more: only the health stays."""
        self._queues = self._resting = None


MANY = 16
"""Connections of a batch from which on this takes less time."""
MAX_SECTION = 1 << 20
"""Packets of one sender in a batch, so that no PSN occurs twice."""
_BEYOND = 1 << 32
"""More than the PSNs of a batch: what keys of queues are apart."""

Portion = tuple[RcLink, Int64s, Int64s]
"""A connection and the indices of its packets in a batch, by sender."""


class _Sections:
    """Stretches of rows that belong to endpoint 0 and endpoint 1 of a connection, then of the next, and so on."""

    def __init__(self, owners: Int64s, count: int) -> None:
        """``owners``: of each row the section, ascending; ``count``: sections."""
        self.owners = owners
        self.starts: Int64s = owners.searchsorted(np.arange(count + 1))
        self._edges: list[int] = self.starts.tolist()

    def __getitem__(self, section: int) -> tuple[int, int]:
        return self._edges[section], self._edges[section + 1]

    @property
    def within(self) -> Int64s:
        """Of each row its place in its section."""
        found: Int64s = np.arange(len(self.owners)) - self.starts[self.owners]
        return found

    def part(self, chosen: Int64s) -> _Sections:
        """Of some of the rows."""
        return _Sections(self.owners[chosen], len(self.starts) - 1)

    def ends(self, column: Rows) -> tuple[list[int], list[int]]:
        """Of each section the first and the last value; any where it is empty."""
        values = np.append(column, column[:0].dtype.type(0))
        return values[self.starts[:-1]].tolist(), values[self.starts[1:] - 1].tolist()

    def sums(self, column: Rows) -> list[int]:
        """Of each section."""
        found: list[int] = np.diff(np.append(0, np.cumsum(column, dtype=np.int64))[self.starts]).tolist()
        return found


class _Chosen(NamedTuple):
    """Packets that are in order; sections are send queues."""

    rows: Rows
    psns: Int64s
    """Unwrapped."""
    sections: _Sections


def feed_together(
    data: Bytes, rows: Rows, portions: Sequence[Portion], runs: list[tuple[RcLink, Run]] | None
) -> tuple[list[tuple[int, RcLink, Operation]], list[Portion]]:
    """As ``RcLink.feed`` and ``RcLink.settle`` of each connection on which all is in order; and the other portions."""
    if len(portions) < MANY:
        return [], [*portions]
    single = _single(rows["opcode"], portions)
    expecting = [alone and link.expecting for alone, (link, _, _) in zip(single, portions, strict=True)]
    eligible = [portion for portion, is_expecting in zip(portions, expecting, strict=True) if is_expecting]
    if len(eligible) < MANY:
        return [], [*portions]
    links = [link for link, _, _ in eligible]
    parts = [part for _, *both in eligible for part in both]
    counts = np.array([len(part) for part in parts])
    table = take(rows, np.concatenate(parts))
    senders = _Sections(np.repeat(np.arange(len(counts)), counts), len(counts))
    good, requests, answers = _in_order(table, senders, links)
    good &= counts < MAX_SECTION
    right = good[::2] & good[1::2]
    chosen: list[int] = right.nonzero()[0].tolist()
    if len(chosen) < MANY:
        return [], [*portions]
    left = [portion for portion, is_expecting in zip(portions, expecting, strict=True) if not is_expecting]
    left += [eligible[place] for place in (~right).nonzero()[0].tolist()]
    _note_packets(table, senders, links, chosen)
    _note_health(requests, answers, links, chosen)
    made = _deliver(data, requests, answers, links, chosen)
    if runs is None:
        return [(place, link, operation) for link, run in made for place, operation in run.delivered()], left
    runs += made
    return [], left


def _single(opcode: Rows, portions: Sequence[Portion]) -> list[bool]:
    """On which connections there are only acknowledgements and requests of one packet: all else need not be copied."""
    ends = np.cumsum([len(first) + len(second) for _, first, second in portions])
    others = ~(SEND_ONLY | WRITE_ONLY | opcodes.IS_ACKNOWLEDGE)[
        opcode[np.concatenate([part for _, *both in portions for part in both])]
    ]
    found: list[bool] = (np.diff(np.append(0, np.cumsum(others))[np.append(0, ends)]) == 0).tolist()
    return found


def _in_order(table: Rows, senders: _Sections, links: Sequence[RcLink]) -> tuple[Rows, _Chosen, _Chosen]:
    """Which sections have only packets in order; the requests, and the acknowledgements by what they answer."""
    count = 2 * len(links)
    owners, opcode, length = senders.owners, table["opcode"], table["length"]
    heads = np.array([queue.head for link in links for queue in link.queues], np.int64)
    before = np.array([answer.acked for link in links for answer in link.health.answers], np.int64)
    good = np.ones(count, np.bool_)
    whole = (table["headers"] == 1) & (table["ecn"] != CONGESTION_EXPERIENCED)
    requesting = SEND_ONLY[opcode] | ((WRITE_ONLY & (EXTRA == 0))[opcode] & (table["dma_length"] == length))
    requesting &= (table["captured"] == length) & (length > 0)
    answering = opcodes.IS_ACKNOWLEDGE[opcode] & (table["syndrome"] >> 5 == opcodes.ACK) & (length == 0)
    good[owners[~(whole & (requesting | answering))]] = False
    requests = take(table, requesting)
    asked = _Sections(owners[requesting], count)
    psns = heads[asked.owners] + asked.within
    good[asked.owners[requests["psn"] != psns % PSN.modulus]] = False
    answers, answered = take(table, answering), owners[answering] ^ 1
    order = answered.argsort(kind="stable")
    answers, answered = take(answers, order), answered[order]
    behind = (heads + np.diff(asked.starts))[answered]
    acked = (answers["psn"].astype(np.int64) - behind + PSN.half) % PSN.modulus - PSN.half + behind
    wrong = (acked >= behind) | (acked < before[answered])
    fresh = places(~wrong & (acked >= heads[answered]))
    asking = asked.starts[answered[fresh]] + acked[fresh] - heads[answered[fresh]]
    wrong[fresh] |= requests["frame"][asking] > answers["frame"][fresh]
    wrong[1:] |= (answered[1:] == answered[:-1]) & (acked[1:] < acked[:-1])
    good[answered[wrong]] = False
    return good, _Chosen(requests, psns, asked), _Chosen(answers, acked, _Sections(answered, count))


def _note_packets(table: Rows, senders: _Sections, links: Sequence[RcLink], chosen: Sequence[int]) -> None:
    """Count all packets."""
    sizes = senders.sums(table["length"])
    (first_frames, last_frames), (first_times, last_times) = map(senders.ends, (table["frame"], table["time"]))
    for place in chosen:
        link = links[place]
        link.forgotten = False
        for sender in (0, 1):
            section = 2 * place + sender
            first, end = senders[section]
            if first < end:
                began, last = (first_frames[section], first_times[section]), (last_frames[section], last_times[section])
                link.connection.passed(sender, end - first, sizes[section], began, last)
                link.packets += end - first
                link.health.sent[sender].passed(end - first, last[1])


def _note_health(requests: _Chosen, answers: _Chosen, links: Sequence[RcLink], chosen: Sequence[int]) -> None:
    """Count what was answered, how fast, and when payload was sent."""
    rows, psns, sections = requests
    times, frames = np.ascontiguousarray(rows["time"]), np.ascontiguousarray(rows["frame"])
    steps = np.diff(times, prepend=times[:1])
    steps[sections.within == 0] = 0
    active = sections.sums(np.where((steps >= 0) & (steps <= PAUSE), steps, 0))
    sizes, (firsts, lasts), (_, reached) = sections.sums(rows["length"]), sections.ends(times), sections.ends(psns)
    answered = seen_rows(answers.rows, answers.psns, answers.psns + 1, answers.rows["opcode"])
    matched = _Matched(requests, answers, links)
    for place in chosen:
        link = links[place]
        health, remember = link.health, not link.closing
        for sender in (0, 1):
            section = 2 * place + sender
            first, end = sections[section]
            low, high = answers.sections[section]
            if first == end and low == high:
                continue
            queue = health.retransmissions[sender]
            queue.passed(reached[section] + 1 if first < end else None, low < high)
            if first < end:
                health.sent[sender].carried(sizes[section], firsts[section], lasts[section], active[section])
            if remember and first < end:
                queue.silences.note(frames[first:end], times[first:end])
            if remember and low < high:
                queue.remember(copied(answered[low:high]))
            health.answers[sender].passed(matched.of(section))
        health.renew()


def _deliver(
    data: Bytes, requests: _Chosen, answers: _Chosen, links: Sequence[RcLink], chosen: Sequence[int]
) -> list[tuple[RcLink, Run]]:
    """The Operations of the requests."""
    rows, psns, sections = requests
    sending = SEND_ONLY[rows["opcode"]]
    sends, writes = sending.nonzero()[0], (~sending).nonzero()[0]
    sent_by, written_by = sections.part(sends), sections.part(writes)
    send_rows, write_rows = take(rows, sends), take(rows, writes)
    index = np.arange(len(writes))
    transfers = transfer_rows(write_rows, index, index)
    sent = sent_rows(rows, psns, psns + 1)
    (_, acked), (_, reached), (_, frames) = (
        answers.sections.ends(answers.psns), sections.ends(psns), sections.ends(rows["frame"])
    )  # fmt: skip
    runs: list[tuple[RcLink, Run]] = []
    for place in chosen:
        link = links[place]
        for sender, queue in enumerate(link.queues):
            section = 2 * place + sender
            low, high = answers.sections[section]
            if low < high:
                queue.acked = max(queue.acked, acked[section] + 1)
            first, end = sections[section]
            if first == end:
                continue
            made: list[Run] = []
            low, high = sent_by[section]
            if low < high:
                made.append(SendRun(data, send_rows[low:high], sender))
            low, high = written_by[section]
            if low < high:
                made.append(TransferRun(data, write_rows, None, transfers[low:high], sender))
            runs += [(link, run) for run in made]
            queue.passed(made, reached[section] + 1, frames[section], not link.closing)
            if not link.closing:
                queue.sent.keep(copied(sent[first:end]), data, queue.acked)
    return runs


class _Matched:
    """Requests and what acknowledged them, of all queues."""

    def __init__(self, requests: _Chosen, answers: _Chosen, links: Sequence[RcLink]) -> None:
        """Those of earlier batches that wait for it are found in ``links``."""
        pending = [answer.pending for link in links for answer in link.health.answers]
        count, answered = len(pending), answers.sections.owners
        counts = [len(early) for early, _ in pending]
        early_owners = np.repeat(np.arange(count), counts)
        owners = np.append(early_owners, requests.sections.owners)
        order = owners.argsort(kind="stable")
        owners = owners[order]
        psns = np.concatenate([*(early for early, _ in pending), requests.psns])[order]
        times = np.concatenate([*(early for _, early in pending), requests.rows["time"]])[order]
        base = np.zeros(count, np.int64)
        base[owners[::-1]] = psns[::-1]
        asked = owners * _BEYOND + psns - base[owners]
        # Of a queue without requests none is looked for.
        reached = answered * _BEYOND + np.clip(answers.psns - base[answered], -1, _BEYOND - 2)
        by = reached.searchsorted(asked)
        found = np.zeros(len(asked), np.bool_)
        inside = by < len(reached)
        found[inside] = answered[by[inside]] == owners[inside]
        by = by[found]
        self._delays = np.maximum(answers.rows["time"][by] - times[found], 0)
        self._answered = _Sections(owners[found], count)
        exact = reached[by] == asked[found]
        self._turnarounds, self._exact = self._delays[exact], _Sections(owners[found][exact], count)
        starts = np.append(0, (by[1:] != by[:-1]).nonzero()[0] + 1)[: len(by)]
        sizes = np.diff(np.append(starts, len(by)))
        owning = owners[found][starts]
        self._advancing: list[int] = np.bincount(owning, minlength=count).tolist()
        largest = np.zeros(count, np.int64)
        np.maximum.at(largest, owning, sizes)
        self._largest: list[int] = largest.tolist()
        self._pending = _Sections(owners[~found], count)
        self._psns, self._times = psns[~found], times[~found]
        self._answers = answers.sections
        (_, self._acked), (_, self._at) = map(answers.sections.ends, (answers.psns, answers.rows["time"]))

    def of(self, section: int) -> AnsweredBatch:
        """Of one queue."""
        first, end = self._answers[section]
        known = slice(*self._answered[section])
        pending = slice(*self._pending[section])
        return AnsweredBatch(
            end - first,
            self._acked[section] if first < end else None,
            self._at[section],
            self._delays[known],
            self._turnarounds[slice(*self._exact[section])],
            self._advancing[section],
            self._largest[section],
            self._psns[pending],
            self._times[pending],
        )
