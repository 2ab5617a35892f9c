"""Where a server without authentication listens."""

from __future__ import annotations

import pytest

from rdmascope.captures.peer.verbs import interface
from rdmascope.captures.peer.verbs.interface import VerbsError

ADDRESSES = {"eth0": ["192.0.2.1", "fe80::1%eth0"], "eth0.7": ["192.0.2.129"], "eth1": ["198.51.100.1", "fe80::1%eth1"]}


@pytest.fixture(autouse=True)
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "devices", lambda: {"rxe0": ["eth0", "eth0.7"], "siw0": ["eth1"]})
    monkeypatch.setattr(interface, "addresses", ADDRESSES.__getitem__)


@pytest.mark.parametrize(
    ("device", "source", "listening"),
    [
        (None, None, [("rxe0", "192.0.2.1"), ("rxe0", "fe80::1%eth0"), ("rxe0", "192.0.2.129")]),
        ("siw0", None, [("siw0", "198.51.100.1"), ("siw0", "fe80::1%eth1")]),
        (None, "198.51.100.1", [("siw0", "198.51.100.1")]),
        (None, "fe80::1", [("rxe0", "fe80::1%eth0"), ("siw0", "fe80::1%eth1")]),
        (None, "fe80::1%eth1", [("siw0", "fe80::1%eth1")]),
        ("rxe0", "198.51.100.1", []),
    ],
)
def test_it_listens_where_it_was_told_or_on_one_device(
    device: str | None, source: str | None, listening: list[tuple[str, str]]
) -> None:
    assert [*interface.listening_addresses(device, source)] == listening


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(VerbsError, match="no RDMA device 'rxe1'; there are rxe0, siw0"):
        [*interface.listening_addresses("rxe1", None)]
