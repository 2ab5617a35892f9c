"""Latencies in a few numbers: percentiles and a histogram."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Distribution:
    """Latencies in nanoseconds.  Percentiles are samples: the smallest with that share of all at or below it.

    Of more than ``statistics.EXACT`` latencies, percentiles are good to 2 %.
    """

    count: int
    minimum: int
    median: int
    p95: int
    p99: int
    maximum: int
    total: int

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


def distribution(samples: NDArray[Any], count: int | None = None) -> Distribution | None:
    """The Distribution of ``samples``; where ``count`` is more than their number, the rest are zeros."""
    stored = len(samples)
    count = stored if count is None else count
    if not count:
        return None
    zeros = count - stored
    ordered = np.sort(samples)

    def at(percent: int) -> int:
        rank = -(-count * percent // 100) - 1
        return int(ordered[rank - zeros]) if rank >= zeros else 0

    total = int(ordered.sum(dtype=np.int64 if ordered.dtype == np.int64 else np.float64))
    smallest = 0 if zeros else int(ordered[0])
    return Distribution(count, smallest, at(50), at(95), at(99), at(100), total)


def histogram(
    samples: NDArray[np.int64], most: int = 24, weights: NDArray[np.int64] | None = None
) -> list[tuple[int, int, int]]:
    """``(low, high, count)`` over [low, high) nanoseconds, ascending, bounds in steps of 1-2-5, at most ``most``."""
    if not len(samples):
        return []
    bounds = [0, *_steps(int(samples.max()))]
    edges = np.array([*bounds[:-1], bounds[-1]], np.float64)
    counts = np.histogram(samples, edges, weights=weights)[0].astype(np.int64).tolist()
    rows = list(zip(bounds, bounds[1:], counts, strict=False))
    while rows and not rows[0][2]:
        rows.pop(0)
    while rows and not rows[-1][2]:
        rows.pop()
    if len(rows) > most:
        spare = len(rows) - most + 1
        rows = [(rows[0][0], rows[spare - 1][1], sum(row[2] for row in rows[:spare])), *rows[spare:]]
    return rows


def _steps(largest: int) -> Iterator[int]:
    """1 µs, 2 µs, 5 µs, 10 µs … up to one above ``largest``."""
    decade = 1000
    while True:
        for step in (1, 2, 5):
            yield decade * step
            if decade * step > largest:
                return
        decade *= 10
