"""A path MTU that no packet tells: what is guessed puts no byte of an RDMA Read where it does not belong."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from playbook import Capture, Wire, call, faults, fetch, nfs3, reply
from playbook.judge import analyze, judge
from rdmascope.dissect.link.packets import PACKET
from rdmascope.dissect.transport.rc.pairing import NO_READER, Flow
from rdmascope.dissect.transport.rc.reads import READ_REQUEST


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


@pytest.mark.parametrize("cut", range(4))
def test_a_flow_takes_its_requests_for_as_long_as_the_path_mtu_says_however_they_come(cut: int) -> None:
    rows = np.zeros(3, PACKET)
    rows["opcode"], rows["psn"], rows["length"] = [READ_REQUEST, 6, 8], [1, 9, 10], [0, 256, 5]
    rows["dma_length"] = 2000
    flow = Flow(0, 0, 1, 1)
    for part in (rows[:cut], rows[cut:]):
        flow.add(np.zeros(0, np.uint8), part, NO_READER)
    assert [column.tolist() for column in flow.psns[:2]] == [[1, 9, 10], [9, 10, 11]]
