"""Files: one line each, and what is doubtful about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from rdmascope.dissect.measure.files import EarlierName, File, FileTable
from rdmascope.dissect.onc.file_operations import DIRECTORY, LINK
from rdmascope.dissect.percentiles import Distribution
from rdmascope.dissect.units import count, duration, plural, seconds, size

from .tables import Cell, Grid, counted, sized

UNNAMED = "?"
WITH_LATENCY, WITH_COUNTS = 100, 120
"""Columns of the screen from which on there are those columns."""
MAX_EARLIER = 20
"""Earlier names that are listed."""


def path(table: FileTable, file: File) -> str:
    """Its latest path; the one it had, where it was removed; '?' where no call named it."""
    paths = table.paths(file)
    return shown_path(paths[0] if paths else None, table.removed_path(file), file.type == DIRECTORY)


def shown_path(path: str | None, removed: str | None, directory: bool) -> str:
    """The path to show for a file, from its latest path or the one it had."""
    if removed is not None:
        return f"{removed} (removed)"
    return path + "/" * (directory and not path.endswith("/")) if path else UNNAMED


def shown_size(known: int | None, least: int, directory: bool) -> str:
    """The size of a file; '-' for a directory, and where nothing was read or written either."""
    if directory or (known is None and not least):
        return "-"
    return f"≥ {size(least)}" if known is None else size(known)


def holes(file: File) -> str:
    """Bytes that were not seen, of a file that anything was read from or written to."""
    if not file.transfers:
        return "-"
    missing = sum(end - start for start, end in file.gaps())
    return size(missing) if missing else "none" if file.size is not None else "?"


def grid(table: FileTable, files: Sequence[File], width: int) -> Grid:
    """``width``: columns of the screen."""
    latency, counts = width >= WITH_LATENCY, width >= WITH_COUNTS
    rows: list[tuple[Cell, ...]] = [
        (
            Text(f"{file.hash:#010x}", "dim" if file.type in (DIRECTORY, LINK) else ""),
            path(table, file),
            shown_size(file.size, file.reach, file.type == DIRECTORY),
            *([counted(file.reads)] if counts else []),
            sized(file.read),
            *([counted(file.writes)] if counts else []),
            sized(file.written),
            *(_latency(file.latency) if latency else []),
            count(file.calls.total()),
            holes(file),
        )
        for file in files
    ]
    names = (
        "size", *(["reads"] if counts else []), "read", *(["writes"] if counts else []), "written",
        *(["median", "p99"] if latency else []), "calls", "holes",
    )  # fmt: skip
    return Grid(("handle", "path"), names, rows, flexible=1, gap=2, indent=0)


def _latency(known: Distribution | None) -> list[str]:
    return ["-", "-"] if known is None else [duration(known.median), duration(known.p99)]


def earlier(table: FileTable, files: Iterable[File], first_time: int) -> Iterator[Text]:
    """Names that files have no more, with the times; ``first_time``: of the capture."""
    more = 0
    for number, (file, renaming) in enumerate(_renamed(table, files)):
        if number >= MAX_EARLIER:
            more += 1
            continue
        name, since, until, ended = renaming
        when = f"{seconds(since - first_time)} s to {seconds(until - first_time)} s"
        yield Text.assemble((path(table, file), "bold"), f": {name} from {when}: {ended}")
    if more:
        yield Text(f"{plural(more, 'more earlier name')}; --json has them all", "dim")


def _renamed(table: FileTable, files: Iterable[File]) -> Iterator[tuple[File, EarlierName]]:
    """All but the last name of files that were removed."""
    for file in files:
        removed = table.removed_path(file)
        for name in table.earlier_names(file):
            if name[0] != removed or name[3] != "removed":
                yield file, name


def notes(table: FileTable, file: File) -> Iterator[Text]:
    """What a table has no room for."""
    remarks = []
    if file.unconfirmed:
        remarks.append(f"{size(file.unconfirmed)} written without a reply: whether the server has them is unknown")
    if file.refused:
        remarks.append(f"{size(file.refused)} not written by the server")
    for reason, missing in file.missing.most_common():
        remarks.append(f"{size(missing)} read or written, but not in the capture: {reason}")
    if file.uncommitted:
        remarks.append(f"{size(file.uncommitted)} written UNSTABLE and not committed in this capture")
    if file.restarted:
        remarks.append("the write verifier changed before a COMMIT: the server may have lost what was written")
    for remark in remarks:
        yield Text.assemble((path(table, file), "bold"), ": ", remark)


def unlisted(number: int, table: FileTable) -> Iterator[str]:
    """What is not in the table."""
    if number:
        yield f"{plural(number, 'more file was', 'more files were')} neither read nor written; --all lists them"
    for reason, rpcs in table.undecoded.most_common():
        yield f"{plural(rpcs, 'RPC')} only partly decoded: {reason}"


def extracted(directory: Path, extracts: Iterable[dict[str, Any]]) -> Iterator[Text]:
    """What was written where."""
    entries = list(extracts)
    complete = sum(entry["complete"] for entry in entries)
    yield Text(f"{directory}: {plural(len(entries), 'file')} and a manifest; {count(complete)} complete")
    for entry in entries:
        if entry["conflicts"]:
            yield Text.assemble((entry["name"], "bold"), ": ", plural(entry["conflicts"], "conflict"), style="red")
        if entry["problem"]:
            yield Text.assemble((entry["name"], "bold"), ": ", entry["problem"], style="red")
