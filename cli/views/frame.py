"""One frame as Scapy dissects it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from rdmascope.dissect.frames import Frame
from rdmascope.dissect.records.frame_layers import Words, all_layers, fields_of, layers_of
from rdmascope.dissect.units import count, seconds

from .rpc import inline_tree

if TYPE_CHECKING:
    from rdmascope.dissect.rpcrdma.message_trees import CalledProcedure
    from rdmascope.dissect.transport.iwarp.segments import IwarpSegment


MAX_VALUE = 96
"""Characters of one value."""


def frame_tree(
    frame: Frame,
    first_time: int,
    rpcrdma: bool = False,
    segment: IwarpSegment | None = None,
    called: CalledProcedure | None = None,
    path: str | None = None,
) -> RenderableType:
    """``rpcrdma``: it begins a Send of RPC-over-RDMA; ``segment``: what it is to iWARP; ``called``: by the call
    that it belongs to; ``path``: that the call names."""
    truncated = "" if len(frame.data) >= frame.original else f", {count(len(frame.data))} of them captured"
    when = seconds(frame.time - first_time)
    parts: list[RenderableType] = [
        Text(f"Frame {frame.number}: {count(frame.original)} bytes{truncated}, at {when} s", "bold")
    ]
    parts += layer_trees(frame, rpcrdma, segment, called, path)
    return Group(*parts)


def layer_trees(
    frame: Frame,
    rpcrdma: bool = False,
    segment: IwarpSegment | None = None,
    called: CalledProcedure | None = None,
    path: str | None = None,
) -> list[RenderableType]:
    """A tree for each layer; the last is of the arguments or results, where the procedure is known."""
    from rdmascope.dissect.layers.oncrpc import ONCRPC

    trees: list[RenderableType] = []
    message = b""
    for layer in all_layers(frame.data, frame.link_type, rpcrdma, segment):
        if isinstance(layer, Words):
            tree = Tree(Text(layer.text, "yellow"), guide_style="dim")
        elif message and layer.name == "Raw" and (contents := inline_tree(message, frame.number, called)) is not None:
            if path is not None:
                contents.add(Text(f"[path: {path}]", "cyan"))
            trees.append(contents)
            continue
        else:
            tree = Tree(Text(layer.name, "bold cyan"), guide_style="dim")
            _add_fields(tree, layer)
            if isinstance(layer, ONCRPC):
                message = layer.original
        trees.append(tree)
    return trees


def _add_fields(tree: Tree, layer: Any) -> None:
    from scapy.packet import Packet

    for field, value in fields_of(layer):
        nested = value if isinstance(value, list) else [value]
        if nested and all(isinstance(one, Packet) for one in nested):
            branch = tree.add(Text(field.name))
            for one in nested:
                for inner in layers_of(one):
                    _add_fields(branch.add(Text(inner.name)), inner)
            continue
        if value is None:
            continue
        if isinstance(value, bytes):
            shown = value[: MAX_VALUE // 2].hex()
            text = f"{count(len(value))} bytes {shown}{'…' if len(value) > MAX_VALUE // 2 else ''}"
            if value and value.isascii() and len(value) <= MAX_VALUE and value.decode().isprintable():
                text = f'"{value.decode()}" {text}'
        else:
            text = str(field.i2repr(layer, value))
            if len(text) > MAX_VALUE:
                text = text[:MAX_VALUE] + "…"
        tree.add(Text.assemble((field.name, "dim"), " ", text))
