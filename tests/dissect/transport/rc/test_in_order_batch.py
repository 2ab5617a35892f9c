"""What many connections do in order, taken together, is what it is when taken one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from playbook import Capture, Wire, call, nfs3, reply, shapes
from playbook.capture import frame_batch, frame_batches
from playbook.rows import decided
from playbook.strategies import CAPTURE_FAULTS, WIRE_FAULTS, Conversation, conversations, faulty
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.rc import in_order as together
from rdmascope.dissect.transport.rc.link import RcLink

QUICK = settings(suppress_health_check=list(HealthCheck), deadline=None)


def kept(link: RcLink) -> list[object]:
    """What a connection keeps for the packets to come."""
    found: list[object] = [link.packets, link.closing, link.forgotten, [order for order, _ in link.waiting]]
    for queue in link.queues:
        found += [queue.head, queue.base, queue.acked, queue.started, queue.open_since()]
        if not link.closing:
            found.append([row for part in queue.sent._kept for row in part.tolist()])
    for one in link.health.retransmissions:
        found += [one.head, one.started, one._answered, one.untroubled]
        if not link.closing:
            found.append([row for part in one._answers for row in part.tolist()])
    return found


def said(connection: Connection) -> list[str]:
    return [repr(getattr(connection, one.name)) for one in fields(connection) if one.name != "ledgers"]


def analysed(batches: Sequence[FrameBatch], options: Options, many: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """All that is known behind each batch, and how many portions of connections were taken together."""
    monkeypatch.setattr(together, "MANY", many)
    passed: list[int] = []
    deliver = together._deliver

    def counting(*known: Any) -> Any:
        passed.append(len(known[-1]))
        return deliver(*known)

    with monkeypatch.context() as patched:
        patched.setattr(together, "_deliver", counting)
        analyzer = Analyzer(options)
        known: list[object] = []
        for batch in batches:
            known.append(
                [(rpc.number, rpc.xid, rpc.state, rpc.call_frame, rpc.latency) for rpc in analyzer.feed(batch)]
            )
            known.append([kept(link) for link in analyzer._observer.links.values()])
            known.append([said(connection) for connection in analyzer.connections])
            known.append([analyzer.health(one.number) for one in analyzer.connections])
        known.append([(rpc.number, rpc.state, rpc.retransmissions, rpc.notes) for rpc in analyzer.finish()])
        known.append([analyzer.health(one.number) for one in analyzer.connections])
    return known, sum(passed)


@QUICK
@given(
    faulty((*WIRE_FAULTS, *CAPTURE_FAULTS), conversations(cm=st.just(True), max_connections=3)),
    st.lists(st.integers(0, 1000), max_size=4),
    st.booleans(),
)
def test_any_conversation_however_faulty(conversation: Conversation, cuts: list[int], rows: bool) -> None:
    batches = frame_batches(conversation.capture.frames, cuts)
    with pytest.MonkeyPatch.context() as monkeypatch, decided(rows):
        alone, taken = analysed(batches, Options(), 1 << 62, monkeypatch)
        assert not taken
        assert analysed(batches, Options(), 1, monkeypatch)[0] == alone


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("parts", [1, 3])
def test_short_connections_are_taken_together(parts: int, rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire()
    connections = [wire.connect() for _ in range(together.MANY)]
    for _ in range(6):
        for connection in connections:
            reply(call(connection, nfs3.null()), nfs3.null_reply())
    frames = Capture(wire).frames
    batches = frame_batches(frames, [len(frames) * part // parts for part in range(1, parts)])
    if parts == 1:
        batches = [frame_batch(frames)]
    with decided(rows):
        found, taken = analysed(batches, Options(), together.MANY, monkeypatch)
        assert taken == parts * len(connections)
        assert found == analysed(batches, Options(), 1 << 62, monkeypatch)[0]


@pytest.mark.parametrize("rows", [True, False])
def test_reads_and_writes_of_several_packets_are_taken_together(rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    wire, many = Wire(), together.MANY
    connections = [wire.connect() for _ in range(2 * many)]
    for _ in range(3):
        for connection in connections:
            shapes.read(connection, b"r" * 9000)
            shapes.write(connection, b"w" * 9000)
    frames = Capture(wire).frames
    with decided(rows):
        found, taken = analysed([frame_batch(frames)], Options(), many, monkeypatch)
        assert taken == len(connections)
        assert found == analysed([frame_batch(frames)], Options(), 1 << 62, monkeypatch)[0]
        for cut in range(len(frames) // 2, len(frames) // 2 + 20):  # Inside a Write, inside a Read, and between.
            batches = frame_batches(frames, [cut])
            found, taken = analysed(batches, Options(), many, monkeypatch)
            assert taken >= 2 * (len(connections) - 1)
            assert found == analysed(batches, Options(), 1 << 62, monkeypatch)[0]
