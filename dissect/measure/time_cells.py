"""Sums over time, by group and latency, in a bounded number of cells: intervals of time widen as it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..arrays import Int64s
from ..percentiles import bins_of

FIRST_WIDTH = 1 << 10
"""Nanoseconds of the first intervals."""
BINS_SHIFT = 2
"""A cell has 8 bins of latency for each doubling; ``percentiles.bins_of`` has 32."""
UNKNOWN = -1
"""The bin of RPCs without a latency."""
COLUMNS = ("group", "interval", "bin", "calls", "failed", "call_bytes", "reply_bytes", "waited")
KEYS = 3
TOGETHER = 1 << 15
"""Rows that are sorted into cells at a time."""


class WideningRows:
    """Rows that count intervals of time from ``start`` on in the column ``at``; those of one interval that have equal
    keys are made one.

    Args:
        start: nanoseconds, where interval 0 begins.
        columns: of a row.
        reduced: makes one of rows that belong together, and puts all in order.
        max_rows: where there are more, intervals widen, too.
    """

    def __init__(
        self,
        start: int,
        columns: int,
        at: int,
        reduced: Callable[[Int64s], Int64s],
        max_intervals: int,
        max_rows: int = 1 << 62,
    ) -> None:
        self.start = start
        self._width = FIRST_WIDTH
        self._at, self._reduced = at, reduced
        self._max_intervals, self._max_rows = max_intervals, max_rows
        self._rows: Int64s = np.zeros((0, columns), np.int64)
        self._waiting: list[Int64s] = []
        self._held = 0

    def intervals(self, times: Int64s) -> Int64s:
        """Of these nanoseconds, as rows have them that are taken next."""
        found: Int64s = np.maximum(0, times - self.start) // self._width
        return found

    def take(self, columns: Sequence[Int64s]) -> None:
        self._waiting.append(np.column_stack(columns).astype(np.int64))
        self._held += len(columns[0])
        if self._held >= TOGETHER:
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

    def _fold(self) -> None:
        if not self._waiting:
            return
        rows = np.concatenate((self._rows, *self._waiting))
        self._waiting, self._held = [], 0
        last = int(rows[:, self._at].max(initial=0))
        if last >= self._max_intervals:
            self._widen(rows, (last // self._max_intervals).bit_length())
        rows = self._reduced(rows)
        while len(rows) > self._max_rows and rows[:, self._at].any():
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

    def __init__(self, max_intervals: int = 512, max_cells: int = 1 << 17) -> None:
        super().__init__(0, len(COLUMNS), 1, summed, max_intervals, max_cells)

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
        at = self.intervals(times)
        waited = np.where(known, latencies, 0)
        self.take((groups, at, bins, np.ones_like(at), failed, call_bytes, reply_bytes, waited))

    def merge(self, groups: Int64s, into: int) -> None:
        """These groups become one."""
        rows = self.rows.copy()
        rows[np.isin(rows[:, 0], groups), 0] = into
        self._rows = summed(rows)


def widened(cells: Int64s, doublings: int) -> Int64s:
    """The same in intervals that are twice as wide, or twice as often that."""
    wider = cells.copy()
    wider[:, 1] >>= doublings
    return summed(wider)


def summed(cells: Int64s) -> Int64s:
    """One row of those with equal keys, in their order; intervals are below 2**20."""
    if not len(cells):
        return cells
    keys = (cells[:, 0] << 20 | cells[:, 1]) << 11 | cells[:, 2] - UNKNOWN
    order = keys.argsort(kind="stable")
    cells, keys = cells[order], keys[order]
    starts = np.concatenate(([0], (keys[1:] != keys[:-1]).nonzero()[0] + 1))
    sums = np.add.reduceat(cells[:, KEYS:], starts)
    return np.concatenate((cells[starts, :KEYS], sums), axis=1)


class Peaks(WideningRows):
    """The highest of a value over time, and the lowest limit that it was held against.

    ``rows`` are interval, highest value, lowest limit (NO_LIMIT where none is known), ascending.
    """

    def __init__(self, start: int, max_intervals: int = 512) -> None:
        super().__init__(start, 3, 0, peaked, max_intervals)

    def add(self, times: Int64s, values: Int64s, limits: Int64s) -> None:
        """A limit of 0 is not known."""
        self.take((self.intervals(times), values, np.where(limits > 0, limits, NO_LIMIT)))


NO_LIMIT = 1 << 62


def peaked(rows: Int64s) -> Int64s:
    """One row for each interval."""
    if not len(rows):
        return rows
    rows = rows[rows[:, 0].argsort(kind="stable")]
    starts = np.concatenate(([0], (rows[1:, 0] != rows[:-1, 0]).nonzero()[0] + 1))
    return np.column_stack(
        (rows[starts, 0], np.maximum.reduceat(rows[:, 1], starts), np.minimum.reduceat(rows[:, 2], starts))
    )
