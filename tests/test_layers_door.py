"""``import rdmascope.layers``: RPC-over-RDMA in Scapy, and the page about it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from playbook.commands import LONG_CALLS, SAMPLES, unpacked

ROOT = Path(__file__).parents[1]
PROGRAM = """
import sys
from scapy.utils import PcapReader
from rdmascope.layers import BTH, RPCRDMA, bind
before = sum(RPCRDMA in packet for packet in PcapReader(sys.argv[1]))
numbers = bind(sys.argv[2])
packets = list(PcapReader(sys.argv[1]))
xids = [packet[RPCRDMA].xid for packet in packets if RPCRDMA in packet]
assert bind(5) == [5]
print(before, len(numbers), *xids)
"""


def run(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("capture", "told"), [(LONG_CALLS, False), (str(SAMPLES / "loss-siw.pcap.zst"), True)])
def test_sends_are_rpc_over_rdma_where_ports_and_queue_pairs_tell(capture: str, told: bool, tmp_path: Path) -> None:
    import rdmascope

    plain = tmp_path / "plain.pcap"
    plain.write_bytes(unpacked(capture))
    before, numbers, *xids = map(int, run(PROGRAM, str(plain), capture).split())
    assert (before > 0, numbers > 0) == (told, not told)
    assert {rpc.xid for rpc in rdmascope.read(capture)} >= set(xids) and len(set(xids)) > 10


def test_the_page() -> None:
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "scapy.md").read_text(), re.DOTALL)
    run("\n".join(program for program in programs if "sniff(" not in program) + "\nassert queue_pairs")
