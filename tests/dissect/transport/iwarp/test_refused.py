"""A SYN that is answered by a reset: nothing listens on the service port, as a REJ says over RoCE."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from playbook import nfs3
from playbook.capture import frame_batches, write_pcap
from playbook.iwarp import IwarpWire
from playbook.rpcrdma import call, reply
from playbook.tcp import ACK, RST, SYN, TcpSegment, encode_segments
from rdmascope.captures.session.diagnosis_pass import diagnosis_of
from rdmascope.captures.session.session import Session
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.transport.connection import Connection


def attempt(wire: IwarpWire, port: int = 20049, client_port: int = 900) -> TcpSegment:
    """The SYN of a connection that does not come about."""
    begun = len(wire.sent())
    wire.connect(port=port, client_port=client_port)
    return wire.sent()[begun]


def refusal(syn: TcpSegment) -> TcpSegment:
    return replace(
        syn,
        time=syn.time + 20_000,
        sender=1,
        kind="rst",
        source=syn.destination,
        destination=syn.source,
        source_port=syn.destination_port,
        destination_port=syn.source_port,
        seq=0,
        ack=syn.seq + 1 & 0xFFFFFFFF,
        flags=RST | ACK,
        options=b"",
    )


def connections(segments: list[TcpSegment], cuts: tuple[int, ...] = ()) -> list[Connection]:
    analyzer = Analyzer()
    for batch in frame_batches(encode_segments(segments), cuts):
        analyzer.feed(batch)
    analyzer.finish()
    return analyzer.connections


@pytest.mark.parametrize("cuts", [(), (1,)])
@pytest.mark.parametrize("isn", (None, 0xFFFFFFFF))
@pytest.mark.parametrize("seq", (0, 77))
def test_a_refused_connection(cuts: tuple[int, ...], isn: int | None, seq: int) -> None:
    syn = attempt(IwarpWire(seed=1))
    syn = syn if isn is None else replace(syn, seq=isn)
    (one,) = connections([syn, replace(refusal(syn), seq=seq)], cuts)
    assert one.refused and one.ended_by == "RST in answer to the SYN" and one.transport == "iWARP"
    assert [str(end.address) for end in one.endpoints] == [syn.source, syn.destination]
    assert one.service_port == 20049 and (one.first_frame, one.last_frame) == (1, 2)
    assert one.ended_time == syn.time + 20_000


def test_each_attempt_is_one() -> None:
    wire = IwarpWire(seed=1)
    syns = [attempt(wire, client_port=port) for port in (900, 901, 900)]
    found = connections([segment for syn in syns for segment in (syn, refusal(syn))])
    assert [one.refused for one in found] == [True] * 3


def near(kind: str, syn: TcpSegment) -> list[TcpSegment]:
    answer = refusal(syn)
    accepted = replace(answer, flags=SYN | ACK, kind="syn", seq=77)
    return {
        "another port": [replace(syn, destination_port=2049), replace(answer, source_port=2049)],
        "of another SYN": [syn, replace(answer, ack=answer.ack + 1)],
        "given up": [syn, accepted, replace(syn, flags=RST | ACK, kind="rst", seq=syn.seq + 1, ack=78)],
        "reset when it was open": [syn, accepted, replace(answer, seq=78)],
        "reset after an ACK": [
            syn,
            replace(syn, flags=ACK, kind="ack", seq=syn.seq + 1, ack=78),
            replace(answer, seq=78),
        ],
        "to a service port of the client": [
            replace(answer, seq=5, flags=SYN),
            replace(syn, seq=0, ack=6, flags=RST | ACK),
        ],
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "another port",
        "of another SYN",
        "given up",
        "reset when it was open",
        "reset after an ACK",
        "to a service port of the client",
    ],
)
def test_what_is_no_refusal(kind: str) -> None:
    assert not connections(near(kind, attempt(IwarpWire(seed=1))))


def test_a_capture_of_nothing_but_a_refusal_is_read(tmp_path: Path) -> None:
    syn = attempt(IwarpWire(seed=1))
    write_pcap(encode_segments([syn, refusal(syn)]), tmp_path / "refused.pcap")
    session = Session(str(tmp_path / "refused.pcap"))
    assert [one.kind for one in diagnosis_of(session).statements] == ["connections-refused"]
    session.check()


def test_a_refused_mount_is_told(tmp_path: Path) -> None:
    wire = IwarpWire(seed=1)
    conn = wire.connect()
    reply(call(conn, nfs3.null()), nfs3.null_reply())
    served = list(wire.sent())
    syn = attempt(wire)
    path = tmp_path / "refused.pcap"
    write_pcap(encode_segments([*served, syn, refusal(syn)]), path)
    (said,) = diagnosis_of(Session(str(path))).statements
    assert said.kind == "connections-refused" and "1 connection refused: RST in answer to the SYN" in said.cause.text
    assert said.cause.frames == (len(served) + 1,)
