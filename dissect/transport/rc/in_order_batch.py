"""What of a batch is in order on many connections, taken for all of them at once.

Where a batch has a few packets of each of many connections, looking at one connection after the other costs more than
the packets.  Here the packets of those are taken together on which nothing but the expected happened: requests of one
packet each with the PSNs that come next, and acknowledgements of what was sent.  All else is left to ``RcLink.feed``,
which is the reference; a property test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...arrays import Bytes, Int64s, Rows, take
from ...layers import opcodes
from ...serial import PSN
from ..acknowledgements import AnsweredBatch, PacketColumns
from ..operations import Operation
from ..send_runs import Run
from .assembly import SEND_ONLY, WRITE_ONLY
from .earlier_packets import table_of
from .health import CONGESTION_EXPERIENCED, PAUSE
from .link import RcLink
from .seen_psns import KEPT, sent_rows

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
    eligible = [one for one, is_expecting in zip(portions, expecting, strict=True) if is_expecting]
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
    left = [one for one, is_expecting in zip(portions, expecting, strict=True) if not is_expecting]
    left += [eligible[place] for place in (~right).nonzero()[0].tolist()]
    return _Passing(data, table, senders, links, requests, answers).feed(chosen, runs), left


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
    before = np.array([one.acked for link in links for one in link.health.answers], np.int64)
    good = np.ones(count, np.bool_)
    whole = (table["headers"] == 1) & (table["ecn"] != CONGESTION_EXPERIENCED)
    requesting = (SEND_ONLY | WRITE_ONLY)[opcode] & (table["captured"] == length) & (length > 0)
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
    wrong[1:] |= (answered[1:] == answered[:-1]) & (acked[1:] < acked[:-1])
    good[answered[wrong]] = False
    return good, _Chosen(requests, psns, asked), _Chosen(answers, acked, _Sections(answered, count))


class _Passing:
    """Lets what is in order happen."""

    def __init__(
        self, data: Bytes, table: Rows, senders: _Sections, links: Sequence[RcLink], requests: _Chosen, answers: _Chosen
    ) -> None:
        self._data, self._links = data, links
        self._table, self._senders = table, senders
        self._requests, self._answers = requests, answers
        self._asked, self._answered = (
            PacketColumns.of(
                one.psns, one.psns + 1, one.rows["time"], one.rows["frame"], one.rows["length"], one.rows["opcode"]
            )
            for one in (requests, answers)
        )
        self._earlier = table_of(self._asked), table_of(self._answered)

    def feed(self, chosen: Sequence[int], runs: list[tuple[RcLink, Run]] | None) -> list[tuple[int, RcLink, Operation]]:
        self._note_packets(chosen)
        self._note_health(chosen)
        return self._deliver(chosen, runs)

    def _note_packets(self, chosen: Sequence[int]) -> None:
        """Count all packets."""
        senders, frames, times = self._senders, self._table["frame"], self._table["time"]
        totals = np.append(0, np.cumsum(self._table["length"], dtype=np.int64))
        for place in chosen:
            link = self._links[place]
            for sender in (0, 1):
                first, end = senders[2 * place + sender]
                if first == end:
                    continue
                link.connection.passed(
                    sender,
                    end - first,
                    int(totals[end] - totals[first]),
                    (int(frames[first]), int(times[first])),
                    (int(frames[end - 1]), int(times[end - 1])),
                )
                link.packets += end - first
                link.health.sent[sender].passed(end - first, int(times[end - 1]))
            link.forgotten = False

    def _deliver(
        self, chosen: Sequence[int], runs: list[tuple[RcLink, Run]] | None
    ) -> list[tuple[int, RcLink, Operation]]:
        """The Operations of the requests."""
        rows, psns, sections = self._requests
        acked, answers = self._answers.psns, self._answers.sections
        sending = SEND_ONLY[rows["opcode"]]
        split = [
            (where, _Sections(sections.owners[where], len(sections.starts) - 1))
            for where in (sending.nonzero()[0], (~sending).nonzero()[0])
        ]
        kept = np.array([not link.closing for link in self._links])[sections.owners >> 1].nonzero()[0]
        kept_sections = _Sections(sections.owners[kept], len(sections.starts) - 1)
        sent = sent_rows(self._data, take(rows, kept), psns[kept], psns[kept] + 1)
        events: list[tuple[int, RcLink, Operation]] = []
        for place in chosen:
            link = self._links[place]
            for sender, queue in enumerate(link.queues):
                section = 2 * place + sender
                first, end = answers[section]
                if first < end:
                    queue.acked = max(queue.acked, int(acked[end - 1]) + 1)
                first, end = sections[section]
                if first == end:
                    continue
                sends, others = (where[slice(*each[section])] for where, each in split)
                if runs is None or not queue.messages.worthy(len(sends), len(others)):
                    sends, others = sends[:0], np.arange(first, end)
                queue.started = True
                queue.gap_proved = 0
                queue.head = int(psns[end - 1]) + 1
                frame = int(rows["frame"][end - 1])
                queue.messages.singles(self._data, take(rows, sends), take(rows, others), psns[others], frame)
                if not link.closing:
                    queue.sent.keep(sent[slice(*kept_sections[section])][-KEPT:], queue.acked)
                delivered, made = queue.messages.take(queue.head, queue.acked, not link.closing)
                events += [(order, link, operation) for order, operation in delivered]
                if runs is not None:
                    runs += [(link, run) for run in made]
        return events

    def _note_health(self, chosen: Sequence[int]) -> None:
        """Count what was answered, how fast, and when payload was sent."""
        rows, psns, sections = self._requests
        times = rows["time"]
        steps = np.diff(times, prepend=times[:1])
        steps[sections.within == 0] = 0
        active = np.append(0, np.cumsum(np.where((steps >= 0) & (steps <= PAUSE), steps, 0)))
        totals = np.append(0, np.cumsum(self._table["length"], dtype=np.int64))
        matched = _Matched(self._requests, self._answers)
        for place in chosen:
            link = self._links[place]
            health, remember = link.health, not link.closing
            for sender in (0, 1):
                section = 2 * place + sender
                first, end = sections[section]
                if first < end:
                    low, high = self._senders[section]
                    health.sent[sender].carried(
                        int(totals[high] - totals[low]),
                        int(times[first]),
                        int(times[end - 1]),
                        int(active[end] - active[first]),
                    )
                low, high = self._answers.sections[section]
                if first == end and low == high:
                    continue
                answers, queue = health.answers[sender], health.retransmissions[sender]
                head = queue.head
                queue.passed(int(psns[end - 1]) + 1 if first < end else None, low < high)
                if remember:
                    if first < end:
                        queue.silences.note(self._asked.frames[first:end], self._asked.times[first:end])
                    queue.remember(
                        self._earlier[0][:, first:end].copy() if first < end else None,
                        self._earlier[1][:, low:high].copy() if low < high else None,
                    )
                if answers.unanswered:
                    answers.feed(
                        self._asked.part(first, end) if first < end else None,
                        self._answered.part(low, high) if low < high else None,
                        head,
                        queue.head,
                    )
                else:
                    answers.passed(matched.of(section))
            health.renew()


class _Matched:
    """Requests and what acknowledged them, of all queues."""

    def __init__(self, requests: _Chosen, answers: _Chosen) -> None:
        owners, answered = requests.sections.owners, answers.sections.owners
        count = len(requests.sections.starts) - 1
        firsts = requests.psns - requests.sections.within
        base = np.zeros(count, np.int64)
        base[owners] = firsts
        asked = owners * _BEYOND + requests.psns - firsts
        # Of a queue without requests in the batch none is looked for.
        reached = answered * _BEYOND + np.clip(answers.psns - base[answered], -1, _BEYOND - 2)
        by = reached.searchsorted(asked)
        self._found = found = np.zeros(len(asked), np.bool_)
        inside = by < len(reached)
        found[inside] = answered[by[inside]] == owners[inside]
        by = by[found]
        times = requests.rows["time"]
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
        self._psns, self._times = requests.psns[~found], times[~found]
        self._answers, self._acked, self._at = answers.sections, answers.psns, answers.rows["time"]

    def of(self, section: int) -> AnsweredBatch:
        """Of one queue."""
        first, end = self._answers[section]
        known = slice(*self._answered[section])
        pending = slice(*self._pending[section])
        return AnsweredBatch(
            end - first,
            int(self._acked[end - 1]) if first < end else None,
            int(self._at[end - 1]) if first < end else 0,
            self._delays[known],
            self._turnarounds[slice(*self._exact[section])],
            self._advancing[section],
            self._largest[section],
            self._psns[pending],
            self._times[pending],
        )
