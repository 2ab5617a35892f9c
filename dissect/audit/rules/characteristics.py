"""Transport characteristics of version 2: what the four options say, and what has to follow from it (xcharext-02)."""

from __future__ import annotations

from ...layers.characteristics_codes import (
    EXPERIMENTAL,
    ROPT_INITXCH,
    ROPT_REQXCH,
    ROPT_RESPXCH,
    ROPT_UPDXCH,
    option_name,
    value_words,
)
from ...layers.rpcrdma_codes import ERR_CHUNK, ERR_INVAL_OPTION, RDMA_ERROR, error_name
from ...rpcrdma.characteristics import InitXch, ReqXch, RespXch, UnknownOption, UpdXch, selected
from ...transport.connection import DEFAULT_INLINE
from ..events import RefusableMessage, SentOption
from ..rule import PASSED, Judgement, Level, gaps, rule, undecidable, violation
from .errors import silent
from .header import nothing_follows
from .version2 import LATE_START

MUST, SHOULD, STATED = Level.MUST, Level.SHOULD, Level.STATED


def options_missed(option: SentOption) -> str:
    """Why the peer of an option's sender may have said more than is known; '' where it cannot have."""
    if not option.start_known:
        return LATE_START
    return gaps(option.connection) or option.out_of_step


# What an option holds


@rule("XC-BOUNDS", "Every xchv_data ends inside its option", MUST, "2.1", "", SentOption)
def bounds(option: SentOption) -> Judgement | None:
    """The lengths and counts in an rdma_optinfo stay inside it; above all xchv_data does not run past it.  Words
    behind its last field are not forbidden.

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
    if option is None or not option.decodes or all(value.kind is not None for value in option.values):
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
    if answer is None and (reason := refusable.missed(1 - refusable.sender)):
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
        return None
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
    if option.before:
        return violation(f"ROPT_INITXCH as message {option.before + 1} of its sender", "the first")
    if not option.start_known:
        return undecidable(LATE_START)
    if reason := gaps(option.connection, option.sender):
        return undecidable(reason)
    return PASSED


@rule("XC-NOCHANGE", "What optixch_nochg names does not change", STATED, "4.1", "", SentOption)
def no_change(option: SentOption) -> Judgement | None:
    """A characteristic that its owner announced as fixed keeps its value for as long as the connection lasts.

    Why: the peer has laid out its buffers and its code by it.

    Right: Receive Buffer Size among optixch_nochg, and no ROPT_UPDXCH for it.

    Wrong: the same, and a ROPT_UPDXCH with another value.
    """
    if isinstance(option.content, UpdXch):
        changed = list(option.values)
    elif isinstance(option.content, RespXch) and option.request is not None:
        want = option.request.want
        changed = [want[at] for at in option.content.done if at < len(want)]
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
    return judged


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
    request = option.request
    if request is not None and request.xid == xid:
        return PASSED
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
    for one, other in (("done", "rejected"), ("done", "pending"), ("rejected", "pending")):
        if both := subsets[one] & subsets[other]:
            names = ", ".join(selected(both, request.want) if request is not None else map(str, sorted(both)))
            return violation(f"{names} is {one} and {other}", "in one of them")
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
    if refusable.other_answer:
        return undecidable("a ROPT_RESPXCH of another XID may be the answer")
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
    if refusable.option is None or needs is None or refusable.option.content.problem:
        return None
    shown = [need for need in needs if need in refusable.sent]
    if not shown:
        return None
    if answer is not None and answer.header.procedure == RDMA_ERROR and answer.header.error == ERR_INVAL_OPTION:
        return violation(f"{option_name(number)} refused by an end that sends {option_name(shown[0])}",
                         "no refusal")  # fmt: skip
    if answer is None and (reason := refusable.missed(1 - refusable.sender)):
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
    if not content.pending_clear or any(request.want[at].which == which for request, at in pending):
        return PASSED
    if reason := options_missed(option):
        return undecidable(reason)
    return violation(f"optupdxch_pendclr is true, and no change of {content.now.name} is pending", "false")
