"""Which tables and columns a query names, so that no others need be made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from rdmascope.dissect.records.table import Wanted
from rdmascope.dissect.records.tables import TABLES

from .embedded import duckdb

_ALL = {"STAR", "POSITIONAL_REFERENCE", "SHOW_REF", "PIVOT", "COLUMN_DATA"}
"""Parts of a query that may stand for columns without their names."""
_TEXT = re.compile(r"\bquery(?:_table)?\b", re.IGNORECASE)
"""Functions that take queries, or names of tables, as text."""


def named_columns(connection: duckdb.DuckDBPyConnection, text: str, selects: bool) -> Wanted:
    """The tables that a statement names, with the columns that it may read of each; None: any of them.

    ``selects``: it is a query, and changes nothing.
    """
    tables = _tables_of(connection, text, selects)
    names = _names_in(connection, text) if tables and selects else None
    if names is None:
        return dict.fromkeys(tables)
    return {table: {one.name for one in TABLES[table].columns if one.name in names} for table in tables}


def _tables_of(connection: duckdb.DuckDBPyConnection, text: str, selects: bool) -> set[str]:
    try:
        named = {name.lower() for name in connection.get_table_names(text)}
    except duckdb.Error:  # PIVOT is several statements in one, which are not looked into.
        selects = False
    if not selects or _TEXT.search(text):
        named = set(re.findall(r"\w+", text.lower()))
    return named & TABLES.keys()


def _names_in(connection: duckdb.DuckDBPyConnection, text: str) -> set[str] | None:
    """All names of columns in a query, of whatever table; None where it may mean columns that it does not name."""
    if _TEXT.search(text):
        return None
    try:
        (serialized,) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0]
        parsed = json.loads(serialized)
    except (duckdb.Error, ValueError, RecursionError):
        return None
    if parsed.get("error"):
        return None
    columns: set[str] = set()
    last: set[str] = set()
    """Of names with dots: that of a table is a whole row."""
    relations: set[str] = set()
    for node in _nodes(parsed):
        if not _ALL.isdisjoint(one for one in (node.get("class"), node.get("type")) if isinstance(one, str)):
            return None
        if node.get("ref_type") == "NATURAL":
            return None
        if node.get("column_name_alias"):
            return None
        path = node.get("column_names", ())
        columns.update(name.lower() for name in (*path, *node.get("using_columns", ())))
        last.update(name.lower() for name in path[-1:])
        if "table_name" in node:
            relations.update(str(node[key]).lower() for key in ("table_name", "alias") if key in node)
    return None if last & relations else columns


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """The objects in it, but those of ORDER BY ALL, which names no further columns."""
    if isinstance(value, dict):
        if "null_order" in value and value.get("expression", {}).get("class") == "STAR":
            return
        yield value
        for inner in value.values():
            yield from _nodes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _nodes(inner)
