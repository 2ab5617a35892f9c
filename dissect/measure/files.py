"""The files that NFS calls were about: handles, paths, what was read and written, and which bytes of them were seen;
and their contents.

A file is a handle on one server.  Where the same handle serves several protocol versions, it is one file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows, distinct, stretches, take
from ..intervals import IntervalSet
from ..named_tuple import NamedTuple
from ..onc import file_operations as onc
from ..onc.file_operations import DIRECTORY, UNSTABLE, FileOperation
from ..onc.hashes import handle_hash
from ..percentiles import Distribution, Samples
from ..rpcrdma.rpc_table import RpcTable
from ..rpcrdma.rpcs import Reassembled, Rpc
from .file_names import NamedFile, NfsMessages, Paths, path_of_name, split_at_gaps
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
    """None: no reply."""
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
    """The same place, seen with different bytes: a conflict or a new version."""

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
"""Of a file that are kept as they are."""
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
    """Of the RPCs that read or wrote it; None where none is known."""
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


class FileCall(NamedTuple):
    """What files are told of an RPC."""

    number: int
    server: str
    """Addresses."""
    client: str
    version: int
    """Of NFS or MOUNT."""
    minor_version: int | None
    begin: int
    """Nanoseconds: first packet of the call."""
    end: int | None
    """Last packet of the reply; None without one."""
    first_frame: int
    last_frame: int
    latency: int | None
    """Nanoseconds."""


class FileUses(NamedTuple):
    """What the RPCs of a table did with files."""

    operations: Rows
    """``OPERATION``, of those that count; ``file`` is an index in ``files``."""
    names: Sequence[str]
    files: Sequence[File]
    transfers: Sequence[tuple[FileCall, list[FileTransfer]]]
    """What RPCs did to contents, in its order."""

    @property
    def numbers(self) -> Int64s:
        """The number of the file of each operation."""
        numbers: Int64s = np.array([file.number for file in self.files], np.int64)[self.operations["file"]]
        return numbers


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
        transfers = batch.take(counted)
        used = take(read.rows, counted[read.rows["row"]])
        _note_calls(used, read.names, batch.files, table)
        return FileUses(used, read.names, batch.files, transfers)

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
        """Those that it has no more, the latest first."""
        return [
            (path_of_name(name, name.until), name.since, name.until, name.ended)
            for name in reversed(file.names)
            if name.until is not None
        ]

    def removed_path(self, file: File) -> str | None:
        """The name that it had before it was removed."""
        if not file.names or any(name.until is None for name in file.names):
            return None
        last = max(file.names, key=lambda name: name.until or 0)
        return path_of_name(last, last.until)


_CALL = (
    "number", "connection", "caller", "procedure", "call_time", "reply_end", "call_frame", "call_last_frame",
    "reply_frame", "latency",
)  # fmt: skip


class _FileBatch:
    """The RPCs of a table, by which files change."""

    def __init__(self, table: RpcTable, read: NfsOperations, names: Paths[File]) -> None:
        self.table, self.read, self.names = table, read, names
        known = [names.known(*handle) for handle in read.handles]
        self.files: list[File] = [file for file in known if file is not None]
        self._appearing: list[tuple[int, int]] = []
        """Of each file that is not known yet the operation with which it appears, and its index; the last first."""
        if len(self.files) < len(known):
            first = distinct(read.rows["file"])[0]
            order = sorted(zip(first.tolist(), read.rows["file"][first].tolist(), strict=True), reverse=True)
            self._appearing = [appearing for appearing in order if known[appearing[1]] is None]
        self._files = known
        self._changing: dict[int, tuple[int, ...]] = {}
        """Of those that may change contents ``_CALL``, by row."""
        self._transfers: list[tuple[FileCall, list[FileTransfer]]] = []

    def take(self, counted: NDArray[np.bool_]) -> list[tuple[FileCall, list[FileTransfer]]]:
        """Note what RPCs say, in their order; returns what they did to contents."""
        rows, messages = self.read.rows, self.read.messages
        contents = [
            (row, event.handle) for row, said in messages.items() for event in said.events if event.kind in _OF_CONTENTS
        ]
        in_turn = self._in_turn({handle for _, handle in contents})
        order = sorted(messages)
        operations = np.ascontiguousarray(rows["row"])
        begins, ends = (operations.searchsorted(order, side).tolist() for side in ("left", "right"))
        turns = in_turn.nonzero()[0]
        before, behind = turns.searchsorted(begins).tolist(), turns.searchsorted(ends).tolist()
        said = take(rows, turns)
        commit = self.read.names.index("COMMIT") if "COMMIT" in self.read.names else -1
        fields = (said["file"], said["type"], said["sized"], said["size"], said["verifier"] > 0, said["name"] == commit)
        stated = [*zip(turns.tolist(), *(field.tolist() for field in fields), strict=True)]
        moving = {row for row, _ in contents}
        changing = sorted(moving.union(said["row"].tolist()))
        chosen = take(self.table.rows, np.array(changing, np.int64))
        self._changing = dict(zip(changing, zip(*(chosen[name].tolist() for name in _CALL), strict=True), strict=True))
        times = np.where(
            self.table.rows["reply_frame"] != 0, self.table.rows["reply_end"], self.table.rows["call_time"]
        )
        at, appearing = 0, self._appearing
        for row, begin, end, first, last, counts, time in zip(
            order, begins, ends, before, behind, counted[order].tolist(), times[order].tolist(), strict=True
        ):
            server = self.read.servers[row]
            if at < first:
                self._state(stated[at:first], None)
            # Of an RPC first the files of names and contents appear, then those of operations.
            if appearing:
                self._appear(begin)
            update = _FileUpdate(self._call(row), messages[row]) if row in moving else None
            for event in messages[row].events:
                if event.kind not in _OF_CONTENTS:
                    self.names.learn(server, event, time)
                elif update is not None and event.handle is not None and counts:
                    update.contents(event, self.names.file(server, event.handle))
            if appearing:
                self._appear(end)
            if first < last:
                self._state(stated[first:last], update)
            at = last
            if update is not None:
                update.note_latency()
                self._note(update)
        self._state(stated[at:], None)
        self._appear(len(rows))
        self.files = [file for file in self._files if file is not None]
        _note_states(take(rows, ~in_turn), self.files)
        return self._transfers

    def _call(self, row: int) -> FileCall:
        number, connection, caller, procedure, begin, end, first, last, replied, latency = self._changing[row]
        ends, names = self.table.conversation(connection).connection.endpoints, self.table.names.procedures[procedure]
        return FileCall(
            number,
            ends[1 - caller].address,
            ends[caller].address,
            names.version or 0,
            names.minor_version,
            begin,
            end if replied else None,
            first,
            replied or last,
            None if latency < 0 else latency,
        )

    def _note(self, update: _FileUpdate) -> None:
        if update.transfers:
            self._transfers.append((update.call, update.transfers))

    def _appear(self, until: int) -> None:
        """Number the files that appear before an operation."""
        while self._appearing and self._appearing[-1][0] < until:
            _, file = self._appearing.pop()
            self._files[file] = self.names.file(*self.read.handles[file])

    def _in_turn(self, changed: Collection[bytes | None]) -> NDArray[np.bool_]:
        """Operations that say something of files whose contents change: of these the order counts.

        ``changed``: handles of files that calls read and write.
        """
        rows = self.read.rows
        states = (rows["type"] >= 0) | rows["sized"] | (rows["verifier"] > 0)
        reach = np.array([0 if file is None else min(file.reach, _MAX_SIZE) for file in self._files] or [0], np.uint64)
        turning = np.zeros(len(reach), np.bool_)
        turning[rows["file"][(rows["verifier"] > 0) | (rows["sized"] & (rows["size"] < reach[rows["file"]]))]] = True
        turning[[index for index, (_, handle) in enumerate(self.read.handles) if handle in changed]] = True
        turned: NDArray[np.bool_] = states & turning[rows["file"]]
        return turned

    def _state(self, stated: list[tuple[int, int, int, bool, int, bool, bool]], update: _FileUpdate | None) -> None:
        """What operations say of type, size and contents; attributes that a WRITE returns hold after it.

        ``stated``: of each its index, that of its file, the type, whether there is a size, a verifier, and whether it
        is a COMMIT.
        """
        files = self._files
        for index, which, type, sized, size, verified, commits in stated:
            file = files[which]
            if file is None:
                self._appear(index + 1)
                file = files[which]
                assert file is not None
            if type >= 0:
                file.type = type
            sized = sized and file.type != DIRECTORY
            if verified or (sized and size < file.reach):
                change = update
                if change is None:
                    change = _FileUpdate(self._call(int(self.read.rows["row"][index])), _SILENT)
                if sized and change.end is not None:
                    change.size(file, size, change.end)
                if commits and change.end is not None:
                    change.commit(file, self.read.operation(self.read.rows[index].item()))
                if update is None:
                    self._note(change)
            elif sized:
                file.size = size


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
    """Which operations files are used by, and of which versions of NFS."""
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


_SILENT = NfsMessages(None, None, (), (), "")
_MAX_SIZE = (1 << 64) - 1
_OF_CONTENTS = frozenset((onc.READ, onc.WRITE, onc.HOLE, onc.RESIZED, onc.ALTERED))


class _FileUpdate:
    """What one Rpc does to the contents of files."""

    __slots__ = ("begin", "call", "end", "messages", "moved", "transfers")

    def __init__(self, call: FileCall, messages: NfsMessages) -> None:
        self.call, self.messages = call, messages
        self.begin, self.end = call.begin, call.end
        self.transfers: list[FileTransfer] = []
        self.moved: dict[File, None] = {}
        """Files that it read or wrote."""

    def note_latency(self) -> None:
        """To the files that it read or wrote."""
        if self.call.latency is not None:
            for file in self.moved:
                if file.latencies is None:
                    file.latencies = Samples(EXACT_LATENCIES)
                file.latencies.append(self.call.latency)

    def commit(self, file: File, done: FileOperation) -> None:
        if done.succeeded:
            start, end, time = file._unstable
            known = done.offset is not None and done.offset <= start
            if file.uncommitted and time < self.begin and known:
                if not done.count or end <= (done.offset or 0) + done.count:
                    file.uncommitted = 0
                file.restarted |= done.verifier != file._verifier

    def contents(self, event: onc.FileEvent, file: File) -> None:
        if event.kind == onc.READ:
            self.read(event, file)
        elif event.kind == onc.WRITE:
            self.write(event, file)
        elif self.end is None:
            return
        elif event.kind == onc.HOLE:
            file.transfers += 1
            self.reached(file, event.offset + event.count, self.end)
            self.add(ZEROS, file, event.offset, event.count)
        elif event.kind == onc.RESIZED:
            self._truncate(file, event.offset, self.end)
            file.size = event.offset
        elif event.kind == onc.ALTERED:
            end = event.offset + event.count if event.count else None
            file.seen.remove(event.offset, BEYOND if end is None else end)
            if end is not None:
                self.reached(file, end, self.end)
            self.add(ALTERED, file, event.offset, event.count)

    def read(self, event: onc.FileEvent, file: File) -> None:
        reply = self.messages.reply
        if reply is None or self.end is None:
            return
        file.transfers += 1
        file.reads += 1
        self.moved[file] = None
        count = max(0, min(event.count, reply.length - event.position))
        file.read += count
        end = event.offset + count
        if count:
            self.reached(file, end, self.end)
        if event.eof and count == event.count and (count or not event.offset):
            self.size(file, end, self.end)
        self.add(READ, file, event.offset, count, reply, event.position)

    def write(self, event: onc.FileEvent, file: File) -> None:
        call = self.messages.call
        assert call is not None
        file.transfers += 1
        file.writes += 1
        self.moved[file] = None
        count = max(0, min(event.count, call.length - event.position))
        if event.done is None:
            file.unconfirmed += count
            if count:
                self.add(WRITE, file, event.offset, count, call, event.position, sure=False)
            return
        done = min(count, event.done)
        file.refused += count - done
        file.written += done
        if not done or self.end is None:
            return
        self.reached(file, event.offset + done, self.end)
        for operation in self.messages.operations:
            if operation.operation == "WRITE" and operation.handle == file.handle:
                self.stability(file, operation, event.offset, done, self.end)
                break
        self.add(WRITE, file, event.offset, done, call, event.position)

    def stability(self, file: File, operation: FileOperation, offset: int, count: int, end: int) -> None:
        if operation.stable != UNSTABLE:
            return
        start, stop, time = file._unstable
        if file.uncommitted:
            file.restarted |= operation.verifier != file._verifier
            start, stop, end = min(start, offset), max(stop, offset + count), max(time, end)
        else:
            start, stop = offset, offset + count
        file.uncommitted += count
        file._unstable, file._verifier = (start, stop, end), operation.verifier

    def add(
        self,
        kind: str,
        file: File,
        offset: int,
        count: int,
        message: Reassembled | None = None,
        position: int = 0,
        sure: bool = True,
    ) -> None:
        captured: list[tuple[int, memoryview]] = []
        lacking: list[MissingRange] = []
        if message is not None:
            for start, end, missing in split_at_gaps(message, position, position + count):
                at = offset + start - position
                if missing:
                    lacking.append(MissingRange(at, at + end - start, missing))
                    file.missing[missing] += end - start
                    if kind == WRITE and sure:
                        file.seen.remove(at, at + end - start)
                else:
                    captured.append((at, message.captured(start, end)))
                    if sure:
                        file.seen.add(at, at + end - start)
        elif kind == ZEROS:
            file.seen.add(offset, offset + count)
        end_time = self.end if sure else None
        self.transfers.append(
            FileTransfer(
                kind, file, self.begin, end_time, offset, count, self.call.number, self.call.first_frame,
                self.call.last_frame, tuple(captured), tuple(lacking),
            )
        )  # fmt: skip

    def reached(self, file: File, end: int, time: int) -> None:
        """The file is at least ``end`` bytes long, at ``time``."""
        if file.size is not None and end > file.size:
            file.size = end
        if end >= file.reach:
            file.reach, file._reach_end = end, time

    def size(self, file: File, size: int, end: int) -> None:
        """The reply says that the file is ``size`` bytes long; a transfer meanwhile may be newer than that."""
        if size < file.reach and file._reach_end < self.begin:
            self._truncate(file, size, end)
        file.size = max(size, file.reach)

    def _truncate(self, file: File, size: int, end: int) -> None:
        if size < file.reach:
            file.seen.remove(size, BEYOND)
            if not size:
                file.uncommitted = 0
        file.reach, file._reach_end = size, end
        self.add(TRUNCATED, file, size, 0)
