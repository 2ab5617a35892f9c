"""What pNFS layouts, device addresses and layout updates are made of, by layout type.

Files (RFC 8881, 13), flexible files (RFC 8435), block volumes (RFC 5663) and SCSI (RFC 8154).
"""

from __future__ import annotations

from .nfs4_types import (
    DEVICEID4,
    LAYOUTIOMODE4,
    LAYOUTTYPE4,
    LENGTH4,
    NETADDR4,
    NFS_FH4,
    NFSSTAT4,
    NFSTIME4,
    OFFSET4,
    OPERATION_NAMES,
    STATEID4,
    UTF8_MIXED,
)
from .types import (
    BOOL,
    HEXADECIMAL,
    INT64,
    UINT32,
    UINT64,
    XdrInteger,
    XdrOpaque,
    XdrSelected,
    XdrType,
    array,
    enum,
    flags,
    struct,
    union,
)

FILES, BLOCK_VOLUME, FLEX_FILES, SCSI = 1, 3, 4, 5
_BODY = XdrOpaque("opaque")
MULTIPATH_LIST4 = array(NETADDR4)

# RFC 8881, 13.2
NFL_UTIL4 = XdrInteger(
    "nfl_util4",
    form=HEXADECIMAL,
    flags={1: "NFL4_UFLG_DENSE", 2: "NFL4_UFLG_COMMIT_THRU_MDS"},
    choice_mask=0x3C,
    number="stripe unit",
)
FILE_LAYOUT4 = struct(
    "nfsv4_1_file_layout4",
    nfl_deviceid=DEVICEID4,
    nfl_util=NFL_UTIL4,
    nfl_first_stripe_index=UINT32,
    nfl_pattern_offset=OFFSET4,
    nfl_fh_list=array(NFS_FH4),
)
FILE_LAYOUT_DS_ADDR4 = struct(
    "nfsv4_1_file_layout_ds_addr4",
    nflda_stripe_indices=array(UINT32),
    nflda_multipath_ds_list=array(MULTIPATH_LIST4),
)

# RFC 8435, 4 and 5
FF_DEVICE_VERSIONS4 = struct(
    "ff_device_versions4",
    ffdv_version=UINT32,
    ffdv_minorversion=UINT32,
    ffdv_rsize=UINT32,
    ffdv_wsize=UINT32,
    ffdv_tightly_coupled=BOOL,
)
FF_DEVICE_ADDR4 = struct("ff_device_addr4", ffda_netaddrs=MULTIPATH_LIST4, ffda_versions=array(FF_DEVICE_VERSIONS4))
FF_DATA_SERVER4 = struct(
    "ff_data_server4",
    ffds_deviceid=DEVICEID4,
    ffds_efficiency=UINT32,
    ffds_stateid=STATEID4,
    ffds_fh_vers=array(NFS_FH4),
    ffds_user=UTF8_MIXED,
    ffds_group=UTF8_MIXED,
)
FF_MIRROR4 = struct("ff_mirror4", ffm_data_servers=array(FF_DATA_SERVER4))
FF_LAYOUT4 = struct(
    "ff_layout4",
    ffl_stripe_unit=LENGTH4,
    ffl_mirrors=array(FF_MIRROR4),
    ffl_flags=flags(
        "ff_flags4",
        {
            1: "FF_FLAGS_NO_LAYOUTCOMMIT",
            2: "FF_FLAGS_NO_IO_THRU_MDS",
            4: "FF_FLAGS_NO_READ_IO",
            8: "FF_FLAGS_WRITE_ONE_MIRROR",
        },
    ),
    ffl_stats_collect_hint=XdrInteger("uint32_t", unit="seconds"),
)
# RFC 8435, 9
DEVICE_ERROR4 = struct(
    "device_error4",
    de_deviceid=DEVICEID4,
    de_status=NFSSTAT4,
    de_opnum=XdrInteger("uint32_t", meanings=OPERATION_NAMES),
)
"""RFC 7862, 15.6."""
IO_INFO4 = struct("io_info4", ii_count=UINT64, ii_bytes=UINT64)
"""RFC 7862, 15.7."""
FF_IOERR4 = struct(
    "ff_ioerr4", ffie_offset=OFFSET4, ffie_length=LENGTH4, ffie_stateid=STATEID4, ffie_errors=array(DEVICE_ERROR4)
)
FF_IO_LATENCY4 = struct(
    "ff_io_latency4",
    ffil_ops_requested=UINT64,
    ffil_bytes_requested=UINT64,
    ffil_ops_completed=UINT64,
    ffil_bytes_completed=UINT64,
    ffil_bytes_not_delivered=UINT64,
    ffil_total_busy_time=NFSTIME4,
    ffil_aggregate_completion_time=NFSTIME4,
)
FF_LAYOUTUPDATE4 = struct(
    "ff_layoutupdate4",
    ffl_addr=NETADDR4,
    ffl_fhandle=NFS_FH4,
    ffl_read=FF_IO_LATENCY4,
    ffl_write=FF_IO_LATENCY4,
    ffl_duration=NFSTIME4,
    ffl_local=BOOL,
)
FF_IOSTATS4 = struct(
    "ff_iostats4",
    ffis_offset=OFFSET4,
    ffis_length=LENGTH4,
    ffis_stateid=STATEID4,
    ffis_read=IO_INFO4,
    ffis_write=IO_INFO4,
    ffis_deviceid=DEVICEID4,
    ffis_layoutupdate=FF_LAYOUTUPDATE4,
)
FF_LAYOUTRETURN4 = struct(
    "ff_layoutreturn4", fflr_ioerr_report=array(FF_IOERR4), fflr_iostats_report=array(FF_IOSTATS4)
)

# RFC 5663, 2.2
_BLOCK_VOLUME_TYPE4 = enum(
    "pnfs_block_volume_type4",
    {
        0: "PNFS_BLOCK_VOLUME_SIMPLE",
        1: "PNFS_BLOCK_VOLUME_SLICE",
        2: "PNFS_BLOCK_VOLUME_CONCAT",
        3: "PNFS_BLOCK_VOLUME_STRIPE",
    },
)
_SIGNATURE = struct("pnfs_block_sig_component4", bsc_sig_offset=INT64, bsc_contents=_BODY)
BLOCK_VOLUME4 = union(
    "pnfs_block_volume4",
    "type",
    _BLOCK_VOLUME_TYPE4,
    {
        0: struct("pnfs_block_simple_volume_info4", bsv_ds=array(_SIGNATURE, 16)),
        1: struct("pnfs_block_slice_volume_info4", bsv_start=OFFSET4, bsv_length=LENGTH4, bsv_volume=UINT32),
        2: struct("pnfs_block_concat_volume_info4", bcv_volumes=array(UINT32)),
        3: struct("pnfs_block_stripe_volume_info4", bsv_stripe_unit=LENGTH4, bsv_volumes=array(UINT32)),
    },
)
BLOCK_DEVICEADDR4 = struct("pnfs_block_deviceaddr4", bda_volumes=array(BLOCK_VOLUME4))
_EXTENT_STATES = {0: "READ_WRITE_DATA", 1: "READ_DATA", 2: "INVALID_DATA", 3: "NONE_DATA"}
BLOCK_EXTENT4 = struct(
    "pnfs_block_extent4",
    bex_vol_id=DEVICEID4,
    bex_file_offset=OFFSET4,
    bex_length=LENGTH4,
    bex_storage_offset=OFFSET4,
    bex_state=enum("pnfs_block_extent_state4", {state: f"PNFS_BLOCK_{name}" for state, name in _EXTENT_STATES.items()}),
)
BLOCK_LAYOUT4 = struct("pnfs_block_layout4", blo_extents=array(BLOCK_EXTENT4))
BLOCK_LAYOUTUPDATE4 = struct("pnfs_block_layoutupdate4", blu_commit_list=array(BLOCK_EXTENT4))

# RFC 8154, 2.3
_SCSI_VOLUME_TYPE4 = enum(
    "pnfs_scsi_volume_type4",
    {
        1: "PNFS_SCSI_VOLUME_SLICE",
        2: "PNFS_SCSI_VOLUME_CONCAT",
        3: "PNFS_SCSI_VOLUME_STRIPE",
        4: "PNFS_SCSI_VOLUME_BASE",
    },
)
SCSI_VOLUME4 = union(
    "pnfs_scsi_volume4",
    "type",
    _SCSI_VOLUME_TYPE4,
    {
        1: struct("pnfs_scsi_slice_volume_info4", ssv_start=OFFSET4, ssv_length=LENGTH4, ssv_volume=UINT32),
        2: struct("pnfs_scsi_concat_volume_info4", scv_volumes=array(UINT32)),
        3: struct("pnfs_scsi_stripe_volume_info4", ssv_stripe_unit=LENGTH4, ssv_volumes=array(UINT32)),
        4: struct(
            "pnfs_scsi_base_volume_info4",
            sbv_code_set=enum(
                "pnfs_scsi_code_set", {1: "PS_CODE_SET_BINARY", 2: "PS_CODE_SET_ASCII", 3: "PS_CODE_SET_UTF8"}
            ),
            sbv_designator_type=enum(
                "pnfs_scsi_designator_type",
                {1: "PS_DESIGNATOR_T10", 2: "PS_DESIGNATOR_EUI64", 3: "PS_DESIGNATOR_NAA", 8: "PS_DESIGNATOR_NAME"},
            ),
            sbv_designator=_BODY,
            sbv_pr_key=XdrInteger("uint64_t", 8, form=HEXADECIMAL),
        ),
    },
)
SCSI_DEVICEADDR4 = struct("pnfs_scsi_deviceaddr4", sda_volumes=array(SCSI_VOLUME4))
SCSI_EXTENT4 = struct(
    "pnfs_scsi_extent4",
    se_vol_id=DEVICEID4,
    se_file_offset=OFFSET4,
    se_length=LENGTH4,
    se_storage_offset=OFFSET4,
    se_state=enum("pnfs_scsi_extent_state4", {state: f"PNFS_SCSI_{name}" for state, name in _EXTENT_STATES.items()}),
)
SCSI_LAYOUT4 = struct("pnfs_scsi_layout4", sl_extents=array(SCSI_EXTENT4))
SCSI_LAYOUTUPDATE4 = struct(
    "pnfs_scsi_layoutupdate4",
    slu_commit_list=array(struct("pnfs_scsi_range4", sr_file_offset=OFFSET4, sr_length=LENGTH4)),
)


def _by_type(name: str, selector: str, choices: dict[int, XdrType]) -> XdrSelected:
    """An opaque that a layouttype4 before it decides on."""
    return XdrSelected(name, selector, choices, _BODY)


# RFC 8881, 3.3.13 to 3.3.19
LAYOUT_CONTENT4 = struct(
    "layout_content4",
    loc_type=LAYOUTTYPE4,
    loc_body=_by_type(
        "loc_body",
        "loc_type",
        {FILES: FILE_LAYOUT4, BLOCK_VOLUME: BLOCK_LAYOUT4, FLEX_FILES: FF_LAYOUT4, SCSI: SCSI_LAYOUT4},
    ),
)
LAYOUT4 = struct("layout4", lo_offset=OFFSET4, lo_length=LENGTH4, lo_iomode=LAYOUTIOMODE4, lo_content=LAYOUT_CONTENT4)
DEVICE_ADDR4 = struct(
    "device_addr4",
    da_layout_type=LAYOUTTYPE4,
    da_addr_body=_by_type(
        "da_addr_body",
        "da_layout_type",
        {
            FILES: FILE_LAYOUT_DS_ADDR4,
            BLOCK_VOLUME: BLOCK_DEVICEADDR4,
            FLEX_FILES: FF_DEVICE_ADDR4,
            SCSI: SCSI_DEVICEADDR4,
        },
    ),
)
LAYOUTUPDATE4 = struct(
    "layoutupdate4",
    lou_type=LAYOUTTYPE4,
    lou_body=_by_type("lou_body", "lou_type", {BLOCK_VOLUME: BLOCK_LAYOUTUPDATE4, SCSI: SCSI_LAYOUTUPDATE4}),
)
LAYOUTSTATS_UPDATE4 = struct(
    "layoutupdate4", lou_type=LAYOUTTYPE4, lou_body=_by_type("lou_body", "lou_type", {FLEX_FILES: FF_LAYOUTUPDATE4})
)
LAYOUTRETURN_FILE4 = struct(
    "layoutreturn_file4",
    lrf_offset=OFFSET4,
    lrf_length=LENGTH4,
    lrf_stateid=STATEID4,
    lrf_body=_by_type("lrf_body", "lora_layout_type", {FLEX_FILES: FF_LAYOUTRETURN4}),
)
