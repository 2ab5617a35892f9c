"""The generator of iWARP conversations checks itself, before anything is checked with it."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from playbook import call, faults, mpa, nfs3, nfs4, reply, shapes, tcp_faults, write_pcap
from playbook.iwarp import IwarpCapture, IwarpConnection, IwarpWire, TcpEndpoint
from playbook.iwarp_strategies import REPAIRED, IwarpConversation, iwarp_conversations, iwarp_faulty
from playbook.tcp import ACK, SYN, TcpSegment

QUICK = settings(max_examples=30, suppress_health_check=list(HealthCheck))
SEQUENCES = 1 << 32


def bitwise_crc32c(data: bytes) -> int:
    """CRC-32C one bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_crc_computed_the_slow_way() -> None:
    for size in (0, 1, 44, 700):
        data = bytes(number * 7 & 0xFF for number in range(size))
        assert mpa.crc(data) == struct.pack("<I", bitwise_crc32c(data))


def test_an_fpdu_without_markers() -> None:
    framed = mpa.fpdu(b"abc")
    assert framed == b"\0\3abc\0\0\0" + mpa.crc(b"\0\3abc\0\0\0")
    assert mpa.fpdu(b"abc", filler=b"wxyz")[8:] == b"wxyz"


def test_an_fpdu_with_markers() -> None:
    """The first marker stands before the first length; the next one 512 bytes on points back to that length."""
    framed = mpa.fpdu(bytes(600), 0)
    assert framed[:6] == bytes(4) + struct.pack(">H", 600)
    assert framed[512:516] == struct.pack(">HH", 0, 508)
    assert len(framed) == 4 + 2 + 600 + 2 + 4 + 4
    assert framed[-4:] == mpa.crc(framed[:-4])
    assert mpa.fpdu(bytes(506), 4)[508:512] == struct.pack(">HH", 0, 508), "a marker before the CRC"


def ends(conversation: IwarpConversation) -> list[tuple[IwarpConnection, int, TcpEndpoint]]:
    return [
        (connection, sender, end)
        for connection in conversation.wire.connections
        if isinstance(connection, IwarpConnection)
        for sender, end in enumerate(connection.ends)
    ]


def of(segments: list[TcpSegment], connection: IwarpConnection, sender: int) -> list[TcpSegment]:
    return [one for one in segments if (one.connection, one.sender) == (connection.number, sender)]


@QUICK
@given(iwarp_conversations(cm=st.just(True), strangers=False))
def test_the_segments_are_the_stream(conversation: IwarpConversation) -> None:
    for connection, sender, end in ends(conversation):
        expected, stream = end.isn, bytearray()
        for one in of(conversation.segments, connection, sender):
            if one.kind != "rst":
                assert one.seq % SEQUENCES == expected % SEQUENCES
            assert len(one.payload) <= connection.mtu
            expected += len(one.payload) + (one.kind in ("syn", "fin"))
            stream += one.payload
        assert stream == end.sent


@QUICK
@given(iwarp_conversations(cm=st.just(True), strangers=False))
def test_no_acknowledgement_of_what_was_not_sent(conversation: IwarpConversation) -> None:
    reached: dict[tuple[int, int], int] = {}
    for one in conversation.segments:
        peer = conversation.wire.connections[one.connection - 1].ends[1 - one.sender]
        assert isinstance(peer, TcpEndpoint)
        if one.flags & ACK:
            assert (one.ack - peer.isn) % SEQUENCES <= reached[one.connection, 1 - one.sender]
        end = 1 if one.flags & SYN else reached[one.connection, one.sender]
        end = max(end, 1 + one.end + (one.kind == "fin"))
        reached[one.connection, one.sender] = end


@QUICK
@given(iwarp_conversations())
def test_the_extents_are_the_fpdus(conversation: IwarpConversation) -> None:
    """They follow each other, are as long as they say, and have their markers where these belong."""
    for connection, _, end in ends(conversation):
        at = end.operating
        for extent in end.extents:
            assert extent.start == at
            wire = bytes(end.sent[at : extent.end])
            plain = bytearray()
            for place in range(0, len(wire), 4):
                if end.markers and (at + place - end.operating) % 512 == 0:
                    assert wire[place : place + 2] == b"\0\0"
                    assert struct.unpack(">H", wire[place + 2 : place + 4])[0] in (0, place, place - 4)
                else:
                    plain += wire[place : place + 4]
            length = struct.unpack(">H", plain[:2])[0]
            assert len(plain) == 2 + length + -(2 + length) % 4 + 4
            assert length <= max(connection.mulpdu, 46)
            assert wire[-4:] == (mpa.crc(wire[:-4]) if connection.crc else connection.filler)
            if extent.operation and not extent.request:
                data = conversation.wire.operations[extent.operation].data[extent.at : extent.at + extent.length]
                assert plain[2 : 2 + length].endswith(data)
            at = extent.end
        assert at == len(end.sent)


@QUICK
@given(iwarp_conversations())
def test_the_places_of_the_operations_hold_the_bytes_of_the_messages(conversation: IwarpConversation) -> None:
    wire = conversation.wire
    for true in wire.truth:
        for part, message in (("call", true.call), ("reply", true.reply)):
            built = bytearray(len(message or b""))
            for number in [true.call_operation, true.reply_operation, *true.operations]:
                operation = wire.operations[number]
                for place in operation.places:
                    if (place.rpc, place.part) == (true.index, part):
                        built[place.at : place.at + place.length] = operation.data[place.start :][: place.length]
            assert bytes(built) == (message or b"")


@QUICK
@given(iwarp_faulty(REPAIRED, iwarp_conversations(cm=st.just(True))))
def test_faults_that_the_endpoints_repair_leave_nothing_missing(conversation: IwarpConversation) -> None:
    capture = conversation.capture
    for true in conversation.wire.truth:
        assert capture.header(true, "call") and capture.header(true, "reply")
        assert capture.missing(true, "call") == capture.missing(true, "reply") == []


def test_a_dropped_write_is_missing_where_its_bytes_belong() -> None:
    wire = IwarpWire(mss=1448)
    conn = wire.connect(mulpdu=1014)
    rpc = call(conn, nfs3.read(0, 4096), writes=[conn.register(4096)])
    reply(rpc, nfs3.read_reply(bytes(range(256)) * 16))
    segments = wire.sent()
    second = [index for index, one in enumerate(segments) if one.kind == "data" and one.sender][2]
    capture = IwarpCapture(wire, faults.drop(segments, [second]))
    start = len(wire.truth[0].reply or b"") - 4096 + 1000
    assert capture.missing(wire.truth[0], "reply") == [(start, start + 1000)]
    assert capture.missing(wire.truth[0], "call") == []


def test_without_its_request_nobody_knows_what_a_read_moved() -> None:
    wire = IwarpWire(mss=1448)
    shapes.write(wire.connect(), bytes(100))
    segments = wire.sent()
    request = [index for index, one in enumerate(segments) if one.kind == "data" and one.sender][1]
    capture = IwarpCapture(wire, faults.drop(segments, [request]))
    assert sum(end - start for start, end in capture.missing(wire.truth[0], "call")) == 100


def test_what_was_lost_is_retransmitted_before_anybody_answers() -> None:
    wire = IwarpWire(mss=400, seed=2)
    conn = wire.connect(cutting="merged", acks="packet")
    conn.send(0, bytes(range(200)) * 5)
    conn.send(1, b"yes")
    segments = wire.sent()
    first = faults.where(segments, kind="data", sender=0)[1]
    reported = tcp_faults.lose(wire, segments, first, recorded=False, more=True)
    again = [one for one in reported if one.copy]
    assert again[0].at == segments[first].at and [one.at for one in again[1:]] == [one.end for one in again[:-1]]
    answer = faults.where(reported, kind="data", sender=1)[-1]
    assert reported.index(again[-1]) < answer
    between = [one for one in reported[first : reported.index(again[0])] if one.sender == 1]
    assert between and all(one.ack == segments[first].seq for one in between)
    assert [one.time for one in reported] == sorted(one.time for one in reported)


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
@pytest.mark.parametrize("cutting", ["aligned", "merged", "random"])
@pytest.mark.parametrize("revision", [1, 2])
def test_tshark_reads_the_same(tmp_path: Path, cutting: str, revision: int) -> None:
    """One RPC of each simple shape; without markers, where tshark loses its way."""
    wire = IwarpWire(mss=1448, seed=3)
    conn = wire.connect(revision=revision, cutting=cutting, client_isn=SEQUENCES - 1000)
    reply(call(conn, nfs3.null()), nfs3.null_reply())
    reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    shapes.write(conn)
    reply(call(conn, nfs3.readlink()), nfs3.readlink_reply(b"/tmp/target"), invalidate=7)
    rpc = call(conn, nfs3.readdirplus(), reply_chunk=conn.register(12000))
    reply(rpc, nfs3.readdirplus_reply([b"name-%d" % number for number in range(20)]))
    recall = nfs4.callback(nfs4.cb_sequence(), nfs4.cb_recall())
    recalled = nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done())
    reply(call(conn, recall, backward=True), recalled)
    conn.terminate(1, 0, 1, 0)
    conn.disconnect()
    file = tmp_path / "iwarp.pcap"
    write_pcap(IwarpCapture(wire).frames, file)

    def tshark(filter: str, *fields: str) -> list[str]:
        options = ["tcp.check_checksum:TRUE", "ip.check_checksum:TRUE"]
        options += ["iwarp_ddp_rdmap.reassemble_iwarp_rdma_send:FALSE"]
        chosen = [part for option in options for part in ("-o", option)]
        chosen += ["-T", "fields"] if fields else []
        chosen += [part for field in fields for part in ("-e", field)]
        command = ["tshark", "-2", "-r", str(file), *chosen, "-Y", filter]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    def values(lines: list[str]) -> list[int]:
        return [int(value, 0) for line in lines for value in line.split(",") if value]

    assert tshark("_ws.malformed || tcp.analysis.flags || tcp.checksum.status == 0 || ip.checksum.status == 0") == []
    assert len(tshark("iwarp_mpa.req || iwarp_mpa.rep")) == 2
    xids = values(tshark("rpcordma", "rpcordma.xid"))
    assert sorted(xids) == sorted([true.xid for true in wire.truth] * 2)
    lengths = values(tshark("iwarp_mpa.fpdu", "iwarp_mpa.ulpdulength"))
    sent = [end.sent[extent.start :][:2] for end in conn.ends for extent in end.extents]
    assert sorted(lengths) == sorted(int.from_bytes(two, "big") for two in sent)
    opcodes = values(tshark("iwarp_ddp_rdmap", "iwarp_rdma.opcode"))
    assert {opcode: opcodes.count(opcode) for opcode in (1, 3, 4, 7)} == {1: 1, 3: 11, 4: 1, 7: 1}
    crcs = values(tshark("iwarp_mpa.fpdu", "iwarp_mpa.crc_check"))
    assert sorted(crcs) == sorted(
        int.from_bytes(end.sent[extent.end - 4 : extent.end], "big") for end in conn.ends for extent in end.extents
    )
