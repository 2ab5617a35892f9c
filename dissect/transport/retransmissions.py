"""Retransmissions: what either end of a connection sent more than once, and why; of every transport.

What is counted are packets of InfiniBand and RoCE, and TCP segments with payload of iWARP.  A packet counts as
retransmitted where the capture holds an earlier transmission of it, or shows that one was lost before the capture
point.  Two kinds are kept apart and do not count: copies, which the network or the capture made (cause 'duplicate'),
and packets that came late though nothing shows that they were sent twice ('reordered').
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ..arrays import Int64s

MAX_INTERVALS = 512
"""That are remembered."""
FIRST_SHIFT = 10
"""The first intervals are this power of two nanoseconds wide."""


class PacketTimes:
    """Fed times in nanoseconds, in any order."""

    __slots__ = ("_counts", "_shift")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._shift = FIRST_SHIFT

    def add(self, times: Int64s) -> None:
        """Packets of these times."""
        found, counts = np.unique(times >> self._shift, return_counts=True)
        for interval, count in zip(found.tolist(), counts.tolist(), strict=True):
            self._counts[interval] = self._counts.get(interval, 0) + count
        while len(self._counts) > MAX_INTERVALS:
            self._shift += 1
            wider: dict[int, int] = {}
            for interval, count in self._counts.items():
                wider[interval >> 1] = wider.get(interval >> 1, 0) + count
            self._counts = wider

    def moments(self) -> tuple[tuple[int, int], ...]:
        """The middle of each interval with packets, in nanoseconds, and how many; ascending."""
        half = (1 << self._shift) // 2
        return tuple(sorted(((interval << self._shift) + half, count) for interval, count in self._counts.items()))


MAX_RETRANSMISSIONS = 4096
"""Single ones that are remembered of each sender, the last ones; all are counted."""

LATE = "late"
"""Came late, but nothing shows that it was sent twice."""
DUPLICATE = "duplicate"

CAUSES = (
    "NAK sequence error",  # the responder missed a PSN and said so (IBA 9.7.5)
    "implied NAK",  # a Read response was missing, so the requester asked again (IBA 9.9)
    "RNR NAK",  # the responder had no receive buffer (IBA 9.7.5)
    "fast retransmit",  # TCP: the receiver acknowledged the byte before it again and again (RFC 5681, 3.2)
    "timeout",  # nothing came for a while (IBA 9.9; RFC 6298)
    "unknown",  # retransmitted, but the capture does not show why
    DUPLICATE,  # one packet twice, and its sender went on
)
"""Why packets were seen more than once."""


@dataclass(frozen=True, slots=True)
class Tally:
    """A number of packets and their payload bytes."""

    packets: int = 0
    bytes: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.packets + other.packets, self.bytes + other.bytes)

    def __sub__(self, other: Tally) -> Tally:
        return Tally(self.packets - other.packets, self.bytes - other.bytes)


NONE = Tally()
NO_TIMES: Int64s = np.empty(0, np.int64)
NO_TALLIES: Mapping[str, Tally] = MappingProxyType({})
NO_CAUSES: Mapping[str, Tally] = {}
"""The same, which ``pickle`` takes."""


class Retransmission(NamedTuple):
    """One return to an earlier packet: what was lost, which notice announced it, and when it was retransmitted.

    Moments are nanoseconds since the epoch, as seen where the capture was taken; None is: not seen.
    """

    initiator: int
    """The endpoint that retransmitted requests."""
    psn: int
    """Where it started, 24 bits; iWARP: the TCP sequence number, 32 bits."""
    end: int
    """PSN or sequence number behind the last retransmitted one; greater than ``psn``, whatever its bits."""
    cause: str
    """One of ``CAUSES``."""
    lost: str
    """'request', 'response', 'acknowledgement', 'segment' (iWARP), 'nothing' (RNR NAK, a copy, what had arrived) or
    'unknown'."""
    lost_packet_captured: bool | None
    """The lost packet is in the capture: it was lost behind the capture point; False: it was lost before it,
    or missed by the capture; None: not known."""
    lost_frame: int | None
    """Where ``lost_packet_captured``: the lost packet.  Else: the first packet that shows it missing."""
    lost_time: int | None
    nak_frame: int | None
    """iWARP: of the first duplicate acknowledgement."""
    nak_time: int | None
    retransmission_frame: int | None
    """The first retransmitted packet; None where there was none."""
    retransmission_time: int | None
    packets: int
    """Requests that were retransmitted."""
    bytes: int
    last_frame: int = 0
    """The last retransmitted packet, also of the responses to a Read that was issued again; 0 for none."""
    last_time: int = 0

    @property
    def toward(self) -> int | None:
        """The endpoint that missed what was lost; None: not known."""
        if self.lost in ("request", "segment"):
            return 1 - self.initiator
        return self.initiator if self.lost in ("response", "acknowledgement") else None

    @property
    def loss_to_nak(self) -> int | None:
        """Nanoseconds."""
        return _between(self.lost_time, self.nak_time)

    @property
    def nak_to_retransmission(self) -> int | None:
        return _between(self.nak_time, self.retransmission_time)

    @property
    def loss_to_retransmission(self) -> int | None:
        return _between(self.lost_time, self.retransmission_time)


def _between(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else max(0, end - start)


@dataclass(slots=True, eq=False)
class OpenRetransmission:
    """A return to an earlier packet that may still grow, or be seen in another light."""

    start: int
    """Unwrapped."""
    end: int
    cause: str
    lost: str
    lost_packet_captured: bool | None
    lost_frame: int | None
    lost_time: int | None
    nak_frame: int | None
    nak_time: int | None
    frame: int | None
    """Of the first retransmitted packet."""
    time: int | None
    last_time: int = 0
    """Of the last one."""
    last_frame: int = 0
    answers: tuple[tuple[int, int, int, int], ...] = ()
    """Read responses that came again with it: first and last frame, first PSN, and the one behind; unwrapped."""
    original_captured: Tally = NONE
    """Packets of which an earlier transmission is in the capture."""
    original_missing: Tally = NONE
    """Packets of which the earlier transmission was lost before the capture point."""

    def noun(self, initiator: int, start: int) -> Retransmission:
        """``start``: the same, as the wire has it."""
        total = self.original_captured + self.original_missing
        return Retransmission(
            initiator,
            start,
            start + self.end - self.start,
            self.cause,
            self.lost,
            self.lost_packet_captured,
            self.lost_frame,
            self.lost_time,
            self.nak_frame,
            self.nak_time,
            self.frame,
            self.time,
            total.packets,
            total.bytes,
            self.last_frame,
            self.last_time,
        )


class SenderLedger:
    """What one end of a connection retransmitted, always up to date."""

    __slots__ = ("_counts", "_original_captured", "_original_missing", "_recent", "_times", "late")

    def __init__(self) -> None:
        self._counts: Counter[str] | None = None
        self.late = 0
        """Packets that came late although nothing shows that they were sent twice."""
        self._original_captured: Mapping[str, Tally] = NO_TALLIES
        self._original_missing: Mapping[str, Tally] = NO_TALLIES
        self._recent: deque[OpenRetransmission] | None = None
        self._times: PacketTimes | None = None

    @property
    def counts(self) -> Counter[str]:
        """Retransmissions by cause, however many packets each has."""
        return Counter() if self._counts is None else self._counts

    @property
    def recent(self) -> deque[OpenRetransmission]:
        """The last ones, the latest of which may be open."""
        if self._recent is None:
            self._recent = deque(maxlen=MAX_RETRANSMISSIONS)
        return self._recent

    def begin(self, one: OpenRetransmission) -> None:
        """It has no packet yet."""
        self.recent.append(one)
        self._count_one(one.cause, 1)

    def grow(self, one: OpenRetransmission, original_captured: Tally, original_missing: Tally, times: Int64s) -> None:
        """More packets of it, sent at these times (ns)."""
        one.original_captured += original_captured
        one.original_missing += original_missing
        self.add(one.cause, original_captured, original_missing, times)

    def recast(self, one: OpenRetransmission, cause: str) -> None:
        """It has another cause than it seemed to have: its packets do count, where they did not."""
        self.add(one.cause, NONE - one.original_captured, NONE - one.original_missing, NO_TIMES)
        self._count_one(one.cause, -1)
        packets = (one.original_captured + one.original_missing).packets if one.cause in (LATE, DUPLICATE) else 0
        one.cause = cause
        self.add(cause, one.original_captured, one.original_missing, np.full(packets, one.time or 0))
        self._count_one(cause, 1)

    def add(self, cause: str, original_captured: Tally, original_missing: Tally, times: Int64s) -> None:
        """Count packets, of responses for example, that are no retransmission by themselves, with their times (ns)."""
        if cause == LATE:
            self.late += original_missing.packets
            return
        if cause != DUPLICATE and len(times):
            if self._times is None:
                self._times = PacketTimes()
            self._times.add(times)
        self._original_captured = _with(self._original_captured, cause, original_captured)
        self._original_missing = _with(self._original_missing, cause, original_missing)

    def _count_one(self, cause: str, by: int) -> None:
        if cause == LATE:
            return
        if self._counts is None:
            self._counts = Counter()
        self._counts[cause] += by
        if not self._counts[cause]:
            del self._counts[cause]

    @property
    def causes(self) -> Mapping[str, Tally]:
        """Packets seen twice or known to have been lost, by cause; copies among them."""
        if not self._original_captured and not self._original_missing:
            return NO_CAUSES
        found = dict(self._original_captured)
        for cause, tally in self._original_missing.items():
            found[cause] = found.get(cause, NONE) + tally
        return found

    @property
    def original_captured(self) -> Tally:
        """Packets of which an earlier transmission is in the capture, copies among them."""
        if not self._original_captured:
            return NONE
        return sum(self._original_captured.values(), NONE)

    @property
    def original_missing(self) -> Tally:
        """Packets whose earlier transmission was lost before the capture point."""
        if not self._original_missing:
            return NONE
        return sum(self._original_missing.values(), NONE)

    @property
    def retransmitted(self) -> Tally:
        """Packets that were retransmitted, wherever the first transmission was lost; no copies."""
        if not self._original_captured and not self._original_missing:
            return NONE
        return sum((tally for cause, tally in self.causes.items() if cause != DUPLICATE), NONE)

    @property
    def times(self) -> tuple[tuple[int, int], ...]:
        """When those were sent, as ``PacketTimes.moments`` gives it."""
        return () if self._times is None else self._times.moments()

    def __iter__(self) -> Iterator[OpenRetransmission]:
        """The last ones, in order."""
        return (one for one in self._recent or () if one.cause != LATE)

    def __bool__(self) -> bool:
        """Something was seen twice, or late."""
        return bool(self._counts or self._original_captured or self._original_missing or self.late)


def _with(tallies: Mapping[str, Tally], cause: str, more: Tally) -> Mapping[str, Tally]:
    """``tallies`` with more of a cause; none that is zero."""
    if more == NONE:
        return tallies
    found = {**tallies, cause: tallies.get(cause, NONE) + more}
    if found[cause] == NONE:
        del found[cause]
    return found
