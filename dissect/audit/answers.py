"""Which messages were answered, among those that may have to be: undecodable ones, options, other versions."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable

from ..layers.rpcrdma_codes import ERR_VERS, RDMA_DONE, RDMA_ERROR, RDMA_MSGP, RDMA_NOMSG, RDMA_OPTIONAL
from ..rpcrdma.characteristics import ReqXch, RespXch
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.memory import REORDERED
from ..rpcrdma.messages import Message
from ..rpcrdma.rpcs import Rpc
from .events import RefusableMessage, SentMessage, SentOption, Settling
from .transaction import REMEMBERED, remember

MAX_VERSIONS = 16
MAX_CALLS = 64
"""Answered calls kept per end."""

Table = OrderedDict[int, RefusableMessage]
"""By XID."""


class Answers:
    """Tracks which requests of one connection were answered."""

    def __init__(
        self, conversation: Conversation, settling: Settling, give_up: Callable[[RefusableMessage], None]
    ) -> None:
        """``give_up``: takes a message that will not be answered any more."""
        self.conversation = conversation
        self.settling = settling
        self.give_up = give_up
        self.messages: tuple[Table, Table] = (OrderedDict(), OrderedDict())
        """By sender; options are separate, as they have no reply."""
        self.options: tuple[Table, Table] = (OrderedDict(), OrderedDict())
        self.versions: tuple[set[int], set[int]] = (set(), set())
        """By sender: versions of its messages, except RDMA_ERRORs."""
        self.errors: tuple[set[int], set[int]] = (set(), set())
        """By sender: versions of its RDMA_ERRORs."""
        self.answered_calls: tuple[list[tuple[int, int]], ...] = ([], [])
        """By caller: frames of its latest answered calls, and of their replies."""
        self._early: OrderedDict[tuple[int, int], SentMessage] = OrderedDict()
        """By sender and XID: answers to options that were not seen."""
        self._stray_errors: tuple[list[int], list[int]] = ([], [])
        """By sender: frames of RDMA_ERRORs with XIDs that no message had, in order."""
        self._stray_responses: tuple[list[int], list[int]] = ([], [])
        """By sender: frames of such ROPT_RESPXCHs, in order."""

    def sent(self, sender: int, message: Message, rpc: Rpc | None) -> None:
        """Note a message that may have to be refused."""
        supported = message.header.version in self.versions[1 - sender]
        self.note_version(sender, message)
        kind = refusable_kind(message, supported or self.conversation.negotiation.settled == 2)
        if kind:
            message.detach()  # it may wait for long
            table = self.messages[sender]
            table[message.header.xid] = refusable = RefusableMessage(self.conversation, message, sender, kind, rpc=rpc)
            refusable.receiver_seen = bool(self.settling.messages[1 - sender])
            if len(table) > REMEMBERED:
                self._overdue(table)

    def note_version(self, sender: int, message: Message) -> None:
        """Note that the sender of a message supports its version, unless it is an RDMA_ERROR."""
        header = message.header
        versions = (self.errors if header.procedure == RDMA_ERROR else self.versions)[sender]
        if header.length >= 8 and len(versions) < MAX_VERSIONS:
            versions.add(header.version)

    def error_sent(self, sent: SentMessage) -> None:
        """Note which versions an RDMA_ERROR may answer."""
        peer = 1 - sent.sender
        sent.peer_versions = frozenset(self.versions[peer] | self.errors[peer])

    def option(self, option: SentOption, sent: SentMessage, sent_by_peer: set[int]) -> None:
        """Note an RDMA2_OPTIONAL, which may answer one of the peer and may be answered itself.

        ``sent_by_peer``: the rdma_opttypes that its receiver sends.
        """
        sender, message = option.sender, option.message
        if isinstance(option.content, RespXch):
            request = option.request
            asked = None if request is None else self.options[1 - sender].pop(request.xid, None)
            if asked is None:
                self._remember_early(sent)
            self._answered(asked, message)
        message.detach()  # it may wait for long
        table = self.options[sender]
        if message.header.xid in table:  # one-way messages may have any XID; nothing will answer the earlier one
            table[-message.frame] = table.pop(message.header.xid)
        table[message.header.xid] = refusable = RefusableMessage(
            self.conversation, message, sender, "option", option=option
        )
        refusable.sent, refusable.receiver_seen = sent_by_peer, bool(self.settling.messages[1 - sender])
        early = self._early.pop((1 - sender, message.header.xid), None)
        if early is not None and message.frame - early.message.frame <= REORDERED:
            early.xid_seen, early.answers = True, message
            for strays in (self._stray_errors, self._stray_responses):
                if early.message.frame in strays[early.sender]:
                    strays[early.sender].remove(early.message.frame)
            self._answered(table.pop(message.header.xid), early.message)
        elif len(table) > REMEMBERED:
            self._overdue(table)

    def note_answered(self, caller: int, calls: list[tuple[int, int]]) -> None:
        """Note the frames of one end's calls and of their replies."""
        last = self.answered_calls[caller]
        last += calls[-MAX_CALLS:]
        del last[:-MAX_CALLS]

    def later(self, frame: int, *callers: int) -> list[int]:
        """The frames of replies to calls after ``frame``, among those that are kept."""
        return sorted(reply for caller in callers for call, reply in self.answered_calls[caller] if call > frame)

    def replied(self, caller: int, rpc: Rpc, message: Message) -> None:
        """Note a reply, or an RDMA_ERROR, to a call of ``caller``."""
        self.note_version(1 - caller, message)
        asked = self.messages[caller].get(rpc.xid)
        if asked is not None and (
            rpc.call is None or rpc.call.frame == asked.message.frame or message.header.procedure == RDMA_ERROR
        ):  # Otherwise it answers another call with its XID, in another version.
            del self.messages[caller][rpc.xid]
            self._answered(asked, message)
        if rpc.call is not None and rpc.call.header.procedure == RDMA_OPTIONAL:
            self._answered(self.options[caller].pop(rpc.xid, None), message)

    def refused(self, sent: SentMessage) -> None:
        """Note an RDMA_ERROR that answers no call, but perhaps an option, or an undecodable message."""
        messages, xid = self.messages[1 - sent.sender], sent.message.header.xid
        if xid in messages and (sent.header.error == ERR_VERS or messages[xid].kind != "version"):
            refused = messages.pop(xid)
            sent.answers = refused.message
            self._answered(refused, sent.message)
        asked = self.options[1 - sent.sender].pop(sent.message.header.xid, None)
        if asked is None:
            self._remember_early(sent)
        else:
            sent.answers = asked.message
            self._answered(asked, sent.message)

    def version_settled(self) -> None:
        """Version 2 is settled: messages of that version need no refusal for it."""
        for xid, refusable in list(self.messages[0].items()):
            if refusable.kind == "version" and refusable.message.header.version == 2:
                refusable.kind = refusable_kind(refusable.message, True)
                if not refusable.kind:
                    del self.messages[0][xid]

    def finish(self) -> None:
        waiting = [refusable for table in (*self.messages, *self.options) for refusable in table.values()]
        # Start with the last message: an answer with another XID is most likely meant for the nearest one.
        for refusable in sorted(waiting, key=lambda refusable: refusable.message.frame, reverse=True):
            refusable.other_answer = self._take_stray(refusable)
        for refusable in waiting:
            self.give_up(refusable)
        for table in (*self.messages, *self.options):
            table.clear()

    def _overdue(self, table: Table) -> None:
        """Give up the oldest message of a full table."""
        refusable = table.popitem(last=False)[1]
        refusable.other_answer = self._take_stray(refusable)
        self.give_up(refusable)

    def _take_stray(self, refusable: RefusableMessage) -> bool:
        """Whether a message is followed by an answer that fits no message seen, and so may be meant for it; that answer
        is then used up."""
        if not refusable.asks:
            return False
        request = refusable.option is not None and isinstance(refusable.option.content, ReqXch)
        for strays in (self._stray_responses, self._stray_errors) if request else (self._stray_errors,):
            frames = strays[1 - refusable.sender]
            behind = bisect_right(frames, refusable.message.frame)
            if behind < len(frames):
                del frames[behind]
                return True
        return False

    def _remember_early(self, sent: SentMessage) -> None:
        """Keep an answer without a question, as a capture may show an answer just before its question."""
        remember(self._early, (sent.sender, sent.message.header.xid), sent)
        option = sent.header.procedure == RDMA_OPTIONAL
        if option or not (sent.xid_seen or sent.answers):
            frames = (self._stray_responses if option else self._stray_errors)[sent.sender]
            insort(frames, sent.message.frame)
            del frames[:-REMEMBERED]

    def _answered(self, asked: RefusableMessage | None, answer: Message) -> None:
        if asked is not None:
            asked.answer = answer
            self.settling.add(asked)


def refusable_kind(message: Message, second: bool) -> str:
    """What is wrong with a message that must be answered by RDMA_ERROR; '' if it need not be.

    ``second``: version 2 has been settled, or the receiver uses that version itself.
    """
    header = message.header
    if header.length < 16:
        return ""
    if header.procedure != RDMA_ERROR and header.version != 1 and not (header.version == 2 and second):
        return "version"
    if header.truncated or not message.operation.end_known:
        return ""
    if header.procedure == RDMA_ERROR:
        return "error" if header.problem else ""
    if header.version == 1 and header.procedure in (RDMA_MSGP, RDMA_DONE):
        return "reserved"
    if header.problem or (header.procedure == RDMA_NOMSG and not header.chunks):
        return "header"
    return ""
