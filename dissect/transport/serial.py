"""Packet sequence numbers: 24 bits, compared by serial arithmetic (IBA volume 1, 9.7.2)."""

from __future__ import annotations

import numpy as np

from ..arrays import Int64s, Rows, extremes

MODULUS = 1 << 24
HALF = 1 << 23


def unwrap(reference: int, psn: int) -> int:
    """The unwrapped number nearest to ``reference`` that is ``psn`` modulo 2**24."""
    return reference + ((psn - reference + HALF) % MODULUS) - HALF


def unwrap_all(reference: int, psns: Rows) -> Int64s:
    """Unwrap a series, each number nearest to the one before it, the first nearest to ``reference``."""
    if not len(psns):
        return np.empty(0, np.int64)
    series = psns.astype(np.int64)
    low, high = extremes(series)
    if high - low < HALF:  # Nothing wraps, as nearly always.
        series += unwrap(reference, int(series[0])) - int(series[0])
        return series
    steps = np.empty(len(series), np.int64)
    steps[0] = unwrap(reference, int(series[0])) - reference
    np.subtract(series[1:], series[:-1], out=steps[1:])
    steps[1:] = ((steps[1:] + HALF) & (MODULUS - 1)) - HALF
    return reference + np.cumsum(steps)
