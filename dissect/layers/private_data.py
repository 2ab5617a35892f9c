"""RPC-over-RDMA version 1 private data in connection requests and replies (RFC 8797, section 4)."""

from __future__ import annotations

from typing import Any

from scapy.fields import BitField, ByteField, StrField, XIntField

from .layer import Header
from .rpcrdma_codes import FORMAT_IDENTIFIER, SIZE_UNIT, find_private_data as find_private_data


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
