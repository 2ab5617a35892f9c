"""The base of every layer here; and XDR (RFC 4506) as Scapy fields: items, opaque data, lists, optional data. Every
length is checked against the bytes there are before anything is made of it.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from scapy.fields import Field, IntEnumField, PacketField, PacketListField, StrField
from scapy.packet import Packet, Padding, Raw

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


class ChecksumField(TrailingField):
    """A checksum of ``size`` bytes, with the verdict of the packet's ``verify_NAME`` where one is possible."""

    __slots__ = ("size",)

    def __init__(self, name: str, size: int) -> None:
        super().__init__(name)
        self.size = size

    def i2repr(self, pkt: Any, x: Any) -> str:
        if not isinstance(x, int):
            return f"{super().i2repr(pkt, x)} (truncated)" if x else "None"
        verdict = None if pkt is None else getattr(pkt, f"verify_{self.name}")()
        return f"0x{x:0{2 * self.size}x}" + {True: " (good)", False: " (wrong)", None: ""}[verdict]


_WORD = Struct(">I")


class MalformedXDR(ValueError):
    """Bytes that no value of the type has; Scapy keeps such a layer as Raw."""


def word_at(data: bytes, at: int) -> int:
    if at + 4 > len(data):
        raise MalformedXDR(f"a word at {at} of {len(data)} bytes")
    return int(_WORD.unpack_from(data, at)[0])


def padded(length: int) -> int:
    """Opaque data are filled to a multiple of four (RFC 4506, 4.9 and 4.10)."""
    return length + -length % 4


def _present(data: bytes, at: int) -> bool:
    """The word before optional data (RFC 4506, 4.19)."""
    value = word_at(data, at)
    if value > 1:
        raise MalformedXDR(f"an optional-data word is {value}, neither 0 nor 1")
    return value == 1


class Structure(Header):
    """A header with items inside.

    Always built from its fields: Scapy keeps the bytes a packet was dissected from, and does not notice a
    change two levels below.
    """

    def do_dissect(self, data: bytes) -> bytes:
        rest: bytes = super().do_dissect(data)
        self.raw_packet_cache = None
        return rest


class Item(Structure):
    """A structure inside another one; its size is known from its first bytes."""

    @classmethod
    def take(cls, data: bytes, at: int) -> tuple[Any, int]:
        """The item at ``at``, and where it ends."""
        end = at + cls.size_at(data, at)
        if end > len(data):
            raise MalformedXDR(f"{cls.name} at {at} ends at {end} of {len(data)} bytes")
        return cls.strict(data[at:end]), end

    @classmethod
    def size_at(cls, data: bytes, at: int) -> int:
        return int(sum(field.sz for field in cls.fields_desc))

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        layer: type[Any] = Padding
        return layer


class ItemField(PacketField):  # type: ignore[misc]
    """An Item in its place."""

    def getfield(self, pkt: Any, data: bytes) -> tuple[bytes, Any]:
        item, end = self.cls.take(data, 0)
        return data[end:], item


class OptionalField(PacketField):  # type: ignore[misc]
    """Optional data: a word 0, or a word 1 and the Item (RFC 4506, 4.19); None is: absent."""

    def getfield(self, pkt: Any, data: bytes) -> tuple[bytes, Any]:
        if not _present(data, 0):
            return data[4:], None
        item, end = self.cls.take(data, 4)
        return data[end:], item

    def addfield(self, pkt: Any, data: bytes, item: Any) -> bytes:
        return data + (_WORD.pack(0) if item is None else _WORD.pack(1) + bytes(item))


class OptionalListField(PacketListField):  # type: ignore[misc]
    """A list: a word 1 before each Item, a word 0 behind the last (RFC 4506, 4.19)."""

    def getfield(self, pkt: Any, data: bytes) -> tuple[bytes, list[Any]]:
        items: list[Any] = []
        at = 0
        while _present(data, at):
            item, at = self.cls.take(data, at + 4)
            items.append(item)
        return data[at + 4 :], items

    def addfield(self, pkt: Any, data: bytes, items: list[Any]) -> bytes:
        return data + b"".join(_WORD.pack(1) + bytes(item) for item in items) + _WORD.pack(0)


class ArrayField(PacketListField):  # type: ignore[misc]
    """A counted array: a word that counts, and so many Items (RFC 4506, 4.13)."""

    def getfield(self, pkt: Any, data: bytes) -> tuple[bytes, list[Any]]:
        items: list[Any] = []
        count, at = word_at(data, 0), 4
        while len(items) < count:
            item, at = self.cls.take(data, at)
            items.append(item)
        return data[at:], items

    def addfield(self, pkt: Any, data: bytes, items: list[Any]) -> bytes:
        return data + _WORD.pack(len(items)) + b"".join(map(bytes, items))


class EnumField(IntEnumField):  # type: ignore[misc]
    """An enum or a bool: a word that must be one of those named (RFC 4506, 4.3 and 4.4)."""

    def getfield(self, pkt: Any, data: bytes) -> tuple[bytes, int]:
        value = word_at(data, 0)
        if value not in self.i2s:
            raise MalformedXDR(f"{self.name} is {value}")
        return data[4:], value


class OpaqueField(StrField):  # type: ignore[misc]
    """Opaque data or a string of at most ``limit`` bytes; its length is the field ``length_name`` before it.

    Pad bytes other than zero are illegal (RFC 4506, 4.10).
    """

    __slots__ = ("length_name", "limit")

    def __init__(self, name: str, length_name: str, limit: int) -> None:
        super().__init__(name, b"")
        self.length_name, self.limit = length_name, limit

    def getfield(self, pkt: Any, data: bytes) -> tuple[bytes, Any]:
        length = getattr(pkt, self.length_name)
        end = padded(length)
        if length > self.limit or end > len(data) or any(data[length:end]):
            raise MalformedXDR(f"{self.name}: {length} bytes (at most {self.limit}) out of {len(data)}")
        return data[end:], data[:length]

    def addfield(self, pkt: Any, data: bytes, value: Any) -> bytes:
        raw = self.i2m(pkt, value)
        return bytes(data + raw.ljust(padded(len(raw)), b"\0"))
