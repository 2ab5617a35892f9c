"""Names of RPC programs and of their procedures.

Program numbers: the IANA registry of RPC program numbers (RFC 5531, 8.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import dropwhile

from ..onc import nfs3

PORTMAP = 100000
NFS = 100003
MOUNT = 100005
RQUOTA = 100011
NLM = 100021
STATUS_MONITOR = 100024
NFSACL = 100227
NFS_CALLBACK = 0x40000000
"""Transient: the client chooses it in SETCLIENTID or CREATE_SESSION; this one is printed in RFC 5662, and
Linux uses it."""
TRANSIENT_END = 0x60000000
"""Behind the last number of these (RFC 5531, 8.4)."""

PROGRAM_NAMES = {
    PORTMAP: "portmap",  # RFC 1833
    100001: "rstat",
    100002: "rusers",
    NFS: "NFS",  # RFC 1094, RFC 1813, RFC 7530, RFC 8881
    100004: "ypserv",
    MOUNT: "MOUNT",  # RFC 1094, appendix A; RFC 1813, appendix I
    100007: "ypbind",
    100008: "walld",
    100009: "yppasswdd",
    RQUOTA: "rquota",
    100020: "KLM",
    NLM: "NLM",  # RFC 1813, appendix II; X/Open XNFS
    STATUS_MONITOR: "NSM",  # X/Open XNFS, 11
    100068: "cmsd",
    100083: "ttdbserverd",
    100133: "nsm_addrand",
    NFSACL: "NFSACL",  # the sideband protocol of Solaris
    100229: "metad",
    150001: "pcnfsd",
    NFS_CALLBACK: "NFS_CB",  # RFC 7530, 17; RFC 8881, 19
}

_PORTMAP_2 = ("NULL", "SET", "UNSET", "GETPORT", "DUMP", "CALLIT")  # RFC 1833, 3.1
_RPCBIND_3 = (  # RFC 1833, 2.1
    "NULL",
    "SET",
    "UNSET",
    "GETADDR",
    "DUMP",
    "CALLIT",
    "GETTIME",
    "UADDR2TADDR",
    "TADDR2UADDR",
)
_RPCBIND_4 = (  # RFC 1833, 2.2.1
    "NULL",
    "SET",
    "UNSET",
    "GETADDR",
    "DUMP",
    "BCAST",
    "GETTIME",
    "UADDR2TADDR",
    "TADDR2UADDR",
    "GETVERSADDR",
    "INDIRECT",
    "GETADDRLIST",
    "GETSTAT",
)
_NFS_2 = (  # RFC 1094, 2.2
    "NULL",
    "GETATTR",
    "SETATTR",
    "ROOT",
    "LOOKUP",
    "READLINK",
    "READ",
    "WRITECACHE",
    "WRITE",
    "CREATE",
    "REMOVE",
    "RENAME",
    "LINK",
    "SYMLINK",
    "MKDIR",
    "RMDIR",
    "READDIR",
    "STATFS",
)
_MOUNT_1 = ("NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT", "EXPORTALL")  # RFC 1094, A.5
_MOUNT_2 = (*_MOUNT_1, "PATHCONF")
_MOUNT_3 = ("NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT")  # RFC 1813, 5.2
_NLM_1 = (  # X/Open XNFS, 10.3
    "NULL",
    "TEST",
    "LOCK",
    "CANCEL",
    "UNLOCK",
    "GRANTED",
    "TEST_MSG",
    "LOCK_MSG",
    "CANCEL_MSG",
    "UNLOCK_MSG",
    "GRANTED_MSG",
    "TEST_RES",
    "LOCK_RES",
    "CANCEL_RES",
    "UNLOCK_RES",
    "GRANTED_RES",
)
# 16 to 19 are not in the protocol; Linux lets its statd notify lockd by 16.
_NLM_3 = (*_NLM_1, "SM_NOTIFY", "proc-17", "proc-18", "proc-19", "SHARE", "UNSHARE", "NM_LOCK", "FREE_ALL")
_NSM_1 = ("NULL", "STAT", "MON", "UNMON", "UNMON_ALL", "SIMU_CRASH", "NOTIFY")  # X/Open XNFS, 11.2
_RQUOTA_1 = ("NULL", "GETQUOTA", "GETACTIVEQUOTA", "SETQUOTA", "SETACTIVEQUOTA")

PROCEDURES: dict[tuple[int, int], tuple[str, ...]] = {
    (PORTMAP, 2): _PORTMAP_2,
    (PORTMAP, 3): _RPCBIND_3,
    (PORTMAP, 4): _RPCBIND_4,
    (NFS, 2): _NFS_2,
    (NFS, 3): tuple(procedure.name for procedure in nfs3.PROCEDURES),
    (NFS, 4): ("NULL", "COMPOUND"),  # RFC 8881, 16
    (MOUNT, 1): _MOUNT_1,
    (MOUNT, 2): _MOUNT_2,
    (MOUNT, 3): _MOUNT_3,
    (RQUOTA, 1): _RQUOTA_1,
    (RQUOTA, 2): _RQUOTA_1,
    (100020, 1): ("NULL", "TEST", "LOCK", "CANCEL", "UNLOCK"),
    (NLM, 1): _NLM_1,
    (NLM, 2): _NLM_1,
    (NLM, 3): _NLM_3,
    (NLM, 4): _NLM_3,
    (STATUS_MONITOR, 1): _NSM_1,
    (NFSACL, 2): ("NULL", "GETACL", "SETACL", "GETATTR", "ACCESS", "GETXATTRDIR"),
    (NFSACL, 3): ("NULL", "GETACL", "SETACL", "GETXATTRDIR"),
    (NFS_CALLBACK, 1): ("CB_NULL", "CB_COMPOUND"),  # RFC 8881, 19
}
"""(program, version): procedure names, the number is the index."""


def is_callback(program: int) -> bool:
    """Whether an NFS client serves it to its server: NFS_CB, or another transient number (RFC 5531, 8.4)."""
    return NFS_CALLBACK <= program < TRANSIENT_END


def program_name(program: int) -> str:
    """'NFS', 'MOUNT', …; 'program-N' for an unknown one."""
    return PROGRAM_NAMES.get(program) or f"program-{program}"


@lru_cache(maxsize=4096)
def procedure_name(program: int, version: int, procedure: int) -> str:
    """'READ', 'COMPOUND', …; 'proc-N' for an unknown one."""
    names = PROCEDURES.get((program, version), ())
    return names[procedure] if 0 <= procedure < len(names) else f"proc-{procedure}"


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
