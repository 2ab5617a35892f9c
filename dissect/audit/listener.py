"""The listener: takes every event of one connection, and makes the nouns that rules judge.

Memory is bounded by what may still be out of order and by a number of remembered XIDs, handles and calls.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows, unique
from ..layers.characteristics_codes import XCHAR_RBSIZ
from ..layers.oncrpc_codes import REPLY
from ..layers.rpcrdma_codes import ERR_VERS, RDMA_ERROR, RDMA_NOMSG, RDMA_OPTIONAL
from ..onc.nfs3 import holds_arguments, nfs3_procedure
from ..onc.rpc_header import NFS, NFS_CALLBACK
from ..rpcrdma.characteristics import ReqXch, RespXch, decode_option
from ..rpcrdma.conversation import DEFAULT_INLINE, Conversation
from ..rpcrdma.listeners import Listener, RowSends, SentRows
from ..rpcrdma.memory import REORDERED
from ..rpcrdma.messages import Message, TransportHeader
from ..rpcrdma.rpc_table import FLAG_CHUNKS_TRUNCATED, RpcNames, RpcRows, each_made, made
from ..rpcrdma.rpcs import Rpc
from ..rpcrdma.version_loops import VersionRefusals
from ..transport.operations import Operation
from .answers import MAX_CALLS, Answers
from .events import (
    MAX_ADVERTISERS,
    PREDICTABLE,
    SILENCE,
    AdvertisedHistory,
    MessageOrder,
    Offer,
    RdmaOperation,
    RefusableMessage,
    SentMessage,
    SentOption,
    Settling,
    message_class,
    routine_call,
    routine_message,
    routine_procedure,
    rpc_class,
    settled_class,
)
from .rule import Subject
from .transaction import (
    NONE_LACKING,
    REMEMBERED,
    BackChannel,
    CreditGrants,
    CreditState,
    LastXids,
    Transaction,
    lacking,
    offers,
    remember,
)

LOWERING = 1_000_000_000
"""Nanoseconds until a peer knows of a smaller receive buffer."""
MAX_OPTIONS = 64
"""Kinds of options remembered per end."""


class VersionTwoState:
    """What one connection agreed on in version 2."""

    def __init__(self, conversation: Conversation, refusals: VersionRefusals) -> None:
        """``refusals``: shared by all connections."""
        self.conversation = conversation
        self.refusals = refusals
        self.sent = [0, 0]
        """By end: number of messages it sent."""
        self.waiting = 0
        """Messages of the client before the server's first answer that is no error."""
        self.settled = False
        """Whether there was such an answer."""
        self.larger = [(0, 0), (0, 0)]
        """By end: a larger Receive Buffer Size that its peer may still use, and until when (ns)."""
        self.options: tuple[set[int], set[int]] = (set(), set())
        """By end: the rdma_opttypes that it sent."""
        self.promises: list[SentOption] = []
        """ROPT_RESPXCHs that announce a pending change."""

    def see(self, sent: SentMessage) -> None:
        """Note what a message says about versions."""
        sender, message = sent.sender, sent.message
        header = message.header
        if header.version == 2:
            sent.terms = self._standing(sender, message)
        self.sent[sender] += 1
        if header.procedure == RDMA_ERROR and header.error == ERR_VERS and sender == 1:
            self.refusals.add(self.conversation)
        if self.settled:
            return
        if sender == 0:
            self.waiting += 1
            return
        self.settled = bool(self.waiting) and header.procedure != RDMA_ERROR and not header.problem
        self.waiting = 0

    def routine_sent(self, calls: int, replies: Sequence[int]) -> None:
        """Note routine messages of version 1; ``replies``: times of the server's, ns."""
        self.sent[0] += calls
        self.sent[1] += len(replies)
        if self.settled or not replies:
            return
        self.waiting = 0
        self.settled = True

    def _standing(self, sender: int, message: Message) -> MessageOrder:
        larger, until = self.larger[1 - sender]
        return MessageOrder(
            self.sent[sender],
            self.waiting,
            self._looped() if sender == 0 and not self.sent[0] else "",
            larger if message.time < until else 0,
        )

    def _looped(self) -> str:
        earlier = self.refusals.before(self.conversation)
        return (
            ""
            if earlier is None
            else f"connection {earlier.connection.number} was lost when version 2 had been refused"
        )

    def option(self, sent: SentMessage) -> SentOption | None:
        """The option in a message, if there is one that can be decoded."""
        header, conversation, frame = sent.header, self.conversation, sent.message.frame
        if header.version != 2 or header.procedure != RDMA_OPTIONAL or header.option is None or sent.terms is None:
            return None
        if header.problem and not header.truncated:
            return None
        options = self.options[sent.sender]
        if len(options) < MAX_OPTIONS:
            options.add(header.option)
        before, after = (conversation.in_force(XCHAR_RBSIZ, sent.sender, at).value for at in (frame, frame + 1))
        if before is not None and after is not None and after < before:
            self.larger[sent.sender] = before, sent.message.time + LOWERING
        content = decode_option(header.option, header.optinfo, header.truncated)
        return SentOption(conversation, sent.message, sent.sender, content, sent.terms.before)

    def keep(self, option: SentOption) -> list[SentOption]:
        """The options to judge now; one that announces changes waits for the end."""
        if not isinstance(option.content, RespXch) or not option.content.pending:
            return [option]
        self.promises.append(option)
        return [self.promises.pop(0)] if len(self.promises) > REMEMBERED else []


OFFERING = frozenset(("CREATE_SESSION", "BIND_CONN_TO_SESSION"))
"""Operations by which a client may offer its connection as a back channel."""
WITHIN = CreditState(1, 1, 1, 1)
"""State of a call within its credits."""


def routine_rows(sends: RowSends, names: RpcNames, back_channel: BackChannel) -> NDArray[np.bool_]:
    """Which rows are also routine for the audit (``events``), whatever is outstanding."""
    rows: NDArray[np.bool_] = (
        (sends.caller == 0)
        & (sends.service == 0)
        & (sends.size <= DEFAULT_INLINE)
        & (sends.credits > 0)
        & (sends.long | ~(sends.invalidates | sends.chunked))
        & ~(sends.truncated & sends.chunked & ~sends.long)
    )
    for procedure in unique(sends.procedure[rows & (sends.procedure >= 0)]).tolist():
        named = names.procedures[procedure]
        mine = rows & (sends.procedure == procedure)
        routine = routine_procedure(named.program, named.version, named.procedure, named.operations)
        if not routine or OFFERING & {*named.operations}:
            rows &= ~mine
        elif named.program == NFS and named.version == 3:
            whole = mine & ~sends.truncated
            rows[whole] = _hold_arguments(sends, whole.nonzero()[0], named.procedure or 0)
        elif named.name == "COMPOUND" and not (back_channel.offered or back_channel.unread):
            # The first call that cannot be decoded to its end may offer the back channel.
            rows[(mine & sends.truncated).nonzero()[0][:1]] = False
    return rows


def _hold_arguments(sends: RowSends, rows: Int64s, procedure: int) -> list[bool]:
    """Whether the arguments of these NFSv3 calls end within the captured bytes."""
    row = nfs3_procedure(procedure)
    assert row is not None
    data = sends.data.data
    places = zip(sends.arguments[rows].tolist(), sends.end[rows].tolist(), strict=True)
    return [holds_arguments(data[body:end], row) for body, end in places]


class RoutineState(Protocol):
    """The part of the listener that routine RPCs of a batch change."""

    settling: Settling
    grants: CreditGrants

    @property
    def outstanding(self) -> int:
        """Number of unanswered forward calls that are objects."""


class RoutineRows:
    """The routine RPCs, all of them forward, of a batch on one connection."""

    def __init__(self, state: RoutineState) -> None:
        self._state = state
        self.numbers: list[int] = []
        """Numbers of the RPCs, in the order of their calls."""
        self.call_frames: list[int] = []
        self.call_times: list[int] = []
        self.requested: list[int] = []
        self.reply_frames: list[int] = []
        self.reply_times: list[int] = []
        self.granted: list[int] = []
        self.called = self.answered = 0
        self.since = state.grants.last_reply[0]
        """Frame of the last reply before the batch."""
        self.made = 0
        """Calls that became objects before they were answered."""
        self.offers: dict[int, Offer] = {}
        """By RPC number: what calls with a Reply chunk offered."""
        self.exceeding: dict[int, CreditState] = {}
        """By RPC number: calls beyond the credits, or before any were granted."""

    @property
    def outstanding(self) -> int:
        return self.called - self.answered - self.made

    def take(self, calls: SentRows, replies: SentRows) -> None:
        """Add calls and replies, in the order in which they were sent."""
        self.numbers += calls.number.tolist()
        self.call_frames += calls.frame.tolist()
        self.call_times += calls.time.tolist()
        self.requested += calls.credits.tolist()
        self.reply_frames += replies.frame.tolist()
        self.reply_times += replies.time.tolist()
        self.granted += replies.credits.tolist()
        self.advance(len(self.call_frames), len(self.reply_frames))

    def advance(self, called: int, answered: int) -> None:
        """Process calls and replies up to these numbers of them."""
        grants, base = self._state.grants, self._state.outstanding + self.outstanding
        requested, granted = self.requested[self.called : called], self.granted[self.answered : answered]
        grant = grants.granted[0]
        uniform = grant is not None and (not granted or min(granted) == grant == max(granted))
        uniform = uniform and not grants.unmatched(0)
        limit = min(grant or 0, *requested) if requested else 0
        highest = base + len(requested)
        if uniform and requested and highest > limit:
            highest = base + self._outstanding_within(called, answered)
        torn = bool(requested) and self._lacks(called - 1)
        if not uniform or torn or (requested and highest > limit):
            self._step(called, answered, base)
        elif requested:
            grants.requested[0] = requested[-1]
        if granted and grants.unrelieved[0]:
            grants.relieve(0, self.reply_frames[self.answered], self.reply_times[self.answered])
        if granted:
            grants.last_reply[0] = max(grants.last_reply[0], self.reply_frames[answered - 1])
        self._pass(called, answered)
        self.called, self.answered = called, answered

    def _lacks(self, call: int) -> bool:
        """Whether anything seems to be missing between the last reply and a call, or the next reply."""
        grants, frame = self._state.grants, self.call_frames[call]
        behind = bisect_right(self.reply_frames, frame)
        answered = self.reply_frames[behind] if behind < len(self.reply_frames) else 0
        return lacking(grants.conversation.connection, 0, grants.last_reply[0], frame, answered) != NONE_LACKING

    def waiting(self, call: Message) -> CreditState:
        """The state of a call within its credits that no reply of the batch answers."""
        outstanding, replied = self._state.outstanding + 1, bisect_left(self.reply_frames, call.frame)
        limit = max(outstanding, min(call.header.credits or 1, self._state.grants.granted[0] or 1))
        return CreditState(
            outstanding, limit, limit, limit, since=self.reply_frames[replied - 1] if replied else self.since
        )

    def _outstanding_within(self, called: int, answered: int) -> int:
        """The highest number of these calls outstanding at a time."""
        calls, replies = self.call_frames[self.called : called], self.reply_frames[self.answered : answered]
        return int((np.arange(1, len(calls) + 1) - np.searchsorted(replies, calls)).max())

    def _step(self, called: int, answered: int, outstanding: int) -> None:
        """Count credits message by message."""
        grants, reply = self._state.grants, self.answered
        for call in range(self.called, called):
            while reply < answered and self.reply_frames[reply] < self.call_frames[call]:
                grants.grant(0, self.granted[reply], self.reply_times[reply])
                grants.last_reply[0] = max(grants.last_reply[0], self.reply_frames[reply])
                outstanding -= 1
                reply += 1
            outstanding += 1
            flow = grants.flow(0, self.requested[call], self.call_times[call], outstanding)
            if flow.limit is None or outstanding > flow.limit or self._lacks(call):
                self.exceeding[self.numbers[call]] = flow
        for behind in range(reply, answered):
            grants.grant(0, self.granted[behind], self.reply_times[behind])

    def _pass(self, called: int, answered: int) -> None:
        """Advance to each message, and settle what that settles."""
        settling = self._state.settling
        calls, replies = self.call_frames, self.reply_frames
        while True:
            call = bisect_left(calls, settling.next, self.called, called)
            reply = bisect_left(replies, settling.next, self.answered, answered)
            frames = ([calls[call]] if call < called else []) + ([replies[reply]] if reply < answered else [])
            if not frames:
                break
            self._reach(min(frames), called, answered)
            settling.settle()
        last = [*calls[self.called : called][-1:], *replies[self.answered : answered][-1:]]
        if last:
            self._reach(max(last), called, answered)

    def _reach(self, frame: int, called: int, answered: int) -> None:
        settling = self._state.settling
        settling.frame = max(settling.frame, frame)
        for end, frames, first, behind in (
            (0, self.call_frames, self.called, called),
            (1, self.reply_frames, self.answered, answered),
        ):
            behind_last = bisect_right(frames, frame, first, behind)
            begin = bisect_right(frames, settling.last_sent(end), first, behind_last)
            settling.messages[end].extend(frames[begin:behind_last])


MAX_UNREAD = 256
"""Messages with undecodable chunk lists remembered per end."""


class ClassJudge(Protocol):
    """Judges ``count`` nouns by their class on a connection; ``make`` is called if they are needed themselves."""

    def __call__(
        self, key: Hashable, subjects: Callable[[], Iterator[Subject]], connection: int, count: int = 1
    ) -> None: ...


@dataclass(slots=True)
class UnreadCall:
    """A message whose chunk lists cannot be decoded."""

    xid: int
    frame: int
    answered: int = 0
    """Frame of its answer; 0 for none."""


class AuditListener(Listener):
    """Listens to the matching of one connection, and gives each noun to ``judge`` when it cannot change any more."""

    whole_transfers = True
    reads_bytes = False

    def __init__(
        self,
        conversation: Conversation,
        judge: Callable[[Subject], None],
        sides_known: set[int],
        refusals: VersionRefusals,
        release: Callable[[Rpc], None] | None = None,
        by_class: ClassJudge | None = None,
    ) -> None:
        """``release``: takes every Rpc whose contents no rule needs any more.

        ``by_class``: if given, judges routine nouns by their class.
        """
        self.conversation = conversation
        self.connection = conversation.connection
        self.release = release
        self.sides_known = sides_known
        self._judge = judge
        self._by_class = by_class
        self.settling = Settling(self.connection, self._settled, self._place, self._settled_routine)
        self.grants = CreditGrants(conversation)
        self.terms = VersionTwoState(conversation, refusals)
        self.answers = Answers(conversation, self.settling, self._give_up)
        self.back_channel = BackChannel()
        self.open: tuple[dict[Rpc, Transaction], ...] = ({}, {})
        """Unanswered calls, by caller."""
        self.memory = AdvertisedHistory(self.connection, self.open)
        self.answered: OrderedDict[Rpc, Transaction] = OrderedDict()
        """Answered calls that are not judged so far."""
        self._late: dict[Rpc, Transaction] = {}
        """Answered calls with RDMA after the reply: a call that is shown late may have offered their memory, too."""
        self.xids = LastXids(), LastXids()
        """By sender: XIDs of its latest messages."""
        self.errored: tuple[OrderedDict[int, Rpc], ...] = (OrderedDict(), OrderedDict())
        """Calls of either end that an RDMA_ERROR answered."""
        self.has_called = [False, False]
        """Whether a call of either end was answered."""
        self.unread_calls: tuple[list[UnreadCall], ...] = ([], [])
        """By sender: messages whose chunk lists cannot be decoded."""
        self.routine: RoutineRows | None = None
        """The routine RPCs of the batch."""
        self.calls_truncated = False
        """Some calls are truncated in the capture."""

    # Events

    def call_sent(self, rpc: Rpc) -> None:
        assert rpc.call is not None
        message, caller = rpc.call, int(rpc.backward)
        self.settling.reach(message.operation)
        transaction = Transaction(self.conversation, rpc)
        transaction.version_supported = message.header.version in self.answers.versions[1 - caller]
        transaction.responder_seen = bool(self.settling.messages[1 - caller])
        self.open[caller][rpc] = transaction
        outstanding = len(self.open[caller]) + (0 if caller or self.routine is None else self.routine.outstanding)
        self.grants.called(caller, transaction, outstanding)
        if message.header.truncated:
            self.calls_truncated = True
        if message.header.problem:
            self._unread(caller, UnreadCall(rpc.xid, message.frame))
        if rpc.chunks:
            self.memory.advertise(transaction, caller)
            self._late = {rpc: late for rpc, late in self._late.items() if rpc in self.answered}
            for other in self._late.values():
                other.late = [operation for operation in other.late if not offers(rpc, operation)]
        self.xids[caller].add((rpc.xid,))
        self.errored[caller].pop(rpc.xid, None)
        if self._routine(message, routine_call) and not rpc.backward and not rpc.notes:
            self.terms.sent[0] += 1
            if not self.back_channel.offered:
                self.back_channel.call_sent(transaction)
            self.answers.note_version(0, message)
            self.settling.add_routine(rpc, True)
            return
        sent = self._sent(SentMessage(self.conversation, message, caller, True, rpc))
        if rpc.backward:
            self.back_channel.calls_back = True
            sent.back_channel = self.back_channel
        elif not self.back_channel.offered:
            self.back_channel.call_sent(transaction)
        self.answers.sent(caller, message, rpc)
        self.settling.add(sent)

    def reply_sent(self, rpc: Rpc) -> None:
        assert rpc.reply is not None
        message, caller = rpc.reply, int(rpc.backward)
        self.settling.reach(message.operation)
        if (
            rpc.call is not None
            and not rpc.backward
            and rpc in self.open[0]
            and rpc.call.header.reply is None
            and rpc.call.header.procedure != RDMA_OPTIONAL
            and not self.answers.messages[0]
            and not self.unread_calls[0]
            and self._routine(message, routine_message)
        ):
            self.terms.sent[1] += 1
            self.xids[1].add((rpc.xid,))
            self.answers.note_version(1, message)
            self.answered[rpc] = self.open[0].pop(rpc)
            self._note_answered(0, rpc.call.frame, message.frame)
            self.grants.replied(0, message)
            self.settling.add_routine(rpc, False)
            return
        sent = self._sent(SentMessage(self.conversation, message, 1 - caller, False, rpc))
        sent.errored = self.errored[caller].get(rpc.xid) if rpc.call is None else None
        sent.xid_seen = rpc.call is not None or rpc.xid in self.xids[caller]
        self.xids[1 - caller].add((rpc.xid,))
        if message.header.procedure == RDMA_ERROR and rpc.call is None:
            self.answers.error_sent(sent)
            self.answers.refused(sent)
        self.answers.replied(caller, rpc, message)
        if message.header.procedure == RDMA_ERROR and message.header.problem:
            self.answers.sent(1 - caller, message, None)
        self._answered(caller, rpc.xid, message.frame)
        transaction = self.open[caller].pop(rpc, None)
        if transaction is not None:
            self.answered[rpc] = transaction
            assert rpc.call is not None
            self._note_answered(caller, rpc.call.frame, message.frame)
        self.grants.replied(caller, message)
        if message.header.procedure == RDMA_ERROR:
            remember(self.errored[caller], rpc.xid, rpc)
        self.settling.add(sent)

    def rpc_ended(self, rpc: Rpc) -> None:
        caller = int(rpc.backward)
        transaction = self.open[caller].pop(rpc, None) or self.answered.get(rpc)
        if rpc.call is not None and rpc.reply is not None and rpc.reply.frame < rpc.call.frame:
            self.connection.disorder(rpc.reply.frame)
        if transaction is None:
            if rpc.call is None:  # a reply alone is judged by what it carries
                self.settling.add(Transaction(self.conversation, rpc, of_open_call=self._of_open_call(caller, rpc)))
            return
        if (rpc.program == NFS and not rpc.backward) or (rpc.program == NFS_CALLBACK and rpc.backward):
            self.sides_known.add(self.connection.number)
        if not rpc.backward:
            self.back_channel.ended(transaction)
        if self._by_class is not None and (key := rpc_class(rpc, transaction.flow)) is not None:
            self.answered.pop(rpc, None)
            self._by_class(key, lambda: iter((transaction,)), self.connection.number)
            if self.release is not None:
                self.release(rpc)
            return
        self.answered[rpc] = transaction
        self.settling.add(transaction)

    def _of_open_call(self, caller: int, rpc: Rpc) -> bool:
        """Whether a reply without a call returns the Reply chunk of an open call."""
        reply = rpc.reply
        if reply is None or reply.header.procedure != RDMA_NOMSG or not reply.header.reply:
            return False
        places = [(segment.handle, segment.offset) for segment in reply.header.reply.segments]
        return any(
            [(use.advertised.handle, use.advertised.offset) for use in chunk.segments] == places
            for call in self.open[caller]
            for chunk in call.chunks
            if chunk.kind == "reply"
        )

    def other_sent(self, sender: int, message: Message) -> None:
        header = message.header
        self.settling.reach(message.operation)
        sent = self._sent(SentMessage(self.conversation, message, sender, None, None))
        sent.errored = self.errored[1 - sender].get(header.xid)
        if header.procedure == RDMA_ERROR:
            sent.xid_seen = header.xid in self.xids[1 - sender]
            self.answers.error_sent(sent)
            self.answers.refused(sent)
        self.xids[sender].add((header.xid,))
        if header.procedure == RDMA_ERROR:
            self._answered(1 - sender, header.xid, message.frame)
        elif header.problem or header.truncated or header.chunks:
            self._unread(sender, UnreadCall(header.xid, message.frame))
        self.back_channel.other_sent(sender, message)
        self.settling.add(sent)
        self.answers.sent(sender, message, None)

    def headless_sent(self, operation: Operation) -> None:
        self.settling.reach(operation)
        version = 2 if self.conversation.version(operation.first_frame) == 2 else 1
        header = TransportHeader(0, version, None, None, problem="its first packet is missing", truncated=True)
        message = Message(operation, header, memoryview(b""), 0, 0, 0)
        self.settling.add(SentMessage(self.conversation, message, operation.initiator, None, None))

    def data_transferred(self, operation: Operation) -> None:
        self.settling.reach(operation)
        if not operation.length:
            return
        for rpc in self.memory.answered(operation):
            if (transaction := self.answered.get(rpc)) is not None:
                transaction.late.append(operation)
                self._late[rpc] = transaction
        self.settling.add_operation(RdmaOperation(self.conversation, operation, (False, False)))

    def idle(self, quiet: int) -> None:
        """Settle what waited: the connection was silent for ``quiet`` nanoseconds."""
        self.settling.idle(quiet)

    def forget(self, quiet: int) -> bool:
        """Whether the connection, silent for ``quiet`` nanoseconds, is over; drops what late packets would need."""
        if not self.connection.ended_by or quiet < SILENCE:
            return False
        self.settling.idle(quiet)
        self.memory = AdvertisedHistory(self.connection, self.open)
        self.xids = LastXids(), LastXids()
        return True

    def finish(self) -> None:
        self.settling.finish()
        for option in self.terms.promises:
            self._judge(self.settling.follow(option))
        self.terms.promises.clear()
        self.answers.finish()
        del self.settling, self.answers  # They hold this object by its methods; only the collector would free it.

    def _routine(self, message: Message, routine: Callable[[Message], bool]) -> bool:
        """Whether a message is judged by its class, and only changes counts here."""
        return self._by_class is not None and self.terms.settled and routine(message)

    # Routine RPCs in columns

    @property
    def outstanding(self) -> int:
        """Number of unanswered forward calls that are objects."""
        return len(self.open[0])

    def rows_wanted(self, sends: RowSends, names: RpcNames) -> NDArray[np.bool_]:
        if self._by_class is None or message_class(self.conversation, True) is None:
            return super().rows_wanted(sends, names)
        return routine_rows(sends, names, self.back_channel)

    def rows_sent(self, rows: SentRows) -> None:
        if self.routine is None:
            self.routine = RoutineRows(self)
        calls, replies = rows.chosen(rows.is_call), rows.chosen(~rows.is_call)
        self.routine.take(calls, replies)
        offering = calls.handle >= 0
        for number, handle in zip(calls.number[offering].tolist(), calls.handle[offering].tolist(), strict=True):
            self.routine.offers[number] = self.memory.offer(0, [handle])
        xids = calls.xid.tolist()
        self.xids[0].add(xids)
        self.xids[1].add(replies.xid.tolist())
        if self.errored[0]:
            for xid in xids:
                self.errored[0].pop(xid, None)
        self.has_called[0] |= len(replies.frame) > 0
        answered = zip(replies.call_frame[-MAX_CALLS:].tolist(), replies.frame[-MAX_CALLS:].tolist(), strict=True)
        self.answers.note_answered(0, [*answered])
        self.terms.routine_sent(len(xids), replies.time.tolist())
        self.answers.versions[0].add(1)
        self.answers.versions[1].add(1)

    def row_made(self, rpc: Rpc) -> None:
        routine = self.routine
        assert rpc.call is not None and routine is not None
        transaction = self._transaction(routine, rpc)
        if transaction.flow is WITHIN and rpc.reply is None:
            transaction.flow = routine.waiting(rpc.call)
        if transaction.flow is not WITHIN:
            self.grants.unrelieved[0].append(transaction)
        self.settling.add_routine(rpc, True)
        for chunk in rpc.chunks:
            for operation in chunk.segments[0].operations:
                self.settling.add_operation(RdmaOperation(self.conversation, operation, (False, False)))
        if rpc.reply is None:
            routine.made += 1
            self.open[0][rpc] = transaction
            return
        self.answered[rpc] = transaction
        if rpc.chunks:
            self.settling.add(SentMessage(self.conversation, rpc.reply, 1, False, rpc))
        else:
            self.settling.add_routine(rpc, False)

    def rows_ended(self, rows: Rows, rpcs: RpcRows | None) -> None:
        routine, self.routine = self.routine, None  # It holds all rows of the batch.
        if rpcs is None:
            return
        assert routine is not None
        for frame in rows["reply_frame"][rows["reply_frame"] < rows["call_frame"]].tolist():
            self.connection.disorder(frame)
        long = rows["transfer"] >= 0
        answers = rows["reply_frame"].argsort()
        self._judge_messages(rpcs, rows, True)
        self._judge_messages(rpcs, rows[answers[~long[answers]]], False)
        numbers = rows["number"].tolist()
        offers = {index: routine.offers[number] for index, number in enumerate(numbers) if number in routine.offers}
        exceeding = {index for index, number in enumerate(numbers) if number in routine.exceeding}
        alone = self._alone(offers, rows) | exceeding
        if long.any():
            invalidates = rows["invalidated"] >= 0
            for is_call in (False, True):
                mine = answers[(long & (invalidates == is_call))[answers]]
                self._judge_messages(rpcs, rows[mine], False, "returned", is_call)
            self._judge_all(("inside",), partial(self._made_transfers, rpcs), rows[long])
            by_itself = np.zeros(len(rows), np.bool_)
            by_itself[[*alone]] = True
            self.memory.keep(rpcs.without_bytes(rows[long & ~by_itself][-MAX_ADVERTISERS:]))
        self._judge_transactions(offers, rpcs, rows, [index not in alone for index in range(len(rows))])
        for index in sorted(alone):
            (rpc,) = made(rpcs, rows[index : index + 1])
            transaction = self._transaction(routine, rpc)
            if index in offers:
                self.answered[rpc] = transaction
            self.settling.add(transaction)

    def _alone(self, offers: Mapping[int, Offer], rows: Rows) -> set[int]:
        """Indices of calls whose RPCs are judged individually, or that a late RDMA Write may still touch."""
        recent = rows["reply_frame"] > self.settling.frame - REORDERED
        return {index for index, offer in offers.items() if offer.remarkable or recent[index]}

    def _transaction(self, routine: RoutineRows, rpc: Rpc) -> Transaction:
        """The Transaction of a call that was a row."""
        assert rpc.call is not None
        transaction = Transaction(self.conversation, rpc, routine.exceeding.get(rpc.number, WITHIN))
        if rpc.number in routine.offers:
            transaction.handle_step, transaction.persistent = routine.offers[rpc.number]
            self.memory.remember(rpc, 0)
        return transaction

    def _judge_transactions(self, offers: Mapping[int, Offer], rpcs: RpcRows, rows: Rows, within: list[bool]) -> None:
        number = self.connection.number
        step = np.zeros(len(rows), np.int64)
        for index, offer in offers.items():
            step[index] = 1 if offer.step.run < PREDICTABLE else 2
        of_call, of_reply = (rows[f"{side}_captured"] == rows[f"{side}_send"] for side in ("call", "reply"))
        of_reply &= rows["flags"] & FLAG_CHUNKS_TRUNCATED == 0
        codes = ((rows["procedure"].astype(np.int64) * 3 + step) * 2 + of_call) * 2 + of_reply
        codes[~np.array(within, np.bool_)] = -1
        for code in unique(codes[codes >= 0]).tolist():
            procedure, stepped = divmod(code >> 2, 3)
            names = rpcs.names.procedures[procedure]
            if names.program == NFS:
                self.sides_known.add(number)
            mine = (codes == code).nonzero()[0]
            key: tuple[Hashable, ...] = *names[:2], *names[3:5], bool(code & 2), bool(code & 1)
            if stepped:
                key = "long", stepped == 1, *key
            self._judge_all(
                key,
                partial(self._made_transactions, rpcs, [offers.get(index) for index in mine.tolist()]),
                rows[mine],
            )

    def _judge_messages(self, rpcs: RpcRows, rows: Rows, is_call: bool, *more: Hashable) -> None:
        key = message_class(self.conversation, is_call)
        messages = partial(self._made_messages, rpcs, is_call)
        if key is not None:
            self._judge_all((*more, key) if more else key, messages, rows)
        else:
            for sent in messages(rows):
                self._judge(sent)

    def _judge_all(self, key: Hashable, subjects: Callable[[Rows], Iterator[Subject]], rows: Rows) -> None:
        assert self._by_class is not None
        if len(rows):
            self._by_class(key, partial(subjects, rows), self.connection.number, len(rows))

    def _made_messages(self, rpcs: RpcRows, is_call: bool, rows: Rows) -> Iterator[SentMessage]:
        return self._messages(each_made(rpcs, rows), is_call)

    def _made_transfers(self, rpcs: RpcRows, rows: Rows) -> Iterator[RdmaOperation]:
        for rpc in each_made(rpcs, rows):
            (operation,) = rpc.chunks[0].segments[0].operations
            moved = RdmaOperation(self.conversation, operation, (True, self.has_called[1]), "inside", rpc)
            yield self.settling.follow(moved)

    def _made_transactions(self, rpcs: RpcRows, offers: list[Offer | None], rows: Rows) -> Iterator[Transaction]:
        for offer, rpc in zip(offers, each_made(rpcs, rows), strict=True):
            transaction = Transaction(self.conversation, rpc, WITHIN)
            if offer is not None:
                transaction.handle_step, transaction.persistent = offer
            yield transaction

    # Before and after a judgement

    def _settled_routine(self, messages: list[tuple[Rpc, bool]]) -> None:
        """Judge routine messages by what is known of the connection by now."""
        assert self._by_class is not None
        keys = message_class(self.conversation, False), message_class(self.conversation, True)
        for rpc, is_call in messages:
            key = keys[is_call]
            if key is None:
                self._judge(next(self._messages([rpc], is_call)))
            else:
                self._by_class(key, partial(self._messages, [rpc], is_call), self.connection.number)

    def _messages(self, rpcs: Iterable[Rpc], is_call: bool) -> Iterator[SentMessage]:
        for rpc in rpcs:
            message = rpc.call if is_call else rpc.reply
            assert message is not None
            sent = SentMessage(self.conversation, message, 0 if is_call else 1, is_call, rpc)
            yield self.settling.follow(sent)

    def _note_answered(self, caller: int, call_frame: int, reply_frame: int) -> None:
        self.has_called[caller] = True
        self.answers.note_answered(caller, [(call_frame, reply_frame)])

    def _unread(self, sender: int, call: UnreadCall) -> None:
        self.unread_calls[sender].append(call)
        del self.unread_calls[sender][:-MAX_UNREAD]

    def _place(self, moved: RdmaOperation) -> None:
        moved.calls_truncated = self.calls_truncated
        frame = moved.operation.first_frame
        unread = self.unread_calls[1 - moved.operation.initiator]
        moved.calls_unread = any(call.frame <= frame <= (call.answered or frame) for call in unread)
        moved.callers = self.has_called[0], self.has_called[1]
        self.memory.place(moved)

    def _settled(self, subject: Subject) -> None:
        """Judge a noun.  The last noun of an Rpc is its Transaction."""
        if isinstance(subject, Transaction):
            self.answered.pop(subject.rpc, None)
        if self._by_class is not None and (key := settled_class(subject)) is not None:
            self._by_class(key, lambda: iter((subject,)), self.connection.number)
        else:
            self._judge(subject)
        if self.release is not None and isinstance(subject, Transaction):
            self.release(subject.rpc)

    def _give_up(self, unanswered: RefusableMessage) -> None:
        self.settling.follow(unanswered)
        sender, known = unanswered.sender, self.connection.number in self.sides_known
        # A client shows by calls of its own, too, that the connection went on.
        callers = (0, 1) if sender and known else (sender,)
        later = self.answers.later(unanswered.message.frame, *callers)
        requests = unanswered.option is not None and isinstance(unanswered.option.content, ReqXch)
        # An RDMA_ERROR is sent at once; when a request for a change is answered is not said.
        last = 1 if requests and not self.connection.ended_by else 0
        unanswered.passed_over = later[last] if last < len(later) else 0
        self._judge(unanswered)

    def _answered(self, caller: int, xid: int, frame: int) -> None:
        """Note that an undecodable message was answered, so that its memory is no longer in use."""
        for call in self.unread_calls[caller]:
            if call.xid == xid and not call.answered:
                call.answered = frame

    # Messages and options

    def _sent(self, sent: SentMessage) -> SentMessage:
        """Update what version 2 settled; the message itself is judged by what was settled before it."""
        terms = self.terms
        was_settled = terms.settled
        terms.see(sent)
        if terms.settled and not was_settled and sent.header.version == 2:
            self.answers.version_settled()
        if sent.header.procedure == RDMA_OPTIONAL:
            self._option(sent)
        return sent

    def _option(self, sent: SentMessage) -> None:
        option = self.terms.option(sent)
        if option is None:
            return
        option.calls_back = self.back_channel.calls_back
        if option.message.header.direction == REPLY:
            self.grants.replied(1 - option.sender, option.message)
        self.answers.option(option, sent, self.terms.options[1 - option.sender])
        for ready in self.terms.keep(option):
            self.settling.add(ready)
