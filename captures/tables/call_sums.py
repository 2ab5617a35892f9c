"""Sums of RPCs in SQL that can be added up: a data set keeps those of each capture, and questions add these up."""

from __future__ import annotations

from collections.abc import Sequence

from rdmascope.dissect.measure.statistics import PARTS

CALLS, TRANSFERS = "calls", "transfers"
"""Tables of a data set: sums of RPCs, and of what carried their payloads."""
BINS = 32
"""Of latencies for each doubling: the middle of one is within 1.1 % of what is in it."""
MINUTE = 60 * 10**9
"""Nanoseconds; RPCs that began in different ones are told apart."""
ALIKE = (
    "host", "capture", "connection", "client", "server", "program", "program_number", "version", "minor_version",
    "procedure", "procedure_number", "operations", "direction", "state", "status", "failed", "contents", "damage",
    "notes", "minute",
)  # fmt: skip
"""Columns of rpcs, and since when, in which the RPCs of one row are alike."""
PART_SUMS = tuple(f"{'retransmission_delay' if part == 'retransmission' else part}_ns" for part in PARTS)

EACH_CALL = f"""(
    SELECT *, time_ns // {MINUTE} AS minute, CAST(floor({BINS} * log2(greatest(waiting_ns, 1))) AS BIGINT) AS bin,
        latency_ns IS NOT NULL AS known, 1 AS counted, waiting_ns AS low_ns, waiting_ns AS high_ns,
        waiting_ns AS total_ns, coalesce(end_time_ns, call_end_time_ns, time_ns) AS ended_ns
    FROM rpcs WHERE {{0}}
)"""
"""As rows of ``CALLS``, but of single RPCs: those that pass a condition."""
EACH_TRANSFER = f"""(
    SELECT *, time_ns // {MINUTE} AS minute FROM (
        SELECT *, 'inline call' AS way, CAST(call_inline_bytes > 0 AS BIGINT) AS messages, 0 AS moved_chunks,
            0 AS moved_segments, 0 AS moved_advertised, call_inline_bytes AS moved_bytes, 0 AS moved_unused
        FROM rpcs WHERE {{0}}
        UNION ALL SELECT *, 'inline reply', CAST(reply_inline_bytes > 0 AS BIGINT), 0, 0, 0, reply_inline_bytes, 0
        FROM rpcs WHERE {{0}}
        UNION ALL SELECT meant.*,
            if(call_rdma_procedure = 'RDMA_NOMSG' AND kind = 'read' AND position = 0, 'position zero',
                kind || ' chunk') AS carrier,
            CAST(chunk = min(chunk) OVER (PARTITION BY rpc, carrier) AS BIGINT), 1, used.segments, advertised_bytes,
            transferred_bytes, CAST(transferred_bytes = 0 AS BIGINT)
        FROM (FROM rpcs WHERE chunks > 0 AND {{0}}) AS meant JOIN chunks AS used ON used.rpc = meant.number
    )
)"""
"""The same of ``TRANSFERS``."""


def added_calls(source: str, by: Sequence[str]) -> str:
    """Calls in ``source`` that are alike in some columns, as one row."""
    sums = ("counted", "call_bytes", "reply_bytes", *PART_SUMS)
    return f"""
        SELECT {", ".join(by)}, min(time_ns) AS time_ns, max(ended_ns) AS ended_ns, min(low_ns) AS low_ns,
            max(high_ns) AS high_ns, CAST(sum(total_ns) AS BIGINT) AS total_ns,
            coalesce(arg_max(number, high_ns), min(number)) AS number, {_summed(sums)}
        FROM {source} GROUP BY {", ".join(by)}"""


def added_transfers(source: str, by: Sequence[str]) -> str:
    """The same of what carried payloads; the sums are those of ``TransferTotals``, in order."""
    sums = ("messages", "moved_chunks", "moved_segments", "moved_advertised", "moved_bytes", "moved_unused")
    columns = ", ".join((*by, "way"))
    return f"SELECT {columns}, min(time_ns) AS time_ns, {_summed(sums)} FROM {source} GROUP BY {columns}"


def _summed(names: Sequence[str]) -> str:
    return ", ".join(f"CAST(sum(coalesce({name}, 0)) AS BIGINT) AS {name}" for name in names)


SUMS = {
    CALLS: added_calls(EACH_CALL.format("true"), (*ALIKE, "known", "bin")) + " ORDER BY connection, time_ns",
    TRANSFERS: added_transfers(EACH_TRANSFER.format("true"), ALIKE) + " ORDER BY connection, time_ns",
}
"""What is kept of a capture, of its tables rpcs and chunks."""
