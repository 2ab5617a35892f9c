"""The tables of RPCs, their operations, chunks and segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..layers.rpcrdma_codes import procedure_name
from ..measure.files import File
from ..onc.file_operations import FileOperation
from ..onc.programs import program_name
from ..rpcrdma.messages import Message
from ..rpcrdma.rpcs import ChunkUse, Rpc, SegmentUse
from .table import Table, TableColumn


class RpcInFiles(NamedTuple):
    """An Rpc, and what it did with which files: the noun of these tables."""

    rpc: Rpc
    used: Sequence[tuple[File, FileOperation]] = ()
    """As ``FileTable.used``."""


class _ChunkRow(NamedTuple):
    rpc: Rpc
    number: int
    chunk: ChunkUse


class _SegmentRow(NamedTuple):
    rpc: Rpc
    chunk: int
    number: int
    use: SegmentUse


class _OperationRow(NamedTuple):
    rpc: Rpc
    number: int
    name: str
    file: File | None
    done: FileOperation | None


def _of(value: Callable[[Rpc], Any]) -> Callable[[RpcInFiles], Any]:
    return lambda row: value(row.rpc)


def _latency(part: str) -> Callable[[RpcInFiles], int | None]:
    return _of(lambda rpc: None if rpc.latency is None else getattr(rpc.latency, part))


def _call(value: Callable[[Message], Any]) -> Callable[[RpcInFiles], Any]:
    return _of(lambda rpc: None if rpc.call is None else value(rpc.call))


def _reply(value: Callable[[Message], Any]) -> Callable[[RpcInFiles], Any]:
    return _of(lambda rpc: None if rpc.reply is None else value(rpc.reply))


def _rdma_procedure(message: Message) -> str | None:
    return procedure_name(message.header.version, message.header.procedure) or None


def _time(rpc: Rpc) -> int | None:
    message = rpc.call or rpc.reply
    return None if message is None else message.time


def _chunks(kind: str) -> Callable[[RpcInFiles], int]:
    return _of(lambda rpc: sum(chunk.kind == kind for chunk in rpc.chunks))


def _segments(kind: str) -> Callable[[RpcInFiles], int]:
    return _of(lambda rpc: sum(len(chunk.segments) for chunk in rpc.chunks if chunk.kind == kind))


def _main_use(row: RpcInFiles) -> tuple[File, FileOperation] | None:
    """What an RPC is for: the first operation on a range of a file, else the last on any."""
    return next((use for use in row.used if use[1].offset is not None), row.used[-1] if row.used else None)


def _use(value: Callable[[File, FileOperation], Any]) -> Callable[[RpcInFiles], Any]:
    def of(row: RpcInFiles) -> Any:
        use = _main_use(row)
        return None if use is None else value(*use)

    return of


def _chunk_rows(noun: RpcInFiles) -> Iterator[_ChunkRow]:
    return (_ChunkRow(noun.rpc, number, chunk) for number, chunk in enumerate(noun.rpc.chunks, 1))


def _segment_rows(noun: RpcInFiles) -> Iterator[_SegmentRow]:
    for number, chunk in enumerate(noun.rpc.chunks, 1):
        for index, use in enumerate(chunk.segments, 1):
            yield _SegmentRow(noun.rpc, number, index, use)


def _operation_rows(noun: RpcInFiles) -> Iterator[_OperationRow]:
    used = {done.number: (file, done) for file, done in noun.used}
    for index, name in enumerate(noun.rpc.operations):
        yield _OperationRow(noun.rpc, index + 1, name, *used.get(index, (None, None)))


def _done(value: Callable[[FileOperation], Any]) -> Callable[[_OperationRow], Any]:
    return lambda row: None if row.done is None else value(row.done)


RPC_NUMBER = TableColumn("rpc", "int", "number of the RPC", lambda row: row.rpc.number)

_RPCS = Table(
    "rpcs",
    "rpc",
    "a call, its reply, or both",
    (
        TableColumn("number", "int", "counted from 1 in the order of the calls", _of(lambda rpc: rpc.number)),
        TableColumn("connection", "int", "number of the connection", _of(lambda rpc: rpc.connection.number)),
        TableColumn("direction", "text", "forward (called by the active side) or backward",
               _of(lambda rpc: "backward" if rpc.backward else "forward")),
        TableColumn("xid", "int", "RPC transaction ID", _of(lambda rpc: rpc.xid)),
        TableColumn("time", "time", "first packet of the call, or of the reply where no call was seen; UTC",
               _of(_time)),
        TableColumn("time_ns", "int", "the same, in nanoseconds since the Unix epoch", _of(_time)),
        TableColumn("end_time_ns", "int", "last packet of the reply, in nanoseconds since the Unix epoch",
               _reply(lambda reply: reply.operation.last_time)),
        TableColumn("client", "text", "address of the active side",
               _of(lambda rpc: rpc.connection.endpoints[0].address)),
        TableColumn("server", "text", "address of the passive side",
               _of(lambda rpc: rpc.connection.endpoints[1].address)),
        TableColumn("program", "text", "name of the RPC program",
               _of(lambda rpc: None if rpc.program is None else program_name(rpc.program))),
        TableColumn("program_number", "int", "its number", _of(lambda rpc: rpc.program)),
        TableColumn("version", "int", "version of the program", _of(lambda rpc: rpc.version)),
        TableColumn("minor_version", "int", "of an NFSv4 COMPOUND", _of(lambda rpc: rpc.minor_version)),
        TableColumn("procedure", "text", "name of the procedure", _of(lambda rpc: rpc.name or None)),
        TableColumn("procedure_number", "int", "its number", _of(lambda rpc: rpc.procedure)),
        TableColumn("operations", "text", "operations of a COMPOUND, in order, with blanks between",
               _of(lambda rpc: " ".join(rpc.operations) or None)),
        TableColumn(
            "state",
            "text",
            "complete, error, damaged, undecidable, no reply, no call or duplicate reply (which is no RPC of its own)",
            _of(lambda rpc: rpc.state),
        ),
        TableColumn("status", "text", "OK, or the name of the failure", _of(lambda rpc: rpc.status or None)),
        TableColumn("failed", "bool", "the reply reports an error", _of(lambda rpc: rpc.failed)),
        TableColumn("contents", "text", "whole, truncated, missing or undecidable", _of(lambda rpc: rpc.contents)),
        TableColumn("call_frame", "int", "first frame of the call", _of(lambda rpc: rpc.call_frame or None)),
        TableColumn("reply_frame", "int", "last frame of the reply", _of(lambda rpc: rpc.reply_frame or None)),
        TableColumn("latency_us", "float", "first packet of the call to last packet of the reply",
               _of(lambda rpc: None if rpc.latency is None else rpc.latency.total / 1000)),
        TableColumn("latency_ns", "int", "the same, in nanoseconds", _latency("total")),
        TableColumn("call_ns", "int", "part of the latency: the call's Send", _latency("call")),
        TableColumn("reads_ns", "int", "part of the latency: RDMA Reads", _latency("reads")),
        TableColumn("server_ns", "int", "part of the latency: nothing of it on the wire", _latency("server")),
        TableColumn("writes_ns", "int", "part of the latency: RDMA Writes", _latency("writes")),
        TableColumn("reply_ns", "int", "part of the latency: the reply's Send", _latency("reply")),
        TableColumn("call_bytes", "int", "of the RPC call, inline and by Read chunk", _of(lambda rpc: rpc.call_bytes)),
        TableColumn("call_inline_bytes", "int", "of the RPC call, inside the Send",
               _call(lambda call: call.inline_length)),
        TableColumn("call_chunk_bytes", "int", "of the RPC call, transferred by Read chunks",
               _of(lambda rpc: sum(chunk.transferred for chunk in rpc.chunks if chunk.kind == "read"))),
        TableColumn("reply_bytes", "int", "of the RPC reply, inline and by Write and Reply chunk",
               _of(lambda rpc: rpc.reply_bytes)),
        TableColumn("reply_inline_bytes", "int", "of the RPC reply, inside the Send",
               _reply(lambda reply: reply.inline_length)),
        TableColumn("reply_chunk_bytes", "int", "of the RPC reply, transferred by Write and Reply chunks",
               _of(lambda rpc: sum(chunk.transferred for chunk in rpc.chunks if chunk.kind != "read"))),
        TableColumn("chunks", "int", "chunks that the call advertises", _of(lambda rpc: len(rpc.chunks))),
        TableColumn("read_chunks", "int", "Read chunks among them", _chunks("read")),
        TableColumn("write_chunks", "int", "Write chunks among them", _chunks("write")),
        TableColumn("reply_chunks", "int", "Reply chunks among them: 0 or 1", _chunks("reply")),
        TableColumn("read_segments", "int", "segments of Read chunks", _segments("read")),
        TableColumn("write_segments", "int", "segments of Write chunks", _segments("write")),
        TableColumn("reply_segments", "int", "segments of the Reply chunk", _segments("reply")),
        TableColumn("rdma_version", "int", "version of RPC-over-RDMA, of the call or else the reply",
               _of(lambda rpc: next((one.header.version for one in (rpc.call, rpc.reply) if one is not None), None))),
        TableColumn("call_rdma_procedure", "text", "RDMA_MSG, RDMA_NOMSG, …, of the call", _call(_rdma_procedure)),
        TableColumn("reply_rdma_procedure", "text", "RDMA_MSG, RDMA_NOMSG, RDMA_ERROR, …, of the reply",
               _reply(_rdma_procedure)),
        TableColumn("credits_requested", "int", "by the call", _call(lambda call: call.header.credits)),
        TableColumn("credits_granted", "int", "by the reply", _reply(lambda reply: reply.header.credits)),
        TableColumn("invalidated_handle", "int", "handle that the reply's Send With Invalidate revokes",
               _reply(lambda reply: reply.operation.invalidate)),
        TableColumn("retransmitted_packets", "int", "packets (iWARP: segments) retransmitted for it",
               _of(lambda rpc: rpc.retransmissions)),
        TableColumn("retransmission_delay_ns", "int", "time it waited for retransmissions",
               _of(lambda rpc: rpc.retransmission_delay)),
        TableColumn(
            "file",
            "int",
            "number in the table files, of the file that it read, wrote or committed, else of the last that it used",
            _use(lambda file, done: file.number),
        ),
        TableColumn("offset_bytes", "uint", "where in that file a READ, WRITE or its like begins, as the call says",
               _use(lambda file, done: done.offset)),
        TableColumn("count_bytes", "uint", "how much it asks for or brings, as the call says",
               _use(lambda file, done: done.count)),
        TableColumn("damage", "text", "what is missing or contradictory, with semicolons between",
               _of(lambda rpc: "; ".join(rpc.damage) or None)),
        TableColumn("notes", "text", "what is inferred or unusual, with semicolons between",
               _of(lambda rpc: "; ".join(rpc.notes) or None)),
    ),
)  # fmt: skip

_OPERATIONS = Table(
    "operations",
    "rpc",
    "an operation of an NFSv4 COMPOUND",
    (
        RPC_NUMBER,
        TableColumn("operation", "int", "counted from 1 in the COMPOUND", lambda row: row.number),
        TableColumn("name", "text", "its name", lambda row: row.name),
        TableColumn("file", "int", "number in the table files, of the file that it was for, where that is known",
               lambda row: row.file and row.file.number),
        TableColumn("succeeded", "bool", "the reply says that it did", _done(lambda done: done.succeeded)),
        TableColumn("offset_bytes", "uint", "where in the file a READ, WRITE or its like begins, as the call says",
               _done(lambda done: done.offset)),
        TableColumn("count_bytes", "uint", "how much it asks for or brings, as the call says",
               _done(lambda done: done.count)),
    ),
    _operation_rows,
)  # fmt: skip

_CHUNKS = Table(
    "chunks",
    "rpc",
    "a chunk that a call advertises",
    (
        RPC_NUMBER,
        TableColumn("chunk", "int", "counted from 1 in the RPC", lambda row: row.number),
        TableColumn("kind", "text", "read, write or reply", lambda row: row.chunk.kind),
        TableColumn("position", "int", "Position of a Read chunk", lambda row: row.chunk.position),
        TableColumn("segments", "int", "its segments", lambda row: len(row.chunk.segments)),
        TableColumn("advertised_bytes", "int", "advertised by the call", lambda row: row.chunk.advertised),
        TableColumn("returned_bytes", "int", "written, by the reply", lambda row: row.chunk.returned),
        TableColumn("transferred_bytes", "int", "moved by RDMA Reads and Writes, each byte once",
               lambda row: row.chunk.transferred),
    ),
    _chunk_rows,
)  # fmt: skip

_SEGMENTS = Table(
    "segments",
    "rpc",
    "a segment of a chunk",
    (
        RPC_NUMBER,
        TableColumn("chunk", "int", "number of its chunk in the RPC", lambda row: row.chunk),
        TableColumn("segment", "int", "counted from 1 in the chunk", lambda row: row.number),
        TableColumn("handle", "int", "R_key or STag", lambda row: row.use.advertised.handle),
        TableColumn("offset_bytes", "uint", "address of its first byte", lambda row: row.use.advertised.offset),
        TableColumn("advertised_bytes", "int", "advertised by the call", lambda row: row.use.advertised.length),
        TableColumn("returned_bytes", "int", "written, by the reply", lambda row: row.use.returned),
        TableColumn("transferred_bytes", "int", "moved by RDMA Reads and Writes, each byte once",
               lambda row: row.use.transferred),
        TableColumn("operations", "int", "RDMA Reads or Writes that used it", lambda row: len(row.use.operations)),
    ),
    _segment_rows,
)  # fmt: skip

RPC_TABLES = (_RPCS, _OPERATIONS, _CHUNKS, _SEGMENTS)
"""Those whose noun is an ``RpcInFiles``."""
