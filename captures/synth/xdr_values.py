"""Values of declared XDR types: their bytes, and what bytes hold (RFC 4506).

A value is an int, bytes, None (an optional that is absent), a list (an array, a linked list), a tuple of bit numbers (a
bitmap), or a dictionary from field names to values (a structure, a union with its discriminant, attributes by name).
"""

from __future__ import annotations

from struct import pack
from typing import Any

from rdmascope.dissect.onc.shapes.decode import MAX_NODES, Node, SparseBytes, decode
from rdmascope.dissect.onc.shapes.types import (
    XdrArm,
    XdrArray,
    XdrAttributes,
    XdrBitmap,
    XdrInteger,
    XdrList,
    XdrOpaque,
    XdrOptional,
    XdrSelected,
    XdrStruct,
    XdrType,
    XdrUnion,
)

from .endpoint.payload import DdpItem, Parts, pad, whole

XdrValue = Any


class NoValue(Exception):
    """The bytes are no value of the type."""


def encoded(type: XdrType, value: XdrValue = None) -> bytes:
    """The bytes of a value; what is left out of a structure is zero, empty or absent."""
    return whole(encoded_parts(type, value))


def encoded_parts(type: XdrType, value: XdrValue = None) -> Parts:
    """The bytes of a value; an opaque given as ``DdpItem`` is a part of its own."""
    encoder = _ValueEncoder()
    encoder.add(type, value)
    return encoder.parts()


class _ValueEncoder:
    def __init__(self) -> None:
        self.done: list[bytes | DdpItem] = []
        self.text = bytearray()

    def parts(self) -> Parts:
        return (*self.done, bytes(self.text)) if self.text or not self.done else tuple(self.done)

    def add(self, type: XdrType, value: XdrValue) -> None:
        match type:
            case XdrInteger():
                self.text += (int(value or 0) % (1 << 8 * type.size)).to_bytes(type.size, "big")
            case XdrOpaque():
                self._opaque(value or bytes(type.size or 0), type.size)
            case XdrSelected():
                self._opaque(value or b"")
            case XdrStruct():
                for name, one in type.fields:
                    self.add(one, (value or {}).get(name))
            case XdrUnion():
                number = (value or {}).get(type.discriminant, 0 if type.has_default else min(type.arms))
                self.add(type.type, number)
                self._arm(type.arms.get(number, type.default), value)
            case XdrArray():
                if type.size is None:
                    self.text += pack(">I", len(value or ()))
                for one in value or ():
                    self.add(type.element, one)
            case XdrOptional():
                self.text += pack(">I", value is not None)
                if value is not None:
                    self.add(type.element, value)
            case XdrList():
                for one in value or ():
                    self.text += pack(">I", 1)
                    self.add(type.element, one)
                self.text += bytes(4)
            case XdrBitmap():
                self._bitmap(value or ())
            case XdrAttributes():
                self._attributes(type, value or {})

    def _opaque(self, data: bytes | DdpItem, size: int | None = None) -> None:
        content = data.data if isinstance(data, DdpItem) else data
        assert size in (None, len(content)), f"{len(content)} bytes of {size}"
        if size is None:
            self.text += pack(">I", len(content))
        if isinstance(data, DdpItem):
            self.done += [bytes(self.text), data]
            self.text.clear()
        else:
            self.text += content + pad(len(content))

    def _arm(self, arm: XdrArm, value: XdrValue) -> None:
        if isinstance(arm, XdrStruct | XdrUnion):
            self.add(arm, value)
        elif arm is not None:
            self.add(arm[1], (value or {}).get(arm[0]))

    def _bitmap(self, bits: Any) -> None:
        count = max(bits, default=-1) // 32 + 1
        words = (sum(1 << bit % 32 for bit in bits if bit // 32 == index) for index in range(count))
        self.text += pack(f">{count + 1}I", count, *words)

    def _attributes(self, type: XdrAttributes, value: dict[str, XdrValue]) -> None:
        numbers = {name: number for number, (name, _) in type.attributes.items()}
        bits = sorted(numbers[name] for name in value)
        self._bitmap(bits)
        self._opaque(b"".join(encoded(type.attributes[bit][1], value[type.attributes[bit][0]]) for bit in bits))


def decoded(type: XdrType, data: bytes, start: int = 0, max_nodes: int = MAX_NODES) -> tuple[XdrValue, int]:
    """The value at ``start``, and the offset behind it; raises NoValue."""
    found = decode(type, type.name, SparseBytes([(0, data)], len(data)), start, len(data), max_nodes)
    if found.problem:
        raise NoValue(found.problem)
    return plain(found.root), found.end


def plain(node: Node) -> XdrValue:
    """The value of a decoded tree; raises NoValue where a part of it is none."""
    if node.note or node.type is None:
        raise NoValue(f"{node.name}: {node.note}")
    match node.type:
        case XdrInteger() | XdrBitmap():
            return node.value
        case XdrOpaque() | XdrSelected():
            return bytes(node.value) if isinstance(node.value, memoryview) else b""
        case XdrStruct() | XdrUnion():
            return {one.name: plain(one) for one in node.children}
        case XdrArray() | XdrList():
            return [plain(one) for one in node.children]
        case XdrOptional():
            return None
        case XdrAttributes():
            held = node.child("attr_vals") or node
            if held.note:
                raise NoValue(f"{held.name}: {held.note}")
            return {one.name: plain(one) for one in held.children}
