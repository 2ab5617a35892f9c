"""More of them: chunks, RDMA and replies."""

from __future__ import annotations

from .. import cm, nfs3, nfs4
from ..nfs4 import Op
from ..rpc import opaque, reduced, reply_parts, u32
from ..rpcrdma import NOMSG, REPLY, call, error, fetch, reply, update
from ..shapes import DATA
from ..wire import Wire
from .characteristics import RBSIZ, reported
from .scripts import (
    CLIENT,
    SERVER,
    announced,
    answer,
    asked,
    callback,
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
    sized,
)
from .variations import breaks, hdr, lreply


@breaks("V1-READ-ROUNDUP")
def compound_call_pad(wire: Wire) -> None:
    connection = opened(wire)
    comp = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.write(0, DATA[:5]), nfs4.getattr_())
    full = message(comp, 7)
    at = full.index(DATA[:5])
    ch = connection.register(5)
    connection.send(CLIENT, hdr(connection, 7, reads=[(at, ch)]) + full[:at] + bytes(3) + full[at + 8 :])
    refuse(connection, 7)


@breaks("V1-COUNT-MATCH")
def compound_count(wire: Wire) -> None:
    connection = opened(wire)
    comp = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.read(0, 4096), nfs4.getattr_())
    rpc = call(connection, comp, writes=[connection.register(4096)])
    push(rpc, 0, 0, DATA[:4096])
    parts = reply_parts(
        nfs4.compound_reply(nfs4.sequence_done(), nfs4.putfh_done(), nfs4.read_done(DATA[:3000]), nfs4.getattr_done()),
        rpc.true.xid,
    )
    st, _ = reduced(parts, {0})
    connection.send(SERVER, hdr(connection, rpc.true.xid, direction=REPLY, writes=rpc.writes) + st)


@breaks("V2-RECEIVE-4096", versions=(2,))
def server_small(wire: Wire) -> None:
    reported(wire, server=((RBSIZ, 1024),))


@breaks("V2-RECEIVE-4096", "XC-RBSIZ-SHRINK", versions=(2,))
def update_small(wire: Wire) -> None:
    connection = reported(wire, server=((RBSIZ, 8192),))
    update(connection, SERVER, RBSIZ, 2048)


@breaks("V1-CREDIT-ZERO")
def zero_in_nomsg(wire: Wire) -> None:
    connection = opened(wire)
    rpc = listing(connection)
    reply(rpc, nfs3.readdirplus_reply([b"n"]), long=True, credits=0)


@breaks("V1-BACKWARD-CREDIT-ZERO")
def zero_in_backward_reply(wire: Wire) -> None:
    connection = announced(wire)
    recalled(callback(connection), credits=0)


@breaks("V1-WRITE-SEGMENT-COUNT")
def reply_chunk_count(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.readdirplus(8000), reply_chunk=connection.register(4096, 8192))
    d = lreply(connection, rpc, 10)
    s = rpc.reply_chunk or []
    connection.write(SERVER, s[0].handle, s[0].offset, d[:4096])
    returned(rpc, nfs3.readdirplus_reply([b"x"]), reply=sized(s[:1], len(d)), procedure=NOMSG)


@breaks("V1-WRITE-SEGMENT-COPY")
def reply_chunk_copy(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.readdirplus(8000), reply_chunk=connection.register(16384))
    d = lreply(connection, rpc, 10)
    s = rpc.reply_chunk or []
    connection.write(SERVER, s[0].handle, s[0].offset, d)
    returned(rpc, nfs3.readdirplus_reply([b"x"]), reply=[s[0]._replace(handle=1, length=len(d))], procedure=NOMSG)


@breaks("V1-WRITE-LENGTH-TRUE")
def reply_chunk_length(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.readdirplus(8000), reply_chunk=connection.register(16384))
    d = lreply(connection, rpc, 10)
    s = rpc.reply_chunk or []
    connection.write(SERVER, s[0].handle, s[0].offset, d)
    returned(rpc, nfs3.readdirplus_reply([b"x"]), reply=[s[0]._replace(length=len(d) + 400)], procedure=NOMSG)


@breaks("V1-WRITE-FILL-ORDER")
def reply_chunk_order(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.readdirplus(8000), reply_chunk=connection.register(8192, 8192))
    d = lreply(connection, rpc, 10)
    s = rpc.reply_chunk or []
    connection.write(SERVER, s[0].handle, s[0].offset, d[:500])
    connection.write(SERVER, s[1].handle, s[1].offset, d[500:])
    returned(rpc, nfs3.readdirplus_reply([b"x"]), reply=sized(s, 500, len(d) - 500), procedure=NOMSG)


@breaks("V1-READ-IN-REPLY")
def read_list_in_nomsg(wire: Wire) -> None:
    connection = opened(wire)
    rpc = listing(connection)
    d = lreply(connection, rpc, 3)
    s = rpc.reply_chunk or []
    connection.write(SERVER, s[0].handle, s[0].offset, d)
    connection.send(
        SERVER,
        hdr(connection, rpc.true.xid, NOMSG, REPLY, reads=[(0, connection.register(64))], reply=sized(s, len(d))),
    )


@breaks("V1-RDMA-OUTSIDE")
def read_outside(wire: Wire) -> None:
    connection = opened(wire)
    ch = connection.register(4096)
    rpc = call(connection, nfs3.write(0, DATA[:4096]), reads={0: ch})
    connection.read(SERVER, ch[0].handle, ch[0].offset + 100, DATA[:4096])
    fetch(rpc)
    reply(rpc, nfs3.write_reply(4096))


@breaks("V1-RDMA-OUTSIDE")
def write_into_read_chunk(wire: Wire) -> None:
    connection = opened(wire)
    ch = connection.register(4096)
    rpc = call(connection, nfs3.write(0, DATA[:4096]), reads={0: ch})
    connection.write(SERVER, ch[0].handle, ch[0].offset, DATA[:100])
    fetch(rpc)
    reply(rpc, nfs3.write_reply(4096))


@breaks("V1-RDMA-OUTSIDE")
def wrong_handle(wire: Wire) -> None:
    rpc = reading(opened(wire), 4096)
    rpc.connection.write(SERVER, rpc.writes[0][0].handle ^ 1, rpc.writes[0][0].offset, DATA[:4])
    reply(rpc, nfs3.read_reply(DATA[:4096]))


@breaks("V1-RDMA-AFTER-REPLY")
def write_after(wire: Wire) -> None:
    rpc = reading(opened(wire), 4096)
    reply(rpc, nfs3.read_reply(DATA[:4096]))
    s = rpc.writes[0][0]
    rpc.connection.write(SERVER, s.handle, s.offset, DATA[:100])


@breaks("V1-RDMA-AFTER-REPLY")
def written_only_after(wire: Wire) -> None:
    """What the reply returned was true when it was sent."""
    rpc = reading(opened(wire), 4096)
    reply(rpc, nfs3.read_reply(b""))
    s = rpc.writes[0][0]
    rpc.connection.write(SERVER, s.handle, s.offset, DATA[:100])


@breaks("V1-RDMA-AFTER-REPLY")
def read_after_error(wire: Wire) -> None:
    connection = opened(wire)
    ch = connection.register(4096)
    rpc = call(connection, nfs3.write(0, DATA[:4096]), reads={0: ch})
    error(rpc)
    connection.read(SERVER, ch[0].handle, ch[0].offset, DATA[:4096])


@breaks("V1-XID-REUSED")
def backward_xid(wire: Wire) -> None:
    connection = announced(wire)
    recalled(callback(connection))
    a = callback(connection, xid=99)
    b = callback(connection, xid=99)
    recalled(a)
    recalled(b)


@breaks("V1-MSG-PAYLOAD", versions=(1,))
def empty_reply(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.getattr_())
    connection.send(SERVER, hdr(connection, rpc.true.xid, direction=REPLY))


@breaks("V2-MSG-PAYLOAD", versions=(2,))
def empty_reply2(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.getattr_())
    connection.send(SERVER, hdr(connection, rpc.true.xid, direction=REPLY))


@breaks("V1-NOMSG-PAYLOAD")
def behind_long_call(wire: Wire) -> None:
    connection = opened(wire)
    t = message(nfs3.getattr_(), 77)
    ch = connection.register(len(t))
    connection.send(CLIENT, hdr(connection, 77, NOMSG, reads=[(0, ch)]) + bytes(8))
    connection.read(SERVER, ch[0].handle, ch[0].offset, t)
    connection.send(SERVER, hdr(connection, 77, direction=REPLY) + answer(nfs3.getattr_reply(), 77))


@breaks("V1-DDP-ELIGIBLE")
def eligible4(wire: Wire) -> None:
    connection = opened(wire)
    comp = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.write(0, DATA[:64]), nfs4.getattr_())
    m = message(comp, 7)
    at = m.index(nfs3.FH) if nfs3.FH in m else 100
    asked(connection, comp, 7, [(at & ~3, connection.register(16))], out=False)
    refuse(connection, 7)


@breaks("V1-WRITE-UNUSED")
def unused_compound(wire: Wire) -> None:
    connection = opened(wire)
    comp = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.read(0, 4096))
    rpc = call(connection, comp, writes=[connection.register(4096)])
    returned(rpc, nfs4.compound_reply(nfs4.sequence_done(), nfs4.putfh_done(), nfs4.failed(25)), writes=rpc.writes)


@breaks("V1-WRITE-UNUSED")
def unused_getattr(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.getattr_(), writes=[connection.register(4096)])
    returned(rpc, nfs3.getattr_reply(), writes=rpc.writes)


@breaks("V1-REDUCE-REQUIRED")
def second_read_inline(wire: Wire) -> None:
    connection = opened(wire)
    comp = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.read(0, 400), nfs4.read(400, 400))
    rpc = call(connection, comp, writes=[connection.register(400), connection.register(400)])
    push(rpc, 0, 0, DATA[:400])
    returned(
        rpc,
        nfs4.compound_reply(
            nfs4.sequence_done(), nfs4.putfh_done(), nfs4.read_done(DATA[:400]), nfs4.read_done(DATA[400:800])
        ),
        writes=[rpc.writes[0], sized(rpc.writes[1], 0)],
        left_out=[0],
    )


@breaks("V1-CHUNK-LENGTH-MATCH")
def chunk_longer(wire: Wire) -> None:
    connection = opened(wire)
    asked(connection, nfs3.write(0, DATA[:4096]), 7, [(0, connection.register(8192))])
    refuse(connection, 7)


@breaks("V1-NOMSG-CHUNK")
def nomsg_reply_without(wire: Wire) -> None:
    connection = opened(wire)
    rpc = listing(connection)
    connection.send(SERVER, hdr(connection, rpc.true.xid, NOMSG, REPLY))


@breaks("V1-NOMSG-CHUNK", "V1-REPLY-CHUNK-MISSING")
def nomsg_only_write(wire: Wire) -> None:
    connection = opened(wire)
    rpc = reading(connection, 4096)
    push(rpc, 0, 0, DATA[:4096])
    connection.send(SERVER, hdr(connection, rpc.true.xid, NOMSG, REPLY, writes=rpc.writes))


@breaks("PD-AMBIGUOUS", versions=(1,))
def pd_twice_server(wire: Wire) -> None:
    opened(wire, server_private=2 * cm.private_data())


@breaks("PD-VERSION", versions=(1,))
def pd_ver_server(wire: Wire) -> None:
    opened(wire, server_private=u32(4138405400) + bytes((9, 0, 3, 3)))


@breaks("V1-READ-POSITION-ALIGN")
def odd_position_behind_the_end(wire: Wire) -> None:
    connection = opened(wire)
    asked(connection, nfs3.write(0, DATA), 7, [(0, connection.register(8192))], shift=2)
    refuse(connection, 7)


@breaks("V1-CREDIT-EXCEEDED")
def four_after_lowering(wire: Wire) -> None:
    connection = opened(wire, credits=8)
    hello(connection, 2)
    wire.pause(2000000000)
    cs = [call(connection, nfs3.getattr_()) for _ in range(3)]
    for r in cs:
        reply(r, nfs3.getattr_reply(), credits=2)


@breaks("V1-BACKWARD-SIZE", versions=(1,))
def big_backward_reply(wire: Wire) -> None:
    connection = announced(wire)
    rpc = callback(connection)
    connection.send(
        CLIENT,
        hdr(connection, rpc.true.xid, direction=REPLY)
        + answer(nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done(), tag=bytes(5000)), rpc.true.xid),
    )


@breaks("V1-BACKWARD-CHUNKS", versions=(1,))
def backward_reply_chunk(wire: Wire) -> None:
    connection = announced(wire)
    rpc = callback(connection)
    returned(rpc, nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done()), reply=connection.register(64))


@breaks("V1-HEADER-XDR")
def count_in_reply(wire: Wire) -> None:
    connection = opened(wire)
    rpc = reading(connection, 4096)
    push(rpc, 0, 0, DATA[:4096])
    t = (
        u32(rpc.true.xid, connection.version, 32, 0)
        + (u32(1) if connection.version == 2 else b"")
        + u32(0, 1, 9, 1, 2, 3, 4)
    )
    connection.send(SERVER, t)


@breaks("V1-WRITE-BEFORE-REPLY")
def half_late(wire: Wire) -> None:
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:2048])
    returned(rpc, nfs3.read_reply(DATA[:4096]), writes=rpc.writes, left_out=[0])
    s = rpc.writes[0][0]
    rpc.connection.write(SERVER, s.handle, s.offset + 2048, DATA[2048:4096])


@breaks("V1-WRITE-NO-PAD")
def readlink_pad(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs3.readlink(), writes=[connection.register(1024)])
    push(rpc, 0, 0, b"path/to/x" + bytes(3))
    returned(rpc, nfs3.readlink_reply(b"path/to/x"), writes=[sized(rpc.writes[0], 9)], left_out=[0])


@breaks("V1-GARBAGE-ARGS")
def garbage4(wire: Wire) -> None:
    connection = opened(wire)
    rpc = call(connection, nfs4.compound(Op(22, (u32(500) + b"abcd",))))
    reply(rpc, nfs4.compound_reply(nfs4.putfh_done()))


@breaks("V1-COUNT-MATCH", "V1-WRITE-LENGTH-TRUE")
def full_chunk_of_a_read_of_nothing(wire: Wire) -> None:
    """The reply has a result for the chunk, of no bytes, so the chunk is not one that is left unused (4.4.6.2)."""
    rpc = reading(opened(wire), 4096, count=0)
    returned(rpc, nfs3.read_reply(b""), writes=[sized(rpc.writes[0], 4096)], left_out=[0])


@breaks()
def callback_under_krb5p(wire: Wire) -> None:
    connection = announced(wire)
    sealed = bytearray(sealed_call(7, 0, 3, opaque(bytes(200))))
    sealed[12:24] = u32(0x40000000, 1, 1)
    connection.send(SERVER, hdr(connection, 7) + bytes(sealed))
    verifier = u32(7, 1, 0, 6) + opaque(bytes(28)) + u32(0)
    connection.send(CLIENT, hdr(connection, 7, direction=REPLY) + verifier + opaque(bytes(100)))


@breaks("V1-LONG-CALL-POSITION")
def rest_of_a_long_call_at_position_4(wire: Wire) -> None:
    """No item can stand inside the RPC header, and the call ends too early without that chunk."""
    connection = opened(wire)
    text = message(nfs3.write(0, DATA[:4096]), 7)
    first, rest = connection.register(1000, len(text) - 1000)
    connection.send(CLIENT, hdr(connection, 7, NOMSG, reads=[(0, [first]), (4, [rest])]))
    connection.read(SERVER, first.handle, first.offset, text[:1000])
    connection.read(SERVER, rest.handle, rest.offset, text[1000:])
    connection.send(SERVER, hdr(connection, 7, direction=REPLY) + answer(nfs3.write_reply(4096), 7))


@breaks("V1-PROC-MSGP", versions=(1,))
def padded_message_refused(wire: Wire) -> None:
    connection = opened(wire)
    connection.send(CLIENT, hdr(connection, 7, 2) + message(nfs3.null(), 7))
    refuse(connection, 7)
