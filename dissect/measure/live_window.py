"""A live capture: rates of the last seconds, latencies of the last minute, the newest and the slowest RPCs.

Time is an argument.  Memory is bounded: the minute is a number of slots, each with a bounded number of procedures.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ..arrays import Int64s, distinct, take
from ..named_tuple import NamedTuple
from ..percentiles import Distribution, Samples
from ..rpcrdma.rpc_table import DUPLICATE, RpcTable
from ..transport.connection import Connection
from .statistics import ListedRpcs, ProcedureKey, SlowRpc, note_slowest, other_procedures

SLOT = 5_000_000_000
"""Nanoseconds."""
SLOTS = 12
RATES = 3_000_000_000
"""Nanoseconds over which rates are taken."""
SECOND = 1_000_000_000
HISTORY = 120
"""Seconds of which the rates are remembered."""
MAX_PROCEDURES = 128
"""In a slot; what comes after is counted as one."""
MAX_CONNECTIONS = 64
"""Connections that are counted separately, beside the selected one."""


@dataclass(slots=True)
class _SlotProcedure:
    """The RPCs of one procedure in one slot."""

    calls: int = 0
    failed: int = 0
    latencies: Samples = field(default_factory=Samples)


@dataclass(slots=True)
class _SlotConnection:
    """The RPCs of one connection, or of all, in one slot."""

    procedures: dict[ProcedureKey, _SlotProcedure] = field(default_factory=dict)
    slowest: list[tuple[int, int, SlowRpc]] = field(default_factory=list)

    def add(self, batch: ListedRpcs, places: Int64s, max_slowest: int) -> None:
        """Add the RPCs of a batch at these ``places``."""
        rows = take(batch.rows, places)
        failed = np.array([failed for _, failed in batch.names.statuses])[rows["status"]]
        first, which = distinct(rows["procedure"], rows["caller"])
        for kind, row in enumerate(places[first].tolist()):
            key = batch.key(row)
            if key not in self.procedures and len(self.procedures) >= MAX_PROCEDURES:
                key = other_procedures(key)
            entry = self.procedures.setdefault(key, _SlotProcedure())
            mine = which == kind
            entry.calls += int(np.count_nonzero(mine))
            entry.failed += int(np.count_nonzero(failed[mine]))
            entry.latencies.add(rows["latency"][mine & (rows["latency"] >= 0)])
        note_slowest(self.slowest, batch, places[batch.waiting[places] >= 0], max_slowest)


@dataclass(slots=True)
class _Slot:
    number: int
    """Time divided by ``SLOT``."""
    all: _SlotConnection = field(default_factory=_SlotConnection)
    connections: dict[int, _SlotConnection] = field(default_factory=dict)

    def of(self, connection: int | None) -> _SlotConnection | None:
        """What is counted of a connection, of all of them for None."""
        return self.all if connection is None else self.connections.get(connection)


@dataclass(frozen=True, slots=True)
class BusyProcedure:
    """A procedure in the last minute."""

    key: ProcedureKey
    calls: int
    failed: int
    latency: Distribution | None


@dataclass(frozen=True, slots=True)
class Rate:
    """Per second, over the last few."""

    rpcs: float = 0.0
    up: float = 0.0
    """Payload bytes of the clients, retransmissions included."""
    down: float = 0.0


class _Counters(NamedTuple):
    """Totals at one moment."""

    time: int
    rpcs: dict[int, int]
    """RPCs so far, by number of the connection."""
    sent: dict[int, tuple[int, int]]
    """Bytes of either side, by connection."""
    total: int
    """RPCs so far, of all connections."""


class LiveWindow:
    """Fed the RPCs that ended, and the time."""

    def __init__(self, newest: int = 40, slowest: int = 20) -> None:
        self.picked: int | None = None
        """A connection that is always counted apart."""
        self._max_newest = newest
        self._newest: dict[int | None, deque[SlowRpc]] = {None: deque(maxlen=newest)}
        """The newest RPCs of all, and of each connection."""
        self.history: deque[Rate] = deque(maxlen=HISTORY)
        """The latest seconds, one entry each."""
        self._max_slowest = slowest
        self._slots: deque[_Slot] = deque(maxlen=SLOTS)
        self._rpcs: dict[int, int] = {}
        self._total = 0
        self._marks: deque[_Counters] = deque()
        self._second = 0
        self._last: _Counters | None = None
        """Counters at the last whole second."""

    def add(self, table: RpcTable) -> None:
        """Take RPCs that ended."""
        if not len(table):
            return
        batch = ListedRpcs(table)
        numbers = batch.rows["connection"]
        self._list(batch, None, np.arange(len(table)))
        room = MAX_CONNECTIONS + 1 - len(self._newest)
        for number, places in _grouped(numbers, np.arange(len(table))):
            if number in self._newest or number == self.picked or room > 0:
                room -= number not in self._newest
                self._list(batch, number, places)
        counted = (batch.rows["state"] != DUPLICATE).nonzero()[0]
        self._total += len(counted)
        for time, places in _grouped(batch.times // SLOT, counted):
            slot = self._slot(time * SLOT)
            if slot is not None:
                slot.all.add(batch, places, self._max_slowest)
            for number, mine in _grouped(numbers, places):
                self._rpcs[number] = self._rpcs.get(number, 0) + len(mine)
                if slot is None:
                    continue
                connection = slot.connections.get(number)
                if connection is None and (len(slot.connections) < MAX_CONNECTIONS or number == self.picked):
                    connection = slot.connections[number] = _SlotConnection()
                if connection is not None:
                    connection.add(batch, mine, self._max_slowest)

    def _list(self, batch: ListedRpcs, connection: int | None, places: Int64s) -> None:
        kept = self._newest.setdefault(connection, deque(maxlen=self._max_newest))
        kept.extend(map(batch.one, places[-self._max_newest :].tolist()))

    def newest(self, connection: int | None = None) -> list[SlowRpc]:
        """The newest last; of one connection, or of all."""
        return [*self._newest.get(connection, ())]

    def _slot(self, time: int) -> _Slot | None:
        """Where what ended at ``time`` is counted; None where that is more than a minute ago."""
        number = time // SLOT
        if not self._slots or number > self._slots[-1].number:
            self._slots.append(_Slot(number))
            return self._slots[-1]
        for slot in reversed(self._slots):
            if slot.number <= number:
                return slot
        return None

    def advance(self, now: int, connections: Iterable[Connection]) -> None:
        """It is ``now`` (ns): read the counters."""
        while self._slots and self._slots[0].number <= now // SLOT - SLOTS:
            self._slots.popleft()
        sent = {connection.number: (connection.bytes[0], connection.bytes[1]) for connection in connections}
        self._rpcs = {number: count for number, count in self._rpcs.items() if number in sent}
        self._newest = {which: newest for which, newest in self._newest.items() if which is None or which in sent}
        mark = _Counters(now, dict(self._rpcs), sent, self._total)
        self._marks.append(mark)
        while len(self._marks) > 2 and now - self._marks[0].time > RATES:
            self._marks.popleft()
        if now // SECOND > self._second:
            self._second = now // SECOND
            if self._last is not None:
                self.history.append(_total(self._last, mark))
            self._last = mark

    @property
    def rate(self) -> Rate:
        """The rates of all connections together."""
        return _total(self._marks[0], self._marks[-1]) if self._marks else Rate()

    def rate_of(self, connection: int) -> Rate:
        return _total(self._marks[0], self._marks[-1], connection) if self._marks else Rate()

    def busy(self, connection: int | None = None) -> list[BusyProcedure]:
        """The procedures of the last minute, the most time spent on them first; of one connection, or of all."""
        merged: dict[ProcedureKey, _SlotProcedure] = {}
        for counted in self._counted(connection):
            for key, entry in counted.procedures.items():
                total = merged.setdefault(key, _SlotProcedure())
                total.calls += entry.calls
                total.failed += entry.failed
                total.latencies.merge(entry.latencies)
        busiest = [
            BusyProcedure(key, slot_procedure.calls, slot_procedure.failed, slot_procedure.latencies.distribution())
            for key, slot_procedure in merged.items()
        ]
        return sorted(busiest, key=lambda shown: (-(shown.latency.total if shown.latency else 0), -shown.calls))

    def slowest(self, connection: int | None = None) -> list[SlowRpc]:
        """The slowest RPCs of the last minute, the slowest first; on one connection, or on all."""
        entries = (entry for counted in self._counted(connection) for entry in counted.slowest)
        return [slow_rpc for _, _, slow_rpc in heapq.nlargest(self._max_slowest, entries)]

    def _counted(self, connection: int | None) -> list[_SlotConnection]:
        return [counted for slot in self._slots if (counted := slot.of(connection)) is not None]


def _grouped(values: Int64s, places: Int64s) -> Iterator[tuple[int, Int64s]]:
    """Each value of some places, and which have it; in the order of first appearance."""
    first, which = distinct(values[places])
    for kind in first.argsort().tolist():
        yield int(values[places[first[kind]]]), places[which == kind]


def _total(first: _Counters, last: _Counters, connection: int | None = None) -> Rate:
    """One connection, or all together; one that was evicted in between does not count for its bytes."""
    seconds = max(1, last.time - first.time) / SECOND
    calls, counted = last.total - first.total, [*last.sent]
    if connection is not None:
        calls, counted = last.rpcs.get(connection, 0) - first.rpcs.get(connection, 0), [connection]
    up, down = (
        sum(last.sent.get(number, (0, 0))[side] - first.sent.get(number, (0, 0))[side] for number in counted)
        for side in (0, 1)
    )
    return Rate(calls / seconds, up / seconds, down / seconds)
