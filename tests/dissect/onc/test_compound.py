"""COMPOUNDs: every operation written by hand from the RFCs' XDR, then walked."""

from __future__ import annotations

import struct
from functools import partial

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.strategies import SearchStrategy

from rdmascope.dissect.onc import compound as nfs4

QUICK = settings(max_examples=80)
Draw = SearchStrategy[bytes]

FIRST = 24
"""Where results begin in an RPC reply without a verifier."""


def words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def opaque(data: bytes) -> bytes:
    return words(len(data)) + data + bytes(-len(data) % 4)


def fixed(size: int) -> Draw:
    return st.binary(min_size=size, max_size=size)


def join(*parts: Draw | bytes) -> Draw:
    return st.tuples(*(st.just(part) if isinstance(part, bytes) else part for part in parts)).map(b"".join)


def many(element: Draw, most: int = 3) -> Draw:
    return st.lists(element, max_size=most).map(lambda found: words(len(found)) + b"".join(found))


def arm(value: int, body: Draw | bytes = b"") -> Draw:
    return join(words(value), body)


nothing = st.just(b"")
uint, uhyper, boolean = fixed(4), fixed(8), st.sampled_from([words(0), words(1)])
text = st.binary(max_size=9).map(opaque)
stateid, verifier, session, device, nfstime = fixed(16), fixed(8), fixed(16), fixed(16), fixed(12)
cinfo = join(boolean, uhyper, uhyper)
bitmap = many(uint)
fattr = join(bitmap, text)
owner = join(uhyper, text)
netaddr = join(text, text)
netloc = st.one_of(arm(1, text), arm(2, text), arm(3, netaddr))
ace = join(uint, uint, uint, text)
limit = st.one_of(arm(1, uhyper), arm(2, uhyper))
delegation = st.one_of(
    arm(0),
    arm(1, join(stateid, boolean, ace)),
    arm(2, join(stateid, boolean, limit, ace)),
    arm(3, st.one_of(arm(0), arm(1, boolean), arm(2, boolean), arm(7))),
)
secparms = st.one_of(arm(0), arm(1, join(uint, text, uint, uint, many(uint))), arm(6, join(uint, text, text)))
channel = join(*[uint] * 6, many(uint, 1))
ops = join(bitmap, bitmap)
protect = st.one_of(arm(0), arm(1, ops), arm(2, join(ops, many(text), many(text), uint, uint)))
protected = st.one_of(arm(0), arm(1, ops), arm(2, join(ops, uint, uint, uint, uint, many(text))))
impl = many(join(text, text, nfstime), 1)
createhow = st.one_of(arm(0, fattr), arm(1, fattr), arm(2, verifier), arm(3, join(verifier, fattr)))
claim = st.one_of(
    arm(0, text), arm(1, uint), arm(2, join(stateid, text)), arm(3, text), arm(4), arm(5, stateid), arm(6)
)
secinfo = many(st.one_of(arm(1), arm(6, join(text, uint, uint))))
written = join(many(stateid, 1), uhyper, uint, verifier)
entries = st.lists(join(words(1), uhyper, text, fattr), max_size=3).map(lambda e: b"".join(e) + words(0))
notify = many(join(bitmap, text))

ARGUMENTS: dict[int, Draw] = {
    3: uint,
    4: join(uint, stateid),
    5: join(uhyper, uint),
    6: join(st.one_of(arm(2), arm(3, uhyper), arm(4, uhyper), arm(5, text), arm(6), arm(7)), text, fattr),
    7: uhyper,
    8: stateid,
    9: bitmap,
    10: nothing,
    11: text,
    12: join(
        uint,
        boolean,
        uhyper,
        uhyper,
        st.one_of(arm(1, join(uint, stateid, uint, owner)), arm(0, join(stateid, uint))),
    ),
    13: join(uint, uhyper, uhyper, owner),
    14: join(uint, uint, stateid, uhyper, uhyper),
    15: text,
    16: nothing,
    17: fattr,
    18: join(uint, uint, uint, owner, st.one_of(arm(0), arm(1, createhow)), claim),
    19: boolean,
    20: join(stateid, uint),
    21: join(stateid, uint, uint, uint),
    22: text,
    23: nothing,
    24: nothing,
    25: join(stateid, uhyper, uint),
    26: join(uhyper, verifier, uint, uint, bitmap),
    27: nothing,
    28: text,
    29: join(text, text),
    30: uhyper,
    31: nothing,
    32: nothing,
    33: text,
    34: join(stateid, fattr),
    35: join(verifier, text, uint, netaddr, uint),
    36: join(uhyper, verifier),
    37: fattr,
    38: join(stateid, uhyper, uint, text),
    39: owner,
    40: join(uint, many(secparms)),
    41: join(session, uint, boolean),
    42: join(verifier, text, uint, protect, impl),
    43: join(uhyper, uint, uint, channel, channel, uint, many(secparms)),
    44: session,
    45: stateid,
    46: join(boolean, bitmap, nfstime, nfstime, bitmap, bitmap),
    47: join(device, uint, uint, bitmap),
    48: join(uint, uint, uhyper, verifier),
    49: join(
        uhyper,
        uhyper,
        boolean,
        stateid,
        st.one_of(arm(0), arm(1, uhyper)),
        st.one_of(arm(0), arm(1, nfstime)),
        uint,
        text,
    ),
    50: join(boolean, uint, uint, uhyper, uhyper, uhyper, stateid, uint),
    51: join(boolean, uint, uint, st.one_of(arm(1, join(uhyper, uhyper, stateid, text)), arm(2), arm(3))),
    52: uint,
    53: join(session, uint, uint, uint, boolean),
    54: join(text, text),
    55: many(stateid),
    56: join(uint, st.one_of(arm(4), arm(6), arm(1, uint))),
    57: uhyper,
    58: boolean,
    59: join(stateid, uhyper, uhyper),
    60: join(stateid, stateid, uhyper, uhyper, uhyper, boolean, boolean, many(netloc)),
    61: join(stateid, netloc),
    62: join(stateid, uhyper, uhyper),
    63: join(stateid, uhyper, uhyper, bitmap),
    64: join(uhyper, uhyper, stateid, many(join(device, uint, uint))),
    65: join(uhyper, uhyper, stateid, uhyper, uhyper, uhyper, uhyper, device, uint, text),
    66: stateid,
    67: stateid,
    68: join(stateid, uhyper, uint),
    69: join(stateid, uhyper, uint),
    70: join(stateid, uint, uhyper, uhyper, uhyper, uhyper, uint, uhyper, text),
    71: join(stateid, stateid, uhyper, uhyper, uhyper),
    72: text,
    73: join(uint, text, text),
    74: join(uhyper, uint),
    75: text,
}
EMPTY = {
    7,
    8,
    13,
    15,
    16,
    17,
    19,
    22,
    23,
    24,
    30,
    31,
    32,
    36,
    37,
    39,
    40,
    44,
    45,
    57,
    58,
    59,
    62,
    64,
    65,
    66,
    71,
}
RESULTS: dict[int, Draw] = {
    **dict.fromkeys(EMPTY, nothing),
    3: join(uint, uint),
    4: stateid,
    5: verifier,
    6: join(cinfo, bitmap),
    9: fattr,
    10: text,
    11: cinfo,
    12: stateid,
    14: stateid,
    18: join(stateid, cinfo, uint, bitmap, delegation),
    20: stateid,
    21: stateid,
    25: join(boolean, text),
    26: join(verifier, entries, boolean),
    27: text,
    28: cinfo,
    29: join(cinfo, cinfo),
    33: secinfo,
    34: bitmap,
    35: join(uhyper, verifier),
    38: join(uint, uint, verifier),
    41: join(session, uint, boolean),
    42: join(uhyper, uint, uint, protected, uhyper, text, text, impl),
    43: join(session, uint, uint, channel, channel),
    46: st.one_of(arm(0, join(verifier, stateid, bitmap, bitmap, bitmap)), arm(1, boolean)),
    47: join(uint, text, bitmap),
    48: join(uhyper, verifier, many(device), boolean),
    49: st.one_of(arm(0), arm(1, uhyper)),
    50: join(boolean, stateid, many(join(uhyper, uhyper, uint, uint, text))),
    51: st.one_of(arm(0), arm(1, stateid)),
    52: secinfo,
    53: join(session, uint, uint, uint, uint, uint),
    54: text,
    55: many(uint),
    56: delegation,
    60: join(written, boolean, boolean),
    61: join(nfstime, stateid, many(netloc)),
    63: bitmap,
    67: join(uhyper, many(uint, 1)),
    68: join(boolean, many(st.one_of(arm(0, join(uhyper, text)), arm(1, join(uhyper, uhyper))))),
    69: join(boolean, uhyper),
    70: written,
    72: text,
    73: cinfo,
    74: join(uhyper, many(text), boolean),
    75: cinfo,
}
CALLBACKS: dict[int, tuple[Draw, Draw]] = {
    3: (join(text, bitmap), fattr),
    4: (join(stateid, boolean, text), nothing),
    5: (
        join(
            uint,
            uint,
            boolean,
            st.one_of(arm(1, join(text, uhyper, uhyper, stateid)), arm(2, join(uhyper, uhyper)), arm(3)),
        ),
        nothing,
    ),
    6: (join(stateid, text, notify), nothing),
    7: (join(text, delegation), nothing),
    8: (join(uint, bitmap), nothing),
    9: (join(uint, bitmap), nothing),
    10: (uint, nothing),
    11: (
        join(session, uint, uint, uint, boolean, many(join(session, many(uhyper)))),
        join(session, uint, uint, uint, uint),
    ),
    12: (join(boolean, boolean), nothing),
    13: (join(text, owner), nothing),
    14: (notify, nothing),
    15: (join(text, stateid, st.one_of(arm(0, written), arm(5, uhyper))), nothing),
}
FAILED: list[tuple[int, int, Draw]] = [
    (12, 10010, join(uhyper, uhyper, uint, owner)),
    (13, 10010, join(uhyper, uhyper, uint, owner)),
    (35, 10017, netaddr),
    (47, 10005, uint),
    (50, 10058, boolean),
    (60, 10094, join(boolean, boolean)),
    (34, 13, bitmap),
    (25, 5, nothing),
    (18, 2, nothing),
]


def rows(table: dict[int, Draw], most: int = 6) -> SearchStrategy[list[tuple[int, bytes]]]:
    one = st.sampled_from(sorted(table)).flatmap(lambda number: st.tuples(st.just(number), table[number]))
    return st.lists(one, max_size=most)


def compound(found: list[tuple[int, bytes]], tag: bytes = b"", minor: int = 2) -> bytes:
    body = b"".join(words(number) + body for number, body in found)
    return opaque(tag) + words(minor, len(found)) + body


def results(found: list[tuple[int, int, bytes]], tag: bytes = b"", status: int = 0) -> bytes:
    body = b"".join(words(number, outcome) + body for number, outcome, body in found)
    return words(status) + opaque(tag) + words(len(found)) + body


def test_every_operation_is_in_every_table() -> None:
    known = set(range(3, 76))
    assert set(ARGUMENTS) == known and set(RESULTS) == known
    assert set(nfs4.OPERATION_NAMES) == known | {10044}
    assert set(nfs4.CALLBACK_NAMES) == set(CALLBACKS) | {10044}


@pytest.mark.parametrize("number", sorted(ARGUMENTS))
def test_the_walk_ends_where_the_operation_ends(number: int) -> None:
    @settings(max_examples=8)
    @given(ARGUMENTS[number], RESULTS[number])
    def check(arguments: bytes, outcome: bytes) -> None:
        data = compound([(number, arguments)])
        call = nfs4.compound_call(data, 0, len(data))
        assert (call.complete, call.problem, call.end) == (True, "", len(data))
        data = results([(number, 0, outcome)])
        reply = nfs4.compound_reply(data, 0, len(data))
        assert (reply.complete, reply.problem, reply.end) == (True, "", len(data))

    check()


@pytest.mark.parametrize("number", sorted(CALLBACKS))
def test_the_walk_ends_where_the_callback_operation_ends(number: int) -> None:
    @settings(max_examples=8)
    @given(*CALLBACKS[number])
    def check(arguments: bytes, outcome: bytes) -> None:
        data = opaque(b"cb") + words(1, 7, 1, number) + arguments
        call = nfs4.compound_call(data, 0, len(data), callback=True)
        assert (call.complete, call.problem, call.end) == (True, "", len(data))
        assert (call.minor_version, call.operations) == (1, (number,))
        data = results([(number, 0, outcome)])
        reply = nfs4.compound_reply(data, 0, len(data), callback=True)
        assert (reply.complete, reply.problem, reply.end) == (True, "", len(data))

    check()


@QUICK
@given(rows(ARGUMENTS), st.binary(max_size=7), st.integers(0, 2), st.binary(max_size=9))
def test_a_call_of_many_operations(found: list[tuple[int, bytes]], tag: bytes, minor: int, behind: bytes) -> None:
    data = compound(found, tag, minor)
    call = nfs4.compound_call(b"\0\0\0\x05" + data + behind, 4, 4 + len(data))
    assert call.operations == tuple(number for number, _ in found)
    assert call.minor_version == minor
    assert (call.complete, call.truncated, call.problem, call.end) == (True, False, "", 4 + len(data))


@QUICK
@given(rows(RESULTS), st.binary(max_size=7), st.sampled_from(FAILED), st.data())
def test_a_reply_whose_last_operation_failed(
    found: list[tuple[int, bytes]], tag: bytes, failed: tuple[int, int, Draw], data: st.DataObject
) -> None:
    number, outcome, body = failed
    sent = [(op, 0, result) for op, result in found] + [(number, outcome, data.draw(body))]
    message = results(sent, tag, outcome)
    reply = nfs4.compound_reply(message, 0, len(message))
    assert reply.status == outcome
    assert reply.results == tuple((op, status) for op, status, _ in sent)
    assert (reply.complete, reply.problem, reply.end) == (True, "", len(message))


@QUICK
@given(rows(ARGUMENTS, 4), rows(RESULTS, 4))
def test_truncated_anywhere_it_says_so_and_invents_nothing(
    asked: list[tuple[int, bytes]], answered: list[tuple[int, bytes]]
) -> None:
    data = compound(asked)
    for end in range(len(data)):
        call = nfs4.compound_call(data, 0, end)
        assert call.truncated and not call.complete and "the bytes end inside" in call.problem
        assert call.operations == tuple(op for op, _ in asked)[: len(call.operations)]
        assert call.end <= end
    data = results([(op, 0, body) for op, body in answered])
    for end in range(len(data)):
        reply = nfs4.compound_reply(data, 0, end)
        assert reply.truncated and not reply.complete and "the bytes end inside" in reply.problem
        assert reply.results == tuple((op, 0) for op, _ in answered)[: len(reply.results)]


@QUICK
@given(st.lists(st.tuples(st.binary(max_size=11), st.booleans()), max_size=5), rows(RESULTS, 2))
def test_reads_are_found_wherever_their_data_went(
    reads: list[tuple[bytes, bool]], between: list[tuple[int, bytes]]
) -> None:
    filler = [(op, 0, body) for op, body in between if op not in (nfs4.OP_READ, nfs4.OP_READLINK)]
    stream = b""
    count = 0
    want: list[nfs4.DataItem] = []
    head = FIRST + 12
    for index, (content, chunked) in enumerate(reads):
        for op, status, body in filler:
            stream += words(op, status) + body
            count += 1
        stream += words(nfs4.OP_READ, 0, 1, len(content))
        reduced = chunked and content != b""
        want.append(nfs4.DataItem(head + len(stream), len(content), index, reduced, "READ"))
        stream += b"" if reduced else content + bytes(-len(content) % 4)
        count += 1
    message = bytes(FIRST) + words(0, 0, count) + stream
    lengths = [len(content) if chunked else 0 for content, chunked in reads]
    reply = nfs4.compound_reply(message, FIRST, len(message), lengths, origin=0)
    assert reply.items == tuple(want)
    assert (reply.complete, reply.problem, reply.end) == (True, "", len(message))


@QUICK
@given(st.lists(st.tuples(st.binary(max_size=11), st.booleans()), max_size=5))
def test_writes_are_found_by_the_position_of_their_chunk(writes: list[tuple[bytes, bool]]) -> None:
    unreduced = b"h" * 16 + words(0, 2, len(writes))
    sent = unreduced
    chunks: list[tuple[int, int]] = []
    want: list[nfs4.DataItem] = []
    for content, chunked in writes:
        before = words(nfs4.OP_WRITE) + bytes(28) + words(len(content))
        reduced = chunked and content != b""
        unreduced += before
        sent += before
        want.append(nfs4.DataItem(len(unreduced), len(content), len(chunks) if reduced else None, reduced, "WRITE"))
        if reduced:
            chunks.append((len(unreduced), len(content)))
        padded = content + bytes(-len(content) % 4)
        unreduced += padded
        sent += b"" if reduced else padded
    call = nfs4.compound_call(sent, 16, len(sent), chunks, origin=0)
    assert call.items == tuple(want)
    assert (call.complete, call.problem, call.end) == (True, "", len(sent))


def test_a_long_symlink_in_a_read_chunk() -> None:
    before = words(0, 2, 2, 6, 5, 501)
    sent = before + opaque(b"name") + words(1, 2) + opaque(b"attr") + words(10)
    call = nfs4.compound_call(sent, 0, len(sent), [(len(before), 501)])
    assert call.items == (nfs4.DataItem(len(before), 501, 0, True, "CREATE"),)
    assert (call.operations, call.complete, call.problem) == ((6, 10), True, "")


def test_what_does_not_fit_is_said() -> None:
    sent = words(0, 2, 1, 38) + bytes(28) + words(100)
    call = nfs4.compound_call(sent, 0, len(sent), [(48, 200)])
    assert call.items[0].reduced and not call.problem  # the count word says how many are data
    message = words(0, 0, 1, 25, 0, 1, 100)
    reply = nfs4.compound_reply(message, 0, len(message), [60])
    assert reply.items[0].reduced and reply.problem == "Write chunk 0 returned 60 bytes for 100 bytes of READ"


def test_unknown_operations_stop_the_walk() -> None:
    sent = words(0, 2, 3, 24, 99, 24)
    call = nfs4.compound_call(sent, 0, len(sent))
    assert (call.operations, call.complete, call.problem) == ((24, 99), False, "operation 99 is unknown")
    assert nfs4.operation_names(call.operations) == ("PUTROOTFH", "op-99")
    message = words(0, 0, 2, 99, 0, 24, 0)
    reply = nfs4.compound_reply(message, 0, len(message))
    assert (reply.results, reply.complete) == (((99, 0),), False)
    message = words(10044, 0, 1, 10044, 10044)
    reply = nfs4.compound_reply(message, 0, len(message))
    assert (reply.complete, nfs4.operation_names((10044,))) == (True, ("ILLEGAL",))
    unarmed = words(0, 2, 1, 61) + bytes(16) + words(9)
    call = nfs4.compound_call(unarmed, 0, len(unarmed))
    assert call.problem == "COPY_NOTIFY: no arm 9 in the union" and not call.complete


@pytest.mark.parametrize("number", sorted(ARGUMENTS))
def test_counts_of_four_billion_cost_nothing(number: int) -> None:
    huge = b"\xff" * 400
    for walk in (nfs4.compound_call, partial(nfs4.compound_call, callback=True)):
        call = walk(words(0, 2, 0xFFFFFFFF, number, 0, 0, 0) + huge, 0, 428)
        assert not call.complete and len(call.operations) < 120
    reply = nfs4.compound_reply(words(0, 0, 0xFFFFFFFF, number, 0) + huge, 0, 420)
    assert not reply.complete and len(reply.results) < 120


@QUICK
@given(st.binary(max_size=200), st.integers(3, 75), st.lists(st.integers(0, 2**32), max_size=3))
def test_noise_never_raises(noise: bytes, number: int, lengths: list[int]) -> None:
    places = [(length & ~3, 4) for length in lengths]
    for data in (noise, words(0, 2, 2, number) + noise, words(0, 0, 2, number, 0) + noise):
        for callback in (False, True):
            call = nfs4.compound_call(data, 0, len(data), places, callback=callback)
            reply = nfs4.compound_reply(data, 0, len(data), lengths, callback=callback)
            assert call.end <= len(data) and reply.end <= len(data)
            assert len(call.operations) * 4 <= len(data) and len(reply.results) * 8 <= len(data)
            assert call.complete or call.problem
            assert reply.complete or reply.problem
