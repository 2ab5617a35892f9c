"""What a thread reads, for a reader that waits for several sources at once."""

from __future__ import annotations

import os
import queue
from contextlib import suppress

from rdmascope.dissect.frames import FrameBatch

from ..errors import CaptureError

MAX_WAITING = 16
"""Batches that were read and not asked for; then what writes them has to wait."""


class Handover:
    """Batches in their order; the file descriptor is readable while there are any."""

    def __init__(self, maximum: int = MAX_WAITING) -> None:
        """``maximum``: batches that may wait."""
        self._batches: queue.Queue[FrameBatch | CaptureError] = queue.Queue(maximum)
        self._ready, self._signal = os.pipe()
        os.set_blocking(self._ready, False)
        os.set_blocking(self._signal, False)
        self._stopped = False

    def fileno(self) -> int:
        return self._ready

    def put(self, found: FrameBatch | CaptureError) -> None:
        """In the thread: waits while too many batches do; returns at once after ``stop``."""
        while not self._stopped:
            try:
                self._batches.put(found, timeout=0.2)
            except queue.Full:
                continue
            self._wake()
            return

    def take(self) -> FrameBatch | None:
        """The next batch, None where none is there now.  Raises a CaptureError that was put, then and ever after."""
        with suppress(BlockingIOError):
            os.read(self._ready, 1 << 16)
        try:
            found = self._batches.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, CaptureError):
            self._batches.put(found)
            raise found
        if not self._batches.empty():
            self._wake()
        return found

    def stop(self) -> None:
        """Nothing is taken any more."""
        self._stopped = True

    def close(self) -> None:
        """The thread has ended."""
        os.close(self._ready)
        os.close(self._signal)

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # Then there is enough in the pipe to wake the reader.
            os.write(self._signal, b".")
