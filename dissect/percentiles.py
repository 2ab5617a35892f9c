"""Durations of any number in little memory, and what is said of them: percentiles, extremes, a histogram.

A percentile is always one of the samples (nearest rank): the smallest that this share of all does not exceed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Int64s, extremes

EXACT = 4096
"""Samples kept as they are, where the owner names no other number; more become counts in bins."""

FEW = 64
"""Samples that are sorted sooner in Python."""

BUFFERED = 512
"""Samples that wait for their bins where there are bins already."""

LONGEST_NS = (1 << 63) - 1
LONGEST = 2.0**63 - 1024
"""Nanoseconds: the largest float that is a 64-bit integer."""
_MANTISSA = 18
"""Bits of a 32-bit float that a bin leaves out: 32 bins for each doubling, so 1.6 % around the middle."""
_FIRST_BIN = 127 << 5
_BINS = 45 << 5


@dataclass(slots=True)
class Distribution:
    """Durations in nanoseconds.  Percentiles of more samples than are kept as they are, are good to 2 %."""

    count: int
    minimum: int
    median: int
    p95: int
    p99: int
    maximum: int
    total: int
    exact_to: int = LONGEST_NS
    """Durations above this are lower bounds."""

    def is_bound(self, duration: int) -> bool:
        """It is a lower bound of what it stands for."""
        return duration > self.exact_to

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


class Samples:
    """Durations in nanoseconds, none negative: ``exact`` of them as they are, more as counts in bins."""

    __slots__ = ("_binned", "_bins", "_exact", "_maximum", "_minimum", "_total", "recent")

    def __init__(self, exact: int = EXACT, typecode: str = "q") -> None:
        self.recent: array[Any] = array(typecode)
        """Those not in bins; where one at a time is appended here, the owner calls ``fold`` in time."""
        self._exact = exact
        self._bins: Int64s | None = None
        self._binned = self._total = self._minimum = self._maximum = 0
        """Number, sum and extremes of those in bins."""

    @property
    def count(self) -> int:
        return self._binned + len(self.recent)

    @property
    def binned(self) -> bool:
        """Whether they are counts in bins."""
        return self._bins is not None

    @property
    def total(self) -> int:
        few = len(self.recent) <= FEW and self.recent.typecode == "q"
        return self._total + (sum(self.recent) if few else int(_numbers(self.recent).sum()))

    def append(self, duration: int) -> None:
        self.recent.append(duration)
        self._fold_in_time()

    def add(self, durations: Int64s, counts: Int64s | None = None) -> None:
        """``counts``: how many there are of each; one by default."""
        if counts is not None and len(counts) and counts.max() > 1:
            number = int(counts.sum())
            if self.count + number > self._exact:
                bins = np.bincount(bins_of(durations), counts, _BINS).astype(np.int64)
                self._add_binned(bins, number, int((durations * counts).sum()), *extremes(durations))
                self.fold()
                return
            durations = np.repeat(durations, counts)
        if self.recent.typecode == "q":
            self.recent.frombytes(durations.tobytes())
        else:
            self.recent.extend(durations.tolist())
        self._fold_in_time()

    def _fold_in_time(self) -> None:
        if len(self.recent) > (self._exact if self._bins is None else min(self._exact, BUFFERED)):
            self.fold()

    def fold(self) -> None:
        """Put all into bins."""
        if self.recent:
            values = _numbers(self.recent)
            self._add_binned(_counted(values), len(values), int(values.sum()), *extremes(values))
            del self.recent[:]

    def _add_binned(self, bins: Int64s, count: int, total: int, low: int, high: int) -> None:
        self._minimum = min(self._minimum, low) if self._binned else low
        self._maximum = max(self._maximum, high) if self._binned else high
        self._binned += count
        self._total += total
        self._bins = bins if self._bins is None else self._bins + bins

    def merge(self, other: Samples) -> None:
        """Add all samples of another."""
        if other._bins is not None:
            self._add_binned(other._bins, other._binned, other._total, other._minimum, other._maximum)
        self.recent.extend(other.recent)
        self._fold_in_time()

    def at(self, percent: int) -> int:
        """The smallest duration that ``percent`` of 100 do not exceed."""
        return self._at([_rank(self.count, percent)])[0]

    def nth(self, place: int) -> int:
        """The duration at a place in ascending order, counted from 0."""
        return self._at([place])[0]

    def _at(self, ranks: list[int]) -> list[int]:
        """By their places in ascending order, from 0."""
        if not ranks:
            return []
        if self._bins is None and len(self.recent) <= FEW and self.recent.typecode == "q":
            ascending = sorted(self.recent)
            return [ascending[rank] for rank in ranks]
        recent = _numbers(self.recent)
        if self._bins is None:
            values: list[int] = np.partition(recent, ranks)[ranks].tolist()
            return values
        bins = self._bins + _counted(recent) if len(recent) else self._bins
        low, high = self._extremes()
        middles = _middles(np.searchsorted(np.cumsum(bins), ranks, side="right"))
        clipped: list[int] = np.clip(middles, low, high).tolist()
        return clipped

    def _extremes(self) -> tuple[int, int]:
        if not self.recent:
            return self._minimum, self._maximum
        low, high = extremes(_numbers(self.recent))
        return (min(low, self._minimum), max(high, self._maximum)) if self._binned else (low, high)

    def distribution(self, count: int | None = None) -> Distribution | None:
        """None without samples; where ``count`` is more than there are, the rest are zeros."""
        stored = self._binned + len(self.recent)
        count = stored if count is None else count
        if not count:
            return None
        if not stored:
            return Distribution(count, 0, 0, 0, 0, 0, 0)
        if stored == count <= FEW and self._bins is None and self.recent.typecode == "q":
            ascending = sorted(self.recent)
            middle, high, higher = [ascending[_rank(count, percent)] for percent in (50, 95, 99)]
            return Distribution(count, ascending[0], middle, high, higher, ascending[-1], sum(ascending))
        zeros = count - stored
        ranks = [_rank(count, percent) - zeros for percent in (50, 95, 99)]
        known = iter(self._at([rank for rank in ranks if rank >= 0]) if stored else ())
        median, p95, p99 = (next(known) if rank >= 0 else 0 for rank in ranks)
        low, high = self._extremes() if stored else (0, 0)
        return Distribution(count, 0 if zeros else low, median, p95, p99, high, self.total)

    @property
    def maximum(self) -> int:
        """The longest duration; 0 without samples."""
        return self._extremes()[1]

    def with_bounds(self, bounds: Samples) -> Distribution | None:
        """The distribution of these samples and of lower bounds; a bound below the longest sample may be any
        duration, and is left out."""
        values, counts = bounds.weighted()
        longest = self.maximum
        long = values > longest
        if not long.any():
            return self.distribution()
        above = np.repeat(values[long], counts[long])
        known, count = self.count, self.count + len(above)
        places = [_rank(count, percent) for percent in (50, 95, 99)]
        middle, high, higher = (self.nth(at) if at < known else int(above[at - known]) for at in places)
        low = self._extremes()[0] if known else int(above[0])
        total = self.total + int(above.sum())
        return Distribution(count, low, middle, high, higher, int(above[-1]), total, longest if known else -1)

    def weighted(self) -> tuple[Int64s, Int64s]:
        """Durations, and how many there are of each; of those in bins the middle of the bin."""
        values, counts = np.unique(_numbers(self.recent), return_counts=True)
        if self._bins is None:
            return values, counts
        there = np.flatnonzero(self._bins)
        middles = np.clip(_middles(there), self._minimum, self._maximum)
        return np.concatenate((middles, values)), np.concatenate((self._bins[there], counts))


NO_SAMPLES = Samples()
"""Stands for samples of which there are none so far, and takes none: see ``added``."""


def added(samples: Samples, durations: Int64s, counts: Int64s | None = None) -> Samples:
    """``samples`` with more durations, so many of each; in place of NO_SAMPLES new ones, where there is one to add."""
    if len(durations):
        samples = Samples() if samples is NO_SAMPLES else samples
        samples.add(durations, counts)
    return samples


def distribution(durations: Int64s) -> Distribution | None:
    """The distribution of a few durations at once."""
    samples = Samples(exact=len(durations))
    samples.add(durations)
    return samples.distribution()


def _rank(count: int, percent: int) -> int:
    return -(-count * percent // 100) - 1


def _numbers(samples: array[Any]) -> Int64s:
    """A copy; the longest durations are rounded down to what 64 bits hold."""
    if not samples:
        return np.empty(0, np.int64)
    numbers = np.frombuffer(samples, samples.typecode)
    return (np.minimum(numbers, LONGEST, dtype=np.float64) if numbers.dtype.kind == "f" else numbers).astype(np.int64)


def bins_of(durations: Int64s) -> Int64s:
    """The bin of each: 32 for each doubling, of equal width within it, from 1 ns on."""
    places = (np.maximum(durations, 1).astype(np.float32).view(np.uint32) >> _MANTISSA).astype(np.int64)
    return np.minimum(places - _FIRST_BIN, _BINS - 1)


def bin_edges(bins: Int64s) -> NDArray[np.float64]:
    """Where each bin begins, in nanoseconds."""
    return ((bins + _FIRST_BIN).astype(np.uint32) << np.uint32(_MANTISSA)).view(np.float32).astype(np.float64)


def _counted(durations: Int64s) -> Int64s:
    """How many fall into each bin."""
    return np.bincount(bins_of(durations), minlength=_BINS).astype(np.int64)


def _middles(bins: Int64s) -> Int64s:
    """The middle of each bin, in nanoseconds."""
    return ((bin_edges(bins) + bin_edges(bins + 1)) / 2).astype(np.int64)


def histogram(durations: Int64s, rows: int = 24, weights: Int64s | None = None) -> list[tuple[int, int, int]]:
    """``(low, high, count)`` over [low, high) nanoseconds, ascending, bounds in steps of 1-2-5, at most ``rows``."""
    if not len(durations):
        return []
    bounds = [0, *_steps(int(durations.max()))]
    edges = np.array(bounds, np.float64)
    counts = np.histogram(durations, edges, weights=weights)[0].astype(np.int64).tolist()
    bars = list(zip(bounds, bounds[1:], counts, strict=False))
    while bars and not bars[0][2]:
        bars.pop(0)
    while bars and not bars[-1][2]:
        bars.pop()
    if len(bars) > rows:
        spare = len(bars) - rows + 1
        bars = [(bars[0][0], bars[spare - 1][1], sum(row[2] for row in bars[:spare])), *bars[spare:]]
    return bars


def _steps(largest: int) -> Iterator[int]:
    """1 µs, 2 µs, 5 µs, 10 µs … up to one above ``largest``."""
    decade = 1000
    while True:
        for step in (1, 2, 5):
            yield decade * step
            if decade * step > largest:
                return
        decade *= 10
