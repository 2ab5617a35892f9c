"""Sums over time in a bounded number of cells."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from rdmascope.dissect.measure.time_cells import (
    BINS_SHIFT,
    FIRST_WIDTH,
    NO_LIMIT,
    UNKNOWN,
    Peaks,
    TimeCells,
    peaked,
    widened,
)
from rdmascope.dissect.percentiles import bin_edges, bins_of

START = 1_700_000_000_000_000_000
RPCS = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.integers(0, 10**13),
        st.integers(-1, 10**11),
        st.integers(0, 1),
        st.integers(0, 1 << 30),
        st.integers(0, 1 << 30),
    ),
    min_size=1,
    max_size=60,
)


def fed(rpcs: list[tuple[int, ...]], parts: int, **limits: int) -> TimeCells:
    cells = TimeCells(**limits)
    cells.start = START
    columns = np.array(rpcs, np.int64)
    columns[:, 1] += START
    for part in np.array_split(columns, parts):
        cells.add(*part.T)
    return cells


@given(RPCS, st.integers(1, 4), st.integers(2, 64))
def test_every_rpc_is_counted_once_and_where_it_ended(rpcs: list[tuple[int, ...]], parts: int, intervals: int) -> None:
    cells = fed(rpcs, parts, max_intervals=intervals)
    found = cells.rows
    assert found[:, 1].max(initial=0) < intervals
    assert found[:, 3].sum() == len(rpcs)
    for column, at in ((4, 3), (5, 4), (6, 5)):
        assert found[:, column].sum() == sum(rpc[at] for rpc in rpcs)
    assert found[:, 7].sum() == sum(max(0, rpc[2]) for rpc in rpcs)
    keys = set(map(tuple, found[:, :3].tolist()))
    assert len(keys) == len(found)
    for group, time, latency, *_ in rpcs:
        bin = UNKNOWN if latency < 0 else int(bins_of(np.array([latency]))[0]) >> BINS_SHIFT
        assert (group, time // cells.width, bin) in keys


@given(RPCS)
def test_in_parts_it_is_the_same_as_at_once(rpcs: list[tuple[int, ...]]) -> None:
    one, other = fed(rpcs, 1), fed(rpcs, 5)
    assert one.width == other.width and (one.rows == other.rows).all()


@given(RPCS, st.integers(4, 12))
def test_too_many_cells_become_wider_intervals(rpcs: list[tuple[int, ...]], limit: int) -> None:
    cells = fed(rpcs, 2, max_cells=limit)
    assert len(cells.rows) <= limit or not cells.rows[:, 1].any()
    assert cells.rows[:, 3].sum() == len(rpcs)


@given(RPCS, st.integers(1, 30))
def test_wider_intervals_keep_the_sums(rpcs: list[tuple[int, ...]], doublings: int) -> None:
    cells = fed(rpcs, 1).rows
    wider = widened(cells, doublings)
    assert (wider[:, 3:].sum(axis=0) == cells[:, 3:].sum(axis=0)).all()
    assert set(wider[:, 1].tolist()) == {at >> doublings for at in cells[:, 1].tolist()}


def test_groups_become_one() -> None:
    cells = fed([(1, 0, 5, 0, 1, 1), (2, 0, 5, 1, 2, 2), (3, 0, 5, 0, 4, 4)], 1)
    cells.merge(np.array([1, 3]), 0)
    assert cells.rows[:, [0, 3, 4, 5]].tolist() == [[0, 2, 0, 5], [2, 1, 1, 2]]


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=50))
def test_a_latency_lies_in_its_bin(latencies: list[int]) -> None:
    values = np.array(latencies)
    bins = bins_of(values) >> BINS_SHIFT
    # Bins are found by numbers of 32 bits.
    assert (bin_edges(bins << BINS_SHIFT) <= values * 1.0000001).all()
    assert (values * 0.9999999 <= bin_edges((bins + 1) << BINS_SHIFT)).all()


SAMPLES = st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 99), st.integers(0, 9)), min_size=1, max_size=60)


@given(SAMPLES, st.integers(1, 4), st.integers(2, 64))
def test_peaks_keep_the_highest_value_and_the_lowest_limit(
    samples: list[tuple[int, int, int]], parts: int, intervals: int
) -> None:
    peaks = Peaks(START, intervals)
    for part in np.array_split(np.array(samples, np.int64), parts):
        peaks.add(START + part[:, 0], part[:, 1], part[:, 2])
    expected: dict[int, tuple[int, int]] = {}
    for time, value, limit in samples:
        highest, lowest = expected.get(time // peaks.width, (0, NO_LIMIT))
        expected[time // peaks.width] = max(highest, value), min(lowest, limit or NO_LIMIT)
    assert {at: (value, limit) for at, value, limit in peaks.rows.tolist()} == expected
    assert peaks.width >= FIRST_WIDTH and max(expected) < intervals
    assert (peaked(peaks.rows) == peaks.rows).all()
