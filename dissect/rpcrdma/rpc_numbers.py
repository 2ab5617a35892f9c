"""Which XIDs were answered last: what a reply without a call may be another reply to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, some
from .rpcs import Rpc

MAX_ANSWERED = 4096
"""XIDs of answered calls that are remembered per direction."""

FEW = 64
"""XIDs that take less time one by one."""
MAX_SHORT = (1 << 32) - 1
"""The highest number that is remembered in as little memory as an XID."""

LATE = 1 << 62
"""A place behind all events."""

_Numbers = NDArray[np.integer[Any]]
_NOTHING: Mapping[int, int] = MappingProxyType({})


class RpcNumbers:
    """The numbers of RPCs over all connections: each is drawn by the first message of its RPC, a call or a reply."""

    def __init__(self) -> None:
        self.last = 0
        self.place = 0
        """Of what happens now, in the order of events."""

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.last += 1
        return self.last

    def made(self, number: int, place: int) -> None:
        """The RPC that drew ``number`` as a row at ``place`` is an object; or its row does not tell the place."""


class EndedRpcs(list[Rpc]):
    """RPCs that ended and are objects, and where in the order of events that was."""

    def __init__(self, numbers: RpcNumbers) -> None:
        super().__init__()
        self._numbers = numbers
        self._places: list[int] = []

    def append(self, rpc: Rpc) -> None:
        self._places.append(self._numbers.place)
        super().append(rpc)

    def take(self) -> tuple[list[Rpc], Int64s]:
        """All of them in the order in which they ended, and their places; none is left."""
        places = np.array(self._places, np.int64)
        order = ended_order(places, np.array([rpc.number for rpc in self], np.int64))
        found = [self[index] for index in order.tolist()]
        self._places.clear()
        self.clear()
        return found, places[order]


def ended_order(places: Int64s, numbers: Int64s) -> Int64s:
    """The order in which RPCs ended: by place, and in the same one by number, but for what ended behind all events."""
    return np.lexsort((np.where(places < LATE, numbers, 0), places))


class AnsweredXids:
    """Of one direction: the numbers of the RPCs that were answered last, by XID; of each XID the latest.

    Those of a batch come in columns, beside those that come one by one.  As one is rarely asked for, they are sorted in
    only then.
    """

    __slots__ = ("_known", "_later", "_maximum", "_single", "_soonest")

    def __init__(self, maximum: int = MAX_ANSWERED) -> None:
        """``maximum``: XIDs that are remembered."""
        self._maximum = maximum
        self._known: Mapping[int, int] = _NOTHING
        self._later: tuple[_Numbers, ...] = ()
        """What was answered after all of ``_known``: arrays of XIDs over numbers."""
        self._single: Sequence[tuple[int, int]] = ()
        """What was answered after these: XID and number."""
        self._soonest = LATE

    def add(self, xid: int, number: int) -> None:
        """It was answered now."""
        self._add(((xid, number),))

    def _add(self, answered: Iterable[tuple[int, int]]) -> None:
        self._single = *self._single, *answered
        if len(self._single) > FEW:
            self._put_behind()

    def get(self, xid: int) -> int | None:
        """The number of the RPC, where it is among the last."""
        if self._later or self._single:
            self._sort_in()
        return self._known.get(xid)

    def __contains__(self, xid: int) -> bool:
        return self.get(xid) is not None

    @property
    def soonest(self) -> int:
        """The least number of RPCs after which an XID came again; LATE where none did."""
        if self._later or self._single:
            self._sort_in()
        return self._soonest

    def used_after(self, count: int) -> None:
        """An XID came again after so many RPCs."""
        self._soonest = min(self._soonest, count)

    def extend(self, xids: Int64s, numbers: Int64s) -> None:
        """They were answered one after the other."""
        if len(xids) < FEW:
            self._add(zip(xids.tolist(), numbers.tolist(), strict=True))
            return
        if self._single:
            self._put_behind()
        self._append(xids, numbers)

    def _put_behind(self) -> None:
        single, self._single = np.array(self._single, np.int64).T, ()
        self._append(*single)

    def _append(self, xids: Int64s, numbers: Int64s) -> None:
        # One array: of a few, two take much more memory.
        short = not some(numbers > MAX_SHORT)
        later: _Numbers = np.empty((2, len(xids)), np.uint32 if short else np.int64)
        later[0], later[1] = xids, numbers
        self._later = (*self._later, later)
        if sum([one.shape[1] for one in self._later]) > 4 * self._maximum:
            self._later = (self._last(),)

    def _last(self) -> Int64s:
        """The last of ``_later``, each XID once."""
        later: Int64s = np.concatenate(self._later, axis=1)
        _, behind = np.unique(later[0, ::-1], return_index=True)
        kept = np.sort(later.shape[1] - 1 - behind)[-self._maximum :]
        return later[:, kept]

    def _sort_in(self) -> None:
        known = self._known if isinstance(self._known, dict) else {}
        few = sum([one.shape[1] for one in self._later]) <= self._maximum
        columns = [one.tolist() for one in (self._later if few else (self._last(),))]
        for xid, number in chain(*[zip(*both, strict=True) for both in columns], self._single):
            if (earlier := known.pop(xid, None)) is not None:
                self.used_after(number - earlier)
            known[xid] = number
        for xid in [*islice(known, max(0, len(known) - self._maximum))]:
            del known[xid]
        self._known, self._later, self._single = known, (), ()
