"""What the messages of an NFS call say as far as their bytes are there.

A reassembled message has zeros where bytes are missing; taken for a count or a handle, they would be a false one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..onc.file_events import READ, WRITE, FileEvent, file_events
from ..onc.file_operations import FileOperation, file_operations
from ..rpcrdma.rpcs import Reassembled


class NfsMessages(NamedTuple):
    """The messages of an Rpc, and what they say without a look at missing bytes."""

    call: Reassembled
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
    call_end = _first_gap(call, 0, ())
    reply_end = 0 if reply is None else _first_gap(reply, 0, ())
    while True:
        call_data = call.data[:call_end]
        reply_data = None if reply is None else reply.data[:reply_end]
        found = file_events(call_data, reply_data)
        # Data are only stepped over where a length before them says how far they go.
        further_call = _first_gap(call, call_end, _contents(found.events, WRITE))
        further_reply = 0 if reply is None else _first_gap(reply, reply_end, _contents(found.events, READ))
        if (further_call, further_reply) == (call_end, reply_end):
            break
        call_end, reply_end = further_call, further_reply
    events, problem = found.events, found.problem
    if problem and reply is not None:
        # Of a reply that cannot be read to its end, some writes have no result: whether they happened is not known.
        known = {event.position for event in events if event.kind == WRITE}
        unanswered = file_events(call_data, None).events
        events += tuple(event for event in unanswered if event.kind == WRITE and event.position not in known)
    if problem and (call_end < len(call.data) or (reply is not None and reply_end < len(reply.data))):
        problem = "bytes of the message are missing"
    return NfsMessages(call, reply, events, file_operations(call_data, reply_data), problem)


def _contents(events: Iterable[FileEvent], kind: str) -> list[tuple[int, int]]:
    """Where the bytes read or written stand in the message, with their round-up."""
    return [(e.position, e.position + (e.count + 3 & -4)) for e in events if e.kind == kind and e.position >= 0]


def _first_gap(message: Reassembled, start: int, contents: Sequence[tuple[int, int]]) -> int:
    """From ``start`` on, the first missing byte outside ``contents``; the end where there is none."""
    reached = start
    for extent in message.extents:
        end = extent.start + extent.length
        if not extent.missing or end <= reached:
            continue
        reached = max(reached, extent.start)
        for low, high in contents:
            if low <= reached < high:
                reached = min(end, high)
        if reached < end:
            return reached
    return len(message.data)


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
