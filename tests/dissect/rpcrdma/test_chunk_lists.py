"""The chunk lists of many headers at once: what ``decode_header`` says of each, or nothing."""

from __future__ import annotations

from struct import pack

import numpy as np
from hypothesis import given, strategies as st

from rdmascope.dissect.rpcrdma.chunk_lists import MAX_SEGMENTS, READ_LIST, REPLY_CHUNK, WRITE_LIST, read_chunk_lists
from rdmascope.dissect.rpcrdma.messages import TransportHeader
from rdmascope.dissect.rpcrdma.transport_header import decode_header

from .test_analyzer_playbook import QUICK

Plain = tuple[int, int, int]
"""Handle, length, offset."""

SEGMENTS = st.tuples(
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.one_of(st.integers(0, 2**64 - 1), st.integers(2**64 - 2**33, 2**64 - 1)),
)
ARRAYS = st.lists(SEGMENTS, max_size=4)


def array(segments: list[Plain]) -> bytes:
    return pack(">II", 1, len(segments)) + b"".join(pack(">IIQ", *one) for one in segments)


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """Chunk lists of any kind, perhaps with a word that is wrong, and perhaps too short."""
    found = pack(">4I", 7, 1, 32, draw(st.integers(0, 1)))
    positions = draw(st.lists(st.sampled_from([0, 100, 100, 100, 104]), max_size=4))
    for position in positions:
        handle, length, offset = draw(SEGMENTS)
        found += pack(">4IQ", 1, position, handle, length, offset)
    found += pack(">I", 0)
    for one in draw(st.lists(ARRAYS, max_size=2)):
        found += array(one)
    found += pack(">I", 0)
    found += array(draw(ARRAYS)) if draw(st.booleans()) else pack(">I", 0)
    if draw(st.integers(0, 3)) == 0:
        at = 4 * draw(st.integers(4, len(found) // 4 - 1))
        found = found[:at] + pack(">I", draw(st.sampled_from([0, 1, 2, 3, 2**31, 2**32 - 1]))) + found[at + 4 :]
    behind = draw(st.binary(max_size=8))
    return max((found + behind)[: draw(st.integers(28, 200)) if draw(st.booleans()) else None], bytes(28), key=len)


def usual(header: TransportHeader) -> bool:
    """Whether the header is of those that are read in columns."""
    segments = [one for chunk in header.reads for one in chunk.segments]
    arrays = [one.segments for one in (*header.writes, *([header.reply] if header.reply else []))]
    plain = [*segments, *(one for chunk in arrays for one in chunk)]
    return (
        not header.problem
        and len({chunk.position for chunk in header.reads}) <= 1
        and len(header.writes) <= 1
        and all(0 < len(one) <= MAX_SEGMENTS for one in arrays)
        and len(segments) <= MAX_SEGMENTS
        and all(one.offset < 0xFFFFFFFF << 32 for one in plain)
    )


def lists(header: TransportHeader) -> list[tuple[int, int, int, int, int]]:
    reads = [(READ_LIST, chunk.position, *one) for chunk in header.reads for one in chunk.segments]
    writes = [(WRITE_LIST, 0, *one) for chunk in header.writes for one in chunk.segments]
    return [*reads, *writes, *((REPLY_CHUNK, 0, *one) for one in (header.reply.segments if header.reply else ()))]


@QUICK
@given(st.lists(headers(), min_size=1, max_size=8))
def test_any_headers(messages: list[bytes]) -> None:
    sizes = np.array([len(one) for one in messages], np.int64)
    ends = sizes.cumsum()
    found = read_chunk_lists(np.frombuffer(b"".join(messages), np.uint8), ends - sizes, ends)
    for index, message in enumerate(messages):
        header = decode_header(message, 0, len(message), len(message))
        assert found.read[index] == usual(header)
        segments = found.segments[found.segments["send"] == index]
        if not found.read[index]:
            assert not len(segments)
            continue
        names = ("list", "position", "handle", "length", "offset")
        said = [tuple(row[name].item() for name in names) for row in segments]
        assert [(*one[:4], one[4] % 2**64) for one in said] == lists(header)
        assert found.header[index] == header.length
        assert found.counts[index].tolist() == [int((segments["list"] == kind).sum()) for kind in range(3)]


def test_a_header_of_many_segments_is_left_alone() -> None:
    messages = [
        pack(">4I", 7, 1, 32, 0) + pack(">4IQ", 1, 100, 5, 6, 7) * count + pack(">3I", 0, 0, 0) for count in (64, 65)
    ]
    sizes = np.array([len(one) for one in messages], np.int64)
    ends = sizes.cumsum()
    found = read_chunk_lists(np.frombuffer(b"".join(messages), np.uint8), ends - sizes, ends)
    assert found.read.tolist() == [True, False] and len(found.segments) == 64
