"""What views have in common: tables, bars, and the lines that several of them have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.units import count, duration, plural, size

if TYPE_CHECKING:
    from rdmascope.captures.tables.condition import Condition


STATE_STYLES = {
    "complete": "green",
    "error": "yellow",
    "damaged": "red",
    "undecidable": "magenta",
    "no reply": "red",
    "no call": "red",
    "duplicate reply": "yellow",
}

PART_NAMES = {
    "call": "call",
    "reads": "Reads",
    "server": "server",
    "writes": "Writes",
    "reply": "reply",
    "retransmission": "loss",
}
"""The parts of a latency: the call's Send, RDMA Reads, the server, RDMA Writes, the reply's Send, and waiting for
retransmissions."""


def shown_parts(columns: Sequence[str], rows: list[list[Cell]]) -> tuple[list[str], list[list[Cell]]]:
    """Columns of parts, without those, but the server's, that took no time in any row."""
    shown = [
        at
        for at, name in enumerate(columns)
        if name not in PART_NAMES.values() or name == "server" or any(str(row[at]) not in ("-", "") for row in rows)
    ]
    return [columns[at] for at in shown], [[row[at] for at in shown] for row in rows]


PART_COLUMNS = ("to server", "to client", *PART_NAMES.values())


def part_cells(call_bytes: int, reply_bytes: int, means: Sequence[float]) -> list[Cell]:
    """Bytes to the server and to the client, and the mean time in each part, the longest in bold."""
    largest = max(means, default=0)
    times = (Text(duration(mean), "bold" if mean == largest else "") if mean else Text("-", "dim") for mean in means)
    return [size(call_bytes), size(reply_bytes), *times]


def latency_tables(
    names: Sequence[Cell],
    labels: Sequence[Sequence[Cell]],
    latencies: tuple[Sequence[Cell], Sequence[Sequence[Cell]]],
    parts: list[list[Cell]],
    together: bool,
    flexible: int = 0,
) -> list[RenderableType]:
    """Latencies, with their columns, and parts: in one table, or one below the other."""
    columns, rows = latencies
    part_columns, part_rows = shown_parts(PART_COLUMNS, parts)
    if together:
        joined = [[*one, *two, *three] for one, two, three in zip(labels, rows, part_rows, strict=True)]
        return [Grid(names, [*columns, *part_columns], joined, flexible, gap=2)]
    return [
        Grid(names, columns, [[*one, *two] for one, two in zip(labels, rows, strict=True)], flexible),
        Text(),
        heading("Where the time goes", "bytes to server and client, mean time in each part"),
        Grid(names, part_columns, [[*one, *two] for one, two in zip(labels, part_rows, strict=True)], flexible),
    ]


EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"


def heading(title: str, remark: str = "") -> Text:
    return Text.assemble((title, "bold"), (f"  {remark}" if remark else "", "dim"))


Cell = Text | str

MINIMUM = 8
"""Columns that are left to the flexible column at least."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table without lines: columns ``left``-aligned, then ``right``-aligned ones; '' is a column without name.

    Where the table is too wide, the column ``flexible`` wraps; where that is not enough, the widest of the others do.
    Nothing is lost, except with ``fill``.
    """

    left: Sequence[Cell]
    right: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    flexible: int = 0
    gap: int = 1
    indent: int = 2
    fill: bool = False
    """The flexible column takes what room is left, so that the others stay where they are, and is truncated."""

    @property
    def width(self) -> int:
        """Columns of the screen that it takes to show everything."""
        widths = self._widths()
        return self.indent + sum(widths) + self.gap * (len(widths) - 1)

    def _widths(self) -> list[int]:
        return [max(map(_width, column)) for column in zip([*self.left, *self.right], *self.rows, strict=True)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = [*self.left, *self.right]
        widths = self._widths()
        spare = options.max_width - self.width
        if spare < 0 or self.fill:
            given = max(min(MINIMUM, widths[self.flexible]), widths[self.flexible] + spare) - widths[self.flexible]
            widths[self.flexible] += given
            spare -= given
        while spare < 0 and max(widths) > 1:
            widths[widths.index(max(widths))] -= 1
            spare += 1
        table = Table(
            box=None,
            show_header=any(names),
            pad_edge=False,
            padding=(0, self.gap, 0, 0),
            header_style="dim",
        )
        for at, (name, width) in enumerate(zip(names, widths, strict=True)):
            side: JustifyMethod = "left" if at < len(self.left) else "right"
            if at == self.flexible and self.fill:
                table.add_column(name, justify=side, width=width, no_wrap=True, overflow="ellipsis")
            else:
                table.add_column(name, justify=side, width=width, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        yield Padding(table, (0, 0, 0, self.indent), expand=False)


def _width(cell: Cell) -> int:
    return cell_len(str(cell))


def indented(shown: RenderableType, by: int = 2) -> RenderableType:
    return Padding(shown, (0, 0, 0, by))


def facts(rows: Iterable[Sequence[Cell]], style: str = "", gap: int = 1) -> RenderableType:
    """Names in that style and their values, which wrap."""
    table = Table.grid(padding=(0, gap, 0, 0))
    table.add_column(no_wrap=True, style=style)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return Padding(table, (0, 0, 0, 2), expand=False)


def counted(number: int) -> str:
    return count(number) if number else "-"


def timed(nanoseconds: float | None) -> str:
    return "-" if nanoseconds is None else duration(nanoseconds)


def bit_rate(rate: float) -> str:
    """Bits a second: '1.25 Gbit/s'."""
    for unit, name in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if rate >= unit:
            return f"{rate / unit:.3g} {name}"
    return f"{rate:.0f} bit/s"


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


def limit_lines(connections: Iterable[Connection], truncated_frames: int = 0) -> list[Text]:
    """Frames that a snap length truncated, and connections of which it has one direction."""
    half = sum(one.paired_by == "one direction only" and any(one.bytes) for one in connections)
    lines = [f"{plural(truncated_frames, 'frame')} truncated by the capture"] if truncated_frames else []
    lines += [f"{plural(half, 'connection')} with packets of one end only"] if half else []
    return [Text(line, "red") for line in lines]


def filter_line(condition: Condition, shown: str = "") -> Text:
    """How many RPCs passed, and by what filter; ``shown``: what is there of them."""
    what = f"; {shown}" if shown else ""
    return Text(f"only {condition.passed:,} of {condition.tried:,} RPCs: {condition}{what}", "yellow")


def filter_field(condition: Condition | None) -> dict[str, str]:
    """The filter of a record, where there is one."""
    return {} if condition is None else {"filter": str(condition)}


def listing(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """Names, and what they are about in as many lines as that needs."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
