"""Linux's own counters beside what was seen, as records."""

from __future__ import annotations

from ..measure.kernel_comparison import MountComparison, OperationComparison, ServerComparison, ServerRow
from .schema import Record, record

MILLISECOND = 1_000_000


def mount_record(found: MountComparison, between: bool) -> Record:
    """``between``: the counters are those between two readings."""
    first = found.mounts[0]
    return record(
        "mount_counters",
        mounts=[mount.path for mount in found.mounts],
        devices=[mount.device for mount in found.mounts],
        version=first.version,
        minor_version=first.minor_version,
        since="reading" if between else "mount",
        age_seconds=max(mount.age for mount in found.mounts),
        clients=list(found.clients),
        servers=list(found.servers),
        explained=found.explained,
        transport_counters=found.transport,
        operations=[_operation(one) for one in found.operations],
    )


def _operation(one: OperationComparison) -> Record:
    kernel, wire = one.kernel, one.wire
    return {
        "operation": one.operation,
        "calls": kernel.calls,
        "transmissions": kernel.transmissions,
        "timeouts": kernel.timeouts,
        "errors": kernel.errors,
        "call_bytes": kernel.sent,
        "reply_bytes": kernel.received,
        "queue_ns": kernel.queue_ms * MILLISECOND,
        "rtt_ns": kernel.rtt_ms * MILLISECOND,
        "execute_ns": kernel.execute_ms * MILLISECOND,
        "seen_calls": wire.calls,
        "seen_errors": wire.errors,
        "seen_statuses": dict(wire.statuses),
        "seen_call_bytes": wire.sent,
        "seen_reply_bytes": wire.received,
        "seen_unanswered": wire.unanswered,
        "seen_latency_ns": wire.latency,
        "seen_latencies": wire.timed,
        "reasons": list(one.reasons),
    }


def server_record(found: ServerComparison, between: bool) -> Record:
    """``between``: the counters are those between two readings."""
    counters = found.counters
    return record(
        "nfsd_counters",
        since="reading" if between else "start",
        servers=list(found.servers),
        calls=counters.calls,
        bad_calls=counters.bad_calls,
        bytes_read=counters.bytes_read,
        bytes_written=counters.bytes_written,
        seen_unanswered=found.unanswered,
        procedures=_rows(found.procedures),
        operations=_rows(found.operations),
    )


def _rows(rows: tuple[ServerRow, ...]) -> list[Record]:
    return [{"name": row.name, "calls": row.counted, "seen_calls": row.seen} for row in rows]
