"""Gaps are filled by what comes late, byte for byte, and their number is bounded."""

from __future__ import annotations

from hypothesis import given, strategies as st

from rdmascope.dissect.transport.connection import MAX_GAPS, Gap, fill_gaps, overlapping, with_gap

RANGE = st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def members(gaps: list[Gap]) -> set[int]:
    return {position for gap in gaps for position in range(gap.start, gap.end)}


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=8), st.lists(RANGE, max_size=5))
def test_what_is_left_is_what_was_not_seen(steps: list[tuple[int, int]], seen: list[tuple[int, int]]) -> None:
    gaps: list[Gap] = []
    at = 0
    for frame, (distance, length) in enumerate(steps, 1):
        at += distance
        gaps = with_gap(gaps, Gap(at, at + length, frame, 10 * frame))
        at += length
    expected = members(gaps)
    places = {position: gap.frame for gap in gaps for position in range(gap.start, gap.end)}
    for start, stop in seen:
        assert list(overlapping(gaps, start, stop)) == [one for one in gaps if one.start < stop and one.end > start]
        gaps = fill_gaps(gaps, start, stop)
        expected -= set(range(start, stop))
    assert members(gaps) == expected
    assert sum(gap.end - gap.start for gap in gaps) == len(expected)
    assert all(gap.start < gap.end and places[gap.start] == gap.frame for gap in gaps)


def test_the_oldest_are_dropped() -> None:
    gaps: list[Gap] = []
    for number in range(2 * MAX_GAPS):
        gaps = with_gap(gaps, Gap(2 * number, 2 * number + 1, number, number))
    assert len(gaps) == MAX_GAPS
    assert gaps[-1].frame == 2 * MAX_GAPS - 1 and gaps[0].frame == MAX_GAPS


def test_parts_of_one_gap_are_bounded_too() -> None:
    gaps = [Gap(0, 10 * MAX_GAPS, 1, 1)]
    for number in range(2 * MAX_GAPS):
        gaps = fill_gaps(gaps, 4 * number + 1, 4 * number + 3)
    assert len(gaps) == MAX_GAPS
    assert gaps[-1] == Gap(8 * MAX_GAPS - 1, 10 * MAX_GAPS, 1, 1)
