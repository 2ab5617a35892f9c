"""What the order of messages on a connection tells of version 2, beside what ``Conversation`` says is in force."""

from __future__ import annotations

from collections.abc import Sequence

from ..layers.characteristics_codes import XCHAR_RBSIZ
from ..layers.rpcrdma_codes import ERR_VERS, RDMA_ERROR, RDMA_OPTIONAL
from ..rpcrdma.characteristics import RespXch, decode_option
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.messages import Message
from ..rpcrdma.version_loops import VersionRefusals
from .nouns import MessageOrder, SentMessage, SentOption
from .remembered import REMEMBERED

LOWERING = 1_000_000_000
"""Nanoseconds that a smaller receive buffer may need to become known to its peer."""
MAX_OPTIONS = 64
"""Kinds of options that are remembered of an end."""


class VersionTwoState:
    """Of one connection."""

    def __init__(self, conversation: Conversation, refusals: VersionRefusals) -> None:
        """``refusals`` is shared by all connections."""
        self.conversation = conversation
        self.refusals = refusals
        self.sent = [0, 0]
        """Messages of either end."""
        self.opening: list[SentMessage] = []
        """Messages of the client that nothing has answered, before an answer that is no error."""
        self.waiting = 0
        """How many they are."""
        self.settled = False
        """There was one."""
        self.larger = [(0, 0), (0, 0)]
        """A larger Receive Buffer Size of either end that its peer may go by until that time, ns."""
        self.options: tuple[set[int], set[int]] = (set(), set())
        """The rdma_opttypes that either end sent."""
        self.promises: list[SentOption] = []
        """ROPT_RESPXCHs by which a change is pending."""

    def see(self, sent: SentMessage) -> None:
        """A message passes."""
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
            self.opening.append(sent)
            del self.opening[:-REMEMBERED]
            self.waiting += 1
            return
        for one in self.opening:
            one.relieved = message.time - one.message.time
        self.settled = bool(self.waiting) and header.procedure != RDMA_ERROR and not header.problem
        self.opening.clear()
        self.waiting = 0

    def plain_sent(self, calls: int, replies: Sequence[int]) -> None:
        """Plain messages of version 1 pass; ``replies`` are the times of those of the server, ns."""
        self.sent[0] += calls
        self.sent[1] += len(replies)
        if self.settled or not replies:
            return
        for one in self.opening:
            one.relieved = replies[0] - one.message.time
        self.opening.clear()
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
        """The option in a message, where there is one that can be read."""
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
        """The options that can be judged now: those that promise something wait for the end."""
        if not isinstance(option.content, RespXch) or not option.content.pending:
            return [option]
        self.promises.append(option)
        return [self.promises.pop(0)] if len(self.promises) > REMEMBERED else []
