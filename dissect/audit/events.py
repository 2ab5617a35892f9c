"""What rules look at: the nouns of the analyzer in the circumstances that a judgement needs.

SentMessage        one message, when it was sent
Transaction        a call, its reply and what was transferred for them, when all of that is over (transaction.py)
RdmaOperation      one RDMA Read or Write, against the memory that was advertised
SentOption         one RDMA2_OPTIONAL, in the light of those before it
RefusableMessage   a message that may call for an RDMA_ERROR, and what answered it
ConnectionSetup    what one end announced in its private data

What memory the calls of one connection advertised, answered ones included, and whether RDMA kept to it.

Routine messages and RPCs: those of version 1, forward, and of at most 1024 bytes a Send, whole on the wire.

They have no chunks, or a Reply chunk of one segment alone that one RDMA Write filled as far as the reply says.

The capture may have truncated them behind the transport header: which of them belongs to the class of RPCs.

Whatever a rule says of one of them it says of all of their class, so each rule is asked once for a class, and counted
for the others.  A rule that is added must hold to that, or what it looks at must make a message less than routine: a
property test audits all samples with and without classes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

from ..intervals import IntervalSet
from ..layers.characteristics_codes import XCHAR_RBSIZ, Characteristic
from ..layers.rpcrdma_codes import (
    RDMA_DONE,
    RDMA_ERROR,
    RDMA_MSG,
    RDMA_NOMSG,
    RDMA_OPTIONAL,
    Identified,
    find_identifiers,
)
from ..named_tuple import NamedTuple
from ..onc import binding
from ..onc.nfs3 import holds_arguments, nfs3_procedure
from ..onc.rpc_header import NFS, call_head
from ..rpcrdma.characteristics import InitXch, OptionNoun, ReqXch, RespXch, UnknownOption, UpdXch
from ..rpcrdma.conversation import DEFAULT_INLINE, Conversation
from ..rpcrdma.memory import REORDERED
from ..rpcrdma.messages import Message, TransportHeader
from ..rpcrdma.negotiation import CharacteristicRequest, InForce
from ..rpcrdma.rpc_table import RpcRows, made
from ..rpcrdma.rpcs import ChunkUse, Rpc
from ..rpcrdma.segment_table import AdvertisedSegment, SegmentTable
from ..transport.connection import Connection
from ..transport.operations import Kind, Operation
from .rule import (
    CALL,
    ERROR,
    FIRST,
    INVALIDATE,
    LATER,
    NOMSG,
    READS,
    REPLY,
    SECOND,
    OfMessage,
    Subject,
    gaps,
    gaps_between,
    precedes,
)
from .transaction import (
    NONE_LACKING,
    BackChannel,
    Claim,
    CreditState,
    HandleStep,
    Transaction,
    claims,
    delivers,
    lacking,
    remember,
)


class MessageOrder(NamedTuple):
    """Where a message of version 2 stands among the others of its connection."""

    before: int
    """Messages that its sender had sent before."""
    waiting: int
    """Client: of those, the ones before the server's first answer that is no error."""
    looped: str
    """The client's first message: what should have told it that the server does not support version 2."""
    larger: int
    """A larger Receive Buffer Size of the receiver that the sender may still use; 0 for none."""


VERSION_END = 8
"""Bytes of a transport header up to and including its version."""
REFUSED_BY: dict[int | None, str] = {
    RDMA_MSG: "V1-ERROR-FOR-HEADER",
    RDMA_NOMSG: "V1-ERROR-FOR-HEADER",
    RDMA_ERROR: "V1-ERROR-OF-ERROR",
}
"""By procedure: the rule about a message that cannot be decoded."""


@dataclass(eq=False)
class SentMessage(OfMessage):
    """A message when it was sent."""

    conversation: Conversation
    message: Message
    sender: int
    is_call: bool | None
    rpc: Rpc | None
    errored: Rpc | None = None
    """A reply: the Rpc with this XID that an RDMA_ERROR had already completed."""
    xid_seen: bool = True
    """The other end recently sent a message with this XID."""
    back_channel: BackChannel | None = None
    """A backward call: how the client offered the connection for it."""
    terms: MessageOrder | None = None
    """A message of version 2: its place among others."""
    answers: Message | None = None
    """An RDMA_ERROR: the message that it refuses, if that is no call."""
    peer_versions: frozenset[int] = frozenset()
    """An RDMA_ERROR: the versions of everything the other end had sent."""

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
            if self.header.truncated or self.message.untyped or self.header.procedure == RDMA_NOMSG:
                return ""
            return "requester" if self.header.procedure == RDMA_DONE else "either"
        return "requester" if self.is_call else "responder"

    @property
    def backward(self) -> bool:
        return self.rpc is not None and self.rpc.backward

    @property
    def shape(self) -> int:
        """Its traits; it counts as having whatever a truncated header does not show."""
        header = self.message.header
        shape = SECOND if header.version == 2 else FIRST
        if self.is_call is not None:
            shape |= CALL if self.is_call else REPLY
        elif self.message.untyped or header.procedure == RDMA_NOMSG:
            shape |= CALL | REPLY
        if header.truncated and header.procedure != RDMA_ERROR:
            shape |= READS if header.procedure is not None else READS | NOMSG | ERROR
        if header.procedure == RDMA_NOMSG:
            shape |= NOMSG
        elif header.procedure == RDMA_ERROR:
            shape |= ERROR
        if header.reads:
            shape |= READS
        return shape if self.message.operation.invalidate is None else shape | INVALIDATE

    @property
    def unread(self) -> str:
        """Why the transport header cannot be judged; '' if it was decoded to its end."""
        if self.header.truncated or (self.header.problem and not self.message.operation.end_known):
            return "the transport header is not all in the capture"
        return ""

    @property
    def call_missing(self) -> bool:
        """Whether the call of a reply may be missing from the capture."""
        return not self.start_known or bool(self.unseen(1 - self.sender))

    @property
    def hidden(self) -> tuple[type[Subject], ...]:
        """Nouns that it may be, if it is truncated before it tells."""
        header = self.header
        call_or_reply = (Transaction,) if self.is_call is None or header.length < VERSION_END else ()
        if header.truncated and header.procedure is None:
            return (SentMessage, SentOption, RefusableMessage, *call_or_reply)
        if header.truncated and header.procedure == RDMA_OPTIONAL and header.option is None:
            return SentOption, RefusableMessage
        refusable = (RefusableMessage,) if header.truncated and header.procedure in REFUSED_BY else ()
        if header.procedure == RDMA_NOMSG and call_or_reply:
            return (SentMessage, Transaction, *refusable)
        return (*call_or_reply, *refusable) if header.procedure == RDMA_MSG and self.message.untyped else refusable

    @property
    def limit(self) -> InForce:
        """The longest Send that its sender may make in version 2; None if unknown."""
        conversation, receiver, frame = self.conversation, 1 - self.sender, self.message.frame
        asked = conversation.negotiation.requested
        if self.sender == 1 and asked is not None and asked.version == 2:
            return conversation.in_force(XCHAR_RBSIZ, receiver, frame)
        return conversation.receive_size(receiver, frame)

    @property
    def buffer_announced(self) -> bool:
        """Whether the receiver announced its Receive Buffer Size."""
        return self.conversation.negotiation.announced(XCHAR_RBSIZ, 1 - self.sender, self.message.frame) is not None

    @property
    def length(self) -> int:
        """Bytes of the Send; a lower bound if its end was not captured."""
        return self.message.operation.length


@dataclass(eq=False)
class RdmaOperation(Subject):
    """One RDMA Read or Write, and the advertised memory it is on."""

    conversation: Conversation
    operation: Operation
    callers: tuple[bool, bool]
    """By end: whether the client sent forward calls, and the server backward calls."""
    place: str = ""
    """'inside', 'late' (inside a segment of an answered call) or 'outside' what was advertised."""
    rpc: Rpc | None = None
    """The RPC whose memory it touches."""
    delivers: bool = False
    """It is late, but carries bytes that the reply counts."""
    near: str = ""
    """If outside: the nearest advertised memory, in words."""
    calls_truncated: bool = False
    """Not all calls' chunk lists are in the capture."""
    calls_unread: bool = False
    """A call was open whose chunk lists cannot be decoded."""

    def endpoint(self, role: str) -> int:
        return self.operation.initiator

    @property
    def general(self) -> bool:
        """Whether it transfers chunks of a backward call of version 2 (xcharext-02, 3.3)."""
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
    def unseen_reply(self) -> str:
        """Why the reply to its call may precede it and be missing from the capture; '' if it cannot."""
        rpc, initiator = self.rpc, self.operation.initiator
        if rpc is None or rpc.reply is not None:
            return ""
        return gaps_between(self.connection, initiator, rpc.call_frame, self.operation.first_frame)

    @property
    def name(self) -> str:
        return "RDMA " + self.operation.kind.name.capitalize()


@dataclass(eq=False)
class SentOption(OfMessage):
    """An RDMA2_OPTIONAL, when it was sent (version-two-01, 3.1), by either end."""

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
        """The ROPT_REQXCH that a ROPT_RESPXCH answers; if its XID fits none, the only one that waits."""
        frame, waiting = self.message.frame, []
        for asked in self.conversation.negotiation.requests:
            if asked.requester == self.sender:
                continue
            same = asked.xid == self.message.header.xid
            if same and (asked.answer_frame == frame or 0 < asked.frame - frame <= REORDERED):
                return asked  # a capture may show the two in the wrong order
            if asked.frame > frame:
                continue
            if not asked.refused_frame and (not asked.answer_frame or asked.answer_frame > frame):
                waiting.append(asked)
        sure = len(waiting) == 1 and self.start_known and not gaps(self.connection)
        return waiting[0] if sure else None

    @property
    def values(self) -> tuple[Characteristic, ...]:
        """The characteristics for which it gives a value."""
        content = self.content
        if isinstance(content, InitXch):
            return content.start
        if isinstance(content, ReqXch):
            return content.want
        return (content.now,) if isinstance(content, UpdXch) and content.now is not None else ()

    @property
    def done(self) -> list[Characteristic]:
        """The changes that a ROPT_RESPXCH reports as made."""
        request, content = self.request, self.content
        if request is None or not isinstance(content, RespXch):
            return []
        return [request.want[position] for position in content.done if position < len(request.want)]

    @property
    def decodes(self) -> bool:
        """Whether nothing in it is an XDR error, as far as its characteristics are known (xcharext-02, 2.1)."""
        return not self.content.problem and all(value.kind is None or value.value is not None for value in self.values)

    @property
    def truncated(self) -> str:
        """Why not all of it is known; '' if all is."""
        return (
            "the option is truncated in the capture" if self.message.header.truncated or self.content.truncated else ""
        )


@dataclass(eq=False)
class RefusableMessage(OfMessage):
    """A message that its receiver cannot or need not accept, and the answer to it."""

    conversation: Conversation
    message: Message
    sender: int
    kind: str
    """'version', 'header', 'reserved', 'error' (an RDMA_ERROR that cannot be decoded) or 'option' (RDMA2_OPTIONAL)."""
    answer: Message | None = None
    receiver_seen: bool = True
    """The receiver had sent a message before it."""
    passed_over: int = 0
    """The frame of the reply by which its receiver has passed it over; 0 for none."""
    rpc: Rpc | None = None
    option: SentOption | None = None
    other_answer: bool = False
    """It is followed by an RDMA_ERROR, or a ROPT_REQXCH by a ROPT_RESPXCH, that fits no message and may be meant for
    it."""
    sent: Container[int] = ()
    """An option: the rdma_opttypes that its receiver itself sends."""

    @property
    def answer_unseen(self) -> str:
        """Why its answer may be missing from the capture or shown later, or it may itself answer a missing message; ''
        if neither can be."""
        return self.unseen(1 - self.sender, 0, LATER)

    @property
    def asks(self) -> bool:
        """Whether it has to be answered."""
        if self.option is None:
            return self.kind != "error"
        unreadable = not self.option.decodes and not self.option.truncated
        return unreadable or isinstance(self.option.content, ReqXch | UnknownOption)

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
    """The private data that one end sent when the connection was set up."""

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
        """Whether the capture truncates the private data."""
        return self.connection.endpoints[self.end].private_data_truncated

    @cached_property
    def identifiers(self) -> list[Identified]:
        return find_identifiers(self.connection.endpoints[self.end].private_data)


Noun = TypeVar("Noun", bound=Subject)

STRIDE = 32
"""Frames between two judgements of what has settled."""
PAUSE = 300_000_000
"""Nanoseconds of silence across which a capture does not reorder frames."""
SILENCE = 10_000_000_000
"""Nanoseconds of silence after which no later message is awaited that would show a missing one."""


class Settling:
    """The nouns of one connection that wait to be judged."""

    def __init__(
        self,
        connection: Connection,
        judge: Callable[[Subject], None],
        prepare: Callable[[RdmaOperation], None],
        judge_routine: Callable[[list[tuple[Rpc, bool]]], None],
    ) -> None:
        """``prepare``: completes an RDMA Read or Write just before it is judged.

        ``judge_routine``: takes routine messages, each as its Rpc and whether it is the call.
        """
        self.connection = connection
        self.judge_routine = judge_routine
        self.judge = judge
        self.prepare = prepare
        self.frame = 0
        """The last frame reached."""
        self.messages: tuple[list[int], list[int]] = ([], [])
        """By end: frames of its latest messages, in order."""
        self.next = 0
        """The frame from which on ``settle`` has enough to do."""
        self._waiting: deque[tuple[int, Subject | None, Rpc | None, bool]] = deque()
        """Frame, and the noun or, instead, a routine message."""
        self._operations: deque[tuple[int, RdmaOperation]] = deque()

    def reach(self, operation: Operation) -> None:
        """Advance to an Operation."""
        if operation.kind is Kind.SEND:
            insort(self.messages[operation.initiator], operation.last_frame)
        if operation.last_frame > self.frame:
            self.frame = operation.last_frame
            if self.frame >= self.next:
                self.settle()

    def add(self, subject: Subject) -> None:
        self._waiting.append((self.frame, subject, None, False))

    def add_routine(self, rpc: Rpc, is_call: bool) -> None:
        self._waiting.append((self.frame, None, rpc, is_call))

    def add_operation(self, moved: RdmaOperation) -> None:
        self._operations.append((moved.operation.first_frame, moved))

    def idle(self, quiet: int) -> None:
        """Judge what can be, after ``quiet`` ns of silence: what both ends sent something after or, later on, all."""
        if quiet >= PAUSE and (self._waiting or self._operations):
            everything = quiet >= SILENCE or bool(self.connection.ended_by)
            self.settle(self.frame + 1 if everything else min(self.last_sent(0), self.last_sent(1)))

    def finish(self) -> None:
        """Judge everything: nothing follows."""
        self.frame += 2 * REORDERED
        self.settle()

    def settle(self, before: int | None = None) -> None:
        """Judge what is older than frame ``before``; by default, what cannot change any more."""
        self.next = self.frame + STRIDE
        limit = self.frame - REORDERED if before is None else before
        while self._operations and self._operations[0][0] < limit:
            moved = self._operations.popleft()[1]
            self.prepare(moved)
            self.judge(self.follow(moved))
        waiting, routine = self._waiting, []
        while waiting and waiting[0][0] < limit:
            _, subject, rpc, is_call = waiting.popleft()
            if subject is not None:
                self.judge(self.follow(subject))
            elif rpc is not None:
                routine.append((rpc, is_call))
        if routine:
            self.judge_routine(routine)
        for messages in self.messages:
            del messages[: min(bisect_left(messages, limit), len(messages) - 1)]

    def follow(self, subject: Noun) -> Noun:
        """Give a noun the messages that either end sent after it."""
        subject.messages = self.messages
        return subject

    def last_sent(self, end: int) -> int:
        """Frame of the last message of an end; 0 for none."""
        return self.messages[end][-1] if self.messages[end] else 0


PERSISTENT = 16
"""Consecutive calls that advertise a handle from which on it counts as persistent."""
PREDICTABLE = 32
"""Consecutive handles with the same step from which on they count as predictable."""
NEARBY = 128
"""Calls with chunks within which a repeated handle is the same registration."""
MAX_ADVERTISERS = 256
"""Calls with chunks per end whose memory is kept, including answered ones: each takes some kilobytes."""


class Offer(NamedTuple):
    """What the handles of a call show."""

    step: HandleStep
    persistent: tuple[int, int]
    """As in ``Transaction``."""

    @property
    def remarkable(self) -> bool:
        """Whether a rule may have something to report."""
        return self.persistent[1] >= PERSISTENT or self.step.run >= PREDICTABLE > self.step.before


class AdvertisedHistory:
    """The memory offered by each end's last ``MAX_ADVERTISERS`` calls with chunks, including answered ones."""

    def __init__(self, connection: Connection, unanswered: Sequence[Container[Rpc]]) -> None:
        """``unanswered``: the current unanswered calls, by end."""
        self.connection = connection
        self._unanswered = unanswered
        self.segments = SegmentTable(), SegmentTable()
        """By owner."""
        self.advertisers: tuple[list[Rpc], ...] = ([], [])
        self.handles: tuple[OrderedDict[int, tuple[int, int]], ...] = (OrderedDict(), OrderedDict())
        """By owner and handle: number of consecutive calls that advertised it, and the last of them, counted in calls
        with chunks."""
        self._kept: deque[RpcRows] = deque()
        self._claimed: tuple[tuple[Rpc, int], list[Claim]] | None = None
        self.chunked = [0, 0]
        self.steps = [(0, 0, 0), (0, 0, 0)]
        """By owner: the last handle, the step to it, and how often in a row that step occurred."""
        self.indexed: tuple[OrderedDict[int, int], ...] = (OrderedDict(), OrderedDict())
        """By owner: the last handle of each index, which is the handle without its last eight bits."""
        self.index_steps = [(0, 0), (0, 0)]
        """By owner: the step between handles of one index, and how often in a row it occurred."""

    def advertise(self, transaction: Transaction, owner: int) -> None:
        """Note that a call offers its chunks."""
        rpc = transaction.rpc
        handles = [use.advertised.handle for chunk in rpc.chunks for use in chunk.segments]
        transaction.handle_step, transaction.persistent = self.offer(owner, handles)
        self.remember(rpc, owner)

    def offer(self, owner: int, handles: Sequence[int]) -> Offer:
        """Note that a call offers memory with these handles."""
        self.chunked[owner] += 1
        now, longest = self.chunked[owner], (0, 0)
        step = self._step(handles, owner)
        for handle in {*handles}:
            run, last = self.handles[owner].get(handle, (0, 0))
            run = run + 1 if now - last <= NEARBY else 1
            remember(self.handles[owner], handle, (run, now))
            longest = max(longest, (run, handle))
        return Offer(step, (longest[1], longest[0]))

    def remember(self, rpc: Rpc, owner: int) -> None:
        """Keep the memory of a call; unanswered calls are never forgotten."""
        self.segments[owner].add(rpc)
        advertisers = self.advertisers[owner]
        advertisers.append(rpc)
        while len(advertisers) > MAX_ADVERTISERS and advertisers[0] not in self._unanswered[owner]:
            self.segments[owner].remove(advertisers.pop(0))

    def keep(self, answered: RpcRows) -> None:
        """Keep a client's answered calls as rows, which become objects only when RDMA touches the client."""
        self._kept.append(answered)
        while sum([len(rpcs.rows) for rpcs in self._kept]) - len(self._kept[0].rows) >= MAX_ADVERTISERS:
            self._kept.popleft()

    def _restore(self) -> None:
        """Make objects of the kept rows, and put them among the others in order."""
        made_of = [rpc for rpcs in self._kept for rpc in made(rpcs, rpcs.rows)]
        calls = sorted((*made_of, *self.advertisers[0]), key=lambda rpc: rpc.call_frame)
        self._kept.clear()
        self.segments[0].clear()
        self.advertisers[0].clear()
        for rpc in calls:
            self.remember(rpc, 0)

    def _step(self, handles: Sequence[int], owner: int) -> HandleStep:
        """The step between consecutive new handles, and how often in a row it occurred, with this call."""
        indexed = self.indexed[owner]
        runs = self.steps[owner][2], self.index_steps[owner][1]
        for handle in handles:
            before = indexed.get(handle >> 8)
            remember(indexed, handle >> 8, handle)
            last, step, run = self.steps[owner]
            if handle == last or handle in self.handles[owner]:
                continue
            this = (handle - last) & 0xFFFFFFFF
            self.steps[owner] = handle, this, run + 1 if this == step else 1
            if before is not None:
                step, run = self.index_steps[owner]
                this = (handle - before) & 0xFF
                self.index_steps[owner] = this, run + 1 if this == step else 1
        _, step, run = self.steps[owner]
        index_step, index_run = self.index_steps[owner]
        if run >= index_run:
            return HandleStep(step, run, runs[0], False)
        return HandleStep(index_step, index_run, runs[1], True)

    def candidates(self, operation: Operation) -> list[AdvertisedSegment]:
        """The kept segments that an RDMA Read or Write touches."""
        if operation.initiator and self._kept:
            self._restore()
        return self.segments[1 - operation.initiator].touched(
            operation.kind, operation.handle, operation.address, operation.address + operation.length
        )

    def behind(self, operation: Operation, reply: Message) -> bool:
        """Whether an Operation was certainly issued after a reply."""
        return precedes(self.connection, reply.operation, operation)

    def answered(self, operation: Operation) -> list[Rpc]:
        """The answered RPCs whose memory an Operation after their replies is on; none if another call offers it by
        then."""
        rpcs = [segment.rpc for segment in self.candidates(operation)]
        late = [rpc for rpc in rpcs if rpc.reply is not None and self.behind(operation, rpc.reply)]
        return late if len(late) == len(rpcs) else []

    def _claims_of(self, rpc: Rpc) -> list[Claim]:
        """What the RPC's reply says was written; kept, as RDMA after a reply is usually after the same one."""
        known = rpc, sum(len(use.operations) for chunk in rpc.chunks for use in chunk.segments)
        if self._claimed is None or self._claimed[0] != known:
            self._claimed = known, claims(rpc)
        return self._claimed[1]

    def place(self, moved: RdmaOperation) -> None:
        """Set which memory an Operation is on, now that calls which the capture shows late are known."""
        operation = moved.operation
        start, end = operation.address, operation.address + operation.length
        candidates = []
        for segment in self.candidates(operation):
            call = segment.rpc.call
            assert call is not None
            # In captures that were appended in the wrong order the call comes later, although it is earlier.
            lead = call.operation.first_frame - operation.first_frame
            if lead <= REORDERED or call.time < operation.first_time:
                candidates.append(segment)
        current: list[AdvertisedSegment] = []
        late: list[AdvertisedSegment] = []
        for candidate in candidates:
            behind = candidate.rpc.reply is not None and self.behind(operation, candidate.rpc.reply)
            (late if behind else current).append(candidate)
        if _covered(current, start, end):
            moved.place, moved.rpc = "inside", current[0].rpc
        elif _covered(candidates, start, end):
            moved.place = "late"
            moved.rpc = late[-1].rpc
            moved.delivers = any(delivers(self._claims_of(segment.rpc), operation) for segment in late)
        else:
            moved.place = "outside"
            segments = self.segments[1 - operation.initiator]
            near = candidates[-1] if candidates else segments.latest(operation.handle)
            if near is not None:
                moved.rpc = near.rpc
                moved.near = f"the nearest is {near.end - near.start} bytes at 0x{near.start:x}"
                if near.kind is not operation.kind:
                    moved.near += f", for RDMA {near.kind.name.capitalize()}s"


def _covered(segments: list[AdvertisedSegment], start: int, end: int) -> bool:
    if len(segments) == 1:
        return segments[0].start <= start and end <= segments[0].end
    together = IntervalSet()
    for segment in segments:
        together.add(segment.start, segment.end)
    return together.covers(start, end)


def routine_message(message: Message) -> bool:
    """Whether a call or reply is routine by itself, and has no chunks."""
    return message.header.reply is None and routine_call(message)


def routine_call(message: Message) -> bool:
    """Whether a call is routine by itself; it may have a Reply chunk, which rules do not judge before the reply."""
    header, operation = message.header, message.operation
    return bool(
        header.procedure == RDMA_MSG and operation.invalidate is None and message.inline_length >= 4 and _whole(message)
    )


def _whole(message: Message) -> bool:
    """Whether a message can be judged, and is neither long nor has Read or Write lists."""
    header, operation = message.header, message.operation
    return bool(
        header.version == 1
        and header.credits
        and operation.length <= DEFAULT_INLINE
        and operation.end_known
        and not header.reads
        and not header.writes
        and not header.problem
        and not header.truncated
    )


def _routine_return(message: Message) -> bool:
    """Whether a reply is routine except that a Reply chunk of one segment has all of its results."""
    header = message.header
    return bool(
        header.procedure == RDMA_NOMSG
        and header.reply is not None
        and len(header.reply.segments) == 1
        and header.reply.segments[0].length
        and not message.inline_length
        and _whole(message)
    )


def message_class(conversation: Conversation, is_call: bool) -> Hashable:
    """What routine messages of the forward direction have in common, beside their connection; None where they have not.

    Private data and refusals of a version may become known while a connection lasts.
    """
    if conversation.negotiation.refusals:
        return None
    return is_call, conversation.private_data_seen, conversation.private_data(0), conversation.private_data(1)


def rpc_class(rpc: Rpc, flow: CreditState | None) -> Hashable:
    """The class of routine RPCs without chunks on a connection; None for others."""
    call, reply = rpc.call, rpc.reply
    if (
        rpc.chunks
        or call is None
        or reply is None
        or not routine_message(call)
        or not routine_message(reply)
        or not _routine_call_of(rpc, call, flow)
    ):
        return None
    return rpc.program, rpc.version, rpc.procedure, rpc.operations, _captured(call), _captured(reply)


def _captured(message: Message) -> bool:
    """Whether its whole Payload stream is captured, without a gap."""
    return message.end - message.start == message.inline_length


def _routine_call_of(rpc: Rpc, call: Message, flow: CreditState | None) -> bool:
    """Whether no rule has anything to report of an RPC whose call is routine, up to its reply."""
    return not (
        rpc.notes
        or rpc.damage
        or rpc.backward
        or rpc.gss is not None
        or flow is None
        or flow.limit is None
        or flow.outstanding > flow.limit
        or flow.undirected
        or lacking(rpc.connection, 0, flow.since, call.frame, rpc.reply_frame) != NONE_LACKING
        or not routine_procedure(rpc.program, rpc.version, rpc.procedure, rpc.operations)
        or (rpc.version == 3 and rpc.program == NFS and _captured(call) and not _holds_arguments(rpc, call))
    )


def settled_class(subject: Subject) -> Hashable:
    """What nouns of a routine RPC with a Reply chunk have in common, beside their connection; None for others.

    They wait for what may come late, and are asked about when they are judged.
    """
    if isinstance(subject, Transaction):
        return _long_class(subject)
    if isinstance(subject, SentMessage):
        return _return_class(subject)
    if isinstance(subject, RdmaOperation) and subject.place == "inside" and subject.operation.initiator == 1:
        return None if subject.unseen_reply else ("inside",)
    return None


def _return_class(sent: SentMessage) -> Hashable:
    """The class of replies through a Reply chunk; None if a rule may judge this one differently."""
    rpc = sent.rpc
    if sent.is_call is not False or rpc is None or rpc.call is None or rpc.backward:
        return None
    if not _routine_return(sent.message):
        return None
    key, invalidated = message_class(sent.conversation, False), sent.message.operation.invalidate
    offered = [use.advertised.handle for chunk in rpc.chunks for use in chunk.segments]
    if key is None or invalidated not in (None, *offered):
        return None
    return "returned", invalidated is not None, key


def _long_class(transaction: Transaction) -> Hashable:
    """The class of RPCs whose results came through a Reply chunk."""
    rpc, step, persistent = transaction.rpc, transaction.handle_step, transaction.persistent
    call, reply = rpc.call, rpc.reply
    if (
        call is None
        or reply is None
        or transaction.late
        or step is None
        or persistent is None
        or Offer(step, persistent).remarkable
        or len(rpc.chunks) != 1
        or not routine_call(call)
        or not _routine_return(reply)
        or not _filled(rpc.chunks[0], reply)
        or not _routine_call_of(rpc, call, transaction.flow)
    ):
        return None
    whole = _captured(call), rpc.chunks[0].segments[0].operations[0].payload.whole
    return "long", step.run < PREDICTABLE, rpc.program, rpc.version, rpc.procedure, rpc.operations, *whole


def _filled(chunk: ChunkUse, reply: Message) -> bool:
    """Whether one RDMA Write filled a Reply chunk of one segment as far as the reply says."""
    assert reply.header.reply is not None
    if chunk.kind != "reply" or len(chunk.segments) != 1 or len(chunk.segments[0].operations) != 1:
        return False
    use, returned = chunk.segments[0], reply.header.reply.segments[0]
    operation, (handle, length, offset) = use.operations[0], use.advertised
    return (
        (returned.handle, returned.offset) == (operation.handle, operation.address) == (handle, offset)
        and returned.length == operation.length == use.returned
        and returned.length <= length
    )


@lru_cache(maxsize=4096)
def routine_procedure(
    program: int | None, version: int | None, procedure: int | None, operations: tuple[str, ...]
) -> bool:
    """Whether nothing in the arguments matters: neither a number of bytes that is asked for, nor data."""
    if program is None or version is None or procedure is None or not binding.has_binding(program, version):
        return False
    if program != NFS:
        return True
    if version == 4:
        return not binding.states_bytes(operations)
    row = nfs3_procedure(procedure) if version == 3 else None
    return row is not None and row.entries_bound is None


def _holds_arguments(rpc: Rpc, call: Message) -> bool:
    """Whether the arguments of an NFSv3 call end within it."""
    row = nfs3_procedure(rpc.procedure or 0)
    assert row is not None
    head = call_head(call.data, call.start, call.end)
    body = head[-1] if head is not None else 0
    return body > 0 and holds_arguments(call.data[call.start + body : call.end], row)
