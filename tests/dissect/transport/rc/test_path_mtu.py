"""A path MTU that no packet tells: what is guessed puts no byte of an RDMA Read where it does not belong."""

from __future__ import annotations

from itertools import combinations

import pytest

from playbook import Capture, Wire, call, faults, fetch, nfs3, reply
from playbook.judge import analyze, judge


@pytest.mark.parametrize("step", [1, 1000])
def test_reads_of_one_packet_each_of_which_requests_are_missing(step: int) -> None:
    wire = Wire(mtu=1024, seed=1)
    connection = wire.connect(cm=False)
    data = wire.random.randbytes(2048)
    rpc = call(connection, nfs3.write(0, data), reads={0: connection.register(len(data))})
    fetch(rpc, split=512, pipelined=2)
    reply(rpc, nfs3.write_reply(len(data)))
    moved = [index for kind in ("read", "response") for index in faults.where(wire.packets, kind=kind)]
    for gone in combinations(moved, 2):
        capture = Capture(wire, faults.drop(wire.packets, gone))
        judge(capture, analyze(capture, range(step, len(capture.frames), step)))
