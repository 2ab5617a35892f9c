"""Universal addresses (RFC 5665, 5.2.3)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from rdmascope.dissect.onc.shapes.text import universal_address


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("192.0.2.5.78.81", ("192.0.2.5", 20049)),
        ("2001:db8::5.8.1", ("2001:db8::5", 2049)),
        ("192.0.2.5", ("192.0", 517)),
        ("192.0.2.5.300.1", ("192.0.2.5.300.1", None)),
        ("name", ("name", None)),
        ("", ("", None)),
    ],
)
def test_universal_addresses(text: str, place: tuple[str, int | None]) -> None:
    assert universal_address(text) == place


@given(st.text())
def test_any_universal_address(text: str) -> None:
    address, port = universal_address(text)
    assert text.startswith(address) and (port is None or 0 <= port < 1 << 16)
