"""The health of one Reliable Connection, evaluated in columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cache

import numpy as np

from ...arrays import Int64s, Rows, joined, some
from ...layers import opcodes
from ...named_tuple import NamedTuple
from ...percentiles import NO_SAMPLES, added
from ...serial import PSN
from ...units import duration
from ..connection import ENDS, Connection
from ..health import (
    NOTHING_COUNTED,
    Acknowledgements,
    DirectionHealth,
    TransportHealth,
    capture_point,
    read_depth,
    recovery_delays,
    seen_rows,
)
from ..retransmissions import SILENCE, Recoveries, Retransmission, Silences, Timer
from .reads import spans
from .retransmissions import RcRetransmissions

UNANSWERED = 1_000_000_000
"""Nanoseconds without an answer that count as silence."""
OPEN = "open at the end of the capture"


class Initiated(NamedTuple):
    """The requests of one endpoint, and how they were answered."""

    queue: RcRetransmissions
    answers: Acknowledgements
    responder_last_time: int | None
    """Nanoseconds; time of the last packet of the other endpoint."""


def ending(connection: Connection, initiated: Sequence[Initiated], now: int | None) -> str:
    """Why the connection ended: DREQ, REJ with its reason, a fatal NAK, silence; or that it did not end.

    ``initiated``: by endpoint.  ``now``: nanoseconds, the end of the capture.
    """
    ended = connection.ended_by
    if ended.startswith("REJ"):
        return ended
    naks = [(nak, 1 - direction.queue.initiator) for direction in initiated for nak in direction.queue.fatal_naks]
    if naks:
        nak, sender = min(naks)
        fatal = f"fatal {nak.name} from the {ENDS[sender]} in frame {nak.frame}"
        return f"{fatal}, then {ended}" if ended else fatal
    silent = _silence(initiated, connection.ended_time or now)
    if ended:
        return f"{ended}, after {silent}" if silent else ended
    return f"silence: {silent}" if silent else OPEN


def _silence(initiated: Sequence[Initiated], now: int | None) -> str:
    """Describes requests that stayed unanswered although there was time; '' for none."""
    if now is None:
        return ""
    for queue, answers, answered in initiated:
        since = answers.waiting_since
        if since is None or answered is None or not answers.unanswered:
            continue
        waited = now - max(since, answered)
        first = answers.first_unanswered
        starts = [request.start for request in queue.requests if request.end > first]
        retries = len(starts)
        # A requester without an answer begins again at its first unanswered request.  If it did not, and nothing was
        # ever acknowledged, the capture lacks the acknowledgements.
        if waited >= UNANSWERED and (answers.acks or min(starts, default=first + 1) <= first):
            attempts = "retransmission" if retries == 1 else "retransmissions"
            tried = f"; {retries} {attempts}" if retries else NOT_RETRANSMITTED
            plural = "" if answers.unanswered == 1 else "s"
            return (
                f"{answers.unanswered} request{plural} of the {ENDS[queue.initiator]} unanswered"
                f" for {waited / 1e9:.3g} s{tried}"
            )
    return ""


NOT_RETRANSMITTED = "; none of them was retransmitted"
PAUSE = 100_000_000
"""Nanoseconds; an endpoint that sends no payload for longer than this is not active."""
TOGETHER = 4096
"""Packets that are counted together."""
MARKED_KEPT = 4096
MAX_FAILURES = 1000
CONGESTION_EXPERIENCED = 3
"""IP ECN field (RFC 3168, 5)."""


_NONE = np.empty(0, np.int64)


class _Batch(NamedTuple):
    """One send queue's packets of a batch."""

    requests: Rows | None
    responses: Rows | None
    head: int | None
    """PSN expected before the batch."""
    furthest: int | None
    """PSN expected after the batch; None as long as no request was captured."""


class _Complaints:
    """Congestion and damage in what one endpoint sent; most endpoints have none."""

    __slots__ = ("cnp_delay", "cnp_gap", "cnps", "failure_count", "failures", "last_cnp", "marked", "marks", "notices")

    def __init__(self) -> None:
        self.marked = self.cnps = 0
        self.marks = _NONE
        """Times of the latest marked packets."""
        self.notices = _NONE
        """Times of CNPs not compared with the marks so far."""
        self.last_cnp: int | None = None
        self.cnp_gap = self.cnp_delay = NO_SAMPLES
        self.failures: tuple[tuple[int, int, int], ...] = ()
        """``(frame, PSN, time)`` of packets with a wrong invariant CRC."""
        self.failure_count = 0


_NO_COMPLAINTS = _Complaints()
"""Shared by endpoints without complaints; must not be changed."""


class _EndpointCounts:
    """What one endpoint sent, apart from the order of its packets."""

    __slots__ = ("active", "bytes", "complaints", "last_payload", "last_time", "packets")

    def __init__(self) -> None:
        self.packets = self.bytes = self.active = 0
        self.last_payload: int | None = None
        self.last_time: int | None = None
        self.complaints = _NO_COMPLAINTS
        """Read only, see ``own_complaints``."""

    @property
    def own_complaints(self) -> _Complaints:
        """The complaints of this endpoint, to change."""
        if self.complaints is _NO_COMPLAINTS:
            self.complaints = _Complaints()
        return self.complaints

    def feed(self, rows: Rows) -> None:
        """Count packets and marks as they come; ``count`` adds times and lengths later, for many at once."""
        self.packets += len(rows)
        self.last_time = int(rows["time"][-1])
        marked = rows["ecn"] == CONGESTION_EXPERIENCED
        if some(marked):
            noted = self.own_complaints
            noted.marked += int(np.count_nonzero(marked))
            noted.marks = np.concatenate((noted.marks, rows["time"][marked]))[-MARKED_KEPT:]

    def passed(self, packets: int, time: int) -> None:
        """Count packets without a mark, the last of them at ``time``."""
        self.packets += packets
        self.last_time = time

    def carried(self, length: int, first: int, last: int, active: int) -> None:
        """Count the payload of packets that ``passed`` counted: bytes, and the times of the first and last.

        ``active``: nanoseconds between ``first`` and ``last`` without pauses.
        """
        self.bytes += length
        self.active += active
        if self.last_payload is not None and 0 <= first - self.last_payload <= PAUSE:
            self.active += first - self.last_payload
        self.last_payload = last

    def count(self, parts: Sequence[Rows | None]) -> None:
        """Count bytes and active time of its requests and its responses."""
        carrying: list[Int64s] = []
        for part in parts:
            if part is not None:
                self.bytes += int(part["length"].sum())
                carrying.append(part["time"][part["length"] > 0])
        times = np.concatenate(carrying) if carrying else np.empty(0, np.int64)
        if len(carrying) > 1:
            times.sort(kind="stable")
        if len(times):
            if self.last_payload is not None:
                times = np.concatenate(([self.last_payload], times))
            gaps = times[1:] - times[:-1]
            self.active += int(gaps[(gaps >= 0) & (gaps <= PAUSE)].sum())
            self.last_payload = int(times[-1])

    def notified(self, times: Int64s) -> None:
        """Note CNPs that it sent at these times."""
        noted = self.own_complaints
        noted.cnps += len(times)
        noted.notices = np.concatenate((noted.notices, times))
        if noted.last_cnp is not None:
            times = np.concatenate(([noted.last_cnp], times))
        noted.cnp_gap = added(noted.cnp_gap, np.diff(times))
        noted.last_cnp = int(times[-1])

    def settle(self, marks: Int64s) -> None:
        """Compare its CNPs with the times of marked packets of the other end."""
        noted = self.complaints
        if not len(noted.notices):
            return
        notices, noted.notices = noted.notices, _NONE
        at = marks.searchsorted(notices, side="right") - 1
        caused = at >= 0
        noted.cnp_delay = added(noted.cnp_delay, notices[caused] - marks[at[caused]])


class RcHealth:
    """The counts of one connection; takes what the connection's observers take."""

    __slots__ = ("_recoveries", "_waiting", "_waiting_packets", "answers", "connection", "retransmissions", "sent")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.sent = _EndpointCounts(), _EndpointCounts()
        ledgers = connection.ledgers
        self.retransmissions = tuple(
            RcRetransmissions(end, connection.endpoints[1 - end].start_psn, ledgers[end], ledgers[1 - end])
            for end in (0, 1)
        )
        self.answers = Acknowledgements(), Acknowledgements()
        """By endpoint: the answers to its requests."""
        self._recoveries: Recoveries | None = None
        self._waiting: tuple[tuple[_Batch, _Batch], ...] = ()
        """Batches that were not counted so far."""
        self._waiting_packets = 0

    def feed(
        self,
        sent: Sequence[Rows],
        split: Sequence[tuple[Rows, Rows]],
        reused: tuple[Collection[int], Collection[int]] = ((), ()),
    ) -> None:
        """Take a batch, in capture order: by end, what it sent, and the same split into requests and responses.

        ``reused``: by end, the frames of new requests that have the PSN of an earlier one.  The connection has to know
        its path MTU as of this batch.
        """
        for end in (0, 1):
            if len(sent[end]):
                self.sent[end].feed(sent[end])
        for end in (0, 1):
            self.sent[end].settle(self.sent[1 - end].complaints.marks)
        first, second = split
        queues = self._queue(0, first[0], second[1], reused[0]), self._queue(1, second[0], first[1], reused[1])
        self._waiting += (queues,)
        self._waiting_packets += len(sent[0]) + len(sent[1])
        if self._waiting_packets >= TOGETHER:
            self._count()
        self._recoveries = None

    def _queue(self, initiator: int, requests: Rows, responses: Rows, reused: Collection[int]) -> _Batch:
        queue = self.retransmissions[initiator]
        head = queue.head
        near = queue.answered_up_to if head is None else head
        asked = answers = None
        syndromes = None
        if len(requests):
            psns = PSN.unwrap_series(int(requests["psn"][0]) if near is None else near, requests["psn"])
            asked = seen_rows(requests, psns, psns + spans(self.connection, requests), requests["opcode"])
        reference = near if asked is None else int(asked["psn"][0])
        if len(responses):
            start = int(responses["psn"][0]) if reference is None else PSN.unwrap(reference, int(responses["psn"][0]))
            psns = PSN.unwrap_series(start, responses["psn"])
            syndromes = responses["syndrome"]
            positive = (syndromes >> 5 & 3 == opcodes.ACK) & (responses["headers"] == 1)
            answers = seen_rows(responses, psns, psns + positive, responses["opcode"])
        queue.feed(asked, answers, syndromes, reused)
        return _Batch(asked, answers, head, queue.head)

    def expecting(self, heads: tuple[int | None, ...]) -> bool:
        """Whether these are the next PSNs of both ends, and nothing unusual is going on."""
        if self._waiting:
            self._count()
        for queue, head, answers, sent in zip(self.retransmissions, heads, self.answers, self.sent, strict=True):
            if head is None or queue.head != head or answers.acked >= head:
                return False
            if answers.reading or (queue.read_head or 0) > head or len(sent.complaints.notices):
                return False
        return True

    def renew(self) -> None:
        """Drop cached results: there is more data."""
        self._recoveries = None

    def flush(self) -> None:
        """Count what waits, and drop the packets kept to find retransmissions: no more are expected."""
        self._count()
        for queue in self.retransmissions:
            queue.forget()
        for answers in self.answers:
            answers.compact()

    def _count(self) -> None:
        """Count the waiting batches together: a call costs more than a packet."""
        waiting, self._waiting, self._waiting_packets = self._waiting, (), 0
        if not waiting:
            return
        queues = [_joined([batches[end] for batches in waiting]) for end in (0, 1)]
        for end in (0, 1):
            if queues[end].furthest is not None:
                self.answers[end].feed(*queues[end])
            self.sent[end].count((queues[end].requests, queues[1 - end].responses))

    def notified(self, sender: int, times: Int64s) -> None:
        """Count CNPs that ``sender`` sent to this connection's other queue pair."""
        self.sent[sender].notified(times)

    def corrupt(self, sender: int, rows: Rows, dropped: bool) -> None:
        """Note PACKET rows of ``sender`` with a wrong invariant CRC; ``dropped``: the receiver dropped them for it."""
        known = self.connection.damaged
        if dropped and len(known) < MAX_FAILURES:
            self.connection.damaged = *known, *zip(rows["frame"].tolist(), rows["time"].tolist(), strict=True)
        noted = self.sent[sender].own_complaints
        noted.failure_count += len(rows)
        first = rows[: MAX_FAILURES - len(noted.failures)]
        noted.failures += tuple(
            zip(first["frame"].tolist(), first["psn"].tolist(), first["time"].tolist(), strict=True)
        )
        self._recoveries = None

    def _listed(self) -> list[Retransmission]:
        """All retransmissions in order; if the lost packet had arrived damaged, that is the loss."""
        if all(queue.untroubled for queue in self.retransmissions):
            return []
        nouns: list[Retransmission] = []
        for queue in self.retransmissions:
            damaged = {psn: (frame, time) for frame, psn, time in self.sent[queue.initiator].complaints.failures}
            for retransmission in queue.nouns():
                frame, time = damaged.get(retransmission.psn, (0, 0))
                if (
                    frame
                    and retransmission.lost == "request"
                    and frame < (retransmission.retransmission_frame or retransmission.nak_frame or 0)
                ):
                    retransmission = retransmission._replace(
                        lost_packet_captured=True, lost_frame=frame, lost_time=time
                    )
                nouns.append(retransmission)
        return sorted(nouns, key=_moment)

    @property
    def recoveries(self) -> Recoveries | None:
        """None if nothing was retransmitted."""
        if not any(ledger.counts for ledger in self.connection.ledgers):
            return None
        if self._recoveries is None:
            self._recoveries = Recoveries(self._listed(), tcp=False)
        return self._recoveries

    def silences(self, sender: int) -> Silences:
        """Pauses in the requests of ``sender``."""
        return self.retransmissions[sender].silences

    def timers(self, sender: int) -> list[Timer]:
        """The timers by which ``sender`` retransmits, even if the capture does not show the loss."""
        timeout = self.connection.endpoints[0].ack_timeout
        timers = [_ack_timer(timeout)] if timeout else []
        if naks := self.retransmissions[sender].rnr_naks:
            waits = {nak.timer for nak in naks if (nak.timer or 0) >= SILENCE}
            timers += [Timer(wait, f"the RNR timer of {duration(wait)}") for wait in sorted(filter(None, waits))]
        return timers

    def result(self, now: int | None = None, icrc_checked: int | None = None) -> TransportHealth:
        """The health so far; ``now``: nanoseconds, the end of the capture."""
        self._count()
        for end in (0, 1):
            self.sent[end].settle(self.sent[1 - end].complaints.marks)
        listed = self._listed()
        counts: Mapping[str, int] = NOTHING_COUNTED
        if listed or any(self.connection.ledgers):
            total = sum((ledger.counts for ledger in self.connection.ledgers), Counter[str]())
            total += Counter(
                retransmission.cause for queue in self.retransmissions for retransmission in queue.unheeded
            )
            counts = dict(total)
        waits = recovery_delays(listed)
        return TransportHealth(
            self.connection.number,
            self.connection.transport,
            (self._direction(0), self._direction(1)),
            tuple(listed),
            sum(counts.values()),
            self.connection.path_mtu,
            self._ending(now),
            capture_point(self.answers[1].turnaround, self.answers[0].turnaround),
            icrc_checked,
            waits.loss_to_nak,
            waits.nak_to_retransmission,
            waits.loss_to_retransmission,
            counts,
            inferred=self.connection.inferred_losses,
        )

    def _ending(self, now: int | None) -> str:
        initiated = [
            Initiated(self.retransmissions[end], self.answers[end], self.sent[1 - end].last_time) for end in (0, 1)
        ]
        return ending(self.connection, initiated, now)

    def _direction(self, end: int) -> DirectionHealth:
        connection, sent = self.connection, self.sent[end]
        noted = sent.complaints
        ledger, theirs = connection.ledgers[end], self.retransmissions[1 - end]
        answered, answers = self.answers[end], self.answers[1 - end]
        return DirectionHealth(
            packets=sent.packets,
            bytes=sent.bytes,
            retransmitted=ledger.retransmitted,
            retransmission_times=ledger.times,
            original_captured=ledger.original_captured,
            original_missing=ledger.original_missing,
            reordered=ledger.late,
            causes=ledger.causes,
            missing=connection.missing_packets[end],
            unconfirmed=connection.unconfirmed_packets[end],
            active_time=sent.active,
            acknowledgements=answers.acks,
            requests_acknowledged=answers.acknowledged,
            requests_per_ack=answers.acknowledged / answers.advancing if answers.advancing else None,
            max_per_ack=answers.max_acknowledged,
            ack_delay=answers.delay.distribution(),
            read_delay=answers.read_delay.distribution(),
            sequence_naks=theirs.sequence_naks,
            rnr_naks=theirs.rnr_naks,
            rnr_count=theirs.rnr_count,
            fatal_naks=theirs.fatal_naks,
            ecn_marked=noted.marked,
            cnps=noted.cnps,
            cnp_gap=noted.cnp_gap.distribution(),
            cnp_delay=noted.cnp_delay.distribution(),
            icrc_failures=tuple(frame for frame, _, _ in noted.failures),
            icrc_failure_count=noted.failure_count,
            reads_outstanding=answered.reads_outstanding,
            read_depth=read_depth(connection.endpoints[end], connection.endpoints[1 - end]),
            unanswered=answered.unanswered,
            last_time=sent.last_time or 0,
            waiting_since=answered.waiting_since,
        )


@cache
def _ack_timer(timeout: int) -> Timer:
    power = (timeout >> 12).bit_length() - 1
    return Timer(timeout, f"the local ACK timeout of {duration(timeout)} (4.096 µs × 2^{power})")


def _moment(retransmission: Retransmission) -> int:
    return retransmission.nak_time or retransmission.retransmission_time or 0


def _joined(batches: Sequence[_Batch]) -> _Batch:
    if len(batches) == 1:
        return batches[0]
    parts: list[Rows | None] = []
    for listed in ([batch.requests for batch in batches], [batch.responses for batch in batches]):
        there = [rows for rows in listed if rows is not None]
        parts.append(joined(there) if there else None)
    known = next((batch for batch in batches if batch.furthest is not None), batches[0])
    return _Batch(parts[0], parts[1], known.head, batches[-1].furthest)
