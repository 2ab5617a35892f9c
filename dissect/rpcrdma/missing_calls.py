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
from ..transport.connection import Connection
from ..transport.rc.link import RcLink
from .memory import REORDERED

TWO_REPLIES = "two replies have its XID while requests of the caller are missing: which answers it is undecidable"


def call_may_be_missing(connection: Connection, caller: int, call_frame: int, reply_frame: int) -> bool:
    """Requests of ``caller`` that are not in the capture were sent between these frames, or just before."""
    return any(call_frame - REORDERED < gap.frame <= reply_frame for gap in connection.gaps[caller])


def calls_may_be_missing(
    links: Sequence[RcLink], link: Rows, sender: Rows, frames: Rows, call: Int64s, reply: Int64s
) -> NDArray[np.bool_]:
    """The same of pairs of messages, by their index in columns: ``link`` counts in ``links``."""
    found = np.zeros(len(call), np.bool_)
    for index, one in enumerate(links):
        for end, gaps in enumerate(one.connection.gaps):
            if gaps:
                mine = ((link[call] == index) & (sender[call] == end)).nonzero()[0]
                shown = np.sort([gap.frame for gap in gaps])
                first = shown.searchsorted(frames[call[mine]] - REORDERED, side="right")
                found[mine] = shown.searchsorted(frames[reply[mine]], side="right") > first
    return found
