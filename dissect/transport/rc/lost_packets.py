"""Requests that a send queue sent and the capture lacks: which PSNs, which frame shows it, and how sure that is.

A sender that jumps ahead and a capture that loses packets look alike.  What the responder acknowledged was sent, for
an acknowledgement stands for all before it (IBA volume 1, 9.7.5.1.1); of the rest nothing tells.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..connection import Connection, raised
from ..gaps import Gap, fill_gaps, with_gap
from .responses import AckHistory, ReadResponses, packets_between

GRACE_PACKETS = 256
"""So many packets of the connection after proof that a packet existed, it is taken as missing from the capture:
captures reorder neighbours, not whole stretches."""
HELD_PACKETS = 1 << 16
"""Without any proof, so many packets wait behind a gap before it is given up."""
COPIES_FOLLOW = 1_000_000_000
"""Nanoseconds after the packet that fills a gap, in which what waits behind it may be retransmitted."""
MAX_GIVEN_UP = 4096
"""Gaps whose packets are recognised where they come late."""


class MissingRequests:
    """Of one send queue."""

    __slots__ = ("_connection", "_gaps", "_open", "_sender", "_unconfirmed")

    def __init__(self, connection: Connection, sender: int) -> None:
        self._connection, self._sender = connection, sender
        self._gaps: Sequence[Gap] = ()
        """Given up."""
        self._open: Gap | None = None
        """Requests from the head on that were answered, and may only come late."""
        self._unconfirmed: tuple[int, int] | None = None
        """PSN behind the last gap that no acknowledgement confirms, and packets in all of those."""

    @property
    def quiet(self) -> bool:
        """What comes next confirms or contradicts nothing."""
        return self._open is None and self._unconfirmed is None

    @property
    def none(self) -> bool:
        """Nothing was ever missing."""
        return self.quiet and not self._gaps

    def answered(self, head: int, answers: AckHistory) -> None:
        """Some of these responses answer requests from ``head`` on, which was not seen."""
        if self._open is not None and self._open.start == head:
            return
        if (beyond := answers.beyond(head)) is not None:
            self._open = beyond
            self._publish()

    def moved(self, head: int | None) -> None:
        """The head is there: what was answered and not seen came late."""
        if self._open is not None and self._open.start != head:
            self._open = None
            self._publish()

    def confirm(self, acked: int) -> None:
        """Requests up to this PSN (exclusively) were acknowledged."""
        if self._unconfirmed is not None and acked > self._unconfirmed[0]:
            self._count(0, -self._unconfirmed[1])
            self._unconfirmed = None

    def give_up(self, gap: Gap, packets: int, acked: int) -> None:
        """So many packets are taken as missing; ``acked``: the PSN up to which requests were acknowledged."""
        if self._open is not None:
            gap = gap._replace(frame=min(gap.frame, self._open.frame), time=min(gap.time, self._open.time))
            acked = max(acked, min(self._open.end, gap.end))
            self._open = None
        self._gaps = with_gap(self._gaps, gap)
        self._publish()
        self._count(packets, 0)
        if acked <= gap.end and (unconfirmed := packets - max(0, acked - gap.start)) > 0:
            self._count(0, unconfirmed)
            before = self._unconfirmed[1] if self._unconfirmed is not None else 0
            self._unconfirmed = gap.end, before + unconfirmed

    def give_up_tail(self, head: int | None, read_responses: ReadResponses) -> None:
        """What was answered was not seen, nor anything behind it."""
        gap = self._open
        if gap is not None and gap.start == head:
            self.give_up(gap, packets_between(read_responses, gap.start, gap.end), gap.end + 1)

    def came_late(self, start: int, stop: int, packets: int) -> None:
        """Requests that were given up."""
        self._gaps = fill_gaps(self._gaps, start, stop)
        self._publish()
        self._count(-packets, -packets)

    def restart(self) -> None:
        """The queue pair number lives again, and PSNs mean others."""
        self._gaps, self._open, self._unconfirmed = (), None, None

    def _count(self, missing: int, unconfirmed: int) -> None:
        connection, sender = self._connection, self._sender
        connection.missing_packets = raised(connection.missing_packets, sender, missing)
        connection.unconfirmed_packets = raised(connection.unconfirmed_packets, sender, unconfirmed)

    def _publish(self) -> None:
        mine = (*self._gaps, self._open) if self._open is not None else tuple(self._gaps)
        theirs = self._connection.gaps[1 - self._sender]
        self._connection.gaps = (theirs, mine) if self._sender else (mine, theirs)
