"""RDMA_ERROR."""

from __future__ import annotations

from .. import nfs3
from ..rpc import Call, opaque, u32
from ..rpcrdma import call, reply
from ..wire import Wire
from .scripts import (
    CLIENT,
    Broken,
    breaks,
    by_client,
    by_server,
    hello,
    opened,
    refuse,
    returned,
    second_version,
    unreadable,
)


@breaks("V1-ERROR-XID")
def error_xid(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    return by_server(wire, refuse(rpc.connection, rpc.true.xid ^ 0xFF))


@breaks("V1-ERROR-VERSION")
def error_version(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    return by_server(wire, refuse(rpc.connection, rpc.true.xid, version=2))


@breaks("V1-ERROR-CODE")
def error_code(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    return by_server(wire, refuse(rpc.connection, rpc.true.xid, 7))


@breaks("V1-ERROR-RANGE")
def error_range(wire: Wire) -> Broken:
    connection = wire.connect()
    second_version(connection)
    return by_server(wire, refuse(connection, 7, 1, 2, versions=(1, 2)))


@breaks("V1-ERROR-FOR-VERSION")
def error_for_version(wire: Wire) -> Broken:
    connection = wire.connect()
    second_version(connection)
    return by_server(wire, refuse(connection, 7, 2, 2))


@breaks("V1-ERROR-FOR-HEADER")
def error_for_header(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = unreadable(connection)
    hello(connection)
    return by_server(wire, sent, "V1-HEADER-XDR")


@breaks("V1-ERROR-FOR-RESERVED")
def error_for_reserved(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = connection.send(CLIENT, u32(7, 1, 32, 3))
    hello(connection)
    return by_server(wire, sent, "V1-PROC-DONE")


@breaks("V1-ERROR-RETRY")
def error_retry(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    refuse(rpc.connection, rpc.true.xid)
    return by_server(wire, returned(rpc, nfs3.getattr_reply()))


@breaks("V1-GARBAGE-ARGS")
def garbage_args(wire: Wire) -> Broken:
    rpc = call(opened(wire), Call(nfs3.PROGRAM, 3, 7, (opaque(nfs3.FH),)))
    reply(rpc, nfs3.write_reply(0))
    return by_server(wire, rpc.true.reply_operation)


@breaks("V1-ERROR-OF-ERROR")
def error_of_error(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    refuse(rpc.connection, rpc.true.xid, 7)
    code = "V2-ERROR-CODE" if rpc.connection.version == 2 else "V1-ERROR-CODE"
    return by_client(wire, refuse(rpc.connection, rpc.true.xid, sender=CLIENT), code)
