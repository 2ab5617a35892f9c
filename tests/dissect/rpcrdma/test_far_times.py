"""Times that no clock shows, more than 63 bits of nanoseconds apart, and clocks that are set back."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from playbook import Wire, call, nfs3, reply
from playbook.capture import Capture, frame_batch
from rdmascope.dissect.diagnosis.facts import Gathered
from rdmascope.dissect.frames import MAX_PARTS, Clock, FrameBatch
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


@pytest.mark.parametrize(
    ("times", "ends"),
    [
        ([5, 60, 30, 90], [90, 90, 90, 90]),  # in bunches, as of several interfaces
        ([5, 60, 30, 40], [60, 60, 40, 40]),
        ([90, 60, 30, 40, 20], [90, 60, 40, 40, 20]),
        ([5, 60, 59.5, 59, 40, 90, 10], [90] * 6 + [10]),
    ],
)
@pytest.mark.parametrize("step", [1, 2, 3, 9])
def test_a_capture_ends_by_the_clock_of_what_is_behind_a_frame(times: list[float], ends: list[int], step: int) -> None:
    frames, seconds = np.arange(7, 7 + len(times)), np.array([int(time * SECOND) for time in times])
    parts = [Clock.of(frames[at : at + step], seconds[at : at + step]) for at in range(0, len(times), step)]
    clock = reduce(Clock.then, parts)
    assert [clock.end(frame) for frame in frames.tolist()] == [end * SECOND for end in ends]
    assert (clock.first, clock.last) == (seconds[0], seconds[-1])


def test_of_a_clock_that_is_set_back_with_each_frame_few_parts_are_kept() -> None:
    frames = np.arange(1, 5000)
    clock = Clock.of(frames, -10 * SECOND * frames)
    assert len(clock.frames) == len(clock.ends) == MAX_PARTS and clock.end(4999) == clock.ends[-1] > clock.last


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
    assert not facts.silences and facts.last_time == batch.rows["time"].max()


def test_a_call_of_a_capture_to_which_a_shorter_one_is_appended_waits_until_the_end_of_its_own() -> None:
    longer, shorter = Wire(), Wire(seed=9)
    connection = longer.connect()
    call(connection, nfs3.getattr_())
    longer.pause(50 * SECOND)
    reply(call(longer.connect(), nfs3.getattr_()), nfs3.getattr_reply())
    reply(call(shorter.connect(), nfs3.getattr_()), nfs3.getattr_reply())
    analyzer, batch = Analyzer(), frame_batch(Capture(longer).frames)
    analyzer.feed(batch)
    analyzer.feed(frame_batch(Capture(shorter).frames, len(batch) + 1))
    (waiting,) = (rpc for rpc in analyzer.finish() if rpc.reply is None)
    assert waiting.outstanding is not None and waiting.outstanding > 49 * SECOND
