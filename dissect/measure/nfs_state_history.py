"""NFSv4 state over time: fed the RPCs of a capture, it knows which client held what on which server.

Messages of all connections are taken in the order of time, a batch of frames at a time: ``listener`` notes them, and
``advance`` takes them.  Never raises on what they hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..arrays import Rows
from ..layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from ..onc.compound import compound_call
from ..onc.programs import NFS, NFS_CALLBACK
from ..onc.rpc_header import call_head, results_at
from ..onc.sequence import SlotRequest, SlotResult, slot_request, slot_result
from ..onc.status import nfs4_status
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.listeners import Listener, Listeners
from ..rpcrdma.messages import Message
from ..rpcrdma.reassembly import reassembled_call, reassembled_reply
from ..rpcrdma.rpc_table import PlainRpcs, ProcedureNames, RpcTable
from ..rpcrdma.rpcs import DUPLICATE_REPLY, Reassembled, Rpc
from ..transport.connection import Connection
from .credits import CreditDirection, CreditHistory
from .gss_contexts import GssContexts
from .nfs_slots import SlotTable, SlotUse
from .nfs_state import CALLED_BACK, USED, HeldState, NfsClient, NfsSession, StatusTally
from .nfs_state_clients import CLIENT_OPERATIONS, AtReply, ClientTable
from .nfs_state_events import SentCall, StateEvent, StateListener, StateNotes, called, ended
from .nfs_state_operations import (
    HANDLERS,
    OP_CB_LAYOUTRECALL,
    OP_CB_RECALL,
    OP_OPEN,
    OP_RENEW,
    ChangingStep,
    StateChange,
    recalled,
    walked,
)
from .nfs_state_steps import CompoundLayouts, changing_steps
from .plain_compounds import RENEWING, PlainCompound, compound_kind, plain_compounds
from .pnfs import DataServers

_STATUSES = (
    "GRACE", "NO_GRACE", "DELAY", "STALE_CLIENTID", "STALE_STATEID", "BAD_STATEID", "OLD_STATEID", "EXPIRED",
    "BADSESSION", "DEADSESSION", "BADSLOT", "BAD_HIGH_SLOT", "CONN_NOT_BOUND_TO_SESSION", "SEQ_MISORDERED",
    "SEQ_FALSE_RETRY", "RETRY_UNCACHED_REP", "CLID_INUSE", "CLIENTID_BUSY", "COMPLETE_ALREADY", "RECLAIM_BAD",
    "RECLAIM_CONFLICT", "ADMIN_REVOKED", "DELEG_REVOKED", "CB_PATH_DOWN", "BACK_CHAN_BUSY", "LOCKED", "LOCKS_HELD",
    "SHARE_DENIED", "FILE_OPEN", "DENIED", "DEADLOCK", "LEASE_MOVED", "LAYOUTTRYLATER", "LAYOUTUNAVAILABLE",
    "RECALLCONFLICT", "RETURNCONFLICT", "PNFS_IO_HOLE", "PNFS_NO_LAYOUT", "BAD_SEQID", "WRONG_CRED", "WRONGSEC",
    "REQ_TOO_BIG", "REP_TOO_BIG", "REP_TOO_BIG_TO_CACHE", "TOO_MANY_OPS",
)  # fmt: skip
STATUSES = frozenset(f"NFS4ERR_{name}" for name in _STATUSES)
"""Failures that say something about state."""
NO_REPLY = "no reply"
_SESSION_LOST = frozenset(("NFS4ERR_BADSESSION", "NFS4ERR_DEADSESSION"))
_LOST = frozenset((*_SESSION_LOST, "NFS4ERR_STALE_CLIENTID", "NFS4ERR_STALE_STATEID", "NFS4ERR_EXPIRED"))
MAX_RECALLS = 1000
"""Recalls under way for which delayed calls are counted."""
MAX_FLAGS = 32


class _Asked(NamedTuple):
    """What is known of a request on a slot."""

    request: SlotRequest
    use: SlotUse
    table: SlotTable
    session: NfsSession


class _Messages:
    """The messages of an RPC, put together when they are asked for."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    @cached_property
    def call(self) -> memoryview:
        inline = _inline(self._rpc.call)
        return _prefix(reassembled_call(self._rpc)) if inline is None else inline

    @cached_property
    def reply(self) -> memoryview:
        inline = _inline(self._rpc.reply)
        return _prefix(reassembled_reply(self._rpc)) if inline is None else inline


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
        """Of connections that are not kept."""
        self.security = GssContexts()
        self.pnfs = DataServers(counts=True)
        """To be given the RPCs by who feeds the analyzer."""
        self.compounds = 0
        """NFSv4 COMPOUNDs and callbacks."""
        self.undecoded = 0
        """Of them, those that change state and could not be decoded to their end."""
        self.last_time = 0
        self._queue: list[StateEvent] = []
        self._plain: list[tuple[Rows, PlainRpcs]] = []
        """RPC rows of a batch, of one direction of a connection."""
        self._layouts = CompoundLayouts()
        self._connections: dict[int, Connection] = {}
        self._hosts: dict[tuple[int, int], tuple[str, str]] = {}
        """Server and client, by connection and whether the passive end is the client."""
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
        watch = StateListener(self._queue, self._plain)
        if not self._with_credits:
            return watch
        history = self._histories[number] = CreditHistory(conversation)
        return Listeners(watch, history)

    def notes(self) -> StateNotes:
        """What happened since the last time, which is not taken here."""
        calls = [one.what for one in self._queue if isinstance(one.what, SentCall)]
        lone = {
            one.what.number: (one.time, one.frame)
            for one in self._queue
            if isinstance(one.what, Rpc) and one.what.reply is None
        }
        self._queue.clear()
        self._plain.clear()
        return StateNotes(calls, lone)

    def note(self, notes: StateNotes, table: RpcTable) -> None:
        """The same of all workers, by the numbers of the whole, and the RPCs that ended in the meantime."""
        for call in notes.calls:
            self._queue.append(called(call))
            self._connections[call.connection.number] = call.connection
        for rpc in table.objects:
            self._queue.append(ended(rpc, *notes.lone.get(rpc.number, ())))
        if table.origin is not None:
            self._plain.append((table.plain_rows, table.origin))
            for number, conversation in table.origin.conversations.items():
                self._connections[number] = conversation.connection

    @property
    def credits(self) -> list[CreditDirection]:
        """Of the calls of each connection; of those that are not kept only where they waited for credits."""
        return [*self._blocked, *(one.directions[0] for one in self._histories.values())]

    def evict(self, gone: Iterable[Conversation]) -> None:
        self.advance()
        for conversation in gone:
            number = conversation.connection.number
            self._connections.pop(number, None)
            for backward in (0, 1):
                self._hosts.pop((number, backward), None)
            history = self._histories.pop(number, None)
            if history is not None and history.directions[0].blocked:
                self._blocked.append(history.directions[0])

    def advance(self) -> None:
        """Take what happened since the last time."""
        batches = [plain_compounds(rows, rpcs, self._layouts) for rows, rpcs in self._plain]
        plain = [one for batch in batches for one in batch.compounds]
        asked: list[_Asked | None] = [None] * len(plain)
        times = [one.time for one in self._queue]
        frames = [one.frame for one in self._queue]
        order = np.lexsort(
            (
                np.concatenate([*(b.call_frames for b in batches), *(b.reply_frames for b in batches), frames]),
                np.concatenate([*(b.call_times for b in batches), *(b.reply_times for b in batches), times]),
            )
        )
        count = len(plain)
        for index in order.astype(np.int64).tolist():
            if index < count:
                asked[index] = self._plain_called(plain[index])
                self._plain_recalled(plain[index], asked[index])
            elif index < 2 * count:
                self._plain_ended(plain[index - count], asked[index - count])
            else:
                self._take(self._queue[index - 2 * count])
        for rows, _ in self._plain:
            self.last_time = max(self.last_time, int(rows["call_time"].max()), int(rows["reply_end"].max()))
        self._queue.clear()
        self._plain.clear()

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
        for session in self.sessions:
            for table in (session.fore, session.back):
                table.advance(self.last_time)
                table.settle()

    def _place(self, at: AtReply) -> AtReply:
        server = self.table.server(at.server)
        return at if server == at.server else at._replace(server=server)

    # Plain COMPOUNDs

    def _ends(self, one: PlainCompound) -> tuple[str, str]:
        """Addresses of server and client."""
        backward = one.caller ^ one.kind.callback
        key = one.connection, backward
        hosts = self._hosts.get(key)
        if hosts is None:
            ends = self._connections[one.connection].endpoints
            hosts = self._hosts[key] = ends[1 - backward].address, ends[backward].address
        return self.table.server(hosts[0]), hosts[1]

    def _plain_place(self, one: PlainCompound) -> AtReply:
        return AtReply(*self._ends(one), one.connection, one.kind.minor_version, one.reply_frame, one.reply_end)

    def _plain_called(self, one: PlainCompound) -> _Asked | None:
        if one.request is None:
            return None
        place = one.number, one.call_frame, one.call_time
        return self._request(*self._ends(one), one.connection, one.request, one.kind.callback, *place)

    def _plain_recalled(self, one: PlainCompound, asked: _Asked | None) -> None:
        if one.kind.callback and one.rpc is not None:
            at = self._plain_place(one)._replace(frame=one.call_frame, time=one.call_time)
            self._recall(_Messages(one.rpc).call, at, asked)

    def _plain_ended(self, one: PlainCompound, asked: _Asked | None) -> None:
        kind = one.kind
        client = asked.session.client if asked is not None else None
        if kind.minor_version == 0 and not kind.callback:
            client = self.table.known_on(one.connection)
        decodes = kind.changes or one.elsewhere or (client is not None and client.lease is None)
        if one.rpc is not None and decodes:
            if asked is not None:
                self._asked[one.number] = asked
            self._ended(one.rpc, one.reply_end, one.result)
            return
        self.compounds += 1
        at = self._plain_place(one)
        if asked is not None:
            self._answer(asked, at, one.result, kind.operations, one.status, one.reply_frame)
        if one.changes is not None:
            for step in one.changes.steps():
                self._step(step, at, client, asked)
        if kind.renews and client is not None and one.status == "OK":
            client.renew(at.time, at.frame)
        if one.status in STATUSES:
            self._failed(one.status, at, client or self.table.of_connection(at))

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
            ends = at.server, at.client, at.connection
            asked = self._request(*ends, request, callback, call.number, first.first_frame, first.first_time)
            if asked is not None:
                self._asked[call.number] = asked
        if callback:
            self._recall(data[start:end], at, self._asked.get(call.number))

    def _request(
        self,
        server: str,
        client: str,
        connection: int,
        request: SlotRequest,
        callback: bool,
        number: int,
        frame: int,
        time: int,
    ) -> _Asked | None:
        session = self.table.session(request.session, server)
        if session is None:
            return None
        session.on(connection, CALLED_BACK if callback else USED)
        session.client.addresses.setdefault(client)
        use = SlotUse(number, connection, frame, time, request.sequence, request.cached)
        table = session.back if callback else session.fore
        table.request(use, request)
        return _Asked(request, use, table, session)

    # RPCs that ended

    def _ended(self, rpc: Rpc, time: int, result: SlotResult | None = None) -> None:
        asked = self._asked.pop(rpc.number, None)
        names = ProcedureNames(rpc.program, rpc.version, rpc.minor_version, rpc.procedure, rpc.operations, rpc.name)
        kind = compound_kind(names)
        if kind is None or rpc.call is None or rpc.state == DUPLICATE_REPLY:
            if asked is not None:
                asked.table.answered(asked.use, asked.request.slot, time, None)
            return
        self.compounds += 1
        messages = _Messages(rpc)
        callback = kind.callback
        if asked is None and (rpc.minor_version or callback) and rpc.call.header.procedure == RDMA_NOMSG:
            sent = SentCall(rpc.number, rpc.connection, rpc.call)
            self._ask(sent, messages.call, 0, len(messages.call))  # Its arguments came in a Read chunk.
            asked = self._asked.pop(rpc.number, None)
        frame = rpc.reply_frame or rpc.call_frame
        at = self._place(_at(rpc.call, rpc.connection, callback, frame, time, rpc.minor_version))
        if asked is not None:
            asked.use.rpc = rpc.number
            result = result or self._result(rpc, messages, callback)
            self._answer(asked, at, result, rpc.operations, rpc.status, rpc.reply_frame)
        client = asked.session.client if asked is not None else None
        if rpc.minor_version == 0 and not callback:
            client = self.table.known_on(at.connection)
        if (kind.changes and not callback) or (kind.attributes and client is not None and client.lease is None):
            self._change(rpc, messages, at, client, asked)
        if kind.renews and client is not None and rpc.status == "OK":
            client.renew(at.time, at.frame)
        if rpc.reply is None and not callback and (owner := client or self.table.known_on(at.connection)) is not None:
            owner.note_status(NO_REPLY, rpc.call_frame, rpc.call.operation.first_time)
        if rpc.status in STATUSES:
            self._failed(rpc.status, at, client or self.table.of_connection(at))

    def _result(self, rpc: Rpc, messages: _Messages, callback: bool) -> SlotResult | None:
        if rpc.reply is None:
            return None
        inline = rpc.reply.data[rpc.reply.start : rpc.reply.end]
        for data in (inline, None):
            view = messages.reply if data is None else data
            at = results_at(view, rpc.gss)
            found = slot_result(view, at, len(view), callback) if at >= 0 else None
            if found is not None:
                return found
        return None

    def _answer(
        self,
        asked: _Asked,
        at: AtReply,
        result: SlotResult | None,
        operations: tuple[str, ...],
        status: str,
        frame: int,
    ) -> None:
        use, session = asked.use, asked.session
        use.operations, use.status, use.reply_frame = operations, status, frame
        asked.table.answered(use, asked.request.slot, at.time, result)
        if result is None or asked.table is session.back:
            return
        if not result.status:
            session.client.renew(at.time, at.frame)
        elif nfs4_status(result.status) in _SESSION_LOST and not session.ended_by:
            session.ended_frame, session.ended_time = at.frame, at.time
            session.ended_by = nfs4_status(result.status)
        for bit in range(MAX_FLAGS) if result.flags else ():
            if result.flags >> bit & 1:
                session.flags.setdefault(1 << bit, StatusTally()).add(at.frame, at.time)

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

    def _change(
        self,
        rpc: Rpc,
        messages: _Messages,
        at: AtReply,
        client: NfsClient | None,
        asked: _Asked | None,
    ) -> None:
        """Every operation that succeeded."""
        head = call_head(messages.call, 0, len(messages.call))
        if head is None or not head[4]:
            self.undecoded += 1
            return
        walk = walked(messages.call, messages.reply, rpc.gss) if rpc.reply is not None else None
        if walk is None:
            return
        self.undecoded += bool(walk.problem)
        for step in changing_steps(walk, messages.call, messages.reply):
            self._step(step, at, client, asked)

    def _step(self, step: ChangingStep, at: AtReply, client: NfsClient | None, asked: _Asked | None) -> None:
        operation, arguments, results, handle = step
        if operation in CLIENT_OPERATIONS:
            self.table.succeeded(operation, arguments, results, at)
            return
        if at.minor_version == 0:
            id = {OP_OPEN: ("owner", "clientid"), OP_RENEW: ("clientid",)}.get(operation)
            if id is not None and (number := arguments.number(*id)) is not None:
                client = self.table.client(at.server, number, 0)
                self.table.on(at, client)
        if client is None and at.minor_version == 0:
            client = self.table.of_connection(at)
        if client is None:
            return
        if at.minor_version == 0 and operation in RENEWING:
            client.renew(at.time, at.frame)
        session = asked.session if asked is not None else None
        change = StateChange(arguments, results, handle, at.frame, at.time, at.connection, client, session)
        HANDLERS[operation](change)
        if self._recalls:
            self._recalls = [one for one in self._recalls if not one[1].returned_frame]

    def _recall(self, call: memoryview, at: AtReply, asked: _Asked | None) -> None:
        """What a callback recalls, when it is sent."""
        head = call_head(call, 0, len(call))
        if head is None or not head[4]:
            return
        compound = compound_call(call, head[4], len(call), callback=True)
        client = asked.session.client if asked is not None else None
        for operation, place in zip(compound.operations, compound.places, strict=False):
            if operation in (OP_CB_RECALL, OP_CB_LAYOUTRECALL):
                client = client or self.table.of_connection(at._replace(minor_version=compound.minor_version))
                state = recalled(client, operation, call, place, at.frame, at.time)
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


def _inline(message: Message | None) -> memoryview | None:
    """A message that came whole in one Send, without chunks; None where it did not."""
    if message is None or message.header.procedure != RDMA_MSG or message.header.version != 1:
        return None
    header = message.header
    if header.problem or header.reads or header.writes or header.reply is not None:
        return None
    view = memoryview(message.data)[message.start : message.end]
    return view if len(view) == message.inline_length else None


def _prefix(message: Reassembled | None) -> memoryview:
    return memoryview(message.prefix if message is not None else b"")
