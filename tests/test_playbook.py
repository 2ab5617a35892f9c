"""The generator of conversations checks itself, before anything is checked with it."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from playbook import Capture, Wire, call, faults, fetch, foreign, nfs3, nfs4, reply, write_pcap
from playbook.packets import PSN_MASK, REQUESTS, Packet, encode, icrc
from playbook.strategies import Conversation, conversations, faulty

QUICK = settings(suppress_health_check=list(HealthCheck))

ACK_FROM_RXE = bytes.fromhex(
    "45000030ee0140004011381f0a4d00010a4d0002f10212b7001c00001100ffff0000001100e630b81f0000017a3be047"
)
"""An acknowledgement that the Linux rxe driver sent, from the IPv4 header on."""


def bitwise_crc(data: bytes) -> int:
    """CRC-32 of IEEE 802.3 one bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_icrc_of_a_real_packet() -> None:
    ip, udp, packet = ACK_FROM_RXE[:20], ACK_FROM_RXE[20:28], ACK_FROM_RXE[28:]
    assert icrc(ip, udp, packet[:-4]) == packet[-4:]


@pytest.mark.parametrize(("hosts", "ip_length"), [(("10.0.0.2", "10.0.0.1"), 20), (("fd00::2", "fd00::1"), 40)])
def test_icrc_computed_the_slow_way(hosts: tuple[str, str], ip_length: int) -> None:
    wire = Wire(seed=1)
    wire.connect(*hosts, cm=False).send(0, b"odd")
    frame = encode(wire.packets[0])[14:]
    ip, udp, packet = frame[:ip_length], frame[ip_length : ip_length + 8], frame[ip_length + 8 : -4]
    masked = bytearray(ip)
    for at in (1, 8, 10, 11) if ip_length == 20 else (1, 2, 3, 7):
        masked[at] = 0xFF
    if ip_length == 40:
        masked[0] = 0x6F
    text = b"\xff" * 8 + masked + udp[:6] + b"\xff\xff" + packet[:4] + b"\xff" + packet[5:]
    assert frame[-4:] == struct.pack("<I", bitwise_crc(text))
    assert packet[12:] == b"odd\0" and packet[1] >> 4 & 3 == 1


def requests(packets: list[Packet], connection: int, sender: int) -> list[Packet]:
    return [
        packet
        for packet in packets
        if packet.connection == connection and packet.sender == sender and packet.kind in REQUESTS
    ]


@QUICK
@given(conversations())
def test_sequence_numbers_follow_each_other(conversation: Conversation) -> None:
    wire = conversation.wire
    for connection in wire.connections:
        for sender in (0, 1):
            expected: int | None = None
            for packet in requests(conversation.packets, connection.number, sender):
                assert expected in (None, packet.psn)
                operation = wire.operations[packet.operation]
                span = operation.packets if packet.kind == "read" else 1
                expected = (packet.psn + span) & PSN_MASK


@QUICK
@given(conversations())
def test_every_byte_of_a_whole_conversation_is_in_the_capture(conversation: Conversation) -> None:
    capture = conversation.capture
    for true in conversation.wire.truth:
        assert capture.header(true, "call") and capture.header(true, "reply")
        assert capture.missing(true, "call") == capture.missing(true, "reply") == []


@QUICK
@given(conversations())
def test_the_places_of_the_operations_hold_the_bytes_of_the_messages(conversation: Conversation) -> None:
    """Putting the moved bytes where the truth says gives the messages; only round-up is left over."""
    wire = conversation.wire
    for true in wire.truth:
        for part, message in (("call", true.call), ("reply", true.reply)):
            built = bytearray(len(message or b""))
            for number in [true.call_operation, true.reply_operation, *true.operations]:
                operation = wire.operations[number]
                for place in operation.places:
                    if (place.rpc, place.part) == (true.index, part):
                        moved = operation.data[place.start : place.start + place.length]
                        assert len(moved) == place.length
                        built[place.at : place.at + place.length] = moved
            assert bytes(built) == (message or b"")


@QUICK
@given(faulty(kinds=("nak", "timeout", "rnr", "response", "ghost", "congestion", "corrupt")))
def test_faults_that_the_endpoints_repair_leave_nothing_missing(conversation: Conversation) -> None:
    # A response that is lost again is not asked for again.
    assume(sum(line.startswith("response") for line in conversation.story) < 2)
    capture = conversation.capture
    for true in conversation.wire.truth:
        assert capture.missing(true, "call") == capture.missing(true, "reply") == []


def test_a_dropped_write_is_missing_where_its_bytes_belong() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    rpc = call(conn, nfs3.read(0, 4096), writes=[conn.register(4096)])
    reply(rpc, nfs3.read_reply(bytes(range(256)) * 16))
    second = faults.where(wire.packets, kind="write")[1]
    capture = Capture(wire, faults.drop(wire.packets, [second]))
    start = len(wire.truth[0].reply or b"") - 4096 + 1024
    assert capture.missing(wire.truth[0], "reply") == [(start, start + 1024)]


def test_a_lost_write_is_retransmitted_after_a_nak() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect(cm=False)
    conn.write(1, 7, 0x1000, bytes(4096))
    packets = faults.lose(wire, wire.packets, 1, recorded=False)
    psns = [(packet.kind, (packet.psn - wire.packets[0].psn) & PSN_MASK) for packet in packets]
    assert psns == [
        ("write", 0),
        ("write", 2),
        ("write", 3),
        ("nak", 1),
        ("write", 1),
        ("write", 2),
        ("write", 3),
        ("ack", 3),
    ]
    assert [packet.time for packet in packets] == sorted(packet.time for packet in packets)


def test_a_read_is_resumed_where_its_response_was_lost() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect(cm=False)
    conn.read(1, 7, 0x1000, bytes(3000))
    packets = faults.lose_response(wire, wire.packets, 2, recorded=False)
    start = wire.packets[0].psn
    seen = [(packet.kind, packet.opcode, (packet.psn - start) & PSN_MASK) for packet in packets]
    assert seen == [
        ("read", 12, 0),
        ("response", 13, 0),
        ("response", 15, 2),
        ("read", 12, 1),
        ("response", 13, 1),
        ("response", 15, 2),
    ]
    assert struct.unpack(">QII", packets[3].extended) == (0x1400, 7, 3000 - 1024)


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
def test_tshark_finds_nothing_malformed(tmp_path: Path) -> None:
    """One RPC of each simple shape, and strangers beside them."""
    wire = Wire(mtu=1024, seed=3)
    conn = wire.connect(client_psn=0xFFFFFE)
    data = wire.random.randbytes(8190)
    reply(call(conn, nfs3.null()), nfs3.null_reply())
    reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    reply(call(conn, nfs3.read(0, 8192), writes=[conn.register(8192)]), nfs3.read_reply(data), split=3000)
    rpc = call(conn, nfs3.write(0, data), reads={0: conn.register(8190)})
    fetch(rpc)
    reply(rpc, nfs3.write_reply(8190))
    reply(call(conn, nfs3.readlink()), nfs3.readlink_reply(b"/tmp/target"))
    reply(call(conn, nfs3.symlink(b"a", b"/tmp/target")), nfs3.symlink_reply())
    rpc = call(conn, nfs3.readdirplus(), reply_chunk=conn.register(12000))
    reply(rpc, nfs3.readdirplus_reply([b"name-%d" % number for number in range(20)]))
    read = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.read(0, 4096), nfs4.getattr_())
    done = (nfs4.sequence_done(), nfs4.putfh_done(), nfs4.read_done(data[:4096]), nfs4.getattr_done())
    reply(call(conn, read, writes=[conn.register(4096)]), nfs4.compound_reply(*done))
    recall = nfs4.callback(nfs4.cb_sequence(), nfs4.cb_recall())
    recalled = nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done())
    reply(call(conn, recall, backward=True), recalled)
    conn.disconnect()
    foreign.nvme(wire)
    foreign.rping(wire)
    file = tmp_path / "simple.pcap"
    write_pcap(wire.frames(), file)

    def tshark(*arguments: str) -> list[str]:
        done = subprocess.run(["tshark", "-2", "-r", file, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert tshark("-Y", "_ws.malformed") == []
    xids = tshark("-Y", "rpcordma", "-T", "fields", "-e", "rpcordma.xid")
    assert sorted(int(xid, 0) for xid in xids) == sorted([true.xid for true in wire.truth] * 2)
    assert len(tshark("-Y", "infiniband.mad")) == 5 + 3 + 3
    replies = tshark("-Y", "rpc.msgtyp == 1", "-T", "fields", "-e", "rpc.xid")
    assert {int(xid.split(",")[0], 0) for xid in replies} == {true.xid for true in wire.truth}


@QUICK
@given(conversations(), st.data())
def test_cutting_the_start_loses_only_what_was_there(conversation: Conversation, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(conversation.packets)))
    capture = Capture(conversation.wire, faults.cut(conversation.packets, count))
    gone = {packet.operation for packet in conversation.packets[:count]}
    for true in conversation.wire.truth:
        touched = {true.call_operation, true.reply_operation, *true.operations} & gone
        if not touched:
            assert capture.missing(true, "call") == capture.missing(true, "reply") == []
