"""RDMA Reads and Writes: which end issues them, on which memory, and when."""

from __future__ import annotations

from ...layers.characteristics_codes import BKREQSUP_GENL, XCHAR_BRS
from ..events import RdmaOperation
from ..rule import PASSED, Judgement, Level, gaps_between, rule, undecidable, undecidable_if, violation

MUST, STATED = Level.MUST, Level.STATED


@rule(
    "V1-TRANSFER-MODEL",
    "Only the responder issues RDMA Reads and Writes",
    STATED,
    "4.1",
    "RFC 8166, 3.1",
    RdmaOperation,
)
def transfer_model(movement: RdmaOperation) -> Judgement | None:
    """Every RDMA Read and Write comes from the server.  Backward messages have no chunks, so a client has nothing to
    read or write either way; but in version 2 it serves the chunks of backward calls, where it supports them (XC-BRS).

    Why: a server that must expose its memory to be read from is open to every client.

    Right: the server reads a WRITE's data.

    Wrong: the client writes them into the server's memory.
    """
    if not movement.start_known and (movement.calls_truncated or not movement.callers[0]):
        return undecidable("which end is the server is not known")
    if movement.operation.initiator == 1 or movement.general:
        return PASSED
    conversation = movement.conversation
    settled, asked = conversation.negotiation.settled, conversation.negotiation.requested
    if settled == 2 or (not settled and (asked is None or asked.version == 2)):
        support = conversation.in_force(XCHAR_BRS, 0, movement.operation.first_frame).value
        decided = settled and support not in (None, BKREQSUP_GENL)
        if reason := movement.out_of_step if decided else movement.missed(1):
            return undecidable(reason)
    return violation(
        f"an {movement.name} of {movement.operation.length} bytes by the requester", "by the responder alone"
    )


def _unseen(movement: RdmaOperation) -> str:
    """Why an Operation outside advertised memory may be inside that of another call; '' if it cannot."""
    begun = max(end.private_data_frame for end in movement.connection.endpoints)
    if not movement.start_known or movement.operation.first_frame < begun:
        return "the connection began before the capture did"
    if not movement.operation.start_known:
        return "its first packet, which says where it goes, is not before the others in the capture"
    if reason := movement.missed(1 - movement.operation.initiator):
        return reason
    if movement.calls_truncated:
        return "the chunk lists of a call are truncated in the capture"
    return "what an open call advertises is not known" if movement.calls_unread else ""


@rule("V1-RDMA-OUTSIDE", "RDMA stays inside memory that was advertised", MUST,
      "4.4.3, 10.1", "RFC 8166, 3.4.3 and 8.1", RdmaOperation, "responder")  # fmt: skip
def rdma_outside(movement: RdmaOperation) -> Judgement | None:
    """Every RDMA Read and Write of a responder touches only segments that a call advertised on this connection.

    Why: anything else is memory the requester did not offer.  The adapter refuses it and ends the connection, or, where
    it does not, data are lost.

    Right: 8,192 bytes at the start of a segment of 8,192.

    Wrong: 8,193 bytes there.
    """
    if movement.place != "outside":
        return PASSED
    if reason := _unseen(movement):
        return undecidable(reason)
    operation = movement.operation
    near = f"; {movement.near}" if movement.near else ""
    return violation(
        f"an {movement.name} of {operation.length} bytes at 0x{operation.address:x}, "
        f"handle 0x{operation.handle:08x}{near}",
        "inside one advertised segment",
    )


@rule("V1-RDMA-AFTER-REPLY", "No RDMA touches a call's memory after its reply", STATED,
      "4.4.5.2, 5.4.1, 10.1.3", "RFC 8166, 3.4.5, 4.4 and 8.1.3", RdmaOperation, "responder")  # fmt: skip
def rdma_after_reply(movement: RdmaOperation) -> Judgement | None:
    """No RDMA Read or Write goes to a segment whose call was answered before it was issued.  V1-WRITE-BEFORE-REPLY
    covers a late Write with bytes that the reply counts.

    Why: with the reply the memory is the requester's again, and may hold something else already.

    Right: Read, reply.

    Wrong: reply, Read.
    """
    rpc, operation = movement.rpc, movement.operation
    if movement.place == "inside":
        return undecidable_if(movement.unseen_reply) or PASSED
    if movement.place == "outside" and (reason := _unseen(movement)):
        return undecidable(reason)
    if movement.place != "late":
        return None
    if movement.delivers:
        call = 0 if rpc is None else rpc.call_frame
        return undecidable_if(gaps_between(movement.connection, operation.initiator, call, operation.first_frame))
    if reason := movement.missed(1 - movement.operation.initiator):
        return undecidable(reason)
    if movement.calls_truncated:
        return undecidable("the chunk lists of a call are truncated in the capture")
    reply = rpc.reply if rpc is not None else None
    frames = (reply.frame,) if reply is not None else ()
    return violation(f"an {movement.name} of {operation.length} bytes behind the reply", "before the reply",
                     *frames, operation.first_frame)  # fmt: skip
