"""The responder of one direction: calls in, replies out (RFC 8166, 3 and 4; version-two-01)."""

from __future__ import annotations

from dataclasses import dataclass, field

from rdmascope.dissect.layers.rpcrdma_codes import ERR_CHUNK, RDMA_MSG, RDMA_NOMSG
from rdmascope.dissect.rpcrdma.messages import Segment, TransportHeader, WriteChunk

from .nouns import Action, Called, Completed, Output, RdmaRead, RdmaWrite
from .payload import Parts, items, reduce, restore, whole
from .plan import PlannedSend, with_lengths
from .view import EndpointView


@dataclass(slots=True)
class ServedCall:
    """A call of the peer under way."""

    number: int
    header: TransportHeader
    stream: bytes
    """What came inline."""
    fetching: dict[int, tuple[int, int]] = field(default_factory=dict)
    """RDMA Read -> which segment of which Read chunk it brings."""
    fetched: dict[tuple[int, int], bytes] = field(default_factory=dict)
    message: bytes = b""


class Responder:
    """Fetches what a call left in chunks, and puts replies where the call wants them."""

    def __init__(self, endpoint: EndpointView, backward: bool) -> None:
        self.endpoint = endpoint
        self.backward = backward
        self.calls: dict[int, ServedCall] = {}

    @property
    def grant(self) -> int:
        settings = self.endpoint.settings
        return settings.backward_credits if self.backward else settings.credits

    def call(self, header: TransportHeader, payload: bytes) -> list[Output]:
        """A call's header and Payload stream: the rest is RDMA Read first."""
        call = ServedCall(self.endpoint.number(), header, payload)
        if not sound(header, payload):
            return self.refuse(header, ERR_CHUNK)
        if (header.reads or header.writes or header.reply) and not self.endpoint.serves_chunks(self.backward):
            return self.refuse(header, ERR_CHUNK)
        self.calls[call.number] = call
        outputs: list[Output] = []
        for number, chunk in enumerate(header.reads):
            for at, segment in enumerate(chunk.segments):
                if not segment.length:
                    call.fetched[number, at] = b""
                    continue
                operation = self.endpoint.number()
                call.fetching[operation] = number, at
                outputs.append(RdmaRead(operation, segment))
        return outputs or self._called(call)

    def completed(self, event: Completed) -> list[Output]:
        for call in self.calls.values():
            place = call.fetching.pop(event.operation, None)
            if place is not None:
                call.fetched[place] = event.data
                return [] if call.fetching else self._called(call)
        return []

    def _called(self, call: ServedCall) -> list[Output]:
        header, stream = call.header, call.stream
        positions: dict[int, bytes] = {}
        for number, chunk in enumerate(header.reads):
            data = b"".join(call.fetched[number, at] for at in range(len(chunk.segments)))
            positions[chunk.position] = positions.get(chunk.position, b"") + data
        if header.procedure == RDMA_NOMSG:
            stream = positions.pop(0)
        message = restore(stream, positions.items())
        if message is None or message[:4] != header.xid.to_bytes(4, "big"):
            del self.calls[call.number]
            return self.refuse(header, ERR_CHUNK)
        call.message = message
        return [Called(call.number, message)]

    def reply(self, number: int, parts: Parts) -> list[Output]:
        """The reply to a call: eligible results into Write chunks, and what is too long into the Reply chunk."""
        call = self.calls.pop(number)
        header = call.header
        found, taken = items(parts), {}
        size = self.endpoint.header_bytes + sum(8 + 16 * len(chunk.segments) for chunk in header.writes)
        size += len(whole(parts))
        for index, item in enumerate(found[: len(header.writes)]):
            if item.data and len(item.data) <= header.writes[index].length and not self.endpoint.bends("reduce", size):
                taken[index] = item.data
        stream, _ = reduce(parts, taken)
        before: list[Action] = []
        returned = []
        for index, chunk in enumerate(header.writes):
            lengths, actions = fill(chunk, taken.get(index, b""))
            returned.append(with_lengths(chunk, lengths))
            before += actions
        procedure, payload = RDMA_MSG, stream
        chunk_lengths = [0] * len(header.reply.segments) if header.reply else []
        size = self.endpoint.header_bytes + sum(8 + 16 * len(chunk.segments) for chunk in header.writes)
        size += 4 + 16 * len(chunk_lengths) if header.reply else 0
        if size + len(stream) > self.endpoint.send_limit and not (header.reply and self.endpoint.bends("reply chunk")):
            if header.reply is None or header.reply.length < len(stream):
                return self.refuse(header, ERR_CHUNK)
            chunk_lengths, actions = fill(header.reply, stream)
            procedure, payload = RDMA_NOMSG, b""
            before += actions
        answer = self.endpoint.new_header(header.xid, self.grant, procedure, 1, header.version)
        answer.writes = tuple(returned)
        answer.reply = with_lengths(header.reply, chunk_lengths) if header.reply else None
        invalidate = None
        if header.chunks and self.endpoint.may_invalidate(header.version):
            invalidate = next(one.handle for chunk in _chunks(header) for one in chunk)
        plan = PlannedSend("reply", answer, payload, before, [], invalidate, None, header, self.backward)
        return self.endpoint.issue(plan)

    def refuse(self, header: TransportHeader, error: int, supported: tuple[int, int] | None = None) -> list[Output]:
        """An RDMA_ERROR with the XID and the version of what it answers (RFC 8166, 4.5)."""
        answer = self.endpoint.new_error(header.xid, header.version, self.grant, error, supported)
        return self.endpoint.issue(PlannedSend("error", answer, asked=header, backward=self.backward))


def sound(header: TransportHeader, payload: bytes) -> bool:
    """Whether the Read list and what is inline can make a message (RFC 8166, 3.4.5 and 3.5.3)."""
    zero = sum(chunk.length for chunk in header.reads if chunk.position == 0)
    if header.procedure == RDMA_NOMSG and not zero:
        return False
    length = zero if header.procedure == RDMA_NOMSG else len(payload)
    for chunk in sorted(header.reads, key=lambda chunk: chunk.position):
        if chunk.position % 4 or chunk.position > length:
            return False
        if chunk.position or header.procedure == RDMA_MSG:
            length += chunk.length + -chunk.length % 4
    return length >= 8


def _chunks(header: TransportHeader) -> list[tuple[Segment, ...]]:
    found = [*(chunk.segments for chunk in header.reads), *(chunk.segments for chunk in header.writes)]
    return [segments for segments in [*found, header.reply.segments if header.reply else ()] if segments]


def fill(chunk: WriteChunk, data: bytes) -> tuple[list[int], list[Action]]:
    """``data`` into the segments of a chunk, in order: the length of each, and the RDMA Writes (RFC 8166, 3.4.6)."""
    lengths: list[int] = []
    writes: list[Action] = []
    at = 0
    for segment in chunk.segments:
        piece = data[at : at + segment.length]
        lengths.append(len(piece))
        if piece:
            writes.append(RdmaWrite(segment._replace(length=len(piece)), piece))
        at += len(piece)
    return lengths, writes
