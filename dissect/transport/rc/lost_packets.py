"""Requests that a send queue sent and the capture lacks: which PSNs, which frame shows it, and how sure that is.

A sender that skips PSNs and a capture that loses packets look alike.  What the responder acknowledged was sent, as an
acknowledgement covers everything before it (IBA volume 1, 9.7.5.1.1); about the rest nothing is sure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence
from itertools import pairwise

import numpy as np

from ...arrays import Bytes, Int64s, Rows, places, some, take, unique
from ...intervals import IntervalSet
from ...layers import opcodes
from ...named_tuple import NamedTuple
from ...serial import PSN
from ..connection import Connection, Gap, fill_gaps, overlapping, raised, with_gap

RESTART = 1 << 16
"""A step back by more PSNs than can be outstanding is no repetition: the queue pair number was reused."""
WIDEST = PSN.half - (1 << 20)
"""A longer step forward is no gap either: later PSNs could not be told from earlier ones."""
NEAR = 256
"""PSNs by which captures reorder neighbouring packets."""

STARTS = opcodes.IS_FIRST | opcodes.IS_ONLY
ENDS = opcodes.IS_LAST | opcodes.IS_ONLY


def first_psn(starts: Int64s, ends: Int64s) -> int:
    """The PSN at which a send queue begins; ``starts``, ``ends``: of its first runs, without the end of the last.

    The first packet need not have it: a capture may begin between a loss and the return to the lost packet, or with
    packets out of order.
    """
    first = int(starts[0])
    far = places(np.abs(starts - first) > RESTART)
    starts = starts[: far[0]] if len(far) else starts
    ends = np.append(ends, first)[: len(starts)]
    near = starts[(starts < first) & ((ends >= first) | (first - starts <= NEAR))]
    return int(near.min()) if len(near) else first


def rest_of_message(rows: Rows) -> int:
    """How many rows still belong to the message that began before them."""
    behind = places(STARTS[rows["opcode"]])
    ends = places(ENDS[rows["opcode"]]) + 1
    return int(min([len(rows), *behind[:1].tolist(), *ends[:1].tolist()]))


def fresh_before(known: IntervalSet, rows: Rows, psns: Int64s, base: int, head: int) -> Rows:
    """Which requests before ``base`` are not ``known``; a fresh message's packets from ``base`` up to ``head`` count
    as well."""
    before = int(psns.searchsorted(base))
    fresh = np.array([bool(known.add(psn, psn + 1)) for psn in psns[:before].tolist()], np.bool_)
    rest = rest_of_message(rows[before : int(psns.searchsorted(head))]) if fresh[-1] else 0
    return np.append(fresh, np.ones(rest, np.bool_))


def reusing(codes: Rows, known: int, taken: Container[int], goes_on: bool) -> Rows:
    """Which requests belong to new messages with PSNs that were used before; covers the leading rows that are such
    messages or repetitions.

    The first ``known`` rows have used PSNs.  Those in ``taken`` are new, and so are the packets after them up to the
    end of their message.  ``goes_on``: the first row continues such a message.
    """
    new = np.zeros(len(codes), np.bool_)
    for index, opcode in enumerate(codes.tolist()):
        if index >= known and (STARTS[opcode] or not goes_on):
            return new[:index]
        goes_on = index in taken or (goes_on and not STARTS[opcode])
        new[index] = goes_on
        goes_on = goes_on and not ENDS[opcode]
    return new


def stretches(flags: Rows) -> list[tuple[int, int]]:
    """``(first, behind)`` of each stretch of equal flags."""
    return list(pairwise([0, *(places(np.diff(flags)) + 1).tolist(), len(flags)])) if len(flags) else []


def first_inside(intervals: IntervalSet, psns: Int64s) -> tuple[int, int]:
    """The index range of ascending PSNs in the first of the intervals that has any of them."""
    index = bisect_right(intervals.ends, int(psns[0]))
    if index == len(intervals.starts):
        return len(psns), len(psns)
    first, behind = psns.searchsorted((intervals.starts[index], intervals.ends[index])).tolist()
    return first, behind


Placed = tuple[Bytes, Rows, Int64s]
ReadResponses = Iterable[Placed]
"""Responses without a known Read, with their PSNs."""

_STARTS_READ_RESPONSE = opcodes.IS_READ_RESPONSE & (opcodes.IS_FIRST | opcodes.IS_ONLY)


def completions(rows: Rows, psns: Int64s) -> Int64s:
    """Of responses: the PSN, and the number of messages (24 bits) completed by then (IBA 9.7.7.2)."""
    said = places(opcodes.HAS_AETH[rows["opcode"]])
    return np.array((psns[said], rows["msn"][said])).T


class Jump:
    """A step so far ahead that either packets are missing, or the queue pair number was reused.

    A responder continues to count completed messages across missing packets; after a reuse it starts anew.
    """

    __slots__ = ("_before", "_behind", "start")

    def __init__(self, start: int, before: Int64s | None) -> None:
        """``start``: the PSN after the step; ``before``: the last entry of ``completions`` before it."""
        self.start, self._before = start, before
        self._behind: Int64s | None = None

    def answered(self, completed: Int64s) -> None:
        """Take ``completions`` of responses; the first one to a request after the step decides."""
        if self._behind is None and len(behind := completed[completed[:, 0] >= self.start]):
            self._behind = behind[0]

    @property
    def within_life(self) -> bool:
        """Whether it is a gap within one life of the queue pair number, as far as can be told."""
        if self._before is None or self._behind is None:
            return True
        psns, messages = (self._behind - self._before).tolist()
        return bool(messages % PSN.modulus <= psns)


def positive(rows: Rows) -> Rows:
    """Which of these responses acknowledge their PSN."""
    opcode = rows["opcode"]
    answers: Rows = opcodes.IS_READ_RESPONSE[opcode] | opcodes.IS_ATOMIC_RESPONSE[opcode]
    answers |= opcodes.IS_ACKNOWLEDGE[opcode] & (rows["syndrome"] >> 5 == 0)
    return answers


def after_silence(rows: Rows, frame: int, time: int) -> int | None:
    """The first of these packets after ``frame`` that came at least COPIES_FOLLOW after ``time``; None for none."""
    behind = int(rows["frame"].searchsorted(frame, side="right"))
    late = places(rows["time"][behind:] >= time + COPIES_FOLLOW)
    return int(rows["frame"][behind + late[0]]) if len(late) else None


class LinkSilences:
    """When, in a batch, a connection was silent for COPIES_FOLLOW."""

    __slots__ = ("_found", "_last", "_rows", "_sent")

    def __init__(self, last: tuple[int, int], sent: tuple[Rows, Rows], rows: Rows) -> None:
        """``last``: frame and time of the packet before the batch; ``sent``: by both ends; ``rows``: of all
        connections."""
        self._last, self._sent, self._rows = last, sent, rows
        self._found: list[tuple[int, int]] | None = None

    def first(self, since: int, before: int | None) -> int | None:
        """The frame by which the first silence that begins in frame ``since`` or later had lasted COPIES_FOLLOW; None
        unless that is earlier than ``before``."""
        if self._found is None:
            self._found = self._find()
        silence = next((silence for silence in self._found if silence[0] >= since), None)
        return silence[1] if silence is not None and (before is None or silence[1] < before) else None

    def _find(self) -> list[tuple[int, int]]:
        """Of each silence: the last frame before it, and the frame by which it had lasted COPIES_FOLLOW."""
        frames, times = (
            np.concatenate([[last], *(rows[name] for rows in self._sent)])
            for last, name in zip(self._last, ("frame", "time"), strict=True)
        )
        order = frames.argsort(kind="stable")
        frames, times = frames[order], times[order]
        silences: list[tuple[int, int]] = []
        for at in places(times[1:] - times[:-1] >= COPIES_FOLLOW).tolist():
            over = after_silence(self._rows, int(frames[at]), int(times[at]))
            if over is not None and over < frames[at + 1]:
                silences.append((int(frames[at]), over))
        return silences


class PacketClock:
    """Counts the packets of a connection up to a frame of the current batch."""

    __slots__ = ("_all", "_before", "_frames", "_silences", "_strided", "now")

    def __init__(self, before: int, *frames: Rows, silences: LinkSilences | None = None) -> None:
        """``before``: packets before the batch; ``frames``: of its packets by sender, ascending."""
        self._silences = silences
        self._before, self._strided = before, frames
        self._frames: Sequence[Rows] | None = None
        self._all: Int64s | None = None
        """The frames of both senders, ascending; made when first needed."""
        self.now = before + sum(map(len, frames))
        """The count at the end of the batch."""

    @property
    def _by_sender(self) -> Sequence[Rows]:
        """Made when first needed: most batches need no count but the last."""
        if self._frames is None:
            self._frames = [*map(np.ascontiguousarray, self._strided)]
        return self._frames

    def frame(self, count: int) -> int:
        """The frame at which the count was reached."""
        if self._all is None:
            self._all = np.sort(np.concatenate(self._strided), kind="stable")  # A stable sort merges ascending parts.
        return int(self._all[max(0, count - self._before - 1)])

    def silent(self, since: int, before: int | None) -> int | None:
        """See ``LinkSilences.first``."""
        return None if self._silences is None else self._silences.first(since, before)

    def at(self, frame: int) -> int:
        return self._before + sum(
            [int(frames_of_batch.searchsorted(frame, "right")) for frames_of_batch in self._by_sender]
        )

    def first_behind(self, count: int, frames: Rows) -> int:
        """Index of the first of these ascending frames at which the count was reached; their number between batches."""
        if not self._strided:
            return len(frames)
        counts = self._before + sum([sent.searchsorted(frames, "right") for sent in self._by_sender])
        return int(np.searchsorted(counts, count, "right"))


NO_PACKETS = PacketClock(0)


class Acknowledged(NamedTuple):
    """What the other end acknowledged of a send queue by the end of the current batch."""

    acked: int
    """PSN up to which (exclusive) requests were acknowledged."""
    clock: PacketClock
    answers: AckHistory | None
    """The responses of the batch."""
    before: int
    """PSN up to which (exclusive) earlier batches acknowledged requests, those not seen included; 0 for nothing."""

    def proved(self, shown: int, psn: int) -> int:
        """The packet count at which an acknowledgement proved that ``psn`` was sent, not before frame ``shown``; 0 if
        none has so far."""
        frame = self.answers.proof(psn) if self.answers is not None else None
        if frame is None or self.before > psn:
            return self.clock.at(shown) if max(self.acked, self.before) > psn else 0
        return self.clock.at(max(frame, shown))


class AckHistory:
    """Which requests the responses of a batch acknowledged, and when."""

    __slots__ = ("_frames", "_positive", "_reached", "_reading", "_steps", "psns", "reached", "rows")

    def __init__(self, rows: Rows, near: int) -> None:
        """``rows``: at least one response, in order of frames; ``near``: a PSN of the queue, to unwrap theirs."""
        self.rows = rows
        self.psns: Int64s = PSN.unwrap_series(PSN.unwrap(near, int(rows["psn"][0])), rows["psn"])
        """Unwrapped."""
        self._positive = positive(rows)
        self._reached = np.append(-1, np.where(self._positive, self.psns + 1, -1))
        np.maximum.accumulate(self._reached, out=self._reached)
        self.reached: Int64s = self._reached[1:]
        """By response, the PSN up to which (exclusive) requests were acknowledged by then; -1 for none."""
        self._frames = np.ascontiguousarray(rows["frame"])
        self._reading: tuple[Rows, Int64s] | None = None
        self._steps: Int64s | None = None

    def before(self, frames: Rows) -> Int64s:
        """By frame, the PSN up to which (exclusive) requests were acknowledged before it; -1 for none."""
        psns_before: Int64s = self._reached[self._frames.searchsorted(frames)]
        return psns_before

    def proof(self, psn: int) -> int | None:
        """The first frame that acknowledges ``psn``; None for none."""
        index = int(self.reached.searchsorted(psn, "right"))
        return int(self._frames[index]) if index < len(self.rows) else None

    def reading(self, data: Bytes) -> Placed:
        """The Read responses; kept, as each gap asks for them again."""
        if self._reading is None:
            carrying = places(opcodes.IS_READ_RESPONSE[self.rows["opcode"]])
            self._reading = take(self.rows, carrying), self.psns[carrying]
        return data, *self._reading

    def steps(self, psn: int) -> Int64s:
        """Rows of a PSN behind ``psn`` up to which (exclusive) requests were acknowledged, and of the first frame, and
        its time, that did so; ascending."""
        if int(self.reached[-1]) <= psn:
            return NO_STEPS
        if int(self.reached[-1]) - psn > RESTART:
            near = self._positive & (self.psns >= psn) & (self.psns - psn < RESTART)
            steps = self._rises(np.maximum.accumulate(np.where(near, self.psns + 1, psn)))
        else:
            if self._steps is None:
                self._steps = self._rises(self.reached)
            steps = self._steps
        return steps[steps[:, 0].searchsorted(psn, "right") :]

    def _rises(self, reached: Int64s) -> Int64s:
        higher = places(np.diff(reached, prepend=-1) > 0)
        return np.array((reached[higher], self._frames[higher], self.rows["time"][higher]), np.int64).T


def split_early(responses: ReadResponses, head: int, room: int) -> tuple[list[Placed], list[Placed]]:
    """Split into responses to requests before ``head``, and others, of which at most ``room`` packets are kept."""
    due: list[Placed] = []
    waiting: list[Placed] = []
    for data, rows, psns in responses:
        early = psns >= head
        if not some(early):
            due.append((data, rows, psns))
            continue
        due.append((data, take(rows, ~early), psns[~early]))
        room -= int(early.sum())
        if room > 0:
            waiting.append((data, take(rows, early), psns[early]))
    return due, waiting


def packets_between(read_responses: ReadResponses, start: int, end: int) -> int:
    """How many requests have PSNs [start, end): a Read takes one PSN for each packet of its response."""
    answered, starts = [], []
    for _, rows, psns in read_responses:
        between = places((psns >= start) & (psns < end))
        answered.append(psns[between])
        starts.append(answered[-1][_STARTS_READ_RESPONSE[rows["opcode"][between]]])
    count = end - start
    if not answered or not len(psns := unique(np.concatenate(answered))):
        return count
    begun = unique(np.concatenate(starts))
    # Responses at the first PSNs that do not begin a Read continue one whose request is before ``start``.
    before = psns[: psns.searchsorted(begun[0])] if len(begun) else psns
    count -= (going_on := int(np.count_nonzero(before - start == np.arange(len(before)))))
    return count - max(0, len(psns) - going_on - max(len(begun), 1))


NO_STEPS = np.empty((0, 3), np.int64)
MAX_STEPS = 4096
"""Acknowledgements of requests not seen that are remembered one by one."""
GRACE_PACKETS = 256
"""Packets of the connection after proof that a packet existed, until it counts as missing from the capture: captures
reorder neighbours, not whole stretches."""
HELD_PACKETS = 1 << 16
"""Packets that wait behind a gap without such proof before it is given up."""
COPIES_FOLLOW = 1_000_000_000
"""Nanoseconds after the packet that fills a gap in which copies of what waits behind it may follow."""
MAX_GIVEN_UP = 4096
"""Gaps remembered to recognise their packets if they come late."""


class MissingRequests:
    """The missing requests of one send queue."""

    __slots__ = ("_connection", "_gaps", "_open", "_sender", "_steps", "_unconfirmed")

    def __init__(self, connection: Connection, sender: int) -> None:
        self._connection, self._sender = connection, sender
        self._gaps: Sequence[Gap] = ()
        """Gaps that were given up."""
        self._open: Gap | None = None
        """Requests from the head on that were answered but not seen: they may come late."""
        self._steps = NO_STEPS
        """``AckHistory.steps`` of earlier batches, from the head on."""
        self._unconfirmed: tuple[int, int] | None = None
        """The PSN after the last gap that no acknowledgement confirms, and the packets in all such gaps."""

    @property
    def quiet(self) -> bool:
        """Whether the next packets can neither confirm nor contradict anything."""
        return self._open is None and self._unconfirmed is None

    @property
    def none(self) -> bool:
        """Nothing was ever missing."""
        return self.quiet and not self._gaps

    def answered(self, head: int, answers: AckHistory | None) -> None:
        """Note that requests from ``head`` on, which were not seen, are answered by these responses or earlier ones."""
        earlier, latest = self._beyond(head, answers)
        if not (len(earlier) or len(latest)):
            return
        _, frame, time = (earlier if len(earlier) else latest)[0].tolist()
        end, last, _ = (latest if len(latest) else earlier)[-1].tolist()
        beyond = Gap(head, end, frame, time, last)
        if beyond != self._open:
            self._open = beyond
            self._publish()

    def _beyond(self, head: int, answers: AckHistory | None) -> tuple[Int64s, Int64s]:
        """The steps from ``head`` on of earlier batches, and of these responses."""
        earlier = self._steps[self._steps[:, 0].searchsorted(head, "right") :]
        known = int(earlier[-1, 0]) if len(earlier) else head
        return earlier, NO_STEPS if answers is None else answers.steps(known)

    @property
    def acked(self) -> int:
        """The PSN up to which (exclusive) earlier batches acknowledged requests from the head on; 0 for none."""
        return int(self._steps[-1, 0]) if len(self._steps) else 0

    def settle(self, head: int | None, answers: AckHistory | None, seen: bool) -> None:
        """At the end of a batch with these responses: if the head moved, what was answered before has come late.

        ``seen``: the request at the head waits for copies of what waits behind it."""
        if self._open is not None and self._open.start != head:
            self._connection.disorder(self._open.frame)
            self._open = None
            self._publish()
        if head is None:
            return
        earlier, latest = self._beyond(head, answers)
        self._steps = np.concatenate((earlier, latest)) if len(earlier) else latest
        if len(self._steps) > MAX_STEPS:
            self._steps = np.delete(self._steps, slice(1, -MAX_STEPS), 0)
        if self._open is None and len(self._steps) and not seen:
            self.answered(head, None)

    def confirm(self, acked: int) -> None:
        """Requests up to this PSN (exclusive) were acknowledged: unconfirmed gaps before it are confirmed."""
        if self._unconfirmed is not None and acked > self._unconfirmed[0]:
            self._count(0, -self._unconfirmed[1])
            self._unconfirmed = None

    def give_up(self, gap: Gap, packets: int, acked: int) -> None:
        """Count ``packets`` in a gap as missing; ``acked``: the PSN up to which requests were acknowledged."""
        if self._open is not None:
            known, self._open = self._open, None
            frame, time = min(gap.frame, known.frame), min(gap.time, known.time)
            gap = gap._replace(frame=frame, time=time, later=gap.last_frame)
            acked = max(acked, min(known.end, gap.end))
        self._gaps = with_gap(self._gaps, gap)
        self._publish()
        self._count(packets, 0)
        if acked <= gap.end and (unconfirmed := packets - max(0, acked - gap.start)) > 0:
            self._count(0, unconfirmed)
            before = self._unconfirmed[1] if self._unconfirmed is not None else 0
            self._unconfirmed = gap.end, before + unconfirmed

    def give_up_tail(self, head: int | None, read_responses: ReadResponses) -> None:
        """Count requests as missing that were answered although neither they nor later ones were seen."""
        if head is not None:
            self.answered(head, None)
        gap = self._open
        if gap is not None and gap.start == head:
            self.give_up(gap, packets_between(read_responses, gap.start, gap.end), gap.end + 1)

    def came_late(self, start: int, stop: int, packets: int) -> None:
        """Take requests out of the gaps that were given up: they came late."""
        for gap in overlapping(self._gaps, start, stop):
            self._connection.disorder(gap.frame)
        self._gaps = fill_gaps(self._gaps, start, stop)
        self._publish()
        self._count(-packets, -packets)
        self._connection.late_packets += packets

    def restart(self) -> None:
        """Forget all gaps: the queue pair number was reused, and PSNs mean other packets."""
        self._gaps, self._open, self._steps, self._unconfirmed = (), None, NO_STEPS, None

    def _count(self, missing: int, unconfirmed: int) -> None:
        connection, sender = self._connection, self._sender
        connection.missing_packets = raised(connection.missing_packets, sender, missing)
        connection.unconfirmed_packets = raised(connection.unconfirmed_packets, sender, unconfirmed)

    def _publish(self) -> None:
        mine = (*self._gaps, self._open) if self._open is not None else tuple(self._gaps)
        theirs = self._connection.gaps[1 - self._sender]
        self._connection.gaps = (theirs, mine) if self._sender else (mine, theirs)
