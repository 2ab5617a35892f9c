"""Serial numbers, which wrap around: unwrapped into positions that only grow, and compared (RFC 1982).

Packet sequence numbers have 24 bits (IBA volume 1, 9.7.2), TCP sequence numbers (RFC 9293, 3.4) and DDP message
sequence numbers (RFC 5041, 5) have 32.
"""

from __future__ import annotations

import numpy as np

from .arrays import Int64s, Rows, extremes


class SerialNumbers:
    """The serial numbers of so many bits.

    ``unwrap`` is the position nearest to ``reference`` that has a number; numbers half the circle away lie before it.
    """

    __slots__ = ("half", "modulus")

    def __init__(self, bits: int) -> None:
        self.modulus = 1 << bits
        self.half = 1 << bits - 1

    def wrap(self, position: int) -> int:
        """The number of a position."""
        return position % self.modulus

    def distance(self, first: int, second: int) -> int:
        """Steps forward from one number or position to another, below ``modulus``."""
        return (second - first) % self.modulus

    def unwrap(self, reference: int, number: int) -> int:
        """The position nearest to ``reference`` that has the number."""
        return reference + ((number - reference + self.half) % self.modulus) - self.half

    def unwrap_near(self, reference: int, numbers: Rows) -> Int64s:
        """The positions of many numbers, each nearest to ``reference``."""
        offsets: Int64s = numbers.astype(np.int64) - (reference - self.half)
        offsets %= self.modulus
        offsets += reference - self.half
        return offsets

    def unwrap_series(self, reference: int, numbers: Rows) -> Int64s:
        """The positions of many numbers, each nearest to the one before it, the first nearest to ``reference``."""
        if not len(numbers):
            return np.empty(0, np.int64)
        series: Int64s = numbers.astype(np.int64)
        low, high = extremes(series)
        if high - low < self.half:  # Nothing wraps, as nearly always.
            series += self.unwrap(reference, int(series[0])) - int(series[0])
            return series
        steps = np.empty(len(series), np.int64)
        steps[0] = self.unwrap(reference, int(series[0])) - reference
        np.subtract(series[1:], series[:-1], out=steps[1:])
        steps[1:] = ((steps[1:] + self.half) & (self.modulus - 1)) - self.half
        return reference + np.cumsum(steps)


PSN = SerialNumbers(24)
TCP_SEQUENCE = SerialNumbers(32)
DDP_MSN = SerialNumbers(32)
