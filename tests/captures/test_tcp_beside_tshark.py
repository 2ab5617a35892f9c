"""RPC over TCP beside tshark: how many RPCs of each program, and how long the servers took; fields of each message."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

import rdmascope
from playbook.commands import run
from playbook.samples import SAMPLES

NAMES = "rxe-nfs-all", "siw-nfs-all", "meta-rxe", "longcall-rxe", "nconnect-rxe", "bidir-rxe"
PROGRAM = re.compile(r"^.*?\((\d+)\)\s+(\d+)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)$", re.M)

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


def tshark(path: Path, *arguments: str) -> str:
    return subprocess.run(["tshark", "-2", "-r", path, *arguments], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module", params=NAMES)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "tcp.pcapng"
    assert run("export", str(SAMPLES / f"{request.param}.pcap.zst"), "-o", str(path)).exit_code == 0
    return path


def test_counts_and_service_times(exported: Path) -> None:
    times: dict[tuple[int, int], list[int]] = defaultdict(list)
    for rpc in rdmascope.read(exported):
        if rpc.latency is not None:
            times[rpc.program or 0, rpc.version or 0].append(rpc.latency.total)
    theirs = {
        (int(program), int(version)): (int(calls), float(least), float(most))
        for program, version, calls, least, most, _ in PROGRAM.findall(tshark(exported, "-q", "-z", "rpc,programs"))
    }
    assert theirs.keys() == times.keys()
    for key, (calls, least, most) in theirs.items():
        ours = times[key]
        assert calls == len(ours)
        assert (least, most) == pytest.approx((min(ours) / 1e9, max(ours) / 1e9), abs=1e-6)


def test_fields_of_each_message(exported: Path) -> None:
    fields = ["frame.number", "rpc.msgtyp", "rpc.xid", "rpc.program", "rpc.programversion", "rpc.procedure"]
    printed = tshark(exported, "-Y", "rpc", "-T", "fields", *(part for one in fields for part in ("-e", one)))
    theirs: set[tuple[int | None, ...]] = set()
    for line in printed.splitlines():
        frame, *others = line.split("\t")
        # Each message has packets of its own; arguments may name a program, too.
        kind, xid, program, version, procedure = (one.partition(",")[0] for one in others)
        theirs.add((int(frame), int(kind), int(xid, 16), *map(int, (program, version, procedure))))
    ours: set[tuple[int | None, ...]] = set()
    for rpc in rdmascope.read(exported):
        named = rpc.xid, rpc.program, rpc.version, rpc.procedure
        for which, message in enumerate((rpc.call, rpc.reply)):
            if message is not None:
                ours.add((message.operation.last_frame, which, *named))
    assert ours == theirs
