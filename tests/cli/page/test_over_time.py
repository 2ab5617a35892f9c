"""The series of the charts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from playbook.facts import START, direction, health
from rdmascope.cli.page.over_time import INTERVALS, peak_series, percentile, retransmissions, series
from rdmascope.dissect.measure.time_cells import Peaks, TimeCells
from rdmascope.dissect.percentiles import distribution

LATENCIES = st.lists(st.integers(1000, 10**11), min_size=1, max_size=200)


def cells_of(times: list[int], latencies: list[int], start: int) -> TimeCells:
    cells = TimeCells()
    cells.start = start
    zeros = np.zeros(len(times), np.int64)
    cells.add(zeros + 1, np.array(times), np.array(latencies), zeros, zeros + 3, zeros + 4)
    return cells


@given(LATENCIES)
def test_percentiles_are_good_to_7_percent(latencies: list[int]) -> None:
    start = 10**18
    found = series(cells_of([start] * len(latencies), latencies, start), start)
    exact = distribution(np.array(latencies))
    assert exact is not None
    for percent, value in ((50, exact.median), (95, exact.p95), (99, exact.p99)):
        assert found.percentiles[percent][0] == pytest.approx(value, rel=0.07)
    at, low, high, counts = found.heat
    assert counts.sum() == len(latencies) and set(at.tolist()) == {0}
    for latency in latencies:
        assert ((low <= latency * 1.0000001) & (latency * 0.9999999 <= high)).any()


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=100), st.integers(0, 10**9))
def test_sums_are_those_of_all_rpcs_in_no_more_intervals_than_fit(times: list[int], before: int) -> None:
    start = 10**18
    found = series(cells_of([start + time for time in times], [5000] * len(times), start), start - before)
    assert len(found.starts) <= INTERVALS
    assert found.calls.sum() == len(times) and found.reply_bytes.sum() == 4 * len(times)
    for time in times:
        at = np.searchsorted(found.starts, time + before, side="right") - 1
        assert found.calls[at] and found.starts[at] <= time + before < found.starts[at] + found.width
    assert (np.isnan(found.percentiles[50]) == (found.calls == 0)).all()


def test_a_capture_may_claim_to_span_more_than_64_bits_count() -> None:
    found = series(cells_of([(1 << 63) - 1], [1000], (1 << 63) - 1), -(1 << 63))
    assert found.starts.tolist() == [float(1 << 64)]


def test_nothing_has_no_percentile_and_no_peak() -> None:
    assert np.isnan(percentile(np.array([], np.int64), np.array([], np.int64), 50))
    assert peak_series(None, 0) is None and peak_series(Peaks(0), 0) is None


def test_limits_that_are_not_known_are_gaps() -> None:
    peaks = Peaks(1000)
    peaks.add(np.array([1000, 5000]), np.array([3, 4]), np.array([0, 16]))
    found = peak_series(peaks, 0)
    assert found is not None and found.values.tolist() == [3, 4]
    assert np.isnan(found.limits[0]) and found.limits[1] == 16


def test_packets_are_drawn_in_the_interval_in_which_they_were_retransmitted() -> None:
    client = direction()._replace(retransmission_times=((START + 5, 3), (START + 25, 2), (START + 999, 1)))
    server = direction()._replace(retransmission_times=((START - 1, 4),))
    assert retransmissions([health(client=client, server=server)], START, 10, 4).tolist() == [7, 0, 2, 1]
