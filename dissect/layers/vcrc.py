"""The Variant CRC of native InfiniBand packets: computed and verified on bytes, one packet or a column of them.

The VCRC is a CRC-16 (polynomial 0x100B, seed of ones, complemented, least significant bit first) over all bytes
from the Local Route Header to the ICRC.  Every switch computes it anew.  IBA volume 1, 7.8.2.

Here a VCRC is the integer that its two bytes on the wire make when read big-endian, as Wireshark shows it; the
CRC itself goes out least significant byte first.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows
from ..frames import FrameBatch
from .icrc import lrh_starts, packet_ends

VCRC_BYTES = 2
POLYNOMIAL = 0xD008
"""0x100B, reflected."""
SLAB = 1 << 22
"""Bytes that are looked at together."""


@cache
def _steps() -> NDArray[np.uint16]:
    """What a byte makes of a CRC of zero."""
    crc = np.arange(256, dtype=np.uint16)
    for _ in range(8):
        crc = (crc >> np.uint16(1)) ^ (crc & np.uint16(1)) * np.uint16(POLYNOMIAL)
    return crc


@cache
def _tables(size: int) -> NDArray[np.uint16]:
    """What a byte at the i-th place of ``size`` bytes adds to their CRC, shape (size, 256)."""
    steps = _steps()
    tables = np.empty((size, 256), np.uint16)
    tables[-1] = steps
    for place in range(size - 2, -1, -1):
        after = tables[place + 1]
        tables[place] = (after >> np.uint16(8)) ^ steps[after & np.uint16(0xFF)]
    return tables


def vcrc(packet: bytes | bytearray | memoryview) -> int:
    """The VCRC that belongs behind ``packet``, which runs from the Local Route Header to the ICRC."""
    steps = _steps().tolist()
    crc = 0xFFFF
    for byte in bytes(packet):
        crc = crc >> 8 ^ steps[(crc ^ byte) & 0xFF]
    return int.from_bytes((crc ^ 0xFFFF).to_bytes(2, "little"), "big")


def verify_vcrc(packet: bytes | bytearray | memoryview) -> bool | None:
    """Whether the VCRC behind ``packet``, which starts with its Local Route Header, is right; None where truncated."""
    packet = bytes(packet)
    if len(packet) < 8:
        return None
    end = (int.from_bytes(packet[4:6], "big") & 0x7FF) * 4
    if end < 8 or len(packet) < end + VCRC_BYTES:
        return None
    return vcrc(packet[:end]) == int.from_bytes(packet[end : end + VCRC_BYTES], "big")


def vcrc_ok(batch: FrameBatch, rows: Rows) -> list[bool | None]:
    """Whether the VCRCs of some packets of a batch are right; None where there is none, or it was not captured.

    ``rows`` are PACKET rows that were decoded from ``batch``.
    """
    data = batch.data
    verdicts: list[bool | None] = [None] * len(rows)
    frames = batch.rows[np.searchsorted(batch.rows["number"], rows["frame"])]
    stop = frames["offset"] + frames["captured"]
    end = packet_ends(rows)
    start = lrh_starts(data, rows, frames["offset"], end)
    whole = np.flatnonzero((start >= 0) & (end + VCRC_BYTES <= stop))
    sizes = (end - start)[whole]
    order = np.argsort(sizes, kind="stable")
    whole, sizes = whole[order], sizes[order]
    for same in np.split(whole, np.flatnonzero(np.diff(sizes)) + 1) if len(whole) else []:
        size = int(end[same[0]] - start[same[0]])
        for at in range(0, len(same), max(1, SLAB // size)):
            part = same[at : at + max(1, SLAB // size)]
            good = _column(data, start[part], size) == _stored(data, end[part])
            for index, verdict in zip(part.tolist(), good.tolist(), strict=True):
                verdicts[index] = verdict
    return verdicts


def _column(data: Bytes, start: Int64s, size: int) -> NDArray[np.uint16]:
    """The CRCs of packets of one size, at least 24 bytes."""
    packets = data[start[:, None] + np.arange(size)]
    packets[:, :2] ^= 0xFF  # the seed
    parts = _tables_of(size)[np.arange(size), packets]
    crc: NDArray[np.uint16] = ~np.bitwise_xor.reduce(parts, axis=1)
    return crc


def _tables_of(size: int) -> NDArray[np.uint16]:
    """The tables for the last ``size`` places; made for a power of two, so that few sizes make them anew."""
    room = 512
    while room < size:
        room *= 2
    return _tables(room)[-size:]


def _stored(data: Bytes, at: Int64s) -> NDArray[np.uint16]:
    return data[at].astype(np.uint16) | data[at + 1].astype(np.uint16) << np.uint16(8)
