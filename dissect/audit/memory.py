"""What memory the calls of one connection advertised, answered ones included, and whether RDMA kept to it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Container, Sequence
from typing import NamedTuple

from ..intervals import IntervalSet
from ..rpcrdma.memory import REORDERED
from ..rpcrdma.messages import Message
from ..rpcrdma.rpc_table import PlainRpcs, made
from ..rpcrdma.rpcs import Rpc
from ..rpcrdma.segment_table import AdvertisedSegment, SegmentTable
from ..transport.connection import Connection
from ..transport.operations import Operation
from .events import RdmaOperation
from .rule import precedes
from .transaction import HandleStep, Transaction, delivers, remember

PERSISTENT = 16
"""Calls in a row that advertise a handle, from which on it is persistent."""
PREDICTABLE = 32
"""Handles in a row of one step, from which on they are predictable."""
NEARBY = 128
"""Calls with chunks within which a handle that comes back is the same registration."""
MAX_ADVERTISERS = 256
"""Calls with chunks of each end whose memory is remembered, answered ones included: each takes some kilobytes."""


class Offer(NamedTuple):
    """What the memory of a call shows."""

    step: HandleStep
    persistent: tuple[int, int]
    """As in ``Transaction``."""

    @property
    def remarkable(self) -> bool:
        """A rule may have something to say of it."""
        return self.persistent[1] >= PERSISTENT or self.step.run >= PREDICTABLE > self.step.before


class AdvertisedHistory:
    """Of the calls of both ends; those of ``MAX_ADVERTISERS`` calls with chunks each."""

    def __init__(self, connection: Connection, unanswered: Sequence[Container[Rpc]]) -> None:
        """``unanswered``: the calls of both ends without a reply, as they are at any time."""
        self.connection = connection
        self._unanswered = unanswered
        self.segments = SegmentTable(), SegmentTable()
        """By owner."""
        self.advertisers: tuple[list[Rpc], ...] = ([], [])
        self.handles: tuple[OrderedDict[int, tuple[int, int]], ...] = (OrderedDict(), OrderedDict())
        """Handle -> how many calls in a row advertised it, and the last of them, counted in calls with chunks."""
        self._kept: deque[PlainRpcs] = deque()
        self.chunked = [0, 0]
        self.steps = [(0, 0, 0), (0, 0, 0)]
        """By owner: the last handle, the step to it, and how often in a row that step was taken."""
        self.indexed: tuple[OrderedDict[int, int], ...] = (OrderedDict(), OrderedDict())
        """By owner: the last handle of each index, which is what stands before the last eight bits."""
        self.index_steps = [(0, 0), (0, 0)]
        """By owner: the step from the last handle of an index to its next, and how often in a row it was taken."""

    def advertise(self, transaction: Transaction, owner: int) -> None:
        """A call offers its chunks."""
        rpc = transaction.rpc
        handles = [use.advertised.handle for chunk in rpc.chunks for use in chunk.segments]
        transaction.handle_step, transaction.persistent = self.offer(owner, handles)
        self.remember(rpc, owner)

    def offer(self, owner: int, handles: Sequence[int]) -> Offer:
        """A call offers memory with these handles."""
        self.chunked[owner] += 1
        now, longest = self.chunked[owner], (0, 0)
        step = self._step(handles, owner)
        for handle in {*handles}:
            run, last = self.handles[owner].get(handle, (0, 0))
            run = run + 1 if now - last <= NEARBY else 1
            remember(self.handles[owner], handle, (run, now))
            longest = max(longest, (run, handle))
        return Offer(step, (longest[1], longest[0]))

    def remember(self, rpc: Rpc, owner: int) -> None:
        """What a call offered.  Those that are unanswered are never forgotten."""
        self.segments[owner].add(rpc)
        advertisers = self.advertisers[owner]
        advertisers.append(rpc)
        while len(advertisers) > MAX_ADVERTISERS and advertisers[0] not in self._unanswered[owner]:
            self.segments[owner].remove(advertisers.pop(0))

    def keep(self, answered: PlainRpcs) -> None:
        """The same of a client's calls that were answered, which become objects when RDMA touches the client."""
        self._kept.append(answered)
        while sum([len(one.rows) for one in self._kept]) - len(self._kept[0].rows) >= MAX_ADVERTISERS:
            self._kept.popleft()

    def _restore(self) -> None:
        """Make objects of those, among the others."""
        made_of = [rpc for plain in self._kept for rpc in made(plain, plain.rows)]
        calls = sorted((*made_of, *self.advertisers[0]), key=lambda rpc: rpc.call_frame)
        self._kept.clear()
        self.segments[0].clear()
        self.advertisers[0].clear()
        for rpc in calls:
            self.remember(rpc, 0)

    def _step(self, handles: Sequence[int], owner: int) -> HandleStep:
        """The step from each new handle to the next, and how many in a row it was, this call's included."""
        indexed = self.indexed[owner]
        runs = self.steps[owner][2], self.index_steps[owner][1]
        for handle in handles:
            before = indexed.get(handle >> 8)
            remember(indexed, handle >> 8, handle)
            last, step, run = self.steps[owner]
            if handle == last or handle in self.handles[owner]:
                continue
            this = (handle - last) & 0xFFFFFFFF
            self.steps[owner] = handle, this, run + 1 if this == step else 1
            if before is not None:
                step, run = self.index_steps[owner]
                this = (handle - before) & 0xFF
                self.index_steps[owner] = this, run + 1 if this == step else 1
        _, step, run = self.steps[owner]
        index_step, index_run = self.index_steps[owner]
        if run >= index_run:
            return HandleStep(step, run, runs[0], False)
        return HandleStep(index_step, index_run, runs[1], True)

    def candidates(self, operation: Operation) -> list[AdvertisedSegment]:
        """The segments that an RDMA Read or Write touches."""
        if operation.initiator and self._kept:
            self._restore()
        return self.segments[1 - operation.initiator].touched(
            operation.kind, operation.handle, operation.address, operation.address + operation.length
        )

    def behind(self, operation: Operation, reply: Message) -> bool:
        """Whether it was certainly issued behind a reply."""
        return precedes(self.connection, reply.operation, operation)

    def answered(self, operation: Operation) -> list[Rpc]:
        """Whose memory an operation behind their replies is on; none where another call offers it by now."""
        rpcs = [segment.rpc for segment in self.candidates(operation)]
        late = [rpc for rpc in rpcs if rpc.reply is not None and self.behind(operation, rpc.reply)]
        return late if len(late) == len(rpcs) else []

    def place(self, moved: RdmaOperation) -> None:
        """Say where an operation went, now that calls which the capture shows late are known, too."""
        operation = moved.operation
        start, end = operation.address, operation.address + operation.length
        candidates = []
        for segment in self.candidates(operation):
            call = segment.rpc.call
            assert call is not None
            if call.operation.first_frame - operation.first_frame <= REORDERED:
                candidates.append(segment)
        current: list[AdvertisedSegment] = []
        late: list[AdvertisedSegment] = []
        for one in candidates:
            behind = one.rpc.reply is not None and self.behind(operation, one.rpc.reply)
            (late if behind else current).append(one)
        if _covered(current, start, end):
            moved.place, moved.rpc = "inside", current[0].rpc
        elif _covered(candidates, start, end):
            moved.place = "late"
            moved.rpc = late[-1].rpc
            moved.delivers = any(delivers(one.rpc, operation) for one in late)
        else:
            moved.place = "outside"
            segments = self.segments[1 - operation.initiator]
            near = candidates[-1] if candidates else segments.latest(operation.handle)
            if near is not None:
                moved.rpc = near.rpc
                moved.near = f"the nearest is {near.end - near.start} bytes at 0x{near.start:x}"
                if near.kind is not operation.kind:
                    moved.near += f", for RDMA {near.kind.name.capitalize()}s"


def _covered(segments: list[AdvertisedSegment], start: int, end: int) -> bool:
    if len(segments) == 1:
        return segments[0].start <= start and end <= segments[0].end
    together = IntervalSet()
    for segment in segments:
        together.add(segment.start, segment.end)
    return together.covers(start, end)
