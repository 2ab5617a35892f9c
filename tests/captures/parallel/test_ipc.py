"""What one process sends to another."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from rdmascope.captures.parallel.processes import packed, unpacked
from rdmascope.dissect.frames import FRAME, FrameBatch


def test_nothing_holds_what_was_received_once_it_is_forgotten() -> None:
    """Nobody looks for cycles while a capture is read."""
    data = np.arange(64, dtype=np.uint8)
    parts = packed([FrameBatch(data, np.zeros(1 << 12, FRAME))], data)
    was = gc.isenabled()
    gc.disable()
    try:
        (batch,) = unpacked(parts, data, lambda kind, number: None)
        assert batch.data is data and len(batch) == 1 << 12
        held = weakref.ref(batch.rows)
        del batch
        assert held() is None
    finally:
        if was:
            gc.enable()
