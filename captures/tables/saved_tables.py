"""Tables that are kept: a DuckDB database, or a folder of Parquet files, with what they were made from."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rdmascope.dissect.measure.filters import CaptureExtent
from rdmascope.dissect.measure.time_options import Moment
from rdmascope.dissect.records.rpc_columns import SQL_TYPES, named, quoted
from rdmascope.dissect.records.tables import FILTER, RECOGNITION, TABLES, VERSION

from ..errors import CaptureError
from ..read.remote import is_url, refuse_url, size_of
from ..write.output import OutputFolder, input_files, open_output, refuse_inputs
from .call_sums import SUMS
from .data_set import CAPTURES, STATEMENT_COLUMNS, STATEMENTS, DataSet, columns_of, make_captures, view_of
from .database import ROW_GROUP, Database, duckdb
from .saved import is_data_set

SOURCES = "unnest(paths) AS path, unnest(sizes) AS size_bytes, make_timestamp(unnest(modified_ns) // 1000) AS modified"
LISTED = (
    "capture, host, array_to_string(paths, chr(10)) AS paths, nullif(problem, '') AS problem,"
    " nullif(damage, '') AS damage, frames, rpcs, connections, nullif(first_time_ns, 0) AS first_time_ns,"
    " nullif(last_time_ns, 0) AS last_time_ns"
)


Span = tuple[Moment | None, Moment | None]
"""From which moment on, and before which; None: there is no such."""


def make_views(connection: duckdb.DuckDBPyConnection, path: str, span: Span = (None, None)) -> list[str]:
    """The tables of a data set as views, with host, capture and day of each row; and what it was made from.

    ``span``: only files that may have RPCs which began in it.  Gives the files that they read.
    """
    data_set = DataSet(path)
    snapshot = data_set.snapshot()
    if any(span):
        begin = min((file.first_time_ns for file in snapshot.files.values()), default=0)
        since, until = (moment and moment.absolute(begin) for moment in span)
        some = snapshot.between(since, until)
        snapshot = some if some.of(CAPTURES) else snapshot  # Or it would be said that there is none.
    place = data_set.opened_by(connection, snapshot)
    if not snapshot.of(CAPTURES):
        raise CaptureError(f"{path}: no capture in this data set could be read")
    for name, table in TABLES.items():
        if files := snapshot.of(name):
            connection.execute(f"CREATE VIEW {name} AS SELECT * {view_of(name, files, snapshot, place)}")
            continue
        types = {column.name: SQL_TYPES[column.type] for column in table.columns}
        types |= {"host": "VARCHAR", "capture": "VARCHAR", "day": "DATE"}
        listed = ", ".join(f"CAST(NULL AS {type}) AS {named(column)}" for column, type in types.items())
        connection.execute(f"CREATE VIEW {name} AS SELECT {listed} WHERE false")
    if files := snapshot.of(STATEMENTS):
        connection.execute(f"CREATE VIEW {STATEMENTS} AS SELECT * {view_of(STATEMENTS, files, snapshot, place)}")
    else:
        connection.execute(f"CREATE TABLE {STATEMENTS} ({STATEMENT_COLUMNS}, day DATE)")
    for name, query in SUMS.items():
        files = [data_file for data_file in snapshot.of(name) if data_file.columns == columns_of(name)]
        rows = view_of(name, files, snapshot, place) if files else f"FROM ({query}) WHERE false"
        connection.execute(f"CREATE VIEW {name} AS SELECT * {rows}")
    make_captures(connection, [*snapshot.problems.values()], "problems")
    rows = view_of(CAPTURES, snapshot.of(CAPTURES), snapshot, place)
    connection.execute(
        f"CREATE VIEW entries AS SELECT * {rows};"
        f"CREATE VIEW captures AS SELECT {LISTED}, day FROM entries UNION ALL SELECT {LISTED}, NULL FROM problems;"
        f"CREATE VIEW sources AS SELECT {SOURCES} FROM entries;"
        f"CREATE TABLE metadata AS SELECT max(program_version) AS program_version, {VERSION} AS schema_version,"
        " string_agg(host || ' ' || capture || ': ' || damage, '; ') FILTER (damage <> '') AS damage,"
        " CAST(sum(frames) AS BIGINT) AS frames, min(first_time_ns) AS first_time_ns,"
        " max(last_time_ns) AS last_time_ns FROM entries"
    )
    return [f"{place}/{file}" for file in snapshot.files]


class CaptureGroup(NamedTuple):
    """Captures of a data set that are read together."""

    where: str
    """Which rows of any of its tables are theirs: a condition."""
    rpcs: int
    captures: int


def capture_groups(
    connection: duckdb.DuckDBPyConnection, rpcs: int, having: str = "frames > 0"
) -> Iterator[CaptureGroup]:
    """Captures that pass a condition, by day and host as files have them: so many RPCs at a time, or one capture."""
    query = f"SELECT capture, day, host, rpcs FROM entries WHERE {having} ORDER BY day, host, frames_before"
    some: list[tuple[str, date, str, int]] = []
    for row in [*connection.execute(query).fetchall(), None]:
        if some and (row is None or sum(one[3] for one in some) + row[3] > rpcs):
            names = ", ".join(quoted(one[0]) for one in some)
            days, hosts = ([quoted(str(one)) for one in column] for column in [*zip(*some, strict=True)][1:3])
            yield CaptureGroup(
                f"(day BETWEEN {days[0]} AND {days[-1]} AND host BETWEEN {min(hosts)} AND {max(hosts)}"
                f" AND capture IN ({names}))",
                sum(one[3] for one in some), len(some),
            )  # fmt: skip
            some = []
        if row is not None:
            some.append(row)


DATABASE = (".duckdb", ".db")
"""Suffixes of databases; another name is that of a folder of Parquet files."""
MAX_NAMED = 3
"""Captures, in a sentence."""


class Origin(NamedTuple):
    """What saved tables were made from."""

    program_version: str
    schema_version: int
    damage: str
    """Why the capture was not read to its end; '' where it was."""
    sources: tuple[str, ...]
    """Paths of the captures."""
    frames: int
    first_time: int
    """Nanoseconds since the Unix epoch, of the first frame."""
    last_time: int


def open_saved(path: str, *, files: bool = False, span: Span = (None, None)) -> Database:
    """The tables in ``path``.  Raises CaptureError where they are none of this program, or of a later version."""
    database = Database(
        saved=path, files=files, make_views=partial(make_views, span=span) if is_data_set(path) else None
    )
    try:
        _check_tables(database, path)
        return database
    except duckdb.Error:
        database.close()
        raise CaptureError(f"{path}: tables that rdmascope did not save") from None
    except BaseException:
        database.close()
        raise


def _check_tables(database: Database, path: str) -> None:
    """Raise CaptureError for tables that are not as this program, or an earlier version of it, saves them.

    Columns that the program that saved the tables did not know become NULL: not known.
    """
    connection = database.connection
    views = connection.execute("SELECT view_name FROM duckdb_views() WHERE database_name = 'saved'").fetchall()
    for (name,) in views:
        if name in (*TABLES, "metadata", "sources"):
            raise CaptureError(f"{path}: {name} is a view, not a table that rdmascope saved")
    found = origin(database).schema_version
    if found != VERSION:
        more = "" if found > VERSION else ": save them again"
        raise CaptureError(f"{path}: tables of version {found}; this program reads version {VERSION}{more}")
    columns = "FROM information_schema.columns WHERE table_catalog = current_catalog()"
    query = f"SELECT table_catalog, table_name, list(column_name), list(data_type) {columns} GROUP BY ALL"
    for catalog, name, present, types in connection.execute(query).fetchall():
        if name not in TABLES:
            continue
        type_of = dict(zip(present, types, strict=True))
        table = TABLES[name]
        missing = [column for column in table.columns if column.name not in type_of]
        needed = {table.columns[0].name, *table.order} & {column.name for column in missing}
        if needed:
            raise CaptureError(f"{path}: the table {name} lacks the column {min(needed)}")
        for column in table.columns:
            if column.name in type_of and type_of[column.name] != SQL_TYPES[column.type]:
                words = f"{column.name} is {type_of[column.name]}, not {SQL_TYPES[column.type]}"
                raise CaptureError(f"{path}: in the table {name}, {words}")
        if missing:
            added = ", ".join(
                f"CAST(NULL AS {SQL_TYPES[table_column.type]}) AS {named(table_column.name)}"
                for table_column in missing
            )
            connection.execute(f"CREATE TEMP VIEW {name} AS SELECT *, {added} FROM {named(catalog)}.main.{name}")


def origin(database: Database) -> Origin:
    """What saved tables were made from."""
    connection = database.connection
    query = "SELECT program_version, schema_version, damage, frames, first_time_ns, last_time_ns FROM metadata"
    row = connection.execute(query).fetchall()[0]
    sources = connection.execute("SELECT path FROM sources").fetchall()
    return Origin(row[0], row[1], row[2] or "", tuple(path for (path,) in sources), *row[3:])


def packets_elsewhere(path: str) -> str:
    """Why a command that reads packets cannot read ``path``, and where they are."""
    with open_saved(path) as database:
        return not_in_tables(path, "packets", origin(database).sources)


def not_in_tables(path: str, what: str, sources: Sequence[str]) -> str:
    """That the tables in ``path`` lack something, and which captures have it."""
    return f"{path}: holds tables, in which {what} are not; they are in {listed(sources)}"


def listed(paths: Sequence[str]) -> str:
    """Names in a sentence; of many, the first and how many more there are."""
    return " and ".join(paths) if len(paths) <= MAX_NAMED else f"{paths[0]} and {len(paths) - 1:,} more"


def captures_behind(path: str, what: str) -> tuple[str, ...]:
    """The captures that saved tables were made of, for ``what`` the tables do not hold.

    They are where they were, or beside the tables.  Raises CaptureError where they are not, or are others, or where
    RPCs would have other numbers there: the tables hold only some, or those that options recognised.
    """
    with open_saved(path) as database:
        rows = database.connection.execute("SELECT path, size_bytes FROM sources").fetchall()
        query = "SELECT kind, content FROM details WHERE kind IN (?, ?)"
        found_otherwise = dict(database.connection.execute(query, [FILTER, RECOGNITION]).fetchall())
    lacking = f"{path}: holds tables, in which {what} are not"
    found = []
    for source, size in rows:
        beside = os.path.join(os.path.dirname(os.path.abspath(path)), source)
        there = source if is_url(source) else next(filter(os.path.isfile, (source, beside)), None)
        if there is None:
            raise CaptureError(f"{lacking}; they are in {source}, which is not there")
        if size_of(there) != size:
            raise CaptureError(f"{lacking}; they were in {there}, which has changed since")
        found.append(there)
    sources = listed(found)
    if FILTER in found_otherwise:
        raise CaptureError(f"{lacking}, and was saved with a filter: give both filters to {sources}")
    if RECOGNITION in found_otherwise:
        words = json.loads(found_otherwise[RECOGNITION])
        raise CaptureError(f"{lacking}, and was saved with {words}: give that to {sources}")
    return tuple(found)


def save(database: Database, path: str, captures: Sequence[str], extent: CaptureExtent, damage: str) -> None:
    """Keep all tables of ``captures`` in ``path``: in a database, or in a folder of Parquet files."""
    check_target(path, captures)
    database.fill(dict.fromkeys(TABLES))
    note_origin(database, captures, extent, damage)
    if path.endswith(DATABASE):
        with open_output(path, captures) as file:
            database.copy_all(file)
        return
    with OutputFolder(Path(path)) as folder:
        for name in (*TABLES, "sources", "metadata"):
            with io.BufferedWriter(folder.create(f"{name}.parquet")) as file:
                write_parquet(database, name, name, file)


def check_target(path: str, captures: Sequence[str]) -> None:
    """Raise CaptureError where nothing should be saved: before a capture is read."""
    if path.endswith(DATABASE):
        refuse_url(path)
        refuse_inputs(path, captures)
        return
    check_folder(path, captures, f"; a database ends in {DATABASE[0]}")


def check_folder(path: str, captures: Sequence[str], hint: str = "") -> None:
    """Raise CaptureError where ``path`` cannot become a folder of tables: it must be new, or empty."""
    refuse_url(path)
    refuse_inputs(path, captures)
    if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise CaptureError(f"{path}: is there, and is no empty folder{hint}")
    if not Path(path).absolute().parent.is_dir():
        raise CaptureError(f"{Path(path).parent}: no such directory")


def write_parquet(database: Database, name: str, rows: str, file: BinaryIO) -> int:
    """Write rows of a table, itself or a query in brackets, with what its columns mean; gives their number."""
    options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP}, KV_METADATA {{{_meanings(name)}}}"
    return database.copy(rows, file, options)


def _meanings(name: str) -> str:
    """What the columns mean, for the Parquet file's own metadata."""
    columns = TABLES[name].columns if name in TABLES else ()
    return ", ".join(f"{named(column.name)}: {quoted(column.meaning)}" for column in columns) or "tables: 'rdmascope'"


def note_origin(database: Database, captures: Sequence[str], extent: CaptureExtent, damage: str) -> None:
    """Make the tables that say what the others were made from."""
    connection = database.connection
    connection.abort()
    columns = "program_version VARCHAR, schema_version INTEGER, damage VARCHAR"
    columns += ", frames BIGINT, first_time_ns BIGINT, last_time_ns BIGINT"
    connection.execute(f"CREATE OR REPLACE TABLE metadata ({columns})")
    values = version("rdmascope"), VERSION, damage or None, extent.frames, extent.first_time, extent.last_time
    connection.execute("INSERT INTO metadata VALUES (?, ?, ?, ?, ?, ?)", values)
    connection.execute("CREATE OR REPLACE TABLE sources (path VARCHAR, size_bytes BIGINT, modified TIMESTAMP)")
    files = [path for path in dict.fromkeys(input_files(captures)) if is_url(path) or os.path.isfile(path)]
    for path in files or captures:
        there = os.stat(path) if os.path.isfile(path) else None
        modified = None if there is None else datetime.fromtimestamp(there.st_mtime, UTC).replace(tzinfo=None)
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        connection.execute("INSERT INTO sources VALUES (?, ?, ?)", [shown, size_of(path), modified])
