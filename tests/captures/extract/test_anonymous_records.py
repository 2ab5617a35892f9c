"""RPC over TCP and UDP in an anonymous cut: the same RPCs, and none of their names, handles, addresses and data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from playbook import write_pcap
from playbook.packets import Frame
from playbook.rpc import opaque, u32
from playbook.segments import EPOCH, STEP, Talk
from rdmascope.captures import open_capture
from rdmascope.captures.extract.cut import Choice, extract
from rdmascope.captures.session.session import Session
from rdmascope.dissect.rpcrdma.rpcs import Rpc

from .test_anonymous import packed, rpcs
from .test_cut import in_order

NFS, MOUNT = 100003, 100005
HANDLE, PATH, NAME, HOST = b"\x01\x00secret-handle-of-1", b"/export/payroll", b"salaries-2026.csv", b"ledger.example"
CLIENT, SERVER = "10.0.0.1", "10.0.0.2"
SECRETS = HANDLE[2:], PATH[1:], b"payroll", NAME, HOST, packed(CLIENT), packed(SERVER), bytes(range(64))
CREDENTIAL = u32(1) + opaque(u32(7) + opaque(HOST) + u32(1000, 100, 1, 27)) + u32(0, 0)


def call(xid: int, program: int, procedure: int, arguments: bytes) -> bytes:
    return u32(xid, 0, 2, program, 3, procedure) + CREDENTIAL + arguments


def reply(xid: int, results: bytes) -> bytes:
    return u32(xid, 1, 0, 0, 0, 0) + results


EXCHANGES = [
    (call(1, MOUNT, 1, opaque(PATH)), reply(1, u32(0) + opaque(HANDLE) + u32(1, 1))),
    (call(2, NFS, 3, opaque(HANDLE) + opaque(NAME)), reply(2, u32(2, 0))),
    (call(3, NFS, 6, opaque(HANDLE) + u32(0, 0, 256)), reply(3, u32(0, 0, 256, 1) + opaque(bytes(range(256))))),
]


def datagrams() -> list[Frame]:
    made = []
    for number, exchange in enumerate(EXCHANGES):
        for answers, message in enumerate(exchange):
            ends, ports = (CLIENT, SERVER)[:: -1 if answers else 1], (700, 20048)[:: -1 if answers else 1]
            packet = Ether() / IP(src=ends[0], dst=ends[1]) / UDP(sport=ports[0], dport=ports[1]) / Raw(message)
            data = bytes(packet)
            made.append(Frame(EPOCH + (2 * number + answers) * STEP, data, len(data)))
    return made


def segments() -> list[Frame]:
    """In pieces, and several in one."""
    talk = Talk(ports=(700, 2049))
    talk.open()
    for asked, answered in EXCHANGES:
        talk.put(0, u32(1 << 31 | len(asked)) + asked, (60, 7))
        talk.put(1, u32(1 << 31 | len(answered)) + answered)
    return talk.frames()


def sizes(path: Path) -> list[tuple[int | None, int, int]]:
    def of(rpc: Rpc) -> tuple[int | None, int, int]:
        assert rpc.call is not None and rpc.reply is not None
        return rpc.xid, rpc.call.operation.length, rpc.reply.operation.length

    return [of(rpc) for rpc in Session(str(path)).rpcs()]


@pytest.mark.parametrize("made", [datagrams, segments])
def test_names_and_data_are_others_and_lengths_stay(made: Callable[[], list[Frame]], tmp_path: Path) -> None:
    source, out = tmp_path / "in.pcap", tmp_path / "out.pcapng"
    write_pcap(made(), source)
    extracted = extract(lambda: Session(str(source)), out, Choice(rpcs=frozenset({1, 2, 3})), anonymize=True)
    assert not extracted.left_out
    there = source.read_bytes()
    assert all(secret in there for secret in SECRETS)
    written = out.read_bytes()
    assert not [secret for secret in SECRETS if secret in written]
    assert sizes(source) == sizes(out) and len(sizes(out)) == len(EXCHANGES)
    one, two = in_order(rpcs(source)), in_order(rpcs(out))
    for name in ("xid", "program", "procedure", "state", "status", "call_bytes", "reply_bytes", "count_bytes"):
        assert [rpc[name] for rpc in one] == [rpc[name] for rpc in two]
    assert [rpc["contents"] for rpc in two] == [rpc["contents"] for rpc in one]


@pytest.mark.parametrize("checksum", [True, False])
def test_checksums_of_datagrams(checksum: bool, tmp_path: Path) -> None:
    frames = datagrams()
    if not checksum:
        frames = [replace(one, data=one.data[:40] + bytes(2) + one.data[42:]) for one in frames]
    write_pcap(frames, tmp_path / "in.pcap")
    whole = Choice(connections=frozenset({1}))
    extract(lambda: Session(str(tmp_path / "in.pcap")), tmp_path / "out.pcapng", whole, anonymize=True)
    with open_capture(str(tmp_path / "out.pcapng")) as capture:
        written = [batch.frame(number).data for batch in capture.batches() for number in batch.rows["number"].tolist()]
    assert len(written) == len(frames)
    for data in written:
        made = Ether(data)
        stored = made[UDP].chksum
        del made[UDP].chksum
        assert stored == (Ether(bytes(made))[UDP].chksum if checksum else 0)
