"""Mounts that hang: a server that stops answering, one call that is never answered, and their healthy likes."""

from __future__ import annotations

from pathlib import Path

from . import nfs3
from .capture import write_pcap
from .facts import MILLISECOND
from .nfs3 import FH
from .rpc import Call, Reply, opaque, u32
from .rpcrdma import Exchange, call, reply
from .wire import Connection, Wire

SECOND = 1_000_000_000
DIRECTORY = b"directory".ljust(32)


def create(name: bytes, directory: bytes = DIRECTORY) -> Call:
    return Call(nfs3.PROGRAM, 3, 8, (opaque(directory) + opaque(name) + u32(0) + bytes(24),))


def asked(connection: Connection, call_: Call, answer: Reply, takes: int) -> None:
    exchange = call(connection, call_)
    connection.wire.pause(takes)
    reply(exchange, answer)


def getattrs(connection: Connection, count: int, takes: int = MILLISECOND) -> None:
    for _ in range(count):
        asked(connection, nfs3.getattr_(), nfs3.getattr_reply(), takes)


def lookup(connection: Connection, name: bytes, handle: bytes) -> None:
    call_ = Call(nfs3.PROGRAM, 3, 3, (opaque(FH) + opaque(name),))
    asked(connection, call_, Reply((u32(nfs3.OK) + opaque(handle) + nfs3.post_op() + nfs3.post_op(),)), MILLISECOND)


def healthy(wire: Wire) -> Connection:
    """GETATTRs of 1 ms, all of them answered."""
    connection = wire.connect()
    getattrs(connection, 20)
    return connection


def hung_server(wire: Wire, seconds: int = 46) -> Exchange:
    """The CREATE of export/w3 is never answered, nor is anything else; the client gives up and disconnects."""
    connection = healthy(wire)
    lookup(connection, b"export", DIRECTORY)
    hung = call(connection, create(b"w3"))
    wire.pause(seconds * SECOND)
    connection.disconnect()
    return hung


def one_call(wire: Wire, seconds: int = 46) -> Exchange:
    """A CREATE is never answered, while other calls are, until the capture ends."""
    connection = healthy(wire)
    lookup(connection, b"export", DIRECTORY)
    hung = call(connection, create(b"w3"))
    for _ in range(seconds):
        wire.pause(SECOND)
        getattrs(connection, 1)
    return hung


def saved(wire: Wire, path: Path) -> str:
    write_pcap(wire.frames(), path)
    return str(path)
