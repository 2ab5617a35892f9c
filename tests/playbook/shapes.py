"""Whole RPCs of the commonest shapes, in one word each."""

from __future__ import annotations

from . import nfs3
from .rpcrdma import call, fetch, reply
from .wire import Connection

DATA = bytes(number * 7 & 0xFF for number in range(8192))


def read(connection: Connection, data: bytes = DATA) -> None:
    """NFSv3 READ through one Write chunk."""
    rpc = call(connection, nfs3.read(0, len(data)), writes=[connection.register(len(data))])
    reply(rpc, nfs3.read_reply(data))


def write(connection: Connection, data: bytes = DATA) -> None:
    """NFSv3 WRITE through one Read chunk."""
    rpc = call(connection, nfs3.write(0, data), reads={0: connection.register(len(data))})
    fetch(rpc)
    reply(rpc, nfs3.write_reply(len(data)))
