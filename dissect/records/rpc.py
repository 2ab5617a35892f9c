"""An RPC, its messages, chunks and contents, as a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import coded_keys
from ..layers.characteristics_codes import option_name
from ..layers.rpcrdma_codes import DIRECTION_NAMES, NO_RDMA, procedure_name
from ..onc.hashes import HashedHandle, handle_hash
from ..onc.programs import program_name
from ..onc.shapes.decode import Node
from ..onc.shapes.rpc_summary_fields import NO_FIELDS, FlatFields
from ..onc.shapes.types import (
    ADDRESS,
    BOOL,
    DATA,
    TEXT,
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
from ..text_columns import Decimal, Piece, Texts
from .schema import LATENCY, RPC_NAMES, Record, RecordType, below, common, objects, of_table, record, wide
from .table import column_of

if TYPE_CHECKING:
    from numpy.ma import MaskedArray

    from ..rpcrdma.message_trees import DecodedMessage


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")


class RpcValue(NamedTuple):
    """A value that calls name, as it stands in tables and in JSON."""

    name: str
    type: str
    """As of a ``TableColumn``."""
    meaning: str
    of: tuple[str, ...]
    """The names of what it is made of."""
    value: Callable[[FlatFields], Any]
    """None is: there is none."""
    number: bool = False
    """It is the integer that it is made of."""


_HANDLE, _STATEID, _CALLER = ("handle",), ("stateid",), ("client", "uid", "gid", "machine_name", "context")

RPC_VALUES: tuple[RpcValue, ...] = (
    RpcValue("file_handle", "text", "first file handle of the call, hexadecimal", _HANDLE,
           lambda fields: None if isinstance(fields.handle, HashedHandle) else fields.handle and fields.handle.hex()),
    RpcValue("file_handle_hash", "int", "its CRC-32, as Wireshark shows it", _HANDLE,
           lambda fields: None if fields.handle is None else handle_hash(fields.handle)),
    RpcValue("file_name", "text", "first name of a file in the call", ("name",), lambda fields: _text(fields.name)),
    RpcValue("offset_bytes", "uint", "first offset in a file: where a READ, WRITE or its like begins", ("offset",),
           lambda fields: fields.offset, number=True),
    RpcValue("count_bytes", "uint",
           "first count or length of bytes that the call asks for or brings; 2^64 - 1 is to the end of the file",
           ("count",), lambda fields: fields.count, number=True),
    RpcValue("eof", "bool", "the reply says that the file or directory ends here", ("eof",), lambda fields: fields.eof),
    RpcValue("stateid_seqid", "int", "seqid of the first stateid, of the call or else of the reply", _STATEID,
           lambda fields: fields.stateid and int.from_bytes(fields.stateid[:4])),
    RpcValue("stateid_other", "text", "the rest of that stateid, hexadecimal", _STATEID,
           lambda fields: fields.stateid and fields.stateid[4:].hex()),
    RpcValue("slot", "int", "slot of SEQUENCE or CB_SEQUENCE", ("slot",), lambda fields: fields.slot, number=True),
    RpcValue("sequence_id", "int", "sequence ID of SEQUENCE, CB_SEQUENCE or CREATE_SESSION", ("sequence",),
           lambda fields: fields.sequence, number=True),
    RpcValue("session", "text", "session, hexadecimal", ("session",),
           lambda fields: fields.session and fields.session.hex()),
    RpcValue("client_id", "text", "client ID, of the call or else of the reply, hexadecimal", _CALLER,
           lambda fields: None if fields.client is None else f"{fields.client:016x}"),
    RpcValue("user", "text", "who calls: the user ID of AUTH_SYS, or gss: and the context handle of RPCSEC_GSS",
           _CALLER, lambda fields: fields.user),
    RpcValue("uid", "int", "user ID of an AUTH_SYS credential", _CALLER, lambda fields: fields.uid),
    RpcValue("gid", "int", "group ID of an AUTH_SYS credential", _CALLER, lambda fields: fields.gid),
    RpcValue("machine_name", "text", "machine name of an AUTH_SYS credential", _CALLER,
           lambda fields: _text(fields.machine_name)),
    RpcValue("linux_operation", "text",
             "what Linux's client calls a COMPOUND with these operations, that asks for these attributes: OPEN_NOATTR, "
             "FSINFO; none where they do not tell it",
             ("linux",), lambda fields: fields.linux),
)  # fmt: skip
"""Their values are of ``FlatFields``."""


MAX_TEXTS = 1 << 15
"""That are remembered of one kind."""


def value_column(value: RpcValue, columns: Mapping[str, NDArray[np.object_]]) -> MaskedArray:
    """A value of many RPCs; ``columns`` have the names of ``FlatFields``."""
    names = value.of
    found: dict[Any, Any] = {}
    keys = list(zip(*(columns[name].tolist() for name in names), strict=True))
    for key in set(keys):
        found[key] = value.value(NO_FIELDS._replace(**dict(zip(names, key, strict=True))))
    return column_of(value.type, [found[key] for key in keys])


class ValueTexts:
    """The values of RPCs as the inside of JSON objects, from columns; what was written once is not written again.

    Args:
        encode: gives the JSON text of a value.
    """

    def __init__(self, encode: Callable[[Any], str]) -> None:
        self._encode = encode
        self._texts: dict[tuple[str, ...], dict[Any, str]] = {one.of: {} for one in RPC_VALUES}

    def of(self, columns: Mapping[str, NDArray[np.object_]]) -> Iterator[Piece]:
        """What stands in each row of columns with the names of ``FlatFields``, each value after a comma."""
        for names, texts in self._texts.items():
            values = [one for one in RPC_VALUES if one.of == names]
            if values[0].number:
                yield from self._numbers(values[0].name, columns[names[0]])
                continue
            if len(texts) > MAX_TEXTS:
                texts.clear()
            lists = [columns[name].tolist() for name in names]
            keys: Iterable[Any] = lists[0] if len(lists) == 1 else zip(*lists, strict=True)
            distinct, which = coded_keys(keys, len(lists[0]))
            at = FlatFields._fields.index(names[0])
            before, behind = NO_FIELDS[:at], NO_FIELDS[at + 1 :]
            for key in distinct:
                if key in texts:
                    continue
                if len(names) == 1:  # The same in less time: most of these are asked for.
                    fields = FlatFields._make((*before, key, *behind))
                else:
                    fields = NO_FIELDS._replace(**dict(zip(names, key, strict=True)))
                texts[key] = "".join([f',"{one.name}":{self._encode(one.value(fields))}' for one in values])
            found = [texts[key] for key in distinct]
            yield found[0] if len(found) == 1 else Texts(found, which)

    def _numbers(self, name: str, column: NDArray[np.object_]) -> Iterator[Piece]:
        null = (column == _NONE).astype(np.bool_)
        if null.all():
            yield f',"{name}":null'
            return
        yield f',"{name}":'
        some = bool(null.any())
        yield Decimal(np.where(null, 0, column).astype(np.uint64), null=null if some else None)


_NONE = np.array(None, object)


def value_fields(fields: FlatFields) -> Record:
    """What a call names, as JSON has it."""
    return {one.name: one.value(fields) for one in RPC_VALUES}


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

PHASES = ("call", "reads", "server", "writes", "reply")
"""Parts of a latency without retransmissions."""


class HostTime(NamedTuple):
    """A column of what traces of the hosts' kernels tell."""

    side: str
    field: str
    """Of ``HostTimes``."""
    words: str
    """What it is, beside its name."""
    column: str

    def value(self, rpc: Rpc) -> int | None:
        """Of one RPC."""
        found: int | None = None if rpc.host is None else getattr(rpc.host, self.field)
        return found


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

_JSON_TYPES = {"text": "string|null", "int": "integer|null", "uint": "integer|null", "bool": "boolean|null"}
FLAT = {name: field for one in RPC_VALUES for name, field in of_table(_JSON_TYPES[one.type], one.name).items()}

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
            **of_table("integer", "number", "connection"),
            **of_table("string", "direction"),
            **of_table("integer", "xid"),
            **of_table("integer|null", "time_ns"),
            **of_table("string", "client", "server"),
            **{name: field for name, field in RPC_NAMES.items() if name != "direction"},
            **of_table("string", "state"),
            **of_table("string|null", "status"),
            **of_table("boolean", "failed"),
            **of_table("string", "contents"),
            **of_table("integer|null", "call_frame", "reply_frame"),
            **of_table("integer", "call_bytes", "reply_bytes"),
            **objects("call", "object|null", "the message with the call; null: not captured", MESSAGE),
            **objects("reply", "object|null", "the message with the reply; null: not captured", MESSAGE),
            **objects("latency", "object|null", "its time and the parts of it; null for a trace, too", LATENCY),
            **of_table("integer|null", "latency_ns", *(f"{name}_ns" for name in PHASES), "waiting_ns"),
            **objects("chunks", "array of object", "chunks, in the order of the headers", CHUNK),
            **of_table("integer|null", "retransmitted_packets", "retransmission_delay_ns"),
            **of_table("integer|null|absent", *(one.column for one in HOST_TIMES)),
            **of_table("array of string", "damage", "notes"),
            **of_table("string|null", "path"),
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


def latency_fields(latency: Latency | None) -> Record | None:
    if latency is None:
        return None
    return {f"{name}_ns": value for name, value in latency._asdict().items()}


def rpc_record(rpc: Rpc, fields: FlatFields = NO_FIELDS, path: str | None = None) -> Record:
    """``path``: that the call names."""
    return {**message_record(rpc), "path": path, **value_fields(fields)}


def message_record(rpc: Rpc) -> Record:
    """The record without what the call names."""
    seen = rpc.conversation.shows
    return record(
        "rpc",
        number=rpc.number,
        connection=rpc.connection.number,
        direction="backward" if rpc.backward else "forward",
        xid=rpc.xid,
        time_ns=rpc.time,
        client=rpc.client,
        server=rpc.server,
        program=None if rpc.program is None else program_name(rpc.program),
        program_number=rpc.program,
        version=rpc.version,
        minor_version=rpc.minor_version,
        procedure=rpc.name or None,
        procedure_number=rpc.procedure,
        operations=list(rpc.operations),
        state=rpc.state,
        status=rpc.status or None,
        failed=rpc.failed,
        contents=rpc.contents,
        call_frame=rpc.call_frame or None,
        reply_frame=rpc.reply_frame or None,
        call_bytes=rpc.call_bytes,
        reply_bytes=rpc.reply_bytes,
        call=_message(rpc.call),
        reply=_message(rpc.reply),
        latency=latency_fields(rpc.latency) if not rpc.conversation.traced else None,
        latency_ns=None if rpc.latency is None else rpc.latency.total,
        **{f"{name}_ns": getattr(rpc.latency, name) if rpc.latency and seen(name) else None for name in PHASES},
        waiting_ns=rpc.waiting,
        chunks=[_chunk(chunk) for chunk in rpc.chunks],
        retransmitted_packets=rpc.retransmissions if seen("retransmission") else None,
        retransmission_delay_ns=rpc.retransmission_delay if seen("retransmission") else None,
        **({} if rpc.host is None else {one.column: one.value(rpc) for one in HOST_TIMES}),
        damage=list(rpc.damage),
        notes=list(rpc.notes),
    )


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
