"""The verdicts of an audit as JSON: many ends have the same of many rules, and only their names differ."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..audit.auditor import RuleTally, TallyKey
from ..audit.result import Result, side
from ..audit.rule import Rule
from .schema import Record, record

_NOTHING = RuleTally()


def verdict_fields(rule: Rule, tally: RuleTally, unjudged: bool) -> Record:
    """What a tally says.  ``unjudged``: of a rule that cannot be judged, say so."""
    return {
        "verdict": "not judged" if unjudged and rule.unjudgeable else tally.verdict,
        "passed": tally.passed,
        "violated": tally.violated,
        "notes": tally.notes,
        "findings": len(tally.examples),
        "undecidable": tally.undecidable,
        "reasons": dict(tally.reasons),
    }


def verdict_records(result: Result) -> Iterator[Record]:
    """Every rule at every end."""
    for row in result.rows():
        yield record(
            "verdict",
            **_rule_fields(row.rule),
            connection=row.connection.number,
            endpoint=side(row.endpoint),
            address=str(row.connection.endpoints[row.endpoint]),
            **verdict_fields(row.rule, row.tally, True),
        )


def verdict_lines(result: Result, **more: str) -> Iterator[str]:
    """The same as JSON objects, with ``more`` fields behind."""
    rules = [*result.auditor.rules.values()]
    heads = [_inside(record("verdict", **_rule_fields(rule))) for rule in rules]
    tallies = result.auditor.tallies
    tails: dict[tuple[int, ...], str] = {}
    """By rule and counts, of tallies without reasons."""
    for connection in result.connections:
        for endpoint in (0, 1):
            address = str(connection.endpoints[endpoint])
            middle = _inside({"connection": connection.number, "endpoint": side(endpoint), "address": address})
            for at, (rule, head) in enumerate(zip(rules, heads, strict=True)):
                tally = tallies.get(TallyKey(rule.id, connection.number, endpoint), _NOTHING)
                key = at, tally.passed, tally.violated, tally.notes, tally.undecidable, len(tally.examples)
                tail = None if tally.reasons else tails.get(key)
                if tail is None:
                    tail = _inside({**verdict_fields(rule, tally, True), **more})
                    if not tally.reasons:
                        tails[key] = tail
                yield f"{{{head},{middle},{tail}}}"


def _rule_fields(rule: Rule) -> Record:
    return {"rule": rule.id, "level": rule.level.value}


def _inside(fields: Record) -> str:
    """The fields as JSON, without the brackets."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)[1:-1]
