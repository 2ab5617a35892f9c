"""RPC-over-RDMA version 1 private data in connection requests and replies (RFC 8797, section 4)."""

from __future__ import annotations

from struct import Struct
from typing import Any

from scapy.fields import BitField, ByteField, StrField, XIntField

from ..connection import PrivateData
from .bth import Header

FORMAT_IDENTIFIER = 0xF6AB0E18
SIZE = 8
SIZE_UNIT = 1024
"""Send and Receive Size count these beyond the first (4.2)."""

_MAGIC = FORMAT_IDENTIFIER.to_bytes(4, "big")
_MESSAGE = Struct(">IBBBB").unpack_from


def find_private_data(data: bytes) -> list[PrivateData]:
    """Every RFC 8797 message in the consumer private data ``data``, by ascending offset.

    The format identifier is looked for at every offset (5.2).  A match counts where its version is 1 and its
    eight bytes lie wholly inside; the first one is in force, more than one is an ambiguity worth telling.
    """
    found: list[PrivateData] = []
    at = data.find(_MAGIC)
    while at >= 0:
        if at + SIZE <= len(data):
            _, version, flags, send, receive = _MESSAGE(data, at)
            if version == 1:
                sizes = (send + 1) * SIZE_UNIT, (receive + 1) * SIZE_UNIT
                found.append(PrivateData(version, bool(flags & 1), *sizes, at))
        at = data.find(_MAGIC, at + 1)
    return found


class SizeField(ByteField):  # type: ignore[misc]
    """An inline size: 0 is 1024 bytes, 255 is 262144 (4.2)."""

    def i2repr(self, pkt: Any, value: int | None) -> str:
        return str(value) if value is None else f"{value} ({(value + 1) * SIZE_UNIT} bytes)"


class RPCRDMAPrivateData(Header):
    """The RFC 8797 message: 8 bytes.  What follows it is not its business."""

    name = "RPC-over-RDMA private data"
    fields_desc = (
        XIntField("format_identifier", FORMAT_IDENTIFIER),
        ByteField("version", 1),
        BitField("reserved", 0, 7),
        BitField("r", 0, 1),
        SizeField("send_size", 3),
        SizeField("receive_size", 3),
    )

    def mysummary(self) -> str:
        sizes = f"send {(self.send_size + 1) * SIZE_UNIT} receive {(self.receive_size + 1) * SIZE_UNIT}"
        return f"RPC-over-RDMA private data R={self.r} {sizes}"


class _BytesBefore(StrField):  # type: ignore[misc]
    """What stands before the first RFC 8797 message, or everything."""

    def getfield(self, pkt: Any, data: bytes) -> tuple[bytes, bytes]:
        messages = find_private_data(data)
        at = messages[0].offset if messages else len(data)
        return data[at:], data[:at]


class ConsumerPrivateData(Header):
    """Private data of any kind, with the RFC 8797 message behind them where there is one."""

    name = "Consumer private data"
    fields_desc = (_BytesBefore("load", b""),)

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        return RPCRDMAPrivateData


def private_data_class(data: bytes) -> type[Any]:
    """The layer for the consumer private data ``data``."""
    messages = find_private_data(data)
    if messages and messages[0].offset == 0:
        return RPCRDMAPrivateData
    return ConsumerPrivateData
