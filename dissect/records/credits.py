"""Flow control over time, as a record."""

from __future__ import annotations

from ..measure.credits import CreditDirection
from .schema import Record, record

STRETCHES = 200
"""Stretches of time in --json."""


def credits_record(one: CreditDirection) -> Record:
    each, intervals = one.intervals(STRETCHES)
    first = min(one.bins, default=0) * one.width
    return record(
        "credits",
        connection=one.connection.number,
        direction="backward" if one.backward else "forward",
        calls=one.calls,
        replies=one.replies,
        requested=_range(one.requested),
        granted=_range(one.granted),
        max_outstanding=one.max_outstanding,
        mean_outstanding=round(one.mean, 3),
        at_limit_ns=one.blocked,
        at_limit_count=one.blockages,
        exceeded=one.exceeded,
        first_time_ns=one.first_time,
        last_time_ns=one.last_time,
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


def _range(values: tuple[int, int] | None) -> Record | None:
    return None if values is None else {"lowest": values[0], "highest": values[1]}
