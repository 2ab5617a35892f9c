"""Finds the RPC-over-RDMA version 1 message in a connection's private data (RFC 8797, sections 4 and 5.2)."""

from __future__ import annotations

from struct import Struct

from ..named_tuple import NamedTuple

FORMAT_IDENTIFIER = 0xF6AB0E18
SIZE = 8
SIZE_UNIT = 1024
"""Send and Receive Size count these beyond the first (4.2)."""

_MAGIC = FORMAT_IDENTIFIER.to_bytes(4, "big")
_MESSAGE = Struct(">IBBBB").unpack_from


class Identified(NamedTuple):
    """A format identifier, and what stands behind it as far as it lies inside the private data; None where not."""

    offset: int
    version: int | None
    reserved: int | None
    """The seven bits beside the R flag."""
    whole: bool
    """All eight octets lie inside."""


def find_identifiers(data: bytes) -> list[Identified]:
    """Every format identifier in the consumer private data ``data``, by ascending offset, whatever follows it."""
    identifiers: list[Identified] = []
    at = data.find(_MAGIC)
    while at >= 0:
        version = data[at + 4] if at + 4 < len(data) else None
        reserved = data[at + 5] >> 1 if at + 5 < len(data) else None
        identifiers.append(Identified(at, version, reserved, at + SIZE <= len(data)))
        at = data.find(_MAGIC, at + 1)
    return identifiers


def find_private_data(data: bytes) -> list[PrivateData]:
    """Every RFC 8797 message in the consumer private data ``data``, by ascending offset.

    The format identifier is looked for at every offset (5.2).  A match counts where its version is 1 and its
    eight bytes lie wholly inside; the first one is in force, more than one is an ambiguity worth telling.
    """
    messages: list[PrivateData] = []
    at = data.find(_MAGIC)
    while at >= 0:
        if at + SIZE <= len(data):
            _, version, flags, send, receive = _MESSAGE(data, at)
            if version == 1:
                sizes = (send + 1) * SIZE_UNIT, (receive + 1) * SIZE_UNIT
                messages.append(PrivateData(version, bool(flags & 1), *sizes, at))
        at = data.find(_MAGIC, at + 1)
    return messages


class PrivateData(NamedTuple):
    """The RFC 8797 message in a connection request or reply (section 4)."""

    version: int
    remote_invalidation: bool
    """The R flag."""
    send_size: int
    """Bytes; (field + 1) * 1024."""
    receive_size: int
    offset: int
    """Where it was found in the consumer private data."""
