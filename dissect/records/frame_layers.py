"""One frame as Scapy dissects it, and its layers as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..link.numbers import COOKED, ERF, ETHERNET, INFINIBAND, LINUX_SLL2, RAW_IP
from ..named_tuple import NamedTuple
from ..transport.iwarp.fpdus import WRONG_CRC
from ..transport.iwarp.segments import FPDU, RECORD, IwarpSegment, Part
from ..units import count, plural
from .packet_info import fault_info, fpdu_info
from .schema import wide


class Words(NamedTuple):
    """Between layers: what no layer shows."""

    text: str
    fields: dict[str, Any]


def mpa_layers(data: bytes, segment: IwarpSegment) -> Iterator[Any]:
    """Scapy packets of the FPDUs that begin in the segment, a Request or Reply too; ``Words`` for everything else.

    ``data``: of the whole frame.
    """
    from ..layers import iwarp
    from ..layers.fpdus import remove_markers
    from ..layers.iwarp import MPAReply, MPARequest
    from ..layers.oncrpc import ONCRPC, RecordMark

    if segment.mark:
        yield Words(f"TCP: {segment.mark}", {"mark": segment.mark})
    port = segment.connection.service_port
    for part in segment.parts:
        start = segment.payload + part.at
        wire = data[start : start + part.length]
        if words := _words(part, len(wire), segment.unit):
            yield words
        if part.before or not wire or (part.fpdu is None and part.mpa is None and part.fault != WRONG_CRC):
            continue
        if segment.unit == RECORD:
            mark = 0 if segment.connection.transport == "UDP" else 4
            if mark:
                yield RecordMark(wire[:mark])
            if part.fpdu is not None and not part.fpdu.place:
                yield ONCRPC(wire[mark:])
            continue
        if part.mpa is not None:
            yield (MPARequest if part.mpa.request else MPAReply)(wire)
            continue
        unmarked = segment.position is None
        plain, markers = (wire, []) if unmarked else remove_markers(wire, (segment.position or 0) + part.at)
        if markers:
            places = ", ".join(f"{marker.at} (ULPDU_PTR {marker.fpduptr})" for marker in markers)
            yield Words(
                f"{plural(len(markers), 'marker')} in the FPDU, at byte {places}",
                {"markers": [marker._asdict() for marker in markers]},
            )
        fpdu = iwarp.FPDU(plain, _underlayer=_ports(port))
        if isinstance(fpdu, iwarp.FPDU):
            fpdu.sent_as(wire if markers else None, segment.crc)
        yield fpdu


def _ports(port: int | None) -> Any:
    """The ports by which the layers above know that the connection carries RPC-over-RDMA."""
    from scapy.layers.inet import TCP

    return None if port is None else TCP(dport=port)


def _words(part: Part, captured: int, unit: str) -> Words | None:
    """Where the segment has not the whole of an FPDU or record, what there is; None where it has."""
    whole = part.before + part.length + part.after
    extent = f"{count(part.length)} of {count(whole)} bytes"
    fields: dict[str, Any] = {"bytes": part.length, "before": part.before, "after": part.after}
    if part.fpdu is None and part.mpa is None:
        if part.ready:
            return Words("An empty FPDU: its sender is ready to receive (RFC 6581, 9.2)", fields)
        if part.fault:
            decoded = "" if part.fault == WRONG_CRC else ": not decoded, since its bytes cannot be trusted"
            return Words(f"An {fault_info(part)}, {extent}{decoded}", {**fields, "fault": part.fault})
        return Words(f"{count(part.length)} bytes outside any known {unit}", fields)
    text, an = "", "An" if unit == FPDU else "A"
    if part.fpdu is not None:
        first, last = part.fpdu.first_frame, part.fpdu.last_frame
        fields |= {"first_frame": first, "last_frame": last}
        if part.before:
            verb = "continues" if part.after else "ends"
            info = f": {fpdu_info(part.fpdu)}" if unit == FPDU else ""
            text = f"{an} {unit} {verb} here, {extent}; it is in frames {first} to {last}{info}"
        elif part.after:
            text = f"{an} {unit} begins here, {extent}; it ends in frame {last}"
    elif not part.whole:
        text = f"Part of the Request or Reply, {extent}"
    if captured < part.length:
        text += f"{'; ' if text else ''}{count(captured)} of its {count(part.length)} bytes here were captured"
    return Words(text, fields) if text else None


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
            return [value_of(inner) for inner in value]
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
