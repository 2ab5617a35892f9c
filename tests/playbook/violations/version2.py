"""Version 2: header, options, negotiation."""

from __future__ import annotations

from .. import nfs3
from ..rpc import u32
from ..rpcrdma import CALL as ASK, MSG, NOMSG, REPLY, call, header, optional, reply, wish, xcharsubset
from ..wire import Connection, Wire
from .scripts import (
    CLIENT,
    SERVER,
    Broken,
    answer,
    big_call,
    breaks,
    by_client,
    by_server,
    hello,
    message,
    opened,
    refuse,
    second_version,
    two_at_first,
)


def second(wire: Wire) -> Connection:
    """A connection on which version 2 is settled."""
    wire.version = 2
    return opened(wire)


@breaks("V2-PROC")
def procedure(wire: Wire) -> Broken:
    connection = second(wire)
    sent = connection.send(CLIENT, u32(7, 2, 32, 3))
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V2-DIRECTION")
def direction(wire: Wire) -> Broken:
    connection = second(wire)
    connection.send(CLIENT, header(7, MSG, version=2) + message(nfs3.null(), 7))
    return by_server(
        wire, connection.send(SERVER, header(7, MSG, version=2, direction=ASK) + answer(nfs3.null_reply(), 7))
    )


@breaks("V2-OPTIONAL-DIRECTION")
def optional_direction(wire: Wire) -> Broken:
    connection = second(wire)
    sent = connection.send(CLIENT, optional(7, 77, b"", direction=REPLY))
    refuse(connection, 7, 3)
    return by_client(wire, sent)


@breaks("V2-MSG-PAYLOAD")
def msg_payload(wire: Wire) -> Broken:
    connection = second(wire)
    sent = connection.send(CLIENT, header(7, MSG, version=2))
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V2-ERROR-PAYLOAD")
def error_payload(wire: Wire) -> Broken:
    rpc = call(second(wire), nfs3.getattr_())
    return by_server(wire, refuse(rpc.connection, rpc.true.xid, more=u32(0, 0, 0)))


@breaks("V2-ERROR-CODE")
def error_code(wire: Wire) -> Broken:
    rpc = call(second(wire), nfs3.getattr_())
    return by_server(wire, refuse(rpc.connection, rpc.true.xid, 7))


@breaks("V2-INVAL-OPTION")
def inval_option(wire: Wire) -> Broken:
    connection = second(wire)
    connection.send(CLIENT, optional(7, 77, b"what"))
    return by_server(wire, refuse(connection, 7, 2))


@breaks("V2-FIRST-MESSAGE")
def first_message(wire: Wire) -> Broken:
    wire.version = 2
    return two_at_first(wire)


@breaks("V2-FALLBACK")
def fallback(wire: Wire) -> Broken:
    connection = wire.connect()
    second_version(connection)
    refuse(connection, 7, 1, 2)
    sent = second_version(connection, 8)
    refuse(connection, 8, 1, 2)
    return by_client(wire, sent)


@breaks("V2-REPLY-VERSION")
def reply_version(wire: Wire) -> Broken:
    connection = second(wire)
    connection.send(CLIENT, header(7, MSG, version=2) + message(nfs3.null(), 7))
    return by_server(wire, connection.send(SERVER, header(7, MSG, version=1) + answer(nfs3.null_reply(), 7)))


@breaks("V2-INLINE-4096")
def inline_4096(wire: Wire) -> Broken:
    return by_client(wire, big_call(second(wire), 5000).true.call_operation)


def first_of_version_1(wire: Wire) -> Broken:
    """Version 1 at first, then version 2."""
    connection = opened(wire)
    connection.version = 2
    rpc = call(connection, nfs3.null())
    reply(rpc, nfs3.null_reply())
    return by_client(wire, rpc.true.call_operation)


def long_first(wire: Wire) -> Broken:
    """A first message that a version 1 server has no buffer for."""
    wire.version = 2
    return by_client(wire, big_call(wire.connect(), 1100).true.call_operation)


def other_version(wire: Wire) -> Broken:
    """A version outside the range that a refusal reported."""
    connection = wire.connect()
    second_version(connection)
    refuse(connection, 7, 1, 2)
    connection.version = 3
    sent = connection.send(CLIENT, header(8, MSG, version=3) + message(nfs3.null(), 8))
    refuse(connection, 8, 1, 3)
    connection.version = 1
    return by_client(wire, sent, "V1-VERSION")


def looped(wire: Wire) -> Broken:
    """Version 2 asked for again on the next connection, where it was refused and the first one lost."""
    first = wire.connect()
    second_version(first)
    refuse(first, 7, 1, 2)
    first.disconnect()
    connection = wire.connect()
    sent = second_version(connection)
    refuse(connection, 7, 1, 2)
    hello(connection)
    first.send = connection.send  # type: ignore[method-assign]  # what comes next is on the second one
    return by_client(wire, sent)


def ignored_option(wire: Wire) -> Broken:
    """An option that was refused once, and passed over the next time."""
    connection = second(wire)
    connection.send(CLIENT, optional(7, 77, b""))
    refuse(connection, 7, 3)
    sent = connection.send(CLIENT, optional(8, 77, b""))
    hello(connection)
    return by_server(wire, sent)


def unknown_option_ignored(wire: Wire) -> Broken:
    """An option that neither document defines, passed over: a note."""
    connection = second(wire)
    sent = connection.send(CLIENT, optional(7, 77, b""))
    hello(connection)
    return by_server(wire, sent)


def response_as_call(wire: Wire) -> Broken:
    """ROPT_RESPXCH as a CALL."""
    connection = second(wire)
    wish(connection, CLIENT, (1, 8192))
    done = xcharsubset(0) + xcharsubset() + xcharsubset()
    return by_server(wire, connection.send(SERVER, optional(2, 3, done, direction=ASK)))


def wrong_direction_of_payload(wire: Wire) -> Broken:
    """An option as a REPLY, and a call behind it."""
    connection = second(wire)
    sent = connection.send(CLIENT, optional(7, 77, b"", direction=REPLY) + message(nfs3.null(), 7))
    connection.send(SERVER, header(7, MSG, version=2, direction=REPLY) + answer(nfs3.null_reply(), 7))
    return by_client(wire, sent)


def long_message_the_wrong_way(wire: Wire) -> Broken:
    """An RDMA2_NOMSG as a REPLY, and a call in its Read chunk."""
    connection = second(wire)
    text = message(nfs3.null(), 7)
    chunk = connection.register(len(text))
    sent = connection.send(CLIENT, header(7, NOMSG, version=2, direction=REPLY, reads=[(0, chunk)]))
    pending = connection.read_request(SERVER, chunk[0].handle, chunk[0].offset, text)
    connection.read_responses(pending)
    connection.send(SERVER, header(7, MSG, version=2, direction=REPLY) + answer(nfs3.null_reply(), 7))
    return by_client(wire, sent)
