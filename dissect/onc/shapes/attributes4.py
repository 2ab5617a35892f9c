"""The attributes of NFSv4: numbers, names and types (RFC 8881, 5.6 to 5.12; RFC 7862, 12; RFC 8275; RFC 8276)."""

from __future__ import annotations

from . import nfs4_types
from .language import declared
from .types import XdrAttributes, XdrBitmap, XdrInteger

_NAMES: dict[int, str] = {}
ATTRIBUTE_BITS = XdrBitmap("bitmap4", _NAMES)
"""A bitmap4 of attribute numbers."""

TYPES = declared(
    """
/* RFC 8881, 4.2.3 */
flags fattr4_fh_expire_type {
    FH4_PERSISTENT = 0x0, FH4_NOEXPIRE_WITH_OPEN = 0x1, FH4_VOLATILE_ANY = 0x2, FH4_VOL_MIGRATION = 0x4,
    FH4_VOL_RENAME = 0x8
};
flags fattr4_aclsupport {
    ACL4_SUPPORT_ALLOW_ACL = 0x1, ACL4_SUPPORT_DENY_ACL = 0x2, ACL4_SUPPORT_AUDIT_ACL = 0x4,
    ACL4_SUPPORT_ALARM_ACL = 0x8
};
struct fs_location4 { utf8str_cs server<>; pathname4 rootpath; };
struct fs_locations4 { pathname4 fs_root; fs_location4 locations<>; };
struct fs_locations_server4 { int32_t fls_currency; opaque fls_info<>; utf8str_cs fls_server; };
struct fs_locations_item4 { fs_locations_server4 fli_entries<>; pathname4 fli_rootpath; };
flags fli_flags { FSLI4IF_VAR_SUB = 0x1 };
struct fs_locations_info4 {
    fli_flags fli_flags; int32_t fli_valid_for; pathname4 fli_fs_root; fs_locations_item4 fli_items<>;
};
enum fs4_status_type {
    STATUS4_FIXED = 1, STATUS4_UPDATED = 2, STATUS4_VERSIONED = 3, STATUS4_WRITABLE = 4, STATUS4_REFERRAL = 5
};
struct fs4_status {
    bool fss_absent; fs4_status_type fss_type; utf8str_cs fss_source; utf8str_cs fss_current; int32_t fss_age;
    nfstime4 fss_version;
};
struct retention_get4 { uint64_t rg_duration; nfstime4 rg_begin_time<1>; };
struct retention_set4 { bool rs_enable; uint64_t rs_duration<1>; };
struct mode_masked4 { mode4 mm_value_to_set; mode4 mm_mask_bits; };
struct layouthint4 { layouttype4 loh_type; opaque loh_body<>; };
bits threshold_hints { TH4_READ_SIZE = 0, TH4_WRITE_SIZE = 1, TH4_READ_IOSIZE = 2, TH4_WRITE_IOSIZE = 3 };
struct threshold_item4 { layouttype4 thi_layout_type; threshold_hints thi_hintset; opaque thi_hintlist<>; };
struct mdsthreshold4 { threshold_item4 mth_hints<>; };
struct sec_label4 { labelformat_spec4 slai_lfs; opaque slai_data<>; };
enum change_attr_type4 {
    NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR = 0, NFS4_CHANGE_TYPE_IS_VERSION_COUNTER = 1,
    NFS4_CHANGE_TYPE_IS_VERSION_COUNTER_NOPNFS = 2, NFS4_CHANGE_TYPE_IS_TIME_METADATA = 3,
    NFS4_CHANGE_TYPE_IS_UNDEFINED = 4
};
flags fs_charset_cap4 { FSCHARSET_CAP4_CONTAINS_NON_UTF8 = 0x1, FSCHARSET_CAP4_ALLOWS_ONLY_UTF8 = 0x2 };
/* RFC 9754 */
struct open_arguments4 {
    bitmap oa_share_access; bitmap oa_share_deny; bitmap oa_share_access_want; bitmap oa_open_claim;
    bitmap oa_create_mode;
};
struct change_policy4 { uint64_t cp_major; uint64_t cp_minor; };
typedef hex uint64_t fattr4_retention_hold;
struct mode_umask4 { mode4 mu_mode; mode4 mu_umask; };
attributes fattr4 by attribute_bits {
    attribute_bits supported_attrs = 0;
    nfs_ftype4 type = 1;
    fattr4_fh_expire_type fh_expire_type = 2;
    changeid4 change = 3;
    uint64_t size = 4;
    bool link_support = 5;
    bool symlink_support = 6;
    bool named_attr = 7;
    fsid4 fsid = 8;
    bool unique_handles = 9;
    nfs_lease4 lease_time = 10;
    nfsstat4 rdattr_error = 11;
    nfsace4 acl<> = 12;
    fattr4_aclsupport aclsupport = 13;
    bool archive = 14;
    bool cansettime = 15;
    bool case_insensitive = 16;
    bool case_preserving = 17;
    bool chown_restricted = 18;
    nfs_fh4 filehandle = 19;
    uint64_t fileid = 20;
    uint64_t files_avail = 21;
    uint64_t files_free = 22;
    uint64_t files_total = 23;
    fs_locations4 fs_locations = 24;
    bool hidden = 25;
    bool homogeneous = 26;
    uint64_t maxfilesize = 27;
    uint32_t maxlink = 28;
    uint32_t maxname = 29;
    uint64_t maxread = 30;
    uint64_t maxwrite = 31;
    utf8str_cs mimetype = 32;
    mode4 mode = 33;
    bool no_trunc = 34;
    uint32_t numlinks = 35;
    utf8str_mixed owner = 36;
    utf8str_mixed owner_group = 37;
    uint64_t quota_avail_hard = 38;
    uint64_t quota_avail_soft = 39;
    uint64_t quota_used = 40;
    specdata4 rawdev = 41;
    uint64_t space_avail = 42;
    uint64_t space_free = 43;
    uint64_t space_total = 44;
    uint64_t space_used = 45;
    bool system = 46;
    nfstime4 time_access = 47;
    settime4 time_access_set = 48;
    nfstime4 time_backup = 49;
    nfstime4 time_create = 50;
    nfstime4 time_delta = 51;
    nfstime4 time_metadata = 52;
    nfstime4 time_modify = 53;
    settime4 time_modify_set = 54;
    uint64_t mounted_on_fileid = 55;
    nfstime4 dir_notif_delay = 56;
    nfstime4 dirent_notif_delay = 57;
    nfsacl41 dacl = 58;
    nfsacl41 sacl = 59;
    change_policy4 change_policy = 60;
    fs4_status fs_status = 61;
    layouttype4 fs_layout_type<> = 62;
    layouthint4 layout_hint = 63;
    layouttype4 layout_type<> = 64;
    uint32_t layout_blksize = 65;
    uint32_t layout_alignment = 66;
    fs_locations_info4 fs_locations_info = 67;
    mdsthreshold4 mdsthreshold = 68;
    retention_get4 retention_get = 69;
    retention_set4 retention_set = 70;
    retention_get4 retentevt_get = 71;
    retention_set4 retentevt_set = 72;
    fattr4_retention_hold retention_hold = 73;
    mode_masked4 mode_set_masked = 74;
    attribute_bits suppattr_exclcreat = 75;
    fs_charset_cap4 fs_charset_cap = 76;
    /* RFC 7862, 12.2 */
    uint32_t clone_blksize = 77;
    length4 space_freed = 78;
    change_attr_type4 change_attr_type = 79;
    sec_label4 sec_label = 80;
    mode_umask4 mode_umask = 81;  /* RFC 8275 */
    bool xattr_support = 82;  /* RFC 8276 */
    bool offline = 83;  /* RFC 9754 */
    nfstime4 time_deleg_access = 84;
    nfstime4 time_deleg_modify = 85;
    open_arguments4 open_arguments = 86;
};
    """,
    nfs4_types.TYPES,
    attribute_bits=ATTRIBUTE_BITS,
    bitmap=XdrBitmap("bitmap4", {}),
    nfs_lease4=XdrInteger("nfs_lease4", unit="seconds"),
)
FATTR4: XdrAttributes = TYPES["fattr4"]
NUMBERED = FATTR4.attributes
"""Number, name and type."""

_NAMES.update({number: name for number, (name, _) in NUMBERED.items()})
