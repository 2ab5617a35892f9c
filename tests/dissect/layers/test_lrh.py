"""Native InfiniBand as Scapy layers, and the VCRC on bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from playbook import wrap
from playbook.wrap import INFINIBAND
from rdmascope.dissect.layers.bth import BTH, RETH
from rdmascope.dissect.layers.icrc import icrc_local, icrc_ok, vcrc, vcrc_ok, verify, verify_local, verify_vcrc
from rdmascope.dissect.layers.lrh import ERF, LRH, ERFExtension
from rdmascope.dissect.layers.roce import GRH
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.packets import decode

WRITE = BTH(opcode=0x0A, dest_qp=17) / RETH(va=1, dma_len=6) / b"hello\n"


def local(payload: bytes = b"abcd") -> bytes:
    """A packet without a GRH, its checksums made bit by bit."""
    bth = bytes([4, 0, 0xFF, 0xFF, 0x40, 0, 0, 17, 0, 0, 0, 1]) + payload
    header = wrap.lrh(2, len(bth) + 4, 7, 9)
    packet = header + bth + wrap.icrc(bytes([header[0] | 0xF0]) + header[1:] + wrap.without_variant(bth))
    return packet + wrap.vcrc(packet)


@pytest.mark.parametrize(
    "beneath", [LRH(slid=3, dlid=4, vl=2), LRH(slid=3, dlid=4) / GRH(sgid="fe80::1", dgid="fe80::2")]
)
def test_built_packets_come_back(beneath: Any) -> None:
    built = bytes(beneath / WRITE)
    packet = LRH(built)
    assert bytes(packet) == built
    assert packet.lnh == (3 if GRH in packet else 2)
    assert packet.pktlen is not None and packet.pktlen * 4 + 2 == len(built)
    assert packet[BTH].padcnt == 2
    assert packet[RETH].load == b"hello\n"
    assert packet.verify_vcrc() is packet[BTH].verify_icrc() is True
    assert packet.mysummary() == "LRH LID 3 > LID 4"


def test_checksums_made_bit_by_bit_are_the_same() -> None:
    packet = LRH(local())
    assert packet.verify_vcrc()
    assert packet[BTH].verify_icrc()
    assert (packet.slid, packet.dlid, packet.vl) == (9, 7, 3)
    del packet.vcrc, packet[BTH].icrc
    assert bytes(packet) == local()
    assert verify_local(local())
    assert icrc_local(local()[:-6]) == int.from_bytes(local()[-6:-2], "big")


def test_the_grh_makes_the_local_header_variant() -> None:
    built = bytearray(bytes(LRH(slid=3, dlid=4) / GRH(sgid="fe80::1", dgid="fe80::2") / WRITE))
    built[3] ^= 0xFF
    assert LRH(bytes(built))[BTH].verify_icrc()
    assert verify(bytes(built[8:]))
    assert not verify_vcrc(bytes(built))


@given(st.binary(min_size=1, max_size=80), st.integers(0, 5), st.integers(1, 255))
def test_one_wrong_byte_is_found(payload: bytes, place: int, change: int) -> None:
    packet = bytearray(local(payload + bytes(-len(payload) % 4)))
    packet[-6 - place] ^= change
    assert verify_local(bytes(packet)) is False
    assert verify_vcrc(bytes(packet)) is False


@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    LRH(data).show(dump=True)
    ERF(data).show(dump=True)
    verify_local(data)
    verify_vcrc(data)


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_a_column_of_vcrcs_is_one_after_the_other(packets: list[tuple[int, bool, bool]]) -> None:
    frames, expected = [], []
    for words, wrong, cut in packets:
        packet = bytearray(local(bytes(range(256))[: words * 4] + bytes(max(0, words * 4 - 256))))
        packet[-1] ^= wrong
        frames.append(wrap.Raw(bytes(packet[:-1] if cut else packet), 0, INFINIBAND))
        expected.append(None if cut else not wrong)
    batch = wrap.batch(frames)
    rows = decode(batch, locate(batch, AddressTable())).rows
    assert vcrc_ok(batch, rows) == expected
    assert icrc_ok(batch, rows) == [True] * len(frames)
    assert vcrc_ok(batch, rows[:0]) == []


def test_the_longest_packet() -> None:
    packet = local(bytes(0x7FF * 4 - 24))
    assert vcrc(packet[:-2]) == int.from_bytes(packet[-2:], "big")
    batch = wrap.batch([wrap.Raw(packet, 0, INFINIBAND)])
    assert vcrc_ok(batch, decode(batch, locate(batch, AddressTable())).rows) == [True]


@pytest.mark.parametrize("extensions", [0, 1, 3])
def test_erf_records(extensions: int) -> None:
    record = ERF(wrap.erf(local(), extensions=extensions))
    assert (record.type, record.wlen) == (21, len(local()))
    assert sum(1 for _ in range(9) if record.getlayer(ERFExtension, _ + 1)) == extensions
    assert record[LRH].verify_vcrc()
    assert record[LRH].slid == 9
    ethernet = ERF(wrap.erf(wrap.MAC + wrap.ipv4(b"", 6), kind=2))
    assert Ether in ethernet
    assert IP in ethernet
    assert Raw in ERF(wrap.erf(bytes(20), kind=5))


def test_lids_are_no_addresses() -> None:
    table = AddressTable()
    ids = table.lid_ids(np.array([3, 65535, 3]))
    assert [table.name(int(one)) for one in ids] == ["LID 3", "LID 65535", "LID 3"]
    assert len(table) == 2
    assert table.id(table.address(int(ids[0]))) == ids[0]
