"""Diagnosis and audit: each statement in full, or in a line; a table for each connection, and the findings, worst
first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from rdmascope.dissect.audit.auditor import EARLIER, Result, who
from rdmascope.dissect.audit.rule import NOT_APPLICABLE, PASS, UNDECIDABLE, VIOLATION, Finding, Rule, Waiver, facts
from rdmascope.dissect.diagnosis.facts import SEVERITIES, Detector, Diagnosis, Severity, Statement, detector_lines
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.transport.connection import ENDS
from rdmascope.dissect.units import duration, moment, percent, plural

from .tables import Cell, Grid, counted as cell_count, facts as named_values, flagged, heading, indented, more

STYLES = {Severity.PROBLEM: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
CERTAIN = 0.9
"""A confidence from which on nothing is said about it."""
NOTHING, NONE_JUDGED = "nothing wrong was found", "no RDMA connection to judge"


def diagnosis_view(path: str, diagnosis: Diagnosis, explain: bool = False) -> RenderableType:
    """All of a diagnosis; ``explain``: with what each statement means, and what to look at next."""
    headline = headline_view(diagnosis)
    parts: list[RenderableType] = [] if headline is None else [headline]
    parts.append(Text(f"{path}: {counted(diagnosis)}", "bold"))
    parts += note_lines(diagnosis)
    said = {note.cause.text: note.title for note in _notes(diagnosis)}
    for statement in diagnosis.statements:
        parts += [Text(), statement_view(statement, explain, said)]
    if diagnosis.not_looked_at:
        parts += [Text(), Text(f"not checked, contents missing: {', '.join(diagnosis.not_looked_at)}", "dim")]
    if diagnosis.statements and not explain:
        parts += [Text(), Text("--explain: what each means, and what to look at next", "dim")]
    return Group(*parts)


def headline_view(diagnosis: Diagnosis) -> Text | None:
    """The host that stopped responding, or the call that hangs, if any: all else can wait."""
    texts = [statement.cause.headline for statement in diagnosis.statements if statement.cause.headline]
    return Text(texts[0], STYLES[Severity.PROBLEM]) if texts else None


def note_lines(diagnosis: Diagnosis) -> list[Text]:
    """What the capture lacks: it comes before what is judged by it."""
    return [Text(_sentence(note), "red") for note in _notes(diagnosis)]


def _notes(diagnosis: Diagnosis) -> list[Statement]:
    return [statement for statement in diagnosis.statements if statement.severity is Severity.NOTE]


def counted(diagnosis: Diagnosis) -> str:
    """'2 problems, 1 warning'."""
    counts = Counter(statement.severity for statement in diagnosis.statements)
    said = ", ".join(plural(counts[severity], severity.value) for severity in SEVERITIES if counts[severity])
    return said or _nothing(diagnosis)


def _nothing(diagnosis: Diagnosis) -> str:
    lacking = " in what was captured" if _notes(diagnosis) else ""
    return NOTHING + lacking if diagnosis.connections else NONE_JUDGED


def summary_view(diagnosis: Diagnosis, lines: int, width: int) -> RenderableType:
    """The worst of it, a line each where they fit, without notes."""
    statements = [statement for statement in diagnosis.statements if statement.severity is not Severity.NOTE]
    parts: list[RenderableType] = [_line(statement, width) for statement in statements[:lines]]
    if len(statements) > lines:
        parts.append(Text(f"  and {len(statements) - lines} more", "dim"))
    return Group(*parts) if parts else indented(Text(_nothing(diagnosis)))


def _line(statement: Statement, width: int) -> RenderableType:
    text = Text.assemble((f"{statement.severity.value:<8}", STYLES[statement.severity]), f"{statement.cause.text}")
    shared = f" ({shared_words(statement)})" if shared_words(statement) else ""
    if len(text) + len(shared) <= width - 2:
        text.append(shared, "dim")
    return indented(text)


def shared_words(statement: Statement) -> str:
    cause = statement.cause
    if not cause.share or not cause.share_of or percent(cause.share) in cause.text:
        return ""
    part = f"{percent(cause.share)} of {cause.share_of}"
    if cause.lost is None or duration(cause.lost) in cause.text:
        return part
    return f"{duration(cause.lost)} of waiting, {part}" if "waited" in part else f"{part}; {duration(cause.lost)} lost"


def _sentence(statement: Statement) -> str:
    shared = shared_words(statement)
    return statement.cause.text + (f" ({shared})" if shared else "")


def statement_view(statement: Statement, explain: bool, said: Mapping[str, str] = {}) -> RenderableType:
    """One of them in full; ``said``: texts of notes that stand above it, and their titles."""
    cause = statement.cause
    lines = [*cause.evidence]
    if cause.since is not None:
        lines.append(f"since {moment(cause.since)}")
    if where := _numbers("RPC", cause.rpcs) + _numbers("frame", cause.frames):
        lines.append("; ".join(where))
    sure = f"confidence {percent(cause.confidence)}" if cause.confidence < CERTAIN else ""
    if cause.weakened_by:
        sure += (": " if sure else "weakened: ") + "; ".join(said.get(words, words) for words in cause.weakened_by)
    if sure:
        lines.append(sure)
    head = Text.assemble(
        (f"{statement.rank} {statement.severity.value}  ", STYLES[statement.severity]), (statement.title, "bold")
    )
    head.append(f"  [{statement.kind}]", "dim")
    text = [] if cause.text in said else [_indented(_sentence(statement))]
    parts: list[RenderableType] = [head, *text, *(_indented(line, "dim") for line in lines)]
    if explain:
        parts += [Text(), _indented(statement.explanation), Text(), _indented("Look at:")]
        parts += [indented(Text(f"- {step}"), 4) for step in statement.next_steps]
    return Group(*parts)


def _indented(text: str, style: str = "") -> RenderableType:
    return indented(Text(text, style))


def _numbers(noun: str, numbers: tuple[int, ...]) -> list[str]:
    if not numbers:
        return []
    return [f"{noun}{'' if len(numbers) == 1 else 's'} {', '.join(f'{number}' for number in numbers)}"]


def detectors_view(detectors: Sequence[Detector]) -> RenderableType:
    """The list of detectors."""
    rows: list[list[Cell]] = [[Text(detector.kind, "bold"), detector.title] for detector in detectors]
    return Group(Text(), Grid(["detector", "what it finds"], [], rows, flexible=1, gap=2, indent=0))


def detector_view(detector: Detector) -> RenderableType:
    """The page of a detector."""
    title = Text.assemble((detector.kind, "bold"), f"  {detector.title}")
    return Group(title, *(_indented(f"{name}: {text}") for name, text in detector_lines(detector)))


LEVEL_STYLES = {"MUST": "bold red", "SHOULD": "yellow", "STATED": "cyan"}
MAX_REASONS = 5
MAX_NAMED = 4
"""Rules that are named beside a reason."""
NOTE = 3
"""The ``worst`` of a tally with nothing worse than a note."""


def page(
    result: Result, width: int, waivers: Sequence[Waiver] = (), place: Callable[..., str] = lambda *frames: ""
) -> RenderableType:
    """All of one file.  ``place`` says which file frames are in, where there are several."""
    auditor = result.auditor
    broken = {rule for rule, tallies in result.by_rule.items() if any(tally.violated for _, tally in tallies)}
    parts: list[RenderableType] = [_headline(result, broken)]
    if not result.connections:
        return parts[0]
    parts += [Text(), heading("Endpoints", "number of rules, by outcome"), _endpoints(result, width)]
    if broken:
        parts += [Text(), heading("Findings", "worst first; rdmascope rules ID explains each rule")]
        ranked = sorted(
            broken,
            key=lambda id: (min(_worst(result, id)), -result.times(id), id),
        )
        for id in ranked:
            parts += [Text(), _group(result, auditor.rules[id], place)]
    if undecided := _undecided(result):
        parts += [Text(), heading("Cannot tell", "what the capture does not show"), undecided]
    if auditor.waived_count:
        reasons = sorted({f"{waiver.rule}: {waiver.reason}" for waiver in waivers})
        parts += [Text(), heading("Waived", plural(auditor.waived_count, "finding"))]
        parts += [indented(Text(reason)) for reason in reasons]
    return Group(*parts)


def _headline(result: Result, broken: set[str]) -> Text:
    if not result.connections:
        return Text(f"{result.file}: no RPC-over-RDMA connection to judge")
    text = Text(f"{result.file}: {plural(result.rpcs, 'RPC')} on {plural(len(result.connections), 'connection')}: ")
    faults = [id for id in broken if min(_worst(result, id)) < NOTE]
    notes = f"; {plural(result.notes, 'note')}" if result.notes else ""
    if not faults:
        return text.append("no violation", "green").append(notes)
    levels = Counter(result.auditor.rules[id].level.value for id in faults)
    named = ", ".join(f"{levels[level]} {level}" for level in LEVEL_STYLES if levels[level])
    counted = f"{plural(result.violations, 'violation')} of {plural(len(faults), 'rule')} ({named})"
    return text.append(counted, "red").append(notes)


def _endpoints(result: Result, width: int) -> RenderableType:
    rows: list[list[Cell]] = []
    for connection in result.connections:
        for endpoint in (0, 1):
            tallies = result.by_end.get((connection.number, endpoint), [])
            counts = Counter(PASS if tally.only_notes else tally.verdict for tally in tallies)
            counts[NOT_APPLICABLE] += len(result.auditor.rules) - len(tallies)
            opportunities = sum(tally.opportunities for tally in tallies)
            rows.append(
                [
                    "" if endpoint else str(connection.number),
                    who(connection, endpoint),
                    Text(cell_count(counts[PASS]), "green"),
                    flagged(counts[VIOLATION], "red"),
                    flagged(counts[UNDECIDABLE], "yellow"),
                    cell_count(counts[NOT_APPLICABLE]),
                    f"{opportunities:,}",
                ]
            )
    names = ["passed", "violated", "cannot tell", "not exercised", "checks"]
    return Grid(["#", "endpoint"], names, rows, flexible=1, gap=2)


def _worst(result: Result, id: str) -> list[int]:
    return [tally.worst for _, tally in result.by_rule[id] if tally.violated]


def _group(result: Result, rule: Rule, where: Callable[..., str]) -> RenderableType:
    """All findings of one rule."""
    level = rule.level.value
    only_notes = min(_worst(result, rule.id)) == NOTE
    parts: list[RenderableType] = [
        Text.assemble(
            ("  note" if only_notes else f"  {level}", "" if only_notes else LEVEL_STYLES[level]),
            "  ",
            (rule.id, "bold"),
            f"  {plural(result.times(rule.id), 'time')}",
        ),
        indented(Text(f"{rule.title} ({rule.cited})"), 4),
    ]
    for key, tally in result.by_rule[rule.id]:
        if not tally.violated:
            continue
        number = f"{tally.violated:,} of {tally.opportunities:,}"
        if key.connection == EARLIER:
            line = f"{ENDS[key.endpoint]}s of earlier connections: {number}"
        else:
            connection = result.auditor.connections[key.connection]
            line = f"{who(connection, key.endpoint)}, connection {key.connection}: {number}"
        parts.append(indented(Text(line), 4))
        for finding in tally.examples:
            parts.append(indented(finding_view(FindingCells.of(finding), where(*finding.frames)), 6))
        if tally.examples:
            parts += [indented(line, 4) for line in more(tally.violated - len(tally.examples))]
    return Group(*parts)


class FindingCells(NamedTuple):
    """What is shown of a finding, whether it is there as such or as a row of a table."""

    level: str
    note: bool
    rule: str
    frames: Sequence[int | str]
    rpc: int | None
    xid: int | None
    observed: str
    required: str

    @classmethod
    def of(cls, finding: Finding) -> FindingCells:
        level, note = finding.rule.level.value, finding.severity == "note"
        place = finding.frames, finding.rpc, finding.xid
        return cls(level, note, finding.rule.id, *place, finding.observed, finding.required)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> FindingCells:
        place = (row["frames"] or "").split(), row["rpc"], row["xid"]
        return cls(row["level"], row["severity"] == "note", row["rule"], *place, row["observed"], row["required"])

    @property
    def shown_level(self) -> tuple[str, str]:
        """What it is called, and its style."""
        return ("note", "") if self.note else (self.level, LEVEL_STYLES[self.level])


def finding_view(cells: FindingCells, there: str = "") -> RenderableType:
    """One finding below the name of its rule; ``there``: which files its frames are in, where there are several."""
    frames = ", ".join(map(str, cells.frames))
    place = f"frame {frames}" if len(cells.frames) == 1 else f"frames {frames}" if frames else "no frame"
    if there:
        place += f" ({there})"
    if cells.rpc is not None:
        place += f", RPC {cells.rpc}"
    if cells.xid is not None:
        place += f", XID 0x{cells.xid:08x}"
    return Group(Text(place), named_values([("found", cells.observed), ("required", cells.required)], "dim", gap=2))


def _undecided(result: Result) -> RenderableType | None:
    reasons: dict[str, tuple[int, set[str]]] = {}
    for key, tally in result.auditor.tallies.items():
        for reason, number in tally.reasons.items():
            count, rules = reasons.setdefault(reason, (0, set()))
            rules.add(key.rule)
            reasons[reason] = count + number, rules
    if not reasons:
        return None
    ranked = sorted(reasons.items(), key=lambda entry: (-entry[1][0], entry[0]))
    rows: list[list[Cell]] = [[reason, _named(rules), f"{count:,}"] for reason, (count, rules) in ranked[:MAX_REASONS]]
    if len(ranked) > MAX_REASONS:
        rest = ranked[MAX_REASONS:]
        rows.append([f"… and {plural(len(rest), 'reason')} more", "", f"{sum(count for _, (count, _) in rest):,}"])
    return Grid(["", "rules"], ["count"], rows, flexible=2, gap=2)


def _named(rules: set[str]) -> str:
    """'V1-CREDIT-ZERO, V1-XID-MATCH and 3 more'."""
    rest = f" and {len(rules) - MAX_NAMED} more" if len(rules) > MAX_NAMED else ""
    return ", ".join(sorted(rules)[:MAX_NAMED]) + rest


def rules_view(rules: Sequence[Rule]) -> RenderableType:
    """The list of rules."""
    rows: list[list[Cell]] = [
        [Text(rule.id, "bold"), Text(rule.level.value, LEVEL_STYLES[rule.level.value]), rule.role, rule.title]
        for rule in rules
    ]
    return Grid(["rule", "level", "judges", "requirement"], [], rows, flexible=3, gap=2, indent=0)


def rule_view(rule: Rule) -> RenderableType:
    """The page of one rule."""
    title = Text.assemble((rule.id, "bold"), f"  {rule.title}")
    return Group(title, Text(), named_values(facts(rule), "dim", gap=2))
