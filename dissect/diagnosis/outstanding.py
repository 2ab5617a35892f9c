"""Calls outstanding against the credits that allow them, from columns of RPCs that ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s

NO_CALLS: Int64s = np.empty((3, 0), np.int64)
AT_ONCE = 100_000
"""Nanoseconds from the reply that brings a credit back to the next call, within which that call had waited for it."""


@dataclass(slots=True)
class AtLimit:
    """What one direction of a connection showed."""

    calls: int = 0
    busy: int = 0
    """Nanoseconds with a call outstanding."""
    blocked: int = 0
    """Nanoseconds with as many calls outstanding as credits allow."""
    freed: int = 0
    """Replies that came while it was so."""
    refilled: int = 0
    """Those after which the next call came at once."""
    limit: int = 0
    """The lowest number of credits at which calls were blocked; 0: never."""
    max_outstanding: int = 0


Watch = Callable[[Int64s, Int64s, Int64s], None]

TOGETHER = 256
"""RPCs that are looked at together: a look costs more than an RPC."""


def columns_of(calls: Int64s, replies: Int64s, requested: Int64s, granted: Int64s) -> Int64s:
    """What ``CallsOutstanding`` is fed: times of RPCs in nanoseconds, and the credits that they name; -1 for none."""
    credits = np.where(requested > 0, np.minimum(requested, granted), granted)
    return np.stack((calls, replies, np.where(granted < 0, 0, np.maximum(credits, 1))))


class CallsOutstanding:
    """One direction of a connection; fed batches of RPCs with both halves.

    A batch is settled when the one after it has come: calls that took longer than that are left out.
    """

    __slots__ = ("_credits", "_fresh", "_known", "_settled", "_watch", "result")

    def __init__(self, watch: Watch | None = None) -> None:
        """``watch`` is given the moments of replies, the calls outstanding just before each, and the credits then, 0
        where these are not known."""
        self.result = AtLimit()
        self._watch = watch
        self._known: Int64s = NO_CALLS
        """Times of calls and of replies, and the credits that the reply left."""
        self._fresh: Sequence[Int64s] = ()
        """The same, not looked at yet."""
        self._settled = -(1 << 62)
        """The moment up to which all is counted."""
        self._credits = 0
        """The latest credits then; 0: not known."""

    def add(self, calls: Int64s) -> None:
        """RPCs that ended, as ``columns_of`` gives them."""
        self._fresh = (*self._fresh, calls)
        if sum([one.shape[1] for one in self._fresh]) >= TOGETHER:
            self._look()

    def _look(self) -> None:
        boundary = int(self._known[1].max(initial=self._settled))
        self._known = np.concatenate((self._known, *self._fresh), axis=1)
        self._fresh = ()
        self._settle(boundary)

    def finish(self) -> AtLimit:
        """No more comes."""
        self._look()
        self._settle(int(self._known[1].max(initial=self._settled)))
        return self.result

    def _settle(self, until: int) -> None:
        calls, replies, credits = self._known
        since = self._settled
        if until <= since or not len(calls):
            return
        self._settled = until
        self._known = self._known[:, replies > until]
        result = self.result
        order = np.argsort(replies, kind="stable")
        replies, credits = replies[order], credits[order]
        calls = np.sort(calls, kind="stable")
        before = np.searchsorted(calls, replies, side="right") - np.arange(len(replies))
        """Outstanding just before each reply."""
        now = (replies > since) & (replies <= until)
        result.calls += int(np.count_nonzero(now))
        highest = int(before[now].max(initial=0))
        result.max_outstanding = max(result.max_outstanding, highest)
        if self._watch is not None:
            self._watch(replies[now], before[now], credits[now])
        known = credits[now & (credits > 0)]
        least = int(known.min(initial=self._credits or 1 << 62))
        if highest < least:
            result.busy += _spent(calls, replies, since, until)
        else:
            self._count_blocked(calls, replies, credits, since, until)
        if len(known):
            self._credits = int(known[-1])

    def _count_blocked(self, calls: Int64s, replies: Int64s, credits: Int64s, since: int, until: int) -> None:
        times = np.concatenate((replies, calls))
        is_reply = np.arange(len(times)) < len(replies)
        order = np.argsort(times, kind="stable")
        times, is_reply = times[order], is_reply[order]
        level = np.cumsum(np.where(is_reply, -1, 1))
        limits = _latest(np.concatenate((credits, np.zeros_like(calls)))[order])
        limits[limits == 0] = self._credits
        spans = np.diff(np.clip(times, since, until), append=until)
        full = (level >= limits) & (limits > 0)
        result = self.result
        result.busy += int(spans[level > 0].sum())
        result.blocked += int(spans[full].sum())
        # What was the state before this event, and does a call come at once?
        was_full = np.concatenate(([False], full[:-1]))
        freed = is_reply & was_full & (times > since) & (times <= until)
        following = np.append(calls, 1 << 62)[calls.searchsorted(times, side="right")]
        result.freed += int(np.count_nonzero(freed))
        result.refilled += int(np.count_nonzero(freed & (following - times <= AT_ONCE)))
        if full.any():
            lowest = int(limits[full].min())
            result.limit = min(result.limit, lowest) if result.limit else lowest


def _latest(credits: Int64s) -> NDArray[np.int64]:
    """Each credit value as it stays until the next."""
    places = np.maximum.accumulate(np.where(credits > 0, np.arange(len(credits)), 0))
    return credits[places]


def _spent(calls: Int64s, replies: Int64s, since: int, until: int) -> int:
    """Nanoseconds of [since, until) with a call outstanding; both are sorted."""
    begins = np.clip(calls, since, until)
    ends = np.clip(replies, since, until)
    if not len(begins):
        return 0
    # A pause is where all that was called before is answered; the n-th reply then comes before the n+1-th call.
    pauses = np.maximum(0, begins[1:] - ends[:-1]).sum()
    return int(ends[-1] - begins[0] - pauses)
