"""Variations: the same rules broken at other places, in other messages, by the other end; and what breaks none."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .. import cm, nfs3, nfs4
from ..nfs4 import Op
from ..rpc import Call, Reply, opaque, reduced, reply_parts, u32, u64, whole
from ..rpcrdma import CALL as ASK, MSG, NOMSG, REPLY, Exchange, call, error, header, optional, reply, update
from ..shapes import DATA
from ..wire import Connection, Wire
from .characteristics import RBSIZ, reported
from .scripts import (
    CLIENT,
    SERVER,
    announced,
    answer,
    big_call,
    callback,
    create_session,
    hello,
    listing,
    message,
    opened,
    push,
    reading,
    recalled,
    refuse,
    returned,
    sealed_call,
    session_created,
    sized,
)
from .version2 import second


class Variation(NamedTuple):
    """A conversation, and the rules that it breaks."""

    play: Callable[[Wire], None]
    rules: frozenset[str]
    versions: tuple[int, ...]


VARIATIONS: list[Variation] = []


Script = Callable[[Wire], None]


def breaks(*rules: str, versions: tuple[int, ...] = (1, 2)) -> Callable[[Script], Script]:
    def register(play: Script) -> Script:
        VARIATIONS.append(Variation(play, frozenset(rules), versions))
        return play

    return register


def hdr(connection: Connection, xid: int, procedure: int = MSG, direction: int = ASK, **lists: object) -> bytes:
    return header(xid, procedure, version=connection.version, direction=direction, **lists)  # type: ignore[arg-type]


def lreply(connection: Connection, rpc: Exchange, names: int = 20) -> bytes:
    """A long reply."""
    return answer(nfs3.readdirplus_reply([b"x" * 100] * names), rpc.true.xid)


@breaks()
def sealed_session(wire: Wire) -> None:
    """A COMPOUND under krb5p may offer the back channel."""
    connection = opened(wire)
    sealed = bytearray(sealed_call(7, 0, 3, opaque(bytes(200))))
    sealed[16:24] = u32(4, 1)
    connection.send(CLIENT, hdr(connection, 7) + bytes(sealed))
    connection.send(SERVER, hdr(connection, 7, direction=REPLY) + answer(nfs3.null_reply(), 7))
    recalled(callback(connection))


@breaks("V1-XID-MATCH")
def reply_header_xid(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.getattr_())
    connection.send(
        SERVER, hdr(connection, rpc.true.xid ^ 85, direction=REPLY) + answer(nfs3.getattr_reply(), rpc.true.xid)
    )


@breaks("V1-XID-MATCH")
def reply_rpc_xid(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.getattr_())
    connection.send(
        SERVER, hdr(connection, rpc.true.xid, direction=REPLY) + answer(nfs3.getattr_reply(), rpc.true.xid ^ 85)
    )


@breaks("V1-XID-MATCH")
def call_header_xid(wire: Wire) -> None:
    connection = opened(wire)
    connection.send(CLIENT, hdr(connection, 77) + message(nfs3.getattr_(), 78))
    connection.send(SERVER, hdr(connection, 77, direction=REPLY) + answer(nfs3.getattr_reply(), 77))


@breaks("V1-XID-MATCH")
def call_header_xid_refused(wire: Wire) -> None:
    connection = opened(wire)
    connection.send(CLIENT, hdr(connection, 77) + message(nfs3.getattr_(), 78))
    refuse(connection, 77)


@breaks("V1-XID-MATCH")
def long_reply_xid(wire: Wire) -> None:
    connection = opened(wire)
    rpc = listing(connection)
    data = answer(nfs3.readdirplus_reply([b"name"]), rpc.true.xid ^ 1)
    seg = (rpc.reply_chunk or [])[0]
    connection.write(SERVER, seg.handle, seg.offset, data)
    connection.send(SERVER, hdr(connection, rpc.true.xid, NOMSG, REPLY, reply=[seg._replace(length=len(data))]))


@breaks("V1-XID-MATCH")
def long_call_xid(wire: Wire) -> None:
    connection = opened(wire)
    t = message(nfs3.getattr_(), 78)
    ch = connection.register(len(t))
    connection.send(CLIENT, hdr(connection, 77, NOMSG, reads=[(0, ch)]))
    p = connection.read_request(SERVER, ch[0].handle, ch[0].offset, t)
    connection.read_responses(p)
    refuse(connection, 77)


@breaks("V1-XID-MATCH")
def backward_reply_xid(wire: Wire) -> None:
    connection = announced(wire)
    rpc = callback(connection)
    connection.send(
        CLIENT,
        hdr(connection, rpc.true.xid ^ 85, direction=REPLY)
        + answer(nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done()), rpc.true.xid),
    )


@breaks("V2-DIRECTION", versions=(2,))
def v2_reply_dir_call(wire: Wire) -> None:
    connection = second(wire)
    rpc = call(connection, nfs3.getattr_())
    connection.send(SERVER, hdr(connection, rpc.true.xid, direction=ASK) + answer(nfs3.getattr_reply(), rpc.true.xid))


@breaks("V2-DIRECTION", versions=(2,))
def v2_read_reply_dir_call(wire: Wire) -> None:
    connection = second(wire)
    rpc = reading(connection, 4096)
    push(rpc, 0, 0, DATA[:4096])
    st, _ = reduced(reply_parts(nfs3.read_reply(DATA[:4096]), rpc.true.xid), {0})
    connection.send(SERVER, hdr(connection, rpc.true.xid, direction=ASK, writes=rpc.writes) + st)


@breaks("V2-DIRECTION", versions=(2,))
def v2_nomsg_reply_dir_call(wire: Wire) -> None:
    connection = second(wire)
    rpc = listing(connection)
    data = answer(nfs3.readdirplus_reply([b"name"]), rpc.true.xid)
    seg = (rpc.reply_chunk or [])[0]
    connection.write(SERVER, seg.handle, seg.offset, data)
    connection.send(SERVER, hdr(connection, rpc.true.xid, NOMSG, ASK, reply=[seg._replace(length=len(data))]))


@breaks("V2-DIRECTION", versions=(2,))
def v2_call_dir_reply(wire: Wire) -> None:
    connection = second(wire)
    connection.send(CLIENT, hdr(connection, 77, direction=REPLY) + message(nfs3.getattr_(), 77))
    refuse(connection, 77)


@breaks("V2-DIRECTION", versions=(2,))
def v2_call_dir_reply_answered(wire: Wire) -> None:
    connection = second(wire)
    connection.send(CLIENT, hdr(connection, 77, direction=REPLY) + message(nfs3.getattr_(), 77))
    connection.send(SERVER, hdr(connection, 77, direction=REPLY) + answer(nfs3.getattr_reply(), 77))


@breaks("V2-REPLY-VERSION", versions=(1,))
def reply_vers_2(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.getattr_())
    connection.send(
        SERVER, header(rpc.true.xid, MSG, version=2, direction=REPLY) + answer(nfs3.getattr_reply(), rpc.true.xid)
    )


@breaks("V2-REPLY-VERSION", versions=(1,))
def reply_vers_word_2(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.getattr_())
    h = bytearray(header(rpc.true.xid, MSG, version=1))
    h[4:8] = u32(2)
    connection.send(SERVER, bytes(h) + answer(nfs3.getattr_reply(), rpc.true.xid))


@breaks("V1-VERSION", "V2-REPLY-VERSION")
def reply_vers_word_3(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.getattr_())
    h = bytearray(hdr(connection, rpc.true.xid, direction=REPLY))
    h[4:8] = u32(3)
    connection.send(SERVER, bytes(h) + answer(nfs3.getattr_reply(), rpc.true.xid))


@breaks("V2-REPLY-VERSION", versions=(2,))
def reply_vers_word_1(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.getattr_())
    h = bytearray(hdr(connection, rpc.true.xid, direction=REPLY))
    h[4:8] = u32(1)
    connection.send(SERVER, bytes(h) + answer(nfs3.getattr_reply(), rpc.true.xid))


@breaks("PD-INLINE", versions=(1,))
def pd_received_none(wire: Wire) -> None:
    connection = opened(wire, client_private=cm.private_data(4096, 4096), server_private=b"")
    big_call(connection, 2000)


@breaks(versions=(1,))
def pd_sent_none_received_some(wire: Wire) -> None:
    connection = opened(wire, client_private=b"", server_private=cm.private_data(4096, 4096))
    big_call(connection, 2000)


@breaks("V1-INLINE-EXCEEDED", versions=(1,))
def pd_sent_none_exceeds(wire: Wire) -> None:
    connection = opened(wire, client_private=b"", server_private=cm.private_data(4096, 4096))
    big_call(connection, 5000)


@breaks("PD-INLINE", versions=(1,))
def pd_server_received_none(wire: Wire) -> None:
    connection = opened(wire, client_private=b"", server_private=cm.private_data(4096, 4096))
    rpc = call(connection, nfs3.read(0, 2000))
    reply(rpc, nfs3.read_reply(DATA[:2000]))


@breaks(versions=(1,))
def backchannel_between(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, create_session())
    cb = callback(connection)
    reply(rpc, session_created())
    recalled(cb)


@breaks("V1-BACKWARD-UNANNOUNCED")
def callback_before_session(wire: Wire) -> None:
    connection = opened(wire)
    cb = callback(connection)
    rpc = call(connection, create_session())
    reply(rpc, session_created())
    recalled(cb)


@breaks("V1-BACKWARD-UNANNOUNCED")
def session_without_back_channel(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, create_session(flags=0))
    reply(rpc, session_created(flags=0))
    cb = callback(connection)
    recalled(cb)


@breaks("V1-HEADER-XDR")
def malformed_session(wire: Wire) -> None:
    connection = opened(wire)
    text = u32(7, connection.version, 32, 0) + (u32(0) if connection.version == 2 else b"")
    connection.send(CLIENT, text + u32(2, 0, 0) + message(create_session(), 7))
    refuse(connection, 7)
    cb = callback(connection)
    recalled(cb)


@breaks("V1-BACKWARD-CREDIT-FIRST")
def three_callbacks(wire: Wire) -> None:
    connection = announced(wire)
    cs = [callback(connection) for _ in range(3)]
    for x in cs:
        recalled(x)


@breaks("V1-ERROR-FOR-HEADER", "XC-TYPE", versions=(2,))
def client_ignores_option(wire: Wire) -> None:
    connection = reported(wire)
    update(connection, SERVER, RBSIZ, b" \x00")
    hello(connection)


@breaks("V1-ERROR-FOR-HEADER", "XC-BOUNDS", versions=(2,))
def client_ignores_bounds(wire: Wire) -> None:
    connection = reported(wire)
    connection.send(SERVER, optional(1, 4, u32(RBSIZ, 900, 8192, 0), direction=REPLY))
    hello(connection)


@breaks("V1-HEADER-XDR")
def outside_after_undecodable(wire: Wire) -> None:
    connection = opened(wire)
    seg = connection.register(4096)
    text = u32(7, connection.version, 32, 0) + (u32(0) if connection.version == 2 else b"")
    connection.send(
        CLIENT,
        text + u32(0, 1, 65535, seg[0].handle, 4096) + u64(seg[0].offset) + u32(0, 0) + message(nfs3.read(0, 4096), 7),
    )
    connection.write(SERVER, seg[0].handle, seg[0].offset, DATA[:4096])
    refuse(connection, 7)


@breaks("V1-REPLY-CHUNK-PROVIDED")
def compound_readdir(wire: Wire) -> None:
    connection = opened(wire)
    rd = Op(26, (u64(0) + bytes(8) + u32(8192, 32768) + u32(1, 0),))
    rpc = call(connection, nfs4.compound(nfs4.sequence(), nfs4.putfh(), rd))
    error(rpc)


@breaks()
def small_readdir(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.readdirplus(512))
    reply(rpc, nfs3.readdirplus_reply([b"a"]))


@breaks("V1-REPLY-NO-BINDING", "V1-NO-BINDING")
def unbound(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, Call(200001, 1, 0))
    reply(rpc, Reply())


@breaks("V1-WRITE-SEGMENT-COUNT")
def no_write_list(wire: Wire) -> None:
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:4096])
    returned(rpc, nfs3.read_reply(DATA[:4096]), left_out=[0])


@breaks("V1-WRITE-SEGMENT-COUNT")
def no_write_list_failed(wire: Wire) -> None:
    rpc = reading(opened(wire), 4096)
    returned(rpc, nfs3.read_failed())


@breaks("V1-WRITE-LENGTH-TRUE")
def returned_zero(wire: Wire) -> None:
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:4096])
    returned(rpc, nfs3.read_reply(DATA[:4096]), writes=[sized(rpc.writes[0], 0)], left_out=[0])


@breaks("V1-ITEM-MOVED")
def readlink_both(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.readlink(), writes=[connection.register(1024)])
    push(rpc, 0, 0, b"path/to/x")
    returned(rpc, nfs3.readlink_reply(b"path/to/x"), writes=[sized(rpc.writes[0], 9)])


@breaks("V1-ITEM-MOVED")
def compound_pad(wire: Wire) -> None:
    connection = opened(wire)
    comp = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.read(0, 5), nfs4.getattr_())
    rpc = call(connection, comp, writes=[connection.register(5)])
    push(rpc, 0, 0, DATA[:5])
    parts = reply_parts(
        nfs4.compound_reply(nfs4.sequence_done(), nfs4.putfh_done(), nfs4.read_done(DATA[:5]), nfs4.getattr_done()),
        rpc.true.xid,
    )
    st, _ = reduced(parts, {0})
    full = whole(parts)
    at = full.index(DATA[:5])
    st = full[:at] + bytes(3) + full[at + 8 :]
    connection.send(SERVER, hdr(connection, rpc.true.xid, direction=REPLY, writes=rpc.writes) + st)
