"""Files: one line each, and what is doubtful about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from rdmascope.dissect.measure.files import File, FileTable
from rdmascope.dissect.onc.file_operations import DIRECTORY, LINK
from rdmascope.dissect.units import count, plural, size

from .tables import Grid

UNNAMED = "?"


def path(table: FileTable, file: File) -> str:
    """Its latest path; the one it had, where it was removed; '?' where no call named it."""
    removed = table.removed_path(file)
    if removed is not None:
        return f"{removed} (removed)"
    found = table.paths(file)
    mark = "/" if file.type == DIRECTORY and found and not found[0].endswith("/") else ""
    return found[0] + mark if found else UNNAMED


def known_size(file: File) -> str:
    if file.size is not None:
        return size(file.size)
    return f"≥ {size(file.reach)}" if file.reach else "-"


def holes(file: File) -> str:
    """Bytes that were not seen, of a file that anything was read from or written to."""
    if not file.transfers:
        return "-"
    missing = sum(end - start for start, end in file.gaps())
    return size(missing) if missing else "none" if file.size is not None else "?"


def grid(table: FileTable, files: Sequence[File]) -> Grid:
    rows = [
        (
            Text(f"{file.hash:#010x}", "dim" if file.type in (DIRECTORY, LINK) else ""),
            path(table, file),
            known_size(file) if file.type != DIRECTORY else "-",
            size(file.read) if file.read else "-",
            size(file.written) if file.written else "-",
            count(file.calls.total()),
            holes(file),
        )
        for file in files
    ]
    return Grid(("handle", "path"), ("size", "read", "written", "calls", "holes"), rows, flexible=1, gap=2, indent=0)


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
    for one in remarks:
        yield Text.assemble((path(table, file), "bold"), ": ", one)


def unlisted(number: int, table: FileTable) -> Iterator[str]:
    """What is not in the table."""
    if number:
        yield f"{plural(number, 'more file was', 'more files were')} neither read nor written; --all lists them"
    for reason, rpcs in table.undecoded.most_common():
        yield f"{plural(rpcs, 'RPC')} only partly decoded: {reason}"


def extracted(directory: Path, extracts: Iterable[dict[str, Any]]) -> Iterator[Text]:
    """What was written where."""
    found = list(extracts)
    complete = sum(one["complete"] for one in found)
    yield Text(f"{directory}: {plural(len(found), 'file')} and a manifest; {count(complete)} complete")
    for one in found:
        if one["conflicts"]:
            yield Text.assemble((one["name"], "bold"), ": ", plural(one["conflicts"], "conflict"), style="red")
        if one["problem"]:
            yield Text.assemble((one["name"], "bold"), ": ", one["problem"], style="red")
