"""The heap of the C library."""

from __future__ import annotations

import ctypes


def trim() -> None:
    """Give back the gaps that batches of many sizes leave in it (malloc_trim(3); the C library of GNU has it)."""
    found = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if found is not None:
        found(0)
