"""Puts FPDUs together into DDP messages, and those into Operations (RFC 5040, RFC 5041, RFC 7306)."""

from __future__ import annotations

from ...layers import iwarp_codes as codes
from ..operations import Kind, Operation, Payload
from .decoding import Fpdus
from .fragments import ATOMIC, IMMEDIATE, READ, RESPONSE, SEND, TERMINATE, WRITE, Fragment, captured_bytes, payload_runs
from .reads import OutstandingReads
from .terminate import TerminateMessage, decode_terminate

Delivered = list[tuple[int, Operation]]
"""Operations with the frame in whose place they stand in the order of events."""


class MessageAssembly:
    """Messages that endpoint ``sender`` sent; ``flush`` gives those that are complete."""

    def __init__(self, sender: int, mine: OutstandingReads, theirs: OutstandingReads) -> None:
        """``mine``: the Reads that this end issues; ``theirs``: those it answers."""
        self.sender = sender
        self.mine = mine
        self.theirs = theirs
        self.partial: dict[int, tuple[Fragment, Operation]] = {}
        """By group: the message that is not complete, its last fragment, what there is of it."""
        self.terminates: list[TerminateMessage] = []
        self.skip_first = False
        """The first message only says that its sender is ready (RFC 6581, 9.2)."""
        self._complete: Delivered = []

    def take(self, fpdus: Fpdus, fragment: Fragment) -> Operation | None:
        """Take what this end sent next; gives the Operation that it is of."""
        group = fragment.group
        if self.skip_first:
            self.skip_first = False
            length = fpdus.requests[fragment.first].length if group == READ else fragment.length
            if group in (SEND, WRITE, READ) and not length:
                return None
        if fragment.broken:
            # Segments of messages are not interleaved (RFC 5041, 5.3): what is missing was the rest of these.
            for other in [partial for partial in self.partial if partial != group]:
                self._close(other)
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
        """Nothing more will come."""
        for group in list(self.partial):
            self._close(group)
        self.mine.give_up()
        return self.flush()

    def flush(self) -> Delivered:
        complete, self._complete = self._complete, []
        return complete

    def _message(self, fpdus: Fpdus, fragment: Fragment) -> Operation:
        """A Send or a Write, or a part of one."""
        group = fragment.group
        if group in self.partial:
            before, operation = self.partial[group]
            if _follows(before, fragment):
                self._extend(fpdus, fragment, operation)
                return operation
            self._close(group)
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
        """A Send or a Write, the bulk of all traffic."""
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

    def _close(self, group: int) -> None:
        """The message gets no more FPDUs."""
        fragment, operation = self.partial.pop(group)
        operation.end_known = False
        self._complete.append((fragment.order, operation))

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
            position=fragment.start,
        )
        self._complete.append((fragment.order, operation))
        return operation

    def _other(self, fpdus: Fpdus, fragment: Fragment) -> None:
        """Atomics and immediate data (RFC 7306)."""
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
    """Whether a fragment belongs to the message of the one before it in its group."""
    if fragment.group == SEND:
        return fragment.key == before.key and fragment.place >= before.place + before.length
    return fragment.key == before.key and fragment.place == before.place + before.length and not fragment.broken
