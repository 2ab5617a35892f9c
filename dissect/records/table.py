"""Flat tables: what a column is, and how nouns become columns, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.ma import MaskedArray

Columns = dict[str, MaskedArray]
"""By name, all of one length; what is not known is masked."""


class TableColumn(NamedTuple):
    """A column of a table."""

    name: str
    """With its unit: ``_ns`` nanoseconds, ``_us`` microseconds, ``_bytes`` bytes; ``time_ns`` counts from the Unix
    epoch."""
    type: str
    """'int' (64 bits), 'uint' (64 bits), 'float' (64 bits), 'bool', 'time' (nanoseconds, UTC) or 'text' (Python's str,
    in an array of objects)."""
    meaning: str
    value: Callable[[Any], Any]
    """Of a row; None is: not known, and becomes masked."""


@dataclass(frozen=True)
class Table:
    """A table and how its rows come from nouns."""

    name: str
    of: str
    """The noun: 'rpc', 'packet', 'finding', 'conversation' or 'file'."""
    meaning: str
    columns: tuple[TableColumn, ...]
    rows: Callable[[Any], Iterable[Any]] = lambda noun: (noun,)


DTYPES: dict[str, tuple[Any, Any]] = {
    "int": (np.int64, 0),
    "uint": (np.uint64, 0),
    "float": (np.float64, 0.0),
    "bool": (np.bool_, False),
    "time": (np.dtype("datetime64[ns]"), 0),
    "text": (np.object_, ""),
}
"""Type -> dtype, and what stands under the mask."""


class TableBuilder:
    """Takes nouns, gives columns.  Holds values only, never the nouns."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._values: list[list[Any]] = [[] for _ in table.columns]

    def __len__(self) -> int:
        """Rows since the last ``take``."""
        return len(self._values[0])

    def add(self, noun: object) -> None:
        """Take the rows of a noun."""
        for row in self.table.rows(noun):
            for found, column in zip(self._values, self.table.columns, strict=True):
                found.append(column.value(row))

    def take(self) -> Columns:
        """The rows since the last call."""
        values, self._values = self._values, [[] for _ in self.table.columns]
        return {
            column.name: _array(column.type, found) for column, found in zip(self.table.columns, values, strict=True)
        }


def joined(table: Table, batches: Sequence[Columns]) -> Columns:
    """Batches of rows as one."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return TableBuilder(table).take()
    return {
        column.name: np.ma.concatenate([batch[column.name] for batch in batches])  # type: ignore[no-untyped-call]
        for column in table.columns
    }


def _array(type: str, values: list[Any]) -> MaskedArray:
    mask = [value is None for value in values]
    dtype, filler = DTYPES[type]
    return np.ma.MaskedArray(
        np.array([filler if value is None else value for value in values], dtype), mask=np.array(mask, bool)
    )
