"""A data set at a URL: filled capture by capture, and read from a copy on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.analyzer import Options
from rdmascope.dissect.units import size

from ..errors import CaptureError
from ..read.remote import RemoteFolder
from ..read.urls import HTTP, is_url, refuse_url, scheme
from ..tables.saved import MANIFEST, copies
from ..tables.saved_tables import ManifestEntry, entries, entry_path, partition
from ..write.stale_tempdirs import FolderOfProcess
from .batch import BatchCapture, CaptureUnit, analyse


def copy_of(path: str) -> str:
    """The path of a copy of a data set at a URL, which goes when the program ends; other paths as they are.

    The last part of the URL of a data set has no dot in it: nothing is asked about others.  Raises CaptureError where
    there is no room.
    """
    if not is_url(path) or scheme(path) in HTTP or "." in path.rstrip("/").rpartition("/")[2] or "*" in path:
        return path
    store = RemoteFolder(path)
    if not store.files(MANIFEST):
        return path
    made = FolderOfProcess().path
    folder = Path(made, store.url.rpartition("/")[2])
    _get_manifest(store, folder)
    wanted: dict[str, int] = {}
    there = store.files()
    in_folder: dict[str, list[str]] = {}
    for one in there:
        in_folder.setdefault(one.rpartition("/")[0], []).append(one)
    for entry in entries(str(folder)):
        for name in () if entry.problem else TABLES:
            below = str(partition("", name, entry.host, entry.capture))
            wanted |= {one: there[one] for one in in_folder.get(below, ())}
    needed, free = sum(wanted.values()), shutil.disk_usage(made).free
    if needed > free:
        raise CaptureError(f"{path}: {size(needed)} have to be copied, and {made} has room for {size(free)}")
    for name in wanted:
        store.get(name, folder / name)
    copies[str(folder)] = path
    return str(folder)


def batch_to_url(url: str, batch: Callable[[str], Iterator[BatchCapture]]) -> Iterator[BatchCapture]:
    """Put into a store what ``batch`` makes of captures in a folder that has the manifest of the store.

    The tables of a capture are in the store before its entry is, and each is given once it is there.  What was
    interrupted is repeated: a name always has the same contents.
    """
    if scheme(url) in HTTP:
        refuse_url(url)
    store = RemoteFolder(url)
    with FolderOfProcess() as made:
        folder = made / "tables"
        if not _get_manifest(store, folder) and store.files():
            raise CaptureError(f"{url}: is there, and is no data set")
        there = {one.capture: one for one in entries(str(folder))}
        for one in batch(str(folder)):
            if not (one.known and one.entry.capture in there):
                _put_tables(store, folder, one.entry)
                path = entry_path(str(folder), one.entry.capture)
                store.put(path, str(path.relative_to(folder)))
                there[one.entry.capture] = one.entry
                left = {entry.capture for entry in entries(str(folder))}
                for gone in [*(there.keys() - left)]:
                    _remove(store, there.pop(gone))
            yield one


def _get_manifest(store: RemoteFolder, folder: Path) -> int:
    names = [name for name in store.files(MANIFEST) if name.endswith(".json")]
    for name in names:
        store.get(name, folder / name)
    return len(names)


def analyse_to_url(unit: CaptureUnit, url: str, options: Options) -> ManifestEntry:
    """Analyse a capture and put its tables into a store, but not its entry."""
    with FolderOfProcess() as made:
        entry = analyse(unit, str(made), options)
        _put_tables(RemoteFolder(url), made, entry)
    return entry


def _put_tables(store: RemoteFolder, folder: Path, entry: ManifestEntry) -> None:
    for name in TABLES:
        made = partition(str(folder), name, entry.host, entry.capture)
        for table in made.glob("*"):
            store.put(table, str(table.relative_to(folder)))
        shutil.rmtree(made, ignore_errors=True)


def _remove(store: RemoteFolder, entry: ManifestEntry) -> None:
    """What another capture took the place of: first it is not read any more."""
    store.remove(str(entry_path("", entry.capture)))
    for name in TABLES:
        for table in store.files(str(partition("", name, entry.host, entry.capture))):
            store.remove(table)
