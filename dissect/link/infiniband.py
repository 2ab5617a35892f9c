"""Finds the transport packets of native InfiniBand and of RoCEv1: behind a Local Route Header, a Global one, or both.

IBA volume 1: LRH 7.7, packet formats 5.2, GRH 8.3; annex A16 (RoCEv1).  All fields are big-endian.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, take
from ..layers.transports import NATIVE, ROCEV1
from .addresses import AddressTable
from .numbers import IBA_TRANSPORT, IPV4, IPV6
from .walk_rows import FOUND, SHORTEST, count, keep, u8, u16, wide

LRH_BYTES = 8
GRH_BYTES = 40
IBA_LOCAL, IBA_GLOBAL = 2, 3
"""Link Next Header: a BTH, or a GRH and a BTH (IBA 7.7.5)."""

UD_SENDS = {0x64: 20, 0x65: 24}
"""Unreliable Datagram Send opcodes, without and with immediate data: bytes of BTH, DETH and ImmDt."""
IPOIB_TYPES = (IPV4, IPV6, 0x0806, 0x8035)
"""What IP over InfiniBand carries: IPv4, IPv6, ARP, RARP (RFC 4391, 6)."""


def locate_rocev1(data: Bytes, walk: Rows, addresses: AddressTable, skipped: Counter[str]) -> Rows:
    """FOUND rows of the RoCEv1 packets; the WALK rows stand at the GRH."""
    walk = _global(data, walk, skipped, "RoCEv1")
    grh = walk["at"]
    length = u16(data, grh + 4, walk["end"])
    good = length >= SHORTEST
    walk, grh, length = keep(walk, good, skipped, "RoCEv1, too short"), grh[good], length[good]
    found = _found(walk, grh + GRH_BYTES, grh + GRH_BYTES + length, ROCEV1)
    found["source"], found["destination"] = _gids(data, grh, addresses)
    return found


def locate_native(data: Bytes, walk: Rows, addresses: AddressTable, skipped: Counter[str]) -> Rows:
    """FOUND rows of the InfiniBand transport packets; the WALK rows stand at the LRH.

    Their addresses are LIDs, which name every port inside a subnet; where a GRH names two subnets, its GIDs.
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

    found = _found(walk, bth, end, NATIVE)
    found["destination"] = addresses.lid_ids(u16(data, lrh + 2, walk["end"]))
    found["source"] = addresses.lid_ids(u16(data, lrh + 6, walk["end"]))
    if routed.any():
        across = np.flatnonzero(routed)
        grh = bth[across] - GRH_BYTES
        other = wide(data, grh + 8, 8) != wide(data, grh + 24, 8)
        other &= data[grh + 24] != 0xFF  # multicast is inside the subnet
        across, grh = across[other], grh[other]
        found["source"][across], found["destination"][across] = _gids(data, grh, addresses)
    return found


def _global(data: Bytes, walk: Rows, skipped: Counter[str], what: str) -> Rows:
    """The rows with a GRH in front of a BTH."""
    walk = keep(walk, walk["at"] + GRH_BYTES <= walk["end"], skipped, f"{what}, header truncated")
    version, following = u8(data, walk["at"], walk["end"]) >> 4, u8(data, walk["at"] + 6, walk["end"])
    return keep(walk, (version == 6) & (following == IBA_TRANSPORT), skipped, f"{what}, malformed")


def _gids(data: Bytes, grh: Int64s, addresses: AddressTable) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    source = addresses.ids(wide(data, grh + 8, 8), wide(data, grh + 16, 8))
    return source, addresses.ids(wide(data, grh + 24, 8), wide(data, grh + 32, 8))


def _is_ipoib(data: Bytes, bth: Int64s, end: Int64s) -> NDArray[np.bool_]:
    """Datagrams that begin with the header of IP over InfiniBand (RFC 4391, 6)."""
    opcode = u8(data, bth, end)
    datagram = np.isin(opcode, list(UD_SENDS))
    datagram &= u16(data, bth + 5, end) << 8 | u8(data, bth + 7, end) > 1  # not management
    payload = bth + np.where(opcode == 0x65, UD_SENDS[0x65], UD_SENDS[0x64])
    kind = u16(data, payload, end)
    right = np.isin(kind, IPOIB_TYPES) & (u16(data, payload + 2, end) == 0) & (payload + 5 <= end)
    version = u8(data, payload + 4, end) >> 4
    right &= ((kind != IPV4) | (version == 4)) & ((kind != IPV6) | (version == 6))
    found: NDArray[np.bool_] = datagram & right
    return found


def _found(walk: Rows, bth: Int64s, end: Int64s, transport: int) -> Rows:
    found = np.zeros(len(walk), FOUND)
    for name in "row", "end", "wire_end":
        found[name] = walk[name]
    found["bth"], found["ip_end"], found["udp_length"] = bth, end, end - bth + 8
    found["transport"] = transport
    return found
