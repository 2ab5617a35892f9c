"""The tables of a capture in an embedded DuckDB: filled as queries name them, and asked in SQL.

DuckDB is loaded here and nowhere else.  Parquet and Arrow files are written here, too, and say what their columns mean.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence, Sized
from contextlib import contextmanager, suppress
from itertools import chain, pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Self

import numpy as np
from numpy import ascontiguousarray, cumsum, int32, packbits
from numpy.ma import MaskedArray, getmaskarray
from numpy.typing import NDArray

from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.records.rpc_columns import (
    SQL_TYPES,
    Columns,
    TableColumn,
    Wanted,
    make_encodable,
    masked,
    named,
    quoted,
    tuples,
)
from rdmascope.dissect.records.tables import TABLES

from ..errors import CaptureError, Closing, need, one_line, words_of
from ..read.merge import processors
from ..write.stale_tempdirs import FolderOfProcess
from .typed_sql import typed

if TYPE_CHECKING:
    import pyarrow


ARROW_TYPES = {
    "int": "int64",
    "uint": "uint64",
    "float": "float64",
    "bool": "bool_",
    "time": "timestamp",
    "text": "string",
    "texts": "list_",
}
"""Type of a column -> the function of pyarrow that makes its type."""


def arrow_schema(columns: Sequence[TableColumn]) -> pyarrow.Schema:
    """The Arrow schema of a table; its fields say what the columns mean."""
    import pyarrow

    arguments: dict[str, tuple[object, ...]] = {"time": ("ns",), "texts": (pyarrow.string(),)}
    return pyarrow.schema(
        [
            pyarrow.field(
                column.name,
                getattr(pyarrow, ARROW_TYPES[column.type])(*arguments.get(column.type, ())),
                metadata={"description": column.meaning},
            )
            for column in columns
        ]
    )


def arrow_batch(schema: pyarrow.Schema, columns: Sequence[TableColumn], rows: Columns) -> pyarrow.RecordBatch:
    """Rows of a table."""
    import pyarrow

    arrays = [_array(type, rows[column.name]) for column, type in zip(columns, schema.types, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _array(type: pyarrow.DataType, column: MaskedArray) -> pyarrow.Array:
    """``pyarrow.array`` of a column, which loads all of pandas where that is installed."""
    from pyarrow import Array, py_buffer, types

    values, mask = column.data, getmaskarray(column)
    known = py_buffer(packbits(~mask, bitorder="little")) if mask.any() else None
    if types.is_string(type):
        return Array.from_buffers(type, len(values), [known, *_text_buffers(values.tolist())])
    if types.is_list(type):
        flat = [*chain.from_iterable(values)]
        texts = Array.from_buffers(type.value_type, len(flat), [None, *_text_buffers(flat)])
        return Array.from_buffers(type, len(values), [known, _offsets(values)], children=[texts])
    numbers = packbits(values, bitorder="little") if types.is_boolean(type) else ascontiguousarray(values)
    return Array.from_buffers(type, len(values), [known, py_buffer(numbers)])


def _text_buffers(texts: list[str]) -> tuple[pyarrow.Buffer, pyarrow.Buffer]:
    """Where each begins, and their bytes."""
    from pyarrow import py_buffer

    joined = "".join(texts)
    if joined.isascii():
        return _offsets(texts), py_buffer(joined.encode())
    encoded = [text.encode("utf-8", "backslashreplace") for text in texts]  # File names may be no UTF-8.
    return _offsets(encoded), py_buffer(b"".join(encoded))


def _offsets(values: Collection[Sized]) -> pyarrow.Buffer:
    from pyarrow import py_buffer

    return py_buffer(cumsum([0, *map(len, values)], dtype=int32))


class ArrowFile:
    """The rows of a Parquet or Arrow file.  A context manager."""

    def __init__(self, file: BinaryIO, format: str, schema: pyarrow.Schema) -> None:
        import pyarrow.parquet

        self.schema = schema
        self.rows = 0
        self.bytes = 0
        """Bytes of the whole file, once it is written."""
        self._file = file
        if format == "parquet":
            about = {field.name: field.metadata[b"description"] for field in schema if field.metadata}
            plain = pyarrow.schema([field.remove_metadata() for field in schema], about)  # Each meaning once.
            self._writer = pyarrow.parquet.ParquetWriter(file, plain, compression="zstd", **_encodings(schema))
        else:
            self._writer = pyarrow.ipc.new_file(file, schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._writer.close()
            self.bytes = self._file.tell()
        self._writer.is_open = False  # Where something failed, pyarrow would try again when it is collected.

    def add(self, batch: pyarrow.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self.rows += batch.num_rows


def _encodings(schema: pyarrow.Schema) -> dict[str, Any]:
    """Texts come again and again; numbers mostly are close to the one before, and hardly ever equal to it."""
    from pyarrow import types

    texts = [field.name for field in schema if types.is_string(field.type)]
    texts += [f"{field.name}.list.element" for field in schema if types.is_list(field.type)]
    numbers = [field.name for field in schema if types.is_integer(field.type) or types.is_timestamp(field.type)]
    return {"use_dictionary": texts, "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED")}


try:
    import duckdb as duckdb
except ModuleNotFoundError:

    class _NotInstalled:
        def __getattr__(self, name: str) -> NoReturn:
            need("duckdb")
            raise AttributeError(name)

    duckdb = _NotInstalled()  # type: ignore[assignment]


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
    return {table: {column.name for column in TABLES[table].columns if column.name in names} for table in tables}


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
    """Last parts of names with dots; a table's own name is a whole row."""
    relations: set[str] = set()
    for node in _nodes(parsed):
        if not _ALL.isdisjoint(kind for kind in (node.get("class"), node.get("type")) if isinstance(kind, str)):
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


MEMORY = 512 << 20
"""Bytes that DuckDB may use; what is more goes to the temporary folder."""
FILLING = 128 << 20
"""DuckDB's memory if all tables are only filled and kept; with one thread, since each has buffers of its own."""
ROW_GROUP = 10240
"""Rows that are held until they are written together: of a Parquet or Arrow file."""
FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".arrow": "arrow"}
"""Suffix of a file that a result is written to -> its format."""
FETCHED = 1000
"""Rows of a result that are held at a time."""
SEPARATOR = "\x1f"
"""Between the texts of a list: DuckDB splits one text sooner than it takes a list from Python."""
COPIED = "copied"
"""File in the temporary folder that DuckDB writes before it is copied to where it belongs."""

Fill = Callable[[Wanted], Iterator[tuple[str, Columns]]]
"""Gives the rows of tables, in batches."""


class QueryError(CaptureError):
    """A query that cannot be answered: one line, mostly with DuckDB's words.

    Attributes:
        unknown: the column that it names and that is not there; '' where something else is wrong.
    """

    unknown = ""


class QueryResult(NamedTuple):
    """What a statement gives."""

    names: tuple[str, ...]
    """Names of the columns, each once."""
    types: tuple[str, ...]
    """DuckDB's names of the types of the columns."""
    length: int
    """Rows."""
    rows: Iterator[tuple[Any, ...]]
    """Ends when the next statement runs.  Times are text, for Python's have no nanoseconds."""
    columns: Callable[[], Columns]
    """All of it as masked NumPy arrays, in place of ``rows``."""


class Database(Closing):
    """Tables in a temporary folder, which ``close`` removes; or saved ones, where ``saved`` is their file or folder.

    A query can neither read nor write files, nor load extensions, unless ``files`` is set.  Raises CaptureError for
    what holds no tables of this program.
    """

    def __init__(
        self,
        fill: Fill | None = None,
        *,
        saved: str | None = None,
        files: bool = False,
        memory: int = MEMORY,
        parent: str | None = None,
        described: bool = True,
        make_views: Callable[[duckdb.DuckDBPyConnection, str], list[str]] | None = None,
    ) -> None:
        """``parent``: the folder that the temporary one is made in.  ``described``: queries may ask what tables and
        columns mean, which takes a statement for each.  ``make_views``: of the files in the folder
        ``saved``, by default a table of each; gives the paths that the views read."""
        self._files = files
        self._fill = fill
        self.remarks: tuple[str, ...] = ()
        """About names in the last query that go."""
        self.also: Callable[[Wanted], Wanted] = lambda wanted: wanted
        """What is read beside that which a query names."""
        self._filled: dict[str, set[str]] = {}
        """Names of tables, and the columns of each that are there."""
        self._owned = FolderOfProcess(parent)
        self.folder = Path(self._owned.path)
        in_file = saved is not None and make_views is None and not os.path.isdir(saved)
        try:
            self.connection = duckdb.connect(
                ":memory:" if in_file else str(self.folder / "tables.duckdb"),
                config={
                    "memory_limit": f"{memory >> 20}MiB",
                    "temp_directory": str(self.folder / "spilled"),
                    "threads": str(processors() if memory > FILLING else 1),
                    "python_enable_replacements": "false",
                },
            )
            allowed = [str(self.folder / COPIED)]
            if saved is None:
                self._make_tables(described)
            elif in_file:  # Attached, for a process may open it several times.
                self.connection.execute(f"ATTACH {quoted(os.path.abspath(saved))} AS saved (READ_ONLY)")
                self.connection.execute("USE saved")
            else:
                allowed += (make_views or _make_views)(self.connection, saved)
            if not files:
                self.connection.execute(f"SET allowed_paths = [{', '.join(map(quoted, allowed))}]")
                self.connection.execute("SET enable_external_access = false")
        except duckdb.Error as error:
            self._owned.remove()
            raise CaptureError(("" if saved is None else f"{saved}: ") + _words(error)) from None
        except BaseException:
            self._owned.remove()
            raise

    @property
    def schema(self) -> str:
        """Where its tables are, whatever views have their names."""
        ((own,),) = self.connection.execute("SELECT current_database()").fetchall()
        return f"{named(own)}.main"

    def close(self) -> None:
        """Close the database and remove its folder."""
        self.connection.close()
        self._owned.remove()

    def _make_tables(self, described: bool) -> None:
        self.connection.execute("PRAGMA disable_checkpoint_on_shutdown; BEGIN TRANSACTION")
        for table in TABLES.values():
            listed = ", ".join(f'"{column.name}" {SQL_TYPES[column.type]}' for column in table.columns)
            self.connection.execute(f"CREATE TABLE {table.name} ({listed})")
            if not described:
                continue
            self.connection.execute(f"COMMENT ON TABLE {table.name} IS {quoted(f'A row is {table.meaning}.')}")
            for column in table.columns:
                full_name = f'{table.name}."{column.name}"'
                self.connection.execute(f"COMMENT ON COLUMN {full_name} IS {quoted(column.meaning)}")
        self.connection.commit()

    def fill(self, wanted: Wanted) -> None:
        """Fill tables, those columns of them that are empty yet, in one pass over the capture."""
        lacking: dict[str, set[str]] = {}
        for name, table in TABLES.items():
            there = self._filled.get(name)
            columns = wanted.get(name, ())
            names = {column.name for column in table.columns if columns is None or column.name in columns}
            names.add(table.columns[0].name)  # Which is always there.
            names.update(table.order)
            if name in wanted and (there is None or not names <= there):
                lacking[name] = names | (there or set())
        if not lacking or self._fill is None:
            return
        for name in self._filled.keys() & lacking.keys():
            self._empty(name)
        try:
            for name, columns in self._fill(lacking):
                self.insert(name, columns)
            for name in lacking:
                if TABLES[name].order:
                    self.sort(name)
        except BaseException:  # Half a table would answer wrongly.
            with suppress(duckdb.Error):  # Where the disk is full, nothing more can be done with it.
                self.connection.abort()
                for name in lacking:
                    self._empty(name)
            raise
        self._filled.update(lacking)

    def sort(self, name: str) -> None:
        """Put the rows of a table in its order."""
        self.connection.execute(
            f"CREATE TEMP TABLE in_order AS FROM tables.main.{name} ORDER BY {', '.join(TABLES[name].order)}, rowid"
        )
        self.connection.execute(f"DELETE FROM tables.main.{name}")
        self.connection.execute(f"INSERT INTO tables.main.{name} FROM temp.in_order; DROP TABLE temp.in_order")

    def _empty(self, name: str) -> None:
        self._filled.pop(name, None)
        self.connection.execute(f"DELETE FROM tables.main.{name}")

    def insert(self, name: str, columns: Columns) -> None:
        """Add rows to a table."""
        insert_rows(self.connection, f"tables.main.{name}", name, columns)

    def results(self, query: str) -> Iterator[QueryResult]:
        """What each statement of ``query`` gives, those that give rows.

        The first statement is tried on empty tables before anything is read.  Raises QueryError.
        """
        query, self.remarks = typed(query, condition=False)
        statements = statements_of(query)
        if not self._files:
            for statement in statements:
                _refuse_files(statement.text)
        if statements[0].selects:
            self._run(statements[0].text)
            self.connection.abort()
        self.fill(self._wanted(statements))
        for statement in statements:
            result = self._kept(statement) if statement.selects else self._fetched(statement)
            if result is not None:
                yield result
            self._run("DROP TABLE IF EXISTS temp.result_of_query")

    def _wanted(self, statements: Sequence[SqlStatement]) -> Wanted:
        """What the statements together read."""
        wanted: dict[str, set[str] | None] = {}
        for statement in statements:
            for table, columns in named_columns(self.connection, statement.text, statement.selects).items():
                before = wanted.get(table, set())
                wanted[table] = None if columns is None or before is None else before | set(columns)
        return self.also(wanted)

    def _kept(self, statement: SqlStatement) -> QueryResult:
        """The rows as a table of its own: it has every name once, can be counted, and be read twice."""
        self._run(f"CREATE OR REPLACE TEMP TABLE result_of_query AS\n{statement.text}", 1)
        described = self.connection.execute("DESCRIBE temp.result_of_query").fetchall()
        names, types = tuple(column[0] for column in described), tuple(column[1] for column in described)
        (count,) = self.connection.execute("SELECT count(*) FROM temp.result_of_query").fetchone() or (0,)
        listed = ", ".join(
            f"CAST({named(name)} AS VARCHAR)" if type.startswith("TIMESTAMP") else named(name)
            for name, type in zip(names, types, strict=True)
        )
        self._run(f"SELECT {listed} FROM temp.result_of_query")
        return QueryResult(names, types, count, self._rows(), self._columns)

    def _columns(self) -> Columns:
        self._run(f"SELECT {self._listed('DOUBLE')} FROM temp.result_of_query")
        return {name: tuples(np.ma.asarray(values)) for name, values in self.connection.fetchnumpy().items()}

    def _fetched(self, statement: SqlStatement) -> QueryResult | None:
        self._run(statement.text)
        described = self.connection.description or []
        if not statement.gives_rows or not described:
            return None
        rows = self.connection.fetchall()
        names, types = tuple(column[0] for column in described), tuple(str(column[1]) for column in described)
        return QueryResult(names, types, len(rows), iter(rows), lambda: _as_columns(names, rows))

    def check(self, table: str, condition: str) -> None:
        """Raise QueryError unless ``condition`` is one over the columns of a table."""
        self._run(f"SELECT 1 FROM {table} WHERE (\n{condition}\n) LIMIT 0", 1)

    def judged(self, table: str, columns: Columns, condition: str) -> NDArray[np.bool_]:
        """For which rows of a batch of a table the condition is true.  Raises QueryError."""
        with registered(self.connection, table, columns) as batch:
            self._run(f"SELECT coalesce(({condition}), false) AS passes FROM {batch} AS {table}")
            return np.asarray(self.connection.fetchnumpy()["passes"], np.bool_)

    def write_result(self, file: BinaryIO, format: str) -> None:
        """Write the rows of the result that ``results`` gave last, in one of ``FORMATS``."""
        self.connection.abort()
        listed = "COLUMNS(*)" if format in ("csv", "json") else self._listed("DECIMAL(38, 0)")
        if format == "arrow":
            write_query(self.connection, f"SELECT {listed} FROM temp.result_of_query", file, format)
            return
        self.copy(f"(SELECT {listed} FROM temp.result_of_query)", file, f"FORMAT {format}")

    def _listed(self, wide: str) -> str:
        """The columns of the result; integers of 128 bits, which sums are, as 64 bits where they fit, else ``wide``."""
        listed = []
        for name, type, *_ in self.connection.execute("DESCRIBE temp.result_of_query").fetchall():
            column = named(name)
            if type.endswith("HUGEINT"):
                fits = f"SELECT count(*) = 0 FROM temp.result_of_query WHERE TRY_CAST({column} AS BIGINT) IS NULL"
                ((narrow,),) = self.connection.execute(f"{fits} AND {column} IS NOT NULL").fetchall()
                column = f"CAST({column} AS {'BIGINT' if narrow else wide}) AS {column}"
            listed.append(column)
        return ", ".join(listed)

    def copy(self, what: str, file: BinaryIO, options: str) -> int:
        """Write a table or a query in brackets, as COPY does with these options; gives the number of rows."""
        self.connection.abort()
        path = self.folder / COPIED
        statement = f"COPY {what} TO {quoted(str(path))} ({options})"
        try:
            ((rows,),) = self.connection.execute(statement).fetchall()
        except duckdb.Error as error:
            raise QueryError(_words(error)) from None
        with path.open("rb") as copied:
            shutil.copyfileobj(copied, file)
        path.unlink()
        return int(rows)

    def copy_all(self, file: BinaryIO) -> None:
        """Write the whole database."""
        self.connection.abort()
        self.connection.execute("CHECKPOINT")
        with (self.folder / "tables.duckdb").open("rb") as whole:
            shutil.copyfileobj(whole, file)

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        while rows := self.connection.fetchmany(FETCHED):
            yield from rows

    def _run(self, text: str, lines_before: int = 0) -> None:
        """Run a statement; of its lines the first ``lines_before`` are not the user's."""
        self.connection.abort()
        try:
            self.connection.execute(text)
        except duckdb.Error as error:
            raise _in_words(error, text, lines_before) from None


ON_TABLES = frozenset(
    """
    select from with values table pivot pivot_wider unpivot pivot_longer ( describe desc show summarize
    create drop insert update delete merge truncate alter comment set reset use pragma analyze vacuum
    begin start commit end rollback abort
    """.split()  # noqa: SIM905
)
"""First words of statements that touch tables only; others (COPY, ATTACH, EXPORT, LOAD, CALL …) may touch files.
DuckDB itself refuses the files that functions and settings name."""


def _refuse_files(statement: str) -> None:
    """Raise QueryError for a statement that may write or read files, also where it is explained."""
    encoded = statement.encode()
    tokens = [*duckdb.tokenize(statement), (len(encoded), duckdb.token_type.comment)]
    words = [
        encoded[at:end].strip().decode().lower()
        for (at, kind), (end, _) in pairwise(tokens)
        if kind != duckdb.token_type.comment
    ]
    while words[:1] == ["explain"] or words[:1] == ["analyze"]:
        words = words[1:]
        if words[:1] == ["("] and ")" in words:  # Options of EXPLAIN; a query in brackets is allowed, too.
            words = words[words.index(")") + 1 :] or words
    if words and words[0] not in ON_TABLES:
        raise QueryError(f"the query: {words[0].upper()} may write or read files: --allow-files permits that")


_ABOUT = re.compile(r"\s*(?:show|desc|describe|summarize|call|pragma)\b", re.IGNORECASE)
"""Statements that give rows, but are no queries."""


class SqlStatement(NamedTuple):
    """One of a query."""

    text: str
    selects: bool
    """It is a query, of which a table can be made."""
    gives_rows: bool


def statements_of(query: str) -> Sequence[SqlStatement]:
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise _in_words(error, query) from None
    if not statements:
        raise QueryError("the query is empty")
    return [_statement(statement.query if len(statements) > 1 else query, statement.type) for statement in statements]


def _statement(text: str, type: duckdb.StatementType) -> SqlStatement:
    reads = type in (duckdb.StatementType.SELECT, duckdb.StatementType.MULTI)
    return SqlStatement(text, reads and not _ABOUT.match(text), reads or type == duckdb.StatementType.EXPLAIN)


def _as_columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Columns:
    columns: Columns = {}
    for at, name in enumerate(names):
        values = np.empty(len(rows), object)
        values[:] = [row[at] for row in rows]
        columns[name] = np.ma.MaskedArray(values, mask=[row[at] is None for row in rows])
    return columns


@contextmanager
def registered(connection: duckdb.DuckDBPyConnection, table: str, columns: Columns) -> Iterator[str]:
    """Rows of a table of ``TABLES``, as a table that queries can name so."""
    lists: Columns = {}
    for column in TABLES[table].columns:
        if column.type == "text" and column.name in columns:
            make_encodable(columns[column.name].data)
        elif column.type == "texts" and column.name in columns:
            values = columns[column.name]
            texts = ["" if listed is None else SEPARATOR.join(listed) for listed in values.data]
            lists[column.name] = masked(np.array(texts, object), values.mask)
    connection.register("batch_of_rows", {**columns, **lists})
    split = ", ".join(f"string_split({named(name)}, {quoted(SEPARATOR)}) AS {named(name)}" for name in lists)
    try:
        yield f"(SELECT * REPLACE ({split}) FROM batch_of_rows)" if lists else "batch_of_rows"
    finally:
        connection.unregister("batch_of_rows")


def insert_rows(connection: duckdb.DuckDBPyConnection, target: str, table: str, columns: Columns) -> None:
    """Add rows of a table of ``TABLES`` to ``target``, which has its columns."""
    listed = ", ".join(map(named, columns))
    with registered(connection, table, columns) as batch:
        connection.execute(f"INSERT INTO {target} ({listed}) SELECT {listed} FROM {batch}")


def write_query(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    file: BinaryIO,
    format: str,
    name: str = "",
    group: int = ROW_GROUP,
) -> int:
    """Write what a query gives, ``group`` rows at a time; gives their number.

    ``name``: of the table that they are rows of.  Raises CaptureError, also where pyarrow is not installed.
    """
    need("pyarrow")
    try:
        return _write_query(connection, query, file, format, name, group)
    except (duckdb.Error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        words = _words(error)  # Behind the first rows pyarrow gives DuckDB's errors as its own.
        if "Out of Memory" not in words:
            raise QueryError(words) from None
    file.seek(0)  # Rows with very long texts, which are read together.
    file.truncate()
    connection.abort()
    connection.execute(f"SET memory_limit = '{MEMORY >> 20}MiB'")
    return _write_query(connection, query, file, format, name, group)


def _write_query(
    connection: duckdb.DuckDBPyConnection, query: str, file: BinaryIO, format: str, name: str, group: int
) -> int:
    import pyarrow

    connection.abort()
    reader = connection.sql(query).to_arrow_reader(group)
    meanings = {column.name: column.meaning for column in TABLES[name].columns} if name in TABLES else {}
    schema = pyarrow.schema(
        [
            field.with_metadata({"description": meanings[field.name]}) if field.name in meanings else field
            for field in reader.schema
        ]
    )
    with ArrowFile(file, format, schema) as made:
        for batch in reader:
            made.add(pyarrow.RecordBatch.from_arrays(batch.columns, schema=schema))
    return made.rows


def _make_views(connection: duckdb.DuckDBPyConnection, folder: str) -> list[str]:
    """Make a view of each Parquet file in a folder; gives their paths."""
    paths = [os.path.abspath(path) for path in sorted(Path(folder).glob("*.parquet"))]
    for path in paths:
        connection.execute(f"CREATE VIEW {named(Path(path).stem)} AS FROM read_parquet({quoted(path)})")
    return paths


def _words(error: Exception) -> str:
    return words_of(error) or one_line(error)


_UNKNOWN = re.compile(
    r'(?:Referenced column "(.*?)" not found|Table ".*?" does not have a column named "(.*?)")'
    r".*\nCandidate bindings: (.*)", re.DOTALL
)  # fmt: skip
_PLACE = re.compile(r"\n+LINE (\d+): ?(.*)\n( *)\^", re.DOTALL)


def _in_words(error: duckdb.Error, text: str, lines_before: int = 0) -> QueryError:
    """DuckDB's error in one line, with the place in the query.

    ``lines_before``: lines of ``text`` that are not of the query.
    """
    message = str(error)
    pointer = _PLACE.search(message)
    words = message if pointer is None else message[: pointer.start()]
    words = re.sub(r"^(?:Parser|Binder|Catalog|Syntax) Error: ", "", words.split("\n\nStack Trace")[0])
    words = re.sub(r'!?\n+Did you mean "(.*?)"\?', r"; did you mean \1?", words)
    words = re.sub(
        r"!?\n+Candidate bindings: (.*)", lambda bindings: "; did you mean " + bindings[1].replace('"', "") + "?", words
    )
    words = "; ".join(" ".join(line.split()) for line in words.splitlines() if line.strip())
    unknown = _UNKNOWN.search(message)
    if unknown is not None:
        words = _no_column(unknown[1] or unknown[2], set(re.findall(r'"(\w+)"', unknown[3])), text) or words
    if pointer is not None:
        line = int(pointer[1]) - lines_before
        column = len(pointer[3]) - len(f"LINE {pointer[1]}: ") + 1
        shown = pointer[2]
        if shown.startswith("..."):  # A long line is shown from its middle.
            whole = text.splitlines()[int(pointer[1]) - 1]
            column += whole.find(shown.strip(".")) - 3
        words += f" (line {line}, column {column})" if text.count("\n") > lines_before else f" (column {column})"
    reworded = QueryError(f"the query: {words}")
    reworded.unknown = "" if unknown is None else unknown[1] or unknown[2]
    return reworded


def _no_column(name: str, others: set[str], text: str) -> str:
    """Say that a table of a query has no column of this name, only ``others``; '' if none of ``TABLES`` has those."""
    words = re.findall(r"\w+", text.lower())
    tables = [TABLES[word] for word in dict.fromkeys(words) if word in TABLES]
    said = [table.no_column(name, False) for table in tables if others & {column.name for column in table.columns}]
    return min(said, key=lambda sentence: not sentence.endswith("?"), default="")
