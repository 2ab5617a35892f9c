"""NFS version 2 and MOUNT versions 1 and 2 (RFC 1094; X/Open XNFS for MOUNT version 2)."""

from __future__ import annotations

from ..statuses import MOUNT1_STATUS, NFS2_STATUS
from .rfc1813 import EXPORTS, MOUNT_DIRPATH, MOUNT_LIST
from .types import (
    BOOL,
    DATA,
    HANDLE,
    INT32,
    OCTAL,
    UINT32,
    ProcedureShape,
    XdrArm,
    XdrArray,
    XdrInteger,
    XdrOpaque,
    XdrStruct,
    enum,
    fixed,
    linked,
    result,
    string,
    struct,
    table,
)

# 2.3
STAT = enum("stat", {**NFS2_STATUS, 0: "NFS_OK"})
FTYPE = enum("ftype", {0: "NFNON", 1: "NFREG", 2: "NFDIR", 3: "NFBLK", 4: "NFCHR", 5: "NFLNK"})
FHANDLE = XdrOpaque("fhandle", HANDLE, size=32)
TIMEVAL = struct("timeval", seconds=UINT32, useconds=UINT32)
MODE = XdrInteger("mode", form=OCTAL)
FILENAME = string("filename", 255)
PATH = string("path", 1024)
NFSDATA = XdrOpaque("nfsdata", DATA, maximum=8192)
FATTR = struct(
    "fattr",
    type=FTYPE,
    mode=MODE,
    nlink=UINT32,
    uid=UINT32,
    gid=UINT32,
    size=UINT32,
    blocksize=UINT32,
    rdev=UINT32,
    blocks=UINT32,
    fsid=UINT32,
    fileid=UINT32,
    atime=TIMEVAL,
    mtime=TIMEVAL,
    ctime=TIMEVAL,
)
SATTR = struct("sattr", mode=MODE, uid=UINT32, gid=UINT32, size=UINT32, atime=TIMEVAL, mtime=TIMEVAL)
DIROPARGS = struct("diropargs", dir=FHANDLE, name=FILENAME)

# 2.2
READARGS = struct("readargs", file=FHANDLE, offset=UINT32, count=UINT32, totalcount=UINT32)
READRES = struct("readokres", attributes=FATTR, data=NFSDATA)
WRITEARGS = struct("writeargs", file=FHANDLE, beginoffset=UINT32, offset=UINT32, totalcount=UINT32, data=NFSDATA)
SYMLINKARGS = struct("symlinkargs", from_=DIROPARGS, to=PATH, attributes=SATTR)
READDIRARGS = struct("readdirargs", dir=FHANDLE, cookie=fixed("nfscookie", 4), count=UINT32)
READLINKRES = struct("readlinkres", data=PATH)
_ENTRY = struct("entry", fileid=UINT32, name=FILENAME, cookie=fixed("nfscookie", 4))
_CREATEARGS = struct("createargs", where=DIROPARGS, attributes=SATTR)
_FILE = struct("fhandle", file=FHANDLE)
_ATTRSTAT = struct("attrstat", attributes=FATTR)
_DIROPRES = struct("diropok", file=FHANDLE, attributes=FATTR)
_STATFS = struct("info", tsize=UINT32, bsize=UINT32, blocks=UINT32, bfree=UINT32, bavail=UINT32)


def _v2(name: str, arguments: XdrStruct, ok: XdrArm = None) -> ProcedureShape:
    return ProcedureShape(name, arguments, result(f"{name.lower()}res", STAT, ok))


NFS2 = table(
    ProcedureShape("NULL"),  # 2.2.1
    _v2("GETATTR", _FILE, _ATTRSTAT),  # 2.2.2
    _v2("SETATTR", struct("sattrargs", file=FHANDLE, attributes=SATTR), _ATTRSTAT),  # 2.2.3
    ProcedureShape("ROOT"),  # 2.2.4
    _v2("LOOKUP", DIROPARGS, _DIROPRES),  # 2.2.5
    _v2("READLINK", _FILE, READLINKRES),  # 2.2.6
    _v2("READ", READARGS, READRES),  # 2.2.7
    ProcedureShape("WRITECACHE"),  # 2.2.8
    _v2("WRITE", WRITEARGS, _ATTRSTAT),  # 2.2.9
    _v2("CREATE", _CREATEARGS, _DIROPRES),  # 2.2.10
    _v2("REMOVE", DIROPARGS),  # 2.2.11
    _v2("RENAME", struct("renameargs", from_=DIROPARGS, to=DIROPARGS)),  # 2.2.12
    _v2("LINK", struct("linkargs", from_=FHANDLE, to=DIROPARGS)),  # 2.2.13
    _v2("SYMLINK", SYMLINKARGS),  # 2.2.14
    _v2("MKDIR", _CREATEARGS, _DIROPRES),  # 2.2.15
    _v2("RMDIR", DIROPARGS),  # 2.2.16
    _v2("READDIR", READDIRARGS, struct("readdirok", entries=linked(_ENTRY), eof=BOOL)),  # 2.2.17
    _v2("STATFS", _FILE, _STATFS),  # 2.2.18
)

# Appendix A
_ERRNO = enum("errno", {**MOUNT1_STATUS, 0: "MNT_OK"})
MOUNT1 = table(
    ProcedureShape("NULL"),
    ProcedureShape("MNT", MOUNT_DIRPATH, result("fhstatus", _ERRNO, ("directory", FHANDLE))),
    ProcedureShape("DUMP", None, MOUNT_LIST),
    ProcedureShape("UMNT", MOUNT_DIRPATH),
    ProcedureShape("UMNTALL"),
    ProcedureShape("EXPORT", None, EXPORTS),
    ProcedureShape("EXPORTALL", None, EXPORTS),
)
# X/Open XNFS, 8: pc_vdisable, pc_xxx and the masks are of one and two bytes, each in a word.
_PPATHCNF = struct(
    "ppathcnf",
    pc_link_max=INT32,
    pc_max_canon=INT32,
    pc_max_input=INT32,
    pc_name_max=INT32,
    pc_path_max=INT32,
    pc_pipe_buf=INT32,
    pc_vdisable=UINT32,
    pc_xxx=INT32,
    pc_mask=XdrArray("short", INT32, size=2),
)
MOUNT2 = {**MOUNT1, 7: ProcedureShape("PATHCONF", MOUNT_DIRPATH, _PPATHCNF)}
