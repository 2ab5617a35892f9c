"""RPCs made of what a trace tells: messages without bytes, and chunks with what was returned of them; numbered as they
are called, and given as they end.  The connections that they are on: queues of completions, and what is told of the
ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from ..named_tuple import NamedTuple
from ..onc.rpc_header import MOUNT, NFS, NFS_CALLBACK, NFSACL, NLM, PORTMAP, PROCEDURES, STATUS_MONITOR, procedure_name
from ..onc.shapes.decode_cache import NO_FIELDS
from ..onc.status import nfs4_status
from ..onc.statuses import NFS3_STATUS
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.listeners import Listener
from ..rpcrdma.messages import HEADER, Message, ReadChunk, Segment, TransportHeader, WriteChunk
from ..rpcrdma.rpc_fields import KnownRpc
from ..rpcrdma.rpcs import EVENTS_LOST, ChunkUse, HostTrouble, Rpc, SegmentUse
from ..transport.connection import Connection, Endpoint
from ..transport.operations import SEND, Operation, Payload

_NO_LISTENER = Listener()
MAX_EXAMPLES = 5
FLUSHED = 5
WC_STATUSES = dict(enumerate((
    "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR",
    "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR",
    "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR",
)))  # fmt: skip
"""Of work completions (include/rdma/ib_verbs.h)."""


class RpcLog:
    """What both sides add to."""

    def __init__(self, listeners: dict[int, Listener], troubles: list[HostTrouble]) -> None:
        """By connection number; where troubles are put."""
        self._listeners, self._troubles = listeners, troubles
        self._orders: Counter[int] = Counter()
        self._done: list[Rpc] = []
        self.backward: dict[int, KnownRpc] = {}
        """By XID, calls in the backward direction (RFC 8167) without a reply."""
        self.losses = 0
        """How often events were lost."""
        self.last_number = 0
        self.side = ""
        """'client' or 'server': whose RPC began first."""

    def trouble(self, kind: str, words: str, time: int, number: int, rpc: int | None = None) -> None:
        """Another one, at an event of this number."""
        trouble = next((known for known in self._troubles if (known.kind, known.words) == (kind, words)), None)
        if trouble is None:
            trouble = HostTrouble(kind, words, time=time)
            self._troubles.append(trouble)
        trouble.count += 1
        if len(trouble.frames) < MAX_EXAMPLES:
            trouble.frames.append(number)
            trouble.rpcs += [] if rpc is None else [rpc]

    def completed(self, what: str, status: int | None, time: int, number: int) -> None:
        """A work request; those that are flushed follow from another error, or the end of the connection."""
        if status and status != FLUSHED:
            name = WC_STATUSES.get(status, f"status {status}")
            self.trouble("completion", f"{what}: {name}", time, number)

    def take(self) -> list[Rpc]:
        """Those that ended since the last time."""
        done, self._done = self._done, []
        return done

    def begin(self, conversation: Conversation, xid: int, side: str, backward: bool = False) -> KnownRpc:
        """The next one, seen by the client or the server; ``backward``: which the server calls."""
        self.side = self.side or side
        connection = conversation.connection
        self.last_number += 1
        self._orders[connection.number] += 1
        rpc = traced_rpc(self.last_number, conversation, xid, self._orders[connection.number], backward)
        if backward:
            self.backward[xid] = rpc
        return rpc

    def called(self, rpc: KnownRpc) -> None:
        """Its call is there."""
        self._passed(rpc, rpc.call, rpc.conversation.note_requested)
        self._listener(rpc).call_sent(rpc)

    def replied(self, rpc: KnownRpc) -> None:
        """Its reply is there."""
        self._passed(rpc, rpc.reply, rpc.conversation.note_granted)
        self._listener(rpc).reply_sent(rpc)

    def note_losses(self, rpc: KnownRpc, before: int) -> None:
        """Where events were lost since it began; ``before``: ``losses`` then."""
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
        """No more is told of it."""
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
"""What Linux calls programs, as client and as server."""
CHUNKS_UNKNOWN = "not all of its chunks are told"
NOT_RECEIVED = "when its {} was received is not told"
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
    ``time`` of the event.  Its length is 0 where it is not told."""
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

    def header_length(self) -> int:
        """Bytes of the transport header that has these chunks (RFC 8166, 4)."""
        reads = sum(24 * len(chunk.segments) for chunk in self.reads)
        return (
            HEADER
            + reads
            + sum(8 + 16 * len(chunk.segments) for chunk in self.writes)
            + sum(4 + 16 * len(chunk.segments) for chunk in self.reply)
        )

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
    """Between each two moments, none of which is before one in front of it or behind ``end``; None: one of the two is
    not told."""
    known: list[int | None] = []
    before = None
    for moment in moments:
        if moment is not None:
            before = moment if before is None else max(before, moment)
            before = before if end is None else min(before, end)
        known.append(None if moment is None else before)
    return [None if first is None or last is None else last - first for first, last in pairwise(known)]


def total_of(*spans: int | None) -> int | None:
    """None: one of them is not told."""
    return None if None in spans else sum(span for span in spans if span is not None)


RDMA = "RDMA"
"""The transport of a connection of which no packet tells whether it is RoCE, InfiniBand or iWARP."""
SOCKET = "socket"
"""That of one that is none of RDMA: TCP, UDP or local."""


class CmPair(NamedTuple):
    """A connection as the connection manager, or the negotiation of inline thresholds, names it."""

    client: str
    server: str
    """'10.77.0.1:20049'."""


def socket_parts(text: str) -> tuple[str, int | None]:
    """'10.0.0.1:20049', '[fe80::1]:20049' or '10.0.0.1': address and port; port 0 is none."""
    address, _, port = text.rpartition(":")
    if not address or not port.isdigit() or (":" in address and not address.startswith("[")):
        return text.strip("[]"), None
    return address.strip("[]"), int(port) or None


def drop(queues: dict[int, Conversation], numbers: set[int]) -> set[int]:
    """Those of connections with these numbers, which it gives."""
    gone = {queue for queue, conversation in queues.items() if conversation.connection.number in numbers}
    for queue in gone:
        del queues[queue]
    return gone


class TracedConnections:
    """Makes a Conversation for each queue that RPCs are seen on, and numbers it."""

    def __init__(self, connections: list[Connection], conversations: dict[int, Conversation]) -> None:
        """What they are put into, by number."""
        self.connections, self.conversations = connections, conversations
        self.listener: Callable[[Conversation], Listener | None] | None = None
        self.listeners: dict[int, Listener] = {}
        """By connection number."""
        self._count = 0
        self._established: dict[CmPair, int] = {}
        """When; of those that no queue is known of."""
        self._taken: dict[CmPair, Connection] = {}
        self._inline: dict[CmPair, tuple[int, int]] = {}

    def establish(self, pair: CmPair, time: int, inline: tuple[int, int] | None = None) -> None:
        """The two ends are connected; ``inline``: thresholds of what the client and the server send."""
        if inline is not None:
            self._inline[pair] = inline
        self._taken.pop(pair, None)
        self._established.setdefault(pair, time)

    def end(self, pair: CmPair, why: str, time: int) -> None:
        """It is over; ``why`` as ``Connection.ended_by`` has it."""
        connection = self._taken.pop(pair, None)
        if connection is not None and not connection.ended_by:
            connection.ended_by, connection.ended_time = why, time
        elif connection is None:
            self._established.pop(pair, None)

    def make(
        self, side: str, transport: str, client: str, server: str, number: int, time: int, port: int | None
    ) -> Conversation:
        """A new one between two addresses, '' where one is not told, first seen at an event of this number, by its
        'client' or 'server'; ``port``: the server's."""
        self._count += 1
        first, pair = time, self._pair(client, server, port) if transport == RDMA else None
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
            first_frame=number,
            last_frame=number,
            first_time=first,
            last_time=time,
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
        """The earliest of those established between two addresses that no queue is known of."""
        for pair in self._established:
            ends = socket_parts(pair.client), socket_parts(pair.server)
            if client in ("", ends[0][0]) and server in ("", ends[1][0]) and port in (None, ends[1][1]):
                return pair
        return None
