"""What is wrong, the worst first: each statement in full, or in a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from rdmascope.dissect.diagnosis.detector import SEVERITIES, Detector, Severity, Statement, detector_lines
from rdmascope.dissect.diagnosis.diagnose import Diagnosis
from rdmascope.dissect.units import duration, moment, percent, plural

from .tables import Cell, Grid, indented

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
    said = {
        statement.cause.text: statement.title
        for statement in diagnosis.statements
        if statement.severity is Severity.NOTE
    }
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
    return [
        Text(_sentence(statement), "red") for statement in diagnosis.statements if statement.severity is Severity.NOTE
    ]


def counted(diagnosis: Diagnosis) -> str:
    """'2 problems, 1 warning'."""
    counts = Counter(statement.severity for statement in diagnosis.statements)
    said = ", ".join(plural(counts[one], one.value) for one in SEVERITIES if counts[one])
    return said or _nothing(diagnosis)


def _nothing(diagnosis: Diagnosis) -> str:
    return NOTHING if diagnosis.connections else NONE_JUDGED


def summary_view(diagnosis: Diagnosis, lines: int, width: int) -> RenderableType:
    """The worst of it, a line each where they fit, without notes."""
    found = [statement for statement in diagnosis.statements if statement.severity is not Severity.NOTE]
    parts: list[RenderableType] = [_line(one, width) for one in found[:lines]]
    if len(found) > lines:
        parts.append(Text(f"  and {len(found) - lines} more", "dim"))
    return Group(*parts) if parts else indented(Text(_nothing(diagnosis)))


def _line(one: Statement, width: int) -> RenderableType:
    text = Text.assemble((f"{one.severity.value:<8}", STYLES[one.severity]), f"{one.cause.text}")
    shared = f" ({shared_words(one)})" if shared_words(one) else ""
    if len(text) + len(shared) <= width - 2:
        text.append(shared, "dim")
    return indented(text)


def shared_words(one: Statement) -> str:
    cause = one.cause
    if not cause.share or not cause.share_of or percent(cause.share) in cause.text:
        return ""
    part = f"{percent(cause.share)} of {cause.share_of}"
    if cause.lost is None or duration(cause.lost) in cause.text:
        return part
    return f"{duration(cause.lost)} of waiting, {part}" if "waited" in part else f"{part}; {duration(cause.lost)} lost"


def _sentence(one: Statement) -> str:
    shared = shared_words(one)
    return one.cause.text + (f" ({shared})" if shared else "")


def statement_view(one: Statement, explain: bool, said: Mapping[str, str] = {}) -> RenderableType:
    """One of them in full; ``said``: texts of notes that stand above it, and their titles."""
    cause = one.cause
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
    head = Text.assemble((f"{one.rank} {one.severity.value}  ", STYLES[one.severity]), (one.title, "bold"))
    head.append(f"  [{one.kind}]", "dim")
    text = [] if cause.text in said else [_indented(_sentence(one))]
    parts: list[RenderableType] = [head, *text, *(_indented(line, "dim") for line in lines)]
    if explain:
        parts += [Text(), _indented(one.explanation), Text(), _indented("Look at:")]
        parts += [indented(Text(f"- {step}"), 4) for step in one.next_steps]
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


def detector_view(one: Detector) -> RenderableType:
    """The page of a detector."""
    parts: list[RenderableType] = [Text.assemble((one.kind, "bold"), f"  {one.title}")]
    for name, text in detector_lines(one):
        parts.append(_indented(f"{name}: {text}"))
    return Group(*parts)
