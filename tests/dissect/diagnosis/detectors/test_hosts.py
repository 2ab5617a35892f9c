"""What only the kernels' traces show: the least trace of which each detector speaks, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from playbook.facts import found, silent, speaks
from playbook.traces import Client, Server, client, server

STARVED: dict[str, tuple[Client | Server, str]] = {
    "no-registrations": (client(3, chunk=4096, unregistered=1), "50% of NFSv3 WRITE latency on the client is waiting"),
    "no-slots": (
        client(20, slot=2),
        "66% of NFSv3 GETATTR latency on the client is waiting for a slot",
    ),
    "credit-wait": (client(3, credit=1), "33% of NFSv3 GETATTR latency on the client is waiting for credits"),
    "no-threads": (server(3, thread=2), "of NFSv3 WRITE latency on the server is waiting for a thread of nfsd"),
    "slow-file-system": (server(3, file_system=8), "of NFSv3 WRITE latency on the server is in the file system"),
    "local-invalidation": (client(3, chunk=4096, revokes=1), "its own invalidation of memory"),
    "late-send-completion": (server(1, send=2160), "1 reply retransmitted: the Send completed up to 2.16 s late"),
    "reply-chunk-for-small-replies": (
        client(20, reply=8192, revokes=0.15, takes=1),
        "20 replies of up to 1 KiB came through Reply chunks",
    ),
}
"""By detector: a host that lacks what it is about."""


@pytest.mark.parametrize("kind", STARVED)
@speaks(*STARVED)
def test_each_resource_is_found_by_its_detector_alone(kind: str) -> None:
    host, words = STARVED[kind]
    said = found(host.facts())
    assert [one.kind for one in said] == [kind]
    assert words in said[0].cause.text


def test_a_session_without_slots() -> None:
    (said,) = found(client(20, session=2).facts())
    assert said.kind == "no-slots" and "a slot of the session" in said.cause.text


ENOUGH: list[Client | Server] = [
    client(200, chunk=4096, revokes=0.05),
    client(19, slot=2),
    client(40, credit=0.04),
    client(40, turn=2),
    client(19, reply=8192, revokes=0.1),
    server(200, thread=0.05, file_system=0.1),
    server(40, file_system=4),
    server(3, send=900),
]


@pytest.mark.parametrize("host", ENOUGH)
@silent(*STARVED)
def test_hosts_that_lack_nothing_are_nothing(host: Client | Server) -> None:
    assert not found(host.facts())


def test_one_attempt_without_a_registration_is_nothing_among_many() -> None:
    host = client(100, chunk=4096)
    host.call(500, chunk=4096, unregistered=1)
    assert not found(host.facts())
    (last,) = [rpc for rpc in host.rpcs() if rpc.xid == 500]
    assert last.host is not None and last.host.failed_registrations == 1


def _network(both: dict[str, Any]) -> list[str]:
    """What is said of a client whose server's trace stands beside its own."""
    from rdmascope.captures.session.joined_traces import JoinedTrace, JoinedTraces
    from rdmascope.dissect.diagnosis.facts import Gathered
    from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
    from rdmascope.dissect.trace.analyzer import TraceAnalyzer

    mine, theirs = client(10, takes=both["wire"]), server(10, takes=both["server"])
    analyzer, gathered = TraceAnalyzer(), Gathered()
    joined = JoinedTraces("client", [JoinedTrace("server", "server", theirs.rpcs())])
    gathered.add_table(joined.add_to(RpcTable(list(analyzer.feed_events(mine.events)))))
    return [one.kind for one in found(gathered.facts(analyzer))]


def _errors() -> Client:
    host = client(1)
    host.passes("xprtrdma_wc_send", 24, cq_id=1, completion_id=9, status=13)
    host.passes("xprtrdma_wc_receive", 24, cq_id=2, completion_id=9, received=0, status=5)
    return host


@speaks("completion-error")
def test_a_work_request_that_failed() -> None:
    (said,) = found(_errors().facts())
    assert said.kind == "completion-error"
    assert said.cause.text == "1 work request failed: Send: RNR_RETRY_EXC_ERR"


def _reconnected() -> Client:
    host = client(1)
    task = {"task_id": 9, "client_id": 1}
    host.passes("rpc_task_begin", **task)
    for queue in (1, 3):
        host.passes("rpc_xdr_sendto", **task, msg_len=100)
        lengths = {"hdrlen": 28, "headlen": 100, "pagelen": 0, "taillen": 0}
        host.passes("xprtrdma_marshal", **task, xid=9, **lengths, rtype=0, wtype=0)
        host.passes("xprtrdma_post_send", **task, cq_id=queue, completion_id=1)
        host.waits(100)
    host.passes("xprtrdma_wc_receive", 24, cq_id=4, completion_id=1, received=128, status=0)
    host.passes("xprtrdma_reply", 24, **task, xid=9, credits=64)
    return host


@speaks("calls-retransmitted")
def test_a_call_that_was_retransmitted() -> None:
    host = _reconnected()
    assert [rpc.state for rpc in host.rpcs()] == ["complete", "no reply", "complete"]
    (said,) = found(host.facts())
    assert said.kind == "calls-retransmitted" and said.cause.count == 1
    assert said.cause.text == "1 call retransmitted on another connection: its connection was lost"


@silent("completion-error", "calls-retransmitted")
def test_flushes_at_the_end_of_a_connection_are_nothing() -> None:
    host = client(3)
    host.passes("xprtrdma_wc_receive", 24, cq_id=2, completion_id=9, received=0, status=5)
    assert not found(host.facts())


@speaks("slow-network")
def test_a_slow_network() -> None:
    assert _network({"wire": 20, "server": 1}) == ["slow-network"]


@silent("slow-network")
def test_a_slow_server_is_no_slow_network() -> None:
    assert not _network({"wire": 20, "server": 18})
