"""RpcTable: the RPCs that ended in one batch, in columns, in the order in which they ended.

Row RPCs (``machine.py``) exist as rows only, and become an ``Rpc`` when one is asked for; the others are ``Rpc``
objects, and get a row when one is asked for.  Columns of ``RpcTable.rows`` (NumPy, native order):

    number                int64   ``Rpc.number``
    connection            int32   number of the connection; see ``RpcTable.conversation``
    caller                uint8   0: forward; 1: backward, the call came from the server
    xid                   uint32
    procedure             int32   index into ``names.procedures``: program, version, minor version, procedure,
                                  operation names, procedure name
    status                int32   index into ``names.statuses``: (status, failed)
    state                 uint8   index into STATES
    order                 int64   ``Rpc.order``: rank among the calls of its direction; 0 without a call
    call_frame            int64   first frame of the call's Send; 0 without a call
    call_last_frame       int64   last frame of the call's Send
    reply_first_frame     int64   first frame of the reply's Send
    reply_frame           int64   last frame of the reply's Send; 0 without a reply
    call_time             int64   ns since the epoch, first packet of the call; 0 without a call
    call_end              int64   last packet of the call
    reply_time            int64   first packet of the reply; 0 without a reply
    reply_end             int64   last packet of the reply
    latency               int64   ns; -1 if unknown.  The sum of its parts:
    latency_call, latency_reads, latency_server, latency_writes, latency_reply   int64   ns; 0 where unknown
    credits_requested     int64   credit value of the call; -1 for none
    credits_granted       int64   credit value of the reply; -1 for none
    call_send, reply_send         int64   bytes of the whole Send; 0 without one
    call_inline, reply_inline     int64   bytes of the Payload stream in the Send
    read_bytes, write_bytes, reply_chunk_bytes        int64   bytes transferred by chunks of this kind
    read_chunks, write_chunks, reply_chunks           int32   chunks of this kind that the call advertised
    read_segments, write_segments, reply_segments     int32   their segments
    retransmissions       int32   packets of the RPC that were retransmitted
    latency_retransmission        int64   ns; ``Rpc.retransmission_delay``, also if the latency is unknown
    invalidated           int64   handle that the reply's Send With Invalidate names; -1 for none
    flags                 uint8   FLAG_ bits below
    call_at, reply_at     int64   row RPCs: offset of the Send's first byte in
                                  ``RpcTable.data``; -1 in others
    call_captured, reply_captured                     int32   row RPCs: bytes of the Sends that the capture holds
    call_run, call_row, reply_run, reply_row          int32   row RPCs: run of Sends of the batch, and row in it; else
    -1 chunks                int32   row RPCs: index into ``RpcRows.chunks``; -1 without chunks, and in others
    gss_service           int32   row RPCs: RPCSEC_GSS procedure and service, for ``credential_of``; 0 without
    RPCSEC_GSS; -1 in others gss_sequence          int64   row RPCs: its sequence number unfinished            int8
    row RPCs: whether the call is truncated within the last operation of a COMPOUND, or before the first; -1 in others
    transfer              int32   as ``chunks`` if the only chunk is a Reply chunk of one segment, filled by one RDMA
    Write; else -1

A row RPC has both messages.  Each is version 1, in one packet, and whole in the capture or, without RPCSEC_GSS,
truncated after the first words of its RPC message; the XID of its RPC header equals rdma_xid, and its status, if
captured, could be read.  Its state is 'complete' or 'error'; an RPCSEC_GSS credential is as in RFC 2203; neither
message has immediate data, and the call invalidates no handle; nothing is damaged or ambiguous.  Its notes can only be
that the call is truncated, and that the reply has an earlier time and frame than the call; it then has no latency.
Call and reply are RDMA_MSG, unless the reply came through a Reply chunk.  Its chunks were transferred in full, each by
RDMA Reads or Writes of its own, whose packets may be truncated; see ``ChunkColumns``.

A row RPC may also have a reply only: its state is 'no call', and it has no chunks; the rest holds for it, too.  Most
users of the table take it as an object.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, MadeSequence, Rows, put, some, take, unique
from ..layers.rpcrdma_codes import NO_RDMA, RDMA_MSG
from ..named_tuple import NamedTuple
from ..onc.compound import ends_inside
from ..onc.rpc_header import credential_of
from ..transport.operations import Operation
from ..transport.runs import SendRun
from .chunk_columns import ChunkColumns, LongReply
from .conversation import Conversation
from .latency import REPLY_EARLIER
from .messages import Message, TransportHeader
from .rpc_numbers import LATE, ended_order
from .rpcs import DUPLICATE_REPLY, Latency, Rpc

STATES = ("complete", "error", "damaged", "undecidable", "no reply", "no call", DUPLICATE_REPLY)
ERROR, DUPLICATE = STATES.index("error"), STATES.index(DUPLICATE_REPLY)

FLAG_DAMAGE, FLAG_NOTES, FLAG_TRUNCATED, FLAG_MISSING, FLAG_AMBIGUOUS = 1, 2, 4, 8, 16
"""It has ``damage``; has ``notes``; ``contents`` is 'truncated', or 'missing'; ``ambiguous``."""
FLAG_CHUNKS_TRUNCATED = 32
"""Packets of its RDMA Reads or Writes are truncated, and ``contents`` is 'truncated'."""

RPC = np.dtype(
    [
        ("number", "i8"),
        ("connection", "i4"),
        ("caller", "u1"),
        ("xid", "u4"),
        ("procedure", "i4"),
        ("status", "i4"),
        ("state", "u1"),
        ("order", "i8"),
        ("call_frame", "i8"),
        ("call_last_frame", "i8"),
        ("reply_first_frame", "i8"),
        ("reply_frame", "i8"),
        ("call_time", "i8"),
        ("call_end", "i8"),
        ("reply_time", "i8"),
        ("reply_end", "i8"),
        ("latency", "i8"),
        ("latency_call", "i8"),
        ("latency_reads", "i8"),
        ("latency_server", "i8"),
        ("latency_writes", "i8"),
        ("latency_reply", "i8"),
        ("credits_requested", "i8"),
        ("credits_granted", "i8"),
        ("call_send", "i8"),
        ("reply_send", "i8"),
        ("call_inline", "i8"),
        ("reply_inline", "i8"),
        ("read_bytes", "i8"),
        ("write_bytes", "i8"),
        ("reply_chunk_bytes", "i8"),
        ("read_chunks", "i4"),
        ("write_chunks", "i4"),
        ("reply_chunks", "i4"),
        ("read_segments", "i4"),
        ("write_segments", "i4"),
        ("reply_segments", "i4"),
        ("retransmissions", "i4"),
        ("latency_retransmission", "i8"),
        ("invalidated", "i8"),
        ("flags", "u1"),
        ("call_at", "i8"),
        ("reply_at", "i8"),
        ("call_captured", "i4"),
        ("reply_captured", "i4"),
        ("call_run", "i4"),
        ("call_row", "i4"),
        ("reply_run", "i4"),
        ("reply_row", "i4"),
        ("chunks", "i4"),
        ("transfer", "i4"),
        ("gss_service", "i4"),
        ("gss_sequence", "i8"),
        ("unfinished", "i1"),
    ],
    align=True,
)


COLUMNS: tuple[str, ...] = RPC.names or ()
PLACES = ("call_at", "reply_at", "call_captured", "reply_captured", "call_run", "call_row", "reply_run", "reply_row",
          "chunks", "transfer", "gss_service", "gss_sequence", "unfinished")  # fmt: skip
"""Columns that only row RPCs have."""


class ProcedureNames(NamedTuple):
    """What an Rpc calls; fields as in ``Rpc``."""

    program: int | None
    version: int | None
    minor_version: int | None
    procedure: int | None
    operations: tuple[str, ...]
    name: str


NO_NAMES = ProcedureNames(None, None, None, None, (), "")
"""For an RPC whose call is not in the capture."""


class RpcNames:
    """Distinct procedures and statuses, shared by the rows of many tables."""

    def __init__(self) -> None:
        self.procedures: list[ProcedureNames] = []
        self.statuses: list[tuple[str, bool]] = []
        self._procedures: dict[ProcedureNames, int] = {}
        self._statuses: dict[tuple[str, bool], int] = {}

    def procedure(self, names: ProcedureNames) -> int:
        """The index of a procedure; adds it if it is new."""
        code = self._procedures.get(names)
        if code is None:
            code = self._procedures[names] = len(self.procedures)
            self.procedures.append(names)
        return code

    def status(self, status: str, failed: bool) -> int:
        """The index of a status; adds it if it is new."""
        code = self._statuses.get((status, failed))
        if code is None:
            code = self._statuses[status, failed] = len(self.statuses)
            self.statuses.append((status, failed))
        return code


@dataclass(slots=True, eq=False)
class RpcRows:
    """The row RPCs of one batch, in the order in which they ended."""

    rows: Rows
    """RPC rows."""
    data: Bytes
    """The bytes of the batch."""
    runs: list[SendRun]
    conversations: dict[int, Conversation]
    """By connection number."""
    names: RpcNames
    chunks: ChunkColumns | None = None
    alone: Rows = field(default_factory=lambda: np.empty(0, RPC))
    """RPC rows of replies without a call, by connection; they come after all others."""
    dropped: bool = False
    """``drop_contents`` was called."""

    def without_bytes(self, rows: Rows) -> RpcRows:
        """A copy of some of the rows that holds only the rows of their own Sends, one run per sender, and no bytes."""
        rows = rows.copy()
        runs: list[SendRun] = []
        sides = [(side, rows[f"{side}_run"].copy(), rows[f"{side}_row"].copy()) for side in ("call", "reply")]
        for side, run, row in sides:
            for number in unique(run).tolist():
                mine = run == number
                rows[f"{side}_run"][mine], rows[f"{side}_row"][mine] = len(runs), np.arange(np.count_nonzero(mine))
                runs.append(self.runs[number].without_bytes(row[mine]))
        chunks = self.chunks
        if chunks is not None:
            through = rows["chunks"] >= 0
            chunks = chunks.chosen(rows["chunks"][through])
            chunks.operations = chunks.found.without_bytes()
            rows["chunks"][through] = np.arange(np.count_nonzero(through))
            rows["transfer"] = np.where(rows["transfer"] >= 0, rows["chunks"], -1)
        return RpcRows(rows, np.empty(0, np.uint8), runs, self.conversations, self.names, chunks, dropped=True)

    def drop_contents(self) -> None:
        """Free the bytes of the batch."""
        self.dropped = True
        self.data = np.empty(0, np.uint8)
        for run in self.runs:
            run.drop()
        if self.chunks is not None:
            self.chunks.found.drop()


class RpcTable(MadeSequence[Rpc]):
    """The RPCs of one batch.  As a sequence it makes an Rpc of a row RPC anew for each access."""

    def __init__(
        self,
        objects: Sequence[Rpc | None],
        source: RpcRows | None = None,
        places: Int64s | None = None,
        names: RpcNames | None = None,
    ) -> None:
        """``objects``: has None for each of ``source.alone``; ``places``: the rows of ``objects`` in the table."""
        self.names = source.names if source is not None else names or RpcNames()
        self._from = source
        count = len(objects) + (len(source.rows) if source is not None else 0)
        self.places: Int64s = np.arange(count) if places is None else places
        """Rows of ``objects``, ascending."""
        self._objects = objects
        self.is_row: NDArray[np.bool_] = np.ones(count, np.bool_)
        self.is_row[self.places] = False
        self.row_places: Int64s = self.is_row.nonzero()[0]
        """Rows of the other RPCs, ascending."""
        self.only_rows: Rows = source.rows if source is not None else np.empty(0, RPC)
        """RPC rows of ``row_places``."""
        self._rows: Rows | None = None

    @staticmethod
    def of_ended(objects: list[Rpc], source: RpcRows | None, places: Int64s) -> RpcTable:
        """All RPCs in the order in which they ended; ``places``: of ``objects``, in the order of events."""
        if source is None:
            return RpcTable(objects)
        of_objects, alone = np.array([rpc.number for rpc in objects], np.int64), source.alone
        numbers = np.concatenate((source.rows["number"], of_objects, alone["number"]))
        order = ended_order(
            np.concatenate((source.rows["reply_frame"], places, LATE + alone["connection"].astype(np.int64))), numbers
        )
        others = order >= len(source.rows)
        every = [*objects, *[None] * len(alone)]
        return RpcTable([every[at] for at in (order[others] - len(source.rows)).tolist()], source, others.nonzero()[0])

    @staticmethod
    def joined(table: RpcTable, later: Sequence[Rpc]) -> RpcTable:
        """The table with ``later`` appended: RPCs that ended after all of it, as objects."""
        if not later:
            return table
        places = np.arange(len(later)) + len(table)
        return RpcTable([*table._objects, *later], table._from, np.concatenate((table.places, places)), table.names)

    def selected(self, mask: NDArray[np.bool_]) -> RpcTable:
        """The RPCs for which ``mask`` is true, in the same order."""
        if mask.all():
            return self
        source, kept = None, mask[self.places]
        if self._from is not None:
            rows, alone = take(self.only_rows, mask[self.row_places]), take(self._from.alone, kept[self._is_alone])
            source = replace(self._from, rows=rows, alone=alone)
        places = (np.cumsum(mask) - 1)[self.places[kept]]
        return RpcTable([*compress(self._objects, kept.tolist())], source, places, self.names)

    @cached_property
    def objects(self) -> list[Rpc]:
        """The RPCs that are not pairs of rows: those that ended as objects, and replies without a call."""
        alone = iter(self.rpcs_of(self._from.alone) if self._from is not None else ())
        return [next(alone) if rpc is None else rpc for rpc in self._objects]

    @property
    def unusual(self) -> list[Rpc]:
        """Those of ``objects`` that ended as objects; the others have neither damage, notes nor chunks."""
        return [rpc for rpc in self._objects if rpc is not None]

    @property
    def _is_alone(self) -> NDArray[np.bool_]:
        """Which of ``objects`` are rows: replies without a call."""
        return np.array([rpc is None for rpc in self._objects], np.bool_)

    @property
    def origin(self) -> RpcRows | None:
        """The RpcRows that the table was made of; None if it has no row RPCs."""
        return self._from

    @property
    def rows(self) -> Rows:
        """RPC rows of all RPCs."""
        if self._rows is None:
            if len(self._objects):
                self._rows = np.zeros(len(self.is_row), RPC)
                put(self._rows, self.row_places, self.only_rows)
                is_alone = self._is_alone
                of_objects = np.array([rpc_row(rpc, self.names) for rpc in self.unusual], RPC)
                put(self._rows, self.places[~is_alone], of_objects)
                if self._from is not None:
                    put(self._rows, self.places[is_alone], self._from.alone)
            else:
                self._rows = self.only_rows
        return self._rows

    @cached_property
    def waiting(self) -> Int64s:
        """``Rpc.waiting`` of all, ns; -1 if unknown.  Without a latency it is a lower bound."""
        waiting = self.rows["latency"].astype(np.int64)
        for row, rpc in zip(self.places.tolist(), self._objects, strict=True):
            if rpc is not None and rpc.outstanding is not None:
                waiting[row] = rpc.outstanding
        return waiting

    def conversation(self, number: int) -> Conversation:
        """The conversation on the connection with this number; the table has to have an RPC of it."""
        conversation = self._from.conversations.get(number) if self._from is not None else None
        return self._conversations[number] if conversation is None else conversation

    @cached_property
    def _conversations(self) -> dict[int, Conversation]:
        """The conversations of the RPCs that are objects, by connection number."""
        return {rpc.connection.number: rpc.conversation for rpc in self.unusual}

    @property
    def chunks(self) -> ChunkColumns:
        """The chunks of the row RPCs; some of these must have any."""
        assert self._from is not None and self._from.chunks is not None
        return self._from.chunks

    def long_replies(self, transfers: Int64s) -> list[LongReply]:
        """How the replies of row RPCs came; ``transfers``: their ``transfer`` columns."""
        return self.chunks.long_replies(transfers) if len(transfers) else []

    def advertised(self, rows: Rows) -> Int64s:
        """Bytes of the Read, Write and Reply chunks that row RPCs advertise, (n, 3)."""
        advertised = np.zeros((len(rows), 3), np.int64)
        if self._from is not None and self._from.chunks is not None:
            there = rows["chunks"] >= 0
            advertised[there] = self._from.chunks.advertised[rows["chunks"][there]]
        return advertised

    def offered(self, places: Int64s) -> Int64s:
        """Bytes of the Read chunks, and of all other chunks, that some RPCs advertise and use, (n, 2)."""
        offered = np.zeros((len(places), 2), np.int64)
        is_row = self.is_row[places]
        rows = take(self.rows, places[is_row])
        used = np.column_stack([rows[f"{kind}_bytes"] > 0 for kind in ("read", "write", "reply_chunk")])
        of_kinds = self.advertised(rows) * used
        offered[is_row] = np.column_stack((of_kinds[:, 0], of_kinds[:, 1:].sum(axis=1)))
        for at in (~is_row).nonzero()[0].tolist():
            for chunk in self[int(places[at])].chunks:
                if chunk.transferred:
                    offered[at, int(chunk.kind != "read")] += chunk.advertised
        return offered

    def row_notes(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """The row RPCs that have notes: row and notes."""
        mine = (self.only_rows["flags"] & FLAG_NOTES).nonzero()[0]
        columns = (self.only_rows[name][mine].tolist() for name in ("procedure", "unfinished", "latency"))
        for row, procedure, unfinished, latency in zip(self.row_places[mine].tolist(), *columns, strict=True):
            yield row, _notes(self.names.procedures[procedure], unfinished, latency)

    @property
    def long_rows(self) -> Int64s:
        """Rows of the row RPCs whose reply came through a Reply chunk, ascending."""
        if self._from is None or self._from.chunks is None:
            return np.empty(0, np.int64)
        chunks = self.only_rows["chunks"]
        there: Int64s = (chunks >= 0).nonzero()[0]
        return take(self.row_places, there[self._from.chunks.results[chunks[there]] >= 0])

    def with_readable_rows(self, connections: Collection[int] = (), truncated: bool = True) -> RpcTable:
        """The table with more RPCs as objects: those with chunks but without a ``transfer``, with RPCSEC_GSS, on one of
        ``connections``, and, unless ``truncated``, with a truncated message."""
        rows = self.only_rows
        many = ((rows["chunks"] >= 0) & (rows["transfer"] < 0)) | (rows["gss_service"] > 0)
        if not truncated:
            many |= rows["flags"] & FLAG_TRUNCATED > 0
        if connections:
            many |= np.isin(rows["connection"], [*connections])
        if self._from is None or not some(many):
            return self
        made_of: dict[int, Rpc | None] = {
            **dict(zip(self.row_places[many].tolist(), self.rpcs_of(take(rows, many)), strict=True)),
            **dict(zip(self.places.tolist(), self._objects, strict=True)),
        }
        places = np.array(sorted(made_of), np.int64)
        source = replace(self._from, rows=take(rows, ~many))
        return RpcTable([made_of[row] for row in places.tolist()], source, places, self.names)

    @property
    def data(self) -> Bytes:
        """The bytes that ``call_at`` and ``reply_at`` of row RPCs are offsets in; empty if contents are not kept."""
        return self._from.data if self._from is not None else np.empty(0, np.uint8)

    def made(self, index: int) -> Rpc:
        if not self.is_row[index]:
            return self.objects[int(self.places.searchsorted(index))]
        assert self._from is not None
        row = int(self.row_places.searchsorted(index))
        return made(self._from, self.only_rows[row : row + 1])[0]

    def rpcs_of(self, rows: Rows) -> list[Rpc]:
        """Rpcs made of some of ``only_rows``."""
        return made(self._from, rows) if self._from is not None else []

    def __len__(self) -> int:
        return len(self.is_row)

    def __iter__(self) -> Iterator[Rpc]:
        objects = iter(self.objects)
        done = 0
        for first in range(0, len(self.is_row), TOGETHER):
            is_row = self.is_row[first : first + TOGETHER]
            count = int(np.count_nonzero(is_row))
            rpcs = iter(made(self._from, self.only_rows[done : done + count]) if self._from and count else ())
            done += count
            for row in is_row.tolist():
                yield next(rpcs) if row else next(objects)


TOGETHER = 1024
"""Number of Rpcs made at once if all are wanted."""
_EMPTY = memoryview(b"")
_MADE_OF = (
    "number", "connection", "caller", "xid", "procedure", "status", "state", "order", "latency",
    "latency_reads", "latency_server", "latency_writes", "latency_retransmission", "credits_requested",
    "credits_granted", "call_send", "reply_send", "call_inline", "reply_inline", "call_at", "reply_at",
    "call_captured", "reply_captured", "chunks", "gss_service", "gss_sequence", "flags", "unfinished",
)  # fmt: skip


def each_made(source: RpcRows, rows: Rows) -> Iterator[Rpc]:
    """``made``, in batches of growing size: often the first few are enough."""
    first, count = 0, 1
    while first < len(rows):
        yield from made(source, rows[first : first + count])
        first, count = first + count, min(2 * count, TOGETHER)


def made(source: RpcRows, rows: Rows) -> list[Rpc]:
    """Rpcs made of some rows of ``source``."""
    data = _EMPTY if source.dropped else source.data.data
    procedures, statuses = source.names.procedures, source.names.statuses
    calls = _operations(source.runs, rows["call_run"], rows["call_row"])
    replies = _operations(source.runs, rows["reply_run"], rows["reply_row"])
    rpcs = []
    for call, reply, (
        number,
        connection,
        caller,
        xid,
        procedure,
        status,
        state,
        order,
        latency,
        reads,
        server,
        writes,
        delay,
        requested,
        granted,
        call_send,
        reply_send,
        called,
        replied,
        call_at,
        reply_at,
        call_captured,
        reply_captured,
        chunks,
        service,
        sequence,
        flags,
        unfinished,
    ) in zip(calls, replies, zip(*(rows[name].tolist() for name in _MADE_OF), strict=True), strict=True):
        if requested >= 0 or granted >= 0:
            asked = TransportHeader(xid, 1, requested, RDMA_MSG, length=call_send - called)
            answered = TransportHeader(xid, 1, granted, RDMA_MSG, length=reply_send - replied)
        else:
            asked, answered = (TransportHeader(xid, NO_RDMA, None, RDMA_MSG) for _ in range(2))
        call_end, reply_end = call_at + call_captured, reply_at + reply_captured
        call_at += call_send - called
        reply_at += reply_send - replied
        names = procedures[procedure]
        result, failed = statuses[status]
        rpcs.append(
            Rpc(
                number,
                source.conversations[connection],
                caller == 1,
                xid,
                Message(call, asked, data, call_at, call_end, called) if call else None,
                Message(reply, answered, data, reply_at, reply_end, replied) if reply else None,
                names.program,
                names.version,
                names.procedure,
                names.minor_version,
                credential_of(service, sequence),
                names.operations,
                names.name,
                result,
                failed,
                STATES[state],
                contents="truncated" if flags & FLAG_TRUNCATED else "whole",
                notes=_notes(names, unfinished, latency) if flags & FLAG_NOTES else (),
                latency=Latency(latency, 0, reads, server, writes, 0, delay) if latency >= 0 else None,
                order=order,
                retransmission_delay=delay,
            )
        )
        if chunks >= 0:
            assert source.chunks is not None
            source.chunks.complete(chunks, rpcs[-1])
    return rpcs


def _notes(names: ProcedureNames, unfinished: int, latency: int) -> tuple[str, ...]:
    earlier = (REPLY_EARLIER,) if latency < 0 else ()
    return (f"operations: {ends_inside(names.operations)}", *earlier) if unfinished else earlier


def _operations(runs: list[SendRun], run: NDArray[np.int32], row: NDArray[np.int32]) -> list[Operation | None]:
    """The Operations of Sends; None if the capture does not have the message."""
    return [
        runs[run_at].operation(at) if run_at >= 0 else None
        for run_at, at in zip(run.tolist(), row.tolist(), strict=True)
    ]


def rpc_row(rpc: Rpc, names: RpcNames) -> tuple[int, ...]:
    """The row of an Rpc that is an object."""
    call, reply = rpc.call, rpc.reply
    sent = call.operation if call is not None else None
    answer = reply.operation if reply is not None else None
    latency = rpc.latency
    procedure = ProcedureNames(rpc.program, rpc.version, rpc.minor_version, rpc.procedure, rpc.operations, rpc.name)
    flags = (
        (FLAG_DAMAGE if rpc.damage else 0)
        | (FLAG_NOTES if rpc.notes else 0)
        | (FLAG_TRUNCATED if rpc.contents == "truncated" else 0)
        | (FLAG_CHUNKS_TRUNCATED if rpc.contents == "truncated" and _chunks_truncated(rpc) else 0)
        | (FLAG_MISSING if rpc.contents == "missing" else 0)
        | (FLAG_AMBIGUOUS if rpc.ambiguous else 0)
    )
    return (
        rpc.number,
        rpc.connection.number,
        int(rpc.backward),
        rpc.xid,
        names.procedure(procedure),
        names.status(rpc.status, rpc.failed),
        STATES.index(rpc.state),
        rpc.order,
        rpc.call_frame,
        sent.last_frame if sent is not None else 0,
        answer.first_frame if answer is not None else 0,
        rpc.reply_frame,
        sent.first_time if sent is not None else 0,
        sent.last_time if sent is not None else 0,
        answer.first_time if answer is not None else 0,
        answer.last_time if answer is not None else 0,
        *(latency[:-1] if latency is not None else (-1, 0, 0, 0, 0, 0)),
        -1 if call is None or call.header.credits is None else call.header.credits,
        -1 if reply is None or reply.header.credits is None else reply.header.credits,
        sent.length if sent is not None else 0,
        answer.length if answer is not None else 0,
        call.inline_length if call is not None else 0,
        reply.inline_length if reply is not None else 0,
        *(_chunk_sums(rpc) if rpc.chunks else _NO_CHUNKS),
        rpc.retransmissions,
        rpc.retransmission_delay,
        -1 if answer is None or answer.invalidate is None else answer.invalidate,
        flags,
        *([-1] * len(PLACES)),
    )


def _chunks_truncated(rpc: Rpc) -> bool:
    segments = [use for chunk in rpc.chunks for use in chunk.segments]
    return any(operation.payload.truncated for use in segments for operation in use.operations)


_NO_CHUNKS = (0,) * 9


def _chunk_sums(rpc: Rpc) -> list[int]:
    """Bytes transferred by Read, Write and Reply chunks, how many of each there are, and their segments."""
    kinds = [[chunk for chunk in rpc.chunks if chunk.kind == kind] for kind in ("read", "write", "reply")]
    moved = [sum([chunk.transferred for chunk in chunks]) for chunks in kinds]
    return moved + [*map(len, kinds)] + [sum([len(chunk.segments) for chunk in chunks]) for chunks in kinds]
