"""The backward direction."""

from __future__ import annotations

from .. import nfs4
from ..nfs4 import Op
from ..rpc import opaque, u32
from ..rpcrdma import NOMSG, call, header
from ..wire import Wire
from .scripts import (
    CLIENT,
    SERVER,
    Broken,
    announced,
    breaks,
    by_server,
    callback,
    opened,
    recalled,
    refuse,
    returned,
)


@breaks("V1-BACKWARD-PROC")
def backward_proc(wire: Wire) -> Broken:
    connection = announced(wire)
    sent = connection.send(SERVER, header(7, NOMSG, version=connection.version, reads=[(0, connection.register(200))]))
    refuse(connection, 7, sender=CLIENT)
    return by_server(wire, sent)


@breaks("V1-BACKWARD-CHUNKS")
def backward_chunks(wire: Wire) -> Broken:
    connection = announced(wire)
    rpc = callback(connection, reply_chunk=connection.register(4096))
    returned(rpc, nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done()))
    return by_server(wire, rpc.true.call_operation)


@breaks("V1-BACKWARD-CREDIT-ZERO")
def backward_credit_zero(wire: Wire) -> Broken:
    rpc = callback(announced(wire), credits=0)
    recalled(rpc)
    return by_server(wire, rpc.true.call_operation)


@breaks("V1-BACKWARD-CREDIT-EXCEEDED")
def backward_credit_exceeded(wire: Wire) -> Broken:
    connection = announced(wire)
    recalled(callback(connection), credits=1)
    calls = [callback(connection) for _ in range(2)]
    for rpc in calls:
        recalled(rpc, credits=1)
    return by_server(wire, calls[1].true.call_operation)


@breaks("V1-BACKWARD-CREDIT-FIRST")
def backward_credit_first(wire: Wire) -> Broken:
    connection = announced(wire)
    calls = [callback(connection) for _ in range(2)]
    for rpc in calls:
        recalled(rpc)
    return by_server(wire, calls[1].true.call_operation)


@breaks("V1-BACKWARD-SIZE")
def backward_size(wire: Wire) -> Broken:
    connection = announced(wire)
    recall = nfs4.callback(nfs4.cb_sequence(), Op(4, (nfs4.STATEID + u32(0) + opaque(bytes(5000)),)))
    rpc = call(connection, recall, backward=True)
    recalled(rpc)
    return by_server(wire, rpc.true.call_operation)


@breaks("V1-BACKWARD-UNANNOUNCED")
def backward_unannounced(wire: Wire) -> Broken:
    rpc = callback(opened(wire))
    recalled(rpc)
    return by_server(wire, rpc.true.call_operation)
