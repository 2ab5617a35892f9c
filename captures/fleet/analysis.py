"""One capture of a data set: analysed into tables, which appear in the data set together."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

import duckdb

from rdmascope.dissect.records.tables import TABLES, VERSION
from rdmascope.dissect.rpcrdma.analyzer import Options

from ..data_set import ManifestEntry, entries, entry_path, partition, write_entry
from ..errors import CaptureError
from ..session import Session
from ..table_export import tables_of
from .units import CaptureUnit

WORK = "unfinished"
"""Folder of a data set in which tables are made."""
_BLOCK = 1 << 20


def capture_id(unit: CaptureUnit, options: str) -> str:
    """Of the contents of a capture, and how it is analysed."""
    total = hashlib.sha256(f"{VERSION} {options}".encode())
    for path in unit.paths:
        one = hashlib.sha256()
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                one.update(block)
        total.update(one.digest())
    return total.hexdigest()[:24]


def described(options: Options) -> str:
    """The options that change what a capture says."""
    return f"ports {' '.join(map(str, sorted(options.ports)))}{' as rpcrdma' if options.force else ''}"


def analyse(unit: CaptureUnit, data_set: str, options: Options) -> ManifestEntry:
    """Analyse a capture whose contents the data set does not have; the entry is in the manifest then.

    May be called again, and by several processes at once: what is there already stays.  What cannot be read at all gets
    an entry that says so, and no tables.
    """
    words = described(options)
    stats = [os.stat(path) for path in unit.paths]
    capture = capture_id(unit, words)
    entry = ManifestEntry(
        capture, unit.host, unit.paths, tuple(one.st_size for one in stats),
        tuple(one.st_mtime_ns for one in stats), words, version("rdmascope"), VERSION,
    )  # fmt: skip
    known = next((one for one in entries(data_set) if one.capture == capture and not one.problem), None)
    if known is not None:
        return known
    Path(data_set, WORK).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{capture}-", dir=Path(data_set, WORK)) as made:
        folder = Path(made, "tables")
        try:
            session = Session(unit.paths, options)
            tables_of(session, "parquet", str(folder), within=made)
            if not session.analyzer.packets:
                session.check()
        except CaptureError as error:
            entry = _changed(entry, problem=str(error))
        else:
            entry = _counted(entry, session, folder)
            for name in TABLES:
                _move(folder / f"{name}.parquet", partition(data_set, name, unit.host, capture))
    _forget_earlier(data_set, entry)
    write_entry(data_set, entry)
    return entry


def failed(unit: CaptureUnit, data_set: str, options: Options, problem: str) -> ManifestEntry:
    """Note that a capture could not be analysed, where that ended the process that did."""
    stats = [os.stat(path) for path in unit.paths]
    words = described(options)
    entry = ManifestEntry(
        capture_id(unit, words), unit.host, unit.paths, tuple(one.st_size for one in stats),
        tuple(one.st_mtime_ns for one in stats), words, version("rdmascope"), VERSION, problem,
    )  # fmt: skip
    write_entry(data_set, entry)
    return entry


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


def _forget_earlier(data_set: str, entry: ManifestEntry) -> None:
    """Captures of which these files are what they became: rewritten, or rotated further."""
    for one in entries(data_set):
        if one.capture != entry.capture and set(one.paths) <= set(entry.paths):
            entry_path(data_set, one.capture).unlink(missing_ok=True)
            for name in TABLES:
                shutil.rmtree(partition(data_set, name, one.host, one.capture), ignore_errors=True)
