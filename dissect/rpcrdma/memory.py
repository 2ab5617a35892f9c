"""Memory that open calls advertised, and the RDMA Reads and Writes on it (RFC 8166, 3.4.3).

By owner, handle and address, and only while the call is open: never by packet counts or by handle alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..intervals import IntervalSet
from ..transport.operations import READ, WRITE, Operation
from .messages import TransportHeader
from .rpcs import ChunkUse, Rpc, SegmentUse
from .segment_table import MAX_TOUCHED, SegmentTable

REORDERED = 256
"""Frames within which a capture may show an effect before its cause."""


MAX_CONTESTED = 4096
"""Operations on memory that several open calls share, which wait for the replies to these calls."""
MAX_COMPARED = 1 << 16
"""Segments of a call times Operations that are compared when its reply comes."""


class AdvertisedMemory:
    """Of one connection."""

    __slots__ = ("contested", "contested_count", "segments", "unplaced", "unplaced_count")

    def __init__(self) -> None:
        self.segments = SegmentTable(), SegmentTable()
        """Open segments, by owner."""
        self.unplaced: list[Operation] = []
        """The last Reads and Writes outside all advertised memory."""
        self.unplaced_count = 0
        self.contested: tuple[dict[int, dict[Operation, None]], ...] = ({}, {})
        """By owner and handle: Operations that more than one open call may claim."""
        self.contested_count = 0

    def withdraw(self, owner: int, rpc: Rpc) -> None:
        """The call is no longer open."""
        segments = self.segments[owner]
        segments.remove(rpc)
        if self.contested_count:
            for handle in _handles(rpc):
                waiting = self.contested[owner].get(handle)
                if waiting and rpc.reply is None:
                    _mark_contested(rpc, handle)
                if waiting is not None and handle not in segments:
                    self.contested_count -= len(self.contested[owner].pop(handle))

    def forget(self, before: int) -> None:
        """No call will show up any more that advertised memory for Operations before that time (ns)."""
        while self.unplaced and self.unplaced[0].last_time < before:
            del self.unplaced[0]

    def release(self, owner: int) -> None:
        """No more replies come: an Operation that no call claimed belongs to each that may have it."""
        for operations in self.contested[owner].values():
            for operation in operations:
                for entry in self.segments[owner].touched(operation):
                    entry.use.operations.append(operation)
            self.contested_count -= len(operations)
        self.contested[owner].clear()

    def clear(self, owner: int) -> None:
        """All calls of this end are over."""
        self.segments[owner].clear()

    def advertise(self, owner: int, rpc: Rpc, header: TransportHeader) -> None:
        by_position: dict[int, ChunkUse] = {}
        for read in header.reads:  # parts of a Read chunk may stand apart in the list
            chunk = by_position.setdefault(read.position, ChunkUse("read", read.position, []))
            chunk.segments += [SegmentUse(segment) for segment in read.segments]
        chunks = list(by_position.values())
        chunks += [
            ChunkUse("write", None, [SegmentUse(segment) for segment in write.segments]) for write in header.writes
        ]
        if header.reply:
            chunks.append(ChunkUse("reply", None, [SegmentUse(segment) for segment in header.reply.segments]))
        rpc.chunks = chunks
        self.segments[owner].add(rpc)
        if self.unplaced:
            self._place_early(rpc)

    def _place_early(self, rpc: Rpc) -> None:
        """A capture may show an RDMA Read or Write just before the call that allows it."""
        assert rpc.call is not None
        frame = rpc.call.operation.first_frame
        for operation in list(self.unplaced):
            if frame - operation.first_frame <= REORDERED and self._place(operation):
                self.unplaced.remove(operation)
                self.unplaced_count -= 1

    def transfer(self, operation: Operation) -> None:
        """A Read or Write was issued: find the segments it touches."""
        if not self._place(operation):
            self.unplaced.append(operation)
            if len(self.unplaced) > REORDERED:
                del self.unplaced[0]
            self.unplaced_count += 1

    def place_late(self, rpcs: Iterable[Rpc]) -> None:
        """Find RDMA Writes that followed the replies of these: nothing was advertised any more when they came."""
        if not self.unplaced or not rpcs:
            return
        writes: dict[tuple[int, int], list[Operation]] = {}
        for operation in self.unplaced:
            if operation.kind is WRITE:
                writes.setdefault((operation.initiator, operation.handle), []).append(operation)
        placed: set[Operation] = set()
        for rpc in rpcs:
            assert rpc.reply is not None
            reply = rpc.reply.operation
            for chunk in rpc.chunks:
                for use in chunk.segments if chunk.kind != "read" else ():
                    handle, length, start = use.advertised
                    late = tuple(
                        one
                        for one in writes.get((reply.initiator, handle), ())
                        if one.address < start + length
                        and start < one.address + one.length
                        and one.first_frame > reply.first_frame
                    )
                    use.late += late
                    placed.update(late)
        if placed:
            self.unplaced_count -= len(placed)
            remaining = [one for one in self.unplaced if one not in placed]
            self.unplaced.clear()
            self.unplaced.extend(remaining)

    def _place(self, operation: Operation) -> bool:
        """Attach a Read or Write to the segments it touches; False where no call advertised them."""
        owner = 1 - operation.initiator
        found = self.segments[owner].touched(operation)
        if len(found) == 1:
            found[0].use.operations.append(operation)
            return True
        if len(found) > MAX_TOUCHED:
            for entry in found:
                entry.use.contested = True
        elif len(found) > 1 and any(entry.rpc is not found[0].rpc for entry in found):
            self._contest(owner, operation)
        else:
            for entry in found:
                entry.use.operations.append(operation)
        return bool(found)

    def _contest(self, owner: int, operation: Operation) -> None:
        """The Operation waits for the first reply to a call that advertised its memory."""
        waiting = self.contested[owner].setdefault(operation.handle, {})
        waiting[operation] = None
        self.contested_count += 1
        if len(waiting) > MAX_CONTESTED:
            del waiting[next(iter(waiting))]
            self.contested_count -= 1

    def returned(self, rpc: Rpc, header: TransportHeader) -> None:
        """Note what a reply returns of the call's Write and Reply chunks, and claim the Operations on them."""
        writes = [chunk for chunk in rpc.chunks if chunk.kind == "write"]
        for chunk, returned in zip(writes, header.writes, strict=False):
            for use, segment in zip(chunk.segments, returned.segments, strict=False):
                use.returned = segment.length
        if header.reply:
            for chunk in rpc.chunks:
                if chunk.kind == "reply":
                    for use, segment in zip(chunk.segments, header.reply.segments, strict=False):
                        use.returned = segment.length
        if self.contested_count and rpc.call is not None:
            for handle in _handles(rpc):
                waiting = self.contested[rpc.call.operation.initiator].get(handle)
                if waiting:
                    self._claim(rpc.call.operation.initiator, rpc, handle, waiting)

    def _claim(self, owner: int, rpc: Rpc, handle: int, waiting: dict[Operation, None]) -> None:
        """Several open calls advertised the same memory: the first one answered takes the Operations."""
        uses = [
            (chunk.kind, use, IntervalSet())
            for chunk in rpc.chunks
            for use in chunk.segments
            if use.advertised.handle == handle
        ]
        if len(uses) * len(waiting) > MAX_COMPARED:
            _mark_contested(rpc, handle)
            return
        written = [use for kind, use, _ in uses if kind != "read" and use.returned]
        if self._contest_rewritten(owner, written, waiting):
            return
        for operation in list(waiting):
            start, end = operation.address, operation.address + operation.length
            taken = False
            for kind, use, reached in uses:
                low, high = use.advertised.offset, use.advertised.offset + use.advertised.length
                if (kind == "read") is not (operation.kind is READ) or start >= high or end <= low:
                    continue
                # Read twice: the second time for another of the calls.  Nothing returned: nothing of it was written.
                if reached.missing(start, end) != [(start, end)] if kind == "read" else not use.returned:
                    continue
                reached.add(start, end)
                use.operations.append(operation)
                taken = True
            if taken:
                del waiting[operation]
                self.contested_count -= 1
        for _, use, reached in uses:
            if reached:
                use.operations.sort(key=_first_frame)

    def _contest_rewritten(self, owner: int, written: list[SegmentUse], waiting: dict[Operation, None]) -> bool:
        """Where shared memory was written more than once, which RDMA Write is for which of the calls is undecidable."""
        rewritten = False
        for use in written:
            low, high = use.advertised.offset, use.advertised.offset + use.advertised.length
            shared = [one for one in waiting if one.kind is WRITE and one.address < high and low < _end(one)]
            reached = IntervalSet()
            for one in (*use.operations, *shared):
                if reached.missing(one.address, _end(one)) != [(one.address, _end(one))]:
                    break
                reached.add(one.address, _end(one))
            else:
                continue
            rewritten = True
            last = max((one.first_frame for one in shared), default=0)
            use.operations[:] = [one for one in use.operations if one.first_frame > last]
            for one in shared:
                for entry in self.segments[owner].touched(one):
                    entry.use.contested = True
        return rewritten


def _end(operation: Operation) -> int:
    return operation.address + operation.length


def _handles(rpc: Rpc) -> set[int]:
    return {use.advertised.handle for chunk in rpc.chunks for use in chunk.segments}


def _mark_contested(rpc: Rpc, handle: int) -> None:
    for chunk in rpc.chunks:
        for use in chunk.segments:
            if use.advertised.handle == handle:
                use.contested = True


def _first_frame(operation: Operation) -> int:
    return operation.first_frame


def unwritten(rpc: Rpc) -> bool:
    """Whether the reply returns bytes of memory that were not written, as far as the capture shows."""
    return any(
        sum([operation.length for operation in use.operations]) < min(use.returned, use.advertised.length)
        for chunk in rpc.chunks
        for use in chunk.segments
        if use.returned and not use.contested
    )


def reads_closed(rpc: Rpc) -> bool:
    """Whether no Read response is outstanding."""
    for chunk in rpc.chunks:
        if chunk.kind == "read":
            for use in chunk.segments:
                for operation in use.operations:
                    if not operation.closed:
                        return False
    return True
