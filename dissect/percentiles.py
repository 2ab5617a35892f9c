"""Durations of any number, in little memory: exact while they are few, then a histogram."""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.typing import NDArray

from .arrays import Int64s, extremes
from .transport.health import Spread

EXACT = 4096
"""Samples kept as they are; more become a histogram."""

_MANTISSA = 18
"""Bits of a 32-bit float that a histogram's bin leaves out: 32 bins for each doubling, so 1.6 % around the middle."""
_FIRST_BIN = 127 << 5
_BINS = 45 << 5


class Samples:
    """Durations in nanoseconds, of any number, in little memory."""

    __slots__ = ("_bins", "_exact", "count", "maximum", "minimum")

    def __init__(self) -> None:
        self.count = 0
        self.minimum = self.maximum = 0
        self._exact: list[Int64s] = []
        self._bins: NDArray[np.int64] | None = None

    def add(self, durations: Int64s) -> None:
        """None of them negative."""
        if not len(durations):
            return
        low, high = extremes(durations)
        self.minimum = min(self.minimum, low) if self.count else low
        self.maximum = max(self.maximum, high) if self.count else high
        self.count += len(durations)
        if self._bins is None:
            self._exact.append(durations)
            if self.count <= EXACT:
                return
            durations = np.concatenate(self._exact)
            self._exact.clear()
            self._bins = np.zeros(_BINS, np.int64)
        self._bins += _binned(durations)

    def at(self, share: float) -> int:
        """The smallest duration that ``share`` of all do not exceed."""
        return self._at(share)[0]

    def _at(self, *shares: float) -> list[int]:
        ranks = [max(0, min(self.count - 1, ceil(self.count * share) - 1)) for share in shares]
        if self._bins is None:
            found: Int64s = np.partition(np.concatenate(self._exact), ranks)[ranks]
        else:
            bins = np.searchsorted(np.cumsum(self._bins), ranks, side="right")
            found = np.clip(_middles(bins), self.minimum, self.maximum)
        exact: list[int] = found.tolist()
        return exact

    def spread(self) -> Spread | None:
        if not self.count:
            return None
        median, p99 = self._at(0.5, 0.99)
        return Spread(self.count, self.minimum, median, p99, self.maximum)

    def weighted(self) -> tuple[Int64s, Int64s]:
        """Durations, ascending, and how many there are of each; of a histogram the middles of its bins."""
        if self._bins is None:
            return np.unique(np.concatenate(self._exact) if self._exact else np.empty(0, np.int64), return_counts=True)
        there = np.flatnonzero(self._bins)
        return np.clip(_middles(there), self.minimum, self.maximum), self._bins[there]

    def merge(self, other: Samples) -> None:
        """Take in what another one has."""
        if other._bins is None:
            for durations in other._exact:
                self.add(durations)
            return
        if not self.count:
            self.minimum, self.maximum = other.minimum, other.maximum
        self.minimum, self.maximum = min(self.minimum, other.minimum), max(self.maximum, other.maximum)
        self.count += other.count
        if self._bins is None:
            self._bins = _binned(np.concatenate(self._exact)) if self._exact else np.zeros(_BINS, np.int64)
            self._exact.clear()
        self._bins += other._bins


def _binned(durations: Int64s) -> Int64s:
    places = (np.maximum(durations, 1).astype(np.float32).view(np.uint32) >> _MANTISSA).astype(np.int64)
    return np.bincount(np.minimum(places - _FIRST_BIN, _BINS - 1), minlength=_BINS).astype(np.int64)


def _middles(places: Int64s) -> Int64s:
    """The middle of each bin, in nanoseconds."""
    edges = (np.stack((places, places + 1)) + _FIRST_BIN).astype(np.uint32) << np.uint32(_MANTISSA)
    middles: Int64s = edges.view(np.float32).astype(np.float64).mean(axis=0).astype(np.int64)
    return middles
