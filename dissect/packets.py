"""Packet: one InfiniBand transport packet, its Base Transport Header and extended headers, in columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .frames import Bytes, Rows

PACKET = np.dtype(
    [
        ("frame", "i8"),  # frame number
        ("time", "i8"),  # nanoseconds since the Unix epoch
        ("bth", "i8"),  # offset of the Base Transport Header in PacketBatch.data
        ("payload", "i8"),  # offset of the payload in PacketBatch.data
        ("length", "i4"),  # payload bytes on the wire, pad and ICRC excluded
        ("captured", "i4"),  # payload bytes in the capture
        ("wire", "i4"),  # bytes of the whole frame on the wire
        ("source", "u4"),  # address ids, see network.AddressTable
        ("destination", "u4"),
        ("source_port", "u2"),  # UDP
        ("opcode", "u1"),  # BTH opcode, see layers/opcodes.py
        ("flags", "u1"),  # FLAG_ bits below
        ("dest_qp", "u4"),
        ("psn", "u4"),
        ("va", "u8"),  # RETH or AtomicETH, 0 where absent
        ("r_key", "u4"),
        ("dma_length", "u4"),  # RETH
        ("immediate", "u4"),  # ImmDt or IETH, 0 where absent
        ("source_qp", "u4"),  # DETH, 0 where absent
        ("msn", "u4"),  # AETH
        ("syndrome", "u1"),  # AETH
        ("pad", "u1"),  # pad count
        ("ecn", "u1"),  # IP ECN field
        ("headers", "u1"),  # 1 where BTH and every extended header of the opcode is in the capture
    ]
)

FLAG_ACK_REQUEST = 1
FLAG_SOLICITED = 2
FLAG_BECN = 4
FLAG_FECN = 8
FLAG_MIGRATION = 16


@dataclass(frozen=True, slots=True)
class PacketBatch:
    """The packets among the frames of one batch, in capture order."""

    data: Bytes
    """The FrameBatch's bytes."""
    rows: Rows
    """PACKET rows."""
    skipped: dict[str, int]
    """Frames that are no RDMA packet, by what they are: 'ARP', 'TCP', 'IPv6 ICMP', 'IP fragment', …"""

    def __len__(self) -> int:
        return len(self.rows)
