"""Credits: a few figures for each direction of a connection, and a plot over time."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from rdmascope.dissect.measure.credits import CreditDirection, CreditInterval
from rdmascope.dissect.units import count, duration, plural, share

from .tables import LEVELS, Cell, Grid

HEIGHT = 8
"""Lines of a plot."""


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
    lines = [_line(intervals, limits, level, top, margin) for level in range(HEIGHT, 0, -1)]
    stood = Text(" " * (margin - 2) + "! ", "dim")
    for interval in intervals:
        blocked = interval.blocked / each if interval is not None else 0
        stood.append(LEVELS[min(7, int(8 * blocked))] if blocked else " ", "red")
    axis = Text(" " * margin + "0" + duration(each * len(intervals)).rjust(len(intervals) - 1), "dim")
    legend = "█ calls outstanding  ─ limit: the lower of requested and granted  ! share of time at the limit"
    parts: list[RenderableType] = [*lines, stood, axis, Padding(Text(legend, "dim"), (0, 0, 0, 2))]
    highest = max((limit for limit in limits if limit is not None), default=None)
    if highest is not None and highest > top:
        parts.append(Padding(Text(f"the limit, {count(highest)}, is above the plot", "dim"), (0, 0, 0, 2)))
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
    intervals: Sequence[CreditInterval | None], limits: Sequence[int | None], level: int, top: int, margin: int
) -> Text:
    low, high = (level - 1) * top / HEIGHT, level * top / HEIGHT
    label = count(top) if level == HEIGHT else count(top / 2) if level == HEIGHT // 2 and top > 1 else ""
    line = Text(f"{label:>{margin - 2}} ┤", "dim")
    for interval, limit in zip(intervals, limits, strict=True):
        height = interval.outstanding if interval is not None else 0
        if height >= high:
            line.append("█", "cyan")
        elif height > low:
            line.append(LEVELS[max(0, min(7, int(8 * (height - low) / (high - low)) - 1))], "cyan")
        elif limit is not None and low < limit <= high:
            line.append("─", "yellow")
        else:
            line.append(" ")
    return line
