"""Conversations that break nothing."""

from __future__ import annotations

from .. import nfs3, nfs4
from ..rpc import Call, Reply, opaque, u32
from ..rpcrdma import MSG, announce, call, error, fetch, header, optional, reply, respond, update, wish
from ..shapes import DATA, read, write
from ..wire import Connection, Wire
from .characteristics import BRS, RBSIZ, REQREMINV
from .scripts import (
    CLIENT,
    SERVER,
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
    """Everything that the rules of version 1 judge, done right."""
    converse(opened(wire, client_private=R, server_private=R))
    older = wire.connect()
    second_version(older)
    refuse(older, 7, 1, 2)
    hello(older)
    plain = opened(wire, client_private=b"", server_private=b"")
    write(plain, DATA[:500])


def proper_second(wire: Wire) -> None:
    """The same in version 2, and what that has beyond."""
    wire.version = 2
    connection = wire.connect()
    announce(connection, CLIENT, (RBSIZ, 8192), (REQREMINV, 1), (BRS, 1), (9, 1))
    announce(connection, SERVER, (RBSIZ, 16384), (REQREMINV, 0), nochange=(1,))
    converse(connection)
    wish(connection, CLIENT, (RBSIZ, 32768), (REQREMINV, 1), (9, 2))
    respond(connection, SERVER, done=[0], rejected=[1, 2])
    wish(connection, CLIENT, (RBSIZ, 4096), xid=12)
    hello(connection)
    respond(connection, SERVER, pending=[0], xid=12)
    update(connection, SERVER, RBSIZ, 16384, xid=13)
    update(connection, SERVER, RBSIZ, 4096, clear=True, xid=14)
    wish(connection, SERVER, (RBSIZ, 16384), xid=12)
    respond(connection, CLIENT, done=[0], xid=12)
    update(connection, CLIENT, RBSIZ, 32768, xid=15)
    connection.send(CLIENT, optional(16, 77, b"what"))
    refuse(connection, 16, 3)
    hello(connection)
    general = wire.connect()
    announce(general, CLIENT, (BRS, 2))
    announce(general, SERVER, (RBSIZ, 4096))
    reply(call(general, create_session()), session_created())
    recalled(callback(general))
    rpc = callback(general, reply_chunk=general.register(4096))
    reply(rpc, nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done()), long=True)
    bare = opened(wire)
    write(bare, DATA[:500])
    reply(call(bare, create_session()), session_created())
    recalled(callback(bare))
    wire.version = 1
    older = wire.connect()
    second_version(older)
    refuse(older, 7, 1, 2)
    hello(older)


def converse(connection: Connection) -> None:
    """Calls of all shapes, forward and backward."""
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
