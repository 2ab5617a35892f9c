"""Listeners: what is called on the events of one conversation, as they happen and in their order."""

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
    """Calls and replies of a connection that can be rows, a row each."""

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
    """All of its chunks is a Reply chunk of one segment: it is a call, or a reply that came through it."""
    service: Int64s
    """Of the RPCSEC_GSS credential of a call; 0 for none."""
    data: Bytes
    arguments: Int64s
    """Offset of a call's arguments in ``data``."""
    end: Int64s
    """Offset of its end."""


class SentRows(NamedTuple):
    """Calls and replies that are rows, in columns, one after the other as they were sent."""

    is_call: NDArray[np.bool_]
    caller: Int64s
    number: Int64s
    """Of the RPC."""
    frame: Int64s
    time: Int64s
    xid: Int64s
    credits: Int64s
    call_frame: Int64s
    """Of the call."""
    handle: Int64s
    """Of the first segment of a message's chunks; -1 for none."""

    def chosen(self, mask: NDArray[np.bool_]) -> SentRows:
        """Those for which ``mask`` is true."""
        return SentRows._make([column[mask] for column in self])


class Listener:
    """The events of one conversation.  Messages are objects, but for those that it takes as rows."""

    takes_rows = False
    """All that can be, but for those with RPCSEC_GSS."""
    reads_bytes = True
    """Of those none whose bytes the capture truncated."""
    whole_transfers = False
    """Of RPCs with chunks only those whose reply came by one RDMA Write through a Reply chunk of one segment, the only
    chunk, and invalidates no other memory."""

    def call_sent(self, rpc: Rpc) -> None:
        """A call was sent."""

    def reply_sent(self, rpc: Rpc) -> None:
        """A reply; ``rpc.call`` is None where its call is not in the capture."""

    def rpc_ended(self, rpc: Rpc) -> None:
        """An Rpc as it stays, perhaps without a reply."""

    def other_sent(self, sender: int, message: Message) -> None:
        """A message that is neither call nor reply, or too short to be known as either."""

    def headless_sent(self, operation: Operation) -> None:
        """A Send whose first packet is not in the capture."""

    def data_transferred(self, operation: Operation) -> None:
        """An RDMA Read or Write was issued, but on the memory of calls that are rows."""

    def rows_wanted(self, sends: RowSends, names: RpcNames) -> NDArray[np.bool_]:
        """Before a batch: which messages it takes as rows."""
        wanted: NDArray[np.bool_] = (sends.service == 0) & self.takes_rows & ~(sends.truncated & self.reads_bytes)
        return wanted

    def rows_sent(self, rows: SentRows) -> None:
        """These were sent; each reply to a call that is a row, too."""

    def row_made(self, rpc: Rpc) -> None:
        """What was sent as a row is an object from now on: a call, or with its reply."""

    def rows_ended(self, rows: Rows, rpcs: RpcRows | None) -> None:
        """The batch is over; ``rows``: of the RPCs that ended in it and were not made objects, by their calls.

        ``rpcs``: what they are rows of; None where there are none.
        """


class Listeners(Listener):
    """Several on the same conversation."""

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
