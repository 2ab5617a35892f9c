"""Hosts that fell silent, and hosts that only had nothing to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from playbook import Capture, Wire, call, nfs3, reply
from playbook.capture import write_pcap
from playbook.facts import SECOND, START, connection, direction, facts, found, health, kinds, many, rpc, silent, speaks
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.packets import Frame, Packet, encode_frames
from playbook.troubles import TROUBLES
from rdmascope.captures.session.diagnosis_pass import diagnosis_of
from rdmascope.captures.session.session import Session
from rdmascope.dissect.diagnosis.facts import Severity, Statement
from rdmascope.dissect.transport.connection import Gap
from rdmascope.dissect.transport.health import DirectionHealth
from rdmascope.dissect.transport.retransmissions import Tally

GONE = START + 50 * SECOND


def waits(since: int = GONE, **changed: Any) -> DirectionHealth:
    """A client that sends on until the capture ends."""
    tried = {"retransmitted": Tally(3, 300)} | changed
    return direction(last_time=START + 99 * SECOND, waiting_since=since, unanswered=3, **tried)


def diagnosed(frames: Sequence[Frame], folder: Path) -> tuple[Statement, ...]:
    write_pcap(frames, folder / "it.pcap")
    return diagnosis_of(Session(str(folder / "it.pcap"))).statements


@speaks("host-silent")
def test_a_server_that_is_gone_comes_first() -> None:
    calls = [*many(30, "WRITE", takes=50_000_000), rpc(31, "CREATE", at=50 * SECOND, answered=False)]
    said = found(facts(calls, [health(1, waits(), server=direction(last_time=GONE))]))
    assert said[0].kind == "host-silent" and {one.kind for one in said[1:]} == {"server-time"}
    cause = said[0].cause
    assert cause.headline.startswith("CREATE (RPC 31) has hung for 50.0 s") and cause.lost == 50 * SECOND
    assert "stopped responding" in cause.text and cause.evidence[0].startswith("connection 1, ")
    assert cause.since == GONE and cause.connections == (1,) and cause.rpcs == (31,) and cause.count == 1
    assert (
        cause.text.startswith("server 10.0.0.1 stopped responding at ")
        and "50.0 s before the capture ended" in cause.text
    )
    assert "CREATE (RPC 31) has hung for 50.0 s, on connection 1" in cause.text


@silent("host-silent")
def test_a_server_that_nobody_asks() -> None:
    idle = health(1, direction(last_time=GONE), server=direction(last_time=GONE))
    assert "host-silent" not in kinds(facts(many(30), [idle]))


@silent("host-silent")
@pytest.mark.parametrize("last", (GONE + SECOND, START + 99 * SECOND))
def test_a_server_that_was_seen_on_another_connection(last: int) -> None:
    """It is not gone, whatever happened to the first connection."""
    first = health(1, direction(last_time=GONE, waiting_since=GONE), server=direction(last_time=GONE))
    other = health(2, direction(last_time=last), server=direction(last_time=last))
    given = facts(many(30), [first, other], [connection(1), connection(2)])
    assert "host-silent" not in kinds(given)


@silent("host-silent")
def test_what_was_sent_just_before_the_capture_ended() -> None:
    last = health(1, waits(since=START + 99 * SECOND), server=direction(last_time=GONE))
    assert "host-silent" not in kinds(facts(many(30), [last]))


@silent("host-silent")
def test_a_server_whose_acknowledgement_the_capture_may_lack() -> None:
    """The capture lacks packets of this connection, and the client retransmitted nothing."""
    server = direction(last_time=GONE, packets=9, acknowledgements=5)
    for retransmitted in (0, 3):
        lacking = connection(1)
        lacking.connection.gaps, lacking.connection.packets = ([], [Gap(1, 2, 3, START)]), (9, 9)
        client = waits(retransmitted=Tally(retransmitted, 100 * retransmitted))
        said = kinds(facts(many(30), [health(1, client, server=server)], [lacking]))
        assert ("host-silent" in said) == bool(retransmitted)


@speaks("host-silent")
def test_a_client_that_is_gone() -> None:
    gone = health(1, direction(last_time=GONE), server=waits())
    (said,) = found(facts(many(30), [gone]), "host-silent")
    assert "client 10.0.0.2 stopped responding at" in said.cause.text
    assert "no call outstanding, on connection 1" in said.cause.text


def test_a_dead_server_is_no_packet_loss(tmp_path: Path) -> None:
    wire = Wire(seed=1)
    said = diagnosed(encode_frames(TROUBLES["host-silent"](wire)), tmp_path)
    assert [one.kind for one in said] == ["host-silent"]
    assert said[0].cause.connections == (1, 2) and said[0].cause.count == 4
    assert "; 3 more calls, on connections 1, 2" in said[0].cause.text


def test_a_server_that_is_gone_over_iwarp(tmp_path: Path) -> None:
    wire = IwarpWire(seed=1)
    conn = wire.connect()
    for _ in range(10):
        reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    wire.pause(1_000_000)
    died = len(wire.sent())
    call(conn, nfs3.getattr_())
    sent = [one for one in wire.sent()[died:] if one.sender == 0]
    again = [replace(one, time=one.time + after * SECOND, copy=1) for after in (1, 3, 7, 15, 40) for one in sent]
    segments = [*wire.sent()[:died], *sent, *again]
    said = diagnosed(IwarpCapture(wire, segments).frames, tmp_path)
    assert [one.kind for one in said] == ["host-silent"]


def test_a_server_that_acknowledges_over_iwarp_is_not_gone(tmp_path: Path) -> None:
    """Its TCP is there, and only the replies do not come."""
    wire = IwarpWire(seed=1)
    conn = wire.connect()
    for _ in range(10):
        reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    call(conn, nfs3.getattr_())
    wire.pause(40 * SECOND)
    call(conn, nfs3.getattr_())
    assert "host-silent" not in [one.kind for one in diagnosed(IwarpCapture(wire).frames, tmp_path)]


@pytest.mark.parametrize("kind", TROUBLES)
def test_no_share_is_above_its_whole(kind: str, tmp_path: Path) -> None:
    for one in diagnosed(encode_frames(TROUBLES[kind](Wire(seed=1))), tmp_path):
        assert one.cause.share is None or 0 <= one.cause.share <= 1


@pytest.mark.parametrize(
    ("kept", "kinds"),
    [
        (lambda packet: packet.sender == 0, "packets-missing one-direction"),
        (lambda packet: packet.sender == 1, "packets-missing one-direction"),
        (lambda packet: (packet.sender, packet.kind) != (0, "send"), "packets-missing"),
        (lambda packet: (packet.sender, packet.kind) != (1, "send"), "packets-missing calls-hung"),
        (lambda packet: packet.kind != "ack", ""),
    ],
)
def test_what_a_filter_took_is_no_trouble(kept: Callable[[Packet], bool], kinds: str, tmp_path: Path) -> None:
    """``kept``: of two connections, one behind the other, beside CM messages."""
    wire = Wire(seed=1)
    for _ in range(2):
        conn = wire.connect(acks="message")
        for _ in range(10):
            reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
            wire.pause(2 * SECOND)
        conn.disconnect()
    left = [packet for packet in wire.packets if packet.kind == "cm" or kept(packet)]
    said = diagnosed(Capture(wire, left).frames, tmp_path)
    assert {one.kind for one in said} == {*kinds.split()}
    assert all(one.severity is not Severity.PROBLEM for one in said)
