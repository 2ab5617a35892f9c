"""What pNFS layouts, device addresses and layout updates are made of, by layout type.

Files (RFC 8881, 13), flexible files (RFC 8435), block volumes (RFC 5663) and SCSI (RFC 8154).
"""

from __future__ import annotations

from . import nfs4_types
from .language import declared
from .nfs4_types import OPERATION_NAMES
from .types import HEXADECIMAL, XdrInteger

TYPES = declared(
    """
typedef netaddr4 multipath_list4<>;
/* RFC 8881, 13.2 */
struct nfsv4_1_file_layout4 {
    deviceid4 nfl_deviceid; nfl_util4 nfl_util; uint32_t nfl_first_stripe_index; offset4 nfl_pattern_offset;
    nfs_fh4 nfl_fh_list<>;
};
struct nfsv4_1_file_layout_ds_addr4 {
    uint32_t nflda_stripe_indices<>; multipath_list4 nflda_multipath_ds_list<>;
};
/* RFC 8435, 4 and 5 */
struct ff_device_versions4 {
    uint32_t ffdv_version; uint32_t ffdv_minorversion; uint32_t ffdv_rsize; uint32_t ffdv_wsize;
    bool ffdv_tightly_coupled;
};
struct ff_device_addr4 { multipath_list4 ffda_netaddrs; ff_device_versions4 ffda_versions<>; };
struct ff_data_server4 {
    deviceid4 ffds_deviceid; uint32_t ffds_efficiency; stateid4 ffds_stateid; nfs_fh4 ffds_fh_vers<>;
    utf8str_mixed ffds_user; utf8str_mixed ffds_group;
};
struct ff_mirror4 { ff_data_server4 ffm_data_servers<>; };
flags ff_flags4 {
    FF_FLAGS_NO_LAYOUTCOMMIT = 0x1, FF_FLAGS_NO_IO_THRU_MDS = 0x2, FF_FLAGS_NO_READ_IO = 0x4,
    FF_FLAGS_WRITE_ONE_MIRROR = 0x8
};
struct ff_layout4 {
    length4 ffl_stripe_unit; ff_mirror4 ffl_mirrors<>; ff_flags4 ffl_flags; seconds ffl_stats_collect_hint;
};
/* RFC 7862, 15.6 and 15.7 */
struct device_error4 { deviceid4 de_deviceid; nfsstat4 de_status; operation de_opnum; };
struct io_info4 { uint64_t ii_count; uint64_t ii_bytes; };
/* RFC 8435, 9 */
struct ff_ioerr4 {
    offset4 ffie_offset; length4 ffie_length; stateid4 ffie_stateid; device_error4 ffie_errors<>;
};
struct ff_io_latency4 {
    uint64_t ffil_ops_requested; uint64_t ffil_bytes_requested; uint64_t ffil_ops_completed;
    uint64_t ffil_bytes_completed; uint64_t ffil_bytes_not_delivered; nfstime4 ffil_total_busy_time;
    nfstime4 ffil_aggregate_completion_time;
};
struct ff_layoutupdate4 {
    netaddr4 ffl_addr; nfs_fh4 ffl_fhandle; ff_io_latency4 ffl_read; ff_io_latency4 ffl_write;
    nfstime4 ffl_duration; bool ffl_local;
};
struct ff_iostats4 {
    offset4 ffis_offset; length4 ffis_length; stateid4 ffis_stateid; io_info4 ffis_read; io_info4 ffis_write;
    deviceid4 ffis_deviceid; ff_layoutupdate4 ffis_layoutupdate;
};
struct ff_layoutreturn4 { ff_ioerr4 fflr_ioerr_report<>; ff_iostats4 fflr_iostats_report<>; };
/* RFC 5663, 2.2 */
enum pnfs_block_volume_type4 {
    PNFS_BLOCK_VOLUME_SIMPLE = 0, PNFS_BLOCK_VOLUME_SLICE = 1, PNFS_BLOCK_VOLUME_CONCAT = 2,
    PNFS_BLOCK_VOLUME_STRIPE = 3
};
struct pnfs_block_sig_component4 { int64_t bsc_sig_offset; opaque bsc_contents<>; };
struct pnfs_block_simple_volume_info4 { pnfs_block_sig_component4 bsv_ds<16>; };
struct pnfs_block_slice_volume_info4 { offset4 bsv_start; length4 bsv_length; uint32_t bsv_volume; };
struct pnfs_block_concat_volume_info4 { uint32_t bcv_volumes<>; };
struct pnfs_block_stripe_volume_info4 { length4 bsv_stripe_unit; uint32_t bsv_volumes<>; };
union pnfs_block_volume4 switch (pnfs_block_volume_type4 type) {
    case PNFS_BLOCK_VOLUME_SIMPLE: pnfs_block_simple_volume_info4;
    case PNFS_BLOCK_VOLUME_SLICE: pnfs_block_slice_volume_info4;
    case PNFS_BLOCK_VOLUME_CONCAT: pnfs_block_concat_volume_info4;
    case PNFS_BLOCK_VOLUME_STRIPE: pnfs_block_stripe_volume_info4;
};
struct pnfs_block_deviceaddr4 { pnfs_block_volume4 bda_volumes<>; };
enum pnfs_block_extent_state4 {
    PNFS_BLOCK_READ_WRITE_DATA = 0, PNFS_BLOCK_READ_DATA = 1, PNFS_BLOCK_INVALID_DATA = 2,
    PNFS_BLOCK_NONE_DATA = 3
};
struct pnfs_block_extent4 {
    deviceid4 bex_vol_id; offset4 bex_file_offset; length4 bex_length; offset4 bex_storage_offset;
    pnfs_block_extent_state4 bex_state;
};
struct pnfs_block_layout4 { pnfs_block_extent4 blo_extents<>; };
struct pnfs_block_layoutupdate4 { pnfs_block_extent4 blu_commit_list<>; };
/* RFC 8154, 2.3 */
enum pnfs_scsi_volume_type4 {
    PNFS_SCSI_VOLUME_SLICE = 1, PNFS_SCSI_VOLUME_CONCAT = 2, PNFS_SCSI_VOLUME_STRIPE = 3,
    PNFS_SCSI_VOLUME_BASE = 4
};
struct pnfs_scsi_slice_volume_info4 { offset4 ssv_start; length4 ssv_length; uint32_t ssv_volume; };
struct pnfs_scsi_concat_volume_info4 { uint32_t scv_volumes<>; };
struct pnfs_scsi_stripe_volume_info4 { length4 ssv_stripe_unit; uint32_t ssv_volumes<>; };
enum pnfs_scsi_code_set { PS_CODE_SET_BINARY = 1, PS_CODE_SET_ASCII = 2, PS_CODE_SET_UTF8 = 3 };
enum pnfs_scsi_designator_type {
    PS_DESIGNATOR_T10 = 1, PS_DESIGNATOR_EUI64 = 2, PS_DESIGNATOR_NAA = 3, PS_DESIGNATOR_NAME = 8
};
struct pnfs_scsi_base_volume_info4 {
    pnfs_scsi_code_set sbv_code_set; pnfs_scsi_designator_type sbv_designator_type; opaque sbv_designator<>;
    hex uint64_t sbv_pr_key;
};
union pnfs_scsi_volume4 switch (pnfs_scsi_volume_type4 type) {
    case PNFS_SCSI_VOLUME_SLICE: pnfs_scsi_slice_volume_info4;
    case PNFS_SCSI_VOLUME_CONCAT: pnfs_scsi_concat_volume_info4;
    case PNFS_SCSI_VOLUME_STRIPE: pnfs_scsi_stripe_volume_info4;
    case PNFS_SCSI_VOLUME_BASE: pnfs_scsi_base_volume_info4;
};
struct pnfs_scsi_deviceaddr4 { pnfs_scsi_volume4 sda_volumes<>; };
enum pnfs_scsi_extent_state4 {
    PNFS_SCSI_READ_WRITE_DATA = 0, PNFS_SCSI_READ_DATA = 1, PNFS_SCSI_INVALID_DATA = 2, PNFS_SCSI_NONE_DATA = 3
};
struct pnfs_scsi_extent4 {
    deviceid4 se_vol_id; offset4 se_file_offset; length4 se_length; offset4 se_storage_offset;
    pnfs_scsi_extent_state4 se_state;
};
struct pnfs_scsi_layout4 { pnfs_scsi_extent4 sl_extents<>; };
struct pnfs_scsi_range4 { offset4 sr_file_offset; length4 sr_length; };
struct pnfs_scsi_layoutupdate4 { pnfs_scsi_range4 slu_commit_list<>; };
/* RFC 8881, 3.3.13 to 3.3.19 */
opaque loc_body<> switch (layouttype4 loc_type) {
    case LAYOUT4_NFSV4_1_FILES: nfsv4_1_file_layout4;
    case LAYOUT4_BLOCK_VOLUME: pnfs_block_layout4;
    case LAYOUT4_FLEX_FILES: ff_layout4;
    case LAYOUT4_SCSI: pnfs_scsi_layout4;
};
struct layout_content4 { layouttype4 loc_type; loc_body loc_body; };
struct layout4 { offset4 lo_offset; length4 lo_length; layoutiomode4 lo_iomode; layout_content4 lo_content; };
opaque da_addr_body<> switch (layouttype4 da_layout_type) {
    case LAYOUT4_NFSV4_1_FILES: nfsv4_1_file_layout_ds_addr4;
    case LAYOUT4_BLOCK_VOLUME: pnfs_block_deviceaddr4;
    case LAYOUT4_FLEX_FILES: ff_device_addr4;
    case LAYOUT4_SCSI: pnfs_scsi_deviceaddr4;
};
struct device_addr4 { layouttype4 da_layout_type; da_addr_body da_addr_body; };
opaque lou_body<> switch (layouttype4 lou_type) {
    case LAYOUT4_BLOCK_VOLUME: pnfs_block_layoutupdate4;
    case LAYOUT4_SCSI: pnfs_scsi_layoutupdate4;
};
struct layoutupdate4 { layouttype4 lou_type; lou_body lou_body; };
opaque lou_statistics<> switch (layouttype4 lou_type) { case LAYOUT4_FLEX_FILES: ff_layoutupdate4; };
struct layoutstats_update4 { layouttype4 lou_type; lou_statistics lou_body; };
opaque lrf_body<> switch (layouttype4 lora_layout_type) { case LAYOUT4_FLEX_FILES: ff_layoutreturn4; };
struct layoutreturn_file4 {
    offset4 lrf_offset; length4 lrf_length; stateid4 lrf_stateid; lrf_body lrf_body;
};
    """,
    nfs4_types.TYPES,
    nfl_util4=XdrInteger(
        "nfl_util4",
        form=HEXADECIMAL,
        flags={1: "NFL4_UFLG_DENSE", 2: "NFL4_UFLG_COMMIT_THRU_MDS"},
        choice_mask=0x3C,
        number="stripe unit",
    ),
    seconds=XdrInteger("uint32_t", unit="seconds"),
    operation=XdrInteger("uint32_t", meanings=OPERATION_NAMES),
)
