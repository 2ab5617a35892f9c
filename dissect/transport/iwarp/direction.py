"""One direction of an iWARP connection: what one end sends, from TCP segments to messages."""

from __future__ import annotations

import numpy as np

from ...arrays import Bytes, Rows, take
from ...link.tcp import ACK, RIGHT, RST, WRONG
from ...serial import TCP_SEQUENCE
from .assembly import MessageAssembly
from .fragments import SEND
from .framing import Framing
from .reads import OutstandingReads
from .stream import ByteStream

RARE = 2
"""Right checksums that must stand against a wrong one."""


class IwarpDirection:
    """Feed it the segments that one end sends, and the acknowledgements of the other end."""

    def __init__(self) -> None:
        self.stream = ByteStream()
        self.framing = Framing(mpa=False)
        self.reads = OutstandingReads()
        """Those that its sender issued."""
        self.assembly: MessageAssembly | None = None
        """None before it is known which end is the active side."""
        self.acked: int | None = None
        """Position up to which the receiver has everything."""
        self.payload_bytes = 0
        """Of FPDUs that are trusted."""
        self.damaged_segments = 0
        """Segments that were dropped because of their TCP checksum."""
        self._right_checksums = self._wrong_checksums = 0

    @property
    def sender(self) -> int:
        """Endpoint of the connection: 0 is the active side."""
        return 0 if self.assembly is None else self.assembly.sender

    @property
    def fpdus(self) -> int:
        """FPDUs with contents, those that cannot be trusted included."""
        return self.framing.count - (self.framing.ready is not None)

    @property
    def packets(self) -> int:
        """MPA Requests and Replies and FPDUs."""
        return (self.framing.startup is not None) + self.framing.count

    def acknowledge(self, rows: Rows) -> None:
        """SEGMENT rows of the other direction, which say how much of this one was received."""
        acks = rows["ack"][(rows["flags"] & (ACK | RST)) == ACK]
        if len(acks):
            reference = int(acks[0]) if self.acked is None else self.acked
            self.acked = max(reference, int(TCP_SEQUENCE.unwrap_near(reference, acks).max()))

    def receive(self, data: Bytes, rows: Rows, segments: int) -> None:
        """Take SEGMENT rows in capture order; ``segments``: of the connection, so far."""
        if not len(rows):
            return
        # A reset may carry any sequence number.
        unusable = (rows["flags"] & RST != 0) | self._damaged(rows)
        if unusable.any():
            rows = take(rows, ~unusable)
        if len(rows):
            self.framing.feed(self.stream.feed(data, rows, segments))

    def settle(self, segments: int, now: int | None) -> None:
        """Give up gaps that will not be filled any more; ``now``: nanoseconds, None where nothing more will come."""
        acked = None if now is None else self.acked
        self.framing.feed(self.stream.settle(acked, segments, now))

    @property
    def quiet(self) -> bool:
        """No Send is open, and each counts."""
        return self.assembly is not None and not (self.assembly.skip_first or SEND in self.assembly.partial)

    @property
    def waiting_since(self) -> int | None:
        """The first frame that waits for bytes in front of it, or of which it is not known where its FPDUs begin."""
        marks = (self.stream.waiting_since, self.framing.waiting_since)
        return min((mark for mark in marks if mark is not None), default=None)

    def _damaged(self, rows: Rows) -> Rows:
        """Which segments arrived damaged: the receiver drops them, and they are retransmitted.

        A wrong checksum means something only where nearly all are right: a network card may compute or check them
        elsewhere, and then the capture holds what is no checksum yet.
        """
        wrong: Rows = rows["verdict"] == WRONG
        self._right_checksums += int(np.count_nonzero(rows["verdict"] == RIGHT))
        self._wrong_checksums += int(np.count_nonzero(wrong))
        if not wrong.any() or self._wrong_checksums * RARE > self._right_checksums:
            return np.zeros(len(rows), np.bool_)
        self.damaged_segments += int(np.count_nonzero(wrong))
        self.stream.retransmissions.damaged(take(rows, wrong))
        return wrong
