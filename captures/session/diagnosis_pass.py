"""One pass over a capture that gathers what all detectors look at, and their statements."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.diagnosis.facts import Diagnosis, Facts, Gathered, all_detectors, diagnose
from rdmascope.dissect.diagnosis.file_facts import FileFacts
from rdmascope.dissect.measure.nfs_state_history import NfsStateHistory
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from ..tables.saved import holds_tables
from .find import with_path
from .listeners import DividedAudit, DividedState, PassListener
from .session import Session

if TYPE_CHECKING:
    from ..tables.condition import Condition

EXAMPLES = 3
"""Findings of each rule and end that are kept."""


def diagnosis_of(session: Session, kinds: Collection[str] = (), condition: Condition | None = None) -> Diagnosis:
    """What is wrong with the capture of a session that was not read yet; reads it to its end.

    ``kinds``: only these detectors, and only what they need is gathered; all where there are none.  ``condition``:
    only RPCs that pass it count; what is known of connections and packets is still that of the whole capture.
    """
    return diagnose(facts_of(session, kinds, condition), kinds)


def facts_of(
    session: Session,
    kinds: Collection[str] = (),
    condition: Condition | None = None,
    on_table: Callable[[RpcTable], None] = lambda table: None,
) -> Facts:
    """What the detectors look at, likewise; ``on_table`` is given each table of RPCs, in order."""
    facts_pass = FactsPass(session, kinds)
    for table in session.tables(facts_pass.evict):
        if condition is not None:
            table = condition.selected(table, session)
        facts_pass.gathered.add_table(table)
        on_table(table)
        facts_pass.judge(table)
        del table
    return facts_pass.facts()


class FactsPass:
    """Gathers it while another reads the tables of a session: for each ``gathered.add_table``, and then ``judge``."""

    def __init__(self, session: Session, kinds: Collection[str] = ()) -> None:
        detectors = [detector for detector in all_detectors().values() if not kinds or detector.kind in kinds]
        needs = {what for detector in detectors for what in (detector.needs, detector.uses)}
        self._session, self._saved = session, holds_tables(session.paths[0])
        self.gathered = Gathered()
        self.auditor = Auditor(examples=EXAMPLES) if "audit" in needs else None
        self.files = FileFacts() if "files" in needs and not self._saved else None
        self._history = NfsStateHistory(with_credits=False) if "sessions" in needs and not self._saved else None
        pass_listeners: list[PassListener] = []
        if self.auditor is not None and not self._saved:
            pass_listeners.append(DividedAudit(self.auditor))
        if self._history is not None:
            pass_listeners.append(DividedState(self._history))
        if pass_listeners:
            session.watch(*pass_listeners)

    def evict(self, gone: list[Conversation]) -> None:
        """Nothing more comes of these."""
        self.gathered.evict(gone)
        if self.auditor is not None and not self._saved:
            self.auditor.evict(gone)
        if self._history is not None:
            self._history.evict(gone)

    def judge(self, table: RpcTable) -> None:
        """What is more than to be counted."""
        if self.files is not None:
            self.files.add_table(table)
        if self._history is not None:
            self._history.advance()
        if self.auditor is not None:
            self.auditor.forget(self._session.analyzer.last_time or 0)

    def facts(self) -> Facts:
        """What was gathered, once the capture was read."""
        session, history = self._session, self._history
        if self.auditor is not None and self._saved:
            session.audit(self.auditor)
        elif self.auditor is not None:
            self.auditor.finish_broken(session.analyzer.conversations)
        if history is not None:
            history.finish()
        sessions = None if history is None else history.sessions
        damage = "" if session.damage is None else str(session.damage)
        clients = history.clients if history is not None else ()
        facts = self.gathered.facts(session.analyzer, damage, self.files, self.auditor, sessions, clients)
        return with_path(session, facts)
