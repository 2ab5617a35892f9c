"""iWARP as Scapy packets: start-up frames and FPDUs of Marker PDU Aligned Framing (RFC 5044; RFC 6581), Direct Data
Placement segments, and what RDMAP puts into them (RFC 5041; RFC 5040; RFC 7306).

The RDMAP control byte and the Invalidate STag lie in the bytes that DDP reserves for its user, so both protocols share
a header here.  Fields have Wireshark's names::

    FPDU() / DDPUntagged(msn=3) / RDMAPReadRequest(rdmardsz=4096, srcstag=5, srcto=0x1000)
    FPDU() / DDPTagged(stag=5, tagged_offset=0x1000) / b"what an RDMA Write carries"

An FPDU here is one without markers: ``fpdus.remove_markers`` takes them out of a stream, ``fpdus.split_fpdus`` finds
the FPDUs in it.
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
    StrFixedLenField,
    XBitField,
    XIntField,
    XLongField,
)
from scapy.packet import Packet, Raw, bind_top_down

from . import iwarp_codes as codes
from .fpdus import CRC_BYTES, LENGTH_BYTES, crc32c, fpdu_bytes, pad_bytes, verify_crc
from .iwarp_codes import MPA_ENHANCED_VERSION, MPA_VERSION, OPCODES, REPLY_KEY, REQUEST_KEY
from .layer import ChecksumField, Header, TrailingField
from .private_data import private_data_class

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


class DDPTagged(Header):
    """Tagged segment: RDMA Write or Read Response (RFC 5041, 4.2; RFC 5040, 4.3 and 4.5), 14 bytes."""

    name = "DDP tagged"
    fields_desc = (*_control(1, codes.WRITE), XIntField("stag", 0), XLongField("tagged_offset", 0))

    def mysummary(self) -> str:
        return f"{codes.opcode_name(self.opcode)} STag 0x{self.stag:08x} TO 0x{self.tagged_offset:x}"


class DDPUntagged(Header):
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

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        return ddp_class(payload) if self.hdrct_d else Raw

    def mysummary(self) -> str:
        return f"Terminate: {codes.terminate_name(self.term_layer, self.term_etype, self.term_errcode)}"


class RDMAPImmediateData(Header):
    """Immediate Data header (RFC 7306, 6.2), 8 bytes."""

    name = "RDMA Immediate Data"
    fields_desc = (XLongField("immediate", 0),)


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


class RDMAPAtomicResponse(Header):
    """Atomic Response header (RFC 7306, 5.2.2), 12 bytes."""

    name = "RDMA Atomic Response"
    fields_desc = (IntField("original_request_identifier", 0), LongField("original_remote_data_value", 0))


RDMAP_HEADERS: dict[str, type[Any]] = {
    header.__name__: header
    for header in (RDMAPReadRequest, RDMAPTerminate, RDMAPImmediateData, RDMAPAtomicRequest, RDMAPAtomicResponse)
}
"""By the names of the opcode table."""


def ddp_class(data: bytes) -> type[Any]:
    """The layer for a ULPDU; fewer bytes than its header has are Raw."""
    layer: type[Any] = DDPTagged if data[:1] and data[0] & _TAGGED else DDPUntagged
    return layer if len(data) >= codes.HEADER_BYTES[layer.__name__] else Raw


for _row in reversed(codes.OPCODES.values()):
    if _row.header:
        bind_top_down(DDPUntagged, RDMAP_HEADERS[_row.header], opcode=_row.value, qn=_row.queue)


STARTUP_BYTES = 20
"""MPA Request and Reply without private data (RFC 5044, 7.1.1)."""


def _startup_fields(key: bytes) -> tuple[Any, ...]:
    return (
        StrFixedLenField("key", key, 16),
        BitField("marker_flag", 0, 1),
        BitField("crc_flag", 1, 1),
        BitField("rej_flag", 0, 1),
        BitField("enhanced_flag", 0, 1),
        BitField("res", 0, 4),
        ByteField("rev", MPA_VERSION),
        ShortField("pdlength", None),
    )


class _Startup(Header):
    """What Request and Reply have in common; ``pdlength`` is computed where it is None."""

    __slots__ = ()

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        if self.pdlength is None:
            pkt = pkt[:-2] + len(pay).to_bytes(2, "big")
        return pkt + pay

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        return s[: self.pdlength], s[self.pdlength :]

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        enhanced = self.enhanced_flag and self.rev >= MPA_ENHANCED_VERSION and len(payload) >= 4
        return MPAEnhanced if enhanced else private_data_class(payload)

    def mysummary(self) -> str:
        flags = zip("MCRS", (self.marker_flag, self.crc_flag, self.rej_flag, self.enhanced_flag), strict=True)
        return f"{self.name} revision {self.rev} {''.join(name for name, there in flags if there)}".rstrip()


class MPARequest(_Startup):
    """MPA Request Frame (RFC 5044, 7.1.1), 20 bytes; ``enhanced_flag`` is the S flag of RFC 6581, 6.

    ``marker_flag``: its sender wants markers in what it receives.  ``crc_flag``: it wants CRCs in use.
    """

    name = "MPA Request"
    fields_desc = _startup_fields(REQUEST_KEY)

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *args: Any, **kwargs: Any) -> type[Any]:
        """Fewer than 20 bytes are none."""
        return Raw if _pkt is not None and len(_pkt) < STARTUP_BYTES else cls


class MPAReply(_Startup):
    """MPA Reply Frame (RFC 5044, 7.1.1), 20 bytes; ``rej_flag``: the connection is rejected."""

    name = "MPA Reply"
    fields_desc = _startup_fields(REPLY_KEY)

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *args: Any, **kwargs: Any) -> type[Any]:
        """Fewer than 20 bytes are none."""
        return Raw if _pkt is not None and len(_pkt) < STARTUP_BYTES else cls


class MPAEnhanced(Header):
    """IRD and ORD with their control flags, before the private data (RFC 6581, 9), 4 bytes.

    Flag ``a``: peer-to-peer set-up.  Ready-to-receive messages offered or chosen: ``b`` a zero-length FPDU,
    ``c`` a zero-length RDMA Write, ``d`` a zero-length RDMA Read.
    """

    name = "MPA enhanced set-up"
    fields_desc = (
        BitField("a", 0, 1),
        BitField("b", 0, 1),
        BitField("ird", 0, 14),
        BitField("c", 0, 1),
        BitField("d", 0, 1),
        BitField("ord", 0, 14),
    )

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        return private_data_class(payload)


class _CrcField(ChecksumField):
    """The CRC32C, which MPA may do without."""

    def i2repr(self, pkt: Any, x: Any) -> str:
        in_use = None if pkt is None else pkt.crc_in_use
        if in_use is False and isinstance(x, int):
            return f"0x{x:08x} (no CRCs in use)"
        shown = super().i2repr(pkt, x)
        return shown if in_use else shown.replace("(wrong)", "(wrong, or CRCs are not in use)")


class FPDU(Header):
    """Framed PDU (RFC 5044, 4.1): the length, and behind the ULPDU its pad and CRC.

    Left None, ``ulpdulength``, ``pad`` and ``crc`` are computed when the packet is built.  In a dissected packet they
    hold what was on the wire: delete them (``del pkt.crc``) after a change.  ``crc`` is an integer, its four bytes
    read big-endian; where the FPDU was truncated, the bytes that are there (perhaps none).  What follows the FPDU is
    Padding.
    """

    name = "FPDU"
    fields_desc = (ShortField("ulpdulength", None), TrailingField("pad"), _CrcField("crc", CRC_BYTES))
    crc_in_use: bool | None = None
    """None: not known."""
    _wire: bytes | None = None

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *args: Any, **kwargs: Any) -> type[Any]:
        """Fewer than 2 bytes are none."""
        return Raw if _pkt is not None and len(_pkt) < LENGTH_BYTES else cls

    def post_dissect(self, s: bytes) -> bytes:
        length = self.ulpdulength
        if length is None:
            return s
        body = length + pad_bytes(length)
        trailer = s[body : body + CRC_BYTES]
        self.fields["pad"] = s[length:body]
        self.fields["crc"] = int.from_bytes(trailer, "big") if len(trailer) == CRC_BYTES else trailer
        self.raw_packet_cache = None  # else post_build is passed over, and the trailer lost
        return s[:length] + s[body + CRC_BYTES :]

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        return s[: self.ulpdulength], s[self.ulpdulength :] if self.ulpdulength is not None else None

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        return ddp_class(payload)

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        if self.ulpdulength is None:
            pkt = len(pay).to_bytes(2, "big")
        pad = bytes(pad_bytes(len(pay))) if self.pad is None else self.pad
        covered: bytes = pkt + pay + pad
        crc = crc32c(covered) if self.crc is None else self.crc
        return covered + (crc.to_bytes(CRC_BYTES, "big") if isinstance(crc, int) else bytes(crc))

    def sent_as(self, wire: bytes | None, crc_in_use: bool | None) -> None:
        """Add what an FPDU alone does not hold.

        ``wire``: the bytes as sent, where they had markers, which the CRC covers.
        """
        object.__setattr__(self, "_wire", wire)
        object.__setattr__(self, "crc_in_use", crc_in_use)

    def verify_crc(self) -> bool | None:
        """Whether the CRC is right; None where the FPDU is truncated."""
        if self._wire is not None:
            return None if isinstance(self.crc, bytes) else verify_crc(self._wire)
        built = self.do_build()
        return verify_crc(built) if len(built) == fpdu_bytes(int.from_bytes(built[:2], "big")) else None

    def mysummary(self) -> str:
        return f"FPDU {self.ulpdulength}"


def mpa_class(data: bytes) -> type[Any]:
    """The layer for what one end sent, from the start of a start-up frame or of an FPDU without marker."""
    if len(data) >= STARTUP_BYTES and data[:16] in (REQUEST_KEY, REPLY_KEY):
        return MPARequest if data[:16] == REQUEST_KEY else MPAReply
    return FPDU if len(data) >= 4 and _is_control(data[2], data[3]) else Raw


def _is_control(ddp: int, rdmap: int) -> bool:
    """Both control bytes have version 1, nothing reserved in use, and an opcode that goes with the tagged flag."""
    row = OPCODES.get(rdmap & 0x0F)
    if row is None or ddp & 0x3F != 1 or rdmap & 0xF0 != 0x40:
        return False
    return bool(ddp & 0x80) == (row.queue is None)


class MPA(Packet):  # type: ignore[misc]
    """What a TCP segment carries, as ``mpa_class`` sees it: never a layer of its own."""

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *args: Any, **kwargs: Any) -> type[Any]:
        return cls if _pkt is None else mpa_class(_pkt)


for _lower in (MPARequest, MPAReply):
    bind_top_down(_lower, MPAEnhanced, rev=MPA_ENHANCED_VERSION, enhanced_flag=1)
