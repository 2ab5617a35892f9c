"""One pass over a capture that gathers what all detectors look at, and their statements."""

from __future__ import annotations

from collections.abc import Callable, Collection

from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.diagnosis.detector import all_detectors
from rdmascope.dissect.diagnosis.diagnose import Diagnosis, diagnose
from rdmascope.dissect.diagnosis.facts import Facts, Gathered
from rdmascope.dissect.diagnosis.file_facts import FileFacts
from rdmascope.dissect.measure.nfs_state_history import NfsStateHistory
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.listeners import ColumnListener, ColumnListeners
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from .condition import Condition
from .saved import holds_tables
from .session import Session

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
    detectors = [one for one in all_detectors().values() if not kinds or one.kind in kinds]
    needs = {what for one in detectors for what in (one.needs, one.uses)}
    saved = holds_tables(session.paths[0])
    auditor = Auditor(examples=EXAMPLES) if "audit" in needs else None
    files = FileFacts(session.mounts) if "files" in needs and not saved else None
    history = NfsStateHistory() if "sessions" in needs and not saved else None
    listeners: list[Callable[[Conversation], ColumnListener]] = []
    if auditor is not None and not saved:
        listeners.append(auditor.listener)
    if history is not None:
        listeners.append(history.listener)
    if listeners:
        session.analyzer.listener = lambda one: ColumnListeners(*[listener(one) for listener in listeners])
    gathered = Gathered()

    def evict(gone: list[Conversation]) -> None:
        gathered.evict(gone)
        if auditor is not None and not saved:
            auditor.evict(gone)
        if history is not None:
            history.evict(gone)

    for table in session.tables(evict):
        if condition is not None:
            table = condition.selected(table, session)
        gathered.add_table(table)
        on_table(table)
        if files is not None:
            files.add_table(table)
        del table
        if history is not None:
            history.advance()
        if auditor is not None:
            auditor.forget(session.analyzer.last_time or 0)
    if auditor is not None and saved:
        session.audit(auditor)
    elif auditor is not None:
        auditor.finish_broken(session.analyzer.conversations)
    sessions = None
    if history is not None:
        history.finish()
        sessions = history.sessions
    damage = "" if session.damage is None else str(session.damage)
    clients = history.clients if history is not None else ()
    return gathered.facts(session.analyzer, damage, files, auditor, sessions, clients)
