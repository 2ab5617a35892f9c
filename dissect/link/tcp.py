"""TCP segments in columns, and UDP datagrams as segments without sequence numbers.

All multi-byte header fields are big-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, gather, gathered, places, some, stretches, take
from ..frames import FrameBatch
from .addresses import AddressTable
from .numbers import TCP, UDP
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
        ("window", "u2"),  # as in the header, not scaled
        ("checksum", "u2"),
        ("flags", "u1"),
        ("version", "u1"),  # of IP
        ("verdict", "u1"),  # of the checksum: RIGHT or WRONG, UNKNOWN before ``verify_checksums``
        ("datagram", "?"),  # it is UDP
        ("congested", "?"),  # a switch marked it with congestion experienced
        ("selective", "?"),  # it has a SACK option where Linux and most others put it
        ("fragment", "?"),  # it is the part of a segment in one IP fragment; ``verdict`` is of the whole segment
        ("sum", "i4"),  # of the payload's 16-bit words, zero-padded, modulo 65,535; -1 if unknown
    ],
    align=True,
)

FIN, SYN, RST, PSH, ACK, URG, ECE, CWR = 1, 2, 4, 8, 16, 32, 64, 128
"""RFC 9293, 3.1."""

HEADER, UDP_HEADER = 20, 8
"""Bytes.  Datagrams must have at least as many bytes as a TCP header."""
END_OF_OPTIONS, NO_OPERATION, WINDOW_SCALE, SACK = 0, 1, 3, 5
"""RFC 9293, 3.2; RFC 7323, 2; RFC 2018, 3."""
CONGESTION_EXPERIENCED = 3
"""IP ECN field (RFC 3168, 5)."""
UNKNOWN, RIGHT, WRONG = range(3)
"""The checksum is unknown if the segment has no payload or is truncated by the capture, or if a network card has yet to
fill it in."""
MODULUS = 0xFFFF
TOGETHER = 1 << 15
"""Words of eight bytes added at a time, so that temporaries stay in the processor's cache."""
_ALL_ONES, _HALF = np.uint64((1 << 64) - 1), np.uint64(32)
LARGEST = 1 << 20
"""Payload bytes of the largest segment; network cards send and receive up to half of that in one piece."""

_HEADER = np.dtype(
    {
        "names": ["source_port", "destination_port", "seq", "ack", "offset", "flags", "window", "checksum"],
        "formats": [">u2", ">u2", ">u4", ">u4", "u1", "u1", ">u2", ">u2"],
        "offsets": [0, 2, 4, 8, 12, 13, 14, 16],
        "itemsize": HEADER,
    }
)


def locate_tcp(batch: FrameBatch, walks: list[Rows], addresses: AddressTable) -> Rows:
    """SEGMENT rows, in capture order, of the frames with TCP or UDP (``walks``: ``Located.tcp``).

    Frames truncated within the fixed header, and those whose header contradicts itself, give none.  A payload that IP
    announces but the frame lacks counts in ``length``.
    """
    if not walks:
        return np.zeros(0, SEGMENT)
    walk = np.concatenate(walks) if len(walks) > 1 else walks[0]
    # A fragment has no TCP header, or one whose segment goes on in other fragments: ``TcpFragments`` joins those.
    whole = (walk["link"] == 0) | (walk["next"] == UDP)
    walk = take(walk, whole & (walk["at"] + HEADER <= walk["end"]))
    if (np.diff(walk["row"]) < 0).any():
        walk = take(walk, np.argsort(walk["row"], kind="stable"))
    if not len(walk):
        return np.zeros(0, SEGMENT)
    data = batch.data
    heads = gather(data, walk["at"], _HEADER)
    datagrams = walk["next"] == UDP
    header = np.where(datagrams, UDP_HEADER, (heads["offset"] >> 4).astype(np.int64) * 4)
    payload: Int64s = walk["at"] + header
    # A length of 0 in the IP header is that of a packet the network card has yet to split.
    least = walk["ip"] + np.where(walk["version"] == 6, 40, 0)
    announced = np.where(walk["ip_end"] > least, walk["ip_end"], walk["wire_end"])
    good = (datagrams | (header >= HEADER)) & (payload <= announced)
    length = announced - payload
    rows = np.zeros(len(walk), SEGMENT)
    rows["sum"] = -1
    frames = batch.rows if len(walk) == len(batch.rows) else take(batch.rows, walk["row"])
    rows["frame"], rows["time"] = frames["number"], frames["time"]
    rows["payload"], rows["length"] = payload, np.clip(length, 0, LARGEST)
    rows["captured"] = np.clip(walk["end"] - payload, 0, rows["length"])
    rows["ip"], rows["header"], rows["version"] = walk["ip"], walk["at"], walk["version"]
    for name in ("source_port", "destination_port", "seq", "ack", "flags", "window", "checksum"):
        rows[name] = heads[name]
    rows["congested"] = congested(data, walk)
    for before in (2, 14):  # two no-operations, perhaps behind a timestamp and two more
        at = places(header >= HEADER + before + 10)
        rows["selective"][at] |= data.take(walk["at"][at] + HEADER + before, mode="clip") == SACK
    if some(datagrams):
        rows["datagram"] = datagrams
        for name in "seq", "ack", "flags", "window", "checksum":
            rows[name][datagrams] = 0
    fill_addresses(data, walk, addresses, rows)
    return rows if good.all() else take(rows, good)


def congested(data: Bytes, walk: Rows) -> NDArray[np.bool_]:
    """Which packets of WALK rows a switch marked with congestion experienced (RFC 3168, 5)."""
    # In IPv6 the traffic class spans the first two bytes.
    ecn = data[walk["ip"] + 1] >> np.where(walk["version"] == 6, 4, 0) & 3
    marked: NDArray[np.bool_] = ecn == CONGESTION_EXPERIENCED
    return marked


def options(data: Bytes, header: int, payload: int) -> Iterator[tuple[int, bytes]]:
    """Kind and contents of a segment's options, up to the first illegal one (RFC 9293, 3.2)."""
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


def verify_checksums(data: Bytes, rows: Rows, chosen: Int64s) -> None:
    """Set ``verdict`` and ``sum`` of the ``chosen`` SEGMENT rows, whose payload must be complete (RFC 9293, 3.1)."""
    segments = take(rows, chosen)
    whole = (segments["captured"] == segments["length"]) & (segments["length"] > 0) & ~segments["fragment"]
    segments, chosen = take(segments, whole), chosen[whole]
    if not len(segments):
        return
    rows["sum"][chosen] = payload = _payload_sums(data, segments["payload"], segments["payload"] + segments["length"])
    rows["verdict"][chosen] = _verdicts(data, segments, segments["length"], payload)


def verify_fragments(data: Bytes, rows: Rows, firsts: Int64s) -> None:
    """Set ``verdict`` of SEGMENT rows of fragmented segments; ``firsts``: indices of their first fragments."""
    counts = np.diff(firsts, append=len(rows))
    whole = np.logical_and.reduceat(rows["captured"] == rows["length"], firsts)
    some_payload = places(np.repeat(whole, counts) & (rows["length"] > 0))
    parts = take(rows, some_payload)
    sums = np.zeros(len(rows), np.int64)
    if len(parts):
        sums[some_payload] = _payload_sums(data, parts["payload"], parts["payload"] + parts["length"])
    # All but the last fragment are multiples of 64 bits, so that words of theirs are those of the segment.
    lengths, payload = (np.add.reduceat(column, firsts)[whole] for column in (rows["length"].astype(np.int64), sums))
    verdicts = np.full(len(firsts), UNKNOWN, np.uint8)
    verdicts[whole] = _verdicts(data, take(rows, firsts[whole]), lengths, payload)
    rows["verdict"] = np.repeat(verdicts, counts)


def _verdicts(data: Bytes, rows: Rows, lengths: Int64s, payload: Int64s) -> Rows:
    """RIGHT, WRONG or UNKNOWN, by the headers of SEGMENT rows, and the lengths and sums of their payloads."""
    # A header is a multiple of 32 bits, so that the words of the payload are those of the segment.
    size, old = rows["payload"] - rows["header"], rows["version"] == 4
    pseudo = size + lengths + TCP
    pseudo += _header_sums(data, rows["ip"] + np.where(old, 12, 8), np.where(old, 8, 32))
    total = pseudo + _header_sums(data, rows["header"], size) + payload
    right, unfinished = total % MODULUS == 0, (pseudo - rows["checksum"]) % MODULUS == 0
    return np.where(right, RIGHT, np.where(unfinished, UNKNOWN, WRONG))


def _payload_sums(data: Bytes, starts: Int64s, ends: Int64s) -> Int64s:
    """Modulo 65,535 the sums of the 16-bit words of ranges, none of them empty, padded with zero.

    65,536 is 1, so wider words add up to the same, and words read with their bytes exchanged to 256 times that.
    """
    words: Rows = data[: len(data) // 8 * 8].view("<u8")
    rest = np.uint64(int.from_bytes(data[len(words) * 8 :].tobytes(), "little"))
    order = starts.argsort(kind="stable")
    starts, ends = starts[order], ends[order]
    first, last = starts // 8, (ends - 1) // 8
    front = _ALL_ONES << (starts % 8 * 8).astype(np.uint64)
    back = _ALL_ONES >> ((7 - (ends - 1) % 8) * 8).astype(np.uint64)
    begin, end = (np.where(at < len(words), words.take(at, mode="clip"), rest) for at in (first, last))
    totals = np.where(first == last, begin & front & back, begin & front) % MODULUS
    totals += np.where(first == last, 0, end & back) % MODULUS
    within, bounds = np.zeros_like(totals), np.stack((first + 1, last), axis=1)
    part = first // TOGETHER
    for low, high in pairwise([*stretches(part).tolist(), len(part)]):
        origin, until = int(first[low]) + 1, int(last[low:high].max())
        if origin >= until:
            continue
        # One more than any range has, so that none ends behind the last.
        inner = words[origin : until + 1] if until < len(words) else np.append(words[origin:until], rest)
        at = np.minimum(np.maximum(bounds[low:high] - origin, 0), until - origin).ravel()
        # Add up both halves of words separately: sums of halves do not overflow, sums of whole words may.
        upper = np.add.reduceat(inner >> _HALF, at)[::2]
        lower = np.add.reduceat(inner, at)[::2] - (upper << _HALF)
        within[low:high] = upper % MODULUS + lower % MODULUS
    totals += np.where(first + 1 < last, within, 0)
    weighted: Int64s = np.empty(len(order), np.int64)
    weighted[order] = totals.astype(np.int64) * np.where(starts % 2 == 0, 256, 1) % MODULUS
    return weighted


def _header_sums(data: Bytes, starts: Int64s, sizes: Int64s) -> Int64s:
    """The sums of 16-bit words in headers, whose sizes are few multiples of four; congruent modulo 65,535."""
    totals = np.zeros(len(starts), np.int64)
    for size in places(np.bincount(sizes)).tolist():
        mine = places(sizes == size)
        words = gathered(data, size, starts[mine]).view("<u4")
        totals[mine] = np.einsum("ij->i", words, dtype=np.int64, casting="unsafe")
    return totals * 256
