"""Matches replies with calls, by connection, direction and XID (RFC 8167: each direction has XIDs of its own).

An Rpc ends with its reply, once no RDMA Read response is outstanding.  Without a reply it ends with the connection, or
when more calls are open than the credits allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ..layers.rpcrdma_codes import NO_RDMA, RDMA_ERROR
from ..transport.connection import gaps_forgotten, raised
from . import outcome
from .conversation import Conversation
from .listeners import Listener
from .memory import REORDERED, AdvertisedMemory, doubt_responses, reads_closed, unwritten
from .messages import Message
from .missing_calls import (
    SOON,
    TWO_REPLIES,
    USED_BEFORE,
    call_may_be_missing,
    calls_missing,
    comes_again,
    reply_may_be_missing,
)
from .pending import LINGER, MAX_BESIDE_GAP, MAX_DOUBTFUL, MAX_REPLIES, MAX_UNWRITTEN, Unsettled, WaitingReply
from .rpc_numbers import LATE, MAX_ANSWERED, RpcNumbers
from .rpcs import DUPLICATE_REPLY, Rpc
from .xid_reuse import (
    LATER,
    NO_CALLS,
    NOT_EXPECTED,
    XID_IN_USE,
    XID_USED_AGAIN,
    CallDirection,
    choose_call,
    returned_memory,
    returns_handles,
    returns_memory,
    returns_other_memory,
    returns_own_memory,
)

NO_XIDS: Mapping[int, int] = MappingProxyType({})
MAX_OPEN = 10_000_000_000
"""Nanoseconds that a reply waits for an incomplete Send when no more frames come."""
MAX_OUTSTANDING = 1 << 16
"""Unanswered calls kept per direction."""

MATCHED_AMONG = "reply matched among"
BY_XID_ALONE = "reply matched by its XID alone: its RPC header is truncated"
WHICH_IS_CALL = (
    "which of the two is the call is not known: the XID is used in turn, and their RPC headers are truncated"
)
EARLIER_TIME = "its reply has an earlier time, and may be to an earlier call with its XID that is not in the capture"
BEFORE_CAPTURE = "its reply is shown before it, and may be to a call before the capture with the same XID"
OTHER_MEMORY = "its reply returns other memory than it offered, and its XID was used again or frames are out of order"
NOT_OFFERED = (
    "its reply returns other memory than it offered, or none, and may be to a call before the capture with the same XID"
)
OUTSTANDING_BEFORE = 128
"""Calls from the start of a capture among which replies to earlier calls can come: clients have no more outstanding."""
MAX_SAME_XID = 64
"""Open calls with one XID; beyond that the oldest ends without a reply."""
DOUBT = 300_000_000_000
"""Nanoseconds in which a reply to another call with the same XID can show that a match was wrong."""


class Matching:
    """Which reply answers which call of one conversation; calls and replies have to come in the order of events."""

    __slots__ = (
        "_answered",
        "_memory",
        "_unsettled",
        "conversation",
        "detached",
        "directions",
        "done",
        "listener",
        "maximum",
        "numbers",
        "settled",
    )

    def __init__(
        self, conversation: Conversation, numbers: RpcNumbers, done: list[Rpc],
        maximum: int = MAX_OUTSTANDING, answered: int = MAX_ANSWERED,
    ) -> None:  # fmt: skip
        """``numbers`` and ``done``, the list that ended Rpcs go to, are shared with the other conversations.

        Limits per direction: ``maximum`` unanswered calls, unless more credits were granted; ``answered`` XIDs.
        """
        self.conversation = conversation
        self.numbers = numbers
        self.done = done
        self.maximum = maximum
        self._memory: AdvertisedMemory | None = None
        self._unsettled: Unsettled | None = None
        self._answered = answered
        self.directions: tuple[CallDirection, CallDirection] = NO_CALLS, NO_CALLS
        """By caller; read only, ``direction`` gives one to change."""
        self.settled = 0 if conversation.connection.rdma else NO_RDMA
        """The version in which the server replied, 0 before it did; NO_RDMA for RPC over TCP."""
        self.detached = 0
        """Number of the last Rpc that holds a copy of its bytes."""
        self.listener: Listener | None = None

    def direction(self, caller: int) -> CallDirection:
        """The calls of one end, to change.  Made when first asked for: hardly any connection has backward calls."""
        direction = self.directions[caller]
        if direction is NO_CALLS:
            direction = CallDirection(self._answered)
            self.directions = (self.directions[0], direction) if caller else (direction, self.directions[1])
        return direction

    @property
    def outstanding(self) -> int:
        """Number of unanswered calls, of both ends."""
        return sum([direction.outstanding for direction in self.directions])

    @property
    def known_memory(self) -> AdvertisedMemory | None:
        """The advertised memory; None if none was advertised or used so far."""
        return self._memory

    @property
    def memory(self) -> AdvertisedMemory:
        """The advertised memory; made when first asked for, as many connections advertise none."""
        if self._memory is None:
            self._memory = AdvertisedMemory(self.conversation.connection)
        return self._memory

    @property
    def unplaced_count(self) -> int:
        """Number of RDMA Reads and Writes outside all advertised memory."""
        return 0 if self._memory is None else self._memory.unplaced_count

    @property
    def unsettled(self) -> Unsettled:
        """RPCs and replies that wait; made when first asked for."""
        if self._unsettled is None:
            self._unsettled = Unsettled()
        return self._unsettled

    def waiting_replies(self, sender: int) -> Mapping[int, int]:
        """XIDs of replies from ``sender`` that wait for their calls, and how many have each."""
        return NO_XIDS if self._unsettled is None else self._unsettled.reply_xids[sender]

    @property
    def doubts(self) -> bool:
        """Whether answered RPCs wait for a second reply or for transfers."""
        unsettled = self._unsettled
        return unsettled is not None and bool(unsettled.beside_gap or unsettled.unwritten or unsettled.lingering)

    @property
    def waiting(self) -> bool:
        """Whether ``settle`` may have something to do."""
        return bool(self._unsettled)

    def settle(self, now: int, frame: int, open_since: Sequence[int | None] = (None, None)) -> None:
        """End what waited long enough, at time ``now`` (ns) and frame ``frame``.

        ``open_since``: by endpoint, the first frame of a message that is still incomplete: a waiting reply may answer
        it.
        """
        unsettled = self._unsettled
        if unsettled is None:
            return
        if unsettled.lingering:
            self._end_reading(unsettled, None)
        if unsettled.unwritten:
            self._settle_unwritten(unsettled, now, frame)
        while unsettled.doubtful and now - _answer_time(unsettled.doubtful[0]) > DOUBT:
            self.conclude(unsettled.doubtful.pop(0))
        while unsettled.beside_gap and now - _answer_time(unsettled.beside_gap[0]) > LINGER:
            self.conclude(unsettled.beside_gap.pop(0))
        replies = unsettled.replies
        while replies and frame - replies[0].message.frame > REORDERED and not self._call_open(unsettled, open_since):
            self._end_wait(replies.pop(0))

    def _end_reading(self, unsettled: Unsettled, before: int | None) -> None:
        """End Rpcs whose Read responses are all there, or whose reply came before time ``before`` (ns)."""
        lingering, unsettled.lingering = unsettled.lingering, []
        for rpc in lingering:
            if reads_closed(rpc) or (before is not None and _answer_time(rpc) < before):
                self.conclude(rpc)
            else:
                unsettled.lingering.append(rpc)

    def idle(self, now: int, open_since: Sequence[int | None] = (None, None)) -> None:
        """End what waited long enough at time ``now`` (ns), when no more frames came."""
        unsettled = self._unsettled
        if unsettled is None:
            return
        self.settle(now, 0)
        if now - self.conversation.connection.last_time > LINGER:
            self._end_reading(unsettled, now - LINGER)
        while unsettled.replies:
            waited = now - unsettled.replies[0].message.operation.last_time
            if waited <= (MAX_OPEN if self._call_open(unsettled, open_since) else LINGER):
                break
            self._end_wait(unsettled.replies.pop(0))

    @staticmethod
    def _call_open(unsettled: Unsettled, open_since: Sequence[int | None]) -> bool:
        """Whether the first waiting reply may answer a Send that is still incomplete."""
        waiting = unsettled.replies[0]
        since = open_since[1 - waiting.sender]
        return since is not None and since <= waiting.message.frame

    def detach(self, before: int) -> None:
        """Calls sent before time ``before`` (ns) copy their bytes, so that the batches they came in can be freed."""
        last = self.detached
        for direction in self.directions:
            for rpcs in direction.calls.values():
                for rpc in rpcs:
                    if rpc.number > self.detached and rpc.call is not None and rpc.call.time < before:
                        rpc.detach()
                        last = max(last, rpc.number)
        self.detached = last
        if self._memory is not None:
            self._memory.forget(before)

    def finish_replies(self) -> None:
        """End everything that has a reply, at the end of the connection."""
        unsettled = self._unsettled
        if unsettled is None:
            return
        self._conclude_answered(unsettled)
        while unsettled.replies:
            self._end_wait(unsettled.replies.pop(0))
        self._conclude_answered(unsettled)

    def _conclude_answered(self, unsettled: Unsettled) -> None:
        if unsettled.unwritten:
            self.memory.place_late(unsettled.unwritten)
        for waiting in (unsettled.lingering, unsettled.unwritten, unsettled.doubtful, unsettled.beside_gap):
            for rpc in waiting:
                self.conclude(rpc)
            waiting.clear()

    def finish_calls(self) -> None:
        """End the unanswered calls, at the end of the connection."""
        for caller, direction in enumerate(self.directions):
            if self._memory is not None:
                self._memory.release(caller)
            for rpc in [rpc for same in direction.calls.values() for rpc in same]:
                if rpc.chunks:
                    self.memory.unanswered(rpc, self._begun(rpc))
                self.conclude(rpc)
            if direction is not NO_CALLS:
                direction.calls.clear()
                direction.outstanding = 0
            if self._memory is not None:
                self._memory.clear(caller)

    def release(self) -> None:
        """Drop the tables: no more messages come."""
        self.directions = NO_CALLS, NO_CALLS

    def doubt(self, caller: int, xid: int) -> None:
        """Note that the open calls with this XID are matched by XID alone."""
        for rpc in self.directions[caller].calls[xid]:
            rpc.notes += (BY_XID_ALONE,)

    def call(self, sender: int, message: Message) -> None:
        header = message.header
        if self.doubts:
            self._doubt_used(sender, message)
        early = self._early_reply(1 - sender, message)
        number = next(self.numbers) if early is None else early.number
        rpc = Rpc(number, self.conversation, sender == 1, header.xid, message)
        if header.credits is not None and sender == 0:
            self.conversation.note_requested(header.credits)
        if header.reads or header.writes or header.reply:
            self.memory.advertise(sender, rpc, header)
        direction = self.direction(sender)
        direction.sent += 1
        rpc.order = direction.sent
        same = direction.calls.get(header.xid)
        if same is not None:
            self._use_again(sender, rpc, same)
        else:
            direction.calls[header.xid] = [rpc]
        direction.outstanding += 1
        # Check ``maximum`` first: the real limit is never lower, and takes longer to compute.
        if direction.outstanding > self.maximum and direction.outstanding > self._limit:
            self._evict(sender, next(iter(direction.calls.values()))[0])
        waiting = early is not None and early.has_call
        if waiting:  # The reply may be to this very call, so the client may send next what relies on it.
            self._count_unmatched(1 - sender, -1)
        if self.listener is not None:
            self.listener.call_sent(rpc)
        if waiting:
            self._count_unmatched(1 - sender, 1)
        if early is not None and (
            not early.has_call
            or (rpc.chunks and not self.call_unseen(sender, message) and self._shares_memory(rpc, early.message))
        ):
            self.unsettled.replies.remove(early)
            self._take_early(early)

    def _take_early(self, early: WaitingReply) -> None:
        """Match a reply with its call, which the capture shows after it."""
        self._forget_reply(early.sender, early.message)
        self._count_unmatched(early.sender, -1)
        if self._memory is not None:
            self._memory.found_call(early.message, early.claimed)
        self.reply(early.sender, early.message)

    def _use_again(self, sender: int, rpc: Rpc, same: list[Rpc]) -> None:
        """Add a call whose XID open calls use already."""
        self.directions[sender].answered.used_after(rpc.number - same[-1].number)
        if XID_USED_AGAIN not in same[-1].notes:
            same[-1].notes += (XID_USED_AGAIN,)
        rpc.notes += (XID_IN_USE,)
        same.append(rpc)
        if len(same) > MAX_SAME_XID:
            self._evict(sender, same[0])

    @property
    def _limit(self) -> int:
        """Open calls to keep: beyond twice the credits ever granted, some replies must have been lost."""
        granted = self.conversation.credits_granted
        return self.maximum if granted is None else max(self.maximum, min(MAX_OUTSTANDING, 2 * granted[1]))

    def _evict(self, caller: int, rpc: Rpc) -> None:
        self._close(caller, rpc)
        self.conclude(rpc)

    def _close(self, caller: int, rpc: Rpc) -> None:
        """Remove a call and the memory it advertised from what is open."""
        direction = self.directions[caller]
        same = direction.calls[rpc.xid]
        if len(same) == 1:
            del direction.calls[rpc.xid]
        else:
            same.remove(rpc)
        direction.outstanding -= 1
        if rpc.chunks:
            self.memory.withdraw(caller, rpc, self._begun(rpc))

    def _begun(self, rpc: Rpc) -> bool:
        """Whether replies before the call are in the capture, or known to be missing."""
        assert rpc.call is not None
        replied = self.directions[rpc.call.operation.initiator].replied
        return self.conversation.connection.start_known or 0 < replied < rpc.call.operation.first_frame

    def _early_reply(self, sender: int, call: Message) -> WaitingReply | None:
        """The waiting reply that this call can take, because a capture may show a reply just before its call."""
        unsettled, xid = self._unsettled, call.header.xid
        if unsettled is None or xid not in unsettled.reply_xids[sender]:
            return None
        since, answered = call.operation.first_frame - REORDERED, xid in self.directions[1 - sender].answered
        for index, reply in enumerate(unsettled.replies):
            if (
                (reply.sender, reply.message.header.xid) == (sender, xid)
                and not reply.has_call
                and reply.message.frame >= since
                and not clock_set_back(reply.message.frame, reply.message.time, call.frame, call.time)
            ):
                # If its time is earlier, too, it may answer a missing call with this XID: wait for another reply.
                before = reply.message.time < call.time
                if before and answered:
                    continue
                unsettled.replies[index] = early = reply._replace(has_call=before)
                return early
        return None

    def reply(self, sender: int, message: Message) -> None:
        header = message.header
        candidates = self.directions[1 - sender].calls.get(header.xid)
        if not candidates:
            self._doubt_earlier(message, 1 - sender)
            answered = self.directions[1 - sender].answered.get(header.xid)
            self._wait(WaitingReply(next(self.numbers), sender, message, answered))
        elif (
            (header.writes or header.reply)
            # If no call is missing and frames are in order, the server returned the wrong memory: match by XID.
            and (self._requests_missing_before(1 - sender, message) or self.conversation.connection.disordered)
            and all(returns_other_memory(rpc, message) for rpc in candidates)
        ):
            number = next(self.numbers)
            self.direction(1 - sender).answered.used_after(number - candidates[-1].number)
            self._wait(WaitingReply(number, sender, message, None, True))
        else:
            self._answer(sender, message, candidates)

    def wait_early(self, number: int, sender: int, message: Message, has_call: bool) -> None:
        """Let a reply, of RPC ``number``, wait for its call; ``has_call``: for another reply, as its call came
        since."""
        answered = self.directions[1 - sender].answered.get(message.header.xid)
        self._wait(WaitingReply(number, sender, message, answered, has_call=has_call))
        self.unsettled.replies.sort(key=_number)

    def end_alone(self, sender: int, frame: int, at: int) -> None:
        """Count a reply that ended as a row without its call; ``at``: its position in the order of its sender."""
        direction = self.direction(1 - sender)
        direction.replied = direction.replied or frame
        if self._memory is not None:
            self._memory.note_stranger(sender, at)
        self._count_unmatched(sender, 1)

    def _held(self, caller: int, message: Message) -> Iterator[tuple[list[Rpc], Rpc]]:
        """Answered Rpcs with the XID of a message that still wait and whose reply may be to a missing call, each with
        the list it is in."""
        xid, since = message.header.xid, message.operation.last_time - LINGER
        unsettled = self.unsettled
        for waiting in (unsettled.beside_gap, unsettled.unwritten, unsettled.lingering):
            for rpc in [rpc for rpc in waiting if rpc.xid == xid and rpc.backward == (caller == 1)]:
                # Some waited too long already: they are only removed when a batch ends.
                late = waiting is unsettled.beside_gap and _answer_time(rpc) < since
                if not (rpc.ambiguous or late) and self._call_may_be_missing(rpc):
                    yield waiting, rpc

    def _doubt_earlier(self, reply: Message, caller: int) -> None:
        """A second reply came with this XID: doubt and end the RPCs whose reply may be to a missing call."""
        for waiting, rpc in self._held(caller, reply):
            if not returns_own_memory(rpc) or returns_memory(rpc, reply):
                self._doubt_match(rpc, TWO_REPLIES)
            waiting.remove(rpc)
            self.conclude(rpc)

    def _doubt_used(self, caller: int, call: Message) -> None:
        """This XID is reused soon: doubt RPCs where a missing call between call and reply may have used it, too."""
        for waiting, rpc in self._held(caller, call):
            if self._call_missing_since(rpc, call.frame):
                self._doubt_match(rpc, USED_BEFORE)
                waiting.remove(rpc)
                self.conclude(rpc)

    def _requests_missing(self, caller: int) -> bool:
        connection = self.conversation.connection
        return bool(connection.missing_packets[caller] or connection.gaps[caller])

    def _requests_missing_before(self, caller: int, message: Message) -> bool:
        """Whether requests before ``message`` are missing; a gap that only a later packet shows comes after it."""
        connection = self.conversation.connection
        return gaps_forgotten(connection, caller) or any(gap.frame <= message.frame for gap in connection.gaps[caller])

    def call_unseen(self, caller: int, message: Message) -> bool:
        """Whether a call before ``message`` may be missing from the capture, or precede it."""
        return self._requests_missing_before(caller, message) or not self.conversation.connection.start_known

    def _wait(self, reply: WaitingReply) -> None:
        unsettled, direction = self.unsettled, self.direction(1 - reply.sender)
        direction.replied = direction.replied or reply.message.frame
        if reply.earlier is not None and self._requests_missing(1 - reply.sender):
            direction.answered.used_after(reply.number - reply.earlier)
        if self._memory is not None and reply.earlier is None:
            reply = reply._replace(claimed=self._memory.claim(reply.message, stranger=True))
        self._count_unmatched(reply.sender, 1)
        unsettled.reply_xids[reply.sender][reply.message.header.xid] += 1
        unsettled.replies.append(reply)
        if len(unsettled.replies) > MAX_REPLIES:
            self._end_wait(unsettled.replies.pop(0))

    def _answer(self, sender: int, message: Message, candidates: list[Rpc]) -> None:
        """Match a reply with one of the open calls ``candidates``, and end the RPC or let it wait."""
        header = message.header
        direction, doubtful = self.directions[1 - sender], False
        if len(candidates) > 1:
            rpc, doubtful = self._choose(direction, candidates, message)
        else:
            rpc = candidates[0]
        if NOT_EXPECTED in rpc.notes:
            rpc.ambiguous, doubtful = True, False
            self._contradict(rpc)
        if header.credits is not None:
            if header.procedure != RDMA_ERROR:
                direction.granted = header.credits
            if sender == 1:
                self.conversation.note_granted(header.credits)
        direction.replied = direction.replied or message.frame
        if rpc.order < direction.last_answered:
            direction.in_order = False
        direction.last_answered = rpc.order
        rpc.reply = message
        if len(candidates) > 1:
            _in_turn(rpc, candidates)
        if rpc.chunks:
            self.memory.returned(rpc, header)
        self._close(1 - sender, rpc)
        missing = calls_missing(self.conversation.connection, rpc)
        earlier = direction.answered.get(rpc.xid) if missing else None
        # A client that rotates XIDs may rotate memory alike: returning the call's memory proves nothing then.
        again = comes_again(rpc.number, earlier, self.numbers.last, missing)
        if missing and (again or (len(candidates) > 1 and not returns_own_memory(rpc))):
            self._doubt_match(rpc, USED_BEFORE)
            doubtful = False
        elif self._has_early_reply(sender, rpc):
            self._doubt_match(rpc, TWO_REPLIES)
            doubtful = False
        elif (
            BY_XID_ALONE in rpc.notes and rpc.xid in direction.answered and not self.conversation.connection.start_known
        ):
            self._doubt_match(rpc, WHICH_IS_CALL)
            doubtful = False
        direction.answered.add(rpc.xid, rpc.number)
        self.note_again(rpc, self.numbers.last)
        if self.listener is not None:
            self.listener.reply_sent(rpc)
        if doubtful:
            rpc.detach()  # it may wait for long
            doubted = self.unsettled.doubtful
            doubted.append(rpc)
            if len(doubted) > MAX_DOUBTFUL:
                self.conclude(doubted.pop(0))
        elif rpc.chunks and not reads_closed(rpc):
            self.unsettled.lingering.append(rpc)
        elif rpc.chunks and unwritten(rpc):
            late = self.unsettled.unwritten
            late.append(rpc)
            if len(late) > MAX_UNWRITTEN:
                oldest = late.pop(0)
                self.memory.place_late((oldest,))
                self.conclude(oldest)
        elif self._call_may_be_missing(rpc):
            rpc.detach()
            beside_gap = self.unsettled.beside_gap
            beside_gap.append(rpc)
            if len(beside_gap) > MAX_BESIDE_GAP:
                self.conclude(beside_gap.pop(0))
        else:
            self.conclude(rpc)

    def _has_early_reply(self, sender: int, rpc: Rpc) -> bool:
        """Whether, as packets are missing, a reply shown before the call may be its reply, too."""
        if self._unsettled is None or not any(self.conversation.connection.gaps):
            return False
        waiting = self._unsettled.replies if rpc.xid in self.waiting_replies(sender) else ()
        return any(reply.has_call and reply.number == rpc.number for reply in waiting)

    def _doubt_time(self, rpc: Rpc) -> None:
        """Doubt a reply earlier by time but later by frame than its call: it may be to a missing call."""
        assert rpc.call is not None and rpc.reply is not None
        call, reply = rpc.call.operation, rpc.reply.operation
        if (
            0 < call.first_time - reply.last_time < LATER
            and call.first_frame < reply.last_frame
            and self.call_unseen(call.initiator, rpc.reply)
        ):
            self._doubt_match(rpc, EARLIER_TIME)

    def _doubt_memory(self, rpc: Rpc) -> None:
        """Doubt a reply that returns other memory than its call offered: another call may have used the XID."""
        assert rpc.reply is not None
        header = rpc.reply.header
        connection = self.conversation.connection
        again = XID_USED_AGAIN in rpc.notes or XID_IN_USE in rpc.notes or connection.disordered
        read = not header.problem and header.procedure != RDMA_ERROR
        if again and read and not returns_handles(rpc, rpc.reply):
            self._doubt_match(rpc, OTHER_MEMORY)
        elif not connection.start_known and (
            returns_other_memory(rpc, rpc.reply) or (read and self._returns_none(rpc))
        ):
            self._doubt_match(rpc, NOT_OFFERED)

    @staticmethod
    def _returns_none(rpc: Rpc) -> bool:
        """Whether one of the first calls offered Write chunks and its reply has none, although a reply returns them
        whether used or not (RFC 8166, 4.4.6.2)."""
        assert rpc.call is not None and rpc.reply is not None
        return rpc.order <= OUTSTANDING_BEFORE and bool(rpc.call.header.writes) and not rpc.reply.header.writes

    def note_again(self, rpc: Rpc, last: int) -> None:
        """Remember an RPC whose reply may be to a later call: its own may be missing, and XIDs are reused soon.
        ``last``: number of the latest RPC when the reply came."""
        assert rpc.call is not None
        if reply_may_be_missing(self.conversation.connection, rpc):
            soonest = self.directions[rpc.call.operation.initiator].answered.soonest
            if soonest <= SOON + last - rpc.number or (XID_USED_AGAIN in rpc.notes and not returns_own_memory(rpc)):
                self.unsettled.again.add(rpc.number)

    def _doubt_again(self, rpc: Rpc) -> None:
        """Doubt the match if both a later call and the RPC's own reply may be missing, and XIDs are reused soon."""
        if self._unsettled is not None and rpc.number in self._unsettled.again:
            self._unsettled.again.remove(rpc.number)
            own_missing = reply_may_be_missing(self.conversation.connection, rpc)
            if own_missing and (self._call_missing_since(rpc) or self._two_replies_missing(rpc)):
                self._doubt_match(rpc, USED_BEFORE)

    @staticmethod
    def _doubt_match(rpc: Rpc, why: str) -> None:
        """Mark an RPC as ambiguous, with the reason."""
        rpc.ambiguous = True
        rpc.notes += (why,)

    def _call_may_be_missing(self, rpc: Rpc) -> bool:
        """Whether the reply may answer a call that is not in the capture."""
        assert rpc.call is not None and rpc.reply is not None
        connection, call = self.conversation.connection, rpc.call.operation
        return reply_may_be_missing(connection, rpc) or call_may_be_missing(
            connection, call.initiator, call.first_frame, rpc.reply.frame
        )

    def _call_missing_since(self, rpc: Rpc, frame: int = LATE) -> bool:
        """Whether a gap after the RPC's call, shown by frame ``frame`` and while the RPC waits, may hide a call."""
        assert rpc.call is not None
        waits = _answer_time(rpc) + LINGER
        gaps = self.conversation.connection.gaps[rpc.call.operation.initiator]
        return any(gap.shown(rpc.call.frame, frame) and gap.time <= waits for gap in gaps)

    def _two_replies_missing(self, rpc: Rpc) -> bool:
        """Whether more than one reply is missing between an RPC's call and its reply: one may be to a later call that
        is missing, too, without a gap that shows it."""
        assert rpc.call is not None and rpc.reply is not None
        connection, first, last = self.conversation.connection, rpc.call.frame, rpc.reply.frame
        gaps = connection.gaps[rpc.reply.operation.initiator]
        lost = sum([gap.end - gap.start for gap in gaps if gap.shown(first, last)])
        return lost >= 2 * (rpc.reply.operation.length if connection.of_tcp else 1)

    def _settle_unwritten(self, unsettled: Unsettled, now: int, frame: int) -> None:
        """Attach RDMA Writes that came after the reply, and end Rpcs that waited long enough for them."""
        self.memory.place_late(unsettled.unwritten)
        waiting: list[Rpc] = []
        for rpc in unsettled.unwritten:
            assert rpc.reply is not None
            if frame - rpc.reply.frame > REORDERED or now - _answer_time(rpc) > LINGER:
                self.conclude(rpc)
            else:
                waiting.append(rpc)
        unsettled.unwritten = waiting

    def _choose(self, direction: CallDirection, candidates: list[Rpc], message: Message) -> tuple[Rpc, bool]:
        """The call, of several with its XID, that a reply answers; and whether a later reply may contradict it."""
        rpc, evidence, certain = choose_call(candidates, message, direction)
        if evidence:
            rpc.notes += (f"{MATCHED_AMONG} {len(candidates)} calls with its XID by {evidence}",)
            for candidate in candidates:
                if candidate is not rpc and not certain and NOT_EXPECTED not in candidate.notes:
                    candidate.notes += (NOT_EXPECTED,)
            return rpc, not certain
        for candidate in candidates:
            candidate.ambiguous = True
        return rpc, False

    def _contradict(self, unexpected: Rpc) -> None:
        """A reply came to a call that was not expected to get one: no match among calls with its XID is sure."""
        doubtful = self.unsettled.doubtful
        for rpc in [rpc for rpc in doubtful if (rpc.xid, rpc.backward) == (unexpected.xid, unexpected.backward)]:
            rpc.ambiguous = True
            rpc.notes = tuple(note for note in rpc.notes if not note.startswith(MATCHED_AMONG))
            doubtful.remove(rpc)
            self.conclude(rpc)

    def _count_unmatched(self, sender: int, by: int) -> None:
        conversation = self.conversation
        conversation.unmatched_replies = raised(conversation.unmatched_replies, 1 - sender, by)

    def _forget_reply(self, sender: int, message: Message) -> None:
        """Remove a reply's XID from those that wait."""
        xids, xid = self.unsettled.reply_xids[sender], message.header.xid
        xids[xid] -= 1
        if xids[xid] <= 0:
            del xids[xid]

    def _end_wait(self, reply: WaitingReply) -> None:
        """End the wait of a reply: its call precedes the capture, or is missing, or came right after it."""
        sender, message = reply.sender, reply.message
        if reply.has_call:
            same = self.directions[1 - sender].calls.get(message.header.xid, [])
            if [(rpc.number, rpc.notes) for rpc in same] == [(reply.number, ())] and self._is_early(same[0], message):
                first = self.directions[1 - sender].replied == message.frame
                if first and not self.conversation.connection.start_known:
                    self._doubt_match(same[0], BEFORE_CAPTURE)
                self._take_early(reply)
                return
            reply = reply._replace(number=next(self.numbers))
        self._forget_reply(sender, message)
        if not reply.other_memory:
            self._no_call(reply)
            return
        caller, xid = 1 - sender, message.header.xid
        candidates = [
            rpc
            for rpc in self.directions[caller].calls.get(xid, ())
            if rpc.call is not None and rpc.call.operation.first_frame < message.frame
        ]
        if candidates and not self._requests_missing(caller):
            self._count_unmatched(sender, -1)
            self._answer(sender, message, candidates)  # No call is missing: the server returned the wrong memory.
            return
        number = candidates[0].number if candidates else self.directions[caller].answered.get(xid)
        note = f"RPC {number} has this XID, but did not offer the memory that this reply returns: its call is missing"
        self._no_call(reply, () if number is None else (note,))

    def _is_early(self, rpc: Rpc, reply: Message) -> bool:
        """Whether nothing contradicts that a reply answers this call, which follows it by frame and time."""
        assert rpc.call is not None
        connection, call = self.conversation.connection, rpc.call.operation
        missing = call_may_be_missing(connection, call.initiator, reply.frame, call.first_frame)
        return not (missing or rpc.chunks or returned_memory(reply.header))

    def _shares_memory(self, rpc: Rpc, reply: Message) -> bool:
        """Whether the reply returns memory of this later call, or follows Reads of it: then they are matched at once,
        as the next transfers may be for another call."""
        return returns_memory(rpc, reply) or self.memory.was_read_before(rpc, reply.operation)

    def _no_call(self, reply: WaitingReply, notes: tuple[str, ...] = ()) -> None:
        sender, earlier, message = reply.sender, reply.earlier, reply.message
        rpc = Rpc(reply.number, self.conversation, sender == 0, message.header.xid, reply=message)
        rpc.claimed = reply.claimed
        rpc.notes += notes
        missing = sum(self.conversation.connection.missing_packets) or self.conversation.connection.gaps[1 - sender]
        if earlier is not None and not missing:
            rpc.state = DUPLICATE_REPLY
            rpc.notes += (f"another reply to RPC {earlier}",)
        elif earlier is not None:
            rpc.notes += (f"RPC {earlier} has this XID, and a reply: this is another reply to it, or its call is lost",)
        if self.listener is not None:
            self.listener.reply_sent(rpc)
        self.conclude(rpc)

    def conclude(self, rpc: Rpc) -> None:
        """Decide the outcome of an RPC, tell the listener, and append it to ``done``."""
        if rpc.chunks and any(self.conversation.connection.gaps):
            doubt_responses(rpc)
        if rpc.call is not None and rpc.reply is not None and not rpc.ambiguous:
            self._doubt_time(rpc)
            self._doubt_again(rpc)
            self._doubt_memory(rpc)
        if self.settled not in (1, NO_RDMA):
            outcome.note_version_2(rpc)
        outcome.conclude(rpc)
        outcome.finish_state(rpc)
        if self.listener is not None:
            self.listener.rpc_ended(rpc)
        self.done.append(rpc)


def clock_set_back(reply: int, replied: int, call: int, called: int) -> bool:
    """Whether the capture's clock was set back between a reply's frame and that of a later call, by their times
    (ns)."""
    return reply < call and replied - called >= LINGER


def _number(reply: WaitingReply) -> int:
    return reply.number


def _in_turn(rpc: Rpc, candidates: Sequence[Rpc]) -> None:
    """Drop the notes on a reused XID if the next call with it was sent, by its time, after the reply."""
    assert rpc.reply is not None
    time = rpc.reply.operation.first_time
    later = [candidate for candidate in candidates if candidate.order > rpc.order]
    if later and min(other.call.operation.first_time for other in later if other.call) > time and candidates[0] is rpc:
        rpc.notes = tuple(note for note in rpc.notes if note != XID_USED_AGAIN)
        later[0].notes = tuple(note for note in later[0].notes if note != XID_IN_USE)


def _answer_time(rpc: Rpc) -> int:
    assert rpc.reply is not None
    return rpc.reply.operation.last_time
