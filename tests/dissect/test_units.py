"""Quantities as they are written."""

from __future__ import annotations

import pytest

from rdmascope.dissect.units import parse_size


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
