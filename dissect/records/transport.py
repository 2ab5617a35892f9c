"""How the transport of a connection fared, as a record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..onc.names import procedure_label, program_label
from ..percentiles import Distribution
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.rpcs import Rpc
from ..transport.connection import Connection
from ..transport.health import NegativeAcknowledgement, TransportHealth
from ..transport.retransmissions import Retransmission, Tally
from .connection import sender_counts
from .schema import Record, record


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
        **{name: _endpoint(connection, health, end) for end, name in enumerate(("active", "passive"))},
        contradictions=[
            {"frame": frame, "sender": side}
            for side, frames in zip(("active", "passive"), connection.contradicted, strict=True)
            for frame in frames
        ],
        psn_errors=[
            {
                "frame": one.frame,
                "sender": ("active", "passive")[one.sender],
                "psn": one.psn,
                "verb": one.verb,
                "earlier_frame": one.earlier_frame,
                "earlier_verb": one.earlier_verb,
            }
            for one in connection.reused_psns
        ],
        retransmission_count=health.retransmission_count,
        retransmissions_by_cause=dict(health.causes),
        loss_to_nak=_spread(health.loss_to_nak),
        nak_to_retransmission=_spread(health.nak_to_retransmission),
        loss_to_retransmission=_spread(health.loss_to_retransmission),
        retransmissions=[_retransmission(one, health.segments) for one in health.retransmissions],
        inferred_losses=[
            {
                "sender": ("active", "passive")[one.sender],
                "rpc": one.rpc,
                "retransmission_frame": one.frame,
                "lost_time_ns": one.since,
                "retransmission_time_ns": one.until,
                "evidence": one.evidence,
                "confidence": one.confidence,
            }
            for one in health.inferred
        ],
        delayed_rpcs=[
            {
                "rpc": one.number,
                "xid": one.xid,
                "name": one.name,
                "delay_ns": one.waited,
                "latency_ns": one.latency,
                "retransmissions": one.retransmissions,
            }
            for one in paid
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


def _retransmission(one: Retransmission, segments: bool) -> Record:
    return {
        "initiator": ("active", "passive")[one.initiator],
        "cause": one.cause,
        "lost": one.lost,
        "lost_packet_captured": one.lost_packet_captured,
        "psn": None if segments else one.psn,
        "sequence": one.psn if segments else None,
        **(_segments if segments else _packets)(Tally(one.packets, one.bytes)),
        "lost_frame": one.lost_frame,
        "lost_time_ns": one.lost_time,
        "nak_frame": one.nak_frame,
        "nak_time_ns": one.nak_time,
        "retransmission_frame": one.retransmission_frame,
        "retransmission_time_ns": one.retransmission_time,
        "loss_to_nak_ns": one.loss_to_nak,
        "nak_to_retransmission_ns": one.nak_to_retransmission,
        "loss_to_retransmission_ns": one.loss_to_retransmission,
    }


def _endpoint(connection: Connection, health: TransportHealth, end: int) -> Record:
    endpoint, one = connection.endpoints[end], health.directions[end]
    tally = _segments if health.segments else _packets
    return {
        "address": endpoint.address,
        "qpn": endpoint.qpn,
        **sender_counts(connection, end),
        "unique_bytes": one.unique_bytes,
        "active_time_ns": one.active_time,
        "goodput_bps": None if one.goodput is None else round(one.goodput),
        "original_captured": tally(one.original_captured),
        "original_missing": tally(one.original_missing),
        "causes": {cause: tally(number) for cause, number in one.causes.items()},
        "reordered": one.reordered,
        "missing_unconfirmed": one.unconfirmed,
        "acknowledgements": one.acknowledgements,
        "requests_acknowledged": one.requests_acknowledged,
        "requests_per_ack": one.requests_per_ack,
        "max_per_ack": one.max_per_ack,
        "ack_delay": _spread(one.ack_delay),
        "read_delay": _spread(one.read_delay),
        "sequence_naks": one.sequence_naks,
        "rnr_nak_count": one.rnr_count,
        "rnr_naks": [_refusal(nak) for nak in one.rnr_naks],
        "fatal_naks": [_refusal(nak) for nak in one.fatal_naks],
        "ecn_marked": one.ecn_marked,
        "cnps": one.cnps,
        "cnp_gap": _spread(one.cnp_gap),
        "cnp_delay": _spread(one.cnp_delay),
        "icrc_failure_count": one.icrc_failure_count,
        "icrc_failures": list(one.icrc_failures),
        "reads_outstanding": one.reads_outstanding,
        "read_depth": one.read_depth,
        "unanswered": one.unanswered,
        "duplicate_acks": one.duplicate_acks,
        "selective_acks": one.selective_acks,
        "duplicate_sacks": one.reported_twice,
        "zero_windows": one.zero_windows,
        "congestion_echoes": one.congestion_echoes,
        "damaged_segments": one.damaged_segments,
        "mpa_crc_failure_count": one.crc_failure_count,
        "mpa_crc_failures": list(one.crc_failures),
        "mpa_marker_failures": one.marker_failures,
        "mpa_rejected_fpdus": one.doubted_fpdus,
    }


def _packets(tally: Tally) -> Record:
    return {"packets": tally.packets, "bytes": tally.bytes}


def _segments(tally: Tally) -> Record:
    return {"segments": tally.packets, "bytes": tally.bytes}
