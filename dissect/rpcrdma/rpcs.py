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
"""A note: the lost events may have told what is unknown about the RPC."""
REPLY_NOT_SEEN = "it was answered; the reply is not told"
"""A note: the trace shows that there was a reply, but not the reply itself."""
DUPLICATE_REPLY = "duplicate reply"
"""The state of a second reply to a call, which does not count as an RPC."""


class Extent(NamedTuple):
    """A range of a reassembled message and where it came from."""

    start: int
    length: int
    origin: str
    """'inline', 'read chunk N', 'write chunk N', 'reply chunk', 'round-up'."""
    frame: int
    """0 if no frame carried it (round-up, a gap)."""
    missing: str
    """'', or why the bytes are missing: 'not captured', 'frame truncated', 'not transferred', 'not advertised'."""


class Reassembled(NamedTuple):
    """A whole RPC message as a TCP transport would have carried it, without the record mark.

    Missing bytes are stored as ranges: the length that a hostile header claims costs no memory.
    """

    extents: tuple[Extent, ...]
    """Ascending, covering the message without overlap."""
    pieces: tuple[tuple[int, bytes], ...]
    """The captured bytes with their offsets, ascending; the bytes between two pieces are missing."""

    @property
    def length(self) -> int:
        return self.extents[-1].start + self.extents[-1].length if self.extents else 0

    @property
    def complete(self) -> bool:
        return not any(extent.missing for extent in self.extents)

    @property
    def prefix(self) -> bytes:
        """The bytes before the first missing one; all bytes of a complete message."""
        return self.pieces[0][1] if self.pieces and not self.pieces[0][0] else b""

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The missing bytes [start, end), ascending."""
        return [(extent.start, extent.start + extent.length) for extent in self.extents if extent.missing]

    def captured(self, start: int, end: int) -> memoryview:
        """Bytes [start, end), none of which may be missing."""
        return captured(self.pieces, start, end)


def captured(pieces: Sequence[tuple[int, bytes | bytearray]], start: int, end: int) -> memoryview:
    """Bytes [start, end), none of which may be missing, of pieces with their offsets, ascending."""
    at, piece = pieces[bisect_right(pieces, start, key=itemgetter(0)) - 1]
    return memoryview(piece)[start - at : end - at]


@dataclass(slots=True)
class SegmentUse:
    """One advertised segment and the Operations on it."""

    advertised: Segment
    returned: int | None = None
    """Write and Reply chunks: the length that the reply returned."""
    operations: list[Operation] = field(default_factory=list)
    late: tuple[Operation, ...] = ()
    """RDMA Writes on it after the reply: whether the client had read the memory before is undecidable."""
    doubtful: tuple[Operation, ...] = ()
    """Reads or Writes that the capture shows before the call: they may be for an earlier call."""
    contested: bool = False
    """Several open calls shared the memory, and an Operation on it may be for any of them."""

    @property
    def used_by(self) -> int | None:
        """Number of Reads or Writes that used it; None if they were not seen."""
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
        else:  # In order without gaps, as nearly always.
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
        """Bytes written, as the reply returned them; None for Read chunks, and without a reply."""
        lengths = [use.returned for use in self.segments if use.returned is not None]
        return sum(lengths) if lengths else None

    @property
    def transferred(self) -> int:
        """Bytes of its segments that RDMA Reads or Writes announced, each counted once."""
        if len(self.segments) == 1:
            return self.segments[0].transferred
        return sum([use.transferred for use in self.segments])


class Latency(NamedTuple):
    """The parts of an RPC's time, in nanoseconds; they add up to ``total``, or are all 0 if only ``total`` is known."""

    total: int
    """First packet of the call's Send to last packet of the reply's Send.  It begins at the loss if that hid the first
    transmission of the call, and ends at the retransmission if the reply had to be retransmitted."""
    call: int
    """The call's Send, first to last packet."""
    reads: int
    """First RDMA Read request to last response."""
    server: int
    """The rest: no data or messages were on the wire."""
    writes: int
    """First to last packet of the RDMA Writes."""
    reply: int
    """The reply's Send, first to last packet."""
    retransmission: int = 0
    """The wait until lost packets had been retransmitted, not part of the others; see ``retransmission_waits``."""


CREDITS = "credits"


class HostTimes(NamedTuple):
    """Where an RPC's time went inside the hosts, as their kernels' traces tell: nanoseconds, None if no trace tells.

    The client's phases, ``queued`` to ``decoded``, add up to its whole wait; the server's, ``received`` to ``sent``, to
    the time from the receive completion of the call to the completion of the reply's Send.
    """

    queued: int | None = None
    """Waiting for a slot, the connection, credits, memory registrations, and the client's own threads."""
    encoded: int | None = None
    """XDR and, without chunks, the transport header."""
    registered: int | None = None
    """Mapping and registering memory, encoding chunk lists; 0 without chunks."""
    posted: int | None = None
    """Posting the Send to the adapter."""
    wire: int | None = None
    """Until the completion of the reply's receive: network and server."""
    completed: int | None = None
    """Until the reply handler runs."""
    invalidated: int | None = None
    """Local invalidation of memory registrations; 0 if the reply invalidated them, or there were none."""
    woken: int | None = None
    """Until the task runs again."""
    decoded: int | None = None
    received: int | None = None
    """Until a thread has it and has decoded its header, without ``thread``."""
    thread: int | None = None
    """Waiting for an nfsd thread: the one that took it was busy, as none was free."""
    reads: int | None = None
    """RDMA Reads; 0 without Read chunks."""
    executed: int | None = None
    """Executing it, without ``file_system``."""
    file_system: int | None = None
    """READ, WRITE and COMMIT in the file system."""
    writes: int | None = None
    """RDMA Writes that completed later than the reply was ready; 0 without any."""
    sent: int | None = None
    """Until the reply's Send is complete."""
    answered: int | None = None
    """The server's whole time: from the receive completion of the call until the reply's Send is posted."""
    network: int | None = None
    """``wire`` without the server's time; needs the traces of both hosts."""
    registration_wait: int | None = None
    """Part of ``queued``: no memory registration was free for it, or for a call that had to be sent first."""
    failed_registrations: int | None = None
    """How often registering memory failed."""
    waits: tuple[tuple[str, int], ...] = ()
    """Parts of ``queued``: nanoseconds on each wait queue of the kernel, by its name; CREDITS: on the sending queue,
    while no credit was left."""
    local_invalidations: int | None = None


@dataclass(slots=True)
class HostTrouble:
    """What went wrong in a host's transport, according to its kernel's trace."""

    kind: str
    """'completion' (of a work request, with an error), or 'resent' (a call, on another connection)."""
    words: str
    count: int = 0
    time: int = 0
    """Nanoseconds; of the first occurrence."""
    frames: list[int] = field(default_factory=list)
    """Frames of the first occurrences."""
    rpcs: list[int] = field(default_factory=list)


class Named(Protocol):
    """The paths and users that calls name, by RPC number."""

    def path(self, number: int) -> str | None: ...
    def user(self, number: int) -> str | None: ...


@dataclass(slots=True, eq=False, repr=False)
class Rpc:
    """A call, its reply, or both.

    ``state`` is one of: complete; error (the reply says the call failed, at the RDMA, RPC or program level);
    damaged (bytes are missing, see ``damage``); undecidable (nothing is missing, but it is unknown which call a reply
    answers or which bytes are right, see ``damage``); no reply; no call; duplicate reply (to an Rpc that has a reply;
    not counted as an RPC).
    """

    number: int
    """1-based, in the order of calls; a reply without a call counts as one."""
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
    """The RPCSEC_GSS credential of the call; if the call is unknown, results may be wrapped unnoticed."""
    operations: tuple[str, ...] = ()
    """Operation names of a COMPOUND, in call order."""
    name: str = ""
    """Procedure name: 'READ', 'COMPOUND', 'proc-7'; '' if unknown."""
    status: str = ""
    """'' if unknown, 'OK', or the failure's name: 'NFS3ERR_NOENT', 'PROG_MISMATCH', 'RDMA_ERR_CHUNK'."""
    failed: bool = False
    """The reply reports an error."""
    state: str = ""
    contents: str = "whole"
    """'whole'; 'truncated' if the capture truncated frames; 'missing' if it lacks bytes altogether; 'undecidable' if it
    has all bytes, but which of them the receiver took is unknown."""
    damage: tuple[str, ...] = ()
    """What is missing or contradictory, in words."""
    notes: tuple[str, ...] = ()
    """What was inferred or is odd, in words."""
    chunks: list[ChunkUse] = field(default_factory=list)
    latency: Latency | None = None
    outstanding: int | None = None
    """Nanoseconds from an unanswered call to the end of its connection or of the capture, a lower bound.  None with a
    reply, and if the capture may lack the reply."""
    order: int = 0
    """Its rank among the calls of its direction, from 1; 0 without a call."""
    ambiguous: bool = False
    """Undecidable which of several calls with one XID the reply answers."""
    retransmission_delay: int = 0
    """Nanoseconds that it waited for retransmissions; see ``retransmission_waits``."""
    claimed: tuple[Operation, ...] = ()
    """For a reply without a call: the RDMA Writes before it on the memory that it returns."""
    named: Named | None = None
    """What its call names; None if that was not asked for."""
    host: HostTimes | None = None
    """What the traces of its hosts' kernels tell."""

    def __repr__(self) -> str:
        """One line: the fields with all chunks and bytes would fill thousands."""
        latency = duration(self.latency.total) if self.latency is not None else "no latency"
        words = self.name or "unknown", *self.operations, self.status or self.state, latency
        return f"<RPC {self.number} on connection {self.connection.number}: {' '.join(words)}>"

    @property
    def connection(self) -> Connection:
        return self.conversation.connection

    @property
    def time(self) -> int | None:
        """Nanoseconds since the Unix epoch: the first packet of the call, or of a reply without a call; None:
        neither."""
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
        """The path of the file that the call names, as it was named at that time and as far as is known so far."""
        return None if self.named is None else self.named.path(self.number)

    @property
    def user(self) -> str | None:
        """The caller: the user ID of AUTH_SYS, or ``gss:`` and the context handle of RPCSEC_GSS."""
        return None if self.named is None else self.named.user(self.number)

    @property
    def waiting(self) -> int | None:
        """Nanoseconds from the call to its reply or, as a lower bound, as long as it is outstanding; None: unknown."""
        return self.outstanding if self.latency is None else self.latency.total

    def detach(self) -> None:
        """Copy its bytes: it may stay for long, and the batches of frames that they came in are large."""
        for message in (self.call, self.reply):
            if message is not None:
                message.detach()
        for chunk in self.chunks:
            for use in chunk.segments:
                for operation in use.operations:
                    operation.payload.detach()

    def own_rows(self) -> None:
        """Keep only its own rows of a batch, as it stays open after it."""
        for operation in self.data_operations:
            operation.payload.own_rows()

    @property
    def psn_errors(self) -> list[Operation]:
        """The Operations for which the sender reused a PSN."""
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
        """The first frame of the call, or of a reply without a call; 0: neither."""
        message = self.call or self.reply
        return message.operation.first_frame if message is not None else 0

    @property
    def first_time(self) -> int:
        """Nanoseconds since the Unix epoch: the first packet of the call, or of a reply without a call."""
        message = self.call or self.reply
        return message.operation.first_time if message is not None else 0

    @property
    def last_frame(self) -> int:
        """The last frame of the reply, or of a call without a reply; 0: neither."""
        message = self.reply or self.call
        return message.operation.last_frame if message is not None else 0

    @property
    def retransmissions(self) -> int:
        """Retransmitted packets of this RPC."""
        return sum(operation.retransmissions for operation in self.data_operations)

    @property
    def data_operations(self) -> list[Operation]:
        """Its Sends and the Reads and Writes of its chunks, each once."""
        operations = [message.operation for message in (self.call, self.reply) if message]
        if self.chunks:
            transfers = {id(op): op for chunk in self.chunks for use in chunk.segments for op in use.operations}
            operations += transfers.values()
        return operations
