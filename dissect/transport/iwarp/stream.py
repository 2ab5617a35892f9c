"""One direction of a TCP connection: its bytes in order, each once, as references to the captured frames.

Positions are unwrapped sequence numbers: they grow beyond 32 bits.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from functools import cached_property
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from ...arrays import Bytes, Int64s, Rows, copied, every, gathered, joined, kept, places, some, take, unique
from ...intervals import IntervalSet
from ...layers.fpdus import MarkerGrid, fpdu_bytes
from ...link.tcp import SYN
from ...named_tuple import NamedTuple
from ...serial import TCP_SEQUENCE
from ..connection import Gap, with_gap
from ..sections import BEYOND, QueueSections
from .retransmissions import SentSegments, TcpRetransmissions

STRETCH = np.dtype(
    [
        ("at", "i8"),  # position of the first byte
        ("frame", "i8"),
        ("time", "i8"),  # nanoseconds since the Unix epoch
        ("payload", "i8"),  # offset of the first byte in the frame's data
        ("length", "i4"),  # bytes on the wire
        ("captured", "i4"),  # bytes in the capture
        ("chunk", "i4"),  # index of the data it refers to
        ("ack", "u4"),  # acknowledgement number of the segment
    ]
)
"""Consecutive bytes that one frame carried.  Payload.runs hold these rows, too, where ``at`` means nothing."""

REORDERED = 64
"""Segments of a connection until a gap that was acknowledged counts as not captured."""
PATIENCE = 4096
"""The same for a gap without a captured acknowledgement."""
SECOND = 1_000_000_000
MAX_HELD = 1 << 16
"""Stretches that may wait; beyond that the first gap is given up."""

Chunk = tuple[Bytes, Rows]
"""STRETCH rows of one batch, and the data they refer to."""


class SegmentClock:
    """When the segments of a batch came, and what was acknowledged by then."""

    def __init__(self, before: int, rows: Rows, members: Int64s, acked: int | None, answers: Rows) -> None:
        """``before``: segments of the connection so far; ``members``: indices of the SEGMENT rows that follow, in both
        directions.

        ``acked``: the sequence number up to which the receiver has everything; ``answers``: the receiver's SEGMENT rows
        in the batch with acknowledgements.
        """
        self._before, self._rows, self._members = before, rows, members
        self._acked, self._answers = acked, answers
        self._reached: Int64s | None = None
        """By segment, the position up to which everything was acknowledged; computed when first needed."""
        self._known: tuple[tuple[int, int, int] | None, int | None] = None, None
        """The last question and its answer: most late segments change neither."""

    @cached_property
    def _frames(self) -> Int64s:
        frames: Int64s = self._rows["frame"][self._members]
        return frames

    @cached_property
    def _times(self) -> Int64s:
        times: Int64s = self._rows["time"][self._members]
        return times

    def at(self, frame: int) -> int:
        """Number of segments of the connection up to a frame."""
        return self._before + int(self._frames.searchsorted(frame, side="right"))

    def patience_ends(self, first: _Waiting, position: int, since: int) -> int | None:
        """The first frame, ``since`` or later, by which ``first`` has waited long enough for the bytes before
        ``position``; None if none has come so far."""
        asked = first.segments, first.time, position
        if self._known[0] == asked:
            return self._known[1]
        if self._reached is None:
            known = position - MAX_AHEAD if self._acked is None else self._acked
            acks = TCP_SEQUENCE.unwrap_near(known, self._answers["ack"])
            reached = np.maximum.accumulate(np.append(known, acks))
            self._reached = reached[self._answers["frame"].searchsorted(self._frames, side="right")]
        begin = int(self._frames.searchsorted(since))
        part = slice(begin, max(begin, first.segments + PATIENCE - self._before - 1) + 1)
        waited, reached = self._times[part] - first.time, self._reached[part]
        segments = self._before - first.segments + np.arange(begin + 1, begin + 1 + len(waited))
        acked = reached >= TCP_SEQUENCE.unwrap(int(reached[0]), position)
        ended = acked & ((segments >= REORDERED) | (waited >= SECOND))
        ending = places(ended | (segments >= PATIENCE) | (waited >= 60 * SECOND))
        self._known = asked, int(self._frames[begin + ending[0]]) if len(ending) else None
        return self._known[1]


class _Waiting(NamedTuple):
    """A stretch that waits behind a gap."""

    data: Bytes
    rows: Rows
    end: int
    """Position after it."""
    segments: int
    """Number of segments of the connection when it came."""
    time: int
    largest: int
    """Payload bytes of the largest segment so far."""


MAX_SEGMENT = (1 << 16) - 41
"""Payload bytes of the largest possible segment, after IPv4 and TCP headers."""
MAX_AHEAD = 1 << 24
"""Bytes that may be missing before an acknowledged position, more than Linux allows in flight; beyond, it is wrong."""


class ByteStream:
    """Takes the segments of one direction (``received``), and gives their bytes in order."""

    def __init__(self) -> None:
        self.next: int | None = None
        """Position of the first byte not given out so far; None before the first segment."""
        self.opened: int | None = None
        """Sequence number of the SYN, if known."""
        self.reference = 0
        self.largest = 1
        """Payload bytes of the largest segment."""
        self.first: int | None = None
        """Position of the first byte, as far as known."""
        self.retransmissions = TcpRetransmissions()
        self.missing = 0
        """Bytes that were sent but not captured."""
        self.missing_segments = 0
        """Lower bound of the number of segments with those bytes."""
        self.gaps: Sequence[Gap] = ()
        """The missing ranges, the latest ones."""
        self._unseen: Gap | None = None
        """Bytes that were acknowledged although neither they nor later ones were captured."""
        self.unseen_time = 0
        """Nanoseconds: when the receiver last acknowledged more than was captured; 0 for never."""
        self._ahead = IntervalSet()
        """Bytes from ``next`` on that are there."""
        self._held: dict[int, _Waiting] = {}
        """By position: what waits behind a gap."""
        self._positions: list[int] = []
        """Positions of what waits, ascending."""
        self._octets: list[int] = []
        """Positions of single bytes that wait, ascending: they may be from keep-alives, which can carry any byte."""
        self._arrivals: list[tuple[int, int]] = []
        """A heap of ``(frame, position)``; entries that no longer wait are skipped."""
        self._since = 0
        """The frame that last changed what waits."""
        self.released: list[tuple[int, int]] = []
        """Of what waited: its first frame, and the frame that released it."""
        self.given: list[tuple[int, int]] = []
        """Of what waited: its position, and the frame that released it."""

    def start(self, seq: int) -> None:
        """Set the sequence number of the first byte."""
        self.next = self.reference = self.first = self.retransmissions.head = seq

    def take(self, data: Bytes, rows: Rows, clock: SegmentClock) -> list[Chunk]:
        """Take STRETCH rows in capture order, perhaps out of sequence; returns what is in order."""
        position, ends = rows["at"], rows["at"] + rows["length"]
        # Keep single bytes separate, as they may be from keep-alives.
        lone = rows["length"] == 1
        breaks = (position[1:] != ends[:-1]) | lone[1:] | lone[:-1]
        edges = [0, *(places(breaks) + 1).tolist(), len(rows)]
        frames, ready = rows["frame"], list[Chunk]()
        for a, behind in pairwise(edges):
            while a < behind:
                ready += self.settle(clock, int(frames[a]) - 1)
                ended = self._patience_ends(clock)
                b = behind if ended is None else a + int(frames[a:behind].searchsorted(ended, side="right"))
                self._since = int(frames[a])
                self._run(data, rows[a:b], position[a:b], ends[a:b], clock)
                self.largest = max(self.largest, int(rows["length"][a:b].max()))
                if full := len(self._held) > MAX_HELD:
                    self._skip_gap()
                if self._held:
                    ready += self._release(int(frames[b - 1]) if full else 0)
                a = b
        return ready

    def _run(self, data: Bytes, rows: Rows, position: Int64s, ends: Int64s, clock: SegmentClock) -> None:
        """Take consecutive segments."""
        assert self.next is not None
        start, end = int(position[0]), int(ends[-1])
        if self._octets and end - start > 1:
            self._doubt(start, end)
        fresh = self._ahead.add(max(start, self.next), end)
        if fresh == [(start, end)]:
            self._hold(start, end, data, rows, clock)
            return
        for low, high in fresh:
            first, last = int(ends.searchsorted(low, side="right")), int(position.searchsorted(high))
            part = copied(rows[first:last])
            trim(part, low, high)
            self._hold(low, high, data, part, clock)

    def _doubt(self, start: int, end: int) -> None:
        """Drop single bytes held in [start, end): a keep-alive may carry any byte (RFC 9293, 3.8.4)."""
        low, high = bisect_left(self._octets, start), bisect_left(self._octets, end)
        for at in self._octets[low:high]:
            del self._held[at]
            del self._positions[bisect_left(self._positions, at)]
            self._ahead.remove(at, at + 1)
        del self._octets[low:high]

    def _hold(self, at: int, end: int, data: Bytes, rows: Rows, clock: SegmentClock) -> None:
        frame, time = int(rows["frame"][0]), int(rows["time"][0])
        largest = max(self.largest, int(rows["length"][0]))
        self._held[at] = _Waiting(data, rows, end, clock.at(frame), time, largest)
        insort(self._positions, at)
        if end - at == 1:
            insort(self._octets, at)
        heappush(self._arrivals, (frame, at))

    def _release(self, frame: int) -> list[Chunk]:
        """Give out what is in order; ``frame``: the one at which a gap before it was given up, 0 if it was filled."""
        ready: list[Chunk] = []
        for at in self._positions:
            if at != self.next:
                break
            held = self._held.pop(at)
            first, last = held.rows["frame"][[0, -1]].tolist()
            if first < frame:
                self.released.append((first, frame))
                self.given.append((at, frame))
            frame = max(frame, last)
            ready.append((held.data, held.rows))
            self.next = held.end
        if ready:
            del self._positions[: len(ready)]
            del self._octets[: bisect_left(self._octets, self.next or 0)]
            if not self._held:
                self._ahead = IntervalSet()
                self._arrivals.clear()
        return ready

    def _skip_gap(self) -> None:
        """Give up the first gap."""
        assert self.next is not None
        end = self._positions[0]
        if end > self.next:
            held = self._held[end]
            self._miss(Gap(self.next, end, int(held.rows["frame"][0]), int(held.rows["time"][0])), held.largest)

    def _miss(self, gap: Gap, largest: int) -> None:
        """Count the bytes of ``gap`` as missing, in segments of at most ``largest`` bytes."""
        self.gaps = with_gap(self.gaps, gap)
        self.missing += gap.end - gap.start
        self.missing_segments += -(-(gap.end - gap.start) // largest)
        self.next = gap.end

    def acknowledged(self, since: int, acked: int, answers: Rows) -> None:
        """Note that the receiver has everything up to ``acked``, by its SEGMENT rows ``answers``; ``since``: what it
        had when it was first seen."""
        known = since if self.next is None else self.next
        if self._unseen is not None:
            known = max(known, self._unseen.end)
        if TCP_SEQUENCE.unwrap(known, acked) <= known + 1:  # A FIN takes a sequence number, too.
            return
        acks = TCP_SEQUENCE.unwrap_near(known, answers["ack"])
        for at in places(acks > known + 1).tolist():
            if known + 1 < (end := int(acks[at])) <= known + MAX_AHEAD:
                known = end
                frame, self.unseen_time = int(answers["frame"][at]), int(answers["time"][at])
                if self._unseen is None or self._unseen.end <= (self.next or 0):
                    self._unseen = Gap(since, end, frame, self.unseen_time)
                self._unseen = self._unseen._replace(end=end, later=frame)

    def settle(self, clock: SegmentClock, frame: int | None = None) -> list[Chunk]:
        """Give up gaps that will not be filled, up to a frame or, if None, the end; returns what is then in order."""
        ready: list[Chunk] = []
        while (ended := self._patience_ends(clock)) is not None and (frame is None or ended <= frame):
            self._since = ended
            self._skip_gap()
            ready += self._release(ended)
        return ready

    def give_up(self, frame: int, seen: bool) -> list[Chunk]:
        """Give up all gaps at ``frame``, as no more comes; ``seen``: the capture has segments of the sender."""
        ready: list[Chunk] = []
        while self._held:
            self._skip_gap()
            ready += self._release(frame)
        if self._unseen is not None and not seen:
            self.gaps = with_gap(self.gaps, self._unseen)
        elif self._unseen is not None and self.next is not None and self._unseen.end > self.next + 1:
            self._miss(self._unseen._replace(start=self.next), MAX_SEGMENT)
        return ready

    def _patience_ends(self, clock: SegmentClock) -> int | None:
        """The frame at which the first gap is given up; None if none has come so far."""
        first = self._first_arrival()
        return None if first is None else clock.patience_ends(first, self._positions[0], self._since)

    def _first_arrival(self) -> _Waiting | None:
        """What came first of all that waits."""
        while self._arrivals:
            frame, at = self._arrivals[0]
            held = self._held.get(at)
            if held is not None and int(held.rows["frame"][0]) == frame:
                return held
            heappop(self._arrivals)
        return None

    @property
    def waits(self) -> bool:
        """Whether something waits behind a gap."""
        return bool(self._held)

    @property
    def waiting_since(self) -> int | None:
        """The first frame that waits behind a gap."""
        first = self._first_arrival()
        return None if first is None else int(first.rows["frame"][0])


def received(
    streams: Sequence[ByteStream], data: Bytes, rows: Rows, sections: QueueSections, clocks: Sequence[SegmentClock]
) -> list[list[Chunk]]:
    """Take SEGMENT rows, by stream and in capture order; returns for each stream what is in order, including what
    waited long enough behind a gap."""
    position, ends = _positions(streams, rows, sections)
    carrying = rows["length"] > 0
    # A bare acknowledgement has the sequence number that its sender uses next (RFC 9293, 3.4), so it shows that
    # bytes before it are missing from the capture.  After a FIN that number is one higher.
    heads = np.array([stream.retransmissions.head or 0 for stream in streams])
    floors = heads[sections.owners]
    reached = sections.before(sections.risen(np.minimum(ends, floors + BEYOND - 1), floors), heads)
    telling = carrying | (position > reached + 1) & (position <= reached + MAX_AHEAD)
    if not every(telling):
        rows, position, ends, carrying = take(rows, telling), position[telling], ends[telling], carrying[telling]
        sections = sections.part(places(telling))
    time, frame, checksum, payload, captured, sums = (
        np.ascontiguousarray(rows[name]) for name in ("time", "frame", "checksum", "payload", "captured", "sum")
    )
    sent = SentSegments(position, ends, time, frame, checksum, payload, captured, sums, data)
    stretches = np.zeros(len(rows), STRETCH)
    for name in ("frame", "time", "payload", "length", "captured", "ack"):
        stretches[name] = rows[name]
    stretches["at"] = position
    expected = sections.before(ends, np.array([stream.next or 0 for stream in streams]))
    unusual = {*sections.owners[~carrying | (position != expected)].tolist()}
    largest, (_, lasts) = sections.largest(rows["length"]), sections.ends(ends)
    chunks: list[list[Chunk]] = []
    for number, (stream, clock) in enumerate(zip(streams, clocks, strict=True)):
        mine, ready = slice(*sections[number]), list[Chunk]()
        if mine.start < mine.stop:
            stream.retransmissions.feed(sent.between(mine.start, mine.stop), carrying[mine])
            arrived = copied(stretches[mine])
            if number in unusual or stream.waits:
                ready = stream.take(data, kept(arrived, carrying[mine]), clock)
            else:
                stream.largest, stream.next = max(stream.largest, largest[number]), lasts[number]
                ready.append((data, arrived))
        chunks.append(ready + stream.settle(clock) if stream.waits else ready)
    return chunks


def _positions(streams: Sequence[ByteStream], rows: Rows, sections: QueueSections) -> tuple[Int64s, Int64s]:
    """Start and end positions of SEGMENT rows, each nearest to the one before it."""
    seq = rows["seq"].astype(np.int64) + (rows["flags"] & SYN != 0)
    firsts, _ = sections.ends(seq)
    for stream, first, filled in zip(streams, firsts, sections.filled.tolist(), strict=True):
        if filled and stream.next is None:
            stream.start(first)
    references = np.array([stream.reference for stream in streams])
    steps = (seq - sections.before(seq, references) + TCP_SEQUENCE.half) & (TCP_SEQUENCE.modulus - 1)
    steps -= TCP_SEQUENCE.half
    position = steps.cumsum()
    position += references[sections.owners] - (position - steps)[sections.starts[sections.owners]]
    _, lasts = sections.ends(position)
    for stream, last, filled in zip(streams, lasts, sections.filled.tolist(), strict=True):
        if filled:
            stream.reference = last
    return position, position + rows["length"]


def trim(rows: Rows, low: int, high: int) -> None:
    """Cut consecutive rows, in place, to positions [low, high)."""
    front = low - int(rows["at"][0])
    if front > 0:
        rows["at"][0] += front
        rows["payload"][0] += front
        rows["length"][0] -= front
        rows["captured"][0] = max(0, int(rows["captured"][0]) - front)
    back = int(rows["at"][-1]) + int(rows["length"][-1]) - high
    if back > 0:
        rows["length"][-1] -= back
        rows["captured"][-1] = min(int(rows["captured"][-1]), int(rows["length"][-1]))


class Window:
    """Disjoint STRETCH rows, ascending by position, and the data they refer to."""

    def __init__(self, rows: Rows, datas: list[Bytes], numbers: Int64s | None = None) -> None:
        """``numbers``: index of the data of each row, if ``chunk`` does not have it."""
        self.rows = rows
        self.datas = datas
        self._numbers: Int64s = rows["chunk"] if numbers is None else numbers
        at = np.ascontiguousarray(rows["at"])
        self.at: Int64s = at
        self.end: Int64s = at + rows["length"]
        self.limit = int(self.end[-1]) if len(rows) else 0

    def stretch(self, index: int) -> tuple[int, int, Bytes]:
        """The position up to which a stretch was captured, the number to add to a position for the offset in its data,
        and the data."""
        at, _, _, payload, _, captured, _, _ = self.rows[index].item()
        return at + captured, payload - at, self.datas[self._numbers[index]]

    @cached_property
    def starts(self) -> list[int]:
        starts: list[int] = self.at.tolist()
        return starts

    @cached_property
    def ends(self) -> list[int]:
        ends: list[int] = self.end.tolist()
        return ends

    @cached_property
    def edges(self) -> set[int]:
        """Positions where a stretch begins or ends."""
        return {*self.starts, *self.ends}

    @cached_property
    def owners(self) -> Int64s:
        """By stretch, the index of its stream, if there are several."""
        return np.zeros(len(self.rows), np.int64)

    @cached_property
    def behind(self) -> Int64s:
        """By stream, the index after its last stretch."""
        return np.array([len(self.rows)])

    @cached_property
    def shifts(self) -> Int64s:
        """By stream, the number to add to its positions for positions in the window."""
        return np.zeros(1, np.int64)

    @cached_property
    def last_frames(self) -> Int64s:
        """The highest frame number of each stretch and those before it in its stream."""
        apart = self.owners * BEYOND
        return np.maximum.accumulate(self.rows["frame"] + apart) - apart

    @cached_property
    def _seen(self) -> Int64s | None:
        """Bytes before each stretch; None if there are no gaps."""
        if every(self.at[1:] == self.end[:-1]):
            return None
        return np.concatenate(([0], np.cumsum(self.end - self.at)))

    def index(self, at: int) -> int:
        """Index of the first stretch that ends after a position."""
        return int(self.end.searchsorted(at, side="right"))

    def single(self, starts: Int64s, ends: Int64s) -> slice | None:
        """The stretches if each holds one of the non-empty ranges [start, end); else None."""
        first = self.index(int(starts[0])) if len(starts) else 0
        rows = slice(first, first + len(starts))
        at, end = self.at[rows], self.end[rows]
        if len(at) < len(starts) or not every((at <= starts) & (starts < ends) & (ends <= end)):
            return None
        return rows

    def read(self, at: int, length: int) -> bytes:
        """The bytes from ``at`` on: ``length``, or fewer if not all were captured."""
        out = b""
        if at >= self.limit:
            return out
        index = self.index(at)
        while length > 0 and index < len(self.starts) and self.starts[index] <= at:
            readable, shift, data = self.stretch(index)
            stop = min(at + length, readable)
            if stop > at:
                out += data.data[at + shift : stop + shift]
                length -= stop - at
                at = stop
            if stop < self.ends[index]:
                break
            index += 1
        return out

    def heads(self, at: Int64s, width: int) -> tuple[Bytes, Int64s]:
        """``width`` bytes at each of many ascending positions, zero where not captured; and how many were captured."""
        out = np.zeros((len(at), width), np.uint8)
        index = np.minimum(self.end.searchsorted(at, side="right"), len(self.at) - 1)
        inside = at - self.at[index]
        there = np.minimum(np.maximum(self.rows["captured"][index] - inside, 0), width)
        there[inside < 0] = 0
        straddling = (there < width) & (at + there == self.end[index])
        offsets, numbers = self.rows["payload"][index] + inside, self._numbers[index]
        left = np.ones(len(at), np.bool_)
        for number, data in enumerate(self.datas):
            mine = places((numbers == number) & ~straddling & (there > 0) & (offsets + width <= len(data)))
            out[mine] = gathered(data, width, offsets[mine])
            left[mine] = False
        if some(there < width):
            out[np.arange(width) >= there[:, None]] = 0
        for row in places(left).tolist():
            head = self.read(int(at[row]), width)
            out[row, : len(head)] = np.frombuffer(head, np.uint8)
            there[row] = len(head)
        return out, there

    def covers(self, starts: Int64s, ends: Int64s) -> Rows:
        """Which of the ranges [start, end) have no gap."""
        before = self._seen
        if before is None:
            inside: Rows = (starts >= self.at[0]) & (ends <= self.end[-1])
            return inside
        reached = [
            before[index] + np.clip(edges - self.at[index], 0, self.end[index] - self.at[index])
            for edges in (starts, ends)
            for index in [np.maximum(np.searchsorted(self.at, edges, side="right") - 1, 0)]
        ]
        covered: Rows = reached[1] - reached[0] == ends - starts
        return covered

    def pieces(self, starts: Int64s, ends: Int64s) -> tuple[Rows, Int64s]:
        """The stretches within each of the ranges [start, end), ascending, and the index of the first one of each
        range.

        Gaps are left out.  The indices have one more entry than there are ranges.
        """
        if (single := self.single(starts, ends)) is not None:
            out = copied(self.rows[single])
            out["payload"] += starts - out["at"]
            out["captured"] = np.minimum(np.maximum(out["captured"] - (starts - out["at"]), 0), ends - starts)
            out["at"], out["length"] = starts, ends - starts
            return out, np.arange(len(starts) + 1)
        low = self.end.searchsorted(starts, side="right")
        high = self.at.searchsorted(ends, side="left")
        counts = np.where(ends > starts, np.maximum(high - low, 0), 0)
        edges = np.concatenate(([0], np.cumsum(counts)))
        owner = np.repeat(np.arange(len(starts)), counts)
        index = np.arange(int(edges[-1])) - edges[:-1][owner] + low[owner]
        out = take(self.rows, index)
        begin = np.maximum(out["at"], starts[owner])
        end = np.minimum(self.end[index], ends[owner])
        front = begin - out["at"]
        out["at"] = begin
        out["payload"] += front
        out["length"] = end - begin
        out["captured"] = np.minimum(np.maximum(out["captured"] - front, 0), end - begin)
        return out, edges


APART = 1 << 27
"""Bytes between the windows of two streams: more than any FPDU or fragment of a record can claim to have."""


class Windows(Window):
    """The windows of several streams in one, at shifted positions.

    Processing the streams one by one costs more than their bytes do.
    """

    def __init__(self, windows: Sequence[Window]) -> None:
        counts = [len(window.rows) for window in windows]
        self.owners = np.repeat(np.arange(len(windows)), counts)
        self.behind = np.cumsum(counts)
        firsts = np.array([window.at[0] for window in windows])
        reached = np.cumsum([window.limit + APART for window in windows] - firsts)
        self.shifts = np.append(0, reached[:-1]) + firsts[0] - firsts
        rows = joined([window.rows for window in windows])
        rows["at"] += self.shifts[self.owners]
        datas = {id(data): data for window in windows for data in window.datas}
        known = {key: number for number, key in enumerate(datas)}
        numbers = np.array([known[id(data)] for window in windows for data in window.datas])
        before = np.cumsum([0, *(len(window.datas) for window in windows[:-1])])
        super().__init__(rows, [*datas.values()], numbers[rows["chunk"] + before[self.owners]])


_NONE = np.zeros(0, STRETCH)


class PendingBytes:
    """Stretches in order that are not decoded.  Places are stream positions not counting markers (``MarkerGrid``)."""

    def __init__(self) -> None:
        self.grid: MarkerGrid | None = None
        """The markers; None if there are none, as far as known."""
        self._incoming: list[Rows] = []
        self._wire = self._rows = _NONE
        """The rows with markers, if the stream has any; and without them."""
        self._datas: list[Bytes] = []
        self._windows: tuple[Window, Window] | None = None

    def __len__(self) -> int:
        """Number of pending stretches; 0 if there are none."""
        return len(self._incoming) or len(self._rows)

    def take(self, chunks: list[Chunk]) -> None:
        """Append what follows in the stream."""
        for data, rows in chunks:
            if not self._datas or self._datas[-1] is not data:
                self._datas.append(data)
            rows["chunk"] = len(self._datas) - 1
            self._incoming.append(rows)

    @property
    def window(self) -> Window:
        """The pending bytes without markers."""
        return self._gathered()[0]

    @property
    def wire(self) -> Window:
        """The pending bytes as they were sent."""
        return self._gathered()[1]

    @property
    def datas(self) -> list[Bytes]:
        """The data that the rows of both windows refer to; never changed in place."""
        return self._datas.copy()

    def _gathered(self) -> tuple[Window, Window]:
        if self._incoming:
            fresh, self._incoming = joined(self._incoming), []
            self._windows = None
            if self.grid is not None:
                self._wire = joined((self._wire, fresh))
                fresh = without_markers(fresh, self.grid)
            self._rows = joined((self._rows, fresh)) if len(self._rows) else fresh
        if self._windows is None:
            datas = self.datas
            window = Window(self._rows, datas)
            self._windows = window, window if self.grid is None else Window(self._wire, datas)
        return self._windows

    def set_grid(self, grid: MarkerGrid) -> None:
        """Remove markers from all pending and later bytes; drops what precedes the first FPDU."""
        self._wire = self.window.rows
        self._rows = without_markers(self._wire, grid)
        self.grid = grid
        self._windows = None

    def in_stream(self, places: Int64s) -> Int64s:
        """Stream positions of places where FPDUs begin or end."""
        return places if self.grid is None else self.grid.start(places)

    def read_fpdu(self, start: int, ulpdu_length: int) -> bytes | None:
        """A whole FPDU as sent; None if not all of it was captured."""
        end = start + fpdu_bytes(ulpdu_length)
        if self.grid is not None:
            start, end = self.grid.start(start), self.grid.start(end)
        data = self.wire.read(start, end - start)
        return data if len(data) == end - start else None

    def forget(self, place: int) -> None:
        """Drop what precedes a place."""
        window, wire = self._gathered()
        if self.grid is None and place >= window.limit:
            self._rows, self._datas, self._windows = _NONE, [], None
            return
        self._rows = copied(window.rows[int(window.end.searchsorted(place, side="right")) :])
        used = unique(self._rows["chunk"])
        if self.grid is not None:
            start = self.grid.start(place)
            self._wire = copied(wire.rows[int(wire.end.searchsorted(start, side="right")) :])
            used = unique(np.append(used, self._wire["chunk"]))
            self._wire["chunk"] = used.searchsorted(self._wire["chunk"])
        self._datas = [self._datas[number] for number in used.tolist()]
        self._rows["chunk"] = used.searchsorted(self._rows["chunk"])
        self._windows = None


def without_markers(rows: Rows, grid: MarkerGrid) -> Rows:
    """STRETCH rows without the markers in them, at places instead of positions.

    Drops what precedes ``grid.base``.
    """
    start = rows["at"]
    owner, low, high = grid.data(np.maximum(start, grid.base), start + rows["length"])
    out = take(rows, owner)
    skipped = low - start[owner]
    out["at"] = grid.place(low)
    out["payload"] += skipped
    out["length"] = high - low
    out["captured"] = np.clip(out["captured"] - skipped, 0, high - low)
    return out
