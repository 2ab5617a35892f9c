"""Times that no clock shows: more than 63 bits of nanoseconds apart, or cut to what these hold."""

from __future__ import annotations

import pytest

from playbook import Wire, call, nfs3, reply
from playbook.capture import Capture, frame_batch
from rdmascope.dissect.measure.statistics import Statistics
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.latency import FAR_APART
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable


@pytest.mark.parametrize("first", [-(1 << 62) - 1, 1_700_000_000_000_000_000])
def test_a_latency_that_no_clock_shows_is_not_known(first: int) -> None:
    wire = Wire()
    reply(call(wire.connect(), nfs3.getattr_()), nfs3.getattr_reply())
    batch = frame_batch(Capture(wire).frames)
    half = len(batch) - 2
    batch.rows["time"][:half] = first
    batch.rows["time"][half:] = (1 << 63) - 1
    analyzer = Analyzer()
    (rpc,) = analyzer.feed(batch) + analyzer.finish()
    statistics = Statistics()
    statistics.add_table(RpcTable([rpc]))
    assert rpc.latency is None and FAR_APART in rpc.notes
    assert analyzer.health(1)
