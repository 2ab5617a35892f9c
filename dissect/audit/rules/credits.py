"""Credits in the forward direction, and XIDs that are outstanding."""

from __future__ import annotations

from ...layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from ...rpcrdma.xid_reuse import XID_IN_USE
from ..events import SentMessage
from ..rule import PASSED, REPLY, Judgement, Level, beheaded, rule, undecidable, violation
from ..transaction import Transaction

MUST, STATED = Level.MUST, Level.STATED

SKEW = 50_000
"""Nanoseconds by which a capture may show the two directions against each other."""
UNMATCHED = "a reply fits no call by its XID, and may be the one that is missing"
OUT_OF_STEP = "a reply came within 50 µs, and the capture may show the two directions out of step"


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
    if header.credits is None or header.version not in (1, 2) or header.procedure not in (RDMA_MSG, RDMA_NOMSG):
        return None
    return PASSED if header.credits else violation("a grant of 0 credits", "at least 1")


def exceeded(transaction: Transaction, source: str) -> Judgement | None:
    """Judge the number of calls outstanding when this one was sent."""
    flow = transaction.flow
    if flow is None or flow.limit is None or flow.lenient is None:
        return None
    if flow.outstanding <= flow.limit:
        return PASSED
    if reason := transaction.missed(transaction.endpoint("responder")):
        return undecidable(reason)
    if flow.outstanding - flow.unmatched <= flow.limit:
        return undecidable(UNMATCHED)
    if flow.outstanding <= flow.lenient:
        return undecidable("the grant was lowered less than a second before, and the requester may not have known")
    if transaction.relieved is not None and transaction.relieved < SKEW:
        return undecidable(OUT_OF_STEP)
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
    """Before the first valid reply of a connection there is one call outstanding.  Those of version 2 are
    V2-FIRST-MESSAGE's.

    Why: the requester does not know yet how many receive buffers there are; one is all that is certain.

    Right: NULL, its reply with 32 credits, then whatever fits 32.

    Wrong: three calls, then the first reply.
    """
    call = transaction.rpc.call
    return None if call is None or call.header.version == 2 else first_alone(transaction)


def first_alone(transaction: Transaction) -> Judgement | None:
    """Judge the number of calls outstanding before the first reply of their direction."""
    flow = transaction.flow
    if flow is None or flow.limit is not None:
        return None
    if not transaction.start_known:
        return undecidable("the connection began before the capture did")
    if flow.outstanding == 1:
        return PASSED
    if flow.unmatched:
        return undecidable(UNMATCHED)
    responder = transaction.endpoint("responder")
    if reason := transaction.missed(responder) or beheaded(transaction.connection, responder):
        return undecidable(reason)
    if transaction.relieved is not None and transaction.relieved < SKEW:
        return undecidable(OUT_OF_STEP)
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
        return PASSED
    responder = transaction.endpoint("responder")
    if reason := transaction.missed(responder) or beheaded(transaction.connection, responder):
        return undecidable(reason)
    if transaction.conversation.unmatched_replies[rpc.backward]:
        return undecidable(UNMATCHED)
    if transaction.relieved is not None and transaction.relieved < SKEW:
        return undecidable(OUT_OF_STEP)
    return violation(f"a call with XID 0x{rpc.xid:08x} is outstanding already", "another XID", rpc.call_frame)
