"""The files that NFS calls were about: handles, paths, what was read and written, and which bytes of them were seen.

A file is a handle on one server.  Where the same handle serves several protocol versions, it is one file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

import numpy as np

from ..arrays import Bytes, Int64s, gathered, take, words_at
from ..intervals import IntervalSet
from ..onc import file_events as onc
from ..onc.file_layouts import FileLayout, file_layout
from ..onc.file_operations import DIRECTORY, UNSTABLE, FileOperation
from ..onc.hashes import handle_hash
from ..onc.programs import MOUNT, NFS
from ..onc.rpc_header import SUCCESS_AND_ZERO
from ..onc.shapes.decode_cache import Layout, Layouts
from ..onc.shapes.registry import procedure_shape
from ..onc.shapes.rpc_summary_fields import MAX_NODES
from ..onc.shapes.types import XdrType
from ..percentiles import Distribution, Samples
from ..rpcrdma.reassembly import reassembled_call, reassembled_reply
from ..rpcrdma.rpc_fields import call_places, reply_places
from ..rpcrdma.rpc_table import RpcTable
from ..rpcrdma.rpcs import DUPLICATE_REPLY, Extent, Reassembled, Rpc
from .file_names import server_of
from .paths import MountRoot, NamedFile, Paths, path_of_name
from .truncated_messages import NfsMessages, nfs_messages, split_at_gaps

MAX_LAYOUTS = 4096
"""Pairs of layouts, of calls and replies, that are remembered."""
_SUCCESSFUL = SUCCESS_AND_ZERO[:20]
"""Behind the XID of a reply with an empty verifier and results."""
_REPLY_HEADER = 4 + len(_SUCCESSFUL)


class FileColumns:
    """Remembers how messages are laid out."""

    def __init__(self) -> None:
        self._layouts: dict[XdrType, Layouts] = {}
        self._known: dict[tuple[int, int, int, int], tuple[Layout, Layout, FileLayout | None]] = {}
        """By version, procedure and the identities of the two layouts, which are held with it."""

    def messages(self, table: RpcTable) -> dict[int, NfsMessages]:
        """By row of the table, of NFS calls whose call and reply came in one piece each."""
        found: dict[int, NfsMessages] = {}
        data, rows = table.data, table.plain_rows
        if not len(data) or not len(rows):
            return found
        all_calls = call_places(table)
        all_replies, all_ends = reply_places(table)
        whole = (all_replies >= 0) & ((rows["chunks"] < 0) | (rows["transfer"] >= 0))
        whole &= all_ends - all_replies >= _REPLY_HEADER
        for code in np.unique(rows["procedure"]).tolist():
            names = table.names.procedures[code]
            if names.program != NFS or names.version not in (3, 4):
                continue
            shape = procedure_shape(names.program, names.version, names.procedure)
            if shape is None or shape.arguments is None or shape.results is None:
                continue
            mine = (whole & (rows["procedure"] == code)).nonzero()[0]
            calls, replies = all_calls[mine], all_replies[mine]
            heads = gathered(data, _REPLY_HEADER, replies)[:, 4:]
            plain = (heads == np.frombuffer(_SUCCESSFUL, np.uint8)).all(axis=1)
            mine, calls, replies = mine[plain], calls[plain], replies[plain]
            call_ends = rows["call_at"][mine] + rows["call_send"][mine]
            reply_ends = all_ends[mine]
            arguments = _arguments(data, calls)
            places = table.plain[mine]
            for group, asked in self._of(shape.arguments).learning(data, arguments, call_ends):
                results = replies[group] + _REPLY_HEADER
                for part, answered in self._of(shape.results).learning(data, results, reply_ends[group]):
                    some = group[part]
                    layout = self._layout(
                        (names.version, names.procedure or 0), asked, answered, data,
                        (int(calls[some[0]]), int(arguments[some[0]]), int(call_ends[some[0]])),
                        (int(replies[some[0]]), int(results[part[0]]), int(reply_ends[some[0]])),
                    )  # fmt: skip
                    if layout is None:
                        continue
                    ends = (calls[some], call_ends[some]), (replies[some], reply_ends[some])
                    sides = [_pieces(data, *one, layout.moves_data) for one in ends]
                    decoded = layout.decoded(data, arguments[some], results[part])
                    for place, call, reply, (events, operations) in zip(
                        places[some].tolist(), *sides, decoded, strict=True
                    ):
                        found[place] = NfsMessages(call, reply, events, operations, "")
        return found

    def _of(self, type: XdrType) -> Layouts:
        return self._layouts.setdefault(type, Layouts(type, (), MAX_NODES))

    def _layout(
        self,
        procedure: tuple[int, int],
        asked: Layout,
        answered: Layout,
        data: Bytes,
        call: tuple[int, int, int],
        reply: tuple[int, int, int],
    ) -> FileLayout | None:
        """``call``, ``reply``: where one of them begins, its arguments or results, and where it ends."""
        key = *procedure, id(asked), id(answered)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MAX_LAYOUTS:
                self._known.clear()
            layout = file_layout(
                data[call[0] : call[2]], data[reply[0] : reply[2]], call[1] - call[0], reply[1] - reply[0],
                asked, answered,
            )  # fmt: skip
            found = self._known[key] = asked, answered, layout
        return found[2]


def _pieces(data: Bytes, starts: Int64s, ends: Int64s, wanted: bool) -> Iterable[Reassembled | None]:
    """Whole messages."""
    if not wanted:
        return repeat(None, len(starts))
    whole = [data[start:end].tobytes() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return [Reassembled((Extent(0, len(one), "inline", 0, ""),), ((0, one),)) for one in whole]


def _arguments(data: Bytes, calls: Int64s) -> Int64s:
    """Where the arguments of whole calls begin (RFC 5531, 9): behind credential and verifier."""
    verifier = calls + 32 + (words_at(data, calls + 28) + 3 & -4)
    found: Int64s = verifier + 8 + (words_at(data, verifier + 4) + 3 & -4)
    return found


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
        """Of the RPCs that read or wrote it."""
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


def file_call(rpc: Rpc) -> FileCall:
    """Of an RPC with a call."""
    assert rpc.call is not None
    return FileCall(
        rpc.number,
        server_of(rpc),
        rpc.connection.endpoints[int(rpc.backward)].address,
        rpc.version or 0,
        rpc.minor_version,
        rpc.call.operation.first_time,
        rpc.reply.operation.last_time if rpc.reply is not None else None,
        rpc.first_frame,
        rpc.last_frame,
        rpc.latency.total if rpc.latency is not None else None,
    )


class FileTable:
    """Fed Rpcs as they end; never raises on what they hold.  Contents are returned, not kept."""

    def __init__(self, mounts: Sequence[MountRoot] = ()) -> None:
        """``mounts``: what is known of roots from elsewhere; it may grow."""
        self._mounts = mounts
        self._mounted = 0
        self._columns = FileColumns()
        self._hosts: dict[int, tuple[str, str]] = {}
        """Addresses of the active and the passive end, by connection."""
        self.used: list[tuple[File, FileOperation]] = []
        """What the Rpc that was added last did, with which files."""
        self.call: FileCall | None = None
        """The NFS call that was added last."""
        self.undecoded: Counter[str] = Counter()
        """NFS RPCs that could not be decoded, or not to their end, by the reason."""
        self.names: Paths[File] = Paths(lambda server, handle: File(server, handle, number=len(self.names) + 1))

    def __iter__(self) -> Iterator[File]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def add(self, rpc: Rpc, counts: bool = True) -> list[FileTransfer]:
        """Note names, types and sizes; returns what the Rpc did to contents, in its order.

        ``counts``: it is one of those whose calls and transfers are counted.
        """
        self.used = []
        self._mount()
        if rpc.state == DUPLICATE_REPLY:
            return []
        if rpc.program is None and rpc.call is None:
            self._note_undecoded("the call is not in the capture")
        if rpc.program not in (NFS, MOUNT) or rpc.call is None:
            return []
        if rpc.program == NFS and rpc.version not in (3, 4):
            self._note_undecoded(f"version {rpc.version} is not read")
            return []
        messages = nfs_messages(reassembled_call(rpc), reassembled_reply(rpc))
        if messages is None:
            self._note_undecoded("the call is no RPC message")
            return []
        if messages.problem:
            self._note_undecoded(messages.problem)
        return self._take(file_call(rpc), messages, counts)

    def add_table(self, table: RpcTable, counts: Sequence[bool] | None = None) -> Iterator[list[FileTransfer]]:
        """Take all RPCs of a table, one after the other, as ``add`` does; ``counts`` for each."""
        self._mount()
        messages = self._columns.messages(table)
        calls = self._calls(table, messages)
        counted = repeat(True) if counts is None else iter(counts)
        for row, one in zip(range(len(table)), counted, strict=False):
            known = messages.get(row)
            if known is None:
                yield self.add(table.rpc(row), one)
                continue
            yield self._take(next(calls), known, one)

    def _take(self, call: FileCall, messages: NfsMessages, counts: bool) -> list[FileTransfer]:
        self.call, self.used, server, file_of = call, [], call.server, self.names.file
        update = _FileUpdate(call, messages) if messages.events else None
        for event in messages.events:
            if event.kind not in _OF_CONTENTS:
                self.names.learn(server, event, call.end if call.end is not None else call.begin)
            elif update is not None and event.handle is not None and counts:
                update.contents(event, file_of(server, event.handle))
        if call.latency is not None and update is not None:
            for file in update.moved:
                if file.latencies is None:
                    file.latencies = Samples(EXACT_LATENCIES)
                file.latencies.append(call.latency)
        protocol = call.version, call.minor_version if call.version == 4 else None
        # Attributes that a WRITE returns hold after it.
        for done in messages.operations:
            file = file_of(server, done.handle)
            if counts:
                self.used.append((file, done))
                file.calls[done.operation] += 1
                file.protocols.add(protocol)
            if done.type is not None:
                file.type = done.type
            size = None if file.type == DIRECTORY else done.size
            if call.end is None or (size is None and not done.verifier):
                continue
            if done.verifier or (size is not None and size < file.reach):
                update = update or _FileUpdate(call, messages)
                update.operation(file, done, call.end)
            else:
                file.size = size
        return [] if update is None else update.transfers

    def _mount(self) -> None:
        """Note the roots that became known since the last time."""
        for server, event, time in self._mounts[self._mounted :]:
            self.names.learn(server, event, time)
        self._mounted = len(self._mounts)

    def _calls(self, table: RpcTable, rows: Collection[int]) -> Iterator[FileCall]:
        """Of some plain rows, ascending."""
        chosen = take(table.rows, np.array(sorted(rows), np.int64))
        names = table.names.procedures
        for number, connection, caller, procedure, begin, end, first, last, latency in zip(
            *(chosen[name].tolist() for name in _CALL), strict=True
        ):
            hosts = self._hosts.get(connection)
            if hosts is None:
                ends = table.conversation(connection).connection.endpoints
                hosts = self._hosts[connection] = ends[0].address, ends[1].address
            minor, version = names[procedure].minor_version, names[procedure].version or 0
            yield FileCall(number, hosts[1 - caller], hosts[caller], version, minor, begin, end, first, last, latency)

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
    "number", "connection", "caller", "procedure", "call_time", "reply_end", "call_frame", "reply_frame", "latency",
)  # fmt: skip


_OF_CONTENTS = frozenset((onc.READ, onc.WRITE, onc.HOLE, onc.RESIZED, onc.ALTERED))


class _FileUpdate:
    """What one Rpc does to the contents of files."""

    def __init__(self, call: FileCall, messages: NfsMessages) -> None:
        self.call, self.messages = call, messages
        self.begin, self.end = call.begin, call.end
        self.transfers: list[FileTransfer] = []
        self.moved: dict[File, None] = {}
        """Files that it read or wrote."""

    def operation(self, file: File, done: FileOperation, end: int) -> None:
        """What it says of the contents."""
        if done.size is not None and file.type != DIRECTORY:
            self.size(file, done.size, end)
        if done.operation == "COMMIT" and done.succeeded:
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
