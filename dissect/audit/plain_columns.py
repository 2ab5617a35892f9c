"""The plain RPCs of a batch on one connection, in columns, as the listener of the audit takes them.

What they change for the judgement of others (credits, calls outstanding, frames reached, XIDs) is brought up to date
before each other event, as if each of them had happened by itself; they themselves are counted by class.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows, unique
from ..onc import binding
from ..onc.nfs3 import holds_arguments, nfs3_procedure
from ..onc.programs import NFS
from ..rpcrdma.conversation import DEFAULT_INLINE
from ..rpcrdma.listeners import PlainPairs
from ..rpcrdma.rpc_table import RpcNames
from .grants import CreditGrants
from .plain import plain_procedure
from .settling import Settling
from .transaction import CreditState

OFFERING = frozenset(("CREATE_SESSION", "BIND_CONN_TO_SESSION"))
"""Operations by which a client may offer its connection for callbacks."""
FEW = 64
"""Messages that are looked at one by one where that is needed."""


def accepted(pairs: PlainPairs, names: RpcNames) -> NDArray[np.bool_]:
    """Which rows are plain for the audit, too (``plain.rpc_class``), whatever is outstanding."""
    rows: NDArray[np.bool_] = (
        (pairs.caller == 0)
        & (pairs.call_send <= DEFAULT_INLINE)
        & (pairs.reply_send <= DEFAULT_INLINE)
        & (pairs.credits_requested > 0)
        & (pairs.credits_granted > 0)
        & ~pairs.invalidates
        & ~pairs.chunked
    )
    for procedure in unique(pairs.procedure[rows]).tolist():
        one = names.procedures[procedure]
        mine = rows & (pairs.procedure == procedure)
        if not plain_procedure(one.program, one.version, one.procedure, one.operations) or OFFERING & {*one.operations}:
            rows &= ~mine
        elif one.program == NFS and one.version == 3:
            rows[mine] = _hold_arguments(pairs, mine.nonzero()[0], one.procedure or 0)
    return rows


def _hold_arguments(pairs: PlainPairs, rows: Int64s, procedure: int) -> list[bool]:
    """Whether the arguments of these NFSv3 calls end inside them."""
    row = nfs3_procedure(procedure)
    assert row is not None
    data = pairs.data.data
    found = []
    for body, end in zip(pairs.arguments[rows].tolist(), pairs.call_end[rows].tolist(), strict=True):
        if row.argument_data is not None:
            found.append(binding.holds_data(3, procedure, data[body:end]))
        else:
            found.append(holds_arguments(data[body:end], row))
    return found


class PlainState(Protocol):
    """What of the listener the plain RPCs of a batch change."""

    settling: Settling
    grants: CreditGrants

    @property
    def outstanding(self) -> int:
        """Forward calls without a reply that are objects."""


class PlainRows:
    """The plain RPCs of a batch on one connection, all forward."""

    def __init__(self, state: PlainState, calls: Rows, replies: Rows) -> None:
        self._state = state
        self.call_frames: list[int] = calls["call_frame"].tolist()
        self.call_times: list[int] = calls["call_time"].tolist()
        self.requested: list[int] = calls["credits_requested"].tolist()
        self.call_xids: list[int] = calls["xid"].tolist()
        self.reply_frames: list[int] = replies["reply_frame"].tolist()
        self.reply_times: list[int] = replies["reply_time"].tolist()
        self.granted: list[int] = replies["credits_granted"].tolist()
        self.reply_xids: list[int] = replies["xid"].tolist()
        self.answered_calls: list[int] = replies["call_frame"].tolist()
        self.called = self.answered = 0
        self.exceeding: dict[int, CreditState] = {}
        """Calls beyond the credits, or before there were any: their place among the calls."""

    @property
    def outstanding(self) -> int:
        return self.called - self.answered

    def advance(self, called: int, answered: int) -> None:
        """So many calls and replies have happened."""
        grants, base = self._state.grants, self._state.outstanding + self.outstanding
        requested, granted = self.requested[self.called : called], self.granted[self.answered : answered]
        grant = grants.granted[0]
        uniform = grant is not None and (not granted or min(granted) == grant == max(granted))
        uniform = uniform and not grants.unmatched(0)
        if not uniform or (requested and grant is not None and base + len(requested) > min(grant, min(requested))):
            self._step(called, answered, base)
        elif requested:
            grants.requested[0] = requested[-1]
        if granted and grants.unrelieved[0]:
            first = self.reply_times[self.answered]
            for transaction in grants.unrelieved[0]:
                assert transaction.rpc.call is not None
                transaction.relieved = first - transaction.rpc.call.time
            grants.unrelieved[0].clear()
        self._pass(called, answered)
        self.called, self.answered = called, answered

    def _step(self, called: int, answered: int, outstanding: int) -> None:
        """Take credits and give them back, message by message."""
        grants, reply = self._state.grants, self.answered
        for call in range(self.called, called):
            while reply < answered and self.reply_frames[reply] < self.call_frames[call]:
                grants.grant(0, self.granted[reply], self.reply_times[reply])
                outstanding -= 1
                reply += 1
            outstanding += 1
            flow = grants.flow(0, self.requested[call], self.call_times[call], outstanding)
            if flow.limit is None or outstanding > flow.limit:
                self.exceeding[call] = flow
        for behind in range(reply, answered):
            grants.grant(0, self.granted[behind], self.reply_times[behind])

    def _pass(self, called: int, answered: int) -> None:
        """Let the capture reach the messages, and settle what that settles."""
        settling = self._state.settling
        calls, replies = self.call_frames, self.reply_frames
        while True:
            call = bisect_left(calls, settling.next, self.called, called)
            reply = bisect_left(replies, settling.next, self.answered, answered)
            frames = ([calls[call]] if call < called else []) + ([replies[reply]] if reply < answered else [])
            if not frames:
                break
            self._reach(min(frames), called, answered)
            settling.settle()
        last = [*calls[self.called : called][-1:], *replies[self.answered : answered][-1:]]
        if last:
            self._reach(max(last), called, answered)

    def _reach(self, frame: int, called: int, answered: int) -> None:
        settling = self._state.settling
        settling.frame = max(settling.frame, frame)
        for end, frames, first, behind in (
            (0, self.call_frames, self.called, called),
            (1, self.reply_frames, self.answered, answered),
        ):
            place = bisect_right(frames, frame, first, behind)
            if place > first:
                settling.last_sent[end] = max(settling.last_sent[end], frames[place - 1])
