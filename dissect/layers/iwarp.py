"""iWARP as Scapy layers: MPA on TCP port 20049, DDP and RDMAP on MPA.

Importing this module is all it takes::

    >>> from scapy.layers.inet import IP, TCP
    >>> from rdmascope.dissect.layers.iwarp import FPDU, DDPTagged
    >>> write = FPDU() / DDPTagged(stag=17, tagged_offset=4096) / b"abc"
    >>> sent = IP(bytes(IP(src="10.0.0.1", dst="10.0.0.2") / TCP(dport=20049) / write))
    >>> sent[FPDU].ulpdulength, sent[FPDU].verify_crc(), sent[DDPTagged].stag, sent[FPDU].lastlayer().load
    (17, True, 17, b'abc')

A TCP segment is dissected alone, as if an FPDU or a start-up frame began with it; otherwise it stays Raw.  Of several
FPDUs in one segment the first is dissected, and the rest is Padding: ``fpdus.split_fpdus`` gives all.
"""

from __future__ import annotations

from scapy.layers.inet import TCP
from scapy.packet import bind_bottom_up, bind_top_down, split_bottom_up

from .mpa import (
    FPDU,
    MPA,
    NFS_RDMA_PORT,
    DDPTagged,
    DDPUntagged,
    MPAEnhanced,
    MPAReply,
    MPARequest,
    RDMAPAtomicRequest,
    RDMAPAtomicResponse,
    RDMAPImmediateData,
    RDMAPReadRequest,
    RDMAPTerminate,
)

__all__ = [
    "FPDU",
    "DDPTagged",
    "DDPUntagged",
    "MPAEnhanced",
    "MPAReply",
    "MPARequest",
    "RDMAPAtomicRequest",
    "RDMAPAtomicResponse",
    "RDMAPImmediateData",
    "RDMAPReadRequest",
    "RDMAPTerminate",
    "bind",
    "unbind",
]


def bind(port: int = NFS_RDMA_PORT) -> None:
    """Have Scapy dissect MPA on a TCP port."""
    unbind(port)
    bind_bottom_up(TCP, MPA, dport=port)
    bind_bottom_up(TCP, MPA, sport=port)


def unbind(port: int = NFS_RDMA_PORT) -> None:
    """Undo ``bind``: Scapy no longer dissects MPA on that port."""
    split_bottom_up(TCP, MPA, dport=port)
    split_bottom_up(TCP, MPA, sport=port)


bind()
for _upper in (MPARequest, FPDU):
    bind_top_down(TCP, _upper, dport=NFS_RDMA_PORT)
bind_top_down(TCP, MPAReply, sport=NFS_RDMA_PORT)
