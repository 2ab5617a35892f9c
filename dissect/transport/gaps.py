"""What a sender is known to have sent and the capture lacks: gaps in PSNs or in the bytes of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MAX_GAPS = 256


class Gap(NamedTuple):
    """PSNs or bytes [start, end) that were not seen; ``frame`` and ``time`` of the packet that showed it."""

    start: int
    end: int
    frame: int
    time: int


def add_gap(gaps: list[Gap], gap: Gap) -> None:
    """Put ``gap`` behind the others; the oldest go where there are too many."""
    del gaps[: max(0, len(gaps) - MAX_GAPS + 1)]
    gaps.append(gap)


def fill_gaps(gaps: Sequence[Gap], start: int, stop: int) -> list[Gap]:
    """What is left of them when [start, stop) was seen."""
    left: list[Gap] = []
    for gap in gaps:
        if gap.start < start:
            left.append(Gap(gap.start, min(gap.end, start), gap.frame, gap.time))
        if gap.end > stop:
            left.append(Gap(max(gap.start, stop), gap.end, gap.frame, gap.time))
    return left
