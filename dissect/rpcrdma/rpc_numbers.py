"""RPC numbers, and the recently answered XIDs: a reply without a call may be a second reply to one of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, places, some
from .rpcs import Rpc

MAX_ANSWERED = 4096
"""XIDs of answered calls kept per direction."""

FEW = 64
"""XIDs up to which keeping them one by one is faster."""
MAX_LATER = 4
"""Arrays that are searched one by one."""
MAX_SHORT = (1 << 32) - 1
"""The highest number that fits in 32 bits, as an XID does."""

LATE = 1 << 62
"""A place after all events."""

_Numbers = NDArray[np.integer[Any]]
_NOTHING: _Numbers = np.empty((3, 0), np.uint32)
_NONE: Mapping[int, int] = MappingProxyType({})


class RpcNumbers:
    """Numbers the RPCs of all connections: the first message of an RPC, a call or a reply, draws its number."""

    keeps_places = False
    """Whether ``made`` has to be called."""

    def __init__(self) -> None:
        self.last = 0
        self.place = 0
        """The current place in the order of events."""

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.last += 1
        return self.last

    def made(self, number: int, place: int) -> None:
        """The RPC that drew ``number`` as a row at ``place`` became an object, or its row does not tell the place."""


class EndedRpcs(list[Rpc]):
    """RPCs that ended as objects, and their places in the order of events."""

    def __init__(self, numbers: RpcNumbers) -> None:
        super().__init__()
        self._numbers = numbers
        self._places: list[int] = []

    def append(self, rpc: Rpc) -> None:
        self._places.append(self._numbers.place)
        super().append(rpc)

    def take(self) -> tuple[list[Rpc], Int64s]:
        """Take them all out, in the order in which they ended, with their places."""
        places = np.array(self._places, np.int64)
        order = ended_order(places, np.array([rpc.number for rpc in self], np.int64))
        rpcs = [self[index] for index in order.tolist()]
        self._places.clear()
        self.clear()
        return rpcs, places[order]


def ended_order(places: Int64s, numbers: Int64s) -> Int64s:
    """The order in which RPCs ended: by place, then by number, except that at LATE they keep their order."""
    return np.lexsort((np.where(places < LATE, numbers, 0), places))


class AnsweredXids:
    """The numbers of the RPCs of one direction that were answered last, by XID; per XID the latest.

    Answers come in columns, batch by batch, or one by one.  They are sorted in only when an XID is asked for, which is
    rare.
    """

    __slots__ = ("_count", "_known", "_later", "_maximum", "_single", "_soonest")

    def __init__(self, maximum: int = MAX_ANSWERED) -> None:
        """``maximum``: XIDs to keep."""
        self._maximum = maximum
        self._known = _NOTHING
        """XIDs, ascending; numbers; ranks in the order of answers."""
        self._count = 0
        """Number of answers that were sorted in."""
        self._later: tuple[_Numbers, ...] = ()
        """Answers after those in ``_known``: arrays of XIDs and numbers."""
        self._single: Mapping[int, int] = _NONE
        """Answers after those in ``_later``: numbers by XID."""
        self._soonest = LATE

    def add(self, xid: int, number: int) -> None:
        """Note that this RPC was answered."""
        self._add({xid: number})

    def _add(self, answered: dict[int, int]) -> None:
        """Add no more answers than ``_few``."""
        if len(self._single) + len(answered) > self._few or not self._single.keys().isdisjoint(answered):
            self._put_behind()
        self._single = {**self._single, **answered}

    @property
    def _few(self) -> int:
        return min(FEW, self._maximum)

    def get(self, xid: int) -> int | None:
        """The number of the RPC if it is among the last answered; else None."""
        if (number := self._single.get(xid)) is not None:
            return number
        if len(self._later) > MAX_LATER:
            self._sort_in()
        behind = len(self._single)
        for xids, numbers in reversed(self._later):
            if len(there := places(xids == xid)):
                return self._among_last(xid, int(numbers[there[-1]]), behind + len(xids) - int(there[-1]) - 1)
            behind += len(xids)
        xids, numbers, turns = self._known
        at = int(xids.searchsorted(xid))
        if at == len(xids) or xids[at] != xid:
            return None
        behind += int(np.count_nonzero(turns > turns[at])) if behind else 0
        return self._among_last(xid, int(numbers[at]), behind)

    def _among_last(self, xid: int, number: int, behind: int) -> int | None:
        """``number``, unless the XID was forgotten since; ``behind``: answers after it, which may repeat XIDs."""
        if behind < self._maximum:
            return number
        self._sort_in()
        return self.get(xid)

    def __contains__(self, xid: int) -> bool:
        return self.get(xid) is not None

    @property
    def soonest(self) -> int:
        """The least number of RPCs after which an XID was reused; LATE if none was."""
        self._sort_in()
        return self._soonest

    def used_after(self, count: int) -> None:
        """Note that an XID was reused after ``count`` RPCs."""
        self._soonest = min(self._soonest, count)

    def extend(self, xids: Sequence[int], numbers: Sequence[int], calls: Sequence[int]) -> None:
        """Note that these calls were answered in this order; ``xids`` and ``numbers`` are indexed by call."""
        if len(calls) <= self._few:
            answered = {xids[call]: numbers[call] for call in calls}
            if len(answered) == len(calls):
                self._add(answered)
                return
        self._put_behind()
        at = np.array(calls)
        self._append(np.array([np.asarray(column)[at] for column in (xids, numbers)]))

    def _put_behind(self) -> None:
        if self._single:
            single, self._single = np.array([*self._single.items()], np.int64).T, _NONE
            self._append(single)

    def _append(self, answered: Int64s) -> None:
        self._later = (*self._later, _short(answered))
        if sum([columns.shape[1] for columns in self._later]) > 2 * self._maximum:
            self._sort_in()

    def _sort_in(self) -> None:
        self._put_behind()
        if not self._later:
            return
        later: Int64s = np.concatenate(self._later, axis=1, dtype=np.int64)
        self._later = ()
        turns = np.arange(self._count, self._count + later.shape[1])
        self._count += later.shape[1]
        table = np.concatenate((self._known, (*later, turns)), axis=1)
        table = table.take(table[0].argsort(kind="stable"), axis=1)
        steps = table[:, 1:] - table[:, :-1]
        again = steps[0] == 0
        if some(again):
            # Count only reuses of XIDs that surely were not forgotten.
            self.used_after(int(steps[1][again & (steps[2] <= self._maximum)].min(initial=LATE)))
            table = table.compress(np.append(~again, True), axis=1)
        if (over := table.shape[1] - self._maximum) > 0:
            table = table.compress(table[2] >= np.partition(table[2], over)[over], axis=1)
        self._known = _short(table)


def _short(table: Int64s) -> _Numbers:
    """The table in 32 bits if its numbers fit."""
    return table if some(table > MAX_SHORT) else table.astype(np.uint32)
