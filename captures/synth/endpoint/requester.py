"""The requester of one direction: calls out, replies in (RFC 8166, 3 and 4; version-two-01)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from rdmascope.dissect.layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from rdmascope.dissect.onc import binding
from rdmascope.dissect.onc.rpc_header import call_header
from rdmascope.dissect.rpcrdma.messages import ReadChunk, Segment, TransportHeader, WriteChunk

from .nouns import Answered, Call, Failed, Output, Register, Registered, Release, Released
from .payload import cut, items, pad, reduce
from .plan import PlannedSend
from .view import EndpointView

HEADER_ROOM = 80
"""Bytes of a reply's header with a Write chunk and a Reply chunk of a segment each, and a few more."""


@dataclass(slots=True)
class ChunkMemory:
    """Memory of ours that a call advertises."""

    number: int
    length: int
    data: bytes = b""
    handle: int | None = None
    offset: int = 0
    contents: bytes | None = None
    """What was in it when it was released."""

    @property
    def segment(self) -> Segment:
        return Segment(self.handle or 0, self.length, self.offset)


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call under way."""

    call: Call
    stream: bytes = b""
    reads: list[tuple[int, list[ChunkMemory]]] = field(default_factory=list)
    """By Position."""
    writes: list[list[ChunkMemory]] = field(default_factory=list)
    reply_chunk: list[ChunkMemory] | None = None
    header: TransportHeader | None = None
    """As sent; None before that."""
    reply: TransportHeader | None = None
    payload: bytes = b""
    """Inline, behind ``reply``."""

    @property
    def memories(self) -> list[ChunkMemory]:
        chunks = [*(chunk for _, chunk in self.reads), *self.writes, self.reply_chunk or []]
        return [memory for chunk in chunks for memory in chunk]


class Requester:
    """Keeps calls back until there are credits, sends them, and takes replies."""

    def __init__(self, endpoint: EndpointView, backward: bool) -> None:
        self.endpoint = endpoint
        self.backward = backward
        self.waiting: deque[Call] = deque()
        self.outstanding: dict[int, PendingCall] = {}
        """By XID; from the moment that memory is registered to that when the reply is there."""
        self.granted: int | None = None
        """None before the first reply."""
        self._closing: list[PendingCall] = []
        self._kept: dict[bytes, list[ChunkMemory]] = {}
        """Contents -> memory that stays registered; only a fault keeps any."""

    @property
    def credits(self) -> int:
        """What calls ask for."""
        settings = self.endpoint.settings
        return settings.backward_credits if self.backward else settings.credits

    @property
    def limit(self) -> int:
        """Calls that may be outstanding (RFC 8166, 3.3.1 and 3.3.3)."""
        if self.granted is None:
            return 1
        return max(1, min(self.credits, self.granted))

    def call(self, call: Call) -> list[Output]:
        self.waiting.append(call)
        return self.proceed()

    def proceed(self) -> list[Output]:
        """Start what may be started."""
        endpoint = self.endpoint
        outputs = endpoint.characteristics.proceed() if endpoint.extended else []
        while self.waiting and endpoint.may_ask(self.backward):
            duty = "first call" if self.granted is None else "credits"
            if len(self.outstanding) + len(endpoint.characteristics.asked) >= self.limit and not endpoint.bends(duty):
                break
            call = self.waiting[0]
            if call.xid in self.outstanding:
                break
            self.waiting.popleft()
            outputs += self._start(call)
        return outputs

    def _start(self, call: Call) -> list[Output]:
        asked = PendingCall(call)
        if problem := self._lay_out(asked):
            return [Failed(call.xid, problem)]
        self.outstanding[call.xid] = asked
        fresh = [one for one in asked.memories if one.handle is None]
        registers: list[Output] = [Register(one.number, one.length, one.data) for one in fresh]
        return registers or self._send(asked)

    def _lay_out(self, asked: PendingCall) -> str:
        """Choose the chunks of a call; '' or why it cannot be sent."""
        call, wish, endpoint = asked.call, asked.call.chunks, self.endpoint
        if problem := endpoint.forbidden(self.backward):
            return problem
        header = endpoint.header_bytes
        limit, found = endpoint.send_limit, items(call.parts)
        stream, _ = reduce(call.parts, ())
        chunks_allowed = endpoint.chunks_allowed(self.backward)
        if not chunks_allowed:
            asked.stream = stream
            fits = header + len(stream) <= limit or endpoint.bends("inline", header + len(stream))
            return "" if fits else "it does not fit inline, and chunks are not allowed"
        if header + len(stream) > limit and endpoint.bends("inline", header + len(stream)):
            asked.stream = stream
            return ""
        results = sum(call.results)
        reply = 0
        if wish.write or (
            wish.write is None and results and header + call.largest_reply + results > endpoint.receive_limit
        ):
            asked.writes = [self._memory(size, wish.segments) for size in call.results]
            if results % 4 and endpoint.bends("pad segment"):
                asked.writes[-1] += self._memory(-results % 4, 1)
            reply = 8 * len(asked.writes) + 16 * sum(map(len, asked.writes))
        else:
            reply = results + 4 * len(call.results)
        room = call.largest_reply + reply
        if wish.reply or (wish.reply is None and header + room > endpoint.receive_limit):
            asked.reply_chunk = self._memory(room, wish.segments)
        advertised = 8 * len(asked.writes) + 16 * len(asked.memories) + 4
        length = header + advertised + len(stream)
        taken: list[tuple[int, bytes]] = []
        if found and (wish.read or (wish.read is None and length > limit)):
            chosen = [number for number, item in enumerate(found) if item.data]
            stream, taken = reduce(call.parts, chosen)
            asked.reads = [(position, self._source(data, wish.segments)) for position, data in taken]
        length = header + advertised + 24 * sum(len(chunk) for _, chunk in asked.reads) + len(stream)
        if wish.zero or length > limit:
            asked.reads.insert(0, (0, self._source(stream, wish.segments)))
            stream = b""
        asked.stream = stream
        return ""

    def _memory(self, length: int, segments: int) -> list[ChunkMemory]:
        return [ChunkMemory(self.endpoint.number(), size) for size in cut(length, segments)]

    def _source(self, data: bytes, segments: int) -> list[ChunkMemory]:
        if data in self._kept:
            return self._kept[data]
        found = []
        at = 0
        for size in cut(len(data), segments):
            found.append(ChunkMemory(self.endpoint.number(), size, data[at : at + size]))
            at += size
        if self.endpoint.bends("fresh memory"):
            self._kept[data] = found
        return found

    def registered(self, event: Registered) -> list[Output]:
        for asked in list(self.outstanding.values()):
            for memory in asked.memories:
                if memory.number == event.memory and memory.handle is None:
                    memory.handle, memory.offset = event.handle, event.offset
                    if all(one.handle is not None for one in asked.memories):
                        return self._send(asked)
        return []

    def _send(self, asked: PendingCall) -> list[Output]:
        header = self.endpoint.new_header(asked.call.xid, self.credits, RDMA_MSG if asked.stream else RDMA_NOMSG, 0)
        header.reads = tuple(ReadChunk(at, tuple(one.segment for one in chunk)) for at, chunk in asked.reads)
        header.writes = tuple(WriteChunk(tuple(one.segment for one in chunk)) for chunk in asked.writes)
        if asked.reply_chunk is not None:
            header.reply = WriteChunk(tuple(one.segment for one in asked.reply_chunk))
        asked.header = header
        return self.endpoint.issue(PlannedSend("call", header, asked.stream, backward=self.backward))

    # Replies

    def reply(self, header: TransportHeader, payload: bytes, invalidated: int | None) -> list[Output]:
        """A reply's header and Payload stream."""
        asked = self.outstanding.get(header.xid)
        if asked is None or asked.header is None:
            return []  # RFC 8166, 3.3.1: nothing waits for it
        self.granted = header.credits or 1
        return self._close(asked, header, payload, invalidated)

    def refused(self, header: TransportHeader) -> list[Output]:
        """An RDMA_ERROR: the call is over (RFC 8166, 4.5)."""
        asked = self.outstanding.get(header.xid)
        return [] if asked is None or asked.header is None else self._close(asked, header, b"", None)

    def again(self, header: TransportHeader) -> list[Output]:
        """The version was refused: the call that drew the refusal is sent anew, in the version settled on."""
        asked = self.outstanding.get(header.xid)
        if asked is not None and asked.header is not None:
            return self._send(asked) + self.proceed()
        return self.proceed()

    def _close(
        self, asked: PendingCall, header: TransportHeader, payload: bytes, invalidated: int | None
    ) -> list[Output]:
        """The memory is taken back before the reply is reported (RFC 8166, 4.4)."""
        del self.outstanding[asked.call.xid]
        asked.reply, asked.payload = header, payload
        self._closing.append(asked)
        kept = [memory.number for memories in self._kept.values() for memory in memories]
        for memory in asked.memories:
            memory.contents = b"" if memory.number in kept else None
        outputs: list[Output] = [
            Release(one.number, one.handle == invalidated) for one in asked.memories if one.number not in kept
        ]
        if not outputs:
            outputs = self._finish(asked)
        return outputs + self.proceed()

    def released(self, event: Released) -> list[Output]:
        for asked in self._closing:
            for memory in asked.memories:
                if memory.number == event.memory and memory.contents is None:
                    memory.contents = event.data
                    if all(one.contents is not None for one in asked.memories):
                        return self._finish(asked)
        return []

    def _finish(self, asked: PendingCall) -> list[Output]:
        self._closing.remove(asked)
        header, xid = asked.reply, asked.call.xid
        assert header is not None
        if header.error is not None or header.problem:
            return [Failed(xid, header.problem or "the peer refused it", header)]
        if [len(chunk.segments) for chunk in header.writes] != [len(chunk) for chunk in asked.writes]:
            return [Failed(xid, "the reply returns other Write chunks than the call gave")]
        results = tuple(_taken(mine, chunk) for mine, chunk in zip(asked.writes, header.writes, strict=True))
        stream = asked.payload
        if header.procedure == RDMA_NOMSG:
            if asked.reply_chunk is None or header.reply is None:
                return [Failed(xid, "a reply in a Reply chunk that the call did not give")]
            stream = _taken(asked.reply_chunk, header.reply)
        message = join(asked.call, stream, results)
        if message is None:
            return [Failed(xid, "a returned Write chunk has no place in the reply")]
        if message[:4] != xid.to_bytes(4, "big"):
            return [Failed(xid, "the reply has another XID than its header")]
        return [Answered(xid, message, results)]

    def lost(self) -> list[Output]:
        """The connection is gone, and with it every call."""
        calls = [*(asked.call for asked in self.outstanding.values()), *self.waiting]
        closing = [asked.call for asked in self._closing]
        self.outstanding.clear()
        self.waiting.clear()
        self._closing.clear()
        return [Failed(call.xid, "the connection was lost") for call in [*closing, *calls]]


def _taken(chunk: list[ChunkMemory], returned: WriteChunk) -> bytes:
    """What the peer wrote, by the lengths that it returned."""
    pairs = zip(chunk, returned.segments, strict=False)
    return b"".join((memory.contents or b"")[: segment.length] for memory, segment in pairs)


def join(call: Call, stream: bytes, results: tuple[bytes, ...]) -> bytes | None:
    """The whole reply: results at their places by the upper-layer binding; None where one has none."""
    if not any(results):
        return stream
    first = call.parts[0]
    assert isinstance(first, bytes)
    head = call_header(first, 0, len(first))
    if head is None:
        return None
    lengths = [len(result) for result in results]
    found = binding.reply_items(head.program, head.version, head.procedure, stream, 0, len(stream), lengths)
    message, taken, placed = bytearray(), 0, set()
    for item in found.items:
        if item.reduced and item.chunk is not None:
            data = results[item.chunk]
            message += stream[taken : item.position] + data + pad(len(data))
            taken = item.position
            placed.add(item.chunk)
    if placed != {number for number, result in enumerate(results) if result}:
        return None
    return bytes(message) + stream[taken:]
