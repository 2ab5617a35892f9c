"""What a page needs of a capture, gathered in the one pass that a report makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rdmascope.captures.session.find import with_path
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.condition import Condition
from rdmascope.captures.tables.saved import holds_tables
from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.diagnosis.breakdown import Breakdown
from rdmascope.dissect.diagnosis.facts import Facts, Gathered
from rdmascope.dissect.measure.call_columns import call_columns
from rdmascope.dissect.measure.service_levels import ServiceLevel, ServiceLevelCounts
from rdmascope.dissect.rpcrdma.conversation import Conversation

from .examples import ShownRpcs, path_of

EXAMPLES = 2
"""Findings of each rule and end that are kept."""


class PageFacts:
    """A capture that was read to its end."""

    def __init__(
        self,
        session: Session,
        top: int = 10,
        condition: Condition | None = None,
        audited: bool = True,
        levels: Sequence[ServiceLevel] = (),
    ) -> None:
        """Reads a session that was not read yet."""
        self.session, self.condition = session, condition
        self.gathered = Gathered(top)
        learner = session.path_learner()
        self.breakdown = Breakdown(learner)
        self.gathered.rpcs.watch = self.breakdown.watch
        self.levels = [ServiceLevelCounts(level) for level in levels]
        self.examples = ShownRpcs(learner)
        self.auditor = Auditor(examples=EXAMPLES) if audited else None
        saved = holds_tables(session.paths[0])
        if self.auditor is not None and not saved:
            session.analyzer.listener = self.auditor.listener
        self._read()
        if self.auditor is not None:
            if saved:
                session.audit(self.auditor)
            else:
                self.auditor.finish(session.analyzer.conversations)
        damage = "" if session.damage is None else str(session.damage)
        facts = self.gathered.facts(session.analyzer, damage, auditor=self.auditor)
        self.facts = with_path(session, facts) if saved else self._named(facts)

    def _named(self, facts: Facts) -> Facts:
        """With the paths of calls that hang, as far as they are among the slowest."""
        shown = [self.examples.slowest[one.number] for one in facts.hung if one.number in self.examples.slowest]
        return replace(facts, paths={one.number: path for one in shown if (path := path_of(one))})

    def _read(self) -> None:
        session = self.session
        evicted: Callable[[list[Conversation]], None] = self._evict
        for table in session.tables(evicted):
            mask = None if self.condition is None else self.condition.mask(table, session)
            self.breakdown.add_table(table, mask)
            chosen = table if mask is None else table.selected(mask)
            self.gathered.add_table(chosen)
            if self.levels and len(chosen):
                calls = call_columns(chosen)
                for level in self.levels:
                    level.add(calls)
            self.examples.add_table(chosen, self.gathered.statistics, session.analyzer.earliest_time or 0)
            del table, chosen
            if self.auditor is not None:
                self.auditor.forget(session.analyzer.last_time or 0)

    def _evict(self, gone: list[Conversation]) -> None:
        self.gathered.evict(gone)
        if self.auditor is not None:
            self.auditor.evict(gone)
