"""One frame as Scapy dissects it, and its layers as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..link.numbers import COOKED, ERF, ETHERNET, INFINIBAND, LINUX_SLL2, RAW_IP
from ..transport.iwarp.segments import IwarpSegment
from .fpdu_layers import Words, mpa_layers
from .schema import wide

WIDE = 8
"""Bytes of a field that some readers of JSON have no integers for."""


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

    from ..layers import cm, lrh, roce  # noqa: F401, importing cm binds it
    from ..layers.rpcrdma import RPCRDMA

    roce.bind()
    layer: Any = Raw
    if link_type == ETHERNET:
        layer = Ether
    elif link_type in COOKED:
        layer = CookedLinuxV2 if link_type == LINUX_SLL2 else CookedLinux
    elif link_type in RAW_IP and data:
        layer = IPv6 if data[0] >> 4 == 6 else IP
    elif link_type in (ERF, INFINIBAND):
        layer = lrh.ERF if link_type == ERF else lrh.LRH
    try:
        packet = layer(data) if data else Raw(data)
    except Exception:  # whatever Scapy raises on bytes that do not fit the fields of its own layers
        packet = Raw(data)
    last = packet.lastlayer()
    if rpcrdma and isinstance(last, Raw) and last.underlayer is not None:
        beneath = last.underlayer
        beneath.remove_payload()
        beneath.add_payload(RPCRDMA(last.load))
    return packet


def all_layers(data: bytes, link_type: int, rpcrdma: bool, segment: IwarpSegment | None) -> Iterator[Any]:
    """Scapy layers, and of iWARP words between them."""
    if segment is None:
        yield from layers_of(dissect(data, link_type, rpcrdma))
        return
    # What TCP carries is no matter of one frame.
    yield from layers_of(dissect(data[: segment.payload], link_type))
    for layer in mpa_layers(data, segment):
        yield from (layer,) if isinstance(layer, Words) else layers_of(layer)


def frame_fields(
    data: bytes, link_type: int, rpcrdma: bool = False, segment: IwarpSegment | None = None
) -> list[dict[str, Any]]:
    """The layers as plain values, for JSON."""
    return [
        {"layer": "part", **layer.fields, "text": layer.text} if isinstance(layer, Words) else _plain(layer)
        for layer in all_layers(data, link_type, rpcrdma, segment)
    ]


def layers_of(packet: Any) -> Iterator[Any]:
    from scapy.packet import NoPayload

    while packet is not None and not isinstance(packet, NoPayload):
        yield packet
        packet = packet.payload


def fields_of(layer: Any) -> Iterator[tuple[Any, Any]]:
    for field in layer.fields_desc:
        if hasattr(field, "cond") and not field._evalcond(layer):
            continue
        if field.name in layer.fields or field.name in layer.default_fields:
            yield field, layer.getfieldval(field.name)


def _plain(layer: Any) -> dict[str, Any]:
    from scapy.packet import Packet

    def value_of(value: Any) -> Any:
        if isinstance(value, Packet):
            return [_plain(inner) for inner in layers_of(value)]
        if isinstance(value, list):
            return [value_of(one) for one in value]
        if isinstance(value, bytes):
            return value.hex()
        return value if isinstance(value, int | float | str | None) else str(value)

    fields: dict[str, Any] = {"layer": layer.name}
    for field, value in fields_of(layer):
        if getattr(field, "sz", 0) == WIDE and type(value) is int:
            fields |= wide(field.name, value)
        else:
            fields[field.name] = value_of(value)
    return fields
