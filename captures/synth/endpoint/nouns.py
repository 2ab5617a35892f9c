"""Settings, events and actions of an endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from rdmascope.dissect.rpcrdma.messages import Segment, TransportHeader

from .payload import Parts


class Role(IntEnum):
    """Which end of the connection, for as long as it lasts; the index of the end in ``Connection.endpoints``."""

    CLIENT = 0
    SERVER = 1


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """One end, as it is set up.  Sizes are in bytes."""

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
    """Version 1, as private data announce them: multiples of 1024 up to 262144."""
    remote_invalidation: bool = False
    """R of the private data, and Requester Remote Invalidation of version 2."""
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
    """Characteristic -> 'done', 'pending' or 'reject' where the peer asks for a change; by default 'done'."""


# Events


@dataclass(frozen=True, slots=True)
class Connected:
    private_data: bytes = b""
    """The consumer private data of the peer: without the IP CM header, or the enhanced words of MPA."""


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
    """What the peer may read there; empty for memory that it may write."""


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
    """The peer's memory."""


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
    """A call of the peer, to be answered by ``Endpoint.reply``."""

    call: int
    message: bytes
    """The whole RPC message, all chunks put back."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The reply to a call."""

    xid: int
    message: bytes
    """The whole RPC message, Write chunks put back where the upper-layer binding says."""
    results: tuple[bytes, ...] = ()
    """What came in each Write chunk."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A call that got no reply."""

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
    """A characteristic of the peer, as it is in force from now on."""

    which: int
    value: int | bool | bytes


Report = Called | Answered | Failed | Settled | Changed
Output = Action | Report


# Requests of the application


@dataclass(frozen=True, slots=True)
class Chunks:
    """How a call travels; None: as its size needs it."""

    read: bool | None = None
    """Its items in Read chunks."""
    zero: bool | None = None
    """The rest in a Read chunk at Position 0; so it is in any case where it does not fit inline."""
    write: bool | None = None
    """A Write chunk for each result."""
    reply: bool | None = None
    """A Reply chunk."""
    segments: int = 1
    """Segments of each chunk."""


@dataclass(frozen=True, slots=True)
class Call:
    parts: Parts
    """The RPC message from its XID on."""
    largest_reply: int = 512
    """Bytes of the reply's Payload stream at most, without what ``results`` counts."""
    results: tuple[int, ...] = ()
    """Bytes of each DDP-eligible result at most."""
    chunks: Chunks = Chunks()

    @property
    def xid(self) -> int:
        first = self.parts[0]
        assert isinstance(first, bytes), "an RPC message begins with its XID"
        return int.from_bytes(first[:4], "big")
