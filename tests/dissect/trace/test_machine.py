"""From events to Rpcs: kernels that tell less, and traces of which something is lost or wrong."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from playbook.traces import ENDS, KWORKER, MICROSECOND, MILLISECOND, NFSD, Client, Server, client, server
from rdmascope.captures.read.traces import TextEvents, Trace
from rdmascope.dissect.diagnosis.facts import Gathered, diagnose
from rdmascope.dissect.onc.rpc_header import NFS_CALLBACK
from rdmascope.dissect.records.rpc_lines import rpc_record
from rdmascope.dissect.rpcrdma.analyzer import Options
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import EVENTS_LOST, Rpc
from rdmascope.dissect.trace.analyzer import TraceAnalyzer
from rdmascope.dissect.trace.events import EVENTS, LONG, LOST, Event

HERE = Path(__file__).parents[2] / "captures" / "read"

READ_5_10 = """\
svcrdma_wc_receive: cq.id=2 cid=44 status=SUCCESS (0/0x0)
svc_xprt_do_enqueue: addr=10.0.0.2 pid=0 flags=XPT_DATA
svc_xprt_dequeue: addr=10.0.0.2 flags=XPT_DATA wakeup-us=31
svcrdma_decode_wseg: 4096@0x5cd6051a045cc000:0x00000c28
svcrdma_decode_rqst: cq.id=2 cid=44 xid=0x5cd6051a vers=1 credits=128 proc=RDMA_MSG hdrlen=52
svc_xdr_recvfrom: xid=0x5cd6051a head=[00000000a1,104] page=0 tail=[00000000a1,0] len=104
svc_process: addr=10.0.0.2 xid=0x5cd6051a service=nfsd vers=3 proc=6
nfsd_read_start: xid=0x5cd6051a fh_hash=0x2c6dea28 offset=0 len=4096
nfsd_read_done: xid=0x5cd6051a fh_hash=0x2c6dea28 offset=0 len=6
svc_xdr_sendto: xid=0x5cd6051a head=[00000000a1,128] page=6 tail=[00000000a1,2] len=136
svc_stats_latency: addr=10.0.0.2 xid=0x5cd6051a execute-us=410
svcrdma_post_chunk: cq.id=1 cid=81 sqecount=1
svcrdma_encode_wseg: 6@0x5cd6051a045cc000:0x00000c28
svcrdma_post_send: cq_id=1 cid=72 num_sge=1 inv_rkey=0x00000c28
svcrdma_wc_write: cq.id=1 cid=81 status=SUCCESS (0/0x0)
svcrdma_wc_send: cq.id=1 cid=72 status=SUCCESS (0/0x0)
"""
WRITE_5_10 = """\
svcrdma_decode_rqst: cq.id=2 cid=45 xid=0x66d6051a vers=1 credits=128 proc=RDMA_MSG hdrlen=76
svcrdma_encode_rseg: 131072@0x66d6051a087c8000:0x00000b19
svcrdma_post_chunk: cq.id=1 cid=94 sqecount=14
svcrdma_wc_read: cq.id=1 cid=94 status=SUCCESS (0/0x0)
svc_xdr_recvfrom: xid=0x66d6051a head=[00000000a1,112] page=131072 tail=[00000000a1,0] len=131184
svc_process: addr=10.0.0.2 xid=0x66d6051a service=nfsd vers=3 proc=7
svc_xdr_sendto: xid=0x66d6051a head=[00000000a1,136] page=0 tail=[00000000a1,0] len=136
svcrdma_post_send: cq_id=1 cid=73 num_sge=1 inv_rkey=0x00000000
svcrdma_wc_send: cq.id=1 cid=73 status=SUCCESS (0/0x0)
"""
CALL_5_10 = """\
rpc_clnt_new: client=5 peer=[10.0.0.1]:20049 program=nfs server=10.0.0.1
rpc_task_begin: task:23@5 flags=SENT runstate=ACTIVE status=0 action=0
rpc_request: task:23@5 nfsv3 GETATTR (sync)
xprt_reserve: task:23@5 xid=0x7bd6051a
rpc_xdr_sendto: task:23@5 head=[00000000a1,92] page=0 tail=[00000000a1,0] len=92
xprtrdma_marshal: task:23@5 xid=0x7bd6051a: hdr=28 xdr=92/0/0 inline/inline
xprtrdma_post_send: task:23@5 req=00000000a1 sc=00000000b2 (2 SGEs) signaled
xprt_transmit: task:23@5 xid=0x7bd6051a seqno=0 status=0
xprtrdma_wc_receive: rep=00000000c3 140 bytes: SUCCESS (0/0x0)
xprtrdma_reply: task:23@5 xid=0x7bd6051a, 64 credits, rep=00000000c3 -> req=00000000a1
rpc_xdr_recvfrom: task:23@5 head=[00000000a1,112] page=0 tail=[00000000a1,0] len=112
rpc_task_end: task:23@5 flags=SENT runstate=ACTIVE status=0 action=0
rpc_stats_latency: task:23@5 xid=0x7bd6051a nfsv3 GETATTR backlog=5 rtt=90 execute=120
"""


def begun(host: type[Client | Server], how: dict[str, Any]) -> Client | Server:
    """Two calls."""
    made = host()
    for xid in (1, 2):
        made.call(xid, **how)
    return made


def rpcs_of(lines: str) -> list[Rpc]:
    """A line each 10 us."""
    printed = [f"nfsd-170 [000] 64.{i:05}0: {line}\n" for i, line in enumerate(lines.splitlines())]
    analyzer = TraceAnalyzer()
    found = [*analyzer.feed_events(TextEvents().take("".join(printed).encode()))]
    return [*found, *analyzer.finish()]


def test_a_read_in_a_server_of_5_10() -> None:
    (rpc,) = rpcs_of(READ_5_10)
    assert (rpc.xid, rpc.name, rpc.state, rpc.client) == (0x5CD6051A, "READ", "complete", "10.0.0.2")
    assert [(chunk.kind, chunk.advertised, chunk.returned) for chunk in rpc.chunks] == [("write", 4096, 6)]
    assert rpc.reply is not None
    assert (rpc.reply.operation.invalidate, rpc.reply_bytes) == (0xC28, 134)


def test_a_write_in_a_server_of_5_10() -> None:
    (rpc,) = rpcs_of(WRITE_5_10)
    assert (rpc.xid, rpc.name, rpc.state) == (0x66D6051A, "WRITE", "complete")
    assert [(chunk.kind, chunk.position, chunk.transferred) for chunk in rpc.chunks] == [("read", None, 131072)]


def test_a_call_in_a_client_of_5_10() -> None:
    (rpc,) = rpcs_of(CALL_5_10)
    assert (rpc.xid, rpc.name, rpc.state, rpc.server) == (0x7BD6051A, "GETATTR", "complete", "10.0.0.1")
    assert rpc.latency is not None
    assert rpc.latency.total == 20_000  # From the posted Send to the receive completion of its reply.


@pytest.fixture(scope="module")
def recorded() -> dict[str, list[Event]]:
    found = {}
    for host in ("client", "server"):
        with Trace(HERE / f"{host}-6.1.trace.dat") as trace:
            found[host] = [event for batch in trace.batches() for event in batch]
    return found


def spoilt(events: Sequence[Event], chance: Random) -> list[Event]:
    """Some are lost, some out of order, and some lack a field, or have an impossible one."""
    rate = chance.choice([0.002, 0.01, 0.05, 0.2])
    kept = []
    for event in events:
        luck = chance.random()
        if luck < rate / 3:
            continue
        if luck < rate and event.values:
            values = [*event.values]
            at = chance.randrange(len(values))
            largest = (1 << (64 if EVENTS[event.name][at] in LONG else 32)) - 1
            wrong = chance.choice([None, 0, largest] if isinstance(values[at], int) else [None, ""])
            kept.append(event._replace(values=(*values[:at], wrong, *values[at + 1 :])))
        else:
            kept.append(event)
    if chance.random() < 0.3:
        at = chance.randrange(len(kept))
        kept[at : at + 20] = kept[at : at + 20][::-1]
    return kept


@pytest.mark.parametrize("host", ["client", "server"])
def test_a_spoilt_trace_gives_what_is_whole_in_it(host: str, recorded: dict[str, list[Event]]) -> None:
    chance = Random(7)
    for _ in range(60):
        first = chance.randrange(len(recorded[host]) - 1500)
        events = spoilt(recorded[host][first : first + chance.randrange(50, 1500)], chance)
        analyzer = TraceAnalyzer()
        found, gathered = [], Gathered()
        for at in range(0, len(events), 200):
            table = analyzer.feed_events(events[at : at + 200])
            gathered.add_table(table)
            found += [*table]
        rest = analyzer.finish()
        gathered.add_table(RpcTable([*rest]))
        found += rest
        assert diagnose(gathered.facts(analyzer)).connections == len(analyzer.connections)
        times = [value for rpc in found if rpc.host is not None for value in rpc.host if isinstance(value, int)]
        assert min(times, default=0) >= 0
        for rpc in found:
            assert rpc.call_bytes >= 0
            assert rpc.reply_bytes >= 0
            assert rpc.xid < 1 << 64
        assert found or len(events) < 200


def test_calls_that_come_together_wait_for_the_only_thread() -> None:
    host = Server()
    for xid in (1, 2):
        host.receives(xid)
    host.passes("svc_xprt_enqueue", KWORKER, **ENDS)
    for xid in (1, 2):
        host.passes("svc_xprt_dequeue", NFSD, **ENDS)
        host.passes("svc_xprt_enqueue", NFSD, **ENDS)
        host.carries_out(xid, takes=5)
        host.passes("svc_send", NFSD, xid=xid)
    first, second = (rpc.host for rpc in host.rpcs())
    assert first is not None and second is not None
    assert first.thread == 0 and (first.received or 0) < MILLISECOND
    assert 5 < (second.thread or 0) / MILLISECOND < 5.5 and (second.received or 0) < MILLISECOND


def test_a_server_calls_back() -> None:
    host = Server()
    host.call(1)
    task = {"task_id": 1, "client_id": 2}
    host.passes("rpc_task_begin", 24, **task)
    host.passes("rpc_request", 24, **task, progname="nfs4_cb", version=1, procname="CB_RECALL")
    host.passes("xprt_reserve", 24, **task, xid=9)
    host.passes("rpc_xdr_sendto", 24, **task, msg_len=172)
    host.passes("svcrdma_send_pullup", 24, cq_id=1, completion_id=83, hdrlen=28)
    host.passes("svcrdma_post_send", 24, cq_id=1, completion_id=83, inv_rkey=0)
    host.passes("xprt_transmit", 24, **task, xid=9, status=0)
    host.waits(2)
    host.passes("svcrdma_wc_recv", KWORKER, cq_id=2, completion_id=44, received=112)
    host.passes("svcrdma_decode_rqst", NFSD, cq_id=2, completion_id=44, xid=9, vers=1, credits=16, proc=0, hdrlen=28)
    host.passes("rpc_xdr_recvfrom", 24, **task, msg_len=84)
    host.passes("rpc_task_end", 24, **task, status=0)
    host.passes("rpc_stats_latency", 24, **task, progname="nfs4_cb", version=1, procname="CB_RECALL", execute=2100)
    forward, backward = sorted(host.rpcs(), key=lambda rpc: rpc.number)
    assert not forward.backward and backward.backward
    assert backward.connection is forward.connection and backward.state == "complete"
    assert (backward.program, backward.name) == (NFS_CALLBACK, "CB_RECALL")
    assert (backward.call_bytes, backward.reply_bytes) == (172, 84)
    assert backward.latency is not None and 2 <= backward.latency.total / MILLISECOND < 2.1


def test_a_client_is_called_back() -> None:
    host = client(1)
    host.passes("xprtrdma_wc_receive", KWORKER, cq_id=2, completion_id=2, received=200, status=0)
    host.passes("xprtrdma_cb_call", KWORKER, xid=9)
    host.waits(2)
    host.passes("svc_process", 333, xid=9, service="NFSv4 callback", vers=1, procedure="COMPOUND")
    task = {"task_id": 1, "client_id": 0xFFFFFFFF}
    host.passes("rpc_task_begin", 333, **task)
    host.passes("rpc_xdr_sendto", 333, **task, msg_len=84)
    host.passes("xprtrdma_post_send", 333, **task, cq_id=1, completion_id=30)
    host.passes("xprt_transmit", 333, **task, xid=9, status=0)
    host.passes("rpc_task_end", 333, **task, status=0)
    forward, backward = host.rpcs()
    assert not forward.backward and backward.backward and backward.connection is forward.connection
    assert backward.program == NFS_CALLBACK and (backward.call_bytes, backward.reply_bytes) == (172, 84)
    assert backward.latency is not None and 2 <= backward.latency.total / MILLISECOND < 2.1
    host.passes("xprtrdma_wc_receive", KWORKER, cq_id=2, completion_id=3, received=200, status=0)
    host.passes("xprtrdma_cb_call", KWORKER, xid=10)
    assert [rpc.state for rpc in host.rpcs()] == ["complete", "complete", "no reply"]


@pytest.mark.parametrize("host", [Client(), Server()])
def test_connections_that_ended_are_evicted(host: Client | Server) -> None:
    """A client whose connection is lost again and again, watched for weeks."""
    analyzer = TraceAnalyzer(Options(ended=4))
    numbers: list[int] = []
    for at in range(1, 21):
        pair = {"srcaddr": f"10.0.0.2:{1000 + at}", "dstaddr": "10.0.0.1:20049"}
        host.events.clear()
        host.passes("cm_event_handler", 24, **pair, event=9)
        host.queue = 2 * at + 1
        host.call(at)
        host.passes("cm_disconnect", 24, **pair)
        host.waits(20_000)
        numbers += [rpc.number for rpc in analyzer.feed_events(host.events)]
    assert numbers == [*range(1, 21)]
    assert len(analyzer.connections) <= 5 and analyzer.evicted.connections == 20 - len(analyzer.connections)
    assert analyzer.connections[-1].number == 20 and "client" in analyzer.health(20).ended
    assert not analyzer.finish()


def test_calls_behind_one_without_a_registration_wait_for_it_too() -> None:
    host = client(1)
    first, second = ({"task_id": number, "client_id": 1} for number in (2, 3))
    for xid, task in enumerate((first, second), 2):
        host.passes("rpc_task_begin", **task)
        host.passes("rpc_request", **task, progname="nfs", version=3, procname="READ")
        host.passes("xprt_reserve", **task, xid=xid)
    host.passes("rpc_xdr_sendto", **first, msg_len=100)
    host.passes("rpc_task_sleep", **second, q_name="xprt_sending")
    host.waits(1)
    host.passes("xprtrdma_marshal_failed", **first, xid=2, ret=-11)
    host.waits(3)
    host.sends(first, 2)
    host.passes("rpc_task_wakeup", **second, q_name="xprt_sending")
    host.sends(second, 3)
    for xid, task in enumerate((first, second), 2):
        host.is_answered(task, xid, 64)
        host.passes("rpc_task_end", **task, status=0)
        host.passes("rpc_stats_latency", **task, progname="nfs", version=3, procname="READ", execute=9000)
    waited = {rpc.xid: rpc.host for rpc in host.rpcs()}
    for xid in (2, 3):
        host_times = waited[xid]
        assert host_times is not None and 3 <= (host_times.registration_wait or 0) / MILLISECOND < 3.1
    assert waited[3] is not None and [queue for queue, time in waited[3].waits] == ["xprt_sending"]
    assert 1 <= waited[3].waits[0][1] / MILLISECOND < 1.1


CLIENT = {"chunk": 8192, "revokes": 1}
SERVER = {"thread": 1.0, "file_system": 1.0}
NOT_MISSED = {"xprtrdma_mr_localinv", "rpc_task_wakeup", "svc_send"}
"""There are calls without these."""
BEGINS = {"time_ns", "call_end_time_ns"}
"""Where the receive is unknown: when the header was decoded."""


@pytest.mark.parametrize(
    ("host", "how", "name"),
    [
        (host, how, name)
        for host, how in ((Client, CLIENT), (Server, SERVER))
        for name in sorted({event.name for event in begun(host, how).events} - NOT_MISSED)
    ],
)  # fmt: skip
def test_a_value_is_right_unknown_or_noted_whichever_event_is_not_enabled(
    host: type[Client | Server], how: dict[str, float], name: str
) -> None:
    made = begun(host, how)
    whole = rpc_record(made.rpcs()[-1])
    made.events = [event for event in made.events if event.name != name]
    for rpc in made.rpcs()[-1:]:
        found = rpc_record(rpc)
        wrong = {
            key for key, value in found.items()
            if isinstance(value, int) and isinstance(whole[key], int) and not key.endswith("_frame")
            and abs(value - whole[key]) > 10 * MICROSECOND * key.endswith("_ns")
        }  # fmt: skip
        assert rpc.notes or (rpc.state == "complete" and wrong <= {"number", *BEGINS})
        assert rpc.outstanding is None


@pytest.mark.parametrize("host", [Client, Server])
def test_what_is_under_way_when_events_are_lost_is_noted(host: type[Client | Server]) -> None:
    """Its reply may have been among them: whether the call hangs is unknown."""
    made = begun(host, {})
    made.call(3)
    answered = {"xprtrdma_reply", "svcrdma_post_send"}
    at = max(index for index, event in enumerate(made.events) if event.name in answered)
    lost = made.events[at]._replace(name=LOST, pid=0, values=())
    made.events[at:] = [lost]
    first, second, third = made.rpcs()
    assert (first.state, first.notes, second.state, second.notes) == ("complete", (), "complete", ())
    assert (third.state, third.notes[0], third.outstanding) == ("no reply", EVENTS_LOST, None)


def test_a_status_may_have_been_lost() -> None:
    made = client(2)
    at = max(index for index, event in enumerate(made.events) if event.name == "xprtrdma_reply") + 1
    made.events.insert(at, made.events[at]._replace(name=LOST, pid=0, values=()))
    first, second = made.rpcs()
    assert (first.status, first.notes) == ("OK", ())
    assert (second.state, second.status, second.notes) == ("complete", "", (EVENTS_LOST,))


def lost_in_second_call() -> Server:
    """Of a server, behind the first operation of its second call."""
    made = server(1)
    made.receives(2)
    made.passes("svc_xprt_dequeue", NFSD, **ENDS)
    made.passes("svcrdma_decode_rqst", NFSD, cq_id=2, completion_id=2, xid=2, vers=1, credits=128, proc=0, hdrlen=28)
    made.passes("svc_xdr_recvfrom", NFSD, xid=2, msg_len=100)
    made.passes("svc_process", NFSD, xid=2, service="nfsd", vers=4, procedure="COMPOUND", addr="10.0.0.2")
    made.passes("nfsd_compound_status", NFSD, name="OP_SEQUENCE", status=0)
    made.passes(LOST, 0)
    return made


def test_a_later_operation_may_have_failed() -> None:
    made = lost_in_second_call()
    made.passes("svc_xdr_sendto", NFSD, xid=2, msg_len=100)
    made.passes("svcrdma_post_send", NFSD, cq_id=1, completion_id=5, num_sge=1, inv_rkey=0)
    made.passes("svcrdma_wc_send", KWORKER, cq_id=1, completion_id=5)
    _, second = made.rpcs()
    assert (second.state, second.status, second.operations) == ("complete", "", ())


def test_a_thread_is_at_another_call_behind_lost_events() -> None:
    """The Send that a thread posts there is not the reply of the call at which it was before."""
    made = lost_in_second_call()
    made.passes("svc_xdr_sendto", NFSD, xid=3, msg_len=4000)
    made.passes("svcrdma_post_send", NFSD, cq_id=1, completion_id=5, num_sge=1, inv_rkey=0)
    made.passes("svcrdma_wc_send", KWORKER, cq_id=1, completion_id=5)
    assert [(rpc.xid, rpc.state) for rpc in made.rpcs()] == [(1, "complete"), (2, "no reply")]
