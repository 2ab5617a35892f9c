"""Trees of values: whatever was encoded from a declaration comes back from it, and nothing else does harm."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from playbook.xdr_values import counted, values
from rdmascope.dissect.onc import xdr
from rdmascope.dissect.onc.shapes import (
    layouts,
    nfs4,
    nfs_cb,
    nfsacl,
    nlm,
    rfc1094,
    rfc1813,
    rfc1833,
    rfc5531,
    rfc7530,
    rfc7862,
    rfc8881,
)
from rdmascope.dissect.onc.shapes.attributes4 import FATTR4
from rdmascope.dissect.onc.shapes.nfs4 import CALLBACK_OPERATIONS, COMPOUND4ARGS, COMPOUND4RES, OPERATIONS
from rdmascope.dissect.onc.shapes.registry import PROGRAMS
from rdmascope.dissect.onc.shapes.rfc1813 import TYPES
from rdmascope.dissect.onc.shapes.rfc5531 import (
    GSS_ARGUMENTS,
    GSS_RESULTS,
    RPC_CALL,
    RPC_GSS_PRIV_DATA,
    RPC_REPLY,
    integrity_data,
)
from rdmascope.dissect.onc.shapes.skips import skip_of
from rdmascope.dissect.onc.shapes.types import (
    NOT_CAPTURED,
    UINT32,
    Decoded,
    Node,
    SparseBytes,
    XdrArray,
    XdrAttributes,
    XdrList,
    XdrOpaque,
    XdrOptional,
    XdrSelected,
    XdrStruct,
    XdrType,
    XdrUnion,
    decode,
    struct,
)

SHAPES: dict[str, XdrType] = {"call": RPC_CALL, "reply": RPC_REPLY}
for (program, version), procedures in PROGRAMS.items():
    for number, procedure in procedures.items():
        for part, shape in (("arguments", procedure.arguments), ("results", procedure.results)):
            if shape is not None:
                SHAPES[f"{program}-{version}-{number}-{part}"] = shape
for one in (*OPERATIONS.values(), *CALLBACK_OPERATIONS.values()):
    SHAPES[f"{one.name}-results"] = one.results
    if one.arguments is not None:
        SHAPES[f"{one.name}-arguments"] = one.arguments
for table in (GSS_ARGUMENTS, GSS_RESULTS):
    SHAPES.update({f"gss-{number}-{len(SHAPES)}": shape for number, shape in table.items() if shape is not None})
SHAPES["gss-sealed"] = RPC_GSS_PRIV_DATA
SHAPES["gss-integrity"] = integrity_data("arguments", COMPOUND4ARGS)
for number, (_, shape) in {**FATTR4.attributes}.items():
    SHAPES[f"attribute-{number}"] = shape


def inside(type: Any, found: dict[int, XdrType]) -> dict[int, XdrType]:
    """The type, and all that it is made of, by identity."""
    if isinstance(type, tuple):
        type = type[1]
    if type is None or id(type) in found:
        return found
    found[id(type)] = type
    parts: list[Any] = []
    if isinstance(type, XdrStruct):
        parts = [field for _, field in type.fields]
    elif isinstance(type, XdrUnion):
        parts = [*type.arms.values(), type.default]
    elif isinstance(type, XdrArray | XdrOptional | XdrList):
        parts = [type.element]
    elif isinstance(type, XdrAttributes):
        parts = [field for _, field in type.attributes.values()]
    elif isinstance(type, XdrSelected):
        parts = list(type.choices.values())
    elif isinstance(type, XdrOpaque):
        parts = [type.inner]
    for part in parts:
        inside(part, found)
    return found


for shape in list(SHAPES.values()):
    for one_type in inside(shape, {}).values():
        if isinstance(one_type, XdrSelected):
            # What an opaque is made of by an earlier word is drawn seldom: each by itself, too.
            SHAPES.update({f"{one_type.name}-{choice}": type for choice, type in one_type.choices.items()})


def read(type: XdrType, data: bytes, max_nodes: int = 20_000) -> Decoded:
    return decode(type, "it", SparseBytes([(0, data)], len(data)), 0, len(data), max_nodes)


def plain(node: Node, type: XdrType) -> Any:
    """A tree as the value that the playbook drew."""
    match type:
        case XdrArray() | XdrList():
            return [plain(child, type.element) for child in node.children]
        case XdrOptional():
            return None
        case XdrStruct() | XdrUnion() | XdrAttributes():
            return {child.name: plain(child, child.type) for child in node.children if child.type is not None}
        case XdrOpaque() | XdrSelected() if node.children:
            return {child.name: plain(child, child.type) for child in node.children if child.type is not None}
        case _:
            return bytes(node.value) if isinstance(node.value, memoryview) else node.value


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_what_was_encoded_comes_back(name: str) -> None:
    type = SHAPES[name]

    @settings(max_examples=5)
    @given(values(type), st.binary(min_size=4, max_size=8))
    def check(drawn: tuple[Any, bytes], behind: bytes) -> None:
        value, data = drawn
        found = read(type, data + behind)
        assert (found.problem, found.end) == ("", len(data))
        assert plain(found.root, type) == value
        assert not [node.note for node in found.root.walk() if node.note]
        assert xdr.as_skip(skip_of(type))(memoryview(data + behind), 0) == len(data)
        moved = SparseBytes([(0, b"abc" + data + behind)], 3 + len(data) + len(behind))
        assert decode(type, "it", moved, 3, moved.length).end == 3 + len(data)  # at any address

    check()


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_truncated_anywhere_it_says_so(name: str) -> None:
    type = SHAPES[name]

    @settings(max_examples=3)
    @given(values(type), st.data())
    def check(drawn: tuple[Any, bytes], draw: st.DataObject) -> None:
        data = drawn[1]
        if not data:
            return
        end = draw.draw(st.integers(0, len(data) - 1))
        found = read(type, data[:end])
        # Pad bytes alone may be missing.
        assert found.problem or end > len(data) - 4
        assert found.end <= end

    check()


@given(st.sampled_from(sorted(SHAPES)), st.lists(st.integers(0, 12) | st.integers(0, 2**32 - 1), max_size=80))
def test_any_words_are_read_inside_their_bytes_and_within_the_limit(name: str, words: list[int]) -> None:
    data = pack(f">{len(words)}I", *words)
    found = read(SHAPES[name], data, 50)
    assert 0 <= found.end <= len(data)
    nodes = list(found.root.walk())
    assert len(nodes) <= 50 + 120  # the last structure is listed whole
    everything = list(read(SHAPES[name], data).root.walk())
    assert len(everything) <= 20 * (len(words) + 1)  # a word has a node for each level at most
    for node in nodes:
        assert 0 <= node.offset <= node.offset + node.length <= len(data)


@given(st.sampled_from(sorted(SHAPES)), st.data())
def test_flipped_bytes_do_no_harm(name: str, draw: st.DataObject) -> None:
    data = bytearray(draw.draw(values(SHAPES[name]))[1])
    for at in draw.draw(st.lists(st.integers(0, max(0, len(data) - 1)), max_size=4)):
        if data:
            data[at] ^= draw.draw(st.integers(1, 255))
    assert read(SHAPES[name], bytes(data)).end <= len(data)


def test_every_declared_type_is_part_of_a_shape_that_is_tested() -> None:
    tested: dict[int, XdrType] = {}
    for type in SHAPES.values():
        inside(type, tested)
    modules = (layouts, nfs_cb, nfsacl, nlm, rfc1094, rfc1813, rfc1833, rfc5531, rfc7530, rfc7862, rfc8881)
    declared = {
        f"{module.__name__}.{name}": one
        for module in modules
        for name, one in module.TYPES.items()
        if isinstance(one, XdrStruct | XdrUnion | XdrArray | XdrList | XdrAttributes)
    }
    assert len(declared) > 100
    assert sorted(name for name, one in declared.items() if id(one) not in tested) == []


def test_an_array_that_announces_too_much_ends_with_the_bytes() -> None:
    found = read(XdrArray("uint32_t<>", UINT32), pack(">3I", 2**32 - 1, 7, 8))
    assert [child.value for child in found.root.children[:2]] == [7, 8]
    assert found.problem == "uint32_t: the bytes end here, at offset 12"
    assert found.root.note == "2 of 4,294,967,295 decoded to the end"


def test_elements_beyond_the_limit_are_counted() -> None:
    for type, data in (
        (XdrArray("uint32_t<>", UINT32), pack(">101I", 100, *range(100))),
        (XdrList("uint32_t list", UINT32), pack(">201I", *[word for number in range(100) for word in (1, number)], 0)),
    ):
        found = read(struct("s", many=type, last=UINT32), data + pack(">I", 9), 11)
        many, last = found.root.children
        assert (many.value, last.value, found.problem) == (100, 9, "")
        assert many.children[-1].note == f"{100 - len(many.children) + 1} more, not listed"
        assert many.children[-1].offset + many.children[-1].length == len(data) - (0 if type.name.endswith(">") else 4)


def test_an_unknown_operation_ends_the_compound() -> None:
    data = counted(b"") + pack(">IIII", 2, 3, 24, 99) + bytes(40)
    found = read(COMPOUND4ARGS, data)
    assert found.problem == "argop: 99 is unknown, at offset 20"
    operations = found.root.child("argarray")
    assert operations is not None
    assert operations.note == "1 of 3 decoded to the end"
    assert [child.children[0].value for child in operations.children] == [24, 99]


def test_an_unknown_attribute_ends_its_list_only() -> None:
    mask = pack(">5I", 4, 1 << 1 | 1 << 4, 0, 0, 1 << 4)  # type, size, 100
    attributes = mask + counted(pack(">IQ", 1, 4096) + b"new")
    data = pack(">I", 0) + counted(b"") + pack(">III", 2, 9, 0) + attributes + pack(">II", 24, 0)
    found = read(COMPOUND4RES, data)
    assert (found.problem, found.end) == ("", len(data))
    vals = next(node for node in found.root.walk() if node.name == "attr_vals")
    assert [(child.name, child.note) for child in vals.children] == [("type", ""), ("size", ""), ("attribute 100", "")]
    assert vals.note == "attribute 100 is unknown: the last 3 bytes are not decoded"
    assert bytes(vals.children[-1].value or b"") == b"new"


def test_attributes_that_do_not_fit_end_with_their_list() -> None:
    data = pack(">III", 1, 1 << 1 | 1 << 4, 8) + pack(">II", 1, 0) + pack(">I", 77)
    found = read(struct("s", attributes=FATTR4, behind=UINT32), data)
    assert found.problem == ""
    assert found.root.children[1].value == 77
    vals = found.root.children[0].children[1]
    assert vals.note == "size: the bytes end here, at offset 16"


def test_data_that_are_missing_are_stepped_over() -> None:
    head = pack(">III", 0, 5000, 1) + pack(">I", 5000)
    type = struct("s", read=TYPES["READ3resok"], behind=UINT32)
    data = SparseBytes([(0, head), (5000 + len(head), pack(">I", 3))], 5004 + len(head))
    found = decode(type, "it", data, 0, data.length)
    assert (found.problem, found.end) == ("", data.length)
    node = found.root.children[0].child("data")
    assert node is not None
    assert (node.offset, node.length, node.value, node.note) == (12, 5004, None, NOT_CAPTURED)
    assert found.root.children[1].value == 3


def test_missing_words_end_the_decoding() -> None:
    data = SparseBytes([(0, pack(">I", 0)), (8, bytes(100))], 108)
    found = decode(TYPES["wcc_data"], "it", data, 0, data.length)
    assert found.problem == "after: not captured, at offset 4"


def test_no_bytes_are_copied() -> None:
    data = bytes(8) + pack(">II", 1, 6000) + bytes(6000)
    found = read(TYPES["READ3resok"], data[:4] + data[4:])
    node = found.root.child("data")
    assert node is not None and isinstance(node.value, memoryview)
    assert node.value.nbytes == 6000 and node.value.obj is not None


def test_every_type_is_bounded_in_depth_and_takes_a_word() -> None:
    """What keeps a walk over any bytes finite."""

    def depth(type: XdrType | tuple[str, XdrType] | None, above: tuple[int, ...]) -> int:
        if isinstance(type, tuple):
            type = type[1]
        if type is None:
            return 0
        assert id(type) not in above
        inside: list[Any] = []
        if isinstance(type, XdrStruct):
            inside = [field for _, field in type.fields]
        elif isinstance(type, XdrUnion):
            inside = [*type.arms.values(), type.default]
        elif isinstance(type, XdrArray | XdrOptional | XdrList):
            inside = [type.element]
            assert skip_of(type.element) != 0
        elif isinstance(type, XdrAttributes):
            inside = [field for _, field in type.attributes.values()]
        elif isinstance(type, XdrSelected):
            inside = list(type.choices.values())
        return 1 + max((depth(one, (*above, id(type))) for one in inside), default=0)

    assert max(depth(type, ()) for type in SHAPES.values()) < 20
    assert set(nfs4.OPERATIONS) == {*range(3, 76), 10044}
