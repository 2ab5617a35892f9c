"""Requests for connections that are sent again and again, and that nothing answers: neither a REP nor a SYN ACK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from playbook import Capture, Frame, Wire, call, cm, nfs3, reply
from playbook.capture import frame_batches, write_pcap
from playbook.iwarp import IwarpWire
from playbook.rpcrdma import Exchange
from playbook.tcp import encode_segments
from rdmascope.captures.session.diagnosis_pass import diagnosis_of
from rdmascope.captures.session.session import Session
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.transport.connection import Connection

SECOND = 1_000_000_000
Frames = list[Frame]


def exchange(transport: str) -> tuple[Frames, Frames]:
    """A connection with one RPC; and the client's first frame of another one, at 0, 1, 3 and 7 s."""
    wire = Wire(seed=1) if transport == "RoCEv2" else IwarpWire(seed=1)
    rpc: Exchange = call(wire.connect(), nfs3.null())
    reply(rpc, nfs3.null_reply())
    begun = len(frames_of(wire))
    wire.connect()
    whole = frames_of(wire)
    asks = [replace(whole[begun], time=whole[begun].time + after * SECOND) for after in (0, 1, 3, 7)]
    return whole, asks


def frames_of(wire: Wire) -> Frames:
    return encode_segments(wire.sent()) if isinstance(wire, IwarpWire) else Capture(wire).frames


def connections(frames: Frames, cuts: Sequence[int] = ()) -> list[Connection]:
    analyzer = Analyzer()
    for batch in frame_batches(frames, cuts):
        analyzer.feed(batch)
    analyzer.finish()
    return analyzer.connections


BOTH = pytest.mark.parametrize(("transport", "what"), [("RoCEv2", "REQs"), ("iWARP", "SYNs")])


@BOTH
@pytest.mark.parametrize("cuts", [(), range(1, 4), (2,)])
def test_requests_without_an_answer_are_one_connection(transport: str, what: str, cuts: Sequence[int]) -> None:
    _, asks = exchange(transport)
    (one,) = connections(asks, cuts)
    assert (one.transport, one.ended_by, one.unanswered, one.refused) == (
        transport,
        f"no answer to 4 {what}",
        True,
        False,
    )
    assert [end.address for end in one.endpoints] == ["10.0.0.2", "10.0.0.1"] and one.service_port == 20049
    assert (one.first_frame, one.first_time, one.last_frame, one.last_time) == (1, asks[0].time, 4, asks[-1].time)


@BOTH
@pytest.mark.parametrize("served", [False, True])
def test_who_asked_whom_how_often_and_since_when(transport: str, what: str, served: bool, tmp_path: Path) -> None:
    whole, asks = exchange(transport)
    before = whole[: whole.index(asks[0])] if served else []
    write_pcap([*before, *asks], tmp_path / "asks.pcap")
    session = Session(str(tmp_path / "asks.pcap"))
    (said,) = diagnosis_of(session).statements
    assert said.kind == "connections-unanswered" and said.cause.since == asks[0].time
    assert f"10.0.0.2 asked 10.0.0.1:20049 for 1 connection: no answer to 4 {what} in 7.00 s" in said.cause.text
    assert bool(said.cause.weakened_by) is not served


def answered(transport: str) -> dict[str, Frames]:
    whole, asks = exchange(transport)
    begun = whole.index(asks[0])
    later = [replace(frame, time=frame.time + 8 * SECOND) for frame in whole[begun + 1 :]]
    return {"once": asks[:1], "late": [*asks, *later], "again": [*asks[:2], *later, asks[2], asks[3]]}


@BOTH
@pytest.mark.parametrize("kind", ["once", "late", "again"])
@pytest.mark.parametrize("step", [0, 1])
def test_what_is_answered_or_may_be(transport: str, what: str, kind: str, step: int) -> None:
    frames = answered(transport)[kind]
    assert not [one for one in connections(frames, range(1, len(frames)) if step else ()) if one.unanswered]


@pytest.mark.parametrize("attribute", [cm.REJ, cm.MRA])
def test_other_answers_of_connection_management(attribute: int) -> None:
    wire = Wire(seed=1)
    connection = wire.connect()
    assert connection.sides is not None
    client, server = connection.sides
    connection._mad(1, attribute, cm.reject(server, client, 8) if attribute == cm.REJ else cm.ids(server, client))
    request, answer = wire.packets[0], wire.packets[-1]
    packets = [request, replace(request, time=request.time + SECOND), replace(answer, time=request.time + 2 * SECOND)]
    assert not [one for one in connections(Capture(wire, packets).frames) if one.unanswered]


@BOTH
@pytest.mark.parametrize("count", [2, None])
def test_an_answer_that_was_not_captured(transport: str, what: str, count: int | None) -> None:
    """Only what the client sent is in the capture, at least the last step of the handshake."""
    whole, _ = exchange(transport)
    first = [frame for frame in whole if frame.data[6:12] == whole[0].data[6:12]]
    again = [first[0], *(replace(frame, time=frame.time + SECOND) for frame in first[:count])]
    assert not [one for one in connections(again) if one.unanswered]


@BOTH
@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("cuts", [(), range(1, 8)])
def test_copies_of_a_request_are_no_other_requests(transport: str, what: str, times: int, cuts: Sequence[int]) -> None:
    _, asks = exchange(transport)
    twice = [replace(ask, time=ask.time + after) for ask in asks[:times] for after in (0, 2_000)]
    found = [one.ended_by for one in connections(twice, cuts) if one.unanswered]
    assert found == ([f"no answer to {times} {what}"] if times > 1 else [])


@BOTH
def test_requests_to_other_services_are_not_looked_at(transport: str, what: str) -> None:
    wire = Wire(seed=1) if transport == "RoCEv2" else IwarpWire(seed=1)
    wire.connect(port=4420)
    ask = frames_of(wire)[0]
    assert not [one for one in connections([ask, replace(ask, time=ask.time + SECOND)]) if one.unanswered]
