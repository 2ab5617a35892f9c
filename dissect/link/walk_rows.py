"""Rows that stand at a header of a frame, and the fields that are read there; all fields are big-endian."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, take
from .numbers import PROTOCOLS, TCP, UDP

SHORTEST = 16
"""A BTH and an ICRC."""

TRUNCATED = "truncated before UDP"
"""Key of the counts of frames whose headers were not all captured."""
FIRST_FRAGMENT, IP_FRAGMENT = "RoCEv2, first of several IP fragments", "IP fragment"
"""Keys of the counts of fragments that are not reassembled: of all but the first, nothing says what they are of."""


FOUND = np.dtype(
    [
        ("row", "i8"),
        ("bth", "i8"),
        ("end", "i8"),  # of the captured bytes
        ("wire_end", "i8"),  # of the frame on the wire
        ("ip_end", "i8"),  # by the header beneath UDP, or beneath the BTH
        ("udp_length", "i8"),  # bytes from the BTH to the ICRC, and 8
        ("source", "u4"),
        ("destination", "u4"),
        ("source_port", "u2"),
        ("ecn", "u1"),
        ("transport", "u1"),  # index into TRANSPORTS
    ],
    align=True,
)

LINKED = 0xFFFF
"""No link type: the link header is behind us."""

WALK = np.dtype(
    [
        ("row", "i8"),
        ("at", "i8"),  # where the next header begins
        ("end", "i8"),
        ("wire_end", "i8"),
        ("ip", "i8"),  # where the IP header begins
        ("ip_end", "i8"),
        ("next", "i4"),  # what the next header is: an EtherType, then an IP protocol number
        # LINKTYPE_ of the header at ``at``, or LINKED: ``next`` is an EtherType; of UDP the lower port; of TCP 0, or
        # what the IPv6 Fragment header would say of a fragment: bytes before it, and 1 where more follow.
        ("link", "u2"),
        ("version", "u1"),
    ],
    align=True,
)


def keep(walk: Rows, good: NDArray[np.bool_], skipped: Counter[str], what: Any) -> Rows:
    """Counts the others under a name, or under the names a function gives them."""
    if good.all():
        return walk
    others = take(walk, ~good)
    if isinstance(what, str):
        count(skipped, what, len(others))
    else:
        count_all(skipped, what(others))
    return take(walk, good)


def count(counter: Counter[str], what: str, many: int) -> None:
    if many:
        counter[what] += many


def count_carried(counter: Counter[str], walk: Rows, sign: int = 1) -> None:
    """Frames with TCP or UDP inside: 'TCP', 'IP fragment', 'UDP port 53'."""
    datagrams = walk["next"] == UDP
    fragments = ~datagrams & (walk["link"] != 0)
    for what, which in (PROTOCOLS[TCP], ~datagrams & ~fragments), (IP_FRAGMENT, fragments):
        if many := int(np.count_nonzero(which)):
            counter[what] += sign * many
    for port in walk["link"][datagrams].tolist():
        counter[f"UDP port {port}"] += sign


def count_all(counter: Counter[str], what: Iterable[str]) -> None:
    counter.update(what)


def u8(data: Bytes, at: Int64s, end: Int64s) -> Int64s:
    """Bytes at offsets; 0 where the frame has ended."""
    inside = at < end
    return np.where(inside, data[np.where(inside, at, 0)], 0).astype(np.int64)


def u16(data: Bytes, at: Int64s, end: Int64s) -> Int64s:
    return u8(data, at, end) << 8 | u8(data, at + 1, end)


def wide(data: Bytes, at: Int64s, size: int) -> NDArray[np.uint64]:
    """Integers of a few bytes, all of which are inside the data."""
    value = np.zeros(len(at), np.uint64)
    for i in range(size):
        value = value << np.uint64(8) | data[at + i]
    return value
