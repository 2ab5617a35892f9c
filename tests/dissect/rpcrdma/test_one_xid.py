"""One XID for every call: whatever the capture lacks, no reply is given to the call of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from playbook import Capture, Wire, call, faults, fetch, nfs3, reply
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.judge import analyze, judge
from playbook.packets import Packet
from playbook.shapes import read, write
from playbook.tcp import TcpSegment
from playbook.wire import Connection
from rdmascope.dissect.rpcrdma.rpcs import Rpc


def getattr_(connection: Connection, xid: int = 7) -> None:
    reply(call(connection, nfs3.getattr_(), xid=xid), nfs3.getattr_reply())


def in_turn(transport: str) -> Wire:
    wire = Wire(seed=3) if transport == "RoCE" else IwarpWire(seed=3)
    connection = wire.connect()
    for _ in range(5):
        getattr_(connection)
    return wire


def recorded(wire: Wire, chosen: Sequence[int]) -> Capture:
    if isinstance(wire, IwarpWire):
        segments: list[TcpSegment] = wire.sent()
        return IwarpCapture(wire, [segments[index] for index in chosen])
    return Capture(wire, [wire.packets[index] for index in chosen])


def sent(wire: Wire) -> int:
    return len(wire.sent()) if isinstance(wire, IwarpWire) else len(wire.packets)


def every(wire: Wire, step: int) -> range:
    """Places among what was sent: all, or every third where each frame is a batch, which takes ten times as long."""
    return range(0, sent(wire), 3 if step == 1 else 1)


def foreign(capture: Capture, rpcs: Sequence[Rpc]) -> list[tuple[int, int]]:
    """Frames of calls and replies that are given to each other, and of which that is not said to be a guess."""
    owners = {one.call_operation: one.index for one in capture.wire.truth}
    owners |= {one.reply_operation: one.index for one in capture.wire.truth}
    wrong = []
    for rpc in rpcs:
        if rpc.call is not None and rpc.reply is not None and not rpc.ambiguous:
            sides = [{owners[one] for one in capture.operations(side.frame)} for side in (rpc.call, rpc.reply)]
            wrong += [] if sides[0] & sides[1] else [(rpc.call.frame, rpc.reply.frame)]
    return wrong


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize("transport", ["RoCE", "iWARP"])
def test_wherever_the_capture_begins(transport: str, step: int) -> None:
    wire = in_turn(transport)
    for first in every(wire, step):
        capture = recorded(wire, range(first, sent(wire)))
        rpcs = analyze(capture, range(step, len(capture.frames), step))
        assert foreign(capture, rpcs) == [], first
        whole = [
            true for true in wire.truth
            if not capture.missing(true, "call") and not capture.missing(true, "reply") and capture.header(true, "call")
        ]  # fmt: skip
        assert sum(rpc.state == "complete" for rpc in rpcs) == len(whole), first


@pytest.mark.parametrize("step", [1, 1000])
def test_whichever_reply_and_next_call_are_missing(step: int) -> None:
    wire = in_turn("RoCE")
    for one, other in pairwise(wire.truth):
        gone = {one.reply_operation, other.call_operation}
        kept = [index for index, packet in enumerate(wire.packets) if packet.operation not in gone]
        capture = recorded(wire, kept)
        rpcs = analyze(capture, range(step, len(kept), step))
        assert foreign(capture, rpcs) == [], one.index
        assert [rpc.state for rpc in rpcs].count("complete") == 3


def one_buffer(transport: str) -> Wire:
    """One XID and one buffer for all."""
    wire = Wire(seed=3) if transport == "RoCE" else IwarpWire(seed=3)
    connection = wire.connect()
    memory = connection.register(900)
    for turn in range(6):
        data = wire.random.randbytes(900)
        if turn % 3:
            rpc = call(connection, nfs3.read(0, 900), xid=7, writes=[memory])
            reply(rpc, nfs3.read_reply(data))
        else:
            rpc = call(connection, nfs3.write(0, data), xid=7, reads={0: memory})
            fetch(rpc)
            reply(rpc, nfs3.write_reply(900))
    return wire


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize("transport", ["RoCE", "iWARP"])
def test_a_reply_to_a_call_before_the_capture_is_not_that_of_the_next_with_its_buffer(
    transport: str, step: int
) -> None:
    wire = one_buffer(transport)
    for first in every(wire, step):
        capture = recorded(wire, range(first, sent(wire)))
        rpcs = analyze(capture, range(step, len(capture.frames), step))
        assert foreign(capture, rpcs) == [], first
        judge(capture, rpcs)


@pytest.mark.parametrize("step", [1, 1000])
def test_whichever_packet_of_the_server_is_missing(step: int) -> None:
    wire = one_buffer("RoCE")
    for at in faults.where(wire.packets, sender=1):
        capture = Capture(wire, faults.drop(wire.packets, [at]))
        assert foreign(capture, analyze(capture, range(step, len(capture.frames), step))) == [], at


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize("transport", ["RoCE", "iWARP"])
def test_a_reply_that_is_missing_costs_no_other_rpc_its_own(transport: str, step: int) -> None:
    wire = in_turn(transport)
    whole = recorded(wire, range(sent(wire)))
    for true in wire.truth[1:-1]:  # The first shows that the XID is used in turn; another reply, that this is missing.
        kept = [at for at in range(sent(wire)) if true.reply_operation not in whole.operations(at + 1)]
        capture = recorded(wire, kept)
        rpcs = analyze(capture, range(step, len(kept), step))
        assert foreign(capture, rpcs) == []
        assert sorted(rpc.state for rpc in rpcs) == ["complete"] * 4 + ["no reply"], true.index


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize("late", [4, 6])
def test_a_call_shown_behind_the_next_costs_no_later_rpc_its_own(late: int, step: int) -> None:
    wire = in_turn("RoCE")
    calls = faults.where(wire.packets, kind="send", sender=0)
    for index in (1, 2):
        capture = Capture(wire, faults.swap(wire.packets, calls[index], late))
        rpcs = analyze(capture, range(step, len(capture.frames), step))
        assert foreign(capture, rpcs) == []
        last = {rpc.call_frame: rpc.state for rpc in rpcs if rpc.call is not None}
        assert last[max(last)] == "complete", (index, last)


def shown_late(packets: list[Packet], sender: int, by: int) -> list[Packet]:
    """The frames of one interface stand that many places behind, with right times."""
    places = {one.uid: index + by * (one.sender == sender) for index, one in enumerate(packets)}
    return sorted(packets, key=lambda one: places[one.uid])


@pytest.mark.parametrize("sender", [0, 1])
@pytest.mark.parametrize("by", [2, 5, 9])
def test_interfaces_of_which_one_is_behind_are_told_apart_by_their_times(by: int, sender: int) -> None:
    wire = Wire(seed=5)
    connection = wire.connect()
    for shape in (read, write, read, write):
        getattr_(connection)
        shape(connection, bytes(range(200)))
        getattr_(connection, 8)
    packets = shown_late(wire.packets, sender, by)
    capture = Capture(wire, packets)
    capture.frames = [replace(frame, time=one.time) for frame, one in zip(capture.frames, packets, strict=True)]
    rpcs = analyze(capture)
    assert foreign(capture, rpcs) == []
    assert {rpc.state for rpc in rpcs} == {"complete"}


@pytest.mark.parametrize("lacking", ["what was sent before", "one call"])
@pytest.mark.parametrize("transport", ["RoCE", "iWARP"])
def test_bunches_of_two_interfaces_of_which_something_is_missing(transport: str, lacking: str) -> None:
    """Their times are right: a reply that is earlier than its call is to a call that is not in the capture."""
    wire = Wire(seed=4) if transport == "RoCE" else IwarpWire(seed=4)
    connection = wire.connect()
    memory = connection.register(900)
    for number in range(12):
        data, xid = wire.random.randbytes(900), number % 2
        if number % 3 == 0:
            rpc = call(connection, nfs3.write(0, data), xid=xid, reads={0: memory})
            fetch(rpc)
            reply(rpc, nfs3.write_reply(900))
        else:
            getattr_(connection, xid)
    packets: list[Packet] | list[TcpSegment] = wire.sent() if isinstance(wire, IwarpWire) else wire.packets
    whole = recorded(wire, range(len(packets)))
    calls = [one.call_operation for one in wire.truth]
    for at in [at for at in range(len(packets)) if {*calls} & {*whole.operations(at + 1)}]:
        chosen = [*range(at + 1, len(packets))] if lacking != "one call" else [*range(at), *range(at + 1, len(packets))]
        bunches = [one for sender in (0, 1) for one in chosen if packets[one].sender == sender]
        capture = recorded(wire, bunches)
        times = [packets[one].time for one in bunches]
        capture.frames = [replace(frame, time=time) for frame, time in zip(capture.frames, times, strict=True)]
        rpcs = analyze(capture)
        assert foreign(capture, rpcs) == []
        judge(capture, [rpc for rpc in rpcs if not rpc.ambiguous])


def test_a_reply_shown_before_its_call_is_that_calls_where_no_other_comes() -> None:
    wire = Wire(seed=3)
    connection = wire.connect()
    for xid in (7, 8, 9):
        getattr_(connection, xid)
    late = faults.where(wire.packets, kind="send", sender=0)[1]
    rpcs = analyze(Capture(wire, faults.swap(wire.packets, late, 3)))
    assert [(rpc.xid, rpc.state, rpc.latency is None) for rpc in sorted(rpcs, key=lambda one: one.number)] == [
        (7, "complete", False),
        (8, "complete", True),
        (9, "complete", False),
    ]


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize("transport", ["RoCE", "iWARP"])
def test_a_call_shown_behind_its_reply_takes_nothing_that_is_read_or_written_for_the_next(
    transport: str, step: int
) -> None:
    wire = Wire(seed=6) if transport == "RoCE" else IwarpWire(seed=6)
    connection = wire.connect()
    memory = connection.register(900)
    for xid in range(5):
        data = wire.random.randbytes(900)
        if xid % 2:
            rpc = call(connection, nfs3.read(0, 900), xid=xid, writes=[memory])
            reply(rpc, nfs3.read_reply(data))
        else:
            rpc = call(connection, nfs3.write(0, data), xid=xid, reads={0: memory})
            fetch(rpc)
            reply(rpc, nfs3.write_reply(900))
    for late in every(wire, step):
        order = [*range(late), *range(late + 1, sent(wire))]
        order.insert(late + 6, late)
        capture = recorded(wire, order)
        judge(capture, analyze(capture, range(step, len(order), step)))


def without(wire: Wire, *missing: tuple[str, int]) -> Capture:
    """The capture without these: 'call', 'reply' or 'data', and the RPC."""
    gone: set[int] = set()
    for part, index in missing:
        true = wire.truth[index]
        gone |= {"call": {true.call_operation}, "reply": {true.reply_operation}, "data": {*true.operations}}[part]
    return Capture(wire, [packet for packet in wire.packets if packet.operation not in gone])


@pytest.mark.parametrize("step", [1, 1000])
def test_of_several_xids_in_turn_the_next_with_one_may_be_missing(step: int) -> None:
    wire = Wire(seed=3)
    connection = wire.connect()
    for xid in (7, 8, 9, 7, 8, 9):
        getattr_(connection, xid)
    capture = without(wire, ("reply", 1), ("call", 3), ("call", 4))
    rpcs = analyze(capture, range(step, len(capture.frames), step))
    assert foreign(capture, rpcs) == []
    assert {rpc.xid: rpc.state for rpc in rpcs if rpc.call_frame and rpc.order == 2} == {8: "undecidable"}


@pytest.mark.parametrize("step", [1, 1000])
def test_a_call_that_was_left_behind_gets_no_later_reply(step: int) -> None:
    """Its XID was used again, by a call whose own memory its reply returned."""
    wire = Wire(seed=3)
    connection = wire.connect()
    getattr_(connection)
    reply(call(connection, nfs3.read(0, 9), xid=7, writes=[connection.register(9)]), nfs3.read_reply(bytes(9)))
    getattr_(connection)
    getattr_(connection, 8)
    capture = without(wire, ("reply", 0), ("call", 2))
    rpcs = analyze(capture, range(step, len(capture.frames), step))
    assert foreign(capture, rpcs) == []
    assert {rpc.state for rpc in rpcs if rpc.call_frame and rpc.order == 1} == {"undecidable"}


@pytest.mark.parametrize("step", [1, 1000])
def test_a_reply_to_a_call_before_the_capture_may_be_to_no_call_in_it(step: int) -> None:
    wire = Wire(seed=3)
    connection = wire.connect(cm=False)
    for _ in range(2):
        getattr_(connection)
    capture = without(wire, ("call", 0), ("reply", 1))
    assert foreign(capture, analyze(capture, range(step, len(capture.frames), step))) == []


@pytest.mark.parametrize("step", [1, 1000])
def test_what_is_read_for_a_missing_call_is_not_that_of_one_whose_reply_is_missing(step: int) -> None:
    """The handshake of the server is missing, so nothing says that its first requests are."""
    wire = Wire(seed=3)
    connection = wire.connect()
    memory = connection.register(900)
    for _ in range(2):
        rpc = call(connection, nfs3.write(0, wire.random.randbytes(900)), reads={0: memory})
        fetch(rpc)
        reply(rpc, nfs3.write_reply(900))
    kept = without(wire, ("reply", 0), ("data", 0), ("call", 1)).packets
    capture = Capture(wire, [packet for packet in kept if (packet.kind, packet.sender) != ("cm", 1)])
    judge(capture, analyze(capture, range(step, len(capture.frames), step)))


def test_what_waits_where_it_becomes_known_who_talks_with_whom_keeps_its_place() -> None:
    """Without a CM exchange that takes some frames, and a call of these is shown behind them."""
    wire = Wire(seed=3)
    connection = wire.connect(cm=False)
    for xid in (7, 8, *[7] * 6):
        getattr_(connection, xid)
    late = faults.where(wire.packets, kind="send", sender=0)[1]
    capture = Capture(wire, faults.swap(wire.packets, late, 20))
    rpcs = analyze(capture)
    assert foreign(capture, rpcs) == []
    assert [rpc.state for rpc in rpcs].count("complete") == 8


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("transport", [Wire, IwarpWire])
def test_reads_whose_frames_are_out_of_order(transport: type[Wire], seed: int) -> None:
    wire = transport(seed=seed)
    connection = wire.connect()
    getattr_(connection)
    for _ in range(18):
        data = wire.random.randbytes(1000)
        fetched = call(connection, nfs3.read(0, 1000), writes=[connection.register(1000)], xid=7)
        reply(fetched, nfs3.read_reply(data))
    late = Random(seed)
    places = sorted(range(sent(wire)), key=lambda index: index + 8 * late.random())
    capture = recorded(wire, places)
    assert not foreign(capture, analyze(capture))


def test_a_reply_and_a_call_behind_a_clock_that_was_set_back_are_of_two_rpcs() -> None:
    wire = Wire(seed=3)
    connection = wire.connect(cm=False)
    for _ in range(4):
        getattr_(connection)
    first = faults.where(wire.packets, kind="send", sender=1)[0]
    capture = recorded(wire, range(first, sent(wire)))
    capture.frames[1:] = [replace(frame, time=frame.time - 30_000_000_000) for frame in capture.frames[1:]]
    rpcs = analyze(capture)
    assert foreign(capture, rpcs) == []
    assert sorted(rpc.state for rpc in rpcs) == ["complete"] * 3 + ["no call"]


@pytest.mark.parametrize("step", [1, 1000])
def test_which_message_is_the_call_is_not_known_where_their_types_are_not_captured(step: int) -> None:
    wire = in_turn("RoCE")
    for first in range(1, sent(wire)):
        capture = Capture(wire, faults.snap(wire.packets[first:], 80))
        rpcs = analyze(capture, range(step, len(capture.frames), step))
        assert len(foreign(capture, rpcs)) <= 1, first
        assert not any(rpc.backward for rpc in rpcs), first
