"""Fields of Communication Management messages that Scapy has not."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from scapy.fields import (
    BitField,
    StrFixedLenField,
)

from .cm_codes import address_text


class NamedBits(BitField):  # type: ignore[misc]
    """A bit field whose values have names."""

    __slots__ = ("names",)

    def __init__(self, name: str, default: int, size: int, names: dict[int, str]) -> None:
        super().__init__(name, default, size)
        self.names = names

    def i2repr(self, pkt: Any, value: int) -> str:
        return self.names.get(value, str(value))


class AddressField(StrFixedLenField):  # type: ignore[misc]
    """A GID in 16 bytes; takes text too, IPv4 being mapped into ::ffff:0:0/96 (RFC 4291, 2.5.5)."""

    prefix = bytes(10) + b"\xff\xff"
    """Before the four bytes of an IPv4 address."""

    def __init__(self, name: str, default: str | bytes = bytes(16)) -> None:
        super().__init__(name, self.any2i(None, default), length=16)

    def any2i(self, pkt: Any, value: Any) -> Any:
        if not isinstance(value, str):
            return super().any2i(pkt, value)
        address = ip_address(value)
        return self.prefix + address.packed if address.version == 4 else address.packed

    def i2repr(self, pkt: Any, value: bytes) -> str:
        return address_text(value) if len(value) == 16 else repr(value)


class IPAddressField(AddressField):
    """An address of the RDMA IP CM header: IPv4 in the last four bytes, zeros before them (A11.4)."""

    prefix = bytes(12)

    def i2repr(self, pkt: Any, value: bytes) -> str:
        if len(value) != 16:
            return repr(value)
        return address_text(value, getattr(pkt, "ipv", None))
