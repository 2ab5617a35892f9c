"""Traffic over time, in a bounded number of bins."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

from ..arrays import Int64s

MAX_BINS = 4096
TOGETHER = 1024
"""Events that are sorted into bins at a time."""


class Bin(NamedTuple):
    """What ended in one interval of time."""

    calls: int = 0
    call_bytes: int = 0
    reply_bytes: int = 0


class Timeline:
    """Traffic over time, in bins that widen as time goes on, so that their number stays bounded."""

    def __init__(self) -> None:
        self._width = 1_000_000
        self._table = np.zeros((0, 4), np.int64)
        """Time // width, ascending, and the three numbers of a Bin; intervals in which nothing ended are absent."""
        self._waiting = array("q")
        """Time and the same numbers of one event after the other."""

    def add(self, time: int, call_bytes: int, reply_bytes: int) -> None:
        """An RPC ended at ``time`` (ns)."""
        self._waiting.extend((time, 1, call_bytes, reply_bytes))
        if len(self._waiting) >= 4 * TOGETHER:
            self._fold()

    def add_all(self, times: Int64s, call_bytes: Int64s, reply_bytes: Int64s) -> None:
        """The same of many."""
        columns = np.column_stack((times, np.ones_like(times), call_bytes, reply_bytes))
        self._waiting.frombytes(columns.astype(np.int64).tobytes())
        if len(self._waiting) >= 4 * TOGETHER:
            self._fold()

    @property
    def width(self) -> int:
        """Of a bin, in nanoseconds."""
        self._fold()
        return self._width

    @property
    def bins(self) -> dict[int, Bin]:
        """By time // width."""
        self._fold()
        return {at: Bin(*numbers) for at, *numbers in self._table.tolist()}

    def _fold(self) -> None:
        if not self._waiting:
            return
        fresh = np.array(self._waiting).reshape(-1, 4)
        del self._waiting[:]
        fresh[:, 0] //= self._width
        table = _summed(np.concatenate((self._table, fresh)))
        while len(table) > MAX_BINS:
            # Two numbers become one with the last bit in which they differ; those of before and after 1970 never do.
            near = (table[:-1, 0] ^ table[1:, 0])[(table[:-1, 0] < 0) == (table[1:, 0] < 0)]
            doublings = int(near.min()).bit_length()
            table[:, 0] >>= doublings
            self._width <<= doublings
            table = _summed(table)
        self._table = table

    def intervals(self, count: int) -> tuple[float, list[Bin]]:
        """The whole time in at most ``count`` equal intervals: seconds of each, and what ended in it."""
        self._fold()
        if not len(self._table):
            return 0.0, []
        first, last = int(self._table[0, 0]), int(self._table[-1, 0])
        each = -(-(last - first + 1) // count)
        found = [Bin()] * -(-(last - first + 1) // each)
        table = self._table.copy()
        table[:, 0] = (table[:, 0] - first) // each
        for at, *numbers in _summed(table).tolist():
            found[at] = Bin(*numbers)
        return each * self._width / 1e9, found


def _summed(table: Int64s) -> Int64s:
    """Rows with the same first number become one, ascending."""
    table = table[np.argsort(table[:, 0], kind="stable")]
    starts = np.flatnonzero(np.diff(table[:, 0], prepend=table[0, 0] - 1))
    sums = np.add.reduceat(table, starts)
    sums[:, 0] = table[starts, 0]
    return sums
