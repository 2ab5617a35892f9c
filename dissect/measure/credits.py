"""Credits over time: requested, granted, calls outstanding, and the time at the limit."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..layers.rpcrdma_codes import RDMA_ERROR
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.messages import Message
from ..rpcrdma.rpcs import Rpc
from ..transport.connection import Connection
from ..transport.operations import Operation

MAX_BINS = 2048


@dataclass(slots=True)
class CreditInterval:
    """One interval of time of one direction of a connection."""

    requested: int | None = None
    """Highest credit value in calls."""
    granted: int | None = None
    """Lowest credit value in replies."""
    outstanding: int = 0
    """Most calls without a reply at one time."""
    blocked: int = 0
    """Nanoseconds at the limit."""


@dataclass(slots=True)
class CreditDirection:
    """Forward or backward calls of one connection."""

    connection: Connection
    backward: bool
    width: int = 1_000_000
    """Nanoseconds of a bin."""
    bins: dict[int, CreditInterval] = field(default_factory=dict)
    """By time // width."""
    calls: int = 0
    replies: int = 0
    requested: tuple[int, int] | None = None
    """Lowest and highest."""
    granted: tuple[int, int] | None = None
    max_outstanding: int = 0
    """Most calls outstanding at one time."""
    blocked: int = 0
    """Nanoseconds with as many calls outstanding as the lower of requested and granted credits allows."""
    blockages: int = 0
    exceeded: int = 0
    """Calls sent beyond that."""
    first_time: int = 0
    last_time: int = 0
    outstanding: int = 0
    busy: int = 0
    """Sum over time of the calls outstanding: nanoseconds times calls."""
    latest_requested: int | None = None
    latest_granted: int | None = None

    @property
    def limit(self) -> int | None:
        """Calls that may be outstanding now; None before the first reply."""
        if self.latest_granted is None:
            return None
        granted = max(1, self.latest_granted)
        return granted if self.latest_requested is None else min(granted, max(1, self.latest_requested))

    @property
    def mean(self) -> float:
        """Calls outstanding, averaged over time."""
        return self.busy / max(1, self.last_time - self.first_time)

    def advance(self, time: int) -> None:
        """It is ``time`` (ns)."""
        if not self.first_time:
            self.first_time = self.last_time = time
        if time <= self.last_time:
            return
        passed = time - self.last_time
        self.busy += passed * self.outstanding
        limit = self.limit
        if limit is not None and self.outstanding >= limit:
            self.blocked += passed
            here, left = self.last_time, passed
            for _ in range(MAX_BINS):
                part = min(left, self.width - here % self.width)
                self.bin(here).blocked += part
                here, left = here + part, left - part
                if not left:
                    break
        self.last_time = time

    def bin(self, time: int) -> CreditInterval:
        while time // self.width not in self.bins and len(self.bins) >= MAX_BINS:
            self._widen()
        return self.bins.setdefault(time // self.width, CreditInterval(outstanding=self.outstanding))

    def _widen(self) -> None:
        wider: dict[int, CreditInterval] = {}
        for at, old in sorted(self.bins.items()):
            new = wider.setdefault(at // 2, CreditInterval())
            _merge(new, old)
        self.bins = wider
        self.width *= 2

    def intervals(self, count: int) -> tuple[int, list[CreditInterval | None]]:
        """The whole time in at most ``count`` equal intervals: nanoseconds of each, and what is known of it."""
        if not self.bins:
            return 0, []
        first, last = min(self.bins), max(self.bins)
        each = -(-(last - first + 1) // count)
        found: list[CreditInterval | None] = [None] * -(-(last - first + 1) // each)
        for at, old in sorted(self.bins.items()):
            slot = (at - first) // each
            new = found[slot] or CreditInterval()
            _merge(new, old)
            found[slot] = new
        return each * self.width, found


def _merge(new: CreditInterval, old: CreditInterval) -> None:
    if old.requested is not None:
        new.requested = old.requested if new.requested is None else max(new.requested, old.requested)
    if old.granted is not None:
        new.granted = old.granted if new.granted is None else min(new.granted, old.granted)
    new.outstanding = max(new.outstanding, old.outstanding)
    new.blocked += old.blocked


def _range(known: tuple[int, int] | None, value: int) -> tuple[int, int]:
    return (value, value) if known is None else (min(known[0], value), max(known[1], value))


class CreditHistory:
    """Listens to the RPCs of one connection; a ``listeners.Listener``."""

    def __init__(self, conversation: Conversation) -> None:
        connection = conversation.connection
        self.directions = CreditDirection(connection, False), CreditDirection(connection, True)
        self.open: tuple[set[Rpc], ...] = (set(), set())

    def call_sent(self, rpc: Rpc) -> None:
        assert rpc.call is not None
        one, credits = self.directions[rpc.backward], rpc.call.header.credits
        one.advance(rpc.call.time)
        limit = one.limit
        self.open[rpc.backward].add(rpc)
        one.calls += 1
        one.outstanding += 1
        one.max_outstanding = max(one.max_outstanding, one.outstanding)
        if credits is not None:
            one.latest_requested, one.requested = credits, _range(one.requested, credits)
        if limit is not None and one.outstanding == limit:
            one.blockages += 1
        if limit is not None and one.outstanding > limit:
            one.exceeded += 1
        here = one.bin(one.last_time)
        here.requested = credits if here.requested is None else max(here.requested, credits or 0)
        here.outstanding = max(here.outstanding, one.outstanding)

    def reply_sent(self, rpc: Rpc) -> None:
        assert rpc.reply is not None
        one, header = self.directions[rpc.backward], rpc.reply.header
        one.advance(rpc.reply.time)
        one.replies += 1
        self._close(rpc)
        if header.credits is not None and header.procedure != RDMA_ERROR:
            one.latest_granted, one.granted = header.credits, _range(one.granted, header.credits)
            here = one.bin(one.last_time)
            here.granted = header.credits if here.granted is None else min(here.granted, header.credits)

    def rpc_ended(self, rpc: Rpc) -> None:
        self._close(rpc)

    def other_sent(self, sender: int, message: Message) -> None:
        """Neither call nor reply."""

    def data_transferred(self, operation: Operation) -> None:
        """Reads and Writes take no credit."""

    def _close(self, rpc: Rpc) -> None:
        if rpc in self.open[rpc.backward]:
            self.open[rpc.backward].remove(rpc)
            self.directions[rpc.backward].outstanding -= 1
