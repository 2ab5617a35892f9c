"""The sample captures, held to what is known about them.

The contents of calls and replies are read here with struct alone, so that a misreading in the product
cannot hide behind the same one in its test.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from playbook.samples import MANIFEST, SAMPLES, analyzed
from rdmascope.captures import open_capture
from rdmascope.captures.peer.shipped import shipped_scripts
from rdmascope.captures.peer.wire.script import captured, parse_script, play_script
from rdmascope.dissect.layers.characteristics_codes import XCHAR_RBSIZ
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpcs import Rpc

R1M = 1_024_000
NFS, NFS_CB = 100003, 0x40000000


def call_bytes(rpc: Rpc) -> bytes:
    reassembled = reassembled_call(rpc)
    assert reassembled is not None
    assert reassembled.complete
    return reassembled.prefix


def reply_bytes(rpc: Rpc) -> bytes:
    reassembled = reassembled_reply(rpc)
    assert reassembled is not None
    assert reassembled.complete
    return reassembled.prefix


class Cursor:
    """XDR, in order (RFC 4506)."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def words(self, count: int) -> tuple[int, ...]:
        values = struct.unpack_from(f">{count}I", self.data, self.at)
        self.at += 4 * count
        return values

    def word(self) -> int:
        return self.words(1)[0]

    def long(self) -> int:
        high, low = self.words(2)
        return high << 32 | low

    def fixed(self, length: int) -> bytes:
        data = self.data[self.at : self.at + length]
        assert len(data) == length
        pad = -length % 4
        assert self.data[self.at + length : self.at + length + pad] == bytes(pad)
        self.at += length + pad
        return data

    def opaque(self) -> bytes:
        return self.fixed(self.word())

    def end(self) -> bool:
        return self.at == len(self.data)


def arguments(rpc: Rpc) -> Cursor:
    """Behind the call header (RFC 5531, 9)."""
    cursor = Cursor(call_bytes(rpc))
    assert cursor.words(6) == (rpc.xid, 0, 2, rpc.program, rpc.version, rpc.procedure)
    for _ in "credential", "verifier":
        cursor.word()
        cursor.opaque()
    return cursor


def results(rpc: Rpc) -> Cursor:
    """Behind the header of an accepted, successful reply (RFC 5531, 9)."""
    cursor = Cursor(reply_bytes(rpc))
    assert cursor.words(3) == (rpc.xid, 1, 0)
    cursor.word()
    cursor.opaque()
    assert cursor.word() == 0
    return cursor


PUTFH, READ, SEQUENCE, WRITE = 22, 25, 53, 38


def to_operation(rpc: Rpc, wanted: int) -> tuple[Cursor, Cursor, bytes]:
    """Arguments and results of a READ or WRITE that only SEQUENCE and PUTFH precede, and its file handle."""
    call, reply = arguments(rpc), results(rpc)
    call.opaque()
    call.words(2)
    assert reply.word() == 0
    reply.opaque()
    reply.word()
    handle = b""
    while True:
        operation = call.word()
        assert reply.words(2) == (operation, 0)
        if operation == SEQUENCE:
            call.fixed(16 + 16)
            reply.fixed(16 + 20)
        elif operation == PUTFH:
            handle = call.opaque()
        else:
            assert operation == wanted
            return call, reply, handle


class Transfer(NamedTuple):
    connection: int
    handle: bytes
    offset: int
    data: bytes


def does(rpc: Rpc, procedure: str) -> bool:
    """The call is a READ or WRITE, alone or in a COMPOUND, and went well."""
    alone = rpc.version == 3 and rpc.name == procedure
    return rpc.program == NFS and rpc.status == "OK" and (alone or procedure in rpc.operations)


def reads(name: str) -> Iterator[Transfer]:
    """What READ gave (RFC 1813, 3.3.6; RFC 7530, 16.23; RFC 8881, 18.22)."""
    for rpc in analyzed(name).rpcs:
        if not does(rpc, "READ"):
            continue
        if rpc.version == 3:
            call, reply = arguments(rpc), results(rpc)
            handle, offset, _ = call.opaque(), call.long(), call.word()
            status, attributes = reply.words(2)
            assert status == 0
            reply.fixed(84 * attributes)
            count = reply.word()
        else:
            call, reply, handle = to_operation(rpc, READ)
            call.fixed(16)
            offset, _ = call.long(), call.word()
            count = None
        assert reply.word() in (0, 1)
        data = reply.opaque()
        assert count in (None, len(data))
        assert reply.end()
        yield Transfer(rpc.connection.number, handle, offset, data)


def writes(name: str) -> Iterator[Transfer]:
    """What WRITE took (RFC 1813, 3.3.7; RFC 7530, 16.36; RFC 8881, 18.32)."""
    for rpc in analyzed(name).rpcs:
        if not does(rpc, "WRITE"):
            continue
        count = None
        if rpc.version == 3:
            call = arguments(rpc)
            handle, offset = call.opaque(), call.long()
            count, _ = call.words(2)
        else:
            call, _, handle = to_operation(rpc, WRITE)
            call.fixed(16)
            offset, _ = call.long(), call.word()
        data = call.opaque()
        assert count in (None, len(data))
        yield Transfer(rpc.connection.number, handle, offset, data)


def files(transfers: Iterator[Transfer]) -> dict[tuple[int, bytes], bytes]:
    """Connection and handle -> contents.  A hole fails."""
    parts: dict[tuple[int, bytes], list[Transfer]] = {}
    for transfer in transfers:
        parts.setdefault((transfer.connection, transfer.handle), []).append(transfer)
    contents: dict[tuple[int, bytes], bytes] = {}
    for key, found in parts.items():
        joined = b""
        for transfer in sorted(found, key=lambda transfer: transfer.offset):
            assert transfer.offset == len(joined)
            joined += transfer.data
        contents[key] = joined
    return contents


@pytest.mark.parametrize("name", MANIFEST)
def test_the_manifest_is_true(name: str) -> None:
    entry, seen = MANIFEST[name], analyzed(name)
    stored = (SAMPLES / entry["file"]).read_bytes()
    assert hashlib.sha256(stored).hexdigest() == entry["sha256"]
    assert seen.analyzer.frames == entry["frames"]
    for kind, rdma in (("", True), ("tcp_", False)):
        assert sum(one.rdma == rdma for one in seen.analyzer.connections) == entry.get(f"{kind}connections", 0)
        assert sum(rpc.connection.rdma == rdma for rpc in seen.rpcs) == entry.get(f"{kind}rpcs", 0)


def test_every_sample_is_in_the_manifest() -> None:
    assert {path.name for path in SAMPLES.iterdir()} == {
        "manifest.toml",
        *(sample["file"] for sample in MANIFEST.values()),
    }


EVERY_VERSION = pytest.mark.parametrize("name", ["rxe-nfs-all", "siw-nfs-all"])


@pytest.mark.parametrize("name", [name for name in MANIFEST if name != "loss-rxe"])
def test_every_call_has_its_reply_and_nothing_is_damaged(name: str) -> None:
    seen = analyzed(name)
    assert set(seen.states()) <= {"complete", "error"}
    assert seen.analyzer.undecoded == []
    assert seen.analyzer.unplaced == {}
    for rpc in seen.rpcs:
        assert (rpc.damage, rpc.contents) == ((), "whole")
        assert rpc.call is not None
        assert rpc.reply is not None
        assert call_bytes(rpc)[:4] == struct.pack(">I", rpc.xid)
        if rpc.status != "RDMA2_ERR_VERS":  # which is no RPC message
            assert reply_bytes(rpc)[:4] == struct.pack(">I", rpc.xid)


OVER_RDMA = 3, 7, 10, 11
"""Connections of rxe-nfs-all and siw-nfs-all: between them are those of portmap, MOUNT and callbacks."""
PROCEDURES = {
    "rxe-nfs-all": {
        "COMPOUND OK": 163, "COMPOUND NFS4ERR_GRACE": 12, "GETATTR OK": 9, "ACCESS OK": 6, "READ OK": 5,
        "WRITE OK": 5, "GETACL OK": 4, "LOOKUP NFS3ERR_NOENT": 3, "COMPOUND NFS4ERR_NOENT": 3,
        "NULL OK": 7, "FSINFO OK": 2, "READDIRPLUS OK": 2, "CREATE OK": 2, "PATHCONF OK": 1, "READLINK OK": 1,
        "COMMIT OK": 1, "MKDIR OK": 1, "RENAME OK": 1, "SYMLINK OK": 1, "REMOVE OK": 1, "FSSTAT OK": 1,
        "GETPORT OK": 2, "MNT OK": 1, "UMNT OK": 1, "CB_NULL OK": 2,
    },
    "longcall-rxe": {
        "COMPOUND OK": 26, "COMPOUND NFS4ERR_NOSPC": 3, "SYMLINK OK": 3, "FSINFO OK": 2, "GETATTR OK": 2,
        "NULL OK": 5, "PATHCONF OK": 1, "ACCESS OK": 1, "GETPORT OK": 2, "MNT OK": 1, "UMNT OK": 1,
    },
    "loss-siw": {"COMPOUND OK": 41, "NULL OK": 1},
    "bidir-rxe": {"COMPOUND OK": 62, "NULL OK": 2, "CB_COMPOUND OK": 2},
    "loss-rxe": {"COMPOUND OK": 63, "COMPOUND ": 8, "COMPOUND NFS4ERR_RETRY_UNCACHED_REP": 6, "NULL OK": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", PROCEDURES)
def test_procedures_and_statuses(name: str) -> None:
    assert Counter(f"{rpc.name} {rpc.status}" for rpc in analyzed(name).rpcs) == PROCEDURES[name]


def test_metadata_by_operation() -> None:
    made = Counter(
        (rpc.version, operation) for rpc in analyzed("meta-rxe").rpcs for operation in (rpc.operations or (rpc.name,))
    )
    assert made[3, "CREATE"] == made[3, "REMOVE"] == made[3, "WRITE"] == 400
    assert made[4, "OPEN"] >= 400
    assert made[4, "REMOVE"] == made[4, "WRITE"] + 1 == 401


@EVERY_VERSION
def test_r1m_read_four_ways_is_one_file(name: str) -> None:
    contents = files(reads(name))
    for connection in OVER_RDMA:
        mine = sorted((data for (number, _), data in contents.items() if number == connection), key=len)
        assert [len(data) for data in mine] == [6, R1M]
        assert mine[0] == b"hello\n"
    assert len({data for data in contents.values() if len(data) == R1M}) == 1


@pytest.mark.parametrize("name", [name for name, sample in MANIFEST.items() if "r1m_md5" in sample])
def test_r1m_is_what_the_client_read(name: str) -> None:
    big = [data for data in files(reads(name)).values() if len(data) == R1M]
    assert {hashlib.md5(data).hexdigest() for data in big} == {MANIFEST[name]["r1m_md5"]}


@EVERY_VERSION
def test_zeros_and_an_odd_length_written_four_ways(name: str) -> None:
    contents = files(writes(name))
    for connection in OVER_RDMA:
        mine = sorted((data for (number, _), data in contents.items() if number == connection), key=len)
        assert mine == [b"abc", bytes(1 << 20)]


def test_a_copy_is_equal_to_its_source() -> None:
    (copy,) = files(writes("nconnect-rxe")).values()
    assert hashlib.md5(copy).hexdigest() == MANIFEST["nconnect-rxe"]["r1m_md5"]


def test_read_chunks_at_every_position_and_reply_chunks() -> None:
    kinds = Counter(
        "position zero" if chunk.kind == "read" and chunk.position == 0 else chunk.kind
        for name in ("rxe-nfs-all", "longcall-rxe")
        for rpc in analyzed(name).rpcs
        for chunk in rpc.chunks
    )
    assert {kind for kind, count in kinds.items() if count} == {"position zero", "read", "write", "reply"}


def symlinks() -> Iterator[tuple[Rpc, bytes]]:
    """Calls that make a symbolic link and its text (RFC 1813, 3.3.10; RFC 8881, 18.4)."""
    for rpc in analyzed("longcall-rxe").rpcs:
        if rpc.name == "SYMLINK":
            call = arguments(rpc)
            call.opaque()
            call.opaque()
            for _ in "mode", "uid", "gid":
                call.words(call.word())
            if call.word():
                call.long()
            for _ in "atime", "mtime":
                if call.word() == 2:
                    call.long()
            yield rpc, call.opaque()
        elif "CREATE" in rpc.operations:
            call = arguments(rpc)
            call.opaque()
            call.words(2)
            assert call.word() == SEQUENCE
            call.fixed(32)
            assert call.word() == PUTFH
            call.opaque()
            assert call.words(2) == (6, 5)
            yield rpc, call.opaque()


def test_links_of_every_length() -> None:
    texts = [(rpc.version, text) for rpc, text in symlinks()]
    assert texts == [(4, b"/" + b"y" * (n - 1)) for n in (500, 2000, 4000)] + [
        (3, b"/" + b"z" * (n - 1)) for n in (500, 2000, 4000)
    ]


def test_long_calls_are_put_together() -> None:
    """Extended attributes (RFC 8276, 8.4.2): the call is as long as its value needs."""
    lengths = []
    for rpc in analyzed("longcall-rxe").rpcs:
        if "SETXATTR" in rpc.operations:
            call = arguments(rpc)
            call.opaque()
            call.words(2)
            assert call.word() == SEQUENCE
            call.fixed(32)
            assert call.word() == PUTFH
            call.opaque()
            assert call.words(2) == (73, 0)
            name, value = call.opaque(), call.opaque()
            assert name == b"t%d" % len(value)
            lengths.append((len(value), any(chunk.position == 0 for chunk in rpc.chunks)))
    assert lengths == [(100, False), (3000, False), (5000, True), (16000, True), (60000, True)]


def test_long_replies_are_put_together() -> None:
    """A directory of 200 long names comes through Reply chunks (RFC 1813, 3.3.17; RFC 8881, 18.23)."""
    text = b"a-rather-long-file-name-to-make-the-directory-listing-large-%d"
    for connection in OVER_RDMA:
        listings = b"".join(
            reply_bytes(rpc)
            for rpc in analyzed("rxe-nfs-all").rpcs
            if rpc.connection.number == connection
            and (rpc.name == "READDIRPLUS" or "READDIR" in rpc.operations)
            and any(chunk.kind == "reply" and chunk.returned for chunk in rpc.chunks)
        )
        for number in range(1, 201):
            name = text % number
            assert struct.pack(">I", len(name)) + name in listings


def test_both_directions_of_a_connection() -> None:
    recalls = [rpc for rpc in analyzed("bidir-rxe").rpcs if rpc.backward]
    assert [(rpc.connection.number, rpc.program, rpc.name) for rpc in recalls] == [
        (1, NFS_CB, "CB_COMPOUND"),
        (1, NFS_CB, "CB_COMPOUND"),
    ]
    for rpc in recalls:
        assert rpc.operations == ("CB_SEQUENCE", "CB_RECALL")
        assert rpc.call is not None
        assert rpc.reply is not None
        assert (rpc.call.operation.initiator, rpc.reply.operation.initiator) == (1, 0)
        assert rpc.chunks == []


def test_connections_at_once_and_refused_ones() -> None:
    one, two, *refused = [link for link in analyzed("nconnect-rxe").analyzer.connections if link.rdma]
    assert one.first_time < two.first_time < one.last_time < two.last_time
    assert {rpc.version for rpc in analyzed("nconnect-rxe").rpcs if rpc.connection is one} == {3}
    assert [(link.service_port, link.ended_by) for link in refused] == [(20050, "REJ (Invalid Service ID)")] * 2


def test_ipv6_addresses() -> None:
    (connection,) = analyzed("ipv6-rxe").analyzer.connections
    assert [end.address for end in connection.endpoints] == ["fd77::2", "fd77::1"]


def test_what_the_network_lost_is_neither_missing_nor_twice() -> None:
    seen = analyzed("loss-rxe")
    first, second = seen.analyzer.connections
    assert seen.states() == {"complete": 64, "error": 6, "no reply": 8}
    assert {rpc.connection.number for rpc in seen.rpcs if rpc.state == "no reply"} == {first.number}
    for connection in first, second:
        assert connection.missing_packets == (0, 0)
        assert min(connection.retransmitted_packets) > 0
    zeros = [transfer for transfer in writes("loss-rxe") if transfer.connection == second.number]
    assert {len(transfer.data) for transfer in zeros} == {1 << 18}
    assert not any(any(transfer.data) for transfer in zeros)


def test_what_was_written_past_losses() -> None:
    (written,) = files(writes("loss-siw")).values()
    assert written == bytes(6 << 20)


SCRIPTED = [name for name in MANIFEST if name in shipped_scripts()]


@pytest.mark.parametrize("name", SCRIPTED)
def test_what_nobody_recorded_is_what_its_script_plays(name: str) -> None:
    script = parse_script(shipped_scripts()[name])
    played = [frame for frame, _ in captured(script, play_script(script)[0])]
    with open_capture(str(SAMPLES / MANIFEST[name]["file"])) as capture:
        stored = [
            (int(row["time"]), batch.data[row["offset"] : row["offset"] + row["captured"]].tobytes())
            for batch in capture.batches()
            for row in batch.rows
        ]
    assert stored == played


SETTLED = {"v2-settles": [2], "v2-falls-back": [1, 1], "v2-characteristics": [2, 2, 2]}


@pytest.mark.parametrize("name", SETTLED)
def test_the_versions_and_sizes_of_version_2(name: str) -> None:
    conversations = analyzed(name).analyzer.conversations
    assert [one.negotiation.settled for one in conversations] == SETTLED[name]
    if name == "v2-settles":
        sizes = [conversations[0].in_force(XCHAR_RBSIZ, end, 1 << 30).value for end in (0, 1)]
        assert sizes == [16384, 16384]
