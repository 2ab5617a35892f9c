"""The port mapper, version 2, and rpcbind, versions 3 and 4 (RFC 1833)."""

from __future__ import annotations

from ..rpc_header import PROGRAM_NAMES
from .types import (
    BOOL,
    INT32,
    UINT32,
    ProcedureShape,
    XdrArray,
    XdrInteger,
    XdrOpaque,
    XdrStruct,
    address,
    enum,
    linked,
    string,
    struct,
    table,
)

_STRING = string("string")
_ADDRESS = address("uaddr")
_PROGRAM = XdrInteger("uint32_t", meanings=PROGRAM_NAMES)
_OPAQUE = XdrOpaque("opaque")
_BOOL = struct("bool", result=BOOL)
_UADDR = struct("uaddr", uaddr=_ADDRESS)

# 3.1
_MAPPING = struct(
    "mapping", prog=_PROGRAM, vers=UINT32, prot=enum("protocol", {6: "IPPROTO_TCP", 17: "IPPROTO_UDP"}), port=UINT32
)
PORTMAP2 = table(
    ProcedureShape("NULL"),
    ProcedureShape("SET", _MAPPING, _BOOL),
    ProcedureShape("UNSET", _MAPPING, _BOOL),
    ProcedureShape("GETPORT", _MAPPING, struct("port", port=UINT32)),
    ProcedureShape("DUMP", None, struct("pmaplist", map=linked(_MAPPING))),
    ProcedureShape(
        "CALLIT",
        struct("call_args", prog=_PROGRAM, vers=UINT32, proc=UINT32, args=_OPAQUE),
        struct("call_result", port=UINT32, res=_OPAQUE),
    ),
)

# 2.1
_RPCB = struct("rpcb", r_prog=_PROGRAM, r_vers=UINT32, r_netid=_STRING, r_addr=_ADDRESS, r_owner=_STRING)
_NETBUF = struct("netbuf", maxlen=UINT32, buf=_OPAQUE)
_RMTCALLARGS = struct("rpcb_rmtcallargs", prog=_PROGRAM, vers=UINT32, proc=UINT32, args=_OPAQUE)
_RMTCALLRES = struct("rpcb_rmtcallres", addr=_ADDRESS, results=_OPAQUE)
_COMMON = (
    ProcedureShape("NULL"),
    ProcedureShape("SET", _RPCB, _BOOL),
    ProcedureShape("UNSET", _RPCB, _BOOL),
    ProcedureShape("GETADDR", _RPCB, _UADDR),
    ProcedureShape("DUMP", None, struct("rpcblist", rpcb_map=linked(_RPCB))),
)
_LATER = (
    ProcedureShape("GETTIME", None, struct("time", time=XdrInteger("uint32_t", unit="seconds since 1970"))),
    ProcedureShape("UADDR2TADDR", _UADDR, _NETBUF),
    ProcedureShape("TADDR2UADDR", _NETBUF, _UADDR),
)
RPCBIND3 = table(*_COMMON, ProcedureShape("CALLIT", _RMTCALLARGS, _RMTCALLRES), *_LATER)

# 2.1: nc_tpi_*
_SEMANTICS = {1: "NC_TPI_CLTS", 2: "NC_TPI_COTS", 3: "NC_TPI_COTS_ORD", 4: "NC_TPI_RAW"}
_ENTRY = struct(
    "rpcb_entry",
    r_maddr=_ADDRESS,
    r_nc_netid=_STRING,
    r_nc_semantics=XdrInteger("uint32_t", meanings=_SEMANTICS),
    r_nc_protofmly=_STRING,
    r_nc_proto=_STRING,
)
_ADDRLIST = struct("rpcbs_addrlist", prog=_PROGRAM, vers=UINT32, success=INT32, failure=INT32, netid=_STRING)
_RMTCALLLIST = struct(
    "rpcbs_rmtcalllist",
    prog=_PROGRAM,
    vers=UINT32,
    proc=UINT32,
    success=INT32,
    failure=INT32,
    indirect=INT32,
    netid=_STRING,
)
_STAT = struct(
    "rpcb_stat",
    info=XdrArray("rpcbs_proc", INT32, size=13),
    setinfo=INT32,
    unsetinfo=INT32,
    addrinfo=linked(_ADDRLIST),
    rmtinfo=linked(_RMTCALLLIST),
)
_STAT_BYVERS: XdrStruct = struct("rpcb_stat_byvers", stats=XdrArray("rpcb_stat_byvers", _STAT, size=3))
RPCBIND4 = table(
    *_COMMON,
    ProcedureShape("BCAST", _RMTCALLARGS, _RMTCALLRES),
    *_LATER,
    ProcedureShape("GETVERSADDR", _RPCB, _UADDR),
    ProcedureShape("INDIRECT", _RMTCALLARGS, _RMTCALLRES),
    ProcedureShape("GETADDRLIST", _RPCB, struct("rpcb_entry_list", rpcb_entry_map=linked(_ENTRY))),
    ProcedureShape("GETSTAT", None, _STAT_BYVERS),
)
