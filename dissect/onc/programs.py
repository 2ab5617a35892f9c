"""Numbers and names of RPC programs (the IANA registry of RPC program numbers, RFC 5531, 8.3)."""

from __future__ import annotations

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


def program_name(program: int) -> str:
    """'NFS', 'MOUNT', …; 'program-N' for an unknown one."""
    return PROGRAM_NAMES.get(program) or f"program-{program}"
