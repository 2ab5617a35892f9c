"""The callbacks of NFSv4: CB_COMPOUND and its operations (RFC 7530, 15 and 16; RFC 8881, 20; RFC 7862, 16)."""

from __future__ import annotations

from . import attributes4
from .language import declared

TYPES = declared(
    """
/* RFC 8881, 20.4 */
struct notify_entry4 { component4 ne_file; fattr4 ne_attrs; };
struct prev_entry4 { notify_entry4 pe_prev_entry; nfs_cookie4 pe_prev_entry_cookie; };
struct notify_remove4 { notify_entry4 nrm_old_entry; nfs_cookie4 nrm_old_entry_cookie; };
struct notify_add4 {
    notify_remove4 nad_old_entry<1>; notify_entry4 nad_new_entry; nfs_cookie4 nad_new_entry_cookie<1>;
    prev_entry4 nad_prev_entry<1>; bool nad_last_entry;
};
struct notify_attr4 { notify_entry4 na_changed_entry; };
struct notify_rename4 { notify_remove4 nrn_old_entry; notify_add4 nrn_new_entry; };
struct notify_verifier4 { verifier4 nv_old_cookieverf; verifier4 nv_new_cookieverf; };
attributes notify4 by notify_bits {
    notify_attr4 change_child_attrs = 0;
    notify_attr4 change_dir_attrs = 1;
    notify_remove4 remove_entry = 2;
    notify_add4 add_entry = 3;
    notify_rename4 rename_entry = 4;
    notify_verifier4 change_cookie_verifier = 5;
};
/* 20.12 */
struct notify_deviceid_change4 { layouttype4 ndc_layouttype; deviceid4 ndc_deviceid; bool ndc_immediate; };
struct notify_deviceid_delete4 { layouttype4 ndd_layouttype; deviceid4 ndd_deviceid; };
attributes notify_deviceid4 by notify_deviceid_bits {
    notify_deviceid_change4 deviceid_change = 1;
    notify_deviceid_delete4 deviceid_delete = 2;
};
/* 20.6 */
/* The last two: RFC 8435, 12 */
bits recall_any_bits {
    RCA4_TYPE_MASK_RDATA_DLG = 0, RCA4_TYPE_MASK_WDATA_DLG = 1, RCA4_TYPE_MASK_DIR_DLG = 2,
    RCA4_TYPE_MASK_FILE_LAYOUT = 3, RCA4_TYPE_MASK_BLK_LAYOUT = 4, RCA4_TYPE_MASK_OBJ_LAYOUT_MIN = 8,
    RCA4_TYPE_MASK_OBJ_LAYOUT_MAX = 9, RCA4_TYPE_MASK_FF_LAYOUT_MIN = 16, RCA4_TYPE_MASK_FF_LAYOUT_MAX = 17
};
struct layoutrecall_file4 { nfs_fh4 lor_fh; offset4 lor_offset; length4 lor_length; stateid4 lor_stateid; };
union layoutrecall4 switch (layoutreturn_type4 lor_recalltype) {
    case LAYOUTRETURN4_FILE: layoutrecall_file4;
    case LAYOUTRETURN4_FSID: fsid4 lor_fsid;
    case LAYOUTRETURN4_ALL: void;
};
struct referring_call4 { sequenceid4 rc_sequenceid; slotid4 rc_slotid; };
struct referring_call_list4 { sessionid4 rcl_sessionid; referring_call4 rcl_referring_calls<>; };
struct CB_GETATTR4args { nfs_fh4 fh; attribute_bits attr_request; };
struct CB_GETATTR4resok { fattr4 obj_attributes; };
union CB_GETATTR4res switch (nfsstat4 status) { case NFS4_OK: CB_GETATTR4resok; default: void; };
struct CB_RECALL4args { stateid4 stateid; bool truncate; nfs_fh4 fh; };
union CB_RECALL4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct CB_LAYOUTRECALL4args {
    layouttype4 clora_type; layoutiomode4 clora_iomode; bool clora_changed; layoutrecall4 clora_recall;
};
union CB_LAYOUTRECALL4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct CB_NOTIFY4args { stateid4 cna_stateid; nfs_fh4 cna_fh; notify4 cna_changes<>; };
union CB_NOTIFY4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct CB_PUSH_DELEG4args { nfs_fh4 cpda_fh; open_delegation4 cpda_delegation; };
union CB_PUSH_DELEG4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct CB_RECALL_ANY4args { uint32_t craa_objects_to_keep; recall_any_bits craa_type_mask; };
union CB_RECALL_ANY4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct CB_RECALLABLE_OBJ_AVAIL4args { uint32_t croa_objects_to_keep; recall_any_bits croa_type_mask; };
union CB_RECALLABLE_OBJ_AVAIL4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct CB_RECALL_SLOT4args { slotid4 rsa_target_highest_slotid; };
union CB_RECALL_SLOT4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct CB_SEQUENCE4args {
    sessionid4 csa_sessionid; sequenceid4 csa_sequenceid; slotid4 csa_slotid; slotid4 csa_highest_slotid;
    bool csa_cachethis; referring_call_list4 csa_referring_call_lists<>;
};
struct CB_SEQUENCE4resok {
    sessionid4 csr_sessionid; sequenceid4 csr_sequenceid; slotid4 csr_slotid; slotid4 csr_highest_slotid;
    slotid4 csr_target_highest_slotid;
};
union CB_SEQUENCE4res switch (nfsstat4 status) { case NFS4_OK: CB_SEQUENCE4resok; default: void; };
struct CB_WANTS_CANCELLED4args { bool cwca_contended_wants_cancelled; bool cwca_resourced_wants_cancelled; };
union CB_WANTS_CANCELLED4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct CB_NOTIFY_LOCK4args { nfs_fh4 cnla_fh; state_owner4 cnla_lock_owner; };
union CB_NOTIFY_LOCK4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct CB_NOTIFY_DEVICEID4args { notify_deviceid4 cnda_changes<>; };
union CB_NOTIFY_DEVICEID4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
union offload_info4 switch (nfsstat4 coa_status) {
    case NFS4_OK: write_response4 coa_resok4;
    default: length4 coa_bytes_copied;
};
struct CB_OFFLOAD4args { nfs_fh4 coa_fh; stateid4 coa_stateid; offload_info4 coa_offload_info; };
union CB_OFFLOAD4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
union CB_ILLEGAL4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
program CB_COMPOUND {
    CB_GETATTR4res CB_GETATTR(CB_GETATTR4args) = 3 in 20.1;
    CB_RECALL4res CB_RECALL(CB_RECALL4args) = 4 in 20.2;
    CB_LAYOUTRECALL4res CB_LAYOUTRECALL(CB_LAYOUTRECALL4args) = 5 in 20.3;
    CB_NOTIFY4res CB_NOTIFY(CB_NOTIFY4args) = 6 in 20.4;
    CB_PUSH_DELEG4res CB_PUSH_DELEG(CB_PUSH_DELEG4args) = 7 in 20.5;
    CB_RECALL_ANY4res CB_RECALL_ANY(CB_RECALL_ANY4args) = 8 in 20.6;
    CB_RECALLABLE_OBJ_AVAIL4res CB_RECALLABLE_OBJ_AVAIL(CB_RECALLABLE_OBJ_AVAIL4args) = 9 in 20.7;
    CB_RECALL_SLOT4res CB_RECALL_SLOT(CB_RECALL_SLOT4args) = 10 in 20.8;
    CB_SEQUENCE4res CB_SEQUENCE(CB_SEQUENCE4args) = 11 in 20.9;
    CB_WANTS_CANCELLED4res CB_WANTS_CANCELLED(CB_WANTS_CANCELLED4args) = 12 in 20.10;
    CB_NOTIFY_LOCK4res CB_NOTIFY_LOCK(CB_NOTIFY_LOCK4args) = 13 in 20.11;
    CB_NOTIFY_DEVICEID4res CB_NOTIFY_DEVICEID(CB_NOTIFY_DEVICEID4args) = 14 in 20.12;
    CB_OFFLOAD4res CB_OFFLOAD(CB_OFFLOAD4args) = 15 in RFC 7862, 16.1;
    CB_ILLEGAL4res CB_ILLEGAL(void) = 10044 in 20.13;
};
    """,
    attributes4.TYPES,
)
