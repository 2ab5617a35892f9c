"""What a live capture waits for: a slow RPC, one of which a condition is true, a broken rule; and what it does then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rdmascope.dissect.audit.finding import Finding
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.onc.names import procedure_label
from rdmascope.dissect.records.rpc_columns import RpcSource
from rdmascope.dissect.records.schema import Record, record
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.outcome import named
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.units import duration

from ..errors import CaptureError
from ..tables.condition import Condition
from .keep import WindowKeeper

FINDING = "finding"
SLOW = "slower-than"
CONDITION = "condition"
HANGS = "calls-hung"
"""The finding that is no rule: a call that is not answered."""
HUNG_AFTER = 10_000_000_000
"""Nanoseconds for which a call that hangs is outstanding: more than a slow server takes."""
MAX_COMMANDS = 4
"""That run at the same time; what happens meanwhile starts none."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is waited for."""

    slower_than: int | None = None
    """Nanoseconds."""
    condition: Condition | None = None
    rules: frozenset[str] = frozenset()
    """Their ids, and ``HANGS``."""


class Trigger:
    """Judges RPCs and findings; the first that is wanted triggers, those until its file is complete are counted."""

    def __init__(
        self,
        wanted: Wanted,
        *,
        every: bool = False,
        command: str | None = None,
        keeper: WindowKeeper | None = None,
        on_trigger: Callable[[Record], None] | None = None,
    ) -> None:
        """
        Args:
            wanted: what is waited for.
            every: go on after it.
            command: run by the shell when its packets are kept.
            keeper: keeps the packets around it.
            on_trigger: is given a record of each.
        """
        self.keeper = keeper
        self.every = every
        self.happened = 0
        """How often it triggered."""
        self._wanted, self._command, self._on_trigger = wanted, command, on_trigger
        self._open: Record | None = None
        self._hanging: set[int] = set()
        """Numbers of calls without a reply that triggered; their reply does not once more."""
        self.on_problem: Callable[[CaptureError], None] | None = None
        """Is given why packets cannot be kept; where there is none, that is raised."""
        self._running: list[subprocess.Popen[bytes]] = []

    def write(self, batch: FrameBatch) -> None:
        """Frames that came.  Raises CaptureError where they cannot be kept."""
        if self.keeper is not None:
            self._attempt(partial(self.keeper.write, batch))

    def judge(self, table: RpcTable, source: RpcSource) -> None:
        """RPCs that ended, whose contents are held.  Raises CaptureError where the condition cannot be judged."""
        limit = self._wanted.slower_than
        if limit is not None:
            for index in (table.waiting > limit).nonzero()[0].tolist():
                rpc = table.rpc(index)
                if rpc.number not in self._hanging:
                    self._happen_of(SLOW, rpc, f"slower than {duration(limit)}")
        if HANGS in self._wanted.rules:  # Its connection ended before it was looked at.
            for index in (table.waiting > HUNG_AFTER).nonzero()[0].tolist():
                rpc = table.rpc(index)
                if rpc.reply is None and rpc.number not in self._hanging:
                    self._happen_of(FINDING, rpc, f"{_called(rpc)} hung for {duration(rpc.waiting or 0)}", rule=HANGS)
        condition = self._wanted.condition
        if condition is not None:
            for index in condition.mask(table, source).nonzero()[0].tolist():
                self._happen_of(CONDITION, table.rpc(index), str(condition))

    def look(self, analyzer: Analyzer, now: int) -> None:
        """It is ``now`` (ns): judge calls without a reply."""
        hangs = HANGS in self._wanted.rules
        limits = [one for one in (self._wanted.slower_than, HUNG_AFTER if hangs else None) if one is not None]
        if not limits:
            return
        unanswered = {rpc.number: rpc for rpc in analyzer.unanswered(now - min(limits))}
        self._hanging &= unanswered.keys()
        for number, rpc in unanswered.items():
            if number not in self._hanging:
                self._hanging.add(number)
                self._hung(named(rpc), now)

    def _hung(self, rpc: Rpc, now: int) -> None:
        rpc.outstanding = now - rpc.first_time
        limit = self._wanted.slower_than
        if limit is not None and rpc.outstanding > limit:
            self._happen_of(SLOW, rpc, f"slower than {duration(limit)}", now)
        else:
            self._happen_of(FINDING, rpc, f"{_called(rpc)} has hung for {duration(rpc.outstanding)}", now, HANGS)

    def found(self, finding: Finding) -> None:
        """A rule was broken."""
        if finding.rule.id in self._wanted.rules:
            connection = finding.connection.number
            self._happen(FINDING, finding.time, finding.observed, connection=connection, rule=finding.rule.id)

    def over(self, now: int) -> str:
        """Complete what happened when it is time, ``now`` (ns); why the capture ends with it, '' where it goes on."""
        if self._open is None or (self.keeper is not None and not self.keeper.over(now)):
            return ""
        why = str(self._open["trigger"])
        self._complete()
        return "" if self.every else FINDING if why == FINDING else "trigger"

    def close(self) -> None:
        """The capture is over."""
        if self._open is not None:
            self._complete()

    def _happen_of(self, why: str, rpc: Rpc, words: str, now: int | None = None, rule: str | None = None) -> None:
        """``now``: in nanoseconds, by default the end of the RPC."""
        message = rpc.reply or rpc.call
        time = message.operation.last_time if message is not None and now is None else now or 0
        self._happen(
            why,
            time,
            words,
            connection=rpc.connection.number,
            rpc=rpc.number,
            latency_ns=None if rpc.latency is None else rpc.latency.total,
            waiting_ns=rpc.waiting,
            rule=rule,
        )

    def _happen(self, why: str, time: int, words: str, **about: object) -> None:
        if self._open is not None and self.every and self.keeper is not None and self.keeper.over(time):
            self._complete()
        if self._open is not None:
            self._open["others"] += 1
            return
        given = {"rpc": None, "latency_ns": None, "waiting_ns": None, "rule": None, **about}
        self._open = record("trigger", trigger=why, words=words, time_ns=time, **given, others=0, file=None)
        self.happened += 1
        if self.keeper is not None:
            self._attempt(partial(self.keeper.begin, time))

    def _attempt(self, keep: Callable[[], str | None]) -> str | None:
        try:
            return keep()
        except CaptureError as error:
            if self.on_problem is None:
                raise
            self.on_problem(error)
            return None

    def _complete(self) -> None:
        assert self._open is not None
        happened, self._open = self._open, None
        if self.keeper is not None:
            happened["file"] = self._attempt(self.keeper.end)
        if self._on_trigger is not None:
            self._on_trigger(happened)
        if self._command is not None:
            self._run(self._command, happened)

    def _run(self, command: str, happened: Record) -> None:
        """It is not waited for; what it prints goes to standard error."""
        self._running = [one for one in self._running if one.poll() is None]
        if len(self._running) >= MAX_COMMANDS:
            return
        environment = {
            **os.environ,
            "RDMASCOPE_TRIGGER": json.dumps(happened),
            "RDMASCOPE_FILE": happened["file"] or "",
        }
        self._running.append(
            subprocess.Popen(
                command,
                shell=True,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                start_new_session=True,
            )
        )


def _called(rpc: Rpc) -> str:
    return procedure_label(rpc.name, rpc.operations)
