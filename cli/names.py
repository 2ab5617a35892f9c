"""Short names for programs and procedures."""

from __future__ import annotations

from collections.abc import Sequence

from rdmascope.dissect.onc.programs import program_name

PLUMBING = frozenset({"SEQUENCE", "CB_SEQUENCE", "PUTFH", "PUTROOTFH", "GETFH", "SAVEFH", "RESTOREFH", "GETATTR"})
"""Operations that stand in most COMPOUNDs and say little about what one is for."""


def program_label(program: int | None, version: int | None, minor_version: int | None = None) -> str:
    """'NFSv4.2', 'MOUNTv3', 'program-400000v1'."""
    if program is None:
        return "unknown program"
    number = "" if version is None else f"v{version}"
    if minor_version is not None:
        number += f".{minor_version}"
    return program_name(program) + number


def procedure_label(name: str, operations: Sequence[str], full: bool = False) -> str:
    """The procedure's name, or what is telling in a COMPOUND; ``full``: all its operations."""
    if not operations:
        return name or "?"
    telling = operations if full else [one for one in operations if one not in PLUMBING]
    return " ".join(telling or operations)
