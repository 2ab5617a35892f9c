"""Traffic over time, in a bounded number of bins."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

MOST_BINS = 4096


@dataclass(slots=True)
class Bin:
    """What ended in one stretch of time."""

    calls: int = 0
    call_bytes: int = 0
    reply_bytes: int = 0

    def add(self, other: Bin) -> None:
        self.calls += other.calls
        self.call_bytes += other.call_bytes
        self.reply_bytes += other.reply_bytes


@dataclass(slots=True)
class Timeline:
    """Traffic over time, in bins that widen as time goes on, so that their number stays bounded."""

    width: int = 1_000_000
    """Nanoseconds."""
    bins: dict[int, Bin] = field(default_factory=dict)
    """By time // width; stretches in which nothing ended are absent."""

    def add(self, time: int, call_bytes: int, reply_bytes: int) -> None:
        here = self.bins.get(time // self.width)
        if here is None:
            if len(self.bins) >= MOST_BINS:
                self._widen()
            here = self.bins.setdefault(time // self.width, Bin())
        here.calls += 1
        here.call_bytes += call_bytes
        here.reply_bytes += reply_bytes

    def _widen(self) -> None:
        """Double the width as often as it takes for two bins to become one."""
        numbers = sorted(self.bins)
        # Two numbers become one with the last bit in which they differ; those of before and after 1970 never do.
        doublings = min(a ^ b for a, b in pairwise(numbers) if (a < 0) == (b < 0)).bit_length()
        wider: dict[int, Bin] = {}
        for at, old in self.bins.items():
            new = wider.setdefault(at >> doublings, old)
            if new is not old:
                new.add(old)
        self.bins = wider
        self.width <<= doublings

    def spread(self, count: int) -> tuple[float, list[Bin]]:
        """The whole time in at most ``count`` equal stretches: seconds of each, and what ended in it."""
        if not self.bins:
            return 0.0, []
        first, last = min(self.bins), max(self.bins)
        each = -(-(last - first + 1) // count)
        spread = [Bin() for _ in range(-(-(last - first + 1) // each))]
        for at, old in self.bins.items():
            spread[(at - first) // each].add(old)
        return each * self.width / 1e9, spread
