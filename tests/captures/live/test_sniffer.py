"""An adapter's frames come from tcpdump; here from a stand-in that says the same things."""

from __future__ import annotations

import select
import sys
import time
from pathlib import Path

import pytest

from playbook import Capture, Wire, write_pcap
from playbook.shapes import read
from rdmascope.captures import CaptureError
from rdmascope.captures.live import Device, Filter, Sniffer
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpcs import Rpc

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="live capture is Linux's")

DEADLINE = 60
DEVICE = Device("mlx5_0", "adapter", ethernet=True)

WORKS = """#!/bin/sh
echo "$@" >{folder}/arguments
echo "tcpdump: listening on mlx5_0, link-type EN10MB (Ethernet), snapshot length 262144 bytes" >&2
trap 'echo "tcpdump: 7 packets captured, 12 packets received by filter, 5 packets dropped by kernel" >&2' USR1
trap 'exit 0' INT
cat {folder}/wire.pcap
while :; do sleep 0.05; done
"""
REFUSES = """#!/bin/sh
echo "tcpdump: mlx5_0: You don't have permission to perform this capture on that device" >&2
exit 1
"""


def stand_in(folder: Path, text: str) -> str:
    path = folder / "tcpdump"
    path.write_text(text.format(folder=folder))
    path.chmod(0o755)
    return str(path)


def test_frames_and_counters(tmp_path: Path) -> None:
    wire = Wire(seed=1)
    connection = wire.connect()
    for _ in range(20):
        read(connection)
    write_pcap(Capture(wire).frames, tmp_path / "wire.pcap")
    sniffer = Sniffer(DEVICE, Filter((20049,)), 262144, stand_in(tmp_path, WORKS))
    analyzer = Analyzer()
    found: list[Rpc] = []
    end = time.monotonic() + DEADLINE
    while len(found) < 20:
        assert time.monotonic() < end
        select.select([sniffer.fileno()], [], [], 0.1)
        if (batch := sniffer.read()) is not None:
            found += analyzer.feed(batch)
    while not sniffer.received:
        assert time.monotonic() < end
        sniffer.count()
        time.sleep(0.05)
    sniffer.close()
    assert {rpc.state for rpc in found} == {"complete"}
    assert (sniffer.received, sniffer.dropped) == (12, 5)
    arguments = (tmp_path / "arguments").read_text()
    assert arguments.startswith("-i mlx5_0 ")
    assert arguments.endswith("udp dst port 4791 or ether proto 0x8915 or tcp port 20049\n")


def test_what_tcpdump_complains_about_is_reported(tmp_path: Path) -> None:
    sniffer = Sniffer(DEVICE, Filter((20049,)), 262144, stand_in(tmp_path, REFUSES))
    end = time.monotonic() + DEADLINE
    with pytest.raises(CaptureError, match=r"mlx5_0: You don't have permission to perform this capture"):
        while time.monotonic() < end:
            sniffer.read()
            time.sleep(0.02)
    sniffer.close()


def test_without_tcpdump() -> None:
    with pytest.raises(CaptureError, match="captured by tcpdump-77, which is not installed: apt install tcpdump"):
        Sniffer(DEVICE, Filter((20049,)), 262144, "tcpdump-77")
