"""XDR types as data (RFC 4506): what a value is called, how long it is, and what it is made of.

A declaration is a tree of these types; ``decode`` makes a tree of values from it, ``skips`` the steps over them.
No type contains itself: a linked list is ``XdrList``, so a declaration's depth bounds every walk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

DECIMAL, HEXADECIMAL, OCTAL = "decimal", "hexadecimal", "octal"
OPAQUE, TEXT, ADDRESS, HANDLE, DATA = "opaque", "text", "address", "handle", "data"
"""What the bytes of an opaque mean: nothing to this protocol, characters, a universal address, a file handle, contents
of a file."""


@dataclass(frozen=True, slots=True, eq=False)
class XdrInteger:
    """int, unsigned int, hyper, enum, bool (4.1 to 4.5): big-endian, ``size`` bytes."""

    name: str
    size: int = 4
    signed: bool = False
    form: str = DECIMAL
    values: Mapping[int, str] = field(default_factory=dict)
    """Names of the values of an enum or bool."""
    flags: Mapping[int, str] = field(default_factory=dict)
    """Names of bits, by mask; of 0, where no bit is set."""
    choice_mask: int = 0
    """Bits that are a number together, named by ``choices``."""
    choices: Mapping[int, str] = field(default_factory=dict)
    number: str = ""
    """What the bits are as a number that no flag has."""
    unit: str = ""
    meanings: Mapping[int, str] = field(default_factory=dict)
    """What some values stand for; in JSON they stay numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class XdrOpaque:
    """Opaque data and strings (4.9 to 4.11), filled to a multiple of four."""

    name: str
    form: str = OPAQUE
    size: int | None = None
    """Bytes; None: a count stands before them."""
    maximum: int | None = None
    inner: XdrType | None = None
    """What the bytes are made of, where the protocol says so."""


@dataclass(frozen=True, slots=True, eq=False)
class XdrStruct:
    """4.14."""

    name: str
    fields: tuple[tuple[str, XdrType], ...]


@dataclass(frozen=True, slots=True, eq=False)
class XdrUnion:
    """4.15: a discriminant, and the arm that it chooses; an arm is a structure or another union, whose fields become
    the union's own, a field, or None for void."""

    name: str
    discriminant: str
    type: XdrInteger
    arms: Mapping[int, XdrArm]
    has_default: bool = False
    default: XdrArm = None


@dataclass(frozen=True, slots=True, eq=False)
class XdrArray:
    """4.12 and 4.13."""

    name: str
    element: XdrType
    size: int | None = None
    """Elements; None: a count stands before them."""
    maximum: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class XdrOptional:
    """4.19: a bool, and the value where it is true."""

    name: str
    element: XdrType


@dataclass(frozen=True, slots=True, eq=False)
class XdrList:
    """A linked list (4.19): a true before each element, a false behind the last."""

    name: str
    element: XdrType


@dataclass(frozen=True, slots=True, eq=False)
class XdrBitmap:
    """bitmap4 (RFC 8881, 3.3.7): an array of words, the lowest bit first."""

    name: str
    bits: Mapping[int, str]


@dataclass(frozen=True, slots=True, eq=False)
class XdrAttributes:
    """fattr4 (RFC 8881, 3.3.7): a bitmap, and the values of its attributes inside one opaque."""

    name: str
    attributes: Mapping[int, tuple[str, XdrType]]
    mask: XdrBitmap


@dataclass(frozen=True, slots=True, eq=False)
class XdrSelected:
    """An opaque whose contents an earlier enum of the same structure chooses."""

    name: str
    selector: str
    """Name of that field."""
    choices: Mapping[int, XdrType]
    otherwise: XdrOpaque


XdrType = (
    XdrInteger
    | XdrOpaque
    | XdrStruct
    | XdrUnion
    | XdrArray
    | XdrOptional
    | XdrList
    | XdrBitmap
    | XdrAttributes
    | XdrSelected
)
XdrArm = XdrStruct | XdrUnion | tuple[str, XdrType] | None


TO_END_OF_FILE = "to end of file"
"""What a length says."""


def enum(name: str, values: Mapping[int, str]) -> XdrInteger:
    return XdrInteger(name, values=values)


def flags(name: str, names: Mapping[int, str]) -> XdrInteger:
    """Bits by their masks."""
    return XdrInteger(name, form=HEXADECIMAL, flags=names)


def string(name: str, maximum: int | None = None) -> XdrOpaque:
    return XdrOpaque(name, TEXT, maximum=maximum)


def address(name: str) -> XdrOpaque:
    """RFC 5665, 5.2.3."""
    return XdrOpaque(name, ADDRESS)


def fixed(name: str, size: int) -> XdrOpaque:
    return XdrOpaque(name, size=size)


def struct(name: str, /, **fields: XdrType) -> XdrStruct:
    """Fields in order; a trailing underscore of a name is left out (``from_``)."""
    return XdrStruct(name, tuple((one.rstrip("_"), type) for one, type in fields.items()))


def extended(name: str, base: XdrStruct, /, **fields: XdrType) -> XdrStruct:
    """The fields of ``base``, and more behind them."""
    return XdrStruct(name, base.fields + struct(name, **fields).fields)


def union(name: str, discriminant: str, type: XdrInteger, arms: Mapping[int, XdrArm]) -> XdrUnion:
    """Without a default arm."""
    return XdrUnion(name, discriminant, type, arms)


def union_or(
    name: str, discriminant: str, type: XdrInteger, arms: Mapping[int, XdrArm], default: XdrArm = None
) -> XdrUnion:
    """With a default arm, void unless given."""
    return XdrUnion(name, discriminant, type, arms, True, default)


def array(element: XdrType, maximum: int | None = None) -> XdrArray:
    return XdrArray(f"{element.name}<>", element, maximum=maximum)


def optional(element: XdrType) -> XdrOptional:
    return XdrOptional(element.name, element)


def linked(element: XdrType) -> XdrList:
    return XdrList(f"{element.name} list", element)


BOOL = XdrInteger("bool", values={0: "FALSE", 1: "TRUE"})
UINT32 = XdrInteger("uint32_t")
INT32 = XdrInteger("int32_t", signed=True)
UINT64 = XdrInteger("uint64_t", 8)
INT64 = XdrInteger("int64_t", 8, signed=True)


class ProcedureShape(NamedTuple):
    """A procedure of a program; None where nothing is sent."""

    name: str
    arguments: XdrType | None = None
    results: XdrType | None = None


class OperationShape(NamedTuple):
    """An operation of COMPOUND or CB_COMPOUND."""

    name: str
    arguments: XdrStruct | None
    results: XdrUnion
    section: str


def result(
    name: str,
    status: XdrInteger,
    ok: XdrArm = None,
    failed: XdrArm = None,
    others: Mapping[int, XdrArm] | None = None,
    discriminant: str = "status",
) -> XdrUnion:
    """A status, ``ok`` behind a zero, ``failed`` behind any other but those in ``others``."""
    return union_or(name, discriminant, status, {0: ok, **(others or {})}, failed)


def table(*procedures: ProcedureShape) -> dict[int, ProcedureShape]:
    """By procedure number, from 0 on."""
    return dict(enumerate(procedures))
