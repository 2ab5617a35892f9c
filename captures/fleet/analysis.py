"""One capture of a data set: analysed into tables, which appear in the data set together."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rdmascope.dissect.records.tables import TABLES, VERSION
from rdmascope.dissect.rpcrdma.analyzer import Options

from ..errors import CaptureError
from ..read.remote import FileStamp, RemoteFile, same_contents, stamp
from ..read.urls import is_url
from ..session.session import Session
from ..tables.database import duckdb
from ..tables.saved_tables import ManifestEntry, entries, entry_of, entry_path, partition, write_entry
from ..write.stale_tempdirs import FolderOfProcess
from ..write.table_export import tables_of
from .units import CaptureUnit

WORK = "unfinished"
"""Folder of a data set in which tables are made."""
_BLOCK = 1 << 20
_ID = 24
"""Hexadecimal digits."""


def capture_id(paths: Sequence[str], options: str, stamps: Sequence[FileStamp], schema_version: int = VERSION) -> str:
    """Of the contents of a capture, and how it is analysed.

    What is read from elsewhere is not read twice where its store says when the contents are others.
    """
    total = hashlib.sha256(f"{schema_version} {options}".encode())
    for path, there in zip(paths, stamps, strict=True):
        one = hashlib.sha256()
        if is_url(path) and there.certain:
            one.update(same_contents(path, there).encode())
        else:
            with RemoteFile(path) if is_url(path) else open(path, "rb") as file:
                while block := file.read(_BLOCK):
                    one.update(block)
        total.update(one.digest())
    return total.hexdigest()[:_ID]


def _begun(unit: CaptureUnit, options: Options) -> ManifestEntry:
    """The entry of a capture before it is analysed; it has a problem where a file cannot be opened."""
    words, problem = described(options), ""
    stamps = [FileStamp(None, None)] * len(unit.paths)
    try:
        stamps = _stamps(unit.paths)
        capture = capture_id(unit.paths, words, stamps)
    except (OSError, CaptureError) as error:
        problem = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        capture = hashlib.sha256("\0".join((words, *unit.paths)).encode(errors="surrogateescape")).hexdigest()[:_ID]
    return ManifestEntry(
        capture, unit.host, unit.paths, tuple(one.size for one in stamps), tuple(one.modified_ns for one in stamps),
        words, version("rdmascope"), VERSION, problem, tags=tuple(one.tag for one in stamps),
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


def changed(entry: ManifestEntry) -> str:
    """Why the files of a capture are not those that were analysed; '' where they are.

    Where sizes and times do not tell, their contents do.
    """
    if entry.unchanged():
        return ""
    try:
        stamps = _stamps(entry.paths)
        same_sizes = [one.size for one in stamps] == [*entry.sizes]
        if same_sizes and capture_id(entry.paths, entry.options, stamps, entry.schema_version) == entry.capture:
            return ""
    except OSError as error:
        return f"{error.filename}: {'no such file' if isinstance(error, FileNotFoundError) else error.strerror}"
    except CaptureError as error:
        return str(error)
    more = f" and {len(entry.paths) - 1} more" if len(entry.paths) > 1 else ""
    return f"{entry.paths[0]}{more}: not what was analysed any more"


def analyse(unit: CaptureUnit, data_set: str, options: Options) -> ManifestEntry:
    """Analyse a capture whose contents the data set does not have; the entry is in the manifest then.

    May be called again, and by several processes at once: what is there already stays.  What cannot be read at all gets
    an entry that says so, and no tables.
    """
    entry = _begun(unit, options)
    capture = entry.capture
    known = entry_of(data_set, capture)
    if known is not None and not known.problem:
        return known
    if entry.problem:
        write_entry(data_set, entry)
        return entry
    Path(data_set, WORK).mkdir(parents=True, exist_ok=True)
    with FolderOfProcess(str(Path(data_set, WORK))) as made:
        folder = made / "tables"
        try:
            session = Session(unit.paths, options)
            tables_of(session, "parquet", str(folder), within=str(made))
            if not session.analyzer.packets:
                session.check()
            if any(map(is_url, unit.paths)) and not _is_of(entry, _stamps(unit.paths)):
                raise CaptureError(f"{unit.paths[0]}: changed while it was read")
        except CaptureError as error:
            entry = _changed(entry, problem=str(error))
        else:
            entry = _counted(entry, session, folder)
            for name in TABLES:
                _move(folder / f"{name}.parquet", partition(data_set, name, unit.host, capture))
    note(data_set, entry)
    return entry


def failed(unit: CaptureUnit, data_set: str, options: Options, problem: str) -> ManifestEntry:
    """Note that a capture could not be analysed, where that ended the process that did."""
    entry = _changed(_begun(unit, options), problem=problem)
    write_entry(data_set, entry)
    return entry


def _is_of(entry: ManifestEntry, stamps: Sequence[FileStamp]) -> bool:
    """Whether an entry has these sizes, times and tags."""
    return [tuple(one) for one in stamps] == list(zip(entry.sizes, entry.modified_ns, entry.tags, strict=True))


def _changed(entry: ManifestEntry, **values: object) -> ManifestEntry:
    from dataclasses import replace

    return replace(entry, **values)  # type: ignore[arg-type]


def _counted(entry: ManifestEntry, session: Session, folder: Path) -> ManifestEntry:
    extent = session.extent()
    highest = {}
    for name, table, column in (
        ("rpcs", "rpcs", "number"), ("ended", "rpcs", "ended"), ("connections", "connections", "number"),
        ("files", "files", "number"),
    ):  # fmt: skip
        query = f"SELECT coalesce(max({column}), 0) FROM read_parquet(?)"
        ((highest[name],),) = duckdb.execute(query, [str(folder / f"{table}.parquet")]).fetchall()
    return _changed(
        entry, damage=str(session.damage or ""), first_time_ns=extent.first_time, last_time_ns=extent.last_time,
        frames=extent.frames, **highest,
    )  # fmt: skip


def _move(table: Path, folder: Path) -> None:
    """Into the data set: at once, in place of what an unfinished analysis left there."""
    folder.mkdir(parents=True, exist_ok=True)
    table.replace(folder / table.name)


def note(data_set: str, entry: ManifestEntry) -> None:
    """Write an entry, in place of those of captures of which its files are what they became: rewritten, or rotated
    further."""
    for one in entries(data_set):
        if one.capture != entry.capture and set(one.paths) <= set(entry.paths):
            entry_path(data_set, one.capture).unlink(missing_ok=True)
            for name in TABLES:
                shutil.rmtree(partition(data_set, name, one.host, one.capture), ignore_errors=True)
    write_entry(data_set, entry)
