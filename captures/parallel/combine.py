"""A worker's results, RPCs batch by batch with their places among those of other workers; and the combination of
several workers' results into the RPCs of each batch, connections and sums of one process."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np

from rdmascope.dissect.arrays import Bytes, Int64s, MadeSequence, Rows, joined, take, unique
from rdmascope.dissect.frames import Clock
from rdmascope.dissect.link.frame_decoder import DecodedFrames
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options
from rdmascope.dissect.rpcrdma.chunk_columns import ChunkColumns
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.dispatch import Undecoded
from rdmascope.dissect.rpcrdma.eviction import Evicted
from rdmascope.dissect.rpcrdma.rpc_numbers import LATE, EndedRpcs, RpcNumbers, ended_order
from rdmascope.dissect.rpcrdma.rpc_table import ProcedureNames, RpcNames, RpcRows, RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.rpcrdma.unanswered import note_outstanding
from rdmascope.dissect.transport.connection import Connection, KnownAt, Registry
from rdmascope.dissect.transport.health import TransportHealth
from rdmascope.dissect.transport.operations import Kind, Operation, Payload
from rdmascope.dissect.transport.runs import SendRun

from ..session.listeners import PassListener, WorkerFound, listener_of

_COLUMNS = (
    "kind", "initiator", "first_frame", "last_frame", "first_time", "last_time", "length", "handle", "psn", "packets",
    "last_sent", "retransmissions", "payload.length", "payload.seen",
)  # fmt: skip
_values = attrgetter(*_COLUMNS, "address")
_KINDS = tuple(Kind)


class OperationColumns(MadeSequence[Operation]):
    """What a list of Operations holds, some perhaps again and again."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        own = {id(operation): operation for operation in operations}
        usual = [operation for operation in own.values() if _usual(operation)]
        values = [_values(operation) for operation in usual]
        self._columns: Int64s = np.array([value[:-1] for value in values], np.int64).reshape(-1, len(_COLUMNS))
        self._addresses = np.array([value[-1] for value in values], np.uint64)
        self._others = [operation for operation in own.values() if not _usual(operation)]
        index = {id(operation): at for at, operation in enumerate([*usual, *self._others])}
        self._which = np.array([index[id(operation)] for operation in operations], np.int64)
        self._made: dict[int, Operation] = {}

    def __len__(self) -> int:
        return len(self._which)

    def made(self, index: int) -> Operation:
        """Operation ``index``, the same object each time: an RPC counts each Operation once."""
        index = int(self._which[index])
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


def _usual(operation: Operation) -> bool:
    """Its columns say all of it."""
    payload = operation.payload
    return (
        payload.stretch is None
        and payload.only is None
        and not payload.runs
        and not payload.truncated
        and operation.invalidate is None
        and operation.immediate is None
        and not (operation.contradicted or operation.doubtful or operation.reused or operation.position)
        and operation.start_known
        and operation.end_known
        and operation.closed
    )


Addresses = tuple[int, list[bytes]]
"""From which number on, and those."""

State = dict[str, Any]
"""Field -> value of a dataclass."""


def state_of(noun: Connection | Conversation) -> State:
    """All of it but the connection that a conversation is on."""
    return {field.name: getattr(noun, field.name) for field in fields(noun) if field.name != "connection"}


@dataclass(slots=True)
class RpcShare:
    """The row RPCs of a worker in one batch."""

    rows: Rows
    """RPC rows; a Send's run is that of its sender."""
    sends: tuple[Rows, Rows]
    """PACKET rows of the Sends, by sender."""
    chunks: ChunkColumns | None
    dropped: bool


@dataclass(slots=True)
class Delivery:
    """What a worker made of a batch.  Connections and RPCs have the numbers that the worker gave them."""

    found: list[tuple[KnownAt, State, State]]
    """New connections in the order of their numbers: where they became known; connection and conversation."""
    changed: list[tuple[int, State]] = field(default_factory=list)
    """Conversations that have RPCs in the batch and are not as before."""
    drawn: tuple[Int64s, Int64s] = field(default_factory=lambda: (_none(), _none()))
    """Numbers of RPCs that are objects, and where in the order of events they got them."""
    ended: Int64s = field(default_factory=lambda: _none())
    """Where in the order of events ``objects`` ended."""
    objects: list[Rpc] = field(default_factory=list)
    outstanding: list[Rpc] = field(default_factory=list)
    """Calls in the batch before that have no reply yet, where packets are listed."""
    share: RpcShare | None = None
    procedures: list[ProcedureNames] = field(default_factory=list)
    statuses: list[tuple[str, bool]] = field(default_factory=list)
    """What the rows of ``share`` name."""
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

    keeps_places = True

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
        rpcs, places = super().take()
        self.taken.append(places)
        return rpcs, places


class _Registry(Registry):
    """Notes where each connection became known."""

    def __init__(self, connections: list[Connection]) -> None:
        super().__init__(connections)
        self.found: list[tuple[KnownAt, Connection]] = []

    def number(self, place: KnownAt, connection: Connection) -> None:
        super().number(place, connection)
        self.found.append((place, connection))


class ShareAnalyzer(Analyzer):
    """The analyzer of a worker."""

    def __init__(self, options: Options, pass_listeners: Sequence[PassListener] = (), lists: bool = False) -> None:
        """``lists``: packets are listed where the results are."""
        super().__init__(options, listener_of(pass_listeners) if pass_listeners else None)
        self._pass_listeners = pass_listeners
        for listener in pass_listeners:
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
        delivery = self._delivery(self.finish_table())
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
            [listener.rest(self.conversations) for listener in self._pass_listeners],
        )

    def _count_iwarp(self) -> None:
        """The frames that are no packet are counted by another worker, perhaps."""
        if self.iwarp is not None:
            packets, segments = self.iwarp.uncounted()
            self.packets += packets
            for (_, unknown), count in segments.items():
                self.skipped[unknown] -= count

    def _delivery(self, table: RpcTable) -> Delivery:
        known, self._finding.found = self._finding.found, []
        drawn, self._drawing.drawn = self._drawing.drawn, []
        ended, self._ended.taken = np.concatenate([_none(), *self._ended.taken]), []
        gone = self.evicted_since() if self.evicted.connections else []
        evicted = {conversation.connection.number: conversation for conversation in gone}
        sent = [
            (place, connection, evicted.get(connection.number) or self.conversation(connection))
            for place, connection in known
        ]
        for _, connection, conversation in sent:
            self._known[connection.number] = _traits(conversation)
        delivery = Delivery(
            [(place, state_of(connection), state_of(conversation)) for place, connection, conversation in sent],
            self._changed(table),
            _columns(drawn),
            ended,
            table.objects,
            gone=[
                (conversation.connection.number, state_of(conversation.connection), state_of(conversation))
                for conversation in gone
            ],
            evicted=self.evicted,
            watched=[listener.found(gone, self.last_time or 0) for listener in self._pass_listeners],
        )
        for number in evicted:
            self._known.pop(number, None)
        rpcs = table.origin
        if rpcs is not None:
            delivery.share = _shared(rpcs)
            delivery.procedures, delivery.statuses = rpcs.names.procedures, rpcs.names.statuses
        return delivery

    def _changed(self, table: RpcTable) -> list[tuple[int, State]]:
        numbers = set(unique(table.only_rows["connection"]).tolist())
        numbers.update([rpc.connection.number for rpc in table.objects])
        changed: list[tuple[int, State]] = []
        for number in sorted(numbers):
            conversation = table.conversation(number)
            if (traits := _traits(conversation)) != self._known.get(number):
                self._known[number] = traits
                changed.append((number, state_of(conversation)))
        return changed


def _traits(conversation: Conversation) -> object:
    """What shows whether it changed."""
    negotiation = conversation.negotiation
    lists = (
        negotiation.answers,
        negotiation.refusals,
        negotiation.announcements,
        negotiation.requests,
        negotiation.option_refusals,
    )
    return (
        conversation.protocol,
        conversation.credits_requested,
        conversation.credits_granted,
        negotiation.requested,
        negotiation.continued,
        *(len(items) for items in lists),
    )


def _shared(rpcs: RpcRows) -> RpcShare:
    """The row RPCs with the rows of their Sends alone."""
    sizes = [len(run) for run in rpcs.runs]
    firsts = np.cumsum(sizes) - sizes
    every = joined([run.rows for run in rpcs.runs])
    rows = rpcs.rows.copy()
    calls, replies = firsts[rows["call_run"]] + rows["call_row"], firsts[rows["reply_run"]] + rows["reply_row"]
    sends: list[Rows] = []
    for sender in (0, 1):
        called, replied = (rows["caller"] == sender).nonzero()[0], (rows["caller"] != sender).nonzero()[0]
        sends.append(take(every, np.concatenate((calls[called], replies[replied]))))
        rows["call_run"][called] = rows["reply_run"][replied] = sender
        rows["call_row"][called] = np.arange(len(called))
        rows["reply_row"][replied] = len(called) + np.arange(len(replied))
    chunks = rpcs.chunks
    if chunks is not None:
        operations = chunks.found.apart()
        if rpcs.dropped:
            operations.objects = OperationColumns(operations.objects)
        chunks = replace(chunks, operations=operations)
    return RpcShare(rows, (sends[0], sends[1]), chunks, rpcs.dropped)


def runs_of(share: RpcShare, data: Any) -> list[SendRun]:
    """The Sends of both senders, as runs."""
    runs = [SendRun(data, rows, sender) for sender, rows in enumerate(share.sends)]
    if share.dropped:
        for run in runs:
            run.drop()
    return runs


def _columns(pairs: list[tuple[int, int]]) -> tuple[Int64s, Int64s]:
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _none() -> Int64s:
    return np.empty(0, np.int64)


MAX_NAMES = 1 << 14
"""Procedures and statuses that tables share."""
_NAMED = re.compile(r"\bRPC (\d+)\b")
"""How notes name another RPC."""


@dataclass(frozen=True, slots=True)
class FrameCounts:
    """What the decoding process says of a batch."""

    position: int
    """In the file."""
    frames: int
    truncated: int
    first: int
    """Nanoseconds; the earliest."""
    last: int
    clock: Clock
    known: int
    addresses: list[bytes]
    """Addresses after the ``known`` ones."""

    def __len__(self) -> int:
        return self.frames


@dataclass(frozen=True, slots=True)
class DividedBatch:
    """A batch as the workers analysed it."""

    counts: FrameCounts
    deliveries: list[Delivery]
    decoded: DecodedFrames | None = None
    """Where packets are listed."""

    def __len__(self) -> int:
        """How many frames the batch has."""
        return self.counts.frames


class WorkerNouns:
    """The connections and RPC numbers of a worker, by the numbers that it gave them."""

    def __init__(self) -> None:
        self._conversations: dict[int, Conversation] = {}
        self._connections = array("q", (0,))
        """Numbers in the whole; so are these."""
        self._rpcs = array("q", (0,))

    @property
    def numbered(self) -> int:
        """The highest of its RPC numbers that is known."""
        return len(self._rpcs) - 1

    def resolve(self, kind: str, number: int) -> object:
        """For ``ipc.unpacked``; a new one is filled by ``add``."""
        conversation = self._conversations.get(number)
        if conversation is None:
            conversation = self._conversations[number] = Conversation.__new__(Conversation)
            conversation.connection = Connection.__new__(Connection)
        return conversation if kind == "conversation" else conversation.connection

    def expect(self, count: int) -> int:
        """So many new connections; gives the number of the first."""
        first = len(self._connections)
        self._connections.extend([0] * count)
        return first

    def add(self, own: int, number: int, connection: State, conversation: State) -> Conversation:
        """A new one, which is ``number`` in the whole."""
        self.resolve("conversation", own)
        noun = self._conversations[own]
        _set(noun.connection, {**connection, "number": number})
        _set(noun, conversation)
        self._connections[own] = number
        return noun

    def change(self, number: int, conversation: State, connection: State | None = None) -> Conversation:
        """As it is now."""
        noun = self._conversations[number]
        role = noun.data_server  # Which is found where all RPCs are.
        _set(noun, conversation)
        noun.data_server = role
        if connection is not None:
            _set(noun.connection, {**connection, "number": noun.connection.number})
        return noun

    def forget(self, number: int) -> None:
        del self._conversations[number]

    def connections(self, numbers: Int64s) -> Int64s:
        """The number in the whole capture."""
        return np.frombuffer(self._connections, np.int64)[numbers].copy()

    def connection(self, number: int) -> int:
        return self._connections[number]

    def rpc(self, number: int) -> int:
        """The number in the whole capture."""
        return self._rpcs[number]

    def rpcs(self, numbers: Int64s) -> Int64s:
        """The numbers in the whole capture of a worker's RPC numbers."""
        return np.frombuffer(self._rpcs, np.int64)[numbers].copy()

    def number_rpcs(self, numbers: Int64s) -> None:
        """The next RPCs have these numbers in the whole."""
        self._rpcs.frombytes(numbers.astype(np.int64).tobytes())


class MergedAnalyzer(Analyzer):
    """Takes what the workers deliver, or batches as they are where nothing is divided."""

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self._nouns: list[WorkerNouns] = []
        self._healths: dict[int, TransportHealth] = {}
        self._sums: tuple[Counter[str], list[Undecoded], dict[int, int]] = Counter(), [], {}
        self._registered = self._numbered = 0
        self._names = RpcNames()
        self._outstanding: list[Rpc] = []
        self.pass_listeners: Sequence[PassListener] = ()

    def divide(self, workers: int) -> list[WorkerNouns]:
        """So many workers will deliver."""
        self._nouns = [WorkerNouns() for _ in range(workers)]
        return self._nouns

    @property
    def divided(self) -> bool:
        return bool(self._nouns)

    @property
    def other_packets(self) -> Counter[str]:
        return self._sums[0] if self.divided else super().other_packets

    @property
    def undecoded(self) -> list[Undecoded]:
        return self._sums[1] if self.divided else super().undecoded

    @property
    def unplaced(self) -> dict[int, int]:
        return self._sums[2] if self.divided else super().unplaced

    def outstanding(self) -> Iterator[Rpc]:
        """Outstanding calls; of a divided capture those in the frames of the batch before, where packets are listed."""
        return iter(self._outstanding) if self.divided else super().outstanding()

    def health(self, number: int) -> TransportHealth:
        return self._healths[number] if self.divided else super().health(number)

    def feed_divided(self, batch: DividedBatch, data: Bytes) -> RpcTable:
        """The RPCs that ended in a batch; ``data``: of the capture."""
        counts = batch.counts
        self.frames += counts.frames
        self.truncated_frames += counts.truncated
        if self.first_time is None or self.earliest_time is None or self.last_time is None:
            self.first_time, self.earliest_time, self.last_time = counts.first, counts.first, counts.last
        self.earliest_time = min(self.earliest_time, counts.first)
        self.last_time = max(self.last_time, counts.last)
        self.clock = counts.clock if self.clock is None else self.clock.then(counts.clock)
        return self._table(batch.deliveries, data)

    def finish_divided(self, endings: Sequence[ShareEnding], data: Bytes) -> RpcTable:
        """The capture is over: the rest."""
        table = self._table([ending.delivery for ending in endings], data)
        others, undecoded, unplaced = self._sums
        for nouns, ending in zip(self._nouns, endings, strict=True):
            for number, connection, conversation in ending.connections:
                nouns.change(number, conversation, connection)
            for health in ending.healths:
                number = nouns.connection(health.connection)
                self._healths[number] = health._replace(connection=number)
            self.packets += ending.packets
            others.update(ending.other_packets)
            undecoded += [
                problem._replace(connection=nouns.connection(problem.connection)) for problem in ending.undecoded
            ]
            unplaced |= {nouns.connection(number): count for number, count in ending.unplaced.items()}
        note_outstanding(table.objects, self.connections, self.end_of)
        for ending in endings:
            self.skipped.update(ending.skipped)
        self.skipped = Counter({kind: count for kind, count in self.skipped.items() if count > 0})
        self._sums = others, sorted(undecoded), dict(sorted(unplaced.items()))
        self._take_watched([ending.watched for ending in endings], RpcTable([]))
        return table

    def _table(self, deliveries: Sequence[Delivery], data: Bytes) -> RpcTable:
        self._register(deliveries)
        for nouns, delivery in zip(self._nouns, deliveries, strict=True):
            for number, state in delivery.changed:
                nouns.change(number, state)
        self._number(deliveries)
        self._outstanding = [rpc for delivery in deliveries for rpc in delivery.outstanding]
        for nouns, delivery in zip(self._nouns, deliveries, strict=True):
            for rpc in delivery.outstanding:
                _renumber(rpc, nouns)
        objects, ended = self._objects(deliveries)
        rpcs = self._rpc_rows(deliveries, data)
        self._evict_divided(deliveries)
        table = RpcTable.of_ended(objects, rpcs, ended)
        self._take_watched([delivery.watched for delivery in deliveries], table)
        return table

    def _take_watched(self, watched: Sequence[list[object]], table: RpcTable) -> None:
        for index, pass_listener in enumerate(self.pass_listeners):
            workers = [WorkerFound(nouns, each[index]) for nouns, each in zip(self._nouns, watched, strict=True)]
            pass_listener.take(workers, table)

    def _register(self, deliveries: Sequence[Delivery]) -> None:
        """Number the new connections."""
        registered = [
            (place, worker, number, connection, conversation)
            for worker, delivery in enumerate(deliveries)
            for number, (place, connection, conversation) in enumerate(
                delivery.found, self._nouns[worker].expect(len(delivery.found))
            )
        ]
        for _, worker, number, connection, conversation in sorted(registered, key=lambda entry: entry[:3]):
            self._registered += 1
            made = self._nouns[worker].add(number, self._registered, connection, conversation)
            self.connections.append(made.connection)
            self._conversations[self._registered] = made

    def _number(self, deliveries: Sequence[Delivery]) -> None:
        """Number the RPCs: in the order of their calls, of those that are objects as they got theirs."""
        places: list[Int64s] = []
        own: list[Int64s] = []
        for nouns, delivery in zip(self._nouns, deliveries, strict=True):
            numbers, drawn = delivery.drawn
            mine = [2 * _late(nouns, drawn) + 1]  # A call in the place of another event comes before it.
            both = [numbers]
            if delivery.share is not None:
                rows = delivery.share.rows
                rows = rows[(rows["number"] > nouns.numbered) & ~np.isin(rows["number"], numbers)]
                mine.append(2 * rows["call_frame"])
                both.append(rows["number"])
            joined = np.concatenate(both)
            order = joined.argsort()
            own.append(joined[order])
            places.append(np.concatenate(mine)[order])
        ranks = np.concatenate(places).argsort(kind="stable").argsort()
        first = 0
        for nouns, numbers in zip(self._nouns, own, strict=True):
            nouns.number_rpcs(self._numbered + 1 + ranks[first : first + len(numbers)])
            first += len(numbers)
        self._numbered += first

    def _objects(self, deliveries: Sequence[Delivery]) -> tuple[list[Rpc], Int64s]:
        """The RPCs that are objects, and where they ended, in this order."""
        objects: list[Rpc] = []
        places: list[Int64s] = []
        for nouns, delivery in zip(self._nouns, deliveries, strict=True):
            for rpc in delivery.objects:
                _renumber(rpc, nouns)
            objects += delivery.objects
            # What an eviction ends comes behind all else.
            places.append(np.maximum.accumulate(_late(nouns, delivery.ended)))
        ended = np.concatenate(places)
        order = ended_order(ended, np.array([rpc.number for rpc in objects], np.int64))
        return [objects[index] for index in order.tolist()], ended[order]

    def _rpc_rows(self, deliveries: Sequence[Delivery], data: Bytes) -> RpcRows | None:
        if len(self._names.procedures) + len(self._names.statuses) > MAX_NAMES:
            self._names = RpcNames()
        there = [
            (nouns, delivery, delivery.share)
            for nouns, delivery in zip(self._nouns, deliveries, strict=True)
            if delivery.share
        ]
        if not there:
            return None
        runs = [runs_of(share, data) for _, _, share in there]
        chunks = [share.chunks for _, _, share in there if share.chunks is not None]
        chunked = 0
        for index, (nouns, delivery, share) in enumerate(there):
            rows = share.rows
            procedures = np.array([self._names.procedure(procedure) for procedure in delivery.procedures])
            statuses = np.array([self._names.status(*status) for status in delivery.statuses])
            rows["procedure"], rows["status"] = procedures[rows["procedure"]], statuses[rows["status"]]
            rows["connection"] = nouns.connections(rows["connection"])
            rows["number"] = nouns.rpcs(rows["number"])
            rows["call_run"] += 2 * index
            rows["reply_run"] += 2 * index
            for name in ("chunks", "transfer"):
                rows[name] += np.where(rows[name] >= 0, chunked, 0)
            if share.chunks is not None:
                chunked += len(share.chunks.firsts) - 1
        every = np.concatenate([share.rows for _, _, share in there])
        rows = take(every, ended_order(every["reply_frame"], every["number"]))
        conversations = {number: self._conversations[number] for number in unique(rows["connection"]).tolist()}
        dropped = there[0][2].dropped
        return RpcRows(
            rows,
            np.empty(0, np.uint8) if dropped else data,
            [*chain.from_iterable(runs)],
            conversations,
            self._names,
            ChunkColumns.joined(chunks) if chunks else None,
            dropped=dropped,
        )

    def _evict_divided(self, deliveries: Sequence[Delivery]) -> None:
        gone: list[Conversation] = []
        for nouns, delivery in zip(self._nouns, deliveries, strict=True):
            for number, connection, conversation in delivery.gone:
                gone.append(nouns.change(number, conversation, connection))
                nouns.forget(number)
                del self._conversations[gone[-1].connection.number]
        if gone:
            numbers = {conversation.connection.number for conversation in gone}
            self.connections[:] = [connection for connection in self.connections if connection.number not in numbers]
            self._leaving += sorted(gone, key=lambda conversation: conversation.connection.last_time)
            names = [field.name for field in fields(Evicted)]
            self.evicted = Evicted(*(sum(getattr(delivery.evicted, name) for delivery in deliveries) for name in names))


def _late(nouns: WorkerNouns, places: Int64s) -> Int64s:
    """Places behind all events in the order of connections in the whole."""
    late_places = places.copy()
    late = places >= LATE
    if late.any():
        late_places[late] = LATE + nouns.connections(places[late] - LATE)
    return late_places


def _renumber(rpc: Rpc, nouns: WorkerNouns) -> None:
    rpc.number = nouns.rpc(rpc.number)
    if rpc.notes:
        rpc.notes = tuple(_NAMED.sub(lambda match: f"RPC {nouns.rpc(int(match[1]))}", note) for note in rpc.notes)


def _set(noun: Connection | Conversation, state: State) -> None:
    for name, value in state.items():
        setattr(noun, name, value)
