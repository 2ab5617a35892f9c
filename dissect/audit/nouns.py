"""What rules look at: the nouns of the analyzer in the circumstances that a judgement needs.

Sent         one message, when it was sent
Transaction  a call with its reply and what was moved for it, when all of that is over (transaction.py)
Movement     one RDMA Read or Write, against the memory that was advertised
Mishap       a message that calls for an RDMA_ERROR, and what answered it
Setup        what one end said in its private data
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..connection import Connection
from ..messages import RDMA_DONE, Message, TransportHeader
from ..operations import Operation
from ..private_data import Identified, find_identifiers
from ..rpcs import Rpc
from .subject import OfMessage, Subject


@dataclass(eq=False)
class Sent(OfMessage):
    """A message when it was sent."""

    connection: Connection
    message: Message
    sender: int
    is_call: bool | None
    rpc: Rpc | None
    errored: Rpc | None = None
    """A reply: the Rpc of this XID that an RDMA_ERROR had already completed."""
    xid_seen: bool = True
    """The other end sent a message with this XID not long ago."""
    announced: str = ""
    """A backward call: what told the server that the client is ready; '' for nothing."""
    calls_unread: bool = False
    """Not every earlier forward call is whole."""

    @property
    def header(self) -> TransportHeader:
        return self.message.header

    def endpoint(self, role: str) -> int:
        return self.sender

    @property
    def role(self) -> str:
        if self.is_call is None:
            return "requester" if self.header.procedure == RDMA_DONE else "either"
        return "requester" if self.is_call else "responder"

    @property
    def backward(self) -> bool:
        return self.rpc is not None and self.rpc.backward

    @property
    def unread(self) -> str:
        """Why the transport header cannot be judged; '' where it was decoded to its end."""
        if self.header.truncated or (self.header.problem and not self.message.operation.end_known):
            return "the transport header is cut by the capture"
        return ""

    @property
    def length(self) -> int:
        """Bytes of the Send; the least it can be where its end was not captured."""
        return self.message.operation.length


@dataclass(eq=False)
class Movement(Subject):
    """One RDMA Read or Write, against the memory that was advertised."""

    connection: Connection
    operation: Operation
    callers: tuple[bool, bool]
    """Whether either end has sent forward calls, or backward ones."""
    place: str = ""
    """'inside', 'late' (inside a segment of a call answered before) or 'outside' what was advertised."""
    rpc: Rpc | None = None
    """Whose memory it touches."""
    delivers: bool = False
    """Late, but with bytes that the reply counts."""
    near: str = ""
    """Outside: the memory it comes nearest to, in words."""
    calls_cut: bool = False
    """Not every call's chunk lists are known."""

    def endpoint(self, role: str) -> int:
        return self.operation.initiator

    @property
    def role(self) -> str:
        return "responder" if self.operation.initiator == 1 else "requester"

    @property
    def frames(self) -> tuple[int, ...]:
        return (self.operation.first_frame,)

    @property
    def time(self) -> int:
        return self.operation.first_time

    @property
    def name(self) -> str:
        return "RDMA " + self.operation.kind.name.capitalize()


@dataclass(eq=False)
class Mishap(OfMessage):
    """A message that its receiver cannot accept, and what answered it."""

    connection: Connection
    message: Message
    sender: int
    kind: str
    """'version', 'header' or 'reserved'."""
    answer: Message | None = None
    passed_over: bool = False
    """The receiver answered a later call, so it had taken this message."""
    rpc: Rpc | None = None

    def endpoint(self, role: str) -> int:
        return 1 - self.sender

    @property
    def role(self) -> str:
        return "responder"

    @property
    def frames(self) -> tuple[int, ...]:
        answer = () if self.answer is None else (self.answer.frame,)
        return (self.message.frame, *answer)


@dataclass(eq=False)
class Setup(Subject):
    """What one end said in its private data when the connection was made."""

    connection: Connection
    end: int

    def endpoint(self, role: str) -> int:
        return self.end

    @property
    def role(self) -> str:
        return "requester" if self.end == 0 else "responder"

    @property
    def frames(self) -> tuple[int, ...]:
        frame = self.connection.endpoints[self.end].private_data_frame
        return (frame,) if frame else ()

    @property
    def time(self) -> int:
        return self.connection.first_time

    @property
    def seen(self) -> bool:
        return bool(self.frames)

    @property
    def cut(self) -> bool:
        """The capture ends before the private data does."""
        return self.connection.endpoints[self.end].consumer_data_cut

    @cached_property
    def identifiers(self) -> list[Identified]:
        return find_identifiers(self.connection.endpoints[self.end].consumer_data)
