"""RPC over TCP beside RPC-over-RDMA: the export of a sample to TCP, read back, has the same RPCs and files."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from playbook.commands import run
from playbook.samples import SAMPLES
from rdmascope.captures.session.session import Session
from rdmascope.captures.write import file_copies
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpcs import Reassembled, Rpc

NAMES = sorted(path.name.removesuffix(".pcap.zst") for path in SAMPLES.glob("*.pcap.zst"))
OF_RDMA = {"loss-rxe", "v2-falls-back"}
"""Samples with RPCs that TCP does not carry as they were: a call with a gap, and an RDMA2_ERR_VERS."""


SPARSE = 1 << 28
"""Bytes of files that are hardly more than a hole."""


def contents(message: Reassembled | None) -> object:
    if message is None:
        return None
    return message.pieces if message.complete else message.length


def described(rpc: Rpc) -> tuple[object, ...]:
    return (
        rpc.client, rpc.server, rpc.xid, rpc.backward, rpc.program, rpc.version, rpc.procedure, rpc.minor_version,
        rpc.operations, rpc.status, rpc.failed, contents(reassembled_call(rpc)), contents(reassembled_reply(rpc)),
    )  # fmt: skip


def rpcs_of(path: Path) -> tuple[Counter[tuple[object, ...]], Counter[str]]:
    """The RPCs, and their transports."""
    session = Session(str(path))
    found, transports = Counter[tuple[object, ...]](), Counter[str]()
    for table in session.tables():
        found.update(described(rpc) for rpc in table)
        transports.update(rpc.connection.transport for rpc in table)
    return found, transports


def files_of(path: Path, folder: Path, whole: bool) -> tuple[list[dict[str, object]], dict[str, str]]:
    """The files that were used, and the MD5 sums of what was transferred; ``whole``: no message has a gap."""
    listed = run("files", str(path), "--all", "--json", "--extract", str(folder))
    assert listed.exit_code == 0, listed.stderr
    # Where the export is mounted only MOUNT over TCP says, which is not exported.
    below = listed.stdout.replace('"/export"', '"/"').replace("/export/", "/")
    rows = [json.loads(line) for line in below.splitlines()]
    for row in rows:
        for name in ("extracted", *(() if whole else ("calls", "missing", "holes", "latency"))):
            row.pop(name, None)
    sums = {
        one.name: hashlib.md5(one.read_bytes()).hexdigest()
        for one in sorted(folder.rglob("*"))
        if one.is_file() and "manifest" not in one.name and one.stat().st_size < SPARSE
    }
    return rows, sums


@pytest.mark.parametrize("name", NAMES)
def test_an_export_to_tcp_has_the_same_rpcs_and_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_copies, "MAX_ZEROS", 1 << 20)  # A gigabyte of them takes seconds.
    sample, exported = SAMPLES / f"{name}.pcap.zst", tmp_path / "tcp.pcapng"
    assert run("export", str(sample), "-o", str(exported)).exit_code == 0
    (theirs, _), (ours, transports) = rpcs_of(sample), rpcs_of(exported)
    assert set(transports) == {"TCP"} and sum(ours.values()) == sum(theirs.values())
    if name not in OF_RDMA:
        assert ours == theirs
    else:
        assert 0 < sum((theirs - ours).values()) <= 8
    whole = name not in OF_RDMA
    assert files_of(exported, tmp_path / "there", whole) == files_of(sample, tmp_path / "here", whole)


def test_compare_says_which_is_faster(tmp_path: Path) -> None:
    rxe, siw = (str(SAMPLES / f"{name}-nfs-all.pcap.zst") for name in ("rxe", "siw"))
    tcp, other = str(tmp_path / "tcp.pcapng"), str(tmp_path / "other.pcapng")
    assert run("export", siw, "-o", tcp).exit_code == run("export", rxe, "-o", other).exit_code == 0
    first = run("compare", rxe, tcp, columns=500).stdout.splitlines()[0]
    assert first.startswith(
        "The second run, over TCP, is 20.9 times faster than the first, over RoCEv2, in NFSv4.0 GETATTR"
    )
    assert first.endswith(
        ". Time per RPC: server 43.7 ms and 21.1 ms, network 1.70 ms and 0, no retransmissions;"
        " throughput 889 KiB/s and 2.06 MiB/s"
    )
    first = run("compare", rxe, other, columns=500).stdout.splitlines()[0]
    assert first == (
        "No significant difference in 91 procedures of both runs, over RoCEv2 and over TCP. Time per RPC:"
        " server 43.7 ms and 45.4 ms (alike), network 1.70 ms and 0, no retransmissions;"
        " throughput 889 KiB/s and 889 KiB/s"
    )
