"""The NFSACL side protocol, which no RFC describes: POSIX access control lists beside NFS versions 2 and 3."""

from __future__ import annotations

from . import rfc1094
from .language import declared

TYPES = declared(
    """
flags mask { NA_ACL = 0x1, NA_ACLCNT = 0x2, NA_DFACL = 0x4, NA_DFACLCNT = 0x8 };
enum aclent_type {
    NA_USER_OBJ = 1, NA_USER = 2, NA_GROUP_OBJ = 4, NA_GROUP = 8, NA_CLASS_OBJ = 16, NA_OTHER_OBJ = 32,
    NA_DEFAULT_USER_OBJ = 4097, NA_DEFAULT_USER = 4098, NA_DEFAULT_GROUP_OBJ = 4100, NA_DEFAULT_GROUP = 4104,
    NA_DEFAULT_CLASS_OBJ = 4112, NA_DEFAULT_OTHER_OBJ = 4128
};
flags perm { NA_READ = 0x4, NA_WRITE = 0x2, NA_EXEC = 0x1 };
struct aclent { aclent_type type; uint32_t id; perm perm; };
struct secattr { mask mask; uint32_t aclcnt; aclent aclent<1024>; uint32_t dfaclcnt; aclent dfaclent<1024>; };
struct attr { post_op_attr attr; };
struct attr2 { fattr attr; };
struct GETACL3args { nfs_fh3 fh; mask mask; };
struct GETACL3resok { post_op_attr attr; secattr acl; };
union GETACL3res switch (nfsstat3 status) { case NFS3_OK: GETACL3resok; default: attr; };
struct SETACL3args { nfs_fh3 fh; secattr acl; };
union SETACL3res switch (nfsstat3 status) { case NFS3_OK: attr; default: attr; };
struct GETXATTRDIR3args { nfs_fh3 fh; bool create; };
struct GETXATTRDIR3resok { nfs_fh3 fh; post_op_attr attr; };
union GETXATTRDIR3res switch (nfsstat3 status) { case NFS3_OK: GETXATTRDIR3resok; default: void; };
program NFSACL3 {
    void NULL(void) = 0;
    GETACL3res GETACL(GETACL3args) = 1;
    SETACL3res SETACL(SETACL3args) = 2;
    GETXATTRDIR3res GETXATTRDIR(GETXATTRDIR3args) = 3;
};
struct GETACL2args { fhandle fh; mask mask; };
struct GETACL2resok { fattr attr; secattr acl; };
union GETACL2res switch (stat status) { case NFS_OK: GETACL2resok; default: void; };
struct SETACL2args { fhandle fh; secattr acl; };
union SETACL2res switch (stat status) { case NFS_OK: attr2; default: void; };
struct GETATTR2args { fhandle fh; };
union GETATTR2res switch (stat status) { case NFS_OK: attr2; default: void; };
struct ACCESS2args { fhandle fh; access3 access; };
struct ACCESS2resok { fattr attr; access3 access; };
union ACCESS2res switch (stat status) { case NFS_OK: ACCESS2resok; default: void; };
struct GETXATTRDIR2args { fhandle fh; bool create; };
struct GETXATTRDIR2resok { fhandle fh; fattr attr; };
union GETXATTRDIR2res switch (stat status) { case NFS_OK: GETXATTRDIR2resok; default: void; };
program NFSACL2 {
    void NULL(void) = 0;
    GETACL2res GETACL(GETACL2args) = 1;
    SETACL2res SETACL(SETACL2args) = 2;
    GETATTR2res GETATTR(GETATTR2args) = 3;
    ACCESS2res ACCESS(ACCESS2args) = 4;
    GETXATTRDIR2res GETXATTRDIR(GETXATTRDIR2args) = 5;
};
    """,
    rfc1094.TYPES,
)
