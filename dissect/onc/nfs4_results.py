"""Shapes of the results of NFSv4 operations, and of callback operations.

A result begins with the operation number and its status; the shape is what follows where the status is
NFS4_OK. ``FAILURES`` has what follows another status, where that is anything at all.  Sections as in
``nfs4_args``.
"""

from __future__ import annotations

from .nfs4_args import (
    BITMAP,
    BOOL,
    CHANGE_INFO,
    CHANNEL_ATTRS,
    DELEGATION,
    DEVICEID,
    FATTR,
    HYPER,
    IMPL_ID,
    INT,
    NETADDR,
    NETLOC,
    NFSTIME,
    SESSIONID,
    STATE_OWNER,
    STATEID,
    VERIFIER,
    WRITE_RESPONSE,
)
from .xdr import Shape, array, chain, opaque, struct, union

# RFC 8881, 18.29: RPCSEC_GSS (6) names mechanism, quality and service
_SECINFO = array(union({6: struct(opaque, 2 * INT)}, 0))
# RFC 8881, 18.35: SP4_NONE, SP4_MACH_CRED, SP4_SSV
_STATE_PROTECT = union({0: 0, 1: struct(BITMAP, BITMAP), 2: struct(BITMAP, BITMAP, 4 * INT, array(opaque))})
# RFC 8881, 18.39: GDD4_OK, GDD4_UNAVAIL
_DIR_DELEGATION = union({0: struct(VERIFIER + STATEID, BITMAP, BITMAP, BITMAP), 1: BOOL})
# RFC 8881, 3.3.13: offset, length, iomode, type, body
_LAYOUT = struct(2 * HYPER + 2 * INT, opaque)
# RFC 7862, 15.10: NFS4_CONTENT_DATA, NFS4_CONTENT_HOLE
_READ_PLUS = union({0: struct(HYPER, opaque), 1: 2 * HYPER}, 0)
_LOCK_DENIED = struct(2 * HYPER + INT, STATE_OWNER)

RESULTS: dict[int, Shape] = {
    3: 2 * INT,  # ACCESS, 18.1
    4: STATEID,  # CLOSE, 18.2
    5: VERIFIER,  # COMMIT, 18.3
    6: struct(CHANGE_INFO, BITMAP),  # CREATE, 18.4
    7: 0,  # DELEGPURGE, 18.5
    8: 0,  # DELEGRETURN, 18.6
    9: FATTR,  # GETATTR, 18.7
    10: opaque,  # GETFH, 18.8
    11: CHANGE_INFO,  # LINK, 18.9
    12: STATEID,  # LOCK, 18.10
    13: 0,  # LOCKT, 18.11
    14: STATEID,  # LOCKU, 18.12
    15: 0,  # LOOKUP, 18.13
    16: 0,  # LOOKUPP, 18.14
    17: 0,  # NVERIFY, 18.15
    18: struct(STATEID + CHANGE_INFO + INT, BITMAP, DELEGATION),  # OPEN, 18.16
    19: 0,  # OPENATTR, 18.17
    20: STATEID,  # OPEN_CONFIRM, RFC 7530, 16.18
    21: STATEID,  # OPEN_DOWNGRADE, 18.18
    22: 0,  # PUTFH, 18.19
    23: 0,  # PUTPUBFH, 18.20
    24: 0,  # PUTROOTFH, 18.21
    25: struct(BOOL, opaque),  # READ, 18.22
    26: struct(VERIFIER, chain(struct(HYPER, opaque, FATTR)), BOOL),  # READDIR, 18.23
    27: opaque,  # READLINK, 18.24
    28: CHANGE_INFO,  # REMOVE, 18.25
    29: 2 * CHANGE_INFO,  # RENAME, 18.26
    30: 0,  # RENEW, RFC 7530, 16.28
    31: 0,  # RESTOREFH, 18.27
    32: 0,  # SAVEFH, 18.28
    33: _SECINFO,  # SECINFO, 18.29
    34: BITMAP,  # SETATTR, 18.30
    35: HYPER + VERIFIER,  # SETCLIENTID, RFC 7530, 16.33
    36: 0,  # SETCLIENTID_CONFIRM, RFC 7530, 16.34
    37: 0,  # VERIFY, 18.31
    38: 2 * INT + VERIFIER,  # WRITE, 18.32
    39: 0,  # RELEASE_LOCKOWNER, RFC 7530, 16.37
    40: 0,  # BACKCHANNEL_CTL, 18.33
    41: SESSIONID + 2 * INT,  # BIND_CONN_TO_SESSION, 18.34
    42: struct(HYPER + 2 * INT, _STATE_PROTECT, HYPER, opaque, opaque, IMPL_ID),  # EXCHANGE_ID, 18.35
    43: struct(SESSIONID + 2 * INT, CHANNEL_ATTRS, CHANNEL_ATTRS),  # CREATE_SESSION, 18.36
    44: 0,  # DESTROY_SESSION, 18.37
    45: 0,  # FREE_STATEID, 18.38
    46: _DIR_DELEGATION,  # GET_DIR_DELEGATION, 18.39
    47: struct(INT, opaque, BITMAP),  # GETDEVICEINFO, 18.40
    48: struct(HYPER + VERIFIER, array(DEVICEID), BOOL),  # GETDEVICELIST, 18.41
    49: union({1: HYPER, 0: 0}),  # LAYOUTCOMMIT, 18.42
    50: struct(BOOL + STATEID, array(_LAYOUT)),  # LAYOUTGET, 18.43
    51: union({1: STATEID, 0: 0}),  # LAYOUTRETURN, 18.44
    52: _SECINFO,  # SECINFO_NO_NAME, 18.45
    53: SESSIONID + 5 * INT,  # SEQUENCE, 18.46
    54: opaque,  # SET_SSV, 18.47
    55: array(INT),  # TEST_STATEID, 18.48
    56: DELEGATION,  # WANT_DELEGATION, 18.49
    57: 0,  # DESTROY_CLIENTID, 18.50
    58: 0,  # RECLAIM_COMPLETE, 18.51
    59: 0,  # ALLOCATE, 15.1
    60: struct(WRITE_RESPONSE, 2 * BOOL),  # COPY, 15.2
    61: struct(NFSTIME + STATEID, array(NETLOC)),  # COPY_NOTIFY, 15.3
    62: 0,  # DEALLOCATE, 15.4
    63: BITMAP,  # IO_ADVISE, 15.5
    64: 0,  # LAYOUTERROR, 15.6
    65: 0,  # LAYOUTSTATS, 15.7
    66: 0,  # OFFLOAD_CANCEL, 15.8
    67: struct(HYPER, array(INT)),  # OFFLOAD_STATUS, 15.9
    68: struct(BOOL, array(_READ_PLUS)),  # READ_PLUS, 15.10
    69: BOOL + HYPER,  # SEEK, 15.11
    70: WRITE_RESPONSE,  # WRITE_SAME, 15.12
    71: 0,  # CLONE, 15.13
    72: opaque,  # GETXATTR, 8.4.1
    73: CHANGE_INFO,  # SETXATTR, 8.4.2
    74: struct(HYPER, array(opaque), BOOL),  # LISTXATTRS, 8.4.3
    75: CHANGE_INFO,  # REMOVEXATTR, 8.4.4
    10044: 0,  # ILLEGAL, 18.52
}

FAILURES: dict[tuple[int, int], Shape] = {
    (12, 10010): _LOCK_DENIED,  # LOCK, NFS4ERR_DENIED
    (13, 10010): _LOCK_DENIED,  # LOCKT, NFS4ERR_DENIED
    (35, 10017): NETADDR,  # SETCLIENTID, NFS4ERR_CLID_INUSE
    (47, 10005): INT,  # GETDEVICEINFO, NFS4ERR_TOOSMALL
    (50, 10058): BOOL,  # LAYOUTGET, NFS4ERR_LAYOUTTRYLATER
    (60, 10094): 2 * BOOL,  # COPY, NFS4ERR_OFFLOAD_NO_REQS
}

ALWAYS: dict[int, Shape] = {
    34: BITMAP,  # SETATTR: attrsset comes with every status
}

CALLBACK_RESULTS: dict[int, Shape] = {
    3: FATTR,  # CB_GETATTR, RFC 8881, 20.1
    4: 0,  # CB_RECALL, 20.2
    5: 0,  # CB_LAYOUTRECALL, 20.3
    6: 0,  # CB_NOTIFY, 20.4
    7: 0,  # CB_PUSH_DELEG, 20.5
    8: 0,  # CB_RECALL_ANY, 20.6
    9: 0,  # CB_RECALLABLE_OBJ_AVAIL, 20.7
    10: 0,  # CB_RECALL_SLOT, 20.8
    11: SESSIONID + 4 * INT,  # CB_SEQUENCE, 20.9
    12: 0,  # CB_WANTS_CANCELLED, 20.10
    13: 0,  # CB_NOTIFY_LOCK, 20.11
    14: 0,  # CB_NOTIFY_DEVICEID, 20.12
    15: 0,  # CB_OFFLOAD, RFC 7862, 16.1
    10044: 0,  # CB_ILLEGAL, 20.13
}
