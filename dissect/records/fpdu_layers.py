"""What a TCP segment carries of iWARP, FPDU by FPDU, as Scapy dissects it; and words where one frame cannot tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..transport.iwarp.checks import WRONG_CRC
from ..transport.iwarp.segments import IwarpSegment, Part
from ..units import count, plural
from .segment_info import fault_info, fpdu_info


class Words(NamedTuple):
    """Between layers: what no layer shows."""

    text: str
    fields: dict[str, Any]


def mpa_layers(data: bytes, segment: IwarpSegment) -> Iterator[Any]:
    """Scapy packets of the FPDUs that begin in the segment, a Request or Reply too; ``Words`` for everything else.

    ``data``: of the whole frame.
    """
    from ..layers.fpdus import remove_markers
    from ..layers.iwarp import FPDU, MPAReply, MPARequest

    if segment.mark:
        yield Words(f"TCP: {segment.mark}", {"mark": segment.mark})
    port = None if segment.connection is None else segment.connection.service_port
    for part in segment.parts:
        start = segment.payload + part.at
        wire = data[start : start + part.length]
        if words := _words(part, len(wire)):
            yield words
        if part.before or not wire or (part.fpdu is None and part.mpa is None and part.fault != WRONG_CRC):
            continue
        if part.mpa is not None:
            yield (MPARequest if part.mpa.request else MPAReply)(wire)
            continue
        unmarked = segment.position is None
        plain, markers = (wire, []) if unmarked else remove_markers(wire, (segment.position or 0) + part.at)
        if markers:
            places = ", ".join(f"{one.at} (ULPDU_PTR {one.fpduptr})" for one in markers)
            yield Words(
                f"{plural(len(markers), 'marker')} in the FPDU, at byte {places}",
                {"markers": [one._asdict() for one in markers]},
            )
        fpdu = FPDU(plain, _underlayer=_ports(port))
        if isinstance(fpdu, FPDU):
            fpdu.sent_as(wire if markers else None, segment.crc)
        yield fpdu


def _ports(port: int | None) -> Any:
    """The ports by which the layers above know that the connection carries RPC-over-RDMA."""
    from scapy.layers.inet import TCP

    return None if port is None else TCP(dport=port)


def _words(part: Part, captured: int) -> Words | None:
    """Where the segment has not the whole of an FPDU, what there is; None where it has."""
    whole = part.before + part.length + part.after
    extent = f"{count(part.length)} of {count(whole)} bytes"
    fields: dict[str, Any] = {"bytes": part.length, "before": part.before, "after": part.after}
    if part.fpdu is None and part.mpa is None:
        if part.ready:
            return Words("An empty FPDU: its sender is ready to receive (RFC 6581, 9.2)", fields)
        if part.fault:
            decoded = "" if part.fault == WRONG_CRC else ": not decoded, since its bytes cannot be trusted"
            return Words(f"An {fault_info(part)}, {extent}{decoded}", {**fields, "fault": part.fault})
        return Words(f"{count(part.length)} bytes outside any known FPDU", fields)
    text = ""
    if part.fpdu is not None:
        first, last = part.fpdu.first_frame, part.fpdu.last_frame
        fields |= {"first_frame": first, "last_frame": last}
        if part.before:
            verb = "continues" if part.after else "ends"
            text = f"An FPDU {verb} here, {extent}; it is in frames {first} to {last}: {fpdu_info(part.fpdu)}"
        elif part.after:
            text = f"An FPDU begins here, {extent}; it ends in frame {last}"
    elif not part.whole:
        text = f"Part of the Request or Reply, {extent}"
    if captured < part.length:
        text += f"{'; ' if text else ''}{count(captured)} of its {count(part.length)} bytes here were captured"
    return Words(text, fields) if text else None
