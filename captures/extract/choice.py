"""Which RPCs and frames of a capture are to be extracted."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.audit.finding import Finding
from rdmascope.dissect.audit.rule import all_rules
from rdmascope.dissect.diagnosis.detector import all_detectors
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from ..errors import CaptureError
from ..session.diagnosis_pass import diagnosis_of
from ..session.session import Session
from ..tables.condition import ChosenRpcs, Condition

MAX_FINDINGS = 1 << 20
"""Findings of a rule whose RPCs are taken."""


@dataclass(frozen=True, slots=True)
class Choice:
    """RPCs that pass the condition, those with these numbers, all of these connections, and these frames."""

    condition: Condition | ChosenRpcs | None = None
    rpcs: frozenset[int] = frozenset()
    connections: frozenset[int] = frozenset()
    """With every packet of theirs, whatever it carries."""
    frames: frozenset[int] = frozenset()

    def mask(self, table: RpcTable, session: Session) -> NDArray[np.bool_]:
        """Which rows of a table are chosen."""
        chosen = np.isin(table.rows["number"], list(self.rpcs)) if self.rpcs else np.zeros(len(table), np.bool_)
        if self.connections:
            chosen |= np.isin(table.rows["connection"], list(self.connections))
        if self.condition is not None:
            judged = self.condition
            chosen |= judged.mask(table) if isinstance(judged, ChosenRpcs) else judged.mask(table, session)
        return chosen


@dataclass(slots=True)
class FindingPlaces:
    """The RPCs of findings; of those that name none, the frames and connections."""

    rpcs: set[int] = field(default_factory=set)
    frames: set[int] = field(default_factory=set)
    connections: set[int] = field(default_factory=set)

    def add(self, finding: Finding) -> None:
        if finding.rpc is not None:
            self.rpcs.add(finding.rpc)
        else:
            self.frames.update(finding.frames)


def places_of_findings(opened: Callable[[], Session], ids: Collection[str]) -> FindingPlaces:
    """Where rules of the audit were broken, or what detectors name, by their IDs; in passes of their own.

    Raises CaptureError for an ID that none has, where there is no such finding, and where it is about the capture as a
    whole.
    """
    rules, detectors = all_rules(), all_detectors()
    found = FindingPlaces()
    said: list[str] = []
    for one in ids:
        if one.upper() not in rules and one.lower() not in detectors:
            raise CaptureError(f"no rule and no detector {one!r}; 'rdmascope rules' and docs/diagnosis.md list them")
    broken = [rules[one.upper()] for one in ids if one.upper() in rules]
    if broken:
        auditor = Auditor(broken, MAX_FINDINGS, on_finding=lambda finding, _: found.add(finding))
        opened().audit(auditor)
    if kinds := [one.lower() for one in ids if one.lower() in detectors]:
        for statement in diagnosis_of(opened(), kinds).statements:
            said.append(statement.cause.text)
            found.rpcs.update(statement.cause.rpcs)
            if not statement.cause.rpcs:
                found.frames.update(statement.cause.frames)
                found.connections.update(statement.cause.connections)
    if not found.rpcs and not found.frames and not found.connections:
        if said:
            raise CaptureError(f"'{said[0]}' is about the capture as a whole: it names no RPCs, frames or connections")
        raise CaptureError(f"nothing is found by {', '.join(ids)}")
    return found
