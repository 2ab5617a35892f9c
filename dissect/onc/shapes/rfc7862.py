"""The operations that NFS version 4.2 added (RFC 7862, RFC 7863), and extended attributes (RFC 8276)."""

from __future__ import annotations

from .layouts import DEVICE_ERROR4, IO_INFO4, LAYOUTSTATS_UPDATE4
from .nfs4_types import (
    CHANGE_INFO4,
    COUNT4,
    DATA4,
    DEVICEID4,
    LENGTH4,
    LENGTH4_OR_REST,
    NETLOC4,
    NFS_COOKIE4,
    NFSSTAT4,
    NFSTIME4,
    OFFSET4,
    STABLE_HOW4,
    STATEID4,
    WRITE_RESPONSE4,
)
from .rfc7530 import operation
from .types import (
    BOOL,
    OperationShape,
    XdrBitmap,
    XdrInteger,
    XdrOpaque,
    array,
    enum,
    struct,
    union_or,
)

# 15.5
IO_ADVISE_BITS = XdrBitmap(
    "bitmap4",
    {
        0: "IO_ADVISE4_NORMAL",
        1: "IO_ADVISE4_SEQUENTIAL",
        2: "IO_ADVISE4_SEQUENTIAL_BACKWARDS",
        3: "IO_ADVISE4_RANDOM",
        4: "IO_ADVISE4_WILLNEED",
        5: "IO_ADVISE4_WILLNEED_OPPORTUNISTIC",
        6: "IO_ADVISE4_DONTNEED",
        7: "IO_ADVISE4_NOREUSE",
        8: "IO_ADVISE4_READ",
        9: "IO_ADVISE4_WRITE",
        10: "IO_ADVISE4_INIT_PROXIMITY",
    },
)
DATA_CONTENT4 = enum("data_content4", {0: "NFS4_CONTENT_DATA", 1: "NFS4_CONTENT_HOLE"})
# 15.10
READ_PLUS_CONTENT = union_or(
    "read_plus_content",
    "rpc_content",
    DATA_CONTENT4,
    {
        0: struct("data4", d_offset=OFFSET4, d_data=DATA4),
        1: struct("data_info4", di_offset=OFFSET4, di_length=LENGTH4),
    },
)
# 8.1 and 15.12
_BLOCKS = XdrInteger("length4", 8)
"""Not bytes."""
APP_DATA_BLOCK4 = struct(
    "app_data_block4",
    adb_offset=OFFSET4,
    adb_block_size=LENGTH4,
    adb_block_count=_BLOCKS,
    adb_reloff_blocknum=LENGTH4,
    adb_block_num=COUNT4,
    adb_reloff_pattern=LENGTH4,
    adb_pattern=XdrOpaque("opaque"),
)
COPY_REQUIREMENTS4 = struct("copy_requirements4", cr_consecutive=BOOL, cr_synchronous=BOOL)
READ_PLUS4ARGS = struct("READ_PLUS4args", rpa_stateid=STATEID4, rpa_offset=OFFSET4, rpa_count=COUNT4)
COPY4ARGS = struct(
    "COPY4args",
    ca_src_stateid=STATEID4,
    ca_dst_stateid=STATEID4,
    ca_src_offset=OFFSET4,
    ca_dst_offset=OFFSET4,
    ca_count=LENGTH4_OR_REST,
    ca_consecutive=BOOL,
    ca_synchronous=BOOL,
    ca_source_server=array(NETLOC4),
)
CLONE4ARGS = struct(
    "CLONE4args",
    cl_src_stateid=STATEID4,
    cl_dst_stateid=STATEID4,
    cl_src_offset=OFFSET4,
    cl_dst_offset=OFFSET4,
    cl_count=LENGTH4_OR_REST,
)
XATTRKEY4 = XdrOpaque("xattrkey4", "text")
XATTRVALUE4 = XdrOpaque("xattrvalue4")

OPERATIONS: dict[int, OperationShape] = {
    59: operation(
        "ALLOCATE", "15.1", struct("ALLOCATE4args", aa_stateid=STATEID4, aa_offset=OFFSET4, aa_length=LENGTH4)
    ),
    60: operation(
        "COPY",
        "15.2",
        COPY4ARGS,
        struct("COPY4resok", cr_response=WRITE_RESPONSE4, cr_requirements=COPY_REQUIREMENTS4),
        {10094: ("cr_requirements", COPY_REQUIREMENTS4)},
    ),
    61: operation(
        "COPY_NOTIFY",
        "15.3",
        struct("COPY_NOTIFY4args", cna_src_stateid=STATEID4, cna_destination_server=NETLOC4),
        struct(
            "COPY_NOTIFY4resok",
            cnr_lease_time=NFSTIME4,
            cnr_stateid=STATEID4,
            cnr_source_server=array(NETLOC4),
        ),
    ),
    62: operation(
        "DEALLOCATE", "15.4", struct("DEALLOCATE4args", da_stateid=STATEID4, da_offset=OFFSET4, da_length=LENGTH4)
    ),
    63: operation(
        "IO_ADVISE",
        "15.5",
        struct(
            "IO_ADVISE4args",
            iaa_stateid=STATEID4,
            iaa_offset=OFFSET4,
            iaa_count=LENGTH4_OR_REST,
            iaa_hints=IO_ADVISE_BITS,
        ),
        struct("IO_ADVISE4resok", ior_hints=IO_ADVISE_BITS),
    ),
    64: operation(
        "LAYOUTERROR",
        "15.6",
        struct(
            "LAYOUTERROR4args",
            lea_offset=OFFSET4,
            lea_length=LENGTH4,
            lea_stateid=STATEID4,
            lea_errors=array(DEVICE_ERROR4),
        ),
    ),
    65: operation(
        "LAYOUTSTATS",
        "15.7",
        struct(
            "LAYOUTSTATS4args",
            lsa_offset=OFFSET4,
            lsa_length=LENGTH4,
            lsa_stateid=STATEID4,
            lsa_read=IO_INFO4,
            lsa_write=IO_INFO4,
            lsa_deviceid=DEVICEID4,
            lsa_layoutupdate=LAYOUTSTATS_UPDATE4,
        ),
    ),
    66: operation("OFFLOAD_CANCEL", "15.8", struct("OFFLOAD_CANCEL4args", oca_stateid=STATEID4)),
    67: operation(
        "OFFLOAD_STATUS",
        "15.9",
        struct("OFFLOAD_STATUS4args", osa_stateid=STATEID4),
        struct("OFFLOAD_STATUS4resok", osr_count=LENGTH4, osr_complete=array(NFSSTAT4, 1)),
    ),
    68: operation(
        "READ_PLUS",
        "15.10",
        READ_PLUS4ARGS,
        struct("read_plus_res4", rpr_eof=BOOL, rpr_contents=array(READ_PLUS_CONTENT)),
    ),
    69: operation(
        "SEEK",
        "15.11",
        struct("SEEK4args", sa_stateid=STATEID4, sa_offset=OFFSET4, sa_what=DATA_CONTENT4),
        struct("seek_res4", sr_eof=BOOL, sr_offset=OFFSET4),
    ),
    70: operation(
        "WRITE_SAME",
        "15.12",
        struct("WRITE_SAME4args", wsa_stateid=STATEID4, wsa_stable=STABLE_HOW4, wsa_adb=APP_DATA_BLOCK4),
        WRITE_RESPONSE4,
    ),
    71: operation("CLONE", "15.13", CLONE4ARGS),
    # RFC 8276
    72: operation(
        "GETXATTR",
        "RFC 8276, 8.4.1",
        struct("GETXATTR4args", gxa_name=XATTRKEY4),
        struct("GETXATTR4resok", gxr_value=XATTRVALUE4),
    ),
    73: operation(
        "SETXATTR",
        "RFC 8276, 8.4.2",
        struct(
            "SETXATTR4args",
            sxa_option=enum("setxattr_option4", {0: "SETXATTR4_EITHER", 1: "SETXATTR4_CREATE", 2: "SETXATTR4_REPLACE"}),
            sxa_key=XATTRKEY4,
            sxa_value=XATTRVALUE4,
        ),
        ("sxr_info", CHANGE_INFO4),
    ),
    74: operation(
        "LISTXATTRS",
        "RFC 8276, 8.4.3",
        struct("LISTXATTRS4args", lxa_cookie=NFS_COOKIE4, lxa_maxcount=COUNT4),
        struct("LISTXATTRS4resok", lxr_cookie=NFS_COOKIE4, lxr_names=array(XATTRKEY4), lxr_eof=BOOL),
    ),
    75: operation(
        "REMOVEXATTR", "RFC 8276, 8.4.4", struct("REMOVEXATTR4args", rxa_name=XATTRKEY4), ("rxr_info", CHANGE_INFO4)
    ),
}
