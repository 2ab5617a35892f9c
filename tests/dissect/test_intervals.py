from __future__ import annotations

from hypothesis import given, strategies as st

from rdmascope.dissect.intervals import IntervalSet

CHANGES = st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 12)), max_size=30)


@given(CHANGES, st.integers(0, 40), st.integers(0, 12))
def test_it_holds_what_a_set_of_integers_holds(changes: list[tuple[bool, int, int]], start: int, length: int) -> None:
    intervals, members = IntervalSet(), set[int]()
    for added, at, size in changes:
        if added:
            fresh = intervals.add(at, at + size)
            assert {one for a, b in fresh for one in range(a, b)} == set(range(at, at + size)) - members
            members |= set(range(at, at + size))
        else:
            intervals.remove(at, at + size)
            members -= set(range(at, at + size))
    assert {one for a, b in zip(intervals.starts, intervals.ends, strict=True) for one in range(a, b)} == members
    assert len(intervals) == len(members)
    edges = [edge for pair in zip(intervals.starts, intervals.ends, strict=True) for edge in pair]
    assert edges == sorted(edges)
    missing = {one for a, b in intervals.missing(start, start + length) for one in range(a, b)}
    assert missing == set(range(start, start + length)) - members
