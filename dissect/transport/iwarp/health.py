"""Each direction of an iWARP connection, from TCP segments to messages; and its health, as TCP and MPA show."""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bytes, Int64s, Rows, places, some, steps, take
from ...layers import opcodes
from ...link.tcp import ACK, FIN, LARGEST, RIGHT, RST, SYN, WRONG
from ...named_tuple import NamedTuple
from ...serial import TCP_SEQUENCE
from ...units import duration
from ..connection import Connection
from ..health import (
    MEANINGS,
    NO_PAUSES,
    Acknowledgements,
    CapturePoint,
    DirectionHealth,
    NegativeAcknowledgement,
    TransportHealth,
    read_depth,
    recovery_delays,
)
from ..operations import Operation
from ..retransmissions import Recoveries, Retransmission, Silences, Timer
from ..runs import Run, Tail
from .assembly import Fragment, MessageAssembly, OutstandingReads, TerminateMessage
from .fpdus import Fpdus
from .framing import HEADER, Framing, is_mpa, mpa_length
from .retransmissions import RetransmittedBytes, TcpRetransmissions
from .stream import ByteStream

RARE = 2
"""Right checksums per wrong one, at least, for a wrong one to count."""


class IwarpDirection:
    """Takes the segments that one end sends, and the acknowledgements of the other end."""

    def __init__(self, framing: Framing) -> None:
        self.stream = ByteStream()
        self.framing = framing
        self.reads = OutstandingReads(self.stream)
        """The Reads that this sender issued."""
        self.assembly: MessageAssembly | None = None
        """None until the active side is known."""
        self.acked: int | None = None
        """Position up to which the receiver has everything."""
        self.acked_from = 0
        """The same by the first acknowledgement."""
        self.payload_bytes = 0
        """Payload bytes of trusted FPDUs."""
        self.damaged_segments = 0
        """Segments dropped for their TCP checksum."""
        self.right_checksums = self._wrong_checksums = 0

    @property
    def sender(self) -> int:
        """Endpoint of the connection: 0 is the active side."""
        return 0 if self.assembly is None else self.assembly.sender

    @property
    def fpdus(self) -> int:
        """Number of FPDUs with contents, including those that cannot be trusted."""
        return self.framing.count - (self.framing.ready is not None)

    @property
    def packets(self) -> int:
        """Number of MPA Requests, Replies and FPDUs."""
        return (self.framing.startup is not None) + self.framing.count

    def starts_up(self, data: Bytes, rows: Rows) -> bool:
        """Whether the first of SEGMENT rows with payload has a whole Request or Reply, in order and undamaged."""
        for at in places(rows["length"])[:1].tolist():
            names = ("payload", "captured", "seq", "flags", "verdict")
            start, captured, seq, flags, verdict = (int(rows[name][at]) for name in names)
            head, expected = data[start : start + min(captured, HEADER)].tobytes(), self.stream.next
            dropped = flags & (RST | SYN) or (verdict == WRONG and self.right_checksums)
            right = not dropped and (expected is None or expected == seq)
            return right and len(head) == HEADER and is_mpa(head) and mpa_length(head) <= captured
        return False

    def waiting_since(self, settled: bool = True) -> int | None:
        """The first frame that waits for earlier bytes, whose FPDU boundaries are unknown or, unless ``settled``, that
        waits for the set-up."""
        marks = (self.stream.waiting_since, self.framing.waiting_since(settled))
        return min((mark for mark in marks if mark is not None), default=None)

    def damaged(self, rows: Rows) -> NDArray[np.bool_]:
        """Which SEGMENT rows arrived damaged: the receiver drops them, and they are retransmitted.

        A wrong checksum counts only if nearly all are right: if a network card computes or checks them after the
        capture point, the capture has no real checksums."""
        wrong, right = rows["verdict"] == WRONG, rows["verdict"] == RIGHT
        wrongs, rights = self._wrong_checksums + wrong.cumsum(), self.right_checksums + right.cumsum()
        self._wrong_checksums, self.right_checksums = int(wrongs[-1]), int(rights[-1])
        damaged: NDArray[np.bool_] = wrong & (wrongs * RARE <= rights)
        if some(damaged):
            self.damaged_segments += int(np.count_nonzero(damaged))
            self.stream.retransmissions.damaged(take(rows, damaged))
        return damaged


PAUSE = 100_000_000
"""Nanoseconds; an endpoint that sends no payload for longer than this is not active."""
RECENT = 1024
"""Operations of either end searched for retransmitted bytes."""
MAX_PENDING = 4096
LEAST_RTO = 200_000_000
"""Nanoseconds: the least retransmission timeout of Linux and most others; RFC 6298, 2.4, has one second."""
WITH_DATA, ONLY_ACK = 0x04, 0x11
"""Opcodes that stand for segments with and without payload: a Send, an Acknowledge."""

assert opcodes.IS_ACKNOWLEDGE[ONLY_ACK] and not opcodes.IS_ACKNOWLEDGE[WITH_DATA]

TCP_UNKNOWN = CapturePoint(
    "undecidable",
    0.0,
    "TCP may delay acknowledgements, so they do not show distance (RFC 9293, 3.8.6.3)",
    MEANINGS["undecidable"],
)


UDP_UNKNOWN = TCP_UNKNOWN._replace(evidence="UDP has no acknowledgements")


DELAYS = (35_000_000, 45_000_000), (190_000_000, 210_000_000)
"""Nanoseconds: Linux delays acknowledgements by 40 ms, others by 200 ms (RFC 9293, 3.8.6.3, allows 500 ms)."""
PROMPT = 2_000_000
"""Nanoseconds; later than this, what follows an acknowledgement hardly waited for it."""


class AckWaits:
    """Pauses of a sender with data that a delayed acknowledgement ended: Nagle's algorithm (RFC 9293, 3.7.4) holds back
    the rest of a message until everything before it is acknowledged."""

    def __init__(self) -> None:
        self.pauses = [NO_PAUSES, NO_PAUSES]
        """By direction of the data."""
        self._times, self._kinds = list[int](), list[int]()
        """Times and kinds of the last two segments."""

    def feed(self, times: Int64s, kinds: Int64s, pauses: bool) -> None:
        """Take times (ns) and kinds (``kinds_of``) of the segments of one batch, in capture order; ``pauses``: there
        may be a pause between two of them."""
        first, last = times[:2].tolist(), slice(max(0, len(times) - 2), None)
        edge = np.array([*self._times, *first], np.int64)
        if pauses or some(delayed(np.diff(edge))):
            times = np.append(np.array(self._times, np.int64), times)
            kinds = np.append(np.array(self._kinds, np.int64), kinds)
            waits = np.diff(times)
            at = places(delayed(waits[:-1]) & (waits[1:] >= 0) & (waits[1:] <= PROMPT))
            kind = kinds[at]
            at = at[(kind >= 0) & (kind <= 1) & (kinds[at + 1] == kind + 2) & (kinds[at + 2] == kind)]
            for direction, wait in zip(kinds[at].tolist(), waits[at].tolist(), strict=True):
                self.pauses[direction] = self.pauses[direction].longer(wait)
        self._times = [*self._times, *times[last].tolist()][-2:]
        self._kinds = [*self._kinds, *kinds[last].tolist()][-2:]


def delayed(waits: Int64s) -> NDArray[np.bool_]:
    """Which of these waits (ns) may be those of a delayed acknowledgement."""
    fitting = np.zeros(len(waits), np.bool_)
    for low, high in DELAYS:
        fitting |= (waits >= low) & (waits <= high)
    return fitting


def kinds_of(rows: Rows, forward: NDArray[np.bool_]) -> Int64s:
    """Kinds of SEGMENT rows: 0 and 1 for data of a direction, 2 and 3 for a bare acknowledgement of it, -1 for others;
    ``forward``: which rows are of direction 0."""
    bare = (rows["length"] == 0) & (rows["flags"] & (ACK | RST | SYN | FIN) == ACK)
    return np.where(rows["length"] > 0, ~forward, np.where(bare, 2 + forward, -1))


IDLE = 200_000_000
"""Nanoseconds without data after which a sender is idle: Linux's least retransmission timeout."""
INITIAL_WINDOW = 10
"""Segments that a sender may then send before an acknowledgement (RFC 6928, 2)."""
LEAST_MSS = 500
LEAST_PAUSE = 500_000
"""Nanoseconds."""
STEADY = 4
"""A pause is at least this many times as long as the steps between the segments of a burst."""


@dataclass(slots=True)
class _Restart:
    """What a sender sent since it was idle: bursts of full segments, each up to twice as large as the one before, and
    after each a pause, in which the other end sent no data, until some of the burst was acknowledged."""

    next: int
    """Sequence number."""
    last: int
    """Time of the last segment, ns."""
    mss: int = 0
    """Bytes; known after the first burst."""
    least: int = LEAST_PAUSE
    """Nanoseconds that count as a pause."""
    burst: int = 0
    """Bytes so far; ``before``: of the previous burst."""
    before: int = 0
    sizes: set[int] = field(default_factory=set)
    acknowledged: bool = False
    pause: int = 0
    """The pause before this burst, ns, until the burst exceeds the first one: then the application had data to send."""

    def take(self, time: int, seq: int, length: int) -> int | None:
        """Nanoseconds of a pause that has ended, 0 for none; None if the segment breaks the pattern."""
        if seq != self.next:
            return None
        self.next = TCP_SEQUENCE.wrap(seq + length)
        waited, self.last = time - self.last, time
        if self.burst and waited >= self.least:
            if not self.mss:
                self.mss, rest = divmod(self.burst, INITIAL_WINDOW)
                if rest or self.mss < LEAST_MSS:
                    return None
                self.least = max(LEAST_PAUSE, waited // STEADY)
            if not self._grew():
                return None
            self.before, self.burst, self.pause, self.acknowledged = self.burst, 0, waited, False
            self.sizes.clear()
        elif not self.mss:
            self.least = max(self.least, STEADY * waited)
        self.burst += length
        self.sizes.add(length)
        # A burst that grows beyond the window was not stopped by it.
        if self.burst > (2 * self.before + self.mss if self.mss else LARGEST):
            return None
        confirmed = self.pause if self.burst > INITIAL_WINDOW * self.mss else 0
        self.pause -= confirmed
        return confirmed

    def _grew(self) -> bool:
        """Whether the burst used up its window, so that there was more to send."""
        return (
            self.acknowledged and 2 * self.burst >= 3 * self.before and not any(size % self.mss for size in self.sizes)
        )


class Restarts:
    """Pauses of a sender whose congestion window restarted after an idle time (RFC 5681, 4.1)."""

    def __init__(self) -> None:
        self.pauses = [NO_PAUSES, NO_PAUSES]
        """By direction."""
        self._last: list[int | None] = [None, None]
        """When data was last sent, ns."""
        self._open: list[_Restart | None] = [None, None]

    def quiet(self, direction: int, first: int | None) -> bool:
        """Whether a direction that next sends data at time ``first`` (ns) was not idle before, and is not followed."""
        last = self._last[direction]
        idle = first is not None and last is not None and first - last >= IDLE
        return self._open[direction] is None and not idle

    def passed(self, direction: int, last: int) -> None:
        """Note that a quiet direction sent data up to time ``last`` (ns), without idling."""
        self._last[direction] = last

    def feed(self, rows: Rows, forward: Rows) -> None:
        """Take SEGMENT rows of one batch, in capture order; ``forward``: which are of direction 0."""
        carrying = rows["length"] > 0
        for direction in (0, 1):
            mine = forward == (direction == 0)
            at = places(mine & carrying)
            times, last = rows["time"][at], self._last[direction]
            begins: list[int] = []
            if len(at):
                begins = at[steps(times, times[0] if last is None else last) >= IDLE].tolist()
                self._last[direction] = int(times[-1])
            starts = [0, *begins] if self._open[direction] is not None else begins
            if not starts:
                continue
            answers = places(carrying & ~mine)
            for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
                if start in begins:
                    first = rows[start]
                    self._open[direction] = _Restart(int(first["seq"]), int(first["time"]))
                answered = answers[answers >= start][:1].tolist()
                end = min(stop, *answered, len(rows))
                self._follow(direction, rows[start:end], mine[start:end])
                if end < stop:
                    self._open[direction] = None

    def _follow(self, direction: int, rows: Rows, mine: Rows) -> None:
        """Follow a sender after an idle time, until it no longer waits for its window."""
        restart = self._open[direction]
        columns = (rows[name].tolist() for name in ("time", "seq", "length", "flags"))
        for own, time, seq, length, flags in zip(mine.tolist(), *columns, strict=True):
            if restart is None:
                break
            if own and length:
                waited = restart.take(time, seq, length)
                if waited:
                    self.pauses[direction] = self.pauses[direction].longer(waited)
                elif waited is None:
                    restart = None
            elif not own:
                restart.acknowledged |= flags & (ACK | RST | SYN) == ACK
        self._open[direction] = restart


class _Sent(NamedTuple):
    """Where in the stream a part of an Operation was sent."""

    start: int
    stop: int
    of: weakref.ref[Operation] | Tail
    row: int = 0
    """Row, if ``of`` is a tail."""

    def charged(self) -> Operation | None:
        """The Operation, to note a repetition in it; None if it was freed."""
        return self.of.charged(self.row) if isinstance(self.of, Tail) else self.of()


_SentRows = tuple[Tail, Int64s, Int64s]
"""The tail of a run, and start and end of each of its rows in the stream."""
_start, _stop = attrgetter("start"), attrgetter("stop")


class IwarpHealth:
    """The counts of one connection over iWARP or TCP."""

    def __init__(self, directions: tuple[IwarpDirection, IwarpDirection]) -> None:
        self.directions = directions
        self.active = [0, 0]
        self.last: list[int | None] = [None, None]
        self.terminates: tuple[list[TerminateMessage], list[TerminateMessage]] = [], []
        self.answers = Acknowledgements(), Acknowledgements()
        """By direction of the segments: how they were acknowledged."""
        self.first: list[int | None] = [None, None]
        """By direction: the first stream position that data can have."""
        self.sends = [False, False]
        """By direction: whether the capture has segments, including those from before the connection was recognised."""
        self.seen = [0, 0]
        """By direction: time of the last segment, with or without payload, ns."""
        self.waits, self.restarts = AckWaits(), Restarts()
        self.marked = [0, 0]
        """By direction: segments that a switch marked with congestion."""
        self._recent: tuple[list[_Sent], list[_Sent]] = [], []
        """By direction: the latest Operations that are objects."""
        self._runs: tuple[list[_SentRows], list[_SentRows]] = [], []
        """By direction: the latest Operations that are rows of runs."""
        self._pending: tuple[deque[RetransmittedBytes], ...] = (deque(maxlen=MAX_PENDING), deque(maxlen=MAX_PENDING))
        """Retransmitted bytes that belong to no Operation so far."""
        self._recoveries: tuple[int, Recoveries] | None = None

    # Input

    def sent(self, sender: int, fpdus: Fpdus) -> None:
        """Count FPDUs that endpoint ``sender`` sent."""
        times = fpdus.rows["last_time"][fpdus.rows["length"] > 0]
        if not len(times):
            return
        before = self.last[sender]
        gaps = steps(times, int(times[0]) if before is None else before)
        self.active[sender] += int(gaps[(gaps >= 0) & (gaps <= PAUSE)].sum())
        self.last[sender] = int(times[-1])

    def carried(self, direction: int, fpdus: Fpdus, fragment: Fragment, operation: Operation) -> None:
        """Note that the FPDUs of a fragment carried a part of an Operation."""
        rows = fpdus.rows
        start, stop = int(rows["start"][fragment.first]), int(rows["stop"][fragment.first + fragment.packets - 1])
        recent = self._recent[direction]
        recent.append(_Sent(start, stop, weakref.ref(operation)))
        if len(recent) > 2 * RECENT:
            del recent[:RECENT]

    def carried_by(self, direction: int, run: Run, fpdus: Fpdus, first: Int64s, packets: Int64s) -> None:
        """Note which FPDUs of a direction carried the Operations of a run: ``packets`` from ``first`` on."""
        tail = Tail(run, compared=False)
        first, last = first[tail.first :], (first + packets - 1)[tail.first :]
        self._runs[direction].append((tail, fpdus.rows["start"][first], fpdus.rows["stop"][last]))

    def _carrying(self, direction: int, at: int) -> list[_Sent]:
        """Operations that retransmitted bytes from a position on may belong to, in the order of the stream."""
        carrying = [sent for sent in self._recent[direction] if sent.stop > at]
        for tail, starts, stops in self._runs[direction]:
            rows = places(stops > at)
            parts = zip(starts[rows].tolist(), stops[rows].tolist(), (rows + tail.first).tolist(), strict=True)
            carrying += [_Sent(start, stop, tail, row) for start, stop, row in parts]
        return sorted(carrying, key=_start)

    def settle(self, final: bool) -> None:
        """Charge retransmitted bytes to their Operations, once these were reassembled."""
        for direction in (0, 1):
            runs = self._runs[direction]
            while sum([len(starts) for _, starts, _ in runs[1:]]) >= RECENT:
                del runs[0]
            fresh = self.directions[direction].stream.retransmissions.fresh
            pending = self._pending[direction]
            if not fresh and not pending:
                continue
            pending.extend(fresh)
            fresh.clear()
            recent = self._carrying(direction, min(stretch.start for stretch in pending))
            for _ in range(len(pending)):
                stretch = pending.popleft()
                if not final and (not recent or recent[-1].stop < stretch.stop):
                    pending.append(stretch)
                    continue
                low = bisect_right(recent, stretch.start, key=_stop)
                high = bisect_left(recent, stretch.stop, lo=low, key=_start)
                for operation in dict.fromkeys(sent.charged() for sent in recent[low:high]):
                    if operation is None:
                        continue
                    operation.retransmissions += 1
                    operation.last_sent = max(operation.last_sent, stretch.time)
                    if not self.directions[direction].framing.checks.crc:
                        # If CRCs are in use, other bytes have a wrong one, and end the connection.
                        operation.contradict(stretch.contradicted)

    # Results

    def _sent_by(self, sender: int) -> TcpRetransmissions:
        return self.directions[self._number_of(sender)].stream.retransmissions

    def _number_of(self, sender: int) -> int:
        return int(self.directions[0].sender != sender)

    def _listed(self) -> list[Retransmission]:
        return sorted((noun for sender in (0, 1) for noun in self._sent_by(sender).nouns(sender)), key=_moment)

    @property
    def recoveries(self) -> Recoveries | None:
        """None if nothing was retransmitted."""
        changes = sum(direction.stream.retransmissions.changes for direction in self.directions)
        if not changes:
            return None
        if self._recoveries is None or self._recoveries[0] != changes:
            self._recoveries = changes, Recoveries(self._listed(), tcp=True)
        return self._recoveries[1]

    def silences(self, sender: int) -> Silences:
        """Pauses in the segments of ``sender``."""
        return self._sent_by(sender).silences

    def timers(self, sender: int) -> list[Timer]:
        """The timers by which ``sender`` retransmits, even if the capture does not show the loss."""
        return [Timer(LEAST_RTO, f"TCP's least retransmission timeout of {duration(LEAST_RTO)}", doubles=True)]

    def result(self, connection: Connection) -> TransportHealth:
        """The health so far."""
        checked = sum(direction.framing.checks.crc_checked for direction in self.directions)
        listed = self._listed()
        counts = sum((ledger.counts for ledger in connection.ledgers), Counter[str]())
        waits = recovery_delays(listed)
        return TransportHealth(
            connection.number,
            connection.transport,
            (self._direction(connection, 0), self._direction(connection, 1)),
            tuple(listed),
            sum(counts.values()),
            None,
            connection.ended_by or "open at the end of the capture",
            UDP_UNKNOWN if connection.transport == "UDP" else TCP_UNKNOWN,
            None,
            waits.loss_to_nak,
            waits.nak_to_retransmission,
            waits.loss_to_retransmission,
            dict(counts),
            crc_checked=checked or None,
            inferred=connection.inferred_losses,
        )

    def _direction(self, connection: Connection, sender: int) -> DirectionHealth:
        number = self._number_of(sender)
        direction, other = self.directions[number], self.directions[1 - number]
        theirs, ledger = other.stream.retransmissions, connection.ledgers[sender]
        checks = direction.framing.checks
        answers = self.answers[1 - number]
        return DirectionHealth(
            segments=connection.segments[sender],
            fpdus=connection.fpdus[sender],
            bytes=connection.bytes[sender],
            retransmitted=ledger.retransmitted,
            retransmission_times=ledger.times,
            original_captured=ledger.original_captured,
            original_missing=ledger.original_missing,
            reordered=ledger.late,
            causes=ledger.causes,
            missing=connection.missing_packets[sender],
            active_time=self.active[sender],
            acknowledgements=answers.acks,
            requests_acknowledged=answers.acknowledged,
            requests_per_ack=answers.acknowledged / answers.advancing if answers.advancing else None,
            max_per_ack=answers.max_acknowledged,
            ack_delay=answers.delay.distribution(),
            read_delay=other.reads.delay.distribution(),
            fatal_naks=tuple(
                NegativeAcknowledgement(terminate.frame, terminate.time, 0, str(terminate))
                for terminate in self.terminates[sender]
            ),
            ecn_marked=self.marked[number],
            reads_outstanding=direction.reads.max_open,
            read_depth=read_depth(connection.endpoints[sender], connection.endpoints[1 - sender]),
            unanswered=len(direction.reads.open),
            last_time=max(self.seen[number], direction.stream.unseen_time),
            waiting_since=self.answers[number].waiting_since,
            duplicate_acks=theirs.duplicate_acks,
            selective_acks=theirs.selective_acks,
            reported_twice=theirs.reported_twice,
            zero_windows=theirs.zero_windows,
            ack_waits=self.waits.pauses[number],
            restarts=self.restarts.pauses[number],
            congestion_echoes=theirs.echoes,
            damaged_segments=direction.damaged_segments,
            crc_failures=tuple(checks.crc_failures),
            crc_failure_count=checks.crc_failure_count,
            marker_failures=checks.marker_failure_count,
            doubted_fpdus=checks.doubt.count,
        )


def _moment(retransmission: Retransmission) -> int:
    return retransmission.retransmission_time or 0
