"""What stands in a Payload stream though it travels in a chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..onc import binding
from ..onc.binding import Items
from .transaction import Transaction


class Leftover(NamedTuple):
    """Bytes behind the count word of a reduced item that belong to the item."""

    name: str
    """Procedure or operation."""
    length: int
    """Bytes of the item."""
    excess: int
    """Bytes that are left."""

    @property
    def only_pad(self) -> bool:
        return self.excess < 4 and self.excess == -self.length % 4 and self.length != self.excess


def call_leftover(transaction: Transaction) -> Leftover | None:
    """Of the call's Read chunks."""
    items, stream, call = transaction.arguments, transaction.call_stream, transaction.bound_procedure
    if items is None or call is None:
        return None
    return _leftover(
        items, stream, True, lambda less: binding.call_items(*call, less, 0, len(less), transaction.reduced)
    )


def reply_leftover(transaction: Transaction) -> Leftover | None:
    """Of the reply's Write chunks."""
    items, stream, call = transaction.results, transaction.reply_stream, transaction.bound_procedure
    if items is None or call is None:
        return None
    lengths = [chunk.returned or 0 for chunk in transaction.writes]
    gss = transaction.rpc.gss
    return _leftover(items, stream, False, lambda less: binding.reply_items(*call, less, 0, len(less), lengths, gss))


def _leftover(items: Items, stream: bytes, arguments: bool, walk: Callable[[bytes], Items]) -> Leftover | None:
    """The bytes behind a reduced item without which the stream can be read to its very end."""
    if items.complete and items.end == len(stream):
        return None
    taken = 0
    for item in items.items:
        if not item.reduced:
            continue
        place = item.position - taken
        padded = item.count + 3 & -4
        for excess in dict.fromkeys((padded, item.count, padded - item.count)):
            if not excess or place + excess > len(stream):
                continue
            found = walk(stream[:place] + stream[place + excess :])
            if found.complete and found.end == len(stream) - excess:
                return Leftover(item.name, item.count, excess)
        taken += padded if arguments else 0
    return None
