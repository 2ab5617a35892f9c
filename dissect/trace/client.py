"""The client's half of a trace: tasks of SunRPC, each from its start to its latency, and what xprtrdma did for them.

Events name a task, ``task:ID@CLIENT``, an ID that later RPCs reuse.  Completions name a completion queue; they belong
to the task that the same thread names next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from errno import errorcode
from typing import Any

from ..layers.rpcrdma_codes import ERR_CHUNK, ERR_VERS, RDMA_ERROR, RDMA_MSG, RDMA_NOMSG, error_name
from ..onc.naming import hashed_handle
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.messages import HEADER, Segment
from ..rpcrdma.rpc_fields import KnownRpc
from ..rpcrdma.rpcs import CREDITS, EVENTS_LOST, REPLY_NOT_SEEN, ChunkUse, HostTimes, Latency
from .events import Event
from .rpcs import (
    CHUNKS_UNKNOWN,
    NOT_RECEIVED,
    RDMA,
    SOCKET,
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
    spans,
    total_of,
)

READ_LIST, LONG_CALL, REPLY_CHUNK = 3, 4, 6
"""Chunk types of ``xprtrdma_marshal``; lower ones are those of a call that goes inline."""
REPLY_SEGMENT = "xprtrdma_chunk_reply"
REFUSALS = {"xprtrdma_err_vers": ERR_VERS, "xprtrdma_err_chunk": ERR_CHUNK}
"""What an event says of the reply."""
NO_CLIENT = -1, 0xFFFFFFFF
"""The RPC client of tasks without one; in text it is an unsigned number."""
SENDING = "xprt_sending"
"""The wait queue of tasks for which no credit is left, or that wait for others to be sent first."""


@dataclass(slots=True)
class Transport:
    """The state that all calls on a connection share."""

    granted: int | None = None
    """Credits; None before the first reply."""
    used: int = 0
    failing: int | None = None
    """Time (ns) since which the call whose turn it is finds no memory registration; None if it does."""
    failed: int = 0
    """Nanoseconds of earlier times without memory registrations."""

    @property
    def spent(self) -> bool:
        """Whether no credit is left."""
        return self.granted is not None and self.used >= self.granted

    def unregistered(self, time: int) -> int:
        """Nanoseconds up to ``time`` in which calls could not be sent for want of memory registrations."""
        return self.failed + (0 if self.failing is None else max(0, time - self.failing))


_ALONE = Transport()
MAX_NAMES = 4096
"""Files whose names are kept."""


@dataclass(slots=True, eq=False)
class ClientCall:
    """The RPC of a task that is under way; times in nanoseconds."""

    task: int
    client: int
    begin: int | None
    fields: dict[str, Any] | None
    """Fields of the RPC that the trace tells."""
    length: int = 0
    """Bytes of the RPC message."""
    xid: int | None = None
    program: str = ""
    version: int | None = None
    procedure: str = ""
    encode: int | None = None
    encoded: int | None = None
    send: int | None = None
    """Time of the attempt that succeeded; ``chunks`` are those of that attempt as well."""
    marshalled: bool = False
    inline: tuple[int, int, int] = (0, 0, RDMA_MSG)
    """Bytes of the transport header, bytes of the Payload stream in the Send, procedure."""
    chunks: TracedChunks = field(default_factory=TracedChunks)
    failing: int | None = None
    failed: int = 0
    waited: int = 0
    sleeping: tuple[str, str, int, int] | None = None
    """Wait queue, what the task waits for, since when, and how long its transport had lacked registrations by then."""
    waits: dict[str, int] = field(default_factory=dict)
    post: int | None = None
    transmit: int | None = None
    receive: int | None = None
    reply: int | None = None
    invalidations: int = 0
    wake: int | None = None
    decode: int | None = None
    end: int | None = None
    status: int | None = None
    error: str | None = None
    rpc: KnownRpc | None = None
    transport: Transport | None = None
    """The transport whose credit it uses."""
    losses: int = 0
    """``RpcLog.losses`` when it began."""


def of_task(take: Callable[..., None]) -> Callable[..., None]:
    """Let a method take the call of a task instead of the task's numbers, and only where that call is known."""

    def taken(side: ClientSide, event: Event, task: int, client: int, *fields: Any) -> None:
        call = side.calls.get((task, client))
        if call is not None:
            take(side, event, call, *fields)

    return taken


class ClientSide:
    """Makes RPCs from the events of a client."""

    def __init__(self, connections: TracedConnections, log: RpcLog) -> None:
        self._connections, self._log = connections, log
        self.calls: dict[tuple[int, int], ClientCall] = {}
        """By task: its ID, and its RPC client."""
        self._peers: dict[int, tuple[str, int | None]] = {}
        """By RPC client: address and port of the server."""
        self._queues: dict[int, Conversation] = {}
        """By completion queue of the connection's Sends."""
        self._transports: dict[int, Transport] = {}
        """By connection number."""
        self._last: dict[int, Transport] = {}
        """By RPC client: the transport on which it last sent."""
        self._sockets: dict[int, Conversation] = {}
        """By RPC client: its conversation on a socket."""
        self._receiving: dict[int, Conversation] = {}
        """By completion queue of the connection's receives."""
        self._sending: dict[int, ClientCall] = {}
        """By thread: the call that it last sent."""
        self._received: dict[int, Received] = {}
        """By thread: the latest receive completion."""
        self._answered: dict[int, ClientCall] = {}
        """By thread: the call whose reply it handles."""
        self._initiated: dict[int, dict[str, Any]] = {}
        """By thread: file and range for the next task that it starts."""
        self._names: dict[bytes, tuple[bytes, bytes]] = {}
        """By file handle: the directory in which the file was opened, and its name there; the latest files."""
        self._registering: dict[int, ClientCall] = {}
        """By memory registration: the call that invalidates it."""
        self._shows_credits = False
        """Whether the trace tells when a call on RDMA may be sent; older kernels do not."""

    def finish(self) -> None:
        """End everything: the trace is over."""
        for call in self.calls.values():
            self._close(call, None)
        self.calls.clear()
        for rpc in [*self._log.backward.values()]:
            self._unanswered(rpc)

    def forget(self, connections: set[int]) -> None:
        """Forget these connections; calls on them end."""
        for queues in (self._queues, self._receiving, self._sockets):
            drop(queues, connections)
        for task, call in [*self.calls.items()]:
            if call.rpc is not None and call.rpc.connection.number in connections:
                self._close(self.calls.pop(task), None)
        for rpc in [known for known in self._log.backward.values() if known.connection.number in connections]:
            self._unanswered(rpc)
        for number in connections:
            self._transports.pop(number, None)

    def forget_threads(self) -> None:
        """Forget what threads are doing: events were lost, so each may be at another call."""
        for by_thread in (self._sending, self._received, self._answered, self._initiated):
            by_thread.clear()

    def outstanding(self) -> list[KnownRpc]:
        """Calls without a reply so far."""
        forward = []
        for call in self.calls.values():
            if call.rpc is not None and not call.rpc.backward:
                self._log.note_losses(call.rpc, call.losses)
                forward.append(call.rpc)
        return [rpc for rpc in (*forward, *self._log.backward.values()) if rpc.reply is None]

    def let_go(self, limit: int) -> None:
        """Keep at most ``limit`` tasks, as the end of the oldest may have been lost."""
        while len(self.calls) > limit:
            self._close(self.calls.pop(next(iter(self.calls))), None)
        while len(self._log.backward) > limit:
            self._unanswered(next(iter(self._log.backward.values())))

    def _begin(
        self, task: int, client: int, begin: int | None = None, fields: dict[str, Any] | None = None
    ) -> ClientCall:
        """A new call of a task; the one before, if the trace does not tell its end, is over."""
        before = self.calls.get((task, client))
        if before is not None:
            self._close(before, None)
        call = self.calls[task, client] = ClientCall(task, client, begin, fields, losses=self._log.losses)
        return call

    def _call(self, task: int, client: int, begins: bool = False) -> ClientCall:
        """The call of a task; ``begins``: a call that has its reply is over, and a new one begins."""
        call = self.calls.get((task, client))
        return self._begin(task, client) if call is None or (begins and call.reply is not None) else call

    def _conversation(
        self, known: dict[int, Conversation], key: int, transport: str, client: int, event: Event
    ) -> Conversation:
        """The conversation of an RPC client that is ``known`` by this key; a new one where none is."""
        if key not in known:
            known[key] = self._connections.make("client", transport, "", *self._peers.get(client, ("", None)), event)
        return known[key]

    # Before the call is sent.

    def initiated(self, event: Event, handle: int, offset: int, count: int) -> None:
        self._initiated[event.pid] = {"handle": hashed_handle(handle), "offset": offset, "count": count}

    def opened(self, event: Event, handle: int, directory: int | None, name: str) -> None:
        """Note a file's name; the trace does not have the directory's handle, so its file ID stands in."""
        if name and directory is not None:
            self._names[hashed_handle(handle)] = b"fileid %d" % directory, name.encode(errors="surrogateescape")
            if len(self._names) > MAX_NAMES:
                del self._names[next(iter(self._names))]

    def task_begin(self, event: Event, task: int, client: int) -> None:
        self._begin(task, client, event.time, self._initiated.pop(event.pid, None))

    def request(self, event: Event, task: int, client: int, program: str, version: int, procedure: str) -> None:
        call = self._call(task, client, True)
        call.program, call.version, call.procedure = program, version, procedure
        if call.begin is None:
            call.begin = event.time

    def reserve(self, event: Event, task: int, client: int, xid: int) -> None:
        call = self._call(task, client, True)
        call.xid, call.encode = xid, event.time

    @of_task
    def sleep(self, event: Event, call: ClientCall, queue: str) -> None:
        if call.post is None:
            transport = self._last.get(call.client, _ALONE)
            what = CREDITS if queue == SENDING and transport.spent else queue
            call.sleeping = queue, what, event.time, transport.unregistered(event.time)
            if call.encoded is None and call.encode is not None:
                call.encoded = event.time

    @of_task
    def wakeup(self, event: Event, call: ClientCall, queue: str) -> None:
        if call.reply is not None:
            if call.wake is None:
                call.wake = event.time
        elif call.sleeping is not None and call.sleeping[0] == queue:
            _, what, since, failed = call.sleeping
            waited = event.time - since
            if what == SENDING and call.failing is None:  # It waits for one that found no registration.
                lacking = min(max(0, self._last.get(call.client, _ALONE).unregistered(event.time) - failed), waited)
                call.waited += lacking
                waited -= lacking
            call.waits[what] = call.waits.get(what, 0) + waited
            call.sleeping = None

    def reserve_credit(self, event: Event, task: int, client: int) -> None:
        self._shows_credits = True
        call = self.calls.get((task, client))
        if call is not None and call.encoded is None:
            call.encoded = event.time

    def send(self, event: Event, task: int, client: int, length: int) -> None:
        """Note an attempt to transmit, which may fail and be repeated with other memory."""
        call = self._call(task, client, True)
        call.send, call.length = event.time, length
        self._sending[event.pid] = call
        call.chunks = TracedChunks()

    def chunk_read(self, event: Event, task: int, client: int, position: int, *segment: int) -> None:
        self._call(task, client, True).chunks.read(position, Segment(*segment))

    def chunk_write(self, event: Event, task: int, client: int, *segment: int) -> None:
        """Add a segment to the Write or Reply chunk; Linux offers one chunk of each kind per call."""
        offered = self._call(task, client, True).chunks
        kind, chunks = ("reply", offered.reply) if event.name == REPLY_SEGMENT else ("write", offered.writes)
        if not chunks:
            chunks.append(ChunkUse(kind, None, []))
        chunks[0].segments.append(TracedSegment(Segment(*segment)))

    def marshal_failed(self, event: Event, task: int, client: int) -> None:
        """Note that no memory registration was free; ``xprtrdma_nomrs_err`` has said so before."""
        call = self._call(task, client)
        call.failed += 1
        transport = self._last.get(client)
        if transport is not None and transport.failing is None:
            transport.failing = event.time
        if call.failing is None:
            call.failing = event.time
        call.chunks = TracedChunks()

    def marshal(
        self,
        event: Event,
        task: int,
        client: int,
        xid: int,
        header: int,
        head: int,
        page: int,
        tail: int,
        read: int,
    ) -> None:
        call = self._call(task, client, True)
        call.xid, call.marshalled = xid, True
        transport = self._last.get(client)
        if transport is not None:
            transport.failed, transport.failing = transport.unregistered(event.time), None
        if call.failing is not None and call.send is not None:
            call.waited += call.send - call.failing
            call.failing = None
        if read == LONG_CALL:
            call.inline = header, 0, RDMA_NOMSG
        elif read == READ_LIST:
            call.inline = header, head + (tail & ~3 if tail > 3 else 0), RDMA_MSG
        else:
            call.inline = header, head + page + tail, RDMA_MSG

    # The call is sent.

    def post_send(self, event: Event, queue: int, task: int, client: int) -> None:
        call = self._call(task, client)
        if call.xid is None:
            return
        conversation = self._conversation(self._queues, queue, RDMA, client, event)
        self._use(call, conversation.connection.number)
        self._sent(call, conversation, event, *call.inline)

    def _use(self, call: ClientCall, connection: int) -> None:
        """Let the call use a credit of the connection."""
        self._free(call)
        transport = self._transports.setdefault(connection, Transport())
        transport.used += 1
        call.transport = self._last[call.client] = transport

    @staticmethod
    def _free(call: ClientCall) -> None:
        if call.transport is not None:
            call.transport.used -= 1
            call.transport = None

    def call_back(self, conversation: Conversation, event: Event, header: int) -> None:
        """On a server: the thread sends a backward call, for which it has a task, too."""
        call = self._sending.pop(event.pid, None)
        if call is not None and call.xid is not None and call.rpc is None:
            self._sent(call, conversation, event, header, call.length, RDMA_MSG, backward=True)

    @of_task
    def transmit(self, event: Event, call: ClientCall, xid: int, status: int) -> None:
        client = call.client
        if status:
            return
        if client in NO_CLIENT:  # It is a reply to the server.
            del self.calls[call.task, client]
            if (rpc := self._log.backward.get(xid)) is not None and rpc.conversation.traced == "client":
                self._answer(rpc, event, call.length)
            return
        if call.post is not None:
            call.transmit = event.time
            return
        if client in self._sockets or not call.marshalled:  # On a socket; for RDMA, xprtrdma tells of each Send.
            call.xid = xid
            conversation = self._conversation(self._sockets, client, SOCKET, client, event)
            self._sent(call, conversation, event, 0, call.length, None)
            call.transmit = event.time

    def _sent(
        self,
        call: ClientCall,
        conversation: Conversation,
        event: Event,
        header: int,
        inline: int,
        procedure: int | None,
        backward: bool = False,
    ) -> None:
        assert call.xid is not None
        if call.rpc is not None:  # It was sent before, on another connection.
            ended = call.rpc.connection.ended_by or "its connection was lost"
            self._log.trouble("resent", ended, event, call.rpc.number)
            self._unanswered(call.rpc)
        rpc = self._log.begin(conversation, call.xid, "server" if backward else "client", backward)
        name_call(rpc, call.program, call.version, call.procedure)
        if call.fields is not None:
            rpc.fields = rpc.fields._replace(**call.fields)
            rpc.opened = self._names.get(call.fields["handle"])
        rpc.call = message(int(backward), event, call.xid, None, header + inline, header, inline, procedure)
        rpc.chunks = call.chunks.all()
        add_lists(rpc.call.header, rpc.chunks, False)
        call.rpc, call.post, call.transmit = rpc, event.time, None
        if call.marshalled and call.chunks.header_length() != header:
            rpc.notes += (CHUNKS_UNKNOWN,)
        self._log.called(rpc)

    # The reply.

    def receive(self, event: Event, queue: int | None, length: int, status: int) -> None:
        self._log.completed("receive", event, status)
        if not status:
            self._received[event.pid] = Received(event.number, event.time, length, queue)

    def called_back(self, event: Event, xid: int) -> None:
        """Note a backward call; the client's reply is a task that starts with ``transmit``."""
        came = self._received.pop(event.pid, None)
        conversation = None if came is None or came.queue is None else self._receiving.get(came.queue)
        if came is not None and conversation is not None:
            rpc = self._log.begin(conversation, xid, "client", backward=True)
            rpc.call = message(1, came, rpc.xid, None, came.length, HEADER, procedure=RDMA_MSG)
            self._log.called(rpc)

    def _answer(self, rpc: KnownRpc, event: Event, length: int) -> None:
        """Note that the client's reply to a backward call was sent."""
        rpc.reply = message(0, event, rpc.xid, None, HEADER + length, HEADER, length, RDMA_MSG)
        self._log.replied(rpc)
        assert rpc.call is not None
        rpc.latency = Latency(max(0, event.time - rpc.call.operation.first_time), 0, 0, 0, 0, 0)
        self._log.end(rpc)

    @of_task
    def replied(self, event: Event, call: ClientCall, xid: int, credits: int) -> None:
        if call.rpc is None or call.rpc.xid != xid:
            return
        if call.transport is not None:
            call.transport.granted = credits
            self._free(call)
        came = self._received.pop(event.pid, None)
        call.reply = event.time
        if came is None:
            came = Received(event.number, event.time, 0)
        else:
            call.receive = came.time
        if came.queue is not None:
            self._receiving[came.queue] = call.rpc.conversation
        self._answered[event.pid] = call
        call.rpc.reply = message(1, came, xid, credits, came.length)
        self._log.replied(call.rpc)

    @of_task
    def refused(self, event: Event, call: ClientCall) -> None:
        """Note that the reply is an RDMA_ERROR."""
        if call.rpc is not None and call.rpc.reply is not None:
            error = REFUSALS[event.name]
            call.error = error_name(1, error)
            call.rpc.reply.header.procedure, call.rpc.reply.header.error = RDMA_ERROR, error

    @of_task
    def local_invalidation(self, event: Event, call: ClientCall, registration: int) -> None:
        call.invalidations += 1
        self._registering[registration] = call

    @of_task
    def remote_invalidation(self, event: Event, call: ClientCall, handle: int) -> None:
        if call.rpc is not None and call.rpc.reply is not None:
            call.rpc.reply.operation.invalidate = handle

    def invalidated(self, event: Event, registration: int, status: int) -> None:
        """Note a call's last local invalidation: the same thread continues with its reply."""
        self._log.completed("local invalidation", event, status)
        call = self._registering.pop(registration, None)
        if call is not None:
            self._answered[event.pid] = call

    def decode_segment(self, event: Event, *segment: int) -> None:
        call = self._answered.get(event.pid)
        if call is not None:
            call.chunks.returned(*segment)

    @of_task
    def receive_xdr(self, event: Event, call: ClientCall, length: int) -> None:
        if call.decode is not None:
            return
        call.decode = event.time
        rpc = call.rpc
        if rpc is not None and rpc.reply is None and rpc.connection.transport == SOCKET:
            call.receive = call.reply = event.time
            rpc.reply = message(1, event, rpc.xid, None, length, 0, length, None)

    @of_task
    def nfs_status(self, event: Event, call: ClientCall, error: int) -> None:
        call.error = nfs_status(call.version, error)

    @of_task
    def task_end(self, event: Event, call: ClientCall, status: int) -> None:
        call.end, call.status = event.time, status

    def latency(
        self,
        event: Event,
        task: int,
        client: int,
        program: str,
        version: int,
        procedure: str,
        execute: int,
    ) -> None:
        call = self.calls.pop((task, client), None)
        if call is None:
            return
        if not call.program and call.rpc is not None:
            call.program, call.version, call.procedure = program, version, procedure
            name_call(call.rpc, program, version, procedure)
        call.end = event.time
        self._close(call, execute * 1000)

    def _close(self, call: ClientCall, execute: int | None) -> None:
        """End a call; ``execute``: its total time (ns) as measured by the kernel."""
        self._free(call)
        rpc = call.rpc
        if rpc is None:
            return
        self._log.note_losses(rpc, call.losses)
        reply = rpc.reply
        if reply is None:
            if call.end is not None and (call.status or 0) >= 0:
                rpc.notes += (REPLY_NOT_SEEN,)
            self._unanswered(rpc)
            return
        if any(use.returned is None for chunk in call.chunks.writes for use in chunk.segments):
            rpc.notes += (CHUNKS_UNKNOWN,)  # A reply returns each chunk, with what was written (RFC 8166, 4.4.6.2).
        if reply.header.procedure != RDMA_ERROR:
            call.chunks.finish_reads()
        if call.decode is None or rpc.notes:
            reply.operation.length = reply.inline_length = 0
            reply.header.procedure = None if reply.header.procedure == RDMA_MSG else reply.header.procedure
        elif rpc.connection.transport == RDMA and reply.header.procedure != RDMA_ERROR:
            reply.header.length, reply.header.procedure = reply_header(rpc.chunks)
            add_lists(reply.header, rpc.chunks, True)
            reply.inline_length = max(0, reply.operation.length - reply.header.length)
        status = call.status or 0
        if rpc.fields.offset is not None and status >= 0:
            rpc.moved = call.status
        rpc.status, rpc.failed = "OK" if call.status is not None and EVENTS_LOST not in rpc.notes else "", False
        if call.error is not None:
            rpc.status, rpc.failed = call.error, True
        elif status < 0:
            rpc.status, rpc.failed = errorcode.get(-status, f"error {status}"), True
        assert rpc.call is not None
        if call.receive is not None or rpc.backward:
            total = max(0, reply.operation.last_time - rpc.call.operation.first_time)
            rpc.latency = Latency(total, 0, 0, 0, 0, 0)  # The trace does not tell the parts on the wire.
        else:
            rpc.notes += (NOT_RECEIVED.format("reply"),)
        if call.encoded is None and (rpc.connection.transport == SOCKET or not self._shows_credits):
            call.encoded = call.send
        rpc.host = None if rpc.backward else client_times(call, execute)
        self._log.end(rpc)

    def _unanswered(self, rpc: KnownRpc) -> None:
        rpc.state = "no reply"
        self._log.end(rpc)

    # Connections.

    def new_client(self, event: Event, client: int, address: str | None, port: str | None, server: str | None) -> None:
        self._peers[client] = (address or server or "").strip("[]"), int(port) if port else None
        self._sockets.pop(client, None)


def client_times(call: ClientCall, execute: int | None) -> HostTimes:
    """The phases of a call that has its reply; without the kernel's own measure of the total, from its first event to
    its last."""
    begin, end = call.begin, call.end
    if execute is not None and end is not None:
        begin = end - execute
    sent = call.post if (call.receive or 0) < (call.transmit or 0) else call.transmit
    # A task that did not sleep is not woken; the time to invalidate its memory is then not visible.
    lost = call.rpc is not None and EVENTS_LOST in call.rpc.notes
    wake = call.reply if call.wake is None and not lost else call.wake
    moments = (
        begin, call.encode, call.encoded, call.send, call.post, sent, call.receive, call.reply, wake, call.decode,
        end,
    )  # fmt: skip
    (
        reserved, encoded, credit, marshalled, posted, wire, completed, invalidated, woken, decoded
    ) = spans(moments, end)  # fmt: skip
    chunked = bool(call.rpc is not None and call.rpc.chunks)
    return HostTimes(
        total_of(reserved, credit),
        total_of(encoded, 0 if chunked else marshalled),
        marshalled if chunked else 0,
        posted,
        wire,
        completed if call.invalidations else total_of(completed, invalidated),
        0 if not call.invalidations else None if call.wake is None else invalidated,
        woken,
        decoded,
        registration_wait=call.waited,
        failed_registrations=call.failed,
        waits=tuple(sorted(call.waits.items())),
        local_invalidations=call.invalidations,
    )
