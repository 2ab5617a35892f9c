"""Steps over a value, made from its declaration: how far it reaches, without decoding it."""

from __future__ import annotations

from functools import cache

from .. import xdr
from ..xdr import Shape, Skip
from .types import (
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

_BITMAP = xdr.array(4)
_ATTRIBUTES = xdr.struct(_BITMAP, xdr.opaque)
_VALUES = XdrOpaque("attrlist4")


@cache
def skip_of(type: XdrType) -> Shape:
    """The bytes a value always takes, or the function that steps over one."""
    match type:
        case XdrInteger():
            return type.size
        case XdrOpaque():
            return xdr.opaque if type.size is None else xdr.round_up(type.size)
        case XdrStruct():
            return xdr.struct(*[skip_of(inner) for _, inner in type.fields])
        case XdrUnion():
            default = skip_of_arm(type.default) if type.has_default else None
            return xdr.union({value: skip_of_arm(arm) for value, arm in type.arms.items()}, default)
        case XdrArray(size=None):
            return xdr.array(skip_of(type.element))
        case XdrArray():
            return xdr.struct(*[skip_of(type.element)] * (type.size or 0))
        case XdrOptional():
            return xdr.union({0: 0, 1: skip_of(type.element)})
        case XdrList():
            return xdr.chain(skip_of(type.element))
        case XdrBitmap():
            return _BITMAP
        case XdrAttributes():
            return _ATTRIBUTES
        case XdrSelected():
            return xdr.opaque


def skip_of_arm(arm: XdrArm) -> Shape:
    """The skip of what stands behind a union's discriminant."""
    if arm is None:
        return 0
    return skip_of(arm if isinstance(arm, XdrStruct | XdrUnion) else arm[1])


@cache
def parts_of(arm: XdrArm) -> tuple[int | XdrType, ...]:
    """A value as parts one behind the other: so many bytes, or a type whose first word says how far it reaches."""
    type = arm[1] if isinstance(arm, tuple) else arm
    if type is None:
        return ()
    if isinstance(size := skip_of(type), int):
        return (size,)
    match type:
        case XdrStruct():
            parts = [part for field in type.fields for part in parts_of(field)]
        case XdrAttributes():
            parts = [type.mask, _VALUES]
        case _:
            return (type,)
    joined: list[int | XdrType] = []
    for part in parts:
        if isinstance(part, int) and joined and isinstance(joined[-1], int):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined)


def counted(type: XdrType) -> int:
    """Bytes of each of what a count stands before; 0 where that is not all."""
    match type:
        case XdrOpaque() | XdrSelected():
            return 1
        case XdrBitmap():
            return 4
        case XdrArray(size=None) if isinstance(size := skip_of(type.element), int):
            return size
    return 0


@cache
def steps_to(type: XdrStruct, *path: str) -> Skip:
    """Steps from the beginning of a structure to one of its fields, or to a field of that field's structure.

    Raises KeyError where there is no such field.
    """
    before: list[Shape] = []
    for wanted in path:
        for name, field in type.fields:
            if name == wanted:
                break
            before.append(skip_of(field))
        else:
            raise KeyError(f"{type.name}: {wanted}")
        if isinstance(field, XdrStruct):
            type = field
    return xdr.as_skip(xdr.struct(*before))


def steps_behind(type: XdrStruct, field: str) -> Skip:
    """Steps from the end of a field to that of its structure.  Raises KeyError where there is no such field."""
    names = [name for name, _ in type.fields]
    if field not in names:
        raise KeyError(f"{type.name}: {field}")
    return xdr.as_skip(xdr.struct(*[skip_of(inner) for _, inner in type.fields[names.index(field) + 1 :]]))


def place_of(type: XdrStruct, *path: str) -> int:
    """Bytes from the beginning of a structure to a field, behind fields of fixed size.

    Raises KeyError where there is no such field, and struct.error where a field before it has no fixed size.
    """
    return steps_to(type, *path)(memoryview(b""), 0)
