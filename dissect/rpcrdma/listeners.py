"""Listeners: what is called on the events of one conversation, as they happen and in their order."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows
from ..transport.operations import Operation
from .chunk_columns import PlainChunks
from .messages import Message
from .rpc_table import PlainRpcs, RpcNames
from .rpcs import Rpc


class Listener(Protocol):
    """The events of one conversation."""

    def call_sent(self, rpc: Rpc) -> None:
        """A call."""

    def reply_sent(self, rpc: Rpc) -> None:
        """A reply; ``rpc.call`` is None where its call is not in the capture."""

    def rpc_ended(self, rpc: Rpc) -> None:
        """An Rpc as it stays, perhaps without a reply."""

    def other_sent(self, sender: int, message: Message) -> None:
        """A message that is neither call nor reply, or too short to be known as either."""

    def data_transferred(self, operation: Operation) -> None:
        """An RDMA Read or Write was issued."""


class PlainPairs(NamedTuple):
    """Plain RPCs of a connection, a row each, before they are taken for such."""

    caller: Int64s
    procedure: Int64s
    """Index into ``RpcNames.procedures``."""
    call_send: Int64s
    """Bytes of the Send."""
    reply_send: Int64s
    credits_requested: Int64s
    credits_granted: Int64s
    invalidates: NDArray[np.bool_]
    """The reply is a Send With Invalidate, of no handle that its call advertised in ``long``."""
    data: Bytes
    arguments: Int64s
    """Offset of the call's arguments in ``data``."""
    call_end: Int64s
    """Offset of the call's end."""
    chunked: NDArray[np.bool_]
    """Call or reply has chunks: who takes it in columns is not called for its RDMA Reads and Writes either."""
    long: NDArray[np.bool_]
    """Its row has a ``transfer``."""


@runtime_checkable
class ColumnListener(Listener, Protocol):
    """One that takes plain RPCs in columns, and is called for none of their events.

    For each batch and direction: ``plain_begins``, then ``plain_advanced`` before each other event of the connection
    and at last for all, and ``plain_ended``.
    """

    def plain_accepted(self, pairs: PlainPairs, names: RpcNames) -> NDArray[np.bool_]:
        """Which rows it takes in columns; the others happen one after the other."""

    def plain_begins(self, calls: Rows, replies: Rows, chunks: PlainChunks | None) -> None:
        """A batch: RPC rows of one direction in the order of calls, and in that of replies."""

    def plain_advanced(self, called: int, answered: int) -> None:
        """So many of the batch's calls and replies have happened."""

    def plain_ended(self, rows: Rows, rpcs: PlainRpcs) -> None:
        """The batch is over; ``rows``, in the order of calls, have their numbers now."""


class Listeners:
    """Several on the same conversation."""

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners

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


class ColumnListeners(Listeners):
    """Several that take plain RPCs in columns."""

    def __init__(self, *listeners: ColumnListener) -> None:
        super().__init__(*listeners)
        self.columns = listeners

    def plain_accepted(self, pairs: PlainPairs, names: RpcNames) -> NDArray[np.bool_]:
        accepted = np.ones(len(pairs.caller), np.bool_)
        for listener in self.columns:
            accepted &= listener.plain_accepted(pairs, names)
        return accepted

    def plain_begins(self, calls: Rows, replies: Rows, chunks: PlainChunks | None) -> None:
        for listener in self.columns:
            listener.plain_begins(calls, replies, chunks)

    def plain_advanced(self, called: int, answered: int) -> None:
        for listener in self.columns:
            listener.plain_advanced(called, answered)

    def plain_ended(self, rows: Rows, rpcs: PlainRpcs) -> None:
        for listener in self.columns:
            listener.plain_ended(rows, rpcs)
