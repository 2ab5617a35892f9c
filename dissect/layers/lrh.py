"""Native InfiniBand as Scapy layers: the Local Route Header with its VCRC, and the ERF records that captures have.

Link types 247 (InfiniBand) and 197 (ERF) begin with them.
"""

from __future__ import annotations

from typing import Any

from scapy.config import conf
from scapy.fields import BitField, ByteField, LELongField, ShortField, XBitField, XShortField
from scapy.layers.l2 import Ether
from scapy.packet import Raw, bind_top_down

from .bth import BTH
from .icrc import VCRC_BYTES, vcrc, verify_vcrc
from .layer import ChecksumField, Header, LayerClass
from .roce import GRH

ERF_LINK_TYPE, INFINIBAND_LINK_TYPE = 197, 247
WORD = 4


class LRH(Header):
    """Local Route Header (IBA 7.7), 8 bytes, with the VCRC that ends the packet (IBA 7.8.2).

    ``pktlen`` counts words of four bytes from this header to the ICRC.  Left None, it, ``lnh`` and ``vcrc`` are
    computed when the packet is built.  In a dissected packet ``vcrc`` is an integer, its two bytes read
    big-endian; where there is none, or it was truncated, the bytes that are there (perhaps none).
    """

    name = "LRH"
    fields_desc = (
        BitField("vl", 0, 4),
        BitField("lver", 0, 4),
        BitField("sl", 0, 4),
        BitField("resv2", 0, 2),
        BitField("lnh", None, 2),
        ShortField("dlid", 0),
        XBitField("resv5", 0, 5),
        BitField("pktlen", None, 11),
        ShortField("slid", 0),
        ChecksumField("vcrc", VCRC_BYTES),
    )

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *args: Any, **kargs: Any) -> LayerClass:
        """Fewer than 8 bytes are none."""
        return Raw if _pkt is not None and len(_pkt) < 8 else cls

    def guess_payload_class(self, payload: bytes) -> LayerClass:
        if self.lnh == 3 and len(payload) >= 40:
            return GRH
        return BTH if self.lnh == 2 and len(payload) >= 12 else Raw

    def post_dissect(self, s: bytes) -> bytes:
        end = max(0, (self.pktlen or 0) * WORD - 8)
        trailer = s[end : end + VCRC_BYTES]
        self.fields["vcrc"] = int.from_bytes(trailer, "big") if len(trailer) == VCRC_BYTES else trailer
        self.raw_packet_cache = None  # else post_build is passed over, and the trailer lost
        return s[:end]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        if self.lnh is None:
            following = 3 if isinstance(self.payload, GRH) else 2
            pkt = pkt[:1] + bytes([pkt[1] & 0xFC | following]) + pkt[2:]
        if self.pktlen is None:
            words = (8 + len(pay)) // WORD & 0x7FF
            pkt = pkt[:4] + (int.from_bytes(pkt[4:6], "big") & 0xF800 | words).to_bytes(2, "big") + pkt[6:]
        packet: bytes = pkt + pay
        trailer = vcrc(packet) if self.vcrc is None else self.vcrc
        return packet + (trailer.to_bytes(VCRC_BYTES, "big") if isinstance(trailer, int) else bytes(trailer))

    def verify_vcrc(self) -> bool | None:
        """Whether the VCRC is right; None where it is not there."""
        return verify_vcrc(bytes(self))

    def mysummary(self) -> str:
        return f"LRH LID {self.slid} > LID {self.dlid}"


class ERFExtension(Header):
    """An extension header of an ERF record, 8 bytes; its first bit announces another."""

    name = "ERF extension"
    fields_desc = (BitField("more", 0, 1), BitField("type", 0, 7), XBitField("value", 0, 56))

    def guess_payload_class(self, payload: bytes) -> LayerClass:
        if self.more:
            return ERFExtension
        below = self.underlayer
        while isinstance(below, ERFExtension):
            below = below.underlayer
        return below.record_class() if isinstance(below, ERF) else Raw


class ERFPad(Header):
    """The two bytes between an ERF header and its Ethernet frame."""

    name = "ERF Ethernet offset"
    fields_desc = (ByteField("offset", 0), ByteField("pad", 0))

    def guess_payload_class(self, payload: bytes) -> LayerClass:
        frame: LayerClass = Ether
        return frame


class ERF(Header):
    """The header of an ERF record (Endace Extensible Record Format), 16 bytes.

    ``time`` is little-endian, seconds since 1970 in its upper half, 2**-32 seconds in its lower.
    """

    name = "ERF"
    fields_desc = (
        LELongField("time", 0),
        BitField("extended", 0, 1),
        BitField("type", 21, 7),
        ByteField("flags", 4),
        ShortField("rlen", None),
        XShortField("lctr", 0),
        ShortField("wlen", None),
    )

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *args: Any, **kargs: Any) -> LayerClass:
        """Fewer than 16 bytes are none."""
        return Raw if _pkt is not None and len(_pkt) < 16 else cls

    def record_class(self) -> LayerClass:
        """What such a record holds."""
        contents: LayerClass = {2: ERFPad, 11: ERFPad, 16: ERFPad, 20: ERFPad, 21: LRH}.get(self.type, Raw)
        return contents

    def guess_payload_class(self, payload: bytes) -> LayerClass:
        return ERFExtension if self.extended else self.record_class()

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        record, wire = self.rlen, self.wlen
        if record is None:
            record = len(pkt) + len(pay)
        if wire is None:
            wire = len(pay)
        built: bytes = pkt[:10] + record.to_bytes(2, "big") + pkt[12:14] + wire.to_bytes(2, "big") + pay
        return built


bind_top_down(LRH, BTH, lnh=2)
bind_top_down(LRH, GRH, lnh=3)
for _link_type, _layer in ((INFINIBAND_LINK_TYPE, LRH), (ERF_LINK_TYPE, ERF)):
    conf.l2types.register(_link_type, _layer)
