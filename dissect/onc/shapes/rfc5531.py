"""RPC messages (RFC 5531, 9 and appendix A), and what RPCSEC_GSS puts around their contents (RFC 2203, 5; RFC 5403;
RFC 7861)."""

from __future__ import annotations

from functools import cache

from ...layers.oncrpc_codes import (
    ACCEPT_STATUS_NAMES,
    ALL_GSS_PROCEDURES,
    AUTH_STATUS_NAMES,
    MESSAGE_TYPES,
    PROG_MISMATCH,
    REJECT_STATUS_NAMES,
    REPLY_STATUSES,
    RPCSEC_GSS,
)
from .nfs4_types import AUTHSYS_PARMS, LABELFORMAT_SPEC4, RPC_GSS_SVC
from .rfc1813 import FLAVORS
from .types import (
    HEXADECIMAL,
    UINT32,
    XdrInteger,
    XdrOpaque,
    XdrSelected,
    XdrStruct,
    XdrType,
    array,
    enum,
    optional,
    string,
    struct,
    union,
    union_or,
)

_OPAQUE = XdrOpaque("opaque")

# RFC 2203, 5.3.1
RPC_GSS_CRED_VERS_1_T = struct(
    "rpc_gss_cred_vers_1_t",
    gss_proc=enum("rpc_gss_proc_t", ALL_GSS_PROCEDURES),
    seq_num=UINT32,
    service=RPC_GSS_SVC,
    handle=_OPAQUE,
)
RPC_GSS_CRED_T = union(
    "rpc_gss_cred_t",
    "version",
    enum("rpc_gss_version", {1: "RPCSEC_GSS_VERS_1", 2: "RPCSEC_GSS_VERS_2", 3: "RPCSEC_GSS_VERS_3"}),
    {1: RPC_GSS_CRED_VERS_1_T, 2: RPC_GSS_CRED_VERS_1_T, 3: RPC_GSS_CRED_VERS_1_T},
)

# RFC 5531, 8.2 and 9
_XID = XdrInteger("unsigned int", form=HEXADECIMAL)
_CREDENTIAL_BODY = XdrSelected(
    "body", "flavor", {1: AUTHSYS_PARMS, RPCSEC_GSS: RPC_GSS_CRED_T}, XdrOpaque("body", maximum=400)
)
CREDENTIAL = struct("opaque_auth", flavor=FLAVORS, body=_CREDENTIAL_BODY)
OPAQUE_AUTH = struct("opaque_auth", flavor=FLAVORS, body=XdrOpaque("body", maximum=400))
_MSG_TYPE = enum("msg_type", MESSAGE_TYPES)
RPC_CALL = struct(
    "rpc_msg",
    xid=_XID,
    mtype=_MSG_TYPE,
    rpcvers=UINT32,
    prog=UINT32,
    vers=UINT32,
    proc=UINT32,
    cred=CREDENTIAL,
    verf=OPAQUE_AUTH,
)
_MISMATCH_INFO = struct("mismatch_info", low=UINT32, high=UINT32)
ACCEPTED_REPLY = struct(
    "accepted_reply",
    verf=OPAQUE_AUTH,
    reply_data=union_or(
        "reply_data", "accept_stat", enum("accept_stat", ACCEPT_STATUS_NAMES), {PROG_MISMATCH: _MISMATCH_INFO}
    ),
)
REJECTED_REPLY = union(
    "rejected_reply",
    "reject_stat",
    enum("reject_stat", REJECT_STATUS_NAMES),
    {0: _MISMATCH_INFO, 1: ("auth_stat", enum("auth_stat", AUTH_STATUS_NAMES))},
)
REPLY_BODY = union(
    "reply_body",
    "reply_stat",
    enum("reply_stat", REPLY_STATUSES),
    {0: ACCEPTED_REPLY, 1: REJECTED_REPLY},
)
RPC_REPLY = struct("rpc_msg", xid=_XID, mtype=_MSG_TYPE, rbody=REPLY_BODY)

# RFC 2203, 5.2.2 and 5.2.3
RPC_GSS_INIT_ARG = struct("rpc_gss_init_arg", gss_token=_OPAQUE)
RPC_GSS_INIT_RES = struct(
    "rpc_gss_init_res",
    handle=_OPAQUE,
    gss_major=XdrInteger("gss_major", form=HEXADECIMAL, values={0: "GSS_S_COMPLETE", 1: "GSS_S_CONTINUE_NEEDED"}),
    gss_minor=UINT32,
    seq_window=UINT32,
    gss_token=_OPAQUE,
)
RPC_GSS_PRIV_DATA = struct("rpc_gss_priv_data", databody_priv=XdrOpaque("databody_priv"))

# RFC 5403, 5.3
RGSS2_BIND_CHAN = struct("rgss2_bind_chan", rbc_mic=_OPAQUE)

# RFC 7861, 2.7
RGSS3_GSS_MP_AUTH = struct("rgss3_gss_mp_auth", rgmp_handle=_OPAQUE, rgmp_rpcheader_mic=_OPAQUE)
_LABEL = struct("rgss3_label", rl_lfs=LABELFORMAT_SPEC4, rl_label=_OPAQUE)
_PRIVS = struct("rgss3_privs", rp_name=string("utf8str_cs"), rp_privilege=_OPAQUE)
_ASSERTION_TYPE = enum("rgss3_assertion_type", {0: "LABEL", 1: "PRIVS"})
_ASSERTIONS = array(
    union_or("rgss3_assertion_u", "atype", _ASSERTION_TYPE, {0: _LABEL, 1: _PRIVS}, ("rau_ext", _OPAQUE))
)
RGSS3_CREATE_ARGS = struct(
    "rgss3_create_args",
    rca_mp_auth=optional(RGSS3_GSS_MP_AUTH),
    rca_chan_bind_mic=optional(_OPAQUE),
    rca_assertions=_ASSERTIONS,
)
RGSS3_CREATE_RES = struct(
    "rgss3_create_res",
    rcr_handle=_OPAQUE,
    rcr_mp_auth=optional(RGSS3_GSS_MP_AUTH),
    rcr_chan_bind_mic=optional(_OPAQUE),
    rcr_assertions=_ASSERTIONS,
)
RGSS3_LIST_ARGS = struct("rgss3_list_args", rla_list_what=array(_ASSERTION_TYPE))
RGSS3_LIST_RES = array(
    union_or(
        "rgss3_list_item_u",
        "itype",
        _ASSERTION_TYPE,
        {0: ("rli_labels", array(_LABEL)), 1: ("rli_privs", array(_PRIVS))},
        ("rli_ext", _OPAQUE),
    )
)

GSS_ARGUMENTS: dict[int, XdrType | None] = {
    1: RPC_GSS_INIT_ARG,
    2: RPC_GSS_INIT_ARG,
    3: None,
    4: RGSS2_BIND_CHAN,
    5: RGSS3_CREATE_ARGS,
    6: RGSS3_LIST_ARGS,
}
"""By RPCSEC_GSS procedure; of RPCSEC_GSS_DATA they are the program's."""
GSS_RESULTS: dict[int, XdrType | None] = {
    1: RPC_GSS_INIT_RES,
    2: RPC_GSS_INIT_RES,
    3: None,
    4: RGSS2_BIND_CHAN,
    5: RGSS3_CREATE_RES,
    6: RGSS3_LIST_RES,
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
