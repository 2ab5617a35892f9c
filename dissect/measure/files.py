"""The files that NFS calls used: handles, paths, bytes read and written, which bytes were captured, and their contents.

A file is a handle on one server. If several protocol versions use the same handle, it is one file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows, distinct, stretches, take
from ..intervals import IntervalSet
from ..named_tuple import NamedTuple
from ..onc import file_operations as onc
from ..onc.file_operations import DIRECTORY, UNSTABLE, FileOperation
from ..onc.naming import handle_hash
from ..percentiles import Distribution, Samples
from ..rpcrdma.rpc_table import RpcTable
from ..rpcrdma.rpcs import Rpc
from .file_names import NamedFile, Paths, path_of_name, split_at_gaps
from .nfs_operations import NfsOperations, OperationReader

BLOCK = 1 << 20
MAX_KEPT = 1000
"""Conflicts, versions and fences of one file that are kept one by one."""

UNANSWERED = "no reply to the WRITE"
RACED = "two calls at one time, in an order that is not known"


class ContentSource(NamedTuple):
    """The RPC that bytes came from."""

    kind: str
    """'read', 'write' or 'zeros'."""
    begin: int
    end: int | None
    """When the reply had come, in nanoseconds; None without a reply."""
    rpc: int
    first_frame: int
    last_frame: int


class ContentRegion(NamedTuple):
    """Bytes [start, end) of the file, stored from ``at`` on; -1: zeros that did not cross the wire."""

    start: int
    end: int
    at: int
    source: ContentSource
    doubt: str
    """'' or why it is not sure that the file has these bytes: UNANSWERED, RACED."""
    settled: int
    """Time from which on all that changed them is over: a READ that began before may have come before a change."""

    def part(self, start: int, end: int) -> ContentRegion:
        at = self.at if self.at < 0 else self.at + start - self.start
        return self._replace(start=start, end=end, at=at)


class ContentChange(NamedTuple):
    """A range of a file that was seen with different bytes: a conflict or a new version."""

    start: int
    """The first byte that differs."""
    end: int
    """Behind the last byte that differs."""
    differing: int
    earlier: ContentSource
    later: ContentSource


class ContentStep(NamedTuple):
    """A FileTransfer, or a part of it whose bytes are stored at ``at``."""

    kind: str
    offset: int
    count: int  # type: ignore[assignment]
    at: int
    source: ContentSource


def in_order_of_time(steps: Iterable[ContentStep]) -> list[ContentStep]:
    """What may change contents from its call on, what shows them when its reply is there."""
    return sorted(steps, key=_moment)


def _moment(step: ContentStep) -> int:
    source = step.source
    return source.begin if source.end is None or step.kind not in (READ, ZEROS) else source.end


class Contents:
    """Steps are added in the order of ``in_order_of_time``; ``stored(at, count)`` gives bytes back."""

    def __init__(self, stored: Callable[[int, int], bytes]) -> None:
        self.regions: list[ContentRegion] = []
        """Ascending, without overlap."""
        self.conflicts: list[ContentChange] = []
        self.versions: list[ContentChange] = []
        self.conflicts_beyond = 0
        """Conflicts that are not kept one by one."""
        self.versions_beyond = 0
        self._stored = stored
        self._fences: list[tuple[int, int | None, int]] = []
        """What was truncated or changed unseen, and when that was over: what began before may have come before it."""

    def add(self, step: ContentStep) -> None:
        end = step.offset + step.count
        source = step.source
        if step.kind == TRUNCATED:
            self._forget(step.offset, None, source)
        elif step.kind == ALTERED and source.end is None:
            self._doubt(step.offset, end, source)
        elif step.kind == ALTERED:
            self._forget(step.offset, end if step.count else None, source)
        elif step.count > 0 and step.kind == WRITE:
            # A write without a reply was made at once or never, as far as the capture shows.
            doubt, settled = (UNANSWERED, source.begin) if source.end is None else ("", source.end)
            self._place(ContentRegion(step.offset, end, step.at, source, doubt, settled))
        elif step.count > 0:
            self._place(ContentRegion(step.offset, end, step.at, source, "", 0))

    def _forget(self, start: int, end: int | None, source: ContentSource) -> None:
        """The bytes changed, to what is not known."""
        low, high = self._overlapped(start, end)
        over = max([source.end or source.begin, *(region.settled for region in self.regions[low:high])])
        self._replace(start, end, [])
        self._fences = [*self._fences[-MAX_KEPT:], (start, end, over)]

    def _doubt(self, start: int, end: int, source: ContentSource) -> None:
        """The bytes may have changed, to what is not known."""
        low, high = self._overlapped(start, end)
        pieces = [
            region.part(max(region.start, start), min(region.end, end))._replace(
                doubt=UNANSWERED, settled=max(region.settled, source.begin)
            )
            for region in self.regions[low:high]
        ]
        self._replace(start, end, pieces)

    def _overlapped(self, start: int, end: int | None) -> tuple[int, int]:
        """Indices of the regions that overlap [start, end)."""
        low = bisect_right(self.regions, start, key=lambda region: region.end)
        high = low
        while high < len(self.regions) and (end is None or self.regions[high].start < end):
            high += 1
        return low, high

    def _replace(self, start: int, end: int | None, pieces: list[ContentRegion]) -> None:
        low, high = self._overlapped(start, end)
        touched = self.regions[low:high]
        if touched and touched[0].start < start:
            pieces.insert(0, touched[0].part(touched[0].start, start))
        if touched and end is not None and touched[-1].end > end:
            pieces.append(touched[-1].part(end, touched[-1].end))
        self.regions[low:high] = pieces

    def _place(self, new: ContentRegion) -> None:
        for low, high, over in self._fences:
            if over >= new.source.begin and low < new.end and (high is None or high > new.start):
                new = new._replace(doubt=new.doubt or RACED, settled=max(new.settled, over))
        low, high = self._overlapped(new.start, new.end)
        pieces: list[ContentRegion] = []
        reached = new.start
        for old in self.regions[low:high]:
            start, end = max(old.start, new.start), min(old.end, new.end)
            if start > reached:
                pieces.append(new.part(reached, start))
            pieces += self._settle(old.part(start, end), new.part(start, end))
            reached = end
        if reached < new.end:
            pieces.append(new.part(reached, new.end))
        self._replace(new.start, new.end, _joined(pieces))

    def _settle(self, old: ContentRegion, new: ContentRegion) -> Iterator[ContentRegion]:
        """What two views of the same bytes come to."""
        settled = max(old.settled, new.settled)
        after = old.settled < new.source.begin
        change = self._change(old, new)
        if change is None:
            # Zeros that crossed the wire are better than those that did not.
            better = (old.doubt and not new.doubt and after) or old.at < 0 <= new.at
            doubt = "" if after and not new.doubt else old.doubt
            yield (new if better else old)._replace(doubt=doubt, settled=settled)
        elif new.doubt == UNANSWERED:
            if old.start < change.start:
                yield old.part(old.start, change.start)
            yield new.part(change.start, change.end)._replace(settled=settled)
            if change.end < old.end:
                yield old.part(change.end, old.end)
        elif new.source.kind == WRITE:
            self._version(change)
            yield new._replace(doubt=new.doubt if after else RACED, settled=settled)
        elif not after or (new.doubt and not old.doubt):
            yield old  # It may have been read before it was changed.
        else:
            if not old.doubt:
                self._conflict(change)
            yield new._replace(settled=settled)

    def _conflict(self, change: ContentChange) -> None:
        if len(self.conflicts) < MAX_KEPT:
            self.conflicts.append(change)
        else:
            self.conflicts_beyond += 1

    def _version(self, change: ContentChange) -> None:
        if len(self.versions) < MAX_KEPT:
            self.versions.append(change)
        else:
            self.versions_beyond += 1

    def bytes_of(self, region: ContentRegion) -> Iterator[bytes]:
        """The bytes of a region, block by block."""
        for start in range(region.start, region.end, BLOCK):
            count = min(BLOCK, region.end - start)
            yield bytes(count) if region.at < 0 else self._stored(region.at + start - region.start, count)

    def _change(self, old: ContentRegion, new: ContentRegion) -> ContentChange | None:
        """Where two regions of the same place differ."""
        if old.at == new.at:
            return None
        first = last = differing = -1
        reached = old.start
        for earlier, later in zip(self.bytes_of(old), self.bytes_of(new), strict=True):
            if earlier != later:
                unequal = np.flatnonzero(np.frombuffer(earlier, np.uint8) != np.frombuffer(later, np.uint8))
                if first < 0:
                    first, differing = reached + int(unequal[0]), 0
                last = reached + int(unequal[-1])
                differing += len(unequal)
            reached += len(earlier)
        return None if first < 0 else ContentChange(first, last + 1, differing, old.source, new.source)


def _joined(pieces: list[ContentRegion]) -> list[ContentRegion]:
    """Neighbours that are one region again."""
    joined: list[ContentRegion] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.end == piece.start
            and last[3:] == piece[3:]
            and last.at + (last.end - last.start if last.at >= 0 else 0) == piece.at
        ):
            joined[-1] = last._replace(end=piece.end)
        else:
            joined.append(piece)
    return joined


READ, WRITE, ZEROS, TRUNCATED, ALTERED = "read", "write", "zeros", "truncated", "altered"

MAX_REASONS = 64
EXACT_LATENCIES = 256
"""Latencies of a file that are kept exactly."""
BEYOND = 1 << 65
"""Behind every offset and length that 64 bits can say."""


class MissingRange(NamedTuple):
    """Bytes of a file that were transferred, but are not in the capture."""

    start: int
    end: int
    reason: str
    """As ``Extent.missing``."""


class FileTransfer(NamedTuple):
    """One thing that happened to the contents of a file.

    =========  ==================================================================================
    read       ``count`` bytes at ``offset`` were in the reply
    write      ``count`` bytes at ``offset`` were in the call and, as the reply says, were written
    zeros      ``count`` bytes at ``offset`` are zero, as the reply says (READ_PLUS)
    truncated  from then on the file ended at ``offset``
    altered    ``count`` bytes at ``offset`` changed on the server, unseen (0: to the end)
    =========  ==================================================================================
    """

    kind: str
    file: File
    begin: int
    """Nanoseconds: first packet of the call."""
    end: int | None
    """Last packet of the reply; None without a reply: whether it happened is not known."""
    offset: int
    count: int  # type: ignore[assignment]
    rpc: int
    first_frame: int
    last_frame: int
    captured: tuple[tuple[int, memoryview], ...] = ()
    """Offset in the file and bytes, of what was captured."""
    missing: tuple[MissingRange, ...] = ()


EarlierName = tuple[str, int, int, str]
"""Path, nanoseconds from which and until which it was known, what ended it."""


@dataclass(slots=True, eq=False)
class File(NamedFile):
    number: int = 0
    """1-based, in order of appearance."""
    protocols: set[tuple[int, int | None]] = field(default_factory=set)
    """NFS version and minor version of the calls."""
    type: int | None = None
    """See ``file_operations.TYPE_NAMES``; None where no reply has it."""
    calls: Counter[str] = field(default_factory=Counter)
    """By procedure or operation."""
    transfers: int = 0
    """Reads and writes of it, in whatever way they ended."""
    reads: int = 0
    """READs that were answered."""
    writes: int = 0
    """WRITEs, answered or not."""
    latencies: Samples | None = None
    """Latencies of RPCs that read or wrote it; None if none is known."""
    saved_latency: Distribution | None = None
    """Their distribution, where only that is known."""
    read: int = 0
    """Bytes that READ replies carried, each as often as it was."""
    written: int = 0
    """Bytes that the server says it wrote."""
    unconfirmed: int = 0
    """Bytes of WRITE calls without a reply."""
    refused: int = 0
    """Bytes of WRITE calls that the server did not write."""
    missing: Counter[str] = field(default_factory=Counter)
    """Bytes read or written that are not in the capture, by the reason."""
    uncommitted: int = 0
    """Bytes written UNSTABLE that no COMMIT followed."""
    restarted: bool = False
    """The write verifier changed before they were committed: the server may have lost them."""
    size: int | None = None
    """The latest, by attributes, the end of file, or a write behind it; None where none is known."""
    seen: IntervalSet = field(default_factory=IntervalSet)
    """Bytes whose contents are in the capture."""
    reach: int = 0
    """The least size that reads and writes show."""
    _reach_end: int = -1
    _unstable: tuple[int, int, int] = (0, 0, 0)
    """Begin and end of what is uncommitted, and when the last of it was written."""
    _verifier: bytes = b""

    @property
    def hash(self) -> int:
        return handle_hash(self.handle)

    @property
    def latency(self) -> Distribution | None:
        """How long the RPCs that read or wrote the file took."""
        return self.saved_latency if self.latencies is None else self.latencies.distribution()

    @property
    def length(self) -> int:
        """The size, or the least that it is."""
        return self.reach if self.size is None else self.size

    def gaps(self) -> list[tuple[int, int]]:
        """Byte ranges [start, end) whose contents were not seen, up to ``length``."""
        return self.seen.missing(0, self.length)


Moved = tuple[int, str, File, int, int, "int | None", bool]
"""What an RPC did to contents: its row, kind, file, offset and count of a ``FileTransfer``, where its bytes are in the
message (None: there are none), and whether it is sure that it happened."""


class FileCall(NamedTuple):
    """What files are told of an RPC."""

    number: int
    begin: int
    """Nanoseconds: first packet of the call."""
    end: int | None
    """Last packet of the reply; None without one."""
    first_frame: int
    last_frame: int


class FileUses(NamedTuple):
    """What the RPCs of a table did with files."""

    operations: Rows
    """``OPERATION``, of those that count; ``file`` is an index in ``files``."""
    names: Sequence[str]
    files: Sequence[File]
    moved: Sequence[Moved]
    """What RPCs did to contents, in their order."""
    source: tuple[RpcTable, NfsOperations] | None = None
    """What ``transfers`` are made from."""

    @property
    def transfers(self) -> Iterator[tuple[FileCall, list[FileTransfer]]]:
        """RPCs that did something to contents, and what."""
        if self.source is not None:
            table, read = self.source
            for row, moved in groupby(self.moved, key=itemgetter(0)):
                call = _call(table, row)
                yield call, [_transfer(read, call, *one) for one in moved]

    @property
    def numbers(self) -> Int64s:
        """The number of the file of each operation."""
        numbers: Int64s = np.array([file.number for file in self.files], np.int64)[self.operations["file"]]
        return numbers


def _call(table: RpcTable, row: int) -> FileCall:
    rpc = table.rows[row]
    replied = int(rpc["reply_frame"])
    return FileCall(
        int(rpc["number"]),
        int(rpc["call_time"]),
        int(rpc["reply_end"]) if replied else None,
        int(rpc["call_frame"]),
        replied or int(rpc["call_last_frame"]),
    )


def _transfer(
    read: NfsOperations,
    call: FileCall,
    row: int,
    kind: str,
    file: File,
    offset: int,
    count: int,
    position: int | None,
    sure: bool,
) -> FileTransfer:
    captured: list[tuple[int, memoryview]] = []
    lacking: list[MissingRange] = []
    message = None if position is None else read.message(row, kind == READ)
    if message is not None and position is not None:
        for start, end, missing in split_at_gaps(message, position, position + count):
            at = offset + start - position
            if missing:
                lacking.append(MissingRange(at, at + end - start, missing))
            else:
                captured.append((at, message.captured(start, end)))
    return FileTransfer(
        kind, file, call.begin, call.end if sure else None, offset, count, call.number, call.first_frame,
        call.last_frame, tuple(captured), tuple(lacking),
    )  # fmt: skip


class FileTable:
    """Fed RPCs as they end; never raises on what they hold.  Contents are returned, not kept."""

    def __init__(self) -> None:
        self._reader = OperationReader()
        self.undecoded: Counter[str] = Counter()
        """NFS RPCs that could not be decoded, or not to their end, by the reason."""
        self.names: Paths[File] = Paths(lambda server, handle: File(server, handle, number=len(self.names) + 1))

    def __iter__(self) -> Iterator[File]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def add(self, rpc: Rpc) -> list[FileTransfer]:
        """Take one RPC; returns what it did to contents, in its order."""
        return [transfer for _, done in self.add_table(RpcTable([rpc])).transfers for transfer in done]

    def add_table(self, table: RpcTable, counts: NDArray[np.bool_] | None = None) -> FileUses:
        """Note names, types and sizes.

        ``counts``: the RPCs whose operations and transfers are counted; all by default.
        """
        read = self._reader.read(table)
        for reason in read.undecoded:
            self._note_undecoded(reason)
        counted = np.ones(len(table), np.bool_) if counts is None else counts
        batch = _FileBatch(table, read, self.names)
        files = batch.take(counted)
        used = take(read.rows, counted[read.rows["row"]])
        _note_calls(used, read.names, files, table)
        return FileUses(used, read.names, files, batch.moved, (table, read))

    def _note_undecoded(self, reason: str) -> None:
        if len(self.undecoded) >= MAX_REASONS and reason not in self.undecoded:
            reason = "other reasons"
        self.undecoded[reason] += 1

    def file(self, server: str, handle: bytes) -> File:
        return self.names.file(server, handle)

    def paths(self, file: File) -> list[str]:
        """Its names, the latest first: '/export/a' from the server's root, '…/a' in a directory of which only the
        handle is known.  None where no call named it."""
        if file.root is not None:
            return [file.root]
        return [path_of_name(name) for name in reversed(file.names) if name.until is None]

    def earlier_names(self, file: File) -> list[EarlierName]:
        """Former names of a file, the latest first."""
        return [
            (path_of_name(name), name.since, name.until, name.ended)
            for name in reversed(file.names)
            if name.until is not None
        ]

    def removed_path(self, file: File) -> str | None:
        """The name that it had before it was removed."""
        if not file.names or any(name.until is None for name in file.names):
            return None
        last = max(file.names, key=lambda name: name.until or 0)
        return path_of_name(last)


class _FileBatch:
    """The RPCs of a table, by which files change."""

    def __init__(self, table: RpcTable, read: NfsOperations, names: Paths[File]) -> None:
        self.table, self.read, self.names = table, read, names
        self._files = [names.known(*handle) for handle in read.handles]
        """None of those that are not known yet."""
        self.moved: list[Moved] = []
        self._row = self._begin = 0
        self._end: int | None = None
        """The current RPC: its row, its first packet, and the last packet of its reply."""
        self._using: dict[tuple[int, File], None] = {}
        """Rows of RPCs that read or wrote, and what."""
        self._stable: dict[tuple[int, bytes], tuple[int, int]] = {}
        """How WRITEs were committed and with which verifier, by row and handle."""

    def take(self, counted: NDArray[np.bool_]) -> list[File]:
        """Note what RPCs say, in their order; returns the files of ``read.handles``."""
        read, files, rpcs = self.read, self._files, self.table.rows
        events, rows, servers = read.events, read.rows, read.servers
        in_turn = self._in_turn({event.handle for event in events if event.kind in _OF_CONTENTS})
        turns = in_turn.nonzero()[0]
        said = take(rows, turns)
        names = {name: code for code, name in enumerate(read.names)}
        written = take(rows, rows["name"] == names.get("WRITE", -1))
        for row, which, *stable in zip(*(written[name][::-1].tolist() for name in _WRITTEN), strict=True):
            self._stable[row, read.handles[which][1]] = stable[0], stable[1]
        commits = said["name"] == names.get("COMMIT", -1)
        fields = *(said[name] for name in ("file", "type", "sized", "size")), said["verifier"] > 0, commits
        stated = [*zip(turns.tolist(), *(field.tolist() for field in fields), strict=True)]
        # Of an RPC first names and contents, then what operations say: attributes that a WRITE returns hold after it.
        of_rpcs = np.concatenate((read.event_rows, said["row"]))
        order = (of_rpcs << 1 | (np.arange(len(of_rpcs)) >= len(events))).argsort(kind="stable")
        of_rpcs = of_rpcs[order]
        replied = rpcs["reply_frame"] != 0
        columns = *(rpcs[name][of_rpcs] for name in ("call_time", "reply_end")), replied[of_rpcs], counted[of_rpcs]
        for at, row, begin, end, ended, counts in zip(
            order.tolist(), of_rpcs.tolist(), *(column.tolist() for column in columns), strict=True
        ):
            if at >= len(events):
                index, which, type, sized, size, verified, commit = stated[at - len(events)]
                file = files[which]
                if file is None:
                    file = files[which] = self.names.file(*read.handles[which])
                if type >= 0:
                    file.type = type
                sized = sized and file.type != DIRECTORY
                if not verified and not (sized and size < file.reach):
                    if sized:
                        file.size = size
                elif ended:
                    self._row, self._begin, self._end = row, begin, end
                    if sized:
                        self._size(file, size, end)
                    if commit:
                        self._commit(file, read.operation(rows[index].item()))
                continue
            event = events[at]
            if event.kind not in _OF_CONTENTS:
                self.names.learn(servers[row], event, end if ended else begin)
            elif event.handle is not None and counts:
                self._row, self._begin, self._end = row, begin, end if ended else None
                self._contents(event, self.names.file(servers[row], event.handle))
        known = [file for file in files if file is not None]
        _note_states(take(rows, ~in_turn), known)
        self._note_latencies()
        return known

    def _note_latencies(self) -> None:
        """To the files that RPCs read or wrote."""
        latencies = self.table.rows["latency"][[row for row, _ in self._using]].tolist()
        for (_, file), latency in zip(self._using, latencies, strict=True):
            if latency >= 0:
                if file.latencies is None:
                    file.latencies = Samples(EXACT_LATENCIES)
                file.latencies.append(latency)

    def _in_turn(self, changed: Collection[bytes | None]) -> NDArray[np.bool_]:
        """Operations with which files appear, or that say something of those whose contents change: of these the order
        counts.

        ``changed``: handles of files that calls read and write.
        """
        rows = self.read.rows
        states = (rows["type"] >= 0) | rows["sized"] | (rows["verifier"] > 0)
        reach = np.array([0 if file is None else min(file.reach, _MAX_SIZE) for file in self._files] or [0], np.uint64)
        turning = np.zeros(len(reach), np.bool_)
        turning[rows["file"][(rows["verifier"] > 0) | (rows["sized"] & (rows["size"] < reach[rows["file"]]))]] = True
        turning[[index for index, (_, handle) in enumerate(self.read.handles) if handle in changed]] = True
        turned: NDArray[np.bool_] = states & turning[rows["file"]]
        if None in self._files:
            unknown = np.array([file is None for file in self._files])
            first = distinct(rows["file"])[0]
            turned[first[unknown[rows["file"][first]]]] = True
        return turned

    def _contents(self, event: onc.FileEvent, file: File) -> None:
        if event.kind == onc.READ:
            self._read(event, file)
        elif event.kind == onc.WRITE:
            self._write(event, file)
        elif self._end is None:
            return
        elif event.kind == onc.HOLE:
            file.transfers += 1
            self._reached(file, event.offset + event.count)
            file.seen.add(event.offset, event.offset + event.count)
            self._add(ZEROS, file, event.offset, event.count)
        elif event.kind == onc.RESIZED:
            self._truncate(file, event.offset, self._end)
            file.size = event.offset
        elif event.kind == onc.ALTERED:
            end = event.offset + event.count if event.count else None
            file.seen.remove(event.offset, BEYOND if end is None else end)
            if end is not None:
                self._reached(file, end)
            self._add(ALTERED, file, event.offset, event.count)

    def _read(self, event: onc.FileEvent, file: File) -> None:
        if self._end is None:
            return
        file.transfers += 1
        file.reads += 1
        count = self._count(event, of_reply=True)
        file.read += count
        end = event.offset + count
        if count:
            self._reached(file, end)
        if event.eof and count == event.count and (count or not event.offset):
            self._size(file, end, self._end)
        self._move(READ, file, event, count)

    def _write(self, event: onc.FileEvent, file: File) -> None:
        file.transfers += 1
        file.writes += 1
        count = self._count(event, of_reply=False)
        if event.done is None:
            file.unconfirmed += count
            self._move(WRITE, file, event, count, sure=False)
            return
        done = min(count, event.done)
        file.refused += count - done
        file.written += done
        if done and self._end is not None:
            self._reached(file, event.offset + done)
            stable, verifier = self._stable.get((self._row, file.handle), (-1, 0))
            if stable == UNSTABLE:
                self._left_unstable(file, self.read.verifiers[verifier], event.offset, done, self._end)
        else:
            done = 0
        self._move(WRITE, file, event, done)

    def _count(self, event: onc.FileEvent, of_reply: bool) -> int:
        """Bytes of a READ or WRITE that the message has room for."""
        if self._row not in self.read.messages:
            return event.count
        message = self.read.message(self._row, of_reply)
        return 0 if message is None else max(0, min(event.count, message.length - event.position))

    def _left_unstable(self, file: File, verifier: bytes, offset: int, count: int, end: int) -> None:
        start, stop, time = file._unstable
        if file.uncommitted:
            file.restarted |= verifier != file._verifier
            start, stop, end = min(start, offset), max(stop, offset + count), max(time, end)
        else:
            start, stop = offset, offset + count
        file.uncommitted += count
        file._unstable, file._verifier = (start, stop, end), verifier

    def _commit(self, file: File, done: FileOperation) -> None:
        if done.succeeded:
            start, end, time = file._unstable
            known = done.offset is not None and done.offset <= start
            if file.uncommitted and time < self._begin and known:
                if not done.count or end <= (done.offset or 0) + done.count:
                    file.uncommitted = 0
                file.restarted |= done.verifier != file._verifier

    def _move(self, kind: str, file: File, event: onc.FileEvent, count: int, sure: bool = True) -> None:
        """Bytes were read or written."""
        self._using[self._row, file] = None
        if not count and kind == WRITE:
            return
        start, end = event.offset, event.offset + count
        message = self.read.message(self._row, kind == READ) if self._row in self.read.messages else None
        if message is not None:
            shift = event.offset - event.position
            for first, last, missing in split_at_gaps(message, event.position, event.position + count):
                if missing:
                    file.missing[missing] += last - first
                    if kind == WRITE and sure:
                        file.seen.remove(first + shift, last + shift)
                elif sure:
                    file.seen.add(first + shift, last + shift)
        elif sure:
            file.seen.add(start, end)
        self._add(kind, file, start, count, event.position, sure)

    def _add(
        self, kind: str, file: File, offset: int, count: int, position: int | None = None, sure: bool = True
    ) -> None:
        self.moved.append((self._row, kind, file, offset, count, position, sure))

    def _reached(self, file: File, end: int) -> None:
        """The file is at least ``end`` bytes long."""
        if file.size is not None and end > file.size:
            file.size = end
        if end >= file.reach:
            assert self._end is not None
            file.reach, file._reach_end = end, self._end

    def _size(self, file: File, size: int, end: int) -> None:
        """The reply says that the file is ``size`` bytes long; a transfer meanwhile may be newer than that."""
        if size < file.reach and file._reach_end < self._begin:
            self._truncate(file, size, end)
        file.size = max(size, file.reach)

    def _truncate(self, file: File, size: int, end: int) -> None:
        if size < file.reach:
            file.seen.remove(size, BEYOND)
            if not size:
                file.uncommitted = 0
        file.reach, file._reach_end = size, end
        self._add(TRUNCATED, file, size, 0)


_MAX_SIZE = (1 << 64) - 1
_OF_CONTENTS = frozenset((onc.READ, onc.WRITE, onc.HOLE, onc.RESIZED, onc.ALTERED))
_WRITTEN = "row", "file", "stable", "verifier"


def _note_states(rows: Rows, files: Sequence[File]) -> None:
    """The last types and sizes that operations say of files."""
    rows = take(rows, (rows["type"] >= 0) | rows["sized"])
    if not len(rows):
        return
    rows = take(rows, rows["file"].argsort(kind="stable"))
    begins = stretches(rows["file"])
    behind = np.append(begins[1:], len(rows))
    before = np.array([-1 if files[file].type is None else files[file].type for file in rows["file"][begins].tolist()])
    # The type of the file behind each operation.
    latest = np.maximum.accumulate(np.where(rows["type"] >= 0, np.arange(len(rows)), -1))
    said = latest >= np.repeat(begins, behind - begins)
    types = np.where(said, rows["type"][latest], np.repeat(before, behind - begins))
    for file, type in zip(rows["file"][begins].tolist(), types[behind - 1].tolist(), strict=True):
        if type >= 0:
            files[file].type = type
    sized = take(rows, rows["sized"] & (types != DIRECTORY))
    for file, size in dict(zip(sized["file"].tolist(), sized["size"].tolist(), strict=True)).items():
        files[file].size = size


def _note_calls(rows: Rows, names: Sequence[str], files: Sequence[File], table: RpcTable) -> None:
    """Note which operations of which versions of NFS use files."""
    first, which = distinct(rows["file"], rows["name"])
    counts = np.bincount(which, minlength=len(first))
    order = first.argsort()
    of_first = rows["file"][first[order]], rows["name"][first[order]], counts[order]
    for file, name, count in zip(*(column.tolist() for column in of_first), strict=True):
        files[file].calls[names[name]] += count
    procedures = table.rows["procedure"][rows["row"]]
    first = distinct(rows["file"], procedures)[0]
    versions = [
        (procedure.version or 0, procedure.minor_version if procedure.version == 4 else None)
        for procedure in table.names.procedures
    ]
    for file, procedure in zip(rows["file"][first].tolist(), procedures[first].tolist(), strict=True):
        files[file].protocols.add(versions[procedure])
