"""The last packets of a send queue that went one way: an earlier transmission is looked for among them."""

from __future__ import annotations

import numpy as np

from ...arrays import Int64s, Rows
from ...layers import opcodes
from ..acknowledgements import PacketColumns
from ..send_runs import BEHIND

KEPT = 2048
"""Packets behind the last one among which an earlier transmission is looked for."""
MAX_PARTS = 16
"""Batches whose packets are kept apart."""

_SPAN_BITS = 25
"""More than the PSNs that one Read may take: 2^24 of 256 bytes."""
_SPAN = (1 << _SPAN_BITS) - 1

Tables = tuple[Int64s, ...]
"""Of one batch after the other what ``table_of`` gives."""


def table_of(packets: PacketColumns) -> Int64s:
    """24 bytes of each packet, (3, packets): they are kept on every connection, and hardly ever looked at."""
    table = np.empty((3, len(packets)), np.int64)
    psns = packets.psns
    table[0] = psns << 1 | opcodes.IS_READ_RESPONSE[packets.opcodes]
    table[1] = packets.frames << _SPAN_BITS | (packets.ends - psns)
    table[2] = packets.times
    return table


def trimmed(tables: Tables, acked: int) -> Tables:
    """What is looked at later, in no more memory than that needs; ``acked``: the highest PSN that was acknowledged."""
    counts = [table.shape[1] for table in tables]
    count, first = sum(counts), 0
    while first < len(counts) and (
        count - counts[first] >= KEPT or (first + 1 < len(counts) and tables[first][0, -1] >> 1 < acked - BEHIND)
    ):
        count -= counts[first]
        first += 1
    tables = tables[first:]
    if count > 2 * KEPT:
        tables = tables[0][:, count - 2 * KEPT :].copy(), *tables[1:]
    return joined(tables) if len(tables) > MAX_PARTS else tables


def joined(tables: Tables) -> Tables:
    """The same as one table; none of none."""
    return (np.concatenate(tables, axis=1),) if len(tables) > 1 else tables


class EarlierPackets:
    """The packets of a table, in capture order."""

    __slots__ = ("ends", "frames", "is_read_response", "psns", "times")

    def __init__(self, table: Int64s) -> None:
        self.psns: Int64s = table[0] >> 1
        """Unwrapped."""
        self.ends: Int64s = self.psns + (table[1] & _SPAN)
        """PSN behind what the packet takes, see ``PacketColumns``."""
        self.frames: Int64s = table[1] >> _SPAN_BITS
        self.times: Int64s = table[2]
        """Nanoseconds."""
        self.is_read_response: Rows = table[0] & 1 != 0
