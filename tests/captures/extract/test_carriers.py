"""Ranges of sequence numbers, between frames: looked up in columns as one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from rdmascope.captures.extract.frames import NumberRanges
from rdmascope.dissect.serial import SerialNumbers

BITS = SerialNumbers(12)
LINGER = 16


Range = tuple[int, int, int, int]


@st.composite
def passed(draw: st.DrawFn) -> tuple[list[Range], list[tuple[int, int]]]:
    """Ranges one behind the other, and numbers beside them, each in its frame."""
    number, frame = draw(st.integers(0, BITS.modulus - 1)), 100
    ranges: list[Range] = []
    items: list[tuple[int, int]] = []
    steps = st.tuples(st.integers(9, 30), st.integers(1, 9), st.integers(0, 5))
    for step, length, frames in draw(st.lists(steps, min_size=1, max_size=40)):
        number, frame = number + step, frame + frames
        low = BITS.wrap(number)
        ranges.append((low, low + length, frame, frame + frames))
        items.append((BITS.wrap(number + draw(st.integers(-4, 12))), frame + draw(st.integers(-20, 20))))
    return ranges, items


@given(passed())
def test_ranges_are_found_as_one_by_one(drawn: tuple[list[Range], list[tuple[int, int]]]) -> None:
    ranges, items = drawn
    looked_up = NumberRanges(BITS)
    for tag, one in enumerate(ranges):
        looked_up.add(*one, LINGER, tag)
    numbers, frames = (np.array(column, np.int64) for column in zip(*items, strict=True))
    for (number, frame), tag in zip(items, looked_up.tags(numbers, 1, frames).tolist(), strict=True):
        fitting = [
            index
            for index, (low, high, first, last) in enumerate(ranges)
            if first - LINGER <= frame <= last + LINGER and BITS.distance(low, number) < high - low
        ]
        assert [tag] == (fitting or [-1])


def test_ranges_that_overlap() -> None:
    ranges = NumberRanges(BITS)
    ranges.add(10, 20, 1, 2, LINGER, 7)
    ranges.add(15, 17, 40, 41, LINGER, 8)
    frames = np.array([1, 41, 41, 41])
    assert ranges.tags(np.array([16, 16, 18, 14]), 1, frames).tolist() == [7, 8, -1, -1]
    assert ranges.tags(np.array([5]), np.array([6]), frames[:1]).tolist() == [7]


def test_those_that_end_among_frames() -> None:
    ranges = NumberRanges(BITS)
    for low, last in ((10, 5), (30, 9), (20, 7)):
        ranges.add(low, low + 2, last, last, LINGER, 0)
    numbers, frames = ranges.ending(6, 9)
    assert (numbers.tolist(), frames.tolist()) == ([22, 32], [7, 9])
