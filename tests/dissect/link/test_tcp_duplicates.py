"""iWARP captured on several interfaces at once: each segment counts once, and is not retransmitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from playbook import shapes, tcp_faults
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.tcp import TcpSegment
from playbook.wrap import Raw, batch
from rdmascope.dissect.link.duplicates import DUPLICATE
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpcs import Rpc

Seen = Callable[[bytes, int], Raw]


def sll2(data: bytes, interface: int) -> Raw:
    return Raw(data[12:14] + bytes(2) + interface.to_bytes(4, "big") + bytes(12) + data[14:], 0, 276)


def pcapng(data: bytes, interface: int) -> Raw:
    return Raw(data, 0, 1, interface)


def frames(wire: IwarpWire, segments: Sequence[TcpSegment] | None, seen: Seen, interfaces: int) -> list[Raw]:
    """Every frame on so many interfaces, 2 µs apart."""
    capture = IwarpCapture(wire, None if segments is None else list(segments))
    found = [
        seen(frame.data, interface)._replace(time=frame.time + 2_000 * interface)
        for frame in capture.frames
        for interface in range(interfaces)
    ]
    return sorted(found, key=lambda one: one.time)


def analyzed(raws: Sequence[Raw], size: int) -> tuple[Analyzer, list[Rpc]]:
    analyzer, rpcs = Analyzer(), []
    for at in range(0, len(raws), size):
        rpcs += analyzer.feed(batch(raws[at : at + size], at + 1))
    return analyzer, rpcs + analyzer.finish()


def talk(addresses: tuple[str, str], acks: str = "packet") -> IwarpWire:
    wire = IwarpWire(mss=1448, seed=5)
    connection = wire.connect(*addresses, acks=acks)
    shapes.read(connection, bytes(range(256)) * 32)
    shapes.write(connection, bytes(range(256)) * 16)
    connection.disconnect()
    return wire


IPV4, IPV6 = ("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00::1")


@pytest.mark.parametrize("seen", [sll2, pcapng])
@pytest.mark.parametrize("addresses", [IPV4, IPV6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("interfaces", [2, 3])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_segment_on_several_interfaces_counts_once(
    seen: Seen, addresses: tuple[str, str], interfaces: int, size: int
) -> None:
    wire = talk(addresses)
    count = len(wire.sent())
    analyzer, rpcs = analyzed(frames(wire, None, seen, interfaces), size)
    once, same = analyzed(frames(wire, None, seen, 1), size)
    assert analyzer.skipped == {DUPLICATE: (interfaces - 1) * count}
    assert analyzer.packets == once.packets
    health, expected = analyzer.health(1), once.health(1)
    assert health.retransmissions == () and not health.troubled
    assert [one.packets for one in health.directions] == [one.packets for one in expected.directions]
    assert [one.duplicate_acks for one in health.directions] == [0, 0]
    assert [(one.xid, one.state, one.retransmissions) for one in rpcs] == [(one.xid, one.state, 0) for one in same]


@pytest.mark.parametrize("addresses", [IPV4, IPV6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_retransmission_seen_on_both_interfaces_counts_as_one(addresses: tuple[str, str], size: int) -> None:
    wire = talk(addresses)
    before = wire.sent()
    index = [at for at, one in enumerate(before) if one.sender == 1 and len(one.payload) > 1400][1]
    segments = tcp_faults.lose(wire, before, index, delay=3_000_000)
    again = sum(one.copy > 0 for one in segments)
    analyzer, _ = analyzed(frames(wire, segments, pcapng, 2), size)
    assert analyzer.skipped == {DUPLICATE: len(segments)}
    assert analyzer.connections[0].retransmitted_packets == (0, again)


def test_other_tcp_counts_once_as_well() -> None:
    wire = IwarpWire(mss=1448, seed=5)
    connection = wire.connect(port=80, client_private=b"", server_private=b"")
    connection.disconnect()
    handshake = [one for one in wire.sent() if one.kind != "data"]
    analyzer, _ = analyzed(frames(wire, handshake, pcapng, 2), 1000)
    assert analyzer.skipped == {DUPLICATE: len(handshake), "TCP": len(handshake)}


def test_one_interface_shows_no_duplicates() -> None:
    wire = talk(IPV4)
    segments = [one for one in wire.sent() for _ in range(2)]
    analyzer, _ = analyzed([raw._replace(interface=3) for raw in frames(wire, segments, pcapng, 1)], 1000)
    assert DUPLICATE not in analyzer.skipped
