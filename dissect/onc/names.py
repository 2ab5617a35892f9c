"""Short names for programs and procedures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile

from .programs import program_name

PREAMBLE = frozenset({"SEQUENCE", "CB_SEQUENCE", "PUTFH", "PUTROOTFH"})
"""Operations that most COMPOUNDs begin with and that say little about what one is for."""


def program_label(program: int | None, version: int | None, minor_version: int | None = None) -> str:
    """'NFSv4.2', 'MOUNTv3', 'program-400000v1'."""
    if program is None:
        return "unknown program"
    number = "" if version is None else f"v{version}"
    if minor_version is not None:
        number += f".{minor_version}"
    return program_name(program) + number


def procedure_label(name: str, operations: Sequence[str], full: bool = False) -> str:
    """The procedure's name; of a COMPOUND its operations, without the preamble unless ``full``."""
    if not operations:
        return name or "?"
    telling = operations if full else list(dropwhile(PREAMBLE.__contains__, operations))
    return " ".join(telling or operations)
