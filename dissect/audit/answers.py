"""Messages that their receiver may have to refuse, and what answered them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from ..layers.rpcrdma_codes import ERR_VERS, RDMA_DONE, RDMA_ERROR, RDMA_MSGP, RDMA_NOMSG, RDMA_OPTIONAL
from ..rpcrdma.characteristics import RespXch
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.memory import REORDERED
from ..rpcrdma.messages import Message
from ..rpcrdma.rpcs import Rpc
from .nouns import RefusableMessage, SentMessage, SentOption
from .remembered import REMEMBERED, remember
from .settling import Settling

MAX_VERSIONS = 16

Table = OrderedDict[int, RefusableMessage]
"""By XID."""


class Answers:
    """Of one connection."""

    def __init__(
        self, conversation: Conversation, settling: Settling, give_up: Callable[[RefusableMessage], None]
    ) -> None:
        """``give_up`` is given a message that nothing will answer any more."""
        self.conversation = conversation
        self.settling = settling
        self.give_up = give_up
        self.messages: tuple[Table, Table] = (OrderedDict(), OrderedDict())
        """By sender; options apart, since they have no reply."""
        self.options: tuple[Table, Table] = (OrderedDict(), OrderedDict())
        self.versions: tuple[set[int], set[int]] = (set(), set())
        """Of the messages that either end sent, RDMA_ERROR apart."""
        self.errors: tuple[set[int], set[int]] = (set(), set())
        """Of the RDMA_ERRORs."""
        self._early: OrderedDict[tuple[int, int], SentMessage] = OrderedDict()
        """Answers to options that were not seen, by sender and XID."""

    def sent(self, sender: int, message: Message, rpc: Rpc | None) -> None:
        """A message that may have to be refused."""
        header = message.header
        supported = header.version in self.versions[1 - sender]
        self.note_version(sender, message)
        kind = refusable_kind(message, supported or self.conversation.negotiation.settled == 2)
        if kind:
            message.detach()  # it may wait for long
            table = self.messages[sender]
            table[message.header.xid] = found = RefusableMessage(self.conversation, message, sender, kind, rpc=rpc)
            found.receiver_seen = bool(self.settling.last_sent[1 - sender])
            if len(table) > REMEMBERED:
                self.give_up(table.popitem(last=False)[1])

    def note_version(self, sender: int, message: Message) -> None:
        """Its sender supports the version of a message that is no RDMA_ERROR."""
        header = message.header
        versions = (self.errors if header.procedure == RDMA_ERROR else self.versions)[sender]
        if header.length >= 8 and len(versions) < MAX_VERSIONS:
            versions.add(header.version)

    def error_sent(self, sent: SentMessage) -> None:
        """An RDMA_ERROR: which versions it may answer."""
        peer = 1 - sent.sender
        sent.peer_versions = frozenset(self.versions[peer] | self.errors[peer])

    def option(self, option: SentOption, sent: SentMessage, sent_by_peer: set[int]) -> None:
        """An RDMA2_OPTIONAL, which may answer one of the peer and may be answered itself.

        ``sent_by_peer``: the rdma_opttypes that its receiver sends.
        """
        sender, message = option.sender, option.message
        if isinstance(option.content, RespXch):
            request = option.request
            asked = None if request is None else self.options[1 - sender].pop(request.xid, None)
            if asked is None:
                self._remember_early(sent)
                for waiting in self.options[1 - sender].values():
                    waiting.other_answer = True
            self._answered(asked, message)
        message.detach()  # it may wait for long
        table = self.options[sender]
        if message.header.xid in table:  # one-way messages may have any XID; nothing will answer the earlier one
            table[-message.frame] = table.pop(message.header.xid)
        table[message.header.xid] = found = RefusableMessage(
            self.conversation, message, sender, "option", option=option
        )
        found.sent, found.receiver_seen = sent_by_peer, bool(self.settling.last_sent[1 - sender])
        early = self._early.pop((1 - sender, message.header.xid), None)
        if early is not None and message.frame - early.message.frame <= REORDERED:
            early.xid_seen, early.answers = True, message
            self._answered(table.pop(message.header.xid), early.message)
        elif len(table) > REMEMBERED:
            self.give_up(table.popitem(last=False)[1])

    def replied(self, caller: int, rpc: Rpc, message: Message) -> None:
        """A reply, or an RDMA_ERROR, to a call of ``caller``."""
        self.note_version(1 - caller, message)
        self._answered(self.messages[caller].pop(rpc.xid, None), message)
        if rpc.call is not None and rpc.call.header.procedure == RDMA_OPTIONAL:
            self._answered(self.options[caller].pop(rpc.xid, None), message)

    def refused(self, sent: SentMessage) -> None:
        """An RDMA_ERROR that answers no call: perhaps an option, or what cannot be read."""
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
        """Version 2 is settled: a message of that version needs no refusal."""
        for xid in [xid for xid, one in self.messages[0].items() if one.message.header.version == 2]:
            if self.messages[0][xid].kind == "version":
                del self.messages[0][xid]

    def finish(self) -> None:
        for table in (*self.messages, *self.options):
            for one in table.values():
                self.give_up(one)
            table.clear()

    def _remember_early(self, sent: SentMessage) -> None:
        """An answer to nothing; a capture may show an answer just before its question."""
        remember(self._early, (sent.sender, sent.message.header.xid), sent)

    def _answered(self, asked: RefusableMessage | None, answer: Message) -> None:
        if asked is not None:
            asked.answer = answer
            self.settling.add(asked)


def refusable_kind(message: Message, second: bool) -> str:
    """What is wrong with a message that must be answered by RDMA_ERROR; '' where it need not.

    ``second``: version 2 has been settled, or its receiver uses that version itself.
    """
    header = message.header
    if header.truncated or header.length < 16 or not message.operation.end_known:
        return ""
    if header.procedure == RDMA_ERROR:
        return "error" if header.problem else ""
    if header.version != 1 and not (header.version == 2 and second):
        return "version"
    if header.version == 1 and header.procedure in (RDMA_MSGP, RDMA_DONE):
        return "reserved"
    if header.problem or (header.procedure == RDMA_NOMSG and not header.chunks):
        return "header"
    return ""
