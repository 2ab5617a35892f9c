"""Transport characteristics of version 2."""

from __future__ import annotations

from .. import nfs3, nfs4
from ..nfs4 import Op
from ..rpc import opaque, u32
from ..rpcrdma import NOMSG, announce, call, header, optional, refuse_option, reply, respond, update, wish, xcharspec
from ..shapes import DATA
from ..wire import Connection, Wire
from .scripts import (
    CLIENT,
    SERVER,
    Broken,
    announced,
    big_call,
    breaks,
    by_client,
    by_server,
    callback,
    create_session,
    hello,
    listing,
    message,
    reading,
    recalled,
    refuse,
    returned,
    session_created,
)

RBSIZ, REQREMINV, BRS = 1, 2, 3
NONE, INLINE, GENERAL = range(3)
EXPERIMENT = 4294967040


def reported(wire: Wire, client: tuple[tuple[int, int], ...] = (), server: tuple[tuple[int, int], ...] = (),
         *, nochange: tuple[int, ...] = ()) -> Connection:  # fmt: skip
    """A connection on which both ends began with ROPT_INITXCH; ``nochange`` is the server's."""
    wire.version = 2
    connection = wire.connect()
    announce(connection, CLIENT, *client)
    announce(connection, SERVER, *server, nochange=nochange)
    hello(connection)
    return connection


@breaks("XC-BOUNDS")
def bounds(wire: Wire) -> Broken:
    wire.version = 2
    connection = wire.connect()
    sent = connection.send(CLIENT, optional(1, 1, u32(1, RBSIZ, 900, 8192, 0)))
    refuse(connection, 1)
    return by_client(wire, sent)


@breaks("XC-TYPE")
def type_(wire: Wire) -> Broken:
    wire.version = 2
    connection = wire.connect()
    sent = announce(connection, CLIENT, (REQREMINV, 7))
    refuse(connection, 1)
    return by_client(wire, sent)


@breaks("XC-UNKNOWN")
def unknown(wire: Wire) -> Broken:
    wire.version = 2
    connection = wire.connect()
    announce(connection, CLIENT, (9, 1))
    return by_server(wire, refuse(connection, 1))


@breaks("XC-PAYLOAD")
def payload(wire: Wire) -> Broken:
    wire.version = 2
    connection = wire.connect()
    info = xcharspec((RBSIZ, 4096)) + u32(0)
    sent = connection.send(CLIENT, optional(1, 1, info) + message(nfs3.null(), 1))
    announce(connection, SERVER, (RBSIZ, 4096))
    return by_client(wire, sent)


@breaks("XC-INIT-SIZE")
def init_size(wire: Wire) -> Broken:
    wire.version = 2
    connection = wire.connect()
    sent = connection.send(CLIENT, optional(1, 1, xcharspec((RBSIZ, 8192)) + u32(300) + bytes(4 * 300)))
    announce(connection, SERVER, (RBSIZ, 4096))
    return by_client(wire, sent)


@breaks("XC-INIT-FIRST")
def init_first(wire: Wire) -> Broken:
    wire.version = 2
    connection = wire.connect()
    hello(connection)
    return by_client(wire, announce(connection, CLIENT, (RBSIZ, 8192)))


@breaks("XC-NOCHANGE")
def no_change(wire: Wire) -> Broken:
    connection = reported(wire, server=((RBSIZ, 8192),), nochange=(0,))
    return by_server(wire, update(connection, SERVER, RBSIZ, 16384))


@breaks("XC-RESPONSE-XID")
def response_xid(wire: Wire) -> Broken:
    connection = reported(wire)
    wish(connection, CLIENT, (RBSIZ, 8192), xid=0x77)
    return by_server(wire, respond(connection, SERVER, done=[0], xid=0x78))


@breaks("XC-RESPONSE-SETS")
def response_sets(wire: Wire) -> Broken:
    connection = reported(wire)
    wish(connection, CLIENT, (RBSIZ, 8192), (REQREMINV, 1))
    return by_server(wire, respond(connection, SERVER, done=[0], rejected=[0, 1]))


@breaks("XC-RESPONSE-MISSING")
def response_missing(wire: Wire) -> Broken:
    connection = reported(wire)
    sent = wish(connection, CLIENT, (RBSIZ, 8192))
    hello(connection)
    return by_server(wire, sent)


@breaks("XC-SUPPORT")
def support(wire: Wire) -> Broken:
    connection = reported(wire)
    wish(connection, CLIENT, (RBSIZ, 8192))
    respond(connection, SERVER, done=[0])
    return by_client(wire, refuse_option(connection, CLIENT, 2))


@breaks("XC-UPDATE-PENDING")
def update_pending(wire: Wire) -> Broken:
    connection = reported(wire)
    return by_server(wire, update(connection, SERVER, RBSIZ, 8192, clear=True))


@breaks("XC-RBSIZ")
def receive_buffer(wire: Wire) -> Broken:
    return by_client(wire, big_call(reported(wire, server=((RBSIZ, 8192),)), 9000).true.call_operation)


@breaks("XC-RBSIZ-SHRINK")
def receive_buffer_shrink(wire: Wire) -> Broken:
    connection = reported(wire, server=((RBSIZ, 16384),))
    return by_server(wire, update(connection, SERVER, RBSIZ, 8192))


@breaks("XC-RBSIZ-REQUESTED")
def receive_buffer_requested(wire: Wire) -> Broken:
    connection = reported(wire, server=((RBSIZ, 16384),))
    wish(connection, CLIENT, (RBSIZ, 8192))
    sent = big_call(connection, 9000).true.call_operation
    respond(connection, SERVER, done=[0])
    return by_client(wire, sent)


@breaks("XC-REQREMINV")
def remote_invalidation(wire: Wire) -> Broken:
    rpc = reading(reported(wire), 4096)
    reply(rpc, nfs3.read_reply(DATA[:4096]), invalidate=rpc.writes[0][0].handle)
    return by_server(wire, rpc.true.reply_operation)


@breaks("XC-BRS")
def backward_support(wire: Wire) -> Broken:
    wire.version = 2
    rpc = callback(announced(wire), reply_chunk=wire.connections[0].register(4096))
    reply(rpc, nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done()), long=False)
    return by_server(wire, rpc.true.call_operation)


@breaks("XC-EXPERIMENTAL")
def experimental(wire: Wire) -> Broken:
    wire.version = 2
    connection = wire.connect()
    sent = announce(connection, CLIENT, (EXPERIMENT, 1))
    announce(connection, SERVER, (RBSIZ, 4096))
    return by_client(wire, sent)


@breaks("V2-RECEIVE-4096")
def receive_4096(wire: Wire) -> Broken:
    wire.version = 2
    connection = wire.connect()
    sent = announce(connection, CLIENT, (RBSIZ, 2048))
    announce(connection, SERVER, (RBSIZ, 4096))
    return by_client(wire, sent)


@breaks("V2-BACKWARD-REQUIRED")
def backward_required(wire: Wire) -> Broken:
    wire.version = 2
    connection = wire.connect()
    sent = announce(connection, CLIENT, (BRS, NONE))
    announce(connection, SERVER, (RBSIZ, 4096))
    return by_client(wire, sent)


# Other ways to break them


def callback_to_nobody(wire: Wire) -> Broken:
    """BKREQSUP_NONE, and a backward call."""
    connection = reported(wire, client=((BRS, NONE),))
    reply(call(connection, create_session()), session_created())
    rpc = callback(connection)
    recalled(rpc)
    return by_server(wire, rpc.true.call_operation, "V2-BACKWARD-REQUIRED")


def long_callback(wire: Wire) -> Broken:
    """BKREQSUP_INLINE, and a backward RDMA2_NOMSG."""
    wire.version = 2
    connection = announced(wire)
    sent = connection.send(SERVER, header(7, NOMSG, version=2, reads=[(0, connection.register(200))]))
    refuse(connection, 7, sender=CLIENT)
    return by_server(wire, sent)


def changed_on_request(wire: Wire) -> Broken:
    """What optixch_nochg names is changed for a ROPT_REQXCH."""
    connection = reported(wire, server=((RBSIZ, 8192),), nochange=(0,))
    wish(connection, CLIENT, (RBSIZ, 16384))
    return by_server(wire, respond(connection, SERVER, done=[0]))


def forgotten_wish(wire: Wire) -> Broken:
    """A ROPT_RESPXCH that says nothing of the second wish."""
    connection = reported(wire)
    wish(connection, CLIENT, (RBSIZ, 8192), (REQREMINV, 1))
    return by_server(wire, respond(connection, SERVER, done=[0]))


def invented_wish(wire: Wire) -> Broken:
    """A ROPT_RESPXCH about a second wish that there was not."""
    connection = reported(wire)
    wish(connection, CLIENT, (RBSIZ, 8192))
    return by_server(wire, respond(connection, SERVER, done=[0], rejected=[1]))


def init_refused_by_who_asks(wire: Wire) -> Broken:
    """The server asks for changes, and refuses ROPT_INITXCH."""
    wire.version = 2
    connection = wire.connect()
    announce(connection, CLIENT, (RBSIZ, 8192))
    sent = refuse_option(connection, SERVER, 1)
    hello(connection)
    wish(connection, SERVER, (RBSIZ, 16384))
    respond(connection, CLIENT, rejected=[0])
    return by_server(wire, sent)


def larger_reply(wire: Wire) -> Broken:
    """A reply that does not fit the client's Receive Buffer Size, and a Reply chunk for it."""
    rpc = listing(reported(wire, client=((RBSIZ, 8192),)))
    reply(rpc, nfs3.readdirplus_reply([b"x" * 200] * 40), long=False)
    return by_server(wire, rpc.true.reply_operation)


def larger_callback(wire: Wire) -> Broken:
    """A backward call that does not fit the client's Receive Buffer Size."""
    connection = reported(wire, client=((RBSIZ, 8192),))
    reply(call(connection, create_session()), session_created())
    recall = nfs4.callback(nfs4.cb_sequence(), Op(4, (nfs4.STATEID + u32(0) + opaque(bytes(9000)),)))
    rpc = call(connection, recall, backward=True)
    recalled(rpc)
    return by_server(wire, rpc.true.call_operation)


def forged_reply_to_callback(wire: Wire) -> Broken:
    """BKREQSUP_GENL, a backward call with a Reply chunk, and a reply that returns another handle."""
    connection = reported(wire, client=((BRS, GENERAL),))
    reply(call(connection, create_session()), session_created())
    rpc = callback(connection, reply_chunk=connection.register(4096))
    chunk = rpc.reply_chunk
    assert chunk is not None
    done = nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done())
    return by_client(wire, returned(rpc, done, reply=[chunk[0]._replace(handle=0, length=0)]))


def unreadable_option_ignored(wire: Wire) -> Broken:
    """A ROPT_UPDXCH that cannot be decoded, and silence."""
    connection = reported(wire)
    sent = update(connection, CLIENT, RBSIZ, b"\x20\x00")
    hello(connection)
    return by_server(wire, sent, "XC-TYPE")


def cut_in_half(wire: Wire) -> Broken:
    """Two bytes of a Receive Buffer Size."""
    wire.version = 2
    connection = wire.connect()
    sent = announce(connection, CLIENT, (RBSIZ, b"\x20\x00"))
    refuse(connection, 1)
    return by_client(wire, sent)
