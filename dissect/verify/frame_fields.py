"""The fields of one frame by Wireshark's names: from our decoders, and from tshark; and where tshark is known to be
wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s
from ..layers import opcodes
from ..layers.cm_codes import CM_LAYERS
from ..layers.columns import compiled
from ..layers.iwarp_codes import DDP_LAYER, INVALIDATING, LLP_LAYER, OPCODES, RDMA_LAYER, TERMINATE
from ..layers.rpcrdma_codes import PROCEDURE_NAMES, RDMA_DONE, RDMA_ERROR, RDMA_NOMSG
from ..link.packets import PacketBatch
from ..named_tuple import NamedTuple
from ..rpcrdma.messages import Message, TransportHeader
from ..rpcrdma.outcome import OTHER_XID
from ..rpcrdma.rpcs import Rpc
from ..serial import PSN
from ..transport.iwarp.fpdus import TAGGED_HEADER, UNTAGGED_HEADER, Fpdus
from ..transport.iwarp.framing import MPAFrame
from ..transport.operations import Operation
from ..transport.rc.cm import MAD_SIZE, mad_values

Values = tuple[int, ...]
"""One field of a frame, every occurrence in order."""
Fields = dict[str, Values]

PACKET_FIELDS: dict[str, dict[str, str]] = {
    "BTH": {
        "opcode": "infiniband.bth.opcode",
        "se": "infiniband.bth.se",
        "m": "infiniband.bth.m",
        "padcnt": "infiniband.bth.padcnt",
        "tver": "infiniband.bth.tver",
        "p_key": "infiniband.bth.p_key",
        "dest_qp": "infiniband.bth.destqp",
        "a": "infiniband.bth.a",
        "psn": "infiniband.bth.psn",
    },
    "RETH": {
        "va": "infiniband.reth.va",
        "r_key": "infiniband.reth.r_key",
        "dma_len": "infiniband.reth.dmalen",
    },
    "AtomicETH": {
        "va": "infiniband.reth.va",
        "r_key": "infiniband.reth.r_key",
        "swap_data": "infiniband.atomiceth.swapdt",
        "compare_data": "infiniband.atomiceth.cmpdt",
    },
    "AtomicAckETH": {"original_data": "infiniband.atomicacketh.origremdt"},
    "AETH": {"syndrome": "infiniband.aeth.syndrome", "msn": "infiniband.aeth.msn"},
    "DETH": {"q_key": "infiniband.deth.q_key", "src_qp": "infiniband.deth.srcqp"},
    "ImmDt": {"immediate": "infiniband.immdt"},
    "IETH": {"r_key": "infiniband.ieth"},
}
"""Header -> {its field: Wireshark's name}."""

MAD_FIELDS = tuple(
    f"infiniband.mad.{name}"
    for name in (
        "baseversion",
        "mgmtclass",
        "classversion",
        "method",
        "status",
        "classspecific",
        "transactionid",
        "attributeid",
        "attributemodifier",
    )
)

_CM_NAMES = {"REQ": "req", "REP": "rep", "REJ": "rej", "RTU": "rtu", "DREQ": "dreq", "DREP": "drsp"}
"""Wireshark's names of the CM messages that it shows field by field."""
_CM_LEFT_OUT = ("reserved", "vendorid", "sapsupported", "ari", "remoteqpneecn", "flowlabel", "pktrate")
"""Fields that Wireshark does not show, or takes from the wrong bits."""


def _cm_name(kind: str, field: str) -> str:
    """Wireshark's name of a field of a CM message; the communication ID of REQ and REP has that of the message."""
    message = f"infiniband.cm.{_CM_NAMES[kind]}"
    return message if kind in ("REQ", "REP") and field == "localcommid" else f"{message}.{field}"


CM_FIELDS = {
    kind: {
        name: _cm_name(kind, name)
        for name, column in compiled(layer).columns.items()
        if column.bits <= 64 and not any(part in name for part in _CM_LEFT_OUT)
    }
    for kind, layer in CM_LAYERS.values()
    if kind in _CM_NAMES
}
"""CM message -> {its field: Wireshark's name}."""

MPA_FIELDS = (
    "iwarp_mpa.rev",
    "iwarp_mpa.marker_flag",
    "iwarp_mpa.crc_flag",
    "iwarp_mpa.rej_flag",
    "iwarp_mpa.pdlength",
)
"""Fields of a Request or Reply."""

FPDU_FIELDS = (
    "iwarp_mpa.ulpdulength",
    "iwarp_ddp.tagged_flag",
    "iwarp_ddp.last_flag",
    "iwarp_ddp.stag",
    "iwarp_ddp.tagged_offset",
    "iwarp_ddp.qn",
    "iwarp_ddp.msn",
    "iwarp_ddp.mo",
    "iwarp_rdma.opcode",
    "iwarp_rdma.inval_stag",
    "iwarp_rdma.sinkstag",
    "iwarp_rdma.sinkto",
    "iwarp_rdma.rdmardsz",
    "iwarp_rdma.srcstag",
    "iwarp_rdma.srcto",
    "iwarp_rdma.term_layer",
    "iwarp_rdma.term_etype_rdma",
    "iwarp_rdma.term_etype_ddp",
    "iwarp_rdma.term_etype_llp",
    "iwarp_rdma.term_errcode_rdma",
    "iwarp_rdma.term_errcode_ddp_tagged",
    "iwarp_rdma.term_errcode_ddp_untagged",
    "iwarp_rdma.term_errcode_llp",
    "iwarp_rdma.term_hdrct_m",
)

PACKET_NAMES = (
    *dict.fromkeys(name for header in PACKET_FIELDS.values() for name in header.values()),
    *MAD_FIELDS,
    *dict.fromkeys(name for fields in CM_FIELDS.values() for name in fields.values()),
    *MPA_FIELDS,
    *FPDU_FIELDS,
)
"""Fields of every header below RPC-over-RDMA."""

HEADER_FIELDS = (
    "rpcordma.xid",
    "rpcordma.version",
    "rpcordma.flow_control",
    "rpcordma.msg_type",
    "rpcordma.reads_count",
    "rpcordma.writes_count",
    "rpcordma.reply_count",
    "rpcordma.position",
    "rpcordma.segment_count",
    "rpcordma.rdma_handle",
    "rpcordma.rdma_length",
    "rpcordma.rdma_offset",
    "rpcordma.errcode",
    "rpcordma.vers_low",
    "rpcordma.vers_high",
)

RPC_FIELDS = (
    "rpc.xid",
    "rpc.msgtyp",
    "rpc.program",
    "rpc.programversion",
    "rpc.procedure",
    "rpc.reqframe",
    "rpc.repframe",
    "rpc.time",
)

FRAME = "frame.number"

ASKED = (FRAME, *PACKET_NAMES, *HEADER_FIELDS, *RPC_FIELDS)
"""The fields asked of Wireshark, in the order in which ``tshark_fields`` takes them."""

DISPLAY_FILTER = "infiniband || iwarp_mpa"
"""Selects the frames for which Wireshark is asked."""

_MANAGEMENT = frozenset((*MAD_FIELDS, *(name for fields in CM_FIELDS.values() for name in fields.values())))

GENERAL_SERVICES = 1
"""Queue pairs 0 and 1 take Management Datagrams (IBA 3.9)."""

ONCE = frozenset({"infiniband.immdt", "infiniband.ieth"})
"""Fields that Wireshark gives twice, as a header and as its field."""


FIXED_WORDS = 16
"""Bytes of an RPC-over-RDMA header that all versions and procedures share (RFC 8166, 4.2)."""


class FrameFields(NamedTuple):
    """What was found in one frame."""

    frame: int
    fields: Fields


# From our decoders


class PacketBlock(NamedTuple):
    """The packet headers of one batch."""

    frames: Int64s
    columns: list[tuple[str, Int64s, NDArray[np.unsignedinteger]]]
    """Wireshark's field name, the rows that have it, its values there."""

    def frame_fields(self) -> Iterator[FrameFields]:
        by_row: list[Fields] = [{} for _ in range(len(self.frames))]
        for name, rows, values in self.columns:
            for row, value in zip(rows.tolist(), values.tolist(), strict=True):
                by_row[row][name] = (value,)
        yield from map(FrameFields, self.frames.tolist(), by_row)


def packet_block(packets: PacketBatch) -> PacketBlock:
    """The Base Transport Headers and extended headers of a batch, as far as captured."""
    rows = packets.rows
    opcode = rows["opcode"]
    available = rows["payload"] - rows["bth"] + rows["captured"]
    columns: list[tuple[str, Int64s, NDArray[np.unsignedinteger]]] = []
    for header, names in PACKET_FIELDS.items():
        extract = compiled(header)
        if header == "BTH":
            where, places = np.arange(len(rows)), rows["bth"]
        else:
            offsets = opcodes.OFFSET[header][opcode]
            where = np.flatnonzero((offsets > 0) & (available >= offsets + extract.size))
            places = rows["bth"][where] + offsets[where]
        values = extract(packets.data, places, names) if len(where) else {}
        columns += [(names[name], where, column) for name, column in values.items()]
    columns += _management(packets)
    return PacketBlock(rows["frame"].astype(np.int64), columns)


def _management(packets: PacketBatch) -> list[tuple[str, Int64s, NDArray[np.unsignedinteger]]]:
    """The Management Datagrams of a batch, and the CM messages in them."""
    rows = packets.rows
    by_name: dict[str, list[tuple[int, int]]] = {}
    for index in np.flatnonzero(opcodes.HAS_DETH[rows["opcode"]] & (rows["dest_qp"] <= GENERAL_SERVICES)).tolist():
        start, captured = int(rows["payload"][index]), int(rows["captured"][index])
        header, kind, values = mad_values(packets.data[start : start + min(captured, MAD_SIZE)].tobytes())
        named = {f"infiniband.mad.{name}": value for name, value in header.items()}
        named |= {name: values[field] for field, name in CM_FIELDS.get(kind, {}).items()}
        for name, value in named.items():
            if value is not None:
                by_name.setdefault(name, []).append((index, value))
    return [
        (name, np.array([index for index, _ in pairs]), np.array([value for _, value in pairs], np.uint64))
        for name, pairs in by_name.items()
        if name in _MANAGEMENT
    ]


def header_fields(header: TransportHeader) -> Fields:
    """The fields of an RPC-over-RDMA header by Wireshark's names."""
    fields: Fields = {
        "rpcordma.xid": (header.xid,),
        "rpcordma.version": (header.version,),
        "rpcordma.flow_control": (header.credits or 0,),
        "rpcordma.msg_type": (header.procedure or 0,),
    }
    if header.procedure == RDMA_ERROR:
        if header.error is not None:
            fields["rpcordma.errcode"] = (header.error,)
        if header.supported is not None:
            fields["rpcordma.vers_low"], fields["rpcordma.vers_high"] = ((version,) for version in header.supported)
        return fields
    if header.procedure == RDMA_DONE and header.version == 1:
        return fields  # An RDMA_DONE has no chunk lists.
    reads = [(chunk.position, segment) for chunk in header.reads for segment in chunk.segments]
    arrays = [*header.writes, *((header.reply,) if header.reply else ())]
    segments = [segment for _, segment in reads] + [segment for array in arrays for segment in array.segments]
    lists: Fields = {
        "rpcordma.position": tuple(position for position, _ in reads),
        "rpcordma.segment_count": tuple(len(array.segments) for array in arrays),
        "rpcordma.rdma_handle": tuple(segment.handle for segment in segments),
        "rpcordma.rdma_length": tuple(segment.length for segment in segments),
        "rpcordma.rdma_offset": tuple(segment.offset for segment in segments),
    }
    counts: Fields = {
        "rpcordma.reads_count": (len(reads),),
        "rpcordma.writes_count": (len(header.writes),),
        "rpcordma.reply_count": (int(header.reply is not None),),
    }
    return fields | counts | {name: values for name, values in lists.items() if values}


def fpdu_fields(fpdus: Fpdus) -> Iterator[FrameFields]:
    """The fields of FPDUs of one direction, each in the frame that completes it."""
    rows = fpdus.rows
    columns = (rows[name].tolist() for name in ("last_frame", "opcode", "last", "stag", "msn", "place", "length"))
    for index, (frame, opcode, last, stag, msn, offset, length) in enumerate(zip(*columns, strict=True)):
        queue = OPCODES[opcode].queue if opcode in OPCODES else None
        fields: Fields = {
            "iwarp_mpa.ulpdulength": (length + (TAGGED_HEADER if queue is None else UNTAGGED_HEADER),),
            "iwarp_ddp.tagged_flag": (int(queue is None),),
            "iwarp_ddp.last_flag": (int(last),),
            "iwarp_rdma.opcode": (opcode,),
        }
        if queue is None:
            fields["iwarp_ddp.stag"], fields["iwarp_ddp.tagged_offset"] = (stag,), (offset,)
        else:
            fields["iwarp_ddp.qn"], fields["iwarp_ddp.msn"], fields["iwarp_ddp.mo"] = (queue,), (msn,), (offset,)
        if opcode in INVALIDATING:
            fields["iwarp_rdma.inval_stag"] = (stag,)
        if index in fpdus.requests:
            names = ("sinkstag", "sinkto", "rdmardsz", "srcstag", "srcto")
            for name, value in zip(names, fpdus.requests[index], strict=True):
                fields[f"iwarp_rdma.{name}"] = (value,)
        if opcode == TERMINATE:
            fields |= terminate_fields(fpdus.payload(index))
        yield FrameFields(frame, fields)


_ERROR_CODES = {
    (RDMA_LAYER, 1): "rdma",
    (RDMA_LAYER, 2): "rdma",
    (DDP_LAYER, 1): "ddp_tagged",
    (DDP_LAYER, 2): "ddp_untagged",
    (LLP_LAYER, 0): "llp",
}
"""By layer and error type of a Terminate: the end of Wireshark's name for the error code."""


def terminate_fields(body: bytes) -> Fields:
    """The fields of a Terminate header by Wireshark's names (RFC 5040, 4.8)."""
    if len(body) < 4:
        return {}
    layer, kind = body[0] >> 4, body[0] & 15
    fields: Fields = {"iwarp_rdma.term_layer": (layer,), "iwarp_rdma.term_hdrct_m": (body[2] >> 7,)}
    if layer in (RDMA_LAYER, DDP_LAYER, LLP_LAYER):
        fields[f"iwarp_rdma.term_etype_{('rdma', 'ddp', 'llp')[layer]}"] = (kind,)
    if (layer, kind) in _ERROR_CODES:
        fields[f"iwarp_rdma.term_errcode_{_ERROR_CODES[layer, kind]}"] = (body[1],)
    return fields


def mpa_fields(frame: MPAFrame) -> Fields:
    """The fields of a Request or Reply by Wireshark's names."""
    values = (frame.revision, int(frame.markers), int(frame.crc), int(frame.reject), len(frame.private_data))
    return {name: (value,) for name, value in zip(MPA_FIELDS, values, strict=True)}


def add_fields(by_frame: dict[int, Fields], frame_fields: Iterable[FrameFields]) -> None:
    """Add fields to those found by frame; several values of one field are concatenated."""
    for frame, fields in frame_fields:
        known = by_frame.setdefault(frame, {})
        for name, values in fields.items():
            known[name] = known.get(name, ()) + values


# As tshark prints it


def tshark_fields(values: Sequence[str], names: Sequence[str] = ASKED) -> FrameFields:
    """The fields of a frame from its values for ``names`` as tshark prints them ('' for none).

    Raises ValueError if they are no such values.
    """
    fields: Fields = {}
    for name, text in zip(names[1:], values[1:], strict=True):
        if text:
            numbers = tuple(map(_PARSERS.get(name, _number), text.split(",")))
            fields[name] = numbers[: (len(numbers) + 1) // 2] if name in ONCE else numbers
    return FrameFields(int(values[0]), fields)


_WORDS = {"True": 1, "False": 0}


def _number(text: str) -> int:
    return _WORDS[text] if text in _WORDS else int(text, 0)


def _octets(text: str) -> int:
    return int(text.replace(":", ""), 16)


def _nanoseconds(text: str) -> int:
    whole, _, part = text.lstrip("-").partition(".")
    time = int(whole) * 1_000_000_000 + int(part[:9].ljust(9, "0"))
    return -time if text.startswith("-") else time


_PARSERS: dict[str, Callable[[str], int]] = {
    "infiniband.immdt": _octets,
    "infiniband.ieth": _octets,
    "rpc.time": _nanoseconds,
}


CHUNKS = "Wireshark, epan/dissectors/packet-rpcrdma.c"
PACKETS = "Wireshark, epan/dissectors/packet-infiniband.c"
RPCS = "Wireshark, epan/dissectors/packet-rpc.c"
MPA = "Wireshark, epan/dissectors/packet-iwarp-mpa.c"


class Explanation(NamedTuple):
    right: str
    """'rdmascope', 'Wireshark' or 'both'."""
    reason: str
    reference: str
    """A source file of Wireshark, or a section of a specification."""


# The predicates.  Each looks at one Rpc.


def chunk_operations(rpc: Rpc, kind: str = "") -> Iterator[Operation]:
    """The RDMA Reads and Writes on its chunks, or on those of one kind."""
    for chunk in rpc.chunks:
        for use in chunk.segments if kind in ("", chunk.kind) else ():
            yield from use.operations


def _packets(operation: Operation, mtu: int) -> int:
    return max(operation.packets, -(-operation.length // mtu))


def truncated(rpc: Rpc) -> bool:
    return rpc.contents == "truncated"


def missing_packets(rpc: Rpc) -> bool:
    messages = [message.operation for message in (rpc.call, rpc.reply) if message is not None]
    return (
        bool(rpc.damage)
        or rpc.call is None
        or any(operation.payload.seen < operation.payload.length for operation in (*messages, *chunk_operations(rpc)))
    )


def unfinished(rpc: Rpc) -> bool:
    """Whether not everything that the call offered to be read was read."""
    return any(chunk.kind == "read" and chunk.transferred < chunk.advertised for chunk in rpc.chunks)


def retransmitted_packets(rpc: Rpc) -> bool:
    return rpc.retransmissions > 0


def out_of_order(rpc: Rpc) -> bool:
    """Whether the reply precedes its call, or Reads or Writes precede the call that offers the memory or follow the
    reply."""
    call, reply = rpc.call, rpc.reply
    if call is not None and reply is not None and reply.frame < call.frame:
        return True
    return any(
        (call is not None and operation.first_frame < call.operation.first_frame)
        or (reply is not None and operation.last_frame > reply.frame)
        for operation in chunk_operations(rpc)
    )


def _headers(rpc: Rpc) -> Iterator[TransportHeader]:
    for message in (rpc.call, rpc.reply):
        if message is not None and message.header.length >= FIXED_WORDS:
            yield message.header


def version_2(rpc: Rpc) -> bool:
    return any(header.version == 2 for header in _headers(rpc))


def unknown_version(rpc: Rpc) -> bool:
    return any(header.version not in (1, 2) for header in _headers(rpc))


def unknown_procedure(rpc: Rpc) -> bool:
    return any(header.version == 1 and header.procedure not in PROCEDURE_NAMES for header in _headers(rpc))


def other_rdma_xid(rpc: Rpc) -> bool:
    """Whether the rdma_xid of its call or reply is not the XID of the RPC message after it."""
    return any(OTHER_XID in note for note in rpc.notes)


def malformed_header(rpc: Rpc) -> bool:
    return any(bool(header.problem) and not header.truncated for header in _headers(rpc))


def without_cm(rpc: Rpc) -> bool:
    return rpc.connection.transport != "iWARP" and rpc.connection.paired_by != "CM"


def one_handle_twice(rpc: Rpc) -> bool:
    handles = [use.advertised.handle for chunk in rpc.chunks for use in chunk.segments]
    return len(handles) != len(set(handles))


def several_chunks(rpc: Rpc) -> bool:
    kinds = [chunk.kind for chunk in rpc.chunks]
    return kinds.count("read") > 1 or kinds.count("write") > 1


def mixed_sizes(rpc: Rpc) -> bool:
    """Whether a Write that is not the last one into its chunk ends with a packet that is not full."""
    mtu = rpc.connection.path_mtu or 0
    for chunk in rpc.chunks:
        moved = [operation for use in chunk.segments for operation in use.operations]
        if mtu and chunk.kind != "read" and any(operation.length % mtu for operation in moved[:-1]):
            return True
    return False


def long_send(rpc: Rpc) -> bool:
    """Whether a call with Read chunks, or a reply with Write chunks or a Reply chunk, took more than one packet."""
    kinds = {chunk.kind for chunk in rpc.chunks}
    return bool(
        (rpc.call is not None and rpc.call.operation.packets > 1 and "read" in kinds)
        or (rpc.reply is not None and rpc.reply.operation.packets > 1 and kinds - {"read"})
    )


def psn_wraps(rpc: Rpc) -> bool:
    mtu = rpc.connection.path_mtu or 256
    sends = [message.operation for message in (rpc.call, rpc.reply) if message is not None]
    return any(operation.psn + _packets(operation, mtu) > PSN.modulus for operation in (*sends, *chunk_operations(rpc)))


# The table.

PRESENCE = frozenset({"packet", "rpcordma", "rpc"})
"""Names that stand for the whole thing, if one of the two sides has none."""
MATCHING = frozenset({"frame.number", "rpc.reqframe", "rpc.repframe", "rpc.time"})
"""Where an RPC is, what belongs to it, and how long it took."""
RPC = MATCHING | {"rpc"}
MESSAGE = RPC | {"rpcordma"}
ANYTHING = MESSAGE | {"packet"}
STREAM = ANYTHING | {*MPA_FIELDS, *FPDU_FIELDS}
"""A decoder that lost the FPDU boundaries may take any bytes for an FPDU."""
NAMES = frozenset({"rpc.program", "rpc.programversion", "rpc.procedure"})
LONG_CALL = "long call"
"""Not a weak spot: the call came through a Read chunk, so whatever spoils chunks may spoil NAMES as well."""


class WeakSpot(NamedTuple):
    name: str
    applies: Callable[[Rpc], bool] | None
    """None: one Rpc does not show it, but ``Circumstances``, ``RetransmittedPackets`` or the frame does."""
    reason: str
    reference: str
    right: str = "rdmascope"
    names: frozenset[str] = RPC
    """Fields that it can spoil; values that Wireshark does find are never among them."""


TABLE = (
    WeakSpot(
        "truncated frame",
        None,
        "the capture truncated the frame, and Wireshark stops where the bytes end",
        PACKETS,
        names=ANYTHING,
    ),
    WeakSpot(
        "retransmitted",
        None,
        "the packet was retransmitted: Wireshark shows its message each time, rdmascope where the receiver took it",
        "InfiniBand Architecture vol. 1, 9.7.5.1",
        "both",
        frozenset({"rpcordma", "rpc"}),
    ),
    WeakSpot(
        "DC or RD",
        None,
        "Wireshark takes the opcode for Reliable Datagram; Mellanox uses it for its Dynamically Connected transport,"
        " whose headers are not published, and rdmascope does not decode it",
        PACKETS,
        "both",
        names=frozenset({*ANYTHING, *(name for fields in PACKET_FIELDS.values() for name in fields.values())}),
    ),
    WeakSpot(
        "truncated",
        truncated,
        "the capture truncated frames of it, and Wireshark stops where the bytes end",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "UDP port",
        None,
        "its UDP source port is below that of RoCEv2, and Wireshark takes it for the protocol of that port",
        "Wireshark, epan/dissectors/packet-udp.c",
        names=ANYTHING,
    ),
    WeakSpot(
        "unknown version",
        unknown_version,
        "its rdma_vers is neither 1 nor 2, and Wireshark takes version 1 alone for RPC-over-RDMA",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "unknown procedure",
        unknown_procedure,
        "no document defines its rdma_proc, and Wireshark does not take it for RPC-over-RDMA",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "other rdma_xid",
        other_rdma_xid,
        "an rdma_xid of it is not the XID of the RPC message behind it, and Wireshark does not take such a Send for"
        " RPC-over-RDMA",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "malformed header",
        malformed_header,
        "its transport header is malformed, and Wireshark shows none, or what it finds at the wrong place",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "version 2",
        version_2,
        "it is RPC-over-RDMA version 2, which Wireshark does not know",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "unfinished",
        unfinished,
        "its Read chunk was not read to the end, and Wireshark shows a call when all of it is there",
        CHUNKS,
        "both",
    ),
    WeakSpot(
        "retransmitted packets",
        retransmitted_packets,
        "packets of it were retransmitted, and Wireshark counts the bytes of a chunk whether they are new or not",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "missing packets",
        missing_packets,
        "packets of it are missing, and Wireshark does not ask which bytes of a chunk they carried",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "out of order",
        out_of_order,
        "its packets were captured out of order, and Wireshark follows the order of the frames",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "PSNs alike",
        None,
        "both ends used its packet sequence numbers for Sends of several packets, which Wireshark keeps in one list",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "no CM",
        without_cm,
        "the connection's set-up is not in the capture, and only from that does Wireshark learn which queue pairs"
        " belong together",
        PACKETS,
        names=MESSAGE,
    ),
    WeakSpot(
        "no MPA",
        None,
        "the MPA Request or Reply is not in the capture, and only by those does Wireshark know iWARP",
        MPA,
        names=ANYTHING,
    ),
    WeakSpot(
        "IP over InfiniBand",
        None,
        "it carries IP over InfiniBand, which rdmascope passes over",
        "RFC 4391, 6",
        "both",
        frozenset({"packet", "rpc"}),
    ),
    WeakSpot(
        "ready to receive",
        None,
        "an FPDU without contents ends the set-up; Wireshark shows it, to rdmascope it is no RDMA message",
        "RFC 6581, 8",
        "both",
        frozenset({"packet"}),
    ),
    WeakSpot(
        "markers",
        None,
        "there are markers in the TCP streams, which Wireshark expects to be asked for by both sides, and FPDUs to"
        " begin where segments do",
        MPA,
        names=STREAM,
    ),
    WeakSpot(
        "TCP order",
        None,
        "TCP segments were retransmitted, missing or out of order, and Wireshark loses where FPDUs begin",
        MPA,
        names=STREAM,
    ),
    WeakSpot(
        "split FPDUs",
        None,
        "FPDUs are spread over TCP segments, and Wireshark loses where they begin when one has but a few bytes of one",
        MPA,
        names=STREAM,
    ),
    WeakSpot(
        "one XID both ways",
        None,
        "both ends used its XID, and Wireshark does not keep the two directions apart",
        RPCS,
        names=MATCHING,
    ),
    WeakSpot(
        "XID reused",
        None,
        "another call had its XID, and Wireshark gives a reply to the wrong one of them",
        RPCS,
        names=MATCHING,
    ),
    WeakSpot(
        "one handle twice",
        one_handle_twice,
        "two of its segments have one handle, and Wireshark knows one segment for each handle",
        CHUNKS,
    ),
    WeakSpot(
        "memory advertised again",
        None,
        "an earlier call offered the same memory, and Wireshark takes the second offer for the first one's reply",
        CHUNKS,
    ),
    WeakSpot(
        "several chunks",
        several_chunks,
        "it has several Read or several Write chunks, which Wireshark puts together in the wrong places",
        CHUNKS,
    ),
    WeakSpot(
        "long Send",
        long_send,
        "a Send of several packets names chunks, and Wireshark puts together only one of the two in a frame",
        CHUNKS,
    ),
    WeakSpot(
        "mixed sizes",
        mixed_sizes,
        "RDMA Writes of different sizes fill one chunk, and Wireshark orders them as if all were of one size",
        CHUNKS,
    ),
    WeakSpot(
        "PSN wrap",
        psn_wraps,
        "its packet sequence numbers begin again at 0, and Wireshark compares them as plain numbers",
        CHUNKS,
        names=MESSAGE,
    ),
)
"""The first row that applies gives the reason."""

EXTRA = frozenset({"retransmitted", "IP over InfiniBand", "ready to receive"})
"""Rows about what only Wireshark shows."""

LATE = Explanation(
    "both",
    "Wireshark shows a call with a Read chunk in the last Read response and counts its time from there, rdmascope"
    " from the Send",
    CHUNKS,
)


MATCH_FIELDS = "rpc.reqframe", "rpc.repframe"
RETRANSMITTED = next(Explanation(row.right, row.reason, row.reference) for row in TABLE if row.name == "retransmitted")


def touched(rpc: Rpc) -> frozenset[str]:
    """Names of the rows that apply to an Rpc by itself."""
    names = {row.name for row in TABLE if row.applies is not None and row.applies(rpc)}
    if rpc.call is not None and rpc.call.header.procedure == RDMA_NOMSG:
        names.add(LONG_CALL)
    return frozenset(names)


def touched_message(message: Message) -> frozenset[str]:
    """Names of the rows that apply to a message that belongs to no Rpc."""
    header, names = message.header, set()
    if header.version == 2:
        names.add("version 2")
    elif header.version != 1:
        names.add("unknown version")
    elif header.procedure not in PROCEDURE_NAMES:
        names.add("unknown procedure")
    if header.problem and not header.truncated:
        names.add("malformed header")
    return frozenset(names)


def explain(name: str, ours: Values | None, theirs: Values | None, touched: frozenset[str]) -> Explanation | None:
    """The verdict on a difference, if the table has one; ``touched``: names of the rows that apply there."""
    for row in TABLE:
        spoils = name in row.names or (row.name == "truncated frame" and theirs is None)
        spoils = spoils or (name in NAMES and LONG_CALL in touched and "rpc" in row.names)
        if row.name in touched and spoils and (row.name not in EXTRA or ours is None):
            return Explanation(row.right, row.reason, row.reference)
    return None
