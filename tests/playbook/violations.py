"""Conversations that break one rule of the audit each, and one that breaks none.

Every script is named after its rule and gives who broke it, and in which of its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from . import cm, nfs3, nfs4
from .nfs4 import Op
from .rpc import Call, Parts, Reply, call_parts, items, opaque, reduced, reply_parts, u32, u64, whole
from .rpcrdma import ERROR, MSG, NOMSG, Chunk, Exchange, call, error, fetch, header, reply
from .shapes import read, write
from .wire import Connection, Operation, Wire

CLIENT, SERVER = 0, 1
REQ, REP = 1, 2
"""Frames of the connection's establishment."""
DATA = bytes(number * 7 & 0xFF for number in range(8192))
R = cm.private_data(invalidate=True)


class Broken(NamedTuple):
    """Who broke the rule, and where."""

    endpoint: int
    frame: int
    cause: frozenset[str] = frozenset()
    """Rules that the other end had to break first."""


Script = Callable[[Wire], Broken]
SCRIPTS: dict[str, Script] = {}


def breaks(rule: str) -> Callable[[Script], Script]:
    def register(script: Script) -> Script:
        assert rule not in SCRIPTS
        SCRIPTS[rule] = script
        return script

    return register


def frame_of(wire: Wire, operation: int, first: bool = False) -> int:
    """The frame that ends an operation, or the first."""
    frames = [index for index, packet in enumerate(wire.packets, 1) if packet.operation == operation]
    return frames[0] if first else frames[-1]


def by_client(wire: Wire, operation: int | Operation, *cause: str) -> Broken:
    number = operation if isinstance(operation, int) else operation.number
    return Broken(CLIENT, frame_of(wire, number), frozenset(cause))


def by_server(wire: Wire, operation: int | Operation, *cause: str) -> Broken:
    number = operation if isinstance(operation, int) else operation.number
    return Broken(SERVER, frame_of(wire, number), frozenset(cause))


# Messages word by word


def hello(connection: Connection, credits: int = 32) -> None:
    """NULL and its reply, which grants credits."""
    rpc = call(connection, nfs3.null())
    reply(rpc, nfs3.null_reply(), credits=credits)
    connection.wire.pause(1_000_000)


def opened(
    wire: Wire, credits: int = 32, *, client_private: bytes | None = None, server_private: bytes | None = None
) -> Connection:
    """A connection on which the first reply has come."""
    connection = wire.connect(client_private=client_private, server_private=server_private)
    hello(connection, credits)
    return connection


def refuse(connection: Connection, xid: int, code: int = 2, version: int = 1, sender: int = SERVER,
           versions: tuple[int, int] = (1, 1), more: bytes = b"") -> Operation:  # fmt: skip
    """RDMA_ERROR."""
    text = u32(xid, version, 32, ERROR, code) + (u32(*versions) if code == 1 else b"")
    return connection.send(sender, text + more)


def message(call: Call, xid: int) -> bytes:
    return whole(call_parts(call, xid))


def answer(message: Reply, xid: int) -> bytes:
    return whole(reply_parts(message, xid))


def asked(connection: Connection, call: Call, xid: int, chunks: Sequence[tuple[int, Chunk]], *, shift: int = 0,
          procedure: int = MSG, tail: bytes = b"", out: bool = True) -> Operation:  # fmt: skip
    """A call with Read chunks at its items (or, not ``out``, at Positions given), moved by ``shift``."""
    parts = call_parts(call, xid)
    found = items(parts)
    stream, _ = reduced(parts, {index for index, _ in chunks} if out else set())
    reads = [((found[index][0] if out else index) + shift, chunk) for index, chunk in chunks]
    return connection.send(CLIENT, header(xid, procedure, reads=reads) + (stream + tail if procedure == MSG else b""))


def returned(rpc: Exchange, message: Reply, *, writes: Sequence[Chunk] = (), reply: Chunk | None = None,
             left_out: Sequence[int] = (), reads: Sequence[tuple[int, Chunk]] = (), procedure: int = MSG,
             xid: int | None = None, tail: bytes = b"") -> Operation:  # fmt: skip
    """A reply's Send with the chunk lists given."""
    parts: Parts = reply_parts(message, rpc.true.xid if xid is None else xid)
    stream, _ = reduced(parts, set(left_out))
    text = header(rpc.true.xid, procedure, writes=writes, reply=reply, reads=reads)
    return rpc.connection.send(1 - rpc.requester, text + (stream if procedure == MSG else b"") + tail)


def sized(chunk: Chunk, *lengths: int) -> Chunk:
    return [segment._replace(length=length) for segment, length in zip(chunk, lengths, strict=True)]


def push(rpc: Exchange, chunk: int, segment: int, data: bytes) -> Operation:
    """An RDMA Write to the start of a segment of a Write chunk."""
    place = rpc.writes[chunk][segment]
    return rpc.connection.write(1 - rpc.requester, place.handle, place.offset, data)


def reading(connection: Connection, *lengths: int, count: int | None = None) -> Exchange:
    """NFSv3 READ with one Write chunk."""
    wanted = sum(lengths) if count is None else count
    return call(connection, nfs3.read(0, wanted), writes=[connection.register(*lengths)])


def create_session(flags: int = 2) -> Call:
    attributes = u32(0, 4096, 4096, 4096, 8, 16) + u32(0)
    return nfs4.compound(Op(43, (u64(1) + u32(1, flags) + attributes + attributes + u32(0x40000000, 0),)))


def session_created(flags: int = 2) -> Reply:
    attributes = u32(0, 4096, 4096, 4096, 8, 16) + u32(0)
    return nfs4.compound_reply(Op(43, (nfs4.SESSION + u32(1, flags) + attributes + attributes,)))


def announced(wire: Wire) -> Connection:
    """A connection that the client offered for callbacks."""
    connection = opened(wire)
    rpc = call(connection, create_session())
    reply(rpc, session_created())
    return connection


def callback(connection: Connection, **options: object) -> Exchange:
    recall = nfs4.callback(nfs4.cb_sequence(), nfs4.cb_recall())
    return call(connection, recall, backward=True, **options)  # type: ignore[arg-type]


def recalled(rpc: Exchange, credits: int = 32) -> None:
    reply(rpc, nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done()), credits=credits)


def sealed_call(xid: int, procedure: int, service: int, body: bytes) -> bytes:
    """An NFSv3 call with an RPCSEC_GSS credential (RFC 2203, 5.3)."""
    credential = u32(6) + opaque(u32(1, procedure, 1, service) + opaque(b"context!"))
    return u32(xid, 0, 2, nfs3.PROGRAM, 3, 7) + credential + u32(6) + opaque(bytes(28)) + body


# Transport headers


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
    sent = connection.send(CLIENT, u32(7, 1, 32, 0, 2, 0, 0) + message(nfs3.null(), 7))
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-XID-MATCH")
def xid_match(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    return by_server(wire, returned(rpc, nfs3.getattr_reply(), xid=rpc.true.xid ^ 1))


@breaks("V1-MSG-PAYLOAD")
def msg_payload(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = connection.send(CLIENT, header(7, MSG))
    refuse(connection, 7)
    return by_client(wire, sent)


def long_reply(rpc: Exchange, tail: bytes = b"") -> Operation:
    """A READDIRPLUS reply through the Reply chunk."""
    text = answer(nfs3.readdirplus_reply([b"name"]), rpc.true.xid)
    chunk = rpc.reply_chunk
    assert chunk is not None
    rpc.connection.write(SERVER, chunk[0].handle, chunk[0].offset, text)
    return returned(rpc, Reply(), reply=sized(chunk, len(text)), procedure=NOMSG, tail=tail)


def listing(connection: Connection, room: int = 65536, count: int = 8192) -> Exchange:
    return call(connection, nfs3.readdirplus(count), reply_chunk=connection.register(room))


@breaks("V1-NOMSG-PAYLOAD")
def nomsg_payload(wire: Wire) -> Broken:
    return by_server(wire, long_reply(listing(opened(wire)), tail=bytes(16)))


@breaks("V1-NOMSG-CHUNK")
def nomsg_chunk(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = connection.send(CLIENT, header(7, NOMSG))
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-ERROR-PAYLOAD")
def error_payload(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    return by_server(wire, refuse(rpc.connection, rpc.true.xid, more=u32(0, 0, 0)))


# Credits


@breaks("V1-CREDIT-ZERO")
def credit_zero(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    reply(rpc, nfs3.getattr_reply(), credits=0)
    return by_server(wire, rpc.true.reply_operation)


@breaks("V1-CREDIT-EXCEEDED")
def credit_exceeded(wire: Wire) -> Broken:
    connection = opened(wire, credits=2)
    calls = [call(connection, nfs3.getattr_()) for _ in range(3)]
    wire.pause(1_000_000)
    for rpc in calls:
        reply(rpc, nfs3.getattr_reply(), credits=2)
    return by_client(wire, calls[2].true.call_operation)


@breaks("V1-CREDIT-FIRST")
def credit_first(wire: Wire) -> Broken:
    connection = wire.connect()
    calls = [call(connection, nfs3.null()) for _ in range(2)]
    wire.pause(1_000_000)
    for rpc in calls:
        reply(rpc, nfs3.null_reply())
    return by_client(wire, calls[1].true.call_operation)


@breaks("V1-XID-REUSED")
def xid_reused(wire: Wire) -> Broken:
    connection = opened(wire)
    calls = [call(connection, nfs3.getattr_(), xid=77) for _ in range(2)]
    for rpc in calls:
        reply(rpc, nfs3.getattr_reply())
    return by_client(wire, calls[1].true.call_operation)


# Thresholds


def big_call(connection: Connection, size: int) -> Exchange:
    """A call of a little more than ``size`` bytes inline."""
    rpc = call(connection, nfs3.write(0, bytes(size)))
    reply(rpc, nfs3.write_reply(size))
    return rpc


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


# Read chunks


@breaks("V1-READ-POSITION-ALIGN")
def read_position_align(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = asked(connection, nfs3.write(0, DATA), 7, [(0, connection.register(8192))], shift=-2)
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-READ-POSITION-RANGE")
def read_position_range(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = asked(connection, nfs3.write(0, DATA), 7, [(0, connection.register(8192))], shift=4000)
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-READ-POSITION-SAME")
def read_position_same(wire: Wire) -> Broken:
    connection = opened(wire)
    compound = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.write(0, DATA), nfs4.write(8192, DATA))
    chunks = [(0, connection.register(4096)), (1, connection.register(8192)), (0, connection.register(4096))]
    sent = asked(connection, compound, 7, chunks)
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-READ-ROUNDUP")
def read_roundup(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = asked(connection, nfs3.write(0, DATA[:5]), 7, [(0, connection.register(5))], tail=bytes(3))
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-LONG-CALL-POSITION")
def long_call_position(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = asked(connection, nfs3.write(0, DATA), 7, [(0, connection.register(8192))], procedure=NOMSG)
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-CHUNK-LENGTH-MATCH")
def chunk_length_match(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = asked(connection, nfs3.write(0, DATA), 7, [(0, connection.register(4096))])
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-DDP-ELIGIBLE")
def ddp_eligible(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = asked(connection, nfs3.write(0, DATA[:64]), 7, [(100, connection.register(32))], out=False)
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-READ-IN-REPLY")
def read_in_reply(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    return by_server(wire, returned(rpc, nfs3.getattr_reply(), reads=[(0, rpc.connection.register(64))]))


@breaks("V1-HANDLE-PERSISTENT")
def handle_persistent(wire: Wire) -> Broken:
    connection = opened(wire)
    for _ in range(16):
        rpc = call(connection, nfs3.read(0, 4096), writes=[connection.register(4096, handle=0x4242)])
        reply(rpc, nfs3.read_reply(DATA[:4096]))
    return by_client(wire, rpc.true.call_operation)


# Write and Reply chunks


@breaks("V1-REPLY-CHUNK-MISSING")
def reply_chunk_missing(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    chunk = rpc.connection.register(128)
    return by_server(wire, returned(rpc, nfs3.getattr_reply(), reply=chunk, procedure=NOMSG))


@breaks("V1-REPLY-CHUNK-SIZE")
def reply_chunk_size(wire: Wire) -> Broken:
    rpc = listing(opened(wire), room=4096, count=65536)
    reply(rpc, nfs3.readdirplus_reply([b"name"]))
    return by_client(wire, rpc.true.call_operation)


@breaks("V1-WRITE-SEGMENT-COUNT")
def write_segment_count(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096, 4096)
    push(rpc, 0, 0, DATA[:4096])
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:4096]), writes=[rpc.writes[0][:1]], left_out=[0]))


@breaks("V1-WRITE-SEGMENT-COPY")
def write_segment_copy(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:4096])
    forged = [rpc.writes[0][0]._replace(handle=0)]
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:4096]), writes=[forged], left_out=[0]))


@breaks("V1-WRITE-SEGMENT-LENGTH")
def write_segment_length(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:4096])
    longer = sized(rpc.writes[0], 8192)
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA), writes=[longer], left_out=[0]))


@breaks("V1-WRITE-FILL-ORDER")
def write_fill_order(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096, 4096)
    push(rpc, 0, 0, DATA[:2048])
    push(rpc, 0, 1, DATA[2048:4096])
    halves = sized(rpc.writes[0], 2048, 2048)
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:4096]), writes=[halves], left_out=[0]))


@breaks("V1-WRITE-UNFILLED")
def write_unfilled(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096, 4096)
    push(rpc, 0, 0, DATA[:4096])
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:4096]), writes=rpc.writes, left_out=[0]))


@breaks("V1-WRITE-UNUSED")
def write_unused(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096)
    return by_server(wire, returned(rpc, nfs3.read_failed(), writes=rpc.writes))


@breaks("V1-WRITE-LENGTH-TRUE")
def write_length_true(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:2048])
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:4096]), writes=rpc.writes, left_out=[0]))


@breaks("V1-WRITE-NO-PAD")
def write_no_pad(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096)
    push(rpc, 0, 0, DATA[:5] + bytes(3))
    five = sized(rpc.writes[0], 5)
    return by_server(wire, returned(rpc, nfs3.read_reply(DATA[:5], eof=True), writes=[five], left_out=[0]))


@breaks("V1-WRITE-EXTRA")
def write_extra(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 6, 4, count=6)
    reply(rpc, nfs3.read_reply(DATA[:6]))
    return by_client(wire, rpc.true.call_operation)


@breaks("V1-REDUCE-REQUIRED")
def reduce_required(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 512)
    reply(rpc, nfs3.read_reply(DATA[:512]), via={})
    return by_server(wire, rpc.true.reply_operation)


@breaks("V1-WRITE-BEFORE-REPLY")
def write_before_reply(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096)
    sent = returned(rpc, nfs3.read_reply(DATA[:4096]), writes=rpc.writes, left_out=[0])
    push(rpc, 0, 0, DATA[:4096])
    return by_server(wire, sent)


# RDMA


@breaks("V1-TRANSFER-MODEL")
def transfer_model(wire: Wire) -> Broken:
    connection = opened(wire)
    moved = connection.write(CLIENT, 0x4242, 0x10000, DATA[:100])
    return by_client(wire, moved)


@breaks("V1-RDMA-OUTSIDE")
def rdma_outside(wire: Wire) -> Broken:
    rpc = reading(opened(wire), 4096)
    place = rpc.writes[0][0]
    moved = rpc.connection.write(SERVER, place.handle, place.offset + 4096, DATA[:100])
    reply(rpc, nfs3.read_reply(DATA[:4096]))
    return by_server(wire, moved)


@breaks("V1-RDMA-AFTER-REPLY")
def rdma_after_reply(wire: Wire) -> Broken:
    connection = opened(wire)
    chunk = connection.register(4096)
    rpc = call(connection, nfs3.write(0, DATA[:4096]), reads={0: chunk})
    fetch(rpc)
    reply(rpc, nfs3.write_reply(4096))
    moved = connection.read(SERVER, chunk[0].handle, chunk[0].offset, DATA[:4096])
    return Broken(SERVER, frame_of(wire, moved.number, first=True))


# Errors


@breaks("V1-ERROR-XID")
def error_xid(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    return by_server(wire, refuse(rpc.connection, rpc.true.xid ^ 0xFF))


@breaks("V1-ERROR-VERSION")
def error_version(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    return by_server(wire, refuse(rpc.connection, rpc.true.xid, version=2))


@breaks("V1-ERROR-CODE")
def error_code(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    return by_server(wire, refuse(rpc.connection, rpc.true.xid, 7))


def second_version(connection: Connection, xid: int = 7) -> Operation:
    return connection.send(CLIENT, header(xid, MSG, version=2) + message(nfs3.null(), xid))


@breaks("V1-ERROR-RANGE")
def error_range(wire: Wire) -> Broken:
    connection = opened(wire)
    second_version(connection)
    return by_server(wire, refuse(connection, 7, 1, 2, versions=(1, 2)))


@breaks("V1-ERROR-FOR-VERSION")
def error_for_version(wire: Wire) -> Broken:
    connection = opened(wire)
    second_version(connection)
    return by_server(wire, refuse(connection, 7, 2, 2))


@breaks("V1-ERROR-FOR-HEADER")
def error_for_header(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = connection.send(CLIENT, u32(7, 1, 32, 0, 2, 0, 0) + message(nfs3.null(), 7))
    hello(connection)
    return by_server(wire, sent, "V1-HEADER-XDR")


@breaks("V1-ERROR-FOR-RESERVED")
def error_for_reserved(wire: Wire) -> Broken:
    connection = opened(wire)
    sent = connection.send(CLIENT, u32(7, 1, 32, 3))
    hello(connection)
    return by_server(wire, sent, "V1-PROC-DONE")


@breaks("V1-ERROR-RETRY")
def error_retry(wire: Wire) -> Broken:
    rpc = call(opened(wire), nfs3.getattr_())
    refuse(rpc.connection, rpc.true.xid)
    return by_server(wire, returned(rpc, nfs3.getattr_reply()))


@breaks("V1-GARBAGE-ARGS")
def garbage_args(wire: Wire) -> Broken:
    rpc = call(opened(wire), Call(nfs3.PROGRAM, 3, 7, (opaque(nfs3.FH),)))
    reply(rpc, nfs3.write_reply(0))
    return by_server(wire, rpc.true.reply_operation)


# The backward direction


@breaks("V1-BACKWARD-PROC")
def backward_proc(wire: Wire) -> Broken:
    connection = announced(wire)
    sent = connection.send(SERVER, header(7, NOMSG, reads=[(0, connection.register(200))]))
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
    wire.pause(1_000_000)
    calls = [callback(connection) for _ in range(2)]
    wire.pause(1_000_000)
    for rpc in calls:
        recalled(rpc, credits=1)
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


# RPCSEC_GSS and bindings


@breaks("V1-GSS-NO-REDUCTION")
def gss_no_reduction(wire: Wire) -> Broken:
    connection = opened(wire)
    text = sealed_call(7, 0, 2, u32(200, 1) + opaque(nfs3.FH) + bytes(64))
    sent = connection.send(CLIENT, header(7, MSG, reads=[(len(text) - 16, connection.register(4096))]) + text)
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-GSS-MATERIAL")
def gss_material(wire: Wire) -> Broken:
    connection = opened(wire)
    text = sealed_call(7, 1, 2, u32(4096))
    sent = connection.send(CLIENT, header(7, MSG, reads=[(len(text), connection.register(4096))]) + text)
    refuse(connection, 7)
    return by_client(wire, sent)


@breaks("V1-NO-BINDING")
def no_binding(wire: Wire) -> Broken:
    rpc = call(opened(wire), Call(200001, 1, 0))
    reply(rpc, Reply())
    return by_client(wire, rpc.true.call_operation)


# Private data


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
    sent = connection.send(CLIENT, header(7, MSG) + message(nfs3.null(), 7), invalidate=0x4242)
    connection.send(SERVER, header(7, MSG) + answer(nfs3.null_reply(), 7))
    return by_client(wire, sent)


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
    second_version(connection)
    refuse(connection, 7, 1, 2)
    rpc = call(connection, Call(nfs3.PROGRAM, 3, 7, (opaque(nfs3.FH),)))
    reply(rpc, Reply(accept=4))
    rpc = call(connection, create_session())
    reply(rpc, session_created())
    for _ in range(2):
        recalled(callback(connection))
    connection.send(CLIENT, header(8, MSG) + sealed_call(8, 0, 2, u32(40, 1) + opaque(nfs3.FH) + bytes(40)))
    refuse(connection, 8)
    connection.send(CLIENT, header(9, MSG) + sealed_call(9, 1, 1, opaque(b"token")))
    refuse(connection, 9)
    plain = opened(wire, client_private=b"", server_private=b"")
    write(plain, DATA[:500])


__all__ = ["CLIENT", "SCRIPTS", "SERVER", "Broken", "proper"]
