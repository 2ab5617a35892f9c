"""RPCSEC_GSS, upper-layer bindings and private data."""

from __future__ import annotations

from .. import cm, nfs3
from ..rpc import Call, Reply, opaque, u32
from ..rpcrdma import MSG, REPLY, call, header, reply
from ..shapes import DATA
from ..wire import Wire
from .scripts import (
    CLIENT,
    REP,
    REQ,
    SERVER,
    Broken,
    R,
    answer,
    asked,
    breaks,
    by_client,
    by_server,
    message,
    opened,
    reading,
    refuse,
    sealed_call,
)


@breaks("V1-GSS-NO-REDUCTION")
def gss_no_reduction(wire: Wire) -> Broken:
    connection = opened(wire)
    text = sealed_call(7, 0, 2, u32(200, 1) + opaque(nfs3.FH) + bytes(64))
    reads = [(len(text) - 16, connection.register(4096))]
    sent = connection.send(CLIENT, header(7, MSG, version=connection.version, reads=reads) + text)
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-GSS-MATERIAL")
def gss_material(wire: Wire) -> Broken:
    connection = opened(wire)
    text = sealed_call(7, 1, 2, u32(4096))
    reads = [(len(text), connection.register(4096))]
    sent = connection.send(CLIENT, header(7, MSG, version=connection.version, reads=reads) + text)
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-NO-BINDING")
def no_binding(wire: Wire) -> Broken:
    rpc = call(opened(wire), Call(200001, 1, 0))
    reply(rpc, Reply(accept=1))
    return by_client(wire, rpc.true.call_operation)


@breaks("V1-REPLY-NO-BINDING")
def reply_no_binding(wire: Wire) -> Broken:
    connection = opened(wire)
    asked(connection, nfs3.write(0, DATA[:64]), 7, [(100, connection.register(32))], out=False)
    version = connection.version
    sent = connection.send(SERVER, header(7, MSG, version=version, direction=REPLY) + answer(nfs3.write_reply(64), 7))
    return by_server(wire, sent, "V1-DDP-ELIGIBLE")


def unknown_program_served(wire: Wire) -> Broken:
    """V1-REPLY-NO-BINDING: SUCCESS for a program without a binding, which is a note."""
    rpc = call(opened(wire), Call(200001, 1, 0))
    reply(rpc, Reply())
    return by_server(wire, rpc.true.reply_operation, "V1-NO-BINDING")


@breaks("PD-VERSION")
def private_version(wire: Wire) -> Broken:
    opened(wire, client_private=u32(0xF6AB0E18) + bytes((2, 0, 3, 3)))
    return Broken(CLIENT, REQ)


@breaks("PD-RESERVED")
def private_reserved(wire: Wire) -> Broken:
    opened(wire, server_private=u32(0xF6AB0E18) + bytes((1, 0x80, 3, 3)))
    return Broken(SERVER, REP)


@breaks("PD-LENGTH")
def private_length(wire: Wire) -> Broken:
    opened(wire, client_private=bytes(52) + u32(0xF6AB0E18))
    return Broken(CLIENT, REQ)


@breaks("PD-AMBIGUOUS")
def private_ambiguous(wire: Wire) -> Broken:
    opened(wire, client_private=2 * cm.private_data())
    return Broken(CLIENT, REQ)


@breaks("PD-INVALIDATE-AGREED")
def invalidate_agreed(wire: Wire) -> Broken:
    rpc = reading(opened(wire, client_private=cm.private_data(invalidate=True)), 4096)
    reply(rpc, nfs3.read_reply(DATA[:4096]), invalidate=rpc.writes[0][0].handle)
    return by_server(wire, rpc.true.reply_operation)


@breaks("PD-INVALIDATE-STAG")
def invalidate_stag(wire: Wire) -> Broken:
    rpc = reading(opened(wire, client_private=R, server_private=R), 4096)
    reply(rpc, nfs3.read_reply(DATA[:4096]), invalidate=rpc.writes[0][0].handle + 1)
    return by_server(wire, rpc.true.reply_operation)


@breaks("PD-INVALIDATE-ROLE")
def invalidate_role(wire: Wire) -> Broken:
    connection = opened(wire, client_private=R, server_private=R)
    version = connection.version
    sent = connection.send(CLIENT, header(7, MSG, version=version) + message(nfs3.null(), 7), invalidate=0x4242)
    connection.send(SERVER, header(7, MSG, version=version, direction=REPLY) + answer(nfs3.null_reply(), 7))
    return by_client(wire, sent)
