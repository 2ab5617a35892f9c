"""Memory that open calls advertised, and the RDMA Reads and Writes on it (RFC 8166, 3.4.3).

Transfers are matched by owner, handle and address, and only while the call is open: never by packet counts or by handle
alone.  A client may use one buffer for call after call.  A send queue executes in order, so an RDMA Write belongs to
its initiator's next reply that returns the segment; an RDMA Read belongs to a call before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..intervals import IntervalSet
from ..layers.rpcrdma_codes import RDMA_ERROR
from ..serial import PSN
from ..transport.connection import MAX_GAPS, Connection
from ..transport.operations import READ, WRITE, Kind, Operation
from .messages import Message, TransportHeader
from .rpcs import ChunkUse, Rpc, SegmentUse
from .segment_table import MAX_TOUCHED, AdvertisedSegment, SegmentTable

REORDERED = 256
"""Frames by which a capture may show an effect before its cause."""


UNBOUNDED = 1 << 62
MAX_CONTESTED = 4096
"""Operations, on memory that several open calls share, that wait for the replies to these calls."""
MAX_COMPARED = 1 << 16
"""Limit of segments of a call times Operations to compare when its reply comes."""


class AdvertisedMemory:
    """The memory that the calls of one connection advertise, and the Reads and Writes that touched it."""

    __slots__ = ("_connection", "contested", "contested_count", "segments", "strangers", "unplaced", "unplaced_count")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.segments = SegmentTable(), SegmentTable()
        """Open segments, by owner."""
        self.unplaced: list[Operation] = []
        """The latest Reads and Writes outside all advertised memory, unless a reply claimed them."""
        self.unplaced_count = 0
        self.strangers: list[tuple[int, int]] = []
        """The latest replies without a known call: sender, and position in the order of what it sent."""
        self.contested: tuple[dict[int, dict[Operation, None]], ...] = ({}, {})
        """By owner and handle: Operations that several open calls may claim."""
        self.contested_count = 0

    def withdraw(self, owner: int, rpc: Rpc, begun: bool = True) -> None:
        """Remove the segments of a call that is no longer open; ``begun``: see ``unanswered``."""
        segments = self.segments[owner]
        segments.remove(rpc)
        if rpc.reply is None:
            self.unanswered(rpc, begun)
        if self.contested_count:
            for handle in _handles(rpc):
                waiting = self.contested[owner].get(handle)
                if waiting and rpc.reply is None:
                    _mark_contested(rpc, handle)
                if waiting is not None and handle not in segments:
                    self.contested_count -= len(self.contested[owner].pop(handle))

    def forget(self, before: int) -> None:
        """Drop Operations before time ``before`` (ns): no call that advertised their memory will come any more."""
        while self.unplaced and self.unplaced[0].last_time < before:
            del self.unplaced[0]

    def unanswered(self, rpc: Rpc, begun: bool) -> None:
        """Keep only the sure Operations of a call that ends without a reply: what the capture shows before the call may
        be for an earlier one, and once its reply may be missing, the rest for a later one.  ``begun``: replies before
        the call are in the capture, or known to be missing."""
        assert rpc.call is not None
        call = rpc.call.operation
        gaps = [
            gap for gap in self._connection.gaps[1 - call.initiator] if gap.last_frame > call.first_frame - REORDERED
        ]
        for chunk in rpc.chunks:
            for use in chunk.segments:
                sure: list[Operation] = []
                reached = IntervalSet()
                for operation in use.operations:
                    late = not begun or any(self._lead(operation, gap.start) <= 0 for gap in gaps)
                    if not late and operation.first_time >= call.first_time:
                        reached.add(operation.address, _end(operation))
                        sure.append(operation)
                    elif reached.missing(operation.address, _end(operation)):
                        use.doubtful += (operation,)
                use.operations[:] = sure

    def release(self, owner: int) -> None:
        """No more replies come: mark segments with unclaimed Operations as contested, as nothing decides whose they
        are."""
        for operations in self.contested[owner].values():
            for operation in operations:
                for entry in self._touched(owner, operation):
                    entry.use.contested = True
            self.contested_count -= len(operations)
        self.contested[owner].clear()

    def clear(self, owner: int) -> None:
        """Drop all segments of one end, when its calls are over."""
        self.segments[owner].clear()

    def advertise(self, owner: int, rpc: Rpc, header: TransportHeader) -> None:
        rpc.chunks = advertised_chunks(header)
        self.segments[owner].add(rpc)

    def transfer(self, operation: Operation) -> None:
        """Attach a Read or Write to the advertised segments it touches, or keep it as unplaced."""
        if not self._place(operation):
            self.unplaced.append(operation)
            if len(self.unplaced) > REORDERED:
                del self.unplaced[0]
            self.unplaced_count += 1

    def place_late(self, rpcs: Iterable[Rpc]) -> None:
        """Attach RDMA Writes that followed the replies of ``rpcs``, when their memory was no longer advertised."""
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
                        write
                        for write in writes.get((reply.initiator, handle), ())
                        if write.address < start + length
                        and start < write.address + write.length
                        and write.first_frame > reply.first_frame
                    )
                    use.late += late
                    placed.update(late)
        if placed:
            self.unplaced_count -= len(placed)
            remaining = [operation for operation in self.unplaced if operation not in placed]
            self.unplaced.clear()
            self.unplaced.extend(remaining)

    def _place(self, operation: Operation) -> bool:
        """Attach a Read or Write to the segments it touches; False if no call advertised them."""
        owner = 1 - operation.initiator
        touched = self._touched(owner, operation)
        if len(touched) == 1:
            touched[0].use.operations.append(operation)
            return True
        if len(touched) > MAX_TOUCHED:
            for entry in touched:
                entry.use.contested = True
        elif len(touched) > 1 and any(entry.rpc is not touched[0].rpc for entry in touched):
            self._contest(owner, operation)
        else:
            for entry in touched:
                entry.use.operations.append(operation)
        return bool(touched)

    def _touched(self, owner: int, operation: Operation) -> list[AdvertisedSegment]:
        return self.segments[owner].touched(operation.kind, operation.handle, operation.address, _end(operation))

    def _contest(self, owner: int, operation: Operation) -> None:
        """Keep an Operation until the first reply to a call that advertised its memory."""
        waiting = self.contested[owner].setdefault(operation.handle, {})
        waiting[operation] = None
        self.contested_count += 1
        if len(waiting) > MAX_CONTESTED:
            del waiting[next(iter(waiting))]
            self.contested_count -= 1

    def returned(self, rpc: Rpc, header: TransportHeader) -> None:
        """Note what a reply returns of the call's Write and Reply chunks, and claim the Operations on them."""
        note_returned(rpc, header)
        if self.contested_count and rpc.call is not None:
            for handle in _handles(rpc):
                waiting = self.contested[rpc.call.operation.initiator].get(handle)
                if waiting:
                    self._claim(rpc.call.operation.initiator, rpc, handle, waiting)
        self._settle_early(rpc)
        if rpc.reply is not None and header.procedure != RDMA_ERROR:
            answered = rpc.reply.operation.first_frame
            for operation in [moved for chunk in rpc.chunks for use in chunk.segments for moved in use.operations]:
                # A server replies when it has all arguments.
                if operation.kind is READ and operation.closed and operation.last_frame < answered:
                    operation.complete_before(answered)
        if self.unplaced and rpc.reply is not None:
            self.claim(rpc.reply)

    def was_read_before(self, rpc: Rpc, reply: Operation) -> bool:
        """Whether the reply's sender had read memory that the call offers, and no other call is known to have had
        it."""
        handles = {use.advertised.handle for chunk in rpc.chunks if chunk.kind == "read" for use in chunk.segments}
        reads = [operation for operation in self.unplaced if operation.kind is READ and operation.handle in handles]
        return any(self._lead(read, self._at(reply)) > 0 for read in reads if read.initiator == reply.initiator)

    def _settle_early(self, rpc: Rpc) -> None:
        """Decide about Operations that the capture shows before their call, by frame or, with several interfaces, by
        time.

        They belong to this call if no other reply can lie between them and its own; else they may be an earlier call's.
        """
        assert rpc.call is not None and rpc.reply is not None
        call, reply = rpc.call.operation, rpc.reply.operation
        nearest = self._nearest_stranger(reply)
        gaps = self._connection.gaps[call.initiator]
        unseen = not self._connection.start_known or any(gap.frame <= reply.last_frame for gap in gaps)
        unplaced: dict[tuple[Kind, int], list[Operation]] = {}
        for operation in self.unplaced:
            lead = self._lead(operation, self._at(reply))
            # A Read earlier by time, too, belongs to the call of a reply that follows it.
            other = operation.kind is READ and operation.first_time < call.first_time and lead > nearest
            if lead > 0 and not other and call.first_frame - operation.first_frame <= REORDERED:
                unplaced.setdefault((operation.kind, operation.handle), []).append(operation)
        placed: set[Operation] = set()
        for chunk in rpc.chunks:
            kind = READ if chunk.kind == "read" else WRITE
            for use in chunk.segments:
                early = [operation for operation in use.operations if operation.first_time < call.first_time]
                early += unplaced.get((kind, use.advertised.handle), ())
                if early:
                    # An Operation that is early only by its time may belong to a call that is not in the capture.
                    doubted = use.contested or (
                        unseen
                        and any(
                            operation.first_time < call.first_time and operation.first_frame > call.first_frame
                            for operation in early
                        )
                    )
                    sure = 0 if doubted or rpc.reply.header.procedure == RDMA_ERROR else self._unbroken(reply)
                    placed.update(self._place_early(use, kind, early, reply, sure))
        if placed:
            left = [operation for operation in self.unplaced if operation not in placed]
            self.unplaced_count -= len(self.unplaced) - len(left)
            self.unplaced = left

    def _place_early(
        self, use: SegmentUse, kind: Kind, early: list[Operation], reply: Operation, sure: int
    ) -> Iterator[Operation]:
        """Attach the Operations of ``early`` that belong to a segment, from the last to the first, and yield them."""
        _, length, start = use.advertised
        end = start + (length if kind is READ else min(length, use.returned or 0))
        own = [operation for operation in use.operations if operation not in early]
        reached = IntervalSet()
        for operation in own:
            reached.add(operation.address, _end(operation))
        for operation in sorted(early, key=_first_frame, reverse=True):
            low, high = max(start, operation.address), min(end, _end(operation))
            if low >= high or not reached.missing(low, high):  # It was overwritten since.
                continue
            if self._lead(operation, self._at(reply)) < sure:
                reached.add(low, high)
                own.append(operation)
                yield operation
            else:
                use.doubtful += (operation,)
        use.operations[:] = sorted(own, key=_first_frame)

    def _at(self, operation: Operation) -> int:
        """An Operation's position in the order of its initiator: a PSN, or a TCP stream position."""
        return operation.position if self._connection.of_tcp else operation.psn

    def _lead(self, operation: Operation, at: int) -> int:
        """How far an Operation is before position ``at``; negative if after."""
        start = self._at(operation)
        return at - start if self._connection.of_tcp else PSN.unwrap(start, at) - start

    def _unbroken(self, reply: Operation) -> int:
        """The distance before a reply within which the capture has every request of the reply's sender."""
        gaps, sender = self._connection.gaps[reply.initiator], reply.initiator
        leads = [-self._lead(reply, gap.start) for gap in gaps]
        unread, first = self._connection.unread_packets[sender], self._connection.unread_from[sender]
        behind = first is not None and first > reply.position
        if (unread and not behind) or (len(gaps) == MAX_GAPS and leads[0] <= 0):
            return 0
        return min([lead for lead in leads if lead > 0], default=UNBOUNDED)

    def _nearest_stranger(self, reply: Operation) -> int:
        """The distance from a reply back to the nearest reply of its sender without a known call."""
        leads = [-self._lead(reply, at) for sender, at in self.strangers if sender == reply.initiator]
        return min([lead for lead in leads if lead > 0], default=UNBOUNDED)

    def claim(self, reply: Message, stranger: bool = False) -> tuple[Operation, ...]:
        """Take the unplaced RDMA Writes before a reply on the memory it returns: no later reply may have them.

        ``stranger``: the reply's call is unknown, and open calls may have been given these Writes by mistake.
        """
        sender, at = reply.operation.initiator, self._at(reply.operation)
        if stranger:
            self.note_stranger(sender, at)
        unplaced: dict[int, list[Operation]] = {}
        for operation in self.unplaced:
            if operation.kind is WRITE and operation.initiator == sender and self._lead(operation, at) > 0:
                unplaced.setdefault(operation.handle, []).append(operation)
        claimed: dict[Operation, None] = {}
        header = reply.header
        for chunk in (*header.writes, *((header.reply,) if header.reply else ())):
            for handle, length, start in chunk.segments:
                end = start + max(1, length)
                there = unplaced.get(handle, [])
                claimed.update(
                    (operation, None) for operation in there if operation.address < end and start < _end(operation)
                )
                if stranger:
                    claimed |= self._withhold(1 - sender, handle, start, end)
        if claimed:
            self.unplaced = [operation for operation in self.unplaced if operation not in claimed]
        return tuple(claimed)

    def note_stranger(self, sender: int, at: int) -> None:
        """Remember a reply without a known call, sent at position ``at``."""
        self.strangers = [*self.strangers[1 - REORDERED :], (sender, at)]

    def found_call(self, reply: Message, claimed: Iterable[Operation]) -> None:
        """The call of a reply is known now: give back what the reply had claimed, as it may be the call's."""
        self.unplaced[:0] = claimed
        self.strangers = [at for at in self.strangers if at != (reply.operation.initiator, self._at(reply.operation))]

    def _withhold(self, owner: int, handle: int, start: int, end: int) -> dict[Operation, None]:
        """Take the RDMA Writes on this memory away from the open calls that have or contest them."""
        waiting = self.contested[owner].get(handle, {})
        lists = [entry.use.operations for entry in self.segments[owner].touched(WRITE, handle, start, end)]
        withheld: dict[Operation, None] = {}
        for operations in (*lists, [*waiting]):
            mine = {
                operation: None
                for operation in operations
                if operation.kind is WRITE and operation.address < end and start < _end(operation)
            }
            operations[:] = [operation for operation in operations if operation not in mine]
            withheld |= mine
        for operation in withheld.keys() & waiting.keys():
            del waiting[operation]
            self.contested_count -= 1
        self.unplaced_count += len(withheld)
        return withheld

    def _claim(self, owner: int, rpc: Rpc, handle: int, waiting: dict[Operation, None]) -> None:
        """Give Operations on memory that several open calls advertised to the first of them that is answered."""
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
        assert rpc.call is not None and rpc.reply is not None
        call, reply = rpc.call.operation, rpc.reply.operation
        sure, nearest = self._unbroken(reply), self._nearest_stranger(reply)
        for operation in list(waiting):
            start, end = operation.address, operation.address + operation.length
            taken = False
            for kind, use, reached in uses:
                low, high = use.advertised.offset, use.advertised.offset + use.advertised.length
                if (kind == "read") is not (operation.kind is READ) or start >= high or end <= low:
                    continue
                # Read twice: the second Read is for another call.  Nothing returned: this call's memory is unwritten.
                if reached.missing(start, end) != [(start, end)] if kind == "read" else not use.returned:
                    continue
                lead = self._lead(operation, self._at(reply))
                if kind == "read" and operation.first_time < call.first_time and lead > nearest:
                    continue
                if lead >= sure:  # A reply that is missing from the capture may have taken it.
                    use.contested = True
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
        """Contest shared memory that was written more than once: which Write is for which call is undecidable."""
        rewritten = False
        for use in written:
            low, high = use.advertised.offset, use.advertised.offset + use.advertised.length
            shared = [write for write in waiting if write.kind is WRITE and write.address < high and low < _end(write)]
            reached = IntervalSet()
            for write in (*use.operations, *shared):
                if reached.missing(write.address, _end(write)) != [(write.address, _end(write))]:
                    break
                reached.add(write.address, _end(write))
            else:
                continue
            rewritten = True
            last = max((write.first_frame for write in shared), default=0)
            use.operations[:] = [operation for operation in use.operations if operation.first_frame > last]
            for write in shared:
                for entry in self._touched(owner, write):
                    entry.use.contested = True
        return rewritten


def advertised_chunks(header: TransportHeader) -> list[ChunkUse]:
    """The chunks that a call advertises, as ChunkUse without transfers."""
    by_position: dict[int, ChunkUse] = {}
    for read in header.reads:  # segments of one Read chunk need not be adjacent in the list
        chunk = by_position.setdefault(read.position, ChunkUse("read", read.position, []))
        chunk.segments += [SegmentUse(segment) for segment in read.segments]
    chunks = list(by_position.values())
    chunks += [ChunkUse("write", None, [SegmentUse(segment) for segment in write.segments]) for write in header.writes]
    if header.reply:
        chunks.append(ChunkUse("reply", None, [SegmentUse(segment) for segment in header.reply.segments]))
    return chunks


def note_returned(rpc: Rpc, header: TransportHeader) -> None:
    """Note how much of the call's Write and Reply chunks a reply returns."""
    writes = [chunk for chunk in rpc.chunks if chunk.kind == "write"]
    pairs = [*zip(writes, header.writes, strict=False)]
    if header.reply:
        pairs += [(chunk, header.reply) for chunk in rpc.chunks if chunk.kind == "reply"]
    for chunk, returned in pairs:
        for use, segment in zip(chunk.segments, returned.segments, strict=False):
            use.returned = segment.length


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
    """Whether the reply returns more bytes than the captured RDMA Writes wrote."""
    return any(
        sum([operation.length for operation in use.operations]) < min(use.returned, use.advertised.length)
        for chunk in rpc.chunks
        for use in chunk.segments
        if use.returned and not use.contested
    )


def reads_closed(rpc: Rpc) -> bool:
    """Whether no RDMA Read of the RPC has responses outstanding."""
    for chunk in rpc.chunks:
        if chunk.kind == "read":
            for use in chunk.segments:
                for operation in use.operations:
                    if not operation.closed:
                        return False
    return True


def doubt_responses(rpc: Rpc) -> None:
    """Take back RDMA Reads whose responses may be those of later Reads, unless a later reply rules that out."""
    replied = 0 if rpc.reply is None else rpc.reply.operation.first_frame
    for chunk in rpc.chunks:
        for use in chunk.segments:
            doubted = tuple(operation for operation in use.operations if operation.doubted > replied)
            if doubted:
                use.doubtful += doubted
                use.operations[:] = [operation for operation in use.operations if operation not in doubted]
