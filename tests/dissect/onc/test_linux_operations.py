"""What Linux's client calls a COMPOUND."""

from __future__ import annotations

from collections import defaultdict

import pytest

from rdmascope.dissect.onc.linux_operations import _SHAPES, _choices, linux_operation


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
        ("SEQUENCE PUTFH GETATTR", None),
        ("SEQUENCE PUTFH CREATE GETFH GETATTR", None),
        ("", None),
    ],
)
def test_the_operations_tell(operations: str, name: str | None) -> None:
    """Of a GETATTR and a CREATE not they alone."""
    assert linux_operation(tuple(operations.split())) == name


def test_no_shape_has_two_names() -> None:
    names = defaultdict(set)
    for name, *words in map(str.split, _SHAPES.strip().splitlines()):
        for shape in _choices(words):
            names[shape].add(name)
    assert {shape: found for shape, found in names.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    "attributes, name",
    [
        ((1, 3, 4, 8, 20, 33, 35), "GETATTR"),
        ((0,), "SERVER_CAPS"),
        ((12,), "GETACL"),
        ((21, 22, 23, 42), "STATFS"),
        ((30, 51), "FSINFO"),
        ((28, 29), "PATHCONF"),
        ((1, 3, 20, 24), "FS_LOCATIONS"),
        ((), "GETATTR"),
    ],
)
@pytest.mark.parametrize("operations", ["PUTFH GETATTR", "SEQUENCE PUTFH GETATTR"])
def test_the_attributes_tell(operations: str, attributes: tuple[int, ...], name: str) -> None:
    assert linux_operation(operations.split(), attributes) == name


def test_the_type_tells_a_symlink() -> None:
    create = ["SEQUENCE", "PUTFH", "CREATE", "GETFH", "GETATTR"]
    assert [linux_operation(create, (1, 3), kind) for kind in (2, 5)] == ["CREATE", "SYMLINK"]
