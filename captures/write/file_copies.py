"""File contents that crossed the wire, written into a directory, and the manifest of what they are.

Nothing is ever written outside the directory: names are made safe, symbolic links are not followed, and files are
only created, never opened for writing where they exist; they appear together at the end.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from rdmascope.dissect.measure.files import (
    ALTERED,
    READ,
    TRUNCATED,
    WRITE,
    ZEROS,
    ContentChange,
    ContentRegion,
    Contents,
    ContentSource,
    ContentStep,
    File,
    FileTable,
    FileTransfer,
    MissingRange,
    in_order_of_time,
)
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.records.report import file_record
from rdmascope.dissect.records.schema import Record, record

from ..errors import Closing
from .output import OutputFile, OutputFolder, input_files, not_written, spool

NEVER = "never read or written"


def extract_files(target: Target, spool: Spool, table: FileTable, captures: Sequence[str]) -> dict[int, Record]:
    """Write the files and the manifest; what became of each, by its number."""
    contents = spool.contents()
    ahead = next(contents, None)
    names = SafeNames()
    entries: dict[int, Record] = {}
    with io.TextIOWrapper(io.BufferedWriter(target.create(MANIFEST)), "utf-8") as manifest:
        begin = json.dumps(record("manifest", capture=", ".join(map(os.path.basename, captures)), files=[]))
        manifest.write(begin.removesuffix("]}"))
        for file in table:
            known = Contents(spool.stored)
            while ahead is not None and ahead[0] <= file.number:
                if ahead[0] == file.number:
                    known = ahead[1]
                ahead = next(contents, None)
            if not file.transfers:
                continue
            written = target.write(names.take(_name(file), file.hash), known, _length(file, known))
            lost = spool.lost.get(file.number, [])
            entry = {**file_record(table, file), **contents_fields(file, known, written, lost)}
            manifest.write((",\n" if entries else "\n") + json.dumps(entry, ensure_ascii=False))
            entries[file.number] = {key: entry[key] for key in SUMMARY} | {
                "conflicts": len(known.conflicts) + known.conflicts_beyond,
            }
        manifest.write("\n]}\n")
    return entries


SUMMARY = "name", "length", "complete", "sha256", "md5", "problem"
"""What ``--json`` tells of an extracted file, beside the number of conflicts."""


def _name(file: File) -> bytes | None:
    last = next((name for name in reversed(file.names) if name.until is None), file.names[-1] if file.names else None)
    return last.raw if last is not None and last.raw else None


def _length(file: File, contents: Contents) -> int:
    """The size, and whatever lies behind it and may be there."""
    return max(file.length, contents.regions[-1].end if contents.regions else 0)


def contents_fields(file: File, contents: Contents, written: Written, lost: list[MissingRange]) -> Record:
    """What the manifest adds to a file."""
    holes = list(_holes(contents.regions, _length(file, contents), lost))
    doubtful = any(region.doubt for region in contents.regions)
    return {
        "name": written.name,
        "length": written.length,
        "complete": file.size is not None and not holes and not doubtful and not written.problem,
        "sha256": written.sha256,
        "md5": written.md5,
        "problem": written.problem or None,
        "ranges": [_range(region) for region in contents.regions],
        "holes": holes,
        "conflicts": [_change(change) for change in contents.conflicts],
        "conflicts_not_listed": contents.conflicts_beyond,
        "versions": [_change(change) for change in contents.versions],
        "versions_not_listed": contents.versions_beyond,
    }


def _holes(regions: list[ContentRegion], length: int, lost: list[MissingRange]) -> Iterator[Record]:
    """Where nothing is known up to ``length``, cut by the reason."""
    reached = 0
    gaps = []
    for region in regions:
        if region.start > reached:
            gaps.append((reached, region.start))
        reached = region.end
    if reached < length:
        gaps.append((reached, length))
    missing = sorted(lost)
    at = 0
    for start, end in gaps:
        while at and missing[at - 1].end > start:
            at -= 1
        while at < len(missing) and missing[at].end <= start:
            at += 1
        while start < end:
            if at == len(missing) or missing[at].start >= end:
                yield {"offset": start, "length": end - start, "why": NEVER}
                break
            hole = missing[at]
            if hole.start > start:
                yield {"offset": start, "length": hole.start - start, "why": NEVER}
            if hole.end > start:
                last = min(end, hole.end)
                yield {"offset": max(start, hole.start), "length": last - max(start, hole.start), "why": hole.reason}
                start = last
            at += 1


def _range(region: ContentRegion) -> Record:
    return {
        "offset": region.start,
        "length": region.end - region.start,
        **_source(region.source),
        "doubt": region.doubt or None,
    }


def _source(source: ContentSource) -> Record:
    return {
        "from": source.kind,
        "rpc": source.rpc,
        "first_frame": source.first_frame,
        "last_frame": source.last_frame,
    }


def _change(change: ContentChange) -> Record:
    return {
        "offset": change.start,
        "length": change.end - change.start,
        "differing": change.differing,
        "earlier": _source(change.earlier),
        "later": _source(change.later),
    }


KINDS = (READ, WRITE, ZEROS, TRUNCATED, ALTERED)

LARGEST = (1 << 63) - 1
"""Longest file that the operating system can name."""
MAX_ZEROS = 1 << 30
"""Bytes of holes up to which checksums are computed, over all files: any file may claim to be as long as it likes."""

MANIFEST = "manifest.json"


class Spool(Closing):
    """Transfers until all are known: their bytes in a temporary file, the rest in columns."""

    def __init__(self, directory: Path) -> None:
        self._data = spool(directory)
        self._end = 0
        self._kinds = array("b")
        self._files = array("q")
        self._numbers = tuple(array("q") for _ in range(6))
        """Begin, end (-1: none), stored at, RPC, first and last frame."""
        self._places = array("Q"), array("Q")
        """Offset and count: a hostile one takes all 64 bits."""
        self.lost: dict[int, list[MissingRange]] = {}
        """File number -> what was moved but is not in the capture."""

    def close(self) -> None:
        self._data.close()

    def add(self, transfer: FileTransfer) -> None:
        number = transfer.file.number
        if transfer.missing:
            self.lost.setdefault(number, []).extend(transfer.missing)
        if transfer.kind not in (READ, WRITE):
            self._row(transfer, transfer.kind, transfer.offset, transfer.count, -1)
        if transfer.kind == WRITE:
            for missing_range in transfer.missing:
                self._row(transfer, ALTERED, missing_range.start, missing_range.end - missing_range.start, -1)
        for offset, data in transfer.captured:
            self._row(transfer, transfer.kind, offset, len(data), self._end)
            self._data.write(data)
            self._end += len(data)

    def _row(self, transfer: FileTransfer, kind: str, offset: int, count: int, at: int) -> None:
        if offset + count >= 1 << 64:
            return
        self._kinds.append(KINDS.index(kind))
        self._files.append(transfer.file.number)
        end = -1 if transfer.end is None else transfer.end
        row = transfer.begin, end, at, transfer.rpc, transfer.first_frame, transfer.last_frame
        for column, value in zip(self._numbers, row, strict=True):
            column.append(value)
        self._places[0].append(offset)
        self._places[1].append(count)

    def contents(self) -> Iterator[tuple[int, Contents]]:
        """File number and contents, by number, of the files that anything is known of."""
        self._data.flush()
        files = np.array(self._files, np.int64)
        order = np.argsort(files, kind="stable")
        bounds = np.flatnonzero(np.diff(files[order], prepend=-1, append=-1))
        for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            rows = order[start:end].tolist()
            contents = Contents(self.stored)
            for step in in_order_of_time(map(self._step, rows)):
                contents.add(step)
            yield int(files[rows[0]]), contents

    def _step(self, row: int) -> ContentStep:
        begin, end, at, rpc, first, last = (column[row] for column in self._numbers)
        kind = KINDS[self._kinds[row]]
        source = ContentSource(kind, begin, None if end < 0 else end, rpc, first, last)
        return ContentStep(kind, self._places[0][row], self._places[1][row], at, source)

    def stored(self, at: int, count: int) -> bytes:
        stored = os.pread(self._data.fileno(), count, at)
        while len(stored) < count:
            more = os.pread(self._data.fileno(), count - len(stored), at + len(stored))
            if not more:
                raise OSError(errno.EIO, "the temporary file became shorter")
            stored += more
        return stored


class Written(NamedTuple):
    """A file in the directory."""

    name: str
    length: int
    sha256: str | None
    """SHA-256 of the whole file, holes as zeros; None if it was not computed, see ``problem``."""
    md5: str | None
    problem: str
    """Why something of it was not written or not computed."""


class Target(OutputFolder):
    """The directory; made where there is none."""

    def __init__(self, path: Path, captures: Sequence[str], force: bool = False) -> None:
        """Raises OSError where it is no directory, a symbolic link, one of those that ``captures`` names, or, without
        ``force``, not empty."""
        if any(
            os.path.isdir(capture) and os.path.exists(path) and os.path.samefile(capture, path) for capture in captures
        ):
            raise FileExistsError(errno.EEXIST, "its captures are read; extract into another directory", str(path))
        if path.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, "is there and is no directory", str(path))
        super().__init__(path)
        self._captures = [os.stat(file) for file in input_files(captures) if os.path.isfile(file)]
        self._zeros = MAX_ZEROS
        if not force and self.others():
            self.__exit__(FileExistsError, None, None)
            raise FileExistsError(errno.EEXIST, "is not empty; --force writes into it all the same", str(path))

    def create(self, name: str, inputs: Iterable[os.stat_result] = (), shown: str = "") -> OutputFile:
        """A new file, open for writing; it takes the place of one that was there, unless that is read."""
        return super().create(name, (*self._captures, *inputs), shown)

    def write(self, name: str, contents: Contents, length: int) -> Written:
        """The regions at their offsets, and nothing between them."""
        sums = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
        stored = sum(region.end - region.start for region in contents.regions if region.at >= 0)
        problem = ""
        holes = max(0, length - stored)
        if holes > self._zeros:
            problem = "no checksums: too many holes"
        else:
            self._zeros -= holes
        reached = 0
        with self.create(name) as file:
            fd = file.fileno()
            for region in contents.regions:
                if region.at < 0:
                    continue
                try:
                    _copy(fd, contents, region)
                except OSError as error:
                    if error.errno != errno.EFBIG:
                        raise not_written(str(self.path / name), error, length) from None
                    problem = "not all of it was written: an offset is beyond what the file system takes"
                if not problem:
                    _zeros(sums, region.start - reached)
                    for block in contents.bytes_of(region):
                        for digest in sums:
                            digest.update(block)
                    reached = region.end
            problem = _extend(fd, length) or problem
            length = os.fstat(fd).st_size
        if problem:
            return Written(name, length, None, None, problem)
        _zeros(sums, length - reached)
        return Written(name, length, sums[0].hexdigest(), sums[1].hexdigest(), "")


def _copy(fd: int, contents: Contents, region: ContentRegion) -> None:
    if region.end > LARGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    at = region.start
    for block in contents.bytes_of(region):
        view = memoryview(block)
        while view:
            count = os.pwrite(fd, view, at)
            view, at = view[count:], at + count


def _extend(fd: int, length: int) -> str:
    try:
        os.ftruncate(fd, min(length, LARGEST))
    except OSError as error:
        if error.errno not in (errno.EFBIG, errno.EINVAL):
            raise
        return "it is longer than the file system takes"
    return "" if length <= LARGEST else "it is longer than the file system takes"


def _zeros(sums: tuple[hashlib._Hash, ...], count: int) -> None:
    while count > 0:
        block = bytes(min(count, 1 << 20))
        for digest in sums:
            digest.update(block)
        count -= len(block)


LONGEST_NAME = 120
"""Bytes; a suffix may follow."""


class SafeNames:
    """Names for files in one directory: no two alike, whatever they are called on the wire."""

    def __init__(self) -> None:
        self._taken = {MANIFEST.casefold()}

    def take(self, name: bytes | None, number: int) -> str:
        """``name`` as far as it is harmless; ``number``, 32 bits, tells apart what is alike, and names the nameless."""
        base = safe_name(name) if name is not None else ""
        chosen = base or f"handle-{number:08x}"
        if chosen.casefold() in self._taken:
            chosen = f"{chosen}-{number:08x}"
        again, copy = chosen, 1
        while again.casefold() in self._taken:
            copy += 1
            again = f"{chosen}-{copy}"
        self._taken.add(again.casefold())
        return again


def safe_name(name: bytes) -> str:
    """One harmless component: printable, no separators, no dots in a row, no leading dot, dash or blank.

    '' where nothing is left of it.
    """
    text = "".join(
        letter if letter.isprintable() and letter not in '/\\:*?"<>|' else "_"
        for letter in name.decode("utf-8", "replace")
    )
    text = re.sub(r"\.\.+", "_", text).strip(" .")
    if text.startswith("-") or (name.startswith(b".") and not text.startswith("_")):
        text = "_" + text
    while len(text.encode()) > LONGEST_NAME:
        text = text[:-1].rstrip(" .")
    return text if text.strip("_") else ""
