"""Numbers as people read them, and options as people write them."""

from __future__ import annotations

import click
import pytest
from hypothesis import given, strategies as st

from rdmascope.cli.options import DURATION, MOMENT, XID
from rdmascope.dissect import units
from rdmascope.dissect.onc.rpc_header import procedure_label, program_label


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(0, "0"), (812, "812 ns"), (999_700, "1.00 ms"), (42_449_000, "42.4 ms"), (9_996_000, "10.0 ms")]
    + [
        (120_000_000, "120 ms"),
        (119_000_000_000, "119 s"),
        (150_000_000_000, "2.50 min"),
        (7_199_000_000_000, "120 min"),
    ]
    + [(11_700_000_000_000, "3.25 h"), (400_000_000_000_000, "4.63 d"), (-1500, "-1.50 µs")],
)
def test_durations(nanoseconds: int, text: str) -> None:
    assert units.duration(nanoseconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (1024, "1.00 KiB"),
        (1_023_999, "0.98 MiB"),
        (5 << 40, "5.00 TiB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert units.size(count) == text


@given(st.integers(0, 10**15))
def test_sizes_and_durations_stay_narrow(number: int) -> None:
    assert len(units.size(number)) <= 8
    assert len(units.duration(number)) <= 11


def test_moments() -> None:
    assert units.moment(1_714_564_800_123_456_789) == "2024-05-01 12:00:00.123456 UTC"
    assert units.moment(2**63 - 1).endswith("UTC")
    assert units.seconds(-1_000_250_999) == "-1.000250"
    assert units.bound(500_000) == "500 µs"
    assert units.plural(1, "RPC") == "1 RPC"
    assert units.plural(1200, "RPC") == "1,200 RPCs"


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("10ms", 10_000_000), ("1.5s", 1_500_000_000), ("250us", 250_000), ("250µs", 250_000), ("0.2 s", 200_000_000)]
    + [("7ns", 7), (" 3 ms ", 3_000_000)],
)
def test_durations_as_options(text: str, nanoseconds: int) -> None:
    assert DURATION.convert(text, None, None) == nanoseconds


@pytest.mark.parametrize("text", ["", "ms", "10 parsecs", "-1ms", "1e3", "ten"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no duration"):
        DURATION.convert(text, None, None)


def test_a_duration_needs_its_unit() -> None:
    with pytest.raises(click.BadParameter, match="has no unit: write 0"):
        DURATION.convert("0.2", None, None)


@pytest.mark.parametrize(("text", "xid"), [("0x1A2b3c4d", 0x1A2B3C4D), ("12", 12), ("007", 7), ("1a", 26)])
def test_xids(text: str, xid: int) -> None:
    assert XID.convert(text, None, None) == xid


@pytest.mark.parametrize("text", ["", "0x", "4294967296", "-1", "xyz", "0x1ffffffff"])
def test_what_is_no_xid(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no 32-bit number"):
        XID.convert(text, None, None)


@pytest.mark.parametrize("text", ["yesterday", "nan", "inf", "12:00:61", "2024-13-01", "10:2"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no time"):
        MOMENT.convert(text, None, None)


def test_labels() -> None:
    assert program_label(100003, 4, 2) == "NFSv4.2"
    assert program_label(100005, 3) == "MOUNTv3"
    assert program_label(None, None) == "unknown program"
    assert procedure_label("COMPOUND", ("SEQUENCE", "PUTFH", "READ", "PUTFH")) == "READ PUTFH"
    assert procedure_label("COMPOUND", ("SEQUENCE",)) == "SEQUENCE"
    assert procedure_label("READ", ()) == "READ"
