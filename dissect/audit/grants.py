"""Credits in either direction of one connection, at the moment of each call."""

from __future__ import annotations

from ..layers.rpcrdma_codes import RDMA_ERROR
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.messages import Message
from .lru import REMEMBERED
from .transaction import CreditState, Transaction

LOWERING = 1_000_000_000
"""Nanoseconds that a lower grant may need to reach the requester."""


class CreditGrants:
    """Requested and granted, by caller."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.explained = [0, 0]
        """Replies without a call up to when the last call alone was outstanding: they are none to a later one."""
        self.granted: list[int | None] = [None, None]
        """The latest."""
        self.higher: list[tuple[int, int]] = [(0, 0), (0, 0)]
        """A grant that was in force until that time, ns."""
        self.requested = [0, 0]
        self.unrelieved: tuple[list[Transaction], ...] = ([], [])
        """Calls since the last reply."""

    def called(self, caller: int, transaction: Transaction, outstanding: int) -> None:
        """A call takes a credit; ``outstanding`` counts it."""
        message = transaction.rpc.call
        assert message is not None
        transaction.flow = self.flow(caller, message.header.credits or 0, message.time, outstanding)
        self.unrelieved[caller].append(transaction)
        if len(self.unrelieved[caller]) > REMEMBERED:
            del self.unrelieved[caller][: REMEMBERED // 2]

    def flow(self, caller: int, credits: int, time: int, outstanding: int) -> CreditState:
        """Of a call that requests ``credits`` at ``time`` (ns)."""
        grant = self.granted[caller]
        requested = max(1, credits or 1, self.requested[caller])
        self.requested[caller] = credits
        if outstanding == 1:
            self.explained[caller] = self.conversation.unmatched_replies[caller]
        unmatched = self.unmatched(caller)
        if grant is None:
            return CreditState(outstanding, None, None, None, unmatched)
        before, until = self.higher[caller]
        highest = max(grant, before) if time < until else grant
        limits = min(requested, max(1, grant)), min(requested, max(1, highest))
        return CreditState(outstanding, *limits, grant, unmatched)

    def unmatched(self, caller: int) -> int:
        """Replies that fit no call, and may be those of calls that count as outstanding."""
        known = self.conversation.unmatched_replies[caller]
        self.explained[caller] = min(self.explained[caller], known)
        return known - self.explained[caller]

    def grant(self, caller: int, credits: int, time: int) -> None:
        """A reply grants ``credits`` at ``time`` (ns)."""
        old = self.granted[caller]
        if old is not None and credits < old:
            before, until = self.higher[caller]
            highest = max(old, before) if time < until else old
            self.higher[caller] = highest, time + LOWERING
        self.granted[caller] = credits

    def replied(self, caller: int, message: Message) -> bool:
        """Whether a reply grants credits; an RDMA_ERROR's word is not counted on."""
        credits, header = message.header.credits, message.header
        if credits is None or header.problem or header.procedure == RDMA_ERROR:
            return False
        self.grant(caller, credits, message.time)
        for transaction in self.unrelieved[caller]:
            assert transaction.rpc.call is not None
            transaction.relieved = message.time - transaction.rpc.call.time
        self.unrelieved[caller].clear()
        return True
