"""Walks link, IP and UDP headers up to an RDMA packet, one kind of header at a time, in columns.

If a frame is wrapped in an ERF record, or in the tunnel of a mirror port, the walk starts again at the inner frame, and
never goes beyond what the wrapping contains.  All fields are big-endian, except the time of an ERF record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, gather, some, take
from ..frames import FrameBatch
from ..layers.transports import NATIVE, ROCEV1
from .addresses import AddressTable
from .numbers import (
    AUTHENTICATION,
    COOKED,
    ERF,
    ETHERNET,
    ETHERNET_BRIDGED,
    ETHERTYPES,
    EXTENSIONS,
    FRAGMENT,
    GENEVE_PORT,
    GRE,
    IBA_TRANSPORT,
    INFINIBAND,
    IPV4,
    IPV4_INSIDE,
    IPV4_ONLY,
    IPV6,
    IPV6_INSIDE,
    IPV6_ONLY,
    LINK_TYPES,
    MPLS,
    MPLS_INSIDE,
    MPLS_PORT,
    PROTOCOLS,
    RAW_IP,
    ROCE_ETHERTYPE,
    ROCE_PORT,
    TAGS,
    TCP,
    UDP,
    VXLAN_PORTS,
)

SHORTEST = 16
"""Bytes of a BTH and an ICRC."""

TRUNCATED = "truncated before UDP"
"""Key of the counts for frames whose headers are truncated in the capture."""
FIRST_FRAGMENT, IP_FRAGMENT = "RoCEv2, first of several IP fragments", "IP fragment"
"""Keys of the counts for fragments, which are not reassembled: only the first one tells what it is part of."""


FOUND = np.dtype(
    [
        ("row", "i8"),
        ("bth", "i8"),
        ("end", "i8"),  # end of the captured bytes
        ("wire_end", "i8"),  # end of the frame on the wire
        ("ip_end", "i8"),  # end by the header below UDP, or below the BTH
        ("udp_length", "i8"),  # bytes from the BTH up to and including the ICRC, plus 8
        ("source", "u4"),
        ("destination", "u4"),
        ("source_port", "u2"),
        ("ecn", "u1"),
        ("transport", "u1"),  # index into TRANSPORTS
    ],
    align=True,
)

LINKED = 0xFFFF
"""Stands for a link type when the link header has been walked."""

WALK = np.dtype(
    [
        ("row", "i8"),
        ("at", "i8"),  # offset of the next header
        ("end", "i8"),
        ("wire_end", "i8"),
        ("ip", "i8"),  # offset of the IP header
        ("ip_end", "i8"),
        ("next", "i4"),  # what the next header is: an EtherType, then an IP protocol number
        # LINKTYPE_ of the header at ``at``; LINKED: ``next`` is an EtherType; for UDP the lower port; for TCP 0, or the
        # word of the IPv6 Fragment header for a fragment: its offset in bytes, plus 1 if more follow.
        ("link", "u2"),
        ("version", "u1"),
    ],
    align=True,
)


def keep(walk: Rows, good: NDArray[np.bool_], skipped: Counter[str], what: Any) -> Rows:
    """The ``good`` rows; counts the others under one name, or under the names that a function gives them."""
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
    """Count frames with TCP or UDP: 'TCP', 'IP fragment', 'UDP port 53'."""
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
    """Bytes at offsets; 0 beyond the end of the frame."""
    inside = at < end
    return np.where(inside, data[np.where(inside, at, 0)], 0).astype(np.int64)


def u16(data: Bytes, at: Int64s, end: Int64s) -> Int64s:
    return u8(data, at, end) << 8 | u8(data, at + 1, end)


def wide(data: Bytes, at: Int64s, size: int) -> NDArray[np.uint64]:
    """Integers of two, four or eight bytes, which must lie within the data."""
    return gather(data, at, f">u{size}").astype(np.uint64)


ERF_HEADER = 16
"""Time (8), type, flags, record length (2), loss counter or colour (2), wire length (2)."""
ERF_EXTENSIONS = 16
"""Extension headers that are skipped."""
ERF_CONTENTS = {  # Extensible Record Format, record types: (link type, bytes before the frame)
    2: (ETHERNET, 2),
    11: (ETHERNET, 2),  # with colour
    16: (ETHERNET, 2),  # with colour, of a multi-channel receiver
    20: (ETHERNET, 2),  # with colour and hash
    21: (INFINIBAND, 0),
    22: (IPV4_ONLY, 0),
    23: (IPV6_ONLY, 0),
}

MAX_LABELS = 16
"""MPLS labels that are skipped."""

ERSPAN_II = 0x88BE
ERSPAN_III = 0x22EB
GRE_CHECKSUM, GRE_ROUTING, GRE_KEY, GRE_SEQUENCE, GRE_VERSION = 0x8000, 0x4000, 0x2000, 0x1000, 7

_INSIDE_ETHERNET = (IPV4, IPV6, ROCE_ETHERTYPE, *TAGS, *MPLS)
"""EtherTypes that identify an Ethernet frame in a pseudowire: MPLS has no field for that."""


def unwrap_erf(data: Bytes, walk: Rows, skipped: Counter[str]) -> Rows:
    """The frame in an ERF record, without the padding after it."""
    walk = keep(walk, walk["at"] + ERF_HEADER <= walk["end"], skipped, "ERF record, truncated")
    start, end = walk["at"], walk["end"]
    kind, record, wire = u8(data, start + 8, end), u16(data, start + 10, end), u16(data, start + 14, end)
    at = start + ERF_HEADER
    extended = kind & 0x80 != 0
    for _ in range(ERF_EXTENSIONS):
        if not extended.any():
            break
        # An extension's first bit announces the next one.
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
    """What follows an MPLS label stack (RFC 3032): IP, or Ethernet with or without a control word (RFC 4448)."""
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
    # A control word without sequence numbers is zero, which no address in use begins with.
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
    """What is in GRE, MPLS or IP inside IP; ``name`` names other protocols, by number and IP version."""
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
    """Rows moved to ``at``, within their IP packet."""
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
    """What is in VXLAN (RFC 7348), GENEVE (RFC 8926) and MPLS (RFC 7510) after UDP; and which rows are none of these.

    The rows must be at the UDP header; ``port``: its destination port.
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


LRH_BYTES = 8
GRH_BYTES = 40
IBA_LOCAL, IBA_GLOBAL = 2, 3
"""Link Next Header: a BTH, or a GRH followed by a BTH (IBA 7.7.5)."""

UD_SENDS = {0x64: 20, 0x65: 24}
"""Unreliable Datagram Send opcodes, without and with immediate data: bytes of BTH, DETH and ImmDt."""
IPOIB_TYPES = (IPV4, IPV6, 0x0806, 0x8035)
"""What IP over InfiniBand carries: IPv4, IPv6, ARP, RARP (RFC 4391, 6)."""


def locate_rocev1(data: Bytes, walk: Rows, addresses: AddressTable, skipped: Counter[str]) -> Rows:
    """FOUND rows of RoCEv1 packets; the WALK rows must be at the GRH."""
    walk = _global(data, walk, skipped, "RoCEv1")
    grh = walk["at"]
    length = u16(data, grh + 4, walk["end"])
    good = length >= SHORTEST
    walk, grh, length = keep(walk, good, skipped, "RoCEv1, too short"), grh[good], length[good]
    located = _found(walk, grh + GRH_BYTES, grh + GRH_BYTES + length, ROCEV1)
    located["source"], located["destination"] = _gids(data, grh, addresses)
    return located


def locate_native(data: Bytes, walk: Rows, addresses: AddressTable, skipped: Counter[str]) -> Rows:
    """FOUND rows of InfiniBand transport packets; the WALK rows must be at the LRH.

    Their addresses are LIDs, which name every port within a subnet or, if a GRH names two subnets, its GIDs.
    """
    walk = keep(walk, walk["at"] + LRH_BYTES <= walk["end"], skipped, "InfiniBand, header truncated")
    walk = keep(walk, u8(data, walk["at"], walk["end"]) & 15 == 0, skipped, "InfiniBand, malformed")
    following = u8(data, walk["at"] + 1, walk["end"]) & 3
    walk = keep(walk, following >= IBA_LOCAL, skipped, "InfiniBand raw packet")
    following = following[following >= IBA_LOCAL]
    lrh = walk["at"].copy()
    walk["at"] += LRH_BYTES
    routed = following == IBA_GLOBAL
    if routed.any():
        kept = np.concatenate((take(walk, ~routed), _global(data, take(walk, routed), skipped, "InfiniBand")))
        kept = take(kept, np.argsort(kept["row"], kind="stable"))
        remains = np.isin(walk["row"], kept["row"])
        walk, lrh, routed = kept, lrh[remains], routed[remains]
    bth = walk["at"] + GRH_BYTES * routed
    # The length counts words from the LRH to the ICRC (IBA 7.7.8).
    end = lrh + (u16(data, lrh + 4, walk["end"]) & 0x7FF) * 4
    good = end - bth >= SHORTEST
    walk = keep(walk, good, skipped, "InfiniBand, too short")
    lrh, bth, end, routed = lrh[good], bth[good], end[good], routed[good]

    internet = _is_ipoib(data, bth, np.minimum(end, walk["end"]))
    if internet.any():
        count(skipped, "IP over InfiniBand", int(np.count_nonzero(internet)))
        other = ~internet
        walk, lrh, bth, end, routed = take(walk, other), lrh[other], bth[other], end[other], routed[other]

    located = _found(walk, bth, end, NATIVE)
    located["destination"] = addresses.lid_ids(u16(data, lrh + 2, walk["end"]))
    located["source"] = addresses.lid_ids(u16(data, lrh + 6, walk["end"]))
    if routed.any():
        across = np.flatnonzero(routed)
        grh = bth[across] - GRH_BYTES
        other = wide(data, grh + 8, 8) != wide(data, grh + 24, 8)
        other &= data[grh + 24] != 0xFF  # multicast stays within the subnet
        across, grh = across[other], grh[other]
        located["source"][across], located["destination"][across] = _gids(data, grh, addresses)
    return located


def _global(data: Bytes, walk: Rows, skipped: Counter[str], what: str) -> Rows:
    """The rows with a GRH followed by a BTH."""
    walk = keep(walk, walk["at"] + GRH_BYTES <= walk["end"], skipped, f"{what}, header truncated")
    version, following = u8(data, walk["at"], walk["end"]) >> 4, u8(data, walk["at"] + 6, walk["end"])
    return keep(walk, (version == 6) & (following == IBA_TRANSPORT), skipped, f"{what}, malformed")


def _gids(data: Bytes, grh: Int64s, addresses: AddressTable) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    source = addresses.ids(wide(data, grh + 8, 8), wide(data, grh + 16, 8))
    return source, addresses.ids(wide(data, grh + 24, 8), wide(data, grh + 32, 8))


def _is_ipoib(data: Bytes, bth: Int64s, end: Int64s) -> NDArray[np.bool_]:
    """Which datagrams begin with the header of IP over InfiniBand (RFC 4391, 6)."""
    opcode = u8(data, bth, end)
    datagram = np.isin(opcode, list(UD_SENDS))
    datagram &= u16(data, bth + 5, end) << 8 | u8(data, bth + 7, end) > 1  # not management
    payload = bth + np.where(opcode == 0x65, UD_SENDS[0x65], UD_SENDS[0x64])
    kind = u16(data, payload, end)
    right = np.isin(kind, IPOIB_TYPES) & (u16(data, payload + 2, end) == 0) & (payload + 5 <= end)
    version = u8(data, payload + 4, end) >> 4
    right &= ((kind != IPV4) | (version == 4)) & ((kind != IPV6) | (version == 6))
    datagrams: NDArray[np.bool_] = datagram & right
    return datagrams


def _found(walk: Rows, bth: Int64s, end: Int64s, transport: int) -> Rows:
    located = np.zeros(len(walk), FOUND)
    for name in "row", "end", "wire_end":
        located[name] = walk[name]
    located["bth"], located["ip_end"], located["udp_length"] = bth, end, end - bth + 8
    located["transport"] = transport
    return located


MAX_HEADERS = 32
"""VLAN tags, or extension headers, that are skipped; no honest frame has nearly as many."""
MAX_NESTED = 8
"""Levels of packets inside packets that are walked."""


def walk_headers(
    batch: FrameBatch, index: Int64s, addresses: AddressTable, skipped: Counter[str], tcp: list[Rows]
) -> Rows:
    """FOUND rows of the chosen frames, header by header; WALK rows of TCP, and of UDP other than tunnels, go to
    ``tcp``."""
    data = batch.data if len(batch.data) else np.zeros(1, np.uint8)
    rows = take(batch.rows, index)
    walk = np.zeros(len(index), WALK)
    walk["row"] = index
    walk["at"] = rows["offset"]
    walk["end"] = rows["offset"] + rows["captured"]
    walk["wire_end"] = rows["offset"] + np.maximum(rows["original"], rows["captured"])
    walk["link"] = rows["link_type"]
    if (recorded := walk["link"] == ERF).any():
        walk = np.concatenate((take(walk, ~recorded), unwrap_erf(data, take(walk, recorded), skipped)))

    located: list[Rows] = []
    for _ in range(MAX_NESTED):
        inside: list[Rows] = []
        walk, native = _parted(walk, walk["link"] == INFINIBAND)
        if len(native):
            located.append(locate_native(data, native, addresses, skipped))
        walk = _link_layer(data, walk, skipped)
        walk, direct = _parted(walk, walk["next"] == ROCE_ETHERTYPE)
        if len(direct):
            located.append(locate_rocev1(data, direct, addresses, skipped))
        walk, labelled = _parted(walk, np.isin(walk["next"], MPLS))
        if len(labelled):
            inside.append(unwrap_mpls(data, labelled, skipped))
        walk = _keep_ip(walk, skipped)
        walk = _extension_headers(data, _network_layer(data, walk, skipped, tcp), skipped, tcp)
        walk, datagrams = _parted(walk, walk["next"] == UDP)
        walk, segments = _parted(walk, walk["next"] == TCP)
        if len(segments):
            segments["link"] = 0
            tcp.append(segments)
        if len(walk):
            inside.append(unwrap_protocols(data, walk, skipped, _protocol))
        located.append(_udp(data, datagrams, addresses, skipped, inside, tcp))
        walk = np.concatenate(inside) if inside else walk[:0]
        if not len(walk):
            break
    count(skipped, f"more than {MAX_NESTED} packets inside each other", len(walk))
    for carried in tcp:
        count_carried(skipped, carried)
    every = np.concatenate(located)
    return take(every, np.argsort(every["row"], kind="stable"))


def _parted(walk: Rows, which: NDArray[np.bool_]) -> tuple[Rows, Rows]:
    """The rows that are not in ``which``, and those that are."""
    return (take(walk, ~which), take(walk, which)) if which.any() else (walk, walk[:0])


def _udp(
    data: Bytes, walk: Rows, addresses: AddressTable, skipped: Counter[str], inside: list[Rows], plain: list[Rows]
) -> Rows:
    """RoCEv2 after IP headers; the contents of tunnels in UDP go to ``inside``, all other UDP to ``plain``."""
    walk = keep(walk, walk["at"] + 4 <= walk["end"], skipped, TRUNCATED)
    source_port, port = u16(data, walk["at"], walk["end"]), u16(data, walk["at"] + 2, walk["end"])
    if len(others := np.flatnonzero(port != ROCE_PORT)):
        tunnelled, bare = unwrap_udp(data, take(walk, others), port[others])
        if len(tunnelled):
            inside.append(tunnelled)
        others = others[bare]
        datagrams = take(walk, others)
        # The lower port is the service's, in both directions.
        datagrams["link"] = np.where(source_port == ROCE_PORT, port, np.minimum(source_port, port))[others]
        if len(datagrams):
            plain.append(datagrams)
        walk = take(walk, port == ROCE_PORT)
    walk = keep(walk, walk["at"] + 8 <= walk["end"], skipped, TRUNCATED)

    located = np.zeros(len(walk), FOUND)
    for name in "row", "end", "wire_end", "ip_end":
        located[name] = walk[name]
    located["bth"] = walk["at"] + 8
    located["udp_length"] = u16(data, walk["at"] + 4, walk["end"])
    located["source_port"] = u16(data, walk["at"], walk["end"])
    ip = walk["ip"]
    # In IPv6 the traffic class spans the first two bytes.
    located["ecn"] = np.where(walk["version"] == 4, data[ip + 1], data[ip + 1] >> 4) & 3
    fill_addresses(data, walk, addresses, located)
    return located


def fill_addresses(data: Bytes, walk: Rows, addresses: AddressTable, located: Rows) -> None:
    """Fill in ``source`` and ``destination`` of ``located`` from the IP headers of WALK rows."""
    ip = walk["ip"]
    four = walk["version"] == 4
    if four.any():
        both = wide(data, ip[four] + 12, 8)
        located["source"][four] = addresses.ipv4_ids((both >> np.uint64(32)).astype(np.uint32))
        located["destination"][four] = addresses.ipv4_ids(both.astype(np.uint32))
    if not four.all():
        six = ip[~four]
        located["source"][~four] = addresses.ids(wide(data, six + 8, 8), wide(data, six + 16, 8))
        located["destination"][~four] = addresses.ids(wide(data, six + 24, 8), wide(data, six + 32, 8))


def _link_layer(data: Bytes, walk: Rows, skipped: Counter[str]) -> Rows:
    """Skip link header and tags: sets ``next`` to the EtherType, and ``at`` after them."""
    known = np.isin(walk["link"], (ETHERNET, *COOKED, *RAW_IP, LINKED))
    walk = keep(walk, known, skipped, lambda other: map(_link_type, other["link"].tolist()))

    link_type = walk["link"]
    at, length = np.zeros(len(walk), np.int64), np.zeros(len(walk), np.int64)
    for number, (ethertype, header) in {ETHERNET: (12, 14), **COOKED}.items():
        at[link_type == number] = ethertype
        length[link_type == number] = header
    raw = np.isin(link_type, RAW_IP)
    complete = walk["at"] + np.where(raw, 1, length) <= walk["end"]
    if not complete.all():
        count(skipped, TRUNCATED, int(np.count_nonzero(~complete)))
        walk, raw = take(walk, complete), raw[complete]
        at, length = at[complete], length[complete]

    link_type = walk["link"]
    version = u8(data, walk["at"], walk["end"]) >> 4
    by_version = np.select((version == 4, version == 6), (IPV4, IPV6), -1)
    by_version[(link_type == IPV4_ONLY) & (version != 4)] = -1
    by_version[(link_type == IPV6_ONLY) & (version != 6)] = -1
    announced = np.where(raw, by_version, u16(data, walk["at"] + at, walk["end"]))
    walk["next"] = np.where(link_type == LINKED, walk["next"], announced)
    walk["at"] += length

    tagged = np.isin(walk["next"], TAGS) & ~raw
    for _ in range(MAX_HEADERS):
        if not tagged.any():
            break
        complete = ~tagged | (walk["at"] + 4 <= walk["end"])
        walk, tagged = keep(walk, complete, skipped, TRUNCATED), tagged[complete]
        walk["next"][tagged] = u16(data, walk["at"][tagged] + 2, walk["end"][tagged])
        walk["at"][tagged] += 4
        tagged = tagged & np.isin(walk["next"], TAGS)
    return walk


def _keep_ip(walk: Rows, skipped: Counter[str]) -> Rows:
    return keep(
        walk,
        np.isin(walk["next"], (IPV4, IPV6)),
        skipped,
        lambda other: map(_ethertype, other["next"].tolist()),
    )


def _network_layer(data: Bytes, walk: Rows, skipped: Counter[str], tcp: list[Rows]) -> Rows:
    """Skip the IPv4 header or the fixed IPv6 one: sets ``next`` to the IP protocol number, and ``at`` after it."""
    first = u8(data, walk["at"], walk["end"])
    seen = walk["at"] < walk["end"]
    version = np.where(walk["next"] == IPV4, 4, 6)
    header = np.where(version == 4, (first & 15) * 4, 40)
    walk = keep(walk, seen, skipped, TRUNCATED)
    first, version, header = first[seen], version[seen], header[seen]
    right = (first >> 4 == version) & (header >= 20)
    walk = keep(walk, right, skipped, "malformed IP header")
    version, header = version[right], header[right]

    complete = walk["at"] + np.where(version == 4, 20, 40) <= walk["end"]
    walk = keep(walk, complete, skipped, TRUNCATED)
    version, header = version[complete], header[complete]
    four = version == 4
    ip, end = walk["at"], walk["end"]
    walk["ip"] = ip
    walk["version"] = version
    total = u16(data, ip + 2, end)
    walk["ip_end"] = np.where(four, ip + total, ip + 40 + u16(data, ip + 4, end))
    walk["next"] = np.where(four, u8(data, ip + 9, end), u8(data, ip + 6, end))
    field = u16(data, ip + 6, end)
    fragmented = four & (field & 0x3FFF != 0)
    walk["at"] = ip + header
    if some(fragmented):
        packed = (field & 0x1FFF) << 3 | (field & 0x2000 != 0)
        _fragments(data, take(walk, fragmented), packed[fragmented], skipped, tcp)
    return take(walk, ~fragmented)


def _fragments(data: Bytes, walk: Rows, packed: Int64s, skipped: Counter[str], tcp: list[Rows]) -> None:
    """Take fragments, with ``at`` after their IP headers; those of TCP go to ``tcp``, with ``packed`` in ``link``."""
    walk["link"] = packed
    walk, segments = _parted(walk, walk["next"] == TCP)
    if len(segments):
        tcp.append(segments)
    roce = (walk["link"] == 1) & (walk["next"] == UDP) & (u16(data, walk["at"] + 2, walk["end"]) == ROCE_PORT)
    count(skipped, FIRST_FRAGMENT, int(np.count_nonzero(roce)))
    count(skipped, IP_FRAGMENT, int(np.count_nonzero(~roce)))


def _extension_headers(data: Bytes, walk: Rows, skipped: Counter[str], tcp: list[Rows]) -> Rows:
    for _ in range(MAX_HEADERS):
        six = walk["version"] == 6
        units = six & np.isin(walk["next"], EXTENSIONS)
        fragment = six & (walk["next"] == FRAGMENT)
        authentication = walk["next"] == AUTHENTICATION
        extended = units | fragment | authentication
        if not extended.any():
            break
        complete = ~extended | (walk["at"] + 8 <= walk["end"])
        broken = fragment & complete & (u16(data, walk["at"] + 2, walk["end"]) & 0xFFF9 != 0)
        size = u8(data, walk["at"] + 1, walk["end"])
        step = np.select(
            (units, fragment, authentication),
            (size * 8 + 8, 8, size * 4 + 8),  # RFC 8200, 4.3 and 4.5; RFC 4302, 2.2
            0,
        )
        walk["next"] = np.where(extended, u8(data, walk["at"], walk["end"]), walk["next"])
        walk["at"] += step
        count(skipped, TRUNCATED, int(np.count_nonzero(~complete)))
        if broken.any():
            fragments = take(walk, broken)
            _fragments(data, fragments, u16(data, fragments["at"] - 6, fragments["end"]) & 0xFFF9, skipped, tcp)
        walk = take(walk, complete & ~broken)
    return walk


def _link_type(number: int) -> str:
    return LINK_TYPES.get(number, f"link type {number}")


def _ethertype(number: int) -> str:
    if number in TAGS:
        return f"more than {MAX_HEADERS} VLAN tags"
    if number < 0:
        return "malformed IP header"
    if number < 0x0600:  # a length (IEEE 802.3, 3.2.6)
        return "IEEE 802.3"
    return ETHERTYPES.get(number, f"ethertype 0x{number:04x}")


def _protocol(number: int, version: int) -> str:
    if number == AUTHENTICATION or (version == 6 and number in (FRAGMENT, *EXTENSIONS)):
        return "too many extension headers"
    return PROTOCOLS.get(number, f"IP protocol {number}")
