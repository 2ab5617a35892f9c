"""What calls alike did with files, read by columns: where the values stand that differ from one to the next.

Where a layout was learned of arguments and results (``shapes.learned``), messages differ only in words that decide
nothing.  The decoders of ``file_events`` and ``file_operations`` are run on messages in which each byte of these says
where it stands; so they tell from which bytes each of their values comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..arrays import Bytes, Int64s, bytes_at, gathered, words_at
from .file_events import READ, WRITE, FileEvent, FileEvents, events_of
from .file_messages import FileMessages
from .file_operations import FileOperation, operations_of
from .shapes.decode_cache import Layout

MAX_LENGTH = 1 << 16
"""Of a message of which two bytes can say where another stands."""

Decoded = tuple[tuple[FileEvent, ...], tuple[FileOperation, ...]]


class Constant(NamedTuple):
    """A value that all have."""

    value: Any


class Varying(NamedTuple):
    """A value that stands at an offset from the first byte of the arguments, or of the results."""

    of_reply: bool
    at: int
    size: int
    number: bool
    """An unsigned integer; else bytes."""

    def column(self, data: Bytes, arguments: Int64s, results: Int64s) -> Any:
        """The values of many: an array of numbers, or a list of bytes."""
        places = (results if self.of_reply else arguments) + self.at
        if not self.number:
            return bytes_at(data, self.size, places)
        return words_at(data, places) if self.size == 4 else gathered(data, 8, places).view(">u8")[:, 0]


Source = Constant | Varying


class FileLayout(NamedTuple):
    """Where the fields of each event and operation come from."""

    events: tuple[tuple[Source, ...], ...]
    operations: tuple[tuple[Source, ...], ...]
    moves_data: bool
    """Contents of files are in the messages."""

    def decoded(self, data: Bytes, arguments: Int64s, results: Int64s) -> list[Decoded]:
        """Of messages whose arguments and results begin at these offsets in ``data``."""
        known: dict[Source, Iterable[Any]] = {}

        def values(source: Source) -> Iterable[Any]:
            if isinstance(source, Constant):
                return repeat(source.value, len(arguments))
            if source not in known:
                found = source.column(data, arguments, results)
                known[source] = found.tolist() if source.number else found
            return known[source]

        events = _rows((map(_EVENT, zip(*map(values, one), strict=True)) for one in self.events), len(arguments))
        operations = _rows(
            (map(_OPERATION, zip(*map(values, one), strict=True)) for one in self.operations), len(arguments)
        )
        return [*zip(events, operations, strict=True)]


_EVENT, _OPERATION = partial(tuple.__new__, FileEvent), partial(tuple.__new__, FileOperation)
Row = TypeVar("Row")


def _rows(columns: Iterable[Iterable[Row]], count: int) -> Iterable[tuple[Row, ...]]:
    listed = [*columns]
    return zip(*listed, strict=True) if listed else repeat((), count)


def file_layout(
    call: Bytes, reply: Bytes, arguments: int, results: int, asked: Layout, answered: Layout
) -> FileLayout | None:
    """Of messages like these two, whole from the XID on: where arguments and results begin, and their layouts.

    None where something depends on more.
    """
    if max(len(call), len(reply)) > MAX_LENGTH:
        return None
    found = _decoded(call, reply)
    if found[0].problem:
        return None
    marked = [
        _decoded(_marked(call, arguments, asked, one, 0), _marked(reply, results, answered, one, 1)) for one in range(3)
    ]
    if any(events.problem for events, _ in marked):
        return None
    starts = arguments, results
    events = _all_sources([events.events for events, _ in (found, *marked)], starts)
    operations = _all_sources([operations for _, operations in (found, *marked)], starts)
    if events is None or operations is None:
        return None
    made = FileLayout(events, operations, any(event.kind in (READ, WRITE) for event in found[0].events))
    both = np.concatenate((call, reply))
    (again,) = made.decoded(both, np.array([arguments]), np.array([len(call) + results]))
    return made if again == (found[0].events, found[1]) else None


def _decoded(call: Bytes, reply: Bytes) -> tuple[FileEvents, tuple[FileOperation, ...]]:
    messages = FileMessages(call.data, reply.data)
    return events_of(messages), operations_of(messages)


def _marked(message: Bytes, start: int, layout: Layout, mark: int, side: int) -> Bytes:
    """The message, in which what decides nothing is the low byte of its offset, the high byte, or the side."""
    places = np.arange(len(message))
    marked = np.array([places & 0xFF, places >> 8, np.full(len(message), side)][mark], np.uint8)
    marked[:start] = message[:start]
    for at in layout.deciding:
        marked[start + at : start + at + 4] = message[start + at : start + at + 4]
    return marked


def _all_sources(
    decoded: Sequence[Sequence[tuple[Any, ...]]], starts: tuple[int, int]
) -> tuple[tuple[Source, ...], ...] | None:
    """``decoded``: of the message itself, and of the three that are marked."""
    if len({len(one) for one in decoded}) > 1:
        return None
    found = []
    for alike in zip(*decoded, strict=True):
        sources = [_source(values, starts) for values in zip(*alike, strict=True)]
        if None in sources:
            return None
        found.append(tuple(one for one in sources if one is not None))
    return tuple(found)


def _source(values: tuple[Any, ...], starts: tuple[int, int]) -> Source | None:
    value, low, high, side = values
    if value == low == high == side:
        return Constant(value)
    marks = (low, high, side)
    if all(isinstance(one, bytes) for one in marks) and len({len(value), *map(len, marks)}) == 1:
        return _varying(marks, starts, number=False)
    if all(type(one) is int for one in marks):
        for size in (4, 8):
            if max(marks) >> 8 * size == 0:
                found = _varying([one.to_bytes(size) for one in marks], starts, number=True)
                if found is not None:
                    return found
    return None


def _varying(marks: Sequence[bytes], starts: tuple[int, int], number: bool) -> Varying | None:
    low, high, side = marks
    offsets = [first | second << 8 for first, second in zip(low, high, strict=True)]
    first = offsets[0]
    if offsets != [*range(first, first + len(offsets))] or len(set(side)) > 1 or side[0] > 1:
        return None
    at = first - starts[side[0]]
    return Varying(side[0] == 1, at, len(low), number) if at >= 0 else None
