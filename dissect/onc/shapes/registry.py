"""The procedures of every program that is declared here."""

from __future__ import annotations

from collections.abc import Mapping

from ..programs import MOUNT, NFS, NFS_CALLBACK
from . import nfs4, rfc1813
from .procedures import ProcedureShape

PROGRAMS: Mapping[tuple[int, int], Mapping[int, ProcedureShape]] = {
    (NFS, 3): rfc1813.NFS3,
    (NFS, 4): nfs4.NFS4,
    (NFS_CALLBACK, 1): nfs4.NFS_CB,
    (MOUNT, 3): rfc1813.MOUNT3,
}
"""By program and version, then by procedure."""


def procedure_shape(program: int | None, version: int | None, procedure: int | None) -> ProcedureShape | None:
    if program is None or version is None or procedure is None:
        return None
    return PROGRAMS.get((program, version), {}).get(procedure)
