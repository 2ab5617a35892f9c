"""Statement: one thing that is wrong with what a capture shows, with its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


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
