"""Subject: what every noun of the audit has, and what a capture may be lacking."""

from __future__ import annotations

from ..rpcrdma.conversation import Conversation
from ..rpcrdma.messages import Message
from ..rpcrdma.rpcs import Rpc
from ..serial import PSN
from ..transport.connection import Connection
from ..transport.operations import Operation


class Subject:
    """Common to all nouns."""

    conversation: Conversation
    rpc: Rpc | None = None
    followed: tuple[bool, bool] = (False, False)
    """Whether either end sent another message later."""

    @property
    def connection(self) -> Connection:
        return self.conversation.connection

    def missed(self, sender: int) -> str:
        """Why ``sender`` may have sent something up to now that is not in the capture; '' where it cannot have.

        A gap is only seen when something behind it is.
        """
        if reason := gaps(self.connection):
            return reason
        return "" if self.followed[sender] else "no later message shows whether one is missing from the capture"

    def endpoint(self, role: str) -> int:
        """Which end of the connection a rule that judges ``role`` judges here."""
        raise NotImplementedError

    @property
    def role(self) -> str:
        """What that end is: 'requester', 'responder', or 'either' where it is not known."""
        raise NotImplementedError

    @property
    def frames(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def time(self) -> int:
        raise NotImplementedError

    @property
    def rpc_number(self) -> int | None:
        return self.rpc.number if self.rpc is not None else None

    @property
    def xid(self) -> int | None:
        return self.rpc.xid if self.rpc is not None else None

    @property
    def backward(self) -> bool:
        return False

    @property
    def shape(self) -> int:
        """Its features, in the bits of ``shape``."""
        return 0

    @property
    def start_known(self) -> bool:
        """The connection's beginning is in the capture."""
        return self.connection.start_known


class OfMessage(Subject):
    """A noun about one message that was sent."""

    message: Message
    sender: int

    @property
    def frames(self) -> tuple[int, ...]:
        return (self.message.frame,)

    @property
    def time(self) -> int:
        return self.message.time

    @property
    def xid(self) -> int | None:
        return self.message.header.xid


def gaps(connection: Connection, *senders: int) -> str:
    """Why what these ends sent is not all known; '' where it is."""
    missing = sum(connection.missing_packets[sender] for sender in senders or (0, 1))
    if missing:
        what = "are not in the capture, or arrived damaged" if connection.damaged else "are not in the capture"
        return f"{missing:,} packets of the connection {what}"
    unread = sum(connection.unread_packets[end] + connection.unread_messages[end] for end in senders or (0, 1))
    if unread:
        return f"{unread:,} packets of the connection cannot be read: their headers are truncated, or a check failed"
    if connection.one_sided:
        return "only one direction was captured"
    return ""


def precedes(connection: Connection, first: Operation, second: Operation) -> bool:
    """Whether one end certainly issued ``first`` before ``second``.

    PSNs say so, or the places in the TCP stream, whatever the order of the capture.
    """
    if connection.transport == "iWARP":
        return first.position < second.position
    return PSN.distance(first.psn, second.psn) < PSN.half


def beheaded(connection: Connection, sender: int) -> str:
    """Why the first packets of this end may be missing unnoticed; '' where it is known which ones they must be."""
    known = connection.transport == "iWARP" or connection.endpoints[1 - sender].start_psn is not None
    return "" if known and connection.start_known else "the capture may begin behind the first packets of the other end"
