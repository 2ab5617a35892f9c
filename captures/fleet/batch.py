"""The captures of a fleet: which files are one capture and of which host, their analysis by several processes or the
workers of a Dask cluster, and the captures behind a data set, for what its tables do not hold.

Dask is loaded here and nowhere else.
"""

from __future__ import annotations

import glob
import hashlib
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from multiprocessing.connection import Connection as Pipe, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from rdmascope.dissect import plugged
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.records.schema import Record, record
from rdmascope.dissect.records.tables import VERSION
from rdmascope.dissect.rpcrdma.analyzer import Options
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.units import plural

from ..errors import CaptureError, need, signals_to, words_of
from ..plugins import FILES, load_plugins
from ..read.merge import RING, NumberOffset, short_names
from ..read.remote import (
    HTTP,
    FileStamp,
    RemoteFile,
    is_url,
    local,
    matching,
    refuse_url,
    same_contents,
    scheme,
    stamp,
    without_query,
)
from ..session.session import Session
from ..tables.database import duckdb
from ..tables.fleet_statements import statement_rows
from ..tables.saved import is_data_set
from ..tables.saved_tables import FEW_FILES, WORK, CaptureEntry, DataSet, open_saved
from ..write.stale_tempdirs import FolderOfProcess, remove_left
from ..write.table_export import tables_of

PATIENCE = 30
"""Seconds in which a scheduler has to answer."""


def on_cluster(units: Sequence[CaptureUnit], data_set: str, options: Options, address: str) -> Iterator[BatchCapture]:
    """Analyse captures as ``batch`` does, on the workers of the cluster whose scheduler is at ``address``. They must
    reach captures and data set under the same paths or URLs. Raises CaptureError if there is no such cluster.
    """
    need("distributed")
    prepare(data_set)
    data_set = data_set if is_url(data_set) else os.path.abspath(data_set)
    known, others = divided(units, data_set, options)
    yield from known
    yield from compacted(_by_workers(others, data_set, options, address), data_set)


def _by_workers(units: Sequence[CaptureUnit], data_set: str, options: Options, address: str) -> Iterator[BatchCapture]:
    from distributed import Client, as_completed

    try:
        client = Client(address, timeout=PATIENCE)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError) as error:
        raise CaptureError(f"{address}: no Dask scheduler answers: {error}") from None
    with client:
        plugins = [Path(file) for file in os.environ.get(FILES, "").split(os.pathsep) if file]
        texts = [(file.name, file.read_bytes()) for file in plugins]
        given = {
            client.submit(_analysed_apart, texts, unit, data_set, options, pure=False, retries=ATTEMPTS - 1): unit
            for unit in units
        }
        reported: set[str] = set()
        for future in as_completed(list(given)):  # type: ignore[no-untyped-call]
            unit, problem = given.pop(future), future.exception()
            if problem is None:
                yield _finished(unit, *future.result(), reported=reported)
            else:
                words = f"{unit.paths[0]}: analysing it failed on the cluster: {type(problem).__name__}: {problem}"
                yield BatchCapture(unit, failed(unit, data_set, options, words), False)


def _finished(unit: CaptureUnit, entry: CaptureEntry, failures: list[str], *, reported: set[str]) -> BatchCapture:
    """What came back of a capture; plug-ins' failures are told once."""
    for words in set(failures) - reported:
        plugged.report[-1](words)
    reported.update(failures)
    return BatchCapture(unit, entry, frozenset(entry.paths) != frozenset(unit.paths))


def _analysed_apart(
    plugins: list[tuple[str, bytes]], unit: CaptureUnit, data_set: str, options: Options
) -> tuple[CaptureEntry, list[str]]:
    """On a worker: the entry, and which plug-ins failed.

    ``plugins`` are names and texts of files.  An interpreter of its own loads them: in the worker they would stay, and
    judge for its next client.
    """
    if not plugins:
        failures: list[str] = []
        load_quietly(failures)  # Those that are installed where the worker runs.
        return analyse(unit, data_set, options), failures
    given = pickle.dumps((plugins, unit, data_set, options))
    program = [sys.executable, "-c", f"from {__name__} import _alone; _alone()"]
    done = subprocess.run(program, input=given, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise RuntimeError(f"the interpreter with plug-ins ended with status {done.returncode}")
    result: tuple[CaptureEntry, list[str]] | Exception = pickle.loads(done.stdout)
    if isinstance(result, Exception):
        raise result
    return result


def _alone() -> None:
    """What ``_analysed_apart`` begins: reads what it is given, and writes what it found or what was raised."""
    answer = os.dup(1)
    os.dup2(2, 1)  # A plug-in may print.
    plugins, unit, data_set, options = pickle.load(sys.stdin.buffer)
    failures: list[str] = []
    result: tuple[CaptureEntry, list[str]] | Exception
    try:
        with FolderOfProcess() as folder:
            files = [folder / str(number) / name for number, (name, _) in enumerate(plugins)]
            for file, (_, text) in zip(files, plugins, strict=True):
                file.parent.mkdir()
                file.write_bytes(text)
            load_quietly(failures, map(str, files))
            result = analyse(unit, data_set, options), failures
    except Exception as error:
        result = error
    with os.fdopen(answer, "wb") as output:
        pickle.dump(result, output)


CAPTURES = "*.pcap*"
"""In a folder and those below it."""
_ROTATED = re.compile(r"(?P<name>.*\.(?:pcapng|pcap|cap))(?P<number>\d*)(?P<packed>\.(?:gz|zst|xz|lz4|bz2))?")
"""tcpdump's names with -C: the first as given, then with a number behind."""
_SUFFIXES = re.compile(r"\.(?:pcapng|pcap|cap)\d*(?:\.\w+)?$")


class CaptureUnit(NamedTuple):
    """Files that are one capture."""

    host: str
    """The first folder below that of the pattern; of files that are in it, their name without what is rotated."""
    paths: tuple[str, ...]
    """In the order of their names; they are read in the order of time."""


def units(patterns: Sequence[str]) -> list[CaptureUnit]:
    """The captures that match.  Raises CaptureError for a pattern that nothing matches."""
    captures: dict[tuple[str, str], list[str]] = {}
    for pattern in patterns:
        pattern, paths = matching(pattern, CAPTURES) if is_url(pattern) else _local(local(pattern))
        if not paths:
            raise CaptureError(f"{pattern}: no file matches")
        base = _base(pattern)
        for path in paths:
            name = rotated_name(path)
            folder, below, _ = path.removeprefix(base).lstrip("/").partition("/")
            host = folder if below else _SUFFIXES.sub("", os.path.basename(without_query(name)))
            known = captures.setdefault((host, name), [])
            if path not in known:
                known.append(path)
    return [CaptureUnit(host, tuple(sorted(paths, key=_order))) for (host, _), paths in sorted(captures.items())]


def _local(pattern: str) -> tuple[str, list[str]]:
    if os.path.isdir(pattern):
        pattern = os.path.join(glob.escape(pattern), "**", CAPTURES)
    pattern = os.path.abspath(pattern)
    return pattern, [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]


def rotated_name(path: str) -> str:
    """What the files of a rotating set have in common: of dumpcap's ring buffers, and of tcpdump's -C."""
    if ring := RING.match(path):
        return ring[1]
    rotated = _ROTATED.fullmatch(path)
    return path if rotated is None else f"{rotated['name']}{rotated['packed'] or ''}"


def _order(path: str) -> tuple[int, str]:
    rotated = _ROTATED.fullmatch(path)
    return int(rotated["number"] or 0) if rotated is not None else 0, path


def _base(pattern: str) -> str:
    """The folder before the first wildcard."""
    parts = without_query(pattern).split("/")
    fixed = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return "/".join(parts[:fixed]) + "/"


_BLOCK = 1 << 20
_ID = 24
"""Hexadecimal digits of a capture's name in the data set."""


def capture_id(paths: Sequence[str], options: str, stamps: Sequence[FileStamp], schema_version: int = VERSION) -> str:
    """The hash by which a capture is known: of its contents, and of how it is analysed.

    What is read from elsewhere is not read twice where its store says when the contents are others.
    """
    total = hashlib.sha256(f"{schema_version} {options}".encode())
    for path, there in zip(paths, stamps, strict=True):
        contents = hashlib.sha256()
        if is_url(path) and there.certain:
            contents.update(same_contents(path, there).encode())
        else:
            with RemoteFile(path) if is_url(path) else open(path, "rb") as file:
                while block := file.read(_BLOCK):
                    contents.update(block)
        total.update(contents.digest())
    return total.hexdigest()[:_ID]


def _begun(unit: CaptureUnit, options: Options) -> CaptureEntry:
    """The entry of a capture before it is analysed; it has a problem where a file cannot be opened."""
    words, problem = described(options), ""
    stamps = [FileStamp(None, None)] * len(unit.paths)
    try:
        stamps = _stamps(unit.paths)
        capture = capture_id(unit.paths, words, stamps)
    except (OSError, CaptureError) as error:
        problem = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        capture = hashlib.sha256("\0".join((words, *unit.paths)).encode(errors="surrogateescape")).hexdigest()[:_ID]
    return CaptureEntry(
        capture, unit.host, unit.paths,
        tuple(stamp.size for stamp in stamps), tuple(stamp.modified_ns for stamp in stamps),
        tuple(stamp.tag for stamp in stamps), words,
        version("rdmascope"), VERSION, problem,
    )  # fmt: skip


def _stamps(paths: Sequence[str]) -> list[FileStamp]:
    return [stamp(path, fresh=True) for path in paths]


def described(options: Options) -> str:
    """The options that change what a capture says."""
    return f"ports {' '.join(map(str, sorted(options.ports)))}{' as rpcrdma' if options.force else ''}"


def options_of(words: str) -> Options:
    """The options that ``described`` has described."""
    ports = (int(word) for word in words.split() if word.isdigit())
    return Options(ports=frozenset(ports), force=words.endswith(" as rpcrdma"))


def changed(entry: CaptureEntry) -> str:
    """Why the files of a capture are not those that were analysed; '' where they are.

    Where sizes and times do not tell, their contents do.
    """
    if entry.unchanged():
        return ""
    try:
        stamps = _stamps(entry.paths)
        same_sizes = [stamp.size for stamp in stamps] == [*entry.sizes]
        if same_sizes and capture_id(entry.paths, entry.options, stamps, entry.schema_version) == entry.capture:
            return ""
    except OSError as error:
        return f"{error.filename}: {'no such file' if isinstance(error, FileNotFoundError) else error.strerror}"
    except CaptureError as error:
        return str(error)
    more = f" and {len(entry.paths) - 1} more" if len(entry.paths) > 1 else ""
    return f"{entry.paths[0]}{more}: not what was analysed any more"


def analyse(unit: CaptureUnit, data_set: str, options: Options) -> CaptureEntry:
    """Analyse a capture whose contents the data set does not have, and add it; gives the entry that it has then.

    May be called again, and by several processes at once, on any machine: what is there already stays.  What cannot be
    read at all gets an entry that says so, and no tables.
    """
    entry, target = _begun(unit, options), DataSet(data_set)
    if entry.problem:
        return target.add(entry)
    if known := target.entries(where="capture = ?", of=[entry.capture]):
        return known[0]
    with target.work_folder() as made:
        folder = made / "tables"
        try:
            session = Session(unit.paths, options)
            tables_of(session, "parquet", str(folder), within=str(made))
            if not session.analyzer.packets:
                session.check()
            if any(map(is_url, unit.paths)) and not _is_of(entry, _stamps(unit.paths)):
                raise CaptureError(f"{unit.paths[0]}: changed while it was read")
        except CaptureError as error:
            return target.add(replace(entry, problem=str(error)))
        return target.add(_counted(entry, session, folder), str(folder), statement_rows)


def failed(unit: CaptureUnit, data_set: str, options: Options, problem: str) -> CaptureEntry:
    """Note that a capture could not be analysed, where that ended the process that did."""
    return DataSet(data_set).add(replace(_begun(unit, options), problem=problem))


def _is_of(entry: CaptureEntry, stamps: Sequence[FileStamp]) -> bool:
    """Whether an entry has these sizes, times and tags."""
    return [tuple(stamp) for stamp in stamps] == list(zip(entry.sizes, entry.modified_ns, entry.tags, strict=True))


def _counted(entry: CaptureEntry, session: Session, folder: Path) -> CaptureEntry:
    extent = session.extent()
    highest = {}
    for name, table, column in (
        ("rpcs", "rpcs", "number"), ("ended", "rpcs", "ended"), ("connections", "connections", "number"),
        ("files", "files", "number"),
    ):  # fmt: skip
        query = f"SELECT coalesce(max({column}), 0) FROM read_parquet(?)"
        ((highest[name],),) = duckdb.execute(query, [str(folder / f"{table}.parquet")]).fetchall()
    return replace(
        entry, damage=str(session.damage or ""), first_time_ns=extent.first_time, last_time_ns=extent.last_time,
        frames=extent.frames, **highest,
    )  # fmt: skip


ATTEMPTS = 2
"""At a capture on which a process ends without a result."""


class BatchCapture(NamedTuple):
    """What became of a capture."""

    unit: CaptureUnit
    entry: CaptureEntry
    known: bool
    """The data set had it."""

    def record(self) -> Record:
        """As JSON."""
        entry = self.entry
        return record(
            "batch_capture",
            capture=entry.capture,
            host=entry.host,
            files=list(self.unit.paths),
            known=self.known,
            problem=entry.problem or None,
            damage=entry.damage or None,
            frames=entry.frames,
            rpcs=entry.rpcs,
            connections=entry.connections,
        )


def prepare(data_set: str) -> None:
    """Make a data set where there is none.  Raises CaptureError where something else is there, or DuckDB is not."""
    need("duckdb")
    need("pyarrow")
    if scheme(data_set) in HTTP:
        refuse_url(data_set)
    if not is_data_set(data_set):
        target = DataSet(data_set)
        if os.path.isfile(data_set) or target.store.files():
            raise CaptureError(f"{data_set}: is there, and is no data set")
        target.begin()
    if not is_url(data_set):
        remove_left(str(Path(data_set, WORK)))


def divided(
    units: Sequence[CaptureUnit], data_set: str, options: Options
) -> tuple[list[BatchCapture], list[CaptureUnit]]:
    """Captures that the data set has, as their files' names, sizes and times say, and the others."""
    entries = DataSet(data_set).known([path for unit in units for path in unit.paths])
    there = {frozenset(other.paths): other for other in entries}
    known, others = [], []
    for unit in units:
        entry = there.get(frozenset(unit.paths))
        if entry is not None and not entry.problem and entry.options == described(options) and entry.unchanged():
            known.append(BatchCapture(unit, entry, True))
        else:
            others.append(unit)
    return known, others


def compacted(captures: Iterable[BatchCapture], data_set: str) -> Iterator[BatchCapture]:
    """Pass captures on; once there are enough small files of the days of new ones, merge them."""
    days: list[str] = []
    for capture in captures:
        yield capture
        if not (capture.known or capture.entry.problem):
            days.append(capture.entry.day)
        if len(days) == FEW_FILES:
            DataSet(data_set).compact({*days})
            days.clear()


def batch(units: Sequence[CaptureUnit], data_set: str, options: Options, jobs: int) -> Iterator[BatchCapture]:
    """Analyse captures with so many processes; each as it is done, first those that are known."""
    prepare(data_set)
    known, others = divided(units, data_set, options) if units else ([], [])
    yield from known
    yield from compacted(_analysed(others, data_set, options, jobs), data_set)


WATCHED = 5.0
"""Seconds from one look at a ring to the next."""
QUIET = 60.0
"""Seconds for which the newest file of a ring does not change, behind which it counts as whole."""


def watched(
    patterns: Sequence[str],
    data_set: str,
    options: Options,
    jobs: int,
    stopped: Callable[[float], bool],
    clock: Callable[[], float] = time.time,
) -> Iterator[BatchCapture]:
    """Analyse files as they are whole: each file by itself, once a later one of its ring is there, or it is quiet.

    ``stopped``: is given how many seconds to wait, and says whether to end.  ``clock``: seconds since the Unix epoch.
    """
    done: set[tuple[str, int, int]] = set()
    while True:
        whole = []
        for unit in _rings(patterns):
            for at, path in enumerate(unit.paths):
                with suppress(OSError):  # A ring drops its oldest file.
                    there = os.stat(path)
                    key = path, there.st_size, there.st_mtime_ns
                    later = at + 1 < len(unit.paths)
                    if key not in done and (later or clock() - there.st_mtime > QUIET):
                        done.add(key)
                        whole.append(CaptureUnit(unit.host, (path,)))
        yield from batch(whole, data_set, options, jobs)
        if stopped(WATCHED):
            return


def _rings(patterns: Sequence[str]) -> list[CaptureUnit]:
    """The capture rings present now, each with its files in the order in which they are written."""
    captures = []
    for pattern in patterns:
        refuse_url(pattern)
        with suppress(CaptureError):  # None is there yet.
            captures += units([pattern])
    return [unit._replace(paths=tuple(sorted(unit.paths, key=_written_at))) for unit in captures]


def _written_at(path: str) -> tuple[int, tuple[int, str]]:
    try:
        return os.stat(path).st_mtime_ns, _order(path)
    except OSError:
        return 0, _order(path)


def _analysed(units: Sequence[CaptureUnit], data_set: str, options: Options, jobs: int) -> Iterator[BatchCapture]:
    waiting = deque((unit, 1) for unit in units)
    context = multiprocessing.get_context("spawn")
    running: dict[int, tuple[SpawnProcess, Pipe, CaptureUnit, int]] = {}
    reported: set[str] = set()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                unit, attempt = waiting.popleft()
                result, given = context.Pipe(duplex=False)
                process = context.Process(target=_analyse, args=(given, unit, data_set, options))
                with _ctrl_c_is_ours():
                    process.start()
                given.close()
                running[process.sentinel] = process, result, unit, attempt
            for sentinel in wait([*running]):
                assert isinstance(sentinel, int)
                process, result, unit, attempt = running.pop(sentinel)
                process.join()
                received = _received(result)
                if received is not None:
                    yield _finished(unit, *received, reported=reported)
                elif attempt < ATTEMPTS:
                    waiting.append((unit, attempt + 1))
                else:
                    problem = f"{unit.paths[0]}: analysing it ended with status {process.exitcode}, {ATTEMPTS} times"
                    yield BatchCapture(unit, failed(unit, data_set, options, problem), False)
    finally:
        for process, *_ in running.values():
            process.terminate()
            process.join()
        if not is_url(data_set):
            remove_left(str(Path(data_set, WORK)))


@contextmanager
def _ctrl_c_is_ours() -> Iterator[None]:
    """Processes that are begun here do not get it: this one ends them."""
    takes = threading.current_thread() is threading.main_thread()
    with signals_to(signal.SIG_IGN, *([signal.SIGINT] if takes else [])):
        yield


def load_quietly(failures: list[str], files: Iterable[str] = ()) -> None:
    """Plug-ins, in a process that another one began, which has loaded them and said what does not load; what fails from
    now on is added to ``failures``."""
    plugged.report[:] = [lambda words: None]
    load_plugins(files)
    plugged.report[:] = [failures.append]


def _analyse(given: Pipe, unit: CaptureUnit, data_set: str, options: Options) -> None:
    """In a process of its own; an error of the program costs this capture only."""
    failures: list[str] = []
    try:
        load_quietly(failures)
        entry = analyse(unit, data_set, options)
    except Exception as error:
        words = words_of(error) or f"internal error, please report it: {type(error).__name__}: {error}"
        try:
            entry = failed(unit, data_set, options, f"{unit.paths[0]}: {words}")
        except CaptureError as unnoted:
            entry = replace(_begun(unit, options), problem=str(unnoted))
    given.send((entry, failures))


def _received(result: Pipe) -> tuple[CaptureEntry, list[str]] | None:
    """What a process gave that has ended, and which plug-ins failed there."""
    with result:
        try:
            sent: tuple[CaptureEntry, list[str]] | None = result.recv()
        except EOFError:
            return None
    return sent


@dataclass(frozen=True, slots=True)
class CaptureBehind:
    """A capture whose tables are in a data set."""

    entry: CaptureEntry
    before: NumberOffset

    @property
    def paths(self) -> tuple[str, ...]:
        return self.entry.paths

    @property
    def options(self) -> Options:
        """The options that the capture was analysed with."""
        return options_of(self.entry.options)

    @property
    def name(self) -> str:
        """'web1: a.pcap and 2 more files'."""
        others = len(self.paths) - 1
        return f"{self.entry.host}: {self.before.names[self.paths[0]]}" + (
            f" and {plural(others, 'more file')}" if others else ""
        )

    def numbers(self, noun: str) -> range:
        """The numbers that its rows of a table have over all captures."""
        noun = {"packets": "frames"}.get(noun, noun)
        before = self.entry.before[noun]
        return range(before + 1, before + getattr(self.entry, noun) + 1)

    @property
    def frames(self) -> tuple[int, int]:
        """Numbers of the first and the last."""
        numbers = self.numbers("packets")
        return numbers.start, numbers.stop - 1

    def has_rpc(self, number: int) -> bool:
        return number in self.numbers("rpcs")

    def problem(self) -> str:
        """Why it cannot be read as it was; '' where it can."""
        return changed(self.entry)


class CommonConnections:
    """Which capture counts a connection that several captures of the same time have: the first."""

    def __init__(self) -> None:
        self._seen: dict[frozenset[object], list[CaptureBehind]] = {}

    def first_seen(self, capture: CaptureBehind) -> Callable[[Connection], bool]:
        """Whether connections of the next capture are not in one before that was made at the same time."""
        entry = capture.entry

        def own(connection: Connection) -> bool:
            key = frozenset((endpoint.address, endpoint.qpn, endpoint.port) for endpoint in connection.endpoints)
            seen = self._seen.setdefault(key, [])
            if capture not in seen:
                seen.append(capture)
            first = next(
                behind
                for behind in seen
                if behind.entry.first_time_ns <= entry.last_time_ns and entry.first_time_ns <= behind.entry.last_time_ns
            )
            return first is capture

        return own


class CapturesBehind:
    """The captures behind a data set, in the order of their numbers."""

    def __init__(self, path: str) -> None:
        """Raises CaptureError for a data set that cannot be read."""
        self.path = self.name = path
        entries = DataSet(path).entries()
        if not entries:
            raise CaptureError(f"{path}: no capture in this data set could be read")
        names = short_names([path for entry in entries for path in entry.paths])
        first_time = min(entry.first_time_ns for entry in entries)
        self.captures = [
            CaptureBehind(
                entry,
                NumberOffset(
                    entry.frames_before,
                    entry.connections_before,
                    entry.rpcs_before,
                    entry.files_before,
                    first_time,
                    names,
                ),
            )
            for entry in entries
        ]

    def holding(self, noun: str, number: int) -> CaptureBehind:
        """The capture that has something of this number of its table; raises CaptureError where none has."""
        for capture in self.captures:
            if number in capture.numbers(noun):
                return capture
        raise CaptureError(f"{self.name}: no {noun.removesuffix('s')} {number}")

    def divided(self, noun: str, numbers: Collection[int]) -> dict[str, frozenset[int]]:
        """By capture, as the table captures names it: which of these numbers of a table it has."""
        there = [behind.numbers(noun) for behind in self.captures]
        by_capture: dict[str, list[int]] = {}
        for number in numbers:
            at = bisect_left(there, number, key=lambda span: span.stop - 1)
            if at < len(there) and number in there[at]:
                by_capture.setdefault(self.captures[at].entry.capture, []).append(number)
        return {capture: frozenset(those) for capture, those in by_capture.items()}

    @property
    def frames(self) -> int:
        """The highest number of one."""
        return max(capture.frames[1] for capture in self.captures)

    @property
    def rpcs(self) -> int:
        """The highest number of an RPC."""
        return max(capture.numbers("rpcs").stop - 1 for capture in self.captures)

    def with_xids(self, xids: Collection[int]) -> dict[int, list[int]]:
        """The numbers of the RPCs that have these XIDs, in the order in which they ended, as the tables have them."""
        by_xid: dict[int, list[int]] = {}
        if not xids:
            return by_xid
        with open_saved(self.path) as database:
            query = "SELECT xid, number FROM rpcs WHERE list_contains(?, xid) ORDER BY ended"
            for xid, number in database.connection.execute(query, [[*xids]]).fetchall():
                by_xid.setdefault(xid, []).append(number)
        return by_xid
