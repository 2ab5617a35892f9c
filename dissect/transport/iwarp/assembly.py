"""Assembles FPDUs into DDP messages, and these into Operations (RFC 5040, RFC 5041, RFC 7306)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...arrays import Bytes, Int64s, Rows, among, joined, places
from ...intervals import IntervalSet
from ...layers import iwarp_codes as codes
from ...link.packets import PACKET
from ...named_tuple import NamedTuple
from ...percentiles import Samples
from ...serial import TCP_SEQUENCE
from .. import operations
from ..connection import AT_END, overlapping
from ..operations import Kind, Operation, Payload
from ..runs import SEND_ONLY, SEND_ONLY_INVALIDATE, TRANSFER, Run, SendRun, TransferRun
from .fpdus import Fpdus
from .stream import ByteStream

Runs = list[tuple[int, Bytes, Rows]]
"""``(offset in the fragment, data, STRETCH rows)``."""

SEND, WRITE, RESPONSE, READ, TERMINATE, ATOMIC, IMMEDIATE, ATOMIC_RESPONSE = range(1, 9)
"""Groups of RDMAP opcodes."""
GROUP = np.array(
    [WRITE, READ, RESPONSE, SEND, SEND, SEND, SEND, TERMINATE, IMMEDIATE, IMMEDIATE, ATOMIC,
     ATOMIC_RESPONSE, 0, 0, 0, 0],
    np.uint8,
)  # fmt: skip
"""By RDMAP opcode: its group, 0 for none."""
_TAGGED = np.array([group in (WRITE, RESPONSE) for group in GROUP.tolist()])
_INVALIDATING = np.array([opcode in codes.INVALIDATING for opcode in range(len(GROUP))])


_OF_WRITES = {
    "place": "order", "first_frame": "first_frame", "last_frame": "last_frame", "first_time": "first_time",
    "last_time": "last_time", "length": "length", "handle": "key", "address": "place", "packets": "packets",
    "first": "low", "behind": "high", "offset": "offset", "begins": "captured", "position": "start",
}  # fmt: skip
"""TRANSFER column -> fragment column."""


class Fragment(NamedTuple):
    """Consecutive FPDUs of one message, with none missing between them."""

    group: int
    opcode: int
    key: int
    """STag or MSN."""
    place: int
    """TO or MO of the first byte."""
    length: int
    last: bool
    broken: bool
    """Bytes before it are missing or could not be decoded."""
    first: int
    """Index of the first FPDU."""
    low: int
    high: int
    """``pieces[low:high]`` is the payload."""
    packets: int
    first_frame: int
    last_frame: int
    first_time: int
    last_time: int
    order: int
    ack: int
    seen: int
    """Bytes of the payload that were captured by some frame."""
    truncated: bool
    chunk: int
    """Index in ``Fpdus.datas`` if all of it is there and in one of them; else -1."""
    offset: int
    """Offset of the first piece in that data."""
    captured: int
    """Captured bytes of the first piece."""
    start: int
    """Stream position."""


FragmentColumns = dict[str, Rows]
"""A column for each field of ``Fragment``, in the same order."""


def fragments(parts: Sequence[Fpdus]) -> list[FragmentColumns]:
    """For each of the ``parts``, the messages or parts of messages that its consecutive FPDUs make."""
    if not parts:
        return []
    rows, pieces = joined([part.rows for part in parts]), joined([part.pieces for part in parts])
    before = np.cumsum([0, *map(len, parts)])
    pieces_before = np.cumsum([0, *(len(part.pieces) for part in parts)])
    shift = np.repeat(pieces_before[:-1], np.diff(before))
    lows = np.concatenate([part.edges[:-1] for part in parts]) + shift
    highs = np.concatenate([part.edges[1:] for part in parts]) + shift
    opcode = rows["opcode"]
    group = GROUP[opcode]
    key = np.where(_TAGGED[opcode], rows["stag"], rows["msn"])
    place, length = rows["place"], rows["length"]
    goes_on = (
        (group[1:] == group[:-1])
        & (key[1:] == key[:-1])
        & (place[1:] == place[:-1] + length[:-1].astype(np.uint64))
        & ~rows["last"][:-1]
        & ~rows["broken"][1:]
    )
    goes_on[before[1:-1] - 1] = False
    starts = np.concatenate(([0], places(~goes_on) + 1))
    ends = np.concatenate((starts[1:], [len(rows)]))
    first: Int64s | slice = starts
    final: Int64s | slice = ends - 1
    if len(starts) == len(rows):  # Each FPDU is a message: no need to copy the rows one by one.
        first = final = slice(None)
    low, high, shift = lows[first], highs[final], shift[first]
    sums = np.add.reduceat(length, starts, dtype=np.int64)
    if not len(pieces):
        pieces = np.zeros(1, pieces.dtype)
    chunk, captured = pieces["chunk"], pieces["captured"]
    # Over the pieces before each one, and before the end: bytes, truncated pieces, and pieces in other data.
    counts = np.zeros((3, len(pieces) + 1), np.int64)
    counts[0, 1:] = pieces["length"]
    counts[1, 1:] = captured < pieces["length"]
    counts[2, 1:-1] = chunk[1:] != chunk[:-1]
    totals, shorts, changes = counts.cumsum(axis=1, out=counts)
    seen = totals[high] - totals[low]
    plain = (seen == sums) & (high > low) & (changes[np.maximum(high - 1, 0)] == changes[low])
    begins = np.minimum(low, len(pieces) - 1)
    columns = {
        "group": group[first],
        "opcode": opcode[final],
        "key": key[first],
        "place": place[first],
        "length": sums,
        "last": rows["last"][final],
        "broken": rows["broken"][first],
        "first": starts - np.repeat(before[:-1], np.diff(before))[first],
        "low": low - shift,
        "high": high - shift,
        "packets": ends - starts,
        "first_frame": rows["first_frame"][first],
        "last_frame": np.maximum.reduceat(rows["last_frame"], starts),
        "first_time": rows["first_time"][first],
        "last_time": np.maximum.reduceat(rows["last_time"], starts),
        "order": rows["order"][final],
        "ack": rows["ack"][final],
        "seen": seen,
        "truncated": shorts[high] > shorts[low],
        "chunk": np.where(plain, chunk[begins], -1),
        "offset": pieces["payload"][begins],
        "captured": captured[begins],
        "start": rows["start"][first],
    }
    edges = starts.searchsorted(before).tolist()
    return [{name: column[begin:behind] for name, column in columns.items()} for begin, behind in pairwise(edges)]


def plain_runs(
    data: Bytes,
    sender: int,
    fpdus: Fpdus,
    columns: FragmentColumns,
    before: int | None,
    opened: tuple[bool, bool],
    shared: Sequence[int] = (),
) -> list[tuple[Run, Rows]]:
    """The Sends of one FPDU in one segment, and the complete RDMA Writes, as runs; each with its fragments in
    ``columns``.

    ``before``: the frame from which on something waits, None for none; ``opened``: whether the first Send and the first
    Write may continue an earlier one; ``shared``: places in the order of events that other FPDUs of the sender share.
    """
    order, length, group = columns["order"], columns["length"], columns["group"]
    sends, writes = group == SEND, group == WRITE
    number = {id(known): index for index, known in enumerate(fpdus.datas)}.get(id(data), -2)
    chosen = columns["last"] & (columns["chunk"] == number) & ~columns["truncated"] & (length > 0)
    chosen &= ~columns["broken"]
    # They must be in the order of frames as well as of the stream, and not share a frame.
    alone = order[1:] != order[:-1]
    chosen[1:] &= alone
    chosen[:-1] &= alone
    if shared:
        chosen &= ~among(order, np.array(shared))
    if before is not None:
        chosen &= order < before
    for mine, first in zip((sends, writes), opened, strict=True):
        at = places(mine)
        # What follows an unfinished message may be more of it.
        mine[at[1:]] = columns["last"][at[:-1]]
        mine[at[:1]] = not first
    sends &= chosen & (columns["packets"] == 1) & (columns["high"] - columns["low"] == 1) & (columns["place"] == 0)
    sends &= (columns["first_frame"] == order) & (columns["last_frame"] == order)
    writes &= chosen & (columns["last_frame"] == order)
    runs: list[tuple[Run, Rows]] = []
    if len(where := places(sends)):
        rows = np.zeros(len(where), PACKET)
        rows["frame"], rows["time"] = order[where], columns["last_time"][where]
        rows["payload"], rows["length"] = columns["offset"][where], length[where]
        rows["captured"], rows["psn"] = length[where], columns["key"][where] & 0xFFFFFF
        invalidating = _INVALIDATING[columns["opcode"][where]]
        rows["opcode"] = np.where(invalidating, SEND_ONLY_INVALIDATE, SEND_ONLY)
        rows["immediate"] = np.where(invalidating, fpdus.rows["stag"][columns["first"][where]], 0)
        rows["headers"] = 1
        runs.append((SendRun(data, rows, sender, columns["start"][where]), sends))
    if len(where := places(writes)):
        transfers = np.zeros(len(where), TRANSFER)
        transfers["kind"] = operations.WRITE
        for name, column in _OF_WRITES.items():
            transfers[name] = columns[column][where]
        runs.append((TransferRun(data, fpdus.pieces, None, transfers, sender), writes))
    return runs


def payload_runs(fpdus: Fpdus, fragment: Fragment) -> Runs:
    """The payload of a fragment, split at gaps: ``(offset in the fragment, data, STRETCH rows)``."""
    low, high = fragment.low, fragment.high
    if low == high:
        return []
    rows = fpdus.pieces[low:high]
    if fragment.chunk >= 0:
        return [(0, fpdus.datas[fragment.chunk], rows)]
    # Convert offsets in the payload of an FPDU to offsets in the fragment.
    owner = np.searchsorted(fpdus.edges, np.arange(low, high), side="right") - 1
    lengths = fpdus.rows["length"][fragment.first : fragment.first + fragment.packets].astype(np.int64)
    before = np.concatenate(([0], np.cumsum(lengths)))
    places = rows["at"] + before[owner - fragment.first]
    split = (places[1:] != places[:-1] + rows["length"][:-1]) | (rows["chunk"][1:] != rows["chunk"][:-1])
    edges = [0, *(np.flatnonzero(split) + 1).tolist(), len(rows)]
    return [(int(places[a]), fpdus.datas[int(rows["chunk"][a])], rows[a:b]) for a, b in pairwise(edges)]


def captured_bytes(fpdus: Fpdus, fragment: Fragment) -> bytes:
    """The bytes of a fragment before the first one that is not captured."""
    payload = Payload(fragment.length)
    payload.runs.extend(payload_runs(fpdus, fragment))
    data, start, end = payload.prefix()
    return bytes(data[start:end])


CONTROL_BYTES = 4
LENGTH_VALID, DDP_HEADER = 4, 2
"""Flags M and D; R, the lowest bit, says that the RDMAP header is quoted as well."""


@dataclass(frozen=True, slots=True)
class TerminateMessage:
    """A Terminate message."""

    frame: int
    time: int
    sender: int
    layer: int
    kind: int
    code: int
    segment_length: int | None
    """Of the DDP Segment that it quotes."""
    header: bytes
    """The quoted DDP header, followed by the RDMA Read Request header if the message quotes that."""

    def __str__(self) -> str:
        return codes.terminate_name(self.layer, self.kind, self.code)


def decode_terminate(body: bytes, fragment: Fragment, sender: int) -> TerminateMessage | None:
    """The message with the captured bytes ``body``; None if its control word is not captured."""
    if len(body) < CONTROL_BYTES:
        return None
    length, header = None, b""
    flags = body[2] >> 5
    if flags & LENGTH_VALID and len(body) >= 6:
        length = int.from_bytes(body[4:6], "big")
    if flags & DDP_HEADER:
        header = body[6:]
    return TerminateMessage(
        fragment.last_frame,
        fragment.last_time,
        sender,
        body[0] >> 4,
        body[0] & 15,
        body[1],
        length,
        header,
    )


MAX_OPEN = 4096
"""RDMA Reads kept open: more cannot be outstanding, so the oldest are given up."""
REQUEST_BYTES = 52
"""Least size of an FPDU with a Read Request."""
MAX_SINKS = 64
"""Recent Reads; if one sink occurs twice among them, the end uses few sinks in turn."""
MAX_EARLY = 64
"""Responses that wait for their request, as a capture may show it after them."""


class _OutstandingRead:
    """An RDMA Read whose responses have not all come."""

    __slots__ = ("ack", "end", "operation", "reached", "seen", "sink_stag", "sink_to")

    def __init__(self, operation: Operation, end: int, ack: int, sink_stag: int, sink_to: int) -> None:
        """``end``: position after the request; ``ack``: what that segment acknowledges."""
        self.operation, self.end, self.ack = operation, end, ack
        self.sink_stag, self.sink_to = sink_stag, sink_to
        self.seen = IntervalSet()
        self.reached = 0


class OutstandingReads:
    """The RDMA Reads that one end issued, in order, and the other end's responses."""

    def __init__(self, requests: ByteStream) -> None:
        """``requests``: the stream of the end that issues them."""
        self.requests = requests
        self.responses: ByteStream | None = None
        """The stream of the other end."""
        self.open: deque[_OutstandingRead] = deque()
        self._by_sink: dict[int, deque[_OutstandingRead]] = {}
        """Open Reads by STag of the sink."""
        self.gap = False
        """Bytes of the responses are missing since the last one that fitted a Read."""
        self._sinks: deque[tuple[int, int]] = deque(maxlen=MAX_SINKS)
        """STag and Tagged Offset of the latest Reads."""
        self.reused = False
        """One of these sinks was used twice."""
        self._doubted: deque[Operation] = deque(maxlen=MAX_SINKS)
        """The latest Reads whose responses may be those of later ones."""
        self.early: deque[tuple[Fragment, Runs]] = deque(maxlen=MAX_EARLY)
        """Responses without a known Read."""
        self.max_open = 0
        """The most Reads that were open at one time."""
        self.delay = Samples()
        """From a request to the first response, ns."""

    def issue(self, operation: Operation, end: int, ack: int, sink_stag: int, sink_to: int) -> None:
        """Add a Read whose request ends at position ``end`` and acknowledges ``ack``."""
        operation.closed = False
        read = _OutstandingRead(operation, end, ack, sink_stag, sink_to)
        self.open.append(read)
        if not self.reused and (sink_stag, sink_to) in self._sinks:
            self.reused = True
            for doubted in self._doubted:
                doubted.doubted = AT_END
        self._sinks.append((sink_stag, sink_to))
        self._by_sink.setdefault(sink_stag, deque()).append(read)
        self.max_open = max(self.max_open, len(self.open))
        if len(self.open) > MAX_OPEN:
            self._close_oldest()
        for _ in range(len(self.early)):
            fragment, runs = self.early.popleft()
            if fragment.key == sink_stag:
                self.answer(fragment, runs)
            else:
                self.early.append((fragment, runs))

    def _close_oldest(self) -> None:
        read = self.open.popleft()
        read.operation.closed = True
        same = self._by_sink[read.sink_stag]
        same.popleft()
        if not same:
            del self._by_sink[read.sink_stag]

    def answer(self, fragment: Fragment, runs: Runs) -> Operation | None:
        """Place response bytes: in the order of the Reads, by sink STag and Tagged Offset (RFC 5040, 5.2).

        Returns their Read, or None if it is unknown.  A responder has received the request, and acknowledges it in the
        segment with the response at the latest.
        """
        self.gap = self.gap or fragment.broken
        if self.gap and self.open:
            first = self.open[0]
            begun = first.sink_stag == fragment.key and first.reached
            if begun and fragment.place < first.sink_to + first.reached:
                self._close_oldest()  # It answers a later Read of this sink: within one, Tagged Offsets ascend.
        fitting = [
            read
            for read in self._by_sink.get(fragment.key, ())
            if read.sink_to <= fragment.place
            and fragment.place + fragment.length <= read.sink_to + read.operation.length
            and TCP_SEQUENCE.unwrap(read.end, fragment.ack) >= read.end
        ]
        if not fitting:
            self.early.append((fragment, runs))
            return None
        # A sink is reused only after it was filled: after a gap the response is to the latest Read.
        read = fitting[-1] if self.gap else fitting[0]
        while self.open[0] is not read:
            self._close_oldest()
        if self.gap and fragment.place > read.sink_to + read.reached and len(fitting) > 1:
            return None
        operation = read.operation
        if self.gap and self._may_be_later(read, fragment):
            operation.doubted = AT_END if self.reused else fragment.first_frame
            self._doubted.append(operation)
        self.gap = False
        if not read.reached:
            self.delay.add(np.array([max(0, fragment.first_time - operation.first_time)]))
        at = fragment.place - read.sink_to
        for shift, data, rows in runs:
            start = at + shift
            end = start + int(rows["length"].sum())
            if read.seen.add(start, end) == [(start, end)]:
                operation.payload.runs.append((start, data, rows))
                operation.payload.seen += end - start
        operation.payload.truncated |= fragment.truncated
        read.reached = at + fragment.length
        operation.packets += fragment.packets
        operation.last_frame = max(operation.last_frame, fragment.last_frame)
        operation.last_time = max(operation.last_time, fragment.last_time)
        if fragment.last or read.reached >= operation.length:
            self._close_oldest()
        return operation

    def _may_be_later(self, read: _OutstandingRead, fragment: Fragment) -> bool:
        """Whether the Read's own response, and the request of a later Read to its sink, may be missing before this
        response."""
        assert self.responses is not None
        begin = TCP_SEQUENCE.unwrap(fragment.start, read.ack)
        answers = overlapping(self.responses.gaps, begin, fragment.start)
        missing = sum(min(gap.end, fragment.start) - max(gap.start, begin) for gap in answers)
        if missing < read.operation.length:
            return False
        last = read
        for later in self.open:
            # Requests with consecutive numbers have none missing between them.
            if later.operation.psn == (last.operation.psn + 1) & 0xFFFFFF:
                last = later
        received = TCP_SEQUENCE.unwrap(last.end, fragment.ack)
        unseen = [(gap.start, gap.end) for gap in self.requests.gaps]
        if self.requests.next is not None:
            unseen.append((self.requests.next, received))
        return any(min(end, received) - max(start, last.end) >= REQUEST_BYTES for start, end in unseen)

    def give_up(self) -> None:
        """Close all Reads: no more responses come."""
        for read in self.open:
            read.operation.closed = True
        self.open.clear()
        self._by_sink.clear()


Delivered = list[tuple[int, Operation]]
"""Operations with their places in the order of events, which are frame numbers."""


class MessageAssembly:
    """The messages that endpoint ``sender`` sent; ``flush`` returns those that are complete."""

    def __init__(self, sender: int, mine: OutstandingReads, theirs: OutstandingReads) -> None:
        """``mine``: the Reads that this end issues; ``theirs``: the Reads that it answers."""
        self.sender = sender
        self.mine = mine
        self.theirs = theirs
        theirs.responses = mine.requests
        self.partial: dict[int, tuple[Fragment, Operation]] = {}
        """By group: the last fragment of the incomplete message, and its Operation so far."""
        self.terminates: list[TerminateMessage] = []
        self.skip_first = False
        """The first message only says that the sender is ready (RFC 6581, 9.2)."""
        self._complete: Delivered = []

    def take(self, fpdus: Fpdus, fragment: Fragment) -> Operation | None:
        """Take the next fragment that this end sent; returns the Operation it belongs to."""
        group = fragment.group
        if self.skip_first:
            self.skip_first = False
            length = fpdus.requests[fragment.first].length if group == READ else fragment.length
            if group in (SEND, WRITE, READ) and not length:
                return None
        if fragment.broken:
            # Segments of messages are not interleaved (RFC 5041, 5.3): the missing bytes were the rest of these.
            for other in [partial for partial in self.partial if partial != group]:
                self._close(other, fragment.order)
            self.theirs.gap = True
        if group == RESPONSE:
            return self.theirs.answer(fragment, payload_runs(fpdus, fragment))
        if group in (SEND, WRITE):
            return self._message(fpdus, fragment)
        if group == READ:
            return self._read(fpdus, fragment)
        if group == TERMINATE:
            terminate = decode_terminate(captured_bytes(fpdus, fragment), fragment, self.sender)
            if terminate is not None:
                self.terminates.append(terminate)
        elif group in (ATOMIC, IMMEDIATE):
            self._other(fpdus, fragment)
        return None

    def finish(self) -> Delivered:
        """Release everything: no more comes."""
        for group in list(self.partial):
            self._close(group, self.partial[group][0].order)
        self.mine.give_up()
        return self.flush()

    def flush(self) -> Delivered:
        complete, self._complete = self._complete, []
        return complete

    def _message(self, fpdus: Fpdus, fragment: Fragment) -> Operation:
        """Take a Send or a Write, or a part of one."""
        group = fragment.group
        if group in self.partial:
            before, operation = self.partial[group]
            if _follows(before, fragment):
                self._extend(fpdus, fragment, operation)
                return operation
            self._close(group, fragment.order)
        send = group == SEND
        if fragment.last and fragment.chunk >= 0 and not (send and fragment.place) and not fragment.broken:
            return self._whole(fpdus, fragment)
        start = 0 if send else fragment.place
        operation = Operation(
            Kind.SEND if send else Kind.WRITE,
            self.sender,
            fragment.first_frame,
            fragment.last_frame,
            fragment.first_time,
            fragment.last_time,
            0,
            Payload(),
            0 if send else fragment.key,
            0 if send else start,
            fragment.key & 0xFFFFFF if send else 0,
            0,
            start_known=not (send and fragment.place) and not (fragment.broken and not send),
            position=fragment.start,
        )
        self._extend(fpdus, fragment, operation)
        return operation

    def _whole(self, fpdus: Fpdus, fragment: Fragment) -> Operation:
        """A Send or a Write in one fragment, as nearly all are."""
        send = fragment.group == SEND
        data, low, high = fpdus.datas[fragment.chunk], fragment.low, fragment.high
        payload = Payload(fragment.length, fragment.seen, fragment.truncated, (data, fpdus.pieces, low, high))
        if send and high - low == 1:
            payload.only = data, fragment.offset, fragment.offset + fragment.captured
        operation = Operation(
            Kind.SEND if send else Kind.WRITE,
            self.sender,
            fragment.first_frame,
            fragment.last_frame,
            fragment.first_time,
            fragment.last_time,
            fragment.length,
            payload,
            0 if send else fragment.key,
            0 if send else fragment.place,
            fragment.key & 0xFFFFFF if send else 0,
            fragment.packets,
            position=fragment.start,
        )
        if fragment.opcode in codes.INVALIDATING:
            operation.invalidate = int(fpdus.rows["stag"][fragment.first])
        self._complete.append((fragment.order, operation))
        return operation

    def _extend(self, fpdus: Fpdus, fragment: Fragment, operation: Operation) -> None:
        payload = operation.payload
        at = fragment.place - operation.address
        payload.runs.extend((at + shift, data, rows) for shift, data, rows in payload_runs(fpdus, fragment))
        payload.seen += fragment.seen
        payload.truncated = payload.truncated or fragment.truncated
        payload.length = operation.length = max(operation.length, at + fragment.length)
        operation.packets += fragment.packets
        operation.last_frame = max(operation.last_frame, fragment.last_frame)
        operation.last_time = max(operation.last_time, fragment.last_time)
        if not fragment.last:
            self.partial[fragment.group] = fragment, operation
            return
        self.partial.pop(fragment.group, None)
        if fragment.opcode in codes.INVALIDATING:
            operation.invalidate = int(fpdus.rows["stag"][fragment.first])
        self._complete.append((fragment.order, operation))

    def _close(self, group: int, order: int) -> None:
        """End a message that gets no more FPDUs, as frame ``order`` shows."""
        _, operation = self.partial.pop(group)
        operation.end_known = False
        self._complete.append((order, operation))

    def _read(self, fpdus: Fpdus, fragment: Fragment) -> Operation:
        request = fpdus.requests[fragment.first]
        operation = self._single(Kind.READ, fragment, request.length, request.source_stag, request.source_to)
        if request.length:
            end = int(fpdus.rows["stop"][fragment.first])
            self.mine.issue(operation, end, fragment.ack, request.sink_stag, request.sink_to)
        return operation

    def _single(self, kind: Kind, fragment: Fragment, length: int, handle: int, address: int) -> Operation:
        operation = Operation(
            kind,
            self.sender,
            fragment.first_frame,
            fragment.last_frame,
            fragment.first_time,
            fragment.last_time,
            length,
            Payload(length),
            handle,
            address,
            fragment.key & 0xFFFFFF,
            position=fragment.start,
        )
        self._complete.append((fragment.order, operation))
        return operation

    def _other(self, fpdus: Fpdus, fragment: Fragment) -> None:
        """Take atomics and immediate data (RFC 7306)."""
        body = captured_bytes(fpdus, fragment)
        if fragment.group == IMMEDIATE:
            operation = self._single(Kind.SEND, fragment, fragment.length, 0, 0)
            operation.payload.runs.extend(payload_runs(fpdus, fragment))
            operation.payload.seen, operation.payload.truncated = fragment.seen, fragment.truncated
            operation.immediate = int.from_bytes(body, "big") if len(body) == fragment.length else None
        elif len(body) >= 20:
            self._single(
                Kind.ATOMIC, fragment, 8, int.from_bytes(body[8:12], "big"), int.from_bytes(body[12:20], "big")
            )


def _follows(before: Fragment, fragment: Fragment) -> bool:
    """Whether a fragment continues the message of the previous one in its group."""
    if fragment.group == SEND:
        return fragment.key == before.key and fragment.place >= before.place + before.length
    return fragment.key == before.key and fragment.place == before.place + before.length and not fragment.broken
