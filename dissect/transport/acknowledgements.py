"""How one end answers the other's requests: acknowledgement delay and coalescing, Reads outstanding; in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows, places, some
from ..layers import opcodes
from ..percentiles import NO_SAMPLES, Samples, added

MAX_PENDING = 16384
"""Requests whose acknowledgement is waited for."""

_READ_REQUEST = 0x0C

Value = TypeVar("Value", np.int64, np.bool_)

_NONE = np.empty(0, np.int64)
_NO_READS = np.empty(0, np.bool_)


class PacketColumns:
    """Packets of one send queue, one way, in capture order.  One array: of a few packets, six take much more memory."""

    __slots__ = ("_table",)

    def __init__(self, table: Int64s) -> None:
        """``table``: (6, packets)."""
        self._table = table

    @classmethod
    def of(cls, psns: Int64s, ends: Int64s, times: Rows, frames: Rows, lengths: Rows, opcode: Rows | int) -> Self:
        """Copies."""
        table = np.empty((6, len(psns)), np.int64)
        table[0], table[1], table[2], table[3], table[4], table[5] = psns, ends, times, frames, lengths, opcode
        return cls(table)

    @property
    def psns(self) -> Int64s:
        """Unwrapped."""
        return self._row(0)

    @property
    def ends(self) -> Int64s:
        """PSN behind what the packet takes: a Read request takes as many as its response has packets."""
        return self._row(1)

    @property
    def times(self) -> Int64s:
        """Nanoseconds."""
        return self._row(2)

    @property
    def frames(self) -> Int64s:
        return self._row(3)

    @property
    def lengths(self) -> Int64s:
        """Payload bytes."""
        return self._row(4)

    @property
    def opcodes(self) -> Int64s:
        return self._row(5)

    def _row(self, index: int) -> Int64s:
        row: Int64s = self._table[index]
        return row

    def __len__(self) -> int:
        return len(self._row(0))

    def chosen(self, mask: Rows) -> PacketColumns:
        """Those for which it is true."""
        return PacketColumns(self._table.compress(mask, axis=1))

    def part(self, first: int, end: int) -> PacketColumns:
        """A copy of some of them."""
        return PacketColumns(self._table[:, first:end].copy())

    @staticmethod
    def joined(parts: Sequence[PacketColumns]) -> PacketColumns:
        """One behind the other."""
        return parts[0] if len(parts) == 1 else PacketColumns(np.concatenate([part._table for part in parts], axis=1))


class AnsweredBatch(NamedTuple):
    """What a batch shows of a queue whose earlier requests are all acknowledged."""

    acks: int
    acked: int | None
    """The highest PSN that was acknowledged; None without an ACK."""
    last_answer: int
    """Nanoseconds; of the last ACK."""
    delays: Int64s
    turnarounds: Int64s
    advancing: int
    largest: int
    """Requests that one ACK acknowledged."""
    psns: Int64s
    """Of requests that are not acknowledged."""
    times: Int64s


class Acknowledgements:
    """The answers to what one end initiates."""

    __slots__ = (
        "_open_reads",
        "_psns",
        "_reads",
        "_times",
        "acked",
        "acknowledged",
        "acks",
        "advancing",
        "delay",
        "last_answer",
        "max_acknowledged",
        "read_delay",
        "reads_outstanding",
        "turnaround",
    )

    def __init__(self) -> None:
        self.delay = NO_SAMPLES
        """From a Send or Write packet to what acknowledges it."""
        self.turnaround = NO_SAMPLES
        """The same, only where the packet was the one that caused the ACK."""
        self.read_delay = NO_SAMPLES
        """From a Read request to its first response."""
        self.acks = 0
        """ACK packets."""
        self.advancing = self.acknowledged = self.max_acknowledged = 0
        """ACK packets that acknowledged something; request packets they acknowledged; the most by one."""
        self.reads_outstanding = 0
        self.acked = -1 << 62
        """Highest PSN that was acknowledged."""
        self.last_answer = 0
        """Nanoseconds; of the last response of any kind."""
        self._psns = _NONE
        self._times = _NONE
        self._reads = _NO_READS
        self._open_reads = _NONE
        """PSN behind the last response of each Read under way."""

    def feed(
        self, requests: PacketColumns | None, responses: PacketColumns | None, head: int | None, furthest: int | None
    ) -> None:
        """Take the packets of one batch; ``head``: PSN expected before it, ``furthest``: the one expected behind it."""
        reads: PacketColumns | None = None
        if requests is not None:
            fresh = self._fresh(requests, head)
            is_read = fresh.opcodes == _READ_REQUEST
            self._psns = _pending(self._psns, fresh.psns)
            self._times = _pending(self._times, fresh.times)
            self._reads = _pending(self._reads, is_read)
            if some(is_read):
                reads = fresh.chosen(is_read)
        positive: PacketColumns | None = None
        if responses is not None:
            self.last_answer = int(responses.times[-1])
            good = responses.ends > responses.psns
            if furthest is not None:
                good &= responses.psns < furthest
            positive = responses if np.count_nonzero(good) == len(good) else responses.chosen(good)
        before = self.acked
        reached = None
        if positive is not None and len(positive.psns):
            reached = np.maximum.accumulate(positive.psns)
            np.maximum(reached, before, out=reached)
            self._answered(positive, reached)
            self.acked = int(reached[-1])
        if reads is not None or len(self._open_reads):
            self._count_reads(reads, positive, reached, before)

    def passed(self, one: AnsweredBatch) -> None:
        """The same, where no request was pending, and what came was counted."""
        if one.acked is not None:
            self.acks += one.acks
            self.acked, self.last_answer = one.acked, one.last_answer
        if one.advancing:
            self._add(one.delays, one.turnarounds)
            self.advancing += one.advancing
            self.acknowledged += len(one.delays)
            self.max_acknowledged = max(self.max_acknowledged, one.largest)
        if len(one.psns):
            self._psns, self._times = one.psns[-MAX_PENDING:].copy(), one.times[-MAX_PENDING:].copy()
            self._reads = np.zeros(len(self._psns), np.bool_)

    @property
    def reading(self) -> bool:
        """RDMA Reads are under way."""
        return len(self._open_reads) > 0

    def compact(self) -> None:
        """Keep no more memory than what is pending needs."""
        if len(self._psns):
            self._psns, self._times, self._reads = self._psns.copy(), self._times.copy(), self._reads.copy()

    def _fresh(self, requests: PacketColumns, head: int | None) -> PacketColumns:
        """The requests that were not seen before."""
        first = int(requests.psns[0])
        start = first if head is None else head
        if first >= start and first > self.acked and not some(requests.psns[1:] < requests.ends[:-1]):
            return requests
        furthest = np.maximum.accumulate(requests.ends)
        fresh = requests.psns >= start
        fresh[1:] &= requests.psns[1:] >= furthest[:-1]
        fresh &= requests.psns > self.acked
        return requests if fresh.all() else requests.chosen(fresh)

    def _answered(self, positive: PacketColumns, reached: Int64s) -> None:
        is_ack = opcodes.IS_ACKNOWLEDGE[positive.opcodes]
        self.acks += int(np.count_nonzero(is_ack))
        covered = int(self._psns.searchsorted(reached[-1], side="right"))
        if not covered:
            return
        psns, times, reads = self._psns[:covered], self._times[:covered], self._reads[:covered]
        by = reached.searchsorted(psns)
        if int(by.max()) == len(reached):  # A queue pair number that was used again leaves them out of order.
            inside = by < len(reached)
            psns, times, reads, by = psns[inside], times[inside], reads[inside], by[inside]
        delays = np.maximum(positive.times[by] - times, 0)
        if some(reads):
            answered = positive.psns[by] == psns
            self.read_delay = added(self.read_delay, delays[reads & answered])
            delays, by, psns = delays[~reads], by[~reads], psns[~reads]
        ack = is_ack[by]
        self._add(delays, delays[ack & (positive.psns[by] == psns)])
        by = by[ack]
        if len(by):
            starts = places(by[1:] != by[:-1]) + 1
            sizes = np.diff(np.concatenate(([0], starts, [len(by)])))
            self.advancing += len(sizes)
            self.acknowledged += len(by)
            self.max_acknowledged = max(self.max_acknowledged, int(sizes.max()))
        if covered == len(self._psns):
            self._psns, self._times, self._reads = _NONE, _NONE, _NO_READS
        else:
            self._psns, self._times, self._reads = self._psns[covered:], self._times[covered:], self._reads[covered:]

    def _add(self, delays: Int64s, turnarounds: Int64s) -> None:
        """``turnarounds`` are some of the delays.  Where all are, one object stands for both."""
        if len(turnarounds) == len(delays) and self.turnaround is self.delay:
            self.delay = self.turnaround = added(self.delay, delays)
            return
        if self.turnaround is self.delay is not NO_SAMPLES:
            self.turnaround = Samples()
            self.turnaround.merge(self.delay)
        self.delay = added(self.delay, delays)
        self.turnaround = added(self.turnaround, turnarounds)

    def _count_reads(
        self, reads: PacketColumns | None, positive: PacketColumns | None, reached: Int64s | None, before: int
    ) -> None:
        """How many Reads were open when each was issued."""
        ends = self._open_reads
        if reads is not None:
            ends = np.concatenate((ends, reads.ends))[-MAX_PENDING:]
            done = np.full(len(reads.psns), before, np.int64)
            if positive is not None and reached is not None:
                at = positive.frames.searchsorted(reads.frames) - 1
                done = np.where(at >= 0, reached[np.maximum(at, 0)], before)
            issued = np.arange(len(ends) - len(reads.psns), len(ends)) + 1
            complete = ends.searchsorted(done + 1, side="right")
            self.reads_outstanding = max(self.reads_outstanding, int((issued - complete).max()))
        self._open_reads = ends[int(ends.searchsorted(self.acked + 1, side="right")) :]

    @property
    def unanswered(self) -> int:
        """Requests without any acknowledgement."""
        return len(self._psns)

    @property
    def first_unanswered(self) -> int:
        """PSN of the first of them, one behind the last acknowledged where there is none."""
        return int(self._psns[0]) if len(self._psns) else self.acked + 1

    @property
    def waiting_since(self) -> int | None:
        """Nanoseconds; when the first of them was sent."""
        return int(self._times[0]) if len(self._times) else None


def _pending(known: NDArray[Value], fresh: NDArray[Value]) -> NDArray[Value]:
    """The newest of both."""
    return (np.concatenate((known, fresh)) if len(known) else fresh)[-MAX_PENDING:]
