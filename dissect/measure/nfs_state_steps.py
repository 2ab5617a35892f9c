"""The operations of COMPOUNDs that change state.

Of plain ones it is learned from one where they stand in all that are laid out alike, so that not each is walked over; a
property test says that both ways find the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, words_at
from ..onc.compound import OP_GETATTR, OP_GETFH, OP_PUTFH, compound_call, compound_reply
from ..onc.filehandles import ATTRIBUTE_FILEHANDLE, CompoundStep, CompoundWalk, FileObject, walk_filehandles
from ..onc.programs import NFS
from ..onc.shapes.decode_cache import Layout, PairedLayouts
from ..onc.shapes.registry import procedure_shape
from ..onc.xdr import word
from .nfs_state_clients import CLIENT_OPERATIONS
from .nfs_state_operations import HANDLERS, LEASE_TIME, ChangingStep, decoded_step

CHANGING = (frozenset(HANDLERS) - {OP_GETATTR}) | CLIENT_OPERATIONS
"""Operations that may change state."""
_COMPOUND = procedure_shape(NFS, 4, 1)


def changes_state(step: CompoundStep, reply: memoryview) -> bool:
    """An operation that may change state, or a GETATTR that returns the lease time."""
    if step.operation != OP_GETATTR:
        return step.operation in CHANGING
    if step.results < 0 or step.results + 8 > len(reply):
        return False
    return bool(word(reply, step.results)[0] and word(reply, step.results + 4)[0] >> LEASE_TIME & 1)


def changing_steps(walk: CompoundWalk, call: memoryview, reply: memoryview) -> Iterator[ChangingStep]:
    """Those of a walk over a COMPOUND that succeeded."""
    for step in walk.steps:
        if step.succeeded and changes_state(step, reply):
            fields = decoded_step(step.operation, call, step.arguments, reply, step.results)
            yield ChangingStep(step.operation, *fields, step.current.handle)


class _HandlePlace(NamedTuple):
    """Bytes of a filehandle, from the first of the arguments, or of the results, on."""

    of_reply: bool
    at: int
    size: int


class _StepPlace(NamedTuple):
    """An operation that changes state; offsets as those of ``_HandlePlace``."""

    operation: int
    arguments: int
    results: int
    layouts: tuple[Layout | None, Layout | None]
    handle: _HandlePlace | None


class StepPlaces(NamedTuple):
    """Of COMPOUNDs alike."""

    places: tuple[_StepPlace, ...]
    masks: tuple[tuple[int, int], ...]
    """Of each GETATTR where the first word of its results' mask is, and what."""

    def steps(self, call: memoryview, reply: memoryview) -> Iterator[ChangingStep]:
        """Of one of them: its arguments and its results."""
        for operation, asked, answered, layouts, handle in self.places:
            arguments, results = decoded_step(operation, call, asked, reply, answered, layouts)
            if handle is None:
                yield ChangingStep(operation, arguments, results, None)
            else:
                view = reply if handle.of_reply else call
                yield ChangingStep(operation, arguments, results, bytes(view[handle.at : handle.at + handle.size]))


class CompoundLayouts:
    """Remembers how COMPOUNDs are laid out."""

    def __init__(self) -> None:
        self._layouts: PairedLayouts[StepPlaces | None] = PairedLayouts()

    def places(
        self, data: Bytes, arguments: Int64s, call_ends: Int64s, results: Int64s, reply_ends: Int64s
    ) -> list[StepPlaces | None]:
        """Of COMPOUNDs with arguments at ``data[arguments[i]:call_ends[i]]``; None of those to be walked over."""
        found: list[StepPlaces | None] = [None] * len(arguments)
        assert _COMPOUND is not None and _COMPOUND.arguments is not None and _COMPOUND.results is not None

        def learn(row: int, asked: Layout, answered: Layout) -> StepPlaces | None:
            return _learned(data.data[arguments[row] : call_ends[row]], data.data[results[row] : reply_ends[row]])

        types, replies = (_COMPOUND.arguments, _COMPOUND.results), (results, reply_ends)
        for rows, places in self._layouts.groups(types, data, (arguments, call_ends), replies, learn):
            if places is not None:
                for row in rows[_agree(places, data, results[rows])].tolist():
                    found[row] = places
        return found


def _agree(places: StepPlaces, data: Bytes, results: Int64s) -> NDArray[np.bool_]:
    """Of which the masks are those of the first: they are no part of a layout."""
    alike = np.ones(len(results), np.bool_)
    for at, mask in places.masks:
        alike &= words_at(data, results + at) == mask
    return alike


def _learned(call: memoryview, reply: memoryview) -> StepPlaces | None:
    walk = walk_filehandles(compound_call(call, 0, len(call)), call, compound_reply(reply, 0, len(reply)), reply)
    steps = [step for step in walk.steps if step.succeeded]
    if walk.problem or any(step.operation in CLIENT_OPERATIONS for step in steps):
        return None
    masks = [
        (step.results + 4, word(reply, step.results + 4)[0])
        for step in steps
        if step.operation == OP_GETATTR and word(reply, step.results)[0]
    ]
    if any(mask >> ATTRIBUTE_FILEHANDLE & 1 for _, mask in masks):
        return None
    handles = _handles(walk, call, reply)
    places = []
    for step in steps:
        if changes_state(step, reply):
            fields = decoded_step(step.operation, call, step.arguments, reply, step.results)
            layouts = fields[0].layout, fields[1].layout
            handle = handles.get(id(step.current))
            places.append(_StepPlace(step.operation, step.arguments, step.results, layouts, handle))
    return StepPlaces(tuple(places), tuple(masks))


def _handles(walk: CompoundWalk, call: memoryview, reply: memoryview) -> dict[int, _HandlePlace]:
    """By the identity of a file."""
    found: dict[int, _HandlePlace] = {}

    def note(file: FileObject, of_reply: bool, at: int) -> None:
        found[id(file)] = _HandlePlace(of_reply, at + 4, word(reply if of_reply else call, at)[0])

    for step in walk.steps:
        if step.operation == OP_PUTFH and step.succeeded:
            note(step.current, False, step.arguments)
        elif step.operation == OP_GETFH and step.succeeded:
            note(step.current, True, step.results)
    return found
