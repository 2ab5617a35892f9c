"""What every source of live frames offers, and frames that another program writes: standard input or a named pipe.

A thread reads what is written, and hands it over to a reader that waits for several sources at once.
"""

from __future__ import annotations

import os
import queue
import stat
import threading
from contextlib import suppress
from typing import Protocol

from rdmascope.dissect.frames import FrameBatch

from ..errors import CaptureError
from ..read.open import CaptureFile, open_capture
from .device import Device


class Drops(Protocol):
    """The counters of the source of the frames."""

    @property
    def received(self) -> int:
        """Frames that passed the filter, those included that were dropped."""

    @property
    def dropped(self) -> int | None:
        """Frames that passed the filter and were lost for lack of room; None: not known."""


class Live(Drops, Protocol):
    """A source of frames that does not end by itself."""

    device: Device
    link_type: int
    snaplen: int
    words: str
    """The filter."""

    def fileno(self) -> int:
        """Becomes readable when there are frames."""

    def read(self) -> FrameBatch | None:
        """What came since the last time, without waiting; None for nothing.  Raises CaptureError at an end."""

    def refuse(self) -> None:
        """Let no more frames in, where that is possible; those that came are still read."""

    def count(self) -> None:
        """Bring ``received`` and ``dropped`` up to date."""

    def close(self) -> None:
        """Frame batches that were given stay valid."""


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
