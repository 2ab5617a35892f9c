"""All detectors on the facts of one capture, and the statements in order of weight."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from .facts import SEVERITIES, Cause, Detector, Facts, Severity, Statement, all_detectors


class Diagnosis(NamedTuple):
    """What is wrong, the worst first."""

    statements: tuple[Statement, ...]
    not_looked_at: tuple[str, ...]
    """Kinds of detectors that had nothing to look at: what they need was not gathered."""
    connections: int
    """Those of RDMA that the capture shows; without any there was nothing to judge."""

    @property
    def healthy(self) -> bool:
        """Nothing is wrong as far as the capture shows; notes are about the capture."""
        return all(statement.severity is Severity.NOTE for statement in self.statements)

    @property
    def worst(self) -> Severity | None:
        return min((statement.severity for statement in self.statements), key=SEVERITIES.index, default=None)


def diagnose(facts: Facts, kinds: Collection[str] = ()) -> Diagnosis:
    """``kinds``: only these detectors; all where there are none."""
    causes: list[tuple[Detector, Cause]] = []
    skipped: list[str] = []
    for detector in all_detectors().values():
        if kinds and detector.kind not in kinds:
            continue
        if detector.needs not in facts.gathered:
            skipped.append(detector.kind)
            continue
        causes += [
            (detector, replace(cause, severity=cause.severity or detector.severity))
            for cause in detector.detect(facts, detector.limits)
        ]
    weakened = tuple(cause.text for _, cause in causes if cause.severity is Severity.NOTE and not cause.harmless)
    connections = len(facts.conversations) + facts.evicted
    return ranked(_gathered(causes), facts.waiting, connections, weakened, tuple(skipped))


def ranked(
    causes: list[tuple[Detector, Cause]],
    waiting: int,
    connections: int,
    weakened: tuple[str, ...] = (),
    skipped: tuple[str, ...] = (),
) -> Diagnosis:
    """Causes as statements, the worst first.

    ``waiting``: nanoseconds that all RPCs waited; ``weakened``: what makes all but notes less sure.
    """
    statements = tuple(
        _statement(rank, detector, _shared(waiting, cause), () if cause.severity is Severity.NOTE else weakened)
        for rank, (detector, cause) in enumerate(sorted(causes, key=_weight), 1)
    )
    return Diagnosis(statements, skipped, connections)


def _strength(severity: Severity | None) -> int:
    return len(SEVERITIES) if severity is None else SEVERITIES.index(severity)


def _weight(pair: tuple[Detector, Cause]) -> tuple[object, ...]:
    detector, cause = pair
    lost = -(cause.lost or 0) * cause.confidence
    return not detector.leads, cause.severity is Severity.NOTE, lost, _strength(cause.severity), -cause.count


def _gathered(causes: list[tuple[Detector, Cause]]) -> list[tuple[Detector, Cause]]:
    """Those of one cause become one: what follows from another statement is evidence of it."""
    by_kind: dict[str, list[int]] = {}
    for at, (detector, _) in enumerate(causes):
        by_kind.setdefault(detector.kind, []).append(at)
    kept = list(causes)
    taken: set[int] = set()
    for at in sorted(range(len(causes)), key=lambda at: -len(causes[at][0].follows_from)):
        detector, cause = kept[at]
        for other in (other for kind in detector.follows_from for other in by_kind.get(kind, ())):
            first, source = kept[other]
            mine, theirs = (
                (cause.procedures, source.procedures) if cause.procedures else (cause.connections, source.connections)
            )
            if not mine or not set(mine) <= set(theirs):
                continue
            joined = replace(
                source,
                since=source.since or cause.since,
                severity=min((source.severity, cause.severity), key=_strength),
                evidence=(f"{detector.title}: {cause.text}", *source.evidence),
                lost=max((lost for lost in (source.lost, cause.lost) if lost is not None), default=None),
                headline=source.headline or cause.headline,
            )
            kept[other] = first, joined
            taken.add(at)
            break
    return [pair for at, pair in enumerate(kept) if at not in taken]


def _shared(waiting: int, cause: Cause) -> Cause:
    """With its share of the time that RPCs waited, where it has no other."""
    if cause.lost is None or cause.share_of or not waiting:
        return cause
    # Parts of latencies are kept with seven digits (``measure.statistics``).
    return replace(cause, share=round(cause.lost / waiting, 6), share_of="the time that all RPCs waited")


def _statement(rank: int, detector: Detector, cause: Cause, weakened: tuple[str, ...]) -> Statement:
    if weakened:
        # What the capture lacks may be what would explain it.
        confidence = round(cause.confidence * 0.8, 2)
        cause = replace(cause, confidence=confidence, weakened_by=(*cause.weakened_by, *weakened))
    assert cause.severity is not None
    return Statement(
        detector.kind, cause.severity, rank, cause, detector.title, detector.explanation, detector.next_steps
    )
