"""One end of a connection: takes events, returns actions.

``Requester`` and ``Responder`` are its halves (RFC 8166, 3 and 4; version-two-01).  ``Characteristics`` are those of
both ends, with the four options that announce them (xcharext-02)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rdmascope.dissect.layers.characteristics_codes import (
    BKREQSUP_GENL,
    BKREQSUP_NONE,
    CHARACTERISTICS,
    ROPT_INITXCH,
    ROPT_REQXCH,
    ROPT_RESPXCH,
    ROPT_UPDXCH,
    XCHAR_BRS,
    XCHAR_RBSIZ,
    XCHAR_REQREMINV,
    Characteristic,
)
from rdmascope.dissect.layers.private_data import RPCRDMAPrivateData
from rdmascope.dissect.layers.rpcrdma_codes import (
    ERR_CHUNK,
    ERR_INVAL_OPTION,
    ERR_VERS,
    RDMA_ERROR,
    RDMA_MSG,
    RDMA_NOMSG,
    RDMA_OPTIONAL,
    SIZE_UNIT,
    find_private_data,
)
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.onc import binding
from rdmascope.dissect.onc.rpc_header import call_header
from rdmascope.dissect.rpcrdma.characteristics import InitXch, OptionNoun, ReqXch, RespXch, UpdXch, decode_option
from rdmascope.dissect.rpcrdma.conversation import DEFAULT_INLINE
from rdmascope.dissect.rpcrdma.messages import ReadChunk, Segment, TransportHeader, WriteChunk
from rdmascope.dissect.rpcrdma.transport_header import decode_header

from ..rpc import Parts, cut, items, pad, reduce, restore, whole
from .nouns import (
    CALL,
    REPLY,
    STAGES,
    TRANSITIONS,
    Action,
    Answered,
    Call,
    Called,
    Changed,
    Completed,
    Connected,
    ConnectionEnded,
    Disconnect,
    EndpointSettings,
    Event,
    Failed,
    Input,
    Output,
    PlannedSend,
    RdmaRead,
    RdmaWrite,
    Register,
    Registered,
    Release,
    Released,
    Role,
    SendReceived,
    Settled,
    Stage,
    State,
    Value,
    choose,
    encode_option,
    with_lengths,
    xcharsubset,
    xcharval,
)

LASTING = ("fresh memory", "fallback", "random handles")
"""Duties whose breach is an error only if it is repeated."""


class RpcRdmaEndpoint:
    """The client's or the server's end; see the package for its inputs and outputs."""

    def __init__(self, role: Role, settings: EndpointSettings | None = None, fault: Fault | None = None) -> None:
        self.role = role
        self.settings = settings or EndpointSettings()
        self.fault = fault
        self.committed = 0
        """How often the fault was committed."""
        self.answered = 0
        """How many replies were sent."""
        self.stage = Stage.CONNECTING
        self.state = State.FRESH
        self.version = self.settings.version
        """The version in which this end begins its next transaction."""
        self.peer_private = b""
        self.requester = Requester(self, role is Role.SERVER)
        self.responder = Responder(self, role is Role.CLIENT)
        self.characteristics = Characteristics(self)
        self._numbers = 0

    # The driver's side

    @property
    def private_data(self) -> bytes:
        """The private data of the connection request or reply (RFC 8797, 4)."""
        settings = self.settings
        data = b""
        if settings.announce:
            send, receive = settings.send_size // SIZE_UNIT - 1, settings.receive_size // SIZE_UNIT - 1
            data = bytes(RPCRDMAPrivateData(r=int(settings.remote_invalidation), send_size=send, receive_size=receive))
        if self.fault is not None and self.fault.private is not None and data:
            self.committed = 1
            return self.fault.private(data)
        return data

    def take(self, event: Event) -> list[Output]:
        following = STAGES[self.stage, type(event)]
        if following is None:
            return []
        self.stage = following
        return self._HANDLERS[type(event)](self, event)

    def _connected(self, event: Connected) -> list[Output]:
        self.peer_private = event.private_data
        if self.role is Role.CLIENT and self.version == 1:
            self.state = State.SETTLED  # version 1 needs no negotiation
            return [Settled(1), *self.requester.proceed()]
        if self.role is Role.CLIENT and self.settings.extension:
            return self.characteristics.introduce() + self.requester.proceed()
        return self.requester.proceed()

    def _received(self, event: SendReceived) -> list[Output]:
        header = decode_header(event.data, 0, len(event.data), len(event.data))
        if header.length < 16:
            return []  # too short to be answered (RFC 8166, 4.5)
        if header.procedure == RDMA_ERROR:
            answer = self.responder.refuse(header, ERR_CHUNK) if header.problem and self.bends("silence") else []
            return answer + self._refused(header)
        # An RDMA_NOMSG without chunks contains no RPC message, and so has no direction (RFC 8166, 4.5.2).
        malformed = bool(header.problem) or (header.procedure == RDMA_NOMSG and not header.chunks)
        if malformed and header.xid in self.requester.outstanding:
            return self.requester.refused(header)
        if not self.settings.lowest <= header.version <= self.settings.version:
            return self.responder.refuse(header, ERR_VERS, (self.settings.lowest, self.settings.version))
        if malformed or header.procedure not in (RDMA_MSG, RDMA_NOMSG, RDMA_OPTIONAL):
            return [] if self.bends("refusal") else self.responder.refuse(header, ERR_CHUNK)
        outputs = self._received_version(header.version)
        if header.procedure == RDMA_OPTIONAL:
            return outputs + self.characteristics.take(header) + self.requester.proceed()
        payload = event.data[header.length :]
        direction = self._direction(header, payload)
        if header.procedure == RDMA_MSG and int.from_bytes(payload[4:8], "big") != direction:
            header.problem = "rdma_direction is not that of the RPC message"
            if header.xid in self.requester.outstanding:
                return outputs + self.requester.refused(header)
            return outputs + self.responder.refuse(header, ERR_CHUNK)
        if direction == CALL:
            return outputs + self.responder.call(header, payload)
        return outputs + self.requester.reply(header, payload, event.invalidated)

    def _direction(self, header: TransportHeader, payload: bytes) -> int:
        """The direction of a message: CALL or REPLY."""
        if header.version > 1:
            return header.direction or 0
        if header.procedure == RDMA_MSG:
            return int.from_bytes(payload[4:8], "big")
        return REPLY if header.xid in self.requester.outstanding and not header.reads else CALL

    def _refused(self, header: TransportHeader) -> list[Output]:
        supported = header.supported
        if header.error == ERR_VERS and supported is not None and header.version == self.version and self.active:
            version = choose(self.settings.lowest, self.version - 1, supported)
            self._step(Input.OUT_OF_RANGE if version is None else Input.IN_RANGE)
            if self.bends("fallback"):
                return self.requester.refused(header)
            if version is not None:
                self.version = version
                return [Settled(version), *self.requester.again(header)]
            return [*self.requester.refused(header), Disconnect("the two ends have no version in common")]
        outputs: list[Output] = []
        if header.error != ERR_VERS and self.state is State.ASKED:
            outputs = self._received_version(header.version)  # The peer accepted the version, then found another error.
        if header.xid in self.requester.outstanding:
            return outputs + self.requester.refused(header)
        return outputs + self.characteristics.refused(header) + self.requester.proceed()

    def _received_version(self, version: int) -> list[Output]:
        settled = self.state is State.SETTLED
        self._step(Input.RECEIVED)
        if settled or self.state is not State.SETTLED:
            return []
        self.version = version
        return [Settled(version)]

    def _step(self, given: Input) -> None:
        self.state = TRANSITIONS[self.state, given]

    def _disconnected(self, event: ConnectionEnded) -> list[Output]:
        self.responder.calls.clear()
        return self.requester.lost()

    _HANDLERS: dict[type[Event], Callable[[Any, Any], list[Output]]] = {  # noqa: RUF012, a table of this class
        Connected: _connected,
        SendReceived: _received,
        Registered: lambda self, event: self.requester.registered(event),
        Released: lambda self, event: self.requester.released(event),
        Completed: lambda self, event: self.responder.completed(event),
        ConnectionEnded: _disconnected,
    }

    # The application's side

    def call(self, call: Call) -> list[Output]:
        """Queue a call to the peer; it waits for the connection and for credits."""
        return self.requester.call(call)

    def reply(self, call: int, parts: Parts) -> list[Output]:
        """Send the reply to a ``Called``."""
        return self.responder.reply(call, parts) if call in self.responder.calls else []

    def request(self, want: Mapping[int, Value]) -> list[Output]:
        """Ask the peer to change characteristics, once it is known to understand."""
        self.characteristics.request(want)
        return self.requester.proceed()

    def update(self, which: int, value: Value) -> list[Output]:
        """Change a characteristic of this end unasked; the Receive Buffer Size may only grow (xcharext-02, 3.1)."""
        if not self.extended or (which == XCHAR_RBSIZ and value < self.characteristics.own[which]):  # type: ignore[operator]
            return []
        return self.characteristics.update(which, value)

    @property
    def extended(self) -> bool:
        """Whether both ends know the extension."""
        return (
            self.stage is Stage.OPEN
            and self.state is State.SETTLED
            and self.version == 2
            and self.characteristics.known
        )

    def disconnect(self) -> list[Output]:
        return [Disconnect("done")] if self.stage is Stage.OPEN else []

    # What the halves need to know

    def number(self) -> int:
        """A fresh number for memory, an operation or a call."""
        self._numbers += 1
        return self._numbers

    def may_ask(self, backward: bool) -> bool:
        """Whether a requester may send now, as far as connection and version go."""
        if self.stage is not Stage.OPEN or self.state is State.HOPELESS:
            return False
        if backward:
            return self.state is State.SETTLED
        return self.state is not State.ASKED or self.bends("version")

    @property
    def active(self) -> bool:
        """Whether this end chooses the version: the client does, a server's calls have that of the calls it
        received."""
        return self.role is Role.CLIENT

    @property
    def header_bytes(self) -> int:
        """Bytes of an RDMA_MSG header without chunks."""
        return 28 if self.version == 1 else 32

    def announced(self) -> tuple[int, int] | None:
        """Send and receive size of the peer; None unless both ends announced theirs."""
        announcements = find_private_data(self.peer_private)
        own = find_private_data(self.private_data)
        return (announcements[0].send_size, announcements[0].receive_size) if announcements and own else None

    @property
    def send_limit(self) -> int:
        """The inline threshold now in force for what this end sends.

        Version 1: RFC 8166, 3.3.2; RFC 8797, 5.1.  Version 2: 1024 before it is settled, then 4096 or what the peer
        announces (version-two-01, 2.3 and 5; xcharext-02, 3.1).
        """
        if self.version > 1:
            return self.characteristics.send_size if self.state is State.SETTLED else DEFAULT_INLINE
        sizes = self.announced()
        return DEFAULT_INLINE if sizes is None else min(self.settings.send_size, sizes[1])

    @property
    def receive_limit(self) -> int:
        """The inline threshold now in force for what the peer sends."""
        if self.version > 1:
            return self.characteristics.receive_size if self.state is State.SETTLED else DEFAULT_INLINE
        sizes = self.announced()
        return DEFAULT_INLINE if sizes is None else min(self.settings.receive_size, sizes[0])

    def forbidden(self, backward: bool) -> str:
        """Why calls may not be sent at all; '' if they may (xcharext-02, 3.3)."""
        none = backward and self.version > 1 and self.characteristics.peer[XCHAR_BRS] == BKREQSUP_NONE
        return "the client supports no backward requests" if none and not self.bends("backward support") else ""

    def chunks_allowed(self, backward: bool) -> bool:
        """Whether calls of this end may have chunks (RFC 8167, 5.1; xcharext-02, 3.3)."""
        return not backward or (self.version > 1 and self.characteristics.peer[XCHAR_BRS] == BKREQSUP_GENL)

    def serves_chunks(self, backward: bool) -> bool:
        """Whether calls of the peer may have chunks."""
        return not backward or (self.version > 1 and self.characteristics.own[XCHAR_BRS] == BKREQSUP_GENL)

    def may_invalidate(self, version: int) -> bool:
        """Whether replies may use Send With Invalidate (RFC 8797, 4.1; xcharext-02, 3.2)."""
        if version > 1:
            return bool(self.characteristics.peer[XCHAR_REQREMINV])
        announcements = find_private_data(self.peer_private)
        both = self.settings.announce and self.settings.remote_invalidation and announcements
        return bool(both and announcements[0].remote_invalidation)

    def new_header(
        self, xid: int, credits: int, procedure: int, direction: int, version: int | None = None
    ) -> TransportHeader:
        """A header without chunks; ``direction`` is used if the version has a word for it."""
        chosen = version or self.version
        return TransportHeader(xid, chosen, credits, procedure, direction=direction if chosen > 1 else None)

    def new_error(
        self, header: TransportHeader, credits: int, error: int, supported: tuple[int, int] | None = None
    ) -> TransportHeader:
        """An RDMA_ERROR with the XID and the version of the header that it answers (RFC 8166, 4.5)."""
        return TransportHeader(header.xid, header.version, credits, RDMA_ERROR, error=error, supported=supported)

    def issue(self, plan: PlannedSend) -> list[Output]:
        """Send a message, changed by the fault if it gives the occasion."""
        if self.role is Role.CLIENT and plan.kind in ("call", "option"):
            self._step(Input.SENT)
        fault = self.fault
        if fault is not None and fault.spoil is not None and not self.committed:
            self.committed += fault.spoil(self, plan)
        self.answered += plan.kind == "reply"
        return list(plan.actions())

    def bends(self, duty: str, size: int = 0) -> bool:
        """Whether the fault suspends this duty now: once, unless only repetition is wrong."""
        fault = self.fault
        if fault is None or fault.bends != duty or (self.committed and duty not in LASTING):
            return False
        if fault.fits is not None and not fault.fits(self, size):
            return False
        self.committed += 1
        return True


@dataclass(slots=True)
class ChunkMemory:
    """Memory of this end that a call advertises."""

    number: int
    length: int
    data: bytes = b""
    handle: int | None = None
    offset: int = 0
    contents: bytes | None = None
    """Its contents when it was released."""

    @property
    def segment(self) -> Segment:
        return Segment(self.handle or 0, self.length, self.offset)


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call under way."""

    call: Call
    stream: bytes = b""
    reads: list[tuple[int, list[ChunkMemory]]] = field(default_factory=list)
    """Read chunks, each with its Position."""
    writes: list[list[ChunkMemory]] = field(default_factory=list)
    reply_chunk: list[ChunkMemory] | None = None
    header: TransportHeader | None = None
    """As sent; None before that."""
    reply: TransportHeader | None = None
    payload: bytes = b""
    """The inline payload of the reply."""

    @property
    def memories(self) -> list[ChunkMemory]:
        chunks = [*(chunk for _, chunk in self.reads), *self.writes, self.reply_chunk or []]
        return [memory for chunk in chunks for memory in chunk]


class Requester:
    """Holds calls until there are credits, sends them, and takes replies."""

    def __init__(self, endpoint: RpcRdmaEndpoint, backward: bool) -> None:
        self.endpoint = endpoint
        self.backward = backward
        self.waiting: deque[Call] = deque()
        self.outstanding: dict[int, PendingCall] = {}
        """By XID, from registering memory until the reply has come."""
        self.granted: int | None = None
        """None before the first reply."""
        self._closing: list[PendingCall] = []
        self._kept: dict[bytes, list[ChunkMemory]] = {}
        """By contents: memory that stays registered, which only a fault does."""

    @property
    def credits(self) -> int:
        """Credits that calls request."""
        settings = self.endpoint.settings
        return settings.backward_credits if self.backward else settings.credits

    @property
    def limit(self) -> int:
        """Number of calls that may be outstanding (RFC 8166, 3.3.1 and 3.3.3)."""
        if self.granted is None:
            return 1
        return max(1, min(self.credits, self.granted))

    def call(self, call: Call) -> list[Output]:
        self.waiting.append(call)
        return self.proceed()

    def proceed(self) -> list[Output]:
        """Start the calls that may be sent."""
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
        fresh = [memory for memory in asked.memories if memory.handle is None]
        registers: list[Output] = [Register(memory.number, memory.length, memory.data) for memory in fresh]
        return registers or self._send(asked)

    def _lay_out(self, asked: PendingCall) -> str:
        """Choose the chunks of a call; returns why it cannot be sent, '' if it can."""
        call, wish, endpoint = asked.call, asked.call.chunks, self.endpoint
        if problem := endpoint.forbidden(self.backward):
            return problem
        header = endpoint.header_bytes
        limit, reducible = endpoint.send_limit, items(call.parts)
        stream, _ = reduce(call.parts, ())
        if not endpoint.chunks_allowed(self.backward):
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
        if reducible and (wish.read or (wish.read is None and length > limit)):
            stream, taken = reduce(call.parts, [number for number, item in enumerate(reducible) if item.data])
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
        chunks = []
        at = 0
        for size in cut(len(data), segments):
            chunks.append(ChunkMemory(self.endpoint.number(), size, data[at : at + size]))
            at += size
        if self.endpoint.bends("fresh memory"):
            self._kept[data] = chunks
        return chunks

    def registered(self, event: Registered) -> list[Output]:
        for asked in list(self.outstanding.values()):
            for memory in asked.memories:
                if memory.number == event.memory and memory.handle is None:
                    memory.handle, memory.offset = event.handle, event.offset
                    if all(chunk_memory.handle is not None for chunk_memory in asked.memories):
                        return self._send(asked)
        return []

    def _send(self, asked: PendingCall) -> list[Output]:
        header = self.endpoint.new_header(asked.call.xid, self.credits, RDMA_MSG if asked.stream else RDMA_NOMSG, 0)
        header.reads = tuple(ReadChunk(at, tuple(memory.segment for memory in chunk)) for at, chunk in asked.reads)
        header.writes = tuple(WriteChunk(tuple(memory.segment for memory in chunk)) for chunk in asked.writes)
        if asked.reply_chunk is not None:
            header.reply = WriteChunk(tuple(memory.segment for memory in asked.reply_chunk))
        asked.header = header
        return self.endpoint.issue(PlannedSend("call", header, asked.stream, backward=self.backward))

    # Replies

    def reply(self, header: TransportHeader, payload: bytes, invalidated: int | None) -> list[Output]:
        """Take a reply's header and Payload stream."""
        asked = self.outstanding.get(header.xid)
        if asked is None or asked.header is None:
            return []  # RFC 8166, 3.3.1: no call waits for it
        self.granted = header.credits or 1
        return self._close(asked, header, payload, invalidated)

    def refused(self, header: TransportHeader) -> list[Output]:
        """Take an RDMA_ERROR: the call is over (RFC 8166, 4.5)."""
        asked = self.outstanding.get(header.xid)
        return [] if asked is None or asked.header is None else self._close(asked, header, b"", None)

    def again(self, header: TransportHeader) -> list[Output]:
        """Repeat a call whose version was refused, in the version settled on."""
        asked = self.outstanding.get(header.xid)
        if asked is not None and asked.header is not None:
            return self._send(asked) + self.proceed()
        return self.proceed()

    def _close(
        self, asked: PendingCall, header: TransportHeader, payload: bytes, invalidated: int | None
    ) -> list[Output]:
        """End a call: its memory is revoked before the reply is reported (RFC 8166, 4.4)."""
        del self.outstanding[asked.call.xid]
        asked.reply, asked.payload = header, payload
        self._closing.append(asked)
        kept = [memory.number for memories in self._kept.values() for memory in memories]
        for memory in asked.memories:
            memory.contents = b"" if memory.number in kept else None
        outputs: list[Output] = [
            Release(chunk_memory.number, chunk_memory.handle == invalidated)
            for chunk_memory in asked.memories
            if chunk_memory.number not in kept
        ]
        if not outputs:
            outputs = self._finish(asked)
        return outputs + self.proceed()

    def released(self, event: Released) -> list[Output]:
        for asked in self._closing:
            for memory in asked.memories:
                if memory.number == event.memory and memory.contents is None:
                    memory.contents = event.data
                    if all(chunk_memory.contents is not None for chunk_memory in asked.memories):
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
        """Fail all calls: the connection is gone."""
        calls = [*(asked.call for asked in self.outstanding.values()), *self.waiting]
        closing = [asked.call for asked in self._closing]
        self.outstanding.clear()
        self.waiting.clear()
        self._closing.clear()
        return [Failed(call.xid, "the connection was lost") for call in [*closing, *calls]]


def _taken(chunk: list[ChunkMemory], returned: WriteChunk) -> bytes:
    """The bytes that the peer wrote, by the lengths it returned."""
    pairs = zip(chunk, returned.segments, strict=False)
    return b"".join((memory.contents or b"")[: segment.length] for memory, segment in pairs)


def join(call: Call, stream: bytes, results: tuple[bytes, ...]) -> bytes | None:
    """The whole reply, with results inserted where the upper-layer binding says; None if one has no place."""
    if not any(results):
        return stream
    first = call.parts[0]
    assert isinstance(first, bytes)
    head = call_header(first, 0, len(first))
    if head is None:
        return None
    lengths = [len(result) for result in results]
    arguments = binding.reply_items(head.program, head.version, head.procedure, stream, 0, len(stream), lengths)
    message, taken, placed = bytearray(), 0, set()
    for item in arguments.items:
        if item.reduced and item.chunk is not None:
            data = results[item.chunk]
            message += stream[taken : item.position] + data + pad(len(data))
            taken = item.position
            placed.add(item.chunk)
    if placed != {number for number, result in enumerate(results) if result}:
        return None
    return bytes(message) + stream[taken:]


@dataclass(slots=True)
class ServedCall:
    """A call of the peer that is being served."""

    number: int
    header: TransportHeader
    stream: bytes
    """The part of the message that came inline."""
    fetching: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By RDMA Read: which segment of which Read chunk it fetches."""
    fetched: dict[tuple[int, int], bytes] = field(default_factory=dict)
    message: bytes = b""


class Responder:
    """Fetches the Read chunks of calls, and puts replies where the call wants them."""

    def __init__(self, endpoint: RpcRdmaEndpoint, backward: bool) -> None:
        self.endpoint = endpoint
        self.backward = backward
        self.calls: dict[int, ServedCall] = {}

    @property
    def grant(self) -> int:
        settings = self.endpoint.settings
        return settings.backward_credits if self.backward else settings.credits

    def call(self, header: TransportHeader, payload: bytes) -> list[Output]:
        """Take a call's header and Payload stream; its Read chunks are fetched first."""
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
            segment = call.fetching.pop(event.operation, None)
            if segment is not None:
                call.fetched[segment] = event.data
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
        """Send the reply to a call: eligible results in Write chunks, a message that is too long in the Reply chunk."""
        header = self.calls.pop(number).header
        reducible, taken = items(parts), {}
        size = self.endpoint.header_bytes + sum(8 + 16 * len(chunk.segments) for chunk in header.writes)
        size += len(whole(parts))
        for index, item in enumerate(reducible[: len(header.writes)]):
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
            invalidate = chunk_segments(header)[0][0].handle
        plan = PlannedSend("reply", answer, payload, before, [], invalidate, None, header, self.backward)
        return self.endpoint.issue(plan)

    def refuse(self, header: TransportHeader, error: int, supported: tuple[int, int] | None = None) -> list[Output]:
        """Send an RDMA_ERROR with the XID and the version of what it answers (RFC 8166, 4.5)."""
        answer = self.endpoint.new_error(header, self.grant, error, supported)
        return self.endpoint.issue(PlannedSend("error", answer, asked=header, backward=self.backward))


def sound(header: TransportHeader, payload: bytes) -> bool:
    """Whether the Read list and the inline part can make a message (RFC 8166, 3.4.5 and 3.5.3)."""
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


def chunk_segments(header: TransportHeader) -> list[tuple[Segment, ...]]:
    """The segments of all chunks, chunk after chunk."""
    chunks: list[ReadChunk | WriteChunk] = [*header.reads, *header.writes, *filter(None, [header.reply])]
    return [chunk.segments for chunk in chunks if chunk.segments]


def fill(chunk: WriteChunk, data: bytes) -> tuple[list[int], list[Action]]:
    """Fill the segments of a chunk in order: the length used of each, and the RDMA Writes (RFC 8166, 3.4.6)."""
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


DEFAULTS: Mapping[int, Value] = {code: kind.default for code, kind in CHARACTERISTICS.items()}
"""The characteristics of an end that announces none."""
FIRST_XID = 0xF0000001
"""XIDs of options that answer none start here, so that they differ from those of calls."""


class Characteristics:
    """The characteristics of this end, those of the peer, and the changes under way."""

    def __init__(self, endpoint: RpcRdmaEndpoint) -> None:
        self.endpoint = endpoint
        settings = endpoint.settings
        self.own: dict[int, Value] = {
            XCHAR_RBSIZ: settings.receive_buffer,
            XCHAR_REQREMINV: settings.remote_invalidation,
            XCHAR_BRS: settings.backward_support,
            **settings.more,
        }
        self.peer: dict[int, Value] = dict(DEFAULTS)
        self.introduced = False
        """Whether this end has sent its ROPT_INITXCH."""
        self.known = False
        """Whether the peer has sent an option, so that it knows the extension."""
        self.asked: dict[int, list[tuple[int, Value]]] = {}
        """By XID: what an unanswered ROPT_REQXCH of this end asks for."""
        self.wishes: deque[dict[int, Value]] = deque()
        """Changes to ask for next."""
        self.pending: dict[int, Value] = {}
        """Requested changes that ROPT_UPDXCH will announce."""
        self._xid = FIRST_XID - 1

    # What holds

    @property
    def send_size(self) -> int:
        """Largest Send to the peer in bytes; a lower size that was asked for counts at once (3.1)."""
        wanted = [value for values in self.asked.values() for which, value in values if which == XCHAR_RBSIZ]
        wanted += [value for which, value in self.pending.items() if which == XCHAR_RBSIZ]
        return min(int(value) for value in [self.peer[XCHAR_RBSIZ], *wanted])

    @property
    def receive_size(self) -> int:
        """Largest Send in bytes that the peer knows it may send."""
        announced = self.own if self.known and self.introduced else DEFAULTS
        return int(announced[XCHAR_RBSIZ])

    # What this end sends

    def introduce(self, xid: int | None = None) -> list[Output]:
        """Announce this end's transport characteristics (ROPT_INITXCH, 4.1), once."""
        if self.introduced:
            return []
        self.introduced = True
        start = [xcharval(which, value) for which, value in self.own.items()]
        fixed = [index for index, which in enumerate(self.own) if which in self.endpoint.settings.unchanging]
        return self._send(ROPT_INITXCH, xid, self._side, start, xcharsubset(fixed))

    def request(self, want: Mapping[int, Value]) -> None:
        """Queue a ROPT_REQXCH (4.2), which needs a credit."""
        self.wishes.append(dict(want))

    def proceed(self) -> list[Output]:
        """Send the queued requests for which there are credits."""
        outputs: list[Output] = []
        requester = self.endpoint.requester
        while self.wishes and len(requester.outstanding) + len(self.asked) < requester.limit:
            want, xid = self.wishes.popleft(), self._next_xid()
            self.asked[xid] = list(want.items())
            values = [xcharval(which, value) for which, value in want.items()]
            outputs += self._send(ROPT_REQXCH, xid, CALL, values)
        return outputs

    def update(self, which: int, value: Value, clears: bool = False) -> list[Output]:
        """Announce a change of this end's characteristics (ROPT_UPDXCH, 4.4)."""
        self.own[which] = value
        return self._send(ROPT_UPDXCH, None, self._side, xcharval(which, value), int(clears))

    @property
    def _side(self) -> int:
        return CALL if self.endpoint.role is Role.CLIENT else REPLY

    def _next_xid(self) -> int:
        self._xid += 1
        return self._xid

    def _send(self, option: int, xid: int | None, direction: int, *fields: Any) -> list[Output]:
        credits = self.endpoint.responder.grant if direction == REPLY else self.endpoint.requester.credits
        number = self._next_xid() if xid is None else xid
        header = self.endpoint.new_header(number, credits, RDMA_OPTIONAL, direction, 2)
        header.option, header.optinfo = option, encode_option(option, *fields)
        return self.endpoint.issue(PlannedSend("option", header))

    # What the peer sends

    def take(self, header: TransportHeader) -> list[Output]:
        """Take an RDMA2_OPTIONAL; one that is not supported is refused (version-two-01, 3.1)."""
        assert header.option is not None
        handle = self._HANDLERS.get(header.option)
        if handle is None or not self.endpoint.settings.extension:
            return self.endpoint.responder.refuse(header, ERR_INVAL_OPTION)
        noun = decode_option(header.option, header.optinfo)
        if noun.problem or any(value.problem for value in _values(noun)):
            return self.endpoint.responder.refuse(header, ERR_CHUNK)  # 2.1: an XDR error
        unknown = any(value.kind is None for value in _values(noun))
        if unknown and self.endpoint.bends("unknown characteristic"):
            return self.endpoint.responder.refuse(header, ERR_CHUNK)
        if isinstance(noun, RespXch) and self.endpoint.bends("support"):
            return self.endpoint.responder.refuse(header, ERR_INVAL_OPTION)
        self.known = True
        return handle(self, header, noun)

    def _initxch(self, header: TransportHeader, noun: InitXch) -> list[Output]:
        outputs: list[Output] = []
        for value in noun.start:
            outputs += self._changed(value.which, value.data if value.value is None else value.value)
        if self.endpoint.role is Role.SERVER:
            outputs += self.introduce(header.xid)
        return outputs

    def _changed(self, which: int, value: Value) -> list[Output]:
        if self.peer.get(which) == value:
            return []
        self.peer[which] = value
        return [Changed(which, value)]

    def _reqxch(self, header: TransportHeader, noun: ReqXch) -> list[Output]:
        if self.endpoint.bends("response"):
            return []
        fates: dict[str, list[int]] = {"done": [], "reject": [], "pending": []}
        updates: list[tuple[int, Value]] = []
        for index, wish in enumerate(noun.want):
            fixed = wish.value is None or wish.which in self.endpoint.settings.unchanging or not self._possible(wish)
            fate = "reject" if fixed else self.endpoint.settings.on_request.get(wish.which, "done")
            fates[fate].append(index)
            if fate == "done":
                self.own[wish.which] = wish.value or 0
            elif fate == "pending":
                updates.append((wish.which, wish.value or 0))
        subsets = [xcharsubset(fates[fate]) for fate in ("done", "reject", "pending")]
        outputs = self._send(ROPT_RESPXCH, header.xid, REPLY, *subsets)
        for which, value in updates:
            outputs += self.update(which, value, clears=True)
        return outputs

    def _possible(self, wish: Any) -> bool:
        """Whether a change can be made: version 2 needs receive buffers of at least 4096 bytes (version-two-01,
        2.3)."""
        return wish.which != XCHAR_RBSIZ or int(wish.value) >= CHARACTERISTICS[XCHAR_RBSIZ].default

    def _respxch(self, header: TransportHeader, noun: RespXch) -> list[Output]:
        outputs: list[Output] = []
        for index, (which, value) in enumerate(self.asked.pop(header.xid, ())):
            if index in noun.done:
                outputs += self._changed(which, value)
            elif index in noun.pending:
                self.pending[which] = value
        return outputs + self.endpoint.requester.proceed()

    def _updxch(self, header: TransportHeader, noun: UpdXch) -> list[Output]:
        assert noun.now is not None
        if noun.pending_clear:
            self.pending.pop(noun.now.which, None)
        return self._changed(noun.now.which, noun.now.data if noun.now.value is None else noun.now.value)

    def refused(self, header: TransportHeader) -> list[Output]:
        """Take an error instead of an answer, as if every change had been rejected (3)."""
        self.asked.pop(header.xid, None)
        return []

    _HANDLERS: dict[int, Callable[[Any, TransportHeader, Any], list[Output]]] = {  # noqa: RUF012, a table
        ROPT_INITXCH: _initxch,
        ROPT_REQXCH: _reqxch,
        ROPT_RESPXCH: _respxch,
        ROPT_UPDXCH: _updxch,
    }


def _values(noun: OptionNoun) -> tuple[Characteristic, ...]:
    match noun:
        case InitXch(start):
            return start
        case ReqXch(want):
            return want
        case UpdXch(Characteristic() as now):
            return (now,)
        case _:
            return ()


class Fault(NamedTuple):
    """A row of the table of faults."""

    rule: str
    """The rule of the audit that it breaks."""
    by: Role
    """The end that can commit it."""
    says: str
    """What the endpoint does."""
    spoil: Callable[[RpcRdmaEndpoint, PlannedSend], bool] | None = None
    """Changes a message in place; False if that gives no occasion, and the message is unchanged."""
    private: Callable[[bytes], bytes] | None = None
    """Changes the private data."""
    bends: str = ""
    """Suspends a duty of the endpoint, by the name it is asked for in ``RpcRdmaEndpoint.bends``."""
    fits: Callable[[RpcRdmaEndpoint, int], bool] | None = None
    """For a fault about sizes: whether a Send of this many bytes is an occasion."""
    cause: str = ""
    """A fault of the peer that gives the occasion."""
    version: int = 0
    """The protocol version that gives an occasion; 0 for any."""
