"""What a worker makes of its share: RPCs batch by batch, and what tells their places among those of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, overload

import numpy as np

from rdmascope.dissect.arrays import Int64s, Rows, joined, take
from rdmascope.dissect.link.frame_decoder import DecodedFrames
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options
from rdmascope.dissect.rpcrdma.chunk_columns import PlainChunks
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.dispatch import Undecoded
from rdmascope.dissect.rpcrdma.eviction import Evicted
from rdmascope.dissect.rpcrdma.rpc_numbers import EndedRpcs, RpcNumbers
from rdmascope.dissect.rpcrdma.rpc_table import PlainRpcs, ProcedureNames, RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.transport.connection import Connection, Registry
from rdmascope.dissect.transport.health import TransportHealth
from rdmascope.dissect.transport.operations import Kind, Operation, Payload
from rdmascope.dissect.transport.runs import SendRun

from ..session.listeners import PassListener, listener_of

_COLUMNS = (
    "kind", "initiator", "first_frame", "last_frame", "first_time", "last_time", "length", "handle", "psn", "packets",
    "last_sent", "retransmissions", "payload.length", "payload.seen",
)  # fmt: skip
_values = attrgetter(*_COLUMNS, "address")
_KINDS = tuple(Kind)


class OperationColumns(Sequence[Operation]):
    """What a list of Operations holds, some perhaps again and again."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        own = {id(operation): operation for operation in operations}
        usual = [one for one in own.values() if _usual(one)]
        values = [_values(one) for one in usual]
        self._columns: Int64s = np.array([value[:-1] for value in values], np.int64).reshape(-1, len(_COLUMNS))
        self._addresses = np.array([value[-1] for value in values], np.uint64)
        self._others = [one for one in own.values() if not _usual(one)]
        index = {id(one): at for at, one in enumerate([*usual, *self._others])}
        self._which = np.array([index[id(operation)] for operation in operations], np.int64)
        self._made: dict[int, Operation] = {}

    def __len__(self) -> int:
        return len(self._which)

    @overload
    def __getitem__(self, index: int) -> Operation: ...

    @overload
    def __getitem__(self, index: slice) -> list[Operation]: ...

    def __getitem__(self, index: int | slice) -> Operation | list[Operation]:
        if isinstance(index, slice):
            return [self._operation(one) for one in self._which[index].tolist()]
        return self._operation(int(self._which[index]))

    def _operation(self, index: int) -> Operation:
        """The same object each time: an RPC counts each once."""
        if index >= len(self._columns):
            return self._others[index - len(self._columns)]
        made = self._made.get(index)
        if made is None:
            kind, initiator, *frames, length, handle, psn, packets, sent, again, size, seen = self._columns[
                index
            ].tolist()
            first, last, begin, end = frames
            address = int(self._addresses[index])
            payload = Payload(size, seen)
            made = Operation(
                _KINDS[kind], initiator, first, last, begin, end, length, payload, handle, address, psn, packets
            )
            made.last_sent, made.retransmissions = sent, again
            self._made[index] = made
        return made


def _usual(one: Operation) -> bool:
    """Its columns say all of it."""
    payload = one.payload
    return (
        payload.stretch is None
        and payload.only is None
        and not payload.runs
        and not payload.truncated
        and one.invalidate is None
        and one.immediate is None
        and not (one.contradicted or one.doubtful or one.reused or one.position)
        and one.start_known
        and one.end_known
        and one.closed
    )


Addresses = tuple[int, list[bytes]]
"""From which number on, and those."""

State = dict[str, Any]
"""Field -> value of a dataclass."""


def state_of(noun: Connection | Conversation) -> State:
    """All of it but the connection that a conversation is on."""
    return {field.name: getattr(noun, field.name) for field in fields(noun) if field.name != "connection"}


@dataclass(slots=True)
class PlainShare:
    """The plain RPCs of a worker in one batch."""

    rows: Rows
    """RPC rows; a Send's run is that of its sender."""
    sends: tuple[Rows, Rows]
    """PACKET rows of the Sends, by sender."""
    chunks: PlainChunks | None
    dropped: bool


@dataclass(slots=True)
class Delivery:
    """What a worker made of a batch.  Connections and RPCs have the numbers that the worker gave them."""

    found: list[tuple[tuple[int, int], State, State]]
    """New connections in the order of their numbers: what made them known, see ``Registry.place``; connection and
    conversation."""
    changed: list[tuple[int, State]] = field(default_factory=list)
    """Conversations that have RPCs in the batch and are not as before."""
    drawn: tuple[Int64s, Int64s] = field(default_factory=lambda: (_none(), _none()))
    """Numbers of RPCs that are not plain, and where in the order of events they got them."""
    ended: Int64s = field(default_factory=lambda: _none())
    """Where in the order of events ``objects`` ended."""
    objects: list[Rpc] = field(default_factory=list)
    outstanding: list[Rpc] = field(default_factory=list)
    """Calls in the batch before that have no reply yet, where packets are listed."""
    plain: PlainShare | None = None
    procedures: list[ProcedureNames] = field(default_factory=list)
    statuses: list[tuple[str, bool]] = field(default_factory=list)
    """What the rows of ``plain`` name."""
    gone: list[tuple[int, State, State]] = field(default_factory=list)
    """Evicted connections, and their conversations."""
    evicted: Evicted = field(default_factory=Evicted)
    """Sums since the beginning."""
    watched: list[object] = field(default_factory=list)
    """What each of those that watch found."""


@dataclass(slots=True)
class ShareEnding:
    """What there is to know of a share when it is over."""

    delivery: Delivery
    connections: list[tuple[int, State, State]]
    healths: list[TransportHealth]
    packets: int
    skipped: Counter[str]
    other_packets: Counter[str]
    undecoded: list[Undecoded]
    unplaced: dict[int, int]
    watched: list[object]
    """What each of those that watch found of the connections that are not gone."""


class _Numbers(RpcNumbers):
    """Notes where each was drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[tuple[int, int]] = []

    def __next__(self) -> int:
        number = super().__next__()
        self.drawn.append((number, self.place))
        return number

    def made(self, number: int, place: int) -> None:
        self.drawn.append((number, place))


class _Ended(EndedRpcs):
    """Notes where each ended."""

    def __init__(self, numbers: _Numbers) -> None:
        super().__init__(numbers)
        self.taken: list[Int64s] = []

    def take(self) -> tuple[list[Rpc], Int64s]:
        found, places = super().take()
        self.taken.append(places)
        return found, places


class _Registry(Registry):
    """Notes what made each connection known."""

    def __init__(self, connections: list[Connection]) -> None:
        super().__init__(connections)
        self.found: list[tuple[tuple[int, int], Connection]] = []

    def number(self, place: tuple[int, int], connection: Connection) -> None:
        super().number(place, connection)
        self.found.append((place, connection))


class ShareAnalyzer(Analyzer):
    """The analyzer of a worker."""

    def __init__(self, options: Options, watching: Sequence[PassListener] = (), lists: bool = False) -> None:
        """``lists``: packets are listed where the results are."""
        super().__init__(options, listener_of(watching) if watching else None)
        self._watching = watching
        for listener in watching:
            listener.begin_worker()
        self._numbers = self._drawing = _Numbers()
        self._done = self._ended = _Ended(self._drawing)
        self._registry = self._observer.registry = self._finding = _Registry(self.connections)
        self._known: dict[int, object] = {}
        """By connection number: what a conversation was like when it was sent."""
        self._lists = lists
        self._batch = 0, 0
        """The last frames of the batches before."""

    def learn(self, addresses: Addresses, tcp_addresses: Addresses) -> None:
        """New ones, and from which on: of packets, and of ``DecodedFrames.segments``."""
        self.addresses.learn(*addresses)
        self.decoder.tcp_addresses.learn(*tcp_addresses)

    def delivery(self, decoded: DecodedFrames) -> Delivery:
        """What a batch gave."""
        delivery = self._delivery(self.feed_table(decoded))
        if self._lists:
            behind, last = self._batch
            calls = [rpc for rpc in self.outstanding() if rpc.call is not None]
            delivery.outstanding = [rpc for rpc in calls if rpc.call and behind < rpc.call.frame <= last]
            self._batch = last, int(decoded.batch.rows["number"][-1])
        return delivery

    def ending(self) -> ShareEnding:
        """The capture is over."""
        delivery = self._delivery(RpcTable(self.finish()))
        return ShareEnding(
            delivery,
            [
                (connection.number, state_of(connection), state_of(self.conversation(connection)))
                for connection in self.connections
            ],
            [self.health(connection.number) for connection in self.connections],
            self.packets,
            self.skipped,
            self.other_packets,
            self.undecoded,
            self.unplaced,
            [listener.rest(self.conversations) for listener in self._watching],
        )

    def _count_iwarp(self) -> None:
        """The frames that are no packet are counted by another worker, perhaps."""
        if self.iwarp is not None:
            packets, segments = self.iwarp.uncounted()
            self.packets += packets
            self.skipped["TCP"] -= segments

    def _delivery(self, table: RpcTable) -> Delivery:
        found, self._finding.found = self._finding.found, []
        drawn, self._drawing.drawn = self._drawing.drawn, []
        ended, self._ended.taken = np.concatenate([_none(), *self._ended.taken]), []
        gone = self.evicted_since() if self.evicted.connections else []
        evicted = {one.connection.number: one for one in gone}
        sent = [(place, one, evicted.get(one.number) or self.conversation(one)) for place, one in found]
        for _, connection, conversation in sent:
            self._known[connection.number] = _traits(conversation)
        delivery = Delivery(
            [(place, state_of(connection), state_of(conversation)) for place, connection, conversation in sent],
            self._changed(table),
            _columns(drawn),
            ended,
            table.objects,
            gone=[(one.connection.number, state_of(one.connection), state_of(one)) for one in gone],
            evicted=self.evicted,
            watched=[listener.found(gone, self.last_time or 0) for listener in self._watching],
        )
        for number in evicted:
            self._known.pop(number, None)
        plain = table.origin
        if plain is not None:
            delivery.plain = _shared(plain)
            delivery.procedures, delivery.statuses = plain.names.procedures, plain.names.statuses
        return delivery

    def _changed(self, table: RpcTable) -> list[tuple[int, State]]:
        numbers = set(np.unique(table.plain_rows["connection"]).tolist())
        numbers.update([one.connection.number for one in table.objects])
        changed: list[tuple[int, State]] = []
        for number in sorted(numbers):
            conversation = table.conversation(number)
            if (traits := _traits(conversation)) != self._known.get(number):
                self._known[number] = traits
                changed.append((number, state_of(conversation)))
        return changed


def _traits(conversation: Conversation) -> object:
    """What shows whether it changed."""
    one = conversation.negotiation
    lists = one.answers, one.refusals, one.announcements, one.requests, one.option_refusals
    return (
        conversation.protocol,
        conversation.credits_requested,
        conversation.credits_granted,
        one.requested,
        one.continued,
        *(len(items) for items in lists),
    )


def _shared(plain: PlainRpcs) -> PlainShare:
    """The plain RPCs with the rows of their Sends alone."""
    sizes = [len(run) for run in plain.runs]
    firsts = np.cumsum(sizes) - sizes
    every = joined([run.rows for run in plain.runs])
    rows = plain.rows.copy()
    calls, replies = firsts[rows["call_run"]] + rows["call_row"], firsts[rows["reply_run"]] + rows["reply_row"]
    sends: list[Rows] = []
    for sender in (0, 1):
        called, replied = (rows["caller"] == sender).nonzero()[0], (rows["caller"] != sender).nonzero()[0]
        sends.append(take(every, np.concatenate((calls[called], replies[replied]))))
        rows["call_run"][called] = rows["reply_run"][replied] = sender
        rows["call_row"][called] = np.arange(len(called))
        rows["reply_row"][replied] = len(called) + np.arange(len(replied))
    chunks = plain.chunks
    if chunks is not None:
        operations = chunks.found.apart()
        if plain.dropped:
            operations.objects = OperationColumns(operations.objects)
        chunks = replace(chunks, operations=operations)
    return PlainShare(rows, (sends[0], sends[1]), chunks, plain.dropped)


def runs_of(plain: PlainShare, data: Any) -> list[SendRun]:
    """The Sends of both senders, as runs."""
    runs = [SendRun(data, rows, sender) for sender, rows in enumerate(plain.sends)]
    if plain.dropped:
        for run in runs:
            run.drop()
    return runs


def _columns(pairs: list[tuple[int, int]]) -> tuple[Int64s, Int64s]:
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _none() -> Int64s:
    return np.empty(0, np.int64)
