"""Fields of messages beside Wireshark's: whatever it shows otherwise, more or less of, is found."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given, strategies as st

from playbook import nfs3, nfs4
from playbook.rpc import Call, call_parts, whole
from playbook.xdr_encode import done, op
from rdmascope.dissect.onc.naming import stateid_hash
from rdmascope.dissect.onc.shapes.messages import MessageTree, call_tree, reply_tree
from rdmascope.dissect.onc.shapes.types import Node, SparseBytes, XdrInteger, XdrOpaque
from rdmascope.dissect.verify.rpc_field_names import NAMES
from rdmascope.dissect.verify.second_opinion import (
    DEPRECATED,
    DEPRECATED_STATEID,
    HASHES,
    ShownField,
    ShownMessage,
    compared_fields,
)

OF_OURS = {ours: name for name, several in NAMES.items() for ours in several if name not in HASHES}


def tree_of(call: Call) -> MessageTree:
    data = whole(call_parts(call, 7))
    return call_tree(SparseBytes([(0, data)], len(data)))


WRITE = tree_of(nfs3.write(4096, b"contents"))
OPEN = tree_of(nfs4.compound(nfs4.sequence(), nfs4.putfh(), op("OPEN", claim={"claim": 0, "file": b"name"})))


def reported(tree: MessageTree) -> list[ShownField]:
    """What a Wireshark shows that agrees in everything."""
    found: list[ShownField] = []
    for root in tree[:2]:
        assert isinstance(root, Node)
        for node in root.walk():
            end = node.offset + node.length
            if isinstance(node.type, XdrInteger) and isinstance(node.value, int):
                size = node.type.size
                value = (node.value % (1 << 8 * size)).to_bytes(size, "big")
                found.append(ShownField(OF_OURS[node.name], end - size, value, ""))
            elif isinstance(node.type, XdrOpaque) and isinstance(node.value, memoryview) and not node.children:
                start = node.offset + (4 if node.type.size is None else 0)
                found.append(ShownField(OF_OURS[node.name], start, bytes(node.value), ""))
    return found


def shown(fields: list[ShownField]) -> ShownMessage:
    return ShownMessage(7, False, tuple(fields), False)


@pytest.mark.parametrize("tree", [WRITE, OPEN])
def test_the_same_fields(tree: MessageTree) -> None:
    found = compared_fields(tree, shown(reported(tree)))
    assert (found.differences, found.compared) == ((), len([one for one in reported(tree) if one.value]))
    assert "rpc.xid" in found.names


@given(st.sampled_from([WRITE, OPEN]), st.data())
def test_a_field_with_other_bytes(tree: MessageTree, draw: st.DataObject) -> None:
    fields = reported(tree)
    at = draw.draw(st.sampled_from([at for at, one in enumerate(fields) if one.value]))
    value = fields[at].value
    altered = bytes([value[0] ^ draw.draw(st.integers(1, 255))]) + value[1:]
    (one,) = compared_fields(
        tree, shown([*fields[:at], fields[at]._replace(value=altered), *fields[at + 1 :]])
    ).differences
    assert (one.name, one.ours, one.theirs, one.reason) == (fields[at].name, value, altered, "")


@given(st.sampled_from([WRITE, OPEN]), st.data())
def test_a_field_that_is_not_shown(tree: MessageTree, draw: st.DataObject) -> None:
    fields = reported(tree)
    at = draw.draw(st.sampled_from([at for at, one in enumerate(fields) if one.value]))
    differences = compared_fields(tree, shown(fields[:at] + fields[at + 1 :])).differences
    assert [(one.ours, one.theirs, one.reason) for one in differences] == [(fields[at].value, None, "")]


def test_a_field_that_is_shown_elsewhere_or_under_another_name() -> None:
    fields = reported(WRITE)
    moved = [*fields, fields[-1]._replace(offset=fields[-1].offset + 1)]
    assert [one.ours for one in compared_fields(WRITE, shown(moved)).differences] == [None]
    renamed = [one._replace(name="nfs.mode") if one.name == OF_OURS["offset"] else one for one in fields]
    (one,) = compared_fields(WRITE, shown(renamed)).differences
    assert one.name == "nfs.mode as offset"


def test_the_hash_of_a_handle() -> None:
    handle = next(one for one in reported(WRITE) if one.value == nfs3.FH)
    right = ShownField("nfs.fh.hash", handle.offset, handle.value, f"{crc32(handle.value):#010x}")
    assert compared_fields(WRITE, shown([*reported(WRITE), right])).differences == ()
    wrong = right._replace(shown="0x00000001")
    assert [one.name for one in compared_fields(WRITE, shown([*reported(WRITE), wrong])).differences] == ["nfs.fh.hash"]


def test_the_hash_of_a_stateid() -> None:
    read = tree_of(nfs4.compound(nfs4.putfh(), nfs4.read(0, 1)))
    at = next(node.offset for node in read.body.walk() if node.name == "stateid") if read.body is not None else -1
    for text, names in ((f"{stateid_hash(nfs4.STATEID):#06x}", []), ("0x0000", ["nfs.stateid.hash"])):
        field = ShownField("nfs.stateid.hash", at, nfs4.STATEID, text)
        differences = compared_fields(read, shown([*reported(read), field])).differences
        assert [one.name for one in differences] == names


def test_labels_and_other_protocols_are_not_compared() -> None:
    more = [ShownField("", 3, b"label", ""), ShownField("tcp.seq", 5, b"1", ""), ShownField("nfs.fh.x", -4, b"1", "")]
    assert compared_fields(WRITE, shown([*reported(WRITE), *more])).differences == ()


def test_the_stateid_of_close_is_explained_where_wireshark_says_so() -> None:
    answer = nfs4.compound_reply(done("CLOSE", open_stateid={"seqid": 5, "other": b"\1" * 12}))
    data = b"".join((b"\0\0\0\7\0\0\0\1", bytes(16), *(part for part in answer.parts if isinstance(part, bytes))))
    tree = reply_tree(SparseBytes([(0, data)], len(data)), 100003, 4, 1, None)
    assert tree.problem == ""
    fields = [one for one in reported(tree) if one.value != (5).to_bytes(4, "big")]
    (one,) = compared_fields(tree, shown(fields)).differences
    assert (one.ours, one.reason) == ((5).to_bytes(4, "big"), "")
    marked = [*fields, ShownField(DEPRECATED, 0, b"", "")]
    (one,) = compared_fields(tree, shown(marked)).differences
    assert (one.reason, one.reference) == DEPRECATED_STATEID
