"""The fast transport header decoder: real messages, illegal ones, cut ones, and the layer as its equal."""

from __future__ import annotations

from dataclasses import asdict
from struct import pack
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scapy.packet import NoPayload

from rdmascope.dissect.layers.rpcrdma import (
    RPCRDMA,
    RDMA2Error,
    RDMA2Msg,
    RDMA2Nomsg,
    RDMA2Optional,
    RDMAError,
    RDMAMsg,
    RDMAMsgp,
    RDMANomsg,
    RDMASegment,
    ReadSegment,
    SegmentArray,
)
from rdmascope.dissect.layers.rpcrdma_codes import (
    ERR_CHUNK,
    ERR_INVAL_OPTION,
    ERR_VERS,
    RDMA_DONE,
    RDMA_ERROR,
    RDMA_MSG,
    RDMA_MSGP,
    RDMA_NOMSG,
    RDMA_OPTIONAL,
)
from rdmascope.dissect.rpcrdma.messages import ReadChunk, Segment, TransportHeader, WriteChunk
from rdmascope.dissect.rpcrdma.transport_header import decode_header

NULL_CALL = bytes.fromhex(
    "28a82abb00000001000000800000000000000000000000000000000028a82abb0000000000000002000186a3"
    "000000030000000000000000000000000000000000000000"
)
WRITE_CALL = bytes.fromhex(
    "45a82abb0000000100000080000000000000000100000070000003f40002000045a82abbc4d5700000000001"
    "000000700000186f0002000045a82abbc4db700000000000000000000000000045a82abb0000000000000002"
    "000186a30000000300000007000000010000001c0000000000000006636c69656e7400000000000000000000"
    "00000000000000000000000000000000000000001401000101000000004eb852c9ce00000000000000000000"
    "0000000000000400000000000000040000"
)
READ_CALL = bytes.fromhex(
    "3ca82abb000000010000008000000000000000000000000100000001000003f1000010003ca82abbc43f7000"
    "00000000000000003ca82abb0000000000000002000186a30000000300000006000000010000001c00000000"
    "00000006636c69656e7400000000000000000000000000000000000000000000000000140100010100000000"
    "bce0c6860200000000000000000000000000000000001000"
)
LONG_REPLY = bytes.fromhex(
    "2fa82abb0000000100000040000000010000000000000000000000010000000300000c0d000000b82fa82abb"
    "c49e480000000b7d000000002fa82abb1fe9500000000a97000000002fa82abbc49e4900"
)
LONG_CALL = bytes.fromhex(
    "7508d98a000000010000008000000001000000010000000000000a7e000000a47508d98a849ec00000000001"
    "00000000000009e1000013887508d98a84a95000000000000000000000000000"
)
REAL = [NULL_CALL, WRITE_CALL, READ_CALL, LONG_REPLY, LONG_CALL]


def decode(data: bytes, length: int | None = None) -> TransportHeader:
    return decode_header(data, 0, len(data), len(data) if length is None else length)


def words(*values: int) -> bytes:
    return pack(f">{len(values)}I", *values)


def test_a_call_without_chunks() -> None:
    header = decode(NULL_CALL)
    assert (header.xid, header.version, header.credits, header.procedure) == (0x28A82ABB, 1, 128, RDMA_MSG)
    assert not header.chunks and header.length == 28
    assert not header.problem and not header.truncated


def test_a_write_call_whose_read_segments_share_a_position() -> None:
    header = decode(WRITE_CALL)
    segments = (
        Segment(0x03F4, 131072, 0x45A82ABBC4D57000),
        Segment(0x186F, 131072, 0x45A82ABBC4DB7000),
    )
    assert header.reads == (ReadChunk(112, segments),)
    assert header.reads[0].length == 262144
    assert header.length == 76


def test_a_read_call_offers_a_write_chunk() -> None:
    header = decode(READ_CALL)
    assert header.writes == (WriteChunk((Segment(0x03F1, 4096, 0x3CA82ABBC43F7000),)),)
    assert header.reply is None and header.length == 52


def test_a_long_reply_returns_the_reply_chunk() -> None:
    header = decode(LONG_REPLY)
    assert header.procedure == RDMA_NOMSG and header.reply is not None
    assert [segment.length for segment in header.reply.segments] == [184, 0, 0]
    assert header.length == len(LONG_REPLY)


def test_a_long_call_has_position_zero() -> None:
    header = decode(LONG_CALL)
    assert [(chunk.position, chunk.length) for chunk in header.reads] == [(0, 5164)]


def test_positions_group_only_where_they_follow_each_other() -> None:
    entries = [words(1, position, 7, 4) + bytes(8) for position in (8, 8, 12, 8)]
    header = decode(words(1, 1, 1, RDMA_MSG) + b"".join(entries) + words(0, 0, 0))
    assert [(chunk.position, len(chunk.segments)) for chunk in header.reads] == [(8, 2), (12, 1), (8, 1)]


@pytest.mark.parametrize("as_type", [bytes, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_any_buffer_at_any_offset(as_type: Any) -> None:
    for data in REAL:
        header = decode_header(as_type(b"\xaa" * 5 + data + b"\xbb" * 9), 5, 5 + len(data), len(data))
        assert asdict(header) == asdict(decode(data))


def test_bytes_behind_the_true_length_are_not_the_sends() -> None:
    header = decode_header(LONG_REPLY, 0, len(LONG_REPLY), 40)
    assert header.problem and not header.truncated


def test_versions_refused_are_listed() -> None:
    header = decode(words(9, 2, 1, RDMA_ERROR, ERR_VERS, 1, 1))
    assert (header.error, header.supported, header.length, header.problem) == (ERR_VERS, (1, 1), 28, "")


def test_a_bad_header_is_refused() -> None:
    header = decode(words(9, 1, 1, RDMA_ERROR, ERR_CHUNK))
    assert (header.error, header.supported, header.length, header.problem) == (ERR_CHUNK, None, 20, "")


def test_version_2_has_a_direction_and_one_more_error() -> None:
    call = decode(words(9, 2, 8, RDMA_MSG, 0, 0, 0, 0, 77))
    reply = decode(words(9, 2, 8, RDMA_NOMSG, 1, 0, 0, 1, 1, 5, 100, 0, 64))
    assert (call.direction, call.credits, call.length, call.problem) == (0, 8, 32, "")
    assert (reply.direction, reply.reply, reply.length) == (1, WriteChunk((Segment(5, 100, 64),)), 52)
    refused = decode(words(9, 2, 1, RDMA_ERROR, ERR_INVAL_OPTION))
    assert (refused.error, refused.direction, refused.length, refused.problem) == (ERR_INVAL_OPTION, None, 20, "")


def test_an_option_keeps_its_bytes_and_may_have_a_payload() -> None:
    header = decode(words(9, 2, 8, RDMA_OPTIONAL, 1, 77, 5) + b"hello\0\0\0" + words(9, 1))
    assert (header.direction, header.option, header.optinfo) == (1, 77, b"hello")
    assert (header.length, header.problem) == (36, "")


def test_rdma_msgp_and_done_still_decode() -> None:
    padded = decode(words(9, 1, 1, RDMA_MSGP, 64, 128, 0, 0, 0))
    done = decode(words(9, 1, 1, RDMA_DONE))
    assert (padded.length, padded.problem) == (36, "")
    assert (done.length, done.problem) == (16, "")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (words(9, 3, 1, RDMA_MSG, 0, 0, 0), "version 3"),
        (words(9, 1, 1, 77), "rdma_proc at offset 12 is 77"),
        (words(9, 1, 1, RDMA_OPTIONAL), "rdma_proc at offset 12 is 5, which version 1 does not define"),
        (words(9, 2, 1, RDMA_MSGP), "rdma_proc at offset 12 is 2, which version 2 does not define"),
        (words(9, 2, 1, RDMA_DONE), "rdma_proc at offset 12 is 3, which version 2 does not define"),
        (words(9, 2, 1, RDMA_MSG, 2, 0, 0, 0), "rdma_direction at offset 16 is 2, neither 0 (CALL) nor 1 (REPLY)"),
        (words(9, 2, 1, RDMA_MSG, 0, 0, 0), "rdma_reply at offset 28 runs past the end of the Send (28 bytes)"),
        (words(9, 2, 1, RDMA_OPTIONAL, 9), "rdma_optdir at offset 16 is 9"),
        (words(9, 2, 1, RDMA_OPTIONAL, 0, 1, 0xFFFFFFFD), "rdma_optinfo's length at offset 24 is 4294967293 bytes"),
        (words(9, 2, 1, RDMA_OPTIONAL, 0, 1, 1) + b"a\0\0\1", "the pad of rdma_optinfo at offset 29 is not zero"),
        (words(9, 2, 1, RDMA_ERROR, 4), "rdma_err at offset 16 is 4, none of 1, 2 and 3"),
        (words(9, 1, 1, RDMA_ERROR, 3), "rdma_err at offset 16 is 3"),
        (words(9, 1, 1, RDMA_MSG, 2, 0, 0), "rdma_reads at offset 16 is 2"),
        (words(9, 1, 1, RDMA_MSG, 0, 5, 0), "rdma_writes at offset 20 is 5"),
        (words(9, 1, 1, RDMA_MSG, 0, 0, 0xFFFFFFFF), "rdma_reply at offset 24 is 4294967295"),
        (words(9, 1, 1, RDMA_MSG, 1, 0, 0, 0), "rdma_reads entry at offset 16 runs past the end"),
        (words(9, 1, 1, RDMA_MSG, 0, 1, 0xFFFFFFFF, 0), "at offset 24 counts 4294967295 segments"),
        (words(9, 1, 1, RDMA_NOMSG, 0, 0, 1, 1), "rdma_reply's segment count at offset 28 counts 1"),
        (words(9, 1, 1, RDMA_MSG, 0, 0, 1, 1, 2, 3, 4), "at offset 28 counts 1 segments"),
        (words(9, 1, 1, RDMA_MSG, 0, 0), "rdma_reply at offset 24 runs past the end of the Send (24 bytes)"),
        (words(9, 1, 1, RDMA_ERROR, ERR_VERS, 1), "rdma_vers_high at offset 24 runs past the end"),
        (words(9, 1), "rdma_credit at offset 8 runs past the end"),
        (b"", "rdma_xid at offset 0 runs past the end"),
    ],
)
def test_the_problem_names_field_and_offset(data: bytes, problem: str) -> None:
    header = decode(data)
    assert problem in header.problem
    assert not header.truncated


VERSION_2 = [
    bytes(RPCRDMA(xid=7, credits=8) / RDMA2Msg(reads=[ReadSegment(position=96, handle=5, length=4096)]))
    + NULL_CALL[28:],
    bytes(
        RPCRDMA(xid=7) / RDMA2Nomsg(rdma_direction=1, reply=SegmentArray(segments=[RDMASegment(handle=5, length=64)]))
    ),
    words(9, 2, 8, RDMA_OPTIONAL, 0, 1, 9) + b"123456789\0\0\0",
    words(9, 2, 8, RDMA_ERROR, ERR_VERS, 1, 1),
]


@pytest.mark.parametrize("data", [*REAL, *VERSION_2])
def test_a_truncated_frame_gives_what_it_has(data: bytes) -> None:
    whole = decode(data)
    for end in range(len(data)):
        cut = decode(data[:end], len(data))
        if end >= whole.length:
            assert asdict(cut) == asdict(whole)
            continue
        assert cut.truncated and "is not in the capture" in cut.problem
        assert cut.length <= end
        assert cut.credits == (whole.credits if end >= 12 else None)
        assert cut.procedure == (whole.procedure if end >= 16 else None)
        assert segments_of(cut.reads) == segments_of(whole.reads)[: len(segments_of(cut.reads))]
        assert segments_of(cut.writes) == segments_of(whole.writes)[: len(segments_of(cut.writes))]
        assert whole.optinfo.startswith(cut.optinfo)


def segments_of(chunks: Any) -> list[Segment]:
    return [segment for chunk in chunks for segment in chunk.segments]


U32 = st.integers(0, 2**32 - 1)
SEGMENTS = st.builds(RDMASegment, handle=U32, length=U32, offset=st.integers(0, 2**64 - 1))
READS = st.lists(
    st.builds(
        ReadSegment,
        position=st.sampled_from([0, 4, 8, 0xFFFFFFFF]),
        handle=U32,
        length=U32,
        offset=st.integers(0, 2**64 - 1),
    ),
    max_size=5,
)
CHUNKS = st.builds(SegmentArray, segments=st.lists(SEGMENTS, max_size=4))
LISTS = {"reads": READS, "writes": st.lists(CHUNKS, max_size=3), "reply": st.none() | CHUNKS}
BODIES = st.one_of(
    st.builds(RDMAMsg, **LISTS),
    st.builds(RDMANomsg, **LISTS),
    st.builds(RDMAMsgp, align=U32, thresh=U32, **LISTS),
    st.builds(RDMAError, err=st.integers(0, 3), vers_low=U32, vers_high=U32),
    st.builds(RDMA2Msg, rdma_direction=st.integers(0, 1), **LISTS),
    st.builds(RDMA2Nomsg, rdma_direction=st.integers(0, 1), **LISTS),
    st.builds(RDMA2Error, err=st.integers(0, 4), vers_low=U32, vers_high=U32),
    st.builds(
        RDMA2Optional, rdma_direction=st.integers(0, 1), opttype=st.integers(0, 5), optinfo=st.binary(max_size=30)
    ),
)
MESSAGES = st.builds(
    lambda xid, credits, body, rest: bytes(RPCRDMA(xid=xid, credits=credits) / body) + rest,
    U32,
    U32,
    BODIES,
    st.binary(max_size=40),
)


@st.composite
def wire(draw: st.DrawFn) -> bytes:
    """A header as it might be, then perhaps with a word changed, perhaps cut."""
    data = bytearray(draw(MESSAGES))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(data) // 4 - 1)) * 4
        data[at : at + 4] = pack(">I", draw(st.sampled_from([0, 1, 2, 3, 5, 0x0FFFFFFF, 0xFFFFFFFF])))
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    return bytes(data)


ERRORS = {RDMAError: (ERR_VERS, ERR_CHUNK), RDMA2Error: (ERR_VERS, ERR_CHUNK, ERR_INVAL_OPTION)}


def check_against_layer(data: bytes) -> None:
    header = decode(data)
    if len(data) < 16:
        assert header.problem and header.procedure is None
        return
    packet = RPCRDMA(data)
    assert (header.xid, header.version, header.credits, header.procedure) == (
        packet.xid,
        packet.version,
        packet.credits,
        packet.procedure,
    )
    body = packet.payload
    if isinstance(body, (RDMAError, RDMA2Error)):
        assert (header.error, header.problem == "") == (body.err, body.err in ERRORS[type(body)])
        if body.err == ERR_VERS:
            assert header.supported == (body.vers_low, body.vers_high)
    elif isinstance(body, RDMA2Optional):
        assert not header.problem
        assert (header.direction, header.option) == (body.rdma_direction, body.opttype)
        assert header.optinfo == bytes(body.optinfo)
    elif isinstance(body, (RDMAMsg, RDMANomsg, RDMAMsgp, RDMA2Msg, RDMA2Nomsg)):
        assert not header.problem
        assert header.direction == (body.rdma_direction if header.version == 2 else None)
        assert [(chunk.position, *segment) for chunk in header.reads for segment in chunk.segments] == [
            (read.position, read.handle, read.length, read.offset) for read in body.reads
        ]
        assert [plain(chunk) for chunk in header.writes] == [listed(chunk) for chunk in body.writes]
        assert (header.reply is None) == (body.reply is None)
        if header.reply is not None:
            assert plain(header.reply) == listed(body.reply)
    else:
        assert (header.problem == "") == (header.version == 1 and header.procedure == RDMA_DONE)
        return
    behind = body.payload
    if not header.problem:
        assert header.length == len(data) - (0 if isinstance(behind, NoPayload) else len(behind.original))


def plain(chunk: WriteChunk) -> list[tuple[int, ...]]:
    return [tuple(segment) for segment in chunk.segments]


def listed(chunk: Any) -> list[tuple[int, ...]]:
    return [(segment.handle, segment.length, segment.offset) for segment in chunk.segments]


@given(wire())
def test_decoder_and_layer_agree_on_headers_legal_truncated_and_hostile(data: bytes) -> None:
    check_against_layer(data)


@given(
    st.one_of(
        st.binary(max_size=120),
        st.lists(st.sampled_from([0, 1, 1, 2, 4, 0xFFFFFFFF]), max_size=40).map(lambda list_: words(*list_)),
    )
)
def test_decoder_and_layer_agree_on_anything(data: bytes) -> None:
    check_against_layer(data)
    check_against_layer(words(1, 1, 1) + data)
    check_against_layer(words(1, 2, 1) + data)
    check_against_layer(words(1, 2, 1, RDMA_OPTIONAL) + data)


@given(wire(), st.data())
def test_truncation_never_changes_what_came_before_it(data: bytes, draw: st.DataObject) -> None:
    whole = decode(data)
    cut = decode(data[: draw.draw(st.integers(0, len(data)))], len(data))
    if not cut.truncated:
        assert asdict(cut) == asdict(whole)
        return
    assert cut.length <= whole.length
    assert segments_of(cut.reads) == segments_of(whole.reads)[: len(segments_of(cut.reads))]
    assert segments_of(cut.writes) == segments_of(whole.writes)[: len(segments_of(cut.writes))]
    if cut.reply is not None:
        assert whole.reply is not None
        assert cut.reply.segments == whole.reply.segments[: len(cut.reply.segments)]


@pytest.mark.parametrize("segments", range(1, 16))
def test_long_lists_truncated_at_every_byte(segments: int) -> None:
    """Lists are looked at in two steps, and each has a first word behind it."""
    listed = [word for number in range(segments) for word in (7, 8, 9, number)]
    data = words(1, 1, 32, RDMA_MSG, 0, 1, segments, *listed, 0, 0)
    for end in range(len(data)):
        cut = decode(data[:end], len(data))
        assert cut.truncated
        check_against_layer(data[:end])
    assert segments_of(decode(data + bytes(8)).writes) == segments_of(decode(data).writes)
    assert len(decode(data).writes[0].segments) == segments
    assert not decode(data).problem
