"""Tables that are kept: a DuckDB database, or a folder of Parquet files, with what they were made from."""

from __future__ import annotations

import io
import json
import os
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

from rdmascope.dissect.measure.filters import CaptureExtent
from rdmascope.dissect.records.table import SQL_TYPES, named, quoted
from rdmascope.dissect.records.tables import FILTER, RECOGNITION, TABLES, VERSION

from ..errors import CaptureError
from ..read.remote import is_url, refuse_url, size_of, stamp
from ..write.output import PRIVATE, OutputFolder, input_files, open_output, refuse_inputs, write_output
from .database import ROW_GROUP, Database, duckdb
from .saved import MANIFEST, is_data_set

Row = tuple[str | int | None, ...]
COUNTED = ("rpcs", "connections", "files", "frames", "ended")
"""What is numbered."""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A capture of a data set."""

    capture: str
    """Begin of the SHA-256 of its contents, or of what a store says of them, and of the options; hexadecimal."""
    host: str
    paths: tuple[str, ...]
    """Its files: several where they are rotated."""
    sizes: tuple[int | None, ...]
    modified_ns: tuple[int | None, ...]
    """None where a store does not say."""
    options: str
    program_version: str
    schema_version: int
    problem: str = ""
    """Why it could not be read at all; '' where it has tables."""
    damage: str = ""
    """Why it was not read to its end; '' where it was."""
    first_time_ns: int = 0
    last_time_ns: int = 0
    rpcs: int = 0
    """This and the next four: the highest number of each."""
    connections: int = 0
    files: int = 0
    frames: int = 0
    ended: int = 0
    tags: tuple[str, ...] = ()
    """What stores say of the contents of its files, '' each of files of this machine: ETags."""

    def unchanged(self) -> bool:
        """Its files are what they were; False where that cannot be told without their contents."""
        try:
            found = [stamp(path) for path in self.paths]
        except (OSError, CaptureError):
            return False
        if not all(one.certain for one in found):
            return False
        tags = self.tags or ("",) * len(self.paths)
        return [tuple(one) for one in found] == list(zip(self.sizes, self.modified_ns, tags, strict=True))


def entry_path(data_set: str, capture: str) -> Path:
    """Where the entry of a capture is."""
    return Path(data_set, MANIFEST, f"{capture}.json")


def partition(data_set: str, table: str, host: str, capture: str) -> Path:
    """The folder with a capture's rows of a table."""
    return Path(data_set, table, f"host={quote(host, safe=' ')}", f"capture={capture}")


def write_entry(data_set: str, entry: ManifestEntry) -> None:
    """At once: a reader finds all of it, or nothing."""
    path = entry_path(data_set, entry.capture)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_output(path, json.dumps(asdict(entry), indent=1), (), PRIVATE)


def entries(data_set: str) -> list[ManifestEntry]:
    """All of them, in the order of their captures' times.  Raises CaptureError for what is no manifest."""
    found = map(_read_entry, Path(data_set, MANIFEST).glob("*.json"))
    return sorted(found, key=lambda one: (one.first_time_ns, one.host, one.capture))


def entry_of(data_set: str, capture: str) -> ManifestEntry | None:
    """That of a capture; None where it has none.  Raises CaptureError for what is no entry."""
    path = entry_path(data_set, capture)
    return _read_entry(path) if path.exists() else None


def _read_entry(path: Path) -> ManifestEntry:
    try:
        values = json.loads(path.read_text())
        listed: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in values.items()}
        return ManifestEntry(**listed)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise CaptureError(f"{path}: is no entry of a manifest: {error}") from None


class Numbering:
    """What has to be added to the numbers of each capture."""

    def __init__(self, listed: Sequence[ManifestEntry]) -> None:
        self.entries = [entry for entry in listed if not entry.problem]
        self.offsets: dict[str, dict[str, int]] = {}
        """By capture and name of ``COUNTED``."""
        reached = dict.fromkeys(COUNTED, 0)
        for entry in self.entries:
            self.offsets[entry.capture] = dict(reached)
            for name in COUNTED:
                reached[name] += getattr(entry, name)

    def host(self, connection: int) -> str | None:
        """Where the capture of a connection was made."""
        at = bisect_left(self.entries, connection, key=lambda one: self.offsets[one.capture]["connections"])
        return self.entries[at - 1].host if at else None


_OF_NAMES = {"rpc": "rpcs", "connection": "connections", "file": "files", "ended": "ended"}
_OF_TABLES = {"rpcs": "rpcs", "connections": "connections", "files": "files"}
"""Tables that number their rows -> what they number."""


def _numbered(table: str, column: str) -> str | None:
    """What the values of a column number."""
    if column == "number":
        return _OF_TABLES.get(table)
    if column.endswith("place_frame"):
        return None
    return "frames" if column == "frame" or column.endswith("_frame") else _OF_NAMES.get(column)


def make_views(connection: duckdb.DuckDBPyConnection, data_set: str) -> list[str]:
    """The tables of a data set as views, with host and capture of each row; and what it was made from.

    Gives the files that they read.
    """
    listed = entries(data_set)
    numbering = Numbering(listed)
    if not numbering.entries:
        raise CaptureError(f"{data_set}: no capture in this data set could be read")
    offsets = ", ".join(f"{name}_before BIGINT" for name in COUNTED)
    connection.execute(f"CREATE TABLE numbering (capture VARCHAR, path VARCHAR, frames BIGINT, {offsets})")
    connection.execute(
        "CREATE TABLE captures (capture VARCHAR, host VARCHAR, paths VARCHAR, problem VARCHAR, damage VARCHAR,"
        " frames BIGINT, rpcs BIGINT, connections BIGINT, first_time_ns BIGINT, last_time_ns BIGINT)"
    )
    connection.execute("CREATE TABLE sources (path VARCHAR, size_bytes BIGINT, modified TIMESTAMP)")
    captures: list[Row] = []
    numbers: list[Row] = []
    sources: list[Row] = []
    for one in listed:
        named = (one.capture, one.host, "\n".join(one.paths), one.problem or None, one.damage or None)
        sums = (one.frames, one.rpcs, one.connections, one.first_time_ns or None, one.last_time_ns or None)
        captures.append((*named, *sums))
    for entry in numbering.entries:
        alone = entry.paths[0] if len(entry.paths) == 1 else None
        numbers.append((entry.capture, alone, entry.frames, *numbering.offsets[entry.capture].values()))
        for path, size, modified in zip(entry.paths, entry.sizes, entry.modified_ns, strict=True):
            sources.append((path, size, modified and modified // 1000))
    _insert(connection, "captures", captures)
    _insert(connection, "numbering", numbers)
    _insert(connection, "sources", sources, "unnest(?), unnest(?), make_timestamp(CAST(unnest(?) AS BIGINT))")
    known = {f"capture={entry.capture}" for entry in numbering.entries}
    read: list[str] = []
    for name in TABLES:
        # An analysis that has not ended leaves files without an entry.
        paths = Path(os.path.abspath(data_set), name).glob(f"*/*/{name}.parquet")
        files = sorted(str(path) for path in paths if path.parent.name in known)
        if files:
            connection.execute(f"CREATE VIEW {name} AS {_view(files, name)}")
            read += files
    damage = "; ".join(f"{entry.host} {entry.capture}: {entry.damage}" for entry in numbering.entries if entry.damage)
    connection.execute(
        "CREATE TABLE metadata (program_version VARCHAR, schema_version INTEGER, damage VARCHAR, frames BIGINT,"
        " first_time_ns BIGINT, last_time_ns BIGINT)"
    )
    newest = max(numbering.entries, key=lambda one: one.schema_version)
    times = [entry.first_time_ns for entry in numbering.entries], [entry.last_time_ns for entry in numbering.entries]
    connection.execute(
        "INSERT INTO metadata VALUES (?, ?, ?, ?, ?, ?)",
        [newest.program_version, newest.schema_version, damage or None,
         sum(entry.frames for entry in numbering.entries), min(times[0]), max(times[1])],
    )  # fmt: skip
    return read


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row], values: str = "") -> None:
    """All at once, which takes a hundredth of the time."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    connection.execute(f"INSERT INTO {table} SELECT {values or ', '.join(['unnest(?)'] * len(columns))}", columns)


OF_RPCS = ("rpcs", "chunks", "segments")


def make_views_of(
    connection: duckdb.DuckDBPyConnection, data_set: str, numbering: Numbering, one: ManifestEntry
) -> str:
    """Views of the tables ``OF_RPCS`` that show one capture, with the numbers that it has over all.

    Gives what is behind their names.  Rows of some numbers are found by the statistics of its files, without a look at
    those of other captures.
    """
    before = {f"{name}_before": str(count) for name, count in numbering.offsets[one.capture].items()}
    path = quoted(one.paths[0]) if len(one.paths) == 1 else "NULL"
    for name in OF_RPCS:
        file = partition(os.path.abspath(data_set), name, one.host, one.capture) / f"{name}.parquet"
        rows = f"FROM read_parquet({quoted(str(file))})"
        there = {column for column, *_ in connection.execute(f"DESCRIBE {rows}").fetchall()}
        columns = ", ".join(_columns(name, {**before, "path": path}, there))
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {name}_{one.capture} AS SELECT {columns} {rows} AS t")
    return f"_{one.capture}"


_JOINED = {name: f"n.{name}" for name in ("path", *(f"{name}_before" for name in COUNTED))}
"""What rows of all captures are numbered by."""


def _columns(name: str, of: dict[str, str], there: Collection[str] | None = None) -> list[str]:
    """What a view selects of a table ``t``; ``of``: path and numbers of the capture of a row.

    ``there``: the columns that the table has, where an earlier version may have made it.
    """
    columns = []
    for column in TABLES[name].columns:
        place = f't."{column.name}"'
        counted = _numbered(name, column.name)
        if there is not None and column.name not in there:
            place = f"CAST(NULL AS {SQL_TYPES[column.type]})"
        elif counted is not None and column.type == "int":
            place = f"{place} + {of[f'{counted}_before']}"
        elif name == "findings" and column.name == "frames":
            place = (
                f"array_to_string(list_transform(string_split({place}, ' '),"
                f" lambda one: CAST(CAST(one AS BIGINT) + {of['frames_before']} AS VARCHAR)), ' ')"
            )
        elif column.place_of:
            other = f't."{column.place_of}"' if column.type == "int" else of["path"]
            known = f't."{column.place_of}" IS NOT NULL AND {of["path"]} IS NOT NULL'
            place = f"CASE WHEN {place} IS NULL AND {known} THEN {other} ELSE {place} END"
        columns.append(f'{place} AS "{column.name}"')
    return columns


def _view(files: Sequence[str], name: str) -> str:
    listed = ", ".join(map(quoted, files))
    partitions = "hive_partitioning = true, hive_types_autocast = false, union_by_name = true"
    query = (
        f"SELECT {', '.join(_columns(name, _JOINED))}, t.host, t.capture"
        f" FROM read_parquet([{listed}], {partitions}) AS t"
        " JOIN numbering AS n ON t.capture = n.capture"
    )
    if name == "places":
        query += (
            " UNION ALL SELECT n.frames_before + 1, n.frames_before + n.frames, n.path, 1, captures.host, n.capture"
            " FROM numbering AS n JOIN captures ON captures.capture = n.capture"
            " WHERE n.path IS NOT NULL AND n.frames > 0"
        )
    return query


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


def open_saved(path: str, *, files: bool = False) -> Database:
    """The tables in ``path``.  Raises CaptureError where they are none of this program, or of a later version."""
    database = Database(saved=path, files=files, make_views=make_views if is_data_set(path) else None)
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
    tables = connection.execute(query).fetchall()
    for catalog, name, present, types in tables:
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
            added = ", ".join(f"CAST(NULL AS {SQL_TYPES[one.type]}) AS {named(one.name)}" for one in missing)
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
    """Of the columns, for the Parquet file's own metadata."""
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
