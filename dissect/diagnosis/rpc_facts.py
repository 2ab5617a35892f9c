"""Facts about RPCs beyond the statistics, in bounded memory: gathered from tables, over time, and by procedure, client,
file and connection.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows, coded, extremes, some, take, unique
from ..measure.statistics import ProcedureKey, key_of_names, other_procedures, procedure_key
from ..named_tuple import NamedTuple
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.messages import HEADER
from ..rpcrdma.rpc_table import DUPLICATE, RpcTable
from ..rpcrdma.rpcs import DUPLICATE_REPLY, Rpc

if TYPE_CHECKING:
    from ..onc.shapes.decode_cache import FlatFields
    from ..rpcrdma.rpc_fields import FieldReader


MAX_EXAMPLES = 5
_TIMES = "reply_end", "latency", "latency_reads", "latency_server", "latency_writes"
_DELAYED = "connection", "latency_retransmission", "number", "call_frame"


@dataclass(slots=True, eq=False)
class Examples:
    """How many RPCs there are of a kind, their total weight, and the worst of them."""

    count: int = 0
    total: int = 0
    _worst: Sequence[int] = ()
    """Weight, negative number and frame of each, ascending, packed."""

    def add(self, weight: int, number: int, frame: int) -> None:
        """Add an RPC with its weight and its first frame."""
        self.count += 1
        self.total += weight
        worst = self._worst
        if len(worst) < 3 * MAX_EXAMPLES or weight > worst[0] or (weight == worst[0] and -number > worst[1]):
            self._keep([(weight, -number, frame)])

    def join(self, other: Examples) -> None:
        """Add the RPCs of another one."""
        if not self.count:
            self._worst = other._worst
        elif len(self._worst) < 3 * MAX_EXAMPLES or [*other._worst[-3:]] > [*self._worst[:3]]:
            self._keep(other._examples)
        self.count += other.count
        self.total += other.total

    def _keep(self, more: list[tuple[int, int, int]]) -> None:
        kept = sorted(self._examples + more)[-MAX_EXAMPLES:]
        self._worst = array("q", chain.from_iterable(kept))

    @property
    def _examples(self) -> list[tuple[int, int, int]]:
        return [*zip(self._worst[::3], self._worst[1::3], self._worst[2::3], strict=True)]

    @property
    def rpcs(self) -> tuple[int, ...]:
        """RPC numbers, the worst first."""
        return tuple(-number for _, number, _ in reversed(self._examples))

    @property
    def frames(self) -> tuple[int, ...]:
        return tuple(frame for _, _, frame in reversed(self._examples) if frame)


def examples_by(groups: Int64s, weights: Int64s, numbers: Int64s, frames: Int64s) -> Iterator[tuple[int, Examples]]:
    """Examples by group, ascending, from RPCs with their weights, numbers and first frames."""
    order = np.lexsort((-numbers, weights, groups))
    groups, weights = groups[order], weights[order]
    rows = np.column_stack((weights, -numbers[order], frames[order])).astype(np.int64)
    begins = np.diff(groups, prepend=groups[:1] - 1).nonzero()[0]
    totals = np.add.reduceat(weights, begins) if len(groups) else weights
    edges = pairwise([*begins.tolist(), len(groups)])
    for group, (begin, behind), total in zip(groups[begins].tolist(), edges, totals.tolist(), strict=True):
        worst = array("q", rows[max(begin, behind - MAX_EXAMPLES) : behind].tobytes())
        yield group, Examples(behind - begin, total, worst)


NO_CALLS: Int64s = np.empty((3, 0), np.int64)
AT_ONCE = 100_000
"""Nanoseconds from the reply that frees a credit to the next call within which that call had waited for the credit."""


@dataclass(slots=True)
class AtLimit:
    """How calls in one direction of a connection were limited by credits."""

    calls: int = 0
    busy: int = 0
    """Nanoseconds with a call outstanding."""
    blocked: int = 0
    """Nanoseconds with as many calls outstanding as credits allow."""
    freed: int = 0
    """Replies that came in that state."""
    refilled: int = 0
    """Replies of these that the next call followed at once."""
    limit: int = 0
    """The lowest number of credits at which calls were blocked; 0: never."""
    max_outstanding: int = 0


Watch = Callable[[Int64s, Int64s, Int64s], None]

TOGETHER = 256
"""RPCs that are evaluated together: an evaluation costs more than an RPC."""


def columns_of(calls: Int64s, replies: Int64s, requested: Int64s, granted: Int64s) -> Int64s:
    """The input of ``CallsOutstanding``: times of RPCs (ns), and the credits in force; credits are -1 for none."""
    credits = np.where(requested > 0, np.minimum(requested, granted), granted)
    return np.stack((calls, replies, np.where(granted < 0, 0, np.maximum(credits, 1))))


class CallsOutstanding:
    """One direction of a connection; takes batches of RPCs with call and reply.

    A batch is settled when the next one has come: calls that took longer than that are left out.
    """

    __slots__ = ("_credits", "_fresh", "_known", "_settled", "_watch", "result")

    def __init__(self, watch: Watch | None = None) -> None:
        """``watch``: takes the times of replies, the calls outstanding just before each, and the credits then, 0 if
        unknown."""
        self.result = AtLimit()
        self._watch = watch
        self._known: Int64s = NO_CALLS
        """Times of calls and of replies, and the credits after the reply."""
        self._fresh: Sequence[Int64s] = ()
        """Such columns that are not evaluated so far."""
        self._settled = -(1 << 62)
        """The time up to which everything is counted."""
        self._credits = 0
        """The latest credits by then; 0: unknown."""

    def add(self, calls: Int64s) -> None:
        """Add RPCs that ended, in the columns of ``columns_of``."""
        self._fresh = (*self._fresh, calls)
        if sum([calls.shape[1] for calls in self._fresh]) >= TOGETHER:
            self._look()

    def _look(self) -> None:
        boundary = int(self._known[1].max(initial=self._settled))
        self._known = np.concatenate((self._known, *self._fresh), axis=1)
        self._fresh = ()
        self._settle(boundary)

    def finish(self) -> AtLimit:
        """Evaluate the rest: no more RPCs come."""
        self._look()
        self._settle(int(self._known[1].max(initial=self._settled)))
        return self.result

    def _settle(self, until: int) -> None:
        calls, replies, credits = self._known
        since = self._settled
        if until <= since or not len(calls):
            return
        self._settled = until
        self._known = self._known[:, replies > until]
        result = self.result
        order = np.argsort(replies, kind="stable")
        replies, credits = replies[order], credits[order]
        calls = np.sort(calls, kind="stable")
        before = np.searchsorted(calls, replies, side="right") - np.arange(len(replies))
        """Calls outstanding just before each reply."""
        now = (replies > since) & (replies <= until)
        result.calls += int(np.count_nonzero(now))
        highest = int(before[now].max(initial=0))
        result.max_outstanding = max(result.max_outstanding, highest)
        if self._watch is not None:
            self._watch(replies[now], before[now], credits[now])
        known = credits[now & (credits > 0)]
        least = int(known.min(initial=self._credits or 1 << 62))
        if highest < least:
            result.busy += _spent(calls, replies, since, until)
        else:
            self._count_blocked(calls, replies, credits, since, until)
        if len(known):
            self._credits = int(known[-1])

    def _count_blocked(self, calls: Int64s, replies: Int64s, credits: Int64s, since: int, until: int) -> None:
        times = np.concatenate((replies, calls))
        is_reply = np.arange(len(times)) < len(replies)
        order = np.argsort(times, kind="stable")
        times, is_reply = times[order], is_reply[order]
        level = np.cumsum(np.where(is_reply, -1, 1))
        limits = _latest(np.concatenate((credits, np.zeros_like(calls)))[order])
        limits[limits == 0] = self._credits
        spans = np.diff(np.clip(times, since, until), append=until)
        full = (level >= limits) & (limits > 0)
        result = self.result
        result.busy += int(spans[level > 0].sum())
        result.blocked += int(spans[full].sum())
        # What was the state before this event, and does a call come at once?
        was_full = np.concatenate(([False], full[:-1]))
        freed = is_reply & was_full & (times > since) & (times <= until)
        following = np.append(calls, 1 << 62)[calls.searchsorted(times, side="right")]
        result.freed += int(np.count_nonzero(freed))
        result.refilled += int(np.count_nonzero(freed & (following - times <= AT_ONCE)))
        if full.any():
            lowest = int(limits[full].min())
            result.limit = min(result.limit, lowest) if result.limit else lowest


def _latest(credits: Int64s) -> NDArray[np.int64]:
    """Each credit value repeated until the next one."""
    places = np.maximum.accumulate(np.where(credits > 0, np.arange(len(credits)), 0))
    return credits[places]


def _spent(calls: Int64s, replies: Int64s, since: int, until: int) -> int:
    """Nanoseconds of [since, until) with a call outstanding; both are sorted."""
    begins = np.clip(calls, since, until)
    ends = np.clip(replies, since, until)
    if not len(begins):
        return 0
    # There is a pause if all earlier calls are answered: the n-th reply comes before the n+1-th call.
    pauses = np.maximum(0, begins[1:] - ends[:-1]).sum()
    return int(ends[-1] - begins[0] - pauses)


BINS = 64
MEASURES = ("calls", "latency", "reads", "server", "writes")
"""What is summed up: number of RPCs with a latency, and nanoseconds."""
MAX_GROUPS = 2048
"""Groups of connection and procedure that are counted individually."""
CALLS_TOGETHER = 1 << 16
"""RPCs of all connections that wait to be sorted by connection: most connections have few."""
MAX_UNANSWERED = 1000
MAX_RECALLS = 1000
HUNG = 1_000_000_000
"""Nanoseconds from which on an outstanding call is worth decoding its names."""


class Unanswered(NamedTuple):
    """A call without a reply."""

    number: int
    connection: int
    key: ProcedureKey
    frame: int
    time: int
    """Nanoseconds, last packet of the call."""
    unread: bool
    """It offers Read chunks, and nothing of them was read."""
    waiting: int
    """Nanoseconds for which it has been outstanding; -1 if the capture may lack its reply."""
    backward: bool
    delayed: int
    """Nanoseconds of ``waiting`` that it waited for retransmissions."""
    named: str
    """The name in a directory that the call itself has, '…/w3'; '' if it has none, or does not hang."""


@dataclass(slots=True)
class Recall:
    """A callback that recalls a delegation."""

    number: int
    connection: int
    frame: int
    begin: int
    """Nanoseconds; time of the call."""
    delegation: bytes | None
    """``other`` of its stateid; None if the call's bytes are missing."""
    returned: int = 0
    """Nanoseconds; time of the call that returned it or, if ``delegation`` is unknown, of the next one; 0: never."""


@dataclass(slots=True, eq=False)
class Larger:
    """Calls or replies that took a chunk, but would have fit inline at twice the threshold."""

    examples: Examples = field(default_factory=Examples)
    """Weighted by the nanoseconds of their RDMA Reads or Writes."""
    threshold: int = 0


class Sums(NamedTuple):
    """``MEASURES`` in each of ``BINS`` intervals of time."""

    calls: NDArray[np.float64]
    latency: NDArray[np.float64]
    reads: NDArray[np.float64]
    server: NDArray[np.float64]
    writes: NDArray[np.float64]


class RpcFacts:
    """Takes tables of RPCs as they end."""

    def __init__(self) -> None:
        self.delays: dict[int, Examples] = defaultdict(Examples)
        """By connection, 0 for evicted ones: answered RPCs that waited for a retransmission, weighted by that (ns)."""
        self.unanswered: list[Unanswered] = []
        self.unanswered_count = 0
        self.errors: dict[str, dict[ProcedureKey, Examples]] = defaultdict(lambda: defaultdict(Examples))
        """By status and procedure: RPCs that failed, weighted by their latency in nanoseconds."""
        self.error_times: dict[str, tuple[int, int]] = {}
        """By status: the first and the last time, ns."""
        self.recalls: list[Recall] = []
        self._recalled: dict[tuple[str, bytes | None], list[Recall]] = {}
        """By client and delegation: recalls of delegations not returned so far."""
        self._reader: FieldReader | None = None
        self.chunked = 0
        """Number of messages with data in a chunk."""
        self.larger: dict[tuple[int, int], Larger] = defaultdict(Larger)
        """By connection, 0 for evicted ones, and sender."""
        self.start = 0
        """Start of the first bin, ns."""
        self.width = 1_000_000
        """Width of a bin, ns."""
        self._groups: dict[tuple[int, ProcedureKey], int] = {}
        self._known: dict[ProcedureKey, dict[int, int]] = {}
        """``_groups`` by procedure and connection, without the groups that stand for others."""
        self._others: dict[bool, int] = {}
        """Index of the group that stands for others, by whether the calls are backward."""
        self._sums = [np.zeros((MAX_GROUPS + 2, BINS)) for _ in MEASURES]
        """Includes the groups of others, in both directions; memory is used only where something is counted."""
        self.watch: Watch | None = None
        """Takes the calls outstanding on all connections over time, as in ``CallsOutstanding``."""
        self._outstanding: dict[int, CallsOutstanding] = {}
        """By connection number << 1 | caller."""
        self._calls: list[tuple[Int64s, Int64s]] = []
        """Such keys, and columns of RPCs, that are not in ``_outstanding`` so far."""
        self._calls_waiting = 0
        self._at_limit: dict[int, AtLimit] = {}

    def add_table(self, table: RpcTable) -> None:
        """Take the RPCs of a batch."""
        places = (table.rows["state"] != DUPLICATE).nonzero()[0]
        if len(places):
            self._add_rows(table, places)
            for rpc in table.unusual:
                if rpc.call is not None and rpc.reply is None and rpc.state != DUPLICATE_REPLY:
                    self._note_unanswered(rpc)

    # What detectors ask for

    def groups(self) -> dict[tuple[int, ProcedureKey], Sums]:
        """By connection and procedure; connection 0 stands for all that were too many to count individually."""
        return {key: Sums(*(sums[index] for sums in self._sums)) for key, index in self._groups.items()}

    def totals(self) -> dict[tuple[int, ProcedureKey], tuple[float, float]]:
        """By connection and procedure: number of RPCs with a latency, and nanoseconds."""
        calls, latency = (sums[: len(self._groups)].sum(axis=1).tolist() for sums in self._sums[:2])
        return dict(zip(self._groups, zip(calls, latency, strict=True), strict=True))

    def at_limit(self, least: int = 0) -> dict[tuple[int, bool], AtLimit]:
        """By connection and whether the calls are backward.  Ends the count.

        ``least``: directions with fewer RPCs are left out, unless ``watch`` is set.
        """
        for direction, calls in self._calls_by_place(0 if self.watch else least):
            outstanding = self._outstanding.pop(direction, None) or CallsOutstanding(self.watch)
            outstanding.add(calls)
            self._at_limit[direction] = outstanding.finish()
        self._at_limit |= {direction: outstanding.finish() for direction, outstanding in self._outstanding.items()}
        return {(direction >> 1, direction & 1 == 1): limit for direction, limit in sorted(self._at_limit.items())}

    # RPCs

    def _add_rows(self, table: RpcTable, places: Int64s) -> None:
        """``places``: indices of the RPCs that count."""
        names = table.names
        rows = table.rows if len(places) == len(table.rows) else take(table.rows, places)
        kinds = len(names.procedures)
        codes = (rows["connection"].astype(np.int64) * kinds + rows["procedure"]) << 1 | rows["caller"]
        present, inverse = coded(codes)
        numbers, procedures = np.divmod(present >> 1, kinds)
        called = procedures << 1 | present & 1
        keys = {code: key_of_names(names.procedures[code >> 1], code & 1 == 1) for code in unique(called).tolist()}
        pairs = [*zip(numbers.tolist(), called.tolist(), strict=True)]
        index = np.array([self._group(number, keys[code]) for number, code in pairs])[inverse]
        for note, operation in ((self._note_recall, "CB_RECALL"), (self._note_return, "DELEGRETURN")):
            mine = [code for code, key in keys.items() if operation in key.operations]
            if mine and (self._recalled or note == self._note_recall):
                for row in places[np.isin(called[inverse], mine)].tolist():
                    note(table[row])
        answered = rows["latency"] >= 0
        if not some(answered):
            return
        # Copying the few columns needed is faster than copying these rows.
        self._count(index[answered], *(rows[name][answered] for name in _TIMES))
        delayed = answered & (rows["latency_retransmission"] > 0)
        for number, *example in zip(*(rows[name][delayed].tolist() for name in _DELAYED), strict=True):
            self.delays[number].add(*example)
        failed = (answered & np.array([failed for _, failed in names.statuses])[rows["status"]]).nonzero()[0]
        if len(failed):
            self._note_errors(table, rows, failed, [keys[code] for _, code in pairs], inverse)
        self._note_chunks(table, rows, places, answered)
        self._watch_credits(rows, answered)

    def _count(
        self, index: Int64s, ends: Int64s, latencies: Int64s, reads: Int64s, server: Int64s, writes: Int64s
    ) -> None:
        bins = self._bins(ends)
        low, high = int(index.min()), int(index.max()) + 1
        cells = (index - low) * BINS + bins
        shape = high - low, BINS
        size = shape[0] * BINS
        calls, *others = self._sums
        calls[low:high] += np.bincount(cells, minlength=size).reshape(shape)
        for sums, column in zip(others, (latencies, reads, server, writes), strict=True):
            if some(column):
                sums[low:high] += np.bincount(cells, column, size).reshape(shape)

    def _bins(self, times: Int64s) -> Int64s:
        if not self.start:
            self.start = int(times.min())
        span = int(times.max()) - self.start
        if span >= BINS * self.width:
            halvings = 0
            while span >= BINS * self.width:
                self.width *= 2
                halvings += 1
            for sums in self._sums:
                _halve(sums[: len(self._groups)], halvings)
        return np.maximum(0, (times - self.start) // self.width)

    def _group(self, number: int, key: ProcedureKey) -> int:
        known = self._known.get(key)
        group = None if known is None else known.get(number)
        if group is not None:
            return group
        full = len(self._groups) >= MAX_GROUPS
        if full and key.backward in self._others:
            return self._others[key.backward]
        member = (0, other_procedures(key)) if full else (number, key)
        group = self._groups[member] = len(self._groups)
        if full:
            self._others[key.backward] = group
        else:
            self._known.setdefault(key, {})[number] = group
        return group

    def _note_recall(self, rpc: Rpc) -> None:
        if rpc.call is None or len(self.recalls) >= MAX_RECALLS:
            return
        begin, delegation = rpc.call.operation.first_time, self._delegation(rpc)
        recall = Recall(rpc.number, rpc.connection.number, rpc.call_frame, begin, delegation)
        self.recalls.append(recall)
        self._recalled.setdefault((rpc.connection.endpoints[0].address, delegation), []).append(recall)

    def _note_return(self, rpc: Rpc) -> None:
        if rpc.call is None:
            return
        client, begin = rpc.connection.endpoints[0].address, rpc.call.operation.first_time
        for returned in ((client, self._delegation(rpc)), (client, None)):
            recalled = self._recalled.get(returned, [])
            for recall in [recall for recall in recalled if recall.begin <= begin]:
                recall.returned = begin
                recalled.remove(recall)
            if returned in self._recalled and not recalled:
                del self._recalled[returned]

    def _delegation(self, rpc: Rpc) -> bytes | None:
        stateid = self._fields(rpc).stateid
        return None if stateid is None else stateid[4:]

    def _named(self, rpc: Rpc) -> str:
        name = self._fields(rpc).name if (rpc.outstanding or 0) >= HUNG else None
        if name is None:
            return ""
        from ..measure.file_names import joined, printable

        return joined(None, printable(name))

    def _fields(self, rpc: Rpc) -> FlatFields:
        if self._reader is None:
            # Few captures have a recall or a hanging call, and the module takes long to load.
            from ..rpcrdma.rpc_fields import FieldReader

            self._reader = FieldReader()
        return self._reader.fields(rpc)

    def _note_errors(
        self, table: RpcTable, rows: Rows, failed: Int64s, keys: list[ProcedureKey], inverse: Int64s
    ) -> None:
        statuses = table.names.statuses
        rows, inverse = take(rows, failed), inverse[failed]
        kinds = rows["status"].astype(np.int64) * len(keys) + inverse
        latencies, numbers, frames, ends = (rows[name] for name in ("latency", "number", "call_frame", "reply_end"))
        for kind, examples in examples_by(kinds, latencies, numbers, frames):
            status, key = statuses[kind // len(keys)][0], keys[kind % len(keys)]
            self.errors[status][key].join(examples)
            self._note_error_times(status, *extremes(ends[kinds == kind]))

    def _note_error_times(self, status: str, first: int, last: int) -> None:
        known = self.error_times.get(status, (first, last))
        self.error_times[status] = min(first, known[0]), max(last, known[1])

    def _note_chunks(self, table: RpcTable, rows: Rows, places: Int64s, answered: NDArray[np.bool_]) -> None:
        """Note messages that took chunks, but would have fit inline at a larger threshold."""
        chunked = rows["read_bytes"] + rows["write_bytes"] + rows["reply_chunk_bytes"] > 0
        there = (answered & chunked).nonzero()[0]
        if not len(there):
            return
        rows = take(rows, there)
        offered = table.offered(places[there])
        connections, which = np.unique(rows["connection"], return_inverse=True)
        conversations = [table.conversation(number) for number in connections.tolist()]
        limits = np.array(
            [[conversation.known_inline_threshold(end)[0] or 0 for end in (0, 1)] for conversation in conversations],
            np.int64,
        )
        for replying, (bytes_, side, part) in enumerate(
            zip(offered.T, ("call", "reply"), ("reads", "writes"), strict=True)
        ):
            self.chunked += int(np.count_nonzero(bytes_))
            sender = rows["caller"] ^ replying
            limit = limits[which, sender]
            needed = HEADER + rows[f"{side}_inline"] + bytes_
            larger = (bytes_ > 0) & (limit < needed) & (needed <= 2 * limit)
            columns = which << 1 | sender, rows[f"latency_{part}"], rows["number"], rows["call_frame"]
            for place, examples in examples_by(*(column[larger] for column in columns)):
                noted = self.larger[int(connections[place >> 1]), place & 1]
                noted.threshold = int(limits[place >> 1, place & 1])
                noted.examples.join(examples)

    def _watch_credits(self, rows: Rows, answered: NDArray[np.bool_]) -> None:
        places = rows["connection"].astype(np.int64) << 1 | rows["caller"]
        names = "call_time", "reply_end", "credits_requested", "credits_granted"
        self._add_calls(places[answered], columns_of(*(rows[name][answered] for name in names)))

    def _add_calls(self, places: Int64s, calls: Int64s) -> None:
        """``places``: connection number and caller of each."""
        self._calls.append((places, calls))
        self._calls_waiting += len(places)
        if self._calls_waiting >= CALLS_TOGETHER:
            for direction, mine in self._calls_by_place():
                if direction not in self._outstanding:
                    self._outstanding[direction] = CallsOutstanding(self.watch)
                self._outstanding[direction].add(mine)

    def _calls_by_place(self, least: int = 0) -> Iterator[tuple[int, Int64s]]:
        """Those that wait, which then wait no longer; not where fewer than ``least`` are all of a place."""
        if not self._calls:
            return
        places = np.concatenate([part for part, _ in self._calls])
        calls = np.concatenate([part for _, part in self._calls], axis=1)
        self._calls, self._calls_waiting = [], 0
        order = places.argsort(kind="stable")
        places, calls = places[order], calls[:, order]
        edges = [0, *((places[1:] != places[:-1]).nonzero()[0] + 1).tolist(), len(places)]
        for first, behind in pairwise(edges):
            direction = int(places[first])
            if behind - first >= least or direction in self._outstanding:
                yield direction, calls[:, first:behind].copy()

    def _note_unanswered(self, rpc: Rpc) -> None:
        assert rpc.call is not None
        self.unanswered_count += 1
        if len(self.unanswered) < MAX_UNANSWERED:
            reads = [chunk for chunk in rpc.chunks if chunk.kind == "read"]
            unread = bool(reads) and not any(chunk.transferred for chunk in reads)
            time = rpc.call.operation.last_time
            self.unanswered.append(
                Unanswered(
                    rpc.number,
                    rpc.connection.number,
                    procedure_key(rpc),
                    rpc.call_frame,
                    time,
                    unread,
                    -1 if rpc.outstanding is None else rpc.outstanding,
                    rpc.backward,
                    0 if rpc.outstanding is None else rpc.retransmission_delay,
                    self._named(rpc),
                )
            )

    def evict(self, conversations: Iterable[Conversation]) -> None:
        """Nothing more comes of these.  Where many connections had delays or chunks, theirs count for connection 0."""
        conversations = list(conversations)
        for number in (conversation.connection.number for conversation in conversations):
            if len(self.delays) > MAX_GROUPS and number in self.delays:
                self.delays[0].join(self.delays.pop(number))
            for sender in (0, 1):
                if len(self.larger) > MAX_GROUPS and (number, sender) in self.larger:
                    larger = self.larger.pop((number, sender))
                    self.larger[0, sender].threshold = larger.threshold
                    self.larger[0, sender].examples.join(larger.examples)
        gone = [conversation.connection.number << 1 | caller for conversation in conversations for caller in (0, 1)]
        for direction in gone:
            self._outstanding.pop(direction, None)
        kept = [(places, calls, ~np.isin(places, gone)) for places, calls in self._calls]
        self._calls = [(places[there], calls[:, there]) for places, calls, there in kept if there.any()]
        self._calls_waiting = sum(len(places) for places, _ in self._calls)


def _halve(sums: NDArray[np.float64], times: int) -> None:
    """Put each two bins together, again and again."""
    if not sums.any():
        return
    # Of what is left of many halves in a row, each takes half the time of the one before.
    halves = sums
    for _ in range(min(times, BINS.bit_length() - 1)):
        halves = halves[:, ::2] + halves[:, 1::2]
    sums[:, : halves.shape[1]] = halves
    sums[:, halves.shape[1] :] = 0
