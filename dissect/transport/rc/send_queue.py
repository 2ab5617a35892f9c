"""One send queue as an observer sees it: requests one way, responses the other way, one space of PSNs.

Requests are delivered in PSN order.  NumPy finds what is in order; Python looks only at runs that begin elsewhere than
expected: a gap (lost on the wire, or only by the capture), a repetition, a start in mid-stream.
InfiniBand Architecture, volume 1, 9.7 (requester and responder) and 9.9.2 (retransmission).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter

import numpy as np

from ...arrays import Bytes, Int64s, Rows, among, owned, places, some, take
from ...intervals import IntervalSet
from ...layers import opcodes
from ...named_tuple import NamedTuple
from ...serial import PSN
from ..connection import Connection, Gap, ReusedPsn, raised
from ..operations import Delivered
from ..runs import Run
from .assembly import RequestAssembly
from .lost_packets import (
    COPIES_FOLLOW,
    ENDS,
    GRACE_PACKETS,
    HELD_PACKETS,
    MAX_GIVEN_UP,
    NO_PACKETS,
    RESTART,
    STARTS,
    WIDEST,
    AckHistory,
    Acknowledged,
    Jump,
    MissingRequests,
    PacketClock,
    completions,
    first_inside,
    first_psn,
    fresh_before,
    packets_between,
    reusing,
    split_early,
    stretches,
)
from .reads import DEFAULT_MTU, READ_REQUEST, RcReads, learn_mtu, spans
from .seen_psns import SentRequests, Taken

MAX_REUSED = 1000
"""PSN errors listed per connection."""


class DetachedMessages:
    """Messages of one send queue that are delivered outside the order of PSNs: late, or with reused PSNs."""

    __slots__ = ("_next", "_reusing", "assembly", "connection", "frames", "reused", "sender")

    def __init__(self, connection: Connection, sender: int, reads: RcReads) -> None:
        self.connection, self.sender = connection, sender
        self.assembly = RequestAssembly(connection, sender, reads)
        self.reused = IntervalSet()
        """Unwrapped PSNs that two messages used."""
        self.frames: set[int] = set()
        """Frames of the last batch whose packets reuse a PSN."""
        self._next = 0
        self._reusing = False
        """The open message reuses PSNs."""

    def goes_on(self, psn: int, opcode: int) -> bool:
        """Whether a message is open that this packet continues."""
        return bool(self.assembly.partial) and psn == self._next and not STARTS[opcode]

    def holds(self, psns: Int64s) -> Rows | None:
        """Which of these PSNs were reused; None if none were."""
        if not self.reused.starts:
            return None
        return np.array([self.reused.covers(psn, psn + 1) for psn in psns.tolist()], np.bool_)

    def forget(self) -> None:
        """Drop what is kept for repetitions: none will come."""
        self.assembly.recent.clear()

    def free_from(self, psn: int) -> int:
        """The first PSN from this one on that no message took. Those before it are not reused: a Read before them took
        fewer."""
        free = next(iter(self.reused.missing(psn, psn + MAX_REUSED)), (psn + MAX_REUSED, 0))[0]
        taken = {at % PSN.modulus for at in range(psn, free)}
        self.reused.remove(psn, free)
        self.connection.reused_psns = tuple(
            reused for reused in self.connection.reused_psns if reused.sender != self.sender or reused.psn not in taken
        )
        return free

    def deliver(self, data: Bytes, rows: Rows, psns: Int64s) -> None:
        """Take consecutive requests."""
        if not len(rows):
            return
        if not self.goes_on(psns[0], rows["opcode"][0]):
            self.assembly.close()
        self._reusing = False
        self.assembly.deliver(data, rows, psns)
        self.assembly.flush()
        self._next = int(psns[-1]) + 1

    def deliver_reused(self, data: Bytes, rows: Rows, psns: Int64s, earlier: Mapping[int, Taken]) -> None:
        """Take new messages that reuse PSNs, an error of the sender; ``earlier``: the earlier requests, by index in
        ``rows``."""
        goes_on = self.goes_on(psns[0], rows["opcode"][0])
        if goes_on and not self._reusing:
            # An open message from before ``base`` continues beyond it.
            first = min(earlier, default=len(rows))
            self.deliver(data, rows[:first], psns[:first])
            if first == len(rows):
                return
            goes_on = False
            rows, psns, earlier = rows[first:], psns[first:], {at - first: request for at, request in earlier.items()}
        self.reused.add(int(psns[0]), int(psns[-1]) + 1)
        self.frames.update(rows["frame"].tolist())
        for index, (opcode, frame, psn) in enumerate(
            zip(rows["opcode"].tolist(), rows["frame"].tolist(), rows["psn"].tolist(), strict=True)
        ):
            request = earlier.get(index)
            if request is not None and (STARTS[opcode] or not goes_on):
                if self.assembly.reused is None:
                    self.assembly.reused = {}
                self.assembly.reused[psn] = request.frame
                if len(self.connection.reused_psns) < MAX_REUSED:
                    verbs = opcodes.verb(opcode), opcodes.verb(request.opcode)
                    reused = ReusedPsn(frame, self.sender, psn, verbs[0], request.frame, verbs[1])
                    self.connection.reused_psns = *self.connection.reused_psns, reused
            goes_on = not ENDS[opcode]
        self.deliver(data, rows, psns)
        self._reusing = True


class HeldRun(NamedTuple):
    """Requests with PSNs [start, end) that wait behind a gap."""

    start: int
    end: int
    data: Bytes
    rows: Rows
    psns: Int64s
    frame: int
    proved: int = 0
    """When, in packets, it was proved that those in the gap before it existed; 0 for not before this batch."""


def held_run(start: int, end: int, data: Bytes, rows: Rows, psns: Int64s) -> HeldRun:
    """A HeldRun of these requests, at least one."""
    return HeldRun(start, end, data, rows, psns, int(rows["frame"][0]))


def insert_run(held: list[HeldRun], run: HeldRun) -> Rows:
    """Insert a run into ``held``, without PSNs that are held already; returns which rows those are."""
    at = bisect_right(held, run.start, key=attrgetter("start"))
    before = held[at - 1].end if at else run.start
    after = held[at].start if at < len(held) else run.end
    if before > run.start or after < run.end:
        if len(run.rows) > 1 or before > run.start:
            known = held_already(held, run.psns)
            ends = np.append(run.psns[1:], run.end)
            for a, b in stretches(known):
                parts = [(a, b)] if b - a < len(known) else pairwise(range(a, b + 1))
                for first, behind in () if known[a] else parts:
                    rows, psns = run.rows[first:behind], run.psns[first:behind]
                    insert_run(held, held_run(int(psns[0]), int(ends[behind - 1]), run.data, rows, psns))
            return known
        # The PSNs that a READ Request takes include one of another packet: the sender's error.
        run = run._replace(end=after)
    held.insert(at, run)
    return np.zeros(len(run.rows), np.bool_)


def held_already(held: Sequence[HeldRun], psns: Int64s) -> Rows:
    """Which of these PSNs are held."""
    if len(psns) < len(held):  # Many runs wait where a sender leaves out every other packet.
        owners = [bisect_right(held, psn, key=attrgetter("start")) - 1 for psn in psns.tolist()]
        pairs = zip(owners, psns.tolist(), strict=True)
        return np.array([at >= 0 and psn < held[at].end for at, psn in pairs], np.bool_)
    starts = np.array([run.start for run in held])
    ends = np.array([run.end for run in held])
    owner = starts.searchsorted(psns, side="right") - 1
    inside: Rows = (owner >= 0) & (psns < ends[owner])
    return inside


class SendQueue:
    """The requests of endpoint ``sender`` of a connection, and their responses."""

    __slots__ = (
        "_answers", "_clock", "_completed", "_detached", "_due", "_jump", "_moved", "_now", "acked", "base",
        "before_base", "connection", "filled", "gap_proved", "given_up", "head", "held", "held_packets", "messages",
        "missing", "reads", "released", "responses", "sender", "sent", "started", "stray",
    )  # fmt: skip

    def __init__(
        self, connection: Connection, sender: int, start_psn: int | None = None, sent: SentRequests | None = None
    ) -> None:
        """``sent``: where its requests are remembered for retransmissions."""
        self.connection = connection
        self.sender = sender
        self.head: int | None = start_psn
        """Unwrapped PSN of the next request to deliver; None until a request was seen."""
        self.base = start_psn
        """The first known PSN; requests before it were sent before the capture began."""
        self.before_base: IntervalSet | None = None
        self.given_up: IntervalSet | None = None
        """PSNs of packets that count as missing from the capture."""
        self.acked = -1
        """Unwrapped PSN up to which (exclusive) the responder acknowledged; -1 for none."""
        self.held: Sequence[HeldRun] = ()
        """Runs that wait behind a gap, ascending, disjoint."""
        self.held_packets = 0
        self.filled = 0, 0
        """Frame and time (ns) of the packet that filled the gap before the first held run; copies may still follow."""
        self.released: Sequence[tuple[int, int]] = ()
        """Pairs of frames: the first of a run that waited, and the one that released it."""
        self._now = 0
        """The frame that releases what waits."""
        self._moved = 0
        """The frame that last moved the head."""
        self.stray: HeldRun | None = None
        """A packet far from the head that nothing has confirmed so far."""
        self.started = False
        """Some request was seen; until then the PSN from the CM exchange is only a hint."""
        self.reads = RcReads(connection, sender)
        self.responses: Sequence[tuple[Bytes, Rows, Int64s]] = ()
        """Read responses whose Read is not known so far."""
        self.messages = RequestAssembly(connection, sender, self.reads)
        self._detached: DetachedMessages | None = None
        self.sent = SentRequests() if sent is None else sent
        self.missing = MissingRequests(connection, sender)
        self._clock = NO_PACKETS
        self.gap_proved = 0
        """The packet count at which it was proved that the packets in the first gap existed; 0 until then."""
        self._answers: AckHistory | None = None
        """The responses of the current batch."""
        self._due: tuple[tuple[Bytes, Rows], ...] = ()
        """Responses not looked at so far, in capture order."""
        self._completed: Int64s | None = None
        """The last entry of ``completions`` so far."""
        self._jump: Jump | None = None
        """With runs held: a gap so wide that it may be none."""

    def feed(
        self, data: Bytes, requests: Rows, responses: Rows, clock: PacketClock, runs: list[Run] | None = None
    ) -> Delivered:
        """Take the queue's packets of one batch, in capture order; returns what became complete.

        ``clock`` counts the packets of the whole connection.  Ordinary Operations go to ``runs``.
        """
        self.messages.columns = data if runs is not None else None
        self._clock = clock
        learn_mtu(self.connection, requests, responses)
        if self.reads.mtu != (self.connection.path_mtu or DEFAULT_MTU):
            self.held = [*map(self._by_mtu, self.held)]
            self.sent.take_mtu(self.connection, self.acked)
            before, self.head = self.head, self.reads.take_mtu(self.head)
            if self._detached is not None and self.head is not None and self.head != before:
                self.head = self._detached.free_from(self.head)
        near = int(requests["psn"][0]) if self.head is None and len(requests) else self.head
        self._answers = AckHistory(responses, near) if len(responses) and near is not None else None
        if len(responses):
            self._due += ((data, responses),)
        if len(requests):
            self._requests(data, requests)
        if self.stray is not None and sum([len(rows) for _, rows in self._due]) > HELD_PACKETS:
            self._drop_stray()
        self._respond()
        if self.gap_filled:
            self._copies_ended(None)
        self._settle()
        self._prove_gaps()
        self._place_responses()
        self.reads.settle(self._acknowledged)
        self.missing.settle(self.head, self._answers, self.gap_filled)
        self._answers, self._clock = None, NO_PACKETS
        self.messages.columns = None
        if runs is not None:
            runs += self.messages.runs
        return self._take()

    @property
    def expecting(self) -> bool:
        """Whether the next PSN is known and nothing unusual is going on."""
        waiting = self.held or self.responses or self.messages.partial or self.messages.reused
        odd = self.stray or self._detached or self.given_up or not self.missing.quiet
        return self.head is not None and not waiting and not odd and all(read.complete for read in self.reads.reads)

    def finish(self) -> Delivered:
        """Release everything: the capture or the connection is over."""
        self._respond()
        self._give_up()
        self.responses = ()
        if self.stray is not None:
            self.messages.deliver(self.stray.data, self.stray.rows, self.stray.psns)
            self.messages.close()
            self.stray = None
        return self._take()

    @property
    def detached(self) -> DetachedMessages:
        """Made when first needed: few connections have such messages."""
        if self._detached is None:
            self._detached = DetachedMessages(self.connection, self.sender, self.reads)
        return self._detached

    @property
    def has_detached(self) -> bool:
        """Whether messages came outside the order of PSNs."""
        return self._detached is not None

    @property
    def reusing(self) -> Collection[int]:
        """Frames of the last batch whose packets reuse a PSN."""
        return self._detached.frames if self._detached is not None else ()

    def passed(self, runs: list[Run], head: int, frame: int, remember: bool) -> None:
        """Note requests that came in order, up to the PSN ``head`` in ``frame``, and are complete as ``runs``.

        ``remember``: repetitions may follow.
        """
        self.started, self.gap_proved, self.head = True, 0, head
        self.messages.passed(runs, frame, head, self.acked, remember)

    def settle(self, remember: bool = True) -> None:
        """End the batch; ``remember``: keep its last requests, to compare later ones with."""
        if remember:
            self.sent.settle(self.acked)
        if self.held:
            self.held = [run._replace(rows=owned(run.rows), psns=owned(run.psns)) for run in self.held]

    def forget(self) -> None:
        """Drop what is kept for repetitions: no packet will be retransmitted."""
        self.messages.recent.clear()
        if self._detached is not None:
            self._detached.forget()
        self.sent.forget()
        self.reads.forget()

    def give_up_gaps(self, filled: bool, frame: int) -> Delivered:
        """Release what waits behind gaps, or only behind ``filled`` ones, no later than at ``frame``."""
        self._now = frame
        while self.gap_filled if filled else self.held:
            self._skip_gap()
        self._place_responses()
        return self._take()

    def _take(self) -> Delivered:
        """Take out what became complete."""
        delivered = self.messages.take(self.head, self.acked)[0]
        return delivered if self._detached is None else delivered + self._detached.assembly.take()[0]

    def open_since(self) -> int | None:
        """The first frame of a message whose end, or whose front, may still come; None for none."""
        partials = [self.messages.partial, self._detached.assembly.partial if self._detached is not None else ()]
        marks = [
            *(held.frame for held in self.held),
            *(int(partial[0][2]["frame"][0]) for partial in partials if partial),
        ]
        return min(marks, default=None)

    def begin(self, rows: Rows) -> None:
        """Find where the requests begin, if that is unknown; ``rows``: all packets seen so far."""
        requests = take(rows, ~opcodes.IS_RESPONSE[rows["opcode"]])
        if self.head is None and len(requests):
            psns = PSN.unwrap_series(int(requests["psn"][0]), requests["psn"])
            ends = psns + spans(self.connection, requests)
            breaks = places(psns[1:] != ends[:-1])
            self.head = self.base = first_psn(psns[np.append(0, breaks + 1)], ends[breaks])

    def _requests(self, data: Bytes, rows: Rows) -> None:
        if self.head is None:
            self.begin(rows)
        assert self.head is not None
        psns = PSN.unwrap_series(self.head, rows["psn"])
        ends = psns + spans(self.connection, rows)
        breaks = places(psns[1:] != ends[:-1]) + 1
        edges = [0, *breaks.tolist(), len(rows)]
        if self._detached is not None:
            self._detached.frames.clear()
        self._note_disorder(rows, psns, ends)
        self.sent.begin(data, rows, psns, ends, self.acked)
        for first, behind in pairwise(edges):
            run = slice(first, behind)
            self._now = frame = int(rows["frame"][first])
            if self.gap_filled:
                again = psns[first] == self.head and rows["time"][first] - self.filled[1] < COPIES_FOLLOW
                self._copies_ended(self._answers, frame, not again)
            if self.held and self._jump is None:
                self._settle(frame)
            self._now = frame
            self._run(int(psns[first]), int(ends[behind - 1]), data, rows[run], psns[run])

    def _note_disorder(self, rows: Rows, psns: Int64s, ends: Int64s) -> None:
        """Notice requests that were answered before they were captured, and note the frame of the answer."""
        answers, known = self._answers, self.connection.disordered
        if answers is None or self.head is None or 0 < known <= int(answers.rows["frame"][0]):
            return
        if not some(early := answers.before(rows["frame"]) > psns):
            return
        early &= (psns >= self.head) & ~held_already(self.held, psns) if self.held else psns >= self.head
        resumed = (rows["opcode"][1:] == READ_REQUEST) & (psns[1:] < np.maximum.accumulate(ends)[:-1])
        early[1:] &= ~resumed
        alike = places(among(psns, psns[early]))
        first = alike[np.unique(psns[alike], return_index=True)[1]]
        for psn in psns[first][early[first]][:1].tolist():  # The other requests were answered no earlier.
            if (frame := answers.proof(psn)) is not None:
                self.connection.disorder(frame)

    def _copies_ended(self, answers: AckHistory | None, before: int | None = None, over: bool = True) -> None:
        """Release what waits only for copies after its gap was filled: once one of ``answers`` acknowledges it, or
        after a silence, if that is ``before`` a frame; else at that frame, if copies are ``over`` by then."""
        frame = before if over else None
        proof = answers.proof(self.head) if answers is not None and self.head is not None else None
        if proof is not None and (before is None or proof < before):
            frame = before = max(proof, self.filled[0])
        if (silent := self._clock.silent(self.filled[0], before)) is not None:
            frame = silent
        if frame is not None:
            self._now = frame
            self._resume(self.filled[0])

    def _run(self, start: int, end: int, data: Bytes, rows: Rows, psns: Int64s) -> None:
        """Take consecutive requests, PSNs [start, end)."""
        assert self.head is not None
        if abs(start - self.head) > RESTART and abs(start - self._furthest()) > RESTART:
            if not self._far(held_run(start, end, data, rows, psns)):
                return
        elif self.stray is not None:
            self._drop_stray()
        if self.base is not None and start < self.base and not self.messages.delivered:
            self._begin_at(start)
        assert self.head is not None
        taken = self._before_base(data, rows, psns) if self.base is not None and start < self.base else 0
        if taken == len(rows):
            return
        rows, psns = rows[taken:], psns[taken:]
        if not self.held or end <= self.held[0].start or psns[0] > self.head:
            self._take_in(data, rows, psns, end)
            return
        # A responder drops what follows a gap, so these requests replace those that are held, unless the held ones
        # were acknowledged, or these come much later.
        known = self._acked_before(rows["frame"]) > psns
        known[1:] |= np.diff(rows["time"]) >= COPIES_FOLLOW
        known &= held_already(self.held, psns)
        for a, b in stretches(known):
            if known[a] and self.gap_filled:
                self._copies_ended(self._answers, int(rows["frame"][a]))
            self._take_in(data, rows[a:b], psns[a:b], int(psns[b]) if b < len(rows) else end)

    def _take_in(self, data: Bytes, rows: Rows, psns: Int64s, end: int) -> None:
        """Take requests that are all to be treated alike."""
        assert self.head is not None
        taken = 0
        while taken < len(rows) and (psns[taken] < self.head or self._goes_on(psns[taken], rows["opcode"][taken])):
            taken += self._seen(data, rows[taken:], psns[taken:])
        if taken == len(rows):
            return
        rows, psns = rows[taken:], psns[taken:]
        self.started = True
        if psns[0] > self.head:
            self._hold(held_run(int(psns[0]), end, data, rows, psns))
            return
        self.messages.deliver(data, rows, psns)
        self.head, self.filled = end, (int(rows["frame"][-1]), int(rows["time"][-1]))
        if self.held:
            self._moved = self.filled[0]
            self._replace_held(rows, psns)
            self._now = self.filled[0]
            if int(self._acked_before(rows["frame"][-1:])[0]) > end:
                self._resume(self._now)

    @property
    def gap_filled(self) -> bool:
        """Whether the first held run waits only because the next requests may be copies of it."""
        return bool(self.held) and self.head is not None and self.held[0].start <= self.head

    def _goes_on(self, psn: int, opcode: int) -> bool:
        return self._detached is not None and self._detached.goes_on(psn, opcode)

    def _begin_at(self, start: int) -> None:
        """Move the beginning to a smaller PSN: the PSN of the CM exchange and that of a start in mid-stream are
        hints."""
        parts, self.messages.partial = self.messages.partial, ()
        self.head = self.base = start
        for psn, data, rows in parts:
            self._hold(held_run(psn, psn + len(rows), data, rows, psn + np.arange(len(rows))))

    def _before_base(self, data: Bytes, rows: Rows, psns: Int64s) -> int:
        """Take requests before the first known one: reordered, retransmitted, or sent before the capture began.
        Returns how many they are."""
        assert self.base is not None and self.head is not None
        self.before_base = self.before_base or IntervalSet()
        fresh = fresh_before(self.before_base, rows, psns, self.base, self.head)
        for first, last in stretches(fresh):
            if fresh[first]:
                self.detached.deliver(data, rows[first:last], psns[first:last])
            else:
                self.messages.repeated(data, rows[first:last], psns[first:last])
        return len(fresh)

    def _seen(self, data: Bytes, rows: Rows, psns: Int64s) -> int:
        """Take requests from below the head on: retransmitted, or new ones whose PSNs their sender used before.

        Returns how many were taken: those below the head, and the rest of a new message.
        """
        assert self.head is not None
        known = int(psns.searchsorted(self.head))
        if known and self.given_up is not None:
            known, behind = first_inside(self.given_up, psns[:known])
            if not known:  # They had been given up, and come late.
                stop = int(psns[behind - 1]) + 1
                self.given_up.remove(int(psns[0]), stop)
                self.missing.came_late(int(psns[0]), stop, behind)
                self.detached.deliver(data, rows[:behind], psns[:behind])
                return behind
        goes_on = self._goes_on(psns[0], rows["opcode"][0])
        taken, contradicting = dict[int, Taken](), list[int]()
        if known:
            taken, contradicting = self.sent.recognise(data, rows[:known], psns[:known], self._acked_before)
        if not taken and not goes_on:
            self._repeated(data, rows[:known], psns[:known])
            self.connection.contradict(self.sender, contradicting)
            return known
        new = reusing(rows["opcode"], known, taken, goes_on)
        for first, last in stretches(new):
            if not new[first]:
                self._repeated(data, rows[first:last], psns[first:last])
                continue
            earlier = {at - first: request for at, request in taken.items()}
            self.detached.deliver_reused(data, rows[first:last], psns[first:last], earlier)
            end = int((psns[first:last] + spans(self.connection, rows[first:last])).max())
            if end > self.head:
                self.head, self._now = end, int(rows["frame"][last - 1])
                self._resume(self._now)
        self.connection.contradict(self.sender, contradicting)
        return len(new)

    def _give_up(self) -> None:
        while self.held:
            self._skip_gap()
        self.missing.give_up_tail(self.head, self.responses)
        self.messages.close()
        if self._detached is not None:
            self._detached.assembly.close()
        self._place_responses()
        self.reads.give_up()

    def _far(self, run: HeldRun) -> bool:
        """Take a run far from the head: after a wide gap, after a reuse of the queue pair number, or a stray packet.

        False if the run waits for a second packet that confirms it is no stray.
        """
        assert self.head is not None
        if (stray := self.stray) is None or stray.end != run.start:
            self._drop_stray()
            stray = None
            if self.started and len(run.rows) == 1:
                self.stray = run
                return False
        begin = stray or run
        self._respond(begin.frame)
        self.stray = None
        if self.started and RESTART < begin.start - self.head < WIDEST:
            self._jump = (self._jump if self.held else None) or Jump(begin.start, self._completed)
            if stray is not None:
                self._hold(stray)
            return True
        self._give_up()
        self.responses = ()
        self._restart(begin.start)
        self._answers = AckHistory(self._due[-1][1], begin.start) if self._due else None
        if stray is not None:
            self.messages.deliver(stray.data, stray.rows, stray.psns)
            self.head = stray.end
        return True

    def _restart(self, start: int) -> None:
        """Begin anew at ``start``: the queue pair number was reused, and nothing before has to do with it."""
        self.acked, self._answers = -1, None
        self.before_base = self.given_up = None
        self.missing.restart()
        if self._detached is not None:
            self._detached.reused = IntervalSet()
        self.sent.forget()
        self.head = self.base = start

    def _drop_stray(self) -> None:
        """Count the stray packet, which was never confirmed."""
        if self.stray is not None:
            self.connection.stray_packets = raised(self.connection.stray_packets, self.sender, 1)
            self.stray = None

    def _hold(self, run: HeldRun) -> None:
        """Keep a run that follows a gap; PSNs that are held already count as repetitions."""
        if not isinstance(self.held, list):
            self.held = [*self.held]
        known = insert_run(self.held, run)
        self.held_packets += len(run.rows) - int(np.count_nonzero(known))
        if some(known):
            self.messages.repeated(run.data, take(run.rows, known), run.psns[known])
        while (over := self.held_packets - HELD_PACKETS) > 0:
            self._now = int(run.rows["frame"][max(0, len(run.rows) - over)])
            self._skip_gap()

    def _by_mtu(self, run: HeldRun) -> HeldRun:
        """Correct the end of a run whose last request is a Read without a response, after the path MTU changed."""
        last = int(run.psns[-1])
        answered = any(some((psns >= last) & (psns < run.end)) for _, _, psns in self.responses)
        return run if answered else run._replace(end=last + int(spans(self.connection, run.rows[-1:])[0]))

    def _take_held(self) -> HeldRun:
        assert isinstance(self.held, list)
        held: HeldRun = self.held.pop(0)
        self.held_packets -= len(held.rows)
        self._moved = self._now
        self._note_released([(held.frame, self._now)])
        return held

    def _note_released(self, pairs: Iterable[tuple[int, int]]) -> None:
        if not isinstance(self.released, list):
            self.released = [*self.released]
        self.released.extend(pairs)

    def _replace_held(self, rows: Rows, psns: Int64s) -> None:
        """Let these requests, up to the head, replace what is held."""
        self.gap_proved = 0
        while self.held and self.head is not None and self.held[0].start < self.head:
            held = self.held[0]
            known = int(held.psns.searchsorted(self.head))
            by = rows["frame"][psns.searchsorted(held.psns[:known]).clip(max=len(psns) - 1)].tolist()
            self._note_released(zip(held.rows["frame"][:known].tolist(), by, strict=True))
            self.messages.order = max(self.messages.order, self.filled[0])
            self.messages.repeated(held.data, held.rows[:known], held.psns[:known])
            assert isinstance(self.held, list)
            self.held_packets -= known
            if known == len(held.rows):
                del self.held[0]
            else:
                start = int(held.psns[known])
                self.held[0] = held_run(start, held.end, held.data, held.rows[known:], held.psns[known:])

    def _resume(self, frame: int) -> None:
        """Deliver what waited for the head, which has moved."""
        self.gap_proved = 0
        while self.held and self.head is not None and self.held[0].start <= self.head:
            held = self._take_held()
            self.messages.order = max(self.messages.order, frame)
            known = int(held.psns.searchsorted(self.head))
            self.messages.repeated(held.data, held.rows[:known], held.psns[:known])
            if known == len(held.rows):
                continue
            if (start := int(held.psns[known])) > self.head:
                self._hold(held_run(start, held.end, held.data, held.rows[known:], held.psns[known:]))
                return
            self.messages.deliver(held.data, held.rows[known:], held.psns[known:])
            self.head = held.end

    def _skip_gap(self) -> None:
        """Give up the gap before the first held run: its packets are not in the capture."""
        assert self.head is not None
        if self.gap_filled:
            self._resume(self.filled[0])
            return
        if self._jump is not None and self._jump.start == self.held[0].start:
            self._respond()
            jump, self._jump = self._jump, None
            if not jump.within_life:
                beyond, self.held = self.held, ()
                self._give_up()
                self._restart(jump.start)
                self.held = beyond
                self._resume(beyond[0].frame)
                return
        held, responses = self._take_held(), [*self.responses]
        self.missing.answered(self.head, self._answers)
        if self._answers is not None:
            responses.append(self._answers.reading(held.data))
        gap = Gap(self.head, held.start, held.frame, int(held.rows["time"][0]))
        self.missing.give_up(gap, packets_between(responses, gap.start, gap.end), self.acked)
        self.given_up = self.given_up or IntervalSet()
        self.given_up.add(self.head, held.start)
        if len(self.given_up.starts) > MAX_GIVEN_UP:
            del self.given_up.starts[0], self.given_up.ends[0]
        self.messages.gap(self.head, held.start, int(held.rows["opcode"][0]))
        self.messages.deliver(held.data, held.rows, held.psns)
        self.head = held.end
        self._resume(held.frame)

    def _respond(self, before: int | None = None) -> None:
        """Process the responses ``before`` a frame; responses after a stray request wait as long as that does."""
        if before is None and self.stray is not None:
            before = self.stray.frame
        due, self._due = self._due, ()
        for data, every in due:
            behind = len(every) if before is None else int(every["frame"].searchsorted(before))
            if behind < len(every):
                self._due += ((data, every[behind:]),)
            if self.head is not None and behind:
                self._responses(data, every if behind == len(every) else every[:behind])

    def _responses(self, data: Bytes, rows: Rows) -> None:
        assert self.head is not None
        answers = self._answers
        if answers is None or answers.rows is not rows or answers.psns[0] != PSN.unwrap(self.head, int(rows["psn"][0])):
            answers = AckHistory(rows, self.head)
        reached = int(answers.reached[-1])
        if self.gap_filled:
            self._copies_ended(answers)
        completed = completions(rows, answers.psns)
        if self._jump is not None and self.held:
            self._jump.answered(completed)
        elif len(completed):
            self._completed = completed[-1].copy()
        if reached > self.head:
            self.missing.answered(self.head, answers)
        self.acked = max(self.acked, min(reached, self._furthest()))
        self.missing.confirm(self.acked)
        if len((reading := answers.reading(data))[1]):
            self.responses = [*self.responses, reading]

    def _acked_before(self, frames: Rows) -> Int64s:
        """``acked`` as it was before each of these frames of the current batch."""
        earlier = max(self.acked, min(self.missing.acked, self._furthest()))
        if self.head is None or self._answers is None:
            return np.full(len(frames), earlier)
        return np.maximum(earlier, np.minimum(self._answers.before(frames), self._furthest()))

    def _place_responses(self) -> None:
        """Give the Reads their data; responses to requests after a gap wait as long as those do."""
        self.messages.flush()
        if not self.responses or self.head is None:
            return
        due, self.responses = split_early(self.responses, self.head, HELD_PACKETS)
        for data, rows, psns in due:
            self.reads.responses(data, rows, psns, self._acknowledged)

    @property
    def _acknowledged(self) -> Acknowledged:
        return Acknowledged(self.acked, self._clock, self._answers, self.missing.acked)

    def _furthest(self) -> int:
        """The PSN after the last request seen: acknowledgements beyond it are not of this queue."""
        return max(self.head or 0, self.held[-1].end if self.held else 0)

    def _repeated(self, data: Bytes, rows: Rows, psns: Int64s) -> None:
        """Take requests seen before: retransmitted, or copied by the network."""
        if self._detached is not None and (again := self._detached.holds(psns)) is not None:
            self._detached.assembly.repeated(data, take(rows, again), psns[again])
            self.messages.repeated(data, take(rows, ~again), psns[~again])
        else:
            self.messages.repeated(data, rows, psns)
        for index in places(rows["opcode"] == READ_REQUEST).tolist():
            self.reads.issued_again(int(psns[index]), self._clock.at(int(rows["frame"][index])))

    def _settle(self, frame: int | None = None) -> None:
        """Give up gaps whose packets were proved to exist, after the grace period; up to a frame, or the end of the
        batch."""
        while self.held and self.head is not None:
            proved = self.gap_proved or self.held[0].proved
            proved = self.gap_proved = proved or self._acknowledged.proved(self.held[0].frame, self.head)
            if not proved:
                return
            if (self._clock.now if frame is None else self._clock.at(frame)) - proved < GRACE_PACKETS:
                return
            self._now = max(self._moved, self._clock.frame(proved + GRACE_PACKETS))
            self._skip_gap()

    def _prove_gaps(self) -> None:
        """Note which gaps behind the first one the batch has proved, for the next one shows no longer when."""
        for index, (before, run) in enumerate(pairwise(self.held), 1):
            proved = run.proved or self._acknowledged.proved(run.frame, before.end)
            if not proved:
                return
            if not run.proved:
                assert isinstance(self.held, list)
                self.held[index] = run._replace(proved=proved)
