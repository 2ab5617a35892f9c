"""The conformance suite: what a requester may and may not send, what a responder has to answer, and how that is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from struct import pack
from typing import NamedTuple

from rdmascope.dissect.audit.rule import Rule, all_rules
from rdmascope.dissect.layers.characteristics_codes import EXPERIMENTAL, ROPT_INITXCH
from rdmascope.dissect.layers.rpcrdma_codes import (
    ERR_CHUNK,
    ERR_INVAL_OPTION,
    ERR_VERS,
    RDMA_DONE,
    RDMA_ERROR,
    RDMA_MSG,
    RDMA_MSGP,
    RDMA_NOMSG,
    RDMA_OPTIONAL,
    error_name,
    procedure_name,
)
from rdmascope.dissect.onc.programs import NFS
from rdmascope.dissect.onc.rpc_header import reply_header
from rdmascope.dissect.rpcrdma.messages import ReadChunk, Segment, TransportHeader, WriteChunk

from .. import rpc
from ..endpoint import DdpItem, Parts, service, whole
from ..endpoint.nouns import encode_option, xcharval
from ..rpc import reduce
from ..verbs.interface import PeerAddress, RegisteredMemory, Verbs, VerbsError
from .serve import CREDITS, OP_GETATTR, OP_PUTROOTFH, OP_WRITE, SUPPORTED_ATTRS, Answer, Outcome, RawConnection


class VerdictKind(Enum):
    """A verdict in a word."""

    PASS = "pass"
    VIOLATION = "violation"
    NO_ANSWER = "no answer"
    LOST = "connection lost"
    SKIPPED = "not applicable"


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    kind: VerdictKind
    observed: str
    rule: str = ""
    """The rule that was broken, where it is another than the check's."""


@dataclass(frozen=True, slots=True)
class Check:
    """Something to send for which the specification defines an answer."""

    name: str
    rule: str
    """The rule of the audit that the answer is held against; it has the section."""
    sends: str
    """What is sent, and what has to come back."""
    run: Callable[[RawConnection], CheckVerdict]
    fault: bool = False
    """It sends what no requester may send."""
    remote_invalidation: bool = False
    """It needs a connection that allows remote invalidation."""
    receive_size: int = 4096

    def cited(self) -> Rule:
        return all_rules()[self.rule]


CHECKS: dict[str, Check] = {}
"""By name, in the order in which they are run."""

Function = Callable[[RawConnection], CheckVerdict]


def check(
    name: str,
    rule: str,
    *,
    fault: bool = False,
    remote_invalidation: bool = False,
    receive_size: int = 4096,
) -> Callable[[Function], Function]:
    """Enter the function into the table; its docstring says what is sent and what has to come back."""

    def enter(function: Function) -> Function:
        sends = " ".join((function.__doc__ or "").split())
        CHECKS[name] = Check(name, rule, sends, function, fault, remote_invalidation, receive_size)
        return function

    return enter


def passed(observed: str) -> CheckVerdict:
    return CheckVerdict(VerdictKind.PASS, observed)


def violation(observed: str, rule: str = "") -> CheckVerdict:
    """``rule``: that was broken, where it is not the one that the check is for."""
    return CheckVerdict(VerdictKind.VIOLATION, observed, rule)


def absent(answer: Answer) -> CheckVerdict | None:
    """The verdict on a message that drew no answer; None where there is one."""
    if answer.outcome is Outcome.SILENCE:
        return CheckVerdict(VerdictKind.NO_ANSWER, "no answer")
    if answer.outcome is Outcome.LOST:
        return CheckVerdict(VerdictKind.LOST, answer.reason)
    return None


def named(answer: Answer) -> str:
    """The answer in words: 'RDMA_ERROR, RDMA_ERR_VERS 1 to 1'."""
    header = answer.header
    if header is None:
        return "nothing"
    text = procedure_name(header.version, header.procedure)
    if header.procedure == RDMA_ERROR:
        text += ", " + error_name(header.version, header.error).partition(" (")[0]
        if header.supported:
            text += f" {header.supported[0]} to {header.supported[1]}"
    return text + (f" ({header.problem})" if header.problem else "")


def refusal(answer: Answer, xid: int, version: int, error: int = ERR_CHUNK) -> CheckVerdict:
    """The answer has to be an RDMA_ERROR for the message of that XID and version (RFC 8166, 4.5)."""
    if verdict := absent(answer):
        return verdict
    header = answer.header
    assert header is not None
    observed = named(answer)
    if header.procedure != RDMA_ERROR:
        return violation(f"{observed}: the message was accepted")
    if header.error != error:
        return violation(observed)
    if header.version != version:
        return violation(
            f"{observed} with version {header.version}, of a message of version {version}", "V1-ERROR-VERSION"
        )
    if answer.payload:
        return violation(f"{observed}, and {len(answer.payload)} bytes behind it", "V1-ERROR-PAYLOAD")
    if error == ERR_VERS:
        if header.supported is None:
            return violation(f"{observed} without a range", "V1-ERROR-RANGE")
        low, high = header.supported
        if low > high or low <= version <= high:
            return violation(observed, "V1-ERROR-RANGE")
    return passed(observed)


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
    return at_path(xid, "", pack(">III", OP_GETATTR, 1, 1 << SUPPORTED_ATTRS) * _QUESTIONS, _QUESTIONS)


def write(xid: int, data: bytes) -> Parts:
    """An NFSv3 WRITE into no file."""
    head = rpc.call_head(xid, NFS, 3, service.WRITE) + _UNKNOWN_HANDLE + pack(">QII", 0, len(data), 2)
    return head + pack(">I", len(data)), DdpItem(data)


def read(xid: int, count: int) -> bytes:
    """An NFSv3 READ of no file."""
    return rpc.call_head(xid, NFS, 3, service.READ) + _UNKNOWN_HANDLE + pack(">QI", 0, count)


def at_path(xid: int, path: str, operation: bytes, count: int = 1) -> bytes:
    """An NFSv4.0 COMPOUND of ``count`` operations on a file by its path (RFC 7530, 16.2)."""
    names = [part.encode() for part in path.split("/") if part]
    lookups = b"".join(pack(">I", OP_LOOKUP) + rpc.opaque(name) for name in names)
    head = rpc.call_head(xid, NFS, 4, service.COMPOUND) + rpc.opaque(b"")
    return head + pack(">III", 0, 1 + len(names) + count, OP_PUTROOTFH) + lookups + operation


def read_path(xid: int, path: str, count: int) -> bytes:
    """A READ with the anonymous stateid (RFC 7530, 9.1.4.3 and 16.25)."""
    return at_path(xid, path, pack(">I16xQI", OP_READ, 0, count))


def write_path(xid: int, path: str, data: bytes) -> bytes:
    """A WRITE with the anonymous stateid, and a GETATTR (RFC 7530, 16.36 and 16.7)."""
    write = pack(">I16xQI", OP_WRITE, 0, 0) + rpc.opaque(data)
    return at_path(xid, path, write + pack(">III", OP_GETATTR, 1, 1 << SUPPORTED_ATTRS), 2)


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
    """A reply to a READ with a Write chunk."""

    answer: Answer
    pieces: list[RegisteredMemory]
    """The memory of the chunk's segments."""
    chunk: WriteChunk
    """As the reply returns it."""
    data: bytes
    """What the responder says it wrote."""
    summary: str


def into_write_chunk(on: RawConnection, call: Callable[[int], bytes], sizes: list[int]) -> Filled | CheckVerdict:
    """Send ``call`` with a Write chunk of untouched segments; a verdict where it does not come back as it should."""
    xid = on.xid()
    pieces, chunk = on.chunk(sizes, bytes([UNTOUCHED]) * sum(sizes))
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
    return Filled(answer, pieces, received, contents(pieces, received), f"{verdict.observed}, lengths {lengths}")


def reading(on: RawConnection, xid: int, count: int) -> bytes:
    """A READ of the file that is known or, without one, of no file."""
    return read_path(xid, on.file, count) if on.file else read(xid, count)


def data_into_write_chunk(on: RawConnection, count: int, sizes: list[int]) -> Filled | CheckVerdict:
    """The same of a READ that has to bring data; a verdict where it brings none."""
    found = into_write_chunk(on, lambda xid: reading(on, xid, count), sizes)
    return found if isinstance(found, CheckVerdict) else unread(on, found.answer) or found


def same_inline(on: RawConnection, count: int, data: bytes) -> tuple[bool, Answer]:
    """Whether a READ without chunks brings the same bytes, and its answer."""
    xid = on.xid()
    again = on.ask(message(xid), reading(on, xid, count))
    return again.payload.endswith(rpc.opaque(data)), again


@check("write-chunk-segments", "V1-WRITE-UNFILLED")
def write_chunk_segments(on: RawConnection) -> CheckVerdict:
    """A READ of a file that is not there, with a Write chunk of three segments; they come back in order, filled as far
    as there were data, the others with length zero."""
    found = into_write_chunk(on, lambda xid: read(xid, 4000), [1000, 2000, 3000])
    if isinstance(found, CheckVerdict):
        return found
    if found.data and (nfs_status(found.answer) or rpc_error(found.answer)):
        return violation(f"a READ that failed returns {len(found.data)} bytes in its Write chunk")
    return passed(found.summary)


@check("write-chunk-used", "V1-CHUNK-LENGTH-MATCH")
def write_chunk_used(on: RawConnection) -> CheckVerdict:
    """A READ of a file, with a Write chunk of three segments; the data come through it, the count that is left in the
    reply is the sum of the lengths, and a READ without chunks brings the same bytes."""

    found = data_into_write_chunk(on, 5000, [1000, 2000, 3000])
    if isinstance(found, CheckVerdict):
        return found
    count = int.from_bytes(found.answer.payload[-4:], "big")
    if len(found.data) != count:
        return violation(f"{len(found.data)} bytes in the Write chunk, {count} in the reply")
    same, again = same_inline(on, _FEW, found.data[:_FEW])
    if not same:
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


LENGTHS = (1, 2, 3, 5, 1023, 2999)
UNTOUCHED = 0xA5
"""What the memory of a Write chunk holds before the call."""
ODD = 5
EXACT = 256
"""Bytes that fill a segment, and fit inline, too."""


@check("write-chunk-odd", "V1-WRITE-NO-PAD")
def write_chunk_odd(on: RawConnection) -> CheckVerdict:
    """READs of 1, 2, 3, 5, 1,023 and 2,999 bytes, each with a Write chunk; exactly so many bytes are written and
    returned, and the count in the reply is the same."""
    lengths = []
    for wanted in LENGTHS:
        found = data_into_write_chunk(on, wanted, [1000, 3000])
        if isinstance(found, CheckVerdict):
            return found
        count, length = int.from_bytes(found.answer.payload[-4:], "big"), len(found.data)
        if length != count:
            return violation(f"a READ of {wanted} bytes returns {length} in its Write chunk, and counts {count}")
        memory = b"".join(piece.fetch(0, piece.length) for piece in found.pieces)
        behind = memory[count : count + 4]
        if behind != bytes([UNTOUCHED]) * len(behind):
            return violation(f"a READ of {count} bytes, and pad bytes are written behind them")
        lengths.append(count)
    return passed(f"{', '.join(map(str, lengths))} bytes, and no pad")


@check("write-chunk-exact", "V1-WRITE-LENGTH-TRUE")
def write_chunk_exact(on: RawConnection) -> CheckVerdict:
    """A READ of 256 bytes of a file, with a Write chunk of one segment as long; as many are returned as were written,
    and a READ without chunks brings the same, to the last byte."""
    found = data_into_write_chunk(on, EXACT, [EXACT])
    if isinstance(found, CheckVerdict):
        return found
    data = found.data
    same, again = same_inline(on, EXACT, data)
    if same:
        return passed(f"{len(data)} bytes in one segment, the same inline")
    lacking = bytes([UNTOUCHED]) * 8
    if lacking in data and lacking not in again.payload:
        return violation(f"{len(data)} bytes returned, of which {data.index(lacking)} were written")
    return violation(f"other bytes in the Write chunk than inline ({named(again)})")


@check("inline-write-odd", "V1-READ-ROUNDUP")
def inline_write_odd(on: RawConnection) -> CheckVerdict:
    """An NFSv4.0 COMPOUND with five bytes of WRITE data inline, their pad, and a GETATTR behind; both succeed.  With
    --file the five bytes are those that the file begins with."""
    data = bytes(ODD)
    if on.file:
        xid = on.xid()
        answer = on.ask(message(xid), read_path(xid, on.file, ODD))
        size = answer.payload.find(pack(">I", ODD), max(0, len(answer.payload) - 12))
        if nfs_status(answer) != 0 or size < 0:
            return CheckVerdict(VerdictKind.SKIPPED, f"{on.file} has no {ODD} bytes that can be read")
        data = answer.payload[size + 4 : size + 4 + ODD]
    xid = on.xid()
    answer = on.ask(message(xid), write_path(xid, on.file, data))
    verdict = replied(answer, parsed=True)
    if verdict.kind is not VerdictKind.PASS:
        return verdict
    if error := rpc_error(answer):
        return CheckVerdict(VerdictKind.SKIPPED, f"no COMPOUND is to be had: {error}")
    status = nfs_status(answer)
    if status == 0:
        return passed(f"{len(data)} bytes inline, and the GETATTR behind them")
    results = int.from_bytes(answer.payload[-8:-4], "big")
    if results == OP_WRITE:
        return CheckVerdict(VerdictKind.SKIPPED, f"{on.file or 'no file'}: not writable, status {status}")
    return violation(f"{named(answer)}: status {status} of the operation behind {len(data)} bytes of WRITE data")


UNDEFINED = 77
"""An rdma_proc that no version defines."""
_NO_HANDLE = 0xDEAD0000


def words(xid: int, procedure: int, *more: int) -> bytes:
    """A header of version 1, word by word."""
    return pack(f">{4 + len(more)}I", xid, 1, CREDITS, procedure, *more)


def refused(on: RawConnection, header: bytes, payload: bytes = b"") -> CheckVerdict:
    """RDMA_ERR_CHUNK has to come back."""
    xid = int.from_bytes(header[:4], "big")
    on.send(header, payload)
    return refusal(on.receive(xid), xid, 1)


@check("msgp", "V1-ERROR-FOR-RESERVED", fault=True)
def msgp(on: RawConnection) -> CheckVerdict:
    """An RDMA_MSGP, which is no longer supported; RDMA_ERR_CHUNK comes back."""
    xid = on.xid()
    return refused(on, words(xid, RDMA_MSGP, 0, 0, 0, 0, 0), null(xid))


@check("done", "V1-ERROR-FOR-RESERVED", fault=True)
def done(on: RawConnection) -> CheckVerdict:
    """An RDMA_DONE, which is no longer supported; RDMA_ERR_CHUNK comes back."""
    return refused(on, words(on.xid(), RDMA_DONE))


@check("undefined-procedure", "V1-ERROR-FOR-HEADER", fault=True)
def undefined_procedure(on: RawConnection) -> CheckVerdict:
    """rdma_proc 77; RDMA_ERR_CHUNK comes back."""
    xid = on.xid()
    return refused(on, words(xid, UNDEFINED, 0, 0, 0), null(xid))


@check("nomsg-without-chunks", "V1-ERROR-FOR-HEADER", fault=True)
def nomsg_without_chunks(on: RawConnection) -> CheckVerdict:
    """An RDMA_NOMSG without a chunk, so without an RPC message; RDMA_ERR_CHUNK comes back."""
    return refused(on, words(on.xid(), RDMA_NOMSG, 0, 0, 0))


@check("truncated-header", "V1-ERROR-FOR-HEADER", fault=True)
def truncated_header(on: RawConnection) -> CheckVerdict:
    """An RDMA_MSG that ends before its chunk lists; RDMA_ERR_CHUNK comes back."""
    return refused(on, words(on.xid(), RDMA_MSG))


@check("truncated-read-list", "V1-ERROR-FOR-HEADER", fault=True)
def truncated_read_list(on: RawConnection) -> CheckVerdict:
    """A Read list that ends in the middle of a segment; RDMA_ERR_CHUNK comes back."""
    return refused(on, words(on.xid(), RDMA_MSG, 1, 0, _NO_HANDLE))


@check("endless-read-list", "V1-ERROR-FOR-HEADER", fault=True)
def endless_read_list(on: RawConnection) -> CheckVerdict:
    """A Read list in which each entry announces another, up to the end of the message; RDMA_ERR_CHUNK comes back."""
    entry = pack(">IIIIQ", 1, 0, _NO_HANDLE, 4, 0)
    return refused(on, words(on.xid(), RDMA_NOMSG) + entry * ((on.to_server - 16) // len(entry)))


@check("segment-count", "V1-ERROR-FOR-HEADER", fault=True)
def segment_count(on: RawConnection) -> CheckVerdict:
    """A Write chunk that counts 4,294,967,295 segments; RDMA_ERR_CHUNK comes back."""
    xid = on.xid()
    return refused(on, words(xid, RDMA_MSG, 0, 1, 0xFFFFFFFF, _NO_HANDLE, 4, 0, 0, 0, 0), null(xid))


@check("position-odd", "V1-ERROR-FOR-HEADER", fault=True)
def position_odd(on: RawConnection) -> CheckVerdict:
    """A Read chunk whose Position is not a multiple of four; RDMA_ERR_CHUNK comes back."""
    xid = on.xid()
    data = bytes(64)
    stream, ((position, _),) = reduce(write(xid, data), (0,))
    _, chunk = on.chunk([len(data)], data)
    header = message(xid)
    header.reads = (ReadChunk(position - 2, chunk.segments),)
    on.send(header, stream)
    return refusal(on.receive(xid), xid, 1)


@check("xid-mismatch", "V1-XID-MATCH", fault=True)
def xid_mismatch(on: RawConnection) -> CheckVerdict:
    """A header with another XID than the RPC message behind it; RDMA_ERR_CHUNK comes back, under the header's XID, or
    the call is accepted: the rule binds the requester alone."""
    xid = on.xid()
    inside = xid ^ 0x5A5A0000
    on.send(words(xid, RDMA_MSG, 0, 0, 0), null(inside))
    answer = on.receive(xid, inside)
    header = answer.header
    if header is None or header.procedure == RDMA_ERROR:
        return refusal(answer, xid, 1)
    under = "the header's XID" if header.xid == xid else "the RPC message's XID"
    return passed(f"{named(answer)} under {under}: accepted, which no rule forbids")


@check("read-handle", "V1-RDMA-OUTSIDE", fault=True)
def read_handle(on: RawConnection) -> CheckVerdict:
    """A Read chunk with a handle that does not exist; the connection ends by the Remote Access Error, or RDMA_ERR_CHUNK
    comes back."""
    xid = on.xid()
    stream, ((position, data),) = reduce(write(xid, bytes(64)), (0,))
    header = message(xid)
    header.reads = (ReadChunk(position, (Segment(_NO_HANDLE, len(data), 0x1000),)),)
    on.send(header, stream)
    return _stopped(on.receive(xid))


@check("write-handle", "V1-RDMA-OUTSIDE", fault=True, receive_size=1024)
def write_handle(on: RawConnection) -> CheckVerdict:
    """A Reply chunk with a handle that does not exist, and a reply that is too long without; the connection ends by the
    Remote Access Error, or RDMA_ERR_CHUNK comes back."""
    answer = ask_for_long_reply(on, WriteChunk((Segment(_NO_HANDLE, 4096, 0x1000),)))
    if answer.header is not None and answer.header.procedure == RDMA_MSG:
        return passed(f"{named(answer)}, inline")
    return _stopped(answer)


@check("afterwards", "V1-XID-MATCH", fault=True)
def afterwards(on: RawConnection) -> CheckVerdict:
    """A NULL call after all faults; the server still answers."""
    return short_call(on)


def _stopped(answer: Answer) -> CheckVerdict:
    """RDMA operational errors are fatal to the connection, or are answered (RFC 8166, 4.5.3)."""
    if answer.outcome is Outcome.LOST:
        return passed(f"connection lost: {answer.reason}")
    if verdict := absent(answer):
        return verdict
    header = answer.header
    if header is not None and header.procedure == RDMA_ERROR:
        return refusal(answer, header.xid, 1)
    return violation(f"{named(answer)}, though the memory does not exist")


@dataclass(frozen=True, slots=True)
class SuiteResult:
    check: Check
    verdict: CheckVerdict
    time: int
    """Nanoseconds, with connecting."""

    @property
    def rule(self) -> Rule:
        """That was broken; else the one that the check is for."""
        return all_rules()[self.verdict.rule or self.check.rule]

    @property
    def failed(self) -> bool:
        return self.verdict.kind not in (VerdictKind.PASS, VerdictKind.SKIPPED)


def chosen(with_faults: bool) -> list[Check]:
    return [one for one in CHECKS.values() if with_faults or not one.fault]


def run(
    devices: Verbs, target: PeerAddress, timeout: int, wanted: Iterable[Check], file: str = ""
) -> Iterator[SuiteResult]:
    """Verdicts as they come; raises VerbsError where not even the first connection comes about.

    ``timeout`` in nanoseconds bounds each wait; ``file`` is a path on the server that may be read.
    """
    for number, one in enumerate(wanted):
        started = devices.now()
        try:
            verdict = _judge(devices, target, timeout, one, file)
            if verdict.kind is VerdictKind.NO_ANSWER:
                verdict = _once_more(_judge(devices, target, timeout, one, file))
        except VerbsError as error:
            if not number:
                raise
            verdict = CheckVerdict(VerdictKind.LOST, f"no connection: {error}")
        yield SuiteResult(one, verdict, devices.now() - started)


def _judge(devices: Verbs, target: PeerAddress, timeout: int, one: Check, file: str) -> CheckVerdict:
    """One check on a connection of its own; raises VerbsError where that does not come about."""
    on = RawConnection(
        devices,
        target,
        timeout,
        remote_invalidation=one.remote_invalidation,
        receive_size=one.receive_size,
        file=file,
    )
    try:
        return one.run(on)
    except VerbsError as error:
        return CheckVerdict(VerdictKind.LOST, str(error))
    finally:
        on.close()


def _once_more(verdict: CheckVerdict) -> CheckVerdict:
    """What a second try found, which silence deserves: siw sometimes loses the first message of a connection."""
    if verdict.kind is VerdictKind.NO_ANSWER:
        return CheckVerdict(verdict.kind, f"{verdict.observed}, twice")
    return CheckVerdict(verdict.kind, f"{verdict.observed}, at the second try")
