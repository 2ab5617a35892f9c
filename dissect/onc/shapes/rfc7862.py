"""The operations that NFS version 4.2 added (RFC 7862, RFC 7863), and extended attributes (RFC 8276)."""

from __future__ import annotations

from . import layouts, rfc7530
from .language import declared
from .types import XdrInteger

TYPES = declared(
    """
/* 15.5 */
bits io_advise_bits {
    IO_ADVISE4_NORMAL = 0, IO_ADVISE4_SEQUENTIAL = 1, IO_ADVISE4_SEQUENTIAL_BACKWARDS = 2,
    IO_ADVISE4_RANDOM = 3, IO_ADVISE4_WILLNEED = 4, IO_ADVISE4_WILLNEED_OPPORTUNISTIC = 5,
    IO_ADVISE4_DONTNEED = 6, IO_ADVISE4_NOREUSE = 7, IO_ADVISE4_READ = 8, IO_ADVISE4_WRITE = 9,
    IO_ADVISE4_INIT_PROXIMITY = 10
};
enum data_content4 { NFS4_CONTENT_DATA = 0, NFS4_CONTENT_HOLE = 1 };
/* 15.10 */
struct data4 { offset4 d_offset; data4 d_data; };
struct data_info4 { offset4 di_offset; length4 di_length; };
union read_plus_content switch (data_content4 rpc_content) {
    case NFS4_CONTENT_DATA: data4;
    case NFS4_CONTENT_HOLE: data_info4;
    default: void;
};
/* 8.1 and 15.12 */
struct app_data_block4 {
    offset4 adb_offset; length4 adb_block_size; blocks adb_block_count; length4 adb_reloff_blocknum;
    count4 adb_block_num; length4 adb_reloff_pattern; opaque adb_pattern<>;
};
struct copy_requirements4 { bool cr_consecutive; bool cr_synchronous; };
struct READ_PLUS4args { stateid4 rpa_stateid; offset4 rpa_offset; count4 rpa_count; };
struct COPY4args {
    stateid4 ca_src_stateid; stateid4 ca_dst_stateid; offset4 ca_src_offset; offset4 ca_dst_offset;
    length4_or_rest ca_count; bool ca_consecutive; bool ca_synchronous; netloc4 ca_source_server<>;
};
struct CLONE4args {
    stateid4 cl_src_stateid; stateid4 cl_dst_stateid; offset4 cl_src_offset; offset4 cl_dst_offset;
    length4_or_rest cl_count;
};
typedef string xattrkey4<>;
typedef opaque xattrvalue4<>;
struct ALLOCATE4args { stateid4 aa_stateid; offset4 aa_offset; length4 aa_length; };
union ALLOCATE4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct COPY4resok { write_response4 cr_response; copy_requirements4 cr_requirements; };
union COPY4res switch (nfsstat4 status) {
    case NFS4_OK: COPY4resok;
    case NFS4ERR_OFFLOAD_NO_REQS: copy_requirements4 cr_requirements;
    default: void;
};
struct COPY_NOTIFY4args { stateid4 cna_src_stateid; netloc4 cna_destination_server; };
struct COPY_NOTIFY4resok { nfstime4 cnr_lease_time; stateid4 cnr_stateid; netloc4 cnr_source_server<>; };
union COPY_NOTIFY4res switch (nfsstat4 status) { case NFS4_OK: COPY_NOTIFY4resok; default: void; };
struct DEALLOCATE4args { stateid4 da_stateid; offset4 da_offset; length4 da_length; };
union DEALLOCATE4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct IO_ADVISE4args {
    stateid4 iaa_stateid; offset4 iaa_offset; length4_or_rest iaa_count; io_advise_bits iaa_hints;
};
struct IO_ADVISE4resok { io_advise_bits ior_hints; };
union IO_ADVISE4res switch (nfsstat4 status) { case NFS4_OK: IO_ADVISE4resok; default: void; };
struct LAYOUTERROR4args {
    offset4 lea_offset; length4 lea_length; stateid4 lea_stateid; device_error4 lea_errors<>;
};
union LAYOUTERROR4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct LAYOUTSTATS4args {
    offset4 lsa_offset; length4 lsa_length; stateid4 lsa_stateid; io_info4 lsa_read; io_info4 lsa_write;
    deviceid4 lsa_deviceid; layoutstats_update4 lsa_layoutupdate;
};
union LAYOUTSTATS4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct OFFLOAD_CANCEL4args { stateid4 oca_stateid; };
union OFFLOAD_CANCEL4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct OFFLOAD_STATUS4args { stateid4 osa_stateid; };
struct OFFLOAD_STATUS4resok { length4 osr_count; nfsstat4 osr_complete<1>; };
union OFFLOAD_STATUS4res switch (nfsstat4 status) { case NFS4_OK: OFFLOAD_STATUS4resok; default: void; };
struct read_plus_res4 { bool rpr_eof; read_plus_content rpr_contents<>; };
union READ_PLUS4res switch (nfsstat4 status) { case NFS4_OK: read_plus_res4; default: void; };
struct SEEK4args { stateid4 sa_stateid; offset4 sa_offset; data_content4 sa_what; };
struct seek_res4 { bool sr_eof; offset4 sr_offset; };
union SEEK4res switch (nfsstat4 status) { case NFS4_OK: seek_res4; default: void; };
struct WRITE_SAME4args { stateid4 wsa_stateid; stable_how4 wsa_stable; app_data_block4 wsa_adb; };
union WRITE_SAME4res switch (nfsstat4 status) { case NFS4_OK: write_response4; default: void; };
union CLONE4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct GETXATTR4args { xattrkey4 gxa_name; };
struct GETXATTR4resok { xattrvalue4 gxr_value; };
union GETXATTR4res switch (nfsstat4 status) { case NFS4_OK: GETXATTR4resok; default: void; };
enum setxattr_option4 { SETXATTR4_EITHER = 0, SETXATTR4_CREATE = 1, SETXATTR4_REPLACE = 2 };
struct SETXATTR4args { setxattr_option4 sxa_option; xattrkey4 sxa_key; xattrvalue4 sxa_value; };
union SETXATTR4res switch (nfsstat4 status) { case NFS4_OK: change_info4 sxr_info; default: void; };
struct LISTXATTRS4args { nfs_cookie4 lxa_cookie; count4 lxa_maxcount; };
struct LISTXATTRS4resok { nfs_cookie4 lxr_cookie; xattrkey4 lxr_names<>; bool lxr_eof; };
union LISTXATTRS4res switch (nfsstat4 status) { case NFS4_OK: LISTXATTRS4resok; default: void; };
struct REMOVEXATTR4args { xattrkey4 rxa_name; };
union REMOVEXATTR4res switch (nfsstat4 status) { case NFS4_OK: change_info4 rxr_info; default: void; };
program COMPOUND {
    ALLOCATE4res ALLOCATE(ALLOCATE4args) = 59 in 15.1;
    COPY4res COPY(COPY4args) = 60 in 15.2;
    COPY_NOTIFY4res COPY_NOTIFY(COPY_NOTIFY4args) = 61 in 15.3;
    DEALLOCATE4res DEALLOCATE(DEALLOCATE4args) = 62 in 15.4;
    IO_ADVISE4res IO_ADVISE(IO_ADVISE4args) = 63 in 15.5;
    LAYOUTERROR4res LAYOUTERROR(LAYOUTERROR4args) = 64 in 15.6;
    LAYOUTSTATS4res LAYOUTSTATS(LAYOUTSTATS4args) = 65 in 15.7;
    OFFLOAD_CANCEL4res OFFLOAD_CANCEL(OFFLOAD_CANCEL4args) = 66 in 15.8;
    OFFLOAD_STATUS4res OFFLOAD_STATUS(OFFLOAD_STATUS4args) = 67 in 15.9;
    READ_PLUS4res READ_PLUS(READ_PLUS4args) = 68 in 15.10;
    SEEK4res SEEK(SEEK4args) = 69 in 15.11;
    WRITE_SAME4res WRITE_SAME(WRITE_SAME4args) = 70 in 15.12;
    CLONE4res CLONE(CLONE4args) = 71 in 15.13;
    GETXATTR4res GETXATTR(GETXATTR4args) = 72 in RFC 8276, 8.4.1;
    SETXATTR4res SETXATTR(SETXATTR4args) = 73 in RFC 8276, 8.4.2;
    LISTXATTRS4res LISTXATTRS(LISTXATTRS4args) = 74 in RFC 8276, 8.4.3;
    REMOVEXATTR4res REMOVEXATTR(REMOVEXATTR4args) = 75 in RFC 8276, 8.4.4;
};
    """,
    rfc7530.TYPES,
    layouts.TYPES,
    blocks=XdrInteger("length4", 8),  # not bytes
)
