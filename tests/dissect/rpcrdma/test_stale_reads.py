"""RDMA Reads that a responder executes again, when its memory may hold other bytes by then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from playbook import Capture, Wire, nfs3
from playbook.judge import analyze, judge
from playbook.rpcrdma import call, fetch, reply
from playbook.shapes import DATA
from playbook.wire import responses

OTHER = bytes(byte ^ 0xFF for byte in DATA)


@pytest.mark.parametrize("step", [1, 4, 1000])
@pytest.mark.parametrize("size", [900, 3000])
@pytest.mark.parametrize("answered", [True, False])
def test_a_read_that_is_executed_again(answered: bool, size: int, step: int) -> None:
    """The server replies when it has all data, so a later response with other bytes came to nothing.  Before the reply
    nothing tells which of them it took."""
    wire = Wire(mtu=1024)
    conn = wire.connect()
    rpc = call(conn, nfs3.write(0, DATA[:size]), reads={0: conn.register(size)})
    fetch(rpc)
    if answered:
        reply(rpc, nfs3.write_reply(size))
    request = next(packet for packet in wire.packets if packet.kind == "read")
    wire.emit(replace(request, copy=1))
    for packet in responses(conn, replace(wire.operations[request.operation], data=OTHER[:size])):
        wire.emit(replace(packet, copy=1, operation=0))
    if not answered:
        reply(rpc, nfs3.write_reply(size))
    capture = Capture(wire)
    (found,) = analyze(capture, range(step, len(capture.frames), step))
    assert (found.state, found.contents) == (("complete", "whole") if answered else ("undecidable", "undecidable"))
    if step == 1000:  # Else the RPC had ended, and was reported, before the Read was executed again.
        (finding,) = judge(capture, [found])
        assert finding.call is not None and finding.call.complete is answered
