"""Procedures, errors and directions of RPC-over-RDMA, as tables (RFC 8166, 4; version-two-01, 4).

And the RPC-over-RDMA version 1 message in a connection's private data (RFC 8797, sections 4 and 5.2).
"""

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


RDMA_MSG, RDMA_NOMSG, RDMA_MSGP, RDMA_DONE, RDMA_ERROR, RDMA_OPTIONAL = range(6)

PROCEDURE_NAMES = {
    RDMA_MSG: "RDMA_MSG",
    RDMA_NOMSG: "RDMA_NOMSG",
    RDMA_MSGP: "RDMA_MSGP",
    RDMA_DONE: "RDMA_DONE",
    RDMA_ERROR: "RDMA_ERROR",
}
"""Procedures of version 1 (RFC 8166, 4.2)."""

PROCEDURE_NAMES_2 = {
    RDMA_MSG: "RDMA2_MSG",
    RDMA_NOMSG: "RDMA2_NOMSG",
    RDMA_ERROR: "RDMA2_ERROR",
    RDMA_OPTIONAL: "RDMA2_OPTIONAL",
}
"""Of version 2 (version-two-01, 4.2)."""

ERR_VERS, ERR_CHUNK, ERR_INVAL_OPTION = 1, 2, 3

ERROR_NAMES = {ERR_VERS: "RDMA_ERR_VERS", ERR_CHUNK: "RDMA_ERR_CHUNK (RDMA_ERR_BADHEADER)"}
"""Errors of version 1 (RFC 8166, 4.5)."""

ERROR_NAMES_2 = {
    ERR_VERS: "RDMA2_ERR_VERS",
    ERR_CHUNK: "RDMA2_ERR_BAD_HEADER",
    ERR_INVAL_OPTION: "RDMA2_ERR_INVAL_OPTION",
}
"""Of version 2 (version-two-01, 4.2)."""

DIRECTION_NAMES = {0: "CALL", 1: "REPLY"}
"""The msg_type of RPC, which version 2 has in its header, too (version-two-01, 4.2)."""


NO_RDMA = -1
"""In place of a version where a message came over TCP or UDP, without a transport header."""


def procedure_name(version: int, procedure: int | None) -> str:
    """rdma_proc in words; 'procedure 77' where the version does not define it, '' where it is not there.

    An RDMA_ERROR has one layout in every version (RFC 8166, 4.5), and so a name in those not known here.
    """
    if procedure is None or version == NO_RDMA:
        return ""
    known = {1: PROCEDURE_NAMES, 2: PROCEDURE_NAMES_2}.get(version, {RDMA_ERROR: "RDMA_ERROR"})
    return known.get(procedure, f"procedure {procedure}")


def error_name(version: int, code: int | None) -> str:
    """rdma_err in words; 'error 77' where the version does not define it, '' where it is not there."""
    if code is None:
        return ""
    return (ERROR_NAMES_2 if version == 2 else ERROR_NAMES).get(code, f"error {code}")
