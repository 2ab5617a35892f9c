"""How messages are spoiled: functions that change a PlannedSend in place, and return whether there was an occasion."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import TYPE_CHECKING

from rdmascope.dissect.layers.oncrpc_codes import GARBAGE_ARGS
from rdmascope.dissect.layers.rpcrdma_codes import ERR_CHUNK, RDMA_DONE, RDMA_MSG, RDMA_MSGP, RDMA_NOMSG
from rdmascope.dissect.onc.programs import NFS, NFS_CALLBACK
from rdmascope.dissect.rpcrdma.messages import ReadChunk, Segment, WriteChunk

from ..endpoint import service
from ..endpoint.build_header import encode_header
from ..endpoint.nouns import Send
from ..endpoint.payload import whole
from ..endpoint.plan import PlannedSend

if TYPE_CHECKING:
    from ..endpoint.view import EndpointView

Spoil = Callable[["EndpointView", PlannedSend], bool]

NOWHERE = Segment(0x0BAD_CAFE, 64, 0x7000_0000)
"""Memory that was never registered."""
WORD = 4
VERSION_WORD, PROCEDURE_WORD = 4, 12
"""Offsets in every header (RFC 8166, 4.2)."""


def on(kind: str, *, backward: bool = False, chunks: bool | None = None) -> Callable[[Spoil], Spoil]:
    """Only messages of a kind and direction; ``chunks``: only those whose call has chunks, or has none."""

    def choose(spoil: Spoil) -> Spoil:
        def spoiled(endpoint: EndpointView, plan: PlannedSend) -> bool:
            if plan.kind != kind or plan.backward is not backward:
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


def settled(endpoint: EndpointView) -> bool:
    """A reply has come: what follows is not about the version."""
    return endpoint.requester.granted is not None


# Sizes: whether a Send of so many bytes is too long in just one way


def beyond(endpoint: EndpointView, size: int) -> bool:
    return size > endpoint.send_limit


def beyond_peer(endpoint: EndpointView, size: int) -> bool:
    sizes = endpoint.announced()
    return sizes is not None and size > sizes[1]


def beyond_own(endpoint: EndpointView, size: int) -> bool:
    sizes = endpoint.announced()
    return sizes is not None and endpoint.send_limit < size <= sizes[1]


def fits_inline(endpoint: EndpointView, size: int) -> bool:
    return size <= endpoint.send_limit


def beyond_default(endpoint: EndpointView, size: int) -> bool:
    return endpoint.announced() is None and size > endpoint.send_limit


# Words of the header


def word(at: int, value: int) -> Spoil:
    """A call, not the first, with another word in its header."""

    @on("call")
    def spoil(endpoint: EndpointView, plan: PlannedSend) -> bool:
        return settled(endpoint) and patch(plan, at, value)

    return spoil


@on("call")
def optional_word(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """The word before the Read list is 2."""
    return settled(endpoint) and patch(plan, 16 if plan.header.version == 1 else 20, 2)


def procedure(number: int) -> Spoil:
    @on("call", chunks=False)
    def spoil(endpoint: EndpointView, plan: PlannedSend) -> bool:
        if not settled(endpoint) or plan.header.version != 1:
            return False
        plan.header.procedure = number
        if number == RDMA_DONE:
            plan.payload = b""
        return True

    return spoil


msgp, done = procedure(RDMA_MSGP), procedure(RDMA_DONE)


@on("reply")
def other_xid(endpoint: EndpointView, plan: PlannedSend) -> bool:
    if plan.header.procedure != RDMA_MSG:
        return False
    xid = int.from_bytes(plan.payload[:4], "big")
    plan.payload = pack(">I", xid ^ 1) + plan.payload[4:]
    return True


@on("call", chunks=False)
def no_payload(endpoint: EndpointView, plan: PlannedSend) -> bool:
    if not settled(endpoint):
        return False
    plan.payload = b""
    return True


@on("call", chunks=False)
def nothing_at_all(endpoint: EndpointView, plan: PlannedSend) -> bool:
    if not settled(endpoint):
        return False
    plan.header.procedure, plan.payload = RDMA_NOMSG, b""
    return True


@on("reply")
def behind_nomsg(endpoint: EndpointView, plan: PlannedSend) -> bool:
    if plan.header.procedure != RDMA_NOMSG:
        return False
    plan.payload = bytes(16)
    return True


def credits(kind: str, backward: bool) -> Spoil:
    """A credit value of zero."""

    @on(kind, backward=backward)
    def spoil(endpoint: EndpointView, plan: PlannedSend) -> bool:
        plan.header.credits = 0
        return True

    return spoil


@on("call")
def same_xid(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """The XID of another call under way."""
    others = [xid for xid, asked in endpoint.requester.outstanding.items() if asked.header and xid != plan.header.xid]
    if not others or not plan.payload:
        return False
    plan.header.xid = others[0]
    plan.payload = pack(">I", others[0]) + plan.payload[4:]
    return True


# Programs


@on("call", chunks=False)
def other_program(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """A program that no upper-layer binding knows."""
    if not settled(endpoint):
        return False
    plan.payload = whole(service.null(plan.header.xid, 200001, 1))
    return True


@on("call", chunks=False)
def short_arguments(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """A WRITE whose arguments end behind the file handle; the requester may send it, and is answered GARBAGE_ARGS."""
    if not settled(endpoint):
        return False
    head = service.call_head(plan.header.xid, NFS, 3, service.WRITE)
    plan.payload = head + service.opaque(service.HANDLE)
    return True


# Errors


def refusing(spoil: Spoil) -> Spoil:
    """A call without chunks is answered by RDMA_ERR_BADHEADER, and that is spoiled."""

    @on("reply", chunks=False)
    def spoiled(endpoint: EndpointView, plan: PlannedSend) -> bool:
        if not endpoint.answered:
            return False  # without the first reply nothing goes on
        header = plan.header
        plan.header = endpoint.new_error(header.xid, header.version, header.credits or 1, ERR_CHUNK, None)
        plan.payload = b""
        return spoil(endpoint, plan)

    return spoiled


@refusing
def behind_error(endpoint: EndpointView, plan: PlannedSend) -> bool:
    plan.payload = bytes(12)
    return True


@refusing
def error_of_unknown_xid(endpoint: EndpointView, plan: PlannedSend) -> bool:
    plan.header.xid ^= 0xFF
    return True


@refusing
def error_of_version(endpoint: EndpointView, plan: PlannedSend) -> bool:
    return patch(plan, VERSION_WORD, 7)


@refusing
def unknown_error(endpoint: EndpointView, plan: PlannedSend) -> bool:
    plan.header.error = 7
    return True


@on("error")
def range_of_all(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """The range holds the version that is refused."""
    if plan.header.supported is None:
        return False
    plan.header.supported = (1, plan.header.version)
    return True


@on("error")
def other_error(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """RDMA_ERR_BADHEADER where the version is at fault."""
    if plan.header.supported is None:
        return False
    plan.header.error, plan.header.supported = ERR_CHUNK, None
    return True


@on("reply", chunks=False)
def error_and_reply(endpoint: EndpointView, plan: PlannedSend) -> bool:
    header = plan.header
    error = endpoint.new_error(header.xid, header.version, header.credits or 1, ERR_CHUNK, None)
    plan.before.append(Send(encode_header(error)))
    return True


@on("reply", chunks=False)
def success(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """SUCCESS where GARBAGE_ARGS is due."""
    if int.from_bytes(plan.payload[20:24], "big") != GARBAGE_ARGS:
        return False
    plan.payload = service.write_done(plan.header.xid)
    return True


# The backward direction


@on("call", backward=True)
def backward_nomsg(endpoint: EndpointView, plan: PlannedSend) -> bool:
    plan.header.procedure, plan.payload = RDMA_NOMSG, b""
    plan.header.reads = (ReadChunk(0, (NOWHERE,)),)
    return True


@on("call", backward=True)
def backward_chunk(endpoint: EndpointView, plan: PlannedSend) -> bool:
    plan.header.reply = WriteChunk((NOWHERE,))
    return True


@on("reply")
def callback_unannounced(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """A callback behind the first reply, when nothing was offered for it."""
    xid = plan.header.xid ^ 0x4000_0000
    header = endpoint.new_header(xid, endpoint.requester.credits, RDMA_MSG, 0)
    plan.after.append(Send(encode_header(header) + whole(service.null(xid, NFS_CALLBACK, 1))))
    return True


# Send With Invalidate


@on("reply", chunks=True)
def invalidate_unasked(endpoint: EndpointView, plan: PlannedSend) -> bool:
    assert plan.asked is not None
    if plan.invalidate is not None:
        return False
    plan.invalidate = _first_handle(plan)
    return True


@on("reply", chunks=True)
def invalidate_other(endpoint: EndpointView, plan: PlannedSend) -> bool:
    if plan.invalidate is None:
        return False
    plan.invalidate = NOWHERE.handle
    return True


@on("call")
def invalidate_in_call(endpoint: EndpointView, plan: PlannedSend) -> bool:
    if not settled(endpoint):
        return False
    plan.invalidate = NOWHERE.handle
    return True


def _first_handle(plan: PlannedSend) -> int:
    asked = plan.asked
    assert asked is not None
    chunks: list[ReadChunk | WriteChunk] = [*asked.reads, *asked.writes, *([asked.reply] if asked.reply else [])]
    return chunks[0].segments[0].handle
