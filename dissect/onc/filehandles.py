"""The current and the saved filehandle along a COMPOUND (RFC 8881, 16.2.3.1.1 and 16.2.3.1.2)."""

from __future__ import annotations

from struct import error as StructError
from typing import NamedTuple

from .compound import (
    OP_CREATE,
    OP_GETATTR,
    OP_GETFH,
    OP_LOOKUP,
    OP_LOOKUPP,
    OP_OPEN,
    OP_OPENATTR,
    OP_PUTFH,
    OP_PUTPUBFH,
    OP_PUTROOTFH,
    OP_RESTOREFH,
    OP_SAVEFH,
    Compound,
    CompoundReply,
)
from .nfs4_skips import ATTRIBUTES, BITMAP, TO_CREATE_NAME, TO_OPEN_CLAIM
from .xdr import Malformed, opaque_at, word

_UNNAMED = frozenset((OP_LOOKUPP, OP_OPENATTR, OP_PUTPUBFH, OP_PUTROOTFH))
"""Operations whose new object is none that a name in the arguments stands for."""
SETS_FILEHANDLE = frozenset((*_UNNAMED, OP_PUTFH, OP_RESTOREFH, OP_SAVEFH, OP_GETFH))
"""Operations that do nothing else than set or return a filehandle."""

_CLAIM_NULL, _CLAIM_DELEGATE_CUR, _CLAIM_DELEGATE_PREV = 0, 2, 3  # open_claim_type4 (RFC 8881, 18.16)

ATTRIBUTE_TYPE, ATTRIBUTE_SIZE, ATTRIBUTE_FILEHANDLE = 1, 4, 19  # RFC 8881, 5.8


class FileObject:
    """A file system object; ``handle`` is None until a GETFH or GETATTR of the same COMPOUND returns it."""

    __slots__ = ("handle",)

    def __init__(self, handle: bytes | None = None) -> None:
        self.handle = handle


class CompoundStep(NamedTuple):
    """One operation of a COMPOUND."""

    number: int
    """In the COMPOUND, from 0."""
    operation: int
    arguments: int
    """Offset in the call."""
    results: int
    """Offset in the reply, behind the status; -1 where there is no result."""
    succeeded: bool | None
    """None where the reply does not show it."""
    before: FileObject
    """The current filehandle as the operation found it."""
    current: FileObject
    """As it left it."""
    saved: FileObject
    name: bytes | None = None
    """LOOKUP, CREATE and OPEN by name: the name in ``before`` of what ``current`` is."""


class CompoundWalk(NamedTuple):
    steps: tuple[CompoundStep, ...]
    problem: str
    """Why there may be more operations than steps, '' where there are not."""


def walk_filehandles(
    compound: Compound, call: memoryview, reply: CompoundReply | None, answer: memoryview
) -> CompoundWalk:
    """Every operation with the objects it was for; ``call`` and ``answer`` are what the two were decoded from.

    The walk ends behind the first operation that failed, as the server's did (RFC 8881, 16.2.3).  Without a reply, or
    behind the end of one that is truncated, operations count as if they had succeeded.
    """
    steps: list[CompoundStep] = []
    current, saved = FileObject(), FileObject()
    problem = compound.problem or (reply.problem if reply is not None else "")
    try:
        for index, (operation, at) in enumerate(zip(compound.operations, compound.places, strict=True)):
            succeeded: bool | None = None
            result = -1
            if reply is not None and index < len(reply.results):
                number, status = reply.results[index]
                if number != operation:
                    return CompoundWalk(tuple(steps), problem or f"result {index + 1} is of another operation")
                succeeded, result = status == 0, reply.places[index]
            elif reply is not None and not reply.truncated:
                break
            before, name = current, None
            if succeeded is not False:
                current, saved, name = _moved(operation, call, at, current, saved)
            steps.append(CompoundStep(index, operation, at, result, succeeded, before, current, saved, name))
            if succeeded:
                _note_handle(operation, answer, result, current)
    except StructError:
        problem = problem or "the bytes end too early"
    except Malformed as error:
        problem = problem or str(error)
    return CompoundWalk(tuple(steps), problem)


def _moved(
    operation: int, call: memoryview, at: int, current: FileObject, saved: FileObject
) -> tuple[FileObject, FileObject, bytes | None]:
    """Current and saved filehandle behind the operation, and the name by which a new one was found."""
    if operation == OP_PUTFH:
        return FileObject(opaque_at(call, at)[0]), saved, None
    if operation == OP_SAVEFH:
        return current, current, None
    if operation == OP_RESTOREFH:
        return saved, saved, None
    if operation in _UNNAMED:
        return FileObject(), saved, None
    name = _name_of_object(operation, call, at)
    return (current, saved, None) if name is None else (FileObject(), saved, name)


def _name_of_object(operation: int, call: memoryview, at: int) -> bytes | None:
    """The name in the arguments of LOOKUP, CREATE, or an OPEN by name."""
    if operation == OP_LOOKUP:
        return opaque_at(call, at)[0]
    if operation == OP_CREATE:
        return opaque_at(call, TO_CREATE_NAME(call, at))[0]
    if operation == OP_OPEN:
        at = TO_OPEN_CLAIM(call, at)
        claim = word(call, at)[0]
        if claim in (_CLAIM_NULL, _CLAIM_DELEGATE_PREV):
            return opaque_at(call, at + 4)[0]
        if claim == _CLAIM_DELEGATE_CUR:
            return opaque_at(call, at + 20)[0]  # behind delegate_stateid
    return None


def _note_handle(operation: int, answer: memoryview, result: int, current: FileObject) -> None:
    if operation == OP_GETFH:
        current.handle = opaque_at(answer, result)[0]
    elif operation == OP_GETATTR:
        place = attribute_at(answer, result, ATTRIBUTE_FILEHANDLE)
        if place is not None:
            current.handle = opaque_at(answer, place)[0]


def attribute_at(view: memoryview, at: int, number: int) -> int | None:
    """Where attribute ``number`` (at most 19) stands in the fattr4 at ``at``; None where it is not in it."""
    mask = word(view, at + 4)[0] if word(view, at)[0] else 0
    if not mask >> number & 1:
        return None
    place = BITMAP(view, at) + 4
    for lower in range(number):
        if mask >> lower & 1:
            place = ATTRIBUTES[lower](view, place)
    return place
