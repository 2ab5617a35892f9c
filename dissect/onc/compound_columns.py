"""The operations of many COMPOUNDs at once, in columns: one step over an operation of all of them after the other.

``compound.compound_call`` walks one COMPOUND, and says why where it cannot; a property test holds the two equal.  What
this walk cannot step over as that one does, it leaves alone.
"""

from __future__ import annotations

from struct import error as StructError
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, unique, words_at
from .compound import DATA_IN_WRITE, OP_WRITE
from .nfs4_skips import (
    ALWAYS,
    ARGUMENTS,
    BITMAP,
    CALLBACK_ARGUMENTS,
    CALLBACK_RESULTS,
    FAILURES,
    FATTR,
    RESULTS,
)
from .xdr import Malformed, Shape, opaque

MAX_OPERATIONS = 64
"""Of a COMPOUND that is walked in columns."""
MAX_SEQUENCES = 1 << 14
"""Sequences of operations that are remembered."""

_SHAPES: tuple[dict[int, Shape], ...] = (
    {number: shape for number, (_, shape) in ARGUMENTS.items()},
    {number: shape for number, (_, shape) in CALLBACK_ARGUMENTS.items()},
)


class OperationSequences:
    """Sequences of operation numbers, as indices; the first one is the empty one."""

    def __init__(self) -> None:
        self.sequences: list[tuple[int, ...]] = [()]
        self._longer: dict[tuple[int, int], int] = {}

    @property
    def full(self) -> bool:
        """There are so many of them that another collection should take over."""
        return len(self.sequences) >= MAX_SEQUENCES

    def longer(self, sequence: int, number: int) -> int:
        """The index of a sequence with one more operation."""
        key = sequence, number
        found = self._longer.get(key)
        if found is None:
            found = self._longer[key] = len(self.sequences)
            self.sequences.append((*self.sequences[sequence], number))
        return found


class CompoundColumns(NamedTuple):
    """One row for each COMPOUND."""

    walked: NDArray[np.bool_]
    """All operations were stepped over; where not, the other columns say nothing."""
    minor_versions: Int64s
    sequences: Int64s
    """Indices into ``OperationSequences.sequences``."""


def compound_calls(
    data: Bytes,
    starts: Int64s,
    ends: Int64s,
    known: OperationSequences,
    callback: bool = False,
    reduced: Int64s | None = None,
) -> CompoundColumns:
    """Walk the COMPOUND4args, or CB_COMPOUND4args, at ``data[starts[i]:ends[i]]``.

    ``reduced``: where in ``data`` a Read chunk took out what a WRITE writes, for each of them; -1 for nowhere.
    """
    head = 12 if callback else 8
    walked = ends - starts >= 12
    at = starts + 4
    rows = walked.nonzero()[0]
    at[rows] += words_at(data, starts[rows]) + 3 & -4  # the tag
    walked &= at + head <= ends
    rows = walked.nonzero()[0]
    minor = np.zeros(len(starts), np.int64)
    count = np.zeros(len(starts), np.int64)
    minor[rows] = words_at(data, at[rows])
    count[rows] = words_at(data, at[rows] + head - 4)
    at += head
    walked &= count <= MAX_OPERATIONS
    sequences = np.zeros(len(starts), np.int64)
    shapes = _SHAPES[callback]
    rows = (walked & (count > 0)).nonzero()[0]
    step = 0
    taken_out = np.full(len(starts), -1) if reduced is None else reduced.copy()
    while len(rows):
        rows = _dropped(walked, rows, at[rows] + 4 > ends[rows])
        numbers = words_at(data, at[rows])
        at[rows] += 4
        codes = _longer(known, sequences, rows, numbers)
        for number in unique(codes & 0xFFFFFFFF).tolist():
            mine = rows[numbers == number]
            if number == OP_WRITE and not callback:
                here = taken_out[mine] == at[mine] + DATA_IN_WRITE + 4
                at[mine[here]] += DATA_IN_WRITE + 4
                taken_out[mine[here]] = -1
                mine = mine[~here]
            _step(data, shapes.get(number), walked, mine, starts, at, ends)
        walked[rows[at[rows] > ends[rows]]] = False
        step += 1
        rows = rows[walked[rows] & (count[rows] > step)]
    return CompoundColumns(walked & (taken_out < 0), minor, sequences)


class CompoundReplyColumns(NamedTuple):
    """One row for each COMPOUND's results."""

    walked: NDArray[np.bool_]
    """All results were stepped over; where not, the other columns say nothing."""
    statuses: Int64s
    """Of the whole COMPOUND."""
    sequences: Int64s
    """Indices into ``OperationSequences.sequences``."""


def compound_replies(
    data: Bytes, starts: Int64s, ends: Int64s, known: OperationSequences, callback: bool = False
) -> CompoundReplyColumns:
    """Walk the COMPOUND4res, or CB_COMPOUND4res, at ``data[starts[i]:ends[i]]``, none of them reduced to chunks.

    Equal to ``compound.compound_reply``, a property test says.
    """
    walked = ends - starts >= 12
    at = starts + 8
    rows = walked.nonzero()[0]
    statuses = np.zeros(len(starts), np.int64)
    count = np.zeros(len(starts), np.int64)
    statuses[rows] = words_at(data, starts[rows])
    at[rows] += words_at(data, starts[rows] + 4) + 3 & -4  # the tag
    rows = _dropped(walked, rows, at[rows] + 4 > ends[rows])
    count[rows] = words_at(data, at[rows])
    at += 4
    walked &= count <= MAX_OPERATIONS
    sequences = np.zeros(len(starts), np.int64)
    shapes = CALLBACK_RESULTS if callback else RESULTS
    rows = (walked & (count > 0)).nonzero()[0]
    step = 0
    while len(rows):
        rows = _dropped(walked, rows, at[rows] + 8 > ends[rows])
        numbers = words_at(data, at[rows])
        outcomes = words_at(data, at[rows] + 4)
        at[rows] += 8
        codes = _longer(known, sequences, rows, numbers)
        for number in unique(codes & 0xFFFFFFFF).tolist():
            mine = numbers == number
            _step(data, shapes.get(number), walked, rows[mine & (outcomes == 0)], starts, at, ends)
            failed = mine & (outcomes != 0)
            if not callback and failed.any():
                for outcome in unique(outcomes[failed]).tolist():
                    shape = ALWAYS.get(number, FAILURES.get((number, outcome), 0))
                    _step(data, shape, walked, rows[failed & (outcomes == outcome)], starts, at, ends)
        walked[rows[at[rows] > ends[rows]]] = False
        step += 1
        rows = rows[walked[rows] & (count[rows] > step)]
    return CompoundReplyColumns(walked, statuses, sequences)


def _longer(known: OperationSequences, sequences: Int64s, rows: Int64s, numbers: Int64s) -> Int64s:
    """Let the sequences of rows go on; the distinct pairs of a sequence, in the upper bits, and a number."""
    codes: Int64s
    codes, inverse = np.unique(sequences[rows] << 32 | numbers, return_inverse=True)
    longer = [known.longer(code >> 32, code & 0xFFFFFFFF) for code in codes.tolist()]
    sequences[rows] = np.array(longer, np.int64)[inverse]
    return codes


def _step(
    data: Bytes,
    shape: Shape | None,
    walked: NDArray[np.bool_],
    rows: Int64s,
    starts: Int64s,
    at: Int64s,
    ends: Int64s,
) -> None:
    """Step over the same arguments or results of some rows; without a shape the walk ends."""
    if shape is None:
        walked[rows] = False
    elif isinstance(shape, int):
        at[rows] += shape
    elif shape is opaque or shape is BITMAP or shape is FATTR:
        lists = (4, 1) if shape is FATTR else (4,) if shape is BITMAP else (1,)
        for size in lists:
            rows = _dropped(walked, rows, at[rows] + 4 > ends[rows])
            length = words_at(data, at[rows]) * size
            at[rows] += 4 + (length + 3 & -4)
    else:
        _step_singly(data, shape, walked, rows, starts, at, ends)


def _dropped(walked: NDArray[np.bool_], rows: Int64s, ended: NDArray[np.bool_]) -> Int64s:
    """The rows that go on."""
    walked[rows[ended]] = False
    return rows[~ended]


def _step_singly(
    data: Bytes, shape: Shape, walked: NDArray[np.bool_], rows: Int64s, starts: Int64s, at: Int64s, ends: Int64s
) -> None:
    """Step over arguments whose size is not one word's to tell."""
    assert not isinstance(shape, int)
    view = data.data
    for row, start, place, end in zip(
        rows.tolist(), starts[rows].tolist(), at[rows].tolist(), ends[rows].tolist(), strict=True
    ):
        try:
            behind = start + shape(view[start:end], place - start)
        except (StructError, Malformed):
            walked[row] = False
        else:
            # What an array counts may reach further than a column can tell.
            at[row] = min(behind, end + 1)
