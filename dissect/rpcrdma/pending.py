"""What of one conversation waits: replies for their calls, answered RPCs for packets that may come late."""

from __future__ import annotations

from collections import Counter

from ..named_tuple import NamedTuple
from ..transport.operations import Operation
from .messages import Message
from .rpcs import Rpc

MAX_REPLIES = 4096
"""Replies that wait for their calls."""
MAX_BESIDE_GAP = 64
"""RPCs that wait for a second reply with their XID."""
MAX_UNWRITTEN = 256
"""RPCs that wait for RDMA Writes after their replies."""
MAX_DOUBTFUL = 64
"""RPCs that wait for a reply that may show that theirs belongs to another call."""
LINGER = 1_000_000_000
"""Nanoseconds that an answered RPC waits for a second reply; on a silent connection also for Read responses."""


class WaitingReply(NamedTuple):
    number: int
    """Number of its RPC."""
    sender: int
    message: Message
    earlier: int | None
    """Number of an answered RPC with its XID."""
    other_memory: bool = False
    """The open calls with its XID did not offer the memory that it returns."""
    claimed: tuple[Operation, ...] = ()
    """RDMA Writes before it on the memory that it returns."""
    has_call: bool = False
    """An open call after it has its number, and is its call unless another reply to that comes."""


class Unsettled:
    """What waits for something in one conversation."""

    __slots__ = ("again", "beside_gap", "doubtful", "lingering", "replies", "reply_xids", "unwritten")

    def __init__(self) -> None:
        self.replies: list[WaitingReply] = []
        """Replies whose call was not seen yet."""
        self.reply_xids: tuple[Counter[int], Counter[int]] = Counter(), Counter()
        """How many of them have each XID, by sender."""
        self.lingering: list[Rpc] = []
        """Answered Rpcs with responses to RDMA Reads outstanding."""
        self.unwritten: list[Rpc] = []
        """Answered Rpcs with bytes of Write or Reply chunks that have not been written so far."""
        self.beside_gap: list[Rpc] = []
        """Answered Rpcs whose XID a missing call may have as well."""
        self.again: set[int] = set()
        """Numbers of answered RPCs whose reply may be to a later call with their XID, if one is missing."""
        self.doubtful: list[Rpc] = []
        """Answered Rpcs that were chosen among several with their XID without proof."""

    def __bool__(self) -> bool:
        return bool(self.lingering or self.unwritten or self.replies or self.doubtful or self.beside_gap)
