"""What the tables of all views have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.padding import Padding
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
    "call": "call",
    "reads": "Reads",
    "server": "server",
    "writes": "Writes",
    "reply": "reply",
}
"""The parts of a latency: the call's Send, RDMA Reads, the server, RDMA Writes, the reply's Send."""

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"


def heading(title: str, remark: str = "") -> Text:
    return Text.assemble((title, "bold"), (f"  {remark}" if remark else "", "dim"))


Cell = Text | str


def grid(
    left: Sequence[str],
    right: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    flexible: int | None = None,
    gap: int = 1,
    indent: int = 2,
) -> Padding:
    """A table without lines: columns ``left``-aligned, then ``right``-aligned ones; '' is a column without name.

    Where the table is too wide, column ``flexible`` gives way, and none else.
    """
    listed = [list(row) for row in rows]
    names = [*left, *right]
    table = Table(
        box=None, show_header=any(names), pad_edge=False, padding=(0, gap, 0, 0), header_style="dim"
    )
    for at, name in enumerate(names):
        widest = max([cell_len(name), *(cell_len(str(row[at])) for row in listed if at < len(row))])
        table.add_column(
            name,
            justify="left" if at < len(left) else "right",
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if at == flexible else widest,
        )
    for row in listed:
        table.add_row(*row)
    return Padding(table, (0, 0, 0, indent), expand=False)


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
