"""What an endpoint of an RPC-over-RDMA connection is set up with, told, and tells: settings, states, events, actions
and reports.  Also the messages that it is about to send, and how their transport headers are encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

from rdmascope.dissect.layers.rpcrdma import (
    BODIES,
    OPTION_LAYERS,
    RPCRDMA,
    RDMAError,
    RDMASegment,
    ReadSegment,
    SegmentArray,
    Xcharval,
)
from rdmascope.dissect.layers.rpcrdma_codes import RDMA_ERROR, RDMA_OPTIONAL
from rdmascope.dissect.rpcrdma.messages import Segment, TransportHeader, WriteChunk

from ..rpc import Parts

Value = int | bool | bytes
"""The value of a transport characteristic; of one that no document defines, its XDR."""


def encode_header(header: TransportHeader) -> bytes:
    """The bytes of a transport header; its ``length`` and ``problem`` are ignored.

    The header of a version or procedure that no document defines is the four fixed words alone.
    """
    fixed = RPCRDMA(
        xid=header.xid, version=header.version, credits=header.credits or 0, procedure=header.procedure or 0
    )
    return bytes(fixed) + bytes(_body(header))


def _body(header: TransportHeader) -> Any:
    bodies = BODIES.get(header.version, {})
    if header.procedure == RDMA_ERROR:
        body = bodies.get(RDMA_ERROR, RDMAError)(err=header.error or 0)
        if header.supported is not None:
            body.vers_low, body.vers_high = header.supported
        return body
    layer = bodies.get(header.procedure or 0)
    if layer is None:
        return b""
    if header.procedure == RDMA_OPTIONAL:
        return layer(rdma_direction=header.direction or 0, opttype=header.option or 0, optinfo=header.optinfo)
    body = layer(
        reads=[
            ReadSegment(position=chunk.position, handle=segment.handle, length=segment.length, offset=segment.offset)
            for chunk in header.reads
            for segment in chunk.segments
        ],
        writes=[_array(chunk) for chunk in header.writes],
        reply=None if header.reply is None else _array(header.reply),
    )
    if header.version > 1:
        body.rdma_direction = header.direction or 0
    return body


def _array(chunk: WriteChunk) -> Any:
    segments = [
        RDMASegment(handle=segment.handle, length=segment.length, offset=segment.offset) for segment in chunk.segments
    ]
    return SegmentArray(segments=segments)


def encode_option(option: int, *fields: Any) -> bytes:
    """The bytes of an option's rdma_optinfo, which consists of ``fields`` in this order (xcharext-02, 5.2)."""
    layer = OPTION_LAYERS[option]
    names = [field.name for field in layer.fields_desc]
    return bytes(layer(**dict(zip(names, fields, strict=True))))


def xcharval(which: int, value: Value) -> Any:
    return Xcharval(which=which, value=value)


def xcharsubset(positions: Iterable[int]) -> list[int]:
    """The 32-bit words in which exactly the bits at ``positions`` are set (xcharext-02, 2.1)."""
    chosen = set(positions)
    return [
        sum(1 << bit for bit in range(32) if 32 * word + bit in chosen)
        for word in range(max(chosen, default=-1) // 32 + 1)
    ]


class Role(IntEnum):
    """An end of the connection, which keeps its role for as long as the connection lasts; also the index of that end in
    ``Connection.endpoints``."""

    CLIENT = 0
    SERVER = 1


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """How one end is set up.  Sizes are in bytes."""

    version: int = 1
    """The highest version supported, 1 or 2."""
    lowest: int = 1
    credits: int = 32
    """Asked for in forward calls by a client, granted in forward replies by a server."""
    backward_credits: int = 8
    """Asked for in backward calls by a server, granted in backward replies by a client."""
    announce: bool = True
    """Send RFC 8797 private data."""
    send_size: int = 4096
    receive_size: int = 4096
    """Longest message that this end sends and receives by version 1, as its private data announce them (RFC 8797):
    multiples of 1024 up to 262144."""
    remote_invalidation: bool = False
    """This end accepts Send With Invalidate: flag R of the private data (RFC 8797), and Requester Remote
    Invalidation of version 2."""
    extension: bool = True
    """Version 2: knows the transport characteristics of xcharext-02."""
    receive_buffer: int = 4096
    """Version 2: Receive Buffer Size, 4096 or more."""
    backward_support: int = 1
    """Version 2: Backward Request Support, 0 none, 1 inline, 2 general."""
    unchanging: frozenset[int] = frozenset()
    """Characteristics that optixch_nochg names."""
    more: Mapping[int, bytes] = field(default_factory=dict)
    """Characteristics that no document defines, with their XDR, to be announced along."""
    on_request: Mapping[int, str] = field(default_factory=dict)
    """How this end answers a peer that asks it to change a characteristic, by number: 'done' (also for those that are
    not here), 'pending' or 'reject'."""


# Events


@dataclass(frozen=True, slots=True)
class Connected:
    private_data: bytes = b""
    """The consumer private data of the peer, without the IP CM header or the words of enhanced MPA in front of them."""


@dataclass(frozen=True, slots=True)
class SendReceived:
    data: bytes
    invalidated: int | None = None
    """The handle that came with a Send With Invalidate."""


@dataclass(frozen=True, slots=True)
class Registered:
    memory: int
    handle: int
    offset: int


@dataclass(frozen=True, slots=True)
class Released:
    memory: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Completed:
    operation: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    reason: str = ""


Event = Connected | SendReceived | Registered | Released | Completed | ConnectionEnded


# Actions


@dataclass(frozen=True, slots=True)
class Register:
    memory: int
    """The endpoint's own number for it, as in Registered, Release and Released."""
    length: int
    data: bytes = b""
    """The contents that the peer may read; empty for memory that the peer may write."""


@dataclass(frozen=True, slots=True)
class Release:
    memory: int
    invalidated: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    data: bytes
    invalidate: int | None = None


@dataclass(frozen=True, slots=True)
class RdmaRead:
    operation: int
    segment: Segment
    """The peer's memory that is read."""


@dataclass(frozen=True, slots=True)
class RdmaWrite:
    segment: Segment
    """The peer's memory, as long as ``data``."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Disconnect:
    reason: str


Action = Register | Release | Send | RdmaRead | RdmaWrite | Disconnect


# Reports to the application


@dataclass(frozen=True, slots=True)
class Called:
    """The peer made a call; ``Endpoint.reply`` answers it."""

    call: int
    message: bytes
    """The whole RPC message, with the contents of all chunks in place."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The peer replied to a call."""

    xid: int
    message: bytes
    """The whole RPC message, with the contents of Write chunks where the upper-layer binding (RFC 8267) has them."""
    results: tuple[bytes, ...] = ()
    """The contents of each Write chunk, in the order of the chunks."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A call ended without a reply."""

    xid: int
    reason: str
    error: TransportHeader | None = None
    """The RDMA_ERROR that ended it."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The version of the connection is known from now on."""

    version: int


@dataclass(frozen=True, slots=True)
class Changed:
    """The value of a characteristic of the peer that is in force from now on."""

    which: int
    value: int | bool | bytes


Report = Called | Answered | Failed | Settled | Changed
Output = Action | Report


# Requests of the application


@dataclass(frozen=True, slots=True)
class Chunks:
    """Which chunks a call is made with.  None leaves that to the sizes: a chunk is used where inline there is no
    room."""

    read: bool | None = None
    """The DDP-eligible items of the call travel in Read chunks."""
    zero: bool | None = None
    """The rest of the call travels in a Read chunk at Position 0, as it always does where it does not fit inline."""
    write: bool | None = None
    """The call offers a Write chunk for each DDP-eligible result."""
    reply: bool | None = None
    """The call offers a Reply chunk."""
    segments: int = 1
    """Segments of each chunk."""


@dataclass(frozen=True, slots=True)
class Call:
    parts: Parts
    """The RPC message from its XID on."""
    largest_reply: int = 512
    """The most bytes that the reply's Payload stream can have, without the results that ``results`` counts."""
    results: tuple[int, ...] = ()
    """The most bytes that each DDP-eligible result can have."""
    chunks: Chunks = Chunks()

    @property
    def xid(self) -> int:
        first = self.parts[0]
        assert isinstance(first, bytes), "an RPC message begins with its XID"
        return int.from_bytes(first[:4], "big")


# Where a connection is


class State(Enum):
    """What is known about the version of a connection."""

    FRESH = "nothing was sent or received"
    ASKED = "one message of the highest version was sent, and stands alone until it is answered"
    SETTLED = "both ends use one version"
    HOPELESS = "the two ends have no version in common"


class Input(Enum):
    SENT = "the first message of a requester"
    RECEIVED = "a valid message of a version that this end supports"
    IN_RANGE = "RDMA_ERR_VERS, with a range that holds a version this end supports"
    OUT_OF_RANGE = "RDMA_ERR_VERS, with a range that holds none"


TRANSITIONS: dict[tuple[State, Input], State] = {
    (State.FRESH, Input.SENT): State.ASKED,  # version-two-01, 5
    (State.FRESH, Input.RECEIVED): State.SETTLED,  # 5.3: a responder uses the requester's version
    (State.ASKED, Input.RECEIVED): State.SETTLED,  # 5.1
    (State.ASKED, Input.IN_RANGE): State.SETTLED,  # 5.2
    (State.ASKED, Input.OUT_OF_RANGE): State.HOPELESS,  # 5.2
    # Whatever comes later, or uncalled for, changes nothing: a refusal is about the message that drew it.
    (State.FRESH, Input.IN_RANGE): State.FRESH,
    (State.FRESH, Input.OUT_OF_RANGE): State.FRESH,
    (State.ASKED, Input.SENT): State.ASKED,
    (State.SETTLED, Input.SENT): State.SETTLED,
    (State.SETTLED, Input.RECEIVED): State.SETTLED,
    (State.SETTLED, Input.IN_RANGE): State.SETTLED,
    (State.SETTLED, Input.OUT_OF_RANGE): State.SETTLED,
    (State.HOPELESS, Input.SENT): State.HOPELESS,
    (State.HOPELESS, Input.RECEIVED): State.HOPELESS,
    (State.HOPELESS, Input.IN_RANGE): State.HOPELESS,
    (State.HOPELESS, Input.OUT_OF_RANGE): State.HOPELESS,
}


def choose(lowest: int, highest: int, supported: tuple[int, int]) -> int | None:
    """The highest version that is both in [lowest, highest] and in ``supported``; None where none is.  Versions above
    ``highest`` were refused."""
    version = min(highest, supported[1])
    return version if version >= max(lowest, supported[0]) else None


CALL, REPLY = 0, 1


class Stage(Enum):
    """Where in its life a connection is."""

    CONNECTING = "connecting"
    OPEN = "open"
    CLOSED = "closed"


STAGES: dict[tuple[Stage, type[Event]], Stage | None] = {
    (Stage.CONNECTING, Connected): Stage.OPEN,
    (Stage.CONNECTING, SendReceived): None,
    (Stage.CONNECTING, Registered): None,
    (Stage.CONNECTING, Released): None,
    (Stage.CONNECTING, Completed): None,
    (Stage.CONNECTING, ConnectionEnded): Stage.CLOSED,
    (Stage.OPEN, Connected): None,
    (Stage.OPEN, SendReceived): Stage.OPEN,
    (Stage.OPEN, Registered): Stage.OPEN,
    (Stage.OPEN, Released): Stage.OPEN,
    (Stage.OPEN, Completed): Stage.OPEN,
    (Stage.OPEN, ConnectionEnded): Stage.CLOSED,
    (Stage.CLOSED, Connected): None,
    (Stage.CLOSED, SendReceived): None,
    (Stage.CLOSED, Registered): None,
    (Stage.CLOSED, Released): None,
    (Stage.CLOSED, Completed): None,
    (Stage.CLOSED, ConnectionEnded): None,
}
"""The stage that each event leads to.  None: the event means nothing in that stage, and is ignored."""


# A message before it is sent


@dataclass(slots=True)
class PlannedSend:
    """A Send with the RDMA Writes that go before it and, where a fault wants them, the actions that follow it."""

    kind: str
    """'call', 'reply', 'error' or 'option'."""
    header: TransportHeader
    payload: bytes = b""
    before: list[Action] = field(default_factory=list)
    after: list[Action] = field(default_factory=list)
    invalidate: int | None = None
    raw: bytes | None = None
    """The bytes that are sent in place of ``header``, where a fault wants others."""
    asked: TransportHeader | None = None
    """The header of the message that a reply or an error answers; None for calls."""
    backward: bool = False

    def actions(self) -> list[Action]:
        head = encode_header(self.header) if self.raw is None else self.raw
        return [*self.before, Send(head + self.payload, self.invalidate), *self.after]


def with_lengths(chunk: WriteChunk, lengths: list[int]) -> WriteChunk:
    """The chunk with these lengths for its segments, one each."""
    pairs = zip(chunk.segments, lengths, strict=True)
    return WriteChunk(tuple(segment._replace(length=length) for segment, length in pairs))
