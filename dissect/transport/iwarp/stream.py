"""One direction of a TCP connection: its bytes in order, each once, as references to the captured frames.

Positions are unwrapped sequence numbers: they grow beyond 32 bits and do not wrap.
"""

from __future__ import annotations

from bisect import insort
from itertools import pairwise
from operator import itemgetter

import numpy as np

from ...arrays import Bytes, Int64s, Rows
from ...intervals import IntervalSet
from ...link.tcp import SYN
from ...serial import TCP_SEQUENCE
from .retransmissions import TcpRetransmissions

STRETCH = np.dtype(
    [
        ("at", "i8"),  # position of the first byte
        ("frame", "i8"),
        ("time", "i8"),  # nanoseconds since the Unix epoch
        ("payload", "i8"),  # offset of the first byte in the frame's data
        ("length", "i4"),  # bytes on the wire
        ("captured", "i4"),  # bytes in the capture
        ("chunk", "i4"),  # which of several data it is in
        ("ack", "u4"),  # acknowledgement number beside them
    ]
)
"""Bytes that follow each other and that one frame carried.  Also what Payload.runs hold, where ``at`` means nothing."""

REORDERED = 64
"""Segments of a connection that may come before an acknowledged gap counts as not captured."""
PATIENCE = 4096
"""The same where no acknowledgement is seen."""
SECOND = 1_000_000_000

Chunk = tuple[Bytes, Rows]
"""STRETCH rows of one batch, and the data they refer to."""


class ByteStream:
    """Feed it the segments of one direction; take what is in order."""

    def __init__(self) -> None:
        self.next: int | None = None
        """Position of the first byte that was not given out; None before the first segment."""
        self.opened: int | None = None
        """Sequence number of the SYN, where it is known."""
        self.reference = 0
        self.ahead = IntervalSet()
        """What of the bytes from ``next`` on is there."""
        self.held: list[tuple[int, int, Bytes, Rows]] = []
        """What waits behind a gap, by position: ``(at, number, data, rows)``."""
        self.numbers = 0
        self.waiting: tuple[int, int] | None = None
        """Count of segments and time when the first byte came to wait behind the present gap."""
        self.largest = 1
        """Payload bytes of the largest segment."""
        self.first: int | None = None
        """Position of the first byte, as far as known."""
        self.retransmissions = TcpRetransmissions()
        self.segments = 0
        self.missing = 0
        """Bytes that were sent but not captured."""
        self.missing_segments = 0
        """The least number of segments that carried those."""

    def start(self, seq: int) -> None:
        """The first byte has sequence number ``seq``."""
        self.next = self.reference = self.first = self.retransmissions.head = seq

    def feed(self, data: Bytes, rows: Rows, segments: int) -> list[Chunk]:
        """Take SEGMENT rows in capture order; give what is now in order.

        ``segments``: of the connection, so far.
        """
        seq = rows["seq"].astype(np.int64) + (rows["flags"] & SYN != 0)
        if self.next is None:
            self.start(int(seq[0]))
        position = TCP_SEQUENCE.unwrap_series(self.reference, seq)
        self.reference = int(position[-1])
        if not (carrying := rows["length"] > 0).all():
            rows, position = rows[carrying], position[carrying]
        if not len(rows):
            return []
        stretches = np.zeros(len(rows), STRETCH)
        for name in ("frame", "time", "payload", "length", "captured", "ack"):
            stretches[name] = rows[name]
        stretches["at"] = position
        ends = position + rows["length"]
        self.largest = max(self.largest, int(rows["length"].max()))
        self.retransmissions.feed(rows, position, ends)
        joined = bool((position[1:] == ends[:-1]).all())
        if joined and not self.held and int(position[0]) == self.next:
            self.next = int(ends[-1])
            return [(data, stretches)]
        self.segments = segments
        # What may be the octet of a keep-alive stands alone.
        lone = rows["length"] == 1
        breaks = (position[1:] != ends[:-1]) | lone[1:] | lone[:-1]
        edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(rows)]
        ready: list[Chunk] = []
        for a, b in pairwise(edges):
            self._run(data, stretches[a:b], position[a:b], ends[a:b])
            if self.held:
                ready += self._release()
        return ready

    def _run(self, data: Bytes, rows: Rows, position: Int64s, ends: Int64s) -> None:
        """Segments that follow each other."""
        assert self.next is not None
        start, end = int(position[0]), int(ends[-1])
        if self.held and end - start > 1:
            self._doubt(start, end)
        fresh = self.ahead.add(max(start, self.next), end)
        if fresh == [(start, end)]:
            self._hold(start, data, rows)
            return
        for low, high in fresh:
            first = int(np.searchsorted(ends, low, side="right"))
            last = int(np.searchsorted(position, high, side="left"))
            part = rows[first:last].copy()
            trim(part, low, high)
            self._hold(low, data, part)

    def _doubt(self, start: int, end: int) -> None:
        """Let go of single octets in [start, end): a keep-alive may carry any (RFC 9293, 3.8.4)."""
        kept = [
            one for one in self.held if len(one[3]) > 1 or int(one[3]["length"][0]) > 1 or not start <= one[0] < end
        ]
        if len(kept) < len(self.held):
            self.held = kept
            self.ahead = IntervalSet()
            for at, _, _, rows in kept:
                self.ahead.add(at, at + int(rows["length"].sum()))

    def _hold(self, at: int, data: Bytes, rows: Rows) -> None:
        self.numbers += 1
        insort(self.held, (at, self.numbers, data, rows), key=itemgetter(0))
        if self.waiting is None and self.held[0][0] != self.next:
            self.waiting = self.segments, int(rows["time"][0])

    def _release(self) -> list[Chunk]:
        ready: list[Chunk] = []
        count = 0
        for at, _, data, rows in self.held:
            if at != self.next:
                break
            ready.append((data, rows))
            self.next = at + int(rows["length"].sum())
            count += 1
        if count:
            del self.held[:count]
            self.waiting = None
            if not self.held:
                self.ahead = IntervalSet()
        return ready

    def settle(self, acked: int | None, segments: int, now: int | None) -> list[Chunk]:
        """Give up gaps that will not be filled; give what is then in order.

        ``acked``: sequence number up to which the receiver has everything; ``segments``: of the connection, so
        far; ``now``: nanoseconds, None where nothing more will come.
        """
        ready: list[Chunk] = []
        while self.held:
            assert self.next is not None
            if self.waiting is None and now is not None:
                self.waiting = segments, now
            gap = self.held[0][0]
            if now is not None and self.waiting is not None:
                waited = segments - self.waiting[0], now - self.waiting[1]
                known = acked is not None and TCP_SEQUENCE.unwrap(self.next, acked) >= gap
                patience = (REORDERED, SECOND) if known else (PATIENCE, 60 * SECOND)
                if waited[0] < patience[0] and waited[1] < patience[1]:
                    break
            self.missing += gap - self.next
            self.missing_segments += -(-(gap - self.next) // self.largest)
            self.next = gap
            ready += self._release()
        return ready

    @property
    def waits(self) -> bool:
        """Something waits behind a gap."""
        return bool(self.held)

    @property
    def waiting_since(self) -> int | None:
        """The first frame that waits behind a gap."""
        return min((int(rows["frame"][0]) for _, _, _, rows in self.held), default=None)


def trim(rows: Rows, low: int, high: int) -> None:
    """Shorten rows that follow each other, in place, to positions [low, high)."""
    front = low - int(rows["at"][0])
    if front > 0:
        rows["at"][0] += front
        rows["payload"][0] += front
        rows["length"][0] -= front
        rows["captured"][0] = max(0, int(rows["captured"][0]) - front)
    back = int(rows["at"][-1]) + int(rows["length"][-1]) - high
    if back > 0:
        rows["length"][-1] -= back
        rows["captured"][-1] = min(int(rows["captured"][-1]), int(rows["length"][-1]))
