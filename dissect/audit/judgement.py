"""Judgement: what a rule says of one noun."""

from __future__ import annotations

from typing import NamedTuple

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
    """'requester' or 'responder': the end that is meant, where the rule judges both."""
    note: bool = False
    """Worth reporting, but no fault: the severity is 'note' whatever the level."""
    stated: bool = False
    """Of a MUST rule a part that the document states without a requirement word: the severity is 'notice'."""


PASSED = Judgement(PASS)


def violation(
    observed: str, required: str, *frames: int, by: str = "", note: bool = False, stated: bool = False
) -> Judgement:
    return Judgement(VIOLATION, observed, required, frames=frames, by=by, note=note, stated=stated)


def undecidable(reason: str) -> Judgement:
    return Judgement(UNDECIDABLE, reason=reason)
