"""Tables with a condition: of each only the rows that belong to RPCs which pass."""

from __future__ import annotations

import json

import numpy as np

from rdmascope.dissect.records.rpc_columns import Table, Wanted
from rdmascope.dissect.records.tables import FILTER, TABLES

from ..errors import CaptureError
from ..extract.frames import ChosenFrames
from .condition import ChosenRpcs, Condition
from .database import Database, named_columns

FRAMES = "frames_of_chosen"
"""Temporary table: the numbers of the frames of chosen RPCs."""


def belonging(table: Table) -> str:
    """Which rows belong to the RPCs of the temporary table ``chosen`` (number, connection, file): a condition.

    '' for a table that is about the whole capture.
    """
    names = [column.name for column in table.columns]
    of_column = next((_OF_COLUMNS[name] for name in _OF_COLUMNS if name in names), "")
    return _OF_TABLES.get(table.name, of_column)


_OF_COLUMNS = {
    "rpc": "rpc IN (SELECT number FROM chosen)",
    "connection": "connection IN (SELECT connection FROM chosen)",
}
_OF_TABLES = {
    "rpcs": "number IN (SELECT number FROM chosen)",
    "connections": "number IN (SELECT connection FROM chosen)",
    "files": "number IN (SELECT file FROM chosen UNION SELECT file FROM operations"
    " WHERE rpc IN (SELECT number FROM chosen))",
    "findings": f"{_OF_COLUMNS['rpc']} OR (rpc IS NULL AND {_OF_COLUMNS['connection']})",
}
"""Which rows belong to the RPCs of ``chosen``: by a column that they have, the first of these; and of some tables."""
_OF_DETAILS = """
    CASE kind WHEN 'file' THEN number IN (SELECT number FROM files)
    ELSE number IS NULL OR number IN (SELECT connection FROM chosen) END
"""
"""Which rows of the table details belong to the RPCs of ``chosen``."""


class ChosenRows:
    """Views in place of the tables of a database, which hold only what belongs to the RPCs that pass."""

    def __init__(self, database: Database, condition: Condition, first_time: int, by_frames: bool) -> None:
        """``first_time``: of the capture, in nanoseconds since the Unix epoch.

        ``by_frames``: ``keep_frames`` will be called before packets are asked for; else those count that name an RPC.
        """
        self._database = database
        self._condition = condition
        connection = database.connection
        passes = condition.sql(first_time)
        columns = named_columns(connection, f"SELECT number FROM rpcs WHERE {passes}", True).get("rpcs")
        database.also = self._also
        self._columns = None if columns is None else {*columns, "number", "connection"}
        of = database.schema
        views = {"chosen": f"SELECT number, connection, file FROM {of}.rpcs WHERE {passes}"}
        connection.execute(f"CREATE TEMP TABLE {FRAMES} (frame BIGINT)")
        for table in TABLES.values():
            condition_of_rows = belonging(table)
            if table.name == "packets" and by_frames:
                condition_of_rows = f"frame IN (SELECT frame FROM {FRAMES})"
            if condition_of_rows:
                views[table.name] = f"SELECT * FROM {of}.{table.name} WHERE {condition_of_rows}"
        for name, text in views.items():
            connection.execute(f"CREATE TEMP VIEW {name} AS {text}")

    def _also(self, wanted: Wanted) -> Wanted:
        """What is read of the tables behind the views."""
        read: dict[str, set[str] | None] = {
            name: None if columns is None else set(columns) for name, columns in wanted.items()
        }
        if not read:
            return read

        def add(name: str, columns: set[str] | None) -> None:
            there = read.setdefault(name, set())
            read[name] = None if columns is None or there is None else there | columns

        add("rpcs", self._columns)
        if "files" in read:
            add("rpcs", {"file"})
            add("operations", {"rpc", "file"})
            add("files", {"number"})
        for name in [*read]:
            keys = {"rpc", "frame"} if name == "packets" else {"rpc", "connection", "number"}
            add(name, keys & {column.name for column in TABLES[name].columns})
        return read

    def keep_frames(self, frames: ChosenFrames) -> None:
        """The packets that belong to the RPCs."""
        connection = self._database.connection
        connection.register("batch_of_rows", {"frame": frames.numbers})
        connection.execute(f"INSERT INTO {FRAMES} SELECT frame FROM batch_of_rows")
        connection.unregister("batch_of_rows")

    def keep_only(self, chosen: ChosenRpcs, words: str) -> None:
        """Drop the rows of other RPCs from all tables, which are filled, and note ``words``: what the condition was.

        The tables were filled with the use of files by ``chosen`` alone, so that the condition cannot be asked again.
        """
        connection = self._database.connection
        connection.abort()
        of = self._database.schema
        connection.execute("BEGIN TRANSACTION")
        connection.register("batch_of_rows", {"number": np.fromiter(chosen.numbers, np.int64, len(chosen.numbers))})
        connection.execute(
            f"CREATE TEMP TABLE kept AS SELECT number, connection, file FROM {of}.rpcs "
            "WHERE number IN (SELECT number FROM batch_of_rows)"
        )
        connection.unregister("batch_of_rows")
        dropped = []
        for table in TABLES.values():
            condition = _OF_DETAILS if table.name == "details" else belonging(table)
            if table.name == "packets":
                condition = f"frame IN (SELECT frame FROM {FRAMES})"
            if condition:
                condition = condition.replace("FROM chosen", "FROM kept")
                dropped.append((table.name, f"NOT coalesce(({condition}), false)"))
        for name in ("chosen", *(name for name, _ in dropped)):
            connection.execute(f"DROP VIEW IF EXISTS temp.{name}")
        # What other conditions ask of goes last.
        for name, other in sorted(dropped, key=lambda pair: pair[0] == "operations"):
            connection.execute(f"DELETE FROM {of}.{name} WHERE {other}")
        connection.execute("DROP TABLE kept")
        connection.execute("INSERT INTO details VALUES (?, NULL, ?)", [FILTER, json.dumps(words)])
        connection.commit()

    def count(self) -> None:
        """Note how many RPCs pass, and of how many, after they were asked for.  Raises CaptureError where none does."""
        self._database.connection.abort()
        query = f"SELECT (SELECT count(*) FROM chosen), (SELECT count(*) FROM {self._database.schema}.rpcs)"
        ((self._condition.passed, self._condition.tried),) = self._database.connection.execute(query).fetchall()
        if problem := self._condition.nothing_passed():
            raise CaptureError(problem)
