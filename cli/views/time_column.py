"""The times of packets in the formats that tshark's -t names."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import numpy as np

from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.units import seconds

RELATIVE = "r"
FORMATS = {
    "r": "seconds since the first frame",
    "d": "seconds since the frame before",
    "dd": "seconds since the packet listed before",
    "a": "time of day here",
    "ad": "date and time here",
    "adoy": "the same, with the day of the year",
    "u": "time of day in UTC",
    "ud": "date and time in UTC",
    "udoy": "the same, with the day of the year",
    "e": "seconds since 1970",
}
"""What tshark calls a format, and what it is."""
PATTERNS = {"": "%H:%M:%S", "d": "%Y-%m-%d %H:%M:%S", "doy": "%Y/%j %H:%M:%S"}
WIDTHS = {"": 15, "d": 26, "doy": 24}
UNKNOWN = "-"


class TimeColumn:
    """Times of packets, which are listed in the order of their frames."""

    def __init__(self, format: str) -> None:
        self.format = format
        self.width = 17 if format == "e" else WIDTHS[format[1:]] if format[0] in "au" else 12
        self._listed: int | None = None
        self._batch: FrameBatch | None = None
        self._before: tuple[int, int] | None = None
        """Number and time of the last frame of the batch before."""

    def saw(self, batch: FrameBatch) -> None:
        """A batch of which there may be packets to list."""
        if batch is not self._batch:
            if self._batch is not None and len(self._batch):
                row = self._batch.rows[-1]
                self._before = int(row["number"]), int(row["time"])
            self._batch = batch

    def texts(self, batch: FrameBatch, frames: Iterable[int], first_time: int) -> dict[int, str]:
        """By number, of frames of a batch, ascending; ``first_time``: of the capture, nanoseconds since the epoch."""
        self.saw(batch)
        numbers = [*frames]
        at = np.searchsorted(batch.rows["number"], numbers).tolist()
        times = batch.rows["time"][at].tolist() if numbers else []
        return {
            number: f"{self._text(number, time, where, first_time):>{self.width}}"
            for number, time, where in zip(numbers, times, at, strict=True)
        }

    def _text(self, number: int, time: int, where: int, first_time: int) -> str:
        if self.format == RELATIVE:
            return seconds(time - first_time)
        if self.format == "e":
            return seconds(time)
        if self.format == "dd":
            before, self._listed = self._listed, time
            return seconds(0 if before is None else time - before)
        if self.format == "d":
            earlier = self._time_before(number, where)
            return UNKNOWN if earlier is None else seconds(time - earlier)
        return _clock(time, self.format)

    def _time_before(self, number: int, where: int) -> int | None:
        assert self._batch is not None
        if where:
            return int(self._batch.rows["time"][where - 1])
        if self._before is not None and self._before[0] == number - 1:
            return self._before[1]
        return int(self._batch.rows["time"][0]) if number == 1 else None


def _clock(time: int, format: str) -> str:
    whole, rest = divmod(time, 1_000_000_000)
    try:
        when = datetime.fromtimestamp(whole, UTC)
        when = when if format[0] == "u" else when.astimezone()
    except (ValueError, OverflowError, OSError):  # Beyond the years that have a name.
        return seconds(time)
    return f"{when.strftime(PATTERNS[format[1:]])}.{rest // 1000:06d}"
