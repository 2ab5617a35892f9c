"""The Base Transport Header and its extended headers as Scapy packets (IBA volume 1, chapter 9).

Everything InfiniBand transport, whatever is beneath it; ``roce`` puts it on top of UDP and Ethernet.  Fields
have Wireshark's names, with the underscores of the specification (``dest_qp``, ``src_qp``, ``dma_len``).

The opcode table says which extended headers follow a BTH.  What the payload behind the last of them is, say,
in this order: what was bound to that header with ``bind_layers``; what was bound to BTH, by fields of the
BTH; and, for datagrams to queue pairs 0 and 1, that they are Management Datagrams.  So ``bind_layers(BTH,
MyProtocol, dest_qp=0x11)`` dissects what arrives at queue pair 0x11, behind whatever extended headers the
packet has.
"""

from __future__ import annotations

from typing import Any

from scapy.fields import (
    BitField,
    ByteEnumField,
    ByteField,
    IntField,
    LongField,
    ThreeBytesField,
    X3BytesField,
    XBitField,
    XIntField,
    XLongField,
    XShortField,
)
from scapy.packet import Packet, Raw, bind_top_down

from . import opcodes
from .cm import MAD
from .icrc import icrc, icrc_local, verify, verify_local
from .layer import ChecksumField, Header, TrailingField

MAD_BYTES = 24
"""The common header of a Management Datagram (IBA 13.4)."""
GENERAL_SERVICES_QP = 1
"""Queue pairs 0 (subnet management) and 1 (general services) take Management Datagrams (IBA 13.5)."""


class _Chained(Header):
    """A header whose successor depends on the opcode of the BTH at the bottom."""

    __slots__ = ()

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        base: Any = self
        while base is not None and not isinstance(base, BTH):
            base = base.underlayer
        if base is None:
            return Packet.guess_payload_class(self, payload)  # type: ignore[no-any-return]
        row = opcodes.OPCODES.get(base.opcode)
        after = row.headers if row else ()
        if base is not self:
            name = type(self).__name__
            after = after[after.index(name) + 1 :] if name in after else ()
        if after:
            return EXTENDED_HEADERS[after[0]] if len(payload) >= opcodes.HEADER_BYTES[after[0]] else Raw
        if base is not self:
            bound = Packet.guess_payload_class(self, payload)
            if bound is not Raw:
                return bound  # type: ignore[no-any-return]
        return base.payload_class(payload)


_COVERED = ("IP", "IPv6", "GRH")
"""Layers with which the part of a packet begins that the ICRC covers; where none is beneath, LRH is."""


class BTH(_Chained):
    """Base Transport Header (IBA 9.2), 12 bytes, with the pad bytes and the ICRC that end the packet.

    Left None, ``padcnt``, ``pad`` and ``icrc`` are computed when the packet is built; the ICRC covers the
    headers beneath, so without them it is 0.  In a dissected packet they hold what was on the wire: delete
    them (``del pkt.icrc``) after a change.  ``icrc`` is an integer, its four bytes read big-endian; where the
    packet was truncated, the bytes that are there (perhaps none).
    """

    name = "BTH"
    fields_desc = (
        ByteEnumField("opcode", 0x04, opcodes.OPCODE_NAMES),
        BitField("se", 0, 1),
        BitField("m", 0, 1),
        BitField("padcnt", None, 2),
        BitField("tver", 0, 4),
        XShortField("p_key", 0xFFFF),
        BitField("fecn", 0, 1),
        BitField("becn", 0, 1),
        BitField("resv6", 0, 6),
        X3BytesField("dest_qp", 0),
        BitField("a", 0, 1),
        BitField("resv7", 0, 7),
        ThreeBytesField("psn", 0),
        TrailingField("pad"),
        ChecksumField("icrc", opcodes.ICRC_BYTES),
    )

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *args: Any, **kargs: Any) -> type[Any]:
        """Fewer than 12 bytes are no BTH."""
        return Raw if _pkt is not None and len(_pkt) < opcodes.BTH_BYTES else cls

    def payload_class(self, payload: bytes) -> type[Any]:
        """The layer behind the last extended header, by this header's fields."""
        bound = Packet.guess_payload_class(self, payload)
        datagram = opcodes.HAS_DETH[self.opcode] and self.dest_qp <= GENERAL_SERVICES_QP
        if bound is Raw and datagram and len(payload) >= MAD_BYTES:
            return MAD
        return bound  # type: ignore[no-any-return]

    def post_dissect(self, s: bytes) -> bytes:
        length = max(len(s), self._announced())
        end = max(0, length - opcodes.ICRC_BYTES)
        body = max(0, end - (self.padcnt or 0))
        trailer = s[end:]
        self.fields["pad"] = s[body:end]
        self.fields["icrc"] = int.from_bytes(trailer, "big") if len(trailer) == 4 else trailer
        self.raw_packet_cache = None  # else post_build is passed over, and the trailer lost
        return s[:body]

    def _announced(self) -> int:
        """Bytes behind the BTH by the length field beneath; 0 where there is none."""
        below = self.underlayer
        if below is None:
            return 0
        if below.fields.get("paylen") is not None:
            return int(below.paylen) - opcodes.BTH_BYTES
        if below.name == "LRH" and below.pktlen is not None:
            return int(below.pktlen) * 4 - 8 - opcodes.BTH_BYTES
        if below.name == "UDP" and below.len is not None:
            return int(below.len) - 8 - opcodes.BTH_BYTES
        return 0

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        pad = self.pad
        if pad is None:
            pad = bytes(-len(pay) % 4 if self.padcnt is None else self.padcnt)
        if self.padcnt is None:
            pkt = pkt[:1] + bytes([pkt[1] & 0xCF | (len(pad) & 3) << 4]) + pkt[2:]
        packet: bytes = pkt + pay + pad
        trailer = self.icrc
        if trailer is None:
            trailer = self._icrc(packet)
        if isinstance(trailer, int):
            trailer = (trailer & 0xFFFFFFFF).to_bytes(4, "big")
        return packet + bytes(trailer)

    def _icrc(self, packet: bytes) -> int:
        """The ICRC of ``packet`` behind the headers beneath, from the network header on, with lengths as sent."""
        stack: Any = Raw(packet + bytes(opcodes.ICRC_BYTES))
        layer = self.underlayer
        while layer is not None:
            fields = {**layer.overloaded_fields, **layer.fields}
            local = layer.name == "LRH"
            if local:
                fields["vcrc"] = b""
            stack = type(layer)(**fields) / stack
            if local or layer.name in _COVERED:
                return (icrc_local if local else icrc)(bytes(stack)[: -opcodes.ICRC_BYTES]) or 0
            layer = layer.underlayer
        return 0

    def verify_icrc(self) -> bool | None:
        """Whether the ICRC is right; None where it, or the header that it covers first, is not there."""
        layer = self.underlayer
        while layer is not None and layer.name not in (*_COVERED, "LRH"):
            layer = layer.underlayer
        if layer is None:
            return None
        return verify_local(bytes(layer)) if layer.name == "LRH" else verify(bytes(layer))

    def mysummary(self) -> str:
        return f"{opcodes.opcode_name(self.opcode)} QP 0x{self.dest_qp:06x} PSN {self.psn}"


class DETH(_Chained):
    """Datagram Extended Transport Header (IBA 9.3.2), 8 bytes."""

    name = "DETH"
    fields_desc = (XIntField("q_key", 0), XBitField("reserved", 0, 8), X3BytesField("src_qp", 0))


class RETH(_Chained):
    """RDMA Extended Transport Header (IBA 9.3.3), 16 bytes."""

    name = "RETH"
    fields_desc = (XLongField("va", 0), XIntField("r_key", 0), IntField("dma_len", 0))


class AtomicETH(_Chained):
    """Atomic Extended Transport Header (IBA 9.3.4), 28 bytes: swap_data is what FetchAdd adds."""

    name = "AtomicETH"
    fields_desc = (
        XLongField("va", 0),
        XIntField("r_key", 0),
        LongField("swap_data", 0),
        LongField("compare_data", 0),
    )


class SyndromeField(ByteField):  # type: ignore[misc]
    """The AETH syndrome, shown in words."""

    def i2repr(self, pkt: Any, x: Any) -> str:
        return f"0x{x:02x} ({opcodes.syndrome_name(x)})" if isinstance(x, int) else repr(x)


class AETH(_Chained):
    """Acknowledge Extended Transport Header (IBA 9.3.5), 4 bytes; its syndrome: IBA 9.7.5.2."""

    name = "AETH"
    fields_desc = (SyndromeField("syndrome", 0x1F), ThreeBytesField("msn", 0))

    def mysummary(self) -> str:
        return f"{opcodes.syndrome_name(self.syndrome)} MSN {self.msn}"


class AtomicAckETH(_Chained):
    """Atomic Acknowledge Extended Transport Header (IBA 9.3), 8 bytes."""

    name = "AtomicAckETH"
    fields_desc = (LongField("original_data", 0),)


class ImmDt(_Chained):
    """Immediate data (IBA 9.3), 4 bytes."""

    name = "ImmDt"
    fields_desc = (XIntField("immediate", 0),)


class IETH(_Chained):
    """Invalidate Extended Transport Header (IBA 9.3), 4 bytes."""

    name = "IETH"
    fields_desc = (XIntField("r_key", 0),)


class XRCETH(_Chained):
    """Extended Reliable Connection Extended Transport Header (IBA annex A14), 4 bytes."""

    name = "XRCETH"
    fields_desc = (XBitField("reserved", 0, 8), X3BytesField("xrc_srq", 0))


class FETH(_Chained):
    """Flush Extended Transport Header (IBA annex A19), 4 bytes."""

    name = "FETH"
    fields_desc = (XBitField("reserved", 0, 26), BitField("selectivity", 0, 2), BitField("placement", 0, 4))


class CNPPadding(_Chained):
    """The reserved bytes of a Congestion Notification Packet (IBA annex A17), 16 of them."""

    name = "CNP padding"
    fields_desc = (XLongField("reserved1", 0), XLongField("reserved2", 0))


EXTENDED_HEADERS: dict[str, type[Any]] = {
    header.__name__: header
    for header in (DETH, RETH, AtomicETH, AETH, AtomicAckETH, ImmDt, IETH, XRCETH, FETH, CNPPadding)
}
"""By the names of the opcode table."""

bind_top_down(BTH, AETH, opcode=0x11)
bind_top_down(BTH, DETH, opcode=0x64)
bind_top_down(BTH, CNPPadding, opcode=opcodes.CNP, becn=1)
