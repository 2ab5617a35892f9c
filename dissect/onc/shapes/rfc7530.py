"""The operations that NFS version 4.0 has (RFC 7530, RFC 7531), as later minor versions extend them (RFC 8881).

Sections are those of RFC 8881, or of RFC 7530 where only version 4.0 has the operation.
"""

from __future__ import annotations

from .attributes4 import ATTRIBUTE_BITS, FATTR4
from .nfs4_types import (
    CHANGE_INFO4,
    CLIENTID4,
    COMPONENT4,
    COUNT4,
    COUNT4_OR_REST,
    DATA4,
    LENGTH4,
    LINKTEXT4,
    NETADDR4,
    NFS_COOKIE4,
    NFS_FH4,
    NFS_FTYPE4,
    NFSSTAT4,
    OFFSET4,
    OPEN_DELEGATION4,
    OPEN_DELEGATION_TYPE4,
    RPC_GSS_SVC,
    SEC_OID4,
    SEQID4,
    SPECDATA4,
    STABLE_HOW4,
    STATE_OWNER4,
    STATEID4,
    VERIFIER4,
)
from .rfc1813 import FLAVORS
from .types import (
    BOOL,
    HEXADECIMAL,
    OPAQUE,
    UINT32,
    OperationShape,
    XdrArm,
    XdrInteger,
    XdrOpaque,
    XdrStruct,
    array,
    enum,
    flags,
    linked,
    result,
    struct,
    union,
    union_or,
)

ACCESS4 = flags(
    "access4",
    {
        1: "ACCESS4_READ",
        2: "ACCESS4_LOOKUP",
        4: "ACCESS4_MODIFY",
        8: "ACCESS4_EXTEND",
        0x10: "ACCESS4_DELETE",
        0x20: "ACCESS4_EXECUTE",
        0x40: "ACCESS4_XAREAD",  # RFC 8276, 8.6
        0x80: "ACCESS4_XAWRITE",
        0x100: "ACCESS4_XALIST",
    },
)
NFS_LOCK_TYPE4 = enum("nfs_lock_type4", {1: "READ_LT", 2: "WRITE_LT", 3: "READW_LT", 4: "WRITEW_LT"})
CREATETYPE4 = union_or(
    "createtype4",
    "type",
    NFS_FTYPE4,
    {5: ("linkdata", LINKTEXT4), 3: ("devdata", SPECDATA4), 4: ("devdata", SPECDATA4)},
)
CREATE4ARGS = struct("CREATE4args", objtype=CREATETYPE4, objname=COMPONENT4, createattrs=FATTR4)

# 18.10
OPEN_TO_LOCK_OWNER4 = struct(
    "open_to_lock_owner4", open_seqid=SEQID4, open_stateid=STATEID4, lock_seqid=SEQID4, lock_owner=STATE_OWNER4
)
EXIST_LOCK_OWNER4 = struct("exist_lock_owner4", lock_stateid=STATEID4, lock_seqid=SEQID4)
LOCKER4 = union("locker4", "new_lock_owner", BOOL, {1: OPEN_TO_LOCK_OWNER4, 0: EXIST_LOCK_OWNER4})
LOCK4DENIED = struct("LOCK4denied", offset=OFFSET4, length=LENGTH4, locktype=NFS_LOCK_TYPE4, owner=STATE_OWNER4)

# 18.16
CREATEVERF = struct("creatverfattr", cva_verf=VERIFIER4, cva_attrs=FATTR4)
CREATEHOW4 = union(
    "createhow4",
    "mode",
    enum("createmode4", {0: "UNCHECKED4", 1: "GUARDED4", 2: "EXCLUSIVE4", 3: "EXCLUSIVE4_1"}),
    {0: ("createattrs", FATTR4), 1: ("createattrs", FATTR4), 2: ("createverf", VERIFIER4), 3: CREATEVERF},
)
OPENFLAG4 = union_or(
    "openflag4", "opentype", enum("opentype4", {0: "OPEN4_NOCREATE", 1: "OPEN4_CREATE"}), {1: ("how", CREATEHOW4)}
)
OPEN_CLAIM_TYPE4 = enum(
    "open_claim_type4",
    {
        0: "CLAIM_NULL",
        1: "CLAIM_PREVIOUS",
        2: "CLAIM_DELEGATE_CUR",
        3: "CLAIM_DELEGATE_PREV",
        4: "CLAIM_FH",
        5: "CLAIM_DELEG_CUR_FH",
        6: "CLAIM_DELEG_PREV_FH",
    },
)
OPEN_CLAIM4 = union(
    "open_claim4",
    "claim",
    OPEN_CLAIM_TYPE4,
    {
        0: ("file", COMPONENT4),
        1: ("delegate_type", OPEN_DELEGATION_TYPE4),
        2: struct("open_claim_delegate_cur4", delegate_stateid=STATEID4, file=COMPONENT4),
        3: ("file_delegate_prev", COMPONENT4),
        4: None,
        5: ("oc_delegate_stateid", STATEID4),
        6: None,
    },
)
SHARE_ACCESS = XdrInteger(
    "share_access",
    form=HEXADECIMAL,
    flags={
        1: "OPEN4_SHARE_ACCESS_READ",
        2: "OPEN4_SHARE_ACCESS_WRITE",
        0x10000: "OPEN4_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL",
        0x20000: "OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED",
        0x100000: "OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS",
        0x200000: "OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION",
    },
    choice_mask=0xF00,
    choices={
        0x100: "OPEN4_SHARE_ACCESS_WANT_READ_DELEG",
        0x200: "OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG",
        0x300: "OPEN4_SHARE_ACCESS_WANT_ANY_DELEG",
        0x400: "OPEN4_SHARE_ACCESS_WANT_NO_DELEG",
        0x500: "OPEN4_SHARE_ACCESS_WANT_CANCEL",
    },
)
SHARE_DENY = flags("share_deny", {0: "OPEN4_SHARE_DENY_NONE", 1: "OPEN4_SHARE_DENY_READ", 2: "OPEN4_SHARE_DENY_WRITE"})
OPEN4ARGS = struct(
    "OPEN4args",
    seqid=SEQID4,
    share_access=SHARE_ACCESS,
    share_deny=SHARE_DENY,
    owner=STATE_OWNER4,
    openhow=OPENFLAG4,
    claim=OPEN_CLAIM4,
)
OPEN4RESOK = struct(
    "OPEN4resok",
    stateid=STATEID4,
    cinfo=CHANGE_INFO4,
    rflags=flags(
        "rflags",
        {
            2: "OPEN4_RESULT_CONFIRM",
            4: "OPEN4_RESULT_LOCKTYPE_POSIX",
            8: "OPEN4_RESULT_PRESERVE_UNLINKED",
            0x10: "OPEN4_RESULT_NO_OPEN_STATEID",  # RFC 9754
            0x20: "OPEN4_RESULT_MAY_NOTIFY_LOCK",
        },
    ),
    attrset=ATTRIBUTE_BITS,
    delegation=OPEN_DELEGATION4,
)

READ4ARGS = struct("READ4args", stateid=STATEID4, offset=OFFSET4, count=COUNT4)
READ4RESOK = struct("READ4resok", eof=BOOL, data=DATA4)
WRITE4ARGS = struct("WRITE4args", stateid=STATEID4, offset=OFFSET4, stable=STABLE_HOW4, data=DATA4)
READDIR4ARGS = struct(
    "READDIR4args",
    cookie=NFS_COOKIE4,
    cookieverf=VERIFIER4,
    dircount=COUNT4,
    maxcount=COUNT4,
    attr_request=ATTRIBUTE_BITS,
)
ENTRY4 = struct("entry4", cookie=NFS_COOKIE4, name=COMPONENT4, attrs=FATTR4)
READDIR4RESOK = struct("READDIR4resok", cookieverf=VERIFIER4, entries=linked(ENTRY4), eof=BOOL)

# 18.29
RPCSEC_GSS_INFO = struct("rpcsec_gss_info", oid=SEC_OID4, qop=UINT32, service=RPC_GSS_SVC)
SECINFO4RESOK = array(union_or("secinfo4", "flavor", FLAVORS, {6: ("flavor_info", RPCSEC_GSS_INFO)}))
SETCLIENTID4RESOK = struct("SETCLIENTID4resok", clientid=CLIENTID4, setclientid_confirm=VERIFIER4)
CB_CLIENT4 = struct("cb_client4", cb_program=XdrInteger("uint32_t", form=HEXADECIMAL), cb_location=NETADDR4)
NFS_CLIENT_ID4 = struct(
    "nfs_client_id4", verifier=VERIFIER4, id=XdrOpaque("id", OPAQUE, maximum=1024)
)  # fmt: skip


def operation(
    name: str,
    section: str,
    arguments: XdrStruct | None = None,
    ok: XdrArm = None,
    others: dict[int, XdrArm] | None = None,
    failed: XdrArm = None,
) -> OperationShape:
    """``others``: what follows some statuses, ``failed``: what follows all the rest."""
    return OperationShape(name, arguments, result(f"{name}4res", NFSSTAT4, ok, failed, others), section)


_NAME = struct("component4", objname=COMPONENT4)
_ATTRSSET = ("attrsset", ATTRIBUTE_BITS)
_FATTR = struct("obj_attributes", obj_attributes=FATTR4)
_DENIED: dict[int, XdrArm] = {10010: ("denied", LOCK4DENIED)}
_CINFO = ("cinfo", CHANGE_INFO4)

OPERATIONS: dict[int, OperationShape] = {
    3: operation(
        "ACCESS",
        "18.1",
        struct("ACCESS4args", access=ACCESS4),
        struct("ACCESS4resok", supported=ACCESS4, access=ACCESS4),
    ),
    4: operation(
        "CLOSE", "18.2", struct("CLOSE4args", seqid=SEQID4, open_stateid=STATEID4), ("open_stateid", STATEID4)
    ),
    5: operation(
        "COMMIT",
        "18.3",
        struct("COMMIT4args", offset=OFFSET4, count=COUNT4_OR_REST),
        struct("COMMIT4resok", writeverf=VERIFIER4),
    ),
    6: operation("CREATE", "18.4", CREATE4ARGS, struct("CREATE4resok", cinfo=CHANGE_INFO4, attrset=ATTRIBUTE_BITS)),
    7: operation("DELEGPURGE", "18.5", struct("DELEGPURGE4args", clientid=CLIENTID4)),
    8: operation("DELEGRETURN", "18.6", struct("DELEGRETURN4args", deleg_stateid=STATEID4)),
    9: operation("GETATTR", "18.7", struct("GETATTR4args", attr_request=ATTRIBUTE_BITS), _FATTR),
    10: operation("GETFH", "18.8", None, struct("GETFH4resok", object=NFS_FH4)),
    11: operation("LINK", "18.9", struct("LINK4args", newname=COMPONENT4), _CINFO),
    12: operation(
        "LOCK",
        "18.10",
        struct("LOCK4args", locktype=NFS_LOCK_TYPE4, reclaim=BOOL, offset=OFFSET4, length=LENGTH4, locker=LOCKER4),
        ("lock_stateid", STATEID4),
        _DENIED,
    ),
    13: operation(
        "LOCKT",
        "18.11",
        struct("LOCKT4args", locktype=NFS_LOCK_TYPE4, offset=OFFSET4, length=LENGTH4, owner=STATE_OWNER4),
        None,
        _DENIED,
    ),
    14: operation(
        "LOCKU",
        "18.12",
        struct(
            "LOCKU4args",
            locktype=NFS_LOCK_TYPE4,
            seqid=SEQID4,
            lock_stateid=STATEID4,
            offset=OFFSET4,
            length=LENGTH4,
        ),
        ("lock_stateid", STATEID4),
    ),
    15: operation("LOOKUP", "18.13", _NAME),
    16: operation("LOOKUPP", "18.14"),
    17: operation("NVERIFY", "18.15", _FATTR),
    18: operation("OPEN", "18.16", OPEN4ARGS, OPEN4RESOK),
    19: operation("OPENATTR", "18.17", struct("OPENATTR4args", createdir=BOOL)),
    20: operation(
        "OPEN_CONFIRM",
        "RFC 7530, 16.18",
        struct("OPEN_CONFIRM4args", open_stateid=STATEID4, seqid=SEQID4),
        ("open_stateid", STATEID4),
    ),
    21: operation(
        "OPEN_DOWNGRADE",
        "18.18",
        struct(
            "OPEN_DOWNGRADE4args",
            open_stateid=STATEID4,
            seqid=SEQID4,
            share_access=SHARE_ACCESS,
            share_deny=SHARE_DENY,
        ),
        ("open_stateid", STATEID4),
    ),
    22: operation("PUTFH", "18.19", struct("PUTFH4args", object=NFS_FH4)),
    23: operation("PUTPUBFH", "18.20"),
    24: operation("PUTROOTFH", "18.21"),
    25: operation("READ", "18.22", READ4ARGS, READ4RESOK),
    26: operation("READDIR", "18.23", READDIR4ARGS, READDIR4RESOK),
    27: operation("READLINK", "18.24", None, struct("READLINK4resok", link=LINKTEXT4)),
    28: operation("REMOVE", "18.25", struct("REMOVE4args", target=COMPONENT4), _CINFO),
    29: operation(
        "RENAME",
        "18.26",
        struct("RENAME4args", oldname=COMPONENT4, newname=COMPONENT4),
        struct("RENAME4resok", source_cinfo=CHANGE_INFO4, target_cinfo=CHANGE_INFO4),
    ),
    30: operation("RENEW", "RFC 7530, 16.28", struct("RENEW4args", clientid=CLIENTID4)),
    31: operation("RESTOREFH", "18.27"),
    32: operation("SAVEFH", "18.28"),
    33: operation("SECINFO", "18.29", struct("SECINFO4args", name=COMPONENT4), ("resok4", SECINFO4RESOK)),
    34: operation(
        "SETATTR",
        "18.30",
        struct("SETATTR4args", stateid=STATEID4, obj_attributes=FATTR4),
        _ATTRSSET,
        failed=_ATTRSSET,
    ),
    35: operation(
        "SETCLIENTID",
        "RFC 7530, 16.33",
        struct("SETCLIENTID4args", client=NFS_CLIENT_ID4, callback=CB_CLIENT4, callback_ident=UINT32),
        SETCLIENTID4RESOK,
        {10017: ("client_using", NETADDR4)},
    ),
    36: operation(
        "SETCLIENTID_CONFIRM",
        "RFC 7530, 16.34",
        struct("SETCLIENTID_CONFIRM4args", clientid=CLIENTID4, setclientid_confirm=VERIFIER4),
    ),
    37: operation("VERIFY", "18.31", _FATTR),
    38: operation(
        "WRITE",
        "18.32",
        WRITE4ARGS,
        struct("WRITE4resok", count=COUNT4, committed=STABLE_HOW4, writeverf=VERIFIER4),
    ),
    39: operation("RELEASE_LOCKOWNER", "RFC 7530, 16.37", struct("RELEASE_LOCKOWNER4args", lock_owner=STATE_OWNER4)),
    10044: operation("ILLEGAL", "18.52"),
}
