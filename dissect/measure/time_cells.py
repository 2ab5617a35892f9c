"""Sums over time, by group and latency, in a bounded number of cells: intervals of time widen as it goes on."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, places
from ..percentiles import bins_of

FIRST_WIDTH = 1 << 10
"""Nanoseconds of the first intervals."""
BINS_SHIFT = 2
"""A cell has 8 bins of latency for each doubling; ``percentiles.bins_of`` has 32."""
UNKNOWN = -1
"""The bin of RPCs without a latency."""
COLUMNS = ("group", "interval", "bin", "calls", "failed", "call_bytes", "reply_bytes", "waited")
KEYS = 3


class WideningRows:
    """Rows that count intervals of time from ``start`` on in the column ``at``; those of one interval that have equal
    keys are made one.

    Args:
        columns: of a row.
        at: the column of the interval.
        reduced: makes one of rows that belong together, and puts all in order.
        start: nanoseconds, where interval 0 begins.
        first_width: nanoseconds of the first intervals.
        max_intervals: number of the last interval, and one more.
        max_rows: where there are more, intervals widen, too.
    """

    together = 1 << 10
    """Rows that are sorted into others at a time."""

    def __init__(
        self,
        columns: int,
        at: int,
        reduced: Callable[[Int64s], Int64s],
        start: int = 0,
        first_width: int = FIRST_WIDTH,
        max_intervals: int = 1 << 62,
        max_rows: int = 1 << 62,
    ) -> None:
        self.start = start
        self._width = first_width
        self._at, self._reduced = at, reduced
        self._max_intervals, self._max_rows = max_intervals, max_rows
        self._rows: Int64s = np.zeros((0, columns), np.int64)
        self._waiting = array("q")  # One buffer: live batches may have a single row.

    def intervals_of(self, times: Int64s) -> Int64s:
        """The intervals that these times (ns) are in, for rows that are taken next."""
        intervals: Int64s = (times - self.start) // self._width
        return intervals

    def take(self, columns: Sequence[Int64s]) -> None:
        self._waiting.frombytes(np.column_stack(columns).astype(np.int64).tobytes())
        if len(self._waiting) >= self.together * len(columns):
            self._fold()

    @property
    def width(self) -> int:
        """Nanoseconds of an interval."""
        self._fold()
        return self._width

    @property
    def rows(self) -> Int64s:
        self._fold()
        return self._rows

    def parts(self, count: int) -> Iterator[tuple[int, int, Int64s]]:
        """The whole time in at most ``count`` equal parts: from when on, before when (ns), and the rows, whose first
        column is that of the interval."""
        rows = self.rows
        if len(rows):
            first, last = int(rows[0, 0]), int(rows[-1, 0])
            each = -(-(last - first + 1) // count)
            for at in range(first, last + 1, each):
                low, high = rows[:, 0].searchsorted((at, at + each)).tolist()
                yield self.start + at * self._width, self.start + (at + each) * self._width, rows[low:high]

    def _size(self, rows: Int64s) -> int:
        """What ``max_rows`` is about."""
        return len(rows)

    def _fold(self) -> None:
        if not self._waiting:
            return
        rows = np.concatenate((self._rows, np.array(self._waiting).reshape(-1, self._rows.shape[1])))
        del self._waiting[:]
        last = int(rows[:, self._at].max(initial=0))
        if last >= self._max_intervals:
            self._widen(rows, (last // self._max_intervals).bit_length())
        rows = self._reduced(rows)
        while self._size(rows) > self._max_rows and rows[:, self._at].any():
            self._widen(rows, 1)
            rows = self._reduced(rows)
        self._rows = rows

    def _widen(self, rows: Int64s, doublings: int) -> None:
        rows[:, self._at] >>= doublings
        self._width <<= doublings


class TimeCells(WideningRows):
    """Fed what ended; ``rows`` has one for each group, interval and bin of latency in which something did.

    Columns are ``COLUMNS``: ``bin`` is ``bins_of(latency) >> BINS_SHIFT`` or UNKNOWN, ``waited`` nanoseconds.
    """

    together = 1 << 15

    def __init__(self, max_intervals: int = 512, max_cells: int = 1 << 17) -> None:
        super().__init__(len(COLUMNS), 1, summed, max_intervals=max_intervals, max_rows=max_cells)

    def add(
        self, groups: Int64s, times: Int64s, latencies: Int64s, failed: Int64s, call_bytes: Int64s, reply_bytes: Int64s
    ) -> None:
        """RPCs that ended at ``times`` (ns); a latency (ns) below 0 is not known."""
        if not len(times):
            return
        if not self.start:
            self.start = int(times.min())
        known = latencies >= 0
        bins = np.where(known, bins_of(latencies) >> BINS_SHIFT, UNKNOWN)
        at = self.intervals_of(np.maximum(times, self.start))
        waited = np.where(known, latencies, 0)
        self.take((groups, at, bins, np.ones_like(at), failed, call_bytes, reply_bytes, waited))

    def merge(self, groups: Int64s, into: int) -> None:
        """These groups become one."""
        rows = self.rows.copy()
        rows[np.isin(rows[:, 0], groups), 0] = into
        self._rows = summed(rows)


def widened(cells: Int64s, doublings: int) -> Int64s:
    """Cells in intervals 2 ** ``doublings`` times as wide."""
    wider = cells.copy()
    wider[:, 1] >>= doublings
    return summed(wider)


def starts_of(keys: NDArray[np.int64]) -> Int64s:
    """Where rows, sorted by these keys, begin to have others."""
    changes = [key[1:] != key[:-1] for key in keys.T]
    return np.append(0, places(np.logical_or.reduce(changes)) + 1)


def summed(rows: Int64s, keys: int = KEYS) -> Int64s:
    """One row of those with the same ``keys`` first columns, in their order."""
    if not len(rows):
        return rows
    rows = rows[_order(rows[:, :keys].T)]
    starts = starts_of(rows[:, :keys])
    return np.concatenate((rows[starts, :keys], np.add.reduceat(rows[:, keys:], starts)), axis=1)


def _order(keys: Int64s) -> Int64s:
    """``np.lexsort`` of columns, the first counts most: where one number can hold them, it is sorted much sooner."""
    lowest = [int(key.min()) for key in keys]
    spans = [int(key.max()) - low + 1 for key, low in zip(keys, lowest, strict=True)]
    if prod(spans) >= 1 << 63:
        return np.lexsort(keys[::-1])
    packed = np.zeros(len(keys[0]), np.int64)
    for key, low, span in zip(keys, lowest, spans, strict=True):
        packed *= span
        packed += key - low
    return packed.argsort(kind="stable")


summed_by_time = partial(summed, keys=1)


class Peaks(WideningRows):
    """The highest of a value over time, and the lowest limit that it was held against.

    ``rows`` are interval, highest value, lowest limit (NO_LIMIT where none is known), ascending.
    """

    def __init__(self, start: int, max_intervals: int = 512) -> None:
        super().__init__(3, 0, peaked, start, max_intervals=max_intervals)

    def add(self, times: Int64s, values: Int64s, limits: Int64s) -> None:
        """A limit of 0 is not known."""
        self.take((self.intervals_of(np.maximum(times, self.start)), values, np.where(limits > 0, limits, NO_LIMIT)))


NO_LIMIT = 1 << 62


def peaked(rows: Int64s) -> Int64s:
    """One row for each interval."""
    if not len(rows):
        return rows
    rows = rows[rows[:, 0].argsort(kind="stable")]
    starts = starts_of(rows[:, :1])
    return np.column_stack(
        (rows[starts, 0], np.maximum.reduceat(rows[:, 1], starts), np.minimum.reduceat(rows[:, 2], starts))
    )
