"""What the messages of an NFS call tell where bytes of them are missing: everything up to there, and nothing made up.

A message with missing bytes has zeros in their place; taken for a count or a handle, they would be a false one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..onc import nfs_events as onc
from ..onc.nfs_calls import Done, nfs_calls
from ..rpcrdma.rpcs import Stitched


class Readable(NamedTuple):
    """The messages of an Rpc, and what they tell without a look at missing bytes."""

    call: Stitched
    reply: Stitched | None
    events: tuple[onc.Event, ...]
    done: tuple[Done, ...]
    problem: str


def readable(call: Stitched | None, reply: Stitched | None) -> Readable | None:
    """Bytes may be missing inside the data of a READ or WRITE; the first that is missing elsewhere ends the message."""
    if call is None:
        return None
    call_end = _first_gap(call, 0, ())
    reply_end = 0 if reply is None else _first_gap(reply, 0, ())
    while True:
        asked = call.data[:call_end]
        answered = None if reply is None else reply.data[:reply_end]
        told = onc.nfs_events(asked, answered)
        # Data are only stepped over where a length before them says how far they go.
        further = _first_gap(call, call_end, _data(told.events, onc.WRITE))
        after = 0 if reply is None else _first_gap(reply, reply_end, _data(told.events, onc.READ))
        if (further, after) == (call_end, reply_end):
            break
        call_end, reply_end = further, after
    events = told.events
    if told.problem and reply is not None:
        # Of a reply that cannot be read to its end, some writes have no result: whether they happened is not known.
        known = {event.position for event in events if event.kind == onc.WRITE}
        alone = onc.nfs_events(asked, None).events
        events += tuple(e for e in alone if e.kind == onc.WRITE and e.position not in known)
    problem = told.problem
    if problem and (call_end < len(call.data) or (reply is not None and reply_end < len(reply.data))):
        problem = "bytes of the message are missing"
    return Readable(call, reply, events, nfs_calls(asked, answered), problem)


def _data(events: Iterable[onc.Event], kind: str) -> list[tuple[int, int]]:
    """Where the contents stand in the message, with their round-up."""
    return [(e.position, e.position + (e.count + 3 & -4)) for e in events if e.kind == kind and e.position >= 0]


def _first_gap(stitched: Stitched, start: int, data: Sequence[tuple[int, int]]) -> int:
    """From ``start`` on, the first missing byte outside ``data``; the end where there is none."""
    reached = start
    for extent in stitched.extents:
        end = extent.start + extent.length
        if not extent.missing or end <= reached:
            continue
        reached = max(reached, extent.start)
        for low, high in data:
            if low <= reached < high:
                reached = min(end, high)
        if reached < end:
            return reached
    return len(stitched.data)


def stretches_of(message: Stitched, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """[start, end) of a message, cut where it goes missing or comes back: start, end, why it is missing."""
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
