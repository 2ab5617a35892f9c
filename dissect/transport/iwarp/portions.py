"""What TCP connections sent in a batch, and what of it was acknowledged, for all connections at once.

Processing the connections one by one costs more than their segments do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bytes, Int64s, Rows, places, some, steps, stretches, take, unique
from ...link.tcp import ACK, ECE, FIN, RIGHT, RST, SYN, WRONG
from ...named_tuple import NamedTuple
from ...serial import TCP_SEQUENCE
from ..connection import AT_END
from ..health import SEEN
from ..sections import Matched, Packets, QueueSections
from .health import IDLE, ONLY_ACK, WITH_DATA, IwarpDirection, IwarpHealth, delayed, kinds_of
from .records import DatagramFraming


class Portion(NamedTuple):
    """The segments of one connection in a batch."""

    health: IwarpHealth
    members: Int64s
    """Indices of SEGMENT rows, ascending."""


class Sent(NamedTuple):
    """The segments of one direction in a portion."""

    rows: Rows
    """SEGMENT rows, in capture order, without those that arrived damaged."""
    answers: Rows
    """The other direction's segments with acknowledgements."""
    acked: int | None
    """Position up to which the receiver had everything before; None: unknown."""
    early: int | None
    """The first frame that acknowledged any of this before it was captured; 0 if that was in an earlier batch, None if
    there is none."""


class BySender(NamedTuple):
    """SEGMENT rows ordered by the direction that sent them."""

    rows: Rows
    sections: QueueSections

    def which(self, chosen: NDArray[np.bool_]) -> BySender:
        index = places(chosen)
        return self if len(index) == len(chosen) else BySender(take(self.rows, index), self.sections.part(index))

    def of(self, direction: int) -> Rows:
        return self.sections.cut(self.rows, direction)

    def positions(self, name: str, near: Int64s) -> Int64s:
        """Sequence numbers as positions, each the nearest one to ``near``."""
        offsets: Int64s = self.rows[name] - near + TCP_SEQUENCE.half
        offsets &= TCP_SEQUENCE.modulus - 1
        return offsets + (near - TCP_SEQUENCE.half)


def sent_in(
    data: Bytes, rows: Rows, forward: NDArray[np.bool_], portions: Sequence[Portion]
) -> tuple[BySender, list[tuple[Sent, Sent]]]:
    """The segments that arrived undamaged, and by portion what each direction sent; also notes in their health when,
    and what was acknowledged.

    ``rows``: SEGMENT rows; ``forward``: which of them are of direction 0.
    """
    members = np.concatenate([portion.members for portion in portions])
    owners = np.repeat(np.arange(len(portions)), [len(portion.members) for portion in portions])
    directions = [direction for portion in portions for direction in portion.health.directions]
    ends = 2 * owners + ~forward[members]
    order = ends.argsort(kind="stable")
    every = BySender(take(rows, members[order]), QueueSections(ends[order], len(directions)))
    for sender, direction in enumerate(directions):
        if isinstance(direction.framing, DatagramFraming):
            direction.framing.place(data, every.of(sender))
    _note_waits(portions, rows, forward, owners, members)
    _note_restarts(portions, rows, forward, every)
    _note_marks(portions, every)
    whole = _undamaged(directions, every)
    carrying = whole.which(whole.rows["length"] > 0)
    answers = every.which(every.rows["flags"] & (ACK | RST) == ACK)
    early, before = _answered_early(directions, carrying, answers), [direction.acked for direction in directions]
    _acknowledge(directions, answers)
    begins = np.array([_begins(direction, every.of(sender)) for sender, direction in enumerate(directions)])
    telling = answers.rows["frame"] > begins[answers.sections.owners ^ 1]
    back = answers.which((answers.rows["flags"] & SYN == 0) & telling)
    _match(portions, carrying.which(carrying.rows["flags"] & RST == 0), back)
    _note_answers(data, directions, carrying, back)
    sent = [
        Sent(whole.of(sender), answers.of(sender ^ 1), before[sender], early.get(sender))
        for sender in range(len(directions))
    ]
    # A reset can carry any sequence number.
    return whole.which(whole.rows["flags"] & RST == 0), [*zip(sent[::2], sent[1::2], strict=True)]


def _note_waits(
    portions: Sequence[Portion], rows: Rows, forward: NDArray[np.bool_], owners: Int64s, members: Int64s
) -> None:
    """Note pauses of senders; ``owners``: index of the portion of each of the ``members``."""
    times, kinds = rows["time"][members], kinds_of(rows, forward)[members]
    pausing = {*owners[1:][delayed(np.diff(times)) & (owners[1:] == owners[:-1])].tolist()}
    at = 0
    for owner, portion in enumerate(portions):
        mine = slice(at, at + len(portion.members))
        portion.health.waits.feed(times[mine], kinds[mine], owner in pausing)
        at = mine.stop


def _note_restarts(portions: Sequence[Portion], rows: Rows, forward: NDArray[np.bool_], every: BySender) -> None:
    carrying = places(every.rows["length"] > 0)
    times, sections = every.rows["time"][carrying], every.sections.part(carrying)
    idle = {*sections.owners[1:][(np.diff(times) >= IDLE) & sections.goes_on].tolist()}
    firsts, lasts = sections.ends(times)
    sends = sections.filled.tolist()
    for index, portion in enumerate(portions):
        restarts, ends = portion.health.restarts, (2 * index, 2 * index + 1)
        if any(
            end in idle or not restarts.quiet(number, firsts[end] if sends[end] else None)
            for number, end in enumerate(ends)
        ):
            restarts.feed(take(rows, portion.members), forward[portion.members])
            continue
        for number, end in enumerate(ends):
            if sends[end]:
                restarts.passed(number, lasts[end])


def _note_marks(portions: Sequence[Portion], every: BySender) -> None:
    """Note when each end last sent, and how many of its segments a switch marked."""
    latest, marks = every.sections.largest(every.rows["time"]), every.sections.sums(every.rows["congested"])
    sends = every.sections.filled.tolist()
    for index, portion in enumerate(portions):
        health = portion.health
        for number in (0, 1):
            health.sends[number] = health.sends[number] or sends[2 * index + number]
            health.seen[number] = max(health.seen[number], latest[2 * index + number])
            health.marked[number] += marks[2 * index + number]


def _undamaged(directions: Sequence[IwarpDirection], every: BySender) -> BySender:
    """The segments that did not arrive damaged."""
    verdicts = every.rows["verdict"]
    wrong, rights = verdicts == WRONG, every.sections.sums(verdicts == RIGHT)
    damaged = {*every.sections.owners[wrong].tolist()}
    for sender, (direction, right) in enumerate(zip(directions, rights, strict=True)):
        if sender in damaged:
            wrong[slice(*every.sections[sender])] = direction.damaged(every.of(sender))
        else:
            direction.right_checksums += right
    return every.which(~wrong)


def _begins(direction: IwarpDirection, rows: Rows) -> int:
    """The frame with a direction's first sequence number: acknowledgements before it mean nothing; 0 if known
    before."""
    if direction.stream.next is not None:
        return 0
    frames = rows["frame"][rows["flags"] & RST == 0]
    return int(frames[0]) if len(frames) else AT_END


def _answered_early(directions: Sequence[IwarpDirection], carrying: BySender, answers: BySender) -> dict[int, int]:
    """By direction, the first frame that acknowledged segments with payload before they were captured; 0 if that was in
    an earlier batch."""
    known = np.array([direction.stream.next is not None for direction in directions])
    heads = [direction.stream.next or 0 for direction in directions]
    acked = [
        head if direction.acked is None else TCP_SEQUENCE.unwrap(head, direction.acked)
        for head, direction in zip(heads, directions, strict=True)
    ]
    expected, before = np.array(heads), np.array(acked)
    at, owners = carrying.positions("seq", expected[carrying.sections.owners]), carrying.sections.owners
    answered, frames = answers.sections.owners ^ 1, answers.rows["frame"]
    reached = answers.sections.risen(answers.positions("ack", expected[answered]), before[answered])
    known_by = answers.sections.reached(reached, before[owners], frames, owners ^ 1, carrying.rows["frame"])
    early = (known_by > at) & (at >= expected[owners]) & known[owners]
    first_frames: dict[int, int] = {}
    for sender in unique(owners[early]).tolist() if some(early) else ():
        mine, theirs = slice(*carrying.sections[sender]), slice(*answers.sections[sender ^ 1])
        order = at[mine].argsort(kind="stable")
        begins = order[stretches(at[mine][order])]
        fresh = at[mine][begins[early[mine][begins]]]
        if len(fresh):
            levels = np.append(before[sender], reached[theirs])
            first_frames[sender] = int(np.append(0, frames[theirs])[levels.searchsorted(fresh[0], "right")])
    return first_frames


def _acknowledge(directions: Sequence[IwarpDirection], answers: BySender) -> None:
    """Tell the directions how much of them was received."""
    firsts, _ = answers.sections.ends(answers.rows["ack"])
    before = [
        firsts[index ^ 1] if direction.acked is None else direction.acked for index, direction in enumerate(directions)
    ]
    highest = answers.sections.largest(answers.positions("ack", np.array(before)[answers.sections.owners ^ 1]))
    for sender in places(answers.sections.filled).tolist():
        direction, reached = directions[sender ^ 1], before[sender ^ 1]
        if direction.acked is None:
            direction.acked_from = reached
        direction.acked = max(reached, highest[sender])


def _match(portions: Sequence[Portion], carrying: BySender, back: BySender) -> None:
    """Match segments with their acknowledgements, and count delays."""
    firsts, _ = carrying.sections.ends(carrying.rows["seq"])
    heads = np.zeros(len(firsts), np.int64)
    begins = heads.copy()
    sending = carrying.sections.filled
    for sender, first in enumerate(firsts):
        health, number = portions[sender >> 1].health, sender & 1
        head = health.directions[number].stream.retransmissions.head
        if head is None:
            head = first if sending[sender] else None
        if head is None:
            begins[sender] = AT_END
            continue
        begin = health.first[number]
        if begin is None:
            begin = health.first[number] = head
        heads[sender], begins[sender] = head, begin
    sections, answered = carrying.sections, back.sections.owners ^ 1
    owners = sections.owners
    ends = carrying.positions("seq", heads[owners]) + carrying.rows["length"]
    risen = sections.risen(ends, heads[owners])
    # Do not count acknowledgements of segments captured after them, nor the sequence number of a FIN.
    shown = sections.reached(risen, heads[answered], carrying.rows["frame"], answered, back.rows["frame"])
    acks = np.minimum(back.positions("ack", heads[answered]), shown)
    # The ACK of a handshake acknowledges no data, and may be in an earlier batch than the connection's recognition.
    of_data = places(acks > begins[answered])
    of_data = of_data[answered[of_data].argsort(kind="stable")]
    answering = [answers for portion in portions for answers in portion.health.answers]
    acked = np.array([answers.acked for answers in answering])
    # Repeated segments are not waited for.
    furthest = sections.before(risen, heads)
    # Of a segment's IP fragments, which share one frame, count the last.
    lasts = steps(carrying.rows["frame"][::-1], 0)[::-1] != 0
    fresh = places((ends > furthest) & (ends - 1 > acked[owners]) & lasts)
    asked = _seen(carrying.rows, fresh, ends[fresh], sections.part(fresh))
    by = QueueSections(answered[of_data], len(heads))
    answers = _seen(back.rows, of_data, by.risen(acks[of_data], np.maximum(acked + 1, begins)[by.owners]), by)
    answers.rows["opcode"][back.rows["length"][of_data] == 0] = ONLY_ACK
    matched = Matched(asked, answers, portions)
    for sender in places(asked.sections.filled | by.filled).tolist():
        answering[sender].passed(matched.of(sender))


def _seen(rows: Rows, chosen: Int64s, ends: Int64s, sections: QueueSections) -> Packets:
    """SEGMENT rows as packets of a queue pair, each with one number."""
    seen = np.zeros(len(chosen), SEEN)
    seen["time"], seen["opcode"] = rows["time"][chosen], WITH_DATA
    return Packets(seen, ends - 1, ends, sections)


def _note_answers(data: Bytes, directions: Sequence[IwarpDirection], carrying: BySender, back: BySender) -> None:
    """Find acknowledgements that indicate trouble."""
    if not len(back.rows):
        return
    queues = [direction.stream.retransmissions for direction in directions]
    firsts, _ = carrying.sections.ends(carrying.rows["seq"])
    known = carrying.sections.filled | [queue.head is not None for queue in queues]
    heads = np.array([first if queue.head is None else queue.head for first, queue in zip(firsts, queues, strict=True)])
    rows, sections = back
    answered = sections.owners ^ 1
    echoes = rows["flags"] & ECE
    if some(echoes):
        for sender, count in enumerate(sections.sums(echoes > 0)):
            queues[sender ^ 1].echoes += count
    for at in places(rows["window"] == 0).tolist():
        queues[answered[at]].shut(int(rows["frame"][at]))
    acks = back.positions("ack", heads[answered])
    lasts = np.array([queue.last_ack for queue in queues]).reshape(-1, 2)[:, ::-1].ravel()
    same = acks == sections.before(acks, lasts)
    odd = (rows["length"] == 0) & (rows["flags"] & FIN == 0) & (same | rows["selective"])
    for sender in places(sections.filled & known.reshape(-1, 2)[:, ::-1].ravel()).tolist():
        mine, other = slice(*sections[sender]), sender ^ 1
        queues[other].acknowledged(data, rows[mine], acks[mine], same[mine], places(odd[mine]), carrying.of(other))
