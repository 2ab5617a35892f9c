"""What the audit found."""

from __future__ import annotations

from collections.abc import Iterator

from ...rpcrdma.conversation import ENDS
from ...units import plural
from ..detector import Limits, detector
from ..facts import Facts
from ..statement import Cause, Severity

TOLERATED = {
    "PD-INVALIDATE-AGREED": "Linux servers invalidate remotely as soon as the client allows it, and no client minds",
}
"""Rules that daily traffic of common implementations breaks without harm, and why."""

LEVELS = ("MUST", "SHOULD")


@detector(
    "specification-violated",
    "An end breaks the specification",
    Severity.WARNING,
    "the audit's findings of levels MUST and SHOULD",
    {"least_violations": (1, "violations of one rule")},
    (
        "rdmascope explain RULE: what the rule requires, and why",
        "rdmascope audit FILE --rule RULE: each violation with its frame",
        "the maintainers of the end that is named",
    ),
    needs="audit",
)
def specification_violated(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """An end did what RPC-over-RDMA's documents forbid. The other end may answer with an error, close the connection,
    or return wrong data; or it may tolerate it, until an update. What common implementations break in daily traffic
    without harm (PD-INVALIDATE-AGREED) is left to the audit itself.
    """
    assert facts.auditor is not None
    from ...audit.result import who  # Reports are made without an audit, and need not load one.

    for place, tally in facts.auditor.tallies.items():
        rule = facts.auditor.rules[place.rule]
        if tally.violated - tally.notes < max(1, limits["least_violations"]) or place.rule in TOLERATED:
            continue
        if rule.level.value not in LEVELS:
            continue
        connection = facts.auditor.connections.get(place.connection)
        end = who(connection, place.endpoint) if connection is not None else ENDS[place.endpoint]
        examples = tally.examples[:3]
        yield Cause(
            f"{rule.level} {rule.id}: {end} broke it {plural(tally.violated - tally.notes, 'time')}: {rule.title}",
            tally.violated - tally.notes,
            None,
            "",
            min((one.time for one in examples if one.time), default=None),
            tuple(f"found {one.observed}; required {one.required}" for one in examples[:2]),
            (place.connection,) if connection is not None else (),
            tuple(dict.fromkeys(one.rpc for one in examples if one.rpc is not None)),
            tuple(dict.fromkeys(frame for one in examples for frame in one.frames))[:5],
            severity=Severity.PROBLEM if rule.level.value == "MUST" else Severity.WARNING,
        )
