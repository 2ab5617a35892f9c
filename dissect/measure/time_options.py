"""Times as people write them: durations, and points in time by the capture, the day or the date."""

from __future__ import annotations

import re

import numpy as np

from ..named_tuple import NamedTuple

SECOND = 1_000_000_000
DAY = 86400 * SECOND

UNITS = {"": SECOND, "h": 3600 * SECOND, "m": 60 * SECOND, "s": SECOND} | {
    "ms": 1_000_000, "us": 1_000, "µs": 1_000, "ns": 1,
}  # fmt: skip
"""Nanoseconds."""
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-zµ]*)")
_ZONE = r"(?:[Zz]|(?P<sign>[+-])(?P<zone_hours>\d\d)(?::?(?P<zone_minutes>\d\d))?)?"
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9})\d*)?)?"
_TIME_OF_DAY = re.compile(f"T?{_TIME}{_ZONE}")
_DATE = re.compile(rf"(?P<date>\d{{4}}-\d\d-\d\d)(?:[Tt ]{_TIME})?{_ZONE}")

FORMS = (
    "a time since the capture began (1.5s, 10m), of the day (10:02) or a date (2024-05-01, 2024-05-01T10:02:00+02:00)"
)
"""What can be written; a time without a zone is UTC, as all times that are printed."""


class Moment(NamedTuple):
    """A point in time.  What it is counted from may depend on the capture."""

    text: str
    """The time as the user wrote it."""
    nanoseconds: int
    """Since the Unix epoch, or what ``counted_from`` says."""
    counted_from: str = "epoch"
    """'epoch'; 'capture': the first frame; 'day': midnight, UTC, before it or after it."""
    precision: int = 1
    """Nanoseconds; of a time of day.  10:02 is any time in that minute."""

    def absolute(self, first_time: int) -> int:
        """Nanoseconds since the Unix epoch.

        ``first_time``: of the capture's first frame.  A time of day is that of its first day, or of the next where it
        is earlier than the first frame.
        """
        if self.counted_from == "capture":
            return first_time + self.nanoseconds
        if self.counted_from == "day":
            earliest = first_time - first_time % self.precision
            return earliest + (self.nanoseconds - earliest) % DAY
        return self.nanoseconds


def parse_duration(text: str) -> int:
    """'10ms', '1.5s', '250us', '5m', '1h', to nanoseconds; raises ValueError, also for a number without a unit."""
    text = text.strip()
    duration = _duration(text)
    if duration is None:
        raise ValueError(f"{text!r} is no duration such as 10ms, 250us or 1.5s")
    if duration and text[-1] in "0123456789.":
        raise ValueError(f"{text!r} has no unit: write {text}ms or {text}s")
    return duration


def _duration(text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    if match is None or match[2] not in UNITS:
        return None
    return round(float(match[1]) * UNITS[match[2]])


def parse_moment(text: str) -> Moment:
    """What ``FORMS`` says; raises ValueError for anything else."""
    text = text.strip()
    since = _duration(text.removeprefix("-"))
    if since is not None:
        return Moment(text, -since if text.startswith("-") else since, "capture")
    match = _TIME_OF_DAY.fullmatch(text) or _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no time: write {FORMS}")
    fields = match.groupdict(default="0")
    day = fields.get("date", "1970-01-01")
    try:
        when = np.datetime64(f"{day}T{fields['hour']:0>2}:{fields['minute']:0>2}:{fields['second']:0>2}", "s")
    except ValueError:
        raise ValueError(f"{text!r} is no time: there is no such day or hour") from None
    zone = int(fields["zone_hours"]) * 3600 + int(fields["zone_minutes"]) * 60
    elapsed = int(when.astype(np.int64)) + (zone if fields["sign"] == "-" else -zone)
    nanoseconds = elapsed * SECOND + int(fields["fraction"].ljust(9, "0"))
    if "date" in fields:
        return Moment(text, nanoseconds)
    precision = 1 if match["fraction"] else SECOND if match["second"] else 60 * SECOND
    return Moment(text, nanoseconds % DAY, "day", precision)


class TimeSpan(NamedTuple):
    """From one moment on, and before another; None: there is no such."""

    text: str
    since: Moment | None
    until: Moment | None


def parse_span(text: str) -> TimeSpan:
    """'2026-11-01/2026-11-08', as ISO 8601 writes an interval; either end may be left out.  Raises ValueError."""
    since, slash, until = (part.strip() for part in text.partition("/"))
    if not slash:
        raise ValueError(f"{text!r} is no span: write SINCE/UNTIL")
    return TimeSpan(text.strip(), parse_moment(since) if since else None, parse_moment(until) if until else None)
