"""RDMA Writes that a responder sends behind the reply that returns their memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from playbook import Capture, Packet, Wire
from playbook.judge import analyze
from playbook.shapes import DATA, read
from rdmascope.dissect.rpcrdma.reassembly import LATE, reassembled_reply


def behind_the_reply(wire: Wire, count: int) -> list[Packet]:
    """The packets of one READ, of which the last ``count`` Writes come behind the reply, in the order of PSNs."""
    packets = list(wire.packets)
    writes = [at for at, packet in enumerate(packets) if packet.kind == "write"][-count:]
    reply = next(at for at, packet in enumerate(packets) if packet.kind == "send" and packet.sender == 1)
    order = [packets[reply], *(packets[at] for at in writes)]
    numbers = sorted((packet.psn for packet in order), key=lambda psn: (psn - packets[writes[0]].psn) & 0xFFFFFF)
    moved = [replace(packet, psn=psn) for packet, psn in zip(order, numbers, strict=True)]
    rest = [packet for at, packet in enumerate(packets) if at not in (*writes, reply)]
    acks = [packet for packet in rest if packet.uid > packets[reply].uid]
    front = [packet for packet in rest if packet.uid <= packets[reply].uid]
    found = [*front, *moved, *acks]
    return [replace(packet, time=packets[0].time + 1000 * index) for index, packet in enumerate(found)]


@pytest.mark.parametrize("cm", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_what_was_written_behind_the_reply_is_named_and_undecidable(cm: bool, together: bool) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect(cm=cm)
    read(conn, DATA[:1000])
    packets = behind_the_reply(wire, 1)
    read(conn, DATA[:500])
    later = wire.packets[len(packets) :]
    capture = Capture(wire, [*packets, *later])
    first, second = sorted(analyze(capture, () if together else range(1, 30)), key=lambda rpc: rpc.number)
    frame = next(at for at, packet in enumerate(packets, 1) if packet.kind == "write")
    assert first.damage == (f"Write chunk 1: bytes 0-999 {LATE} (frame {frame})",)
    assert (first.state, first.contents) == ("undecidable", "undecidable")
    reply = reassembled_reply(first)
    assert reply is not None and reply.gaps == [(128, 1128)]
    assert {extent.missing for extent in reply.extents} == {"", LATE}
    assert (second.state, second.contents) == ("complete", "whole")


def test_what_was_not_written_at_all_is_missing() -> None:
    wire = Wire(mtu=1024)
    read(wire.connect(), DATA[:1000])
    packets = [packet for packet in wire.packets if packet.kind != "write"]
    (rpc,) = analyze(Capture(wire, packets))
    assert (rpc.state, rpc.contents) == ("damaged", "missing")


def test_a_write_for_a_later_call_of_the_same_memory_is_none_of_the_earlier() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    read(conn, DATA[:1000])
    count = len(wire.packets)
    conn.next_handle -= 0x101
    conn.next_address -= 0x2000
    read(conn, DATA[:1000])
    first = [packet for packet in wire.packets[:count] if packet.kind != "write"]
    one, two = sorted(analyze(Capture(wire, [*first, *wire.packets[count:]])), key=lambda rpc: rpc.number)
    assert (one.contents, two.contents) == ("missing", "whole")
    assert one.chunks[0].segments[0].advertised.handle == two.chunks[0].segments[0].advertised.handle
