"""The watcher: looks on at one connection, and makes the nouns that rules look at.

What a capture may show out of order is judged ``REORDERED`` frames later; memory is bounded by that and by a number of
remembered XIDs, handles and calls.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from ..layers.oncrpc_codes import REPLY
from ..layers.rpcrdma_codes import ERR_VERS, RDMA_DONE, RDMA_ERROR, RDMA_MSGP, RDMA_NOMSG, RDMA_OPTIONAL
from ..onc import compound as nfs4
from ..onc.programs import NFS, NFS_CALLBACK
from ..rpcrdma.characteristics import RespXch
from ..rpcrdma.memory import REORDERED
from ..rpcrdma.messages import Message
from ..rpcrdma.rpcs import Rpc
from ..transport.connection import Connection
from ..transport.operations import Kind, Operation
from .grants import CreditGrants
from .memory import AdvertisedSegments
from .nouns import RdmaOperation, RefusableMessage, SentMessage, SentOption
from .remembered import REMEMBERED, remember
from .subject import Subject
from .terms import Refusals, VersionTwoState
from .transaction import Transaction

PAUSE = 300_000_000
"""Nanoseconds of silence, after which a capture shows nothing in another order than it happened."""
SILENCE = 10_000_000_000
"""The same, after which nobody waits for a later message that shows whether one is missing."""


class AuditListener:
    """An ``exchange.Watch``.  Gives each noun to ``judge`` when nothing can change it any more."""

    def __init__(
        self,
        connection: Connection,
        judge: Callable[[Subject], None],
        sides_known: set[int],
        refusals: Refusals,
        release: Callable[[Rpc], None] | None = None,
    ) -> None:
        """``release`` is given every Rpc whose contents are not looked at any more."""
        self.connection = connection
        self.judge = judge
        self.release = release
        self.sides_known = sides_known
        self.frame = 0
        self.open: tuple[dict[Rpc, Transaction], ...] = ({}, {})
        """Calls without a reply, by caller."""
        self.waiting: deque[tuple[int, Subject]] = deque()
        """What is judged when the capture has passed a frame by so much that nothing can change it."""
        self.answered: OrderedDict[Rpc, Transaction] = OrderedDict()
        """Answered, and not judged yet."""
        self.moves: deque[tuple[int, RdmaOperation]] = deque()
        self.memory = AdvertisedSegments(connection)
        self.grants = CreditGrants()
        self.terms = VersionTwoState(connection, refusals)
        self.xids: tuple[OrderedDict[int, None], ...] = (OrderedDict(), OrderedDict())
        """Of messages that either end sent."""
        self.errored: tuple[OrderedDict[int, Rpc], ...] = (OrderedDict(), OrderedDict())
        """Calls of either end that an RDMA_ERROR answered."""
        self.mishaps: tuple[OrderedDict[int, RefusableMessage], ...] = (OrderedDict(), OrderedDict())
        """By sender and XID; those of options apart, for options have no reply."""
        self.options: tuple[OrderedDict[int, RefusableMessage], ...] = (OrderedDict(), OrderedDict())
        self.early: OrderedDict[tuple[int, int], SentMessage] = OrderedDict()
        """Answers to options that were not seen, by sender and XID."""
        self.last_sent = [0, 0]
        """Frame of the last message of either end."""
        self.last_answered = [0, 0]
        """Frame of the last call of either end that was answered."""
        self.announced = ""
        self.calls_cut = False
        self.calls_unread = False
        self.calls_back = False
        """The server has called the client."""

    # Events

    def called(self, rpc: Rpc) -> None:
        assert rpc.call is not None
        message, caller = rpc.call, int(rpc.backward)
        self._clock(message.operation)
        transaction = Transaction(self.connection, rpc)
        transaction.responder_seen = bool(self.last_sent[1 - caller])
        self.open[caller][rpc] = transaction
        self.grants.called(caller, transaction, len(self.open[caller]))
        if message.header.truncated:
            self.calls_cut = True
        if rpc.chunks:
            self.memory.advertise(transaction, caller, self.open[caller])
        remember(self.xids[caller], rpc.xid, None)
        self.errored[caller].pop(rpc.xid, None)
        sent = self._sent(SentMessage(self.connection, message, caller, True, rpc))
        if rpc.backward:
            self.calls_back = True
            sent.announced, sent.calls_unread = self.announced, self.calls_unread
        self._mishap(caller, message, rpc)
        self.waiting.append((self.frame, sent))

    def replied(self, rpc: Rpc) -> None:
        assert rpc.reply is not None
        message, caller = rpc.reply, int(rpc.backward)
        self._clock(message.operation)
        sent = self._sent(SentMessage(self.connection, message, 1 - caller, False, rpc))
        sent.errored = self.errored[caller].get(rpc.xid) if rpc.call is None else None
        sent.xid_seen = rpc.call is not None or rpc.xid in self.xids[caller]
        remember(self.xids[1 - caller], rpc.xid, None)
        if message.header.procedure == RDMA_ERROR and rpc.call is None:
            self._refused(sent)
        self._answered(self.mishaps[caller].pop(rpc.xid, None), message)
        if rpc.call is not None and rpc.call.header.procedure == RDMA_OPTIONAL:
            self._answered(self.options[caller].pop(rpc.xid, None), message)
        transaction = self.open[caller].pop(rpc, None)
        if transaction is not None:
            self.answered[rpc] = transaction
            assert rpc.call is not None
            self.last_answered[caller] = max(self.last_answered[caller], rpc.call.frame)
        self.grants.replied(caller, message)
        if message.header.procedure == RDMA_ERROR and rpc.call is not None:
            remember(self.errored[caller], rpc.xid, rpc)
        self.waiting.append((self.frame, sent))

    def ended(self, rpc: Rpc) -> None:
        caller = int(rpc.backward)
        transaction = self.open[caller].pop(rpc, None) or self.answered.get(rpc)
        if transaction is None:
            return  # a reply alone; released when it was judged
        if (rpc.program == NFS and not rpc.backward) or (rpc.program == NFS_CALLBACK and rpc.backward):
            self.sides_known.add(self.connection.number)
        if not rpc.backward:
            if rpc.operations:
                self._announcement(transaction)
            if rpc.call is not None and not (rpc.call.operation.payload.whole and rpc.call.operation.end_known):
                self.calls_unread = True
        self.answered[rpc] = transaction
        self.waiting.append((self.frame, transaction))
        self._settle()

    def stray(self, sender: int, message: Message) -> None:
        header = message.header
        self._clock(message.operation)
        sent = self._sent(SentMessage(self.connection, message, sender, None, None))
        if header.procedure == RDMA_ERROR:
            sent.xid_seen = header.xid in self.xids[1 - sender]
            self._refused(sent)
        remember(self.xids[sender], header.xid, None)
        self.waiting.append((self.frame, sent))
        self._mishap(sender, message, None)

    def moved(self, operation: Operation) -> None:
        self._clock(operation)
        if not operation.length:
            return
        for advert in self.memory.candidates(operation):
            reply = advert.rpc.reply
            transaction = self.answered.get(advert.rpc)
            if reply is not None and transaction is not None and self.memory.behind(operation, reply):
                transaction.late.append(operation)
        self.moves.append((operation.first_frame, RdmaOperation(self.connection, operation, (False, False))))

    def idle(self, quiet: int) -> None:
        """The connection said nothing for ``quiet`` nanoseconds: judge what something was sent behind, later all."""
        if quiet >= PAUSE and (self.waiting or self.moves):
            everything = quiet >= SILENCE or bool(self.connection.ended_by)
            self._settle(everything=everything, followed=not everything)

    def finish(self) -> None:
        self.frame += 2 * REORDERED
        self._settle()
        for option in self.terms.promises:
            self._follow(option, option.message.frame)
            self.judge(option)
        self.terms.promises.clear()
        for table in (*self.mishaps, *self.options):
            for mishap in table.values():
                self._give_up(mishap)
            table.clear()

    # State

    def _clock(self, operation: Operation) -> None:
        if operation.kind is Kind.SEND:
            sender = operation.initiator
            self.last_sent[sender] = max(self.last_sent[sender], operation.last_frame)
        if operation.last_frame > self.frame:
            self.frame = operation.last_frame
            self._settle()

    def _settle(self, everything: bool = False, followed: bool = False) -> None:
        """Judge what nothing can change any more; ``followed``: what both ends sent something behind."""
        before = self.frame - REORDERED
        if everything:
            before = self.frame + 1
        elif followed:
            before = min(self.last_sent)
        while self.moves and self.moves[0][0] < before:
            frame, movement = self.moves.popleft()
            movement.calls_cut = self.calls_cut
            movement.callers = bool(self.last_answered[0]), bool(self.last_answered[1])
            self.memory.place(movement)
            self._follow(movement, frame)
            self.judge(movement)
        while self.waiting and self.waiting[0][0] < before:
            subject = self.waiting.popleft()[1]
            if isinstance(subject, Transaction):
                self.answered.pop(subject.rpc, None)
            self._follow(subject, subject.frames[0])
            self.judge(subject)
            if self.release is not None:
                self._release(subject)

    def _release(self, subject: Subject) -> None:
        """The last that is judged of an Rpc is its Transaction; without a call there is none, only the reply."""
        rpc = subject.rpc if isinstance(subject, Transaction | SentMessage) else None
        if rpc is not None and self.release is not None and (isinstance(subject, Transaction) or rpc.call is None):
            self.release(rpc)

    def _follow(self, subject: Subject, frame: int) -> None:
        subject.followed = self.last_sent[0] > frame, self.last_sent[1] > frame

    def _sent(self, sent: SentMessage) -> SentMessage:
        """A message is seen by the terms of the connection, and they are seen by it."""
        terms = self.terms
        was_settled = terms.settled
        terms.see(sent)
        if terms.settled and not was_settled and sent.header.version == 2:
            self._supported()
        if sent.header.procedure == RDMA_OPTIONAL and (option := terms.option(sent)) is not None:
            self._option(option, sent)
        return sent

    def _option(self, option: SentOption, sent: SentMessage) -> None:
        """An RDMA2_OPTIONAL: it may tell the peer something, answer it, or be refused by it."""
        terms, sender, message = self.terms, option.sender, option.message
        option.calls_back = self.calls_back
        if message.header.direction == REPLY:
            self.grants.replied(1 - sender, message)
        if isinstance(option.content, RespXch):
            request = option.request
            mishap = None if request is None else self.options[1 - sender].pop(request.xid, None)
            if mishap is None:
                self._early(sent)
                for waiting in self.options[1 - sender].values():
                    waiting.other_answer = True
            self._answered(mishap, message)
        for ready in terms.keep(option):
            self.waiting.append((self.frame, ready))
        message.detach()  # it may wait for long
        table = self.options[sender]
        if message.header.xid in table:  # one-way messages may have any XID; nothing will answer the earlier one
            table[-message.frame] = table.pop(message.header.xid)
        table[message.header.xid] = mishap = RefusableMessage(self.connection, message, sender, "option", option=option)
        mishap.sent, mishap.receiver_seen = terms.options[1 - sender], bool(self.last_sent[1 - sender])
        early = self.early.pop((1 - sender, message.header.xid), None)
        if early is not None and message.frame - early.message.frame <= REORDERED:
            early.xid_seen, early.answers = True, message
            self._answered(table.pop(message.header.xid), early.message)
        elif len(table) > REMEMBERED:
            self._give_up(table.popitem(last=False)[1])

    def _early(self, sent: SentMessage) -> None:
        """An answer to nothing; a capture may show an answer just before its question."""
        remember(self.early, (sent.sender, sent.message.header.xid), sent)

    def _refused(self, sent: SentMessage) -> None:
        """An RDMA_ERROR that answers no call: perhaps an option."""
        if sent.header.error == ERR_VERS:
            self._answered(self.mishaps[1 - sent.sender].pop(sent.message.header.xid, None), sent.message)
        mishap = self.options[1 - sent.sender].pop(sent.message.header.xid, None)
        if mishap is None:
            self._early(sent)
        else:
            sent.answers = mishap.message
            self._answered(mishap, sent.message)

    def _supported(self) -> None:
        """Version 2 is settled: that it was asked for is no mishap."""
        for xid in [xid for xid, one in self.mishaps[0].items() if one.message.header.version == 2]:
            if self.mishaps[0][xid].kind == "version":
                del self.mishaps[0][xid]

    def _answered(self, mishap: RefusableMessage | None, answer: Message) -> None:
        if mishap is not None:
            mishap.answer = answer
            self.waiting.append((self.frame, mishap))

    def _mishap(self, sender: int, message: Message, rpc: Rpc | None) -> None:
        kind = mishap_kind(message, self.connection.negotiation.settled == 2)
        if kind:
            message.detach()  # it may wait for long
            table = self.mishaps[sender]
            table[message.header.xid] = mishap = RefusableMessage(self.connection, message, sender, kind, rpc=rpc)
            mishap.receiver_seen = bool(self.last_sent[1 - sender])
            if len(table) > REMEMBERED:
                self._give_up(table.popitem(last=False)[1])

    def _give_up(self, mishap: RefusableMessage) -> None:
        """Nothing will answer it."""
        self._follow(mishap, mishap.message.frame)
        mishap.passed_over = self.last_answered[mishap.sender] > mishap.message.frame
        self.judge(mishap)

    def _announcement(self, transaction: Transaction) -> None:
        """Note an operation by which an NFSv4.1 client says that it is ready for callbacks (RFC 8881, 18.36, 18.34)."""
        rpc = transaction.rpc
        if self.announced or not {"CREATE_SESSION", "BIND_CONN_TO_SESSION"} & set(rpc.operations):
            return
        if rpc.program == NFS and backward_ready(transaction):
            self.announced = f"RPC {rpc.number}"


def mishap_kind(message: Message, second: bool) -> str:
    """What is wrong with a message that must be answered by RDMA_ERROR; '' where it need not.

    ``second``: version 2 has been settled.
    """
    header = message.header
    if header.truncated or header.length < 16 or not message.operation.end_known or header.procedure == RDMA_ERROR:
        return ""
    if header.version != 1 and not (header.version == 2 and second):
        return "version"
    if header.version == 1 and header.procedure in (RDMA_MSGP, RDMA_DONE):
        return "reserved"
    if header.problem or (header.procedure == RDMA_NOMSG and not header.chunks):
        return "header"
    return ""


def backward_ready(transaction: Transaction) -> bool:
    """A call offers its connection for callbacks."""
    head = transaction.call_head
    if head is None or head.body < 0:
        return False
    stream = transaction.call_stream
    compound = nfs4.compound_call(stream, head.body, len(stream), transaction.reduced, origin=0)
    return nfs4.offers_back_channel(compound, stream)
