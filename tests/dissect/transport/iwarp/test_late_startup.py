"""A capture that shows the MPA Reply behind what its receiver sent on it, or a SYN behind its answer."""

from __future__ import annotations

import pytest

from playbook import call, faults, nfs3, reply
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.judge import analyze


@pytest.mark.parametrize("late", [1, 2, 3])
@pytest.mark.parametrize("markers", [(False, False), (True, True)])
@pytest.mark.parametrize("step", [1, 1000])
def test_no_rpc_is_lost(step: int, markers: tuple[bool, bool], late: int) -> None:
    wire = IwarpWire(seed=2, mss=8960)
    connection = wire.connect(revision=2, ready="F", markers=markers, acks="lazy")
    for xid in (100, 101):
        reply(call(connection, nfs3.getattr_(), xid=xid), nfs3.getattr_reply())
    answer = faults.where(wire.sent(), kind="data", sender=1)[0]
    capture = IwarpCapture(wire, faults.swap(wire.sent(), answer, late))
    rpcs = analyze(capture, range(step, len(capture.frames), step))
    assert [(rpc.xid, rpc.state) for rpc in rpcs] == [(100, "complete"), (101, "complete")]


@pytest.mark.parametrize("count", range(3, 13))
@pytest.mark.parametrize("step", [1, 5, 1000])
def test_a_client_that_is_shown_behind_its_server_opens_no_other_connection(step: int, count: int) -> None:
    """As where the first frames of two interfaces are bunched, at the right times."""
    wire = IwarpWire(seed=2)
    connection = wire.connect(acks="none")
    for xid in (100, 101, 102):
        reply(call(connection, nfs3.getattr_(), xid=xid), nfs3.getattr_reply())
    sent, frames = wire.sent(), IwarpCapture(wire).frames
    order = sorted(range(len(sent)), key=lambda at: (at >= count, at < count and not sent[at].sender, at))
    capture = IwarpCapture(wire, [sent[at] for at in order])
    capture.frames = [frames[at] for at in order]
    rpcs = sorted(analyze(capture, range(step, len(frames), step)), key=lambda rpc: rpc.xid)
    assert [(rpc.state, rpc.connection.number) for rpc in rpcs] == [("complete", 1)] * 3
