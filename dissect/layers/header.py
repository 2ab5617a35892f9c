"""What every layer here is made from."""

from __future__ import annotations

from typing import Any

from scapy.fields import Field
from scapy.packet import Packet

LayerClass = type[Any]
"""A Packet class; where a field is called ``type``, too."""


class Header(Packet):  # type: ignore[misc]
    """A Scapy packet; the one place where strict typing meets Scapy's missing types."""

    __slots__ = ()


class TrailingField(Field):  # type: ignore[misc]
    """A field that stands behind the payload: it takes no room in the header; the layer itself reads and builds it."""

    def __init__(self, name: str) -> None:
        super().__init__(name, None, "0s")

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, None]:
        return s, None

    def addfield(self, pkt: Any, s: bytes, val: Any) -> bytes:
        return s

    def any2i(self, pkt: Any, x: Any) -> Any:
        return x

    def i2repr(self, pkt: Any, x: Any) -> str:
        return x.hex() if isinstance(x, bytes) else repr(x)
