"""COMPOUND and CB_COMPOUND with all their operations (RFC 8881, 16.2 and 20)."""

from __future__ import annotations

from collections.abc import Mapping

from . import nfs_cb, rfc7530, rfc7862, rfc8881
from .nfs4_types import NFSSTAT4, OPERATION_NAMES, UTF8_CS
from .types import UINT32, OperationShape, ProcedureShape, XdrArm, XdrUnion, array, enum, struct, table, union

OPERATIONS: dict[int, OperationShape] = dict(
    sorted({**rfc7530.OPERATIONS, **rfc8881.OPERATIONS, **rfc7862.OPERATIONS}.items())
)
CALLBACK_OPERATIONS: dict[int, OperationShape] = nfs_cb.OPERATIONS

OPERATION_NAMES.update({number: shape.name for number, shape in OPERATIONS.items() if shape.name != "ILLEGAL"})


def _choice(name: str, discriminant: str, operations: Mapping[int, OperationShape], results: bool) -> XdrUnion:
    arms: dict[int, XdrArm] = {
        number: operation.results if results else operation.arguments for number, operation in operations.items()
    }
    numbers = enum("nfs_opnum4", {number: operation.name for number, operation in operations.items()})
    return union(name, discriminant, numbers, arms)


NFS_ARGOP4 = _choice("nfs_argop4", "argop", OPERATIONS, False)
NFS_RESOP4 = _choice("nfs_resop4", "resop", OPERATIONS, True)
NFS_CB_ARGOP4 = _choice("nfs_cb_argop4", "argop", CALLBACK_OPERATIONS, False)
NFS_CB_RESOP4 = _choice("nfs_cb_resop4", "resop", CALLBACK_OPERATIONS, True)

COMPOUND4ARGS = struct("COMPOUND4args", tag=UTF8_CS, minorversion=UINT32, argarray=array(NFS_ARGOP4))
COMPOUND4RES = struct("COMPOUND4res", status=NFSSTAT4, tag=UTF8_CS, resarray=array(NFS_RESOP4))
CB_COMPOUND4ARGS = struct(
    "CB_COMPOUND4args", tag=UTF8_CS, minorversion=UINT32, callback_ident=UINT32, argarray=array(NFS_CB_ARGOP4)
)
CB_COMPOUND4RES = struct("CB_COMPOUND4res", status=NFSSTAT4, tag=UTF8_CS, resarray=array(NFS_CB_RESOP4))

NFS4 = table(ProcedureShape("NULL"), ProcedureShape("COMPOUND", COMPOUND4ARGS, COMPOUND4RES))
NFS_CB = table(ProcedureShape("CB_NULL"), ProcedureShape("CB_COMPOUND", CB_COMPOUND4ARGS, CB_COMPOUND4RES))
