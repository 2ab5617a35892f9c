"""What a sender is known to have sent and the capture lacks: gaps in PSNs or in the bytes of a stream."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

MAX_GAPS = 256
"""The oldest go where there are more."""


class Gap(NamedTuple):
    """PSNs or bytes [start, end) that were not seen; ``frame`` and ``time`` of the packet that showed it."""

    start: int
    end: int
    frame: int
    time: int


_START, _END = attrgetter("start"), attrgetter("end")


def with_gap(gaps: Sequence[Gap], gap: Gap) -> list[Gap]:
    """The gaps, which are apart and in order, and one behind them."""
    return [*gaps[1 - MAX_GAPS :], gap]


def overlapping(gaps: Sequence[Gap], start: int, stop: int) -> Sequence[Gap]:
    """Those of which [start, stop) has a part."""
    first = bisect_right(gaps, start, key=_END)
    return gaps[first : bisect_left(gaps, stop, first, key=_START)]


def fill_gaps(gaps: Sequence[Gap], start: int, stop: int) -> list[Gap]:
    """What is left of them when [start, stop) was seen."""
    first = bisect_right(gaps, start, key=_END)
    behind = bisect_left(gaps, stop, first, key=_START)
    left: list[Gap] = []
    for gap in gaps[first:behind]:
        if gap.start < start:
            left.append(gap._replace(end=start))
        if gap.end > stop:
            left.append(gap._replace(start=stop))
    return [*gaps[:first], *left, *gaps[behind:]][-MAX_GAPS:]
