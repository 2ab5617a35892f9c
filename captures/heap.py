"""The heap of the C library."""

from __future__ import annotations

import ctypes

TRIM_CONNECTIONS = 1 << 7
"""New connections behind which it is trimmed: what is kept of them lies between the gaps that batches left."""


def trim() -> None:
    """Give back the gaps that batches of many sizes leave in it (malloc_trim(3); the C library of GNU has it)."""
    found = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if found is not None:
        found(0)


class Heap:
    """While a capture is read."""

    def __init__(self) -> None:
        self._trimmed = 0

    def grown(self, connections: int) -> None:
        """So many are known by now."""
        if connections - self._trimmed >= TRIM_CONNECTIONS:
            self._trimmed = connections
            trim()
