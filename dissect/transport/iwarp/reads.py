"""The RDMA Reads of one end and the responses that the other end sends to them (RFC 5040, 5.2)."""

from __future__ import annotations

from collections import deque

import numpy as np

from ...intervals import IntervalSet
from ...percentiles import Samples
from ...serial import TCP_SEQUENCE
from ..operations import Operation
from .fragments import Fragment, Runs

MAX_OPEN = 4096
"""More RDMA Reads than this cannot be outstanding; the oldest are given up."""
MAX_EARLY = 64
"""Responses that wait for a request which a capture may show behind them."""


class _OutstandingRead:
    """An RDMA Read whose responses are not all there."""

    __slots__ = ("end", "operation", "reached", "seen", "sink_stag", "sink_to")

    def __init__(self, operation: Operation, end: int, sink_stag: int, sink_to: int) -> None:
        """``end``: sequence number behind the request."""
        self.operation, self.end, self.sink_stag, self.sink_to = operation, end, sink_stag, sink_to
        self.seen = IntervalSet()
        self.reached = 0


class OutstandingReads:
    """The RDMA Reads that one end issued, in order, and the responses of the other end."""

    def __init__(self) -> None:
        self.open: deque[_OutstandingRead] = deque()
        self._by_sink: dict[int, deque[_OutstandingRead]] = {}
        """The same by STag of the sink."""
        self.gap = False
        """Bytes of the responses were not captured since the last that fitted."""
        self.early: deque[tuple[Fragment, Runs]] = deque(maxlen=MAX_EARLY)
        """Responses to no Read that was seen so far."""
        self.stray = 0
        """Response bytes of no Read that was seen."""
        self.max_open = 0
        """Most Reads that were open at one time."""
        self.delay = Samples()
        """From a request to the first of its response."""

    def issue(self, operation: Operation, end: int, sink_stag: int, sink_to: int) -> None:
        """Add a Read whose request ends at position ``end``."""
        operation.closed = False
        read = _OutstandingRead(operation, end, sink_stag, sink_to)
        self.open.append(read)
        self._by_sink.setdefault(sink_stag, deque()).append(read)
        self.max_open = max(self.max_open, len(self.open))
        if len(self.open) > MAX_OPEN:
            self._close_oldest()
        for _ in range(len(self.early)):
            fragment, runs = self.early.popleft()
            if fragment.key == sink_stag:
                self.stray -= fragment.length
                self.answer(fragment, runs)
            else:
                self.early.append((fragment, runs))

    def _close_oldest(self) -> None:
        read = self.open.popleft()
        read.operation.closed = True
        same = self._by_sink[read.sink_stag]
        same.popleft()
        if not same:
            del self._by_sink[read.sink_stag]

    def answer(self, fragment: Fragment, runs: Runs) -> Operation | None:
        """Place response bytes: in the order of the Reads, by sink STag and Tagged Offset (RFC 5040, 5.2).

        Gives the Read that they are of, None where it is not known.  A responder has received the request, and
        acknowledges it in the same segment at the latest.
        """
        self.gap = self.gap or fragment.broken
        fitting = [
            read
            for read in self._by_sink.get(fragment.key, ())
            if read.sink_to <= fragment.place
            and fragment.place + fragment.length <= read.sink_to + read.operation.length
            and TCP_SEQUENCE.unwrap(read.end, fragment.ack) >= read.end
        ]
        if not fitting:
            self.stray += fragment.length
            self.early.append((fragment, runs))
            return None
        # A sink is reused only when it has been filled: behind a gap the latest Read is meant.
        read = fitting[-1] if self.gap else fitting[0]
        while self.open[0] is not read:
            self._close_oldest()
        if self.gap and fragment.place > read.sink_to + read.reached and len(fitting) > 1:
            self.stray += fragment.length
            return None
        self.gap = False
        operation = read.operation
        if not read.reached:
            self.delay.add(np.array([max(0, fragment.first_time - operation.first_time)]))
        at = fragment.place - read.sink_to
        for shift, data, rows in runs:
            place = at + shift
            end = place + int(rows["length"].sum())
            if read.seen.add(place, end) == [(place, end)]:
                operation.payload.runs.append((place, data, rows))
                operation.payload.seen += end - place
        operation.payload.truncated |= fragment.truncated
        read.reached = at + fragment.length
        operation.packets += fragment.packets
        operation.last_frame = max(operation.last_frame, fragment.last_frame)
        operation.last_time = max(operation.last_time, fragment.last_time)
        if fragment.last or read.reached >= operation.length:
            self._close_oldest()
        return operation

    def give_up(self) -> None:
        """No more responses will come."""
        for read in self.open:
            read.operation.closed = True
        self.open.clear()
        self._by_sink.clear()
