"""The few values of a call and its reply that most questions are about."""

from __future__ import annotations

from struct import pack

import pytest

from playbook.xdr_values import counted
from rdmascope.dissect.onc.rpc_header import GssCredential
from rdmascope.dissect.onc.shapes.decode_cache import NO_FIELDS, FlatFields, flat_fields
from rdmascope.dissect.onc.shapes.messages import SEALED, MessageTree, call_tree, reply_tree
from rdmascope.dissect.onc.shapes.types import SparseBytes

AUTH_SYS = pack(">I", 1) + counted(pack(">I", 9) + counted(b"host") + pack(">3I", 1000, 100, 0))
NONE = pack(">II", 0, 0)
STATEID = pack(">I", 7) + bytes(range(12))
SESSION = bytes(range(16, 32))


def whole(data: bytes) -> SparseBytes:
    return SparseBytes([(0, data)], len(data))


def called(version: int, procedure: int, arguments: bytes, credential: bytes = AUTH_SYS) -> MessageTree:
    return call_tree(whole(pack(">6I", 5, 0, 2, 100003, version, procedure) + credential + NONE + arguments))


def replied(version: int, procedure: int, results: bytes, gss: GssCredential | None = None) -> MessageTree:
    header = pack(">3I", 5, 1, 0) + NONE + pack(">I", 0)
    return reply_tree(whole(header + results), 100003, version, procedure, gss)


def test_a_read_of_version_3() -> None:
    call = called(3, 6, counted(b"handle") + pack(">QI", 4096, 512))
    reply = replied(3, 6, pack(">4I", 0, 0, 512, 1) + counted(bytes(512)))
    assert call.problem == reply.problem == ""
    assert flat_fields(call.body, reply.body, call.header) == FlatFields(
        handle=b"handle", offset=4096, count=512, eof=True, uid=1000, gid=100, machine_name=b"host"
    )


def test_a_compound_with_session_slot_and_stateid() -> None:
    operations = (
        pack(">I", 53) + SESSION + pack(">4I", 3, 11, 31, 1),
        pack(">I", 22) + counted(b"fh"),
        pack(">I", 25) + STATEID + pack(">QI", 8192, 100),
    )
    call = called(4, 1, counted(b"") + pack(">II", 2, 3) + b"".join(operations))
    assert call.problem == ""
    found = flat_fields(call.body)
    assert found == FlatFields(
        handle=b"fh",
        offset=8192,
        count=100,
        stateid=STATEID,
        slot=11,
        sequence=3,
        session=SESSION,
        linux="READ",
    )


def test_a_write_of_version_4_counts_its_data() -> None:
    write = pack(">I", 38) + STATEID + pack(">QI", 8192, 0) + counted(bytes(77))
    call = called(4, 1, counted(b"") + pack(">II", 2, 1) + write)
    assert call.problem == ""
    assert flat_fields(call.body) == FlatFields(offset=8192, count=77, stateid=STATEID)
    apart = called(4, 1, counted(b"") + pack(">II", 2, 1) + write[:-80])  # reduced to a Read chunk
    assert flat_fields(apart.body).count == 77


def test_a_client_that_the_server_names() -> None:
    result = pack(">4I", 0, 0, 1, 35) + pack(">I", 0) + pack(">Q", 0xABC) + bytes(8)
    reply = replied(4, 1, result)
    assert reply.problem == ""
    assert flat_fields(None, reply.body) == FlatFields(client=0xABC)


def gss(procedure: int, service: int) -> bytes:
    return pack(">I", 6) + counted(pack(">4I", 1, procedure, 77, service) + counted(b"context"))


def test_integrity_is_looked_through_and_privacy_is_marked() -> None:
    inner = pack(">I", 77) + counted(b"fh") + pack(">QI", 1, 2)
    call = called(3, 6, counted(inner) + counted(b"checksum"), gss(0, 2))
    assert call.problem == ""
    assert flat_fields(call.body) == FlatFields(handle=b"fh", offset=1, count=2)
    assert flat_fields(call.body, None, call.header).context == b"context"
    sealed = called(3, 6, counted(b"ciphertext"), gss(0, 3))
    assert sealed.body is not None and sealed.problem == ""
    assert [node.note for node in sealed.body.children] == [SEALED]
    assert flat_fields(sealed.body) == NO_FIELDS


def test_a_context_is_created() -> None:
    call = called(3, 0, counted(b"token"), gss(1, 1))
    assert call.body is not None and bytes(call.body.children[0].value or b"") == b"token"
    answer = counted(b"context") + pack(">3I", 0, 0, 128) + counted(b"answer")
    reply = replied(3, 0, answer, GssCredential(1, 1, 77, 1))
    assert reply.body is not None and reply.problem == ""
    assert [child.value for child in reply.body.children][1:4] == [0, 0, 128]


def test_what_is_not_declared_is_marked_with_its_place() -> None:
    tree = called(9, 6, b"12345678")
    assert tree.body is None and tree.rest is not None
    assert tree.problem == "NFS version 9, proc-6: not declared"
    assert (tree.rest.length, bytes(tree.rest.value or b"")) == (8, b"12345678")
    longer = called(3, 1, counted(b"fh") + b"more")
    assert longer.problem == "4 bytes behind the end"
    unmatched = reply_tree(whole(pack(">3I", 5, 1, 0) + NONE + pack(">I", 0) + b"1234"), None, None, None, None)
    assert unmatched.problem == "the call is not known"


def compound(*operations: bytes, announced: int | None = None) -> bytes:
    return counted(b"tag") + pack(">II", 2, announced or len(operations)) + b"".join(operations)


SEQUENCE = pack(">I", 53) + SESSION + pack(">4I", 3, 0, 0, 1)
PUTFH = pack(">I", 22) + counted(b"fh")
SYMLINK = pack(">II", 6, 5) + counted(b"to") + counted(b"name") + pack(">II", 0, 0)
DIRECTORY = pack(">II", 6, 2) + counted(b"name") + pack(">3I", 1, 2, 0)


def getattr_of(*words: int) -> bytes:
    return pack(f">{2 + len(words)}I", 9, len(words), *words)


@pytest.mark.parametrize(
    "arguments, name",
    [
        (compound(SEQUENCE, PUTFH, getattr_of(0x0010011A, 0x00B0A23A)), "GETATTR"),
        (compound(SEQUENCE, PUTFH, getattr_of(1, 0)), "SERVER_CAPS"),
        (compound(PUTFH, getattr_of(7 << 21, 7 << 10)), "STATFS"),
        (compound(PUTFH, getattr_of()), "GETATTR"),
        (compound(SEQUENCE, PUTFH, SYMLINK, pack(">I", 10), getattr_of(1)), "SYMLINK"),
        (compound(SEQUENCE, PUTFH, DIRECTORY, pack(">I", 10), getattr_of(1)), "CREATE"),
        (compound(SEQUENCE), "SEQUENCE"),
        (compound(SEQUENCE, announced=2), None),
        (compound(SEQUENCE, PUTFH, getattr_of(1)[:-4]), None),
        (compound(SEQUENCE, pack(">I", 4711)), None),
        (compound(SEQUENCE, getattr_of(1)), None),
    ],
)
def test_what_linux_calls_a_compound(arguments: bytes, name: str | None) -> None:
    assert flat_fields(called(4, 1, arguments).body).linux == name


def test_linux_names_only_compounds() -> None:
    assert flat_fields(called(3, 1, counted(b"handle")).body).linux is None
