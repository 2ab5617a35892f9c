"""The tables of RPCs and of their operations.

A column is declared once: its name, type and meaning, and where in a batch of RPCs its values are.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.ma import MaskedArray

from ..layers.oncrpc_codes import GSS_PROCEDURE_NAMES, GSS_SERVICE_NAMES
from ..layers.rpcrdma_codes import DIRECTION_NAMES, procedure_name
from ..onc.programs import program_name
from ..onc.rpc_header import GssCredential
from ..rpcrdma.messages import Message
from ..rpcrdma.rpc_table import STATES, ProcedureNames
from .rpc_columns import RpcBatch
from .rpc_values import RPC_VALUES, RpcValue, value_column
from .table import Table, TableColumn, column_of, masked, place_columns
from .table_chunks import CHUNKS, SEGMENTS

if TYPE_CHECKING:
    from ..measure.files import File
    from ..onc.file_operations import FileOperation

Values = Callable[[RpcBatch], MaskedArray]


def _column(name: str, type: str, meaning: str, values: Values, needs: str = "") -> TableColumn:
    return TableColumn(name, type, meaning, None, values, needs)


def _sum(name: str, meaning: str, *columns: str) -> TableColumn:
    """Of columns of ``RpcTable.rows``."""
    return _column(name, "int", meaning, lambda batch: batch.number(*columns))


def _known(name: str, meaning: str, column: str, missing: int) -> TableColumn:
    """A column of ``RpcTable.rows``, in which ``missing`` stands for what is not known."""
    return _column(name, "int", meaning, lambda batch: batch.number(column, missing=batch.rows[column] == missing))


def _call(name: str, meaning: str, column: str) -> TableColumn:
    """A column of ``RpcTable.rows`` about the call."""
    return _column(name, "int", meaning, lambda batch: batch.number(column, missing=~batch.called))


def _reply(name: str, meaning: str, column: str) -> TableColumn:
    return _column(name, "int", meaning, lambda batch: batch.number(column, missing=~batch.replied))


def _part(name: str, meaning: str) -> TableColumn:
    """Of the latency."""
    return _column(
        f"{name}_ns",
        "int",
        f"part of the latency: {meaning}",
        lambda batch: batch.number(f"latency_{name}", missing=batch.rows["latency"] < 0),
    )


def _procedure(name: str, type: str, meaning: str, value: Callable[[ProcedureNames], Any]) -> TableColumn:
    return _column(name, type, meaning, lambda batch: batch.procedure(type, value))


def _header(
    name: str, type: str, meaning: str, side: str, value: Callable[[Message], Any], plain: Any = None
) -> TableColumn:
    """Of a message; ``plain`` of those of plain RPCs."""
    return _column(name, type, meaning, lambda batch: batch.message(type, side, value, plain, plain))


def _use(name: str, type: str, meaning: str, value: Callable[[File, FileOperation], Any]) -> TableColumn:
    return _column(name, type, meaning, lambda batch: batch.use(type, value), "files")


def _value(value: RpcValue) -> TableColumn:
    return _column(
        value.name, value.type, value.meaning, lambda batch: value_column(value, batch.fields.columns), "contents"
    )


def _gss(name: str, type: str, meaning: str, value: Callable[[GssCredential], Any]) -> TableColumn:
    """Of the RPCSEC_GSS credential of a call."""
    return _column(
        name, type, meaning, lambda batch: batch.objects(type, lambda rpc: None if rpc.gss is None else value(rpc.gss))
    )


def _direction(message: Message) -> str | None:
    found = message.header.direction
    return None if found is None else DIRECTION_NAMES[found]


_RPCS = Table(
    "rpcs",
    "rpc",
    "a call, its reply, or both",
    (
        _sum("number", "counted from 1 in the order of calls, and of replies without one", "number"),
        _sum("connection", "number of the connection", "connection"),
        _column("direction", "text", "forward (called by the client) or backward",
                lambda batch: batch.coded("text", "caller", lambda caller: "backward" if caller else "forward")),
        _sum("xid", "RPC transaction ID", "xid"),
        _column("time", "time", "first packet of the call, or of the reply where no call was seen; UTC",
                lambda batch: batch.times.view("M8[ns]")),
        _column("time_ns", "int", "the same, in nanoseconds since the Unix epoch", lambda batch: batch.times),
        _reply("end_time_ns", "last packet of the reply, in nanoseconds since the Unix epoch", "reply_end"),
        _column("client", "text", "address of the client",
                lambda batch: batch.connection("text", lambda one: one.endpoints[0].address)),
        _column("server", "text", "address of the server",
                lambda batch: batch.connection("text", lambda one: one.endpoints[1].address)),
        _procedure("program", "text", "name of the RPC program",
                   lambda one: None if one.program is None else program_name(one.program)),
        _procedure("program_number", "int", "its number", lambda one: one.program),
        _procedure("version", "int", "version of the program", lambda one: one.version),
        _procedure("minor_version", "int", "of an NFSv4 COMPOUND", lambda one: one.minor_version),
        _procedure("procedure", "text", "name of the procedure", lambda one: one.name or None),
        _procedure("procedure_number", "int", "its number", lambda one: one.procedure),
        _procedure("operations", "text", "operations of a COMPOUND, in order, with blanks between",
                   lambda one: " ".join(one.operations) or None),
        _column(
            "state",
            "text",
            "complete, error, damaged, undecidable, no reply, no call or duplicate reply (which is no RPC of its own)",
            lambda batch: batch.coded("text", "state", lambda state: STATES[state]),
        ),
        _column("status", "text", "OK, or the name of the failure",
                lambda batch: batch.coded("text", "status", lambda code: batch.table.names.statuses[code][0] or None)),
        _column("failed", "bool", "the reply reports an error",
                lambda batch: batch.coded("bool", "status", lambda code: batch.table.names.statuses[code][1])),
        _column("contents", "text", "whole, truncated, missing or undecidable",
                lambda batch: batch.objects("text", lambda rpc: rpc.contents, "whole")),
        _call("call_frame", "first frame of the call", "call_frame"),
        _reply("reply_frame", "last frame of the reply", "reply_frame"),
        _column("latency_us", "float", "first packet of the call to last packet of the reply",
                lambda batch: masked(batch.rows["latency"] / 1000, batch.rows["latency"] < 0)),
        _known("latency_ns", "the same, in nanoseconds", "latency", -1),
        _column("waiting_ns", "int", "the same; of a call without a reply, the time to the end of its connection or of"
                " the capture, a lower bound; NULL where a reply may be missing from the capture",
                lambda batch: masked(batch.table.waiting, batch.table.waiting < 0)),
        _part("call", "the call's Send"),
        _part("reads", "RDMA Reads"),
        _part("server", "nothing of it on the wire"),
        _part("writes", "RDMA Writes"),
        _part("reply", "the reply's Send"),
        _sum("call_bytes", "of the RPC call, inline and by Read chunk", "call_inline", "read_bytes"),
        _call("call_inline_bytes", "of the RPC call, inside the Send", "call_inline"),
        _sum("call_chunk_bytes", "of the RPC call, transferred by Read chunks", "read_bytes"),
        _sum("reply_bytes", "of the RPC reply, inline and by Write and Reply chunk",
             "reply_inline", "write_bytes", "reply_chunk_bytes"),
        _reply("reply_inline_bytes", "of the RPC reply, inside the Send", "reply_inline"),
        _sum("reply_chunk_bytes", "of the RPC reply, transferred by Write and Reply chunks",
             "write_bytes", "reply_chunk_bytes"),
        _sum("chunks", "chunks that the call advertises", "read_chunks", "write_chunks", "reply_chunks"),
        _sum("read_chunks", "Read chunks among them", "read_chunks"),
        _sum("write_chunks", "Write chunks among them", "write_chunks"),
        _sum("reply_chunks", "Reply chunks among them: 0 or 1", "reply_chunks"),
        _sum("read_segments", "segments of Read chunks", "read_segments"),
        _sum("write_segments", "segments of Write chunks", "write_segments"),
        _sum("reply_segments", "segments of the Reply chunk", "reply_segments"),
        _column("rdma_version", "int", "version of RPC-over-RDMA, of the call or else the reply",
                lambda batch: batch.objects("int", lambda rpc: next(
                    (one.header.version for one in (rpc.call, rpc.reply) if one is not None), None), 1)),
        _column("call_rdma_procedure", "text", "RDMA_MSG, RDMA_NOMSG, …, of the call",
                lambda batch: batch.rdma_procedure("text", "call", lambda *one: procedure_name(*one) or None)),
        _column("reply_rdma_procedure", "text", "RDMA_MSG, RDMA_NOMSG, RDMA_ERROR, …, of the reply",
                lambda batch: batch.rdma_procedure("text", "reply", lambda *one: procedure_name(*one) or None)),
        _known("credits_requested", "by the call", "credits_requested", -1),
        _known("credits_granted", "by the reply", "credits_granted", -1),
        _known("invalidated_handle", "handle that the reply's Send With Invalidate revokes", "invalidated", -1),
        _sum("retransmitted_packets", "packets (iWARP: segments) retransmitted for it", "retransmissions"),
        _sum("retransmission_delay_ns", "part of the latency: waiting for retransmissions", "latency_retransmission"),
        _use("file", "int",
             "number in the table files, of the file that it read, wrote or committed, else of the last that it used",
             lambda file, done: file.number),
        _column("path", "text", "path of the file that the call names, as it was called then",
                lambda batch: column_of("text", batch.paths), "paths"),
        *(_value(one) for one in RPC_VALUES),
        _gss("gss_version", "int", "version of the call's RPCSEC_GSS credential", lambda gss: gss.version),
        _gss("gss_procedure", "text", "RPCSEC_GSS_DATA, RPCSEC_GSS_INIT, …, or a number",
             lambda gss: GSS_PROCEDURE_NAMES.get(gss.procedure, str(gss.procedure))),
        _gss("gss_sequence", "int", "its sequence number", lambda gss: gss.sequence),
        _gss("gss_service", "text", "its service: none, integrity, privacy, or a number",
             lambda gss: GSS_SERVICE_NAMES.get(gss.service, str(gss.service))),
        _column("damage", "text", "what is missing or contradictory, with semicolons between",
                lambda batch: batch.objects("text", lambda rpc: "; ".join(rpc.damage) or None)),
        _column("notes", "text", "what is inferred or unusual, with semicolons between",
                lambda batch: batch.objects("text", lambda rpc: "; ".join(rpc.notes) or None)),
        _column("ended", "int", "counted from 1 in the order in which RPCs ended",
                lambda batch: masked(np.arange(len(batch)) + batch.before + 1)),
        *place_columns("call_", "call_frame", "the first frame of the call"),
        *place_columns("reply_", "reply_frame", "the last frame of the reply"),
        _call("call_last_frame", "last frame of the call", "call_last_frame"),
        _call("call_end_time_ns", "last packet of the call, in nanoseconds since the Unix epoch", "call_end"),
        _reply("reply_first_frame", "first frame of the reply", "reply_first_frame"),
        _reply("reply_time_ns", "first packet of the reply, in nanoseconds since the Unix epoch", "reply_time"),
        _call("call_send_bytes", "of the call's Send", "call_send"),
        _reply("reply_send_bytes", "of the reply's Send", "reply_send"),
        _column("call_header_bytes", "int", "of the call's transport header",
                lambda batch: batch.header_length("call")),
        _column("reply_header_bytes", "int", "of the reply's transport header",
                lambda batch: batch.header_length("reply")),
        _header("call_rdma_version", "int", "version of RPC-over-RDMA, of the call", "call",
                lambda message: message.header.version, 1),
        _header("reply_rdma_version", "int", "version of RPC-over-RDMA, of the reply", "reply",
                lambda message: message.header.version, 1),
        _column("call_rdma_procedure_number", "int", "rdma_proc of the call",
                lambda batch: batch.rdma_procedure("int", "call", lambda version, number: number)),
        _column("reply_rdma_procedure_number", "int", "rdma_proc of the reply",
                lambda batch: batch.rdma_procedure("int", "reply", lambda version, number: number)),
        _header("call_rdma_direction", "text", "CALL or REPLY, as the call's header says; version 2", "call",
                _direction),
        _header("reply_rdma_direction", "text", "CALL or REPLY, as the reply's header says; version 2", "reply",
                _direction),
        _header("call_option", "int", "rdma_opttype of the call; version 2", "call",
                lambda message: message.header.option),
        _header("reply_option", "int", "rdma_opttype of the reply; version 2", "reply",
                lambda message: message.header.option),
        _header("call_header_problem", "text", "why the call's header could not be read to its end", "call",
                lambda message: message.header.problem or None),
        _header("reply_header_problem", "text", "why the reply's header could not be read to its end", "reply",
                lambda message: message.header.problem or None),
        _header("call_invalidated_handle", "int", "handle that the call's Send With Invalidate revokes", "call",
                lambda message: message.operation.invalidate),
        _column("psn_reused", "bool", "a sender reused a PSN for one of its packets",
                lambda batch: batch.objects("bool", lambda rpc: bool(rpc.psn_errors), False)),
    ),
)  # fmt: skip


def _step(name: str, type: str, meaning: str, value: Callable[[File, FileOperation], Any]) -> TableColumn:
    return _column(name, type, meaning, lambda batch: batch.step_use(type, value), "files")


def _steps(batch: RpcBatch) -> MaskedArray:
    found = np.empty(int(batch.step_counts.sum()), object)
    found[:] = [*chain.from_iterable(batch.steps)]
    return masked(found)


def _step_numbers(batch: RpcBatch) -> MaskedArray:
    ends = batch.step_counts.cumsum()
    return masked(
        np.arange(1, len(ends) and int(ends[-1]) + 1) - np.repeat(ends - batch.step_counts, batch.step_counts)
    )


_OPERATIONS = Table(
    "operations",
    "rpc",
    "an operation of an NFSv4 COMPOUND",
    (
        _column("rpc", "int", "number of the RPC",
                lambda batch: masked(np.repeat(batch.rows["number"], batch.step_counts))),
        _column("operation", "int", "counted from 1 in the COMPOUND", _step_numbers),
        _column("name", "text", "its name", _steps),
        _step("file", "int", "number in the table files, of the file that it was for, where that is known",
              lambda file, done: file.number),
        _step("succeeded", "bool", "the reply says that it did", lambda file, done: done.succeeded),
        _step("offset_bytes", "uint", "where in the file a READ, WRITE or its like begins, as the call says",
              lambda file, done: done.offset),
        _step("count_bytes", "uint", "how much it asks for or brings, as the call says",
              lambda file, done: done.count),
    ),
)  # fmt: skip

RPC_TABLES = (_RPCS, _OPERATIONS, CHUNKS, SEGMENTS)
"""Those whose noun is an ``RpcBatch``."""
