"""Direct Data Placement segments and what RDMAP puts into them, as Scapy packets (RFC 5041; RFC 5040; RFC 7306).

The RDMAP control byte and the Invalidate STag lie in the bytes that DDP reserves for its user, so both protocols share
a header here.  Fields have Wireshark's names::

    FPDU() / DDPUntagged(msn=3) / RDMAPReadRequest(rdmardsz=4096, srcstag=5, srcto=0x1000)
    FPDU() / DDPTagged(stag=5, tagged_offset=0x1000) / b"what an RDMA Write carries"
"""

from __future__ import annotations

from typing import Any

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteField,
    ConditionalField,
    IntEnumField,
    IntField,
    LongField,
    ShortField,
    XBitField,
    XIntField,
    XLongField,
)
from scapy.packet import Packet, Raw, bind_top_down

from . import iwarp_codes as codes
from .layer import Header

NFS_RDMA_PORT = 20049
"""RFC 8267, 8."""

_TAGGED = 0x80


def _control(tagged: int, opcode: int) -> tuple[Any, ...]:
    """DDP control and RDMAP control (RFC 5041, 4.1; RFC 5040, 4.1)."""
    return (
        BitField("tagged_flag", tagged, 1),
        BitField("last_flag", 1, 1),
        XBitField("rsvd", 0, 4),
        BitField("dv", 1, 2),
        BitField("version", 1, 2),
        XBitField("rsv", 0, 2),
        BitEnumField("opcode", opcode, 4, codes.OPCODE_NAMES),
    )


class _Segment(Header):
    """The fields of ``_control``."""

    __slots__ = ()
    tagged_flag: int
    last_flag: int
    rsvd: int
    dv: int
    version: int
    rsv: int
    opcode: int


class DDPTagged(_Segment):
    """Tagged segment: RDMA Write or Read Response (RFC 5041, 4.2; RFC 5040, 4.3 and 4.5), 14 bytes."""

    name = "DDP tagged"
    fields_desc = (*_control(1, codes.WRITE), XIntField("stag", 0), XLongField("tagged_offset", 0))
    stag: int
    tagged_offset: int

    def mysummary(self) -> str:
        return f"{codes.opcode_name(self.opcode)} STag 0x{self.stag:08x} TO 0x{self.tagged_offset:x}"


class DDPUntagged(_Segment):
    """Untagged segment: everything else (RFC 5041, 4.3; RFC 5040, 4.4 and 4.6 to 4.8), 18 bytes.

    ``inval_stag`` is reserved where the opcode is no Send with Invalidate.  A Send to or from TCP port 20049 is
    dissected as RPC-over-RDMA, unless something else was bound to this header.
    """

    name = "DDP untagged"
    fields_desc = (
        *_control(0, codes.SEND),
        XIntField("inval_stag", 0),
        IntEnumField("qn", codes.SEND_QUEUE, codes.QUEUE_NAMES),
        IntField("msn", 1),
        IntField("mo", 0),
    )
    inval_stag: int
    qn: int
    msn: int
    mo: int

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        row = codes.OPCODES.get(self.opcode)
        if row and row.header:
            whole = self.mo == 0 and len(payload) >= codes.HEADER_BYTES[row.header]
            return RDMAP_HEADERS[row.header] if whole else Raw
        bound = Packet.guess_payload_class(self, payload)
        if bound is Raw and self.opcode in codes.SENDS and self.mo == 0 and len(payload) >= 16 and self._nfs():
            from .rpcrdma import RPCRDMA

            return RPCRDMA
        return bound  # type: ignore[no-any-return]

    def _nfs(self) -> bool:
        layer = self.underlayer
        while layer is not None and layer.name != "TCP":
            layer = layer.underlayer
        return layer is not None and NFS_RDMA_PORT in (layer.sport, layer.dport)

    def mysummary(self) -> str:
        return f"{codes.opcode_name(self.opcode)} QN {self.qn} MSN {self.msn} MO {self.mo}"


class RDMAPReadRequest(Header):
    """RDMA Read Request header (RFC 5040, 4.4), 28 bytes."""

    name = "RDMA Read Request"
    fields_desc = (
        XIntField("sinkstag", 0),
        XLongField("sinkto", 0),
        IntField("rdmardsz", 0),
        XIntField("srcstag", 0),
        XLongField("srcto", 0),
    )
    sinkstag: int
    sinkto: int
    rdmardsz: int
    srcstag: int
    srcto: int


class _ErrorTypeField(BitField):  # type: ignore[misc]
    """The error type, in the words of its layer."""

    def i2repr(self, pkt: Any, x: Any) -> str:
        return f"0x{x:x} ({codes.error_type_name(pkt.term_layer, x)})"


class _ErrorCodeField(ByteField):  # type: ignore[misc]
    """The error code, in the words of its layer and error type."""

    def i2repr(self, pkt: Any, x: Any) -> str:
        name = codes.error_code_name(pkt.term_layer, pkt.term_etype, x)
        return f"0x{x:02x}" + (f" ({name})" if name else "")


class RDMAPTerminate(Header):
    """Terminate header (RFC 5040, 4.8): 4 bytes, 2 more with ``term_hdrct_m``, and the headers it quotes.

    ``hdrct_d``: the DDP header of the segment at fault follows, ``hdrct_r``: its RDMAP header behind that.
    """

    name = "RDMA Terminate"
    fields_desc = (
        BitEnumField("term_layer", codes.RDMA_LAYER, 4, codes.LAYER_NAMES),
        _ErrorTypeField("term_etype", 0, 4),
        _ErrorCodeField("term_errcode", 0),
        BitField("term_hdrct_m", 0, 1),
        BitField("hdrct_d", 0, 1),
        BitField("hdrct_r", 0, 1),
        XBitField("term_rsvd", 0, 13),
        ConditionalField(ShortField("term_ddp_seg_len", 0), lambda header: header.term_hdrct_m),
    )
    term_layer: int
    term_etype: int
    term_errcode: int
    term_hdrct_m: int
    hdrct_d: int
    hdrct_r: int
    term_rsvd: int
    term_ddp_seg_len: int | None

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        return ddp_class(payload) if self.hdrct_d else Raw

    def mysummary(self) -> str:
        return f"Terminate: {codes.terminate_name(self.term_layer, self.term_etype, self.term_errcode)}"


class RDMAPImmediateData(Header):
    """Immediate Data header (RFC 7306, 6.2), 8 bytes."""

    name = "RDMA Immediate Data"
    fields_desc = (XLongField("immediate", 0),)
    immediate: int


class RDMAPAtomicRequest(Header):
    """Atomic Request header (RFC 7306, 5.2.1), 52 bytes; Swap and CmpSwap store ``add_data`` under ``add_mask``."""

    name = "RDMA Atomic Request"
    fields_desc = (
        XBitField("reserved", 0, 28),
        BitEnumField("opcode", 0, 4, codes.ATOMIC_NAMES),
        IntField("request_identifier", 0),
        XIntField("remote_stag", 0),
        XLongField("remote_tagged_offset", 0),
        LongField("add_data", 0),
        XLongField("add_mask", 0),
        LongField("compare_data", 0),
        XLongField("compare_mask", 0),
    )
    reserved: int
    opcode: int
    request_identifier: int
    remote_stag: int
    remote_tagged_offset: int
    add_data: int
    add_mask: int
    compare_data: int
    compare_mask: int


class RDMAPAtomicResponse(Header):
    """Atomic Response header (RFC 7306, 5.2.2), 12 bytes."""

    name = "RDMA Atomic Response"
    fields_desc = (IntField("original_request_identifier", 0), LongField("original_remote_data_value", 0))
    original_request_identifier: int
    original_remote_data_value: int


RDMAP_HEADERS: dict[str, type[Any]] = {
    header.__name__: header
    for header in (RDMAPReadRequest, RDMAPTerminate, RDMAPImmediateData, RDMAPAtomicRequest, RDMAPAtomicResponse)
}
"""By the names of the opcode table."""


def ddp_class(data: bytes) -> type[Any]:
    """The layer for a ULPDU; fewer bytes than its header has are Raw."""
    found: type[Any] = DDPTagged if data[:1] and data[0] & _TAGGED else DDPUntagged
    return found if len(data) >= codes.HEADER_BYTES[found.__name__] else Raw


for _row in reversed(codes.OPCODES.values()):
    if _row.header:
        bind_top_down(DDPUntagged, RDMAP_HEADERS[_row.header], opcode=_row.value, qn=_row.queue)
