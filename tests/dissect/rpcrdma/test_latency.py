"""Latencies, where the times of a capture allow them."""

from __future__ import annotations

import pytest

from playbook import Capture, Wire, call, facts, nfs3, reply
from playbook.capture import frame_batch
from playbook.gss import INTEGRITY, NONE, PRIVACY, Context
from playbook.judge import analyze
from playbook.shapes import read, write
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.latency import REPLY_EARLIER
from rdmascope.dissect.rpcrdma.unanswered import reply_may_be_missing


def test_a_reply_earlier_than_its_call_has_no_latency() -> None:
    wire = Wire()
    conn = wire.connect()
    read(conn)
    write(conn)
    read(conn)
    true = wire.truth[1]
    numbers = [packet.operation for packet in wire.packets]
    call, behind = numbers.index(true.call_operation), numbers.index(true.reply_operation) + 1
    packets = [*wire.packets[:call], *wire.packets[call + 1 : behind], wire.packets[call], *wire.packets[behind:]]
    rpcs = analyze(Capture(wire, packets))
    assert [rpc.state for rpc in rpcs] == ["complete"] * 3
    for rpc in rpcs:
        assert (rpc.latency is None) == (rpc.name == "WRITE") == (REPLY_EARLIER in rpc.notes)


@pytest.mark.parametrize("service", [NONE, INTEGRITY, PRIVACY])
def test_nor_has_one_under_kerberos(service: int) -> None:
    wire, context = Wire(), Context(service)
    connection = wire.connect(acks="none")
    for _ in range(3):
        reply(call(connection, context.call(nfs3.getattr_())), context.reply(nfs3.getattr_reply()))
    batch = frame_batch(Capture(wire).frames)
    batch.rows["time"][-1] -= 90_000_000_000
    analyzer = Analyzer()
    rpcs = analyzer.feed(batch) + analyzer.finish()
    assert [rpc.gss is not None and rpc.gss.service for rpc in rpcs] == [service] * 3
    assert [rpc.latency is None for rpc in rpcs] == [REPLY_EARLIER in rpc.notes for rpc in rpcs] == [False, False, True]


@pytest.mark.parametrize(("disordered", "unmatched"), [(4, (1, 0)), (4, (0, 1)), (0, (1, 0))])
def test_whether_the_reply_is_shown_long_before_its_call(disordered: int, unmatched: tuple[int, int]) -> None:
    """``unmatched``: so many replies to either end fit none of its calls."""
    conversation = facts.connection(disordered=disordered)
    conversation.unmatched_replies = unmatched
    waiting = facts.rpc(1, on=conversation, answered=False)
    assert reply_may_be_missing(waiting) == bool(disordered and unmatched[0])
