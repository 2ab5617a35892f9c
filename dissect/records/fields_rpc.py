"""The fields of the records about single RPCs, packets and frames."""

from __future__ import annotations

from .field_types import LATENCY, RPC_NAMES, RecordType, below, common, objects
from .rpc_values import RPC_VALUES

_LAYERS = "headers from the outside in: each an object with its name in layer, and fields under Scapy's names"
MESSAGE = {
    **common("first_frame", "last_frame", "first_time_ns", "last_time_ns"),
    "rdma_version": ("integer", "version of RPC-over-RDMA"),
    "rdma_procedure": ("string|null", "RDMA_MSG, RDMA_NOMSG, RDMA_ERROR, RDMA2_OPTIONAL, …"),
    "direction": ("string|null", "CALL or REPLY, as the version 2 header says; null in version 1"),
    "option": ("string|null", "name of the version 2 option; null where it has none"),
    "credits": ("integer", "credits requested by a call, granted by a reply"),
    "header_length": ("integer", "bytes of the transport header"),
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
    "operations": ("integer", "RDMA Reads or Writes that used it"),
    "late_operations": ("integer", "RDMA Writes on it that followed the reply, and do not count as transferred"),
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
    "captured": ("array of object|null", "what is there of an incomplete message; null for a complete one"),
    "captured[].offset": ("integer", "offset in the message"),
    "captured[].data": ("string", "bytes in hexadecimal"),
    "extents": ("array of object", "where each range of bytes came from"),
    "extents[].start": ("integer", "offset in the message"),
    "extents[].length": ("integer", "bytes"),
    "extents[].origin": ("string", "inline, a chunk (read chunk 1), or round-up"),
    "extents[].frame": ("integer", "frame that carried it; 0 where none did"),
    "extents[].missing": ("string|null", "why the bytes are missing; null where they are there"),
}

_JSON_TYPES = {"text": "string|null", "int": "integer|null", "uint": "integer|null", "bool": "boolean|null"}
FLAT = {one.name: (_JSON_TYPES[one.type], one.meaning) for one in RPC_VALUES}

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
    "rpc": RecordType(
        "A call and its reply, with their chunks.",
        "`rpcs`, `show --rpc`, `show --xid`, `live`",
        {
            "number": (
                "integer",
                "number of the RPC, from 1 in the order of calls, and of replies without one",
            ),
            **common("connection"),
            "direction": RPC_NAMES["direction"],
            **common("xid"),
            **{name: field for name, field in RPC_NAMES.items() if name != "direction"},
            "state": (
                "string",
                "complete; error (the reply says so); damaged (bytes are missing); undecidable (nothing is missing, "
                "but which call a reply answers, or which bytes are right); no reply; no call; duplicate reply (to "
                "an RPC that has one: counted apart from RPCs)",
            ),
            "status": ("string|null", "OK, or the name of the failure"),
            "failed": ("boolean", "the reply reports an error"),
            "contents": (
                "string",
                "whole; truncated where the capture truncated frames; missing where bytes are not in it; undecidable"
                " where all are there, but which of them the receiver took is not known",
            ),
            "call_frame": ("integer|null", "first frame of the call"),
            "reply_frame": ("integer|null", "last frame of the reply"),
            "call_bytes": ("integer", "bytes of the RPC call: inline, and transferred by Read chunks"),
            "reply_bytes": ("integer", "bytes of the RPC reply: inline, and transferred by Write and Reply chunks"),
            **objects("call", "object|null", "the message with the call; null: not captured", MESSAGE),
            **objects("reply", "object|null", "the message with the reply; null: not captured", MESSAGE),
            **objects("latency", "object|null", "its time and the parts of it", LATENCY),
            "waiting_ns": (
                "integer|null",
                "from the call to the reply; without one, to the end of the connection or of the capture, which is a"
                " lower bound; null where a reply may be missing from the capture",
            ),
            **objects("chunks", "array of object", "chunks, in the order of the headers", CHUNK),
            "retransmitted_packets": ("integer", "packets (iWARP: segments) retransmitted for it"),
            "retransmission_delay_ns": ("integer", "time it waited for retransmissions"),
            "damage": ("array of string", "what is missing or malformed"),
            "notes": ("array of string", "what else is worth knowing"),
            "path": ("string|null", "path of the file that the call names, as it was called then"),
            **FLAT,
            "credential": (
                "any|absent",
                "only from show: flavor and body of the call's credential; null without a call",
            ),
            "arguments": ("any|absent", "only from show: the arguments, see above; null where there are none"),
            "arguments_problem": (
                "string|null|absent",
                "only from show: why not all of the call is in arguments; null where all is",
            ),
            "results": ("any|absent", "only from show: the results, see above; null where there are none"),
            "results_problem": (
                "string|null|absent",
                "only from show: why not all of the reply is in results; null where all is",
            ),
            **objects("call_message", "object|null|absent", "only with --full: the RPC call's bytes", REASSEMBLED),
            **objects("reply_message", "object|null|absent", "only with --full: the RPC reply's bytes", REASSEMBLED),
        },
    ),
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
