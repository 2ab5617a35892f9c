"""Send queues of a connection that is over need little memory, and go on where packets come after all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from playbook import Capture, Wire, call, nfs3, reply
from playbook.capture import frame_batches
from playbook.shapes import DATA, write
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.transport.rc import link, observer


def analysed() -> tuple[list[bool], Any]:
    """Packets behind a DREQ, in a batch of their own; whether the queues rest behind each batch, and what was found."""
    wire = Wire()
    ends: list[int] = []
    over, other = wire.connect(), wire.connect()
    for connection, disconnects in ((over, False), (over, True), (other, False), (over, False), (over, False)):
        reply(call(connection, nfs3.null()), nfs3.null_reply())
        if disconnects:
            connection.disconnect()
        ends.append(len(wire.frames()))
    analyzer = Analyzer()
    resting: list[bool] = []
    found: list[object] = []
    for batch in frame_batches(Capture(wire).frames, ends[:-1]):
        rpcs = analyzer.feed(batch)
        resting.append(analyzer._observer.links[1]._queues is None)
        found += [(rpc.number, rpc.xid, rpc.state, rpc.call_frame, rpc.latency, rpc.notes) for rpc in rpcs]
    found += [(rpc.number, rpc.state, rpc.notes) for rpc in analyzer.finish()]
    found += [analyzer.health(one.number) for one in analyzer.connections]
    found += [repr(one.packets) + repr(one.missing_packets) for one in analyzer.connections]
    return resting, found


def test_packets_of_a_connection_that_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "BEHIND_DREQ", 0)
    resting, found = analysed()
    assert resting == [False, False, True, False, False]
    monkeypatch.setattr(link, "at_rest", lambda queue: None)
    awake, expected = analysed()
    assert not any(awake)
    assert found == expected


def test_a_retransmission_behind_the_disconnect_counts_wherever_batches_end() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    write(connection, DATA[:3000])
    connection.disconnect()
    capture = Capture(wire)
    responses = [frame for packet, frame in zip(wire.packets, capture.frames, strict=True) if packet.kind == "response"]
    frames = [*capture.frames, replace(responses[-1], time=capture.frames[-1].time + 50_000)]
    for cut in range(1, len(frames)):
        analyzer = Analyzer()
        for batch in frame_batches(frames, [cut]):
            analyzer.feed(batch)
        analyzer.finish()
        again = [direction.original_captured.packets for direction in analyzer.health(1).directions]
        assert again == [1, 0], cut
