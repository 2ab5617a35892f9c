"""What any requester may send, and what a responder has to answer."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import NamedTuple

from rdmascope.dissect.layers.characteristics_codes import EXPERIMENTAL, ROPT_INITXCH
from rdmascope.dissect.layers.rpcrdma_codes import (
    ERR_INVAL_OPTION,
    ERR_VERS,
    RDMA_ERROR,
    RDMA_MSG,
    RDMA_NOMSG,
    RDMA_OPTIONAL,
)
from rdmascope.dissect.onc.programs import NFS
from rdmascope.dissect.onc.rpc_header import reply_header
from rdmascope.dissect.rpcrdma.messages import ReadChunk, Segment, TransportHeader, WriteChunk

from ..synth.endpoint import DdpItem, Parts, service, whole
from ..synth.endpoint.build_header import encode_option, xcharval
from ..synth.endpoint.payload import reduce
from ..verbs.interface import RegisteredMemory
from .raw_connection import CREDITS, Answer, Outcome, RawConnection
from .serve import OP_GETATTR, OP_PUTROOTFH, SUPPORTED_ATTRS
from .verdicts import CheckVerdict, VerdictKind, absent, check, named, passed, refusal, violation

OP_LOOKUP, OP_READ = 15, 25
UNKNOWN_OPTION = 0x7FFFFFFF
ABSURD_VERSION = 0x7FFFFFFF
_HEADER = 28
"""Bytes of an RDMA_MSG without chunks."""
_QUESTIONS = 40
"""Each takes 12 bytes of the call, and at least 28 of the reply."""
_FEW = 256
"""Bytes of a file that fit inline."""
_UNKNOWN_HANDLE = pack(">I4s", 4, b"none")
"""A file handle that no server gave out."""


def message(xid: int, version: int = 1) -> TransportHeader:
    """An RDMA_MSG without chunks; of version 2 a CALL."""
    return TransportHeader(xid, version, CREDITS, RDMA_MSG, direction=0 if version > 1 else None)


def null(xid: int) -> bytes:
    return whole(service.null(xid))


def verbose(xid: int) -> bytes:
    """An NFSv4.0 COMPOUND whose reply is longer than 1024 bytes: which attributes the root has, again and again."""
    ask = pack(">III", OP_GETATTR, 1, 1 << SUPPORTED_ATTRS) * _QUESTIONS
    head = service.call_head(xid, NFS, 4, service.COMPOUND) + service.opaque(b"")
    return head + pack(">III", 0, 1 + _QUESTIONS, OP_PUTROOTFH) + ask


def write(xid: int, data: bytes) -> Parts:
    """An NFSv3 WRITE into no file."""
    head = service.call_head(xid, NFS, 3, service.WRITE) + _UNKNOWN_HANDLE + pack(">QII", 0, len(data), 2)
    return head + pack(">I", len(data)), DdpItem(data)


def read(xid: int, count: int) -> bytes:
    """An NFSv3 READ of no file."""
    return service.call_head(xid, NFS, 3, service.READ) + _UNKNOWN_HANDLE + pack(">QI", 0, count)


def read_path(xid: int, path: str, count: int) -> bytes:
    """An NFSv4.0 READ of a file by its path, with the anonymous stateid (RFC 7530, 9.1.4.3 and 16.25)."""
    names = [part.encode() for part in path.split("/") if part]
    lookups = b"".join(pack(">I", OP_LOOKUP) + service.opaque(name) for name in names)
    head = service.call_head(xid, NFS, 4, service.COMPOUND) + service.opaque(b"")
    anonymous = pack(">I16xQI", OP_READ, 0, count)
    return head + pack(">III", 0, 2 + len(names), OP_PUTROOTFH) + lookups + anonymous


def replied(answer: Answer, stream: bytes | None = None, *, parsed: bool = False) -> CheckVerdict:
    """The answer has to be the RPC reply, inline or in ``stream``; ``parsed``: one that understood the arguments."""
    if verdict := absent(answer):
        return verdict
    header = answer.header
    assert header is not None
    observed = named(answer)
    wanted = RDMA_NOMSG if stream is not None else RDMA_MSG
    if header.problem or header.procedure != wanted:
        unasked = header.procedure == RDMA_NOMSG and stream is None
        return violation(observed, "V1-HEADER-XDR" if header.problem else "V1-REPLY-CHUNK-MISSING" if unasked else "")
    if stream is not None and answer.payload:
        return violation(f"{observed}, and {len(answer.payload)} bytes behind it", "V1-NOMSG-PAYLOAD")
    data = answer.payload if stream is None else stream
    reply = reply_header(data, 0, len(data))
    if reply is None or reply.xid != header.xid:
        return violation(f"{observed} without the reply of that XID", "V1-XID-MATCH")
    if header.reads:
        return violation(f"{observed} with a Read list", "V1-READ-IN-REPLY")
    if parsed and reply.error == "GARBAGE_ARGS":
        return violation(f"{observed}, GARBAGE_ARGS")
    return passed(f"{observed}, {reply.error or 'SUCCESS'}, {header.credits} credits")


def returned(offered: WriteChunk, received: WriteChunk | None, what: str) -> CheckVerdict | None:
    """A chunk in a reply has to be the call's, with lengths that are no longer; None where it is."""
    if received is None or len(received.segments) != len(offered.segments):
        return violation(
            f"{what} has {len(received.segments) if received else 'no'} segments, of {len(offered.segments)}",
            "V1-WRITE-SEGMENT-COUNT",
        )
    full = True
    for mine, theirs in zip(offered.segments, received.segments, strict=True):
        if (mine.handle, mine.offset) != (theirs.handle, theirs.offset):
            return violation(f"{what} returns another segment than it was given", "V1-WRITE-SEGMENT-COPY")
        if theirs.length > mine.length:
            words = f"{what} returns {theirs.length} bytes of a segment of {mine.length}"
            return violation(words, "V1-WRITE-SEGMENT-LENGTH")
        if theirs.length and not full:
            return violation(f"{what} has data behind a segment that is not full", "V1-WRITE-FILL-ORDER")
        full = theirs.length == mine.length
    return None


def contents(pieces: list[RegisteredMemory], chunk: WriteChunk) -> bytes:
    """What the responder says it wrote."""
    pairs = zip(pieces, chunk.segments, strict=True)
    return b"".join(memory.fetch(0, segment.length) for memory, segment in pairs)


def through_reply_chunk(
    answer: Answer, offered: WriteChunk, pieces: list[RegisteredMemory], *, must: bool
) -> CheckVerdict:
    """A reply to a call with a Reply chunk; ``must``: it is too long for anything else."""
    if verdict := absent(answer):
        return verdict
    header = answer.header
    assert header is not None
    if header.procedure == RDMA_ERROR or header.problem:
        return violation(named(answer))
    if header.procedure == RDMA_NOMSG:
        if verdict := returned(offered, header.reply, "the Reply chunk"):
            return verdict
        assert header.reply is not None
        verdict = replied(answer, contents(pieces, header.reply))
        return verdict if verdict.kind is not VerdictKind.PASS else passed(f"{verdict.observed}, in the Reply chunk")
    if must:
        return violation(f"{named(answer)} of {len(answer.payload)} bytes inline")
    if header.reply is not None:
        if verdict := returned(offered, header.reply, "the Reply chunk"):
            return verdict
        if any(segment.length for segment in header.reply.segments):
            return violation(f"{named(answer)} inline, and a Reply chunk that is not empty")
    return replied(answer)


def ask_for_long_reply(on: RawConnection, chunk: WriteChunk) -> Answer:
    """A call whose reply is longer than 1024 bytes, with a Reply chunk; a long call where it does not fit."""
    xid = on.xid()
    call = verbose(xid)
    header = message(xid)
    header.reply = chunk
    if _HEADER + 4 + 16 * len(chunk.segments) + len(call) > on.to_server:
        _, zero = on.chunk([len(call)], call)
        header.procedure, header.reads, call = RDMA_NOMSG, (ReadChunk(0, zero.segments),), b""
    return on.ask(header, call)


@check("short-call", "V1-XID-MATCH")
def short_call(on: RawConnection) -> CheckVerdict:
    """A NULL call in an RDMA_MSG without chunks; the reply comes so, too, under the same XID."""
    xid = on.xid()
    return replied(on.ask(message(xid), null(xid)))


@check("credit-grant", "V1-CREDIT-ZERO")
def credit_grant(on: RawConnection) -> CheckVerdict:
    """A NULL call; the credit value of the reply is not zero."""
    xid = on.xid()
    answer = on.ask(message(xid), null(xid))
    if verdict := absent(answer):
        return verdict
    granted = answer.header.credits if answer.header else None
    return passed(f"{granted} granted") if granted else violation("a grant of zero")


@check("long-call", "V1-NOMSG-CHUNK")
def long_call(on: RawConnection) -> CheckVerdict:
    """A NULL call in an RDMA_NOMSG, its message in a position-zero Read chunk; the reply comes in an RDMA_MSG."""
    return _long_call(on, 1)


@check("long-call-segments", "V1-NOMSG-CHUNK")
def long_call_segments(on: RawConnection) -> CheckVerdict:
    """A NULL call in a position-zero Read chunk of three segments."""
    return _long_call(on, 3)


def _long_call(on: RawConnection, count: int) -> CheckVerdict:
    xid = on.xid()
    data = null(xid)
    size = len(data) // count // 4 * 4
    _, chunk = on.chunk([size] * (count - 1) + [len(data) - size * (count - 1)], data)
    header = TransportHeader(xid, 1, CREDITS, RDMA_NOMSG, reads=(ReadChunk(0, chunk.segments),))
    return replied(on.ask(header))


@check("reply-chunk-spare", "V1-WRITE-SEGMENT-COUNT")
def reply_chunk_spare(on: RawConnection) -> CheckVerdict:
    """A NULL call with a Reply chunk that its reply does not need; whether it is used or not, it comes back as given,
    with true lengths."""
    xid = on.xid()
    pieces, chunk = on.chunk([4096])
    header = message(xid)
    header.reply = chunk
    return through_reply_chunk(on.ask(header, null(xid)), chunk, pieces, must=False)


@check("reply-chunk-used", "V1-REPLY-USES-REPLY-CHUNK", receive_size=1024)
def reply_chunk_used(on: RawConnection) -> CheckVerdict:
    """An NFSv4 COMPOUND whose reply is longer than the inline threshold, with a Reply chunk of two segments; the reply
    comes through it."""
    pieces, chunk = on.chunk([512, 4096])
    answer = ask_for_long_reply(on, chunk)
    header = answer.header
    if header is not None and header.procedure in (RDMA_MSG, RDMA_NOMSG):
        through = header.reply if header.procedure == RDMA_NOMSG else None
        data = answer.payload if through is None or returned(chunk, through, "") else contents(pieces, through)
        reply = reply_header(data, 0, len(data))
        if reply is not None and reply.xid == header.xid and len(data) <= on.to_client - _HEADER:
            return CheckVerdict(
                VerdictKind.SKIPPED, f"no long reply is to be had: {len(data)} bytes, {reply.error or 'SUCCESS'}"
            )
    return through_reply_chunk(answer, chunk, pieces, must=True)


class Filled(NamedTuple):
    """A reply to a call with a Write chunk."""

    answer: Answer
    lengths: list[int]
    """Of the segments that came back."""
    data: bytes
    summary: str


def into_write_chunk(on: RawConnection, call: Callable[[int], bytes]) -> Filled | CheckVerdict:
    """Send ``call`` with a Write chunk of three segments; a verdict where it does not come back as it should."""
    xid = on.xid()
    pieces, chunk = on.chunk([1000, 2000, 3000])
    header = message(xid)
    header.writes = (chunk,)
    answer = on.ask(header, call(xid))
    verdict = replied(answer)
    if verdict.kind is not VerdictKind.PASS or answer.header is None:
        return verdict
    received = answer.header.writes[0] if answer.header.writes else None
    if problem := returned(chunk, received, "the Write chunk"):
        return problem
    assert received is not None
    lengths = [segment.length for segment in received.segments]
    return Filled(answer, lengths, contents(pieces, received), f"{verdict.observed}, lengths {lengths}")


@check("write-chunk-segments", "V1-WRITE-UNFILLED")
def write_chunk_segments(on: RawConnection) -> CheckVerdict:
    """A READ of a file that is not there, with a Write chunk of three segments; they come back in order, filled as far
    as there were data, the others with length zero."""
    found = into_write_chunk(on, lambda xid: read(xid, 4000))
    if isinstance(found, CheckVerdict):
        return found
    if found.data and (nfs_status(found.answer) or rpc_error(found.answer)):
        return violation(f"a READ that failed returns {len(found.data)} bytes in its Write chunk")
    return passed(found.summary)


@check("write-chunk-used", "V1-CHUNK-LENGTH-MATCH")
def write_chunk_used(on: RawConnection) -> CheckVerdict:
    """A READ of a file, with a Write chunk of three segments; the data come through it, the count that is left in the
    reply is the sum of the lengths, and a READ without chunks brings the same bytes."""

    def reading(xid: int, count: int) -> bytes:
        return read_path(xid, on.file, count) if on.file else read(xid, count)

    found = into_write_chunk(on, lambda xid: reading(xid, 5000))
    if isinstance(found, CheckVerdict):
        return found
    if nothing := unread(on, found.answer):
        return nothing
    count = int.from_bytes(found.answer.payload[-4:], "big")
    if len(found.data) != count:
        return violation(f"{len(found.data)} bytes in the Write chunk, {count} in the reply")
    xid = on.xid()
    again = on.ask(message(xid), reading(xid, _FEW))
    data = found.data[:_FEW]
    if not again.payload.endswith(pack(">I", len(data)) + data + bytes(-len(data) % 4)):
        return violation(f"other bytes in the Write chunk than inline ({named(again)})")
    return passed(found.summary)


@check("read-chunk-segments", "V1-READ-POSITION-SAME")
def read_chunk_segments(on: RawConnection) -> CheckVerdict:
    """A WRITE to a file that is not there, its 5,000 bytes in a Read chunk of three segments; the arguments are
    understood, and the reply comes in an RDMA_MSG."""
    xid = on.xid()
    data = service.pattern(0, 5000)
    stream, ((position, _),) = reduce(write(xid, data), (0,))
    _, chunk = on.chunk([1000, 3000, 1000], data)
    header = message(xid)
    header.reads = (ReadChunk(position, chunk.segments),)
    return replied(on.ask(header, stream), parsed=True)


@check("inline-threshold", "PD-INLINE")
def inline_threshold(on: RawConnection) -> CheckVerdict:
    """A WRITE to a file that is not there, as long as the inline threshold allows to the byte; it is received."""
    xid = on.xid()
    head = len(whole(write(xid, b"")))
    call = whole(write(xid, service.pattern(0, on.to_server - _HEADER - head)))
    answer = on.ask(message(xid), call)
    verdict = replied(answer, parsed=True)
    if verdict.kind is not VerdictKind.PASS:
        return verdict
    return passed(f"{_HEADER + len(call):,} bytes, {verdict.observed}")


@check("credits", "V1-CREDIT-EXCEEDED")
def credits(on: RawConnection) -> CheckVerdict:
    """One NULL call, then as many at once as its reply grants; every one is answered."""
    xid = on.xid()
    first = on.ask(message(xid), null(xid))
    verdict = replied(first)
    if verdict.kind is not VerdictKind.PASS:
        return verdict
    granted = (first.header.credits if first.header else None) or 1
    xids = [on.xid() for _ in range(min(granted, CREDITS))]
    for one in xids:
        on.send(message(one), null(one))
    for number, one in enumerate(xids):
        verdict = replied(on.receive(one))
        if verdict.kind is not VerdictKind.PASS:
            return CheckVerdict(verdict.kind, f"after {number} of {len(xids)} replies: {verdict.observed}")
    return passed(f"{len(xids)} at once, all answered, {granted} granted")


@check("no-invalidation", "PD-INVALIDATE-AGREED")
def no_invalidation(on: RawConnection) -> CheckVerdict:
    """A call with a Reply chunk, on a connection that does not allow remote invalidation; the reply does not use it."""
    return _invalidation(on, None)


@check("invalidation", "PD-INVALIDATE-AGREED", remote_invalidation=True)
def invalidation(on: RawConnection) -> CheckVerdict:
    """A call with a Reply chunk behind a type 2 memory window, on a connection that allows remote invalidation; if
    anything is invalidated it is that window, and the server allowed it, too."""
    window = on.link.window(on.memory(4096))
    if window is None:
        return CheckVerdict(VerdictKind.SKIPPED, "this device has no type 2 memory windows")
    return _invalidation(on, window)


def _invalidation(on: RawConnection, window: RegisteredMemory | None) -> CheckVerdict:
    xid = on.xid()
    memory = window or on.memory(4096)
    header = message(xid)
    header.reply = WriteChunk((Segment(memory.handle, 4096, memory.address),))
    answer = on.ask(header, null(xid))
    verdict = through_reply_chunk(answer, header.reply, [memory], must=False)
    if verdict.kind is not VerdictKind.PASS:
        return verdict
    handle = answer.invalidated
    if handle is None:
        return passed("nothing invalidated, as far as the device shows" if window else "nothing invalidated")
    if window is None:
        return violation(f"0x{handle:08x} invalidated, though it was not allowed")
    if handle != window.handle:
        return violation(f"0x{handle:08x} invalidated, which is not the call's 0x{window.handle:08x}")
    if on.announced is None or not on.announced.remote_invalidation:
        return violation(f"0x{handle:08x} invalidated, and the server did not set R")
    return passed(f"0x{handle:08x} invalidated")


@check("version-2", "V1-ERROR-FOR-VERSION")
def version_2(on: RawConnection) -> CheckVerdict:
    """A NULL call in version 2; the reply comes in version 2, or an RDMA_ERR_VERS says which versions there are."""
    xid = on.xid()
    answer = on.ask(message(xid, 2), null(xid))
    header = answer.header
    if answer.outcome is Outcome.ANSWER and header is not None and header.procedure == RDMA_MSG:
        return replied(answer) if header.version == 2 else violation(f"{named(answer)} of version {header.version}")
    return refusal(answer, xid, 2, ERR_VERS)


@check("unknown-option", "V2-INVAL-OPTION")
def unknown_option(on: RawConnection) -> CheckVerdict:
    """In version 2 an RDMA2_OPTIONAL of a type that no document defines; RDMA2_ERR_INVAL_OPTION comes back."""
    answer = on.ask(_option(on.xid(), UNKNOWN_OPTION, b""))
    return _not_supported(answer) or refusal(answer, answer.header.xid if answer.header else 0, 2, ERR_INVAL_OPTION)


@check("unknown-characteristic", "XC-UNKNOWN")
def unknown_characteristic(on: RawConnection) -> CheckVerdict:
    """In version 2 a ROPT_INITXCH with a characteristic that no document defines; it draws no error, except that the
    whole option may not be supported."""
    header = _option(on.xid(), ROPT_INITXCH, encode_option(ROPT_INITXCH, [xcharval(EXPERIMENTAL[0], b"1234")], []))
    answer = on.ask(header)
    if verdict := _not_supported(answer):
        return verdict
    if answer.outcome is Outcome.LOST:
        return CheckVerdict(VerdictKind.LOST, answer.reason)
    received = answer.header
    if received is not None and received.procedure == RDMA_ERROR:
        if received.error == ERR_INVAL_OPTION:
            return CheckVerdict(VerdictKind.SKIPPED, "transport characteristics are not supported")
        return violation(named(answer))
    return passed(named(answer) if received else "accepted without an answer")


def _option(xid: int, option: int, info: bytes) -> TransportHeader:
    return TransportHeader(xid, 2, CREDITS, RDMA_OPTIONAL, direction=0, option=option, optinfo=info)


def _not_supported(answer: Answer) -> CheckVerdict | None:
    """The verdict where the server does not support version 2."""
    refused = answer.header is not None and answer.header.error == ERR_VERS
    return CheckVerdict(VerdictKind.SKIPPED, "version 2 is not supported") if refused else None


@check("version-absurd", "V1-ERROR-FOR-VERSION")
def version_absurd(on: RawConnection) -> CheckVerdict:
    """A message of version 2147483647; an RDMA_ERR_VERS says which versions there are."""
    xid = on.xid()
    words = pack(">7I", xid, ABSURD_VERSION, CREDITS, RDMA_MSG, 0, 0, 0)
    on.send(words, null(xid))
    return refusal(on.receive(xid), xid, ABSURD_VERSION, ERR_VERS)


def unread(on: RawConnection, answer: Answer) -> CheckVerdict | None:
    """The verdict where the reply to a READ has no data; None where the READ succeeded."""
    error, status = rpc_error(answer), nfs_status(answer)
    if not error and status == 0:
        return None
    why = error or ("the reply ends before its status" if status is None else f"status {status}")
    reason = f"{on.file} cannot be read, {why}" if on.file else "no file is known, --file names one"
    return CheckVerdict(VerdictKind.SKIPPED, reason)


def rpc_error(answer: Answer) -> str:
    """Why the RPC program did not perform the call, 'PROG_MISMATCH (3 to 3)'; '' where it did."""
    reply = reply_header(answer.payload, 0, len(answer.payload))
    return "" if reply is None else reply.error


def nfs_status(answer: Answer) -> int | None:
    """The status of NFS in the reply; None where the reply has none."""
    reply = reply_header(answer.payload, 0, len(answer.payload))
    if reply is None or reply.error or reply.body < 0 or reply.body + 4 > len(answer.payload):
        return None
    return int.from_bytes(answer.payload[reply.body : reply.body + 4], "big")
