"""Credits: a few figures for each direction of a connection, and a plot over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from rich.console import Group, RenderableType
from rich.text import Text

from rdmascope.dissect.measure.credits import CreditDirection, CreditInterval
from rdmascope.dissect.units import count, duration, plural, share

from .tables import LEVELS, Cell, Grid, indented

HEIGHT = 8
"""Lines of a plot at most: one for each call, where that is enough."""


def credits_view(one: CreditDirection, width: int) -> RenderableType:
    """One direction of a connection."""
    active, passive = one.connection.endpoints
    caller, answerer = (passive, active) if one.backward else (active, passive)
    way = "backward" if one.backward else "forward"
    elapsed = one.last_time - one.first_time
    rows: list[list[Cell]] = [
        ["requested", _range(one.requested), "calls", count(one.calls)],
        ["granted", _range(one.granted), "replies", count(one.replies)],
        ["max outstanding", count(one.max_outstanding), "mean outstanding", f"{one.mean:.2f}"],
        ["at the limit", f"{duration(one.blocked)} ({share(one.blocked, elapsed)})", "count", count(one.blockages)],
    ]
    if one.exceeded:
        rows.append([Text("above the limit", "red"), Text(plural(one.exceeded, "call"), "red"), "", ""])
    table = [[row[0], row[1], row[2], row[3]] for row in rows]
    title = Text.assemble((f"Connection {one.connection.number}", "bold"), f"  {way} calls, ")
    title.append(f"{caller.address} → {answerer.address}")
    return Group(title, Grid(["", "", "", ""], [], table, flexible=1, gap=3), Text(), plot(one, width))


def _range(values: tuple[int, int] | None) -> str:
    if values is None:
        return "-"
    low, high = values
    return count(low) if low == high else f"{count(low)} to {count(high)}"


def plot(one: CreditDirection, width: int) -> RenderableType:
    """Outstanding calls as columns, the limit as a line, and below it when callers were at the limit."""
    margin = 8
    each, intervals = one.intervals(max(20, width - margin - 2))
    if not intervals:
        return Text("  no call")
    limits = _limits(intervals)
    # Far above what is outstanding the limit would press the columns into the ground.
    ceiling = max(one.max_outstanding, 1)
    shown = [limit for limit in limits if limit is not None and limit <= 2 * ceiling]
    top = max([ceiling, *shown])
    height = min(HEIGHT, top)
    lines = [_line(intervals, limits, level, height, top, margin) for level in range(height, 0, -1)]
    stood = Text(" " * (margin - 2) + "! ", "dim")
    for interval in intervals:
        blocked = interval.blocked / each if interval is not None else 0
        stood.append(LEVELS[min(7, int(8 * blocked))] if blocked else " ", "red")
    axis = Text(" " * margin + "0" + duration(each * len(intervals)).rjust(len(intervals) - 1), "dim")
    legend = "█ calls outstanding  ─ limit: the lower of requested and granted  ! share of time at the limit"
    parts: list[RenderableType] = [*lines, stood, axis, indented(Text(legend, "dim"))]
    highest = max((limit for limit in limits if limit is not None), default=None)
    if highest is not None and highest > top:
        parts.append(indented(Text(f"the limit, {count(highest)}, is above the plot", "dim")))
    return Group(*parts)


def _limits(intervals: Sequence[CreditInterval | None]) -> list[int | None]:
    """The limit in each interval; where it is not stated, as before."""
    asked = granted = None
    found: list[int | None] = []
    for interval in intervals:
        if interval is not None:
            asked = interval.requested if interval.requested is not None else asked
            granted = interval.granted if interval.granted is not None else granted
        found.append(None if granted is None else max(1, min(granted, asked if asked is not None else granted)))
    return found


def _line(
    intervals: Sequence[CreditInterval | None],
    limits: Sequence[int | None],
    level: int,
    height: int,
    top: int,
    margin: int,
) -> Text:
    """Line ``level`` of ``height``, counted from the lowest, of a plot up to ``top``."""
    low, high = (level - 1) * top / height, level * top / height
    label = count(high) if level in (height, height // 2) and high == int(high) else ""
    cells: list[tuple[str, str]] = []
    for interval, limit in zip(intervals, limits, strict=True):
        reached = interval.outstanding if interval is not None else 0
        if reached >= high:
            cells.append(("█", "cyan"))
        elif reached > low:
            cells.append((LEVELS[max(0, min(7, int(8 * (reached - low) / (high - low)) - 1))], "cyan"))
        elif limit is not None and low < limit <= high:
            cells.append(("─", "yellow"))
        else:
            cells.append((" ", ""))
    line = Text(f"{label:>{margin - 2}} ┤", "dim")
    for style, run in groupby(cells, itemgetter(1)):
        line.append("".join(cell for cell, _ in run), style)
    return line
