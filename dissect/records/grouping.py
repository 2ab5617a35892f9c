"""RPCs in groups, over time, and against service levels, as records."""

from __future__ import annotations

from collections.abc import Sequence

from ..measure.call_groups import CallGroup, CallGroups
from ..measure.latency_timeline import LatencyInterval, bounds
from ..measure.service_levels import ServiceLevelCounts
from ..measure.statistics import PARTS
from .report import distribution_fields, unanswered_fields
from .schema import Record, record

INTERVALS = 100
"""Of the records of time, at most."""


def group_record(group: CallGroup, names: Sequence[str], groups: CallGroups, first_time: int) -> Record:
    """``names``: what RPCs are grouped by."""
    others = group is groups.others
    by: Record = {name: None if others else value for name, value in zip(names, group.key, strict=not others)}
    if "begin" in by:
        begin = by.pop("begin")
        by["begin_ns"] = None if others else first_time + begin
    return record(
        "group",
        by=by,
        others=others,
        rpcs=group.calls,
        errors=group.errors,
        incomplete=group.incomplete,
        call_bytes=group.call_bytes,
        reply_bytes=group.reply_bytes,
        latency=distribution_fields(group.latency()),
        unanswered=unanswered_fields(group.outstanding.distribution()),
        parts={f"{name}_ns": total for name, total in zip(PARTS, group.parts, strict=True)},
        time_share=group.waited / groups.waited if groups.waited else None,
        percentiles="exact" if groups.exact else "to 2 %",
    )


def interval_record(interval: LatencyInterval) -> Record:
    histogram = [
        dict(zip(("low_ns", "high_ns", "rpcs"), (*bounds(place), count), strict=True))
        for place, count in zip(interval.bins.tolist(), interval.counts.tolist(), strict=True)
    ]
    return record(
        "interval",
        begin_ns=interval.begin,
        end_ns=interval.end,
        rpcs=interval.calls,
        errors=interval.errors,
        incomplete=interval.incomplete,
        call_bytes=interval.call_bytes,
        reply_bytes=interval.reply_bytes,
        unanswered=interval.outstanding,
        median_ns=interval.percentile(50),
        p95_ns=interval.percentile(95),
        p99_ns=interval.percentile(99),
        histogram=histogram,
    )


def service_level_record(counts: ServiceLevelCounts) -> Record:
    level = counts.level
    return record(
        "service_level",
        service_level=level.text,
        procedure=level.procedure,
        measure=level.measure,
        limit_ns=level.limit,
        verdict=counts.verdict,
        value_ns=counts.value,
        value_is_lower_bound=counts.value_is_bound,
        rpcs=counts.calls,
        beyond=counts.beyond,
        unknown=counts.unknown,
        unanswered=counts.outstanding,
        violated=[
            {
                "begin_ns": span.begin,
                "end_ns": span.end,
                "rpcs": span.calls,
                "beyond": span.beyond,
                "worst_ns": span.worst,
                "worst_rpc": span.worst_rpc,
            }
            for span in counts.spans()
        ],
    )
