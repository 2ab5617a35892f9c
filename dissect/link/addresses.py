"""Small numbers for addresses, so that columns can hold them."""

from __future__ import annotations

import ipaddress

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s

MAPPED = np.uint64(0xFFFF00000000)
"""Bytes 8 to 15 of ::ffff:0.0.0.0."""

LID = b"InfiniBand LID"
"""Bytes 0 to 13 where bytes 14 and 15 are a Local Identifier: no IPv6 address or GID (RFC 4291, 2.4) begins so."""

NOT_KNOWN = np.uint32(0xFFFFFFFF)


class AddressTable:
    """Gives each address a small number: 16 bytes, IPv4 as ::ffff:a.b.c.d (RFC 4291, 2.5.5.2), a LID behind ``LID``."""

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}
        self._addresses: list[bytes] = []
        self._names: list[str] = []
        self._high = np.zeros(0, np.uint64)
        self._low = np.zeros(0, np.uint64)
        self._hashes = np.zeros(0, np.uint64)
        self._order = np.zeros(0, np.uint32)

    def __len__(self) -> int:
        return len(self._addresses)

    def id(self, address: bytes) -> int:
        """The number of an address of 16 bytes; a new one where it was not seen before."""
        known = self._ids.get(address)
        if known is None:
            known = self._add(address)
            self._index()
        return known

    def since(self, number: int) -> list[bytes]:
        """The addresses from that number on."""
        return self._addresses[number:]

    def learn(self, number: int, addresses: list[bytes]) -> None:
        """Take over what another table has from that number on; up to there the two are the same."""
        new = addresses[len(self) - number :]
        for address in new:
            self._add(address)
        if new:
            self._index()

    def address(self, id: int) -> bytes:
        return self._addresses[id]

    def name(self, id: int) -> str:
        """The address as people write it: '10.77.0.1', 'fd77::1', 'LID 3'."""
        return self._names[id]

    def ids(self, high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Numbers of many addresses, given as their first and last eight bytes."""
        found = self._known(high, low)
        unknown = np.flatnonzero(found == NOT_KNOWN)
        if len(unknown):
            # Many packets, few addresses: those with different hashes are quickly distinguished.
            _, first = np.unique(_hash(high[unknown], low[unknown]), return_index=True)
            self._numbers(high[unknown[first]], low[unknown[first]])
            found[unknown] = self._known(high[unknown], low[unknown])
            unknown = np.flatnonzero(found == NOT_KNOWN)
        if len(unknown):  # different ones with the same hash
            found[unknown] = self._numbers(high[unknown], low[unknown])
        return found

    def _numbers(self, high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """The same, for addresses that are mostly new."""
        pairs = np.stack((high, low), axis=1).astype(">u8")
        distinct, inverse = np.unique(pairs.view("V16").ravel(), return_inverse=True)
        numbers = []
        for one in distinct:
            key = bytes(one)
            known = self._ids.get(key)
            numbers.append(self._add(key) if known is None else known)
        self._index()
        return np.array(numbers, np.uint32)[inverse]

    def ipv4_ids(self, addresses: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Numbers of many IPv4 addresses, given in host byte order."""
        low = addresses.astype(np.uint64)
        low |= MAPPED
        return self.ids(np.zeros(len(low), np.uint64), low)

    def lid_ids(self, lids: Int64s) -> NDArray[np.uint32]:
        """Numbers of many Local Identifiers (IBA 3.5.10)."""
        high, low = (np.uint64(int.from_bytes(half)) for half in (LID[:8], LID[8:] + bytes(2)))
        return self.ids(np.full(len(lids), high), lids.astype(np.uint64) | low)

    def _known(self, high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.uint32]:
        if not len(self._hashes):
            return np.full(len(high), NOT_KNOWN, np.uint32)
        where = np.searchsorted(self._hashes, _hash(high, low))
        np.minimum(where, len(self._hashes) - 1, out=where)
        found = self._order[where]
        found[(self._low[found] != low) | (self._high[found] != high)] = NOT_KNOWN
        return found

    def _add(self, address: bytes) -> int:
        if len(address) != 16:
            raise ValueError(f"an address has 16 bytes, not {len(address)}")
        number = self._ids[address] = len(self._addresses)
        self._addresses.append(address)
        self._names.append(_name(address))
        return number

    def _index(self) -> None:
        new = np.frombuffer(b"".join(self._addresses[len(self._high) :]), ">u8").astype(np.uint64)
        self._high = np.concatenate((self._high, new[0::2]))
        self._low = np.concatenate((self._low, new[1::2]))
        hashes = _hash(self._high, self._low)
        self._order = np.argsort(hashes, kind="stable").astype(np.uint32)
        self._hashes = hashes[self._order]


def _name(address: bytes) -> str:
    if address.startswith(LID):
        return f"LID {int.from_bytes(address[-2:])}"
    parsed = ipaddress.IPv6Address(address)
    return str(parsed.ipv4_mapped or parsed)


def _hash(high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Wraps around; the caller distinguishes addresses with the same hash."""
    return high * np.uint64(0x9E3779B97F4A7C15) ^ low * np.uint64(0xC2B2AE3D27D4EB4F)
