"""Access by position to the pending stretches of a stream."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

import numpy as np

from ...arrays import Bytes, Int64s, Rows


class Window:
    """STRETCH rows that do not overlap, ascending by position, and the data they refer to."""

    def __init__(self, rows: Rows, datas: list[Bytes]) -> None:
        self.rows = rows
        self.datas = datas
        at = np.ascontiguousarray(rows["at"])
        self.at: Int64s = at
        self.end: Int64s = at + rows["length"]
        self.starts: list[int] = at.tolist()
        self.ends: list[int] = self.end.tolist()
        self.readable: list[int] = (at + rows["captured"]).tolist()
        self.shifts: list[int] = (rows["payload"] - at).tolist()
        """From a position to an offset in the data."""
        self.chunks: list[int] = rows["chunk"].tolist()
        self.views = [data.data for data in datas]
        self.limit = self.ends[-1] if self.ends else 0

    @cached_property
    def edges(self) -> set[int]:
        """Positions where a stretch begins or ends."""
        return {*self.starts, *self.ends}

    @cached_property
    def last_frames(self) -> Int64s:
        """The highest frame number of each stretch and those before it."""
        return np.maximum.accumulate(self.rows["frame"])

    @cached_property
    def _seen(self) -> Int64s | None:
        """Bytes in front of each stretch; None where there is no gap between them."""
        if bool((self.at[1:] == self.end[:-1]).all()):
            return None
        return np.concatenate(([0], np.cumsum(self.end - self.at)))

    def index(self, at: int) -> int:
        """The first stretch that ends behind a position."""
        return bisect_right(self.ends, at)

    def read(self, at: int, length: int) -> bytes:
        """The bytes from ``at`` on, ``length`` or as many as were captured in one piece."""
        index = self.index(at)
        out = b""
        while length > 0 and index < len(self.starts) and self.starts[index] <= at:
            stop = min(at + length, self.readable[index])
            if stop > at:
                shift = self.shifts[index]
                out += self.views[self.chunks[index]][at + shift : stop + shift]
                length -= stop - at
                at = stop
            if stop < self.ends[index]:
                break
            index += 1
        return out

    def heads(self, at: Int64s, width: int) -> tuple[Bytes, Int64s]:
        """The bytes at many positions, ascending, ``width`` each and zero where not captured; and how many were."""
        out = np.zeros((len(at), width), np.uint8)
        index = np.minimum(np.searchsorted(self.end, at, side="right"), len(self.at) - 1)
        inside = at - self.at[index]
        there = np.clip(self.rows["captured"][index] - inside, 0, width)
        there[inside < 0] = 0
        straddling = (there < width) & (at + there == self.end[index])
        offsets = self.rows["payload"][index] + inside
        chunk = self.rows["chunk"][index]
        columns = np.arange(width)
        for number in np.unique(chunk).tolist():
            data = self.datas[number]
            mine = np.flatnonzero((chunk == number) & ~straddling & (there > 0))
            if len(mine):
                wanted = offsets[mine, None] + columns
                np.minimum(wanted, len(data) - 1, out=wanted)
                out[mine] = data[wanted]
        short = np.flatnonzero(there < width)
        for one in short.tolist():
            if straddling[one]:
                head = self.read(int(at[one]), width)
                out[one, : len(head)] = np.frombuffer(head, np.uint8)
                there[one] = len(head)
            else:
                out[one, int(there[one]) :] = 0
        return out, there

    def covers(self, starts: Int64s, ends: Int64s) -> Rows:
        """Which of the ranges [start, end) have no gap."""
        before = self._seen
        if before is None:
            inside: Rows = (starts >= self.at[0]) & (ends <= self.end[-1])
            return inside
        reached = [
            before[index] + np.clip(one - self.at[index], 0, self.end[index] - self.at[index])
            for one in (starts, ends)
            for index in [np.maximum(np.searchsorted(self.at, one, side="right") - 1, 0)]
        ]
        covered: Rows = reached[1] - reached[0] == ends - starts
        return covered

    def pieces(self, starts: Int64s, ends: Int64s) -> tuple[Rows, Int64s]:
        """The stretches inside each of the ranges [start, end), ascending, and the index of the first of each range.

        Gaps are left out.  The second result has one more entry than there are ranges.
        """
        low = np.searchsorted(self.end, starts, side="right")
        high = np.searchsorted(self.at, ends, side="left")
        counts = np.where(ends > starts, np.maximum(high - low, 0), 0)
        edges = np.concatenate(([0], np.cumsum(counts)))
        owner = np.repeat(np.arange(len(starts)), counts)
        index = np.arange(int(edges[-1])) - edges[:-1][owner] + low[owner]
        out = self.rows[index]
        begin = np.maximum(out["at"], starts[owner])
        end = np.minimum(self.end[index], ends[owner])
        front = begin - out["at"]
        out["at"] = begin
        out["payload"] += front
        out["length"] = end - begin
        out["captured"] = np.clip(out["captured"] - front, 0, end - begin)
        return out, edges
