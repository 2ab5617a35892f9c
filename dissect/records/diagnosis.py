"""What is wrong with a capture, as records."""

from __future__ import annotations

from collections.abc import Iterable

from ..diagnosis.facts import Detector, Statement
from .schema import Fields, Record, RecordType, common, objects, record

ABOUT: Fields = {
    "kind": ("string", "name of the detector: packets-lost, calls-hung, …"),
    "severity": ("string", "problem, warning or note"),
    "title": ("string", "what it is about"),
    "explanation": ("string", "what it means, and why"),
    "next_steps": ("array of string", "what to look at next"),
}

STATEMENT: Fields = {
    "rank": ("integer", "1 is the worst"),
    **ABOUT,
    "text": ("string", "what is wrong, in a sentence"),
    "count": ("integer", "how often; of what, the text says"),
    "lost_ns": ("integer|null", "how long RPCs waited for it, in all; a lower bound if calls hang"),
    "share": ("number|null", "part of share_of that it is, 0 to 1; null without share_of"),
    "share_of": ("string|null", "the time that all RPCs waited, all packets, …"),
    "since_ns": ("integer|null", "when it began; null where that is not known"),
    "confidence": ("number", "0 to 1, how sure it is"),
    "weakened_by": ("array of string", "what makes it less sure"),
    "evidence": ("array of string", "what shows it, the worst first"),
    "connections": ("array of integer", "numbers of the connections, the worst first"),
    "rpcs": ("array of integer", "numbers of some of the RPCs"),
    "frames": ("array of integer", "some of the frames"),
}

TYPES: dict[str, RecordType] = {
    "statement": RecordType("One thing that is wrong.", "`diagnose`", {**STATEMENT, **common("file")}),
    "detector": RecordType(
        "What `diagnose` looks for.",
        "`rules`",
        {
            **ABOUT,
            "looks_at": ("string", "what it reads"),
            **objects(
                "thresholds",
                "map of object",
                "its thresholds, by name",
                {
                    "value": ("number", "the threshold"),
                    "meaning": ("string", "what the threshold limits, with its unit"),
                },
            ),
        },
    ),
}


def statement_record(statement: Statement) -> Record:
    return record("statement", **statement_fields(statement))


def statement_fields(statement: Statement) -> Record:
    """What a record of a statement has, without the schema."""
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


def detector_record(detector: Detector) -> Record:
    return record(
        "detector",
        kind=detector.kind,
        severity=detector.severity.value,
        title=detector.title,
        explanation=detector.explanation,
        next_steps=list(detector.next_steps),
        looks_at=detector.looks_at,
        thresholds={name: threshold._asdict() for name, threshold in detector.thresholds.items()},
    )


def statements(statements: Iterable[Statement]) -> list[Record]:
    """All of a diagnosis."""
    return [statement_fields(statement) for statement in statements]
