"""Options and transport characteristics: sound ones, cut ones, hostile ones."""

from __future__ import annotations

from dataclasses import dataclass
from struct import pack

import pytest
from hypothesis import given, strategies as st

from rdmascope.dissect.layers.characteristics_codes import (
    BKREQSUP_GENL,
    CHARACTERISTICS,
    OPTIONS,
    ROPT_INITXCH,
    ROPT_REQXCH,
    ROPT_RESPXCH,
    ROPT_UPDXCH,
    Characteristic,
    CharacteristicKind,
    OptionKind,
    interpret,
    option_name,
)
from rdmascope.dissect.layers.rpcrdma import Xcharval, option_layer
from rdmascope.dissect.rpcrdma.characteristics import (
    NOUNS,
    InitXch,
    ReqXch,
    RespXch,
    UnknownOption,
    UpdXch,
    decode_option,
    selected,
)
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.transport.connection import Connection, Endpoint

END = Endpoint("10.0.0.2", 7, private_data_frame=1)


def words(*values: int) -> bytes:
    return pack(f">{len(values)}I", *values)


def value(which: int, *data: int) -> bytes:
    return words(which, 4 * len(data), *data)


SIZE, INVALIDATION, BACKWARD = value(1, 8192), value(2, 1), value(3, 2)
EXPERIMENT = words(4294967040, 5) + b"hello\0\0\0"


def test_initial_characteristics_are_typed_and_the_unknown_kept() -> None:
    noun = decode_option(ROPT_INITXCH, words(4) + SIZE + INVALIDATION + BACKWARD + EXPERIMENT + words(1, 0b1001))
    assert isinstance(noun, InitXch) and noun.problem == ""
    assert [(item.name, item.value, item.words) for item in noun.start] == [
        ("Receive Buffer Size", 8192, "8192"),
        ("Requester Remote Invalidation", True, "true"),
        ("Backward Request Support", BKREQSUP_GENL, "BKREQSUP_GENL"),
        ("experimental characteristic 4294967040", None, "0x68656c6c6f"),
    ]
    assert noun.start[3].experimental and noun.start[3].data == b"hello"
    assert selected(noun.nochange, noun.start) == ("Receive Buffer Size", "experimental characteristic 4294967040")


def test_a_request_its_answer_and_the_update() -> None:
    wish = decode_option(ROPT_REQXCH, words(2) + SIZE + BACKWARD)
    answer = decode_option(ROPT_RESPXCH, words(1, 1) + words(0) + words(2, 2, 0))
    update = decode_option(ROPT_UPDXCH, SIZE + words(1))
    assert isinstance(wish, ReqXch) and len(wish.want) == 2
    assert answer == RespXch(frozenset({0}), frozenset(), frozenset({1}))
    assert update == UpdXch(Characteristic(1, words(8192), 8192), True)


def test_bits_count_from_the_least_significant_through_the_words() -> None:
    noun = decode_option(ROPT_RESPXCH, words(2, 1 << 31, 1) + words(0, 0))
    assert isinstance(noun, RespXch) and noun.done == {31, 32}
    assert selected({0, 3}, (interpret(1, words(1)),)) == ("Receive Buffer Size", "position 3, where nothing is")


@pytest.mark.parametrize(
    ("which", "data", "value", "problem"),
    [
        (1, b"\0\0\1", None, "3 bytes are too few for a uint32"),
        (1, words(1, 2), 1, "8 bytes, of which a uint32 takes 4"),
        (2, words(2), None, "2 is no bool"),
        (3, words(3), None, "3 is none of BKREQSUP_NONE, BKREQSUP_INLINE, BKREQSUP_GENL"),
        (9, b"", None, ""),
    ],
)
def test_data_that_are_no_value_of_their_type(which: int, data: bytes, value: int | None, problem: str) -> None:
    assert interpret(which, data) == Characteristic(which, data, value, problem)


@pytest.mark.parametrize(
    ("option", "data", "problem"),
    [
        (ROPT_INITXCH, words(0xFFFFFFFF), "optixch_start at offset 0 counts 4294967295, which run past the end"),
        (ROPT_INITXCH, words(0, 0xFFFFFFFF, 1), "optixch_nochg at offset 4 counts 4294967295"),
        (ROPT_INITXCH, words(1, 1, 8, 5), "xchv_data of 8 bytes at offset 12 runs past the end of rdma_optinfo"),
        (ROPT_REQXCH, words(1, 9, 1) + b"a\0\0\1", "the pad of optreqxch_want's xchv_data at offset 13 is not zero"),
        (ROPT_REQXCH, b"", "optreqxch_want at offset 0 runs past the end"),
        (ROPT_UPDXCH, SIZE + words(2), "optupdxch_pendclr at offset 12 is 2, neither 0 nor 1"),
        (ROPT_RESPXCH, words(66, *[0] * 64, 0, 1, 0, 0), "optrespxch_done behind position 2047 at offset 260"),
    ],
)
def test_the_problem_names_field_and_offset(option: int, data: bytes, problem: str) -> None:
    noun = decode_option(option, data)
    assert problem in noun.problem and not noun.truncated


def test_words_behind_the_last_field_are_no_problem() -> None:
    assert decode_option(ROPT_UPDXCH, SIZE + words(1, 7)) == decode_option(ROPT_UPDXCH, SIZE + words(1))


def test_what_stands_before_the_problem_is_kept() -> None:
    noun = decode_option(ROPT_INITXCH, words(3) + SIZE + INVALIDATION + words(7, 99, 0))
    assert isinstance(noun, InitXch)
    assert [item.which for item in noun.start] == [1, 2] and "99 bytes" in noun.problem


def test_a_new_characteristic_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = CharacteristicKind("Shoe Size", "enum", 1, "9.1", {0: "SHOE_SMALL", 1: "SHOE_LARGE"})
    monkeypatch.setitem(CHARACTERISTICS, 9, row)
    item = interpret(9, words(0))
    assert (item.name, item.value, item.words, item.problem) == ("Shoe Size", 0, "SHOE_SMALL", "")
    assert interpret(9, words(2)).problem == "2 is none of SHOE_SMALL, SHOE_LARGE"
    assert Conversation(Connection(1, "RoCEv2", (END, END))).in_force(9, 0).value == 1


@dataclass(frozen=True)
class Laces:
    tied: bool | None
    now: Characteristic | None
    problem: str
    truncated: bool


def test_a_new_option_is_a_row_and_its_noun(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = ("optlaces_tied", "bool"), ("optlaces_now", "xcharval")
    row = OptionKind("ROPT_LACES", "Tie the laces", "9.2", fields)
    monkeypatch.setitem(OPTIONS, 9, row)
    monkeypatch.setitem(NOUNS, 9, Laces)
    data = bytes(option_layer(row)(tied=1, now=Xcharval(which=1, value=42)))
    assert data == words(1, 1, 4, 42)
    noun: object = decode_option(9, data)
    assert noun == Laces(True, Characteristic(1, words(42), 42), "", False)
    assert option_name(9) == "ROPT_LACES"


def test_a_long_unknown_value_is_shown_in_part() -> None:
    assert interpret(9, bytes(100)).words == f"0x{'00' * 16}… (100 bytes)"


def test_an_unknown_option_keeps_its_bytes() -> None:
    assert decode_option(77, b"abc") == UnknownOption(77, b"abc")
    assert (option_name(77), option_name(1), option_name(None)) == ("option 77", "ROPT_INITXCH", "")


WHOLE = {
    ROPT_INITXCH: words(3) + SIZE + EXPERIMENT + BACKWARD + words(1, 5),
    ROPT_REQXCH: words(2) + INVALIDATION + SIZE,
    ROPT_RESPXCH: words(1, 1, 1, 2, 1, 4),
    ROPT_UPDXCH: BACKWARD + words(0),
}


@pytest.mark.parametrize("option", WHOLE)
def test_a_truncated_frame_is_distinguished_from_an_illegal_message(option: int) -> None:
    data = WHOLE[option]
    whole = decode_option(option, data)
    for end in range(len(data) + 1):
        cut = decode_option(option, data[:end], truncated=True)
        assert cut.truncated and "not in the capture" in cut.problem
        if isinstance(cut, InitXch) and isinstance(whole, InitXch):
            assert cut.start == whole.start[: len(cut.start)]
        if end < len(data):
            short = decode_option(option, data[:end])
            assert "past the end" in short.problem and not short.truncated


@given(
    st.sampled_from([*OPTIONS, 0, 77]),
    st.one_of(
        st.binary(max_size=200),
        st.lists(st.sampled_from([0, 1, 2, 3, 4, 4294967040, 0xFFFFFFFF]), max_size=30).map(
            lambda list_: words(*list_)
        ),
    ),
    st.booleans(),
)
def test_nothing_on_the_wire_raises_or_allocates_without_bound(option: int, data: bytes, truncated: bool) -> None:
    noun = decode_option(option, data, truncated)
    if isinstance(noun, (InitXch, ReqXch)):
        items = noun.start if isinstance(noun, InitXch) else noun.want
        assert 8 * len(items) + sum(len(item.data) for item in items) <= len(data)
    if truncated and option in OPTIONS:
        assert noun.problem
