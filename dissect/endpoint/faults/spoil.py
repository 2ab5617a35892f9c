"""How messages are spoiled: functions that change a Plan in place, and say whether it gave the occasion."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import TYPE_CHECKING

from ...messages import (
    ERR_CHUNK,
    RDMA_DONE,
    RDMA_MSG,
    RDMA_MSGP,
    RDMA_NOMSG,
    ReadChunk,
    Segment,
    WriteChunk,
)
from ...onc.header import GARBAGE_ARGS
from ...onc.programs import NFS, NFS_CALLBACK
from .. import service
from ..header import encode_header
from ..nouns import Read, Send, Write
from ..payload import pad, whole
from ..plan import Plan, moved, with_lengths

if TYPE_CHECKING:
    from ..endpoint import Endpoint

Spoil = Callable[["Endpoint", Plan], bool]

NOWHERE = Segment(0x0BAD_CAFE, 64, 0x7000_0000)
"""Memory that nobody registered."""
WORD = 4
VERSION_WORD, CREDIT_WORD, PROCEDURE_WORD = 4, 8, 12
"""Offsets in every header (RFC 8166, 4.2)."""


def on(kind: str, *, backward: bool = False, chunks: bool | None = None) -> Callable[[Spoil], Spoil]:
    """Only messages of a kind and direction; ``chunks``: only those whose call has chunks, or has none."""

    def choose(spoil: Spoil) -> Spoil:
        def spoiled(endpoint: Endpoint, plan: Plan) -> bool:
            if plan.kind != kind or plan.backward is not backward:
                return False
            if chunks is not None and (plan.asked or plan.header).chunks is not chunks:
                return False
            return spoil(endpoint, plan)

        return spoiled

    return choose


def patch(plan: Plan, at: int, value: int) -> bool:
    """Another word in the header as it goes out."""
    raw = encode_header(plan.header) if plan.raw is None else plan.raw
    plan.raw = raw[:at] + pack(">I", value) + raw[at + WORD :]
    return True


def settled(endpoint: Endpoint) -> bool:
    """A reply has come: what follows is not about the version."""
    return endpoint.requester.granted is not None


# Sizes: whether a Send of so many bytes is too long in just one way


def beyond(endpoint: Endpoint, size: int) -> bool:
    return size > endpoint.send_limit


def beyond_peer(endpoint: Endpoint, size: int) -> bool:
    sizes = endpoint.announced()
    return sizes is not None and size > sizes[1]


def beyond_own(endpoint: Endpoint, size: int) -> bool:
    sizes = endpoint.announced()
    return sizes is not None and endpoint.send_limit < size <= sizes[1]


def fits_inline(endpoint: Endpoint, size: int) -> bool:
    return size <= endpoint.send_limit


def beyond_default(endpoint: Endpoint, size: int) -> bool:
    return endpoint.announced() is None and size > endpoint.send_limit


# Words of the header


def word(at: int, value: int) -> Spoil:
    """A call, not the first, with another word in its header."""

    @on("call")
    def spoil(endpoint: Endpoint, plan: Plan) -> bool:
        return settled(endpoint) and patch(plan, at, value)

    return spoil


@on("call")
def optional_word(endpoint: Endpoint, plan: Plan) -> bool:
    """The word before the Read list is 2."""
    return settled(endpoint) and patch(plan, 16 if plan.header.version == 1 else 20, 2)


def procedure(number: int) -> Spoil:
    @on("call", chunks=False)
    def spoil(endpoint: Endpoint, plan: Plan) -> bool:
        if not settled(endpoint) or plan.header.version != 1:
            return False
        plan.header.procedure = number
        if number == RDMA_DONE:
            plan.payload = b""
        return True

    return spoil


msgp, done = procedure(RDMA_MSGP), procedure(RDMA_DONE)


@on("reply")
def other_xid(endpoint: Endpoint, plan: Plan) -> bool:
    if plan.header.procedure != RDMA_MSG:
        return False
    xid = int.from_bytes(plan.payload[:4], "big")
    plan.payload = pack(">I", xid ^ 1) + plan.payload[4:]
    return True


@on("call", chunks=False)
def no_payload(endpoint: Endpoint, plan: Plan) -> bool:
    if not settled(endpoint):
        return False
    plan.payload = b""
    return True


@on("call", chunks=False)
def nothing_at_all(endpoint: Endpoint, plan: Plan) -> bool:
    if not settled(endpoint):
        return False
    plan.header.procedure, plan.payload = RDMA_NOMSG, b""
    return True


@on("reply")
def behind_nomsg(endpoint: Endpoint, plan: Plan) -> bool:
    if plan.header.procedure != RDMA_NOMSG:
        return False
    plan.payload = bytes(16)
    return True


def credits(kind: str, backward: bool) -> Spoil:
    """A credit value of zero."""

    @on(kind, backward=backward)
    def spoil(endpoint: Endpoint, plan: Plan) -> bool:
        plan.header.credits = 0
        return True

    return spoil


@on("call")
def same_xid(endpoint: Endpoint, plan: Plan) -> bool:
    """The XID of another call under way."""
    others = [xid for xid, asked in endpoint.requester.outstanding.items() if asked.header and xid != plan.header.xid]
    if not others or not plan.payload:
        return False
    plan.header.xid = others[0]
    plan.payload = pack(">I", others[0]) + plan.payload[4:]
    return True


# Read chunks


def reading(spoil: Spoil) -> Spoil:
    """Only calls with a Read chunk behind the start of the stream."""

    @on("call")
    def spoiled(endpoint: Endpoint, plan: Plan) -> bool:
        return any(chunk.position for chunk in plan.header.reads) and spoil(endpoint, plan)

    return spoiled


def shifted(by: int) -> Spoil:
    """Other Positions."""

    @reading
    def spoil(endpoint: Endpoint, plan: Plan) -> bool:
        plan.header.reads = tuple(
            moved(chunk, chunk.position + by if chunk.position else 0) for chunk in plan.header.reads
        )
        return True

    return spoil


@reading
def interleaved(endpoint: Endpoint, plan: Plan) -> bool:
    """The segments of the chunk at Position 0 around those of another."""
    reads = plan.header.reads
    if len(reads) < 2 or reads[0].position or len(reads[0].segments) < 2:
        return False
    first, *rest = reads[0].segments
    plan.header.reads = (ReadChunk(0, (first,)), *reads[1:], ReadChunk(0, tuple(rest)))
    return True


@reading
def pad_inline(endpoint: Endpoint, plan: Plan) -> bool:
    """The pad of the last item is left in the stream."""
    left = pad(plan.header.reads[-1].length)
    if not left or not plan.payload:
        return False
    plan.payload += left
    return True


@reading
def long_call_elsewhere(endpoint: Endpoint, plan: Plan) -> bool:
    if not plan.payload:
        return False
    plan.header.procedure, plan.payload = RDMA_NOMSG, b""
    return True


@reading
def shorter_chunk(endpoint: Endpoint, plan: Plan) -> bool:
    """Four bytes fewer than the count word says."""
    *before, last = plan.header.reads
    *segments, final = last.segments
    if final.length <= WORD:
        return False
    plan.header.reads = (*before, ReadChunk(last.position, (*segments, final._replace(length=final.length - WORD))))
    return True


@reading
def not_eligible(endpoint: Endpoint, plan: Plan) -> bool:
    """The chunk stands where the file handle does."""
    if not plan.payload or len(plan.header.reads) != 1:
        return False
    chunk = plan.header.reads[0]
    plan.header.reads = (moved(chunk, chunk.position - 40),)
    return True


@on("reply")
def read_list(endpoint: Endpoint, plan: Plan) -> bool:
    plan.header.reads = (ReadChunk(0, (NOWHERE,)),)
    return True


def sealed(gss_procedure: int, before_end: int) -> Spoil:
    """An RPCSEC_GSS call (RFC 2203, 5.3), its Read chunk ``before_end`` bytes before the end of what is inline."""

    @reading
    def spoil(endpoint: Endpoint, plan: Plan) -> bool:
        if not plan.payload or len(plan.header.reads) != 1:
            return False
        plan.payload = service.sealed_call(plan.header.xid, gss_procedure)
        plan.header.reads = (moved(plan.header.reads[0], len(plan.payload) - before_end),)
        return True

    return spoil


@on("call", chunks=False)
def other_program(endpoint: Endpoint, plan: Plan) -> bool:
    """A program that no upper-layer binding knows."""
    if not settled(endpoint):
        return False
    plan.payload = whole(service.null(plan.header.xid, 200001, 1))
    return True


@on("call", chunks=False)
def short_arguments(endpoint: Endpoint, plan: Plan) -> bool:
    """A WRITE whose arguments end behind the file handle; the requester may say so, and is told GARBAGE_ARGS."""
    if not settled(endpoint):
        return False
    head = service.call_head(plan.header.xid, NFS, 3, service.WRITE)
    plan.payload = head + service.opaque(service.HANDLE)
    return True


# Write chunks and the Reply chunk


@on("call")
def small_reply_chunk(endpoint: Endpoint, plan: Plan) -> bool:
    """Room for an eighth of what a directory listing asks for."""
    chunk = plan.header.reply
    if chunk is None or chunk.length < 8 * endpoint.receive_limit or plan.header.writes:
        return False
    plan.header.reply = with_lengths(chunk, [segment.length // 8 for segment in chunk.segments])
    return True


@on("reply", chunks=False)
def made_up_reply_chunk(endpoint: Endpoint, plan: Plan) -> bool:
    plan.header.procedure, plan.payload = RDMA_NOMSG, b""
    plan.header.reply = WriteChunk((NOWHERE,))
    return True


def returning(spoil: Callable[[Endpoint, Plan, WriteChunk, WriteChunk], bool]) -> Spoil:
    """Only READ replies whose first Write chunk holds something: what was advertised, and what is returned of it."""

    @on("reply")
    def spoiled(endpoint: Endpoint, plan: Plan) -> bool:
        if not plan.header.writes or not plan.header.writes[0].length or plan.header.procedure != RDMA_MSG:
            return False
        assert plan.asked is not None
        return spoil(endpoint, plan, plan.asked.writes[0], plan.header.writes[0])

    return spoiled


def _return(plan: Plan, chunk: WriteChunk) -> bool:
    plan.header.writes = (chunk, *plan.header.writes[1:])
    return True


def _unused(chunk: WriteChunk) -> bool:
    """Its last segment, one of several, was not needed."""
    return len(chunk.segments) > 1 and chunk.segments[-1].length == 0


@returning
def segment_missing(endpoint: Endpoint, plan: Plan, given: WriteChunk, returned: WriteChunk) -> bool:
    return _unused(returned) and _return(plan, WriteChunk(returned.segments[:-1]))


@returning
def other_handle(endpoint: Endpoint, plan: Plan, given: WriteChunk, returned: WriteChunk) -> bool:
    first, *rest = returned.segments
    return _return(plan, WriteChunk((first._replace(handle=0), *rest)))


@returning
def longer_than_given(endpoint: Endpoint, plan: Plan, given: WriteChunk, returned: WriteChunk) -> bool:
    """Twice what was advertised, the counts of the READ too."""
    if len(given.segments) > 1 or returned.length != given.length:
        return False
    plan.payload = plan.payload[:-12] + pack(">III", 2 * given.length, 0, 2 * given.length)
    return _return(plan, with_lengths(returned, [2 * given.length]))


@returning
def out_of_order(endpoint: Endpoint, plan: Plan, given: WriteChunk, returned: WriteChunk) -> bool:
    """Half in the first segment, half in the second, which were both large enough for all."""
    first = plan.before[0] if plan.before else None
    if not _unused(returned) or len(plan.before) != 1 or not isinstance(first, Write) or len(given.segments) != 2:
        return False
    half = len(first.data) // 2
    halves = [first.data[:half], first.data[half:]]
    if not half or len(halves[1]) > given.segments[1].length:
        return False
    plan.before = [
        Write(segment._replace(length=len(data)), data) for segment, data in zip(given.segments, halves, strict=True)
    ]
    return _return(plan, with_lengths(given, [len(data) for data in halves]))


@returning
def unfilled(endpoint: Endpoint, plan: Plan, given: WriteChunk, returned: WriteChunk) -> bool:
    """A segment that was not needed comes back with its length."""
    if not _unused(returned):
        return False
    lengths = [segment.length for segment in returned.segments[:-1]]
    return _return(plan, with_lengths(returned, [*lengths, given.segments[-1].length]))


@returning
def unused_chunk(endpoint: Endpoint, plan: Plan, given: WriteChunk, returned: WriteChunk) -> bool:
    """The READ fails, its Write chunk comes back as it was."""
    plan.payload = service.read_failed(plan.header.xid)
    plan.before = []
    return _return(plan, given)


@returning
def half_written(endpoint: Endpoint, plan: Plan, given: WriteChunk, returned: WriteChunk) -> bool:
    first = plan.before[0]
    if len(plan.before) != 1 or not isinstance(first, Write) or len(first.data) < 8:
        return False
    half = first.data[: len(first.data) // 2]
    plan.before = [Write(first.segment._replace(length=len(half)), half)]
    return True


@returning
def pad_written(endpoint: Endpoint, plan: Plan, given: WriteChunk, returned: WriteChunk) -> bool:
    """The pad of the item behind it, in the same segment."""
    last = plan.before[-1]
    if not isinstance(last, Write):
        return False
    room = next(one.length for one in given.segments if one.handle == last.segment.handle)
    data = last.data + pad(len(last.data))
    if len(data) == len(last.data) or len(data) > room:
        return False
    plan.before[-1] = Write(last.segment._replace(length=len(data)), data)
    return True


@returning
def write_late(endpoint: Endpoint, plan: Plan, given: WriteChunk, returned: WriteChunk) -> bool:
    """The Writes follow the reply."""
    plan.before, plan.after = [], plan.before
    return True


@returning
def outside(endpoint: Endpoint, plan: Plan, given: WriteChunk, returned: WriteChunk) -> bool:
    """One byte behind a segment that ends inside a page, where devices do not notice."""
    last = given.segments[-1]
    if last.length % 4096 == 0:
        return False
    plan.before.insert(0, Write(Segment(last.handle, 1, last.offset + last.length), b"\xff"))
    return True


@on("reply")
def read_late(endpoint: Endpoint, plan: Plan) -> bool:
    """The call's Read chunk once more, behind the reply."""
    assert plan.asked is not None
    if not plan.asked.reads or plan.invalidate is not None:
        return False
    plan.after.append(Read(endpoint.number(), plan.asked.reads[0].segments[0]))
    return True


@on("call")
def requester_writes(endpoint: Endpoint, plan: Plan) -> bool:
    if not settled(endpoint):
        return False
    plan.before.append(Write(NOWHERE, bytes(NOWHERE.length)))
    return True


# Errors


def refusing(spoil: Spoil) -> Spoil:
    """A call without chunks is answered by RDMA_ERR_BADHEADER, and that is spoiled."""

    @on("reply", chunks=False)
    def spoiled(endpoint: Endpoint, plan: Plan) -> bool:
        if not endpoint.answered:
            return False  # without the first reply nothing goes on
        header = plan.header
        plan.header = endpoint.new_error(header.xid, header.version, header.credits or 1, ERR_CHUNK, None)
        plan.payload = b""
        return spoil(endpoint, plan)

    return spoiled


@refusing
def behind_error(endpoint: Endpoint, plan: Plan) -> bool:
    plan.payload = bytes(12)
    return True


@refusing
def error_of_nobody(endpoint: Endpoint, plan: Plan) -> bool:
    plan.header.xid ^= 0xFF
    return True


@refusing
def error_of_version(endpoint: Endpoint, plan: Plan) -> bool:
    return patch(plan, VERSION_WORD, 7)


@refusing
def unknown_error(endpoint: Endpoint, plan: Plan) -> bool:
    plan.header.error = 7
    return True


@on("error")
def range_of_all(endpoint: Endpoint, plan: Plan) -> bool:
    """The range holds the version that is refused."""
    if plan.header.supported is None:
        return False
    plan.header.supported = (1, plan.header.version)
    return True


@on("error")
def other_error(endpoint: Endpoint, plan: Plan) -> bool:
    """RDMA_ERR_BADHEADER where the version is at fault."""
    if plan.header.supported is None:
        return False
    plan.header.error, plan.header.supported = ERR_CHUNK, None
    return True


@on("reply", chunks=False)
def error_and_reply(endpoint: Endpoint, plan: Plan) -> bool:
    header = plan.header
    error = endpoint.new_error(header.xid, header.version, header.credits or 1, ERR_CHUNK, None)
    plan.before.append(Send(encode_header(error)))
    return True


@on("reply", chunks=False)
def success(endpoint: Endpoint, plan: Plan) -> bool:
    """SUCCESS where GARBAGE_ARGS is due."""
    if int.from_bytes(plan.payload[20:24], "big") != GARBAGE_ARGS:
        return False
    plan.payload = service.write_done(plan.header.xid)
    return True


# The backward direction


@on("call", backward=True)
def backward_nomsg(endpoint: Endpoint, plan: Plan) -> bool:
    plan.header.procedure, plan.payload = RDMA_NOMSG, b""
    plan.header.reads = (ReadChunk(0, (NOWHERE,)),)
    return True


@on("call", backward=True)
def backward_chunk(endpoint: Endpoint, plan: Plan) -> bool:
    plan.header.reply = WriteChunk((NOWHERE,))
    return True


@on("reply")
def callback_unannounced(endpoint: Endpoint, plan: Plan) -> bool:
    """A callback behind the first reply, when nothing was offered for it."""
    xid = plan.header.xid ^ 0x4000_0000
    header = endpoint.new_header(xid, endpoint.requester.credits, RDMA_MSG, 0)
    plan.after.append(Send(encode_header(header) + whole(service.null(xid, NFS_CALLBACK, 1))))
    return True


# Send With Invalidate


@on("reply", chunks=True)
def invalidate_unasked(endpoint: Endpoint, plan: Plan) -> bool:
    assert plan.asked is not None
    if plan.invalidate is not None:
        return False
    plan.invalidate = _first_handle(plan)
    return True


@on("reply", chunks=True)
def invalidate_other(endpoint: Endpoint, plan: Plan) -> bool:
    if plan.invalidate is None:
        return False
    plan.invalidate = NOWHERE.handle
    return True


@on("call")
def invalidate_in_call(endpoint: Endpoint, plan: Plan) -> bool:
    if not settled(endpoint):
        return False
    plan.invalidate = NOWHERE.handle
    return True


def _first_handle(plan: Plan) -> int:
    asked = plan.asked
    assert asked is not None
    chunks: list[ReadChunk | WriteChunk] = [*asked.reads, *asked.writes, *([asked.reply] if asked.reply else [])]
    return chunks[0].segments[0].handle
