"""Recovery intervals of a connection, and what waited in them; one machine for InfiniBand, RoCE and iWARP.

A send queue and a TCP stream deliver in order (IBA 9.7.1; RFC 9293, 3.1): behind a loss everything waits until it is
repaired, not only the Operation whose packet was lost.  An interval lasts from the loss to the retransmission, and for
what had been sent whole and is retransmitted behind it (IBA 9.7.5.1.3) to its own last packet.  What begins within the
interval waits from then on.  The lane is what delivers in order:

    0, 1    requests of endpoint 0, of endpoint 1; iWARP: the TCP stream that it sends
    2, 3    responses to the RDMA Reads of endpoint 0, of endpoint 1: only these Reads wait for them;
            iWARP: they are in the TCP stream of the other endpoint
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..arrays import Int64s, places
from .operations import Kind, Operation
from .retransmissions import DUPLICATE, Retransmission

RESPONSES = 2
"""Lane of the responses to the RDMA Reads of endpoint 0."""
ANY_TIME = np.iinfo(np.int64).max


class Spans(NamedTuple):
    """When Operations were sent, a row for each and for each lane that it takes; int64."""

    rpc: Int64s
    """Index of the RPC it belongs to."""
    lane: Int64s
    first_frame: Int64s
    last_frame: Int64s
    """Of the first transmissions of its first and last packet."""
    first: Int64s
    """Nanoseconds; of its first packet."""
    last: Int64s
    """The first transmission of its last packet."""
    last_sent: Int64s
    """The last transmission of any of its packets; 0 where none was retransmitted."""
    limit: Int64s
    """Nanoseconds; by then it had arrived, as an answer to it shows; ANY_TIME where nothing does."""


class Waits(NamedTuple):
    """Stretches of time in which RPCs waited: ascending for each RPC, without overlap; int64."""

    rpc: Int64s
    start: Int64s
    end: Int64s


class _Lane(NamedTuple):
    """Recoveries in the order of ``lost_frame``."""

    lost_frame: Int64s
    lost: Int64s
    again_frame: Int64s
    again: Int64s
    """Nanoseconds; the first retransmitted packet."""
    last_frame: Int64s
    last: Int64s
    """Nanoseconds; the last one."""
    reached: Int64s
    """The highest ``last_frame`` so far."""


def delays(one: Retransmission, tcp: bool) -> bool:
    """Whether what comes behind it waits: TCP delivers what had arrived."""
    return one.lost != "nothing" if tcp else one.cause != DUPLICATE


class Recoveries:
    """The recovery intervals of one connection."""

    def __init__(self, retransmissions: Iterable[Retransmission], tcp: bool) -> None:
        rows: tuple[list[tuple[int, ...]], ...] = [], [], [], []
        before: dict[tuple[int, int], tuple[int, int, int]] = {}
        """By endpoint and where it started: what was lost first, the first and the last retransmitted packet."""
        for one in retransmissions:
            if not delays(one, tcp) or not one.loss_to_retransmission:
                continue
            assert one.lost_time is not None and one.retransmission_time is not None
            again, last = one.retransmission_frame or 0, max(one.last_frame, one.retransmission_frame or 0)
            end = max(one.last_time, one.retransmission_time)
            lost_frame = one.lost_frame or again
            first_lost, low, high = before.get((one.initiator, one.psn), (0, 1, 0))
            if low <= lost_frame <= high:
                lost_frame = first_lost  # What was retransmitted was lost again, and the same RPCs wait on.
            before[one.initiator, one.psn] = lost_frame, again, last
            row = lost_frame, one.lost_time, again, one.retransmission_time, last, end
            if one.lost not in ("response", "acknowledgement"):
                rows[one.initiator].append(row)
                if tcp:
                    rows[RESPONSES + 1 - one.initiator].append(row)
            else:
                rows[RESPONSES + one.initiator].append(row)
        self._lanes = [_lane(one) for one in rows]

    def __bool__(self) -> bool:
        return any(len(one.lost) for one in self._lanes)

    @property
    def recovered(self) -> tuple[bool, bool]:
        """Whether anything that endpoint 0 and endpoint 1 sent was lost and retransmitted."""
        return len(self._lanes[0].lost) > 0, len(self._lanes[1].lost) > 0

    def waits(self, spans: Spans) -> Waits:
        """What each RPC waited: the overlap of its Operations' time with the intervals that these could not pass."""
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
        # What appears for the first time among the retransmitted packets was itself lost before the capture point.
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
    """Ascending for each RPC, and each moment once."""
    order = np.lexsort((waits.start, waits.rpc))
    rpc, start, end = (column[order] for column in waits)
    if len(rpc) < 2:
        return Waits(rpc, start, end)
    # The highest end so far of the same RPC: ranks stand for times, which are too large to be put beside the RPC.
    ranked = np.sort(end)
    group = np.append(0, np.cumsum(rpc[1:] != rpc[:-1]))
    reached = np.maximum.accumulate(group * len(end) + ranked.searchsorted(end)) - group * len(end)
    same = group[1:] == group[:-1]
    start[1:] = np.where(same, np.maximum(start[1:], ranked[reached[:-1].clip(0)]), start[1:])
    kept = start < end
    return Waits(rpc[kept], start[kept], end[kept])


def spans_of(operation: Operation) -> list[tuple[int, ...]]:
    """Lane, first and last frame, first, last and last sent time of an Operation, in each lane that it takes."""
    mine = operation.initiator
    times = operation.first_time, operation.last_time, operation.last_sent
    whole = operation.first_frame, operation.last_frame, *times
    if operation.kind is not Kind.READ:
        return [(mine, *whole)]
    frame, time = operation.first_frame, operation.first_time
    return [(mine, frame, frame, time, time, 0), (RESPONSES + mine, *whole)]
