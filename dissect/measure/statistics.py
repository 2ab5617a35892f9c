"""What RPCs cost: counters and latency samples, gathered while RPCs end; no Rpc is kept.

Give every Rpc to ``Statistics.add``, then ask for ``procedures()``, ``transfers``, ``slowest()`` and the rest.
An RPC costs 8 bytes for its latency, 4 for each part of it that is not zero, and nothing else; of procedures that are
called very often, the earlier latencies become a histogram.
"""

from __future__ import annotations

import heapq
import re
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..layers.rpcrdma_codes import RDMA_NOMSG
from ..percentiles import Samples
from ..rpcrdma.rpcs import Latency, Rpc
from ..transport.connection import Connection
from .distribution import Distribution, distribution, histogram
from .time_series import Timeline

PARTS = ("call", "reads", "server", "writes", "reply")
"""Parts of ``Latency``, in the order of the wire."""

WAYS = ("inline call", "inline reply", "read chunk", "position zero", "write chunk", "reply chunk")
"""How Payload streams travel (RFC 8166, 3.4 and 3.5): in a Send, or through memory."""

EXACT = 1 << 17
"""Latencies of a procedure that are kept as they are; percentiles of more are good to 2 %."""
MAX_PROCEDURES = 2048
"""Distinct COMPOUNDs told apart; what comes after is counted under operations ``('other',)``."""
MAX_REASONS = 64


class ProcedureKey(NamedTuple):
    """What RPCs are grouped by."""

    program: int | None
    version: int | None
    minor_version: int | None
    procedure: int | None
    operations: tuple[str, ...]
    backward: bool
    name: str


class Slow(NamedTuple):
    """One of the slowest RPCs."""

    latency: Latency
    number: int
    connection: int
    xid: int
    key: ProcedureKey
    state: str
    status: str
    call_frame: int
    reply_frame: int
    call_bytes: int
    reply_bytes: int
    retransmissions: int


@dataclass(slots=True)
class Transfer:
    """One of ``WAYS``: how often it was taken, and what went through."""

    messages: int = 0
    chunks: int = 0
    segments: int = 0
    advertised: int = 0
    """Bytes of memory offered; inline: 0."""
    moved: int = 0
    unused: int = 0
    """Chunks through which nothing was moved."""


class Procedure:
    """What the RPCs of one procedure, or of one COMPOUND, came to."""

    __slots__ = (
        "_folded",
        "_folded_total",
        "_parts",
        "_recent",
        "_total",
        "call_bytes",
        "calls",
        "failed",
        "key",
        "reply_bytes",
        "states",
        "statuses",
    )

    def __init__(self, key: ProcedureKey) -> None:
        self.key = key
        self.calls = 0
        """RPCs, those included of which only one half was seen."""
        self.failed = 0
        self.call_bytes = 0
        """Inline and by Read chunk."""
        self.reply_bytes = 0
        """Inline, by Write chunk and by Reply chunk."""
        self.states: dict[str, int] = {}
        self.statuses: dict[str, int] = {}
        """Failures by name."""
        self._total = array("q")
        self._parts = tuple(array("f") for _ in PARTS)
        # Parts that are zero are not stored: most RPCs have no RDMA Read, and one-packet Sends take no time.
        self._recent: tuple[array[Any], ...] = (self._total, *self._parts)
        self._folded = tuple(Samples() for _ in ("total", *PARTS))
        """What came before that."""
        self._folded_total = [0 for _ in self._folded]

    def latency(self) -> Distribution | None:
        """None where no RPC had both halves."""
        return self._distribution(0)

    def parts(self) -> dict[str, Distribution]:
        """By the names in ``PARTS``; empty where ``latency()`` is None."""
        found = {}
        for at, name in enumerate(PARTS, 1):
            part = self._distribution(at)
            if part is not None:
                found[name] = part
        return found

    @property
    def waited(self) -> int:
        """Nanoseconds, the sum of all latencies."""
        return self._folded_total[0] + int(_numbers(self._total).sum())

    def weighted(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Latencies in nanoseconds, and how many there are of each."""
        values, counts = self._folded[0].weighted()
        recent = _numbers(self._total)
        return np.concatenate((values, recent)), np.concatenate((counts, np.ones(len(recent), np.int64)))

    def fold(self) -> None:
        """Make a histogram of the latencies."""
        for at, samples in enumerate(self._recent):
            values = _numbers(samples)
            self._folded[at].add(values)
            self._folded_total[at] += int(values.sum())
            del samples[:]

    def _distribution(self, at: int) -> Distribution | None:
        """Of the latency, or of one of its parts."""
        count = self._folded[0].count + len(self._total)
        samples = self._recent[at]
        folded = self._folded[at]
        if not folded.count:
            return distribution(np.frombuffer(samples, samples.typecode) if samples else np.empty(0), count)
        every = Samples()
        every.merge(folded)
        every.add(_numbers(samples))
        zeros = count - every.count

        def percentile(percent: int) -> int:
            rank = -(-count * percent // 100) - zeros
            return every.at(rank / every.count) if rank > 0 else 0

        total = self._folded_total[at] + int(_numbers(samples).sum())
        smallest = 0 if zeros else every.minimum
        return Distribution(count, smallest, percentile(50), percentile(95), percentile(99), every.maximum, total)


def _numbers(samples: array[Any]) -> NDArray[np.int64]:
    """A copy."""
    return np.frombuffer(samples, samples.typecode).astype(np.int64) if samples else np.empty(0, np.int64)


@dataclass(slots=True)
class Share:
    """What one connection carried."""

    calls: int = 0
    backward: int = 0
    failed: int = 0
    call_bytes: int = 0
    reply_bytes: int = 0

    def add(self, other: Share) -> None:
        self.calls += other.calls
        self.backward += other.backward
        self.failed += other.failed
        self.call_bytes += other.call_bytes
        self.reply_bytes += other.reply_bytes


class Statistics:
    """The sum of what a report says about RPCs."""

    def __init__(self, keep_slowest: int = 10) -> None:
        self.transfers = {way: Transfer() for way in WAYS}
        self.connections: dict[int, Share] = {}
        """By connection number."""
        self.retired = Share()
        """What connections carried that are not told of one by one any more."""
        self.damage: dict[str, int] = {}
        """Reasons why RPCs are damaged; numbers in them replaced by N."""
        self.notes: dict[str, int] = {}
        self.timeline = Timeline()
        self._procedures: dict[tuple[Any, ...], Procedure] = {}
        self._slowest: list[tuple[int, int, Slow]] = []
        self._keep = keep_slowest
        self._inline_call = self.transfers["inline call"]
        self._inline_reply = self.transfers["inline reply"]

    @property
    def calls(self) -> int:
        """RPCs, whole or in part."""
        return sum(one.calls for one in self._procedures.values())

    @property
    def states(self) -> dict[str, int]:
        """RPCs by ``Rpc.state``, the most frequent first."""
        counts: Counter[str] = Counter()
        for one in self._procedures.values():
            counts.update(one.states)
        return dict(counts.most_common())

    def add(self, rpc: Rpc) -> None:
        """Take one RPC that has ended."""
        key = (
            rpc.program, rpc.version, rpc.minor_version, rpc.procedure, rpc.operations, rpc.backward, rpc.name,
        )  # fmt: skip
        entry = self._procedures.get(key)
        if entry is None:
            entry = self._new_procedure(ProcedureKey(*key))
        number = rpc.connection.number
        share = self.connections.get(number)
        if share is None:
            share = self.connections[number] = Share()

        state = rpc.state
        entry.calls += 1
        entry.states[state] = entry.states.get(state, 0) + 1
        share.calls += 1
        if rpc.backward:
            share.backward += 1
        if rpc.failed:
            entry.failed += 1
            share.failed += 1
            entry.statuses[rpc.status] = entry.statuses.get(rpc.status, 0) + 1
        if rpc.damage:
            _count_reasons(self.damage, rpc.damage)
        if rpc.notes:
            _count_reasons(self.notes, rpc.notes)

        call, reply = rpc.call, rpc.reply
        call_bytes = reply_bytes = 0
        time = 0
        if call is not None:
            time = call.operation.last_time
            call_bytes = call.inline_length
            if call_bytes:
                inline = self._inline_call
                inline.messages += 1
                inline.moved += call_bytes
        if reply is not None:
            time = reply.operation.last_time
            reply_bytes = reply.inline_length
            if reply_bytes:
                inline = self._inline_reply
                inline.messages += 1
                inline.moved += reply_bytes
        if rpc.chunks:
            by_call, by_reply = self._add_chunks(rpc)
            call_bytes += by_call
            reply_bytes += by_reply
        entry.call_bytes += call_bytes
        entry.reply_bytes += reply_bytes
        share.call_bytes += call_bytes
        share.reply_bytes += reply_bytes
        self.timeline.add(time, call_bytes, reply_bytes)

        latency = rpc.latency
        if latency is not None:
            total, call_part, reads, server, writes, reply_part = latency
            entry._total.append(total)
            if not entry.calls % EXACT:
                entry.fold()
            parts = entry._parts
            if call_part:
                parts[0].append(call_part)
            if reads:
                parts[1].append(reads)
            if server:
                parts[2].append(server)
            if writes:
                parts[3].append(writes)
            if reply_part:
                parts[4].append(reply_part)
            slowest = self._slowest
            if len(slowest) < self._keep:
                heapq.heappush(slowest, (total, -rpc.number, _slow(rpc, entry.key, call_bytes, reply_bytes)))
            elif slowest and total > slowest[0][0]:
                heapq.heapreplace(slowest, (total, -rpc.number, _slow(rpc, entry.key, call_bytes, reply_bytes)))

    def retire(self, connections: Iterable[Connection]) -> None:
        """No Rpc of these will come any more: only the sum of them is kept."""
        for connection in connections:
            share = self.connections.pop(connection.number, None)
            if share is not None:
                self.retired.add(share)

    def procedures(self) -> list[Procedure]:
        """The busiest first: by the time spent waiting for them, then by calls."""
        return sorted(self._procedures.values(), key=lambda one: (-one.waited, -one.calls))

    def slowest(self) -> list[Slow]:
        """The slowest first."""
        return [slow for _, _, slow in sorted(self._slowest, key=lambda one: (-one[0], -one[1]))]

    def histogram(self, most: int = 24) -> list[tuple[int, int, int]]:
        """All latencies: see ``histogram``."""
        parts = [one.weighted() for one in self._procedures.values()]
        if not parts:
            return []
        return histogram(np.concatenate([one[0] for one in parts]), most, np.concatenate([one[1] for one in parts]))

    def _new_procedure(self, key: ProcedureKey) -> Procedure:
        if len(self._procedures) >= MAX_PROCEDURES:
            key = ProcedureKey(None, None, None, None, ("other",), key.backward, "")
        return self._procedures.setdefault(key, Procedure(key))

    def _add_chunks(self, rpc: Rpc) -> tuple[int, int]:
        """Bytes that the chunks moved for the call and for the reply."""
        by_call = by_reply = 0
        ways = set()
        for chunk in rpc.chunks:
            kind = chunk.kind
            moved = chunk.moved
            if kind == "read":
                way = "read chunk"
                by_call += moved
                if chunk.position == 0 and rpc.call is not None and rpc.call.header.procedure == RDMA_NOMSG:
                    way = "position zero"
            else:
                way = "write chunk" if kind == "write" else "reply chunk"
                by_reply += moved
            transfer = self.transfers[way]
            if way not in ways:
                ways.add(way)
                transfer.messages += 1
            transfer.chunks += 1
            transfer.segments += len(chunk.segments)
            transfer.advertised += chunk.advertised
            transfer.moved += moved
            if not moved:
                transfer.unused += 1
        return by_call, by_reply


def _slow(rpc: Rpc, key: ProcedureKey, call_bytes: int, reply_bytes: int) -> Slow:
    assert rpc.latency is not None
    return Slow(
        rpc.latency,
        rpc.number,
        rpc.connection.number,
        rpc.xid,
        key,
        rpc.state,
        rpc.status,
        rpc.call.operation.first_frame if rpc.call else 0,
        rpc.reply.operation.last_frame if rpc.reply else 0,
        call_bytes,
        reply_bytes,
        rpc.retransmissions,
    )


def _count_reasons(counts: dict[str, int], reasons: Iterable[str]) -> None:
    for reason in set(map(_general, reasons)):
        if reason not in counts and len(counts) >= MAX_REASONS:
            reason = "other"
        counts[reason] = counts.get(reason, 0) + 1


_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d[\d,]*")


@lru_cache(1024)
def _general(reason: str) -> str:
    return _NUMBER.sub("N", reason)
