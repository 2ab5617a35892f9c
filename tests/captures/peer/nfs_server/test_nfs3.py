"""NFSv3 on the export: as a client calls it."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given, strategies as st

from playbook.nfs_calls import PROCEDURES, FileClient
from playbook.xdr_values import values
from rdmascope.captures.peer import rpc
from rdmascope.captures.peer.endpoint import DdpItem, service
from rdmascope.captures.peer.nfs_server.export import Export
from rdmascope.dissect.onc.rpc_header import NFS
from rdmascope.dissect.onc.shapes.rfc1813 import NFS3
from rdmascope.dissect.onc.status import NFS3_STATUS

UNCHECKED, GUARDED, EXCLUSIVE = range(3)
OK = 0


@pytest.fixture
def client() -> FileClient:
    return FileClient(Export(4 << 20, instance=b"instance"))


def name(status: int) -> str:
    return NFS3_STATUS[status]


def created(client: FileClient, file: bytes, directory: bytes | None = None) -> bytes:
    made = client.v3("CREATE", where={"dir": directory or client.root, "name": file}, how={"mode": UNCHECKED})
    assert made["status"] == OK
    return bytes(made["obj"])


def test_a_file_copied_there_and_back(client: FileClient) -> None:
    file = created(client, b"copy")
    data = bytes(range(256)) * 1000
    for at in range(0, len(data), 100_000):
        piece = data[at : at + 100_000]
        written = client.v3("WRITE", file=file, offset=at, count=len(piece), stable=0, data=piece)
        assert (written["status"], written["count"]) == (OK, len(piece))
        assert written["file_wcc"]["before"]["size"] == at
        assert written["file_wcc"]["after"]["size"] == at + len(piece)
    assert client.v3("COMMIT", file=file, offset=0, count=0)["verf"] == written["verf"]
    found = client.v3("LOOKUP", what={"dir": client.root, "name": b"copy"})
    assert (found["object"], found["obj_attributes"]["size"]) == (file, len(data))
    read = client.v3("READ", file=file, offset=1000, count=1 << 20)
    assert (read["data"], read["eof"], read["count"]) == (data[1000:], 1, len(data) - 1000)
    assert client.v3("GETATTR", object=file)["obj_attributes"]["type"] == 1


def test_data_that_are_read_can_travel_in_a_chunk(client: FileClient) -> None:
    head = rpc.call_head(7, NFS, 3, PROCEDURES["READ"]) + rpc.opaque(service.HANDLE) + pack(">QI", 5, 20)
    parts = client.export.answer(head)
    assert parts[-1] == DdpItem(service.pattern(5, 20))


def test_times_owners_and_modes(client: FileClient) -> None:
    file = created(client, b"a")
    attributes = client.v3("GETATTR", object=file)["obj_attributes"]
    assert (attributes["uid"], attributes["gid"]) == (1000, 100)  # the caller's
    wanted = {
        "mode": {"set_it": 1, "mode": 0o600},
        "uid": {"set_it": 1, "uid": 5},
        "mtime": {"set_it": 2, "mtime": {"seconds": 77, "nseconds": 8}},
        "size": {"set_it": 1, "size": 10},
    }
    assert client.v3("SETATTR", object=file, new_attributes=wanted, guard={"check": 0})["status"] == OK
    attributes = client.v3("GETATTR", object=file)["obj_attributes"]
    assert (attributes["mode"], attributes["uid"], attributes["size"]) == (0o600, 5, 10)
    assert attributes["mtime"] == {"seconds": 77, "nseconds": 8}
    guard = {"check": 1, "obj_ctime": {"seconds": 1, "nseconds": 1}}
    assert name(client.v3("SETATTR", object=file, new_attributes=wanted, guard=guard)["status"]) == "NFS3ERR_NOT_SYNC"


def test_creating_what_is_there(client: FileClient) -> None:
    where = {"dir": client.root, "name": b"a"}
    first = client.v3("CREATE", where=where, how={"mode": EXCLUSIVE, "verf": b"verifier"})
    again = client.v3("CREATE", where=where, how={"mode": EXCLUSIVE, "verf": b"verifier"})
    assert first["obj"] == again["obj"]
    other = client.v3("CREATE", where=where, how={"mode": EXCLUSIVE, "verf": b"another!"})
    guarded = client.v3("CREATE", where=where, how={"mode": GUARDED})
    assert name(other["status"]) == name(guarded["status"]) == "NFS3ERR_EXIST"
    assert created(client, b"a") == first["obj"]


def test_a_call_that_comes_again_is_not_carried_out_again(client: FileClient) -> None:
    created(client, b"a")
    object = {"dir": client.root, "name": b"a"}
    assert client.v3("REMOVE", xid=99, object=object)["status"] == OK
    assert client.v3("REMOVE", xid=99, object=object)["status"] == OK
    assert name(client.v3("REMOVE", xid=100, object=object)["status"]) == "NFS3ERR_NOENT"


@pytest.mark.parametrize("procedure, room", [("READDIR", 200), ("READDIRPLUS", 600), ("READDIRPLUS", 20_000)])
def test_a_directory_is_listed_in_pieces(client: FileClient, procedure: str, room: int) -> None:
    directory = client.v3("MKDIR", where={"dir": client.root, "name": b"dir"})["obj"]
    names = [b"file-%03d" % number for number in range(100)]
    for one in names:
        created(client, one, directory)
    listed, cookie, verifier, calls = [], 0, bytes(8), 0
    while True:
        how = {"count": room} if procedure == "READDIR" else {"dircount": room, "maxcount": room}
        found = client.v3(procedure, dir=directory, cookie=cookie, cookieverf=verifier, **how)
        assert found["status"] == OK
        listed += [one["name"] for one in found["entries"]]
        calls += 1
        if found["eof"]:
            break
        cookie, verifier = found["entries"][-1]["cookie"], found["cookieverf"]
    assert listed == [b".", b"..", *names]
    assert (calls == 1) == (room == 20_000)


def test_errors_of_listings(client: FileClient) -> None:
    found = client.v3("READDIR", dir=client.root, count=8)
    assert name(found["status"]) == "NFS3ERR_TOOSMALL"
    found = client.v3("READDIR", dir=client.root, cookie=3, cookieverf=b"another!", count=4096)
    assert name(found["status"]) == "NFS3ERR_BAD_COOKIE"
    found = client.v3("READDIR", dir=created(client, b"a"), count=4096)
    assert name(found["status"]) == "NFS3ERR_NOTDIR"


def test_names_move_and_go(client: FileClient) -> None:
    directory = client.v3("MKDIR", where={"dir": client.root, "name": b"dir"}, attributes={})["obj"]
    file = created(client, b"a")
    at, there = {"dir": client.root, "name": b"a"}, {"dir": directory, "name": b"b"}
    assert client.v3("LINK", file=file, link=there)["status"] == OK
    assert client.v3("GETATTR", object=file)["obj_attributes"]["nlink"] == 2
    assert client.v3("REMOVE", object=at)["status"] == OK
    assert client.v3("RENAME", from_=there, to=at)["status"] == OK
    assert name(client.v3("RMDIR", object=at)["status"]) == "NFS3ERR_NOTDIR"
    assert name(client.v3("REMOVE", object={"dir": client.root, "name": b"dir"})["status"]) == "NFS3ERR_ISDIR"
    assert client.v3("RMDIR", object={"dir": client.root, "name": b"dir"})["status"] == OK
    assert name(client.v3("GETATTR", object=directory)["status"]) == "NFS3ERR_STALE"
    link = client.v3("SYMLINK", where={"dir": client.root, "name": b"l"}, symlink={"symlink_data": b"a/b"})["obj"]
    assert client.v3("READLINK", symlink=link)["data"] == b"a/b"


def test_what_the_file_system_says_of_itself(client: FileClient) -> None:
    assert client.v3("FSINFO", fsroot=client.root)["rtmax"] == 1 << 20
    before = client.v3("FSSTAT", fsroot=client.root)
    assert before["tbytes"] == 4 << 20
    file = created(client, b"a")
    client.v3("WRITE", file=file, count=5000, data=bytes(5000))
    assert before["fbytes"] - client.v3("FSSTAT", fsroot=client.root)["fbytes"] == 5000 + 1024
    assert client.v3("PATHCONF", object=client.root)["name_max"] == 255
    assert client.v3("ACCESS", object=client.root, access=0x3F)["access"] == 0x1F
    full = client.v3("WRITE", file=file, offset=1 << 40, count=1, data=b"x")
    assert name(full["status"]) == "NFS3ERR_NOSPC"
    # A client that knows of a lower limit would say "File too large", and send nothing.
    assert client.v3("FSINFO", fsroot=client.root)["maxfilesize"] == (1 << 63) - 1
    full = client.v3("WRITE", file=file, offset=5000, count=4 << 20, data=bytes(4 << 20))
    assert name(full["status"]) == "NFS3ERR_NOSPC"
    full = client.v3(
        "SETATTR", object=file, new_attributes={"size": {"set_it": 1, "size": (1 << 63) - 1}}, guard={"check": 0}
    )
    assert name(full["status"]) == "NFS3ERR_NOSPC"


def test_what_is_refused(client: FileClient) -> None:
    assert name(client.v3("GETATTR", object=b"none")["status"]) == "NFS3ERR_BADHANDLE"
    assert name(client.v3("GETATTR", object=b"instance" + bytes(8))["status"]) == "NFS3ERR_STALE"
    assert name(client.v3("MKNOD", where={"dir": client.root, "name": b"p"}, what={"type": 7})["status"]) == (
        "NFS3ERR_NOTSUPP"
    )
    bad = client.v3("CREATE", where={"dir": client.root, "name": b"a/b"}, how={"mode": UNCHECKED})
    assert name(bad["status"]) == "NFS3ERR_ACCES"
    call = rpc.call_head(1, NFS, 3, PROCEDURES["GETATTR"])
    assert client.reply(call + pack(">I", 65) + bytes(68))[0] == "GARBAGE_ARGS"  # a handle too long
    assert client.reply(call)[0] == "GARBAGE_ARGS"
    assert client.reply(rpc.call_head(1, NFS, 3, 22))[0] == "PROC_UNAVAIL"
    assert client.reply(rpc.call_head(1, NFS, 9, 1))[0] == "PROG_MISMATCH"
    assert client.reply(rpc.call_head(1, 100_099, 1, 1))[0] == "PROG_UNAVAIL"
    assert client.reply(service.sealed_call(1, 1))[0] == "AUTH_TOOWEAK"
    assert client.reply(call[:8] + pack(">I", 3) + call[12:])[0] == "RPC_MISMATCH"


@given(st.data())
def test_no_arguments_whatever_are_answered_with_silence(data: st.DataObject) -> None:
    client = FileClient(Export(1 << 16, instance=b"instance"))
    number = data.draw(st.sampled_from([one for one in NFS3 if one]))
    arguments = NFS3[number].arguments
    assert arguments is not None
    _, text = data.draw(values(arguments))
    text = text.replace(bytes.fromhex("00000010"), b"") if data.draw(st.booleans()) else text
    client.reply(rpc.call_head(1, NFS, 3, number) + text)
    client.reply(rpc.call_head(1, NFS, 3, number) + data.draw(st.binary(max_size=100)).ljust(100, b"\0"))
    client.export.answer(data.draw(st.binary(min_size=8, max_size=60)))
