"""TCP segments that end within the headers of messages, among many RPCs of one batch."""

from __future__ import annotations

import pytest

from playbook import call, nfs3, reply
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.judge import analyze


@pytest.mark.parametrize("seed", range(1, 5))
def test_every_rpc_is_complete(seed: int) -> None:
    wire = IwarpWire(mss=536, seed=seed)
    connection = wire.connect(cutting="random", acks="packet")
    for _ in range(200):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    assert [rpc.state for rpc in analyze(IwarpCapture(wire))] == ["complete"] * 200
