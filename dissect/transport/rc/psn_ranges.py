"""Where runs of requests begin and end in the space of PSNs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container
from itertools import pairwise

import numpy as np

from ...arrays import Int64s, Rows, places
from ...intervals import IntervalSet
from ...layers import opcodes
from ...serial import PSN

RESTART = 1 << 16
"""A step back of more PSNs than can be outstanding is no repetition: the queue pair number was used again."""
WIDEST = PSN.half - (1 << 20)
"""A step forward of more is no gap either: what follows it could not be told from what was before."""
NEAR = 256
"""PSNs by which captures reorder neighbours."""

STARTS = opcodes.IS_FIRST | opcodes.IS_ONLY
ENDS = opcodes.IS_LAST | opcodes.IS_ONLY


def first_psn(starts: Int64s, ends: Int64s) -> int:
    """Where a send queue begins whose first runs of requests have these PSNs; ``ends`` lacks that of the last run.

    A capture may begin between a loss and the return to the lost packet, or with packets out of order.
    """
    first = int(starts[0])
    far = places(np.abs(starts - first) > RESTART)
    starts = starts[: far[0]] if len(far) else starts
    ends = np.append(ends, first)[: len(starts)]
    near = starts[(starts < first) & ((ends >= first) | (first - starts <= NEAR))]
    return int(near.min()) if len(near) else first


def rest_of_message(rows: Rows) -> int:
    """How many rows still belong to the message before them."""
    behind = places(STARTS[rows["opcode"]])
    ends = places(ENDS[rows["opcode"]]) + 1
    return int(min([len(rows), *behind[:1].tolist(), *ends[:1].tolist()]))


def fresh_before(known: IntervalSet, rows: Rows, psns: Int64s, base: int, head: int) -> Rows:
    """Which requests before ``base`` are not ``known``, and the rest, below ``head``, of a message that is fresh."""
    before = int(psns.searchsorted(base))
    fresh = np.array([bool(known.add(psn, psn + 1)) for psn in psns[:before].tolist()], np.bool_)
    rest = rest_of_message(rows[before : int(psns.searchsorted(head))]) if fresh[-1] else 0
    return np.append(fresh, np.ones(rest, np.bool_))


def reusing(codes: Rows, known: int, taken: Container[int], goes_on: bool) -> Rows:
    """Which requests are of new messages with PSNs that were used before, as far as they or repetitions go on.

    The first ``known`` have such PSNs; of them those in ``taken`` are new, and so are the packets behind them up to
    the end of their message.  ``goes_on``: the first one continues such a message.
    """
    new = np.zeros(len(codes), np.bool_)
    for index, opcode in enumerate(codes.tolist()):
        if index >= known and (STARTS[opcode] or not goes_on):
            return new[:index]
        goes_on = index in taken or (goes_on and not STARTS[opcode])
        new[index] = goes_on
        goes_on = goes_on and not ENDS[opcode]
    return new


def stretches(flags: Rows) -> list[tuple[int, int]]:
    """``(first, behind)`` of the stretches of equal flags."""
    return list(pairwise([0, *(places(np.diff(flags)) + 1).tolist(), len(flags)])) if len(flags) else []


def first_inside(intervals: IntervalSet, psns: Int64s) -> tuple[int, int]:
    """Index of the first of some ascending PSNs inside one of the intervals, and behind the last inside the same."""
    place = bisect_right(intervals.ends, int(psns[0]))
    if place == len(intervals.starts):
        return len(psns), len(psns)
    first, behind = psns.searchsorted((intervals.starts[place], intervals.ends[place])).tolist()
    return first, behind
