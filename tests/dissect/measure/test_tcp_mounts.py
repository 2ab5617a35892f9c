"""Mount roots that MOUNT over TCP names."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from playbook import Capture, Wire, nfs3
from playbook.capture import frame_batch
from playbook.packets import Frame
from playbook.rpc import opaque, u32
from rdmascope.dissect.measure.file_names import PathLearner
from rdmascope.dissect.measure.tcp_mounts import TcpMounts
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from .test_files import ask, lookup

HANDLE = b"handle of the root"
MOUNT, MNT = 100005, 1
TIME = 1_000_000_000


def record(message: bytes) -> bytes:
    return pack(">I", 1 << 31 | len(message)) + message


def call(xid: int = 7, path: bytes = b"/export", program: int = MOUNT, procedure: int = MNT) -> bytes:
    return record(u32(xid, 0, 2, program, 3, procedure) + u32(0, 0, 0, 0) + opaque(path))


def reply(xid: int = 7, status: int = 0, handle: bytes = HANDLE) -> bytes:
    return record(u32(xid, 1, 0, 0, 0, 0, status) + opaque(handle) + u32(1, 1))


def frames(*messages: tuple[bytes, bool], version: int = 4, ports: tuple[int, int] = (711, 20048)) -> list[Frame]:
    """Segments, and whether the server sent each."""
    found = []
    for index, (message, answers) in enumerate(messages):
        source, destination = ("10.0.0.1", "10.0.0.2")[:: 1 if answers else -1]
        ends = (
            IP(src=source, dst=destination)
            if version == 4
            else IPv6(src=f"fd00::{source[-1]}", dst=f"fd00::{destination[-1]}")
        )
        sport, dport = ports[:: -1 if answers else 1]
        data = bytes(Ether() / ends / TCP(sport=sport, dport=dport, flags="PA") / Raw(message))
        found.append(Frame(TIME + index, data, len(data)))
    return found


def roots(taken: list[Frame]) -> list[tuple[str, bytes | None, bytes | None, int]]:
    analyzer = Analyzer()
    mounts = TcpMounts(analyzer.decoder.tcp_addresses)
    analyzer.on_tcp = mounts.feed
    analyzer.feed(frame_batch(taken))
    return [(one.server, one.event.name, one.event.handle, one.time) for one in mounts.roots]


@pytest.mark.parametrize("version", [4, 6])
def test_a_call_and_its_reply(version: int) -> None:
    server = "10.0.0.1" if version == 4 else "fd00::1"
    found = roots(frames((call(), False), (reply(), True), version=version))
    assert found == [(server, b"/export", HANDLE, TIME + 1)]


@pytest.mark.parametrize(
    "messages",
    [
        [(reply(), True)],
        [(call(), False), (reply(8), True)],
        [(call(), False), (reply(status=13), True)],
        [(call(), False), (reply(), False)],
        [(call(procedure=3), False), (reply(), True)],
        [(call(program=100003), False), (reply(), True)],
        [(call()[:-4], False), (reply(), True)],
        [(call(), False), (reply()[:-4], True)],
        [(call(), False), (reply()[4:], True)],
    ],
)
def test_what_is_no_mount_that_succeeded(messages: list[tuple[bytes, bool]]) -> None:
    assert roots(frames(*messages)) == []


def test_a_reply_counts_once() -> None:
    assert len(roots(frames((call(), False), (reply(), True), (reply(), True)))) == 1


@given(
    st.lists(
        st.tuples(st.one_of(st.binary(max_size=90), st.sampled_from([call(), reply()])), st.booleans()), max_size=6
    )
)
def test_any_segments(messages: list[tuple[bytes, bool]]) -> None:
    for _, name, handle, _ in roots(frames(*messages)):
        assert (name, handle) == (b"/export", HANDLE)


def test_paths_below_the_root() -> None:
    wire = Wire()
    conn = wire.connect(server="10.0.0.1")
    lookup(conn, HANDLE, b"file", b"handle of a file")
    ask(conn, nfs3.getattr_(b"handle of a file"), nfs3.getattr_reply())
    analyzer = Analyzer()
    mounts = TcpMounts(analyzer.decoder.tcp_addresses)
    analyzer.on_tcp = mounts.feed
    analyzer.feed(frame_batch(frames((call(), False), (reply(), True))))
    learner = PathLearner(mounts=mounts.roots)
    rpcs = analyzer.feed(frame_batch(Capture(wire).frames, 3)) + analyzer.finish()
    assert [one.path() for one in learner.named(RpcTable(rpcs))] == ["/export/file", "/export/file"]
