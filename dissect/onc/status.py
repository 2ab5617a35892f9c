"""Program-level statuses: where a reply carries one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from struct import error as StructError

from . import nfs3
from .rpc_header import MOUNT, NFS, NFS_CALLBACK, NFSACL, NLM, RQUOTA, STATUS_MONITOR
from .statuses import (
    MOUNT1_STATUS,
    MOUNT3_STATUS,
    NFS2_STATUS,
    NFS3_STATUS,
    NFS4_STATUS,
    NLM1_STATUS,
    NLM_STATUS,
    NSM_STATUS,
    OK,
    RQUOTA_STATUS,
)
from .xdr import Data, opaque, word

NLM_BLOCKED = 3
"""The lock will be granted later: an answer, not a failure."""

_NFS2_SILENT = frozenset((0, 3, 7))  # NULL, ROOT, WRITECACHE
_NLM_WITH_STATUS = frozenset((1, 2, 3, 4, 5, 20, 21, 22))


def nfs4_status(status: int) -> str:
    """'OK', 'NFS4ERR_DELAY', or 'nfsstat4 N'."""
    return NFS4_STATUS.get(status) or f"nfsstat4 {status}"


def reply_status(
    program: int, version: int, procedure: int, data: Data, body: int, end: int
) -> tuple[str, bool] | None:
    """What the results at ``body`` say of themselves: name of the status, and whether it is a failure.

    None where these results have no status word, where the program is not known, or where it was not
    captured.
    """
    if body < 0 or not procedure:
        return None
    view = memoryview(data)[body:end]
    try:
        return _status(program, version, procedure, view)
    except StructError:
        return None


@cache
def zero_means_ok(program: int, version: int, procedure: int) -> bool:
    """Whether the results begin with a status word of which zero is the success."""
    return reply_status(program, version, procedure, bytes(4), 0, 4) == (OK, False)


def _status(program: int, version: int, procedure: int, view: memoryview) -> tuple[str, bool] | None:
    if program == NFS:
        if version == 4:
            return _named(NFS4_STATUS, "nfsstat4", view, 0) if procedure == 1 else None
        if version == 3:
            return _named(NFS3_STATUS, "nfsstat3", view, 0) if procedure < len(nfs3.PROCEDURES) else None
        if version == 2 and procedure <= 17 and procedure not in _NFS2_SILENT:
            return _named(NFS2_STATUS, "nfsstat", view, 0)
    elif program == NFS_CALLBACK:
        return _named(NFS4_STATUS, "nfsstat4", view, 0) if procedure == 1 and version in (1, 4) else None
    elif program == NFSACL:
        if version == 3 and procedure <= 3:
            return _named(NFS3_STATUS, "nfsstat3", view, 0)
        if version == 2 and procedure <= 5:
            return _named(NFS2_STATUS, "nfsstat", view, 0)
    elif program == MOUNT:
        if procedure == 1 and version == 3:
            return _named(MOUNT3_STATUS, "mountstat3", view, 0)
        if procedure == 1 and version in (1, 2):
            return _named(MOUNT1_STATUS, "errno", view, 0)
    elif program == NLM:
        if procedure in _NLM_WITH_STATUS and 1 <= version <= 4:
            names, kind = (NLM_STATUS, "nlm4_stats") if version == 4 else (NLM1_STATUS, "nlm_stats")
            at = opaque(view, 0)  # the cookie comes first
            name, failed = _named(names, kind, view, at)
            return name, failed and word(view, at)[0] != NLM_BLOCKED
    elif program == STATUS_MONITOR:
        return _named(NSM_STATUS, "sm_res", view, 0) if procedure in (1, 2) and version == 1 else None
    elif program == RQUOTA and procedure in (1, 2, 3, 4) and version in (1, 2):
        return _named(RQUOTA_STATUS, "gqr_status", view, 0)
    return None


def _named(names: Mapping[int, str], kind: str, view: memoryview, at: int) -> tuple[str, bool]:
    status = word(view, at)[0]
    name = names.get(status) or f"{kind} {status}"
    return name, name is not OK
