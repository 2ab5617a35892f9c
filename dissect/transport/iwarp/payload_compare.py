"""Two transmissions of one stretch of a TCP stream, which are the same bytes unless memory changed between them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bytes, Int64s, Rows, places

MAX_COMPARED = 1 << 14
"""Segments of one batch among which an earlier transmission is looked for."""
KEPT = 2048
"""Segments behind the last one among which an earlier transmission is looked for."""
MAX_HELD = 1 << 15
"""Bytes of earlier batches that are held for each direction."""


class SentSegments(NamedTuple):
    """Segments with payload, in capture order."""

    at: Int64s
    end: Int64s
    time: Int64s
    frame: Int64s
    checksum: NDArray[np.uint16]
    payload: Int64s
    """Offset of the first byte in ``data``."""
    captured: Int64s
    sums: Rows
    """``sum`` of their SEGMENT rows."""
    data: Bytes | None
    """None for those of earlier batches whose bytes are gone."""

    def between(self, first: int, behind: int) -> SentSegments:
        at, end, time, frame, checksum, payload, captured, sums, data = self
        rows = slice(first, behind)
        return SentSegments(
            at[rows],
            end[rows],
            time[rows],
            frame[rows],
            checksum[rows],
            payload[rows],
            captured[rows],
            sums[rows],
            data,
        )

    def detached(self) -> SentSegments:
        """With a copy of the bytes, not the batch of frames that they came in."""
        assert self.data is not None
        parts = [
            self.data[at : at + size] for at, size in zip(self.payload.tolist(), self.captured.tolist(), strict=True)
        ]
        ends = np.cumsum(self.captured, dtype=np.int64)
        return self._replace(payload=ends - self.captured, data=np.concatenate(parts))


class RecentSegments:
    """The last segments of one direction, and the bytes of the first that wait for an acknowledgement.

    Those are what its sender retransmits, perhaps in other segments and in a later batch.
    """

    def __init__(self) -> None:
        self.parts: deque[SentSegments] = deque()
        self._count = 0
        self._holding = False

    def begin(self, sent: SentSegments) -> None:
        """The segments of a batch."""
        self.parts.append(sent)
        self._count += len(sent.at)

    def end(self, acknowledged: int | None) -> None:
        """The batch is over; bytes before that position will not be retransmitted.  None: that is not known."""
        sent = self.parts.pop()
        if self._holding:
            self.parts = deque(_released(part, acknowledged) for part in self.parts)
        first = behind = len(sent.at)
        if acknowledged is not None and acknowledged < int(sent.end.max()):
            room = MAX_HELD - sum(len(part.data) for part in self.parts if part.data is not None)
            first = int(np.argmax(sent.end > acknowledged))
            behind = first + int(np.searchsorted(np.cumsum(sent.captured[first:]), room, side="right"))
        if first < behind:
            pieces = sent.between(0, first)._replace(data=None), sent.between(first, behind).detached()
            sent = sent.between(behind, len(sent.at))
            self.parts += [one for one in pieces if len(one.at)]
        if len(sent.at):
            self.parts.append(sent._replace(data=None))
        self._holding = any(part.data is not None for part in self.parts)
        while self.parts and self._count - len(self.parts[0].at) >= KEPT:
            self._count -= len(self.parts.popleft().at)


def _released(part: SentSegments, acknowledged: int | None) -> SentSegments:
    """Without its bytes, where they will not be retransmitted."""
    gone = acknowledged is not None and int(part.end.max()) <= acknowledged
    return part._replace(data=None) if gone else part


def contradicted(sent: SentSegments, index: int, earlier: SentSegments) -> tuple[int, ...] | None:
    """The frames of ``earlier`` of which a segment carries some bytes that are others; None where none has any of them.

    Segments are compared byte for byte as far as captured; those of an earlier batch, whose bytes are gone, by the
    sums of their words where they begin and end alike.
    """
    start, end = int(sent.at[index]), int(sent.end[index])
    stop = int(earlier.frame.searchsorted(sent.frame[index]))
    low = max(0, stop - MAX_COMPARED)
    mine = places((earlier.at[low:stop] < end) & (earlier.end[low:stop] > start)) + low
    if not len(mine):
        return None
    if earlier.data is None or sent.data is None:
        same = mine[(earlier.at[mine] == start) & (earlier.end[mine] == end) & (earlier.sums[mine] >= 0)]
        others = same[earlier.sums[same] != sent.sums[index]] if sent.sums[index] >= 0 else same[:0]
        return tuple(earlier.frame[others].tolist())
    reached = start + int(sent.captured[index])
    found: list[int] = []
    for one in mine.tolist():
        left = max(start, int(earlier.at[one]))
        right = min(reached, int(earlier.at[one]) + int(earlier.captured[one]))
        if left < right:
            here = int(sent.payload[index]) + left - start
            there = int(earlier.payload[one]) + left - int(earlier.at[one])
            size = right - left
            if sent.data[here : here + size].tobytes() != earlier.data[there : there + size].tobytes():
                found.append(int(earlier.frame[one]))
    return tuple(found)
