"""Writes pcapng: one section, one interface, time stamps in nanoseconds."""

from __future__ import annotations

import struct
from typing import BinaryIO

from .blocks import COMMENT, END_OF_OPTIONS, IF_TSRESOL
from .pcapng import ENHANCED, INTERFACE, SECTION

BYTE_ORDER_MAGIC = 0x1A2B3C4D
UNKNOWN_LENGTH = -1


class PcapngWriter:
    """Writes frames to a binary file, little-endian; the file stays the caller's to close."""

    def __init__(self, file: BinaryIO, link_type: int, snaplen: int = 0) -> None:
        self._file = file
        self._block(SECTION, struct.pack("<IHHq", BYTE_ORDER_MAGIC, 1, 0, UNKNOWN_LENGTH))
        resolution = _option(IF_TSRESOL, b"\x09") + _option(END_OF_OPTIONS, b"")
        self._block(INTERFACE, struct.pack("<HxxI", link_type, snaplen) + resolution)

    def write(self, time: int, frame: bytes, original_length: int | None = None, comment: str | None = None) -> None:
        """One frame; ``time`` is nanoseconds since the epoch, not negative."""
        original = len(frame) if original_length is None else original_length
        head = struct.pack("<IIIII", 0, time >> 32, time & 0xFFFFFFFF, len(frame), original)
        options = b""
        if comment is not None:
            options = _option(COMMENT, comment.encode()[:0xFFFF]) + _option(END_OF_OPTIONS, b"")
        self._block(ENHANCED, head + frame + bytes(-len(frame) % 4) + options)

    def _block(self, kind: int, body: bytes) -> None:
        length = struct.pack("<I", len(body) + 12)
        self._file.write(struct.pack("<I", kind) + length + body + length)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)
