"""Times that no clock shows, more than 63 bits of nanoseconds apart, and clocks that are set back."""

from __future__ import annotations

import pytest

from playbook import Wire, call, nfs3, reply
from playbook.capture import Capture, frame_batch
from rdmascope.dissect.diagnosis.facts import Gathered
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.measure.statistics import Statistics
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.latency import FAR_APART
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

SECOND = 1_000_000_000


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


@pytest.mark.parametrize("step", [1, 7, 100])
@pytest.mark.parametrize("cut", range(3, 7))
def test_a_call_waits_until_the_end_by_the_clock_as_it_is_then(cut: int, step: int) -> None:
    wire = Wire()
    connection = wire.connect()
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    wire.pause(50 * SECOND)
    call(connection, nfs3.getattr_())
    batch = frame_batch(Capture(wire).frames)
    batch.rows["time"][cut:] -= 90 * SECOND
    analyzer = Analyzer()
    for first in range(0, len(batch), step):
        analyzer.feed(FrameBatch(batch.data, batch.rows[first : first + step]))
    (waiting,) = (rpc for rpc in analyzer.finish() if rpc.reply is None)
    assert waiting.outstanding is not None and waiting.outstanding < SECOND
    facts = Gathered().facts(analyzer)
    assert not facts.silences and facts.last_time == batch.rows["time"][-1]
