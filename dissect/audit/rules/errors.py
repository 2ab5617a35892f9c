"""RDMA_ERROR: when it is due, and what it says."""

from __future__ import annotations

from ...layers.oncrpc_codes import GARBAGE_ARGS
from ...layers.rpcrdma_codes import ERR_CHUNK, ERR_INVAL_OPTION, ERR_VERS, ERROR_NAMES, RDMA_ERROR, RDMA_MSG
from ...onc.binding import ENDS_INSIDE
from ...rpcrdma.characteristics import UnknownOption
from ..events import RefusableMessage, SentMessage
from ..rule import (
    ERROR,
    FIRST,
    LATER,
    PASSED,
    REPLY,
    Judgement,
    Level,
    beheaded,
    gaps_within,
    rule,
    undecidable,
    undecidable_if,
    violation,
)
from ..transaction import CALL_NOT_WHOLE, LOOKED_AT, Transaction

MUST, SHOULD, STATED = Level.MUST, Level.SHOULD, Level.STATED

NULL = 0
"""The procedure without arguments."""
LATE_START = "the connection began before the capture, and its versions may have been settled there"
EARLIER_CALL = "the connection began before the capture, and a call there may have had this XID"


@rule(
    "V1-ERROR-XID",
    "RDMA_ERROR carries the XID of the message it answers",
    MUST,
    "5.5",
    "RFC 8166, 4.5",
    SentMessage,
    needs=ERROR,
)
def error_xid(sent: SentMessage) -> Judgement | None:
    """The other end has sent a message with the error's rdma_xid.

    Why: the XID alone identifies the transaction that ended; with another one a call waits for ever.

    Right: a call 0x77 that cannot be decoded, RDMA_ERROR 0x77.

    Wrong: the same, RDMA_ERROR 0.
    """
    if sent.header.procedure is None:
        return undecidable_if(sent.unread)
    if sent.xid_seen:
        return PASSED
    if reason := _answers_unseen(sent):
        return undecidable(reason)
    return violation(f"rdma_xid 0x{sent.header.xid:08x}, which no message had", "the XID of the message it answers")


def _answers_unseen(sent: SentMessage) -> str:
    """Why an RDMA_ERROR may answer a message that is missing from the capture; '' if it cannot."""
    return sent.missed(1 - sent.sender) if sent.start_known else "the connection began before the capture did"


@rule("V1-ERROR-VERSION", "RDMA_ERROR carries the version of the message it answers", MUST,
      "5.5", "RFC 8166, 4.5", SentMessage, needs=ERROR)  # fmt: skip
def error_version(sent: SentMessage) -> Judgement | None:
    """rdma_vers of an RDMA_ERROR is that of the failing message, a call, a reply or another RDMA_ERROR.

    Why: the requester reads the answer by the version it used.

    Right: a message of version 2, an RDMA_ERROR with rdma_vers 2 and the range 1 to 1.

    Wrong: the same with rdma_vers 7.
    """
    call = sent.rpc.call if sent.rpc is not None and sent.rpc.call is not None else sent.answers
    version, possible = sent.header.version, sent.peer_versions
    if sent.header.procedure is None:
        return undecidable_if(sent.unread)
    if sent.header.length < 8:
        return None
    if not (sent.xid_seen or call):
        return undecidable_if(_answers_unseen(sent))  # or V1-ERROR-XID's
    if call is None:
        if version in possible or not possible:
            return PASSED if possible == {version} else None
        if reason := sent.unseen(1 - sent.sender):
            return undecidable(reason)
        asked = " or ".join(map(str, sorted(possible)))
        return violation(f"rdma_vers {version} in answer to {asked}", asked)
    if call.header.length < 8:
        return None
    if version == call.header.version:
        return PASSED
    if reason := _another_call(sent):
        return undecidable(reason)
    return violation(f"rdma_vers {version} in answer to {call.header.version}", f"{call.header.version}",
                     call.frame, sent.message.frame)  # fmt: skip


def _another_call(sent: SentMessage) -> str:
    """Why an RDMA_ERROR may answer a call from before the capture with the same XID; '' if it does not."""
    first = sent.rpc is not None and sent.rpc.order == 1
    return EARLIER_CALL if first and not sent.start_known else sent.out_of_step


@rule(
    "V1-ERROR-CODE",
    "rdma_err is 1 or 2, and decodes",
    STATED,
    "5.1.3",
    "RFC 8166, 4.1",
    SentMessage,
    needs=FIRST | ERROR,
)
def error_code(sent: SentMessage) -> Judgement | None:
    """An RDMA_ERROR says RDMA_ERR_VERS (1), followed by a range, or RDMA_ERR_BADHEADER (2).  V2-ERROR-CODE covers
    version 2.

    Why: an RDMA_ERROR that cannot be decoded is discarded, so the call it should end waits on.

    Right: rdma_err 2 and nothing else.

    Wrong: rdma_err 7; or rdma_err 1 and the Send ends.
    """
    return decoded(sent, "1 with a range of versions, or 2")


def decoded(sent: SentMessage, required: str) -> Judgement:
    """Judge whether an RDMA_ERROR can be decoded."""
    if sent.unread:
        return undecidable(sent.unread)
    return violation(sent.header.problem, required) if sent.header.problem else PASSED


@rule("V1-ERROR-RANGE", "RDMA_ERR_VERS gives a range that the offending version is outside of", MUST,
      "5.5.1", "RFC 8166, 4.5.1", SentMessage, needs=ERROR)  # fmt: skip
def error_range(sent: SentMessage) -> Judgement | None:
    """rdma_vers_low is not above rdma_vers_high, and the version that was refused is not between them.

    Why: the requester chooses from the range.  One that is empty, or holds what was refused, makes it give up or loop.

    Right: version 2 refused, low 1, high 1.

    Wrong: version 2 refused, low 1, high 2.
    """
    if sent.header.error not in (None, ERR_VERS) or sent.header.supported is None:
        return undecidable(sent.unread) if sent.unread and sent.header.error in (None, ERR_VERS) else None
    low, high = sent.header.supported
    if low > high:
        return violation(f"low {low}, high {high}", "low not above high")
    call = sent.rpc.call if sent.rpc is not None and sent.rpc.call is not None else sent.answers
    if call is None or call.header.length < 8:
        return undecidable("the message it answers is not in the capture")
    if low <= call.header.version <= high:
        if reason := _another_call(sent):
            return undecidable(reason)
        return violation(f"versions {low} to {high} in answer to version {call.header.version}",
                         "a range without the refused version", call.frame, sent.message.frame)  # fmt: skip
    return PASSED


def _answered(refusable: RefusableMessage, code: int) -> Judgement:
    wanted = f"RDMA_ERROR, {ERROR_NAMES[code]}"
    if refusable.answer is not None:
        header = refusable.answer.header
        if header.procedure == RDMA_ERROR:
            if header.error is None:
                return undecidable("the answer is truncated in the capture")
            if header.error == code or (header.problem and not header.truncated):
                return PASSED
            return violation(f"answered {ERROR_NAMES.get(header.error, header.error)}", wanted)
        if header.procedure is None:
            return undecidable("the answer is truncated in the capture")
        return violation("answered as if it were valid", wanted)
    if reason := silent(refusable):
        return undecidable(reason)
    return violation("no answer, though a later call was answered", wanted)


def silent(refusable: RefusableMessage) -> str:
    """Why it is unknown whether the receiver ignored a message; '' if it did."""
    receiver = 1 - refusable.sender
    missing = gaps_within(refusable.connection, receiver, 0, refusable.passed_over or LATER)
    if reason := missing or refusable.out_of_step:
        return reason
    if not refusable.receiver_seen and (reason := beheaded(refusable.connection, receiver)):
        return reason
    if refusable.sender == 1 and refusable.rpc is None and refusable.option is None and not refusable.start_known:
        return EARLIER_CALL  # which it answers: replies need no answer
    if refusable.other_answer:
        return "an answer of another XID may be meant for it"
    return "" if refusable.passed_over else "no answer, and nothing shows that the message was received"


@rule("V1-ERROR-FOR-VERSION", "An unsupported version is answered by RDMA_ERR_VERS", MUST,
      "5.5.1", "RFC 8166, 4.5.1", RefusableMessage, "responder")  # fmt: skip
def error_for_version(refusable: RefusableMessage) -> Judgement | None:
    """A message whose version the receiver does not support draws an RDMA_ERROR with RDMA_ERR_VERS.

    Why: the only way for peers of different versions to find a common one.

    Right: version 2, RDMA_ERR_VERS 1 to 1.

    Wrong: version 2, RDMA_ERR_BADHEADER; or silence, while later calls are answered.
    """
    if refusable.kind != "version":
        return None
    answer = refusable.answer
    version = refusable.message.header.version
    if answer is not None and answer.header.procedure not in (None, RDMA_ERROR):
        if answer.header.version == version:
            return None  # it supports that version
        unsettled = refusable.unseen(1 - refusable.sender) if refusable.start_known else LATE_START
        if version == 2 and unsettled:
            return undecidable(unsettled)
    if answer is not None and version == 2 and answer.header.error in (ERR_CHUNK, ERR_INVAL_OPTION):
        if refusable.message.header.problem:  # and then the header is what it minds
            truncated = refusable.message.header.truncated
            return undecidable("the transport header is not all in the capture") if truncated else None
        if not refusable.start_known:
            return undecidable(LATE_START)
        if reason := refusable.unseen(1 - refusable.sender):
            return undecidable(reason)
    return _answered(refusable, ERR_VERS)


@rule("V1-ERROR-FOR-HEADER", "An undecodable header is answered by RDMA_ERR_BADHEADER", MUST,
      "5.5.2", "RFC 8166, 4.5.2", RefusableMessage)  # fmt: skip
def error_for_header(refusable: RefusableMessage) -> Judgement | None:
    """A message whose version is known, but whose header cannot be decoded draws an RDMA_ERROR with
    RDMA_ERR_BADHEADER, which RFC 8166 calls RDMA_ERR_CHUNK.  So does an option of version 2 that cannot be decoded
    (xcharext-02, 2.1), unless it is refused as one that is not supported.

    Why: the call fails at once instead of waiting for a reply that cannot come.

    Right: a chunk list that runs past the Send, RDMA_ERROR 2.

    Wrong: silence, while later calls are answered.
    """
    option, answer = refusable.option, refusable.answer
    if option is not None:
        if isinstance(option.content, UnknownOption) or (option.decodes and not option.truncated):
            return None
        if answer is not None and answer.header.error == ERR_INVAL_OPTION:
            return PASSED
        if option.truncated:
            return undecidable(option.truncated)
        return _answered(refusable, ERR_CHUNK)
    return _answered(refusable, ERR_CHUNK) if refusable.kind == "header" else None


@rule("V1-ERROR-FOR-RESERVED", "RDMA_MSGP and RDMA_DONE are answered by RDMA_ERR_BADHEADER", SHOULD,
      "5.6", "RFC 8166, 4.6", RefusableMessage, "responder")  # fmt: skip
def error_for_reserved(refusable: RefusableMessage) -> Judgement | None:
    """A receiver of RDMA_MSGP or RDMA_DONE answers with RDMA_ERROR, RDMA_ERR_BADHEADER.

    Why: the sender learns that the procedure is not there, instead of waiting.

    Right: RDMA_MSGP, RDMA_ERROR 2.

    Wrong: RDMA_MSGP, answered like an RDMA_MSG.
    """
    return _answered(refusable, ERR_CHUNK) if refusable.kind == "reserved" else None


@rule("V1-ERROR-OF-ERROR", "An RDMA_ERROR that cannot be decoded is not answered", MUST,
      "5.5", "RFC 8166, 4.5", RefusableMessage)  # fmt: skip
def error_of_error(refusable: RefusableMessage) -> Judgement | None:
    """An end that receives an RDMA_ERROR that it cannot decode discards it, and sends nothing in return.

    Why: each error that is answered by an error would be answered again, and so on for ever.

    Right: an RDMA_ERROR with rdma_err 7, and silence.

    Wrong: the same, and an RDMA_ERROR with the same XID in return.
    """
    if refusable.kind != "error":
        return None
    if refusable.answer is not None:
        return violation("an RDMA_ERROR in answer to an RDMA_ERROR that cannot be decoded", "silence",
                         refusable.message.frame, refusable.answer.frame)  # fmt: skip
    return undecidable_if(refusable.answer_unseen) or PASSED


@rule("V1-ERROR-RETRY", "A call answered by RDMA_ERROR is not answered again", STATED,
      "5.5", "RFC 8166, 4.5", SentMessage, "responder", needs=REPLY)  # fmt: skip
def error_retry(sent: SentMessage) -> Judgement | None:
    """After an RDMA_ERROR no further reply has its XID, unless the call is sent anew.

    Why: the error completed the transaction.  The requester has given the memory and the XID to others.

    Right: RDMA_ERROR 0x77, and nothing more for 0x77.

    Wrong: RDMA_ERROR 0x77, then the reply 0x77.
    """
    if sent.is_call is not False:
        return undecidable("it may be a reply, or another call") if sent.errored is not None else None
    if sent.errored is None:
        known = sent.rpc is not None and sent.rpc.call is not None
        return PASSED if known and sent.header.procedure == RDMA_ERROR else None
    if reason := sent.missed(1 - sent.sender) or ("" if sent.errored.call else EARLIER_CALL):
        return undecidable(reason)
    frames = [sent.errored.reply.frame] if sent.errored.reply is not None else []
    if frames and frames[0] > sent.message.frame:
        return None  # It waited for a call, and none came.
    return violation(f"a reply to 0x{sent.header.xid:08x}, which RDMA_ERROR had completed", "no reply after the error",
                     *frames, sent.message.frame)  # fmt: skip


@rule("V1-GARBAGE-ARGS", "Unparsable arguments are answered GARBAGE_ARGS", SHOULD,
      "5.5.2", "RFC 8166, 4.5.2", Transaction, "responder", backward=False)  # fmt: skip
def garbage_args(transaction: Transaction) -> Judgement | None:
    """A call whose header is valid, but whose NFS arguments end before they should, is answered by an RDMA_MSG with
    GARBAGE_ARGS.  NFS version 4 servers may say NFS4ERR_BADXDR instead.

    Why: it is the call that is wrong, not the transport; RDMA_ERROR would hide which.

    Right: WRITE arguments without the data they count, GARBAGE_ARGS.

    Wrong: the same, SUCCESS.
    """
    rpc, items, reply = transaction.rpc, transaction.arguments, transaction.reply_head
    if rpc.call is None or rpc.reply is None or transaction.sealed:
        return None
    if rpc.call.header.problem and not rpc.call.header.truncated:
        return None
    if not transaction.call_whole and (transaction.bound or transaction.call_head is None):
        if len(transaction.call_stream) >= LOOKED_AT:
            return None
        kept = rpc.procedure == NULL or rpc.status == "NFS4ERR_BADXDR" or not transaction.may_succeed
        return None if kept else undecidable(CALL_NOT_WHOLE)
    if items is None or ENDS_INSIDE not in items.problem or transaction.unplaced_chunks:
        return None  # or V1-REPLY-NO-BINDING's
    if rpc.reply.header.procedure == RDMA_MSG and (reply is None or reply.accept_status is None):
        return undecidable("the reply cannot be read")
    if reply is not None and (reply.accept_status == GARBAGE_ARGS or reply.accepted is False):
        return PASSED
    if rpc.status == "NFS4ERR_BADXDR":
        return PASSED
    if transaction.unread:
        return undecidable(transaction.unread)
    return violation(f"{items.problem}; answered {rpc.status or 'otherwise'}", "RDMA_MSG with GARBAGE_ARGS")
