"""By which call an NFSv4.1 client offered its connection for callbacks (RFC 8881, 18.36 and 18.34)."""

from __future__ import annotations

from struct import pack

from ..layers.oncrpc_codes import RPCSEC_GSS
from ..layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from ..onc import compound as nfs4
from ..onc.programs import NFS
from ..onc.rpc_header import call_header
from ..rpcrdma.messages import Message
from ..rpcrdma.rpcs import Rpc
from .transaction import Transaction

COMPOUND = 1
_COMPOUND_CALL = pack(">III", NFS, 4, COMPOUND)
"""Program, version and procedure."""
_GSS = pack(">I", RPCSEC_GSS)
_OFFERING = (pack(">I", nfs4.OP_CREATE_SESSION), pack(">I", nfs4.OP_BIND_CONN_TO_SESSION))
UNREAD = "a call before it cannot be read"


class BackChannel:
    """Of one connection.  A client has offered it from its call on, not from the reply to that."""

    def __init__(self) -> None:
        self.offered = 0
        """Frame of the first call that did; 0 for none."""
        self.unread = 0
        """Frame of the first message of the client that cannot be read, and may have."""
        self.reason = ""
        """Why it cannot."""
        self.calls_back = False
        """The server has called the client."""
        self._pending: dict[Rpc, int] = {}
        """Forward calls whose contents are not all there yet, and their frames."""

    def call_sent(self, transaction: Transaction) -> None:
        """A forward call."""
        call = transaction.rpc.call
        assert call is not None
        if call.header.procedure == RDMA_NOMSG and not call.header.problem:
            self._pending[transaction.rpc] = call.frame
        else:
            self._note(transaction, call)

    def other_sent(self, sender: int, message: Message) -> None:
        """What is no call, or cannot be read as one."""
        if sender == 0 and message.header.problem:
            self._unread(message.frame, UNREAD)

    def ended(self, transaction: Transaction) -> None:
        """A forward call, when all of it is known."""
        if self._pending.pop(transaction.rpc, 0):
            assert transaction.rpc.call is not None
            self._note(transaction, transaction.rpc.call)

    def doubt(self, frame: int) -> str:
        """Why the client may have offered it before ``frame`` all the same; '' where it cannot have."""
        if self.unread and self.unread < frame:
            return self.reason
        return UNREAD if any(one < frame for one in self._pending.values()) else ""

    def _note(self, transaction: Transaction, call: Message) -> None:
        offers = _offers(transaction, call)
        if offers is True and not self.offered:
            self.offered = call.frame
        elif isinstance(offers, str):
            self._unread(call.frame, offers)

    def _unread(self, frame: int, reason: str) -> None:
        if not self.unread:
            self.unread, self.reason = frame, reason


def _offers(transaction: Transaction, call: Message) -> bool | str:
    """Whether a call offers the back channel; in words why that is not known."""
    if call.header.problem:
        return UNREAD
    if call.header.procedure == RDMA_MSG and call.end - call.start >= 28:
        at = call.start + 12
        behind = bytes(call.data[at : call.end])
        if not behind.startswith(_COMPOUND_CALL):
            return False
        whole = len(behind) == call.inline_length - 12
        if whole and behind[12:16] != _GSS and not any(one in behind for one in _OFFERING):
            return False
    stream = transaction.call_stream
    head = call_header(stream, 0, len(stream))
    if head is None:
        return UNREAD
    if (head.program, head.version, head.procedure) != (NFS, 4, COMPOUND):
        return False
    if head.body < 0:
        return "a call before it is sealed by RPCSEC_GSS" if head.flavor == RPCSEC_GSS else UNREAD
    compound = nfs4.compound_call(stream, head.body, len(stream), transaction.reduced, origin=0)
    if nfs4.offers_back_channel(compound, stream):
        return True
    return False if compound.complete else UNREAD
