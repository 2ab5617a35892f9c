"""How chunks are spoiled, and the RDMA Reads and Writes on them (RFC 8166, 3.4)."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import TYPE_CHECKING

from rdmascope.dissect.layers.oncrpc_codes import GARBAGE_ARGS
from rdmascope.dissect.layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from rdmascope.dissect.rpcrdma.messages import ReadChunk, Segment, WriteChunk

from ..endpoint import service
from ..endpoint.nouns import RdmaRead, RdmaWrite
from ..endpoint.payload import pad
from ..endpoint.plan import PlannedSend, moved, with_lengths
from .spoil import NOWHERE, WORD, Spoil, on, settled

if TYPE_CHECKING:
    from ..endpoint.view import EndpointView


# Read chunks


def reading(spoil: Spoil) -> Spoil:
    """Only calls with a Read chunk behind the start of the stream."""

    @on("call")
    def spoiled(endpoint: EndpointView, plan: PlannedSend) -> bool:
        return any(chunk.position for chunk in plan.header.reads) and spoil(endpoint, plan)

    return spoiled


def shifted(by: int) -> Spoil:
    """Other Positions."""

    @reading
    def spoil(endpoint: EndpointView, plan: PlannedSend) -> bool:
        plan.header.reads = tuple(
            moved(chunk, chunk.position + by if chunk.position else 0) for chunk in plan.header.reads
        )
        return True

    return spoil


@reading
def interleaved(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """The segments of the chunk at Position 0 around those of another."""
    reads = plan.header.reads
    if len(reads) < 2 or reads[0].position or len(reads[0].segments) < 2:
        return False
    first, *rest = reads[0].segments
    plan.header.reads = (ReadChunk(0, (first,)), *reads[1:], ReadChunk(0, tuple(rest)))
    return True


@reading
def pad_inline(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """The pad of the last item is left in the stream."""
    left = pad(plan.header.reads[-1].length)
    if not left or not plan.payload:
        return False
    plan.payload += left
    return True


@reading
def long_call_elsewhere(endpoint: EndpointView, plan: PlannedSend) -> bool:
    if not plan.payload:
        return False
    plan.header.procedure, plan.payload = RDMA_NOMSG, b""
    return True


@reading
def shorter_chunk(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """Four bytes fewer than the count word says."""
    *before, last = plan.header.reads
    *segments, final = last.segments
    if final.length <= WORD:
        return False
    plan.header.reads = (*before, ReadChunk(last.position, (*segments, final._replace(length=final.length - WORD))))
    return True


@reading
def not_eligible(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """The chunk stands where the file handle does."""
    if not plan.payload or len(plan.header.reads) != 1:
        return False
    chunk = plan.header.reads[0]
    plan.header.reads = (moved(chunk, chunk.position - 40),)
    return True


def ineligible_accepted(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """SUCCESS for a call with a Read chunk at an item that is not eligible, whatever else the answer would be."""
    failed = plan.kind == "error" or int.from_bytes(plan.payload[20:24], "big") == GARBAGE_ARGS
    if plan.backward or plan.asked is None or not failed or not any(chunk.position for chunk in plan.asked.reads):
        return False
    direction = 1 if plan.header.version > 1 else None
    plan.header.procedure, plan.header.error, plan.header.direction = RDMA_MSG, None, direction
    plan.payload = service.write_done(plan.header.xid)
    return True


@on("reply")
def read_list(endpoint: EndpointView, plan: PlannedSend) -> bool:
    plan.header.reads = (ReadChunk(0, (NOWHERE,)),)
    return True


def sealed(gss_procedure: int, before_end: int) -> Spoil:
    """An RPCSEC_GSS call (RFC 2203, 5.3), its Read chunk ``before_end`` bytes before the end of what is inline."""

    @reading
    def spoil(endpoint: EndpointView, plan: PlannedSend) -> bool:
        if not plan.payload or len(plan.header.reads) != 1:
            return False
        plan.payload = service.sealed_call(plan.header.xid, gss_procedure)
        plan.header.reads = (moved(plan.header.reads[0], len(plan.payload) - before_end),)
        return True

    return spoil


# Write chunks and the Reply chunk


@on("call")
def small_reply_chunk(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """Room for an eighth of what a directory listing asks for."""
    chunk = plan.header.reply
    if chunk is None or chunk.length < 8 * endpoint.receive_limit or plan.header.writes:
        return False
    plan.header.reply = with_lengths(chunk, [segment.length // 8 for segment in chunk.segments])
    return True


@on("call")
def small_write_chunk(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """Half of what a READ asks for, which then comes inline."""
    writes = plan.header.writes
    if len(writes) != 1 or plan.header.reply is not None or not 8 <= writes[0].length <= 1000:
        return False
    plan.header.writes = (with_lengths(writes[0], [segment.length // 2 for segment in writes[0].segments]),)
    return True


@on("call")
def no_reply_chunk(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """A directory listing of more bytes than fit inline, and no Reply chunk."""
    chunk = plan.header.reply
    if chunk is None or chunk.length < 2 * endpoint.receive_limit or plan.header.writes or not plan.payload:
        return False
    plan.header.reply = None
    return True


@on("reply", chunks=False)
def made_up_reply_chunk(endpoint: EndpointView, plan: PlannedSend) -> bool:
    plan.header.procedure, plan.payload = RDMA_NOMSG, b""
    plan.header.reply = WriteChunk((NOWHERE,))
    return True


def returning(spoil: Callable[[EndpointView, PlannedSend, WriteChunk, WriteChunk], bool]) -> Spoil:
    """Only READ replies whose first Write chunk holds something: what was advertised, and what is returned of it."""

    @on("reply")
    def spoiled(endpoint: EndpointView, plan: PlannedSend) -> bool:
        if not plan.header.writes or not plan.header.writes[0].length or plan.header.procedure != RDMA_MSG:
            return False
        assert plan.asked is not None
        return spoil(endpoint, plan, plan.asked.writes[0], plan.header.writes[0])

    return spoiled


def _return(plan: PlannedSend, chunk: WriteChunk) -> bool:
    plan.header.writes = (chunk, *plan.header.writes[1:])
    return True


def _unused(chunk: WriteChunk) -> bool:
    """Its last segment, one of several, was not needed."""
    return len(chunk.segments) > 1 and chunk.segments[-1].length == 0


@returning
def segment_missing(endpoint: EndpointView, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    return _unused(returned) and _return(plan, WriteChunk(returned.segments[:-1]))


@returning
def other_handle(endpoint: EndpointView, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    first, *rest = returned.segments
    return _return(plan, WriteChunk((first._replace(handle=0), *rest)))


@returning
def longer_than_given(endpoint: EndpointView, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """Twice what was advertised, the counts of the READ too: NFSv3 has one more, ahead of its end-of-file word."""
    if len(given.segments) > 1 or returned.length != given.length:
        return False
    twice, before = 2 * given.length, plan.payload[-12:-4]
    if before.startswith(pack(">I", given.length)):
        before = pack(">II", twice, 0)
    plan.payload = plan.payload[:-12] + before + pack(">I", twice)
    return _return(plan, with_lengths(returned, [2 * given.length]))


@returning
def out_of_order(endpoint: EndpointView, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """Half in the first segment, half in the second, which were both large enough for all."""
    first = plan.before[0] if plan.before else None
    if not _unused(returned) or len(plan.before) != 1 or not isinstance(first, RdmaWrite) or len(given.segments) != 2:
        return False
    half = len(first.data) // 2
    halves = [first.data[:half], first.data[half:]]
    if not half or len(halves[1]) > given.segments[1].length:
        return False
    plan.before = [
        RdmaWrite(segment._replace(length=len(data)), data)
        for segment, data in zip(given.segments, halves, strict=True)
    ]
    return _return(plan, with_lengths(given, [len(data) for data in halves]))


@returning
def unfilled(endpoint: EndpointView, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """A segment that was not needed comes back with its length."""
    if not _unused(returned):
        return False
    lengths = [segment.length for segment in returned.segments[:-1]]
    return _return(plan, with_lengths(returned, [*lengths, given.segments[-1].length]))


@returning
def unused_chunk(endpoint: EndpointView, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """The READ fails, its Write chunk comes back as it was."""
    plan.payload = service.read_failed(plan.payload)
    plan.before = []
    return _return(plan, given)


@returning
def half_written(endpoint: EndpointView, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    first = plan.before[0]
    if len(plan.before) != 1 or not isinstance(first, RdmaWrite) or len(first.data) < 8:
        return False
    half = first.data[: len(first.data) // 2]
    plan.before = [RdmaWrite(first.segment._replace(length=len(half)), half)]
    return True


@returning
def pad_written(endpoint: EndpointView, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """The pad of the item behind it, in the same segment."""
    last = plan.before[-1]
    if not isinstance(last, RdmaWrite):
        return False
    room = next(one.length for one in given.segments if one.handle == last.segment.handle)
    data = last.data + pad(len(last.data))
    if len(data) == len(last.data) or len(data) > room:
        return False
    plan.before[-1] = RdmaWrite(last.segment._replace(length=len(data)), data)
    return True


@returning
def other_count(endpoint: EndpointView, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """A count word 100 below what is written and returned."""
    count = int.from_bytes(plan.payload[-4:], "big")
    if len(plan.header.writes) != 1 or count != returned.length or count <= 100:
        return False
    plan.payload = plan.payload[:-4] + pack(">I", count - 100)
    return True


@returning
def item_inline(endpoint: EndpointView, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """The bytes of the Write chunk inline as well."""
    data = b"".join(one.data for one in plan.before if isinstance(one, RdmaWrite))
    if len(plan.header.writes) != 1 or len(data) != returned.length or len(data) + 200 > endpoint.send_limit:
        return False
    plan.payload += data + pad(len(data))
    return True


@returning
def write_late(endpoint: EndpointView, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """The Writes follow the reply."""
    plan.before, plan.after = [], plan.before
    return True


@returning
def outside(endpoint: EndpointView, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """One byte behind a segment that ends inside a page, where devices do not notice."""
    last = given.segments[-1]
    if last.length % 4096 == 0:
        return False
    plan.before.insert(0, RdmaWrite(Segment(last.handle, 1, last.offset + last.length), b"\xff"))
    return True


@on("reply")
def read_late(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """The call's Read chunk once more, behind the reply."""
    assert plan.asked is not None
    if not plan.asked.reads or plan.invalidate is not None:
        return False
    plan.after.append(RdmaRead(endpoint.number(), plan.asked.reads[0].segments[0]))
    return True


@on("call")
def requester_writes(endpoint: EndpointView, plan: PlannedSend) -> bool:
    if not settled(endpoint):
        return False
    plan.before.append(RdmaWrite(NOWHERE, bytes(NOWHERE.length)))
    return True
