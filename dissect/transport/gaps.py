"""What a sender is known to have sent and the capture lacks: gaps in PSNs or in the bytes of a stream."""

from __future__ import annotations

from typing import NamedTuple

MAX_HOLES = 256


class Hole(NamedTuple):
    """PSNs or bytes [start, end) that were not seen; ``frame`` and ``time`` of the packet that showed it."""

    start: int
    end: int
    frame: int
    time: int


def add_hole(holes: list[Hole], hole: Hole) -> None:
    """Put ``hole`` behind the others; the oldest go where there are too many."""
    del holes[: max(0, len(holes) - MAX_HOLES + 1)]
    holes.append(hole)


def fill_holes(holes: list[Hole], start: int, stop: int) -> list[Hole]:
    """What is left of them when [start, stop) was seen."""
    left: list[Hole] = []
    for hole in holes:
        if hole.start < start:
            left.append(Hole(hole.start, min(hole.end, start), hole.frame, hole.time))
        if hole.end > stop:
            left.append(Hole(max(hole.start, stop), hole.end, hole.frame, hole.time))
    return left
