"""TCP segments in columns.

All multi-byte header fields are big-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, take
from ..frames import FrameBatch
from .addresses import AddressTable
from .numbers import TCP
from .walk import fill_addresses

SEGMENT = np.dtype(
    [
        ("frame", "i8"),  # frame number
        ("time", "i8"),  # nanoseconds since the Unix epoch
        ("ip", "i8"),  # offsets of the IP header, the TCP header and the payload in FrameBatch.data
        ("header", "i8"),
        ("payload", "i8"),
        ("length", "i4"),  # payload bytes on the wire
        ("captured", "i4"),  # payload bytes in the capture
        ("source", "u4"),  # address ids
        ("destination", "u4"),
        ("source_port", "u2"),
        ("destination_port", "u2"),
        ("seq", "u4"),
        ("ack", "u4"),
        ("window", "u2"),  # as it is in the header, not scaled
        ("checksum", "u2"),
        ("flags", "u1"),
        ("version", "u1"),  # of IP
    ]
)

FIN, SYN, RST, PSH, ACK, URG, ECE, CWR = 1, 2, 4, 8, 16, 32, 64, 128
"""RFC 9293, 3.1."""

HEADER = 20
END_OF_OPTIONS, NO_OPERATION, WINDOW_SCALE, SACK = 0, 1, 3, 5
"""RFC 9293, 3.2; RFC 7323, 2; RFC 2018, 3."""
SHORT = 512
"""Bytes up to which NumPy takes longer to start than to add."""
LARGEST = 1 << 20
"""Payload bytes that a segment can have; network cards send and receive up to half of it in one piece."""

_HEADER = np.dtype(
    {
        "names": ["source_port", "destination_port", "seq", "ack", "offset", "flags", "window", "checksum"],
        "formats": [">u2", ">u2", ">u4", ">u4", "u1", "u1", ">u2", ">u2"],
        "offsets": [0, 2, 4, 8, 12, 13, 14, 16],
        "itemsize": HEADER,
    }
)


def locate_tcp(batch: FrameBatch, walks: list[Rows], addresses: AddressTable) -> Rows:
    """SEGMENT rows, in capture order, of the frames that ``walks`` (``Located.tcp``) say carry TCP.

    Frames truncated inside the fixed header, and those whose header contradicts itself, give none.  A payload that IP
    announces but the frame does not hold counts in ``length``.
    """
    walk = np.concatenate(walks) if len(walks) > 1 else walks[0]
    walk = take(walk, walk["at"] + HEADER <= walk["end"])
    if (np.diff(walk["row"]) < 0).any():
        walk = take(walk, np.argsort(walk["row"], kind="stable"))
    if not len(walk):
        return np.zeros(0, SEGMENT)
    data = batch.data
    overlapping: Rows = np.ndarray((len(data) - HEADER + 1,), np.dtype((np.void, HEADER)), data, strides=(1,))
    heads = overlapping[walk["at"]].view(_HEADER)
    header = (heads["offset"] >> 4).astype(np.int64) * 4
    payload: Int64s = walk["at"] + header
    # A length of 0 in the IP header is that of a packet the network card has yet to split.
    least = walk["ip"] + np.where(walk["version"] == 6, 40, 0)
    announced = np.where(walk["ip_end"] > least, walk["ip_end"], walk["wire_end"])
    good = (header >= HEADER) & (payload <= announced)
    length = announced - payload
    rows = np.zeros(len(walk), SEGMENT)
    frames = batch.rows if len(walk) == len(batch.rows) else take(batch.rows, walk["row"])
    rows["frame"], rows["time"] = frames["number"], frames["time"]
    rows["payload"], rows["length"] = payload, np.clip(length, 0, LARGEST)
    rows["captured"] = np.clip(walk["end"] - payload, 0, rows["length"])
    rows["ip"], rows["header"], rows["version"] = walk["ip"], walk["at"], walk["version"]
    for name in ("source_port", "destination_port", "seq", "ack", "flags", "window", "checksum"):
        rows[name] = heads[name]
    fill_addresses(data, walk, addresses, rows)
    return rows if good.all() else take(rows, good)


def options(data: Bytes, header: int, payload: int) -> Iterator[tuple[int, bytes]]:
    """Kind and contents of the options of a segment, up to the first that contradicts itself (RFC 9293, 3.2)."""
    field = data[header + HEADER : min(payload, len(data))].tobytes()
    at = 0
    while at < len(field) and field[at] != END_OF_OPTIONS:
        size = 1 if field[at] == NO_OPERATION else field[at + 1] if at + 1 < len(field) else 0
        if not size or (size == 1 and field[at] != NO_OPERATION):
            return
        yield field[at], field[at + 2 : at + size]
        at += size


def sack_blocks(data: Bytes, header: int, payload: int) -> list[tuple[int, int]]:
    """The blocks of a selective acknowledgement: sequence numbers [left, right) (RFC 2018, 3)."""
    for kind, contents in options(data, header, payload):
        if kind == SACK:
            edges = [int.from_bytes(contents[at : at + 4], "big") for at in range(0, len(contents) - 3, 4)]
            return list(zip(edges[::2], edges[1::2], strict=False))
    return []


class Checksums(NamedTuple):
    """What the checksums of segments say (RFC 9293, 3.1).

    Neither right nor wrong: those without payload or truncated by the capture, and those whose checksum is left for a
    network card to complete.
    """

    right: NDArray[np.bool_]
    wrong: NDArray[np.bool_]
    payload: Int64s
    """The sum of the payload's 16-bit words, padded with zero, modulo 65,535; -1 where it was not captured whole."""


def checksums(data: Bytes, rows: Rows) -> Checksums:
    """Verify those of SEGMENT rows."""
    right, wrong = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    sums = np.full(len(rows), -1, np.int64)
    whole = np.flatnonzero((rows["captured"] == rows["length"]) & (rows["length"] > 0))
    view = data.data
    ends = rows["payload"][whole] + rows["length"][whole]
    for index, ip, start, payload, end, version in zip(
        whole.tolist(),
        rows["ip"][whole].tolist(),
        rows["header"][whole].tolist(),
        rows["payload"][whole].tolist(),
        ends.tolist(),
        rows["version"][whole].tolist(),
        strict=True,
    ):
        addresses = view[ip + 8 : ip + 40] if version == 6 else view[ip + 12 : ip + 20]
        pseudo = int.from_bytes(addresses, "big") + end - start + TCP
        body = sums[index] = _sum(view, payload, end) % 0xFFFF
        # A header is a multiple of 32 bits, so that the words of the payload are those of the segment.
        if (pseudo + int.from_bytes(view[start:payload], "big") + body) % 0xFFFF == 0:
            right[index] = True
        else:
            wrong[index] = (pseudo - (view[start + 16] << 8 | view[start + 17])) % 0xFFFF != 0
    return Checksums(right, wrong, sums)


def _sum(view: memoryview, start: int, end: int) -> int:
    """What is modulo 65,535 the sum of the 16-bit words of a range, padded with zero.

    65,536 is 1, so wider words add up to the same, and words read with their bytes exchanged to 256 times that.
    """
    length = end - start
    if length < SHORT:
        return int.from_bytes(view[start:end], "big") << 8 * (length % 2)
    words = np.frombuffer(view, "<u4", length // 4, start)
    rest = int.from_bytes(view[end - length % 4 : end], "little")
    return (int(np.add.reduce(words, dtype=np.uint64)) + rest) * 256
