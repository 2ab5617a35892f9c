"""Quotas of users and groups on an NFS server: rquota versions 1 and 2 (Sun's rquota.x; no RFC has it)."""

from __future__ import annotations

from ..statuses import RQUOTA_STATUS
from .types import BOOL, INT32, UINT32, ProcedureShape, XdrStruct, XdrUnion, enum, string, struct, table, union_or

_PATH = string("string", 1024)
_STATUS = enum("gqr_status", {**RQUOTA_STATUS, 1: "Q_OK"})
_TYPE = enum("quota_type", {0: "USRQUOTA", 1: "GRPQUOTA"})
_LIMITS = dict.fromkeys(
    (
        "rq_bhardlimit", "rq_bsoftlimit", "rq_curblocks", "rq_fhardlimit", "rq_fsoftlimit", "rq_curfiles",
        "rq_btimeleft", "rq_ftimeleft",
    ),
    UINT32,
)  # fmt: skip
_DQBLK = struct("sq_dqblk", **_LIMITS)
_RQUOTA = struct("rquota", rq_bsize=INT32, rq_active=BOOL, **_LIMITS)


def _result(name: str, status: str, quota: str) -> XdrUnion:
    return union_or(name, status, _STATUS, {1: (quota, _RQUOTA)}, None)


_GET, _SET = _result("getquota_rslt", "status", "gqr_rquota"), _result("setquota_rslt", "status", "sqr_rquota")


def _version(asked: XdrStruct, changed: XdrStruct) -> dict[int, ProcedureShape]:
    return table(
        ProcedureShape("NULL"),
        ProcedureShape("GETQUOTA", asked, _GET),
        ProcedureShape("GETACTIVEQUOTA", asked, _GET),
        ProcedureShape("SETQUOTA", changed, _SET),
        ProcedureShape("SETACTIVEQUOTA", changed, _SET),
    )


RQUOTA1 = _version(
    struct("getquota_args", gqa_pathp=_PATH, gqa_uid=INT32),
    struct("setquota_args", sqa_qcmd=INT32, sqa_pathp=_PATH, sqa_id=INT32, sqa_dqblk=_DQBLK),
)
RQUOTA2 = _version(
    struct("ext_getquota_args", gqa_pathp=_PATH, gqa_type=_TYPE, gqa_id=INT32),
    struct("ext_setquota_args", sqa_qcmd=INT32, sqa_pathp=_PATH, sqa_id=INT32, sqa_type=_TYPE, sqa_dqblk=_DQBLK),
)
