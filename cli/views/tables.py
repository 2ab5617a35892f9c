"""What the tables of all views have in common."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

STATE_STYLES = {
    "complete": "green",
    "error": "yellow",
    "damaged": "red",
    "no reply": "red",
    "no call": "red",
}

PART_NAMES = {
    "call": "call Send",
    "reads": "Reads",
    "server": "server",
    "writes": "Writes",
    "reply": "reply Send",
}
"""Columns for the parts of a latency."""

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"


def heading(title: str, remark: str = "") -> Text:
    return Text.assemble((title, "bold"), (f"  {remark}" if remark else "", "dim"))


def grid(left: Sequence[str], right: Sequence[str] = (), *, indent: int = 2, gap: int = 2) -> Table:
    """A table without lines: columns ``left``-aligned, then ``right``-aligned ones; '' is a column without name."""
    named = any((*left, *right))
    table = Table(box=None, show_header=named, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    table.add_column("", width=indent - gap if indent > gap else 0)
    for name in left:
        table.add_column(name, overflow="ellipsis", no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def bar(part: float, whole: float, width: int) -> str:
    """A horizontal bar, to the eighth of a column; something is never nothing."""
    eighths = round(8 * width * part / whole) if whole > 0 else 0
    if part > 0:
        eighths = max(1, eighths)
    full, rest = divmod(eighths, 8)
    return "█" * full + (EIGHTHS[rest] if rest else "")


def sparkline(values: Sequence[float]) -> str:
    """One column per value; nothing is a space."""
    highest = max(values, default=0)
    if not highest:
        return " " * len(values)
    return "".join(LEVELS[min(7, int(8 * value / highest))] if value else " " for value in values)
