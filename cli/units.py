"""Moments for people."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(nanoseconds: int) -> str:
    """Nanoseconds since the epoch as UTC, to the microsecond."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    try:
        day = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return f"{seconds}.{rest:09d} s"
    return f"{day:%Y-%m-%d %H:%M:%S}.{rest // 1000:06d} UTC"
