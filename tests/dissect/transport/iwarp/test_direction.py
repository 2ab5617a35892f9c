"""Which end is the client, where a capture begins behind SYN, Request and Reply, on a port that is no service's."""

from __future__ import annotations

import pytest

from playbook import call, nfs3, nfs4, reply
from playbook.capture import frame_batches
from playbook.iwarp import IwarpCapture, IwarpConnection, IwarpWire
from playbook.judge import analyze
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpcs import Rpc

RECALL = nfs4.callback(nfs4.cb_sequence(), nfs4.cb_recall())
RECALLED = nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done())
CLIENT_PORTS = 1000, 50_000
"""Below and above the server's."""


def joined(wire: IwarpWire, client_port: int) -> IwarpConnection:
    return wire.connect(port=4000, client_port=client_port, cm=False)


def directed(wire: IwarpWire, rpcs: list[Rpc], backward: list[bool]) -> None:
    assert [rpc.backward for rpc in rpcs] == backward
    assert {rpc.state for rpc in rpcs} == {"complete"}
    (connection,) = wire.connections
    assert {str(rpc.connection.endpoints[0].address) for rpc in rpcs} == {connection.ends[0].address}


@pytest.mark.parametrize("client_port", CLIENT_PORTS)
@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("chunk", ["none", "unused", "used"])
def test_a_capture_that_begins_with_a_callback(chunk: str, after: int, client_port: int) -> None:
    """The server asks first, and the client answers, even by RDMA Write: it is the client all the same."""
    wire = IwarpWire(seed=5)
    connection = joined(wire, client_port)
    memory = None if chunk == "none" else connection.register(4096)
    reply(call(connection, RECALL, backward=True, reply_chunk=memory), RECALLED, long=chunk == "used")
    for _ in range(after):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    directed(wire, analyze(IwarpCapture(wire)), [True] + [False] * after)


@pytest.mark.parametrize("client_port", CLIENT_PORTS)
@pytest.mark.parametrize("procedures", [(1,), (1, 1, 1), (0, 1), (0, 0, 1)])
def test_a_connection_of_callbacks_of_version_4_0_is_the_servers(procedures: tuple[int, ...], client_port: int) -> None:
    """It connects to its client for them, and is the one that calls, first CB_NULL, which either end may."""
    wire = IwarpWire(seed=5)
    connection = joined(wire, client_port)
    for called, answered in map(nfs4.callback_of_4_0, procedures):
        reply(call(connection, called), answered)
    directed(wire, analyze(IwarpCapture(wire)), [False] * len(procedures))


@pytest.mark.parametrize("client_port", CLIENT_PORTS)
@pytest.mark.parametrize("step", [1, 2, 100])
def test_the_caller_is_the_client_whichever_port_is_lower(client_port: int, step: int) -> None:
    wire = IwarpWire(seed=6)
    connection = joined(wire, client_port)
    for _ in range(3):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    frames, analyzer = IwarpCapture(wire).frames, Analyzer()
    batches = frame_batches(frames, range(step, len(frames), step))
    directed(wire, [rpc for batch in batches for rpc in analyzer.feed(batch)] + analyzer.finish(), [False] * 3)
