"""Listeners: what is called on the events of one conversation, as they happen and in their order."""

from __future__ import annotations

from typing import Protocol

from ..transport.operations import Operation
from .messages import Message
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
