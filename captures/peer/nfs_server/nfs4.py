"""NFS version 4 on the files in memory: COMPOUND and its operations (RFC 8881, 16.2 and 18), in 4.0 those without
state; and the state of a 4.1 server: clients, their sessions, their open files and stateids (2.10, 8 and 18).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from rdmascope.dissect.layers.oncrpc_codes import AUTH_NONE, AUTH_SYS
from rdmascope.dissect.onc.shapes.attributes4 import FATTR4, NUMBERED
from rdmascope.dissect.onc.shapes.nfs4 import COMPOUND4ARGS, OPERATIONS, TYPES
from rdmascope.dissect.onc.shapes.rfc7530 import TYPES as TYPES4
from rdmascope.dissect.onc.shapes.types import Node, SparseBytes, XdrAttributes, decode

from ..endpoint import DdpItem, Parts, service, whole
from ..rpc import Caller, NoValue, RpcProgram, encoded, encoded_parts, plain
from .file_system import (
    FIRST_COOKIE,
    MAX_FILE,
    MAX_LINKS,
    MAX_NAME,
    SECOND,
    FileAttributes,
    FileSystem,
    FileType,
    Inode,
    NfsError,
    NfsStatus,
    check_name,
    file_time,
    meaningful_access,
    need_directory,
    need_file,
    present,
    refuse,
)

READ, WRITE, BOTH = 1, 2, 3
"""OPEN4_SHARE_ACCESS and OPEN4_SHARE_DENY."""
MAX_OPENS = 10_000
ANONYMOUS = {"seqid": 0, "other": bytes(12)}
BYPASS = {"seqid": 0xFFFFFFFF, "other": b"\xff" * 12}
CURRENT = {"seqid": 1, "other": bytes(12)}
INVALID = {"seqid": 0xFFFFFFFF, "other": bytes(12)}
"""Special stateids (8.2.3)."""


@dataclass(slots=True, eq=False)
class OpenFile:
    client: int
    owner: bytes
    file: int
    """Number of the inode."""
    other: bytes
    access: int
    deny: int
    seqid: int = 1

    @property
    def stateid(self) -> dict[str, Any]:
        return {"seqid": self.seqid, "other": self.other}


class OpenTable:
    def __init__(self, instance: bytes) -> None:
        self._instance = instance
        self._opens: dict[bytes, OpenFile] = {}
        self._numbers = count(1)

    def open(self, client: int, owner: bytes, file: int, access: int, deny: int) -> OpenFile:
        """A new open, or more of the same owner's."""
        own = None
        for open_file in self._opens.values():
            if open_file.file != file:
                continue
            if (open_file.client, open_file.owner) == (client, owner):
                own = open_file
            elif access & open_file.deny or deny & open_file.access:
                raise NfsError(NfsStatus.SHARE_DENIED)
        if own is None:
            refuse(len(self._opens) >= MAX_OPENS, NfsStatus.DELAY)
            other = self._instance[:4] + next(self._numbers).to_bytes(8, "big")
            own = self._opens[other] = OpenFile(client, owner, file, other, access, deny)
            return own
        own.access |= access
        own.deny |= deny
        _advance(own)
        return own

    def find(self, client: int, stateid: dict[str, Any], file: int | None = None) -> OpenFile:
        """The open that a stateid names; a seqid of 0 means the latest."""
        opened = present(self._opens.get(stateid["other"]), NfsStatus.BAD_STATEID)
        refuse(opened.client != client or file not in (None, opened.file), NfsStatus.BAD_STATEID)
        refuse(0 < stateid["seqid"] < opened.seqid, NfsStatus.OLD_STATEID)
        refuse(stateid["seqid"] > opened.seqid, NfsStatus.BAD_STATEID)
        return opened

    def downgrade(self, opened: OpenFile, access: int, deny: int) -> None:
        refuse(not access or access & ~opened.access or deny & ~opened.deny, NfsStatus.INVAL)
        opened.access, opened.deny = access, deny
        _advance(opened)

    def close(self, opened: OpenFile) -> None:
        del self._opens[opened.other]

    def drop_client(self, client: int) -> None:
        for open_file in [open_file for open_file in self._opens.values() if open_file.client == client]:
            del self._opens[open_file.other]

    def of_client(self, client: int) -> bool:
        return any(open_file.client == client for open_file in self._opens.values())


def _advance(opened: OpenFile) -> None:
    opened.seqid = opened.seqid % 0xFFFFFFFF + 1


MAX_CLIENTS = 64
"""Clients kept; beyond that the one that was silent for longest is forgotten."""
MAX_SESSIONS = 4
"""Sessions of a client; its slots keep at most 1 MiB of replies."""
MAX_SLOTS = 32
MAX_OPERATIONS = 64
"""Operations of a COMPOUND."""
MAX_REQUEST = MAX_RESPONSE = (1 << 20) + 4096
MAX_CACHED = 8192
"""Bytes of the longest reply kept in case the request is repeated."""
SMALLEST = 512
"""Bytes of the smallest request and response with which a session works."""
USE_NON_PNFS, UPDATE_CONFIRMED, CONFIRMED = 0x10000, 0x40000000, 0x80000000
KNOWN_FLAGS = 0x7 | 0x100 | 0x70000 | UPDATE_CONFIRMED
FORE, FORE_OR_BOTH = 1, 3
SP4_NONE = 0


@dataclass(slots=True)
class SessionSlot:
    sequence: int = 0
    request: int = 0
    """Checksum of the slot's last COMPOUND."""
    reply: Parts | None = None
    """None: the reply was not kept."""


@dataclass(slots=True, eq=False)
class ServedSession:
    identifier: bytes
    client: ClientRecord
    slots: list[SessionSlot]
    max_request: int
    max_response: int
    max_cached: int
    max_operations: int


@dataclass(slots=True, eq=False)
class ClientRecord:
    """A client record made by EXCHANGE_ID (RFC 8881, 18.35.4)."""

    number: int
    owner: bytes
    verifier: bytes
    confirmed: bool = False
    next_sequence: int = 1
    """The sequence of its next CREATE_SESSION."""
    created: dict[str, Any] | None = None
    """What the last CREATE_SESSION returned."""
    sessions: dict[bytes, ServedSession] = field(default_factory=dict)
    reclaimed: bool = False
    """The client has sent RECLAIM_COMPLETE."""


class ClientRegistry:
    """Clients and their sessions; ``ended`` is called with the number of a client whose state ends."""

    def __init__(self, instance: bytes, ended: Callable[[int], None], busy: Callable[[int], bool]) -> None:
        self.instance = instance
        self.sessions: dict[bytes, ServedSession] = {}
        self._clients: dict[int, ClientRecord] = {}
        self._numbers = count(1)
        self._ended = ended
        self._busy = busy

    def exchange_id(self, args: dict[str, Any]) -> dict[str, Any]:
        owner, verifier = args["eia_clientowner"]["co_ownerid"], args["eia_clientowner"]["co_verifier"]
        refuse(args["eia_flags"] & ~KNOWN_FLAGS or args["eia_state_protect"]["spa_how"] != SP4_NONE, NfsStatus.INVAL)
        of_owner = [client for client in self._clients.values() if client.owner == owner]
        confirmed = next((client_record for client_record in of_owner if client_record.confirmed), None)
        if args["eia_flags"] & UPDATE_CONFIRMED:
            refuse(present(confirmed, NfsStatus.NOENT).verifier != verifier, NfsStatus.NOT_SAME)
        client = confirmed
        if confirmed is None or confirmed.verifier != verifier:
            for client_record in of_owner:
                if not client_record.confirmed:
                    self._forget(client_record)
            client = self._add(owner, verifier)
        assert client is not None
        return {
            "eir_clientid": client.number,
            "eir_sequenceid": client.next_sequence,
            "eir_flags": USE_NON_PNFS | (CONFIRMED if client.confirmed else 0),
            "eir_server_owner": {"so_minor_id": 0, "so_major_id": self.instance.hex().encode()},
            "eir_server_scope": self.instance.hex().encode(),
            "eir_server_impl_id": [{"nii_domain": b"rdmascope.example", "nii_name": b"rdmascope probe --serve"}],
        }

    def _add(self, owner: bytes, verifier: bytes) -> ClientRecord:
        while len(self._clients) >= MAX_CLIENTS:
            self._forget(next(iter(self._clients.values())))
        number = int.from_bytes(self.instance[:4], "big") << 32 | next(self._numbers)
        self._clients[number] = ClientRecord(number, owner, verifier)
        return self._clients[number]

    def client(self, number: int) -> ClientRecord:
        return present(self._clients.get(number), NfsStatus.STALE_CLIENTID)

    def create_session(self, args: dict[str, Any]) -> dict[str, Any]:
        client = self.client(args["csa_clientid"])
        sequence = args["csa_sequence"]
        if client.created is not None and (sequence + 1) & 0xFFFFFFFF == client.next_sequence:
            return client.created  # it came a second time
        refuse(sequence != client.next_sequence, NfsStatus.SEQ_MISORDERED)
        fore = args["csa_fore_chan_attrs"]
        smallest = min(fore["ca_maxrequestsize"], fore["ca_maxresponsesize"])
        refuse(smallest < SMALLEST or not fore["ca_maxoperations"], NfsStatus.TOOSMALL)
        refuse(len(client.sessions) >= MAX_SESSIONS, NfsStatus.DELAY)
        if not client.confirmed:
            self._confirm(client)
        agreed = {
            "ca_headerpadsize": 0,
            "ca_maxrequestsize": min(fore["ca_maxrequestsize"], MAX_REQUEST),
            "ca_maxresponsesize": min(fore["ca_maxresponsesize"], MAX_RESPONSE),
            "ca_maxresponsesize_cached": min(fore["ca_maxresponsesize_cached"], MAX_CACHED),
            "ca_maxoperations": min(fore["ca_maxoperations"], MAX_OPERATIONS),
            "ca_maxrequests": min(max(fore["ca_maxrequests"], 1), MAX_SLOTS),
        }
        identifier = self.instance + client.number.to_bytes(8, "big")[-4:] + next(self._numbers).to_bytes(4, "big")
        session = ServedSession(
            identifier,
            client,
            [SessionSlot() for _ in range(agreed["ca_maxrequests"])],
            agreed["ca_maxrequestsize"],
            agreed["ca_maxresponsesize"],
            agreed["ca_maxresponsesize_cached"],
            agreed["ca_maxoperations"],
        )
        self.sessions[identifier] = client.sessions[identifier] = session
        client.next_sequence = (sequence + 1) & 0xFFFFFFFF
        client.created = {
            "csr_sessionid": identifier,
            "csr_sequence": sequence,
            "csr_flags": 0,  # no callbacks: nothing is delegated
            "csr_fore_chan_attrs": agreed,
            "csr_back_chan_attrs": args["csa_back_chan_attrs"],
        }
        return client.created

    def _confirm(self, client: ClientRecord) -> None:
        """Confirm a client with its first session: an older instance of the same owner is dropped (RFC 8881,
        18.36.4)."""
        client.confirmed = True
        for client_record in [
            record for record in self._clients.values() if record.owner == client.owner and record is not client
        ]:
            self._forget(client_record)

    def session(self, identifier: bytes) -> ServedSession:
        session = present(self.sessions.get(identifier), NfsStatus.BADSESSION)
        # The order of clients is that of their last call.
        self._clients[session.client.number] = self._clients.pop(session.client.number)
        return session

    def destroy_session(self, identifier: bytes) -> None:
        session = self.session(identifier)
        del self.sessions[identifier], session.client.sessions[identifier]

    def destroy_client(self, number: int) -> None:
        client = self.client(number)
        refuse(client.sessions or self._busy(number), NfsStatus.CLIENTID_BUSY)
        self._forget(client)

    def _forget(self, client: ClientRecord) -> None:
        for identifier in client.sessions:
            del self.sessions[identifier]
        client.sessions.clear()
        del self._clients[client.number]
        self._ended(client.number)


def begin(session: ServedSession, args: dict[str, Any], request: bytes) -> Parts | None:
    """Execute SEQUENCE: None for a new request on the slot, or the kept reply to a repeated one (RFC 8881, 2.10.6)."""
    number = args["sa_slotid"]
    refuse(number >= len(session.slots), NfsStatus.BADSLOT)
    refuse(args["sa_highest_slotid"] < number, NfsStatus.BAD_HIGH_SLOT)
    slot: SessionSlot = session.slots[number]
    checksum = zlib.crc32(request)
    if args["sa_sequenceid"] == slot.sequence and slot.sequence:
        refuse(slot.request != checksum, NfsStatus.SEQ_FALSE_RETRY)
        return present(slot.reply, NfsStatus.RETRY_UNCACHED_REP)
    refuse(args["sa_sequenceid"] != (slot.sequence + 1) & 0xFFFFFFFF, NfsStatus.SEQ_MISORDERED)
    refuse(len(request) > session.max_request, NfsStatus.REQ_TOO_BIG)
    slot.sequence, slot.request, slot.reply = args["sa_sequenceid"], checksum, None
    return None


def sequence_result(session: ServedSession, args: dict[str, Any]) -> dict[str, Any]:
    highest = len(session.slots) - 1
    return {
        "sr_sessionid": session.identifier,
        "sr_sequenceid": args["sa_sequenceid"],
        "sr_slotid": args["sa_slotid"],
        "sr_highest_slotid": highest,
        "sr_target_highest_slotid": highest,
    }


LARGEST = 1 << 20
"""Bytes of a READ or a WRITE at most."""
LEASE_TIME = 90
"""Seconds, as announced; a client that is silent for longer loses nothing here."""
CLIENT_TIME = 1
_SAME_OF_ALL: dict[str, Any] = {
    "fh_expire_type": 0,
    "link_support": 1,
    "symlink_support": 1,
    "named_attr": 0,
    "unique_handles": 1,
    "lease_time": LEASE_TIME,
    "rdattr_error": 0,
    "cansettime": 1,
    "case_insensitive": 0,
    "case_preserving": 1,
    "chown_restricted": 0,
    "homogeneous": 1,
    "maxfilesize": MAX_FILE,
    "maxlink": MAX_LINKS,
    "maxname": MAX_NAME,
    "maxread": LARGEST,
    "maxwrite": LARGEST,
    "no_trunc": 1,
    "rawdev": {},
    "time_delta": {"seconds": 0, "nseconds": 1},
}
"""Attributes with the same value for all files."""
_READ_ONLY: dict[str, Callable[[FileSystem, Inode], Any]] = {
    "supported_attrs": lambda files, inode: SUPPORTED,
    "type": lambda files, inode: inode.kind,
    "change": lambda files, inode: inode.change,
    "fsid": lambda files, inode: {"major": int.from_bytes(files.instance, "big"), "minor": 0},
    "filehandle": lambda files, inode: files.handle(inode),
    "fileid": lambda files, inode: inode.number,
    "files_avail": lambda files, inode: files.free_files,
    "files_free": lambda files, inode: files.free_files,
    "files_total": lambda files, inode: files.files + files.free_files,
    "numlinks": lambda files, inode: inode.links,
    "space_avail": lambda files, inode: files.free,
    "space_free": lambda files, inode: files.free,
    "space_total": lambda files, inode: files.capacity,
    "space_used": lambda files, inode: inode.size,
    "time_access": lambda files, inode: file_time(inode.atime),
    "time_metadata": lambda files, inode: file_time(inode.ctime),
    "time_modify": lambda files, inode: file_time(inode.mtime),
    "mounted_on_fileid": lambda files, inode: inode.number,
    "suppattr_exclcreat": lambda files, inode: AT_CREATION,
}
_SETTABLE: dict[str, Callable[[FileSystem, Inode], Any]] = {
    "size": lambda files, inode: inode.size,
    "mode": lambda files, inode: inode.mode,
    "owner": lambda files, inode: b"%d" % inode.uid,
    "owner_group": lambda files, inode: b"%d" % inode.gid,
}
_WRITE_ONLY = {"time_access_set", "time_modify_set"}
_VALUES = {**_READ_ONLY, **_SETTABLE}
_NUMBERS = {name: number for number, (name, _) in NUMBERED.items()}
SUPPORTED: tuple[int, ...] = tuple(sorted(_NUMBERS[name] for name in (*_SAME_OF_ALL, *_VALUES, *_WRITE_ONLY)))
AT_CREATION: tuple[int, ...] = tuple(sorted(_NUMBERS[name] for name in (*_SETTABLE, *_WRITE_ONLY)))
"""Attributes that an exclusive creation may set as well (RFC 8881, 5.8.1.14)."""


def requested(files: FileSystem, inode: Inode, bits: Iterable[int]) -> dict[str, Any]:
    """The values of the requested attributes; unsupported ones are left out."""
    refuse(any(NUMBERED[bit][0] in _WRITE_ONLY for bit in bits if bit in NUMBERED), NfsStatus.INVAL)
    names = [NUMBERED[bit][0] for bit in bits if bit in NUMBERED]
    return {
        name: _SAME_OF_ALL[name] if name in _SAME_OF_ALL else _VALUES[name](files, inode)
        for name in names
        if name in _SAME_OF_ALL or name in _VALUES
    }


def wanted(given: dict[str, Any], now: int) -> FileAttributes:
    """The attributes that a client wants to set."""
    for name in given:
        refuse(name in _SAME_OF_ALL or name in _READ_ONLY, NfsStatus.INVAL)
        refuse(name not in _SETTABLE and name not in _WRITE_ONLY, NfsStatus.ATTRNOTSUPP)
    return FileAttributes(
        given.get("mode"),
        _number(given.get("owner")),
        _number(given.get("owner_group")),
        given.get("size"),
        _time(given.get("time_access_set"), now),
        _time(given.get("time_modify_set"), now),
    )


def numbers(given: Iterable[str]) -> tuple[int, ...]:
    """The bitmap of attributes by name."""
    return tuple(sorted(_NUMBERS[name] for name in given))


def _number(owner: bytes | None) -> int | None:
    """A user or group by number (RFC 8881, 5.9); names are not supported."""
    if owner is None:
        return None
    refuse(not owner.isdigit() or int(owner) >= 1 << 32, NfsStatus.BADOWNER)
    return int(owner)


def _time(given: dict[str, Any] | None, now: int) -> int | None:
    if given is None:
        return None
    if given["set_it"] != CLIENT_TIME:
        return now
    refuse(given["time"]["nseconds"] >= SECOND, NfsStatus.INVAL)
    return int(given["time"]["seconds"]) * SECOND + int(given["time"]["nseconds"])


Values = dict[str, Any]
FILE_SYNC4 = 2
NOCREATE, CREATE = 0, 1
UNCHECKED4, GUARDED4, EXCLUSIVE4, EXCLUSIVE4_1 = range(4)
CLAIM_NULL, CLAIM_PREVIOUS, CLAIM_FH = 0, 1, 4
ACCESS_MASK = 3
STYLE_PARENT = 1


@dataclass(slots=True, eq=False)
class Nfs4State:
    """State that lasts longer than a COMPOUND."""

    files: FileSystem
    opens: OpenTable
    clients: ClientRegistry


@dataclass(slots=True)
class CompoundState:
    """State that the operations of a COMPOUND pass on (16.2.3)."""

    server: Nfs4State
    caller: Caller
    session: ServedSession | None = None
    current: bytes | None = None
    """The current filehandle (16.2.3.1.1)."""
    saved: bytes | None = None
    stateid: Values = field(default_factory=lambda: INVALID)
    """The current stateid (16.2.3.1.2)."""
    saved_stateid: Values = field(default_factory=lambda: INVALID)

    @property
    def inode(self) -> Inode:
        """The file of the current filehandle."""
        return self.server.files.find(present(self.current, NfsStatus.NOFILEHANDLE))

    @property
    def directory(self) -> Inode:
        inode = self.inode
        need_directory(inode)
        return inode

    @property
    def saved_inode(self) -> Inode:
        return self.server.files.find(present(self.saved, NfsStatus.NOFILEHANDLE))

    def become(self, inode: Inode) -> None:
        self.current, self.stateid = self.server.files.handle(inode), INVALID

    @property
    def client(self) -> int:
        return present(self.session, NfsStatus.OP_NOT_IN_SESSION).client.number

    def opened(self, stateid: Values, file: Inode | None = None) -> OpenFile:
        """The open that a stateid stands for."""
        named = self.stateid if stateid == CURRENT else stateid
        return self.server.opens.find(self.client, named, file.number if file is not None else None)

    def may(self, stateid: Values, file: Inode, access: int) -> None:
        """Check that the stateid allows access to read or write (8.2.5)."""
        if stateid == ANONYMOUS or (stateid == BYPASS and access == READ):
            return
        refuse(not self.opened(stateid, file).access & access, NfsStatus.OPENMODE)


Operate = Callable[[CompoundState, Values], Values | None]


def _cinfo(directory: Inode, before: int) -> Values:
    return {"atomic": 1, "before": before, "after": directory.change}


# Filehandles


def _savefh(on: CompoundState, args: Values) -> None:
    on.saved, on.saved_stateid = on.server.files.handle(on.inode), on.stateid


def _restorefh(on: CompoundState, args: Values) -> None:
    on.current, on.stateid = present(on.saved, NfsStatus.RESTOREFH), on.saved_stateid


def _lookup(on: CompoundState, args: Values) -> None:
    inode = on.inode
    refuse(inode.kind is FileType.LINK, NfsStatus.SYMLINK)
    need_directory(inode)
    check_name(args["objname"])
    on.become(on.server.files.lookup(inode, args["objname"]))


def _lookupp(on: CompoundState, args: Values) -> None:
    parent = present(on.directory.parent, NfsStatus.NOENT)
    refuse(parent is on.directory, NfsStatus.NOENT)
    on.become(parent)


# Attributes


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
    refuse(set(present) != set(given), NfsStatus.ATTRNOTSUPP)
    return encoded(FATTR4, present) == encoded(FATTR4, given)


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
    refuse(inode.kind is not FileType.LINK, NfsStatus.WRONG_TYPE)
    return {"link": DdpItem(on.server.files.read_link(inode))}


def _readdir(on: CompoundState, args: Values) -> Values:
    directory, files, cookie = on.directory, on.server.files, args["cookie"]
    refuse(0 < cookie < FIRST_COOKIE, NfsStatus.BAD_COOKIE)
    refuse(cookie and args["cookieverf"] != files.instance, NfsStatus.NOT_SAME)
    left = min(args["maxcount"], LARGEST) - 8 - 4 - 4
    entries: list[Values] = []
    for name, entry in files.listing(directory, cookie):
        attributes = requested(files, entry.inode, args["attr_request"])
        item = {"cookie": entry.cookie, "name": name, "attrs": attributes}
        left -= 4 + len(encoded(TYPES4["entry4"], item))
        if left < 0:
            break
        entries.append(item)
    refuse(left < 0 and not entries, NfsStatus.TOOSMALL)
    return {"cookieverf": files.instance, "entries": entries, "eof": left >= 0}


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
    refuse(not access or deny & ~BOTH, NfsStatus.INVAL)
    refuse(claim["claim"] == CLAIM_PREVIOUS, NfsStatus.NO_GRACE)
    refuse(claim["claim"] not in (CLAIM_NULL, CLAIM_FH), NfsStatus.BAD_STATEID)  # nothing was delegated
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
    """Create a file that already exists (18.16.3)."""
    verifier = how.get("cva_verf") or how.get("createverf")
    if verifier and inode.verifier == verifier:
        return
    refuse(how and how["mode"] != UNCHECKED4, NfsStatus.EXIST)


def _made(on: CompoundState, directory: Inode, name: bytes, how: Values) -> tuple[Inode, tuple[int, ...]]:
    given: Values = how.get("createattrs") or how.get("cva_attrs") or {}
    refuse(how["mode"] == EXCLUSIVE4_1 and set(numbers(given)) - set(AT_CREATION), NfsStatus.INVAL)
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

    return {"tsr_status_codes": [status(stateid) for stateid in args["ts_stateids"]]}


def _free_stateid(on: CompoundState, args: Values) -> None:
    on.opened(args["fsa_stateid"])
    raise NfsError(NfsStatus.LOCKS_HELD)  # only CLOSE ends an open


# Clients and sessions


def _bind_conn_to_session(on: CompoundState, args: Values) -> Values:
    session = on.server.clients.session(args["bctsa_sessid"])
    refuse(args["bctsa_dir"] not in (FORE, FORE_OR_BOTH), NfsStatus.INVAL)  # there is no way back
    return {"bctsr_sessid": session.identifier, "bctsr_dir": FORE}


def _reclaim_complete(on: CompoundState, args: Values) -> None:
    client = present(on.session, NfsStatus.OP_NOT_IN_SESSION).client
    refuse(client.reclaimed and not args["rca_one_fs"], NfsStatus.COMPLETE_ALREADY)
    client.reclaimed = True


STATELESS: dict[str, Operate] = {
    "PUTFH": lambda on, args: on.become(on.server.files.find(args["object"])),
    "PUTPUBFH": lambda on, args: on.become(on.server.files.root),
    "PUTROOTFH": lambda on, args: on.become(on.server.files.root),
    "GETFH": lambda on, args: {"object": on.server.files.handle(on.inode)},
    "SAVEFH": _savefh,
    "RESTOREFH": _restorefh,
    "LOOKUP": _lookup,
    "LOOKUPP": _lookupp,
    "GETATTR": lambda on, args: {"obj_attributes": requested(on.server.files, on.inode, args["attr_request"])},
    "SETATTR": _setattr,
    "VERIFY": lambda on, args: refuse(not _same(on, args["obj_attributes"]), NfsStatus.NOT_SAME),
    "NVERIFY": lambda on, args: refuse(_same(on, args["obj_attributes"]), NfsStatus.SAME),
    "ACCESS": lambda on, args: {
        "supported": args["access"] & 0x3F,
        "access": args["access"] & meaningful_access(on.inode),
    },
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
    "DELEGRETURN": lambda on, args: refuse(True, NfsStatus.BAD_STATEID),  # nothing was delegated
    "RECLAIM_COMPLETE": _reclaim_complete,
}
"""Operations that need a session: behind SEQUENCE."""
ALONE: dict[str, Operate] = {
    "EXCHANGE_ID": lambda on, args: on.server.clients.exchange_id(args),
    "CREATE_SESSION": lambda on, args: on.server.clients.create_session(args),
    "DESTROY_SESSION": lambda on, args: on.server.clients.destroy_session(args["dsa_sessionid"]),
    "DESTROY_CLIENTID": lambda on, args: on.server.clients.destroy_client(args["dca_clientid"]),
    "BIND_CONN_TO_SESSION": _bind_conn_to_session,
}
"""Without SEQUENCE they are a COMPOUND's only operation (RFC 8881, 2.10.2.1)."""


SEQUENCE, ILLEGAL = 53, 10044
HIGHEST = {0: 39, 1: 58}
"""Number of the last operation, by minor version."""
FIRST = 3
REPLY_HEAD = 24
"""Bytes of the RPC header of a reply."""


class Nfs4:
    """Minor version 1, and of minor version 0 what needs no state."""

    def __init__(self, files: FileSystem) -> None:
        opens = OpenTable(files.instance)
        self.state = Nfs4State(files, opens, ClientRegistry(files.instance, opens.drop_client, opens.of_client))
        self.program = RpcProgram({}, {service.COMPOUND: self.compound})

    def compound(self, message: bytes, at: int, caller: Caller) -> Parts:
        compound = decode(COMPOUND4ARGS, "arguments", SparseBytes([(0, message)], len(message)), at, len(message))
        tag, minor, operations = (compound.root.child(name) for name in ("tag", "minorversion", "argarray"))
        if tag is None or minor is None or operations is None or not isinstance(operations.value, int):
            raise NoValue(compound.problem)
        tag_text, minor_version = plain(tag), plain(minor)
        if minor_version not in HIGHEST:
            return _reply(NfsStatus.MINOR_VERS_MISMATCH, tag_text, 0, [])
        run = _Compound(self.state, caller, minor_version, tag_text, message[at:])
        return run.reply(operations.children, operations.value)


class _Compound:
    """One COMPOUND being carried out."""

    def __init__(self, state: Nfs4State, caller: Caller, minor: int, tag: bytes, request: bytes) -> None:
        self.on = CompoundState(state, caller)
        self.minor = minor
        self.tag = tag
        self.request = request
        self.sequence: dict[str, Any] | None = None
        """The arguments of SEQUENCE; None before it, and in version 4.0."""
        self.size = REPLY_HEAD + 8 + len(encoded(COMPOUND4ARGS.fields[0][1], tag)) + 4

    def reply(self, operations: list[Node], count: int) -> Parts:
        results: list[Parts] = []
        status = NfsStatus.OK
        for number, node in enumerate(operations):
            result = self._result(number, node, count)
            if isinstance(result, tuple):
                return result
            status = result["status"]
            parts = self._bounded(result)
            if parts is None:
                status = self._too_big()
                parts = encoded_parts(TYPES["nfs_resop4"], {"resop": result["resop"], "status": status})
            results.append(parts)
            if status:
                break
        reply = _reply(status, self.tag, len(results), results)
        session = self.on.session
        if session is not None and self.sequence is not None and REPLY_HEAD + len(whole(reply)) <= session.max_cached:
            session.slots[self.sequence["sa_slotid"]].reply = reply
        return reply

    def _bounded(self, result: dict[str, Any]) -> Parts | None:
        """The bytes of a result; None if the session has no room for it."""
        parts = encoded_parts(TYPES["nfs_resop4"], result)
        self.size += sum(len(part.data) + 3 & ~3 if isinstance(part, DdpItem) else len(part) for part in parts)
        session, sequence = self.on.session, self.sequence
        if session is None or sequence is None or result["resop"] == SEQUENCE:
            return parts
        limit = min(session.max_response, session.max_cached) if sequence["sa_cachethis"] else session.max_response
        return parts if self.size <= limit else None

    def _too_big(self) -> NfsStatus:
        assert self.on.session is not None
        return NfsStatus.REP_TOO_BIG if self.size > self.on.session.max_response else NfsStatus.REP_TOO_BIG_TO_CACHE

    def _result(self, number: int, node: Node, count: int) -> dict[str, Any] | Parts:
        """Execute an operation: its result, or the whole reply if the request is a repeated one."""
        operation = node.child("argop")
        if operation is None or not isinstance(operation.value, int):
            raise NoValue("an operation without its number")
        chosen = operation.value
        if not FIRST <= chosen <= HIGHEST[self.minor] or chosen not in OPERATIONS:
            return {"resop": ILLEGAL, "status": NfsStatus.OP_ILLEGAL}
        try:
            if chosen == SEQUENCE:
                return self._sequence(number, node, count)
            run = self._allowed(number, OPERATIONS[chosen].name, count)
            return {"resop": chosen, "status": 0, **(run(self.on, _arguments(node)) or {})}
        except NfsError as error:
            return {"resop": chosen, "status": error.status}

    def _sequence(self, number: int, node: Node, count: int) -> dict[str, Any] | Parts:
        refuse(number, NfsStatus.SEQUENCE_POS)
        arguments = _arguments(node)
        session = self.on.server.clients.session(arguments["sa_sessionid"])
        before = begin(session, arguments, self.request)
        if before is not None:
            return before
        self.on.session, self.sequence = session, arguments
        refuse(count > session.max_operations, NfsStatus.TOO_MANY_OPS)
        return {"resop": SEQUENCE, "status": 0, **sequence_result(session, arguments)}

    def _allowed(self, number: int, name: str, count: int) -> Operate:
        """The function that executes an operation, if it is allowed here."""
        refuse(count > MAX_OPERATIONS, NfsStatus.TOO_MANY_OPS)
        if self.minor and self.on.session is None:
            refuse(name not in ALONE, NfsStatus.OP_NOT_IN_SESSION)
            refuse(count > 1, NfsStatus.NOT_ONLY_OP)
        return present(({**STATELESS, **STATEFUL, **ALONE} if self.minor else STATELESS).get(name), NfsStatus.NOTSUPP)


def _arguments(node: Node) -> dict[str, Any]:
    for inner in node.walk():
        mask = inner.child("attrmask") if isinstance(inner.type, XdrAttributes) else None
        refuse(
            mask is not None and isinstance(mask.value, tuple) and set(mask.value) - set(SUPPORTED),
            NfsStatus.ATTRNOTSUPP,
        )
    try:
        operation = plain(node)
    except NoValue:
        raise NfsError(NfsStatus.BADXDR) from None
    shape = OPERATIONS[operation["argop"]].arguments
    refuse(shape is not None and not {name for name, _ in shape.fields} <= set(operation), NfsStatus.BADXDR)
    return dict(operation)


def _reply(status: int, tag: bytes, count: int, results: list[Parts]) -> Parts:
    """The results of a COMPOUND, COMPOUND4res (RFC 8881, 16.2)."""
    tag_type, status_type = COMPOUND4ARGS.fields[0][1], COMPOUND4ARGS.fields[1][1]
    head = encoded(status_type, status) + encoded(tag_type, tag) + encoded(status_type, count)
    return (head, *(part for result in results for part in result))
