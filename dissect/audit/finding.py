"""Finding: one rule's verdict about one thing that happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..transport.connection import Connection
    from .rule import Rule

PASS, VIOLATION, UNDECIDABLE = "pass", "violation", "undecidable"
NOT_APPLICABLE = "not applicable"
"""No opportunity: a rule that met nothing to judge."""


class Judgement(NamedTuple):
    """What a rule says of one noun."""

    verdict: str
    observed: str = ""
    """In words and values."""
    required: str = ""
    reason: str = ""
    """Why it is undecidable."""
    frames: tuple[int, ...] = ()
    """Instead of the noun's own frames, where others show it better."""
    by: str = ""
    """'requester' or 'responder': who it was, where the rule judges both."""
    note: bool = False
    """Worth telling, but nobody is blamed: the severity is 'note' whatever the level."""


KEPT = Judgement(PASS)


def violation(observed: str, required: str, *frames: int, by: str = "", note: bool = False) -> Judgement:
    return Judgement(VIOLATION, observed, required, frames=frames, by=by, note=note)


def undecidable(reason: str) -> Judgement:
    return Judgement(UNDECIDABLE, reason=reason)


@dataclass(frozen=True, slots=True)
class Finding:
    """A judgement with its place: who, where, when."""

    rule: Rule
    verdict: str
    connection: Connection
    endpoint: int
    """0 the active side, 1 the passive one."""
    role: str
    """What that endpoint was in this matter: 'requester', 'responder' or 'either'."""
    frames: tuple[int, ...]
    time: int
    """Nanoseconds; 0 where no packet carried it."""
    rpc: int | None
    """Number of the Rpc."""
    xid: int | None
    observed: str
    required: str
    reason: str
    severity: str
    """'error' (MUST), 'warning' (SHOULD), 'notice' (stated behaviour) or 'note'."""
