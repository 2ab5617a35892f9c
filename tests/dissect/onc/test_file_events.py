"""What calls and replies tell about files, and the line that sums a message up."""

from __future__ import annotations

import struct
from zlib import crc32

from hypothesis import given, strategies as st

from rdmascope.dissect.onc import summary
from rdmascope.dissect.onc.file_operations import FileEvent, FileEvents, file_events
from rdmascope.dissect.onc.naming import stateid_hash

DIRECTORY, FILE, ELSEWHERE = b"dir-handle-1", b"file-handle-22", b"dir-handle-2"
STATEID = bytes(16)

LOOKUP40_CALL = bytes.fromhex(
    "ee6103b90000000000000002000186a30000000400000001000000010000001c0000000000000006636c69656e740000"
    "000000000000000000000000000000000000000000000000000000000000000400000016000000140100010100000000"
    "a3de5440d4000000000000000000000f0000000477342e300000000a00000009000000020010011a00b0a23a"
)
LOOKUP40_REPLY = bytes.fromhex(
    "ee6103b9000000010000000000000000000000000000000000000002000000000000000200000016000000000000000f00000002"
)
READ3_CALL = bytes.fromhex(
    "3ca82abb0000000000000002000186a30000000300000006000000010000001c0000000000000006636c69656e740000"
    "0000000000000000000000000000000000000000000000140100010100000000bce0c686020000000000000000000000"
    "0000000000001000"
)
READ3_REPLY = bytes.fromhex(
    "3ca82abb0000000100000000000000000000000000000000000000000000000100000001000001a40000000100000000"
    "00000000000000000000000600000000000010000000000000000000000000000000000000000000000000026b00e200"
    "19f98bdb6b00e1f812586aec6b00e1f812586aec000000060000000100000006"
)


def words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def hyper(*values: int) -> bytes:
    return struct.pack(f">{len(values)}Q", *values)


def opaque(data: bytes) -> bytes:
    return words(len(data)) + data + bytes(-len(data) % 4)


def call3(procedure: int, body: bytes) -> bytes:
    return words(5, 0, 2, 100003, 3, procedure, 0, 0, 0, 0) + body


def call4(*operations: bytes) -> bytes:
    return words(5, 0, 2, 100003, 4, 1, 0, 0, 0, 0) + words(0, 2, len(operations)) + b"".join(operations)


def reply(body: bytes) -> bytes:
    return words(5, 1, 0, 0, 0, 0) + body


def reply4(*results: bytes, status: int = 0) -> bytes:
    return reply(words(status, 0, len(results)) + b"".join(results))


def only(events: FileEvents) -> FileEvent:
    assert events.problem == "" and len(events.events) == 1
    return events.events[0]


def test_version_3_names_files() -> None:
    asked = opaque(DIRECTORY) + opaque(b"name")
    answered = reply(words(0) + opaque(FILE) + words(0, 0))
    named = FileEvent("named", FILE, DIRECTORY, b"name")
    assert only(file_events(call3(3, asked), answered)) == named
    created = reply(words(0, 1) + opaque(FILE) + words(0, 0, 0))
    assert only(file_events(call3(8, asked + bytes(8)), created)) == named
    nameless = reply(words(0, 0, 0, 0, 0))
    # MKDIR and LINK fail where the name is there already (RFC 1813, 3.3.9 and 3.3.15); CREATE need not.
    assert only(file_events(call3(9, asked + bytes(8)), nameless)) == named._replace(handle=None, made=True)
    link = opaque(FILE) + asked
    assert only(file_events(call3(15, link), reply(words(0, 0, 0, 0)))) == named._replace(made=True)
    removed = only(file_events(call3(12, asked), reply(words(0, 0, 0))))
    assert removed == FileEvent("removed", None, DIRECTORY, b"name")
    moved = asked + opaque(ELSEWHERE) + opaque(b"new")
    renamed = only(file_events(call3(14, moved), reply(words(0, 0, 0, 0, 0))))
    assert (renamed.directory, renamed.name, renamed.to_directory, renamed.to_name) == (
        DIRECTORY,
        b"name",
        ELSEWHERE,
        b"new",
    )
    failed = reply(words(2, 0))
    assert file_events(call3(3, asked), failed) == FileEvents()


def test_version_3_lists_a_directory() -> None:
    entry = words(1) + hyper(9) + opaque(b"with") + hyper(1) + words(0, 1) + opaque(FILE)
    entry += words(1) + hyper(9) + opaque(b"without") + hyper(2) + words(0, 0)
    listing = reply(words(0, 0) + bytes(8) + entry + words(0, 1))
    found = file_events(call3(17, opaque(DIRECTORY) + bytes(24)), listing)
    assert found.events == (
        FileEvent("named", FILE, DIRECTORY, b"with"),
        FileEvent("named", None, DIRECTORY, b"without"),
    )


def test_a_real_read_and_its_line() -> None:
    whole = READ3_REPLY + b"hello\n\0\0"
    event = only(file_events(READ3_CALL, whole))
    assert (event.kind, event.offset, event.count, event.eof) == ("read", 0, 6, True)
    assert whole[event.position : event.position + event.count] == b"hello\n"
    line = summary.call_summary(READ3_CALL, 0, len(READ3_CALL))
    assert line == "NFS V3 READ Call, FH: 0x765c6af5 Offset: 0 Len: 4096"
    line = summary.reply_summary(100003, 3, 6, READ3_REPLY, 0, len(READ3_REPLY), [6])
    assert line == "NFS V3 READ Reply Len: 6"


def test_version_3_writes() -> None:
    asked = call3(7, opaque(FILE) + hyper(4096) + words(3, 2) + opaque(b"abc"))
    done = reply(words(0, 0, 0, 3, 2) + bytes(8))
    event = only(file_events(asked, done))
    assert (event.handle, event.offset, event.count, event.done) == (FILE, 4096, 3, 3)
    assert asked[event.position : event.position + 3] == b"abc"
    assert only(file_events(asked, None)).done is None
    assert only(file_events(asked, reply(words(28, 0, 0)))).done == 0
    line = summary.call_summary(asked, 0, len(asked))
    assert line.endswith("Offset: 4096 Len: 3 FILE_SYNC")
    truncated = call3(2, opaque(FILE) + words(0, 0, 0, 1) + hyper(77) + words(0, 0, 0))
    assert only(file_events(truncated, reply(words(0, 0, 0)))) == FileEvent("resized", FILE, offset=77)


def test_a_compound_carries_its_filehandle_along() -> None:
    asked = call4(
        words(24),
        words(10),
        words(15) + opaque(b"dir"),
        words(32),
        words(15) + opaque(b"file"),
        words(10),
        words(25) + STATEID + hyper(100) + words(8),
        words(31),
        words(28) + opaque(b"gone"),
    )
    answered = reply4(
        words(24, 0),
        words(10, 0) + opaque(b"root"),
        words(15, 0),
        words(32, 0),
        words(15, 0),
        words(10, 0) + opaque(FILE),
        words(25, 0, 1) + opaque(b"content!"),
        words(31, 0),
        words(28, 0) + bytes(20),
    )
    found = file_events(asked, answered)
    assert found.problem == ""
    root, directory, file, read, removed = found.events
    assert root == FileEvent("root", b"root")
    assert directory == FileEvent("named", None, b"root", b"dir")
    assert file == FileEvent("named", FILE, None, b"file")
    assert (read.handle, read.offset, read.count, read.eof) == (FILE, 100, 8, True)
    assert answered[read.position : read.position + 8] == b"content!"
    assert removed == FileEvent("removed", None, None, b"gone")


def test_opening_creating_and_writing_in_version_4() -> None:
    size_zero = words(1, 0x10) + opaque(hyper(0))
    opened = words(18, 0, 2, 0) + hyper(1) + opaque(b"owner") + words(1, 0) + size_zero
    opened += words(0) + opaque(b"new")
    asked = call4(
        words(22) + opaque(DIRECTORY),
        opened,
        words(10),
        words(38) + STATEID + hyper(5) + words(0) + opaque(b"abc"),
    )
    delegated = words(18, 0) + STATEID + bytes(20) + words(0, 0, 0)
    answered = reply4(words(22, 0), delegated, words(10, 0) + opaque(FILE), words(38, 0, 3, 2) + bytes(8))
    named, resized, written = file_events(asked, answered).events
    assert named == FileEvent("named", FILE, DIRECTORY, b"new")
    assert resized == FileEvent("resized", FILE)
    assert (written.handle, written.offset, written.done) == (FILE, 5, 3)
    assert asked[written.position : written.position + written.count] == b"abc"
    # Without the reply only the request is known, not which file was written.
    alone = only(file_events(asked, None))
    assert (alone.kind, alone.handle, alone.done) == ("write", None, None)
    line = summary.reply_summary(100003, 4, 1, answered, 0, len(answered), (), 2)
    hashes = f"FH: {crc32(FILE):#010x} StateID: {stateid_hash(STATEID):#06x}"
    assert line == f"NFS V4.2 COMPOUND Reply PUTFH | OPEN | GETFH | WRITE NFS4_OK, {hashes}"
    line = summary.call_summary(asked, 0, len(asked))
    assert line.endswith(f" StateID: {stateid_hash(STATEID):#06x} Offset: 5 Len: 3")


def test_the_hash_of_a_stateid_is_that_of_tshark() -> None:
    """Of recorded OPENs."""
    for seqid, number, shown in ((1, "0d", 0xA76E), (2, "0d", 0xA999), (1, "0e", 0x82A3), (1, "0f", 0x9E18)):
        assert stateid_hash(words(seqid) + bytes.fromhex(f"f9e1006b81351363{number}000000")) == shown


def test_renames_links_and_listings_in_version_4() -> None:
    asked = call4(
        words(22) + opaque(DIRECTORY),
        words(32),
        words(22) + opaque(ELSEWHERE),
        words(29) + opaque(b"old") + opaque(b"new"),
        words(11) + opaque(b"hard"),
        words(26) + bytes(24) + words(0),
    )
    entry = words(1) + hyper(3) + opaque(b"plain") + words(0) + words(0)
    # Type, ACL, file handle: the handle stands behind an access control list of one entry.
    attributes = words(2) + words(1, 0, 0, 1) + opaque(b"who") + opaque(FILE)
    entry += words(1) + hyper(4) + opaque(b"rich") + words(1, 1 << 1 | 1 << 12 | 1 << 19)
    entry += opaque(attributes)
    answered = reply4(
        words(22, 0),
        words(32, 0),
        words(22, 0),
        words(29, 0) + bytes(40),
        words(11, 0) + bytes(20),
        words(26, 0) + bytes(8) + entry + words(0, 1),
    )
    renamed, linked, plain, rich = file_events(asked, answered).events
    assert (renamed.directory, renamed.to_directory) == (DIRECTORY, ELSEWHERE)
    assert (renamed.name, renamed.to_name) == (b"old", b"new")
    assert linked == FileEvent("named", DIRECTORY, ELSEWHERE, b"hard", made=True)
    assert plain == FileEvent("named", None, ELSEWHERE, b"plain")
    assert rich == FileEvent("named", FILE, ELSEWHERE, b"rich")


def test_holes_and_changes_that_cross_no_wire() -> None:
    asked = call4(
        words(22) + opaque(FILE),
        words(68) + STATEID + hyper(0) + words(100),
        words(62) + STATEID + hyper(10, 20),
        words(71) + STATEID + STATEID + hyper(1, 2, 3),
    )
    segments = words(2, 0) + hyper(0) + opaque(b"xyz") + words(1) + hyper(3, 97)
    answered = reply4(words(22, 0), words(68, 0, 1) + segments, words(62, 0), words(71, 0))
    read, hole, punched, cloned = file_events(asked, answered).events
    assert answered[read.position : read.position + read.count] == b"xyz"
    assert hole == FileEvent("hole", FILE, offset=3, count=97)
    assert punched == FileEvent("altered", FILE, offset=10, count=20)
    assert cloned == FileEvent("altered", FILE, offset=2, count=3)


def test_a_failed_lookup_names_nothing() -> None:
    assert file_events(LOOKUP40_CALL, LOOKUP40_REPLY) == FileEvents()
    line = summary.call_summary(LOOKUP40_CALL, 0, len(LOOKUP40_CALL))
    assert line == "NFS V4.0 COMPOUND Call PUTFH | LOOKUP | GETFH | GETATTR, FH: 0xbc3d25ef/w4.0"
    line = summary.reply_summary(100003, 4, 1, LOOKUP40_REPLY, 0, len(LOOKUP40_REPLY), (), 0)
    assert line == "NFS V4.0 COMPOUND Reply PUTFH | LOOKUP NFS4ERR_NOENT"


def test_lines_of_other_messages() -> None:
    refused = words(5, 1, 0, 0, 0, 2, 3, 4)
    assert summary.reply_summary(100003, 2, 1, refused, 0, 32) == "NFS V2 GETATTR Reply Error: PROG_MISMATCH"
    denied = reply(words(13, 0))
    assert summary.reply_summary(100003, 3, 3, denied, 0, len(denied)).endswith("Error: NFS3ERR_ACCES")
    odd = call3(3, opaque(b"x") + opaque(b"\x1b[2J\xff"))
    assert summary.call_summary(odd, 0, len(odd)).endswith("/?[2J\\xff")


@given(st.integers(0, 22), st.integers(3, 75), st.binary(max_size=150), st.binary(max_size=150))
def test_noise_never_raises(procedure: int, number: int, asked: bytes, answered: bytes) -> None:
    pairs = [
        (call3(procedure, asked), reply(words(0) + answered)),
        (
            call4(words(22) + opaque(FILE), words(number) + asked),
            reply4(words(22, 0), words(number, 0) + answered),
        ),
        (asked, answered),
    ]
    for call, response in pairs:
        for event in file_events(call, response).events + file_events(call, None).events:
            assert event.position <= len(call) + len(response)
        summary.call_summary(call, 0, len(call))
        summary.reply_summary(100003, 4, 1, response, 0, len(response), [5])
        summary.reply_summary(100003, 3, procedure, response, 0, len(response), [5])


def test_truncated_anywhere_nothing_is_invented() -> None:
    whole = READ3_REPLY + b"hello\n\0\0"
    full = file_events(READ3_CALL, whole).events
    for end in range(len(whole)):
        assert file_events(READ3_CALL, whole[:end]).events in ((), full)
    for end in range(len(READ3_CALL)):
        assert file_events(READ3_CALL[:end], whole).events in ((), full)
