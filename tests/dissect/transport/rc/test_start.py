"""Where a send queue begins: the Starting PSN of the CM exchange is a hint until the traffic disagrees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from playbook import Wire
from playbook.capture import Capture, frame_batches
from playbook.shapes import read, write
from rdmascope.dissect.rpcrdma.analyzer import Analyzer


@pytest.mark.parametrize("shift", [1, 2, 5, 100])
@pytest.mark.parametrize("cuts", [[], range(1, 60)])
def test_packets_before_the_starting_psn_are_not_lost(shift: int, cuts: list[int]) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    write(conn)
    read(conn)
    packets = [
        packet if packet.kind == "cm" else replace(packet, psn=(packet.psn - shift) & 0xFFFFFF)
        for packet in wire.packets
    ]
    analyzer = Analyzer()
    rpcs = [rpc for batch in frame_batches(Capture(wire, packets).frames, cuts) for rpc in analyzer.feed(batch)]
    rpcs += analyzer.finish()
    assert [rpc.state for rpc in rpcs] == ["complete", "complete"]
    assert rpcs[0].connection.missing_packets == [0, 0]
    assert rpcs[0].connection.retransmitted_packets == (0, 0)
