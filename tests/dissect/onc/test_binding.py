"""Where chunk data belong: real messages of a Linux 6.1 client and server, and what a server could send."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings, strategies as st

from rdmascope.dissect.layers.oncrpc_codes import GSS_INTEGRITY
from rdmascope.dissect.onc import binding, rpc_header as header
from rdmascope.dissect.onc.compound import DataItem

QUICK = settings(max_examples=80)

READ3_CALL = bytes.fromhex(
    "3ca82abb0000000000000002000186a30000000300000006000000010000001c0000000000000006636c69656e740000"
    "0000000000000000000000000000000000000000000000140100010100000000bce0c686020000000000000000000000"
    "0000000000001000"
)
READ3_REPLY = bytes.fromhex(
    "3ca82abb0000000100000000000000000000000000000000000000000000000100000001000001a40000000100000000"
    "00000000000000000000000600000000000010000000000000000000000000000000000000000000000000026b00e200"
    "19f98bdb6b00e1f812586aec6b00e1f812586aec000000060000000100000006"
)
"""Six bytes were written to the Write chunk; no pad follows the count word."""
WRITE3_CALL = bytes.fromhex(
    "45a82abb0000000000000002000186a30000000300000007000000010000001c0000000000000006636c69656e740000"
    "00000000000000000000000000000000000000000000001401000101000000004eb852c9ce0000000000000000000000"
    "00000000000400000000000000040000"
)
"""The Read chunk at Position 112 holds 262,144 bytes."""
SYMLINK3_CALL = bytes.fromhex(
    "53a82abb0000000000000002000186a3000000030000000a000000010000001c0000000000000006636c69656e740000"
    "000000000000000000000000000000000000000000000008010001000000000000000002733300000000000100000"
    "1ff00000000000000000000000000000000000000000000000178000000"
)
READ40_REPLY = bytes.fromhex(
    "d66103b90000000100000000000000000000000000000000000000000000000000000002000000160000000000000019"
    "000000000000000100000006"
)
READ41_REPLY = bytes.fromhex(
    "7ac2415900000001000000000000000000000000000000000000000000000000000000030000003500000000f9e1006b"
    "84351363010000000000000000000013000000000000001d0000001d0000000000000016000000000000001900000000"
    "0000000100000006"
)
WRITE40_CALL = bytes.fromhex(
    "e16103b90000000000000002000186a30000000400000001000000010000001c0000000000000006636c69656e740000"
    "00000000000000000000000000000000000000000000000000000000000000030000001600000014010001010000000"
    "072f9b396d2000000000000000000002600000001f9e1006b8135136310000000000000000000000000000000000400"
    "0000000009000000020000001800302000"
)
WRITE41_CALL = bytes.fromhex(
    "83c241590000000000000002000186a30000000400000001000000010000001c0000000000000006636c69656e740000"
    "000000000000000000000000000000000000000000000000000000010000000400000035f9e1006b843513630100000"
    "0000000000000001b00000000000000000000000000000016000000140100010100000000e6a854a2d6000000000000"
    "000000002600000000f9e1006b84351363050000000000000000000000000000000004000000000009000000020000001"
    "800302000"
)


def words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def reply(body: bytes) -> bytes:
    return words(9, 1, 0, 0, 0, 0) + body


def call(program: int, version: int, procedure: int, body: bytes) -> bytes:
    return words(9, 0, 2, program, version, procedure, 0, 0, 0, 0) + body


@pytest.mark.parametrize(
    ("version", "procedure", "message"),
    [(3, 6, READ3_REPLY), (4, 1, READ40_REPLY), (4, 1, READ41_REPLY)],
)
def test_a_read_of_six_bytes_through_a_write_chunk(version: int, procedure: int, message: bytes) -> None:
    found = binding.reply_items(100003, version, procedure, message, 0, len(message), [6])
    assert found[:3] == ((DataItem(len(message), 6, 0, True, "READ"),), "", True)


@pytest.mark.parametrize(
    ("version", "procedure", "message", "position"),
    [(3, 7, WRITE3_CALL, 112), (4, 1, WRITE40_CALL, 144), (4, 1, WRITE41_CALL, 180)],
)
def test_a_write_of_256_kib_from_a_read_chunk(version: int, procedure: int, message: bytes, position: int) -> None:
    found = binding.call_items(100003, version, procedure, message, 0, len(message), [(position, 262144)])
    assert found[:3] == ((DataItem(position, 262144, 0, True, "WRITE"),), "", True)


def test_positions_count_from_the_start_of_the_message() -> None:
    moved = bytes(13) + WRITE41_CALL + bytes(7)
    found = binding.call_items(100003, 4, 1, moved, 13, 13 + len(WRITE41_CALL), [(180, 262144)])
    assert found.items == (DataItem(180, 262144, 0, True, "WRITE"),)
    moved = bytes(13) + READ41_REPLY + bytes(7)
    found = binding.reply_items(100003, 4, 1, moved, 13, 13 + len(READ41_REPLY), [6])
    assert found.items == (DataItem(len(READ41_REPLY), 6, 0, True, "READ"),)


def test_a_symlink_is_eligible_and_was_sent_inline() -> None:
    found = binding.call_items(100003, 3, 10, SYMLINK3_CALL, 0, len(SYMLINK3_CALL), [])
    assert found[:3] == ((DataItem(120, 1, None, False, "SYMLINK"),), "", True)
    assert SYMLINK3_CALL[120:121] == b"x"


def test_a_call_of_read_has_no_eligible_argument() -> None:
    found = binding.call_items(100003, 3, 6, READ3_CALL, 0, len(READ3_CALL), [])
    assert found[:3] == ((), "", True)


def test_a_server_may_leave_a_short_read_inline() -> None:
    inline = READ3_REPLY + b"hello\n\0\0"
    found = binding.reply_items(100003, 3, 6, inline, 0, len(inline), [0])
    assert found.items == (DataItem(128, 6, 0, False, "READ"),) and found.complete


def test_links_and_the_second_version() -> None:
    readlink3 = reply(words(0, 0, 5))
    found = binding.reply_items(100003, 3, 5, readlink3, 0, len(readlink3), [5])
    assert found.items == (DataItem(36, 5, 0, True, "READLINK"),)
    readlink2 = reply(words(0, 5))
    found = binding.reply_items(100003, 2, 5, readlink2, 0, len(readlink2), [5])
    assert found.items == (DataItem(32, 5, 0, True, "READLINK"),)
    read2 = reply(words(0) + bytes(68) + words(5))
    found = binding.reply_items(100003, 2, 6, read2, 0, len(read2), [5])
    assert found.items == (DataItem(100, 5, 0, True, "READ"),)
    write2 = call(100003, 2, 8, bytes(44) + words(7))
    found = binding.call_items(100003, 2, 8, write2, 0, len(write2), [(88, 7)])
    assert found.items == (DataItem(88, 7, 0, True, "WRITE"),)
    symlink2 = call(100003, 2, 13, bytes(32) + words(3) + b"abc\0" + words(2) + b"x\0\0\0" + bytes(32))
    found = binding.call_items(100003, 2, 13, symlink2, 0, len(symlink2), [])
    assert found.items == (DataItem(84, 2, None, False, "SYMLINK"),)
    times = words(0, 0, 0, 0, 2, 1, 1, 1)
    symlink3 = call(100003, 3, 10, words(4, 0, 1) + b"a\0\0\0" + times + words(900))
    found = binding.call_items(100003, 3, 10, symlink3, 0, len(symlink3), [(len(symlink3), 900)])
    assert found.items == (DataItem(len(symlink3), 900, 0, True, "SYMLINK"),)


def test_a_failed_read_has_no_data() -> None:
    failed = reply(words(70, 0))
    assert binding.reply_items(100003, 3, 6, failed, 0, len(failed), [0])[:3] == ((), "", True)
    failed = reply(words(10008, 0, 2, 22, 0, 25, 10008))
    assert binding.reply_items(100003, 4, 1, failed, 0, len(failed), [0])[:3] == ((), "", True)
    refused = words(9, 1, 0, 0, 0, 5)
    assert binding.reply_items(100003, 4, 1, refused, 0, len(refused), [0])[:3] == ((), "", True)


def test_contradictions_are_reported() -> None:
    found = binding.reply_items(100003, 3, 6, READ3_REPLY, 0, len(READ3_REPLY), [8])
    assert found.items[0].reduced and not found.problem  # the count word says how many of them are data
    found = binding.reply_items(100003, 3, 6, READ3_REPLY, 0, len(READ3_REPLY), [5])
    assert found.items[0].reduced and found.problem == "Write chunk 0 returned 5 bytes for 6 bytes of READ"
    found = binding.reply_items(100003, 3, 6, READ3_REPLY, 0, len(READ3_REPLY), [6, 9])
    assert found.problem == "Write chunk 1 returned 9 bytes that belong to no result"
    # READ_PLUS is not eligible: a chunk that returned data has no place.
    plus = reply(words(0, 0, 1, 68, 0, 1, 0))
    found = binding.reply_items(100003, 4, 1, plus, 0, len(plus), [9])
    assert found[:3] == ((), "Write chunk 0 returned 9 bytes that belong to no result", True)
    found = binding.call_items(100003, 3, 7, WRITE3_CALL, 0, len(WRITE3_CALL), [(108, 262144)])
    assert not found.items[0].reduced
    assert found.problem == "the bytes end inside WRITE; Read chunk 0 at Position 108 belongs to no argument"


def test_what_cannot_be_reached_is_said() -> None:
    unknown = reply(words(0, 0, 2, 99, 0, 25, 0, 1, 6))
    found = binding.reply_items(100003, 4, 1, unknown, 0, len(unknown), [6])
    assert found[:3] == ((), "operation 99 is unknown", False)
    arm = reply(words(0, 7))
    found = binding.reply_items(100003, 3, 6, arm, 0, len(arm), [6])
    assert found[:3] == ((), "READ: no arm 7 in the union", False)
    gss = words(9, 1, 0, 6, 0, 0, 0)
    found = binding.reply_items(100003, 3, 6, gss, 0, len(gss), [6])
    assert found.items == () and not found.complete and "RPCSEC_GSS" in found.problem
    assert binding.reply_items(100003, 3, 6, WRITE3_CALL, 0, 112, []).problem == "no RPC reply"
    assert binding.call_items(100003, 3, 6, READ3_REPLY, 0, 112, []).problem == "no RPC call"


def test_a_protected_call_shows_where_its_reply_is_wrapped() -> None:
    inner = words(0) + words(0, 6, 1, 6) + b"abcdef\0\0"
    message = words(9, 1, 0, 6, 0, 0) + words(4 + len(inner), 1) + inner + words(0)
    service = header.GssCredential(1, 0, 1, GSS_INTEGRITY)
    found = binding.reply_items(100003, 3, 6, message, 0, len(message), [], service)
    assert found.items == (DataItem(52, 6, None, False, "READ"),) and message[52:58] == b"abcdef"


def test_which_programs_are_bound() -> None:
    assert all(binding.has_binding(100003, version) for version in (2, 3, 4))
    assert binding.has_binding(100227, 3) and binding.has_binding(0x40000000, 1)
    assert not binding.has_binding(100005, 3) and not binding.has_binding(100003, 5)


@pytest.mark.parametrize(
    ("version", "procedure", "message", "size"),
    [(3, 6, READ3_REPLY, 6), (4, 1, READ40_REPLY, 6), (4, 1, READ41_REPLY, 6)],
)
def test_a_truncated_reply_finds_nothing_and_says_so(version: int, procedure: int, message: bytes, size: int) -> None:
    for end in range(len(message)):
        found = binding.reply_items(100003, version, procedure, message, 0, end, [size])
        assert not found.complete and found.items == () and found.problem


@pytest.mark.parametrize(
    ("version", "procedure", "message"), [(3, 7, WRITE3_CALL), (4, 1, WRITE40_CALL), (4, 1, WRITE41_CALL)]
)
def test_a_truncated_call_is_not_complete(version: int, procedure: int, message: bytes) -> None:
    for end in range(len(message)):
        found = binding.call_items(100003, version, procedure, message, 0, end, [(112, 262144)])
        assert not found.complete and found.problem


@QUICK
@given(
    st.binary(max_size=160),
    st.integers(2, 4),
    st.integers(0, 22),
    st.lists(st.integers(0, 2**32 - 1), max_size=3),
)
def test_noise_never_raises(noise: bytes, version: int, procedure: int, lengths: list[int]) -> None:
    for data in (noise, reply(words(0) + noise), call(100003, version, procedure, noise)):
        found = binding.reply_items(100003, version, procedure, data, 0, len(data), lengths)
        assert found.complete or found.problem
        places = [(length, 8) for length in lengths]
        found = binding.call_items(100003, version, procedure, data, 0, len(data), places)
        assert found.complete or found.problem
