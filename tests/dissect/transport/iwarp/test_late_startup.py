"""A capture that shows the MPA Reply behind what its receiver sent on it."""

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
