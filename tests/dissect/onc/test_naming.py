"""Which calls name files, and where their paths begin."""

from __future__ import annotations

import pytest

from rdmascope.dissect.onc.naming import FOUND, NOTHING, OTHER, REMOVED, Naming, naming
from rdmascope.dissect.onc.rpc_header import MOUNT, NFS, NFS_CALLBACK


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ("SEQUENCE PUTFH READ", Naming(NOTHING, False, False)),
        ("SEQUENCE PUTFH LOOKUP GETFH GETATTR", Naming(FOUND, False, True)),
        ("SEQUENCE PUTFH CREATE GETFH", Naming(FOUND, False, True, made=True)),
        ("SEQUENCE PUTFH REMOVE", Naming(REMOVED, False, True)),
        ("PUTROOTFH LOOKUP GETFH", Naming(OTHER, True, True)),
        ("PUTFH SAVEFH PUTFH RENAME", Naming(OTHER, False, True)),
        ("PUTFH SAVEFH PUTFH LINK", Naming(OTHER, False, False)),
        ("PUTFH LOOKUP LOOKUP GETFH", Naming(OTHER, False, True)),
        ("PUTFH LOOKUPP GETFH", Naming(OTHER, False, False)),
        ("PUTFH SAVEFH OPEN RESTOREFH", Naming(OTHER, False, True)),
        ("EXCHANGE_ID", Naming(NOTHING, False, False)),
    ],
)
def test_compounds(operations: str, expected: Naming) -> None:
    assert naming(NFS, 4, tuple(operations.split()), "COMPOUND") == expected


def test_procedures() -> None:
    assert naming(NFS, 3, (), "MKDIR") == Naming(FOUND, False, True, made=True)
    assert naming(NFS, 3, (), "RENAME") == Naming(OTHER, False, True)
    assert naming(NFS, 3, (), "LINK") == Naming(OTHER, False, False)
    assert naming(NFS, 3, (), "READ") == Naming(NOTHING, False, False)
    assert naming(MOUNT, 3, (), "MNT").kind == OTHER
    assert naming(NFS_CALLBACK, 1, ("CB_RECALL",), "CB_COMPOUND").callback
