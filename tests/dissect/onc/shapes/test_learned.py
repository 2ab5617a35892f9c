"""What is read at learned places is what decoding each message finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rdmascope.dissect.onc.shapes.decode import SparseBytes, decode
from rdmascope.dissect.onc.shapes.flat import flat_fields
from rdmascope.dissect.onc.shapes.learned import Layouts
from rdmascope.dissect.onc.shapes.nfs4 import COMPOUND4ARGS

from ..test_compound import ARGUMENTS, QUICK, compound, rows, words

NAMES = ("handle", "name", "offset", "count")
NODES = 200


def decoded(data: bytes) -> dict[str, object]:
    found = flat_fields(decode(COMPOUND4ARGS, "", SparseBytes([(0, data)], len(data)), 0, len(data), NODES).root)
    return {name: found[name] for name in NAMES if name in found}


def read(layouts: Layouts, data: bytes) -> dict[str, object] | None:
    layout = layouts.of(memoryview(data), 0)
    if layout is None:
        return None
    found: dict[str, object] = {}
    for name, (start, end) in layout.places.items():
        value = data[start:end]
        assert len(value) == end - start
        if name == "handle":
            found[name] = value.hex()
        else:
            found[name] = value.decode("utf-8", "backslashreplace") if name == "name" else int.from_bytes(value)
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
    for data in (whole, *others, whole[: len(whole) - less], *others):
        assert read(layouts, data) in (None, decoded(data))
        layouts.learn(memoryview(data), 0)


def test_only_the_first_of_many_alike_is_decoded() -> None:
    def read_call(handle: bytes, offset: int, count: int) -> bytes:
        return compound([(22, words(len(handle)) + handle), (25, bytes(16) + words(0, offset, count))])

    layouts = Layouts(COMPOUND4ARGS, NAMES, NODES)
    layouts.learn(memoryview(read_call(b"file", 1, 2)), 0)
    assert read(layouts, read_call(b"path", 4096, 512)) == {"handle": b"path".hex(), "offset": 4096, "count": 512}
    assert read(layouts, read_call(b"longpath", 4096, 512)) is None
    assert read(layouts, read_call(b"path", 4096, 512)[:-1]) is None
