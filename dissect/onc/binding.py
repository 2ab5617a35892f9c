"""The upper-layer binding of NFS: which data items may travel in chunks, and where they belong (RFC 8267).

=========  ==============================  =================================
program    arguments (Read chunks)         results (Write chunks)
=========  ==============================  =================================
NFS 2, 3   WRITE data, SYMLINK path        READ data, READLINK path
NFS 4      WRITE data, CREATE link text    READ data, READLINK link text
NFSACL     none                            none
NFS_CB     none                            none
=========  ==============================  =================================

Nothing else is eligible, READ_PLUS included.  Other programs have no binding, so nothing of theirs may be
reduced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import error as StructError

from ..named_tuple import NamedTuple
from .compound import (
    OP_GETDEVICEINFO,
    OP_LAYOUTGET,
    OP_LISTXATTRS,
    OP_READ,
    OP_READ_PLUS,
    OP_READDIR,
    OP_READLINK,
    DataItem,
    argument_item,
    chunks_by_position,
    compound_call,
    compound_reply,
    join_problems,
    operation_counts,
    operation_names,
    result_item,
)
from .nfs3 import PROCEDURES, holds_arguments, nfs3_procedure
from .rpc_header import NFS, NFS_CALLBACK, NFSACL, GssCredential, call_header, reply_header
from .shapes.rfc1094 import TYPES
from .shapes.skips import steps_to
from .xdr import Data, Malformed, Skip, round_up, word

_BOUND = frozenset(((NFS, 2), (NFS, 3), (NFS, 4), (NFSACL, 2), (NFSACL, 3), (NFS_CALLBACK, 1)))

ENDS_INSIDE = "the bytes end inside "
"""What the problem of arguments says that go on behind the end of the stream."""

# version, procedure: name, and what stands before the count word of the eligible argument (RFC 1094, RFC 1813)
_ARGUMENTS: dict[tuple[int, int], tuple[str, Skip]] = {
    (2, 8): ("WRITE", steps_to(TYPES["writeargs"], "data")),  # 2.2.9
    (2, 13): ("SYMLINK", steps_to(TYPES["symlinkargs"], "to")),  # 2.2.14
    **{(3, number): (row.name, row.argument_data) for number, row in enumerate(PROCEDURES) if row.argument_data},
}
# version, procedure: name, and what stands between the status and the count word of the eligible result
_RESULTS: dict[tuple[int, int], tuple[str, Skip]] = {
    (2, 5): ("READLINK", steps_to(TYPES["readlinkok"], "data")),  # 2.2.6
    (2, 6): ("READ", steps_to(TYPES["readokres"], "data")),  # 2.2.7
    **{(3, number): (row.name, row.result_data) for number, row in enumerate(PROCEDURES) if row.result_data},
}
_BEHIND_ARGUMENT = {(2, "SYMLINK"): 32}
"""Bytes of the arguments behind the eligible one (RFC 1094, 2.3.6)."""
_RESULT_BOUNDS: dict[tuple[int, int], Skip] = {
    (2, 6): steps_to(TYPES["readargs"], "count"),  # 2.2.7
    **{(3, number): row.result_bound for number, row in enumerate(PROCEDURES) if row.result_bound},
}
"""Version, procedure: what stands before the count that limits the eligible result."""
_MAX_PATH2 = 1024
"""Bytes of a READLINK's path at most (RFC 1094, 2.3.1)."""
_STATED_COUNTS = {
    OP_READDIR: "maxcount",
    OP_GETDEVICEINFO: "gdia_maxcount",
    OP_LAYOUTGET: "loga_maxcount",
    OP_READ_PLUS: "rpa_count",
    OP_LISTXATTRS: "lxa_maxcount",
}
"""NFS version 4: the argument of an operation that says how many bytes of results, not eligible, it asks for."""
_STATING = frozenset(operation_names(tuple(_STATED_COUNTS)))
_ENTRIES_BOUNDS: dict[tuple[int, int], Skip] = {
    (2, 16): steps_to(TYPES["readdirargs"], "count"),  # 2.2.17
    **{(3, number): row.entries_bound for number, row in enumerate(PROCEDURES) if row.entries_bound},
}
"""The argument that says how many bytes of directory entries a call asks for."""


class Items(NamedTuple):
    """The eligible items of one message, in order."""

    items: tuple[DataItem, ...] = ()
    problem: str = ""
    """Why not all could be found, or what contradicts; '' where all is well."""
    complete: bool = False
    """The walk reached the end of the arguments or results: there are no more items."""
    end: int = -1
    """Where the walk ended, an offset from the first byte of the stream; -1 where that is not known."""


def has_binding(program: int, version: int) -> bool:
    """Whether RFC 8267 binds this program, so that its items may be reduced."""
    return (program, version) in _BOUND


def reply_items(
    program: int,
    version: int,
    procedure: int,
    data: Data,
    start: int,
    end: int,
    chunk_lengths: Sequence[int],
    gss: GssCredential | None = None,
) -> Items:
    """The eligible results of the reply whose Payload stream is ``data[start:end]``, from the XID on.

    ``chunk_lengths`` are the returned lengths of the Write chunks, in order; ``gss`` is the call's
    credential.  The i-th eligible item that is in the results takes the i-th chunk; it is reduced where that
    chunk returned anything. Where it returned nothing the item is empty, or inline.  Behind a reduced item
    the stream goes on with the next word: no pad.  Positions count from ``start``.
    """
    header = reply_header(data, start, end, gss)
    if header is None:
        return Items((), "no RPC reply")
    if header.body < 0:
        return _unclaimed((), header.reason, bool(header.error), chunk_lengths)
    if program == NFS and version == 4 and procedure == 1:
        results = compound_reply(data, header.body, end, chunk_lengths, origin=start)
        return _unclaimed(results.items, results.problem, results.complete, chunk_lengths, results.end - start)
    if program == NFS and (version, procedure) in _RESULTS:
        name, before = _RESULTS[version, procedure]
        view = memoryview(data)[start:end]
        problems: list[str] = []
        items: list[DataItem] = []
        ends = -1
        try:
            at = header.body - start
            if word(view, at)[0] == 0:
                items.append(result_item(view, before(view, at + 4), name, 0, chunk_lengths, problems))
                ends = items[0].position + (0 if items[0].reduced else round_up(items[0].count))
        except StructError:
            return Items((), f"the bytes end inside {name}")
        except Malformed as error:
            return Items((), f"{name}: {error}")
        return _unclaimed(tuple(items), join_problems(problems), True, chunk_lengths, ends)
    return _unclaimed((), "", True, chunk_lengths)


def call_items(
    program: int,
    version: int,
    procedure: int,
    data: Data,
    start: int,
    end: int,
    reduced: Sequence[tuple[int, int]],
) -> Items:
    """The eligible arguments of the call whose Payload stream is ``data[start:end]``, from the XID on.

    ``reduced`` are the Read chunks as (Position, length), those at Position zero left out.  An item is
    reduced where a chunk stands at its place.  Positions count from ``start`` in the unreduced stream, data
    and pads included.
    """
    header = call_header(data, start, end)
    if header is None:
        return Items((), "no RPC call")
    if header.body < 0:
        return Items((), header.reason)
    if program == NFS and version == 4 and procedure == 1:
        call = compound_call(data, header.body, end, reduced, origin=start)
        return _unplaced(call.items, call.problem, call.complete, reduced, call.end - start)
    if program == NFS and (version, procedure) in _ARGUMENTS:
        name, before = _ARGUMENTS[version, procedure]
        view = memoryview(data)[start:end]
        problems: list[str] = []
        try:
            item = argument_item(
                view, before(view, header.body - start), name, 0, chunks_by_position(reduced), problems
            )
        except StructError:
            return Items((), f"the bytes end inside {name}")
        except Malformed as error:
            return Items((), f"{name}: {error}")
        if not item.reduced and item.position + item.count > len(view):
            problems.append(ENDS_INSIDE + name)
        ends = item.position + (0 if item.reduced else round_up(item.count)) + _BEHIND_ARGUMENT.get((version, name), 0)
        return _unplaced((item,), join_problems(problems), True, reduced, ends)
    row = nfs3_procedure(procedure) if program == NFS and version == 3 else None
    if row is not None and not holds_arguments(memoryview(data)[header.body : end], row):
        return Items((), ENDS_INSIDE + row.name)
    return _unplaced((), "", True, reduced)


def result_bounds(
    program: int,
    version: int,
    procedure: int,
    data: Data,
    start: int,
    end: int,
    reduced: Sequence[tuple[int, int]],
) -> tuple[int | None, ...]:
    """The maximum bytes of each eligible result of this call; None for one without a limit."""
    header = call_header(data, start, end)
    if header is None or header.body < 0 or program != NFS:
        return ()
    if version == 4 and procedure == 1:
        call = compound_call(data, header.body, end, reduced, origin=start)
        counts = iter(operation_counts(call, data, OP_READ, "count"))
        return tuple(
            next(counts) if number == OP_READ else None
            for number in call.operations
            if number in (OP_READ, OP_READLINK)
        )
    if (version, procedure) == (2, 5):
        return (_MAX_PATH2,)
    return (_word_behind(_RESULT_BOUNDS.get((version, procedure)), memoryview(data)[header.body : end]),)


def states_bytes(operations: Iterable[str]) -> bool:
    """Whether a COMPOUND of these operations may say how many bytes of results, not eligible, it asks for."""
    return not _STATING.isdisjoint(operations)


def may_state_bytes(program: int, version: int, procedure: int) -> bool:
    """Whether the arguments of a procedure may say how many bytes of results, not eligible, it asks for."""
    if program != NFS or version == 4:
        return (program, procedure) == (NFS, 1)
    return (version, procedure) in _ENTRIES_BOUNDS


def reply_bound(
    program: int,
    version: int,
    procedure: int,
    data: Data,
    start: int,
    end: int,
    reduced: Sequence[tuple[int, int]],
) -> int | None:
    """The bytes of results, those eligible for Write chunks left out, that a call asks for; None where it states no
    number."""
    header = call_header(data, start, end)
    if header is None or header.body < 0 or program != NFS:
        return None
    if version == 4 and procedure == 1:
        call = compound_call(data, header.body, end, reduced, origin=start)
        counts = [
            count
            for operation, field in _STATED_COUNTS.items()
            if operation in call.operations
            for count in operation_counts(call, data, operation, field)
            if count is not None
        ]
        return sum(counts) if counts else None
    return _word_behind(_ENTRIES_BOUNDS.get((version, procedure)), memoryview(data)[header.body : end])


def _word_behind(before: Skip | None, view: memoryview) -> int | None:
    try:
        return None if before is None else word(view, before(view, 0))[0]
    except (StructError, Malformed):
        return None


def _unclaimed(
    items: tuple[DataItem, ...], problem: str, complete: bool, chunk_lengths: Sequence[int], end: int = -1
) -> Items:
    """With a problem for each Write chunk that returned data which no result can be."""
    left = [
        f"Write chunk {index} returned {length} bytes that belong to no result"
        for index, length in enumerate(chunk_lengths)
        if length and index >= len(items)
    ]
    return _with_problems(items, problem, complete, left, end)


def _unplaced(
    items: tuple[DataItem, ...], problem: str, complete: bool, reduced: Sequence[tuple[int, int]], end: int = -1
) -> Items:
    """With a problem for each Read chunk that stands at no eligible argument."""
    taken = {item.chunk for item in items}
    left = [
        f"Read chunk {index} at Position {position} belongs to no argument"
        for index, (position, _) in enumerate(reduced)
        if index not in taken
    ]
    return _with_problems(items, problem, complete, left, end)


def _with_problems(items: tuple[DataItem, ...], problem: str, complete: bool, left: list[str], end: int) -> Items:
    return Items(items, join_problems([*([problem] if problem else []), *(left if complete else [])]), complete, end)
