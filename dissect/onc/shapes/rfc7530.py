"""The operations that NFS version 4.0 has (RFC 7530, RFC 7531), as later minor versions extend them (RFC 8881).

Sections are those of RFC 8881, or of RFC 7530 where only version 4.0 has the operation.
"""

from __future__ import annotations

from . import attributes4
from .language import declared
from .rfc1813 import FLAVORS
from .types import HEXADECIMAL, XdrInteger

TYPES = declared(
    """
/* The last three: RFC 8276, 8.6 */
flags access4 {
    ACCESS4_READ = 0x1, ACCESS4_LOOKUP = 0x2, ACCESS4_MODIFY = 0x4, ACCESS4_EXTEND = 0x8, ACCESS4_DELETE = 0x10,
    ACCESS4_EXECUTE = 0x20, ACCESS4_XAREAD = 0x40, ACCESS4_XAWRITE = 0x80, ACCESS4_XALIST = 0x100
};
enum nfs_lock_type4 { READ_LT = 1, WRITE_LT = 2, READW_LT = 3, WRITEW_LT = 4 };
union createtype4 switch (nfs_ftype4 type) {
    case NF4LNK: linktext4 linkdata;
    case NF4BLK: case NF4CHR: specdata4 devdata;
    default: void;
};
struct CREATE4args { createtype4 objtype; component4 objname; fattr4 createattrs; };
/* 18.10 */
struct open_to_lock_owner4 {
    seqid4 open_seqid; stateid4 open_stateid; seqid4 lock_seqid; state_owner4 lock_owner;
};
struct exist_lock_owner4 { stateid4 lock_stateid; seqid4 lock_seqid; };
union locker4 switch (bool new_lock_owner) { case TRUE: open_to_lock_owner4; case FALSE: exist_lock_owner4; };
struct LOCK4denied { offset4 offset; length4 length; nfs_lock_type4 locktype; state_owner4 owner; };
/* 18.16 */
struct creatverfattr { verifier4 cva_verf; fattr4 cva_attrs; };
enum createmode4 { UNCHECKED4 = 0, GUARDED4 = 1, EXCLUSIVE4 = 2, EXCLUSIVE4_1 = 3 };
union createhow4 switch (createmode4 mode) {
    case UNCHECKED4: case GUARDED4: fattr4 createattrs;
    case EXCLUSIVE4: verifier4 createverf;
    case EXCLUSIVE4_1: creatverfattr;
};
enum opentype4 { OPEN4_NOCREATE = 0, OPEN4_CREATE = 1 };
union openflag4 switch (opentype4 opentype) { case OPEN4_CREATE: createhow4 how; default: void; };
enum open_claim_type4 {
    CLAIM_NULL = 0, CLAIM_PREVIOUS = 1, CLAIM_DELEGATE_CUR = 2, CLAIM_DELEGATE_PREV = 3, CLAIM_FH = 4,
    CLAIM_DELEG_CUR_FH = 5, CLAIM_DELEG_PREV_FH = 6
};
struct open_claim_delegate_cur4 { stateid4 delegate_stateid; component4 file; };
union open_claim4 switch (open_claim_type4 claim) {
    case CLAIM_NULL: component4 file;
    case CLAIM_PREVIOUS: open_delegation_type4 delegate_type;
    case CLAIM_DELEGATE_CUR: open_claim_delegate_cur4;
    case CLAIM_DELEGATE_PREV: component4 file_delegate_prev;
    case CLAIM_FH: void;
    case CLAIM_DELEG_CUR_FH: stateid4 oc_delegate_stateid;
    case CLAIM_DELEG_PREV_FH: void;
};
flags share_deny { OPEN4_SHARE_DENY_NONE = 0x0, OPEN4_SHARE_DENY_READ = 0x1, OPEN4_SHARE_DENY_WRITE = 0x2 };
struct OPEN4args {
    seqid4 seqid; share_access share_access; share_deny share_deny; state_owner4 owner; openflag4 openhow;
    open_claim4 claim;
};
flags rflags {
    OPEN4_RESULT_CONFIRM = 0x2, OPEN4_RESULT_LOCKTYPE_POSIX = 0x4, OPEN4_RESULT_PRESERVE_UNLINKED = 0x8,
    OPEN4_RESULT_NO_OPEN_STATEID = 0x10, OPEN4_RESULT_MAY_NOTIFY_LOCK = 0x20
};
struct OPEN4resok {
    stateid4 stateid; change_info4 cinfo; rflags rflags; attribute_bits attrset; open_delegation4 delegation;
};
struct READ4args { stateid4 stateid; offset4 offset; count4 count; };
struct READ4resok { bool eof; data4 data; };
struct WRITE4args { stateid4 stateid; offset4 offset; stable_how4 stable; data4 data; };
struct READDIR4args {
    nfs_cookie4 cookie; verifier4 cookieverf; count4 dircount; count4 maxcount; attribute_bits attr_request;
};
struct entry4 { nfs_cookie4 cookie; component4 name; fattr4 attrs; };
struct READDIR4resok { verifier4 cookieverf; linked entry4 entries; bool eof; };
/* 18.29 */
struct rpcsec_gss_info { sec_oid4 oid; uint32_t qop; rpc_gss_svc_t service; };
union secinfo4 switch (auth_flavor flavor) { case RPCSEC_GSS: rpcsec_gss_info flavor_info; default: void; };
typedef secinfo4 secinfo4resok<>;
struct SETCLIENTID4resok { clientid4 clientid; verifier4 setclientid_confirm; };
struct cb_client4 { hex uint32_t cb_program; netaddr4 cb_location; };
struct nfs_client_id4 { verifier4 verifier; opaque id<1024>; };
struct LOOKUP4args { component4 objname; };
struct obj_attributes { fattr4 obj_attributes; };
struct ACCESS4args { access4 access; };
struct ACCESS4resok { access4 supported; access4 access; };
union ACCESS4res switch (nfsstat4 status) { case NFS4_OK: ACCESS4resok; default: void; };
struct CLOSE4args { seqid4 seqid; stateid4 open_stateid; };
union CLOSE4res switch (nfsstat4 status) { case NFS4_OK: stateid4 open_stateid; default: void; };
struct COMMIT4args { offset4 offset; count4_or_rest count; };
struct COMMIT4resok { verifier4 writeverf; };
union COMMIT4res switch (nfsstat4 status) { case NFS4_OK: COMMIT4resok; default: void; };
struct CREATE4resok { change_info4 cinfo; attribute_bits attrset; };
union CREATE4res switch (nfsstat4 status) { case NFS4_OK: CREATE4resok; default: void; };
struct DELEGPURGE4args { clientid4 clientid; };
union DELEGPURGE4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct DELEGRETURN4args { stateid4 deleg_stateid; };
union DELEGRETURN4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct GETATTR4args { attribute_bits attr_request; };
union GETATTR4res switch (nfsstat4 status) { case NFS4_OK: obj_attributes; default: void; };
struct GETFH4resok { nfs_fh4 object; };
union GETFH4res switch (nfsstat4 status) { case NFS4_OK: GETFH4resok; default: void; };
struct LINK4args { component4 newname; };
union LINK4res switch (nfsstat4 status) { case NFS4_OK: change_info4 cinfo; default: void; };
struct LOCK4args { nfs_lock_type4 locktype; bool reclaim; offset4 offset; length4 length; locker4 locker; };
union LOCK4res switch (nfsstat4 status) {
    case NFS4_OK: stateid4 lock_stateid;
    case NFS4ERR_DENIED: LOCK4denied denied;
    default: void;
};
struct LOCKT4args { nfs_lock_type4 locktype; offset4 offset; length4 length; state_owner4 owner; };
union LOCKT4res switch (nfsstat4 status) {
    case NFS4_OK: void;
    case NFS4ERR_DENIED: LOCK4denied denied;
    default: void;
};
struct LOCKU4args {
    nfs_lock_type4 locktype; seqid4 seqid; stateid4 lock_stateid; offset4 offset; length4 length;
};
union LOCKU4res switch (nfsstat4 status) { case NFS4_OK: stateid4 lock_stateid; default: void; };
union LOOKUP4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
union LOOKUPP4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
union NVERIFY4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
union OPEN4res switch (nfsstat4 status) { case NFS4_OK: OPEN4resok; default: void; };
struct OPENATTR4args { bool createdir; };
union OPENATTR4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct OPEN_CONFIRM4args { stateid4 open_stateid; seqid4 seqid; };
union OPEN_CONFIRM4res switch (nfsstat4 status) { case NFS4_OK: stateid4 open_stateid; default: void; };
struct OPEN_DOWNGRADE4args {
    stateid4 open_stateid; seqid4 seqid; share_access share_access; share_deny share_deny;
};
union OPEN_DOWNGRADE4res switch (nfsstat4 status) { case NFS4_OK: stateid4 open_stateid; default: void; };
struct PUTFH4args { nfs_fh4 object; };
union PUTFH4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
union PUTPUBFH4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
union PUTROOTFH4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
union READ4res switch (nfsstat4 status) { case NFS4_OK: READ4resok; default: void; };
union READDIR4res switch (nfsstat4 status) { case NFS4_OK: READDIR4resok; default: void; };
struct READLINK4resok { linktext4 link; };
union READLINK4res switch (nfsstat4 status) { case NFS4_OK: READLINK4resok; default: void; };
struct REMOVE4args { component4 target; };
union REMOVE4res switch (nfsstat4 status) { case NFS4_OK: change_info4 cinfo; default: void; };
struct RENAME4args { component4 oldname; component4 newname; };
struct RENAME4resok { change_info4 source_cinfo; change_info4 target_cinfo; };
union RENAME4res switch (nfsstat4 status) { case NFS4_OK: RENAME4resok; default: void; };
struct RENEW4args { clientid4 clientid; };
union RENEW4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
union RESTOREFH4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
union SAVEFH4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct SECINFO4args { component4 name; };
union SECINFO4res switch (nfsstat4 status) { case NFS4_OK: secinfo4resok resok4; default: void; };
struct SETATTR4args { stateid4 stateid; fattr4 obj_attributes; };
union SETATTR4res switch (nfsstat4 status) {
    case NFS4_OK: attribute_bits attrsset;
    default: attribute_bits attrsset;
};
struct SETCLIENTID4args { nfs_client_id4 client; cb_client4 callback; uint32_t callback_ident; };
union SETCLIENTID4res switch (nfsstat4 status) {
    case NFS4_OK: SETCLIENTID4resok;
    case NFS4ERR_CLID_INUSE: netaddr4 client_using;
    default: void;
};
struct SETCLIENTID_CONFIRM4args { clientid4 clientid; verifier4 setclientid_confirm; };
union SETCLIENTID_CONFIRM4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
union VERIFY4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct WRITE4resok { count4 count; stable_how4 committed; verifier4 writeverf; };
union WRITE4res switch (nfsstat4 status) { case NFS4_OK: WRITE4resok; default: void; };
struct RELEASE_LOCKOWNER4args { state_owner4 lock_owner; };
union RELEASE_LOCKOWNER4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
union ILLEGAL4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
program COMPOUND {
    ACCESS4res ACCESS(ACCESS4args) = 3 in 18.1;
    CLOSE4res CLOSE(CLOSE4args) = 4 in 18.2;
    COMMIT4res COMMIT(COMMIT4args) = 5 in 18.3;
    CREATE4res CREATE(CREATE4args) = 6 in 18.4;
    DELEGPURGE4res DELEGPURGE(DELEGPURGE4args) = 7 in 18.5;
    DELEGRETURN4res DELEGRETURN(DELEGRETURN4args) = 8 in 18.6;
    GETATTR4res GETATTR(GETATTR4args) = 9 in 18.7;
    GETFH4res GETFH(void) = 10 in 18.8;
    LINK4res LINK(LINK4args) = 11 in 18.9;
    LOCK4res LOCK(LOCK4args) = 12 in 18.10;
    LOCKT4res LOCKT(LOCKT4args) = 13 in 18.11;
    LOCKU4res LOCKU(LOCKU4args) = 14 in 18.12;
    LOOKUP4res LOOKUP(LOOKUP4args) = 15 in 18.13;
    LOOKUPP4res LOOKUPP(void) = 16 in 18.14;
    NVERIFY4res NVERIFY(obj_attributes) = 17 in 18.15;
    OPEN4res OPEN(OPEN4args) = 18 in 18.16;
    OPENATTR4res OPENATTR(OPENATTR4args) = 19 in 18.17;
    OPEN_CONFIRM4res OPEN_CONFIRM(OPEN_CONFIRM4args) = 20 in RFC 7530, 16.18;
    OPEN_DOWNGRADE4res OPEN_DOWNGRADE(OPEN_DOWNGRADE4args) = 21 in 18.18;
    PUTFH4res PUTFH(PUTFH4args) = 22 in 18.19;
    PUTPUBFH4res PUTPUBFH(void) = 23 in 18.20;
    PUTROOTFH4res PUTROOTFH(void) = 24 in 18.21;
    READ4res READ(READ4args) = 25 in 18.22;
    READDIR4res READDIR(READDIR4args) = 26 in 18.23;
    READLINK4res READLINK(void) = 27 in 18.24;
    REMOVE4res REMOVE(REMOVE4args) = 28 in 18.25;
    RENAME4res RENAME(RENAME4args) = 29 in 18.26;
    RENEW4res RENEW(RENEW4args) = 30 in RFC 7530, 16.28;
    RESTOREFH4res RESTOREFH(void) = 31 in 18.27;
    SAVEFH4res SAVEFH(void) = 32 in 18.28;
    SECINFO4res SECINFO(SECINFO4args) = 33 in 18.29;
    SETATTR4res SETATTR(SETATTR4args) = 34 in 18.30;
    SETCLIENTID4res SETCLIENTID(SETCLIENTID4args) = 35 in RFC 7530, 16.33;
    SETCLIENTID_CONFIRM4res SETCLIENTID_CONFIRM(SETCLIENTID_CONFIRM4args) = 36 in RFC 7530, 16.34;
    VERIFY4res VERIFY(obj_attributes) = 37 in 18.31;
    WRITE4res WRITE(WRITE4args) = 38 in 18.32;
    RELEASE_LOCKOWNER4res RELEASE_LOCKOWNER(RELEASE_LOCKOWNER4args) = 39 in RFC 7530, 16.37;
    ILLEGAL4res ILLEGAL(void) = 10044 in 18.52;
};
    """,
    attributes4.TYPES,
    auth_flavor=FLAVORS,
    share_access=XdrInteger(
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
    ),
)
