"""Writes pcapng: one section, time stamps in nanoseconds.

https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/; the numbers in parentheses are its sections.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

import numpy as np

from rdmascope.dissect.arrays import Bytes, Rows, gather, scatter
from rdmascope.dissect.frames import FrameBatch

from ..read.pcapng import (
    COMMENT,
    END_OF_OPTIONS,
    ENHANCED,
    IF_FILTER,
    IF_NAME,
    IF_TSRESOL,
    INTERFACE,
    ISB_OS_DROPPED,
    ISB_RECEIVED,
    SECTION,
    SHB_APPLICATION,
    STATISTICS,
)

BYTE_ORDER_MAGIC = 0x1A2B3C4D
UNKNOWN_LENGTH = -1

_HEAD = np.dtype([(name, "<u4") for name in ("kind", "size", "interface", "high", "low", "captured", "original")])


_END = struct.pack("<HH", END_OF_OPTIONS, 0)
_OPTION = struct.Struct("<HH")
_PADDING = b"", bytes(3), bytes(2), bytes(1)
"""Behind bytes, by their number modulo 4."""
_PACKET = struct.Struct("<IIIIIII")
"""What an Enhanced Packet Block begins with."""


class PcapngWriter:
    """Writes frames to a binary file, little-endian; the file stays the caller's to close."""

    def __init__(
        self,
        file: BinaryIO,
        link_type: int | None,
        snaplen: int = 0,
        *,
        name: str = "",
        filter: str = "",
        application: str = "",
    ) -> None:
        """``name`` and ``filter`` of the interface, where it was captured here; no ``link_type``: no interface yet."""
        self._file = file
        about_section = _options({SHB_APPLICATION: application.encode()})
        self._block(SECTION, struct.pack("<IHHq", BYTE_ORDER_MAGIC, 1, 0, UNKNOWN_LENGTH) + about_section)
        self.interfaces = 0
        if link_type is not None:
            self.add_interface(link_type, snaplen, name, filter)

    def add_interface(self, link_type: int, snaplen: int = 0, name: str = "", filter: str = "") -> int:
        """Describe another interface; gives its number."""
        # The filter is a string in libpcap's words (4.2): its first byte, 0, says so.
        words = b"\0" + filter.encode() if filter else b""
        about = _options({IF_NAME: name.encode(), IF_TSRESOL: b"\x09", IF_FILTER: words})
        self._block(INTERFACE, struct.pack("<HxxI", link_type, snaplen) + about)
        self.interfaces += 1
        return self.interfaces - 1

    def write(
        self,
        time: int,
        frame: bytes,
        original_length: int | None = None,
        comment: str | None = None,
        interface: int = 0,
    ) -> None:
        """One frame; ``time`` is nanoseconds since the epoch, where one before it cannot be written: it becomes 0."""
        original = len(frame) if original_length is None else original_length
        time = max(time, 0)
        options = b"" if comment is None else _option(COMMENT, comment.encode()[:0xFFFF]) + _END
        captured, padding = len(frame), _PADDING[len(frame) & 3]
        size = 32 + captured + len(padding) + len(options)
        head = _PACKET.pack(ENHANCED, size, interface, time >> 32, time & 0xFFFFFFFF, captured, original)
        self._file.write(b"".join((head, frame, padding, options, size.to_bytes(4, "little"))))

    def write_batch(self, batch: FrameBatch) -> int:
        """All frames of a batch, without their comments; gives the bytes written."""
        blocks = enhanced_blocks(batch.data, batch.rows)
        self._file.write(blocks.data)
        return len(blocks)

    def statistics(self, time: int, received: int, dropped: int | None) -> None:
        """What the kernel counted up to ``time``: frames that passed the filter, and those of them that it lost, where
        that is known."""
        lost = b"" if dropped is None else struct.pack("<Q", dropped)
        counters = _options({ISB_RECEIVED: struct.pack("<Q", received), ISB_OS_DROPPED: lost})
        self._block(STATISTICS, struct.pack("<III", 0, time >> 32, time & 0xFFFFFFFF) + counters)

    def _block(self, kind: int, body: bytes) -> None:
        length = struct.pack("<I", len(body) + 12)
        self._file.write(struct.pack("<I", kind) + length + body + length)


def _option(code: int, value: bytes) -> bytes:
    return _OPTION.pack(code, len(value)) + value + _PADDING[len(value) & 3]


def _options(values: dict[int, bytes]) -> bytes:
    """The options that have a value, and the end-of-options option."""
    there = b"".join(_option(code, value) for code, value in values.items() if value)
    return there + _option(END_OF_OPTIONS, b"") if there else b""


def enhanced_blocks(data: Bytes, rows: Rows) -> Bytes:
    """Enhanced Packet Blocks (4.3) of FRAME rows, of interface 0, one after the other."""
    captured = rows["captured"].astype(np.int64)
    sizes = _HEAD.itemsize + (captured + 3 & ~3) + 4
    ends = np.cumsum(sizes)
    starts = ends - sizes
    blocks = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    heads = np.zeros(len(rows), _HEAD)
    heads["kind"], heads["size"] = ENHANCED, sizes
    heads["high"], heads["low"] = rows["time"] >> 32, rows["time"] & 0xFFFFFFFF
    heads["captured"], heads["original"] = captured, rows["original"]
    scatter(blocks, starts, heads)
    scatter(blocks, ends - 4, sizes.astype("<u4"))
    # Frames of one size are copied together: there are few sizes and many frames.
    for size in np.unique(captured).tolist():
        if size:
            which = np.flatnonzero(captured == size)
            scatter(blocks, starts[which] + _HEAD.itemsize, gather(data, rows["offset"][which], f"V{size}"))
    return blocks
