"""What a procedure or an operation is: its name, its arguments and its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .types import XdrArm, XdrInteger, XdrStruct, XdrType, XdrUnion, union_or


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
