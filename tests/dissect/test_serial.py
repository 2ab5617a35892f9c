from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rdmascope.dissect.serial import DDP_MSN, PSN, TCP_SEQUENCE, SerialNumbers

SPACES = st.sampled_from((PSN, TCP_SEQUENCE, DDP_MSN))
REFERENCES = st.integers(-(1 << 34), 1 << 40)


@pytest.mark.parametrize(
    ("reference", "number", "position"),
    [
        (0, 0, 0),
        (0, 0xFFFFFF, -1),
        (0xFFFFFF, 0, 0x1000000),
        (0x1000000, 0xFFFFFE, 0xFFFFFE),
        (0x7FFFFF, 0xFFFFFE, 0xFFFFFE),
        (0x800000, 0, 0),  # half the circle away: before it
    ],
)
def test_unwrap_finds_the_nearest_position(reference: int, number: int, position: int) -> None:
    assert PSN.unwrap(reference, number) == position


@given(SPACES, REFERENCES, st.data())
def test_a_position_less_than_half_the_circle_away_comes_back(
    space: SerialNumbers, reference: int, data: st.DataObject
) -> None:
    position = data.draw(st.integers(reference - space.half, reference + space.half - 1))
    assert space.unwrap(reference, space.wrap(position)) == position
    assert space.wrap(reference + space.distance(reference, position)) == space.wrap(position)


@given(SPACES, REFERENCES, st.lists(st.integers(0, (1 << 32) - 1), max_size=20))
def test_many_numbers_unwrap_as_each_of_them(space: SerialNumbers, reference: int, numbers: list[int]) -> None:
    numbers = [space.wrap(number) for number in numbers]
    columns = np.array(numbers, np.uint32)
    assert space.unwrap_near(reference, columns).tolist() == [space.unwrap(reference, number) for number in numbers]
    series, before = [], reference
    for number in numbers:
        before = space.unwrap(before, number)
        series.append(before)
    assert space.unwrap_series(reference, columns).tolist() == series
