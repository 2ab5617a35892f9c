"""Retransmissions: what either end of a connection sent more than once, and why; of every transport.

The unit is the packet for InfiniBand and RoCE, and the TCP segment with payload for iWARP.  A packet counts as
retransmitted if the capture has an earlier transmission of it, or shows that one was lost before the capture point. Two
kinds are kept apart and do not count: copies made by the network or the capture (cause 'duplicate'), and packets that
came late although nothing shows that they were sent twice ('reordered')."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, places
from ..named_tuple import NamedTuple
from .operations import Kind, Operation

MAX_INTERVALS = 512
"""Intervals remembered; beyond that their width doubles."""
FIRST_SHIFT = 10
"""The first intervals are 2 to this power nanoseconds wide."""


class PacketTimes:
    """A histogram of times in nanoseconds, which may come in any order."""

    __slots__ = ("_counts", "_shift")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._shift = FIRST_SHIFT

    def add(self, times: Iterable[int]) -> None:
        """Count packets sent at these times."""
        for interval in [time >> self._shift for time in times]:
            self._counts[interval] = self._counts.get(interval, 0) + 1
        while len(self._counts) > MAX_INTERVALS:
            self._shift += 1
            wider: dict[int, int] = {}
            for interval, count in self._counts.items():
                wider[interval >> 1] = wider.get(interval >> 1, 0) + count
            self._counts = wider

    def moments(self) -> tuple[tuple[int, int], ...]:
        """The middle of each interval with packets, in nanoseconds, and their number; ascending."""
        half = (1 << self._shift) // 2
        return tuple(sorted(((interval << self._shift) + half, count) for interval, count in self._counts.items()))


MAX_RETRANSMISSIONS = 4096
"""Single retransmissions remembered per sender, the latest; all are counted."""

LATE = "late"
"""Cause of packets that came late although nothing shows that they were sent twice."""
SHOWN_LATE = 50_000_000
"""Nanoseconds by which a capture may show a packet late.  A packet that comes even later after its acknowledgement was
sent twice, and one of the two is missing: senders wait longer than this before they retransmit."""
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
"""Causes by which packets were seen more than once."""


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
NO_TALLIES: Mapping[str, Tally] = MappingProxyType({})
NO_CAUSES: Mapping[str, Tally] = {}
"""As ``NO_TALLIES``, but ``pickle`` can handle it."""
_NO_COUNTS: Counter[str] = Counter()


class Retransmission(NamedTuple):
    """One return to an earlier packet: what was lost, which notice announced it, and when it was retransmitted.

    Times are nanoseconds since the epoch at the capture point; None means not seen.
    """

    initiator: int
    """The endpoint that retransmitted requests."""
    psn: int
    """PSN of the first retransmitted packet, 24 bits; iWARP: TCP sequence number, 32 bits."""
    end: int
    """PSN or sequence number after the last retransmitted packet; greater than ``psn``, as it does not wrap."""
    cause: str
    """One of ``CAUSES``."""
    lost: str
    """'request', 'response', 'acknowledgement', 'segment' (iWARP), 'nothing' (RNR NAK, a copy, or it had arrived) or
    'unknown'."""
    lost_packet_captured: bool | None
    """True: the lost packet is in the capture, so it was lost after the capture point.  False: it was lost before it,
    or the capture missed it.  None: unknown."""
    lost_frame: int | None
    """The lost packet if ``lost_packet_captured``; else the first packet that shows that it is missing."""
    lost_time: int | None
    nak_frame: int | None
    """iWARP: the first duplicate acknowledgement."""
    nak_time: int | None
    retransmission_frame: int | None
    """The first retransmitted packet; None if nothing was retransmitted."""
    retransmission_time: int | None
    packets: int
    """Number of requests that were retransmitted."""
    bytes: int
    last_frame: int = 0
    """The last retransmitted packet, including responses to a Read that was issued again; 0 for none."""
    last_time: int = 0

    @property
    def toward(self) -> int | None:
        """The endpoint that did not receive what was lost; None: unknown."""
        if self.lost in ("request", "segment"):
            return 1 - self.initiator
        return self.initiator if self.lost in ("response", "acknowledgement") else None

    @property
    def loss_to_nak(self) -> int | None:
        """From the loss to the NAK, nanoseconds."""
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
    """A return to an earlier packet that may still grow, or change its cause."""

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
    """Frame of the first retransmitted packet."""
    time: int | None
    last_time: int = 0
    """Time of the last retransmitted packet, ns."""
    last_frame: int = 0
    answers: tuple[tuple[int, int, int, int], ...] = ()
    """Read responses that were retransmitted with it: first and last frame, first PSN and PSN after the last,
    unwrapped."""
    original_captured: Tally = NONE
    """Packets of which an earlier transmission is in the capture."""
    original_missing: Tally = NONE
    """Packets whose earlier transmission was lost before the capture point."""

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
        """Number of retransmissions by cause, however many packets each has."""
        return _NO_COUNTS if self._counts is None else self._counts

    @property
    def recent(self) -> deque[OpenRetransmission]:
        """The latest retransmissions; the last one may be open."""
        if self._recent is None:
            self._recent = deque(maxlen=MAX_RETRANSMISSIONS)
        return self._recent

    def begin(self, opened: OpenRetransmission) -> None:
        """Add a retransmission, without any packet so far."""
        self.recent.append(opened)
        self._count_one(opened.cause, 1)

    def grow(
        self,
        opened: OpenRetransmission,
        end: int,
        fresh: Sequence[bool],
        lengths: Sequence[int],
        last_frame: int,
        times: Sequence[int],
        copy: bool,
    ) -> None:
        """Add packets to a retransmission, up to ``end``, sent at ``times`` (ns).

        ``fresh``: by packet, whether the capture lacks an earlier transmission; ``copy``: it may still be a copy.
        """
        count, size, new = len(fresh), sum(lengths), sum(fresh)
        if (opened.cause == LATE and new < count) or (opened.cause == DUPLICATE and not copy):
            self.recast(opened, "unknown")
        opened.end = max(opened.end, end)
        opened.last_frame, opened.last_time = last_frame, times[-1]
        captured, missing = NONE, NONE
        if new:
            missing = Tally(new, size if new == count else sum(compress(lengths, fresh)))
            opened.original_missing += missing
        if new < count:
            captured = Tally(count - new, size - missing.bytes)
            opened.original_captured += captured
        self.add(opened.cause, captured, missing, times)

    def recast(self, opened: OpenRetransmission, cause: str) -> None:
        """Change the cause of a retransmission; 'duplicate' and 'late' packets count from then on."""
        self.add(opened.cause, NONE - opened.original_captured, NONE - opened.original_missing, ())
        self._count_one(opened.cause, -1)
        packets = (
            (opened.original_captured + opened.original_missing).packets if opened.cause in (LATE, DUPLICATE) else 0
        )
        opened.cause = cause
        self.add(cause, opened.original_captured, opened.original_missing, [opened.time or 0] * packets)
        self._count_one(cause, 1)

    def add(self, cause: str, original_captured: Tally, original_missing: Tally, times: Sequence[int]) -> None:
        """Count packets, such as responses, that are not a retransmission of their own, with their times (ns)."""
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
        """Packets seen twice or known to be lost, by cause, including copies."""
        if not self._original_captured and not self._original_missing:
            return NO_CAUSES
        by_cause = dict(self._original_captured)
        for cause, tally in self._original_missing.items():
            by_cause[cause] = by_cause.get(cause, NONE) + tally
        return by_cause

    @property
    def original_captured(self) -> Tally:
        """Packets of which the capture has an earlier transmission, including copies."""
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
        """Packets that were retransmitted, wherever the first transmission was lost, without copies."""
        if not self._original_captured and not self._original_missing:
            return NONE
        return sum((tally for cause, tally in self.causes.items() if cause != DUPLICATE), NONE)

    @property
    def times(self) -> tuple[tuple[int, int], ...]:
        """When ``retransmitted`` packets were sent, as ``PacketTimes.moments``."""
        return () if self._times is None else self._times.moments()

    def __iter__(self) -> Iterator[OpenRetransmission]:
        """The latest retransmissions, in order."""
        return (noted for noted in self._recent or () if noted.cause != LATE)

    def __bool__(self) -> bool:
        """Whether anything was seen twice, or late."""
        return bool(self._counts or self._original_captured or self._original_missing or self.late)


def _with(tallies: Mapping[str, Tally], cause: str, more: Tally) -> Mapping[str, Tally]:
    """``tallies`` with ``more`` of a cause; leaves out causes that are zero."""
    if more == NONE:
        return tallies
    tallies_with = {**tallies, cause: tallies.get(cause, NONE) + more}
    if tallies_with[cause] == NONE:
        del tallies_with[cause]
    return tallies_with


RESPONSES = 2
"""Lane of the responses to endpoint 0's RDMA Reads; the next one is for endpoint 1's."""
ANY_TIME = np.iinfo(np.int64).max


class Spans(NamedTuple):
    """When Operations were sent, one row per Operation and lane that it uses; int64."""

    rpc: Int64s
    """Index of its RPC."""
    lane: Int64s
    first_frame: Int64s
    last_frame: Int64s
    """Frames of the first transmissions of its first and last packet."""
    first: Int64s
    """Nanoseconds; first packet."""
    last: Int64s
    """Nanoseconds; first transmission of the last packet."""
    last_sent: Int64s
    """Nanoseconds; last transmission of any of its packets, 0 if none was retransmitted."""
    limit: Int64s
    """Nanoseconds; by then it had arrived, as an answer shows; ANY_TIME without an answer."""


class Waits(NamedTuple):
    """Times in which RPCs waited: ascending for each RPC, disjoint; int64."""

    rpc: Int64s
    start: Int64s
    end: Int64s


class _Lane(NamedTuple):
    """Recoveries of one lane, ordered by ``lost_frame``."""

    lost_frame: Int64s
    lost: Int64s
    again_frame: Int64s
    again: Int64s
    """Nanoseconds; time of the first retransmitted packet."""
    last_frame: Int64s
    last: Int64s
    """Nanoseconds; time of the last retransmitted packet."""
    reached: Int64s
    """The highest ``last_frame`` up to this row."""


def delays(retransmission: Retransmission, tcp: bool) -> bool:
    """Whether later packets wait for this one; with TCP not if it had arrived, as the receiver delivers them."""
    return retransmission.lost != "nothing" if tcp else retransmission.cause != DUPLICATE


class Recoveries:
    """The recovery intervals of one connection."""

    def __init__(self, retransmissions: Iterable[Retransmission], tcp: bool) -> None:
        rows: tuple[list[tuple[int, ...]], ...] = [], [], [], []
        before: dict[tuple[int, int], tuple[int, int, int]] = {}
        """By endpoint and PSN: frame of the first loss, first and last retransmitted packet."""
        for retransmission in retransmissions:
            if not delays(retransmission, tcp) or not retransmission.loss_to_retransmission:
                continue
            assert retransmission.lost_time is not None and retransmission.retransmission_time is not None
            again, last = (
                retransmission.retransmission_frame or 0,
                max(retransmission.last_frame, retransmission.retransmission_frame or 0),
            )
            end = max(retransmission.last_time, retransmission.retransmission_time)
            lost_frame = retransmission.lost_frame or again
            first_lost, low, high = before.get((retransmission.initiator, retransmission.psn), (0, 1, 0))
            if low <= lost_frame <= high:
                lost_frame = first_lost  # The retransmission was lost again, and the same RPCs continue to wait.
            before[retransmission.initiator, retransmission.psn] = lost_frame, again, last
            row = lost_frame, retransmission.lost_time, again, retransmission.retransmission_time, last, end
            if retransmission.lost not in ("response", "acknowledgement"):
                rows[retransmission.initiator].append(row)
                if tcp:
                    rows[RESPONSES + 1 - retransmission.initiator].append(row)
            else:
                rows[RESPONSES + retransmission.initiator].append(row)
        self._lanes = [_lane(row) for row in rows]
        self._all = _lane([*chain.from_iterable(rows)])
        """All lanes as one."""

    def __bool__(self) -> bool:
        return any(len(lane.lost) for lane in self._lanes)

    @property
    def recovered(self) -> tuple[bool, bool]:
        """By endpoint: whether anything that it sent was lost and retransmitted."""
        return len(self._lanes[0].lost) > 0, len(self._lanes[1].lost) > 0

    def between(self, first_frames: Int64s, last_frames: Int64s) -> NDArray[np.bool_]:
        """Which of these frame ranges overlap a recovery interval: only packets sent in those waited."""
        low, end = self._all.reached.searchsorted(first_frames), self._all.lost_frame.searchsorted(last_frames, "right")
        return np.asarray(low < end)

    def waits(self, spans: Spans) -> Waits:
        """The waits of each RPC: where its Operations overlap intervals that block them."""
        parts = [self._waits(number, lane, spans) for number, lane in enumerate(self._lanes) if len(lane.lost)]
        return merged(Waits(*(np.concatenate(column) for column in zip(*parts, strict=True)))) if parts else NO_WAITS

    def _waits(self, number: int, lane: _Lane, spans: Spans) -> Waits:
        mine = places(spans.lane == number)
        low = lane.reached.searchsorted(spans.first_frame[mine])
        counts = (lane.lost_frame.searchsorted(spans.last_frame[mine], side="right") - low).clip(0)
        span = np.repeat(mine, counts)
        index = np.arange(len(span)) - np.repeat(np.cumsum(counts) - counts - low, counts)
        first, last, last_sent, limit = (column[span] for column in spans[4:])
        lost, again = lane.lost[index], lane.again[index]
        # An Operation that first appears among the retransmitted packets was itself lost before the capture point.
        unseen = spans.first_frame[span] >= lane.again_frame[index]
        whole = (last_sent > 0) & (last <= again) & ~unseen
        start = np.where(unseen, lost, np.maximum(lost, first))
        end = np.where(unseen, first, np.where(whole, last_sent, again)).clip(again, lane.last[index])
        end = np.minimum(end, limit)
        kept = (spans.first_frame[span] <= lane.last_frame[index]) & (again <= limit) & (start < end)
        if number >= RESPONSES:
            kept &= ~unseen
        return Waits(spans.rpc[span[kept]], start[kept], end[kept])


def _lane(rows: list[tuple[int, ...]]) -> _Lane:
    lost_frame, lost, again_frame, again, last_frame, last = np.array(sorted(rows), np.int64).reshape(-1, 6).T
    return _Lane(lost_frame, lost, again_frame, again, last_frame, last, np.maximum.accumulate(last_frame))


NO_WAITS = Waits(*(np.empty(0, np.int64) for _ in range(3)))


def merged(waits: Waits) -> Waits:
    """The waits ordered by RPC and time, with overlaps merged."""
    order = np.lexsort((waits.start, waits.rpc))
    rpc, start, end = (column[order] for column in waits)
    if len(rpc) < 2:
        return Waits(rpc, start, end)
    # The highest end so far of the same RPC.  Ranks replace times, which are too large to combine with the RPC.
    ranked = np.sort(end)
    group = np.append(0, np.cumsum(rpc[1:] != rpc[:-1]))
    reached = np.maximum.accumulate(group * len(end) + ranked.searchsorted(end)) - group * len(end)
    same = group[1:] == group[:-1]
    start[1:] = np.where(same, np.maximum(start[1:], ranked[reached[:-1].clip(0)]), start[1:])
    kept = start < end
    return Waits(rpc[kept], start[kept], end[kept])


def spans_of(operation: Operation) -> list[tuple[int, ...]]:
    """The ``Spans`` row of an Operation, without RPC and limit, for each lane that it uses."""
    mine = operation.initiator
    times = operation.first_time, operation.last_time, operation.last_sent
    whole = operation.first_frame, operation.last_frame, *times
    if operation.kind is not Kind.READ:
        return [(mine, *whole)]
    frame, time = operation.first_frame, operation.first_time
    return [(mine, frame, frame, time, time, 0), (RESPONSES + mine, *whole)]


SILENCE = 50_000_000
"""Nanoseconds; shorter pauses of a sender are not remembered."""
MAX_SILENCES = 256
MAX_EXPIRED = 8
"""Expirations to consider: a queue pair retries up to seven times (IBA 12.7.38)."""


class InferredLoss(NamedTuple):
    """A loss at the end of a burst that only the time until its retransmission shows."""

    sender: int
    rpc: int
    """``Rpc.number`` of the RPC that waited."""
    frame: int
    """The retransmission, the only captured packet of it."""
    since: int
    """Nanoseconds since the epoch."""
    until: int
    evidence: str
    confidence: float
    """0 to 1."""


class Timer(NamedTuple):
    """A timer after which a sender retransmits what was not acknowledged, or found no receive buffer."""

    duration: int
    """Nanoseconds."""
    name: str
    doubles: bool = False
    """Its duration doubles each time it expires (RFC 6298, 5.5); else it stays the same."""

    def times(self, waited: int) -> tuple[int, int]:
        """How often it can have expired within ``waited`` nanoseconds, and how long that took."""
        count = total = 0
        step = self.duration
        while count < MAX_EXPIRED and total + step <= waited:
            count, total = count + 1, total + step
            step += step * self.doubles
        return count, total


class Silences:
    """The latest long pauses of a sender."""

    __slots__ = ("_known", "_last")

    def __init__(self) -> None:
        self._last = 0
        self._known: deque[tuple[int, int]] | None = None

    def note(self, frames: Int64s, times: Int64s) -> None:
        """Note the frames and times (ns) of packets that it sent."""
        first, before, self._last = times.item(0), self._last, times.item(-1)
        if first - before >= SILENCE:
            self._add([frames.item(0)], [before])
        if self._last - first >= SILENCE:
            pauses = places(times[1:] - times[:-1] >= SILENCE)[-MAX_SILENCES:]
            self._add(frames[pauses + 1].tolist(), times[pauses].tolist())

    def _add(self, frames: list[int], before: list[int]) -> None:
        if self._known is None and frames:
            self._known = deque(maxlen=MAX_SILENCES)
        if self._known is not None:
            self._known.extend(zip(frames, before, strict=True))

    def before(self, frame: int) -> int | None:
        """When it sent the last packet (ns) before the pause that ended with ``frame``, 0 if it had sent none; None if
        there was no such pause."""
        return next((time for known, time in reversed(self._known or ()) if known == frame), None)
