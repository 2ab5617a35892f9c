"""Events of the kernels' traces, as hosts would pass them, one RPC after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rdmascope.dissect.diagnosis.facts import Facts, Gathered
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.trace.analyzer import TraceAnalyzer
from rdmascope.dissect.trace.events import EVENTS, Event

MICROSECOND, MILLISECOND = 1_000, 1_000_000
START = 60_000 * MILLISECOND
KWORKER, NFSD = 24, 170
ENDS = {"server": "10.0.0.1:20049", "client": "10.0.0.2:0"}


class Host:
    """Passes tracepoints, as time goes on."""

    def __init__(self) -> None:
        self.now = START
        self.queue = 1
        """Of its Sends; the next is that of its receives."""
        self.events: list[Event] = []

    def passes(self, name: str, pid: int = 700, /, **fields: Any) -> None:
        """A tracepoint; a microsecond goes by."""
        known = EVENTS.get(name, ())  # LOST is none of them.
        assert fields.keys() <= {*known}, name
        values = tuple(fields.get(field) for field in known)
        self.events.append(Event(len(self.events) + 1, self.now, name, pid, values))
        self.now += MICROSECOND

    def waits(self, milliseconds: float) -> None:
        self.now += int(milliseconds * MILLISECOND)

    def sleeps(self, queue: str, milliseconds: float, **task: int) -> None:
        """A task, on a wait queue of the kernel."""
        if milliseconds:
            self.passes("rpc_task_sleep", **task, q_name=queue)
            self.waits(milliseconds)
            self.passes("rpc_task_wakeup", **task, q_name=queue)

    def rpcs(self) -> list[Rpc]:
        """What these events are."""
        analyzer = TraceAnalyzer()
        return [*analyzer.feed_events(self.events), *analyzer.finish()]

    def facts(self) -> Facts:
        """What detectors see of them."""
        analyzer, gathered = TraceAnalyzer(), Gathered()
        for table in (analyzer.feed_events(self.events),):
            gathered.add_table(table)
        gathered.add_table(RpcTable([*analyzer.finish()]))
        return gathered.facts(analyzer)


class Client(Host):
    """A client."""

    def call(
        self,
        xid: int,
        *,
        slot: float = 0,
        session: float = 0,
        credit: float = 0,
        turn: float = 0,
        unregistered: int = 0,
        chunk: int = 0,
        reply: int = 0,
        takes: float = 1,
        revokes: float = 0,
        error: int = 0,
    ) -> None:
        """An RPC; times in milliseconds: for a slot, a slot of the session, a credit that another call has, its turn
        to be sent, on the wire, to revoke memory.

        ``unregistered``: attempts that find no memory registration, a millisecond each; ``chunk``: bytes of a Read
        chunk; ``reply``: of a Reply chunk that 100 bytes come through; ``error``: NFS status.
        """
        task = {"task_id": xid & 0xFF, "client_id": 1}
        name = {"progname": "nfs", "version": 3, "procname": "WRITE" if chunk else "GETATTR"}
        begin = self.now
        self.passes("rpc_task_begin", **task)
        self.sleeps("ForeChannel Slot table", session, **task)
        self.passes("rpc_request", **task, **name)
        self.sleeps("xprt_backlog", slot, **task)
        self.passes("xprt_reserve", **task, xid=xid)
        if credit:
            other = {"task_id": 0x100 + xid, "client_id": 1}
            self.sends(other, xid + 0x10000)
            self.sleeps("xprt_sending", credit, **task)
            self.is_answered(other, xid + 0x10000, 1)
        self.sleeps("xprt_sending", turn, **task)
        for _ in range(unregistered):
            self.passes("rpc_xdr_sendto", **task, msg_len=100)
            self.passes("xprtrdma_marshal_failed", **task, xid=xid, ret=-11)
            self.waits(1)
        segment = {"handle": 7, "offset": xid << 32}
        self.sends(task, xid, chunk, reply, **segment)
        self.waits(takes)
        self.is_answered(task, xid, 1 if credit else 64)
        if revokes:
            self.passes("xprtrdma_mr_localinv", KWORKER, **task, mr_id=3)
            self.waits(revokes)
            self.passes("xprtrdma_wc_li_done", KWORKER, cq_id=self.queue, completion_id=3, status=0)
        if reply:
            self.passes("xprtrdma_decode_seg", KWORKER, **{**segment, "length": 100})
        self.passes("rpc_task_wakeup", KWORKER, **task, q_name="xprt_pending")
        self.passes("rpc_xdr_recvfrom", **task, msg_len=100)
        if error:
            self.passes("nfs_xdr_status", **task, xid=xid, **name, error=error)
        self.passes("rpc_task_end", **task, status=-error)
        measured = {"backlog": 0, "rtt": 0, "execute": (self.now - begin) // MICROSECOND}
        self.passes("rpc_stats_latency", **task, xid=xid, **name, **measured)

    def sends(self, task: dict[str, int], xid: int, chunk: int = 0, reply: int = 0, **segment: int) -> None:
        """A call."""
        self.passes("rpc_xdr_sendto", **task, msg_len=100 + chunk)
        if chunk:
            self.passes("xprtrdma_chunk_read", **task, pos=100, length=chunk, **segment)
        if reply:
            self.passes("xprtrdma_chunk_reply", **task, length=reply, **segment)
        header = 28 + 24 * bool(chunk) + 20 * bool(reply)
        lengths = {"hdrlen": header, "headlen": 100, "pagelen": chunk, "taillen": 0}
        self.passes("xprtrdma_marshal", **task, xid=xid, **lengths, rtype=3 if chunk else 0, wtype=6 if reply else 0)
        self.passes("xprtrdma_post_send", **task, cq_id=self.queue, completion_id=1)
        self.passes("xprt_transmit", **task, xid=xid, status=0)

    def is_answered(self, task: dict[str, int], xid: int, credits: int) -> None:
        """Its reply comes."""
        self.passes("xprtrdma_wc_receive", KWORKER, cq_id=self.queue + 1, completion_id=1, received=128, status=0)
        self.passes("xprtrdma_reply", KWORKER, **task, xid=xid, credits=credits)


class Server(Host):
    """A server."""

    def call(self, xid: int, *, thread: float = 0, takes: float = 1, file_system: float = 0, send: float = 0.1) -> None:
        """An RPC; times in milliseconds: until a thread is free, to be carried out, in the file system, to send."""
        self.receives(xid)
        self.passes("svc_xprt_enqueue", KWORKER, **ENDS)
        if thread:  # The thread is at another call.
            self.waits(thread)
            self.passes("svc_send", NFSD, xid=xid - 1)
        self.passes("svc_xprt_dequeue", NFSD, **ENDS, wakeup=0)
        self.carries_out(xid, takes=takes, file_system=file_system, send=send)

    def receives(self, xid: int) -> None:
        """A call."""
        self.passes("svcrdma_wc_recv", KWORKER, cq_id=self.queue + 1, completion_id=xid, received=128)

    def carries_out(self, xid: int, *, takes: float = 1, file_system: float = 0, send: float = 0.1) -> None:
        """A call that a thread took."""
        queue = {"cq_id": self.queue + 1, "completion_id": xid}
        self.passes("svcrdma_decode_rqst", NFSD, **queue, xid=xid, vers=1, credits=128, proc=0, hdrlen=28)
        begin = self.now
        self.passes("svc_xdr_recvfrom", NFSD, xid=xid, msg_len=100)
        self.passes("svc_process", NFSD, xid=xid, service="nfsd", vers=3, procedure="WRITE", addr="10.0.0.2")
        self.waits(takes)
        if file_system:
            written = {"xid": xid, "fh_hash": 9, "offset": 0, "len": 10}
            self.passes("nfsd_write_start", NFSD, **written)
            self.waits(file_system)
            self.passes("nfsd_write_done", NFSD, **written)
        self.passes("svc_xdr_sendto", NFSD, xid=xid, msg_len=100)
        self.passes("svc_stats_latency", NFSD, xid=xid, execute=(self.now - begin) // MICROSECOND)
        self.passes("svcrdma_post_send", NFSD, cq_id=self.queue, completion_id=5, num_sge=1, inv_rkey=0)
        self.waits(send)
        self.passes("svcrdma_wc_send", KWORKER, cq_id=self.queue, completion_id=5)


def each(host: Client | Server, count: int, **how: Any) -> Iterator[int]:
    """XIDs of so many calls, which the host makes."""
    for xid in range(1, count + 1):
        host.call(xid, **how)
        yield xid


def client(count: int = 40, **how: Any) -> Client:
    """A client that made so many calls."""
    made = Client()
    _exhaust(each(made, count, **how))
    return made


def server(count: int = 40, **how: Any) -> Server:
    """A server that answered so many."""
    made = Server()
    _exhaust(each(made, count, **how))
    return made


def _exhaust(xids: Iterable[int]) -> None:
    for _ in xids:
        pass
