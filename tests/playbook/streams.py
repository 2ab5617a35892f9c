"""An iWARP conversation by hand, and the Operations that the observer finds in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.tcp import locate_tcp
from rdmascope.dissect.transport.connection import Connection, Registry
from rdmascope.dissect.transport.iwarp.observer import IwarpObserver
from rdmascope.dissect.transport.operations import Kind, Operation

from .capture import frame_batches
from .segments import Segment, Talk, pattern, read_request, response, send, write


class Seen(NamedTuple):
    kind: Kind
    initiator: int
    handle: int
    address: int
    data: bytes | None
    """None where bytes are missing."""


def observe(
    talk: Talk,
    segments: Sequence[Segment] | None = None,
    cuts: Sequence[int] = (),
    ports: frozenset[int] = frozenset({20049}),
) -> tuple[IwarpObserver, list[Operation]]:
    connections: list[Connection] = []
    observer = IwarpObserver(Registry(connections), ports)
    events = []
    for batch in frame_batches(talk.frames(segments), cuts):
        rows = locate_tcp(batch, locate(batch, AddressTable()).tcp, observer.addresses)
        events += observer.feed(batch.data, rows)
    events += observer.finish()
    return observer, [operation for _, _, operation in events]


def contents(operation: Operation) -> bytes | None:
    payload = operation.payload
    if not payload.whole:
        return None
    pieces = list(payload.pieces())
    return b"".join(piece.data[piece.offset : piece.offset + piece.captured].tobytes() for piece in pieces)


def seen(operations: Sequence[Operation]) -> list[Seen]:
    return [Seen(one.kind, one.initiator, one.handle, one.address, contents(one)) for one in operations]


CALL, DATA, LONG, REPLY = (pattern(number, length) for number, length in enumerate((90, 5000, 70_000, 101)))


def talk(**how: object) -> Talk:
    """A call, an RDMA Write of 5,000 bytes, an RDMA Read of 70,000, and the reply."""
    made = Talk()
    made.open()
    made.greet(**how)  # type: ignore[arg-type]
    made.say(0, send(1, CALL))
    made.say(1, write(0x11, 0x1000, DATA, 1400))
    made.say(1, read_request(1, (0x77, 0x500), len(LONG), (0x22, 0x9000)))
    for ulpdu in response(0x77, 0x500, LONG, 1400):
        made.say(0, [ulpdu])
    made.say(1, send(1, REPLY, invalidate=0x11))
    made.acknowledge(0)
    return made


WHOLE = [
    Seen(Kind.SEND, 0, 0, 0, CALL),
    Seen(Kind.WRITE, 1, 0x11, 0x1000, DATA),
    Seen(Kind.READ, 1, 0x22, 0x9000, LONG),
    Seen(Kind.SEND, 1, 0, 0, REPLY),
]
