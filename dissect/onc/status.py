"""Program-level statuses: where a reply carries one, and those of NFS as they are shown, where success is OK."""

from __future__ import annotations

from functools import cache
from struct import error as StructError

from .rpc_header import NFS_CALLBACK
from .shapes import nfs4_types, rfc1813
from .shapes.registry import procedure_shape
from .shapes.types import XdrInteger, XdrOpaque, XdrStruct, XdrUnion
from .xdr import Data, opaque, word

OK = "OK"
NFS3_STATUS: dict[int, str] = {**rfc1813.TYPES["nfsstat3"].values, 0: OK}
NFS4_STATUS: dict[int, str] = {**nfs4_types.TYPES["nfsstat4"].values, 0: OK}


GOOD = frozenset((
    "NFS_OK", "NFS3_OK", "NFS4_OK", "MNT_OK", "MNT3_OK", "LCK_GRANTED", "NLM4_GRANTED", "STAT_SUCC", "Q_OK"
))  # fmt: skip
BLOCKED = "NLM4_BLOCKED", "LCK_BLOCKED"
"""The lock will be granted later: an answer, not a failure."""


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
    read_status = _status(program, version, procedure)
    if body < 0 or read_status is None:
        return None
    type, behind_cookie = read_status
    view = memoryview(data)[body:end]
    try:
        status = word(view, opaque(view, 0) if behind_cookie else 0)[0]
    except StructError:
        return None
    name = type.values.get(status) or f"{type.name} {status}"
    return (OK, False) if name in GOOD else (name, name not in BLOCKED)


@cache
def zero_means_ok(program: int, version: int, procedure: int) -> bool:
    """Whether the results begin with a status word in which zero means success."""
    return reply_status(program, version, procedure, bytes(4), 0, 4) == (OK, False)


@cache
def _status(program: int, version: int, procedure: int) -> tuple[XdrInteger, bool] | None:
    """The enum of statuses that the results begin with, and whether a cookie stands before it, as in NLM."""
    # Servers call back by version 1, or by that of the program that was called.
    shape = procedure_shape(program, 1 if (program, version) == (NFS_CALLBACK, 4) else version, procedure)
    types = [shape.results if shape is not None else None]
    if isinstance(types[0], XdrStruct):
        types = [type for _, type in types[0].fields]
    behind_cookie = isinstance(types[0], XdrOpaque) and len(types) > 1
    first = types[behind_cookie]
    first = first.type if isinstance(first, XdrUnion) else first
    return (
        (first, behind_cookie) if isinstance(first, XdrInteger) and not GOOD.isdisjoint(first.values.values()) else None
    )
