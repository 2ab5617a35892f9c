"""What views draw, as a tree that can be folded, walked, and sent to another process."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.text import Text
from rich.tree import Tree

from rdmascope.dissect.rpcrdma.rpcs import Extent, Reassembled

from ..harmless_console import HarmlessConsole
from ..sanitize import harmless_line
from ..views.rpc import BYTES

MAX_BYTES = 1 << 20
"""Of a message that are sent for looking at them."""


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
    """Bytes behind."""


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
    found = TreeNode(label)
    for span in text.spans:
        if isinstance(span.style, Style) and BYTES in span.style.meta:
            found.message = message
            found.start, found.end = span.style.meta[BYTES]
    label.spans = [span for span in text.spans if not (isinstance(span.style, Style) and BYTES in span.style.meta)]
    return found


def rendered(renderable: RenderableType, width: int) -> list[Text]:
    """The lines of a renderable."""
    console: Console = HarmlessConsole(
        file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False, color_system="truecolor"
    )
    lines = console.render_lines(renderable, console.options.update(height=None), pad=False)
    return [Text.assemble(*((one.text, one.style or "") for one in line if not one.control)) for line in lines]


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
