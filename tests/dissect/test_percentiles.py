"""Durations in, percentiles and bars out."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rdmascope.dissect.percentiles import EXACT, Samples, distribution, histogram


def filled(durations: list[int], exact: int = EXACT) -> Samples:
    samples = Samples(exact)
    for one in durations:
        samples.append(one)
    return samples


def test_many_durations_in_little_memory() -> None:
    durations = np.random.default_rng(1).lognormal(11, 2, 5 * EXACT).astype(np.int64)
    samples = Samples()
    for part in np.split(durations, 10):
        samples.add(part)
    found = samples.distribution()
    assert found is not None and len(samples.recent) <= EXACT
    assert (found.count, found.minimum, found.maximum) == (len(durations), durations.min(), durations.max())
    assert found.total == durations.sum()
    assert found.median == pytest.approx(np.median(durations), rel=0.02)
    assert found.p99 == pytest.approx(np.percentile(durations, 99), rel=0.03)
    assert samples.at(50) == found.median


@given(st.lists(st.integers(0, 10**10), max_size=80), st.integers(0, 40))
def test_percentiles_are_samples_that_enough_others_do_not_exceed(durations: list[int], zeros: int) -> None:
    found = filled(durations).distribution(len(durations) + zeros)
    everything = sorted([0] * zeros + durations)
    if not everything:
        assert found is None
        return
    assert found is not None
    assert (found.minimum, found.maximum, found.total) == (everything[0], everything[-1], sum(durations))
    for percent, value in ((50, found.median), (95, found.p95), (99, found.p99)):
        assert value in everything
        assert sum(one <= value for one in everything) * 100 >= percent * len(everything)
        below = [one for one in everything if one < value]
        assert len(below) * 100 < percent * len(everything)


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=60), st.integers(1, 20), st.integers(0, 60))
def test_bins_and_merging_keep_counts_sums_and_extremes(durations: list[int], exact: int, split: int) -> None:
    first, second = filled(durations[:split], exact), filled(durations[split:], exact)
    first.merge(second)
    found, exactly = first.distribution(), filled(durations).distribution()
    assert found is not None and exactly is not None
    assert (found.count, found.minimum, found.maximum, found.total) == (
        exactly.count, exactly.minimum, exactly.maximum, exactly.total,
    )  # fmt: skip
    for mine, theirs in ((found.median, exactly.median), (found.p95, exactly.p95), (found.p99, exactly.p99)):
        assert mine == pytest.approx(theirs, rel=0.02, abs=1)
    values, counts = first.weighted()
    assert counts.sum() == len(durations) and values.max() <= found.maximum


def test_a_few_durations_at_once() -> None:
    found = distribution(np.array([3, 1, 2, 4], np.int64))
    assert found is not None and (found.median, found.p99, found.mean) == (2, 4, 2.5)
    assert distribution(np.empty(0, np.int64)) is None


@given(st.lists(st.integers(0, 10**11), max_size=60), st.integers(2, 24))
def test_the_histogram_has_every_duration_in_its_place(durations: list[int], most: int) -> None:
    rows = histogram(np.array(durations, np.int64), most)
    assert len(rows) <= most
    assert sum(number for _, _, number in rows) == len(durations)
    for low, high, number in rows:
        assert number == sum(low <= one < high for one in durations)


def test_durations_beyond_what_a_float_holds_exactly() -> None:
    """Times up to 63 bits apart: rounded, never an overflow."""
    samples = Samples(typecode="f")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (1, 2**62, 2**63 - 1):
            samples.recent.append(value)
        found = samples.distribution()
    assert found is not None
    assert found.minimum >= 1 and found.maximum > 2**62


def test_fewer_samples_than_any_percentile_needs_the_rest_zeros() -> None:
    samples = Samples()
    samples.append(7)
    found = samples.distribution(1000)
    assert found is not None
    assert (found.median, found.p99, found.maximum, found.count) == (0, 0, 7, 1000)
