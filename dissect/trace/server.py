"""The server's half of a trace: what svcrdma received, which nfsd thread took it, and how it was answered.

Before the XID is known, events name a receive by completion queue and ID.  Afterwards a thread works on one call, and
events that name an XID, or none, belong to the call of their thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..layers.rpcrdma_codes import RDMA_NOMSG
from ..named_tuple import NamedTuple
from ..onc.naming import hashed_handle
from ..onc.rpc_header import NFS
from ..onc.xdr import round_up
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.messages import HEADER, Segment
from ..rpcrdma.rpc_fields import KnownRpc
from ..rpcrdma.rpcs import EVENTS_LOST, REPLY_NOT_SEEN, ChunkUse, HostTimes, Latency
from .client import ClientSide
from .events import Event
from .rpcs import (
    CHUNKS_UNKNOWN,
    NOT_RECEIVED,
    RDMA,
    Received,
    RpcLog,
    TracedChunks,
    TracedConnections,
    TracedSegment,
    add_lists,
    drop,
    message,
    name_call,
    nfs_status,
    reply_header,
    socket_parts,
    spans,
    total_of,
)

OP = "OP_"
"""Prefix of the names of operations."""


@dataclass(slots=True)
class Waiting:
    """A transport that nfsd's threads take from a queue when messages have come on it."""

    since: int | None = None
    """Time (ns) since which it is in the queue; None if it is not."""
    spans: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=256))
    """When it was in the queue, from and until, if the thread that then took it had been busy."""

    def waited(self, since: int) -> int:
        """Nanoseconds of waiting since then: messages wait while the transport is queued or with a thread."""
        waited = 0
        for began, ended in reversed(self.spans):
            if ended <= since:
                break
            waited += ended - max(began, since)
        return waited


class Dequeued(NamedTuple):
    """A transport that a thread took from the queue."""

    time: int
    server: str
    client: str
    transport: Waiting
    enqueued: int | None


@dataclass(slots=True, eq=False)
class ServerCall:
    """A call, as far as it was executed; times in nanoseconds."""

    rpc: KnownRpc
    chunks: TracedChunks
    received: int | None
    dequeued: Dequeued | None
    thread: int | None
    """Nanoseconds that its transport waited for a thread after the call was received."""
    read_posted: int | None = None
    read: int | None = None
    started: int | None = None
    execute: int | None = None
    """Nanoseconds as measured by the kernel."""
    file_begin: int | None = None
    file_time: int | None = 0
    """None: it began before the trace tells of it."""
    operations: list[str] = field(default_factory=list)
    status: int | None = None
    answered: int | None = None
    encoded: int | None = None
    """Bytes of the reply."""
    written: int | None = None
    losses: int = 0
    """``RpcLog.losses`` when it began."""


Queue = tuple[int, int]
"""Completion queue and completion ID."""
THREAD = -1
"""Used instead of a completion queue if segments belong to a thread."""


def of_thread(take: Callable[..., None]) -> Callable[..., None]:
    """Let a method take the call that the event's thread works on, where it is known."""

    def taken(side: ServerSide, event: Event, *fields: Any) -> None:
        call = side.threads.get(event.pid)
        if call is not None:
            take(side, event, call, *fields)

    return taken


def of_xid(take: Callable[..., None]) -> Callable[..., None]:
    """Let a method take a call instead of its XID, where the call is known."""

    def taken(side: ServerSide, event: Event, xid: int, *fields: Any) -> None:
        call = side.at(event.pid, xid)
        if call is not None:
            take(side, event, call, *fields)

    return taken


class ServerSide:
    """Makes RPCs from the events of a server."""

    def __init__(self, connections: TracedConnections, log: RpcLog, client: ClientSide) -> None:
        self._connections, self._log, self._client = connections, log, client
        self._received: dict[Queue, Received] = {}
        self._transports: dict[tuple[str | None, str | None], Waiting] = {}
        self._free: dict[int, int] = {}
        """By thread: when it finished its last call."""
        self._dequeued: dict[int, Dequeued] = {}
        """By thread."""
        self._segments: dict[Queue, list[tuple[int, int | None, Segment]]] = {}
        """Index, Position and segment of each chunk segment."""
        self._queues: dict[int, Conversation] = {}
        """By completion queue of the connection's receives."""
        self._sending: dict[int, Conversation] = {}
        """By completion queue of the connection's Sends."""
        self._headers: dict[int, int] = {}
        """By thread: bytes of the transport header of its next Send."""
        self.threads: dict[int, ServerCall] = {}
        """By thread: the call that it works on."""
        self._open: dict[int, ServerCall] = {}
        """Calls by XID."""
        self._transfers: dict[Queue, ServerCall] = {}
        """Calls by their RDMA Reads and Writes that are under way."""
        self._sends: dict[Queue, ServerCall] = {}
        """Calls by their replies' Sends that are under way."""

    def finish(self) -> None:
        """End everything: the trace is over."""
        for call in self.under_way():
            self._close(call, None)

    def forget(self, connections: set[int]) -> None:
        """Forget these connections; calls on them end."""
        for call in self.under_way():
            if call.rpc.connection.number in connections:
                self._close(call, None)
        self._open = {xid: call for xid, call in self._open.items() if call.rpc.connection.number not in connections}
        self._sends = {key: send for key, send in self._sends.items() if send.rpc.connection.number not in connections}
        gone = drop(self._queues, connections) | drop(self._sending, connections)
        for kept in (self._received, self._segments, self._transfers):
            for key in [key for key in kept if key[0] in gone]:
                del kept[key]

    def forget_threads(self) -> None:
        """Forget what threads are doing: after lost events it is unknown until an event names an XID."""
        for by_thread in (self.threads, self._dequeued, self._headers):
            by_thread.clear()

    def under_way(self) -> list[ServerCall]:
        """Calls whose reply's Send is not complete."""
        return [*self._open.values(), *self._sends.values()]

    def outstanding(self) -> list[KnownRpc]:
        """Calls without a reply so far."""
        for call in self._open.values():
            self._log.note_losses(call.rpc, call.losses)
        return [call.rpc for call in self._open.values() if call.rpc.reply is None]

    def let_go(self, limit: int) -> None:
        """Keep at most ``limit`` calls, as the end of the oldest may have been lost."""
        while len(self._open) > limit:
            self._close(next(iter(self._open.values())), None)

    # A call comes.

    def receive(self, event: Event, length: int | None, queue: int, identity: int) -> None:
        self._received[queue, identity] = Received(event.number, event.time, length or 0)

    def enqueue(self, event: Event, server: str | None, client: str | None) -> None:
        self._transports.setdefault((server, client), Waiting()).since = event.time

    def dequeue(self, event: Event, server: str | None, client: str | None) -> None:
        transport = self._transports.setdefault((server, client), Waiting())
        since, transport.since = transport.since, None
        if since is not None and (free := min(self._free.get(event.pid, since), event.time)) > since:
            transport.spans.append((since, free))
        self._dequeued[event.pid] = Dequeued(event.time, server or "", client or "", transport, since)

    def read_segment(
        self,
        event: Event,
        queue: int | None,
        identity: int,
        index: int,
        position: int | None,
        *segment: int,
    ) -> None:
        if queue is not None:
            self._segments.setdefault((queue, identity), []).append((index, position, Segment(*segment)))
        elif (call := self.threads.get(event.pid)) is not None:
            # Before 5.12 the event tells of the Read made of it, without its Position.
            call.chunks.read(None, Segment(*segment))
            call.rpc.chunks = call.chunks.all()

    def write_segment(
        self,
        event: Event,
        queue: int | None,
        identity: int,
        index: int | None,
        *segment: int,
    ) -> None:
        # Before 5.12 only the thread tells which call it belongs to.
        owner = (THREAD, event.pid) if queue is None else (queue, identity)
        segments = self._segments.setdefault(owner, [])
        segments.append((len(segments) if index is None else index, None, Segment(*segment)))

    def request(
        self,
        event: Event,
        queue: int,
        identity: int,
        xid: int,
        credits: int,
        procedure: int,
        header: int,
    ) -> None:
        came = self._received.pop((queue, identity), None)
        taken = self._dequeued.pop(event.pid, None)
        thread = None
        if taken is not None and taken.enqueued is not None:
            thread = taken.transport.waited(taken.enqueued if came is None else came.time)
        conversation = self._queues.get(queue)
        answered = self._log.backward.get(xid)
        if answered is not None and answered.conversation is conversation and came is not None:
            answered.reply = message(0, came, xid, credits, came.length, header, procedure=procedure)
            self._log.replied(answered)
            return
        if conversation is None:
            client, server = ("", "") if taken is None else (taken.client, taken.server)
            address, port = socket_parts(server)
            conversation = self._connections.make("server", RDMA, socket_parts(client)[0], address, port, event)
            self._queues[queue] = conversation
        rpc = self._log.begin(conversation, xid, "server")
        segments = self._segments.pop((queue, identity), None) or self._segments.pop((THREAD, event.pid), [])
        chunks = _chunks(segments, header)
        received = None if came is None else came.time
        call = ServerCall(rpc, chunks, received, taken, thread, losses=self._log.losses)
        rpc.chunks = chunks.all()
        first = came or Received(event.number, event.time, 0)
        rpc.call = message(0, first, xid, credits, first.length, header, procedure=procedure)
        add_lists(rpc.call.header, rpc.chunks, False)
        before = self._open.pop(xid, None)
        if before is not None:
            self._close(before, None)
        self._open[xid] = self.threads[event.pid] = call
        self._log.called(rpc)

    def post_read(self, event: Event, queue: int, identity: int) -> None:
        call = self.threads.get(event.pid)
        self._free[event.pid] = event.time
        if call is not None:
            self._transfers[queue, identity] = call
            if call.read_posted is None:
                call.read_posted = event.time

    def read(self, event: Event, queue: int, identity: int) -> None:
        call = self._transfers.pop((queue, identity), None)
        if call is not None:
            call.read = event.time
            call.chunks.finish_reads()

    # It is carried out.

    def receive_xdr(self, event: Event, xid: int) -> None:
        """Note that this thread works on the call from now on; another may have started its RDMA Reads."""
        call = self._open.get(xid)
        if call is not None:
            self.threads[event.pid] = call
            call.started = event.time

    def process(self, event: Event, xid: int, service: str, version: int, procedure: str) -> None:
        call = self.at(event.pid, xid)
        rpc = self._log.backward.get(xid) if call is None else call.rpc
        if rpc is not None:
            name_call(rpc, service, version, procedure)

    def at(self, pid: int, xid: int) -> ServerCall | None:
        call = self.threads.get(pid)
        if (call is None or call.rpc.xid != xid) and (call := self._open.get(xid)) is not None:
            self.threads[pid] = call
        return call

    @of_thread
    def operation(self, event: Event, call: ServerCall, name: str, status: int) -> None:
        call.operations.append(name.removeprefix(OP))
        call.status = status

    @of_xid
    def handle(self, event: Event, call: ServerCall, hashed: int) -> None:
        if call.rpc.fields.handle is None:
            call.rpc.fields = call.rpc.fields._replace(handle=hashed_handle(hashed))

    @of_xid
    def file_begin(self, event: Event, call: ServerCall, hashed: int, offset: int, length: int) -> None:
        call.file_begin = event.time
        known = call.rpc.fields
        if known.offset is None:
            handle = hashed_handle(hashed) if known.handle is None else known.handle
            call.rpc.fields = known._replace(handle=handle, offset=offset, count=length)

    @of_xid
    def file_end(self, event: Event, call: ServerCall, length: int) -> None:
        begin, before = call.file_begin, call.file_time
        call.file_time = None if begin is None or before is None else before + event.time - begin
        call.file_begin, call.rpc.moved = None, length

    # It is answered.

    @of_xid
    def send_xdr(self, event: Event, call: ServerCall, length: int) -> None:
        call.encoded, call.answered = length, event.time

    @of_xid
    def latency(self, event: Event, call: ServerCall, execute: int) -> None:
        call.answered, call.execute = event.time, execute * 1000

    @of_thread
    def post_write(self, event: Event, call: ServerCall, queue: int, identity: int) -> None:
        self._transfers[queue, identity] = call

    @of_thread
    def post_chunk(self, event: Event, call: ServerCall, queue: int, identity: int) -> None:
        """Before 5.15 one event for both: RDMA Reads before the call is executed, RDMA Writes afterwards."""
        post = self.post_read if call.started is None else self.post_write
        post(event, queue, identity)

    def wrote(self, event: Event, queue: int, identity: int) -> None:
        call = self._transfers.pop((queue, identity), None)
        if call is not None:
            call.written = event.time

    @of_thread
    def returned(self, event: Event, call: ServerCall, *segment: int) -> None:
        call.chunks.returned(*segment)

    def pulled_up(self, event: Event, header: int) -> None:
        self._headers[event.pid] = header

    def post_send(self, event: Event, queue: int, identity: int, invalidated: int) -> None:
        self._free[event.pid] = event.time
        call = self.threads.pop(event.pid, None)
        length = self._headers.pop(event.pid, None)
        if call is None and (conversation := self._sending.get(queue)) is not None:
            self._client.call_back(conversation, event, length or HEADER)
        if call is None or self._open.get(call.rpc.xid) is not call:
            return
        rpc = call.rpc
        self._log.note_losses(rpc, call.losses)
        self._sending[queue] = rpc.conversation
        assert rpc.call is not None
        if call.chunks.header_length() != rpc.call.header.length:
            rpc.notes += (CHUNKS_UNKNOWN,)
        header, procedure = reply_header(rpc.chunks)
        header, inline = length or header, 0
        if procedure != RDMA_NOMSG:
            moved = sum(round_up(chunk.returned or 0) for chunk in rpc.chunks if chunk.kind == "write")
            inline = max(0, (call.encoded or 0) - moved)
        whole = header + inline
        if call.encoded is None or rpc.notes:  # More chunks may have been returned than the trace tells.
            whole = inline = 0
        rpc.reply = message(1, event, rpc.xid, None, whole, header, inline, procedure)
        rpc.reply.operation.invalidate = invalidated or None
        add_lists(rpc.reply.header, rpc.chunks, True)
        self._log.replied(rpc)
        del self._open[rpc.xid]
        before = self._sends.get((queue, identity))
        if before is not None:
            self._close(before, None)
        self._sends[queue, identity] = call

    def sent(self, event: Event, queue: int, identity: int) -> None:
        call = self._sends.pop((queue, identity), None)
        if call is not None:
            self._close(call, event.time)

    def done(self, event: Event, xid: int) -> None:
        """Note that the thread finished the call; some kernels first wait until the Send is complete."""
        self._free[event.pid] = event.time

    def send_failed(self, event: Event, queue: int, identity: int, status: int) -> None:
        self._log.completed("Send", event, status)
        call = self._sends.pop((queue, identity), None)
        if call is not None:
            call.rpc.notes += (f"the reply's Send failed: completion status {status}",)
            self._close(call, None)

    def _close(self, call: ServerCall, completed: int | None) -> None:
        rpc = call.rpc
        self._log.note_losses(rpc, call.losses)
        if rpc.reply is None:
            rpc.state = "no reply"
            if call.answered is not None:
                rpc.notes += (REPLY_NOT_SEEN,)
        else:
            if call.chunks.reads:
                call.chunks.finish_reads()
                if call.read is None or call.read_posted is None:
                    rpc.notes += ("when its RDMA Reads were made is not told",)
            if rpc.version == 4 and "PUTFH" not in call.operations and rpc.fields.offset is None:
                rpc.fields = rpc.fields._replace(handle=None)  # It may be another handle than the call's.
            if call.status is not None and rpc.program == NFS and (call.status or EVENTS_LOST not in rpc.notes):
                rpc.operations = tuple(call.operations)
                rpc.status = nfs_status(4, call.status)
                rpc.failed = bool(call.status)
            if call.received is not None:
                total = max(0, rpc.reply.operation.last_time - call.received)
                reads = 0
                if call.read is not None and call.read_posted is not None:
                    reads = min(call.read - call.read_posted, total)
                rpc.latency = Latency(total, 0, reads, total - reads, 0, 0)
            else:
                rpc.notes += (NOT_RECEIVED.format("call"),)
            rpc.host = server_times(call, completed)
        self._log.end(rpc)


def _chunks(segments: list[tuple[int, int | None, Segment]], header: int) -> TracedChunks:
    """The chunks of a call.  Only the header's length tells which array of plain segments is the Reply chunk: a Write
    chunk takes one more word (RFC 8166, 4)."""
    chunks = TracedChunks()
    arrays: list[list[Segment]] = []
    reads = 0
    for index, position, segment in segments:
        if position is not None:
            chunks.read(position, segment)
            reads += 1
        elif not index or not arrays:
            arrays.append([segment])
        else:
            arrays[-1].append(segment)
    plain = sum(map(len, arrays))
    words = header - HEADER - 24 * reads - 16 * plain
    replies = int(bool(arrays) and words == 8 * len(arrays) - 4)
    for at, array in enumerate(arrays):
        reply = replies and at == len(arrays) - 1
        kind, where = ("reply", chunks.reply) if reply else ("write", chunks.writes)
        where.append(ChunkUse(kind, None, [TracedSegment(segment) for segment in array]))
    return chunks


def server_times(call: ServerCall, completed: int | None) -> HostTimes:
    """The phases of an answered call; ``completed``: when its reply's Send completed."""
    taken = call.dequeued
    started, answered = call.started, call.answered
    if call.execute is not None and answered is not None:
        # The kernel measures from after the event's time; if an interrupt came in between, that was later.
        started = max(answered - call.execute, call.read or 0, taken.time if taken is not None else 0)
        answered = started + call.execute
    dequeued = None if taken is None else taken.time
    reading, read, written = call.read_posted, call.read, call.written
    whole = EVENTS_LOST not in call.rpc.notes
    if whole and not call.chunks.reads:
        reading = read = dequeued
    if whole and written is None and not any(chunk.returned for chunk in call.chunks.all()):
        written = answered
    moments = call.received, dequeued, reading, read, started, answered, written, completed
    queued, decoded, reads, left, executed, writes, sent = spans(moments)
    file_time = call.file_time if call.file_begin is None else None
    thread = None
    if call.thread is not None and queued is not None:
        thread = min(call.thread, queued)
    if queued is not None:
        queued = None if thread is None else queued - thread
    return HostTimes(
        received=total_of(queued, decoded, left),
        thread=thread,
        reads=reads,
        executed=None if executed is None or file_time is None else max(0, executed - file_time),
        file_system=file_time,
        writes=writes,
        sent=sent,
        answered=None if call.rpc.latency is None else call.rpc.latency.total,
    )
