"""RPC-over-RDMA version 2 as Scapy layers; test_header holds its header equal to the fast decoder."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest
from hypothesis import given, strategies as st
from scapy.packet import Raw

from rdmascope.dissect.layers import ROPT_INITXCH, ROPT_RESPXCH, ROPT_UPDXCH
from rdmascope.dissect.layers.characteristics_codes import OPTIONS, ROPT_REQXCH, Characteristic
from rdmascope.dissect.layers.oncrpc import ONCRPC, ONCRPCCall
from rdmascope.dissect.layers.rpcrdma import (
    OPTION_LAYERS,
    RPCRDMA,
    RDMA2Error,
    RDMA2Msg,
    RDMA2Nomsg,
    RDMA2Optional,
    ReadSegment,
    Xcharval,
)
from rdmascope.dissect.rpcrdma.characteristics import InitXch, ReqXch, RespXch, UnknownOption, UpdXch, decode_option


def words(*values: int) -> bytes:
    return pack(f">{len(values)}I", *values)


def test_a_call_built_by_hand() -> None:
    built = RPCRDMA(xid=7) / RDMA2Msg(reads=[ReadSegment(position=40, length=8)]) / ONCRPC(xid=7) / ONCRPCCall()
    data = bytes(built)
    assert data[:32] == words(7, 2, 1, 0, 0, 1, 40, 0)
    packet = RPCRDMA(data)
    assert packet[RDMA2Msg].reads[0].position == 40 and packet[ONCRPC].xid == 7
    assert packet.sprintf("%RPCRDMA.procedure%") == "RDMA2_MSG"


def test_an_announcement_of_characteristics_built_by_hand() -> None:
    start = [Xcharval(which=1, value=8192), Xcharval(which=2, value=True), Xcharval(which=4294967040, value=b"hello")]
    data = bytes(RPCRDMA(xid=8) / RDMA2Optional(optinfo=ROPT_INITXCH(start=start, nochg=[0b101])))
    assert data == words(8, 2, 1, 5, 0, 1, 52, 3, 1, 4, 8192, 2, 4, 1, 4294967040, 5) + b"hello\0\0\0" + words(1, 5)
    info = RPCRDMA(data)[RDMA2Optional].optinfo
    assert [(item.which, item.value) for item in info.start] == [(1, 8192), (2, True), (4294967040, b"hello")]
    shown = info.show2(dump=True)
    assert "Receive Buffer Size" in shown and "positions 0, 2" in shown
    assert decode_option(1, data[28:]) == InitXch(
        (Characteristic(1, words(8192), 8192), Characteristic(2, words(1), True), Characteristic(4294967040, b"hello")),
        frozenset({0, 2}),
    )


def test_the_option_follows_from_the_structure_and_may_be_overruled() -> None:
    assert words(5, 0, 3, 12) in bytes(RPCRDMA() / RDMA2Optional(optinfo=ROPT_RESPXCH()))
    assert words(5, 1, 77, 12) in bytes(RPCRDMA() / RDMA2Optional(rdma_direction=1, opttype=77, optinfo=ROPT_RESPXCH()))
    update = ROPT_UPDXCH(now=Xcharval(which=1, value=65536), pendclr=1)
    assert decode_option(4, bytes(update)) == UpdXch(Characteristic(1, words(65536), 65536), True)


def test_an_option_with_a_payload() -> None:
    data = bytes(RPCRDMA(xid=9) / RDMA2Optional(opttype=77, optinfo=b"abc") / ONCRPC(xid=9) / ONCRPCCall(proc=4))
    packet = RPCRDMA(data)
    assert packet[RDMA2Optional].optinfo.load == b"abc" and packet[ONCRPCCall].proc == 4


def test_an_error_has_no_direction() -> None:
    packet = RPCRDMA(words(9, 2, 1, 4, 3))
    assert packet[RDMA2Error].sprintf("%RDMA2Error.err%") == "RDMA2_ERR_INVAL_OPTION"
    assert bytes(RPCRDMA(xid=9) / RDMA2Error(err=1, vers_high=2)) == words(9, 2, 1, 4, 1, 1, 2)


@pytest.mark.parametrize(
    "body",
    [
        words(0, 2, 0, 0, 0),  # a direction that is no msg_type
        words(0, 0, 0, 5),  # an optional-data word
        words(5, 0, 1, 0xFFFFFFFF, 0),  # more rdma_optinfo than the Send has
        words(5, 0, 1, 1) + b"a\0\0\1",  # a pad that is not zero
        words(2, 64, 128, 0, 0, 0),  # version 2 has no MSGP
    ],
)
def test_a_body_that_is_no_xdr_stays_raw(body: bytes) -> None:
    packet = RPCRDMA(words(9, 2, 1) + body)
    assert isinstance(packet.payload, Raw) and bytes(packet) == words(9, 2, 1) + body


@pytest.mark.parametrize(
    "info",
    [
        words(0xFFFFFFFF),  # counts more than there is
        words(1, 1, 99, 5),  # xchv_data past the end
        words(0),  # no optixch_nochg
    ],
)
def test_an_rdma_optinfo_that_is_not_its_option_stays_raw(info: bytes) -> None:
    data = words(9, 2, 1, 5, 0, 1, len(info)) + info
    body = RPCRDMA(data)[RDMA2Optional]
    assert isinstance(body.optinfo, Raw) and bytes(body.optinfo) == info
    assert decode_option(1, info).problem


def test_words_behind_the_last_field_of_an_option_are_kept() -> None:
    info = words(0, 0, 7)
    body = RPCRDMA(words(9, 2, 1, 5, 0, 1, len(info)) + info)[RDMA2Optional]
    assert isinstance(body.optinfo, ROPT_INITXCH) and bytes(body.optinfo) == info
    assert not decode_option(1, info).problem


U32 = st.integers(0, 2**32 - 1)
ITEMS = st.lists(
    st.builds(
        lambda which, value: (which, value),
        st.sampled_from([1, 2, 3, 4, 4294967040]),
        st.one_of(st.integers(0, 4), st.binary(max_size=9)),
    ),
    max_size=6,
)
SUBSETS = st.lists(U32, max_size=3)


@st.composite
def infos(draw: st.DrawFn) -> tuple[int, bytes]:
    """An option with its rdma_optinfo, then perhaps with a word changed, perhaps cut."""
    option = draw(st.sampled_from(list(OPTIONS)))
    values: dict[str, Any] = {}
    for name, type_ in OPTIONS[option].fields:
        items = [Xcharval(which=which, value=value) for which, value in draw(ITEMS)]
        values[name.partition("_")[2]] = {
            "xcharspec": items,
            "xcharsubset": draw(SUBSETS),
            "xcharval": items[0] if items else Xcharval(),
            "bool": draw(st.integers(0, 1)),
        }[type_]
    data = bytearray(bytes(OPTION_LAYERS[option](**values)))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(data) // 4 - 1)) * 4
        data[at : at + 4] = pack(">I", draw(st.sampled_from([0, 1, 2, 3, 5, 0x0FFFFFFF, 0xFFFFFFFF])))
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    return option, bytes(data)


@given(infos())
def test_decoder_and_layer_agree_on_options_legal_truncated_and_hostile(wire: tuple[int, bytes]) -> None:
    option, data = wire
    packet = RPCRDMA(words(9, 2, 1, 5, 0, option, len(data)) + data + bytes(-len(data) % 4))
    info = packet[RDMA2Optional].optinfo
    noun = decode_option(option, data)
    assert isinstance(info, OPTION_LAYERS[option]) == (not noun.problem)
    assert bytes(packet[RDMA2Optional].optinfo) == data
    if noun.problem:
        return
    if isinstance(noun, InitXch):
        assert listed(noun.start) == shown(info.start)
        assert noun.nochange == positions(info.nochg)
    elif isinstance(noun, ReqXch):
        assert listed(noun.want) == shown(info.want)
    elif isinstance(noun, RespXch):
        assert (noun.done, noun.rejected, noun.pending) == tuple(map(positions, (info.done, info.rej, info.pend)))
    elif isinstance(noun, UpdXch):
        assert noun.now is not None and listed([noun.now]) == shown([info.now])
        assert noun.pending_clear == bool(info.pendclr)
    else:
        raise AssertionError(noun)


def listed(items: Any) -> list[Any]:
    """What a layer shows of sound values is a number, of all else the bytes."""
    return [(item.which, item.value if item.value is not None and not item.problem else item.data) for item in items]


def shown(items: Any) -> list[Any]:
    return [(item.which, item.value) for item in items]


def positions(words_: list[int]) -> frozenset[int]:
    return frozenset(32 * at + bit for at, word in enumerate(words_) for bit in range(32) if word >> bit & 1)


@given(
    st.integers(0, 1), st.lists(st.builds(ReadSegment, position=U32, handle=U32), max_size=3), st.binary(max_size=20)
)
def test_what_is_built_is_dissected_again(direction: int, reads: list[Any], rest: bytes) -> None:
    for body in (RDMA2Msg, RDMA2Nomsg):
        data = bytes(RPCRDMA(xid=1) / body(rdma_direction=direction, reads=reads)) + rest
        again = RPCRDMA(data)[body]
        assert again.rdma_direction == direction and len(again.reads) == len(reads)
        assert bytes(RPCRDMA(data)) == data


def test_an_option_unknown_to_the_tables_is_bytes() -> None:
    assert ROPT_REQXCH in OPTIONS and 99 not in OPTIONS
    assert RPCRDMA(words(9, 2, 1, 5, 0, 99, 4, 7))[RDMA2Optional].optinfo.load == words(7)
    assert decode_option(99, words(7)) == UnknownOption(99, words(7))
