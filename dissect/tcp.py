"""TCP segments in columns.

All multi-byte header fields are big-endian.
"""

from __future__ import annotations

import numpy as np

from .addresses import AddressTable
from .frames import FrameBatch, Int64s, Rows, take
from .walk import fill_addresses

SEGMENT = np.dtype(
    [
        ("frame", "i8"),  # frame number
        ("time", "i8"),  # nanoseconds since the Unix epoch
        ("payload", "i8"),  # offset of the payload in FrameBatch.data
        ("length", "i4"),  # payload bytes on the wire
        ("captured", "i4"),  # payload bytes in the capture
        ("source", "u4"),  # address ids
        ("destination", "u4"),
        ("source_port", "u2"),
        ("destination_port", "u2"),
        ("seq", "u4"),
        ("ack", "u4"),
        ("flags", "u1"),
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
    for name in ("source_port", "destination_port", "seq", "ack", "flags"):
        rows[name] = heads[name]
    fill_addresses(data, walk, addresses, rows)
    return rows if good.all() else take(rows, good)
