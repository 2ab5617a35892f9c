"""Conditions in SQL over the columns of the table rpcs, judged for RPCs as they end.

DuckDB judges them, without access to files, extensions or other tables; what has an option of its own NumPy does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.ma import getmaskarray
from numpy.typing import NDArray

from rdmascope.dissect.arrays import coded_keys
from rdmascope.dissect.audit.rule import Subject
from rdmascope.dissect.measure.filters import KNOWN_NAMES, empty_span, near, unknown_connections
from rdmascope.dissect.measure.time_options import Moment
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.onc.rpc_header import program_name
from rdmascope.dissect.records.rpc_columns import (
    Columns,
    RpcBatch,
    RpcBatches,
    RpcSource,
    TableBuilder,
    expanded,
    quoted,
)
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.rpc_table import STATES, ProcedureNames, RpcNames, RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.units import duration

from ..errors import CaptureError
from ..session.session import Session
from .saved import holds_tables
from .typed_sql import QUOTED, SEVERAL, typed

if TYPE_CHECKING:
    from .database import Database, QueryError

_NUMBERS = re.compile(r"\b(?:number|connection|file|ended|\w*frame)\b", re.IGNORECASE)
_OTHER = re.compile(r"\b(?:select|from|pragma|attach|install|load|copy)\b|;", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Filters:
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
        parts = [
            any_of(_procedure(name) for name in self.procedures),
            any_of(f"connection = {number}" for number in self.connections),
            any_of(f"client = {quoted(address)}" for address in self.clients),
            any_of(f"server = {quoted(address)}" for address in self.servers),
            any_of(f"path GLOB {quoted(path)} OR starts_with(path, {quoted(_folder(path))})" for path in self.paths),
            any_of(f'"user" = {quoted(user)}' for user in self.users),
            "" if self.slower_than is None else f"waiting_ns > {self.slower_than}",
            "state <> 'complete'" if self.errors else "",
            "" if self.since is None else f"time_ns >= {self.since.absolute(first_time)}",
            "" if self.until is None else f"time_ns < {self.until.absolute(first_time)}",
        ]
        return [part for part in parts if part]

    def mask(self, batch: RpcBatch, first_time: int) -> NDArray[np.bool_]:
        """Which RPCs pass: the same as ``conditions`` without DuckDB, which takes long to load."""
        table, rows = batch.table, batch.rows
        passes = np.ones(len(table), np.bool_)

        def only(column: Any, judged: Callable[[Any], bool]) -> None:
            values, which = coded_keys(column, len(table))
            np.logical_and(passes, np.array([judged(value) for value in values], np.bool_)[which], passes)

        if self.procedures:
            called = [
                any(_is_called(name, procedure) for name in self.procedures) for procedure in table.names.procedures
            ]
            passes &= np.array(called, np.bool_)[rows["procedure"]]
        if self.connections:
            passes &= np.isin(rows["connection"], self.connections)
        for which, addresses in ((batch.clients, self.clients), (batch.servers, self.servers)):
            if addresses:
                only(expanded(which()).tolist(), addresses.__contains__)
        if self.paths:
            only(batch.paths, lambda path: path is not None and any(_below(path, wanted) for wanted in self.paths))
        if self.users:
            only(expanded(batch.users).tolist(), lambda user: user in self.users)
        if self.slower_than is not None:
            passes &= table.waiting > self.slower_than
        if self.errors:
            passes &= rows["state"] != STATES.index("complete")
        for moment, sign in ((self.since, 1), (self.until, -1)):
            if moment is not None:
                late = batch.times.data >= moment.absolute(first_time)
                passes &= (late if sign > 0 else ~late) & ~getmaskarray(batch.times)
        return passes

    def __str__(self) -> str:
        """'procedure READ or WRITE and client 10.0.0.5 and slower than 10.0 ms'."""
        words = [
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
        words += [] if self.slower_than is None else [f"slower than {duration(self.slower_than)}"]
        words += ["not complete"] if self.errors else []
        words += [f"since {self.since.text}"] if self.since else []
        words += [f"until {self.until.text}"] if self.until else []
        return " and ".join(words)


def any_of(conditions: Iterable[str]) -> str:
    return " OR ".join(f"({condition})" for condition in conditions)


def _folder(path: str) -> str:
    return path.rstrip("/") + "/"


def _procedure(name: str) -> str:
    """The procedure, an operation of the COMPOUND, or either after a program; ``*`` and ``?`` stand for others."""
    program, _, procedure = name.upper().rpartition(".")
    called = typed(f"procedure GLOB {quoted(procedure)}").sql
    if not program:
        return called
    version, minor = "upper(program) || 'V' || version", "upper(program) || 'V' || version || '.' || minor_version"
    labels = any_of(f"{label} GLOB {quoted(program)}" for label in ("upper(program)", version, minor))
    return f"({labels}) AND {called}"


def _is_called(name: str, called: ProcedureNames) -> bool:
    """Whether a procedure has a name, by the pattern ``called``."""
    program, _, procedure = name.upper().rpartition(".")
    if program:
        if called.program is None:
            return False
        label = program_name(called.program).upper()
        labels = [label, f"{label}V{called.version}", f"{label}V{called.version}.{called.minor_version}"]
        if not any(fnmatchcase(label, program) for label in labels):
            return False
    return any(fnmatchcase(known, procedure) for known in (called.name, *called.operations))


class ChosenRpcs(NamedTuple):
    """The RPCs of a capture that pass a condition, by number."""

    numbers: frozenset[int]
    connections: frozenset[int]
    """Connections of these RPCs."""

    def judged(self, subject: Subject) -> bool:
        """Whether an audit of these RPCs judges a noun: it is of one of them, or of the setup of their connections."""
        number = subject.rpc_number
        return subject.connection.number in self.connections if number is None else number in self.numbers

    def mask(self, table: RpcTable) -> NDArray[np.bool_]:
        """Which rows of a table they are."""
        return np.fromiter(map(self.numbers.__contains__, table.rows["number"].tolist()), np.bool_, len(table))

    def selected(self, table: RpcTable, session: Session) -> RpcTable:
        """The chosen RPCs of a table."""
        return table.selected(self.mask(table))

    def problem(self, session: Session) -> str:
        """There is none: they are known."""
        return ""


class Condition:
    """Which RPCs are meant: a condition in SQL, and what options add to it.  Close it after its use."""

    def __init__(self, conditions: Sequence[str] = (), filters: Filters | None = None) -> None:
        """Raises CaptureError for a condition that cannot be judged."""
        self.filters = filters or Filters()
        self.written = tuple(conditions)
        self.remarks: list[str] = []
        """About names that go."""
        self.given = [self._typed(condition) for condition in conditions]
        self._database: Database | None = None
        self._builder: TableBuilder | None = None
        if conditions:
            self._judge_in_database()
        self._batches: RpcBatches | None = None
        self._session: RpcSource | None = None
        self._names: RpcNames | None = None
        self.passed = self.tried = 0
        """How many RPCs passed, and how many were asked."""
        self._compared = [
            (match[1] or match[2], match[3]) for condition in self.written for match in _COMPARED.finditer(condition)
        ]
        """Columns, and the texts in quotes that they are compared with."""
        self._values: dict[str, set[str]] = {name: set() for name, _ in (*self._compared, *self._named_texts())}
        """Values of these columns that are there, at most ``MAX_VALUES``."""

    def _typed(self, written: str) -> str:
        if _OTHER.search(re.sub(QUOTED, "", written)):
            raise CaptureError(f"--where {written!r}: a condition over the columns of rpcs, and no query")
        try:
            translated = typed(written)
        except CaptureError as error:
            raise CaptureError(f"--where {written!r}: {error}") from None
        self.remarks += translated.remarks
        return translated.sql

    def _judge_in_database(self) -> None:
        """Have DuckDB judge what is given in SQL."""
        from .database import Database, QueryError, named_columns

        self._database = Database(described=False)
        try:
            for sql, written in zip(self.given, self.written, strict=True):
                try:
                    self._database.check("rpcs", sql)
                except QueryError as error:
                    raise CaptureError(f"--where {written!r}: {_in_words(error)}") from None
            query = f"SELECT number FROM rpcs WHERE {all_of(self.given)}"
            columns = named_columns(self._database.connection, query, True).get("rpcs")
        except BaseException:
            self.close()
            raise
        self._builder = TableBuilder(TABLES["rpcs"], columns)

    def _needs(self, *what: str) -> bool:
        return self._builder is not None and self._builder.needs(*what)

    @property
    def needs_contents(self) -> bool:
        """It names columns that are made of the bytes of messages: the option of the analyzer."""
        return bool(self.filters.paths or self.filters.users) or self._needs("contents", "files", "paths")

    @property
    def names(self) -> set[str]:
        """The columns that it names in SQL, those that it may name among them."""
        return set() if self._builder is None else {column.name for column in self._builder.columns[1:]}

    @property
    def span(self) -> tuple[Moment | None, Moment | None]:
        """From which moment on, and before which."""
        return self.filters.since, self.filters.until

    def each_value(self) -> list[str]:
        """The filter in SQL, once for each of its values: some may be in the capture and others not."""
        names = ("procedures", "connections", "clients", "servers", "paths", "users")
        several = [(name, values) for name in names if len(values := getattr(self.filters, name)) > 1]
        alone: list[dict[str, Any]] = [{name: (value,)} for name, values in several for value in values]
        return [sql for given in alone for sql in Filters(**given).conditions(0)]

    def count_times_from(self, first_time: int) -> None:
        """Count times, which may be counted from the begin of a capture, from this: nanoseconds since the epoch."""
        since, until = (
            moment and moment._replace(nanoseconds=moment.absolute(first_time), counted_from="epoch")
            for moment in self.span
        )
        self.filters = replace(self.filters, since=since, until=until)

    @property
    def numbered(self) -> bool:
        """It asks for numbers, or may: those of a data set are others where its captures are read as one."""
        return bool(self.filters.connections) or any(map(_NUMBERS.search, self.written))

    @property
    def only_connections(self) -> bool:
        """Nothing is asked but connections."""
        return not self.written and self.filters == Filters(connections=self.filters.connections)

    def __str__(self) -> str:
        return " and ".join(text for text in (*self.written, str(self.filters)) if text)

    def mask(self, table: RpcTable, session: RpcSource) -> NDArray[np.bool_]:
        """Which rows of a table pass.  Raises CaptureError for one that cannot be judged."""
        if not len(table):
            return np.zeros(0, np.bool_)
        if self._batches is None or self._session is not session:
            self._session, self.passed, self.tried = session, 0, 0
            if self._builder is not None:
                self._builder.find = getattr(session, "place", None)  # Of files; running traffic has none.
            paths = bool(self.filters.paths) or self._needs("paths")
            self._batches = RpcBatches(self._needs("files"), paths, session)
            if self._needs("files") and holds_tables(session.paths[0]):
                raise CaptureError(f"{session.path}: holds tables, which 'rdmascope sql' can ask about files")
        self._names = table.names
        batch = self._batches.batch(table)
        passes = self.filters.mask(batch, session.first_time)
        columns: Columns = {}
        if self._builder is not None and self._database is not None:
            self._builder.add(batch)
            columns = self._builder.take()
            passes &= self._database.judged("rpcs", columns, all_of(self.given))
        for name, values in self._values.items():
            if len(values) < MAX_VALUES:
                values.update(self._texts(name, batch, columns))
        self.tried += len(passes)
        self.passed += int(np.count_nonzero(passes))
        return passes

    def _texts(self, name: str, batch: RpcBatch, columns: Columns) -> Iterable[str]:
        if name in columns:
            return columns[name].compressed().tolist() if columns[name].dtype == object else ()
        return (
            text for text in (batch.paths if name == "path" else expanded(batch.users).tolist()) if text is not None
        )

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
        """The RPCs of a table that pass."""
        return table.selected(self.mask(table, session))

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def sql(self, first_time: int) -> str:
        """The whole of it, over the columns of rpcs; ``first_time``: of the capture, nanoseconds since the epoch."""
        return all_of([*self.given, *self.filters.conditions(first_time)])

    def problem(self, session: Session) -> str:
        """Why nothing passed, after all RPCs of a session were judged; '' where something did, or none were there."""
        return self.impossible(session) or self.nothing_passed()

    def nothing_passed(self) -> str:
        """Say that no RPC passed; '' if one did, or there were none."""
        return "" if self.passed or not self.tried else f"no RPC of {self.tried:,} passes the filter: {self}"

    def impossible(self, session: Session) -> str:
        """Which filter nothing can pass, after all RPCs of a session were judged; '' where each can be passed."""
        filters, extent = self.filters, session.extent()
        for name in filters.procedures:
            bare = name.upper().rpartition(".")[2]
            if not any(fnmatchcase(known, bare) for known in (*KNOWN_NAMES, *self._called())):
                return f"no procedure or operation {name!r}{near(bare, KNOWN_NAMES)}"
        ends = [connection.endpoints for connection in session.analyzer.connections]
        for what, addresses, end in (("client", filters.clients, 0), ("server", filters.servers, 1)):
            known = sorted({endpoints[end].address for endpoints in ends})
            for address in addresses:
                if address not in known and known and not extent.evicted:
                    more = f" and {len(known) - MAX_LISTED:,} more" if len(known) > MAX_LISTED else ""
                    return f"no {what} {address!r}; there is {', '.join(known[:MAX_LISTED])}{more}"
        return (
            unknown_connections(filters.connections, extent)
            or empty_span(filters.since, filters.until, extent)
            or ("" if self.passed else self._unknown_text())
        )

    def _named_texts(self) -> Iterator[tuple[str, str]]:
        """Columns of text, and what options compare them with."""
        yield from (("user", user) for user in self.filters.users)
        yield from (("path", path) for path in self.filters.paths)

    def _unknown_text(self) -> str:
        """Which text no RPC has; '' where each is there."""
        for name, value in (*self._compared, *self._named_texts()):
            known = self._values[name]
            texts = [text for text in known if text == value or (name == "path" and _below(text, value))]
            if texts or not self.tried or len(known) >= MAX_VALUES:
                continue
            if name == "procedure" and (value in KNOWN_NAMES or value.upper() in self._called()):
                continue  # It might have been called, or was within COMPOUNDs.
            there = sorted(known)
            more = f" and {len(there) - MAX_LISTED:,} more" if len(there) > MAX_LISTED else ""
            return f"no RPC has the {name} {value!r}; there is {', '.join(there[:MAX_LISTED]) or 'none'}{more}"
        return ""

    def _called(self) -> Iterator[str]:
        """Names of what was called."""
        for procedure in self._names.procedures if self._names is not None else ():
            yield from (procedure.name.upper(), *procedure.operations)


def all_of(conditions: Sequence[str]) -> str:
    return " AND ".join(f"({condition}\n)" for condition in conditions) or "true"


def _below(path: str, wanted: str) -> bool:
    """Whether a path matches ``--path``."""
    return fnmatchcase(path, wanted) or path.startswith(_folder(wanted))


MAX_LISTED = 5
"""Addresses, or other values that are there, where another one was asked for."""
MAX_VALUES = 10_000
_COMPARED = re.compile(
    r"(?:\b(procedure|operations|user|path|client|server|program)|\"(procedure|user)\")\s*=\s*'((?:[^']|'')*)'"
)
"""Columns that may lack a value for good, compared with a text."""


def _in_words(error: QueryError) -> str:
    """What is wrong with a condition."""
    name = error.unknown
    if not name:
        words = str(error).removeprefix("the query: ")
        return re.sub(
            r"\(line (\d+), (column \d+)\)$", lambda at: f"({at[2] if at[1] == '1' else 'at its end'})", words
        )
    made = SEVERAL.get(name.lower())
    if made:
        return f"no column {name!r} in the table rpcs: it is made of {made}"
    words = TABLES["rpcs"].no_column(name)
    # Unless it is nearly a column's name, it may be a text that lacks its quotes: procedure = READ.
    return words if words.endswith("?") else f"{words}; a text stands in single quotes: '{name}'"


def chosen(session: Session, condition: Condition | ChosenRpcs | None) -> Iterator[Rpc]:
    """The RPCs of a session that was not read yet; with a condition, those that pass."""
    for table in session.tables():
        yield from table if condition is None else condition.selected(table, session)
        del table
