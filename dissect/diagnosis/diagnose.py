"""All detectors on the facts of one capture, and the statements in order of weight."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from .detector import Detector, all_detectors
from .facts import Facts
from .statement import SEVERITIES, Cause, Severity, Statement


class Diagnosis(NamedTuple):
    """What is wrong, the worst first."""

    statements: tuple[Statement, ...]
    not_looked_at: tuple[str, ...]
    """Kinds of detectors that had nothing to look at: what they need was not gathered."""

    @property
    def healthy(self) -> bool:
        """Nothing is wrong as far as the capture shows; notes are about the capture."""
        return all(one.severity is Severity.NOTE for one in self.statements)

    @property
    def worst(self) -> Severity | None:
        return min((one.severity for one in self.statements), key=SEVERITIES.index, default=None)


def diagnose(facts: Facts, kinds: Collection[str] = ()) -> Diagnosis:
    """``kinds``: only these detectors; all where there are none."""
    found: list[tuple[Severity, float, Detector, Cause]] = []
    skipped: list[str] = []
    for one in all_detectors().values():
        if kinds and one.kind not in kinds:
            continue
        if one.needs not in facts.gathered:
            skipped.append(one.kind)
            continue
        found += [
            (cause.severity or one.severity, cause.share or 0.0, one, cause) for cause in one.detect(facts, one.limits)
        ]
    weakened = tuple(cause.text for severity, _, _, cause in found if severity is Severity.NOTE)
    found.sort(key=lambda one: (SEVERITIES.index(one[0]), -one[1] * one[3].confidence, -one[3].count))
    statements = tuple(
        _statement(rank, severity, one, cause, () if severity is Severity.NOTE else weakened)
        for rank, (severity, _, one, cause) in enumerate(found, 1)
    )
    return Diagnosis(statements, tuple(skipped))


def _statement(rank: int, severity: Severity, one: Detector, cause: Cause, weakened: tuple[str, ...]) -> Statement:
    if weakened:
        # What the capture lacks may be what would explain it.
        confidence = round(cause.confidence * 0.8, 2)
        cause = replace(cause, confidence=confidence, weakened_by=(*cause.weakened_by, *weakened))
    return Statement(
        one.kind, severity, rank, replace(cause, severity=severity), one.title, one.explanation, one.next_steps
    )
