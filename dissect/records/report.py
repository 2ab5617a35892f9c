"""What ``rdmascope report`` has, as records: the capture, procedures, transfers, slowest RPCs, what was not decoded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..diagnosis.diagnose import Diagnosis
from ..diagnosis.facts import Facts
from ..link.addresses import AddressTable
from ..measure.connection_counts import ConnectionCounts, connection_counts
from ..measure.statistics import Procedure, ProcedureKey, SlowRpc
from ..measure.time_series import Bin
from ..measure.transfer_totals import TransferTotals
from ..measure.undecoded import undecoded
from ..onc.programs import program_name
from ..percentiles import LONGEST_NS, Distribution
from ..rpcrdma.analyzer import Analyzer
from .connection import connection_record, evicted_record
from .diagnosis import statements
from .rpc import latency_fields
from .schema import Record, record
from .transport import transport_record

if TYPE_CHECKING:
    from ..link.capture_points import CommonTraffic


def capture_record(
    *,
    frames: int,
    truncated_frames: int,
    dropped_frames: int,
    packets: int,
    first_time: int | None,
    last_time: int | None,
    connections: ConnectionCounts,
    states: dict[str, int],
    duplicate_replies: int,
    error: str | None,
    diagnosis: list[Record],
    filter: str = "",
) -> Record:
    """What was read.  ``error`` says why reading it ended early; ``diagnosis`` has what is wrong, the worst first."""
    return record(
        "capture",
        frames=frames,
        truncated_frames=truncated_frames,
        dropped_frames=dropped_frames,
        packets=packets,
        first_time_ns=first_time,
        last_time_ns=last_time,
        connections=connections.total,
        rpcrdma_connections=connections.rpcrdma,
        refused_connections=connections.refused,
        rpcs=sum(states.values()),
        states=states,
        duplicate_replies=duplicate_replies,
        error=error,
        diagnosis=diagnosis,
        filter=filter or None,
    )


def capture_point_record(path: str, first: str, common: CommonTraffic, names: AddressTable, whole: bool) -> Record:
    """``path``: with traffic that is read from ``first``; ``whole``: both were compared to their ends."""
    return record(
        "capture_point",
        capture=path,
        first_capture=first,
        hosts=sorted(sorted(names.name(names.id(end)) for end in pair) for pair in common.hosts),
        packets_at_both=common.both,
        packets_only_here=common.only_other,
        packets_only_first=common.only_first,
        compared_whole=whole,
        clock_offset_ns=common.offset,
        clock_offset_error_ns=common.error,
        transit_from_first_ns=common.transit[0],
        transit_to_first_ns=common.transit[1],
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
        latency=distribution_fields(procedure.latency()),
        unanswered=unanswered_fields(procedure.outstanding),
        parts={name: distribution_fields(part) for name, part in procedure.parts().items()},
    )


def _names(key: ProcedureKey) -> Record:
    return {
        "direction": "backward" if key.backward else "forward",
        "program": None if key.program is None else program_name(key.program),
        "program_number": key.program,
        "version": key.version,
        "minor_version": key.minor_version,
        "procedure": key.name or None,
        "procedure_number": key.procedure,
        "operations": list(key.operations),
    }


def distribution_fields(one: Distribution | None) -> Record | None:
    """None where there is none."""
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
        "exact_to_ns": None if one.exact_to == LONGEST_NS else max(0, one.exact_to),
    }


def unanswered_fields(one: Distribution | None) -> Record | None:
    """Calls without a reply, and how long they are outstanding; None where there are none."""
    return None if one is None else {"rpcs": one.count, "waiting_ns": one.total, "longest_ns": one.maximum}


def transfer_record(way: str, transfer: TransferTotals) -> Record:
    return record(
        "transfer",
        way=way.replace(" ", "_"),
        messages=transfer.messages,
        chunks=transfer.chunks,
        segments=transfer.segments,
        advertised=transfer.advertised,
        transferred=transfer.transferred,
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
        reply_frame=slow.reply_frame or None,
        call_bytes=slow.call_bytes,
        reply_bytes=slow.reply_bytes,
        retransmitted_packets=slow.retransmissions,
        latency=latency_fields(slow.latency),
        waiting_ns=slow.waiting,
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


THROUGHPUT_BINS = 100
"""Intervals of time in the record of throughput."""


def report_records(facts: Facts, analyzer: Analyzer, diagnosis: Diagnosis, filter: str = "") -> Iterator[Record]:
    """All records of a report; ``filter``: the condition on the RPCs in it."""
    statistics, error = facts.statistics, facts.damage or None
    yield capture_record(
        frames=analyzer.frames,
        truncated_frames=analyzer.truncated_frames,
        dropped_frames=analyzer.dropped_frames,
        packets=analyzer.packets,
        first_time=analyzer.earliest_time,
        last_time=analyzer.last_time,
        connections=connection_counts(analyzer.conversations, analyzer.evicted),
        states=statistics.states,
        duplicate_replies=statistics.duplicate_replies,
        error=error,
        diagnosis=statements(diagnosis.statements),
        filter=filter,
    )
    for conversation in analyzer.conversations:
        yield connection_record(conversation, statistics.connections.get(conversation.connection.number))
    for conversation in analyzer.conversations:
        yield transport_record(conversation, facts.healths[conversation.connection.number])
    if analyzer.evicted.connections:
        yield evicted_record(analyzer.evicted, statistics.evicted)
    for procedure in statistics.procedures():
        yield procedure_record(procedure)
    for way, transfer in statistics.transfers.items():
        yield transfer_record(way, transfer)
    for rank, slow in enumerate(statistics.slowest(), 1):
        yield slowest_record(rank, slow)
    for low, high, number in statistics.histogram():
        yield histogram_record(low, high, number)
    if statistics.calls:
        yield throughput_record(*statistics.timeline.intervals(THROUGHPUT_BINS))
    for what, reason, number in undecoded(analyzer, statistics, error):
        yield undecoded_record(what, reason, number)
