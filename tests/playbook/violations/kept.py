"""Conversations that break nothing."""

from __future__ import annotations

from .. import nfs3
from ..rpc import Call, Reply, opaque, u32
from ..rpcrdma import MSG, call, error, fetch, header, reply
from ..shapes import DATA, read, write
from ..wire import Wire
from .scripts import (
    CLIENT,
    R,
    callback,
    create_session,
    hello,
    listing,
    message,
    opened,
    reading,
    recalled,
    refuse,
    sealed_call,
    second_version,
    session_created,
)


def proper(wire: Wire) -> None:
    """Everything that the rules judge, done right."""
    connection = opened(wire, client_private=R, server_private=R)
    read(connection)
    write(connection)
    write(connection, DATA[:5])
    rpc = reading(connection, 4096, 4096)
    reply(rpc, nfs3.read_reply(DATA[:5], eof=True), invalidate=rpc.writes[0][0].handle)
    rpc = reading(connection, 4096)
    reply(rpc, nfs3.read_failed())
    rpc = reading(connection, 6)
    reply(rpc, nfs3.read_reply(DATA[:6]))
    for long in (True, False):
        rpc = listing(connection)
        reply(rpc, nfs3.readdirplus_reply([b"name"]), long=long)
    rpc = call(connection, nfs3.getattr_(), position_zero=connection.register(len(message(nfs3.getattr_(), 0))))
    fetch(rpc)
    reply(rpc, nfs3.getattr_reply())
    rpc = call(connection, nfs3.getattr_())
    error(rpc)
    rpc = call(connection, Call(nfs3.PROGRAM, 3, 7, (opaque(nfs3.FH),)))
    reply(rpc, Reply(accept=4))
    rpc = call(connection, create_session())
    reply(rpc, session_created())
    for _ in range(2):
        recalled(callback(connection))
    version = connection.version
    connection.send(
        CLIENT, header(8, MSG, version=version) + sealed_call(8, 0, 2, u32(40, 1) + opaque(nfs3.FH) + bytes(40))
    )
    refuse(connection, 8)
    connection.send(CLIENT, header(9, MSG, version=version) + sealed_call(9, 1, 1, opaque(b"token")))
    refuse(connection, 9)
    older = wire.connect()
    second_version(older)
    refuse(older, 7, 1, 2)
    hello(older)
    plain = opened(wire, client_private=b"", server_private=b"")
    write(plain, DATA[:500])
