"""The port mapper, version 2, and rpcbind, versions 3 and 4 (RFC 1833)."""

from __future__ import annotations

from ..programs import PROGRAM_NAMES
from .language import declared
from .types import XdrInteger

# 2.1: nc_tpi_*
_SEMANTICS = {1: "NC_TPI_CLTS", 2: "NC_TPI_COTS", 3: "NC_TPI_COTS_ORD", 4: "NC_TPI_RAW"}

TYPES = declared(
    """
struct truth { bool result; };
struct uaddr { address uaddr<>; };
/* 3.1 */
enum protocol { IPPROTO_TCP = 6, IPPROTO_UDP = 17 };
struct mapping { program prog; uint32_t vers; protocol prot; uint32_t port; };
struct port { uint32_t port; };
struct pmaplist { linked mapping map; };
struct call_args { program prog; uint32_t vers; uint32_t proc; opaque args<>; };
struct call_result { uint32_t port; opaque res<>; };
program PORTMAP2 {
    void NULL(void) = 0;
    truth SET(mapping) = 1;
    truth UNSET(mapping) = 2;
    port GETPORT(mapping) = 3;
    pmaplist DUMP(void) = 4;
    call_result CALLIT(call_args) = 5;
};
/* 2.1 */
struct rpcb { program r_prog; uint32_t r_vers; string r_netid<>; address r_addr<>; string r_owner<>; };
struct netbuf { uint32_t maxlen; opaque buf<>; };
struct rpcb_rmtcallargs { program prog; uint32_t vers; uint32_t proc; opaque args<>; };
struct rpcb_rmtcallres { address addr<>; opaque results<>; };
struct rpcblist { linked rpcb rpcb_map; };
struct time { seconds time; };
program RPCBIND3 {
    void NULL(void) = 0;
    truth SET(rpcb) = 1;
    truth UNSET(rpcb) = 2;
    uaddr GETADDR(rpcb) = 3;
    rpcblist DUMP(void) = 4;
    rpcb_rmtcallres CALLIT(rpcb_rmtcallargs) = 5;
    time GETTIME(void) = 6;
    netbuf UADDR2TADDR(uaddr) = 7;
    uaddr TADDR2UADDR(netbuf) = 8;
};
struct rpcb_entry {
    address r_maddr<>; string r_nc_netid<>; semantics r_nc_semantics; string r_nc_protofmly<>; string r_nc_proto<>;
};
struct rpcbs_addrlist { program prog; uint32_t vers; int32_t success; int32_t failure; string netid<>; };
struct rpcbs_rmtcalllist {
    program prog; uint32_t vers; uint32_t proc; int32_t success; int32_t failure; int32_t indirect;
    string netid<>;
};
struct rpcb_stat {
    int32_t info[13]; int32_t setinfo; int32_t unsetinfo; linked rpcbs_addrlist addrinfo;
    linked rpcbs_rmtcalllist rmtinfo;
};
struct rpcb_stat_byvers { rpcb_stat stats[3]; };
struct rpcb_entry_list { linked rpcb_entry rpcb_entry_map; };
program RPCBIND4 {
    void NULL(void) = 0;
    truth SET(rpcb) = 1;
    truth UNSET(rpcb) = 2;
    uaddr GETADDR(rpcb) = 3;
    rpcblist DUMP(void) = 4;
    rpcb_rmtcallres BCAST(rpcb_rmtcallargs) = 5;
    time GETTIME(void) = 6;
    netbuf UADDR2TADDR(uaddr) = 7;
    uaddr TADDR2UADDR(netbuf) = 8;
    uaddr GETVERSADDR(rpcb) = 9;
    rpcb_rmtcallres INDIRECT(rpcb_rmtcallargs) = 10;
    rpcb_entry_list GETADDRLIST(rpcb) = 11;
    rpcb_stat_byvers GETSTAT(void) = 12;
};
    """,
    program=XdrInteger("uint32_t", meanings=PROGRAM_NAMES),
    seconds=XdrInteger("uint32_t", unit="seconds since 1970"),
    semantics=XdrInteger("uint32_t", meanings=_SEMANTICS),
)
