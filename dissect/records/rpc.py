"""An RPC, its messages, chunks and contents, as a record."""

from __future__ import annotations

from ..layers.characteristics_codes import option_name
from ..layers.rpcrdma_codes import DIRECTION_NAMES, procedure_name
from ..onc.programs import program_name
from ..onc.shapes.rpc_summary_fields import NO_FIELDS, FlatFields
from ..rpcrdma.messages import Message
from ..rpcrdma.rpcs import ChunkUse, Latency, Reassembled, Rpc, SegmentUse
from .rpc_values import value_fields
from .schema import Record, record, wide


def latency_fields(latency: Latency | None) -> Record | None:
    if latency is None:
        return None
    return {f"{name}_ns": value for name, value in latency._asdict().items()}


def rpc_record(rpc: Rpc, fields: FlatFields = NO_FIELDS, path: str | None = None) -> Record:
    """``path``: that the call names."""
    return {**message_record(rpc), "path": path, **value_fields(fields)}


def message_record(rpc: Rpc) -> Record:
    """The record without what the call names."""
    return record(
        "rpc",
        number=rpc.number,
        connection=rpc.connection.number,
        direction="backward" if rpc.backward else "forward",
        xid=rpc.xid,
        program=None if rpc.program is None else program_name(rpc.program),
        program_number=rpc.program,
        version=rpc.version,
        minor_version=rpc.minor_version,
        procedure=rpc.name or None,
        procedure_number=rpc.procedure,
        operations=list(rpc.operations),
        state=rpc.state,
        status=rpc.status or None,
        failed=rpc.failed,
        contents=rpc.contents,
        call_frame=rpc.call_frame or None,
        reply_frame=rpc.reply_frame or None,
        call_bytes=rpc.call_bytes,
        reply_bytes=rpc.reply_bytes,
        call=_message(rpc.call),
        reply=_message(rpc.reply),
        latency=latency_fields(rpc.latency),
        waiting_ns=rpc.waiting,
        chunks=[_chunk(chunk) for chunk in rpc.chunks],
        retransmitted_packets=rpc.retransmissions,
        retransmission_delay_ns=rpc.retransmission_delay,
        damage=list(rpc.damage),
        notes=list(rpc.notes),
    )


def reassembled_fields(reassembled: Reassembled | None) -> Record | None:
    """A whole RPC message: its bytes in hexadecimal, and where each range of them came from.

    ``data`` is null where bytes are missing; then ``captured`` has what is there.
    """
    if reassembled is None:
        return None
    return {
        "length": reassembled.length,
        "complete": reassembled.complete,
        "data": reassembled.prefix.hex() if reassembled.complete else None,
        "captured": None
        if reassembled.complete
        else [{"offset": offset, "data": data.hex()} for offset, data in reassembled.pieces],
        "extents": [{**extent._asdict(), "missing": extent.missing or None} for extent in reassembled.extents],
    }


def _message(message: Message | None) -> Record | None:
    if message is None:
        return None
    operation, header = message.operation, message.header
    return {
        "first_frame": operation.first_frame,
        "last_frame": operation.last_frame,
        "first_time_ns": operation.first_time,
        "last_time_ns": operation.last_time,
        "rdma_version": header.version,
        "rdma_procedure": procedure_name(header.version, header.procedure) or None,
        "direction": None if header.direction is None else DIRECTION_NAMES[header.direction],
        "option": option_name(header.option) or None,
        "credits": header.credits,
        "header_length": header.length,
        "inline_length": message.inline_length,
        "send_length": operation.length,
        "invalidate": operation.invalidate,
        "problem": header.problem or None,
    }


def _chunk(chunk: ChunkUse) -> Record:
    return {
        "kind": chunk.kind,
        "position": chunk.position,
        "advertised": chunk.advertised,
        "returned": chunk.returned,
        "transferred": chunk.transferred,
        "segments": [_segment(use) for use in chunk.segments],
    }


def _segment(use: SegmentUse) -> Record:
    segment = use.advertised
    return {
        "handle": segment.handle,
        **wide("offset", segment.offset),
        "advertised": segment.length,
        "returned": use.returned,
        "transferred": use.transferred,
        "operations": len(use.operations),
        "late_operations": len(use.late),
    }
