"""NFSv4 clients and sessions: how they begin, what belongs to them, how they end (RFC 8881, 18.34 to 18.37, 18.50;
RFC 7530, 16.33 and 16.34).
"""

from __future__ import annotations

from typing import NamedTuple

from .nfs_slots import SlotTable
from .nfs_state import MAX_CLIENTS, MAX_SESSIONS, NfsClient, NfsSession
from .nfs_state_operations import Fields, implementation, roles_of

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
"""That are listed of a client, or of its server."""
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
        """Of NFSv4.0, the client whose calls a connection carries."""
        self._rest = NfsClient(0, "", None, None)
        """Stands for clients beyond the limit."""

    def server(self, address: str) -> str:
        """The address by which the server that has this one is known."""
        return self._servers.get(address, address)

    def session(self, id: bytes, server: str) -> NfsSession | None:
        """A session that is in use, perhaps from before the capture; None beyond the limit."""
        known = self._sessions.get((server, id)) or self._by_id.get(id)
        if known is not None:
            return known
        if len(self.sessions) >= MAX_SESSIONS or len(self.clients) >= MAX_CLIENTS:
            self.untracked += 1
            return None
        return self._add_session(id, server, self._add(server, None, None))

    def client(self, server: str, id: int | None, minor_version: int | None) -> NfsClient:
        """The client with an ID, perhaps from before the capture."""
        known = self._ids.get((server, id)) if id is not None else None
        return known or self._add(server, id, minor_version)

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
        owner = arguments.octets("eia_clientowner", "co_ownerid")
        at = self._at_trunk(id, owner, results, at)
        client = self._begun(id, owner, arguments.octets("eia_clientowner", "co_verifier"), at)
        client.minor_version = at.minor_version
        client.implementation = implementation(arguments, "eia_client_impl_id") or client.implementation
        client.server_implementation = implementation(results, "eir_server_impl_id") or client.server_implementation
        client.roles = roles_of(results.number("eir_flags"))
        self.on(at, client)

    def _at_trunk(self, id: int, owner: bytes | None, results: Fields, at: AtReply) -> AtReply:
        """At the server's first address, where it is one that is known: it has the same major ID and scope, and gives
        the same owner the same client ID (RFC 8881, 2.10.5)."""
        major, scope = results.octets("eir_server_owner", "so_major_id"), results.octets("eir_server_scope")
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
        owner = arguments.octets("client", "id")
        self.on(at, self._begun(id, owner, arguments.octets("client", "verifier"), at))

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
        session.fore = SlotTable(True, results.number(fore, "ca_maxrequests"))
        session.back = SlotTable(True, results.number(back, "ca_maxrequests"))
        session.fore_sizes, session.back_sizes = _sizes(results, fore), _sizes(results, back)
        flags = results.number("csr_flags") or 0
        session.persistent, session.back_channel = bool(flags & _PERSIST), bool(flags & _BACK_CHANNEL)
        session.on(at.connection, "CREATE_SESSION")


def _sizes(results: Fields, channel: str) -> tuple[int, int, int, int] | None:
    names = "ca_maxrequestsize", "ca_maxresponsesize", "ca_maxresponsesize_cached", "ca_maxoperations"
    request, response, cached, operations = (results.number(channel, name) for name in names)
    if request is None or response is None or cached is None or operations is None:
        return None
    return request, response, cached, operations
