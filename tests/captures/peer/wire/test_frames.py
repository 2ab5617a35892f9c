"""The frames of the in-memory wire are what devices send: checked by arithmetic of one's own, and by tshark."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path as FilePath

import pytest

from playbook.packets import checksum, icrc
from playbook.spoken import SIX, change, script
from rdmascope.captures.peer.shipped import write_capture
from rdmascope.captures.peer.wire.network import Path, TapedFrame
from rdmascope.captures.peer.wire.script import Script, calls_of, captured, play_script
from rdmascope.dissect.layers.fpdus import split_fpdus, verify_crc
from rdmascope.dissect.layers.mpa import STARTUP_BYTES

ETHERNET, UDP_BYTES = 14, 8
PATHS = pytest.mark.parametrize("path", [Path(), SIX], ids=["IPv4", "IPv6"])
WIRESHARK = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


def played(version: int, transport: str, path: Path | None = None) -> list[TapedFrame]:
    return play_script(script(version, transport, path))[0]


def network_bytes(frame: bytes) -> int:
    return 20 if frame[ETHERNET] >> 4 == 4 else 40


@PATHS
@pytest.mark.parametrize("version", [1, 2])
def test_every_rocev2_packet_has_the_right_lengths_and_icrc(version: int, path: Path) -> None:
    for frame in played(version, "rocev2", path):
        data = frame.data[ETHERNET:]
        at = network_bytes(frame.data)
        ip, udp, packet = data[:at], data[at : at + UDP_BYTES], data[at + UDP_BYTES :]
        assert struct.unpack_from(">H", udp, 4)[0] == UDP_BYTES + len(packet)
        assert len(packet) % 4 == 0
        assert packet[-4:] == icrc(ip, udp, packet[:-4])
        if at == 20:
            assert checksum(ip) == 0
            assert struct.unpack_from(">H", ip, 2)[0] == len(data)


@PATHS
@pytest.mark.parametrize("markers", [False, True])
@pytest.mark.parametrize("revision", [1, 2])
def test_every_tcp_segment_follows_the_last_and_every_fpdu_has_its_crc(
    revision: int, markers: bool, path: Path
) -> None:
    frames, _ = play_script(change(script(1, "iwarp", path), mpa_revision=revision, markers=markers))
    streams: dict[int, bytearray] = {}
    following: dict[int, int] = {}
    for frame in frames:
        data = frame.data[ETHERNET:]
        at = network_bytes(frame.data)
        segment = data[at:]
        addresses = data[12:20] if at == 20 else data[8:40]
        pseudo = addresses + struct.pack(">II", 6, len(segment))
        assert checksum(pseudo + segment + bytes(len(segment) % 2)) == 0
        port, _, seq, _, head, flags = struct.unpack_from(">HHIIBB", segment)
        payload = segment[(head >> 4) * 4 :]
        assert following.setdefault(port, seq) == seq
        following[port] = (seq + len(payload) + bool(flags & 3)) & 0xFFFFFFFF
        streams.setdefault(port, bytearray()).extend(payload)
    assert len(streams) == 2
    for stream in streams.values():
        start = STARTUP_BYTES + struct.unpack_from(">H", stream, 18)[0]
        fpdus = split_fpdus(bytes(stream[start:]), 0 if markers else None)
        assert sum(len(one.wire) for one in fpdus) == len(stream) - start
        assert all(verify_crc(one.wire) for one in fpdus)


@pytest.mark.parametrize("transport", ["rocev2", "iwarp"])
def test_the_clock_goes_on_and_a_seed_repeats_itself(transport: str) -> None:
    frames = played(2, transport)
    assert all(one.time < other.time for one, other in pairwise(frames))
    assert frames == played(2, transport)
    assert frames != play_script(replace(script(2, transport), seed=1))[0]


@pytest.mark.parametrize("mtu", [256, 4096])
def test_no_packet_is_longer_than_the_mtu(mtu: int) -> None:
    frames = played(1, "rocev2", Path(mtu=mtu))
    longest = max(len(frame.data) for frame in frames if frame.data[23] == 17)
    assert mtu < longest <= ETHERNET + 20 + UDP_BYTES + 12 + 16 + mtu + 4


def test_a_capture_that_lost_frames_and_truncated_the_others() -> None:
    imperfect = replace(script(), lose=frozenset({2, 5, 6}), snaplen=100)
    frames, _ = play_script(imperfect)
    kept = captured(imperfect, frames)
    assert [frame.time for frame, _ in kept] == [one.time for n, one in enumerate(frames, 1) if n not in (2, 5, 6)]
    assert all(len(frame.data) == min(100, length) for frame, length in kept)


def tshark(path: FilePath, *arguments: str) -> list[str]:
    command = ["tshark", "-r", str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@WIRESHARK
@PATHS
@pytest.mark.parametrize("transport", ["rocev2", "iwarp"])
def test_tshark_finds_nothing_malformed_in_version_1(transport: str, path: Path, tmp_path: FilePath) -> None:
    # tshark does not put a chunk at Position 0 and another one together.
    whole: Script = script(1, transport, path)
    steps = tuple(step for step in whole.connections[0].steps if not step.chunks.zero)
    given = change(whole, steps=steps)
    file = tmp_path / "synth.pcapng"
    with file.open("wb") as out:
        write_capture(out, captured(given, play_script(given)[0]))
    # Where a Write chunk took the data out of an NFS reply, tshark calls the rest malformed, in any capture.
    assert tshark(file, "--disable-protocol", "nfs", "-Y", "_ws.malformed || tcp.analysis.flags") == []
    reported = tshark(file, "-Y", "rpc.msgtyp == 0", "-T", "fields", "-e", "rpc.xid")
    assert {int(xid, 16) for xid in reported} == {call.xid for _, call in calls_of(given.connections[0])}
