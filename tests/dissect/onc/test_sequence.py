"""SEQUENCE and CB_SEQUENCE of many messages at once, and of one."""

from __future__ import annotations

from struct import pack

import numpy as np
from hypothesis import given, strategies as st

from rdmascope.dissect.onc.compound import (
    OP_CB_SEQUENCE,
    OP_SEQUENCE,
    SlotRequest,
    SlotResult,
    slot_request,
    slot_requests,
    slot_result,
    slot_results,
)

SESSION = b"sixteen bytes  ."
words = st.integers(0, 0xFFFFFFFF)
tags = st.binary(max_size=9)


def padded(data: bytes) -> bytes:
    return pack(">I", len(data)) + data + bytes(-len(data) & 3)


def arguments(tag: bytes, callback: bool, operation: int, sequence: int, slot: int, cached: int) -> bytes:
    between = pack(">III", 1, 7, 1) if callback else pack(">II", 1, 1)
    return padded(tag) + between + pack(">I16s4I", operation, SESSION, sequence, slot, slot + 1 & 0xFFFFFFFF, cached)


def results(tag: bytes, callback: bool, operation: int, status: int, slot: int, flags: int) -> bytes:
    body = b"" if status else pack(">16s4I", SESSION, 5, slot, 30, 20) + (b"" if callback else pack(">I", flags))
    return pack(">I", status) + padded(tag) + pack(">III", 1, operation, status) + body


numbers = st.sampled_from([OP_SEQUENCE, OP_CB_SEQUENCE, 22])
calls = st.builds(arguments, tags, st.booleans(), numbers, words, words, st.integers(0, 1))
replies = st.builds(results, tags, st.booleans(), numbers, st.sampled_from([0, 0, 10052]), words, words)
damaged = st.one_of(calls, replies, st.binary(max_size=100))


def laid_out(messages: list[tuple[bytes, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One behind the other, each cut to so many bytes."""
    parts = [message[:keep] for message, keep in messages]
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    starts = ends - [len(part) for part in parts]
    return np.frombuffer(b"".join(parts), np.uint8), starts, ends


@given(st.lists(st.tuples(damaged, st.integers(0, 120)), min_size=1, max_size=8), st.booleans())
def test_many_at_once_are_read_as_one_by_one(messages: list[tuple[bytes, int]], callback: bool) -> None:
    data, starts, ends = laid_out(messages)
    view = data.tobytes()
    places = [*zip(starts.tolist(), ends.tolist(), strict=True)]
    assert asked(data, starts, ends, callback) == [slot_request(view, *place, callback) for place in places]
    assert answered(data, starts, ends, callback) == [slot_result(view, *place, callback) for place in places]


def asked(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, callback: bool) -> list[SlotRequest | None]:
    found: list[SlotRequest | None] = [None] * len(starts)
    rows, requests = slot_requests(data, starts, ends, callback)
    for row, request in zip(rows.tolist(), requests.tolist(), strict=True):
        _, session, sequence, slot, highest, cached = request
        found[row] = SlotRequest(session, sequence, slot, highest, bool(cached))
    return found


def answered(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, callback: bool) -> list[SlotResult | None]:
    results, which = slot_results(data, starts, ends, callback)
    return [None if code < 0 else results[code] for code in which.tolist()]


def test_a_request_and_its_result() -> None:
    data, starts, ends = laid_out([(arguments(b"tag", False, OP_SEQUENCE, 9, 3, 1), 200)])
    assert asked(data, starts, ends, False) == [SlotRequest(SESSION, 9, 3, 4, True)]
    data, starts, ends = laid_out([(results(b"", False, OP_SEQUENCE, 0, 3, 0x400), 200)])
    assert answered(data, starts, ends, False) == [SlotResult(0, 30, 20, 0x400)]
