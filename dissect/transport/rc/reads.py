"""RDMA Reads and their responses: every response has its place by its PSN (IBA volume 1, 9.7.5.1)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from ...arrays import Bytes, Int64s, Rows, places, some
from ...intervals import IntervalSet
from ..connection import Connection, raised
from ..operations import Operation
from .copies import contradictions

READ_REQUEST = 0x0C
DEFAULT_MTU = 4096
KEPT = 64
"""Complete Reads that are remembered for repetitions of their responses."""
OPEN_READS = 4096
"""More RDMA Reads than this cannot be outstanding; the oldest are given up."""


def spans(connection: Connection, requests: Rows) -> Int64s:
    """PSNs that each PACKET row takes: one, or as many as the response of a Read has packets."""
    found = np.ones(len(requests), np.int64)
    reads = places(requests["opcode"] == READ_REQUEST)
    if len(reads):
        mtu = connection.path_mtu or DEFAULT_MTU
        found[reads] = np.maximum(1, -(-requests["dma_length"][reads].astype(np.int64) // mtu))
    return found


class _RcRead:
    """An RDMA Read whose responses are not all there: PSNs [start, end)."""

    __slots__ = ("complete", "end", "operation", "overdue", "seen", "start")

    def __init__(self, start: int, end: int, operation: Operation) -> None:
        self.start, self.end, self.operation = start, end, operation
        self.seen: IntervalSet | None = None
        """None while none is there, or where all came at once."""
        self.complete = False
        self.overdue = 0
        """Packet count at which a later response proved that its own had been sent; 0 while none has."""


class RcReads:
    """The Reads that one send queue issued and that are not complete."""

    __slots__ = ("connection", "reads", "sender")

    def __init__(self, connection: Connection, sender: int) -> None:
        self.connection = connection
        self.sender = sender
        self.reads: Sequence[_RcRead] = ()
        """Ascending by PSN."""

    def open(self, psn: int, operation: Operation) -> None:
        operation.closed = False
        mtu = self.connection.path_mtu or DEFAULT_MTU
        span = max(1, -(-operation.length // mtu))
        read = _RcRead(psn, psn + span, operation)
        if not isinstance(self.reads, list):
            self.reads = [*self.reads]
        if not self.reads or self.reads[-1].start <= psn:
            self.reads.append(read)
        else:
            self.reads.insert(bisect_right(self.reads, psn, key=_start), read)
        if len(self.reads) > OPEN_READS:
            self.reads.pop(0).operation.closed = True

    def responses(self, data: Bytes, rows: Rows, psns: Int64s) -> None:
        """Response packets that carry data, in capture order."""
        if not len(rows):
            return
        if not self.reads:
            self._unplaced(int(rows["length"].sum()))
            return
        starts = np.array([read.start for read in self.reads])
        owners = starts.searchsorted(psns, side="right") - 1
        edges = places((psns[1:] != psns[:-1] + 1) | (owners[1:] != owners[:-1])) + 1
        firsts = np.concatenate(([0], edges))
        lasts = np.concatenate((edges, [len(rows)])) - 1
        mtu = self.connection.path_mtu or DEFAULT_MTU
        totals = np.concatenate(([0], np.cumsum(rows["length"], dtype=np.int64)))
        # A response of another size than the path MTU in the middle of a run would shift what follows it.
        odd = rows["length"] != mtu
        odd[lasts] = False
        regular = not some(odd) and not some(rows["captured"] < rows["length"])
        finished = False
        for owner, a, b, low, frame, time, seen in zip(
            owners[firsts].tolist(),
            firsts.tolist(),
            (lasts + 1).tolist(),
            psns[firsts].tolist(),
            rows["frame"][lasts].tolist(),
            rows["time"][lasts].tolist(),
            (totals[lasts + 1] - totals[firsts]).tolist(),
            strict=True,
        ):
            read, high = self.reads[max(owner, 0)], low + b - a
            if owner < 0 or low >= read.end:
                self._unplaced(seen)
                continue
            if regular and low == read.start and high == read.end and read.seen is None and not read.complete:
                operation = read.operation
                operation.payload.stretch = data, rows, a, b
                operation.payload.seen = seen
                operation.packets += b - a
                operation.last_frame, operation.last_time = frame, time
                operation.closed = read.complete = finished = True
            else:
                extra = max(0, high - read.end)
                finished = self._take(read, low, high - extra, data, rows[a : b - extra]) or finished
        if finished:
            spare = sum(read.complete for read in self.reads) - KEPT
            if spare > 0:
                self.reads = [read for index, read in enumerate(self.reads) if not read.complete or index >= spare]

    def _unplaced(self, size: int) -> None:
        self.connection.unplaced_reads = raised(self.connection.unplaced_reads, self.sender, size)

    def _take(self, read: _RcRead, low: int, high: int, data: Bytes, rows: Rows) -> bool:
        """Responses with PSNs [low, high) of one Read; True where they complete it."""
        operation, mtu = read.operation, self.connection.path_mtu or DEFAULT_MTU
        if read.seen is None:
            read.seen = IntervalSet()
            if read.complete:
                read.seen.add(read.start, read.end)
        fresh = read.seen.add(low, high)
        repeated = high - low - sum(end - start for start, end in fresh)
        if repeated:
            operation.retransmissions += repeated
            operation.last_sent = int(rows["time"][-1])
            found = contradictions(operation.payload.runs, data, rows)
            operation.contradict(found)
            self.connection.contradict(1 - self.sender, found.values())
        payload = operation.payload
        for start, end in fresh:
            part = rows[start - low : end - low]
            lengths = part["length"]
            if bool((lengths[:-1] == mtu).all()):
                payload.runs.append(((start - read.start) * mtu, data, part))
            else:
                for index in range(len(part)):
                    payload.runs.append(((start + index - read.start) * mtu, data, part[index : index + 1]))
            payload.seen += int(lengths.sum())
            payload.truncated = payload.truncated or bool((part["captured"] < lengths).any())
            operation.last_frame = max(operation.last_frame, int(part["frame"][-1]))
            operation.last_time = max(operation.last_time, int(part["time"][-1]))
            operation.packets += len(part)
        if read.seen.covers(read.start, read.end):
            operation.closed = read.complete = True
        return read.complete

    def issued_again(self, psn: int) -> None:
        """A request with this PSN was repeated: more responses will come."""
        place = bisect_right(self.reads, psn, key=_start) - 1
        if place >= 0 and psn < self.reads[place].end:
            self.reads[place].overdue = 0

    def settle(self, acked: int, packets: int, grace: int) -> None:
        """Give up Reads whose responses must have been sent: something later was acknowledged."""
        for read in self.reads:
            if read.complete:
                continue
            if acked < read.end:
                break
            if not read.overdue:
                read.overdue = packets
            elif packets - read.overdue >= grace:
                read.operation.closed = True

    def forget(self) -> None:
        """Repetitions are no longer expected."""
        self.reads = [read for read in self.reads if not read.complete]

    def give_up(self) -> None:
        for read in self.reads:
            read.operation.closed = True
        self.reads = ()


def _start(read: _RcRead) -> int:
    return read.start
