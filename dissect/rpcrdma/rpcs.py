"""Rpc: a call and its reply on one connection and direction, each as the whole RPC message."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Protocol

from ..named_tuple import NamedTuple
from ..onc.rpc_header import GssCredential
from ..transport.connection import Connection
from ..transport.operations import Operation
from ..units import duration
from .conversation import Conversation
from .messages import Message, Segment

EVENTS_LOST = "events of the trace were lost while it was under way"
"""A note: what is not told of it may have been among them."""
REPLY_NOT_SEEN = "it was answered; the reply is not told"
"""A note."""
DUPLICATE_REPLY = "duplicate reply"
"""The state of a second reply to a call; it is no RPC of its own."""


class Extent(NamedTuple):
    """A range of a reassembled message and where it came from."""

    start: int
    length: int
    origin: str
    """'inline', 'read chunk N', 'write chunk N', 'reply chunk', 'round-up'."""
    frame: int
    """0 where no frame carried it (round-up, a gap)."""
    missing: str
    """'' or why the bytes are not there: 'not captured', 'frame truncated', 'not transferred', 'not advertised'."""


class Reassembled(NamedTuple):
    """A whole RPC message as a TCP transport would have carried it, without the record mark.

    Missing bytes are ranges: what a hostile header claims costs no memory.
    """

    extents: tuple[Extent, ...]
    """Ascending, covering the message without overlap."""
    pieces: tuple[tuple[int, bytes], ...]
    """The captured bytes and their offsets, ascending; between two of them bytes are missing."""

    @property
    def length(self) -> int:
        return self.extents[-1].start + self.extents[-1].length if self.extents else 0

    @property
    def complete(self) -> bool:
        return not any(extent.missing for extent in self.extents)

    @property
    def prefix(self) -> bytes:
        """The bytes before the first missing one; of a complete message all."""
        return self.pieces[0][1] if self.pieces and not self.pieces[0][0] else b""

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The missing bytes [start, end), ascending."""
        return [(extent.start, extent.start + extent.length) for extent in self.extents if extent.missing]

    def captured(self, start: int, end: int) -> memoryview:
        """Bytes [start, end), of which none is missing."""
        return captured(self.pieces, start, end)


def captured(pieces: Sequence[tuple[int, bytes | bytearray]], start: int, end: int) -> memoryview:
    """Bytes [start, end), of which none is missing, of pieces with their offsets, ascending."""
    at, piece = pieces[bisect_right(pieces, start, key=itemgetter(0)) - 1]
    return memoryview(piece)[start - at : end - at]


@dataclass(slots=True)
class SegmentUse:
    """One advertised segment and the operations on it."""

    advertised: Segment
    returned: int | None = None
    """Write and Reply chunks: the length that the reply gave back."""
    operations: list[Operation] = field(default_factory=list)
    late: tuple[Operation, ...] = ()
    """RDMA Writes on it that followed the reply: whether its receiver had read the memory before is undecidable."""
    doubtful: tuple[Operation, ...] = ()
    """Reads or Writes that the capture shows before the call: whether they are for an earlier one is undecidable."""
    contested: bool = False
    """Open calls shared the memory, and which of them an Operation on it was for is undecidable."""

    @property
    def used_by(self) -> int | None:
        """How many Reads or Writes used it; None where they were not seen."""
        return len(self.operations)

    @property
    def transferred(self) -> int:
        """Bytes of the segment that the Reads or Writes on it announced, each counted once."""
        _, length, start = self.advertised
        end = reached = start
        for operation in self.operations:
            if operation.address != end:
                break
            end += operation.length
        else:  # One behind the other, as nearly always.
            return min(end - start, length)
        end = start + length
        total = 0
        for operation in sorted(self.operations, key=attrgetter("address")):
            first = operation.address
            last = first + operation.length
            if last > end:
                last = end
            if last > reached:
                total += last - (first if first > reached else reached)
                reached = last
        return total


@dataclass(slots=True)
class ChunkUse:
    """A chunk that a call advertised, and what was done with it."""

    kind: str
    """'read', 'write' or 'reply'."""
    position: int | None
    """Read chunks: the Position."""
    segments: list[SegmentUse]

    @property
    def advertised(self) -> int:
        return sum([use.advertised.length for use in self.segments])

    @property
    def returned(self) -> int | None:
        """Bytes written, as the reply returns them; None for Read chunks and where no reply was seen."""
        lengths = [use.returned for use in self.segments if use.returned is not None]
        return sum(lengths) if lengths else None

    @property
    def transferred(self) -> int:
        """Bytes of its segments that RDMA Reads or Writes announced, each counted once."""
        if len(self.segments) == 1:
            return self.segments[0].transferred
        return sum([use.transferred for use in self.segments])


class Latency(NamedTuple):
    """The parts of an RPC's time, in nanoseconds; they add up to ``total``, or all are 0 where only that is known."""

    total: int
    """First packet of the call's Send to last packet of the reply's Send.  Where a loss hid the first transmission of
    the call, or the reply had to be retransmitted, it begins at the loss, and ends at the retransmission."""
    call: int
    """The call's Send, first to last packet."""
    reads: int
    """First RDMA Read request to last response."""
    server: int
    """All the rest: neither data nor messages on the wire."""
    writes: int
    """First to last packet of the RDMA Writes."""
    reply: int
    """The reply's Send, first to last packet."""
    retransmission: int = 0
    """In none of the others: it waited until what was lost had been retransmitted, see ``retransmission_waits``."""


CREDITS = "credits"


class HostTimes(NamedTuple):
    """Where an RPC's time went inside the hosts, as their kernels' traces tell it: nanoseconds, None where none does.

    The client's phases, ``queued`` to ``decoded``, add up to what it waited in all; the server's, ``received`` to
    ``sent``, to the time from its receive completion to the completion of the reply's Send.
    """

    queued: int | None = None
    """For a slot, the connection, credits, memory registrations, and the client's own threads."""
    encoded: int | None = None
    """XDR and, without chunks, the transport header."""
    registered: int | None = None
    """Memory mapped and registered, chunk lists written; 0 without chunks."""
    posted: int | None = None
    """The Send handed to the adapter."""
    wire: int | None = None
    """Until the completion of the reply's receive: network and server."""
    completed: int | None = None
    """Until the reply is handled."""
    invalidated: int | None = None
    """Memory registrations revoked by the client itself; 0 where the reply did it, or none had to be."""
    woken: int | None = None
    """Until the task runs again."""
    decoded: int | None = None
    received: int | None = None
    """Until a thread has it, and has decoded its header, without the next."""
    thread: int | None = None
    """The thread of nfsd that took it was at another call: none was free."""
    reads: int | None = None
    """RDMA Reads; 0 without Read chunks."""
    executed: int | None = None
    """Carried out, but for the next."""
    file_system: int | None = None
    """READ, WRITE and COMMIT in the file system."""
    writes: int | None = None
    """RDMA Writes that were not complete when the reply was; 0 without any."""
    sent: int | None = None
    """Until the reply's Send is complete."""
    answered: int | None = None
    """By the server in all: from its receive completion until the reply's Send is posted."""
    network: int | None = None
    """Of ``wire``, what the server did not take: where both hosts tell."""
    registration_wait: int | None = None
    """Of ``queued``: no memory registration was free, for it or for one that was to be sent before it."""
    failed_registrations: int | None = None
    """How often."""
    waits: tuple[tuple[str, int], ...] = ()
    """Of ``queued``: nanoseconds on each wait queue of the kernel, by its name; CREDITS: on that of who may send,
    while no credit was left."""
    local_invalidations: int | None = None


@dataclass(slots=True)
class HostTrouble:
    """What went wrong in a host's transport, as the trace of its kernel tells."""

    kind: str
    """'completion' (of a work request, with an error), or 'resent' (a call, on another connection)."""
    words: str
    count: int = 0
    time: int = 0
    """Nanoseconds; of the first."""
    frames: list[int] = field(default_factory=list)
    """The first of them."""
    rpcs: list[int] = field(default_factory=list)


class Named(Protocol):
    """What calls name, by number of the RPC."""

    def path(self, number: int) -> str | None: ...
    def user(self, number: int) -> str | None: ...


@dataclass(slots=True, eq=False, repr=False)
class Rpc:
    """A call, its reply, or both.

    ``state`` is one of: complete; error (the reply says the call failed, at the RDMA, RPC or program level);
    damaged (bytes are missing, see ``damage``); undecidable (nothing is missing, but which call a reply answers, or
    which bytes are the right ones, see ``damage``); no reply; no call; duplicate reply (to an Rpc that has one: counted
    apart from RPCs).
    """

    number: int
    """1-based, in the order of calls, and of replies without one."""
    conversation: Conversation
    backward: bool
    """The call came from the server (RFC 8167)."""
    xid: int
    call: Message | None = None
    reply: Message | None = None
    program: int | None = None
    version: int | None = None
    procedure: int | None = None
    minor_version: int | None = None
    """NFSv4 COMPOUND and CB_COMPOUND."""
    gss: GssCredential | None = None
    """The RPCSEC_GSS credential of the call; without it a reply's results may be wrapped unseen."""
    operations: tuple[str, ...] = ()
    """Operation names of a COMPOUND, in call order."""
    name: str = ""
    """Procedure name: 'READ', 'COMPOUND', 'proc-7'; '' where unknown."""
    status: str = ""
    """'' while unknown, 'OK', or the failure's name: 'NFS3ERR_NOENT', 'PROG_MISMATCH', 'RDMA_ERR_CHUNK'."""
    failed: bool = False
    """The reply reports an error."""
    state: str = ""
    contents: str = "whole"
    """'whole'; 'truncated' where the capture truncated frames; 'missing' where bytes are not in it at all;
    'undecidable' where all are there, but which of them the receiver took is not known."""
    damage: tuple[str, ...] = ()
    """What is missing or contradictory, in words."""
    notes: tuple[str, ...] = ()
    """What was inferred or is odd, in words."""
    chunks: list[ChunkUse] = field(default_factory=list)
    latency: Latency | None = None
    outstanding: int | None = None
    """Nanoseconds from a call without a reply to the end of its connection or of the capture: it took longer.  None
    with a reply, and where a reply may be missing from the capture."""
    order: int = 0
    """Its place among the calls of its direction."""
    ambiguous: bool = False
    """Nothing tells which of several calls with one XID a reply answers."""
    retransmission_delay: int = 0
    """Nanoseconds that it waited for retransmissions, see ``retransmission_waits``."""
    claimed: tuple[Operation, ...] = ()
    """Of a reply without a call: the RDMA Writes before it on the memory that it returns."""
    named: Named | None = None
    """What its call names; None: it was not asked for."""
    host: HostTimes | None = None
    """What traces of its hosts' kernels tell."""

    def __repr__(self) -> str:
        """One line: of an RPC with all its chunks and bytes there would be thousands."""
        latency = duration(self.latency.total) if self.latency is not None else "no latency"
        words = self.name or "unknown", *self.operations, self.status or self.state, latency
        return f"<RPC {self.number} on connection {self.connection.number}: {' '.join(words)}>"

    @property
    def connection(self) -> Connection:
        return self.conversation.connection

    @property
    def time(self) -> int | None:
        """Nanoseconds since the Unix epoch: the first packet of the call, or of a reply without one; None: neither."""
        return self.first_time if self.call is not None or self.reply is not None else None

    @property
    def client(self) -> str:
        """The client's address."""
        return self.connection.endpoints[0].address

    @property
    def server(self) -> str:
        """The server's address."""
        return self.connection.endpoints[1].address

    @property
    def path(self) -> str | None:
        """The path of the file that the call names, by its name at that time, as far as it is known now."""
        return None if self.named is None else self.named.path(self.number)

    @property
    def user(self) -> str | None:
        """Who calls: the user ID of AUTH_SYS, or ``gss:`` and the context handle of RPCSEC_GSS."""
        return None if self.named is None else self.named.user(self.number)

    @property
    def waiting(self) -> int | None:
        """Nanoseconds from the call to its reply, or for which it is outstanding, a lower bound; None: not known."""
        return self.outstanding if self.latency is None else self.latency.total

    def detach(self) -> None:
        """Hold copies of its bytes: it may wait for long, and the batches of frames that they came in are large."""
        for message in (self.call, self.reply):
            if message is not None:
                message.detach()
        for chunk in self.chunks:
            for use in chunk.segments:
                for operation in use.operations:
                    operation.payload.detach()

    def own_rows(self) -> None:
        """It stays open behind a batch, of which it holds only what is its own."""
        for operation in self.data_operations:
            operation.payload.own_rows()

    @property
    def psn_errors(self) -> list[Operation]:
        """Those of its Operations whose sender reused a PSN for them."""
        if not self.connection.reused_psns:
            return []
        return [operation for operation in self.data_operations if operation.reused]

    @property
    def call_bytes(self) -> int:
        """RPC bytes of the call: inline and by Read chunk."""
        inline = self.call.inline_length if self.call is not None else 0
        return inline + sum([chunk.transferred for chunk in self.chunks if chunk.kind == "read"])

    @property
    def reply_bytes(self) -> int:
        """RPC bytes of the reply: inline, by Write chunk and by Reply chunk."""
        inline = self.reply.inline_length if self.reply is not None else 0
        return inline + sum([chunk.transferred for chunk in self.chunks if chunk.kind != "read"])

    @property
    def call_frame(self) -> int:
        """The first frame of the call's Send; 0 without a call."""
        return self.call.operation.first_frame if self.call is not None else 0

    @property
    def reply_frame(self) -> int:
        """The last frame of the reply's Send; 0 without a reply."""
        return self.reply.operation.last_frame if self.reply is not None else 0

    @property
    def first_frame(self) -> int:
        """The first frame of the call, or of a reply without one; 0: neither."""
        message = self.call or self.reply
        return message.operation.first_frame if message is not None else 0

    @property
    def first_time(self) -> int:
        """Nanoseconds: the first packet of the call, or of a reply without one."""
        message = self.call or self.reply
        return message.operation.first_time if message is not None else 0

    @property
    def last_frame(self) -> int:
        """The last frame of the reply, or of a call without one; 0: neither."""
        message = self.reply or self.call
        return message.operation.last_frame if message is not None else 0

    @property
    def retransmissions(self) -> int:
        """Retransmitted packets of this RPC."""
        return sum(operation.retransmissions for operation in self.data_operations)

    @property
    def data_operations(self) -> list[Operation]:
        """All that carried it, each once: its Sends, and the Reads and Writes of its chunks."""
        operations = [message.operation for message in (self.call, self.reply) if message]
        if self.chunks:
            transfers = {id(op): op for chunk in self.chunks for use in chunk.segments for op in use.operations}
            operations += transfers.values()
        return operations
