"""Packets in columns are the same packets as those that are objects; the JSON of either tells."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from playbook import Capture, Wire, call, faults, nfs3, nfs4, reply
from playbook.capture import frame_batches
from playbook.nfs4_client import CLIENT_ID, Client
from playbook.packet_objects import PacketLister, packet_record
from playbook.rpc import Call, Reply, opaque
from playbook.samples import MANIFEST, SAMPLES
from playbook.strategies import CAPTURE_FAULTS, WIRE_FAULTS, Conversation, conversations, faulty
from playbook.xdr_encode import done, op
from rdmascope.captures.peer.rpc import encoded
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.session import Session
from rdmascope.dissect.frames import FrameBatch, Place
from rdmascope.dissect.measure.filters import FrameRange, includes
from rdmascope.dissect.onc.naming import handle_hash
from rdmascope.dissect.onc.shapes.registry import PROGRAMS
from rdmascope.dissect.records.packet_columns import Find, ListedPackets, PacketColumnLister, packet_json
from rdmascope.dissect.records.schema import placed
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

from ..measure.test_files import DATA, FILE, SUB, ask, lookup, read, rename, write
from ..measure.test_paths import mount

CUTS = st.lists(st.integers(0, 1000), max_size=4)
QUICK = settings(
    max_examples=25,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


def text(records: object) -> str:
    return json.dumps(records, separators=(",", ":"), ensure_ascii=False)


def as_objects(
    batches: Iterable[FrameBatch], wanted: Sequence[FrameRange], at_once: bool, find: Find | None
) -> list[str]:
    lister = PacketLister(Analyzer(), at_once=at_once)
    packets = [packet for batch in batches for packet in lister.feed(batch)] + [*lister.finish()]
    records = [packet_record(packet) for packet in packets if includes(wanted, packet.frame)]
    return [text(record if find is None else placed(record, find)) for record in records]


def in_columns(
    batches: Iterable[FrameBatch], wanted: Sequence[FrameRange], at_once: bool, find: Find | None
) -> list[str]:
    """With each line its packet as an object."""
    lister = PacketColumnLister(Analyzer(), wanted, at_once)
    lines: list[str] = []

    def take(found: Iterable[ListedPackets]) -> None:
        for one in found:
            made = [line.decode() for line in packet_json(one, find, str.encode)]
            for line, packet in zip(made, one.objects(), strict=True):
                fields = json.loads(line)
                said = packet.frame, packet.source, packet.destination, packet.protocol, packet.rpc
                assert said == tuple(fields[name] for name in ("frame", "source", "destination", "protocol", "rpc"))
                assert packet.info.encode("utf-8", "surrogateescape") == fields["info"].encode(
                    "utf-8", "surrogateescape"
                )
            lines.extend(made)

    for batch in batches:
        take(lister.feed(lister.analyzer.decoder.take(batch)))
    take(lister.finish())
    return lines


def compare(
    batches: Sequence[FrameBatch], wanted: Sequence[FrameRange] = (), at_once: bool = False, find: Find | None = None
) -> list[str]:
    """Both lists are equal, and this is the one."""
    columns, objects = in_columns(batches, wanted, at_once, find), as_objects(batches, wanted, at_once, find)
    for one, other in zip(columns, objects, strict=False):
        assert one == other
    assert len(columns) == len(objects)
    return columns


def sample(name: str, frames: int | None = None) -> list[FrameBatch]:
    limits = None if frames is None else Limits(frames=frames)
    return [*Session(str(SAMPLES / MANIFEST[name]["file"]), limits=limits).batches()]


@pytest.mark.parametrize("name", [*MANIFEST])
def test_every_sample(name: str) -> None:
    infos = [json.loads(line)["info"] for line in compare(sample(name))]
    assert infos
    for info in infos:
        assert info and info == " ".join(info.split())


@pytest.mark.parametrize("name", ["meta-rxe", "loss-siw"])
@pytest.mark.parametrize("frames", [50, 333, 2000])
def test_batches_of_any_size(name: str, frames: int) -> None:
    batches = sample(name, frames)
    # Of many those in the middle, where NFSv4 comes after NFSv3.
    compare(batches[10_000 // frames : 14_000 // frames] or batches, at_once=frames == 333)


def test_some_frames_of_several_files() -> None:
    wanted = [FrameRange(20, 21), FrameRange(300, 420)]
    for name in ("meta-rxe", "loss-siw"):
        batches = sample(name, 100)[:12]  # Those behind them hold no frame that is wanted, and no reply to one.
        lines = compare(batches, wanted, find=lambda frame: Place('a "b".pcap', frame // 2) if frame % 7 else None)
        assert len(lines) > 80 and '"place":{"file":"a \\"b\\".pcap","frame":' in "".join(lines)


@QUICK
@given(faulty(WIRE_FAULTS + CAPTURE_FAULTS, conversations()), CUTS, st.integers(0, 20), st.booleans())
def test_any_conversation_with_any_fault(
    conversation: Conversation, cuts: list[int], start: int, at_once: bool
) -> None:
    capture = Capture(conversation.wire, faults.cut(conversation.packets, start))
    compare(frame_batches(capture.frames, cuts), at_once=at_once)


@pytest.mark.parametrize("seed", range(6))
def test_any_bytes_in_the_packets(seed: int) -> None:
    """Names, lengths, statuses, opcodes: what is unusual is said in the same words."""
    chance = random.Random(seed)
    (batch, *_) = sample("meta-rxe", 1500)
    data = batch.data.copy()
    for _ in range(400):
        row = batch.rows[chance.randrange(len(batch))]
        at = chance.choice((chance.randrange(42, 120), chance.randrange(int(row["captured"]))))
        data[int(row["offset"]) + at % int(row["captured"])] = chance.choice((0, 1, 255, chance.randrange(256)))
    half = chance.randrange(1, len(batch))
    compare([FrameBatch(data, batch.rows[:half]), FrameBatch(data, batch.rows[half:])])


def test_names_that_are_no_text_and_numbers_of_64_bits() -> None:
    wire = Wire()
    conn = wire.connect()
    names = b"plain", "größe".encode(), b'"quoted\\', b"\xff\xfe", b"bell\a", b"n" * 255, "é".encode() * 200, b""
    reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    for name in names:
        reply(call(conn, Call(nfs3.PROGRAM, 3, 3, (opaque(nfs3.FH) + opaque(name),))), nfs3.getattr_reply())
        lookup = nfs4.sequence(), nfs4.putfh(), nfs4.Op(15, (opaque(name),))
        answer = nfs4.sequence_done(), nfs4.putfh_done(), nfs4.Op(15)
        reply(call(conn, nfs4.compound(*lookup)), nfs4.compound_reply(*answer))
        failed = nfs4.sequence_done(), nfs4.putfh_done(), nfs4.failed(15, 2)
        reply(call(conn, nfs4.compound(*lookup)), nfs4.compound_reply(*failed))
    reply(call(conn, nfs3.write(5, b"abc")), nfs3.write_reply(3))
    reply(call(conn, nfs3.read(5, 3)), nfs3.read_failed())
    for offset in (0, 2**32, 2**64 - 1):
        reply(call(conn, nfs3.read(offset, 7)), nfs3.read_reply(b"1234567"))
    lines = compare(frame_batches(Capture(wire).frames, []))
    assert sum("/größe (Reply In" in line for line in lines) == 3
    assert sum("SEQUENCE | PUTFH | LOOKUP NFS4ERR_NOENT" in line for line in lines) == len(names)
    assert sum("V3 WRITE Reply Len: 3 FILE_SYNC" in line for line in lines) == 1
    assert any(f"Offset: {2**64 - 1} Len: 7" in line for line in lines)


def test_paths_of_what_calls_name() -> None:
    """Named, in a directory without a name, by handle alone, from the root, and nothing at all."""
    wire = Wire()
    conn = wire.connect()
    for operations in ((24, 15), (24,), (15,)):  # PUTROOTFH, LOOKUP
        asked = tuple(nfs4.Op(one, (opaque(b"dir"),) if one == 15 else ()) for one in operations)
        ask(conn, nfs4.compound(*asked), nfs4.compound_reply(nfs4.failed(operations[0], 2)))
    ask(conn, nfs3.getattr_(b"unknown"), nfs3.getattr_reply())
    lookup(conn, SUB, b"file", FILE)
    read(conn, 0, DATA)
    rename(conn, SUB, b"file", SUB, b"other")
    write(conn, 0, DATA)
    mount(conn, b"/export\x1b", SUB)
    ask(conn, nfs3.getattr_(FILE), nfs3.getattr_reply())
    lines = compare(frame_batches(Capture(wire).frames, (9,)))
    words = [json.loads(line)["info"].split(" (Reply In")[0] for line in lines if "(Reply In" in line]
    handle = f"{handle_hash(FILE):#010x}"
    assert words == [
        "V4.1 COMPOUND Call PUTROOTFH | LOOKUP, /dir",
        "V4.1 COMPOUND Call PUTROOTFH, /",
        "V4.1 COMPOUND Call LOOKUP/dir",
        "V3 GETATTR Call, FH: 0xad26a7c7",
        r"V3 LOOKUP Call, DH: 0xa420e19e/file /export\x1b/file",
        rf"V3 READ Call, FH: {handle} /export\x1b/file Offset: 0 Len: 8192",
        r"V3 RENAME Call, From DH: 0xa420e19e/file /export\x1b/file To DH: 0xa420e19e/other",
        rf"V3 WRITE Call, FH: {handle} /export\x1b/other Offset: 0 Len: 8192 FILE_SYNC",
        r"V3 MNT Call, /export?",
        rf"V3 GETATTR Call, FH: {handle} /export\x1b/other",
    ]


def sent(
    program: int, version: int, name: str, arguments: dict[str, Any], results: dict[str, Any]
) -> tuple[Call, Reply]:
    """A call of a declared procedure, and its reply."""
    shapes = PROGRAMS[program, version]
    number, shape = next((number, one) for number, one in shapes.items() if one.name == name)
    asked = (encoded(shape.arguments, arguments),) if shape.arguments is not None else ()
    answered = (encoded(shape.results, results),) if shape.results is not None else ()
    return Call(program, version, number, asked), Reply(answered)


def test_what_else_calls_ask_and_replies_answer() -> None:
    """Rights, new names, client IDs, lengths to the end of the file, and programs beside NFS."""
    wire = Wire()
    client = Client(wire.connect())
    client.begin()
    rest, owner = (1 << 64) - 1, {"clientid": 7, "owner": b"owner"}
    handle = f"FH: {handle_hash(nfs4.FH):#010x}"
    for one, other in (
        (op("ACCESS", access=0x1F), done("ACCESS", supported=0x1F, access=3)),
        (op("RENAME", oldname=b"a", newname=b"b"), done("RENAME")),
        (op("LINK", newname=b"c"), done("LINK")),
        (
            op("LOCK", locktype=2, length=rest, locker={"new_lock_owner": 0}),
            done("LOCK", 10010, denied={"owner": owner}),
        ),
        (op("COPY", ca_dst_offset=9, ca_count=5), done("COPY")),
        (op("WRITE_SAME", wsa_adb={"adb_block_count": 100}), done("WRITE_SAME")),
    ):
        client.ask(one, other)
    client.alone(op("RENEW", clientid=CLIENT_ID), done("RENEW"))
    root = {"dir": nfs4.FH, "name": b"name"}
    fattr = {"type": 2, "mode": 0o755, "uid": 5, "gid": 6}
    lock = {"fh": nfs4.FH, "svid": 7, "l_offset": 4096}
    mapping = {"prog": 100003, "vers": 3, "prot": 6}
    rpcb = {"r_prog": 100005, "r_vers": 3, "r_netid": b"rdma"}
    conn = wire.connect()
    for asked in (
        sent(100003, 3, "ACCESS", {"object": nfs4.FH, "access": 0x21F}, {"access": 0x203, "obj_attributes": fattr}),
        sent(100003, 3, "GETATTR", {"object": nfs4.FH}, {"obj_attributes": fattr}),
        sent(100003, 3, "READLINK", {"symlink": nfs4.FH}, {"data": b"../target"}),
        sent(100003, 3, "CREATE", {"where": root, "how": {"mode": 2}}, {"obj": b"new"}),
        sent(100003, 3, "MKNOD", {"where": root, "what": {"type": 3}}, {}),
        sent(100003, 3, "COMMIT", {"file": nfs4.FH, "offset": 1, "count": 2}, {}),
        sent(100021, 4, "LOCK", {"alock": lock}, {"stat": 3}),
        sent(100021, 4, "LOCK_RES", {"stat": 0}, {}),
        sent(100024, 1, "NOTIFY", {"mon_name": b"host"}, {}),
        sent(100227, 3, "GETACL", {"fh": nfs4.FH}, {}),
        sent(100005, 3, "MNT", {"dirpath": b"/export"}, {"fhandle": b"root"}),
        sent(100000, 2, "GETPORT", mapping, {"port": 20049}),
        sent(100000, 4, "GETADDR", rpcb, {"uaddr": b"10.0.0.1.78.81"}),
    ):
        ask(conn, *asked)
    lines = compare(frame_batches(Capture(wire).frames, (31,)))
    infos = [json.loads(line)["info"].split("; RPC")[0] for line in lines if " In " in line]
    words = [info.partition(" (Reply In")[0].partition(" (Call In")[0] for info in infos]
    compounds = [word.removeprefix("V4.1 COMPOUND ").replace("SEQUENCE | PUTFH | ", "") for word in words[:20]]
    assert compounds == [
        "Call EXCHANGE_ID", "Reply EXCHANGE_ID NFS4_OK, Client ID: 0x1122334455667788",
        "Call CREATE_SESSION, Client ID: 0x1122334455667788", "Reply CREATE_SESSION NFS4_OK",
        f"Call RECLAIM_COMPLETE, {handle}", "Reply RECLAIM_COMPLETE NFS4_OK",
        f"Call ACCESS, {handle} Check: READ LOOKUP MODIFY EXTEND DELETE",
        "Reply ACCESS NFS4_OK, Allowed: READ LOOKUP Denied: MODIFY EXTEND DELETE",
        f"Call RENAME, {handle}/a To: b", "Reply RENAME NFS4_OK",
        f"Call LINK, {handle} …/c To: c", "Reply LINK NFS4_OK, …/c",
        f"Call LOCK, {handle} StateID: 0xafa9 Offset: 0 Len: to end of file", "Reply LOCK NFS4ERR_DENIED",
        f"Call COPY, {handle} StateID: 0xafa9 Offset: 0 Len: 5 To StateID: 0xafa9 Offset: 9", "Reply COPY NFS4_OK",
        f"Call WRITE_SAME, {handle} StateID: 0xafa9 Offset: 0", "Reply WRITE_SAME NFS4_OK",
        "Call RENEW, Client ID: 0x1122334455667788", "Reply RENEW NFS4_OK",
    ]  # fmt: skip
    assert words[20:] == [
        f"V3 ACCESS Call, {handle} Check: READ LOOKUP MODIFY EXTEND DELETE 0x200",
        "V3 ACCESS Reply Allowed: READ LOOKUP 0x200 Denied: MODIFY EXTEND DELETE",
        f"V3 GETATTR Call, {handle}", "V3 GETATTR Reply, directory mode: 0755 uid: 5 gid: 6",
        f"V3 READLINK Call, {handle}", "V3 READLINK Reply Path: ../target",
        f"V3 CREATE Call, D{handle[1:]}/name …/name Mode: EXCLUSIVE",
        f"V3 CREATE Reply, FH: {handle_hash(b'new'):#010x}, …/name",
        f"V3 MKNOD Call, D{handle[1:]}/name …/name block device", "V3 MKNOD Reply, …/name",
        f"V3 COMMIT Call, {handle} Offset: 1 Len: 2", "V3 COMMIT Reply",
        f"V4 LOCK Call, {handle} svid: 7 Offset: 4096 Len: to end of file", "V4 LOCK Reply NLM4_BLOCKED",
        "V4 LOCK_RES Call, NLM4_GRANTED", "V4 LOCK_RES Reply",
        "V1 NOTIFY Call, host", "V1 NOTIFY Reply",
        f"V3 GETACL Call, {handle}", "V3 GETACL Reply",
        "V3 MNT Call, /export", f"V3 MNT Reply, FH: {handle_hash(b'root'):#010x}",
        "V2 GETPORT Call, NFS V3 TCP", "V2 GETPORT Reply, Port: 20049",
        "V4 GETADDR Call, MOUNT V3 rdma", "V4 GETADDR Reply, Address: 10.0.0.1.78.81",
    ]  # fmt: skip


def test_replies_name_what_they_answer_and_calls_without_a_reply_what_they_ask() -> None:
    wire = Wire()
    conn = wire.connect()
    mount(conn, b"/export", SUB)
    lookup(conn, SUB, b"file", FILE)
    read(conn, 0, DATA)
    call(conn, nfs3.read(0, 77, FILE))
    for _ in range(20):
        ask(conn, nfs3.getattr_(FILE), nfs3.getattr_reply())
    handle = f"{handle_hash(FILE):#010x}"
    frames = Capture(wire).frames
    for cuts in ((), (12,), (len(frames) - 3,)):
        infos = [json.loads(line)["info"] for line in compare(frame_batches(frames, cuts))]
        answered = [info.split(" (Call In")[0] for info in infos if "(Call In" in info]
        assert answered[1:4] == [
            f"V3 LOOKUP Reply, FH: {handle}, /export/file",
            f"V3 READ Reply Len: {len(DATA)}, /export/file",
            "V3 GETATTR Reply, file mode: 0644 uid: 1000 gid: 100, /export/file",
        ]
        (alone,) = [info for info in infos if "Len: 77" in info]
        assert alone.startswith(f"V3 READ Call, FH: {handle} /export/file Offset: 0 Len: 77; RPC 4; RDMA_MSG xid=")


def test_comments_and_times_before_the_epoch() -> None:
    (batch,) = sample("bidir-rxe", 40)[:1]
    rows = batch.rows.copy()
    rows["time"] -= rows["time"][25]
    comments = {21: 'so "it" is', 22: "tab\there"}
    lines = compare([FrameBatch(batch.data, rows, comments)])
    records = [json.loads(line) for line in lines]
    assert {one["frame"]: one["comment"] for one in records if "comment" in one} == comments
    times = [one["time_ns"] for one in records]
    assert times == sorted(times) and times[0] < 0 < times[-1]
