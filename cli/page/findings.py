"""What is wrong: statements of the diagnosis and findings of the audit, each with its explanation."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rdmascope.dissect.audit.finding import Finding
from rdmascope.dissect.audit.page import facts
from rdmascope.dissect.audit.result import Result, who
from rdmascope.dissect.audit.rule import Rule
from rdmascope.dissect.diagnosis.detectors.conformance import TOLERATED
from rdmascope.dissect.diagnosis.diagnose import Diagnosis
from rdmascope.dissect.diagnosis.statement import Statement
from rdmascope.dissect.transport.connection import ENDS
from rdmascope.dissect.units import count, moment, percent, plural

from ..views.diagnosis import CERTAIN, NOTHING, shared_words
from .markup import details, listed, shortened, tag, text

MAX_RULES = 40
MAX_ENDS = 8
"""Of one rule."""
NOTE = 3
"""The ``worst`` of a tally with nothing worse than a note."""
LEVELS = {"MUST": "problem", "SHOULD": "warning", "STATED": "note"}


def diagnosis_html(diagnosis: Diagnosis, shown: Collection[int]) -> str:
    """``shown``: numbers of the RPCs that the page has in full."""
    if not diagnosis.statements:
        return tag("p", text(NOTHING[0].upper() + NOTHING[1:] + "."), class_="healthy")
    return tag("ol", *(tag("li", _statement(one, shown)) for one in diagnosis.statements), class_="statements")


def _statement(one: Statement, shown: Collection[int]) -> str:
    cause = one.cause
    words = shared_words(one)
    shared = f" ({words})" if words else ""
    lines = [text(shortened(line)) for line in cause.evidence]
    if cause.since is not None:
        lines.append(text(f"since {moment(cause.since)}"))
    if cause.rpcs:
        lines.append(f"{'RPC' if len(cause.rpcs) == 1 else 'RPCs'} {_numbers(cause.rpcs, shown)}")
    if cause.frames:
        lines.append(text(f"{'frame' if len(cause.frames) == 1 else 'frames'} {', '.join(map(str, cause.frames))}"))
    if cause.confidence < CERTAIN:
        lines.append(text(f"confidence {percent(cause.confidence)}"))
    lines += [text(f"weakened: {why}") for why in cause.weakened_by]
    explained = details(
        "What it means, and what to look at next",
        tag("p", text(one.explanation)),
        listed(text(step) for step in one.next_steps),
    )
    return "".join(
        (
            tag(
                "h3", tag("span", text(one.severity.value), class_=f"badge {one.severity.value}"), " ", text(one.title)
            ),
            tag("p", text(shortened(cause.text) + shared), class_="cause"),
            listed(lines, class_="evidence"),
            explained,
        )
    )


def _numbers(numbers: Iterable[int], shown: Collection[int]) -> str:
    return ", ".join(tag("a", str(one), href=f"#rpc-{one}") if one in shown else str(one) for one in numbers)


def audit_html(result: Result | None, shown: Collection[int]) -> str:
    """The rules that were broken, the worst first; None: not judged."""
    if result is None:
        return tag(
            "p",
            "Not judged here: ",
            tag("code", "rdmascope audit FILE"),
            " checks both ends against the specifications.",
        )
    if not result.connections:
        return tag("p", "There is no RPC-over-RDMA connection to judge.")
    broken = [
        (min(tally.worst for _, tally in found if tally.violated), rule)
        for rule, found in result.by_rule.items()
        if any(tally.violated for _, tally in found)
    ]
    judged = sum(tally.opportunities for tally in result.auditor.tallies.values())
    head = f"{count(judged)} checks by {plural(len(result.auditor.rules), 'rule')}: "
    if not broken:
        return tag("p", text(head + "no violation."), class_="healthy")
    head += f"{plural(result.violations, 'violation')}, {plural(result.notes, 'note')}."
    ranked = sorted(broken, key=lambda one: (one[0], -_count(result, one[1]), one[1]))
    parts = [tag("li", _rule(result, result.auditor.rules[rule], worst, shown)) for worst, rule in ranked[:MAX_RULES]]
    rest = len(ranked) - len(parts)
    more = tag("p", text(f"And {plural(rest, 'rule')} more: rdmascope audit FILE has all.")) if rest else ""
    return tag("p", text(head)) + tag("ol", *parts, class_="statements") + more


def _count(result: Result, rule: str) -> int:
    return sum(tally.violated for _, tally in result.by_rule[rule])


def _rule(result: Result, rule: Rule, worst: int, shown: Collection[int]) -> str:
    level = rule.level.value
    badge = ("note", "note") if worst == NOTE or rule.id in TOLERATED else (level, LEVELS.get(level, "note"))
    ends = [(place, tally) for place, tally in result.by_rule[rule.id] if tally.violated]
    lines = []
    for place, tally in ends[:MAX_ENDS]:
        number = f"{count(tally.violated)} of {count(tally.opportunities)}"
        connection = result.auditor.connections.get(place.connection)
        where = f"{ENDS[place.endpoint]}s of earlier connections"
        if connection is not None:
            where = f"{who(connection, place.endpoint)}, connection {place.connection}"
        lines.append(text(f"{where}: {number}") + listed(_finding(one, shown) for one in tally.examples[:2]))
    if len(ends) > MAX_ENDS:
        lines.append(text(f"{plural(len(ends) - MAX_ENDS, 'end')} more"))
    explained = details(
        "What the rule says",
        tag("dl", *(tag("dt", text(name)) + tag("dd", text(words)) for name, words in facts(rule))),
    )
    return "".join(
        (
            tag("h3", tag("span", text(badge[0]), class_=f"badge {badge[1]}"), " ", text(rule.title)),
            tag(
                "p",
                tag("code", text(rule.id)),
                text(f" ({rule.cited}), {plural(_count(result, rule.id), 'time')}"),
                class_="cause",
            ),
            listed(lines, class_="evidence"),
            explained,
        )
    )


def _finding(one: Finding, shown: Collection[int]) -> str:
    frames = ", ".join(map(str, one.frames))
    place = text(f"frame {frames}" if len(one.frames) == 1 else f"frames {frames}" if frames else "no frame")
    if one.rpc is not None:
        place += f", RPC {_numbers([one.rpc], shown)}"
    return f"{place}: found {text(shortened(one.observed))}; required {text(shortened(one.required))}"
