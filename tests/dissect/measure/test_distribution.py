"""Latencies in, percentiles and bars out."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmascope.dissect.measure.distribution import distribution, histogram


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=80), st.integers(0, 40))
@settings(max_examples=80)
def test_percentiles_are_samples_that_enough_others_do_not_exceed(samples: list[int], zeros: int) -> None:
    found = distribution(np.array(samples, np.int64), len(samples) + zeros)
    assert found is not None
    everything = sorted([0] * zeros + samples)
    assert found.minimum == everything[0]
    assert found.maximum == everything[-1]
    assert found.total == sum(samples)
    for percent, value in ((50, found.median), (95, found.p95), (99, found.p99)):
        assert value in everything
        assert sum(one <= value for one in everything) * 100 >= percent * len(everything)
        below = [one for one in everything if one < value]
        assert len(below) * 100 < percent * len(everything)


@given(st.lists(st.integers(0, 10**11), max_size=60), st.integers(2, 24))
@settings(max_examples=60)
def test_the_histogram_has_every_sample_in_its_place(samples: list[int], most: int) -> None:
    rows = histogram(np.array(samples, np.int64), most)
    assert len(rows) <= most
    assert sum(number for _, _, number in rows) == len(samples)
    for low, high, number in rows:
        assert number == sum(low <= one < high for one in samples)
