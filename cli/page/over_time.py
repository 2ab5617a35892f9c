"""What a page needs of a capture, gathered in the one pass that a report makes, and the series of its charts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rdmascope.captures.session.find import with_path
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.condition import Condition
from rdmascope.captures.tables.saved import holds_tables
from rdmascope.dissect.arrays import Int64s
from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.diagnosis.breakdown import Breakdown
from rdmascope.dissect.diagnosis.facts import Facts, Gathered
from rdmascope.dissect.measure.call_columns import call_columns
from rdmascope.dissect.measure.service_levels import ServiceLevel, ServiceLevelCounts
from rdmascope.dissect.measure.time_cells import BINS_SHIFT, NO_LIMIT, Peaks, TimeCells, peaked, widened
from rdmascope.dissect.percentiles import bin_edges
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.transport.health import TransportHealth

from .examples import ShownRpcs, path_of

EXAMPLES = 2
"""Findings of each rule and end that are kept."""


class PageFacts:
    """A capture that was read to its end."""

    def __init__(
        self,
        session: Session,
        top: int = 10,
        condition: Condition | None = None,
        audited: bool = True,
        levels: Sequence[ServiceLevel] = (),
    ) -> None:
        """Reads a session that was not read yet."""
        self.session, self.condition = session, condition
        self.gathered = Gathered(top)
        learner = session.path_learner()
        self.breakdown = Breakdown(learner)
        self.gathered.rpcs.watch = self.breakdown.watch
        self.levels = [ServiceLevelCounts(level) for level in levels]
        self.examples = ShownRpcs(learner)
        self.auditor = Auditor(examples=EXAMPLES) if audited else None
        saved = holds_tables(session.paths[0])
        if self.auditor is not None and not saved:
            session.analyzer.listener = self.auditor.listener
        self._read()
        if self.auditor is not None:
            if saved:
                session.audit(self.auditor)
            else:
                self.auditor.finish(session.analyzer.conversations)
        damage = "" if session.damage is None else str(session.damage)
        facts = self.gathered.facts(session.analyzer, damage, auditor=self.auditor)
        self.facts = with_path(session, facts) if saved else self._named(facts)

    def _named(self, facts: Facts) -> Facts:
        """With the paths of calls that hang, as far as they are among the slowest."""
        shown = [self.examples.slowest[one.number] for one in facts.hung if one.number in self.examples.slowest]
        return replace(facts, paths={one.number: path for one in shown if (path := path_of(one))})

    def _read(self) -> None:
        session = self.session
        evicted: Callable[[list[Conversation]], None] = self._evict
        for table in session.tables(evicted):
            mask = None if self.condition is None else self.condition.mask(table, session)
            self.breakdown.add_table(table, mask)
            chosen = table if mask is None else table.selected(mask)
            self.gathered.add_table(chosen)
            if self.levels and len(chosen):
                calls = call_columns(chosen)
                for level in self.levels:
                    level.add(calls)
            self.examples.add_table(chosen, self.gathered.statistics, session.analyzer.earliest_time or 0)
            del table, chosen
            if self.auditor is not None:
                self.auditor.forget(session.analyzer.last_time or 0)

    def _evict(self, gone: list[Conversation]) -> None:
        self.gathered.evict(gone)
        if self.auditor is not None:
            self.auditor.evict(gone)


INTERVALS = 240
"""At most, of the charts."""
PERCENTS = (50, 95, 99)
HEAT_SHIFT = 1
"""The heat map has 4 bins of latency for each doubling, the cells have 8."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Series:
    """What the charts draw; intervals are [starts[i], starts[i] + width), in nanoseconds from the first frame."""

    starts: Floats
    width: int
    calls: Floats
    failed: Floats
    call_bytes: Floats
    reply_bytes: Floats
    percentiles: Mapping[int, Floats]
    """By percent: nanoseconds; NaN where nothing ended."""
    heat: tuple[Int64s, Floats, Floats, Int64s]
    """Of each cell that has RPCs: the interval's index, lowest and highest latency in nanoseconds, RPCs."""


@dataclass(frozen=True, slots=True)
class PeakSeries:
    """The highest of a value in each interval in which something is known of it."""

    starts: Floats
    width: int
    values: Int64s
    limits: Floats
    """NaN where none is known."""


def series(total: TimeCells, first_time: int) -> Series:
    """The series of all RPCs."""
    cells, width = fitted(total.rows, total.width, INTERVALS)
    count = int(cells[:, 1].max()) + 1 if len(cells) else 0
    at = cells[:, 1]
    calls, failed, call_bytes, reply_bytes = (
        np.bincount(at, cells[:, column], count).astype(np.float64) for column in (3, 4, 5, 6)
    )
    known = cells[cells[:, 2] >= 0]
    heat = known.copy()
    heat[:, 2] >>= HEAT_SHIFT
    keys, inverse = np.unique(heat[:, 1] << 16 | heat[:, 2], return_inverse=True)
    counts = np.bincount(inverse, heat[:, 3], len(keys)).astype(np.int64)
    bins = keys & 0xFFFF
    return Series(
        _starts(total.start - first_time, np.arange(count), width),
        width,
        calls,
        failed,
        call_bytes,
        reply_bytes,
        {percent: _percentile(known, count, percent) for percent in PERCENTS},
        (keys >> 16, edges(bins, BINS_SHIFT + HEAT_SHIFT), edges(bins + 1, BINS_SHIFT + HEAT_SHIFT), counts),
    )


def _starts(first: int, intervals: Int64s, width: int) -> Floats:
    """In floats: a capture may claim to span more nanoseconds than 64 bits count."""
    found: Floats = intervals.astype(np.float64) * width + float(first)
    return found


def edges(bins: Int64s, shift: int = BINS_SHIFT) -> Floats:
    """Where bins of latency begin, in nanoseconds."""
    return bin_edges(bins << shift)


def middles(bins: Int64s) -> Floats:
    return (edges(bins) + edges(bins + 1)) / 2


def percentile(bins: Int64s, counts: Int64s, percent: int) -> float:
    """A percentile of latencies in ascending bins; NaN of none."""
    if not len(bins):
        return float("nan")
    ends = np.cumsum(counts)
    rank = -(-int(ends[-1]) * percent // 100)
    return float(middles(bins[np.searchsorted(ends, rank)]))


def _percentile(cells: Int64s, count: int, percent: int) -> Floats:
    found = np.full(count, np.nan)
    bounds = np.searchsorted(cells[:, 1], np.arange(count + 1))
    for at in np.unique(cells[:, 1]).tolist():
        mine = cells[bounds[at] : bounds[at + 1]]
        found[at] = percentile(mine[:, 2], mine[:, 3], percent)
    return found


def fitted(cells: Int64s, width: int, limit: int) -> tuple[Int64s, int]:
    """In no more than so many intervals: cells, and nanoseconds of an interval."""
    last = int(cells[:, 1].max()) if len(cells) else 0
    doublings = (last // limit).bit_length()
    return (widened(cells, doublings) if doublings else cells), width << doublings


def peak_series(peaks: Peaks | None, first_time: int) -> PeakSeries | None:
    """None where nothing is known."""
    if peaks is None or not len(peaks.rows):
        return None
    rows = peaks.rows.copy()
    doublings = (int(rows[-1, 0]) // INTERVALS).bit_length()
    rows[:, 0] >>= doublings
    rows = peaked(rows)
    width = peaks.width << doublings
    limits = np.where(rows[:, 2] == NO_LIMIT, np.nan, rows[:, 2].astype(np.float64))
    return PeakSeries(_starts(peaks.start - first_time, rows[:, 0], width), width, rows[:, 1], limits)


def retransmissions(healths: Iterable[TransportHealth], start: int, width: int, count: int) -> Int64s:
    """Packets retransmitted in each of ``count`` intervals from ``start`` (ns) on."""
    found = [one for health in healths for end in health.directions for one in end.retransmission_times]
    sums = np.zeros(count, np.int64)
    for time, packets in found:
        sums[min(max(0, (time - start) // width), count - 1)] += packets
    return sums
