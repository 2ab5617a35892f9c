"""RDMA over Converged Ethernet as Scapy layers: RoCEv2 on UDP port 4791, RoCEv1 on EtherType 0x8915.

Importing this module is all it takes::

    >>> from scapy.layers.inet import IP, UDP
    >>> from rdmascope.dissect.layers.roce import BTH, RETH
    >>> write = BTH(opcode=0x0A, dest_qp=17) / RETH(dma_len=3) / b"abc"
    >>> sent = IP(bytes(IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / write))
    >>> sent[BTH].padcnt, sent[BTH].verify_icrc(), sent[RETH].dma_len, sent[BTH].lastlayer().load
    (1, True, 3, b'abc')

Scapy's own ``scapy.contrib.roce`` claims the same port and EtherType.  Whichever is imported first, received
packets are dissected by the layers of this module; those of the other can still be built, and called by name.
``unbind()`` gives the port and the EtherType back to it.
"""

from __future__ import annotations

from typing import Any

from scapy.fields import BitField, ByteField, ShortField
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IP6Field
from scapy.layers.l2 import CookedLinux, CookedLinuxV2, Dot1AD, Dot1Q, Ether
from scapy.packet import bind_top_down, split_bottom_up

from .bth import AETH, BTH, DETH, FETH, IETH, RETH, XRCETH, AtomicAckETH, AtomicETH, CNPPadding, ImmDt
from .icrc import ROCE_PORT
from .layer import Header

__all__ = [
    "AETH",
    "BTH",
    "DETH",
    "FETH",
    "GRH",
    "IETH",
    "RETH",
    "XRCETH",
    "AtomicAckETH",
    "AtomicETH",
    "CNPPadding",
    "ImmDt",
    "bind",
    "unbind",
]

ROCE_ETHERTYPE = 0x8915
"""RoCEv1 (IBA annex A16)."""
IBA_TRANSPORT = 0x1B
"""GRH next header: an InfiniBand transport packet (IBA 8.3)."""


class GRH(Header):
    """Global Route Header (IBA 8.3), 40 bytes; laid out like an IPv6 header.

    ``paylen`` counts the bytes behind it to the end of the ICRC and is computed where it is None.
    """

    name = "GRH"
    fields_desc = (
        BitField("ipver", 6, 4),
        BitField("tclass", 0, 8),
        BitField("flowlabel", 0, 20),
        ShortField("paylen", None),
        ByteField("nxthdr", IBA_TRANSPORT),
        ByteField("hoplmt", 64),
        IP6Field("sgid", "::"),
        IP6Field("dgid", "::"),
    )

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        if self.paylen is None:
            pkt = pkt[:4] + len(pay).to_bytes(2, "big") + pkt[6:]
        return pkt + pay

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        return s[: self.paylen], s[self.paylen :]

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        whole = self.nxthdr == IBA_TRANSPORT and len(payload) >= 12
        return BTH if whole else self.default_payload_class(payload)

    def mysummary(self) -> str:
        return str(self.sprintf("GRH %GRH.sgid% > %GRH.dgid%"))


_BINDINGS: tuple[tuple[type[Any], type[Any], dict[str, int]], ...] = (
    (UDP, BTH, {"dport": ROCE_PORT}),
    (Ether, GRH, {"type": ROCE_ETHERTYPE}),
    (Dot1Q, GRH, {"type": ROCE_ETHERTYPE}),
    (Dot1AD, GRH, {"type": ROCE_ETHERTYPE}),
    (CookedLinux, GRH, {"proto": ROCE_ETHERTYPE}),
    (CookedLinuxV2, GRH, {"proto": ROCE_ETHERTYPE}),
)


def bind() -> None:
    """Have Scapy dissect RoCE with these layers, whatever else claims its port and EtherType.

    Scapy takes the first binding that fits, so these go to the front.
    """
    unbind()
    for lower, upper, fields in _BINDINGS:
        lower.payload_guess = [(fields, upper), *lower.payload_guess]


def unbind() -> None:
    """Undo ``bind``: leave the port and the EtherType to other layers."""
    for lower, upper, fields in _BINDINGS:
        split_bottom_up(lower, upper, **fields)


for _lower, _upper, _fields in _BINDINGS:
    bind_top_down(_lower, _upper, **_fields)
bind_top_down(UDP, BTH, dport=ROCE_PORT, sport=0xC000)
bind_top_down(GRH, BTH, nxthdr=IBA_TRANSPORT)
bind()
