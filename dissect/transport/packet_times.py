"""When packets of one kind were sent, in a bounded number of intervals that widen as time goes on."""

from __future__ import annotations

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
