"""The operations of NFS calls on files, as one table: a row each, in the order of RPCs and of operations in each.

Messages with the same layout have their values at the same offsets (``onc.file_operations``): these are read in
columns. The other RPCs are decoded one by one, and give the same rows.

RPCs of NFS as Linux's counters have them: by client, server and version, each operation with calls, errors, bytes.

Operations have their names in the client's mountstats (``onc.linux_operations``); NFSv4 also has the single operations
that the server executed, as knfsd counts them.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, coded_keys, take, unique
from ..named_tuple import NamedTuple
from ..onc import file_operations as file_events
from ..onc.compound import compound_reply, operation_names
from ..onc.file_operations import Constant, FileEvent, FileLayout, FileOperation, Source, file_layout
from ..onc.rpc_header import MOUNT, NFS, results_at
from ..onc.shapes.decode_cache import Layout, PairedLayouts
from ..onc.shapes.registry import procedure_shape
from ..rpcrdma.reassembly import reassembled_call, reassembled_reply
from ..rpcrdma.rpc_fields import (
    REPLY_HEADER,
    FieldReader,
    KnownRpc,
    argument_places,
    message_places,
    reply_places,
    successful,
    unread_calls,
)
from ..rpcrdma.rpc_table import DUPLICATE, FLAG_MISSING, FLAG_TRUNCATED, STATES, ProcedureNames, RpcTable
from ..rpcrdma.rpcs import DUPLICATE_REPLY, Extent, Reassembled, Rpc
from .file_names import MISSING_BYTES, NfsMessages, nfs_messages, opened_name

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
    ],
    align=True,
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

Handle = tuple[str, bytes]
"""Address of a server, and a file handle there."""


class NfsOperations(NamedTuple):
    """The operations of NFS in the RPCs of a table, in columns."""

    rows: Rows
    """``OPERATION``."""
    names: Sequence[str]
    handles: Sequence[Handle]
    verifiers: Sequence[bytes]
    servers: Sequence[str]
    """For each RPC, the address of the end that is called."""
    events: Sequence[FileEvent]
    """What RPCs say of names and contents, in the order of RPCs and of events in each."""
    event_rows: Int64s
    """The row of the RPC of each event."""
    messages: dict[int, NfsMessages]
    """By row of the table those RPCs with events that were decoded one by one."""
    data: Bytes
    pieces: Int64s
    """For each RPC, begin and end in ``data`` of its call and of its reply, if these are not among ``messages``."""
    undecoded: Sequence[str]
    """Why RPCs could not be decoded, or not to their end, a reason for each."""

    def message(self, row: int, of_reply: bool) -> Reassembled | None:
        """The call or the reply of an RPC with events."""
        if row in self.messages:
            said = self.messages[row]
            return said.reply if of_reply else said.call
        begin, end = self.pieces[row, int(of_reply)].tolist()
        return Reassembled((Extent(0, end - begin, "inline", 0, ""),), ((0, self.data[begin:end].tobytes()),))

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
        code = self[key] = len(self)
        return code


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
        data, rows = table.data, table.only_rows
        if not len(data) or not len(rows):
            return
        calls, call_ends = message_places(rows, "call")
        arguments = argument_places(data, calls, call_ends)
        replies, reply_ends, reply_lacks = reply_places(table)
        results = replies + REPLY_HEADER
        truncated = rows["flags"] & FLAG_TRUNCATED > 0
        whole = (replies >= 0) & ((rows["chunks"] < 0) | (rows["transfer"] >= 0) & ~truncated) & (reply_ends >= results)
        whole &= ~truncated | (arguments < call_ends)
        lacks = [np.where(truncated, column, 0) for column in (rows["call_send"] - rows["call_captured"], reply_lacks)]
        whole[whole] = successful(data, replies[whole])
        for code in unique(rows["procedure"][whole]).tolist():
            names = table.names.procedures[code]
            shape = procedure_shape(names.program, names.version, names.procedure)
            if names.program != NFS or names.version not in (3, 4) or shape is None:
                continue
            if shape.arguments is None or shape.results is None:
                continue

            mine = (whole & (rows["procedure"] == code)).nonzero()[0]

            def learn(at: int, asked: Layout, answered: Layout, mine: Int64s = mine) -> FileLayout | None:
                row = mine[at]
                call, reply = data[calls[row] : call_ends[row]], data[replies[row] : reply_ends[row]]
                begin = int(arguments[row] - calls[row])
                lacking = bool(lacks[0][row] or lacks[1][row])
                return file_layout(call, reply, begin, REPLY_HEADER, asked, answered, lacking)

            sides = (arguments[mine], call_ends[mine]), (results[mine], reply_ends[mine])
            layouts = self._layouts[names.version, names.procedure or 0]
            types, lacking = (shape.arguments, shape.results), (lacks[0][mine], lacks[1][mine])
            for alike, layout in layouts.groups(types, data, *sides, lacking, learn):
                if layout is not None:
                    group = mine[alike]
                    yield _AlikeMessages(
                        layout, table.row_places[group], arguments[group], results[group],
                        (calls[group], call_ends[group]), (replies[group], reply_ends[group]),
                    )  # fmt: skip


class _AlikeMessages(NamedTuple):
    """RPCs that are laid out alike."""

    layout: FileLayout
    rows: Int64s
    """Rows of the table."""
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
        """For each row, the address of the end that is called."""
        self.names, self.handles, self.verifiers = _Codes(), _Codes(), _Codes({b"": 0})
        self.events: list[FileEvent] = []
        self.event_rows: list[Int64s] = [np.empty(0, np.int64)]
        self.messages: dict[int, NfsMessages] = {}
        self.pieces = np.zeros((len(rows), 2, 2), np.int64)
        self.undecoded: list[str] = []

    def operations(self, groups: Iterable[_AlikeMessages]) -> NfsOperations:
        table = self.table
        parts = [np.empty(0, OPERATION)]
        left = np.ones(len(table), np.bool_)
        for group in groups:
            left[group.rows] = False
            parts += self._columns(group)
            for events in group.layout.events_in(table.data, group.arguments, group.results):
                self.events += events
                self.event_rows.append(group.rows)
            if group.layout.problem:
                self.undecoded += [MISSING_BYTES] * len(group.rows)
            if group.layout.moves_data:
                self.pieces[group.rows] = np.array([group.calls, group.replies]).transpose(2, 0, 1)
        singly: list[tuple[Any, ...]] = []
        programs = [procedure.program for procedure in table.names.procedures]
        ours = np.array([program in (NFS, MOUNT, None) for program in programs] or [False])
        left &= ours[table.rows["procedure"]]
        unread = self._unread()
        left[unread] = False
        self.undecoded += [MISSING_BYTES] * len(unread)
        for row, rpc in zip(left.nonzero()[0].tolist(), table.selected(left), strict=True):
            messages = self._singly(rpc)
            if messages is not None:
                singly += [self._row(row, done) for done in messages.operations]
                if messages.events:
                    self.messages[row] = messages
                    self.events += messages.events
                    self.event_rows.append(np.full(len(messages.events), row))
        parts.append(np.array(singly, OPERATION))
        rows = np.concatenate(parts)
        rows = take(rows, np.lexsort((rows["number"], rows["row"])))
        event_rows = np.concatenate(self.event_rows)
        order = event_rows.argsort(kind="stable")
        return NfsOperations(
            rows,
            [*self.names],
            [*self.handles],
            [*self.verifiers],
            self.servers.tolist(),
            [self.events[at] for at in order.tolist()],
            event_rows[order],
            self.messages,
            table.data,
            self.pieces,
            self.undecoded,
        )

    def _unread(self) -> Int64s:
        """The row RPCs that say nothing: their calls are truncated before the arguments, without which results are of
        no file."""
        table, rows = self.table, self.table.only_rows
        ours = [
            names.program == NFS
            and names.version in (3, 4)
            and bool(names.procedure)
            and procedure_shape(names.program, names.version, names.procedure) is not None
            for names in table.names.procedures
        ]
        unread = unread_calls(table)
        unread &= np.array(ours or [False])[rows["procedure"]]
        return take(table.row_places, unread)

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
            values = source.column(*places)
            return values if source.number else np.fromiter(map(code, values), np.int64, len(servers))

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


_NOTHING = Constant(None)


def _known_messages(rpc: KnownRpc) -> NfsMessages | None:
    """What one without bytes says of a file, whose data is as if all of the message had been missing."""
    fields, moved = rpc.fields, rpc.moved
    if fields.handle is None or rpc.program != NFS:
        return None
    named = [operation for operation in rpc.operations if operation in (READ, WRITE)] or [rpc.name]
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
        None if message is None else Reassembled((Extent(0, 1 << 32, "inline", message.frame, NOT_TRACED),), ())
        for message in (rpc.call, rpc.reply)
    ]
    return NfsMessages(sides[0], sides[1], events, (done,), "")


READ, WRITE = "READ", "WRITE"
NOT_TRACED = "not in a trace"
"""Why bytes are missing."""


Mask = NDArray[np.bool_]

MAX_CLIENTS = 4096
MAX_NEWEST = 4096
"""The last operations of a client that are remembered in their order."""
OTHER_COMPOUND = "other COMPOUND"
"""One that the client of Linux does not send."""
_NO_CALL = STATES.index("no call")
_INCOMPLETE = FLAG_TRUNCATED | FLAG_MISSING


class NfsCaller(NamedTuple):
    """Between which hosts calls go, and by which version of NFS."""

    client: str
    server: str
    version: int
    minor_version: int | None


@dataclass(slots=True)
class WireOperation:
    """The calls of one operation, as seen."""

    calls: int = 0
    errors: int = 0
    sent: int = 0
    """Bytes of calls, chunks included, without transport headers."""
    received: int = 0
    latency: int = 0
    """Nanoseconds, the sum over ``timed`` RPCs."""
    timed: int = 0
    unanswered: int = 0
    incomplete: int = 0
    """RPCs with bytes that the capture lacks."""
    statuses: Counter[str] = field(default_factory=Counter)
    """Statuses of the errors."""

    def add(self, other: WireOperation) -> None:
        for name in ("calls", "errors", "sent", "received", "latency", "timed", "unanswered", "incomplete"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.statuses += other.statuses


@dataclass(slots=True)
class WireCalls:
    """What one client asked of one server in one version."""

    operations: dict[str, WireOperation] = field(default_factory=dict)
    newest: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=MAX_NEWEST))
    """When the last RPCs ended, in that order of each capture point, with their operations."""
    connections: set[tuple[int, int]] = field(default_factory=set)
    """Capture point and number."""


@dataclass(slots=True)
class ServedCalls:
    """What one server was asked, by all its clients."""

    procedures: Counter[tuple[int, str]] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    """Operations of COMPOUNDs that were carried out, failed ones included."""
    unanswered: int = 0


class WireOperations:
    """Feed it tables of RPCs."""

    def __init__(self) -> None:
        self.reader = FieldReader()
        self.begin, self.end = 0, (1 << 63) - 1
        """Only RPCs that ended between these times (ns) are counted."""
        self.callers: dict[NfsCaller, WireCalls] = {}
        self.servers: dict[str, ServedCalls] = {}
        self.unmatched: Counter[tuple[str, str]] = Counter()
        """Replies whose call was not captured, by client and server."""
        self.others: Counter[tuple[str, str]] = Counter()
        """Calls of other programs, and replies to backward calls, which the client sent on the same connections."""

    def add(self, table: RpcTable, point: int = 0) -> None:
        """The contents of its RPCs must be held; ``point``: where they were captured."""
        rows = table.rows
        ended = np.where(rows["reply_end"] != 0, rows["reply_end"], rows["call_end"])
        kept = np.flatnonzero((rows["state"] != DUPLICATE) & (ended >= self.begin) & (ended <= self.end))
        codes: dict[tuple[int, int, str], int] = {}
        each = [*self._keys(table, kept)]
        of_code = np.array([codes.setdefault(key, len(codes)) for key in each], np.int64)
        failures = np.array([failed for _, failed in table.names.statuses] or [False])
        for (connection, procedure, operation), code in codes.items():
            chosen = rows[kept[of_code == code]]
            ends = table.conversation(connection).connection.endpoints
            pair = ends[0].address, ends[1].address
            names = table.names.procedures[procedure >> 1]
            if procedure & 1:
                self.others[pair] += int(np.count_nonzero(chosen["reply_frame"] != 0))
            elif not operation:
                self.unmatched[pair] += len(chosen)
            elif names.program != NFS:
                self.others[pair] += len(chosen)
            else:
                self._serve(pair[1], names, chosen)
                caller = self._caller(pair, names)
                caller.connections.add((point, connection))
                caller.operations.setdefault(operation, WireOperation()).add(
                    _counted(chosen, failures[chosen["status"]], table)
                )
        for at in ended[kept].argsort(kind="stable").tolist():
            connection, procedure, operation = each[at]
            names = table.names.procedures[procedure >> 1]
            if operation and not procedure & 1 and names.program == NFS:
                ends = table.conversation(connection).connection.endpoints
                self._caller((ends[0].address, ends[1].address), names).newest.append((int(ended[kept[at]]), operation))
        for row in kept[self._failed_compounds(table, kept, failures)].tolist():
            rpc = table[row]
            self._server(rpc.connection.endpoints[1].address).operations.update(_carried_out(rpc))

    def _keys(self, table: RpcTable, kept: Int64s) -> Iterator[tuple[int, int, str]]:
        """Connection, procedure (doubled, and one more for a backward call) and Linux's name of each RPC."""
        rows = table.rows[kept]
        names = table.names.procedures
        linux = self.reader.columns(table, wanted=frozenset(("linux",))).columns["linux"][kept].tolist()
        columns = (rows[name].tolist() for name in ("connection", "procedure", "caller", "state"))
        for connection, procedure, caller, state, name in zip(*columns, linux, strict=True):
            procedure_names = names[procedure]
            operation = procedure_names.name or "?"
            if state == _NO_CALL:
                operation = ""
            elif procedure_names.version == 4 and procedure_names.operations:
                operation = name or OTHER_COMPOUND
            yield connection, procedure << 1 | (caller != 0), operation

    def _caller(self, pair: tuple[str, str], names: ProcedureNames) -> WireCalls:
        key = NfsCaller(*pair, names.version or 0, names.minor_version)
        if key not in self.callers and len(self.callers) >= MAX_CLIENTS:
            key = NfsCaller("", pair[1], names.version or 0, names.minor_version)
        return self.callers.setdefault(key, WireCalls())

    def _server(self, address: str) -> ServedCalls:
        if address not in self.servers and len(self.servers) >= MAX_CLIENTS:
            address = ""
        return self.servers.setdefault(address, ServedCalls())

    def _serve(self, address: str, names: ProcedureNames, chosen: Rows) -> None:
        served = self._server(address)
        served.procedures[names.version or 0, names.name] += len(chosen)
        unanswered = int(np.count_nonzero(chosen["reply_frame"] == 0))
        served.unanswered += unanswered
        for operation in names.operations:
            served.operations[operation] += len(chosen) - unanswered

    def _failed_compounds(self, table: RpcTable, kept: Int64s, failures: Mask) -> Mask:
        rows = table.rows[kept]
        compounds = np.array([bool(procedure.operations) for procedure in table.names.procedures] or [False])
        answered = (rows["reply_frame"] != 0) & (rows["call_frame"] != 0) & (rows["caller"] == 0)
        failed: Mask = failures[rows["status"]] & compounds[rows["procedure"]] & answered
        return failed


def _counted(chosen: Rows, failed: Mask, table: RpcTable) -> WireOperation:
    latencies = chosen["latency"][chosen["latency"] >= 0]
    statuses = Counter(table.names.statuses[status][0] for status in chosen["status"][failed].tolist())
    return WireOperation(
        len(chosen),
        int(np.count_nonzero(failed)),
        int((chosen["call_inline"] + chosen["read_bytes"]).sum()),
        int((chosen["reply_inline"] + chosen["write_bytes"] + chosen["reply_chunk_bytes"]).sum()),
        int(latencies.sum()),
        len(latencies),
        int(np.count_nonzero(chosen["reply_frame"] == 0)),
        int(np.count_nonzero(chosen["flags"] & _INCOMPLETE)),
        statuses,
    )


def _carried_out(rpc: Rpc) -> dict[str, int]:
    """How many operations fewer than it asked for were carried out of a COMPOUND that failed, as negative numbers."""
    message = reassembled_reply(rpc)
    prefix = message.prefix if message is not None else b""
    body = results_at(prefix, rpc.gss)
    results: tuple[str, ...] = ()
    if body >= 0:
        reply = compound_reply(prefix, body, len(prefix))
        results = operation_names(tuple(number for number, _ in reply.results))
    missing = Counter(rpc.operations)
    missing.subtract(results)
    return {name: -count for name, count in missing.items() if count}
