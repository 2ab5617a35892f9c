"""The NFSACL side protocol, which no RFC describes: POSIX access control lists beside NFS versions 2 and 3."""

from __future__ import annotations

from .rfc1094 import FATTR, FHANDLE, STAT
from .rfc1813 import ACCESS3, NFS_FH3, NFSSTAT3, POST_OP_ATTR
from .types import BOOL, UINT32, ProcedureShape, XdrArm, XdrStruct, array, enum, flags, result, struct, table

_MASK = flags("mask", {1: "NA_ACL", 2: "NA_ACLCNT", 4: "NA_DFACL", 8: "NA_DFACLCNT"})
_ENTRIES = {1: "USER_OBJ", 2: "USER", 4: "GROUP_OBJ", 8: "GROUP", 0x10: "CLASS_OBJ", 0x20: "OTHER_OBJ"}
_DEFAULT = 0x1000
_TYPES = {number: f"NA_{name}" for number, name in _ENTRIES.items()}
_DEFAULT_TYPES = {number + _DEFAULT: f"NA_DEFAULT_{name}" for number, name in _ENTRIES.items()}
_ACLENT = struct(
    "aclent",
    type=enum("aclent_type", {**_TYPES, **_DEFAULT_TYPES}),
    id=UINT32,
    perm=flags("perm", {4: "NA_READ", 2: "NA_WRITE", 1: "NA_EXEC"}),
)
SECATTR = struct(
    "secattr",
    mask=_MASK,
    aclcnt=UINT32,
    aclent=array(_ACLENT, 1024),
    dfaclcnt=UINT32,
    dfaclent=array(_ACLENT, 1024),
)
_ATTR3 = struct("attr", attr=POST_OP_ATTR)
_ATTR2 = struct("attr", attr=FATTR)


def _acl3(name: str, arguments: XdrStruct, ok: XdrArm) -> ProcedureShape:
    return ProcedureShape(name, arguments, result(f"{name}3res", NFSSTAT3, ok, _ATTR3))


def _acl2(name: str, arguments: XdrStruct, ok: XdrArm) -> ProcedureShape:
    return ProcedureShape(name, arguments, result(f"{name}2res", STAT, ok))


NFSACL3 = table(
    ProcedureShape("NULL"),
    _acl3(
        "GETACL",
        struct("GETACL3args", fh=NFS_FH3, mask=_MASK),
        struct("GETACL3resok", attr=POST_OP_ATTR, acl=SECATTR),
    ),
    _acl3("SETACL", struct("SETACL3args", fh=NFS_FH3, acl=SECATTR), _ATTR3),
    ProcedureShape(
        "GETXATTRDIR",
        struct("GETXATTRDIR3args", fh=NFS_FH3, create=BOOL),
        result("GETXATTRDIR3res", NFSSTAT3, struct("GETXATTRDIR3resok", fh=NFS_FH3, attr=POST_OP_ATTR)),
    ),
)
NFSACL2 = table(
    ProcedureShape("NULL"),
    _acl2("GETACL", struct("GETACL2args", fh=FHANDLE, mask=_MASK), struct("GETACL2resok", attr=FATTR, acl=SECATTR)),
    _acl2("SETACL", struct("SETACL2args", fh=FHANDLE, acl=SECATTR), _ATTR2),
    _acl2("GETATTR", struct("GETATTR2args", fh=FHANDLE), _ATTR2),
    _acl2(
        "ACCESS",
        struct("ACCESS2args", fh=FHANDLE, access=ACCESS3),
        struct("ACCESS2resok", attr=FATTR, access=ACCESS3),
    ),
    _acl2(
        "GETXATTRDIR",
        struct("GETXATTRDIR2args", fh=FHANDLE, create=BOOL),
        struct("GETXATTRDIR2resok", fh=FHANDLE, attr=FATTR),
    ),
)
