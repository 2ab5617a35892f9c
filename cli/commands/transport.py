"""``rdmascope transport``: how the transport below the RPCs fared."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import click

from rdmascope.dissect.onc.names import procedure_label, program_label
from rdmascope.dissect.percentiles import Distribution
from rdmascope.dissect.records.nouns import Record, record, sender_counts
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.health import NegativeAcknowledgement, TransportHealth
from rdmascope.dissect.transport.retransmissions import Retransmission, Tally
from rdmascope.dissect.units import plural

from ..reading import Reading, analyzer_options, file_argument, recognition_options
from ..terminal import complain, console, print_json, show

MAX_PAID = 1000
"""RPCs of a connection that are kept, those that waited longest."""


class Paid(NamedTuple):
    """What is told of an RPC that waited for a retransmission."""

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


@click.command("transport")
@file_argument
@click.option("--connection", type=click.IntRange(1), metavar="N", help="Only this connection.")
@click.option(
    "--icrc",
    is_flag=True,
    help="List wrong ICRCs also of hosts that never send a right one.  (ICRCs are always verified.)",
)
@click.option("--all", "everything", is_flag=True, help="Every retransmission and every RPC delayed by one.")
@click.option("--json", "as_json", is_flag=True, help="One rdmascope.transport/1 object per connection.")
@recognition_options
def command(
    files: tuple[str, ...],
    connection: int | None,
    icrc: bool,
    everything: bool,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
) -> None:
    """Health of the transport: losses, retransmissions, congestion, and the RPCs they delayed.

    Per connection: packets and goodput each way, retransmitted packets and why, the time from a loss to the NAK
    and to the retransmission, acknowledgements, congestion marks, the reason it ended, and where the capture
    was taken.

    \b
    Example: packets were lost.  Whose, and which RPCs were delayed?
      $ rdmascope transport loss-rxe.pcap.zst --connection 2
      Connection 2  10.77.0.2 → 10.77.0.1:20049
        ended by DREQ from the active side
        ...
                                                     client                 server
        ...
        retransmitted                 599 (22.4%), 2.34 MiB  193 (19.9%), 97.5 KiB
          lost before capture point            10, 40.0 KiB            3, 4.00 KiB
        ...
        sequence error NAKs sent                          3                      -
        ...

    Thirteen packets were lost, and 792 retransmitted for them: RDMA goes back to the lost packet and repeats
    everything after it.  "Lost before capture point": only the retransmission was captured, so the packet was lost
    between its sender and the capture point.  An implied NAK is a Read repeated because a response did not arrive.

    \b
        RPC                           delay     of latency  packets retransmitted
        60   NFSv4.1 WRITE GETATTR  35.3 ms   104 ms (34%)                     39

    A third of that WRITE's time went by between losses and retransmissions.

    iWARP: TCP recovers losses there, so the page has segments, duplicate acknowledgements, fast retransmits and
    timeouts, and the CRCs of MPA.  TCP delivers in order, so an RPC is also delayed by lost segments of others ahead
    of its own.
    """
    from ..views import transport as views

    options = analyzer_options(ports, force, contents=False)
    reading = Reading(files, replace(options, icrc=icrc))
    paid: dict[int, list[tuple[int, int, Paid]]] = {}
    for rpc in reading.rpcs():
        if rpc.retransmission_delay:
            _keep(paid.setdefault(rpc.connection.number, []), rpc)
    analyzer = reading.analyzer
    chosen = [one for one in analyzer.connections if connection in (None, one.number)]
    if connection is not None and not chosen:
        reading.check()
        raise click.ClickException(f"{reading.path}: no connection {connection}; it has {len(analyzer.connections)}")
    out = console()
    if not chosen and not as_json:
        show(out, views.nothing(reading.path, analyzer.frames))
    for at, one in enumerate(chosen):
        health = analyzer.health(one.number)
        waited = [entry for _, _, entry in sorted(paid.get(one.number, []), reverse=True)]
        if as_json:
            print_json({**transport_record(analyzer.conversation(one), health, waited), "file": reading.path})
        else:
            if at:
                click.echo()
            show(out, views.connection_view(one, health, waited, out.width, everything))
    if evicted := analyzer.evicted.connections:
        complain(f"{plural(evicted, 'earlier connection')} evicted: too many to tell of each; the report has their sum")
    reading.check()


def _keep(entries: list[tuple[int, int, Paid]], rpc: Rpc) -> None:
    """Keep what is told of an RPC, not the RPC; the longest waits only."""
    entry = rpc.retransmission_delay, -rpc.number, Paid.of(rpc)
    if len(entries) < MAX_PAID:
        heapq.heappush(entries, entry)
    else:
        heapq.heappushpop(entries, entry)


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
        retransmission_count=health.retransmission_count,
        retransmissions_by_cause=dict(health.causes),
        loss_to_nak=_spread(health.loss_to_nak),
        nak_to_retransmission=_spread(health.nak_to_retransmission),
        loss_to_retransmission=_spread(health.loss_to_retransmission),
        retransmissions=[_retransmission(one, health.segments) for one in health.retransmissions],
        paid=[
            {
                "rpc": one.number,
                "xid": one.xid,
                "name": one.name,
                "waited_ns": one.waited,
                "latency_ns": one.latency,
                "retransmissions": one.retransmissions,
            }
            for one in paid
        ],
    )


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
        "seen_twice": tally(one.seen_twice),
        "seen_once": tally(one.seen_once),
        "causes": {cause: tally(number) for cause, number in one.causes.items()},
        "reordered": one.reordered,
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
        "reported_twice": one.reported_twice,
        "zero_windows": one.zero_windows,
        "congestion_echoes": one.congestion_echoes,
        "damaged_segments": one.damaged_segments,
        "mpa_crc_failure_count": one.crc_failure_count,
        "mpa_crc_failures": list(one.crc_failures),
        "mpa_marker_failures": one.marker_failures,
        "mpa_doubted_fpdus": one.doubted_fpdus,
    }


def _packets(tally: Tally) -> Record:
    return {"packets": tally.packets, "bytes": tally.bytes}


def _segments(tally: Tally) -> Record:
    return {"segments": tally.packets, "bytes": tally.bytes}


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
        "seen_before": one.seen_before,
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
