"""The contents of a call or a reply: a tree of its fields, and the bytes of those that are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.style import Style
from rich.text import Text
from rich.tree import Tree

from rdmascope.dissect.onc.programs import procedure_name, program_name
from rdmascope.dissect.onc.shapes.decode import Node, SparseBytes
from rdmascope.dissect.onc.shapes.messages import call_tree, reply_tree
from rdmascope.dissect.onc.shapes.text import is_line, value_text
from rdmascope.dissect.onc.shapes.types import DATA, XdrArray, XdrList, XdrOpaque
from rdmascope.dissect.rpcrdma.message_trees import CalledProcedure, DecodedMessage
from rdmascope.dissect.rpcrdma.rpcs import Extent, Reassembled
from rdmascope.dissect.units import count

from .rpc import BYTES, ROW, hex_row

MAX_NODES = 400
"""Elements beyond are counted only, unless all of them are asked for."""
DATA_ROWS = 2
ROW_WIDTH = 80
"""Columns that a row of a hexdump takes, with the number of a frame."""
MAX_FIELD_BYTES = 4096


def message_tree(message: DecodedMessage, full: bool = False) -> RenderableType:
    """The header on a line for each of its parts, then the arguments or results to the last field."""
    header, body, rest, problem = message.tree
    parts: list[RenderableType] = [*_header_lines(header)]
    if body is not None:
        parts.append(_body(message, full))
    elif not problem:
        parts.append(Text("no arguments or results", "dim"))
    if problem:
        parts.append(Text(f"not decoded any further: {problem}", "red"))
    if rest is not None:
        parts += list(_rows(message, rest.offset, rest.offset + rest.length, 4 * ROW))
    return Group(*parts)


def inline_tree(data: bytes, frame: int, called: CalledProcedure | None) -> Tree | None:
    """Arguments or results of the RPC message in one frame; what moved by chunks is not in it.  None where they are not
    known, as those of a reply without its call."""
    bytes_ = SparseBytes([(0, data)], len(data))
    tree = call_tree(bytes_, MAX_NODES)
    if tree.header.note or _is_reply(data):
        if called is None or called.program is None:
            return None
        tree = reply_tree(bytes_, *called, MAX_NODES)
    if tree.body is None:
        return None
    message = DecodedMessage(Reassembled((Extent(0, len(data), "inline", frame, ""),), ((0, data),)), tree)
    return _body(message, False)


def _is_reply(data: bytes) -> bool:
    return data[4:8] == b"\0\0\0\1"


def _body(message: DecodedMessage, full: bool) -> Tree:
    body = message.tree.body
    assert body is not None
    tree = Tree(Text(f"{body.name}{_type_name(body)}", "bold"), guide_style="dim")
    for child in body.children:
        _add(tree, child, message, full)
    return tree


def field_bytes(message: DecodedMessage, name: str) -> list[RenderableType]:
    """The bytes of every field of this name, each with its place in the message; empty without such a field."""
    roots = [root for root in (message.tree.header, message.tree.body) if root is not None]
    found = [node for root in roots for node in root.walk() if node.name == name]
    parts: list[RenderableType] = []
    for node in found:
        end = node.offset + node.length
        where = f"{name}: bytes {node.offset:,} to {end:,}{_carrier(message, node)}"
        parts.append(Text.assemble((where, "yellow"), f"  {value_text(node)}"))
        parts += list(_rows(message, node.offset, end, MAX_FIELD_BYTES))
    return parts


def _header_lines(header: Node) -> Iterator[Text]:
    """Of the RPC header: xid to procedure, then credential and verifier."""
    words = [child for child in header.children if not child.children]
    yield _placed(_line("", ", ".join(_word(child, header) for child in words), header.note), header)
    for child in header.children:
        if child.children:
            yield _placed(_line(child.name, _inline(child), child.note), child)


def _word(node: Node, header: Node) -> str:
    named = {child.name: child.value for child in header.children}
    text = f"{node.name} {value_text(node)}"
    program, version, procedure = (named.get(name) for name in ("prog", "vers", "proc"))
    if node.name == "prog" and isinstance(program, int):
        return f"{text} ({program_name(program)})"
    if node.name == "proc" and isinstance(program, int) and isinstance(version, int) and isinstance(procedure, int):
        return f"{text} ({procedure_name(program, version, procedure)})"
    return text


def _inline(node: Node) -> str:
    """A value and all below it on one line."""
    ends = [one for one in node.walk(lambda one: not _is_row(one)) if one.name and (not one.children or _is_row(one))]
    return ", ".join(
        f"{one.name} [{', '.join(map(value_text, one.children))}]" if _is_row(one) else f"{one.name} {value_text(one)}"
        for one in ends
    )


def _is_row(node: Node) -> bool:
    """An array of values that are not made of others, such as gids."""
    return isinstance(node.type, XdrArray) and not any(child.children for child in node.children)


def _line(name: str, text: str, note: str) -> Text:
    line = Text.assemble((f"{name}: " if name else "", "cyan"), text)
    if note:
        line.append(f"  [{note}]", "red")
    return line


def _type_name(node: Node) -> str:
    return f" ({node.type.name})" if node.type is not None else ""


def _placed(label: Text, node: Node) -> Text:
    """The label, with where in the message the field is; it looks the same."""
    label.stylize(Style(meta={BYTES: (node.offset, node.offset + node.length)}))
    return label


def _add(parent: Tree, node: Node, message: DecodedMessage, full: bool) -> None:
    label = _placed(_label(node, message), node)
    branch = parent.add(label)
    if isinstance(node.type, XdrOpaque) and node.type.form == DATA:
        start = node.offset + 4 if node.type.size is None else node.offset
        size = len(node.value) if isinstance(node.value, memoryview) else 0
        if size:
            branch.add(_Dump(message, start, start + size, size if full else DATA_ROWS * ROW))
        return
    if is_line(node):
        return
    if isinstance(node.type, XdrArray | XdrList):
        for child in node.children:
            _add_element(branch, child, message, full)
        return
    for child in node.children:
        _add(branch, child, message, full)


def _add_element(parent: Tree, node: Node, message: DecodedMessage, full: bool) -> None:
    """An element of an array; of a COMPOUND's under the name of its operation."""
    first = node.children[0] if node.children else None
    if first is None or first.name not in ("argop", "resop"):
        _add(parent, node, message, full)
        return
    label = Text(value_text(first), "bold")
    rest = node.children[1:]
    if rest and rest[0].name == "status":
        label.append(f"  {value_text(rest[0])}", "red" if rest[0].value else "green")
        rest = rest[1:]
    if first.note:
        label.append(f"  [{first.note}]", "red")
    branch = parent.add(_placed(label, node))
    for child in rest:
        _add(branch, child, message, full)


def _label(node: Node, message: DecodedMessage) -> Text:
    text = value_text(node)
    line = Text.assemble((node.name, "cyan"), f": {text}" if text else "")
    data = isinstance(node.type, XdrOpaque) and node.type.form == DATA
    if data or not node.children:
        line.append(_carrier(message, node), "dim")
    if node.note:
        line.append(f"  [{node.note}]", "red")
    return line


def _carrier(message: DecodedMessage, node: Node) -> str:
    """What carried it, where that is not what carried the whole message."""
    origin = message.origin(node)
    return f"  in {origin}" if origin and origin != message.origin(message.tree.header) else ""


@dataclass(frozen=True, slots=True)
class _Dump:
    """A hexdump of bytes [start, end), of at most ``limit`` of them, in rows that fit."""

    message: DecodedMessage
    start: int
    end: int
    limit: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        row = ROW if options.max_width >= ROW_WIDTH else ROW // 2
        yield from _rows(self.message, self.start, self.end, self.limit, row)


def _rows(message: DecodedMessage, start: int, end: int, limit: int, row: int = ROW) -> Iterator[Text]:
    """A hexdump of bytes [start, end), of at most ``limit`` of them; with gaps where bytes are missing."""
    stop = min(end, start + limit)
    for extent in message.bytes.extents:
        first, last = max(start, extent.start), min(stop, extent.start + extent.length)
        if first >= last:
            continue
        mark = f"frame {extent.frame}" if extent.frame else ""
        if extent.missing:
            yield hex_row(first, bytes(min(row, last - first)), True, extent.missing, row)
            continue
        for at in range(first, last, row):
            yield hex_row(at, message.bytes.captured(at, min(at + row, last)).tobytes(), False, mark, row)
            mark = ""
    if stop < end:
        yield Text(f"  … {count(end - stop)} more bytes (--full shows all)", "dim")
