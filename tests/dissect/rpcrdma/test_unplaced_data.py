"""Data that are in the capture, but without the packet that says where they belong."""

from __future__ import annotations

from playbook import Capture, Wire, faults
from playbook.capture import frame_batches
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.judge import analyze
from playbook.shapes import DATA, read, write
from rdmascope.dissect.rpcrdma.analyzer import Analyzer


def test_responses_of_a_lost_read_request_are_not_said_not_to_be_there() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    read(conn)
    write(conn, DATA[:5000])
    read(conn)
    packets = faults.drop(wire.packets, faults.where(wire.packets, opcode=12))
    analyzer = Analyzer()
    (batch,) = frame_batches(Capture(wire, packets).frames, [])
    rpcs = analyzer.feed(batch) + analyzer.finish()
    (damaged,) = [rpc for rpc in rpcs if rpc.state == "damaged"]
    (reason,) = damaged.damage
    assert reason.endswith(": bytes 0-4999 not found in this capture")
    (connection,) = analyzer.connections
    assert connection.missing_packets == (0, 1), "one request of five PSNs"


def test_neither_are_writes_whose_first_packet_is_lost() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    read(conn, DATA[:5000])
    packets = faults.drop(wire.packets, faults.where(wire.packets, opcode=6))
    (rpc,) = analyze(Capture(wire, packets))
    (reason,) = rpc.damage
    assert reason.endswith(": bytes 0-4999 not found in this capture")


def test_where_all_packets_have_a_place_what_is_missing_is_missing() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    read(conn, DATA[:5000])
    packets = faults.drop(wire.packets, faults.where(wire.packets, opcode=7)[:1])
    (rpc,) = analyze(Capture(wire, packets))
    assert rpc.damage == ("Write chunk 1: bytes 1024-2047 not found in this capture",)


def test_the_first_request_of_all_may_be_the_lost_one() -> None:
    wire = Wire(mtu=1024)
    write(wire.connect(), DATA[:5000])
    (rpc,) = analyze(Capture(wire, faults.drop(wire.packets, faults.where(wire.packets, opcode=12))))
    (reason,) = rpc.damage
    assert reason.endswith(": bytes 0-4999 not found in this capture")


def test_responses_of_a_lost_iwarp_read_request() -> None:
    wire = IwarpWire()
    write(wire.connect(), DATA[:5000])
    segments = wire.sent()
    reasons: set[str] = set()
    for index in range(len(segments)):
        for rpc in analyze(IwarpCapture(wire, faults.drop(segments, [index]))):
            reasons.update(rpc.damage)
    assert any(reason.endswith(": bytes 0-4999 not found in this capture") for reason in reasons)
