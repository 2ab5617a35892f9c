"""What the responses to a send queue say of its requests: acknowledged, or sent though not captured.

IBA volume 1, 9.7.5 (acknowledgements) and 9.7.5.1 (Read responses).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...arrays import Bytes, Int64s, Rows, some, take
from ...layers import opcodes
from ...serial import PSN

Placed = tuple[Bytes, Rows, Int64s]
ReadResponses = Iterable[Placed]
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


class AckHistory:
    """When the responses of a batch acknowledged which requests."""

    __slots__ = ("_reached", "_rows")

    def __init__(self, rows: Rows) -> None:
        """``rows``: the responses, at least one, in ascending order of frames."""
        self._rows = rows
        self._reached: Int64s | None = None

    def before(self, frames: Rows, near: int) -> Int64s:
        """PSNs up to which (exclusively) requests were acknowledged before each of these frames; -1 for none.

        ``near``: an unwrapped PSN of the queue.
        """
        if self._reached is None:
            psns = PSN.unwrap_series(PSN.unwrap(near, int(self._rows["psn"][0])), self._rows["psn"])
            self._reached = np.append(np.maximum.accumulate(np.where(positive(self._rows), psns + 1, -1)), -1)
        found: Int64s = self._reached[self._rows["frame"].searchsorted(frames) - 1]
        return found


def split_early(responses: ReadResponses, head: int, room: int) -> tuple[list[Placed], list[Placed]]:
    """Those to requests before ``head``, and the others: as many as come until ``room`` packets wait."""
    due: list[Placed] = []
    waiting: list[Placed] = []
    for data, rows, psns in responses:
        early = psns >= head
        if not some(early):
            due.append((data, rows, psns))
            continue
        due.append((data, take(rows, ~early), psns[~early]))
        room -= int(early.sum())
        if room > 0:
            waiting.append((data, take(rows, early), psns[early]))
    return due, waiting


def packets_between(read_responses: ReadResponses, start: int, end: int) -> int:
    """How many requests have PSNs [start, end): a Read takes one PSN for each packet of its response."""
    count = end - start
    if count == 1:
        return 1
    answered, starts = [], []
    for _, rows, psns in read_responses:
        between = (psns >= start) & (psns < end)
        answered.append(psns[between])
        starts.append(psns[between & _STARTS_READ_RESPONSE[rows["opcode"]]])
    if packets := len(np.unique(np.concatenate(answered))) if answered else 0:
        count -= packets - max(len(np.unique(np.concatenate(starts))), 1)
    return count
