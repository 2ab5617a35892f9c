"""Findings, verdicts, and rules as records."""

from __future__ import annotations

from collections.abc import Iterator

from ..audit.auditor import EARLIER
from ..audit.finding import Finding
from ..audit.page import facts
from ..audit.result import Result, side
from ..audit.rule import Rule
from .schema import Record, record
from .verdict_lines import verdict_fields, verdict_records


def audit_records(result: Result) -> Iterator[Record]:
    """All findings, all verdicts, and the sum of them."""
    yield from finding_records(result)
    yield from verdict_records(result)
    yield from sum_records(result)


def finding_records(result: Result) -> Iterator[Record]:
    """The findings that were kept, each with how many there were of its rule at its end."""
    for finding in result.auditor.findings:
        tally = result.auditor.tally(finding.rule.id, finding.connection.number, finding.endpoint)
        yield {**finding_record(finding), "violated": tally.violated}


def sum_records(result: Result) -> Iterator[Record]:
    """The verdicts of evicted connections, and the sum of all."""
    for place, tally in result.auditor.tallies.items():
        if place.connection == EARLIER:
            yield record(
                "verdict",
                rule=place.rule,
                level=result.auditor.rules[place.rule].level.value,
                connection=None,
                endpoint=side(place.endpoint),
                address=None,
                **verdict_fields(result.auditor.rules[place.rule], tally, False),
            )
    yield record(
        "audit",
        rpcs=result.rpcs,
        connections=len(result.connections),
        rules=len(result.auditor.rules),
        violations=result.violations,
        notes=result.notes,
        waived=result.auditor.waived_count,
    )


def finding_record(finding: Finding) -> Record:
    rule = finding.rule
    return record(
        "finding",
        rule=rule.id,
        title=rule.title,
        level=rule.level.value,
        severity=finding.severity,
        document=rule.document,
        section=rule.section,
        final=rule.final,
        verdict=finding.verdict,
        connection=finding.connection.number,
        endpoint=side(finding.endpoint),
        address=str(finding.connection.endpoints[finding.endpoint]),
        role=finding.role,
        frames=list(finding.frames),
        time_ns=finding.time or None,
        rpc=finding.rpc,
        xid=finding.xid,
        observed=finding.observed,
        required=finding.required,
    )


def rule_record(rule: Rule) -> Record:
    """A rule and its page."""
    return record(
        "rule",
        id=rule.id,
        title=rule.title,
        level=rule.level.value,
        role=rule.role,
        document=rule.document,
        section=rule.section,
        final=rule.final,
        not_judged=rule.unjudgeable or None,
        **{name.lower(): text for name, text in facts(rule) if name in ("What", "Why", "Right", "Wrong")},
    )
