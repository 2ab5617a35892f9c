"""Two transmissions of one stretch of a TCP stream, which are the same bytes unless memory changed between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bytes, Int64s, places

MAX_COMPARED = 1 << 14
"""Segments of one batch among which an earlier transmission is looked for."""


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
    sums: Int64s
    """``Checksums.payload``."""
    data: Bytes | None
    """None for those of earlier batches."""


def contradicted(sent: SentSegments, index: int, earlier: SentSegments) -> tuple[int, ...] | None:
    """The frames of ``earlier`` of which a segment carries some bytes that are others; None where none has any of them.

    Segments of one batch are compared byte for byte as far as captured; those of an earlier batch, whose bytes are
    gone, by the sums of their words where they begin and end alike.
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
