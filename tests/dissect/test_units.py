"""Quantities as they are written."""

from __future__ import annotations

import pytest

from rdmascope.dissect.units import parse_size, percent, share


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("500M", 500_000_000),
        ("500MB", 500_000_000),
        ("500MiB", 500 << 20),
        (" 1.5 gib ", 3 << 29),
        ("2k", 2000),
        ("2T", 2 * 10**12),
        ("7B", 7),
    ],
)
def test_a_size_has_a_decimal_or_a_binary_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1M", "5 iB", "1e6", "500X", "1.M", "5MiBs"])
def test_what_is_no_size_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="no size such as"):
        parse_size(text)


@pytest.mark.parametrize(
    ("part", "text"), [(0, "0%"), (9, "0.9%"), (420, "42%"), (994, "99%"), (999, "99.9%"), (1000, "100%")]
)
def test_all_is_said_only_where_it_is_so(part: int, text: str) -> None:
    assert percent(part / 1000) == text
    assert share(99_999, 100_000) == percent(0.99999) == "99.9%"
    assert share(part, 1000) == text or part == 9
