"""What every layer here is made from."""

from __future__ import annotations

from typing import Any

from scapy.fields import Field
from scapy.packet import Packet, Raw

LayerClass = type[Any]
"""A Packet class; where a field is called ``type``, too."""


class Header(Packet):  # type: ignore[misc]
    """A Scapy packet; the one place where strict typing meets Scapy's missing types.

    Bytes that are none of a layer, because they are too few or contradict themselves, give Raw instead of an error:
    ``RPCRDMA(b"abc")`` is Raw.  ``strict`` raises.
    """

    __slots__ = ()

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "dispatch_hook" not in vars(cls):  # Scapy asks each class only for its own
            cls.dispatch_hook = classmethod(_own_class_or_raw)

    @classmethod
    def strict(cls, data: bytes, **keywords: Any) -> Any:
        """The layer; whatever Scapy and its fields raise where the bytes are none of it."""
        packet = cls.__new__(cls)
        Packet.__init__(packet, data, **keywords)
        return packet


def _own_class_or_raw(cls: Any, _pkt: bytes | None = None, *args: Any, **keywords: Any) -> Any:
    """Scapy's ``dispatch_hook``: which class the bytes are made into."""
    if not _pkt:
        return cls
    trial = cls.__new__(cls)
    try:
        Packet.__init__(trial)
        trial.underlayer = keywords.get("_underlayer")
        trial.do_dissect(bytes(_pkt))
    except Exception:  # struct.error, IndexError, MalformedXDR …
        return Raw
    return cls


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
