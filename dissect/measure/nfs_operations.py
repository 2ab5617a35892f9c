"""The operations of NFS calls on files, as one table: a row each, in the order of RPCs and of operations in each.

Of messages that are laid out alike the values stand at the same places (``onc.file_layouts``): these are read in
columns.  The other RPCs are decoded one by one, and give the same rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Bytes, Int64s, Rows, coded_keys, gathered
from ..onc import file_operations as file_events
from ..onc.file_operations import Constant, FileEvent, FileLayout, FileOperation, Source, file_layout
from ..onc.programs import MOUNT, NFS
from ..onc.rpc_header import SUCCESS_AND_ZERO
from ..onc.shapes.decode_cache import Layout, PairedLayouts
from ..onc.shapes.registry import procedure_shape
from ..rpcrdma.reassembly import reassembled_call, reassembled_reply
from ..rpcrdma.rpc_fields import REPLY_HEADER, KnownRpc, argument_places, call_places, reply_places
from ..rpcrdma.rpc_table import RpcTable
from ..rpcrdma.rpcs import DUPLICATE_REPLY, Extent, Reassembled, Rpc
from .file_names import NfsMessages, nfs_messages, opened_name

OPERATION = np.dtype(
    [
        ("row", "i8"),
        ("number", "i8"),
        ("name", "i8"),
        ("file", "i8"),
        ("answered", "?"),
        ("succeeded", "?"),
        ("type", "i8"),
        ("sized", "?"),
        ("size", "u8"),
        ("stable", "i8"),
        ("verifier", "i8"),
        ("ranged", "?"),
        ("offset", "u8"),
        ("count", "u8"),
    ]
)
"""A row of the table; what they mean is said at ``FileOperation``.

=========  =============================================================
row        of the RPC in its ``RpcTable``
number     which operation of the COMPOUND it is, from 0
name       index in ``NfsOperations.names``
file       index in ``NfsOperations.handles``
answered   there is a reply, which says whether it succeeded
type       -1: not said; so is stable
sized      the reply has a size
verifier   index in ``NfsOperations.verifiers``; 0 is none
ranged     the call has an offset and a count
=========  =============================================================
"""

_SUCCESSFUL = SUCCESS_AND_ZERO[:20]
"""Behind the XID of a reply with an empty verifier and results."""

Handle = tuple[str, bytes]
"""Address of a server, and a file handle there."""


class NfsOperations(NamedTuple):
    """Of the RPCs of a table."""

    rows: Rows
    """``OPERATION``."""
    names: Sequence[str]
    handles: Sequence[Handle]
    verifiers: Sequence[bytes]
    servers: Sequence[str]
    """Of each RPC: address of the end that is called."""
    messages: dict[int, NfsMessages]
    """By row of the table: what RPCs say of names and contents, those that say anything of these."""
    undecoded: Sequence[str]
    """Why RPCs could not be decoded, or not to their end, a reason for each."""

    def operation(self, row: Any) -> FileOperation:
        """A row as an object."""
        _, number, name, file, answered, succeeded, type, sized, size, stable, verifier, ranged, offset, count = row
        return FileOperation(
            self.names[name],
            self.handles[file][1],
            succeeded if answered else None,
            None if type < 0 else type,
            size if sized else None,
            None if stable < 0 else stable,
            self.verifiers[verifier],
            offset if ranged else None,
            count if ranged else None,
            number,
        )


class _Codes(dict[Any, int]):
    """Gives each key a number, in the order in which they come."""

    def __missing__(self, key: Any) -> int:
        found = self[key] = len(self)
        return found


class OperationReader:
    """Remembers how messages are laid out."""

    def __init__(self) -> None:
        self._layouts: defaultdict[tuple[int, int], PairedLayouts[FileLayout | None]] = defaultdict(PairedLayouts)
        """By version and procedure."""

    def read(self, table: RpcTable) -> NfsOperations:
        """The operations of all RPCs of a table; what one says of names and contents is decoded where it does."""
        return _Reading(table).operations(self._groups(table))

    def _groups(self, table: RpcTable) -> Iterator[_AlikeMessages]:
        """The NFS calls whose call and reply came in one piece each, those together that are laid out alike."""
        data, rows = table.data, table.plain_rows
        if not len(data) or not len(rows):
            return
        calls = call_places(table)
        call_ends = rows["call_at"] + rows["call_send"]
        arguments = argument_places(data, calls)
        replies, reply_ends = reply_places(table)
        results = replies + REPLY_HEADER
        whole = (replies >= 0) & ((rows["chunks"] < 0) | (rows["transfer"] >= 0)) & (reply_ends >= results)
        heads = gathered(data, len(_SUCCESSFUL), replies[whole] + 4)
        whole[whole] = (heads == np.frombuffer(_SUCCESSFUL, np.uint8)).all(axis=1)
        for code in np.unique(rows["procedure"][whole]).tolist():
            names = table.names.procedures[code]
            shape = procedure_shape(names.program, names.version, names.procedure)
            if names.program != NFS or names.version not in (3, 4) or shape is None:
                continue
            if shape.arguments is None or shape.results is None:
                continue

            mine = (whole & (rows["procedure"] == code)).nonzero()[0]

            def learn(one: int, asked: Layout, answered: Layout, mine: Int64s = mine) -> FileLayout | None:
                row = mine[one]
                call, reply = data[calls[row] : call_ends[row]], data[replies[row] : reply_ends[row]]
                return file_layout(call, reply, int(arguments[row] - calls[row]), REPLY_HEADER, asked, answered)

            sides = (arguments[mine], call_ends[mine]), (results[mine], reply_ends[mine])
            layouts = self._layouts[names.version, names.procedure or 0]
            for some, layout in layouts.groups((shape.arguments, shape.results), data, *sides, learn):
                if layout is not None:
                    group = mine[some]
                    yield _AlikeMessages(
                        layout, table.plain[group], arguments[group], results[group],
                        (calls[group], call_ends[group]), (replies[group], reply_ends[group]),
                    )  # fmt: skip


class _AlikeMessages(NamedTuple):
    """RPCs that are laid out alike."""

    layout: FileLayout
    rows: Int64s
    """Of the table."""
    arguments: Int64s
    results: Int64s
    calls: tuple[Int64s, Int64s]
    """Where each call begins, and where it ends."""
    replies: tuple[Int64s, Int64s]


class _Reading:
    """Gathers the operations of the RPCs of one table."""

    def __init__(self, table: RpcTable) -> None:
        self.table = table
        rows = table.rows
        sides, which = coded_keys(zip(rows["connection"].tolist(), rows["caller"].tolist(), strict=True), len(rows))
        ends = [table.conversation(connection).connection.endpoints for connection, _ in sides]
        servers = np.array([end[1 - caller].address for end, (_, caller) in zip(ends, sides, strict=True)], object)
        self.servers = servers[which] if len(sides) else servers
        """Of each row: address of the end that is called."""
        self.names, self.handles, self.verifiers = _Codes(), _Codes(), _Codes({b"": 0})
        self.messages: dict[int, NfsMessages] = {}
        self.undecoded: list[str] = []

    def operations(self, groups: Iterable[_AlikeMessages]) -> NfsOperations:
        found = [np.empty(0, OPERATION)]
        left = np.ones(len(self.table), np.bool_)
        for group in groups:
            left[group.rows] = False
            found += self._columns(group)
            if group.layout.events:
                self._events(group)
        singly: list[tuple[Any, ...]] = []
        programs = [one.program for one in self.table.names.procedures]
        ours = np.array([one in (NFS, MOUNT, None) for one in programs] or [False])
        for row in (left & ours[self.table.rows["procedure"]]).nonzero()[0].tolist():
            messages = self._singly(self.table.rpc(row))
            if messages is not None:
                singly += [self._row(row, done) for done in messages.operations]
                if messages.events:
                    self.messages[row] = messages
        found.append(np.array(singly, OPERATION))
        rows = np.concatenate(found)
        rows = rows[np.lexsort((rows["number"], rows["row"]))]
        return NfsOperations(
            rows,
            [*self.names],
            [*self.handles],
            [*self.verifiers],
            self.servers.tolist(),
            self.messages,
            self.undecoded,
        )

    def _singly(self, rpc: Rpc) -> NfsMessages | None:
        """What an RPC says, its undecoded bytes noted."""
        if rpc.state == DUPLICATE_REPLY:
            return None
        if isinstance(rpc, KnownRpc):
            return _known_messages(rpc)
        if rpc.program is None and rpc.call is None:
            self.undecoded.append("the call is not in the capture")
        if rpc.program not in (NFS, MOUNT) or rpc.call is None:
            return None
        if rpc.program == NFS and rpc.version not in (3, 4):
            self.undecoded.append(f"version {rpc.version} is not read")
            return None
        messages = nfs_messages(reassembled_call(rpc), reassembled_reply(rpc))
        problem = "the call is no RPC message" if messages is None else messages.problem
        if problem:
            self.undecoded.append(problem)
        return messages

    def _row(self, row: int, done: FileOperation) -> tuple[Any, ...]:
        return (
            row,
            done.number,
            self.names[done.operation],
            self.handles[self.servers[row], done.handle],
            done.succeeded is not None,
            bool(done.succeeded),
            -1 if done.type is None else done.type,
            done.size is not None,
            done.size or 0,
            -1 if done.stable is None else done.stable,
            self.verifiers[done.verifier],
            done.offset is not None,
            done.offset or 0,
            done.count or 0,
        )

    def _columns(self, group: _AlikeMessages) -> Iterator[Rows]:
        """The rows of each operation of those that are alike."""
        servers = self.servers[group.rows].tolist()
        places = self.table.data, group.arguments, group.results
        files: dict[Source, Int64s] = {}
        """Many operations of a COMPOUND have the same."""

        def values(source: Source, code: Callable[[Any], Any] = lambda value: value) -> Any:
            """The values of a source, or what stands for each of these."""
            if isinstance(source, Constant):
                return -1 if source.value is None else code(source.value)
            found = source.column(*places)
            return found if source.number else np.fromiter(map(code, found), np.int64, len(servers))

        def handles(source: Source) -> Int64s:
            given = repeat(source.value) if isinstance(source, Constant) else source.column(*places)
            return np.fromiter(map(self.handles.__getitem__, zip(servers, given, strict=False)), np.int64, len(servers))

        for sources in group.layout.operations:
            of = dict(zip(FileOperation._fields, sources, strict=True))
            rows = np.zeros(len(group.rows), OPERATION)
            rows["row"] = group.rows
            rows["name"] = values(of["operation"], self.names.__getitem__)
            rows["verifier"] = values(of["verifier"], self.verifiers.__getitem__)
            handle = of["handle"]
            rows["file"] = files[handle] = files[handle] if handle in files else handles(handle)
            for name in ("number", "type", "stable"):
                rows[name] = values(of[name])
            if of["succeeded"] != _NOTHING:
                rows["answered"], rows["succeeded"] = True, values(of["succeeded"])
            if of["size"] != _NOTHING:
                rows["sized"], rows["size"] = True, values(of["size"])
            if of["offset"] != _NOTHING:
                rows["ranged"], rows["offset"], rows["count"] = True, values(of["offset"]), values(of["count"])
            yield rows

    def _events(self, group: _AlikeMessages) -> None:
        """Decode what is said of names and contents."""
        layout, data = group.layout, self.table.data
        sides = [_pieces(data, *one, layout.moves_data) for one in (group.calls, group.replies)]
        decoded = layout.decoded(data, group.arguments, group.results)
        for row, call, reply, (events, operations) in zip(group.rows.tolist(), *sides, decoded, strict=True):
            self.messages[row] = NfsMessages(call, reply, events, operations, "")


_NOTHING = Constant(None)


def _known_messages(rpc: KnownRpc) -> NfsMessages | None:
    """What one without bytes says of a file, whose data is as if all of the message had been missing."""
    fields, moved = rpc.fields, rpc.moved
    if fields.handle is None or rpc.program != NFS:
        return None
    named = [one for one in rpc.operations if one in (READ, WRITE)] or [rpc.name]
    answered = rpc.reply is not None
    done = FileOperation(
        named[0], fields.handle, not rpc.failed if answered else None, offset=fields.offset, count=fields.count
    )
    events: tuple[FileEvent, ...] = () if rpc.opened is None else (opened_name(rpc),)
    if done.operation in (READ, WRITE) and fields.offset is not None and not rpc.failed:
        kind = file_events.READ if done.operation == READ else file_events.WRITE
        count = (fields.count or 0) if moved is None else moved
        events += (FileEvent(kind, fields.handle, None, None, fields.offset, count, 0, moved if answered else None),)
    sides = [
        None if one is None else Reassembled((Extent(0, 1 << 32, "inline", one.frame, NOT_TRACED),), ())
        for one in (rpc.call, rpc.reply)
    ]
    return NfsMessages(sides[0], sides[1], events, (done,), "")


READ, WRITE = "READ", "WRITE"
NOT_TRACED = "not in a trace"
"""Why bytes are missing."""


def _pieces(data: Bytes, starts: Int64s, ends: Int64s, wanted: bool) -> Iterable[Reassembled | None]:
    """Messages that came in one piece each; None where their bytes are not wanted."""
    if not wanted:
        return repeat(None, len(starts))
    whole = [data[start:end].tobytes() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return [Reassembled((Extent(0, len(one), "inline", 0, ""),), ((0, one),)) for one in whole]
