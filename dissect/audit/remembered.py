"""Tables of bounded size."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

REMEMBERED = 4096
"""XIDs of each end, and answered calls with chunks, that are remembered per connection."""


def remember(table: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    """Put an entry at the end; the first one falls out of a full table."""
    table[key] = value
    table.move_to_end(key)
    if len(table) > REMEMBERED:
        table.popitem(last=False)
