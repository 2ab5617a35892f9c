"""What was sent again in one direction of a TCP connection, why, and what its receiver said of it.

In a conversation without trouble nothing here runs but two comparisons.  Python looks at runs of segments that start
behind or beyond the expected byte, and at acknowledgements that acknowledge nothing new.
RFC 9293 (TCP), RFC 5681 (fast retransmit), RFC 6298 (timeout), RFC 2018 and 2883 (selective acknowledgements).
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bytes, Int64s, Rows
from ...link.tcp import ACK, ECE, FIN, HEADER, RST, SACK, SYN, sack_blocks
from ...serial import TCP_SEQUENCE
from ..gaps import Hole, add_hole, fill_holes
from ..health import NONE, Episode, Tally

KEPT = 2048
"""Segments behind the last one among which an earlier transmission is looked for."""
MAX_EPISODES = 4096
MAX_COMPLAINTS = 256
MAX_MARKS = 1 << 16
LATE = 1_000_000
"""Nanoseconds; what fills a hole or comes again sooner, and without being asked for, was no timeout."""
PAUSE = 200_000_000
"""Nanoseconds; repetitions that follow each other belong together where no more than this is between them."""
ENOUGH = 3
"""Duplicate acknowledgements that ask for a segment without naming what came (RFC 5681, 3.2)."""

FAST, TIMEOUT, UNKNOWN, COPY, _LATE = "fast retransmit", "timeout", "unknown", "duplicate", "late"

AGAIN, DISORDER, GAP, ALIVE, HAD_IT = (
    "retransmission",
    "out of order",
    "gap before it",
    "keep-alive",
    "ACK of what came twice",
)
SPOILED, TWICE, REPEATED_ACK, ZERO_WINDOW = "wrong TCP checksum", "seen twice", "duplicate ACK", "zero window"
"""What is odd about a segment."""


_DAMAGED = "seq", "length", "frame", "time"


class Again(NamedTuple):
    """Bytes that were sent again."""

    start: int
    stop: int
    time: int


class _Sent(NamedTuple):
    """Segments with payload, in capture order."""

    at: Int64s
    end: Int64s
    time: Int64s
    frame: Int64s
    checksum: NDArray[np.uint16]


class _Complaint(NamedTuple):
    """An acknowledgement that something is missing."""

    ack: int
    high: int
    """End of what it says has come behind; 0 where it does not say."""
    frame: int
    time: int


@dataclass(slots=True, eq=False)
class _Episode:
    start: int
    end: int
    cause: str
    lost: str
    seen_before: bool | None
    lost_frame: int | None
    lost_time: int | None
    asked: _Complaint | None
    frame: int
    time: int
    last_time: int
    repeated: Tally = NONE
    recovered: Tally = NONE

    def noun(self, sender: int) -> Episode:
        total = self.repeated + self.recovered
        asked = self.asked
        return Episode(
            sender,
            TCP_SEQUENCE.wrap(self.start),
            TCP_SEQUENCE.wrap(self.start) + self.end - self.start,
            self.cause,
            self.lost,
            self.seen_before,
            self.lost_frame,
            self.lost_time,
            asked.frame if asked else None,
            asked.time if asked else None,
            self.frame,
            self.time,
            total.packets,
            total.bytes,
        )


class Repeats:
    """Feed it the acknowledgements of a batch, then the segments."""

    def __init__(self) -> None:
        self.head: int | None = None
        """Position behind the furthest byte."""
        self.episodes: deque[_Episode] = deque(maxlen=MAX_EPISODES)
        self.counts: Counter[str] = Counter()
        """Episodes by cause."""
        self.repeated: dict[str, Tally] = {}
        """Segments of which no byte was new, by cause."""
        self.recovered: dict[str, Tally] = {}
        """Segments whose first transmission was lost before the capture point, by cause."""
        self.reordered = 0
        self.segments = 0
        self.duplicate_acks = self.selective_acks = self.reported_twice = self.zero_windows = self.echoes = 0
        """Of the receiver: ACKs that repeat one, ACKs that name what came behind a gap, ACKs that name what came twice
        (RFC 2883), segments with a window of zero, congestion echoes (RFC 3168, 6.1)."""
        self.marks: dict[int, str] = {}
        """Frame -> what is odd about the segment, of the last ones that are."""
        self.changes = 0
        """Times that an episode began, grew or was seen in another light."""
        self.again: list[Again] = []
        """Until somebody takes it."""
        self._holes: list[Hole] = []
        self._complaints: deque[_Complaint] = deque(maxlen=MAX_COMPLAINTS)
        self._open: _Episode | None = None
        self._parts: deque[_Sent] = deque()
        self._count = 0
        self._damaged: deque[tuple[int, int, int, int]] = deque(maxlen=MAX_COMPLAINTS)
        """``(start, stop, frame, time)`` of segments that arrived damaged."""
        self._acks: deque[tuple[Int64s, Int64s]] = deque(maxlen=64)
        """Positions that were acknowledged, and in which frames."""
        self._twice: deque[tuple[int, int, int]] = deque(maxlen=MAX_COMPLAINTS)
        """Bytes that the receiver says it has twice, and in which frame it says so."""
        self._last_ack: tuple[int, int] | None = None
        """Position and window of the receiver's last segment."""

    @property
    def troubled(self) -> bool:
        return bool(self.counts or self._open or self.reordered or self._holes)

    # What the receiver says

    def acknowledged(self, data: Bytes, rows: Rows, sent: Rows) -> None:
        """Take SEGMENT rows of the receiver; ``sent``: those of the sender in the same batch, with payload."""
        rows = rows[(rows["flags"] & (ACK | RST | SYN)) == ACK]
        if not len(rows):
            return
        reference = self.head if self.head is not None or not len(sent) else int(sent["seq"][0])
        self.echoes += int(np.count_nonzero(rows["flags"] & ECE))
        zero = rows["window"] == 0
        if zero.any():
            self.zero_windows += int(np.count_nonzero(zero))
            for frame in rows["frame"][zero].tolist():
                self._mark(frame, ZERO_WINDOW)
        if reference is None:
            return
        acks = TCP_SEQUENCE.unwrap_near(reference, rows["ack"])
        frames, windows = rows["frame"], rows["window"]
        self._acks.append((np.maximum.accumulate(acks), frames))
        before, window = self._last_ack or (-1, -1)
        self._last_ack = int(acks[-1]), int(windows[-1])
        same = np.diff(acks, prepend=before) == 0
        steady = np.diff(windows.astype(np.int64), prepend=window) == 0
        bare = (rows["length"] == 0) & (rows["flags"] & FIN == 0)
        size = rows["payload"] - rows["header"]
        odd = bare & (same | _selective(data, rows, size))
        if not odd.any():
            return
        ends = TCP_SEQUENCE.unwrap_near(reference, sent["seq"].astype(np.int64) + sent["length"])
        reached = np.concatenate(([reference], np.maximum(np.maximum.accumulate(ends), reference)))
        outstanding = reached[np.searchsorted(sent["frame"], frames)] > acks
        for index in np.flatnonzero(odd).tolist():
            signs = bool(same[index]), bool(steady[index]), bool(outstanding[index])
            self._odd(data, rows[index], int(acks[index]), *signs)

    def _odd(self, data: Bytes, row: Rows, ack: int, same: bool, steady: bool, outstanding: bool) -> None:
        """An acknowledgement that says the same as the one before it, or more than a number."""
        frame, time = int(row["frame"]), int(row["time"])
        blocks = [
            (TCP_SEQUENCE.unwrap(ack, left), TCP_SEQUENCE.unwrap(ack, right))
            for left, right in sack_blocks(data, int(row["header"]), int(row["payload"]))
        ]
        if blocks and (blocks[0][1] <= ack or any(a <= blocks[0][0] and blocks[0][1] <= b for a, b in blocks[1:])):
            self.reported_twice += 1
            self._twice.append((*blocks.pop(0), frame))
            self._mark(frame, HAD_IT)
        high = max((right for _, right in blocks), default=0)
        if high:
            self.selective_acks += 1
        if same and outstanding and (steady or high):
            self.duplicate_acks += 1
            self._mark(frame, REPEATED_ACK)
        elif not high:
            return
        self._complaints.append(_Complaint(ack, high, frame, time))

    def _settle(self) -> None:
        """What the receiver has twice had not been lost when it was sent again."""
        for left, right, frame in self._twice:
            for episode in reversed(self.episodes):
                if episode.start < right and left < episode.end and episode.frame < frame:
                    episode.lost = "nothing"
                    self.changes += 1
                    break
        self._twice.clear()

    # What the sender sends

    def damaged(self, rows: Rows) -> None:
        """SEGMENT rows whose checksum is wrong: the receiver drops them."""
        for seq, length, frame, time in zip(*(rows[name].tolist() for name in _DAMAGED), strict=True):
            at = seq if self.head is None else TCP_SEQUENCE.unwrap(self.head, seq)
            self._damaged.append((at, at + length, frame, time))
            self._mark(frame, SPOILED)

    def feed(self, rows: Rows, at: Int64s, end: Int64s) -> None:
        """Take segments with payload, in capture order, and the positions they begin and end at."""
        self.segments += len(rows)
        columns = _Sent(at, end, *(np.ascontiguousarray(rows[name]) for name in ("time", "frame", "checksum")))
        self._parts.append(columns)
        self._count += len(at)
        breaks = np.flatnonzero(at[1:] != end[:-1]) + 1
        if self.head is None:
            self.head = int(at[0])
        if not len(breaks) and int(at[0]) == self.head:
            self.head = int(end[-1])
        else:
            edges = [0, *breaks.tolist(), len(at)]
            for a, b in pairwise(edges):
                self._run(columns, a, b)
        while self._parts and self._count - len(self._parts[0].at) >= KEPT:
            self._count -= len(self._parts.popleft().at)
        if self._twice:
            self._settle()

    def _run(self, sent: _Sent, a: int, b: int) -> None:
        """Segments that follow each other."""
        assert self.head is not None
        start, stop, frame, time = int(sent.at[a]), int(sent.end[b - 1]), int(sent.frame[a]), int(sent.time[a])
        if start >= self.head:
            if start > self.head:
                add_hole(self._holes, Hole(self.head, start, frame, time))
                self._mark(frame, GAP)
            self.head = stop
            return
        if int(sent.end[a]) - start == 1 and start == self.head - 1:
            # One byte of old data keeps a connection alive (RFC 9293, 3.8.4).
            self._mark(frame, ALIVE)
            if b - a > 1:
                self._run(sent, a + 1, b)
            return
        c = a + int(np.searchsorted(sent.at[a:b], self.head))
        self._old(sent, a, c)
        self.head = max(self.head, stop)

    def _old(self, sent: _Sent, a: int, c: int) -> None:
        """Segments [a, c) begin with bytes that were sent before, or come late."""
        assert self.head is not None
        start, stop = int(sent.at[a]), int(sent.end[c - 1])
        time = int(sent.time[a])
        fresh = sent.end[a:c] > self.head
        hole = None
        for one in self._holes:
            inside = (sent.at[a:c] < one.end) & (sent.end[a:c] > one.start)
            if inside.any():
                fresh |= inside
                hole = hole or one
        episode = self._open
        if episode is None or start != episode.end or time - episode.last_time > PAUSE:
            self._close()
            episode = self._open = self._begin(sent, a, hole)
            self.episodes.append(episode)
        if episode.cause == COPY and (c - a > 1 or start > episode.start):
            episode.cause = UNKNOWN
        if episode.cause == _LATE and not fresh.all():
            episode.cause = UNKNOWN
        self.changes += 1
        episode.end = max(episode.end, stop)
        episode.last_time = int(sent.time[c - 1])
        lengths = sent.end[a:c] - sent.at[a:c]
        new, new_bytes = int(np.count_nonzero(fresh)), int(lengths[fresh].sum())
        episode.recovered += Tally(new, new_bytes)
        episode.repeated += Tally(c - a - new, int(lengths.sum()) - new_bytes)
        name = {_LATE: DISORDER, COPY: TWICE}.get(episode.cause, AGAIN)
        for frame in sent.frame[a:c].tolist():
            self._mark(frame, name)
        repeated = np.arange(a, c) if episode.cause != _LATE else np.flatnonzero(~fresh) + a
        columns = (sent.at[repeated].tolist(), sent.end[repeated].tolist(), sent.time[repeated].tolist())
        self.again += map(Again, *columns)
        if new and self._holes:
            self._holes = fill_holes(self._holes, start, stop)

    def _begin(self, sent: _Sent, a: int, hole: Hole | None) -> _Episode:
        """Why the segment comes again, as far as the capture shows."""
        start, frame, time = int(sent.at[a]), int(sent.frame[a]), int(sent.time[a])
        if hole is not None:
            asked = self._asked(max(start, hole.start), hole.frame, frame)
            cause = FAST if asked else TIMEOUT if time - hole.time >= LATE else _LATE
            seen: tuple[bool, int, int] = (False, hole.frame, hole.time)
            for at, end, damaged_frame, damaged_time in self._damaged:
                if at <= start < end and damaged_frame < frame:
                    seen = True, damaged_frame, damaged_time
            return _Episode(start, start, cause, "segment", *seen, asked, frame, time, time)
        before = self._sighting(start, frame)
        if before is None:
            return _Episode(start, start, UNKNOWN, "unknown", None, None, None, None, frame, time, time)
        seen_frame, seen_time, alike = before
        asked = self._asked(start, seen_frame, frame)
        soon = time - seen_time < LATE
        cause = FAST if asked else UNKNOWN if soon else TIMEOUT
        lost = "segment" if asked else "unknown"
        if self._was_acknowledged(int(sent.end[a]), frame):
            lost, asked, cause = "nothing", None, UNKNOWN if cause == FAST else cause
        if soon and not asked and alike == int(sent.checksum[a]):
            cause, lost = COPY, "nothing"
        return _Episode(start, start, cause, lost, True, seen_frame, seen_time, asked, frame, time, time)

    def _asked(self, start: int, after: int, before: int) -> _Complaint | None:
        """The first of enough acknowledgements between two frames that miss the byte at ``start``."""
        mine = [
            one
            for one in self._complaints
            if after <= one.frame < before and (one.high > start >= one.ack or (not one.high and one.ack == start))
        ]
        return mine[0] if len(mine) >= ENOUGH or any(one.high for one in mine) else None

    def _sighting(self, at: int, frame: int) -> tuple[int, int, int] | None:
        """``(frame, time, checksum)`` of the last segment before ``frame`` that carried the byte."""
        for part in reversed(self._parts):
            where = np.flatnonzero((part.at <= at) & (part.end > at) & (part.frame < frame))
            if len(where):
                last = int(where[-1])
                return int(part.frame[last]), int(part.time[last]), int(part.checksum[last])
        return None

    def _was_acknowledged(self, stop: int, frame: int) -> bool:
        """Whether all up to ``stop`` was acknowledged before ``frame``."""
        for acks, frames in reversed(self._acks):
            index = int(np.searchsorted(frames, frame)) - 1
            if index >= 0:
                return bool(acks[index] >= stop)
        return False

    def _close(self) -> None:
        """The open episode is over: count it."""
        episode, self._open = self._open, None
        if episode is None:
            return
        if episode.cause == _LATE:
            self.reordered += episode.recovered.packets
            if self.episodes and self.episodes[-1] is episode:
                self.episodes.pop()
            return
        self._count_in(episode, self.counts, self.repeated, self.recovered)

    @staticmethod
    def _count_in(
        episode: _Episode, counts: Counter[str], repeated: dict[str, Tally], recovered: dict[str, Tally]
    ) -> None:
        counts[episode.cause] += 1
        repeated[episode.cause] = repeated.get(episode.cause, NONE) + episode.repeated
        recovered[episode.cause] = recovered.get(episode.cause, NONE) + episode.recovered

    def snapshot(self) -> tuple[Counter[str], dict[str, Tally], dict[str, Tally], int]:
        """Episodes by cause, segments seen again and recovered by cause, segments out of order; with the open one."""
        counts, repeated, recovered = Counter(self.counts), dict(self.repeated), dict(self.recovered)
        reordered, episode = self.reordered, self._open
        if episode is not None and episode.cause == _LATE:
            reordered += episode.recovered.packets
        elif episode is not None:
            self._count_in(episode, counts, repeated, recovered)
        return counts, repeated, recovered, reordered

    def told(self) -> list[_Episode]:
        """The episodes, in order."""
        self._settle()
        return [one for one in self.episodes if one.cause != _LATE]

    @property
    def packets(self) -> int:
        """Segments that were sent again."""
        _, repeated, recovered, _ = self.snapshot()
        return sum(tally.packets for one in (repeated, recovered) for tally in one.values())

    def _mark(self, frame: int, what: str) -> None:
        self.marks[frame] = what
        if len(self.marks) > MAX_MARKS:
            del self.marks[next(iter(self.marks))]


def _selective(data: Bytes, rows: Rows, size: Int64s) -> Rows:
    """Which segments have a selective acknowledgement where Linux and most others put it."""
    found: Rows = np.zeros(len(rows), np.bool_)
    for before in (2, 14):  # two no-operations, perhaps behind a timestamp and two more
        index = np.flatnonzero(size >= HEADER + before + 10)
        if len(index):
            found[index] |= data[np.minimum(rows["header"][index] + HEADER + before, len(data) - 1)] == SACK
    return found
