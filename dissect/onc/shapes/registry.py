"""The procedures of every program that is declared here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from ..programs import MOUNT, NFS, NFS_CALLBACK, NFSACL, NLM, PORTMAP, PROGRAM_NAMES, RQUOTA, STATUS_MONITOR
from . import nfs4, nfsacl, nlm, rfc1094, rfc1813, rfc1833, rquota
from .types import ProcedureShape

PROGRAMS: dict[tuple[int, int], Mapping[int, ProcedureShape]] = {
    (NFS, 2): rfc1094.TYPES["NFS2"],
    (NFS, 3): rfc1813.NFS3,
    (NFS, 4): nfs4.NFS4,
    (NFS_CALLBACK, 1): nfs4.NFS_CB,
    (NFSACL, 2): nfsacl.TYPES["NFSACL2"],
    (NFSACL, 3): nfsacl.TYPES["NFSACL3"],
    (MOUNT, 1): rfc1094.TYPES["MOUNT1"],
    (MOUNT, 2): rfc1094.TYPES["MOUNT2"],
    (MOUNT, 3): rfc1813.MOUNT3,
    (NLM, 1): nlm.NLM1,
    (NLM, 2): nlm.NLM1,
    (NLM, 3): nlm.NLM3,
    (NLM, 4): nlm.VERSION4["NLM4"],
    (STATUS_MONITOR, 1): nlm.TYPES["NSM1"],
    (RQUOTA, 1): rquota.TYPES["RQUOTA1"],
    (RQUOTA, 2): rquota.TYPES["RQUOTA2"],
    (PORTMAP, 2): rfc1833.TYPES["PORTMAP2"],
    (PORTMAP, 3): rfc1833.TYPES["RPCBIND3"],
    (PORTMAP, 4): rfc1833.TYPES["RPCBIND4"],
}
"""By program and version, then by procedure."""


def _names(procedures: Mapping[int, ProcedureShape]) -> tuple[str, ...]:
    """The index is the number."""
    numbers = range(max(procedures, default=-1) + 1)
    return tuple((procedures[number].name if number in procedures else "") or f"proc-{number}" for number in numbers)


PROCEDURES = {program: _names(procedures) for program, procedures in PROGRAMS.items()}
"""(program, version): procedure names, the number is the index."""
PROCEDURES[100020, 1] = ("NULL", "TEST", "LOCK", "CANCEL", "UNLOCK")  # KLM: no document declares its types.


@lru_cache(maxsize=4096)
def procedure_name(program: int, version: int, procedure: int) -> str:
    """'READ', 'COMPOUND', …; 'proc-N' for an unknown one."""
    names = PROCEDURES.get((program, version), ())
    return names[procedure] if 0 <= procedure < len(names) else f"proc-{procedure}"


Procedures = Callable[[], Mapping[int, ProcedureShape]]


def program(number: int, name: str, version: int) -> Callable[[Procedures], Procedures]:
    """Register what the function below gives as the procedures of a program, by their numbers."""

    def register(procedures: Procedures) -> Procedures:
        if (number, version) in PROGRAMS:
            raise ValueError(f"there is a program {number}, version {version}, already")
        given = PROGRAMS[number, version] = procedures()
        PROGRAM_NAMES.setdefault(number, name)
        PROCEDURES[number, version] = _names(given)
        procedure_name.cache_clear()
        return procedures

    return register


def procedure_shape(program: int | None, version: int | None, procedure: int | None) -> ProcedureShape | None:
    if program is None or version is None or procedure is None:
        return None
    return PROGRAMS.get((program, version), {}).get(procedure)
