"""MPA Request and Reply frames (RFC 5044, 7.1; RFC 6581, 9)."""

from __future__ import annotations

from dataclasses import dataclass

from ...layers.iwarp_codes import REPLY_KEY, REQUEST_KEY
from ...layers.private_data_codes import PrivateData, find_private_data

HEADER = 20
MAX_PRIVATE_DATA = 512

MARKERS, CRC, REJECT, ENHANCED = 0x80, 0x40, 0x20, 0x10


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
    """Decode a Request or Reply, whose private data may be truncated; None where it is none."""
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
