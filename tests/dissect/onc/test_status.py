"""Names of programs, procedures and statuses, and where replies carry a status."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, strategies as st

from rdmascope.dissect.onc import rpc_header, status


def words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


@pytest.mark.parametrize(
    ("program", "version", "procedure", "name"),
    [
        (100003, 2, 8, "WRITE"),
        (100003, 2, 17, "STATFS"),
        (100003, 3, 6, "READ"),
        (100003, 3, 17, "READDIRPLUS"),
        (100003, 3, 21, "COMMIT"),
        (100003, 3, 22, "proc-22"),
        (100003, 4, 1, "COMPOUND"),
        (100003, 9, 1, "proc-1"),
        (100005, 1, 6, "EXPORTALL"),
        (100005, 3, 5, "EXPORT"),
        (100000, 2, 3, "GETPORT"),
        (100000, 3, 3, "GETADDR"),
        (100000, 4, 12, "GETSTAT"),
        (100021, 4, 2, "LOCK"),
        (100021, 4, 23, "FREE_ALL"),
        (100024, 1, 6, "NOTIFY"),
        (100227, 3, 1, "GETACL"),
        (0x40000000, 1, 1, "CB_COMPOUND"),
        (7, 1, 3, "proc-3"),
    ],
)
def test_procedure_names(program: int, version: int, procedure: int, name: str) -> None:
    assert rpc_header.procedure_name(program, version, procedure) == name


def test_program_names() -> None:
    assert rpc_header.program_name(100003) == "NFS"
    assert rpc_header.program_name(0x40000000) == "NFS_CB"
    assert rpc_header.program_name(1234567) == "program-1234567"
    assert {program for program, _ in rpc_header.PROCEDURES} <= set(rpc_header.PROGRAM_NAMES)


@pytest.mark.parametrize(
    ("program", "version", "procedure", "results", "expected"),
    [
        (100003, 3, 3, words(0), ("OK", False)),
        (100003, 3, 3, words(2, 0), ("NFS3ERR_NOENT", True)),
        (100003, 3, 3, words(10008), ("NFS3ERR_JUKEBOX", True)),
        (100003, 3, 3, words(77), ("nfsstat3 77", True)),
        (100003, 3, 0, b"", None),
        (100003, 3, 22, words(0), None),
        (100003, 2, 4, words(70), ("NFSERR_STALE", True)),
        (100003, 2, 3, words(0), None),
        (100003, 4, 1, words(10008, 0, 0), ("NFS4ERR_DELAY", True)),
        (100003, 4, 1, words(0, 0, 0), ("OK", False)),
        (100003, 4, 0, b"", None),
        (0x40000000, 1, 1, words(10001, 0, 0), ("NFS4ERR_BADHANDLE", True)),
        (100005, 3, 1, words(13), ("MNT3ERR_ACCES", True)),
        (100005, 3, 3, b"", None),
        (100005, 1, 1, words(2), ("ENOENT", True)),
        (100021, 4, 2, words(4) + b"cook" + words(1), ("NLM4_DENIED", True)),
        (100021, 4, 2, words(4) + b"cook" + words(3), ("NLM4_BLOCKED", False)),
        (100021, 1, 4, words(1) + b"c\0\0\0" + words(0), ("OK", False)),
        (100021, 4, 7, b"", None),
        (100227, 3, 1, words(10004), ("NFS3ERR_NOTSUPP", True)),
        (100227, 2, 1, words(0), ("OK", False)),
        (100024, 1, 2, words(1, 9), ("STAT_FAIL", True)),
        (100011, 1, 1, words(2), ("Q_NOQUOTA", True)),
        (100000, 2, 3, words(2049), None),
        (4711, 1, 1, words(0), None),
    ],
)
def test_where_the_status_is(
    program: int, version: int, procedure: int, results: bytes, expected: tuple[str, bool] | None
) -> None:
    data = b"head" + results
    assert status.reply_status(program, version, procedure, data, 4, len(data)) == expected


def test_a_status_that_was_not_captured_is_unknown() -> None:
    assert status.reply_status(100003, 3, 3, words(0), 0, 3) is None
    assert status.reply_status(100003, 3, 3, words(0), -1, 4) is None
    assert status.reply_status(100021, 4, 2, words(0xFFFFFFFF, 0), 0, 8) is None


@given(
    st.sampled_from(sorted(rpc_header.PROGRAM_NAMES)),
    st.integers(0, 5),
    st.integers(0, 25),
    st.binary(max_size=24),
)
def test_noise_never_raises(program: int, version: int, procedure: int, noise: bytes) -> None:
    found = status.reply_status(program, version, procedure, noise, 0, len(noise))
    assert found is None or (found[0] == "OK") <= (not found[1])
