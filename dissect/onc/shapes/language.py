"""Declarations in the language of the RFCs: XDR (RFC 4506, 6) with programs (RFC 5531, 12).

Some words say what the RFCs say in prose only.  ``hex`` and ``octal`` before an integer are how it is written;
``handle``, ``data``, ``string`` and ``address`` are opaques that hold this; ``flags`` is an integer whose bits have
names, ``bits`` a bitmap4, ``attributes NAME by MASK`` a fattr4; ``opaque NAME<> switch (TYPE FIELD)`` is an opaque
whose contents an earlier field of the same structure chooses; ``linked`` is a linked list.  The fields of an arm that
has no name become the union's.  A procedure may say in which section it stands (``= 25 in 18.22``); a number without a
procedure is named ``_``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from .types import (
    ADDRESS,
    BOOL,
    DATA,
    HANDLE,
    HEXADECIMAL,
    INT32,
    INT64,
    OCTAL,
    OPAQUE,
    TEXT,
    UINT32,
    UINT64,
    OperationShape,
    ProcedureShape,
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

Declarations = Mapping[str, Any]
"""Types by name; a program is a dictionary of its procedures or operations by number."""

BASIC: Declarations = {type.name: type for type in (BOOL, UINT32, INT32, UINT64, INT64)}
_FORMS = {"opaque": OPAQUE, "handle": HANDLE, "data": DATA, "string": TEXT, "address": ADDRESS}

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_DECLARATION = re.compile(r"(\w+) ([^{};]+)(?:\{([^}]*)\})?;")
_FIELD = re.compile(r"(?:(hex|octal|linked) )?(\w+) (\*?)(\w+)(?:\[(\d+)\]|<(\d*)>)?")
_NAMED = re.compile(r"(\w+) = (\w+)")
_PROCEDURE = re.compile(r"(\w+) (\w+)\((\w+)\) = (\d+)(?: in ([^;]+))?;")
_CASE = re.compile(r"case (\w+):|default:")


def declared(text: str, *known: Declarations, **more: XdrType) -> dict[str, Any]:
    """The types and programs of ``text`` by name, and those of ``known`` and ``more``, which it may refer to.

    Raises KeyError for a type that none of them declares, ValueError for what is no declaration.
    """
    types: dict[str, Any] = {}
    for types_by_name in (BASIC, *known, more):
        types |= types_by_name
    for kind, head, body in _DECLARATION.findall(_COMMENT.sub("", text)):
        name, *rest = head.split()
        match kind:
            case "typedef":
                name, type = _field(head, types)
                types[name] = replace(type, name=name) if isinstance(type, XdrInteger | XdrOpaque) else type
            case "enum":
                types[name] = XdrInteger(name, values=_names(body))
            case "flags":
                types[name] = XdrInteger(name, form=HEXADECIMAL, flags=_names(body))
            case "bits":
                types[name] = XdrBitmap("bitmap4", _names(body))
            case "struct":
                types[name] = XdrStruct(name, tuple(_field(field, types) for field in _parts(body)))
            case "union":
                types[name] = _union(name, head, body, types)
            case "opaque":
                name, otherwise = _field(f"opaque {name}", types)
                chosen: Any = _union(name, head, body, types)
                types[name] = XdrSelected(name, chosen.discriminant, chosen.arms, otherwise)
            case "attributes":
                numbered = (field.split(" = ") for field in _parts(body))
                fields = {int(number): _field(field, types) for field, number in numbered}
                types[name] = XdrAttributes(name, fields, types[rest[1]])
            case "program":
                types[name] = dict(_procedures(body, types))
            case _:
                raise ValueError(f"no declaration: {kind} {head}")
    return types


def _parts(body: str) -> Iterator[str]:
    return (part.strip() for part in body.split(";")[:-1])


def _names(body: str) -> dict[int, str]:
    return {int(number, 0): name for name, number in _NAMED.findall(body)}


def _field(text: str, types: Declarations) -> tuple[str, Any]:
    """``TYPE NAME``, ``TYPE *NAME``, ``TYPE NAME[SIZE]`` or ``TYPE NAME<MAXIMUM>``."""
    plain, _, field = text.partition(" ")
    if field.isidentifier() and plain in types:  # Most are such.
        return field, types[plain]
    match = _FIELD.fullmatch(text)
    if match is None:
        raise ValueError(f"no declaration of a field: {text}")
    prefix, base, optional, name, size, maximum = match.groups()
    length, limit = int(size) if size else None, int(maximum) if maximum else None
    type: Any = XdrOpaque(base, _FORMS[base], length, limit) if base in _FORMS else types[base]
    if prefix == "linked":
        type = XdrList(f"{type.name} list", type)
    elif prefix:
        type = replace(type, form={"hex": HEXADECIMAL, "octal": OCTAL}[prefix])
    elif base not in _FORMS and (size or maximum is not None):
        type = XdrArray(f"{type.name}<>", type, length, limit)
    return name, XdrOptional(type.name, type) if optional else type


@cache
def _numbers(type: XdrInteger) -> dict[str, int]:
    """The values of an enum or bool, by name."""
    return {name: number for number, name in type.values.items()}


def _union(name: str, head: str, body: str, types: Declarations) -> XdrUnion:
    """``head`` ends in ``switch (TYPE NAME)``."""
    discriminant, type = _field(head.partition("(")[2].rstrip(" )"), types)
    numbers = _numbers(type)
    arms: dict[int, Any] = {}
    union = XdrUnion(name, discriminant, type, arms)
    for part in _parts(body):
        declaration = _CASE.sub("", part).strip()
        arm = None
        if declaration != "void":
            arm = _field(declaration, types) if " " in declaration else types[declaration]
        for label in _CASE.findall(part):
            if label:
                arms[numbers[label] if label in numbers else int(label)] = arm
            else:
                union.has_default, union.default = True, arm
    return union


def _procedures(body: str, types: Declarations) -> Iterator[tuple[int, ProcedureShape | OperationShape]]:
    voids = {"void": None, **types}
    for results, name, arguments, number, section in _PROCEDURE.findall(body):
        shape = "" if name == "_" else name, voids[arguments], voids[results]
        yield int(number), OperationShape(*shape, section) if section else ProcedureShape(*shape)
