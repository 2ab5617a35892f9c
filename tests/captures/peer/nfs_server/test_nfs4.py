"""NFSv4.1 on the export: sessions and their slots, COMPOUNDs, open files."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest
from hypothesis import given, strategies as st

from playbook.nfs_calls import FileClient, op
from playbook.xdr_encode import NUMBERS
from playbook.xdr_values import values
from rdmascope.captures.peer import rpc
from rdmascope.captures.peer.endpoint import DdpItem, service, whole
from rdmascope.captures.peer.nfs_server.export import Export
from rdmascope.captures.peer.nfs_server.file_system import NfsStatus
from rdmascope.captures.peer.nfs_server.nfs4 import ANONYMOUS, BYPASS, CURRENT
from rdmascope.captures.peer.rpc import encoded
from rdmascope.dissect.onc.rpc_header import NFS
from rdmascope.dissect.onc.shapes.attributes4 import NUMBERED
from rdmascope.dissect.onc.shapes.nfs4 import COMPOUND4ARGS, OPERATIONS

OK = NfsStatus.OK
BITS = {name: number for number, (name, _) in NUMBERED.items()}


@pytest.fixture
def client() -> FileClient:
    client = FileClient(Export(4 << 20, instance=b"instance"))
    client.begin()
    return client


def bits(*names: str) -> tuple[int, ...]:
    return tuple(sorted(BITS[name] for name in names))


def attributes(client: FileClient, handle: bytes, *names: str) -> dict[str, object]:
    found = client.v4(op("PUTFH", object=handle), op("GETATTR", attr_request=bits(*names)))
    return dict(found.last["obj_attributes"])


# Files


def test_a_file_copied_there_and_back(client: FileClient) -> None:
    opened = client.open(b"copy")
    stateid, file = opened.each[1]["stateid"], opened.last["object"]
    assert opened.each[1]["attrset"] == bits("mode")
    data = bytes(range(256)) * 1000
    for at in range(0, len(data), 100_000):
        piece = data[at : at + 100_000]
        write = op("WRITE", stateid={**stateid, "seqid": 0}, offset=at, stable=0, data=piece)
        written = client.v4(op("PUTFH", object=file), write).last
        assert written["count"] == len(piece)
    assert client.v4(op("PUTFH", object=file), op("COMMIT")).last["writeverf"] == written["writeverf"]
    assert client.v4(op("PUTFH", object=file), op("CLOSE", open_stateid=stateid)).status == OK
    opened = client.open(b"copy", create=False, access=1)
    assert opened.last["object"] == file
    read = client.v4(
        op("PUTROOTFH"), op("LOOKUP", objname=b"copy"), op("READ", stateid=ANONYMOUS, offset=1000, count=1 << 20)
    ).last
    assert (read["data"], read["eof"]) == (data[1000:], 1)
    assert attributes(client, file, "size", "owner", "type") == {"type": 1, "size": len(data), "owner": b"1000"}


def test_data_that_are_read_can_travel_in_chunks(client: FileClient) -> None:
    one = {"argop": NUMBERS["READ"], "stateid": BYPASS, "offset": 5, "count": 20}
    ops = [{"argop": NUMBERS[name], **args} for name, args in [client.sequence(), op("PUTFH", object=service.HANDLE)]]
    arguments = {"minorversion": 1, "argarray": [*ops, one, {**one, "offset": 7}]}
    parts = client.export.answer(rpc.call_head(7, NFS, 4, 1) + encoded(COMPOUND4ARGS, arguments))
    assert [part for part in parts if isinstance(part, DdpItem)] == [
        DdpItem(service.pattern(5, 20)),
        DdpItem(service.pattern(7, 20)),
    ]


def test_every_supported_attribute(client: FileClient) -> None:
    supported = attributes(client, client.root, "supported_attrs")["supported_attrs"]
    assert isinstance(supported, tuple)
    names = [NUMBERED[bit][0] for bit in supported if not NUMBERED[bit][0].endswith("_set")]
    found = attributes(client, client.root, *names)
    assert set(found) == set(names)
    assert found["fileid"] == found["mounted_on_fileid"] == 1
    every = client.v4(op("PUTROOTFH"), op("GETATTR", attr_request=tuple(range(80)))).status
    assert every == NfsStatus.INVAL  # time_access_set cannot be read
    readable = [bit for bit in range(80) if bit not in bits("time_access_set", "time_modify_set")]
    assert len(client.v4(op("PUTROOTFH"), op("GETATTR", attr_request=tuple(readable))).last["obj_attributes"]) == len(
        names
    )


def test_attributes_are_set(client: FileClient) -> None:
    opened = client.open(b"a")
    file, stateid = opened.last["object"], opened.each[1]["stateid"]
    given = {
        "size": 10,
        "mode": 0o600,
        "owner": b"5",
        "time_modify_set": {"set_it": 1, "time": {"seconds": 77, "nseconds": 8}},
    }
    done = client.v4(op("PUTFH", object=file), op("SETATTR", stateid=stateid, obj_attributes=given)).last
    assert done["attrsset"] == bits(*given)
    found = attributes(client, file, "size", "mode", "owner", "time_modify")
    assert found == {"size": 10, "mode": 0o600, "owner": b"5", "time_modify": {"seconds": 77, "nseconds": 8}}
    same = client.v4(op("PUTFH", object=file), op("VERIFY", obj_attributes={"size": 10}))
    other = client.v4(op("PUTFH", object=file), op("VERIFY", obj_attributes={"size": 11}))
    unchanged = client.v4(op("PUTFH", object=file), op("NVERIFY", obj_attributes={"size": 10}))
    assert (same.status, other.status, unchanged.status) == (OK, NfsStatus.NOT_SAME, NfsStatus.SAME)
    for wrong, status in [
        ({"type": 2}, NfsStatus.INVAL),
        ({"hidden": 1}, NfsStatus.ATTRNOTSUPP),
        ({"owner": b"root"}, NfsStatus.BADOWNER),
        ({"size": 1 << 40}, NfsStatus.NOSPC),
        ({"time_access_set": {"set_it": 1, "time": {"nseconds": 2_000_000_000}}}, NfsStatus.INVAL),
    ]:
        refused = client.v4(op("PUTFH", object=file), op("SETATTR", obj_attributes=wrong))
        assert refused.status == status, wrong


def test_names_move_and_go(client: FileClient) -> None:
    file = client.open(b"a").last["object"]
    made = client.v4(op("PUTROOTFH"), op("CREATE", objtype={"type": 2}, objname=b"dir"), op("GETFH"))
    directory, cinfo = made.last["object"], made.each[1]["cinfo"]
    assert cinfo["after"] == cinfo["before"] + 1
    to = op("PUTFH", object=directory)
    moved = client.v4(op("PUTROOTFH"), op("SAVEFH"), to, op("RENAME", oldname=b"a", newname=b"b"), op("GETFH"))
    assert moved.last["object"] == directory
    linked = client.v4(op("PUTFH", object=file), op("SAVEFH"), op("PUTROOTFH"), op("LINK", newname=b"c"))
    assert linked.status == OK
    assert attributes(client, file, "numlinks") == {"numlinks": 2}
    full = client.v4(op("PUTROOTFH"), op("REMOVE", target=b"dir"))
    assert full.status == NfsStatus.NOTEMPTY
    assert client.v4(to, op("REMOVE", target=b"b")).status == OK
    assert client.v4(op("PUTROOTFH"), op("REMOVE", target=b"dir")).status == OK
    assert client.v4(to).status == NfsStatus.STALE
    link = client.v4(
        op("PUTROOTFH"), op("CREATE", objtype={"type": 5, "linkdata": b"a/b"}, objname=b"l"), op("READLINK")
    )
    assert link.last["link"] == b"a/b"
    through = client.v4(op("PUTROOTFH"), op("LOOKUP", objname=b"l"), op("LOOKUP", objname=b"x"))
    assert through.status == NfsStatus.SYMLINK
    pipe = client.v4(op("PUTROOTFH"), op("CREATE", objtype={"type": 7}, objname=b"p"))
    assert pipe.status == NfsStatus.NOTSUPP
    assert client.v4(to, op("LOOKUPP")).status == NfsStatus.STALE
    assert client.v4(op("PUTROOTFH"), op("LOOKUPP")).status == NfsStatus.NOENT


@pytest.mark.parametrize("room", [400, 20_000])
def test_a_directory_is_listed_in_pieces(client: FileClient, room: int) -> None:
    names = [b"file-%03d" % number for number in range(60)]
    for one in names:
        client.v4(op("PUTROOTFH"), op("CREATE", objtype={"type": 2}, objname=one))
    listed, cookie, verifier, calls = [], 0, bytes(8), 0
    wanted = bits("type", "fileid", "mode", "size")
    while True:
        readdir = op("READDIR", cookie=cookie, cookieverf=verifier, maxcount=room, attr_request=wanted)
        found = client.v4(op("PUTROOTFH"), readdir).last
        listed += [one["name"] for one in found["entries"]]
        assert len(encoded(OPERATIONS[NUMBERS["READDIR"]].results, found)) - 4 <= room
        assert all(set(one["attrs"]) == {"type", "fileid", "mode", "size"} for one in found["entries"])
        calls += 1
        if found["eof"]:
            break
        cookie, verifier = found["entries"][-1]["cookie"], found["cookieverf"]
    assert listed == [b"pattern", *names]
    assert (calls == 1) == (room == 20_000)
    cases: list[tuple[dict[str, Any], NfsStatus]] = [
        ({"cookie": 1, "maxcount": 4096}, NfsStatus.BAD_COOKIE),
        ({"cookie": 9, "cookieverf": b"another!", "maxcount": 4096}, NfsStatus.NOT_SAME),
        ({"maxcount": 20}, NfsStatus.TOOSMALL),
    ]
    for wrong, status in cases:
        assert client.v4(op("PUTROOTFH"), op("READDIR", **wrong)).status == status


# Open files


def test_what_an_open_allows(client: FileClient) -> None:
    opened = client.open(b"a", access=1)
    stateid, put = opened.each[1]["stateid"], op("PUTFH", object=opened.last["object"])
    write, read = op("WRITE", stateid=stateid, data=b"x"), op("READ", stateid=stateid, count=5)
    assert client.v4(put, write).status == NfsStatus.OPENMODE
    assert client.v4(put, read).status == OK
    more = client.open(b"a", access=2).each[1]["stateid"]  # the same owner
    assert (more["other"], more["seqid"]) == (stateid["other"], 2)
    assert client.v4(put, read).status == NfsStatus.OLD_STATEID
    assert client.v4(put, op("WRITE", stateid=more, data=b"x")).status == OK
    less = client.v4(put, op("OPEN_DOWNGRADE", open_stateid=more, share_access=1)).last["open_stateid"]
    assert client.v4(put, op("WRITE", stateid=less, data=b"x")).status == NfsStatus.OPENMODE
    tested = client.v4(op("TEST_STATEID", ts_stateids=[less, more, {"other": bytes(12)}])).last["tsr_status_codes"]
    assert tested == [OK, NfsStatus.OLD_STATEID, NfsStatus.BAD_STATEID]
    assert client.v4(op("FREE_STATEID", fsa_stateid=less)).status == NfsStatus.LOCKS_HELD
    assert client.v4(put, op("CLOSE", open_stateid=less)).last["open_stateid"]["seqid"] == 0xFFFFFFFF
    assert client.v4(put, op("CLOSE", open_stateid=less)).status == NfsStatus.BAD_STATEID


def test_the_stateid_of_the_open_before(client: FileClient) -> None:
    done = client.v4(
        op("PUTROOTFH"),
        op("OPEN", share_access=3, openhow={"opentype": 1, "how": {"mode": 1}}, claim={"claim": 0, "file": b"a"}),
        op("WRITE", stateid=CURRENT, data=b"hello"),
        op("READ", stateid=CURRENT, count=9),
        op("CLOSE", open_stateid=CURRENT),
    )
    assert done.each[3]["data"] == b"hello"
    assert done.status == OK


def test_creations(client: FileClient) -> None:
    first = client.open(b"a", mode=3, cva_verf=b"verifier", cva_attrs={"mode": 0o600})
    again = client.open(b"a", mode=3, cva_verf=b"verifier", cva_attrs={"mode": 0o600})
    assert first.last["object"] == again.last["object"]
    assert client.open(b"a", mode=3, cva_verf=b"another!").status == NfsStatus.EXIST
    assert client.open(b"a", mode=1).status == NfsStatus.EXIST
    client.v4(op("PUTFH", object=first.last["object"]), op("WRITE", data=b"contents"))
    truncated = client.open(b"a", createattrs={"size": 0})
    assert attributes(client, truncated.last["object"], "size") == {"size": 0}
    assert client.open(b"none", create=False).status == NfsStatus.NOENT
    assert client.open(b"..").status == NfsStatus.BADNAME
    client.v4(op("PUTROOTFH"), op("CREATE", objtype={"type": 2}, objname=b"dir"))
    assert client.open(b"dir", create=False).status == NfsStatus.ISDIR
    by_handle = op("OPEN", share_access=1, claim={"claim": 4})
    assert client.v4(op("PUTFH", object=first.last["object"]), by_handle).status == OK
    reclaim = op("OPEN", share_access=1, claim={"claim": 1})
    assert client.v4(op("PUTFH", object=first.last["object"]), reclaim).status == NfsStatus.NO_GRACE


def test_what_others_deny(client: FileClient) -> None:
    opened = client.v4(op("PUTFH", object=service.HANDLE), op("OPEN", share_access=1, share_deny=2, claim={"claim": 4}))
    assert opened.status == OK
    assert client.open(b"pattern", create=False, access=2).status == NfsStatus.SHARE_DENIED
    assert client.open(b"pattern", create=False, access=1).status == OK


# Sessions


def test_a_call_that_comes_again_gets_the_reply_it_had(client: FileClient) -> None:
    remove = [op("PUTROOTFH"), op("REMOVE", target=b"pattern")]
    first = client.compound(client.sequence(), *remove)
    second = client.compound(client.sequence(again=True), *remove)
    assert first == second
    assert first.status == OK
    other = client.compound(client.sequence(again=True), op("PUTROOTFH"))
    assert other.status == NfsStatus.SEQ_FALSE_RETRY
    assert client.v4(*remove).status == NfsStatus.NOENT


def test_a_long_reply_is_not_kept(client: FileClient) -> None:
    read = [op("PUTFH", object=service.HANDLE), op("READ", stateid=BYPASS, count=5000)]
    assert client.compound(client.sequence(), *read).status == OK
    assert client.compound(client.sequence(again=True), *read).status == NfsStatus.RETRY_UNCACHED_REP
    assert client.compound(client.sequence(cached=1), *read).status == NfsStatus.REP_TOO_BIG_TO_CACHE


def test_limits_of_a_session() -> None:
    client = FileClient(Export(4 << 20))
    client.begin(ca_maxrequestsize=600, ca_maxresponsesize=600, ca_maxoperations=3)
    read = [op("PUTFH", object=service.HANDLE), op("READ", stateid=BYPASS, count=700)]
    assert client.v4(*read).status == NfsStatus.REP_TOO_BIG
    write = [op("PUTFH", object=service.HANDLE), op("WRITE", data=bytes(700))]
    assert client.compound(client.sequence(), *write).status == NfsStatus.REQ_TOO_BIG
    client.sequences[0] -= 1
    assert client.compound(client.sequence(), *[op("PUTROOTFH")] * 3).status == NfsStatus.TOO_MANY_OPS
    tiny = client.compound(
        op("CREATE_SESSION", csa_clientid=client.client, csa_sequence=2, csa_fore_chan_attrs={"ca_maxoperations": 1})
    )
    assert tiny.status == NfsStatus.TOOSMALL


def test_slots(client: FileClient) -> None:
    assert client.compound(client.sequence(slot=3)).status == OK
    assert client.compound(client.sequence(slot=4)).status == NfsStatus.BADSLOT
    client.sequences[1] = 5
    assert client.compound(client.sequence(slot=1)).status == NfsStatus.SEQ_MISORDERED
    client.session = bytes(16)
    assert client.compound(client.sequence()).status == NfsStatus.BADSESSION


def test_where_operations_may_stand(client: FileClient) -> None:
    assert client.compound(op("PUTROOTFH")).status == NfsStatus.OP_NOT_IN_SESSION
    assert client.v4(client.sequence(slot=1)).status == NfsStatus.SEQUENCE_POS
    two = [op("DESTROY_CLIENTID", dca_clientid=1), op("PUTROOTFH")]
    assert client.compound(*two).status == NfsStatus.NOT_ONLY_OP
    assert client.v4(op("GETFH")).status == NfsStatus.NOFILEHANDLE
    assert client.v4(op("RESTOREFH")).status == NfsStatus.RESTOREFH
    assert client.v4(op("LAYOUTGET")).status == NfsStatus.NOTSUPP
    assert client.compound(op("PUTROOTFH"), minor=2).status == NfsStatus.MINOR_VERS_MISMATCH
    assert client.compound(op("PUTROOTFH"), op("GETFH"), minor=0, tag=b"zero").last["object"] == client.root
    assert client.compound(op("SETCLIENTID"), minor=0).status == NfsStatus.NOTSUPP
    assert client.compound(*[op("PUTROOTFH")] * 65, minor=0).status == NfsStatus.TOO_MANY_OPS
    flavors = client.v4(op("PUTROOTFH"), op("SECINFO_NO_NAME"))
    assert [one["flavor"] for one in flavors.last["resok4"]] == [1, 0]
    assert client.v4(op("PUTROOTFH"), op("SECINFO_NO_NAME"), op("GETFH")).status == NfsStatus.NOFILEHANDLE
    assert client.compound().status == OK


def test_a_client_restarts(client: FileClient) -> None:
    client.open(b"a")
    old = client.session
    assert client.v4(op("RECLAIM_COMPLETE")).status == OK
    assert client.v4(op("RECLAIM_COMPLETE")).status == NfsStatus.COMPLETE_ALREADY
    busy = client.compound(op("DESTROY_CLIENTID", dca_clientid=client.client))
    assert busy.status == NfsStatus.CLIENTID_BUSY
    client.begin(verifier=b"reboot 2")
    assert old != client.session
    new, client.session = client.session, old
    client.sequences[0] = 5
    assert client.compound(client.sequence()).status == NfsStatus.BADSESSION
    client.session, client.sequences = new, {}
    assert client.v4(op("RECLAIM_COMPLETE")).status == OK
    assert client.compound(op("DESTROY_SESSION", dsa_sessionid=new)).status == OK
    assert client.compound(op("DESTROY_CLIENTID", dca_clientid=client.client)).status == OK
    gone = client.compound(op("DESTROY_CLIENTID", dca_clientid=client.client))
    assert gone.status == NfsStatus.STALE_CLIENTID


def test_exchange_id_of_a_client_that_is_known(client: FileClient) -> None:
    who = {"co_verifier": b"verifier", "co_ownerid": b"client.example"}
    known = client.compound(op("EXCHANGE_ID", eia_clientowner=who)).last
    assert (known["eir_clientid"], known["eir_flags"] >> 31) == (client.client, 1)
    updated = client.compound(op("EXCHANGE_ID", eia_clientowner=who, eia_flags=0x40000000)).last
    assert updated["eir_clientid"] == client.client
    other = {"co_verifier": b"another!", "co_ownerid": b"client.example"}
    refused = client.compound(op("EXCHANGE_ID", eia_clientowner=other, eia_flags=0x40000000))
    assert refused.status == NfsStatus.NOT_SAME
    unknown = {"co_verifier": b"another!", "co_ownerid": b"x"}
    refused = client.compound(op("EXCHANGE_ID", eia_clientowner=unknown, eia_flags=0x40000000))
    assert refused.status == NfsStatus.NOENT
    odd = client.compound(op("EXCHANGE_ID", eia_clientowner=who, eia_flags=0x80000000))
    assert odd.status == NfsStatus.INVAL


def test_clients_beyond_the_maximum_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rdmascope.captures.peer.nfs_server.nfs4.MAX_CLIENTS", 2)
    export = Export(4 << 20)
    every = [FileClient(export) for _ in range(3)]
    every[0].begin(b"one")
    every[1].begin(b"two")
    assert every[0].v4(op("PUTROOTFH")).status == OK  # so the other has been silent for longer
    every[2].begin(b"three")
    assert every[0].v4(op("PUTROOTFH")).status == OK
    assert every[1].compound(every[1].sequence()).status == NfsStatus.BADSESSION


def test_create_session_again(client: FileClient) -> None:
    channel = {"ca_maxrequestsize": 4096, "ca_maxresponsesize": 4096, "ca_maxoperations": 8, "ca_maxrequests": 1}
    create = op(
        "CREATE_SESSION",
        csa_clientid=client.client,
        csa_sequence=2,
        csa_fore_chan_attrs=channel,
        csa_back_chan_attrs=channel,
    )
    first, second = client.compound(create), client.compound(create)
    assert first == second
    assert first.last["csr_sessionid"] != client.session
    create[1]["csa_sequence"] = 9
    assert client.compound(create).status == NfsStatus.SEQ_MISORDERED
    bound = client.compound(op("BIND_CONN_TO_SESSION", bctsa_sessid=client.session, bctsa_dir=3))
    assert bound.last["bctsr_dir"] == 1


def test_the_replies_kept_for_a_client_are_bounded(client: FileClient) -> None:
    channel = {"ca_maxrequestsize": 1 << 20, "ca_maxresponsesize": 1 << 20, "ca_maxoperations": 99}
    channel |= {"ca_maxresponsesize_cached": 1 << 20, "ca_maxrequests": 1 << 20}
    kept, created = 0, client.compound(op("DESTROY_SESSION", dsa_sessionid=client.session))
    for number in range(2, 99):
        asked = {"csa_fore_chan_attrs": channel, "csa_back_chan_attrs": channel}
        created = client.compound(op("CREATE_SESSION", csa_clientid=client.client, csa_sequence=number, **asked))
        if created.status != OK:
            break
        agreed = created.last["csr_fore_chan_attrs"]
        kept += agreed["ca_maxrequests"] * agreed["ca_maxresponsesize_cached"]
    assert (created.status, kept) == (NfsStatus.DELAY, 1 << 20)


# What is no COMPOUND


def call(arguments: bytes) -> bytes:
    return rpc.call_head(1, NFS, 4, 1) + arguments


def test_arguments_that_end_too_early(client: FileClient) -> None:
    assert client.reply(call(b""))[0] == "GARBAGE_ARGS"
    assert client.reply(call(pack(">III", 0, 1, 1)))[0] == "GARBAGE_ARGS"
    error, data = client.reply(call(pack(">IIIII", 0, 0, 2, 24, 9)))  # GETATTR without its bitmap
    found = client.results(data)
    assert (error, found.status, [one["resop"] for one in found.each]) == ("", NfsStatus.BADXDR, [24, 9])
    _, data = client.reply(call(pack(">IIIII", 0, 0, 2, 24, 9999)))
    found = client.results(data)
    assert (found.status, found.each[-1]["resop"]) == (NfsStatus.OP_ILLEGAL, 10044)
    _, data = client.reply(call(pack(">IIII", 0, 1, 1, 63)))  # an operation of version 4.2
    assert client.results(data).status == NfsStatus.OP_ILLEGAL


@given(st.data())
def test_whatever_comes_is_answered(data: st.DataObject) -> None:
    client = FileClient(Export(1 << 16, instance=b"instance"))
    client.begin()
    numbers = data.draw(st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=1, max_size=4))
    text = bytearray()
    for number in numbers:
        shape = OPERATIONS[number].arguments
        text += pack(">I", number) + (data.draw(values(shape))[1] if shape is not None else b"")
    if data.draw(st.booleans()):
        del text[data.draw(st.integers(0, len(text))) :]
    ahead = [client.sequence(), op("PUTROOTFH")] if data.draw(st.booleans()) else []
    start = b"".join(
        pack(">I", NUMBERS[name]) + (encoded(shape, args) if (shape := OPERATIONS[NUMBERS[name]].arguments) else b"")
        for name, args in ahead
    )
    head = pack(">III", 0, 1, len(ahead) + len(numbers))
    reply = whole(client.export.answer(call(head + start + bytes(text))))
    assert len(reply) >= 24
    if ahead:
        assert client.v4(op("PUTROOTFH")).status in (OK, *NfsStatus)
