"""Memory that open calls advertised, and the RDMA Reads and Writes on it (RFC 8166, 3.4.3).

By owner, handle and address, and only while the call is open: never by packet counts or by handle alone.
"""

from __future__ import annotations

from collections import deque

from ..transport.operations import Operation
from .messages import TransportHeader
from .rpcs import ChunkUse, Rpc, SegmentUse
from .segment_table import SegmentTable

REORDERED = 256
"""Frames within which a capture may show an effect before its cause."""


MAX_RIVALS = 4096
"""Operations that wait to be claimed; there are more only where replies are lost."""


class AdvertisedMemory:
    """Of one connection."""

    def __init__(self) -> None:
        self.segments = SegmentTable(), SegmentTable()
        """Open segments, by owner."""
        self.unplaced: deque[Operation] = deque(maxlen=REORDERED)
        """The last Reads and Writes outside all advertised memory."""
        self.unplaced_count = 0
        self.rivals: dict[Operation, list[SegmentUse]] = {}
        """Operations that more than one open call may claim."""

    def withdraw(self, owner: int, rpc: Rpc) -> None:
        """The call is no longer open."""
        self.segments[owner].remove(rpc)

    def forget(self, before: int) -> None:
        """No call will show up any more that advertised memory for Operations before that time (ns)."""
        while self.unplaced and self.unplaced[0].last_time < before:
            self.unplaced.popleft()

    def clear(self, owner: int) -> None:
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
            self.unplaced_count += 1

    def _place(self, operation: Operation) -> bool:
        """Attach a Read or Write to the segments it touches; False where no call advertised them."""
        found = self.segments[1 - operation.initiator].touched(operation)
        for entry in found:
            entry.use.operations.append(operation)
        if len(found) > 1 and any(entry.rpc is not found[0].rpc for entry in found):
            self.rivals[operation] = [entry.use for entry in found]
            if len(self.rivals) > MAX_RIVALS:
                del self.rivals[next(iter(self.rivals))]
        return bool(found)

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
        if self.rivals:
            self._claim(rpc)

    def _claim(self, rpc: Rpc) -> None:
        """The same memory was offered by several open calls: the first one answered takes the Operations."""
        for chunk in rpc.chunks:
            for use in chunk.segments:
                reached: dict[tuple[int, int], Operation] = {}
                for operation in list(use.operations):
                    shared = self.rivals.pop(operation, None)
                    if shared is None:
                        continue
                    span = operation.address, operation.address + operation.length
                    clash = next((o for s, o in reached.items() if s[0] < span[1] and span[0] < s[1]), None)
                    if clash is not None and chunk.kind == "read":
                        # It was read twice: the second time for another of the calls that offer it.
                        use.operations.remove(operation)
                        self.rivals[operation] = [other for other in shared if other is not use]
                        continue
                    if clash is not None:
                        rpc.damage += ("several open calls offered the same memory, and it was written more than once",)
                    reached[span] = operation
                    if chunk.kind != "read" and not use.returned:
                        use.operations.remove(operation)
                        self.rivals[operation] = [other for other in shared if other is not use]
                        continue
                    for other in shared:
                        if other is not use and operation in other.operations:
                            other.operations.remove(operation)
