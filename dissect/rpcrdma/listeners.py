"""Listeners: called on the events of one conversation, as they happen and in order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows
from ..named_tuple import NamedTuple
from ..transport.operations import Operation
from .messages import Message
from .rpc_table import RpcNames, RpcRows
from .rpcs import Rpc


class RowSends(NamedTuple):
    """Calls and replies of a connection that can be rows, in columns."""

    caller: Int64s
    procedure: Int64s
    """Index into ``RpcNames.procedures``; -1 for replies."""
    size: Int64s
    """Bytes of the Send."""
    credits: Int64s
    invalidates: NDArray[np.bool_]
    """It is a Send With Invalidate."""
    truncated: NDArray[np.bool_]
    chunked: NDArray[np.bool_]
    long: NDArray[np.bool_]
    """The only chunk is a Reply chunk of one segment: a call that offers it, or a reply that came through it."""
    service: Int64s
    """Of the RPCSEC_GSS credential of a call; 0 without one."""
    data: Bytes
    arguments: Int64s
    """Offset of a call's arguments in ``data``."""
    end: Int64s
    """Offset of the end of its captured bytes."""


class SentRows(NamedTuple):
    """Calls and replies that are rows, in columns, in the order in which they were sent."""

    is_call: NDArray[np.bool_]
    caller: Int64s
    number: Int64s
    """Number of the RPC."""
    frame: Int64s
    time: Int64s
    xid: Int64s
    credits: Int64s
    call_frame: Int64s
    """Frame of the call."""
    handle: Int64s
    """Handle of the first segment of the message's chunks; -1 without any."""

    def chosen(self, mask: NDArray[np.bool_]) -> SentRows:
        """The rows for which ``mask`` is true."""
        return SentRows._make([column[mask] for column in self])


class Listener:
    """Takes the events of one conversation.  Messages come as objects, unless it takes them as rows."""

    takes_rows = False
    """Whether messages come as rows where possible, except with RPCSEC_GSS."""
    reads_bytes = True
    """Whether it reads bytes: then truncated messages do not come as rows."""
    whole_transfers = False
    """Whether, of RPCs with chunks, only those come as rows whose only chunk is a Reply chunk of one segment, filled by
    one RDMA Write, and whose reply invalidates no other memory."""

    def call_sent(self, rpc: Rpc) -> None:
        """A call was sent."""

    def reply_sent(self, rpc: Rpc) -> None:
        """A reply was sent; ``rpc.call`` is None if its call is not in the capture."""

    def rpc_ended(self, rpc: Rpc) -> None:
        """An Rpc ended, perhaps without a reply; it does not change any more."""

    def other_sent(self, sender: int, message: Message) -> None:
        """A message was sent that is neither call nor reply, or too short to tell."""

    def headless_sent(self, operation: Operation) -> None:
        """A Send whose first packet is not in the capture was sent."""

    def data_transferred(self, operation: Operation) -> None:
        """An RDMA Read or Write was issued, except on memory of calls that are rows."""

    def rows_wanted(self, sends: RowSends, names: RpcNames) -> NDArray[np.bool_]:
        """Which messages of the next batch it takes as rows."""
        wanted: NDArray[np.bool_] = (sends.service == 0) & self.takes_rows & ~(sends.truncated & self.reads_bytes)
        return wanted

    def rows_sent(self, rows: SentRows) -> None:
        """These messages were sent; replies to calls that are rows are among them."""

    def row_made(self, rpc: Rpc) -> None:
        """A call that was sent as a row, perhaps with its reply, is an object from now on."""

    def rows_ended(self, rows: Rows, rpcs: RpcRows | None) -> None:
        """The batch is over; ``rows``: the RPCs that ended in it as rows, ordered by their calls.

        ``rpcs``: what they are rows of; None if there are none.
        """


class Listeners(Listener):
    """Several listeners on the same conversation."""

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners
        self.reads_bytes = any(listener.reads_bytes for listener in listeners)
        self.whole_transfers = any(listener.whole_transfers for listener in listeners)

    def call_sent(self, rpc: Rpc) -> None:
        for listener in self.listeners:
            listener.call_sent(rpc)

    def reply_sent(self, rpc: Rpc) -> None:
        for listener in self.listeners:
            listener.reply_sent(rpc)

    def rpc_ended(self, rpc: Rpc) -> None:
        for listener in self.listeners:
            listener.rpc_ended(rpc)

    def other_sent(self, sender: int, message: Message) -> None:
        for listener in self.listeners:
            listener.other_sent(sender, message)

    def data_transferred(self, operation: Operation) -> None:
        for listener in self.listeners:
            listener.data_transferred(operation)

    def rows_wanted(self, sends: RowSends, names: RpcNames) -> NDArray[np.bool_]:
        wanted = np.ones(len(sends.caller), np.bool_)
        for listener in self.listeners:
            wanted &= listener.rows_wanted(sends, names)
        return wanted

    def rows_sent(self, rows: SentRows) -> None:
        for listener in self.listeners:
            listener.rows_sent(rows)

    def row_made(self, rpc: Rpc) -> None:
        for listener in self.listeners:
            listener.row_made(rpc)

    def rows_ended(self, rows: Rows, rpcs: RpcRows | None) -> None:
        for listener in self.listeners:
            listener.rows_ended(rows, rpcs)
