"""RPCs made from a trace: messages without bytes, and chunks with what was returned of them; numbered as they are
called, and given out as they end.  And their connections: completion queues, and what the trace tells of the ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from ..named_tuple import NamedTuple
from ..onc.rpc_header import MOUNT, NFS, NFS_CALLBACK, NFSACL, NLM, PORTMAP, PROCEDURES, STATUS_MONITOR, procedure_name
from ..onc.shapes.decode_cache import NO_FIELDS
from ..onc.status import NFS3_STATUS, nfs4_status
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.listeners import Listener
from ..rpcrdma.messages import HEADER, Message, ReadChunk, Segment, TransportHeader, WriteChunk
from ..rpcrdma.rpc_fields import KnownRpc
from ..rpcrdma.rpcs import EVENTS_LOST, ChunkUse, HostTrouble, Rpc, SegmentUse
from ..transport.connection import Connection, Endpoint
from ..transport.operations import SEND, Operation, Payload
from .events import Event

_NO_LISTENER = Listener()
MAX_EXAMPLES = 5
FLUSHED = 5
WC_STATUSES = dict(enumerate((
    "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR",
    "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR",
    "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR",
)))  # fmt: skip
"""Names of work completion statuses (include/rdma/ib_verbs.h)."""


class RpcLog:
    """Collects the RPCs of both sides."""

    def __init__(self, listeners: dict[int, Listener], troubles: list[HostTrouble]) -> None:
        """``listeners``: by connection number; ``troubles``: the list to append to."""
        self._listeners, self._troubles = listeners, troubles
        self._orders: Counter[int] = Counter()
        self._done: list[Rpc] = []
        self.backward: dict[int, KnownRpc] = {}
        """Unanswered calls in the backward direction (RFC 8167), by XID."""
        self.losses = 0
        """How often events were lost."""
        self.last_number = 0
        self.side = ""
        """'client' or 'server': the side whose RPC began first."""

    def trouble(self, kind: str, words: str, event: Event, rpc: int | None = None) -> None:
        """Count a trouble, at this event."""
        trouble = next((known for known in self._troubles if (known.kind, known.words) == (kind, words)), None)
        if trouble is None:
            trouble = HostTrouble(kind, words, time=event.time)
            self._troubles.append(trouble)
        trouble.count += 1
        if len(trouble.frames) < MAX_EXAMPLES:
            trouble.frames.append(event.number)
            trouble.rpcs += [] if rpc is None else [rpc]

    def completed(self, work: str, event: Event, status: int | None) -> None:
        """Note a completion error; flushed work requests follow from another error, or the end of the connection."""
        if status and status != FLUSHED:
            name = WC_STATUSES.get(status, f"status {status}")
            self.trouble("completion", f"{work}: {name}", event)

    def take(self) -> list[Rpc]:
        """The RPCs that ended since the last call."""
        done, self._done = self._done, []
        return done

    def begin(self, conversation: Conversation, xid: int, side: str, backward: bool = False) -> KnownRpc:
        """A new RPC, seen by the client or the server; ``backward``: the server is the caller."""
        self.side = self.side or side
        connection = conversation.connection
        self.last_number += 1
        self._orders[connection.number] += 1
        rpc = traced_rpc(self.last_number, conversation, xid, self._orders[connection.number], backward)
        if backward:
            self.backward[xid] = rpc
        return rpc

    def called(self, rpc: KnownRpc) -> None:
        """Note that the RPC's call is known."""
        self._passed(rpc, rpc.call, rpc.conversation.note_requested)
        self._listener(rpc).call_sent(rpc)

    def replied(self, rpc: KnownRpc) -> None:
        """Note that the RPC's reply is known."""
        self._passed(rpc, rpc.reply, rpc.conversation.note_granted)
        self._listener(rpc).reply_sent(rpc)

    def note_losses(self, rpc: KnownRpc, before: int) -> None:
        """Add a note to an RPC if events were lost since it began; ``before``: ``losses`` at that time."""
        if self.losses != before and EVENTS_LOST not in rpc.notes:
            rpc.notes += (EVENTS_LOST,)

    def _passed(self, rpc: KnownRpc, message: Message | None, note_credits: Callable[[int], None]) -> None:
        assert message is not None
        connection, operation, credits = rpc.connection, message.operation, message.header.credits
        connection.last_frame = max(connection.last_frame, operation.last_frame)
        connection.last_time = max(connection.last_time, operation.last_time)
        if credits is not None and not rpc.backward:
            note_credits(credits)

    def _listener(self, rpc: KnownRpc) -> Listener:
        return self._listeners.get(rpc.connection.number, _NO_LISTENER)

    def end(self, rpc: KnownRpc) -> None:
        """End an RPC: the trace tells no more of it."""
        if rpc.reply is not None:
            rpc.state = "error" if rpc.failed else "complete"
        if rpc.backward:
            self.backward.pop(rpc.xid, None)
        self._listener(rpc).rpc_ended(rpc)
        self._done.append(rpc)


PROGRAMS = {
    "nfs": NFS, "nfsd": NFS, "nfsacl": NFSACL, "mount": MOUNT, "rpcbind": PORTMAP, "portmap": PORTMAP,
    "lockd": NLM, "nlm": NLM, "statd": STATUS_MONITOR, "nsm": STATUS_MONITOR,
    "nfs4_cb": NFS_CALLBACK, "NFSv4 callback": NFS_CALLBACK,
}  # fmt: skip
"""Names of programs in Linux, as client and as server."""
CHUNKS_UNKNOWN = "not all of its chunks are told"
NOT_RECEIVED = "when its {} was received is not told"
NOT_IN_TRACE = "missing"
"""``Rpc.contents`` of traced RPCs: a trace has no bytes of messages."""
_NUMBERS = {(key, name): number for key, names in PROCEDURES.items() for number, name in enumerate(names)}


class Received(NamedTuple):
    """A receive completion."""

    number: int
    time: int
    length: int
    queue: int | None = None
    """Its completion queue, if the trace tells."""


@dataclass(slots=True)
class TracedSegment(SegmentUse):
    """A segment whose RDMA Reads or Writes were not seen; the trace may tell how many bytes they moved."""

    moved: int = 0

    @property
    def used_by(self) -> int | None:
        return None

    @property
    def transferred(self) -> int:
        return self.moved


def traced_rpc(number: int, conversation: Conversation, xid: int, order: int, backward: bool) -> KnownRpc:
    """An RPC with only a call so far."""
    rpc = KnownRpc(number, conversation, backward, xid, contents=NOT_IN_TRACE, order=order)
    rpc.fields, rpc.moved, rpc.opened = NO_FIELDS, None, None
    return rpc


def name_call(rpc: KnownRpc, program: str, version: int | None, procedure: str | int) -> None:
    """Set program, version and procedure from Linux's names.  For COMPOUNDs the client has names of its own, and does
    not tell the operations.

    The server of 5.10 gives a procedure's number.
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
    at: Event | Received,
    xid: int,
    credits: int | None,
    length: int,
    header: int = HEADER,
    inline: int | None = None,
    procedure: int | None = RDMA_MSG,
) -> Message:
    """A Send of ``length`` bytes, ``header`` of them the transport header, at an event.  Its length is 0 if the trace
    does not tell."""
    operation = Operation(SEND, sender, at.number, at.number, at.time, at.time, length, Payload())
    known = TransportHeader(xid, 1, credits, procedure, length=header)
    return Message(operation, known, _NOTHING, 0, 0, max(0, length - header) if inline is None else inline)


def add_lists(header: TransportHeader, chunks: list[ChunkUse], returned: bool) -> None:
    """Add chunks to the chunk lists of a call's header or, if ``returned``, of its reply's."""
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
    """The chunks of one call, in the order in which the trace tells them."""

    __slots__ = ("reads", "reply", "writes")

    def __init__(self) -> None:
        self.reads: list[ChunkUse] = []
        self.writes: list[ChunkUse] = []
        self.reply: list[ChunkUse] = []

    def read(self, position: int | None, segment: Segment) -> None:
        """Add a segment of a Read chunk; ``position``: None if the trace does not tell."""
        if not self.reads or self.reads[-1].position != position:
            self.reads.append(ChunkUse("read", position, []))
        self.reads[-1].segments.append(TracedSegment(segment))

    def all(self) -> list[ChunkUse]:
        """All chunks, in the order of the header."""
        return [*self.reads, *self.writes, *self.reply]

    def header_length(self) -> int:
        """Bytes of a transport header with these chunks (RFC 8166, 4)."""
        reads = sum(24 * len(chunk.segments) for chunk in self.reads)
        return (
            HEADER
            + reads
            + sum(8 + 16 * len(chunk.segments) for chunk in self.writes)
            + sum(4 + 16 * len(chunk.segments) for chunk in self.reply)
        )

    def returned(self, handle: int, length: int, offset: int) -> None:
        """Note a segment that the reply returns."""
        for chunk in (*self.writes, *self.reply):
            for use in chunk.segments:
                if use.returned is None and use.advertised.handle == handle and use.advertised.offset == offset:
                    use.returned = length
                    assert isinstance(use, TracedSegment)
                    use.moved = length
                    return

    def finish_reads(self) -> None:
        """Count what was advertised as read: the call was executed."""
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
    """The time between consecutive moments, which are made ascending and at most ``end``; None if one of the two is
    unknown."""
    known: list[int | None] = []
    before = None
    for moment in moments:
        if moment is not None:
            before = moment if before is None else max(before, moment)
            before = before if end is None else min(before, end)
        known.append(None if moment is None else before)
    return [None if first is None or last is None else last - first for first, last in pairwise(known)]


def total_of(*spans: int | None) -> int | None:
    """The sum; None if one of the spans is unknown."""
    return None if None in spans else sum(span for span in spans if span is not None)


RDMA = "RDMA"
"""Transport of a connection for which no packet tells whether it is RoCE, InfiniBand or iWARP."""
SOCKET = "socket"
"""Transport of a connection without RDMA: TCP, UDP or local."""


class CmPair(NamedTuple):
    """The ends of a connection, as named by the connection manager or the negotiation of inline thresholds."""

    client: str
    server: str
    """'10.77.0.1:20049'."""


def socket_parts(text: str) -> tuple[str, int | None]:
    """Address and port of '10.0.0.1:20049', '[fe80::1]:20049' or '10.0.0.1'; port 0 counts as none."""
    address, _, port = text.rpartition(":")
    if not address or not port.isdigit() or (":" in address and not address.startswith("[")):
        return text.strip("[]"), None
    return address.strip("[]"), int(port) or None


def drop(queues: dict[int, Conversation], numbers: set[int]) -> set[int]:
    """Remove the queues of connections with these numbers, and return them."""
    gone = {queue for queue, conversation in queues.items() if conversation.connection.number in numbers}
    for queue in gone:
        del queues[queue]
    return gone


class TracedConnections:
    """Makes a numbered Conversation for each queue on which RPCs are seen."""

    def __init__(self, connections: list[Connection], conversations: dict[int, Conversation]) -> None:
        """``connections``, ``conversations``: to add them to."""
        self.connections, self.conversations = connections, conversations
        self.listener: Callable[[Conversation], Listener | None] | None = None
        self.listeners: dict[int, Listener] = {}
        """By connection number."""
        self._count = 0
        self._established: dict[CmPair, int] = {}
        """When connections were established for which no queue is known so far."""
        self._taken: dict[CmPair, Connection] = {}
        self._inline: dict[CmPair, tuple[int, int]] = {}

    def establish(self, pair: CmPair, time: int, inline: tuple[int, int] | None = None) -> None:
        """Note that two ends connected; ``inline``: thresholds of the client and the server as senders, bytes."""
        if inline is not None:
            self._inline[pair] = inline
        self._taken.pop(pair, None)
        self._established.setdefault(pair, time)

    def end(self, pair: CmPair, why: str, time: int) -> None:
        """Note the end of a connection; ``why``: as in ``Connection.ended_by``."""
        connection = self._taken.pop(pair, None)
        if connection is not None and not connection.ended_by:
            connection.ended_by, connection.ended_time = why, time
        elif connection is None:
            self._established.pop(pair, None)

    def make(self, side: str, transport: str, client: str, server: str, port: int | None, event: Event) -> Conversation:
        """A new conversation between two addresses ('' if unknown), first seen at this event by its 'client' or
        'server'; ``port``: the server's."""
        self._count += 1
        first, pair = event.time, self._pair(client, server, port) if transport == RDMA else None
        local: int | None = None
        if pair is not None:
            first = self._established.pop(pair)
            client, local = socket_parts(pair.client)
            server, port = socket_parts(pair.server)
        connection = Connection(
            self._count,
            transport,
            (Endpoint(client, 0, port=local), Endpoint(server, 0, port=port)),
            "trace",
            service_port=port,
            first_frame=event.number,
            last_frame=event.number,
            first_time=first,
            last_time=event.time,
        )
        if pair is not None:
            self._taken[pair] = connection
        self.connections.append(connection)
        made = Conversation(connection, "rpcrdma" if transport == RDMA else "other", ("trace",), traced=side)
        self.conversations[connection.number] = made
        if pair is not None:
            made.inline = self._inline.pop(pair, None)
        listener = self.listener(made) if self.listener is not None and transport == RDMA else None
        if listener is not None:
            self.listeners[connection.number] = listener
        return made

    def _pair(self, client: str, server: str, port: int | None) -> CmPair | None:
        """The earliest pair established between two addresses for which no queue is known so far."""
        for pair in self._established:
            ends = socket_parts(pair.client), socket_parts(pair.server)
            if client in ("", ends[0][0]) and server in ("", ends[1][0]) and port in (None, ends[1][1]):
                return pair
        return None
