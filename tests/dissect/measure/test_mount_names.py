"""Mount roots that MOUNT names, over TCP or UDP beside NFS over RDMA."""

from __future__ import annotations

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from playbook import Capture, Wire, nfs3
from playbook.capture import frame_batch
from playbook.packets import Frame
from playbook.rpc import opaque, u32
from rdmascope.dissect.measure.file_names import PathLearner
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from .test_files import ask, lookup

HANDLE = b"handle of the root"
MOUNT, MNT = 100005, 1
TIME = 1_000_000_000


def call(xid: int = 7, path: bytes = b"/export", program: int = MOUNT, procedure: int = MNT) -> bytes:
    return u32(xid, 0, 2, program, 3, procedure) + u32(0, 0, 0, 0) + opaque(path)


def reply(xid: int = 7, status: int = 0, handle: bytes = HANDLE) -> bytes:
    return u32(xid, 1, 0, 0, 0, 0, status) + opaque(handle) + u32(1, 1)


def frames(*messages: tuple[bytes, bool], version: int = 4, udp: bool = False) -> list[Frame]:
    """Messages, and whether the server sent each."""
    found, seq = [], [1, 1]
    for index, (message, answers) in enumerate(messages):
        source, destination = ("10.0.0.1", "10.0.0.2")[:: 1 if answers else -1]
        ends = (
            IP(src=source, dst=destination)
            if version == 4
            else IPv6(src=f"fd00::{source[-1]}", dst=f"fd00::{destination[-1]}")
        )
        sport, dport = (711, 43210)[:: -1 if answers else 1]
        data = message if udp else u32(1 << 31 | len(message)) + message
        above = UDP(sport=sport, dport=dport) if udp else TCP(sport=sport, dport=dport, flags="PA", seq=seq[answers])
        seq[answers] += len(data)
        frame = bytes(Ether() / ends / above / Raw(data))
        found.append(Frame(TIME + index, frame, len(frame)))
    return found


def roots(taken: list[Frame]) -> list[tuple[str, bytes, str | None]]:
    analyzer, learner = Analyzer(), PathLearner()
    learner.learn_names(RpcTable(analyzer.feed(frame_batch(taken)) + analyzer.finish()))
    return [(one.server, one.handle, one.root) for one in learner.paths]


@pytest.mark.parametrize("udp", [False, True])
@pytest.mark.parametrize("version", [4, 6])
def test_a_call_and_its_reply(version: int, udp: bool) -> None:
    server = "10.0.0.1" if version == 4 else "fd00::1"
    found = roots(frames((call(), False), (reply(), True), version=version, udp=udp))
    assert found == [(server, HANDLE, "/export")]


@pytest.mark.parametrize(
    "messages",
    [
        [(reply(), True)],
        [(call(), False), (reply(8), True)],
        [(call(), False), (reply(status=13), True)],
        [(call(), False), (reply(), False)],
        [(call(procedure=3), False), (reply(), True)],
        [(call(program=100003), False), (reply(), True)],
    ],
)
@pytest.mark.parametrize("udp", [False, True])
def test_what_is_no_mount_that_succeeded(messages: list[tuple[bytes, bool]], udp: bool) -> None:
    assert roots(frames(*messages, udp=udp)) == []


def test_paths_below_the_root() -> None:
    wire = Wire()
    conn = wire.connect(server="10.0.0.1")
    lookup(conn, HANDLE, b"file", b"handle of a file")
    ask(conn, nfs3.getattr_(b"handle of a file"), nfs3.getattr_reply())
    analyzer, learner = Analyzer(), PathLearner()
    learner.learn_names(RpcTable(analyzer.feed(frame_batch(frames((call(), False), (reply(), True))))))
    rpcs = analyzer.feed(frame_batch(Capture(wire).frames, 3)) + analyzer.finish()
    nfs = RpcTable([rpc for rpc in rpcs if rpc.connection.rdma])
    assert [one.path() for one in learner.named(nfs)] == ["/export/file", "/export/file"]
