"""One frame as Scapy dissects it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from rdmascope.dissect.arrays import Rows
from rdmascope.dissect.link.numbers import COOKED, ERF, ETHERNET, INFINIBAND, LINUX_SLL2, RAW_IP

from ..units import count, seconds

if TYPE_CHECKING:
    from rdmascope.dissect.transport.iwarp.segments import Segment


class Words(NamedTuple):
    """Between layers: what no layer tells."""

    text: str
    fields: dict[str, Any]


MAX_VALUE = 96
"""Characters of one value."""


def dissect(data: bytes, link_type: int, rpcrdma: bool = False) -> Any:
    """The Scapy packet of a frame; Raw where the link type is not known.

    ``rpcrdma``: it is known that the frame begins a Send of RPC-over-RDMA, which no field of it tells.
    """
    import scapy.contrib.erspan  # importing binds them to what announces them
    import scapy.contrib.geneve
    import scapy.contrib.mpls  # noqa: F401
    from scapy.layers.inet import IP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import CookedLinux, CookedLinuxV2, Ether
    from scapy.layers.vxlan import VXLAN  # noqa: F401, importing binds it to its port
    from scapy.packet import Raw

    from rdmascope.dissect.layers import lrh, roce
    from rdmascope.dissect.layers.rpcrdma import RPCRDMA

    roce.bind()
    if link_type == ETHERNET:
        packet = Ether(data)
    elif link_type in COOKED:
        packet = (CookedLinuxV2 if link_type == LINUX_SLL2 else CookedLinux)(data)
    elif link_type in RAW_IP and data:
        packet = (IPv6 if data[0] >> 4 == 6 else IP)(data)
    elif link_type in (ERF, INFINIBAND):
        packet = (lrh.ERF if link_type == ERF else lrh.LRH)(data)
    else:
        return Raw(data)
    last = packet.lastlayer()
    if rpcrdma and isinstance(last, Raw) and last.underlayer is not None:
        beneath = last.underlayer
        beneath.remove_payload()
        beneath.add_payload(RPCRDMA(last.load))
    return packet


def frame_tree(
    data: bytes, row: Rows, first_time: int, rpcrdma: bool = False, segment: Segment | None = None
) -> RenderableType:
    captured, original = int(row["captured"]), int(row["original"])
    cut = "" if captured >= original else f", {count(captured)} of them captured"
    when = seconds(int(row["time"]) - first_time)
    parts: list[RenderableType] = [
        Text(f"Frame {int(row['number'])}: {count(original)} bytes{cut}, at {when} s", "bold")
    ]
    parts += layer_trees(data, int(row["link_type"]), rpcrdma, segment)
    return Group(*parts)


def layer_trees(
    data: bytes, link_type: int, rpcrdma: bool = False, segment: Segment | None = None
) -> list[RenderableType]:
    """``segment``: what the frame is to iWARP."""
    trees: list[RenderableType] = []
    for layer in _all_layers(data, link_type, rpcrdma, segment):
        if isinstance(layer, Words):
            tree = Tree(Text(layer.text, "yellow"), guide_style="dim")
        else:
            tree = Tree(Text(layer.name, "bold cyan"), guide_style="dim")
            _add_fields(tree, layer)
        trees.append(tree)
    return trees


def _all_layers(data: bytes, link_type: int, rpcrdma: bool, segment: Segment | None) -> Iterator[Any]:
    """Scapy layers, and of iWARP words between them."""
    if segment is None:
        yield from _layers(dissect(data, link_type, rpcrdma))
        return
    from .fpdus import mpa_layers

    # What TCP carries is no matter of one frame.
    yield from _layers(dissect(data[: segment.payload], link_type))
    for layer in mpa_layers(data, segment):
        yield from (layer,) if isinstance(layer, Words) else _layers(layer)


def frame_fields(
    data: bytes, link_type: int, rpcrdma: bool = False, segment: Segment | None = None
) -> list[dict[str, Any]]:
    """The layers as plain values, for JSON."""
    return [
        {"layer": "part", **layer.fields, "text": layer.text} if isinstance(layer, Words) else _plain(layer)
        for layer in _all_layers(data, link_type, rpcrdma, segment)
    ]


def _layers(packet: Any) -> Iterator[Any]:
    from scapy.packet import NoPayload

    while packet is not None and not isinstance(packet, NoPayload):
        yield packet
        packet = packet.payload


def _fields(layer: Any) -> Iterator[tuple[Any, Any]]:
    for field in layer.fields_desc:
        if hasattr(field, "cond") and not field._evalcond(layer):
            continue
        if field.name in layer.fields or field.name in layer.default_fields:
            yield field, layer.getfieldval(field.name)


def _add_fields(tree: Tree, layer: Any) -> None:
    from scapy.packet import Packet

    for field, value in _fields(layer):
        nested = value if isinstance(value, list) else [value]
        if nested and all(isinstance(one, Packet) for one in nested):
            branch = tree.add(Text(field.name))
            for one in nested:
                for inner in _layers(one):
                    _add_fields(branch.add(Text(inner.name)), inner)
            continue
        if isinstance(value, bytes):
            shown = value[: MAX_VALUE // 2].hex()
            text = f"{count(len(value))} bytes {shown}{'…' if len(value) > MAX_VALUE // 2 else ''}"
        else:
            text = str(field.i2repr(layer, value))
            if len(text) > MAX_VALUE:
                text = text[:MAX_VALUE] + "…"
        tree.add(Text.assemble((field.name, "dim"), " ", text))


def _plain(layer: Any) -> dict[str, Any]:
    from scapy.packet import Packet

    def value_of(value: Any) -> Any:
        if isinstance(value, Packet):
            return [_plain(inner) for inner in _layers(value)]
        if isinstance(value, list):
            return [value_of(one) for one in value]
        if isinstance(value, bytes):
            return value.hex()
        return value if isinstance(value, int | float | str | None) else str(value)

    return {"layer": layer.name, **{field.name: value_of(value) for field, value in _fields(layer)}}
