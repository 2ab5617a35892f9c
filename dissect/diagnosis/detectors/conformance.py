"""Protocol violations that the audit found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ...rpcrdma.conversation import ENDS
from ...units import plural
from ..facts import Cause, Facts, Limits, Severity, detector

if TYPE_CHECKING:
    from ...audit.auditor import RuleTally

TOLERATED = {
    "PD-INVALIDATE-AGREED": "Linux servers invalidate remotely as soon as the client allows it, and no client minds",
}
"""Rules that common implementations break in daily traffic without harm, and why."""

LEVELS = ("MUST", "SHOULD")


@detector(
    "specification-violated",
    "Protocol violation",
    Severity.WARNING,
    "audit findings of levels MUST and SHOULD",
    {"least_violations": (1, "violations of one rule")},
    (
        "rdmascope rules RULE: what the rule requires, and why",
        "rdmascope audit FILE --rule RULE: each violation with its frame",
        "the maintainers of the implementation at that end",
    ),
    needs="audit",
)
def specification_violated(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """One end did what the RPC-over-RDMA specifications forbid. The other end may answer with an error, close the
    connection or return wrong data; or it may tolerate the violation until its next update. A MUST is a problem, a
    SHOULD a warning. Only the audit reports PD-INVALIDATE-AGREED: Linux servers invalidate remotely as soon as the
    client allows it, and no client minds.
    """
    assert facts.auditor is not None
    from ...audit.auditor import who  # Reports are made without an audit, and need not load one.

    broken: dict[tuple[str, str], list[tuple[int, RuleTally]]] = defaultdict(list)
    for judged, tally in sorted(facts.auditor.tallies.items()):
        if tally.violated > tally.notes and judged.rule not in TOLERATED:
            connection = facts.auditor.connections.get(judged.connection)
            end = who(connection, judged.endpoint) if connection is not None else ENDS[judged.endpoint]
            broken[judged.rule, end].append((judged.connection, tally))
    said: dict[tuple[object, ...], Cause] = {}
    """By who broke it and where: one mistake may break several rules."""
    for (name, end), places in broken.items():
        rule = facts.auditor.rules[name]
        total = sum(tally.violated - tally.notes for _, tally in places)
        if total < max(1, limits["least_violations"]) or rule.level.value not in LEVELS:
            continue
        examples = [example for _, tally in places for example in tally.examples][:3]
        numbers = tuple(number for number, _ in places if number in facts.auditor.connections)
        on = f" on {plural(len(numbers), 'connection')}" if len(numbers) > 1 else ""
        frames = tuple(dict.fromkeys(frame for example in examples for frame in example.frames))[:5]
        severity = Severity.PROBLEM if rule.level.value == "MUST" else Severity.WARNING
        where = end, total, numbers, frames or name
        if other := said.get(where):
            evidence = (*other.evidence, f"the same violates {name} ({rule.level}): {rule.title}")
            both = {severity, other.severity}
            said[where] = replace(
                other, evidence=evidence, severity=next(severity for severity in Severity if severity in both)
            )
            continue
        said[where] = Cause(
            f"violation by the {end}: {name} ({rule.level}), {plural(total, 'time')}{on}: {rule.title}",
            total,
            None,
            "",
            min((example.time for example in examples if example.time), default=None),
            tuple(f"found {example.observed}; required {example.required}" for example in examples[:2]),
            numbers,
            tuple(dict.fromkeys(example.rpc for example in examples if example.rpc is not None)),
            frames,
            severity=severity,
        )
    yield from said.values()
