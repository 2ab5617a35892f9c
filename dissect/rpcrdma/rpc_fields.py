"""The flat fields of RPCs: file, range, state and caller, whatever the procedure (``onc.shapes.flat``).

``rpc_fields`` decodes the messages of one RPC.  ``FieldReader`` finds the same fields in columns: of many messages with
the same layout it decodes the first, and learns where the fields of all are.  A property test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from struct import pack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, bytes_at, distinct, gathered, words_at
from ..layers.rpcrdma_codes import NO_RDMA, RDMA_MSG
from ..named_tuple import NamedTuple
from ..onc.rpc_header import SUCCESS_AND_ZERO, call_head, reply_header
from ..onc.shapes.decode_cache import (
    ARGUMENTS,
    MAX_NODES,
    OF_CALLS,
    RESULTS,
    FlatFields,
    Layout,
    Layouts,
    credential_fields,
    decoded_values,
    field_of,
    flat_fields,
    flat_nodes,
    result_fields,
    result_nodes,
)
from ..onc.shapes.nfs4 import CALLBACK_OPERATIONS, OPERATIONS
from ..onc.shapes.registry import procedure_shape
from ..onc.shapes.rfc5531 import TYPES as RPC_TYPES
from ..onc.shapes.types import Node, SparseBytes, XdrType, decode
from ..onc.xdr import words2
from .message_trees import decoded_call, decoded_reply
from .reassembly import reassembled_call, reassembled_reply
from .rpc_table import ProcedureNames, RpcTable
from .rpcs import Rpc

MAX_CALLERS = 32
"""Distinct credentials of a batch that are searched for among all calls."""
_OF_CALLERS = {"uid", "gid", "machine_name", "context"}
REPLY_HEADER = 24
"""Bytes of a reply's header with an empty verifier."""
_SUCCESSFUL = np.frombuffer(SUCCESS_AND_ZERO[: REPLY_HEADER - 4], np.uint8)
"""That header after the XID, if there are results."""


class KnownRpc(Rpc):
    """An RPC without bytes whose fields are known from elsewhere."""

    __slots__ = ("fields", "moved", "opened")
    fields: FlatFields
    moved: int | None
    """Bytes of a file that it read or wrote; None if unknown."""
    opened: tuple[bytes, bytes] | None
    """What identifies the directory of its file, and the file's name there; None if unknown."""


def rpc_fields(rpc: Rpc) -> FlatFields:
    """The fields of one RPC; all None if its messages are missing or sealed."""
    if isinstance(rpc, KnownRpc):
        return rpc.fields
    call, reply = decoded_call(rpc, MAX_NODES), decoded_reply(rpc, MAX_NODES)
    return flat_fields(
        call.tree.body if call is not None else None,
        reply.tree.body if reply is not None else None,
        call.tree.header if call is not None else None,
        results_of(_names(rpc)),
    )


class FieldColumns(NamedTuple):
    """The fields of the RPCs of a table."""

    columns: dict[str, NDArray[np.object_]]
    """By field of ``FlatFields``; None for RPCs without it.  ``object``: the first file handle of the results if that
    was asked for, b"" if they have none."""

    def row(self, index: int) -> FlatFields:
        return FlatFields(*(self.columns[name][index] for name in FlatFields._fields))


LayoutsKind = tuple[XdrType, bool, int, int]
"""The type; whether it is one of results; for truncated values the bytes that are captured and those that are not."""
MAX_KINDS = 1024


class FieldReader:
    """Remembers the layouts of messages; see the module."""

    def __init__(self) -> None:
        self._layouts: dict[LayoutsKind, Layouts] = {}

    def columns(
        self,
        table: RpcTable,
        objects: NDArray[np.bool_] | None = None,
        wanted: frozenset[str] = frozenset(FlatFields._fields),
        needless: NDArray[np.bool_] | None = None,
    ) -> FieldColumns:
        """The fields of all RPCs of a table whose contents are kept; ``objects``: RPCs whose ``object`` is asked for;
        ``wanted``: fields to read, if that takes time; ``needless``: RPCs whose fields are not asked for."""
        columns = {name: np.full(len(table), None, object) for name in (*FlatFields._fields, "object")}
        for row, rpc in zip(table.places.tolist(), table.objects, strict=True):
            if needless is not None and needless[row]:
                continue
            asked = objects is not None and bool(objects[row])
            for name, value in self._found(rpc, asked).items():
                columns[name][row] = value
        if len(table.data) and len(table.row_places):
            _RowFields(self, table, columns, None if objects is None else objects[table.row_places], wanted).read()
        return FieldColumns(columns)

    def fields(self, rpc: Rpc) -> FlatFields:
        """The fields of one RPC."""
        return FlatFields(**self._found(rpc, False))

    def _found(self, rpc: Rpc, asked: bool) -> dict[str, Any]:
        """The fields of one RPC by name; ``asked``: with ``object``, if the results could be read."""
        if isinstance(rpc, KnownRpc):
            return rpc.fields._asdict()
        call = message_bytes(rpc, False)
        head = call_head(call.prefix, 0, len(call.prefix)) if call is not None else None
        if call is None or head is None or head[3] is not None or not head[4]:
            return rpc_fields(rpc)._asdict()
        program, version, procedure, _, body = head
        shape = procedure_shape(program, version, procedure)
        fields = dict(_credential(*_credential_at(call.prefix)))
        if shape is None:
            return fields
        if shape.arguments is not None:
            fields |= self.values(shape.arguments, False, call.data, body)
        wanted = results_of(_names(rpc)) - fields.keys()
        if asked:
            wanted |= {"object"}
        if wanted and shape.results is not None:
            reply = message_bytes(rpc, True)
            if reply is not None:
                header = reply_header(reply.prefix, 0, len(reply.prefix))
                if header is None or header.body < 0:
                    return rpc_fields(rpc)._asdict()
                results = {"object": b""} | self.values(shape.results, True, reply.data, header.body)
                fields |= {name: value for name, value in results.items() if name in wanted}
        return fields

    def layouts(self, type: XdrType, results: bool, captured: int = 0, lacking: int = 0) -> Layouts:
        """The layouts of arguments or results of this type, whole or truncated."""
        kind = type, results, captured, lacking
        layouts = self._layouts.get(kind)
        if layouts is None:
            if len(self._layouts) >= MAX_KINDS:
                self._layouts.clear()
            nodes = result_nodes if results else flat_nodes
            names = RESULTS if results else ARGUMENTS
            layouts = self._layouts[kind] = Layouts(type, names, MAX_NODES, nodes, lacking)
        return layouts

    def values(self, type: XdrType, results: bool, data: SparseBytes, start: int) -> dict[str, Any]:
        """The fields of the arguments or results at ``start``."""
        layouts = self.layouts(type, results)
        layout = layouts.of_sparse(data, start)
        if layout is None:
            layouts.learn_sparse(data, start)
            return decoded_values(type, results, data, start)
        fields: dict[str, Any] = {} if results else {"linux": layout.linux}
        for name, (first, behind) in layout.places.items():
            raw = data.view(start + first, start + behind)
            if raw is None:
                return decoded_values(type, results, data, start)
            fields[name] = field_of(name, raw)
        return fields


def known_columns(rows: Sequence[FlatFields]) -> FieldColumns:
    """Columns of fields that were read elsewhere."""
    columns = {name: np.empty(len(rows), object) for name in FlatFields._fields}
    for name, values in zip(FlatFields._fields, zip(*rows, strict=True), strict=False):  # Without rows there are none.
        columns[name][:] = values
    return FieldColumns(columns)


class MessageBytes(NamedTuple):
    """An RPC message."""

    prefix: bytes | memoryview
    """The bytes before the first one that is missing."""
    data: SparseBytes


def message_bytes(rpc: Rpc, reply: bool) -> MessageBytes | None:
    """The call or the reply; None if it is missing."""
    message = rpc.reply if reply else rpc.call
    if message is None:
        return None
    header = message.header
    chunks = header.reads if not reply else any(write.length for write in header.writes)
    if header.procedure == RDMA_MSG and header.version in (1, NO_RDMA) and not chunks and not header.problem:
        view = memoryview(message.data)[message.start : message.end]
        if len(view) == message.inline_length:
            return MessageBytes(view, SparseBytes([(0, view)], len(view)))
    whole = reassembled_reply(rpc) if reply else reassembled_call(rpc)
    return None if whole is None else MessageBytes(whole.prefix, SparseBytes(whole.pieces, whole.length))


def _names(rpc: Rpc) -> ProcedureNames:
    return ProcedureNames(rpc.program, rpc.version, rpc.minor_version, rpc.procedure, rpc.operations, rpc.name)


@lru_cache(maxsize=4096)
def results_of(names: ProcedureNames) -> frozenset[str]:
    """Fields that the results of a procedure may have."""
    if not names.operations:
        shape = procedure_shape(names.program, names.version, names.procedure)
        return frozenset() if shape is None else result_fields(shape.results)
    table = _RESULTS_BY_NAME[names.name == "CB_COMPOUND"]
    fields: frozenset[str] = frozenset()
    for operation in names.operations:
        fields |= result_fields(table.get(operation))
    return fields


_RESULTS_BY_NAME: tuple[dict[str, XdrType], ...] = tuple(
    {operation.name: operation.results for operation in operations.values()}
    for operations in (OPERATIONS, CALLBACK_OPERATIONS)
)


def _credential_at(call: bytes | memoryview) -> tuple[int, bytes]:
    """Flavor and body of the credential in a complete call header."""
    flavor, length = words2(memoryview(call), 24)
    return flavor, bytes(call[32 : 32 + length])


@lru_cache(maxsize=4096)
def _credential(flavor: int, body: bytes) -> dict[str, Any]:
    """``credential_fields`` of a credential."""
    data = pack(">II", flavor, len(body)) + body + bytes(-len(body) & 3)
    header = Node("", None, 0)
    header.children.append(
        decode(RPC_TYPES["credential"], "cred", SparseBytes([(0, data)], len(data)), 0, len(data)).root
    )
    return credential_fields(header)


def message_places(rows: Rows, side: str) -> tuple[Int64s, Int64s]:
    """Offsets in the bytes of the batch: where the Payload streams of row RPCs' Sends begin, and where their captured
    bytes end; ``side``: 'call' or 'reply'."""
    at = rows[f"{side}_at"]
    return at + rows[f"{side}_send"] - rows[f"{side}_inline"], at + rows[f"{side}_captured"]


def successful(data: Bytes, replies: Int64s) -> NDArray[np.bool_]:
    """Which replies have results after ``REPLY_HEADER`` bytes."""
    alike: NDArray[np.bool_] = (gathered(data, len(_SUCCESSFUL), replies + 4) == _SUCCESSFUL).all(axis=1)
    return alike


def argument_places(data: Bytes, calls: Int64s, ends: Int64s) -> Int64s:
    """Where the arguments of calls begin, after credential and verifier (RFC 5531, 9); for calls truncated before
    them, their ``ends``."""
    at = calls + 28
    for _ in range(2):
        there = at + 4 <= ends
        if there.all():
            at = at + 8 + (words_at(data, at) + 3 & -4)
        else:
            at[there] += 8 + (words_at(data, at[there]) + 3 & -4)
            at[~there] = ends[~there] + 4
    return np.minimum(at - 4, ends)


def unread_calls(table: RpcTable) -> NDArray[np.bool_]:
    """Which row RPCs have a call that is truncated before its arguments."""
    rows = table.only_rows
    unread: NDArray[np.bool_] = rows["call_captured"] < rows["call_send"]
    if not len(table.data) or not unread.any():
        return np.zeros(len(rows), np.bool_)
    calls, ends = message_places(rows, "call")
    return unread & (argument_places(table.data, calls, ends) >= ends)


def reply_places(table: RpcTable) -> tuple[Int64s, Int64s, Int64s]:
    """Where the replies of row RPCs begin, and where their captured bytes end, -1 if they are elsewhere; and how many
    of their bytes are not captured."""
    rows = table.only_rows
    starts, ends = message_places(rows, "reply")
    lacks = (rows["reply_send"] - rows["reply_captured"]).astype(np.int64)
    through = (rows["transfer"] >= 0).nonzero()[0]
    if len(through):
        places = table.chunks.places(rows["transfer"][through], table.data)
        starts[through], ends[through], lacks[through] = places
    return starts, ends, lacks


class _RowFields:
    """Reads the fields of the row RPCs of a table."""

    def __init__(
        self,
        reader: FieldReader,
        table: RpcTable,
        columns: dict[str, NDArray[np.object_]],
        objects: NDArray[np.bool_] | None,
        wanted: frozenset[str],
    ) -> None:
        self.reader, self.table, self.found, self.objects, self.wanted = reader, table, columns, objects, wanted
        self.data = table.data
        self.rows = table.only_rows
        self.places = table.row_places

    def read(self) -> None:
        """Fill in the columns."""
        calls, ends = message_places(self.rows, "call")
        starts = argument_places(self.data, calls, ends)
        lacks = self.rows["call_send"] - self.rows["call_captured"]
        headed = ~unread_calls(self.table)
        if self.wanted & _OF_CALLERS:
            self._read_credentials(calls, ends, headed)
        first, which = distinct(self.rows["procedure"])
        of_calls = self.wanted & OF_CALLS
        for kind, procedure in enumerate(self.rows["procedure"][first].tolist()):
            names = self.table.names.procedures[procedure]
            shape = procedure_shape(names.program, names.version, names.procedure)
            if shape is None:
                continue
            wanted = results_of(names) & self.wanted if shape.results is not None else frozenset()
            every = (which == kind).nonzero()[0]
            mine = every[headed[every]]
            lacking = [every[~headed[every]]]
            if shape.arguments is None:
                lacking.append(mine)
            else:
                for rows, names_found in self._read(shape.arguments, False, mine, starts, ends, lacks, of_calls):
                    if wanted - names_found:
                        lacking.append(rows)
            if shape.results is None:
                continue
            asked = self.objects is not None and bool(self.objects[every[0]])
            if asked:
                del lacking[1:]
                self._read_results(shape.results, mine, wanted | {"object"})
            if wanted:
                self._read_results(shape.results, np.concatenate(lacking), wanted)

    def _read_results(self, type: XdrType, mine: Int64s, wanted: frozenset[str]) -> None:
        if not len(mine):
            return
        starts, ends, lacks = self._replies
        if "object" in wanted:
            self.found["object"][self.places[mine[starts[mine] >= 0]]] = b""
        for row in mine[starts[mine] < 0].tolist():
            self._take_whole(row)
        self._read(type, True, mine[starts[mine] >= 0], starts + REPLY_HEADER, ends, lacks, wanted)

    @cached_property
    def _replies(self) -> tuple[Int64s, Int64s, Int64s]:
        return reply_places(self.table)

    def _take_whole(self, row: int) -> None:
        fields = self.reader.fields(self.table.rpcs_of(self.rows[row : row + 1])[0])
        for name, value in fields._asdict().items():
            self.found[name][self.places[row]] = value

    def _read_credentials(self, calls: Int64s, ends: Int64s, headed: NDArray[np.bool_]) -> None:
        """Read the credentials of calls; ``headed``: calls with a captured header."""
        ends = ends.copy()
        ends[headed] = calls[headed] + 32 + words_at(self.data, calls[headed] + 28)
        sizes = np.where(headed, ends - calls - 24, calls + 24 - ends)  # Others get sizes that no credential has.
        left = np.arange(len(calls))
        credentials: list[Int64s] = []
        while len(left) and len(credentials) < MAX_CALLERS:
            size = int(sizes[left[0]])
            alike = left[sizes[left] == size]
            if size:
                blobs = gathered(self.data, abs(size), calls[alike] + 24)
                alike = alike[(blobs == blobs[0]).all(axis=1)]
            credentials.append(alike)
            left = left[~np.isin(left, alike, assume_unique=True)]
        credentials += np.split(left, len(left)) if len(left) else []
        for rows in credentials:
            row = int(rows[0])
            if headed[row]:
                found = _credential(*_credential_at(self.data.data[int(calls[row]) : int(ends[row])]))
            else:
                (rpc,) = self.table.rpcs_of(self.rows[row : row + 1])
                found = {name: value for name, value in rpc_fields(rpc)._asdict().items() if name in _OF_CALLERS}
            for name, value in found.items():
                self.found[name][self.places[rows]] = value

    def _read(
        self,
        type: XdrType,
        results: bool,
        mine: Int64s,
        starts: Int64s,
        ends: Int64s,
        lacks: Int64s,
        wanted: frozenset[str],
    ) -> list[tuple[Int64s, frozenset[str]]]:
        """Read a type's fields; returns rows with the names of their fields.  ``lacks``: bytes that are not
        captured."""
        truncated = lacks[mine] > 0
        read = self._read_alike((type, results, 0, 0), mine[~truncated], starts, ends, wanted)
        cut = mine[truncated]
        sides = ends[cut] - starts[cut], lacks[cut]
        first, which = distinct(*sides)
        for kind, (captured, lacking) in enumerate(zip(*(side[first].tolist() for side in sides), strict=True)):
            if captured > 0:
                read += self._read_alike((type, results, captured, lacking), cut[which == kind], starts, ends, wanted)
        return read

    def _read_alike(
        self, kind: LayoutsKind, mine: Int64s, starts: Int64s, ends: Int64s, wanted: frozenset[str]
    ) -> list[tuple[Int64s, frozenset[str]]]:
        """Read the fields of rows that are whole, or truncated at the same offset."""
        type, results, _, lacking = kind
        read: list[tuple[Int64s, frozenset[str]]] = []
        left = np.ones(len(mine), np.bool_)
        for part, layout in self.reader.layouts(*kind).learning(self.data, starts[mine], ends[mine]):
            left[part] = False
            read.append((mine[part], frozenset(self._take(layout, mine[part], starts, results, wanted))))
        for row in mine[left].tolist():
            view = self.data.data[int(starts[row]) : int(ends[row])]
            read.append((np.array([row]), self._take_singly(type, results, row, view, lacking, wanted)))
        return read

    def _take_singly(
        self, type: XdrType, results: bool, row: int, view: memoryview, lacking: int, wanted: frozenset[str]
    ) -> frozenset[str]:
        values = self.reader.values(type, results, SparseBytes([(0, view)], len(view) + lacking), 0)
        for name in wanted & values.keys():
            column = self.found[name]
            if not results or column[self.places[row]] in (None, b""):
                column[self.places[row]] = values[name]
        return frozenset(values)

    def _take(self, layout: Layout, rows: Int64s, starts: Int64s, results: bool, wanted: frozenset[str]) -> set[str]:
        places = self.places[rows]
        if layout.linux is not None and "linux" in wanted:
            self.found["linux"][places] = layout.linux
        for name in wanted & layout.places.keys():
            first, behind = layout.places[name]
            values = _values(name, self.data, starts[rows] + first, behind - first)
            column = self.found[name]
            if results:
                there = column[places]
                empty = np.array([value is None or value == b"" for value in there.tolist()], np.bool_)
                there[empty] = values[empty]
                values = there
            column[places] = values
        return set(layout.places)


def _values(name: str, data: Bytes, at: Int64s, size: int) -> NDArray[np.object_]:
    """The values of a field at ``data[at[i]:at[i] + size]``."""
    values = np.empty(len(at), object)
    if name in ("handle", "name", "stateid", "session", "object"):
        values[:] = bytes_at(data, size, at) if size else b""
    elif size == 4:
        words = words_at(data, at)
        values[:] = (words != 0) if name == "eof" else words
    else:
        values[:] = gathered(data, 8, at).view(">u8")[:, 0].astype(np.uint64)
    return values
