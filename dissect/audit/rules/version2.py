"""RPC-over-RDMA version 2: its header, its options, and how the ends agree on it (version-two-01).  And transport
characteristics: what the four options say, what has to follow from it, and what they allow (xcharext-02).
"""

from __future__ import annotations

from bisect import bisect_left

from ...layers.characteristics_codes import (
    BKREQSUP_GENL,
    BKREQSUP_INLINE,
    BKREQSUP_NONE,
    EXPERIMENTAL,
    OPTIONS,
    ROPT_INITXCH,
    ROPT_REQXCH,
    ROPT_RESPXCH,
    ROPT_UPDXCH,
    XCHAR_BRS,
    XCHAR_RBSIZ,
    XCHAR_REQREMINV,
    option_name,
    value_words,
)
from ...layers.oncrpc_codes import CALL as CALL_TYPE
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
from ...rpcrdma.characteristics import InitXch, ReqXch, RespXch, UnknownOption, UpdXch, selected
from ...rpcrdma.memory import REORDERED
from ...rpcrdma.negotiation import VersionRefusal
from ...transport.connection import DEFAULT_INLINE
from ..events import RefusableMessage, SentMessage, SentOption
from ..rule import (
    CALL,
    ERROR,
    INVALIDATE,
    PASSED,
    REPLY,
    SECOND,
    VIOLATION,
    Judgement,
    Level,
    beheaded,
    gaps,
    gaps_between,
    gaps_within,
    left_open,
    rule,
    undecidable,
    undecidable_if,
    violation,
)
from ..transaction import Transaction
from .errors import decoded, silent
from .header import inline_payload, nothing_behind, nothing_follows
from .inline import LEAST, compare_second, ruled_elsewhere

MUST, SHOULD, STATED = Level.MUST, Level.SHOULD, Level.STATED


def options_missed(option: SentOption) -> str:
    """Why options of either end may have been missed; '' if none can have been."""
    if not option.start_known:
        return LATE_START
    return option.unseen(0) or option.unseen(1)


def unknown_request(option: SentOption) -> str:
    """Why it is unknown what a ROPT_RESPXCH answers; '' if it is known, or if it answers nothing."""
    request = option.request
    if request is None:
        return options_missed(option)
    return "" if request.whole else "the request cannot be read to its end"


# What an option holds


@rule("XC-BOUNDS", "Every xchv_data ends inside its option", MUST, "2.1", "", SentOption)
def bounds(option: SentOption) -> Judgement | None:
    """The lengths and counts in an rdma_optinfo stay inside it; above all xchv_data does not run past it.  Words
    after its last field are not forbidden.

    Why: where the length of one characteristic is wrong, all that follow are misread.

    Right: xchv_data of 4 bytes, and 4 bytes are there.

    Wrong: xchv_data of 900 bytes in an rdma_optinfo of 28.
    """
    if isinstance(option.content, UnknownOption):
        return None
    if option.truncated:
        return undecidable(option.truncated)
    return violation(option.content.problem, "inside rdma_optinfo") if option.content.problem else PASSED


@rule("XC-TYPE", "A characteristic's data are a value of its type", MUST, "2.1", "", SentOption)
def type_(option: SentOption) -> Judgement | None:
    """xchv_data of a known characteristic is long enough for its type, and a value of it.

    Why: a receiver must refuse the message, and loses the other characteristics in it as well.

    Right: Receive Buffer Size with the 4 bytes 00002000.

    Wrong: Receive Buffer Size with the 2 bytes 2000; Requester Remote Invalidation with the bool 7.
    """
    judged = None
    for value in option.values:
        if value.kind is None:
            continue
        if value.value is None:
            return violation(f"{value.name}: {value.problem}", f"a {value.kind.type}")
        judged = PASSED
    return judged or (undecidable(option.truncated) if option.truncated and not option.values else None)


@rule("XC-UNKNOWN", "An unknown characteristic draws no error", STATED, "2.1, 4.1", "", RefusableMessage)
def unknown(refusable: RefusableMessage) -> Judgement | None:
    """An end ignores a characteristic that it does not know, or rejects its change by ROPT_RESPXCH.  One that does not
    support the option at all answers RDMA2_ERR_INVAL_OPTION, and never sends such an option itself.

    Why: only so can new characteristics be announced to old peers.

    Right: ROPT_INITXCH with characteristic 9, and no answer.

    Wrong: ROPT_INITXCH with characteristic 9, RDMA2_ERR_BAD_HEADER.
    """
    option, answer = refusable.option, refusable.answer
    if option is None:
        return None
    refused = answer is not None and answer.header.error in (None, ERR_CHUNK, ERR_INVAL_OPTION)
    if option.truncated and refused and not isinstance(option.content, UnknownOption):
        return undecidable(option.truncated)
    if not option.decodes or all(value.kind is not None for value in option.values):
        return None  # XC-BOUNDS, XC-TYPE
    number = refusable.message.header.option
    if answer is not None and answer.header.procedure == RDMA_ERROR:
        error = answer.header.error
        if error == ERR_INVAL_OPTION and number not in refusable.sent:
            return None
        if error not in (ERR_CHUNK, ERR_INVAL_OPTION):
            return undecidable("the answer is truncated in the capture") if error is None else None
        names = ", ".join(value.name for value in option.values if value.kind is None)
        return violation(f"{option_name(number)} with {names} answered {error_name(2, error)}", "no error")
    if answer is None and (reason := refusable.answer_unseen or refusable.missed(1 - refusable.sender)):
        return undecidable(reason)
    return PASSED


@rule("XC-PAYLOAD", "Nothing follows the options of this extension", STATED, "4", "", SentOption)
def payload(option: SentOption) -> Judgement | None:
    """Behind ROPT_INITXCH, ROPT_REQXCH, ROPT_RESPXCH and ROPT_UPDXCH there is no RPC message.

    Why: a receiver has no use for it, and drops it.

    Right: 28 bytes of header, and the rdma_optinfo.

    Wrong: a NULL call behind ROPT_INITXCH.
    """
    if isinstance(option.content, UnknownOption):
        return None
    if option.truncated:
        return undecidable(option.truncated)
    return nothing_follows(option, option_name(option.message.header.option))


@rule("XC-EXPERIMENTAL", "Characteristics of the experimental range are for experiments", STATED, "6.2", "", SentOption)
def experimental(option: SentOption) -> Judgement | None:
    """Identifiers from 4294967040 to 4294967295 are reported as a note: only the two ends that agreed on them know
    what they mean.

    Why: elsewhere they are unknown, or taken for another experiment.

    Right: Receive Buffer Size, identifier 1.

    Wrong: identifier 4294967040 between implementations of different makers.
    """
    if not option.values:
        return undecidable_if(option.truncated)
    experimental = [value.which for value in option.values if value.experimental]
    if not experimental:
        return PASSED
    named = ", ".join(str(which) for which in experimental)
    return violation(f"characteristic {named}", f"outside {EXPERIMENTAL.start} to {EXPERIMENTAL.stop - 1}", note=True)


# What is announced at first


@rule("XC-INIT-SIZE", "ROPT_INITXCH fits the connection's initial receive size", SHOULD, "4.1", "", SentOption)
def init_size(option: SentOption) -> Judgement | None:
    """A ROPT_INITXCH is no longer than 1024 bytes before version 2 is settled, nor than the receiver's buffers later.

    Why: it is there to announce larger buffers, so it cannot rely on them.

    Right: three characteristics in 100 bytes.

    Wrong: an experimental one of 2,000 bytes among them in the first message.
    """
    if not isinstance(option.content, InitXch):
        return None
    length = option.message.operation.length
    limit, _, source = option.conversation.receive_size(1 - option.sender, option.message.frame)
    if limit is None:
        return PASSED if length <= DEFAULT_INLINE else undecidable(source)
    if length > limit:
        if reason := options_missed(option):
            return undecidable(reason)
        return violation(f"a Send of {length:,} bytes", f"at most {limit:,} ({source})")
    return PASSED if option.message.operation.end_known else undecidable("the end of the Send is not in the capture")


@rule("XC-INIT-FIRST", "ROPT_INITXCH is the first message of its sender", STATED, "4.1", "", SentOption)
def init_first(option: SentOption) -> Judgement | None:
    """An end that sends ROPT_INITXCH sends it before anything else on the connection, and once.

    Why: until then its peer goes by the defaults, and may do what it is not ready for.

    Right: ROPT_INITXCH, then the calls.

    Wrong: ten calls, then ROPT_INITXCH.
    """
    if not isinstance(option.content, InitXch):
        return None
    # A reply that waited for its call came before it, too.
    before = max(option.before, bisect_left(option.messages[option.sender], option.message.frame))
    if before:
        return violation(f"ROPT_INITXCH as message {before + 1} of its sender", "the first")
    if not option.start_known:
        return undecidable(LATE_START)
    return undecidable_if(option.unseen(option.sender)) or PASSED


@rule("XC-NOCHANGE", "What optixch_nochg names does not change", STATED, "4.1", "", SentOption)
def no_change(option: SentOption) -> Judgement | None:
    """A characteristic that its owner announced as fixed keeps its value for as long as the connection lasts.

    Why: the peer has laid out its buffers and its code by it.

    Right: Receive Buffer Size among optixch_nochg, and no ROPT_UPDXCH for it.

    Wrong: the same, and a ROPT_UPDXCH with another value.
    """
    if isinstance(option.content, UpdXch):
        changed = list(option.values)
    elif isinstance(option.content, RespXch):
        if reason := unknown_request(option):
            return undecidable(reason)
        changed = option.done
    else:
        return None
    frame, judged = option.message.frame, None
    announced_at, fixed = option.conversation.negotiation.nochange.get(option.sender, (0, frozenset[int]()))
    for new in changed:
        if new.value is None:
            continue
        before = option.conversation.in_force(new.which, option.sender, frame).value
        if announced_at < frame and new.which in fixed and before is not None and new.value != before:
            return violation(f"{new.name} changes from {value_words(new.which, before)} to {new.words}",
                             "no change, as optixch_nochg announced", announced_at, frame)  # fmt: skip
        judged = undecidable(reason) if not announced_at and (reason := options_missed(option)) else PASSED
    return judged or undecidable_if(option.truncated)


# Changes on request


@rule("XC-RESPONSE-XID", "ROPT_RESPXCH has the XID of the ROPT_REQXCH that it answers", MUST, "4.3", "", SentOption)
def response_xid(option: SentOption) -> Judgement | None:
    """rdma_xid of a ROPT_RESPXCH is that of a ROPT_REQXCH of its peer which has no answer yet.

    Why: its subsets are positions in that request; with another one they mean something else.

    Right: ROPT_REQXCH 0x77, ROPT_RESPXCH 0x77.

    Wrong: ROPT_REQXCH 0x77, ROPT_RESPXCH 0x78.
    """
    if not isinstance(option.content, RespXch):
        return None
    xid = option.message.header.xid
    request, frame = option.request, option.message.frame
    if request is not None and request.xid == xid:
        return undecidable_if(gaps_between(option.connection, option.sender, request.frame, frame)) or PASSED
    if reason := options_missed(option):
        return undecidable(reason)
    if request is not None:
        waits = f"0x{request.xid:08x}"
        return violation(f"ROPT_RESPXCH 0x{xid:08x}, and ROPT_REQXCH {waits} waits", waits)
    return violation(f"ROPT_RESPXCH 0x{xid:08x}, and no such ROPT_REQXCH waits", "the XID of a ROPT_REQXCH")


@rule(
    "XC-RESPONSE-SETS", "Done, rejected and pending share nothing and cover the request", SHOULD, "4.3", "", SentOption
)
def response_sets(option: SentOption) -> Judgement | None:
    """Each characteristic of a ROPT_REQXCH is in exactly one of the three subsets of its ROPT_RESPXCH.

    Why: of one that is in none of them, or in two, the requester does not know what became of it.

    Right: two wishes; done 0, rejected 1.

    Wrong: two wishes; done 0, rejected 0.
    """
    content, request = option.content, option.request
    if not isinstance(content, RespXch) or content.problem:
        return undecidable(option.truncated) if isinstance(content, RespXch) and option.truncated else None
    subsets = {"done": content.done, "rejected": content.rejected, "pending": content.pending}
    for first, second in (("done", "rejected"), ("done", "pending"), ("rejected", "pending")):
        if both := subsets[first] & subsets[second]:
            names = ", ".join(selected(both, request.want) if request is not None else map(str, sorted(both)))
            return violation(f"{names} is {first} and {second}", "in one of them")
    if request is None:
        return undecidable("the request is not in the capture") if options_missed(option) else None
    if not request.whole:
        return undecidable("the request cannot be read to its end")
    named, all_ = content.done | content.rejected | content.pending, set(range(len(request.want)))
    if missing := all_ - named:
        return violation(f"{', '.join(selected(missing, request.want))} is in none of the subsets", "in one of them",
                         request.frame, option.message.frame)  # fmt: skip
    if extra := named - all_:
        return violation(f"{', '.join(selected(extra, request.want))} is in a subset", f"positions below {len(all_)}",
                         request.frame, option.message.frame)  # fmt: skip
    return PASSED


@rule("XC-RESPONSE-MISSING", "A ROPT_REQXCH is answered", STATED, "4.2", "", RefusableMessage)
def response_missing(refusable: RefusableMessage) -> Judgement | None:
    """A ROPT_REQXCH draws a ROPT_RESPXCH, or, from an end that does not support it, an RDMA2_ERROR.

    Why: until then its sender does not know which value to go by.

    Right: ROPT_REQXCH, ROPT_RESPXCH that rejects it all.

    Wrong: ROPT_REQXCH, and nothing, while later calls are answered.
    """
    if refusable.option is None or not isinstance(refusable.option.content, ReqXch):
        return None
    if refusable.answer is not None:
        return PASSED
    if reason := silent(refusable):
        return undecidable(reason)
    return violation("no answer, though a later call was answered", "ROPT_RESPXCH, or RDMA2_ERR_INVAL_OPTION")


@rule("XC-SUPPORT", "An end that requests changes accepts the answers", MUST, "4", "", RefusableMessage)
def support(refusable: RefusableMessage) -> Judgement | None:
    """An end that sends ROPT_REQXCH supports ROPT_RESPXCH and ROPT_UPDXCH, and one that supports these supports
    ROPT_INITXCH: it does not refuse them by RDMA2_ERR_INVAL_OPTION.

    Why: an end that requests a change and refuses the answer leaves its peer in doubt about which value is in force.

    Right: ROPT_REQXCH from the client, ROPT_RESPXCH from the server, and no error.

    Wrong: the same, and the client answers RDMA2_ERR_INVAL_OPTION.
    """
    number, answer = refusable.message.header.option, refusable.answer
    needs = {
        ROPT_RESPXCH: (ROPT_REQXCH,),
        ROPT_UPDXCH: (ROPT_REQXCH,),
        ROPT_INITXCH: (ROPT_REQXCH, ROPT_RESPXCH, ROPT_UPDXCH),
    }.get(number or 0)
    option = refusable.option
    if option is None or needs is None or (option.content.problem and not option.truncated):
        return None
    shown = [need for need in needs if need in refusable.sent]
    refused = answer is not None and answer.header.procedure == RDMA_ERROR and answer.header.error == ERR_INVAL_OPTION
    if not shown:
        missing = gaps(refusable.connection, 1 - refusable.sender) if refused else ""
        return undecidable_if(missing)
    if refused:
        return violation(f"{option_name(number)} refused by an end that sends {option_name(shown[0])}", "no refusal")
    if answer is None and (reason := refusable.answer_unseen or refusable.missed(1 - refusable.sender)):
        return undecidable(reason)
    return PASSED


@rule(
    "XC-UPDATE-PENDING", "A pending change ends with one ROPT_UPDXCH that says so", STATED, "4.3, 4.4", "", SentOption
)
def update_pending(option: SentOption) -> Judgement | None:
    """Each change that a ROPT_RESPXCH called pending ends with a ROPT_UPDXCH whose optupdxch_pendclr is true; in an
    unsolicited one it is false.

    Why: nothing else informs the requester that the change is complete.

    Right: pending, ROPT_UPDXCH with optupdxch_pendclr true.

    Wrong: a ROPT_UPDXCH with optupdxch_pendclr true, and nothing pending.
    """
    content = option.content
    if isinstance(content, RespXch):
        request = option.request
        if not content.pending or request is None:
            return None
        if request.open:
            names = ", ".join(selected(request.open, request.want))
            return undecidable(f"{names} is pending where the connection's traffic ends")
        return PASSED
    if not isinstance(content, UpdXch) or content.now is None or content.pending_clear is None:
        return undecidable(option.truncated) if isinstance(content, UpdXch) and option.truncated else None
    which, frame = content.now.which, option.message.frame
    pending = option.conversation.negotiation.pending(option.sender, frame)
    if not content.pending_clear:
        return PASSED
    if any(request.want[at].which == which for request, at in pending):
        return undecidable_if(gaps_between(option.connection, option.sender, 0, frame)) or PASSED
    if reason := options_missed(option):
        return undecidable(reason)
    return violation(f"optupdxch_pendclr is true, and no change of {content.now.name} is pending", "false")


@rule("XC-RBSIZ", "No Send exceeds the Receive Buffer Size in force", STATED, "3.1", "", SentMessage, needs=SECOND)
def receive_buffer(sent: SentMessage) -> Judgement | None:
    """Once the receiver has announced its Receive Buffer Size, no Send of version 2 is longer.  Where it has not,
    V2-INLINE-4096 judges.

    Why: a Send that does not fit its receive buffer fails, and with it the connection.

    Right: 8192 announced, a Send of 8,000 bytes.

    Wrong: 8192 announced, a Send of 9,000 bytes.
    """
    limit, _, source = sent.limit
    unknown = limit is None and sent.length > DEFAULT_INLINE
    if ruled_elsewhere(sent) or not (sent.buffer_announced or unknown):
        return None
    return compare_second(sent, limit, source)


@rule("XC-RBSIZ-SHRINK", "The Receive Buffer Size shrinks only where the peer asked for it", SHOULD,
      "3.1", "", SentOption)  # fmt: skip
def receive_buffer_shrink(option: SentOption) -> Judgement | None:
    """A ROPT_UPDXCH lowers the Receive Buffer Size only after a ROPT_REQXCH of its peer, and to no less than that asked
    for.

    Why: Sends of the larger size may be under way, and will not fit.

    Right: a ROPT_REQXCH for 4096, then 4096.

    Wrong: 8192, then 4096 unasked.
    """
    if not isinstance(option.content, UpdXch):
        return None
    now, frame = option.content.now, option.message.frame
    if now is None or now.which != XCHAR_RBSIZ or now.value is None:
        return undecidable(option.truncated) if option.truncated and (now is None or now.which == XCHAR_RBSIZ) else None
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
    if now.value >= before or any(wish <= now.value for wish in wishes):
        return PASSED
    if reason := options_missed(option):
        return undecidable(reason)
    return violation(f"{before} lowered to {now.value} unasked", "no less than was in force or asked for")


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
    if limit is not None and sent.length > limit:
        return None
    if not wishes:
        own = (request for request in conversation.negotiation.requests if request.requester == sent.sender)
        cut = "a request is truncated" if any(not one.whole for one in own if one.frame < frame) else ""
        missing = cut or gaps_within(sent.connection, sent.sender, 0, frame)
        return undecidable_if(missing) if sent.length > LEAST else None
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
        if reason := unknown_request(option):
            return undecidable(reason)
        values = option.done
    elif isinstance(content, InitXch | UpdXch):
        values = list(option.values)
    else:
        return None
    sizes = [value.value for value in values if value.which == XCHAR_RBSIZ and value.value is not None]
    if not sizes:
        return undecidable_if(option.truncated)
    small = [size for size in sizes if size < LEAST]
    return violation(f"a Receive Buffer Size of {small[0]}", f"at least {LEAST}") if small else PASSED


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
        return undecidable_if(option.truncated)
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
        return undecidable_if(gaps_between(sent.connection, 1 - sent.sender, 0, sent.message.frame)) or PASSED
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
        return undecidable_if(sent.unseen(0)) or PASSED
    if reason := sent.missed(0):
        return undecidable(reason)
    seen = "a backward call" + (" with chunks" if chunks else "")
    allowed = "an RDMA2_MSG without chunks" if level == BKREQSUP_INLINE else "none"
    return violation(f"{seen}, and the client's level is {value_words(XCHAR_BRS, level)} ({source})", allowed)


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
        return undecidable_if(sent.unread)
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
        if message is None or message.header.version != 2:
            continue
        if message.header.procedure not in (None, RDMA_MSG, RDMA_NOMSG):
            continue
        stream = transaction.reply_stream if answers else transaction.call_stream
        if len(stream) < 8:
            if transaction.lacks(message):
                judged = left_open(judged, "the RPC message's direction is not in the capture", by)
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
        wanted = CALL_TYPE
    elif message.header.option == ROPT_RESPXCH:
        wanted = 1 - CALL_TYPE
    else:
        wanted = said if option.sender == 1 or option.calls_back else CALL_TYPE
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
    """An RDMA2_ERROR says RDMA2_ERR_VERS (1), followed by a range, RDMA2_ERR_BAD_HEADER (2) or
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
    if option is None or any(value.kind is None for value in option.values):
        return None  # XC-UNKNOWN
    if option.truncated and not isinstance(option.content, UnknownOption):
        refused = answer is not None and answer.header.error not in (None, ERR_INVAL_OPTION)
        return undecidable(option.truncated) if refused else None
    if option.content.problem:
        return None  # XC-BOUNDS
    number = refusable.message.header.option
    assert number is not None
    wanted = f"RDMA2_ERROR, {error_name(2, ERR_INVAL_OPTION)}"
    if answer is not None and answer.header.procedure == RDMA_ERROR:
        if answer.header.error is None:
            return undecidable("the answer is truncated in the capture")
        if answer.header.error == ERR_INVAL_OPTION or (answer.header.problem and not answer.header.truncated):
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
    if sent.sender != 0 or terms is None or sent.header.procedure == RDMA_ERROR or _refusal(sent) is not None:
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
        return violation(f"message {terms.waiting + 1}, and no answer yet", "one message alone")
    if sent.header.option == ROPT_INITXCH:
        return PASSED
    judgement = compare_second(sent, DEFAULT_INLINE, "before version 2 is settled")
    return judgement._replace(stated=judgement.verdict == VIOLATION)


def _refusal(sent: SentMessage) -> VersionRefusal | None:
    """The server's last refusal of a version before this message."""
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
    if refusal is None and version != 1 and sent.conversation.version(sent.message.frame) != 2:
        start = "" if sent.start_known else LATE_START
        return undecidable_if(start or sent.unseen(1))
    if refusal is None or refusal.low is None or refusal.high is None or refusal.low > refusal.high:
        return None  # V1-ERROR-RANGE
    if refusal.allows(version):
        return PASSED if sent.conversation.negotiation.answer_before(sent.message.frame) is None else None
    if reason := sent.unseen(1):
        return undecidable(reason)
    return violation(f"version {version} after a refusal with the range {refusal.range}", "a version in the range",
                     refusal.frame, sent.message.frame)  # fmt: skip


@rule("V2-REPLY-VERSION", "A reply has the version of its call", MUST,
      "5.3", "RFC 8166, 4.2.2", Transaction, "responder", needs=REPLY)  # fmt: skip
def reply_version(transaction: Transaction) -> Judgement | None:
    """rdma_vers of a reply is that of its call.  V1-ERROR-VERSION covers RDMA_ERROR, V1-ERROR-FOR-VERSION the answer
    to a version that the responder does not support.

    Why: a requester that spoke version 1 cannot read version 2, and one that spoke version 2 takes version 1 for the
    end of it.

    Right: call and reply of version 2.

    Wrong: a call of version 1, its reply of version 2.
    """
    call, reply = transaction.rpc.call, transaction.rpc.reply
    if reply is None or reply.header.length < 8 or reply.header.procedure == RDMA_ERROR:
        return None
    if call is None:
        second = reply.header.version != 1 or transaction.conversation.version(reply.frame) == 2
        missing = not transaction.start_known or transaction.unseen(transaction.endpoint("requester"))
        return undecidable("the call is not in the capture") if second and missing else None
    if call.header.length < 8:
        return None
    if call.header.version == reply.header.version:
        return PASSED
    supported = call.header.version == 1 or transaction.version_supported
    if not supported:
        unseen = transaction.unseen(transaction.endpoint("responder")) if call.header.version == 2 else ""
        return undecidable_if(unseen)
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
