"""Two calls in flight under one XID, of which the capture lacks one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from playbook import Capture, Wire, call, faults, nfs3, reply
from playbook.capture import frame_batches
from playbook.rows import decided
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.missing_calls import TWO_REPLIES
from rdmascope.dissect.rpcrdma.rpcs import Rpc


def rpcs_of(capture: Capture, cuts: Sequence[int], rows: bool) -> list[Rpc]:
    analyzer = Analyzer()
    with decided(rows):
        found = [rpc for batch in frame_batches(capture.frames, cuts) for rpc in analyzer.feed(batch)]
    return sorted([*found, *analyzer.finish()], key=lambda rpc: rpc.number)


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("each", [True, False], ids=["each frame", "one batch"])
@pytest.mark.parametrize("missing", [0, 1, None])
@pytest.mark.parametrize("later", [True, False], ids=["more calls", "the end"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_which_of_two_replies_answers_the_call_is_undecidable(
    order: tuple[int, int], later: bool, missing: int | None, each: bool, rows: bool
) -> None:
    wire = Wire()
    connection = wire.connect()
    for _ in range(3):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    before = len(wire.packets)
    calls = [call(connection, nfs3.getattr_(), xid=7) for _ in range(2)]
    for index in order:
        reply(calls[index], nfs3.getattr_reply())
    for _ in range(3 if later else 0):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    packets = list(wire.packets)
    sends = [at for at in faults.where(packets, kind="send") if at >= before and packets[at].sender == 0]
    if missing is not None:
        del packets[sends[missing]]
    capture = Capture(wire, packets)
    rpcs = rpcs_of(capture, range(1, len(packets)) if each else [], rows)
    two = [rpc for rpc in rpcs if rpc.xid == 7]
    assert [rpc.state for rpc in rpcs if rpc.xid != 7] == ["complete"] * (6 if later else 3)
    if missing is None:
        assert [rpc.state for rpc in two] == ["undecidable"] * 2
        return
    assert [rpc.state for rpc in two] == ["undecidable", "no call"]
    assert TWO_REPLIES in two[0].notes and any("its call is lost" in note for note in two[1].notes)
    assert two[0].connection.missing_packets == (1, 0)
    assert two[0].connection.unconfirmed_packets == (0, 0)


@pytest.mark.parametrize("rows", [True, False])
def test_memory_that_is_returned_tells(rows: bool) -> None:
    wire = Wire()
    connection = wire.connect()
    calls = [call(connection, nfs3.read(0, 40), writes=[connection.register(40)], xid=7) for _ in range(2)]
    for one in reversed(calls):
        reply(one, nfs3.read_reply(bytes(40)))
    packets = list(wire.packets)
    del packets[[at for at in faults.where(packets, kind="send") if packets[at].sender == 0][1]]
    first, second = rpcs_of(Capture(wire, packets), [], rows)
    assert (first.state, first.damage, second.state) == ("complete", (), "no call")
    assert first.reply is not None and second.reply is not None and first.reply.frame > second.reply.frame


@pytest.mark.parametrize("rows", [True, False])
def test_a_missing_call_of_its_own_xid_leaves_the_others_complete(rows: bool) -> None:
    """They wait only for a second reply."""
    wire = Wire()
    connection = wire.connect()
    exchanges = [call(connection, nfs3.getattr_()) for _ in range(20)]
    for one in exchanges:
        reply(one, nfs3.getattr_reply())
    packets = list(wire.packets)
    del packets[[at for at in faults.where(packets, kind="send") if packets[at].sender == 0][10]]
    rpcs = rpcs_of(Capture(wire, packets), [], rows)
    assert sorted(rpc.state for rpc in rpcs) == ["complete"] * 19 + ["no call"]
    assert not any(rpc.notes for rpc in rpcs if rpc.call is not None)
