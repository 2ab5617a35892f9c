"""MPA, DDP and RDMAP bytes, written with struct alone (RFC 5044, 5041, 5040, 6581)."""

from __future__ import annotations

import struct

from fastcrc.crc32 import iscsi

WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_INVALIDATE, SEND_SE, SEND_SE_INVALIDATE, TERMINATE = range(8)
SEND_QUEUE, READ_QUEUE, TERMINATE_QUEUE = range(3)
UNTAGGED_BYTES, TAGGED_BYTES = 18, 14
SPACING = 512


def startup(
    reply: bool, private: bytes, *, markers: bool, crc: bool, revision: int = 1, reject: bool = False, s: bool = False
) -> bytes:
    """An MPA Request or Reply frame (RFC 5044, 7.1.1); ``s``: the private data begin with IRD and ORD (RFC 6581, 6)."""
    flags = markers << 7 | crc << 6 | reject << 5 | s << 4
    key = b"MPA ID Rep Frame" if reply else b"MPA ID Req Frame"
    return key + struct.pack(">BBH", flags, revision, len(private)) + private


def enhanced(ird: int, ord: int, *, peer: bool = False, ready: str = "") -> bytes:
    """The words before the private data (RFC 6581, 9); ``ready``: ready-to-receive messages, of 'F', 'W' and 'R'."""
    return struct.pack(
        ">HH", peer << 15 | ("F" in ready) << 14 | ird, ("W" in ready) << 15 | ("R" in ready) << 14 | ord
    )


def untagged(opcode: int, queue: int, msn: int, offset: int, last: bool, invalidate: int = 0) -> bytes:
    """RFC 5041, 4.3."""
    return struct.pack(">BBIIII", last << 6 | 1, 0x40 | opcode, invalidate, queue, msn & 0xFFFFFFFF, offset)


def tagged(opcode: int, stag: int, offset: int, last: bool) -> bytes:
    """RFC 5041, 4.2."""
    return struct.pack(">BBIQ", 0x80 | last << 6 | 1, 0x40 | opcode, stag, offset & (1 << 64) - 1)


def read_request(sink: int, sink_offset: int, length: int, source: int, source_offset: int) -> bytes:
    """RFC 5040, 4.4."""
    return struct.pack(">IQIIQ", sink, sink_offset, length, source, source_offset & (1 << 64) - 1)


def terminate(layer: int, error_type: int, code: int, quoted: bytes = b"", length: int = 0) -> bytes:
    """RFC 5040, 4.8; ``quoted`` is a DDP header, with the RDMAP header behind it where it is longer."""
    bits = (bool(quoted) << 7 | bool(quoted) << 6 | (len(quoted) > UNTAGGED_BYTES) << 5) if quoted else 0
    text = struct.pack(">BBBB", layer << 4 | error_type, code, bits, 0)
    return text + struct.pack(">H", length) + quoted if quoted else text


def crc(data: bytes | bytearray) -> bytes:
    """CRC32C as an FPDU ends with it (RFC 5044, 4.4)."""
    return struct.pack("<I", iscsi(data))


def fpdu(ulpdu: bytes, position: int | None = None, filler: bytes | None = None) -> bytes:
    """An FPDU (RFC 5044, 4.1 to 4.3).

    ``position``: where it begins in what its sender sends in full operation, where that has markers.
    ``filler``: four bytes instead of the CRC, where CRCs are not in use.
    """
    body = struct.pack(">H", len(ulpdu)) + ulpdu
    body += bytes(-len(body) % 4)
    out = bytearray()
    start: int | None = None  # of the length

    def marker() -> None:
        if position is not None and (position + len(out)) % SPACING == 0:
            out.extend(struct.pack(">HH", 0, 0 if start is None else len(out) - start))

    if position is None:
        out += body
    else:
        for at in range(0, len(body), 4):
            marker()
            start = len(out) if start is None else start
            out += body[at : at + 4]
        marker()
    return bytes(out) + (crc(out) if filler is None else filler)
