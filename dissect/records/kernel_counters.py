"""Linux's own counters beside what was seen, as records."""

from __future__ import annotations

from ..measure.kernel_counters import REASONS, MountComparison, OperationComparison, ServerComparison, ServerRow
from .schema import Record, RecordType, objects, record

_OPERATION = {
    "operation": ("string", "as the kernel calls it: READ, OPEN_NOATTR"),
    "calls": ("integer", "RPCs that ended, as the kernel counts"),
    "transmissions": ("integer", "how often they were sent; any beyond `calls` were retransmissions"),
    "timeouts": ("integer", "major timeouts"),
    "errors": ("integer|null", "RPCs that ended with an error; null: the kernel does not count them"),
    "call_bytes": ("integer", "bytes of the calls, as the kernel counts"),
    "reply_bytes": ("integer", "bytes of the replies, as the kernel counts"),
    "queue_ns": ("integer", "sum of the times before transmission: for a slot, credits or a connection"),
    "rtt_ns": ("integer", "sum of the times from transmission to reply"),
    "execute_ns": ("integer", "sum of the times from beginning to end"),
    "seen_calls": ("integer", "calls on the wire"),
    "seen_errors": ("integer", "replies on the wire that report an error"),
    "seen_statuses": ("map of integer", "status -> replies on the wire with it"),
    "seen_call_bytes": ("integer", "bytes of the calls on the wire, chunks included"),
    "seen_reply_bytes": ("integer", "bytes of the replies on the wire, chunks included"),
    "seen_unanswered": ("integer", "calls on the wire without a reply"),
    "seen_latency_ns": ("integer", "sum of the latencies on the wire"),
    "seen_latencies": ("integer", "RPCs whose latency is known"),
    "reasons": ("array of string", f"why kernel and wire differ: {', '.join(REASONS)}; empty if they agree"),
}

_ROW = {
    "name": ("string", "name"),
    "calls": ("integer", "as the server counts"),
    "seen_calls": ("integer", "as seen on the wire"),
}

TYPES = {
    "mount_counters": RecordType(
        "What Linux's NFS client counted on a mount, compared with the capture; mounts that share connections are one.",
        "`report --mountstats`, `live --mount`",
        {
            "mounts": ("array of string", "where it is mounted"),
            "devices": ("array of string", "server and export"),
            "version": ("integer", "version of NFS"),
            "minor_version": ("integer|null", "minor version of NFSv4"),
            "since": ("string", "reading: between two readings of the counters; mount: since the mount"),
            "age_seconds": ("integer", "seconds since the mount"),
            "clients": ("array of string", "addresses whose calls are compared"),
            "servers": ("array of string", "addresses of the servers"),
            "explained": ("boolean", "each difference has a reason"),
            "transport_counters": (
                "map of integer",
                "counters of the xprt lines; outstanding_sum and backlog_sum are sums over all sends",
            ),
            **objects("operations", "array of object", "its operations", _OPERATION),
        },
    ),
    "nfsd_counters": RecordType(
        "What Linux's NFS server counted, over all clients, compared with the capture.",
        "`report --nfsd`, `live --nfsd-counters`",
        {
            "since": ("string", "reading: between two readings of the counters; start: since the server's start"),
            "servers": ("array of string", "addresses of the servers in the capture"),
            "calls": ("integer", "calls"),
            "bad_calls": ("integer", "calls that were refused before a procedure was called"),
            "bytes_read": ("integer", "bytes read from files"),
            "bytes_written": ("integer", "bytes written to files"),
            "seen_unanswered": ("integer", "calls on the wire without a reply"),
            **objects("procedures", "array of object", "procedures of NFS", _ROW),
            **objects("operations", "array of object", "operations of NFSv4 that were carried out", _ROW),
        },
    ),
}


MILLISECOND = 1_000_000


def mount_record(comparison: MountComparison, between: bool) -> Record:
    """``between``: the counters are those between two readings."""
    first = comparison.mounts[0]
    return record(
        "mount_counters",
        mounts=[mount.path for mount in comparison.mounts],
        devices=[mount.device for mount in comparison.mounts],
        version=first.version,
        minor_version=first.minor_version,
        since="reading" if between else "mount",
        age_seconds=max(mount.age for mount in comparison.mounts),
        clients=list(comparison.clients),
        servers=list(comparison.servers),
        explained=comparison.explained,
        transport_counters=comparison.transport,
        operations=[_operation(operation) for operation in comparison.operations],
    )


def _operation(operation: OperationComparison) -> Record:
    kernel, wire = operation.kernel, operation.wire
    return {
        "operation": operation.operation,
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
        "reasons": list(operation.reasons),
    }


def server_record(comparison: ServerComparison, between: bool) -> Record:
    """``between``: the counters are those between two readings."""
    counters = comparison.counters
    return record(
        "nfsd_counters",
        since="reading" if between else "start",
        servers=list(comparison.servers),
        calls=counters.calls,
        bad_calls=counters.bad_calls,
        bytes_read=counters.bytes_read,
        bytes_written=counters.bytes_written,
        seen_unanswered=comparison.unanswered,
        procedures=_rows(comparison.procedures),
        operations=_rows(comparison.operations),
    )


def _rows(rows: tuple[ServerRow, ...]) -> list[Record]:
    return [{"name": row.name, "calls": row.counted, "seen_calls": row.seen} for row in rows]
