"""Program-level statuses: their names, and where a reply carries one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from struct import error as StructError

from . import nfs3
from .programs import MOUNT, NFS, NFS_CALLBACK, NFSACL, NLM, RQUOTA, STATUS_MONITOR
from .xdr import Data, opaque, word

OK = "OK"

_COMMON = {
    1: "PERM",
    2: "NOENT",
    5: "IO",
    6: "NXIO",
    13: "ACCES",
    17: "EXIST",
    20: "NOTDIR",
    21: "ISDIR",
    27: "FBIG",
    28: "NOSPC",
    30: "ROFS",
    63: "NAMETOOLONG",
    66: "NOTEMPTY",
    69: "DQUOT",
    70: "STALE",
}

NFS2_STATUS = {  # RFC 1094, 2.3.1
    0: OK,
    **{number: f"NFSERR_{name}" for number, name in _COMMON.items()},
    19: "NFSERR_NODEV",
    99: "NFSERR_WFLUSH",
}

NFS3_STATUS = {  # RFC 1813, 2.6
    0: OK,
    **{number: f"NFS3ERR_{name}" for number, name in _COMMON.items()},
    18: "NFS3ERR_XDEV",
    19: "NFS3ERR_NODEV",
    22: "NFS3ERR_INVAL",
    31: "NFS3ERR_MLINK",
    71: "NFS3ERR_REMOTE",
    10001: "NFS3ERR_BADHANDLE",
    10002: "NFS3ERR_NOT_SYNC",
    10003: "NFS3ERR_BAD_COOKIE",
    10004: "NFS3ERR_NOTSUPP",
    10005: "NFS3ERR_TOOSMALL",
    10006: "NFS3ERR_SERVERFAULT",
    10007: "NFS3ERR_BADTYPE",
    10008: "NFS3ERR_JUKEBOX",
}

NFS4_STATUS = {  # RFC 8881, 15.1; RFC 7530, 13.1; RFC 7862, 11; RFC 8276
    0: OK,
    1: "NFS4ERR_PERM",
    2: "NFS4ERR_NOENT",
    5: "NFS4ERR_IO",
    6: "NFS4ERR_NXIO",
    13: "NFS4ERR_ACCESS",
    17: "NFS4ERR_EXIST",
    18: "NFS4ERR_XDEV",
    20: "NFS4ERR_NOTDIR",
    21: "NFS4ERR_ISDIR",
    22: "NFS4ERR_INVAL",
    27: "NFS4ERR_FBIG",
    28: "NFS4ERR_NOSPC",
    30: "NFS4ERR_ROFS",
    31: "NFS4ERR_MLINK",
    63: "NFS4ERR_NAMETOOLONG",
    66: "NFS4ERR_NOTEMPTY",
    69: "NFS4ERR_DQUOT",
    70: "NFS4ERR_STALE",
    10001: "NFS4ERR_BADHANDLE",
    10003: "NFS4ERR_BAD_COOKIE",
    10004: "NFS4ERR_NOTSUPP",
    10005: "NFS4ERR_TOOSMALL",
    10006: "NFS4ERR_SERVERFAULT",
    10007: "NFS4ERR_BADTYPE",
    10008: "NFS4ERR_DELAY",
    10009: "NFS4ERR_SAME",
    10010: "NFS4ERR_DENIED",
    10011: "NFS4ERR_EXPIRED",
    10012: "NFS4ERR_LOCKED",
    10013: "NFS4ERR_GRACE",
    10014: "NFS4ERR_FHEXPIRED",
    10015: "NFS4ERR_SHARE_DENIED",
    10016: "NFS4ERR_WRONGSEC",
    10017: "NFS4ERR_CLID_INUSE",
    10018: "NFS4ERR_RESOURCE",
    10019: "NFS4ERR_MOVED",
    10020: "NFS4ERR_NOFILEHANDLE",
    10021: "NFS4ERR_MINOR_VERS_MISMATCH",
    10022: "NFS4ERR_STALE_CLIENTID",
    10023: "NFS4ERR_STALE_STATEID",
    10024: "NFS4ERR_OLD_STATEID",
    10025: "NFS4ERR_BAD_STATEID",
    10026: "NFS4ERR_BAD_SEQID",
    10027: "NFS4ERR_NOT_SAME",
    10028: "NFS4ERR_LOCK_RANGE",
    10029: "NFS4ERR_SYMLINK",
    10030: "NFS4ERR_RESTOREFH",
    10031: "NFS4ERR_LEASE_MOVED",
    10032: "NFS4ERR_ATTRNOTSUPP",
    10033: "NFS4ERR_NO_GRACE",
    10034: "NFS4ERR_RECLAIM_BAD",
    10035: "NFS4ERR_RECLAIM_CONFLICT",
    10036: "NFS4ERR_BADXDR",
    10037: "NFS4ERR_LOCKS_HELD",
    10038: "NFS4ERR_OPENMODE",
    10039: "NFS4ERR_BADOWNER",
    10040: "NFS4ERR_BADCHAR",
    10041: "NFS4ERR_BADNAME",
    10042: "NFS4ERR_BAD_RANGE",
    10043: "NFS4ERR_LOCK_NOTSUPP",
    10044: "NFS4ERR_OP_ILLEGAL",
    10045: "NFS4ERR_DEADLOCK",
    10046: "NFS4ERR_FILE_OPEN",
    10047: "NFS4ERR_ADMIN_REVOKED",
    10048: "NFS4ERR_CB_PATH_DOWN",
    10049: "NFS4ERR_BADIOMODE",
    10050: "NFS4ERR_BADLAYOUT",
    10051: "NFS4ERR_BAD_SESSION_DIGEST",
    10052: "NFS4ERR_BADSESSION",
    10053: "NFS4ERR_BADSLOT",
    10054: "NFS4ERR_COMPLETE_ALREADY",
    10055: "NFS4ERR_CONN_NOT_BOUND_TO_SESSION",
    10056: "NFS4ERR_DELEG_ALREADY_WANTED",
    10057: "NFS4ERR_BACK_CHAN_BUSY",
    10058: "NFS4ERR_LAYOUTTRYLATER",
    10059: "NFS4ERR_LAYOUTUNAVAILABLE",
    10060: "NFS4ERR_NOMATCHING_LAYOUT",
    10061: "NFS4ERR_RECALLCONFLICT",
    10062: "NFS4ERR_UNKNOWN_LAYOUTTYPE",
    10063: "NFS4ERR_SEQ_MISORDERED",
    10064: "NFS4ERR_SEQUENCE_POS",
    10065: "NFS4ERR_REQ_TOO_BIG",
    10066: "NFS4ERR_REP_TOO_BIG",
    10067: "NFS4ERR_REP_TOO_BIG_TO_CACHE",
    10068: "NFS4ERR_RETRY_UNCACHED_REP",
    10069: "NFS4ERR_UNSAFE_COMPOUND",
    10070: "NFS4ERR_TOO_MANY_OPS",
    10071: "NFS4ERR_OP_NOT_IN_SESSION",
    10072: "NFS4ERR_HASH_ALG_UNSUPP",
    10074: "NFS4ERR_CLIENTID_BUSY",
    10075: "NFS4ERR_PNFS_IO_HOLE",
    10076: "NFS4ERR_SEQ_FALSE_RETRY",
    10077: "NFS4ERR_BAD_HIGH_SLOT",
    10078: "NFS4ERR_DEADSESSION",
    10079: "NFS4ERR_ENCR_ALG_UNSUPP",
    10080: "NFS4ERR_PNFS_NO_LAYOUT",
    10081: "NFS4ERR_NOT_ONLY_OP",
    10082: "NFS4ERR_WRONG_CRED",
    10083: "NFS4ERR_WRONG_TYPE",
    10084: "NFS4ERR_DIRDELEG_UNAVAIL",
    10085: "NFS4ERR_REJECT_DELEG",
    10086: "NFS4ERR_RETURNCONFLICT",
    10087: "NFS4ERR_DELEG_REVOKED",
    10088: "NFS4ERR_PARTNER_NOTSUPP",
    10089: "NFS4ERR_PARTNER_NO_AUTH",
    10090: "NFS4ERR_UNION_NOTSUPP",
    10091: "NFS4ERR_OFFLOAD_DENIED",
    10092: "NFS4ERR_WRONG_LFS",
    10093: "NFS4ERR_BADLABEL",
    10094: "NFS4ERR_OFFLOAD_NO_REQS",
    10095: "NFS4ERR_NOXATTR",
    10096: "NFS4ERR_XATTR2BIG",
}

# Versions 1 and 2 answer with a Unix error number (RFC 1094, A.4); only those below have one everywhere.
MOUNT1_STATUS = {0: OK, 1: "EPERM", 2: "ENOENT", 5: "EIO", 13: "EACCES", 20: "ENOTDIR", 22: "EINVAL"}

MOUNT3_STATUS = {  # RFC 1813, 5.1.5
    0: OK,
    1: "MNT3ERR_PERM",
    2: "MNT3ERR_NOENT",
    5: "MNT3ERR_IO",
    13: "MNT3ERR_ACCES",
    20: "MNT3ERR_NOTDIR",
    22: "MNT3ERR_INVAL",
    63: "MNT3ERR_NAMETOOLONG",
    10004: "MNT3ERR_NOTSUPP",
    10006: "MNT3ERR_SERVERFAULT",
}

NLM_STATUS = {  # RFC 1813, 6.1.3; versions below 4 end at LCK_DENIED_GRACE_PERIOD
    0: OK,
    1: "NLM4_DENIED",
    2: "NLM4_DENIED_NOLOCKS",
    3: "NLM4_BLOCKED",
    4: "NLM4_DENIED_GRACE_PERIOD",
    5: "NLM4_DEADLCK",
    6: "NLM4_ROFS",
    7: "NLM4_STALE_FH",
    8: "NLM4_FBIG",
    9: "NLM4_FAILED",
}
NLM1_STATUS = {  # X/Open XNFS, 10.2
    0: OK,
    1: "LCK_DENIED",
    2: "LCK_DENIED_NOLOCKS",
    3: "LCK_BLOCKED",
    4: "LCK_DENIED_GRACE_PERIOD",
    5: "LCK_DEADLCK",
}
NLM_BLOCKED = 3
"""The lock will be granted later: an answer, not a failure."""

NSM_STATUS = {0: OK, 1: "STAT_FAIL"}  # X/Open XNFS, 11.2
RQUOTA_STATUS = {1: OK, 2: "Q_NOQUOTA", 3: "Q_EPERM"}

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
