"""FPDUs whose CRC is wrong count as FPDUs, and as nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from playbook import call, nfs3, reply
from playbook.capture import frame_batches, write_pcap
from playbook.commands import objects, run
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.judge import analyze
from playbook.tcp import TcpSegment
from rdmascope.dissect.rpcrdma.analyzer import Analyzer


def spoiled(segment: TcpSegment) -> TcpSegment:
    data = segment.payload
    if not data or data.startswith(b"MPA"):
        return segment
    return replace(segment, payload=data[:-1] + bytes([data[-1] ^ 1]))


def test_a_connection_whose_every_crc_is_wrong(tmp_path: Path) -> None:
    wire = IwarpWire(mss=1460, seed=3)
    connection = wire.connect()
    for _ in range(3):
        rpc = call(connection, nfs3.getattr_())
        reply(rpc, nfs3.getattr_reply())
    path = tmp_path / "spoiled.pcap"
    write_pcap(IwarpCapture(wire, [spoiled(one) for one in wire.sent()]).frames, path)

    found = {one["type"]: one for one in objects("report", str(path))}
    assert found["capture"]["rpcs"] == 0
    assert [found["connection"][end]["fpdus"] for end in ("active", "passive")] == [3, 3]
    text = run("report", str(path)).stdout
    assert "connections with too little traffic to identify" in text and "another protocol" not in text


@pytest.mark.parametrize("frames", range(4, 7))
def test_a_marker_in_a_short_capture_without_set_up_damages_nothing(frames: int) -> None:
    """The first FPDU stands behind the first marker, which its CRC covers, too."""
    wire = IwarpWire(mss=1460)
    connection = wire.connect(cm=False, markers=(True, True), acks="none")
    for _ in range(frames):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    analyzer = Analyzer()
    for batch in frame_batches(IwarpCapture(wire, wire.sent()[:frames]).frames, []):
        analyzer.feed(batch)
    rpcs = analyzer.finish()
    assert [rpc.state for rpc in rpcs] == ["complete"] * (frames // 2) + ["no reply"] * (frames % 2)
    assert [direction.crc_failure_count for direction in analyzer.health(1).directions] == [0, 0]


@pytest.mark.parametrize("size", range(1, 6))
@pytest.mark.parametrize("cuts", [[], [1]])
def test_an_fpdu_that_begins_with_the_last_bytes_of_a_batch_is_read(size: int, cuts: list[int]) -> None:
    wire = IwarpWire(mss=1460)
    connection = wire.connect(cm=False, acks="none")
    for _ in range(2):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    first, *others = wire.sent()
    whole = first.payload
    behind = replace(first, payload=whole[size:], seq=first.seq + size, at=first.at + size)
    capture = IwarpCapture(wire, [replace(first, payload=whole[:size]), behind, *others])
    assert [rpc.state for rpc in analyze(capture, cuts)] == ["complete"] * 2
