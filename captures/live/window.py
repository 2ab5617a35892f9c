"""Keeps the packets around a moment: those from before it wait in memory, those after it follow into the file."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from rdmascope.dissect.frames import FrameBatch

from ..errors import CaptureError
from ..write.writer import PcapngWriter
from .keep import RingFiles, leave_whole, lost_since, open_pcapng
from .source import Live

SECOND = 1_000_000_000
HALF = 2
"""The part of a file that packets from before the moment may take."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Which packets, and where."""

    path: str
    before: int = 30 * SECOND
    """Nanoseconds."""
    after: int = 5 * SECOND
    size: int = 100_000_000
    """Bytes of a file at most; half of them from before the moment, which wait in memory."""
    waiting: int | None = None
    """Bytes that may wait in memory; None: half of ``size``."""
    files: int = 10
    """How many there are at most, those of earlier runs included; older ones are removed."""


class WindowKeeper:
    """Fed the batches of a live capture, and told the moments."""

    def __init__(self, window: Surroundings, live: Live, application: str, numbered: bool) -> None:
        """``numbered``: a complete file gets a number, as those of a ring do, and the next may follow."""
        self.path = window.path
        self._window = window
        self._live = live
        self._application = application
        self._numbered = numbered
        self._ring = RingFiles(window.path, window.files)
        self._waiting: deque[FrameBatch] = deque()
        self._held = 0
        self.may_wait = window.size // HALF if window.waiting is None else min(window.waiting, window.size // HALF)
        """Bytes from before a moment."""
        self._file: BinaryIO | None = None
        self._writer: PcapngWriter
        self._interfaces: dict[int, int] = {}
        """By link type."""
        self._size = self._began = self._last = self._until = 0
        self._counted: tuple[int, int | None] = 0, 0
        self._full = False

    @property
    def removed(self) -> int:
        """Files."""
        return self._ring.removed

    def write(self, batch: FrameBatch) -> None:
        """Raises CaptureError where the disk does not take it."""
        if self._file is not None:
            self._append(batch)
        self._waiting.append(batch)
        self._held += batch.data.nbytes
        oldest = int(batch.rows["time"][-1]) - self._window.before
        while len(self._waiting) > 1 and (
            self._held > self.may_wait or int(self._waiting[0].rows["time"][-1]) < oldest
        ):
            self._held -= self._waiting.popleft().data.nbytes

    def begin(self, time: int) -> None:
        """Something happened at ``time`` (ns): write what waits from before it, and go on.  Raises CaptureError."""
        self._file, self._writer = open_pcapng(self.path, self._live, self._application)
        self._interfaces = {self._live.link_type: 0}
        self._size = self._began = 0
        self._full = False
        self._last = time
        self._until = time + self._window.after
        self._counted = self._live.received, self._live.dropped
        for batch in self._waiting:  # Which stay: they may be from before another moment, too.
            rows = batch.rows[batch.rows["time"] >= time - self._window.before]
            self._append(FrameBatch(batch.data, rows))

    def over(self, now: int) -> bool:
        """Whether what is kept after the moment has ended."""
        return self._file is None or now >= self._until or self._full

    def end(self) -> str | None:
        """Complete the file; gives its name, None where there is none.  Raises CaptureError."""
        if self._file is None:
            return None
        try:
            self._live.count()
            received = self._live.received - self._counted[0]
            dropped = lost_since(self._live, self._counted[1])
            self._writer.statistics(self._last, received, dropped)
            self._file.close()
            self._file = None
            if not self._numbered:
                return self.path
            self._ring.remove()
            return self._ring.add(self._began or self._last)
        except OSError as error:
            raise CaptureError(f"{self.path}: {error.strerror}") from None

    def close(self) -> None:
        """Nothing more comes."""
        self.end()

    def _append(self, batch: FrameBatch) -> None:
        rows = batch.rows[batch.rows["time"] <= self._until]
        fitting = int(np.searchsorted(np.cumsum(rows["captured"], dtype=np.int64), self._window.size - self._size))
        self._full |= fitting < len(rows)
        rows = rows[:fitting]
        if not len(rows):
            return
        edges = np.flatnonzero(np.diff(rows["link_type"])) + 1
        try:
            for part in np.split(rows, edges):
                self._size += self._write(FrameBatch(batch.data, part), int(part["link_type"][0]))
            assert self._file is not None
            self._file.flush()
        except CaptureError:
            assert self._file is not None
            leave_whole(self._file)
            self._file = None
            raise
        except OSError as error:
            raise CaptureError(f"{self.path}: {error.strerror}") from None
        self._began = self._began or int(rows["time"][0])
        self._last = int(rows["time"][-1])

    def _write(self, batch: FrameBatch, link_type: int) -> int:
        """Frames of one link type; a stream may have several.  Gives the bytes written."""
        if link_type not in self._interfaces:
            self._interfaces[link_type] = self._writer.add_interface(link_type, self._live.snaplen)
        interface = self._interfaces[link_type]
        if not interface:
            return self._writer.write_batch(batch)
        for row in batch.rows:
            start = int(row["offset"])
            frame = batch.data[start : start + int(row["captured"])].tobytes()
            self._writer.write(int(row["time"]), frame, int(row["original"]), interface=interface)
        return int(batch.rows["captured"].sum())
