"""SEQUENCE and CB_SEQUENCE, the first operation of a COMPOUND of NFSv4.1 or later (RFC 8881, 2.10.6, 18.46, 20.9)."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from .xdr import Data, opaque, word

OP_SEQUENCE, OP_CB_SEQUENCE = 53, 11
_ARGUMENTS = Struct(">I16s4I")  # operation, session, sequence, slot, highest slot, cache this; of both
_RESULTS = Struct(">II16s4I")  # operation, status, session, sequence, slot, highest slot, target; of both
_FLAGS = 40
"""Offset of sr_status_flags from the first result word, which only SEQUENCE has."""


class SlotRequest(NamedTuple):
    """The arguments."""

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
