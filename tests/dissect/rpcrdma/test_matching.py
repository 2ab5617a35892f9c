"""Replies find their calls: late calls, calls without an end, XIDs that are used again."""

from __future__ import annotations

from collections import Counter

import pytest

from playbook import Capture, Wire, call, nfs3, reply
from playbook.capture import frame_batches
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.judge import judge
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpcs import Rpc


def analyzed(capture: Capture | IwarpCapture, step: int) -> list[Rpc]:
    """The Rpcs of a capture that comes in batches of ``step`` frames."""
    analyzer = Analyzer()
    found: list[Rpc] = []
    for batch in frame_batches(capture.frames, range(step, len(capture.frames), step)):
        found += analyzer.feed(batch)
    return found + analyzer.finish()


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("step", [7, 300, 100_000])
def test_a_call_whose_last_packets_are_missing_keeps_its_reply(lost: int, elsewhere: bool, step: int) -> None:
    wire = Wire(mtu=1024)
    connection, other = wire.connect(), wire.connect()
    rpc = call(connection, nfs3.write(0, bytes(3000)))
    reply(rpc, nfs3.write_reply(3000))
    for _ in range(400):  # more frames than a capture reorders
        reply(call(other if elsewhere else connection, nfs3.getattr_()), nfs3.getattr_reply())
    packets = [packet for packet in wire.packets if packet.operation == rpc.true.call_operation]
    capture = Capture(wire, [packet for packet in wire.packets if packet not in packets[-lost:]])
    rpcs = analyzed(capture, step)
    judge(capture, rpcs)
    assert Counter(one.state for one in rpcs) == {"complete": 400, "damaged": 1}
    damaged = next(one for one in rpcs if one.state == "damaged")
    assert (damaged.name, damaged.damage) == ("WRITE", ("call: the end of the Send not captured",))


@pytest.mark.parametrize("step", [7, 300, 100_000])
def test_so_does_one_over_iwarp(step: int) -> None:
    wire = IwarpWire(mss=1460)
    connection = wire.connect()
    rpc = call(connection, nfs3.write(0, bytes(3000)))
    reply(rpc, nfs3.write_reply(3000))
    for _ in range(400):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    segments = wire.sent()
    sent = [one for one in segments if one.kind == "data" and not one.sender]
    assert len(sent[1].payload) > 1000
    capture = IwarpCapture(wire, [one for one in segments if one is not sent[2]])
    rpcs = analyzed(capture, step)
    assert Counter(one.state for one in rpcs) == {"complete": 400, "damaged": 1}
