"""Two transmissions of one packet, which carry the same bytes unless memory changed between them."""

from __future__ import annotations

from collections.abc import Sequence

from ...arrays import Bytes, Rows
from ...serial import PSN

MAX_RUNS = 16
"""Runs of packets among which the first transmission is looked for."""


def contradictions(runs: Sequence[tuple[int, Bytes, Rows]], data: Bytes, rows: Rows) -> dict[int, int]:
    """Which of ``rows`` have another payload than their first transmission: the frame of that, and theirs.

    ``rows`` retransmit packets of ``runs``, of which each is in PSN order without a gap.  Damaged packets are not
    among them: their receiver drops them.
    """
    found: dict[int, int] = {}
    if len(runs) > MAX_RUNS:
        return found
    firsts = [int(run["psn"][0]) for _, _, run in runs]
    for psn, frame, length, captured, start in zip(
        rows["psn"].tolist(),
        rows["frame"].tolist(),
        rows["length"].tolist(),
        rows["captured"].tolist(),
        rows["payload"].tolist(),
        strict=True,
    ):
        for first, (_, where, run) in zip(firsts, runs, strict=True):
            index = PSN.distance(first, psn)
            if index >= len(run):
                continue
            one = run[index]
            known = min(captured, int(one["captured"]))
            place = int(one["payload"])
            same = data[start : start + known].tobytes() == where[place : place + known].tobytes()
            if int(one["psn"]) == psn and int(one["frame"]) != frame and (length != int(one["length"]) or not same):
                found.setdefault(int(one["frame"]), frame)
            break
    return found
