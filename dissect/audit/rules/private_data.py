"""Private data in connection requests and replies, and Send With Invalidate (RFC 8797)."""

from __future__ import annotations

from ...layers.rpcrdma_codes import SIZE
from ...transport.connection import ENDS
from ..events import ConnectionSetup, SentMessage
from ..rule import CALL, FIRST, INVALIDATE, PASSED, REPLY, Judgement, Level, rule, undecidable, violation

MUST, SHOULD, STATED = Level.MUST, Level.SHOULD, Level.STATED

TRUNCATED = "the private data are truncated in the capture"
UNSEEN = "the message with the private data is not in the capture"


def _nothing(setup: ConnectionSetup) -> Judgement | None:
    """The judgement without an identifier: whether there may be one nevertheless."""
    if not setup.seen:
        return undecidable(UNSEEN)
    return undecidable(TRUNCATED) if setup.truncated else None


@rule(
    "PD-VERSION",
    "The message behind the format identifier has version 1",
    STATED,
    "4, 5.2",
    "RFC 8797, 4 and 5.2",
    ConnectionSetup,
)
def private_version(setup: ConnectionSetup) -> Judgement | None:
    """The octet after the first format identifier is 1.  Any other makes the message absent, and 1024 the threshold.

    Why: the version says what the octets after it mean; a receiver does not use what it does not know.

    Right: f6ab0e18 01 …

    Wrong: f6ab0e18 02 …
    """
    for identifier in setup.identifiers[:1]:
        if identifier.version is None:
            return undecidable(TRUNCATED) if setup.truncated else None
        return PASSED if identifier.version == 1 else violation(f"version {identifier.version}", "1", note=True)
    return _nothing(setup)


@rule("PD-RESERVED", "The seven reserved bits are zero", MUST, "4", "RFC 8797, 4", ConnectionSetup)
def private_reserved(setup: ConnectionSetup) -> Judgement | None:
    """The bits beside the R flag are zero.  What they mean in another version of the format is not known (PD-VERSION).

    Why: they are reserved for later versions; a sender that sets them may be misread then.

    Right: flags 0x00 or 0x01.

    Wrong: flags 0x81.
    """
    for identifier in setup.identifiers[:1]:
        if identifier.reserved is None:
            return undecidable(TRUNCATED) if setup.truncated else None
        if identifier.version != 1:
            return None
        return violation(f"reserved bits 0x{identifier.reserved:02x}", "0") if identifier.reserved else PASSED
    return _nothing(setup)


@rule(
    "PD-LENGTH", "The eight octets lie wholly inside the private data", STATED, "5.2", "RFC 8797, 5.2", ConnectionSetup
)
def private_length(setup: ConnectionSetup) -> Judgement | None:
    """The message that a format identifier begins does not run past the end of the private data.

    Why: a receiver that reads on reads what is not private data.

    Right: the identifier at the start.

    Wrong: the identifier in the last four octets.
    """
    if not setup.identifiers:
        return _nothing(setup)
    if setup.truncated:
        return undecidable(TRUNCATED)
    for identifier in setup.identifiers:
        if not identifier.whole:
            return violation(
                f"an identifier at offset {identifier.offset} with fewer than {SIZE} octets", "all eight inside"
            )
    return PASSED


@rule("PD-AMBIGUOUS", "The format identifier appears once", STATED, "5.2, 7", "RFC 8797, 5.2 and 7", ConnectionSetup)
def private_ambiguous(setup: ConnectionSetup) -> Judgement | None:
    """The private data hold one format identifier.

    Why: receivers search for it; with two, they may take different ones, and with them different thresholds.

    Right: other private data, and one message among them.

    Wrong: f6ab0e18 as a value of something else in front of the message.
    """
    identifiers = setup.identifiers
    if not identifiers:
        return _nothing(setup)
    if len(identifiers) > 1:
        places = ", ".join(str(identified.offset) for identified in identifiers)
        return violation(f"{len(identifiers)} identifiers, at offsets {places}", "one")
    return undecidable(TRUNCATED) if setup.truncated else PASSED


@rule(
    "PD-INVALIDATE-AGREED",
    "Send With Invalidate only after both ends set R",
    MUST,
    "4.1",
    "RFC 8797, 4.1",
    SentMessage,
    needs=FIRST | INVALIDATE,
)
def invalidate_agreed(sent: SentMessage) -> Judgement | None:
    """A Send With Invalidate is sent only if the private data of both ends had the R flag.  XC-REQREMINV covers
    version 2.

    Why: a requester that does not expect it finds its memory gone, or invalidates it twice and fails.

    Right: R in request and reply, replies that invalidate.

    Wrong: R in the request alone, and a reply that invalidates.
    """
    if sent.message.operation.invalidate is None or sent.header.version == 2:
        return None
    conversation = sent.conversation
    if not conversation.private_data_seen:
        return undecidable("the private data are not in the capture")
    lacking = [
        name
        for end, name in enumerate(ENDS)
        if (private := conversation.private_data(end)) is None or not private.remote_invalidation
    ]
    if not lacking:
        return PASSED
    return violation(f"a Send With Invalidate, and the {' and the '.join(lacking)} did not set R", "R from both ends")


@rule("PD-INVALIDATE-STAG", "The invalidated handle belongs to the call that is answered", MUST,
      "4.1", "RFC 8797, 4.1", SentMessage, "responder", needs=REPLY | INVALIDATE)  # fmt: skip
def invalidate_stag(sent: SentMessage) -> Judgement | None:
    """The handle that a reply invalidates is one of those that its call advertised.

    Why: any other belongs to a call that is still under way, or to none at all.

    Right: the handle of the call's Write chunk.

    Wrong: the handle of another call's.
    """
    handle = sent.message.operation.invalidate
    if handle is None or sent.is_call is not False:
        return None
    if sent.rpc is None or sent.rpc.call is None:
        return undecidable("the call is not in the capture")
    if sent.rpc.call.header.problem:
        return undecidable("the call's chunk lists are not known")
    handles = {use.advertised.handle for chunk in sent.rpc.chunks for use in chunk.segments}
    if handle in handles:
        return PASSED
    offered = ", ".join(f"0x{handle:08x}" for handle in sorted(handles)[:4]) or "none"
    return violation(f"0x{handle:08x} is invalidated", f"a handle of the call ({offered})",
                     sent.rpc.call.frame, sent.message.frame)  # fmt: skip


@rule(
    "PD-INVALIDATE-ROLE",
    "Only replies use Send With Invalidate",
    STATED,
    "4.1",
    "RFC 8797, 4.1",
    SentMessage,
    "requester",
    needs=CALL,
)
def invalidate_role(sent: SentMessage) -> Judgement | None:
    """No call is a Send With Invalidate.

    Why: only a responder knows of handles it has finished with; a requester was never given any.

    Right: calls as plain Sends.

    Wrong: a call that invalidates a handle of the server.
    """
    if not sent.is_call:
        return None
    handle = sent.message.operation.invalidate
    return PASSED if handle is None else violation(f"a call that invalidates 0x{handle:08x}", "a plain Send")


@rule("PD-CONTEXT", "Settings are those of this connection", STATED, "4", "RFC 8797, 4", ConnectionSetup,
      unjudgeable="no packet says where an endpoint took its settings from; using those of an earlier connection "
      "shows as PD-INLINE or PD-INVALIDATE-AGREED")  # fmt: skip
def private_context(setup: ConnectionSetup) -> Judgement | None:
    """Each connection goes by its own exchange of private data, not by that of an earlier one.

    Why: a server may have been restarted with other sizes, or replaced.

    Right: reconnected to a server that announces 1024, Sends of at most 1024 bytes.

    Wrong: the same, Sends of 4096 bytes as before.
    """
    return None
