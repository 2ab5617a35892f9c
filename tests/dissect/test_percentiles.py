"""Durations in, percentiles out."""

from __future__ import annotations

import numpy as np
import pytest

from rdmascope.dissect.percentiles import EXACT, Samples


def test_many_durations_in_little_memory() -> None:
    durations = np.random.default_rng(1).lognormal(11, 2, 5 * EXACT).astype(np.int64)
    samples = Samples()
    for part in np.split(durations, 10):
        samples.add(part)
    spread = samples.spread()
    assert spread is not None
    assert (spread.count, spread.minimum, spread.maximum) == (len(durations), durations.min(), durations.max())
    assert spread.median == pytest.approx(np.median(durations), rel=0.02)
    assert spread.p99 == pytest.approx(np.percentile(durations, 99), rel=0.03)
