"""What tells of NFSv4 state, as it happens: calls when they are sent, RPCs when they end."""

from __future__ import annotations

from typing import NamedTuple

from ..arrays import Rows
from ..rpcrdma.listeners import Listener
from ..rpcrdma.messages import Message
from ..rpcrdma.rpc_table import PlainRpcs
from ..rpcrdma.rpcs import Rpc
from ..transport.connection import Connection


class SentCall(NamedTuple):
    """A call, of which the RPC may go on."""

    number: int
    """Of its RPC."""
    connection: Connection
    message: Message


class StateEvent(NamedTuple):
    """Something that may tell of state."""

    time: int
    frame: int
    what: SentCall | Rpc
    """A call, or an RPC that ended."""


class StateNotes(NamedTuple):
    """What a worker of a divided capture notes in a batch beside the RPCs that ended."""

    calls: list[SentCall]
    lone: dict[int, tuple[int, int]]
    """Number of an RPC that ended without a reply -> when, and at which frame."""


class StateListener(Listener):
    """Notes the events of one conversation."""

    takes_rows = True

    def __init__(self, queue: list[StateEvent], plain: list[tuple[Rows, PlainRpcs]]) -> None:
        self._queue, self._plain = queue, plain

    def call_sent(self, rpc: Rpc) -> None:
        assert rpc.call is not None
        self._queue.append(called(SentCall(rpc.number, rpc.connection, rpc.call)))

    def rpc_ended(self, rpc: Rpc) -> None:
        self._queue.append(ended(rpc, rpc.connection.last_time, rpc.connection.last_frame))

    row_made = call_sent

    def rows_ended(self, rows: Rows, rpcs: PlainRpcs | None) -> None:
        if rpcs is not None:
            self._plain.append((rows, rpcs))


def called(call: SentCall) -> StateEvent:
    sent = call.message.operation
    return StateEvent(sent.first_time, sent.last_frame, call)


def ended(rpc: Rpc, time: int = 0, frame: int = 0) -> StateEvent:
    """``time`` and ``frame``: of one without a reply."""
    if rpc.reply is None:
        return StateEvent(time, frame, rpc)
    answer = rpc.reply.operation
    return StateEvent(answer.last_time, answer.last_frame, rpc)
