"""SEQUENCE and CB_SEQUENCE, the first operation of a COMPOUND of NFSv4.1 or later (RFC 8881, 2.10.6, 18.46, 20.9)."""

from __future__ import annotations

from struct import Struct, error as StructError
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, gathered, words_at
from .xdr import Data, opaque, word

OP_SEQUENCE, OP_CB_SEQUENCE = 53, 11
_ARGUMENTS = Struct(">I16s4I")  # operation, session, sequence, slot, highest slot, cache this; of both
_RESULTS = Struct(">II16s4I")  # operation, status, session, sequence, slot, highest slot, target; of both
_RESULTS_WITH_FLAGS = Struct(_RESULTS.format + "I")
_FLAGS = 40
"""Offset of sr_status_flags from the first result word, which only SEQUENCE has."""


class SlotRequest(NamedTuple):
    """The arguments of SEQUENCE or CB_SEQUENCE (RFC 8881, 18.46.1 and 20.9.1)."""

    session: bytes
    sequence: int
    slot: int
    highest: int
    cached: bool
    """The reply is to be kept for a retransmission (sa_cachethis, csa_cachethis)."""


class SlotResult(NamedTuple):
    """The status; what follows it is None where the operation failed."""

    status: int
    highest: int | None = None
    target: int | None = None
    """The highest slot that the other end wants to be used."""
    flags: int = 0
    """sr_status_flags."""


def slot_request(data: Data, at: int, end: int, callback: bool) -> SlotRequest | None:
    """Of the COMPOUND whose arguments begin ``at``; None where another operation is the first, or bytes are missing."""
    view = memoryview(data)[:end]
    try:
        at = opaque(view, at) + (12 if callback else 8)
        operation, session, sequence, slot, highest, cached = _ARGUMENTS.unpack_from(view, at)
    except StructError:
        return None
    if operation != (OP_CB_SEQUENCE if callback else OP_SEQUENCE):
        return None
    return SlotRequest(session, sequence, slot, highest, bool(cached))


def slot_result(data: Data, at: int, end: int, callback: bool) -> SlotResult | None:
    """Of the COMPOUND whose results begin ``at``; None where another operation is the first, or bytes are missing."""
    view = memoryview(data)[:end]
    try:
        at = opaque(view, at + 4) + 4
        operation, status = word(view, at)[0], word(view, at + 4)[0]
        if operation != (OP_CB_SEQUENCE if callback else OP_SEQUENCE):
            return None
        if status:
            return SlotResult(status)
        *_, highest, target = _RESULTS.unpack_from(view, at)
        return SlotResult(0, highest, target, 0 if callback else word(view, at + _FLAGS)[0])
    except StructError:
        return None


def slot_requests(data: Bytes, starts: Int64s, ends: Int64s, callback: bool) -> list[SlotRequest | None]:
    """``slot_request`` of many: arguments at ``data[starts[i]:ends[i]]``."""
    at, there = _behind_tags(data, starts, ends, 12 if callback else 8)
    found: list[SlotRequest | None] = [None] * len(starts)
    rows = (there & (at + _ARGUMENTS.size <= ends)).nonzero()[0]
    raw = gathered(data, _ARGUMENTS.size, at[rows]).tobytes()
    wanted = OP_CB_SEQUENCE if callback else OP_SEQUENCE
    for row, (operation, session, sequence, slot, highest, cached) in zip(
        rows.tolist(), _ARGUMENTS.iter_unpack(raw), strict=True
    ):
        if operation == wanted:
            found[row] = SlotRequest(session, sequence, slot, highest, bool(cached))
    return found


def slot_results(data: Bytes, starts: Int64s, ends: Int64s, callback: bool) -> list[SlotResult | None]:
    """``slot_result`` of many: results at ``data[starts[i]:ends[i]]``."""
    at, there = _behind_tags(data, starts + 4, ends, 4)
    found: list[SlotResult | None] = [None] * len(starts)
    size = _RESULTS.size + (0 if callback else 4)
    whole = there & (at + size <= ends)
    rows = whole.nonzero()[0]
    raw = gathered(data, size, at[rows]).tobytes()
    wanted = OP_CB_SEQUENCE if callback else OP_SEQUENCE
    unpack = _RESULTS if callback else _RESULTS_WITH_FLAGS
    for row, (operation, status, _, _, _, highest, target, *flags) in zip(
        rows.tolist(), unpack.iter_unpack(raw), strict=True
    ):
        if operation == wanted:
            found[row] = SlotResult(status) if status else SlotResult(0, highest, target, flags[0] if flags else 0)
    view = data.data
    for row in (there & ~whole).nonzero()[0].tolist():
        found[row] = slot_result(view, int(starts[row]), int(ends[row]), callback)
    return found


def _behind_tags(data: Bytes, starts: Int64s, ends: Int64s, more: int) -> tuple[Int64s, NDArray[np.bool_]]:
    """Where the first operation of COMPOUNDs begins, ``more`` bytes behind a tag; and of which it is there."""
    there = starts + 4 <= ends
    at = np.where(there, starts, 0)
    length = np.zeros(len(starts), np.int64)
    length[there] = words_at(data, at[there])
    at = at + 4 + (length + 3 & -4) + more
    return at, there & (at + 8 <= ends)
