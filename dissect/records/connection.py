"""A connection, its endpoints and what they agreed, as a record."""

from __future__ import annotations

from ..layers.characteristics_codes import CHARACTERISTICS, Characteristic, characteristic_name, option_name
from ..measure.statistics import Share
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.eviction import Evicted
from ..rpcrdma.negotiation import InForce, Negotiation, VersionUse
from ..transport.connection import Connection
from .schema import Record, record


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
        "requested": None if one.requested is None else _version_use(one.requested),
        "answers": [_version_use(answer) for answer in one.answers],
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
            for refusal in one.refusals
        ],
        "continued": None if one.continued is None else _version_use(one.continued),
        "announcements": [
            {"frame": each.frame, "endpoint": each.endpoint, "by": each.by, **_characteristic(each.characteristic)}
            for each in one.announcements
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
