"""Frames of a capture that another program is writing right now: standard input, or a named pipe."""

from __future__ import annotations

import os
import stat
import threading

from rdmascope.dissect.frames import FrameBatch

from ..errors import CaptureError
from ..read.open import CaptureFile, open_capture
from .device import Device
from .handover import MAX_WAITING, Handover

STREAM = "stream"
"""The kind of such a device."""
BATCH = 8 << 20
"""Bytes of a batch at most, where its frames are not larger."""


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

    def __init__(self, name: str, buffer: int = MAX_WAITING * BATCH) -> None:
        """Waits for the header of the capture.  Raises CaptureError for what is none.

        ``buffer``: bytes that may wait here before the writer has to.
        """
        self.device = Device("standard input" if name == "-" else name, STREAM)
        self.words = "that of the program that writes the stream"
        self.received = self._frames = 0
        self.dropped: int | None = None
        self._capture: CaptureFile = open_capture(name)
        self.link_type = next(iter(self._capture.link_types), 0)
        self.snaplen = self._capture.snaplen
        self._handover = Handover(max(1, min(MAX_WAITING, buffer // BATCH)))
        threading.Thread(target=self._take, daemon=True).start()

    def fileno(self) -> int:
        return self._handover.fileno()

    def read(self) -> FrameBatch | None:
        found = self._handover.take()
        self._frames += 0 if found is None else len(found)
        self.received = self._frames + (self.dropped or 0)
        return found

    def refuse(self) -> None:
        """What writes the stream goes on."""

    def count(self) -> None:
        """What its writer dropped a pcapng may tell at its end; nothing else does."""
        if self._capture.section.counts_drops:
            self.dropped = self._capture.dropped_frames
            self.received = self._frames + self.dropped

    def close(self) -> None:
        self._handover.stop()

    def _take(self) -> None:
        """Reads, in a thread."""
        try:
            for batch in self._capture.batches():
                self._handover.put(batch)
        except CaptureError as error:
            self._handover.put(error)
            return
        self._handover.put(StreamEnded(f"{self.device}: the stream ended"))
