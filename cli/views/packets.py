"""One line per packet, in the columns that tshark has."""

from __future__ import annotations

from types import SimpleNamespace

from rdmascope.dissect.connection import Connection
from rdmascope.dissect.frames import Bytes
from rdmascope.dissect.header import decode_header
from rdmascope.dissect.layers import opcodes
from rdmascope.dissect.messages import ERROR_NAMES, PROCEDURE_NAMES, RDMA_ERROR, Message, TransportHeader
from rdmascope.dissect.onc.header import call_header, message_type
from rdmascope.dissect.onc.programs import procedure_name, program_name
from rdmascope.dissect.packets import FLAG_ACK_REQUEST, FLAG_SOLICITED
from rdmascope.dissect.rc.cm import CMMessage, read_cm
from rdmascope.dissect.rpcs import Rpc

from ..names import procedure_label
from ..units import count, plural, seconds, size

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

PROTOCOL_STYLES = {"RRoCE": "", "RPCoRDMA": "cyan", "NFS": "green", "NFS_CB": "magenta"}

Shown = tuple[str, str]
"""Protocol and info column."""


def header_line() -> str:
    return f"{'No.':>7} {'Time':>12} {'Source':>15}   {'Destination':<15} {'Protocol':<8} {'Length':>6} Info"


def packet_line(packet: SimpleNamespace, source: str, destination: str, first_time: int, shown: Shown) -> str:
    protocol, info = shown
    when = seconds(packet.time - first_time)
    return f"{packet.frame:>7} {when:>12} {source:>15} → {destination:<15} {protocol:<8} {packet.wire:>6} {info}"


def call_shown(rpc: Rpc) -> Shown:
    assert rpc.call is not None
    reply = f" (Reply In {rpc.reply.frame})" if rpc.reply else ""
    return _rpc_shown(rpc, rpc.call, f"Call{reply}")


def reply_shown(rpc: Rpc) -> Shown:
    assert rpc.reply is not None
    call = f" (Call In {rpc.call.frame})" if rpc.call else ""
    status = f" {rpc.status}" if rpc.status and rpc.status != "OK" else ""
    return _rpc_shown(rpc, rpc.reply, f"Reply{call}{status}")


def _rpc_shown(rpc: Rpc, message: Message, what: str) -> Shown:
    if rpc.program is None or message.header.procedure == RDMA_ERROR:
        return "RPCoRDMA", f"{transport_info(message.header)}; RPC {rpc.number} {what}"
    version = f"V{rpc.version}" + ("" if rpc.minor_version is None else f".{rpc.minor_version}")
    name = procedure_label(rpc.name, rpc.operations, full=True)
    info = f"{version} {name} {what}; RPC {rpc.number}; {transport_info(message.header)}"
    return program_name(rpc.program), info


def transport_info(header: TransportHeader) -> str:
    """'RDMA_MSG xid=0x8d2f4a01 credits=128, 1 Read chunk of 64.0 KiB'."""
    number = header.procedure
    name = "RPC-over-RDMA" if number is None else PROCEDURE_NAMES.get(number, f"procedure {number}")
    parts = [f"{name} xid={header.xid:#010x}"]
    if header.credits is not None:
        parts[0] += f" credits={header.credits}"
    for chunks, kind in ((header.reads, "Read chunk"), (header.writes, "Write chunk")):
        if chunks:
            total = sum(chunk.length for chunk in chunks)
            parts.append(f"{plural(len(chunks), kind)} of {size(total)}")
    if header.reply is not None:
        parts.append(f"Reply chunk of {size(header.reply.length)}")
    if header.error is not None:
        parts.append(ERROR_NAMES.get(header.error, f"error {header.error}"))
    if header.problem:
        parts.append(f"[{header.problem}]")
    return ", ".join(parts)


def alone_shown(data: Bytes, packet: SimpleNamespace) -> Shown:
    """A message in one packet whose RPC is not known (yet)."""
    start, end = packet.payload, packet.payload + packet.captured
    header = decode_header(data, start, end, packet.length)
    info = transport_info(header)
    body = start + header.length
    if header.procedure is not None and not header.problem and message_type(data, body, end) == 0:
        call = call_header(data, body, end)
        if call is not None:
            name = procedure_name(call.program, call.version, call.procedure)
            return program_name(call.program), f"V{call.version} {name} Call; {info}"
    return "RPCoRDMA", info


def packet_info(data: Bytes, packet: SimpleNamespace, connection: Connection | None, use: str) -> str:
    """What the transport headers say; ``use`` says what the operation is for, where that is known."""
    opcode = packet.opcode
    name = opcodes.opcode_name(opcode)
    if opcodes.HAS_DETH[opcode] and packet.dest_qp == GENERAL_SERVICES_QP:
        message = read_cm(data, packet.payload, packet.payload + packet.captured)
        if message is not None:
            return _cm_info(message)
    info = f"{name} QP={packet.dest_qp:#08x} PSN={packet.psn}"
    if not packet.headers:
        info += " [headers cut by the capture]"
    if opcodes.HAS_RETH[opcode]:
        info += f" va={packet.va:#x} R_key={packet.r_key:#010x} length={count(packet.dma_length)}"
    elif opcodes.HAS_ATOMICETH[opcode]:
        info += f" va={packet.va:#x} R_key={packet.r_key:#010x}"
    if opcodes.IS_ACKNOWLEDGE[opcode]:
        info += f" {opcodes.syndrome_name(packet.syndrome)} MSN={packet.msn}"
    if opcodes.HAS_IETH[opcode]:
        info += f" invalidates {packet.immediate:#010x}"
    elif opcodes.HAS_IMMDT[opcode]:
        info += f" immediate={packet.immediate:#010x}"
    if packet.length:
        info += f" {count(packet.length)} bytes"
    flags = [
        text for flag, text in ((FLAG_ACK_REQUEST, "AckReq"), (FLAG_SOLICITED, "Solicited")) if packet.flags & flag
    ]
    if packet.ecn == 3:
        flags.append("ECN-CE")
    if flags:
        info += f" [{', '.join(flags)}]"
    if connection is not None:
        info += f" conn {connection.number}"
    return f"{info}; {use}" if use else info


def _cm_info(message: CMMessage) -> str:
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
