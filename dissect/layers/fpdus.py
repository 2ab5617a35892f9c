"""FPDUs in a TCP stream: their length, their CRC32C and the markers between (RFC 5044, section 4), as pure functions.

A stream is what one end sends behind its MPA Request or Reply.  ``position`` is where in that stream a stretch of
it begins, markers counted: the first marker stands at position 0, and one more every 512 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from fastcrc.crc32 import iscsi

from ..arrays import Int64s
from ..named_tuple import NamedTuple

MARKER_BYTES = 4
MARKER_INTERVAL = 512
"""From one marker to the next, the marker itself included (RFC 5044, 4.3)."""
BETWEEN_MARKERS = MARKER_INTERVAL - MARKER_BYTES
LENGTH_BYTES, CRC_BYTES = 2, 4

Places = TypeVar("Places", int, Int64s)


class Marker(NamedTuple):
    """A marker in a stretch of stream (RFC 5044, 4.2)."""

    at: int
    """Offset of its first byte."""
    reserved: int
    fpduptr: int
    """Bytes from the ULPDU_Length of its FPDU to the marker; 0 where the FPDU begins behind it."""


class Framed(NamedTuple):
    """One FPDU of a stretch of stream."""

    at: int
    """Offset of its first byte, which is a marker's where one stands before it."""
    wire: bytes
    """As sent, markers included: what the CRC covers, and the CRC."""
    fpdu: bytes
    """Without markers."""


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The CRC of ``data`` as FPDUs carry it, its four bytes read big-endian (RFC 5044, 4.4)."""
    return int.from_bytes(iscsi(data).to_bytes(CRC_BYTES, "little"), "big")


def verify_crc(fpdu: bytes | bytearray | memoryview) -> bool | None:
    """Whether the CRC at the end of a whole FPDU, with the markers it was sent with, is right.

    None where there are too few bytes for any FPDU.
    """
    if len(fpdu) < LENGTH_BYTES + CRC_BYTES:
        return None
    return crc32c(fpdu[:-CRC_BYTES]) == int.from_bytes(fpdu[-CRC_BYTES:], "big")


def pad_bytes(ulpdu_length: int) -> int:
    """Pad bytes behind a ULPDU, so that length, ULPDU and pad are a multiple of four (RFC 5044, 4.1)."""
    return -(LENGTH_BYTES + ulpdu_length) % 4


def fpdu_bytes(ulpdu_length: Places) -> Places:
    """Bytes of an FPDU, or of many: length, ULPDU, pad and CRC, without markers."""
    return (ulpdu_length + (LENGTH_BYTES + 3) & ~3) + CRC_BYTES


@dataclass(frozen=True, slots=True)
class MarkerGrid:
    """Where the markers of a stream stand: at ``base`` and every 512 bytes before and behind it.

    A *position* counts markers, a *place* does not; at ``base`` both are the same number.
    """

    base: int

    def first(self, position: int) -> int:
        """Position of the first marker at or behind a position."""
        return position + (self.base - position) % MARKER_INTERVAL

    def between(self, start: int, stop: int) -> range:
        """Positions of the markers that begin in [start, stop)."""
        return range(self.first(start), stop, MARKER_INTERVAL)

    def position(self, place: Places) -> Places:
        """The position of the byte at a place."""
        return self.base + (place - self.base) // BETWEEN_MARKERS * MARKER_BYTES + (place - self.base) + MARKER_BYTES

    def start(self, place: Places) -> Places:
        """The position where an FPDU at a place begins: a marker that stands just before it belongs to it."""
        inside = (place - self.base) % BETWEEN_MARKERS
        before: Places = self.position(place) - MARKER_BYTES * (inside == 0)
        return before

    def place(self, position: Places) -> Places:
        """The place of the byte at a position, or, where that is a marker, of the byte behind this."""
        block, inside = (position - self.base) // MARKER_INTERVAL, (position - self.base) % MARKER_INTERVAL
        return self.base + block * BETWEEN_MARKERS + (inside - MARKER_BYTES) * (inside > MARKER_BYTES)

    def data(self, starts: Int64s, stops: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """The data in ranges [start, stop) of positions, split at markers: the index of the range, start and stop."""
        first = (starts - self.base) // MARKER_INTERVAL
        blocks = np.maximum((stops - 1 - self.base) // MARKER_INTERVAL - first + 1, 0)
        owner = np.repeat(np.arange(len(starts)), blocks)
        block = first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
        marker: Int64s = self.base + block * MARKER_INTERVAL
        low = np.maximum(starts[owner], marker + MARKER_BYTES)
        high = np.minimum(stops[owner], marker + MARKER_INTERVAL)
        there = high > low
        return owner[there], low[there], high[there]


def insert_markers(fpdus: Iterable[bytes], position: int = 0, crc: bool = True) -> bytes:
    """The stream of whole FPDUs with its markers; with ``crc`` their CRCs, which cover the markers, are made anew."""
    stream = bytearray()
    for fpdu in fpdus:
        start = len(stream)
        length = None  # where ULPDU_Length stands
        for part, size in ((fpdu, len(fpdu) - CRC_BYTES), (fpdu[-CRC_BYTES:], CRC_BYTES)):
            at = 0
            while at < size:
                if (position + len(stream)) % MARKER_INTERVAL == 0:
                    distance = 0 if length is None else len(stream) - length
                    stream += distance.to_bytes(MARKER_BYTES, "big")
                if length is None:
                    length = len(stream)
                if crc and part is not fpdu:
                    part = crc32c(stream[start:]).to_bytes(CRC_BYTES, "big")
                room = MARKER_INTERVAL - (position + len(stream)) % MARKER_INTERVAL
                stream += part[at : min(size, at + room)]
                at += room
    return bytes(stream)


def remove_markers(stream: bytes, position: int = 0) -> tuple[bytes, list[Marker]]:
    """The stream without its markers, and these; one that ends or begins outside the stretch is left out."""
    grid = MarkerGrid(-position)
    _, low, high = grid.data(np.array([0]), np.array([len(stream)]))
    data = b"".join(stream[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True))
    markers = [
        Marker(at, int.from_bytes(stream[at : at + 2], "big"), int.from_bytes(stream[at + 2 : at + 4], "big"))
        for at in grid.between(0, len(stream) - MARKER_BYTES + 1)
    ]
    return data, markers


def split_fpdus(stream: bytes, position: int | None = None) -> list[Framed]:
    """The FPDUs of a stretch of stream that begins with one, up to the first that is truncated.

    ``position`` is given where the sender inserts markers.
    """
    data, grid = stream, None
    if position is not None:
        data, grid = remove_markers(stream, position)[0], MarkerGrid(-position)
    first = 0 if grid is None else grid.place(0)
    fpdus: list[Framed] = []
    at = 0
    while at + LENGTH_BYTES <= len(data):
        end = at + fpdu_bytes(int.from_bytes(data[at : at + LENGTH_BYTES], "big"))
        if end > len(data):
            break
        start, stop = (at, end) if grid is None else (max(0, grid.start(first + at)), grid.start(first + end))
        fpdus.append(Framed(start, stream[start:stop], data[at:end]))
        at = end
    return fpdus
