"""Inline thresholds: how long a Send may be.

One of these rules judges each Send of version 1; V2-FIRST-MESSAGE, V2-INLINE-4096, XC-RBSIZ or XC-INIT-SIZE one of
version 2; V1-BACKWARD-SIZE and V1-REPLY-USES-REPLY-CHUNK, where they apply, one of either version."""

from __future__ import annotations

from ...layers.characteristics_codes import CHARACTERISTICS, ROPT_INITXCH, XCHAR_RBSIZ
from ...layers.rpcrdma_codes import RDMA_MSG, RDMA_OPTIONAL
from ...rpcrdma.conversation import DEFAULT_INLINE
from ..events import SentMessage
from ..rule import FIRST, PASSED, REPLY, Judgement, Level, rule, undecidable, violation

MUST = Level.MUST

LEAST = CHARACTERISTICS[XCHAR_RBSIZ].default
"""Bytes that every receiver of version 2 has to accept."""

UNKNOWN = "the private data are not in the capture, so the inline threshold is not known"

CHUNK_UNKNOWN = "it is not in the capture whether the call gave a Reply chunk"


def settled(sent: SentMessage) -> bool:
    """Whether the private data of both ends, or that there is none, is known."""
    return sent.conversation.private_data_seen


def ruled_by_reply_chunk(sent: SentMessage) -> bool:
    """Whether a reply is to a call that offered a Reply chunk, so that it need not be inline."""
    call = sent.rpc.call if sent.rpc is not None and not sent.is_call else None
    return call is not None and sent.header.procedure == RDMA_MSG and call.header.reply is not None


def _chunk_unknown(sent: SentMessage) -> bool:
    """Whether V1-REPLY-USES-REPLY-CHUNK may judge a reply, as its call is unknown."""
    call = sent.rpc.call if sent.rpc is not None else None
    if sent.is_call is not False or sent.backward:
        return False
    if call is None:
        return sent.call_missing
    return call.header.reply is None and call.header.truncated


def ruled_elsewhere(sent: SentMessage) -> bool:
    """Whether another rule than V2-INLINE-4096 and XC-RBSIZ judges the size of a Send of version 2."""
    if sent.backward or ruled_by_reply_chunk(sent):
        return True
    if sent.header.procedure == RDMA_OPTIONAL and sent.header.option == ROPT_INITXCH:
        return True
    unsettled = sent.sender == 0 and sent.conversation.version(sent.message.frame) == 0
    return unsettled and not (sent.length > LEAST and sent.unseen(1))


def threshold(sent: SentMessage) -> tuple[int | None, str]:
    """The longest that a Send may be, and the source of that value; None if unknown."""
    if sent.header.version == 2:
        value, _, source = sent.limit
        return value, source
    if not settled(sent):
        return None, UNKNOWN
    return sent.conversation.inline_threshold(sent.sender, sent.message.frame)


def compare_second(sent: SentMessage, limit: int | None, why: str) -> Judgement:
    """Judge the size of a Send of version 2, in which sizes change."""
    if limit is None:
        return compare(sent, DEFAULT_INLINE, why) if sent.length <= DEFAULT_INLINE else undecidable(why)
    if sent.terms is not None and limit < sent.length <= sent.terms.larger:
        return undecidable("the size was lowered less than a second before, and the sender may not have known")
    if sent.length > limit and (reason := sent.missed(1 - sent.sender)):
        return undecidable(reason)
    if LEAST < sent.length <= limit and (sent.unseen(0) or sent.unseen(1)):
        return undecidable("packets before it are not in the capture, and may have lowered the size")
    return compare(sent, limit, why)


def compare(sent: SentMessage, limit: int, why: str) -> Judgement:
    if sent.length > limit:
        if sent.header.length < 8:
            return undecidable("rdma_vers is not in the capture")
        if _chunk_unknown(sent):
            return undecidable(CHUNK_UNKNOWN)
        return violation(f"a Send of {sent.length:,} bytes", f"at most {limit:,} ({why})")
    if not (sent.message.operation.start_known and sent.message.operation.end_known):
        return undecidable("not all of the Send is in the capture")
    return PASSED


@rule("V1-INLINE-EXCEEDED", "No Send is longer than its receiver can take", MUST,
      "4.3.2, 5.2.4", "RFC 8166, 3.3.2", SentMessage, needs=FIRST, backward=False)  # fmt: skip
def inline_exceeded(sent: SentMessage) -> Judgement | None:
    """No Send is longer than the receive size that the receiver announced.  Where it announced none, PD-INLINE and
    V1-FIRST-1024 judge.

    Why: a Send that does not fit its receive buffer fails, and with it the connection.

    Right: 4096 announced, a Send of 4096 bytes.

    Wrong: 4096 announced, a Send of 5000 bytes.
    """
    if ruled_by_reply_chunk(sent) or sent.header.version == 2:
        return None
    if not settled(sent):
        if sent.length <= DEFAULT_INLINE and sent.message.operation.end_known:
            return PASSED
        return undecidable(UNKNOWN)
    theirs = sent.conversation.private_data(1 - sent.sender)
    if theirs is None:
        return None
    return compare(sent, theirs.receive_size, "the receive size the receiver announced")


@rule("V1-FIRST-1024", "Without private data no Send exceeds 1024 bytes", MUST,
      "4.3.3", "RFC 8166, 3.3.3", SentMessage, needs=FIRST, backward=False)  # fmt: skip
def first_1024(sent: SentMessage) -> Judgement | None:
    """Where neither end sent RPC-over-RDMA private data, no Send is longer than 1024 bytes.

    Why: 1024 bytes are all that a receiver is bound to accept.

    Right: longer calls as RDMA_NOMSG with a Read chunk at Position 0.

    Wrong: an RDMA_MSG of 1100 bytes.
    """
    if (
        sent.header.version == 2
        or ruled_by_reply_chunk(sent)
        or any(sent.conversation.private_data(end) for end in (0, 1))
    ):
        return None
    if not settled(sent):
        return undecidable(UNKNOWN) if sent.length > DEFAULT_INLINE else None
    return compare(sent, DEFAULT_INLINE, "neither end sent private data")


@rule("PD-INLINE", "Each direction keeps to the smaller of the two announced sizes", MUST,
      "4.2, 5.1", "RFC 8797, 4.2 and 5.1", SentMessage, needs=FIRST, backward=False)  # fmt: skip
def private_inline(sent: SentMessage) -> Judgement | None:
    """An end that received private data keeps to the smaller of its own send size and the receive size it received, or
    to the receive size if it announced no send size; an end that received none keeps to 1024 bytes.
    V1-INLINE-EXCEEDED covers a Send that overruns even the receiver's size.

    Why: both ends compute the threshold from the same two numbers; an end that exceeds it breaks what the other one
    relies on when it sizes buffers and chunks.

    Right: send size 2048, the receiver's receive size 4096: Sends of up to 2048 bytes.

    Wrong: the same, and a Send of 3000 bytes.
    """
    if sent.header.version == 2 or ruled_by_reply_chunk(sent):
        return None
    if not settled(sent):
        return undecidable(UNKNOWN) if sent.length > DEFAULT_INLINE else None
    mine, theirs = (sent.conversation.private_data(end) for end in (sent.sender, 1 - sent.sender))
    if mine is None and theirs is None:
        return None
    if theirs is None:
        return compare(sent, DEFAULT_INLINE, "its receiver sent no valid private data")
    if sent.length > theirs.receive_size:
        return None
    if mine is None:
        return compare(sent, theirs.receive_size, "the receive size of the receiver")
    return compare(sent, min(mine.send_size, theirs.receive_size), "the smaller of send size and receive size")


@rule("V1-REPLY-USES-REPLY-CHUNK", "A reply that does not fit inline uses the Reply chunk it was given", MUST,
      "4.5.3", "RFC 8166, 3.5.3", SentMessage, "responder", needs=REPLY, backward=False)  # fmt: skip
def reply_uses_reply_chunk(sent: SentMessage) -> Judgement | None:
    """Where the call gave a Reply chunk, a reply longer than the requester's threshold goes through it.

    Why: the requester gave the chunk for just that; its receive buffer is too small, and the connection ends.

    Right: RDMA_NOMSG with 20,000 bytes in the Reply chunk.

    Wrong: RDMA_MSG of 6,000 bytes where 4,096 fit.
    """
    limit, why = threshold(sent)
    if not ruled_by_reply_chunk(sent) or sent.header.problem:
        hidden = _chunk_unknown(sent) or (sent.header.truncated and ruled_by_reply_chunk(sent))
        return undecidable(CHUNK_UNKNOWN) if hidden and sent.length > (limit or DEFAULT_INLINE) else None
    if limit is None:
        return PASSED if sent.length <= DEFAULT_INLINE else undecidable(why)
    judge = compare_second if sent.header.version == 2 else compare
    return judge(sent, limit, "the threshold; the call gave a Reply chunk")


@rule("V1-BACKWARD-SIZE", "Backward messages fit the receiver's threshold", MUST,
      "7.3.3", "RFC 8167, 4.2", SentMessage, backward=True)  # fmt: skip
def backward_size(sent: SentMessage) -> Judgement | None:
    """Backward calls and replies are no longer than the inline threshold of their direction of the connection.

    Why: they use the same receive buffers as forward messages, and have no chunks to fall back on.

    Right: a CB_COMPOUND of 200 bytes.

    Wrong: one of 5,000 bytes where 4,096 were agreed.
    """
    limit, why = threshold(sent)
    if limit is None:
        return PASSED if sent.length <= DEFAULT_INLINE else undecidable(why)
    return (compare_second if sent.header.version == 2 else compare)(sent, limit, why)
