"""Whether a reply may answer a call that is not in the capture, though one with its XID is open.

An XID is in use by one call at a time (RFC 8166, 3.3.3; RFC 5531, 9).  Where requests of the caller are missing at the
time of a call, and a second reply with its XID comes, the XID was used twice or the server replied twice: which of the
replies answers the call is then undecidable, unless the memory that they return tells.
"""

from __future__ import annotations

from ..transport.connection import Connection, Gap
from .memory import REORDERED
from .messages import HEADER
from .rpcs import Rpc

TWO_REPLIES = "two replies have its XID while requests of the caller are missing: which answers it is undecidable"
SHORTEST = HEADER + 40
"""Bytes of a call."""
SOON = 64
"""RPCs within which who used an XID again may do so sooner the next time."""
USED_BEFORE = "its XID is used again and again, and a request of the caller is missing: the reply may be to that"


def calls_missing(connection: Connection, rpc: Rpc) -> int:
    """How many calls between the call and the reply at most are not in the capture."""
    assert rpc.call is not None and rpc.reply is not None
    first, last = sorted((rpc.call.frame, rpc.reply.frame))
    gaps = [gap for gap in connection.gaps[rpc.call.operation.initiator] if gap.shown(first, last)]
    return sum([calls_in(gap, connection) for gap in gaps])


def calls_in(gap: Gap, connection: Connection) -> int:
    """How many calls at most fit in a gap: one for each packet, or so many bytes."""
    size = gap.end - gap.start
    return 1 + size // SHORTEST if connection.of_tcp else size


def comes_again(number: int, earlier: int | None, last: int, missing: int) -> bool:
    """Whether the XID of RPC ``number`` may have been used again since its call, of which ``missing`` calls are not in
    the capture, if it was not used sooner again than after RPC ``earlier``; RPC ``last`` is the latest."""
    return earlier is not None and number - earlier <= SOON + last - number + missing


def call_may_be_missing(connection: Connection, caller: int, call_frame: int, reply_frame: int) -> bool:
    """Requests of ``caller`` that are not in the capture were sent between these frames, or just before."""
    return any(gap.shown(call_frame - REORDERED, reply_frame) for gap in connection.gaps[caller])


def reply_may_be_missing(connection: Connection, rpc: Rpc) -> bool:
    """Between the call and the reply, or just before, the replier sent what is not in the capture: it may have answered
    the call, and the reply a later one."""
    assert rpc.call is not None and rpc.reply is not None
    return call_may_be_missing(connection, 1 - rpc.call.operation.initiator, rpc.call.frame, rpc.reply.frame)
