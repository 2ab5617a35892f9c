"""NFSv4 state over time: fed the RPCs of a capture, it knows which client held what on which server.

Messages of all connections are taken in the order of time, a batch of frames at a time: ``listener`` notes them, and
``advance`` takes them.  Never raises on what they hold.
"""

from __future__ import annotations

from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from ..layers.rpcrdma_codes import RDMA_NOMSG
from ..onc.compound import (
    OP_GETDEVICEINFO,
    OP_LAYOUTGET,
    CompoundReply,
    compound_call,
    compound_reply,
    operation_names,
)
from ..onc.filehandles import CompoundStep, walk_filehandles
from ..onc.programs import NFS, NFS_CALLBACK
from ..onc.rpc_header import call_head, results_at
from ..onc.sequence import SlotRequest, SlotResult, slot_request, slot_result
from ..onc.status import nfs4_status
from ..onc.xdr import word
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.listeners import Listener, Listeners
from ..rpcrdma.messages import Message
from ..rpcrdma.reassembly import reassembled_call, reassembled_reply
from ..rpcrdma.rpcs import DUPLICATE_REPLY, Reassembled, Rpc
from ..transport.operations import Operation
from .credits import CreditHistory
from .gss_contexts import GssContexts
from .nfs_slots import SlotTable, SlotUse
from .nfs_state import CALLED_BACK, USED, HeldState, NfsClient, NfsSession, StatusTally
from .nfs_state_clients import CLIENT_OPERATIONS, AtReply, ClientTable
from .nfs_state_operations import (
    HANDLERS,
    LEASE_TIME,
    OP_CB_LAYOUTRECALL,
    OP_CB_RECALL,
    OP_GETATTR,
    OP_OPEN,
    OP_RENEW,
    StateChange,
    decoded_step,
    recalled,
)
from .pnfs import PNFS_OPERATIONS, DataServers

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
_CHANGING = (frozenset(HANDLERS) - {OP_GETATTR}) | CLIENT_OPERATIONS | PNFS_OPERATIONS
"""Operations that may change state."""
_RENEWING = frozenset((4, 8, 12, 14, 18, 20, 21, 25, 30, 34, 38))
"""Of NFSv4.0: RENEW, and what has a stateid or an owner (RFC 7530, 9.5)."""
_CHANGING_NAMES = frozenset(operation_names(tuple(_CHANGING)))
_RENEWING_NAMES = frozenset(operation_names(tuple(_RENEWING)))
MAX_RECALLS = 1000
"""Recalls under way for which delayed calls are counted."""
MAX_FLAGS = 32


class _Event(NamedTuple):
    time: int
    rpc: Rpc
    ended: bool


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
        return _prefix(reassembled_call(self._rpc))

    @cached_property
    def reply(self) -> memoryview:
        return _prefix(reassembled_reply(self._rpc))


class NfsStateHistory:
    """Give ``listener`` to the analyzer, call ``advance`` behind each batch, and ``finish`` at the end."""

    def __init__(self) -> None:
        self.table = ClientTable()
        self.credits: list[CreditHistory] = []
        self.security = GssContexts()
        self.pnfs = DataServers()
        self.compounds = 0
        """NFSv4 COMPOUNDs and callbacks."""
        self.undecoded = 0
        """Of them, those that change state and could not be decoded to their end."""
        self.last_time = 0
        self._queue: list[_Event] = []
        self._asked: dict[Rpc, _Asked] = {}
        self._recalls: list[tuple[str, HeldState]] = []
        """Under way, with the server."""

    @property
    def clients(self) -> list[NfsClient]:
        return self.table.clients

    @property
    def sessions(self) -> list[NfsSession]:
        return self.table.sessions

    def listener(self, conversation: Conversation) -> Listener:
        self.credits.append(CreditHistory(conversation))
        return Listeners(_Watch(self._queue), self.credits[-1])

    def advance(self) -> None:
        """Take what happened since the last time."""
        for event in sorted(self._queue, key=itemgetter(0)):
            self.last_time = max(self.last_time, event.time)
            if event.ended:
                self.security.ended(event.rpc, event.time)
                self.pnfs.add(event.rpc)
                self._ended(event.rpc, event.time)
            else:
                self.security.called(event.rpc)
                assert event.rpc.call is not None
                message = event.rpc.call
                self._ask(event.rpc, message.data, message.start, message.end)
        self._queue.clear()

    def finish(self) -> None:
        """The capture is over."""
        self.advance()
        for session in self.sessions:
            for table in (session.fore, session.back):
                table.advance(self.last_time)
                table.settle()

    def _place(self, rpc: Rpc, time: int, callback: bool) -> AtReply:
        at = _place(rpc, time, callback)
        server = self.table.server(at.server)
        return at if server == at.server else at._replace(server=server)

    # Calls

    def _ask(self, rpc: Rpc, data: memoryview, start: int, end: int) -> None:
        """Note the slot of a call, where its first bytes are there."""
        assert rpc.call is not None
        head = call_head(data, start, end)
        if head is None or not head[4] or head[2] != 1:
            return
        callback = head[0] == NFS_CALLBACK
        if not callback and head[:2] != (NFS, 4):
            return
        request = slot_request(data, start + head[4], end, callback)
        if request is None:
            return
        at = self._place(rpc, rpc.call.operation.first_time, callback)
        session = self.table.session(request.session, at.server)
        if session is None:
            return
        session.on(at.connection, CALLED_BACK if callback else USED)
        session.client.addresses.setdefault(at.client)
        first = rpc.call.operation
        use = SlotUse(rpc.number, at.connection, first.first_frame, first.first_time, request.sequence, request.cached)
        table = session.back if callback else session.fore
        table.request(use, request)
        self._asked[rpc] = _Asked(request, use, table, session)

    # RPCs that ended

    def _ended(self, rpc: Rpc, time: int) -> None:
        callback = rpc.program == NFS_CALLBACK
        named = callback or (rpc.program == NFS and rpc.version == 4)
        asked = self._asked.pop(rpc, None)
        if not named or rpc.procedure != 1 or rpc.call is None or rpc.state == DUPLICATE_REPLY:
            if asked is not None:
                asked.table.answered(asked.use, asked.request.slot, time, None)
            return
        self.compounds += 1
        messages = _Messages(rpc)
        if asked is None and rpc.minor_version and rpc.call.header.procedure == RDMA_NOMSG:
            self._ask(rpc, messages.call, 0, len(messages.call))  # Its arguments came in a Read chunk.
            asked = self._asked.pop(rpc, None)
        at = self._place(rpc, time, callback)
        if asked is not None:
            self._answer(rpc, asked, at, self._result(rpc, messages, callback))
        client = asked.session.client if asked is not None else None
        if rpc.minor_version == 0 and not callback:
            client = self.table.known_on(at.connection)
        operations = frozenset(rpc.operations)
        changing = not operations.isdisjoint(_CHANGING_NAMES)
        if callback or changing or ("GETATTR" in operations and client is not None and client.lease is None):
            self._change(rpc, messages, at, client, asked, callback)
        renewing = rpc.minor_version == 0 and not changing and not operations.isdisjoint(_RENEWING_NAMES)
        if renewing and client is not None and rpc.status == "OK":
            client.renew(at.time, at.frame)
        if rpc.reply is None and not callback and (owner := client or self.table.known_on(at.connection)) is not None:
            owner.note_status(NO_REPLY, rpc.call_frame, rpc.call.operation.first_time)
        if rpc.status in STATUSES:
            self._failed(rpc, at, client or self.table.of_connection(at), asked)

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

    def _answer(self, rpc: Rpc, asked: _Asked, at: AtReply, result: SlotResult | None) -> None:
        use, session = asked.use, asked.session
        use.operations, use.status = rpc.operations, rpc.status
        use.reply_frame = rpc.reply_frame
        asked.table.answered(use, asked.request.slot, at.time, result)
        if result is None or asked.table is session.back:
            return
        if not result.status:
            session.client.renew(at.time, at.frame)
        for bit in range(MAX_FLAGS) if result.flags else ():
            if result.flags >> bit & 1:
                session.flags.setdefault(1 << bit, StatusTally()).add(at.frame, at.time)
        if nfs4_status(result.status) in _SESSION_LOST and not session.ended_by:
            session.ended_frame, session.ended_time = at.frame, at.time
            session.ended_by = nfs4_status(result.status)

    def _failed(self, rpc: Rpc, at: AtReply, client: NfsClient, asked: _Asked | None) -> None:
        client.note_status(rpc.status, at.frame, at.time)
        if rpc.status == "NFS4ERR_GRACE":
            client.grace_ended = None
        elif rpc.status == "NFS4ERR_DELAY":
            for server, state in self._recalls:
                state.delays += server == at.server
        elif rpc.status in _LOST and client.lost_at is None:
            client.lost_at = at.time, at.frame
        elif rpc.status == "NFS4ERR_DENIED":
            client.denied += 1

    # What operations change

    def _change(
        self,
        rpc: Rpc,
        messages: _Messages,
        at: AtReply,
        client: NfsClient | None,
        asked: _Asked | None,
        callback: bool,
    ) -> None:
        """Every operation that succeeded; of a callback, every one that was sent."""
        head = call_head(messages.call, 0, len(messages.call))
        if head is None or not head[4]:
            self.undecoded += 1
            return
        call = compound_call(messages.call, head[4], len(messages.call), callback=callback)
        if callback:
            owner = client or self.table.of_connection(at)
            self._called_back(call.operations, call.places, rpc, messages, at, owner, asked)
            return
        if rpc.reply is None:
            return
        body = results_at(messages.reply, rpc.gss)
        if body < 0:
            return
        reply: CompoundReply = compound_reply(messages.reply, body, len(messages.reply))
        walk = walk_filehandles(call, messages.call, reply, messages.reply)
        self.undecoded += bool(walk.problem)
        for step in walk.steps:
            if step.succeeded and (step.operation in _CHANGING or self._shows_lease(step, messages.reply)):
                self._step(step, messages, at, client, asked)

    def _shows_lease(self, step: CompoundStep, reply: memoryview) -> bool:
        if step.operation != OP_GETATTR or step.results < 0 or step.results + 8 > len(reply):
            return False
        return bool(word(reply, step.results)[0] and word(reply, step.results + 4)[0] >> LEASE_TIME & 1)

    def _step(
        self,
        step: CompoundStep,
        messages: _Messages,
        at: AtReply,
        client: NfsClient | None,
        asked: _Asked | None,
    ) -> None:
        arguments, results = decoded_step(step, messages.call, messages.reply, False)
        if step.operation == OP_GETDEVICEINFO:
            self.pnfs.named(results.node, arguments.octets("gdia_device_id"), at.server, at.frame)
            return
        if step.operation == OP_LAYOUTGET:
            self.pnfs.granted(results.node)
        if step.operation in CLIENT_OPERATIONS:
            self.table.succeeded(step.operation, arguments, results, at)
            return
        if at.minor_version == 0:
            id = {OP_OPEN: ("owner", "clientid"), OP_RENEW: ("clientid",)}.get(step.operation)
            if id is not None and (number := arguments.number(*id)) is not None:
                client = self.table.client(at.server, number, 0)
                self.table.on(at, client)
        if client is None and at.minor_version == 0:
            client = self.table.of_connection(at)
        if client is None:
            return
        if at.minor_version == 0 and step.operation in _RENEWING:
            client.renew(at.time, at.frame)
        session = asked.session if asked is not None else None
        change = StateChange(step, arguments, results, at.frame, at.time, at.connection, client, session)
        HANDLERS[step.operation](change)
        self._recalls = [one for one in self._recalls if not one[1].returned_frame]

    def _called_back(
        self,
        operations: tuple[int, ...],
        places: tuple[int, ...],
        rpc: Rpc,
        messages: _Messages,
        at: AtReply,
        client: NfsClient,
        asked: _Asked | None,
    ) -> None:
        assert rpc.call is not None
        sent = rpc.call.operation
        for operation, place in zip(operations, places, strict=False):
            if operation in (OP_CB_RECALL, OP_CB_LAYOUTRECALL):
                state = recalled(client, operation, messages.call, place, sent.first_frame, sent.first_time)
                if state is not None and len(self._recalls) < MAX_RECALLS:
                    self._recalls.append((at.server, state))


class _Watch:
    """Notes the events of one conversation; a ``listeners.Listener``."""

    def __init__(self, queue: list[_Event]) -> None:
        self._queue = queue

    def call_sent(self, rpc: Rpc) -> None:
        assert rpc.call is not None
        self._queue.append(_Event(rpc.call.operation.first_time, rpc, False))

    def reply_sent(self, rpc: Rpc) -> None:
        """It is taken when the RPC ends."""

    def rpc_ended(self, rpc: Rpc) -> None:
        last = rpc.reply.operation.last_time if rpc.reply is not None else rpc.connection.last_time
        self._queue.append(_Event(last, rpc, True))

    def other_sent(self, sender: int, message: Message) -> None:
        """Neither call nor reply."""

    def data_transferred(self, operation: Operation) -> None:
        """Takes no slot."""


def _place(rpc: Rpc, time: int, callback: bool) -> AtReply:
    """Server and client of an RPC; of a callback, the server is who calls."""
    assert rpc.call is not None
    caller = rpc.call.operation.initiator
    client, server = (1 - caller, caller) if callback else (caller, 1 - caller)
    ends = rpc.connection.endpoints
    frame = rpc.reply_frame or rpc.call_frame
    return AtReply(ends[server].address, ends[client].address, rpc.connection.number, rpc.minor_version, frame, time)


def _prefix(message: Reassembled | None) -> memoryview:
    return memoryview(message.prefix if message is not None else b"")
