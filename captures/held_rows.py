"""Rows of browsed tables as they came, before anything is asked of them that takes a database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rdmascope.dissect.arrays import Int64s
from rdmascope.dissect.records.table import Columns
from rdmascope.dissect.records.tables import TABLES

from .sql_names import encodable


class HeldRows:
    """Each row has the ID that DuckDB will give it, where rows are inserted in this order: from 0 on.

    One thread adds while others read: what was added never changes.
    """

    def __init__(self) -> None:
        self._parts: dict[str, tuple[Columns, ...]] = {}

    def add(self, name: str, columns: Columns) -> None:
        """Rows of a table."""
        self._parts[name] = (*self._parts.get(name, ()), columns)

    def parts(self) -> Iterator[tuple[str, Columns]]:
        """All, in the order in which they came."""
        for name, parts in self._parts.items():
            for columns in parts:
                yield name, columns

    def count(self, name: str) -> int:
        """Rows of a table."""
        return sum(map(_length, self._parts.get(name, ())))

    def order(self, name: str, key: str) -> Int64s:
        """Row IDs by a column of integers, and among equals as they came."""
        keys = [columns[key].filled(np.iinfo(np.int64).max) for columns in self._parts.get(name, ())]
        return np.argsort(np.concatenate(keys), kind="stable") if keys else np.empty(0, np.int64)

    def rows(self, name: str, ids: Int64s) -> list[dict[str, Any]]:
        """Rows with all columns but those that are times; None is what is not known, or not read yet."""
        found: list[dict[str, Any]] = [{} for _ in range(len(ids))]
        first = 0
        for columns in self._parts.get(name, ()):
            last = first + _length(columns)
            at = np.flatnonzero((ids >= first) & (ids < last))
            for column in TABLES[name].columns:
                if column.type == "time":
                    continue
                values: list[Any] = [None] * len(at)
                if column.name in columns:
                    values = columns[column.name][ids[at] - first].tolist()
                for place, value in zip(at.tolist(), values, strict=True):
                    found[place][column.name] = encodable(value) if column.type == "text" and value else value
            first = last
        return [row for row in found if row]


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))
