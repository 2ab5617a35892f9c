"""What rules look at: the nouns of the analyzer in the circumstances that a judgement needs.

SentMessage        one message, when it was sent
Transaction        a call, its reply and what was transferred for them, when all of that is over (transaction.py)
RdmaOperation      one RDMA Read or Write, against the memory that was advertised
SentOption         one RDMA2_OPTIONAL, in the light of those before it
RefusableMessage   a message that may call for an RDMA_ERROR, and what answered it
ConnectionSetup    what one end announced in its private data
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..layers.characteristics_codes import XCHAR_RBSIZ, Characteristic
from ..layers.private_data_codes import Identified, find_identifiers
from ..layers.rpcrdma_codes import RDMA_DONE, RDMA_ERROR, RDMA_NOMSG, RDMA_OPTIONAL
from ..rpcrdma.characteristics import InitXch, OptionNoun, ReqXch, UpdXch
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.memory import REORDERED
from ..rpcrdma.messages import Message, TransportHeader
from ..rpcrdma.negotiation import CharacteristicRequest, InForce
from ..rpcrdma.rpcs import Rpc
from ..transport.connection import Connection
from ..transport.operations import Kind, Operation
from .rule import CALL, ERROR, FIRST, INVALIDATE, NOMSG, READS, REPLY, SECOND, OfMessage, Subject, gaps
from .transaction import BackChannel


class MessageOrder(NamedTuple):
    """A message of version 2 among the others of its connection."""

    before: int
    """Messages that its sender had sent before."""
    waiting: int
    """Those of them, where it is the client, that nothing had answered, before an answer that is no error."""
    looped: str
    """The client's first message: what should have shown it that the server does not support version 2."""
    larger: int
    """A larger Receive Buffer Size of the receiver that the sender may still have gone by; 0 for none."""


@dataclass(eq=False)
class SentMessage(OfMessage):
    """A message when it was sent."""

    conversation: Conversation
    message: Message
    sender: int
    is_call: bool | None
    rpc: Rpc | None
    errored: Rpc | None = None
    """A reply: the Rpc of this XID that an RDMA_ERROR had already completed."""
    xid_seen: bool = True
    """The other end sent a message with this XID not long ago."""
    back_channel: BackChannel | None = None
    """A backward call: by what the client offered the connection for it."""
    terms: MessageOrder | None = None
    """Of a message of version 2."""
    answers: Message | None = None
    """An RDMA_ERROR: the message that it refuses, where that is no call."""
    peer_versions: frozenset[int] = frozenset()
    """An RDMA_ERROR: the versions of all that the other end had sent."""
    relieved: int | None = None
    """Nanoseconds from an opening message of the client to the next answer; None where none came."""

    @property
    def header(self) -> TransportHeader:
        return self.message.header

    def endpoint(self, role: str) -> int:
        return self.sender

    @property
    def role(self) -> str:
        if self.is_call is None:
            if self.header.procedure == RDMA_OPTIONAL:
                return ("requester", "responder")[self.sender]
            return "requester" if self.header.procedure == RDMA_DONE else "either"
        return "requester" if self.is_call else "responder"

    @property
    def backward(self) -> bool:
        return self.rpc is not None and self.rpc.backward

    @property
    def shape(self) -> int:
        header = self.message.header
        found = SECOND if header.version == 2 else FIRST
        if self.is_call is not None:
            found |= CALL if self.is_call else REPLY
        if header.procedure == RDMA_NOMSG:
            found |= NOMSG
        elif header.procedure == RDMA_ERROR:
            found |= ERROR
        if header.reads:
            found |= READS
        return found if self.message.operation.invalidate is None else found | INVALIDATE

    @property
    def unread(self) -> str:
        """Why the transport header cannot be judged; '' where it was decoded to its end."""
        if self.header.truncated or (self.header.problem and not self.message.operation.end_known):
            return "the transport header is truncated in the capture"
        return ""

    @property
    def limit(self) -> InForce:
        """The longest Send that its sender may make in version 2; None where it is not known."""
        conversation, receiver, frame = self.conversation, 1 - self.sender, self.message.frame
        asked = conversation.negotiation.requested
        if self.sender == 1 and asked is not None and asked.version == 2:
            return conversation.in_force(XCHAR_RBSIZ, receiver, frame)
        return conversation.receive_size(receiver, frame)

    @property
    def buffer_announced(self) -> bool:
        """The receiver announced its Receive Buffer Size."""
        return self.conversation.negotiation.announced(XCHAR_RBSIZ, 1 - self.sender, self.message.frame) is not None

    @property
    def length(self) -> int:
        """Bytes of the Send; the least it can be where its end was not captured."""
        return self.message.operation.length


@dataclass(eq=False)
class RdmaOperation(Subject):
    """One RDMA Read or Write, against the memory that was advertised."""

    conversation: Conversation
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
    calls_truncated: bool = False
    """Not every call's chunk lists are in the capture."""
    calls_unread: bool = False
    """There was an open call whose chunk lists cannot be decoded."""

    def endpoint(self, role: str) -> int:
        return self.operation.initiator

    @property
    def general(self) -> bool:
        """It serves the chunks of a backward call of version 2 (xcharext-02, 3.3)."""
        call = self.rpc.call if self.rpc is not None and self.rpc.backward else None
        return self.operation.initiator == 0 and call is not None and call.header.version == 2

    @property
    def role(self) -> str:
        return "responder" if self.operation.initiator == 1 or self.general else "requester"

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
class SentOption(OfMessage):
    """An RDMA2_OPTIONAL when it was sent (version-two-01, 3.1), of whatever end."""

    conversation: Conversation
    message: Message
    sender: int
    content: OptionNoun
    before: int
    """Messages that its sender had sent before."""
    calls_back: bool = False
    """The server has sent backward calls."""

    def endpoint(self, role: str) -> int:
        return self.sender

    @property
    def role(self) -> str:
        return ("requester", "responder")[self.sender]

    @property
    def request(self) -> CharacteristicRequest | None:
        """A ROPT_RESPXCH: the ROPT_REQXCH that it answers; where its XID fits none, the only one that waits."""
        frame, waiting = self.message.frame, []
        for one in self.conversation.negotiation.requests:
            if one.requester == self.sender:
                continue
            same = one.xid == self.message.header.xid
            if same and (one.answer_frame == frame or 0 < one.frame - frame <= REORDERED):
                return one  # a capture may show the two the other way round
            if one.frame > frame:
                continue
            if not one.refused_frame and (not one.answer_frame or one.answer_frame > frame):
                waiting.append(one)
        sure = len(waiting) == 1 and self.start_known and not gaps(self.connection)
        return waiting[0] if sure else None

    @property
    def values(self) -> tuple[Characteristic, ...]:
        """The characteristics that it names with a value."""
        content = self.content
        if isinstance(content, InitXch):
            return content.start
        if isinstance(content, ReqXch):
            return content.want
        return (content.now,) if isinstance(content, UpdXch) and content.now is not None else ()

    @property
    def decodes(self) -> bool:
        """Nothing in it is an XDR error, as far as the characteristics are known (xcharext-02, 2.1)."""
        return not self.content.problem and all(one.kind is None or one.value is not None for one in self.values)

    @property
    def truncated(self) -> str:
        """Why not all of it is known; '' where it is."""
        return (
            "the option is truncated in the capture" if self.message.header.truncated or self.content.truncated else ""
        )


@dataclass(eq=False)
class RefusableMessage(OfMessage):
    """A message that its receiver cannot accept, or need not, and what answered it."""

    conversation: Conversation
    message: Message
    sender: int
    kind: str
    """'version', 'header', 'reserved', 'error' (an RDMA_ERROR that cannot be decoded) or 'option' (RDMA2_OPTIONAL)."""
    answer: Message | None = None
    receiver_seen: bool = True
    """The receiver had sent a message before it."""
    passed_over: bool = False
    """The receiver answered a later call, so it had taken this message."""
    rpc: Rpc | None = None
    option: SentOption | None = None
    other_answer: bool = False
    """A ROPT_REQXCH: while it waited, a ROPT_RESPXCH came that fits no request."""
    sent: Container[int] = ()
    """An option: the rdma_opttypes that its receiver sends itself."""

    def endpoint(self, role: str) -> int:
        return 1 - self.sender

    @property
    def role(self) -> str:
        either = self.kind in ("error", "option")
        return ("requester", "responder")[1 - self.sender] if either else "responder"

    @property
    def frames(self) -> tuple[int, ...]:
        answer = () if self.answer is None else (self.answer.frame,)
        return (self.message.frame, *answer)


@dataclass(eq=False)
class ConnectionSetup(Subject):
    """What one end announced in its private data when the connection was made."""

    conversation: Conversation
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
    def truncated(self) -> bool:
        """The capture ends before the private data does."""
        return self.connection.endpoints[self.end].private_data_truncated

    @cached_property
    def identifiers(self) -> list[Identified]:
        return find_identifiers(self.connection.endpoints[self.end].private_data)


STRIDE = 32
"""Frames after which what has settled is judged."""
PAUSE = 300_000_000
"""Nanoseconds of silence, after which a capture shows nothing in another order than it happened."""
SILENCE = 10_000_000_000
"""The same, after which no later message is waited for that would show whether one is missing."""


class Settling:
    """The nouns of one connection that wait for their judgement."""

    def __init__(
        self,
        connection: Connection,
        judge: Callable[[Subject], None],
        prepare: Callable[[RdmaOperation], None],
        judge_plain: Callable[[list[tuple[Rpc, bool]]], None],
    ) -> None:
        """``prepare`` completes an RDMA Read or Write just before it is judged.

        ``judge_plain`` is given plain messages, each by its Rpc and whether it is the call.
        """
        self.connection = connection
        self.judge_plain = judge_plain
        self.judge = judge
        self.prepare = prepare
        self.frame = 0
        """The last frame that was reached."""
        self.last_sent = [0, 0]
        """Frame of the last message of either end."""
        self.next = 0
        """The frame from which on there is enough to settle."""
        self._waiting: deque[tuple[int, Subject | None, Rpc | None, bool]] = deque()
        """Frame and noun, or instead of it a plain message."""
        self._operations: deque[tuple[int, RdmaOperation]] = deque()

    def reach(self, operation: Operation) -> None:
        """The capture has come to this operation."""
        if operation.kind is Kind.SEND:
            sender = operation.initiator
            self.last_sent[sender] = max(self.last_sent[sender], operation.last_frame)
        if operation.last_frame > self.frame:
            self.frame = operation.last_frame
            if self.frame >= self.next:
                self.settle()

    def add(self, subject: Subject) -> None:
        self._waiting.append((self.frame, subject, None, False))

    def add_plain(self, rpc: Rpc, is_call: bool) -> None:
        self._waiting.append((self.frame, None, rpc, is_call))

    def add_operation(self, moved: RdmaOperation) -> None:
        self._operations.append((moved.operation.first_frame, moved))

    def idle(self, quiet: int) -> None:
        """The connection was quiet for so many nanoseconds: judge what both ends sent something after; later, all."""
        if quiet >= PAUSE and (self._waiting or self._operations):
            everything = quiet >= SILENCE or bool(self.connection.ended_by)
            self.settle(self.frame + 1 if everything else min(self.last_sent))

    def finish(self) -> None:
        """Nothing follows any more."""
        self.frame += 2 * REORDERED
        self.settle()

    def settle(self, before: int | None = None) -> None:
        """Judge what is older than frame ``before``; by default, what nothing can change any more."""
        self.next = self.frame + STRIDE
        limit = self.frame - REORDERED if before is None else before
        while self._operations and self._operations[0][0] < limit:
            frame, moved = self._operations.popleft()
            self.prepare(moved)
            self.follow(moved, frame)
            self.judge(moved)
        waiting, plain = self._waiting, []
        while waiting and waiting[0][0] < limit:
            _, subject, rpc, is_call = waiting.popleft()
            if subject is not None:
                self.follow(subject, subject.frames[0])
                self.judge(subject)
            elif rpc is not None:
                plain.append((rpc, is_call))
        if plain:
            self.judge_plain(plain)

    def follow(self, subject: Subject, frame: int) -> None:
        """Note whether either end sent another message after that frame."""
        subject.followed = self.last_sent[0] > frame, self.last_sent[1] > frame
