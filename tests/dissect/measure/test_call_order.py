"""RPCs in the order of their calls, whatever order they end in."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from rdmascope.dissect.measure.call_order import CallOrder


@given(st.permutations(range(1, 30)), st.sets(st.integers(1, 29)))
def test_they_come_in_the_order_of_numbers(ended: list[int], hidden: set[int]) -> None:
    order: CallOrder[int] = CallOrder()
    given_now = [row for number in ended for row in order.add(number, None if number in hidden else number)]
    assert [*given_now, *order.rest()] == [number for number in range(1, 30) if number not in hidden]


@given(st.permutations(range(1, 30)), st.integers(0, 30))
def test_no_more_are_held_back_than_allowed_and_none_is_lost(ended: list[int], limit: int) -> None:
    order: CallOrder[int] = CallOrder(limit)
    out: list[int] = []
    for fed, number in enumerate(ended, 1):
        out += order.add(number, number)
        assert fed - len(out) <= limit
    assert sorted([*out, *order.rest()]) == [*range(1, 30)]
    if not limit:
        assert out == ended


@given(st.lists(st.integers(1, 12), max_size=30), st.integers(0, 30), st.integers(1, 9), st.sets(st.integers(1, 12)))
def test_many_at_once_come_as_singly(ended: list[int], limit: int, together: int, hidden: set[int]) -> None:
    """A number that comes again, too."""
    singly: CallOrder[int] = CallOrder(limit)
    at_once: CallOrder[int] = CallOrder(limit)
    for first in range(0, len(ended), together):
        part = ended[first : first + together]
        rows = [None if number in hidden else first + place for place, number in enumerate(part)]
        expected = [row for number, known in zip(part, rows, strict=True) for row in singly.add(number, known)]
        assert at_once.add_all(np.array(part, np.int64), rows) == expected
    assert [*at_once.rest()] == [*singly.rest()]


def test_a_hung_call_stands_where_it_began() -> None:
    order: CallOrder[str] = CallOrder()
    assert [*order.add(1, "one")] == ["one"]
    assert not [*order.add(3, "three")]  # the second waits for its reply
    assert [*order.add(2, "two, no reply")] == ["two, no reply", "three"]


def test_a_long_wait_is_given_up() -> None:
    order: CallOrder[int] = CallOrder(2)
    assert not [*order.add(2, 2), *order.add(3, 3)]
    assert [*order.add(4, 4)] == [2, 3, 4]
    assert [*order.add(1, 1)] == [1]
