"""iWARP captures appended to each other, or with a clock that was set back: the order in the file decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from playbook import Frame
from playbook.capture import frame_batches
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.shapes import DATA, read, write
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpcs import Reassembled, Rpc
from rdmascope.dissect.transport.iwarp.stream import REORDERED

SECOND = 1_000_000_000
SHIFTS = 0, 3_000, -3_000, 40_000, -40_000, SECOND, -SECOND, -90 * SECOND
MANY = 7
"""Frames of a batch, where a capture takes many, and so longest."""
STEPS = MANY, 100_000
SHIFTS_AND_STEPS = [(shift, step) for step in STEPS for shift in (SHIFTS[::2] if step == MANY else SHIFTS)]


def analyzed(frames: list[Frame], step: int) -> tuple[Analyzer, Counter[object]]:
    """What every RPC says, whatever its number, frames and connection."""
    analyzer = Analyzer()
    rpcs = [rpc for batch in frame_batches(frames, range(step, len(frames), step)) for rpc in analyzer.feed(batch)]
    return analyzer, Counter(map(said, rpcs + analyzer.finish()))


def said(rpc: Rpc) -> object:
    return rpc.xid, rpc.state, rpc.damage, *map(prefix, (reassembled_call(rpc), reassembled_reply(rpc)))


def prefix(message: Reassembled | None) -> bytes | None:
    return message.prefix if message is not None else None


def later(frames: list[Frame], nanoseconds: int) -> list[Frame]:
    return [replace(frame, time=frame.time + nanoseconds) for frame in frames]


def conversations(number: int = 1, *, seed: int = 0, disconnect: bool = True, rounds: int = 3) -> list[Frame]:
    """Connections after each other between the same ports, two RPCs a round on each."""
    wire = IwarpWire(seed=seed)
    for _ in range(number):
        connection = wire.connect(client_port=50_000)
        for _ in range(rounds):
            write(connection, DATA[:3000])
            read(connection, DATA[:3000])
        if disconnect:
            connection.disconnect()
    return IwarpCapture(wire).frames


def whole(frames: list[Frame], expected: Counter[object], connections: int, step: int) -> None:
    analyzer, found = analyzed(frames, step)
    assert found == expected
    assert len(analyzer.connections) == connections
    assert all(connection.retransmitted_packets == (0, 0) for connection in analyzer.connections)


@pytest.mark.parametrize(("shift", "step"), SHIFTS_AND_STEPS)
@pytest.mark.parametrize(("number", "disconnect"), [(1, True), (2, True), (2, False)])
def test_a_capture_appended_to_itself(number: int, disconnect: bool, shift: int, step: int) -> None:
    frames = conversations(number, disconnect=disconnect)
    _, once = analyzed(frames, step)
    assert once.total() == 6 * number
    for times in (2, 3) if step > MANY else (2,):
        appended = [frame for copy in range(times) for frame in later(frames, copy * shift)]
        whole(appended, Counter(dict.fromkeys(once, times)), number * times, step)


@pytest.mark.parametrize(("shift", "step"), SHIFTS_AND_STEPS)
def test_an_open_connection_appended_to_itself(shift: int, step: int) -> None:
    """The same SYN, and nothing ended: soon after the first that is taken as retransmitted, and every RPC is given
    once; of a longer connection no host sends its SYN again."""
    frames = conversations(disconnect=False, rounds=2)
    assert len(frames) < REORDERED
    _, once = analyzed(frames, step)
    analyzer, found = analyzed([*frames, *later(frames, shift)], step)
    assert found == once
    assert len(analyzer.connections) == 1
    frames = conversations(disconnect=False)
    assert len(frames) > REORDERED + 3
    _, once = analyzed(frames, step)
    for times in (2, 3) if step > MANY else (2,):
        appended = [frame for copy in range(times) for frame in later(frames, copy * shift)]
        whole(appended, Counter(dict.fromkeys(once, times)), times, step)


@pytest.mark.parametrize(("shift", "step"), SHIFTS_AND_STEPS)
@pytest.mark.parametrize("disconnect", [True, False])
def test_two_captures_appended(disconnect: bool, shift: int, step: int) -> None:
    """Of other connections between the same ports."""
    first, second = (conversations(seed=seed, disconnect=disconnect) for seed in (1, 2))
    expected = analyzed(first, step)[1] + analyzed(second, step)[1]
    assert expected.total() == 12
    whole([*first, *later(second, shift)], expected, 2, step)


@pytest.mark.parametrize("step", STEPS)
def test_a_clock_that_was_set_back(step: int) -> None:
    """In the middle of a connection, or between two."""
    frames = conversations(2)
    _, once = analyzed(frames, step)
    for cut in range(2, len(frames), 5):
        whole([*frames[:cut], *later(frames[cut:], -90 * SECOND)], once, 2, step)
