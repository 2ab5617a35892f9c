"""Frame: bytes with a time and a number, as captured.  Frames come in batches of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
Rows = NDArray[Any]
"""Rows of a structured dtype; the dtype itself documents the fields."""

FRAME = np.dtype(
    [
        ("number", "i8"),  # 1-based, over the whole input
        ("time", "i8"),  # nanoseconds since the Unix epoch
        ("offset", "i8"),  # of the first captured byte, in FrameBatch.data
        ("captured", "i4"),  # bytes in the file
        ("original", "i4"),  # bytes on the wire
        ("link_type", "u2"),  # LINKTYPE_ number, see https://www.tcpdump.org/linktypes.html
        ("interface", "u2"),  # index of the capture interface, 0 where the format knows none
    ]
)


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """Consecutive frames of one capture.

    ``data`` is what the offsets in ``rows`` point into: the whole memory-mapped file, or one window of a stream.
    It stays valid as long as somebody refers to it, and is never written.
    """

    data: Bytes
    rows: Rows
    """FRAME rows, in capture order."""
    comments: Mapping[int, str] = field(default_factory=dict)
    """What somebody wrote about single frames, by frame number; one line each."""

    def __len__(self) -> int:
        return len(self.rows)


def take(rows: Rows, index: NDArray[Any]) -> Rows:
    """``rows[index]`` or ``rows[mask]``, with each row copied as one piece: field by field is many times slower."""
    taken: Rows = rows.compress(index) if index.dtype == np.bool_ else rows.take(index)
    return taken


def places(mask: NDArray[Any]) -> Int64s:
    """Where it is true; ``np.flatnonzero``, which takes several times as long where arrays are short."""
    found: Int64s = mask.nonzero()[0]
    return found


def some(mask: NDArray[Any]) -> bool:
    """Whether any is true; the same of ``mask.any()``."""
    return bool(np.count_nonzero(mask))


def extremes(values: NDArray[Any]) -> tuple[int, int]:
    """The smallest and the largest; the same of ``min`` and ``max``."""
    return int(values[values.argmin()]), int(values[values.argmax()])
