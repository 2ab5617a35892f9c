"""COMPOUNDs of NFSv4 in columns: their slots, and where the operations are that change the state that clients hold.

Most are alike: ``CompoundLayouts`` remembers where operations that change state are; others are decoded one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, among, distinct, gathered, joined, kept, take, unique, words_at
from ..named_tuple import NamedTuple
from ..onc.compound import (
    ATTRIBUTE_FILEHANDLE,
    OP_GETATTR,
    OP_GETFH,
    OP_PUTFH,
    CompoundStep,
    CompoundWalk,
    FileObject,
    SlotResult,
    compound_call,
    compound_reply,
    operation_names,
    slot_requests,
    slot_result,
    slot_results,
    walk_filehandles,
)
from ..onc.file_operations import Varying
from ..onc.rpc_header import NFS, NFS_CALLBACK, results_at
from ..onc.shapes.decode_cache import Layout, PairedLayouts
from ..onc.shapes.registry import procedure_shape
from ..onc.xdr import word
from ..rpcrdma.rpc_fields import REPLY_HEADER, MessageBytes, argument_places, message_bytes, message_places, successful
from ..rpcrdma.rpc_table import FLAG_TRUNCATED, ProcedureNames, RpcRows, RpcTable, made
from ..rpcrdma.rpcs import Rpc
from .nfs_state import SlotUse
from .nfs_state_operations import (
    CLIENT_OPERATIONS,
    HANDLERS,
    LEASE_TIME,
    ChangingStep,
    FieldsPlace,
    decoded_step,
)

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
    """The state-changing operations of a walked COMPOUND that succeeded."""
    for step in walk.steps:
        if step.succeeded and changes_state(step, reply):
            fields = decoded_step(step.operation, call, step.arguments, reply, step.results)
            yield ChangingStep(step.operation, *fields, step.current.handle)


class _StepPlace(NamedTuple):
    """An operation that changes state."""

    operation: int
    arguments: FieldsPlace
    results: FieldsPlace
    handle: Varying | None
    """Where the bytes of its filehandle are."""


class StepPlaces(NamedTuple):
    """Where the operations that change state are in COMPOUNDs that are laid out alike."""

    places: tuple[_StepPlace, ...]
    masks: tuple[tuple[int, int], ...]
    """For each GETATTR, where the first word of its results' mask is, and its value."""
    problem: bool
    """Truncated ones cannot be decoded to their end."""

    def steps(self, call: memoryview, reply: memoryview) -> Iterator[ChangingStep]:
        """The steps of one such COMPOUND, from its call and its reply."""
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
        self,
        data: Bytes,
        arguments: Int64s,
        call_ends: Int64s,
        results: Int64s,
        reply_ends: Int64s,
        lacks: tuple[Int64s, Int64s],
    ) -> list[StepPlaces | None]:
        """The places of steps in COMPOUNDs with arguments at ``data[arguments[i]:call_ends[i]]``; None for those to be
        walked. ``lacks``: bytes of calls and replies that are not captured."""
        steps: list[StepPlaces | None] = [None] * len(arguments)
        assert _NFS4 is not None and _NFS4.arguments is not None and _NFS4.results is not None

        def learn(row: int, asked: Layout, answered: Layout) -> StepPlaces | None:
            truncated = bool(lacks[0][row] or lacks[1][row])
            call, reply = data.data[arguments[row] : call_ends[row]], data.data[results[row] : reply_ends[row]]
            return _learned(call, reply, truncated)

        types, replies = (_NFS4.arguments, _NFS4.results), (results, reply_ends)
        for rows, places in self._layouts.groups(types, data, (arguments, call_ends), replies, lacks, learn):
            if places is not None:
                for row in rows[_agree(places, data, results[rows])].tolist():
                    steps[row] = places
        return steps


def _agree(places: StepPlaces, data: Bytes, results: Int64s) -> NDArray[np.bool_]:
    """Which replies have the attribute masks of the first: masks are not part of a layout."""
    alike = np.ones(len(results), np.bool_)
    for at, mask in places.masks:
        alike &= words_at(data, results + at) == mask
    return alike


def _learned(call: memoryview, reply: memoryview, truncated: bool) -> StepPlaces | None:
    walk = walk_filehandles(compound_call(call, 0, len(call)), call, compound_reply(reply, 0, len(reply)), reply)
    steps = [step for step in walk.steps if step.succeeded]
    if (walk.problem and not truncated) or any(step.operation in CLIENT_OPERATIONS for step in steps):
        return None
    masks = [
        (step.results + 4, word(reply, step.results + 4)[0])
        for step in steps
        if step.operation == OP_GETATTR and step.results + 8 <= len(reply) and word(reply, step.results)[0]
    ]
    if any(mask >> ATTRIBUTE_FILEHANDLE & 1 for _, mask in masks):
        return None
    handles = _handles(walk, call, reply)
    places = []
    for step in steps:
        if changes_state(step, reply):
            asked, answered = decoded_step(step.operation, call, step.arguments, reply, step.results)
            places.append(_StepPlace(step.operation, asked.place, answered.place, handles.get(id(step.current))))
    return StepPlaces(tuple(places), tuple(masks), bool(walk.problem))


def _handles(walk: CompoundWalk, call: memoryview, reply: memoryview) -> dict[int, Varying]:
    """By the identity of a file."""
    handles: dict[int, Varying] = {}

    def note(file: FileObject, of_reply: bool, at: int) -> None:
        view = reply if of_reply else call
        if at + 4 <= len(view) and at + 4 + (size := word(view, at)[0]) <= len(view):
            handles[id(file)] = Varying(of_reply, at + 4, size, number=False)

    for step in walk.steps:
        if step.operation == OP_PUTFH and step.succeeded:
            note(step.current, False, step.arguments)
        elif step.operation == OP_GETFH and step.succeeded:
            note(step.current, True, step.results)
    return handles


RENEWING = frozenset((4, 8, 12, 14, 18, 20, 21, 25, 30, 34, 38))
"""Operations of NFSv4.0 that renew a lease: RENEW, and those with a stateid or an owner (RFC 7530, 9.5)."""
_CHANGING_NAMES = frozenset(operation_names(tuple(CHANGING)))
_CLIENT_NAMES = frozenset(operation_names(tuple(CLIENT_OPERATIONS)))
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
    clients: bool
    """One of them makes or ends clients or sessions, or tells of their connections."""
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
    clients = not callback and not operations.isdisjoint(_CLIENT_NAMES)
    attributes = "GETATTR" in operations
    return CompoundKind(callback, names.minor_version, names.operations, changes, clients, renews, attributes)


class Changes(NamedTuple):
    places: StepPlaces
    call: memoryview
    """The message with the arguments."""
    reply: memoryview
    """The message with the results."""

    def steps(self) -> Iterator[ChangingStep]:
        return self.places.steps(self.call, self.reply)


class CompoundRow(NamedTuple):
    """An RPC of NFSv4 as a row, with what it says of slots and state."""

    kind: CompoundKind
    session: bytes | None
    """The session of its SEQUENCE, if that is its first operation."""
    cached: bool
    result: SlotResult | None
    changes: Changes | Rpc | None
    """What may change state; the RPC as an object, where its operations have to be decoded, or may have to be."""
    status: str
    ends: tuple[str, str]
    """Addresses of server and client."""
    slot: int
    sequence: int
    number: int
    connection: int
    call_frame: int
    call_time: int
    reply_frame: int
    reply_end: int


_TAKEN = (
    "number", "connection", "call_frame", "call_time", "call_last_frame", "reply_frame", "reply_end", "status",
)  # fmt: skip
COMPOUND = np.dtype([
    (name, np.int64) for name in (*_TAKEN, "kind", "ends", "session", "slot", "sequence", "cached", "result")
])  # fmt: skip
"""An RPC of NFSv4; status, kind, ends, session and result are indices in ``Compounds``, -1 for none."""


class Compounds:
    """The RPC rows of NFSv4, those of a batch."""

    def __init__(self, layouts: CompoundLayouts, ends_of: Callable[[int, int], tuple[str, str]]) -> None:
        """``ends_of``: addresses of server and client, by connection and the end that is the client."""
        self._layouts, self._ends_of = layouts, ends_of
        self._parts: list[Rows] = [np.empty(0, COMPOUND)]
        self.kinds: list[CompoundKind] = []
        self.statuses: list[str] = []
        self.ends: list[tuple[str, str]] = []
        self.sessions: list[bytes] = []
        self.results: list[SlotResult] = []
        self.changes: dict[int, Changes | Rpc] = {}

    @property
    def rows(self) -> Rows:
        """A row of type ``COMPOUND`` for each COMPOUND."""
        self._parts = [joined(self._parts)]
        return self._parts[0]

    def add(self, rows: Rows, rpcs: RpcRows) -> None:
        """RPC rows; those of other programs are passed over."""
        codes = unique(rows["procedure"])
        kinds = [compound_kind(rpcs.names.procedures[code]) for code in codes.tolist()]
        chosen = [kind for kind in kinds if kind is not None]
        codes = codes[[kind is not None for kind in kinds]]
        rows = kept(rows, among(rows["procedure"], codes))
        compounds = np.empty(len(rows), COMPOUND)
        for name in _TAKEN:
            compounds[name] = rows[name]
        which = codes.searchsorted(rows["procedure"])
        compounds["kind"] = which + len(self.kinds)
        compounds["status"] += len(self.statuses)
        self.kinds += chosen
        self.statuses += [status for status, _ in rpcs.names.statuses]
        back = np.array([kind.callback for kind in chosen], np.bool_)[which]
        sides = rows["connection"], rows["caller"] ^ back
        first, side = distinct(*sides)
        compounds["ends"] = side + len(self.ends)
        self.ends += [
            self._ends_of(*endpoint) for endpoint in zip(*(side[first].tolist() for side in sides), strict=True)
        ]
        self._find(rows, rpcs, compounds, chosen, which, back)
        self._parts.append(compounds)

    def _find(
        self,
        rows: Rows,
        rpcs: RpcRows,
        compounds: Rows,
        kinds: list[CompoundKind],
        which: Int64s,
        back: NDArray[np.bool_],
    ) -> None:
        """Slots, and what may change state."""
        data, before = rpcs.data, sum(map(len, self._parts))
        (starts, ends), (results, behind) = (message_places(rows, side) for side in ("call", "reply"))
        starts = argument_places(data, starts, ends)
        results += REPLY_HEADER
        truncated = rows["flags"] & FLAG_TRUNCATED > 0
        elsewhere = rows["reply_inline"] == 0
        long = (elsewhere & (rows["transfer"] >= 0)).nonzero()[0]
        if len(long) and rpcs.chunks is not None:
            results[long], behind[long], _ = rpcs.chunks.places(rows["transfer"][long], data)
            elsewhere[long] = results[long] < 0
            results[long] += REPLY_HEADER
        # What is truncated is walked over where even the results, or the arguments, are not there, or come otherwise.
        singly = elsewhere | (truncated & ((rows["chunks"] >= 0) | (starts >= ends) | (results >= behind)))
        lacks = [np.where(truncated, rows[f"{side}_send"] - rows[f"{side}_captured"], 0) for side in ("call", "reply")]
        compounds["session"] = compounds["result"] = -1
        for callback in (False, True):
            places = (back == callback).nonzero()[0]
            mine, asked = slot_requests(data, starts[places], ends[places], callback)
            mine = places[mine]
            first, session = distinct(*np.ascontiguousarray(asked["session"]).view(np.int64).reshape(-1, 2).T)
            compounds["session"][mine] = session + len(self.sessions)
            self.sessions += asked["session"][first].tolist()
            for name in ("slot", "sequence", "cached"):
                compounds[name][mine] = asked[name]
            answers, codes = slot_results(data, results[places], behind[places], callback)
            compounds["result"][places] = np.where(codes < 0, -1, codes + len(self.results))
            self.results += answers
        decoded = elsewhere.copy()
        view = data.data
        for index, kind in enumerate(kinds):
            mine = which == index
            if kind.changes and not kind.callback:
                decoded |= mine & singly
                whole = (mine & ~singly).nonzero()[0]
                edges = starts[whole], ends[whole], results[whole], behind[whole]
                known = self._layouts.places(data, *edges, (lacks[0][whole], lacks[1][whole]))
                decoded[whole[[places is None for places in known]]] = True
                sides = zip(*(edge.tolist() for edge in edges), strict=True)
                for row, places, (call, call_end, reply, reply_end) in zip(whole.tolist(), known, sides, strict=True):
                    if places is not None and (places.places or places.problem):
                        self.changes[before + row] = Changes(places, view[call:call_end], view[reply:reply_end])
            else:
                decoded[mine] |= kind.changes
                if kind.attributes:
                    decoded[mine] |= truncated[mine] | asks_for_lease(data, starts[mine], ends[mine])
        for row, rpc in zip(decoded.nonzero()[0].tolist(), made(rpcs, take(rows, decoded)), strict=True):
            self.changes[before + row] = rpc
            if elsewhere[row] and (answer := slot_result_of(rpc, RpcMessages(rpc), bool(back[row]))) is not None:
                compounds["result"][row] = len(self.results)
                self.results.append(answer)

    def of_kind(self, meant: Callable[[CompoundKind], bool]) -> NDArray[np.bool_]:
        """Which rows are of kinds that are meant."""
        alike: NDArray[np.bool_] = np.array([meant(kind) for kind in self.kinds], np.bool_)[self.rows["kind"]]
        return alike

    @cached_property
    def notable(self) -> NDArray[np.bool_]:
        """Which rows say something beside their slots."""
        notable = self.of_kind(lambda kind: kind.renews)
        notable |= np.array([status in STATUSES for status in self.statuses], np.bool_)[self.rows["status"]]
        notable[[*self.changes]] = True
        return notable

    def listed(self, chosen: Int64s) -> Iterator[CompoundRow]:
        """Some of the rows."""
        rows = take(self.rows, chosen)
        sessions, results = [*self.sessions, None], [*self.results, None]
        names = "slot", "sequence", "number", "connection", "call_frame", "call_time", "reply_frame", "reply_end"
        compounds = zip(
            [self.kinds[code] for code in rows["kind"].tolist()],
            [sessions[code] for code in rows["session"].tolist()],
            (rows["cached"] != 0).tolist(),
            [results[code] for code in rows["result"].tolist()],
            map(self.changes.get, chosen.tolist()),
            [self.statuses[code] for code in rows["status"].tolist()],
            [self.ends[code] for code in rows["ends"].tolist()],
            *(rows[name].tolist() for name in names),
            strict=True,
        )
        return map(partial(tuple.__new__, CompoundRow), compounds)

    def uses(self, rows: Rows) -> Iterator[SlotUse]:
        """The slot uses of ``COMPOUND`` rows."""
        names = "number", "connection", "call_frame", "call_time", "slot", "sequence"
        for row in rows:
            number, connection, frame, time, slot, sequence = (int(row[name]) for name in names)
            use = SlotUse(number, connection, frame, time, slot, sequence, bool(row["cached"]), pending=False)
            use.operations, use.status = self.kinds[row["kind"]].operations, self.statuses[row["status"]]
            use.reply_frame = int(row["reply_frame"])
            yield use


def asks_for_lease(data: Bytes, starts: Int64s, ends: Int64s) -> NDArray[np.bool_]:
    """Whether a COMPOUND may have a GETATTR for lease_time: some three words of it look like that.

    Args:
        data, starts, ends: the arguments are ``data[starts[i]:ends[i]]``.
    """
    asking = np.zeros(len(starts), np.bool_)
    sizes = ends - starts & -4
    for size in unique(sizes).tolist():
        mine = (sizes == size).nonzero()[0]
        if size < 12:
            continue
        words = gathered(data, size, starts[mine]).view(">u4")
        operation, count, mask = words[:, :-2], words[:, 1:-1], words[:, 2:]
        asking[mine] = ((operation == OP_GETATTR) & (count > 0) & (mask >> LEASE_TIME & 1 == 1)).any(axis=1)
    return asking


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


class RpcMessages:
    """The messages of an RPC, put together when they are asked for."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    @cached_property
    def call(self) -> memoryview:
        return _prefix(message_bytes(self._rpc, False))

    @cached_property
    def reply(self) -> memoryview:
        return _prefix(message_bytes(self._rpc, True))


def slot_result_of(rpc: Rpc, messages: RpcMessages, callback: bool) -> SlotResult | None:
    if rpc.reply is None:
        return None
    inline = rpc.reply.data[rpc.reply.start : rpc.reply.end]
    for data in (inline, None):
        view = messages.reply if data is None else data
        at = results_at(view, rpc.gss)
        result = slot_result(view, at, len(view), callback) if at >= 0 else None
        if result is not None:
            return result
    return None


def _prefix(message: MessageBytes | None) -> memoryview:
    return memoryview(message.prefix if message is not None else b"")


NOT_KNOWN = -1


def slots_allowed(table: RpcTable, chosen: NDArray[np.bool_]) -> Int64s:
    """How many slots of its session the server lets a client use, as the replies of the chosen RPCs of a table say, in
    the order of rows: sr_target_highest_slotid + 1 (RFC 8881, 18.46.3), or NOT_KNOWN."""
    slots = np.full(len(table), NOT_KNOWN)
    rows, data = table.only_rows, table.data
    starts, ends = message_places(rows, "reply")
    there = chosen[table.row_places] & (rows["transfer"] < 0) & (ends - starts >= REPLY_HEADER) & bool(len(data))
    there[there] = successful(data, starts[there])
    for callback in (False, True):
        mine = (there & (rows["caller"] == callback)).nonzero()[0]
        results, codes = slot_results(data, starts[mine] + REPLY_HEADER, ends[mine], callback)
        slots[table.row_places[mine]] = np.array([*map(_allowed, results), NOT_KNOWN])[codes]
    for row, rpc in zip(table.places.tolist(), table.objects, strict=True):
        if chosen[row]:
            slots[row] = _allowed(slot_result_of(rpc, RpcMessages(rpc), rpc.backward))
    return slots[chosen]


def _allowed(result: SlotResult | None) -> int:
    return NOT_KNOWN if result is None or result.target is None else result.target + 1
