"""Transport headers."""

from __future__ import annotations

from .. import nfs3
from ..rpc import u32
from ..rpcrdma import MSG, NOMSG, call, header
from ..wire import Wire
from .scripts import (
    CLIENT,
    Broken,
    breaks,
    by_client,
    by_server,
    listing,
    long_reply,
    message,
    opened,
    refuse,
    returned,
    unreadable,
)


@breaks("V1-VERSION")
def version(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = connection.send(CLIENT, header(7, MSG, version=0x01000000) + message(nfs3.null(), 7))
    refuse(connection, 7, 1, 0x01000000)
    return by_client(wire, sent)


@breaks("V1-PROC-MSGP")
def proc_msgp(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = connection.send(CLIENT, u32(7, 1, 32, 2, 4, 1024, 0, 0, 0) + message(nfs3.null(), 7))
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-PROC-DONE")
def proc_done(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = connection.send(CLIENT, u32(7, 1, 32, 3))
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-PROC-UNKNOWN")
def proc_unknown(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = connection.send(CLIENT, u32(7, 1, 32, 9, 0, 0, 0) + message(nfs3.null(), 7))
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-HEADER-XDR")
def header_xdr(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = unreadable(connection)
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-XID-MATCH")
def xid_match(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    return by_server(wire, returned(rpc, nfs3.getattr_reply(), xid=rpc.true.xid ^ 1))


@breaks("V1-MSG-PAYLOAD")
def msg_payload(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = connection.send(CLIENT, header(7, MSG, version=connection.version))
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-NOMSG-PAYLOAD")
def nomsg_payload(wire: Wire) -> Broken:
    return by_server(wire, long_reply(listing(opened(wire)), tail=bytes(16)))


@breaks("V1-NOMSG-CHUNK")
def nomsg_chunk(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = connection.send(CLIENT, header(7, NOMSG, version=connection.version))
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-ERROR-PAYLOAD")
def error_payload(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    return by_server(wire, refuse(rpc.connection, rpc.true.xid, more=u32(0, 0, 0)))
