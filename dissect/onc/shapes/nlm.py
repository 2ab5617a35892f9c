"""The lock manager and the status monitor (RFC 1813, appendix II; X/Open XNFS, 10 and 11)."""

from __future__ import annotations

from ..programs import PROGRAM_NAMES
from .language import declared
from .types import TO_END_OF_FILE, XdrInteger

TYPES = declared(
    """
typedef opaque netobj<1024>;
typedef handle nlm_fh<1024>;
typedef string caller_name<1024>;
typedef string mon_name<1024>;
typedef opaque priv[16];
struct my_id { mon_name my_name; program my_prog; int32_t my_vers; int32_t my_proc; };
struct mon_id { mon_name mon_name; my_id my_id; };
struct sm_stat { int32_t state; };
enum sm_res { STAT_SUCC = 0, STAT_FAIL = 1 };
struct sm_stat_res { sm_res res_stat; int32_t state; };
struct sm_name { mon_name mon_name; };
struct mon { mon_id mon_id; priv priv; };
struct stat_chge { mon_name mon_name; int32_t state; };
/* RFC 1813, 6.1.3 */
enum nlm4_stats {
    NLM4_GRANTED = 0, NLM4_DENIED = 1, NLM4_DENIED_NOLOCKS = 2, NLM4_BLOCKED = 3, NLM4_DENIED_GRACE_PERIOD = 4,
    NLM4_DEADLCK = 5, NLM4_ROFS = 6, NLM4_STALE_FH = 7, NLM4_FBIG = 8, NLM4_FAILED = 9
};
/* X/Open XNFS, 10.2: versions below 4 */
enum nlm_stats {
    LCK_GRANTED = 0, LCK_DENIED = 1, LCK_DENIED_NOLOCKS = 2, LCK_BLOCKED = 3, LCK_DENIED_GRACE_PERIOD = 4,
    LCK_DEADLCK = 5
};
program NSM1 {
    void NULL(void) = 0;
    sm_stat_res STAT(sm_name) = 1;
    sm_stat_res MON(mon) = 2;
    sm_stat UNMON(mon_id) = 3;
    sm_stat UNMON_ALL(my_id) = 4;
    void SIMU_CRASH(void) = 5;
    void NOTIFY(stat_chge) = 6;
};
    """,
    program=XdrInteger("int32_t", signed=True, meanings=PROGRAM_NAMES),
)
_NLM = """
struct nlm4_lock {
    caller_name caller_name; nlm_fh fh; netobj oh; int32_t svid; offset l_offset; length l_len;
};
struct nlm4_testargs { netobj cookie; bool exclusive; nlm4_lock alock; };
struct nlm4_holder { bool exclusive; int32_t svid; netobj oh; offset l_offset; length l_len; };
union nlm4_testrply switch (nlm4_stats stat) { case 1: nlm4_holder holder; default: void; };
struct nlm4_testres { netobj cookie; nlm4_testrply test_stat; };
struct nlm4_lockargs {
    netobj cookie; bool block; bool exclusive; nlm4_lock alock; bool reclaim; int32_t state;
};
struct nlm4_res { netobj cookie; nlm4_stats stat; };
struct nlm4_cancargs { netobj cookie; bool block; bool exclusive; nlm4_lock alock; };
struct nlm4_unlockargs { netobj cookie; nlm4_lock alock; };
struct nlm_reboot { mon_name mon_name; int32_t state; priv priv; };
enum fsh_mode { fsm_DN = 0, fsm_DR = 1, fsm_DW = 2, fsm_DRW = 3 };
enum fsh_access { fsa_NONE = 0, fsa_R = 1, fsa_W = 2, fsa_RW = 3 };
struct nlm4_share { caller_name caller_name; nlm_fh fh; netobj oh; fsh_mode mode; fsh_access access; };
struct nlm4_shareargs { netobj cookie; nlm4_share share; bool reclaim; };
struct nlm4_shareres { netobj cookie; nlm4_stats stat; int32_t sequence; };
struct nlm4_notify { caller_name name; int32_t state; };
program NLM4 {
    void NULL(void) = 0;
    nlm4_testres TEST(nlm4_testargs) = 1;
    nlm4_res LOCK(nlm4_lockargs) = 2;
    nlm4_res CANCEL(nlm4_cancargs) = 3;
    nlm4_res UNLOCK(nlm4_unlockargs) = 4;
    nlm4_res GRANTED(nlm4_testargs) = 5;
    void TEST_MSG(nlm4_testargs) = 6;
    void LOCK_MSG(nlm4_lockargs) = 7;
    void CANCEL_MSG(nlm4_cancargs) = 8;
    void UNLOCK_MSG(nlm4_unlockargs) = 9;
    void GRANTED_MSG(nlm4_testargs) = 10;
    void TEST_RES(nlm4_testres) = 11;
    void LOCK_RES(nlm4_res) = 12;
    void CANCEL_RES(nlm4_res) = 13;
    void UNLOCK_RES(nlm4_res) = 14;
    void GRANTED_RES(nlm4_res) = 15;
    /* 16 is Linux's alone, from its statd; 17 to 19 are not in the protocol. */
    void SM_NOTIFY(nlm_reboot) = 16;
    void _(void) = 17;
    void _(void) = 18;
    void _(void) = 19;
    nlm4_shareres SHARE(nlm4_shareargs) = 20;
    nlm4_shareres UNSHARE(nlm4_shareargs) = 21;
    nlm4_res NM_LOCK(nlm4_lockargs) = 22;
    void FREE_ALL(nlm4_notify) = 23;
};
"""
VERSION4 = declared(
    _NLM,
    TYPES,
    offset=XdrInteger("uint64", 8),
    length=XdrInteger("uint64", 8, meanings={0: TO_END_OF_FILE}),
)
# Versions below 4 have offsets and lengths of 32 bits, and fewer statuses.
VERSION3 = declared(
    _NLM.replace("nlm4", "nlm"),
    TYPES,
    offset=XdrInteger("uint32"),
    length=XdrInteger("uint32", meanings={0: TO_END_OF_FILE}),
)
NLM3 = VERSION3["NLM4"]
NLM1 = {number: shape for number, shape in NLM3.items() if number < 16}
