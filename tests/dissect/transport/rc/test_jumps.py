"""PSNs that jump by more than can be outstanding: the capture paused, or the queue pair number lives again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from playbook import Capture, Wire, faults
from playbook.capture import frame_batches
from playbook.shapes import DATA, read, write
from playbook.wire import Connection
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpcs import Rpc

FAR = 70_000
"""More PSNs than can be outstanding."""


def jump(connection: Connection, psns: int, messages: int | None = None) -> None:
    """Both ends send on behind so many ``psns``, in which so many ``messages`` were completed; None: from 0."""
    for end in connection.ends:
        end.psn = (end.psn + psns) & 0xFFFFFF
        end.msn = 0 if messages is None else end.msn + messages


def conversation(psns: int, messages: int | None = None, acks: str = "message") -> tuple[Wire, int]:
    """RPCs on both sides of a jump; and the index of the first packet behind it."""
    wire = Wire(mtu=1024)
    connection = wire.connect(acks=acks)
    for _ in range(4):
        write(connection, DATA[:5000])
        read(connection, DATA[:3000])
    connection.flush_acks()
    at = len(wire.packets)
    jump(connection, psns, messages)
    for _ in range(4):
        write(connection, DATA[:5000])
        read(connection, DATA[:3000])
    connection.flush_acks()
    return wire, at


def analysed(capture: Capture, cuts: Sequence[int]) -> tuple[Analyzer, list[Rpc]]:
    analyzer = Analyzer()
    rpcs = [rpc for batch in frame_batches(capture.frames, cuts) for rpc in analyzer.feed(batch)]
    return analyzer, rpcs + analyzer.finish()


def ends(at: int, count: int) -> list[Sequence[int]]:
    """All frames in one batch; cut around the jump; and each frame in its own."""
    return [[], *([at + beside] for beside in range(-2, 6)), range(1, count)]


@pytest.mark.parametrize("acks", ["message", "packet", "none"])
@pytest.mark.parametrize("psns", [FAR, 5_000_000])
def test_a_pause_damages_no_rpc_beside_it_and_what_it_swallowed_is_missing(psns: int, acks: str) -> None:
    wire, at = conversation(psns, FAR // 10, acks)
    for cuts in ends(at, len(wire.packets)):
        analyzer, rpcs = analysed(Capture(wire), cuts)
        assert [(rpc.state, rpc.damage) for rpc in rpcs] == [("complete", ())] * 16, cuts
        connection = analyzer.connections[0]
        assert (connection.missing_packets, connection.unconfirmed_packets) == ((psns, psns), (0, 0)), cuts


@pytest.mark.parametrize("psns", [FAR, 5_000_000, -FAR, -5_000_000])
def test_in_another_life_of_the_queue_pair_numbers_nothing_is_missing(psns: int) -> None:
    wire, at = conversation(psns)
    for cuts in ends(at, len(wire.packets)):
        analyzer, rpcs = analysed(Capture(wire), cuts)
        assert [(rpc.state, rpc.damage) for rpc in rpcs] == [("complete", ())] * 16, cuts
        assert analyzer.connections[0].missing_packets == (0, 0), cuts


@given(
    psns=st.sampled_from([FAR, 1_000_000]),
    lost=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    cuts=st.lists(st.integers(0, 300), max_size=6),
)
def test_what_a_pause_cuts_through_hangs_on_the_frames_alone(psns: int, lost: tuple[int, int], cuts: list[int]) -> None:
    wire, at = conversation(psns, FAR // 10)
    capture = Capture(wire, faults.drop(wire.packets, [*range(at - lost[0], at + lost[1])]))
    whole, expected = analysed(capture, [])
    parts, found = analysed(capture, cuts)
    assert [described(rpc) for rpc in found] == [described(rpc) for rpc in expected]
    one, other = whole.connections[0], parts.connections[0]
    assert (other.missing_packets, other.gaps) == (one.missing_packets, one.gaps)


def described(rpc: Rpc) -> tuple[object, ...]:
    damage = [str(one) for one in rpc.damage]
    return rpc.number, rpc.name, rpc.state, rpc.call_frame, rpc.reply_frame, damage, rpc.notes, rpc.latency
