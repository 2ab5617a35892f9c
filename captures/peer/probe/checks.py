"""The conformance suite: what a requester may and may not send, what a responder has to answer, and how that is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from struct import pack

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
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.onc.rpc_header import reply_header
from rdmascope.dissect.rpcrdma.messages import ReadChunk, Segment, TransportHeader, WriteChunk

from .. import rpc
from ..endpoint import service, whole
from ..endpoint.nouns import encode_option, xcharval
from ..rpc import reduce
from ..verbs.interface import PeerAddress, RegisteredMemory, Verbs, VerbsError
from .serve import CREDITS, OP_GETATTR, OP_PUTROOTFH, OP_WRITE, SUPPORTED_ATTRS, Answer, RawConnection


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
    """The rule that was broken, if it differs from the check's."""


class NotPassed(Exception):
    """Ends a check that has not passed, with its verdict."""

    def __init__(self, kind: VerdictKind, observed: str, rule: str = "") -> None:
        super().__init__(observed)
        self.verdict = CheckVerdict(kind, observed, rule)


Function = Callable[[RawConnection], str]
"""Returns what was observed if the check passed; otherwise raises NotPassed."""


@dataclass(frozen=True, slots=True)
class Check:
    """Something to send for which the specification defines an answer."""

    name: str
    rule: str
    """The audit rule by which the answer is judged; it has the section."""
    sends: str
    """What is sent, and what has to come back."""
    run: Function
    fault: bool = False
    """It sends what no requester may send."""
    remote_invalidation: bool = False
    """It needs a connection that allows remote invalidation."""
    receive_size: int = 4096

    def cited(self) -> Rule:
        return all_rules()[self.rule]


CHECKS: dict[str, Check] = {}
"""By name, in the order in which they are run."""


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


def refuse(when: object, verdict: NotPassed) -> None:
    """Raise the verdict if ``when`` is true."""
    if when:
        raise verdict


def violation(observed: str, rule: str = "") -> NotPassed:
    """``rule``: the rule that was broken, if it differs from the check's."""
    return NotPassed(VerdictKind.VIOLATION, observed, rule)


def skipped(observed: str) -> NotPassed:
    return NotPassed(VerdictKind.SKIPPED, observed)


def answered(answer: Answer) -> TransportHeader:
    """The header of the answer; raises NotPassed without one."""
    if answer.header is not None:
        return answer.header
    raise NotPassed(VerdictKind.LOST, answer.reason) if answer.reason else NotPassed(VerdictKind.NO_ANSWER, "no answer")


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


def refusal(answer: Answer, version: int = 1, error: int = ERR_CHUNK) -> str:
    """The answer has to be an RDMA_ERROR for a message of that version (RFC 8166, 4.5)."""
    header, observed = answered(answer), named(answer)
    refuse(header.procedure != RDMA_ERROR, violation(f"{observed}: the message was accepted"))
    refuse(header.error != error, violation(observed))
    if header.version != version:
        words = f"{observed} with version {header.version}, of a message of version {version}"
        raise violation(words, "V1-ERROR-VERSION")
    refuse(answer.payload, violation(f"{observed}, and {len(answer.payload)} bytes behind it", "V1-ERROR-PAYLOAD"))
    if error == ERR_VERS:
        if header.supported is None:
            raise violation(f"{observed} without a range", "V1-ERROR-RANGE")
        low, high = header.supported
        refuse(low > high or low <= version <= high, violation(observed, "V1-ERROR-RANGE"))
    return observed


OP_LOOKUP, OP_READ = 15, 25
UNKNOWN_OPTION = 0x7FFFFFFF
ABSURD_VERSION = 0x7FFFFFFF
_HEADER = 28
"""Bytes of an RDMA_MSG without chunks."""
_GETATTR = {"argop": OP_GETATTR, "attr_request": (SUPPORTED_ATTRS,)}
_QUESTIONS = 40
"""Each takes 12 bytes of the call, and at least 28 of the reply."""
_FEW = 256
"""Bytes of a file that fit inline."""
_UNKNOWN_HANDLE = b"none"
"""A file handle that no server gave out."""


def null(xid: int) -> bytes:
    return whole(service.null(xid))


def called(
    on: RawConnection,
    call: Callable[[int], bytes] = null,
    version: int = 1,
    *,
    writes: tuple[WriteChunk, ...] = (),
    reply: WriteChunk | None = None,
) -> Answer:
    """The answer to a call in an RDMA_MSG; ``call`` makes it of its XID."""
    xid = on.xid()
    direction = 0 if version > 1 else None
    header = TransportHeader(xid, version, CREDITS, RDMA_MSG, writes=writes, reply=reply, direction=direction)
    return on.ask(header, call(xid))


def written(on: RawConnection, data: bytes, segments: tuple[Segment, ...], shift: int = 0) -> Answer:
    """The answer to a WRITE whose data are in these segments; ``shift``: added to their Position."""
    xid = on.xid()
    stream, ((position, _),) = reduce(service.write(xid, 0, data, _UNKNOWN_HANDLE), (0,))
    reads = (ReadChunk(position + shift, segments),)
    return on.ask(TransportHeader(xid, 1, CREDITS, RDMA_MSG, reads=reads), stream)


def write(xid: int, data: bytes) -> bytes:
    """An NFSv3 WRITE with an invalid file handle."""
    return whole(service.write(xid, 0, data, _UNKNOWN_HANDLE))


def read(xid: int, count: int) -> bytes:
    """An NFSv3 READ with an invalid file handle."""
    return whole(service.read(xid, 0, count, _UNKNOWN_HANDLE))


def at_path(xid: int, path: str, *operations: rpc.XdrValue) -> bytes:
    """An NFSv4.0 COMPOUND of operations on a file by its path (RFC 7530, 16.2)."""
    lookups = ({"argop": OP_LOOKUP, "objname": part.encode()} for part in path.split("/") if part)
    return whole(service.compound(xid, {"argop": OP_PUTROOTFH}, *lookups, *operations))


def read_path(xid: int, path: str, count: int) -> bytes:
    """A READ with the anonymous stateid (RFC 7530, 9.1.4.3 and 16.25)."""
    return at_path(xid, path, {"argop": OP_READ, "count": count})


def replied(answer: Answer, stream: bytes | None = None, *, parsed: bool = False) -> str:
    """The answer has to be the RPC reply, inline or in ``stream``; ``parsed``: one that understood the arguments."""
    header, observed = answered(answer), named(answer)
    wanted = RDMA_NOMSG if stream is not None else RDMA_MSG
    if header.problem or header.procedure != wanted:
        unasked = header.procedure == RDMA_NOMSG and stream is None
        raise violation(observed, "V1-HEADER-XDR" if header.problem else "V1-REPLY-CHUNK-MISSING" if unasked else "")
    refuse(
        stream is not None and answer.payload,
        violation(f"{observed}, and {len(answer.payload)} bytes behind it", "V1-NOMSG-PAYLOAD"),
    )
    data = answer.payload if stream is None else stream
    reply = reply_header(data, 0, len(data))
    if reply is None or reply.xid != header.xid:
        raise violation(f"{observed} without the reply of that XID", "V1-XID-MATCH")
    refuse(header.reads, violation(f"{observed} with a Read list", "V1-READ-IN-REPLY"))
    refuse(parsed and reply.error == "GARBAGE_ARGS", violation(f"{observed}, GARBAGE_ARGS"))
    return f"{observed}, {reply.error or 'SUCCESS'}, {header.credits} credits"


def returned(offered: WriteChunk, received: WriteChunk | None, what: str) -> WriteChunk:
    """The chunk that a reply returns; it has to be the call's, with lengths that are not longer."""
    if received is None or len(received.segments) != len(offered.segments):
        words = f"{what} has {len(received.segments) if received else 'no'} segments, of {len(offered.segments)}"
        raise violation(words, "V1-WRITE-SEGMENT-COUNT")
    full = True
    for mine, theirs in zip(offered.segments, received.segments, strict=True):
        refuse(
            (mine.handle, mine.offset) != (theirs.handle, theirs.offset),
            violation(f"{what} returns another segment than it was given", "V1-WRITE-SEGMENT-COPY"),
        )
        if theirs.length > mine.length:
            words = f"{what} returns {theirs.length} bytes of a segment of {mine.length}"
            raise violation(words, "V1-WRITE-SEGMENT-LENGTH")
        refuse(
            theirs.length and not full,
            violation(f"{what} has data behind a segment that is not full", "V1-WRITE-FILL-ORDER"),
        )
        full = theirs.length == mine.length
    return received


def contents(pieces: list[RegisteredMemory], chunk: WriteChunk) -> bytes:
    """The bytes that the responder says it wrote."""
    pairs = zip(pieces, chunk.segments, strict=True)
    return b"".join(memory.fetch(0, segment.length) for memory, segment in pairs)


def in_reply_chunk(answer: Answer, offered: WriteChunk, pieces: list[RegisteredMemory]) -> bytes | None:
    """The contents of the Reply chunk of a call; None if the reply came inline."""
    header = answered(answer)
    refuse(header.procedure == RDMA_ERROR or header.problem, violation(named(answer)))
    if header.procedure != RDMA_NOMSG:
        return None
    return contents(pieces, returned(offered, header.reply, "the Reply chunk"))


def through_reply_chunk(answer: Answer, offered: WriteChunk, pieces: list[RegisteredMemory]) -> str:
    """The reply to a call with a Reply chunk."""
    stream = in_reply_chunk(answer, offered, pieces)
    if stream is not None:
        return f"{replied(answer, stream)}, in the Reply chunk"
    reply = answered(answer).reply
    refuse(
        reply is not None and returned(offered, reply, "the Reply chunk").length,
        violation(f"{named(answer)} inline, and a Reply chunk that is not empty"),
    )
    return replied(answer)


def ask_for_long_reply(on: RawConnection, chunk: WriteChunk) -> Answer:
    """The answer to a call whose reply exceeds 1024 bytes, with a Reply chunk; a long call if it does not fit
    inline."""
    xid = on.xid()
    call = at_path(xid, "", *[_GETATTR] * _QUESTIONS)  # Which attributes the root has, again and again.
    header = TransportHeader(xid, 1, CREDITS, RDMA_MSG, reply=chunk)
    if _HEADER + 4 + 16 * len(chunk.segments) + len(call) > on.to_server:
        _, zero = on.chunk([len(call)], call)
        header.procedure, header.reads, call = RDMA_NOMSG, (ReadChunk(0, zero.segments),), b""
    return on.ask(header, call)


@check("short-call", "V1-XID-MATCH")
def short_call(on: RawConnection) -> str:
    """A NULL call in an RDMA_MSG without chunks; the reply comes so, too, under the same XID."""
    return replied(called(on))


@check("credit-grant", "V1-CREDIT-ZERO")
def credit_grant(on: RawConnection) -> str:
    """A NULL call; the credit value of the reply is not zero."""
    if granted := answered(called(on)).credits:
        return f"{granted} granted"
    raise violation("a grant of zero")


def _long_call(on: RawConnection, count: int) -> str:
    xid = on.xid()
    data = null(xid)
    size = len(data) // count // 4 * 4
    _, chunk = on.chunk([size] * (count - 1) + [len(data) - size * (count - 1)], data)
    return replied(on.ask(TransportHeader(xid, 1, CREDITS, RDMA_NOMSG, reads=(ReadChunk(0, chunk.segments),))))


LONG_CALLS = (
    ("long-call", 1, "A NULL call in an RDMA_NOMSG, its message in a position-zero Read chunk; the reply comes in an"
     " RDMA_MSG."),
    ("long-call-segments", 3, "A NULL call in a position-zero Read chunk of three segments."),
)  # fmt: skip
CHECKS.update(
    {name: Check(name, "V1-NOMSG-CHUNK", sends, partial(_long_call, count=count)) for name, count, sends in LONG_CALLS}
)


@check("reply-chunk-spare", "V1-WRITE-SEGMENT-COUNT")
def reply_chunk_spare(on: RawConnection) -> str:
    """A NULL call with a Reply chunk that its reply does not need; whether it is used or not, it comes back as given,
    with true lengths."""
    pieces, chunk = on.chunk([4096])
    return through_reply_chunk(called(on, reply=chunk), chunk, pieces)


@check("reply-chunk-used", "V1-REPLY-USES-REPLY-CHUNK", receive_size=1024)
def reply_chunk_used(on: RawConnection) -> str:
    """An NFSv4 COMPOUND whose reply is longer than the inline threshold, with a Reply chunk of two segments; the reply
    comes through it."""
    pieces, chunk = on.chunk([512, 4096])
    answer = ask_for_long_reply(on, chunk)
    stream = in_reply_chunk(answer, chunk, pieces)
    data = answer.payload if stream is None else stream
    reply = reply_header(data, 0, len(data))
    if reply is not None and reply.xid == answered(answer).xid and len(data) <= on.to_client - _HEADER:
        raise skipped(f"no long reply is to be had: {len(data)} bytes, {reply.error or 'SUCCESS'}")
    if stream is None:
        raise violation(f"{named(answer)} of {len(data)} bytes inline")
    return through_reply_chunk(answer, chunk, pieces)


class Filled(NamedTuple):
    """A reply to a READ with a Write chunk."""

    answer: Answer
    pieces: list[RegisteredMemory]
    """The memory of the chunk's segments."""
    data: bytes
    """What the responder says it wrote."""
    summary: str


def into_write_chunk(on: RawConnection, call: Callable[[int], bytes], sizes: list[int]) -> Filled:
    """Send ``call`` with a Write chunk of untouched segments."""
    pieces, chunk = on.chunk(sizes, bytes([UNTOUCHED]) * sum(sizes))
    answer = called(on, call, writes=(chunk,))
    observed = replied(answer)
    received = returned(chunk, next(iter(answered(answer).writes), None), "the Write chunk")
    lengths = [segment.length for segment in received.segments]
    return Filled(answer, pieces, contents(pieces, received), f"{observed}, lengths {lengths}")


def reading(on: RawConnection, count: int) -> Callable[[int], bytes]:
    """A READ of the file that is known or, without one, of no file."""
    return lambda xid: read_path(xid, on.file, count) if on.file else read(xid, count)


def data_into_write_chunk(on: RawConnection, count: int, sizes: list[int]) -> Filled:
    """Send a READ that has to return data into a Write chunk with segments of these ``sizes``."""
    written = into_write_chunk(on, reading(on, count), sizes)
    error, status = rpc_error(written.answer), nfs_status(written.answer)
    if not error and status == 0:
        return written
    why = error or ("the reply ends before its status" if status is None else f"status {status}")
    raise skipped(f"{on.file} cannot be read, {why}" if on.file else "no file is known, --file names one")


@check("write-chunk-segments", "V1-WRITE-UNFILLED")
def write_chunk_segments(on: RawConnection) -> str:
    """A READ of a file that is not there, with a Write chunk of three segments; they come back in order, filled as far
    as there were data, the others with length zero."""
    written = into_write_chunk(on, lambda xid: read(xid, 4000), [1000, 2000, 3000])
    refuse(
        written.data and (nfs_status(written.answer) or rpc_error(written.answer)),
        violation(f"a READ that failed returns {len(written.data)} bytes in its Write chunk"),
    )
    return written.summary


@check("write-chunk-used", "V1-CHUNK-LENGTH-MATCH")
def write_chunk_used(on: RawConnection) -> str:
    """A READ of a file, with a Write chunk of three segments; the data come through it, the count that is left in the
    reply is the sum of the lengths, and a READ without chunks brings the same bytes."""
    written = data_into_write_chunk(on, 5000, [1000, 2000, 3000])
    count = int.from_bytes(written.answer.payload[-4:], "big")
    refuse(len(written.data) != count, violation(f"{len(written.data)} bytes in the Write chunk, {count} in the reply"))
    again = called(on, reading(on, _FEW))
    refuse(
        not again.payload.endswith(rpc.opaque(written.data[:_FEW])),
        violation(f"other bytes in the Write chunk than inline ({named(again)})"),
    )
    return written.summary


@check("read-chunk-segments", "V1-READ-POSITION-SAME")
def read_chunk_segments(on: RawConnection) -> str:
    """A WRITE to a file that is not there, its 5,000 bytes in a Read chunk of three segments; the arguments are
    understood, and the reply comes in an RDMA_MSG."""
    data = service.pattern(0, 5000)
    _, chunk = on.chunk([1000, 3000, 1000], data)
    return replied(written(on, data, chunk.segments), parsed=True)


@check("inline-threshold", "PD-INLINE")
def inline_threshold(on: RawConnection) -> str:
    """A WRITE to a file that is not there, as long as the inline threshold allows to the byte; it is received."""
    data = service.pattern(0, on.to_server - _HEADER - len(write(0, b"")))
    answer = called(on, lambda xid: write(xid, data))
    return f"{_HEADER + len(write(0, data)):,} bytes, {replied(answer, parsed=True)}"


@check("credits", "V1-CREDIT-EXCEEDED")
def credits(on: RawConnection) -> str:
    """One NULL call, then as many at once as its reply grants; every one is answered."""
    first = called(on)
    replied(first)
    granted = answered(first).credits or 1
    xids = [on.xid() for _ in range(min(granted, CREDITS))]
    for xid in xids:
        on.send(TransportHeader(xid, 1, CREDITS, RDMA_MSG), null(xid))
    for number, xid in enumerate(xids):
        try:
            replied(on.receive(xid))
        except NotPassed as error:
            words = f"after {number} of {len(xids)} replies: {error.verdict.observed}"
            raise NotPassed(error.verdict.kind, words) from None
    return f"{len(xids)} at once, all answered, {granted} granted"


@check("no-invalidation", "PD-INVALIDATE-AGREED")
def no_invalidation(on: RawConnection) -> str:
    """A call with a Reply chunk, on a connection that does not allow remote invalidation; the reply does not use it."""
    handle = _invalidated(on, on.link.register(4096))
    if handle is None:
        return "nothing invalidated"
    raise violation(f"0x{handle:08x} invalidated, though it was not allowed")


@check("invalidation", "PD-INVALIDATE-AGREED", remote_invalidation=True)
def invalidation(on: RawConnection) -> str:
    """A call with a Reply chunk behind a type 2 memory window, on a connection that allows remote invalidation; if
    anything is invalidated it is that window, and the server allowed it, too."""
    window = on.link.window(on.link.register(4096))
    if window is None:
        raise skipped("this device has no type 2 memory windows")
    handle = _invalidated(on, window)
    if handle is None:
        return "nothing invalidated, as far as the device shows"
    refuse(
        handle != window.handle, violation(f"0x{handle:08x} invalidated, which is not the call's 0x{window.handle:08x}")
    )
    refuse(
        on.announced is None or not on.announced.remote_invalidation,
        violation(f"0x{handle:08x} invalidated, and the server did not set R"),
    )
    return f"0x{handle:08x} invalidated"


def _invalidated(on: RawConnection, memory: RegisteredMemory) -> int | None:
    """The handle that is invalidated by the reply to a call with this memory as its Reply chunk."""
    chunk = WriteChunk((Segment(memory.handle, 4096, memory.address),))
    answer = called(on, reply=chunk)
    through_reply_chunk(answer, chunk, [memory])
    return answer.invalidated


@check("version-2", "V1-ERROR-FOR-VERSION")
def version_2(on: RawConnection) -> str:
    """A NULL call in version 2; the reply comes in version 2, or an RDMA_ERR_VERS says which versions there are."""
    answer = called(on, version=2)
    header = answered(answer)
    if header.procedure != RDMA_MSG:
        return refusal(answer, 2, ERR_VERS)
    refuse(header.version != 2, violation(f"{named(answer)} of version {header.version}"))
    return replied(answer)


@check("unknown-option", "V2-INVAL-OPTION")
def unknown_option(on: RawConnection) -> str:
    """In version 2 an RDMA2_OPTIONAL of a type that no document defines; RDMA2_ERR_INVAL_OPTION comes back."""
    return refusal(_optional(on, UNKNOWN_OPTION, b""), 2, ERR_INVAL_OPTION)


@check("unknown-characteristic", "XC-UNKNOWN")
def unknown_characteristic(on: RawConnection) -> str:
    """In version 2 a ROPT_INITXCH with a characteristic that no document defines; it draws no error, except that the
    whole option may not be supported."""
    answer = _optional(on, ROPT_INITXCH, encode_option(ROPT_INITXCH, [xcharval(EXPERIMENTAL[0], b"1234")], []))
    if answer.header is None and not answer.reason:
        return "accepted without an answer"
    if answered(answer).procedure != RDMA_ERROR:
        return named(answer)
    refuse(answered(answer).error == ERR_INVAL_OPTION, skipped("transport characteristics are not supported"))
    raise violation(named(answer))


def _optional(on: RawConnection, option: int, info: bytes) -> Answer:
    """The answer of a server that supports version 2 to an option."""
    answer = on.ask(TransportHeader(on.xid(), 2, CREDITS, RDMA_OPTIONAL, direction=0, option=option, optinfo=info))
    refuse(answer.header is not None and answer.header.error == ERR_VERS, skipped("version 2 is not supported"))
    return answer


@check("version-absurd", "V1-ERROR-FOR-VERSION")
def version_absurd(on: RawConnection) -> str:
    """A message of version 2147483647; an RDMA_ERR_VERS says which versions there are."""
    xid = on.xid()
    on.send(pack(">7I", xid, ABSURD_VERSION, CREDITS, RDMA_MSG, 0, 0, 0), null(xid))
    return refusal(on.receive(xid), ABSURD_VERSION, ERR_VERS)


def rpc_error(answer: Answer) -> str:
    """Why the RPC program did not execute the call, 'PROG_MISMATCH (3 to 3)'; '' if it did."""
    reply = reply_header(answer.payload, 0, len(answer.payload))
    return "" if reply is None else reply.error


def nfs_status(answer: Answer) -> int | None:
    """The NFS status in the reply; None if it has none."""
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
def write_chunk_odd(on: RawConnection) -> str:
    """READs of 1, 2, 3, 5, 1,023 and 2,999 bytes, each with a Write chunk; exactly so many bytes are written and
    returned, and the count in the reply is the same."""
    lengths = []
    for wanted in LENGTHS:
        written = data_into_write_chunk(on, wanted, [1000, 3000])
        count, length = int.from_bytes(written.answer.payload[-4:], "big"), len(written.data)
        refuse(
            length != count,
            violation(f"a READ of {wanted} bytes returns {length} in its Write chunk, and counts {count}"),
        )
        memory = b"".join(piece.fetch(0, piece.length) for piece in written.pieces)
        refuse(
            memory[count : count + 4].strip(bytes([UNTOUCHED])),
            violation(f"a READ of {count} bytes, and pad bytes are written behind them"),
        )
        lengths.append(count)
    return f"{', '.join(map(str, lengths))} bytes, and no pad"


@check("write-chunk-exact", "V1-WRITE-LENGTH-TRUE")
def write_chunk_exact(on: RawConnection) -> str:
    """A READ of 256 bytes of a file, with a Write chunk of one segment as long; as many are returned as were written,
    and a READ without chunks brings the same, to the last byte."""
    data = data_into_write_chunk(on, EXACT, [EXACT]).data
    again = called(on, reading(on, EXACT))
    if again.payload.endswith(rpc.opaque(data)):
        return f"{len(data)} bytes in one segment, the same inline"
    lacking = bytes([UNTOUCHED]) * 8
    if lacking in data and lacking not in again.payload:
        raise violation(f"{len(data)} bytes returned, of which {data.index(lacking)} were written")
    raise violation(f"other bytes in the Write chunk than inline ({named(again)})")


@check("inline-write-odd", "V1-READ-ROUNDUP")
def inline_write_odd(on: RawConnection) -> str:
    """An NFSv4.0 COMPOUND with five bytes of WRITE data inline, their pad, and a GETATTR behind; both succeed.  With
    --file the five bytes are those that the file begins with."""
    data = bytes(ODD)
    if on.file:
        answer = called(on, reading(on, ODD))
        size = answer.payload.find(pack(">I", ODD), max(0, len(answer.payload) - 12))
        refuse(nfs_status(answer) != 0 or size < 0, skipped(f"{on.file} has no {ODD} bytes that can be read"))
        data = answer.payload[size + 4 : size + 4 + ODD]
    # With the anonymous stateid (RFC 7530, 16.36 and 16.7).
    answer = called(on, lambda xid: at_path(xid, on.file, {"argop": OP_WRITE, "data": data}, _GETATTR))
    replied(answer, parsed=True)
    error = rpc_error(answer)
    refuse(error, skipped(f"no COMPOUND is to be had: {error}"))
    status = nfs_status(answer)
    if status == 0:
        return f"{len(data)} bytes inline, and the GETATTR behind them"
    refuse(
        int.from_bytes(answer.payload[-8:-4], "big") == OP_WRITE,
        skipped(f"{on.file or 'no file'}: not writable, status {status}"),
    )
    raise violation(f"{named(answer)}: status {status} of the operation behind {len(data)} bytes of WRITE data")


UNDEFINED = 77
"""An rdma_proc that no version defines."""
_NO_HANDLE = 0xDEAD0000


class MalformedMessage(NamedTuple):
    """A message that has to be answered by RDMA_ERR_CHUNK."""

    name: str
    rule: str
    what: str
    header: tuple[int, ...]
    """The header's words after the credits."""
    call: bool = False
    """A NULL call follows the header."""
    filling: tuple[int, ...] = ()
    """Words that are repeated after the header, up to the inline threshold."""

    def run(self, on: RawConnection) -> str:
        xid = on.xid()
        words = (xid, 1, CREDITS, *self.header)
        if self.filling:
            words += self.filling * ((on.to_server - 4 * len(words)) // (4 * len(self.filling)))
        on.send(pack(f">{len(words)}I", *words), null(xid) if self.call else b"")
        return refusal(on.receive(xid))


MALFORMED = (
    MalformedMessage("msgp", "V1-ERROR-FOR-RESERVED", "An RDMA_MSGP, which is no longer supported",
                     (RDMA_MSGP, 0, 0, 0, 0, 0), call=True),
    MalformedMessage("done", "V1-ERROR-FOR-RESERVED", "An RDMA_DONE, which is no longer supported", (RDMA_DONE,)),
    MalformedMessage("undefined-procedure", "V1-ERROR-FOR-HEADER", "rdma_proc 77", (UNDEFINED, 0, 0, 0), call=True),
    MalformedMessage("nomsg-without-chunks", "V1-ERROR-FOR-HEADER",
                     "An RDMA_NOMSG without a chunk, so without an RPC message", (RDMA_NOMSG, 0, 0, 0)),
    MalformedMessage("truncated-header", "V1-ERROR-FOR-HEADER", "An RDMA_MSG that ends before its chunk lists",
                     (RDMA_MSG,)),
    MalformedMessage("truncated-read-list", "V1-ERROR-FOR-HEADER", "A Read list that ends in the middle of a segment",
                     (RDMA_MSG, 1, 0, _NO_HANDLE)),
    MalformedMessage("endless-read-list", "V1-ERROR-FOR-HEADER",
                     "A Read list in which each entry announces another, up to the end of the message", (RDMA_NOMSG,),
                     filling=(1, 0, _NO_HANDLE, 4, 0, 0)),
    MalformedMessage("segment-count", "V1-ERROR-FOR-HEADER", "A Write chunk that counts 4,294,967,295 segments",
                     (RDMA_MSG, 0, 1, 0xFFFFFFFF, _NO_HANDLE, 4, 0, 0, 0, 0), call=True),
)  # fmt: skip
CHECKS.update(
    (row.name, Check(row.name, row.rule, f"{row.what}; RDMA_ERR_CHUNK comes back.", row.run, True)) for row in MALFORMED
)


@check("position-odd", "V1-ERROR-FOR-HEADER", fault=True)
def position_odd(on: RawConnection) -> str:
    """A Read chunk whose Position is not a multiple of four; RDMA_ERR_CHUNK comes back."""
    data = bytes(64)
    _, chunk = on.chunk([len(data)], data)
    return refusal(written(on, data, chunk.segments, -2))


@check("xid-mismatch", "V1-XID-MATCH", fault=True)
def xid_mismatch(on: RawConnection) -> str:
    """A header with another XID than the RPC message behind it; RDMA_ERR_CHUNK comes back, under the header's XID, or
    the call is accepted: the rule binds the requester alone."""
    xid = on.xid()
    inside = xid ^ 0x5A5A0000
    on.send(TransportHeader(xid, 1, CREDITS, RDMA_MSG), null(inside))
    answer = on.receive(xid, inside)
    header = answered(answer)
    if header.procedure == RDMA_ERROR:
        return refusal(answer)
    under = "the header's XID" if header.xid == xid else "the RPC message's XID"
    return f"{named(answer)} under {under}: accepted, which no rule forbids"


@check("read-handle", "V1-RDMA-OUTSIDE", fault=True)
def read_handle(on: RawConnection) -> str:
    """A Read chunk with a handle that does not exist; the connection ends by the Remote Access Error, or RDMA_ERR_CHUNK
    comes back."""
    return _stopped(written(on, bytes(64), (Segment(_NO_HANDLE, 64, 0x1000),)))


@check("write-handle", "V1-RDMA-OUTSIDE", fault=True, receive_size=1024)
def write_handle(on: RawConnection) -> str:
    """A Reply chunk with a handle that does not exist, and a reply that is too long without; the connection ends by the
    Remote Access Error, or RDMA_ERR_CHUNK comes back."""
    answer = ask_for_long_reply(on, WriteChunk((Segment(_NO_HANDLE, 4096, 0x1000),)))
    if answer.header is not None and answer.header.procedure == RDMA_MSG:
        return f"{named(answer)}, inline"
    return _stopped(answer)


@check("afterwards", "V1-XID-MATCH", fault=True)
def afterwards(on: RawConnection) -> str:
    """A NULL call after all faults; the server still answers."""
    return short_call(on)


def _stopped(answer: Answer) -> str:
    """Describe the answer: an RDMA operational error ends the connection, or is reported (RFC 8166, 4.5.3)."""
    if answer.reason:
        return f"connection lost: {answer.reason}"
    if answered(answer).procedure == RDMA_ERROR:
        return refusal(answer)
    raise violation(f"{named(answer)}, though the memory does not exist")


@dataclass(frozen=True, slots=True)
class SuiteResult:
    check: Check
    verdict: CheckVerdict
    time: int
    """Nanoseconds that the check took, the connection included."""

    @property
    def rule(self) -> Rule:
        """The rule that was broken, or else the one that the check is for."""
        return all_rules()[self.verdict.rule or self.check.rule]

    @property
    def failed(self) -> bool:
        return self.verdict.kind not in (VerdictKind.PASS, VerdictKind.SKIPPED)


def chosen(with_faults: bool) -> list[Check]:
    return [check for check in CHECKS.values() if with_faults or not check.fault]


def run(
    devices: Verbs, target: PeerAddress, timeout: int, wanted: Iterable[Check], file: str = ""
) -> Iterator[SuiteResult]:
    """Yields verdicts as they come; raises VerbsError if not even the first connection can be made.

    ``timeout``: limit of each wait in nanoseconds; ``file``: path of a readable file on the server.
    """
    for number, check in enumerate(wanted):
        started = devices.now()
        try:
            verdict = _judge(devices, target, timeout, check, file)
            if verdict.kind is VerdictKind.NO_ANSWER:  # siw sometimes loses the first message of a connection.
                verdict = _judge(devices, target, timeout, check, file)
                more = "twice" if verdict.kind is VerdictKind.NO_ANSWER else "at the second try"
                verdict = CheckVerdict(verdict.kind, f"{verdict.observed}, {more}")
        except VerbsError as error:
            if not number:
                raise
            verdict = CheckVerdict(VerdictKind.LOST, f"no connection: {error}")
        yield SuiteResult(check, verdict, devices.now() - started)


def _judge(devices: Verbs, target: PeerAddress, timeout: int, check: Check, file: str) -> CheckVerdict:
    """Run one check on its own connection; raises VerbsError if that cannot be made."""
    on = RawConnection(
        devices,
        target,
        timeout,
        remote_invalidation=check.remote_invalidation,
        receive_size=check.receive_size,
        file=file,
    )
    try:
        return CheckVerdict(VerdictKind.PASS, check.run(on))
    except NotPassed as error:
        return error.verdict
    except VerbsError as error:
        return CheckVerdict(VerdictKind.LOST, str(error))
    finally:
        on.close()
