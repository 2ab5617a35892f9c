"""The name that Linux's NFS client gives a COMPOUND in /proc/self/mountstats, from the operations in it.

The client builds each COMPOUND for one purpose, which is one row of its counters (fs/nfs/nfs4xdr.c): an OPEN that asks
for no file handle is OPEN_NOATTR, and a GETATTR is told apart by the attributes that it asks for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

_SHAPES = """
ACCESS          PUTFH ACCESS [GETATTR]
ALLOCATE        PUTFH ALLOCATE GETATTR
CLONE           PUTFH SAVEFH PUTFH CLONE [GETATTR]
CLOSE           PUTFH [LAYOUTRETURN] [GETATTR] CLOSE [GETATTR]
COMMIT          PUTFH COMMIT [GETATTR]
COPY            PUTFH SAVEFH PUTFH COPY [COMMIT] [GETATTR]
COPY_NOTIFY     PUTFH COPY_NOTIFY
CREATE          PUTFH CREATE GETFH GETATTR
DEALLOCATE      PUTFH DEALLOCATE GETATTR
DELEGRETURN     PUTFH [LAYOUTRETURN] [SETATTR] [GETATTR] DELEGRETURN
FSID_PRESENT    PUTFH GETFH [RENEW]
FS_LOCATIONS    PUTFH LOOKUP GETATTR [RENEW]
FS_LOCATIONS    PUTFH GETATTR RENEW
GETATTR         PUTFH GETATTR
GETDEVICELIST   PUTFH GETDEVICELIST
GETXATTR        PUTFH GETXATTR
GET_LEASE_TIME  PUTROOTFH GETATTR
LAYOUTCOMMIT    PUTFH LAYOUTCOMMIT [GETATTR]
LAYOUTERROR     PUTFH LAYOUTERROR
LAYOUTGET       PUTFH LAYOUTGET
LAYOUTRETURN    PUTFH LAYOUTRETURN
LAYOUTSTATS     PUTFH LAYOUTSTATS
LINK            PUTFH SAVEFH PUTFH LINK [RESTOREFH] [GETATTR]
LISTXATTRS      PUTFH LISTXATTRS
LOCK            PUTFH LOCK
LOCKT           PUTFH LOCKT
LOCKU           PUTFH LOCKU
LOOKUP          PUTFH LOOKUP GETFH [GETATTR]
LOOKUPP         PUTFH LOOKUPP GETFH [GETATTR]
LOOKUP_ROOT     PUTROOTFH GETFH [GETATTR]
OFFLOAD_CANCEL  PUTFH OFFLOAD_CANCEL
OFFLOAD_STATUS  PUTFH OFFLOAD_STATUS
OPEN            PUTFH OPEN GETFH [ACCESS] GETATTR [LAYOUTGET]
OPEN_CONFIRM    PUTFH OPEN_CONFIRM
OPEN_DOWNGRADE  PUTFH [LAYOUTRETURN] OPEN_DOWNGRADE [GETATTR]
OPEN_NOATTR     PUTFH OPEN [ACCESS] GETATTR [LAYOUTGET]
READ            PUTFH READ
READDIR         PUTFH READDIR
READLINK        PUTFH READLINK
READ_PLUS       PUTFH READ_PLUS
REMOVE          PUTFH REMOVE [GETATTR]
REMOVEXATTR     PUTFH REMOVEXATTR [GETATTR]
RENAME          PUTFH SAVEFH PUTFH RENAME [GETATTR]
SECINFO         PUTFH SECINFO
SECINFO_NO_NAME PUTROOTFH SECINFO_NO_NAME
SEEK            PUTFH SEEK
SETACL          PUTFH SETATTR
SETATTR         PUTFH SETATTR GETATTR
SETXATTR        PUTFH SETXATTR [GETATTR]
WRITE           PUTFH WRITE [GETATTR]
ZERO_RANGE      PUTFH DEALLOCATE ALLOCATE GETATTR
"""
"""Its name, and its operations behind SEQUENCE; those in brackets are not always there."""
_ALONE = (
    "BIND_CONN_TO_SESSION", "CREATE_SESSION", "DESTROY_CLIENTID", "DESTROY_SESSION", "EXCHANGE_ID", "FREE_STATEID",
    "GETDEVICEINFO", "RECLAIM_COMPLETE", "RELEASE_LOCKOWNER", "RENEW", "SEQUENCE", "SETCLIENTID", "SETCLIENTID_CONFIRM",
    "TEST_STATEID",
)  # fmt: skip
"""COMPOUNDs of one operation, with or without SEQUENCE."""

_GETATTRS = (
    ("FS_LOCATIONS", {24}),
    ("SERVER_CAPS", {0}),
    ("GETACL", {12}),
    ("STATFS", {21, 22, 23}),
    ("FSINFO", {27, 30, 31}),
    ("PATHCONF", {28, 29}),
)
"""What a GETATTR is, that asks for one of these attributes: fs_locations, supported_attrs, acl, files_avail to
files_total, maxfilesize, maxread and maxwrite, maxlink and maxname (RFC 8881, 5.8)."""
_NF4LNK = 5


def _choices(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The operations with and without those in brackets."""
    if not words:
        yield ()
        return
    first, rest = words[0], words[1:]
    for behind in _choices(rest):
        yield (first.strip("[]"), *behind)
        if first.startswith("["):
            yield behind


_NAMES: dict[tuple[str, ...], str] = {
    shape: name for name, *words in map(str.split, _SHAPES.strip().splitlines()) for shape in _choices(words)
}
_NAMES.update({(name,): name for name in _ALONE})


def linux_operation(
    operations: Sequence[str], attributes: Collection[int] | None = None, kind: int | None = None
) -> str | None:
    """The name by all operations of a COMPOUND; None where the client of Linux sends none such.

    Args:
        operations: their names.
        attributes: the numbers of those that its GETATTR asks for; None: not known.
        kind: nfs_ftype4 of what its CREATE makes; None: not known.
    """
    behind = operations[1:] if len(operations) > 1 and operations[0] == "SEQUENCE" else operations
    name = _NAMES.get(tuple(behind))
    if name == "GETATTR":
        if attributes is None:
            return None
        return next((known for known, asked in _GETATTRS if not asked.isdisjoint(attributes)), name)
    if name == "CREATE":
        return None if kind is None else "SYMLINK" if kind == _NF4LNK else name
    return name
