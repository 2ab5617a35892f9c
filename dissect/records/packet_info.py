"""The protocol and the info column of a packet, in the words of tshark where it has some.

Lines for the TCP segments of iWARP connections: which FPDUs they carry, and which RPCs those are of.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from ..arrays import Bytes
from ..frames import FrameBatch
from ..layers import iwarp_codes as codes, opcodes
from ..layers.characteristics_codes import Characteristic, option_name
from ..layers.rpcrdma_codes import NO_RDMA, RDMA_ERROR, RDMA_MSG, RDMA_NOMSG, error_name, procedure_name
from ..link.fragments import TcpFragments
from ..link.locate import AddressTable, locate
from ..link.packets import FLAG_ACK_REQUEST, FLAG_SOLICITED
from ..link.tcp import ACK, CWR, ECE, FIN, PSH, RST, SYN, URG
from ..named_tuple import NamedTuple
from ..onc.rpc_header import call_head, program_name
from ..onc.summary import call_summary, path_words, reply_summary
from ..rpcrdma.analyzer import Analyzer
from ..rpcrdma.characteristics import (
    InitXch,
    OptionNoun,
    ReqXch,
    RespXch,
    UnknownOption,
    UpdXch,
    decode_option,
    selected,
)
from ..rpcrdma.conversation import Conversation, first_private_data
from ..rpcrdma.messages import Message, TransportHeader
from ..rpcrdma.negotiation import CharacteristicRequest
from ..rpcrdma.reassembly import reassembled_reply
from ..rpcrdma.rpc_table import ProcedureNames
from ..rpcrdma.rpcs import Rpc
from ..rpcrdma.transport_header import decode_header, record_header
from ..transport.iwarp.fpdus import DOUBTED, WRONG_CRC, WRONG_HEADERS, WRONG_MARKERS, ReadRequest
from ..transport.iwarp.framing import MPAFrame
from ..transport.iwarp.segments import RECORD, Fpdu, IwarpSegment, IwarpSegments, Part
from ..transport.operations import Kind
from ..transport.rc.cm import ManagementMessage
from ..units import count, plural, size
from .schema import Record, wide

MAX_LISTED = 8
"""Things of one kind that are listed."""


def listed(items: Sequence[Characteristic]) -> str:
    return limited([f"{item.name} {item.words}" for item in items]) if items else "nothing"


def limited(parts: Iterable[str]) -> str:
    listed = list(parts)
    more = [f"… {len(listed) - MAX_LISTED} more"] if len(listed) > MAX_LISTED else []
    return ", ".join(listed[:MAX_LISTED] + more)


def option_words(header: TransportHeader, request: CharacteristicRequest | None = None) -> str:
    """'ROPT_INITXCH: Receive Buffer Size 8192'; ``request`` is what a ROPT_RESPXCH answers."""
    name = option_name(header.option)
    if header.option is None:
        return name
    noun = decode_option(header.option, header.optinfo, header.truncated)
    parts = "; ".join(text for text in (f"{label}{shown}" for label, shown in option_parts(noun, request)) if text)
    problem = f" [{noun.problem}]" if noun.problem else ""
    return f"{name}{f': {parts}' if parts else ''}{problem}"


def option_parts(noun: OptionNoun, request: CharacteristicRequest | None) -> Iterator[tuple[str, str]]:
    """Labels and values of an option."""
    if isinstance(noun, InitXch):
        yield "", listed(noun.start)
        if noun.nochange:
            yield "not expected to change ", limited(selected(noun.nochange, noun.start))
    elif isinstance(noun, ReqXch):
        yield "requests ", listed(noun.want)
    elif isinstance(noun, RespXch):
        for label, subset in (("done ", noun.done), ("rejected ", noun.rejected), ("pending ", noun.pending)):
            if subset:
                names = selected(subset, request.want) if request else [f"position {at}" for at in sorted(subset)]
                yield label, limited(names)
    elif isinstance(noun, UpdXch):
        if noun.now is not None:
            yield "", listed([noun.now])
        if noun.pending_clear is not None:
            yield "", "no longer pending" if noun.pending_clear else "changes stay pending"
    elif isinstance(noun, UnknownOption):
        yield "", f"{plural(len(noun.data), 'byte')} {noun.data[:16].hex()}{'…' if len(noun.data) > 16 else ''}"


GENERAL_SERVICES_QP = 1

CM_NAMES = {
    "REQ": "ConnectRequest",
    "REP": "ConnectReply",
    "RTU": "ReadyToUse",
    "REJ": "ConnectReject",
    "MRA": "MessageReceiptAck",
    "DREQ": "DisconnectRequest",
    "DREP": "DisconnectReply",
    "LAP": "LoadAlternatePath",
    "APR": "AlternatePathResponse",
    "SIDR_REQ": "ServiceIDResolutionRequest",
    "SIDR_REP": "ServiceIDResolutionReply",
}

PROTOCOLS = "RRoCE", "RoCE", "InfiniBand"
"""What tshark calls the transports, by their code."""

IS_ONLY: list[bool] = opcodes.IS_ONLY.tolist()
BEGINS_SEND: list[bool] = (opcodes.IS_SEND & (opcodes.IS_ONLY | opcodes.IS_FIRST)).tolist()
HAS_DETH: list[bool] = opcodes.HAS_DETH.tolist()

Shown = tuple[str, str]
"""Protocol and info column."""


class InfoTemplate(NamedTuple):
    """The info columns of packets that are alike but for some fields."""

    texts: tuple[str, ...]
    """Before the first field, between the fields, and behind the last."""
    fields: tuple[str, ...]
    """Names of PACKET columns."""


def call_shown(rpc: Rpc, path: str | None = None) -> Shown:
    """``path``: of what it names."""
    message = rpc.call
    assert message is not None
    summary = ""
    if message.header.procedure == RDMA_MSG:
        summary = call_summary(message.data, message.start, message.end, message.header.reduced, path)
    reply = f" (Reply In {rpc.reply.frame})" if rpc.reply else ""
    return _rpc_shown(rpc, message, summary or title_of(rpc, "Call") + path_words(path), reply)


def reply_shown(rpc: Rpc, path: str | None = None) -> Shown:
    """``path``: of what its call names."""
    message = rpc.reply
    assert message is not None
    call_in = f" (Call In {rpc.call.frame})" if rpc.call else ""
    return _rpc_shown(rpc, message, _reply_words(rpc, message) + path_words(path), call_in)


def long_reply_words(rpc: Rpc) -> str:
    """What the info column says of a reply through a Reply chunk, up to the path, without the program."""
    assert rpc.reply is not None
    return _reply_words(rpc, rpc.reply).removeprefix(f"{program_name(rpc.program or 0)} ")


def _reply_words(rpc: Rpc, message: Message) -> str:
    summary = ""
    known = rpc.program is not None and rpc.version is not None and rpc.procedure is not None
    data, start, end = message.data, message.start, message.end
    if message.header.procedure == RDMA_NOMSG:
        whole = reassembled_reply(rpc)
        data = memoryview(whole.prefix if whole is not None else b"")
        start, end = 0, len(data)
    if known and message.header.procedure in (RDMA_MSG, RDMA_NOMSG):
        call = rpc.call and call_head(rpc.call.data, rpc.call.start, rpc.call.end)
        summary = reply_summary(
            rpc.program or 0,
            rpc.version or 0,
            rpc.procedure or 0,
            data,
            start,
            end,
            [chunk.returned or 0 for chunk in rpc.chunks if chunk.kind == "write"],
            rpc.minor_version,
            call[3] if call else None,
            _arguments(rpc, call[4]) if call and call[4] else None,
        )
    status = f" {rpc.status}" if not summary and rpc.status not in ("", "OK") else ""
    return (summary or title_of(rpc, "Reply")) + status


def _arguments(rpc: Rpc, body: int) -> memoryview | None:
    """``body``: their offset in the message; None where they are in a chunk."""
    message = rpc.call
    inline = message is not None and message.header.procedure == RDMA_MSG
    return memoryview(message.data)[message.start + body : message.end] if message is not None and inline else None


def title_of(rpc: Rpc | ProcedureNames, what: str) -> str:
    """'NFS V4.2 COMPOUND Reply SEQUENCE | PUTFH | READ'."""
    if rpc.program is None:
        return what
    version = f"V{rpc.version}" + ("" if rpc.minor_version is None else f".{rpc.minor_version}")
    operations = f" {' | '.join(rpc.operations)}" if rpc.operations else ""
    name = f"{rpc.name} " if rpc.name else ""
    return f"{program_name(rpc.program)} {version} {name}{what}{operations}"


def _rpc_shown(rpc: Rpc, message: Message, summary: str, other: str) -> Shown:
    protocol = "RPCoRDMA"
    if rpc.program is not None and message.header.procedure != RDMA_ERROR:
        protocol = program_name(rpc.program)
        summary = summary.removeprefix(f"{protocol} ")
    return protocol, f"{summary}{other}; RPC {rpc.number}; {transport_info(message.header)}"


def transport_info(header: TransportHeader, request: CharacteristicRequest | None = None) -> str:
    """'RDMA_MSG xid=0x8d2f4a01 credits=128, 1 Read chunk of 64.0 KiB'; ``request`` is what an option answers."""
    name = procedure_name(header.version, header.procedure) or "RPC-over-RDMA"
    parts = [f"xid={header.xid:#010x}" if header.version == NO_RDMA else f"{name} xid={header.xid:#010x}"]
    if header.credits is not None:
        parts[0] += f" credits={header.credits}"
    for chunks, kind in ((header.reads, "Read chunk"), (header.writes, "Write chunk")):
        if chunks:
            total = sum(chunk.length for chunk in chunks)
            parts.append(f"{plural(len(chunks), kind)} of {size(total)}")
    if header.reply is not None:
        parts.append(f"Reply chunk of {size(header.reply.length)}")
    if header.error is not None:
        parts.append(error_name(header.version, header.error))
        if header.supported is not None:
            parts[-1] += " {}..{}".format(*header.supported)
    if header.option is not None:
        parts.append(option_words(header, request))
    if header.problem:
        parts.append(f"[{header.problem}]")
    return ", ".join(parts)


def alone_shown(
    data: Bytes | memoryview, start: int, end: int, length: int, frame: int, conversation: Conversation
) -> Shown:
    """A message in one packet, ``length`` bytes on the wire, whose RPC is not known (yet)."""
    rdma = conversation.connection.rdma
    header = decode_header(data, start, end, length) if rdma else record_header(data, start, end)
    info = transport_info(header, conversation.negotiation.answered_by(frame))
    body = start + header.length
    if header.procedure == RDMA_MSG and not header.problem:
        call = call_head(data, body, end)
        summary = call_summary(data, body, end, header.reduced)
        if call is not None and summary:
            protocol = program_name(call[0])
            return protocol, f"{summary.removeprefix(protocol + ' ')}; {info}"
    return "RPCoRDMA" if rdma else RPC, info


def info_template(packet: SimpleNamespace, conversation: Conversation | None) -> InfoTemplate:
    """What the info column of a packet has in common with those of packets like it."""
    opcode = packet.opcode
    texts = [f"{opcodes.opcode_name(opcode)} QP={packet.dest_qp:#08x} PSN="]
    fields = []

    def field(name: str, before: str = "") -> None:
        texts[-1] += before
        fields.append(name)
        texts.append("")

    field("psn")
    if not packet.headers:
        texts[-1] += " [headers truncated by the capture]"
    if opcodes.HAS_RETH[opcode] or opcodes.HAS_ATOMICETH[opcode]:
        field("va", " va=0x")
        field("r_key", " R_key=0x")
    if opcodes.HAS_RETH[opcode]:
        field("dma_length", " length=")
    if opcodes.IS_ACKNOWLEDGE[opcode]:
        field("msn", f" {opcodes.syndrome_name(packet.syndrome)} MSN=")
    if opcodes.HAS_IETH[opcode]:
        field("immediate", " invalidates 0x")
    elif opcodes.HAS_IMMDT[opcode]:
        field("immediate", " immediate=0x")
    if packet.length:
        field("length", " ")
        texts[-1] = " bytes"
    flags = [
        text for flag, text in ((FLAG_ACK_REQUEST, "AckReq"), (FLAG_SOLICITED, "Solicited")) if packet.flags & flag
    ]
    if packet.ecn == 3:
        flags.append("ECN-CE")
    if flags:
        texts[-1] += f" [{', '.join(flags)}]"
    if conversation is not None:
        texts[-1] += f" conn {conversation.connection.number}"
        if conversation.protocol_name:
            texts[-1] += f", {conversation.protocol_name}"
    return InfoTemplate(tuple(texts), tuple(fields))


def management_info(message: ManagementMessage) -> str:
    """The info column of a CM message."""
    info = f"CM: {CM_NAMES.get(message.kind, message.kind)}"
    if message.local_qpn is not None:
        info += f" QP={message.local_qpn:#08x}"
    if message.start_psn is not None:
        info += f" PSN={message.start_psn}"
    if message.service_port is not None:
        info += f" port={message.service_port}"
    if message.reason_name:
        info += f" {message.reason_name}"
    return info


TCP, MPA, DDP, RPC = "TCP", "MPA", "DDP/RDMA", "RPC"
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
    ranked = [name for name in names if name not in (TCP, MPA, DDP, RPC, "RPCoRDMA")]
    protocol = next((name for name in (*ranked, "RPCoRDMA", RPC, MPA, DDP) if name in names), TCP)
    ends = [word for flag, word in ((FIN, "FIN"), (RST, "RST"), (SYN, "SYN")) if segment.flags & flag]
    info = " | ".join(info for _, info in shown) + (f" [{', '.join(ends)}]" if ends else "")
    return protocol, f"{mark}{info} conn {segment.connection.number}"


def tcp_info(segment: IwarpSegment) -> str:
    """'42162 → 20049 [ACK] Seq=877 Ack=885 Win=61952 Len=0', as tshark has it."""
    flags = ", ".join(name for flag, name in FLAGS.items() if segment.flags & flag) or "none"
    info = f"{segment.source_port} → {segment.destination_port} [{flags}] Seq={segment.relative_seq}"
    if segment.relative_ack is not None:
        info += f" Ack={segment.relative_ack}"
    info += f" Win={segment.window}" + ("" if segment.scaled else " (unscaled)") + f" Len={segment.length}"
    return f"{info} conn {segment.connection.number}"


def part_shown(part: Part, segment: IwarpSegment, owner: Owner) -> Shown:
    if part.mpa is not None:
        return MPA, mpa_info(part.mpa) + extent(part, "it")
    if part.fault:
        return MPA, fault_info(part) + extent(part, "it")
    if part.ready:
        return MPA, f"empty FPDU: ready to receive{extent(part, 'it')}"
    if part.fpdu is None:
        return TCP, f"{count(part.length)} bytes outside any known {segment.unit}"
    message, use = owner(part.fpdu)
    where = extent(part, f"the {segment.unit}")
    if message is not None and not part.after:
        protocol, info = message
        return protocol, info + where
    if segment.unit == RECORD:
        return RPC, f"record of {count(part.fpdu.length)} bytes{where}" + (f"; {use}" if use else "")
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


MAX_KEPT = 1 << 16
"""Messages and transfers of which it is remembered what RPC they are of."""


class _Use(NamedTuple):
    """Memory that an RPC moves data through."""

    start: int
    end: int
    text: str
    rpc: int


class SegmentLines:
    """Feed the analyzer, give it the RPCs that gave, then ask for the lines of a batch."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._addresses = AddressTable()
        self._fragments = TcpFragments()
        self._segments = IwarpSegments()
        self.listen = self._segments.listen
        """Listens to the FPDUs of all connections."""
        self._sends: OrderedDict[tuple[int, int, int], tuple[Shown, int]] = OrderedDict()
        """By connection, endpoint and message sequence number."""
        self._reads: OrderedDict[tuple[int, int, int], tuple[str, int]] = OrderedDict()
        """RDMA Read Requests, in the same way."""
        self._writes: OrderedDict[tuple[int, int, int], list[_Use]] = OrderedDict()
        """By connection, endpoint and STag."""
        self._sinks: OrderedDict[tuple[int, int, int], _Use] = OrderedDict()
        """Where RDMA Read Responses go to: by connection, endpoint that sends them, and STag."""

    def note(self, rpcs: Iterable[tuple[Rpc, str | None]]) -> None:
        """Remember which FPDUs RPCs, or calls, are in; with the paths of what they name."""
        for rpc, path in rpcs:
            number = rpc.connection.number
            if rpc.call is not None:
                self._sends[_sent(number, rpc.call)] = call_shown(rpc, path), rpc.number
            if rpc.reply is not None:
                self._sends[_sent(number, rpc.reply)] = reply_shown(rpc, path), rpc.number
            for chunk in rpc.chunks:
                text = f"RPC {rpc.number} {chunk.kind} chunk"
                for operation in (operation for use in chunk.segments for operation in use.operations):
                    if operation.kind is Kind.READ:
                        self._reads[number, operation.initiator, operation.psn] = text, rpc.number
                        continue
                    end = operation.address + operation.length
                    uses = self._writes.setdefault((number, operation.initiator, operation.handle), [])
                    uses.append(_Use(operation.address, end, text, rpc.number))
        kept: OrderedDict[Any, Any]
        for kept in (self._sends, self._reads, self._writes, self._sinks):
            while len(kept) > MAX_KEPT:
                kept.popitem(last=False)

    def lines(
        self, batch: FrameBatch, first: int, last: int
    ) -> Iterator[tuple[IwarpSegment, str, str, tuple[int, ...]]]:
        """Segments of frames ``first`` to ``last``: protocol, info column, and the RPCs in them."""
        observer = self._analyzer.iwarp
        if observer is None:
            return
        segments = self._fragments.segments(batch, locate(batch, self._addresses), observer.addresses)
        for segment in self._segments.of(segments.batch, segments.rows, observer):
            if not first <= segment.frame <= last:
                continue
            rpcs: dict[int, None] = {}

            def owner(
                fpdu: Fpdu, segment: IwarpSegment = segment, rpcs: dict[int, None] = rpcs
            ) -> tuple[Shown | None, str]:
                return self._owner_of(fpdu, segment, rpcs)

            protocol, info = segment_shown(segment, owner)
            yield segment, protocol, info, tuple(rpcs)

    def _owner_of(self, fpdu: Fpdu, segment: IwarpSegment, rpcs: dict[int, None]) -> tuple[Shown | None, str]:
        number, sender = segment.connection.number, segment.sender
        if fpdu.opcode in codes.SENDS:
            known = self._sends.get((number, sender, fpdu.msn & 0xFFFFFF))
            if known is not None:
                shown, rpc = known
                rpcs[rpc] = None
                return (shown, "") if fpdu.last else (None, f"RPC {rpc}")
            conversation = self._analyzer.conversation(segment.connection)
            if conversation.carries_rpc and fpdu.last and not fpdu.place:
                data = fpdu.payload()
                shown = alone_shown(memoryview(data), 0, len(data), fpdu.length, fpdu.last_frame, conversation)
                return shown, ""
        elif fpdu.opcode == codes.READ_REQUEST:
            read = self._reads.get((number, sender, fpdu.msn & 0xFFFFFF))
            if read is not None:
                text, rpc = read
                rpcs[rpc] = None
                if request := fpdu.request:
                    use = _Use(request.sink_to, request.sink_to + request.length, text, rpc)
                    self._sinks[number, 1 - sender, request.sink_stag] = use
                return None, text
        elif fpdu.queue is None:
            uses = self._writes.get((number, sender, fpdu.stag), [])
            if fpdu.opcode == codes.READ_RESPONSE:
                sink = self._sinks.get((number, sender, fpdu.stag))
                uses = [sink] if sink is not None else []
            for use in uses:
                if use.start <= fpdu.place and fpdu.place + fpdu.length <= use.end:
                    rpcs[use.rpc] = None
                    return None, use.text
        return None, ""


def _sent(number: int, message: Message) -> tuple[int, int, int]:
    return number, message.operation.initiator, message.operation.psn


def segment_fields(segment: IwarpSegment, rpcs: tuple[int, ...]) -> Record:
    """A segment as JSON, beside what every packet has."""
    return {
        "connection": segment.connection.number,
        "source_port": segment.source_port,
        "destination_port": segment.destination_port,
        "seq": segment.seq,
        "ack": segment.ack,
        "flags": [name for flag, name in FLAGS.items() if segment.flags & flag],
        "window": segment.window,
        "window_scaled": segment.scaled,
        "mark": segment.mark or None,
        "rpcs": list(rpcs),
        "parts": [_part(part) for part in segment.parts],
    }


FAULTS = {
    WRONG_CRC: "wrong_crc",
    WRONG_MARKERS: "wrong_markers",
    WRONG_HEADERS: "wrong_headers",
    DOUBTED: "rejected",
}


def _what(part: Part) -> str:
    if part.mpa is not None:
        return "mpa"
    if part.fpdu is not None:
        return "fpdu"
    if part.fault:
        return FAULTS[part.fault]
    return "ready" if part.ready else "unknown"


def _part(part: Part) -> Record:
    fields: Record = {
        "offset": part.at,
        "length": part.length,
        "before": part.before,
        "after": part.after,
        "what": _what(part),
    }
    if frame := part.mpa:
        fields |= {
            "request": frame.request,
            "revision": frame.revision,
            "markers": frame.markers,
            "crc": frame.crc,
            "reject": frame.reject,
            "ird": frame.ird,
            "ord": frame.ord,
            "private_data": frame.private_data.hex(),
        }
    if fpdu := part.fpdu:
        tagged = fpdu.queue is None
        fields |= {
            "opcode": fpdu.opcode,
            "opcode_name": codes.opcode_name(fpdu.opcode),
            "last": fpdu.last,
            "ulpdu_length": fpdu.ulpdu_length,
            "payload_length": fpdu.length,
            "stag": fpdu.stag if tagged else None,
            **wide("tagged_offset", fpdu.place if tagged else None),
            "queue": fpdu.queue,
            "msn": None if tagged else fpdu.msn,
            "message_offset": None if tagged else fpdu.place,
            "invalidate": fpdu.stag if fpdu.opcode in codes.INVALIDATING else None,
            "read": _read_fields(fpdu.request) if fpdu.request else None,
            "first_frame": fpdu.first_frame,
            "last_frame": fpdu.last_frame,
        }
    return fields


def _read_fields(request: ReadRequest) -> Record:
    fields: Record = {}
    for name, value in request._asdict().items():
        fields |= wide(name, value) if name in ("sink_to", "source_to") else {name: value}
    return fields
