"""From a noun to the JSON object that stands for it.

Every object names its layout in ``schema`` ("rdmascope.rpc/1"); the number changes when a name goes away or
changes its meaning, not when one is added.  ``type`` is the middle of it.  Times are integers: nanoseconds, since
the Unix epoch where they are moments.  Sizes are bytes.  XIDs, handles, addresses and queue pair numbers are
integers.  What is not known is null.
"""

from __future__ import annotations

from typing import Any

from ..layers.characteristics_codes import CHARACTERISTICS, Characteristic, characteristic_name, option_name
from ..layers.rpcrdma_codes import DIRECTION_NAMES, procedure_name
from ..measure.statistics import Procedure, ProcedureKey, Share, SlowRpc, TransferTotals
from ..measure.time_series import Bin
from ..onc.programs import program_name
from ..percentiles import Distribution
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.eviction import Evicted
from ..rpcrdma.messages import Message
from ..rpcrdma.negotiation import InForce, Negotiation, VersionUse
from ..rpcrdma.rpcs import ChunkUse, Latency, Reassembled, Rpc, SegmentUse
from ..transport.connection import Connection

VERSION = 1

Record = dict[str, Any]


def record(type: str, **fields: Any) -> Record:
    return {"schema": f"rdmascope.{type}/{VERSION}", "type": type, **fields}


def capture_record(
    *,
    frames: int,
    truncated_frames: int,
    packets: int,
    first_time: int | None,
    last_time: int | None,
    connections: int,
    states: dict[str, int],
    error: str | None,
) -> Record:
    """What was read.  ``error`` says why reading it ended early."""
    return record(
        "capture",
        frames=frames,
        truncated_frames=truncated_frames,
        packets=packets,
        first_time_ns=first_time,
        last_time_ns=last_time,
        connections=connections,
        rpcs=sum(states.values()),
        states=states,
        error=error,
    )


def connection_record(conversation: Conversation, share: Share | None = None) -> Record:
    connection = conversation.connection
    share = share or Share()
    return record(
        "connection",
        number=connection.number,
        transport=connection.transport,
        protocol=conversation.protocol,
        protocol_name=conversation.protocol_name or None,
        recognised_by=list(conversation.recognised_by),
        service_port=connection.service_port,
        paired_by=connection.paired_by,
        confidence=connection.confidence,
        evidence=list(connection.evidence),
        path_mtu=connection.path_mtu,
        active=_endpoint(conversation, 0),
        passive=_endpoint(conversation, 1),
        credits_requested=_range(conversation.credits_requested),
        credits_granted=_range(conversation.credits_granted),
        first_frame=connection.first_frame,
        last_frame=connection.last_frame,
        first_time_ns=connection.first_time,
        last_time_ns=connection.last_time,
        ended_by=connection.ended_by or None,
        negotiation=_negotiation(conversation.negotiation) if conversation.protocol == "rpcrdma" else None,
        rpcs=share.calls,
        backward_rpcs=share.backward,
        failed=share.failed,
        call_bytes=share.call_bytes,
        reply_bytes=share.reply_bytes,
    )


def _endpoint(conversation: Conversation, end: int) -> Record:
    connection = conversation.connection
    endpoint = connection.endpoints[end]
    threshold, source = conversation.inline_threshold(end)
    private = conversation.private_data(end)
    return {
        "address": endpoint.address,
        "qpn": endpoint.qpn,
        "start_psn": endpoint.start_psn,
        "private_data_seen": conversation.private_data_known(end),
        "private_data": None
        if private is None
        else {
            "version": private.version,
            "remote_invalidation": private.remote_invalidation,
            "send_size": private.send_size,
            "receive_size": private.receive_size,
            "offset": private.offset,
        },
        "responder_resources": endpoint.responder_resources,
        "initiator_depth": endpoint.initiator_depth,
        "inline_threshold": threshold,
        "inline_threshold_from": source,
        "inline_thresholds": [_in_force(known) for known in conversation.thresholds(end)],
        "characteristics": _characteristics(conversation, end),
        **sender_counts(connection, end),
    }


def sender_counts(connection: Connection, end: int) -> Record:
    """What an endpoint sent; packets and segments are never added up under one key."""
    iwarp = connection.transport == "iWARP"
    retransmitted, missing = connection.ledgers[end].retransmitted, connection.missing_packets[end]
    return {
        "packets": None if iwarp else connection.packets[end],
        "segments": connection.segments[end] if iwarp else None,
        "fpdus": connection.fpdus[end] if iwarp else None,
        "bytes": connection.bytes[end],
        "retransmitted_packets": None if iwarp else retransmitted.packets,
        "retransmitted_segments": retransmitted.packets if iwarp else None,
        "retransmitted_bytes": retransmitted.bytes,
        "missing_packets": None if iwarp else missing,
        "missing_segments": missing if iwarp else None,
    }


def _in_force(known: InForce) -> Record:
    """A value, the frame that brought it (0: none did), and how that is known; null where it is not."""
    return {"value": known.value, "frame": known.frame, "from": known.source}


def _characteristics(conversation: Conversation, end: int) -> list[Record]:
    """The transport characteristics of an endpoint at the end of the capture; none in version 1."""
    if conversation.version_at().value in (0, 1):
        return []
    return [
        {"which": which, "name": kind.name, **_in_force(conversation.in_force(which, end))}
        for which, kind in CHARACTERISTICS.items()
    ]


def _characteristic(item: Characteristic) -> Record:
    return {
        "which": item.which,
        "name": item.name,
        "value": item.value,
        "data": item.data.hex(),
        "problem": item.problem or None,
    }


def _negotiation(one: Negotiation) -> Record:
    """What was agreed: endpoint 0 is the active one, positions are those in the request."""
    return {
        "version": one.settled or None,
        "asked": None if one.requested is None else _version_use(one.requested),
        "answers": [_version_use(answer) for answer in one.answers],
        "refusals": [
            {
                "frame": refusal.frame,
                "endpoint": refusal.endpoint,
                "error": refusal.name,
                "lowest": refusal.low,
                "highest": refusal.high,
                "asked": refusal.refused_version,
                "asked_frame": refusal.refused_frame or None,
            }
            for refusal in one.refusals
        ],
        "went_on": None if one.continued is None else _version_use(one.continued),
        "announcements": [
            {"frame": told.frame, "endpoint": told.endpoint, "by": told.by, **_characteristic(told.characteristic)}
            for told in one.announcements
        ],
        "no_change": [
            {"endpoint": end, "frame": frame, "names": [characteristic_name(which) for which in sorted(fixed)]}
            for end, (frame, fixed) in sorted(one.nochange.items())
        ],
        "requests": [
            {
                "frame": request.frame,
                "endpoint": request.requester,
                "xid": request.xid,
                "want": [_characteristic(item) for item in request.want],
                "answer_frame": request.answer_frame or None,
                "refused_frame": request.refused_frame or None,
                "done": sorted(request.done),
                "rejected": sorted(request.rejected),
                "pending": sorted(request.pending),
                "still_pending": sorted(request.open),
            }
            for request in one.requests
        ],
        "unsupported_options": [
            {"frame": refusal.frame, "endpoint": refusal.endpoint, "option": option_name(refusal.option)}
            for refusal in one.option_refusals
        ],
    }


def _version_use(one: VersionUse) -> Record:
    return {"version": one.version, "frame": one.frame, "endpoint": one.endpoint, "send_length": one.length}


def _range(pair: tuple[int, int] | None) -> Record | None:
    return None if pair is None else {"lowest": pair[0], "highest": pair[1]}


def evicted_record(evicted: Evicted, share: Share) -> Record:
    """Connections that ended so long ago, or were so many, that only sums of them are kept."""
    return record(
        "evicted",
        connections=evicted.connections,
        rpcrdma_connections=evicted.carriers,
        packets=evicted.packets,
        segments=evicted.segments,
        fpdus=evicted.fpdus,
        bytes=evicted.bytes,
        retransmitted_packets=evicted.retransmitted_packets,
        retransmitted_segments=evicted.retransmitted_segments,
        missing_packets=evicted.missing_packets,
        missing_segments=evicted.missing_segments,
        rpcs=share.calls,
        backward_rpcs=share.backward,
        failed=share.failed,
        call_bytes=share.call_bytes,
        reply_bytes=share.reply_bytes,
    )


def procedure_record(procedure: Procedure) -> Record:
    return record(
        "procedure",
        **_names(procedure.key),
        rpcs=procedure.calls,
        failed=procedure.failed,
        statuses=procedure.statuses,
        states=procedure.states,
        call_bytes=procedure.call_bytes,
        reply_bytes=procedure.reply_bytes,
        latency=_distribution(procedure.latency()),
        parts={name: _distribution(part) for name, part in procedure.parts().items()},
    )


def _names(key: ProcedureKey) -> Record:
    return {
        "direction": "backward" if key.backward else "forward",
        "program": key.program,
        "program_name": None if key.program is None else program_name(key.program),
        "version": key.version,
        "minor_version": key.minor_version,
        "procedure": key.procedure,
        "name": key.name or None,
        "operations": list(key.operations),
    }


def _distribution(one: Distribution | None) -> Record | None:
    if one is None:
        return None
    return {
        "count": one.count,
        "min_ns": one.minimum,
        "median_ns": one.median,
        "p95_ns": one.p95,
        "p99_ns": one.p99,
        "max_ns": one.maximum,
        "total_ns": one.total,
    }


def transfer_record(way: str, transfer: TransferTotals) -> Record:
    return record(
        "transfer",
        way=way.replace(" ", "_"),
        messages=transfer.messages,
        chunks=transfer.chunks,
        segments=transfer.segments,
        advertised=transfer.advertised,
        moved=transfer.transferred,
        unused_chunks=transfer.unused,
    )


def slowest_record(rank: int, slow: SlowRpc) -> Record:
    return record(
        "slowest",
        rank=rank,
        number=slow.number,
        connection=slow.connection,
        xid=slow.xid,
        **_names(slow.key),
        state=slow.state,
        status=slow.status or None,
        call_frame=slow.call_frame,
        reply_frame=slow.reply_frame,
        call_bytes=slow.call_bytes,
        reply_bytes=slow.reply_bytes,
        retransmissions=slow.retransmissions,
        latency=latency_fields(slow.latency),
    )


def undecoded_record(what: str, reason: str, count: int) -> Record:
    """``what`` is counted: 'frames', 'packets', 'rpcs'."""
    return record("undecoded", what=what, reason=reason, count=count)


def histogram_record(low: int, high: int, count: int) -> Record:
    return record("histogram", low_ns=low, high_ns=high, rpcs=count)


def throughput_record(seconds: float, bins: list[Bin]) -> Record:
    return record(
        "throughput",
        seconds_each=seconds,
        rpcs=[one.calls for one in bins],
        call_bytes=[one.call_bytes for one in bins],
        reply_bytes=[one.reply_bytes for one in bins],
    )


def latency_fields(latency: Latency | None) -> Record | None:
    if latency is None:
        return None
    return {f"{name}_ns": value for name, value in latency._asdict().items()}


def rpc_record(rpc: Rpc) -> Record:
    return record(
        "rpc",
        number=rpc.number,
        connection=rpc.connection.number,
        direction="backward" if rpc.backward else "forward",
        xid=rpc.xid,
        program=rpc.program,
        program_name=None if rpc.program is None else program_name(rpc.program),
        version=rpc.version,
        minor_version=rpc.minor_version,
        procedure=rpc.procedure,
        name=rpc.name or None,
        operations=list(rpc.operations),
        state=rpc.state,
        status=rpc.status or None,
        failed=rpc.failed,
        contents=rpc.contents,
        call=_message(rpc.call),
        reply=_message(rpc.reply),
        latency=latency_fields(rpc.latency),
        chunks=[_chunk(chunk) for chunk in rpc.chunks],
        retransmissions=rpc.retransmissions,
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
        "moved": chunk.transferred,
        "segments": [_segment(use) for use in chunk.segments],
    }


def _segment(use: SegmentUse) -> Record:
    segment = use.advertised
    return {
        "handle": segment.handle,
        "offset": segment.offset,
        "advertised": segment.length,
        "returned": use.returned,
        "moved": use.transferred,
        "operations": len(use.operations),
    }
