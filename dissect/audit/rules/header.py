"""The transport header: its fixed words, its lists, and what follows it."""

from __future__ import annotations

from ...layers.rpcrdma_codes import (
    PROCEDURE_NAMES,
    RDMA_DONE,
    RDMA_ERROR,
    RDMA_MSG,
    RDMA_MSGP,
    RDMA_NOMSG,
    RDMA_OPTIONAL,
)
from ...onc.xdr import word
from ..events import SentMessage
from ..rule import (
    ERROR,
    FIRST,
    NOMSG,
    PASSED,
    Judgement,
    Level,
    OfMessage,
    left_open,
    rule,
    undecidable,
    undecidable_if,
    violation,
)
from ..transaction import Transaction

MUST, STATED = Level.MUST, Level.STATED

DIRECTION_UNKNOWN = "it is not known whether this is a call or a reply"


def _version_one(sent: SentMessage) -> bool:
    return sent.header.length >= 8 and sent.header.version == 1


@rule("V1-VERSION", "rdma_vers is 1", MUST, "5.2.2", "RFC 8166, 4.2.2", SentMessage)
def version(sent: SentMessage) -> Judgement | None:
    """The version word of every call and reply is 1.  Version 2 has rules of its own (V2-FIRST-MESSAGE, V2-FALLBACK);
    an RDMA_ERROR has the version of what it answers (V1-ERROR-VERSION).

    Why: a receiver that does not know the version cannot read anything after it, and refuses the message.

    Right: rdma_vers 1.

    Wrong: rdma_vers 16777216, a 1 that was sent in little-endian order.
    """
    if sent.header.length < 8 or sent.header.version == 2 or sent.header.procedure == RDMA_ERROR:
        return None
    if sent.header.version == 1:
        return PASSED
    if sent.header.procedure is None and not sent.is_call:
        return undecidable("rdma_proc is not in the capture, and may be RDMA_ERROR")
    return violation(f"rdma_vers is {sent.header.version}", "1")


def _procedure(sent: SentMessage, unwanted: int) -> Judgement | None:
    procedure = sent.header.procedure
    if not _version_one(sent):
        return None
    if procedure is None:
        return undecidable_if(sent.unread)
    if procedure != unwanted:
        return PASSED
    return violation(f"rdma_proc is {procedure}, {PROCEDURE_NAMES[procedure]}", "RDMA_MSG, RDMA_NOMSG or RDMA_ERROR")


@rule("V1-PROC-MSGP", "RDMA_MSGP is not sent", MUST, "5.6.1", "RFC 8166, 4.6.1", SentMessage, needs=FIRST)
def proc_msgp(sent: SentMessage) -> Judgement | None:
    """No message is an RDMA_MSGP (2).

    Why: the procedure was never fully specified; no receiver is bound to understand it.

    Right: the payload in an RDMA_MSG, its large items in chunks.

    Wrong: a WRITE sent as RDMA_MSGP so that its data are aligned in the receive buffer.
    """
    return _procedure(sent, RDMA_MSGP)


@rule("V1-PROC-DONE", "RDMA_DONE is not sent", MUST, "5.6.2", "RFC 8166, 4.6.2", SentMessage, needs=FIRST)
def proc_done(sent: SentMessage) -> Judgement | None:
    """No message is an RDMA_DONE (3).

    Why: it ended a Read-Read transfer, which is gone.  It also consumes a receive buffer without a credit.

    Right: nothing is sent when a reply has been received.

    Wrong: RDMA_DONE after a READ's reply.
    """
    return _procedure(sent, RDMA_DONE)


@rule("V1-PROC-UNKNOWN", "The procedure is RDMA_MSG, RDMA_NOMSG or RDMA_ERROR", MUST,
      "5.1.4, 5.5.2", "RFC 8166, 4.2.4", SentMessage, needs=FIRST)  # fmt: skip
def proc_unknown(sent: SentMessage) -> Judgement | None:
    """rdma_proc is 0, 1 or 4; the reserved 2 and 3 have rules of their own.

    Why: an unknown procedure says nothing of what follows, so the message is lost.

    Right: rdma_proc 0.

    Wrong: rdma_proc 9.
    """
    procedure = sent.header.procedure
    if not _version_one(sent) or procedure in (RDMA_MSGP, RDMA_DONE):
        return None
    if procedure is None:
        return undecidable_if(sent.unread)
    if procedure in PROCEDURE_NAMES:
        return PASSED
    return violation(f"rdma_proc is {procedure}", "0 (RDMA_MSG), 1 (RDMA_NOMSG) or 4 (RDMA_ERROR)")


@rule("V1-HEADER-XDR", "The transport header is valid XDR", MUST, "5", "RFC 8166, 4", SentMessage)
def header_xdr(sent: SentMessage) -> Judgement | None:
    """The words before optional data are 0 or 1, and no list or count runs past the end of the Send.  In version 2 the
    same holds for the direction, and for the length of an option.

    Why: one wrong word moves everything after it; the chunks that a receiver then reads are not those that were sent.

    Right: three zero words where a message has no chunks.

    Wrong: the count of a Write chunk's segments is 2, and the Send ends behind the first of them.
    """
    header = sent.header
    if header.length >= 8 and header.version not in (1, 2):
        return None
    listed = (RDMA_MSG, RDMA_NOMSG, *((RDMA_OPTIONAL,) if header.version == 2 else ()))
    if header.procedure is not None and header.procedure not in listed:
        return None  # No document specifies the layout of RDMA_MSGP any more.
    if sent.unread:
        return undecidable(sent.unread)
    return violation(header.problem, "valid XDR inside the Send") if header.problem else PASSED


@rule("V1-XID-MATCH", "rdma_xid equals the XID of the RPC message", MUST, "5.2.1", "RFC 8166, 4.2.1", Transaction)
def xid_match(transaction: Transaction) -> Judgement | None:
    """The XID in the transport header is that of the RPC message, which stands inline or in a chunk.

    Why: a receiver may match replies by either of them; where they differ it matches the wrong call.

    Right: rdma_xid 0x1234 before an RPC call 0x1234.

    Wrong: rdma_xid 0x1234 before an RPC reply 0x1235.
    """
    judged: Judgement | None = None
    for message, by, stream in (
        (transaction.rpc.call, "requester", transaction.call_stream),
        (transaction.rpc.reply, "responder", transaction.reply_stream),
    ):
        if message is None or message.header.procedure not in (None, RDMA_MSG, RDMA_NOMSG):
            continue
        if len(stream) < 4:
            if transaction.lacks(message):
                judged = left_open(judged, "the RPC message's XID is not in the capture", by)
            continue
        inside = word(memoryview(stream), 0)[0]
        if inside != message.header.xid:
            name = "call" if by == "requester" else "reply"
            return violation(
                f"the {name}'s rdma_xid is 0x{message.header.xid:08x}, its RPC message's XID 0x{inside:08x}",
                "the same XID", message.frame, by=by,
            )  # fmt: skip
        judged = judged or PASSED
    return judged


@rule(
    "V1-MSG-PAYLOAD",
    "RDMA_MSG is followed by a Payload stream",
    STATED,
    "5.1.4",
    "RFC 8166, 4.2.4",
    SentMessage,
    needs=FIRST,
)
def msg_payload(sent: SentMessage) -> Judgement | None:
    """Behind the chunk lists of an RDMA_MSG stands the Payload stream, that begins with the XID.

    Why: without it there is no RPC message, and nothing says where else it might be.

    Right: 28 bytes of header and 40 bytes of NULL call.

    Wrong: an RDMA_MSG that ends with its chunk lists; RDMA_NOMSG was meant.
    """
    return inline_payload(sent)


def inline_payload(sent: SentMessage) -> Judgement | None:
    """Judge whether a Payload stream follows an RDMA_MSG."""
    header = sent.header
    if header.procedure not in (None, RDMA_MSG) or header.problem:
        return undecidable_if(sent.unread) if header.procedure in (None, RDMA_MSG) else None
    inline = sent.message.inline_length
    if inline >= 4:
        return PASSED
    if not sent.message.operation.end_known:
        return undecidable("the end of the Send is not in the capture")
    return violation(f"{inline} bytes behind the chunk lists", "a Payload stream that begins with the XID")


@rule(
    "V1-NOMSG-PAYLOAD",
    "Nothing follows the chunk lists of RDMA_NOMSG",
    STATED,
    "5.1.4",
    "RFC 8166, 4.2.4",
    SentMessage,
    needs=NOMSG,
)
def nomsg_payload(sent: SentMessage) -> Judgement | None:
    """An RDMA_NOMSG ends with its chunk lists.

    Why: the payload is in a chunk; bytes behind the lists are either lost or a misread header.

    Right: an RDMA_NOMSG reply of 48 bytes with one Reply chunk segment.

    Wrong: the same followed by the reply's first 100 bytes.
    """
    if sent.header.procedure not in (None, RDMA_NOMSG):
        return None
    if sent.header.problem:
        return undecidable_if(sent.unread)
    return nothing_follows(sent, "the chunk lists")


@rule("V1-NOMSG-CHUNK", "RDMA_NOMSG carries the chunk that holds the message", MUST,
      "5.2.4", "RFC 8166, 4.2.4", SentMessage, needs=NOMSG, backward=False)  # fmt: skip
def nomsg_chunk(sent: SentMessage) -> Judgement | None:
    """An RDMA_NOMSG call has a Read chunk, an RDMA_NOMSG reply a Reply chunk, and the RPC message is in it.

    Why: there is no inline payload, so without that chunk there is no message.

    Right: a long call with one Read chunk at Position 0.

    Wrong: an RDMA_NOMSG whose three chunk lists are empty.
    """
    header = sent.header
    if header.procedure not in (None, RDMA_NOMSG):
        return None
    if sent.unread:
        return undecidable(sent.unread)
    if header.problem:
        return None
    if not header.chunks and sent.is_call is None and sent.call_missing:
        return undecidable(DIRECTION_UNKNOWN)  # It may be a backward message, which V1-BACKWARD-PROC judges.
    if not header.chunks:
        return violation("all three chunk lists are empty", "a chunk that holds the Payload stream")
    if sent.is_call is None:
        return undecidable(DIRECTION_UNKNOWN)
    if sent.is_call and not header.reads:
        return violation("a call without Read list", "a Read chunk that holds the Payload stream")
    if not sent.is_call and not header.reply:
        return violation("a reply without Reply chunk", "a Reply chunk that holds the Payload stream")
    if sent.is_call and not sum(chunk.length for chunk in header.reads):
        return violation("a Read list of 0 bytes", "a Read chunk that holds the Payload stream")
    if not sent.is_call and header.reply and not header.reply.length:
        return violation("a Reply chunk that returns 0 bytes", "a Reply chunk that holds the Payload stream")
    return PASSED


@rule(
    "V1-ERROR-PAYLOAD",
    "Nothing follows an RDMA_ERROR",
    STATED,
    "5.2.4",
    "RFC 8166, 4.2.4",
    SentMessage,
    needs=FIRST | ERROR,
)
def error_payload(sent: SentMessage) -> Judgement | None:
    """An RDMA_ERROR ends with its error information.

    Why: no payload is defined there, so the receiver drops it.

    Right: 20 bytes, the last word RDMA_ERR_CHUNK.

    Wrong: three empty chunk lists behind the error code.
    """
    return nothing_behind(sent)


def nothing_behind(sent: SentMessage) -> Judgement | None:
    """Judge whether an RDMA_ERROR ends where it should."""
    return undecidable_if(sent.unread) if sent.header.problem else nothing_follows(sent, "the error")


def nothing_follows(sent: OfMessage, what: str) -> Judgement:
    """Judge whether a Send ends after its transport header, which could be decoded."""
    inline, operation = sent.message.inline_length, sent.message.operation
    if inline:
        return violation(f"{inline} bytes behind {what}", "none")
    return PASSED if operation.end_known else undecidable("the end of the Send is not in the capture")
