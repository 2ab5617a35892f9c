"""What the responses to a send queue say of its requests: acknowledged, or sent though not captured.

IBA volume 1, 9.7.5 (acknowledgements) and 9.7.5.1 (Read responses).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...arrays import Bytes, Int64s, Rows, some
from ...layers import opcodes

ReadResponses = Iterable[tuple[Bytes, Rows, Int64s]]
"""Those that have not found their Read, with their PSNs."""

_STARTS_READ_RESPONSE = opcodes.IS_READ_RESPONSE & (opcodes.IS_FIRST | opcodes.IS_ONLY)


def positive(rows: Rows) -> Rows:
    """Which of these responses acknowledge their PSN."""
    opcode = rows["opcode"]
    found: Rows = opcodes.IS_READ_RESPONSE[opcode] | opcodes.IS_ATOMIC_RESPONSE[opcode]
    found |= opcodes.IS_ACKNOWLEDGE[opcode] & (rows["syndrome"] >> 5 == 0)
    return found


def acknowledged(rows: Rows, psns: Int64s) -> int:
    """PSN up to which (exclusively) these responses acknowledge requests; -1 for none."""
    good = positive(rows)
    return int(psns[good].max()) + 1 if some(good) else -1


def packets_between(read_responses: ReadResponses, start: int, end: int) -> int:
    """How many requests have PSNs [start, end): a Read takes one PSN for each packet of its response."""
    count = end - start
    if count > 1:
        for _, rows, psns in read_responses:
            between = (psns >= start) & (psns < end)
            if some(between):
                reads = int(np.count_nonzero(_STARTS_READ_RESPONSE[rows["opcode"][between]]))
                count -= len(np.unique(psns[between])) - max(reads, 1)
    return max(count, 1)
