"""How messages are spoiled: functions that change a PlannedSend in place, and return whether it gave an occasion.

They change headers, chunks and the RDMA Reads and Writes on them (RFC 8166), and options of version 2 (xcharext-02).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from rdmascope.dissect.onc.rpc_header import NFS, NFS_CALLBACK
from rdmascope.dissect.rpcrdma.characteristics import RespXch, decode_option
from rdmascope.dissect.rpcrdma.messages import ReadChunk, Segment, WriteChunk

from .. import rpc
from ..endpoint import service
from ..endpoint.endpoint import RpcRdmaEndpoint, chunk_segments
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
"""Changes a message in place; False if it gives no occasion."""
Change = Callable[[RpcRdmaEndpoint, PlannedSend], None]
"""Changes a planned Send; raises NoOccasion before it changes anything."""


class NoOccasion(Exception):
    """The message cannot be spoiled in this way."""


def need(occasion: object) -> None:
    """Raise NoOccasion unless ``occasion`` is true."""
    if not occasion:
        raise NoOccasion


NOWHERE = Segment(0x0BAD_CAFE, 64, 0x7000_0000)
"""Memory that was never registered."""
WORD = 4
VERSION_WORD, PROCEDURE_WORD = 4, 12
"""Offsets in every header (RFC 8166, 4.2)."""


When = Callable[[RpcRdmaEndpoint, PlannedSend], object]


def on(
    kind: str, *, backward: bool = False, chunks: bool | None = None, later: bool = False, when: When | None = None
) -> Callable[[Change], Spoil]:
    """Spoil only messages of this kind and direction.  ``chunks``: only if the call has chunks, or has none; ``later``:
    only after the first reply, as an error before it may be taken for a refusal of the version; ``when``: only if it
    is true.
    """

    def choose(change: Change) -> Spoil:
        def spoiled(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
            if plan.kind != kind or plan.backward is not backward:
                return False
            if later and endpoint.requester.granted is None:
                return False
            if chunks is not None and (plan.asked or plan.header).chunks is not chunks:
                return False
            if when is not None and not when(endpoint, plan):
                return False
            try:
                change(endpoint, plan)
            except NoOccasion:
                return False
            return True

        return spoiled

    return choose


def put(**given: Any) -> Change:
    """Replace fields of the header, the payload, or the handle to invalidate."""

    def change(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
        for name, value in given.items():
            setattr(plan if name in ("payload", "invalidate") else plan.header, name, value)

    return change


def patch(plan: PlannedSend, at: int, value: int) -> None:
    """Replace a word of the encoded header."""
    raw = encode_header(plan.header) if plan.raw is None else plan.raw
    plan.raw = raw[:at] + pack(">I", value) + raw[at + WORD :]


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
    """Replace a word in the header of a call that is not the first."""
    return on("call", later=True)(lambda endpoint, plan: patch(plan, at, value))


@on("call", later=True)
def optional_word(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Set the word before the Read list to 2."""
    patch(plan, 16 if plan.header.version == 1 else 20, 2)


alone = on("call", chunks=False, later=True)
version_1 = on("call", chunks=False, later=True, when=lambda endpoint, plan: plan.header.version == 1)
msgp, done = version_1(put(procedure=RDMA_MSGP)), version_1(put(procedure=RDMA_DONE, payload=b""))
no_payload, nothing_at_all = alone(put(payload=b"")), alone(put(procedure=RDMA_NOMSG, payload=b""))
behind_nomsg = on("reply", when=lambda endpoint, plan: plan.header.procedure == RDMA_NOMSG)(put(payload=bytes(16)))


@on("reply", when=lambda endpoint, plan: plan.header.procedure == RDMA_MSG)
def other_xid(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    plan.payload = pack(">I", int.from_bytes(plan.payload[:4], "big") ^ 1) + plan.payload[4:]


def credits(kind: str, backward: bool) -> Spoil:
    """Set the credit value to zero."""
    return on(kind, backward=backward)(put(credits=0))


@on("call")
def same_xid(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Use the XID of another outstanding call."""
    others = [xid for xid, asked in endpoint.requester.outstanding.items() if asked.header and xid != plan.header.xid]
    need(others and plan.payload)
    plan.header.xid = others[0]
    plan.payload = pack(">I", others[0]) + plan.payload[4:]


# Programs


@alone
def other_program(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Call a program without a known upper-layer binding."""
    plan.payload = whole(service.null(plan.header.xid, 200001, 1))


@alone
def short_arguments(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Send a WRITE whose arguments end after the file handle; the requester may do so, and is answered GARBAGE_ARGS."""
    plan.payload = rpc.call_head(plan.header.xid, NFS, 3, service.WRITE) + rpc.opaque(service.HANDLE)


# Errors


def refusing(change: Change) -> Spoil:
    """Answer a call without chunks by RDMA_ERR_BADHEADER, and spoil that."""

    @on("reply", chunks=False, when=lambda endpoint, plan: endpoint.answered)  # Otherwise the conversation would end.
    def spoiled(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
        header = plan.header
        plan.header = endpoint.new_error(header, header.credits or 1, ERR_CHUNK)
        plan.payload = b""
        change(endpoint, plan)

    return spoiled


def other_header_xid(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    plan.header.xid ^= 0xFF


behind_error, unknown_error = refusing(put(payload=bytes(12))), refusing(put(error=7))
error_of_unknown_xid = refusing(other_header_xid)
error_of_version = refusing(lambda endpoint, plan: patch(plan, VERSION_WORD, 7))
of_range = on("error", when=lambda endpoint, plan: plan.header.supported)
other_error = of_range(put(error=ERR_CHUNK, supported=None))
"""RDMA_ERR_BADHEADER where the version is at fault."""


@of_range
def range_of_all(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Include the refused version in the range of supported versions."""
    plan.header.supported = (1, plan.header.version)


@on("reply", chunks=False)
def error_and_reply(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    header = plan.header
    plan.before.append(Send(encode_header(endpoint.new_error(header, header.credits or 1, ERR_CHUNK))))


@on("reply", chunks=False)
def success(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Report SUCCESS instead of GARBAGE_ARGS."""
    need(int.from_bytes(plan.payload[20:24], "big") == GARBAGE_ARGS)
    plan.payload = service.write_done(plan.header.xid)


# The backward direction


unregistered = ReadChunk(0, (NOWHERE,))
backward_nomsg = on("call", backward=True)(put(procedure=RDMA_NOMSG, payload=b"", reads=(unregistered,)))
backward_chunk = on("call", backward=True)(put(reply=WriteChunk((NOWHERE,))))


@on("reply")
def callback_unannounced(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Send a callback after the first reply, although the client did not offer a back channel."""
    xid = plan.header.xid ^ 0x4000_0000
    header = endpoint.new_header(xid, endpoint.requester.credits, RDMA_MSG, 0)
    plan.after.append(Send(encode_header(header) + whole(service.null(xid, NFS_CALLBACK, 1))))


# Send With Invalidate


@on("reply", chunks=True, when=lambda endpoint, plan: plan.invalidate is None)
def invalidate_unasked(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    assert plan.asked is not None
    plan.invalidate = chunk_segments(plan.asked)[0][0].handle


invalidating = on("reply", chunks=True, when=lambda endpoint, plan: plan.invalidate is not None)
invalidate_other = invalidating(put(invalidate=NOWHERE.handle))
invalidate_in_call = on("call", later=True)(put(invalidate=NOWHERE.handle))


# Read chunks


reading = on("call", when=lambda endpoint, plan: any(chunk.position for chunk in plan.header.reads))
"""Spoils only calls with a Read chunk after the start of the stream."""


def shifted(by: int) -> Spoil:
    """Shift the Positions of Read chunks by ``by`` bytes."""

    @reading
    def spoil(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
        plan.header.reads = tuple(
            chunk._replace(position=chunk.position + by if chunk.position else 0) for chunk in plan.header.reads
        )

    return spoil


@reading
def interleaved(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Put the segments of the chunk at Position 0 around those of another chunk."""
    reads = plan.header.reads
    need(len(reads) > 1 and not reads[0].position and len(reads[0].segments) > 1)
    first, *rest = reads[0].segments
    plan.header.reads = (ReadChunk(0, (first,)), *reads[1:], ReadChunk(0, tuple(rest)))


@reading
def pad_inline(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Leave the pad of the last item in the stream."""
    left = pad(plan.header.reads[-1].length)
    need(left and plan.payload)
    plan.payload += left


@reading
def long_call_elsewhere(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    need(plan.payload)
    plan.header.procedure, plan.payload = RDMA_NOMSG, b""


@reading
def shorter_chunk(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Make a Read chunk four bytes shorter than the count word says."""
    *before, last = plan.header.reads
    *segments, final = last.segments
    need(final.length > WORD)
    plan.header.reads = (*before, ReadChunk(last.position, (*segments, final._replace(length=final.length - WORD))))


@reading
def not_eligible(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Move the chunk to where the file handle is."""
    need(plan.payload and len(plan.header.reads) == 1)
    chunk = plan.header.reads[0]
    plan.header.reads = (chunk._replace(position=chunk.position - 40),)


def ineligible_accepted(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> bool:
    """Report SUCCESS for a call with a Read chunk at an item that is not eligible, instead of an error."""
    failed = plan.kind == "error" or int.from_bytes(plan.payload[20:24], "big") == GARBAGE_ARGS
    if plan.backward or plan.asked is None or not failed or not any(chunk.position for chunk in plan.asked.reads):
        return False
    direction = 1 if plan.header.version > 1 else None
    plan.header.procedure, plan.header.error, plan.header.direction = RDMA_MSG, None, direction
    plan.payload = service.write_done(plan.header.xid)
    return True


read_list = on("reply")(put(reads=(unregistered,)))


def sealed(gss_procedure: int, before_end: int) -> Spoil:
    """Make it an RPCSEC_GSS call (RFC 2203, 5.3) with its Read chunk ``before_end`` bytes before the inline part's
    end."""

    @reading
    def spoil(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
        need(plan.payload and len(plan.header.reads) == 1)
        plan.payload = service.sealed_call(plan.header.xid, gss_procedure)
        plan.header.reads = (plan.header.reads[0]._replace(position=len(plan.payload) - before_end),)

    return spoil


# Write chunks and the Reply chunk


@on("call")
def small_reply_chunk(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Offer a Reply chunk an eighth as long as the directory listing asked for."""
    chunk = plan.header.reply
    if chunk is None or chunk.length < 8 * endpoint.receive_limit or plan.header.writes:
        raise NoOccasion
    plan.header.reply = with_lengths(chunk, [segment.length // 8 for segment in chunk.segments])


@on("call")
def small_write_chunk(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Offer a Write chunk half as long as the READ asks for; the data then comes inline."""
    writes = plan.header.writes
    need(len(writes) == 1 and plan.header.reply is None and 8 <= writes[0].length <= 1000)
    plan.header.writes = (with_lengths(writes[0], [segment.length // 2 for segment in writes[0].segments]),)


@on("call")
def no_reply_chunk(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Ask for a directory listing that does not fit inline, without a Reply chunk."""
    chunk = plan.header.reply
    if chunk is None or chunk.length < 2 * endpoint.receive_limit or plan.header.writes or not plan.payload:
        raise NoOccasion
    plan.header.reply = None


made_up_reply_chunk = on("reply", chunks=False)(put(procedure=RDMA_NOMSG, payload=b"", reply=WriteChunk((NOWHERE,))))


def returning(change: Callable[[RpcRdmaEndpoint, PlannedSend, WriteChunk, WriteChunk], None]) -> Spoil:
    """Spoil only READ replies with data in the first Write chunk; ``change`` gets that as offered and as returned."""

    @on("reply", when=lambda endpoint, plan: plan.header.writes and plan.header.procedure == RDMA_MSG)
    def spoiled(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
        need(plan.header.writes[0].length)
        assert plan.asked is not None
        change(endpoint, plan, plan.asked.writes[0], plan.header.writes[0])

    return spoiled


def _return(plan: PlannedSend, chunk: WriteChunk) -> None:
    plan.header.writes = (chunk, *plan.header.writes[1:])


def _unused(chunk: WriteChunk) -> bool:
    """Whether its last segment, one of several, was not needed."""
    return len(chunk.segments) > 1 and chunk.segments[-1].length == 0


@returning
def segment_missing(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> None:
    need(_unused(returned))
    _return(plan, WriteChunk(returned.segments[:-1]))


@returning
def other_handle(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> None:
    first, *rest = returned.segments
    _return(plan, WriteChunk((first._replace(handle=0), *rest)))


@returning
def longer_than_given(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> None:
    """Return twice what was advertised, also in the counts of the READ: NFSv3 has one more, before its EOF word."""
    need(len(given.segments) == 1 and returned.length == given.length)
    twice, before = 2 * given.length, plan.payload[-12:-4]
    if before.startswith(pack(">I", given.length)):
        before = pack(">II", twice, 0)
    plan.payload = plan.payload[:-12] + before + pack(">I", twice)
    _return(plan, with_lengths(returned, [2 * given.length]))


@returning
def out_of_order(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> None:
    """Write half into the first segment and half into the second, though all fits the first."""
    first = plan.before[0] if plan.before else None
    if not _unused(returned) or len(plan.before) != 1 or not isinstance(first, RdmaWrite) or len(given.segments) != 2:
        raise NoOccasion
    half = len(first.data) // 2
    halves = [first.data[:half], first.data[half:]]
    need(half and len(halves[1]) <= given.segments[1].length)
    plan.before = [
        RdmaWrite(segment._replace(length=len(data)), data)
        for segment, data in zip(given.segments, halves, strict=True)
    ]
    _return(plan, with_lengths(given, [len(data) for data in halves]))


@returning
def unfilled(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> None:
    """Return a segment that was not needed with its full length."""
    need(_unused(returned))
    lengths = [segment.length for segment in returned.segments[:-1]]
    _return(plan, with_lengths(returned, [*lengths, given.segments[-1].length]))


@returning
def unused_chunk(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> None:
    """Fail the READ, and return its Write chunk as it was offered."""
    plan.payload = service.read_failed(plan.payload)
    plan.before = []
    _return(plan, given)


@returning
def half_written(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> None:
    first = plan.before[0]
    if len(plan.before) != 1 or not isinstance(first, RdmaWrite) or len(first.data) < 8:
        raise NoOccasion
    half = first.data[: len(first.data) // 2]
    plan.before = [RdmaWrite(first.segment._replace(length=len(half)), half)]


@returning
def pad_written(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> None:
    """Write the pad of the item after it, into the same segment."""
    last = plan.before[-1]
    if not isinstance(last, RdmaWrite):
        raise NoOccasion
    room = next(segment.length for segment in given.segments if segment.handle == last.segment.handle)
    data = last.data + pad(len(last.data))
    need(len(last.data) < len(data) <= room)
    plan.before[-1] = RdmaWrite(last.segment._replace(length=len(data)), data)


@returning
def other_count(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> None:
    """Make the count word 100 lower than what is written and returned."""
    count = int.from_bytes(plan.payload[-4:], "big")
    need(len(plan.header.writes) == 1 and count == returned.length and count > 100)
    plan.payload = plan.payload[:-4] + pack(">I", count - 100)


@returning
def item_inline(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> None:
    """Send the bytes of the Write chunk inline as well."""
    data = b"".join(step.data for step in plan.before if isinstance(step, RdmaWrite))
    need(len(plan.header.writes) == 1 and len(data) == returned.length and len(data) + 200 <= endpoint.send_limit)
    plan.payload += data + pad(len(data))


@returning
def write_late(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> None:
    """Issue the RDMA Writes after the reply."""
    plan.before, plan.after = [], plan.before


@returning
def outside(endpoint: RpcRdmaEndpoint, plan: PlannedSend, given: WriteChunk, returned: WriteChunk) -> None:
    """Write one byte after a segment that ends within a page, where devices do not notice."""
    last = given.segments[-1]
    need(last.length % 4096)
    plan.before.insert(0, RdmaWrite(Segment(last.handle, 1, last.offset + last.length), b"\xff"))


@on("reply")
def read_late(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Read the call's Read chunk again, after the reply."""
    assert plan.asked is not None
    need(plan.asked.reads and plan.invalidate is None)
    plan.after.append(RdmaRead(endpoint.number(), plan.asked.reads[0].segments[0]))


@on("call", later=True)
def requester_writes(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    plan.before.append(RdmaWrite(NOWHERE, bytes(NOWHERE.length)))


UNKNOWN_OPTION, UNKNOWN_CHARACTERISTIC = 77, 77


def option(number: int, when: When | None = None) -> Callable[[Change], Spoil]:
    """Spoil only messages with this option."""
    return on("option", when=lambda endpoint, plan: plan.header.option == number and (not when or when(endpoint, plan)))


def characteristics(endpoint: RpcRdmaEndpoint, *more: tuple[int, Any]) -> list[Any]:
    """The xcharspec of this end, with ``more`` characteristics."""
    return [xcharval(which, value) for which, value in (*endpoint.characteristics.own.items(), *more)]


# Sizes: whether a Send of so many bytes is too long in just one way


def beyond_4096(endpoint: RpcRdmaEndpoint, size: int) -> bool:
    return endpoint.version == 2 and not endpoint.characteristics.known and size > endpoint.send_limit


def beyond_buffer(endpoint: RpcRdmaEndpoint, size: int) -> bool:
    return endpoint.version == 2 and endpoint.characteristics.known and size > endpoint.send_limit


def beyond_request(endpoint: RpcRdmaEndpoint, size: int) -> bool:
    """Whether it fits the size in force, but not the smaller one that this end has asked for."""
    return beyond_buffer(endpoint, size) and size <= int(endpoint.characteristics.peer[XCHAR_RBSIZ])


# Version 2


says_call = on("reply", when=lambda endpoint, plan: (plan.header.version, plan.header.procedure) == (2, RDMA_MSG))(
    put(direction=CALL)
)
of_version_1 = on("reply", chunks=False, when=lambda endpoint, plan: plan.header.version == 2 and endpoint.answered)(
    put(version=1)
)
says_reply = option(ROPT_INITXCH)(put(direction=REPLY))


def option_behind(number: int, content: Callable[[RpcRdmaEndpoint], bytes]) -> Spoil:
    """Send an option after a call."""

    @on("call", later=True, when=lambda endpoint, plan: plan.header.version == 2)
    def spoil(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
        header = endpoint.new_header(plan.header.xid ^ 0x2000_0000, plan.header.credits or 1, RDMA_OPTIONAL, CALL)
        header.option, header.optinfo = number, content(endpoint)
        plan.after.append(Send(encode_header(header)))

    return spoil


unknown_option = option_behind(UNKNOWN_OPTION, lambda endpoint: b"what")
"""Sends an option that no document defines, which is allowed."""
once_more = option_behind(ROPT_INITXCH, lambda endpoint: encode_option(ROPT_INITXCH, characteristics(endpoint), []))


option_as_header = on("error", when=lambda endpoint, plan: plan.header.error == ERR_INVAL_OPTION)(put(error=ERR_CHUNK))


# Options


@option(ROPT_INITXCH)
def overrun(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Claim 900 bytes of xchv_data where there are 4."""
    plan.header.optinfo = plan.header.optinfo[:8] + pack(">I", 900) + plan.header.optinfo[12:]


bool_7 = option(ROPT_INITXCH)(put(optinfo=encode_option(ROPT_INITXCH, [xcharval(XCHAR_REQREMINV, 7)], [])))


def announcing(*more: tuple[int, Any], own: dict[int, int] | None = None, subset: Sequence[int] = ()) -> Spoil:
    """Send ROPT_INITXCH with ``more`` characteristics, or other ``own`` values; ``subset``: which will not change."""

    @option(ROPT_INITXCH)
    def spoil(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
        endpoint.characteristics.own.update(own or {})
        plan.header.optinfo = encode_option(ROPT_INITXCH, characteristics(endpoint, *more), [*subset])

    return spoil


unknown_characteristic = announcing((UNKNOWN_CHARACTERISTIC, b"\0\0\0\1"))
experimental = announcing((EXPERIMENTAL[0], b"\0\0\0\1"))
small_buffer = announcing(own={XCHAR_RBSIZ: 2048})
no_backward_support = announcing(own={XCHAR_BRS: BKREQSUP_NONE})
too_long = announcing(subset=[0] * 300)
"""Announces a subset of 300 words, all of them empty."""


@option(ROPT_INITXCH)
def call_behind(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    plan.payload = whole(service.null(plan.header.xid))


@option(ROPT_INITXCH)
def all_fixed(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Announce that nothing will change, and yet change it when asked."""
    values = characteristics(endpoint)
    plan.header.optinfo = encode_option(ROPT_INITXCH, values, xcharsubset(range(len(values))))


response_xid = option(ROPT_RESPXCH)(other_header_xid)


@option(ROPT_RESPXCH)
def two_sets(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Report what was done as rejected, too."""
    content = decode_option(ROPT_RESPXCH, plan.header.optinfo)
    if not isinstance(content, RespXch) or not content.done:
        raise NoOccasion
    subsets = [xcharsubset(places) for places in (content.done, content.done | content.rejected, content.pending)]
    plan.header.optinfo = encode_option(ROPT_RESPXCH, *subsets)


@option(ROPT_UPDXCH)
def clears_nothing(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Set optupdxch_pendclr in an unsolicited change."""
    plan.header.optinfo = plan.header.optinfo[:-4] + pack(">I", 1)


@option(ROPT_UPDXCH, when=lambda endpoint, plan: endpoint.settings.receive_buffer > 4096)
def shrinks(endpoint: RpcRdmaEndpoint, plan: PlannedSend) -> None:
    """Lower the Receive Buffer Size to 4096; a lower size would be another fault (version-two-01, 2.3)."""
    endpoint.characteristics.own[XCHAR_RBSIZ] = 4096
    plan.header.optinfo = encode_option(ROPT_UPDXCH, xcharval(XCHAR_RBSIZ, 4096), 0)
