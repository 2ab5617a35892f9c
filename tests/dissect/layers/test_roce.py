"""The transport headers as Scapy layers: real packets in, the same bytes out, and an ICRC that holds."""

from __future__ import annotations

import doctest
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw, bind_layers, split_layers

from playbook import packets as wire
from rdmascope.dissect.frames import FRAME, FrameBatch
from rdmascope.dissect.layers import opcodes, roce
from rdmascope.dissect.layers.bth import EXTENDED_HEADERS
from rdmascope.dissect.layers.cm import MAD
from rdmascope.dissect.layers.icrc import icrc, icrc_ok, verify
from rdmascope.dissect.layers.roce import AETH, BTH, DETH, GRH, IETH, RETH, XRCETH, AtomicETH, CNPPadding, ImmDt
from rdmascope.dissect.link.locate import AddressTable, locate
from rdmascope.dissect.link.packets import decode

HEAD = "525400000002525400000001080045000044"
REAL = {  # sent by Linux's rxe, NFS over RDMA
    "SEND Only": "52540000000252540000000108004500"
    "00600952400040111c9f0a4d00010a4d0002ff1612b7004c00000400ffff000000118052692728a82abb0000000100000040"
    "0000000000000000000000000000000028a82abb000000010000000000000000000000000000000085d7e1dd",
    "SEND Only with Invalidate": "5254000000025254000000010800450000600d104000401118e10a4d0001"
    "0a4d0002ff7612b7004c00001700ffff000000128029681000002378c76103b9000000010000004000000001000000000000"
    "000000000001000000010000237800000034c76103b9c51da0000ee478ff",
    "WRITE Only, no pad": HEAD + "099f400040111c6e0a4d00010a4d0002ff1612b7003000000a00ffff0000001180526934"
    "32a82abbc3e882f000000877000000080000000000000001160e2738",
    "WRITE Only, pad 1": "52540000000252540000000108004500004009af400040111c620a4d00010a4d0002ff1612b7002c"
    "00000a10ffff000000118052693a34a82abb1fe95025000008790000000300000000b9e94dff",
    "WRITE Only, pad 2": HEAD + "09fe400040111c0f0a4d00010a4d0002ff1612b7003000000a20ffff0000001180526952"
    "3ca82abbc43f7000000003f10000000668656c6c6f0a0000182e52b5",
    "WRITE Only, pad 3": "52540000000252540000000108004500006409ae400040111c3f0a4d00010a4d0002ff1612b70050"
    "00000a30ffff000000118052693934a82abb1fe9500000000879000000252f612f6c6f6e672f7461726765742f706174"
    "682f666f722f726561646c696e6b2f746573740000004cf33286",
    "READ Request": "52540000000252540000000108004500003c0b4b400040111aca0a4d00010a4d0002ff1612b700280000"
    "0c00ffff0000001180526a5645a82abbc4d57000000003f400005000ed9c7ebf",
    "Acknowledge": "5254000000025254000000010800450000300951400040111cd00a4d00010a4d0002ff1612b7001c0000"
    "1100ffff0000001100adc7f61f0000016b78ca17",
}
PACKETS = {name: bytes.fromhex(text) for name, text in REAL.items()}


@pytest.mark.parametrize("frame", PACKETS.values(), ids=PACKETS.keys())
class TestRealPackets:
    def test_icrc_is_good(self, frame: bytes) -> None:
        assert verify(frame[14:]) is True
        assert Ether(frame)[BTH].verify_icrc() is True
        assert icrc(frame[14:-4]) == Ether(frame)[BTH].icrc == int.from_bytes(frame[-4:], "big")

    def test_building_gives_the_same_bytes(self, frame: bytes) -> None:
        assert bytes(Ether(frame)) == frame

    def test_pad_and_icrc_are_computed_as_the_sender_did(self, frame: bytes) -> None:
        packet = Ether(frame)
        del packet[BTH].padcnt, packet[BTH].pad, packet[BTH].icrc
        assert bytes(packet) == frame

    def test_a_changed_payload_is_noticed(self, frame: bytes) -> None:
        for at in (14 + 20 + 8 + 1, -5):  # in the BTH, and just before the ICRC
            spoiled = bytearray(frame)
            spoiled[at] ^= 1
            assert verify(spoiled[14:]) is False

    def test_a_router_may_change_what_it_must(self, frame: bytes) -> None:
        routed = bytearray(frame[14:])
        routed[1], routed[8], routed[10:12] = 3, 7, b"\x12\x34"
        routed[28 + 4] = 0xC0  # FECN and BECN
        assert verify(routed) is True

    def test_truncated_anywhere_nothing_is_made_up(self, frame: bytes) -> None:
        for size in range(14 + 28, len(frame)):
            assert verify(frame[14:size]) is None
            packet = Ether(frame[:size])
            assert bytes(packet) == frame[:size]
            if BTH in packet:
                assert not isinstance(packet[BTH].icrc, int)
                assert packet[BTH].verify_icrc() is None
                assert packet[BTH].show(dump=True)

    def test_ethernet_padding_is_no_payload(self, frame: bytes) -> None:
        packet = Ether(frame + bytes(18))
        assert packet[BTH].verify_icrc() is True
        assert packet[BTH].icrc == int.from_bytes(frame[-4:], "big")


def test_write_only() -> None:
    packet = Ether(PACKETS["WRITE Only, pad 2"])
    assert (packet[BTH].opcode, packet[BTH].dest_qp, packet[BTH].psn) == (0x0A, 0x11, 0x526952)
    assert (packet[BTH].p_key, packet[BTH].a, packet[BTH].se, packet[BTH].padcnt) == (0xFFFF, 1, 0, 2)
    assert packet[RETH].va == 0x3CA82ABBC43F7000
    assert (packet[RETH].r_key, packet[RETH].dma_len) == (0x3F1, 6)
    assert packet[Raw].load == b"hello\n"
    assert packet[BTH].pad == b"\0\0"


def test_send_with_invalidate_names_its_key() -> None:
    packet = Ether(PACKETS["SEND Only with Invalidate"])
    assert packet[IETH].r_key == 0x2378
    assert packet[Raw].load.startswith(bytes.fromhex("c76103b9 00000001"))


def test_acknowledge_shows_its_syndrome_in_words() -> None:
    packet = Ether(PACKETS["Acknowledge"])
    assert (packet[AETH].syndrome, packet[AETH].msn) == (0x1F, 1)
    assert "0x1f (ACK)" in packet.show(dump=True)
    assert "(good)" in packet.show(dump=True)


@pytest.mark.parametrize(
    ("syndrome", "words"),
    [
        (0x1F, "ACK"),
        (0x08, "ACK, 16 credits"),
        (0x1E, "ACK, 32768 credits"),
        (0x20, "RNR NAK, 655.36 ms"),
        (0x2E, "RNR NAK, 1.28 ms"),
        (0x3F, "RNR NAK, 491.52 ms"),
        (0x60, "NAK, PSN Sequence Error"),
        (0x62, "NAK, Remote Access Error"),
        (0x7F, "NAK, code 31"),
        (0x40, "reserved syndrome 0x40"),
    ],
)
def test_syndromes(syndrome: int, words: str) -> None:
    assert opcodes.syndrome_name(syndrome) == words
    assert words in repr(AETH(syndrome=syndrome))


LINK = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
INET = IP(src="10.0.0.1", dst="10.0.0.2") / UDP()
BENEATH: dict[str, Any] = {
    "RoCEv2, IPv4": LINK / IP(src="10.0.0.1", dst="10.0.0.2", tos=2) / UDP(),
    "RoCEv2, IPv4 with options": IP(src="10.0.0.1", dst="10.0.0.2", options=b"\x01\x01\x01\x00") / UDP(),
    "RoCEv2, IPv6": LINK / Dot1Q(vlan=7) / IPv6(src="fd77::1", dst="fd77::2", tc=2, fl=77) / UDP(),
    "RoCEv2, IPv6 extended": IPv6(src="fd77::1", dst="fd77::2") / IPv6ExtHdrDestOpt() / UDP(),
    "RoCEv1": LINK / GRH(sgid="fe80::1", dgid="fe80::2"),
    "RoCEv1, VLAN": LINK / Dot1Q(vlan=7) / GRH(sgid="fe80::1", dgid="fe80::2"),
}


def again(packet: Any) -> Any:
    """The packet, sent and received."""
    return type(packet)(bytes(packet))


@pytest.mark.parametrize("row", opcodes.OPCODES.values(), ids=lambda row: row.name)
def test_every_opcode(row: opcodes.Opcode) -> None:
    sent_and_received(INET, row)


@pytest.mark.parametrize("beneath", BENEATH.values(), ids=BENEATH.keys())
def test_on_everything(beneath: Any) -> None:
    for opcode in (0x00, 0x0B, 0x11):
        sent_and_received(beneath, opcodes.OPCODES[opcode])


def sent_and_received(beneath: Any, row: opcodes.Opcode) -> None:
    sent: Any = beneath.copy() / BTH(opcode=row.value, psn=0xFFFFFF, dest_qp=0x123456)
    for header in row.headers:
        sent /= EXTENDED_HEADERS[header]()
    received = again(sent / b"five!")
    layers = [type(layer).__name__ for layer in received.iterpayloads()]
    at = layers.index("BTH")
    assert layers[at + 1 :] == [*row.headers, "Raw"]
    assert received[Raw].load == b"five!"
    assert (received[BTH].padcnt, received[BTH].pad) == (3, b"\0\0\0")
    assert received[BTH].verify_icrc() is True
    assert bytes(received) == bytes(sent / b"five!")


def test_the_icrc_agrees_with_an_independent_one() -> None:
    for source, destination in (("10.0.0.1", "10.0.0.2"), ("fd77::1", "fd77::2")):
        script = wire.Packet(1, 0, 1, 0, "send", source, destination, 0xC001, 4, 17, 9, payload=b"abcde")
        frame = wire.encode(script)
        assert Ether(frame)[BTH].verify_icrc() is True
        packet = Ether(frame)
        del packet[BTH].icrc
        assert bytes(packet) == frame


def test_defaults_follow_from_the_stack() -> None:
    assert again(INET / BTH() / AETH()).opcode == 0x11
    assert again(INET / BTH() / AETH())[UDP].dport == 4791
    cnp = again(INET / BTH(dest_qp=5) / CNPPadding())
    assert (cnp[BTH].opcode, cnp[BTH].becn, len(cnp[BTH])) == (0x81, 1, 12 + 16 + 4)


def test_without_anything_beneath() -> None:
    packet = BTH(bytes(BTH(opcode=0x0C) / RETH(dma_len=8)))
    assert packet[RETH].dma_len == 8
    assert packet.icrc == 0
    assert packet.verify_icrc() is None


def test_orders_of_extended_headers() -> None:
    write = again(INET / BTH(opcode=0xAB) / XRCETH() / RETH() / ImmDt(immediate=7) / b"abcd")
    assert bytes(write[BTH].payload)[:24] == bytes(XRCETH()) + bytes(RETH()) + b"\0\0\0\x07"
    assert write[ImmDt].load == b"abcd"
    swap = again(INET / BTH(opcode=0x13) / AtomicETH(swap_data=1, compare_data=2))
    assert (swap[AtomicETH].swap_data, swap[AtomicETH].compare_data) == (1, 2)


def test_unknown_opcodes_have_no_extended_headers() -> None:
    packet = again(INET / BTH(opcode=0xC5) / b"manufacturer")
    assert packet[BTH].payload.load == b"manufacturer"
    assert "opcode 0xc5" in packet[BTH].mysummary()


def test_datagrams_to_queue_pair_1_are_management() -> None:
    for qp, expected in ((0, MAD), (1, MAD), (2, Raw)):
        packet = again(INET / BTH(opcode=0x64, dest_qp=qp) / DETH(src_qp=1) / Raw(bytes(256)))
        assert type(packet[DETH].payload) is expected
    short = again(INET / BTH(opcode=0x64, dest_qp=1) / DETH() / Raw(bytes(23)))
    assert type(short[DETH].payload) is Raw


class Mine(Packet):  # type: ignore[misc]
    fields_desc = Raw.fields_desc


def test_a_protocol_bound_to_a_queue_pair() -> None:
    bind_layers(BTH, Mine, dest_qp=0x77)
    try:
        frame = INET / BTH(opcode=0x0B, dest_qp=0x77) / RETH() / ImmDt() / b"mine"
        assert again(frame)[ImmDt].payload == Mine(b"mine")
        assert Mine not in again(INET / BTH(opcode=0x04, dest_qp=0x78) / b"mine")
    finally:
        split_layers(BTH, Mine, dest_qp=0x77)


def test_a_protocol_bound_to_a_header() -> None:
    bind_layers(IETH, Mine)
    try:
        assert Mine in again(INET / BTH(opcode=0x17) / IETH() / b"mine")
    finally:
        split_layers(IETH, Mine)


@given(st.binary(max_size=120))
def test_any_bytes_dissect_and_build_again(data: bytes) -> None:
    assert bytes(BTH(data)) == data
    for below in (IP(src="10.0.0.1", dst="10.0.0.2") / UDP(dport=4791), GRH()):
        packet = bytes(below / Raw(data))
        received = type(below)(packet)
        received.show(dump=True)
        assert bytes(received) == packet
        assert verify(packet) is not True or len(data) >= 16
    verify(data)
    icrc(data)


@given(st.sampled_from(sorted(PACKETS)), st.data())
def test_a_damaged_packet_never_raises(name: str, data: st.DataObject) -> None:
    frame = bytearray(PACKETS[name])
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(14, len(frame) - 1))] = data.draw(st.integers(0, 255))
    Ether(bytes(frame)).show(dump=True)
    verify(frame[14:])


def batch_of(frames: list[bytes], cut: int = 0) -> FrameBatch:
    """One after the other, each cut by ``cut`` bytes."""
    rows = np.zeros(len(frames), FRAME)
    data = b""
    for row, frame in zip(rows, frames, strict=True):
        kept = frame[: len(frame) - cut]
        row["offset"], row["captured"], row["original"] = len(data), len(kept), len(frame)
        row["link_type"] = 1
        data += kept
    rows["number"] = range(1, len(frames) + 1)
    return FrameBatch(np.frombuffer(data, np.uint8), rows)


def test_icrcs_of_a_batch() -> None:
    built = [beneath / BTH() / b"abc" for name, beneath in BENEATH.items() if name.startswith("RoCEv2")]
    frames = [*PACKETS.values(), *(bytes(one if Ether in one else LINK / one) for one in built)]
    wrong = bytearray(frames[2])
    wrong[-5] ^= 1
    batch = batch_of([*frames, bytes(wrong)])
    rows = decode(batch, locate(batch, AddressTable())).rows
    assert icrc_ok(batch, rows) == [True] * len(frames) + [False]
    assert icrc_ok(batch, rows[::-1][:2]) == [False, True]
    assert icrc_ok(batch, rows[:0]) == []


def test_icrcs_of_truncated_packets_are_not_judged() -> None:
    for cut in (1, 4, 5):
        batch = batch_of(list(PACKETS.values()), cut)
        rows = decode(batch, locate(batch, AddressTable())).rows
        assert icrc_ok(batch, rows) == [None] * len(PACKETS)


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("order", ["ours, theirs", "theirs, ours"])
def test_beside_scapys_own_layer(order: str) -> None:
    imports = {
        "ours": "import rdmascope.dissect.layers.roce as ours",
        "theirs": "import scapy.contrib.roce as theirs",
    }
    lines = [imports[one] for one in order.split(", ")]
    lines += [
        "from scapy.layers.inet import IP, UDP",
        f"frame = bytes.fromhex('{PACKETS['Acknowledge'].hex()}')[14:]",
        "assert IP(frame)[ours.BTH].verify_icrc() is True",
        "built = IP(src='10.0.0.1', dst='10.0.0.2') / UDP(sport=49152) / theirs.BTH(dqpn=3) / theirs.AETH()",
        "assert IP(bytes(built))[ours.BTH].verify_icrc() is True",
        "assert theirs.BTH(frame[28:]).dqpn == 0x11",
        "ours.unbind()",
        "assert theirs.BTH in IP(frame)",
        "assert bytes(IP(src='10.0.0.1', dst='10.0.0.2') / UDP() / ours.BTH() / ours.RETH())",
        "ours.bind()",
        "assert ours.BTH in IP(frame)",
        "print('both')",
    ]
    assert python("\n".join(lines)) == "both\n"


def test_everything_by_one_import() -> None:
    code = "from rdmascope.dissect.layers import *; print(BTH.__name__, MAD.__name__, GRH.__name__)"
    assert python(code) == "BTH MAD GRH\n"


def test_the_tables_do_not_start_scapy() -> None:
    code = "import sys, rdmascope.dissect.layers.opcodes, rdmascope.dissect.layers.icrc"
    assert python(f"{code}; print([name for name in sys.modules if name.startswith('scapy')])") == "[]\n"


def test_the_table_agrees_with_scapys_names() -> None:
    code = "from scapy.contrib.roce import _bth_opcodes as t; print(sorted(t.items()))"
    spelling = {"COMPARE_SWAP": "CMPSWAP", "FETCH_ADD": "FETCHADD"}
    for value, name in eval(python(code)):
        if opcodes.transport_service(value) == "DC or RD":
            assert value not in opcodes.OPCODES
            continue
        ours = opcodes.OPCODES[value].name.upper().replace(" ", "_")
        for theirs, word in spelling.items():
            name = name.replace(theirs, word)
        assert ours == name


def test_lookup_arrays_hold_what_the_table_says() -> None:
    for value in range(256):
        row = opcodes.OPCODES.get(value)
        assert bool(opcodes.KNOWN[value]) == (row is not None)
        for name, table in opcodes.OFFSET.items():
            expected = 0
            if row and name in row.headers:
                expected = 12 + sum(opcodes.HEADER_BYTES[h] for h in row.headers[: row.headers.index(name)])
            assert table[value] == expected
        positions = [opcodes.IS_FIRST, opcodes.IS_MIDDLE, opcodes.IS_LAST, opcodes.IS_ONLY]
        assert sum(bool(table[value]) for table in positions) == (row is not None)
    assert np.flatnonzero(opcodes.IS_ACKNOWLEDGE).tolist() == [0x11, 0xB1]
    assert np.flatnonzero(opcodes.IS_ATOMIC_RESPONSE).tolist() == [0x12, 0xB2]
    assert np.flatnonzero(opcodes.IS_READ_REQUEST).tolist() == [0x0C, 0xAC]


def test_header_sizes_are_those_of_the_layers() -> None:
    assert {name: len(header()) for name, header in EXTENDED_HEADERS.items()} == opcodes.HEADER_BYTES


def test_the_example_in_the_documentation() -> None:
    assert doctest.testmod(roce).failed == 0
