"""Puts FPDUs together into DDP messages, and those into Operations (RFC 5040, RFC 5041, RFC 7306)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...arrays import Bytes, Rows
from ...intervals import IntervalSet
from ...layers import iwarp_codes as codes
from ...percentiles import Samples
from ...serial import TCP_SEQUENCE
from ..operations import Kind, Operation, Payload
from .decoding import Fpdus

OPEN_READS = 4096
"""More RDMA Reads than this cannot be outstanding; the oldest are given up."""

EARLY = 64
"""Responses that wait for a request which a capture may show behind them."""

Runs = list[tuple[int, Bytes, Rows]]
"""``(place, data, STRETCH rows)``."""

Delivered = list[tuple[int, Operation]]
"""Operations with the frame in whose place they stand in the order of events."""

_NOTHING, _SEND, _WRITE, _RESPONSE, _READ, _TERMINATE, _ATOMIC, _IMMEDIATE, _ATOMIC_RESPONSE = range(9)
_GROUP = np.array(
    [_WRITE, _READ, _RESPONSE, _SEND, _SEND, _SEND, _SEND, _TERMINATE, _IMMEDIATE, _IMMEDIATE, _ATOMIC,
     _ATOMIC_RESPONSE, 0, 0, 0, 0],
    np.uint8,
)  # fmt: skip
"""By RDMAP opcode."""
_TAGGED = np.array([group in (_WRITE, _RESPONSE) for group in _GROUP.tolist()])


@dataclass(frozen=True, slots=True)
class Terminate:
    """A Terminate message (RFC 5040, 4.8)."""

    frame: int
    time: int
    sender: int
    layer: int
    kind: int
    code: int
    segment_length: int | None
    """Of the DDP Segment that is quoted."""
    header: bytes
    """The DDP header that is quoted, and behind it the RDMA Read Request header where the message quotes that."""

    def __str__(self) -> str:
        return codes.terminate_name(self.layer, self.kind, self.code)


class Fragment(NamedTuple):
    """FPDUs of one message that follow each other."""

    group: int
    opcode: int
    key: int
    """STag or MSN."""
    place: int
    """TO or MO of the first byte."""
    length: int
    last: bool
    broken: bool
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
    """Bytes that are not missing."""
    truncated: bool
    chunk: int
    """Index in ``datas``, where all is there and in one of them; else -1."""
    offset: int
    """Of the first piece, in that."""
    captured: int
    """Bytes of the first piece."""


class _OpenRead:
    """An RDMA Read whose responses are not all there."""

    __slots__ = ("end", "operation", "reached", "seen", "sink_stag", "sink_to")

    def __init__(self, operation: Operation, end: int, sink_stag: int, sink_to: int) -> None:
        """``end``: sequence number behind the request."""
        self.operation, self.end, self.sink_stag, self.sink_to = operation, end, sink_stag, sink_to
        self.seen = IntervalSet()
        self.reached = 0


class Reads:
    """The RDMA Reads that one end issued, in order, and the responses of the other end."""

    def __init__(self) -> None:
        self.open: deque[_OpenRead] = deque()
        self.gap = False
        """Bytes of the responses were not captured since the last that fitted."""
        self.early: deque[tuple[Fragment, Runs]] = deque(maxlen=EARLY)
        """Responses that no Read asked for so far."""
        self.stray = 0
        """Response bytes that no Read asked for."""
        self.most = 0
        """Reads that were open at one time."""
        self.delay = Samples()
        """From a request to the first of its response."""

    def issue(self, operation: Operation, end: int, sink_stag: int, sink_to: int) -> None:
        operation.closed = False
        self.open.append(_OpenRead(operation, end, sink_stag, sink_to))
        self.most = max(self.most, len(self.open))
        if len(self.open) > OPEN_READS:
            self.open.popleft().operation.closed = True
        for _ in range(len(self.early)):
            fragment, runs = self.early.popleft()
            self.stray -= fragment.length
            self.answer(fragment, runs)

    def answer(self, fragment: Fragment, runs: Runs) -> Operation | None:
        """Place response bytes: in the order of the Reads, by sink STag and Tagged Offset (RFC 5040, 5.2).

        Gives the Read that they are of, None where it is not known.

        Who answers a request has received it, and says so in the acknowledgement number of the same segment.
        """
        self.gap = self.gap or fragment.broken
        fitting = [
            read
            for read in self.open
            if read.sink_stag == fragment.key
            and read.sink_to <= fragment.place
            and fragment.place + fragment.length <= read.sink_to + read.operation.length
            and TCP_SEQUENCE.unwrap(read.end, fragment.ack) >= read.end
        ]
        if not fitting:
            self.stray += fragment.length
            self.early.append((fragment, runs))
            return None
        # The same sink is used again only when it has been filled: behind a gap the latest Read is meant.
        read = fitting[-1] if self.gap else fitting[0]
        while self.open[0] is not read:
            self.open.popleft().operation.closed = True
        if self.gap and fragment.place > read.sink_to + read.reached and len(fitting) > 1:
            self.stray += fragment.length
            return None
        self.gap = False
        operation = read.operation
        if not read.reached:
            self.delay.add(np.array([max(0, fragment.first_time - operation.first_time)]))
        at = fragment.place - read.sink_to
        for shift, data, rows in runs:
            place = at + shift
            end = place + int(rows["length"].sum())
            if read.seen.add(place, end) == [(place, end)]:
                operation.payload.runs.append((place, data, rows))
                operation.payload.seen += end - place
        operation.payload.truncated |= fragment.truncated
        read.reached = at + fragment.length
        operation.packets += fragment.packets
        operation.last_frame = max(operation.last_frame, fragment.last_frame)
        operation.last_time = max(operation.last_time, fragment.last_time)
        if fragment.last or read.reached >= operation.length:
            operation.closed = True
            self.open.remove(read)
        return operation

    def give_up(self) -> None:
        for read in self.open:
            read.operation.closed = True
        self.open.clear()


class Assembly:
    """Messages that endpoint ``sender`` sent.  What becomes complete is appended to ``out``."""

    def __init__(self, sender: int, mine: Reads, theirs: Reads) -> None:
        """``mine``: the Reads that this end issues; ``theirs``: those it answers."""
        self.sender = sender
        self.mine = mine
        self.theirs = theirs
        self.partial: dict[int, tuple[Fragment, Operation]] = {}
        """By group: the message that is not complete, its last fragment, what there is of it."""
        self.terminates: list[Terminate] = []
        self.skip_first = False
        """The first message only says that its sender is ready (RFC 6581, 9.2)."""
        self.out: Delivered = []

    def take(self, fpdus: Fpdus, fragment: Fragment) -> Operation | None:
        """What this end sent next; gives the Operation that it is of."""
        group = fragment.group
        if self.skip_first:
            self.skip_first = False
            asked = fpdus.requests[fragment.first].length if group == _READ else fragment.length
            if group in (_SEND, _WRITE, _READ) and not asked:
                return None
        if fragment.broken:
            # Segments of messages are not interleaved (RFC 5041, 5.3): what is missing was the rest of these.
            for other in [one for one in self.partial if one != group]:
                self._close(other)
            self.theirs.gap = True
        if group == _RESPONSE:
            return self.theirs.answer(fragment, _runs(fpdus, fragment))
        if group in (_SEND, _WRITE):
            return self._message(fpdus, fragment)
        if group == _READ:
            return self._read(fpdus, fragment)
        if group == _TERMINATE:
            self._terminate(fpdus, fragment)
        elif group in (_ATOMIC, _IMMEDIATE):
            self._other(fpdus, fragment)
        return None

    def finish(self) -> Delivered:
        """Nothing more will come."""
        for group in list(self.partial):
            self._close(group)
        self.mine.give_up()
        return self.flush()

    def flush(self) -> Delivered:
        out, self.out = self.out, []
        return out

    def _message(self, fpdus: Fpdus, fragment: Fragment) -> Operation:
        """A Send or a Write, or a part of one."""
        group = fragment.group
        open_ = self.partial.get(group)
        if open_ is not None:
            before, operation = open_
            if _follows(before, fragment):
                self._extend(fpdus, fragment, operation)
                return operation
            self._close(group)
        send = group == _SEND
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
        )
        self._extend(fpdus, fragment, operation)
        return operation

    def _whole(self, fpdus: Fpdus, fragment: Fragment) -> Operation:
        """A Send or a Write, the bulk of all traffic."""
        send = fragment.group == _SEND
        data, low, high = fpdus.datas[fragment.chunk], fragment.low, fragment.high
        payload = Payload(fragment.length, fragment.seen, fragment.truncated, (data, fpdus.pieces, low, high))
        if high - low == 1:
            payload.only = data.data, fragment.offset, fragment.offset + fragment.captured
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
        )
        if fragment.opcode in codes.INVALIDATING:
            operation.invalidate = int(fpdus.rows["stag"][fragment.first])
        self.out.append((fragment.order, operation))
        return operation

    def _extend(self, fpdus: Fpdus, fragment: Fragment, operation: Operation) -> None:
        payload = operation.payload
        at = fragment.place - operation.address
        payload.runs.extend((at + shift, data, rows) for shift, data, rows in _runs(fpdus, fragment))
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
        self.out.append((fragment.order, operation))

    def _close(self, group: int) -> None:
        """The message gets no more FPDUs."""
        fragment, operation = self.partial.pop(group)
        operation.end_known = False
        self.out.append((fragment.order, operation))

    def _read(self, fpdus: Fpdus, fragment: Fragment) -> Operation:
        request = fpdus.requests[fragment.first]
        operation = self._single(Kind.READ, fragment, request.length, request.source_stag, request.source_to)
        if request.length:
            end = int(fpdus.rows["stop"][fragment.first])
            self.mine.issue(operation, end, request.sink_stag, request.sink_to)
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
        )
        self.out.append((fragment.order, operation))
        return operation

    def _other(self, fpdus: Fpdus, fragment: Fragment) -> None:
        """Atomics and immediate data (RFC 7306)."""
        body = _bytes(fpdus, fragment)
        if fragment.group == _IMMEDIATE:
            operation = self._single(Kind.SEND, fragment, fragment.length, 0, 0)
            operation.payload.runs.extend(_runs(fpdus, fragment))
            operation.payload.seen, operation.payload.truncated = fragment.seen, fragment.truncated
            operation.immediate = int.from_bytes(body, "big") if len(body) == fragment.length else None
        elif len(body) >= 20:
            self._single(
                Kind.ATOMIC, fragment, 8, int.from_bytes(body[8:12], "big"), int.from_bytes(body[12:20], "big")
            )

    def _terminate(self, fpdus: Fpdus, fragment: Fragment) -> None:
        body = _bytes(fpdus, fragment)
        if len(body) < 4:
            return
        length, header = None, b""
        flags = body[2] >> 5  # M, D, R: segment length valid, DDP header there, RDMAP header there
        if flags & 4 and len(body) >= 6:
            length = int.from_bytes(body[4:6], "big")
        if flags & 2:
            header = body[6:]
        self.terminates.append(
            Terminate(
                fragment.last_frame,
                fragment.last_time,
                self.sender,
                body[0] >> 4,
                body[0] & 15,
                body[1],
                length,
                header,
            )
        )


def _follows(before: Fragment, fragment: Fragment) -> bool:
    """Whether a fragment belongs to the message of the one before it in its group."""
    if fragment.group == _SEND:
        return fragment.key == before.key and fragment.place >= before.place + before.length
    return fragment.key == before.key and fragment.place == before.place + before.length and not fragment.broken


def fragments(fpdus: Fpdus) -> list[Fragment]:
    """Consecutive FPDUs cut into messages, or parts of them."""
    rows, edges, pieces = fpdus.rows, fpdus.edges, fpdus.pieces
    if not len(rows):
        return []
    opcode = rows["opcode"]
    group = _GROUP[opcode]
    key = np.where(_TAGGED[opcode], rows["stag"], rows["msn"])
    place, length = rows["place"], rows["length"]
    goes_on = (
        (group[1:] == group[:-1])
        & (key[1:] == key[:-1])
        & (place[1:] == place[:-1] + length[:-1].astype(np.uint64))
        & ~rows["last"][:-1]
        & ~rows["broken"][1:]
    )
    starts = np.concatenate(([0], np.flatnonzero(~goes_on) + 1))
    ends = np.concatenate((starts[1:], [len(rows)]))
    final = ends - 1
    low, high = edges[starts], edges[ends]
    sums = np.add.reduceat(length, starts, dtype=np.int64)
    totals = np.concatenate(([0], np.cumsum(pieces["length"], dtype=np.int64)))
    seen = totals[high] - totals[low]
    shorts = np.concatenate(([0], np.cumsum(pieces["captured"] < pieces["length"])))
    # One row more than there are pieces, for messages without any.
    chunk, offset, captured = (np.concatenate((pieces[name], [0])) for name in ("chunk", "payload", "captured"))
    changes = np.concatenate(([0], np.cumsum(chunk[1:] != chunk[:-1])))
    plain = (seen == sums) & (high > low) & (changes[np.maximum(high - 1, 0)] == changes[low])
    return [
        Fragment(*one)
        for one in zip(
            group[starts].tolist(),
            opcode[final].tolist(),
            key[starts].tolist(),
            place[starts].tolist(),
            sums.tolist(),
            rows["last"][final].tolist(),
            rows["broken"][starts].tolist(),
            starts.tolist(),
            low.tolist(),
            high.tolist(),
            (ends - starts).tolist(),
            rows["first_frame"][starts].tolist(),
            np.maximum.reduceat(rows["last_frame"], starts).tolist(),
            rows["first_time"][starts].tolist(),
            np.maximum.reduceat(rows["last_time"], starts).tolist(),
            rows["order"][final].tolist(),
            rows["ack"][final].tolist(),
            seen.tolist(),
            (shorts[high] > shorts[low]).tolist(),
            np.where(plain, chunk[low], -1).tolist(),
            offset[low].tolist(),
            captured[low].tolist(),
            strict=True,
        )
    ]


def _runs(fpdus: Fpdus, fragment: Fragment) -> Runs:
    """The payload of a fragment: ``(place in the fragment, data, STRETCH rows)``, split at holes."""
    low, high = fragment.low, fragment.high
    if low == high:
        return []
    rows = fpdus.pieces[low:high]
    if fragment.chunk >= 0:
        return [(0, fpdus.datas[fragment.chunk], rows)]
    # Places in the payload of an FPDU become places in the fragment.
    owner = np.searchsorted(fpdus.edges, np.arange(low, high), side="right") - 1
    lengths = fpdus.rows["length"][fragment.first : fragment.first + fragment.packets].astype(np.int64)
    before = np.concatenate(([0], np.cumsum(lengths)))
    places = rows["at"] + before[owner - fragment.first]
    cut = (places[1:] != places[:-1] + rows["length"][:-1]) | (rows["chunk"][1:] != rows["chunk"][:-1])
    edges = [0, *(np.flatnonzero(cut) + 1).tolist(), len(rows)]
    return [(int(places[a]), fpdus.datas[int(rows["chunk"][a])], rows[a:b]) for a, b in pairwise(edges)]


def _bytes(fpdus: Fpdus, fragment: Fragment) -> bytes:
    """The captured bytes of a fragment, up to the first that is missing."""
    payload = Payload(fragment.length)
    payload.runs.extend(_runs(fpdus, fragment))
    data, start, end = payload.prefix()
    return bytes(data[start:end])
