"""Which XIDs were answered last: what a reply without a call may be another reply to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, some

MAX_ANSWERED = 4096
"""XIDs of answered calls that are remembered per direction."""

MAX_SHORT = (1 << 32) - 1
"""The highest number that is remembered in as little memory as an XID."""

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


class _AnsweredBatch:
    """What is answered in a batch, while it happens."""

    __slots__ = ("now", "numbers", "orders", "singly", "xids")

    def __init__(self, orders: Int64s, xids: Int64s) -> None:
        """Of the plain replies: places in the order of events, and XIDs."""
        self.orders, self.xids = orders, xids
        self.singly: list[tuple[int, int, int]] = []
        """Place, XID and number of those that come one by one in the meantime."""
        self.numbers: dict[int, int] = {}
        """By XID, of these."""
        self.now = 0
        """The place of the event that happens."""


class AnsweredXids:
    """Of one direction: the numbers of the RPCs that were answered last, by XID; of each XID the latest.

    The plain RPCs of a batch come in columns, beside those that come one by one.  As one is rarely asked for, they are
    sorted in only then.
    """

    __slots__ = ("_batch", "_known", "_later", "_maximum")

    def __init__(self, maximum: int = MAX_ANSWERED) -> None:
        """``maximum``: XIDs that are remembered."""
        self._maximum = maximum
        self._known: Mapping[int, int] = _NOTHING
        self._later: tuple[_Numbers, ...] = ()
        """What was answered after all of ``_known``: arrays of XIDs over numbers."""
        self._batch: _AnsweredBatch | None = None
        """That happens."""

    def add(self, xid: int, number: int) -> None:
        """It was answered now."""
        if self._batch is not None:
            self._batch.singly.append((self._batch.now, xid, number))
            self._batch.numbers[xid] = number
            return
        if self._later:
            self._sort_in()
        self._add(xid, number)

    def get(self, xid: int) -> int | None:
        """The number of the RPC, where it is among the last."""
        if self._later:
            self._sort_in()
        found = self._known.get(xid)
        batch = self._batch
        if batch is None:
            return found
        if found is not None:
            behind = [*self._known][::-1].index(xid) + len(batch.singly)
            if behind + int(batch.orders.searchsorted(batch.now, "right")) >= self._maximum:
                found = None
        return batch.numbers.get(xid, found)

    def __contains__(self, xid: int) -> bool:
        return self.get(xid) is not None

    def begin(self, orders: Int64s, xids: Int64s) -> None:
        """Plain replies of this batch: their places, ascending, and XIDs, none of which will be asked for in it."""
        self._batch = _AnsweredBatch(orders, xids)

    def reached(self, place: int) -> None:
        """The place of the event that happens now."""
        if self._batch is not None:
            self._batch.now = place

    def end(self, numbers: Int64s) -> None:
        """The batch is over; ``numbers`` of the same."""
        batch, self._batch = self._batch, None
        assert batch is not None
        if batch.singly:
            singly = np.array(batch.singly, np.int64)
            places = np.concatenate((batch.orders, singly[:, 0])).argsort(kind="stable")
            self.extend(
                np.concatenate((batch.xids, singly[:, 1]))[places], np.concatenate((numbers, singly[:, 2]))[places]
            )
        else:
            self.extend(batch.xids, numbers)

    def extend(self, xids: Int64s, numbers: Int64s) -> None:
        """They were answered one after the other."""
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
        xids, numbers = self._last()
        self._later = ()
        for xid, number in zip(xids.tolist(), numbers.tolist(), strict=True):
            self._add(xid, number)

    def _add(self, xid: int, number: int) -> None:
        known = self._known
        if not isinstance(known, dict):
            known = self._known = {}
        known.pop(xid, None)
        known[xid] = number
        if len(known) > self._maximum:
            del known[next(iter(known))]
