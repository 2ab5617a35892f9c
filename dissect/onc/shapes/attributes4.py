"""The attributes of NFSv4: numbers, names and types (RFC 8881, 5.6 to 5.12; RFC 7862, 12; RFC 8275; RFC 8276)."""

from __future__ import annotations

from .nfs4_types import (
    CHANGEID4,
    FSID4,
    LABELFORMAT_SPEC4,
    LAYOUTTYPE4,
    LENGTH4,
    MODE4,
    NFS_FH4,
    NFS_FTYPE4,
    NFSACE4,
    NFSACL41,
    NFSSTAT4,
    NFSTIME4,
    PATHNAME4,
    SETTIME4,
    SPECDATA4,
    UTF8_CS,
    UTF8_MIXED,
)
from .types import (
    BOOL,
    HEXADECIMAL,
    INT32,
    UINT32,
    UINT64,
    XdrAttributes,
    XdrBitmap,
    XdrInteger,
    XdrOpaque,
    XdrType,
    array,
    enum,
    flags,
    struct,
)

_BITMAP = XdrBitmap("bitmap4", {})
_NAMES: dict[int, str] = {}
ATTRIBUTE_BITS = XdrBitmap("bitmap4", _NAMES)
"""A bitmap4 of attribute numbers."""

FH_EXPIRE_TYPE = flags(
    "fattr4_fh_expire_type",
    {
        0: "FH4_PERSISTENT",
        1: "FH4_NOEXPIRE_WITH_OPEN",
        2: "FH4_VOLATILE_ANY",
        4: "FH4_VOL_MIGRATION",
        8: "FH4_VOL_RENAME",
    },
)  # RFC 8881, 4.2.3
ACL_SUPPORT = flags(
    "fattr4_aclsupport",
    {1: "ACL4_SUPPORT_ALLOW_ACL", 2: "ACL4_SUPPORT_DENY_ACL", 4: "ACL4_SUPPORT_AUDIT_ACL", 8: "ACL4_SUPPORT_ALARM_ACL"},
)
FS_LOCATION4 = struct("fs_location4", server=array(UTF8_CS), rootpath=PATHNAME4)
FS_LOCATIONS4 = struct("fs_locations4", fs_root=PATHNAME4, locations=array(FS_LOCATION4))
FS_LOCATIONS_SERVER4 = struct(
    "fs_locations_server4", fls_currency=INT32, fls_info=XdrOpaque("opaque"), fls_server=UTF8_CS
)
FS_LOCATIONS_ITEM4 = struct("fs_locations_item4", fli_entries=array(FS_LOCATIONS_SERVER4), fli_rootpath=PATHNAME4)
FS_LOCATIONS_INFO4 = struct(
    "fs_locations_info4",
    fli_flags=flags("fli_flags", {1: "FSLI4IF_VAR_SUB"}),
    fli_valid_for=INT32,
    fli_fs_root=PATHNAME4,
    fli_items=array(FS_LOCATIONS_ITEM4),
)
FS4_STATUS = struct(
    "fs4_status",
    fss_absent=BOOL,
    fss_type=enum(
        "fs4_status_type",
        {
            1: "STATUS4_FIXED",
            2: "STATUS4_UPDATED",
            3: "STATUS4_VERSIONED",
            4: "STATUS4_WRITABLE",
            5: "STATUS4_REFERRAL",
        },
    ),
    fss_source=UTF8_CS,
    fss_current=UTF8_CS,
    fss_age=INT32,
    fss_version=NFSTIME4,
)
RETENTION_GET4 = struct("retention_get4", rg_duration=UINT64, rg_begin_time=array(NFSTIME4, 1))
RETENTION_SET4 = struct("retention_set4", rs_enable=BOOL, rs_duration=array(UINT64, 1))
MODE_MASKED4 = struct("mode_masked4", mm_value_to_set=MODE4, mm_mask_bits=MODE4)
LAYOUTHINT4 = struct("layouthint4", loh_type=LAYOUTTYPE4, loh_body=XdrOpaque("opaque"))
THRESHOLD_ITEM4 = struct(
    "threshold_item4",
    thi_layout_type=LAYOUTTYPE4,
    thi_hintset=XdrBitmap(
        "bitmap4", {0: "TH4_READ_SIZE", 1: "TH4_WRITE_SIZE", 2: "TH4_READ_IOSIZE", 3: "TH4_WRITE_IOSIZE"}
    ),
    thi_hintlist=XdrOpaque("opaque"),
)
MDSTHRESHOLD4 = struct("mdsthreshold4", mth_hints=array(THRESHOLD_ITEM4))
SEC_LABEL4 = struct("sec_label4", slai_lfs=LABELFORMAT_SPEC4, slai_data=XdrOpaque("opaque"))
CHANGE_ATTR_TYPE4 = enum(
    "change_attr_type4",
    {
        0: "NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR",
        1: "NFS4_CHANGE_TYPE_IS_VERSION_COUNTER",
        2: "NFS4_CHANGE_TYPE_IS_VERSION_COUNTER_NOPNFS",
        3: "NFS4_CHANGE_TYPE_IS_TIME_METADATA",
        4: "NFS4_CHANGE_TYPE_IS_UNDEFINED",
    },
)
FS_CHARSET_CAP = flags("fs_charset_cap4", {1: "FSCHARSET_CAP4_CONTAINS_NON_UTF8", 2: "FSCHARSET_CAP4_ALLOWS_ONLY_UTF8"})
OPEN_ARGUMENTS4 = struct(
    "open_arguments4",
    oa_share_access=_BITMAP,
    oa_share_deny=_BITMAP,
    oa_share_access_want=_BITMAP,
    oa_open_claim=_BITMAP,
    oa_create_mode=_BITMAP,
)  # RFC 9754

NUMBERED: dict[int, tuple[str, XdrType]] = {
    0: ("supported_attrs", ATTRIBUTE_BITS),
    1: ("type", NFS_FTYPE4),
    2: ("fh_expire_type", FH_EXPIRE_TYPE),
    3: ("change", CHANGEID4),
    4: ("size", UINT64),
    5: ("link_support", BOOL),
    6: ("symlink_support", BOOL),
    7: ("named_attr", BOOL),
    8: ("fsid", FSID4),
    9: ("unique_handles", BOOL),
    10: ("lease_time", XdrInteger("nfs_lease4", unit="seconds")),
    11: ("rdattr_error", NFSSTAT4),
    12: ("acl", array(NFSACE4)),
    13: ("aclsupport", ACL_SUPPORT),
    14: ("archive", BOOL),
    15: ("cansettime", BOOL),
    16: ("case_insensitive", BOOL),
    17: ("case_preserving", BOOL),
    18: ("chown_restricted", BOOL),
    19: ("filehandle", NFS_FH4),
    20: ("fileid", UINT64),
    21: ("files_avail", UINT64),
    22: ("files_free", UINT64),
    23: ("files_total", UINT64),
    24: ("fs_locations", FS_LOCATIONS4),
    25: ("hidden", BOOL),
    26: ("homogeneous", BOOL),
    27: ("maxfilesize", UINT64),
    28: ("maxlink", UINT32),
    29: ("maxname", UINT32),
    30: ("maxread", UINT64),
    31: ("maxwrite", UINT64),
    32: ("mimetype", UTF8_CS),
    33: ("mode", MODE4),
    34: ("no_trunc", BOOL),
    35: ("numlinks", UINT32),
    36: ("owner", UTF8_MIXED),
    37: ("owner_group", UTF8_MIXED),
    38: ("quota_avail_hard", UINT64),
    39: ("quota_avail_soft", UINT64),
    40: ("quota_used", UINT64),
    41: ("rawdev", SPECDATA4),
    42: ("space_avail", UINT64),
    43: ("space_free", UINT64),
    44: ("space_total", UINT64),
    45: ("space_used", UINT64),
    46: ("system", BOOL),
    47: ("time_access", NFSTIME4),
    48: ("time_access_set", SETTIME4),
    49: ("time_backup", NFSTIME4),
    50: ("time_create", NFSTIME4),
    51: ("time_delta", NFSTIME4),
    52: ("time_metadata", NFSTIME4),
    53: ("time_modify", NFSTIME4),
    54: ("time_modify_set", SETTIME4),
    55: ("mounted_on_fileid", UINT64),
    56: ("dir_notif_delay", NFSTIME4),
    57: ("dirent_notif_delay", NFSTIME4),
    58: ("dacl", NFSACL41),
    59: ("sacl", NFSACL41),
    60: ("change_policy", struct("change_policy4", cp_major=UINT64, cp_minor=UINT64)),
    61: ("fs_status", FS4_STATUS),
    62: ("fs_layout_type", array(LAYOUTTYPE4)),
    63: ("layout_hint", LAYOUTHINT4),
    64: ("layout_type", array(LAYOUTTYPE4)),
    65: ("layout_blksize", UINT32),
    66: ("layout_alignment", UINT32),
    67: ("fs_locations_info", FS_LOCATIONS_INFO4),
    68: ("mdsthreshold", MDSTHRESHOLD4),
    69: ("retention_get", RETENTION_GET4),
    70: ("retention_set", RETENTION_SET4),
    71: ("retentevt_get", RETENTION_GET4),
    72: ("retentevt_set", RETENTION_SET4),
    73: ("retention_hold", XdrInteger("fattr4_retention_hold", 8, form=HEXADECIMAL)),
    74: ("mode_set_masked", MODE_MASKED4),
    75: ("suppattr_exclcreat", ATTRIBUTE_BITS),
    76: ("fs_charset_cap", FS_CHARSET_CAP),
    # RFC 7862, 12.2
    77: ("clone_blksize", UINT32),
    78: ("space_freed", LENGTH4),
    79: ("change_attr_type", CHANGE_ATTR_TYPE4),
    80: ("sec_label", SEC_LABEL4),
    81: ("mode_umask", struct("mode_umask4", mu_mode=MODE4, mu_umask=MODE4)),  # RFC 8275
    82: ("xattr_support", BOOL),  # RFC 8276
    83: ("offline", BOOL),  # RFC 9754
    84: ("time_deleg_access", NFSTIME4),
    85: ("time_deleg_modify", NFSTIME4),
    86: ("open_arguments", OPEN_ARGUMENTS4),
}
"""Number, name and type."""

_NAMES.update({number: name for number, (name, _) in NUMBERED.items()})

FATTR4 = XdrAttributes("fattr4", NUMBERED, ATTRIBUTE_BITS)
