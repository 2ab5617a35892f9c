"""Shapes of the arguments of NFSv4 operations, and of callback operations.

RFC 7531 (4.0), RFC 5662 (4.1), RFC 7863 (4.2) and RFC 8276 (extended attributes).  A row is an operation
number, its name and the shape of its arguments; sections are those of RFC 8881 (operations 3 to 58), RFC 7862
(59 to 71) and RFC 8276 (72 to 75), and of RFC 7530 where only version 4.0 has the operation.
"""

from __future__ import annotations

from .xdr import Shape, array, opaque, struct, union

INT, HYPER, BOOL = 4, 8, 4
STATEID = 16  # RFC 8881, 3.3.12: seqid and twelve bytes
VERIFIER = 8
SESSIONID = 16
DEVICEID = 16
NFSTIME = 12  # RFC 8881, 3.3.1
CHANGE_INFO = 20  # RFC 8881, 3.3.3: atomic, before, after

BITMAP = array(INT)
FATTR = struct(BITMAP, opaque)  # RFC 8881, 3.3.7
STATE_OWNER = struct(HYPER, opaque)
NETADDR = struct(opaque, opaque)
# RFC 7862, 4.7: NL4_NAME, NL4_URL, NL4_NETADDR
NETLOC = union({1: opaque, 2: opaque, 3: NETADDR})
# RFC 8881, 6.2.1: type, flag, access mask, who
ACE = struct(3 * INT, opaque)
# RFC 8881, 18.16: OPEN_DELEGATE_NONE, READ, WRITE, NONE_EXT
SPACE_LIMIT = union({1: HYPER, 2: 2 * INT})
DELEGATION = union(
    {
        0: 0,
        1: struct(STATEID, BOOL, ACE),
        2: struct(STATEID, BOOL, SPACE_LIMIT, ACE),
        3: union({1: BOOL, 2: BOOL}, 0),
        # RFC 9754: OPEN_DELEGATE_READ_ATTRS_DELEG and OPEN_DELEGATE_WRITE_ATTRS_DELEG
        4: struct(STATEID, BOOL, ACE),
        5: struct(STATEID, BOOL, SPACE_LIMIT, ACE),
    }
)
# RFC 8881, 18.36: ca_headerpadsize to ca_maxrequests, then ca_rdma_ird<1>
CHANNEL_ATTRS = struct(6 * INT, array(INT))
# RFC 8881, 18.33: AUTH_NONE, AUTH_SYS, RPCSEC_GSS
CALLBACK_SECURITY = union(
    {
        0: 0,
        1: struct(INT, opaque, 2 * INT, array(INT)),
        6: struct(INT, opaque, opaque),
    }
)
# RFC 8881, 18.35: SP4_NONE, SP4_MACH_CRED, SP4_SSV
STATE_PROTECT = union(
    {
        0: 0,
        1: struct(BITMAP, BITMAP),
        2: struct(BITMAP, BITMAP, array(opaque), array(opaque), 2 * INT),
    }
)
IMPL_ID = array(struct(opaque, opaque, NFSTIME))
NOTIFY = struct(BITMAP, opaque)  # RFC 8881, 20.4
# RFC 7862, 15.2 and 15.12: wr_callback_id<1>, wr_count, wr_committed, wr_writeverf
WRITE_RESPONSE = struct(array(STATEID), HYPER + INT + VERIFIER)

# RFC 8881, 18.16: UNCHECKED4, GUARDED4, EXCLUSIVE4, EXCLUSIVE4_1
_CREATE_HOW = union({0: FATTR, 1: FATTR, 2: VERIFIER, 3: struct(VERIFIER, FATTR)})
OPEN_HEAD = struct(3 * INT, STATE_OWNER)
OPEN_HOW = union({1: _CREATE_HOW}, 0)
OPEN_CLAIM = union({0: opaque, 1: INT, 2: struct(STATEID, opaque), 3: opaque, 4: 0, 5: STATEID, 6: 0})
# RFC 8881, 18.4: NF4LNK has the link's text, NF4BLK and NF4CHR a device
CREATE_TYPE = union({5: opaque, 3: 2 * INT, 4: 2 * INT}, 0)
_LAYOUT_UPDATE = struct(INT, opaque)

ARGUMENTS: dict[int, tuple[str, Shape]] = {
    3: ("ACCESS", INT),  # 18.1
    4: ("CLOSE", INT + STATEID),  # 18.2
    5: ("COMMIT", HYPER + INT),  # 18.3
    6: ("CREATE", struct(CREATE_TYPE, opaque, FATTR)),  # 18.4
    7: ("DELEGPURGE", HYPER),  # 18.5
    8: ("DELEGRETURN", STATEID),  # 18.6
    9: ("GETATTR", BITMAP),  # 18.7
    10: ("GETFH", 0),  # 18.8
    11: ("LINK", opaque),  # 18.9
    12: (
        "LOCK",  # 18.10
        struct(
            2 * INT + 2 * HYPER,
            union({1: struct(INT + STATEID + INT, STATE_OWNER), 0: STATEID + INT}),
        ),
    ),
    13: ("LOCKT", struct(INT + 2 * HYPER, STATE_OWNER)),  # 18.11
    14: ("LOCKU", 2 * INT + STATEID + 2 * HYPER),  # 18.12
    15: ("LOOKUP", opaque),  # 18.13
    16: ("LOOKUPP", 0),  # 18.14
    17: ("NVERIFY", FATTR),  # 18.15
    18: (
        "OPEN",  # 18.16
        struct(OPEN_HEAD, OPEN_HOW, OPEN_CLAIM),
    ),
    19: ("OPENATTR", BOOL),  # 18.17
    20: ("OPEN_CONFIRM", STATEID + INT),  # RFC 7530, 16.18
    21: ("OPEN_DOWNGRADE", STATEID + 3 * INT),  # 18.18
    22: ("PUTFH", opaque),  # 18.19
    23: ("PUTPUBFH", 0),  # 18.20
    24: ("PUTROOTFH", 0),  # 18.21
    25: ("READ", STATEID + HYPER + INT),  # 18.22
    26: ("READDIR", struct(HYPER + VERIFIER + 2 * INT, BITMAP)),  # 18.23
    27: ("READLINK", 0),  # 18.24
    28: ("REMOVE", opaque),  # 18.25
    29: ("RENAME", struct(opaque, opaque)),  # 18.26
    30: ("RENEW", HYPER),  # RFC 7530, 16.28
    31: ("RESTOREFH", 0),  # 18.27
    32: ("SAVEFH", 0),  # 18.28
    33: ("SECINFO", opaque),  # 18.29
    34: ("SETATTR", struct(STATEID, FATTR)),  # 18.30
    35: ("SETCLIENTID", struct(VERIFIER, opaque, INT, NETADDR, INT)),  # RFC 7530, 16.33
    36: ("SETCLIENTID_CONFIRM", HYPER + VERIFIER),  # RFC 7530, 16.34
    37: ("VERIFY", FATTR),  # 18.31
    38: ("WRITE", struct(STATEID + HYPER + INT, opaque)),  # 18.32
    39: ("RELEASE_LOCKOWNER", STATE_OWNER),  # RFC 7530, 16.37
    40: ("BACKCHANNEL_CTL", struct(INT, array(CALLBACK_SECURITY))),  # 18.33
    41: ("BIND_CONN_TO_SESSION", SESSIONID + 2 * INT),  # 18.34
    42: ("EXCHANGE_ID", struct(VERIFIER, opaque, INT, STATE_PROTECT, IMPL_ID)),  # 18.35
    43: (
        "CREATE_SESSION",  # 18.36
        struct(HYPER + 2 * INT, CHANNEL_ATTRS, CHANNEL_ATTRS, INT, array(CALLBACK_SECURITY)),
    ),
    44: ("DESTROY_SESSION", SESSIONID),  # 18.37
    45: ("FREE_STATEID", STATEID),  # 18.38
    46: ("GET_DIR_DELEGATION", struct(BOOL, BITMAP, 2 * NFSTIME, BITMAP, BITMAP)),  # 18.39
    47: ("GETDEVICEINFO", struct(DEVICEID + 2 * INT, BITMAP)),  # 18.40
    48: ("GETDEVICELIST", 2 * INT + HYPER + VERIFIER),  # 18.41
    49: (
        "LAYOUTCOMMIT",  # 18.42
        struct(
            2 * HYPER + BOOL + STATEID,
            union({1: HYPER, 0: 0}),
            union({1: NFSTIME, 0: 0}),
            _LAYOUT_UPDATE,
        ),
    ),
    50: ("LAYOUTGET", 3 * INT + 3 * HYPER + STATEID + INT),  # 18.43
    51: ("LAYOUTRETURN", struct(3 * INT, union({1: struct(2 * HYPER + STATEID, opaque)}, 0))),  # 18.44
    52: ("SECINFO_NO_NAME", INT),  # 18.45
    53: ("SEQUENCE", SESSIONID + 4 * INT),  # 18.46
    54: ("SET_SSV", struct(opaque, opaque)),  # 18.47
    55: ("TEST_STATEID", array(STATEID)),  # 18.48
    56: ("WANT_DELEGATION", struct(INT, union({4: 0, 6: 0, 1: INT}))),  # 18.49
    57: ("DESTROY_CLIENTID", HYPER),  # 18.50
    58: ("RECLAIM_COMPLETE", BOOL),  # 18.51
    59: ("ALLOCATE", STATEID + 2 * HYPER),  # 15.1
    60: ("COPY", struct(2 * STATEID + 3 * HYPER + 2 * BOOL, array(NETLOC))),  # 15.2
    61: ("COPY_NOTIFY", struct(STATEID, NETLOC)),  # 15.3
    62: ("DEALLOCATE", STATEID + 2 * HYPER),  # 15.4
    63: ("IO_ADVISE", struct(STATEID + 2 * HYPER, BITMAP)),  # 15.5
    64: ("LAYOUTERROR", struct(2 * HYPER + STATEID, array(DEVICEID + 2 * INT))),  # 15.6
    65: ("LAYOUTSTATS", struct(2 * HYPER + STATEID + 4 * HYPER + DEVICEID, _LAYOUT_UPDATE)),  # 15.7
    66: ("OFFLOAD_CANCEL", STATEID),  # 15.8
    67: ("OFFLOAD_STATUS", STATEID),  # 15.9
    68: ("READ_PLUS", STATEID + HYPER + INT),  # 15.10
    69: ("SEEK", STATEID + HYPER + INT),  # 15.11
    70: ("WRITE_SAME", struct(STATEID + INT + 4 * HYPER + INT + HYPER, opaque)),  # 15.12
    71: ("CLONE", 2 * STATEID + 3 * HYPER),  # 15.13
    72: ("GETXATTR", opaque),  # 8.4.1
    73: ("SETXATTR", struct(INT, opaque, opaque)),  # 8.4.2
    74: ("LISTXATTRS", HYPER + INT),  # 8.4.3
    75: ("REMOVEXATTR", opaque),  # 8.4.4
    10044: ("ILLEGAL", 0),  # 18.52
}

# RFC 8881, 20.3: LAYOUTRECALL4_FILE, _FSID, _ALL
_LAYOUT_RECALL = union({1: struct(opaque, 2 * HYPER + STATEID), 2: 2 * HYPER, 3: 0})

CALLBACK_ARGUMENTS: dict[int, tuple[str, Shape]] = {
    3: ("CB_GETATTR", struct(opaque, BITMAP)),  # RFC 8881, 20.1
    4: ("CB_RECALL", struct(STATEID + BOOL, opaque)),  # 20.2
    5: ("CB_LAYOUTRECALL", struct(3 * INT, _LAYOUT_RECALL)),  # 20.3
    6: ("CB_NOTIFY", struct(STATEID, opaque, array(NOTIFY))),  # 20.4
    7: ("CB_PUSH_DELEG", struct(opaque, DELEGATION)),  # 20.5
    8: ("CB_RECALL_ANY", struct(INT, BITMAP)),  # 20.6
    9: ("CB_RECALLABLE_OBJ_AVAIL", struct(INT, BITMAP)),  # 20.7
    10: ("CB_RECALL_SLOT", INT),  # 20.8
    11: (
        "CB_SEQUENCE",  # 20.9
        struct(SESSIONID + 4 * INT, array(struct(SESSIONID, array(2 * INT)))),
    ),
    12: ("CB_WANTS_CANCELLED", 2 * BOOL),  # 20.10
    13: ("CB_NOTIFY_LOCK", struct(opaque, STATE_OWNER)),  # 20.11
    14: ("CB_NOTIFY_DEVICEID", array(NOTIFY)),  # 20.12
    15: ("CB_OFFLOAD", struct(opaque, STATEID, union({0: WRITE_RESPONSE}, HYPER))),  # RFC 7862, 16.1
    10044: ("CB_ILLEGAL", 0),  # 20.13
}
