"""Positions in a stream with markers, and places in it without them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from rdmascope.dissect.layers.fpdus import MARKER_BYTES, MARKER_INTERVAL, MarkerGrid, fpdu_bytes, remove_markers

GRIDS = st.builds(MarkerGrid, st.integers(-2000, 1 << 33))
OFFSETS = st.integers(0, 3000)


@given(st.integers(0, 65535))
def test_an_fpdu_is_a_multiple_of_four_and_holds_its_ulpdu(length: int) -> None:
    size = fpdu_bytes(length)
    assert size % 4 == 0 and 6 <= size - length < 10
    assert fpdu_bytes(np.array([length])).tolist() == [size]


@given(GRIDS, OFFSETS)
def test_positions_and_places_belong_together(grid: MarkerGrid, offset: int) -> None:
    place = grid.base + offset
    position = grid.position(place)
    assert grid.place(position) == grid.place(grid.start(place)) == place
    assert position - place == MARKER_BYTES * len(grid.between(grid.base, position))
    assert grid.start(place) == position - MARKER_BYTES * (position - MARKER_BYTES in grid.between(grid.base, position))
    columns = np.array([place])
    assert grid.position(columns).tolist() == [position]
    assert grid.start(columns).tolist() == [grid.start(place)]
    assert grid.place(columns).tolist() == [grid.place(place)]


@given(GRIDS, st.lists(st.tuples(OFFSETS, OFFSETS), max_size=5))
def test_the_data_of_a_range_are_all_its_bytes_that_are_in_no_marker(
    grid: MarkerGrid, ranges: list[tuple[int, int]]
) -> None:
    starts = np.array([grid.base + a for a, _ in ranges], np.int64)
    stops = np.array([grid.base + a + b for a, b in ranges], np.int64)
    found: list[set[int]] = [set() for _ in ranges]
    for owner, low, high in zip(*(column.tolist() for column in grid.data(starts, stops)), strict=True):
        assert found[owner].isdisjoint(range(low, high))
        found[owner].update(range(low, high))
    for members, start, stop in zip(found, starts.tolist(), stops.tolist(), strict=True):
        assert members == {at for at in range(start, stop) if (at - grid.base) % MARKER_INTERVAL >= MARKER_BYTES}


@given(st.integers(0, 2000), st.binary(max_size=1500))
def test_a_stretch_that_begins_inside_a_marker_loses_the_rest_of_it(position: int, stream: bytes) -> None:
    data, markers = remove_markers(stream, position)
    kept = [byte for at, byte in enumerate(stream, position) if at % MARKER_INTERVAL >= MARKER_BYTES]
    assert data == bytes(kept)
    assert all((position + marker.at) % MARKER_INTERVAL == 0 for marker in markers)
