"""Puts the shares of several workers together again: the RPCs of each batch, connections and sums as of one process."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain

import numpy as np

from rdmascope.dissect.arrays import Bytes, Int64s, take
from rdmascope.dissect.link.frame_decoder import DecodedFrames
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options
from rdmascope.dissect.rpcrdma.chunk_columns import PlainChunks
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.dispatch import Undecoded
from rdmascope.dissect.rpcrdma.eviction import Evicted
from rdmascope.dissect.rpcrdma.rpc_numbers import LATE, ended_order
from rdmascope.dissect.rpcrdma.rpc_table import PlainRpcs, RpcNames, RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.rpcrdma.unanswered import note_outstanding
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.health import TransportHealth

from ..session.listeners import PassListener, WorkerFound
from .worker import Delivery, ShareEnding, State, runs_of

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
    known: int
    addresses: list[bytes]
    """Those behind the ``known`` ones."""

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
        """Frames."""
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
        """The same of many."""
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
        self.watching: Sequence[PassListener] = ()

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
                self._healths[number] = replace(health, connection=number)
            self.packets += ending.packets
            others.update(ending.other_packets)
            undecoded += [one._replace(connection=nouns.connection(one.connection)) for one in ending.undecoded]
            unplaced |= {nouns.connection(number): count for number, count in ending.unplaced.items()}
        note_outstanding(table.objects, self.connections, self.last_time or 0)
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
        plain = self._plain_rpcs(deliveries, data)
        self._evict_divided(deliveries)
        table = RpcTable.of_ended(objects, plain, ended)
        self._take_watched([one.watched for one in deliveries], table)
        return table

    def _take_watched(self, found: Sequence[list[object]], table: RpcTable) -> None:
        for index, one in enumerate(self.watching):
            workers = [WorkerFound(nouns, each[index]) for nouns, each in zip(self._nouns, found, strict=True)]
            one.take(workers, table)

    def _register(self, deliveries: Sequence[Delivery]) -> None:
        """Number the new connections."""
        found = [
            (place, worker, number, connection, conversation)
            for worker, delivery in enumerate(deliveries)
            for number, (place, connection, conversation) in enumerate(
                delivery.found, self._nouns[worker].expect(len(delivery.found))
            )
        ]
        for _, worker, number, connection, conversation in sorted(found, key=lambda one: one[:3]):
            self._registered += 1
            made = self._nouns[worker].add(number, self._registered, connection, conversation)
            self.connections.append(made.connection)
            self._conversations[self._registered] = made

    def _number(self, deliveries: Sequence[Delivery]) -> None:
        """Number the RPCs: in the order of their calls, of those that are not plain as they got theirs."""
        places: list[Int64s] = []
        own: list[Int64s] = []
        for nouns, delivery in zip(self._nouns, deliveries, strict=True):
            numbers, drawn = delivery.drawn
            mine = [2 * _late(nouns, drawn) + 1]  # A call in the place of another event comes before it.
            both = [numbers]
            if delivery.plain is not None:
                rows = delivery.plain.rows
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

    def _plain_rpcs(self, deliveries: Sequence[Delivery], data: Bytes) -> PlainRpcs | None:
        if len(self._names.procedures) + len(self._names.statuses) > MAX_NAMES:
            self._names = RpcNames()
        there = [(nouns, one, one.plain) for nouns, one in zip(self._nouns, deliveries, strict=True) if one.plain]
        if not there:
            return None
        runs = [runs_of(plain, data) for _, _, plain in there]
        chunks = [plain.chunks for _, _, plain in there if plain.chunks is not None]
        chunked = 0
        for index, (nouns, delivery, plain) in enumerate(there):
            rows = plain.rows
            procedures = np.array([self._names.procedure(procedure) for procedure in delivery.procedures])
            statuses = np.array([self._names.status(*status) for status in delivery.statuses])
            rows["procedure"], rows["status"] = procedures[rows["procedure"]], statuses[rows["status"]]
            rows["connection"] = nouns.connections(rows["connection"])
            rows["number"] = nouns.rpcs(rows["number"])
            rows["call_run"] += 2 * index
            rows["reply_run"] += 2 * index
            for name in ("chunks", "transfer"):
                rows[name] += np.where(rows[name] >= 0, chunked, 0)
            if plain.chunks is not None:
                chunked += len(plain.chunks.firsts) - 1
        every = np.concatenate([plain.rows for _, _, plain in there])
        rows = take(every, ended_order(every["reply_frame"], every["number"]))
        conversations = {number: self._conversations[number] for number in np.unique(rows["connection"]).tolist()}
        dropped = there[0][2].dropped
        return PlainRpcs(
            rows,
            np.empty(0, np.uint8) if dropped else data,
            [*chain.from_iterable(runs)],
            conversations,
            self._names,
            PlainChunks.joined(chunks) if chunks else None,
            dropped,
        )

    def _evict_divided(self, deliveries: Sequence[Delivery]) -> None:
        gone: list[Conversation] = []
        for nouns, delivery in zip(self._nouns, deliveries, strict=True):
            for number, connection, conversation in delivery.gone:
                gone.append(nouns.change(number, conversation, connection))
                nouns.forget(number)
                del self._conversations[gone[-1].connection.number]
        if gone:
            numbers = {one.connection.number for one in gone}
            self.connections[:] = [one for one in self.connections if one.number not in numbers]
            self._leaving += sorted(gone, key=lambda one: one.connection.last_time)
            names = [field.name for field in fields(Evicted)]
            self.evicted = Evicted(*(sum(getattr(one.evicted, name) for one in deliveries) for name in names))


def _late(nouns: WorkerNouns, places: Int64s) -> Int64s:
    """Places behind all events in the order of connections in the whole."""
    found = places.copy()
    late = places >= LATE
    if late.any():
        found[late] = LATE + nouns.connections(places[late] - LATE)
    return found


def _renumber(rpc: Rpc, nouns: WorkerNouns) -> None:
    rpc.number = nouns.rpc(rpc.number)
    if rpc.notes:
        rpc.notes = tuple(_NAMED.sub(lambda found: f"RPC {nouns.rpc(int(found[1]))}", note) for note in rpc.notes)


def _set(noun: Connection | Conversation, state: State) -> None:
    for name, value in state.items():
        setattr(noun, name, value)
