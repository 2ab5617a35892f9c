"""A connection, its transport's health and its credits as records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..layers.characteristics_codes import CHARACTERISTICS, Characteristic, characteristic_name, option_name
from ..measure.statistics import Share
from ..named_tuple import NamedTuple
from ..onc.rpc_header import procedure_label, program_label
from ..percentiles import Distribution
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.eviction import Evicted
from ..rpcrdma.negotiation import InForce, Negotiation, VersionUse
from ..rpcrdma.rpcs import Rpc
from ..transport.connection import Connection
from ..transport.health import NegativeAcknowledgement, TransportHealth
from ..transport.retransmissions import Retransmission, Tally
from .schema import DISTRIBUTION, RANGE, SENT, Record, RecordType, below, common, objects, record

if TYPE_CHECKING:
    from ..measure.credits import CreditDirection

IN_FORCE = {
    "value": ("any", "the value; null where it is not known"),
    "frame": ("integer", "frame that brought it; 0: none did"),
    "from": ("string", "how it is known"),
}

PRIVATE_DATA = {
    "version": ("integer", "version of the format"),
    "remote_invalidation": ("boolean", "the endpoint supports remote invalidation"),
    "send_size": ("integer", "bytes it sends inline, at most"),
    "receive_size": ("integer", "bytes it receives inline, at most"),
    "offset": ("integer", "where the format identifier is in the private data"),
}

ENDPOINT = {
    "address": ("string", "address"),
    "qpn": ("integer", "queue pair number; 0 with iWARP"),
    "start_psn": ("integer|null", "PSN that it expects first: its peer's first request; null: not seen"),
    "private_data_seen": ("boolean", "its connection message is in the capture"),
    **objects(
        "private_data",
        "object|null",
        "its private data (RFC 8797); null: none, or not seen",
        PRIVATE_DATA,
    ),
    "responder_resources": ("integer|null", "RDMA Reads that it answers at a time"),
    "initiator_depth": ("integer|null", "RDMA Reads that it issues at a time"),
    "inline_threshold": (
        "integer|null",
        "bytes it may send inline, at the end of the capture; null where the capture does not tell",
    ),
    "inline_threshold_from": ("string|null", "how that is known; null without RDMA"),
    **objects("inline_thresholds", "array of object", "inline thresholds in the order they came into force", IN_FORCE),
    "characteristics": ("array of object", "its version 2 transport characteristics; empty in version 1"),
    "characteristics[].which": ("integer", "number of the characteristic"),
    "characteristics[].name": ("string", "its name"),
    **below("characteristics[]", IN_FORCE),
    **SENT,
}

CHARACTERISTIC = {
    "which": ("integer", "number of the characteristic"),
    "name": ("string", "its name"),
    "value": ("any", "integer or boolean; null where it cannot be decoded"),
    "data": ("string", "its bytes in hexadecimal"),
    "problem": ("string|null", "what is wrong with it"),
}

VERSION_USE = {
    "version": ("integer", "version of RPC-over-RDMA"),
    **common("frame"),
    "endpoint": ("integer", "0 active, 1 passive"),
    "send_length": ("integer", "bytes of the Send"),
}

SOMEWHERE = {
    **common("frame"),
    "endpoint": ("integer", "0 active, 1 passive"),
}

POSITIONS = "array of integer"

NEGOTIATION = {
    "version": ("integer|null", "version that was settled on"),
    **objects("requested", "object|null", "the first call", VERSION_USE),
    **objects("answers", "array of object", "the first replies", VERSION_USE),
    **objects("refusals", "array of object", "versions that were refused", SOMEWHERE),
    "refusals[].error": ("string", "name of the error"),
    "refusals[].lowest": ("integer|null", "lowest version supported"),
    "refusals[].highest": ("integer|null", "highest version supported"),
    "refusals[].refused_version": ("integer|null", "version of the call that was refused"),
    "refusals[].refused_frame": ("integer|null", "frame of that call"),
    **objects("continued", "object|null", "the first call after a refusal", VERSION_USE),
    **objects("announcements", "array of object", "characteristics announced", SOMEWHERE),
    "announcements[].by": ("string", "option that announced it"),
    **below("announcements[]", CHARACTERISTIC),
    **objects("no_change", "array of object", "characteristics that an endpoint says stay as they are", SOMEWHERE),
    "no_change[].names": ("array of string", "their names"),
    **objects("requests", "array of object", "requests to change characteristics", SOMEWHERE),
    "requests[].xid": ("integer", "transaction ID"),
    **objects("requests[].want", "array of object", "what is wanted", CHARACTERISTIC),
    "requests[].answer_frame": ("integer|null", "frame of the answer"),
    "requests[].refused_frame": ("integer|null", "frame of the refusal"),
    "requests[].done": (POSITIONS, "changes made: their positions in want, from 0"),
    "requests[].rejected": (POSITIONS, "changes rejected"),
    "requests[].pending": (POSITIONS, "changes promised for later"),
    "requests[].still_pending": (POSITIONS, "pending changes that never came"),
    **objects("unsupported_options", "array of object", "options that an endpoint does not support", SOMEWHERE),
    "unsupported_options[].option": ("string", "name of the option"),
}

DATA_SERVER = {
    "by": ("string", "how that is known: GETDEVICEINFO, which named its address, or file handles of layouts"),
    "metadata_server": ("string", "address of the server that said so"),
    "frame": ("integer", "frame of its reply"),
}

SHARE = {
    **common("rpcs"),
    "backward_rpcs": ("integer", "RPCs called by the server"),
    "failed": ("integer", "RPCs that failed"),
    **common("call_bytes", "reply_bytes"),
}

TALLY = {
    "packets": ("integer|absent", "packets; absent with iWARP"),
    "segments": ("integer|absent", "TCP segments; only with iWARP"),
    "bytes": ("integer", "payload bytes"),
}

NAK = {
    **common("frame", "time_ns"),
    "psn": ("integer", "packet sequence number (24 bits)"),
    "name": ("string", "what it is"),
    "timer_ns": ("integer|null", "RNR NAK: time to wait"),
}

SPREAD = "object|null"

HEALTH = {
    "address": ENDPOINT["address"],
    "qpn": ENDPOINT["qpn"],
    **SENT,
    "unique_bytes": ("integer", "payload bytes, each counted once"),
    "active_time_ns": ("integer", "time in which it sent payload; pauses of more than 100 ms do not count"),
    "goodput_bps": ("integer|null", "unique payload bits per second of active time"),
    **objects(
        "original_captured",
        "object",
        "retransmissions of packets that are also in the capture: lost behind the capture point",
        TALLY,
    ),
    **objects(
        "original_missing",
        "object",
        "retransmissions of packets that are not in the capture: lost before the capture point",
        TALLY,
    ),
    **objects("causes", "map of object", "cause -> retransmissions", TALLY),
    "missing_unconfirmed": (
        "integer",
        "packets of missing_packets that no acknowledgement confirms: their sender may never have sent them",
    ),
    "reordered": ("integer", "packets out of order that were not retransmitted"),
    "acknowledgements": ("integer", "ACK packets it sent; over TCP pure ACKs, without the handshake's"),
    "requests_acknowledged": ("integer", "request packets of the other end that they acknowledged"),
    "requests_per_ack": ("number|null", "requests per acknowledgement, on average"),
    "max_per_ack": ("integer", "requests per acknowledgement, at most"),
    **objects("ack_delay", SPREAD, "from a request of the other end to its acknowledgement", DISTRIBUTION),
    **objects("read_delay", SPREAD, "from an RDMA Read request of the other end to the first response", DISTRIBUTION),
    "sequence_naks": ("integer", "NAKs for a PSN sequence error that it sent"),
    "rnr_nak_count": ("integer", "RNR NAKs that it sent"),
    **objects("rnr_naks", "array of object", "the first ones", NAK),
    **objects("fatal_naks", "array of object", "NAKs that end the connection", NAK),
    "ecn_marked": ("integer", "its packets that a switch marked: congestion experienced"),
    "cnps": ("integer", "congestion notification packets that it sent"),
    **objects("cnp_gap", SPREAD, "from one notification to the next", DISTRIBUTION),
    **objects("cnp_delay", SPREAD, "from a marked packet of the other end to the next notification", DISTRIBUTION),
    "icrc_failure_count": ("integer", "its packets whose invariant CRC is wrong"),
    "icrc_failures": ("array of integer", "frames of the first ones"),
    "reads_outstanding": ("integer", "RDMA Reads it had open at one time, at most"),
    "read_depth": ("integer|null", "RDMA Reads it may have open at one time"),
    "unanswered": ("integer", "requests without acknowledgement at the end; iWARP: RDMA Reads not answered"),
    "duplicate_acks": ("integer", "iWARP: duplicate TCP acknowledgements that it sent"),
    "selective_acks": ("integer", "iWARP: selective acknowledgements that it sent"),
    "duplicate_sacks": ("integer", "iWARP: acknowledgements that report duplicate segments (RFC 2883)"),
    "zero_windows": ("integer", "iWARP: segments that closed its receive window"),
    "congestion_echoes": ("integer", "iWARP: segments with ECN-Echo"),
    "damaged_segments": ("integer", "iWARP: its segments with a wrong TCP checksum"),
    "mpa_crc_failure_count": ("integer", "iWARP: its FPDUs with a wrong CRC32C"),
    "mpa_crc_failures": ("array of integer", "iWARP: frames of the first ones"),
    "mpa_marker_failures": ("integer", "iWARP: its FPDUs with wrong markers"),
    "mpa_rejected_fpdus": ("integer", "iWARP: its FPDUs rejected because no CRC backs them and headers are wrong"),
}

RETRANSMISSION = {
    "initiator": ("string", "active or passive: the requester"),
    "cause": (
        "string",
        "NAK sequence error, implied NAK, RNR NAK, fast retransmit, timeout, duplicate or unknown",
    ),
    "lost": ("string", "request, response, acknowledgement, segment, nothing or unknown"),
    "lost_packet_captured": ("boolean|null", "the lost packet is in the capture: it was lost behind the capture point"),
    "psn": ("integer|null", "first retransmitted PSN (24 bits); null with iWARP"),
    "sequence": ("integer|null", "first retransmitted TCP sequence number (32 bits); null without iWARP"),
    **TALLY,
    "lost_frame": (
        "integer|null",
        "the lost packet where lost_packet_captured, else the first packet that shows it missing",
    ),
    "lost_time_ns": ("integer|null", "time of that"),
    "nak_frame": ("integer|null", "the NAK; iWARP: the first duplicate acknowledgement"),
    "nak_time_ns": ("integer|null", "time of that"),
    "retransmission_frame": ("integer|null", "the first retransmitted packet"),
    "retransmission_time_ns": ("integer|null", "time of that"),
    "loss_to_nak_ns": ("integer|null", "from the loss to the NAK"),
    "nak_to_retransmission_ns": ("integer|null", "from the NAK to the retransmission"),
    "loss_to_retransmission_ns": ("integer|null", "from the loss to the retransmission"),
}

INFERRED_LOSS = {
    "sender": ("string", "active or passive"),
    "rpc": ("integer", "number of the RPC that waited"),
    "retransmission_frame": ("integer", "the retransmission; the original was not captured"),
    "lost_time_ns": ("integer", "when it was lost, by the length of the sender's timer"),
    "retransmission_time_ns": ("integer", "time of the retransmission"),
    "evidence": ("string", "what shows it"),
    "confidence": ("number", "0 to 1"),
}

TYPES = {
    "connection": RecordType(
        "A connection, its endpoints, and what they agreed on.",
        "`report`, `live`",
        {
            "number": ("integer", "number of the connection, from 1"),
            **common("transport"),
            "protocol": ("string", "rpcrdma, or what else it carries"),
            "protocol_name": ("string|null", "name of another protocol"),
            "recognised_by": ("array of string", "why it is taken for that protocol"),
            "service_port": ("integer|null", "port of the service"),
            "paired_by": ("string", "how its two directions were found to belong together"),
            "confidence": ("number", "how sure that is, 0 to 1"),
            "evidence": ("array of string", "what it rests on"),
            "path_mtu": ("integer|null", "path MTU in bytes"),
            **objects(
                "data_server",
                "object|null",
                "the server is a pNFS data server; null: not known",
                DATA_SERVER,
            ),
            **objects("active", "object", "the side that connected", ENDPOINT),
            **objects("passive", "object", "the side that accepted", ENDPOINT),
            **objects("credits_requested", "object|null", "credits requested", RANGE),
            **objects("credits_granted", "object|null", "credits granted", RANGE),
            **common("first_frame", "last_frame", "first_time_ns", "last_time_ns"),
            "ended_by": ("string|null", "what ended it; null: it was open at the end of the capture"),
            **objects("negotiation", "object|null", "version and characteristics; null: no RPC-over-RDMA", NEGOTIATION),
            **SHARE,
            **common("file"),
        },
    ),
    "transport": RecordType(
        "The health of a connection: losses, retransmissions, acknowledgements.",
        "`transport`, `report`, `live`",
        {
            "number": ("integer", "number of the connection, from 1"),
            **common("transport"),
            "protocol": ("string", "rpcrdma, or what else it carries"),
            "path_mtu": ("integer|null", "path MTU in bytes"),
            "ended": ("string", "what ended it, in words"),
            "capture_point": ("object", "where the capture was taken"),
            "capture_point.place": (
                "string",
                "beside the requester, beside the responder, between or undecidable",
            ),
            "capture_point.confidence": ("number", "how sure that is, 0 to 1"),
            "capture_point.evidence": ("string", "what it rests on"),
            "capture_point.meaning": ("string", "what it means for the parts of a latency"),
            "icrc_checked": ("integer|null", "packets whose invariant CRC was checked; null: it was not"),
            "mpa_crc_checked": ("integer|null", "iWARP: FPDUs whose CRC32C was checked; null: none has one"),
            **objects("active", "object", "what the side that connected sent", HEALTH),
            **objects("passive", "object", "what the side that accepted sent", HEALTH),
            "contradictions": ("array of object", "what was retransmitted with other bytes than before"),
            "contradictions[].frame": ("integer", "number of the frame, from 1"),
            "contradictions[].sender": ("string", "active or passive"),
            "psn_errors": ("array of object", "new requests with the PSN of an earlier request of their sender"),
            "psn_errors[].frame": ("integer", "number of the frame, from 1"),
            "psn_errors[].sender": ("string", "active or passive"),
            "psn_errors[].psn": ("integer", "packet sequence number (24 bits)"),
            "psn_errors[].verb": ("string", "Send, RDMA Write, RDMA Read or Atomic"),
            "psn_errors[].earlier_frame": ("integer", "frame of the earlier request"),
            "psn_errors[].earlier_verb": ("string", "its verb"),
            "retransmission_count": ("integer", "retransmissions"),
            "retransmissions_by_cause": ("map of integer", "cause -> retransmissions"),
            **objects("loss_to_nak", SPREAD, "from losses to NAKs", DISTRIBUTION),
            **objects("nak_to_retransmission", SPREAD, "from NAKs to retransmissions", DISTRIBUTION),
            **objects("loss_to_retransmission", SPREAD, "from losses to retransmissions", DISTRIBUTION),
            **objects("retransmissions", "array of object", "the last few thousand, in order", RETRANSMISSION),
            **objects(
                "inferred_losses",
                "array of object",
                "losses at the end of a burst that only the length of a pause shows; not among the retransmissions",
                INFERRED_LOSS,
            ),
            "delayed_rpcs": ("array of object", "RPCs that waited for a retransmission; empty in report and live"),
            "delayed_rpcs[].rpc": ("integer", "number of the RPC"),
            "delayed_rpcs[].xid": ("integer", "its transaction ID"),
            "delayed_rpcs[].name": ("string", "its procedure or operations"),
            "delayed_rpcs[].delay_ns": ("integer", "time it waited"),
            "delayed_rpcs[].latency_ns": ("integer|null", "its latency"),
            "delayed_rpcs[].retransmissions": ("integer", "packets (iWARP: segments) retransmitted for it"),
            "filter": (
                "string|absent",
                "filters: only connections of RPCs that pass are shown; absent without filters",
            ),
            **common("file"),
        },
    ),
    "evicted": RecordType(
        "The sum of evicted connections: those that ended long ago, or were too many.",
        "`report`, `live`",
        {
            "connections": ("integer", "connections"),
            "rpcrdma_connections": ("integer", "connections with RPC-over-RDMA"),
            "packets": ("integer", "packets"),
            "segments": ("integer", "iWARP: TCP segments with payload"),
            "fpdus": ("integer", "iWARP: FPDUs"),
            "bytes": ("integer", "payload bytes"),
            "retransmitted_packets": ("integer", "packets retransmitted"),
            "retransmitted_segments": ("integer", "iWARP: TCP segments retransmitted"),
            "missing_packets": ("integer", "packets that are not in the capture"),
            "missing_segments": ("integer", "iWARP: TCP segments that are not in the capture"),
            **SHARE,
            **common("file"),
        },
    ),
}


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
        data_server=None
        if conversation.data_server is None
        else {
            "by": conversation.data_server.by,
            "metadata_server": conversation.data_server.metadata_server,
            "frame": conversation.data_server.frame,
        },
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
    threshold, source = conversation.known_inline_threshold(end)
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
        "inline_threshold_from": source if connection.rdma else None,
        "inline_thresholds": [_in_force(known) for known in conversation.thresholds(end)] if connection.rdma else [],
        "characteristics": _characteristics(conversation, end),
        **sender_counts(connection, end),
    }


def sender_counts(connection: Connection, end: int) -> Record:
    """What an endpoint sent; packets and segments are never added up under one key."""
    iwarp = connection.of_tcp
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
    if not conversation.connection.rdma or conversation.version() in (0, 1):
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


def _negotiation(negotiation: Negotiation) -> Record:
    """What was agreed: endpoint 0 is the active one, positions are those in the request."""
    return {
        "version": negotiation.settled or None,
        "requested": None if negotiation.requested is None else _version_use(negotiation.requested),
        "answers": [_version_use(answer) for answer in negotiation.answers],
        "refusals": [
            {
                "frame": refusal.frame,
                "endpoint": refusal.endpoint,
                "error": refusal.name,
                "lowest": refusal.low,
                "highest": refusal.high,
                "refused_version": refusal.refused_version,
                "refused_frame": refusal.refused_frame or None,
            }
            for refusal in negotiation.refusals
        ],
        "continued": None if negotiation.continued is None else _version_use(negotiation.continued),
        "announcements": [
            {"frame": each.frame, "endpoint": each.endpoint, "by": each.by, **_characteristic(each.characteristic)}
            for each in negotiation.announcements
        ],
        "no_change": [
            {"endpoint": end, "frame": frame, "names": [characteristic_name(which) for which in sorted(fixed)]}
            for end, (frame, fixed) in sorted(negotiation.nochange.items())
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
            for request in negotiation.requests
        ],
        "unsupported_options": [
            {"frame": refusal.frame, "endpoint": refusal.endpoint, "option": option_name(refusal.option)}
            for refusal in negotiation.option_refusals
        ],
    }


def _version_use(use: VersionUse) -> Record:
    return {"version": use.version, "frame": use.frame, "endpoint": use.endpoint, "send_length": use.length}


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


class Paid(NamedTuple):
    """An RPC that waited for a retransmission."""

    number: int
    xid: int
    program: str
    name: str
    waited: int
    """Nanoseconds."""
    latency: int | None
    retransmissions: int

    @classmethod
    def of(cls, rpc: Rpc) -> Paid:
        return cls(
            rpc.number,
            rpc.xid,
            program_label(rpc.program, rpc.version, rpc.minor_version),
            procedure_label(rpc.name, rpc.operations),
            rpc.retransmission_delay,
            rpc.latency.total if rpc.latency else None,
            rpc.retransmissions,
        )


def transport_record(conversation: Conversation, health: TransportHealth, paid: Iterable[Paid] = ()) -> Record:
    """The connection's health as a JSON object."""
    connection = conversation.connection
    return record(
        "transport",
        number=connection.number,
        transport=health.transport,
        protocol=conversation.protocol,
        path_mtu=health.path_mtu,
        ended=health.ended,
        capture_point={
            "place": health.capture_point.place,
            "confidence": health.capture_point.confidence,
            "evidence": health.capture_point.evidence,
            "meaning": health.capture_point.meaning,
        },
        icrc_checked=health.icrc_checked,
        mpa_crc_checked=health.crc_checked,
        **{name: _endpoint_health(connection, health, end) for end, name in enumerate(("active", "passive"))},
        contradictions=[
            {"frame": frame, "sender": side}
            for side, frames in zip(("active", "passive"), connection.contradicted, strict=True)
            for frame in frames
        ],
        psn_errors=[
            {
                "frame": use.frame,
                "sender": ("active", "passive")[use.sender],
                "psn": use.psn,
                "verb": use.verb,
                "earlier_frame": use.earlier_frame,
                "earlier_verb": use.earlier_verb,
            }
            for use in connection.reused_psns
        ],
        retransmission_count=health.retransmission_count,
        retransmissions_by_cause=dict(health.causes),
        loss_to_nak=_spread(health.loss_to_nak),
        nak_to_retransmission=_spread(health.nak_to_retransmission),
        loss_to_retransmission=_spread(health.loss_to_retransmission),
        retransmissions=[_retransmission(retransmission, health.segments) for retransmission in health.retransmissions],
        inferred_losses=[
            {
                "sender": ("active", "passive")[loss.sender],
                "rpc": loss.rpc,
                "retransmission_frame": loss.frame,
                "lost_time_ns": loss.since,
                "retransmission_time_ns": loss.until,
                "evidence": loss.evidence,
                "confidence": loss.confidence,
            }
            for loss in health.inferred
        ],
        delayed_rpcs=[
            {
                "rpc": rpc.number,
                "xid": rpc.xid,
                "name": rpc.name,
                "delay_ns": rpc.waited,
                "latency_ns": rpc.latency,
                "retransmissions": rpc.retransmissions,
            }
            for rpc in paid
        ],
    )


def _spread(spread: Distribution | None) -> Record | None:
    if spread is None:
        return None
    return {
        "count": spread.count,
        "min_ns": spread.minimum,
        "median_ns": spread.median,
        "p99_ns": spread.p99,
        "max_ns": spread.maximum,
    }


def _refusal(nak: NegativeAcknowledgement) -> Record:
    return {"frame": nak.frame, "time_ns": nak.time, "psn": nak.psn, "name": nak.name, "timer_ns": nak.timer}


def _retransmission(retransmission: Retransmission, segments: bool) -> Record:
    return {
        "initiator": ("active", "passive")[retransmission.initiator],
        "cause": retransmission.cause,
        "lost": retransmission.lost,
        "lost_packet_captured": retransmission.lost_packet_captured,
        "psn": None if segments else retransmission.psn,
        "sequence": retransmission.psn if segments else None,
        **(_segments if segments else _packets)(Tally(retransmission.packets, retransmission.bytes)),
        "lost_frame": retransmission.lost_frame,
        "lost_time_ns": retransmission.lost_time,
        "nak_frame": retransmission.nak_frame,
        "nak_time_ns": retransmission.nak_time,
        "retransmission_frame": retransmission.retransmission_frame,
        "retransmission_time_ns": retransmission.retransmission_time,
        "loss_to_nak_ns": retransmission.loss_to_nak,
        "nak_to_retransmission_ns": retransmission.nak_to_retransmission,
        "loss_to_retransmission_ns": retransmission.loss_to_retransmission,
    }


def _endpoint_health(connection: Connection, health: TransportHealth, end: int) -> Record:
    endpoint, sent = connection.endpoints[end], health.directions[end]
    tally = _segments if health.segments else _packets
    return {
        "address": endpoint.address,
        "qpn": endpoint.qpn,
        **sender_counts(connection, end),
        "unique_bytes": sent.unique_bytes,
        "active_time_ns": sent.active_time,
        "goodput_bps": None if sent.goodput is None else round(sent.goodput),
        "original_captured": tally(sent.original_captured),
        "original_missing": tally(sent.original_missing),
        "causes": {cause: tally(number) for cause, number in sent.causes.items()},
        "reordered": sent.reordered,
        "missing_unconfirmed": sent.unconfirmed,
        "acknowledgements": sent.acknowledgements,
        "requests_acknowledged": sent.requests_acknowledged,
        "requests_per_ack": sent.requests_per_ack,
        "max_per_ack": sent.max_per_ack,
        "ack_delay": _spread(sent.ack_delay),
        "read_delay": _spread(sent.read_delay),
        "sequence_naks": sent.sequence_naks,
        "rnr_nak_count": sent.rnr_count,
        "rnr_naks": [_refusal(nak) for nak in sent.rnr_naks],
        "fatal_naks": [_refusal(nak) for nak in sent.fatal_naks],
        "ecn_marked": sent.ecn_marked,
        "cnps": sent.cnps,
        "cnp_gap": _spread(sent.cnp_gap),
        "cnp_delay": _spread(sent.cnp_delay),
        "icrc_failure_count": sent.icrc_failure_count,
        "icrc_failures": list(sent.icrc_failures),
        "reads_outstanding": sent.reads_outstanding,
        "read_depth": sent.read_depth,
        "unanswered": sent.unanswered,
        "duplicate_acks": sent.duplicate_acks,
        "selective_acks": sent.selective_acks,
        "duplicate_sacks": sent.reported_twice,
        "zero_windows": sent.zero_windows,
        "congestion_echoes": sent.congestion_echoes,
        "damaged_segments": sent.damaged_segments,
        "mpa_crc_failure_count": sent.crc_failure_count,
        "mpa_crc_failures": list(sent.crc_failures),
        "mpa_marker_failures": sent.marker_failures,
        "mpa_rejected_fpdus": sent.doubted_fpdus,
    }


def _packets(tally: Tally) -> Record:
    return {"packets": tally.packets, "bytes": tally.bytes}


def _segments(tally: Tally) -> Record:
    return {"segments": tally.packets, "bytes": tally.bytes}


STRETCHES = 200
"""Stretches of time in --json."""


def credits_record(direction: CreditDirection) -> Record:
    each, intervals = direction.intervals(STRETCHES)
    first = min(direction.bins, default=0) * direction.width
    return record(
        "credits",
        connection=direction.connection.number,
        direction="backward" if direction.backward else "forward",
        calls=direction.calls,
        replies=direction.replies,
        requested=_range(direction.requested),
        granted=_range(direction.granted),
        max_outstanding=direction.max_outstanding,
        mean_outstanding=round(direction.mean, 3),
        at_limit_ns=direction.blocked,
        at_limit_count=direction.blockages,
        exceeded=direction.exceeded,
        first_time_ns=direction.first_time,
        last_time_ns=direction.last_time,
        interval_ns=each,
        intervals=[
            {
                "time_ns": first + number * each,
                "requested": interval.requested,
                "granted": interval.granted,
                "outstanding": interval.outstanding,
                "at_limit_ns": interval.blocked,
            }
            for number, interval in enumerate(intervals)
            if interval is not None
        ],
    )
