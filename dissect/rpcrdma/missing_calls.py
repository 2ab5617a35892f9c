"""Whether a reply may answer a call that is not in the capture, though one with its XID is open.

An XID is in use by one call at a time (RFC 8166, 3.3.3; RFC 5531, 9).  Where requests of the caller are missing at the
time of a call, and a second reply with its XID comes, the XID was used twice or the server replied twice: which of the
replies answers the call is then undecidable, unless the memory that they return tells.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows
from ..transport.connection import Connection, Link
from .memory import REORDERED
from .pending import LINGER, MAX_BESIDE_GAP
from .rpcs import Rpc

TWO_REPLIES = "two replies have its XID while requests of the caller are missing: which answers it is undecidable"
USED_BEFORE = "its XID is used again and again, and a request of the caller is missing: the reply may be to that"


def call_is_missing(connection: Connection, rpc: Rpc) -> bool:
    """A request of the caller that is not in the capture was sent between the call and the reply."""
    assert rpc.call is not None and rpc.reply is not None
    first, last = sorted((rpc.call.frame, rpc.reply.frame))
    return any(first < gap.frame <= last for gap in connection.gaps[rpc.call.operation.initiator])


def call_may_be_missing(connection: Connection, caller: int, call_frame: int, reply_frame: int) -> bool:
    """Requests of ``caller`` that are not in the capture were sent between these frames, or just before."""
    return any(call_frame - REORDERED < gap.frame <= reply_frame for gap in connection.gaps[caller])


def beside_gap(
    links: Sequence[Link], link: Rows, sender: Rows, rows: Rows, call: Int64s, reply: Int64s
) -> NDArray[np.bool_]:
    """Which pairs of messages still wait for a second reply when the batch is over, in which there is none.

    Messages are indices in columns; ``link`` counts in ``links``.
    """
    frames, times = rows["frame"], rows["time"]
    found = np.zeros(len(call), np.bool_)
    for index, one in enumerate(links):
        for end, gaps in enumerate(one.connection.gaps if one.connection is not None else ()):
            if gaps:
                mine = ((link[call] == index) & (sender[call] == end)).nonzero()[0]
                shown = np.sort([gap.frame for gap in gaps])
                first = shown.searchsorted(frames[call[mine]] - REORDERED, side="right")
                mine = mine[shown.searchsorted(frames[reply[mine]], side="right") > first]
                mine = mine[times[reply[mine]] >= times.max() - LINGER]
                found[mine[frames[reply[mine]].argsort()[-MAX_BESIDE_GAP:]]] = True
    return found
