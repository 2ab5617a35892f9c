"""Clients that register one buffer and use it again for call after call: whose data are those in the capture?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from playbook import Capture, Connection, Wire, call, fetch, nfs3, reply
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.judge import Finding, analyze, judge
from playbook.wire import Operation, Segment, TrueRpc

SIZE = 2000
Shape = Callable[[Connection, Sequence[Segment], bytes], None]
Sent = list[Any]
"""Packets, or TCP segments."""


def read(connection: Connection, buffer: Sequence[Segment], data: bytes) -> None:
    reply(call(connection, nfs3.read(0, len(data)), writes=[buffer]), nfs3.read_reply(data))


def long_reply(connection: Connection, buffer: Sequence[Segment], data: bytes) -> None:
    reply(call(connection, nfs3.read(0, len(data)), reply_chunk=buffer), nfs3.read_reply(data[: len(data) - 200]))


def write(connection: Connection, buffer: Sequence[Segment], data: bytes) -> None:
    rpc = call(connection, nfs3.write(0, data), reads={0: buffer})
    fetch(rpc)
    reply(rpc, nfs3.write_reply(len(data)))


HANDSHAKE = 3, 7
"""Frames of the CM exchange; of TCP's and MPA's."""
SHAPES = {"READ": read, "Reply chunk": long_reply, "WRITE": write}


def play(transport: str, shape: Shape, count: int, size: int = SIZE) -> Wire:
    """RPCs one after the other, each with data of its own in the one buffer of the client."""
    wire = Wire(mtu=1024) if transport == "RoCE" else IwarpWire()
    connection = wire.connect()
    buffer = connection.register(size)
    for number in range(count):
        shape(connection, buffer, bytes((number * 31 + at * 7) & 0xFF for at in range(size)))
    return wire


def sent(wire: Wire) -> Sent:
    return wire.sent() if isinstance(wire, IwarpWire) else wire.packets


def captured(wire: Wire, packets: Sent) -> Capture:
    """With the times of the wire, in whatever order."""
    capture = IwarpCapture(wire, packets) if isinstance(wire, IwarpWire) else Capture(wire, packets)
    capture.frames = [replace(frame, time=one.time) for frame, one in zip(capture.frames, packets, strict=True)]
    return capture


def without(wire: Wire, operations: Iterable[int]) -> Sent:
    """What was sent but for the packets of these Operations."""
    gone, whole = set(operations), captured(wire, sent(wire))
    return [one for frame, one in enumerate(sent(wire), 1) if gone.isdisjoint(whole.operations(frame))]


def bunched(wire: Wire, packets: Sent, count: int, first: int) -> Sent:
    """As two interfaces, one for each direction, hand over so many frames at a time; the times are right."""
    start = HANDSHAKE[isinstance(wire, IwarpWire)]
    found, packets = packets[:start], packets[start:]
    lanes = [[one for one in packets if one.sender == sender] for sender in (first, 1 - first)]
    while any(lanes):
        for lane in lanes:
            found += lane[:count]
            del lane[:count]
    return found


def findings(wire: Wire, packets: Sent, step: int = 0) -> dict[int, Finding]:
    """Of each RPC, nothing of which may be wrong and silent."""
    capture = captured(wire, packets)
    cuts = range(step, len(packets), step) if step else ()
    return {one.true.index: one for one in judge(capture, analyze(capture, cuts))}


def parts(true: TrueRpc) -> dict[str, set[int]]:
    return {"call": {true.call_operation}, "data": set(true.operations), "reply": {true.reply_operation}}


@pytest.mark.parametrize("step", [0, 1, 5])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("transport", ["RoCE", "iWARP"])
def test_data_of_a_missing_call_are_not_those_of_the_next(transport: str, shape: str, step: int) -> None:
    wire = play(transport, SHAPES[shape], 2)
    first, second = wire.truth
    rpcs = findings(wire, without(wire, parts(first)["call"] | parts(second)["data"]), step)
    assert rpcs[0].rpc.state == "no call"
    assert (rpcs[1].rpc.state, rpcs[1].rpc.contents) == ("damaged", "missing")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("transport", ["RoCE", "iWARP"])
def test_nor_where_the_capture_begins_behind_the_first_call(transport: str, shape: str) -> None:
    wire = play(transport, SHAPES[shape], 3)
    whole = captured(wire, sent(wire))
    call_of_first = wire.truth[0].call_operation
    start = max(frame for frame in range(1, len(sent(wire)) + 1) if call_of_first in whole.operations(frame))
    behind = sent(wire)[start:]
    rpcs = findings(wire, behind)
    assert [rpcs[number].rpc.state for number in (1, 2)] == ["complete", "complete"]
    gone = parts(wire.truth[1])["data"]
    left = [one for frame, one in enumerate(behind, start + 1) if gone.isdisjoint(whole.operations(frame))]
    rpcs = findings(wire, left)
    assert [rpcs[number].rpc.state for number in (1, 2)] == ["damaged", "complete"]


@pytest.mark.parametrize("order", ["as sent", "bunched"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("transport", ["RoCE", "iWARP"])
def test_whatever_is_missing_no_rpc_has_the_data_of_another(transport: str, shape: str, order: str) -> None:
    wire = play(transport, SHAPES[shape], 3)
    everything = [(true.index, part) for true in wire.truth for part in ("call", "data", "reply")]
    whole = captured(wire, sent(wire))
    carried = [{*whole.operations(frame)} for frame in range(1, len(sent(wire)) + 1)]
    for count in range(4):
        for turn, missing in enumerate(combinations(everything, count)):
            gone = {number for index, part in missing for number in parts(wire.truth[index])[part]}
            packets = [one for one, operations in zip(sent(wire), carried, strict=True) if gone.isdisjoint(operations)]
            if order == "as sent":
                if count < 3 or turn % 2:
                    findings(wire, packets)
                continue
            for lane in (0, 1) if count < 3 else (turn // 2 % 2,) if not turn % 2 else ():
                findings(wire, bunched(wire, packets, 40, lane))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("count", [1, 7, 40, 100])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("transport", ["RoCE", "iWARP"])
def test_bunched_frames_of_two_interfaces(transport: str, shape: str, count: int, first: int) -> None:
    wire = play(transport, SHAPES[shape], 40, 900)
    for step in (0, 33):
        rpcs = findings(wire, bunched(wire, sent(wire), count, first), step)
        assert {one.rpc.state for one in rpcs.values()} == {"complete"}


@pytest.mark.parametrize("step", [0, 1])
def test_a_response_whose_request_is_missing_closes_no_later_read(step: int) -> None:
    """Each Read fills a part of one buffer, behind that of the Read before it."""
    wire = IwarpWire()
    connection = wire.connect()
    (buffer,) = connection.register(12 * SIZE)
    for number in range(12):
        connection.sink = buffer._replace(offset=buffer.offset + number * SIZE, length=SIZE)
        write(connection, connection.register(SIZE), bytes([number]) * SIZE)
    lost = wire.truth[1]
    rpcs = findings(wire, without_of_sender(wire, {(lost.call_operation, 0), (lost.operations[0], 1)}), step)
    assert [one.rpc.state for one in rpcs.values()].count("complete") == 11


def write_to_one_sink(order: str, count: int, size: int = 500) -> IwarpWire:
    """WRITEs whose data a server with one buffer reads; the calls come 'in turn', 'at once', or it replies 'late'."""
    wire = IwarpWire()
    connection = wire.connect()
    (connection.sink,) = connection.register(size)
    rpcs = []
    for number in range(count):
        data = bytes((number * 31 + at * 7) & 0xFF for at in range(size))
        rpcs.append(call(connection, nfs3.write(0, data), reads={0: connection.register(size)}))
        if order == "in turn":
            fetch(rpcs[-1])
            reply(rpcs[-1], nfs3.write_reply(size))
    for rpc in () if order == "in turn" else rpcs:
        fetch(rpc)
        if order == "at once":
            reply(rpc, nfs3.write_reply(size))
    for rpc in rpcs if order == "late" else ():
        reply(rpc, nfs3.write_reply(size))
    return wire


def without_of_sender(wire: Wire, gone: set[tuple[int, int]]) -> Sent:
    """But for what an end sent of an Operation."""
    whole = captured(wire, sent(wire))
    return [
        one
        for frame, one in enumerate(sent(wire), 1)
        if gone.isdisjoint((operation, one.sender) for operation in whole.operations(frame))
    ]


@pytest.mark.parametrize(
    ("order", "count", "most", "step"),
    [("in turn", 2, 3, 0), ("in turn", 2, 2, 1), ("at once", 2, 2, 0), ("in turn", 3, 2, 0), ("late", 3, 2, 0)],
)
def test_responses_to_one_sink_are_not_those_of_other_reads(order: str, count: int, most: int, step: int) -> None:
    wire = write_to_one_sink(order, count)
    halves = [(number, sender) for true in wire.truth for number in true.operations for sender in (0, 1)]
    messages = [
        (number, sender)
        for true in wire.truth
        for number, sender in ((true.call_operation, 0), (true.reply_operation, 1))
    ]
    for missing in range(1, most + 1):
        for gone in combinations(halves + messages, missing):
            # Of a server that replies late two requests at least tell that it has one sink.
            if order != "late" or sum(half in halves and half[1] == 1 for half in gone) <= count - 2:
                findings(wire, without_of_sender(wire, set(gone)), step)


@pytest.mark.parametrize("step", [0, 1])
def test_a_read_whose_response_may_be_that_of_a_missing_one_is_undecidable(step: int) -> None:
    wire = write_to_one_sink("in turn", 2)
    first, second = (number for true in wire.truth for number in true.operations)
    rpcs = findings(wire, without_of_sender(wire, {(first, 0), (second, 1)}), step)
    assert (rpcs[0].rpc.state, rpcs[0].rpc.contents) == ("undecidable", "undecidable")
    assert rpcs[1].rpc.state == "damaged"


@pytest.mark.parametrize("step", [0, 1])
def test_a_response_that_begins_again_is_that_of_another_read(step: int) -> None:
    wire = write_to_one_sink("at once", 2, 3200)
    first, second = (number for true in wire.truth for number in true.operations)
    whole = captured(wire, sent(wire))
    frames = {
        (number, sender): [
            frame
            for frame, one in enumerate(sent(wire), 1)
            if one.payload and one.sender == sender and number in whole.operations(frame)
        ]
        for number in (first, second)
        for sender in (0, 1)
    }
    gone = {frames[first, 0][2], frames[second, 1][0], frames[second, 0][1]}
    rpcs = findings(wire, [one for frame, one in enumerate(sent(wire), 1) if frame not in gone], step)
    assert [one.rpc.state for one in rpcs.values()] == ["damaged", "damaged"]


@pytest.mark.parametrize("kept", range(3))
def test_reads_of_an_extract_are_whole(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests and responses of other RPCs are missing beside them, to sinks of their own."""
    wire = IwarpWire()
    connection = wire.connect()
    rpcs = [call(connection, nfs3.write(0, bytes([n]) * 500), reads={0: connection.register(500)}) for n in range(3)]
    asked: list[Operation] = []
    with monkeypatch.context() as patch:
        patch.setattr(connection, "read_responses", asked.append)
        for rpc in rpcs:
            fetch(rpc)
    for operation in asked:
        connection.read_responses(operation)
    for rpc in rpcs:
        reply(rpc, nfs3.write_reply(500))
    mine, whole = set[int]().union(*parts(wire.truth[kept]).values()), captured(wire, sent(wire))
    packets = [
        one
        for frame, one in enumerate(sent(wire), 1)
        if frame <= HANDSHAKE[True] or not mine.isdisjoint(whole.operations(frame))
    ]
    (found,) = findings(wire, packets).values()
    assert (found.rpc.state, found.rpc.contents) == ("complete", "whole")
