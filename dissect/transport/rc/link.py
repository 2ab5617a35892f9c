"""One Reliable Connection as it is observed: its two send queues, and the order of events over both."""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from ...arrays import Bytes, Rows, take
from ...layers import opcodes
from ...named_tuple import NamedTuple
from ..connection import Connection
from ..operations import Delivered, Operation
from ..runs import Run, postponed
from .cm import ConnectionRequest
from .health import RcHealth
from .lost_packets import COPIES_FOLLOW, LinkSilences, PacketClock
from .reads import mtu_changes
from .seen_psns import SentRequests
from .send_queue import SendQueue


class Resting(NamedTuple):
    """The whole state of a queue at rest; PSNs are unwrapped."""

    head: int | None
    base: int | None
    acked: int
    order: int
    """Frame of the last message delivered."""
    started: bool
    delivered: bool


def at_rest(queue: SendQueue) -> Resting | None:
    """The state from which ``resumed`` can make the queue again, after ``forget``; None if that is not all of it."""
    messages = queue.messages
    under_way = queue.held or queue.responses or queue.stray or queue.reads.reads or queue.gap_proved
    remembered = queue.before_base or queue.given_up or queue.has_detached or not queue.missing.none
    if under_way or remembered or not messages.idle:
        return None
    return Resting(queue.head, queue.base, queue.acked, messages.order, queue.started, messages.delivered)


def resumed(connection: Connection, sender: int, known: Resting, sent: SentRequests | None = None) -> SendQueue:
    """A queue that continues where ``known`` left off."""
    queue = SendQueue(connection, sender, sent=sent)
    queue.head, queue.base, queue.acked = known[:3]
    queue.started = known.started
    queue.messages.resume(known.order, known.delivered)
    return queue


PATIENCE = 5_000_000_000
"""Nanoseconds without any packet of a connection after which a lost packet is not retransmitted any more."""
SETTLED = 10_000_000_000
"""Nanoseconds without any packet after which no repetition is expected at all."""


class RcLink:
    """A connection and the observers of its two send queues."""

    __slots__ = ("_queues", "_resting", "closing", "connection", "forgotten", "health", "packets", "request", "waiting")

    def __init__(self, connection: Connection, request: ConnectionRequest | None) -> None:
        self.connection = connection
        self._queues: tuple[SendQueue, ...] | None = None
        """None before the first packet, and at rest: few packets follow when a connection is over."""
        self._resting: bytes | None = None
        """The Resting state of both queues, packed."""
        self.health = RcHealth(connection)
        self.request = request
        """The CM REQ, None if none was seen."""
        self.packets = 0
        self.closing = False
        """Disconnected: after this batch nothing will be retransmitted."""
        self.forgotten = False
        """Silent for so long that no repetition is expected."""
        self.waiting: Sequence[tuple[int, Operation]] = ()

    @property
    def queues(self) -> tuple[SendQueue, ...]:
        """The send queues of endpoint 0 and 1."""
        if self._queues is None:
            connection = self.connection
            resting = None if self._resting is None else marshal.loads(self._resting)
            sent = [queue.sent for queue in self.health.retransmissions]
            self._queues = tuple(
                [
                    resumed(connection, sender, Resting(*resting[sender]), sent[sender])
                    if resting is not None
                    else SendQueue(connection, sender, connection.endpoints[1 - sender].start_psn, sent[sender])
                    for sender in (0, 1)
                ]
            )
            self._resting = None
        return self._queues

    @property
    def expecting(self) -> bool:
        """Whether it is known which packets come next, and nothing unusual is going on."""
        first, second = self.queues
        return (
            not self.waiting
            and first.expecting
            and second.expecting
            and self.health.expecting((first.head, second.head))
        )

    def feed(
        self, data: Bytes, sent: tuple[Rows, Rows], runs: list[Run] | None = None, every: Rows | None = None
    ) -> Delivered:
        """Take the packets of one batch, by sender, in capture order; returns Operations in the order of events.

        With ``runs``, ordinary Operations that need not wait behind a gap go there instead.  ``every``: the packets of
        all connections.
        """
        if changes := mtu_changes(sent):
            first, second = (np.split(rows, rows["frame"].searchsorted(changes)) for rows in sent)
            parts = zip(first, second, strict=True)
            return [event for part in parts for event in self.feed(data, part, runs, every)]
        connection = self.connection
        silences = None if every is None else LinkSilences((connection.last_frame, connection.last_time), sent, every)
        split: list[tuple[Rows, Rows]] = []
        for sender, rows in enumerate(sent):
            responding = opcodes.IS_RESPONSE[rows["opcode"]]
            split.append((take(rows, ~responding), take(rows, responding)))
            if not len(rows):
                continue
            frames, times = rows["frame"], rows["time"]
            ends = [(int(frames[at]), int(times[at])) for at in (0, -1)]
            connection.passed(sender, len(rows), int(rows["length"].sum()), *ends)
        clock = PacketClock(self.packets, sent[0]["frame"], sent[1]["frame"], silences=silences)
        self.packets = clock.now
        self.forgotten = False
        fresh: list[tuple[Delivered, list[Run]]] = []
        for sender in (0, 1):
            made: list[Run] | None = None if runs is None else []
            delivered = self.queues[sender].feed(data, split[sender][0], split[1 - sender][1], clock, made)
            fresh.append((delivered, made or []))
        waiting, mark = [*self.waiting], self._mark
        for delivered, plain in fresh:
            left: list[tuple[int, int, Operation]] = []
            for run in plain:
                if mark is not None and run.last_place >= mark:
                    left += run.cut(mark)
                if runs is not None and len(run):
                    runs.append(run)
            # An Operation outside a run waited for the packet that has the same place, or for a row.
            left.sort(key=itemgetter(0, 1))
            waiting += [(order, operation) for order, _, operation in left] + delivered
        self.health.feed(sent, split, (self.queues[0].reusing, self.queues[1].reusing))
        return self._postponed(waiting, [run for _, plain in fresh for run in plain if len(run)])

    def begin(self, order: int) -> None:
        """Let nothing that waits happen before this place in the order of events."""
        self.waiting = tuple((max(waiting_order, order), operation) for waiting_order, operation in self.waiting)
        for queue in self.queues:
            queue.messages.order = max(queue.messages.order, order)

    @property
    def _mark(self) -> int | None:
        """The first frame that waits behind a gap, in either queue."""
        return min((held.frame for queue in self.queues for held in queue.held), default=None)

    def _release(self, waiting: Delivered) -> Delivered:
        """Take out what happened before the first packet that still waits behind a gap, in either queue."""
        waiting.sort(key=itemgetter(0))
        mark, count = self._mark, len(waiting)
        if mark is not None:
            count = next((index for index, (order, _) in enumerate(waiting) if order >= mark), count)
        self.waiting = tuple(waiting[count:])
        return waiting[:count]

    def _postponed(self, waiting: Delivered, runs: Sequence[Run] = ()) -> Delivered:
        """As ``_release``, with Operations and rows moved to the places at which they can happen."""
        delivered = self._release(waiting)
        released = [pair for queue in self.queues for pair in queue.released]
        for queue in self.queues:
            queue.released = ()
        return postponed(delivered, runs, released) if released else delivered

    def open_since(self, sender: int) -> int | None:
        """The first frame of a message of ``sender`` that is incomplete but may still be completed; None for none."""
        return None if self._queues is None else self.queues[sender].open_since()

    def settle(self) -> None:
        """End the batch: keep what later packets are compared with, unless none is expected."""
        for queue in self._queues or ():
            queue.settle(not self.closing)
        for _, operation in self.waiting:
            operation.payload.own_rows()

    def forget(self) -> None:
        """Drop what is kept for repetitions, and put the queues to rest: the connection is over."""
        self.closing = False
        self.health.flush()
        if self._queues is None:
            return
        for queue in self.queues:
            queue.forget()
        first, second = map(at_rest, self.queues)
        if first is not None and second is not None:
            self._resting, self._queues = marshal.dumps((tuple(first), tuple(second))), None

    def idle(self, since: int) -> Delivered:
        """No packet came for ``since`` nanoseconds: give up gaps that will not be filled any more."""
        if since >= SETTLED and not self.forgotten:
            self.forgotten = True
            self.forget()
            if self.connection.ended_by:
                return self.finish()
        return self.give_up_gaps(since < PATIENCE, self.connection.last_frame) if since >= COPIES_FOLLOW else []

    def give_up_gaps(self, filled: bool, frame: int) -> Delivered:
        """Release what waits behind gaps, or only behind ``filled`` ones, no later than at ``frame``."""
        if self._queues is None or not any(queue.held for queue in self._queues):
            return []
        waiting = [*self.waiting]
        for queue in self._queues:
            waiting += queue.give_up_gaps(filled, frame)
        return self._postponed(waiting)

    @property
    def gap_filled(self) -> bool:
        """Whether something waits only because copies of it may follow."""
        return any(queue.gap_filled for queue in self._queues or ())

    def finish(self) -> Delivered:
        """Release everything: nothing more is expected."""
        waiting = [*self.waiting]
        for queue in self._queues or ():
            waiting += queue.finish()
        waiting.sort(key=itemgetter(0))
        self.waiting = ()
        return waiting

    def release(self) -> None:
        """Drop the queues, as no more packets come; the health stays."""
        self._queues = self._resting = None
