"""The lock manager and the status monitor (RFC 1813, appendix II; X/Open XNFS, 10 and 11)."""

from __future__ import annotations

from collections.abc import Mapping

from ..rpc_header import PROGRAM_NAMES
from ..statuses import NLM1_STATUS, NLM_STATUS, NSM_STATUS
from .types import (
    BOOL,
    HANDLE,
    INT32,
    TO_END_OF_FILE,
    ProcedureShape,
    XdrInteger,
    XdrOpaque,
    enum,
    fixed,
    string,
    struct,
    table,
    union_or,
)

_NETOBJ = XdrOpaque("netobj", maximum=1024)
NLM_FH = XdrOpaque("netobj", HANDLE, maximum=1024)
OFFSET, OFFSET32 = XdrInteger("uint64", 8), XdrInteger("uint32")
LENGTH = XdrInteger("uint64", 8, meanings={0: TO_END_OF_FILE})
LENGTH32 = XdrInteger("uint32", meanings={0: TO_END_OF_FILE})
_CALLER_NAME = string("caller_name", 1024)
_SM_NAME = string("mon_name", 1024)
_PRIV = fixed("priv", 16)


def _nlm(prefix: str, names: Mapping[int, str], offset: XdrInteger, length: XdrInteger) -> dict[int, ProcedureShape]:
    """Versions below 4 have offsets and lengths of 32 bits, and fewer statuses."""
    stats = enum(f"{prefix}_stats", names)
    lock = struct(
        f"{prefix}_lock", caller_name=_CALLER_NAME, fh=NLM_FH, oh=_NETOBJ, svid=INT32, l_offset=offset, l_len=length
    )
    holder = struct(f"{prefix}_holder", exclusive=BOOL, svid=INT32, oh=_NETOBJ, l_offset=offset, l_len=length)
    testargs = struct(f"{prefix}_testargs", cookie=_NETOBJ, exclusive=BOOL, alock=lock)
    lockargs = struct(
        f"{prefix}_lockargs", cookie=_NETOBJ, block=BOOL, exclusive=BOOL, alock=lock, reclaim=BOOL, state=INT32
    )
    cancargs = struct(f"{prefix}_cancargs", cookie=_NETOBJ, block=BOOL, exclusive=BOOL, alock=lock)
    unlockargs = struct(f"{prefix}_unlockargs", cookie=_NETOBJ, alock=lock)
    share = struct(
        f"{prefix}_share",
        caller_name=_CALLER_NAME,
        fh=NLM_FH,
        oh=_NETOBJ,
        mode=enum("fsh_mode", {0: "fsm_DN", 1: "fsm_DR", 2: "fsm_DW", 3: "fsm_DRW"}),
        access=enum("fsh_access", {0: "fsa_NONE", 1: "fsa_R", 2: "fsa_W", 3: "fsa_RW"}),
    )
    shareargs = struct(f"{prefix}_shareargs", cookie=_NETOBJ, share=share, reclaim=BOOL)
    shareres = struct(f"{prefix}_shareres", cookie=_NETOBJ, stat=stats, sequence=INT32)
    res = struct(f"{prefix}_res", cookie=_NETOBJ, stat=stats)
    testres = struct(
        f"{prefix}_testres",
        cookie=_NETOBJ,
        test_stat=union_or(f"{prefix}_testrply", "stat", stats, {1: ("holder", holder)}),
    )
    notify = struct(f"{prefix}_notify", name=_CALLER_NAME, state=INT32)
    return table(
        ProcedureShape("NULL"),
        ProcedureShape("TEST", testargs, testres),
        ProcedureShape("LOCK", lockargs, res),
        ProcedureShape("CANCEL", cancargs, res),
        ProcedureShape("UNLOCK", unlockargs, res),
        ProcedureShape("GRANTED", testargs, res),
        ProcedureShape("TEST_MSG", testargs),
        ProcedureShape("LOCK_MSG", lockargs),
        ProcedureShape("CANCEL_MSG", cancargs),
        ProcedureShape("UNLOCK_MSG", unlockargs),
        ProcedureShape("GRANTED_MSG", testargs),
        ProcedureShape("TEST_RES", testres),
        ProcedureShape("LOCK_RES", res),
        ProcedureShape("CANCEL_RES", res),
        ProcedureShape("UNLOCK_RES", res),
        ProcedureShape("GRANTED_RES", res),
        # 16 is Linux's alone, from its statd; 17 to 19 are not in the protocol.
        ProcedureShape("SM_NOTIFY", struct("nlm_reboot", mon_name=_SM_NAME, state=INT32, priv=_PRIV)),
        *[ProcedureShape("")] * 3,
        ProcedureShape("SHARE", shareargs, shareres),
        ProcedureShape("UNSHARE", shareargs, shareres),
        ProcedureShape("NM_LOCK", lockargs, res),
        ProcedureShape("FREE_ALL", notify),
    )


NLM4 = _nlm("nlm4", {**NLM_STATUS, 0: "NLM4_GRANTED"}, OFFSET, LENGTH)
NLM3 = _nlm("nlm", {**NLM1_STATUS, 0: "LCK_GRANTED"}, OFFSET32, LENGTH32)
NLM1 = {number: shape for number, shape in NLM3.items() if number < 16}

_PROGRAM = XdrInteger("int32_t", signed=True, meanings=PROGRAM_NAMES)
_MY_ID = struct(
    "my_id",
    my_name=_SM_NAME,
    my_prog=_PROGRAM,
    my_vers=INT32,
    my_proc=INT32,
)
_MON_ID = struct("mon_id", mon_name=_SM_NAME, my_id=_MY_ID)
_SM_STAT = struct("sm_stat", state=INT32)
_SM_STAT_RES = struct("sm_stat_res", res_stat=enum("sm_res", {**NSM_STATUS, 0: "STAT_SUCC"}), state=INT32)
NSM1 = table(
    ProcedureShape("NULL"),
    ProcedureShape("STAT", struct("sm_name", mon_name=_SM_NAME), _SM_STAT_RES),
    ProcedureShape("MON", struct("mon", mon_id=_MON_ID, priv=_PRIV), _SM_STAT_RES),
    ProcedureShape("UNMON", _MON_ID, _SM_STAT),
    ProcedureShape("UNMON_ALL", _MY_ID, _SM_STAT),
    ProcedureShape("SIMU_CRASH"),
    ProcedureShape("NOTIFY", struct("stat_chge", mon_name=_SM_NAME, state=INT32)),
)
