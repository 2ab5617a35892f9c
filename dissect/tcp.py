"""TCP segments in columns.

All multi-byte header fields are big-endian.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .addresses import AddressTable
from .frames import Bytes, FrameBatch, Int64s, Rows, take
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
        ("flags", "u1"),
        ("version", "u1"),  # of IP
    ]
)

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
"""RFC 9293, 3.1."""

HEADER = 20
LARGEST = 1 << 20
"""Payload bytes that a segment is believed to have; network cards get and give up to half of it in one piece."""

_HEADER = np.dtype(
    {
        "names": ["source_port", "destination_port", "seq", "ack", "offset", "flags"],
        "formats": [">u2", ">u2", ">u4", ">u4", "u1", "u1"],
        "offsets": [0, 2, 4, 8, 12, 13],
        "itemsize": HEADER,
    }
)


def locate_tcp(batch: FrameBatch, walks: list[Rows], addresses: AddressTable) -> Rows:
    """SEGMENT rows, in capture order, of the frames that ``walks`` (``Located.tcp``) say carry TCP.

    Frames cut inside the fixed header, and those whose header contradicts itself, give none.  A payload that IP
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
    for name in ("source_port", "destination_port", "seq", "ack", "flags"):
        rows[name] = heads[name]
    fill_addresses(data, walk, addresses, rows)
    return rows if good.all() else take(rows, good)


def checksums(data: Bytes, rows: Rows) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which SEGMENT rows have the right checksum, and which a wrong one (RFC 9293, 3.1).

    Neither: those cut by the capture, and those with the checksum that is left for a network card to complete.
    """
    whole = np.flatnonzero(rows["captured"] == rows["length"])
    part = rows[whole]
    start, end = part["header"], part["payload"] + part["length"]
    six = part["version"] == 6
    addresses = part["ip"] + np.where(six, 8, 12)
    pseudo = _sums(data, addresses, addresses + np.where(six, 32, 8))
    # Sums of words in the order of this machine's bytes are the true ones with their bytes exchanged.
    pseudo += _swapped(((end - start) & 0xFFFF) + ((end - start) >> 16) + 6)
    total = _folded(pseudo + _sums(data, start, end))
    given = data[start + 16].astype(np.int64) | data[start + 17].astype(np.int64) << 8
    right = total == 0xFFFF
    wrong = ~right & (given != _folded(pseudo))
    found = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    found[0][whole], found[1][whole] = right, wrong
    return found


def _sums(data: Bytes, starts: Int64s, ends: Int64s) -> Int64s:
    """Sums of the 16-bit little-endian words of ranges that ascend, the last one padded with zero."""
    sums = np.zeros(len(starts), np.int64)
    for parity in (0, 1):
        mine = np.flatnonzero(starts % 2 == parity)
        if not len(mine):
            continue
        words = data[parity : len(data) - (len(data) - parity) % 2].view("<u2")
        edges = np.stack((starts[mine] // 2, starts[mine] // 2 + (ends[mine] - starts[mine]) // 2), axis=1).ravel()
        inside = edges[:-1] if edges[-1] == len(words) else edges
        sums[mine] = np.add.reduceat(words, inside, dtype=np.int64)[::2]
    odd = np.flatnonzero((ends - starts) % 2)
    sums[odd] += data[ends[odd] - 1]
    return sums


def _folded(sums: Int64s) -> Int64s:
    for _ in range(3):
        sums = (sums & 0xFFFF) + (sums >> 16)
    return sums


def _swapped(words: Int64s) -> Int64s:
    return (words & 0xFF) << 8 | words >> 8
