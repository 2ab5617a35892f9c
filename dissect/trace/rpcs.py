"""RPCs made of what a trace tells: messages without bytes, and chunks with what was returned of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ..layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from ..onc.rpc_header import MOUNT, NFS, NFS_CALLBACK, NFSACL, NLM, PORTMAP, PROCEDURES, STATUS_MONITOR, procedure_name
from ..onc.shapes.decode_cache import NO_FIELDS
from ..onc.status import nfs4_status
from ..onc.statuses import NFS3_STATUS
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.messages import HEADER, Message, ReadChunk, Segment, TransportHeader, WriteChunk
from ..rpcrdma.rpc_fields import KnownRpc
from ..rpcrdma.rpcs import ChunkUse, SegmentUse
from ..transport.operations import SEND, Operation, Payload

PROGRAMS = {
    "nfs": NFS, "nfsd": NFS, "nfsacl": NFSACL, "mount": MOUNT, "rpcbind": PORTMAP, "portmap": PORTMAP,
    "lockd": NLM, "nlm": NLM, "statd": STATUS_MONITOR, "nsm": STATUS_MONITOR,
    "nfs4_cb": NFS_CALLBACK, "NFSv4 callback": NFS_CALLBACK,
}  # fmt: skip
"""What Linux calls programs, as client and as server."""
NOT_IN_TRACE = "missing"
"""``Rpc.contents``: a trace tells of messages, and has none of their bytes."""
_NUMBERS = {(key, name): number for key, names in PROCEDURES.items() for number, name in enumerate(names)}


class Received(NamedTuple):
    """A receive completion."""

    number: int
    time: int
    length: int
    queue: int | None = None
    """Its completion queue, where told."""


@dataclass(slots=True)
class TracedSegment(SegmentUse):
    """A segment of which no RDMA Read or Write was seen, but how many bytes they moved may be told."""

    moved: int = 0

    @property
    def used_by(self) -> int | None:
        return None

    @property
    def transferred(self) -> int:
        return self.moved


def traced_rpc(number: int, conversation: Conversation, xid: int, order: int, backward: bool) -> KnownRpc:
    """One that has its call alone."""
    rpc = KnownRpc(number, conversation, backward, xid, contents=NOT_IN_TRACE, order=order)
    rpc.fields, rpc.moved, rpc.opened = NO_FIELDS, None, None
    return rpc


def name_call(rpc: KnownRpc, program: str, version: int | None, procedure: str | int) -> None:
    """As Linux calls them.  Its client has names of its own for COMPOUNDs, of whose operations nothing is told.

    The server of 5.10 tells a procedure by its number.
    """
    rpc.program, rpc.version = PROGRAMS.get(program), version
    if isinstance(procedure, int) or procedure.isdecimal():
        rpc.procedure = int(procedure)
        rpc.name = procedure_name(rpc.program or 0, version or 0, rpc.procedure)
        return
    rpc.name = procedure
    if rpc.program is None or version is None:
        return
    rpc.procedure = _NUMBERS.get(((rpc.program, version), procedure))
    if rpc.procedure is None and rpc.program == NFS and version == 4:
        rpc.procedure = 1
        rpc.fields = rpc.fields._replace(linux=procedure)


def message(
    sender: int,
    number: int,
    time: int,
    xid: int,
    credits: int | None,
    length: int,
    header: int = HEADER,
    inline: int | None = None,
    procedure: int | None = RDMA_MSG,
) -> Message:
    """A Send of ``length`` bytes that a trace tells of, ``header`` of them the transport header; ``number`` and
    ``time`` of the event."""
    operation = Operation(SEND, sender, number, number, time, time, length, Payload())
    known = TransportHeader(xid, 1, credits, procedure, length=header)
    return Message(operation, known, _NOTHING, 0, 0, max(0, length - header) if inline is None else inline)


def add_lists(header: TransportHeader, chunks: list[ChunkUse], returned: bool) -> None:
    """The chunk lists of a call, or of the reply that gives them back."""
    for chunk in chunks:
        segments = tuple(
            use.advertised._replace(length=use.returned or 0) if returned else use.advertised for use in chunk.segments
        )
        if chunk.kind == "read":
            header.reads = header.reads if returned else (*header.reads, ReadChunk(chunk.position or 0, segments))
        elif chunk.kind == "write":
            header.writes = (*header.writes, WriteChunk(segments))
        else:
            header.reply = WriteChunk(segments)


_NOTHING = memoryview(b"")


class TracedChunks:
    """Those of one call, in the order in which they are told."""

    __slots__ = ("reads", "reply", "writes")

    def __init__(self) -> None:
        self.reads: list[ChunkUse] = []
        self.writes: list[ChunkUse] = []
        self.reply: list[ChunkUse] = []

    def read(self, position: int | None, segment: Segment) -> None:
        """A segment of a Read chunk; None: its Position is not told."""
        if not self.reads or self.reads[-1].position != position:
            self.reads.append(ChunkUse("read", position, []))
        self.reads[-1].segments.append(TracedSegment(segment))

    def all(self) -> list[ChunkUse]:
        """In the order of the header."""
        return [*self.reads, *self.writes, *self.reply]

    def returned(self, handle: int, length: int, offset: int) -> None:
        """A segment that the reply gives back."""
        for chunk in (*self.writes, *self.reply):
            for use in chunk.segments:
                if use.returned is None and use.advertised.handle == handle and use.advertised.offset == offset:
                    use.returned = length
                    assert isinstance(use, TracedSegment)
                    use.moved = length
                    return

    def finish_reads(self) -> None:
        """What was advertised was read: the call was carried out."""
        for chunk in self.reads:
            for use in chunk.segments:
                assert isinstance(use, TracedSegment)
                use.moved = use.advertised.length


def reply_header(chunks: list[ChunkUse]) -> tuple[int, int]:
    """Bytes of the transport header of a reply that returns these chunks of a call, and its procedure (RFC 8166, 4)."""
    length, procedure = HEADER, RDMA_MSG
    for chunk in chunks:
        if chunk.kind == "write":
            length += 8 + 16 * len(chunk.segments)
        elif chunk.kind == "reply" and chunk.returned is not None:
            length, procedure = length + 4 + 16 * len(chunk.segments), RDMA_NOMSG
    return length, procedure


def nfs_status(version: int | None, status: int) -> str:
    """'OK', 'NFS3ERR_NOENT', 'NFS4ERR_DELAY'; 'nfsstat3 N' for an unknown one."""
    return nfs4_status(status) if version == 4 else NFS3_STATUS.get(status) or f"nfsstat3 {status}"


def spans(moments: Sequence[int | None], end: int | None = None) -> list[int | None]:
    """Between each two moments, none of which is before one in front of it or behind ``end``; None: not told."""
    known: list[int | None] = []
    before = None
    for moment in moments:
        if moment is not None:
            before = moment if before is None else max(before, moment)
            before = before if end is None else min(before, end)
        known.append(before)
    return [None if first is None or last is None else last - first for first, last in pairwise(known)]
