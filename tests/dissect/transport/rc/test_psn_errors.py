"""New Sends with a PSN that a Read request of the same sender took."""

from __future__ import annotations

from dataclasses import replace

import pytest

from playbook import Wire, faults
from playbook.capture import Capture, frame_batch
from playbook.shapes import write
from rdmascope.dissect.rpcrdma.analyzer import Analyzer


@pytest.mark.parametrize("cm", [True, False], ids=["with CM", "without CM"])
@pytest.mark.parametrize("repeated", [False, True])
def test_a_reply_inside_the_range_of_a_read_is_kept_and_named_an_error(cm: bool, repeated: bool) -> None:
    wire = Wire(mtu=1024)
    write(wire.connect(cm=cm))
    packets = list(wire.packets)
    reading = faults.where(packets, kind="read")[0]
    reply = [at for at in faults.where(packets, kind="send") if packets[at].sender == 1][-1]
    psn = (packets[reading].psn + 2) & 0xFFFFFF
    packets[reply] = replace(packets[reply], psn=psn)
    packets = packets[: reply + 1]
    if repeated:
        packets.append(replace(packets[reply], time=packets[reply].time + 500_000_000, copy=1))
    analyzer = Analyzer()
    (rpc,) = analyzer.feed(frame_batch(Capture(wire, packets).frames)) + analyzer.finish()
    assert rpc.state == "complete" and rpc.reply is not None and rpc.reply.frame == reply + 1
    (error,) = rpc.connection.reused_psns
    assert error == (reply + 1, 1, psn, reading + 1)
    health = analyzer.health(1)
    assert health.directions[1].retransmitted.packets == int(repeated)
    assert rpc.connection.retransmitted_packets == (0, int(repeated))
