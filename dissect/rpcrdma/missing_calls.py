"""Whether a reply may answer a call that is not in the capture, although a call with its XID is open.

An XID is in use by one call at a time (RFC 8166, 3.3.3; RFC 5531, 9).  If requests of the caller are missing around a
call, and a second reply with its XID comes, either the XID was used twice or the server replied twice: it is then
undecidable which reply answers the call, unless the memory that they return tells.
"""

from __future__ import annotations

from ..transport.connection import Connection, Gap
from .memory import REORDERED
from .messages import HEADER
from .rpcs import Rpc

TWO_REPLIES = "two replies have its XID while requests of the caller are missing: which answers it is undecidable"
SHORTEST = HEADER + 40
"""Bytes of the shortest call."""
SOON = 64
"""RPCs by which a client that reused an XID may do so sooner the next time."""
USED_BEFORE = "its XID is used again and again, and a request of the caller is missing: the reply may be to that"


def calls_missing(connection: Connection, rpc: Rpc) -> int:
    """An upper bound of the calls between the call and the reply that are not in the capture."""
    assert rpc.call is not None and rpc.reply is not None
    first, last = sorted((rpc.call.frame, rpc.reply.frame))
    gaps = [gap for gap in connection.gaps[rpc.call.operation.initiator] if gap.shown(first, last)]
    return sum([calls_in(gap, connection) for gap in gaps])


def calls_in(gap: Gap, connection: Connection) -> int:
    """An upper bound of the calls in a gap: one per packet, or by their least size."""
    size = gap.end - gap.start
    return 1 + size // SHORTEST if connection.of_tcp else size


def comes_again(number: int, earlier: int | None, last: int, missing: int) -> bool:
    """Whether the XID of RPC ``number``, last used by RPC ``earlier``, may have been used again since, by a missing
    call.

    ``last``: number of the latest RPC; ``missing``: calls since RPC ``number`` that the capture may lack.
    """
    return earlier is not None and number - earlier <= SOON + last - number + missing


def call_may_be_missing(connection: Connection, caller: int, call_frame: int, reply_frame: int) -> bool:
    """Whether requests of ``caller`` are missing from the capture between these frames, or just before."""
    return any(gap.shown(call_frame - REORDERED, reply_frame) for gap in connection.gaps[caller])


def reply_may_be_missing(connection: Connection, rpc: Rpc) -> bool:
    """Whether packets of the replier are missing between the call and the reply, or just before: one may be the call's
    own reply, and this one the reply to a later call."""
    assert rpc.call is not None and rpc.reply is not None
    return call_may_be_missing(connection, 1 - rpc.call.operation.initiator, rpc.call.frame, rpc.reply.frame)
