"""NFS version 3 and MOUNT version 3 (RFC 1813)."""

from __future__ import annotations

from ...layers.oncrpc_codes import FLAVOR_NAMES
from ..statuses import MOUNT3_STATUS, NFS3_STATUS
from .types import (
    BOOL,
    DATA,
    HANDLE,
    OCTAL,
    TO_END_OF_FILE,
    UINT32,
    ProcedureShape,
    XdrInteger,
    XdrOpaque,
    XdrStruct,
    XdrType,
    XdrUnion,
    array,
    enum,
    extended,
    fixed,
    flags,
    linked,
    optional,
    result,
    string,
    struct,
    table,
    union,
    union_or,
)

# 2.5
FILENAME3 = string("filename3")
NFSPATH3 = string("nfspath3")
FILEID3 = XdrInteger("fileid3", 8)
COOKIE3 = XdrInteger("cookie3", 8)
COOKIEVERF3 = fixed("cookieverf3", 8)
CREATEVERF3 = fixed("createverf3", 8)
WRITEVERF3 = fixed("writeverf3", 8)
UID3 = XdrInteger("uid3")
GID3 = XdrInteger("gid3")
SIZE3 = XdrInteger("size3", 8)
OFFSET3 = XdrInteger("offset3", 8)
MODE3 = XdrInteger("mode3", form=OCTAL)
COUNT3 = XdrInteger("count3")
COUNT3_OR_REST = XdrInteger("count3", meanings={0: TO_END_OF_FILE})
"""The count of COMMIT (3.3.21)."""
NFSSTAT3 = enum("nfsstat3", {**NFS3_STATUS, 0: "NFS3_OK"})
FTYPE3 = enum("ftype3", {1: "NF3REG", 2: "NF3DIR", 3: "NF3BLK", 4: "NF3CHR", 5: "NF3LNK", 6: "NF3SOCK", 7: "NF3FIFO"})
SPECDATA3 = struct("specdata3", specdata1=UINT32, specdata2=UINT32)
NFS_FH3 = XdrOpaque("nfs_fh3", HANDLE, maximum=64)
NFSTIME3 = struct("nfstime3", seconds=UINT32, nseconds=UINT32)
NFSDATA3 = XdrOpaque("nfsdata3", DATA)

# 2.6
FATTR3 = struct(
    "fattr3",
    type=FTYPE3,
    mode=MODE3,
    nlink=UINT32,
    uid=UID3,
    gid=GID3,
    size=SIZE3,
    used=SIZE3,
    rdev=SPECDATA3,
    fsid=XdrInteger("fsid3", 8),
    fileid=FILEID3,
    atime=NFSTIME3,
    mtime=NFSTIME3,
    ctime=NFSTIME3,
)
POST_OP_ATTR = optional(FATTR3)
WCC_ATTR = struct("wcc_attr", size=SIZE3, mtime=NFSTIME3, ctime=NFSTIME3)
WCC_DATA = struct("wcc_data", before=optional(WCC_ATTR), after=POST_OP_ATTR)
POST_OP_FH3 = optional(NFS_FH3)
TIME_HOW = enum("time_how", {0: "DONT_CHANGE", 1: "SET_TO_SERVER_TIME", 2: "SET_TO_CLIENT_TIME"})


def _set(name: str, type: XdrType) -> XdrUnion:
    return union(f"set_{name}", "set_it", BOOL, {1: (name, type), 0: None})


def _set_time(name: str) -> XdrUnion:
    return union(f"set_{name}", "set_it", TIME_HOW, {0: None, 1: None, 2: (name, NFSTIME3)})


SATTR3 = struct(
    "sattr3",
    mode=_set("mode", MODE3),
    uid=_set("uid", UID3),
    gid=_set("gid", GID3),
    size=_set("size", SIZE3),
    atime=_set_time("atime"),
    mtime=_set_time("mtime"),
)
DIROPARGS3 = struct("diropargs3", dir=NFS_FH3, name=FILENAME3)

# 3.3
SATTRGUARD3 = union("sattrguard3", "check", BOOL, {1: ("obj_ctime", NFSTIME3), 0: None})
ACCESS3 = flags(
    "access3",
    {1: "READ", 2: "LOOKUP", 4: "MODIFY", 8: "EXTEND", 0x10: "DELETE", 0x20: "EXECUTE"},
)
STABLE_HOW = enum("stable_how", {0: "UNSTABLE", 1: "DATA_SYNC", 2: "FILE_SYNC"})
CREATEMODE3 = enum("createmode3", {0: "UNCHECKED", 1: "GUARDED", 2: "EXCLUSIVE"})
CREATEHOW3 = union(
    "createhow3",
    "mode",
    CREATEMODE3,
    {0: ("obj_attributes", SATTR3), 1: ("obj_attributes", SATTR3), 2: ("verf", CREATEVERF3)},
)
SYMLINKDATA3 = struct("symlinkdata3", symlink_attributes=SATTR3, symlink_data=NFSPATH3)
_DEVICEDATA3 = struct("devicedata3", dev_attributes=SATTR3, spec=SPECDATA3)
MKNODDATA3 = union_or(
    "mknoddata3",
    "type",
    FTYPE3,
    {3: _DEVICEDATA3, 4: _DEVICEDATA3, 6: ("pipe_attributes", SATTR3), 7: ("pipe_attributes", SATTR3)},
)
ENTRY3 = struct("entry3", fileid=FILEID3, name=FILENAME3, cookie=COOKIE3)
ENTRYPLUS3 = extended("entryplus3", ENTRY3, name_attributes=POST_OP_ATTR, name_handle=POST_OP_FH3)
FSF3 = flags("properties3", {1: "FSF3_LINK", 2: "FSF3_SYMLINK", 8: "FSF3_HOMOGENEOUS", 16: "FSF3_CANSETTIME"})

READ3ARGS = struct("READ3args", file=NFS_FH3, offset=OFFSET3, count=COUNT3)
READ3RESOK = struct("READ3resok", file_attributes=POST_OP_ATTR, count=COUNT3, eof=BOOL, data=NFSDATA3)
WRITE3ARGS = struct("WRITE3args", file=NFS_FH3, offset=OFFSET3, count=COUNT3, stable=STABLE_HOW, data=NFSDATA3)
WRITE3RESOK = struct("WRITE3resok", file_wcc=WCC_DATA, count=COUNT3, committed=STABLE_HOW, verf=WRITEVERF3)
READLINK3RESOK = struct("READLINK3resok", symlink_attributes=POST_OP_ATTR, data=NFSPATH3)
SYMLINK3ARGS = struct("SYMLINK3args", where=DIROPARGS3, symlink=SYMLINKDATA3)
READDIR3ARGS = struct("READDIR3args", dir=NFS_FH3, cookie=COOKIE3, cookieverf=COOKIEVERF3, count=COUNT3)
READDIRPLUS3ARGS = struct(
    "READDIRPLUS3args", dir=NFS_FH3, cookie=COOKIE3, cookieverf=COOKIEVERF3, dircount=COUNT3, maxcount=COUNT3
)
COMMIT3RESOK = struct("COMMIT3resok", file_wcc=WCC_DATA, verf=WRITEVERF3)

_DIR_WCC = struct("dir_wcc", dir_wcc=WCC_DATA)
_OBJ_ATTRIBUTES = struct("obj_attributes", obj_attributes=POST_OP_ATTR)
_MADE = struct("CREATE3resok", obj=POST_OP_FH3, obj_attributes=POST_OP_ATTR, dir_wcc=WCC_DATA)
_RENAMED = struct("RENAME3resok", fromdir_wcc=WCC_DATA, todir_wcc=WCC_DATA)
_LINKED = struct("LINK3resok", file_attributes=POST_OP_ATTR, linkdir_wcc=WCC_DATA)


def _v3(
    name: str, arguments: XdrStruct | None, ok: XdrStruct | None, failed: XdrStruct | None = None
) -> ProcedureShape:
    return ProcedureShape(name, arguments, result(f"{name}3res", NFSSTAT3, ok, failed))


NFS3 = table(
    ProcedureShape("NULL"),  # 3.3.0
    _v3("GETATTR", struct("GETATTR3args", object=NFS_FH3), struct("GETATTR3resok", obj_attributes=FATTR3)),  # 3.3.1
    _v3(
        "SETATTR",  # 3.3.2
        struct("SETATTR3args", object=NFS_FH3, new_attributes=SATTR3, guard=SATTRGUARD3),
        struct("SETATTR3resok", obj_wcc=WCC_DATA),
        struct("SETATTR3resfail", obj_wcc=WCC_DATA),
    ),
    _v3(
        "LOOKUP",  # 3.3.3
        struct("LOOKUP3args", what=DIROPARGS3),
        struct("LOOKUP3resok", object=NFS_FH3, obj_attributes=POST_OP_ATTR, dir_attributes=POST_OP_ATTR),
        struct("LOOKUP3resfail", dir_attributes=POST_OP_ATTR),
    ),
    _v3(
        "ACCESS",  # 3.3.4
        struct("ACCESS3args", object=NFS_FH3, access=ACCESS3),
        struct("ACCESS3resok", obj_attributes=POST_OP_ATTR, access=ACCESS3),
        _OBJ_ATTRIBUTES,
    ),
    _v3(
        "READLINK",  # 3.3.5
        struct("READLINK3args", symlink=NFS_FH3),
        READLINK3RESOK,
        struct("READLINK3resfail", symlink_attributes=POST_OP_ATTR),
    ),
    _v3("READ", READ3ARGS, READ3RESOK, struct("READ3resfail", file_attributes=POST_OP_ATTR)),  # 3.3.6
    _v3("WRITE", WRITE3ARGS, WRITE3RESOK, struct("WRITE3resfail", file_wcc=WCC_DATA)),  # 3.3.7
    _v3("CREATE", struct("CREATE3args", where=DIROPARGS3, how=CREATEHOW3), _MADE, _DIR_WCC),  # 3.3.8
    _v3("MKDIR", struct("MKDIR3args", where=DIROPARGS3, attributes=SATTR3), _MADE, _DIR_WCC),  # 3.3.9
    _v3("SYMLINK", SYMLINK3ARGS, _MADE, _DIR_WCC),  # 3.3.10
    _v3("MKNOD", struct("MKNOD3args", where=DIROPARGS3, what=MKNODDATA3), _MADE, _DIR_WCC),  # 3.3.11
    _v3("REMOVE", struct("REMOVE3args", object=DIROPARGS3), _DIR_WCC, _DIR_WCC),  # 3.3.12
    _v3("RMDIR", struct("RMDIR3args", object=DIROPARGS3), _DIR_WCC, _DIR_WCC),  # 3.3.13
    _v3("RENAME", struct("RENAME3args", from_=DIROPARGS3, to=DIROPARGS3), _RENAMED, _RENAMED),  # 3.3.14
    _v3("LINK", struct("LINK3args", file=NFS_FH3, link=DIROPARGS3), _LINKED, _LINKED),  # 3.3.15
    _v3(
        "READDIR",  # 3.3.16
        READDIR3ARGS,
        struct("READDIR3resok", dir_attributes=POST_OP_ATTR, cookieverf=COOKIEVERF3, entries=linked(ENTRY3), eof=BOOL),
        struct("READDIR3resfail", dir_attributes=POST_OP_ATTR),
    ),
    _v3(
        "READDIRPLUS",  # 3.3.17
        READDIRPLUS3ARGS,
        struct(
            "READDIRPLUS3resok",
            dir_attributes=POST_OP_ATTR,
            cookieverf=COOKIEVERF3,
            entries=linked(ENTRYPLUS3),
            eof=BOOL,
        ),
        struct("READDIRPLUS3resfail", dir_attributes=POST_OP_ATTR),
    ),
    _v3(
        "FSSTAT",  # 3.3.18
        struct("FSSTAT3args", fsroot=NFS_FH3),
        struct(
            "FSSTAT3resok",
            obj_attributes=POST_OP_ATTR,
            tbytes=SIZE3,
            fbytes=SIZE3,
            abytes=SIZE3,
            tfiles=SIZE3,
            ffiles=SIZE3,
            afiles=SIZE3,
            invarsec=UINT32,
        ),
        _OBJ_ATTRIBUTES,
    ),
    _v3(
        "FSINFO",  # 3.3.19
        struct("FSINFO3args", fsroot=NFS_FH3),
        struct(
            "FSINFO3resok",
            obj_attributes=POST_OP_ATTR,
            rtmax=UINT32,
            rtpref=UINT32,
            rtmult=UINT32,
            wtmax=UINT32,
            wtpref=UINT32,
            wtmult=UINT32,
            dtpref=UINT32,
            maxfilesize=SIZE3,
            time_delta=NFSTIME3,
            properties=FSF3,
        ),
        _OBJ_ATTRIBUTES,
    ),
    _v3(
        "PATHCONF",  # 3.3.20
        struct("PATHCONF3args", object=NFS_FH3),
        struct(
            "PATHCONF3resok",
            obj_attributes=POST_OP_ATTR,
            linkmax=UINT32,
            name_max=UINT32,
            no_trunc=BOOL,
            chown_restricted=BOOL,
            case_insensitive=BOOL,
            case_preserving=BOOL,
        ),
        _OBJ_ATTRIBUTES,
    ),
    _v3(
        "COMMIT",  # 3.3.21
        struct("COMMIT3args", file=NFS_FH3, offset=OFFSET3, count=COUNT3_OR_REST),
        COMMIT3RESOK,
        struct("COMMIT3resfail", file_wcc=WCC_DATA),
    ),
)

# Appendix I
MOUNTSTAT3 = enum("mountstat3", MOUNT3_STATUS | {0: "MNT3_OK"})
_PSEUDOFLAVORS = {390003: "RPCSEC_GSS_KRB5", 390004: "RPCSEC_GSS_KRB5I", 390005: "RPCSEC_GSS_KRB5P"}  # RFC 2623, 2.2.3
FLAVORS = enum("auth_flavor", FLAVOR_NAMES | _PSEUDOFLAVORS)
DIRPATH = string("dirpath", 1024)
MOUNT_NAME = string("name", 255)
MOUNT_ENTRY = struct("mountbody", ml_hostname=MOUNT_NAME, ml_directory=DIRPATH)
EXPORT_ENTRY = struct("exportnode", ex_dir=DIRPATH, ex_groups=linked(struct("groupnode", gr_name=MOUNT_NAME)))
MOUNT_DIRPATH = struct("dirpath", dirpath=DIRPATH)
MOUNT_LIST = struct("mountlist", mountlist=linked(MOUNT_ENTRY))
EXPORTS = struct("exports", exports=linked(EXPORT_ENTRY))
MOUNT3 = table(
    ProcedureShape("NULL"),
    ProcedureShape(
        "MNT",
        MOUNT_DIRPATH,
        result(
            "mountres3",
            MOUNTSTAT3,
            struct("mountres3_ok", fhandle=XdrOpaque("fhandle3", HANDLE, maximum=64), auth_flavors=array(FLAVORS)),
            discriminant="fhs_status",
        ),
    ),
    ProcedureShape("DUMP", None, MOUNT_LIST),
    ProcedureShape("UMNT", MOUNT_DIRPATH, None),
    ProcedureShape("UMNTALL", None, None),
    ProcedureShape("EXPORT", None, EXPORTS),
)
