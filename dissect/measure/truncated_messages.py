"""What the messages of an NFS call say as far as their bytes are there.

A missing byte ends a message, except inside the data of a READ or WRITE, which a length before them steps over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..onc.file_events import READ, WRITE, FileEvent, events_of, file_events
from ..onc.file_messages import FileMessages
from ..onc.file_operations import FileOperation, operations_of
from ..onc.xdr import round_up
from ..rpcrdma.rpcs import Reassembled


class NfsMessages(NamedTuple):
    """The messages of an Rpc, and what they say without a look at missing bytes."""

    call: Reassembled | None
    """None where nothing of its contents is asked for."""
    reply: Reassembled | None
    events: tuple[FileEvent, ...]
    operations: tuple[FileOperation, ...]
    problem: str


def nfs_messages(call: Reassembled | None, reply: Reassembled | None) -> NfsMessages | None:
    """None without a call.

    Bytes may be missing inside the data of a READ or WRITE; the first byte that is missing elsewhere ends the message.
    """
    if call is None:
        return None
    written: dict[int, int] = {}
    returned: dict[int, int] = {}
    while True:
        call_part = _without_contents(call, written)
        reply_part = None if reply is None else _without_contents(reply, returned)
        reply_data = None if reply_part is None else reply_part.data
        decoded = FileMessages(call_part.data, reply_data)
        found = events_of(decoded)
        events = tuple(_in_place(event, call_part, reply_part) for event in found.events)
        # Data are only stepped over where a length before them says how far they go.
        known = len(written), len(returned)
        written |= _contents(events, WRITE, call)
        if reply is not None:
            returned |= _contents(events, READ, reply)
        if known == (len(written), len(returned)):
            break
    problem = found.problem
    if problem and reply is not None:
        # Of a reply that cannot be read to its end, some writes have no result: whether they happened is not known.
        answered = {event.position for event in events if event.kind == WRITE}
        alone = [_in_place(event, call_part, None) for event in file_events(call_part.data, None).events]
        events += tuple(event for event in alone if event.kind == WRITE and event.position not in answered)
    if problem and not (call_part.whole and (reply_part is None or reply_part.whole)):
        problem = "bytes of the message are missing"
    return NfsMessages(call, reply, events, operations_of(decoded), problem)


def _contents(events: Iterable[FileEvent], kind: str, message: Reassembled) -> dict[int, int]:
    """Position and length of data read or written of which bytes are missing."""
    gaps = message.gaps
    found = {}
    for event in events:
        if event.kind == kind and event.position >= 0:
            end = event.position + round_up(event.count)
            if any(start < end and event.position < last for start, last in gaps):
                found[event.position] = event.count
    return found


class _PartialMessage(NamedTuple):
    """A message up to a missing byte, data with missing bytes taken out and their lengths made 0."""

    data: bytes
    contents: tuple[tuple[int, int, int], ...]
    """Where data were taken out: their place in ``data``, their position in the message, their length."""
    whole: bool
    """Nothing but those data is missing."""


def _without_contents(message: Reassembled, contents: dict[int, int]) -> _PartialMessage:
    if not contents:
        return _PartialMessage(message.prefix, (), message.complete)
    data = bytearray()
    taken: list[tuple[int, int, int]] = []
    reached = 0
    gaps = message.gaps
    for position, count in [*sorted(contents.items()), (message.length, 0)]:
        gap = next((start for start, end in gaps if end > reached and start < position), None)
        until = position if gap is None else max(gap, reached)
        data += message.captured(reached, until) if until > reached else b""
        if gap is not None or position >= message.length:
            return _PartialMessage(bytes(data), tuple(taken), gap is None)
        data[-4:] = bytes(4)
        taken.append((len(data), position, count))
        reached = min(position + round_up(count), message.length)
    return _PartialMessage(bytes(data), tuple(taken), True)


def _in_place(event: FileEvent, call: _PartialMessage, reply: _PartialMessage | None) -> FileEvent:
    """The event with the position and length that it has in the whole message."""
    part = call if event.kind == WRITE else reply
    if part is None or event.position < 0 or event.kind not in (READ, WRITE):
        return event
    shift = 0
    for place, position, count in part.contents:
        if place == event.position:
            return event._replace(position=position, count=count)
        if place > event.position:
            break
        shift = position + round_up(count) - place
    return event._replace(position=event.position + shift)


def split_at_gaps(message: Reassembled, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """[start, end) of a message, split where bytes begin or cease to be missing: start, end, why ('': not missing)."""
    reached = start
    pending: tuple[int, int, str] | None = None
    for extent in message.extents:
        low, high = max(extent.start, start), min(extent.start + extent.length, end)
        if low >= high:
            continue
        if pending is not None and pending[1] == low and pending[2] == extent.missing:
            pending = pending[0], high, extent.missing
        else:
            if pending is not None:
                yield pending
            pending = low, high, extent.missing
        reached = high
    if pending is not None:
        yield pending
    if reached < end:
        yield reached, end, "behind the end of the message"
