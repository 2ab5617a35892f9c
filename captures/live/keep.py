"""Keeps what is captured in a bounded set of pcapng files, of which every one can be read by itself."""

from __future__ import annotations

import os
import re
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import numpy as np

from rdmascope.dissect.frames import FrameBatch

from ..errors import CaptureError
from ..formats.writer import PcapngWriter
from ..open import open_capture
from ..output import check_outputs, open_output
from .source import Live

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Keep:
    """Where and how much."""

    path: str
    size: int = 100 << 20
    """Bytes of a file, after which the next one begins."""
    files: int = 10
    """How many there are at most, that being written and those of earlier runs included; older ones are removed."""
    seconds: float | None = None
    """Seconds of the capture in a file."""


class Keeper:
    """Writes ``keep.path``; a full one is renamed to NAME_NUMBER_TIME, as dumpcap names the files of a ring.

    The names read as one capture: ``rdmascope report NAME*.pcapng``.  Files of an earlier run are the ring's first
    ones: its last file gets its number and time, too, and the numbers go on.
    """

    def __init__(self, keep: Keep, live: Live, application: str) -> None:
        self.path = keep.path
        self._keep = keep
        self._live = live
        self._application = application
        self._full: deque[str] = deque()
        self._number = 0
        self.removed = 0
        """Files."""
        self._file: BinaryIO
        self._writer: PcapngWriter
        self._resume()
        self._open()

    def _resume(self) -> None:
        """Take the files of an earlier run into the ring.  Raises CaptureError."""
        check_outputs([self.path])
        path = Path(self.path)
        named = re.compile(re.escape(path.stem) + r"_(\d{5,})_\d{14}" + re.escape(path.suffix))
        try:
            there = ((named.fullmatch(one), path.parent / one) for one in os.listdir(path.parent))
            numbered = sorted((int(match[1]), str(one)) for match, one in there if match)
            self._full.extend(name for _, name in numbered)
            self._number = numbered[-1][0] if numbered else 0
            if path.is_file() and (first := _first_time(self.path)) is not None:
                self._add(first)
            self._remove()
        except OSError as error:
            raise CaptureError(f"{self.path}: {error.strerror}") from None

    def _open(self) -> None:
        live = self._live
        self._file = open_output(self._keep.path, ())
        self._size = 0
        self._began = self._last = 0
        # Every file tells of its own time only.
        self._before = live.received, live.dropped
        self._writer = PcapngWriter(
            self._file,
            live.link_type,
            live.snaplen,
            name=live.device.interface or live.device.name,
            filter=live.words,
            application=self._application,
        )

    def write(self, batch: FrameBatch) -> None:
        """Raises CaptureError where the disk does not take it."""
        ends = np.cumsum(batch.rows["captured"], dtype=np.int64)
        at = 0
        try:
            while at < len(batch):
                first = int(batch.rows["time"][at])
                if self._size >= self._keep.size or self._old(first):
                    self._turn()
                room = self._keep.size - self._size + (int(ends[at - 1]) if at else 0)
                end = min(len(batch), int(np.searchsorted(ends, room)) + 1)
                self._began = self._began or first
                self._last = int(batch.rows["time"][end - 1])
                self._size += self._writer.write_batch(FrameBatch(batch.data, batch.rows[at:end]))
                at = end
            self._file.flush()
        except OSError as error:
            raise CaptureError(f"{self.path}: {error.strerror}") from None

    def _old(self, time: int) -> bool:
        """The file has had its time."""
        return self._keep.seconds is not None and self._began > 0 and time - self._began >= self._keep.seconds * SECOND

    def _turn(self) -> None:
        """Close a full file, give it its name, and remove what is too old."""
        self._finish()
        self._add(self._began)
        self._remove()
        self._open()

    def _add(self, began: int) -> None:
        """Give the full file its name; ``began``: the time of its first frame, in ns."""
        self._number += 1
        stem, extension = os.path.splitext(self.path)
        name = f"{stem}_{self._number:05d}_{datetime.fromtimestamp(began // SECOND, UTC):%Y%m%d%H%M%S}{extension}"
        os.replace(self.path, name)
        self._full.append(name)

    def _remove(self) -> None:
        while len(self._full) >= self._keep.files:
            os.unlink(self._full.popleft())
            self.removed += 1

    def _finish(self) -> None:
        live = self._live
        live.count()
        received, dropped = live.received - self._before[0], live.dropped - self._before[1]
        self._writer.statistics(self._last, received, dropped)
        self._file.close()

    def close(self) -> None:
        """Complete the last file."""
        try:
            self._finish()
        except OSError as error:
            raise CaptureError(f"{self._keep.path}: {error.strerror}") from None


def _first_time(path: str) -> int | None:
    """Of the first frame of a file, in ns; None where it has none, or is no capture."""
    try:
        with open_capture(path) as capture:
            return next((int(batch.rows["time"][0]) for batch in capture.batches() if len(batch.rows)), None)
    except CaptureError:
        return None
