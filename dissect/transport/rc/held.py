"""Requests that wait behind a gap in the PSNs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ...arrays import Bytes, Int64s, Rows
from .runs import stretches


class HeldRun(NamedTuple):
    """Requests with PSNs [start, end) that wait behind a gap."""

    start: int
    end: int
    data: Bytes
    rows: Rows
    psns: Int64s
    frame: int


def held_run(start: int, end: int, data: Bytes, rows: Rows, psns: Int64s) -> HeldRun:
    """These requests, at least one."""
    return HeldRun(start, end, data, rows, psns, int(rows["frame"][0]))


def insert_run(held: list[HeldRun], run: HeldRun) -> Rows:
    """Put a run among those that wait, but for what one of them has already; tells which of its rows that are."""
    at = bisect_right(held, run.start, key=attrgetter("start"))
    before = held[at - 1].end if at else run.start
    after = held[at].start if at < len(held) else run.end
    if before > run.start or after < run.end:
        if len(run.rows) > 1 or before > run.start:
            known = held_already(held, run.psns)
            ends = np.append(run.psns[1:], run.end)
            for a, b in stretches(known):
                parts = [(a, b)] if b - a < len(known) else pairwise(range(a, b + 1))
                for first, behind in () if known[a] else parts:
                    rows, psns = run.rows[first:behind], run.psns[first:behind]
                    insert_run(held, held_run(int(psns[0]), int(ends[behind - 1]), run.data, rows, psns))
            return known
        # A READ Request takes more PSNs than its own, of which another packet has one: the sender's error.
        run = run._replace(end=after)
    held.insert(at, run)
    return np.zeros(len(run.rows), np.bool_)


def held_already(held: Sequence[HeldRun], psns: Int64s) -> Rows:
    """Which of these PSNs a run has that waits."""
    if len(psns) < len(held):  # Many runs wait where a sender leaves out every other packet.
        owners = [bisect_right(held, psn, key=attrgetter("start")) - 1 for psn in psns.tolist()]
        pairs = zip(owners, psns.tolist(), strict=True)
        return np.array([at >= 0 and psn < held[at].end for at, psn in pairs], np.bool_)
    starts = np.array([run.start for run in held])
    ends = np.array([run.end for run in held])
    owner = starts.searchsorted(psns, side="right") - 1
    found: Rows = (owner >= 0) & (psns < ends[owner])
    return found
