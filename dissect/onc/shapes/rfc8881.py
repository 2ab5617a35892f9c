"""The operations that NFS version 4.1 added: sessions, pNFS, directory delegations (RFC 8881, RFC 5662)."""

from __future__ import annotations

from .attributes4 import ATTRIBUTE_BITS
from .layouts import DEVICE_ADDR4, LAYOUT4, LAYOUTRETURN_FILE4, LAYOUTUPDATE4
from .nfs4_types import (
    AUTHSYS_PARMS,
    CLIENTID4,
    COUNT4,
    DEVICEID4,
    LAYOUTIOMODE4,
    LAYOUTRETURN_TYPE4,
    LAYOUTTYPE4,
    LENGTH4,
    NFS_COOKIE4,
    NFS_IMPL_ID4,
    NFSSTAT4,
    NFSTIME4,
    NOTIFY_BITS,
    NOTIFY_DEVICEID_BITS,
    OFFSET4,
    OPEN_DELEGATION4,
    OPEN_DELEGATION_TYPE4,
    OPERATION_NAMES,
    RPC_GSS_SVC,
    SEC_OID4,
    SEQUENCEID4,
    SESSIONID4,
    SLOTID4,
    STATEID4,
    VERIFIER4,
)
from .rfc1813 import FLAVORS
from .rfc7530 import OPEN_CLAIM_TYPE4, SECINFO4RESOK, operation
from .types import (
    BOOL,
    HEXADECIMAL,
    UINT32,
    UINT64,
    OperationShape,
    XdrBitmap,
    XdrInteger,
    XdrOpaque,
    array,
    enum,
    flags,
    struct,
    union,
    union_or,
)

_PROGRAM = XdrInteger("uint32_t", form=HEXADECIMAL)

# 18.33
GSS_CB_HANDLES4 = struct(
    "gss_cb_handles4",
    gcbp_service=RPC_GSS_SVC,
    gcbp_handle_from_server=XdrOpaque("gsshandle4_t"),
    gcbp_handle_from_client=XdrOpaque("gsshandle4_t"),
)
CALLBACK_SEC_PARMS4 = union(
    "callback_sec_parms4",
    "cb_secflavor",
    FLAVORS,
    {0: None, 1: ("cbsp_sys_cred", AUTHSYS_PARMS), 6: ("cbsp_gss_handles", GSS_CB_HANDLES4)},
)

# 18.35
EXCHGID4_FLAGS = flags(
    "eia_flags",
    {
        1: "EXCHGID4_FLAG_SUPP_MOVED_REFER",
        2: "EXCHGID4_FLAG_SUPP_MOVED_MIGR",
        4: "EXCHGID4_FLAG_SUPP_FENCE_OPS",  # RFC 7862, 4.10.1.1
        0x100: "EXCHGID4_FLAG_BIND_PRINC_STATEID",
        0x10000: "EXCHGID4_FLAG_USE_NON_PNFS",
        0x20000: "EXCHGID4_FLAG_USE_PNFS_MDS",
        0x40000: "EXCHGID4_FLAG_USE_PNFS_DS",
        0x40000000: "EXCHGID4_FLAG_UPD_CONFIRMED_REC_A",
        0x80000000: "EXCHGID4_FLAG_CONFIRMED_R",
    },
)
_OPERATION_BITS = XdrBitmap("bitmap4", OPERATION_NAMES)
STATE_PROTECT_OPS4 = struct("state_protect_ops4", spo_must_enforce=_OPERATION_BITS, spo_must_allow=_OPERATION_BITS)
SSV_SP_PARMS4 = struct(
    "ssv_sp_parms4",
    ssp_ops=STATE_PROTECT_OPS4,
    ssp_hash_algs=array(SEC_OID4),
    ssp_encr_algs=array(SEC_OID4),
    ssp_window=UINT32,
    ssp_num_gss_handles=UINT32,
)
SSV_PROT_INFO4 = struct(
    "ssv_prot_info4",
    spi_ops=STATE_PROTECT_OPS4,
    spi_hash_alg=UINT32,
    spi_encr_alg=UINT32,
    spi_ssv_len=UINT32,
    spi_window=UINT32,
    spi_handles=array(XdrOpaque("gsshandle4_t")),
)
STATE_PROTECT_HOW4 = enum("state_protect_how4", {0: "SP4_NONE", 1: "SP4_MACH_CRED", 2: "SP4_SSV"})
STATE_PROTECT4_A = union(
    "state_protect4_a",
    "spa_how",
    STATE_PROTECT_HOW4,
    {0: None, 1: ("spa_mach_ops", STATE_PROTECT_OPS4), 2: ("spa_ssv_parms", SSV_SP_PARMS4)},
)
STATE_PROTECT4_R = union(
    "state_protect4_r",
    "spr_how",
    STATE_PROTECT_HOW4,
    {0: None, 1: ("spr_mach_ops", STATE_PROTECT_OPS4), 2: ("spr_ssv_info", SSV_PROT_INFO4)},
)
CLIENT_OWNER4 = struct("client_owner4", co_verifier=VERIFIER4, co_ownerid=XdrOpaque("co_ownerid", maximum=1024))
SERVER_OWNER4 = struct("server_owner4", so_minor_id=UINT64, so_major_id=XdrOpaque("so_major_id", maximum=1024))

# 18.36
CHANNEL_ATTRS4 = struct(
    "channel_attrs4",
    ca_headerpadsize=COUNT4,
    ca_maxrequestsize=COUNT4,
    ca_maxresponsesize=COUNT4,
    ca_maxresponsesize_cached=COUNT4,
    ca_maxoperations=COUNT4,
    ca_maxrequests=COUNT4,
    ca_rdma_ird=array(UINT32, 1),
)
CREATE_SESSION4_FLAGS = flags(
    "csa_flags",
    {
        1: "CREATE_SESSION4_FLAG_PERSIST",
        2: "CREATE_SESSION4_FLAG_CONN_BACK_CHAN",
        4: "CREATE_SESSION4_FLAG_CONN_RDMA",
    },
)

# 18.34
_DIRECTIONS = {1: "FORE", 2: "BACK", 3: "FORE_OR_BOTH", 7: "BACK_OR_BOTH"}
CHANNEL_DIR_FROM_CLIENT4 = enum(
    "channel_dir_from_client4", {number: f"CDFC4_{name}" for number, name in _DIRECTIONS.items()}
)
CHANNEL_DIR_FROM_SERVER4 = enum("channel_dir_from_server4", {1: "CDFS4_FORE", 2: "CDFS4_BACK", 3: "CDFS4_BOTH"})

# 18.39
GET_DIR_DELEGATION4RES_NON_FATAL = union(
    "GET_DIR_DELEGATION4res_non_fatal",
    "gddrnf_status",
    enum("gddrnf4_status", {0: "GDD4_OK", 1: "GDD4_UNAVAIL"}),
    {
        0: struct(
            "GET_DIR_DELEGATION4resok",
            gddr_cookieverf=VERIFIER4,
            gddr_stateid=STATEID4,
            gddr_notification=NOTIFY_BITS,
            gddr_child_attributes=ATTRIBUTE_BITS,
            gddr_dir_attributes=ATTRIBUTE_BITS,
        ),
        1: ("gddrnf_will_signal_deleg_avail", BOOL),
    },
)

# 18.42 to 18.44
NEWOFFSET4 = union("newoffset4", "no_newoffset", BOOL, {1: ("no_offset", OFFSET4), 0: None})
NEWTIME4 = union("newtime4", "nt_timechanged", BOOL, {1: ("nt_time", NFSTIME4), 0: None})
NEWSIZE4 = union("newsize4", "ns_sizechanged", BOOL, {1: ("ns_size", LENGTH4), 0: None})
LAYOUTRETURN4 = union_or("layoutreturn4", "lr_returntype", LAYOUTRETURN_TYPE4, {1: ("lr_layout", LAYOUTRETURN_FILE4)})
LAYOUTRETURN_STATEID = union("layoutreturn_stateid", "lrs_present", BOOL, {1: ("lrs_stateid", STATEID4), 0: None})

# 18.46
SEQ4_STATUS = flags(
    "sr_status_flags",
    {
        1: "SEQ4_STATUS_CB_PATH_DOWN",
        2: "SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRING",
        4: "SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRED",
        8: "SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED",
        0x10: "SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED",
        0x20: "SEQ4_STATUS_ADMIN_STATE_REVOKED",
        0x40: "SEQ4_STATUS_RECALLABLE_STATE_REVOKED",
        0x80: "SEQ4_STATUS_LEASE_MOVED",
        0x100: "SEQ4_STATUS_RESTART_RECLAIM_NEEDED",
        0x200: "SEQ4_STATUS_CB_PATH_DOWN_SESSION",
        0x400: "SEQ4_STATUS_BACKCHANNEL_FAULT",
        0x800: "SEQ4_STATUS_DEVID_CHANGED",
        0x1000: "SEQ4_STATUS_DEVID_DELETED",
    },
)
SECINFO_STYLE4 = enum("secinfo_style4", {0: "SECINFO_STYLE4_CURRENT_FH", 1: "SECINFO_STYLE4_PARENT"})

# 18.49
DELEG_CLAIM4 = union(
    "deleg_claim4",
    "dc_claim",
    OPEN_CLAIM_TYPE4,
    {4: None, 6: None, 1: ("dc_delegate_type", OPEN_DELEGATION_TYPE4)},
)

OPERATIONS: dict[int, OperationShape] = {
    40: operation(
        "BACKCHANNEL_CTL",
        "18.33",
        struct("BACKCHANNEL_CTL4args", bca_cb_program=_PROGRAM, bca_sec_parms=array(CALLBACK_SEC_PARMS4)),
    ),
    41: operation(
        "BIND_CONN_TO_SESSION",
        "18.34",
        struct(
            "BIND_CONN_TO_SESSION4args",
            bctsa_sessid=SESSIONID4,
            bctsa_dir=CHANNEL_DIR_FROM_CLIENT4,
            bctsa_use_conn_in_rdma_mode=BOOL,
        ),
        struct(
            "BIND_CONN_TO_SESSION4resok",
            bctsr_sessid=SESSIONID4,
            bctsr_dir=CHANNEL_DIR_FROM_SERVER4,
            bctsr_use_conn_in_rdma_mode=BOOL,
        ),
    ),
    42: operation(
        "EXCHANGE_ID",
        "18.35",
        struct(
            "EXCHANGE_ID4args",
            eia_clientowner=CLIENT_OWNER4,
            eia_flags=EXCHGID4_FLAGS,
            eia_state_protect=STATE_PROTECT4_A,
            eia_client_impl_id=array(NFS_IMPL_ID4, 1),
        ),
        struct(
            "EXCHANGE_ID4resok",
            eir_clientid=CLIENTID4,
            eir_sequenceid=SEQUENCEID4,
            eir_flags=EXCHGID4_FLAGS,
            eir_state_protect=STATE_PROTECT4_R,
            eir_server_owner=SERVER_OWNER4,
            eir_server_scope=XdrOpaque("eir_server_scope", maximum=1024),
            eir_server_impl_id=array(NFS_IMPL_ID4, 1),
        ),
    ),
    43: operation(
        "CREATE_SESSION",
        "18.36",
        struct(
            "CREATE_SESSION4args",
            csa_clientid=CLIENTID4,
            csa_sequence=SEQUENCEID4,
            csa_flags=CREATE_SESSION4_FLAGS,
            csa_fore_chan_attrs=CHANNEL_ATTRS4,
            csa_back_chan_attrs=CHANNEL_ATTRS4,
            csa_cb_program=_PROGRAM,
            csa_sec_parms=array(CALLBACK_SEC_PARMS4),
        ),
        struct(
            "CREATE_SESSION4resok",
            csr_sessionid=SESSIONID4,
            csr_sequence=SEQUENCEID4,
            csr_flags=CREATE_SESSION4_FLAGS,
            csr_fore_chan_attrs=CHANNEL_ATTRS4,
            csr_back_chan_attrs=CHANNEL_ATTRS4,
        ),
    ),
    44: operation("DESTROY_SESSION", "18.37", struct("DESTROY_SESSION4args", dsa_sessionid=SESSIONID4)),
    45: operation("FREE_STATEID", "18.38", struct("FREE_STATEID4args", fsa_stateid=STATEID4)),
    46: operation(
        "GET_DIR_DELEGATION",
        "18.39",
        struct(
            "GET_DIR_DELEGATION4args",
            gdda_signal_deleg_avail=BOOL,
            gdda_notification_types=NOTIFY_BITS,
            gdda_child_attr_delay=NFSTIME4,
            gdda_dir_attr_delay=NFSTIME4,
            gdda_child_attributes=ATTRIBUTE_BITS,
            gdda_dir_attributes=ATTRIBUTE_BITS,
        ),
        ("gddr_res_non_fatal4", GET_DIR_DELEGATION4RES_NON_FATAL),
    ),
    47: operation(
        "GETDEVICEINFO",
        "18.40",
        struct(
            "GETDEVICEINFO4args",
            gdia_device_id=DEVICEID4,
            gdia_layout_type=LAYOUTTYPE4,
            gdia_maxcount=COUNT4,
            gdia_notify_types=NOTIFY_DEVICEID_BITS,
        ),
        struct("GETDEVICEINFO4resok", gdir_device_addr=DEVICE_ADDR4, gdir_notification=NOTIFY_DEVICEID_BITS),
        {10005: ("gdir_mincount", COUNT4)},
    ),
    48: operation(
        "GETDEVICELIST",
        "18.41",
        struct(
            "GETDEVICELIST4args",
            gdla_layout_type=LAYOUTTYPE4,
            gdla_maxdevices=COUNT4,
            gdla_cookie=NFS_COOKIE4,
            gdla_cookieverf=VERIFIER4,
        ),
        struct(
            "GETDEVICELIST4resok",
            gdlr_cookie=NFS_COOKIE4,
            gdlr_cookieverf=VERIFIER4,
            gdlr_deviceid_list=array(DEVICEID4),
            gdlr_eof=BOOL,
        ),
    ),
    49: operation(
        "LAYOUTCOMMIT",
        "18.42",
        struct(
            "LAYOUTCOMMIT4args",
            loca_offset=OFFSET4,
            loca_length=LENGTH4,
            loca_reclaim=BOOL,
            loca_stateid=STATEID4,
            loca_last_write_offset=NEWOFFSET4,
            loca_time_modify=NEWTIME4,
            loca_layoutupdate=LAYOUTUPDATE4,
        ),
        ("locr_newsize", NEWSIZE4),
    ),
    50: operation(
        "LAYOUTGET",
        "18.43",
        struct(
            "LAYOUTGET4args",
            loga_signal_layout_avail=BOOL,
            loga_layout_type=LAYOUTTYPE4,
            loga_iomode=LAYOUTIOMODE4,
            loga_offset=OFFSET4,
            loga_length=LENGTH4,
            loga_minlength=LENGTH4,
            loga_stateid=STATEID4,
            loga_maxcount=COUNT4,
        ),
        struct("LAYOUTGET4resok", logr_return_on_close=BOOL, logr_stateid=STATEID4, logr_layout=array(LAYOUT4)),
        {10058: ("logr_will_signal_layout_avail", BOOL)},
    ),
    51: operation(
        "LAYOUTRETURN",
        "18.44",
        struct(
            "LAYOUTRETURN4args",
            lora_reclaim=BOOL,
            lora_layout_type=LAYOUTTYPE4,
            lora_iomode=LAYOUTIOMODE4,
            lora_layoutreturn=LAYOUTRETURN4,
        ),
        ("lorr_stateid", LAYOUTRETURN_STATEID),
    ),
    52: operation(
        "SECINFO_NO_NAME", "18.45", struct("SECINFO_NO_NAME4args", style=SECINFO_STYLE4), ("resok4", SECINFO4RESOK)
    ),
    53: operation(
        "SEQUENCE",
        "18.46",
        struct(
            "SEQUENCE4args",
            sa_sessionid=SESSIONID4,
            sa_sequenceid=SEQUENCEID4,
            sa_slotid=SLOTID4,
            sa_highest_slotid=SLOTID4,
            sa_cachethis=BOOL,
        ),
        struct(
            "SEQUENCE4resok",
            sr_sessionid=SESSIONID4,
            sr_sequenceid=SEQUENCEID4,
            sr_slotid=SLOTID4,
            sr_highest_slotid=SLOTID4,
            sr_target_highest_slotid=SLOTID4,
            sr_status_flags=SEQ4_STATUS,
        ),
    ),
    54: operation(
        "SET_SSV",
        "18.47",
        struct("SET_SSV4args", ssa_ssv=XdrOpaque("ssa_ssv"), ssa_digest=XdrOpaque("ssa_digest")),
        struct("SET_SSV4resok", ssr_digest=XdrOpaque("ssr_digest")),
    ),
    55: operation(
        "TEST_STATEID",
        "18.48",
        struct("TEST_STATEID4args", ts_stateids=array(STATEID4)),
        struct("TEST_STATEID4resok", tsr_status_codes=array(NFSSTAT4)),
    ),
    56: operation(
        "WANT_DELEGATION",
        "18.49",
        struct("WANT_DELEGATION4args", wda_want=XdrInteger("uint32_t", form=HEXADECIMAL), wda_claim=DELEG_CLAIM4),
        ("wdr_resok4", OPEN_DELEGATION4),
    ),
    57: operation("DESTROY_CLIENTID", "18.50", struct("DESTROY_CLIENTID4args", dca_clientid=CLIENTID4)),
    58: operation("RECLAIM_COMPLETE", "18.51", struct("RECLAIM_COMPLETE4args", rca_one_fs=BOOL)),
}
