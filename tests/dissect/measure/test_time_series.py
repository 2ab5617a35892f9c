"""Events in, bins of time out."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import numpy as np
from hypothesis import given, strategies as st

from rdmascope.dissect.measure import statistics, time_cells
from rdmascope.dissect.measure.statistics import MAX_BINS, Timeline


def add(timeline: Timeline, time: int, call_bytes: int, reply_bytes: int) -> None:
    timeline.add(*(np.array([one]) for one in (time, 1, call_bytes, reply_bytes)))


@given(
    st.lists(st.tuples(st.integers(0, 2 * 10**18), st.integers(0, 1000), st.integers(0, 1000)), max_size=50),
    st.integers(1, 40),
)
def test_the_timeline_loses_nothing(events: list[tuple[int, int, int]], columns: int) -> None:
    timeline = Timeline()
    for event in events:
        add(timeline, *event)
    each, bins = timeline.intervals(columns)
    assert len(bins) <= columns
    assert sum(one.calls for one in bins) == len(events)
    assert sum(one.call_bytes for one in bins) == sum(event[1] for event in events)
    assert sum(one.reply_bytes for one in bins) == sum(event[2] for event in events)
    if events:
        span = max(event[0] for event in events) - min(event[0] for event in events)
        assert each * len(bins) * 1e9 >= span


def test_the_timeline_widens_its_bins_rather_than_grow() -> None:
    timeline = Timeline()
    for at in range(3 * MAX_BINS):
        add(timeline, at * 1_000_000, 1, 2)
    assert len(timeline.bins) <= MAX_BINS
    assert sum(one.reply_bytes for one in timeline.bins.values()) == 6 * MAX_BINS


@given(st.lists(st.one_of(st.integers(0, 10**8), st.integers(-(10**10), 10**18)), min_size=1, max_size=60))
def test_bins_are_as_wide_as_it_takes(times: list[int]) -> None:
    width = 1_000_000
    while len({time // width for time in times}) > 8:
        width *= 2
    with patch.object(statistics, "MAX_BINS", 8), patch.object(time_cells.WideningRows, "together", 5):
        timeline = Timeline()
        for time in times:
            add(timeline, time, 0, 0)
        assert timeline.width == width
        assert {at: one.calls for at, one in timeline.bins.items()} == Counter(time // width for time in times)
