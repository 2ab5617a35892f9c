"""Credits, XIDs and inline thresholds."""

from __future__ import annotations

from .. import cm, nfs3
from ..rpcrdma import call, reply
from ..wire import Wire
from .scripts import (
    Broken,
    big_call,
    breaks,
    by_client,
    by_server,
    listing,
    opened,
    two_at_first,
)


@breaks("V1-CREDIT-ZERO")
def credit_zero(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    reply(rpc, nfs3.getattr_reply(), credits=0)
    return by_server(wire, rpc.true.reply_operation)


@breaks("V1-CREDIT-EXCEEDED")
def credit_exceeded(wire: Wire) -> Broken:
    connection = opened(wire, credits=2)
    calls = [call(connection, nfs3.getattr_()) for _ in range(3)]
    for rpc in calls:
        reply(rpc, nfs3.getattr_reply(), credits=2)
    return by_client(wire, calls[2].true.call_operation)


@breaks("V1-CREDIT-FIRST")
def credit_first(wire: Wire) -> Broken:
    return two_at_first(wire)


@breaks("V1-XID-REUSED")
def xid_reused(wire: Wire) -> Broken:
    connection = opened(wire)
    calls = [call(connection, nfs3.getattr_(), xid=77) for _ in range(2)]
    for rpc in calls:
        reply(rpc, nfs3.getattr_reply())
    return by_client(wire, calls[1].true.call_operation)


@breaks("V1-INLINE-EXCEEDED")
def inline_exceeded(wire: Wire) -> Broken:
    connection = opened(wire, client_private=cm.private_data(8192, 8192), server_private=cm.private_data(4096, 4096))
    return by_client(wire, big_call(connection, 5000).true.call_operation)


@breaks("PD-INLINE")
def private_inline(wire: Wire) -> Broken:
    connection = opened(wire, client_private=cm.private_data(2048, 2048))
    return by_client(wire, big_call(connection, 3000).true.call_operation)


@breaks("V1-FIRST-1024")
def first_1024(wire: Wire) -> Broken:
    connection = opened(wire, client_private=b"", server_private=b"")
    return by_client(wire, big_call(connection, 1100).true.call_operation)


@breaks("V1-REPLY-USES-REPLY-CHUNK")
def reply_uses_reply_chunk(wire: Wire) -> Broken:
    rpc = listing(opened(wire))
    reply(rpc, nfs3.readdirplus_reply([b"x" * 200] * 30), long=False)
    return by_server(wire, rpc.true.reply_operation)
