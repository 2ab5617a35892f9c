"""Frame: bytes with a time and a number, as captured.  Frames come in batches of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from .arrays import Bytes, Rows

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
    It stays valid as long as it is referred to, and is never written.
    """

    data: Bytes
    rows: Rows
    """FRAME rows, in capture order."""
    comments: Mapping[int, str] = field(default_factory=dict)
    """The capture's comments on single frames, by frame number; one line each."""

    def __len__(self) -> int:
        return len(self.rows)
