"""FPDUs in a TCP stream: their CRC32C and the markers between (RFC 5044, section 4), as pure functions.

A stream is what one end sends behind its MPA Request or Reply.  ``position`` is where in that stream a stretch of
it begins, markers counted: the first marker stands at position 0, and one more every 512 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import google_crc32c

MARKER_BYTES = 4
MARKER_INTERVAL = 512
"""From one marker to the next, the marker itself included (RFC 5044, 4.3)."""
LENGTH_BYTES, CRC_BYTES = 2, 4
_BETWEEN = MARKER_INTERVAL - MARKER_BYTES


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
    value: int = google_crc32c.value(bytes(data))
    return int.from_bytes(value.to_bytes(CRC_BYTES, "little"), "big")


def verify_crc(fpdu: bytes | bytearray | memoryview) -> bool | None:
    """Whether the CRC at the end of a whole FPDU, with the markers it was sent with, is right; None where it is cut."""
    if len(fpdu) < LENGTH_BYTES + CRC_BYTES:
        return None
    return crc32c(fpdu[:-CRC_BYTES]) == int.from_bytes(fpdu[-CRC_BYTES:], "big")


def pad_bytes(ulpdu_length: int) -> int:
    """Pad bytes behind a ULPDU, so that length, ULPDU and pad are a multiple of four (RFC 5044, 4.1)."""
    return -(LENGTH_BYTES + ulpdu_length) % 4


def fpdu_bytes(ulpdu_length: int) -> int:
    """Bytes of an FPDU: length, ULPDU, pad and CRC, without markers."""
    return LENGTH_BYTES + ulpdu_length + pad_bytes(ulpdu_length) + CRC_BYTES


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
    """The stream without its markers, and these; one that is cut at the end is left out."""
    data = bytearray()
    markers: list[Marker] = []
    first = -position % MARKER_INTERVAL
    data += stream[:first]
    for at in range(first, len(stream), MARKER_INTERVAL):
        marker = stream[at : at + MARKER_BYTES]
        if len(marker) == MARKER_BYTES:
            markers.append(Marker(at, int.from_bytes(marker[:2], "big"), int.from_bytes(marker[2:], "big")))
        data += stream[at + MARKER_BYTES : at + MARKER_INTERVAL]
    return bytes(data), markers


def split_fpdus(stream: bytes, position: int | None = None) -> list[Framed]:
    """The FPDUs of a stretch of stream that begins with one, up to the first that is cut.

    ``position`` is given where the sender inserts markers.
    """
    data = stream if position is None else remove_markers(stream, position)[0]
    found: list[Framed] = []
    at = 0
    while at + LENGTH_BYTES <= len(data):
        end = at + fpdu_bytes(int.from_bytes(data[at : at + LENGTH_BYTES], "big"))
        if end > len(data):
            break
        start, stop = (at, end) if position is None else (_place(at, position), _place(end, position))
        found.append(Framed(start, stream[start:stop], data[at:end]))
        at = end
    return found


def _place(at: int, position: int) -> int:
    """Where in the stream byte ``at`` of its data stands, or the marker just before that."""
    first = -position % MARKER_INTERVAL
    before = 0 if at <= first else -(-(at - first) // _BETWEEN)
    return at + before * MARKER_BYTES
