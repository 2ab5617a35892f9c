"""What the scripts have in common: who broke a rule where, and messages word by word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .. import cm, nfs3, nfs4
from ..nfs4 import Op
from ..rpc import Call, Parts, Reply, call_parts, items, opaque, reduced, reply_parts, u32, u64, whole
from ..rpcrdma import ERROR, MSG, NOMSG, REPLY, Chunk, Exchange, announce, call, header, reply
from ..wire import Connection, Operation, Wire

CLIENT, SERVER = 0, 1
REQ, REP = 1, 2
"""Frames of the connection's establishment."""
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
    if connection.version == 2 and client_private == R:
        announce(connection, CLIENT, (2, 1))
        announce(connection, SERVER, (1, 4096))
    hello(connection, credits)
    return connection


def refuse(connection: Connection, xid: int, code: int = 2, version: int | None = None, sender: int = SERVER,
           versions: tuple[int, int] = (1, 1), more: bytes = b"") -> Operation:  # fmt: skip
    """RDMA_ERROR."""
    text = u32(xid, version or connection.version, 32, ERROR, code) + (u32(*versions) if code == 1 else b"")
    return connection.send(sender, text + more)


def unreadable(connection: Connection) -> Operation:
    """A call whose Read list begins with a 2."""
    text = u32(7, connection.version, 32, 0) + (u32(0) if connection.version == 2 else b"")
    return connection.send(CLIENT, text + u32(2, 0, 0) + message(nfs3.null(), 7))


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
    text = header(xid, procedure, version=connection.version, reads=reads)
    return connection.send(CLIENT, text + (stream + tail if procedure == MSG else b""))


def returned(rpc: Exchange, message: Reply, *, writes: Sequence[Chunk] = (), reply: Chunk | None = None,
             left_out: Sequence[int] = (), reads: Sequence[tuple[int, Chunk]] = (), procedure: int = MSG,
             xid: int | None = None, tail: bytes = b"") -> Operation:  # fmt: skip
    """A reply's Send with the chunk lists given."""
    parts: Parts = reply_parts(message, rpc.true.xid if xid is None else xid)
    stream, _ = reduced(parts, set(left_out))
    version = rpc.connection.version
    text = header(rpc.true.xid, procedure, version=version, direction=REPLY, writes=writes, reply=reply, reads=reads)
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


def long_reply(rpc: Exchange, tail: bytes = b"") -> Operation:
    """A READDIRPLUS reply through the Reply chunk."""
    text = answer(nfs3.readdirplus_reply([b"name"]), rpc.true.xid)
    chunk = rpc.reply_chunk
    assert chunk is not None
    rpc.connection.write(SERVER, chunk[0].handle, chunk[0].offset, text)
    return returned(rpc, Reply(), reply=sized(chunk, len(text)), procedure=NOMSG, tail=tail)


def listing(connection: Connection, room: int = 65536, count: int = 8192) -> Exchange:
    return call(connection, nfs3.readdirplus(count), reply_chunk=connection.register(room))


def second_version(connection: Connection, xid: int = 7) -> Operation:
    return connection.send(CLIENT, header(xid, MSG, version=2) + message(nfs3.null(), xid))


def two_at_first(wire: Wire) -> Broken:
    """A second call before the first reply."""
    connection = wire.connect()
    calls = [call(connection, nfs3.null()) for _ in range(2)]
    for rpc in calls:
        reply(rpc, nfs3.null_reply())
    return by_client(wire, calls[1].true.call_operation)


def big_call(connection: Connection, size: int) -> Exchange:
    """A call of a little more than ``size`` bytes inline."""
    rpc = call(connection, nfs3.write(0, bytes(size)))
    reply(rpc, nfs3.write_reply(size))
    return rpc
