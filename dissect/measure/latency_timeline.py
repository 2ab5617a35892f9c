"""Latencies over time: how many RPCs of which latency began when, in a bounded number of counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Int64s
from .call_columns import CallColumns

MAX_INTERVALS = 1024
"""Intervals of time that are told apart; they widen as time goes on."""
STEPS = 32
"""Bins of latency for each doubling, so that a percentile is good to 2 %."""
_UNKNOWN = -1
"""The bin of RPCs of which no latency is known."""
_SUMS = 6
"""Columns of counts behind time and bin: RPCs, errors, incomplete, bytes of calls, bytes of replies, outstanding."""


@dataclass(frozen=True, slots=True)
class LatencyInterval:
    """What began in one interval of time."""

    begin: int
    """Nanoseconds since the Unix epoch."""
    end: int
    calls: int
    errors: int
    """Replies that report an error."""
    incomplete: int
    """RPCs without reply, without call, or damaged."""
    call_bytes: int
    reply_bytes: int
    outstanding: int
    """RPCs without a reply, which are in the bins with a lower bound of their latency."""
    bins: Int64s
    """Of latency, ascending; see ``bounds``."""
    counts: Int64s
    """RPCs in each."""

    def percentile(self, percent: int) -> int | None:
        """Nanoseconds: the smallest latency that this share does not exceed, to 2 %; None without latencies."""
        total = int(self.counts.sum())
        if not total:
            return None
        rank = -(-total * percent // 100)
        low, high = bounds(int(self.bins[self.counts.cumsum().searchsorted(rank)]))
        return (low + high) // 2


def bounds(place: int) -> tuple[int, int]:
    """Nanoseconds from which and below which latencies are in a bin."""
    return round(2 ** (place / STEPS)), round(2 ** ((place + 1) / STEPS))


class LatencyTimeline:
    """Feed it RPCs, batch after batch."""

    def __init__(self) -> None:
        self._width = 1_000
        self._table = np.zeros((0, 2 + _SUMS), np.int64)
        """Time // width, bin, and the counts; ascending."""

    def add(self, calls: CallColumns) -> None:
        """Take RPCs."""
        latencies = calls.waiting
        places = np.floor(np.log2(np.maximum(latencies, 1)) * STEPS).astype(np.int64)
        places[latencies < 0] = _UNKNOWN
        fresh = np.column_stack(
            (
                calls.times // self._width,
                places,
                np.ones_like(places),
                calls.failed,
                calls.incomplete,
                calls.call_bytes,
                calls.reply_bytes,
                calls.outstanding,
            )
        ).astype(np.int64)
        table = _summed(np.concatenate((self._table, fresh)))
        while len(np.unique(table[:, 0])) > MAX_INTERVALS:
            table[:, 0] >>= 1
            self._width <<= 1
            table = _summed(table)
        self._table = table

    def intervals(self, count: int) -> list[LatencyInterval]:
        """The whole time in at most ``count`` equal intervals, those included in which nothing began."""
        table = self._table
        if not len(table):
            return []
        first, last = int(table[0, 0]), int(table[-1, 0])
        each = -(-(last - first + 1) // count)
        found = []
        for at in range(first, last + 1, each):
            rows = table[table[:, 0].searchsorted(at) : table[:, 0].searchsorted(at + each)]
            sums = rows[:, 2:].sum(axis=0).tolist()
            known = rows[rows[:, 1] != _UNKNOWN]
            bins, inverse = np.unique(known[:, 1], return_inverse=True)
            counts = np.bincount(inverse, known[:, 2], len(bins)).astype(np.int64)
            span = at * self._width, (at + each) * self._width
            calls, errors, incomplete, called, replied, outstanding = sums
            found.append(LatencyInterval(*span, calls, errors, incomplete, called, replied, outstanding, bins, counts))
        return found


def _summed(table: Int64s) -> Int64s:
    """Rows with the same time and bin become one, ascending."""
    if not len(table):
        return table
    table = table[np.lexsort((table[:, 1], table[:, 0]))]
    starts = np.flatnonzero((np.diff(table[:, :2], axis=0, prepend=table[:1, :2] - 1) != 0).any(axis=1))
    sums = np.add.reduceat(table, starts)
    sums[:, :2] = table[starts, :2]
    return sums
