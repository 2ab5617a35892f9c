"""What a page needs of a capture, gathered in the one pass that a report makes, the series of its charts, and its
tables.
"""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rdmascope.captures.session.find import with_path
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.condition import Condition
from rdmascope.captures.tables.saved import holds_tables
from rdmascope.dissect.arrays import Int64s
from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.diagnosis.breakdown import OTHERS, Breakdown, Groups
from rdmascope.dissect.diagnosis.facts import Facts, Gathered, label
from rdmascope.dissect.measure.call_groups import ServiceLevel, ServiceLevelCounts, call_columns
from rdmascope.dissect.measure.time_cells import BINS_SHIFT, NO_LIMIT, Peaks, TimeCells, peaked, summed, widened
from rdmascope.dissect.percentiles import Distribution, bin_edges
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.transport.health import TransportHealth
from rdmascope.dissect.units import at_least, bound, count, duration, percent, plural, size, with_port

from .examples import ShownRpcs, path_of, shortened, tag, text

MAX_INTERVALS = 120
"""At most, in which a span is selected."""
MAX_CELLS = 40_000
"""Cells of all tables together; with more, intervals get wider."""
FEWEST_INTERVALS = 15
ROWS = {"procedures": 100, "clients": 100, "files": 200, "connections": 200}
"""Rows of each table at most."""
COLUMNS = (
    ("RPCs", "calls"),
    ("errors", "failed"),
    ("time", "waited"),
    ("median", "p50"),
    ("95%", "p95"),
    ("99%", "p99"),
    ("max", "max"),
    ("to server", "call_bytes"),
    ("to client", "reply_bytes"),
)
"""Heading and key; the page's script has the same keys in the same order."""
_CELL = (("u2", 0), ("u2", 1), ("i2", 2), ("u4", 3), ("u4", 4), ("f4", 5), ("f4", 6), ("f4", 7))
"""How the columns of cells are packed, little-endian."""


@dataclass(frozen=True, slots=True)
class Breaking:
    """One table: the names of its rows, the most time first, and their cells, by row."""

    id: str
    title: str
    noun: str
    names: list[str]
    cells: Int64s
    width: int
    others: int
    """Rows that are one, the last; 0 where none are."""
    exact: Mapping[int, Distribution | None]
    """Latencies by row, where they are known better than by cells."""
    hung: Mapping[int, int]
    """By row: nanoseconds for which a call without a reply is outstanding, the longest."""


def breakings(breakdown: Breakdown, facts: Facts) -> list[Breaking]:
    """The tables of a page."""
    breakdown.finish()
    procedures = {code: label(key) for key, code in breakdown.procedures.codes.items()}
    exact = {label(procedure.key): procedure.latency() for procedure in facts.procedures}
    files = {
        code: "(names no file)" if key is None else breakdown.path(key) for key, code in breakdown.files.codes.items()
    }
    clients = {code: key for key, code in breakdown.clients.codes.items()}
    connections = {}
    hung: dict[str, int] = {}
    waiting = {unanswered.connection: unanswered.waiting for unanswered in reversed(facts.hung)}
    for number in waiting:
        client = facts.by_number[number].connection.endpoints[0].address if number in facts.by_number else ""
        hung[client] = max(hung.get(client, 0), waiting[number])
    hung |= {
        facts.paths[unanswered.number]: unanswered.waiting
        for unanswered in reversed(facts.hung)
        if unanswered.number in facts.paths
    }
    for key, code in breakdown.connections.codes.items():
        connections[code] = f"{key.number}  {key.client} → {with_port(key.server, key.port)}"
        hung[connections[code]] = waiting.get(key.number, 0)
    return [
        _breaking("procedures", "By procedure", "procedure", breakdown.procedures, procedures, exact),
        _breaking("clients", "By client", "client", breakdown.clients, clients, hung=hung),
        _breaking("files", "By file", "file", breakdown.files, files, hung=hung),
        _breaking("connections", "By connection", "connection", breakdown.connections, connections, hung=hung),
    ]


def _breaking(
    id: str,
    title: str,
    noun: str,
    groups: Groups[Any],
    names: Mapping[int, str],
    exact: Mapping[str, Distribution | None] | None = None,
    hung: Mapping[str, int] | None = None,
) -> Breaking:
    cells = groups.cells.rows.copy()
    waited: dict[str, tuple[int, int]] = {}
    by_code = np.zeros((max([OTHERS, *names], default=0) + 1, 2), np.int64)
    if len(cells):
        by_code = np.zeros((int(max(cells[:, 0].max(), len(by_code) - 1)) + 1, 2), np.int64)
        np.add.at(by_code, cells[:, 0], cells[:, [7, 3]])
    for code, name in names.items():
        before = waited.get(name, (0, 0))
        waited[name] = before[0] + int(by_code[code, 0]), before[1] + int(by_code[code, 1])
    ranked = sorted(waited, key=lambda name: waited[name], reverse=True)
    shown = ranked[: ROWS[id]]
    others = len(ranked) - len(shown) + groups.merged
    rows = {name: row for row, name in enumerate(shown)}
    places = np.full(len(by_code), len(shown), np.int64)
    for code, name in names.items():
        places[code] = rows.get(name, len(shown))
    cells[:, 0] = places[cells[:, 0]]
    if others:
        shown = [*shown, f"({plural(others, f'other {noun}')})"]
    fit, width = fitted(summed(cells), groups.cells.width, MAX_INTERVALS)
    known = {rows[name]: distribution for name, distribution in (exact or {}).items() if name in rows}
    open_calls = {rows[name]: waiting for name, waiting in (hung or {}).items() if name in rows and waiting}
    return Breaking(id, title, noun, shown, fit, width, others, known, open_calls)


def same_width(tables: list[Breaking]) -> list[Breaking]:
    """All in the same intervals, and so that there are not too many cells."""
    width = max(table.width for table in tables)
    doublings = [(width // table.width).bit_length() - 1 for table in tables]
    while True:
        cells = [widened(table.cells, more) for table, more in zip(tables, doublings, strict=True)]
        last = max((int(cell[:, 1].max()) for cell in cells if len(cell)), default=0)
        if sum(map(len, cells)) <= MAX_CELLS or last < FEWEST_INTERVALS:
            break
        doublings = [more + 1 for more in doublings]
    return [
        replace(table, cells=mine, width=table.width << more)
        for table, mine, more in zip(tables, cells, doublings, strict=True)
    ]


def cell_data(table: Breaking) -> dict[str, Any]:
    """For the page's script: its columns, packed."""
    packed = [
        base64.b64encode(np.minimum(table.cells[:, column], _highest(kind)).astype(f"<{kind}").tobytes()).decode()
        for kind, column in _CELL
    ]
    return {"id": table.id, "rows": len(table.names), "columns": packed}


def _highest(kind: str) -> int:
    return int(np.iinfo(kind).max) if kind[0] != "f" else 1 << 62


def table_html(table: Breaking, total_waited: int) -> str:
    """Sorted by the time that RPCs took, with what sorts and filters it."""
    heads = "".join(
        tag("th", tag("button", text(heading), type="button"), scope="col", data_key=key, class_="number",
            aria_sort="descending" if key == "waited" else "none")
        for heading, key in COLUMNS
    )  # fmt: skip
    first = tag("th", tag("button", text(table.noun), type="button"), scope="col", data_key="name", aria_sort="none")
    body = "".join(_row(table, row, total_waited) for row in range(len(table.names)))
    caption = f"RPCs, latencies and bytes of each {table.noun}"
    filter_id = f"filter-{table.id}"
    search = tag(
        "p",
        tag("label", text(f"Only {table.noun}s with"), for_=filter_id),
        f' <input type="search" id="{filter_id}" autocomplete="off" spellcheck="false" data-table="{table.id}">',
        tag("output", for_=filter_id, id=f"shown-{table.id}"),
        class_="filter",
    )
    made = tag(
        "table",
        tag("caption", text(caption)),
        tag("thead", tag("tr", first, heads)),
        tag("tbody", body),
        id=table.id,
        class_="sortable",
    )
    return search + tag("div", made, class_="wide", tabindex="0", role="region", aria_label=caption)


def _row(table: Breaking, row: int, total_waited: int) -> str:
    cells = table.cells[table.cells[:, 0] == row]
    calls, failed, up, down, waited = (int(cells[:, column].sum()) for column in range(3, 8))
    exact = table.exact.get(row)
    latencies = _latencies(cells, exact)
    if exact is None and row in table.hung:
        # Cells know latencies to within 7 %.
        longest = table.hung[row]
        bounds = [value >= 0.93 * longest for value in latencies]
        latencies = [min(value, longest) if bound else value for value, bound in zip(latencies, bounds, strict=True)]
    else:
        bounds = [exact is not None and exact.is_bound(int(value)) for value in latencies]
    values: list[tuple[float, str]] = [
        (calls, count(calls)),
        (failed, count(failed) if failed else "–"),
        (waited, percent(waited / total_waited) if total_waited and waited else "–"),
        *(
            (value, at_least(value, is_bound) if value >= 0 else "–")
            for value, is_bound in zip(latencies, bounds, strict=True)
        ),
        (up, size(up)),
        (down, size(down)),
    ]
    return tag(
        "tr",
        tag("th", text(shortened(table.names[row])), scope="row"),
        *(tag("td", text(shown), data_v=f"{value:.10g}") for value, shown in values),
        data_row=row,
        class_="others" if table.others and row == len(table.names) - 1 else None,
    )


def _latencies(cells: Int64s, exact: Distribution | None) -> list[float]:
    """Median, 95%, 99% and maximum; -1 for none."""
    if exact is not None:
        return [exact.median, exact.p95, exact.p99, exact.maximum]
    bins, inverse = np.unique(cells[:, 2], return_inverse=True)
    counts = np.bincount(inverse, cells[:, 3], len(bins)).astype(np.int64)
    known = bins >= 0
    bins, counts = bins[known], counts[known]
    if not len(bins):
        return [-1.0] * 4
    return [*(percentile(bins, counts, percentage) for percentage in PERCENTS), float(edges(bins[-1:] + 1)[0])]


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
        shown = [
            self.examples.slowest[unanswered.number]
            for unanswered in facts.hung
            if unanswered.number in self.examples.slowest
        ]
        return replace(facts, paths={example.number: path for example in shown if (path := path_of(example))})

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
    """By percentage: nanoseconds; NaN where nothing ended."""
    heat: tuple[Int64s, Floats, Floats, Int64s]
    """For each cell with RPCs: the interval's index, lowest and highest latency in nanoseconds, RPCs."""


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
        {percentage: _percentile(known, count, percentage) for percentage in PERCENTS},
        (keys >> 16, edges(bins, BINS_SHIFT + HEAT_SHIFT), edges(bins + 1, BINS_SHIFT + HEAT_SHIFT), counts),
    )


def _starts(first: int, intervals: Int64s, width: int) -> Floats:
    """In floats: a capture may claim to span more nanoseconds than 64 bits count."""
    starts: Floats = intervals.astype(np.float64) * width + float(first)
    return starts


def edges(bins: Int64s, shift: int = BINS_SHIFT) -> Floats:
    """Where bins of latency begin, in nanoseconds."""
    return bin_edges(bins << shift)


def middles(bins: Int64s) -> Floats:
    return (edges(bins) + edges(bins + 1)) / 2


def percentile(bins: Int64s, counts: Int64s, percentage: int) -> float:
    """A percentile of latencies in ascending bins; NaN of none."""
    if not len(bins):
        return float("nan")
    ends = np.cumsum(counts)
    rank = -(-int(ends[-1]) * percentage // 100)
    return float(middles(bins[np.searchsorted(ends, rank)]))


def _percentile(cells: Int64s, count: int, percentage: int) -> Floats:
    percentiles = np.full(count, np.nan)
    bounds = np.searchsorted(cells[:, 1], np.arange(count + 1))
    for at in np.unique(cells[:, 1]).tolist():
        mine = cells[bounds[at] : bounds[at + 1]]
        percentiles[at] = percentile(mine[:, 2], mine[:, 3], percentage)
    return percentiles


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
    times = [time for health in healths for end in health.directions for time in end.retransmission_times]
    sums = np.zeros(count, np.int64)
    for time, packets in times:
        sums[min(max(0, (time - start) // width), count - 1)] += packets
    return sums


UNITS = ((7_200, 3600.0, "hours"), (300, 60.0, "minutes"), (0.5, 1.0, "seconds"), (0, 0.001, "milliseconds"))
"""Seconds of a capture from which on the axis has this unit, its seconds, and its name."""
LEFT = 72
"""Pixels beside the charts: so that all begin at one place."""
SHADES = 256
FAR = 4
"""A limit so many times as high as what was ever in use is said, not drawn."""


def library() -> str:
    """Bokeh's own JavaScript, with its license."""
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh"], log_level="warn").js_raw)


def axis_unit(span: int) -> tuple[float, str]:
    """Nanoseconds of the unit of the axis for a capture of ``span`` nanoseconds, and its name."""
    least = next(unit for unit in UNITS if span / 1e9 >= unit[0])
    return least[1] * 1e9, least[2]


class Charts:
    """Figures one below the other; ``item`` is what ``Bokeh.embed.embed_item`` takes."""

    def __init__(self, span: int, since: str) -> None:
        """``span``: nanoseconds of the capture; ``since``: when it began, in words."""
        from bokeh.models import Range1d

        self.unit, name = axis_unit(span)
        self.unit_name = name
        self._label = f"{name} since {since}"
        self._range = Range1d(0, max(1, span) / self.unit, bounds=(0, max(1, span) / self.unit))
        self._figures: list[Any] = []

    def latency(self, data: Series) -> None:
        """A heat map of latencies, and lines of percentiles."""
        from bokeh.models import FixedTicker, HoverTool, LogColorMapper

        at, low, high, counts = data.heat
        if not len(at):
            return
        figure = self._figure("Latency", 300, y_axis_type="log", y_range=(float(low.min()), float(high.max())))
        left = data.starts[at] / self.unit
        mapper = LogColorMapper(["#dbe9f6"] * SHADES, low=0.8, high=max(2, int(counts.max())), name="heat")
        cells = figure.quad(
            left="left",
            right="right",
            bottom="bottom",
            top="top",
            fill_color={"field": "rpcs", "transform": mapper},
            line_color=None,
            name="heat",
            source=_source(
                left=left,
                right=left + data.width / self.unit,
                bottom=low,
                top=high,
                rpcs=counts.astype(np.int32),
                between=[f"{duration(lowest)} to {duration(other)}" for lowest, other in zip(low, high, strict=True)],
            ),
        )
        figure.add_tools(HoverTool(renderers=[cells], tooltips=[("RPCs", "@rpcs{0,0}"), ("latency", "@between")]))
        for percentage in PERCENTS:
            legend = "median" if percentage == 50 else f"{percentage}th percentile"
            self._steps(figure, data.starts, data.width, data.percentiles[percentage], f"p{percentage}", legend)
        steps = (1, 2, 5) if high.max() < 300 * low.min() else (1,)
        ticks = [step * 10**power for power in range(15) for step in steps]
        figure.yaxis.ticker = FixedTicker(ticks=ticks, minor_ticks=[])
        figure.yaxis.major_label_overrides = {tick: bound(tick) for tick in ticks}
        figure.ygrid.ticker = figure.yaxis[0].ticker

    def rates(self, data: Series) -> None:
        """RPCs and bytes per second."""
        seconds = data.width / 1e9
        figure = self._figure("RPCs per second", 130)
        self._steps(figure, data.starts, data.width, data.calls / seconds, "calls", "RPCs")
        if data.failed.any():
            self._steps(figure, data.starts, data.width, data.failed / seconds, "failed", "failed")
        figure = self._figure("MiB per second", 130)
        for values, name, legend in (
            (data.call_bytes, "up", "to the server"),
            (data.reply_bytes, "down", "to the client"),
        ):
            self._steps(figure, data.starts, data.width, values / seconds / 2**20, name, legend)

    def outstanding(self, calls: PeakSeries | None, slots: PeakSeries | None) -> None:
        """Credits and slots in use."""
        drawn = [peaks for peaks in (calls, slots) if peaks is not None]
        if not drawn:
            return
        highest = max(1, *(int(peaks.values.max()) for peaks in drawn))
        far = []
        """What is too far above all that is in use: it would press the rest to the ground."""
        figure = self._figure("Credits and slots in use", 150)
        for data, limit, name, legend in (
            (calls, "credits", "credits", "calls outstanding"),
            (slots, "slots", "slots", "slots in use"),
        ):
            if data is None:
                continue
            known = data.limits[~np.isnan(data.limits)]
            if len(known) and known.min() <= FAR * highest:
                self._steps(figure, data.starts, data.width, data.limits, f"{name}-limit", limit)
            elif len(known):
                low, high = int(known.min()), int(known.max())
                far.append(f"{limit}: {low:,}" + (f" to {high:,}" if high > low else ""))
            self._steps(figure, data.starts, data.width, data.values.astype(np.float64), name, legend)
        if far:
            figure.title.text += f" ({', '.join(far)}, far above)"

    def unanswered(self, calls: Sequence[tuple[str, int, int]]) -> None:
        """Bars of calls without a reply: what they are, when they begin, and for how long they are outstanding, ns."""
        if not calls:
            return
        from bokeh.models import HoverTool

        figure = self._figure("Calls outstanding without a reply", 60 + 12 * len(calls))
        places = np.arange(len(calls), 0, -1).astype(np.float64)
        left = np.array([begin for _, begin, _ in calls]) / self.unit
        source = _source(
            left=left,
            right=left + np.array([waiting for *_, waiting in calls]) / self.unit,
            bottom=places - 0.9,
            top=places - 0.1,
            call=[name for name, *_ in calls],
            waiting=[at_least(waiting, True) for *_, waiting in calls],
        )
        bars = figure.quad("left", "right", "top", "bottom", line_color=None, name="failed", source=source)
        figure.add_tools(HoverTool(renderers=[bars], tooltips=[("call", "@call"), ("outstanding", "@waiting")]))
        figure.yaxis.visible = False

    def retransmissions(self, data: Series, packets: Any) -> None:
        """Packets that were retransmitted."""
        figure = self._figure("Packets retransmitted", 120)
        there = packets.nonzero()[0]
        left = data.starts[there] / self.unit
        figure.quad(
            left="left",
            right="right",
            bottom=0,
            top="top",
            line_color=None,
            name="retransmitted",
            source=_source(left=left, right=left + data.width / self.unit, top=packets[there].astype(np.float64)),
        )

    def item(self, target: str) -> dict[str, Any]:
        """The plot as JSON for ``Bokeh.embed.embed_item``."""
        from bokeh.embed import json_item
        from bokeh.layouts import gridplot

        for figure in self._figures:
            if figure.legend:
                legend = figure.legend[0]
                legend.orientation, legend.border_line_color, legend.background_fill_alpha = "horizontal", None, 0
                legend.location = "left"
                legend.padding, legend.margin, legend.spacing = 0, 0, 12
                legend.glyph_width, legend.label_text_font_size = 16, "11px"
                figure.center.remove(legend)
                figure.add_layout(legend, "above")
        for figure in self._figures[:-1]:
            figure.xaxis.major_label_text_font_size = "0pt"
        self._figures[-1].xaxis.axis_label = self._label
        self._figures[-1].height += 40
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Bokeh 3.4 says that each figure has its own tool for dragging.
            grid = gridplot(
                [[chart] for chart in self._figures],
                sizing_mode="stretch_width",
                toolbar_location="above",
                toolbar_options={"logo": None},
            )
        made: dict[str, Any] = json_item(grid, target)
        return made

    def _figure(self, title: str, height: int, **options: Any) -> Any:
        from bokeh.models import BoxAnnotation, BoxSelectTool, BoxZoomTool, PanTool, ResetTool
        from bokeh.plotting import figure

        select = BoxSelectTool(dimensions="width", description="Select a span")
        tools = [
            select,
            BoxZoomTool(dimensions="width", description="Zoom into a span"),
            PanTool(dimensions="width", description="Move"),
            ResetTool(description="The whole capture"),
        ]
        made = figure(
            title=title,
            height=height,
            sizing_mode="stretch_width",
            x_range=self._range,
            tools=tools,
            active_drag=select,
            min_border_left=LEFT,
            min_border_right=16,
            background_fill_color=None,
            border_fill_color=None,
            name=title,
            **options,
        )
        made.title.text_font_size = "13px"
        for axis in (*made.xaxis, *made.yaxis):
            axis.minor_tick_line_color = None
            axis.axis_label_text_font_style = "normal"
        if "y_range" not in options:
            made.y_range.start = 0
            made.yaxis.ticker.desired_num_ticks = 3
        made.add_layout(BoxAnnotation(name="span", visible=False, level="overlay", fill_alpha=0.15))
        self._figures.append(made)
        return made

    def _steps(self, figure: Any, starts: Any, width: int, values: Any, name: str, legend: str) -> None:
        """A line with a step for each interval, and none where nothing is known."""
        gaps = np.diff(starts, prepend=starts[:1] - width) > 1.5 * width
        x = np.column_stack((starts, starts, starts + width)) / self.unit
        y = np.column_stack((np.where(gaps, np.nan, values), values, values))
        source = _source(x=x.ravel().astype(np.float64), y=y.ravel().astype(np.float64))
        figure.line("x", "y", name=name, line_width=1.6, source=source, legend_label=legend)


def _source(**columns: Any) -> Any:
    from bokeh.models import ColumnDataSource

    return ColumnDataSource(columns)
