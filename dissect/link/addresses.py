"""Small numbers for addresses, so that columns can hold them."""

from __future__ import annotations

import ipaddress

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, places

MAPPED = np.uint64(0xFFFF00000000)
"""Bytes 8 to 15 of ::ffff:0.0.0.0."""

LID = b"InfiniBand LID"
"""Bytes 0 to 13 of a Local Identifier, which bytes 14 and 15 hold: no IPv6 address or GID (RFC 4291, 2.4) begins so."""

NOT_KNOWN = np.uint32(0xFFFFFFFF)
FORGOTTEN = "address forgotten"
RECENT = 64
"""An address asked for within so many of the last requests is not forgotten: several batches."""


class AddressTable:
    """Gives each address a small number: 16 bytes, IPv4 as ::ffff:a.b.c.d (RFC 4291, 2.5.5.2), a LID after ``LID``."""

    def __init__(self, limit: int = 0) -> None:
        """``limit``: addresses to keep; beyond that half of them are forgotten, the longest unseen first, and get other
        numbers when seen again.  0: all."""
        self._limit = limit
        self._ids: dict[bytes, int] = {}
        self._addresses: dict[int, bytes] = {}
        self._names: dict[int, str] = {}
        self._given = 0
        """How many numbers were given."""
        self._new: list[bytes] = []
        """Addresses that are not in the columns so far."""
        self._high = np.zeros(0, np.uint64)
        self._low = np.zeros(0, np.uint64)
        self._hashes = np.zeros(0, np.uint64)
        self._order = np.zeros(0, np.uint32)
        self._number = np.zeros(0, np.uint32)
        """The number in each row; if all addresses are kept, the row itself."""
        self._seen = np.zeros(0, np.int64)
        """When each was last asked for, counted by ``_asked``."""
        self._asked = 0

    def __len__(self) -> int:
        """How many numbers were given."""
        return self._given

    def id(self, address: bytes) -> int:
        """The number of an address of 16 bytes; a new number for a new address."""
        known = self._ids.get(address)
        if known is None:
            known = self._add(address)
            self._index()
        return known

    def since(self, number: int) -> list[bytes]:
        """The addresses with this number or a higher one."""
        return [*self._addresses.values()][number:]

    def learn(self, number: int, addresses: list[bytes]) -> None:
        """Take over another table's ``addresses`` from ``number`` on; both tables must be the same up to there."""
        new = addresses[len(self) - number :]
        for address in new:
            self._add(address)
        if new:
            self._index()

    def address(self, id: int) -> bytes:
        return self._addresses[id]

    def name(self, id: int) -> str:
        """The address as people write it: '10.77.0.1', 'fd77::1', 'LID 3'."""
        return self._names.get(id, FORGOTTEN)

    def ids(self, high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Numbers of many addresses, given as their first and last eight bytes."""
        if self._limit:
            self._asked += 1
            if len(self._ids) > self._limit:
                self._forget()
        numbers = self._known(high, low)
        unknown = places(numbers == NOT_KNOWN)
        if len(unknown):
            # Many packets, few addresses: those with different hashes are quickly distinguished.
            _, first = np.unique(_hash(high[unknown], low[unknown]), return_index=True)
            self._numbers(high[unknown[first]], low[unknown[first]])
            numbers[unknown] = self._known(high[unknown], low[unknown])
            unknown = places(numbers == NOT_KNOWN)
        if len(unknown):  # different ones with the same hash
            numbers[unknown] = self._numbers(high[unknown], low[unknown])
        return numbers

    def _numbers(self, high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Numbers of addresses that are mostly new."""
        pairs = np.stack((high, low), axis=1).astype(">u8")
        distinct, inverse = np.unique(pairs.view("V16").ravel(), return_inverse=True)
        numbers = []
        for address in distinct:
            key = bytes(address)
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
        numbers = self._order[where]
        others = (self._low[numbers] != low) | (self._high[numbers] != high)
        if self._limit:
            self._seen[numbers[~others]] = self._asked
            numbers = self._number[numbers]
        numbers[others] = NOT_KNOWN
        return numbers

    def _forget(self) -> None:
        half = self._limit // 2
        kept = self._seen >= min(np.partition(self._seen, -half)[-half], self._asked - RECENT)
        for number in self._number[~kept].tolist():
            del self._ids[self._addresses.pop(number)], self._names[number]
        self._high, self._low = self._high[kept], self._low[kept]
        self._number, self._seen = self._number[kept], self._seen[kept]
        self._sort()

    def _add(self, address: bytes) -> int:
        if len(address) != 16:
            raise ValueError(f"an address has 16 bytes, not {len(address)}")
        number = self._ids[address] = self._given
        self._given += 1
        self._addresses[number] = address
        self._names[number] = _name(address)
        self._new.append(address)
        return number

    def _index(self) -> None:
        new = np.frombuffer(b"".join(self._new), ">u8").astype(np.uint64)
        if self._limit:
            count = len(self._new)
            numbers = np.arange(self._given - count, self._given).astype(np.uint32)
            self._number = np.concatenate((self._number, numbers))
            self._seen = np.concatenate((self._seen, np.full(count, self._asked)))
        self._new.clear()
        self._high = np.concatenate((self._high, new[0::2]))
        self._low = np.concatenate((self._low, new[1::2]))
        self._sort()

    def _sort(self) -> None:
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
