"""Listeners to connections, wherever these are analysed, whose results are combined again.

Workers of a divided capture are forks of the process that takes the results, so listeners exist there and in each
worker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from rdmascope.dissect.measure.credits import CreditDirection, CreditHistory, shared_bins
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.listeners import Listener, Listeners
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.transport.connection import Connection

if TYPE_CHECKING:
    from rdmascope.dissect.audit.auditor import Auditor, RuleTally, TallyKey
    from rdmascope.dissect.audit.rule import Finding
    from rdmascope.dissect.measure.nfs_state_history import NfsStateHistory, SentCall


_EARLIER = re.compile(r"\bconnection (\d+) was\b")
"""How a finding names another connection."""


class WorkerNumbers(Protocol):
    """What connections and RPCs of a worker are called in the whole."""

    def connection(self, number: int) -> int:
        """The number in the whole of a worker's connection."""

    def rpc(self, number: int) -> int:
        """The number in the whole of a worker's RPC."""


class WorkerFound(NamedTuple):
    """What one worker found."""

    numbers: WorkerNumbers
    found: Any
    """What ``found`` or ``rest`` gave there."""


class PassListener(Protocol):
    """Listens to all conversations; of those in workers it is given what ``found`` and ``rest`` gave there."""

    def listener(self, conversation: Conversation) -> Listener | None:
        """None: it is not listened to."""

    @property
    def divisible(self) -> bool:
        """Workers can do it, who do not know the numbers of the whole."""

    def begin_worker(self) -> None:
        """This process is a worker."""

    def found(self, gone: Sequence[Conversation], now: int) -> object:
        """What a worker found in a batch, which comes to ``now`` (ns); nothing more comes of those ``gone``."""

    def rest(self, conversations: Sequence[Conversation]) -> object:
        """What a worker found at the end of all that are not gone."""

    def take(self, workers: Sequence[WorkerFound], table: RpcTable) -> None:
        """What all workers found since the last time, and the RPCs that ended in the meantime."""


def listener_of(pass_listeners: Sequence[PassListener]) -> Callable[[Conversation], Listener | None]:
    """What one conversation is given to: the listener of each of them."""
    if len(pass_listeners) == 1:
        return pass_listeners[0].listener

    def listener(conversation: Conversation) -> Listener | None:
        listeners = [
            made for pass_listener in pass_listeners if (made := pass_listener.listener(conversation)) is not None
        ]
        return Listeners(*listeners) if listeners else None

    return listener


class DividedCredits:
    """The credits of each connection, both directions, by its number."""

    divisible = True

    def __init__(self) -> None:
        self.directions: dict[int, tuple[CreditDirection, ...]] = {}

    def listener(self, conversation: Conversation) -> Listener | None:
        if not conversation.connection.rdma:
            return None
        history = CreditHistory(conversation)
        self.directions[conversation.connection.number] = history.directions
        return history

    def begin_worker(self) -> None:
        """It is the same there."""

    def found(self, gone: Sequence[Conversation], now: int) -> object:
        return [self.directions.pop(conversation.connection.number, ()) for conversation in gone]

    def rest(self, conversations: Sequence[Conversation]) -> object:
        return [*self.directions.values()]

    def take(self, workers: Sequence[WorkerFound], table: RpcTable) -> None:
        for worker in workers:
            for directions in worker.found:
                for direction in directions:
                    direction.narrow(shared_bins(direction.connection.number))
                    self.directions[direction.connection.number] = directions


class DividedAudit:
    """An audit; ``on_finding`` is given its findings: of each connection in the order in which they are found."""

    def __init__(self, auditor: Auditor, on_finding: Callable[[Finding], None] | None = None) -> None:
        self.auditor = auditor
        self._on_finding = on_finding
        self._found: list[Finding] = []
        """In a worker, since the last time."""
        if on_finding is not None:
            auditor.on_finding = lambda finding, _: on_finding(finding)

    def listener(self, conversation: Conversation) -> Listener | None:
        return self.auditor.listener(conversation)

    @property
    def divisible(self) -> bool:
        """Which RPCs are meant, and which findings are waived, may be said by numbers of the whole."""
        auditor = self.auditor
        others = auditor.on_finding is not None and self._on_finding is None
        return auditor.meant is None and auditor.keep is None and not others

    def begin_worker(self) -> None:
        if self._on_finding is not None:
            self.auditor.on_finding = lambda finding, _: self._found.append(finding)

    def found(self, gone: Sequence[Conversation], now: int) -> _Audited:
        self.auditor.forget(now)
        return self.rest(gone)

    def rest(self, conversations: Sequence[Conversation]) -> _Audited:
        closed = [(conversation.connection, self.auditor.close(conversation)) for conversation in conversations]
        findings, self._found = self._found, []
        return _Audited(closed, findings)

    def take(self, workers: Sequence[WorkerFound], table: RpcTable) -> None:
        closed = [
            (connection, tallies, worker.numbers)
            for worker in workers
            for connection, tallies in worker.found.closed
            if tallies
        ]
        for connection, tallies, numbers in sorted(closed, key=lambda closed_connection: closed_connection[0].number):
            for tally in tallies.values():
                tally.examples = [_renumbered(finding, numbers) for finding in tally.examples]
            self.auditor.adopt(connection, tallies)
        if self._on_finding is not None:
            for worker in workers:
                for finding in worker.found.findings:
                    self._on_finding(_renumbered(finding, worker.numbers))


class _Audited(NamedTuple):
    """What a worker found."""

    closed: list[tuple[Connection, dict[TallyKey, RuleTally]]]
    """Tallies of connections that have ended."""
    findings: list[Finding]


class DividedState:
    """NFSv4 state, which is followed over all connections where the RPCs of all workers are."""

    divisible = True

    def __init__(self, history: NfsStateHistory) -> None:
        self.history = history

    def listener(self, conversation: Conversation) -> Listener:
        return self.history.listener(conversation)

    def begin_worker(self) -> None:
        """It is the same there."""

    def found(self, gone: Sequence[Conversation], now: int) -> object:
        return self.history.notes()

    def rest(self, conversations: Sequence[Conversation]) -> object:
        return self.history.notes()

    def take(self, workers: Sequence[WorkerFound], table: RpcTable) -> None:
        from rdmascope.dissect.measure.nfs_state_history import StateNotes

        calls: list[SentCall] = []
        lone: dict[int, tuple[int, int]] = {}
        for worker in workers:
            rpc = worker.numbers.rpc
            calls += [call._replace(number=rpc(call.number)) for call in worker.found.calls]
            lone |= {rpc(number): place for number, place in worker.found.lone.items()}
        self.history.note(StateNotes(calls, lone), table)


def _renumbered(finding: Finding, numbers: WorkerNumbers) -> Finding:
    observed = _EARLIER.sub(lambda match: f"connection {numbers.connection(int(match[1]))} was", finding.observed)
    return replace(finding, rpc=None if finding.rpc is None else numbers.rpc(finding.rpc), observed=observed)
