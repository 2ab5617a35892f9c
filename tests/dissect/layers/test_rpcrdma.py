"""RPC-over-RDMA version 1 headers as Scapy layers; their equality with the fast decoder is in test_header."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given, strategies as st
from scapy.packet import Raw

from rdmascope.dissect.layers.oncrpc import ONCRPC, ONCRPCCall
from rdmascope.dissect.layers.rpcrdma import (
    RPCRDMA,
    RDMAError,
    RDMAMsg,
    RDMAMsgp,
    RDMANomsg,
    RDMASegment,
    ReadSegment,
    SegmentArray,
)

WRITE_CALL = bytes.fromhex(
    "45a82abb0000000100000080000000000000000100000070000003f40002000045a82abbc4d5700000000001"
    "000000700000186f0002000045a82abbc4db700000000000000000000000000045a82abb0000000000000002"
    "000186a30000000300000007000000010000001c0000000000000006636c69656e7400000000000000000000"
    "00000000000000000000000000000000000000001401000101000000004eb852c9ce00000000000000000000"
    "0000000000000400000000000000040000"
)
LONG_REPLY = bytes.fromhex(
    "2fa82abb0000000100000040000000010000000000000000000000010000000300000c0d000000b82fa82abb"
    "c49e480000000b7d000000002fa82abb1fe9500000000a97000000002fa82abbc49e4900"
)


def words(*values: int) -> bytes:
    return pack(f">{len(values)}I", *values)


def test_a_real_write_call() -> None:
    packet = RPCRDMA(WRITE_CALL)
    assert (packet.xid, packet.version, packet.credits, packet.procedure) == (0x45A82ABB, 1, 128, 0)
    body = packet[RDMAMsg]
    assert [(read.position, read.handle, read.length) for read in body.reads] == [
        (112, 0x03F4, 131072),
        (112, 0x186F, 131072),
    ]
    assert body.writes == [] and body.reply is None
    assert packet[ONCRPC].xid == packet.xid and packet[ONCRPCCall].proc == 7
    assert bytes(packet) == WRITE_CALL


def test_a_real_long_reply() -> None:
    packet = RPCRDMA(LONG_REPLY)
    assert [segment.length for segment in packet[RDMANomsg].reply.segments] == [184, 0, 0]
    assert bytes(packet) == LONG_REPLY


def test_a_call_built_by_hand() -> None:
    packet = (
        RPCRDMA(xid=7, credits=32)
        / RDMAMsg(
            reads=[ReadSegment(position=4, handle=5, length=6, offset=7)],
            writes=[SegmentArray(segments=[RDMASegment(handle=8, length=9, offset=10)]), SegmentArray()],
            reply=SegmentArray(segments=[RDMASegment(), RDMASegment()]),
        )
        / ONCRPC(xid=7)
        / ONCRPCCall()
    )
    assert bytes(packet)[:124] == (
        words(7, 1, 32, 0)
        + words(1, 4, 5, 6, 0, 7, 0)
        + words(1, 1, 8, 9, 0, 10, 1, 0, 0)
        + words(1, 2)
        + bytes(32)
        + words(7)
    )
    assert bytes(RPCRDMA(bytes(packet))) == bytes(packet)


def test_a_change_inside_a_chunk_is_built() -> None:
    packet = RPCRDMA(LONG_REPLY)
    packet[RDMANomsg].reply.segments[2].length = 5
    assert RPCRDMA(bytes(packet))[RDMANomsg].reply.segments[2].length == 5


def test_procedures_follow_the_body() -> None:
    bodies = [RDMAMsg(), RDMANomsg(), RDMAMsgp(), RDMAError()]
    assert [RPCRDMA(bytes(RPCRDMA() / body)).procedure for body in bodies] == [0, 1, 2, 4]


def test_errors_have_two_shapes() -> None:
    assert bytes(RPCRDMA() / RDMAError(err=1, vers_low=1, vers_high=2))[16:] == words(1, 1, 2)
    assert bytes(RPCRDMA() / RDMAError(err=2))[16:] == words(2)
    refused = RPCRDMA(words(7, 3, 1, 4, 1, 1, 1))
    assert (refused.version, refused[RDMAError].vers_low, refused[RDMAError].vers_high) == (3, 1, 1)


def test_rdma_done_has_no_body() -> None:
    assert not RPCRDMA(words(7, 1, 1, 3)).payload


@pytest.mark.parametrize(
    "body",
    [
        words(2, 0, 0),
        words(0, 0),
        words(1, 0, 0, 0),
        words(0, 1, 0xFFFFFFFF, 0),
        words(0, 0, 1, 0x10000000),
        words(0, 0, 0xFFFFFFFF),
    ],
)
def test_illegal_chunk_lists_stay_raw(body: bytes) -> None:
    packet = RPCRDMA(words(7, 1, 1, 0) + body)
    assert isinstance(packet.payload, Raw)
    assert bytes(packet)[16:] == body


def test_other_versions_and_procedures_stay_raw() -> None:
    assert isinstance(RPCRDMA(words(7, 2, 1, 0, 0, 0, 0)).payload, Raw)
    assert isinstance(RPCRDMA(words(7, 1, 1, 5, 0, 0, 0)).payload, Raw)


def test_a_payload_that_is_no_rpc_message_stays_raw() -> None:
    assert isinstance(RPCRDMA(words(7, 1, 1, 0, 0, 0, 0, 7, 2, 0))[RDMAMsg].payload, Raw)


@given(
    st.one_of(
        st.binary(max_size=120),
        st.lists(st.sampled_from([0, 1, 1, 2, 4, 0xFFFFFFFF]), max_size=40).map(lambda tail: words(*tail)),
    )
)
def test_dissection_never_raises_and_loses_nothing(body: bytes) -> None:
    data = words(7, 1) + body.rjust(8, b"\0")
    packet = RPCRDMA(data)
    packet.show(dump=True)
    assert bytes(packet) == data
