"""RPCs in the order of their calls, though they end in another: a call without a reply stands where it began."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Generic, TypeVar

import numpy as np

from ..arrays import Int64s

Row = TypeVar("Row")

MAX_HELD = 10_000
"""Rows that wait for an earlier call to end."""


class CallOrder(Generic[Row]):
    """Rows go in as RPCs end, with the RPC's number, and come out in the order of the numbers.

    What began after a call that has no reply yet waits, but no more than ``max_held`` rows of it: beyond that the call
    is passed over, and its row comes out of order when it ends.
    """

    def __init__(self, max_held: int = MAX_HELD) -> None:
        self._max_held = max_held
        self._next = 1
        self._held: list[tuple[int, int, Row | None]] = []
        """A heap of rows that wait: the number of the RPC, when it came, and the row."""
        self._arrivals = 0

    def add(self, number: int, row: Row | None) -> Iterator[Row]:
        """Rows that can be given now.  ``row``: None where the RPC has none, which nothing need wait for."""
        self._arrivals += 1
        heappush(self._held, (number, self._arrivals, row))
        while self._held and (self._held[0][0] <= self._next or len(self._held) > self._max_held):
            yield from self._first()

    def add_all(self, numbers: Int64s, rows: Sequence[Row | None]) -> list[Row]:
        """Add rows of many RPCs; returns those that can be given now."""
        held = [number for number, _, _ in self._held]
        both = np.concatenate((np.array(held, np.int64), numbers))
        order = both.argsort(kind="stable")
        ordered = both[order]
        if len(both) > self._max_held or (ordered < self._next).any() or (ordered[1:] == ordered[:-1]).any():
            return [
                released
                for number, row in zip(numbers.tolist(), rows, strict=True)
                for released in self.add(number, row)
            ]
        # Nothing is passed over: rows come out up to the first call that has not ended.
        behind = np.flatnonzero(ordered != self._next + np.arange(len(both)))
        ready = int(behind[0]) if len(behind) else len(both)
        every = [*(row for _, _, row in self._held), *rows]
        places = order.tolist()
        waiting = [  # In order, which is a heap.
            self._held[index]
            if index < len(held)
            else (number, self._arrivals + 1 + index - len(held), rows[index - len(held)])
            for number, index in zip(ordered[ready:].tolist(), places[ready:], strict=True)
        ]
        self._arrivals += len(rows)
        self._next += ready
        self._held = waiting
        return [row for row in map(every.__getitem__, places[:ready]) if row is not None]

    def rest(self) -> Iterator[Row]:
        """The others, when no RPC comes any more."""
        while self._held:
            yield from self._first()

    def _first(self) -> Iterator[Row]:
        number, _, row = heappop(self._held)
        self._next = max(self._next, number + 1)
        if row is not None:
            yield row
