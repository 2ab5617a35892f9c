"""NFS version 3 and MOUNT version 3 (RFC 1813)."""

from __future__ import annotations

from ...layers.oncrpc_codes import FLAVOR_NAMES
from .language import declared
from .types import TO_END_OF_FILE, XdrInteger, enum

_PSEUDOFLAVORS = {390003: "RPCSEC_GSS_KRB5", 390004: "RPCSEC_GSS_KRB5I", 390005: "RPCSEC_GSS_KRB5P"}  # RFC 2623, 2.2.3
FLAVORS = enum("auth_flavor", FLAVOR_NAMES | _PSEUDOFLAVORS)

TYPES = declared(
    """
/* 2.5 */
typedef string filename3<>;
typedef string nfspath3<>;
typedef uint64_t fileid3;
typedef uint64_t cookie3;
typedef opaque cookieverf3[8];
typedef opaque createverf3[8];
typedef opaque writeverf3[8];
typedef uint32_t uid3;
typedef uint32_t gid3;
typedef uint64_t size3;
typedef uint64_t offset3;
typedef octal uint32_t mode3;
typedef uint32_t count3;
enum nfsstat3 {
    NFS3_OK = 0, NFS3ERR_PERM = 1, NFS3ERR_NOENT = 2, NFS3ERR_IO = 5, NFS3ERR_NXIO = 6, NFS3ERR_ACCES = 13,
    NFS3ERR_EXIST = 17, NFS3ERR_NOTDIR = 20, NFS3ERR_ISDIR = 21, NFS3ERR_FBIG = 27, NFS3ERR_NOSPC = 28,
    NFS3ERR_ROFS = 30, NFS3ERR_NAMETOOLONG = 63, NFS3ERR_NOTEMPTY = 66, NFS3ERR_DQUOT = 69, NFS3ERR_STALE = 70,
    NFS3ERR_XDEV = 18, NFS3ERR_NODEV = 19, NFS3ERR_INVAL = 22, NFS3ERR_MLINK = 31, NFS3ERR_REMOTE = 71,
    NFS3ERR_BADHANDLE = 10001, NFS3ERR_NOT_SYNC = 10002, NFS3ERR_BAD_COOKIE = 10003, NFS3ERR_NOTSUPP = 10004,
    NFS3ERR_TOOSMALL = 10005, NFS3ERR_SERVERFAULT = 10006, NFS3ERR_BADTYPE = 10007, NFS3ERR_JUKEBOX = 10008
};
enum ftype3 { NF3REG = 1, NF3DIR = 2, NF3BLK = 3, NF3CHR = 4, NF3LNK = 5, NF3SOCK = 6, NF3FIFO = 7 };
struct specdata3 { uint32_t specdata1; uint32_t specdata2; };
typedef handle nfs_fh3<64>;
struct nfstime3 { uint32_t seconds; uint32_t nseconds; };
typedef data nfsdata3<>;
/* 2.6 */
typedef uint64_t fsid3;
struct fattr3 {
    ftype3 type; mode3 mode; uint32_t nlink; uid3 uid; gid3 gid; size3 size; size3 used; specdata3 rdev;
    fsid3 fsid; fileid3 fileid; nfstime3 atime; nfstime3 mtime; nfstime3 ctime;
};
typedef fattr3 *post_op_attr;
struct wcc_attr { size3 size; nfstime3 mtime; nfstime3 ctime; };
struct wcc_data { wcc_attr *before; post_op_attr after; };
typedef nfs_fh3 *post_op_fh3;
enum time_how { DONT_CHANGE = 0, SET_TO_SERVER_TIME = 1, SET_TO_CLIENT_TIME = 2 };
union set_mode switch (bool set_it) { case TRUE: mode3 mode; case FALSE: void; };
union set_uid switch (bool set_it) { case TRUE: uid3 uid; case FALSE: void; };
union set_gid switch (bool set_it) { case TRUE: gid3 gid; case FALSE: void; };
union set_size switch (bool set_it) { case TRUE: size3 size; case FALSE: void; };
union set_atime switch (time_how set_it) {
    case DONT_CHANGE: case SET_TO_SERVER_TIME: void;
    case SET_TO_CLIENT_TIME: nfstime3 atime;
};
union set_mtime switch (time_how set_it) {
    case DONT_CHANGE: case SET_TO_SERVER_TIME: void;
    case SET_TO_CLIENT_TIME: nfstime3 mtime;
};
struct sattr3 { set_mode mode; set_uid uid; set_gid gid; set_size size; set_atime atime; set_mtime mtime; };
struct diropargs3 { nfs_fh3 dir; filename3 name; };
/* 3.3 */
union sattrguard3 switch (bool check) { case TRUE: nfstime3 obj_ctime; case FALSE: void; };
flags access3 { READ = 0x1, LOOKUP = 0x2, MODIFY = 0x4, EXTEND = 0x8, DELETE = 0x10, EXECUTE = 0x20 };
enum stable_how { UNSTABLE = 0, DATA_SYNC = 1, FILE_SYNC = 2 };
enum createmode3 { UNCHECKED = 0, GUARDED = 1, EXCLUSIVE = 2 };
union createhow3 switch (createmode3 mode) {
    case UNCHECKED: case GUARDED: sattr3 obj_attributes;
    case EXCLUSIVE: createverf3 verf;
};
struct symlinkdata3 { sattr3 symlink_attributes; nfspath3 symlink_data; };
struct devicedata3 { sattr3 dev_attributes; specdata3 spec; };
union mknoddata3 switch (ftype3 type) {
    case NF3BLK: case NF3CHR: devicedata3;
    case NF3SOCK: case NF3FIFO: sattr3 pipe_attributes;
    default: void;
};
struct entry3 { fileid3 fileid; filename3 name; cookie3 cookie; };
struct entryplus3 {
    fileid3 fileid; filename3 name; cookie3 cookie; post_op_attr name_attributes; post_op_fh3 name_handle;
};
flags properties3 { FSF3_LINK = 0x1, FSF3_SYMLINK = 0x2, FSF3_HOMOGENEOUS = 0x8, FSF3_CANSETTIME = 0x10 };
struct READ3args { nfs_fh3 file; offset3 offset; count3 count; };
struct READ3resok { post_op_attr file_attributes; count3 count; bool eof; nfsdata3 data; };
struct WRITE3args { nfs_fh3 file; offset3 offset; count3 count; stable_how stable; nfsdata3 data; };
struct WRITE3resok { wcc_data file_wcc; count3 count; stable_how committed; writeverf3 verf; };
struct READLINK3resok { post_op_attr symlink_attributes; nfspath3 data; };
struct SYMLINK3args { diropargs3 where; symlinkdata3 symlink; };
struct READDIR3args { nfs_fh3 dir; cookie3 cookie; cookieverf3 cookieverf; count3 count; };
struct READDIRPLUS3args {
    nfs_fh3 dir; cookie3 cookie; cookieverf3 cookieverf; count3 dircount; count3 maxcount;
};
struct COMMIT3resok { wcc_data file_wcc; writeverf3 verf; };
struct dir_wcc { wcc_data dir_wcc; };
struct obj_attributes { post_op_attr obj_attributes; };
struct CREATE3resok { post_op_fh3 obj; post_op_attr obj_attributes; wcc_data dir_wcc; };
struct RENAME3resok { wcc_data fromdir_wcc; wcc_data todir_wcc; };
struct LINK3resok { post_op_attr file_attributes; wcc_data linkdir_wcc; };
struct GETATTR3args { nfs_fh3 object; };
struct GETATTR3resok { fattr3 obj_attributes; };
union GETATTR3res switch (nfsstat3 status) { case NFS3_OK: GETATTR3resok; default: void; };
struct SETATTR3args { nfs_fh3 object; sattr3 new_attributes; sattrguard3 guard; };
struct SETATTR3resok { wcc_data obj_wcc; };
struct SETATTR3resfail { wcc_data obj_wcc; };
union SETATTR3res switch (nfsstat3 status) { case NFS3_OK: SETATTR3resok; default: SETATTR3resfail; };
struct LOOKUP3args { diropargs3 what; };
struct LOOKUP3resok { nfs_fh3 object; post_op_attr obj_attributes; post_op_attr dir_attributes; };
struct LOOKUP3resfail { post_op_attr dir_attributes; };
union LOOKUP3res switch (nfsstat3 status) { case NFS3_OK: LOOKUP3resok; default: LOOKUP3resfail; };
struct ACCESS3args { nfs_fh3 object; access3 access; };
struct ACCESS3resok { post_op_attr obj_attributes; access3 access; };
union ACCESS3res switch (nfsstat3 status) { case NFS3_OK: ACCESS3resok; default: obj_attributes; };
struct READLINK3args { nfs_fh3 symlink; };
struct READLINK3resfail { post_op_attr symlink_attributes; };
union READLINK3res switch (nfsstat3 status) { case NFS3_OK: READLINK3resok; default: READLINK3resfail; };
struct READ3resfail { post_op_attr file_attributes; };
union READ3res switch (nfsstat3 status) { case NFS3_OK: READ3resok; default: READ3resfail; };
struct WRITE3resfail { wcc_data file_wcc; };
union WRITE3res switch (nfsstat3 status) { case NFS3_OK: WRITE3resok; default: WRITE3resfail; };
struct CREATE3args { diropargs3 where; createhow3 how; };
union CREATE3res switch (nfsstat3 status) { case NFS3_OK: CREATE3resok; default: dir_wcc; };
struct MKDIR3args { diropargs3 where; sattr3 attributes; };
union MKDIR3res switch (nfsstat3 status) { case NFS3_OK: CREATE3resok; default: dir_wcc; };
union SYMLINK3res switch (nfsstat3 status) { case NFS3_OK: CREATE3resok; default: dir_wcc; };
struct MKNOD3args { diropargs3 where; mknoddata3 what; };
union MKNOD3res switch (nfsstat3 status) { case NFS3_OK: CREATE3resok; default: dir_wcc; };
struct REMOVE3args { diropargs3 object; };
union REMOVE3res switch (nfsstat3 status) { case NFS3_OK: dir_wcc; default: dir_wcc; };
struct RMDIR3args { diropargs3 object; };
union RMDIR3res switch (nfsstat3 status) { case NFS3_OK: dir_wcc; default: dir_wcc; };
struct RENAME3args { diropargs3 from; diropargs3 to; };
union RENAME3res switch (nfsstat3 status) { case NFS3_OK: RENAME3resok; default: RENAME3resok; };
struct LINK3args { nfs_fh3 file; diropargs3 link; };
union LINK3res switch (nfsstat3 status) { case NFS3_OK: LINK3resok; default: LINK3resok; };
struct READDIR3resok {
    post_op_attr dir_attributes; cookieverf3 cookieverf; linked entry3 entries; bool eof;
};
struct READDIR3resfail { post_op_attr dir_attributes; };
union READDIR3res switch (nfsstat3 status) { case NFS3_OK: READDIR3resok; default: READDIR3resfail; };
struct READDIRPLUS3resok {
    post_op_attr dir_attributes; cookieverf3 cookieverf; linked entryplus3 entries; bool eof;
};
struct READDIRPLUS3resfail { post_op_attr dir_attributes; };
union READDIRPLUS3res switch (nfsstat3 status) {
    case NFS3_OK: READDIRPLUS3resok;
    default: READDIRPLUS3resfail;
};
struct FSSTAT3args { nfs_fh3 fsroot; };
struct FSSTAT3resok {
    post_op_attr obj_attributes; size3 tbytes; size3 fbytes; size3 abytes; size3 tfiles; size3 ffiles;
    size3 afiles; uint32_t invarsec;
};
union FSSTAT3res switch (nfsstat3 status) { case NFS3_OK: FSSTAT3resok; default: obj_attributes; };
struct FSINFO3args { nfs_fh3 fsroot; };
struct FSINFO3resok {
    post_op_attr obj_attributes; uint32_t rtmax; uint32_t rtpref; uint32_t rtmult; uint32_t wtmax;
    uint32_t wtpref; uint32_t wtmult; uint32_t dtpref; size3 maxfilesize; nfstime3 time_delta;
    properties3 properties;
};
union FSINFO3res switch (nfsstat3 status) { case NFS3_OK: FSINFO3resok; default: obj_attributes; };
struct PATHCONF3args { nfs_fh3 object; };
struct PATHCONF3resok {
    post_op_attr obj_attributes; uint32_t linkmax; uint32_t name_max; bool no_trunc; bool chown_restricted;
    bool case_insensitive; bool case_preserving;
};
union PATHCONF3res switch (nfsstat3 status) { case NFS3_OK: PATHCONF3resok; default: obj_attributes; };
struct COMMIT3args { nfs_fh3 file; offset3 offset; count3_or_rest count; };
struct COMMIT3resfail { wcc_data file_wcc; };
union COMMIT3res switch (nfsstat3 status) { case NFS3_OK: COMMIT3resok; default: COMMIT3resfail; };
program NFS3 {
    void NULL(void) = 0;
    GETATTR3res GETATTR(GETATTR3args) = 1;  /* 3.3.1 */
    SETATTR3res SETATTR(SETATTR3args) = 2;  /* 3.3.2 */
    LOOKUP3res LOOKUP(LOOKUP3args) = 3;  /* 3.3.3 */
    ACCESS3res ACCESS(ACCESS3args) = 4;  /* 3.3.4 */
    READLINK3res READLINK(READLINK3args) = 5;  /* 3.3.5 */
    READ3res READ(READ3args) = 6;  /* 3.3.6 */
    WRITE3res WRITE(WRITE3args) = 7;  /* 3.3.7 */
    CREATE3res CREATE(CREATE3args) = 8;  /* 3.3.8 */
    MKDIR3res MKDIR(MKDIR3args) = 9;  /* 3.3.9 */
    SYMLINK3res SYMLINK(SYMLINK3args) = 10;  /* 3.3.10 */
    MKNOD3res MKNOD(MKNOD3args) = 11;  /* 3.3.11 */
    REMOVE3res REMOVE(REMOVE3args) = 12;  /* 3.3.12 */
    RMDIR3res RMDIR(RMDIR3args) = 13;  /* 3.3.13 */
    RENAME3res RENAME(RENAME3args) = 14;  /* 3.3.14 */
    LINK3res LINK(LINK3args) = 15;  /* 3.3.15 */
    READDIR3res READDIR(READDIR3args) = 16;  /* 3.3.16 */
    READDIRPLUS3res READDIRPLUS(READDIRPLUS3args) = 17;  /* 3.3.17 */
    FSSTAT3res FSSTAT(FSSTAT3args) = 18;  /* 3.3.18 */
    FSINFO3res FSINFO(FSINFO3args) = 19;  /* 3.3.19 */
    PATHCONF3res PATHCONF(PATHCONF3args) = 20;  /* 3.3.20 */
    COMMIT3res COMMIT(COMMIT3args) = 21;  /* 3.3.21 */
};

/* Appendix I */
enum mountstat3 {
    MNT3_OK = 0, MNT3ERR_PERM = 1, MNT3ERR_NOENT = 2, MNT3ERR_IO = 5, MNT3ERR_ACCES = 13, MNT3ERR_NOTDIR = 20,
    MNT3ERR_INVAL = 22, MNT3ERR_NAMETOOLONG = 63, MNT3ERR_NOTSUPP = 10004, MNT3ERR_SERVERFAULT = 10006
};
typedef string dirpath<1024>;
typedef string name<255>;
struct mountbody { name ml_hostname; dirpath ml_directory; };
struct groupnode { name gr_name; };
struct exportnode { dirpath ex_dir; linked groupnode ex_groups; };
struct mount_dirpath { dirpath dirpath; };
struct mountlist { linked mountbody mountlist; };
struct exports { linked exportnode exports; };
typedef handle fhandle3<64>;
struct mountres3_ok { fhandle3 fhandle; auth_flavor auth_flavors<>; };
union mountres3 switch (mountstat3 fhs_status) { case MNT3_OK: mountres3_ok; default: void; };
program MOUNT3 {
    void NULL(void) = 0;
    mountres3 MNT(mount_dirpath) = 1;
    mountlist DUMP(void) = 2;
    void UMNT(mount_dirpath) = 3;
    void UMNTALL(void) = 4;
    exports EXPORT(void) = 5;
};
    """,
    # COMMIT, 3.3.21
    count3_or_rest=XdrInteger("count3", meanings={0: TO_END_OF_FILE}),
    auth_flavor=FLAVORS,
)
NFS3, MOUNT3 = TYPES["NFS3"], TYPES["MOUNT3"]
