"""Rows that wait for a later reply to say what a file is called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from ..arrays import Int64s

Row = TypeVar("Row")

MAX_LATE = 20_000
"""Rows that wait, or wait behind one that does."""


class Pathed(Protocol):
    """What a call names."""

    def path(self) -> str | None:
        """As far as it is known now."""

    @property
    def sure(self) -> bool:
        """Nothing that is learned later can complete the path."""


class LookUp(Protocol):
    """Knows more of paths than was read by now."""

    @property
    def knows_all(self) -> bool:
        """At no further cost."""

    def path(self, called: Pathed) -> str | None:
        """Of what a call names."""


class KnownPaths(NamedTuple):
    """The paths of many rows, as far as they are known now."""

    texts: list[str | None]
    sure: list[bool]
    """Of each text: nothing that is learned later can complete it."""
    which: Int64s
    """The index of each row's text."""

    def late(self) -> Int64s:
        """Rows whose path may become known, ascending."""
        return np.flatnonzero(~np.array(self.sure, np.bool_)[self.which])


class PathedRows(Sequence[Pathed | None], ABC):
    """What the calls of a batch name, row by row; None where that is nothing."""

    @abstractmethod
    def paths(self) -> KnownPaths:
        """Of all rows."""


class LateRow(NamedTuple, Generic[Row]):
    """A row that is made as soon as its path is known, or when it has waited for long enough."""

    file: Pathed
    make: Callable[[str | None], Row]


class LatePaths(Generic[Row]):
    """Rows go in and come out in the same order, no more than ``max_held`` of them in between."""

    def __init__(self, look_up: LookUp, max_held: int = MAX_LATE) -> None:
        self._look_up, self._max_held = look_up, max_held
        self._held: deque[Row | LateRow[Row]] = deque()

    def add(self, rows: Iterable[Row | LateRow[Row]]) -> list[Row]:
        """Rows that can be given now."""
        self._held += rows
        given: list[Row] = []
        while self._held:
            first = self._held[0]
            if isinstance(first, LateRow):
                known = first.file.sure or self._look_up.knows_all
                if not known and len(self._held) <= self._max_held:
                    break
                first = first.make(self._look_up.path(first.file))
            given.append(first)
            self._held.popleft()
        return given

    def rest(self) -> list[Row]:
        """The others, when nothing more is learned."""
        given = [row.make(row.file.path()) if isinstance(row, LateRow) else row for row in self._held]
        self._held.clear()
        return given
