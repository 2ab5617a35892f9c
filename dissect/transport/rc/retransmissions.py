"""What was sent again on one send queue, and why.

In a conversation without trouble nothing here runs but two comparisons.  Python looks at runs of requests that start
behind or beyond the expected PSN, at NAKs, and at Read responses seen before.
IBA volume 1, 9.7.5 (acknowledgements and NAKs) and 9.9 (errors and retries).
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from ...arrays import Int64s, Rows, places, some
from ...layers import opcodes
from ...serial import PSN
from ..gaps import Hole, add_hole, fill_holes
from ..health import NONE, Episode, Refusal, Tally

KEPT = 2048
"""Packets behind the last one among which an earlier transmission is looked for."""
MAX_EPISODES = 4096
MAX_NAKS = 64
MAX_REFUSALS = 256
RESTART = 1 << 16
"""A step of more PSNs than can be outstanding."""
TIMEOUT_LEAST = 1_000_000
"""Nanoseconds; what comes again sooner, and without being asked for, was no timeout."""

_READ_REQUEST = 0x0C
_COPY = "duplicate"
_LATE = "late"
"""Came late, but nothing shows that it was sent twice."""


class Columns(NamedTuple):
    """Packets of one send queue, one way, in capture order."""

    psns: Int64s
    """Unwrapped."""
    ends: Int64s
    """PSN behind what the packet takes: a Read request takes as many as its response has packets."""
    times: Int64s
    frames: Int64s
    lengths: Int64s
    opcodes: Rows

    @property
    def last(self) -> int:
        return len(self.psns) - 1


class _History:
    """The last packets that went one way."""

    def __init__(self) -> None:
        self._parts: deque[Columns] = deque()
        self._count = 0
        self._joined: Columns | None = None

    def add(self, columns: Columns) -> None:
        self._parts.append(columns)
        self._count += len(columns.psns)
        self._joined = None

    def trim(self) -> None:
        while self._parts and self._count - len(self._parts[0].psns) >= KEPT:
            self._count -= len(self._parts.popleft().psns)
        surplus = self._count - 2 * KEPT
        if surplus > 0:
            self._parts[0] = Columns(*(column[surplus:].copy() for column in self._parts[0]))
            self._count -= surplus
        self._joined = None

    def all(self) -> Columns | None:
        if self._joined is None and self._parts:
            self._joined = Columns(*(np.concatenate(column) for column in zip(*self._parts, strict=True)))
        return self._joined


class _Loss(NamedTuple):
    """What is known of a loss when somebody complains of it."""

    lost: str
    seen_before: bool | None
    frame: int | None
    time: int | None


_NOTHING_KNOWN = _Loss("unknown", None, None, None)


class _Nak(NamedTuple):
    psn: int
    waits: bool
    """RNR."""
    frame: int
    time: int
    loss: _Loss


@dataclass(slots=True, eq=False)
class _Episode:
    """One under way."""

    psn: int
    end: int
    cause: str
    loss: _Loss
    nak: _Nak | None
    frame: int | None
    time: int | None
    repeated: Tally = NONE
    recovered: Tally = NONE

    def noun(self, initiator: int) -> Episode:
        total = self.repeated + self.recovered
        nak = self.nak
        return Episode(
            initiator,
            PSN.wrap(self.psn),
            PSN.wrap(self.psn) + self.end - self.psn,
            self.cause,
            self.loss.lost,
            self.loss.seen_before,
            self.loss.frame,
            self.loss.time,
            nak.frame if nak else None,
            nak.time if nak else None,
            self.frame,
            self.time,
            total.packets,
            total.bytes,
        )


class Repeats:
    """The retransmissions of one send queue.  ``head``: the PSN expected first, where it is known."""

    def __init__(self, initiator: int, head: int | None) -> None:
        self.initiator = initiator
        self.head = head
        """PSN behind the last request."""
        self.started = False
        self.read_head: int | None = None
        """PSN behind the last Read response."""
        self.sequence_naks = self.rnr_count = self.reordered = 0
        self.rnr_naks: list[Refusal] = []
        self.fatal_naks: list[Refusal] = []
        self.episodes: deque[_Episode] = deque(maxlen=MAX_EPISODES)
        self.counts: Counter[str] = Counter()
        """Closed episodes by cause."""
        self.repeated: dict[str, Tally] = {}
        """Requests seen again, by cause; of closed episodes."""
        self.recovered: dict[str, Tally] = {}
        self.responses_repeated: dict[str, Tally] = {}
        self.responses_recovered: dict[str, Tally] = {}
        self.responses_reordered = 0
        self._holes: list[Hole] = []
        self._naks: dict[int, _Nak] = {}
        self._open: _Episode | None = None
        self._expected: int | None = None
        """Where the open episode goes on."""
        self._stray: int | None = None
        self._sent, self._answers = _History(), _History()
        self._answered = False
        """A response was captured; without any, no NAK can be expected to be."""

    def forget(self) -> None:
        """No packet will be repeated."""
        self._sent, self._answers = _History(), _History()

    def feed(self, requests: Columns | None, responses: Columns | None, syndromes: Rows | None) -> None:
        """Take the packets of one batch; ``syndromes`` are those of ``responses``, 0 where one has no AETH."""
        events: list[tuple[int, int, Int64s]] = []
        start = self.head
        if requests is not None:
            breaks = places(requests.psns[1:] != requests.ends[:-1]) + 1
            self._sent.add(requests)
            if len(breaks) or start is None or int(requests.psns[0]) != start:
                for run in np.split(np.arange(len(requests.psns)), breaks):
                    events.append((int(requests.frames[run[0]]), 0, run))
            else:
                events.append((int(requests.frames[0]), 0, np.array([0, requests.last])))
        if responses is not None and syndromes is not None:
            self._answered = True
            self._answers.add(responses)
            for index in places(syndromes >> 5 & 3).tolist():
                events.append((int(responses.frames[index]), 1, np.array([index])))
            for run in self._old_responses(responses):
                events.append((int(responses.frames[run[0]]), 2, run))
        if len(events) > 1:
            events.sort(key=itemgetter(0, 1))
        for _, kind, run in events:
            if kind == 0:
                assert requests is not None
                self._run(requests, int(run[0]), int(run[-1]) + 1)
            elif responses is not None and kind == 1:
                assert syndromes is not None
                self._negative(responses, int(run[0]), int(syndromes[run[0]]))
            elif responses is not None:
                self._responses_again(responses, run)
        self._sent.trim()
        self._answers.trim()

    def _old_responses(self, responses: Columns) -> list[Int64s]:
        """Read responses that are not beyond all before them, in runs."""
        reading = places(opcodes.IS_READ_RESPONSE[responses.opcodes])
        if not len(reading):
            return []
        psns = responses.psns[reading]
        furthest = np.maximum.accumulate(psns)
        before = np.empty_like(furthest)
        before[1:] = furthest[:-1]
        before[0] = -1 << 62 if self.read_head is None else self.read_head - 1
        np.maximum(before, before[0], out=before)
        self.read_head = max(int(furthest[-1]), int(before[0])) + 1
        old = places(psns <= before)
        if not len(old):
            return []
        breaks = (np.diff(psns[old]) != 1) | (np.diff(old) != 1)
        return np.split(reading[old], places(breaks) + 1)

    # Requests

    def _run(self, rows: Columns, a: int, b: int) -> None:
        """Requests without a gap between them."""
        start, end = int(rows.psns[a]), int(rows.ends[b - 1])
        if self.head is None or (not self.started and not 0 <= start - self.head < RESTART):
            self.head = start
        self.started = True
        if abs(start - self.head) > RESTART:
            if start != self._stray:
                self._stray = end
                return
            self.head = start
            self._holes.clear()
            self._naks.clear()
        if start >= self.head:
            if start > self.head:
                add_hole(self._holes, Hole(self.head, start, int(rows.frames[a]), int(rows.times[a])))
            if self._open is not None:
                self._close()
            self.head = end
            return
        c = a + int(rows.psns[a:b].searchsorted(self.head))
        self._old(rows, a, c, maybe_more=c == len(rows.psns))
        self._expected = end if c == b else None
        self.head = max(self.head, end)

    def _old(self, rows: Columns, a: int, c: int, maybe_more: bool) -> None:
        """Requests [a, c) that were sent before, or come late."""
        psns = rows.psns[a:c]
        start, stop = int(psns[0]), int(rows.ends[c - 1])
        fresh = np.zeros(c - a, np.bool_)
        hole = None
        for one in self._holes:
            if one.end <= start or one.start >= stop:
                continue
            inside = (psns >= one.start) & (psns < one.end)
            if some(inside):
                fresh |= inside
                if one.start <= start < one.end:
                    hole = one
        episode = self._open
        if episode is None or start != self._expected:
            self._close()
            nak = self._complaint(start, stop, maybe_more)
            episode = self._begin(rows, a, hole, nak)
            episode.end = stop
            self.episodes.append(episode)
            self._open = episode
        if episode.cause == _LATE and not fresh.all():
            episode.cause = "unknown"
        if episode.cause == _COPY and (c - a > 1 or start > episode.psn) and stop >= (self.head or 0):
            episode.cause = "unknown"
        episode.end = max(episode.end, stop)
        lengths = rows.lengths[a:c]
        new = int(np.count_nonzero(fresh))
        new_bytes = int(lengths[fresh].sum())
        episode.recovered += Tally(new, new_bytes)
        episode.repeated += Tally(c - a - new, int(lengths.sum()) - new_bytes)
        if new:
            self._holes = fill_holes(self._holes, start, stop)

    def _complaint(self, start: int, stop: int, maybe_more: bool) -> _Nak | None:
        """The NAK that a run of repetitions answers."""
        limit = (self.head or 0) if maybe_more else stop
        found = min((psn for psn in self._naks if start <= psn < limit), default=None)
        if found is None:
            return None
        nak = self._naks[found]
        self._naks.clear()
        return nak

    def _begin(self, rows: Columns, a: int, hole: Hole | None, nak: _Nak | None) -> _Episode:
        """Why the packet at ``a`` comes again, as far as the capture shows."""
        start, frame, time = int(rows.psns[a]), int(rows.frames[a]), int(rows.times[a])
        if nak is not None:
            cause = "RNR NAK" if nak.waits else "NAK sequence error"
            return _Episode(start, start, cause, nak.loss, nak, frame, time)
        if hole is not None:
            loss = _Loss("request", False, hole.frame, hole.time)
            cause = "timeout" if self._timed_out(hole.time, time) else _LATE
            return _Episode(start, start, cause, loss, None, frame, time)
        before = self._sighting(start, frame)
        if before is None:
            return _Episode(start, start, "unknown", _NOTHING_KNOWN, None, frame, time)
        before_psn, before_frame, before_time = before
        got, beyond = self._responded(start, before_frame, frame)
        timed_out = self._timed_out(before_time, time)
        cause = "timeout" if timed_out else _COPY
        if int(rows.opcodes[a]) == _READ_REQUEST:
            if beyond is not None and (got is None or start > before_psn or timed_out):
                first = got or beyond
                loss = _Loss("response", got is not None, *first)
                return _Episode(start, start, "implied NAK", loss, None, frame, time)
            loss = _Loss("unknown", None, before_frame, before_time)
            if got is not None:
                loss = _Loss("response", True, *got)
        elif got or beyond:
            loss = _Loss("acknowledgement", True, *(got or beyond or (None, None)))
        else:
            loss = _Loss("request", True, before_frame, before_time)
        if cause == _COPY and start > before_psn:
            cause = "unknown"  # a Read that resumes is none that the network copied
        elif cause == _COPY:
            loss = _Loss("nothing", True, before_frame, before_time)
        return _Episode(start, start, cause, loss, None, frame, time)

    def _timed_out(self, since: int, time: int) -> bool:
        return self._answered and time - since >= TIMEOUT_LEAST

    def _sighting(self, psn: int, frame: int) -> tuple[int, int, int] | None:
        """``(psn, frame, time)`` of the last packet before ``frame`` that took this PSN."""
        sent = self._sent.all()
        if sent is None:
            return None
        where = places((sent.psns <= psn) & (sent.ends > psn) & (sent.frames < frame))
        if not len(where):
            return None
        last = int(where[-1])
        return int(sent.psns[last]), int(sent.frames[last]), int(sent.times[last])

    def _responded(self, psn: int, after: int, before: int) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """``(frame, time)`` of the first response to ``psn``, and of the first to a later PSN, between two frames."""
        answers = self._answers.all()
        if answers is None:
            return None, None
        between = (answers.frames > after) & (answers.frames < before)
        found = []
        for matching in (answers.psns == psn, answers.psns > psn):
            where = places(between & matching & (answers.ends > answers.psns))
            at = int(where[0]) if len(where) else None
            found.append(None if at is None else (int(answers.frames[at]), int(answers.times[at])))
        return found[0], found[1]

    def _close(self) -> None:
        """The open episode is over: count it."""
        episode, self._open, self._expected = self._open, None, None
        if episode is not None:
            self._count(episode, self.counts, self.repeated, self.recovered)
            if episode.cause == _LATE:
                self.reordered += episode.recovered.packets
                self.episodes.remove(episode)

    @staticmethod
    def _count(
        episode: _Episode, counts: Counter[str], repeated: dict[str, Tally], recovered: dict[str, Tally]
    ) -> None:
        cause = episode.cause
        if cause == _LATE:
            return
        counts[cause] += 1
        repeated[cause] = repeated.get(cause, NONE) + episode.repeated
        recovered[cause] = recovered.get(cause, NONE) + episode.recovered

    # Responses

    def _negative(self, rows: Columns, index: int, syndrome: int) -> None:
        """A NAK or RNR NAK (IBA 9.7.5.2)."""
        psn, frame, time = int(rows.psns[index]), int(rows.frames[index]), int(rows.times[index])
        kind, code = opcodes.syndrome_kind(syndrome), syndrome & 0x1F
        name = opcodes.syndrome_name(syndrome)
        waits = kind == opcodes.RNR_NAK
        if waits:
            self.rnr_count += 1
            timer = round(opcodes.RNR_TIMER_MS[code] * 1e6)
            if len(self.rnr_naks) < MAX_REFUSALS:
                self.rnr_naks.append(Refusal(frame, time, PSN.wrap(psn), name, timer))
        elif kind != opcodes.NAK:
            return
        elif code:
            if len(self.fatal_naks) < MAX_REFUSALS:
                self.fatal_naks.append(Refusal(frame, time, PSN.wrap(psn), name))
            return
        else:
            self.sequence_naks += 1
        if psn not in self._naks and len(self._naks) < MAX_NAKS:
            self._naks[psn] = _Nak(psn, waits, frame, time, self._complained_of(psn, frame, waits))

    def _complained_of(self, psn: int, frame: int, waits: bool) -> _Loss:
        lost = "nothing" if waits else "request"
        hole = next((one for one in self._holes if one.start <= psn < one.end), None)
        if hole is not None:
            return _Loss(lost, False, hole.frame, hole.time)
        before = self._sighting(psn, frame)
        if before is not None:
            return _Loss(lost, True, before[1], before[2])
        return _Loss(lost, None, None, None)

    def _responses_again(self, rows: Columns, run: Int64s) -> None:
        """Read responses seen before, or late."""
        psns, lengths = rows.psns[run], rows.lengths[run]
        first, frame = int(psns[0]), int(rows.frames[run[0]])
        answers = self._answers.all()
        assert answers is not None
        reading = opcodes.IS_READ_RESPONSE[answers.opcodes] & (answers.frames < frame)
        known = np.isin(psns, answers.psns[reading])
        asked = next(
            (one for one in reversed(self.episodes) if one.psn <= first < one.end and (one.frame or 0) <= frame), None
        )
        seen, new = int(np.count_nonzero(known)), int(np.count_nonzero(~known))
        cause = asked.cause if asked else _COPY
        if seen:
            tally = Tally(seen, int(lengths[known].sum()))
            self.responses_repeated[cause] = self.responses_repeated.get(cause, NONE) + tally
        if new and asked:
            tally = Tally(new, int(lengths[~known].sum()))
            self.responses_recovered[cause] = self.responses_recovered.get(cause, NONE) + tally
        elif new:
            self.responses_reordered += new

    # What became of it

    def snapshot(self) -> tuple[Counter[str], dict[str, Tally], dict[str, Tally], list[_Episode]]:
        """Episodes by cause, requests seen again and recovered by cause, the episodes: the open one included."""
        counts, repeated, recovered = Counter(self.counts), dict(self.repeated), dict(self.recovered)
        if self._open is not None:
            self._count(self._open, counts, repeated, recovered)
        listed = [one for one in self.episodes if one.cause != _LATE]
        for nak in self._naks.values():
            cause = "RNR NAK" if nak.waits else "NAK sequence error"
            listed.append(_Episode(nak.psn, nak.psn + 1, cause, nak.loss, nak, None, None))
            counts[cause] += 1
        return counts, repeated, recovered, listed

    @property
    def complaining(self) -> bool:
        """There are episodes to charge RPCs for."""
        return bool(self.episodes)
