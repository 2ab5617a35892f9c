"""Requests that are not in the capture: a sender that jumps ahead, and a capture that loses packets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from playbook import Capture, Wire, call, nfs3, reply, shapes
from playbook.capture import frame_batches
from playbook.packets import Packet
from rdmascope.dissect.audit.rule import gaps_seen
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.transport.connection import Connection

JUMP = 5000


def connection_of(wire: Wire, packets: list[Packet], each: bool) -> tuple[Connection, Analyzer]:
    analyzer = Analyzer()
    cuts: Sequence[int] = range(1, len(packets)) if each else []
    for batch in frame_batches(Capture(wire, packets).frames, cuts):
        analyzer.feed(batch)
    analyzer.finish()
    return analyzer.connections[0], analyzer


def exchange(wire: Wire, jump: int, acks: str) -> list[Packet]:
    """Two RPCs, between which the client passes over PSNs."""
    connection = wire.connect(acks=acks)
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    connection.ends[0].psn = (connection.ends[0].psn + jump) & 0xFFFFFF
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    return list(wire.packets)


@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("jump", [1, JUMP])
def test_what_was_acknowledged_was_sent(jump: int, each: bool) -> None:
    wire = Wire()
    connection, analyzer = connection_of(wire, exchange(wire, jump, "message"), each)
    assert connection.missing_packets == (jump, 0) and connection.unconfirmed_packets == (0, 0)
    assert [gap.end - gap.start for gap in connection.gaps[0]] == [jump] and not connection.gaps[1]
    health = analyzer.health(1).directions[0]
    assert (health.missing, health.unconfirmed) == (jump, 0)


@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("jump", [1, JUMP])
def test_what_nothing_acknowledges_may_never_have_been_sent(jump: int, each: bool) -> None:
    wire = Wire()
    packets = [packet for packet in exchange(wire, jump, "message") if packet.kind != "ack"]
    connection, analyzer = connection_of(wire, packets, each)
    assert connection.missing_packets == connection.unconfirmed_packets == (jump, 0)
    health = analyzer.health(1).directions[0]
    assert (health.missing, health.unconfirmed) == (jump, jump)


def without_the_last_call(packets: list[Packet]) -> list[Packet]:
    last = max(at for at, packet in enumerate(packets) if packet.kind == "send" and packet.sender == 0)
    return packets[:last] + packets[last + 1 :]


def late(packets: list[Packet]) -> list[Packet]:
    """The last call is captured behind its acknowledgement."""
    last = max(at for at, packet in enumerate(packets) if packet.kind == "send" and packet.sender == 0)
    ack = next(at for at in range(last, len(packets)) if packets[at].kind == "ack")
    return [*packets[:last], *packets[last + 1 : ack + 1], packets[last], *packets[ack + 1 :]]


@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize(("fault", "missing"), [(without_the_last_call, 1), (late, 0), (list, 0)])
def test_the_last_request_is_missing_where_it_was_acknowledged(
    fault: Callable[[list[Packet]], list[Packet]], missing: int, each: bool
) -> None:
    wire = Wire()
    connection, _ = connection_of(wire, fault(exchange(wire, 0, "message")), each)
    assert connection.missing_packets == (missing, 0) and connection.unconfirmed_packets == (0, 0)
    assert len(connection.gaps[0]) == missing


@pytest.mark.parametrize("size", [1500, 3000, 10_000])
def test_the_packets_of_a_read_whose_length_is_truncated_are_its_own(size: int) -> None:
    wire = Wire(mtu=1024)
    shapes.write(wire.connect(), bytes(size))
    packets = [replace(packet, snaplen=68) if packet.kind == "read" else packet for packet in wire.packets]
    connection, _ = connection_of(wire, packets, False)
    assert connection.missing_packets == (0, 0)


@pytest.mark.parametrize("each", [True, False])
def test_all_that_is_acknowledged_and_never_shown_is_one_gap(each: bool) -> None:
    wire = Wire()
    packets = [packet for packet in exchange(wire, 0, "message") if packet.kind != "send" or packet.sender == 1]
    connection, analyzer = connection_of(wire, packets, each)
    acks = [packet for packet in packets if packet.kind == "ack" and packet.sender == 1]
    assert len(acks) == 2 and connection.missing_packets == (2, 0)
    (gap,) = connection.gaps[0]
    frames = [packets.index(ack) + 1 for ack in acks]
    assert (gap.end - gap.start, [gap.frame, gap.last_frame]) == (2, frames)
    assert analyzer.health(1).directions[0].missing == 2


@pytest.mark.parametrize("each", [True, False])
def test_the_packet_behind_what_was_acknowledged_shows_the_last_of_it(each: bool) -> None:
    """Of three calls the first two are missing, but not what acknowledges them."""
    wire = Wire()
    exchange(wire, 0, "message")
    reply(call(wire.connections[0], nfs3.getattr_()), nfs3.getattr_reply())
    calls = [packet for packet in wire.packets if packet.kind == "send" and packet.sender == 0]
    packets = [packet for packet in wire.packets if packet not in calls[:2]]
    connection, _ = connection_of(wire, packets, each)
    (gap,) = connection.gaps[0]
    first = next(at for at, packet in enumerate(packets, 1) if packet.kind == "ack" and packet.sender == 1)
    last = packets.index(calls[2]) + 1
    assert (gap.end - gap.start, gap.frame, gap.last_frame) == (2, first, last)
    assert list(gaps_seen(connection, 0, last - 1, last)) == [gap]
    assert not gaps_seen(connection, 0, last, last + 9) and not gaps_seen(connection, 0, 0, first - 1)


@pytest.mark.parametrize("each", [True, False])
def test_what_is_acknowledged_behind_a_gap_is_missing_too(each: bool) -> None:
    """The client's first Send, and all but one of its later ones, are not in the capture."""
    wire = Wire()
    connection = wire.connect(acks="message")
    for _ in range(6):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    sends = [packet for packet in wire.packets if (packet.kind, packet.sender) == ("send", 0)]
    packets = [packet for packet in wire.packets if packet not in sends or packet is sends[2]]
    seen, _ = connection_of(wire, packets, each)
    assert seen.missing_packets == (5, 0)
    assert [gap.end - gap.start for gap in seen.gaps[0]] == [2, 3]
    last = [at for at, packet in enumerate(packets, 1) if (packet.kind, packet.sender) == ("ack", 1)][-1]
    assert seen.gaps[0][1].last_frame == last
