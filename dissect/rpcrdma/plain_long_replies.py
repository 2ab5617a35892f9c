"""Calls of a batch that are plain but for a Reply chunk of one segment, and whose reply came through it.

Servers return larger results so (RFC 8166, 3.5.3).  One RDMA Write fills the segment from its start, and the reply's
Send says how far.  ``Matching`` and ``AdvertisedMemory`` would see nothing else of the segment between call and reply.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Rows
from ..layers.oncrpc_codes import MSG_ACCEPTED, REPLY
from ..layers.rpcrdma_codes import RDMA_NOMSG
from ..transport.operations import WRITE, Operation
from .memory import AdvertisedMemory
from .messages import HEADER, LONG_HEADER, Segment, TransportHeader, WriteChunk
from .rpcs import ChunkUse, Rpc, SegmentUse
from .transport_header import decode_header

_REPLY = Struct(">7I").unpack_from

Place = tuple[int, int, int]
"""Index of the connection, the caller, and the handle."""


class LongReply(NamedTuple):
    """What a call and its reply say of the Reply chunk."""

    call_place: int
    reply_place: int
    """In the order of events."""
    call_time: int
    reply_time: int
    xid: int
    handle: int
    length: int
    offset: int
    returned: int
    same_place: bool
    """Handle and offset in the reply are those of the call."""


class Transfer(NamedTuple):
    """The RDMA Write of a reply, and the first word of its results."""

    operation: Operation
    result: int


def advertised(headers: Iterable[tuple[int, int, TransportHeader]]) -> set[Place] | None:
    """Memory that any of these messages of connections and senders names; None where it cannot be told."""
    found: set[Place] = set()
    for link, sender, header in headers:
        if header.problem:
            return None
        chunks = [*header.reads, *header.writes, *((header.reply,) if header.reply else ())]
        found.update((link, sender, segment.handle) for chunk in chunks for segment in chunk.segments)
    return found


def quiet(memory: AdvertisedMemory) -> bool:
    """No Operation waits for the call that it belongs to."""
    return not memory.unplaced and not memory.contested_count


def header_of(operation: Operation) -> TransportHeader:
    """The transport header of a Send."""
    data, start, end = operation.payload.prefix()
    return decode_header(data, start, end, operation.length)


def transfers(
    replies: Sequence[tuple[Place, LongReply]], operations: dict[Place, list[tuple[int, Operation]]]
) -> list[Transfer | None]:
    """The transfers of replies, in the same order; None for those that are not plain.

    ``operations``: all on the memory of a caller, with their places in the order of events.
    """
    by_place: dict[Place, list[int]] = {}
    for index, (place, _) in enumerate(replies):
        by_place.setdefault(place, []).append(index)
    found: list[Transfer | None] = [None] * len(replies)
    for place, indices in by_place.items():
        used = operations.get(place, ())
        if len(used) != len(indices):
            continue
        indices.sort(key=lambda index: replies[index][1].call_place)
        made: list[Transfer] = []
        reached = -1
        for index, (at, operation) in zip(indices, used, strict=True):
            reply = replies[index][1]
            result = _result(reply, operation)
            if result is None or not reached < reply.call_place < at < reply.reply_place:
                break
            reached = reply.reply_place
            made.append(Transfer(operation, result))
        else:
            for index, transfer in zip(indices, made, strict=True):
                found[index] = transfer
    return found


def _result(reply: LongReply, operation: Operation) -> int | None:
    """The first word of the results, where the Operation is the one Write that a plain reply takes."""
    payload = operation.payload
    if (
        operation.kind is not WRITE
        or not reply.same_place
        or operation.address != reply.offset
        or not operation.length == payload.length == reply.returned <= reply.length
        or not (payload.whole and operation.start_known and operation.end_known)
        or operation.contradicted
        or not reply.call_time <= operation.first_time <= operation.last_time <= reply.reply_time
    ):
        return None
    data, start, end = payload.first()
    if end - start < 28:
        return None
    xid, *words, result = _REPLY(data, start)
    return result if xid == reply.xid and words == [REPLY, MSG_ACCEPTED, 0, 0, 0] else None


def complete(rpc: Rpc, reply: LongReply, operation: Operation) -> None:
    """Give an Rpc that was made as if its Sends had no chunks what makes it one with a Reply chunk."""
    assert rpc.call is not None and rpc.reply is not None
    segment = Segment(reply.handle, reply.length, reply.offset)
    returned = segment._replace(length=reply.returned)
    for message, one in ((rpc.call, segment), (rpc.reply, returned)):
        message.start += LONG_HEADER - HEADER
        message.end += LONG_HEADER - HEADER
        message.header.length = LONG_HEADER
        message.header.reply = WriteChunk((one,))
    rpc.reply.header.procedure = RDMA_NOMSG
    rpc.chunks = [ChunkUse("reply", None, [SegmentUse(segment, reply.returned, [operation])])]


def note_transfers(rows: Rows, through: NDArray[np.bool_], transfers: list[tuple[LongReply, Operation]]) -> None:
    """What RPC rows say of their Reply chunks."""
    found = [(reply.returned, one.last_time - one.first_time, one.retransmissions) for reply, one in transfers]
    returned, writes, retransmissions = np.array(found, np.int64).T
    rows["reply_chunk_bytes"][through] = returned
    rows["reply_chunks"][through] = rows["reply_segments"][through] = 1
    rows["latency_server"][through] -= writes
    rows["latency_writes"][through] = writes
    rows["retransmissions"][through] = retransmissions
