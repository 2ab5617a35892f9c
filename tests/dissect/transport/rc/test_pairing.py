"""Flows without a CM exchange find their partner, however many there are, and the evidence that is given is true."""

from __future__ import annotations

import time

import pytest

from playbook import Wire, call, faults, nfs3, nfs4, reply
from playbook.capture import Capture, frame_batches
from playbook.judge import analyze
from playbook.shapes import read
from playbook.violations.scripts import announced, callback
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.rc import observer


def observed(wire: Wire, mixed: bool = True) -> list[Connection]:
    packets = faults.interleave(wire, wire.packets, wire.random) if mixed else wire.packets
    analyzer = Analyzer()
    for batch in frame_batches(Capture(wire, packets).frames, range(0, len(packets), 500)):
        analyzer.feed(batch)
    analyzer.finish()
    return analyzer.connections


@pytest.mark.parametrize("number", [2, 65, 300])
def test_one_rpc_each_is_enough_however_many_connections_there_are(number: int) -> None:
    wire = Wire()
    for _ in range(number):
        reply(call(wire.connect(cm=False), nfs3.getattr_()), nfs3.getattr_reply())
    found = observed(wire)
    assert {one.paired_by for one in found} == {"inferred"}
    true = {frozenset(end.qpn for end in one.ends) for one in wire.connections}
    assert {frozenset(end.qpn for end in one.endpoints) for one in found} == true


def test_flows_beyond_those_that_may_wait_find_their_partners_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """One RPC is too little evidence while more may come, but all that there is."""
    monkeypatch.setattr(observer, "MAX_FLOWS", 16)
    wire = Wire()
    for _ in range(65):
        reply(call(wire.connect(cm=False), nfs3.getattr_()), nfs3.getattr_reply())
    assert [one.paired_by for one in observed(wire, mixed=False)] == ["inferred"] * 65


def test_the_time_grows_with_the_connections_not_with_their_pairs() -> None:
    times: list[float] = []
    for number in (250, 1000):
        wire = Wire()
        for _ in range(number):
            reply(call(wire.connect(cm=False), nfs3.getattr_()), nfs3.getattr_reply())
        begin = time.process_time()
        assert len(observed(wire, mixed=False)) == number
        times.append(time.process_time() - begin)
    assert times[1] < 10 * times[0] + 1


def test_xids_that_only_one_side_uses_are_no_evidence() -> None:
    """Both ends call under the same XID, and nothing is answered."""
    wire = Wire()
    conn = wire.connect(cm=False, acks="none")
    call(conn, nfs3.getattr_(), xid=7)
    call(conn, nfs3.getattr_(), xid=7, backward=True)
    (found,) = observed(wire, mixed=False)
    assert not any("XID" in words for words in found.evidence)


def test_the_evidence_counts_what_was_called_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "FIRST_LOOK", 64)
    wire = Wire()
    conn = wire.connect(cm=False)
    for _ in range(3):
        reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    read(conn)
    call(conn, nfs3.getattr_())  # has no reply
    (found,) = observed(wire, mixed=False)
    assert "4 XIDs called and answered" in found.evidence
    assert "1 handle advertised and used" in found.evidence


def test_the_last_of_three_alike_is_no_surer_than_the_others() -> None:
    wire = Wire()
    for _ in range(3):
        conn = wire.connect(cm=False, client_psn=100, server_psn=500)
        reply(call(conn, nfs3.getattr_(), xid=7), nfs3.getattr_reply())
    found = observed(wire, mixed=False)
    assert len(found) == 3 and {one.paired_by for one in found} == {"inferred"}
    assert max(one.confidence for one in found) < 0.5


@pytest.mark.parametrize("procedures", ((1,), (1, 1, 1), (0, 1), (0, 0, 1)))
def test_callbacks_of_version_4_0_come_on_a_connection_that_the_server_made(procedures: tuple[int, ...]) -> None:
    wire = Wire(seed=5)
    connection = wire.connect(cm=False)
    for called, answered in map(nfs4.callback_of_4_0, procedures):
        reply(call(connection, called), answered)
    rpcs = analyze(Capture(wire))
    assert [rpc.backward for rpc in rpcs] == [False] * len(procedures)
    assert {str(rpc.connection.endpoints[0].address) for rpc in rpcs} == {connection.ends[0].address}


@pytest.mark.parametrize("after", (0, 1, 3))
@pytest.mark.parametrize("chunk", ("none", "unused", "used"))
@pytest.mark.parametrize("version", (1, 2))
def test_a_capture_that_begins_with_a_callback(version: int, chunk: str, after: int) -> None:
    """The server asks first, and the client answers, even by RDMA Write: it is the client all the same."""
    wire = Wire(seed=5)
    wire.version = version
    connection = announced(wire)
    begun = len(wire.packets)
    recall = callback(connection, reply_chunk=None if chunk == "none" else connection.register(4096))
    reply(recall, nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done()), long=chunk == "used")
    for _ in range(after):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    rpcs = analyze(Capture(wire, wire.packets[begun:]))
    assert [rpc.backward for rpc in rpcs] == [True] + [False] * after
    assert {str(rpc.connection.endpoints[0].address) for rpc in rpcs} == {connection.ends[0].address}
