"""The RPCs of a trace, numbered as they are called, and given as they end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ..rpcrdma.conversation import Conversation
from ..rpcrdma.listeners import Listener
from ..rpcrdma.messages import Message
from ..rpcrdma.rpc_fields import KnownRpc
from ..rpcrdma.rpcs import HostTrouble, Rpc
from .rpcs import traced_rpc

_NO_LISTENER = Listener()
MAX_EXAMPLES = 5
FLUSHED = 5
WC_STATUSES = dict(enumerate((
    "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR",
    "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR",
    "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR",
)))  # fmt: skip
"""Of work completions (include/rdma/ib_verbs.h)."""


class RpcLog:
    """What both sides add to."""

    def __init__(self, listeners: dict[int, Listener], troubles: list[HostTrouble]) -> None:
        """By connection number; where troubles are put."""
        self._listeners, self._troubles = listeners, troubles
        self._orders: Counter[int] = Counter()
        self._done: list[Rpc] = []
        self.backward: dict[int, KnownRpc] = {}
        """By XID, calls in the backward direction (RFC 8167) without a reply."""
        self.last_number = 0
        self.side = ""
        """'client' or 'server': whose RPC began first."""

    def trouble(self, kind: str, words: str, time: int, number: int, rpc: int | None = None) -> None:
        """Another one, at an event of this number."""
        trouble = next((known for known in self._troubles if (known.kind, known.words) == (kind, words)), None)
        if trouble is None:
            trouble = HostTrouble(kind, words, time=time)
            self._troubles.append(trouble)
        trouble.count += 1
        if len(trouble.frames) < MAX_EXAMPLES:
            trouble.frames.append(number)
            trouble.rpcs += [] if rpc is None else [rpc]

    def completed(self, what: str, status: int | None, time: int, number: int) -> None:
        """A work request; those that are flushed follow from another error, or the end of the connection."""
        if status and status != FLUSHED:
            name = WC_STATUSES.get(status, f"status {status}")
            self.trouble("completion", f"{what}: {name}", time, number)

    def take(self) -> list[Rpc]:
        """Those that ended since the last time."""
        done, self._done = self._done, []
        return done

    def begin(self, conversation: Conversation, xid: int, side: str, backward: bool = False) -> KnownRpc:
        """The next one, seen by the client or the server; ``backward``: which the server calls."""
        self.side = self.side or side
        connection = conversation.connection
        self.last_number += 1
        self._orders[connection.number] += 1
        rpc = traced_rpc(self.last_number, conversation, xid, self._orders[connection.number], backward)
        if backward:
            self.backward[xid] = rpc
        return rpc

    def called(self, rpc: KnownRpc) -> None:
        """Its call is there."""
        self._passed(rpc, rpc.call, rpc.conversation.note_requested)
        self._listener(rpc).call_sent(rpc)

    def replied(self, rpc: KnownRpc) -> None:
        """Its reply is there."""
        self._passed(rpc, rpc.reply, rpc.conversation.note_granted)
        self._listener(rpc).reply_sent(rpc)

    def _passed(self, rpc: KnownRpc, message: Message | None, note_credits: Callable[[int], None]) -> None:
        assert message is not None
        connection, operation, credits = rpc.connection, message.operation, message.header.credits
        connection.last_frame = max(connection.last_frame, operation.last_frame)
        connection.last_time = max(connection.last_time, operation.last_time)
        if credits is not None and not rpc.backward:
            note_credits(credits)

    def _listener(self, rpc: KnownRpc) -> Listener:
        return self._listeners.get(rpc.connection.number, _NO_LISTENER)

    def end(self, rpc: KnownRpc) -> None:
        """No more is told of it."""
        if rpc.reply is not None:
            rpc.state = "error" if rpc.failed else "complete"
        if rpc.backward:
            self.backward.pop(rpc.xid, None)
        self._listener(rpc).rpc_ended(rpc)
        self._done.append(rpc)
