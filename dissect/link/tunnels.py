"""What frames are wrapped in on the way to a capture: ERF records, and the tunnels of mirror ports.

Every function takes WALK rows that stand at a wrapping's header and gives them back standing at what is inside,
never reaching beyond what the wrapping holds.  All fields are big-endian, except the time of an ERF record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, take
from .numbers import (
    ETHERNET,
    ETHERNET_BRIDGED,
    GENEVE_PORT,
    GRE,
    INFINIBAND,
    IPV4,
    IPV4_INSIDE,
    IPV4_ONLY,
    IPV6,
    IPV6_INSIDE,
    IPV6_ONLY,
    MPLS,
    MPLS_INSIDE,
    MPLS_PORT,
    RAW_IP,
    ROCE_ETHERTYPE,
    TAGS,
    VXLAN_PORTS,
)
from .walk_rows import LINKED, TRUNCATED, count, count_all, keep, u8, u16

ERF_HEADER = 16
"""Time (8), type, flags, record length (2), loss counter or colour (2), wire length (2)."""
ERF_EXTENSIONS = 16
"""Extension headers that are followed."""
ERF_CONTENTS = {  # Extensible Record Format, record types: (link type, bytes in front of the frame)
    2: (ETHERNET, 2),
    11: (ETHERNET, 2),  # with colour
    16: (ETHERNET, 2),  # with colour, of a multi-channel receiver
    20: (ETHERNET, 2),  # with colour and hash
    21: (INFINIBAND, 0),
    22: (IPV4_ONLY, 0),
    23: (IPV6_ONLY, 0),
}

MAX_LABELS = 16
"""MPLS labels that are followed."""

ERSPAN_II = 0x88BE
ERSPAN_III = 0x22EB
GRE_CHECKSUM, GRE_ROUTING, GRE_KEY, GRE_SEQUENCE, GRE_VERSION = 0x8000, 0x4000, 0x2000, 0x1000, 7

_INSIDE_ETHERNET = (IPV4, IPV6, ROCE_ETHERTYPE, *TAGS, *MPLS)
"""EtherTypes by which the Ethernet frame inside a pseudowire is known: MPLS has no field for that."""


def unwrap_erf(data: Bytes, walk: Rows, skipped: Counter[str]) -> Rows:
    """The frame in an ERF record, without the padding behind it."""
    walk = keep(walk, walk["at"] + ERF_HEADER <= walk["end"], skipped, "ERF record, truncated")
    start, end = walk["at"], walk["end"]
    kind, record, wire = u8(data, start + 8, end), u16(data, start + 10, end), u16(data, start + 14, end)
    at = start + ERF_HEADER
    extended = kind & 0x80 != 0
    for _ in range(ERF_EXTENSIONS):
        if not extended.any():
            break
        # An extension's own first bit announces the next one.
        more = extended & (u8(data, at, end) & 0x80 != 0)
        at = at + 8 * extended
        extended = more
    kind = kind & 0x7F
    link, front = np.full(len(walk), LINKED, np.int64), np.zeros(len(walk), np.int64)
    for number, (link_type, size) in ERF_CONTENTS.items():
        link[kind == number], front[kind == number] = link_type, size
    if (foreign := link == LINKED).any():
        count_all(skipped, (f"ERF record type {n}" for n in kind[foreign].tolist()))
    at += front
    walk = walk.copy()
    walk["link"] = link
    walk["wire_end"] = np.where(wire > 0, at + wire, end)
    walk["end"] = np.minimum(np.minimum(end, start + record), walk["wire_end"])
    walk["at"] = at
    return take(walk, ~foreign)


def unwrap_mpls(data: Bytes, walk: Rows, skipped: Counter[str]) -> Rows:
    """What is behind an MPLS label stack (RFC 3032): IP, or Ethernet with or without a control word (RFC 4448)."""
    at, end = walk["at"].copy(), walk["end"]
    stacked = np.ones(len(walk), bool)
    for _ in range(MAX_LABELS):
        bottom = u8(data, at + 2, end) & 1 != 0
        at += 4 * stacked
        stacked &= ~bottom
        if not stacked.any():
            break
    first = u8(data, at, end)
    left = walk["wire_end"] - at
    ip = np.zeros(len(walk), np.int64)
    total, payload = u16(data, at + 2, end), u16(data, at + 4, end)
    ip[(first >> 4 == 4) & (first & 15 >= 5) & (total >= 20) & (total <= left)] = IPV4
    ip[(first >> 4 == 6) & (payload + 40 <= left)] = IPV6
    plain = (ip == 0) & np.isin(u16(data, at + 12, end), _INSIDE_ETHERNET)
    controlled = (ip == 0) & (first >> 4 == 0) & np.isin(u16(data, at + 16, end), _INSIDE_ETHERNET)
    # A control word without sequence numbers is zero; so is the start of no address in use.
    controlled &= ~plain | (u16(data, at, end) | u16(data, at + 2, end) == 0)
    inside = walk.copy()
    inside["at"] = at + 4 * controlled
    inside["next"] = ip
    inside["link"] = np.where(ip > 0, LINKED, ETHERNET)
    truncated = at + 20 > end
    count(skipped, TRUNCATED, int(np.count_nonzero(truncated)))
    known = ~stacked & ((ip > 0) | plain | controlled)
    count(skipped, "MPLS", int(np.count_nonzero(~known & ~truncated)))
    return take(inside, known & ~truncated)


def unwrap_protocols(data: Bytes, walk: Rows, skipped: Counter[str], name: Callable[[int, int], str]) -> Rows:
    """GRE, MPLS and IP inside IP; ``name`` names the other protocols, by number and IP version."""
    others = ~np.isin(walk["next"], (GRE, IPV4_INSIDE, IPV6_INSIDE, MPLS_INSIDE))
    if others.any():
        rest = take(walk, others)
        count_all(skipped, map(name, rest["next"].tolist(), rest["version"].tolist()))
        walk = take(walk, ~others)
    walk = _inside(walk, walk["at"])
    routed = walk["next"] == GRE
    direct, tunnelled = take(walk, ~routed), take(walk, routed)
    direct["link"] = LINKED
    for protocol, ethertype in ((IPV4_INSIDE, IPV4), (IPV6_INSIDE, IPV6), (MPLS_INSIDE, MPLS[0])):
        direct["next"][direct["next"] == protocol] = ethertype
    return np.concatenate((direct, _gre(data, tunnelled, skipped))) if len(tunnelled) else direct


def _inside(walk: Rows, at: Int64s) -> Rows:
    """Rows that stand at ``at``, in what their IP packet holds."""
    inside = walk.copy()
    inside["at"] = at
    for end in "end", "wire_end":
        inside[end] = np.minimum(walk[end], walk["ip_end"])
    return inside


def _gre(data: Bytes, walk: Rows, skipped: Counter[str]) -> Rows:
    """GRE (RFC 2784, RFC 2890) and, in it, ERSPAN (draft-foschiano-erspan)."""
    walk = keep(walk, walk["at"] + 4 <= walk["end"], skipped, TRUNCATED)
    at, end = walk["at"], walk["end"]
    flags, protocol = u16(data, at, end), u16(data, at + 2, end)
    plain = flags & (GRE_ROUTING | GRE_VERSION) == 0
    count(skipped, "GRE", int(np.count_nonzero(~plain)))
    walk, flags, protocol = take(walk, plain), flags[plain], protocol[plain]
    numbered = flags & GRE_SEQUENCE != 0
    optional = (flags & GRE_CHECKSUM != 0).astype(np.int64) + (flags & GRE_KEY != 0) + numbered
    walk["at"] += 4 + 4 * optional

    at, end = walk["at"], walk["end"]
    walk["link"] = LINKED
    walk["next"] = protocol
    walk["link"][protocol == ETHERNET_BRIDGED] = ETHERNET
    mirrored = np.isin(protocol, (ERSPAN_II, ERSPAN_III))
    if not mirrored.any():
        return walk
    version = u8(data, at, end) >> 4
    first = mirrored & (protocol == ERSPAN_II) & ~numbered  # type I has no header of its own
    second = mirrored & ~first & (protocol == ERSPAN_II) & (version == 1)
    third = mirrored & ~first & (version == 2)
    kind = u8(data, at + 10, end) >> 2 & 31
    packets = third & (kind == 2)
    known = first | second | (third & np.isin(kind, (0, 2)))
    walk["link"][known] = ETHERNET
    walk["link"][packets] = RAW_IP[2]
    walk["at"] += 8 * second + third * (12 + 8 * (u8(data, at + 11, end) & 1))
    count(skipped, "ERSPAN", int(np.count_nonzero(mirrored & ~known)))
    return take(walk, known | ~mirrored)


def unwrap_udp(data: Bytes, walk: Rows, port: Int64s) -> tuple[Rows, NDArray[np.bool_]]:
    """VXLAN (RFC 7348), GENEVE (RFC 8926) and MPLS (RFC 7510) behind UDP; and which rows are none of them.

    The rows stand at the UDP header; ``port`` is its destination.
    """
    at, end = walk["at"] + 8, walk["end"]
    link, kind, size = (np.zeros(len(walk), np.int64) for _ in range(3))
    first = u8(data, at, end)
    whole = at + 8 <= end

    vxlan = whole & np.isin(port, VXLAN_PORTS) & (first & 8 != 0)
    link[vxlan], size[vxlan] = ETHERNET, 8

    carried = u16(data, at + 2, end)
    geneve = whole & (port == GENEVE_PORT) & (first >> 6 == 0)
    geneve &= np.isin(carried, (ETHERNET_BRIDGED, IPV4, IPV6, *MPLS))
    link[geneve] = np.where(carried[geneve] == ETHERNET_BRIDGED, ETHERNET, LINKED)
    kind[geneve], size[geneve] = carried[geneve], 8 + (first[geneve] & 0x3F) * 4

    labelled = whole & (port == MPLS_PORT)
    link[labelled], kind[labelled] = LINKED, MPLS[0]

    tunnelled = vxlan | geneve | labelled
    inside = _inside(walk, at + size)
    inside["link"], inside["next"] = link, kind
    return take(inside, tunnelled), ~tunnelled
