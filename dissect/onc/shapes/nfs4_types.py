"""Types that the operations of NFSv4 share (RFC 7530, RFC 8881, RFC 7862)."""

from __future__ import annotations

from .language import declared
from .types import TO_END_OF_FILE, XdrInteger

OPERATION_NAMES: dict[int, str] = {}
"""Names of operations of COMPOUND; ``nfs4`` fills it."""

TYPES = declared(
    """
/* RFC 8881, 15.1; RFC 7530, 13.1; RFC 7862, 11; RFC 8276 */
enum nfsstat4 {
    NFS4_OK = 0, NFS4ERR_PERM = 1, NFS4ERR_NOENT = 2, NFS4ERR_IO = 5, NFS4ERR_NXIO = 6, NFS4ERR_ACCESS = 13,
    NFS4ERR_EXIST = 17, NFS4ERR_XDEV = 18, NFS4ERR_NOTDIR = 20, NFS4ERR_ISDIR = 21, NFS4ERR_INVAL = 22,
    NFS4ERR_FBIG = 27, NFS4ERR_NOSPC = 28, NFS4ERR_ROFS = 30, NFS4ERR_MLINK = 31, NFS4ERR_NAMETOOLONG = 63,
    NFS4ERR_NOTEMPTY = 66, NFS4ERR_DQUOT = 69, NFS4ERR_STALE = 70, NFS4ERR_BADHANDLE = 10001,
    NFS4ERR_BAD_COOKIE = 10003, NFS4ERR_NOTSUPP = 10004, NFS4ERR_TOOSMALL = 10005, NFS4ERR_SERVERFAULT = 10006,
    NFS4ERR_BADTYPE = 10007, NFS4ERR_DELAY = 10008, NFS4ERR_SAME = 10009, NFS4ERR_DENIED = 10010,
    NFS4ERR_EXPIRED = 10011, NFS4ERR_LOCKED = 10012, NFS4ERR_GRACE = 10013, NFS4ERR_FHEXPIRED = 10014,
    NFS4ERR_SHARE_DENIED = 10015, NFS4ERR_WRONGSEC = 10016, NFS4ERR_CLID_INUSE = 10017,
    NFS4ERR_RESOURCE = 10018, NFS4ERR_MOVED = 10019, NFS4ERR_NOFILEHANDLE = 10020,
    NFS4ERR_MINOR_VERS_MISMATCH = 10021, NFS4ERR_STALE_CLIENTID = 10022, NFS4ERR_STALE_STATEID = 10023,
    NFS4ERR_OLD_STATEID = 10024, NFS4ERR_BAD_STATEID = 10025, NFS4ERR_BAD_SEQID = 10026,
    NFS4ERR_NOT_SAME = 10027, NFS4ERR_LOCK_RANGE = 10028, NFS4ERR_SYMLINK = 10029, NFS4ERR_RESTOREFH = 10030,
    NFS4ERR_LEASE_MOVED = 10031, NFS4ERR_ATTRNOTSUPP = 10032, NFS4ERR_NO_GRACE = 10033,
    NFS4ERR_RECLAIM_BAD = 10034, NFS4ERR_RECLAIM_CONFLICT = 10035, NFS4ERR_BADXDR = 10036,
    NFS4ERR_LOCKS_HELD = 10037, NFS4ERR_OPENMODE = 10038, NFS4ERR_BADOWNER = 10039, NFS4ERR_BADCHAR = 10040,
    NFS4ERR_BADNAME = 10041, NFS4ERR_BAD_RANGE = 10042, NFS4ERR_LOCK_NOTSUPP = 10043,
    NFS4ERR_OP_ILLEGAL = 10044, NFS4ERR_DEADLOCK = 10045, NFS4ERR_FILE_OPEN = 10046,
    NFS4ERR_ADMIN_REVOKED = 10047, NFS4ERR_CB_PATH_DOWN = 10048, NFS4ERR_BADIOMODE = 10049,
    NFS4ERR_BADLAYOUT = 10050, NFS4ERR_BAD_SESSION_DIGEST = 10051, NFS4ERR_BADSESSION = 10052,
    NFS4ERR_BADSLOT = 10053, NFS4ERR_COMPLETE_ALREADY = 10054, NFS4ERR_CONN_NOT_BOUND_TO_SESSION = 10055,
    NFS4ERR_DELEG_ALREADY_WANTED = 10056, NFS4ERR_BACK_CHAN_BUSY = 10057, NFS4ERR_LAYOUTTRYLATER = 10058,
    NFS4ERR_LAYOUTUNAVAILABLE = 10059, NFS4ERR_NOMATCHING_LAYOUT = 10060, NFS4ERR_RECALLCONFLICT = 10061,
    NFS4ERR_UNKNOWN_LAYOUTTYPE = 10062, NFS4ERR_SEQ_MISORDERED = 10063, NFS4ERR_SEQUENCE_POS = 10064,
    NFS4ERR_REQ_TOO_BIG = 10065, NFS4ERR_REP_TOO_BIG = 10066, NFS4ERR_REP_TOO_BIG_TO_CACHE = 10067,
    NFS4ERR_RETRY_UNCACHED_REP = 10068, NFS4ERR_UNSAFE_COMPOUND = 10069, NFS4ERR_TOO_MANY_OPS = 10070,
    NFS4ERR_OP_NOT_IN_SESSION = 10071, NFS4ERR_HASH_ALG_UNSUPP = 10072, NFS4ERR_CLIENTID_BUSY = 10074,
    NFS4ERR_PNFS_IO_HOLE = 10075, NFS4ERR_SEQ_FALSE_RETRY = 10076, NFS4ERR_BAD_HIGH_SLOT = 10077,
    NFS4ERR_DEADSESSION = 10078, NFS4ERR_ENCR_ALG_UNSUPP = 10079, NFS4ERR_PNFS_NO_LAYOUT = 10080,
    NFS4ERR_NOT_ONLY_OP = 10081, NFS4ERR_WRONG_CRED = 10082, NFS4ERR_WRONG_TYPE = 10083,
    NFS4ERR_DIRDELEG_UNAVAIL = 10084, NFS4ERR_REJECT_DELEG = 10085, NFS4ERR_RETURNCONFLICT = 10086,
    NFS4ERR_DELEG_REVOKED = 10087, NFS4ERR_PARTNER_NOTSUPP = 10088, NFS4ERR_PARTNER_NO_AUTH = 10089,
    NFS4ERR_UNION_NOTSUPP = 10090, NFS4ERR_OFFLOAD_DENIED = 10091, NFS4ERR_WRONG_LFS = 10092,
    NFS4ERR_BADLABEL = 10093, NFS4ERR_OFFLOAD_NO_REQS = 10094, NFS4ERR_NOXATTR = 10095,
    NFS4ERR_XATTR2BIG = 10096
};
/* RFC 8881, 3.2 */
typedef uint64_t changeid4;
typedef hex uint64_t clientid4;
typedef uint32_t count4;
typedef octal uint32_t mode4;
typedef uint64_t nfs_cookie4;
typedef uint64_t offset4;
typedef uint32_t seqid4;
typedef uint32_t sequenceid4;
typedef uint32_t slotid4;
typedef opaque sessionid4[16];
typedef opaque verifier4[8];
typedef opaque deviceid4[16];
typedef handle nfs_fh4<128>;
typedef string component4<>;
typedef string linktext4<>;
typedef component4 pathname4<>;
typedef string utf8str_mixed<>;
typedef string utf8str_cs<>;
typedef opaque sec_oid4<>;
typedef data data4<>;
enum nfs_ftype4 {
    NF4REG = 1, NF4DIR = 2, NF4BLK = 3, NF4CHR = 4, NF4LNK = 5, NF4SOCK = 6, NF4FIFO = 7, NF4ATTRDIR = 8,
    NF4NAMEDATTR = 9
};
/* RFC 8881, 3.3 */
struct nfstime4 { int64_t seconds; uint32_t nseconds; };
enum time_how4 { SET_TO_SERVER_TIME4 = 0, SET_TO_CLIENT_TIME4 = 1 };
union settime4 switch (time_how4 set_it) { case SET_TO_CLIENT_TIME4: nfstime4 time; default: void; };
struct specdata4 { uint32_t specdata1; uint32_t specdata2; };
struct fsid4 { uint64_t major; uint64_t minor; };
struct change_info4 { bool atomic; changeid4 before; changeid4 after; };
struct netaddr4 { string na_r_netid<>; address na_r_addr<>; };
struct stateid4 { uint32_t seqid; opaque other[12]; };
typedef opaque owner<1024>;
struct state_owner4 { clientid4 clientid; owner owner; };
struct nfs_impl_id4 { utf8str_mixed nii_domain; utf8str_cs nii_name; nfstime4 nii_date; };
/* RFC 8881, 3.3.13 to 3.3.20, and 13, 17.6 of RFC 7862 */
enum layouttype4 {
    LAYOUT4_NFSV4_1_FILES = 1, LAYOUT4_OSD2_OBJECTS = 2, LAYOUT4_BLOCK_VOLUME = 3, LAYOUT4_FLEX_FILES = 4,
    LAYOUT4_SCSI = 5
};
enum layoutiomode4 { LAYOUTIOMODE4_READ = 1, LAYOUTIOMODE4_RW = 2, LAYOUTIOMODE4_ANY = 3 };
enum layoutreturn_type4 { LAYOUTRETURN4_FILE = 1, LAYOUTRETURN4_FSID = 2, LAYOUTRETURN4_ALL = 3 };
/* RFC 8881, 6.2.1 */
enum acetype4 {
    ACE4_ACCESS_ALLOWED_ACE_TYPE = 0, ACE4_ACCESS_DENIED_ACE_TYPE = 1, ACE4_SYSTEM_AUDIT_ACE_TYPE = 2,
    ACE4_SYSTEM_ALARM_ACE_TYPE = 3
};
flags aceflag4 {
    ACE4_FILE_INHERIT_ACE = 0x1, ACE4_DIRECTORY_INHERIT_ACE = 0x2, ACE4_NO_PROPAGATE_INHERIT_ACE = 0x4,
    ACE4_INHERIT_ONLY_ACE = 0x8, ACE4_SUCCESSFUL_ACCESS_ACE_FLAG = 0x10, ACE4_FAILED_ACCESS_ACE_FLAG = 0x20,
    ACE4_IDENTIFIER_GROUP = 0x40, ACE4_INHERITED_ACE = 0x80
};
flags acemask4 {
    ACE4_READ_DATA = 0x1, ACE4_WRITE_DATA = 0x2, ACE4_APPEND_DATA = 0x4, ACE4_READ_NAMED_ATTRS = 0x8,
    ACE4_WRITE_NAMED_ATTRS = 0x10, ACE4_EXECUTE = 0x20, ACE4_DELETE_CHILD = 0x40, ACE4_READ_ATTRIBUTES = 0x80,
    ACE4_WRITE_ATTRIBUTES = 0x100, ACE4_WRITE_RETENTION = 0x200, ACE4_WRITE_RETENTION_HOLD = 0x400,
    ACE4_DELETE = 0x10000, ACE4_READ_ACL = 0x20000, ACE4_WRITE_ACL = 0x40000, ACE4_WRITE_OWNER = 0x80000,
    ACE4_SYNCHRONIZE = 0x100000
};
struct nfsace4 { acetype4 type; aceflag4 flag; acemask4 access_mask; utf8str_mixed who; };
flags aclflag4 { ACL4_AUTO_INHERIT = 0x1, ACL4_PROTECTED = 0x2, ACL4_DEFAULTED = 0x4 };
struct nfsacl41 { aclflag4 na41_flag; nfsace4 na41_aces<>; };
/* RFC 8881, 18.16; RFC 9754 */
struct open_read_delegation4 { stateid4 stateid; bool recall; nfsace4 permissions; };
enum limit_by4 { NFS_LIMIT_SIZE = 1, NFS_LIMIT_BLOCKS = 2 };
struct nfs_modified_limit4 { uint32_t num_blocks; uint32_t bytes_per_block; };
union nfs_space_limit4 switch (limit_by4 limitby) {
    case NFS_LIMIT_SIZE: uint64_t filesize;
    case NFS_LIMIT_BLOCKS: nfs_modified_limit4;
};
struct open_write_delegation4 {
    stateid4 stateid; bool recall; nfs_space_limit4 space_limit; nfsace4 permissions;
};
enum why_no_delegation4 {
    WND4_NOT_WANTED = 0, WND4_CONTENTION = 1, WND4_RESOURCE = 2, WND4_NOT_SUPP_FTYPE = 3,
    WND4_WRITE_DELEG_NOT_SUPP_FTYPE = 4, WND4_NOT_SUPP_UPGRADE = 5, WND4_NOT_SUPP_DOWNGRADE = 6,
    WND4_CANCELLED = 7, WND4_IS_DIR = 8
};
union open_none_delegation4 switch (why_no_delegation4 ond_why) {
    case WND4_CONTENTION: bool ond_server_will_push_deleg;
    case WND4_RESOURCE: bool ond_server_will_signal_avail;
    default: void;
};
enum open_delegation_type4 {
    OPEN_DELEGATE_NONE = 0, OPEN_DELEGATE_READ = 1, OPEN_DELEGATE_WRITE = 2, OPEN_DELEGATE_NONE_EXT = 3,
    OPEN_DELEGATE_READ_ATTRS_DELEG = 4, OPEN_DELEGATE_WRITE_ATTRS_DELEG = 5
};
union open_delegation4 switch (open_delegation_type4 delegation_type) {
    case OPEN_DELEGATE_NONE: void;
    case OPEN_DELEGATE_READ: open_read_delegation4;
    case OPEN_DELEGATE_WRITE: open_write_delegation4;
    case OPEN_DELEGATE_NONE_EXT: open_none_delegation4 od_whynone;
    case OPEN_DELEGATE_READ_ATTRS_DELEG: open_read_delegation4;
    case OPEN_DELEGATE_WRITE_ATTRS_DELEG: open_write_delegation4;
};
/* RFC 7862, 4.7, 15.2 and 15.12 */
enum netloc_type4 { NL4_NAME = 1, NL4_URL = 2, NL4_NETADDR = 3 };
union netloc4 switch (netloc_type4 nl_type) {
    case NL4_NAME: utf8str_cs nl_name;
    case NL4_URL: utf8str_cs nl_url;
    case NL4_NETADDR: netaddr4;
};
enum stable_how4 { UNSTABLE4 = 0, DATA_SYNC4 = 1, FILE_SYNC4 = 2 };
struct write_response4 {
    stateid4 wr_callback_id<1>; length4 wr_count; stable_how4 wr_committed; verifier4 wr_writeverf;
};
/* RFC 8881, 20.4 */
bits notify_bits {
    NOTIFY4_CHANGE_CHILD_ATTRS = 0, NOTIFY4_CHANGE_DIR_ATTRS = 1, NOTIFY4_REMOVE_ENTRY = 2,
    NOTIFY4_ADD_ENTRY = 3, NOTIFY4_RENAME_ENTRY = 4, NOTIFY4_CHANGE_COOKIE_VERIFIER = 5
};
bits notify_deviceid_bits { NOTIFY_DEVICEID4_CHANGE = 1, NOTIFY_DEVICEID4_DELETE = 2 };
/* RFC 8881, 18.33; RFC 5531, appendix A */
struct authsys_parms {
    hex uint32_t stamp; string machinename<255>; uint32_t uid; uint32_t gid; uint32_t gids<16>;
};
enum rpc_gss_svc_t {
    RPC_GSS_SVC_NONE = 1, RPC_GSS_SVC_INTEGRITY = 2, RPC_GSS_SVC_PRIVACY = 3, RPC_GSS_SVC_CHANNEL_PROT = 4
};
/* RFC 7862, 12.2.4 */
struct labelformat_spec4 { uint32_t lfs_lfs; uint32_t lfs_pi; };
    """,
    length4=XdrInteger("length4", 8, meanings={(1 << 64) - 1: TO_END_OF_FILE}),
    # COMMIT, COPY, CLONE and IO_ADVISE: 0 means everything after the offset.
    count4_or_rest=XdrInteger("count4", meanings={0: TO_END_OF_FILE}),
    length4_or_rest=XdrInteger("length4", 8, meanings={0: TO_END_OF_FILE}),
)
STATEID4, CLIENTID4, AUTHSYS_PARMS = TYPES["stateid4"], TYPES["clientid4"], TYPES["authsys_parms"]
