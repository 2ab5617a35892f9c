"""RPC-over-RDMA version 2: its header, its options, and how it is agreed on (version-two-01)."""

from __future__ import annotations

from ...layers.characteristics_codes import OPTIONS, ROPT_INITXCH, ROPT_REQXCH, ROPT_RESPXCH, option_name
from ...layers.oncrpc_codes import CALL
from ...layers.rpcrdma_codes import (
    DIRECTION_NAMES,
    ERR_CHUNK,
    ERR_INVAL_OPTION,
    ERR_VERS,
    PROCEDURE_NAMES_2,
    RDMA_ERROR,
    RDMA_MSG,
    RDMA_NOMSG,
    error_name,
    procedure_name,
)
from ...onc.xdr import word
from ...rpcrdma.characteristics import UnknownOption
from ...rpcrdma.memory import REORDERED
from ...rpcrdma.negotiation import VersionRefusal
from ...transport.connection import DEFAULT_INLINE
from ..events import RefusableMessage, SentMessage, SentOption
from ..rule import (
    ERROR,
    PASSED,
    REPLY,
    SECOND,
    VIOLATION,
    Judgement,
    Level,
    beheaded,
    gaps,
    rule,
    undecidable,
    violation,
)
from ..transaction import Transaction
from .credits import OUT_OF_STEP, SKEW
from .errors import decoded, silent
from .header import inline_payload, nothing_behind
from .inline import compare_second, ruled_elsewhere

MUST, STATED = Level.MUST, Level.STATED

LATE_START = "the connection began before the capture did"


@rule(
    "V2-PROC",
    "The procedure is RDMA2_MSG, RDMA2_NOMSG, RDMA2_ERROR or RDMA2_OPTIONAL",
    MUST,
    "4.2",
    "",
    SentMessage,
    needs=SECOND,
)
def procedure(sent: SentMessage) -> Judgement | None:
    """rdma_proc of a version 2 message is 0, 1, 4 or 5; what version 1 had as 2 and 3 is gone.

    Why: an unknown procedure says nothing of what follows, so the message is lost.

    Right: rdma_proc 5, RDMA2_OPTIONAL.

    Wrong: rdma_proc 3, RDMA_DONE, in a message of version 2.
    """
    if sent.header.procedure is None:
        return None
    if sent.header.procedure in PROCEDURE_NAMES_2:
        return PASSED
    return violation(
        f"rdma_proc is {sent.header.procedure}",
        ", ".join(f"{number} ({name})" for number, name in PROCEDURE_NAMES_2.items()),
    )


@rule("V2-DIRECTION", "rdma_direction is the RPC message's own direction", MUST, "4.2.2", "", Transaction, needs=SECOND)
def direction(transaction: Transaction) -> Judgement | None:
    """rdma_direction of an RDMA2_MSG or RDMA2_NOMSG is 0 (CALL) before an RPC call, 1 (REPLY) before an RPC reply,
    which stands inline or in a chunk.

    Why: a receiver looks up XID and credits by the direction; by the wrong one it looks in the wrong table.

    Right: rdma_direction 1, then the RPC reply.

    Wrong: rdma_direction 0, then the RPC reply.
    """
    judged: Judgement | None = None
    for message, by, answers in (
        (transaction.rpc.call, "requester", False),
        (transaction.rpc.reply, "responder", True),
    ):
        if message is None or message.header.version != 2 or message.header.procedure not in (RDMA_MSG, RDMA_NOMSG):
            continue
        stream = transaction.reply_stream if answers else transaction.call_stream
        if len(stream) < 8:
            if transaction.lacks(message):
                judged = judged or undecidable("the RPC message's direction is not in the capture")
            continue
        inside, said = word(memoryview(stream), 4)[0], message.header.direction
        if said is not None and inside != said:
            return violation(
                f"rdma_direction {said} ({DIRECTION_NAMES[said]}) before an RPC message of msg_type {inside}",
                f"{inside}", message.frame, by=by,
            )  # fmt: skip
        judged = judged if judged is not None and judged is not PASSED else PASSED
    return judged


@rule("V2-OPTIONAL-DIRECTION", "rdma_optdir is the direction of the option", MUST, "4.2.2", "", SentOption)
def optional_direction(option: SentOption) -> Judgement | None:
    """rdma_optdir equals the direction of the RPC message that follows.  Where none does, a requester says CALL and a
    responder REPLY: ROPT_REQXCH is a request and ROPT_RESPXCH the response to it; anything else is a requester's from
    the client, and from the server a responder's, or a requester's of the backward direction.

    Why: without a payload nothing else shows to which XID space and credits the message belongs.

    Right: ROPT_INITXCH from the client with rdma_optdir 0.

    Wrong: the same with rdma_optdir 1.
    """
    said = option.message.header.direction
    if said is None:
        return undecidable("rdma_optdir is not in the capture")
    message, name = option.message, option_name(option.message.header.option)
    if message.end - message.start >= 8 and isinstance(option.content, UnknownOption):
        inside = word(message.data, message.start + 4)[0]
        if inside > 1:
            return undecidable("what follows the option is not an RPC message")
        if said == inside:
            return PASSED
        return violation(f"rdma_optdir {said} before an RPC message of msg_type {inside}", f"{inside}")
    if message.inline_length and isinstance(option.content, UnknownOption):
        return undecidable("the direction of the payload is not in the capture")
    if message.header.option == ROPT_REQXCH:
        wanted = CALL
    elif message.header.option == ROPT_RESPXCH:
        wanted = 1 - CALL
    else:
        wanted = said if option.sender == 1 or option.calls_back else CALL
    if said == wanted:
        return PASSED
    return violation(f"rdma_optdir {said} ({DIRECTION_NAMES[said]}) in {name}", f"{wanted} ({DIRECTION_NAMES[wanted]})")


@rule("V2-MSG-PAYLOAD", "RDMA2_MSG is followed by a Payload stream", MUST, "4.2.1", "", SentMessage, needs=SECOND)
def msg_payload(sent: SentMessage) -> Judgement | None:
    """Behind the chunk lists of an RDMA2_MSG stands the Payload stream, that begins with the XID.

    Why: without it there is no RPC message, and nothing says where else it might be.

    Right: 32 bytes of header and 40 bytes of NULL call.

    Wrong: an RDMA2_MSG that ends with its chunk lists; RDMA2_NOMSG was meant.
    """
    return inline_payload(sent)


@rule("V2-ERROR-PAYLOAD", "Nothing follows an RDMA2_ERROR", MUST, "4.2.1", "", SentMessage, needs=SECOND | ERROR)
def error_payload(sent: SentMessage) -> Judgement | None:
    """An RDMA2_ERROR ends with its error information.

    Why: no payload is defined there, so the receiver drops it.

    Right: 20 bytes, the last word RDMA2_ERR_INVAL_OPTION.

    Wrong: three empty chunk lists behind the error code.
    """
    return nothing_behind(sent)


@rule("V2-ERROR-CODE", "rdma_err is 1, 2 or 3, and decodes", STATED, "4.2", "", SentMessage, needs=SECOND | ERROR)
def error_code(sent: SentMessage) -> Judgement | None:
    """An RDMA2_ERROR says RDMA2_ERR_VERS (1), with a range behind it, RDMA2_ERR_BAD_HEADER (2) or
    RDMA2_ERR_INVAL_OPTION (3).

    Why: an error that cannot be decoded is discarded, so what it should end waits on.

    Right: rdma_err 3 and nothing else.

    Wrong: rdma_err 7; or rdma_err 1 and the Send ends.
    """
    return decoded(sent, "1 with a range of versions, 2, or 3")


@rule("V2-INVAL-OPTION", "An option that is not supported is answered by RDMA2_ERR_INVAL_OPTION", MUST,
      "3.1", "", RefusableMessage)  # fmt: skip
def inval_option(refusable: RefusableMessage) -> Judgement | None:
    """An end that does not know or support an rdma_opttype answers with an RDMA2_ERROR of the same XID that says
    RDMA2_ERR_INVAL_OPTION.  Silence about an option that neither document defines is a note, for the receiver may know
    it from elsewhere, unless it has refused it before.

    Why: the sender learns what its peer supports by that error alone.

    Right: option 77, RDMA2_ERR_INVAL_OPTION.

    Wrong: option 77, RDMA2_ERR_BAD_HEADER.
    """
    option, answer = refusable.option, refusable.answer
    if option is None or option.content.problem or any(value.kind is None for value in option.values):
        return None  # XC-BOUNDS, XC-UNKNOWN
    number = refusable.message.header.option
    assert number is not None
    wanted = f"RDMA2_ERROR, {error_name(2, ERR_INVAL_OPTION)}"
    if answer is not None and answer.header.procedure == RDMA_ERROR:
        if answer.header.error is None:
            return undecidable("the answer is truncated in the capture")
        if answer.header.problem or answer.header.error == ERR_INVAL_OPTION:
            return PASSED
        if answer.header.error == ERR_VERS and refusable.conversation.negotiation.settled != 2:
            return None  # it does not know the version, let alone its options
        if any(value.problem for value in option.values) and answer.header.error == ERR_CHUNK:
            return None
        return violation(f"{option_name(number)} answered {error_name(2, answer.header.error)}", wanted)
    if answer is not None or number in OPTIONS:
        return None
    if reason := silent(refusable):
        return undecidable(reason)
    before = refusable.message.frame
    refusals = refusable.conversation.negotiation.option_refusals
    if any(
        refusal.option == number and refusal.endpoint != refusable.sender and refusal.frame < before
        for refusal in refusals
    ):
        return violation(f"no answer to {option_name(number)}, which it has refused before", wanted)
    return violation(f"no answer to {option_name(number)}, though a later call was answered", wanted, note=True)


@rule("V2-FIRST-MESSAGE", "Version 2 begins with one message of at most 1024 bytes", MUST,
      "5", "", SentMessage, "requester", needs=SECOND)  # fmt: skip
def first_message(sent: SentMessage) -> Judgement | None:
    """The first message of a requester that speaks version 2 has that version and at most 1024 bytes, and it sends no
    second one before an answer that is no error.  The size of ROPT_INITXCH is XC-INIT-SIZE's; what follows a refusal is
    V2-FALLBACK's.

    Why: the responder may know version 1 alone, has buffers of 1024 bytes then, and of those one is certain.

    Right: a NULL call of version 2, its reply, then the other calls.

    Wrong: a NULL call of version 1, then calls of version 2; or two calls before the first reply.
    """
    terms, conversation, frame = sent.terms, sent.conversation, sent.message.frame
    if sent.sender != 0 or terms is None or _refusal(sent) is not None:
        return None
    version = conversation.version_at(frame)
    if version.value == 2:
        return None
    if version.value is None or not sent.start_known:
        return undecidable(LATE_START)
    if (
        terms.before
        and conversation.negotiation.requested is not None
        and conversation.negotiation.requested.version != 2
    ):
        begun = conversation.negotiation.requested
        return violation(f"version 2 on a connection that began with version {begun.version}",
                         "version 2 from the start", begun.frame, frame, stated=True)  # fmt: skip
    if terms.waiting:
        if reason := sent.missed(1) or beheaded(sent.connection, 1):
            return undecidable(reason)
        if sent.relieved is not None and sent.relieved < SKEW:
            return undecidable(OUT_OF_STEP)
        return violation(f"message {terms.waiting + 1}, and no answer yet", "one message alone")
    if sent.header.option == ROPT_INITXCH:
        return PASSED
    judgement = compare_second(sent, DEFAULT_INLINE, "before version 2 is settled")
    return judgement._replace(stated=judgement.verdict == VIOLATION)


def _refusal(sent: SentMessage) -> VersionRefusal | None:
    """The last refusal of a version by the server before this message."""
    latest = None
    for refusal in sent.conversation.negotiation.refusals:
        if refusal.frame >= sent.message.frame:
            break
        near = (
            refusal.refused_version is None
            and refusal.xid == sent.header.xid
            and sent.message.frame - refusal.frame <= REORDERED
        )
        if refusal.endpoint == 1 and not near:  # else a capture shows the answer before what it answers
            latest = refusal
    return latest


@rule("V2-FALLBACK", "After RDMA_ERR_VERS the requester keeps to the reported range", STATED,
      "5.2", "", SentMessage, "requester", backward=False)  # fmt: skip
def fallback(sent: SentMessage) -> Judgement | None:
    """After RDMA_ERR_VERS the requester goes on with a version inside the range that was reported.  It does not ask for
    version 2 again, nor on the next connection where this one was lost at once.

    Why: each round of asking for what was refused costs a connection, and leads nowhere.

    Right: version 2 refused with the range 1 to 1, then version 1.

    Wrong: version 2 refused, then version 2 again.
    """
    if sent.sender != 0 or sent.header.length < 8 or sent.header.procedure == RDMA_ERROR:
        return None
    version = sent.header.version
    if sent.terms is not None and sent.terms.looped:
        return violation(f"version 2 again, and {sent.terms.looped}", "version 1")
    refusal = _refusal(sent)
    if refusal is None or refusal.low is None or refusal.high is None or refusal.low > refusal.high:
        return None  # V1-ERROR-RANGE
    if refusal.allows(version):
        return PASSED if sent.conversation.negotiation.answer_before(sent.message.frame) is None else None
    if reason := gaps(sent.connection, 1) or sent.out_of_step:
        return undecidable(reason)
    return violation(f"version {version} after a refusal with the range {refusal.range}", "a version in the range",
                     refusal.frame, sent.message.frame)  # fmt: skip


@rule("V2-REPLY-VERSION", "A reply has the version of its call", MUST,
      "5.3", "RFC 8166, 4.2.2", Transaction, "responder", needs=REPLY)  # fmt: skip
def reply_version(transaction: Transaction) -> Judgement | None:
    """rdma_vers of a reply is that of its call.  RDMA_ERROR is V1-ERROR-VERSION's; what answers a version that the
    responder does not support is V1-ERROR-FOR-VERSION's.

    Why: a requester that spoke version 1 cannot read version 2, and one that spoke version 2 takes version 1 for the
    end of it.

    Right: call and reply of version 2.

    Wrong: a call of version 1, its reply of version 2.
    """
    call, reply = transaction.rpc.call, transaction.rpc.reply
    if reply is None or reply.header.length < 8 or reply.header.procedure == RDMA_ERROR:
        return None
    if call is None:
        return undecidable("the call is not in the capture") if reply.header.version == 2 else None
    if call.header.length < 8:
        return None
    if call.header.version == reply.header.version:
        return PASSED
    supported = call.header.version == 1 or transaction.version_supported
    if not supported:
        return None
    seen = f"{procedure_name(reply.header.version, reply.header.procedure)} of version {reply.header.version}"
    return violation(f"{seen} in answer to version {call.header.version}", f"version {call.header.version}",
                     call.frame, reply.frame)  # fmt: skip


@rule(
    "V2-INLINE-4096",
    "Where no other size was announced, Sends keep to 4096 bytes",
    MUST,
    "2.3, 5.1",
    "",
    SentMessage,
    needs=SECOND,
)
def inline_4096(sent: SentMessage) -> Judgement | None:
    """Once version 2 is settled, no Send is longer than 4096 bytes, as long as its receiver has not announced another
    Receive Buffer Size (XC-RBSIZ).

    Why: a Send that does not fit its receive buffer fails, and with it the connection.

    Right: an RDMA2_MSG of 4,000 bytes.

    Wrong: one of 5,000 bytes.
    """
    if ruled_elsewhere(sent) or sent.buffer_announced:
        return None
    limit, _, source = sent.limit
    return compare_second(sent, limit, source)
