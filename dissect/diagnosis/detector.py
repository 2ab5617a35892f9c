"""Detector: one small function over the facts of a capture, and all that there is to say about what it finds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ..plugged import escaped, guarded, import_all
from .facts import Facts


class Severity(StrEnum):
    """How much a statement matters; the strongest first."""

    PROBLEM = "problem"
    """It delays or fails RPCs."""
    WARNING = "warning"
    """It may do so, or wastes work."""
    NOTE = "note"
    """It weakens what else is said, and does no harm by itself."""


SEVERITIES = tuple(Severity)


@dataclass(frozen=True, slots=True)
class Cause:
    """What one detector found: a statement before it has a rank."""

    text: str
    """What is wrong, in one sentence without a full stop."""
    count: int
    """How often; of what, the text says."""
    share: float | None = None
    """0 to 1: what part it is of ``share_of``; None where there is no such number, or ``lost`` makes it."""
    share_of: str = ""
    """'the time that all RPCs waited', 'all RPCs', …"""
    since: int | None = None
    """Nanoseconds since the epoch: when it began; None where that is not known."""
    evidence: tuple[str, ...] = ()
    """What shows it, a line each; the worst first."""
    connections: tuple[int, ...] = ()
    """Numbers of the connections, the worst first."""
    rpcs: tuple[int, ...] = ()
    """Numbers of some of the RPCs, the worst first."""
    frames: tuple[int, ...] = ()
    """Some of the frames."""
    confidence: float = 1.0
    """0 to 1."""
    weakened_by: tuple[str, ...] = ()
    """What makes it less sure, a sentence each."""
    severity: Severity | None = None
    """Where it is another than the detector's."""
    lost: int | None = None
    """Nanoseconds that RPCs, or those who make them, waited for it; None where that is not known."""
    headline: str = ""
    """What comes before all else that is said of a capture."""
    harmless: bool = False
    """A note that weakens no other statement."""
    procedures: tuple[str, ...] = ()
    """What it is about, where that is not connections: 'NFSv3 READ', …"""


class Statement(NamedTuple):
    """A cause, ranked, with what its detector has to say about all of its kind."""

    kind: str
    """The detector: 'packets-lost'."""
    severity: Severity
    rank: int
    """1-based: the first matters most."""
    cause: Cause
    title: str
    explanation: str
    """What it means and why, in plain words."""
    next_steps: tuple[str, ...]
    """What to look at next, a command or a place each."""


class Threshold(NamedTuple):
    """A number that decides whether a detector speaks."""

    value: float
    meaning: str
    """What is compared with it, with its unit."""


Limits = Mapping[str, float]
"""The thresholds by name."""

Detect = Callable[[Facts, Limits], Iterable[Cause]]


class Detector(NamedTuple):
    """``detect`` gives causes where something is wrong, and none on a healthy capture."""

    kind: str
    title: str
    severity: Severity
    looks_at: str
    """What it reads: statistics, transport health, …"""
    thresholds: Mapping[str, Threshold]
    next_steps: tuple[str, ...]
    needs: str
    """'' or what has to be gathered for it beside the RPCs: 'files', 'audit', 'sessions'."""
    uses: str
    """The same of what makes it surer, where it is there."""
    detect: Detect
    leads: bool = False
    """What it says comes before all else: it explains the rest."""
    follows_from: tuple[str, ...] = ()
    """Kinds whose statements have its own as evidence where they are about the same procedures, or connections."""

    @property
    def limits(self) -> Limits:
        return {name: threshold.value for name, threshold in self.thresholds.items()}

    @property
    def explanation(self) -> str:
        """The docstring, one line of text."""
        return " ".join((inspect.getdoc(self.detect) or "").split())


_DETECTORS: dict[str, Detector] = {}


def detector(
    kind: str,
    title: str,
    severity: Severity,
    looks_at: str,
    thresholds: Mapping[str, tuple[float, str]],
    next_steps: Iterable[str],
    *,
    needs: str = "",
    uses: str = "",
    leads: bool = False,
    follows_from: Iterable[str] = (),
) -> Callable[[Detect], Detect]:
    """Register the function below."""

    def register(detect: Detect) -> Detect:
        if kind in _DETECTORS and inspect.unwrap(_DETECTORS[kind].detect).__code__ != detect.__code__:
            raise ValueError(f"there is a detector {kind} already")
        data = {name: Threshold(*one) for name, one in thresholds.items()}
        _DETECTORS[kind] = Detector(
            kind,
            title,
            severity,
            looks_at,
            data,
            tuple(next_steps),
            needs,
            uses,
            guarded(detect, ()),
            leads,
            tuple(follows_from),
        )
        return detect

    return register


def all_detectors() -> dict[str, Detector]:
    """Every detector of the package by kind, in the order of kinds."""
    import_all(__name__.rpartition(".")[0] + ".detectors")
    return dict(sorted(_DETECTORS.items()))


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
    """The whole of ``docs/diagnosis.md``."""
    detectors = list(detectors)
    parts = [_HEAD, "\n| detector | severity | speaks when |\n| --- | --- | --- |\n"]
    parts += [f"| [{one.kind}](#{one.kind}) | {one.severity.value} | {escaped(one.title)} |\n" for one in detectors]
    for one in detectors:
        parts.append(f"\n## {one.kind}\n\n{escaped(one.title)}.\n\n")
        parts += [f"- **{name}**: {escaped(text)}\n" for name, text in detector_lines(one)]
    return "".join(parts)
