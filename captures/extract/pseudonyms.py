"""Other values in the place of addresses, names, handles and other opaque bytes: as long, and the same for the same.

Which is which cannot be seen from the values: what is not counted is drawn with a key that is forgotten.
"""

from __future__ import annotations

import hashlib
import os
import string

IPV4_MAPPED = bytes(10) + b"\xff\xff"
LINK_LOCAL = b"\xfe\x80" + bytes(6)
BENCHMARK_NETWORK = 0xC6120000
"""198.18.0.0/15, which no host of a real network has (RFC 2544, C.2.2)."""
DOCUMENTATION = b"\x20\x01\x0d\xb8" + bytes(4)
"""2001:db8::/32 (RFC 3849)."""
FIRST_IDENTITY = 100_000
"""User and group IDs that are given begin behind it."""
TRIES = 64
"""Texts that are drawn until one is free: those of few letters may all be taken."""


class Pseudonyms:
    """Remembers the addresses and texts that it replaced; what else it replaces takes no memory."""

    def __init__(self, key: bytes | None = None) -> None:
        """``key``: 32 random bytes, a new one each time where none is given."""
        self._key = os.urandom(32) if key is None else key
        self._numbers: dict[tuple[str, bytes], int] = {}
        self._counts: dict[str, int] = {}
        self._texts: dict[bytes, bytes] = {}
        self._taken: set[bytes] = set()

    def _number(self, kind: str, value: bytes) -> int:
        """Which of its kind it is, from 1."""
        if (kind, value) not in self._numbers:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[kind, value] = self._counts[kind]
        return self._numbers[kind, value]

    def identity(self, kind: str, value: int) -> int:
        """A 'uid' or 'gid' of 32 bits; root and those that stand for none stay."""
        if value in (0, 65534, 0xFFFFFFFE, 0xFFFFFFFF):
            return value
        return FIRST_IDENTITY + self._number(kind, value.to_bytes(4, "big"))

    def mac(self, address: bytes) -> bytes:
        """Locally administered; groups stay."""
        if address[0] & 1 or not any(address):
            return address
        return b"\x02\x00" + self._number("mac", address).to_bytes(4, "big")

    def guid(self, value: bytes) -> bytes:
        """Of a channel adapter or port; zero stays."""
        return value if not any(value) else b"\x02\x00" + self._number("guid", value).to_bytes(6, "big")

    def ipv4(self, address: bytes) -> bytes:
        """Of 198.18.0.0/15; groups, loopback and the addresses of ones or zeros stay."""
        if address[0] in (0, 127) or address[0] >= 224:
            return address
        return (BENCHMARK_NETWORK + self._number("ipv4", address) % (1 << 17)).to_bytes(4, "big")

    def ipv6(self, address: bytes) -> bytes:
        """Of 2001:db8::/32 or the link; also a GID.  Groups, and what stands for no host, stay."""
        if address.startswith(IPV4_MAPPED):
            return IPV4_MAPPED + self.ipv4(address[12:])
        if address[0] == 0xFF or not any(address[:15]):
            return address
        if address.startswith(LINK_LOCAL):
            return LINK_LOCAL + self.guid(address[8:])
        return DOCUMENTATION + self._bytes(address, 8)  # Drawn: examples have the low numbers of that network.

    def text(self, value: bytes) -> bytes:
        """A path, name or owner: letters for letters and digits for digits, each of its components by itself."""
        return b"/".join(self._component(part) for part in value.split(b"/"))

    def _component(self, value: bytes) -> bytes:
        if value in (b"", b".", b".."):
            return value
        found = self._texts.get(value)
        if found is None:
            for attempt in range(TRIES):
                found = self._drawn(value, attempt)
                if found != value and found not in self._taken:
                    break
            assert found is not None
            self._texts[value] = found
            self._taken.add(found)
        return found

    def _drawn(self, value: bytes, attempt: int) -> bytes:
        random = self._bytes(attempt.to_bytes(4, "big") + value, len(value))
        return bytes(_like(byte, chance) for byte, chance in zip(value, random, strict=True))

    def opaque(self, value: bytes) -> bytes:
        """A handle, verifier or state ID; those of ones or zeros alone have a meaning, and stay."""
        if not value or (value.count(value[0]) == len(value) and value[0] in (0, 255)):
            return value
        return self._bytes(value, len(value))

    def _bytes(self, value: bytes, length: int) -> bytes:
        """``length`` bytes that only the key tells from random ones."""
        return hashlib.shake_256(self._key + value).digest(length)


def _like(byte: int, chance: int) -> int:
    """A letter for a letter, a digit for a digit; other ASCII characters stay: paths and addresses have them."""
    character = chr(byte)
    if character in string.digits:
        return ord(string.digits[chance % 10])
    if byte >= 0x80 or character in string.ascii_letters:
        return ord(string.ascii_lowercase[chance % 26])
    return byte
