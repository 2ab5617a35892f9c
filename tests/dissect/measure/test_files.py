"""Files out of conversations: what they are called, how long they are, and what of them was seen."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from playbook import Call, Capture, Reply, Wire, call, faults, fetch, nfs3, nfs4, reply
from playbook.judge import analyze
from playbook.packets import Packet
from playbook.rpc import opaque, u32, u64
from playbook.strategies import Conversation, faulty
from playbook.wire import Connection
from rdmascope.dissect.measure.file_names import printable
from rdmascope.dissect.measure.files import READ, TRUNCATED, WRITE, File, FileTable, FileTransfer
from rdmascope.dissect.onc.file_operations import DIRECTORY, FileMessages, FileOperation, operations_of

OK = u32(0)
ROOT, SUB, FILE, OTHER = b"handle-of-root", b"handle-of-sub", b"handle-of-file", b"handle-of-other"
DATA = bytes(number * 11 & 0xFF for number in range(8192))


def ask(connection: Connection, asked: Call, answered: Reply) -> None:
    reply(call(connection, asked), answered)


def fattr(size: int, kind: int = 1) -> bytes:
    return u32(kind) + nfs3.fattr(size)[4:]


def attributes(size: int, kind: int = 1) -> bytes:
    """post_op_attr (RFC 1813, 2.5)."""
    return u32(1) + fattr(size, kind)


def named(directory: bytes, name: bytes, *rest: bytes) -> tuple[bytes, ...]:
    return (opaque(directory) + opaque(name) + b"".join(rest),)


def lookup(conn: Connection, directory: bytes, name: bytes, found: bytes, size: int = 0, kind: int = 1) -> None:
    """RFC 1813, 3.3.3."""
    asked = Call(nfs3.PROGRAM, 3, 3, named(directory, name))
    ask(conn, asked, Reply((OK + opaque(found) + attributes(size, kind) + u32(0),)))


def remove(conn: Connection, directory: bytes, name: bytes) -> None:
    ask(conn, Call(nfs3.PROGRAM, 3, 12, named(directory, name)), Reply((OK + nfs3.wcc(),)))


def rename(conn: Connection, directory: bytes, name: bytes, to: bytes, to_name: bytes) -> None:
    asked = Call(nfs3.PROGRAM, 3, 14, named(directory, name, opaque(to), opaque(to_name)))
    ask(conn, asked, Reply((OK + nfs3.wcc() + nfs3.wcc(),)))


def truncate(conn: Connection, size: int, handle: bytes = FILE) -> None:
    """SETATTR of the size (RFC 1813, 3.3.2)."""
    asked = Call(nfs3.PROGRAM, 3, 2, (opaque(handle) + u32(0, 0, 0, 1) + u64(size) + u32(0, 0, 0),))
    ask(conn, asked, Reply((OK + u32(0) + attributes(size),)))


def getattr_(conn: Connection, size: int, handle: bytes = FILE, kind: int = 1) -> None:
    ask(conn, nfs3.getattr_(handle), Reply((OK + fattr(size, kind),)))


def read(conn: Connection, offset: int, data: bytes, eof: bool = False, handle: bytes = FILE) -> None:
    asked = call(conn, nfs3.read(offset, len(data), handle), writes=[conn.register(len(data))])
    reply(asked, nfs3.read_reply(data, eof, attributes=False))


def write(conn: Connection, offset: int, data: bytes, done: int | None = -1, handle: bytes = FILE) -> None:
    """``done``: what the server says that it wrote, -1 all, None: it says nothing."""
    asked = call(conn, nfs3.write(offset, data, handle), reads={0: conn.register(len(data))})
    fetch(asked)
    if done is not None:
        answer = OK + u32(0, 0) + u32(len(data) if done < 0 else done, 2) + b"verifier"
        reply(asked, Reply((answer,)))


def taken(wire: Wire, packets: list[Packet] | None = None) -> tuple[FileTable, list[FileTransfer]]:
    table = FileTable()
    transfers = [transfer for rpc in analyze(Capture(wire, packets)) for transfer in table.add(rpc)]
    return table, transfers


def files(wire: Wire, packets: list[Packet] | None = None) -> dict[bytes, File]:
    return {file.handle: file for file in taken(wire, packets)[0]}


def paths(wire: Wire) -> dict[bytes, list[str]]:
    table, _ = taken(wire)
    return {file.handle: table.paths(file) for file in table}


def test_paths_from_the_first_directory_seen() -> None:
    wire = Wire()
    conn = wire.connect()
    getattr_(conn, 4096, ROOT, DIRECTORY)
    lookup(conn, ROOT, b"sub", SUB, kind=DIRECTORY)
    lookup(conn, SUB, b"file", FILE)
    read(conn, 0, DATA, handle=b"nobody named it")
    assert paths(wire) == {ROOT: [], SUB: ["…/sub"], FILE: ["…/sub/file"], b"nobody named it": []}


def test_a_directory_of_which_only_the_handle_is_known() -> None:
    wire = Wire()
    conn = wire.connect()
    getattr_(conn, 4096, ROOT, DIRECTORY)
    lookup(conn, SUB, b"file", FILE)
    assert paths(wire)[FILE] == ["…/file"]


def test_renamed_linked_and_removed() -> None:
    wire = Wire()
    conn = wire.connect()
    lookup(conn, ROOT, b"a", FILE)
    lookup(conn, ROOT, b"b", OTHER)
    rename(conn, ROOT, b"a", ROOT, b"b")
    assert paths(wire) == {ROOT: [], FILE: ["…/b"], OTHER: []}
    asked = Call(nfs3.PROGRAM, 3, 15, (opaque(FILE) + opaque(ROOT) + opaque(b"c"),))
    ask(conn, asked, Reply((OK + attributes(0) + nfs3.wcc(),)))
    assert paths(wire)[FILE] == ["…/c", "…/b"]
    remove(conn, ROOT, b"c")
    remove(conn, ROOT, b"b")
    table, _ = taken(wire)
    (file,) = [file for file in table if file.handle == FILE]
    assert table.paths(file) == []
    assert table.removed_path(file) == "…/b"
    assert [(path, ended) for path, _, _, ended in table.earlier_names(file)] == [
        ("…/c", "removed"),
        ("…/b", "removed"),
        ("…/a", "renamed"),
    ]


def test_names_that_are_made_to_deceive() -> None:
    wire = Wire()
    conn = wire.connect()
    lookup(conn, ROOT, b"../etc/\x1b[2Jpasswd", FILE)
    lookup(conn, ROOT, b"..", SUB, kind=DIRECTORY)
    lookup(conn, SUB, b"loop", OTHER, kind=DIRECTORY)
    lookup(conn, OTHER, b"loop", SUB, kind=DIRECTORY)
    found = paths(wire)
    assert found[FILE] == ["…/…/..\\x2fetc\\x2f\\x1b[2Jpasswd"]
    assert found[SUB] == ["…/loop/loop"]


@given(st.binary(max_size=40))
def test_printable_names_are_one_component_and_tell_names_apart(name: bytes) -> None:
    text = printable(name)
    assert text.isprintable()
    assert "/" not in text
    if b"\\" not in name and name.isascii():
        assert text.encode().decode("unicode_escape").encode("latin-1") == name


def test_two_servers_may_use_the_same_handle() -> None:
    wire = Wire()
    for server in "10.0.0.1", "10.0.0.9":
        read(wire.connect("10.0.0.2", server), 0, DATA)
    table, _ = taken(wire)
    assert [(file.server, file.handle, file.read) for file in table] == [
        ("10.0.0.1", FILE, len(DATA)),
        ("10.0.0.9", FILE, len(DATA)),
    ]


def test_versions_that_share_a_handle_share_the_file() -> None:
    wire = Wire()
    conn = wire.connect()
    read(conn, 0, DATA)
    asked = nfs4.compound(nfs4.sequence(), nfs4.putfh(FILE), nfs4.read(4096, 8192), nfs4.getattr_())
    done = (nfs4.sequence_done(), nfs4.putfh_done(), nfs4.read_done(DATA, eof=True), nfs4.getattr_done(12288))
    reply(call(conn, asked, writes=[conn.register(8192)]), nfs4.compound_reply(*done))
    (file,) = files(wire).values()
    assert file.protocols == {(3, None), (4, 1)}
    assert file.calls == {"READ": 2, "GETATTR": 1}
    assert (file.size, file.read, file.gaps()) == (12288, 16384, [])


def test_the_end_of_file_shows_the_size() -> None:
    wire = Wire()
    conn = wire.connect()
    read(conn, 4096, DATA[:100])
    (file,) = files(wire).values()
    assert (file.size, file.length, file.gaps()) == (None, 4196, [(0, 4096)])
    read(conn, 4196, DATA[:4], eof=True)
    (file,) = files(wire).values()
    assert (file.size, file.gaps()) == (4200, [(0, 4096)])


def test_a_write_behind_the_end_makes_the_file_longer() -> None:
    wire = Wire()
    conn = wire.connect()
    getattr_(conn, 100)
    write(conn, 200, DATA[:50])
    (file,) = files(wire).values()
    assert (file.size, file.written, file.gaps()) == (250, 50, [(0, 200)])


def test_a_truncated_file_is_forgotten_behind_its_end() -> None:
    wire = Wire()
    conn = wire.connect()
    write(conn, 0, DATA)
    truncate(conn, 1000)
    table, transfers = taken(wire)
    (file,) = table
    assert (file.size, file.gaps()) == (1000, [])
    assert [(transfer.kind, transfer.offset) for transfer in transfers] == [(WRITE, 0), (TRUNCATED, 1000)]
    truncate(conn, 3000)
    (file,) = files(wire).values()
    assert (file.size, file.gaps()) == (3000, [(1000, 3000)])


def test_another_process_truncated_it() -> None:
    wire = Wire()
    conn = wire.connect()
    read(conn, 0, DATA, eof=True)
    getattr_(conn, 10)
    table, transfers = taken(wire)
    (file,) = table
    assert (file.size, file.gaps()) == (10, [])
    assert [(transfer.kind, transfer.offset) for transfer in transfers] == [(READ, 0), (TRUNCATED, 10)]


def test_writes_that_failed_fell_short_or_were_never_answered() -> None:
    wire = Wire()
    conn = wire.connect()
    failed = call(conn, nfs3.write(0, DATA, FILE), reads={0: conn.register(len(DATA))})
    fetch(failed)
    reply(failed, Reply((u32(28, 0, 0),)))
    write(conn, 10_000, DATA, done=1000)
    write(conn, 50_000, DATA, done=None)
    table, transfers = taken(wire)
    (file,) = table
    assert (file.written, file.refused, file.unconfirmed) == (1000, 2 * 8192 - 1000, 8192)
    assert file.length == 11_000
    assert [(one.offset, one.count, one.end is None) for one in transfers] == [
        (10_000, 1000, False),
        (50_000, 8192, True),
    ]
    assert b"".join(bytes(data) for one in transfers for _, data in one.captured) == DATA[:1000] + DATA


def test_what_is_not_committed() -> None:
    wire = Wire()
    conn = wire.connect()

    def unstable(offset: int, verifier: bytes) -> None:
        ask(conn, nfs3.write(offset, b"data", FILE), Reply((OK + u32(0, 0, 4, 0) + verifier,)))

    def commit(offset: int, count: int, verifier: bytes) -> None:
        asked = Call(nfs3.PROGRAM, 3, 21, (opaque(FILE) + u64(offset) + u32(count),))
        ask(conn, asked, Reply((OK + u32(0, 0) + verifier,)))

    unstable(0, b"verifier")
    unstable(4, b"verifier")
    commit(0, 4, b"verifier")
    assert files(wire)[FILE].uncommitted == 8
    commit(0, 0, b"verifier")
    file = files(wire)[FILE]
    assert (file.uncommitted, file.restarted) == (0, False)
    unstable(8, b"verifier")
    commit(0, 0, b"another!")
    assert files(wire)[FILE].restarted


def test_a_lost_packet_leaves_a_hole_with_its_reason() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    read(conn, 0, DATA, eof=True)
    gone = faults.where(wire.packets, kind="write")[2]
    table, (transfer,) = taken(wire, faults.drop(wire.packets, [gone]))
    (file,) = table
    assert file.gaps() == [(2048, 3072)]
    assert [(lost.start, lost.end) for lost in transfer.missing] == [(2048, 3072)]
    assert sum(file.missing.values()) == 1024
    assert [(at, bytes(data)) for at, data in transfer.captured] == [(0, DATA[:2048]), (3072, DATA[3072:])]


def test_a_write_of_which_bytes_are_missing_changed_what_was_seen() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    read(conn, 0, DATA, eof=True)
    write(conn, 0, DATA[::-1])
    gone = faults.where(wire.packets, kind="response")[1]
    (file,) = files(wire, faults.drop(wire.packets, [gone])).values()
    assert file.gaps() == [(1024, 2048)]


@pytest.mark.parametrize("part", ["call", "reply"])
def test_half_an_rpc_shows_what_is_known(part: str) -> None:
    wire = Wire()
    conn = wire.connect()
    read(conn, 0, DATA)
    first, last = faults.where(wire.packets, kind="send")
    table, transfers = taken(wire, faults.drop(wire.packets, [last if part == "call" else first]))
    assert transfers == []
    if part == "call":
        (file,) = table
        assert (file.calls, file.read) == ({"READ": 1}, 0)
    else:
        assert len(table) == 0
        assert table.undecoded.total() == 1


def test_operations_of_a_compound_are_of_the_current_file() -> None:
    """PUTFH, LOOKUP, GETFH, GETATTR: the last two are of what was found (RFC 8881, 16.2.3.1)."""
    wire = Wire()
    conn = wire.connect()
    find = nfs4.Op(15, (opaque(b"file"),))
    asked = nfs4.compound(nfs4.sequence(), nfs4.putfh(ROOT), nfs4.getattr_(), find, nfs4.Op(10), nfs4.getattr_())
    found = nfs4.Op(10, (opaque(FILE),))
    done = (nfs4.sequence_done(), nfs4.putfh_done(), nfs4.getattr_done(0), nfs4.Op(15), found, nfs4.getattr_done(77))
    reply(call(conn, asked), nfs4.compound_reply(*done))
    missing = nfs4.compound(nfs4.sequence(), nfs4.putfh(ROOT), find, nfs4.Op(10))
    reply(call(conn, missing), nfs4.compound_reply(nfs4.sequence_done(), nfs4.putfh_done(), nfs4.failed(15, 2)))
    seen = files(wire)
    assert seen[ROOT].calls == {"GETATTR": 1, "LOOKUP": 1}
    assert seen[FILE].calls == {"LOOKUP": 1, "GETATTR": 1}
    assert seen[FILE].size == 77


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_nonsense_is_no_operation(asked: bytes, answered: bytes) -> None:
    header = u32(1, 0, 2, 100003, 4, 1, 0, 0, 0, 0)
    for done in operations_of(FileMessages(header + asked, u32(1, 1, 0, 0, 0, 0) + answered)):
        assert isinstance(done, FileOperation)


@given(faulty())
def test_what_is_seen_is_what_was_sent(conversation: Conversation) -> None:
    """Whatever becomes of the packets: the bytes of each stretch stand in a message of the truth."""
    messages = [message for true in conversation.wire.truth for message in (true.call, true.reply) if message]
    _, transfers = taken(conversation.wire, conversation.packets)
    for transfer in transfers:
        for offset, data in transfer.captured:
            assert transfer.offset <= offset <= offset + len(data) <= transfer.offset + transfer.count
            assert any(bytes(data) in message for message in messages)
