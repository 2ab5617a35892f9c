"""What was retransmitted in one direction of a TCP connection, why, and what the receiver reported.

In a conversation without trouble only two comparisons run.  Python looks at runs of segments that start before or after
the expected byte, and at acknowledgements that acknowledge nothing new.
RFC 9293 (TCP), RFC 5681 (fast retransmit), RFC 6298 (timeout), RFC 2018 and 2883 (selective acknowledgements).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bytes, Int64s, Rows, places, some, steps
from ...link.tcp import sack_blocks
from ...named_tuple import NamedTuple
from ...serial import TCP_SEQUENCE
from ..connection import MAX_CONTRADICTED, Gap, fill_gaps, overlapping, with_gap
from ..retransmissions import DUPLICATE, LATE, SHOWN_LATE, OpenRetransmission, Retransmission, SenderLedger, Silences

MAX_COMPARED = 1 << 14
"""Segments of one batch that are searched for an earlier transmission."""
KEPT = 2048
"""Segments kept to search for an earlier transmission."""
MAX_HELD = 1 << 15
"""Bytes of earlier batches kept per direction."""


_NONE = np.zeros(0, np.int64)


class SentSegments(NamedTuple):
    """Segments with payload, in capture order."""

    at: Int64s
    end: Int64s
    time: Int64s
    frame: Int64s
    checksum: NDArray[np.uint16]
    payload: Int64s
    """Offset of the first byte in ``data``; this and ``captured`` are empty if ``data`` is None."""
    captured: Int64s
    sums: Rows
    """The ``sum`` column of their SEGMENT rows."""
    data: Bytes | None
    """None for segments of earlier batches whose bytes were dropped."""

    def between(self, first: int, behind: int) -> SentSegments:
        """A copy with some of the segments."""
        at, end, time, frame, checksum, payload, captured, sums, data = self
        rows = slice(first, behind)
        return SentSegments(
            at[rows].copy(),
            end[rows].copy(),
            time[rows].copy(),
            frame[rows].copy(),
            checksum[rows].copy(),
            payload[rows].copy(),
            captured[rows].copy(),
            sums[rows].copy(),
            data,
        )

    def without_bytes(self) -> SentSegments:
        """The segments without their bytes."""
        return self._replace(payload=_NONE, captured=_NONE, data=None)

    def detached(self) -> SentSegments:
        """The segments with a copy of their bytes, so that the batch of frames can be freed."""
        assert self.data is not None
        parts = [
            self.data[at : at + size] for at, size in zip(self.payload.tolist(), self.captured.tolist(), strict=True)
        ]
        ends = np.cumsum(self.captured, dtype=np.int64)
        return self._replace(payload=ends - self.captured, data=np.concatenate(parts))


class RecentSegments:
    """The latest segments of one direction, and the bytes of the first unacknowledged ones.

    The sender retransmits those, perhaps divided otherwise and in a later batch.
    """

    def __init__(self) -> None:
        self.parts: deque[SentSegments] = deque()
        self._count = 0
        self._holding = False

    def begin(self, sent: SentSegments) -> None:
        """Add the segments of a batch."""
        self.parts.append(sent)
        self._count += len(sent.at)

    def end(self, acknowledged: int | None) -> None:
        """End the batch; bytes before position ``acknowledged`` will not be retransmitted.  None: unknown."""
        sent = self.parts.pop()
        if self._holding:
            self.parts = deque(_released(part, acknowledged) for part in self.parts)
        first = behind = len(sent.at)
        if acknowledged is not None and acknowledged < int(sent.end.max()):
            room = MAX_HELD - sum(len(part.data) for part in self.parts if part.data is not None)
            first = int(np.argmax(sent.end > acknowledged))
            behind = first + int(np.searchsorted(np.cumsum(sent.captured[first:]), room, side="right"))
        if first < behind:
            pieces = sent.between(0, first).without_bytes(), sent.between(first, behind).detached()
            sent = sent.between(behind, len(sent.at))
            self.parts += [piece for piece in pieces if len(piece.at)]
        if len(sent.at):
            self.parts.append(sent.without_bytes())
        self._holding = any(part.data is not None for part in self.parts)
        while self.parts and self._count - len(self.parts[0].at) >= KEPT:
            self._count -= len(self.parts.popleft().at)


def _released(part: SentSegments, acknowledged: int | None) -> SentSegments:
    """The segments, without bytes if they will not be retransmitted."""
    gone = acknowledged is not None and int(part.end.max()) <= acknowledged
    return part.without_bytes() if gone else part


def contradicted(sent: SentSegments, index: int, earlier: SentSegments) -> tuple[int, ...] | None:
    """The frames of ``earlier`` that have other bytes than a segment of ``sent``; None if none has any of its bytes.

    Bytes are compared as far as captured.  If the earlier ones were dropped, the sums of words are compared, for
    segments that begin and end alike.
    """
    start, end = int(sent.at[index]), int(sent.end[index])
    stop = int(earlier.frame.searchsorted(sent.frame[index]))
    low = max(0, stop - MAX_COMPARED)
    mine = places((earlier.at[low:stop] < end) & (earlier.end[low:stop] > start)) + low
    if not len(mine):
        return None
    if earlier.data is None or sent.data is None:
        same = mine[(earlier.at[mine] == start) & (earlier.end[mine] == end) & (earlier.sums[mine] >= 0)]
        others = same[earlier.sums[same] != sent.sums[index]] if sent.sums[index] >= 0 else same[:0]
        return tuple(earlier.frame[others].tolist())
    reached = start + int(sent.captured[index])
    frames: list[int] = []
    for candidate in mine.tolist():
        left = max(start, int(earlier.at[candidate]))
        right = min(reached, int(earlier.at[candidate]) + int(earlier.captured[candidate]))
        if left < right:
            here = int(sent.payload[index]) + left - start
            there = int(earlier.payload[candidate]) + left - int(earlier.at[candidate])
            size = right - left
            if sent.data[here : here + size].tobytes() != earlier.data[there : there + size].tobytes():
                frames.append(int(earlier.frame[candidate]))
    return tuple(frames)


MAX_COMPLAINTS = 256
MAX_MARKS = 1 << 16
TIMEOUT_LEAST = 1_000_000
"""Nanoseconds; what fills a gap or is repeated sooner, without being asked for, was no timeout."""
PAUSE = 200_000_000
"""Nanoseconds; the longest pause between repetitions that belong to one retransmission."""
ENOUGH = 3
"""Duplicate acknowledgements without SACK blocks that ask for a segment (RFC 5681, 3.2)."""

FAST, TIMEOUT, UNKNOWN = "fast retransmit", "timeout", "unknown"

RETRANSMITTED, DISORDER, GAP, ALIVE, HAD_IT = (
    "retransmission",
    "out of order",
    "gap before it",
    "keep-alive",
    "ACK of what came twice",
)
CONTRADICTED = "other bytes than before"
SPOILED, TWICE, REPEATED_ACK, ZERO_WINDOW = "wrong TCP checksum", "seen twice", "duplicate ACK", "zero window"
"""What can be unusual about a segment."""


_DAMAGED = "seq", "length", "frame", "time"


class RetransmittedBytes(NamedTuple):
    """Bytes of the stream that were retransmitted."""

    start: int
    stop: int
    time: int
    contradicted: Mapping[int, int]
    """Frames that carried other bytes before, each with the frame that carries these."""


class _Complaint(NamedTuple):
    """An acknowledgement that reports missing bytes."""

    ack: int
    high: int
    """End of the bytes that it reports as received after the gap; 0 if it reports none."""
    frame: int
    time: int


class TcpRetransmissions:
    """Takes the acknowledgements of each batch, then its segments."""

    def __init__(self) -> None:
        self.head: int | None = None
        """Position after the furthest byte."""
        self.ledger = SenderLedger()
        """A segment counts as seen twice if it has no new byte."""
        self.segments = 0
        """Number of segments with payload."""
        self.silences = Silences()
        """Pauses between segments with payload."""
        self.duplicate_acks = self.selective_acks = self.reported_twice = self.zero_windows = self.echoes = 0
        """Segments of the receiver: ACKs that repeat the previous one, ACKs with SACK blocks, ACKs that report bytes
        received twice (RFC 2883), zero windows, congestion echoes (RFC 3168, 6.1)."""
        self.marks: dict[int, str] = {}
        """By frame, what is unusual about the segment; the latest ones."""
        self.changes = 0
        """How often a retransmission began, grew or changed its cause."""
        self.contradicted: list[int] = []
        """The first frames that carry other bytes than before."""
        self.fresh: list[RetransmittedBytes] = []
        """Retransmitted bytes that the health has not taken so far."""
        self._gaps: list[Gap] = []
        self._complaints: deque[_Complaint] = deque(maxlen=MAX_COMPLAINTS)
        self._open: OpenRetransmission | None = None
        self._recent = RecentSegments()
        self._damaged: deque[tuple[int, int, int, int]] = deque(maxlen=MAX_COMPLAINTS)
        """``(start, stop, frame, time)`` of segments that arrived damaged."""
        self._acked: tuple[int, int] | None = None
        """The furthest position acknowledged in earlier batches, and the last frame with an acknowledgement."""
        self._acks = _NONE, _NONE
        """Positions acknowledged in this batch, and the frames."""
        self._twice: deque[tuple[int, int, int]] = deque(maxlen=MAX_COMPLAINTS)
        """Bytes that the receiver reports as received twice, and the frame of the report."""
        self._last_ack: tuple[int, int] | None = None
        """Position and window of the receiver's latest segment."""

    @property
    def troubled(self) -> bool:
        return bool(self.ledger or self._gaps)

    # What the receiver says

    @property
    def last_ack(self) -> int:
        """The position that the receiver's latest segment acknowledges; -1 for none."""
        return -1 if self._last_ack is None else self._last_ack[0]

    def shut(self, frame: int) -> None:
        """Count a segment of the receiver with a window of zero."""
        self.zero_windows += 1
        self._mark(frame, ZERO_WINDOW)

    def acknowledged(
        self, data: Bytes, rows: Rows, acks: Int64s, same: NDArray[np.bool_], odd: Int64s, sent: Rows
    ) -> None:
        """Take SEGMENT rows of the receiver's acknowledgements, and the positions that they acknowledge.

        ``same``: which repeat the previous one; ``odd``: indices of unusual ones; ``sent``: the sender's rows with
        payload in the same batch.
        """
        frames, windows = rows["frame"], rows["window"]
        self._remember_acks()
        self._acks = acks.copy(), frames.copy()
        window = -1 if self._last_ack is None else self._last_ack[1]
        self._last_ack = int(acks[-1]), int(windows[-1])
        if not len(odd):
            return
        reference = self.head if self.head is not None or not len(sent) else int(sent["seq"][0])
        assert reference is not None
        steady = steps(windows, window) == 0
        ends = TCP_SEQUENCE.unwrap_near(reference, sent["seq"].astype(np.int64) + sent["length"])
        reached = np.concatenate(([reference], np.maximum(np.maximum.accumulate(ends), reference)))
        outstanding = reached[sent["frame"].searchsorted(frames)] > acks
        for index in odd.tolist():
            signs = bool(same[index]), bool(steady[index]), bool(outstanding[index])
            self._odd(data, rows[index], int(acks[index]), *signs)

    def _odd(self, data: Bytes, row: Rows, ack: int, same: bool, steady: bool, outstanding: bool) -> None:
        """Take an acknowledgement that repeats the previous one, or has SACK blocks."""
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
        """Mark retransmissions of bytes that the receiver reports as received twice: nothing had been lost."""
        for left, right, frame in self._twice:
            for retransmission in reversed(self.ledger.recent):
                if retransmission.start < right and left < retransmission.end and (retransmission.frame or 0) < frame:
                    retransmission.lost = "nothing"
                    self.changes += 1
                    break
        self._twice.clear()

    # What the sender sends

    def damaged(self, rows: Rows) -> None:
        """Note SEGMENT rows with a wrong checksum, which the receiver drops."""
        for seq, length, frame, time in zip(*(rows[name].tolist() for name in _DAMAGED), strict=True):
            at = seq if self.head is None else TCP_SEQUENCE.unwrap(self.head, seq)
            self._damaged.append((at, at + length, frame, time))
            self._mark(frame, SPOILED)

    def feed(self, sent: SentSegments, carrying: NDArray[np.bool_]) -> None:
        """Take segments in capture order; ``carrying``: those with payload, the others acknowledge beyond it."""
        at, end = sent.at, sent.end
        breaks = places(at[1:] != end[:-1]) + 1
        if not len(breaks):
            bounds = np.append(at, end[-1:])  # One column suffices, as each begins where the previous one ends.
            sent = sent._replace(at=bounds[:-1], end=bounds[1:])
        self._recent.begin(sent)
        frames = sent.frame[carrying]
        if len(frames):
            self.segments += len(places(steps(frames, 0)))  # IP fragments of a segment share one frame.
            self.silences.note(frames, sent.time[carrying])
        if self.head is None:
            self.head = int(at[0])
        if not len(breaks) and int(at[0]) == self.head:
            self.head = int(end[-1])
        else:
            edges = [0, *breaks.tolist(), len(at)]
            for a, b in pairwise(edges):
                self._run(sent, a, b)
        self._remember_acks()
        self._recent.end(None if self._acked is None else self._acked[0])
        if self._twice:
            self._settle()

    def _run(self, sent: SentSegments, a: int, b: int) -> None:
        """Take consecutive segments."""
        assert self.head is not None
        start, stop, frame, time = int(sent.at[a]), int(sent.end[b - 1]), int(sent.frame[a]), int(sent.time[a])
        if start >= self.head:
            if start > self.head:
                self._gaps = with_gap(self._gaps, Gap(self.head, start, frame, time))
                if stop > start or frame not in self.marks:
                    self._mark(frame, GAP)
            self.head = stop
            return
        if int(sent.end[a]) - start == 1 and start == self.head - 1 and self._going_on(start, time) is None:
            # One byte of old data is a keep-alive (RFC 9293, 3.8.4), unless it continues a retransmission.
            self._mark(frame, ALIVE)
            sent.captured[a], sent.sums[a] = 0, -1  # its byte need not be the real one
            if b - a > 1:
                self._run(sent, a + 1, b)
            return
        c = a + int(sent.at[a:b].searchsorted(self.head))
        self._old(sent, a, c)
        self.head = max(self.head, stop)

    def _old(self, sent: SentSegments, a: int, c: int) -> None:
        """Take segments [a, c) that begin with bytes that were sent before, or come late."""
        assert self.head is not None
        start, stop = int(sent.at[a]), int(sent.end[c - 1])
        time = int(sent.time[a])
        fresh = sent.end[a:c] > self.head
        gap = None
        for known in overlapping(self._gaps, start, stop):
            inside = (sent.at[a:c] < known.end) & (sent.end[a:c] > known.start)
            fresh |= inside
            if inside[0]:
                gap = gap or known
        retransmission = self._going_on(start, time)
        if retransmission is None:
            retransmission = self._open = self._begin(sent, a, gap)
            self.ledger.begin(retransmission)
        self.changes += 1
        lengths, unseen, firsts = sent.end[a:c] - sent.at[a:c], fresh, places(steps(sent.frame[a:c], 0))
        if len(firsts) < c - a:  # Count IP fragments as one segment.
            lengths, unseen = np.add.reduceat(lengths, firsts), np.logical_or.reduceat(fresh, firsts)
        copy = len(firsts) == 1 and start <= retransmission.start
        of_each = unseen.tolist(), lengths.tolist(), int(sent.frame[c - 1]), sent.time[a:c][firsts].tolist()
        self.ledger.grow(retransmission, stop, *of_each, copy)
        if retransmission.cause == DUPLICATE and stop >= self.head:
            self._open = None  # What follows a copy of the last segment is sent for the first time.
        name = {LATE: DISORDER, DUPLICATE: TWICE}.get(retransmission.cause, RETRANSMITTED)
        for frame in sent.frame[a:c].tolist():
            self._mark(frame, name)
        those = np.arange(a, c) if retransmission.cause != LATE else places(~fresh) + a
        again = places(~fresh) + a
        others = {index: self._contradicts(sent, index) for index in again.tolist()}
        for index in those.tolist():
            frames = others.get(index, {})
            self.fresh.append(
                RetransmittedBytes(int(sent.at[index]), int(sent.end[index]), int(sent.time[index]), frames)
            )
        if self._gaps and fresh.any():
            self._gaps = fill_gaps(self._gaps, start, stop)

    def _going_on(self, start: int, time: int) -> OpenRetransmission | None:
        """The open retransmission if bytes from ``start`` at that time (ns) continue it."""
        current = self._open
        return None if current is None or start != current.end or time - current.last_time > PAUSE else current

    def _contradicts(self, sent: SentSegments, index: int) -> dict[int, int]:
        """The frames known to have carried other bytes than a segment, each with the segment's frame."""
        start, frame = int(sent.at[index]), int(sent.frame[index])
        frames: dict[int, int] = {}
        for part in reversed(self._recent.parts):
            others = contradicted(sent, index, part)
            frames |= dict.fromkeys(others or (), frame)
            if others is not None and int(part.at.min()) <= start:
                break
        if frames:
            if len(self.contradicted) < MAX_CONTRADICTED:
                self.contradicted.append(frame)
            self._mark(frame, CONTRADICTED)
        return frames

    def _begin(self, sent: SentSegments, a: int, gap: Gap | None) -> OpenRetransmission:
        """Open a retransmission: why the segment was retransmitted, as far as the capture shows."""
        start, frame, time = int(sent.at[a]), int(sent.frame[a]), int(sent.time[a])
        if gap is not None:
            asked = self._asked(max(start, gap.start), gap.frame, frame)
            cause = FAST if asked else TIMEOUT if time - gap.time >= TIMEOUT_LEAST else LATE
            if time - gap.time < SHOWN_LATE and self._was_acknowledged(int(sent.end[a]), frame):
                asked, cause = None, LATE
            seen: tuple[bool, int, int] = (False, gap.frame, gap.time)
            for at, end, damaged_frame, damaged_time in self._damaged:
                if at <= start < end and damaged_frame < frame:
                    seen = True, damaged_frame, damaged_time
            return _opened(start, cause, "segment", *seen, asked, frame, time)
        before = self._sighting(start, frame)
        if before is None:
            return _opened(start, UNKNOWN, "unknown", None, None, None, None, frame, time)
        seen_frame, seen_time, alike = before
        asked = self._asked(start, seen_frame, frame)
        soon = time - seen_time < TIMEOUT_LEAST
        cause = FAST if asked else UNKNOWN if soon else TIMEOUT
        lost = "segment" if asked else "unknown"
        if self._was_acknowledged(int(sent.end[a]), frame):
            lost, asked, cause = "nothing", None, UNKNOWN if cause == FAST else cause
        if soon and not asked and alike == int(sent.checksum[a]):
            cause, lost = DUPLICATE, "nothing"
        return _opened(start, cause, lost, True, seen_frame, seen_time, asked, frame, time)

    def _asked(self, start: int, after: int, before: int) -> _Complaint | None:
        """The first of the acknowledgements between two frames that ask for the byte at ``start``, if they suffice."""
        mine = [
            complaint
            for complaint in self._complaints
            if after <= complaint.frame < before
            and (complaint.high > start >= complaint.ack or (not complaint.high and complaint.ack == start))
        ]
        return mine[0] if len(mine) >= ENOUGH or any(complaint.high for complaint in mine) else None

    def _sighting(self, at: int, frame: int) -> tuple[int, int, int] | None:
        """``(frame, time, checksum)`` of the last segment before ``frame`` that carried the byte at ``at``."""
        for part in reversed(self._recent.parts):
            stop = int(part.frame.searchsorted(frame))
            low = max(0, stop - MAX_COMPARED)
            where = places((part.at[low:stop] <= at) & (part.end[low:stop] > at))
            if len(where):
                last = low + int(where[-1])
                return int(part.frame[last]), int(part.time[last]), int(part.checksum[last])
        return None

    def _was_acknowledged(self, stop: int, frame: int) -> bool:
        """Whether everything up to ``stop`` was acknowledged before ``frame``."""
        acks, frames = self._acks
        earlier = self._acked is not None and self._acked[1] < frame and self._acked[0] >= stop
        return earlier or some(acks[: int(frames.searchsorted(frame))] >= stop)

    def _remember_acks(self) -> None:
        """Move the acknowledgements of the previous batch to ``_acked``."""
        acks, frames = self._acks
        if len(acks):
            before = self._acked[0] if self._acked else int(acks[0])
            self._acked = max(before, int(acks[acks.argmax()])), int(frames[-1])
            self._acks = _NONE, _NONE

    def nouns(self, sender: int) -> list[Retransmission]:
        """The latest retransmissions, in order."""
        self._settle()
        return [retransmission.noun(sender, TCP_SEQUENCE.wrap(retransmission.start)) for retransmission in self.ledger]

    def _mark(self, frame: int, what: str) -> None:
        self.marks[frame] = what
        if len(self.marks) > MAX_MARKS:
            del self.marks[next(iter(self.marks))]


def _opened(
    start: int,
    cause: str,
    lost: str,
    lost_packet_captured: bool | None,
    lost_frame: int | None,
    lost_time: int | None,
    asked: _Complaint | None,
    frame: int,
    time: int,
) -> OpenRetransmission:
    notice_frame, notice_time = (asked.frame, asked.time) if asked else (None, None)
    lost_at = lost_packet_captured, lost_frame, lost_time
    return OpenRetransmission(start, start, cause, lost, *lost_at, notice_frame, notice_time, frame, time, time)
