"""The rows of a query's result, as a table or, where that is too wide, one below the other."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from rdmascope.dissect.records.tables import TABLES

from ..sanitize import harmless_line
from .tables import Grid

NUMERIC = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
    "FLOAT", "DOUBLE", "DECIMAL",
)  # fmt: skip
"""DuckDB's types of numbers, aligned to the right."""
GAP = 2


def cell(value: Any) -> str:
    """A value in one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return "[" + ", ".join(map(cell, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {cell(inner)}" for key, inner in value.items()) + "}"
    return harmless_line(str(value))


def json_value(value: Any) -> Any:
    """A value as JSON has it: numbers exact, times and what JSON does not know as text."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple):
        return [json_value(one) for one in value]
    if isinstance(value, dict):
        return {str(key): json_value(inner) for key, inner in value.items()}
    return value.isoformat(" ") if isinstance(value, datetime.datetime) else str(value)


def csv_value(value: Any) -> str:
    """A value as text, exact; nothing for what is not known."""
    if value is None:
        return ""
    if isinstance(value, bool | list | dict):
        return json.dumps(json_value(value), ensure_ascii=False)
    return str(json_value(value)) if isinstance(value, bytes | datetime.datetime) else str(value)


def lines(
    names: Sequence[str], types: Sequence[str], rows: Iterable[Sequence[Any]], width: int | None, block: int = 1000
) -> Iterator[Text]:
    """The lines of a table; of one that is wider than ``width``, a block of lines for each row.

    The first ``block`` rows say how wide the columns are, so that no result need be held whole.
    """
    right = [type.startswith(NUMERIC) and not type.endswith("]") for type in types]
    heads = [harmless_line(name) for name in names]
    source = iter(rows)
    first = [list(map(cell, row)) for row in islice(source, block)]
    widths = [max(map(cell_len, column)) for column in zip(heads, *first, strict=True)]
    following = (list(map(cell, row)) for row in source)
    if width is not None and sum(widths) + GAP * (len(widths) - 1) > width:
        yield from _listed(heads, first, following)
        return
    yield Text(_row(heads, widths, right), "dim")
    for one in first:
        yield Text(_row(one, widths, right))
    for one in following:
        yield Text(_row(one, widths, right))


def described(name: str) -> Grid:
    """The columns of a table; of '', the tables."""
    if not name:
        return Grid(["table", "a row is"], [], [(one.name, one.meaning) for one in TABLES.values()], flexible=1)
    rows = [(column.name, column.type, column.meaning) for column in TABLES[name].columns]
    return Grid(["column", "type", "what"], [], rows, flexible=2)


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        " " * (width - cell_len(text)) + text if at_right else text + " " * (width - cell_len(text))
        for text, width, at_right in zip(cells, widths, right, strict=True)
    ]
    return (" " * GAP).join(padded).rstrip()


def _listed(heads: Sequence[str], *parts: Iterable[Sequence[str]]) -> Iterator[Text]:
    wide = max(map(cell_len, heads), default=0)
    number = 0
    for rows in parts:
        for row in rows:
            number += 1
            yield Text(f"row {number}", "dim")
            for head, text in zip(heads, row, strict=True):
                yield Text.assemble((f"  {head}{' ' * (wide - cell_len(head))}", "dim"), f"  {text}")
