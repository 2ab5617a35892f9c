"""Credits, outstanding XIDs, and the backward direction: calls from the server to the client (RFC 8167)."""

from __future__ import annotations

from ...layers.rpcrdma_codes import PROCEDURE_NAMES, RDMA_ERROR, RDMA_MSG, RDMA_NOMSG
from ...onc.rpc_header import is_callback
from ...rpcrdma.xid_reuse import XID_IN_USE
from ..events import SentMessage
from ..rule import PASSED, REPLY, Judgement, Level, beheaded, rule, undecidable, undecidable_if, violation
from ..transaction import Transaction
from .header import DIRECTION_UNKNOWN

MUST, STATED = Level.MUST, Level.STATED

UNMATCHED = "a reply fits no call by its XID, and may be the one that is missing"
OVERTAKEN = "a reply that the capture shows too late may have come before the call"


@rule("V1-CREDIT-ZERO", "A granted credit value is never zero", MUST,
      "4.3.1", "RFC 8166, 3.3.1", SentMessage, "responder", needs=REPLY, backward=False)  # fmt: skip
def credit_zero(sent: SentMessage) -> Judgement | None:
    """rdma_credit of a reply is at least 1.

    Why: with no credit the requester may never send again: deadlock.  Requesters that take 0 for 1 crawl, one call at
    a time.

    Right: rdma_credit 32 in every reply.

    Wrong: rdma_credit 0.
    """
    header = sent.header
    if sent.is_call is None or header.procedure is None:
        return undecidable(sent.unread) if sent.unread and not header.credits else None
    if header.credits is None or header.version not in (1, 2) or header.procedure not in (RDMA_MSG, RDMA_NOMSG):
        return None
    return PASSED if header.credits else violation("a grant of 0 credits", "at least 1")


def exceeded(transaction: Transaction, source: str) -> Judgement | None:
    """Judge how many calls were outstanding when this one was sent."""
    flow = transaction.flow
    if flow is None:
        return None
    if flow.limit is None or flow.lenient is None:
        unseen = not transaction.start_known or transaction.missed(transaction.endpoint("responder"))
        several = flow.outstanding > 1 or transaction.unseen_calls
        return undecidable("the grant is not in the capture") if unseen and several else None
    if flow.outstanding <= flow.limit:
        return undecidable_if(transaction.credit_doubt) or PASSED
    if reason := transaction.missed(transaction.endpoint("responder")):
        return undecidable(reason)
    if flow.outstanding - flow.unmatched <= flow.limit:
        return undecidable(UNMATCHED)
    if transaction.overtaken:
        return undecidable(OVERTAKEN)
    if flow.outstanding <= flow.lenient:
        return undecidable("the grant was lowered less than a second before, and the requester may not have known")
    return violation(f"{flow.outstanding} calls outstanding", f"at most {flow.limit} ({source})", transaction.frames[0])


@rule("V1-CREDIT-EXCEEDED", "Calls outstanding stay within the credits", MUST,
      "4.3.1, 5.2.3", "RFC 8166, 3.3.1", Transaction, "requester", backward=False)  # fmt: skip
def credit_exceeded(transaction: Transaction) -> Judgement | None:
    """Calls without a reply, this one included, are never more than the lower of requested and granted credits.

    Why: the responder posts as many receive buffers as it grants.  One Send more finds none, and the connection may
    end.

    Right: 32 granted, 32 outstanding.

    Wrong: 32 granted, 33 outstanding.
    """
    return exceeded(transaction, "the lower of requested and granted")


@rule("V1-CREDIT-FIRST", "One call at a time until the first reply", MUST,
      "4.3.3", "RFC 8166, 3.3.3", Transaction, "requester", backward=False)  # fmt: skip
def credit_first(transaction: Transaction) -> Judgement | None:
    """Before the first valid reply of a connection at most one call is outstanding.  V2-FIRST-MESSAGE covers version 2.

    Why: the requester does not know yet how many receive buffers there are; one is all that is certain.

    Right: NULL, its reply with 32 credits, then whatever fits 32.

    Wrong: three calls, then the first reply.
    """
    call = transaction.rpc.call
    return None if call is None or call.header.version == 2 else first_alone(transaction)


def first_alone(transaction: Transaction) -> Judgement | None:
    """Judge how many calls were outstanding before the first reply in their direction."""
    flow = transaction.flow
    if flow is None or flow.limit is not None:
        return None
    if not transaction.start_known:
        return undecidable("the connection began before the capture did")
    if flow.outstanding == 1:
        return undecidable_if(transaction.unseen_calls) or PASSED
    if flow.unmatched:
        return undecidable(UNMATCHED)
    responder = transaction.endpoint("responder")
    if reason := transaction.missed(responder) or beheaded(transaction.connection, responder):
        return undecidable(reason)
    if transaction.overtaken:
        return undecidable(OVERTAKEN)
    return violation(
        f"{flow.outstanding} calls outstanding, and no reply yet", "one call at a time", transaction.frames[0]
    )


@rule("V1-XID-REUSED", "An XID is not reused while its call is outstanding", STATED,
      "3.1.2", "RFC 8166, 2.2.1", Transaction, "requester")  # fmt: skip
def xid_reused(transaction: Transaction) -> Judgement | None:
    """No call has the XID of another call of the same direction that has no reply yet.

    Why: the reply to one would be taken for that of the other.

    Right: XIDs 1, 2, 3; the backward direction may use the same ones.

    Wrong: a second call with XID 2 while the first waits.
    """
    rpc = transaction.rpc
    if rpc.call is None:
        return None
    if XID_IN_USE not in rpc.notes:
        return undecidable_if(transaction.unseen_calls) or PASSED
    responder = transaction.endpoint("responder")
    if reason := transaction.missed(responder) or beheaded(transaction.connection, responder):
        return undecidable(reason)
    if transaction.flow is None or transaction.flow.unmatched:
        return undecidable(UNMATCHED)
    if transaction.overtaken:
        return undecidable(OVERTAKEN)
    return violation(f"a call with XID 0x{rpc.xid:08x} is outstanding already", "another XID", rpc.call_frame)


def _other_level(sent: SentMessage) -> bool:
    """Whether it is a call of version 2, which XC-BRS judges, or a reply to one with chunks, which asks for chunks."""
    if sent.header.version != 2:
        return False
    call = sent.rpc.call if sent.rpc is not None else None
    return bool(sent.is_call) or call is None or call.header.chunks or call.header.truncated


@rule("V1-BACKWARD-PROC", "Backward calls and replies are RDMA_MSG", MUST,
      "7.3.4, 7.3.5", "RFC 8167, 5.1 and 5.2", SentMessage, backward=True)  # fmt: skip
def backward_proc(sent: SentMessage) -> Judgement | None:
    """rdma_proc of a backward call or reply is RDMA_MSG.  Calls of version 2 are XC-BRS's, and
    so are replies to those with chunks.

    Why: a server has no memory that a client may reach, so there is no way to move a message but inline.

    Right: CB_RECALL in an RDMA_MSG.

    Wrong: CB_RECALL in an RDMA_NOMSG.
    """
    procedure = sent.header.procedure
    if procedure is None or procedure == RDMA_ERROR or _other_level(sent):
        return None
    if procedure == RDMA_MSG:
        return PASSED
    if procedure == RDMA_NOMSG and sent.rpc is not None:
        may_return = sent.header.reply or sent.unread
        if sent.rpc.call is None or (may_return and sent.call_missing):
            return undecidable(DIRECTION_UNKNOWN)
    return violation(f"rdma_proc is {PROCEDURE_NAMES.get(procedure, procedure)}", "RDMA_MSG")


@rule("V1-BACKWARD-CHUNKS", "Backward messages have no chunks", MUST,
      "7.3.4, 7.3.5", "RFC 8167, 5.1 and 5.2", SentMessage, backward=True)  # fmt: skip
def backward_chunks(sent: SentMessage) -> Judgement | None:
    """All three chunk lists of a backward RDMA_MSG are empty.  Calls of version 2 are XC-BRS's, and
    so are replies to those with chunks.

    Why: clients have no code to read or write a server's memory, and must not need any.

    Right: 28 bytes of header.

    Wrong: a CB_COMPOUND with a Reply chunk.
    """
    header = sent.header
    if header.procedure != RDMA_MSG or _other_level(sent):
        return None
    if sent.unread:
        return undecidable(sent.unread)
    if header.problem:
        return None
    lists = [("Read list", header.reads), ("Write list", header.writes), ("Reply chunk", header.reply)]
    present = [name for name, value in lists if value]
    return violation(", ".join(present), "three empty chunk lists") if present else PASSED


@rule("V1-BACKWARD-CREDIT-ZERO", "The backward credit value is not zero", MUST,
      "7.2.1", "RFC 8167, 4.1", SentMessage, backward=True)  # fmt: skip
def backward_credit_zero(sent: SentMessage) -> Judgement | None:
    """rdma_credit of backward calls and replies is at least 1.

    Why: the other end takes it for what may be outstanding, and would never send again.

    Right: rdma_credit 2 in a callback's reply.

    Wrong: rdma_credit 0.
    """
    if sent.header.credits is None or sent.header.procedure == RDMA_ERROR:
        return None
    return PASSED if sent.header.credits else violation("rdma_credit is 0", "at least 1")


@rule("V1-BACKWARD-CREDIT-EXCEEDED", "Backward calls stay within the backward grant", MUST,
      "7.2.1", "RFC 8167, 4.1", Transaction, "requester", backward=True)  # fmt: skip
def backward_credit_exceeded(transaction: Transaction) -> Judgement | None:
    """Backward calls without a reply are never more than the client granted, counted apart from forward ones.

    Why: the client keeps that many receive buffers for callbacks beside those for its own replies.

    Right: 2 granted, 2 callbacks outstanding.

    Wrong: 2 granted, 3 callbacks outstanding.
    """
    return exceeded(transaction, "the backward grant")


@rule("V1-BACKWARD-CREDIT-FIRST", "One backward call at a time until the first backward reply", MUST,
      "7.2.1, 4.3.3", "RFC 8167, 4.1 and RFC 8166, 3.3.3", Transaction, "requester", backward=True)  # fmt: skip
def backward_credit_first(transaction: Transaction) -> Judgement | None:
    """Before the first backward reply of a connection there is one backward call outstanding.  Replies to forward calls
    grant nothing for this direction.

    Why: the server does not know yet how many receive buffers the client keeps for callbacks; one is all that is
    certain.

    Right: CB_NULL, its reply with 2 credits, then two callbacks at once.

    Wrong: two callbacks, then the first backward reply.
    """
    return first_alone(transaction)


@rule("V1-BACKWARD-UNANNOUNCED", "No backward call before the client announced that it is ready", MUST,
      "7.3.1", "RFC 8167, 6", SentMessage, "requester", backward=True)  # fmt: skip
def backward_unannounced(sent: SentMessage) -> Judgement | None:
    """Before the first callback on a connection the NFSv4.1 client offered it for callbacks, by CREATE_SESSION or
    BIND_CONN_TO_SESSION with the back channel.  It has done so from that call on, not from the reply to it.

    Why: a client that is not prepared has no receive buffer for a callback, and the connection ends.

    Right: CREATE_SESSION with CREATE_SESSION4_FLAG_CONN_BACK_CHAN, then CB_NULL.

    Wrong: CB_NULL on a connection that the client never offered for callbacks.
    """
    if not sent.is_call:
        return None
    frame = sent.message.frame
    if sent.back_channel is None or sent.rpc is None or sent.rpc.call is None:
        return None
    if 0 < sent.back_channel.offered < frame:
        return PASSED
    if not sent.start_known:
        return undecidable("the connection began before the capture did")
    if reason := sent.missed(1 - sent.sender):
        return undecidable(reason)
    if reason := sent.back_channel.doubt(frame):
        return undecidable(reason)
    data, at = sent.message.data, sent.message.start + 12
    if sent.message.end < at + 4:
        return undecidable("the callback's program is not in the capture")
    program = int.from_bytes(data[at : at + 4], "big")
    if not is_callback(program):
        return undecidable(f"how program {program} announces callbacks is not known")
    return violation("a callback, and nothing offered this connection for callbacks",
                     "CREATE_SESSION or BIND_CONN_TO_SESSION with the back channel first")  # fmt: skip
