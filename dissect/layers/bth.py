"""The Base Transport Header and its extended headers as Scapy packets (IBA volume 1, chapter 9).

Only the fixed-size headers themselves: what lies around them (UDP, GRH, the ICRC) is in ``roce``.
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
from scapy.packet import Packet

from . import opcodes


class Header(Packet):  # type: ignore[misc]
    """A Scapy packet; the one place where strict typing meets Scapy's missing types."""

    __slots__ = ()


class BTH(Header):
    """Base Transport Header (IBA 9.2), 12 bytes."""

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
    )


class RDETH(Header):
    """Reliable Datagram Extended Transport Header (IBA 9.3.1), 4 bytes."""

    name = "RDETH"
    fields_desc = (XBitField("reserved", 0, 8), X3BytesField("ee_context", 0))


class DETH(Header):
    """Datagram Extended Transport Header (IBA 9.3.2), 8 bytes."""

    name = "DETH"
    fields_desc = (XIntField("q_key", 0), XBitField("reserved", 0, 8), X3BytesField("src_qp", 0))


class XRCETH(Header):
    """Extended Reliable Connection Extended Transport Header (IBA annex A14), 4 bytes."""

    name = "XRCETH"
    fields_desc = (XBitField("reserved", 0, 8), X3BytesField("xrc_srq", 0))


class RETH(Header):
    """RDMA Extended Transport Header (IBA 9.3.3), 16 bytes."""

    name = "RETH"
    fields_desc = (XLongField("va", 0), XIntField("r_key", 0), IntField("dma_len", 0))


class AtomicETH(Header):
    """Atomic Extended Transport Header (IBA 9.3.4), 28 bytes: swap_data is the addend of a FetchAdd."""

    name = "AtomicETH"
    fields_desc = (
        XLongField("va", 0),
        XIntField("r_key", 0),
        LongField("swap_data", 0),
        LongField("compare_data", 0),
    )


class SyndromeField(ByteField):  # type: ignore[misc]
    """The AETH syndrome, shown in words."""

    def i2repr(self, pkt: Any, value: int) -> str:
        return f"0x{value:02x} ({opcodes.syndrome_name(value)})"


class AETH(Header):
    """Acknowledge Extended Transport Header (IBA 9.3.5), 4 bytes.  The syndrome's codes: IBA 9.7.5.2."""

    name = "AETH"
    fields_desc = (SyndromeField("syndrome", 0x1F), ThreeBytesField("msn", 0))


class AtomicAckETH(Header):
    """Atomic Acknowledge Extended Transport Header (IBA 9.3.5), 8 bytes."""

    name = "AtomicAckETH"
    fields_desc = (LongField("original_data", 0),)


class ImmDt(Header):
    """Immediate data (IBA 9.3.6), 4 bytes."""

    name = "ImmDt"
    fields_desc = (XIntField("immediate", 0),)


class IETH(Header):
    """Invalidate Extended Transport Header (IBA 9.3.7), 4 bytes."""

    name = "IETH"
    fields_desc = (XIntField("r_key", 0),)
