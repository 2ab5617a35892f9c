"""Conditions in SQL over the columns of the table rpcs, judged for RPCs as they end.

DuckDB judges them, without access to files, extensions or other tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmascope.dissect.audit.audit_event import Subject
from rdmascope.dissect.measure.filters import KNOWN_NAMES, empty_span, near, unknown_connections
from rdmascope.dissect.measure.time_options import Moment
from rdmascope.dissect.records.rpc_columns import RpcBatches, RpcSource
from rdmascope.dissect.records.table import TableBuilder
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.rpc_table import RpcNames, RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.units import duration

from ..errors import CaptureError
from ..session.session import Session
from .saved import holds_tables

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
            "" if self.slower_than is None else f"waiting_ns > {self.slower_than}",
            "state <> 'complete'" if self.errors else "",
            "" if self.since is None else f"time_ns >= {self.since.absolute(first_time)}",
            "" if self.until is None else f"time_ns < {self.until.absolute(first_time)}",
        ]
        return [one for one in found if one]

    def __str__(self) -> str:
        """'procedure READ or WRITE and client 10.0.0.5 and slower than 10.0 ms'."""
        found = [
            f"{what} {' or '.join(map(str, values))}"
            for what, values in (
                ("procedure", self.procedures),
                ("connection", self.connections),
                ("client", self.clients),
                ("server", self.servers),
                ("path", self.paths),
                ("user", self.users),
            )
            if values
        ]
        found += [] if self.slower_than is None else [f"slower than {duration(self.slower_than)}"]
        found += ["not complete"] if self.errors else []
        found += [f"since {self.since.text}"] if self.since else []
        found += [f"until {self.until.text}"] if self.until else []
        return " and ".join(found)


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


class ChosenRpcs(NamedTuple):
    """The RPCs of a capture that pass a condition, by number."""

    numbers: frozenset[int]
    connections: frozenset[int]
    """Of these RPCs."""

    def judged(self, subject: Subject) -> bool:
        """Whether an audit of these RPCs judges a noun: it is of one of them, or of the setup of their connections."""
        number = subject.rpc_number
        return subject.connection.number in self.connections if number is None else number in self.numbers

    def mask(self, table: RpcTable) -> NDArray[np.bool_]:
        """Which rows of a table they are."""
        return np.fromiter(map(self.numbers.__contains__, table.rows["number"].tolist()), np.bool_, len(table))

    def selected(self, table: RpcTable, session: Session) -> RpcTable:
        """Those of the RPCs of a table that they are."""
        return table.selected(self.mask(table))

    def problem(self, session: Session) -> str:
        """There is none: they are known."""
        return ""


class Condition:
    """Which RPCs are meant: a condition in SQL, and what options add to it.  Close it after its use."""

    def __init__(self, conditions: Sequence[str] = (), sugar: Sugar | None = None) -> None:
        """Raises CaptureError for a condition that cannot be judged."""
        from .database import Database, QueryError, named_columns

        self.sugar = sugar or Sugar()
        self.written = tuple(conditions)
        self.given = [_full(one) for one in conditions]
        for one, written in zip(self.given, conditions, strict=True):
            if _OTHER.search(PARTS.sub("", one)):
                raise CaptureError(f"--where {written!r}: a condition over the columns of rpcs, and no query")
        self._database = Database(described=False)
        self._text = self.sql(0)
        try:
            for one, written in zip(self.given, conditions, strict=True):
                try:
                    self._database.check("rpcs", one)
                except QueryError as error:
                    raise CaptureError(f"--where {written!r}: {_in_words(error)}") from None
            query = f"SELECT number FROM rpcs WHERE {self._text}"
            columns = named_columns(self._database.connection, query, True).get("rpcs")
        except BaseException:
            self.close()
            raise
        self._builder = TableBuilder(TABLES["rpcs"], columns)
        self._batches: RpcBatches | None = None
        self._session: RpcSource | None = None
        self._names: RpcNames | None = None
        self.passed = self.tried = 0
        """RPCs."""
        self._compared = [(match[1] or match[2], match[3]) for one in self.given for match in _COMPARED.finditer(one)]
        """Columns, and the texts in quotes that they are compared with."""
        self._values: dict[str, set[str]] = {name: set() for name, _ in (*self._compared, *self._named_texts())}
        """Values of these columns that are there, at most ``MAX_VALUES``."""

    @property
    def needs_contents(self) -> bool:
        """It names columns that are made of the bytes of messages: the option of the analyzer."""
        return self._builder.needs("contents", "files", "paths")

    @property
    def names(self) -> set[str]:
        """The columns that it names, those that it may name among them."""
        return {column.name for column in self._builder.columns[1:]}

    @property
    def only_connections(self) -> bool:
        """Nothing is asked but connections."""
        return not self.written and self.sugar == Sugar(connections=self.sugar.connections)

    def __str__(self) -> str:
        """As given."""
        return " and ".join(one for one in (*self.written, str(self.sugar)) if one)

    def mask(self, table: RpcTable, session: RpcSource) -> NDArray[np.bool_]:
        """Which rows of a table pass.  Raises CaptureError for one that cannot be judged."""
        if not len(table):
            return np.zeros(0, np.bool_)
        if self._batches is None or self._session is not session:
            self._session, self.passed, self.tried = session, 0, 0
            self._text = self.sql(session.first_time)
            self._builder.find = getattr(session, "place", None)  # Of files; running traffic has none.
            self._batches = RpcBatches(self._builder.needs("files"), self._builder.needs("paths"), session)
            if holds_tables(session.paths[0]) and self._builder.needs("files"):
                raise CaptureError(f"{session.path}: holds tables, which 'rdmascope sql' can ask about files")
        self._names = table.names
        self._builder.add(self._batches.batch(table))
        columns = self._builder.take()
        for name, values in self._values.items():
            if name in columns and columns[name].dtype == object and len(values) < MAX_VALUES:
                values.update(columns[name].compressed().tolist())
        passes = self._database.judged("rpcs", columns, self._text)
        self.tried += len(passes)
        self.passed += int(np.count_nonzero(passes))
        return passes

    def chosen_rpcs(self, session: Session) -> ChosenRpcs:
        """The RPCs that pass; reads a session to its end.  Raises CaptureError where none does."""
        rpcs: set[int] = set()
        connections: set[int] = set()
        for table in session.tables():
            rows = self.selected(table, session).rows
            rpcs.update(rows["number"].tolist())
            connections.update(rows["connection"].tolist())
        session.refuse(self.problem(session))
        return ChosenRpcs(frozenset(rpcs), frozenset(connections))

    def selected(self, table: RpcTable, session: Session) -> RpcTable:
        """Those of the RPCs that pass."""
        return table.selected(self.mask(table, session))

    def close(self) -> None:
        self._database.close()

    def sql(self, first_time: int) -> str:
        """The whole of it, over the columns of rpcs; ``first_time``: of the capture, nanoseconds since the epoch."""
        return " AND ".join(f"({one}\n)" for one in (*self.given, *self.sugar.conditions(first_time))) or "true"

    def problem(self, session: Session) -> str:
        """Why nothing passed, after all RPCs of a session were judged; '' where something did, or none were there."""
        return self.impossible(session) or self.nothing_passed()

    def nothing_passed(self) -> str:
        """That no RPC did; '' where one did, or none were there."""
        return "" if self.passed or not self.tried else f"no RPC of {self.tried:,} passes the filter: {self}"

    def impossible(self, session: Session) -> str:
        """Which filter nothing can pass, after all RPCs of a session were judged; '' where each can be passed."""
        sugar, extent = self.sugar, session.extent()
        for name in sugar.procedures:
            bare = name.upper().rpartition(".")[2]
            if not any(fnmatchcase(known, bare) for known in (*KNOWN_NAMES, *self._called())):
                return f"no procedure or operation {name!r}{near(bare, KNOWN_NAMES)}"
        ends = [one.endpoints for one in session.analyzer.connections]
        for what, addresses, end in (("client", sugar.clients, 0), ("server", sugar.servers, 1)):
            known = sorted({one[end].address for one in ends})
            for address in addresses:
                if address not in known and known and not extent.evicted:
                    more = f" and {len(known) - MAX_LISTED:,} more" if len(known) > MAX_LISTED else ""
                    return f"no {what} {address!r}; there is {', '.join(known[:MAX_LISTED])}{more}"
        return (
            unknown_connections(sugar.connections, extent)
            or empty_span(sugar.since, sugar.until, extent)
            or ("" if self.passed else self._unknown_text())
        )

    def _named_texts(self) -> Iterator[tuple[str, str]]:
        """Columns of text, and what options compare them with."""
        yield from (("user", user) for user in self.sugar.users)
        yield from (("path", path) for path in self.sugar.paths)

    def _unknown_text(self) -> str:
        """Which text no RPC has; '' where each is there."""
        for name, value in (*self._compared, *self._named_texts()):
            known = self._values[name]
            texts = [one for one in known if one == value or (name == "path" and _below(one, value))]
            called = value.upper() in self._called()
            if texts or not self.tried or len(known) >= MAX_VALUES:
                continue
            if name == "procedure" and value in KNOWN_NAMES and not called:
                continue  # It might have been called.
            there = sorted(known)
            more = f" and {len(there) - MAX_LISTED:,} more" if len(there) > MAX_LISTED else ""
            words = f"no RPC has the {name} {value!r}; there is {', '.join(there[:MAX_LISTED]) or 'none'}{more}"
            return words + (f"; --procedure {value} finds COMPOUNDs with this operation" if called else "")
        return ""

    def _called(self) -> Iterator[str]:
        """Names of what was called."""
        for one in self._names.procedures if self._names is not None else ():
            yield from (one.name.upper(), *one.operations)


def _below(path: str, wanted: str) -> bool:
    """As ``--path`` has it."""
    return fnmatchcase(path, wanted) or path.startswith(wanted.rstrip("/") + "/")


MAX_LISTED = 5
"""Addresses, or other values that are there, where another one was asked for."""
MAX_VALUES = 10_000
_COMPARED = re.compile(
    r"(?:\b(procedure|operations|user|path|client|server|program)|\"(procedure|user)\")\s*=\s*'((?:[^']|'')*)'"
)
"""Columns that may lack a value for good, compared with a text."""
_UNKNOWN = re.compile(r'Referenced column "([^"]+)" not found|Table "[^"]+" does not have a column named "([^"]+)"')


def _in_words(error: CaptureError) -> str:
    """What is wrong with a condition."""
    unknown = _UNKNOWN.search(str(error))
    if unknown is None:
        words = str(error).removeprefix("the query: ")
        return re.sub(
            r"\(line (\d+), (column \d+)\)$", lambda at: f"({at[2] if at[1] == '1' else 'at its end'})", words
        )
    name = unknown[1] or unknown[2]
    names = [column.name for column in TABLES["rpcs"].columns]
    return f"no column {name!r} in the table rpcs{near(name.lower(), names)}"


def chosen(session: Session, condition: Condition | ChosenRpcs | None) -> Iterator[Rpc]:
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
