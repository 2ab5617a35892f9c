"""Types that the operations of NFSv4 share (RFC 7530, RFC 8881, RFC 7862)."""

from __future__ import annotations

from ..statuses import NFS4_STATUS
from .types import (
    BOOL,
    DATA,
    HANDLE,
    HEXADECIMAL,
    INT64,
    TEXT,
    TO_END_OF_FILE,
    UINT32,
    UINT64,
    XdrBitmap,
    XdrInteger,
    XdrOpaque,
    address,
    array,
    enum,
    fixed,
    flags,
    string,
    struct,
    union,
    union_or,
)

OPERATION_NAMES: dict[int, str] = {}
"""Names of operations of COMPOUND; ``nfs4`` fills it."""

# RFC 8881, 3.2
NFSSTAT4 = enum("nfsstat4", {**NFS4_STATUS, 0: "NFS4_OK"})
CHANGEID4 = XdrInteger("changeid4", 8)
CLIENTID4 = XdrInteger("clientid4", 8, form=HEXADECIMAL)
COUNT4 = XdrInteger("count4")
COUNT4_OR_REST = XdrInteger("count4", meanings={0: TO_END_OF_FILE})
"""The count of COMMIT, COPY, CLONE, IO_ADVISE: 0 means everything after the offset."""
LENGTH4 = XdrInteger("length4", 8, meanings={(1 << 64) - 1: TO_END_OF_FILE})
LENGTH4_OR_REST = XdrInteger("length4", 8, meanings={0: TO_END_OF_FILE})
MODE4 = XdrInteger("mode4", form="octal")
NFS_COOKIE4 = XdrInteger("nfs_cookie4", 8)
OFFSET4 = XdrInteger("offset4", 8)
SEQID4 = XdrInteger("seqid4")
SEQUENCEID4 = XdrInteger("sequenceid4")
SLOTID4 = XdrInteger("slotid4")
SESSIONID4 = fixed("sessionid4", 16)
VERIFIER4 = fixed("verifier4", 8)
DEVICEID4 = fixed("deviceid4", 16)
NFS_FH4 = XdrOpaque("nfs_fh4", HANDLE, maximum=128)
COMPONENT4 = string("component4")
LINKTEXT4 = string("linktext4")
PATHNAME4 = array(COMPONENT4)
UTF8_MIXED = string("utf8str_mixed")
UTF8_CS = string("utf8str_cs")
SEC_OID4 = XdrOpaque("sec_oid4")
DATA4 = XdrOpaque("data4", DATA)

NFS_FTYPE4 = enum(
    "nfs_ftype4",
    {
        1: "NF4REG",
        2: "NF4DIR",
        3: "NF4BLK",
        4: "NF4CHR",
        5: "NF4LNK",
        6: "NF4SOCK",
        7: "NF4FIFO",
        8: "NF4ATTRDIR",
        9: "NF4NAMEDATTR",
    },
)

# RFC 8881, 3.3
NFSTIME4 = struct("nfstime4", seconds=INT64, nseconds=UINT32)
SETTIME4 = union_or(
    "settime4",
    "set_it",
    enum("time_how4", {0: "SET_TO_SERVER_TIME4", 1: "SET_TO_CLIENT_TIME4"}),
    {1: ("time", NFSTIME4)},
)
SPECDATA4 = struct("specdata4", specdata1=UINT32, specdata2=UINT32)
FSID4 = struct("fsid4", major=UINT64, minor=UINT64)
CHANGE_INFO4 = struct("change_info4", atomic=BOOL, before=CHANGEID4, after=CHANGEID4)
NETADDR4 = struct("netaddr4", na_r_netid=string("r_netid"), na_r_addr=address("r_addr"))
STATEID4 = struct("stateid4", seqid=UINT32, other=fixed("stateid4.other", 12))
OWNER4 = XdrOpaque("owner", maximum=1024)
STATE_OWNER4 = struct("state_owner4", clientid=CLIENTID4, owner=OWNER4)
NFS_IMPL_ID4 = struct(
    "nfs_impl_id4", nii_domain=UTF8_MIXED, nii_name=UTF8_CS, nii_date=NFSTIME4
)  # fmt: skip

# RFC 8881, 3.3.13 to 3.3.20, and 13, 17.6 of RFC 7862
LAYOUTTYPE4 = enum(
    "layouttype4",
    {
        1: "LAYOUT4_NFSV4_1_FILES",
        2: "LAYOUT4_OSD2_OBJECTS",
        3: "LAYOUT4_BLOCK_VOLUME",
        4: "LAYOUT4_FLEX_FILES",
        5: "LAYOUT4_SCSI",
    },
)
LAYOUTIOMODE4 = enum("layoutiomode4", {1: "LAYOUTIOMODE4_READ", 2: "LAYOUTIOMODE4_RW", 3: "LAYOUTIOMODE4_ANY"})
LAYOUTRETURN_TYPE4 = enum(
    "layoutreturn_type4", {1: "LAYOUTRETURN4_FILE", 2: "LAYOUTRETURN4_FSID", 3: "LAYOUTRETURN4_ALL"}
)

# RFC 8881, 6.2.1
ACETYPE4 = enum(
    "acetype4",
    {
        0: "ACE4_ACCESS_ALLOWED_ACE_TYPE",
        1: "ACE4_ACCESS_DENIED_ACE_TYPE",
        2: "ACE4_SYSTEM_AUDIT_ACE_TYPE",
        3: "ACE4_SYSTEM_ALARM_ACE_TYPE",
    },
)
ACEFLAG4 = flags(
    "aceflag4",
    {
        1: "ACE4_FILE_INHERIT_ACE",
        2: "ACE4_DIRECTORY_INHERIT_ACE",
        4: "ACE4_NO_PROPAGATE_INHERIT_ACE",
        8: "ACE4_INHERIT_ONLY_ACE",
        0x10: "ACE4_SUCCESSFUL_ACCESS_ACE_FLAG",
        0x20: "ACE4_FAILED_ACCESS_ACE_FLAG",
        0x40: "ACE4_IDENTIFIER_GROUP",
        0x80: "ACE4_INHERITED_ACE",
    },
)
ACEMASK4 = flags(
    "acemask4",
    {
        1: "ACE4_READ_DATA",
        2: "ACE4_WRITE_DATA",
        4: "ACE4_APPEND_DATA",
        8: "ACE4_READ_NAMED_ATTRS",
        0x10: "ACE4_WRITE_NAMED_ATTRS",
        0x20: "ACE4_EXECUTE",
        0x40: "ACE4_DELETE_CHILD",
        0x80: "ACE4_READ_ATTRIBUTES",
        0x100: "ACE4_WRITE_ATTRIBUTES",
        0x200: "ACE4_WRITE_RETENTION",
        0x400: "ACE4_WRITE_RETENTION_HOLD",
        0x10000: "ACE4_DELETE",
        0x20000: "ACE4_READ_ACL",
        0x40000: "ACE4_WRITE_ACL",
        0x80000: "ACE4_WRITE_OWNER",
        0x100000: "ACE4_SYNCHRONIZE",
    },
)
NFSACE4 = struct("nfsace4", type=ACETYPE4, flag=ACEFLAG4, access_mask=ACEMASK4, who=UTF8_MIXED)
NFSACL41 = struct(
    "nfsacl41",
    na41_flag=flags("aclflag4", {1: "ACL4_AUTO_INHERIT", 2: "ACL4_PROTECTED", 4: "ACL4_DEFAULTED"}),
    na41_aces=array(NFSACE4),
)

# RFC 8881, 18.16; RFC 9754
OPEN_READ_DELEGATION4 = struct("open_read_delegation4", stateid=STATEID4, recall=BOOL, permissions=NFSACE4)
NFS_SPACE_LIMIT4 = union(
    "nfs_space_limit4",
    "limitby",
    enum("limit_by4", {1: "NFS_LIMIT_SIZE", 2: "NFS_LIMIT_BLOCKS"}),
    {
        1: ("filesize", UINT64),
        2: struct("nfs_modified_limit4", num_blocks=UINT32, bytes_per_block=UINT32),
    },
)
OPEN_WRITE_DELEGATION4 = struct(
    "open_write_delegation4", stateid=STATEID4, recall=BOOL, space_limit=NFS_SPACE_LIMIT4, permissions=NFSACE4
)
WHY_NO_DELEGATION4 = enum(
    "why_no_delegation4",
    {
        0: "WND4_NOT_WANTED",
        1: "WND4_CONTENTION",
        2: "WND4_RESOURCE",
        3: "WND4_NOT_SUPP_FTYPE",
        4: "WND4_WRITE_DELEG_NOT_SUPP_FTYPE",
        5: "WND4_NOT_SUPP_UPGRADE",
        6: "WND4_NOT_SUPP_DOWNGRADE",
        7: "WND4_CANCELLED",
        8: "WND4_IS_DIR",
    },
)
OPEN_NONE_DELEGATION4 = union_or(
    "open_none_delegation4",
    "ond_why",
    WHY_NO_DELEGATION4,
    {1: ("ond_server_will_push_deleg", BOOL), 2: ("ond_server_will_signal_avail", BOOL)},
)
OPEN_DELEGATION_TYPE4 = enum(
    "open_delegation_type4",
    {
        0: "OPEN_DELEGATE_NONE",
        1: "OPEN_DELEGATE_READ",
        2: "OPEN_DELEGATE_WRITE",
        3: "OPEN_DELEGATE_NONE_EXT",
        4: "OPEN_DELEGATE_READ_ATTRS_DELEG",
        5: "OPEN_DELEGATE_WRITE_ATTRS_DELEG",
    },
)
OPEN_DELEGATION4 = union(
    "open_delegation4",
    "delegation_type",
    OPEN_DELEGATION_TYPE4,
    {
        0: None,
        1: OPEN_READ_DELEGATION4,
        2: OPEN_WRITE_DELEGATION4,
        3: ("od_whynone", OPEN_NONE_DELEGATION4),
        4: OPEN_READ_DELEGATION4,
        5: OPEN_WRITE_DELEGATION4,
    },
)

# RFC 7862, 4.7, 15.2 and 15.12
NETLOC4 = union(
    "netloc4",
    "nl_type",
    enum("netloc_type4", {1: "NL4_NAME", 2: "NL4_URL", 3: "NL4_NETADDR"}),
    {1: ("nl_name", UTF8_CS), 2: ("nl_url", UTF8_CS), 3: NETADDR4},
)
STABLE_HOW4 = enum("stable_how4", {0: "UNSTABLE4", 1: "DATA_SYNC4", 2: "FILE_SYNC4"})
WRITE_RESPONSE4 = struct(
    "write_response4",
    wr_callback_id=array(STATEID4, 1),
    wr_count=LENGTH4,
    wr_committed=STABLE_HOW4,
    wr_writeverf=VERIFIER4,
)

# RFC 8881, 20.4
NOTIFY_BITS = XdrBitmap(
    "bitmap4",
    {
        0: "NOTIFY4_CHANGE_CHILD_ATTRS",
        1: "NOTIFY4_CHANGE_DIR_ATTRS",
        2: "NOTIFY4_REMOVE_ENTRY",
        3: "NOTIFY4_ADD_ENTRY",
        4: "NOTIFY4_RENAME_ENTRY",
        5: "NOTIFY4_CHANGE_COOKIE_VERIFIER",
    },
)
NOTIFY_DEVICEID_BITS = XdrBitmap("bitmap4", {1: "NOTIFY_DEVICEID4_CHANGE", 2: "NOTIFY_DEVICEID4_DELETE"})

# RFC 8881, 18.33; RFC 5531, appendix A
AUTHSYS_PARMS = struct(
    "authsys_parms",
    stamp=XdrInteger("uint32_t", form=HEXADECIMAL),
    machinename=XdrOpaque("machinename", TEXT, maximum=255),
    uid=UINT32,
    gid=UINT32,
    gids=array(UINT32, 16),
)
RPC_GSS_SVC = enum(
    "rpc_gss_svc_t",
    {
        1: "RPC_GSS_SVC_NONE",
        2: "RPC_GSS_SVC_INTEGRITY",
        3: "RPC_GSS_SVC_PRIVACY",
        4: "RPC_GSS_SVC_CHANNEL_PROT",
    },
)

# RFC 7862, 12.2.4
LABELFORMAT_SPEC4 = struct("labelformat_spec4", lfs_lfs=UINT32, lfs_pi=UINT32)
