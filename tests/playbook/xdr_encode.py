"""Operations of a COMPOUND from values by the names of the RFC; what is left out is zero, empty or absent."""

from __future__ import annotations

from typing import Any

from rdmascope.captures.peer.rpc import encoded
from rdmascope.dissect.onc.shapes.nfs4 import CALLBACK_OPERATIONS, OPERATIONS

from .nfs4 import OK, Op

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


def callback_done(name: str, status: int = OK, **results: Any) -> Op:
    """The result of an operation of a callback."""
    number = CALLBACK_NUMBERS[name]
    return Op(number, (encoded(CALLBACK_OPERATIONS[number].results, {"status": status, **results})[4:],), status)
