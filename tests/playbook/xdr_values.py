"""Values of a declared XDR type, and their bytes: an encoder that shares nothing with the decoder but the declaration.

A value is an int, bytes, None (an optional that is absent), a list (an array, a linked list), a tuple of bit numbers (a
bitmap), or a dictionary from field names to values (a structure, a union with its discriminant first, attributes).
"""

from __future__ import annotations

from struct import pack
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

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

Chosen = dict[str, int]
"""Enums that decide on opaques behind them."""


def values(type: XdrType) -> SearchStrategy[tuple[Any, bytes]]:
    """Values of a type with their bytes."""
    return st.composite(lambda draw: _Draw(draw).value(type, {}))()


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def counted(data: bytes) -> bytes:
    return pack(">I", len(data)) + padded(data)


class _Draw:
    def __init__(self, draw: Any) -> None:
        self.draw = draw

    def value(self, type: XdrType, chosen: Chosen) -> tuple[Any, bytes]:
        match type:
            case XdrInteger():
                return self.integer(type)
            case XdrOpaque():
                return self.opaque(type, type.inner, chosen)
            case XdrSelected():
                return self.opaque(type.otherwise, type.choices.get(chosen.get(type.selector, -1)), chosen)
            case XdrStruct():
                return self.struct(type, chosen)
            case XdrUnion():
                return self.union(type, chosen)
            case XdrArray():
                size = self.draw(st.integers(0, min(type.maximum or 2, 2))) if type.size is None else type.size
                found = [self.value(type.element, chosen) for _ in range(size)]
                head = pack(">I", size) if type.size is None else b""
                return [one for one, _ in found], head + b"".join(data for _, data in found)
            case XdrOptional():
                if self.draw(st.booleans()):
                    inner, data = self.value(type.element, chosen)
                    return inner, pack(">I", 1) + data
                return None, bytes(4)
            case XdrList():
                found = [self.value(type.element, chosen) for _ in range(self.draw(st.integers(0, 2)))]
                return [one for one, _ in found], b"".join(pack(">I", 1) + data for _, data in found) + bytes(4)
            case XdrBitmap():
                return self.bitmap(sorted(type.bits) or list(range(40)))
            case XdrAttributes():
                return self.attributes(type, chosen)

    def integer(self, type: XdrInteger) -> tuple[int, bytes]:
        bits = type.size * 8
        lowest = -(1 << bits - 1) if type.signed else 0
        named = st.sampled_from(sorted(type.values)) if type.values else st.nothing()
        number = self.draw(named | st.integers(lowest, lowest + (1 << bits) - 1) if not type.values else named)
        return number, (number % (1 << bits)).to_bytes(type.size, "big")

    def opaque(self, type: XdrOpaque, inner: XdrType | None, chosen: Chosen) -> tuple[Any, bytes]:
        if inner is not None:
            value, data = self.value(inner, chosen)
            return {inner.name: value}, counted(data)
        longest = min(type.maximum or 9, 9)
        size = self.draw(st.integers(0, longest)) if type.size is None else type.size
        data = self.draw(st.binary(min_size=size, max_size=size))
        return data, counted(data) if type.size is None else padded(data)

    def struct(self, type: XdrStruct, chosen: Chosen) -> tuple[dict[str, Any], bytes]:
        found: dict[str, Any] = {}
        data = b""
        for name, one in type.fields:
            found[name], more = self.value(one, chosen)
            if isinstance(found[name], int):
                chosen[name] = found[name]
            data += more
        return found, data

    def union(self, type: XdrUnion, chosen: Chosen) -> tuple[dict[str, Any], bytes]:
        others = [value for value in type.type.values if value not in type.arms] if type.has_default else []
        number = self.draw(st.sampled_from([*type.arms, *others]))
        found, data = self.arm(type.arms.get(number, type.default), chosen)
        return {type.discriminant: number, **found}, pack(">I", number) + data

    def arm(self, arm: XdrArm, chosen: Chosen) -> tuple[dict[str, Any], bytes]:
        if arm is None:
            return {}, b""
        if isinstance(arm, XdrStruct):
            return self.struct(arm, chosen)
        if isinstance(arm, XdrUnion):
            return self.union(arm, chosen)
        value, data = self.value(arm[1], chosen)
        return {arm[0]: value}, data

    def bitmap(self, bits: list[int]) -> tuple[tuple[int, ...], bytes]:
        found = self.draw(st.lists(st.sampled_from(bits), max_size=4, unique=True))
        count = max(found, default=-1) // 32 + 1
        words = [sum(1 << bit % 32 for bit in found if bit // 32 == index) for index in range(count)]
        return tuple(sorted(found)), pack(f">{count + 1}I", count, *words)

    def attributes(self, type: XdrAttributes, chosen: Chosen) -> tuple[dict[str, Any], bytes]:
        bits, mask = self.bitmap(sorted(type.attributes))
        found: dict[str, Any] = {"attrmask": bits, "attr_vals": {}}
        data = b""
        for bit in bits:
            name, one = type.attributes[bit]
            found["attr_vals"][name], more = self.value(one, chosen)
            data += more
        return found, mask + counted(data)
