"""The last packets of a send queue that went one way: an earlier transmission is looked for among them."""

from __future__ import annotations

import numpy as np

from ...arrays import Int64s, Rows
from ...layers import opcodes
from ..acknowledgements import PacketColumns

KEPT = 2048
"""Packets behind the last one among which an earlier transmission is looked for."""
MAX_PARTS = 16
"""Batches whose packets are kept apart."""

_SPAN_BITS = 25
"""More than the PSNs that one Read may take: 2^24 of 256 bytes."""
_SPAN = (1 << _SPAN_BITS) - 1


class EarlierPackets:
    """Some of them in capture order, 24 bytes each: they are kept on every connection, and hardly ever looked at."""

    __slots__ = ("_table",)

    def __init__(self, table: Int64s) -> None:
        """``table``: (3, packets)."""
        self._table = table

    @classmethod
    def of(cls, packets: PacketColumns) -> EarlierPackets:
        """A copy."""
        table = np.empty((3, len(packets)), np.int64)
        psns = packets.psns
        table[0] = psns << 1 | opcodes.IS_READ_RESPONSE[packets.opcodes]
        table[1] = packets.frames << _SPAN_BITS | (packets.ends - psns)
        table[2] = packets.times
        return cls(table)

    @property
    def psns(self) -> Int64s:
        """Unwrapped."""
        found: Int64s = self._table[0] >> 1
        return found

    @property
    def ends(self) -> Int64s:
        """PSN behind what the packet takes, see ``PacketColumns``."""
        found: Int64s = self.psns + (self._table[1] & _SPAN)
        return found

    @property
    def frames(self) -> Int64s:
        found: Int64s = self._table[1] >> _SPAN_BITS
        return found

    @property
    def times(self) -> Int64s:
        """Nanoseconds."""
        found: Int64s = self._table[2]
        return found

    @property
    def is_read_response(self) -> Rows:
        found: Rows = self._table[0] & 1 != 0
        return found

    def __len__(self) -> int:
        return len(self._table[2])

    def part(self, first: int, end: int) -> EarlierPackets:
        """A copy of some of them."""
        return EarlierPackets(self._table[:, first:end].copy())


Parts = tuple[EarlierPackets, ...]
"""One behind the other."""


def trimmed(parts: Parts) -> Parts:
    """What is looked at later, in no more memory than that needs."""
    counts = [len(part) for part in parts]
    count = sum(counts)
    while counts and count - counts[0] >= KEPT:
        count -= counts.pop(0)
    parts = parts[len(parts) - len(counts) :]
    if count > 2 * KEPT:
        parts = (parts[0].part(count - 2 * KEPT, len(parts[0])), *parts[1:])
    return joined(parts) if len(counts) > MAX_PARTS else parts


def joined(parts: Parts) -> Parts:
    """The same as one part; none of none."""
    return (EarlierPackets(np.concatenate([part._table for part in parts], axis=1)),) if len(parts) > 1 else parts
