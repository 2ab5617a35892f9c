"""What goes on now: rates of the last seconds, latencies of the last minute, the newest and the slowest RPCs.

Time is an argument.  Memory is bounded: the minute is a number of slots, each with a bounded number of procedures.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..percentiles import Samples
from ..rpcrdma.rpcs import Rpc
from ..transport.connection import Connection
from .distribution import Distribution

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
UNFOLDED = 4096
"""Latencies of a procedure that are kept as they are, before they become a histogram."""


class What(NamedTuple):
    """What was called."""

    program: int | None
    version: int | None
    minor_version: int | None
    name: str
    operations: tuple[str, ...]
    backward: bool


OTHER = What(None, None, None, "other", (), False)


class Line(NamedTuple):
    """What is told of one RPC."""

    number: int
    connection: int
    what: What
    xid: int
    time: int
    """Nanoseconds; of its last packet."""
    latency: int | None
    state: str
    status: str
    up: int
    """Bytes of the call and of the reply, inline and by chunk."""
    down: int
    retransmissions: int


@dataclass(slots=True)
class _Called:
    """The RPCs of one procedure in one slot."""

    calls: int = 0
    failed: int = 0
    latencies: array[int] = field(default_factory=lambda: array("q"))
    samples: Samples = field(default_factory=Samples)

    def fold(self) -> None:
        if self.latencies:
            self.samples.add(np.array(self.latencies, np.int64))
            self.latencies = array("q")


@dataclass(slots=True)
class _Slot:
    number: int
    """Time divided by ``SLOT``."""
    called: dict[What, _Called] = field(default_factory=dict)
    slowest: list[tuple[int, int, Line]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Busy:
    """A procedure in the last minute."""

    what: What
    calls: int
    failed: int
    latency: Distribution | None


@dataclass(frozen=True, slots=True)
class Rate:
    """Per second, over the last few."""

    rpcs: float = 0.0
    up: float = 0.0
    """Payload bytes of the active sides, repetitions included."""
    down: float = 0.0


class _Mark(NamedTuple):
    """The counters at one moment."""

    time: int
    rpcs: dict[int, int]
    """By connection."""
    sent: dict[int, tuple[int, int]]
    """Bytes of either side, by connection."""
    total: int
    """RPCs."""


class Recent:
    """Give it the RPCs that ended, and tell it the time."""

    def __init__(self, newest: int = 40, slowest: int = 20) -> None:
        self.newest: deque[Line] = deque(maxlen=newest)
        self.history: deque[Rate] = deque(maxlen=HISTORY)
        """One a second."""
        self._keep = slowest
        self._slots: deque[_Slot] = deque(maxlen=SLOTS)
        self._rpcs: dict[int, int] = {}
        self._total = 0
        self._marks: deque[_Mark] = deque()
        self._second = 0
        self._last: _Mark | None = None
        """That of the last whole second."""

    def forget(self) -> None:
        """Begin anew with everything but the rates."""
        self.newest.clear()
        self._slots.clear()

    def add(self, rpcs: Sequence[Rpc], only: int | None = None) -> None:
        """Take RPCs that ended; ``only`` those of one connection, except for the rates."""
        self._total += len(rpcs)
        for rpc in rpcs:
            number = rpc.connection.number
            self._rpcs[number] = self._rpcs.get(number, 0) + 1
        if only is not None:
            rpcs = [rpc for rpc in rpcs if rpc.connection.number == only]
        for rpc in rpcs[-(self.newest.maxlen or 0) :]:
            self.newest.append(line(rpc))
        for rpc in rpcs:
            slot = self._slot(_time(rpc))
            if slot is None:
                continue
            what = What(rpc.program, rpc.version, rpc.minor_version, rpc.name, rpc.operations, rpc.backward)
            called = slot.called.get(what)
            if called is None:
                what = what if len(slot.called) < MAX_PROCEDURES else OTHER
                called = slot.called.setdefault(what, _Called())
            called.calls += 1
            called.failed += rpc.failed
            if rpc.latency is None:
                continue
            total = rpc.latency.total
            called.latencies.append(total)
            if len(called.latencies) >= UNFOLDED:
                called.fold()
            if len(slot.slowest) < self._keep:
                heapq.heappush(slot.slowest, (total, -rpc.number, line(rpc)))
            elif total > slot.slowest[0][0]:
                heapq.heapreplace(slot.slowest, (total, -rpc.number, line(rpc)))

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
        """Time has come to ``now`` (ns): look at the counters."""
        while self._slots and self._slots[0].number <= now // SLOT - SLOTS:
            self._slots.popleft()
        sent = {one.number: (one.bytes[0], one.bytes[1]) for one in connections}
        self._rpcs = {number: count for number, count in self._rpcs.items() if number in sent}
        mark = _Mark(now, dict(self._rpcs), sent, self._total)
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
        """Of all connections together."""
        return _total(self._marks[0], self._marks[-1]) if self._marks else Rate()

    def rate_of(self, connection: int) -> Rate:
        if not self._marks:
            return Rate()
        first, last = self._marks[0], self._marks[-1]
        seconds = max(1, last.time - first.time) / SECOND
        before, after = first.sent.get(connection, (0, 0)), last.sent.get(connection, (0, 0))
        calls = last.rpcs.get(connection, 0) - first.rpcs.get(connection, 0)
        return Rate(calls / seconds, (after[0] - before[0]) / seconds, (after[1] - before[1]) / seconds)

    def busy(self) -> list[Busy]:
        """The procedures of the last minute, the most time spent on them first."""
        merged: dict[What, tuple[_Called, Samples]] = {}
        for slot in self._slots:
            for what, called in slot.called.items():
                called.fold()
                sum_, samples = merged.setdefault(what, (_Called(), Samples()))
                sum_.calls += called.calls
                sum_.failed += called.failed
                samples.merge(called.samples)
        found = [Busy(what, sum_.calls, sum_.failed, _spread(samples)) for what, (sum_, samples) in merged.items()]
        return sorted(found, key=lambda one: (-(one.latency.total if one.latency else 0), -one.calls))

    def slowest(self) -> list[Line]:
        """Of the last minute, the slowest first."""
        found = heapq.nlargest(self._keep, (entry for slot in self._slots for entry in slot.slowest))
        return [one for _, _, one in found]


def line(rpc: Rpc) -> Line:
    up = rpc.call.inline_length if rpc.call else 0
    down = rpc.reply.inline_length if rpc.reply else 0
    for chunk in rpc.chunks:
        if chunk.kind == "read":
            up += chunk.moved
        else:
            down += chunk.moved
    return Line(
        rpc.number,
        rpc.connection.number,
        What(rpc.program, rpc.version, rpc.minor_version, rpc.name, rpc.operations, rpc.backward),
        rpc.xid,
        _time(rpc),
        None if rpc.latency is None else rpc.latency.total,
        rpc.state,
        rpc.status,
        up,
        down,
        rpc.retransmissions,
    )


def _time(rpc: Rpc) -> int:
    message = rpc.reply or rpc.call
    return message.operation.last_time if message is not None else 0


def _total(first: _Mark, last: _Mark) -> Rate:
    """All connections together; one that was retired in between does not count for its bytes."""
    seconds = max(1, last.time - first.time) / SECOND
    up = down = 0
    for number, after in last.sent.items():
        before = first.sent.get(number, (0, 0))
        up += after[0] - before[0]
        down += after[1] - before[1]
    return Rate((last.total - first.total) / seconds, up / seconds, down / seconds)


def _spread(samples: Samples) -> Distribution | None:
    if not samples.count:
        return None
    values, counts = samples.weighted()
    return Distribution(
        samples.count,
        samples.minimum,
        samples.at(0.5),
        samples.at(0.95),
        samples.at(0.99),
        samples.maximum,
        int((values * counts).sum()),
    )
