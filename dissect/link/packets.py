"""Packet: one InfiniBand transport packet, its Base Transport Header and extended headers, in columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Bytes, Int64s, Rows, places, some, take
from ..frames import FrameBatch
from ..layers import opcodes
from ..layers.columns import Extractor, compiled
from ..named_tuple import NamedTuple
from .walk import IP_FRAGMENT

if TYPE_CHECKING:
    from .locate import Located

PACKET = np.dtype(
    [
        ("frame", "i8"),  # frame number
        ("time", "i8"),  # nanoseconds since the Unix epoch
        ("bth", "i8"),  # offset of the Base Transport Header in PacketBatch.data
        ("payload", "i8"),  # offset of the payload in PacketBatch.data
        ("length", "i4"),  # payload bytes on the wire, pad and ICRC excluded
        ("captured", "i4"),  # payload bytes in the capture
        ("wire", "i4"),  # bytes of the whole frame on the wire
        ("source", "u4"),  # address ids, see addresses.AddressTable
        ("destination", "u4"),
        ("source_port", "u2"),  # UDP; 0 without it
        ("opcode", "u1"),  # BTH opcode, see layers/opcodes.py
        ("flags", "u1"),  # FLAG_ bits below
        ("dest_qp", "u4"),
        ("psn", "u4"),
        ("va", "u8"),  # RETH or AtomicETH, 0 without
        ("r_key", "u4"),
        ("dma_length", "u4"),  # RETH
        ("immediate", "u4"),  # ImmDt or IETH, 0 without
        ("source_qp", "u4"),  # DETH, 0 without
        ("msn", "u4"),  # AETH
        ("syndrome", "u1"),  # AETH
        ("pad", "u1"),  # pad count
        ("ecn", "u1"),  # IP ECN field
        ("headers", "u1"),  # 1 if BTH and every extended header of the opcode are in the capture
        ("transport", "u1"),  # index into TRANSPORTS
    ],
    align=True,
)

_UD_SEND_ONLY = 0x64
_GSI = 1
"""The queue pair of the General Services Interface (IBA 3.9)."""

FLAG_ACK_REQUEST = 1
FLAG_SOLICITED = 2
FLAG_BECN = 4
FLAG_FECN = 8
FLAG_MIGRATION = 16


_NONE: Int64s = np.zeros(0, np.int64)


class IcrcCheck(NamedTuple):
    """What the invariant CRCs of a batch say; indices are ascending."""

    verified: int = 0
    """Packets whose ICRC could be verified."""
    wrong: Int64s = _NONE
    """Packets with a wrong one, even of hosts that send no right ones."""
    damaged: Int64s = _NONE
    """Wrong ones of Reliable Connection and Management Datagrams, of hosts that send right ones: receivers drop
    them."""


NOTHING_VERIFIED = IcrcCheck()


def is_management(rows: Rows) -> Rows:
    """Which PACKET rows carry Management Datagrams to the General Services Interface, as CM does (IBA 3.9)."""
    managing: Rows = (rows["opcode"] == _UD_SEND_ONLY) & (rows["dest_qp"] == _GSI)
    return managing


@dataclass(slots=True, eq=False)
class PacketBatch:
    """The packets among the frames of one batch, in capture order."""

    data: Bytes
    """The FrameBatch's bytes."""
    rows: Rows
    """PACKET rows."""
    skipped: dict[str, int]
    """Frames that are no RDMA packet, by what they are: 'ARP', 'TCP', 'IPv6 ICMP', 'IP fragment', …"""
    frames: FrameBatch | None = None
    """The frames that carried them."""
    icrc: IcrcCheck = NOTHING_VERIFIED
    """Which packets arrived damaged."""

    def __len__(self) -> int:
        return len(self.rows)


TRUNCATED = "RoCE, header truncated"
"""Key of PacketBatch.skipped: frames truncated within the Base Transport Header."""


_PERHAPS_RDMA = ("RoCE", "InfiniBand", "UDP port 4791", IP_FRAGMENT, "duplicate", "truncated", "malformed")


def skipped_words(kind: str) -> str:
    """A key of PacketBatch.skipped, in words: 'TCP, not RDMA', 'IP fragment, not decoded'."""
    return f"{kind}, not {'decoded' if kind.startswith(_PERHAPS_RDMA) else 'RDMA'}"


_BTH_FIELDS = "opcode", "se", "m", "padcnt", "fecn", "becn", "dest_qp", "a", "psn"

# Header -> {its field: the PACKET column}.
_COLUMNS = {
    "RETH": {"va": "va", "r_key": "r_key", "dma_len": "dma_length"},
    "AtomicETH": {"va": "va", "r_key": "r_key"},
    "AETH": {"syndrome": "syndrome", "msn": "msn"},
    "DETH": {"src_qp": "source_qp"},
    "ImmDt": {"immediate": "immediate"},
    "IETH": {"r_key": "immediate"},
}


def decode(batch: FrameBatch, located: Located) -> PacketBatch:
    """The packets that ``located`` found in ``batch``, in columns.

    Frames truncated within the BTH give no packet but count in ``skipped``.  If an extended header is truncated, its
    columns and ``headers`` are 0; an unknown opcode counts as having none.  ``length`` is derived from lengths on the
    wire, so it holds for truncated frames, too; ``captured`` never exceeds it.
    """
    data, skipped = batch.data, dict(located.skipped)
    index, bth, available, wire = located.rows, located.bth, located.available, located.length
    source, destination, port, ecn = located.source, located.destination, located.source_port, located.ecn
    transport = located.transport
    whole = available >= opcodes.BTH_BYTES
    if not whole.all():
        skipped[TRUNCATED] = skipped.get(TRUNCATED, 0) + int(len(whole) - np.count_nonzero(whole))
        index, bth, available, wire = index[whole], bth[whole], available[whole], wire[whole]
        source, destination, port, ecn = source[whole], destination[whole], port[whole], ecn[whole]
        transport = transport[whole]

    head = compiled("BTH")(data, bth, _BTH_FIELDS)
    opcode = head["opcode"]
    headers = opcodes.BTH_BYTES + opcodes.EXTENDED_BYTES[opcode]

    rows = np.zeros(len(index), PACKET)
    frames = batch.rows if len(index) == len(batch.rows) else take(batch.rows, index)
    rows["frame"], rows["time"], rows["wire"] = frames["number"], frames["time"], frames["original"]
    rows["bth"] = bth
    rows["payload"] = bth + np.minimum(headers, available)
    length = np.maximum(wire - headers - head["padcnt"] - opcodes.ICRC_BYTES, 0)
    rows["length"] = length
    rows["captured"] = np.clip(available - headers, 0, length)
    rows["source"], rows["destination"], rows["source_port"] = source, destination, port
    rows["opcode"], rows["dest_qp"], rows["psn"] = opcode, head["dest_qp"], head["psn"]
    rows["pad"], rows["ecn"] = head["padcnt"], ecn
    rows["headers"], rows["transport"] = available >= headers, transport
    rows["flags"] = (
        head["a"] * FLAG_ACK_REQUEST
        | head["se"] * FLAG_SOLICITED
        | head["becn"] * FLAG_BECN
        | head["fecn"] * FLAG_FECN
        | head["m"] * FLAG_MIGRATION
    )
    opcodes_used = places(np.bincount(opcode))
    for header, columns in _COLUMNS.items():
        if some(opcodes.OFFSET[header][opcodes_used]):
            _fill(rows, data, bth, available, opcodes.OFFSET[header][opcode], compiled(header), columns)
    return PacketBatch(data, rows, skipped, batch)


def _fill(
    rows: Rows,
    data: Bytes,
    bth: Int64s,
    available: Int64s,
    offsets: Int64s,
    extractor: Extractor,
    columns: dict[str, str],
) -> None:
    """Fill in one extended header's columns; ``offsets``: from the BTH, 0 for packets without it."""
    where = places((offsets > 0) & (available >= offsets + extractor.size))
    if not len(where):
        return
    values = extractor(data, bth[where] + offsets[where], columns)
    for name, column in columns.items():
        rows[column][where] = values[name]
