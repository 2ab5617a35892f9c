"""Conditions in SQL over the columns of the table rpcs, judged for RPCs as they end.

DuckDB judges them, without access to files, extensions or other tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rdmascope.dissect.measure.moments import Moment
from rdmascope.dissect.measure.selection import KNOWN_NAMES
from rdmascope.dissect.records.table import TableBuilder
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc

from .errors import CaptureError
from .rpc_batches import RpcBatches
from .saved import holds_tables
from .session import Session

PARTS = re.compile(r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")")
"""Texts and names in quotes."""
ABBREVIATIONS = {"latency_ms": "(latency_us / 1000)"}
"""Names that stand for more."""
_OTHER = re.compile(r"\b(?:select|from|pragma|attach|install|load|copy)\b|;", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sugar:
    """Conditions that have options of their own; those that are given add up."""

    procedures: Sequence[str] = ()
    connections: Sequence[int] = ()
    clients: Sequence[str] = ()
    servers: Sequence[str] = ()
    paths: Sequence[str] = ()
    users: Sequence[str] = ()
    slower_than: int | None = None
    """Nanoseconds."""
    errors: bool = False
    since: Moment | None = None
    until: Moment | None = None

    def conditions(self, first_time: int) -> list[str]:
        """In SQL; ``first_time``: of the capture, in nanoseconds since the epoch."""
        found = [
            any_of(_procedure(name) for name in self.procedures),
            any_of(f"connection = {number}" for number in self.connections),
            any_of(f"client = {text(address)}" for address in self.clients),
            any_of(f"server = {text(address)}" for address in self.servers),
            any_of(f"path GLOB {text(path)} OR path LIKE {text(path.rstrip('/') + '/%')}" for path in self.paths),
            any_of(f'"user" = {text(user)}' for user in self.users),
            "" if self.slower_than is None else f"latency_ns > {self.slower_than}",
            "state <> 'complete'" if self.errors else "",
            "" if self.since is None else f"time_ns >= {self.since.absolute(first_time)}",
            "" if self.until is None else f"time_ns < {self.until.absolute(first_time)}",
        ]
        return [one for one in found if one]


def text(value: str) -> str:
    """As a text of SQL."""
    return "'" + value.replace("'", "''") + "'"


def any_of(conditions: Iterable[str]) -> str:
    return " OR ".join(f"({one})" for one in conditions)


def _procedure(name: str) -> str:
    """The procedure, an operation of the COMPOUND, or either after a program; ``*`` and ``?`` stand for others."""
    program, _, procedure = name.upper().rpartition(".")
    called = (
        f"upper(\"procedure\") GLOB {text(procedure)} OR (' ' || operations || ' ') GLOB {text(f'* {procedure} *')}"
    )
    if not program:
        return called
    version, minor = "upper(program) || 'V' || version", "upper(program) || 'V' || version || '.' || minor_version"
    labels = any_of(f"{one} GLOB {text(program)}" for one in ("upper(program)", version, minor))
    return f"({labels}) AND ({called})"


class Condition:
    """Which RPCs are meant: a condition in SQL, and what options add to it.  Close it after its use."""

    def __init__(self, conditions: Sequence[str] = (), sugar: Sugar | None = None) -> None:
        """Raises CaptureError for a condition that cannot be judged."""
        from .database import Database, QueryError
        from .query_columns import named_columns

        self.sugar = sugar or Sugar()
        self.written = tuple(conditions)
        self.given = [_full(one) for one in conditions]
        for one, written in zip(self.given, conditions, strict=True):
            if _OTHER.search(PARTS.sub("", one)):
                raise CaptureError(f"--where {written!r}: a condition over the columns of rpcs, and no query")
        self._database = Database()
        self._text = self.sql(0)
        try:
            for one, written in zip(self.given, conditions, strict=True):
                try:
                    [*self._database.results(f"SELECT number FROM rpcs WHERE ({one}\n)")]
                except QueryError as error:
                    raise CaptureError(f"--where {written!r}: {error}") from None
            query = f"SELECT number FROM rpcs WHERE {self._text}"
            columns = named_columns(self._database.connection, query, True).get("rpcs")
        except BaseException:
            self.close()
            raise
        self._builder = TableBuilder(TABLES["rpcs"], columns)
        self._batches: RpcBatches | None = None
        self.passed = self.tried = 0
        """RPCs."""

    @property
    def needs_contents(self) -> bool:
        """It names columns that are made of the bytes of messages: the option of the analyzer."""
        return self._builder.needs("contents", "files", "paths")

    def __str__(self) -> str:
        """As given, times as they were written."""
        moments = [f"since {self.sugar.since.text}"] if self.sugar.since else []
        moments += [f"until {self.sugar.until.text}"] if self.sugar.until else []
        timeless = [one for one in self.sugar.conditions(0) if not one.startswith("time_ns ")]
        return " and ".join([*self.written, *timeless, *moments])

    def mask(self, table: RpcTable, session: Session) -> NDArray[np.bool_]:
        """Which rows of a table pass.  Raises CaptureError for one that cannot be judged."""
        if not len(table):
            return np.zeros(0, np.bool_)
        if self._batches is None:
            self._text = self.sql(session.first_time)
            self._batches = RpcBatches(self._builder.needs("files"), self._builder.needs("paths"), session)
            if holds_tables(session.paths[0]) and self._builder.needs("files"):
                raise CaptureError(f"{session.path}: holds tables, which 'rdmascope sql' can ask about files")
        self._builder.add(self._batches.batch(table))
        passes = self._database.judged("rpcs", self._builder.take(), self._text)
        self.tried += len(passes)
        self.passed += int(np.count_nonzero(passes))
        return passes

    def selected(self, table: RpcTable, session: Session) -> RpcTable:
        """Those of the RPCs that pass."""
        return table.selected(self.mask(table, session))

    def close(self) -> None:
        self._database.close()

    def sql(self, first_time: int) -> str:
        """The whole of it, over the columns of rpcs; ``first_time``: of the capture, nanoseconds since the epoch."""
        return " AND ".join(f"({one}\n)" for one in (*self.given, *self.sugar.conditions(first_time))) or "true"

    def problem(self) -> str:
        """Why nothing can have passed; '' where something did, or might have."""
        for name in self.sugar.procedures:
            bare = name.upper().rpartition(".")[2]
            if not self.passed and not set(bare) & {"*", "?"} and bare not in KNOWN_NAMES:
                return f"no procedure or operation {name!r}"
        return "" if self.passed or not self.tried else f"no RPC of {self.tried:,} passes the filter: {self}"


def chosen(session: Session, condition: Condition | None) -> Iterator[Rpc]:
    """The RPCs of a session that was not read yet; with a condition, those that pass."""
    for table in session.tables():
        yield from table if condition is None else condition.selected(table, session)
        del table


def _full(condition: str) -> str:
    """With what abbreviations outside of quotes stand for."""
    parts = PARTS.split(condition)
    for at in range(0, len(parts), 2):
        for short, long in ABBREVIATIONS.items():
            parts[at] = re.sub(rf"\b{short}\b", long, parts[at], flags=re.IGNORECASE)
    return "".join(parts)
