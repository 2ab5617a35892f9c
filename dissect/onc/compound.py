"""NFSv4 COMPOUND and CB_COMPOUND: which operations, which statuses, and where their bulk data sit.

RFC 7530 (4.0), RFC 8881 (4.1), RFC 7862 (4.2), RFC 8276 (extended attributes).  The walk steps over arguments
and results with the shapes declared in ``shapes``; it decodes no more than it needs
to go on, and stops, saying so, at an operation that is in neither table.
"""

from __future__ import annotations

import struct as _struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from .nfs4_skips import (
    ALWAYS,
    ARGUMENTS,
    BEHIND_CREATE_TYPE,
    CALLBACK_ARGUMENTS,
    CALLBACK_RESULTS,
    DATA_IN_READ_RESULT,
    FAILURES,
    RESULTS,
    place_in_arguments,
)
from .xdr import Data, Malformed, Shape, as_skip, round_up, word, words2, words3

OP_COMMIT, OP_CREATE, OP_GETATTR, OP_GETFH, OP_LINK, OP_LOOKUP, OP_LOOKUPP, OP_OPEN, OP_OPENATTR = (
    5, 6, 9, 10, 11, 15, 16, 18, 19,
)  # fmt: skip
OP_PUTFH, OP_PUTPUBFH, OP_PUTROOTFH, OP_READ, OP_READDIR, OP_READLINK, OP_REMOVE, OP_RENAME, OP_RESTOREFH, OP_SAVEFH = (
    22, 23, 24, 25, 26, 27, 28, 29, 31, 32,
)  # fmt: skip
OP_SETATTR, OP_WRITE, OP_ALLOCATE, OP_COPY, OP_DEALLOCATE, OP_READ_PLUS, OP_WRITE_SAME, OP_CLONE = (
    34, 38, 59, 60, 62, 68, 70, 71
)  # fmt: skip
OP_BIND_CONN_TO_SESSION, OP_CREATE_SESSION, OP_GETDEVICEINFO, OP_LAYOUTGET, OP_LISTXATTRS = 41, 43, 47, 50, 74
_NF4LNK = 5

OPERATION_NAMES: dict[int, str] = {number: name for number, (name, _) in ARGUMENTS.items()}
CALLBACK_NAMES: dict[int, str] = {number: name for number, (name, _) in CALLBACK_ARGUMENTS.items()}

_CALL_SHAPES: dict[int, Shape] = {number: shape for number, (_, shape) in ARGUMENTS.items()}
_CALLBACK_SHAPES: dict[int, Shape] = {number: shape for number, (_, shape) in CALLBACK_ARGUMENTS.items()}
DATA_IN_WRITE = place_in_arguments(OP_WRITE, "data")
_BACK_CHANNEL = {
    OP_CREATE_SESSION: place_in_arguments(OP_CREATE_SESSION, "csa_flags"),
    OP_BIND_CONN_TO_SESSION: place_in_arguments(OP_BIND_CONN_TO_SESSION, "bctsa_dir"),
}
"""Where the arguments of an operation may offer the back channel: CREATE_SESSION4_FLAG_CONN_BACK_CHAN (RFC 8881, 18.36)
and CDFC4_BACK (18.34) are the same bit."""
_OFFERED = 2

_ELIGIBLE_ARGUMENTS = frozenset((OP_WRITE, OP_CREATE))
_ELIGIBLE_RESULTS = frozenset((OP_READ, OP_READLINK))
_NONE: frozenset[int] = frozenset()


class DataItem(NamedTuple):
    """A data item that the upper-layer binding lets travel in a chunk (RFC 8267)."""

    position: int
    """Of its first byte in the Payload stream, just behind the count word.  Results: in the stream as it was
    sent; arguments: in the stream as it was before reduction, which is what a Read chunk's Position means."""
    count: int  # type: ignore[assignment]
    """The count word: bytes of data, pad not included."""
    chunk: int | None
    """Index of the chunk that was provided for it."""
    reduced: bool
    """The data travelled in that chunk: neither data nor pad are in the stream."""
    name: str
    """Procedure or operation: 'READ'."""


class Compound(NamedTuple):
    """The arguments of a COMPOUND or CB_COMPOUND, as far as the walk went."""

    minor_version: int | None
    tag: bytes
    operations: tuple[int, ...]
    """Operation numbers in order; of the last one the arguments may be missing, see ``complete``."""
    announced: int | None
    """Operations announced."""
    complete: bool
    """All of them were walked to their end."""
    truncated: bool
    """The bytes end before the arguments do."""
    problem: str
    """Why the walk stopped or what contradicts, '' where nothing is wrong."""
    items: tuple[DataItem, ...]
    end: int
    """Where the walk stopped, an offset in ``data``."""
    places: tuple[int, ...]
    """Where the arguments of each operation begin, offsets in ``data``."""


class CompoundReply(NamedTuple):
    """The results of a COMPOUND or CB_COMPOUND, as far as the walk went."""

    status: int | None
    tag: bytes
    results: tuple[tuple[int, int], ...]
    """(operation number, status) in order."""
    announced: int | None
    """Results announced."""
    complete: bool
    truncated: bool
    problem: str
    items: tuple[DataItem, ...]
    end: int
    places: tuple[int, ...]
    """Where each result's body begins, behind its status; offsets in ``data``."""


@lru_cache(maxsize=2048)
def operation_names(operations: tuple[int, ...], callback: bool = False) -> tuple[str, ...]:
    """Names of operations: ('SEQUENCE', 'PUTFH', 'GETATTR'); 'op-99' for an unknown one."""
    names = CALLBACK_NAMES if callback else OPERATION_NAMES
    return tuple([names.get(number) or f"op-{number}" for number in operations])


def compound_call(
    data: Data,
    start: int,
    end: int,
    reduced: Sequence[tuple[int, int]] = (),
    *,
    origin: int | None = None,
    callback: bool = False,
) -> Compound:
    """Walk COMPOUND4args (RFC 8881, 16.2) or, with ``callback``, CB_COMPOUND4args (19.2).

    ``start`` is the first byte of the arguments, ``end`` the end of what was captured.  ``reduced`` are the
    Read chunks as (Position, length); Positions count from ``origin``, the first byte of the Payload stream
    (default: ``start``), and as if the data of earlier chunks and their pads were still in place (RFC 8166,
    3.4.5).
    """
    first = start if origin is None else origin
    view = memoryview(data)[first:end]
    shapes = _CALLBACK_SHAPES if callback else _CALL_SHAPES
    eligible = _NONE if callback else _ELIGIBLE_ARGUMENTS
    limit = len(view)
    at = start - first
    tag = b""
    minor: int | None = None
    count: int | None = None
    operations: list[int] = []
    places: list[int] = []
    items: list[DataItem] = []
    problems: list[str] = []
    truncated = complete = False
    shift = 0
    chunks = chunks_by_position(reduced) if reduced else {}
    try:
        length, second, third = words3(view, at)
        if callback:
            tag, at = _tag(view, at)
            minor, _, count = words3(view, at)  # between them: callback_ident
        elif length:
            tag, at = _tag(view, at)
            minor, count = words2(view, at)
            at -= 4
        else:
            minor, count = second, third
        at += 12
        for _ in range(count):
            number = word(view, at)[0]
            at += 4
            operations.append(number)
            places.append(first + at)
            if number in eligible:
                at, shift = _eligible_argument(view, at, number, shift, chunks, items, problems)
            elif number in shapes:
                at = _behind(shapes[number], view, at)
            else:
                problems.append(f"operation {number} is unknown")
                break
            if at > limit:
                truncated = True
                break
        else:
            complete = True
    except _struct.error:
        truncated = True
    except Malformed as error:
        problems.append(f"{_last(operations, callback)}: {error}")
    if truncated:
        problems.append(f"the bytes end inside {_last(operations, callback)}")
    return Compound(
        minor,
        tag,
        tuple(operations),
        count,
        complete,
        truncated,
        join_problems(problems),
        tuple(items),
        first + min(at, limit),
        tuple(places),
    )


def compound_reply(
    data: Data,
    start: int,
    end: int,
    chunk_lengths: Sequence[int] = (),
    *,
    origin: int | None = None,
    callback: bool = False,
) -> CompoundReply:
    """Walk COMPOUND4res (RFC 8881, 16.2) or, with ``callback``, CB_COMPOUND4res (19.2).

    ``chunk_lengths`` are the lengths that the reply's Write chunks returned, in order: the first eligible
    result takes the first chunk and so on, and is not in the stream where that chunk returned anything (RFC
    8267). Positions of ``items`` count from ``origin``, the first byte of the Payload stream (default:
    ``start``).
    """
    first = start if origin is None else origin
    view = memoryview(data)[first:end]
    shapes = CALLBACK_RESULTS if callback else RESULTS
    eligible = _NONE if callback else _ELIGIBLE_RESULTS
    limit = len(view)
    at = start - first
    tag = b""
    status: int | None = None
    count: int | None = None
    results: list[tuple[int, int]] = []
    places: list[int] = []
    items: list[DataItem] = []
    problems: list[str] = []
    truncated = complete = False
    number = 0
    try:
        status = word(view, at)[0]
        tag, at = _tag(view, at + 4)
        count = word(view, at)[0]
        at += 4
        for _ in range(count):
            number, outcome = words2(view, at)
            at += 8
            results.append((number, outcome))
            places.append(first + at)
            if outcome:
                if not callback:
                    at = _behind(ALWAYS.get(number) or FAILURES.get((number, outcome), 0), view, at)
            elif number in eligible:
                if number == OP_READ:
                    at += DATA_IN_READ_RESULT
                item = result_item(view, at, OPERATION_NAMES[number], len(items), chunk_lengths, problems)
                items.append(item)
                at += 4 if item.reduced else 4 + round_up(item.count)
            elif number in shapes:
                at = _behind(shapes[number], view, at)
            else:
                problems.append(f"operation {number} is unknown")
                break
            if at > limit:
                truncated = True
                break
        else:
            complete = True
    except _struct.error:
        truncated = True
    except Malformed as error:
        problems.append(f"{_last([number], callback)}: {error}")
    if truncated:
        problems.append(f"the bytes end inside {_last([op for op, _ in results], callback)}")
    return CompoundReply(
        status,
        tag,
        tuple(results),
        count,
        complete,
        truncated,
        join_problems(problems),
        tuple(items),
        first + min(at, limit),
        tuple(places),
    )


def _behind(shape: Shape, view: memoryview, at: int) -> int:
    """Where what begins at ``at`` ends."""
    return at + shape if isinstance(shape, int) else shape(view, at)


def result_item(
    view: memoryview, at: int, name: str, index: int, chunk_lengths: Sequence[int], problems: list[str]
) -> DataItem:
    """The eligible result whose count word is at ``at``, the ``index``-th of its reply."""
    count = word(view, at)[0]
    if index >= len(chunk_lengths):
        return DataItem(at + 4, count, None, False, name)
    returned = chunk_lengths[index]
    if 0 < returned < count:
        problems.append(f"Write chunk {index} returned {returned} bytes for {count} bytes of {name}")
    return DataItem(at + 4, count, index, returned > 0, name)


def chunks_by_position(reduced: Sequence[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Read chunks as Position: (index, length); of several at one Position the first."""
    return {place: (index, length) for index, (place, length) in reversed(list(enumerate(reduced)))}


def argument_item(
    view: memoryview,
    at: int,
    name: str,
    shift: int,
    chunks: Mapping[int, tuple[int, int]],
    problems: list[str],
) -> DataItem:
    """The eligible argument whose count word is at ``at``; ``shift`` bytes were taken out before it."""
    count = word(view, at)[0]
    position = at + 4 + shift
    if position not in chunks:
        return DataItem(position, count, None, False, name)
    index, length = chunks[position]
    if length < count:
        problems.append(f"Read chunk {index} has {length} bytes for {count} bytes of {name}")
    return DataItem(position, count, index, True, name)


def join_problems(problems: Sequence[str]) -> str:
    """One text, however many there are."""
    if not problems:
        return ""
    more = f"; and {len(problems) - 4} more" if len(problems) > 4 else ""
    return "; ".join(problems[:4]) + more


def _eligible_argument(
    view: memoryview,
    at: int,
    number: int,
    shift: int,
    chunks: Mapping[int, tuple[int, int]],
    items: list[DataItem],
    problems: list[str],
) -> tuple[int, int]:
    """Step over WRITE4args or CREATE4args; returns where they end, and the bytes taken out up to there."""
    if number == OP_WRITE:
        at += DATA_IN_WRITE
    else:
        kind = word(view, at)[0]
        if kind != _NF4LNK:
            shape = _CALL_SHAPES[OP_CREATE]
            return as_skip(shape)(view, at), shift
        at += 4
    item = argument_item(view, at, OPERATION_NAMES[number], shift, chunks, problems)
    items.append(item)
    size = round_up(item.count)
    at += 4
    if item.reduced:
        shift += size
    else:
        at += size
    if number == OP_CREATE:
        at = BEHIND_CREATE_TYPE(view, at)
    return at, shift


def _tag(view: memoryview, at: int) -> tuple[bytes, int]:
    length = word(view, at)[0]
    if not length:
        return b"", at + 4
    return bytes(view[at + 4 : at + 4 + length]), at + 4 + round_up(length)


def _last(operations: Sequence[int], callback: bool) -> str:
    return operation_names((operations[-1],), callback)[0] if operations else "the COMPOUND's header"


def offers_back_channel(compound: Compound, data: Data) -> bool:
    """Whether the COMPOUND in ``data`` offers its connection for callbacks: CREATE_SESSION with
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN (RFC 8881, 18.36), or BIND_CONN_TO_SESSION with the back channel (18.34)."""
    view = memoryview(data)
    for number, start in zip(compound.operations, compound.places, strict=True):
        at = start + _BACK_CHANNEL.get(number, len(view))
        if at + 4 <= len(view) and word(view, at)[0] & _OFFERED:
            return True
    return False


def operation_counts(compound: Compound, data: Data, operation: int, field: str) -> tuple[int | None, ...]:
    """The word that is ``field`` of the arguments of every such operation; None for those that have none."""
    view, offset = memoryview(data), place_in_arguments(operation, field)
    return tuple(
        word(view, at + offset)[0] if at + offset + 4 <= len(view) else None
        for number, at in zip(compound.operations, compound.places, strict=True)
        if number == operation
    )
