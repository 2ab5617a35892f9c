"""The lists: of each noun a line, its heading, what the columns sort by, and what a row says before anything is
read.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.text import Text
from rich.tree import Tree

from rdmascope.dissect.audit.rule import all_rules
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.onc.file_operations import DIRECTORY, TYPE_NAMES
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.rpcs import Extent, Reassembled
from rdmascope.dissect.units import seconds, size, with_port

from ..harmless_console import HarmlessConsole
from ..sanitize import harmless_line
from ..views.diagnosis import FindingCells, finding_view, rule_view
from ..views.files import shown_path, shown_size
from ..views.packets import PROTOCOL_STYLES, header_line, packet_cells
from ..views.rpc import BYTES, RpcCells, RpcLine, cells_line, header as rpc_header
from ..views.tables import cell, counted, sized, timed

MAX_BYTES = 1 << 20
"""Bytes of a message that are sent for display."""


@dataclass(slots=True)
class TreeNode:
    """A line, and the lines below it."""

    label: Text
    children: list[TreeNode] = field(default_factory=list)
    message: str = ""
    """The title of the bytes that it stands for; '' for none."""
    start: int = 0
    end: int = 0
    """Where in these it is."""
    opened: bool = True
    goes_to: tuple[str, int] | None = None
    """A noun and its number or frame, which Enter goes to."""


@dataclass(frozen=True, slots=True)
class ShownBytes:
    """Bytes to be looked at."""

    title: str
    data: Reassembled
    left_out: int = 0
    """Bytes of the message behind ``data`` that are not shown."""


@dataclass(frozen=True, slots=True)
class Details:
    """All that the panes show of one noun."""

    noun: str
    number: int
    nodes: list[TreeNode]
    ladder: list[Text]
    bytes: list[ShownBytes]


class Diagnosed(NamedTuple):
    """What is wrong with the capture: each statement with its evidence, and where that leads."""

    nodes: list[TreeNode]
    wrong: bool
    """There is a problem."""


class RpcPlace(NamedTuple):
    """Which RPC is meant."""

    number: int
    frame: int
    """The first of the call, or the last of a reply without one."""
    xid: int

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> RpcPlace:
        return cls(row["number"], row["call_frame"] or row["reply_frame"] or 0, row["xid"])


def nodes_of(renderables: Iterable[RenderableType], width: int, message: str = "") -> Iterator[TreeNode]:
    """Trees stay trees; what is neither a tree nor text becomes lines of this width.

    ``message``: the title of the bytes that fields stand for.
    """
    for renderable in renderables:
        if isinstance(renderable, Group):
            yield from nodes_of(renderable.renderables, width, message)
        elif isinstance(renderable, Padding):
            yield from map(TreeNode, rendered(renderable.renderable, width))
        elif isinstance(renderable, Tree):
            yield _node(renderable, width, message)
        elif isinstance(renderable, Text):
            yield _leaf(renderable, message)
        else:
            yield from map(TreeNode, rendered(renderable, width))


def _node(tree: Tree, width: int, message: str) -> TreeNode:
    heads = [*nodes_of((Text.from_markup(tree.label) if isinstance(tree.label, str) else tree.label,), width, message)]
    head = heads[0] if heads else TreeNode(Text())
    head.children += heads[1:]
    for child in tree.children:
        if isinstance(child.label, Group):
            head.children += nodes_of((child.label,), width, message)
        else:
            head.children.append(_node(child, width, message))
    return head


def _leaf(text: Text, message: str) -> TreeNode:
    label = text.copy()
    leaf = TreeNode(label)
    for span in text.spans:
        if isinstance(span.style, Style) and BYTES in span.style.meta:
            leaf.message = message
            leaf.start, leaf.end = span.style.meta[BYTES]
    label.spans = [span for span in text.spans if not (isinstance(span.style, Style) and BYTES in span.style.meta)]
    return leaf


def rendered(renderable: RenderableType, width: int) -> list[Text]:
    """The lines of a renderable."""
    console: Console = HarmlessConsole(
        file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False, color_system="truecolor"
    )
    return [
        Text.assemble(*((segment.text, segment.style or "") for segment in line if not segment.control))
        for line in console.render_lines(renderable, console.options.update(height=None), pad=False)
    ]


def harmless_text(text: Text) -> Text:
    """On one line, with nothing in it that acts on a terminal."""
    if text.plain.isprintable():
        return text
    made = Text(style=text.style)
    at = 0
    for cut in sorted({0, len(text), *(edge for span in text.spans for edge in (span.start, span.end))}):
        part = text[at:cut]
        made.append_text(Text(harmless_line(part.plain), part.style, spans=_whole(part)))
        at = cut
    return made


def _whole(part: Text) -> list:  # type: ignore[type-arg]
    length = len(harmless_line(part.plain))
    return [type(span)(0, length, span.style) for span in part.spans]


def shown_bytes(title: str, data: Reassembled) -> ShownBytes:
    """The first of them."""
    if data.length <= MAX_BYTES:
        return ShownBytes(title, data)
    extents = [
        Extent(extent.start, min(extent.length, MAX_BYTES - extent.start), extent.origin, extent.frame, extent.missing)
        for extent in data.extents
        if extent.start < MAX_BYTES
    ]
    pieces = [(at, piece[: MAX_BYTES - at]) for at, piece in data.pieces if at < MAX_BYTES]
    return ShownBytes(title, Reassembled(tuple(extents), tuple(pieces)), data.length - MAX_BYTES)


Row = Mapping[str, Any]
NARROW, SMALL = 110, 56
"""Columns below which lists leave out some of theirs, and most, so that what says most is on the screen."""


class ListingLayout(NamedTuple):
    """How lines are laid out."""

    first_time: int
    """Times are seconds since then."""
    width: int

    @property
    def narrow(self) -> bool:
        return self.width < NARROW

    def form(self, wide: str, narrow: str, small: str) -> str:
        """The one that fits, of lines with the same cells."""
        return small if self.width < SMALL else narrow if self.narrow else wide


class Listing(NamedTuple):
    """The list of a noun."""

    title: str
    singular: str
    heading: Callable[[ListingLayout], str]
    line: Callable[[Row, ListingLayout], Text]


def _rpc(row: Row, layout: ListingLayout) -> Text:
    return cells_line(RpcCells.of_row(row, False), RpcLine(layout.first_time, layout.width))


_PACKET = ("", "{0:>7} {1:>11} {2:>11} → {3:<11} {4:<8} {6}", "{0:>7} {4:<8} {6}")
"""The wide one is that of ``packets``."""


def _packets(layout: ListingLayout) -> str:
    if layout.narrow:
        return layout.form(*_PACKET).format(*TABLES["packets"].headings)
    return header_line()


def _packet(row: Row, layout: ListingLayout) -> Text:
    when = f"{seconds(row['time_ns'] - layout.first_time):>12}"
    ends, protocol = (row["source"] or "?", row["destination"] or "?"), row["protocol"] or ""
    rest = protocol, row["length_bytes"], row["info"] or ""
    if layout.narrow:
        line = layout.form(*_PACKET).format(row["frame"], when.strip(), *ends, *rest)
    else:
        line = packet_cells(row["frame"], when, ends, *rest)
    return Text(line, PROTOCOL_STYLES.get(protocol, ""))


_CONNECTION = (
    "{:>4} {:<10} {:<8} {:<15} → {:<21} {:>9} {:>9} {:>7} {:>7}  {}",
    "{0:>4} {1:<9} {3:<12} → {4:<17} {5:>9} {6:>9} {9}",
    "{0:>4} {3} → {4}",
)


def _connection(row: Row, layout: ListingLayout) -> Text:
    retransmitted = (row["client_retransmitted_packets"] or 0) + (row["server_retransmitted_packets"] or 0)
    missing = (row["client_missing_packets"] or 0) + (row["server_missing_packets"] or 0)
    text = Text(
        layout.form(*_CONNECTION).format(
            row["number"],
            row["transport"],
            row["protocol"],
            row["client"],
            with_port(row["server"], row["service_port"]),
            size(row["client_bytes"] or 0),
            size(row["server_bytes"] or 0),
            counted(retransmitted),
            counted(missing),
            row["ended_by"] or "",
        )
    )
    if retransmitted or missing:
        text.stylize("yellow")
    return text


_FILE = (
    "{:>10} {:>10} {:>6} {:>9} {:>6} {:>9} {:>9} {:>9}  {}",
    "{1:>10} {3:>9} {5:>9} {7:>9}  {8}",
    "{1:>10}  {8}",
)


def _file(row: Row, layout: ListingLayout) -> Text:
    directory = row["file_type"] == TYPE_NAMES[DIRECTORY]
    return Text(
        layout.form(*_FILE).format(
            f"{row['handle_hash']:#010x}",
            shown_size(row["size_bytes"], row["least_size_bytes"] or 0, directory),
            counted(row["reads"]),
            sized(row["read_bytes"]),
            counted(row["writes"]),
            sized(row["written_bytes"]),
            timed(row["median_latency_ns"]),
            timed(row["p99_latency_ns"]),
            shown_path(row["path"], row["removed_path"], directory),
        )
    )


_FINDING = (
    "{:>11} {:<6} {:<28} {:>4} {:>7} {:>8}  {}",
    "{0:>11} {1:<6} {2:<26} {4:>6}  {6}",
    "{4:>6} {2:<26}  {6}",
)


def _finding(row: Row, layout: ListingLayout) -> Text:
    cells = FindingCells.of_row(row)
    when = "-" if not row["time_ns"] else seconds(row["time_ns"] - layout.first_time)
    numbers = row["connection"], cells.rpc or "-", row["frame"] or "-"
    level, style = cells.shown_level
    return Text(layout.form(*_FINDING).format(when, level, cells.rule, *numbers, cells.observed), style)


LISTINGS = {
    "rpcs": Listing("RPCs", "RPC", lambda layout: rpc_header(RpcLine(layout.first_time, layout.width)).plain, _rpc),
    "packets": Listing("packets", "packet", _packets, _packet),
    "connections": Listing(
        "connections",
        "connection",
        lambda layout: layout.form(*_CONNECTION).format(*TABLES["connections"].headings),
        _connection,
    ),
    "files": Listing("files", "file", lambda layout: layout.form(*_FILE).format(*TABLES["files"].headings), _file),
    "findings": Listing(
        "findings", "finding", lambda layout: layout.form(*_FINDING).format(*TABLES["findings"].headings), _finding
    ),
}
"""By the name of the table."""


def column_at(noun: str, layout: ListingLayout, x: int) -> str | None:
    """The name of the column of the heading that stands at ``x``, or ends behind it."""
    heading = LISTINGS[noun].heading(layout)
    names = sorted(map(re.escape, TABLES[noun].headings), key=len, reverse=True)  # "to server" before "server".
    shown = [*re.finditer(rf"(?<!\S)(?:{'|'.join(names)})(?!\S)", heading)]
    return next((column[0] for column in shown if x < column.end()), shown[-1][0] if shown else None)


WIDTH = 100


def values_of(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is known of it: names of columns and values."""
    return [(name, cell(value)) for name, value in row.items() if value is not None]


def copied_values(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values of a row, with the XID also as lists show it."""
    values = values_of(row)
    if row.get("xid") is not None:
        at = [name for name, _ in values].index("xid")
        values.insert(at + 1, ("xid, hexadecimal", f"{row['xid']:#010x}"))
    return values


def row_nodes(noun: str, row: Mapping[str, Any], first_time: int) -> list[TreeNode]:
    """A line for each value that is known; a finding as ``audit`` shows it, its rule; and what belongs to it."""
    nodes = []
    for name, value in values_of(row):
        label = Text.assemble((name, "cyan"), f": {value}")
        if name.endswith("time_ns"):
            label.append(f"  ({seconds(row[name] - first_time)} s)", "dim")
        if name == "xid":
            label.append(f"  ({row[name]:#010x})", "dim")
        nodes.append(TreeNode(label))
    if noun == "findings":
        nodes = [*nodes_of((finding_view(FindingCells.of_row(row)),), WIDTH), TreeNode(Text("its row", "bold"), nodes)]
        if row["rpc"] is not None:
            nodes.insert(0, TreeNode(Text(f"RPC {row['rpc']}"), goes_to=("rpcs", row["rpc"])))
        if row["frame"] is not None:
            nodes.insert(0, TreeNode(Text(f"packet in frame {row['frame']}"), goes_to=("packets", row["frame"])))
        rule = all_rules().get(row["rule"])
        if rule is not None:
            nodes.append(TreeNode(Text(f"the rule {rule.id}", "bold"), [*nodes_of((rule_view(rule),), WIDTH)]))
    if noun in ("rpcs", "findings"):
        connection = row["connection"]
        nodes.append(TreeNode(Text(f"connection {connection}"), goes_to=("connections", connection)))
    return nodes
