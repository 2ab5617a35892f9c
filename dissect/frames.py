"""Frame: bytes with a time and a number, as captured.  Frames come in batches of columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
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
"""Nanoseconds between a frame and an earlier one behind it, where the clock was set back, a capture appended, or frames
of several interfaces come in bunches."""
MAX_PARTS = 1024
"""Of a capture, beyond which what is behind counts to the last one."""


class Clock(NamedTuple):
    """When a capture ends, by its clock as it is from each of its frames on."""

    first: int
    """Nanoseconds, as all times: of the first frame."""
    last: int
    """Of the last frame."""
    frames: tuple[int, ...]
    """Numbers of the frames with which parts begin that end at different times, ascending."""
    ends: tuple[int, ...]
    """The latest time in each and behind it, descending."""

    @classmethod
    def of(cls, frames: Int64s, times: Int64s) -> Clock:
        first, last, latest = int(times[0]), int(times[-1]), int(times.max())
        if latest - int(times.min()) < SET_BACK:
            return cls(first, last, (int(frames[0]),), (latest,))
        edges = np.append(0, places(np.diff(times) <= -SET_BACK) + 1)
        clock = cls(first, last, (), ())
        return clock._behind(frames[edges].tolist(), np.maximum.reduceat(times, edges).tolist())

    def then(self, later: Clock) -> Clock:
        """Frames and those behind them."""
        frames, ends = [*later.frames], [*later.ends]
        if later.first - self.last > -SET_BACK:
            frames[0] = self.frames[-1]
            ends[0] = max(ends[0], self.ends[-1])
        return self._behind(frames, ends)._replace(last=later.last)

    def _behind(self, frames: Sequence[int], ends: Sequence[int]) -> Clock:
        """With parts that begin with these frames behind it."""
        all_frames, all_ends = [*self.frames], [*self.ends]
        for frame, end in zip(frames, ends, strict=True):
            begin = frame
            while all_ends and (all_ends[-1] <= end or len(all_ends) == MAX_PARTS):
                begin, end = all_frames.pop(), max(end, all_ends.pop())
            all_frames.append(begin)
            all_ends.append(end)
        return self._replace(frames=(*all_frames,), ends=(*all_ends,))

    def end(self, frame: int) -> int:
        """The latest time of a frame and of those behind it."""
        return self.ends[max(0, bisect_right(self.frames, frame) - 1)]


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
