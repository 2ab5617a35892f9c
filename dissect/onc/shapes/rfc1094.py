"""NFS version 2 and MOUNT versions 1 and 2 (RFC 1094; X/Open XNFS for MOUNT version 2)."""

from __future__ import annotations

from . import rfc1813
from .language import declared

TYPES = declared(
    """
/* 2.3 */
enum stat {
    NFS_OK = 0, NFSERR_PERM = 1, NFSERR_NOENT = 2, NFSERR_IO = 5, NFSERR_NXIO = 6, NFSERR_ACCES = 13,
    NFSERR_EXIST = 17, NFSERR_NOTDIR = 20, NFSERR_ISDIR = 21, NFSERR_FBIG = 27, NFSERR_NOSPC = 28,
    NFSERR_ROFS = 30, NFSERR_NAMETOOLONG = 63, NFSERR_NOTEMPTY = 66, NFSERR_DQUOT = 69, NFSERR_STALE = 70,
    NFSERR_NODEV = 19, NFSERR_WFLUSH = 99
};
enum ftype { NFNON = 0, NFREG = 1, NFDIR = 2, NFBLK = 3, NFCHR = 4, NFLNK = 5 };
typedef handle fhandle[32];
struct timeval { uint32_t seconds; uint32_t useconds; };
typedef octal uint32_t mode;
typedef string filename<255>;
typedef string path<1024>;
typedef data nfsdata<8192>;
struct fattr {
    ftype type; mode mode; uint32_t nlink; uint32_t uid; uint32_t gid; uint32_t size; uint32_t blocksize;
    uint32_t rdev; uint32_t blocks; uint32_t fsid; uint32_t fileid; timeval atime; timeval mtime; timeval ctime;
};
struct sattr { mode mode; uint32_t uid; uint32_t gid; uint32_t size; timeval atime; timeval mtime; };
struct diropargs { fhandle dir; filename name; };
/* 2.2 */
struct readargs { fhandle file; uint32_t offset; uint32_t count; uint32_t totalcount; };
struct readokres { fattr attributes; nfsdata data; };
struct writeargs { fhandle file; uint32_t beginoffset; uint32_t offset; uint32_t totalcount; nfsdata data; };
struct symlinkargs { diropargs from; path to; sattr attributes; };
typedef opaque nfscookie[4];
struct readdirargs { fhandle dir; nfscookie cookie; uint32_t count; };
struct readlinkok { path data; };
struct entry { uint32_t fileid; filename name; nfscookie cookie; };
struct createargs { diropargs where; sattr attributes; };
struct file_handle { fhandle file; };
struct attrstat { fattr attributes; };
struct diropok { fhandle file; fattr attributes; };
struct info { uint32_t tsize; uint32_t bsize; uint32_t blocks; uint32_t bfree; uint32_t bavail; };
union getattrres switch (stat status) { case NFS_OK: attrstat; default: void; };
struct sattrargs { fhandle file; sattr attributes; };
union setattrres switch (stat status) { case NFS_OK: attrstat; default: void; };
union lookupres switch (stat status) { case NFS_OK: diropok; default: void; };
union readlinkres switch (stat status) { case NFS_OK: readlinkok; default: void; };
union readres switch (stat status) { case NFS_OK: readokres; default: void; };
union writeres switch (stat status) { case NFS_OK: attrstat; default: void; };
union createres switch (stat status) { case NFS_OK: diropok; default: void; };
union removeres switch (stat status) { case NFS_OK: void; default: void; };
struct renameargs { diropargs from; diropargs to; };
union renameres switch (stat status) { case NFS_OK: void; default: void; };
struct linkargs { fhandle from; diropargs to; };
union linkres switch (stat status) { case NFS_OK: void; default: void; };
union symlinkres switch (stat status) { case NFS_OK: void; default: void; };
union mkdirres switch (stat status) { case NFS_OK: diropok; default: void; };
union rmdirres switch (stat status) { case NFS_OK: void; default: void; };
struct readdirok { linked entry entries; bool eof; };
union readdirres switch (stat status) { case NFS_OK: readdirok; default: void; };
union statfsres switch (stat status) { case NFS_OK: info; default: void; };
program NFS2 {
    void NULL(void) = 0;  /* 2.2.1 */
    getattrres GETATTR(file_handle) = 1;  /* 2.2.2 */
    setattrres SETATTR(sattrargs) = 2;  /* 2.2.3 */
    void ROOT(void) = 3;  /* 2.2.4 */
    lookupres LOOKUP(diropargs) = 4;  /* 2.2.5 */
    readlinkres READLINK(file_handle) = 5;  /* 2.2.6 */
    readres READ(readargs) = 6;  /* 2.2.7 */
    void WRITECACHE(void) = 7;  /* 2.2.8 */
    writeres WRITE(writeargs) = 8;  /* 2.2.9 */
    createres CREATE(createargs) = 9;  /* 2.2.10 */
    removeres REMOVE(diropargs) = 10;  /* 2.2.11 */
    renameres RENAME(renameargs) = 11;  /* 2.2.12 */
    linkres LINK(linkargs) = 12;  /* 2.2.13 */
    symlinkres SYMLINK(symlinkargs) = 13;  /* 2.2.14 */
    mkdirres MKDIR(createargs) = 14;  /* 2.2.15 */
    rmdirres RMDIR(diropargs) = 15;  /* 2.2.16 */
    readdirres READDIR(readdirargs) = 16;  /* 2.2.17 */
    statfsres STATFS(file_handle) = 17;  /* 2.2.18 */
};
/* Appendix A */
/* A Unix error number; only those below have one everywhere. */
enum errno { MNT_OK = 0, EPERM = 1, ENOENT = 2, EIO = 5, EACCES = 13, ENOTDIR = 20, EINVAL = 22 };
union fhstatus switch (errno status) { case MNT_OK: fhandle directory; default: void; };
program MOUNT1 {
    void NULL(void) = 0;
    fhstatus MNT(mount_dirpath) = 1;
    mountlist DUMP(void) = 2;
    void UMNT(mount_dirpath) = 3;
    void UMNTALL(void) = 4;
    exports EXPORT(void) = 5;
    exports EXPORTALL(void) = 6;
};
/* X/Open XNFS, 8: pc_vdisable, pc_xxx and the masks are of one and two bytes, each in a word. */
struct ppathcnf {
    int32_t pc_link_max; int32_t pc_max_canon; int32_t pc_max_input; int32_t pc_name_max; int32_t pc_path_max;
    int32_t pc_pipe_buf; uint32_t pc_vdisable; int32_t pc_xxx; int32_t pc_mask[2];
};
program MOUNT2 {
    void NULL(void) = 0;
    fhstatus MNT(mount_dirpath) = 1;
    mountlist DUMP(void) = 2;
    void UMNT(mount_dirpath) = 3;
    void UMNTALL(void) = 4;
    exports EXPORT(void) = 5;
    exports EXPORTALL(void) = 6;
    ppathcnf PATHCONF(mount_dirpath) = 7;
};
    """,
    rfc1813.TYPES,
)
