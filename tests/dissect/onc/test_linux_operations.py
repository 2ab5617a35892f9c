"""What Linux's client calls a COMPOUND."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playbook.nfs4 import Op, compound, putfh, sequence
from playbook.rpc import call_parts, opaque, u32, whole
from rdmascope.dissect.onc.linux_operations import _SHAPES, BY_ARGUMENTS, _choices, by_arguments, linux_operation


def call_of(*operations: Op, minor: int = 2, tag: bytes = b"") -> bytes:
    return whole(call_parts(compound(*operations, minor=minor, tag=tag), 7))


def getattr_of(*words: int) -> Op:
    return Op(9, (u32(len(words), *words),))


def create_of(kind: int) -> Op:
    return Op(6, (u32(kind) + (opaque(b"where") if kind == 5 else b"") + opaque(b"name") + u32(0) + opaque(b""),))


@pytest.mark.parametrize(
    "operations, name",
    [
        ("SEQUENCE PUTFH OPEN GETFH ACCESS GETATTR", "OPEN"),
        ("SEQUENCE PUTFH OPEN ACCESS GETATTR", "OPEN_NOATTR"),
        ("PUTFH OPEN GETATTR", "OPEN_NOATTR"),
        ("SEQUENCE PUTFH GETATTR CLOSE", "CLOSE"),
        ("SEQUENCE PUTFH CLOSE", "CLOSE"),
        ("SEQUENCE PUTFH SAVEFH PUTFH RENAME", "RENAME"),
        ("SEQUENCE PUTFH SETATTR", "SETACL"),
        ("SEQUENCE", "SEQUENCE"),
        ("SEQUENCE RECLAIM_COMPLETE", "RECLAIM_COMPLETE"),
        ("EXCHANGE_ID", "EXCHANGE_ID"),
        ("SEQUENCE PUTFH READ READ", None),
        ("", None),
    ],
)
def test_the_operations_tell(operations: str, name: str | None) -> None:
    assert linux_operation(tuple(operations.split())) == name


def test_no_shape_has_two_names() -> None:
    names = defaultdict(set)
    for name, *words in map(str.split, _SHAPES.strip().splitlines()):
        for shape in _choices(words):
            names[shape].add(name)
    assert {shape: found for shape, found in names.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    "words, name",
    [
        ((0x0010011A, 0x00B0A23A), "GETATTR"),
        ((1, 0), "SERVER_CAPS"),
        ((1 << 12,), "GETACL"),
        ((7 << 21, 7 << 10), "STATFS"),
        ((1 << 30, 1 << 19), "FSINFO"),
        ((1 << 28 | 1 << 29,), "PATHCONF"),
        ((0x0110011A, 0), "FS_LOCATIONS"),
        ((), "GETATTR"),
    ],
)
@pytest.mark.parametrize("tag", [b"", b"getattr"])
def test_the_attributes_tell(words: tuple[int, ...], name: str, tag: bytes) -> None:
    assert by_arguments("GETATTR", call_of(sequence(), putfh(), getattr_of(*words), tag=tag)) == name
    assert by_arguments("GETATTR", call_of(putfh(), getattr_of(*words), minor=0)) == name


def test_the_type_tells_a_symlink() -> None:
    assert by_arguments("CREATE", call_of(sequence(), putfh(), create_of(5), Op(10), getattr_of(2))) == "SYMLINK"
    assert by_arguments("CREATE", call_of(sequence(), putfh(), create_of(2), Op(10), getattr_of(2))) == "CREATE"


@given(st.sampled_from(sorted(BY_ARGUMENTS)), st.binary(max_size=200), st.integers(0, 200))
def test_no_bytes_are_too_bad(name: str, tail: bytes, kept: int) -> None:
    data = call_of(sequence(), putfh(), getattr_of(1, 0))[:kept] + tail
    assert isinstance(by_arguments(name, data), str)
