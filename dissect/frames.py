"""Frame: bytes with a time and a number, as captured.  Frames come in batches of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from .arrays import Bytes, Int64s, Rows, places
from .named_tuple import NamedTuple

FRAME = np.dtype(
    [
        ("number", "i8"),  # 1-based, over the whole input
        ("time", "i8"),  # nanoseconds since the Unix epoch
        ("offset", "i8"),  # of the first captured byte, in FrameBatch.data
        ("captured", "i4"),  # bytes in the file
        ("original", "i4"),  # bytes on the wire
        ("link_type", "u2"),  # LINKTYPE_ number, see https://www.tcpdump.org/linktypes.html
        ("interface", "u2"),  # index of the capture interface, 0 where the format knows none
    ],
    align=True,
)


class Frame(NamedTuple):
    """Bytes with a time and a number, as captured."""

    number: int
    """Counted from 1, over the whole capture."""
    time: int
    """Nanoseconds since the Unix epoch."""
    original: int
    """Bytes on the wire."""
    link_type: int
    """LINKTYPE_ number."""
    interface: int
    """Index of the capture interface."""
    data: bytes
    """The bytes in the file: fewer than ``original`` where the frame is truncated."""
    comment: str = ""


SET_BACK = 1_000_000_000
"""Nanoseconds between a frame and an earlier one behind it, where the clock was set back or a capture appended."""


class Clock(NamedTuple):
    """What the times of frames come to, in the order of the frames."""

    first: int
    """Nanoseconds, as all."""
    last: int
    latest: int
    """Since the clock was last set back."""
    set_back: bool

    @classmethod
    def of(cls, times: Int64s) -> Clock:
        latest = int(times.max())
        if latest - int(times.min()) < SET_BACK or not len(steps := places(np.diff(times) <= -SET_BACK)):
            return cls(int(times[0]), int(times[-1]), latest, False)
        return cls(int(times[0]), int(times[-1]), int(times[steps[-1] + 1 :].max()), True)

    def then(self, later: Clock) -> Clock:
        """Frames and those behind them."""
        again = later.set_back or later.first - self.last <= -SET_BACK
        latest = later.latest if again else max(self.latest, later.latest)
        return Clock(self.first, later.last, latest, self.set_back or again)


class Place(NamedTuple):
    """Where a frame is, when several files are read as one capture."""

    file: str
    """Path of the file."""
    frame: int
    """Number of the frame in it, from 1."""


class FrameRun(NamedTuple):
    """Consecutive frames of one of several files."""

    first: int
    last: int
    """Numbers, counted over all files."""
    file: str
    frame: int
    """The number of the first in its file."""


@dataclass(slots=True, eq=False)
class FrameBatch:
    """Consecutive frames of one capture.

    ``data`` is what the offsets in ``rows`` point into: the whole memory-mapped file, or one window of a stream.
    It stays valid as long as it is referred to, and is never written.
    """

    data: Bytes
    rows: Rows
    """FRAME rows, in capture order."""
    comments: Mapping[int, str] = field(default_factory=dict)
    """Comments on single frames, by frame number; one line each."""

    def __len__(self) -> int:
        return len(self.rows)

    def behind(self, frames: int) -> FrameBatch:
        """The same, with numbers behind so many other frames."""
        rows = self.rows.copy()
        rows["number"] += frames
        return FrameBatch(self.data, rows, {number + frames: text for number, text in self.comments.items()})

    def indices(self, numbers: Rows) -> Int64s:
        """Where in ``rows`` the frames of some numbers are, all of which are in this batch."""
        known = self.rows["number"]
        if len(numbers) and int(known[-1]) - int(known[0]) == len(known) - 1:
            return numbers.astype(np.int64) - int(known[0])
        return np.asarray(known.searchsorted(numbers))

    def frame(self, number: int) -> Frame:
        """The frame of this number; raises KeyError where it is not in this batch."""
        at = int(np.searchsorted(self.rows["number"], number))
        if at == len(self.rows) or int(self.rows["number"][at]) != number:
            raise KeyError(number)
        row = self.rows[at]
        start = int(row["offset"])
        return Frame(
            number,
            int(row["time"]),
            int(row["original"]),
            int(row["link_type"]),
            int(row["interface"]),
            self.data[start : start + int(row["captured"])].tobytes(),
            self.comments.get(number, ""),
        )
