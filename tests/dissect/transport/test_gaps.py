"""Gaps are filled by what comes late, byte for byte, and their number is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rdmascope.dissect.transport.gaps import MAX_HOLES, Hole, add_hole, fill_holes

RANGE = st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def members(holes: list[Hole]) -> set[int]:
    return {position for hole in holes for position in range(hole.start, hole.end)}


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=8), st.lists(RANGE, max_size=5))
def test_what_is_left_is_what_was_not_seen(steps: list[tuple[int, int]], seen: list[tuple[int, int]]) -> None:
    holes: list[Hole] = []
    at = 0
    for frame, (distance, length) in enumerate(steps, 1):
        at += distance
        add_hole(holes, Hole(at, at + length, frame, 10 * frame))
        at += length
    expected = members(holes)
    places = {position: hole.frame for hole in holes for position in range(hole.start, hole.end)}
    for start, stop in seen:
        holes = fill_holes(holes, start, stop)
        expected -= set(range(start, stop))
    assert members(holes) == expected
    assert sum(hole.end - hole.start for hole in holes) == len(expected)
    assert all(hole.start < hole.end and places[hole.start] == hole.frame for hole in holes)


def test_the_oldest_are_dropped() -> None:
    holes: list[Hole] = []
    for number in range(2 * MAX_HOLES):
        add_hole(holes, Hole(2 * number, 2 * number + 1, number, number))
    assert len(holes) == MAX_HOLES
    assert holes[-1].frame == 2 * MAX_HOLES - 1 and holes[0].frame == MAX_HOLES
