"""How messages are spoiled: functions that change a PlannedSend in place, and return whether there was an occasion.

Headers, chunks and the RDMA Reads and Writes on them (RFC 8166), and the options of version 2 (xcharext-02).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from struct import pack
from typing import Any

from rdmascope.dissect.layers.characteristics_codes import (
    BKREQSUP_NONE,
    EXPERIMENTAL,
    ROPT_INITXCH,
    ROPT_RESPXCH,
    ROPT_UPDXCH,
    XCHAR_BRS,
    XCHAR_RBSIZ,
    XCHAR_REQREMINV,
)
from rdmascope.dissect.layers.oncrpc_codes import GARBAGE_ARGS
from rdmascope.dissect.layers.rpcrdma_codes import (
    ERR_CHUNK,
    ERR_INVAL_OPTION,
    RDMA_DONE,
    RDMA_MSG,
    RDMA_MSGP,
    RDMA_NOMSG,
    RDMA_OPTIONAL,
)
from rdmascope.dissect.onc.programs import NFS, NFS_CALLBACK
from rdmascope.dissect.rpcrdma.characteristics import RespXch, decode_option
from rdmascope.dissect.rpcrdma.messages import ReadChunk, Segment, WriteChunk

from .. import rpc
from ..endpoint import service
from ..endpoint.endpoint import RpcRdmaEndpoint
from ..endpoint.nouns import (
    CALL,
    REPLY,
    PlannedSend,
    RdmaRead,
    RdmaWrite,
    Send,
    encode_header,
    encode_option,
    with_lengths,
    xcharsubset,
    xcharval,
)
from ..rpc import pad, whole

Spoil = Callable[[RpcRdmaEndpoint, PlannedSend], bool]

NOWHERE = Segment(0x0BAD_CAFE, 64, 0x7000_0000)
"""Memory that was never registered."""
WORD = 4
VERSION_WORD, PROCEDURE_WORD = 4, 12
"""Offsets in every header (RFC 8166, 4.2)."""


def on(
    kind: str, *, backward: bool = False, chunks: bool | None = None, later: bool = False
) -> Callable[[Spoil], Spoil]:
    """Only messages of a kind and direction; ``chunks``: only those whose call has chunks, or has none; ``later``: only
    behind the first reply, since what is wrong before it may be taken for a refusal of the version.
    """

    def choose(spoil: Spoil) -> Spoil:
        def spoiled(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
            if plan.kind != kind or plan.backward is not backward:
                return False
            if later and endpoint.requester.granted is None:
                return False
            if chunks is not None and (plan.asked or plan.header).chunks is not chunks:
                return False
            return spoil(endpoint, plan)

        return spoiled

    return choose


def patch(plan: PlannedSend, at: int, value: int) -> bool:
    """Another word in the header as it goes out."""
    raw = encode_header(plan.header) if plan.raw is None else plan.raw
    plan.raw = raw[:at] + pack(">I", value) + raw[at + WORD :]
    return True


# Sizes: whether a Send of so many bytes is too long in just one way


def beyond(endpoint: RpcRdmaEndpoint, size: int) -> bool:
    return size > endpoint.send_limit


def beyond_peer(endpoint: RpcRdmaEndpoint, size: int) -> bool:
    sizes = endpoint.announced()
    return sizes is not None and size > sizes[1]


def beyond_own(endpoint: RpcRdmaEndpoint, size: int) -> bool:
    sizes = endpoint.announced()
    return sizes is not None and endpoint.send_limit < size <= sizes[1]


def fits_inline(endpoint: RpcRdmaEndpoint, size: int) -> bool:
    return size <= endpoint.send_limit


def beyond_default(endpoint: RpcRdmaEndpoint, size: int) -> bool:
    return endpoint.announced() is None and size > endpoint.send_limit


# Words of the header


def word(at: int, value: int) -> Spoil:
    """A call, not the first, with another word in its header."""

    @on("call", later=True)
    def spoil(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
        return patch(plan, at, value)

    return spoil


@on("call", later=True)
def optional_word(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """The word before the Read list is 2."""
    return patch(plan, 16 if plan.header.version == 1 else 20, 2)


def procedure(number: int) -> Spoil:
    @on("call", chunks=False, later=True)
    def spoil(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
        if plan.header.version != 1:
            return False
        plan.header.procedure = number
        if number == RDMA_DONE:
            plan.payload = b""
        return True

    return spoil


msgp, done = procedure(RDMA_MSGP), procedure(RDMA_DONE)


@on("reply")
def other_xid(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    if plan.header.procedure != RDMA_MSG:
        return False
    xid = int.from_bytes(plan.payload[:4], "big")
    plan.payload = pack(">I", xid ^ 1) + plan.payload[4:]
    return True


@on("call", chunks=False, later=True)
def no_payload(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.payload = b""
    return True


@on("call", chunks=False, later=True)
def nothing_at_all(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.header.procedure, plan.payload = RDMA_NOMSG, b""
    return True


@on("reply")
def behind_nomsg(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    if plan.header.procedure != RDMA_NOMSG:
        return False
    plan.payload = bytes(16)
    return True


def credits(kind: str, backward: bool) -> Spoil:
    """A credit value of zero."""

    @on(kind, backward=backward)
    def spoil(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
        plan.header.credits = 0
        return True

    return spoil


@on("call")
def same_xid(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """The XID of another call under way."""
    others = [xid for xid, asked in endpoint.requester.outstanding.items() if asked.header and xid != plan.header.xid]
    if not others or not plan.payload:
        return False
    plan.header.xid = others[0]
    plan.payload = pack(">I", others[0]) + plan.payload[4:]
    return True


# Programs


@on("call", chunks=False, later=True)
def other_program(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """A program that no upper-layer binding knows."""
    plan.payload = whole(service.null(plan.header.xid, 200001, 1))
    return True


@on("call", chunks=False, later=True)
def short_arguments(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """A WRITE whose arguments end behind the file handle; the requester may send it, and is answered GARBAGE_ARGS."""
    head = rpc.call_head(plan.header.xid, NFS, 3, service.WRITE)
    plan.payload = head + rpc.opaque(service.HANDLE)
    return True


# Errors


def refusing(spoil: Spoil) -> Spoil:
    """A call without chunks is answered by RDMA_ERR_BADHEADER, and that is spoiled."""

    @on("reply", chunks=False)
    def spoiled(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
        if not endpoint.answered:
            return False  # without the first reply nothing goes on
        header = plan.header
        plan.header = endpoint.new_error(header, header.credits or 1, ERR_CHUNK)
        plan.payload = b""
        return spoil(endpoint, plan)

    return spoiled


@refusing
def behind_error(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.payload = bytes(12)
    return True


@refusing
def error_of_unknown_xid(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.header.xid ^= 0xFF
    return True


@refusing
def error_of_version(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    return patch(plan, VERSION_WORD, 7)


@refusing
def unknown_error(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.header.error = 7
    return True


@on("error")
def range_of_all(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """The range holds the version that is refused."""
    if plan.header.supported is None:
        return False
    plan.header.supported = (1, plan.header.version)
    return True


@on("error")
def other_error(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """RDMA_ERR_BADHEADER where the version is at fault."""
    if plan.header.supported is None:
        return False
    plan.header.error, plan.header.supported = ERR_CHUNK, None
    return True


@on("reply", chunks=False)
def error_and_reply(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    header = plan.header
    error = endpoint.new_error(header, header.credits or 1, ERR_CHUNK)
    plan.before.append(Send(encode_header(error)))
    return True


@on("reply", chunks=False)
def success(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """SUCCESS where GARBAGE_ARGS is due."""
    if int.from_bytes(plan.payload[20:24], "big") != GARBAGE_ARGS:
        return False
    plan.payload = service.write_done(plan.header.xid)
    return True


# The backward direction


@on("call", backward=True)
def backward_nomsg(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.header.procedure, plan.payload = RDMA_NOMSG, b""
    plan.header.reads = (ReadChunk(0, (NOWHERE,)),)
    return True


@on("call", backward=True)
def backward_chunk(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.header.reply = WriteChunk((NOWHERE,))
    return True


@on("reply")
def callback_unannounced(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """A callback behind the first reply, when nothing was offered for it."""
    xid = plan.header.xid ^ 0x4000_0000
    header = endpoint.new_header(xid, endpoint.requester.credits, RDMA_MSG, 0)
    plan.after.append(Send(encode_header(header) + whole(service.null(xid, NFS_CALLBACK, 1))))
    return True


# Send With Invalidate


@on("reply", chunks=True)
def invalidate_unasked(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    assert plan.asked is not None
    if plan.invalidate is not None:
        return False
    plan.invalidate = _first_handle(plan)
    return True


@on("reply", chunks=True)
def invalidate_other(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    if plan.invalidate is None:
        return False
    plan.invalidate = NOWHERE.handle
    return True


@on("call", later=True)
def invalidate_in_call(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.invalidate = NOWHERE.handle
    return True


def _first_handle(plan: PlannedSend) -> int:
    asked = plan.asked
    assert asked is not None
    chunks: list[ReadChunk | WriteChunk] = [*asked.reads, *asked.writes, *([asked.reply] if asked.reply else [])]
    return chunks[0].segments[0].handle


# Read chunks


def reading(spoil: Spoil) -> Spoil:
    """Only calls with a Read chunk behind the start of the stream."""

    @on("call")
    def spoiled(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
        return any(chunk.position for chunk in plan.header.reads) and spoil(endpoint, plan)

    return spoiled


def shifted(by: int) -> Spoil:
    """Read chunks whose Positions are ``by`` bytes off."""

    @reading
    def spoil(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
        plan.header.reads = tuple(
            replace(chunk, position=chunk.position + by if chunk.position else 0) for chunk in plan.header.reads
        )
        return True

    return spoil


@reading
def interleaved(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """The segments of the chunk at Position 0 around those of another."""
    reads = plan.header.reads
    if len(reads) < 2 or reads[0].position or len(reads[0].segments) < 2:
        return False
    first, *rest = reads[0].segments
    plan.header.reads = (ReadChunk(0, (first,)), *reads[1:], ReadChunk(0, tuple(rest)))
    return True


@reading
def pad_inline(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """The pad of the last item is left in the stream."""
    left = pad(plan.header.reads[-1].length)
    if not left or not plan.payload:
        return False
    plan.payload += left
    return True


@reading
def long_call_elsewhere(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    if not plan.payload:
        return False
    plan.header.procedure, plan.payload = RDMA_NOMSG, b""
    return True


@reading
def shorter_chunk(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """Four bytes fewer than the count word says."""
    *before, last = plan.header.reads
    *segments, final = last.segments
    if final.length <= WORD:
        return False
    plan.header.reads = (*before, ReadChunk(last.position, (*segments, final._replace(length=final.length - WORD))))
    return True


@reading
def not_eligible(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """The chunk stands where the file handle does."""
    if not plan.payload or len(plan.header.reads) != 1:
        return False
    chunk = plan.header.reads[0]
    plan.header.reads = (replace(chunk, position=chunk.position - 40),)
    return True


def ineligible_accepted(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """SUCCESS for a call with a Read chunk at an item that is not eligible, whatever else the answer would be."""
    failed = plan.kind == "error" or int.from_bytes(plan.payload[20:24], "big") == GARBAGE_ARGS
    if plan.backward or plan.asked is None or not failed or not any(chunk.position for chunk in plan.asked.reads):
        return False
    direction = 1 if plan.header.version > 1 else None
    plan.header.procedure, plan.header.error, plan.header.direction = RDMA_MSG, None, direction
    plan.payload = service.write_done(plan.header.xid)
    return True


@on("reply")
def read_list(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.header.reads = (ReadChunk(0, (NOWHERE,)),)
    return True


def sealed(gss_procedure: int, before_end: int) -> Spoil:
    """An RPCSEC_GSS call (RFC 2203, 5.3), its Read chunk ``before_end`` bytes before the end of what is inline."""

    @reading
    def spoil(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
        if not plan.payload or len(plan.header.reads) != 1:
            return False
        plan.payload = service.sealed_call(plan.header.xid, gss_procedure)
        plan.header.reads = (replace(plan.header.reads[0], position=len(plan.payload) - before_end),)
        return True

    return spoil


# Write chunks and the Reply chunk


@on("call")
def small_reply_chunk(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """Room for an eighth of what a directory listing asks for."""
    chunk = plan.header.reply
    if chunk is None or chunk.length < 8 * endpoint.receive_limit or plan.header.writes:
        return False
    plan.header.reply = with_lengths(chunk, [segment.length // 8 for segment in chunk.segments])
    return True


@on("call")
def small_write_chunk(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """Half of what a READ asks for, which then comes inline."""
    writes = plan.header.writes
    if len(writes) != 1 or plan.header.reply is not None or not 8 <= writes[0].length <= 1000:
        return False
    plan.header.writes = (with_lengths(writes[0], [segment.length // 2 for segment in writes[0].segments]),)
    return True


@on("call")
def no_reply_chunk(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """A directory listing of more bytes than fit inline, and no Reply chunk."""
    chunk = plan.header.reply
    if chunk is None or chunk.length < 2 * endpoint.receive_limit or plan.header.writes or not plan.payload:
        return False
    plan.header.reply = None
    return True


@on("reply", chunks=False)
def made_up_reply_chunk(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.header.procedure, plan.payload = RDMA_NOMSG, b""
    plan.header.reply = WriteChunk((NOWHERE,))
    return True


def returning(spoil: Callable[[RpcRdmaEndpoint, PlannedSend, WriteChunk, WriteChunk], bool]) -> Spoil:
    """Only READ replies whose first Write chunk holds something: what was advertised, and what is returned of it."""

    @on("reply")
    def spoiled(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
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
def segment_missing(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    return _unused(returned) and _return(plan, WriteChunk(returned.segments[:-1]))


@returning
def other_handle(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    first, *rest = returned.segments
    return _return(plan, WriteChunk((first._replace(handle=0), *rest)))


@returning
def longer_than_given(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """Twice what was advertised, the counts of the READ too: NFSv3 has one more, ahead of its end-of-file word."""
    if len(given.segments) > 1 or returned.length != given.length:
        return False
    twice, before = 2 * given.length, plan.payload[-12:-4]
    if before.startswith(pack(">I", given.length)):
        before = pack(">II", twice, 0)
    plan.payload = plan.payload[:-12] + before + pack(">I", twice)
    return _return(plan, with_lengths(returned, [2 * given.length]))


@returning
def out_of_order(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
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
def unfilled(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """A segment that was not needed comes back with its length."""
    if not _unused(returned):
        return False
    lengths = [segment.length for segment in returned.segments[:-1]]
    return _return(plan, with_lengths(returned, [*lengths, given.segments[-1].length]))


@returning
def unused_chunk(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """The READ fails, its Write chunk comes back as it was."""
    plan.payload = service.read_failed(plan.payload)
    plan.before = []
    return _return(plan, given)


@returning
def half_written(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    first = plan.before[0]
    if len(plan.before) != 1 or not isinstance(first, RdmaWrite) or len(first.data) < 8:
        return False
    half = first.data[: len(first.data) // 2]
    plan.before = [RdmaWrite(first.segment._replace(length=len(half)), half)]
    return True


@returning
def pad_written(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
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
def other_count(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """A count word 100 below what is written and returned."""
    count = int.from_bytes(plan.payload[-4:], "big")
    if len(plan.header.writes) != 1 or count != returned.length or count <= 100:
        return False
    plan.payload = plan.payload[:-4] + pack(">I", count - 100)
    return True


@returning
def item_inline(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """The bytes of the Write chunk inline as well."""
    data = b"".join(one.data for one in plan.before if isinstance(one, RdmaWrite))
    if len(plan.header.writes) != 1 or len(data) != returned.length or len(data) + 200 > endpoint.send_limit:
        return False
    plan.payload += data + pad(len(data))
    return True


@returning
def write_late(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """The Writes follow the reply."""
    plan.before, plan.after = [], plan.before
    return True


@returning
def outside(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> bool:
    """One byte behind a segment that ends inside a page, where devices do not notice."""
    last = given.segments[-1]
    if last.length % 4096 == 0:
        return False
    plan.before.insert(0, RdmaWrite(Segment(last.handle, 1, last.offset + last.length), b"\xff"))
    return True


@on("reply")
def read_late(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """The call's Read chunk once more, behind the reply."""
    assert plan.asked is not None
    if not plan.asked.reads or plan.invalidate is not None:
        return False
    plan.after.append(RdmaRead(endpoint.number(), plan.asked.reads[0].segments[0]))
    return True


@on("call", later=True)
def requester_writes(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.before.append(RdmaWrite(NOWHERE, bytes(NOWHERE.length)))
    return True


UNKNOWN_OPTION, UNKNOWN_CHARACTERISTIC = 77, 77


def option(number: int) -> Callable[[Spoil], Spoil]:
    """Only messages of one option."""

    def choose(spoil: Spoil) -> Spoil:
        @on("option")
        def spoiled(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
            return plan.header.option == number and spoil(endpoint, plan)

        return spoiled

    return choose


def characteristics(endpoint: RpcRdmaEndpoint, *more: tuple[int, Any]) -> list[Any]:
    """The xcharspec of this end, and more."""
    return [xcharval(which, value) for which, value in (*endpoint.characteristics.own.items(), *more)]


# Sizes: whether a Send of so many bytes is too long in just one way


def beyond_4096(endpoint: RpcRdmaEndpoint, size: int) -> bool:
    return endpoint.version == 2 and not endpoint.characteristics.known and size > endpoint.send_limit


def beyond_buffer(endpoint: RpcRdmaEndpoint, size: int) -> bool:
    return endpoint.version == 2 and endpoint.characteristics.known and size > endpoint.send_limit


def beyond_request(endpoint: RpcRdmaEndpoint, size: int) -> bool:
    """It fits what is in force, but not the smaller size that this end has asked for."""
    return beyond_buffer(endpoint, size) and size <= int(endpoint.characteristics.peer[XCHAR_RBSIZ])


# Version 2


@on("reply")
def says_call(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    if plan.header.version != 2 or plan.header.procedure != RDMA_MSG:
        return False
    plan.header.direction = CALL
    return True


@on("reply", chunks=False)
def of_version_1(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    if plan.header.version != 2 or not endpoint.answered:
        return False
    plan.header.version = 1
    return True


@option(ROPT_INITXCH)
def says_reply(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.header.direction = REPLY
    return True


@on("call", later=True)
def unknown_option(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """An option that no document defines, which is allowed, behind a call."""
    if plan.header.version != 2:
        return False
    header = endpoint.new_header(plan.header.xid ^ 0x2000_0000, plan.header.credits or 1, RDMA_OPTIONAL, CALL)
    header.option, header.optinfo = UNKNOWN_OPTION, b"what"
    plan.after.append(Send(encode_header(header)))
    return True


@on("error")
def option_as_header(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    if plan.header.error != ERR_INVAL_OPTION:
        return False
    plan.header.error = ERR_CHUNK
    return True


# Options


@option(ROPT_INITXCH)
def overrun(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """xchv_data of 900 bytes, where 4 stand."""
    plan.header.optinfo = plan.header.optinfo[:8] + pack(">I", 900) + plan.header.optinfo[12:]
    return True


@option(ROPT_INITXCH)
def bool_7(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    values = [xcharval(XCHAR_REQREMINV, 7)]
    plan.header.optinfo = encode_option(ROPT_INITXCH, values, [])
    return True


@option(ROPT_INITXCH)
def unknown_characteristic(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    values = characteristics(endpoint, (UNKNOWN_CHARACTERISTIC, b"\0\0\0\1"))
    plan.header.optinfo = encode_option(ROPT_INITXCH, values, [])
    return True


@option(ROPT_INITXCH)
def experimental(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    values = characteristics(endpoint, (EXPERIMENTAL[0], b"\0\0\0\1"))
    plan.header.optinfo = encode_option(ROPT_INITXCH, values, [])
    return True


@option(ROPT_INITXCH)
def small_buffer(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """A Receive Buffer Size of 2048."""
    endpoint.characteristics.own[XCHAR_RBSIZ] = 2048
    plan.header.optinfo = encode_option(ROPT_INITXCH, characteristics(endpoint), [])
    return True


@option(ROPT_INITXCH)
def no_backward_support(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """BKREQSUP_NONE."""
    endpoint.characteristics.own[XCHAR_BRS] = BKREQSUP_NONE
    plan.header.optinfo = encode_option(ROPT_INITXCH, characteristics(endpoint), [])
    return True


@option(ROPT_INITXCH)
def call_behind(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.payload = whole(service.null(plan.header.xid))
    return True


@option(ROPT_INITXCH)
def too_long(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """A subset of 300 words, all of them empty."""
    plan.header.optinfo = encode_option(ROPT_INITXCH, characteristics(endpoint), [0] * 300)
    return True


@on("call", later=True)
def once_more(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """ROPT_INITXCH behind a call."""
    if plan.header.version != 2:
        return False
    header = endpoint.new_header(plan.header.xid ^ 0x2000_0000, plan.header.credits or 1, RDMA_OPTIONAL, CALL)
    header.option, header.optinfo = ROPT_INITXCH, encode_option(ROPT_INITXCH, characteristics(endpoint), [])
    plan.after.append(Send(encode_header(header)))
    return True


@option(ROPT_INITXCH)
def all_fixed(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """Announces that nothing will change, and changes it on request or on demand."""
    values = characteristics(endpoint)
    plan.header.optinfo = encode_option(ROPT_INITXCH, values, xcharsubset(range(len(values))))
    return True


@option(ROPT_RESPXCH)
def response_xid(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    plan.header.xid ^= 0xFF
    return True


@option(ROPT_RESPXCH)
def two_sets(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """What was done is rejected, too."""
    content = decode_option(ROPT_RESPXCH, plan.header.optinfo)
    if not isinstance(content, RespXch) or not content.done:
        return False
    subsets = [xcharsubset(places) for places in (content.done, content.done | content.rejected, content.pending)]
    plan.header.optinfo = encode_option(ROPT_RESPXCH, *subsets)
    return True


@option(ROPT_UPDXCH)
def clears_nothing(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """optupdxch_pendclr in an unsolicited change."""
    plan.header.optinfo = plan.header.optinfo[:-4] + pack(">I", 1)
    return True


@option(ROPT_UPDXCH)
def shrinks(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """4096; a smaller size is another fault (version-two-01, 2.3)."""
    if endpoint.settings.receive_buffer <= 4096:
        return False
    endpoint.characteristics.own[XCHAR_RBSIZ] = 4096
    plan.header.optinfo = encode_option(ROPT_UPDXCH, xcharval(XCHAR_RBSIZ, 4096), 0)
    return True
