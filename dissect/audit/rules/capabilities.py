"""What transport characteristics allow: receive buffers, remote invalidation, backward requests (xcharext-02, 3)."""

from __future__ import annotations

from ...layers.characteristics_codes import (
    BKREQSUP_GENL,
    BKREQSUP_INLINE,
    BKREQSUP_NONE,
    CHARACTERISTICS,
    XCHAR_BRS,
    XCHAR_RBSIZ,
    XCHAR_REQREMINV,
    value_words,
)
from ...layers.rpcrdma_codes import RDMA_NOMSG
from ...rpcrdma.characteristics import InitXch, RespXch, UpdXch
from ..events import SentMessage, SentOption
from ..rule import CALL, INVALIDATE, PASSED, REPLY, SECOND, Judgement, Level, rule, undecidable, violation
from .characteristics import options_missed
from .inline import compare_second, ruled_elsewhere

MUST, SHOULD, STATED = Level.MUST, Level.SHOULD, Level.STATED


@rule("XC-RBSIZ", "No Send exceeds the Receive Buffer Size in force", STATED, "3.1", "", SentMessage, needs=SECOND)
def receive_buffer(sent: SentMessage) -> Judgement | None:
    """Once the receiver has announced its Receive Buffer Size, no Send of version 2 is longer.  Where it has not,
    V2-INLINE-4096 judges.

    Why: a Send that does not fit its receive buffer fails, and with it the connection.

    Right: 8192 announced, a Send of 8,000 bytes.

    Wrong: 8192 announced, a Send of 9,000 bytes.
    """
    if ruled_elsewhere(sent) or not sent.buffer_announced:
        return None
    limit, _, source = sent.limit
    return compare_second(sent, limit, source)


@rule("XC-RBSIZ-SHRINK", "The Receive Buffer Size shrinks only where the peer asked for it", SHOULD,
      "3.1", "", SentOption)  # fmt: skip
def receive_buffer_shrink(option: SentOption) -> Judgement | None:
    """A ROPT_UPDXCH lowers the Receive Buffer Size only after a ROPT_REQXCH of its peer that asked for less.

    Why: Sends of the larger size may be under way, and will not fit.

    Right: a ROPT_REQXCH for 4096, then 4096.

    Wrong: 8192, then 4096 unasked.
    """
    if not isinstance(option.content, UpdXch):
        return None
    now, frame = option.content.now, option.message.frame
    if now is None or now.which != XCHAR_RBSIZ or now.value is None:
        return None
    before, _, source = option.conversation.in_force(XCHAR_RBSIZ, option.sender, frame)
    if before is None:
        return undecidable(source)
    wishes = (
        characteristic.value
        for request in option.conversation.negotiation.requests
        if request.requester != option.sender and request.frame < frame
        for characteristic in request.want
        if characteristic.which == XCHAR_RBSIZ and characteristic.value is not None
    )
    if now.value >= before or any(wish < before for wish in wishes):
        return PASSED
    if reason := options_missed(option):
        return undecidable(reason)
    return violation(f"{before} lowered to {now.value} unasked", f"{before} or more")


@rule("XC-RBSIZ-REQUESTED", "Who asks for a smaller Receive Buffer Size uses it at once", SHOULD,
      "3.1", "", SentMessage, needs=SECOND)  # fmt: skip
def receive_buffer_requested(sent: SentMessage) -> Judgement | None:
    """Behind a ROPT_REQXCH for a smaller Receive Buffer Size, Sends of its sender are no longer than that size, until
    the request is rejected or refused, or the change is no longer pending.  What exceeds the size in force is
    XC-RBSIZ's and V2-INLINE-4096's.

    Why: the peer may post smaller receive buffers as soon as it has the request.

    Right: 8192 in force, a ROPT_REQXCH for 4096, then Sends of at most 4096 bytes.

    Wrong: the same, and a Send of 6,000 bytes before an answer.
    """
    conversation, receiver, frame = sent.conversation, 1 - sent.sender, sent.message.frame
    wishes: list[tuple[int, int]] = []
    for request, position in conversation.negotiation.pending(receiver, frame):
        wish = request.want[position]
        if wish.which != XCHAR_RBSIZ or wish.value is None:
            continue
        before, _, source = conversation.in_force(XCHAR_RBSIZ, receiver, request.frame)
        if before is None:
            return undecidable(source)
        if wish.value < before:
            wishes.append((wish.value, request.frame))
    limit, _, source = sent.limit
    if not wishes or (limit is not None and sent.length > limit):
        return None
    size, asked = min(wishes)
    return compare_second(sent, size, f"asked for in frame {asked}")


@rule("V2-RECEIVE-4096", "No receiver announces fewer than 4096 bytes", MUST, "2.3", "", SentOption)
def receive_4096(option: SentOption) -> Judgement | None:
    """A Receive Buffer Size that an end announces for itself is at least 4096, in ROPT_INITXCH and ROPT_UPDXCH, and
    where it agrees to a smaller one by ROPT_RESPXCH.

    Why: 4096 bytes are what every sender of version 2 may rely on.

    Right: Receive Buffer Size 4096.

    Wrong: Receive Buffer Size 2048.
    """
    content = option.content
    if isinstance(content, RespXch):
        request = option.request
        values = [] if request is None else [request.want[at] for at in content.done if at < len(request.want)]
    elif isinstance(content, InitXch | UpdXch):
        values = list(option.values)
    else:
        return None
    sizes = [value.value for value in values if value.which == XCHAR_RBSIZ and value.value is not None]
    if not sizes:
        return None
    least = CHARACTERISTICS[XCHAR_RBSIZ].default
    small = [size for size in sizes if size < least]
    return violation(f"a Receive Buffer Size of {small[0]}", f"at least {least}") if small else PASSED


@rule("V2-BACKWARD-REQUIRED", "An end of version 2 supports backward requests", MUST, "4.2.2", "", SentOption)
def backward_required(option: SentOption) -> Judgement | None:
    """No end announces BKREQSUP_NONE.  version-two-01 requires support for the backward direction; xcharext-02, 3.3,
    defines that value all the same, so this is a note.

    Why: an end that counts on callbacks cannot work with a peer that takes none.

    Right: Backward Request Support BKREQSUP_INLINE.

    Wrong: Backward Request Support BKREQSUP_NONE.
    """
    if not isinstance(option.content, InitXch | UpdXch):
        return None
    levels = [value.value for value in option.values if value.which == XCHAR_BRS and value.value is not None]
    if not levels:
        return None
    if BKREQSUP_NONE not in levels:
        return PASSED
    return violation("Backward Request Support BKREQSUP_NONE, which xcharext-02, 3.3, defines",
                     "support, by version-two-01, 4.2.2", note=True)  # fmt: skip


@rule("XC-REQREMINV", "Send With Invalidate only to a requester that announced support for it", MUST,
      "3.2", "", SentMessage, "responder", needs=SECOND | REPLY | INVALIDATE)  # fmt: skip
def remote_invalidation(sent: SentMessage) -> Judgement | None:
    """A version 2 reply is a Send With Invalidate only where its requester's Requester Remote Invalidation is true; by
    default it is false.

    Why: a requester that does not expect it finds its memory gone, or invalidates it twice and fails.

    Right: ROPT_INITXCH with Requester Remote Invalidation true, replies that invalidate.

    Wrong: no such ROPT_INITXCH, and a reply that invalidates.
    """
    ready, _, source = sent.conversation.in_force(XCHAR_REQREMINV, 1 - sent.sender, sent.message.frame)
    if ready:
        return PASSED
    if ready is None:
        return undecidable(source)
    if reason := sent.missed(1 - sent.sender):
        return undecidable(reason)
    return violation(f"a Send With Invalidate, and Requester Remote Invalidation is false ({source})", "a plain Send")


@rule("XC-BRS", "Backward calls respect the client's Backward Request Support", STATED,
      "3.3", "", SentMessage, "requester", needs=SECOND | CALL, backward=True)  # fmt: skip
def backward_support(sent: SentMessage) -> Judgement | None:
    """A version 2 server sends no backward calls to a client whose level is BKREQSUP_NONE, and calls without chunks to
    one whose level is BKREQSUP_INLINE, which is the default.

    Why: a client has no buffers or no code for what it did not offer.

    Right: BKREQSUP_GENL, a CB_COMPOUND with a Reply chunk.

    Wrong: BKREQSUP_NONE, a CB_COMPOUND.
    """
    level, _, source = sent.conversation.in_force(XCHAR_BRS, 0, sent.message.frame)
    if level is None:
        return undecidable(source)
    if level == BKREQSUP_GENL:
        return PASSED
    if sent.unread:
        return undecidable(sent.unread)
    chunks = sent.header.chunks or sent.header.procedure == RDMA_NOMSG
    if level == BKREQSUP_INLINE and not chunks:
        return PASSED
    if reason := sent.missed(0):
        return undecidable(reason)
    seen = "a backward call" + (" with chunks" if chunks else "")
    allowed = "an RDMA2_MSG without chunks" if level == BKREQSUP_INLINE else "none"
    return violation(f"{seen}, and the client's level is {value_words(XCHAR_BRS, level)} ({source})", allowed)
