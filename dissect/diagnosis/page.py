"""The page of a detector, and the page of all: one source for ``explain`` and for the documentation."""

from __future__ import annotations

from collections.abc import Iterable

from .detector import Detector

_HEAD = """# What a diagnosis looks for

`rdmascope diagnose FILE` asks each of these detectors, and `rdmascope report` those that need neither the audit nor the
contents of messages. A detector speaks only where its thresholds are met: of a healthy capture nothing is said.
This page is written from the detectors' own data by `python tests/dissect/diagnosis/test_page.py`.

A *problem* delays or fails RPCs, a *warning* may do so or wastes work, a *note* says what weakens the other statements.
They are sorted by the time that RPCs waited for them, weighed by how sure they are, and among equals in this order;
notes come last.
"""


def detector_lines(one: Detector) -> list[tuple[str, str]]:
    """What there is to know of a detector, as (name, text), in the order of a page."""
    found = [("Severity", one.severity.value), ("Looks at", one.looks_at), ("Means", one.explanation)]
    if one.thresholds:
        limits = "; ".join(f"{threshold.meaning}: {threshold.value:g}" for threshold in one.thresholds.values())
        found.append(("Speaks from", limits))
    found.append(("Look at next", "; ".join(one.next_steps)))
    return found


def markdown(detectors: Iterable[Detector]) -> str:
    """``docs/diagnosis.md``."""
    detectors = list(detectors)
    parts = [_HEAD, "\n| detector | severity | speaks when |\n| --- | --- | --- |\n"]
    parts += [f"| [{one.kind}](#{one.kind}) | {one.severity.value} | {_escape(one.title)} |\n" for one in detectors]
    for one in detectors:
        parts.append(f"\n## {one.kind}\n\n{_escape(one.title)}.\n\n")
        parts += [f"- **{name}**: {_escape(text)}\n" for name, text in detector_lines(one)]
    return "".join(parts)


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
