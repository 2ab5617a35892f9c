"""MPA: Request and Reply frames (RFC 5044, 7.1; RFC 6581, 9), sizes, markers (4.3) and CRC (4.4) of FPDUs."""

from __future__ import annotations

from dataclasses import dataclass

import google_crc32c
import numpy as np

from ...arrays import Int64s, Rows
from ...layers.iwarp_codes import REPLY_KEY, REQUEST_KEY
from ...layers.private_data_codes import PrivateData, find_private_data

HEADER = 20
MAX_PRIVATE_DATA = 512

MARKERS, CRC, REJECT, ENHANCED = 0x80, 0x40, 0x20, 0x10

MARKER = 4
SPACING = 512
"""Bytes from one marker to the next."""
BETWEEN = SPACING - MARKER


@dataclass(frozen=True, slots=True)
class MPAFrame:
    """A Request or a Reply."""

    request: bool
    markers: bool
    """Its sender wants to receive markers."""
    crc: bool
    reject: bool
    revision: int
    private_data: bytes
    """What of it was captured; the RFC 6581 words included."""
    complete: bool
    """All private data were captured."""
    ird: int | None = None
    """RFC 6581: RDMA Reads it can answer at one time; None without enhanced set-up."""
    ord: int | None = None
    """RFC 6581: RDMA Reads it will issue at one time."""
    peer_to_peer: bool = False
    ready: tuple[str, ...] = ()
    """RFC 6581: what may be the first message of the active side: 'FPDU', 'Write', 'Read'."""

    @property
    def rpcrdma(self) -> PrivateData | None:
        """The RFC 8797 message in the private data."""
        found = find_private_data(self.private_data)
        return found[0] if found else None


def is_mpa(head: bytes) -> bool:
    return head[:16] in (REQUEST_KEY, REPLY_KEY)


def mpa_length(head: bytes) -> int:
    """Bytes of the Request or Reply that begins with ``head``, at least 20 of them."""
    return HEADER + int.from_bytes(head[18:20], "big")


def mpa_frame(data: bytes) -> MPAFrame | None:
    """Decode a Request or Reply, whose private data may be cut; None where it is none."""
    if not is_mpa(data) or len(data) < HEADER:
        return None
    flags, revision = data[16], data[17]
    length = mpa_length(data)
    if length - HEADER > MAX_PRIVATE_DATA:
        return None
    private = data[HEADER:length]
    ird = ord_ = None
    peer, ready = False, []
    if revision >= 2 and flags & ENHANCED and len(private) >= 4:
        first, second = int.from_bytes(private[:2], "big"), int.from_bytes(private[2:4], "big")
        ird, ord_ = first & 0x3FFF, second & 0x3FFF
        peer = bool(first & 0x8000)
        for word, bit, name in ((first, 0x4000, "FPDU"), (second, 0x8000, "Write"), (second, 0x4000, "Read")):
            if word & bit:
                ready.append(name)
    return MPAFrame(
        data[:16] == REQUEST_KEY,
        bool(flags & MARKERS),
        bool(flags & CRC),
        bool(flags & REJECT),
        revision,
        private,
        len(data) >= length,
        ird,
        ord_,
        peer,
        tuple(ready),
    )


def fpdu_bytes(length: int) -> int:
    """Bytes of an FPDU with ``length`` ULPDU bytes: length field, ULPDU, pad and CRC, but no marker."""
    return (length + 5 & ~3) + 4


def without_markers(rows: Rows, base: int) -> Rows:
    """STRETCH rows without the markers in them, and with positions as if they had never been.

    ``base``: position of a marker; all are ``SPACING`` apart.  Rows before it are dropped.
    """
    start = rows["at"] - base
    end = start + rows["length"]
    first = np.maximum(start, 0) // SPACING
    blocks = np.maximum((end - 1) // SPACING - first + 1, 0)
    owner = np.repeat(np.arange(len(rows)), blocks)
    block: Int64s = first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    low = np.maximum(start[owner], block * SPACING + MARKER)
    high = np.minimum(end[owner], (block + 1) * SPACING)
    there = high > low
    owner, block, low, high = owner[there], block[there], low[there], high[there]
    out: Rows = rows[owner]
    skipped = low - start[owner]
    out["at"] = base + low - (block + 1) * MARKER
    out["payload"] += skipped
    out["length"] = high - low
    out["captured"] = np.clip(out["captured"] - skipped, 0, high - low)
    return out


def with_markers(at: int, base: int) -> int:
    """Where an FPDU at ``at``, a position without markers, begins in the stream; a marker just before it is its."""
    block, inside = divmod(at - base, BETWEEN)
    return base + block * SPACING + (inside + MARKER if inside else 0)


def crc_ok(fpdu: bytes) -> bool:
    """Whether a whole FPDU, markers included, ends with its CRC32C, which goes low byte first."""
    return bool(google_crc32c.value(fpdu[:-4]) == int.from_bytes(fpdu[-4:], "little"))
