"""The callbacks of NFSv4: CB_COMPOUND and its operations (RFC 7530, 15 and 16; RFC 8881, 20; RFC 7862, 16)."""

from __future__ import annotations

from .attributes4 import ATTRIBUTE_BITS, FATTR4
from .nfs4_types import (
    COMPONENT4,
    DEVICEID4,
    FSID4,
    LAYOUTIOMODE4,
    LAYOUTRETURN_TYPE4,
    LAYOUTTYPE4,
    LENGTH4,
    NFS_COOKIE4,
    NFS_FH4,
    NFSSTAT4,
    NOTIFY_BITS,
    NOTIFY_DEVICEID_BITS,
    OFFSET4,
    OPEN_DELEGATION4,
    SEQUENCEID4,
    SESSIONID4,
    SLOTID4,
    STATE_OWNER4,
    STATEID4,
    VERIFIER4,
    WRITE_RESPONSE4,
)
from .rfc7530 import operation
from .types import BOOL, UINT32, OperationShape, XdrAttributes, XdrBitmap, array, struct, union, union_or

# RFC 8881, 20.4
NOTIFY_ENTRY4 = struct("notify_entry4", ne_file=COMPONENT4, ne_attrs=FATTR4)
_PREV_ENTRY4 = struct("prev_entry4", pe_prev_entry=NOTIFY_ENTRY4, pe_prev_entry_cookie=NFS_COOKIE4)
_NOTIFY_REMOVE4 = struct("notify_remove4", nrm_old_entry=NOTIFY_ENTRY4, nrm_old_entry_cookie=NFS_COOKIE4)
_NOTIFY_ADD4 = struct(
    "notify_add4",
    nad_old_entry=array(_NOTIFY_REMOVE4, 1),
    nad_new_entry=NOTIFY_ENTRY4,
    nad_new_entry_cookie=array(NFS_COOKIE4, 1),
    nad_prev_entry=array(_PREV_ENTRY4, 1),
    nad_last_entry=BOOL,
)
_NOTIFY_ATTR4 = struct("notify_attr4", na_changed_entry=NOTIFY_ENTRY4)
_NOTIFY_RENAME4 = struct("notify_rename4", nrn_old_entry=_NOTIFY_REMOVE4, nrn_new_entry=_NOTIFY_ADD4)
_NOTIFY_VERIFIER4 = struct("notify_verifier4", nv_old_cookieverf=VERIFIER4, nv_new_cookieverf=VERIFIER4)
NOTIFY4 = XdrAttributes(
    "notify4",
    {
        0: ("change_child_attrs", _NOTIFY_ATTR4),
        1: ("change_dir_attrs", _NOTIFY_ATTR4),
        2: ("remove_entry", _NOTIFY_REMOVE4),
        3: ("add_entry", _NOTIFY_ADD4),
        4: ("rename_entry", _NOTIFY_RENAME4),
        5: ("change_cookie_verifier", _NOTIFY_VERIFIER4),
    },
    NOTIFY_BITS,
)
# 20.12
NOTIFY_DEVICEID4 = XdrAttributes(
    "notify4",
    {
        1: (
            "deviceid_change",
            struct("notify_deviceid_change4", ndc_layouttype=LAYOUTTYPE4, ndc_deviceid=DEVICEID4, ndc_immediate=BOOL),
        ),
        2: (
            "deviceid_delete",
            struct("notify_deviceid_delete4", ndd_layouttype=LAYOUTTYPE4, ndd_deviceid=DEVICEID4),
        ),
    },
    NOTIFY_DEVICEID_BITS,
)
# 20.6
RECALL_ANY_BITS = XdrBitmap(
    "bitmap4",
    {
        0: "RCA4_TYPE_MASK_RDATA_DLG",
        1: "RCA4_TYPE_MASK_WDATA_DLG",
        2: "RCA4_TYPE_MASK_DIR_DLG",
        3: "RCA4_TYPE_MASK_FILE_LAYOUT",
        4: "RCA4_TYPE_MASK_BLK_LAYOUT",
        8: "RCA4_TYPE_MASK_OBJ_LAYOUT_MIN",
        9: "RCA4_TYPE_MASK_OBJ_LAYOUT_MAX",
        16: "RCA4_TYPE_MASK_FF_LAYOUT_MIN",  # RFC 8435, 12
        17: "RCA4_TYPE_MASK_FF_LAYOUT_MAX",
    },
)
LAYOUTRECALL4 = union(
    "layoutrecall4",
    "lor_recalltype",
    LAYOUTRETURN_TYPE4,
    {
        1: struct("layoutrecall_file4", lor_fh=NFS_FH4, lor_offset=OFFSET4, lor_length=LENGTH4, lor_stateid=STATEID4),
        2: ("lor_fsid", FSID4),
        3: None,
    },
)
REFERRING_CALL4 = struct("referring_call4", rc_sequenceid=SEQUENCEID4, rc_slotid=SLOTID4)
REFERRING_CALL_LIST4 = struct(
    "referring_call_list4", rcl_sessionid=SESSIONID4, rcl_referring_calls=array(REFERRING_CALL4)
)

OPERATIONS: dict[int, OperationShape] = {
    3: operation(
        "CB_GETATTR",
        "20.1",
        struct("CB_GETATTR4args", fh=NFS_FH4, attr_request=ATTRIBUTE_BITS),
        struct("CB_GETATTR4resok", obj_attributes=FATTR4),
    ),
    4: operation("CB_RECALL", "20.2", struct("CB_RECALL4args", stateid=STATEID4, truncate=BOOL, fh=NFS_FH4)),
    5: operation(
        "CB_LAYOUTRECALL",
        "20.3",
        struct(
            "CB_LAYOUTRECALL4args",
            clora_type=LAYOUTTYPE4,
            clora_iomode=LAYOUTIOMODE4,
            clora_changed=BOOL,
            clora_recall=LAYOUTRECALL4,
        ),
    ),
    6: operation(
        "CB_NOTIFY",
        "20.4",
        struct("CB_NOTIFY4args", cna_stateid=STATEID4, cna_fh=NFS_FH4, cna_changes=array(NOTIFY4)),
    ),
    7: operation(
        "CB_PUSH_DELEG", "20.5", struct("CB_PUSH_DELEG4args", cpda_fh=NFS_FH4, cpda_delegation=OPEN_DELEGATION4)
    ),
    8: operation(
        "CB_RECALL_ANY",
        "20.6",
        struct("CB_RECALL_ANY4args", craa_objects_to_keep=UINT32, craa_type_mask=RECALL_ANY_BITS),
    ),
    9: operation(
        "CB_RECALLABLE_OBJ_AVAIL",
        "20.7",
        struct("CB_RECALLABLE_OBJ_AVAIL4args", croa_objects_to_keep=UINT32, croa_type_mask=RECALL_ANY_BITS),
    ),
    10: operation("CB_RECALL_SLOT", "20.8", struct("CB_RECALL_SLOT4args", rsa_target_highest_slotid=SLOTID4)),
    11: operation(
        "CB_SEQUENCE",
        "20.9",
        struct(
            "CB_SEQUENCE4args",
            csa_sessionid=SESSIONID4,
            csa_sequenceid=SEQUENCEID4,
            csa_slotid=SLOTID4,
            csa_highest_slotid=SLOTID4,
            csa_cachethis=BOOL,
            csa_referring_call_lists=array(REFERRING_CALL_LIST4),
        ),
        struct(
            "CB_SEQUENCE4resok",
            csr_sessionid=SESSIONID4,
            csr_sequenceid=SEQUENCEID4,
            csr_slotid=SLOTID4,
            csr_highest_slotid=SLOTID4,
            csr_target_highest_slotid=SLOTID4,
        ),
    ),
    12: operation(
        "CB_WANTS_CANCELLED",
        "20.10",
        struct("CB_WANTS_CANCELLED4args", cwca_contended_wants_cancelled=BOOL, cwca_resourced_wants_cancelled=BOOL),
    ),
    13: operation(
        "CB_NOTIFY_LOCK", "20.11", struct("CB_NOTIFY_LOCK4args", cnla_fh=NFS_FH4, cnla_lock_owner=STATE_OWNER4)
    ),
    14: operation(
        "CB_NOTIFY_DEVICEID", "20.12", struct("CB_NOTIFY_DEVICEID4args", cnda_changes=array(NOTIFY_DEVICEID4))
    ),
    15: operation(
        "CB_OFFLOAD",
        "RFC 7862, 16.1",
        struct(
            "CB_OFFLOAD4args",
            coa_fh=NFS_FH4,
            coa_stateid=STATEID4,
            coa_offload_info=union_or(
                "offload_info4",
                "coa_status",
                NFSSTAT4,
                {0: ("coa_resok4", WRITE_RESPONSE4)},
                ("coa_bytes_copied", LENGTH4),
            ),
        ),
    ),
    10044: operation("CB_ILLEGAL", "20.13"),
}
