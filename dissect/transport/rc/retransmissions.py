"""What was retransmitted on one send queue, and why.

In a conversation without trouble only two comparisons run.  Python looks at runs of requests that start before or after
the expected PSN, at NAKs, and at repeated Read responses.
IBA volume 1, 9.7.5 (acknowledgements and NAKs) and 9.9 (errors and retries).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from operator import itemgetter

import numpy as np

from ...arrays import Int64s, Rows, joined, places
from ...layers import opcodes
from ...named_tuple import NamedTuple
from ...serial import PSN
from ..connection import Gap, fill_gaps, overlapping, with_gap
from ..health import READ_REQUEST, NegativeAcknowledgement
from ..retransmissions import (
    DUPLICATE,
    LATE,
    NONE,
    SHOWN_LATE,
    OpenRetransmission,
    Retransmission,
    SenderLedger,
    Silences,
    Tally,
)
from .seen_psns import Parts, SentRequests, trimmed

MAX_NAKS = 64
MAX_LISTED_NAKS = 256
RESTART = 1 << 16
"""PSNs; a longer step cannot be outstanding requests."""
TIMEOUT_LEAST = 1_000_000
"""Nanoseconds; what is repeated sooner without a NAK was no timeout."""


class _Loss(NamedTuple):
    """What is known about a loss when a NAK announces it."""

    lost: str
    lost_packet_captured: bool | None
    frame: int | None
    time: int | None


_NOTHING_KNOWN = _Loss("unknown", None, None, None)


class _Nak(NamedTuple):
    psn: int
    waits: bool
    """It is an RNR NAK."""
    frame: int
    time: int
    loss: _Loss


class RcRetransmissions:
    """The retransmissions of one send queue.  ``head``: the next expected PSN, if known."""

    __slots__ = (
        "_acked",
        "_answered",
        "_answers",
        "_expected",
        "_gaps",
        "_naks",
        "_open",
        "_stray",
        "fatal_naks",
        "head",
        "initiator",
        "read_head",
        "requests",
        "responses",
        "rnr_count",
        "rnr_naks",
        "sent",
        "sequence_naks",
        "silences",
        "started",
    )

    def __init__(self, initiator: int, head: int | None, requests: SenderLedger, responses: SenderLedger) -> None:
        """``requests``, ``responses``: count retransmissions of the initiator and of the responder."""
        self.initiator = initiator
        self.requests, self.responses = requests, responses
        self.head = head
        """PSN after the last request."""
        self.started = False
        self.silences = Silences()
        """Pauses in the initiator's requests."""
        self.read_head: int | None = None
        """PSN after the last Read response."""
        self.sequence_naks = self.rnr_count = 0
        self.rnr_naks: tuple[NegativeAcknowledgement, ...] = ()
        self.fatal_naks: tuple[NegativeAcknowledgement, ...] = ()
        self._gaps: Sequence[Gap] = ()
        self._naks: dict[int, _Nak] | None = None
        self._open: OpenRetransmission | None = None
        self._expected: int | None = None
        """The PSN with which the open retransmission would continue."""
        self._stray: int | None = None
        self.sent = SentRequests()
        """The latest requests."""
        self._answers: Parts = ()
        """SEEN rows of the latest responses."""
        self._acked = -1
        """The highest PSN that was acknowledged."""
        self._answered = False
        """A response was captured; without any, missing NAKs mean nothing."""

    @property
    def answered_up_to(self) -> int | None:
        """The highest PSN of a response; None for none."""
        return max(int(part["psn"].max()) for part in self._answers) if self._answers else None

    def forget(self) -> None:
        """Drop what is kept for repetitions: no packet will be retransmitted."""
        self.sent.forget()
        self._answers = ()

    def feed(
        self,
        requests: Rows | None,
        responses: Rows | None,
        syndromes: Rows | None,
        reused: Collection[int] = (),
    ) -> None:
        """Take the SEEN rows of one batch; ``syndromes``: of ``responses``, 0 without an AETH.

        ``reused``: frames of new requests, no retransmissions, that have the PSN of an earlier one.
        """
        events: list[tuple[int, int, Int64s | range]] = []
        start = self.head
        if requests is not None:
            breaks = places(requests["psn"][1:] != requests["end"][:-1]) + 1
            new = np.isin(requests["frame"], list(reused)) if reused else None
            if new is not None:
                breaks = np.union1d(breaks, places(np.diff(new)) + 1)
            self.silences.note(requests["frame"], requests["time"])
            if len(breaks) or start is None or int(requests["psn"][0]) != start:
                edges = [0, *breaks.tolist()]
                frames = requests["frame"][edges].tolist()
                for first, behind, frame in zip(edges, [*edges[1:], len(requests)], frames, strict=True):
                    events.append((frame, 3 if new is not None and new[first] else 0, range(first, behind)))
            else:
                events.append((int(requests["frame"][0]), 0, range(len(requests))))
        if responses is not None and syndromes is not None:
            self._answered = True
            self._answers += (responses,)
            acknowledging = responses["psn"][responses["end"] > responses["psn"]]
            self._acked = max(self._acked, int(acknowledging.max(initial=-1)))
            for index in places(syndromes >> 5 & 3).tolist():
                events.append((int(responses["frame"][index]), 1, range(index, index + 1)))
            for old in self._old_responses(responses, requests):
                events.append((int(responses["frame"][old[0]]), 2, old))
        if len(events) > 1:
            events.sort(key=itemgetter(0, 1))
        for _, kind, run in events:
            if kind == 0:
                assert requests is not None
                self._run(requests, run[0], run[-1] + 1)
            elif kind == 3:
                assert requests is not None
                self.head = max(self.head or 0, int(requests["end"][run[-1]]))
                self._open = None
            elif responses is not None and kind == 1:
                assert syndromes is not None
                self._negative(responses, run[0], int(syndromes[run[0]]))
            elif responses is not None and not isinstance(run, range):
                self._late_responses(responses, run)
        self._answers = trimmed(self._answers, self._acked)

    def passed(self, head: int | None, answered: bool, read_head: int | None) -> None:
        """Note requests that came in order, up to the PSN ``head``; ``answered``: responses came as well, to Reads up
        to ``read_head``."""
        if head is not None:
            self.started = True
            self._open = self._expected = None
            self.head = head
        if read_head is not None:
            self.read_head = read_head
        self._answered = self._answered or answered

    def remember(self, responses: Rows) -> None:
        """Keep these responses, SEEN rows, to look for retransmissions beside them."""
        self._acked = max(self._acked, responses["psn"].item(-1))
        self._answers = trimmed((*self._answers, responses), self._acked)

    def _old_responses(self, responses: Rows, requests: Rows | None) -> list[Int64s]:
        """Read responses that are not beyond all earlier ones, in runs that no request interrupts."""
        reading = places(opcodes.IS_READ_RESPONSE[responses["opcode"]])
        if not len(reading):
            return []
        psns = responses["psn"][reading]
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
        if requests is not None:
            breaks |= np.diff(requests["frame"].searchsorted(responses["frame"][reading[old]])) != 0
        return np.split(reading[old], places(breaks) + 1)

    # Requests

    def _run(self, rows: Rows, a: int, b: int) -> None:
        """Take consecutive requests."""
        start, end = int(rows["psn"][a]), int(rows["end"][b - 1])
        if self.head is None or (not self.started and not 0 <= start - self.head < RESTART):
            # Earlier requests may have been sent, and lost, before the capture began.
            self._add_gap(start - RESTART, start, rows, a)
            self.head = start
        self.started = True
        if abs(start - self.head) > RESTART:
            if start != self._stray:
                self._stray = end
                return
            self.head = start
            self._gaps, self._naks = (), None
        if start >= self.head:
            if start > self.head:
                self._add_gap(self.head, start, rows, a)
            self._open = self._expected = None
            self.head = end
            return
        c = a + int(rows["psn"][a:b].searchsorted(self.head))
        self._old(rows, a, c, maybe_more=c == len(rows))
        self._expected = end if c == b else None
        self.head = max(self.head, end)

    def _add_gap(self, start: int, end: int, rows: Rows, a: int) -> None:
        """Note a gap before the packet at ``a``."""
        self._gaps = with_gap(self._gaps, Gap(start, end, int(rows["frame"][a]), int(rows["time"][a])))

    def _old(self, rows: Rows, a: int, c: int, maybe_more: bool) -> None:
        """Take requests [a, c) that were sent before, or come late."""
        psns, lengths, times = (rows[name][a:c].tolist() for name in ("psn", "length", "time"))
        start, stop = psns[0], int(rows["end"][c - 1])
        gaps = overlapping(self._gaps, start, stop)
        fresh = [False] * (c - a)
        for known in gaps:
            inside = slice(bisect_left(psns, known.start), bisect_left(psns, known.end))
            fresh[inside] = [True] * len(fresh[inside])
        gap = next((known for known in gaps if known.start <= start < known.end), None)
        retransmission = self._open
        if retransmission is None or start != self._expected:
            nak = self._complaint(start, stop, maybe_more)
            retransmission = self._open = self._begin(rows, a, gap, nak)
            retransmission.end = stop
            self.requests.begin(retransmission)
        last_frame = int(rows["frame"][c - 1])
        copy = (c - a == 1 and start <= retransmission.start) or stop < (self.head or 0)
        copy = copy or (retransmission.cause == DUPLICATE and self._numbered_alike(psns[-1], last_frame))
        self.requests.grow(retransmission, stop, fresh, lengths, last_frame, times, copy)
        if any(fresh):
            self._gaps = fill_gaps(self._gaps, start, stop)

    def _complaint(self, start: int, stop: int, maybe_more: bool) -> _Nak | None:
        """The NAK that retransmitted requests answer."""
        limit = (self.head or 0) if maybe_more else stop
        psn_of_nak = min((psn for psn in self._naks or () if start <= psn < limit), default=None)
        if psn_of_nak is None or self._naks is None:
            return None
        nak = self._naks[psn_of_nak]
        self._naks = None
        return nak

    def _begin(self, rows: Rows, a: int, gap: Gap | None, nak: _Nak | None) -> OpenRetransmission:
        """Open a retransmission: why the packet at ``a`` was retransmitted, as far as the capture shows."""
        start, frame, time = int(rows["psn"][a]), int(rows["frame"][a]), int(rows["time"][a])
        if nak is not None:
            cause = "RNR NAK" if nak.waits else "NAK sequence error"
            return _opened(start, cause, nak.loss, nak, frame, time)
        if gap is not None:
            late = not self._timed_out(gap.time, time)
            late = late or (time - gap.time < SHOWN_LATE and any(self._responded(start, 0, frame)))
            loss, cause = _Loss("request", False, gap.frame, gap.time), LATE if late else "timeout"
            return _opened(start, cause, loss, None, frame, time)
        before = self.sent.sighting(start, frame)
        if before is None:
            return _opened(start, "unknown", _NOTHING_KNOWN, None, frame, time)
        before_psn, before_frame, before_time = (int(before[name]) for name in ("psn", "frame", "time"))
        got, beyond = self._responded(start, before_frame, frame)
        timed_out = self._timed_out(before_time, time)
        soon = time - before_time < TIMEOUT_LEAST
        copied = soon and not self._numbered_apart(start, frame, before)
        cause = "timeout" if timed_out else DUPLICATE if copied else "unknown"
        if int(rows["opcode"][a]) == READ_REQUEST:
            if beyond is not None and (got is None or start > before_psn or timed_out):
                first = got or beyond
                loss = _Loss("response", got is not None, *first)
                return _opened(start, "implied NAK", loss, None, frame, time)
            loss = _Loss("unknown", None, before_frame, before_time)
            if got is not None:
                loss = _Loss("response", True, *got)
        elif got or beyond:
            loss = _Loss("acknowledgement", True, *(got or beyond or (None, None)))
        elif soon:
            loss = _NOTHING_KNOWN
        elif self._answered:
            loss = _Loss("request", True, before_frame, before_time)
        else:
            loss = _Loss("unknown", None, before_frame, before_time)
        if cause == DUPLICATE and start > before_psn:
            cause = "unknown"  # A Read that resumes is not a copy made by the network.
        elif cause == DUPLICATE:
            loss = _Loss("nothing", True, before_frame, before_time)
        return _opened(start, cause, loss, None, frame, time)

    def _numbered_apart(self, psn: int, frame: int, before: Rows) -> bool:
        """Whether the sender gave the packet another IP identification than the earlier one: then it is no copy."""
        mine = self.sent.sighting(psn, frame + 1)
        assert mine is not None
        one, other = int(mine["identification"]), int(before["identification"])
        return one != other and -1 not in (one, other)

    def _numbered_alike(self, psn: int, frame: int) -> bool:
        """Whether the packet has the earlier one's IP identification: a retransmission would have another."""
        mine, before = (self.sent.sighting(psn, until) for until in (frame + 1, frame))
        assert mine is not None
        return before is not None and 0 < int(before["identification"]) == int(mine["identification"])

    def _timed_out(self, since: int, time: int) -> bool:
        return self._answered and time - since >= TIMEOUT_LEAST

    def _responded(self, psn: int, after: int, before: int) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """``(frame, time)`` of the first response to ``psn``, and of the first to a later PSN, between two frames."""
        if not self._answers:
            return None, None
        answers = self._earlier_answers()
        # A search in a column of rows would copy all of it.
        first, behind = (bisect_left(answers["frame"], frame) for frame in (after + 1, before))
        between = answers[first:behind]
        psns = between["psn"]
        later = places((psns >= psn) & (between["end"] > psns))
        edges = [
            (int(between["frame"][at[0]]), int(between["time"][at[0]])) if len(at) else None
            for at in (later[psns[later] == psn], later[psns[later] > psn])
        ]
        return edges[0], edges[1]

    def _earlier_answers(self) -> Rows:
        """The answers of earlier batches as one table."""
        self._answers = (joined(self._answers),)
        return self._answers[0]

    # Responses

    def _negative(self, rows: Rows, index: int, syndrome: int) -> None:
        """A NAK or RNR NAK (IBA 9.7.5.2)."""
        psn, frame, time = int(rows["psn"][index]), int(rows["frame"][index]), int(rows["time"][index])
        kind, code = opcodes.syndrome_kind(syndrome), syndrome & 0x1F
        name = opcodes.syndrome_name(syndrome)
        waits = kind == opcodes.RNR_NAK
        if waits:
            self.rnr_count += 1
            timer = round(opcodes.RNR_TIMER_MS[code] * 1e6)
            if len(self.rnr_naks) < MAX_LISTED_NAKS:
                self.rnr_naks += (NegativeAcknowledgement(frame, time, PSN.wrap(psn), name, timer),)
        elif kind != opcodes.NAK:
            return
        elif code:
            if len(self.fatal_naks) < MAX_LISTED_NAKS:
                self.fatal_naks += (NegativeAcknowledgement(frame, time, PSN.wrap(psn), name),)
            return
        else:
            self.sequence_naks += 1
        if self._naks is None:
            self._naks = {}
        if psn not in self._naks and len(self._naks) < MAX_NAKS:
            self._naks[psn] = _Nak(psn, waits, frame, time, self._complained_of(psn, frame, waits))

    def _complained_of(self, psn: int, frame: int, waits: bool) -> _Loss:
        lost = "nothing" if waits else "request"
        gap = next((hole for hole in self._gaps if hole.start <= psn < hole.end), None)
        if gap is not None:
            return _Loss(lost, False, gap.frame, gap.time)
        before = self.sent.sighting(psn, frame)
        if before is not None:
            return _Loss(lost, True, int(before["frame"]), int(before["time"]))
        return _Loss(lost, None, None, None)

    def _late_responses(self, rows: Rows, run: Int64s) -> None:
        """Take Read responses that were retransmitted, or come late."""
        psns, lengths, times = (rows[name][run] for name in ("psn", "length", "time"))
        first, frame = int(psns[0]), int(rows["frame"][run[0]])
        answers = self._earlier_answers()
        known = np.isin(psns, answers["psn"][opcodes.IS_READ_RESPONSE[answers["opcode"]] & (answers["frame"] < frame)])
        asked = next(
            (
                request
                for request in reversed(self.requests.recent)
                if request.start <= first < request.end and (request.frame or 0) <= frame and request.cause != LATE
            ),
            None,
        )
        cause = None
        if asked is not None:
            cause = asked.cause
            asked.last_frame, asked.last_time = int(rows["frame"][run[-1]]), int(rows["time"][run[-1]])
            asked.answers += ((frame, asked.last_frame, first, int(psns[-1]) + 1),)
        seen, new = int(np.count_nonzero(known)), int(np.count_nonzero(~known))
        if seen:
            self.responses.add(cause or DUPLICATE, Tally(seen, int(lengths[known].sum())), NONE, times[known].tolist())
        if new:
            self.responses.add(cause or LATE, NONE, Tally(new, int(lengths[~known].sum())), times[~known].tolist())

    # What became of it

    @property
    def untroubled(self) -> bool:
        """Whether nothing was retransmitted, and no NAK waits for it."""
        return not self._naks and not self.requests

    @property
    def unheeded(self) -> list[OpenRetransmission]:
        """NAKs that were not followed by a retransmission."""
        return [
            _opened(nak.psn, "RNR NAK" if nak.waits else "NAK sequence error", nak.loss, nak, None, None)
            for nak in (self._naks or {}).values()
        ]

    def nouns(self) -> list[Retransmission]:
        """The latest retransmissions, and NAKs without one."""
        return [
            retransmission.noun(self.initiator, PSN.wrap(retransmission.start))
            for retransmission in (*self.requests, *self.unheeded)
        ]


def _opened(
    psn: int, cause: str, loss: _Loss, nak: _Nak | None, frame: int | None, time: int | None
) -> OpenRetransmission:
    nak_frame, nak_time = (nak.frame, nak.time) if nak else (None, None)
    end = psn if frame is not None else psn + 1
    return OpenRetransmission(psn, end, cause, *loss, nak_frame, nak_time, frame, time)
