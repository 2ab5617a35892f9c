"""NFSv4 state over time: fed the RPCs of a capture, it knows which client held what on which server.

Messages of all connections are taken in the order of time, a batch of frames at a time: ``listener`` notes them, and
``advance`` takes them.  Never raises on what they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, distinct, gathered, take, words_at
from ..layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from ..onc.compound import (
    ATTRIBUTE_FILEHANDLE,
    OP_GETATTR,
    OP_GETFH,
    OP_OPEN,
    OP_PUTFH,
    CompoundStep,
    CompoundWalk,
    FileObject,
    SlotRequest,
    SlotResult,
    compound_call,
    compound_reply,
    operation_names,
    slot_request,
    slot_requests,
    slot_result,
    slot_results,
    walk_filehandles,
)
from ..onc.rpc_header import NFS, NFS_CALLBACK, call_head, results_at
from ..onc.shapes.decode_cache import Layout, PairedLayouts
from ..onc.shapes.registry import procedure_shape
from ..onc.status import nfs4_status
from ..onc.xdr import word
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.listeners import Listener, Listeners
from ..rpcrdma.messages import Message
from ..rpcrdma.reassembly import reassembled_call, reassembled_reply
from ..rpcrdma.rpc_fields import REPLY_HEADER, argument_places
from ..rpcrdma.rpc_table import ProcedureNames, RpcRows, RpcTable, made
from ..rpcrdma.rpcs import DUPLICATE_REPLY, Reassembled, Rpc
from ..transport.connection import Connection
from .credits import CreditDirection, CreditHistory
from .gss_contexts import GssContexts
from .nfs_operations import DataServers
from .nfs_state import CALLED_BACK, USED, HeldState, NfsClient, NfsSession, SlotTable, SlotUse, StatusTally
from .nfs_state_operations import (
    CLIENT_OPERATIONS,
    HANDLERS,
    LEASE_TIME,
    OP_CB_LAYOUTRECALL,
    OP_CB_RECALL,
    OP_RENEW,
    AtReply,
    ChangingStep,
    ClientTable,
    FieldsPlace,
    StateChange,
    decoded_step,
    recalled,
    walked,
)


class SentCall(NamedTuple):
    """A call, of which the RPC may go on."""

    number: int
    """Of its RPC."""
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


CHANGING = (frozenset(HANDLERS) - {OP_GETATTR}) | CLIENT_OPERATIONS
"""Operations that may change state."""
_NFS4 = procedure_shape(NFS, 4, 1)


def changes_state(step: CompoundStep, reply: memoryview) -> bool:
    """An operation that may change state, or a GETATTR that returns the lease time."""
    if step.operation != OP_GETATTR:
        return step.operation in CHANGING
    if step.results < 0 or step.results + 8 > len(reply):
        return False
    return bool(word(reply, step.results)[0] and word(reply, step.results + 4)[0] >> LEASE_TIME & 1)


def changing_steps(walk: CompoundWalk, call: memoryview, reply: memoryview) -> Iterator[ChangingStep]:
    """Those of a walk over a COMPOUND that succeeded."""
    for step in walk.steps:
        if step.succeeded and changes_state(step, reply):
            fields = decoded_step(step.operation, call, step.arguments, reply, step.results)
            yield ChangingStep(step.operation, *fields, step.current.handle)


class _HandlePlace(NamedTuple):
    """Bytes of a filehandle, from the first of the arguments, or of the results, on."""

    of_reply: bool
    at: int
    size: int


class _StepPlace(NamedTuple):
    """An operation that changes state."""

    operation: int
    arguments: FieldsPlace
    results: FieldsPlace
    handle: _HandlePlace | None


class StepPlaces(NamedTuple):
    """Where the operations that change state are in COMPOUNDs that are laid out alike."""

    places: tuple[_StepPlace, ...]
    masks: tuple[tuple[int, int], ...]
    """Of each GETATTR where the first word of its results' mask is, and what."""

    def steps(self, call: memoryview, reply: memoryview) -> Iterator[ChangingStep]:
        """Of one of them: its arguments and its results."""
        for operation, asked, answered, handle in self.places:
            arguments, results = asked.fields(call), answered.fields(reply)
            if handle is None:
                yield ChangingStep(operation, arguments, results, None)
            else:
                view = reply if handle.of_reply else call
                yield ChangingStep(operation, arguments, results, bytes(view[handle.at : handle.at + handle.size]))


class CompoundLayouts:
    """Remembers how COMPOUNDs are laid out."""

    def __init__(self) -> None:
        self._layouts: PairedLayouts[StepPlaces | None] = PairedLayouts()

    def places(
        self, data: Bytes, arguments: Int64s, call_ends: Int64s, results: Int64s, reply_ends: Int64s
    ) -> list[StepPlaces | None]:
        """Of COMPOUNDs with arguments at ``data[arguments[i]:call_ends[i]]``; None of those to be walked over."""
        found: list[StepPlaces | None] = [None] * len(arguments)
        assert _NFS4 is not None and _NFS4.arguments is not None and _NFS4.results is not None

        def learn(row: int, asked: Layout, answered: Layout) -> StepPlaces | None:
            return _learned(data.data[arguments[row] : call_ends[row]], data.data[results[row] : reply_ends[row]])

        types, replies = (_NFS4.arguments, _NFS4.results), (results, reply_ends)
        for rows, places in self._layouts.groups(types, data, (arguments, call_ends), replies, learn):
            if places is not None:
                for row in rows[_agree(places, data, results[rows])].tolist():
                    found[row] = places
        return found


def _agree(places: StepPlaces, data: Bytes, results: Int64s) -> NDArray[np.bool_]:
    """Of which the masks are those of the first: they are no part of a layout."""
    alike = np.ones(len(results), np.bool_)
    for at, mask in places.masks:
        alike &= words_at(data, results + at) == mask
    return alike


def _learned(call: memoryview, reply: memoryview) -> StepPlaces | None:
    walk = walk_filehandles(compound_call(call, 0, len(call)), call, compound_reply(reply, 0, len(reply)), reply)
    steps = [step for step in walk.steps if step.succeeded]
    if walk.problem or any(step.operation in CLIENT_OPERATIONS for step in steps):
        return None
    masks = [
        (step.results + 4, word(reply, step.results + 4)[0])
        for step in steps
        if step.operation == OP_GETATTR and word(reply, step.results)[0]
    ]
    if any(mask >> ATTRIBUTE_FILEHANDLE & 1 for _, mask in masks):
        return None
    handles = _handles(walk, call, reply)
    places = []
    for step in steps:
        if changes_state(step, reply):
            asked, answered = decoded_step(step.operation, call, step.arguments, reply, step.results)
            places.append(_StepPlace(step.operation, asked.place, answered.place, handles.get(id(step.current))))
    return StepPlaces(tuple(places), tuple(masks))


def _handles(walk: CompoundWalk, call: memoryview, reply: memoryview) -> dict[int, _HandlePlace]:
    """By the identity of a file."""
    found: dict[int, _HandlePlace] = {}

    def note(file: FileObject, of_reply: bool, at: int) -> None:
        found[id(file)] = _HandlePlace(of_reply, at + 4, word(reply if of_reply else call, at)[0])

    for step in walk.steps:
        if step.operation == OP_PUTFH and step.succeeded:
            note(step.current, False, step.arguments)
        elif step.operation == OP_GETFH and step.succeeded:
            note(step.current, True, step.results)
    return found


RENEWING = frozenset((4, 8, 12, 14, 18, 20, 21, 25, 30, 34, 38))
"""Of NFSv4.0: RENEW, and what has a stateid or an owner (RFC 7530, 9.5)."""
_CHANGING_NAMES = frozenset(operation_names(tuple(CHANGING)))
_RENEWING_NAMES = frozenset(operation_names(tuple(RENEWING)))
_COMPOUND = 1
"""The procedure, of NFSv4 and of its callbacks."""


class CompoundKind(NamedTuple):
    """What the operations of a COMPOUND say of it."""

    callback: bool
    minor_version: int | None
    operations: tuple[str, ...]
    changes: bool
    """One of them may change state."""
    renews: bool
    """It renews the lease of an NFSv4.0 client, and changes nothing."""
    attributes: bool
    """It has a GETATTR."""


@lru_cache(maxsize=4096)
def compound_kind(names: ProcedureNames) -> CompoundKind | None:
    """None of another procedure."""
    callback = names.program == NFS_CALLBACK
    if not (callback or (names.program == NFS and names.version == 4)) or names.procedure != _COMPOUND:
        return None
    operations = frozenset(names.operations)
    changes = callback or not operations.isdisjoint(_CHANGING_NAMES)
    renews = names.minor_version == 0 and not changes and not operations.isdisjoint(_RENEWING_NAMES)
    return CompoundKind(callback, names.minor_version, names.operations, changes, renews, "GETATTR" in operations)


class _Changes(NamedTuple):
    places: StepPlaces
    call: memoryview
    """Arguments."""
    reply: memoryview
    """Results."""

    def steps(self) -> Iterator[ChangingStep]:
        return self.places.steps(self.call, self.reply)


class CompoundRow(NamedTuple):
    """An RPC of NFSv4 as a row, with what it says of slots and state."""

    kind: CompoundKind
    request: SlotRequest | None
    result: SlotResult | None
    changes: _Changes | Rpc | None
    """What may change state; the RPC as an object, where its operations have to be decoded, or may have to be."""
    elsewhere: bool
    """The reply came through a Reply chunk, and not in one piece."""
    status: str
    ends: tuple[str, str]
    """Addresses of server and client."""
    number: int
    connection: int
    call_frame: int
    call_time: int
    reply_frame: int
    reply_end: int


class CompoundRows(NamedTuple):
    """Those of a batch, in the order of calls."""

    compounds: list[CompoundRow]
    call_times: Int64s
    call_frames: Int64s
    """Last frames."""
    reply_times: Int64s
    reply_frames: Int64s


def compound_rows(
    rows: Rows, rpcs: RpcRows, layouts: CompoundLayouts, ends_of: Callable[[int, int], tuple[str, str]]
) -> CompoundRows:
    """Of RPC rows; ``ends_of``: addresses of server and client, by connection and the end that is the client."""
    kinds = {code: compound_kind(rpcs.names.procedures[code]) for code in np.unique(rows["procedure"]).tolist()}
    if None in kinds.values():
        rows = take(rows, np.isin(rows["procedure"], [code for code, kind in kinds.items() if kind is not None]))
    first, which = distinct(rows["procedure"])
    chosen = [kinds[code] for code in rows["procedure"][first].tolist()]
    data = rpcs.data
    ends, behind = (rows[f"{side}_at"] + rows[f"{side}_send"] for side in ("call", "reply"))
    starts = argument_places(data, ends - rows["call_inline"])
    results = behind - rows["reply_inline"] + REPLY_HEADER
    elsewhere = rows["reply_inline"] == 0
    long = (elsewhere & (rows["transfer"] >= 0)).nonzero()[0]
    if len(long) and rpcs.chunks is not None:
        results[long], behind[long] = rpcs.chunks.places(rows["transfer"][long], data)
        elsewhere[long] = results[long] < 0
        results[long] += REPLY_HEADER
    requests: list[SlotRequest | None] = [None] * len(rows)
    answers: list[SlotResult | None] = [None] * len(rows)
    changes: list[_Changes | Rpc | None] = [None] * len(rows)
    decoded = elsewhere.copy()
    view = data.data
    for callback in (False, True):
        mine = np.isin(which, [index for index, kind in enumerate(chosen) if kind and kind.callback is callback])
        places = mine.nonzero()[0]
        if not len(places):
            continue
        for place, request, answer in zip(
            places.tolist(),
            slot_requests(data, starts[places], ends[places], callback),
            slot_results(data, results[places], behind[places], callback),
            strict=True,
        ):
            requests[place], answers[place] = request, answer
    for index, kind in enumerate(chosen):
        assert kind is not None
        mine = which == index
        if kind.changes and not kind.callback:
            whole = (mine & ~elsewhere).nonzero()[0]
            edges = [one[whole] for one in (starts, ends, results, behind)]
            for row, known in zip(whole.tolist(), layouts.places(data, *edges), strict=True):
                if known is None:
                    decoded[row] = True
                else:
                    call, reply = view[starts[row] : ends[row]], view[results[row] : behind[row]]
                    changes[row] = _Changes(known, call, reply)
        else:
            decoded[mine] |= kind.changes or (kind.attributes and asks_for_lease(data, starts[mine], ends[mine]))
    for row, rpc in zip(decoded.nonzero()[0].tolist(), made(rpcs, take(rows, decoded)), strict=True):
        changes[row] = rpc
    statuses = [status for status, _ in rpcs.names.statuses]
    back = np.array([kind is not None and kind.callback for kind in chosen], np.bool_)[which]
    sides = rows["connection"], rows["caller"] ^ back
    first, side = distinct(*sides)
    hosts = [ends_of(*place) for place in zip(*(column[first].tolist() for column in sides), strict=True)]
    names = "number", "connection", "call_frame", "call_time", "reply_frame", "reply_end"
    compounds = zip(
        [chosen[index] for index in which.tolist()],
        requests,
        answers,
        changes,
        elsewhere.tolist(),
        [statuses[code] for code in rows["status"].tolist()],
        [hosts[code] for code in side.tolist()],
        *(rows[name].tolist() for name in names),
        strict=True,
    )
    return CompoundRows(
        [*map(CompoundRow._make, compounds)],
        *(rows[name].astype(np.int64) for name in ("call_time", "call_last_frame", "reply_end", "reply_frame")),
    )


def asks_for_lease(data: Bytes, starts: Int64s, ends: Int64s) -> NDArray[np.bool_]:
    """Whether a COMPOUND may have a GETATTR for lease_time: some three words of it look like that.

    Args:
        data, starts, ends: the arguments are ``data[starts[i]:ends[i]]``.
    """
    found = np.zeros(len(starts), np.bool_)
    sizes = ends - starts & -4
    for size in np.unique(sizes).tolist():
        mine = (sizes == size).nonzero()[0]
        if size < 12:
            continue
        words = gathered(data, size, starts[mine]).view(">u4")
        operation, count, mask = words[:, :-2], words[:, 1:-1], words[:, 2:]
        found[mine] = ((operation == OP_GETATTR) & (count > 0) & (mask >> LEASE_TIME & 1 == 1)).any(axis=1)
    return found


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
        self._row_batches: list[tuple[Rows, RpcRows]] = []
        """RPC rows of a batch, of one direction of a connection."""
        self._layouts = CompoundLayouts()
        self._connections: dict[int, Connection] = {}
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
        calls = [one.what for one in self._queue if isinstance(one.what, SentCall)]
        lone = {
            one.what.number: (one.time, one.frame)
            for one in self._queue
            if isinstance(one.what, Rpc) and one.what.reply is None
        }
        self._queue.clear()
        self._row_batches.clear()
        return StateNotes(calls, lone)

    def note(self, notes: StateNotes, table: RpcTable) -> None:
        """The same of all workers, by the numbers of the whole, and the RPCs that ended in the meantime."""
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
        """Of the calls of each connection; of those that are not kept only where they waited for credits."""
        return [*self._blocked, *(history.directions[0] for history in self._histories.values())]

    def evict(self, gone: Iterable[Conversation]) -> None:
        self.advance()
        for conversation in gone:
            number = conversation.connection.number
            self._connections.pop(number, None)
            history = self._histories.pop(number, None)
            if history is not None and history.directions[0].blocked:
                self._blocked.append(history.directions[0])

    def advance(self) -> None:
        """Take what happened since the last time."""
        batches = [compound_rows(rows, rpcs, self._layouts, self._ends) for rows, rpcs in self._row_batches]
        compounds = [compound for batch in batches for compound in batch.compounds]
        asked: list[_Asked | None] = [None] * len(compounds)
        times = [one.time for one in self._queue]
        frames = [one.frame for one in self._queue]
        order = np.lexsort(
            (
                np.concatenate([*(b.call_frames for b in batches), *(b.reply_frames for b in batches), frames]),
                np.concatenate([*(b.call_times for b in batches), *(b.reply_times for b in batches), times]),
            )
        )
        count = len(compounds)
        for index in order.astype(np.int64).tolist():
            if index < count:
                asked[index] = self._row_called(compounds[index])
            elif index < 2 * count:
                self._row_ended(compounds[index - count], asked[index - count])
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
        for session in self.sessions:
            for table in (session.fore, session.back):
                table.advance(self.last_time)
                table.settle()

    def keep(self, ends: Collection[tuple[str, str]]) -> None:
        """Keep only clients and security contexts of these addresses of client and server, and what is theirs."""

        def meant(clients: Iterable[str], servers: Iterable[str]) -> bool:
            return any(client in clients and server in servers for client, server in ends)

        self.clients[:] = [one for one in self.clients if meant(one.addresses, (one.server, *one.server_addresses))]
        self.sessions[:] = [session for session in self.sessions if session.client in self.clients]
        contexts = self.security.contexts
        contexts[:] = [context for context in contexts if meant((context.client,), (context.server,))]
        used = [(credit, *credit.connection.endpoints) for credit in self.credits]
        self._blocked = [one for one, client, server in used if (client.address, server.address) in ends]
        self._histories.clear()

    def _place(self, at: AtReply) -> AtReply:
        server = self.table.server(at.server)
        return at if server == at.server else at._replace(server=server)

    # Rows

    def _ends(self, connection: int, client: int) -> tuple[str, str]:
        """Addresses of server and client."""
        ends = self._connections[connection].endpoints
        return ends[1 - client].address, ends[client].address

    def _row_called(self, one: CompoundRow) -> _Asked | None:
        server, client = one.ends
        server, callback = self.table.server(server), one.kind.callback
        place = one.call_frame, one.call_time
        asked = None
        if one.request is not None:
            asked = self._request(server, client, one.connection, one.request, callback, one.number, *place)
        if callback and isinstance(one.changes, Rpc):
            at = AtReply(server, client, one.connection, one.kind.minor_version, *place)
            self._recall(_Messages(one.changes).call, at, asked)
        return asked

    def _row_ended(self, one: CompoundRow, asked: _Asked | None) -> None:
        kind, changes = one.kind, one.changes
        if isinstance(changes, Rpc):
            client = self._client(kind, asked, one.connection)
            if kind.changes or one.elsewhere or (client is not None and client.lease is None):
                if asked is not None:
                    self._asked[one.number] = asked
                self._ended(changes, one.reply_end, one.result)
                return
        self.compounds += 1
        if asked is not None:
            self._answer(asked, one.reply_end, one.reply_frame, one.result, kind.operations, one.status)
        if changes is not None or kind.renews or one.status in STATUSES:
            at = AtReply(*one.ends, one.connection, kind.minor_version, one.reply_frame, one.reply_end)
            steps = changes.steps() if isinstance(changes, _Changes) else ()
            self._conclude(kind, self._place(at), asked, one.status, steps)

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
        client = self._client(kind, asked, at.connection)
        if asked is not None:
            asked.use.rpc = rpc.number
            result = result or self._result(rpc, messages, callback)
            self._answer(asked, time, rpc.reply_frame, result, rpc.operations, rpc.status)
        steps: Iterable[ChangingStep] = ()
        if (kind.changes and not callback) or (kind.attributes and client is not None and client.lease is None):
            steps = self._steps(rpc, messages)
        self._conclude(kind, at, asked, rpc.status, steps)
        if rpc.reply is None and not callback and (owner := client or self.table.known_on(at.connection)) is not None:
            owner.note_status(NO_REPLY, rpc.call_frame, rpc.call.operation.first_time)

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

    def _client(self, kind: CompoundKind, asked: _Asked | None, connection: int) -> NfsClient | None:
        """Whose COMPOUND it is, as far as it says so or others on its connection did."""
        if kind.minor_version == 0 and not kind.callback:
            return self.table.known_on(connection)
        return asked.session.client if asked is not None else None

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
        asked.table.answered(use, asked.request.slot, time, result)
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
        self, kind: CompoundKind, at: AtReply, asked: _Asked | None, status: str, steps: Iterable[ChangingStep]
    ) -> None:
        """What a COMPOUND that has ended says beside its slot: ``steps`` of it succeeded."""
        client = self._client(kind, asked, at.connection)
        for step in steps:
            self._step(step, at, client, asked)
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

    def _steps(self, rpc: Rpc, messages: _Messages) -> Iterable[ChangingStep]:
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

    def _step(self, step: ChangingStep, at: AtReply, client: NfsClient | None, asked: _Asked | None) -> None:
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
        session = asked.session if asked is not None else None
        change = StateChange(arguments, results, handle, at.frame, at.time, at.connection, client, session)
        HANDLERS[operation](change)
        if self._recalls:
            self._recalls = [recall for recall in self._recalls if not recall[1].returned_frame]

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
    if message is None or message.header.procedure != RDMA_MSG or message.header.version == 2:
        return None
    header = message.header
    if header.problem or header.reads or header.writes or header.reply is not None:
        return None
    view = memoryview(message.data)[message.start : message.end]
    return view if len(view) == message.inline_length else None


def _prefix(message: Reassembled | None) -> memoryview:
    return memoryview(message.prefix if message is not None else b"")
