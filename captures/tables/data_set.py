"""A data set: the tables of many captures in few Parquet files, and the snapshots that say which files it has.

A snapshot is a file of its own, which is made at once where none has its number: who writes goes from the latest one
to the next, and tries again where another was first.  A reader finds all that a snapshot has, or nothing of it.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

from rdmascope.dissect.records.rpc_columns import named, quoted
from rdmascope.dissect.records.tables import TABLES, VERSION

from ..errors import CaptureError
from ..read.merge import processors
from ..read.remote import Folder, LocalFolder, folder_at, is_url, stamp
from ..write.stale_tempdirs import FolderOfProcess
from .call_sums import SUMS
from .database import MEMORY, duckdb
from .saved import SNAPSHOTS

CAPTURES = "captures"
"""Table of data sets: an entry for each capture."""
WORK = "unfinished"
"""Folder of a data set in which tables are made."""
STATEMENTS = "statements"
"""Table of data sets: what the diagnosis of each capture says."""
STATEMENT_COLUMNS = (
    "kind VARCHAR, severity VARCHAR, title VARCHAR, text VARCHAR, count BIGINT, since_ns BIGINT, lost_ns BIGINT,"
    " client VARCHAR, server VARCHAR, content VARCHAR, host VARCHAR, capture VARCHAR"
)
COUNTED = ("rpcs", "connections", "files", "frames", "ended")
"""What is numbered."""
FORMAT = 1
"""Of snapshots; rises where earlier programs would misread them."""
KEPT = 100
"""Snapshots behind the latest one."""
GRACE = 600
"""Seconds for which files stay that others take the place of: a query may be reading them."""
LEFT = 86400
"""Seconds from which on a file that no snapshot has is one that a writer left which was killed."""
FEW_FILES = 6
"""Files of a table, a day and a size that become one."""
STEP, SMALL = 4, 4096
"""From size to size, in rows; what has fewer than ``SMALL`` is of one size."""
LARGE = 64 << 20
"""Bytes of a file that becomes part of no other."""
ROW_GROUP, OF_DETAILS = 32768, 2048
"""Rows of a group, which has statistics of its own; and of the table details: long texts, asked for by kind."""
STALE = 60
"""Seconds behind which a snapshot that was read may be so old that names of later ones are free again."""


@dataclass(frozen=True, slots=True)
class CaptureEntry:
    """A capture of a data set: a row of the table captures."""

    capture: str
    """Begin of the SHA-256 of its contents, or of what a store says of them, and of the options; hexadecimal."""
    host: str
    paths: tuple[str, ...]
    """Its files: several where they are rotated."""
    sizes: tuple[int | None, ...]
    modified_ns: tuple[int | None, ...]
    """None where a store does not say."""
    tags: tuple[str, ...]
    """What stores say of the contents of its files, '' each of files of this machine: ETags."""
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
    """This and the next four: the highest number of each in the capture itself."""
    connections: int = 0
    files: int = 0
    frames: int = 0
    ended: int = 0
    rpcs_before: int = 0
    """This and the next four: what is added to them in the data set."""
    connections_before: int = 0
    files_before: int = 0
    frames_before: int = 0
    ended_before: int = 0

    @property
    def day(self) -> str:
        """On which it begins, UTC."""
        return datetime.fromtimestamp(self.first_time_ns // 10**9, UTC).date().isoformat()

    @property
    def before(self) -> dict[str, int]:
        """By name of ``COUNTED``."""
        return {name: getattr(self, f"{name}_before") for name in COUNTED}

    def unchanged(self) -> bool:
        """Its files are what they were; False where that cannot be told without their contents."""
        try:
            found = [stamp(path) for path in self.paths]
        except (OSError, CaptureError):
            return False
        if not all(one.certain for one in found):
            return False
        return [tuple(one) for one in found] == list(zip(self.sizes, self.modified_ns, self.tags, strict=True))


About = Callable[[str], Iterable[tuple[object, ...]]]
"""What is said of a capture whose tables are at a path."""


class DataFile(NamedTuple):
    """A Parquet file of a table."""

    path: str
    """TABLE/day=DAY/NAME.parquet."""
    rows: int
    bytes: int
    first_time_ns: int
    """This and the next: of the captures that it has rows of."""
    last_time_ns: int
    first_host: str
    """This and the next: in the order of their names."""
    last_host: str
    columns: str
    """What tells whether it has those of this version."""

    @property
    def place(self) -> tuple[str, str]:
        """The table and the day that the file holds rows of."""
        table, day, _ = self.path.split("/")
        return table, day.removeprefix("day=")


@dataclass(frozen=True, slots=True)
class DataSetSnapshot:
    """What a data set has at some time."""

    number: int = 0
    files: Mapping[str, DataFile] = field(default_factory=dict)
    """By path."""
    gone: Mapping[str, str] = field(default_factory=dict)
    """Captures whose rows are there and count no more, and their day."""
    problems: Mapping[str, CaptureEntry] = field(default_factory=dict)
    """Captures that could not be read, by name."""
    reached: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    """The highest numbers that were given."""
    replaced: Mapping[str, int] = field(default_factory=dict)
    """Files that others took the place of, and when: seconds since the Unix epoch."""

    def between(self, since: int | None, until: int | None) -> DataSetSnapshot:
        """With those files alone that may have something of this time, in nanoseconds since the Unix epoch."""
        kept = {
            path: file
            for path, file in self.files.items()
            if file.last_time_ns >= (since or 0) and (until is None or file.first_time_ns < until)
        }
        return replace(self, files=kept)

    def of(self, table: str) -> list[DataFile]:
        return [file for file in self.files.values() if file.place[0] == table]

    def with_files(self, added: Iterable[DataFile], dropped: Iterable[str] = ()) -> DataSetSnapshot:
        """With other files; of captures that are gone those are noted whose day still has files."""
        dropped, now = [*dropped], int(time.time())
        kept = {path: file for path, file in self.files.items() if path not in dropped}
        return replace(
            self,
            files=kept | {data_file.path: data_file for data_file in added},
            replaced={**self.replaced, **dict.fromkeys(dropped, now)},
        )


def _name(number: int) -> str:
    return f"{SNAPSHOTS}/{number:012}.json"


class DataSet:
    """A data set in a folder of this machine or of a store; there need not be one yet."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.store: Folder = folder_at(path)

    def work_folder(self) -> FolderOfProcess:
        """Where tables are made: on the disk of the data set, where that is of this machine."""
        if is_url(self.path):
            return FolderOfProcess()
        work = Path(self.store.url, WORK)
        work.mkdir(parents=True, exist_ok=True)
        return FolderOfProcess(str(work))

    def opened_by(self, connection: duckdb.DuckDBPyConnection, snapshot: DataSetSnapshot) -> str:
        """Let DuckDB read the files of a snapshot; gives what is before their paths there."""
        return self.store.opened_by(connection, {path: file.bytes for path, file in snapshot.files.items()})

    def begin(self) -> None:
        """Make a data set without captures, where there is none."""
        self.store.create(_name(0), _json_of(DataSetSnapshot()))

    def snapshot(self) -> DataSetSnapshot:
        """The latest; an empty one where there is none.  Raises CaptureError."""
        for _ in range(10):  # It may go while it is looked for.
            names = [name for name in self.store.files(SNAPSHOTS) if name.endswith(".json")]
            if not names:
                return DataSetSnapshot()
            if (data := self.store.read(latest := max(names))) is not None:
                return _snapshot_of(data, f"{self.path}/{latest}")
        raise CaptureError(f"{self.path}: written too often to be read; try again")

    def commit(self, change: Callable[[DataSetSnapshot], DataSetSnapshot]) -> DataSetSnapshot:
        """Make the next snapshot: ``change`` of the latest one, which it gives back where there is nothing to change.

        It is asked again where another writer was first.
        """
        while True:
            begun = time.monotonic()
            now = self.snapshot()
            new = change(now)
            if new is now:
                return now
            late = [path for path, when in new.replaced.items() if when < time.time() - GRACE]
            new = replace(
                new,
                number=now.number + 1,
                replaced={path: when for path, when in new.replaced.items() if path not in late},
            )
            if not self.store.create(_name(new.number), _json_of(new)):
                time.sleep(random.uniform(0, 0.1))
            elif time.monotonic() - begun < STALE:
                for path in late:
                    self.store.remove(path)
                self.store.remove(_name(new.number - KEPT))
                return new

    def entries(
        self, snapshot: DataSetSnapshot | None = None, where: str = "true", of: Sequence[object] = ()
    ) -> list[CaptureEntry]:
        """Those of captures that have tables and pass a condition, in the order of their numbers."""
        snapshot = snapshot or self.snapshot()
        files = snapshot.of(CAPTURES)
        if not files:
            return []
        with duckdb.connect() as connection:
            there = f"({view_of(CAPTURES, files, snapshot, self.opened_by(connection, snapshot))})"
            listed = ", ".join(declared.name for declared in fields(CaptureEntry))
            rows = connection.execute(f"SELECT {listed} FROM {there} WHERE {where} ORDER BY frames_before", of)
            return [_entry_of(row) for row in rows.fetchall()]

    def known(self, paths: Collection[str]) -> list[CaptureEntry]:
        """Captures with some of these files."""
        snapshot = self.snapshot()
        failed = [problem for problem in snapshot.problems.values() if not set(paths).isdisjoint(problem.paths)]
        return failed + self.entries(snapshot, "list_has_any(paths, ?)", [[*paths]])

    def add(self, entry: CaptureEntry, folder: str = "", about: About = lambda path: ()) -> CaptureEntry:
        """Add a capture at once, where it is not there, in place of those of which its files are what they became:
        written anew, or rotated further.  Gives its entry as it is there then.

        ``folder``: with its tables, numbered as in itself; none of what could not be read.  ``about``: is given the
        path of a data set of this capture alone, and gives its rows of ``STATEMENTS``.
        """
        while True:
            found = self._added(entry, folder, about)
            if found is not None:
                return found

    def _added(self, entry: CaptureEntry, folder: str, about: About) -> CaptureEntry | None:
        """The same; None where another writer came before with it."""
        snapshot, capture = self.snapshot(), entry.capture
        if there := self.entries(snapshot, "capture = ?", [capture]):
            return there[0]
        if capture in snapshot.gone:
            self.compact([snapshot.gone[capture]], all_of=True)
            return None
        others = self.entries(snapshot, "list_has_any(paths, ?)", [entry.paths])
        before = {other.capture: other.day for other in others if {*other.paths} <= {*entry.paths} and any(entry.sizes)}
        made: list[DataFile] = []
        if not entry.problem:
            own = {name: getattr(entry, name) for name in COUNTED}
            reached = self.commit(
                lambda now: replace(now, reached={name: now.reached[name] + own[name] for name in COUNTED})
            ).reached
            entry = replace(entry, **{f"{name}_before": reached[name] - own[name] for name in COUNTED})
            made = self._written(entry, folder, about)
        seen = {data_file.path for data_file in snapshot.of(CAPTURES)}
        lost = False

        def change(now: DataSetSnapshot) -> DataSetSnapshot:
            nonlocal lost
            if made and (made[0].path in now.files or made[0].path in now.replaced):
                return now
            new = {data_file.path: data_file for data_file in now.of(CAPTURES) if data_file.path not in seen}
            if lost := capture in now.gone or bool(self.entries(replace(now, files=new), "capture = ?", [capture])):
                return now
            problems = {
                name: problem for name, problem in now.problems.items() if not {*problem.paths} <= {*entry.paths}
            }
            problems |= {capture: entry} if entry.problem else {}
            if not made and problems == now.problems:
                return now
            return replace(now.with_files(made), problems=problems, gone={**now.gone, **before})

        self.commit(change)
        if lost:
            for file in made:
                self.store.remove(file.path)
        return None if lost else entry

    def _written(self, entry: CaptureEntry, folder: str, about: About) -> list[DataFile]:
        """Files with the tables of a capture; no snapshot has them yet."""
        with _Writer(self) as writer:
            make_captures(writer.connection, [entry])
            extent = (entry.first_time_ns, entry.last_time_ns), (entry.host, entry.host)
            made = [writer.write(name, entry.day, _numbered_rows(name, folder), *extent) for name in TABLES]
            for name in ("rpcs", "chunks"):
                files = quoted(f"{writer.folder}/{name}/*/*.parquet")
                writer.connection.execute(f"CREATE VIEW {name} AS FROM read_parquet({files})")
            made += [writer.write(name, entry.day, query, *extent) for name, query in SUMS.items()]
            made.append(writer.write(CAPTURES, entry.day, f"FROM {CAPTURES}", *extent))
            own = DataSetSnapshot(files={data_file.path: data_file for data_file in made if data_file is not None})
            alone = LocalFolder(writer.folder)
            alone.create(_name(0), _json_of(own))
            writer.connection.execute(f"CREATE TABLE {STATEMENTS} ({STATEMENT_COLUMNS})")
            if rows := [(*one, entry.host, entry.capture) for one in about(writer.folder)]:
                marks = ", ".join("?" for _ in rows[0])
                writer.connection.executemany(f"INSERT INTO {STATEMENTS} VALUES ({marks})", rows)
            made.append(writer.write(STATEMENTS, entry.day, f"FROM {STATEMENTS}", *extent))
            writer.put()
        return [data_file for data_file in made if data_file is not None]

    def compact(self, days: Collection[str] = (), all_of: bool = False) -> int:
        """Make one file of several of a table and a day, of about one size; gives how many files there are fewer.

        ``days``: only these, if any.  ``all_of``: of all sizes, and without rows of captures that are gone.
        """
        snapshot = self.snapshot()
        gone = {name: day for name, day in snapshot.gone.items() if not days or day in days} if all_of else {}
        places: dict[tuple[str, str], list[DataFile]] = defaultdict(list)
        for file in snapshot.files.values():
            if not days or file.place[1] in days:
                places[file.place].append(file)
        made: list[tuple[DataFile | None, list[DataFile]]] = []
        with _Writer(self) as writer:
            place = self.opened_by(writer.connection, snapshot)
            for (name, day), there in sorted(places.items()):
                for some in [there] if day in gone.values() else _mergeable(there, all_of):
                    some = sorted(some)
                    rows = view_of(name, some, snapshot, place, "file_row_number = true")
                    order = "kind, " * (name == "details") + "host, file_index, file_row_number"
                    query = f"SELECT * EXCLUDE (day, file_row_number) {rows} ORDER BY {order}"
                    times = min(file.first_time_ns for file in some), max(file.last_time_ns for file in some)
                    hosts = min(file.first_host for file in some), max(file.last_host for file in some)
                    columns, now = {file.columns for file in some}, columns_of(name)
                    known = columns == {now} if name in SUMS else now in columns
                    made.append((writer.write(name, day, query, times, hosts, now if known else "?"), some))
                    writer.put()
        if not (made or gone):
            return 0

        def change(now: DataSetSnapshot) -> DataSetSnapshot:
            still = [(new, some) for new, some in made if all(file.path in now.files for file in some)]
            if (gone and len(still) < len(made)) or not (still or gone.keys() & now.gone.keys()):
                return now  # Another writer did the same; what was gone stays noted.
            merged = now.with_files(
                [new for new, _ in still if new is not None],
                [file.path for _, some in still for file in some],
            )
            return replace(merged, gone={name: day for name, day in now.gone.items() if name not in gone})

        files = self.commit(change).files
        for new, _ in made:
            if new is not None and new.path not in files:
                self.store.remove(new.path)
        return sum(len(some) - 1 for new, some in made if new is None or new.path in files)

    def drop_before(self, day: str) -> int:
        """Delete days; gives how many captures there were.  Their files go when no query can be reading them."""
        old = [file for file in self.snapshot().files.values() if file.place[1] < day]

        def change(now: DataSetSnapshot) -> DataSetSnapshot:
            dropped = [path for path, file in now.files.items() if file.place[1] < day]
            kept = {name: on for name, on in now.gone.items() if on >= day}
            return replace(now.with_files((), dropped), gone=kept) if dropped else now

        self.commit(change)
        return sum(data_file.rows for data_file in old if data_file.place[0] == CAPTURES)

    def remove_left(self) -> int:
        """Remove files that no snapshot has, of writers that were killed; gives how many."""
        there = [*self.store.files()]
        snapshot = self.snapshot()
        left = 0
        for name in there:
            table, _, rest = name.partition("/")
            if rest and table != SNAPSHOTS and name not in snapshot.files and name not in snapshot.replaced:
                begun = int(name.rpartition("/")[2].partition("-")[0], 16) if "-" in name.rpartition("/")[2] else 0
                if begun < time.time() - LEFT:
                    self.store.remove(name)
                    left += 1
        return left


def _mergeable(there: Sequence[DataFile], all_of: bool) -> list[list[DataFile]]:
    """Which files of a table and a day become one."""
    sizes: dict[int, list[DataFile]] = defaultdict(list)
    for data_file in there:
        size, rows = 0, data_file.rows
        while rows >= SMALL and not all_of:
            size, rows = size + 1, rows // STEP
        if data_file.bytes < LARGE:
            sizes[size].append(data_file)
    return [some for some in sizes.values() if len(some) >= (2 if all_of else FEW_FILES)]


class _Writer:
    """Writes tables on this machine, and then puts them into a store.  A context manager."""

    def __init__(self, data_set: DataSet) -> None:
        self._store = data_set.store
        self._made = data_set.work_folder()
        self.folder = f"{self._made.path}/set"
        config = {"temp_directory": f"{self._made.path}/spilled", "memory_limit": f"{MEMORY >> 20}MiB"}
        self.connection = duckdb.connect(config={**config, "threads": str(processors())})
        self.connection.execute("SET enable_progress_bar = false")
        self._waiting: list[str] = []

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self._made.remove()

    def write(
        self, name: str, day: str, query: str, times: tuple[int, int], hosts: tuple[str, str], columns: str = ""
    ) -> DataFile | None:
        """Write rows of a table, which has ``columns``, by default those of this version; None where there are none."""
        table = TABLES.get(name)
        meanings = {column.name: column.meaning for column in table.columns} if table else {"tables": "rdmascope"}
        about = ", ".join(f"{named(key)}: {quoted(words)}" for key, words in meanings.items())
        group = OF_DETAILS if name == "details" else ROW_GROUP
        options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {group}, KV_METADATA {{{about}}}"
        file = f"{name}/day={day}/{int(time.time()):x}-{token_hex(6)}.parquet"
        path = Path(self.folder, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        ((rows,),) = self.connection.execute(f"COPY ({query}) TO {quoted(str(path))} ({options})").fetchall()
        if not rows:
            return None
        self._waiting.append(file)
        return DataFile(file, rows, path.stat().st_size, *times, *hosts, columns or columns_of(name))

    def put(self) -> None:
        """Into the store, under the names that ``write`` gave."""
        for name in self._waiting:
            self._store.put(Path(self.folder, name), name)
            Path(self.folder, name).unlink()
        self._waiting.clear()


@cache
def columns_of(name: str) -> str:
    """What stands for the columns that a table has in this version."""
    if name in (STATEMENTS, *SUMS):
        columns = [SUMS.get(name, STATEMENT_COLUMNS)]
    else:
        columns = [column.name for column in (TABLES[name].columns if name in TABLES else fields(CaptureEntry))]
    return hashlib.sha256(" ".join(columns).encode()).hexdigest()[:8]


def view_of(name: str, files: Sequence[DataFile], snapshot: DataSetSnapshot, place: str, options: str = "") -> str:
    """FROM and WHERE of a query for the rows of a table in some files, with host, capture and day of each.

    ``place``: of the data set.
    """
    listed = ", ".join(quoted(f"{place}/{file.path}") for file in files)
    options = f"hive_partitioning = true, hive_types = {{'day': DATE}}{options and ', '}{options}"
    if any(file.columns != columns_of(name) for file in files):
        options += ", union_by_name = true"
    days = {file.place[1] for file in files}
    gone = ", ".join(quoted(one) for one, day in snapshot.gone.items() if day in days)
    return f"FROM read_parquet([{listed}], {options})" + (f" WHERE capture NOT IN ({gone})" if gone else "")


_OF_NAMES = {"rpc": "rpcs", "connection": "connections", "file": "files", "ended": "ended"}
_OF_TABLES = {"rpcs": "rpcs", "connections": "connections", "files": "files"}
"""Tables that number their rows -> what they number."""


def _counted(table: str, column: str) -> str | None:
    """What the values of a column number."""
    if column == "number":
        return _OF_TABLES.get(table)
    if column.endswith("place_frame"):
        return None
    return "frames" if column == "frame" or column.endswith("_frame") else _OF_NAMES.get(column)


def make_captures(connection: duckdb.DuckDBPyConnection, entries: Sequence[CaptureEntry], name: str = CAPTURES) -> None:
    """A table of captures, with a row for each entry."""
    hints = {declared.name: str(declared.type) for declared in fields(CaptureEntry)}
    listed = ", ".join(
        f"{column} {'BIGINT' if 'int' in hint else 'VARCHAR'}{'[]' if 'tuple' in hint else ''}"
        for column, hint in hints.items()
    )
    connection.execute(f"CREATE OR REPLACE TABLE {name} ({listed})")
    if entries:
        query = f"INSERT INTO {name} VALUES ({', '.join('?' for _ in hints)})"
        connection.executemany(query, [[*asdict(entry).values()] for entry in entries])


def _numbered_rows(name: str, folder: str) -> str:
    """Rows of a table of a capture, with their numbers of the data set, and the file of each frame."""
    path = "CASE WHEN len(n.paths) = 1 THEN n.paths[1] END"
    columns = []
    for column in TABLES[name].columns:
        place = f't."{column.name}"'
        counted = _counted(name, column.name)
        if counted is not None and column.type == "int":
            place = f"{place} + n.{counted}_before"
        elif name == "findings" and column.name == "frames":
            place = (
                f"array_to_string(list_transform(string_split({place}, ' '),"
                " lambda one: CAST(CAST(one AS BIGINT) + n.frames_before AS VARCHAR)), ' ')"
            )
        elif column.place_of:
            other = f't."{column.place_of}"' if column.type == "int" else path
            known = f't."{column.place_of}" IS NOT NULL AND len(n.paths) = 1'
            place = f"CASE WHEN {place} IS NULL AND {known} THEN {other} ELSE {place} END"
        columns.append(f'{place} AS "{column.name}"')
    rows = f"read_parquet({quoted(f'{folder}/{name}.parquet')})"
    query = f"SELECT {', '.join(columns)}, n.host, n.capture FROM {rows} AS t, {CAPTURES} AS n"
    if name == "places":
        query += (
            " UNION ALL SELECT frames_before + 1, frames_before + frames, paths[1], 1, host, capture"
            f" FROM {CAPTURES} WHERE len(paths) = 1 AND frames > 0"
        )
    return query


def _entry_of(row: Sequence[Any]) -> CaptureEntry:
    values: list[Any] = [tuple(one) if isinstance(one, list) else one for one in row]
    return CaptureEntry(*values)


def _json_of(snapshot: DataSetSnapshot) -> bytes:
    values = asdict(snapshot) | {"files": [*snapshot.files.values()]}
    about = {"format": FORMAT, "schema_version": VERSION, "program_version": version("rdmascope")}
    return json.dumps(about | values, separators=(",", ":")).encode()


def _snapshot_of(data: bytes, shown: str) -> DataSetSnapshot:
    try:
        values = json.loads(data)
        if values.pop("format") > FORMAT or values.pop("schema_version") != VERSION:
            made_by = values.pop("program_version")
            raise CaptureError(f"{shown}: rdmascope {made_by} wrote this data set; this program cannot read it")
        del values["program_version"]
        values["files"] = {file[0]: DataFile(*file) for file in values["files"]}
        values["problems"] = {
            name: _entry_of([one.get(field.name, field.default) for field in fields(CaptureEntry)])
            for name, one in values["problems"].items()
        }
        return DataSetSnapshot(**values)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise CaptureError(f"{shown}: is no snapshot of a data set: {error}") from None
