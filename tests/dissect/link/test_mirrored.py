"""A mirror of two ports gives each packet twice: it counts once, and is not retransmitted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from playbook import Capture, Frame, Wire, call, nfs3, reply
from playbook.capture import frame_batches
from playbook.iwarp import IwarpCapture, IwarpWire
from rdmascope.dissect.link.duplicates import LEAST_MIRRORED, MIRRORED, SAME_HEADER
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

CALLS = 60


def conversation(wire: Wire | IwarpWire) -> list[Frame]:
    conn = wire.connect()
    for _ in range(CALLS):
        reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    return (IwarpCapture(wire) if isinstance(wire, IwarpWire) else Capture(wire)).frames


def repeated(frames: list[Frame], times: int, wait: int) -> list[Frame]:
    """Each of them so many times, one ``wait`` (ns) behind the other."""
    every = [replace(frame, time=frame.time + copy * wait) for frame in frames for copy in range(times)]
    return sorted(every, key=lambda frame: frame.time)


def analyzed(frames: list[Frame], size: int) -> tuple[Analyzer, list[str]]:
    analyzer, states = Analyzer(), list[str]()
    for batch in frame_batches(frames, range(size, len(frames), size)):
        states += [rpc.state for rpc in analyzer.feed(batch)]
    return analyzer, states + [rpc.state for rpc in analyzer.finish()]


def by_the_network(analyzer: Analyzer) -> int:
    return analyzer.health(1).causes.get("duplicate", 0)


@pytest.mark.parametrize("size", [10_000, 128, 127, 25])
@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("transport", [Wire, IwarpWire])
def test_mirrored_packets_count_once(transport: type[Wire | IwarpWire], size: int, times: int) -> None:
    frames = conversation(transport())
    analyzer, states = analyzed(repeated(frames, times, 1000), size)
    assert states == ["complete"] * CALLS
    # With little to go by at first, some were taken for the network's own copies.
    copies = (times - 1) * len(frames)
    assert copies - LEAST_MIRRORED - size % 10_000 <= analyzer.mirrored <= copies
    assert [one.retransmitted.packets for one in analyzer.health(1).directions] == [0, 0]
    if transport is Wire:
        assert analyzer.packets == times * len(frames) - analyzer.mirrored
    if size == 10_000:
        assert analyzer.mirrored == copies
        assert not by_the_network(analyzer)
    assert analyzer.skipped[MIRRORED] == analyzer.mirrored


@pytest.mark.parametrize("transport", [Wire, IwarpWire])
def test_what_comes_again_later_is_no_mirror(transport: type[Wire | IwarpWire]) -> None:
    frames = conversation(transport())
    analyzer, _ = analyzed(repeated(frames, 2, SAME_HEADER + 1000), 10_000)
    assert not analyzer.mirrored
    assert by_the_network(analyzer)


@pytest.mark.parametrize("transport", [Wire, IwarpWire])
def test_a_few_copies_are_the_networks(transport: type[Wire | IwarpWire]) -> None:
    frames = conversation(transport())
    few = [*frames[:-40], *repeated(frames[-40:], 2, 1000)]
    analyzer, states = analyzed(few, 10_000)
    assert states == ["complete"] * CALLS
    assert not analyzer.mirrored
    assert by_the_network(analyzer)
