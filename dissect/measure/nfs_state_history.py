"""NFSv4 state over time: fed the RPCs of a capture, it knows which client held what on which server.

Messages of all connections are taken in the order of time, a batch of frames at a time: ``listener`` notes them, and
``advance`` takes them.  Never raises on what they hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from ..arrays import Int64s, Rows, distinct, take, unique
from ..layers.rpcrdma_codes import RDMA_NOMSG
from ..named_tuple import NamedTuple
from ..onc.compound import (
    OP_OPEN,
    SlotResult,
    compound_call,
    slot_request,
)
from ..onc.rpc_header import NFS, NFS_CALLBACK, call_head
from ..onc.status import nfs4_status
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.listeners import Listener, Listeners
from ..rpcrdma.messages import Message
from ..rpcrdma.rpc_table import ProcedureNames, RpcRows, RpcTable
from ..rpcrdma.rpcs import DUPLICATE_REPLY, Rpc
from ..rpcrdma.unanswered import reply_may_be_missing
from ..transport.connection import Connection, last_gap
from .compound_rows import (
    RENEWING,
    STATUSES,
    Changes,
    CompoundKind,
    CompoundLayouts,
    CompoundRow,
    Compounds,
    RpcMessages,
    changing_steps,
    compound_kind,
    slot_result_of,
)
from .credits import CreditDirection, CreditHistory
from .data_servers import DataServers
from .gss_contexts import GssContexts
from .nfs_state import CALLED_BACK, USED, HeldState, NfsClient, NfsSession, SlotTable, SlotUse, StatusTally
from .nfs_state_operations import (
    CLIENT_OPERATIONS,
    HANDLERS,
    OP_CB_LAYOUTRECALL,
    OP_CB_RECALL,
    OP_RENEW,
    AtReply,
    ChangingStep,
    ClientTable,
    StateChange,
    recalled,
    walked,
)


class SentCall(NamedTuple):
    """A call whose RPC may still be open."""

    number: int
    """The number of its RPC."""
    connection: Connection
    message: Message


class StateEvent(NamedTuple):
    """Something that may tell of state."""

    time: int
    frame: int
    what: SentCall | Rpc
    """A call, or an RPC that ended."""


class StateNotes(NamedTuple):
    """What a worker of a divided capture notes in a batch beside the RPCs that ended."""

    calls: list[SentCall]
    lone: dict[int, tuple[int, int]]
    """Number of an RPC that ended without a reply -> when, and at which frame."""


class StateListener(Listener):
    """Notes the events of one conversation."""

    takes_rows = True
    reads_bytes = False

    def __init__(self, queue: list[StateEvent], ended: list[tuple[Rows, RpcRows]]) -> None:
        self._queue, self._row_batches = queue, ended

    def call_sent(self, rpc: Rpc) -> None:
        assert rpc.call is not None
        self._queue.append(called(SentCall(rpc.number, rpc.connection, rpc.call)))

    def rpc_ended(self, rpc: Rpc) -> None:
        self._queue.append(ended(rpc, rpc.connection.last_time, rpc.connection.last_frame))

    row_made = call_sent

    def rows_ended(self, rows: Rows, rpcs: RpcRows | None) -> None:
        if rpcs is not None:
            self._row_batches.append((rows, rpcs))


def called(call: SentCall) -> StateEvent:
    sent = call.message.operation
    return StateEvent(sent.first_time, sent.last_frame, call)


def ended(rpc: Rpc, time: int = 0, frame: int = 0) -> StateEvent:
    """``time`` and ``frame``: of one without a reply."""
    if rpc.reply is None:
        return StateEvent(time, frame, rpc)
    answer = rpc.reply.operation
    return StateEvent(answer.last_time, answer.last_frame, rpc)


NO_REPLY = "no reply"
_SESSION_LOST = frozenset(("NFS4ERR_BADSESSION", "NFS4ERR_DEADSESSION"))
_LOST = frozenset((*_SESSION_LOST, "NFS4ERR_STALE_CLIENTID", "NFS4ERR_STALE_STATEID", "NFS4ERR_EXPIRED"))
MAX_RECALLS = 1000
"""Recalls under way for which delayed calls are counted."""
MAX_FLAGS = 32
MANY = 256
"""Events between which it takes less time to look for those at which nothing happens than to take each."""


class _Asked(NamedTuple):
    """What is known of a request on a slot."""

    use: SlotUse
    table: SlotTable
    session: NfsSession


class NfsStateHistory:
    """Give ``listener`` to the analyzer, call ``advance`` behind each batch, and ``finish`` at the end.

    ``evict`` is given conversations of which nothing more comes, where they are too many to be kept.  Of a divided
    capture ``notes`` is called in each worker, and ``note`` where the RPCs of all of them are.
    """

    def __init__(self, with_credits: bool = True) -> None:
        """``with_credits``: ``credits`` are followed, too."""
        self._with_credits = with_credits
        self.table = ClientTable()
        self._histories: dict[int, CreditHistory] = {}
        self._blocked: list[CreditDirection] = []
        """Credit waits of connections that are not kept."""
        self.security = GssContexts()
        self.pnfs = DataServers(counts=True)
        """To be given the RPCs by who feeds the analyzer."""
        self.undecoded = 0
        """COMPOUNDs that change state and could not be decoded to their end."""
        self.last_time = 0
        self._queue: list[StateEvent] = []
        self._row_batches: list[tuple[Rows, RpcRows]] = []
        """RPC rows of a batch, of one direction of a connection."""
        self._layouts = CompoundLayouts()
        self._connections: dict[int, Connection] = {}
        self._last_gaps: dict[str, float] = {}
        """By client's address: ``last_gap`` of its connections that are not kept."""
        self._asked: dict[int, _Asked] = {}
        """By number of the RPC."""
        self._recalls: list[tuple[str, HeldState]] = []
        """Under way, with the server."""

    @property
    def clients(self) -> list[NfsClient]:
        return self.table.clients

    @property
    def sessions(self) -> list[NfsSession]:
        return self.table.sessions

    def listener(self, conversation: Conversation) -> Listener:
        number = conversation.connection.number
        self._connections[number] = conversation.connection
        watch = StateListener(self._queue, self._row_batches)
        if not self._with_credits or not conversation.connection.rdma:
            return watch
        history = self._histories[number] = CreditHistory(conversation, max_bins=2)  # Only sums are asked for.
        return Listeners(watch, history)

    def notes(self) -> StateNotes:
        """What happened since the last time, which is not taken here."""
        calls = [event.what for event in self._queue if isinstance(event.what, SentCall)]
        lone = {
            event.what.number: (event.time, event.frame)
            for event in self._queue
            if isinstance(event.what, Rpc) and event.what.reply is None
        }
        self._queue.clear()
        self._row_batches.clear()
        return StateNotes(calls, lone)

    def note(self, notes: StateNotes, table: RpcTable) -> None:
        """Take the notes of all workers, numbered as in the whole capture, and the RPCs that ended meanwhile."""
        for call in notes.calls:
            self._queue.append(called(call))
            self._connections[call.connection.number] = call.connection
        for rpc in table.objects:
            self._queue.append(ended(rpc, *notes.lone.get(rpc.number, ())))
        if table.origin is not None:
            self._row_batches.append((table.only_rows, table.origin))
            for number, conversation in table.origin.conversations.items():
                self._connections[number] = conversation.connection

    @property
    def credits(self) -> list[CreditDirection]:
        """Credits of each connection's calls; of connections that are not kept, only where they waited for credits."""
        return [*self._blocked, *(history.directions[0] for history in self._histories.values())]

    def evict(self, gone: Iterable[Conversation]) -> None:
        self.advance()
        for conversation in gone:
            number = conversation.connection.number
            self._note_gap(self._connections.pop(number, None))
            history = self._histories.pop(number, None)
            if history is not None and history.directions[0].blocked:
                self._blocked.append(history.directions[0])

    def _note_gap(self, connection: Connection | None) -> None:
        if connection is not None and (last := last_gap(connection, 0)):
            address = connection.endpoints[0].address
            self._last_gaps[address] = max(self._last_gaps.get(address, 0), last)

    def advance(self) -> None:
        """Take what happened since the last time."""
        compounds = Compounds(self._layouts, self._ends)
        for rows, rpcs in self._row_batches:
            compounds.add(rows, rpcs)
        rows = compounds.rows
        count = len(rows)
        frames, times = ([getattr(event, name) for event in self._queue] for name in ("frame", "time"))
        order = np.lexsort(
            (
                np.concatenate([rows["call_last_frame"], rows["reply_frame"], frames]),
                np.concatenate([rows["call_time"], rows["reply_end"], times]),
            )
        )
        # Behind these a session may be another one.
        ending = np.append(np.zeros(count, np.bool_), compounds.of_kind(lambda kind: kind.clients))
        ending = np.append(ending, np.ones(len(self._queue), np.bool_))
        asked: dict[int, _Asked] = {}
        bounds = np.concatenate(([0], ending[order].nonzero()[0] + 1, [len(order)]))
        long = (np.diff(bounds) >= MANY).nonzero()[0]
        for index, events in enumerate(np.split(order, np.sort(bounds[[*long, *(long + 1)]]))):
            taken: dict[int, NfsSession] = {}
            if index % 2:
                events, taken = self._take_routine(compounds, events)
            mine = unique(events[events < 2 * count] % max(count, 1))
            listed = dict(zip(mine.tolist(), compounds.listed(mine), strict=True))
            for index in events.tolist():
                if index < count:
                    self._row_called(listed[index], index, asked)
                elif index < 2 * count:
                    self._row_ended(listed[index - count], asked.pop(index - count, None), taken.get(index - count))
                else:
                    self._take(self._queue[index - 2 * count])
        for rows, _ in self._row_batches:
            self.last_time = max(self.last_time, int(rows["call_time"].max()), int(rows["reply_end"].max()))
        self._queue.clear()
        self._row_batches.clear()

    def _take(self, event: StateEvent) -> None:
        self.last_time = max(self.last_time, event.time)
        what = event.what
        if isinstance(what, Rpc):
            self.security.ended(what, event.time)
            self._ended(what, event.time)
        else:
            message = what.message
            self.security.called(message, what.connection)
            self._ask(what, message.data, message.start, message.end)

    def finish(self) -> None:
        """The capture is over."""
        self.advance()
        for connection in self._connections.values():
            self._note_gap(connection)
        for client in self.clients:
            client.last_gap = max([self._last_gaps.get(address, 0) for address in client.addresses], default=0)
        for session in self.sessions:
            for table in (session.fore, session.back):
                table.advance(self.last_time)
                table.settle()

    def keep(self, ends: Collection[tuple[str, str]]) -> None:
        """Keep only clients and security contexts of these addresses of client and server, and what is theirs."""

        def meant(clients: Iterable[str], servers: Iterable[str]) -> bool:
            return any(client in clients and server in servers for client, server in ends)

        self.clients[:] = [
            client for client in self.clients if meant(client.addresses, (client.server, *client.server_addresses))
        ]
        self.sessions[:] = [session for session in self.sessions if session.client in self.clients]
        contexts = self.security.contexts
        contexts[:] = [context for context in contexts if meant((context.client,), (context.server,))]
        used = [(credit, *credit.connection.endpoints) for credit in self.credits]
        self._blocked = [blocked for blocked, client, server in used if (client.address, server.address) in ends]
        self._histories.clear()

    def _place(self, at: AtReply) -> AtReply:
        server = self.table.server(at.server)
        return at if server == at.server else at._replace(server=server)

    # Rows

    def _ends(self, connection: int, client: int) -> tuple[str, str]:
        """Addresses of server and client."""
        ends = self._connections[connection].endpoints
        return ends[1 - client].address, ends[client].address

    def _take_routine(self, compounds: Compounds, events: Int64s) -> tuple[Int64s, dict[int, NfsSession]]:
        """Take requests on slots, and their ends, of the sessions of which there is nothing else.

        Returns the events that are left, and of the ends among these, which say more, the sessions.
        """
        rows = compounds.rows
        count = len(rows)
        mine = events < 2 * count
        which = events[mine] % max(count, 1)
        ended = events[mine] >= count
        chosen = take(rows, which)
        back = compounds.of_kind(lambda kind: kind.callback)[which]
        names = "session", "connection", "ends"
        first, group = distinct(*(chosen[name] for name in names), back)
        groups = zip(*(chosen[name][first].tolist() for name in names), back[first].tolist(), strict=True)
        users: dict[int, list[tuple[int, str]]] = {}
        """Connections and addresses of clients, by number of the session."""
        others = set()
        of_group = np.zeros(len(first), np.int64)
        for _, at, (code, connection, ends, callback) in sorted(
            zip(first.tolist(), range(len(first)), groups, strict=True)
        ):
            server, client = compounds.ends[ends]
            session = None
            if code >= 0:
                session = self.table.known_session(compounds.sessions[code], self.table.server(server))
            if session is None:
                continue
            if not callback:
                users.setdefault(session.number, []).append((connection, client))
                of_group[at] = session.number
            elif connection not in session.connections:
                others.add(session.number)  # Connections are listed in the order in which they appear.
        numbers = of_group[group]
        taken = np.zeros(len(which), np.bool_)
        for number in users.keys() - others:
            session = self.sessions[number - 1]
            some = (numbers == number).nonzero()[0]
            if session.fore.take_routine(take(chosen, some), ended[some], compounds.results, compounds.uses):
                taken[some] = True
                for connection, client in users[number]:
                    session.on(connection, USED)
                    session.client.addresses.setdefault(client)
        done = (taken & ended).nonzero()[0]
        clients = np.array([0, *(session.client.number for session in self.sessions)])[numbers[done]]
        for number in unique(clients).tolist():
            renewing = take(chosen, done[clients == number])
            self.table.numbered(number).renew_often(renewing["reply_end"], renewing["reply_frame"])
        more = done[compounds.notable[which[done]]]
        left = ~mine
        taken[more] = False
        left[mine] = ~taken
        by_columns = zip(which[more].tolist(), numbers[more].tolist(), strict=True)
        return events[left], {row: self.sessions[number - 1] for row, number in by_columns}

    def _row_called(self, row: CompoundRow, index: int, asked: dict[int, _Asked]) -> None:
        server, client = row.ends
        server, callback = self.table.server(server), row.kind.callback
        request = None
        if row.session is not None:
            use = SlotUse(row.number, row.connection, row.call_frame, row.call_time, row.slot, row.sequence, row.cached)
            request = self._request(server, client, row.session, callback, use)
        if request is not None:
            asked[index] = request
        if callback and isinstance(row.changes, Rpc):
            minor_version = row.kind.minor_version
            at = AtReply(server, client, row.connection, minor_version, row.call_frame, row.call_time)
            self._recall(RpcMessages(row.changes).call, at, request and request.session)

    def _row_ended(self, row: CompoundRow, asked: _Asked | None, session: NfsSession | None) -> None:
        """``session``: where its slot was taken already."""
        kind, changes = row.kind, row.changes
        session = asked.session if asked is not None else session
        if asked is not None:
            self._answer(asked, row.reply_end, row.reply_frame, row.result, kind.operations, row.status)
        if changes is not None or kind.renews or row.status in STATUSES:
            at = AtReply(*row.ends, row.connection, kind.minor_version, row.reply_frame, row.reply_end)
            steps: Iterable[ChangingStep] = ()
            if isinstance(changes, Changes):
                steps = changes.steps()
                self.undecoded += changes.places.problem
            if isinstance(changes, Rpc) and self._may_change(kind, self._client(kind, session, row.connection)):
                steps = self._steps(changes, RpcMessages(changes))
            self._conclude(kind, self._place(at), session, row.status, steps)

    # Calls

    def _ask(self, call: SentCall, data: memoryview, start: int, end: int) -> None:
        """Note the slot of a call, where its first bytes are there, and what it recalls."""
        head = call_head(data, start, end)
        if head is None or not head[4] or head[2] != 1:
            return
        callback = head[0] == NFS_CALLBACK
        if not callback and head[:2] != (NFS, 4):
            return
        request = slot_request(data, start + head[4], end, callback)
        first = call.message.operation
        at = self._place(_at(call.message, call.connection, callback, first.first_frame, first.first_time))
        if request is not None:
            session, sequence, slot, _, cached = request
            use = SlotUse(call.number, at.connection, first.first_frame, first.first_time, slot, sequence, cached)
            asked = self._request(at.server, at.client, session, callback, use)
            if asked is not None:
                self._asked[call.number] = asked
        if callback:
            asked = self._asked.get(call.number)
            self._recall(data[start:end], at, asked and asked.session)

    def _request(self, server: str, client: str, id: bytes, callback: bool, use: SlotUse) -> _Asked | None:
        session = self.table.session(id, server)
        if session is None:
            return None
        session.on(use.connection, CALLED_BACK if callback else USED)
        session.client.addresses.setdefault(client)
        table = session.back if callback else session.fore
        table.request(use)
        return _Asked(use, table, session)

    # RPCs that ended

    def _ended(self, rpc: Rpc, time: int) -> None:
        asked = self._asked.pop(rpc.number, None)
        names = ProcedureNames(rpc.program, rpc.version, rpc.minor_version, rpc.procedure, rpc.operations, rpc.name)
        kind = compound_kind(names)
        if kind is None or rpc.call is None or rpc.state == DUPLICATE_REPLY:
            if asked is not None:
                asked.table.answered(asked.use, time, None)
            return
        messages = RpcMessages(rpc)
        callback = kind.callback
        if asked is None and (rpc.minor_version or callback) and rpc.call.header.procedure == RDMA_NOMSG:
            sent = SentCall(rpc.number, rpc.connection, rpc.call)
            self._ask(sent, messages.call, 0, len(messages.call))  # Its arguments came in a Read chunk.
            asked = self._asked.pop(rpc.number, None)
        frame = rpc.reply_frame or rpc.call_frame
        at = self._place(_at(rpc.call, rpc.connection, callback, frame, time, rpc.minor_version))
        session = asked.session if asked is not None else None
        client = self._client(kind, session, at.connection)
        if asked is not None:
            asked.use.rpc = rpc.number
            result = slot_result_of(rpc, messages, callback)
            self._answer(asked, time, rpc.reply_frame, result, rpc.operations, rpc.status)
        steps: Iterable[ChangingStep] = ()
        if self._may_change(kind, client):
            steps = self._steps(rpc, messages)
        self._conclude(kind, at, session, rpc.status, steps)
        if not callback and not reply_may_be_missing(rpc):
            owner = client or self.table.known_on(at.connection)
            if owner is not None:
                owner.note_status(NO_REPLY, rpc.call_frame, rpc.call.operation.first_time)

    def _client(self, kind: CompoundKind, session: NfsSession | None, connection: int) -> NfsClient | None:
        """Whose COMPOUND it is, as far as it says so or others on its connection did."""
        if kind.minor_version == 0 and not kind.callback:
            return self.table.known_on(connection)
        return session.client if session is not None else None

    def _answer(
        self,
        asked: _Asked,
        time: int,
        frame: int,
        result: SlotResult | None,
        operations: tuple[str, ...],
        status: str,
    ) -> None:
        """A request on a slot has ended, with a reply in this ``frame``, or 0."""
        use, session = asked.use, asked.session
        use.operations, use.status, use.reply_frame = operations, status, frame
        asked.table.answered(use, time, result)
        if result is None or asked.table is session.back:
            return
        if not result.status:
            session.client.renew(time, frame)
        elif nfs4_status(result.status) in _SESSION_LOST and not session.ended_by:
            session.ended_frame, session.ended_time = frame, time
            session.ended_by = nfs4_status(result.status)
        for bit in range(MAX_FLAGS) if result.flags else ():
            if result.flags >> bit & 1:
                session.flags.setdefault(1 << bit, StatusTally()).add(frame, time)

    def _conclude(
        self, kind: CompoundKind, at: AtReply, session: NfsSession | None, status: str, steps: Iterable[ChangingStep]
    ) -> None:
        """What a COMPOUND that has ended says beside its slot: ``steps`` of it succeeded."""
        client = self._client(kind, session, at.connection)
        for step in steps:
            self._step(step, at, client, session)
        if kind.renews and client is not None and status == "OK":
            client.renew(at.time, at.frame)
        if status in STATUSES:
            self._failed(status, at, client or self.table.of_connection(at))

    def _failed(self, status: str, at: AtReply, client: NfsClient) -> None:
        client.note_status(status, at.frame, at.time)
        if status == "NFS4ERR_GRACE":
            client.grace_ended = None
        elif status == "NFS4ERR_DELAY":
            for server, state in self._recalls:
                state.delays += server == at.server
        elif status in _LOST and client.lost_at is None:
            client.lost_at = at.time, at.frame
        elif status == "NFS4ERR_DENIED":
            client.denied += 1

    # What operations change

    def _may_change(self, kind: CompoundKind, client: NfsClient | None) -> bool:
        """Whether operations of a COMPOUND may change state, or say how long the lease is, which is not known yet."""
        asks = kind.attributes and client is not None and client.lease is None
        return asks or (kind.changes and not kind.callback)

    def _steps(self, rpc: Rpc, messages: RpcMessages) -> Iterable[ChangingStep]:
        """Every operation that succeeded and may change state."""
        head = call_head(messages.call, 0, len(messages.call))
        if head is None or not head[4]:
            self.undecoded += 1
            return ()
        walk = walked(messages.call, messages.reply, rpc.gss) if rpc.reply is not None else None
        if walk is None:
            return ()
        self.undecoded += bool(walk.problem)
        return changing_steps(walk, messages.call, messages.reply)

    def _step(self, step: ChangingStep, at: AtReply, client: NfsClient | None, session: NfsSession | None) -> None:
        operation, arguments, results, handle = step
        if operation in CLIENT_OPERATIONS:
            self.table.succeeded(operation, arguments, results, at)
            return
        if at.minor_version == 0:
            id = {OP_OPEN: "owner/clientid", OP_RENEW: "clientid"}.get(operation)
            if id is not None and (number := arguments.number(id)) is not None:
                client = self.table.client(at.server, number, 0)
                self.table.on(at, client)
        if client is None and at.minor_version == 0:
            client = self.table.of_connection(at)
        if client is None:
            return
        if at.minor_version == 0 and operation in RENEWING:
            client.renew(at.time, at.frame)
        change = StateChange(arguments, results, handle, at.frame, at.time, at.connection, client, session)
        HANDLERS[operation](change)
        if self._recalls:
            self._recalls = [recall for recall in self._recalls if not recall[1].returned_frame]

    def _recall(self, call: memoryview, at: AtReply, session: NfsSession | None) -> None:
        """What a callback recalls, when it is sent."""
        head = call_head(call, 0, len(call))
        if head is None or not head[4]:
            return
        compound = compound_call(call, head[4], len(call), callback=True)
        client = session.client if session is not None else None
        for operation, position in zip(compound.operations, compound.places, strict=False):
            if operation in (OP_CB_RECALL, OP_CB_LAYOUTRECALL):
                client = client or self.table.of_connection(at._replace(minor_version=compound.minor_version))
                state = recalled(client, operation, call, position, at.frame, at.time)
                if state is not None and len(self._recalls) < MAX_RECALLS:
                    self._recalls.append((at.server, state))


def _at(
    call: Message, connection: Connection, callback: bool, frame: int, time: int, minor_version: int | None = None
) -> AtReply:
    """Server and client of an RPC; of a callback, the server is who calls."""
    caller = call.operation.initiator
    client, server = (1 - caller, caller) if callback else (caller, 1 - caller)
    ends = connection.endpoints
    return AtReply(ends[server].address, ends[client].address, connection.number, minor_version, frame, time)
