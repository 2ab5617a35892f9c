"""Sets of half-open integer intervals: which bytes or sequence numbers were seen."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class IntervalSet:
    """Disjoint intervals [start, end), ascending; touching ones are merged."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, start: int, end: int) -> list[tuple[int, int]]:
        """Add [start, end) and return the parts of it that were not there yet, ascending."""
        if end <= start:
            return []
        starts, ends = self.starts, self.ends
        if not ends or start > ends[-1]:
            starts.append(start)
            ends.append(end)
            return [(start, end)]
        if start == ends[-1]:
            ends[-1] = end
            return [(start, end)]
        low = bisect_left(ends, start)
        high = bisect_right(starts, end)
        fresh: list[tuple[int, int]] = []
        reached = start
        for index in range(low, high):
            if starts[index] > reached:
                fresh.append((reached, min(starts[index], end)))
            reached = max(reached, ends[index])
        if reached < end:
            fresh.append((reached, end))
        merged = start, end
        if low < high:
            merged = min(start, starts[low]), max(end, ends[high - 1])
        starts[low:high] = [merged[0]]
        ends[low:high] = [merged[1]]
        return fresh

    def remove(self, start: int, end: int) -> None:
        """Take out every member of [start, end)."""
        if end <= start:
            return
        low, high = bisect_right(self.ends, start), bisect_left(self.starts, end)
        if low >= high:
            return
        left = (self.starts[low], start) if self.starts[low] < start else None
        right = (end, self.ends[high - 1]) if self.ends[high - 1] > end else None
        kept = [part for part in (left, right) if part is not None]
        self.starts[low:high] = [part[0] for part in kept]
        self.ends[low:high] = [part[1] for part in kept]

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that are not in the set, ascending."""
        gaps: list[tuple[int, int]] = []
        reached = start
        for index in range(bisect_right(self.ends, start), len(self.starts)):
            if self.starts[index] >= end:
                break
            if self.starts[index] > reached:
                gaps.append((reached, self.starts[index]))
            reached = self.ends[index]
        if reached < end:
            gaps.append((reached, end))
        return gaps

    def covers(self, start: int, end: int) -> bool:
        """Whether every member of [start, end) is in the set."""
        return not self.missing(start, end)

    def __len__(self) -> int:
        """How many integers are in the set."""
        return sum(self.ends) - sum(self.starts)
