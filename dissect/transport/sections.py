"""The packets of many queues in one batch, queue by queue: requests, and what acknowledged them.

Processing the queues one by one costs more than their packets do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows, places, stretches, take
from ..layers import opcodes
from ..named_tuple import NamedTuple
from .health import READ_REQUEST, Acknowledgements, AnsweredBatch

BEYOND = 1 << 40
"""More than the PSNs of any batch, even hostile ones: the distance between the keys of different queues."""


class QueueSections:
    """Sections of rows: for endpoint 0 and endpoint 1 of a connection, then of the next connection, and so on."""

    def __init__(self, owners: Int64s, count: int) -> None:
        """``owners``: the section of each row, ascending; ``count``: number of sections."""
        self.owners = owners
        self.starts: Int64s = owners.searchsorted(np.arange(count + 1))
        self._edges: list[int] = self.starts.tolist()

    def __getitem__(self, section: int) -> tuple[int, int]:
        return self._edges[section], self._edges[section + 1]

    def cut(self, values: Rows, section: int) -> Rows:
        """The part of ``values``, one per row, that belongs to a section."""
        return values[self._edges[section] : self._edges[section + 1]]

    @property
    def filled(self) -> NDArray[np.bool_]:
        """By section, whether it has rows."""
        has_rows: NDArray[np.bool_] = self.starts[1:] > self.starts[:-1]
        return has_rows

    @property
    def within(self) -> Int64s:
        """The index of each row in its section."""
        offsets: Int64s = np.arange(len(self.owners)) - self.starts[self.owners]
        return offsets

    @property
    def goes_on(self) -> NDArray[np.bool_]:
        """For each row but the last, whether the next row is in the same section."""
        same: NDArray[np.bool_] = self.owners[1:] == self.owners[:-1]
        return same

    def before(self, values: Int64s, firsts: Int64s) -> Int64s:
        """By row, the value of the previous row in its section; ``firsts``: by section, for its first row."""
        earlier: Int64s = firsts[self.owners]
        earlier[1:][self.goes_on] = values[:-1][self.goes_on]
        return earlier

    def part(self, chosen: Int64s) -> QueueSections:
        """The same sections with only some of the rows."""
        return QueueSections(self.owners[chosen], len(self.starts) - 1)

    def ends(self, column: Rows) -> tuple[list[int], list[int]]:
        """By section, the first and the last value; arbitrary if it is empty."""
        values = np.append(column, column[:0].dtype.type(0))
        return values[self.starts[:-1]].tolist(), values[self.starts[1:] - 1].tolist()

    def risen(self, values: Int64s, floors: Int64s) -> Int64s:
        """By row, the highest value so far in its section, at least the section's floor.  No value may exceed the floor
        by ``BEYOND``."""
        apart = self.owners * BEYOND - floors
        highest: Int64s = np.maximum.accumulate(np.maximum(values, floors) + apart)
        highest -= apart
        return highest

    def reached(self, risen: Int64s, floors: Int64s, frames: Int64s, sections: Int64s, when: Int64s) -> Int64s:
        """By query, the value of ``risen`` at the last row of section ``sections`` before frame ``when``; its floor if
        there is no such row."""
        keys = self.owners * BEYOND + frames
        at = keys.searchsorted(sections * BEYOND + when) - 1
        known = at >= self.starts[sections]
        reached: Int64s = floors
        reached[known] = risen[at[known]]
        return reached

    def largest(self, column: Rows) -> list[int]:
        """By section, the highest value; 0 if it is empty."""
        values, filled = np.zeros(len(self.starts) - 1, np.int64), self.filled
        if len(column):
            values[filled] = np.maximum.reduceat(column, self.starts[:-1][filled])
        highest: list[int] = values.tolist()
        return highest

    def sums(self, column: Rows) -> list[int]:
        """By section, the sum."""
        totals: list[int] = np.diff(np.append(0, np.cumsum(column, dtype=np.int64))[self.starts]).tolist()
        return totals


class Packets(NamedTuple):
    """Requests, or answers at the PSNs they answer; each section is a send queue."""

    rows: Rows
    psns: Int64s
    """Unwrapped."""
    ends: Int64s
    """PSN after those that each takes or answers."""
    sections: QueueSections

    def of(self, queues: NDArray[np.bool_]) -> Packets:
        """The packets of some of the queues."""
        chosen = places(queues[self.sections.owners])
        return Packets(take(self.rows, chosen), self.psns[chosen], self.ends[chosen], self.sections.part(chosen))


def reads_of(requests: Packets, answers: Packets) -> tuple[Int64s, Int64s]:
    """Indices of RDMA Read requests, and of their responses."""
    return places(requests.rows["opcode"] == READ_REQUEST), places(opcodes.IS_READ_RESPONSE[answers.rows["opcode"]])


class _Health(Protocol):
    @property
    def answers(self) -> tuple[Acknowledgements, Acknowledgements]: ...


class Answering(Protocol):
    """A connection, with two queues."""

    @property
    def health(self) -> _Health: ...


class Matched:
    """Requests of all queues matched with what acknowledged them."""

    def __init__(self, requests: Packets, answers: Packets, links: Sequence[Answering]) -> None:
        """``links``: connections, two sections each, which have the unacknowledged requests of earlier batches."""
        pending = [answer.pending for link in links for answer in link.health.answers]
        count, answered = len(pending), answers.sections.owners
        counts = [len(early) for early, _ in pending]
        early_owners = np.repeat(np.arange(count), counts)
        owners = np.append(early_owners, requests.sections.owners)
        order = owners.argsort(kind="stable")
        owners = owners[order]
        psns = np.concatenate([*(early for early, _ in pending), requests.psns])[order]
        times = np.concatenate([*(early for _, early in pending), requests.rows["time"]])[order]
        reads = np.append(np.zeros(len(early_owners), np.bool_), requests.rows["opcode"] == READ_REQUEST)[order]
        base = np.zeros(count, np.int64)
        base[owners[::-1]] = psns[::-1]
        asked = owners * BEYOND + psns - base[owners]
        # A queue without requests matches nothing.
        reached = answered * BEYOND + np.clip(answers.psns - base[answered], -1, BEYOND - 2)
        by = reached.searchsorted(asked)
        matched = np.zeros(len(asked), np.bool_)
        inside = by < len(reached)
        matched[inside] = answered[by[inside]] == owners[inside]
        self._pending = QueueSections(owners[~matched], count)
        self._psns, self._times = psns[~matched], times[~matched]
        by, owners, reads = by[matched], owners[matched], reads[matched]
        exact = reached[by] == asked[matched]
        delays = np.maximum(answers.rows["time"][by] - times[matched], 0)
        is_ack = opcodes.IS_ACKNOWLEDGE[answers.rows["opcode"]]
        acked = ~reads & is_ack[by]
        self._delays, self._turnarounds, self._read_delays = (
            (delays[of], QueueSections(owners[of], count)) for of in (~reads, acked & exact, reads & exact)
        )
        by, owners = by[acked], owners[acked]
        self._acknowledged: list[int] = np.bincount(owners, minlength=count).tolist()
        starts = stretches(by)
        sizes = np.diff(np.append(starts, len(by)))
        owning = owners[starts]
        self._advancing: list[int] = np.bincount(owning, minlength=count).tolist()
        largest = np.zeros(count, np.int64)
        np.maximum.at(largest, owning, sizes)
        self._largest: list[int] = largest.tolist()
        self._answers = answers.sections
        self._acks = answers.sections.sums(is_ack)
        self._reading: list[int] = _outstanding(requests, answers, links).tolist()
        (_, self._acked), (_, self._at) = map(answers.sections.ends, (answers.psns, answers.rows["time"]))

    def of(self, section: int) -> AnsweredBatch:
        """The matches of one queue."""
        first, end = self._answers[section]
        return AnsweredBatch(
            self._acks[section],
            self._acked[section] if first < end else None,
            self._at[section],
            self._delays[1].cut(self._delays[0], section),
            self._turnarounds[1].cut(self._turnarounds[0], section),
            self._read_delays[1].cut(self._read_delays[0], section),
            self._acknowledged[section],
            self._advancing[section],
            self._largest[section],
            self._reading[section],
            self._pending.cut(self._psns, section),
            self._pending.cut(self._times, section),
        )


def _outstanding(requests: Packets, answers: Packets, links: Sequence[Answering]) -> Int64s:
    """By queue, the highest number of RDMA Reads open at one time."""
    outstanding = np.zeros(2 * len(links), np.int64)
    reads, _ = reads_of(requests, answers)
    if not len(reads):
        return outstanding
    sections, answered = requests.sections.part(reads), answers.sections.owners
    owners, frames = sections.owners, requests.rows["frame"][reads]
    first = frames.min()
    at = (answered * BEYOND + np.clip(answers.rows["frame"] - first, -1, None)).searchsorted(
        owners * BEYOND + frames - first
    ) - 1  # fmt: skip
    before = np.array([answer.acked for link in links for answer in link.health.answers])[owners]
    done = np.where(at >= answers.sections.starts[owners], answers.psns[at], before) + 1
    base = requests.psns[requests.sections.starts[owners]]
    keys = owners * BEYOND + requests.ends[reads] - base
    complete = keys.searchsorted(owners * BEYOND + np.maximum(done - base, 0), side="right") - sections.starts[owners]
    np.maximum.at(outstanding, owners, sections.within + 1 - complete)
    return outstanding
