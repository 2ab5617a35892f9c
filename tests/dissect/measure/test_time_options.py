"""Points in time as people write them, and what they are in a capture."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from rdmascope.dissect.measure.time_options import DAY, SECOND, Moment, parse_moment

BEGIN = 1_714_557_720_500_000_000
"""2024-05-01 10:02:00.5 UTC."""
NOON = 1_714_564_800 * SECOND
"""2024-05-01 12:00 UTC."""


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1.5", BEGIN + 1_500_000_000),
        ("-2", BEGIN - 2 * SECOND),
        ("250ms", BEGIN + SECOND // 4),
        ("-1.5s", BEGIN - 3 * SECOND // 2),
        ("10m", BEGIN + 600 * SECOND),
        ("1h", BEGIN + 3600 * SECOND),
        ("2024-05-01T12:00:00", NOON),
        ("2024-05-01T14:00:00.000000001+02:00", NOON + 1),
        ("2024-05-01 12:00Z", NOON),
        ("2024-05-01", NOON - DAY // 2),
        ("2024-05-01+02:00", NOON - DAY // 2 - 7200 * SECOND),
        ("2024-05-01T06:30-05:30", NOON),
        ("12:00", NOON),
        ("T12:00:00Z", NOON),
        ("14:00+02", NOON),
        ("10:02", BEGIN - BEGIN % (60 * SECOND)),  # the minute in which the capture begins
        ("10:02:00", BEGIN - BEGIN % SECOND),
        ("10:02:00.4", BEGIN - 100_000_000 + DAY),  # before its first frame: the next day
        ("10:01", BEGIN - BEGIN % (60 * SECOND) - 60 * SECOND + DAY),
        ("00:00", NOON + DAY // 2),
        ("00:30+02:00", NOON + DAY // 2 - 5400 * SECOND),
    ],
)
def test_what_is_written_is_a_time_of_the_capture(text: str, nanoseconds: int) -> None:
    assert parse_moment(text).absolute(BEGIN) == nanoseconds


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)),
    st.integers(-18 * 60, 18 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
def test_dates_are_those_of_the_calendar(when: datetime, zone: timezone) -> None:
    there = when.replace(tzinfo=zone)
    elapsed = there - datetime(1970, 1, 1, tzinfo=UTC)
    expected = (elapsed.days * 86400 + elapsed.seconds) * SECOND + elapsed.microseconds * 1000
    assert parse_moment(there.isoformat()) == Moment(there.isoformat(), expected)


@given(st.integers(0, 1 << 61), st.times())
def test_a_time_of_day_is_within_a_day_of_the_first_frame(begin: int, clock: object) -> None:
    moment = parse_moment(str(clock))
    assert -60 * SECOND < moment.absolute(begin) - begin < DAY
    assert moment.absolute(begin) % DAY == moment.nanoseconds


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_an_error(text: str) -> None:
    try:
        parse_moment(text)
    except ValueError as error:
        assert "is no time" in str(error)
