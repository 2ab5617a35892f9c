"""An RPC, its messages, chunks and contents, as a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..layers.characteristics_codes import option_name
from ..layers.rpcrdma_codes import DIRECTION_NAMES, NO_RDMA, procedure_name
from ..named_tuple import NamedTuple
from ..onc.shapes.types import (
    ADDRESS,
    BOOL,
    DATA,
    TEXT,
    Node,
    XdrArray,
    XdrBitmap,
    XdrInteger,
    XdrList,
    XdrOpaque,
    XdrOptional,
    XdrSelected,
)
from ..rpcrdma.messages import Message
from ..rpcrdma.rpcs import ChunkUse, Latency, Reassembled, Rpc, SegmentUse
from .schema import LATENCY, Record, RecordType, below, common, objects, wide

if TYPE_CHECKING:
    from ..rpcrdma.message_trees import DecodedMessage


_LAYERS = "headers from the outside in: each an object with its name in layer, and fields under Scapy's names"
MESSAGE = {
    **common("first_frame", "last_frame", "first_time_ns", "last_time_ns"),
    "rdma_version": ("integer|null", "version of RPC-over-RDMA; null without RDMA"),
    "rdma_procedure": ("string|null", "RDMA_MSG, RDMA_NOMSG, RDMA_ERROR, RDMA2_OPTIONAL, …"),
    "direction": ("string|null", "CALL or REPLY, as the version 2 header says; null in version 1"),
    "option": ("string|null", "name of the version 2 option; null where it has none"),
    "credits": ("integer|null", "credits requested by a call, granted by a reply; null without RDMA"),
    "header_length": ("integer|null", "bytes of the transport header; null without RDMA"),
    "inline_length": ("integer", "bytes of the RPC message inside the Send"),
    "send_length": ("integer", "bytes of the whole Send"),
    "invalidate": ("integer|null", "handle that a Send With Invalidate revokes"),
    "problem": ("string|null", "what is wrong with the header"),
}

SEGMENT = {
    "handle": ("integer", "memory handle, R_key or STag (unsigned, 32 bits)"),
    "offset": ("integer", "offset in that memory (unsigned, 64 bits)"),
    "offset_hex": ("string", "the same in hexadecimal, 0x and 16 digits"),
    "advertised": ("integer", "bytes advertised"),
    "returned": ("integer|null", "length that the reply returned; null for Read chunks or without a reply"),
    "transferred": ("integer", "bytes that RDMA Reads or Writes transferred"),
    "operations": ("integer|null", "RDMA Reads or Writes that used it; null where a trace does not show them"),
    "late_operations": ("integer|null", "RDMA Writes on it that followed the reply, and do not count as transferred"),
}

CHUNK = {
    "kind": ("string", "read, write or reply"),
    "position": ("integer|null", "XDR position of a Read chunk"),
    "advertised": ("integer", "bytes advertised"),
    "returned": ("integer|null", "bytes that the reply says were written; null for Read chunks or without a reply"),
    "transferred": ("integer", "bytes that RDMA Reads or Writes transferred"),
    **objects("segments", "array of object", "its RDMA segments", SEGMENT),
}

REASSEMBLED = {
    "length": ("integer", "bytes of the RPC message"),
    "complete": ("boolean", "all its bytes are known"),
    "data": ("string|null", "the message in hexadecimal; null where bytes are missing"),
    "captured": ("array of object|null", "captured parts of an incomplete message; null for a complete one"),
    "captured[].offset": ("integer", "offset in the message"),
    "captured[].data": ("string", "bytes in hexadecimal"),
    "extents": ("array of object", "where each range of bytes came from"),
    "extents[].start": ("integer", "offset in the message"),
    "extents[].length": ("integer", "bytes"),
    "extents[].origin": ("string", "inline, a chunk (read chunk 1), or round-up"),
    "extents[].frame": ("integer", "frame that carried it; 0 where none did"),
    "extents[].missing": ("string|null", "why the bytes are missing; null where they are there"),
}

MESSAGES = {
    **objects("call", "object|null|absent", "only with --full: the message with the call; null: not captured", MESSAGE),
    **objects("reply", "object|null|absent", "only with --full: the same of the reply", MESSAGE),
    **objects("latency", "object|null|absent", "only with --full: latency and its parts; null for a trace, too",
              LATENCY),
    **objects("chunk_list", "array of object|absent", "only with --full: chunks, in the order of the headers", CHUNK),
    **objects("call_message", "object|null|absent", "only with show --full: the RPC call's bytes", REASSEMBLED),
    **objects("reply_message", "object|null|absent", "only with show --full: the RPC reply's bytes", REASSEMBLED),
}  # fmt: skip


class HostTime(NamedTuple):
    """A column of what traces of the hosts' kernels tell."""

    side: str
    field: str
    """The field of ``HostTimes``."""
    words: str
    """What it is, beside its name."""
    column: str

    def value(self, rpc: Rpc) -> int | None:
        """What traces say of one RPC; None where they do not know it."""
        value: int | None = None if rpc.host is None else getattr(rpc.host, self.field)
        return value


def _phases(side: str, *phases: tuple[str, str]) -> tuple[HostTime, ...]:
    return tuple(HostTime(side, field, words, f"{side}_{field}_ns") for field, words in phases)


HOST_PHASES = _phases(
    "client",
    ("queued", "for a slot, the connection, credits, registrations"),
    ("encoded", "XDR"),
    ("registered", "memory registered, header written; 0 without chunks"),
    ("posted", "Send to the adapter"),
    ("wire", "network and server"),
    ("completed", "receive handled"),
    ("invalidated", "own registrations revoked"),
    ("woken", "until the task runs"),
    ("decoded", "XDR"),
) + _phases(
    "server",
    ("received", "until queued, header decoded"),
    ("thread", "waiting for a thread of nfsd"),
    ("reads", "RDMA Reads"),
    ("executed", "but for the next"),
    ("file_system", "READ, WRITE, COMMIT"),
    ("writes", "RDMA Writes behind the reply"),
    ("sent", "until the reply's Send is complete"),
)
"""Where the time went, in order; those of a side add up to what its kernel measured."""
HOST_TIMES = (
    *HOST_PHASES,
    HostTime("server", "answered", "in all, until the reply's Send is posted", "server_answered_ns"),
    HostTime("client", "network", "part of wire that the server did not take; from traces of both hosts",
             "network_ns"),
    HostTime("client", "registration_wait", "part of queued: no memory registration was free",
             "client_registration_wait_ns"),
    HostTime("client", "failed_registrations", "how often none was free", "client_failed_registrations"),
    HostTime("client", "local_invalidations", "registrations that it had to revoke itself",
             "client_local_invalidations"),
)  # fmt: skip

FPDU = {
    "offset": ("integer", "where it starts in the segment's payload"),
    "length": ("integer", "bytes of it in this segment"),
    "before": ("integer", "bytes of it in earlier segments"),
    "after": ("integer", "bytes of it in later segments"),
    "what": (
        "string",
        "mpa (setup frame), fpdu, ready (RTR), wrong_crc, wrong_markers, wrong_headers, rejected (an FPDU in doubt)"
        " or unknown",
    ),
    "request": ("boolean|absent", "mpa: a request, not a reply"),
    "revision": ("integer|absent", "mpa: revision"),
    "markers": ("boolean|absent", "mpa: markers wanted"),
    "crc": ("boolean|absent", "mpa: CRC wanted"),
    "reject": ("boolean|absent", "mpa: the connection is rejected"),
    "ird": ("integer|null|absent", "mpa: inbound RDMA Read depth"),
    "ord": ("integer|null|absent", "mpa: outbound RDMA Read depth"),
    "private_data": ("string|absent", "mpa: private data in hexadecimal"),
    "opcode": ("integer|absent", "fpdu: RDMAP opcode"),
    "opcode_name": ("string|absent", "fpdu: name of the opcode"),
    "last": ("boolean|absent", "fpdu: the last of its message"),
    "ulpdu_length": ("integer|absent", "fpdu: bytes of the ULPDU"),
    "payload_length": ("integer|absent", "fpdu: bytes of payload"),
    "stag": ("integer|null|absent", "fpdu: STag of a tagged one (unsigned, 32 bits)"),
    "tagged_offset": ("integer|null|absent", "fpdu: offset of a tagged one (unsigned, 64 bits)"),
    "tagged_offset_hex": ("string|null|absent", "fpdu: the same in hexadecimal"),
    "queue": ("integer|null|absent", "fpdu: queue number of an untagged one"),
    "msn": ("integer|null|absent", "fpdu: message sequence number of an untagged one"),
    "message_offset": ("integer|null|absent", "fpdu: message offset of an untagged one"),
    "invalidate": ("integer|null|absent", "fpdu: STag that the Send revokes"),
    "read": ("object|null|absent", "fpdu: an RDMA Read request"),
    "read.sink_stag": ("integer", "STag that receives the data"),
    "read.sink_to": ("integer", "offset in it (unsigned, 64 bits)"),
    "read.sink_to_hex": ("string", "the same in hexadecimal"),
    "read.length": ("integer", "bytes requested"),
    "read.source_stag": ("integer", "STag that is read"),
    "read.source_to": ("integer", "offset in it (unsigned, 64 bits)"),
    "read.source_to_hex": ("string", "the same in hexadecimal"),
    "first_frame": ("integer|absent", "fpdu: frame with its first byte"),
    "last_frame": ("integer|absent", "fpdu: frame with its last byte"),
}

TYPES = {
    "packet": RecordType(
        "An RDMA packet, or a TCP segment of iWARP.",
        "`packets`",
        {
            **common("frame", "time_ns"),
            "source": ("string", "address of the sender"),
            "destination": ("string", "address of the receiver"),
            "length": ("integer", "bytes of the whole frame on the wire"),
            "protocol": ("string", "uppermost protocol, as Wireshark calls it"),
            "info": ("string", "one line about it"),
            "rpc": ("integer|null", "number of the RPC it belongs to"),
            **common("transport"),
            "opcode": ("integer|null", "BTH opcode; null with iWARP"),
            "opcode_name": ("string|null", "name of the opcode; null with iWARP"),
            "dest_qp": ("integer|null", "destination queue pair; null with iWARP"),
            "psn": ("integer|null", "packet sequence number (24 bits); null with iWARP"),
            "payload_length": ("integer", "bytes of payload"),
            "payload_captured": ("integer", "bytes of payload in the capture"),
            "segment": ("object|null", "the TCP segment; null without iWARP"),
            **below(
                "segment",
                {
                    "connection": ("integer|null", "number of the connection"),
                    "source_port": ("integer", "TCP source port"),
                    "destination_port": ("integer", "TCP destination port"),
                    "seq": ("integer", "TCP sequence number (32 bits)"),
                    "ack": ("integer", "TCP acknowledgement number (32 bits)"),
                    "flags": ("array of string", "TCP flags that are set"),
                    "window": ("integer", "receive window in bytes, scaled where window_scaled"),
                    "window_scaled": ("boolean", "the window scale is known and applied"),
                    "mark": ("string|null", "retransmission, gap before it, …"),
                    "rpcs": ("array of integer", "numbers of all RPCs it belongs to"),
                    **objects("parts", "array of object", "setup frames and FPDUs in its payload", FPDU),
                },
            ),
            "comment": ("string|absent", "comment on the frame in the capture"),
            "layers": ("array of any|absent", f"only with -V: {_LAYERS}"),
        },
    ),
    "frame": RecordType(
        "A frame with the fields of its headers.",
        "`show --frame`",
        {
            "number": ("integer", "number of the frame, from 1"),
            **common("time_ns"),
            "captured": ("integer", "bytes in the capture"),
            "original": ("integer", "bytes on the wire"),
            "rpc": ("integer|null", "number of the RPC it belongs to"),
            "rpcs": ("array of integer", "numbers of all RPCs it belongs to"),
            "layers": ("array of any", _LAYERS),
        },
    ),
}


def latency_fields(latency: Latency | None) -> Record | None:
    if latency is None:
        return None
    return {f"{name}_ns": value for name, value in latency._asdict().items()}


def full_fields(rpc: Rpc) -> Record:
    """What --full adds to the record of an RPC: its messages, the parts of its latency, its chunks."""
    return {
        "call": _message(rpc.call),
        "reply": _message(rpc.reply),
        "latency": latency_fields(rpc.latency) if not rpc.conversation.traced else None,
        "chunk_list": [_chunk(chunk) for chunk in rpc.chunks],
    }


def reassembled_fields(reassembled: Reassembled | None) -> Record | None:
    """A whole RPC message: its bytes in hexadecimal, and where each range of them came from.

    ``data`` is null where bytes are missing; then ``captured`` has what is there.
    """
    if reassembled is None:
        return None
    return {
        "length": reassembled.length,
        "complete": reassembled.complete,
        "data": reassembled.prefix.hex() if reassembled.complete else None,
        "captured": None
        if reassembled.complete
        else [{"offset": offset, "data": data.hex()} for offset, data in reassembled.pieces],
        "extents": [{**extent._asdict(), "missing": extent.missing or None} for extent in reassembled.extents],
    }


def _message(message: Message | None) -> Record | None:
    if message is None:
        return None
    operation, header = message.operation, message.header
    return {
        "first_frame": operation.first_frame,
        "last_frame": operation.last_frame,
        "first_time_ns": operation.first_time,
        "last_time_ns": operation.last_time,
        "rdma_version": None if header.version == NO_RDMA else header.version,
        "rdma_procedure": procedure_name(header.version, header.procedure) or None,
        "direction": None if header.direction is None else DIRECTION_NAMES[header.direction],
        "option": option_name(header.option) or None,
        "credits": header.credits,
        "header_length": None if header.version == NO_RDMA else header.length,
        "inline_length": message.inline_length,
        "send_length": operation.length,
        "invalidate": operation.invalidate,
        "problem": header.problem or None,
    }


def _chunk(chunk: ChunkUse) -> Record:
    return {
        "kind": chunk.kind,
        "position": chunk.position,
        "advertised": chunk.advertised,
        "returned": chunk.returned,
        "transferred": chunk.transferred,
        "segments": [_segment(use) for use in chunk.segments],
    }


def _segment(use: SegmentUse) -> Record:
    segment = use.advertised
    return {
        "handle": segment.handle,
        **wide("offset", segment.offset),
        "advertised": segment.length,
        "returned": use.returned,
        "transferred": use.transferred,
        "operations": use.used_by,
        "late_operations": None if use.used_by is None else len(use.late),
    }


def contents_fields(rpc: Rpc) -> Record:
    """What `show` adds to an rpc record."""
    from ..rpcrdma.message_trees import decoded_call, decoded_reply  # Only here: lines do without.

    call, reply = decoded_call(rpc), decoded_reply(rpc)
    header = call.tree.header if call is not None else None
    credential = header.child("cred") if header is not None else None
    return {
        "credential": None if credential is None else node_json(credential),
        "arguments": _body(call),
        "arguments_problem": _problem(call),
        "results": _body(reply),
        "results_problem": _problem(reply),
    }


def _body(message: DecodedMessage | None) -> Any:
    return node_json(message.tree.body) if message is not None and message.tree.body is not None else None


def _problem(message: DecodedMessage | None) -> str | None:
    return (message.tree.problem or None) if message is not None else "not captured"


def node_json(node: Node) -> Any:
    """A value and all below it; see docs/records.md for how types become JSON."""
    type, value = node.type, node.value
    match type:
        case XdrInteger():
            return _integer(type, value) if isinstance(value, int) else None
        case XdrOpaque() | XdrSelected():
            return _opaque(node, type if isinstance(type, XdrOpaque) else type.otherwise)
        case XdrBitmap():
            return [type.bits.get(bit, bit) for bit in value] if isinstance(value, tuple) else None
        case XdrArray() | XdrList():
            return [node_json(child) for child in node.children]
        case XdrOptional():
            return None
        case None:
            return _bytes(node)
    return {child.name: node_json(child) for child in node.children}


def _integer(type: XdrInteger, value: int) -> int | bool | str:
    if type is BOOL and value in type.values:
        return bool(value)
    return type.values.get(value, value)


def _opaque(node: Node, type: XdrOpaque) -> Any:
    if node.children:
        inside = [node_json(child) for child in node.children]
        return inside[0] if len(inside) == 1 else {child.name: node_json(child) for child in node.children}
    if not isinstance(node.value, memoryview) or type.form == DATA:
        return _bytes(node)
    return bytes(node.value).decode("utf-8", "backslashreplace") if type.form in (TEXT, ADDRESS) else node.value.hex()


def _bytes(node: Node) -> Record:
    """Where bytes stand that are not repeated here."""
    length = len(node.value) if isinstance(node.value, memoryview) else node.length
    return {"offset": node.offset, "length": length, "note": node.note or None}
