"""What views have in common: tables, bars, and the lines that several of them have; and the rows of a query's
result.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rdmascope.dissect.percentiles import Distribution
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.units import at_least, count, duration, plural, share, size

from ..sanitize import harmless_line

if TYPE_CHECKING:
    from rdmascope.captures.tables.condition import Condition
    from rdmascope.dissect.rpcrdma.analyzer import Analyzer


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
    """Columns of parts, without those that took no time in any row."""
    shown = [
        at
        for at, name in enumerate(columns)
        if name not in PART_NAMES.values() or any(str(row[at]) not in ("-", "") for row in rows)
    ]
    return [columns[at] for at in shown], [[row[at] for at in shown] for row in rows]


WIDE = 150
"""From this many columns on, latency and its parts stand in one table."""
PART_COLUMNS = ("to server", "to client", *PART_NAMES.values())


def part_cells(call_bytes: int, reply_bytes: int, means: Sequence[float]) -> list[Cell]:
    """Bytes to the server and to the client, and the mean time in each part, the longest in bold."""
    largest = max(means, default=0)
    times = (Text(duration(mean), "bold" if mean == largest else "") if mean else Text("-", "dim") for mean in means)
    return [size(call_bytes), size(reply_bytes), *times]


def latency_cells(
    calls: int, failed: int, waiting: int, waited: int, latency: Distribution | None, least: bool = False
) -> list[Cell]:
    """Calls, errors, the share of ``waited``, median, 95%, 99% and maximum; ``least``: the minimum before them."""
    values: list[Cell] = ["-"] * (4 + least)
    if latency is not None:
        known = [latency.minimum] * least + [latency.median, latency.p95, latency.p99, latency.maximum]
        values = [at_least(value, latency.is_bound(value)) for value in known]
    return [count(calls), flagged(failed, "yellow"), share(waiting, waited), *values]


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
        joined = [[*label, *two, *three] for label, two, three in zip(labels, rows, part_rows, strict=True)]
        return [Grid(names, [*columns, *part_columns], joined, flexible, gap=2)]
    return [
        Grid(names, columns, [[*label, *two] for label, two in zip(labels, rows, strict=True)], flexible),
        Text(),
        heading("Where the time goes", "bytes to server and client, mean time in each part"),
        Grid(names, part_columns, [[*label, *two] for label, two in zip(labels, part_rows, strict=True)], flexible),
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


def facts(rows: Iterable[Sequence[Cell]], style: str = "", gap: int = 1, indent: int = 2) -> RenderableType:
    """Names in that style and their values, which wrap."""
    table = Table.grid(padding=(0, gap, 0, 0))
    table.add_column(no_wrap=True, style=style)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return Padding(table, (0, 0, 0, indent), expand=False)


def more(number: int, words: str = "") -> list[RenderableType]:
    """The line below a list that ends early, with how many more there are; none where it is whole."""
    return [Text(f"  … and {number:,} more{words}", "dim")] if number > 0 else []


def counted(number: int) -> str:
    return count(number) if number else "-"


def flagged(number: int, style: str) -> Text:
    """A count, in that style where it is not zero."""
    return Text(count(number), style) if number else Text("-")


def sized(length: float) -> str:
    return size(length) if length else "-"


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


def limit_lines(analyzer: Analyzer) -> list[Text]:
    """Lines about frames that a snap length truncated, and connections captured in one direction."""
    half = sum(connection.one_sided and any(connection.bytes) for connection in analyzer.connections)
    truncated = analyzer.truncated_frames
    lines = [f"{plural(truncated, 'frame')} truncated by the capture"] if truncated else []
    lines += [f"{plural(half, 'connection')} with packets of one end only"] if half else []
    return [Text(line, "red") for line in lines]


def filter_line(condition: Condition, shown: str = "") -> Text:
    """How many RPCs passed which filter; ``shown``: what is shown of them."""
    what = f"; {shown}" if shown else ""
    return Text(f"only {condition.passed:,} of {condition.tried:,} RPCs: {condition}{what}", "yellow")


def filter_field(condition: Condition | None) -> dict[str, str]:
    """The filter of a record, where there is one."""
    return {} if condition is None else {"filter": str(condition)}


NUMERIC = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
    "FLOAT", "DOUBLE", "DECIMAL",
)  # fmt: skip
"""DuckDB's types of numbers, aligned to the right."""
GAP = 2


def cell(value: Any) -> str:
    """A value in one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return "[" + ", ".join(map(cell, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {cell(inner)}" for key, inner in value.items()) + "}"
    return harmless_line(str(value))


def json_value(value: Any) -> Any:
    """A value as JSON has it: numbers exact, times and what JSON does not know as text."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): json_value(inner) for key, inner in value.items()}
    return value.isoformat(" ") if isinstance(value, datetime.datetime) else str(value)


def csv_value(value: Any) -> str:
    """A value as exact text; '' if it is not known."""
    if value is None:
        return ""
    if isinstance(value, bool | list | dict):
        return json.dumps(json_value(value), ensure_ascii=False)
    return str(json_value(value)) if isinstance(value, bytes | datetime.datetime) else str(value)


def lines(
    names: Sequence[str], types: Sequence[str], rows: Iterable[Sequence[Any]], width: int | None, block: int = 1000
) -> Iterator[Text]:
    """The lines of a table; of one that is wider than ``width``, a block of lines for each row.

    The first ``block`` rows say how wide the columns are, so that no result need be held whole.
    """
    right = [type.startswith(NUMERIC) and not type.endswith("]") for type in types]
    heads = [harmless_line(name) for name in names]
    source = iter(rows)
    first = [list(map(cell, row)) for row in islice(source, block)]
    widths = [max(map(cell_len, column)) for column in zip(heads, *first, strict=True)]
    following = (list(map(cell, row)) for row in source)
    if width is not None and sum(widths) + GAP * (len(widths) - 1) > width:
        yield from _listed(heads, first, following)
        return
    yield Text(_row(heads, widths, right), "dim")
    for row in first:
        yield Text(_row(row, widths, right))
    for row in following:
        yield Text(_row(row, widths, right))


def described(name: str) -> Grid:
    """The columns of a table; of '', the tables."""
    if not name:
        return Grid(["table", "a row is"], [], [(table.name, table.meaning) for table in TABLES.values()], flexible=1)
    rows = [(column.name, column.type, column.meaning) for column in TABLES[name].columns]
    return Grid(["column", "type", "what"], [], rows, flexible=2)


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        " " * (width - cell_len(text)) + text if at_right else text + " " * (width - cell_len(text))
        for text, width, at_right in zip(cells, widths, right, strict=True)
    ]
    return (" " * GAP).join(padded).rstrip()


def _listed(heads: Sequence[str], *parts: Iterable[Sequence[str]]) -> Iterator[Text]:
    wide = max(map(cell_len, heads), default=0)
    number = 0
    for rows in parts:
        for row in rows:
            number += 1
            yield Text(f"row {number}", "dim")
            for head, text in zip(heads, row, strict=True):
                yield Text.assemble((f"  {head}{' ' * (wide - cell_len(head))}", "dim"), f"  {text}")
