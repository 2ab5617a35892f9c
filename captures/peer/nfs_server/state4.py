"""What an NFSv4.1 server remembers: clients, their sessions, their open files and stateids (RFC 8881, 2.10, 8 and
18).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ..endpoint import Parts
from .file_system import NfsError, NfsStatus, present, refuse

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
"""Beyond, the one that has been silent for longest is forgotten."""
MAX_SESSIONS = 4
"""Of a client: its slots keep 1 MiB of replies at most."""
MAX_SLOTS = 32
MAX_OPERATIONS = 64
"""Of a COMPOUND."""
MAX_REQUEST = MAX_RESPONSE = (1 << 20) + 4096
MAX_CACHED = 8192
"""Bytes of a reply that is kept for the case that it is asked for a second time."""
SMALLEST = 512
"""Bytes of a request or a response that a session can do with."""
USE_NON_PNFS, UPDATE_CONFIRMED, CONFIRMED = 0x10000, 0x40000000, 0x80000000
KNOWN_FLAGS = 0x7 | 0x100 | 0x70000 | UPDATE_CONFIRMED
FORE, FORE_OR_BOTH = 1, 3
SP4_NONE = 0


@dataclass(slots=True)
class SessionSlot:
    sequence: int = 0
    request: int = 0
    """Checksum of the COMPOUND that had it."""
    reply: Parts | None = None
    """None: it was not kept."""


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
    """What EXCHANGE_ID made (RFC 8881, 18.35.4)."""

    number: int
    owner: bytes
    verifier: bytes
    confirmed: bool = False
    next_sequence: int = 1
    """Of its next CREATE_SESSION."""
    created: dict[str, Any] | None = None
    """What the last CREATE_SESSION returned."""
    sessions: dict[bytes, ServedSession] = field(default_factory=dict)
    reclaimed: bool = False
    """RECLAIM_COMPLETE came."""


class ClientRegistry:
    """``ended`` is called with the number of a client whose state ends."""

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
        """Its first session: an older incarnation of the same owner is gone (RFC 8881, 18.36.4)."""
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
    """SEQUENCE: the slot takes a new request (None), or the reply that it had (RFC 8881, 2.10.6)."""
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
