"""The plain RPCs of one batch beside its other events, as if all had happened one after the other."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from ..arrays import Int64s, Rows
from ..transport.connection import Link
from ..transport.operations import SEND, Operation
from ..transport.runs import Run
from .chunk_columns import PlainChunks
from .dispatch import Dispatcher
from .matching import Matching
from .rpc_numbers import RpcNumbers
from .rpc_table import PlainRpcs, RpcTable
from .rpcs import Rpc

LATE = 1 << 62
"""A place behind all events."""


Event = tuple[int, Link, Operation]
"""Frame number in whose place it stands, where, what."""
LinkRun = tuple[Link, Run]


class PlainBatch:
    """Has the order of events of a batch; its plain RPCs are counted in where their calls and replies are.

    Where another event has the place of a plain message, it waited for the packet of that one, and comes second.
    """

    def __init__(
        self,
        plain: PlainRpcs,
        starts: Int64s,
        links: Sequence[tuple[Link, Matching]],
        busy: set[int],
        listened: bool = False,
    ) -> None:
        """``plain.rows``: by direction, and in it by call, still without ``number`` and ``order``.

        ``starts``: of the directions, with their connections in ``links``; ``busy``: connection numbers of those that
        have other events, too.  ``listened``: a listener follows the order of all events.
        """
        rows = plain.rows
        self._listened = listened
        self.plain = plain
        self._calls: Int64s = rows["call_frame"].astype(np.int64)
        self._sorted_calls = np.sort(self._calls)
        self._all: list[PlainDirection] = []
        self._beside: dict[int, list[PlainDirection]] = {}
        """Of the busy connections, by number."""
        for (first, behind), (link, matching) in zip(pairwise([*starts.tolist(), len(rows)]), links, strict=True):
            direction = PlainDirection(matching, rows[first:behind], plain.chunks)
            self._all.append(direction)
            if (number := connection_number(link)) in busy:
                self._beside.setdefault(number, []).append(direction)
        self._note_credits(starts, links)
        self._ended: Int64s = np.empty(0, np.int64)

    def _note_credits(self, starts: Int64s, links: Sequence[tuple[Link, Matching]]) -> None:
        rows = self.plain.rows
        extremes = [
            one.reduceat(rows[name], starts).tolist()
            for name in ("credits_requested", "credits_granted")
            for one in (np.minimum, np.maximum)
        ]
        callers = rows["caller"][starts].tolist()
        for (_, matching), caller, lowest, highest, lowest_granted, highest_granted in zip(
            links, callers, *extremes, strict=True
        ):
            if not caller:
                conversation = matching.conversation
                conversation.note_requested(lowest)
                conversation.note_requested(highest)
                conversation.note_granted(lowest_granted)
                conversation.note_granted(highest_granted)

    def happen(
        self,
        events: Sequence[Event],
        dispatcher: Callable[[Link], Dispatcher],
        numbers: RpcNumbers,
        done: list[Rpc],
    ) -> None:
        """Let the other events of the batch happen; ``done`` is where RPCs that they end are put."""
        calls = self._sorted_calls.tolist()
        called = 0
        places: list[int] = []
        """Of the events that may begin or end RPCs; ``drawn`` and ``ended`` are as they are behind each."""
        drawn, ended = [numbers.last], [len(done)]
        listened, before = self._listened, None
        for place, link, operation in events:
            if link is not before:
                numbers.place = place
                before, taker = link, dispatcher(link)
                directions = self._beside.get(taker.conversation.connection.number, ())
            if operation.kind is not SEND and not listened:
                if taker.conversation.protocol == "rpcrdma":
                    taker.transfer(operation)
                    continue
                advanced: Sequence[PlainDirection] = ()
            else:
                advanced = directions
            ahead = bisect_right(calls, place, called)
            numbers.last += ahead - called
            called = ahead
            numbers.place = place
            for direction in advanced:
                direction.advance(place)
            taker.take(operation)
            for direction in advanced:
                direction.happened(place)
            places.append(place)
            drawn.append(numbers.last - called)
            ended.append(len(done))
        numbers.last += len(self._calls) - called
        rows = self.plain.rows
        happened = np.array(places, np.int64)
        rows["number"] = (
            np.array(drawn)[happened.searchsorted(self._calls)] + 1 + self._sorted_calls.searchsorted(self._calls)
        )
        rows["order"] = np.concatenate([direction.finish() for direction in self._all])
        first = 0
        for direction in self._all:
            direction.settle(rows[first : first + len(direction)], self.plain)
            first += len(direction)
        self._ended = np.repeat(happened, np.diff(ended))

    def finish(self, done: list[Rpc]) -> None:
        """All has ended; of ``done``, which are those that are objects, what did not by an event after all events."""
        rows = self.plain.rows
        places = np.concatenate((self._ended, np.full(len(done) - len(self._ended), LATE)))
        self.plain.rows = rows = rows.take(rows["reply_frame"].argsort())
        self._places = rows["reply_frame"].searchsorted(places, side="right") + np.arange(len(places))

    def table(self, objects: list[Rpc]) -> RpcTable:
        """All RPCs of the batch; ``objects`` as ``finish`` took them."""
        return RpcTable(objects, self.plain, self._places)


def connection_number(link: Link) -> int:
    """Of a link that has events."""
    assert link.connection is not None
    return link.connection.number


class PlainDirection:
    """The plain RPCs of one direction of a connection, and what ``Matching`` knows of them."""

    def __init__(self, matching: Matching, rows: Rows, chunks: PlainChunks | None) -> None:
        """``rows``: RPC rows in the order of calls."""
        self._matching = matching
        self._direction = matching.direction(int(rows["caller"][0]))
        self._calls: Int64s = rows["call_frame"].astype(np.int64)
        self._ranks: Int64s = rows["reply_frame"].argsort()
        """Of the calls that were answered, in the order of replies."""
        answers = rows.take(self._ranks)
        self._answers: Int64s = answers["reply_frame"].astype(np.int64)
        self._granted = answers["credits_granted"]
        # Lists: a bisection of an array makes a NumPy number at every step.
        self._call_frames: list[int] = self._calls.tolist()
        self._answer_frames: list[int] = self._answers.tolist()
        self._backwards: Int64s = np.append(0, np.cumsum(self._ranks[1:] < self._ranks[:-1]))
        """How many replies up to each answer an earlier call than the one before them."""
        self._called = self._answered = 0
        self._first = self._sent = self._direction.sent
        self._others: list[int] = []
        """Places of the direction's other calls in the order of events."""
        self._direction.answered.begin(self._answers, answers["xid"].astype(np.int64))
        if matching.columns is not None:
            matching.columns.plain_begins(rows, answers, chunks)

    def __len__(self) -> int:
        return len(self._calls)

    def advance(self, place: int) -> None:
        """What happens next is at ``place`` in the order of events: all before it has happened."""
        self._direction.answered.reached(place)
        called, answered = bisect_right(self._call_frames, place), bisect_right(self._answer_frames, place)
        if called != self._called or answered != self._answered:
            self._advance(called, answered)

    def _advance(self, called: int, answered: int) -> None:
        matching, direction = self._matching, self._direction
        if matching.columns is not None:
            matching.columns.plain_advanced(called, answered)
        direction.sent += called - self._called
        direction.outstanding += called - self._called - (answered - self._answered)
        if answered > self._answered:
            first, last = self._answered, answered - 1
            if self._order(first) < direction.last_answered or self._backwards[last] > self._backwards[first]:
                direction.in_order = False
            direction.last_answered = self._order(last)
            direction.granted = int(self._granted[last])
        self._called, self._answered = called, answered
        self._sent = direction.sent

    def happened(self, place: int) -> None:
        """The event at ``place`` did."""
        sent = self._direction.sent
        self._others += [place] * (sent - self._sent)
        self._sent = sent

    def _order(self, answer: int) -> int:
        """``Rpc.order`` of the call that this reply answers."""
        rank = int(self._ranks[answer])
        return self._first + rank + 1 + bisect_left(self._others, self._call_frames[rank])

    def finish(self) -> Int64s:
        """The batch is over; gives ``Rpc.order`` of its RPCs."""
        self._advance(len(self._calls), len(self._answers))
        orders: Int64s = self._first + 1 + np.arange(len(self._calls))
        return orders + np.searchsorted(self._others, self._calls) if self._others else orders

    def settle(self, rows: Rows, plain: PlainRpcs) -> None:
        """``rows``: those of its RPCs, in the order of calls, with their numbers."""
        self._direction.answered.end(rows["number"][self._ranks])
        if self._matching.columns is not None:
            self._matching.columns.plain_ended(rows, plain)
