"""What is wrong with a capture, as records."""

from __future__ import annotations

from collections.abc import Iterable

from ..diagnosis.detector import Detector
from ..diagnosis.statement import Statement
from .schema import Record, record


def statement_record(statement: Statement) -> Record:
    return record("statement", **statement_fields(statement))


def statement_fields(statement: Statement) -> Record:
    """Without the schema."""
    cause = statement.cause
    return {
        "rank": statement.rank,
        "kind": statement.kind,
        "severity": statement.severity.value,
        "title": statement.title,
        "text": cause.text,
        "count": cause.count,
        "lost_ns": cause.lost,
        "share": None if cause.share is None else round(cause.share, 6),
        "share_of": cause.share_of or None,
        "since_ns": cause.since,
        "confidence": round(cause.confidence, 2),
        "weakened_by": list(cause.weakened_by),
        "evidence": list(cause.evidence),
        "connections": list(cause.connections),
        "rpcs": list(cause.rpcs),
        "frames": list(cause.frames),
        "explanation": statement.explanation,
        "next_steps": list(statement.next_steps),
    }


def detector_record(one: Detector) -> Record:
    return record(
        "detector",
        kind=one.kind,
        severity=one.severity.value,
        title=one.title,
        explanation=one.explanation,
        next_steps=list(one.next_steps),
        looks_at=one.looks_at,
        thresholds={name: threshold._asdict() for name, threshold in one.thresholds.items()},
    )


def statements(found: Iterable[Statement]) -> list[Record]:
    """All of a diagnosis."""
    return [statement_fields(one) for one in found]
