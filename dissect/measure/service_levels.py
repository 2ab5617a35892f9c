"""Service levels: what was promised of the latency of calls, whether it was kept, and when it was not.

Whether one is kept is decided by counts of calls, not by percentiles that are estimates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s
from ..onc.names import program_label
from ..percentiles import LONGEST_NS, Samples
from ..rpcrdma.rpc_table import ProcedureNames, RpcNames
from .call_columns import CallColumns
from .time_options import parse_duration

PASS, FAIL, UNDECIDABLE = "pass", "fail", "undecidable"
MAX_EXACT = 1 << 20
"""Latencies that are kept as they are, of each service level: with more, the value that is named is good to 2 %."""
MAX_INTERVALS = 1024
"""Intervals of time that are told apart; they widen as time goes on."""
SPANS = 60
"""Equal parts of the time, each of which is judged by itself."""

_WRITTEN = re.compile(r"\s*(\S+)\s+([a-z]+|p\d{1,2}(?:\.\d+)?)\s*(<=?)\s*(\S+(?:\s+\S+)?)\s*", re.IGNORECASE)
EXAMPLE = "'READ p99 < 4ms', with median, mean, max or p1 to p99.9"


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """A bound on a latency of the calls of a procedure or operation."""

    text: str
    """As it was written."""
    procedure: str
    """Its name, perhaps behind that of a program; ``*`` and ``?`` stand for others."""
    measure: str
    """'mean', 'max', 'median' or 'p99'."""
    share: float | None
    """How many of 100 calls must be within the limit; None for the mean."""
    limit: int
    """Nanoseconds."""
    inclusive: bool
    """The limit itself is within."""

    def is_about(self, names: ProcedureNames) -> bool:
        """Whether the procedure, or an operation of the COMPOUND, is meant.  Case does not matter."""
        program, _, procedure = self.procedure.upper().rpartition(".")
        versions = ((None, None), (names.version, None), (names.version, names.minor_version))
        labels = [program_label(names.program, *one).upper() for one in versions]
        if program and not any(fnmatchcase(label, program) for label in labels):
            return False
        return any(fnmatchcase(called, procedure) for called in (names.name.upper(), *names.operations))

    def within(self, latencies: Int64s) -> NDArray[np.bool_]:
        """Which of known latencies are."""
        return latencies <= self.limit if self.inclusive else latencies < self.limit

    def judged(self, calls: int, within: int, unknown: int, total: int, outstanding: int = 0) -> str:
        """Of so many calls with a latency, of which so many are within; ``unknown``: calls without one.

        ``total``: the sum of latencies, in nanoseconds; ``outstanding``: those of the calls that have a lower bound.
        """
        if not calls + unknown:
            return UNDECIDABLE
        if self.share is None:
            if not calls:
                return UNDECIDABLE
            kept = total <= self.limit * calls if self.inclusive else total < self.limit * calls
            if unknown + outstanding:  # One that never ends has no mean.
                return FAIL if not kept and total >= self.limit * (calls + unknown) else UNDECIDABLE
            return PASS if kept else FAIL
        needed = _rank(calls + unknown, self.share)
        if within >= needed:
            return PASS
        return FAIL if within + unknown < needed else UNDECIDABLE


def _rank(count: int, share: float) -> int:
    """How many of so many calls must be within."""
    return max(1, int(-(-round(count * share * 1000) // 100_000)))


def parse_service_level(text: str) -> ServiceLevel:
    """'READ p99 < 4ms', 'NFSv3.WRITE median <= 600us'; raises ValueError."""
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no service level: write it as {EXAMPLE}")
    procedure, measure, bound, limit = match[1], match[2].lower(), match[3], match[4]
    shares: dict[str, float | None] = {"median": 50.0, "max": 100.0, "mean": None}
    if measure.startswith("p") and measure[1:]:
        shares[measure] = float(measure[1:])
    if measure not in shares or shares[measure] == 0:
        raise ValueError(f"{text!r}: no measure {match[2]!r}: write it as {EXAMPLE}")
    try:
        return ServiceLevel(text, procedure, measure, shares[measure], parse_duration(limit), bound == "<=")
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None


@dataclass(frozen=True, slots=True)
class ViolatedSpan:
    """A span of time in which a service level was not kept."""

    begin: int
    """Nanoseconds since the Unix epoch."""
    end: int
    calls: int
    """With a latency, that began in it."""
    beyond: int
    """Of them, those beyond the limit."""
    worst: int
    """The longest latency, in nanoseconds."""
    worst_rpc: int
    """The number of an RPC that took that long."""


class ServiceLevelCounts:
    """Counts the calls that one service level is about.  Feed it RPCs, batch after batch."""

    def __init__(self, level: ServiceLevel) -> None:
        self.level = level
        self.unknown = 0
        """Calls without a latency: no reply was seen, or not the whole of it."""
        self.outstanding = 0
        """Calls without a reply that were outstanding for longer than the limit: they are counted with that time."""
        self._least_bound = LONGEST_NS
        self._samples = Samples(MAX_EXACT)
        self._names: RpcNames | None = None
        self._about: list[bool] = []
        """Whether each of the procedures of ``_names`` is meant."""
        self._width = 1_000
        self._table = np.zeros((0, 6), np.int64)
        """Time // width, calls, those within, sum of latencies, the longest, its RPC; ascending."""

    def add(self, calls: CallColumns) -> None:
        """Take RPCs."""
        procedures = calls.names.procedures
        if calls.names is not self._names:
            self._names, self._about = calls.names, []
        self._about += [self.level.is_about(one) for one in procedures[len(self._about) :]]
        mine = np.array(self._about or [False])[calls.procedures >> 1]
        beyond = mine & calls.outstanding & ~self.level.within(calls.waiting)
        self.outstanding += int(np.count_nonzero(beyond))
        self._least_bound = min(self._least_bound, int(calls.waiting[beyond].min(initial=LONGEST_NS)))
        known = mine & (calls.latencies >= 0) | beyond
        self.unknown += int(np.count_nonzero(mine & ~known))
        if not known.any():
            return
        latencies = calls.waiting[known]
        self._samples.add(latencies)
        fresh = np.column_stack(
            (
                calls.times[known] // self._width,
                np.ones_like(latencies),
                self.level.within(latencies),
                latencies,
                latencies,
                calls.numbers[known],
            )
        ).astype(np.int64)
        table = _merged(np.concatenate((self._table, fresh)))
        while len(table) > MAX_INTERVALS:
            table[:, 0] >>= 1
            self._width <<= 1
            table = _merged(table)
        self._table = table

    @property
    def calls(self) -> int:
        """With a latency, or a lower bound of it beyond the limit."""
        return int(self._table[:, 1].sum())

    @property
    def beyond(self) -> int:
        """Of them, those beyond the limit."""
        return self.calls - int(self._table[:, 2].sum())

    @property
    def value(self) -> int | None:
        """What was measured, of the calls with a latency, in nanoseconds; None without one."""
        share, calls = self.level.share, self.calls
        if not calls:
            return None
        return self._samples.total // calls if share is None else self._samples.nth(_rank(calls, share) - 1)

    @property
    def value_is_bound(self) -> bool:
        """The value is a lower bound of what was measured."""
        value = self.value
        return bool(self.outstanding) and value is not None and (self.level.share is None or value >= self._least_bound)

    @property
    def verdict(self) -> str:
        within, total = self.calls - self.beyond, int(self._table[:, 3].sum())
        return self.level.judged(self.calls, within, self.unknown, total, self.outstanding)

    def spans(self) -> list[ViolatedSpan]:
        """When it was not kept: parts of the time, judged one by one; neighbours as one span."""
        table = self._table
        if not len(table):
            return []
        first, last = int(table[0, 0]), int(table[-1, 0])
        each = -(-(last - first + 1) // SPANS)
        found: list[ViolatedSpan] = []
        for at in range(first, last + 1, each):
            rows = table[table[:, 0].searchsorted(at) : table[:, 0].searchsorted(at + each)]
            _, calls, within, total = rows[:, :4].sum(axis=0).tolist()
            if not calls or self.level.judged(calls, within, 0, total) != FAIL:
                continue
            worst, rpc = max(rows[:, 4:].tolist(), key=lambda row: (row[0], -row[1]))
            span = ViolatedSpan(at * self._width, (at + each) * self._width, calls, calls - within, worst, rpc)
            if found and found[-1].end == span.begin:
                before = found.pop()
                longest = max((before, span), key=lambda one: one.worst)
                span = ViolatedSpan(
                    before.begin,
                    span.end,
                    before.calls + span.calls,
                    before.beyond + span.beyond,
                    longest.worst,
                    longest.worst_rpc,
                )
            found.append(span)
        return found


def _merged(table: Int64s) -> Int64s:
    """Rows of the same time become one, ascending."""
    table = table[np.lexsort((table[:, 5], -table[:, 4], table[:, 0]))]
    starts = np.flatnonzero(np.diff(table[:, 0], prepend=table[0, 0] - 1))
    sums = np.add.reduceat(table, starts)
    sums[:, 0] = table[starts, 0]
    sums[:, 4:] = table[starts, 4:]
    return sums
