"""Frames of a capture that another program is writing right now: standard input, or a named pipe."""

from __future__ import annotations

import os
import queue
import stat
import threading
from contextlib import suppress

from rdmascope.dissect.frames import FrameBatch

from ..errors import CaptureError
from ..open import CaptureFile, open_capture
from .device import Device

STREAM = "stream"
"""The kind of such a device."""
MAX_WAITING = 16
"""Batches that were read and not asked for; then the writer has to wait."""


class StreamEnded(CaptureError):
    """The writer came to its end."""


def is_stream(name: str) -> bool:
    """Whether a name is that of standard input, -, or of a named pipe."""
    try:
        return name == "-" or stat.S_ISFIFO(os.stat(name).st_mode)
    except (OSError, ValueError):
        return False


class StreamSource:
    """A capture that grows at its end, of any format and with any filter that its writer has."""

    def __init__(self, name: str) -> None:
        """Waits for the header of the capture.  Raises CaptureError for what is none."""
        self.device = Device("standard input" if name == "-" else name, STREAM)
        self.words = "that of the program that writes the stream"
        self.received = self.dropped = 0
        self._capture: CaptureFile = open_capture(name)
        self.link_type = next(iter(self._capture.link_types), 0)
        self.snaplen = self._capture.snaplen
        self._batches: queue.Queue[FrameBatch | CaptureError] = queue.Queue(MAX_WAITING)
        self._ready, self._signal = os.pipe()
        os.set_blocking(self._ready, False)
        os.set_blocking(self._signal, False)
        self._closing = False
        threading.Thread(target=self._take, daemon=True).start()

    def fileno(self) -> int:
        return self._ready

    def read(self) -> FrameBatch | None:
        with suppress(BlockingIOError):
            os.read(self._ready, 1 << 16)
        try:
            found = self._batches.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, CaptureError):
            self._batches.put(found)  # It stays true.
            raise found
        if not self._batches.empty():
            self._wake()
        self.received += len(found)
        return found

    def count(self) -> None:
        """What was lost on the way here, nothing tells."""

    def close(self) -> None:
        self._closing = True

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # Then there is enough in the pipe to wake the reader.
            os.write(self._signal, b".")

    def _hand_over(self, found: FrameBatch | CaptureError) -> None:
        while not self._closing:
            try:
                self._batches.put(found, timeout=0.2)
            except queue.Full:
                continue
            self._wake()
            return

    def _take(self) -> None:
        """Reads, in a thread."""
        try:
            for batch in self._capture.batches():
                self._hand_over(batch)
        except CaptureError as error:
            self._hand_over(error)
            return
        self._hand_over(StreamEnded(f"{self.device}: the stream ended"))
