"""The second opinion as records."""

from __future__ import annotations

from dataclasses import asdict

from ..verify.second_opinion import Comparison, Difference
from .schema import Record, record


def difference_record(difference: Difference) -> Record:
    return record(
        "difference",
        what=difference.what.replace(" ", "_"),
        frame=difference.frame,
        field=difference.field,
        rdmascope=None if difference.ours is None else list(difference.ours),
        wireshark=None if difference.theirs is None else list(difference.theirs),
        right=difference.right.lower(),
        explained=difference.explained,
        reason=difference.reason or None,
        reference=difference.reference or None,
    )


def verification_record(file: str, tshark: str, comparison: Comparison, agree: bool) -> Record:
    """``tshark``: its version."""
    return record(
        "verification",
        file=file,
        tshark=tshark,
        agree=agree,
        field_names=sorted(comparison.names),
        compared={what.replace(" ", "_"): asdict(tally) for what, tally in comparison.tallies.items()},
    )
