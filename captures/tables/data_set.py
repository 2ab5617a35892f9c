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

from rdmascope.dissect.records.table import named, quoted
from rdmascope.dissect.records.tables import TABLES, VERSION

from ..errors import CaptureError
from ..read.merge import processors
from ..read.remote import Folder, folder_at, is_url, stamp
from ..write.stale_tempdirs import FolderOfProcess
from .database import MEMORY, duckdb
from .saved import SNAPSHOTS

CAPTURES = "captures"
"""Table of data sets: an entry for each capture."""
WORK = "unfinished"
"""Folder of a data set in which tables are made."""
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
ROW_GROUP = 32768
"""Rows of a group, which has statistics of its own."""
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


class CaptureTables(NamedTuple):
    """A capture, and the folder with its tables, numbered as in itself; '' where it could not be read."""

    entry: CaptureEntry
    folder: str = ""


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
        """Table and day."""
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

    def of(self, table: str) -> list[DataFile]:
        return [one for one in self.files.values() if one.place[0] == table]

    def with_files(self, added: Iterable[DataFile], dropped: Iterable[str] = ()) -> DataSetSnapshot:
        """With other files; of captures that are gone those are noted whose day still has files."""
        dropped, now = [*dropped], int(time.time())
        kept = {path: one for path, one in self.files.items() if path not in dropped}
        return replace(
            self,
            files=kept | {one.path: one for one in added},
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
        return self.store.opened_by(connection, {path: one.bytes for path, one in snapshot.files.items()})

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
            listed = ", ".join(one.name for one in fields(CaptureEntry))
            rows = connection.execute(f"SELECT {listed} FROM {there} WHERE {where} ORDER BY frames_before", of)
            return [_entry_of(row) for row in rows.fetchall()]

    def known(self, paths: Collection[str]) -> list[CaptureEntry]:
        """Captures with some of these files."""
        snapshot = self.snapshot()
        failed = [one for one in snapshot.problems.values() if not set(paths).isdisjoint(one.paths)]
        return failed + self.entries(snapshot, "list_has_any(paths, ?)", [[*paths]])

    def add(self, captures: Sequence[CaptureTables]) -> list[CaptureEntry]:
        """Add captures that it has not, at once, in place of those of which their files are what they became: written
        anew, or rotated further.  Gives their entries as it has them then."""
        while True:
            found = self._added(captures)
            if found is not None:
                return found

    def _added(self, captures: Sequence[CaptureTables]) -> list[CaptureEntry] | None:
        """The same; None where another writer came before with one of them."""
        snapshot = self.snapshot()
        there = self._with_names(snapshot, [one.entry.capture for one in captures])
        new = {one.entry.capture: one for one in captures if one.entry.capture not in there}
        whole = [one for one in new.values() if not one.entry.problem]
        failed = {name: one.entry for name, one in new.items() if one.entry.problem}
        paths = [path for one in new.values() for path in one.entry.paths]
        before = {
            one.capture: one.day
            for one in (self.entries(snapshot, "list_has_any(paths, ?)", [paths]) if paths else ())
            if any(set(one.paths) <= set(it.entry.paths) and any(it.entry.sizes) for it in new.values())
        }
        if again := {name: snapshot.gone[name] for name in new if name in snapshot.gone}:
            self.compact([*again.values()], all_of=True)
            return None
        made: list[DataFile] = []
        if whole:
            sums = {name: sum(getattr(one.entry, name) for one in whole) for name in COUNTED}
            reached = self.commit(
                lambda now: replace(now, reached={name: now.reached[name] + sums[name] for name in COUNTED})
            ).reached
            offsets = {name: reached[name] - sums[name] for name in COUNTED}
            numbered = []
            for one in whole:
                entry = replace(one.entry, **{f"{name}_before": offsets[name] for name in COUNTED})
                numbered.append(CaptureTables(entry, one.folder))
                offsets = {name: offsets[name] + getattr(entry, name) for name in COUNTED}
            made = self._written(numbered)
            there |= {one.entry.capture: one.entry for one in numbered}
        seen = {one.path for one in snapshot.of(CAPTURES)}
        lost = False

        def change(now: DataSetSnapshot) -> DataSetSnapshot:
            nonlocal lost
            if made and (made[0].path in now.files or made[0].path in now.replaced):
                return now
            others = [one for one in now.of(CAPTURES) if one.path not in seen]
            names = self._with_names(replace(now, files={one.path: one for one in others}), [*new]) if others else {}
            if lost := bool(names) or not now.gone.keys().isdisjoint(new):
                return now
            done = [one for one in now.problems.values() if any(set(one.paths) <= set(it.entry.paths) for it in whole)]
            problems = {name: one for name, one in now.problems.items() if one not in done} | failed
            if not made and problems == now.problems:
                return now
            return replace(now.with_files(made), problems=problems, gone={**now.gone, **before})

        self.commit(change)
        if lost:
            for file in made:
                self.store.remove(file.path)
            return None
        there |= failed
        return [there[one.entry.capture] for one in captures]

    def _with_names(self, snapshot: DataSetSnapshot, names: Sequence[str]) -> dict[str, CaptureEntry]:
        return {one.capture: one for one in self.entries(snapshot, "list_contains(?, capture)", [names])}

    def _written(self, captures: Sequence[CaptureTables]) -> list[DataFile]:
        """Files with the tables of captures, of each day its own; no snapshot has them yet."""
        days: dict[str, list[CaptureTables]] = defaultdict(list)
        for one in captures:
            days[one.entry.day].append(one)
        made = []
        with _Writer(self) as writer:
            for day, some in days.items():
                make_captures(writer.connection, [one.entry for one in some])
                writer.connection.execute("CREATE OR REPLACE TABLE folders (capture VARCHAR, folder VARCHAR)")
                folders = [(one.entry.capture, one.folder) for one in some]
                writer.connection.executemany("INSERT INTO folders VALUES (?, ?)", folders)
                times = min(one.entry.first_time_ns for one in some), max(one.entry.last_time_ns for one in some)
                hosts = min(one.entry.host for one in some), max(one.entry.host for one in some)
                for name in TABLES:
                    made.append(writer.write(name, day, _numbered_rows(name, some), times, hosts))
                made.append(writer.write(CAPTURES, day, f"FROM {CAPTURES} ORDER BY host, rpcs_before", times, hosts))
                writer.put()
        return [one for one in made if one is not None]

    def compact(self, days: Collection[str] = (), all_of: bool = False) -> int:
        """Make one file of several of a table and a day, of about one size; gives how many files there are fewer.

        ``days``: only these, if any.  ``all_of``: of all sizes, and without rows of captures that are gone.
        """
        snapshot = self.snapshot()
        gone = {name: day for name, day in snapshot.gone.items() if not days or day in days} if all_of else {}
        places: dict[tuple[str, str], list[DataFile]] = defaultdict(list)
        for one in snapshot.files.values():
            if not days or one.place[1] in days:
                places[one.place].append(one)
        made: list[tuple[DataFile | None, list[DataFile]]] = []
        with _Writer(self) as writer:
            place = self.opened_by(writer.connection, snapshot)
            for (name, day), there in sorted(places.items()):
                for some in [there] if day in gone.values() else _mergeable(there, all_of):
                    some = sorted(some)
                    rows = view_of(name, some, snapshot, place, "file_row_number = true")
                    query = f"SELECT * EXCLUDE (day, file_row_number) {rows} ORDER BY host, file_index, file_row_number"
                    times = min(one.first_time_ns for one in some), max(one.last_time_ns for one in some)
                    hosts = min(one.first_host for one in some), max(one.last_host for one in some)
                    columns = {one.columns for one in some}
                    now = columns_of(name)
                    made.append((writer.write(name, day, query, times, hosts, now if now in columns else "?"), some))
                    writer.put()
        if not (made or gone):
            return 0

        def change(now: DataSetSnapshot) -> DataSetSnapshot:
            still = [(new, some) for new, some in made if all(one.path in now.files for one in some)]
            if (gone and len(still) < len(made)) or not (still or gone.keys() & now.gone.keys()):
                return now  # Another writer did the same; what was gone stays noted.
            merged = now.with_files(
                [new for new, _ in still if new is not None], [one.path for _, some in still for one in some]
            )
            return replace(merged, gone={name: day for name, day in now.gone.items() if name not in gone})

        files = self.commit(change).files
        for new, _ in made:
            if new is not None and new.path not in files:
                self.store.remove(new.path)
        return sum(len(some) - 1 for new, some in made if new is None or new.path in files)

    def drop_before(self, day: str) -> int:
        """Delete days; gives how many captures there were.  Their files go when no query can be reading them."""
        old = [one for one in self.snapshot().files.values() if one.place[1] < day]

        def change(now: DataSetSnapshot) -> DataSetSnapshot:
            dropped = [path for path, one in now.files.items() if one.place[1] < day]
            kept = {name: on for name, on in now.gone.items() if on >= day}
            return replace(now.with_files((), dropped), gone=kept) if dropped else now

        self.commit(change)
        return sum(one.rows for one in old if one.place[0] == CAPTURES)

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
    for one in there:
        size, rows = 0, one.rows
        while rows >= SMALL and not all_of:
            size, rows = size + 1, rows // STEP
        if one.bytes < LARGE:
            sizes[size].append(one)
    return [some for some in sizes.values() if len(some) >= (2 if all_of else FEW_FILES)]


class _Writer:
    """Writes tables on this machine, and then puts them into a store.  A context manager."""

    def __init__(self, data_set: DataSet) -> None:
        self._store = data_set.store
        self._made = data_set.work_folder()
        config = {"temp_directory": f"{self._made.path}/spilled", "memory_limit": f"{MEMORY >> 20}MiB"}
        self.connection = duckdb.connect(config={**config, "threads": str(processors())})
        self._waiting: list[str] = []

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self._made.remove()

    def local(self, name: str) -> str:
        """The file of a table that was written last."""
        return f"{self._made.path}/{name}.parquet"

    def write(
        self, name: str, day: str, query: str, times: tuple[int, int], hosts: tuple[str, str], columns: str = ""
    ) -> DataFile | None:
        """Write rows of a table, which has ``columns``, by default those of this version; None where there are none."""
        table = TABLES.get(name)
        meanings = {column.name: column.meaning for column in table.columns} if table else {"tables": "rdmascope"}
        about = ", ".join(f"{named(key)}: {quoted(words)}" for key, words in meanings.items())
        options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP}, KV_METADATA {{{about}}}"
        path = self.local(name)
        ((rows,),) = self.connection.execute(f"COPY ({query}) TO {quoted(path)} ({options})").fetchall()
        if not rows:
            return None
        self._waiting.append(f"{name}/day={day}/{int(time.time()):x}-{token_hex(6)}.parquet")
        return DataFile(self._waiting[-1], rows, Path(path).stat().st_size, *times, *hosts, columns or columns_of(name))

    def put(self) -> None:
        """Into the store, under the names that ``write`` gave."""
        for name in self._waiting:
            self._store.put(Path(self.local(name.partition("/")[0])), name)
        self._waiting.clear()


@cache
def columns_of(name: str) -> str:
    """What stands for the columns that a table has in this version."""
    columns = [one.name for one in (TABLES[name].columns if name in TABLES else fields(CaptureEntry))]
    return hashlib.sha256(" ".join(columns).encode()).hexdigest()[:8]


def view_of(name: str, files: Sequence[DataFile], snapshot: DataSetSnapshot, place: str, options: str = "") -> str:
    """FROM and WHERE of a query for the rows of a table in some files, with host, capture and day of each.

    ``place``: of the data set.
    """
    listed = ", ".join(quoted(f"{place}/{one.path}") for one in files)
    options = f"hive_partitioning = true, hive_types = {{'day': DATE}}{options and ', '}{options}"
    if any(one.columns != columns_of(name) for one in files):
        options += ", union_by_name = true"
    days = {one.place[1] for one in files}
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
    hints = {one.name: str(one.type) for one in fields(CaptureEntry)}
    listed = ", ".join(
        f"{column} {'BIGINT' if 'int' in hint else 'VARCHAR'}{'[]' if 'tuple' in hint else ''}"
        for column, hint in hints.items()
    )
    connection.execute(f"CREATE OR REPLACE TABLE {name} ({listed})")
    if entries:
        query = f"INSERT INTO {name} VALUES ({', '.join('?' for _ in hints)})"
        connection.executemany(query, [[*asdict(one).values()] for one in entries])


def _numbered_rows(name: str, captures: Sequence[CaptureTables]) -> str:
    """Rows of a table of captures, with their numbers of the data set, and the file of each frame."""
    listed = ", ".join(quoted(f"{one.folder}/{name}.parquet") for one in captures)
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
    query = (
        f"SELECT {', '.join(columns)}, n.host, n.capture, n.frames_before AS before, t.file_row_number AS row"
        f" FROM read_parquet([{listed}], filename = true, file_row_number = true) AS t"
        f" JOIN folders AS f ON t.filename = f.folder || '/{name}.parquet' JOIN {CAPTURES} AS n USING (capture)"
    )
    if name == "places":
        query += (
            " UNION ALL SELECT frames_before + 1, frames_before + frames, paths[1], 1, host, capture, frames_before, 0"
            f" FROM {CAPTURES} WHERE len(paths) = 1 AND frames > 0"
        )
    return f"SELECT * EXCLUDE (before, row) FROM ({query}) ORDER BY host, before, row"


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
        values["files"] = {one[0]: DataFile(*one) for one in values["files"]}
        values["problems"] = {
            name: _entry_of([one.get(field.name, field.default) for field in fields(CaptureEntry)])
            for name, one in values["problems"].items()
        }
        return DataSetSnapshot(**values)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise CaptureError(f"{shown}: is no snapshot of a data set: {error}") from None
