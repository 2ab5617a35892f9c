"""RPCs in the order of their calls, though they end in another: a call without a reply stands where it began."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

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
        """Number, arrival, row."""
        self._arrivals = 0

    def add(self, number: int, row: Row | None) -> Iterator[Row]:
        """Rows that can be given now.  ``row``: None where the RPC has none, which nothing need wait for."""
        self._arrivals += 1
        heappush(self._held, (number, self._arrivals, row))
        while self._held and (self._held[0][0] <= self._next or len(self._held) > self._max_held):
            yield from self._first()

    def add_all(self, rows: Iterable[tuple[int, Row | None]]) -> list[Row]:
        """The same of many."""
        given: list[Row] = []
        for number, row in rows:
            if number == self._next and not self._held:
                self._next = number + 1
                if row is not None:
                    given.append(row)
            else:
                given += self.add(number, row)
        return given

    def rest(self) -> Iterator[Row]:
        """The others, when no RPC comes any more."""
        while self._held:
            yield from self._first()

    def _first(self) -> Iterator[Row]:
        number, _, row = heappop(self._held)
        self._next = max(self._next, number + 1)
        if row is not None:
            yield row
