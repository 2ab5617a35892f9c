"""Time passes and nothing comes: what waited for more is given."""

from __future__ import annotations

import pytest

from playbook import Capture, Wire, call, frame_batch, nfs3, reply
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.shapes import read
from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.audit.rule import Finding
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call

SECOND = 1_000_000_000


def last(batch: FrameBatch) -> int:
    return int(batch.rows["time"][-1])


def test_a_reply_is_given_at_once() -> None:
    wire = Wire(seed=1)
    read(wire.connect())
    rpcs = Analyzer().feed(frame_batch(Capture(wire).frames))
    assert [rpc.state for rpc in rpcs] == ["complete"]


def test_a_reply_whose_call_was_not_seen() -> None:
    wire = Wire(seed=1)
    connection = wire.connect()
    read(connection)
    lost = len(wire.packets)
    rpc = call(connection, nfs3.getattr_())
    answered = len(wire.packets)
    reply(rpc, nfs3.getattr_reply())
    kept = [*wire.packets[:lost], *wire.packets[answered:]]
    batch = frame_batch(Capture(wire, kept).frames)
    analyzer = Analyzer()
    assert [one.state for one in analyzer.feed(batch)] == ["complete"]
    assert analyzer.tick(last(batch) + SECOND // 2) == []
    assert [one.state for one in analyzer.tick(last(batch) + 2 * SECOND)] == ["no call"]
    assert analyzer.finish() == []


def test_what_waits_behind_a_gap() -> None:
    """The server's Write and reply come, a packet before them does not."""
    wire = Wire(seed=1)
    connection = wire.connect()
    read(connection)
    first = len(wire.packets)
    read(connection)
    writes = [at for at, packet in enumerate(wire.packets) if at >= first and packet.kind == "write"]
    kept = [packet for at, packet in enumerate(wire.packets) if at != writes[2]]
    batch = frame_batch(Capture(wire, kept).frames)
    analyzer = Analyzer()
    assert len(analyzer.feed(batch)) == 1
    assert analyzer.tick(last(batch) + 2 * SECOND) == []
    (found,) = analyzer.tick(last(batch) + 8 * SECOND)
    assert found.state == "damaged"
    assert sum(analyzer.connections[0].missing_packets) == 1


def test_an_iwarp_stream_with_a_gap() -> None:
    wire = IwarpWire(seed=1)
    connection = wire.connect()
    read(connection)
    rpc = call(connection, nfs3.getattr_())
    reply(rpc, nfs3.getattr_reply())
    wire.connections[0].flush_acks()
    segments = wire.sent()
    carrying = [at for at, one in enumerate(segments) if one.kind == "data" and one.sender == 1]
    kept = [one for at, one in enumerate(segments) if at != carrying[3]]
    batch = frame_batch(IwarpCapture(wire, kept).frames)
    analyzer = Analyzer()
    found = analyzer.feed(batch)
    for second in range(1, 70):
        found += analyzer.tick(last(batch) + second * SECOND)
    assert {rpc.reply is not None for rpc in found} == {True}
    assert len(found) == 2
    assert analyzer.finish() == []


def test_flows_without_a_connection_find_each_other_in_the_end() -> None:
    """Too little passed to be sure, and then nothing more."""
    wire = Wire(seed=1)
    connection = wire.connect(cm=False)
    reply(call(connection, nfs3.null()), nfs3.null_reply())
    batch = frame_batch(Capture(wire).frames[:3])
    analyzer = Analyzer()
    analyzer.feed(batch)
    assert analyzer.connections == []
    found = analyzer.tick(last(batch) + 40 * SECOND)
    assert [rpc.name for rpc in found] == ["NULL"]
    assert [one.paired_by for one in analyzer.connections] == ["inferred"]


def test_a_call_that_waits_long_lets_go_of_its_batch() -> None:
    wire = Wire(seed=1)
    connection = wire.connect()
    calls = len(wire.packets)
    rpc = call(connection, nfs3.write(0, bytes(range(256))), reads={0: connection.register(256)})
    asked = len(wire.packets)
    reply(rpc, nfs3.write_reply(256))
    frames = Capture(wire).frames
    batch = frame_batch(frames[:asked])
    analyzer = Analyzer()
    assert analyzer.feed(batch) == []
    analyzer.tick(last(batch) + 10 * SECOND)
    (outstanding,) = (one for rpcs in analyzer._dispatchers[1].matching.directions[0].calls.values() for one in rpcs)
    assert outstanding.call is not None
    assert not any(data is batch.data for _, data, _ in outstanding.call.operation.payload.runs)
    assert outstanding.call.data.obj is not batch.data.data.obj
    assert len(outstanding.call.data) < 1000
    (found,) = analyzer.feed(frame_batch(frames[asked:], asked + 1))
    assert found.name == "WRITE"
    reassembled = reassembled_call(found)
    whole = Analyzer().feed(frame_batch(frames))
    assert reassembled == reassembled_call(whole[0])
    assert calls < asked


@pytest.mark.parametrize("kind", [Wire, IwarpWire])
def test_what_a_connection_left_behind_when_it_was_over(kind: type[Wire]) -> None:
    wire = kind(seed=1)
    connection = wire.connect()
    read(connection)
    call(connection, nfs3.getattr_())
    connection.disconnect()
    capture = IwarpCapture(wire) if isinstance(wire, IwarpWire) else Capture(wire)
    batch = frame_batch(capture.frames)
    analyzer = Analyzer()
    assert [rpc.state for rpc in analyzer.feed(batch)] == ["complete"]
    assert analyzer.tick(last(batch) + 5 * SECOND) == []
    assert [rpc.state for rpc in analyzer.tick(last(batch) + 12 * SECOND)] == ["no reply"]
    assert analyzer.finish() == []


def test_findings_are_reported_when_the_connection_pauses() -> None:
    wire = Wire(seed=1)
    connection = wire.connect()
    for _ in range(3):
        rpc = call(connection, nfs3.getattr_())
        reply(rpc, nfs3.getattr_reply(), credits=0)
    reported: list[Finding] = []
    auditor = Auditor(on_finding=lambda finding, _: reported.append(finding))
    analyzer = Analyzer(listener=auditor.listener)
    batch = frame_batch(Capture(wire).frames)
    analyzer.feed(batch)
    assert reported == []
    auditor.tick(last(batch) + SECOND)
    early = len(reported)
    assert early >= 1
    auditor.tick(last(batch) + 20 * SECOND)
    auditor.finish(analyzer.conversations)
    assert len(reported) == sum(tally.violated for tally in auditor.tallies.values()) > early


def test_an_iwarp_connection_that_is_known_only_at_the_end_counts() -> None:
    """The capture begins inside one message; the one behind it is not enough before the end of the capture."""
    wire = IwarpWire(seed=1)
    call(wire.connect(cm=False), nfs3.getattr_())
    batch = frame_batch(IwarpCapture(wire).frames)
    analyzer = Analyzer()
    assert analyzer.feed(batch) == [] and analyzer.packets == 0 and analyzer.skipped["TCP"] == len(batch)
    assert [rpc.state for rpc in analyzer.finish()] == ["no reply"]
    assert analyzer.packets == 1 and not analyzer.skipped
