"""What the process has in memory, and how it is given back."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from ..heap import trim

STATM = Path("/proc/self/statm")
"""In pages: size, resident, shared; proc(5)."""
STATUS = Path("/proc/self/status")
"""VmHWM is the peak of what was resident, in KiB; proc(5)."""


def resident() -> int:
    """Bytes that are in memory; 0 where that is not known."""
    try:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def peak() -> int:
    """Most bytes that were in memory since the program began; 0 where that is not known."""
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)


def release() -> None:
    """Give back what is not in use: cycles, and what the allocator keeps otherwise, which adds up in hours."""
    gc.collect()
    trim()
