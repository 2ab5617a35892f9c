"""Losses that the capture does not show: what a sender's pauses, and its timers, tell of them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from ..arrays import Int64s, places

SILENCE = 50_000_000
"""Nanoseconds; a sender's shorter pauses are not remembered."""
MAX_SILENCES = 256
MAX_EXPIRED = 8
"""A queue pair retries up to seven times (IBA 12.7.38)."""


class InferredLoss(NamedTuple):
    """A loss at the end of a burst that the capture does not show, recognised by the time until the retransmission."""

    sender: int
    rpc: int
    """``Rpc.number`` of the RPC that waited."""
    frame: int
    """The retransmission, which is all of it that was captured."""
    since: int
    """Nanoseconds since the epoch."""
    until: int
    evidence: str
    confidence: float
    """0 to 1."""


class Timer(NamedTuple):
    """By which a sender retransmits what was not acknowledged, or found no buffer."""

    duration: int
    """Nanoseconds."""
    name: str
    doubles: bool = False
    """Each further time it runs twice as long (RFC 6298, 5.5); else always as long."""

    def times(self, waited: int) -> tuple[int, int]:
        """How often it can have expired in so many nanoseconds, and how long that took."""
        count = total = 0
        step = self.duration
        while count < MAX_EXPIRED and total + step <= waited:
            count, total = count + 1, total + step
            step += step * self.doubles
        return count, total


class Silences:
    """The longer pauses of a sender, the last of them."""

    __slots__ = ("_known", "_last")

    def __init__(self) -> None:
        self._last = 0
        self._known: deque[tuple[int, int]] | None = None

    def note(self, frames: Int64s, times: Int64s) -> None:
        """It sent these packets."""
        before, self._last = self._last, int(times[-1])
        if int(times[0]) - before >= SILENCE:
            self._add(int(frames[0]), before)
        if self._last - int(times[0]) >= SILENCE:
            for at in places(np.diff(times) >= SILENCE).tolist():
                self._add(int(frames[at + 1]), int(times[at]))

    def _add(self, frame: int, before: int) -> None:
        if self._known is None:
            self._known = deque(maxlen=MAX_SILENCES)
        self._known.append((frame, before))

    def before(self, frame: int) -> int | None:
        """When it had sent its last packet before a pause that the packet in ``frame`` ended, 0 for none at all; None
        where there was no such pause."""
        return next((time for known, time in reversed(self._known or ()) if known == frame), None)
