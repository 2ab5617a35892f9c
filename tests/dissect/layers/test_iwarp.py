"""MPA, DDP and RDMAP as Scapy layers: real frames in, the same bytes out, CRCs and markers that hold."""

from __future__ import annotations

import doctest
from struct import pack
from typing import Any

import pytest
from hypothesis import given, strategies as st
from scapy.layers.inet import IP, TCP
from scapy.packet import Padding, Raw

from rdmascope.dissect.layers import iwarp, iwarp_codes
from rdmascope.dissect.layers.columns import compile_header
from rdmascope.dissect.layers.fpdus import crc32c, fpdu_bytes, insert_markers, remove_markers, split_fpdus, verify_crc
from rdmascope.dissect.layers.mpa import (
    FPDU,
    RDMAP_HEADERS,
    DDPTagged,
    DDPUntagged,
    MPAEnhanced,
    MPAReply,
    MPARequest,
    RDMAPAtomicRequest,
    RDMAPAtomicResponse,
    RDMAPImmediateData,
    RDMAPReadRequest,
    RDMAPTerminate,
    mpa_class,
)
from rdmascope.dissect.layers.oncrpc import ONCRPC
from rdmascope.dissect.layers.private_data import ConsumerPrivateData, RPCRDMAPrivateData
from rdmascope.dissect.layers.rpcrdma import RPCRDMA

REQUEST = bytes.fromhex("4d504120494420526571204672616d651002000c00800000f6ab0e1801010303")
REPLY = bytes.fromhex("4d504120494420526570204672616d651002000c00000080f6ab0e1801000303")
NULL_CALL = bytes.fromhex(
    "0056414300000000000000000000000100000000856dd55c0000000100000080000000000000000000000000"
    "00000000856dd55c0000000000000002000186a300000003000000000000000000000000000000000000000000000000"
)
REAL = {  # sent by Linux's siw, NFS over RDMA, CRCs not in use
    "NULL call": NULL_CALL,
    "NULL reply": bytes.fromhex(
        "0046414300000000000000000000000100000000856dd55c00000001000000400000000000000000000000000000"
        "0000856dd55c000000010000000000000000000000000000000000000000"
    ),
    "READ_REQUEST": bytes.fromhex(
        "002e41410000000000000001000000010000000097aa9801ff28c2099fe730000004000022c05308a26dd55c84e2e00000000000"
    ),
    "SEND_INVALIDATE": bytes.fromhex(
        "0042414498f05604000000000000001600000000ebc175cd0000000100000040000000010000000000000000000000010000"
        "000198f0560400000034ebc175cd8506200000000000"
    ),
    "WRITE and SEND": bytes.fromhex(
        "0016c14077f7ea01966dd55cd78d40740000000000000001000000000062414300000000000000000000001200000000966d"
        "d55c00000001000000400000000100000000000000000000000100000003299098020000007c966dd55c8509f00077f7ea01"
        "0000a07c966dd55cd78ca0005539300100000000966dd55c8509f07c00000000"
    ),
}


def words(*values: int) -> bytes:
    return pack(f">{len(values)}I", *values)


@pytest.mark.parametrize("frame", REAL.values(), ids=REAL.keys())
class TestRealFPDUs:
    def test_building_gives_the_same_bytes(self, frame: bytes) -> None:
        assert bytes(FPDU(frame)) == frame

    def test_length_and_pad_are_computed_as_the_sender_did(self, frame: bytes) -> None:
        for framed in split_fpdus(frame):
            packet = FPDU(framed.fpdu)
            del packet.ulpdulength, packet.pad
            assert bytes(packet) == framed.fpdu

    def test_truncated_anywhere_nothing_is_made_up(self, frame: bytes) -> None:
        for size in range(2, len(frame)):
            packet = FPDU(frame[:size])
            assert bytes(packet) == frame[:size]
            assert packet.show(dump=True)
            assert packet.ulpdulength is not None
            if size < fpdu_bytes(packet.ulpdulength):
                assert not isinstance(packet.crc, int) and packet.verify_crc() is None

    def test_the_crc_is_made_anew_and_covers_every_byte(self, frame: bytes) -> None:
        packet = FPDU(split_fpdus(frame)[0].fpdu)
        assert packet.verify_crc() is False  # siw sends zeros where CRCs are not in use
        del packet.crc
        good = bytes(packet)
        assert FPDU(good).verify_crc() is True and verify_crc(good) is True
        for at in range(2, len(good)):
            spoiled = bytearray(good)
            spoiled[at] ^= 1
            assert FPDU(bytes(spoiled)).verify_crc() is False


def test_the_crc_of_iscsi() -> None:
    """The examples of RFC 3720, B.4, whose CRC MPA uses (RFC 5044, 4.4)."""
    assert crc32c(bytes(32)) == 0xAA36918A
    assert crc32c(b"\xff" * 32) == 0x43ABA862
    assert crc32c(bytes(range(32))) == 0x4E79DD46


def test_a_real_call() -> None:
    """Behind TCP port 20049 the Send is RPC-over-RDMA; elsewhere nothing says so."""
    packet = IP(bytes(IP(src="10.77.0.2", dst="10.77.0.1") / TCP(sport=42162, dport=20049) / NULL_CALL))
    assert packet[FPDU].ulpdulength == 86
    untagged = packet[DDPUntagged]
    assert (untagged.tagged_flag, untagged.last_flag, untagged.dv, untagged.version) == (0, 1, 1, 1)
    assert (untagged.opcode, untagged.qn, untagged.msn, untagged.mo) == (iwarp_codes.SEND, 0, 1, 0)
    assert packet[RPCRDMA].xid == packet[ONCRPC].xid == 0x856DD55C
    assert RPCRDMA not in FPDU(NULL_CALL)


def test_a_real_read_request() -> None:
    packet = FPDU(REAL["READ_REQUEST"])
    assert (packet[DDPUntagged].opcode, packet[DDPUntagged].qn, packet[DDPUntagged].msn) == (1, 1, 1)
    read = packet[RDMAPReadRequest]
    assert (read.sinkstag, read.sinkto, read.rdmardsz) == (0x97AA9801, 0xFF28C2099FE73000, 262144)
    assert (read.srcstag, read.srcto) == (0x22C05308, 0xA26DD55C84E2E000)


def test_a_real_send_with_invalidate() -> None:
    untagged = FPDU(REAL["SEND_INVALIDATE"])[DDPUntagged]
    assert (untagged.opcode, untagged.inval_stag, untagged.msn) == (iwarp_codes.SEND_INVALIDATE, 0x98F05604, 22)


def test_two_fpdus_in_one_segment() -> None:
    both = REAL["WRITE and SEND"]
    packet = FPDU(both)
    tagged = packet[DDPTagged]
    assert (tagged.stag, tagged.tagged_offset, tagged.opcode, tagged.last_flag) == (
        0x77F7EA01,
        0x966DD55CD78D4074,
        0,
        1,
    )
    assert packet[Raw].load == words(0, 1)
    assert packet[Padding].load == both[28:]
    assert [framed.at for framed in split_fpdus(both)] == [0, 28]
    assert FPDU(split_fpdus(both)[1].fpdu)[DDPUntagged].msn == 18


def test_a_real_set_up_of_revision_2() -> None:
    request, reply = mpa_class(REQUEST)(REQUEST), mpa_class(REPLY)(REPLY)
    assert isinstance(request, MPARequest) and isinstance(reply, MPAReply)
    assert (request.marker_flag, request.crc_flag, request.rej_flag, request.enhanced_flag) == (0, 0, 0, 1)
    assert (request.rev, request.pdlength) == (2, 12)
    words = request[MPAEnhanced], reply[MPAEnhanced]
    assert [(word.a, word.b, word.ird, word.c, word.d, word.ord) for word in words] == [
        (0, 0, 128, 0, 0, 0),
        (0, 0, 0, 0, 0, 128),
    ]
    assert request[RPCRDMAPrivateData].r == 1 and reply[RPCRDMAPrivateData].r == 0
    assert bytes(request) == REQUEST and bytes(reply) == REPLY


def test_a_set_up_built_by_hand() -> None:
    reply = MPAReply(marker_flag=1, rej_flag=1) / MPAEnhanced(a=1, ird=5, d=1, ord=6) / b"ab" / RPCRDMAPrivateData(r=1)
    built = bytes(reply)
    assert built[:20] == b"MPA ID Rep Frame" + bytes([0xF0, 2, 0, 14])
    assert built[20:26] == bytes([0x80, 5, 0x40, 6]) + b"ab"
    again = MPAReply(built)
    assert again[ConsumerPrivateData].load == b"ab" and again[RPCRDMAPrivateData].r == 1
    assert bytes(again) == built


def test_revision_1_has_no_words_before_its_private_data() -> None:
    request = MPARequest(bytes(MPARequest() / RPCRDMAPrivateData()) + bytes(NULL_CALL))
    assert (request.rev, request.pdlength, MPAEnhanced in request) == (1, 8, False)
    assert request[RPCRDMAPrivateData].send_size == 3
    assert request[Padding].load == NULL_CALL


@pytest.mark.parametrize("row", iwarp_codes.OPCODES.values(), ids=lambda row: row.name)
def test_every_opcode_is_built_and_dissected(row: iwarp_codes.RdmapOpcode) -> None:
    segment = DDPTagged(opcode=row.value) if row.queue is None else DDPUntagged(opcode=row.value, qn=row.queue)
    body = RDMAP_HEADERS[row.header]() if row.header else Raw(b"some data")
    built = bytes(FPDU() / segment / body)
    packet = FPDU(built)
    assert packet.verify_crc() is True and bytes(packet) == built
    assert packet[type(segment)].opcode == row.value and type(body) in packet
    assert row.name in packet[type(segment)].sprintf(f"%{type(segment).__name__}.opcode%")
    header = "DDPTagged" if row.queue is None else "DDPUntagged"
    extra = iwarp_codes.HEADER_BYTES[row.header] if row.header else 9
    assert packet.ulpdulength == iwarp_codes.HEADER_BYTES[header] + extra
    assert mpa_class(built) is FPDU


@pytest.mark.parametrize(
    ("header", "opcode", "queue"),
    [
        (RDMAPReadRequest, 1, 1),
        (RDMAPTerminate, 7, 2),
        (RDMAPImmediateData, 8, 0),
        (RDMAPAtomicRequest, 10, 1),
        (RDMAPAtomicResponse, 11, 3),
    ],
)
def test_opcode_and_queue_follow_the_header(header: Any, opcode: int, queue: int) -> None:
    built = FPDU(bytes(FPDU() / DDPUntagged() / header()))[DDPUntagged]
    assert (built.opcode, built.qn) == (opcode, queue)


def test_an_atomic_request() -> None:
    request = RDMAPAtomicRequest(
        opcode=2,
        request_identifier=7,
        remote_stag=8,
        remote_tagged_offset=9,
        add_data=10,
        add_mask=11,
        compare_data=12,
        compare_mask=13,
    )
    assert bytes(request) == pack(">IIIQQQQQ", 2, 7, 8, 9, 10, 11, 12, 13)
    assert request.sprintf("%RDMAPAtomicRequest.opcode%") == "CmpSwap"


def test_a_terminate_quotes_the_headers_at_fault() -> None:
    """RFC 5040, 4.8: a Read Request for memory that was not offered."""
    quoted = DDPUntagged(msn=3) / RDMAPReadRequest(rdmardsz=4096, srcstag=5)
    terminate = RDMAPTerminate(term_etype=1, term_hdrct_m=1, hdrct_d=1, hdrct_r=1, term_ddp_seg_len=46)
    built = bytes(FPDU() / DDPUntagged() / terminate / quoted)
    assert built[20:26] == bytes([0x01, 0x00, 0xE0, 0x00, 0, 46])
    packet = FPDU(built)[RDMAPTerminate]
    assert packet.payload[RDMAPReadRequest].srcstag == 5 and packet.payload[DDPUntagged].msn == 3
    assert "Remote Protection Error" in packet.show(dump=True) and "Invalid STag" in packet.show(dump=True)
    assert packet.mysummary() == "Terminate: RDMA, Remote Protection Error, Invalid STag"


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        ((0, 0, 0), "RDMA, Local Catastrophic Error"),
        ((0, 2, 6), "RDMA, Remote Operation Error, Unexpected OpCode"),
        ((1, 1, 0), "DDP, Tagged Buffer Error, Invalid STag"),
        ((1, 2, 5), "DDP, Untagged Buffer Error, DDP Message too long for available buffer"),
        ((2, 0, 2), "LLP, MPA Error, MPA CRC error"),
        ((7, 9, 3), "layer 0x7, error type 0x9, error code 0x03"),
    ],
)
def test_terminates_in_words(codes: tuple[int, int, int], words: str) -> None:
    assert iwarp_codes.terminate_name(*codes) == words


ULPDUS = st.lists(st.binary(max_size=1500), max_size=8)


def chained(ulpdus: list[bytes]) -> list[bytes]:
    return [bytes(FPDU() / Raw(ulpdu)) for ulpdu in ulpdus]


@given(ULPDUS, st.integers(0, 300).map(lambda words: words * 4))
def test_markers_come_out_as_they_went_in(ulpdus: list[bytes], position: int) -> None:
    fpdus = chained(ulpdus)
    stream = insert_markers(fpdus, position)
    data, markers = remove_markers(stream, position)
    framed = split_fpdus(stream, position)
    assert [one.fpdu[2 : 2 + len(ulpdu)] for one, ulpdu in zip(framed, ulpdus, strict=True)] == ulpdus
    assert len(data) == sum(map(len, fpdus)) and b"".join(one.wire for one in framed) == stream
    assert all(verify_crc(one.wire) for one in framed)
    assert all((position + marker.at) % 512 == 0 for marker in markers)
    for marker in markers:  # each points back to the length of its FPDU
        one = max((one for one in framed if one.at <= marker.at), key=lambda one: one.at)
        leading = (position + one.at) % 512 == 0
        assert marker.fpduptr == (0 if marker.at == one.at else marker.at - one.at - 4 * leading)


def test_the_first_marker_stands_before_the_first_fpdu() -> None:
    stream = insert_markers(chained([bytes(1000), b"ab"]))
    assert stream[:6] == words(0) + (1000).to_bytes(2, "big")
    assert remove_markers(stream)[1] == [(0, 0, 0), (512, 0, 508)]
    assert len(stream) == fpdu_bytes(1000) + 4 + 4 + fpdu_bytes(2)


def test_crcs_that_are_not_in_use_stay_as_they_are() -> None:
    fpdu = REAL["READ_REQUEST"]
    assert insert_markers([fpdu], crc=False) == words(0) + fpdu


@given(st.binary(max_size=1200), st.one_of(st.none(), st.integers(0, 600)))
def test_any_stream_is_split_within_its_bounds(stream: bytes, position: int | None) -> None:
    framed = split_fpdus(stream, position)
    assert b"".join(one.wire for one in framed) == stream[: sum(len(one.wire) for one in framed)]


LAYERS = (FPDU, MPARequest, MPAReply, MPAEnhanced, DDPTagged, DDPUntagged, *RDMAP_HEADERS.values())


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
@given(data=st.data())
def test_dissection_never_raises_and_loses_nothing(layer: Any, data: st.DataObject) -> None:
    """Random bytes, and built packets with some bytes changed, cut anywhere."""
    whole = bytes(layer())
    start = data.draw(st.sampled_from([b"", whole, whole + REAL["READ_REQUEST"][2:]]))
    content = bytearray(start + data.draw(st.binary(max_size=80)))
    for at in data.draw(st.lists(st.integers(0, 1000), max_size=4)):
        content[at % max(1, len(content)) : at % max(1, len(content)) + 1] = data.draw(
            st.binary(min_size=1, max_size=1)
        )
    entered = layer in (FPDU, MPARequest, MPAReply)  # the others are only chosen where they are whole
    content = content[: data.draw(st.integers(0, len(content)))] if entered else content.ljust(len(whole) + 2, b"\0")
    packet = layer(bytes(content))
    packet.show(dump=True)
    packet.summary()
    assert bytes(packet) == content


@given(st.binary(max_size=80))
def test_whatever_a_segment_holds_it_is_kept(payload: bytes) -> None:
    sent = bytes(IP() / TCP(dport=20049) / Raw(payload))
    assert bytes(IP(sent)) == sent


def test_fixed_headers_compile() -> None:
    fixed = (MPARequest, MPAReply, MPAEnhanced, DDPTagged, DDPUntagged, RDMAPReadRequest, RDMAPAtomicRequest)
    sizes = {layer.__name__: compile_header(layer).size for layer in fixed}
    assert {name: sizes[name] for name in sizes if name in iwarp_codes.HEADER_BYTES} == {
        name: size for name, size in iwarp_codes.HEADER_BYTES.items() if name in sizes
    }
    assert (sizes["MPARequest"], sizes["MPAReply"], sizes["MPAEnhanced"]) == (20, 20, 4)


def test_other_ports_can_be_bound() -> None:
    sent = bytes(IP() / TCP(dport=5445) / NULL_CALL)
    assert FPDU not in IP(sent)
    iwarp.bind(5445)
    try:
        assert FPDU in IP(sent)
    finally:
        iwarp.unbind(5445)
    assert FPDU not in IP(sent)


def test_the_example_in_the_documentation() -> None:
    assert doctest.testmod(iwarp).failed == 0
