"""XDR shapes: how far a value reaches, without decoding it (RFC 4506).

A shape is either a number of bytes (the value always takes that many) or a function ``skip(view, at) -> at``
that steps over one value.  The combinators below build shapes from shapes.  ``view`` is a ``memoryview`` that
ends where the message ends, so a read behind the end fails by itself; ``at`` is an offset in it.

A skip function raises ``struct.error`` if the bytes end inside the value (or, without reading, returns an offset behind
the end: the caller compares), and ``Malformed`` if the bytes are no such value. Neither leaves ``onc``. Counts are only
multiplied or counted down, one read each: nothing is allocated by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct, error as struct_error
from typing import Any

Data = Any
"""Contiguous bytes: anything with the buffer protocol, one byte an item."""
Skip = Callable[[memoryview, int], int]
Shape = int | Skip

word: Callable[[memoryview, int], tuple[int]] = Struct(">I").unpack_from
words2: Callable[[memoryview, int], tuple[int, int]] = Struct(">II").unpack_from
hyper: Callable[[memoryview, int], tuple[int]] = Struct(">Q").unpack_from


class Malformed(Exception):
    """The bytes are there, but are no value of the shape."""


def round_up(length: int) -> int:
    """Bytes of an opaque with its pad (RFC 4506, 4.10)."""
    return length + 3 & -4


def opaque(view: memoryview, at: int) -> int:
    """Variable-length opaque or string (RFC 4506, 4.10 and 4.11)."""
    return at + 4 + (word(view, at)[0] + 3 & -4)


def opaque_at(view: memoryview, at: int) -> tuple[bytes, int]:
    """A variable-length opaque or string and the offset behind its pad; struct.error where bytes of it are missing."""
    length = word(view, at)[0]
    end = at + 4 + length
    if end > len(view):
        raise struct_error(f"{length} bytes at {at} of {len(view)}")
    return bytes(view[at + 4 : end]), at + 4 + round_up(length)


def struct(*fields: Shape) -> Shape:
    """Fields one behind the other (RFC 4506, 4.14); neighbours of fixed size become one step."""
    steps: list[Shape] = []
    for field in fields:
        if isinstance(field, int) and steps and isinstance(steps[-1], int):
            steps[-1] += field
        elif field != 0:
            steps.append(field)
    if not steps:
        return 0
    if len(steps) == 1:
        return steps[0]
    if len(steps) == 2:
        return _pair(steps[0], steps[1])
    return _pair(struct(*steps[:-1]), steps[-1]) if len(steps) == 3 else _sequence(tuple(steps))


def _pair(first: Shape, second: Shape) -> Skip:
    if isinstance(first, int):
        size = first
        assert not isinstance(second, int)
        then = second
        return lambda view, at: then(view, at + size)
    before = first
    if isinstance(second, int):
        more = second
        return lambda view, at: before(view, at) + more
    after = second
    return lambda view, at: after(view, before(view, at))


def _sequence(steps: tuple[Shape, ...]) -> Skip:
    skips = tuple(as_skip(step) for step in steps)

    def skip(view: memoryview, at: int) -> int:
        for step in skips:
            at = step(view, at)
        return at

    return skip


def as_skip(shape: Shape) -> Skip:
    """A shape as a function, whatever it is."""
    if isinstance(shape, int):
        size = shape
        return lambda view, at: at + size
    return shape


def array(element: Shape) -> Skip:
    """Variable-length array (RFC 4506, 4.13); an optional value is one of at most one element (4.19)."""
    if isinstance(element, int):
        size = element
        if size == 0:
            raise ValueError("an element takes at least one word")
        return lambda view, at: at + 4 + word(view, at)[0] * size
    step = element

    def skip(view: memoryview, at: int) -> int:
        count = word(view, at)[0]
        at += 4
        end = len(view)
        # An element takes four bytes or more: a count that cannot fit fails before the walk.
        if count > (end - at) >> 2:
            return at + 4 * count
        for _ in range(count):
            at = step(view, at)
        return at

    return skip


def chain(element: Shape) -> Skip:
    """Linked list: a word 1 before each element, 0 behind the last (RFC 4506, 4.19)."""
    step = as_skip(element)

    def skip(view: memoryview, at: int) -> int:
        while word(view, at)[0]:
            at = step(view, at + 4)
        return at + 4

    return skip


def union(arms: Mapping[int, Shape], default: Shape | None = None) -> Skip:
    """Discriminated union (RFC 4506, 4.15); without a default arm an unknown discriminant is malformed."""
    skips = {value: as_skip(arm) for value, arm in arms.items()}
    otherwise = None if default is None else as_skip(default)

    def skip(view: memoryview, at: int) -> int:
        value = word(view, at)[0]
        arm = skips.get(value, otherwise)
        if arm is None:
            raise Malformed(f"no arm {value} in the union")
        return arm(view, at + 4)

    return skip
