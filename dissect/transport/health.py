"""Transport health: how a connection's transport behaved, for every transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows, every, some, steps, stretches, take
from ..layers import opcodes
from ..named_tuple import NamedTuple
from ..percentiles import NO_SAMPLES, Distribution, Samples, added, distribution
from .connection import OF_TCP, Endpoint
from .retransmissions import NO_CAUSES, NONE, InferredLoss, Retransmission, Tally

MAX_PENDING = 16384
"""Requests kept until they are acknowledged."""

READ_REQUEST = 0x0C

Value = TypeVar("Value", np.int64, np.bool_)

_NONE = np.empty(0, np.int64)
_NO_READS = np.empty(0, np.bool_)


SEEN = np.dtype(
    [
        ("psn", "i8"),  # unwrapped
        ("end", "i8"),  # PSN after it; a Read request takes as many PSNs as its response has packets
        ("time", "i8"),  # nanoseconds
        ("frame", "i8"),
        ("length", "i4"),  # payload bytes
        ("opcode", "u1"),
    ],
    align=True,
)
"""A packet of a send queue, in one direction; a response that acknowledges nothing has ``end`` equal to ``psn``."""


def seen_rows(rows: Rows, psns: Int64s, ends: Int64s, opcode: Rows | int) -> Rows:
    """SEEN rows copied from PACKET or SEGMENT rows."""
    seen = np.empty(len(rows), SEEN)
    seen["psn"], seen["end"], seen["opcode"] = psns, ends, opcode
    for name in ("time", "frame", "length"):
        seen[name] = rows[name]
    return seen


class AnsweredBatch(NamedTuple):
    """What a batch shows of a queue that has no open RDMA Read; see ``Acknowledgements``."""

    acks: int
    acked: int | None
    """The highest PSN that was acknowledged; None if there was no response."""
    last_answer: int
    delays: Int64s
    turnarounds: Int64s
    read_delays: Int64s
    acknowledged: int
    advancing: int
    largest: int
    """The most requests that one ACK acknowledged."""
    reads_outstanding: int
    psns: Int64s
    """PSNs of requests that are not acknowledged yet."""
    times: Int64s


class Acknowledgements:
    """The answers to one end's requests."""

    __slots__ = (
        "_open_reads",
        "_psns",
        "_reads",
        "_times",
        "acked",
        "acknowledged",
        "acks",
        "advancing",
        "delay",
        "last_answer",
        "max_acknowledged",
        "read_delay",
        "reads_outstanding",
        "turnaround",
    )

    def __init__(self) -> None:
        self.delay = NO_SAMPLES
        """Nanoseconds from a Send or Write packet to what acknowledges it."""
        self.turnaround = NO_SAMPLES
        """As ``delay``, for packets that caused the ACK themselves."""
        self.read_delay = NO_SAMPLES
        """Nanoseconds from a Read request to its first response."""
        self.acks = 0
        """ACK packets."""
        self.advancing = self.acknowledged = self.max_acknowledged = 0
        """ACK packets that acknowledged something; request packets they acknowledged; the most that one did."""
        self.reads_outstanding = 0
        self.acked = -1 << 62
        """The highest PSN that was acknowledged."""
        self.last_answer = 0
        """Nanoseconds; time of the last response of any kind."""
        self._psns = _NONE
        self._times = _NONE
        self._reads = _NO_READS
        self._open_reads = _NONE
        """For each open Read the PSN after its last response."""

    def feed(self, requests: Rows | None, responses: Rows | None, head: int | None, furthest: int | None) -> None:
        """Take the SEEN rows of one batch; ``head``: next expected PSN before it, ``furthest``: after it."""
        reads: Rows | None = None
        if requests is not None:
            fresh = self._fresh(requests, head)
            is_read = fresh["opcode"] == READ_REQUEST
            self._psns = _pending(self._psns, fresh["psn"])
            self._times = _pending(self._times, fresh["time"])
            self._reads = _pending(self._reads, is_read)
            if some(is_read):
                reads = take(fresh, is_read)
        positive: Rows | None = None
        if responses is not None:
            self.last_answer = int(responses["time"][-1])
            good = responses["end"] > responses["psn"]
            if furthest is not None:
                good &= responses["psn"] < furthest
            positive = responses if every(good) else take(responses, good)
        before = self.acked
        reached = None
        if positive is not None and len(positive):
            reached = np.maximum.accumulate(positive["psn"])
            np.maximum(reached, before, out=reached)
            self._answered(positive, reached)
            self.acked = int(reached[-1])
        if reads is not None or len(self._open_reads):
            self._count_reads(reads, positive, reached, before)

    def passed(self, batch: AnsweredBatch) -> None:
        """Take a batch that ``Matched`` has evaluated, including what was pending."""
        if batch.acked is not None:
            self.acks += batch.acks
            self.acked, self.last_answer = batch.acked, batch.last_answer
        if len(batch.delays):
            self._add(batch.delays, batch.turnarounds)
            self.advancing += batch.advancing
            self.acknowledged += batch.acknowledged
            self.max_acknowledged = max(self.max_acknowledged, batch.largest)
        if batch.reads_outstanding:
            self.read_delay = added(self.read_delay, batch.read_delays)
            self.reads_outstanding = max(self.reads_outstanding, batch.reads_outstanding)
        if len(batch.psns) or len(self._psns):
            self._psns, self._times = batch.psns[-MAX_PENDING:].copy(), batch.times[-MAX_PENDING:].copy()
            self._reads = np.zeros(len(self._psns), np.bool_)

    @property
    def pending(self) -> tuple[Int64s, Int64s]:
        """PSNs and times (ns) of unacknowledged requests."""
        return self._psns, self._times

    @property
    def reading(self) -> bool:
        """Whether RDMA Reads are open."""
        return len(self._open_reads) > 0

    def compact(self) -> None:
        """Free memory that what is pending does not need."""
        if len(self._psns):
            self._psns, self._times, self._reads = self._psns.copy(), self._times.copy(), self._reads.copy()

    def _fresh(self, requests: Rows, head: int | None) -> Rows:
        """The requests that are no repetitions."""
        first = int(requests["psn"][0])
        start = first if head is None else head
        if first >= start and first > self.acked and not some(requests["psn"][1:] < requests["end"][:-1]):
            return requests
        furthest = np.maximum.accumulate(requests["end"])
        fresh = requests["psn"] >= start
        fresh[1:] &= requests["psn"][1:] >= furthest[:-1]
        fresh &= requests["psn"] > self.acked
        return requests if every(fresh) else take(requests, fresh)

    def _answered(self, positive: Rows, reached: Int64s) -> None:
        is_ack = opcodes.IS_ACKNOWLEDGE[positive["opcode"]]
        self.acks += int(np.count_nonzero(is_ack))
        covered = int(self._psns.searchsorted(reached[-1], side="right"))
        if not covered:
            return
        psns, times, reads = self._psns[:covered], self._times[:covered], self._reads[:covered]
        by = reached.searchsorted(psns)
        if int(by.max()) == len(reached):  # A reused queue pair number leaves them out of order.
            inside = by < len(reached)
            psns, times, reads, by = psns[inside], times[inside], reads[inside], by[inside]
        delays = np.maximum(positive["time"][by] - times, 0)
        if some(reads):
            answered = positive["psn"][by] == psns
            self.read_delay = added(self.read_delay, delays[reads & answered])
            delays, by, psns = delays[~reads], by[~reads], psns[~reads]
        ack = is_ack[by]
        self._add(delays, delays[ack & (positive["psn"][by] == psns)])
        by = by[ack]
        if len(by):
            sizes = steps(np.append(stretches(by)[1:], len(by)), 0)
            self.advancing += len(sizes)
            self.acknowledged += len(by)
            self.max_acknowledged = max(self.max_acknowledged, int(sizes[sizes.argmax()]))
        if covered == len(self._psns):
            self._psns, self._times, self._reads = _NONE, _NONE, _NO_READS
        else:
            self._psns, self._times, self._reads = self._psns[covered:], self._times[covered:], self._reads[covered:]

    def _add(self, delays: Int64s, turnarounds: Int64s) -> None:
        """Add samples; ``turnarounds`` are some of ``delays``.  While all are, one object serves both."""
        if len(turnarounds) == len(delays) and self.turnaround is self.delay:
            self.delay = self.turnaround = added(self.delay, delays)
            return
        if self.turnaround is self.delay is not NO_SAMPLES:
            self.turnaround = Samples()
            self.turnaround.merge(self.delay)
        self.delay = added(self.delay, delays)
        self.turnaround = added(self.turnaround, turnarounds)

    def _count_reads(self, reads: Rows | None, positive: Rows | None, reached: Int64s | None, before: int) -> None:
        """Note how many Reads were open when each was issued."""
        ends = self._open_reads
        if reads is not None:
            ends = np.concatenate((ends, reads["end"]))[-MAX_PENDING:]
            done = np.full(len(reads), before, np.int64)
            if positive is not None and reached is not None:
                at = positive["frame"].searchsorted(reads["frame"]) - 1
                done = np.where(at >= 0, reached[np.maximum(at, 0)], before)
            issued = np.arange(len(ends) - len(reads), len(ends)) + 1
            complete = ends.searchsorted(done + 1, side="right")
            self.reads_outstanding = max(self.reads_outstanding, int((issued - complete).max()))
        self._open_reads = ends[int(ends.searchsorted(self.acked + 1, side="right")) :]

    @property
    def unanswered(self) -> int:
        """Number of unacknowledged requests."""
        return len(self._psns)

    @property
    def first_unanswered(self) -> int:
        """PSN of the first unacknowledged request, or of the next one if there is none."""
        return int(self._psns[0]) if len(self._psns) else self.acked + 1

    @property
    def waiting_since(self) -> int | None:
        """Nanoseconds; time of the first unacknowledged request."""
        return int(self._times[0]) if len(self._times) else None


def _pending(known: NDArray[Value], fresh: NDArray[Value]) -> NDArray[Value]:
    """The newest ``MAX_PENDING`` of both."""
    return (np.concatenate((known, fresh)) if len(known) else fresh)[-MAX_PENDING:]


FEWEST = 8
"""Acknowledgements of either end needed for a judgement."""
MANY = 64
APART = 3.0
"""Ratio of the two ends' delays from which they can be told apart."""
FAR_APART = 10.0
ALIKE = 1.5
LEAST = 1000
"""Nanoseconds by which the delays must differ; many capture clocks count microseconds."""
SLOW = 50_000
"""Nanoseconds; an end whose delay is never shorter hides the network's time behind its own."""
FAST = 5
"""Percentile of acknowledgement delays by which an end is judged: fast, but no outlier."""

MEANINGS = {
    "beside the requester": "latencies are what the client sees; server time includes the network round trip",
    "beside the responder": "server time is the server's own; the client waits longer than these latencies,"
    " by the network round trip",
    "between": "server time includes the network between capture point and server; the client waits longer than"
    " these latencies, by the network on its side",
    "undecidable": '"server" may include network delay',
}


def capture_point(requester: Samples, responder: Samples) -> CapturePoint:
    """Where the capture was taken, by the delays of both ends' acknowledgements; 'requester' is the active side."""
    if requester.count < FEWEST or responder.count < FEWEST:
        few = "client" if requester.count < responder.count else "server"
        seen = min(requester.count, responder.count)
        return _placed("undecidable", 0.0, f"only {seen} acknowledgements of the {few} to measure")
    mine, theirs = requester.at(FAST), responder.at(FAST)
    near, far = max(1, min(mine, theirs)), max(mine, theirs, 1)
    evidence = f"fastest acknowledgements: client {mine / 1000:.3g} µs, server {theirs / 1000:.3g} µs"
    many = min(requester.count, responder.count) >= MANY
    if far - near >= LEAST and far / near >= APART:
        place = "beside the requester" if mine < theirs else "beside the responder"
        return _placed(place, (0.9 if many else 0.7) if far / near >= FAR_APART else 0.6, evidence)
    if far < LEAST:
        return _placed("undecidable", 0.0, f"{evidence}; too short for the capture's clock")
    if far - near < LEAST or far / near <= ALIKE:
        if near > SLOW:
            reason = "about the same, but both ends take longer than a network does"
            return _placed("undecidable", 0.0, f"{evidence}; {reason}")
        return _placed("between", 0.6 if many else 0.5, f"{evidence}; about the same")
    return _placed("undecidable", 0.0, f"{evidence}; too close together to decide")


class RecoveryDelays(NamedTuple):
    """How long recoveries took; None if no retransmission shows it."""

    loss_to_nak: Distribution | None
    nak_to_retransmission: Distribution | None
    loss_to_retransmission: Distribution | None


_NO_DELAYS = RecoveryDelays(None, None, None)


def recovery_delays(retransmissions: Sequence[Retransmission]) -> RecoveryDelays:
    """Distributions of the delays of retransmissions after losses."""
    if not retransmissions:
        return _NO_DELAYS
    real = [retransmission for retransmission in retransmissions if retransmission.lost != "nothing"]
    known = [
        [value for retransmission in real if (value := getattr(retransmission, name)) is not None]
        for name in RecoveryDelays._fields
    ]
    return RecoveryDelays(*(distribution(np.array(values, np.int64)) if values else None for values in known))


def read_depth(initiator: Endpoint, responder: Endpoint) -> int | None:
    """RDMA Reads that ``initiator`` may have open, as both ends declared at set-up (IBA 12.7; RFC 6581)."""
    if initiator.initiator_depth is None or responder.responder_resources is None:
        return None
    return min(initiator.initiator_depth, responder.responder_resources)


def _placed(place: str, confidence: float, evidence: str) -> CapturePoint:
    return CapturePoint(place, confidence, evidence, MEANINGS[place])


class NegativeAcknowledgement(NamedTuple):
    """A NAK that asks to wait, or that ends the connection."""

    frame: int
    time: int
    psn: int
    name: str
    """'RNR NAK, 0.64 ms', 'NAK, Remote Access Error'."""
    timer: int | None = None
    """RNR NAK: nanoseconds that the sender has to wait."""


class Pauses(NamedTuple):
    """How often and how long a sender paused although it had more to send."""

    number: int = 0
    waited: int = 0
    """Nanoseconds."""

    def longer(self, pause: int) -> Pauses:
        """The pauses, with one more added."""
        return Pauses(self.number + 1, self.waited + pause)


NO_PAUSES = Pauses()


class DirectionHealth(NamedTuple):
    """What one endpoint sent, and how its packets were answered."""

    packets: int = 0
    """InfiniBand and RoCE packets, retransmissions included; 0 with iWARP."""
    segments: int = 0
    """iWARP: TCP segments with payload, retransmissions included."""
    fpdus: int = 0
    """iWARP: FPDUs, each counted once."""
    bytes: int = 0
    """Payload bytes, retransmissions included."""
    retransmitted: Tally = NONE
    """Packets (iWARP: segments) that were retransmitted, wherever the first transmission was lost; without copies."""
    retransmission_times: tuple[tuple[int, int], ...] = ()
    """When ``retransmitted`` packets were sent: times (ns) and packets, in intervals as in ``PacketTimes``."""
    original_captured: Tally = NONE
    """Packets of which the capture has an earlier transmission, and copies."""
    original_missing: Tally = NONE
    """Packets whose earlier transmission was lost before the capture point."""
    reordered: int = 0
    """Packets that came late although nothing shows that they were sent twice."""
    causes: Mapping[str, Tally] = NO_CAUSES
    """``original_captured`` and ``original_missing`` by cause."""
    missing: int = 0
    """Packets that were sent but are not in the capture at all."""
    unconfirmed: int = 0
    """``missing`` packets that the sender may never have sent: no acknowledgement covers their PSNs."""
    active_time: int = 0
    """Nanoseconds in which it sent payload, without pauses of more than 100 ms."""
    acknowledgements: int = 0
    """ACK packets it sent."""
    requests_acknowledged: int = 0
    """Request packets of the other end, except Reads, that its ACK packets acknowledged."""
    requests_per_ack: float | None = None
    """Mean, over ACK packets that acknowledged something."""
    max_per_ack: int = 0
    ack_delay: Distribution | None = None
    """From a request packet of the other end to the packet that acknowledges it."""
    read_delay: Distribution | None = None
    """From an RDMA Read request of the other end to its first response."""
    sequence_naks: int = 0
    """NAKs for a PSN sequence error that it sent."""
    rnr_naks: tuple[NegativeAcknowledgement, ...] = ()
    """The first ones."""
    rnr_count: int = 0
    fatal_naks: tuple[NegativeAcknowledgement, ...] = ()
    """Remote access, remote operational and invalid request errors."""
    ecn_marked: int = 0
    """Its packets that a switch marked with congestion experienced."""
    cnps: int = 0
    """Congestion notification packets it sent because the other end's packets came marked."""
    cnp_gap: Distribution | None = None
    """From one CNP to the next."""
    cnp_delay: Distribution | None = None
    """From a marked packet of the other end to the next CNP."""
    icrc_failures: tuple[int, ...] = ()
    """Frames; the first ones."""
    icrc_failure_count: int = 0
    reads_outstanding: int = 0
    """The most RDMA Reads it had open at one time."""
    read_depth: int | None = None
    """The limit on that: the lower of its initiator depth and the other end's responder resources."""
    unanswered: int = 0
    """Requests not acknowledged when the capture ended; iWARP: RDMA Reads without a complete response."""
    duplicate_acks: int = 0
    """iWARP: TCP acknowledgements it sent that repeat the previous one, as a segment is missing (RFC 5681, 2)."""
    selective_acks: int = 0
    """iWARP: acknowledgements with SACK blocks for data after a gap (RFC 2018)."""
    reported_twice: int = 0
    """iWARP: acknowledgements that report data received twice (RFC 2883)."""
    zero_windows: int = 0
    """iWARP: segments that announce a receive window of zero."""
    ack_waits: Pauses = NO_PAUSES
    """TCP: pauses in its sending that a delayed acknowledgement of the other end ended (RFC 9293, 3.8.6.3)."""
    restarts: Pauses = NO_PAUSES
    """TCP: pauses in its sending because its congestion window restarted after an idle time (RFC 5681, 4.1)."""
    congestion_echoes: int = 0
    """iWARP: segments in which it reported that marked ones had come (RFC 3168, 6.1)."""
    damaged_segments: int = 0
    """iWARP: its segments whose TCP checksum is wrong, which the other end drops."""
    crc_failures: tuple[int, ...] = ()
    """iWARP: frames of its FPDUs with a wrong CRC32C; the first ones."""
    crc_failure_count: int = 0
    marker_failures: int = 0
    """iWARP: its FPDUs with markers that point elsewhere (RFC 5044, 4.3)."""
    doubted_fpdus: int = 0
    """iWARP: its other FPDUs that were rejected, as no CRC confirms them, and markers or headers are wrong."""
    last_time: int = 0
    """Nanoseconds since the epoch: its last packet, with acknowledgements, or a TCP acknowledgement of bytes that it
    sent but the capture lacks; 0 for none."""
    waiting_since: int | None = None
    """Nanoseconds: when it sent the first request that was never acknowledged; None if all were."""

    @property
    def unique_bytes(self) -> int:
        return max(0, self.bytes - self.original_captured.bytes)

    @property
    def goodput(self) -> float | None:
        """Unique payload bits per second of active time; None if it did not send two packets with payload."""
        return self.unique_bytes * 8e9 / self.active_time if self.active_time else None


class CapturePoint(NamedTuple):
    """Where the capture was taken, as far as acknowledgement times tell."""

    place: str
    """'beside the requester', 'beside the responder', 'between' or 'undecidable'.  The requester is the active side."""
    confidence: float
    """0 to 1."""
    evidence: str
    meaning: str
    """How it affects the parts of a latency."""


NOTHING_COUNTED: Mapping[str, int] = {}


class TransportHealth(NamedTuple):
    """The health of one connection.  Direction 0 is what the active side sent."""

    connection: int
    transport: str
    directions: tuple[DirectionHealth, DirectionHealth]
    retransmissions: tuple[Retransmission, ...]
    """The latest few thousand, in order."""
    retransmission_count: int
    path_mtu: int | None
    ended: str
    """Why the connection ended, in words; or 'open at the end of the capture'."""
    capture_point: CapturePoint
    icrc_checked: int | None
    """Packets whose invariant CRC was verified; None if that was not asked for."""
    loss_to_nak: Distribution | None = None
    nak_to_retransmission: Distribution | None = None
    loss_to_retransmission: Distribution | None = None
    causes: Mapping[str, int] = NOTHING_COUNTED
    """Retransmissions by cause."""
    crc_checked: int | None = None
    """iWARP: FPDUs whose CRC32C was verified; None if none has one."""
    inferred: Sequence[InferredLoss] = ()
    """Losses at the end of a burst that only the length of a pause shows; not in ``retransmissions``."""
    handshake: tuple[int, int | None] | None = None
    """TCP: nanoseconds from the SYN to the SYN-ACK, and from there to the ACK."""

    @property
    def way_to_server(self) -> int | None:
        """Nanoseconds from the capture point to the server and back, at best; None if unknown.

        Adapters acknowledge at once.  TCP may delay acknowledgements, except for the SYN-ACK (RFC 9293, 3.8.6.3).
        """
        if self.segments:
            return None if self.handshake is None else self.handshake[0]
        answers = self.directions[1].ack_delay
        return None if answers is None else answers.minimum

    @property
    def segments(self) -> bool:
        """The counts are of TCP segments, not InfiniBand packets."""
        return self.transport in OF_TCP

    @property
    def troubled(self) -> bool:
        """Whether there is more to report than counts."""
        return bool(self.retransmission_count or self.inferred) or any(
            direction.sequence_naks
            or direction.rnr_count
            or direction.fatal_naks
            or direction.ecn_marked
            or direction.cnps
            or direction.icrc_failure_count
            or direction.crc_failure_count
            or direction.marker_failures
            or direction.doubted_fpdus
            or direction.damaged_segments
            or direction.zero_windows
            or direction.congestion_echoes
            or direction.reordered
            or direction.causes
            for direction in self.directions
        )
