"""Tables of bounded size."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

REMEMBERED = 4096
"""XIDs of each end that are remembered per connection, and other small things."""


def remember(table: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    """Put an entry at the end; the first one falls out of a full table."""
    table[key] = value
    table.move_to_end(key)
    if len(table) > REMEMBERED:
        table.popitem(last=False)


class LastXids:
    """The XIDs of the last ``REMEMBERED`` messages of one end, as numbers of four bytes."""

    __slots__ = "_xids"

    def __init__(self) -> None:
        self._xids = array("I")

    def __contains__(self, xid: int) -> bool:
        return xid in self._xids[-REMEMBERED:]

    def add(self, xids: Iterable[int]) -> None:
        """Of the messages that follow, in order."""
        self._xids.extend(xids)
        if len(self._xids) > 2 * REMEMBERED:
            del self._xids[:-REMEMBERED]
