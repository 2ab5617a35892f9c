"""The bytes of a value of a declared XDR type; what is left out of a structure is zero, empty or absent."""

from __future__ import annotations

from struct import pack
from typing import Any

from rdmascope.dissect.onc.shapes.nfs4 import CALLBACK_OPERATIONS, OPERATIONS
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

from .nfs4 import OK, Op
from .xdr_values import counted, padded

NUMBERS = {one.name: number for number, one in OPERATIONS.items()}
CALLBACK_NUMBERS = {one.name: number for number, one in CALLBACK_OPERATIONS.items()}


def op(name: str, **arguments: Any) -> Op:
    """An operation of a COMPOUND with its arguments, by the names of the RFC."""
    number = NUMBERS[name]
    shape = OPERATIONS[number].arguments
    return Op(number, (encoded(shape, arguments),) if shape is not None else ())


def callback_op(name: str, **arguments: Any) -> Op:
    number = CALLBACK_NUMBERS[name]
    shape = CALLBACK_OPERATIONS[number].arguments
    return Op(number, (encoded(shape, arguments),) if shape is not None else ())


def done(name: str, status: int = OK, **results: Any) -> Op:
    """Its result."""
    number = NUMBERS[name]
    return Op(number, (encoded(OPERATIONS[number].results, {"status": status, **results})[4:],), status)


def encoded(type: XdrType, value: Any = None) -> bytes:
    match type:
        case XdrInteger():
            return (int(value or 0) % (1 << 8 * type.size)).to_bytes(type.size, "big")
        case XdrOpaque():
            data = value or bytes(type.size or 0)
            return counted(data) if type.size is None else padded(data)
        case XdrSelected():
            return counted(value or b"")
        case XdrStruct():
            return b"".join(encoded(one, (value or {}).get(name)) for name, one in type.fields)
        case XdrUnion():
            number = (value or {}).get(type.discriminant, min(type.arms))
            return pack(">I", number) + _arm(type.arms.get(number, type.default), value)
        case XdrArray():
            head = pack(">I", len(value or ())) if type.size is None else b""
            return head + b"".join(encoded(type.element, one) for one in value or ())
        case XdrOptional():
            return bytes(4) if value is None else pack(">I", 1) + encoded(type.element, value)
        case XdrList():
            return b"".join(pack(">I", 1) + encoded(type.element, one) for one in value or ()) + bytes(4)
        case XdrBitmap():
            return _bitmap(value or ())
        case XdrAttributes():
            numbers = {name: number for number, (name, _) in type.attributes.items()}
            bits = sorted(numbers[name] for name in value or {})
            given = b"".join(encoded(type.attributes[bit][1], value[type.attributes[bit][0]]) for bit in bits)
            return _bitmap(bits) + counted(given)


def _arm(arm: XdrArm, value: Any) -> bytes:
    if arm is None:
        return b""
    if isinstance(arm, XdrStruct | XdrUnion):
        return encoded(arm, value)
    return encoded(arm[1], (value or {}).get(arm[0]))


def _bitmap(bits: Any) -> bytes:
    count = max(bits, default=-1) // 32 + 1
    return pack(f">{count + 1}I", count, *(sum(1 << bit % 32 for bit in bits if bit // 32 == i) for i in range(count)))
