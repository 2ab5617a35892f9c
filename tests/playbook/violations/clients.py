"""What a client refuses by RDMA_ERROR, and in which version it does."""

from __future__ import annotations

from collections.abc import Callable

from .. import nfs3
from ..rpc import u32
from ..rpcrdma import call, reply
from ..wire import Connection, Wire
from .scripts import CLIENT, SERVER, announced, answer, callback, hello, opened, refuse
from .variations import breaks

Refused = Callable[[Connection], int]
"""Sends what is refused; gives its XID."""


def reply_that_cannot_be_read(connection: Connection) -> int:
    xid = call(connection, nfs3.getattr_()).true.xid
    text = u32(xid, connection.version, 32, 0) + (u32(1) if connection.version == 2 else b"")
    connection.send(SERVER, text + u32(2, 0, 0) + answer(nfs3.getattr_reply(), xid))
    return xid


def reply_that_can(connection: Connection) -> int:
    rpc = call(connection, nfs3.getattr_())
    reply(rpc, nfs3.getattr_reply())
    return rpc.true.xid


def done(connection: Connection) -> int:
    connection.send(SERVER, u32(7, connection.version, 32, 3))
    return 7


def error_without_a_known_code(connection: Connection) -> int:
    xid = call(connection, nfs3.getattr_()).true.xid
    refuse(connection, xid, 7)
    return xid


def recall(connection: Connection) -> int:
    return callback(connection).true.xid


def _refusals(what: Refused, *rules: str, versions: tuple[int, ...] = (1, 2)) -> None:
    """Refuse it in its own version, in the other one, and in one that there is not."""

    def refused(wire: Wire, choose: Callable[[int], int]) -> None:
        connection = announced(wire) if what is recall else opened(wire)
        xid = what(connection)
        refuse(connection, xid, sender=CLIENT, version=choose(connection.version))
        hello(connection)

    def own(wire: Wire) -> None:
        refused(wire, lambda version: version)

    def other(wire: Wire) -> None:
        refused(wire, lambda version: 3 - version)

    def unknown(wire: Wire) -> None:
        refused(wire, lambda _: 7)

    for script in (own, other, unknown):
        script.__name__ = f"{what.__name__}_refused_in_{script.__name__}_version"
        breaks(*rules, *(() if script is own else ("V1-ERROR-VERSION",)), versions=versions)(script)


_refusals(reply_that_cannot_be_read, "V1-HEADER-XDR")
_refusals(reply_that_can)
_refusals(recall)
_refusals(done, "V1-PROC-DONE", versions=(1,))
_refusals(done, "V2-PROC", versions=(2,))
_refusals(error_without_a_known_code, "V1-ERROR-CODE", "V1-ERROR-OF-ERROR", versions=(1,))
_refusals(error_without_a_known_code, "V2-ERROR-CODE", "V1-ERROR-OF-ERROR", versions=(2,))
