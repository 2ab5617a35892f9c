"""What RPCs cost: counters and latency samples, gathered as RPCs end; no Rpc is kept.

Give every table to ``Statistics.add_table``, then ask for ``procedures()``, ``transfers``, ``slowest()`` and the rest.
An RPC costs 8 bytes for its latency and 4 for each part of it that is not zero; earlier latencies of procedures that
are called very often become a histogram.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, coded, distinct, kept, some, take
from ..layers.rpcrdma_codes import RDMA_NOMSG
from ..link.packets import skipped_words
from ..named_tuple import NamedTuple
from ..percentiles import NO_SAMPLES, Distribution, Samples, added, histogram
from ..rpcrdma.analyzer import Analyzer
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.eviction import Evicted
from ..rpcrdma.rpc_table import DUPLICATE, FLAG_TRUNCATED, STATES, ProcedureNames, RpcTable
from ..rpcrdma.rpcs import DUPLICATE_REPLY, Latency, Rpc
from ..units import plural
from .time_cells import WideningRows, summed_by_time

WAYS = ("inline call", "inline reply", "read chunk", "position zero", "write chunk", "reply chunk")
"""How Payload streams travel (RFC 8166, 3.4 and 3.5): in a Send, or through memory."""


@dataclass(slots=True)
class TransferTotals:
    """One of ``WAYS``: how many messages used it, and their bytes."""

    messages: int = 0
    chunks: int = 0
    segments: int = 0
    advertised: int = 0
    """Bytes of memory offered; inline: 0."""
    transferred: int = 0
    unused: int = 0
    """Chunks without a byte transferred."""


def add_chunks(totals_by_way: Mapping[str, TransferTotals], rpc: Rpc) -> None:
    """The chunks of an RPC."""
    ways = set()
    long_call = rpc.call is not None and rpc.call.header.procedure == RDMA_NOMSG
    for chunk in rpc.chunks:
        transferred = chunk.transferred
        way = f"{chunk.kind} chunk"
        if long_call and chunk.kind == "read" and chunk.position == 0:
            way = "position zero"
        totals = totals_by_way[way]
        if way not in ways:
            ways.add(way)
            totals.messages += 1
        totals.chunks += 1
        totals.segments += len(chunk.segments)
        totals.advertised += chunk.advertised
        totals.transferred += transferred
        if not transferred:
            totals.unused += 1


def add_chunk_rows(totals_by_way: Mapping[str, TransferTotals], table: RpcTable) -> None:
    """Add the chunks of the row RPCs of a table."""
    rows = take(table.only_rows, table.only_rows["chunks"] >= 0)
    if not len(rows):
        return
    for kind, advertised in zip(("read", "write", "reply"), table.advertised(rows).T, strict=True):
        totals = totals_by_way[f"{kind} chunk"]
        transferred = rows["reply_chunk_bytes" if kind == "reply" else f"{kind}_bytes"]
        offered = rows[f"{kind}_chunks"] > 0  # One of a kind at most.
        count = int(np.count_nonzero(offered))
        totals.messages += count
        totals.chunks += count
        totals.segments += int(rows[f"{kind}_segments"].sum())
        totals.advertised += int(advertised.sum())
        totals.transferred += int(transferred.sum())
        totals.unused += int(np.count_nonzero(offered & (transferred == 0)))


class ConnectionCounts(NamedTuple):
    """Connections of a capture, evicted ones included."""

    total: int
    rpcrdma: int
    """Connections that carry RPC-over-RDMA."""
    refused: int
    """Connections that the server refused."""
    tcp: int = 0
    """Connections that carry RPC without RDMA."""
    udp: int = 0
    """Flows of UDP among these."""
    records: int = 0
    """Fragments of records on these, which count as packets."""

    @property
    def others(self) -> int:
        """Connections of another or of an unknown protocol."""
        return self.total - self.rpcrdma - self.tcp - self.refused

    @property
    def words(self) -> str:
        """The connections that carry RPC: '2 RPC-over-RDMA connections and 1 TCP connection'."""
        kinds = ((self.tcp - self.udp, "TCP connection"), (self.udp, "UDP flow"))
        others = [plural(number, kind) for number, kind in kinds if number]
        rdma = [plural(self.rpcrdma, "RPC-over-RDMA connection")] if self.rpcrdma or not others else []
        return " and ".join([*rdma, *others])

    @property
    def without_rdma(self) -> str:
        """What carries RPC without RDMA: 'TCP', 'UDP' or both."""
        return " and ".join(name for name, number in (("TCP", self.tcp - self.udp), ("UDP", self.udp)) if number)


def connection_counts(conversations: Iterable[Conversation], evicted: Evicted) -> ConnectionCounts:
    """Counts the connections that were kept and those that were evicted.  A refused one carries nothing."""
    total, rpcrdma, refused = evicted.connections, evicted.carriers, evicted.refused
    tcp, udp, records = evicted.tcp, evicted.udp, evicted.records
    for conversation in conversations:
        total += 1
        if conversation.connection.refused:
            refused += 1
        elif conversation.connection.rdma:
            rpcrdma += conversation.protocol == "rpcrdma"
        elif conversation.carries_rpc:
            tcp += 1
            udp += conversation.connection.transport == "UDP"
            records += sum(conversation.connection.fpdus)
    return ConnectionCounts(total, rpcrdma, refused, tcp, udp, records)


MAX_BINS = 4096


class Bin(NamedTuple):
    """What ended in one interval of time."""

    calls: int = 0
    call_bytes: int = 0
    reply_bytes: int = 0


class Timeline(WideningRows):
    """Traffic over time: rows are time // width, ascending, and the three numbers of a Bin; intervals in which nothing
    ended are absent."""

    def __init__(self) -> None:
        super().__init__(4, 0, summed_by_time, first_width=1_000_000, max_rows=MAX_BINS)

    def add(self, times: Int64s, *numbers: Int64s) -> None:
        """What ended at these times (ns): the numbers of Bins."""
        self.take((self.intervals_of(times), *numbers))

    @property
    def bins(self) -> dict[int, Bin]:
        """By time // width."""
        return {at: Bin(*numbers) for at, *numbers in self.rows.tolist()}

    def intervals(self, count: int) -> tuple[float, list[Bin]]:
        """The whole time in at most ``count`` equal intervals: seconds of each, and what ended in it."""
        parts = [*self.parts(count)]
        bins = [Bin(*rows[:, 1:].sum(axis=0).tolist()) for *_, rows in parts]
        return (parts[0][1] - parts[0][0]) / 1e9 if parts else 0.0, bins


MAX_REASONS = 64
OTHER = "other"
ANY = "…"
"""Stands for numbers that differ from one occurrence to the next."""

_NUMBER = re.compile(rf"(0x[0-9a-fA-F]+|\d+(?:,\d{{3}})*|{ANY})")


class ReasonCounts:
    """Reasons that differ in their numbers only are counted as one; it keeps the numbers that all of them share."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._shown: dict[str, str] = {}

    def add(self, reasons: Iterable[str], rpcs: int = 1) -> None:
        """Count the reasons of one RPC, or of ``rpcs`` RPCs with the same reasons; each reason counts once for each."""
        for general, reason in {_general(reason): reason for reason in reasons}.items():
            key = general
            if general not in self._counts and len(self._counts) >= MAX_REASONS:
                key = reason = OTHER
            self._counts[key] = self._counts.get(key, 0) + rpcs
            known = self._shown.setdefault(key, reason)
            if known != reason:
                self._shown[key] = _common(known, reason)

    def items(self) -> list[tuple[str, int]]:
        """Reasons as they are shown, and how many RPCs have each."""
        return [(self._shown[key], number) for key, number in self._counts.items()]


@lru_cache(1024)
def _general(reason: str) -> str:
    return _NUMBER.sub(ANY, reason)


def _common(reason: str, another: str) -> str:
    """Two reasons that differ in their numbers only, as one."""
    pairs = zip(_NUMBER.split(reason), _NUMBER.split(another), strict=True)
    return "".join(first if first == second else ANY for first, second in pairs)


PARTS = ("call", "reads", "server", "writes", "reply", "retransmission")
"""Parts of ``Latency``: in the order of the wire, and what lies within any of them."""

EXACT = 1 << 17
"""Latencies of a procedure that are kept as they are."""
MAX_PROCEDURES = 2048
"""Distinct COMPOUNDs counted one by one; later ones are counted under operations ``('other',)``."""


class ProcedureKey(NamedTuple):
    """What RPCs are grouped by."""

    program: int | None
    version: int | None
    minor_version: int | None
    procedure: int | None
    operations: tuple[str, ...]
    backward: bool
    name: str


def procedure_key(rpc: Rpc) -> ProcedureKey:
    return ProcedureKey(
        rpc.program, rpc.version, rpc.minor_version, rpc.procedure, rpc.operations, rpc.backward, rpc.name
    )


def other_procedures(key: ProcedureKey) -> ProcedureKey:
    """What stands for ``key`` and all others where there are too many."""
    return ProcedureKey(None, None, None, None, ("other",), key.backward, "")


class SlowRpc(NamedTuple):
    """One RPC in a line: one of the slowest, of those that were outstanding the longest, or of the newest."""

    waiting: int
    """Nanoseconds: the latency, or a lower bound of it; -1: not known."""
    latency: Latency | None
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
    time: int = 0
    """Nanoseconds; of its last packet."""


class Procedure:
    """What the RPCs of one procedure, or of one COMPOUND, came to."""

    __slots__ = (
        "_latency",
        "_outstanding",
        "_parts",
        "call_bytes",
        "calls",
        "failed",
        "key",
        "reply_bytes",
        "states",
        "statuses",
    )

    def __init__(self, key: ProcedureKey, exact: int = EXACT) -> None:
        """``exact``: latencies that are kept as they are; with one more, all become a histogram."""
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
        """How often each status was answered, failures only."""
        self._latency = Samples(exact)
        self._outstanding = NO_SAMPLES
        # Parts that are zero are not stored: most RPCs have no RDMA Read, and one-packet Sends take no time.
        self._parts = tuple(Samples(exact, "f") for _ in PARTS)

    def latency(self) -> Distribution | None:
        """None where no RPC had both halves, nor was outstanding for a known time."""
        return self._latency.with_bounds(self._outstanding)

    @property
    def longest(self) -> int:
        """The longest latency, in nanoseconds; 0 without one."""
        return self._latency.maximum

    @property
    def outstanding(self) -> Distribution | None:
        """How long calls without a reply are outstanding; None where there are none."""
        return self._outstanding.distribution()

    def parts(self) -> dict[str, Distribution]:
        """By the names in ``PARTS``; empty where ``latency()`` is None, and of a client's trace."""
        return {name: part for name in PARTS if (part := self.part(name)) is not None}

    def part(self, name: str) -> Distribution | None:
        """The distribution of one part of the latency."""
        if not any(samples.total for samples in self._parts):
            return None
        samples = self._parts[PARTS.index(name)]
        if self._latency.binned:
            samples.fold()  # So that it does not matter which of them were added together.
        return samples.distribution(self._latency.count)

    @property
    def waited(self) -> int:
        """Nanoseconds, the sum of all latencies."""
        return self._latency.total

    @property
    def waiting(self) -> int:
        """Nanoseconds, the sum of all latencies, with lower bounds for unknown ones."""
        return self._latency.total + self._outstanding.total

    def weighted(self) -> tuple[Int64s, Int64s]:
        """Latencies in nanoseconds, and how many there are of each."""
        if self._latency.binned:
            self._latency.fold()
        return self._latency.weighted()

    def fold(self, exact: int) -> None:
        """Make a histogram of the latencies, where there are ``exact``."""
        if len(self._latency.recent) >= exact:
            for samples in (self._latency, *self._parts):
                samples.fold()


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


_SLOWNESS = itemgetter(0, 1)
"""The key of an entry in a heap of the slowest RPCs: its time, and its number, negative."""


class Statistics:
    """Counts and latencies of RPCs by procedure, and what they transferred."""

    def __init__(self, max_slowest: int = 10, exact: int = EXACT, max_procedures: int = MAX_PROCEDURES) -> None:
        """``exact``: latencies of a procedure that are kept as they are; ``max_procedures``: counted one by one."""
        self.transfers = {way: TransferTotals() for way in WAYS}
        self.connections: dict[int, Share] = {}
        """By connection number."""
        self.evicted = Share()
        """What evicted connections carried."""
        self.damage = ReasonCounts()
        """Reasons why RPCs are damaged; numbers in them replaced by N."""
        self.notes = ReasonCounts()
        self.truncated = 0
        """RPCs with bytes that the capture truncated."""
        self.duplicate_replies = 0
        """Second replies to RPCs, which are no RPCs of their own and counted nowhere else."""
        self.timeline = Timeline()
        self._procedures: dict[ProcedureKey, Procedure] = {}
        self._slowest: list[tuple[int, int, SlowRpc]] = []
        """Answered RPCs; a heap."""
        self._hung: list[tuple[int, int, SlowRpc]] = []
        """Calls without a reply, by how long they are outstanding; a heap."""
        self._max_slowest = max_slowest
        self._exact, self._max_procedures = exact, max_procedures

    @property
    def calls(self) -> int:
        """RPCs, whole or in part."""
        return sum(procedure.calls for procedure in self._procedures.values())

    @property
    def states(self) -> dict[str, int]:
        """RPCs by ``Rpc.state``, the most frequent first."""
        counts: Counter[str] = Counter()
        for procedure in self._procedures.values():
            counts.update(procedure.states)
        return dict(counts.most_common())

    def add_table(self, table: RpcTable) -> None:
        """Take the RPCs of a batch."""
        for rpc in table.unusual:
            if rpc.state == DUPLICATE_REPLY:
                self.duplicate_replies += 1
            elif rpc.damage or rpc.chunks:
                self.damage.add(rpc.damage)
                add_chunks(self.transfers, rpc)
            if rpc.notes:
                self.notes.add(rpc.notes)
        for notes, count in Counter(notes for _, notes in table.row_notes()).items():
            self.notes.add(notes, count)
        add_chunk_rows(self.transfers, table)
        counted = table.rows["state"] != DUPLICATE
        if some(counted):
            self._add(_Groups(table, counted))

    def _add(self, batch: _Groups) -> None:
        rows, groups = batch.rows, batch.groups
        self.truncated += int(np.count_nonzero(rows["flags"] & FLAG_TRUNCATED))
        for side in ("call", "reply"):
            totals, inline = self.transfers[f"inline {side}"], rows[f"{side}_inline"]
            totals.messages += int(np.count_nonzero(inline))
            totals.transferred += int(inline.sum())
        sizes = batch.call_bytes, batch.reply_bytes
        self.timeline.add(batch.times, np.ones_like(batch.times), *sizes)
        called, replied = (_sums(column, batch.inverse, len(groups)) for column in sizes)
        counts = np.bincount(batch.inverse).tolist()
        entries: dict[int, Procedure] = {}
        for group in batch.firsts.argsort().tolist():  # In the order in which the first RPC of each ended.
            (procedure, state, status, failed), count = groups[group], counts[group]
            entry = entries.get(procedure)
            if entry is None:
                entry = entries[procedure] = self._procedure(batch.keys[procedure])
            entry.states[state] = entry.states.get(state, 0) + count
            if failed:
                entry.statuses[status] = entry.statuses.get(status, 0) + count
            entry.calls += count
            entry.failed += count * failed
            entry.call_bytes += called[group]
            entry.reply_bytes += replied[group]
        self._add_shares(batch)
        answered = rows["latency"] >= 0
        self._add_latencies(batch, [entries[index] for index in range(len(entries))], answered)
        for those, mask in ((self._slowest, answered), (self._hung, ~answered & (batch.waiting >= 0))):
            note_slowest(those, batch, mask.nonzero()[0], self._max_slowest)

    def _add_shares(self, batch: _Groups) -> None:
        rows = batch.rows
        first, which = distinct(rows["connection"])
        failed = np.array([failed for _, failed in batch.names.statuses])[rows["status"]]
        counted = [which, which[rows["caller"] == 1], which[failed]]
        columns = [np.bincount(rpcs, minlength=len(first)).tolist() for rpcs in counted]
        columns += [_sums(sizes, which, len(first)) for sizes in (batch.call_bytes, batch.reply_bytes)]
        shares = [*zip(rows["connection"][first].tolist(), *columns, strict=True)]
        for at in first.argsort().tolist():  # In the same order.
            number, *counts = shares[at]
            share = self.connections.get(number)
            if share is None:
                self.connections[number] = Share(*counts)
            else:
                share.add(Share(*counts))

    def _add_latencies(self, batch: _Groups, entries: list[Procedure], answered: NDArray[np.bool_]) -> None:
        order = batch.procedures.argsort(kind="stable")
        waiting, answered = batch.waiting[order], answered[order]
        parts = [batch.rows[f"latency_{name}"][order] for name in PARTS]
        edges = batch.procedures[order].searchsorted(np.arange(len(entries) + 1)).tolist()
        for entry, first, behind in zip(entries, edges[:-1], edges[1:], strict=True):
            known, waits = answered[first:behind], waiting[first:behind]
            entry._latency.recent.frombytes(waits[known].tobytes())
            entry._outstanding = added(entry._outstanding, waits[~known & (waits >= 0)])
            for samples, part in zip(entry._parts, parts, strict=True):
                mine = part[first:behind]
                mine = mine[known & (mine != 0)]
                samples.recent.frombytes(mine.astype(np.float64).astype(np.float32).tobytes())
            entry.fold(self._exact)

    def add_sums(
        self,
        key: ProcedureKey,
        state: str,
        status: str,
        failed: bool,
        sizes: tuple[int, int],
        latencies: tuple[Int64s, Int64s],
        outstanding: tuple[Int64s, Int64s],
        unknown: int,
        parts: Int64s,
    ) -> None:
        """RPCs of one procedure, state and status, which count in procedures alone.

        ``sizes``: bytes of calls and of replies; ``latencies``, and how long calls are outstanding: nanoseconds, and
        how many there are of each; ``unknown``: RPCs without either; ``parts``: ``PARTS`` in columns, the sums of those
        with each latency.
        """
        entry = self._procedure(key)
        number = int(latencies[1].sum() + outstanding[1].sum()) + unknown
        entry.calls += number
        entry.states[state] = entry.states.get(state, 0) + number
        if failed:
            entry.failed += number
            entry.statuses[status] = entry.statuses.get(status, 0) + number
        entry.call_bytes += sizes[0]
        entry.reply_bytes += sizes[1]
        entry._latency.add(*latencies)
        entry._outstanding = added(entry._outstanding, *outstanding)
        for samples, part in zip(entry._parts, parts.T, strict=True):
            there = part > 0
            samples.add(part[there] // latencies[1][there], latencies[1][there])

    def add_slow(self, slow: SlowRpc) -> None:
        """One of the slowest."""
        heapq.heappush(self._hung if slow.latency is None else self._slowest, (slow.waiting, -slow.number, slow))

    def evict(self, conversations: Iterable[Conversation]) -> None:
        """These end: only the sum of them is kept."""
        for conversation in conversations:
            share = self.connections.pop(conversation.connection.number, None)
            if share is not None:
                self.evicted.add(share)

    def procedures(self) -> list[Procedure]:
        """The busiest first: by the time spent waiting for them, then by calls."""
        return sorted(self._procedures.values(), key=lambda procedure: (-procedure.waiting, -procedure.calls))

    def slowest(self) -> list[SlowRpc]:
        """The slowest first, those without a reply by how long they are outstanding."""
        return [slow for _, _, slow in heapq.nlargest(self._max_slowest, [*self._slowest, *self._hung], key=_SLOWNESS)]

    def slowest_answered(self) -> list[SlowRpc]:
        """The RPCs with a reply, the slowest first."""
        return [slow for _, _, slow in sorted(self._slowest, key=_SLOWNESS, reverse=True)]

    def histogram(self, rows: int = 24) -> list[tuple[int, int, int]]:
        """All latencies: see ``histogram``."""
        parts = [procedure.weighted() for procedure in self._procedures.values()]
        if not parts:
            return []
        return histogram(np.concatenate([part[0] for part in parts]), rows, np.concatenate([part[1] for part in parts]))

    def _procedure(self, key: ProcedureKey) -> Procedure:
        procedure = self._procedures.get(key)
        if procedure is None:
            if len(self._procedures) >= self._max_procedures:
                key = other_procedures(key)
            procedure = self._procedures.setdefault(key, Procedure(key, self._exact))
        return procedure


class ListedRpcs:
    """RPCs of a table; each can be listed in a line."""

    def __init__(self, table: RpcTable, counted: NDArray[np.bool_] | None = None) -> None:
        """``counted``: which; all by default."""
        self.rows = rows = table.rows if counted is None else kept(table.rows, counted)
        self.waiting: Int64s = table.waiting if counted is None else take(table.waiting, counted)
        self.names = table.names
        self.times: Int64s = np.where(rows["reply_frame"] != 0, rows["reply_end"], rows["call_end"])
        """Nanoseconds; of the last packet of each."""
        self.call_bytes: Int64s = rows["call_inline"] + rows["read_bytes"]
        self.reply_bytes: Int64s = rows["reply_inline"] + rows["write_bytes"] + rows["reply_chunk_bytes"]

    def key(self, index: int) -> ProcedureKey:
        """What one is grouped by."""
        row = self.rows[index]
        return key_of_names(self.names.procedures[row["procedure"]], bool(row["caller"]))

    def one(self, index: int) -> SlowRpc:
        """The RPC at a place, as one line shows it."""
        row = self.rows[index]
        latency = Latency(int(row["latency"]), **{part: int(row[f"latency_{part}"]) for part in PARTS})
        return SlowRpc(
            int(self.waiting[index]),
            latency if latency.total >= 0 else None,
            int(row["number"]),
            int(row["connection"]),
            int(row["xid"]),
            self.key(index),
            STATES[row["state"]],
            self.names.statuses[row["status"]][0],
            int(row["call_frame"]),
            int(row["reply_frame"]),
            int(self.call_bytes[index]),
            int(self.reply_bytes[index]),
            int(row["retransmissions"]),
            int(self.times[index]),
        )


def note_slowest(kept: list[tuple[int, int, SlowRpc]], rpcs: ListedRpcs, places: Int64s, count: int) -> None:
    """Keep the slowest RPCs with a known latency or lower bound in a heap of at most ``count``."""
    if not len(places) or not count:
        return
    waits = rpcs.waiting[places]
    least = int(np.partition(waits, -count)[-count]) if len(waits) > count else -1
    if len(kept) >= count:
        least = max(least, kept[0][0])
    chosen = np.concatenate(((waits > least).nonzero()[0], (waits == least).nonzero()[0][:count]))
    for row in places[np.sort(chosen)].tolist():
        waited = int(rpcs.waiting[row])
        if len(kept) < count or waited > kept[0][0]:
            keep = heapq.heappush if len(kept) < count else heapq.heapreplace
            keep(kept, (waited, -int(rpcs.rows["number"][row]), rpcs.one(row)))


class _Groups(ListedRpcs):
    """The RPCs of a table by what they are counted under."""

    def __init__(self, table: RpcTable, counted: NDArray[np.bool_]) -> None:
        super().__init__(table, counted)
        rows, names = self.rows, self.names
        codes = rows["procedure"].astype(np.int64) << 1 | rows["caller"]
        distinct_codes, self.procedures = coded(codes)
        self.keys = [key_of_names(names.procedures[code >> 1], code & 1 == 1) for code in distinct_codes.tolist()]
        """Keys of the procedures; ``procedures`` has their index for each row."""
        first, self.inverse = distinct(self.procedures, rows["state"], rows["status"])
        self.firsts: Int64s = first
        """The first row of each combination of these; ``inverse`` has its index."""
        columns = self.procedures[first], rows["state"][first], rows["status"][first]
        self.groups = [
            (procedure, STATES[state], *names.statuses[status])
            for procedure, state, status in zip(*(column.tolist() for column in columns), strict=True)
        ]


def _sums(column: Int64s, inverse: Int64s, count: int) -> list[int]:
    """The sum of each group."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, inverse, column)
    counts: list[int] = sums.tolist()
    return counts


def key_of_names(names: ProcedureNames, backward: bool) -> ProcedureKey:
    """What the RPCs of these names and this direction are grouped by."""
    program, version, minor_version, procedure, operations, name = names
    return ProcedureKey(program, version, minor_version, procedure, operations, backward, name)


REFUSED = "refused by an end"
IDLE = "with no packet of RDMA beyond connection management"
BY_SOCKET = "by a socket, not over RDMA"
UNIDENTIFIED = "with too little traffic to identify"


def undecoded(analyzer: Analyzer, statistics: Statistics, error: str | None = None) -> list[tuple[str, str, int]]:
    """Rows of (what is counted, why it was not decoded, how many); ``error``: why reading ended early."""
    rows = [("frames", skipped_words(kind), number) for kind, number in analyzer.skipped.items()]
    rows += [("packets", f"{kind}, not Reliable Connection", number) for kind, number in analyzer.other_packets.items()]
    others: Counter[tuple[str, str]] = Counter()
    for conversation in analyzer.conversations:
        if not conversation.carries_rpc:
            name = conversation.protocol_name or "not recognised as RPC-over-RDMA"
            connection = conversation.connection
            unit, sent = (
                ("segments", connection.segments) if any(connection.segments) else ("packets", connection.packets)
            )
            if not sum(sent):
                idle = BY_SOCKET if conversation.traced else IDLE
                others["connections", REFUSED if connection.refused else idle] += 1
                continue
            kind = f"of another protocol: {name}" if conversation.protocol == "other" else UNIDENTIFIED
            others[unit, f"connections {kind}"] += sum(sent)
    rows += [(unit, reason, number) for (unit, reason), number in others.items()]
    first: dict[str, int] = {}
    reasons: Counter[str] = Counter()
    for note in analyzer.undecoded:
        first.setdefault(note.reason, note.frame)
        reasons[note.reason] += 1
    rows += [("Sends", f"{reason} (the first in frame {first[reason]})", number) for reason, number in reasons.items()]
    rows += [
        ("operations", f"connection {connection}: memory that no captured call advertised", number)
        for connection, number in analyzer.unplaced.items()
    ]
    if analyzer.evicted.undecoded:
        rows.append(("Sends", "on evicted connections", analyzer.evicted.undecoded))
    if analyzer.evicted.unplaced:
        rows.append(("operations", "evicted connections: memory that no captured call advertised",
                     analyzer.evicted.unplaced))  # fmt: skip
    rows += [("RPCs", reason, number) for reason, number in statistics.damage.items()]
    if statistics.duplicate_replies:
        rows.append(("replies", "another reply to an RPC that has one", statistics.duplicate_replies))
    states = statistics.states
    rows += [("RPCs", state, states[state]) for state in ("no reply", "no call") if state in states]
    if error is not None:
        rows.append(("errors", error, 1))
    return sorted(rows, key=lambda row: (row[0], -row[2]))
