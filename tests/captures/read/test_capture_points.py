"""One conversation captured at both ends, by two clocks: it counts once, and the clocks are compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from playbook import Capture, Wire, shapes, write_pcap
from playbook.commands import run
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.packets import Frame
from rdmascope import read

CLIENT, SERVER, OTHER_CLIENT = "10.0.0.2", "10.0.0.1", "10.0.0.3"
MILLISECOND = 1_000_000
OFFSET = -250 * MILLISECOND


def conversation(iwarp: bool, client: str = CLIENT, seed: int = 1) -> list[Frame]:
    wire: Wire | IwarpWire = IwarpWire(mss=1448, seed=seed) if iwarp else Wire(seed=seed)
    connection = wire.connect(client, SERVER)
    for _ in range(4):
        shapes.read(connection, bytes(range(256)) * 32)
        shapes.write(connection, bytes(range(256)) * 16)
        wire.pause(10 * MILLISECOND)
    return (IwarpCapture(wire) if isinstance(wire, IwarpWire) else Capture(wire)).frames


def at_other_end(frames: list[Frame], least: int, most: int, offset: int = OFFSET) -> list[Frame]:
    """The same frames at the server, whose clock is ``offset`` ahead; each way takes ``least`` to ``most`` ns."""
    chance = Random(3)
    seen = []
    for frame in frames:
        transit = chance.randint(least, most)
        from_client = frame.data[26:30] == bytes(map(int, CLIENT.split(".")))
        seen.append(replace(frame, time=frame.time + offset + (transit if from_client else -transit)))
    return sorted(seen, key=lambda frame: frame.time)


def rpcs(*paths: Path) -> list[tuple[object, ...]]:
    with read([str(path) for path in paths]) as capture:
        return [
            (rpc.xid, rpc.procedure, rpc.state, rpc.latency.total if rpc.latency else None)
            for rpc in sorted(capture.rpcs(), key=lambda rpc: rpc.number)
        ]


@pytest.mark.parametrize("iwarp", [False, True], ids=["RoCEv2", "iWARP"])
@pytest.mark.parametrize("most", [2, 40], ids=["ms", "40 ms"])
def test_the_traffic_counts_once_and_with_the_times_of_the_first_point(tmp_path: Path, iwarp: bool, most: int) -> None:
    frames = conversation(iwarp)
    client, server = tmp_path / "client.pcap", tmp_path / "server.pcap"
    write_pcap(frames, client)
    write_pcap(at_other_end(frames, MILLISECOND, most * MILLISECOND), server)
    assert rpcs(client, server) == rpcs(client)
    assert rpcs(server, client) == rpcs(server)
    with read([str(client), str(server)]) as capture:
        list(capture.rpcs())
        assert sum(sum(one.retransmitted_packets) for one in capture.connections) == 0


def test_the_clocks_are_compared(tmp_path: Path) -> None:
    frames = conversation(False)
    seen = at_other_end(frames, MILLISECOND, 4 * MILLISECOND)
    client, server = tmp_path / "client.pcap", tmp_path / "server.pcap"
    lost = 5
    write_pcap(frames, client)
    write_pcap([*seen[:40], *seen[40 + lost :]], server)
    result = run("report", str(client), str(server), "--json")
    (point,) = (one for one in map(json.loads, result.stdout.splitlines()) if one["type"] == "capture_point")
    assert abs(point["clock_offset_ns"] - OFFSET) <= point["clock_offset_error_ns"] < 3 * MILLISECOND
    assert (point["capture"], point["first_capture"]) == (str(server), str(client))
    assert point["hosts"] == [[SERVER, CLIENT]]
    assert point["packets_at_both"] == len(frames) - lost
    assert (point["packets_only_here"], point["packets_only_first"]) == (0, lost)
    assert MILLISECOND < point["transit_from_first_ns"] < 4 * MILLISECOND
    assert MILLISECOND < point["transit_to_first_ns"] < 4 * MILLISECOND
    assert "at another capture point, by a clock that is" in result.stderr


def test_other_hosts_at_the_second_point_are_read_there(tmp_path: Path) -> None:
    ours, theirs = conversation(False), conversation(False, OTHER_CLIENT, seed=2)
    client, server, alone = tmp_path / "client.pcap", tmp_path / "server.pcap", tmp_path / "alone.pcap"
    write_pcap(ours, client)
    shifted = [replace(frame, time=frame.time + OFFSET) for frame in theirs]
    seen = at_other_end(ours, MILLISECOND, 2 * MILLISECOND)
    write_pcap(sorted([*seen, *shifted], key=lambda frame: frame.time), server)
    write_pcap(theirs, alone)
    assert sorted(map(str, rpcs(client, server))) == sorted(map(str, [*rpcs(client), *rpcs(alone)]))


def test_two_interfaces_of_one_host_are_no_two_points(tmp_path: Path) -> None:
    frames = conversation(False)
    first, second = tmp_path / "eth0.pcap", tmp_path / "eth1.pcap"
    write_pcap(frames, first)
    write_pcap([replace(frame, time=frame.time + 2_000) for frame in frames], second)
    result = run("report", str(first), str(second), "--json")
    assert not any('"type":"capture_point"' in line for line in result.stdout.splitlines())
    assert rpcs(first, second) == rpcs(first)


def test_two_halves_of_one_capture_are_no_two_points(tmp_path: Path) -> None:
    frames = conversation(False)
    half = len(frames) // 2
    write_pcap(frames[:half], tmp_path / "a.pcap")
    write_pcap(frames[half:], tmp_path / "b.pcap")
    write_pcap(frames, tmp_path / "whole.pcap")
    assert rpcs(tmp_path / "a.pcap", tmp_path / "b.pcap") == rpcs(tmp_path / "whole.pcap")
    assert "capture point" not in run("report", str(tmp_path / "a.pcap"), str(tmp_path / "b.pcap")).stderr
