"""RPCs in groups, over time, and against service levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from rdmascope.dissect.measure.call_groups import (
    FAIL,
    PASS,
    STEPS,
    UNDECIDABLE,
    CallGroup,
    CallGroups,
    LatencyInterval,
    ServiceLevelCounts,
    bounds,
)
from rdmascope.dissect.measure.statistics import PARTS
from rdmascope.dissect.records.report import TYPES, group_record
from rdmascope.dissect.records.schema import Record
from rdmascope.dissect.units import at_least, count, duration, moment, plural, size

from .tables import WIDE, Cell, Grid, flagged, indented, latency_cells, latency_tables, part_cells, sparkline

MAX_SHOWN = 30
"""Groups on the page."""
UNKNOWN = "-"

COLUMNS = ("calls", "err", "time", "median", "95%", "99%", "max")


HEADINGS = {
    **dict(zip(COLUMNS, ("rpcs", "errors", "time_share", "median_ns", "p95_ns", "p99_ns", "max_ns"), strict=True)),
    "to server": "call_bytes",
    "to client": "reply_bytes",
    **{name: f"{name}_ns" for name in (*PARTS, "min", "p95", "p99")},
}
"""What people type for a number of a group -> its name in the group's record.  A part counts by its sum."""
_NUMBERS = (
    path.rpartition(".")[2]
    for path, (type, _) in TYPES["group"].fields.items()
    if type.startswith(("integer", "number")) and not path.startswith(("by.", "unanswered."))
)
SORTED_BY = (*HEADINGS, "bytes", "mean", *_NUMBERS)
"""Columns that groups are sorted by, the largest first."""


def _number(fields: Record, column: str) -> float:
    """What the record of a group has in one of ``SORTED_BY``; -1 where that is not known."""
    known = {**(fields["latency"] or {}), **fields["parts"], **fields}
    known |= {
        "bytes": known["call_bytes"] + known["reply_bytes"],
        "mean": known.get("total_ns", -1) / known.get("count", 1),
    }
    value = known.get(HEADINGS.get(column, column))
    return -1 if value is None else float(value)


def sorted_groups(groups: CallGroups, names: Sequence[str], column: str) -> list[CallGroup]:
    """By one of ``SORTED_BY``, the largest first, or by one of ``names``, ascending; of equals the first to come."""
    every = groups.groups()
    if column in names:
        at = names.index(column)
        return sorted(every, key=lambda group: _ascending(group.key[at]))
    return sorted(every, key=lambda group: _number(group_record(group, names, groups, 0), column), reverse=True)


def _ascending(value: Hashable) -> tuple[bool, bool, Any]:
    """Numbers before text, the unknown last."""
    return value is None, isinstance(value, str), value if value is not None else 0


def groups_view(
    groups: CallGroups, names: Sequence[str], first_time: int, column: str, width: int, everything: bool = False
) -> RenderableType:
    """A row for each group: calls, share of all waiting, latency and its parts."""
    ranked = sorted_groups(groups, names, column)
    shown = ranked if everything else ranked[:MAX_SHOWN]
    rows = [*shown, *([groups.others] if groups.others is not None else [])]
    labels: list[list[Cell]] = [_labels(group, names, group is groups.others) for group in rows]
    latencies = [
        latency_cells(group.calls, group.errors, group.waited, groups.waited, group.latency()) for group in rows
    ]
    parts = [_part_cells(group) for group in rows]
    flexible = next((at for at, name in enumerate(names) if name in ("path", "procedure", "export")), 0)
    views = latency_tables(names, labels, (COLUMNS, latencies), parts, width >= WIDE, flexible)
    rest = ranked[len(shown) :]
    if rest:
        calls = sum(group.calls for group in rest)
        views.append(
            Text(f"  … and {plural(len(rest), 'more group', 'more groups')} with {plural(calls, 'RPC')} (--all)", "dim")
        )
    if groups.others is not None:
        words = f"others: {plural(groups.others.calls, 'RPC')} of groups beyond the first {count(len(ranked))}"
        views.append(Text(f"  {words}", "yellow"))
    if not groups.exact:
        views.append(Text("  so many latencies that percentiles are good to 2 %", "dim"))
    return Group(*views)


def _labels(group: CallGroup, names: Sequence[str], others: bool) -> list[Cell]:
    if others:
        return [Text("others", "dim"), *[""] * (len(names) - 1)]
    style = "yellow" if group.errors else ""
    return [Text(_label(name, value), style) for name, value in zip(names, group.key, strict=True)]


def _label(name: str, value: Any) -> str:
    if value is None:
        return UNKNOWN
    if name == "begin":
        return f"{value / 1e9:,.9g} s"
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _part_cells(group: CallGroup) -> list[Cell]:
    known = group.samples.count
    return part_cells(group.call_bytes, group.reply_bytes, [total / known if known else 0 for total in group.parts])


SHADES = "░▒▓█"
STYLES = ("blue", "cyan", "yellow", "bold red")
MARGIN = 10
"""Columns left of a drawing."""
REMARK = 18
"""Columns right of it, where there is room."""
MAX_ROWS = 16
"""Rows of the heat map."""


def columns_of_time(width: int) -> int:
    """Into how many intervals the time is cut on a page of that width."""
    return max(16, width - MARGIN - REMARK)


def over_time_view(intervals: Sequence[LatencyInterval]) -> RenderableType:
    """A heat map, latency against time, with rates and percentiles below."""
    if not intervals:
        return Text("  no RPC", "dim")
    each = intervals[0].end - intervals[0].begin
    views: list[RenderableType] = [*_heat_map(intervals)]
    length = duration(each * len(intervals))
    views.append(Text(" " * MARGIN + "0" + length.rjust(max(len(intervals) - 1, len(length) + 1)), "dim"))
    lines: list[tuple[str, list[float], str, Callable[[float], str]]] = [
        ("RPCs", [interval.calls * 1e9 / each for interval in intervals], "magenta", lambda peak: f"{count(peak)}/s"),
        (
            "to server",
            [interval.call_bytes * 1e9 / each for interval in intervals],
            "blue",
            lambda peak: f"{size(peak)}/s",
        ),
        (
            "to client",
            [interval.reply_bytes * 1e9 / each for interval in intervals],
            "green",
            lambda peak: f"{size(peak)}/s",
        ),
        *(
            (name, [float(interval.percentile(percent) or 0) for interval in intervals], "cyan", duration)
            for name, percent in (("median", 50), ("95%", 95), ("99%", 99))
        ),
        ("errors", [float(interval.errors) for interval in intervals], "yellow", count),
        ("unfinished", [float(interval.incomplete) for interval in intervals], "red", count),
    ]
    for name, values, style, words in lines:
        if any(values):
            line = Text(f"{name:>{MARGIN - 1}} ", "dim")
            views.append(line.append(sparkline(values), style).append(f" peak {words(max(values))}", "dim"))
    views.append(indented(Text(f"from {moment(intervals[0].begin)}; one column is {duration(each)}", "dim")))
    if outstanding := sum(interval.outstanding for interval in intervals):
        remark = f"{plural(outstanding, 'call')} without a reply: at the time outstanding, a lower bound"
        views.append(indented(Text(remark, "red")))
    views.append(indented(Text("RPCs in a cell: ", "dim").append(_legend(intervals), "dim")))
    return Group(*views)


def _step(intervals: Sequence[LatencyInterval]) -> int:
    """Bins of latency in a row of the heat map."""
    places = [bin for interval in intervals for bin in interval.bins.tolist()]
    step = STEPS // 2
    while max(places) // step - min(places) // step >= MAX_ROWS:
        step *= 2
    return step


def _rows_of(interval: LatencyInterval, step: int) -> dict[int, int]:
    """RPCs by row of the heat map."""
    rows: dict[int, int] = {}
    for bin, number in zip(interval.bins.tolist(), interval.counts.tolist(), strict=True):
        rows[bin // step] = rows.get(bin // step, 0) + number
    return rows


def _heat_map(intervals: Sequence[LatencyInterval]) -> list[Text]:
    if not any(len(interval.bins) for interval in intervals):
        return [Text("  no RPC with both call and reply", "dim")]
    step = _step(intervals)
    cells = [_rows_of(interval, step) for interval in intervals]
    highest = max(number for column in cells for number in column.values())
    rows = range(max(max(column, default=0) for column in cells), min(min(cell) for cell in cells if cell) - 1, -1)
    lines = []
    for row in rows:
        line = Text(f"{duration(bounds(row * step)[0]):>{MARGIN - 2}} ┤", "dim")
        for column in cells:
            level = _level(column.get(row, 0), highest)
            line.append(*((" ", "") if level < 0 else (SHADES[level], STYLES[level])))
        lines.append(line)
    return lines


def _level(number: int, highest: int) -> int:
    """The shade of so many RPCs, on a scale of equal ratios; -1 for none."""
    if not number:
        return -1
    return min(len(SHADES) - 1, int(len(SHADES) * math.log(number) / math.log(highest + 1)))


def _legend(intervals: Sequence[LatencyInterval]) -> str:
    """'░ 1 to 4  ▒ 5 to 20 …'."""
    if not any(len(interval.bins) for interval in intervals):
        return "none"
    step = _step(intervals)
    highest = max(number for interval in intervals for number in _rows_of(interval, step).values())
    least = [math.ceil((highest + 1) ** (level / len(SHADES)) - 1e-9) for level in range(len(SHADES))]
    edges = [*least, highest + 1]
    words = []
    for shade, low, behind in zip(SHADES, edges[:-1], edges[1:], strict=True):
        if low < behind:
            words.append(f"{shade} {count(low)}" + (f" to {count(behind - 1)}" if low < behind - 1 else ""))
    return "  ".join(words)


VERDICT_STYLES = {PASS: "green", FAIL: "bold red", UNDECIDABLE: "yellow"}
MAX_SPANS = 8
"""Spans that are listed of a service level."""


def service_levels_view(levels: Sequence[ServiceLevelCounts], first_time: int) -> RenderableType:
    """A row for each, and below those that were not kept when that was."""
    rows: list[list[Cell]] = []
    for level in levels:
        verdict = level.verdict
        value = UNKNOWN if level.value is None else at_least(level.value, level.value_is_bound)
        judged = Text(verdict, VERDICT_STYLES[verdict])
        rows.append([judged, level.level.text, value, count(level.calls), flagged(level.beyond, "red")])
    views: list[RenderableType] = [Grid(["", "service level"], ["measured", "calls", "beyond"], rows, 1, gap=2)]
    for level in levels:
        lines = [*_reasons(level), *_spans(level, first_time)]
        if lines:
            views += [Text(), indented(Text(level.level.text, "bold"))]
            views += [indented(line, 4) for line in lines]
    return Group(*views)


def _reasons(level: ServiceLevelCounts) -> list[Text]:
    """Why nothing can be said, or what it does not rest on."""
    if not level.calls and not level.unknown:
        return [Text("no such calls: neither kept nor broken", "yellow")]
    if level.unknown and level.verdict == UNDECIDABLE:
        calls = plural(level.unknown, "call")
        return [Text(f"cannot tell: it depends on {calls} of which the capture shows no latency", "yellow")]
    if level.outstanding:
        return [Text(f"{plural(level.outstanding, 'call')} without a reply, outstanding beyond the limit", "red")]
    if level.unknown:
        return [Text(f"whatever the {plural(level.unknown, 'call')} without a latency took", "dim")]
    return []


def _since(time: int, first_time: int) -> str:
    return f"{(time - first_time) / 1e9:,.3f} s"


def _spans(level: ServiceLevelCounts, first_time: int) -> list[Text]:
    spans = level.spans()
    lines = [
        Text(
            f"{_since(span.begin, first_time)} to {_since(span.end, first_time)}: {count(span.beyond)} of"
            f" {plural(span.calls, 'call')} beyond, the longest {duration(span.worst)} (RPC {span.worst_rpc})"
        )
        for span in spans[:MAX_SPANS]
    ]
    if len(spans) > MAX_SPANS:
        lines.append(Text(f"… and {len(spans) - MAX_SPANS} more spans; --json has all", "dim"))
    return lines
