"""Connections by their CM exchange, of which some messages are damaged or out of order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from playbook import Capture, Frame, Packet, Wire
from playbook.capture import frame_batches
from playbook.judge import analyze, judge_whole
from playbook.shapes import read, write
from rdmascope.dissect.rpcrdma.analyzer import Analyzer


@pytest.mark.parametrize("message", [0, 1])
def test_a_damaged_message_names_no_queue_pair(message: int) -> None:
    """A REQ or REP that names another queue pair comes before the right one: with a wrong ICRC it does not count."""
    wire = Wire(mtu=1024)
    conn = wire.connect()
    write(conn)
    read(conn)
    packets = list(wire.packets)
    qpn = conn.ends[message].qpn.to_bytes(3, "big")
    payload = packets[message].payload
    assert payload.count(qpn) == 1
    other = payload.replace(qpn, bytes(byte ^ 0x10 for byte in qpn))
    packets.insert(message, replace(packets[message], payload=other, corrupt=True))
    rpcs = analyze(Capture(wire, packets))
    judge_whole(Capture(wire, packets), rpcs)
    (connection,) = {rpc.connection.number: rpc.connection for rpc in rpcs}.values()
    assert connection.number == 1 and connection.paired_by == "CM"
    assert tuple(end.qpn for end in connection.endpoints) == tuple(end.qpn for end in conn.ends)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_damaged_disconnect_request_ends_nothing(damaged: bool) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    read(conn)
    conn.disconnect()
    packets = [replace(packet, corrupt=damaged) if packet.kind == "cm" else packet for packet in wire.packets[3:]]
    (rpc,) = analyze(Capture(wire, [*wire.packets[:3], *packets]))
    assert rpc.connection.ended_by == ("" if damaged else "DREQ from the client")


@pytest.mark.parametrize("initiator", [0, 1])
@pytest.mark.parametrize("server_only", [False, True])
def test_a_disconnect_request_ends_what_is_known_only_behind_it(initiator: int, server_only: bool) -> None:
    """The capture begins behind the CM exchange, so that traffic tells whose queue pairs these are; or has one end's
    packets alone."""
    wire = Wire(mtu=1024)
    conn = wire.connect()
    for _ in range(4):
        read(conn)
    conn.disconnect(initiator)
    packets = [packet for packet in wire.packets[3:] if packet.sender or not server_only]
    frames = Capture(wire, packets).frames
    known = initiator or not server_only
    for cuts in ([], [len(frames) // 2], [len(frames) - 2], range(1, len(frames))):
        analyzer = Analyzer()
        for batch in frame_batches(frames, cuts):
            analyzer.feed(batch)
        analyzer.finish()
        (connection,) = analyzer.connections
        ended = f"DREQ from the {('client', 'server')[initiator]}" if known else ""
        assert connection.ended_by == ended, cuts


def one_side_first(packets: Sequence[Packet], frames: Sequence[Frame], count: int) -> list[Frame]:
    """Frames of two interfaces: of each ``count``, those from the server stand before those from the client."""
    found: list[Frame] = []
    for start in range(0, len(frames), count):
        part = list(zip(packets[start : start + count], frames[start : start + count], strict=True))
        found += [frame for packet, frame in part if packet.sender == 1]
        found += [frame for packet, frame in part if packet.sender == 0]
    return found


@pytest.mark.parametrize("cm", [False, True])
@pytest.mark.parametrize("count", [5, 16, 60, 1000])
@pytest.mark.parametrize("batch", [40, 1000])
def test_interfaces_one_behind_the_other(cm: bool, count: int, batch: int) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect(cm=cm)
    for _ in range(5):
        read(conn)
        write(conn)
    capture = Capture(wire, wire.packets)
    expected = {rpc.xid: rpc.latency for rpc in analyze(capture)}
    frames = one_side_first(wire.packets, capture.frames, count)
    analyzer = Analyzer()
    rpcs = [rpc for part in frame_batches(frames, range(batch, len(frames), batch)) for rpc in analyzer.feed(part)]
    rpcs += analyzer.finish()
    assert {rpc.xid: rpc.latency for rpc in rpcs} == expected
    assert {rpc.state for rpc in rpcs} == {"complete"}
    (connection,) = analyzer.connections
    assert (connection.first_frame, connection.first_time) == (1, frames[0].time)
    times = [frame.time for frame in frames]
    assert (analyzer.earliest_time, analyzer.last_time) == (min(times), max(times))
