"""The numbers by which tshark, and people who use it, tell file handles and stateids apart."""

from __future__ import annotations

from binascii import crc_hqx
from zlib import crc32


class HashedHandle(bytes):
    """A file handle of which only the number is known, by which tshark and Linux's traces name it: its four bytes."""


def hashed_handle(number: int) -> HashedHandle:
    """The handle of that number."""
    return HashedHandle((number & 0xFFFFFFFF).to_bytes(4))


def handle_hash(handle: bytes | memoryview) -> int:
    """The number that tshark prints for a file handle: its CRC-32."""
    return int.from_bytes(handle) if isinstance(handle, HashedHandle) else crc32(handle)


_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
"""Bytes with their bits in the other order."""


def stateid_hash(stateid: bytes) -> int:
    """The number that tshark prints for a stateid of 16 bytes: its CRC-16 as in X.25, the lowest bits first."""
    return int(f"{crc_hqx(stateid.translate(_REVERSED), 0xFFFF):016b}"[::-1], 2) ^ 0xFFFF
