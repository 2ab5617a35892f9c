"""The operations of NFSv4.1 on the files in memory (RFC 8881, 18), and those of 4.0 that need no state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rdmascope.dissect.layers.oncrpc_codes import AUTH_NONE, AUTH_SYS
from rdmascope.dissect.onc.shapes.attributes4 import FATTR4
from rdmascope.dissect.onc.shapes.rfc7530 import ENTRY4

from ..synth.endpoint import DdpItem
from ..synth.xdr_values import encoded
from .attributes4 import AT_CREATION, LARGEST, numbers, requested, wanted
from .clients4 import FORE, FORE_OR_BOTH, ClientRegistry, ServedSession
from .file_system import (
    FIRST_COOKIE,
    FileAttributes,
    FileSystem,
    FileType,
    Inode,
    check_name,
    meaningful_access,
    need_directory,
    need_file,
)
from .opens4 import ANONYMOUS, BOTH, BYPASS, CURRENT, INVALID, READ, WRITE, OpenFile, OpenTable
from .rpc_programs import Caller
from .status import NfsError, NfsStatus

Values = dict[str, Any]
FILE_SYNC4 = 2
NOCREATE, CREATE = 0, 1
UNCHECKED4, GUARDED4, EXCLUSIVE4, EXCLUSIVE4_1 = range(4)
CLAIM_NULL, CLAIM_PREVIOUS, CLAIM_FH = 0, 1, 4
ACCESS_MASK = 3
STYLE_PARENT = 1


@dataclass(slots=True, eq=False)
class Nfs4State:
    """What lasts longer than a COMPOUND."""

    files: FileSystem
    opens: OpenTable
    clients: ClientRegistry


@dataclass(slots=True)
class CompoundState:
    """What the operations of a COMPOUND hand on (16.2.3)."""

    server: Nfs4State
    caller: Caller
    session: ServedSession | None = None
    current: bytes | None = None
    """The current filehandle."""
    saved: bytes | None = None
    stateid: Values = field(default_factory=lambda: INVALID)
    """The current stateid."""
    saved_stateid: Values = field(default_factory=lambda: INVALID)

    @property
    def inode(self) -> Inode:
        """Of the current filehandle."""
        if self.current is None:
            raise NfsError(NfsStatus.NOFILEHANDLE)
        return self.server.files.find(self.current)

    @property
    def directory(self) -> Inode:
        inode = self.inode
        need_directory(inode)
        return inode

    @property
    def saved_inode(self) -> Inode:
        if self.saved is None:
            raise NfsError(NfsStatus.NOFILEHANDLE)
        return self.server.files.find(self.saved)

    def become(self, inode: Inode) -> None:
        self.current, self.stateid = self.server.files.handle(inode), INVALID

    @property
    def client(self) -> int:
        if self.session is None:
            raise NfsError(NfsStatus.OP_NOT_IN_SESSION)
        return self.session.client.number

    def opened(self, stateid: Values, file: Inode | None = None) -> OpenFile:
        """The open that a stateid stands for."""
        named = self.stateid if stateid == CURRENT else stateid
        return self.server.opens.find(self.client, named, file.number if file is not None else None)

    def may(self, stateid: Values, file: Inode, access: int) -> None:
        """The stateid allows to read or to write (8.2.5)."""
        if stateid == ANONYMOUS or (stateid == BYPASS and access == READ):
            return
        if not self.opened(stateid, file).access & access:
            raise NfsError(NfsStatus.OPENMODE)


Operate = Callable[[CompoundState, Values], Values | None]


def _cinfo(directory: Inode, before: int) -> Values:
    return {"atomic": 1, "before": before, "after": directory.change}


# Filehandles


def _putfh(on: CompoundState, args: Values) -> None:
    on.become(on.server.files.find(args["object"]))


def _putrootfh(on: CompoundState, args: Values) -> None:
    on.become(on.server.files.root)


def _getfh(on: CompoundState, args: Values) -> Values:
    return {"object": on.server.files.handle(on.inode)}


def _savefh(on: CompoundState, args: Values) -> None:
    on.saved, on.saved_stateid = on.server.files.handle(on.inode), on.stateid


def _restorefh(on: CompoundState, args: Values) -> None:
    if on.saved is None:
        raise NfsError(NfsStatus.RESTOREFH)
    on.current, on.stateid = on.saved, on.saved_stateid


def _lookup(on: CompoundState, args: Values) -> None:
    inode = on.inode
    if inode.kind is FileType.LINK:
        raise NfsError(NfsStatus.SYMLINK)
    need_directory(inode)
    check_name(args["objname"])
    on.become(on.server.files.lookup(inode, args["objname"]))


def _lookupp(on: CompoundState, args: Values) -> None:
    directory = on.directory
    if directory.parent is None or directory.parent is directory:
        raise NfsError(NfsStatus.NOENT)
    on.become(directory.parent)


# Attributes


def _getattr(on: CompoundState, args: Values) -> Values:
    return {"obj_attributes": requested(on.server.files, on.inode, args["attr_request"])}


def _setattr(on: CompoundState, args: Values) -> Values:
    inode, given = on.inode, args["obj_attributes"]
    attributes = wanted(given, on.server.files.now())
    if attributes.size is not None:
        need_file(inode)
        on.may(args["stateid"], inode, WRITE)
    on.server.files.set(inode, attributes)
    return {"attrsset": numbers(given)}


def _same(on: CompoundState, given: Values) -> bool:
    present = requested(on.server.files, on.inode, numbers(given))
    if set(present) != set(given):
        raise NfsError(NfsStatus.ATTRNOTSUPP)
    return encoded(FATTR4, present) == encoded(FATTR4, given)


def _verify(on: CompoundState, args: Values) -> None:
    if not _same(on, args["obj_attributes"]):
        raise NfsError(NfsStatus.NOT_SAME)


def _nverify(on: CompoundState, args: Values) -> None:
    if _same(on, args["obj_attributes"]):
        raise NfsError(NfsStatus.SAME)


def _access(on: CompoundState, args: Values) -> Values:
    return {"supported": args["access"] & 0x3F, "access": args["access"] & meaningful_access(on.inode)}


# Names


def _owned(given: Values, on: CompoundState) -> FileAttributes:
    attributes = wanted(given, on.server.files.now())
    attributes.uid = on.caller.uid if attributes.uid is None else attributes.uid
    attributes.gid = on.caller.gid if attributes.gid is None else attributes.gid
    return attributes


def _create(on: CompoundState, args: Values) -> Values:
    directory, kind = on.directory, args["objtype"]["type"]
    if kind not in (FileType.DIRECTORY, FileType.LINK):
        raise NfsError(NfsStatus.BADTYPE if kind in (0, 1) or kind > 7 else NfsStatus.NOTSUPP)
    before = directory.change
    target = args["objtype"].get("linkdata", b"")
    attributes = _owned(args["createattrs"], on)
    made = on.server.files.make(directory, args["objname"], FileType(kind), attributes, target)
    result = {"cinfo": _cinfo(directory, before), "attrset": numbers(args["createattrs"])}
    on.become(made)
    return result


def _remove(on: CompoundState, args: Values) -> Values:
    directory, name, files = on.directory, args["target"], on.server.files
    before = directory.change
    check_name(name)
    inode = files.lookup(directory, name)
    (files.remove_directory if inode.kind is FileType.DIRECTORY else files.remove)(directory, name)
    return {"cinfo": _cinfo(directory, before)}


def _rename(on: CompoundState, args: Values) -> Values:
    source, target = on.saved_inode, on.directory
    before = source.change, target.change
    need_directory(source)
    on.server.files.rename(source, args["oldname"], target, args["newname"])
    return {"source_cinfo": _cinfo(source, before[0]), "target_cinfo": _cinfo(target, before[1])}


def _link(on: CompoundState, args: Values) -> Values:
    inode, directory = on.saved_inode, on.directory
    before = directory.change
    on.server.files.link(inode, directory, args["newname"])
    return {"cinfo": _cinfo(directory, before)}


def _readlink(on: CompoundState, args: Values) -> Values:
    inode = on.inode
    if inode.kind is not FileType.LINK:
        raise NfsError(NfsStatus.WRONG_TYPE)
    return {"link": DdpItem(on.server.files.read_link(inode))}


def _readdir(on: CompoundState, args: Values) -> Values:
    directory, files, cookie = on.directory, on.server.files, args["cookie"]
    if 0 < cookie < FIRST_COOKIE:
        raise NfsError(NfsStatus.BAD_COOKIE)
    if cookie and args["cookieverf"] != files.instance:
        raise NfsError(NfsStatus.NOT_SAME)
    left = min(args["maxcount"], LARGEST) - 8 - 4 - 4
    entries: list[Values] = []
    whole = True
    for name, entry in files.listing(directory, cookie):
        attributes = requested(files, entry.inode, args["attr_request"])
        one = {"cookie": entry.cookie, "name": name, "attrs": attributes}
        left -= 4 + len(encoded(ENTRY4, one))
        if left < 0:
            whole = False
            break
        entries.append(one)
    if left < 0 and not entries:
        raise NfsError(NfsStatus.TOOSMALL)
    return {"cookieverf": files.instance, "entries": entries, "eof": whole}


def _secinfo(on: CompoundState, args: Values) -> Values:
    check_name(args["name"])
    on.server.files.lookup(on.directory, args["name"])
    return _flavors(on)


def _secinfo_no_name(on: CompoundState, args: Values) -> Values:
    if args["style"] == STYLE_PARENT:
        _lookupp(on, {})
    else:
        on.become(on.inode)
    return _flavors(on)


def _flavors(on: CompoundState) -> Values:
    on.current = None  # it is consumed (2.6.3.1.1.8)
    return {"resok4": [{"flavor": AUTH_SYS}, {"flavor": AUTH_NONE}]}


# Open files


def _open(on: CompoundState, args: Values) -> Values:
    claim, how, files = args["claim"], args["openhow"], on.server.files
    access, deny = args["share_access"] & ACCESS_MASK, args["share_deny"]
    if not access or deny & ~BOTH:
        raise NfsError(NfsStatus.INVAL)
    if claim["claim"] == CLAIM_PREVIOUS:
        raise NfsError(NfsStatus.NO_GRACE)
    if claim["claim"] not in (CLAIM_NULL, CLAIM_FH):
        raise NfsError(NfsStatus.BAD_STATEID)  # nothing was delegated
    set_here: tuple[int, ...] = ()
    created = how.get("how", {})
    if claim["claim"] == CLAIM_FH:
        directory = inode = on.inode
        before = directory.change
    else:
        directory, before = on.directory, on.directory.change
        check_name(claim["file"])
        entry = directory.entries.get(claim["file"])
        if entry is not None:
            inode = entry.inode
            _opened_existing(on, inode, created)
        elif how["opentype"] == NOCREATE:
            raise NfsError(NfsStatus.NOENT)
        else:
            inode, set_here = _made(on, directory, claim["file"], created)
    if inode.kind is not FileType.REGULAR:
        raise NfsError(NfsStatus.ISDIR if inode.kind is FileType.DIRECTORY else NfsStatus.SYMLINK)
    opened = on.server.opens.open(on.client, args["owner"]["owner"], inode.number, access, deny)
    size = created.get("createattrs", {}).get("size") if not set_here else None
    if size is not None and created["mode"] == UNCHECKED4:
        files.set(inode, FileAttributes(size=size))
        set_here = numbers(["size"])
    on.become(inode)
    on.stateid = opened.stateid
    return {"stateid": opened.stateid, "cinfo": _cinfo(directory, before), "attrset": set_here}


def _opened_existing(on: CompoundState, inode: Inode, how: Values) -> None:
    """A creation of what is there already (18.16.3)."""
    verifier = how.get("cva_verf") or how.get("createverf")
    if verifier and inode.verifier == verifier:
        return
    if how and how["mode"] != UNCHECKED4:
        raise NfsError(NfsStatus.EXIST)


def _made(on: CompoundState, directory: Inode, name: bytes, how: Values) -> tuple[Inode, tuple[int, ...]]:
    given: Values = how.get("createattrs") or how.get("cva_attrs") or {}
    if how["mode"] == EXCLUSIVE4_1 and set(numbers(given)) - set(AT_CREATION):
        raise NfsError(NfsStatus.INVAL)
    attributes = _owned(given, on)
    inode = on.server.files.make(directory, name, FileType.REGULAR, attributes)
    inode.verifier = how.get("cva_verf") or how.get("createverf") or b""
    if attributes.size:
        on.server.files.set(inode, FileAttributes(size=attributes.size))
    return inode, numbers(given)


def _close(on: CompoundState, args: Values) -> Values:
    on.server.opens.close(on.opened(args["open_stateid"], on.inode))
    on.stateid = INVALID
    return {"open_stateid": INVALID}


def _open_downgrade(on: CompoundState, args: Values) -> Values:
    opened = on.opened(args["open_stateid"], on.inode)
    on.server.opens.downgrade(opened, args["share_access"] & ACCESS_MASK, args["share_deny"])
    on.stateid = opened.stateid
    return {"open_stateid": opened.stateid}


def _read(on: CompoundState, args: Values) -> Values:
    inode = on.inode
    need_file(inode)
    on.may(args["stateid"], inode, READ)
    data, ended = on.server.files.read(inode, args["offset"], min(args["count"], LARGEST))
    return {"eof": ended, "data": DdpItem(data)}


def _write(on: CompoundState, args: Values) -> Values:
    inode = on.inode
    need_file(inode)
    on.may(args["stateid"], inode, WRITE)
    on.server.files.write(inode, args["offset"], args["data"])
    return {"count": len(args["data"]), "committed": FILE_SYNC4, "writeverf": on.server.files.instance}


def _commit(on: CompoundState, args: Values) -> Values:
    need_file(on.inode)
    return {"writeverf": on.server.files.instance}


def _test_stateid(on: CompoundState, args: Values) -> Values:
    def status(stateid: Values) -> int:
        try:
            on.opened(stateid)
        except NfsError as error:
            return error.status
        return 0

    return {"tsr_status_codes": [status(one) for one in args["ts_stateids"]]}


def _free_stateid(on: CompoundState, args: Values) -> None:
    on.opened(args["fsa_stateid"])
    raise NfsError(NfsStatus.LOCKS_HELD)  # only CLOSE ends an open


def _delegreturn(on: CompoundState, args: Values) -> None:
    raise NfsError(NfsStatus.BAD_STATEID)  # nothing was delegated


# Clients and sessions


def _exchange_id(on: CompoundState, args: Values) -> Values:
    return on.server.clients.exchange_id(args)


def _create_session(on: CompoundState, args: Values) -> Values:
    return on.server.clients.create_session(args)


def _destroy_session(on: CompoundState, args: Values) -> None:
    on.server.clients.destroy_session(args["dsa_sessionid"])


def _destroy_clientid(on: CompoundState, args: Values) -> None:
    on.server.clients.destroy_client(args["dca_clientid"])


def _bind_conn_to_session(on: CompoundState, args: Values) -> Values:
    session = on.server.clients.session(args["bctsa_sessid"])
    if args["bctsa_dir"] not in (FORE, FORE_OR_BOTH):
        raise NfsError(NfsStatus.INVAL)  # there is no way back
    return {"bctsr_sessid": session.identifier, "bctsr_dir": FORE}


def _reclaim_complete(on: CompoundState, args: Values) -> None:
    if on.session is None:
        raise NfsError(NfsStatus.OP_NOT_IN_SESSION)
    if on.session.client.reclaimed and not args["rca_one_fs"]:
        raise NfsError(NfsStatus.COMPLETE_ALREADY)
    on.session.client.reclaimed = True


STATELESS: dict[str, Operate] = {
    "PUTFH": _putfh,
    "PUTPUBFH": _putrootfh,
    "PUTROOTFH": _putrootfh,
    "GETFH": _getfh,
    "SAVEFH": _savefh,
    "RESTOREFH": _restorefh,
    "LOOKUP": _lookup,
    "LOOKUPP": _lookupp,
    "GETATTR": _getattr,
    "SETATTR": _setattr,
    "VERIFY": _verify,
    "NVERIFY": _nverify,
    "ACCESS": _access,
    "CREATE": _create,
    "REMOVE": _remove,
    "RENAME": _rename,
    "LINK": _link,
    "READLINK": _readlink,
    "READDIR": _readdir,
    "SECINFO": _secinfo,
    "READ": _read,
    "WRITE": _write,
    "COMMIT": _commit,
}
"""In version 4.0, too."""
STATEFUL: dict[str, Operate] = {
    "SECINFO_NO_NAME": _secinfo_no_name,
    "OPEN": _open,
    "CLOSE": _close,
    "OPEN_DOWNGRADE": _open_downgrade,
    "TEST_STATEID": _test_stateid,
    "FREE_STATEID": _free_stateid,
    "DELEGRETURN": _delegreturn,
    "RECLAIM_COMPLETE": _reclaim_complete,
}
"""In a session."""
ALONE: dict[str, Operate] = {
    "EXCHANGE_ID": _exchange_id,
    "CREATE_SESSION": _create_session,
    "DESTROY_SESSION": _destroy_session,
    "DESTROY_CLIENTID": _destroy_clientid,
    "BIND_CONN_TO_SESSION": _bind_conn_to_session,
}
"""Without SEQUENCE they are a COMPOUND's only operation (RFC 8881, 2.10.2.1)."""
