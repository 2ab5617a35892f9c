"""What the process has in memory, and how it is given back."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

STATM = Path("/proc/self/statm")
"""In pages: size, resident, shared; proc(5)."""


def resident() -> int:
    """Bytes that are in memory; 0 where that is not known."""
    try:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def release() -> None:
    """Give back what is not in use: cycles, and the gaps that batches of many sizes leave in the allocator's heap.

    The allocator keeps them otherwise, and in hours they add up (malloc_trim(3); the C library of GNU has it).
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
