"""Which connection and sender the packets of a flow belong to, also where that changes inside a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...arrays import Int64s, Rows, places
from .flow_keys import flow_keys
from .link import RcLink


class Binding(NamedTuple):
    """Of a flow."""

    link: RcLink
    sender: int


class _Change(NamedTuple):
    """From this row of the batch on."""

    row: int
    binding: Binding


class Bindings:
    """By flow key."""

    def __init__(self) -> None:
        self.bound: dict[int, Binding] = {}
        """At the start of the batch."""
        self._changes: dict[int, list[_Change]] = {}
        """In the batch."""

    def current(self, key: int) -> Binding | None:
        """After the changes so far."""
        changes = self._changes.get(key)
        return changes[-1].binding if changes else self.bound.get(key)

    def since(self, key: int) -> int:
        """The row of the batch from which on the flow has been what it is after the changes so far."""
        changes = self._changes.get(key)
        return changes[-1].row if changes else 0

    def change(self, key: int, row: int, binding: Binding) -> None:
        """From ``row`` of the batch on, a flow belongs to another connection."""
        self._changes.setdefault(key, []).append(_Change(row, binding))

    def sort(self, rows: Rows, indices: Int64s) -> Iterator[tuple[int, Binding | None, Int64s]]:
        """Key, binding and rows of each flow in ``rows[indices]``; then the changes hold for what follows."""
        keys = flow_keys(rows["source"], rows["destination"], rows["dest_qp"])[indices]
        order = np.argsort(keys, kind="stable")
        keys, indices = keys[order], indices[order]
        starts = places(np.diff(keys, prepend=~keys[:1]))
        ends = [*starts[1:].tolist(), len(keys)]
        for key, start, end in zip(keys[starts].tolist(), starts.tolist(), ends, strict=False):
            for binding, part in self._split(key, indices[start:end]):
                yield key, binding, part
        for key, changes in self._changes.items():
            self.bound[key] = changes[-1].binding
        self._changes = {}

    def _split(self, key: int, members: Int64s) -> Iterator[tuple[Binding | None, Int64s]]:
        binding = self.bound.get(key)
        for row, changed in self._changes.get(key, ()):
            before = int(members.searchsorted(row))
            if before:
                yield binding, members[:before]
            members = members[before:]
            binding = changed
        if len(members):
            yield binding, members

    def drop(self, numbers: set[int]) -> None:
        """No packet of the connections with these numbers is expected."""
        for key in [key for key, binding in self.bound.items() if binding.link.connection.number in numbers]:
            del self.bound[key]
