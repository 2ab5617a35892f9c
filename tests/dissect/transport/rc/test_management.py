"""Connections by their CM exchange, of which some messages are damaged or out of order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from playbook import Capture, Wire
from playbook.judge import analyze, judge_whole
from playbook.shapes import read, write


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
    assert rpc.connection.ended_by == ("" if damaged else "DREQ from the active side")
