"""Latencies, where the times of a capture allow them."""

from __future__ import annotations

from playbook import Capture, Wire
from playbook.judge import analyze
from playbook.shapes import read, write
from rdmascope.dissect.rpcrdma.latency import REPLY_EARLIER


def test_a_reply_earlier_than_its_call_has_no_latency() -> None:
    wire = Wire()
    conn = wire.connect()
    read(conn)
    write(conn)
    read(conn)
    true = wire.truth[1]
    numbers = [packet.operation for packet in wire.packets]
    call, behind = numbers.index(true.call_operation), numbers.index(true.reply_operation) + 1
    packets = [*wire.packets[:call], *wire.packets[call + 1 : behind], wire.packets[call], *wire.packets[behind:]]
    rpcs = analyze(Capture(wire, packets))
    assert [rpc.state for rpc in rpcs] == ["complete"] * 3
    for rpc in rpcs:
        assert (rpc.latency is None) == (rpc.name == "WRITE") == (REPLY_EARLIER in rpc.notes)
