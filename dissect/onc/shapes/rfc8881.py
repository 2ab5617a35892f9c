"""The operations that NFS version 4.1 added: sessions, pNFS, directory delegations (RFC 8881, RFC 5662)."""

from __future__ import annotations

from . import layouts, rfc7530
from .language import declared
from .nfs4_types import OPERATION_NAMES
from .types import XdrBitmap

TYPES = declared(
    """
/* 18.33 */
typedef opaque gsshandle4_t<>;
struct gss_cb_handles4 {
    rpc_gss_svc_t gcbp_service; gsshandle4_t gcbp_handle_from_server; gsshandle4_t gcbp_handle_from_client;
};
union callback_sec_parms4 switch (auth_flavor cb_secflavor) {
    case AUTH_NONE: void;
    case AUTH_SYS: authsys_parms cbsp_sys_cred;
    case RPCSEC_GSS: gss_cb_handles4 cbsp_gss_handles;
};
/* 18.35 */
/* FENCE_OPS: RFC 7862, 4.10.1.1 */
flags eia_flags {
    EXCHGID4_FLAG_SUPP_MOVED_REFER = 0x1, EXCHGID4_FLAG_SUPP_MOVED_MIGR = 0x2,
    EXCHGID4_FLAG_SUPP_FENCE_OPS = 0x4, EXCHGID4_FLAG_BIND_PRINC_STATEID = 0x100,
    EXCHGID4_FLAG_USE_NON_PNFS = 0x10000, EXCHGID4_FLAG_USE_PNFS_MDS = 0x20000,
    EXCHGID4_FLAG_USE_PNFS_DS = 0x40000, EXCHGID4_FLAG_UPD_CONFIRMED_REC_A = 0x40000000,
    EXCHGID4_FLAG_CONFIRMED_R = 0x80000000
};
struct state_protect_ops4 { operation_bits spo_must_enforce; operation_bits spo_must_allow; };
struct ssv_sp_parms4 {
    state_protect_ops4 ssp_ops; sec_oid4 ssp_hash_algs<>; sec_oid4 ssp_encr_algs<>; uint32_t ssp_window;
    uint32_t ssp_num_gss_handles;
};
struct ssv_prot_info4 {
    state_protect_ops4 spi_ops; uint32_t spi_hash_alg; uint32_t spi_encr_alg; uint32_t spi_ssv_len;
    uint32_t spi_window; gsshandle4_t spi_handles<>;
};
enum state_protect_how4 { SP4_NONE = 0, SP4_MACH_CRED = 1, SP4_SSV = 2 };
union state_protect4_a switch (state_protect_how4 spa_how) {
    case SP4_NONE: void;
    case SP4_MACH_CRED: state_protect_ops4 spa_mach_ops;
    case SP4_SSV: ssv_sp_parms4 spa_ssv_parms;
};
union state_protect4_r switch (state_protect_how4 spr_how) {
    case SP4_NONE: void;
    case SP4_MACH_CRED: state_protect_ops4 spr_mach_ops;
    case SP4_SSV: ssv_prot_info4 spr_ssv_info;
};
typedef opaque co_ownerid<1024>;
struct client_owner4 { verifier4 co_verifier; co_ownerid co_ownerid; };
typedef opaque so_major_id<1024>;
struct server_owner4 { uint64_t so_minor_id; so_major_id so_major_id; };
/* 18.36 */
struct channel_attrs4 {
    count4 ca_headerpadsize; count4 ca_maxrequestsize; count4 ca_maxresponsesize;
    count4 ca_maxresponsesize_cached; count4 ca_maxoperations; count4 ca_maxrequests; uint32_t ca_rdma_ird<1>;
};
flags csa_flags {
    CREATE_SESSION4_FLAG_PERSIST = 0x1, CREATE_SESSION4_FLAG_CONN_BACK_CHAN = 0x2,
    CREATE_SESSION4_FLAG_CONN_RDMA = 0x4
};
/* 18.34 */
enum channel_dir_from_client4 {
    CDFC4_FORE = 1, CDFC4_BACK = 2, CDFC4_FORE_OR_BOTH = 3, CDFC4_BACK_OR_BOTH = 7
};
enum channel_dir_from_server4 { CDFS4_FORE = 1, CDFS4_BACK = 2, CDFS4_BOTH = 3 };
/* 18.39 */
enum gddrnf4_status { GDD4_OK = 0, GDD4_UNAVAIL = 1 };
struct GET_DIR_DELEGATION4resok {
    verifier4 gddr_cookieverf; stateid4 gddr_stateid; notify_bits gddr_notification;
    attribute_bits gddr_child_attributes; attribute_bits gddr_dir_attributes;
};
union GET_DIR_DELEGATION4res_non_fatal switch (gddrnf4_status gddrnf_status) {
    case GDD4_OK: GET_DIR_DELEGATION4resok;
    case GDD4_UNAVAIL: bool gddrnf_will_signal_deleg_avail;
};
/* 18.42 to 18.44 */
union newoffset4 switch (bool no_newoffset) { case TRUE: offset4 no_offset; case FALSE: void; };
union newtime4 switch (bool nt_timechanged) { case TRUE: nfstime4 nt_time; case FALSE: void; };
union newsize4 switch (bool ns_sizechanged) { case TRUE: length4 ns_size; case FALSE: void; };
union layoutreturn4 switch (layoutreturn_type4 lr_returntype) {
    case LAYOUTRETURN4_FILE: layoutreturn_file4 lr_layout;
    default: void;
};
union layoutreturn_stateid switch (bool lrs_present) { case TRUE: stateid4 lrs_stateid; case FALSE: void; };
/* 18.46 */
flags sr_status_flags {
    SEQ4_STATUS_CB_PATH_DOWN = 0x1, SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRING = 0x2,
    SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRED = 0x4, SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED = 0x8,
    SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED = 0x10, SEQ4_STATUS_ADMIN_STATE_REVOKED = 0x20,
    SEQ4_STATUS_RECALLABLE_STATE_REVOKED = 0x40, SEQ4_STATUS_LEASE_MOVED = 0x80,
    SEQ4_STATUS_RESTART_RECLAIM_NEEDED = 0x100, SEQ4_STATUS_CB_PATH_DOWN_SESSION = 0x200,
    SEQ4_STATUS_BACKCHANNEL_FAULT = 0x400, SEQ4_STATUS_DEVID_CHANGED = 0x800, SEQ4_STATUS_DEVID_DELETED = 0x1000
};
enum secinfo_style4 { SECINFO_STYLE4_CURRENT_FH = 0, SECINFO_STYLE4_PARENT = 1 };
/* 18.49 */
union deleg_claim4 switch (open_claim_type4 dc_claim) {
    case CLAIM_FH: case CLAIM_DELEG_PREV_FH: void;
    case CLAIM_PREVIOUS: open_delegation_type4 dc_delegate_type;
};
struct BACKCHANNEL_CTL4args { hex uint32_t bca_cb_program; callback_sec_parms4 bca_sec_parms<>; };
union BACKCHANNEL_CTL4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct BIND_CONN_TO_SESSION4args {
    sessionid4 bctsa_sessid; channel_dir_from_client4 bctsa_dir; bool bctsa_use_conn_in_rdma_mode;
};
struct BIND_CONN_TO_SESSION4resok {
    sessionid4 bctsr_sessid; channel_dir_from_server4 bctsr_dir; bool bctsr_use_conn_in_rdma_mode;
};
union BIND_CONN_TO_SESSION4res switch (nfsstat4 status) {
    case NFS4_OK: BIND_CONN_TO_SESSION4resok;
    default: void;
};
struct EXCHANGE_ID4args {
    client_owner4 eia_clientowner; eia_flags eia_flags; state_protect4_a eia_state_protect;
    nfs_impl_id4 eia_client_impl_id<1>;
};
typedef opaque eir_server_scope<1024>;
struct EXCHANGE_ID4resok {
    clientid4 eir_clientid; sequenceid4 eir_sequenceid; eia_flags eir_flags; state_protect4_r eir_state_protect;
    server_owner4 eir_server_owner; eir_server_scope eir_server_scope; nfs_impl_id4 eir_server_impl_id<1>;
};
union EXCHANGE_ID4res switch (nfsstat4 status) { case NFS4_OK: EXCHANGE_ID4resok; default: void; };
struct CREATE_SESSION4args {
    clientid4 csa_clientid; sequenceid4 csa_sequence; csa_flags csa_flags; channel_attrs4 csa_fore_chan_attrs;
    channel_attrs4 csa_back_chan_attrs; hex uint32_t csa_cb_program; callback_sec_parms4 csa_sec_parms<>;
};
struct CREATE_SESSION4resok {
    sessionid4 csr_sessionid; sequenceid4 csr_sequence; csa_flags csr_flags; channel_attrs4 csr_fore_chan_attrs;
    channel_attrs4 csr_back_chan_attrs;
};
union CREATE_SESSION4res switch (nfsstat4 status) { case NFS4_OK: CREATE_SESSION4resok; default: void; };
struct DESTROY_SESSION4args { sessionid4 dsa_sessionid; };
union DESTROY_SESSION4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct FREE_STATEID4args { stateid4 fsa_stateid; };
union FREE_STATEID4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct GET_DIR_DELEGATION4args {
    bool gdda_signal_deleg_avail; notify_bits gdda_notification_types; nfstime4 gdda_child_attr_delay;
    nfstime4 gdda_dir_attr_delay; attribute_bits gdda_child_attributes; attribute_bits gdda_dir_attributes;
};
union GET_DIR_DELEGATION4res switch (nfsstat4 status) {
    case NFS4_OK: GET_DIR_DELEGATION4res_non_fatal gddr_res_non_fatal4;
    default: void;
};
struct GETDEVICEINFO4args {
    deviceid4 gdia_device_id; layouttype4 gdia_layout_type; count4 gdia_maxcount;
    notify_deviceid_bits gdia_notify_types;
};
struct GETDEVICEINFO4resok { device_addr4 gdir_device_addr; notify_deviceid_bits gdir_notification; };
union GETDEVICEINFO4res switch (nfsstat4 status) {
    case NFS4_OK: GETDEVICEINFO4resok;
    case NFS4ERR_TOOSMALL: count4 gdir_mincount;
    default: void;
};
struct GETDEVICELIST4args {
    layouttype4 gdla_layout_type; count4 gdla_maxdevices; nfs_cookie4 gdla_cookie; verifier4 gdla_cookieverf;
};
struct GETDEVICELIST4resok {
    nfs_cookie4 gdlr_cookie; verifier4 gdlr_cookieverf; deviceid4 gdlr_deviceid_list<>; bool gdlr_eof;
};
union GETDEVICELIST4res switch (nfsstat4 status) { case NFS4_OK: GETDEVICELIST4resok; default: void; };
struct LAYOUTCOMMIT4args {
    offset4 loca_offset; length4 loca_length; bool loca_reclaim; stateid4 loca_stateid;
    newoffset4 loca_last_write_offset; newtime4 loca_time_modify; layoutupdate4 loca_layoutupdate;
};
union LAYOUTCOMMIT4res switch (nfsstat4 status) { case NFS4_OK: newsize4 locr_newsize; default: void; };
struct LAYOUTGET4args {
    bool loga_signal_layout_avail; layouttype4 loga_layout_type; layoutiomode4 loga_iomode; offset4 loga_offset;
    length4 loga_length; length4 loga_minlength; stateid4 loga_stateid; count4 loga_maxcount;
};
struct LAYOUTGET4resok { bool logr_return_on_close; stateid4 logr_stateid; layout4 logr_layout<>; };
union LAYOUTGET4res switch (nfsstat4 status) {
    case NFS4_OK: LAYOUTGET4resok;
    case NFS4ERR_LAYOUTTRYLATER: bool logr_will_signal_layout_avail;
    default: void;
};
struct LAYOUTRETURN4args {
    bool lora_reclaim; layouttype4 lora_layout_type; layoutiomode4 lora_iomode; layoutreturn4 lora_layoutreturn;
};
union LAYOUTRETURN4res switch (nfsstat4 status) {
    case NFS4_OK: layoutreturn_stateid lorr_stateid;
    default: void;
};
struct SECINFO_NO_NAME4args { secinfo_style4 style; };
union SECINFO_NO_NAME4res switch (nfsstat4 status) { case NFS4_OK: secinfo4resok resok4; default: void; };
struct SEQUENCE4args {
    sessionid4 sa_sessionid; sequenceid4 sa_sequenceid; slotid4 sa_slotid; slotid4 sa_highest_slotid;
    bool sa_cachethis;
};
struct SEQUENCE4resok {
    sessionid4 sr_sessionid; sequenceid4 sr_sequenceid; slotid4 sr_slotid; slotid4 sr_highest_slotid;
    slotid4 sr_target_highest_slotid; sr_status_flags sr_status_flags;
};
union SEQUENCE4res switch (nfsstat4 status) { case NFS4_OK: SEQUENCE4resok; default: void; };
typedef opaque ssa_ssv<>;
typedef opaque ssa_digest<>;
struct SET_SSV4args { ssa_ssv ssa_ssv; ssa_digest ssa_digest; };
typedef opaque ssr_digest<>;
struct SET_SSV4resok { ssr_digest ssr_digest; };
union SET_SSV4res switch (nfsstat4 status) { case NFS4_OK: SET_SSV4resok; default: void; };
struct TEST_STATEID4args { stateid4 ts_stateids<>; };
struct TEST_STATEID4resok { nfsstat4 tsr_status_codes<>; };
union TEST_STATEID4res switch (nfsstat4 status) { case NFS4_OK: TEST_STATEID4resok; default: void; };
struct WANT_DELEGATION4args { hex uint32_t wda_want; deleg_claim4 wda_claim; };
union WANT_DELEGATION4res switch (nfsstat4 status) {
    case NFS4_OK: open_delegation4 wdr_resok4;
    default: void;
};
struct DESTROY_CLIENTID4args { clientid4 dca_clientid; };
union DESTROY_CLIENTID4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
struct RECLAIM_COMPLETE4args { bool rca_one_fs; };
union RECLAIM_COMPLETE4res switch (nfsstat4 status) { case NFS4_OK: void; default: void; };
program COMPOUND {
    BACKCHANNEL_CTL4res BACKCHANNEL_CTL(BACKCHANNEL_CTL4args) = 40 in 18.33;
    BIND_CONN_TO_SESSION4res BIND_CONN_TO_SESSION(BIND_CONN_TO_SESSION4args) = 41 in 18.34;
    EXCHANGE_ID4res EXCHANGE_ID(EXCHANGE_ID4args) = 42 in 18.35;
    CREATE_SESSION4res CREATE_SESSION(CREATE_SESSION4args) = 43 in 18.36;
    DESTROY_SESSION4res DESTROY_SESSION(DESTROY_SESSION4args) = 44 in 18.37;
    FREE_STATEID4res FREE_STATEID(FREE_STATEID4args) = 45 in 18.38;
    GET_DIR_DELEGATION4res GET_DIR_DELEGATION(GET_DIR_DELEGATION4args) = 46 in 18.39;
    GETDEVICEINFO4res GETDEVICEINFO(GETDEVICEINFO4args) = 47 in 18.40;
    GETDEVICELIST4res GETDEVICELIST(GETDEVICELIST4args) = 48 in 18.41;
    LAYOUTCOMMIT4res LAYOUTCOMMIT(LAYOUTCOMMIT4args) = 49 in 18.42;
    LAYOUTGET4res LAYOUTGET(LAYOUTGET4args) = 50 in 18.43;
    LAYOUTRETURN4res LAYOUTRETURN(LAYOUTRETURN4args) = 51 in 18.44;
    SECINFO_NO_NAME4res SECINFO_NO_NAME(SECINFO_NO_NAME4args) = 52 in 18.45;
    SEQUENCE4res SEQUENCE(SEQUENCE4args) = 53 in 18.46;
    SET_SSV4res SET_SSV(SET_SSV4args) = 54 in 18.47;
    TEST_STATEID4res TEST_STATEID(TEST_STATEID4args) = 55 in 18.48;
    WANT_DELEGATION4res WANT_DELEGATION(WANT_DELEGATION4args) = 56 in 18.49;
    DESTROY_CLIENTID4res DESTROY_CLIENTID(DESTROY_CLIENTID4args) = 57 in 18.50;
    RECLAIM_COMPLETE4res RECLAIM_COMPLETE(RECLAIM_COMPLETE4args) = 58 in 18.51;
};
    """,
    rfc7530.TYPES,
    layouts.TYPES,
    operation_bits=XdrBitmap("bitmap4", OPERATION_NAMES),
)
SEQ4_STATUS = TYPES["sr_status_flags"]
