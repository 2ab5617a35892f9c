"""What one frame shows, by Wireshark's field names: from our decoders, and from tshark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s
from ..layers import opcodes
from ..layers.cm_codes import CM_LAYERS
from ..layers.columns import compiled
from ..layers.iwarp_codes import DDP_LAYER, INVALIDATING, LLP_LAYER, OPCODES, RDMA_LAYER, TERMINATE
from ..layers.rpcrdma_codes import RDMA_DONE, RDMA_ERROR
from ..link.packets import PacketBatch
from ..rpcrdma.messages import TransportHeader
from ..transport.iwarp.fpdus import TAGGED_HEADER, UNTAGGED_HEADER, Fpdus
from ..transport.iwarp.framing import MPAFrame
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
"""What Wireshark calls the CM messages that it shows field by field."""
_CM_LEFT_OUT = ("reserved", "vendorid", "sapsupported", "ari", "remoteqpneecn", "flowlabel", "pktrate")
"""What Wireshark does not show, and what it takes from the wrong bits."""


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
"""Of a Request or Reply."""

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
"""Everything below RPC-over-RDMA."""

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
"""The fields that Wireshark is asked for, in the order in which ``tshark_fields`` takes them."""

DISPLAY_FILTER = "infiniband || iwarp_mpa"
"""Frames that Wireshark is asked about."""

_MANAGEMENT = frozenset((*MAD_FIELDS, *(name for fields in CM_FIELDS.values() for name in fields.values())))

GENERAL_SERVICES = 1
"""Queue pairs 0 and 1 take Management Datagrams (IBA 3.9)."""

ONCE = frozenset({"infiniband.immdt", "infiniband.ieth"})
"""Wireshark gives the same value as a header and as its field."""


FIXED_WORDS = 16
"""Bytes of an RPC-over-RDMA header that every version and procedure has (RFC 8166, 4.2)."""


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
        found: list[Fields] = [{} for _ in range(len(self.frames))]
        for name, rows, values in self.columns:
            for row, value in zip(rows.tolist(), values.tolist(), strict=True):
                found[row][name] = (value,)
        yield from map(FrameFields, self.frames.tolist(), found)


def packet_block(packets: PacketBatch) -> PacketBlock:
    """The Base Transport Headers and extended headers of a batch, as far as they were captured."""
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
    found: dict[str, list[tuple[int, int]]] = {}
    for index in np.flatnonzero(opcodes.HAS_DETH[rows["opcode"]] & (rows["dest_qp"] <= GENERAL_SERVICES)).tolist():
        start, captured = int(rows["payload"][index]), int(rows["captured"][index])
        header, kind, values = mad_values(packets.data[start : start + min(captured, MAD_SIZE)].tobytes())
        named = {f"infiniband.mad.{name}": value for name, value in header.items()}
        named |= {name: values[field] for field, name in CM_FIELDS.get(kind, {}).items()}
        for name, value in named.items():
            if value is not None:
                found.setdefault(name, []).append((index, value))
    return [
        (name, np.array([index for index, _ in pairs]), np.array([value for _, value in pairs], np.uint64))
        for name, pairs in found.items()
        if name in _MANAGEMENT
    ]


def header_fields(header: TransportHeader) -> Fields:
    """An RPC-over-RDMA header by Wireshark's names."""
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
            fields["rpcordma.vers_low"], fields["rpcordma.vers_high"] = ((one,) for one in header.supported)
        return fields
    if header.procedure == RDMA_DONE and header.version == 1:
        return fields  # which has no chunk lists
    reads = [(chunk.position, segment) for chunk in header.reads for segment in chunk.segments]
    arrays = [*header.writes, *((header.reply,) if header.reply else ())]
    segments = [segment for _, segment in reads] + [segment for array in arrays for segment in array.segments]
    fields["rpcordma.reads_count"] = (len(reads),)
    fields["rpcordma.writes_count"] = (len(header.writes),)
    fields["rpcordma.reply_count"] = (int(header.reply is not None),)
    if reads:
        fields["rpcordma.position"] = tuple(position for position, _ in reads)
    if arrays:
        fields["rpcordma.segment_count"] = tuple(len(array.segments) for array in arrays)
    if segments:
        fields["rpcordma.rdma_handle"] = tuple(segment.handle for segment in segments)
        fields["rpcordma.rdma_length"] = tuple(segment.length for segment in segments)
        fields["rpcordma.rdma_offset"] = tuple(segment.offset for segment in segments)
    return fields


def fpdu_fields(fpdus: Fpdus) -> Iterator[FrameFields]:
    """FPDUs of one direction, each in the frame that completes it."""
    rows = fpdus.rows
    columns = (rows[name].tolist() for name in ("last_frame", "opcode", "last", "stag", "msn", "place", "length"))
    for index, (frame, opcode, last, stag, msn, place, length) in enumerate(zip(*columns, strict=True)):
        queue = OPCODES[opcode].queue if opcode in OPCODES else None
        fields: Fields = {
            "iwarp_mpa.ulpdulength": (length + (TAGGED_HEADER if queue is None else UNTAGGED_HEADER),),
            "iwarp_ddp.tagged_flag": (int(queue is None),),
            "iwarp_ddp.last_flag": (int(last),),
            "iwarp_rdma.opcode": (opcode,),
        }
        if queue is None:
            fields["iwarp_ddp.stag"], fields["iwarp_ddp.tagged_offset"] = (stag,), (place,)
        else:
            fields["iwarp_ddp.qn"], fields["iwarp_ddp.msn"], fields["iwarp_ddp.mo"] = (queue,), (msn,), (place,)
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
"""Layer and error type of a Terminate -> the end of Wireshark's name for the error code."""


def terminate_fields(body: bytes) -> Fields:
    """A Terminate header by Wireshark's names (RFC 5040, 4.8)."""
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
    """A Request or Reply by Wireshark's names."""
    values = (frame.revision, int(frame.markers), int(frame.crc), int(frame.reject), len(frame.private_data))
    return {name: (value,) for name, value in zip(MPA_FIELDS, values, strict=True)}


def joined(frame_fields: Iterable[FrameFields]) -> dict[int, Fields]:
    """By frame; where it has several, the values one behind the other."""
    found: dict[int, Fields] = {}
    for frame, fields in frame_fields:
        known = found.setdefault(frame, {})
        for name, values in fields.items():
            known[name] = known.get(name, ()) + values
    return found


# As tshark prints it


def tshark_fields(values: Sequence[str], names: Sequence[str] = ASKED) -> FrameFields:
    """What Wireshark says of a frame, from its values for ``names`` as tshark prints them ('' where there is none).

    Raises ValueError where they are no such values.
    """
    fields: Fields = {}
    for name, text in zip(names[1:], values[1:], strict=True):
        if text:
            parse = _PARSERS.get(name, _number)
            found = tuple(map(parse, text.split(",")))
            fields[name] = found[: (len(found) + 1) // 2] if name in ONCE else found
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
