"""How many connections there are, and how many of them are of use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..rpcrdma.conversation import Conversation
from ..rpcrdma.eviction import Evicted


class ConnectionCounts(NamedTuple):
    """Connections of a capture, evicted ones included."""

    total: int
    rpcrdma: int
    """Those that carry RPC-over-RDMA."""
    refused: int
    """Those that the server refused."""

    @property
    def others(self) -> int:
        """Those of another protocol, or of an unknown one."""
        return self.total - self.rpcrdma - self.refused


def connection_counts(conversations: Iterable[Conversation], evicted: Evicted) -> ConnectionCounts:
    """Of those that were kept, and of those that were evicted.  A refused one carries nothing."""
    total, rpcrdma, refused = evicted.connections, evicted.carriers, evicted.refused
    for one in conversations:
        total += 1
        if one.connection.refused:
            refused += 1
        else:
            rpcrdma += one.protocol == "rpcrdma"
    return ConnectionCounts(total, rpcrdma, refused)
