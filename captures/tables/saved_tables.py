"""Tables that are kept: a DuckDB database, a folder of Parquet files, or a data set, with what they were made from.

A data set has the tables of many captures in few Parquet files, and snapshots that say which files it has. A snapshot
is one file, created atomically if its number is free: a writer goes from the latest one to the next, and tries again if
another writer was first. A reader sees all of a snapshot, or nothing of it.

With the tables of a capture a data set keeps sums of its RPCs, in SQL that can be added up.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, date, datetime
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex
from typing import Any

from rdmascope.dissect.measure.filters import CaptureExtent
from rdmascope.dissect.measure.statistics import PARTS
from rdmascope.dissect.measure.time_options import Moment
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.records.rpc_columns import SQL_TYPES, named, quoted
from rdmascope.dissect.records.tables import FILTER, RECOGNITION, TABLES, VERSION

from ..errors import CaptureError, need
from ..read.merge import processors
from ..read.remote import Folder, LocalFolder, folder_at, is_url, refuse_url, size_of, stamp
from ..write.output import input_files, refuse_inputs
from ..write.stale_tempdirs import FolderOfProcess
from .database import MEMORY, Database, duckdb, write_query
from .saved import SNAPSHOTS, is_data_set

CALLS, TRANSFERS = "calls", "transfers"
"""Tables of a data set: sums of RPCs, and of what carried their payloads."""
BINS = 32
"""Bins of latency for each doubling: the middle of a bin is within 1.1 % of its values."""
MINUTE = 60 * 10**9
"""Nanoseconds; RPCs that began in different ones are told apart."""
ALIKE = (
    "host", "capture", "connection", "client", "server", "program", "program_number", "version", "minor_version",
    "procedure", "procedure_number", "operations", "direction", "state", "status", "failed", "contents", "damage",
    "notes", "minute",
)  # fmt: skip
"""Columns of rpcs, and since when, in which the RPCs of one row are alike."""
PART_SUMS = tuple(f"{'retransmission_delay' if part == 'retransmission' else part}_ns" for part in PARTS)

EACH_CALL = f"""(
    SELECT *, time_ns // {MINUTE} AS minute, CAST(floor({BINS} * log2(greatest(waiting_ns, 1))) AS BIGINT) AS bin,
        latency_ns IS NOT NULL AS known, 1 AS counted, waiting_ns AS low_ns, waiting_ns AS high_ns,
        waiting_ns AS total_ns, coalesce(end_time_ns, call_end_time_ns, time_ns) AS ended_ns
    FROM rpcs WHERE {{0}}
)"""
"""As rows of ``CALLS``, but of single RPCs: those that pass a condition."""
EACH_TRANSFER = f"""(
    SELECT *, time_ns // {MINUTE} AS minute FROM (
        SELECT *, 'inline call' AS way, CAST(call_inline_bytes > 0 AS BIGINT) AS messages, 0 AS moved_chunks,
            0 AS moved_segments, 0 AS moved_advertised, call_inline_bytes AS moved_bytes, 0 AS moved_unused
        FROM rpcs WHERE {{0}}
        UNION ALL SELECT *, 'inline reply', CAST(reply_inline_bytes > 0 AS BIGINT), 0, 0, 0, reply_inline_bytes, 0
        FROM rpcs WHERE {{0}}
        UNION ALL SELECT meant.*,
            if(call_rdma_procedure = 'RDMA_NOMSG' AND kind = 'read' AND position = 0, 'position zero',
                kind || ' chunk') AS carrier,
            CAST(chunk = min(chunk) OVER (PARTITION BY rpc, carrier) AS BIGINT), 1, used.segments, advertised_bytes,
            transferred_bytes, CAST(transferred_bytes = 0 AS BIGINT)
        FROM (FROM rpcs WHERE chunks > 0 AND {{0}}) AS meant JOIN chunks AS used ON used.rpc = meant.number
    )
)"""
"""The rows of ``TRANSFERS``."""


def added_calls(source: str, by: Sequence[str]) -> str:
    """Calls in ``source`` that are alike in some columns, as one row."""
    sums = ("counted", "call_bytes", "reply_bytes", *PART_SUMS)
    return f"""
        SELECT {", ".join(by)}, min(time_ns) AS time_ns, max(ended_ns) AS ended_ns, min(low_ns) AS low_ns,
            max(high_ns) AS high_ns, CAST(sum(total_ns) AS BIGINT) AS total_ns,
            coalesce(arg_max(number, high_ns), min(number)) AS number, {_summed(sums)}
        FROM {source} GROUP BY {", ".join(by)}"""


def added_transfers(source: str, by: Sequence[str]) -> str:
    """Transfers in ``source`` that are alike in some columns, as one row; the sums are those of ``TransferTotals``, in
    order."""
    sums = ("messages", "moved_chunks", "moved_segments", "moved_advertised", "moved_bytes", "moved_unused")
    columns = ", ".join((*by, "way"))
    return f"SELECT {columns}, min(time_ns) AS time_ns, {_summed(sums)} FROM {source} GROUP BY {columns}"


def _summed(names: Sequence[str]) -> str:
    return ", ".join(f"CAST(sum(coalesce({name}, 0)) AS BIGINT) AS {name}" for name in names)


SUMS = {
    CALLS: added_calls(EACH_CALL.format("true"), (*ALIKE, "known", "bin")) + " ORDER BY connection, time_ns",
    TRANSFERS: added_transfers(EACH_TRANSFER.format("true"), ALIKE) + " ORDER BY connection, time_ns",
}
"""What is kept of a capture, of its tables rpcs and chunks."""


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
"""What the captures of a data set number: a capture's numbers are shifted behind those of the captures before it."""
FORMAT = 1
"""Format of snapshots; rises if earlier programs would misread them."""
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
GROUP, OF_DETAILS = 32768, 2048
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
            stamps = [stamp(path) for path in self.paths]
        except (OSError, CaptureError):
            return False
        if not all(there.certain for there in stamps):
            return False
        return [tuple(there) for there in stamps] == list(zip(self.sizes, self.modified_ns, self.tags, strict=True))


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
    """Files of the data set, by path."""
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
        """Entries of captures that have tables and pass a condition, in the order of their numbers."""
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
        """Add a capture in one step, if it is not there. It replaces captures whose files were since rewritten or
        rotated into its own. Returns its entry in the data set.

        ``folder``: with its tables, numbered as in itself; none of what could not be read.  ``about``: is given the
        path of a data set of this capture alone, and gives its rows of ``STATEMENTS``.
        """
        while True:
            added = self._added(entry, folder, about)
            if added is not None:
                return added

    def _added(self, entry: CaptureEntry, folder: str, about: About) -> CaptureEntry | None:
        """Add a capture if it is not there; None if another writer was first."""
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
            if rows := [(*row, entry.host, entry.capture) for row in about(writer.folder)]:
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
            prefix = self.opened_by(writer.connection, snapshot)
            for (name, day), there in sorted(places.items()):
                for some in [there] if day in gone.values() else _mergeable(there, all_of):
                    some = sorted(some)
                    rows = view_of(name, some, snapshot, prefix, "file_row_number = true")
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
        group = OF_DETAILS if name == "details" else GROUP
        file = f"{name}/day={day}/{int(time.time()):x}-{token_hex(6)}.parquet"
        path = Path(self.folder, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as made:
            rows = write_query(self.connection, query, made, "parquet", name, group)
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


def view_of(name: str, files: Sequence[DataFile], snapshot: DataSetSnapshot, prefix: str, options: str = "") -> str:
    """FROM and WHERE of a query for the rows of a table in some files, with host, capture and day of each.

    ``place``: of the data set.
    """
    listed = ", ".join(quoted(f"{prefix}/{file.path}") for file in files)
    options = f"hive_partitioning = true, hive_types = {{'day': DATE}}{options and ', '}{options}"
    if any(file.columns != columns_of(name) for file in files):
        options += ", union_by_name = true"
    days = {file.place[1] for file in files}
    gone = ", ".join(quoted(capture) for capture, day in snapshot.gone.items() if day in days)
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
        value = f't."{column.name}"'
        counted = _counted(name, column.name)
        if counted is not None and column.type == "int":
            value = f"{value} + n.{counted}_before"
        elif name == "findings" and column.name == "frames":
            value = (
                f"array_to_string(list_transform(string_split({value}, ' '),"
                " lambda one: CAST(CAST(one AS BIGINT) + n.frames_before AS VARCHAR)), ' ')"
            )
        elif column.place_of:
            other = f't."{column.place_of}"' if column.type == "int" else path
            known = f't."{column.place_of}" IS NOT NULL AND len(n.paths) = 1'
            value = f"CASE WHEN {value} IS NULL AND {known} THEN {other} ELSE {value} END"
        columns.append(f'{value} AS "{column.name}"')
    rows = f"read_parquet({quoted(f'{folder}/{name}.parquet')})"
    query = f"SELECT {', '.join(columns)}, n.host, n.capture FROM {rows} AS t, {CAPTURES} AS n"
    if name == "places":
        query += (
            " UNION ALL SELECT frames_before + 1, frames_before + frames, paths[1], 1, host, capture"
            f" FROM {CAPTURES} WHERE len(paths) = 1 AND frames > 0"
        )
    return query


def _entry_of(row: Sequence[Any]) -> CaptureEntry:
    values: list[Any] = [tuple(value) if isinstance(value, list) else value for value in row]
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
            name: _entry_of([problem.get(field.name, field.default) for field in fields(CaptureEntry)])
            for name, problem in values["problems"].items()
        }
        return DataSetSnapshot(**values)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise CaptureError(f"{shown}: is no snapshot of a data set: {error}") from None


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
    prefix = data_set.opened_by(connection, snapshot)
    if not snapshot.of(CAPTURES):
        raise CaptureError(f"{path}: no capture in this data set could be read")
    for name, table in TABLES.items():
        if files := snapshot.of(name):
            connection.execute(f"CREATE VIEW {name} AS SELECT * {view_of(name, files, snapshot, prefix)}")
            continue
        types = {column.name: SQL_TYPES[column.type] for column in table.columns}
        types |= {"host": "VARCHAR", "capture": "VARCHAR", "day": "DATE"}
        listed = ", ".join(f"CAST(NULL AS {type}) AS {named(column)}" for column, type in types.items())
        connection.execute(f"CREATE VIEW {name} AS SELECT {listed} WHERE false")
    if files := snapshot.of(STATEMENTS):
        connection.execute(f"CREATE VIEW {STATEMENTS} AS SELECT * {view_of(STATEMENTS, files, snapshot, prefix)}")
    else:
        connection.execute(f"CREATE TABLE {STATEMENTS} ({STATEMENT_COLUMNS}, day DATE)")
    for name, query in SUMS.items():
        files = [data_file for data_file in snapshot.of(name) if data_file.columns == columns_of(name)]
        rows = view_of(name, files, snapshot, prefix) if files else f"FROM ({query}) WHERE false"
        connection.execute(f"CREATE VIEW {name} AS SELECT * {rows}")
    make_captures(connection, [*snapshot.problems.values()], "problems")
    rows = view_of(CAPTURES, snapshot.of(CAPTURES), snapshot, prefix)
    connection.execute(
        f"CREATE VIEW entries AS SELECT * {rows};"
        f"CREATE VIEW captures AS SELECT {LISTED}, day FROM entries UNION ALL SELECT {LISTED}, NULL FROM problems;"
        f"CREATE VIEW sources AS SELECT {SOURCES} FROM entries;"
        f"CREATE TABLE metadata AS SELECT max(program_version) AS program_version, {VERSION} AS schema_version,"
        " string_agg(host || ' ' || capture || ': ' || damage, '; ') FILTER (damage <> '') AS damage,"
        " CAST(sum(frames) AS BIGINT) AS frames, min(first_time_ns) AS first_time_ns,"
        " max(last_time_ns) AS last_time_ns FROM entries"
    )
    return [f"{prefix}/{file}" for file in snapshot.files]


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
        if some and (row is None or sum(capture[3] for capture in some) + row[3] > rpcs):
            names = ", ".join(quoted(capture[0]) for capture in some)
            days, hosts = ([quoted(str(capture)) for capture in column] for column in [*zip(*some, strict=True)][1:3])
            yield CaptureGroup(
                f"(day BETWEEN {days[0]} AND {days[-1]} AND host BETWEEN {min(hosts)} AND {max(hosts)}"
                f" AND capture IN ({names}))",
                sum(capture[3] for capture in some), len(some),
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
    schema_version = origin(database).schema_version
    if schema_version != VERSION:
        more = "" if schema_version > VERSION else ": save them again"
        raise CaptureError(f"{path}: tables of version {schema_version}; this program reads version {VERSION}{more}")
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
    """Say that the tables in ``path`` lack something, and which captures have it."""
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
    captures = []
    for source, size in rows:
        beside = os.path.join(os.path.dirname(os.path.abspath(path)), source)
        there = source if is_url(source) else next(filter(os.path.isfile, (source, beside)), None)
        if there is None:
            raise CaptureError(f"{lacking}; they are in {source}, which is not there")
        if size_of(there) != size:
            raise CaptureError(f"{lacking}; they were in {there}, which has changed since")
        captures.append(there)
    sources = listed(captures)
    if FILTER in found_otherwise:
        raise CaptureError(f"{lacking}, and was saved with a filter: give both filters to {sources}")
    if RECOGNITION in found_otherwise:
        words = json.loads(found_otherwise[RECOGNITION])
        raise CaptureError(f"{lacking}, and was saved with {words}: give that to {sources}")
    return tuple(captures)


def check_target(path: str, captures: Sequence[str]) -> None:
    """Raise CaptureError where nothing should be saved: before a capture is read."""
    if path.endswith(DATABASE):
        refuse_url(path)
        refuse_inputs(path, captures)
        return
    check_folder(path, captures, f"; a database ends in {DATABASE[0]}")
    need("pyarrow")


def check_folder(path: str, captures: Sequence[str], hint: str = "") -> None:
    """Raise CaptureError where ``path`` cannot become a folder of tables: it must be new, or empty."""
    refuse_url(path)
    refuse_inputs(path, captures)
    if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise CaptureError(f"{path}: is there, and is no empty folder{hint}")
    if not Path(path).absolute().parent.is_dir():
        raise CaptureError(f"{Path(path).parent}: no such directory")


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
