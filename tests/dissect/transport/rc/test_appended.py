"""Captures appended to each other, or with a clock that was set back: where times contradict the file, that decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from playbook import Frame, Wire
from playbook.capture import Capture, frame_batches
from playbook.shapes import DATA, read, write
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpcs import Reassembled, Rpc

SECOND = 1_000_000_000


def analyzed(frames: list[Frame], step: int) -> tuple[Analyzer, list[Rpc]]:
    analyzer = Analyzer()
    rpcs = [rpc for batch in frame_batches(frames, range(step, len(frames), step)) for rpc in analyzer.feed(batch)]
    return analyzer, rpcs + analyzer.finish()


def contents(rpcs: list[Rpc]) -> Counter[object]:
    """What every RPC says, whatever its number, frames and connection."""
    return Counter(
        (rpc.xid, rpc.state, rpc.damage, *map(prefix, (reassembled_call(rpc), reassembled_reply(rpc)))) for rpc in rpcs
    )


def prefix(message: Reassembled | None) -> bytes | None:
    return message.prefix if message is not None else None


def later(frames: list[Frame], nanoseconds: int) -> list[Frame]:
    return [replace(frame, time=frame.time + nanoseconds) for frame in frames]


def one_rpc() -> list[Frame]:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    read(conn, DATA[:1000])
    conn.disconnect()
    return Capture(wire).frames


def bunched(frames: list[Frame], size: int, server_first: bool) -> list[Frame]:
    """As two interfaces give them: of so many, those of one sender before those of the other."""
    client = frames[0].data[6:12]
    groups = [frames[start : start + size] for start in range(0, len(frames), size)]
    return [
        frame
        for group in groups
        for frame in sorted(group, key=lambda frame: (frame.data[6:12] == client) == server_first)
    ]


def reused_queue_pairs(disconnect: bool = True, times: int = 2) -> list[Frame]:
    """Two connections after each other on the same queue pairs."""
    wire = Wire(mtu=1024)
    for _ in range(times):
        conn = wire.connect(client_qpn=0x11, server_qpn=0x12)
        for _ in range(3):
            write(conn, DATA[:3000])
            read(conn, DATA[:3000])
        if disconnect:
            conn.disconnect()
    return Capture(wire).frames


@pytest.mark.parametrize("step", [1, 5, 14, 100_000])
@pytest.mark.parametrize("shift", [0, 3_000, -3_000, SECOND, -SECOND, -90 * SECOND])
@pytest.mark.parametrize("times", [2, 3])
def test_one_connection_appended_to_itself(times: int, shift: int, step: int) -> None:
    frames = one_rpc()
    _, once = analyzed(frames, step)
    assert [rpc.state for rpc in once] == ["complete"]
    appended = [frame for copy in range(times) for frame in later(frames, copy * shift)]
    analyzer, rpcs = analyzed(appended, step)
    assert contents(rpcs) == Counter(dict.fromkeys(contents(once), times))
    assert len(analyzer.connections) == times
    assert [connection.packets for connection in analyzer.connections] == [once[0].connection.packets] * times
    assert all(connection.retransmitted_packets == (0, 0) for connection in analyzer.connections)


@pytest.mark.parametrize("disconnect", [True, False])
@pytest.mark.parametrize("step", [7, 40, 100_000])
@pytest.mark.parametrize("shift", [0, 40_000, -40_000, -90 * SECOND])
def test_queue_pairs_that_are_reused_in_captures_appended(shift: int, step: int, disconnect: bool) -> None:
    frames = reused_queue_pairs(disconnect)
    _, once = analyzed(frames, step)
    assert len(once) == 12 and {rpc.state for rpc in once} == {"complete"}
    analyzer, rpcs = analyzed([*frames, *later(frames, shift)], step)
    assert contents(rpcs) == Counter(dict.fromkeys(contents(once), 2))
    assert len(analyzer.connections) == 4
    assert all(connection.retransmitted_packets == (0, 0) for connection in analyzer.connections)


@pytest.mark.parametrize("step", [7, 100_000])
@pytest.mark.parametrize("cut", range(4, 30, 5))
def test_a_clock_that_was_set_back(cut: int, step: int) -> None:
    """In the middle of a connection, or between two."""
    frames = reused_queue_pairs()
    _, once = analyzed(frames, step)
    for at in (cut, len(frames) // 2, len(frames) // 2 + cut):
        analyzer, rpcs = analyzed([*frames[:at], *later(frames[at:], -90 * SECOND)], step)
        assert contents(rpcs) == contents(once)
        assert len(analyzer.connections) == 2


@pytest.mark.parametrize("disconnect", [True, False])
@pytest.mark.parametrize("server_first", [True, False])
@pytest.mark.parametrize("size", [5, 20, 60])
def test_queue_pairs_that_are_reused_while_interfaces_are_captured_one_behind_the_other(
    size: int, server_first: bool, disconnect: bool
) -> None:
    frames = reused_queue_pairs(disconnect, 3)
    _, rpcs = analyzed(bunched(frames, size, server_first), 100_000)
    assert contents(rpcs) == contents(analyzed(frames, 100_000)[1])
    assert [rpc.connection.packets for rpc in rpcs] == [(24, 24)] * 18


@pytest.mark.parametrize("disconnect", [True, False])
@pytest.mark.parametrize("step", [7, 100_000])
@pytest.mark.parametrize("server_first", [True, False])
@pytest.mark.parametrize("size", [5, 20, 60])
def test_no_wrong_bytes_of_reused_queue_pairs_where_the_clock_is_set_back_as_well(
    size: int, server_first: bool, step: int, disconnect: bool
) -> None:
    frames = reused_queue_pairs(disconnect)
    half = len(frames) // 2
    captured = bunched([*frames[:half], *later(frames[half:], -30 * SECOND)], size, server_first)
    _, rpcs = analyzed(captured, step)
    assert contents([rpc for rpc in rpcs if rpc.state == "complete"]) <= contents(analyzed(frames, step)[1])


def test_a_capture_that_begins_late_and_a_clock_that_was_set_back_before_the_queue_pairs_are_reused() -> None:
    frames = reused_queue_pairs(False)
    half, begin = len(frames) // 2, 6
    analyzer, rpcs = analyzed([*frames[begin:half], *later(frames[half:], -30 * SECOND)], 100_000)
    assert len(analyzer.connections) == 2
    for rpc in rpcs:
        message = rpc.call or rpc.reply
        assert message is not None
        assert (message.frame + begin > half) == (rpc.connection.paired_by == "CM"), message.frame


@pytest.mark.parametrize("begin", [60, 100, 140])
def test_a_later_half_before_the_earlier_one_is_a_connection_of_its_own_wherever_batches_end(begin: int) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    for _ in range(20):
        write(conn, DATA[:3000])
    frames = Capture(wire).frames
    swapped = [*frames[begin:], *frames[:begin]]
    _, once = analyzed(swapped, 100_000)
    assert len({rpc.connection for rpc in once}) == 2
    for step in (1, 7, 40):
        _, rpcs = analyzed(swapped, step)
        assert contents(rpcs) == contents(once)
        assert sorted(rpc.connection.packets for rpc in rpcs) == sorted(rpc.connection.packets for rpc in once)
