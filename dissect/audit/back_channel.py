"""By which call an NFSv4.1 client offered its connection for callbacks (RFC 8881, 18.36 and 18.34)."""

from __future__ import annotations

from ..onc import compound as nfs4
from ..onc.programs import NFS
from ..rpcrdma.rpcs import Rpc
from .transaction import Transaction

OFFERS = frozenset({"CREATE_SESSION", "BIND_CONN_TO_SESSION"})


class BackChannel:
    """Of one connection."""

    def __init__(self) -> None:
        self.offered_by: Rpc | None = None
        """The call that offered it."""
        self.calls_unread = False
        """Not every forward call that has ended is whole."""
        self.calls_back = False
        """The server has called the client."""

    def ended(self, transaction: Transaction) -> None:
        """A forward call, when all of it is known."""
        rpc = transaction.rpc
        if self.offered_by is None and rpc.program == NFS and OFFERS & set(rpc.operations) and _offers(transaction):
            self.offered_by = rpc
        if rpc.call is not None and not (rpc.call.operation.payload.whole and rpc.call.operation.end_known):
            self.calls_unread = True


def _offers(transaction: Transaction) -> bool:
    head = transaction.call_head
    if head is None or head.body < 0:
        return False
    stream = transaction.call_stream
    compound = nfs4.compound_call(stream, head.body, len(stream), transaction.reduced, origin=0)
    return nfs4.offers_back_channel(compound, stream)
