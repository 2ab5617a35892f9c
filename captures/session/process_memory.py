"""The heap of the C library."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def gc_paused() -> Iterator[None]:
    """Without looking for garbage: the nouns hold no cycles, and looking for some takes longer than all decoding."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


TRIM_CONNECTIONS = 1 << 12
"""New connections behind which it is trimmed: what is kept of them lies between the gaps that batches left."""
KEPT = 16 << 20
"""Bytes behind the last that is used, up to which the heap keeps what was freed."""
_LARGE = 8 << 20
"""Bytes from which on memory is asked of the system by itself, and given back at once."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""mallopt(3); the C library of GNU has it."""


def keep_freed() -> None:
    """Keep what one batch freed for the next: the system clears each page anew that it was given back."""
    set_option = getattr(_library(), "mallopt", None)
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, _LARGE)
        set_option(_M_TRIM_THRESHOLD, KEPT)


def trim() -> None:
    """Give back the gaps that batches of many sizes leave in it (malloc_trim(3); the C library of GNU has it)."""
    malloc_trim = getattr(_library(), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


@cache
def _library() -> ctypes.CDLL:
    """Once: each holds itself."""
    return ctypes.CDLL(None)


class MallocTrimmer:
    """While a capture is read."""

    def __init__(self) -> None:
        self._trimmed = 0

    def grown(self, connections: int) -> None:
        """So many are known by now."""
        if connections - self._trimmed >= TRIM_CONNECTIONS:
            self._trimmed = connections
            trim()
