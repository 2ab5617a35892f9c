"""Walks link, IP and UDP headers up to a RoCEv2 packet, one kind of header at a time, in columns.

All multi-byte header fields are big-endian.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .addresses import AddressTable
from .frames import Bytes, FrameBatch, Int64s, Rows, take

ROCE_PORT = 4791
"""UDP destination port of RoCEv2 (IANA; InfiniBand Architecture, Annex A17)."""

SHORTEST = 16
"""A BTH and an ICRC."""

ETHERNET = 1
LINUX_SLL = 113
LINUX_SLL2 = 276
IPV4_ONLY = 228
IPV6_ONLY = 229
RAW_IP = (12, 14, 101, IPV4_ONLY, IPV6_ONLY)
"""Link types that begin with the IP header; 12 and 14 are what DLT_RAW was in old files."""

COOKED = {  # link type: (where the EtherType is, bytes of the header)
    LINUX_SLL: (14, 16),
    LINUX_SLL2: (0, 20),
}

IPV4 = 0x0800
IPV6 = 0x86DD
TAGS = (0x8100, 0x88A8, 0x9100)
"""EtherTypes of a VLAN tag: IEEE 802.1Q customer and service tags, and the older QinQ."""

ETHERTYPES = {  # IEEE 802 Numbers, IANA
    0x0806: "ARP",
    0x8035: "RARP",
    0x8808: "Ethernet flow control",
    0x8809: "LACP",
    0x8847: "MPLS",
    0x8848: "MPLS",
    0x8863: "PPPoE",
    0x8864: "PPPoE",
    0x888E: "EAPOL",
    0x88CC: "LLDP",
    0x88E5: "MACsec",
    0x88F7: "PTP",
    0x8906: "FCoE",
    0x8914: "FCoE",
    0x8915: "RoCEv1",
}

UDP = 17
AUTHENTICATION = 51
FRAGMENT = 44
EXTENSIONS = (0, 43, 60, 135, 139, 140)
"""IPv6 extension headers whose second byte counts 8-byte units after the first (RFC 8200, RFC 6564)."""

PROTOCOLS = {  # Assigned Internet Protocol Numbers, IANA
    1: "ICMP",
    2: "IGMP",
    4: "IPv4 in IP",
    6: "TCP",
    41: "IPv6 in IP",
    47: "GRE",
    50: "ESP",
    58: "ICMPv6",
    59: "IPv6 without next header",
    89: "OSPF",
    103: "PIM",
    112: "VRRP",
    132: "SCTP",
    136: "UDP-Lite",
}

MOST_HEADERS = 32
"""VLAN tags, or extension headers, that are followed; no honest frame comes near."""

CUT = "truncated before UDP"

FOUND = np.dtype(
    [
        ("row", "i8"),
        ("bth", "i8"),
        ("end", "i8"),  # of the captured bytes
        ("wire_end", "i8"),  # of the frame on the wire
        ("ip_end", "i8"),  # by the IP header
        ("udp_length", "i8"),
        ("source", "u4"),
        ("destination", "u4"),
        ("source_port", "u2"),
        ("ecn", "u1"),
    ]
)


WALK = np.dtype(
    [
        ("row", "i8"),
        ("at", "i8"),  # where the next header begins
        ("end", "i8"),
        ("wire_end", "i8"),
        ("ip", "i8"),  # where the IP header begins
        ("ip_end", "i8"),
        ("next", "i4"),  # what the next header is: an EtherType, then an IP protocol number
        ("version", "u1"),
    ]
)


def walk_headers(batch: FrameBatch, index: Int64s, addresses: AddressTable, skipped: Counter[str]) -> Rows:
    """FOUND rows of the chosen frames, header by header."""
    data = batch.data if len(batch.data) else np.zeros(1, np.uint8)
    rows = take(batch.rows, index)
    walk = np.zeros(len(index), WALK)
    walk["row"] = index
    walk["at"] = rows["offset"]
    walk["end"] = rows["offset"] + rows["captured"]
    walk["wire_end"] = rows["offset"] + np.maximum(rows["original"], rows["captured"])
    walk = _network_layer(data, _link_layer(data, walk, rows["link_type"], skipped), skipped)
    walk = _extension_headers(data, walk, skipped)

    walk = _keep(
        walk,
        walk["next"] == UDP,
        skipped,
        lambda other: map(_protocol, other["next"].tolist(), other["version"].tolist()),
    )
    walk = _keep(walk, walk["at"] + 4 <= walk["end"], skipped, CUT)
    source_port, port = _u16(data, walk["at"], walk["end"]), _u16(data, walk["at"] + 2, walk["end"])
    if len(others := np.flatnonzero(port != ROCE_PORT)):
        # The lower port is the service's, whichever way the packet goes.
        service = np.where(source_port == ROCE_PORT, port, np.minimum(source_port, port))[others]
        _count_all(skipped, (f"UDP port {n}" for n in service.tolist()))
        walk = take(walk, port == ROCE_PORT)
    walk = _keep(walk, walk["at"] + 8 <= walk["end"], skipped, CUT)

    found = np.zeros(len(walk), FOUND)
    for name in "row", "end", "wire_end", "ip_end":
        found[name] = walk[name]
    found["bth"] = walk["at"] + 8
    found["udp_length"] = _u16(data, walk["at"] + 4, walk["end"])
    found["source_port"] = _u16(data, walk["at"], walk["end"])
    ip = walk["ip"]
    four = walk["version"] == 4
    # The traffic class straddles the first two bytes of IPv6.
    found["ecn"] = np.where(four, data[ip + 1], data[ip + 1] >> 4) & 3
    if four.any():
        found["source"][four] = addresses.ipv4_ids(_wide(data, ip[four] + 12, 4).astype(np.uint32))
        found["destination"][four] = addresses.ipv4_ids(_wide(data, ip[four] + 16, 4).astype(np.uint32))
    if not four.all():
        six = ip[~four]
        found["source"][~four] = addresses.ids(_wide(data, six + 8, 8), _wide(data, six + 16, 8))
        found["destination"][~four] = addresses.ids(_wide(data, six + 24, 8), _wide(data, six + 32, 8))
    return found


def _link_layer(data: Bytes, walk: Rows, link_type: NDArray[Any], skipped: Counter[str]) -> Rows:
    """Leaves ``next`` the EtherType behind all tags, and ``at`` behind the link header."""
    known = np.isin(link_type, (ETHERNET, *COOKED, *RAW_IP))
    if not known.all():
        _count_all(skipped, (f"link type {n}" for n in link_type[~known].tolist()))
        walk, link_type = walk[known], link_type[known]

    at, length = np.zeros(len(walk), np.int64), np.zeros(len(walk), np.int64)
    for number, (ethertype, header) in {ETHERNET: (12, 14), **COOKED}.items():
        at[link_type == number] = ethertype
        length[link_type == number] = header
    raw = np.isin(link_type, RAW_IP)
    complete = walk["at"] + np.where(raw, 1, length) <= walk["end"]
    if not complete.all():
        count(skipped, CUT, int(np.count_nonzero(~complete)))
        walk, link_type, raw = take(walk, complete), link_type[complete], raw[complete]
        at, length = at[complete], length[complete]

    version = _u8(data, walk["at"], walk["end"]) >> 4
    by_version = np.select((version == 4, version == 6), (IPV4, IPV6), -1)
    by_version[(link_type == IPV4_ONLY) & (version != 4)] = -1
    by_version[(link_type == IPV6_ONLY) & (version != 6)] = -1
    walk["next"] = np.where(raw, by_version, _u16(data, walk["at"] + at, walk["end"]))
    walk["at"] += length

    tagged = np.isin(walk["next"], TAGS) & ~raw
    for _ in range(MOST_HEADERS):
        if not tagged.any():
            break
        complete = ~tagged | (walk["at"] + 4 <= walk["end"])
        walk, tagged = _keep(walk, complete, skipped, CUT), tagged[complete]
        walk["next"][tagged] = _u16(data, walk["at"][tagged] + 2, walk["end"][tagged])
        walk["at"][tagged] += 4
        tagged = tagged & np.isin(walk["next"], TAGS)
    return _keep(
        walk,
        np.isin(walk["next"], (IPV4, IPV6)),
        skipped,
        lambda other: map(_ethertype, other["next"].tolist()),
    )


def _network_layer(data: Bytes, walk: Rows, skipped: Counter[str]) -> Rows:
    """Leaves ``next`` the IP protocol number, and ``at`` behind the IPv4 header or the fixed IPv6 one."""
    first = _u8(data, walk["at"], walk["end"])
    seen = walk["at"] < walk["end"]
    version = np.where(walk["next"] == IPV4, 4, 6)
    header = np.where(version == 4, (first & 15) * 4, 40)
    walk = _keep(walk, seen, skipped, CUT)
    first, version, header = first[seen], version[seen], header[seen]
    right = (first >> 4 == version) & (header >= 20)
    walk = _keep(walk, right, skipped, "malformed IP header")
    version, header = version[right], header[right]

    complete = walk["at"] + np.where(version == 4, 20, 40) <= walk["end"]
    walk = _keep(walk, complete, skipped, CUT)
    version, header = version[complete], header[complete]
    four = version == 4
    ip, end = walk["at"], walk["end"]
    walk["ip"] = ip
    walk["version"] = version
    total = _u16(data, ip + 2, end)
    walk["ip_end"] = np.where(four, ip + total, ip + 40 + _u16(data, ip + 4, end))
    walk["next"] = np.where(four, _u8(data, ip + 9, end), _u8(data, ip + 6, end))
    fragmented = four & (_u16(data, ip + 6, end) & 0x3FFF != 0)
    walk["at"] = ip + header
    return _keep(walk, ~fragmented, skipped, "IP fragment")


def _extension_headers(data: Bytes, walk: Rows, skipped: Counter[str]) -> Rows:
    for _ in range(MOST_HEADERS):
        six = walk["version"] == 6
        units = six & np.isin(walk["next"], EXTENSIONS)
        fragment = six & (walk["next"] == FRAGMENT)
        authentication = walk["next"] == AUTHENTICATION
        extended = units | fragment | authentication
        if not extended.any():
            break
        complete = ~extended | (walk["at"] + 8 <= walk["end"])
        broken = fragment & complete & (_u16(data, walk["at"] + 2, walk["end"]) & 0xFFF9 != 0)
        size = _u8(data, walk["at"] + 1, walk["end"])
        step = np.select(
            (units, fragment, authentication),
            (size * 8 + 8, 8, size * 4 + 8),  # RFC 8200, 4.3 and 4.5; RFC 4302, 2.2
            0,
        )
        walk["next"] = np.where(extended, _u8(data, walk["at"], walk["end"]), walk["next"])
        walk["at"] += step
        count(skipped, CUT, int(np.count_nonzero(~complete)))
        count(skipped, "IP fragment", int(np.count_nonzero(broken)))
        walk = take(walk, complete & ~broken)
    return walk


def _keep(walk: Rows, good: NDArray[np.bool_], skipped: Counter[str], what: Any) -> Rows:
    """Counts the others under a name, or under the names a function gives them."""
    if good.all():
        return walk
    others = take(walk, ~good)
    if isinstance(what, str):
        count(skipped, what, len(others))
    else:
        _count_all(skipped, what(others))
    return take(walk, good)


def count(counter: Counter[str], what: str, many: int) -> None:
    if many:
        counter[what] += many


def _count_all(counter: Counter[str], what: Iterable[str]) -> None:
    counter.update(what)


def _ethertype(number: int) -> str:
    if number in TAGS:
        return f"more than {MOST_HEADERS} VLAN tags"
    if number < 0:
        return "malformed IP header"
    if number < 0x0600:  # a length (IEEE 802.3, 3.2.6)
        return "IEEE 802.3"
    return ETHERTYPES.get(number, f"ethertype 0x{number:04x}")


def _protocol(number: int, version: int) -> str:
    if number == AUTHENTICATION or (version == 6 and number in (FRAGMENT, *EXTENSIONS)):
        return "too many extension headers"
    return PROTOCOLS.get(number, f"IP protocol {number}")


def _u8(data: Bytes, at: Int64s, end: Int64s) -> Int64s:
    """Bytes at offsets; 0 where the frame has ended."""
    inside = at < end
    return np.where(inside, data[np.where(inside, at, 0)], 0).astype(np.int64)


def _u16(data: Bytes, at: Int64s, end: Int64s) -> Int64s:
    return _u8(data, at, end) << 8 | _u8(data, at + 1, end)


def _wide(data: Bytes, at: Int64s, size: int) -> NDArray[np.uint64]:
    """Integers of a few bytes, all of which are inside the data."""
    value = np.zeros(len(at), np.uint64)
    for i in range(size):
        value = value << np.uint64(8) | data[at + i]
    return value
