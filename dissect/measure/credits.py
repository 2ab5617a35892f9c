"""Credits over time: requested, granted, calls outstanding, and the time at the limit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..layers.rpcrdma_codes import RDMA_ERROR
from ..rpcrdma.conversation import Conversation, widened
from ..rpcrdma.listeners import Listener, SentRows
from ..rpcrdma.rpcs import Rpc
from ..transport.connection import Connection

MAX_BINS = 2048
"""Intervals of one direction of a connection."""
MIN_BINS = 16
SHARED_BINS = 1 << 16
"""The nth connection has an nth of them, within these limits: those of n connections grow with the logarithm of n."""


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

    def add(self, requested: int | None, granted: int | None, outstanding: int) -> None:
        """What calls and replies in it say."""
        if requested is not None and (self.requested is None or requested > self.requested):
            self.requested = requested
        if granted is not None and (self.granted is None or granted < self.granted):
            self.granted = granted
        if outstanding > self.outstanding:
            self.outstanding = outstanding

    def merge(self, other: CreditInterval) -> None:
        """A part of it."""
        self.add(other.requested, other.granted, other.outstanding)
        self.blocked += other.blocked


@dataclass(slots=True)
class CreditDirection:
    """Forward or backward calls of one connection."""

    connection: Connection
    backward: bool
    max_bins: int = MAX_BINS
    """At least 2: however wide bins are, what is before 0 and what is behind it are two."""
    width: int = 1_000_000
    """Nanoseconds of a bin."""
    bins: dict[int, CreditInterval] = field(default_factory=dict)
    """By time // width."""
    calls: int = 0
    replies: int = 0
    requested: tuple[int, int] | None = None
    """The lowest and the highest credit value of calls."""
    granted: tuple[int, int] | None = None
    max_outstanding: int = 0
    """Most calls outstanding at one time."""
    blocked: int = 0
    """Nanoseconds with as many calls outstanding as the lower of requested and granted credits allows."""
    blocked_since: int = 0
    """When that began first; 0: never."""
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

    def call(self, time: int, credits: int | None) -> None:
        """A call at ``time`` (ns), and what it requests."""
        self.advance(time)
        limit = self.limit
        self.calls += 1
        self.outstanding += 1
        if self.outstanding > self.max_outstanding:
            self.max_outstanding = self.outstanding
        if credits is not None and credits != self.latest_requested:
            self.latest_requested, self.requested = credits, widened(self.requested, credits)
        if limit is not None and self.outstanding >= limit:
            self.blockages += self.outstanding == limit
            self.exceeded += self.outstanding > limit
        self.bin(self.last_time).add(credits, None, self.outstanding)

    def reply(self, time: int, credits: int | None, answers: bool) -> None:
        """A reply at ``time`` (ns), what it grants, and whether it answers an outstanding call."""
        self.advance(time)
        self.replies += 1
        self.outstanding -= answers
        if credits is not None:
            if credits != self.latest_granted:
                self.latest_granted, self.granted = credits, widened(self.granted, credits)
            self.bin(self.last_time).add(None, credits, 0)

    def sent(self, rows: SentRows) -> None:
        """Calls, and replies that answer one each, in their order."""
        first, columns = 0, (rows.is_call, rows.time, rows.credits)
        for message in zip(*(column.tolist() for column in columns), strict=True):
            if self.limit is not None and self.latest_requested is not None:
                break
            self._sent(*message)
            first += 1
        calls, times, credits = (column[first:] for column in columns)
        if not len(calls):
            return
        after = self.outstanding + np.cumsum(np.where(calls, 1, -1))
        known = np.where(calls, self.latest_requested or 0, self.latest_granted or 0)
        passed = np.diff(times, prepend=self.last_time)
        highest = max(self.outstanding, int(after.max()))
        if (passed < 0).any() or (credits != known).any() or highest >= (self.limit or 0):
            for message in zip(calls.tolist(), times.tolist(), credits.tolist(), strict=True):
                self._sent(*message)
            return
        self.busy += int((passed * np.append(self.outstanding, after[:-1])).sum())
        self.calls += int(np.count_nonzero(calls))
        self.replies += int(np.count_nonzero(~calls))
        called = np.where(calls, after, 0)
        self.max_outstanding = max(self.max_outstanding, int(called.max()))
        self.last_time = int(times[-1])
        self.outstanding = int(after[-1])
        bins = times // self.width
        while len(self.bins.keys() | {*bins.tolist()}) > self.max_bins:
            self._widen()
            bins = times // self.width
        starts = np.append(0, np.diff(bins).nonzero()[0] + 1)
        for at, outstanding, highest_called, replied in zip(
            bins[starts].tolist(),
            after[starts].tolist(),
            np.maximum.reduceat(called, starts).tolist(),
            np.logical_or.reduceat(~calls, starts).tolist(),
            strict=True,
        ):
            here = self.bins.get(at)
            if here is None:
                here = self.bins[at] = CreditInterval(outstanding=outstanding)
            requested = self.latest_requested if highest_called else None
            here.add(requested, self.latest_granted if replied else None, highest_called)

    def _sent(self, is_call: bool, time: int, credits: int) -> None:
        if is_call:
            self.call(time, credits)
        else:
            self.reply(time, credits, True)

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
            self.blocked_since = self.blocked_since or self.last_time
            here, left = self.last_time, passed
            while (time - 1) // self.width - here // self.width >= self.max_bins:
                self._widen()
            while left:
                part = min(left, self.width - here % self.width)
                self.bin(here).blocked += part
                here, left = here + part, left - part
        self.last_time = time

    def bin(self, time: int) -> CreditInterval:
        interval = self.bins.get(time // self.width)
        if interval is None:
            while time // self.width not in self.bins and len(self.bins) >= self.max_bins:
                self._widen()
            interval = self.bins.setdefault(time // self.width, CreditInterval(outstanding=self.outstanding))
        return interval

    def narrow(self, max_bins: int) -> None:
        """Keep only so many bins: they are as if there had never been more."""
        self.max_bins = max_bins
        while len(self.bins) > max_bins:
            self._widen()

    def _widen(self) -> None:
        wider: dict[int, CreditInterval] = {}
        for at, old in sorted(self.bins.items()):
            new = wider.setdefault(at // 2, old)
            if new is not old:
                new.merge(old)
        self.bins = wider
        self.width *= 2

    def intervals(self, count: int) -> tuple[int, list[CreditInterval | None]]:
        """The whole time in at most ``count`` equal intervals: nanoseconds of each, and what is known of it."""
        if not self.bins:
            return 0, []
        first, last = min(self.bins), max(self.bins)
        each = -(-(last - first + 1) // count)
        intervals: list[CreditInterval | None] = [None] * -(-(last - first + 1) // each)
        for at, old in sorted(self.bins.items()):
            slot = (at - first) // each
            new = intervals[slot] = intervals[slot] or CreditInterval()
            new.merge(old)
        return each * self.width, intervals


def shared_bins(connection: int) -> int:
    """Bins that one direction of the connection with this number may have."""
    return max(MIN_BINS, min(MAX_BINS, SHARED_BINS // connection))


class CreditHistory(Listener):
    """Listens to the RPCs of one connection."""

    takes_rows = True
    reads_bytes = False

    def __init__(self, conversation: Conversation, max_bins: int = 0) -> None:
        """``max_bins``: intervals of time that are told apart, in either direction; 0: as many as the connection's
        number allows."""
        connection = conversation.connection
        bins = max_bins or shared_bins(connection.number)
        self.directions = tuple(CreditDirection(connection, backward, bins) for backward in (False, True))
        self.open: tuple[set[Rpc], ...] = (set(), set())

    def call_sent(self, rpc: Rpc) -> None:
        assert rpc.call is not None
        self.open[rpc.backward].add(rpc)
        self.directions[rpc.backward].call(rpc.call.time, rpc.call.header.credits)

    def reply_sent(self, rpc: Rpc) -> None:
        assert rpc.reply is not None
        header, opened = rpc.reply.header, self.open[rpc.backward]
        answers = rpc in opened
        opened.discard(rpc)
        granted = header.credits if header.procedure != RDMA_ERROR else None
        self.directions[rpc.backward].reply(rpc.reply.time, granted, answers)

    def rpc_ended(self, rpc: Rpc) -> None:
        if rpc in self.open[rpc.backward]:
            self.open[rpc.backward].remove(rpc)
            self.directions[rpc.backward].outstanding -= 1

    def rows_sent(self, rows: SentRows) -> None:
        for direction in self.directions:
            direction.sent(rows.chosen(rows.caller == direction.backward))

    def row_made(self, rpc: Rpc) -> None:
        if rpc.reply is None:
            self.open[rpc.backward].add(rpc)
