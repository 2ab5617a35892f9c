"""What is read at learned places is what decoding each message finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rdmascope.dissect.onc.shapes import decode_cache as learned
from rdmascope.dissect.onc.shapes.decode_cache import MAX_COMMON, TOGETHER, Layouts, field_of, flat_fields
from rdmascope.dissect.onc.shapes.nfs4 import COMPOUND4ARGS
from rdmascope.dissect.onc.shapes.types import SparseBytes, decode

from ..test_compound import ARGUMENTS, QUICK, compound, rows, words

NAMES = ("handle", "name", "offset", "count")
NODES = 200


def decoded(data: bytes) -> dict[str, object]:
    found = flat_fields(
        decode(COMPOUND4ARGS, "", SparseBytes([(0, data)], len(data)), 0, len(data), NODES).root
    )._asdict()
    return {name: value for name in NAMES if (value := found[name]) is not None}


def read(layouts: Layouts, data: bytes) -> dict[str, object] | None:
    layout = layouts.of(memoryview(data), 0)
    if layout is None:
        return None
    found: dict[str, object] = {}
    for name, (start, end) in layout.places.items():
        value = data[start:end]
        assert len(value) == end - start
        found[name] = field_of(name, value)
    return found


def grouped(layouts: Layouts, messages: list[bytes]) -> list[dict[str, object] | None]:
    """What ``groups`` finds in messages that stand one behind the other."""
    sizes = np.array([len(one) for one in messages])
    ends = sizes.cumsum()
    found: list[dict[str, object] | None] = [None] * len(messages)
    groups, unknown = layouts.groups(np.frombuffer(b"".join(messages), np.uint8), ends - sizes, ends)
    for alike, layout in groups:
        for row in alike.tolist():
            found[row] = {
                name: field_of(name, messages[row][first:behind]) for name, (first, behind) in layout.places.items()
            }
    assert sorted([*unknown.tolist(), *(row for alike, _ in groups for row in alike.tolist())]) == [
        *range(len(messages))
    ]
    return found


@QUICK
@given(rows(ARGUMENTS), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=12), st.integers(0, 40))
def test_messages_like_one_that_was_learned(
    calls: list[tuple[int, bytes]], changes: list[tuple[int, int]], less: int
) -> None:
    """Each differs from the first in one byte, or ends early."""
    whole = compound(calls)
    layouts = Layouts(COMPOUND4ARGS, NAMES, NODES)
    layouts.learn(memoryview(whole), 0)
    others = [whole[: at % len(whole)] + bytes([byte]) + whole[at % len(whole) + 1 :] for at, byte in changes]
    messages = [whole, *others, whole[: len(whole) - less], *others]
    for data in messages:
        assert read(layouts, data) in (None, decoded(data))
        layouts.learn(memoryview(data), 0)
    for some in (messages, messages[::-1], [*messages, *messages[::2]]):
        for together, common in ((2, 1), (2, 3), (TOGETHER, MAX_COMMON)):
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(learned, "TOGETHER", together)
                patched.setattr(learned, "MAX_COMMON", common)
                assert grouped(layouts, some) == [read(layouts, data) for data in some]


def test_many_that_are_alike_are_compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [compound([(22, words(4) + b"%04d" % number)]) for number in range(5)]
    layouts = Layouts(COMPOUND4ARGS, NAMES, NODES)
    layouts.learn(memoryview(messages[0]), 0)
    monkeypatch.setattr(learned, "words_at", None)
    assert grouped(layouts, messages) == [{"handle": b"%04d" % number} for number in range(5)]


def test_only_the_first_of_many_alike_is_decoded() -> None:
    def read_call(handle: bytes, offset: int, count: int) -> bytes:
        return compound([(22, words(len(handle)) + handle), (25, bytes(16) + words(0, offset, count))])

    layouts = Layouts(COMPOUND4ARGS, NAMES, NODES)
    layouts.learn(memoryview(read_call(b"file", 1, 2)), 0)
    assert read(layouts, read_call(b"path", 4096, 512)) == {"handle": b"path", "offset": 4096, "count": 512}
    assert read(layouts, read_call(b"longpath", 4096, 512)) is None
    assert read(layouts, read_call(b"path", 4096, 512)[:-1]) is None
