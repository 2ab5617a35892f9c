"""The tables of a capture while they are filled: their rows in any order, a window of them at a time."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from rdmascope.dissect.arrays import Int64s
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.records.rpc_columns import Columns, named, quoted, tuples
from rdmascope.dissect.records.tables import TABLES

from ..errors import CaptureError
from .typed_sql import WORDS

if TYPE_CHECKING:
    import duckdb  # It is loaded when the first rows come, beside what draws.

    from .database import Database


LEFT_OUT = {"file", "call_place_file", "call_place_frame", "reply_place_file", "reply_place_frame"}
"""Columns of rpcs that running traffic does without, and that are not looked for a text: the first takes as long as all
others together."""
LATER = {
    "paths": {column.name for column in TABLES["rpcs"].columns if column.needs in ("contents", "paths")},
    "places": LEFT_OUT,
}
"""Columns of rpcs that take more time than the rows themselves, and come in passes of their own, by what they say."""


def first_columns(table: str) -> Collection[str] | None:
    """The columns of a table that come with its rows."""
    if table == "rpcs":
        return {column.name for column in TABLES[table].columns}.difference(*LATER.values())
    if table == "connections":  # The others take the contents of messages: they come with the paths.
        return {column.name for column in TABLES[table].columns if not column.needs}
    return None


def live_columns(table: str) -> Collection[str] | None:
    """The columns of a table that are filled while traffic passes."""
    return {column.name for column in TABLES["rpcs"].columns} - LEFT_OUT if table == "rpcs" else None


NOUNS = ("rpcs", "packets", "connections", "files", "findings")
"""The tables that are browsed."""
LEAVE = 5.0
"""Seconds for what is asked at the end."""
KEYS = {"rpcs": "number", "packets": "frame", "connections": "number", "files": "number", "findings": "time_ns"}
"""What rows are ordered by, where nothing else is asked, and among equals."""
_RPC_OF_FRAME = """(SELECT any_value(rpcs.number) FROM temp.coming_rpcs AS numbered JOIN rpcs USING (call_frame)
    WHERE numbered.number = part.rpc) AS rpc"""
"""For packets of a live capture: a pass over what is kept gives RPCs other numbers than the list has."""
_WRONG = {
    "rpcs": "state <> 'complete' OR number IN (SELECT rpc FROM findings)",
    "packets": "rpc IN (SELECT number FROM rpcs WHERE state <> 'complete' UNION SELECT rpc FROM findings)"
    " OR frame IN (SELECT frame FROM findings)",
    "connections": "number IN (SELECT connection FROM rpcs WHERE state <> 'complete'"
    " UNION SELECT connection FROM findings)",
    "files": "handle_hash IN (SELECT file_handle_hash FROM rpcs WHERE state <> 'complete'"
    " OR number IN (SELECT rpc FROM findings))",
    "findings": "true",
}
"""Rows that failed, or that a rule of the audit is broken by."""


class Narrowing(NamedTuple):
    """Which RPCs are meant, and what belongs to them."""

    where: str = ""
    """A condition over the columns of rpcs; '' for all."""
    first: int | None = None
    """Nanoseconds since the Unix epoch: of what was brushed."""
    last: int | None = None

    @property
    def condition(self) -> str:
        """In SQL; '' for all RPCs."""
        parts = [f"({self.where}\n)"] if self.where else []
        parts += [f"time_ns >= {self.first}"] if self.first is not None else []
        parts += [f"time_ns < {self.last}"] if self.last is not None else []
        return " AND ".join(parts)


class CallInterval(NamedTuple):
    """RPCs that began in an interval of time."""

    calls: int
    median: float | None
    """Nanoseconds; None where no latency is known."""
    p99: float | None
    wrong: int
    """Calls that are not complete."""


class CallTimeline(NamedTuple):
    """Intervals of one width, from the first RPC to the last."""

    first: int
    """Nanoseconds since the Unix epoch."""
    width: int
    """Nanoseconds, at least 1."""
    intervals: tuple[CallInterval, ...]


class _Shared:
    """What all views of tables have in common: the database, which is made when the first rows come."""

    def __init__(self, parent: str) -> None:
        self._parent = parent
        self._making = Lock()
        self.database: Database | None = None
        self._closed = False

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor of the database, which the first call makes.  Raises CaptureError where it cannot be made."""
        with self._making:
            if self._closed:
                raise CaptureError("the tables are closed")
            if self.database is None:
                from .database import Database

                self.database = Database(parent=self._parent, described=False)
            return self.database.connection.cursor()

    def close(self) -> None:
        """Remove everything; waits for what another thread still asks, which DuckDB does not."""
        end = time.monotonic() + LEAVE
        locked = self._making.acquire(timeout=LEAVE)
        self._closed = True
        if locked:
            self._making.release()
        if self.database is None:
            return
        from duckdb import OperationalError

        while time.monotonic() < end:
            try:
                self.database.close()
                return
            except OperationalError:
                time.sleep(0.01)
        shutil.rmtree(self.database.folder, ignore_errors=True)


class BrowsedTables:
    """Tables that another process fills, part by part.  Every thread asks through ``asked``, a view of its own."""

    def __init__(self, parent: str, keyed: bool = False) -> None:
        """``parent``: the folder in which they are kept.

        ``keyed``: rows are removed, too: the ID of one is its number, for that of the database does not stay.
        """
        self._shared = _Shared(parent)
        self.keyed = keyed
        self._see()

    def _see(self) -> None:
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._prepared: set[str] = set()
        """Tables of which rows were prepared."""

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """All rows are behind it.  Raises CaptureError where the database cannot be made."""
        if self._cursor is None:
            self._cursor = self._shared.cursor()
        return self._cursor

    def asked(self) -> BrowsedTables:
        """A view of the tables for another thread."""
        other = object.__new__(BrowsedTables)
        other._shared, other.keyed = self._shared, self.keyed
        other._see()
        return other

    @property
    def ready(self) -> bool:
        """Questions can be asked without waiting for the database to be made, which takes longer than a key may."""
        return self._shared.database is not None

    def close(self) -> None:
        """Close the database and remove its folder."""
        self._shared.close()

    def take_in(self, name: str, columns: Columns) -> None:
        """Add rows to a table."""
        from .database import insert_rows

        insert_rows(self.connection, name, name, columns)

    def complete(self, columns: Columns) -> None:
        """Fill columns of RPCs that are there, by their number."""
        from .database import registered

        given = ", ".join(f"{named(column)} = part.{named(column)}" for column in columns if column != "number")
        with registered(self.connection, "rpcs", columns) as part:
            self.connection.execute(f"UPDATE rpcs SET {given} FROM {part} AS part WHERE rpcs.number = part.number")

    def prepare(self, name: str, columns: Columns) -> None:
        """Keep rows until ``replace``; those of rpcs number the packets that come with them."""
        from .database import insert_rows

        insert_rows(self.connection, self._coming(name), name, columns)

    def replace(self, name: str) -> None:
        """Have the rows that were prepared in place of those that are there."""
        columns = "*"
        if self.keyed and name == "packets":
            self._coming("rpcs")
            columns = f"* REPLACE ({_RPC_OF_FRAME})"
        self.connection.execute("BEGIN")
        self.connection.execute(f"DELETE FROM {name}")
        self.connection.execute(f"INSERT INTO {name} SELECT {columns} FROM {self._coming(name)} AS part")
        self.connection.execute("COMMIT")
        self.connection.execute(f"DROP TABLE {self._coming(name)}")

    def forget_prepared(self) -> None:
        """What was prepared is of no use."""
        while self._prepared:
            self.connection.execute(f"DROP TABLE IF EXISTS temp.coming_{self._prepared.pop()}")

    def _coming(self, name: str) -> str:
        """Where rows of a table are prepared."""
        self._prepared.add(name)
        self.connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS coming_{name} AS FROM {name} LIMIT 0")
        return f"temp.coming_{name}"

    def keep_last(self, name: str, rows: int) -> None:
        """Remove the oldest rows, where there are a quarter more than so many."""
        if self.count(name) > rows + rows // 4:
            key = KEYS[name]
            oldest = f"SELECT {key} FROM {name} ORDER BY {key} DESC LIMIT 1 OFFSET {rows - 1}"
            self.connection.execute(f"DELETE FROM {name} WHERE {key} < ({oldest})")
            from duckdb import Error

            with suppress(Error):  # While something is asked, their room is used again later.
                self.connection.execute("CHECKPOINT")

    def oldest(self, name: str) -> int | None:
        """The number or frame of the first row; None where there are none."""
        ((lowest,),) = self.connection.execute(f"SELECT min({KEYS[name]}) FROM {name}").fetchall()
        return lowest if lowest is None else int(lowest)

    def count(self, name: str) -> int:
        """Rows that are there."""
        (row,) = self.connection.execute(f"SELECT count(*) FROM {name}").fetchall()
        return int(row[0])

    def order(self, name: str, narrowing: Narrowing, sort: str = "", descending: bool = False) -> Int64s:
        """Row IDs of a table in the order of a column, those that belong to the RPCs that are meant.

        Raises QueryError for a condition that cannot be judged.
        """
        keys = [f"{named(sort)} {'DESC' if descending else 'ASC'} NULLS LAST"] if sort else []
        keys.append(KEYS[name] + (" DESC" if descending and not sort else ""))
        return self._ids(f"{self._selected(name, narrowing)} ORDER BY {', '.join(keys)}, rowid")

    def _selected(self, name: str, narrowing: Narrowing) -> str:
        condition = narrowing.condition
        if not condition:
            return f"SELECT {self._key(name)} AS row_id FROM {name}"
        if name == "rpcs":
            return f"SELECT {self._key(name)} AS row_id FROM rpcs WHERE {condition}"
        from .filtered_tables import belonging  # Only here: it loads what finds the frames of RPCs.

        belongs = belonging(TABLES[name])
        if name == "files":
            belongs = "handle_hash IN (SELECT file_handle_hash FROM chosen)"
        chosen = f"SELECT number, connection, file_handle_hash FROM rpcs WHERE {condition}"
        return f"WITH chosen AS ({chosen}) SELECT {self._key(name)} AS row_id FROM {name} WHERE {belongs}"

    def _key(self, name: str) -> str:
        """The column that is the ID of rows."""
        return KEYS[name] if self.keyed and name != "findings" else "rowid"

    def _ids(self, query: str, *values: Any) -> Int64s:
        ids = self.connection.execute(query, values).fetchnumpy()["row_id"]
        return np.asarray(ids[~np.ma.getmaskarray(ids)], np.int64)

    def rows(self, name: str, ids: Int64s) -> list[dict[str, Any]]:
        """Some rows with all columns, in the order of ``ids``."""
        if not len(ids):
            return []
        listed = ",".join(map(str, ids.tolist()))
        columns = ", ".join(named(column.name) for column in TABLES[name].columns if column.type != "time")
        key = self._key(name)
        result = self.connection.execute(f"SELECT {key}, {columns} FROM {name} WHERE {key} IN ({listed})")
        names = [described[0] for described in result.description or ()][1:]
        by_id = {row[0]: dict(zip(names, row[1:], strict=True)) for row in result.fetchall()}
        return [by_id[id] for id in ids.tolist() if id in by_id]

    def row_of(self, name: str, column: str, value: int) -> int | None:
        """The row ID where a column has a value."""
        ids = self._ids(f"SELECT {self._key(name)} AS row_id FROM {name} WHERE {named(column)} = ? LIMIT 1", value)
        return int(ids[0]) if len(ids) else None

    def containing(self, name: str, text: str) -> Int64s:
        """Row IDs where any column has this text in it, upper case or lower; of an XID its hexadecimal digits, too."""
        columns = [
            named(column.name)
            for column in TABLES[name].columns
            if column.type != "time" and column.name not in LEFT_OUT
        ]
        if "xid" in (column.name for column in TABLES[name].columns):
            columns.append("printf('0x%08x', xid)")
        row = f"lower(concat_ws(' ', {', '.join(columns)}))"
        return self._ids(f"SELECT {self._key(name)} AS row_id FROM {name} WHERE contains({row}, ?)", text.lower())

    def wrong(self, name: str) -> Int64s:
        """Row IDs of what failed, or what the audit found something about."""
        return self._ids(f"SELECT {self._key(name)} AS row_id FROM {name} WHERE {_WRONG[name]}")

    def numbers(self, narrowing: Narrowing) -> frozenset[int]:
        """The numbers of the RPCs that pass."""
        where = narrowing.condition or "true"
        return frozenset(
            self.connection.execute(f"SELECT number FROM rpcs WHERE {where}").fetchnumpy()["number"].tolist()
        )

    def call_frames(self, where: str) -> list[int]:
        """The first frames of RPCs that meet a condition."""
        result = self.connection.execute(f"SELECT coalesce(call_frame, reply_frame) FROM rpcs WHERE {where}")
        return [int(frame) for (frame,) in result.fetchall() if frame is not None]

    def timeline(self, narrowing: Narrowing, limit: int) -> CallTimeline | None:
        """What latencies and rates were over all of the time, in at most so many intervals; None without RPCs.

        Of a narrowing only the condition counts: what is brushed is seen among the rest.
        """
        where = narrowing._replace(first=None, last=None).condition or "true"
        ((first, last),) = self.connection.execute("SELECT min(time_ns), max(time_ns) FROM rpcs").fetchall()
        if first is None:
            return None
        width = max(1, -(-(last - first + 1) // limit))
        rows = self.connection.execute(
            f"SELECT (time_ns - {first}) // {width} AS place, count(*), quantile_cont(latency_ns, [0.5, 0.99]),"
            f" count(*) FILTER (state <> 'complete') FROM rpcs WHERE {where} GROUP BY place"
        ).fetchall()
        intervals = [CallInterval(0, None, None, 0)] * ((last - first) // width + 1)
        for at, calls, quantiles, wrong in rows:
            median, p99 = quantiles or (None, None)
            intervals[at] = CallInterval(calls, median, p99, wrong)
        return CallTimeline(first, width, tuple(intervals))

    def distinct(self, column: str, beginning: str, limit: int) -> list[str]:
        """Values of a text column of rpcs with this beginning, the most frequent first."""
        name = named(column)
        query = (
            f"SELECT {name} FROM rpcs WHERE starts_with(lower({name}), ?) GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT ?"
        )
        return [value for (value,) in self.connection.execute(query, [beginning.lower(), limit]).fetchall()]

    def operations(self) -> list[str]:
        """Names of procedures and of operations of COMPOUNDs that are there."""
        query = "SELECT DISTINCT procedure, operations FROM rpcs"
        names: set[str] = set()
        for procedure, operations in self.connection.execute(query).fetchall():
            names.update((procedure or "").split(), operations or ())
        return sorted(names)


def checked(text: str, first_time: int, live: bool = False) -> str:
    """The SQL of a condition as ``--where`` takes it.  Raises CaptureError in its words.

    ``live``: the rows are those of running traffic.
    """
    from .condition import Condition

    condition = Condition([text])
    try:
        if live and condition.names & LEFT_OUT:
            names = ", ".join(sorted(condition.names & LEFT_OUT))
            raise CaptureError(f"{names}: not known of running traffic; path is, and file_handle")
        return condition.sql(first_time)
    finally:
        condition.close()


_WORD = re.compile(r"[\w./:*'-]*$")


def completions(tables: BrowsedTables, text: str, limit: int = 8) -> list[str]:
    """What the last word of a condition may become: the whole texts.

    Columns; behind a column and an operator its values, in quotes, once tables are ready.
    """
    quote = re.search(r"(\w+)\s*(?:=|<>|!=|LIKE|GLOB|IN\s*\()\s*'?([^']*)$", text, re.IGNORECASE)
    columns = {
        table_column.name: table_column
        for table_column in TABLES["rpcs"].columns
        if not tables.keyed or table_column.name not in LEFT_OUT
    }
    if (
        quote is not None
        and text.count("'") % 2 == ("'" in quote[0])
        and ((column := columns.get(quote[1].lower())) is not None and column.type in ("text", "texts"))
    ):
        if not tables.ready:
            return []
        if column.name in ("operations", "procedure"):
            values = [operation for operation in tables.operations() if operation.lower().startswith(quote[2].lower())][
                :limit
            ]
        else:
            values = tables.distinct(column.name, quote[2], limit)
        before = text[: quote.start(2)].removesuffix("'")
        return [f"{before}{quoted(value)}" for value in values]
    last_word = _WORD.search(text)
    word = last_word[0] if last_word else ""
    if not word or text.count("'") % 2:
        return []
    before = text[: len(text) - len(word)]
    listed = (*WORDS, *TABLES["rpcs"].headings.values(), *columns)  # First what is on the screen.
    names = [name for name in dict.fromkeys(listed) if name.startswith(word.lower())]
    alone = re.search(r"(^|\(|\b(AND|OR|NOT))\s*$", before, re.IGNORECASE)
    meant = _meant(tables, word, limit - len(names)) if alone else []
    return [before + name for name in names[:limit]] + [f"{before}{made}" for made in meant]


def _meant(tables: BrowsedTables, word: str, limit: int) -> Iterable[str]:
    """Conditions that a bare value stands for: an operation, a client, a path."""
    if limit <= 0 or not tables.ready:
        return []
    conditions = [
        f"procedure = '{operation}'" for operation in tables.operations() if operation.lower().startswith(word.lower())
    ]
    conditions += [f"client = {quoted(address)}" for address in tables.distinct("client", word, limit)]
    conditions += [f"path = {quoted(path)}" for path in tables.distinct("path", word, limit)]
    return conditions[:limit]


def follows(row: dict[str, Any]) -> Sequence[tuple[str, str]]:
    """What can be followed of an RPC: what it is called, and the condition."""
    followed = [(f"this XID, {row['xid']:#010x}", f"xid = {row['xid']}")]
    if row["path"] is not None:
        followed.append((f"this path, {row['path']}", f"path = {quoted(row['path'])}"))
    if row["file_handle"] is not None:
        followed.append(
            (f"this file handle, {row['file_handle_hash']:#010x}", f"file_handle = {quoted(row['file_handle'])}")
        )
    followed.append((f"this client, {row['client']}", f"client = {quoted(row['client'])}"))
    followed.append((f"connection {row['connection']}", f"connection = {row['connection']}"))
    return followed


def stored_rows(data_set: str, tables: Sequence[str]) -> Iterator[tuple[str, Columns]]:
    """Name and columns of the rows of some tables, with their numbers of the data set; of some captures at a time.

    Raises CaptureError for a data set that cannot be read.
    """
    from .saved_session import ROWS
    from .saved_tables import capture_groups, open_saved

    with open_saved(data_set) as database:
        for group in [*capture_groups(database.connection, ROWS)]:
            for name in tables:
                listed = ", ".join(map(named, (column.name for column in TABLES[name].columns)))
                rows = database.connection.execute(f"SELECT {listed} FROM {name} WHERE {group.where}")
                yield name, _columns(name, rows.fetchnumpy())


def _columns(name: str, arrays: dict[str, object]) -> Columns:
    """Columns like those of a ``TableBuilder``: unknown texts are '', and masked."""
    columns: Columns = {}
    for column in TABLES[name].columns:
        values = tuples(np.ma.asarray(arrays[column.name]))
        if column.type == "text":
            unknown = np.ma.getmaskarray(values)
            values = np.ma.MaskedArray(np.where(unknown, "", values.data).astype(object), unknown)
        columns[column.name] = values
    return columns
