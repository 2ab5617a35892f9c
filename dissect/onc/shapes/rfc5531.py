"""RPC messages (RFC 5531, 9 and appendix A), and what RPCSEC_GSS puts around their contents (RFC 2203, 5; RFC 5403;
RFC 7861)."""

from __future__ import annotations

from functools import cache

from ...layers.oncrpc_codes import (
    ACCEPT_STATUS_NAMES,
    ALL_GSS_PROCEDURES,
    AUTH_STATUS_NAMES,
    MESSAGE_TYPES,
    REJECT_STATUS_NAMES,
    REPLY_STATUSES,
)
from . import nfs4_types
from .language import declared
from .rfc1813 import FLAVORS
from .types import HEXADECIMAL, UINT32, XdrInteger, XdrOpaque, XdrStruct, XdrType, enum, struct

_OPAQUE = XdrOpaque("opaque")
TYPES = declared(
    """
/* RFC 2203, 5.3.1 */
struct rpc_gss_cred_vers_1_t {
    rpc_gss_proc_t gss_proc; uint32_t seq_num; rpc_gss_svc_t service; opaque handle<>;
};
enum rpc_gss_version { RPCSEC_GSS_VERS_1 = 1, RPCSEC_GSS_VERS_2 = 2, RPCSEC_GSS_VERS_3 = 3 };
union rpc_gss_cred_t switch (rpc_gss_version version) {
    case RPCSEC_GSS_VERS_1: case RPCSEC_GSS_VERS_2: case RPCSEC_GSS_VERS_3: rpc_gss_cred_vers_1_t;
};
/* RFC 5531, 8.2 and 9 */
opaque body<400> switch (auth_flavor flavor) { case AUTH_SYS: authsys_parms; case RPCSEC_GSS: rpc_gss_cred_t; };
struct credential { auth_flavor flavor; body body; };
struct opaque_auth { auth_flavor flavor; opaque body<400>; };
struct rpc_call {
    hex uint32_t xid; msg_type mtype; uint32_t rpcvers; uint32_t prog; uint32_t vers; uint32_t proc;
    credential cred; opaque_auth verf;
};
struct mismatch_info { uint32_t low; uint32_t high; };
union reply_data switch (accept_stat accept_stat) { case PROG_MISMATCH: mismatch_info; default: void; };
struct accepted_reply { opaque_auth verf; reply_data reply_data; };
union rejected_reply switch (reject_stat reject_stat) {
    case RPC_MISMATCH: mismatch_info;
    case AUTH_ERROR: auth_stat auth_stat;
};
union reply_body switch (reply_stat reply_stat) {
    case MSG_ACCEPTED: accepted_reply;
    case MSG_DENIED: rejected_reply;
};
struct rpc_reply { hex uint32_t xid; msg_type mtype; reply_body rbody; };
/* RFC 2203, 5.2.2 and 5.2.3 */
struct rpc_gss_init_arg { opaque gss_token<>; };
struct rpc_gss_init_res {
    opaque handle<>; gss_major gss_major; uint32_t gss_minor; uint32_t seq_window; opaque gss_token<>;
};
struct rpc_gss_priv_data { opaque databody_priv<>; };
/* RFC 5403, 5.3 */
struct rgss2_bind_chan { opaque rbc_mic<>; };
/* RFC 7861, 2.7 */
struct rgss3_gss_mp_auth { opaque rgmp_handle<>; opaque rgmp_rpcheader_mic<>; };
struct rgss3_label { labelformat_spec4 rl_lfs; opaque rl_label<>; };
struct rgss3_privs { utf8str_cs rp_name; opaque rp_privilege<>; };
enum rgss3_assertion_type { LABEL = 0, PRIVS = 1 };
union rgss3_assertion_u switch (rgss3_assertion_type atype) {
    case LABEL: rgss3_label;
    case PRIVS: rgss3_privs;
    default: opaque rau_ext<>;
};
typedef rgss3_assertion_u assertions<>;
struct rgss3_create_args {
    rgss3_gss_mp_auth *rca_mp_auth; opaque *rca_chan_bind_mic<>; assertions rca_assertions;
};
struct rgss3_create_res {
    opaque rcr_handle<>; rgss3_gss_mp_auth *rcr_mp_auth; opaque *rcr_chan_bind_mic<>; assertions rcr_assertions;
};
struct rgss3_list_args { rgss3_assertion_type rla_list_what<>; };
union rgss3_list_item_u switch (rgss3_assertion_type itype) {
    case LABEL: rgss3_label rli_labels<>;
    case PRIVS: rgss3_privs rli_privs<>;
    default: opaque rli_ext<>;
};
typedef rgss3_list_item_u rgss3_list_res<>;
    """,
    nfs4_types.TYPES,
    auth_flavor=FLAVORS,
    rpc_gss_proc_t=enum("rpc_gss_proc_t", ALL_GSS_PROCEDURES),
    msg_type=enum("msg_type", MESSAGE_TYPES),
    accept_stat=enum("accept_stat", ACCEPT_STATUS_NAMES),
    reject_stat=enum("reject_stat", REJECT_STATUS_NAMES),
    auth_stat=enum("auth_stat", AUTH_STATUS_NAMES),
    reply_stat=enum("reply_stat", REPLY_STATUSES),
    gss_major=XdrInteger("gss_major", form=HEXADECIMAL, values={0: "GSS_S_COMPLETE", 1: "GSS_S_CONTINUE_NEEDED"}),
)
RPC_CALL, RPC_REPLY, RPC_GSS_PRIV_DATA = TYPES["rpc_call"], TYPES["rpc_reply"], TYPES["rpc_gss_priv_data"]

GSS_ARGUMENTS: dict[int, XdrType | None] = {
    1: TYPES["rpc_gss_init_arg"],
    2: TYPES["rpc_gss_init_arg"],
    3: None,
    4: TYPES["rgss2_bind_chan"],
    5: TYPES["rgss3_create_args"],
    6: TYPES["rgss3_list_args"],
}
"""By RPCSEC_GSS procedure; of RPCSEC_GSS_DATA they are the program's."""
GSS_RESULTS: dict[int, XdrType | None] = {
    1: TYPES["rpc_gss_init_res"],
    2: TYPES["rpc_gss_init_res"],
    3: None,
    4: TYPES["rgss2_bind_chan"],
    5: TYPES["rgss3_create_res"],
    6: TYPES["rgss3_list_res"],
}


@cache
def integrity_data(name: str, contents: XdrType | None) -> XdrStruct:
    """rpc_gss_integ_data around arguments or results (RFC 2203, 5.3.2.2)."""
    fields = struct("rpc_gss_data_t", seq_num=UINT32).fields + (((name, contents),) if contents is not None else ())
    return struct(
        "rpc_gss_integ_data",
        databody_integ=XdrOpaque("databody_integ", inner=XdrStruct("rpc_gss_data_t", fields)),
        checksum=_OPAQUE,
    )
