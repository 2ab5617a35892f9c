"""Option values: durations, XIDs, moments in time."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import NamedTuple

import click

UNITS = {"": 1_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "µs": 1_000, "ns": 1}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-zµ]*)")


class Duration(click.ParamType[int]):
    """'10ms', '1.5s', '250us', '0.2' (seconds); to nanoseconds."""

    name = "duration"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _DURATION.fullmatch(value.strip())
        if match is None or match[2] not in UNITS:
            self.fail(f"{value!r} is no duration such as 10ms, 250us or 1.5s", param, ctx)
        return round(float(match[1]) * UNITS[match[2]])


class Xid(click.ParamType[int]):
    """'0x1a2b3c4d', '1a2b3c4d' where it has a letter, or decimal."""

    name = "xid"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"0[xX]([0-9a-fA-F]+)|(\d+)|([0-9a-fA-F]+)", value.strip())
        xid = -1 if match is None else int(match[2]) if match[2] else int(match[1] or match[3], 16)
        if not 0 <= xid < 1 << 32:
            self.fail(f"{value!r} is no 32-bit number, hexadecimal (0x1a2b3c4d) or decimal", param, ctx)
        return xid


class Moment(NamedTuple):
    """A point in time."""

    nanoseconds: int
    relative: bool
    """Counted from the first frame of the capture, not from the Unix epoch."""

    def absolute(self, first_time: int) -> int:
        return first_time + self.nanoseconds if self.relative else self.nanoseconds


class MomentType(click.ParamType[Moment]):
    """Seconds since the first frame, or an ISO 8601 time (UTC unless it says otherwise)."""

    name = "time"

    def convert(self, value: str | Moment, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        if isinstance(value, Moment):
            return value
        try:
            seconds = float(value)
            if math.isfinite(seconds):
                return Moment(round(seconds * 1e9), True)
        except ValueError:
            pass
        try:
            when = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is neither seconds since the capture began nor a time such as 2024-05-01T12:00:00",
                param,
                ctx,
            )
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        elapsed = when - datetime(1970, 1, 1, tzinfo=UTC)
        whole = (elapsed.days * 86400 + elapsed.seconds) * 1_000_000_000
        return Moment(whole + elapsed.microseconds * 1000, False)
