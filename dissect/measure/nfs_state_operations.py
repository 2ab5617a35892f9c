"""What single NFSv4 operations change in the state that clients hold (RFC 8881, 18; RFC 7530, 16): opens,
locks, delegations, layouts, and clients and sessions themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ..named_tuple import NamedTuple
from ..onc.compound import OP_GETATTR, OP_OPEN, CompoundWalk, compound_call, compound_reply, walk_filehandles
from ..onc.rpc_header import GssCredential, call_head, results_at
from ..onc.shapes.decode_cache import Layout, Layouts
from ..onc.shapes.nfs4 import CALLBACK_OPERATIONS, OPERATIONS
from ..onc.shapes.nfs4_types import STATEID4
from ..onc.shapes.types import Node, SparseBytes, XdrType, decode
from .nfs_state import (
    MAX_CLIENTS,
    MAX_HELD,
    MAX_LISTED,
    MAX_SESSIONS,
    HeldState,
    NfsClient,
    NfsSession,
    SlotTable,
    StateTable,
)

MAX_NODES = 2000
"""Values of one operation that are looked at."""
MAX_RANGES = 1000
"""Byte ranges of one lock."""
WHOLE = 1 << 64
_ACCESS = {1: "read", 2: "write", 3: "read and write"}
_DELEGATIONS = {1: "read", 2: "write", 4: "read", 5: "write"}
"""open_delegation_type4; 4 and 5 are those of RFC 9754."""
_LOCKS = {1: "read", 2: "write", 3: "read", 4: "write"}
_CLAIM_PREVIOUS = 1
_NO_OPEN_STATEID = 0x10
_ROLES = {0x10000: "no pNFS", 0x20000: "pNFS metadata server", 0x40000: "pNFS data server"}


class FieldsPlace(NamedTuple):
    """Where arguments or results are in messages that are laid out alike."""

    type: XdrType | None
    """None: nothing is there."""
    at: int
    layout: Layout | None = None
    """Where numbers and stateids are, of the most frequent operations."""

    def fields(self, message: memoryview) -> Fields:
        return Fields(None, self, message)


NOWHERE = FieldsPlace(None, -1)
_NO_BYTES = memoryview(b"")


class Fields:
    """Arguments or results of an operation, decoded when they are asked for; what is missing is None."""

    __slots__ = ("_message", "_node", "place")

    def __init__(self, node: Node | None, place: FieldsPlace = NOWHERE, message: memoryview = _NO_BYTES) -> None:
        """``place``: in place of ``node``, where they begin in the message."""
        self._node, self.place, self._message = node, place, message

    @property
    def node(self) -> Node | None:
        type, at, _ = self.place
        if self._node is None and type is not None:
            message = self._message
            self._node = decode(type, "", SparseBytes([(0, message)], len(message)), at, len(message), MAX_NODES).root
        return self._node

    def _raw(self, layout: Layout, path: str) -> memoryview | None:
        """The bytes of a number or a stateid where messages like this one have it."""
        extent, at = layout.places.get(path), self.place.at
        return None if extent is None else self._message[at + extent[0] : at + extent[1]]

    def number(self, path: str) -> int | None:
        layout = self.place.layout
        if layout is not None and path in NUMBERS:
            raw = self._raw(layout, path)
            return None if raw is None else int.from_bytes(raw)
        node = self.at(path)
        return node.value if node is not None and isinstance(node.value, int) else None

    def octets(self, path: str) -> bytes | None:
        node = self.at(path)
        return bytes(node.value) if node is not None and isinstance(node.value, memoryview) else None

    def at(self, path: str) -> Node | None:
        """The value at names joined by '/'; '' is the whole."""
        node = self.node
        for name in path.split("/") if path else ():
            node = node.child(name) if node is not None else None
        return node

    def stateid(self, path: str = "") -> bytes | None:
        """'other' of the first stateid at or below the path."""
        layout = self.place.layout
        if layout is not None and path in STATEIDS:
            raw = self._raw(layout, path)
            return None if raw is None else bytes(raw[4:])
        return Fields(self.first_stateid(path)).octets("other")

    def first_stateid(self, path: str) -> Node | None:
        node = self.at(path)
        return next((inner for inner in node.walk() if inner.type is STATEID4), None) if node is not None else None


NUMBERS = frozenset((
    "share_access", "claim/claim", "owner/clientid", "rflags", "delegation/delegation_type", "locktype", "reclaim",
    "offset", "length",
))  # fmt: skip
STATEIDS = frozenset(("stateid", "delegation", "open_stateid", "deleg_stateid", "lock_stateid"))
"""What is read of the most frequent operations, as paths; of stateids the first at or below the path."""
_FREQUENT = frozenset(
    type for name in (4, 8, 12, 14, 18) for type in (OPERATIONS[name].arguments, OPERATIONS[name].results)
)
"""Arguments and results of CLOSE, DELEGRETURN, LOCK, LOCKU and OPEN."""


@cache
def _layouts(type: XdrType) -> Layouts:
    return Layouts(type, (*NUMBERS, *STATEIDS), MAX_NODES, _state_nodes)


def _state_nodes(root: Node) -> dict[str, Node]:
    """The values at the paths."""
    fields = Fields(root)
    nodes = {path: fields.at(path) for path in NUMBERS}
    nodes |= {path: fields.first_stateid(*path.split("/")) for path in STATEIDS}
    return {path: node for path, node in nodes.items() if node is not None}


class ChangingStep(NamedTuple):
    """An operation that succeeded."""

    operation: int
    arguments: Fields
    results: Fields
    handle: bytes | None
    """The current filehandle behind it."""


class StateChange(NamedTuple):
    """One operation that succeeded, and what it was part of."""

    arguments: Fields
    results: Fields
    handle: bytes | None
    """The current filehandle behind it."""
    frame: int
    """The frame of the reply, or of a callback's call."""
    time: int
    connection: int
    client: NfsClient
    session: NfsSession | None


def fields_of(type: XdrType | None, message: memoryview, at: int) -> Fields:
    """The value that begins ``at``, as far as its bytes are there."""
    if type is None or at < 0:
        return Fields(None)
    layout = None
    if type in _FREQUENT:
        layouts = _layouts(type)
        layout = layouts.of(message, at)
        if layout is None:
            layouts.learn(message, at)
            layout = layouts.of(message, at)
    return FieldsPlace(type, at, layout).fields(message)


def walked(call: memoryview, reply: memoryview, gss: GssCredential | None) -> CompoundWalk | None:
    """The operations of a COMPOUND with their results; None where its arguments or results are not there."""
    head = call_head(call, 0, len(call))
    body = results_at(reply, gss) if head is not None and head[4] else -1
    if head is None or body < 0:
        return None
    asked = compound_call(call, head[4], len(call))
    return walk_filehandles(asked, call, compound_reply(reply, body, len(reply)), reply)


def decoded_step(
    operation: int, call: memoryview, asked: int, reply: memoryview, answered: int
) -> tuple[Fields, Fields]:
    """Arguments, at ``asked``, and results, behind their status at ``answered``, of an operation."""
    shape = OPERATIONS.get(operation)
    if shape is None:
        return Fields(None), Fields(None)
    results = answered - 4 if answered >= 0 else -1
    return fields_of(shape.arguments, call, asked), fields_of(shape.results, reply, results)


def roles_of(flags: int | None) -> tuple[str, ...]:
    return tuple(name for bit, name in _ROLES.items() if (flags or 0) & bit)


def text_of(node: Node | None) -> str:
    """Characters of an opaque; '' where it is missing."""
    value = node.value if node is not None else None
    return bytes(value).decode("utf-8", "backslashreplace") if isinstance(value, memoryview) else ""


def implementation(fields: Fields, name: str) -> str:
    """nii_name of the first nfs_impl_id4."""
    array = fields.at(name)
    first = array.children[0] if array is not None and array.children else None
    return text_of(Fields(first).at("nii_name"))


# Opens, locks, delegations, layouts


def _grant(change: StateChange, table: StateTable, kind: str, stateid: bytes | None, **more: Any) -> HeldState | None:
    if stateid is None:
        return None
    state = HeldState(kind, stateid, change.handle, change.frame, change.time, **more)
    return table.grant(state)


def _grant_delegation(change: StateChange, type: int | None, stateid: bytes | None, reclaimed: bool = False) -> None:
    if type is None or type not in _DELEGATIONS:
        return
    client = change.client
    state = _grant(change, client.delegations, _DELEGATIONS[type], stateid, reclaimed=reclaimed)
    if state is not None and len(client.listed) < MAX_LISTED:
        client.listed.append(state)


def _granted(change: StateChange, reclaimed: bool) -> None:
    """An open or a lock: no grace period any more, or one that lets its owner take up what it had."""
    client = change.client
    if reclaimed:
        client.reclaims += 1
    elif "NFS4ERR_GRACE" in client.statuses and client.grace_ended is None:
        client.grace_ended = change.time, change.frame


def _open(change: StateChange) -> None:
    asked, given = change.arguments, change.results
    reclaimed = asked.number("claim/claim") == _CLAIM_PREVIOUS
    if not (given.number("rflags") or 0) & _NO_OPEN_STATEID:
        access = _ACCESS.get((asked.number("share_access") or 0) & 3, "?")
        _grant(change, change.client.opens, access, given.stateid("stateid"), reclaimed=reclaimed)
    _granted(change, reclaimed)
    type = given.number("delegation/delegation_type")
    _grant_delegation(change, type, given.stateid("delegation"), reclaimed)


def _close(change: StateChange) -> None:
    stateid = change.arguments.stateid("open_stateid")
    if stateid is not None:
        change.client.opens.give_back(stateid)


def _lock(change: StateChange) -> None:
    stateid = change.results.stateid("lock_stateid")
    start, length = change.arguments.number("offset"), change.arguments.number("length")
    if stateid is None or start is None or length is None:
        return
    client = change.client
    _granted(change, change.arguments.number("reclaim") == 1)
    state = client.locks.held.get(stateid)
    if state is None:
        kind = _LOCKS.get(change.arguments.number("locktype") or 0, "?")
        state = _grant(change, client.locks, kind, stateid)
    if state is not None and len(state.ranges) < MAX_RANGES:
        state.ranges = sorted([*_without(state.ranges, start, length), (start, _end(start, length))])


def _unlock(change: StateChange) -> None:
    stateid = change.arguments.stateid("lock_stateid")
    start, length = change.arguments.number("offset"), change.arguments.number("length")
    if stateid is None or start is None or length is None:
        return
    locks = change.client.locks
    state = locks.held.get(stateid)
    if state is None:
        locks.give_back(stateid)
        return
    state.ranges = _without(state.ranges, start, length)
    if not state.ranges:
        locks.give_back(stateid)


def _end(start: int, length: int) -> int:
    return min(start + length, WHOLE) if length < WHOLE - 1 else WHOLE


def _without(ranges: list[tuple[int, int]], start: int, length: int) -> list[tuple[int, int]]:
    end = _end(start, length)
    left = [
        part for low, high in ranges for part in ((low, min(high, start)), (max(low, end), high)) if part[0] < part[1]
    ]
    return sorted(set(left))


def _delegation_back(change: StateChange) -> None:
    stateid = change.arguments.stateid("deleg_stateid")
    if stateid is not None:
        _note_return(change, change.client.delegations.give_back(stateid))


def _note_return(change: StateChange, state: HeldState | None) -> None:
    if state is not None:
        state.returned_frame, state.returned_time = change.frame, change.time


def _free(change: StateChange) -> None:
    """FREE_STATEID: what the server had revoked, or a lock that is no longer needed."""
    stateid = change.arguments.stateid("fsa_stateid")
    for kind, table in change.client.states():
        if stateid is not None and stateid in table.held:
            state = table.give_back(stateid)
            _note_return(change, state)
            if state is not None:
                state.revoked = kind == "delegations"


def _want(change: StateChange) -> None:
    granted = change.results.at("wdr_resok4")
    if granted is not None:
        fields = Fields(granted)
        _grant_delegation(change, fields.number("delegation_type"), fields.stateid())


def _directory(change: StateChange) -> None:
    stateid = change.results.stateid()
    if stateid is not None:
        _grant_delegation(change, 1, stateid)


def _layout_type(fields: Fields, name: str) -> str:
    node = fields.at(name)
    names = getattr(node.type, "values", {}) if node is not None else {}
    number = fields.number(name)
    return str(names.get(number, number)).removeprefix("LAYOUT4_").lower().replace("_", " ")


def _layout(change: StateChange) -> None:
    kind = _layout_type(change.arguments, "loga_layout_type")
    _grant(change, change.client.layouts, kind, change.results.stateid("logr_stateid"))


def _layout_back(change: StateChange) -> None:
    layouts = change.client.layouts
    stateid = change.arguments.stateid("lora_layoutreturn")
    if stateid is None:
        for held in list(layouts.held):
            _note_return(change, layouts.give_back(held))
    elif change.results.number("lorr_stateid/lrs_present") == 0:
        _note_return(change, layouts.give_back(stateid))


def _lease(change: StateChange) -> None:
    node = change.results.at("obj_attributes/attr_vals/lease_time")
    if node is not None and isinstance(node.value, int):
        change.client.lease = node.value


def _reclaim_complete(change: StateChange) -> None:
    if change.arguments.number("rca_one_fs") == 0 and not change.client.reclaim_complete:
        change.client.reclaim_complete = change.frame
        change.client.reclaimed_time = change.time


# Callbacks


def recalled(client: NfsClient, operation: int, call: memoryview, at: int, frame: int, time: int) -> HeldState | None:
    """CB_RECALL and CB_LAYOUTRECALL, with arguments ``at`` in the call: what is to be returned.

    None where it was recalled before, or is a layout that was not granted in the capture.
    """
    layout = operation == OP_CB_LAYOUTRECALL
    table = client.layouts if layout else client.delegations
    table.recalled += 1
    arguments = fields_of(CALLBACK_OPERATIONS[operation].arguments, call, at)
    stateid = arguments.stateid("clora_recall" if layout else "stateid")
    if stateid is None:
        return None
    state = table.held.get(stateid)
    if state is None and any(listed.stateid == stateid for listed in client.listed):
        return None  # It was on its way back when the server recalled it.
    if state is None and not layout and len(table.held) < MAX_HELD:
        # It was granted before the capture, or its OPEN is missing or not answered yet.
        state = table.held[stateid] = HeldState("?", stateid, arguments.octets("fh"))
        if len(client.listed) < MAX_LISTED:
            client.listed.append(state)
    if state is None or state.recalled_frame:
        return None
    state.recalled_frame, state.recalled_time = frame, time
    return state


OP_CB_RECALL, OP_CB_LAYOUTRECALL = 4, 5
OP_RENEW = 30
LEASE_TIME = 10
"""Number of the attribute."""

HANDLERS: dict[int, Callable[[StateChange], None]] = {
    4: _close,
    8: _delegation_back,
    OP_GETATTR: _lease,
    12: _lock,
    14: _unlock,
    OP_OPEN: _open,
    OP_RENEW: lambda change: None,
    45: _free,
    46: _directory,
    50: _layout,
    51: _layout_back,
    56: _want,
    58: _reclaim_complete,
}
"""By operation; those that make and end clients and sessions are in ``nfs_state_history``."""


SETCLIENTID, SETCLIENTID_CONFIRM = 35, 36
BIND_CONN_TO_SESSION, EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION, DESTROY_CLIENTID = 41, 42, 43, 44, 57

CLIENT_OPERATIONS = frozenset(
    (
        SETCLIENTID,
        SETCLIENTID_CONFIRM,
        BIND_CONN_TO_SESSION,
        EXCHANGE_ID,
        CREATE_SESSION,
        DESTROY_SESSION,
        DESTROY_CLIENTID,
    )
)
_PERSIST, _BACK_CHANNEL = 1, 2
"""csr_flags."""
_DIRECTIONS = {1: "fore", 2: "back", 3: "fore and back"}
"""channel_dir_from_server4."""
MAX_ADDRESSES = 16
"""Addresses listed for a client, or for its server."""
RESTARTED, FORGOTTEN = "the client restarted", "the server did not know the old one any more"
GUESSED = "its session was lost, and the same addresses asked for a new one"


class AtReply(NamedTuple):
    """Where an operation succeeded."""

    server: str
    client: str
    """Addresses."""
    connection: int
    minor_version: int | None
    frame: int
    time: int


class ClientTable:
    """All clients and sessions of a capture; bounded, what is beyond is counted."""

    def __init__(self) -> None:
        self.clients: list[NfsClient] = []
        self.sessions: list[NfsSession] = []
        self.untracked = 0
        """Clients and sessions beyond the limits."""
        self._ids: dict[tuple[str, int], NfsClient] = {}
        self._owners: dict[tuple[str, bytes], NfsClient] = {}
        self._sessions: dict[tuple[str, bytes], NfsSession] = {}
        self._by_id: dict[bytes, NfsSession] = {}
        self._servers: dict[str, str] = {}
        """Further addresses of servers -> the first."""
        self._trunks: dict[tuple[bytes, bytes, int], str] = {}
        """The first address of a server's major ID, scope and client ID."""
        self._connections: dict[int, NfsClient] = {}
        """The NFSv4.0 client whose calls a connection carries."""
        self._rest = NfsClient(0, "", None, None)
        """Stands for clients beyond the limit."""

    def server(self, address: str) -> str:
        """The address by which the server that has this one is known."""
        return self._servers.get(address, address)

    def session(self, id: bytes, server: str) -> NfsSession | None:
        """A session that is in use, perhaps from before the capture; None beyond the limit."""
        known = self.known_session(id, server)
        if known is not None:
            return known
        if len(self.sessions) >= MAX_SESSIONS or len(self.clients) >= MAX_CLIENTS:
            self.untracked += 1
            return None
        return self._add_session(id, server, self._add(server, None, None))

    def known_session(self, id: bytes, server: str) -> NfsSession | None:
        return self._sessions.get((server, id)) or self._by_id.get(id)

    def client(self, server: str, id: int | None, minor_version: int | None) -> NfsClient:
        """The client with an ID, perhaps from before the capture."""
        known = self._ids.get((server, id)) if id is not None else None
        return known or self._add(server, id, minor_version)

    def numbered(self, number: int) -> NfsClient:
        return self.clients[number - 1] if number else self._rest

    def known_on(self, connection: int) -> NfsClient | None:
        """The client whose calls a connection carries, as far as they name one."""
        return self._connections.get(connection)

    def of_connection(self, at: AtReply) -> NfsClient:
        """The NFSv4.0 client on a connection."""
        known = self._connections.get(at.connection)
        if known is None:
            known = self._add(at.server, None, at.minor_version)
            self.on(at, known)
        return known

    def on(self, at: AtReply, client: NfsClient) -> None:
        """The client uses the connection."""
        self._connections[at.connection] = client
        if len(client.addresses) < MAX_ADDRESSES:
            client.addresses[at.client] = None

    def _add(self, server: str, id: int | None, minor_version: int | None) -> NfsClient:
        if len(self.clients) >= MAX_CLIENTS:
            self.untracked += 1
            return self._rest
        client = NfsClient(len(self.clients) + 1, server, id, minor_version)
        self.clients.append(client)
        if id is not None:
            self._ids[server, id] = client
        return client

    def _add_session(self, id: bytes, server: str, client: NfsClient) -> NfsSession:
        session = NfsSession(len(self.sessions) + 1, client, id)
        self.sessions.append(session)
        self._sessions[server, id] = self._by_id[id] = session
        return session

    # Operations that succeeded

    def succeeded(self, operation: int, arguments: Fields, results: Fields, at: AtReply) -> None:
        match operation:
            case 42:
                self._exchange_id(arguments, results, at)
            case 35:
                self._setclientid(arguments, results, at)
            case 36:
                self._confirm(self.client(at.server, arguments.number("clientid"), 0), at)
            case 43:
                self._create_session(arguments, results, at)
            case 41:
                session = self._named_session(arguments.octets("bctsa_sessid"), at.server)
                if session is not None:
                    way = _DIRECTIONS.get(results.number("bctsr_dir") or 0, "")
                    session.on(at.connection, f"BIND_CONN_TO_SESSION, {way}".removesuffix(", "))
            case 44:
                session = self._named_session(arguments.octets("dsa_sessionid"), at.server)
                if session is not None:
                    session.ended_frame, session.ended_time, session.ended_by = at.frame, at.time, "DESTROY_SESSION"
            case 57:
                client = self.client(at.server, arguments.number("dca_clientid"), at.minor_version)
                client.ended_frame, client.ended_time, client.ended_by = at.frame, at.time, "DESTROY_CLIENTID"

    def _named_session(self, id: bytes | None, server: str) -> NfsSession | None:
        return self.session(id, server) if id is not None else None

    def _begun(self, id: int, owner: bytes | None, verifier: bytes | None, at: AtReply) -> NfsClient:
        """The client that has an ID now; what it had before."""
        known = self._ids.get((at.server, id))
        if known is not None and known.owner in (None, owner) and known.verifier in (None, verifier):
            known.owner, known.verifier = owner, verifier
            return known
        before = self._owners.get((at.server, owner)) if owner is not None else None
        if before is not None and before.verifier == verifier and not (before.confirmed_frame or before.ended_frame):
            # A second EXCHANGE_ID before the ID was used: the server drops the first (RFC 8881, 18.35.5).
            before.id, before.frame, before.time = id, at.frame, at.time
            self._ids[at.server, id] = before
            return before
        lost = ""
        if before is not None and not before.ended_frame:
            lost = RESTARTED if before.verifier != verifier else FORGOTTEN
        elif before is None:
            before = self._lost_at(at)
            lost = GUESSED if before is not None else ""
        client = self._add(at.server, id, at.minor_version)
        if client is self._rest:
            return client
        client.owner, client.verifier, client.frame, client.time = owner, verifier, at.frame, at.time
        client.before, client.lost = before, lost
        if before is not None and not before.ended_frame:
            before.ended_frame, before.ended_time, before.ended_by = at.frame, at.time, "a new client ID"
        if owner is not None:
            self._owners[at.server, owner] = client
        return client

    def _lost_at(self, at: AtReply) -> NfsClient | None:
        """A client from before the capture that lost its session between the same addresses."""
        for client in reversed(self.clients):
            if (
                client.server == at.server
                and client.owner is None
                and client.lost_at is not None
                and not client.ended_frame
                and at.client in client.addresses
            ):
                return client
        return None

    def _exchange_id(self, arguments: Fields, results: Fields, at: AtReply) -> None:
        id = results.number("eir_clientid")
        if id is None:
            return
        owner = arguments.octets("eia_clientowner/co_ownerid")
        at = self._at_trunk(id, owner, results, at)
        client = self._begun(id, owner, arguments.octets("eia_clientowner/co_verifier"), at)
        client.minor_version = at.minor_version
        client.implementation = implementation(arguments, "eia_client_impl_id") or client.implementation
        client.server_implementation = implementation(results, "eir_server_impl_id") or client.server_implementation
        client.roles = roles_of(results.number("eir_flags"))
        self.on(at, client)

    def _at_trunk(self, id: int, owner: bytes | None, results: Fields, at: AtReply) -> AtReply:
        """At the server's first address, where it is one that is known: it has the same major ID and scope, and gives
        the same owner the same client ID (RFC 8881, 2.10.5)."""
        major, scope = results.octets("eir_server_owner/so_major_id"), results.octets("eir_server_scope")
        if major is None or scope is None:
            return at
        key = major, scope, id
        if key not in self._trunks and len(self._trunks) >= MAX_CLIENTS:
            return at
        first = self._trunks.setdefault(key, at.server)
        known = self._ids.get((first, id))
        if first != at.server and (at.server, id) not in self._ids and known is not None and known.owner == owner:
            self._servers[at.server] = first
            if len(known.server_addresses) < MAX_ADDRESSES:
                known.server_addresses[at.server] = None
            return at._replace(server=first)
        return at

    def _setclientid(self, arguments: Fields, results: Fields, at: AtReply) -> None:
        id = results.number("clientid")
        if id is None:
            return
        owner = arguments.octets("client/id")
        self.on(at, self._begun(id, owner, arguments.octets("client/verifier"), at))

    def _confirm(self, client: NfsClient, at: AtReply) -> None:
        client.confirmed_frame = client.confirmed_frame or at.frame
        self.on(at, client)

    def _create_session(self, arguments: Fields, results: Fields, at: AtReply) -> None:
        id = results.octets("csr_sessionid")
        if id is None:
            return
        client = self.client(at.server, arguments.number("csa_clientid"), at.minor_version)
        client.minor_version = at.minor_version
        self._confirm(client, at)
        known = self._sessions.get((at.server, id))
        if known is not None and (known.frame or not known.ended_by):
            return  # A reply to a retransmitted CREATE_SESSION.
        if len(self.sessions) >= MAX_SESSIONS:
            self.untracked += 1
            return
        session = self._add_session(id, at.server, client)
        session.frame, session.time = at.frame, at.time
        fore, back = "csr_fore_chan_attrs", "csr_back_chan_attrs"
        session.fore = SlotTable(True, results.number(f"{fore}/ca_maxrequests"))
        session.back = SlotTable(True, results.number(f"{back}/ca_maxrequests"))
        session.fore_sizes, session.back_sizes = _sizes(results, fore), _sizes(results, back)
        flags = results.number("csr_flags") or 0
        session.persistent, session.back_channel = bool(flags & _PERSIST), bool(flags & _BACK_CHANNEL)
        session.on(at.connection, "CREATE_SESSION")


def _sizes(results: Fields, channel: str) -> tuple[int, int, int, int] | None:
    names = "ca_maxrequestsize", "ca_maxresponsesize", "ca_maxresponsesize_cached", "ca_maxoperations"
    request, response, cached, operations = (results.number(f"{channel}/{name}") for name in names)
    if request is None or response is None or cached is None or operations is None:
        return None
    return request, response, cached, operations
