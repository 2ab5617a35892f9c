"""A value of a declared type in which all that can be there is there, and no number is another's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from rdmascope.captures.peer.rpc import encoded
from rdmascope.dissect.onc.shapes.types import (
    ADDRESS,
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


@dataclass
class Filled:
    """``turn`` chooses the arm of each union, the value of each enum, and which attributes there are."""

    turn: int
    numbers: Iterator[int] = field(default_factory=lambda: count(1000))

    def value(self, type: XdrType) -> Any:
        match type:
            case XdrInteger():
                if type.values:
                    return [*type.values][self.turn % len(type.values)]
                return sum(type.flags) or next(self.numbers)
            case XdrOpaque():
                return self._bytes(type)
            case XdrStruct():
                return self._struct(type)
            case XdrUnion():
                arms = sorted(type.arms)
                return self.arm(type, arms[self.turn % len(arms)])
            case XdrArray():
                size = type.size or min(2, type.maximum or 2)
                return [self.value(type.element) for _ in range(size)]
            case XdrList():
                return [self.value(type.element) for _ in range(2)]
            case XdrOptional():
                return self.value(type.element)
            case XdrBitmap():
                return tuple(type.bits)[:4]
            case XdrAttributes():
                known = sorted(type.attributes)
                chosen = [type.attributes[known[(3 * self.turn + one) % len(known)]] for one in range(3)]
                return {name: self.value(one) for name, one in chosen}
        return b""

    def arm(self, type: XdrUnion, number: int) -> dict[str, Any]:
        return self._armed(type.arms.get(number, type.default)) | {type.discriminant: number}

    def _armed(self, arm: XdrArm) -> dict[str, Any]:
        if isinstance(arm, XdrStruct | XdrUnion):
            found: dict[str, Any] = self.value(arm)
            return found
        return {} if arm is None else {arm[0]: self.value(arm[1])}

    def _struct(self, type: XdrStruct) -> dict[str, Any]:
        found = {name: self.value(one) for name, one in type.fields}
        for name, one in type.fields:
            chosen = one.choices.get(found.get(one.selector, -1)) if isinstance(one, XdrSelected) else None
            if chosen is not None:
                found[name] = encoded(chosen, self.value(chosen))
        return found

    def _bytes(self, type: XdrOpaque) -> bytes:
        number = next(self.numbers)
        if type.inner is not None:
            return encoded(type.inner, self.value(type.inner))
        if type.size is not None:
            return bytes((number + at) % 256 for at in range(type.size))
        if type.form == ADDRESS:
            return b"10.0.0.%d.8.1" % (number % 200)
        return b"tcp" if type.name == "r_netid" else b"text%d" % number
