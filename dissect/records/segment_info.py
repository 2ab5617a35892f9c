"""One line per TCP segment of an iWARP connection: what of MPA, DDP and RDMAP it carries, and what RPC that is."""

from __future__ import annotations

from collections.abc import Callable

from ..layers import iwarp_codes as codes
from ..link.tcp import ACK, CWR, ECE, FIN, PSH, RST, SYN, URG
from ..rpcrdma.conversation import first_private_data
from ..transport.iwarp.checks import DOUBTED, WRONG_CRC
from ..transport.iwarp.mpa import MPAFrame
from ..transport.iwarp.segments import Fpdu, IwarpSegment, Part
from ..units import count, size
from .packet_info import Shown

TCP, MPA, DDP = "TCP", "MPA", "DDP/RDMA"
"""What tshark calls the protocols."""

FLAGS = {FIN: "FIN", SYN: "SYN", RST: "RST", PSH: "PSH", ACK: "ACK", URG: "URG", ECE: "ECE", CWR: "CWR"}

Owner = Callable[[Fpdu], tuple[Shown | None, str]]
"""What is known of the RPC that an FPDU is of: how its message is shown where the FPDU ends it, else its use."""


def segment_shown(segment: IwarpSegment, owner: Owner) -> Shown:
    """Protocol and info column of a segment."""
    shown = [part_shown(part, segment, owner) for part in segment.parts]
    mark = f"[{segment.mark}] " if segment.mark else ""
    if not shown:
        return TCP, mark + tcp_info(segment)
    names = [protocol for protocol, _ in shown]
    ranked = [name for name in names if name not in (TCP, MPA, DDP, "RPCoRDMA")]
    protocol = next((name for name in (*ranked, "RPCoRDMA", MPA, DDP) if name in names), TCP)
    ends = [word for flag, word in ((FIN, "FIN"), (RST, "RST"), (SYN, "SYN")) if segment.flags & flag]
    info = " | ".join(info for _, info in shown) + (f" [{', '.join(ends)}]" if ends else "")
    connection = segment.connection
    return protocol, f"{mark}{info} conn {connection.number}" if connection is not None else mark + info


def tcp_info(segment: IwarpSegment) -> str:
    """'42162 → 20049 [ACK] Seq=877 Ack=885 Win=61952 Len=0', as tshark has it."""
    flags = ", ".join(name for flag, name in FLAGS.items() if segment.flags & flag) or "none"
    info = f"{segment.source_port} → {segment.destination_port} [{flags}] Seq={segment.relative_seq}"
    if segment.relative_ack is not None:
        info += f" Ack={segment.relative_ack}"
    info += f" Win={segment.window}" + ("" if segment.scaled else " (unscaled)") + f" Len={segment.length}"
    connection = segment.connection
    return info if connection is None else f"{info} conn {connection.number}"


def part_shown(part: Part, segment: IwarpSegment, owner: Owner) -> Shown:
    if part.mpa is not None:
        return MPA, mpa_info(part.mpa) + extent(part, "it")
    if part.fault:
        return MPA, fault_info(part) + extent(part, "it")
    if part.ready:
        return MPA, f"empty FPDU: ready to receive{extent(part, 'it')}"
    if part.fpdu is None:
        return TCP, f"{count(part.length)} bytes outside any known FPDU"
    message, use = owner(part.fpdu)
    where = extent(part, "the FPDU")
    if message is not None and not part.after:
        protocol, info = message
        return protocol, info + where
    info = fpdu_info(part.fpdu) + where
    return DDP, f"{info}; {use}" if use else info


def fault_info(part: Part) -> str:
    """'FPDU with a wrong CRC32C'; 'FPDU rejected: …' where another one is at fault."""
    if part.fault == DOUBTED:
        return f"FPDU rejected: {part.fault}"
    return f"FPDU with {'a ' if part.fault == WRONG_CRC else ''}{part.fault}"


def extent(part: Part, what: str) -> str:
    """Words for a part that is not the whole; '' where it is."""
    if part.whole:
        return ""
    whole = part.before + part.length + part.after
    verb = "continues" if part.before and part.after else "ends" if part.before else "begins"
    return f" ({what} {verb} here: {count(part.length)} of {count(whole)} bytes)"


def mpa_info(frame: MPAFrame) -> str:
    """'MPA Request revision 2, CRC, IRD 16, ORD 16, 8 bytes of private data: …'."""
    parts = [f"MPA {'Request' if frame.request else 'Reply'} revision {frame.revision}"]
    parts += [
        word for word, there in (("markers", frame.markers), ("CRC", frame.crc), ("reject", frame.reject)) if there
    ]
    if frame.ird is not None:
        parts.append(f"IRD {frame.ird}, ORD {frame.ord}")
    if frame.peer_to_peer:
        parts.append(f"peer-to-peer, ready by {' or '.join(frame.ready) or 'nothing'}")
    info = ", ".join(parts)
    if frame.private_data or not frame.complete:
        info += f", {count(len(frame.private_data))} bytes of private data" + ("" if frame.complete else " captured")
    if private := first_private_data(frame.private_data):
        sizes = f"sends {size(private.send_size)}, receives {size(private.receive_size)}"
        info += f" (RPC-over-RDMA: {sizes}" + (", remote invalidation)" if private.remote_invalidation else ")")
    return info


def fpdu_info(fpdu: Fpdu) -> str:
    """What the DDP and RDMAP headers say."""
    info = codes.opcode_name(fpdu.opcode)
    if fpdu.queue is None:
        info += f" STag={fpdu.stag:#010x} TO={fpdu.place:#x}"
    else:
        info += f" MSN={fpdu.msn}" + (f" MO={fpdu.place}" if fpdu.place else "")
    if fpdu.opcode in codes.INVALIDATING:
        info += f" invalidates {fpdu.stag:#010x}"
    if request := fpdu.request:
        info += f" STag={request.source_stag:#010x} TO={request.source_to:#x} length={count(request.length)}"
        return f"{info} to STag={request.sink_stag:#010x} TO={request.sink_to:#x}"
    if fpdu.opcode == codes.TERMINATE:
        body = fpdu.payload()
        return f"{info}: {codes.terminate_name(body[0] >> 4, body[0] & 15, body[1])}" if len(body) > 1 else info
    info += f" {count(fpdu.length)} bytes"
    return info if fpdu.last else f"{info}, more follows"
