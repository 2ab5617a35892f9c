"""An Analyzer that takes the events of a trace, in the order of time, instead of frames, and gives Rpcs as they end.

One dictionary look-up finds which method takes an event, and which of its fields.  State is that of the hosts: tasks,
completion queues, threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from ..rpcrdma.analyzer import Analyzer, Options
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.listeners import Listener
from ..rpcrdma.rpc_table import RpcTable
from ..rpcrdma.rpcs import HostTrouble, Rpc
from ..rpcrdma.unanswered import note_outstanding
from ..transport.connection import Connection, ending_words
from ..transport.health import CapturePoint, DirectionHealth, TransportHealth
from .client import ClientSide
from .events import EVENTS, LOST, Event
from .rpcs import CmPair, RpcLog, TracedConnections
from .server import ServerSide

_TASK = ("task_id", "client_id")
_SEGMENT = ("handle", "length", "offset")
_QUEUE = ("cq_id", "completion_id")
_CALL = ("progname", "version", "procname")

CLIENT: dict[str, tuple[str, tuple[str, ...]]] = {
    "nfs_initiate_read": ("initiated", ("fhandle", "offset", "count")),
    "nfs_initiate_write": ("initiated", ("fhandle", "offset", "count")),
    "nfs_initiate_commit": ("initiated", ("fhandle", "offset", "count")),
    "nfs4_open_file": ("opened", ("fhandle", "dir", "name")),
    "rpc_clnt_new": ("new_client", ("client_id", "addr", "port", "server")),
    "rpc_task_begin": ("task_begin", _TASK),
    "rpc_request": ("request", (*_TASK, *_CALL)),
    "xprt_reserve": ("reserve", (*_TASK, "xid")),
    "rpc_task_sleep": ("sleep", (*_TASK, "q_name")),
    "rpc_task_wakeup": ("wakeup", (*_TASK, "q_name")),
    "xprt_reserve_cong": ("reserve_credit", _TASK),
    "rpc_xdr_sendto": ("send", (*_TASK, "msg_len")),
    "xprtrdma_chunk_read": ("chunk_read", (*_TASK, "pos", *_SEGMENT)),
    "xprtrdma_chunk_write": ("chunk_write", (*_TASK, *_SEGMENT)),
    "xprtrdma_chunk_wp": ("chunk_write", (*_TASK, *_SEGMENT)),
    "xprtrdma_chunk_reply": ("chunk_write", (*_TASK, *_SEGMENT)),
    "xprtrdma_marshal_failed": ("marshal_failed", _TASK),
    "xprtrdma_prepsend_failed": ("marshal_failed", _TASK),
    "xprtrdma_marshal": ("marshal", (*_TASK, "xid", "hdrlen", "headlen", "pagelen", "taillen", "rtype")),
    "xprtrdma_post_send": ("post_send", ("cq_id", *_TASK)),
    "xprt_transmit": ("transmit", (*_TASK, "xid", "status")),
    "xprtrdma_wc_receive": ("receive", ("cq_id", "received", "status")),
    "xprtrdma_cb_call": ("called_back", ("xid",)),
    "xprtrdma_reply": ("replied", (*_TASK, "xid", "credits")),
    "xprtrdma_err_vers": ("refused", _TASK),
    "xprtrdma_err_chunk": ("refused", _TASK),
    "xprtrdma_mr_localinv": ("local_invalidation", (*_TASK, "mr_id")),
    "xprtrdma_mr_reminv": ("remote_invalidation", (*_TASK, "handle")),
    "xprtrdma_wc_li": ("invalidated", ("completion_id", "status")),
    "xprtrdma_wc_li_done": ("invalidated", ("completion_id", "status")),
    "xprtrdma_wc_li_wake": ("invalidated", ("completion_id", "status")),
    "xprtrdma_decode_seg": ("decode_segment", _SEGMENT),
    "rpc_xdr_recvfrom": ("receive_xdr", (*_TASK, "msg_len")),
    "nfs_xdr_status": ("nfs_status", (*_TASK, "error")),
    "rpc_task_end": ("task_end", (*_TASK, "status")),
    "rpc_stats_latency": ("latency", (*_TASK, *_CALL, "execute")),
}
"""Event: the method of ClientSide that takes it, and the fields it gets."""

SERVER: dict[str, tuple[str, tuple[str, ...]]] = {
    "svcrdma_wc_recv": ("receive", ("received", *_QUEUE)),
    "svc_xprt_enqueue": ("enqueue", ("server", "client")),
    "svc_xprt_dequeue": ("dequeue", ("server", "client")),
    "svcrdma_decode_rseg": ("read_segment", (*_QUEUE, "segno", "position", *_SEGMENT)),
    "svcrdma_decode_wseg": ("write_segment", (*_QUEUE, "segno", *_SEGMENT)),
    "svcrdma_decode_rqst": ("request", (*_QUEUE, "xid", "credits", "proc", "hdrlen")),
    "svcrdma_post_read_chunk": ("post_read", _QUEUE),
    "svcrdma_wc_read": ("read", _QUEUE),
    "svc_xdr_recvfrom": ("receive_xdr", ("xid",)),
    "svc_process": ("process", ("xid", "service", "vers", "procedure")),
    "nfsd_compound_status": ("operation", ("name", "status")),
    "nfsd_fh_verify": ("handle", ("xid", "fh_hash")),
    "nfsd_read_start": ("file_begin", ("xid", "fh_hash", "offset", "len")),
    "nfsd_write_start": ("file_begin", ("xid", "fh_hash", "offset", "len")),
    "nfsd_commit_start": ("file_begin", ("xid", "fh_hash", "offset", "len")),
    "nfsd_read_done": ("file_end", ("xid", "len")),
    "nfsd_write_done": ("file_end", ("xid", "len")),
    "nfsd_commit_done": ("file_end", ("xid", "len")),
    "svc_xdr_sendto": ("send_xdr", ("xid", "msg_len")),
    "svc_stats_latency": ("latency", ("xid", "execute")),
    "svcrdma_post_write_chunk": ("post_write", _QUEUE),
    "svcrdma_post_reply_chunk": ("post_write", _QUEUE),
    "svcrdma_post_chunk": ("post_chunk", _QUEUE),
    "svcrdma_encode_wseg": ("returned", _SEGMENT),
    "svcrdma_send_pullup": ("pulled_up", ("hdrlen",)),
    "svcrdma_post_send": ("post_send", (*_QUEUE, "inv_rkey")),
    "svcrdma_wc_write": ("wrote", _QUEUE),
    "svcrdma_wc_send": ("sent", _QUEUE),
    "svc_send": ("done", ("xid",)),
    "svcrdma_wc_send_err": ("send_failed", (*_QUEUE, "status")),
    "svcrdma_wc_send_flush": ("send_failed", (*_QUEUE, "status")),
}
"""Event: the method of ServerSide that takes it, and the fields it gets."""

OWN: dict[str, tuple[str, tuple[str, ...]]] = {
    "cm_event_handler": ("_manage", ("srcaddr", "dstaddr", "event")),
    "cm_disconnect": ("_disconnect", ("srcaddr", "dstaddr")),
    "xprtrdma_inline_thresh": ("_negotiated", ("srcaddr", "dstaddr", "inline_send", "inline_recv")),
}
"""Event: the method of TraceMachine that takes it, and the fields it gets."""

COMPLETIONS = {
    "xprtrdma_wc_send": "Send",
    "xprtrdma_wc_fastreg": "memory registration",
    "svcrdma_wc_recv_err": "receive",
    "svcrdma_wc_read_err": "RDMA Read",
    "svcrdma_wc_write_err": "RDMA Write",
}
"""Event: the work request whose completion it tells, and nothing else."""

CONNECT_REQUEST, ESTABLISHED, DISCONNECTED = 4, 9, 10
"""Events of the connection manager (include/rdma/rdma_cm.h)."""


LACKING = {
    "rpc_clnt_new": 4,
    "xprtrdma_post_send": 1,
    "xprtrdma_wc_receive": 1,
    "svcrdma_wc_recv": 1,
    "svc_xprt_enqueue": 2,
    "svc_xprt_dequeue": 2,
    "svcrdma_decode_rseg": 4,
    "svcrdma_decode_wseg": 3,
}
"""Events of which some kernels lack so many of the first fields; an event that lacks others is skipped."""
LATEST = 1 << 62
"""Nanoseconds; a later time is damage."""
MAX_OPEN = 1 << 16
"""Calls that either side keeps; with more, events that ended them must have been lost."""


class TraceMachine:
    """Carries all state from batch to batch."""

    def __init__(
        self, connections: list[Connection], conversations: dict[int, Conversation], troubles: list[HostTrouble]
    ) -> None:
        """The collections to add connections, conversations (by number) and troubles to."""
        self._connections = TracedConnections(connections, conversations)
        self.log = RpcLog(self._connections.listeners, troubles)
        self.client = ClientSide(self._connections, self.log)
        self.server = ServerSide(self._connections, self.log, self.client)
        sides = (self.client, CLIENT), (self.server, SERVER), (self, OWN)
        self._handlers: dict[str, tuple[Callable[..., None], Callable[[tuple[Any, ...]], Any]]] = {}
        self._passive: set[str] = set()
        """Addresses at which this host received connection requests."""
        for side, table in sides:
            for name, (method, fields) in table.items():
                self._handlers[name] = getattr(side, method), _chooser(name, fields)
        for name, work in COMPLETIONS.items():
            self._handlers[name] = partial(self.log.completed, work), _chooser(name, ("status",))
        self._handlers[LOST] = self._lost, itemgetter(slice(0))

    def listen(self, listener: Callable[[Conversation], Listener | None] | None) -> None:
        """``listener``: makes the Listener of a new conversation."""
        self._connections.listener = listener

    def feed(self, events: Iterable[Event]) -> list[Rpc]:
        """Take events; returns the Rpcs that ended."""
        handlers = self._handlers
        for event in events:
            name = event.name
            handler = handlers.get(name)
            if handler is not None and 0 <= event.time < LATEST:
                fields = handler[1](event.values)
                if None not in fields or (name in LACKING and None not in fields[LACKING[name] :]):
                    handler[0](event, *fields)
        for side in (self.client, self.server):
            side.let_go(MAX_OPEN)
        return self.log.take()

    def forget(self, connections: set[int]) -> list[Rpc]:
        """Forget these connections; returns what was outstanding on them."""
        for side in (self.client, self.server):
            side.forget(connections)
        for number in connections:
            self._connections.listeners.pop(number, None)
        return self.log.take()

    def outstanding(self) -> list[Rpc]:
        """Calls without a reply so far."""
        return [*self.client.outstanding(), *self.server.outstanding()]

    def finish(self) -> list[Rpc]:
        """Release the rest: the trace is over."""
        self.client.finish()
        self.server.finish()
        return self.log.take()

    def _lost(self, event: Event) -> None:
        """Note that events were lost, which may concern any call under way."""
        self.log.losses += 1
        self.client.forget_threads()
        self.server.forget_threads()
        for rpc in self.log.backward.values():
            self.log.note_losses(rpc, 0)

    def _manage(self, event: Event, source: str, destination: str, kind: int) -> None:
        if kind == CONNECT_REQUEST:
            self._passive.add(source)
        elif kind == ESTABLISHED:
            self._connections.establish(self._pair(source, destination), event.time)
        elif kind == DISCONNECTED:
            self._connections.end(self._pair(source, destination), "disconnected", event.time)

    def _disconnect(self, event: Event, source: str, destination: str) -> None:
        by = "server" if source in self._passive else "client"
        self._connections.end(self._pair(source, destination), f"DREQ from the {by}", event.time)

    def _pair(self, source: str, destination: str) -> CmPair:
        return CmPair(destination, source) if source in self._passive else CmPair(source, destination)

    def _negotiated(self, event: Event, source: str, destination: str, sent: int, received: int) -> None:
        self._connections.establish(CmPair(source, destination), event.time, (sent, received))


def _chooser(name: str, fields: tuple[str, ...]) -> Callable[[tuple[Any, ...]], Any]:
    """A function that picks these fields of an event's values, as a tuple."""
    places = [EVENTS[name].index(field) for field in fields]
    if len(places) == 1:
        (place,) = places
        return lambda values: (values[place],)
    return itemgetter(*places)


_NOTHING_SENT = DirectionHealth()


class TraceAnalyzer(Analyzer):
    """An Analyzer for a trace: ``frames`` counts events, and there are no packets.

    Times are the trace's clock, which usually starts with the host.
    """

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self._traced = TraceMachine(self.connections, self._conversations, self.troubles)

    def feed_events(self, events: Sequence[Event]) -> RpcTable:
        """Take events in the order of time; returns the Rpcs that ended."""
        if events:
            if self.first_time is None:
                self.first_time = self.earliest_time = events[0].time
                self._traced.listen(self.listener)
            self.last_time = events[-1].time
            self._now = self.last_time
        ended = self._traced.feed(events)
        before = {*self._conversations}
        self._evict()
        gone = before.difference(self._conversations)
        return self._ended([*ended, *(self._traced.forget(gone) if gone else ())])

    def tick(self, now: int) -> list[Rpc]:
        """Nothing in a trace waits for time to pass."""
        return []

    def outstanding(self) -> Iterator[Rpc]:
        yield from self._traced.outstanding()

    def finish_table(self) -> RpcTable:
        return self._ended(self._traced.finish())

    def _ended(self, rpcs: list[Rpc]) -> RpcTable:
        note_outstanding(rpcs, self.connections, self.end_of)
        return RpcTable(rpcs)

    def number_behind(self, connections: int, rpcs: int) -> None:
        self._traced.log.last_number = rpcs

    @property
    def traced(self) -> str:  # type: ignore[override]
        return self._traced.log.side or "host"

    def health(self, number: int) -> TransportHealth:
        connection = self._conversations[number].connection
        point = CapturePoint(
            "beside the responder" if self.traced == "server" else "beside the requester",
            1.0,
            f"a trace of the {self.traced}'s kernel",
            "server times are the server's own" if self.traced == "server" else "server times include the network",
        )
        ended = ending_words(connection.ended_by) if connection.ended_by else "open at the end of the trace"
        return TransportHealth(
            number, connection.transport, (_NOTHING_SENT, _NOTHING_SENT), (), 0, None, ended, point, None
        )
