"""RDMA Writes and Read responses with a wrong ICRC: their bytes are damaged, and everything says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from playbook import Capture, Wire, faults
from playbook.capture import frame_batch
from playbook.judge import analyze, judge_whole, missing
from playbook.shapes import read, write
from playbook.wire import Connection as Talk
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

CASES = [(read, "write", number) for number in range(8)] + [(write, "response", number) for number in range(8)]


@pytest.mark.parametrize("cm", [True, False], ids=["with CM", "without CM"])
@pytest.mark.parametrize(("scenario", "kind", "number"), CASES)
def test_a_damaged_packet_without_its_retransmission_damages_the_rpc(
    scenario: Callable[[Talk], object], kind: str, number: int, cm: bool
) -> None:
    wire = Wire(mtu=1024)
    scenario(wire.connect(cm=cm))
    index = faults.where(wire.packets, kind=kind)[number]
    capture = Capture(wire, faults.corrupt(wire.packets, index))
    analyzer = Analyzer()
    rpcs = analyzer.feed(frame_batch(capture.frames)) + analyzer.finish()
    (rpc,) = rpcs
    assert rpc.state == "damaged" and rpc.contents == "missing"
    assert any(f"wrong ICRC: frame {index + 1}" in words for words in rpc.damage), rpc.damage
    health = analyzer.health(1)
    sender = int(wire.packets[index].sender)
    assert health.directions[sender].icrc_failures == (index + 1,)
    (finding,) = judge_whole(capture, analyze(capture))
    message = finding.reply if kind == "write" else finding.call
    assert message is not None
    (gap,) = missing(message)
    # Without the first packet of a Write, the address of the others is not known.
    assert gap[1] - gap[0] == (8192 if kind == "write" and not number else 1024)
