"""Packets in columns: what Scapy sees in each frame, and what is left of it when the capture truncates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from playbook.packets import Packet, encode
from rdmascope.dissect.arrays import Rows
from rdmascope.dissect.frames import FRAME, FrameBatch
from rdmascope.dissect.layers.opcodes import HEADER_BYTES, OPCODES
from rdmascope.dissect.layers.roce import AETH, BTH, DETH, IETH, RETH, AtomicETH, ImmDt
from rdmascope.dissect.link.locate import AddressTable, locate
from rdmascope.dissect.link.packets import (
    FLAG_ACK_REQUEST,
    FLAG_BECN,
    FLAG_FECN,
    FLAG_MIGRATION,
    FLAG_SOLICITED,
    PACKET,
    TRUNCATED,
    PacketBatch,
    decode,
)

TO_BTH = 14 + 20 + 8


def script(opcode: int = 4, extended: bytes = b"", payload: bytes = b"", **more: Any) -> Packet:
    return Packet(1, 0, 1, 0, "send", "10.0.0.1", "10.0.0.2", 0xC001, opcode, 17, 9, extended, payload, **more)


def batch_of(frames: list[bytes], snaplen: int = 65535) -> FrameBatch:
    """Frames with 16 bytes of record header before each, as in a pcap file."""
    rows = np.zeros(len(frames), FRAME)
    data = bytearray()
    for number, (row, frame) in enumerate(zip(rows, frames, strict=True), 1):
        data += b"\xee" * 16
        kept = frame[:snaplen]
        row["number"], row["time"], row["link_type"] = number, number * 1000, 1
        row["offset"], row["captured"], row["original"] = len(data), len(kept), len(frame)
        data += kept
    return FrameBatch(np.frombuffer(bytes(data), np.uint8), rows)


def packets(frames: list[bytes], snaplen: int = 65535) -> PacketBatch:
    batch = batch_of(frames, snaplen)
    return decode(batch, locate(batch, AddressTable()))


def by_scapy(frame: bytes, number: int) -> dict[str, int]:
    """The PACKET columns of a whole frame, dissected by Scapy."""
    packet = Ether(frame)
    bth = packet[BTH]
    headers = sum(HEADER_BYTES[name] for name in OPCODES[bth.opcode].headers) if bth.opcode in OPCODES else 0
    length = len(bytes(bth)) - 12 - headers - len(bth.pad) - 4
    reth, atomic, aeth, deth = (bth.getlayer(layer) for layer in (RETH, AtomicETH, AETH, DETH))
    memory = reth or atomic
    immediate = bth[ImmDt].immediate if ImmDt in bth else bth[IETH].r_key if IETH in bth else 0
    return {
        "frame": number,
        "time": number * 1000,
        "length": length,
        "captured": length,
        "wire": len(frame),
        "source_port": packet.sport,
        "opcode": bth.opcode,
        "flags": bth.a * FLAG_ACK_REQUEST
        + bth.se * FLAG_SOLICITED
        + bth.becn * FLAG_BECN
        + bth.fecn * FLAG_FECN
        + bth.m * FLAG_MIGRATION,
        "dest_qp": bth.dest_qp,
        "psn": bth.psn,
        "va": memory.va if memory else 0,
        "r_key": memory.r_key if memory else 0,
        "dma_length": reth.dma_len if reth else 0,
        "immediate": immediate,
        "source_qp": deth.src_qp if deth else 0,
        "msn": aeth.msn if aeth else 0,
        "syndrome": aeth.syndrome if aeth else 0,
        "pad": bth.padcnt,
        "ecn": packet[IP].tos & 3,
        "headers": 1,
    }


@st.composite
def scripts(draw: st.DrawFn) -> Packet:
    opcode = draw(st.sampled_from(sorted(OPCODES)) | st.integers(0, 255))
    headers = OPCODES[opcode].headers if opcode in OPCODES else ()
    size = sum(HEADER_BYTES[name] for name in headers)
    return script(
        opcode,
        draw(st.binary(min_size=size, max_size=size)),
        draw(st.binary(max_size=30)),
        ack_request=draw(st.booleans()),
        solicited=draw(st.booleans()),
        becn=draw(st.booleans()),
        ecn=draw(st.integers(0, 3)),
    )


@given(st.lists(scripts(), min_size=1, max_size=6))
def test_rows_equal_scapy(written: list[Packet]) -> None:
    frames = [encode(packet) for packet in written]
    found = packets(frames)
    for number, (row, packet) in enumerate(zip(found.rows, written, strict=True), 1):
        expected = by_scapy(frames[number - 1], number)
        assert {name: row[name].item() for name in expected} == expected
        start = row["payload"]
        assert found.data[start : start + row["captured"]].tobytes() == packet.payload
        assert found.data[row["bth"]] == packet.opcode
        assert row["source"] != row["destination"]


@given(st.lists(scripts(), min_size=1, max_size=6), st.integers(0, 120))
def test_truncated_frames_keep_what_they_have(written: list[Packet], snaplen: int) -> None:
    frames = [encode(packet) for packet in written]
    whole, cut = packets(frames), packets(frames, snaplen)
    assert len(cut) + sum(cut.skipped.values()) == len(frames)
    for row in cut.rows:
        full = whole.rows[row["frame"] - 1]
        packet = written[row["frame"] - 1]
        in_capture = min(snaplen, len(frames[row["frame"] - 1])) - TO_BTH - 12 - len(packet.extended)
        same = ["time", "length", "wire", "opcode", "flags", "dest_qp", "psn", "pad", "ecn", "source_port"]
        assert row[same].tolist() == full[same].tolist()
        assert row["captured"] == max(0, min(in_capture, len(packet.payload)))
        assert row["headers"] == (in_capture >= 0)
        memory = ["va", "r_key", "dma_length", "immediate", "source_qp", "msn", "syndrome"]
        for name in memory:
            assert row[name] in (full[name], 0)
        if row["headers"]:
            assert row[memory].tolist() == full[memory].tolist()
        kept = cut.data[row["payload"] : row["payload"] + row["captured"]].tobytes()
        assert packet.payload.startswith(kept)


@pytest.mark.parametrize("kept", [0, 1, 11])
def test_a_truncated_bth_is_counted_not_shown(kept: int) -> None:
    write = encode(script(0x0A, bytes(16), b"data"))
    found = packets([write, write], TO_BTH + kept)
    assert len(found) == 0
    assert found.skipped == {TRUNCATED: 2}


def test_a_header_behind_a_truncated_one_stays_zero() -> None:
    frame = encode(script(0x0B, b"\x11" * 16 + b"\x22" * 4, b"data"))
    (row,) = packets([frame], TO_BTH + 12 + 16 + 3).rows
    assert (row["r_key"], row["immediate"], row["headers"]) == (0x11111111, 0, 0)
    assert (row["length"], row["captured"]) == (4, 0)
    (row,) = packets([frame], TO_BTH + 12 + 15).rows
    assert (row["va"], row["r_key"], row["dma_length"], row["headers"]) == (0, 0, 0, 0)
    assert row["length"] == 4


def test_a_packet_too_short_for_its_opcode() -> None:
    (row,) = packets([encode(script(0x13, bytes(8)))]).rows
    assert (row["length"], row["captured"], row["headers"], row["va"]) == (0, 0, 0, 0)


def test_the_last_packet_ends_with_the_data() -> None:
    frame = encode(script(0x11, b"\x60\x00\x00\x05"))
    (row,) = packets([frame], len(frame) - 4).rows
    assert (row["syndrome"], row["msn"], row["headers"]) == (0x60, 5, 1)


def test_no_packets() -> None:
    found = packets([])
    assert isinstance(found.rows, np.ndarray)
    assert found.rows.dtype == PACKET
    assert len(found) == 0


def test_other_frames_between_do_not_shift_the_rows() -> None:
    arp = b"\xff" * 6 + b"\x02" * 6 + b"\x08\x06" + bytes(28)
    found = packets([arp, encode(script(payload=b"one")), arp, encode(script(payload=b"three"))])
    rows: Rows = found.rows
    assert rows["frame"].tolist() == [2, 4]
    assert rows["length"].tolist() == [3, 5]
    assert found.skipped == {"ARP": 2}
