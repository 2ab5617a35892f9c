"""Which of several open calls with one XID a reply answers.

An XID is not used again while its call is outstanding (RFC 8166, 3.3.3; RFC 5531, 9), so usually the reply to the
earlier call is missing from the capture.  The evidence, from the strongest on: the handles that the reply returns,
which calls come after it, the handle that it invalidates, the calls whose Read chunks were read, the grant, the time,
the order of earlier replies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from ..layers.rpcrdma_codes import RDMA_ERROR
from ..named_tuple import NamedTuple
from .messages import Message, TransportHeader, WriteChunk
from .rpc_numbers import AnsweredXids
from .rpcs import Rpc

XID_IN_USE = "its XID was in use by an earlier call without a reply"
XID_USED_AGAIN = "its XID was used again by a later call before it had a reply"

NOT_EXPECTED = "no reply to it was expected when one with its XID came"

GIVEN_UP = 60_000_000_000
"""Nanoseconds after which no reply to a call is expected if a later one has its XID."""
LATER = 1_000_000_000
"""Nanoseconds by which a call may be later than a reply; a larger difference may be a clock that was set back."""
MANY_ANSWERED = 16
"""Later calls answered in order, after which the reply to an earlier call is not expected."""


class CallDirection:
    """The calls of one end."""

    __slots__ = (
        "answered", "calls", "granted", "in_order", "last_answered", "outstanding", "replied", "sent",
    )  # fmt: skip

    def __init__(self, answered: int = 0) -> None:
        """``answered``: XIDs of answered calls to keep."""
        self.calls: dict[int, list[Rpc]] = {}
        """Unanswered calls, by XID."""
        self.outstanding = 0
        """Number of unanswered calls."""
        self.granted: int | None = None
        """The latest credit value of the replies."""
        self.sent = 0
        """Number of calls so far."""
        self.replied = 0
        """Frame of the first reply, or of one shortly after it."""
        self.last_answered = 0
        """Rank of the call that the last reply answered."""
        self.in_order = True
        """Each reply so far answered a later call than the reply before it."""
        self.answered = AnsweredXids(answered)


NO_CALLS = CallDirection()
"""Shared by ends that have sent no calls; must not be changed."""


class ReplyChoice(NamedTuple):
    rpc: Rpc
    evidence: str
    """'' if nothing tells the calls apart."""
    certain: bool = False
    """The evidence is in the reply; otherwise it is only that the other calls were not expected to be answered."""


def choose_call(calls: Sequence[Rpc], reply: Message, direction: CallDirection) -> ReplyChoice:
    """Choose one of ``calls``, which are open, have the reply's XID, and are in the order in which they were sent."""
    left = list(calls)
    for evidence, fits in _EVIDENCE:
        if fits is _was_read and not _read_apart(left, direction):
            continue
        fitting = [rpc for rpc in left if fits(rpc, reply)]
        if len(fitting) == 1:
            return ReplyChoice(fitting[0], evidence, True)
        left = fitting or left
    latest = left[-1]
    earlier = left[-2]
    assert latest.call is not None and earlier.call is not None
    if direction.granted is not None and direction.outstanding > max(1, direction.granted):
        return ReplyChoice(latest, "the grant, which does not allow both to be outstanding")
    if reply.header.xid in direction.answered:  # A client that rotated XIDs so far continues to.
        return ReplyChoice(latest, "the turns in which its XID was used so far")
    if reply.time - earlier.call.time > GIVEN_UP and reply.time - latest.call.time < GIVEN_UP:
        return ReplyChoice(latest, f"the time since the other, {(reply.time - earlier.call.time) // 1_000_000_000} s")
    answered = direction.sent - earlier.order - direction.outstanding
    if direction.in_order and answered >= MANY_ANSWERED:
        return ReplyChoice(latest, f"the order of replies: {answered} calls after the other were answered, in order")
    return ReplyChoice(left[0], "")


def returns_handles(rpc: Rpc, reply: Message) -> bool:
    """Whether the reply's Write list and Reply chunk are those of the call, segment by segment."""
    if rpc.call is None or reply.header.problem or reply.header.procedure == RDMA_ERROR:
        return False
    asked, answered = rpc.call.header, reply.header
    if len(asked.writes) != len(answered.writes) or (asked.reply is None) != (answered.reply is None):
        return False
    pairs = [*zip(asked.writes, answered.writes, strict=True)]
    if asked.reply is not None and answered.reply is not None:
        pairs.append((asked.reply, answered.reply))
    return all(_places(chunk) == _places(other) for chunk, other in pairs)


def returns_own_memory(rpc: Rpc) -> bool:
    """Whether the reply returns memory exactly as the call offered it, which other calls hardly did."""
    return rpc.reply is not None and returns_memory(rpc, rpc.reply)


def returns_memory(rpc: Rpc, reply: Message) -> bool:
    """Whether the reply returns any memory, and exactly as the call offered it."""
    return bool(returned_memory(reply.header)) and returns_handles(rpc, reply)


def returns_other_memory(rpc: Rpc, reply: Message) -> bool:
    """Whether the reply returns memory, but none that the call offered."""
    asked, answered = rpc.call, reply.header
    if asked is None or asked.header.problem or answered.problem or answered.procedure == RDMA_ERROR:
        return False
    returned = returned_memory(answered)
    return bool(returned) and returned.isdisjoint(returned_memory(asked.header))


def returned_memory(header: TransportHeader) -> set[tuple[int, int]]:
    """Handle and address of each segment of a header's Write list and Reply chunk."""
    chunks = [*header.writes, header.reply] if header.reply is not None else header.writes
    return {place for chunk in chunks for place in _places(chunk)}


def _places(chunk: WriteChunk) -> list[tuple[int, int]]:
    return [(segment.handle, segment.offset) for segment in chunk.segments]


def _invalidates(rpc: Rpc, reply: Message) -> bool:
    handle = reply.operation.invalidate
    return handle is not None and any(use.advertised.handle == handle for chunk in rpc.chunks for use in chunk.segments)


def _was_read(rpc: Rpc, reply: Message) -> bool:
    """Whether all Read chunks of a call were read before the reply, or may have been, as server requests are
    missing."""
    assert rpc.call is not None
    gaps = rpc.connection.gaps[reply.operation.initiator]
    if gaps and gaps[-1].last_frame > rpc.call.operation.first_frame:
        return True
    reads = [use for chunk in rpc.chunks if chunk.kind == "read" for use in chunk.segments if use.advertised.length]
    return all(use.operations for use in reads)


def _read_apart(calls: Sequence[Rpc], direction: CallDirection) -> bool:
    """Whether no two open calls offer the memory that these calls offer to be read."""
    every = [chunk for same in direction.calls.values() for rpc in same for chunk in rpc.chunks if chunk.kind == "read"]
    offered = Counter(use.advertised.handle for chunk in every for use in chunk.segments)
    mine = [chunk for rpc in calls for chunk in rpc.chunks if chunk.kind == "read"]
    return max((offered[use.advertised.handle] for chunk in mine for use in chunk.segments), default=0) < 2


def _before(rpc: Rpc, reply: Message) -> bool:
    """Whether the call precedes the reply by frame and time: a stream or interface may be captured ahead of another."""
    assert rpc.call is not None
    call, answer = rpc.call.operation, reply.operation
    return call.last_frame < answer.first_frame and not 0 < call.first_time - answer.first_time < LATER


def _in_its_version(rpc: Rpc, reply: Message) -> bool:
    """Whether the reply has the call's version, or is an error, as it must (RFC 8166, 4.5.1)."""
    assert rpc.call is not None
    return reply.header.procedure == RDMA_ERROR or rpc.call.header.version == reply.header.version


_EVIDENCE: tuple[tuple[str, Callable[[Rpc, Message], bool]], ...] = (
    ("the handles that the reply returns", returns_handles),
    ("its place, before the reply", _before),
    ("the version of its header", _in_its_version),
    ("the handle that the reply invalidates", _invalidates),
    ("RDMA Reads of its Read chunks", _was_read),
)
