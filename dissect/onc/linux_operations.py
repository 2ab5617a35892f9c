"""The name that Linux's NFS client gives a COMPOUND in /proc/self/mountstats, from the operations in it.

The client builds each COMPOUND for one purpose, which is one row of its counters (fs/nfs/nfs4xdr.c): an OPEN that asks
for no file handle is OPEN_NOATTR, and a GETATTR is told apart by the attributes that it asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .compound import OPERATION_NAMES, compound_call
from .rpc_header import call_head
from .xdr import Data, word

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
    ("FS_LOCATIONS", 1 << 24),
    ("SERVER_CAPS", 1 << 0),
    ("GETACL", 1 << 12),
    ("STATFS", 7 << 21),
    ("FSINFO", 1 << 27 | 3 << 30),
    ("PATHCONF", 3 << 28),
)
"""What a GETATTR is, that asks for one of these attributes: fs_locations, supported_attrs, acl, files_avail to
files_total, maxfilesize, maxread and maxwrite, maxlink and maxname (RFC 8881, 5.8)."""
_NF4LNK = 5

BY_ARGUMENTS = frozenset(("GETATTR", "CREATE"))
"""Names that the operations alone do not decide."""


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


def linux_operation(operations: Sequence[str]) -> str | None:
    """The name by the operations of a COMPOUND, ``Rpc.operations``; None where the client of Linux sends none such.

    Of a name in ``BY_ARGUMENTS`` the arguments decide: see ``by_arguments``.
    """
    behind = operations[1:] if len(operations) > 1 and operations[0] == "SEQUENCE" else operations
    return _NAMES.get(tuple(behind))


def by_arguments(name: str, call: Data) -> str:
    """The name of a GETATTR or CREATE, whose whole call is given.

    GETATTR becomes SERVER_CAPS, FSINFO, PATHCONF, STATFS, GETACL or FS_LOCATIONS by the attributes asked for, CREATE
    SYMLINK by the type.
    """
    head = call_head(call, 0, len(call))
    if head is None or not head[4]:
        return name
    compound = compound_call(call, head[4], len(call))
    for number, at in zip(compound.operations, compound.places, strict=True):
        if OPERATION_NAMES.get(number) != name or at + 8 > len(call):
            continue
        first, second = word(call, at)[0], word(call, at + 4)[0]
        if name == "CREATE":
            return "SYMLINK" if first == _NF4LNK else name
        asked = second if first else 0
        return next((found for found, attributes in _GETATTRS if asked & attributes), name)
    return name
