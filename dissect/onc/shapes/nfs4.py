"""COMPOUND and CB_COMPOUND with all their operations (RFC 8881, 16.2 and 20)."""

from __future__ import annotations

from collections.abc import Mapping

from . import nfs_cb, rfc7530, rfc7862, rfc8881
from .language import declared
from .nfs4_types import OPERATION_NAMES, TYPES as SHARED
from .types import OperationShape, XdrArm, XdrUnion, enum

OPERATIONS: dict[int, OperationShape] = dict(
    sorted({**rfc7530.TYPES["COMPOUND"], **rfc8881.TYPES["COMPOUND"], **rfc7862.TYPES["COMPOUND"]}.items())
)
CALLBACK_OPERATIONS: dict[int, OperationShape] = nfs_cb.TYPES["CB_COMPOUND"]

OPERATION_NAMES.update({number: shape.name for number, shape in OPERATIONS.items() if shape.name != "ILLEGAL"})


def _choice(name: str, discriminant: str, operations: Mapping[int, OperationShape], results: bool) -> XdrUnion:
    arms: dict[int, XdrArm] = {
        number: operation.results if results else operation.arguments for number, operation in operations.items()
    }
    numbers = enum("nfs_opnum4", {number: operation.name for number, operation in operations.items()})
    return XdrUnion(name, discriminant, numbers, arms)


TYPES = declared(
    """
struct COMPOUND4args { utf8str_cs tag; uint32_t minorversion; nfs_argop4 argarray<>; };
struct COMPOUND4res { nfsstat4 status; utf8str_cs tag; nfs_resop4 resarray<>; };
struct CB_COMPOUND4args {
    utf8str_cs tag; uint32_t minorversion; uint32_t callback_ident; nfs_cb_argop4 argarray<>;
};
struct CB_COMPOUND4res { nfsstat4 status; utf8str_cs tag; nfs_cb_resop4 resarray<>; };
program NFS4 {
    void NULL(void) = 0;
    COMPOUND4res COMPOUND(COMPOUND4args) = 1;
};
program NFS_CB {
    void CB_NULL(void) = 0;
    CB_COMPOUND4res CB_COMPOUND(CB_COMPOUND4args) = 1;
};
    """,
    SHARED,
    nfs_argop4=_choice("nfs_argop4", "argop", OPERATIONS, False),
    nfs_resop4=_choice("nfs_resop4", "resop", OPERATIONS, True),
    nfs_cb_argop4=_choice("nfs_cb_argop4", "argop", CALLBACK_OPERATIONS, False),
    nfs_cb_resop4=_choice("nfs_cb_resop4", "resop", CALLBACK_OPERATIONS, True),
)
COMPOUND4ARGS, COMPOUND4RES = TYPES["COMPOUND4args"], TYPES["COMPOUND4res"]
CB_COMPOUND4ARGS, CB_COMPOUND4RES = TYPES["CB_COMPOUND4args"], TYPES["CB_COMPOUND4res"]
NFS4, NFS_CB = TYPES["NFS4"], TYPES["NFS_CB"]
