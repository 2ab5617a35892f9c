"""Where values stand in messages like one that was decoded: of many alike, only the first has to be decoded.

Where a declared value ends, and what is in it, depends on few of its words: lengths, counts, discriminants.  Messages
that agree in those have their values at the same places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from struct import error as StructError
from typing import NamedTuple

from ..xdr import round_up, word
from .decode import Node, SparseBytes, Walk
from .flat import flat_nodes
from .types import XdrInteger, XdrOpaque, XdrSelected, XdrType, XdrUnion

MAX_LAYOUTS = 4096
"""That are remembered of a type."""


class Layout(NamedTuple):
    """Of one value: offsets from its first byte."""

    end: int
    places: Mapping[str, tuple[int, int]]
    """Name in ``flat_fields`` -> first byte and the one behind the last, without length word and pad."""


@dataclass(slots=True)
class _Branch:
    at: int
    """Offset of the word that decides."""
    ways: dict[int, _Branch | Layout] = field(default_factory=dict)


class Layouts:
    """The layouts of one declared type, as learned from the values that were decoded.

    Args:
        type: of the values.
        names: of the fields, as in ``flat_fields``.
        max_nodes: to decode of a value.
    """

    def __init__(self, type: XdrType, names: Iterable[str], max_nodes: int) -> None:
        self._type = type
        self._names = tuple(names)
        self._max_nodes = max_nodes
        self._top: _Branch | None = None
        self._learned = 0

    def of(self, view: memoryview, start: int) -> Layout | None:
        """The layout of the value at ``view[start:]``; None where no such value was learned."""
        found: _Branch | Layout | None = self._top
        try:
            while isinstance(found, _Branch):
                found = found.ways.get(word(view, start + found.at)[0])
        except StructError:
            return None
        return found if isinstance(found, Layout) and start + found.end <= len(view) else None

    def learn(self, view: memoryview, start: int) -> None:
        """Decode a value of which ``of`` knows no layout; one that is not decoded to its end teaches nothing."""
        walk = _Noting(SparseBytes([(0, view)], len(view)), start, len(view), self._max_nodes)
        decoded = walk.decoded(self._type, "")
        if decoded.problem or walk.unsure or not walk.deciding:
            return
        places = {}
        nodes = flat_nodes(decoded.root)
        for name in self._names:
            if name in nodes:
                place = _place(nodes[name], start)
                if place is None:
                    return
                places[name] = place
        if self._learned == MAX_LAYOUTS:
            self._top, self._learned = None, 0
        self._add(view, start, walk.deciding, Layout(decoded.end - start, places))

    def _add(self, view: memoryview, start: int, deciding: list[int], layout: Layout) -> None:
        if self._top is None:
            self._top = _Branch(deciding[0] - start)
        branch = self._top
        for here, following in pairwise(deciding):
            further = branch.ways.setdefault(word(view, here)[0], _Branch(following - start))
            if not isinstance(further, _Branch):
                return
            branch = further
        branch.ways[word(view, deciding[-1])[0]] = layout
        self._learned += 1


def _place(node: Node, start: int) -> tuple[int, int] | None:
    at = node.offset - start
    if isinstance(node.type, XdrInteger) and not node.type.signed and node.length == node.type.size:
        return at, at + node.length
    if isinstance(node.type, XdrOpaque) and node.type.size is None and isinstance(node.value, memoryview):
        size = len(node.value)
        return (at + 4, at + 4 + size) if node.length == 4 + round_up(size) else None
    return None


class _Noting(Walk):
    """Notes the places of the words that decide what follows."""

    def __init__(self, data: SparseBytes, at: int, limit: int, max_nodes: int) -> None:
        super().__init__(data, at, limit, max_nodes)
        self.deciding: list[int] = []
        self.unsure = False
        """What follows depends on more than these words."""
        self._decides = True
        self._discriminant = False
        """The next integer is one."""

    def _word(self, node: Node) -> int:
        found = super()._word(node)
        if self._decides:
            self.deciding.append(self.at - 4)
        return found

    def _integer(self, node: Node, type: XdrInteger) -> int:
        self._decides = self._discriminant
        self._discriminant = False
        try:
            return super()._integer(node, type)
        finally:
            self._decides = True

    def _union(self, node: Node, type: XdrUnion) -> None:
        self._discriminant = True
        self.unsure |= not isinstance(type.type, XdrInteger) or type.type.size != 4
        super()._union(node, type)

    def _selected(self, type: XdrSelected) -> XdrType | None:
        self.unsure = True
        return super()._selected(type)
