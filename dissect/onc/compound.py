"""NFSv4 COMPOUND and CB_COMPOUND: which operations, which statuses, and where their bulk data sit.

RFC 7530 (4.0), RFC 8881 (4.1), RFC 7862 (4.2), RFC 8276 (extended attributes).  The walk steps over arguments
and results with the shapes declared in ``shapes``; it decodes no more than it needs
to go on, and stops, saying so, at an operation that is in neither table.

SEQUENCE and CB_SEQUENCE, the first operation of a COMPOUND of NFSv4.1 or later (RFC 8881, 2.10.6, 18.46, 20.9).
"""

from __future__ import annotations

import struct as _struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from struct import Struct, error as StructError

import numpy as np
from numpy.typing import NDArray

from ..arrays import FEW, Bytes, Int64s, Rows, coded, distinct, gather, take, unique, words_at
from ..named_tuple import NamedTuple
from .shapes.attributes4 import ATTRIBUTE_BITS, NUMBERED
from .shapes.nfs4 import CALLBACK_OPERATIONS, OPERATIONS
from .shapes.rfc7530 import TYPES
from .shapes.skips import counted, parts_of, place_of, skip_of, skip_of_arm, steps_behind, steps_to
from .shapes.types import XdrArm, XdrStruct, XdrUnion
from .xdr import Data, Malformed, Shape, as_skip, opaque, opaque_at, round_up, word, words2

_TABLES = OPERATIONS, CALLBACK_OPERATIONS
"""Operations of COMPOUND, and of CB_COMPOUND: so are the next two."""
_ARGUMENT_SHAPES: tuple[dict[int, Shape], ...] = tuple(
    {number: skip_of_arm(operation.arguments) for number, operation in operations.items()} for operations in _TABLES
)
_RESULT_SHAPES: tuple[dict[int, Shape], ...] = tuple(
    {number: skip_of_arm(operation.results.arms[0]) for number, operation in operations.items()}
    for operations in _TABLES
)
OPERATION_NAMES, CALLBACK_NAMES = (
    {number: operation.name for number, operation in operations.items()} for operations in _TABLES
)
FAILURES: dict[tuple[int, int], Shape] = {
    (number, status): skip_of_arm(arm)
    for number, operation in OPERATIONS.items()
    for status, arm in operation.results.arms.items()
    if status
}
ALWAYS: dict[int, Shape] = {
    number: skip_of_arm(operation.results.default)
    for number, operation in OPERATIONS.items()
    if operation.results.default is not None
}
"""What comes with every other status: attrsset of SETATTR."""

BITMAP = as_skip(skip_of(ATTRIBUTE_BITS))
ATTRIBUTES = {number: as_skip(skip_of(type)) for number, (_, type) in NUMBERED.items()}
"""By attribute number."""


@cache
def place_in_arguments(operation: int, field: str) -> int:
    """Bytes from the beginning of an operation's arguments to one of their fields, behind others of fixed size."""
    arguments = OPERATIONS[operation].arguments
    assert isinstance(arguments, XdrStruct)
    return place_of(arguments, field)


DATA_IN_READ_RESULT = place_of(TYPES["READ4resok"], "data")
BEHIND_CREATE_TYPE = steps_behind(TYPES["CREATE4args"], "objtype")
TO_CREATE_NAME = steps_to(TYPES["CREATE4args"], "objname")
TO_OPEN_HOW = steps_to(TYPES["OPEN4args"], "openhow")
TO_OPEN_CLAIM = steps_to(TYPES["OPEN4args"], "claim")


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
    """Position of its first byte in the Payload stream, just behind the count word. For results in the stream as sent;
    for arguments in the stream before reduction, as a Read chunk's Position means it."""
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
    operations: tuple[int, ...]
    """Operation numbers in order; of the last one the arguments may be missing, see ``complete``."""
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
    results: tuple[tuple[int, int], ...]
    """(operation number, status) in order."""
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
    shapes = _ARGUMENT_SHAPES[callback]
    eligible = _NONE if callback else _ELIGIBLE_ARGUMENTS
    limit = len(view)
    at = start - first
    minor: int | None = None
    operations: list[int] = []
    places: list[int] = []
    items: list[DataItem] = []
    problems: list[str] = []
    truncated = complete = False
    shift = 0
    chunks = chunks_by_position(reduced) if reduced else {}
    try:
        at = opaque(view, at)  # the tag
        minor, count = words2(view, at)
        if callback:
            at, count = at + 4, word(view, at + 8)[0]  # between them: callback_ident
        at += 8
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
        problems.append(f"{_last(operation_names(tuple(operations[-1:]), callback))}: {error}")
    if truncated:
        problems.append(ends_inside(operation_names(tuple(operations[-1:]), callback)))
    return Compound(
        minor,
        tuple(operations),
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
    shapes = _RESULT_SHAPES[callback]
    eligible = _NONE if callback else _ELIGIBLE_RESULTS
    limit = len(view)
    at = start - first
    status: int | None = None
    results: list[tuple[int, int]] = []
    places: list[int] = []
    items: list[DataItem] = []
    problems: list[str] = []
    truncated = complete = False
    number = 0
    try:
        status = word(view, at)[0]
        at = opaque(view, at + 4)  # behind the tag
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
        problems.append(f"{_last(operation_names((number,), callback))}: {error}")
    if truncated:
        problems.append(ends_inside(operation_names(tuple([op for op, _ in results[-1:]]), callback)))
    return CompoundReply(
        status,
        tuple(results),
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
        if word(view, at)[0] != _NF4LNK:
            return as_skip(_ARGUMENT_SHAPES[False][OP_CREATE])(view, at), shift
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


def ends_inside(operations: Sequence[str]) -> str:
    """Say that the bytes end inside the last of these operations of a COMPOUND, or before the first."""
    return f"the bytes end inside {_last(operations)}"


def _last(operations: Sequence[str]) -> str:
    return operations[-1] if operations else "the COMPOUND's header"


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
    """The current file handle after the operation."""
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


MAX_OPERATIONS = 64
"""Operations of a COMPOUND that is walked in columns."""
MAX_SEQUENCES = 1 << 14
"""Sequences of operations that are remembered."""


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
        index = self._longer.get(key)
        if index is None:
            index = self._longer[key] = len(self.sequences)
            self.sequences.append((*self.sequences[sequence], number))
        return index


class CompoundColumns(NamedTuple):
    """One row for each COMPOUND."""

    walked: NDArray[np.bool_]
    """All operations were stepped over; where not, and it is not ``truncated``, the other columns say nothing."""
    minor_versions: Int64s
    """-1 where the bytes end before it."""
    sequences: Int64s
    """Indices into ``OperationSequences.sequences``."""
    truncated: NDArray[np.bool_]
    """The bytes end in the header, or behind the number of the last of these operations."""


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
    walked = np.ones(len(starts), np.bool_)
    at = starts.copy()
    rows = _dropped(walked, np.arange(len(starts)), at, ends, 12)
    at[rows] += 4 + (words_at(data, starts[rows]) + 3 & -4)  # the tag
    minor = np.full(len(starts), -1, np.int64)
    count = np.zeros(len(starts), np.int64)
    rows = rows[at[rows] + 8 <= ends[rows]]
    minor[rows] = words_at(data, at[rows])
    rows = _dropped(walked, walked.nonzero()[0], at, ends, head)
    count[rows] = words_at(data, at[rows] + head - 4)
    at[rows] += head
    sequences = np.zeros(len(starts), np.int64)
    taken_out = np.full(len(starts), -1) if reduced is None else reduced.copy()
    operations = CALLBACK_OPERATIONS if callback else OPERATIONS
    for number, mine in _operations(data, walked, at, ends, count, 4, known, sequences):
        if number == OP_WRITE and not callback:
            here = taken_out[mine] == at[mine] + DATA_IN_WRITE + 4
            at[mine[here]] += DATA_IN_WRITE + 4
            taken_out[mine[here]] = -1
            mine = mine[~here]
        if number in operations:
            _step(data, operations[number].arguments, walked, mine, starts, at, ends)
        else:
            walked[mine] = False
    return CompoundColumns(walked & (taken_out < 0), minor, sequences, ~walked & (at > ends))


class CompoundReplyColumns(NamedTuple):
    """One row for each COMPOUND's results."""

    walked: NDArray[np.bool_]
    """All results were stepped over; where not, the other columns say nothing."""
    statuses: Int64s
    """Statuses of whole COMPOUNDs."""
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
    rows = _dropped(walked, rows, at, ends, 4)
    count[rows] = words_at(data, at[rows])
    at += 4
    sequences = np.zeros(len(starts), np.int64)
    operations = CALLBACK_OPERATIONS if callback else OPERATIONS
    for number, mine in _operations(data, walked, at, ends, count, 8, known, sequences):
        if number in operations:
            at[mine] -= 4  # The status is the discriminant of the results.
            _step(data, operations[number].results, walked, mine, starts, at, ends)
        else:
            walked[mine[words_at(data, at[mine] - 4) == 0]] = False
    return CompoundReplyColumns(walked, statuses, sequences)


def _operations(
    data: Bytes,
    walked: NDArray[np.bool_],
    at: Int64s,
    ends: Int64s,
    count: Int64s,
    head: int,
    known: OperationSequences,
    sequences: Int64s,
) -> Iterator[tuple[int, Int64s]]:
    """Step along the operations, ``count`` of each row; yields each number of a step, and the rows with it.

    ``head``: bytes of an operation before its arguments or results, behind which ``at`` is then; who takes them moves
    it on.  Rows that cannot be stepped over are no longer ``walked``, and behind their end where their bytes end;
    ``sequences`` become those of all operations.
    """
    walked &= count <= MAX_OPERATIONS
    rows = (walked & (count > 0)).nonzero()[0]
    step = 0
    while len(rows):
        rows = _dropped(walked, rows, at, ends, head)
        numbers = words_at(data, at[rows])
        at[rows] += head
        for number in _longer(known, sequences, rows, numbers).tolist():
            yield number, rows[numbers == number]
        walked[rows[at[rows] > ends[rows]]] = False
        step += 1
        rows = rows[walked[rows] & (count[rows] > step)]


def _longer(known: OperationSequences, sequences: Int64s, rows: Int64s, numbers: Int64s) -> Int64s:
    """Let the sequences of rows go on; the distinct numbers."""
    bits = int(numbers.max(initial=0)).bit_length()
    codes, which = coded(sequences[rows] << bits | numbers)
    after = codes & (1 << bits) - 1
    longer = [known.longer(*pair) for pair in zip((codes >> bits).tolist(), after.tolist(), strict=True)]
    sequences[rows] = np.array(longer, np.int64)[which]
    return unique(after)


def _step(
    data: Bytes, arm: XdrArm, walked: NDArray[np.bool_], rows: Int64s, starts: Int64s, at: Int64s, ends: Int64s
) -> None:
    """Step over the same arguments or results of some rows."""
    for part in parts_of(arm):
        if isinstance(part, int):
            at[rows] += part
            continue
        size = counted(part)
        if len(rows) < FEW or not (size or isinstance(part, XdrUnion)):
            _step_singly(data, skip_of(part), walked, rows, starts, at, ends)
        else:
            rows = _dropped(walked, rows, at, ends, 4)
            said = words_at(data, at[rows])
            at[rows] += 4 + (said * size + 3 & -4)
            if isinstance(part, XdrUnion):
                left = np.ones(len(rows), np.bool_)
                for value, chosen in part.arms.items():
                    mine = said == value
                    left &= ~mine
                    _step(data, chosen, walked, rows[mine], starts, at, ends)
                if part.has_default:
                    _step(data, part.default, walked, rows[left], starts, at, ends)
                else:
                    walked[rows[left]] = False
        rows = rows[walked[rows]]


def _dropped(walked: NDArray[np.bool_], rows: Int64s, at: Int64s, ends: Int64s, size: int) -> Int64s:
    """The rows that go on; those whose bytes end before so many more are behind their end then."""
    ended = at[rows] + size > ends[rows]
    gone = rows[ended]
    walked[gone] = False
    at[gone] = ends[gone] + 1
    return rows[~ended]


def _step_singly(
    data: Bytes, shape: Shape, walked: NDArray[np.bool_], rows: Int64s, starts: Int64s, at: Int64s, ends: Int64s
) -> None:
    """Step over values of a shape, one row after the other."""
    assert not isinstance(shape, int)
    view = data.data
    for row, start, place, end in zip(
        rows.tolist(), starts[rows].tolist(), at[rows].tolist(), ends[rows].tolist(), strict=True
    ):
        try:
            behind = start + shape(view[start:end], place - start)
        except Malformed:
            walked[row] = False
        except StructError:
            walked[row], at[row] = False, end + 1
        else:
            # What an array counts may reach further than a column can tell.
            at[row] = min(behind, end + 1)


OP_SEQUENCE, OP_CB_SEQUENCE = 53, 11
_ARGUMENTS = Struct(">I16s4I")  # operation, session, sequence, slot, highest slot, cache this; of both
_RESULTS = Struct(">II16s4I")  # operation, status, session, sequence, slot, highest slot, target; of both
SLOT_REQUEST = np.dtype([
    ("operation", ">u4"), ("session", "V16"), ("sequence", ">u4"), ("slot", ">u4"), ("highest", ">u4"),
    ("cached", ">u4"),
])  # fmt: skip
_SLOT_RESULT = [
    ("operation", ">u4"), ("status", ">u4"), ("session", "V16"), ("sequence", ">u4"), ("slot", ">u4"),
    ("highest", ">u4"), ("target", ">u4"), ("flags", ">u4"),
]  # fmt: skip
"""As ``_ARGUMENTS`` and ``_RESULTS``."""
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
    """What SEQUENCE asks for, where the arguments of its COMPOUND begin ``at``; None where another operation is the
    first, or bytes are missing."""
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
    """What SEQUENCE answers, where the results of its COMPOUND begin ``at``; None where another operation is the
    first, or bytes are missing."""
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


def slot_requests(data: Bytes, starts: Int64s, ends: Int64s, callback: bool) -> tuple[Int64s, Rows]:
    """``slot_request`` of many, with arguments at ``data[starts[i]:ends[i]]``: which have one, and ``SLOT_REQUEST``."""
    at, there = _behind_tags(data, starts, ends, 12 if callback else 8)
    rows = (there & (at + SLOT_REQUEST.itemsize <= ends)).nonzero()[0]
    requests = gather(data, at[rows], SLOT_REQUEST)
    mine = requests["operation"] == (OP_CB_SEQUENCE if callback else OP_SEQUENCE)
    return rows[mine], take(requests, mine)


def slot_results(data: Bytes, starts: Int64s, ends: Int64s, callback: bool) -> tuple[list[SlotResult], Int64s]:
    """``slot_result`` of many, with results at ``data[starts[i]:ends[i]]``: the distinct ones, and which each has; -1:
    none."""
    at, there = _behind_tags(data, starts + 4, ends, 4)
    layout = _SLOT_RESULT[:-1] if callback else _SLOT_RESULT
    whole = there & (at + np.dtype(layout).itemsize <= ends)
    raw = gather(data, at[whole], layout)
    mine = raw["operation"] == (OP_CB_SEQUENCE if callback else OP_SEQUENCE)
    names = ["status", "highest", "target", "flags"][: 3 if callback else 4]
    raw = raw[names][mine]
    first, which = distinct(*(raw[name].astype(np.int64) for name in names))
    results = [SlotResult(result[0]) if result[0] else SlotResult(*result) for result in raw[first].tolist()]
    codes = np.full(len(starts), -1)
    codes[whole.nonzero()[0][mine]] = which
    for row in (there & ~whole).nonzero()[0].tolist():
        if (result := slot_result(data.data, int(starts[row]), int(ends[row]), callback)) is not None:
            codes[row] = len(results)
            results.append(result)
    return results, codes


def _behind_tags(data: Bytes, starts: Int64s, ends: Int64s, more: int) -> tuple[Int64s, NDArray[np.bool_]]:
    """Where the first operation of COMPOUNDs begins, ``more`` bytes behind a tag; and which COMPOUNDs have it."""
    there = starts + 4 <= ends
    at = np.where(there, starts, 0)
    length = np.zeros(len(starts), np.int64)
    length[there] = words_at(data, at[there])
    at = at + 4 + (length + 3 & -4) + more
    return at, there & (at + 8 <= ends)
