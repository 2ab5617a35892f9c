"""What memory the calls of one connection advertised, and whether RDMA kept to it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Container
from typing import NamedTuple

from ..intervals import IntervalSet
from ..rpcrdma.memory import REORDERED
from ..rpcrdma.messages import Message
from ..rpcrdma.rpcs import Rpc
from ..transport.connection import Connection
from ..transport.operations import Kind, Operation
from .nouns import RdmaOperation
from .remembered import REMEMBERED, remember
from .subject import precedes
from .transaction import Transaction, delivers

NEARBY = 128
"""Calls with chunks within which a handle that comes back is the same registration."""


class AdvertisedSegment(NamedTuple):
    """A segment that a call advertised."""

    start: int
    end: int
    kind: Kind
    rpc: Rpc


class AdvertisedSegments:
    """Of the calls of both ends; those of ``REMEMBERED`` calls with chunks each."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.adverts: tuple[dict[int, list[AdvertisedSegment]], ...] = ({}, {})
        """By owner and handle."""
        self.advertisers: tuple[deque[Rpc], ...] = (deque(), deque())
        self.handles: tuple[OrderedDict[int, tuple[int, int]], ...] = (OrderedDict(), OrderedDict())
        """Handle -> how many calls in a row advertised it, and the last of them, counted in calls with chunks."""
        self.chunked = [0, 0]

    def advertise(self, transaction: Transaction, owner: int, unanswered: Container[Rpc]) -> None:
        """A call offers its chunks.  Those of unanswered calls are never forgotten."""
        rpc = transaction.rpc
        table = self.adverts[owner]
        self.chunked[owner] += 1
        now, longest = self.chunked[owner], (0, 0)
        for handle in _handles(rpc):
            run, last = self.handles[owner].get(handle, (0, 0))
            run = run + 1 if now - last <= NEARBY else 1
            remember(self.handles[owner], handle, (run, now))
            longest = max(longest, (run, handle))
        transaction.persistent = (longest[1], longest[0])
        for chunk in rpc.chunks:
            kind = Kind.READ if chunk.kind == "read" else Kind.WRITE
            for use in chunk.segments:
                handle, length, offset = use.advertised
                table.setdefault(handle, []).append(AdvertisedSegment(offset, offset + length, kind, rpc))
        advertisers = self.advertisers[owner]
        advertisers.append(rpc)
        while len(advertisers) > REMEMBERED and advertisers[0] not in unanswered:
            self._forget(owner, advertisers.popleft())

    def _forget(self, owner: int, rpc: Rpc) -> None:
        for handle in _handles(rpc):
            left = [advert for advert in self.adverts[owner].get(handle, ()) if advert.rpc is not rpc]
            if left:
                self.adverts[owner][handle] = left
            else:
                self.adverts[owner].pop(handle, None)

    def candidates(self, operation: Operation) -> list[AdvertisedSegment]:
        """The segments that an RDMA Read or Write touches."""
        start, end = operation.address, operation.address + operation.length
        return [
            advert
            for advert in self.adverts[1 - operation.initiator].get(operation.handle, ())
            if advert.start < end and start < advert.end and advert.kind is operation.kind
        ]

    def behind(self, operation: Operation, reply: Message) -> bool:
        """Whether it was certainly issued behind a reply."""
        return precedes(self.connection, reply.operation, operation)

    def place(self, movement: RdmaOperation) -> None:
        """Say where an operation went, now that calls which the capture shows late are known, too."""
        operation = movement.operation
        start, end = operation.address, operation.address + operation.length
        candidates = []
        for advert in self.candidates(operation):
            call = advert.rpc.call
            assert call is not None
            if call.operation.first_frame - operation.first_frame <= REORDERED:
                candidates.append(advert)
        current = [one for one in candidates if one.rpc.reply is None or not self.behind(operation, one.rpc.reply)]
        if _covered(current, start, end):
            movement.place, movement.rpc = "inside", current[0].rpc
        elif _covered(candidates, start, end):
            movement.place = "late"
            movement.rpc = next(one.rpc for one in reversed(candidates) if one not in current)
            movement.delivers = any(delivers(one.rpc, operation) for one in candidates if one not in current)
        else:
            movement.place = "outside"
            near = candidates or self.adverts[1 - operation.initiator].get(operation.handle, [])
            if near:
                movement.rpc = near[-1].rpc
                movement.near = f"the nearest is {near[-1].end - near[-1].start} bytes at 0x{near[-1].start:x}"
                if near[-1].kind is not operation.kind:
                    movement.near += f", for RDMA {near[-1].kind.name.capitalize()}s"


def _handles(rpc: Rpc) -> set[int]:
    return {use.advertised.handle for chunk in rpc.chunks for use in chunk.segments}


def _covered(adverts: list[AdvertisedSegment], start: int, end: int) -> bool:
    if len(adverts) == 1:
        return adverts[0].start <= start and end <= adverts[0].end
    together = IntervalSet()
    for advert in adverts:
        together.add(advert.start, advert.end)
    return together.covers(start, end)
