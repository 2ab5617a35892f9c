"""What every TCP segment carries, held against what the playbook put into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from playbook import call, faults, nfs3, reply, tcp_faults
from playbook.capture import frame_batches
from playbook.iwarp import IwarpCapture, IwarpConnection, IwarpWire
from playbook.iwarp_strategies import REPAIRED, IwarpConversation, iwarp_conversations, iwarp_faulty
from playbook.tcp import TcpSegment
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.tcp import locate_tcp
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.transport.iwarp.segments import IwarpSegment, IwarpSegments

QUICK = settings(
    max_examples=40,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


class Reported(NamedTuple):
    """A part of a segment's payload: 'MPA', 'FPDU', what is wrong with an FPDU, or '?'."""

    what: str
    at: int
    length: int
    before: int
    after: int


def listed(
    wire: IwarpWire, segments: Sequence[TcpSegment] | None = None, cuts: Sequence[int] = ()
) -> list[IwarpSegment]:
    """The segments of iWARP connections as they are listed when all was seen."""
    analyzer, reported = Analyzer(), IwarpSegments()
    analyzer.watch_fpdus(reported.listen)
    capture = IwarpCapture(wire, wire.sent() if segments is None else list(segments))
    batches = frame_batches(capture.frames, cuts)
    for batch in batches:
        analyzer.feed(batch)
    analyzer.finish()
    observer = analyzer.iwarp
    assert observer is not None
    return [
        one
        for batch in batches
        for one in reported.of(
            batch, locate_tcp(batch, locate(batch, AddressTable()).tcp, observer.addresses), observer
        )
    ]


def parts(segment: IwarpSegment) -> list[Reported]:
    def what(index: int) -> str:
        part = segment.parts[index]
        if part.ready:
            return "FPDU"
        return "MPA" if part.mpa else "FPDU" if part.fpdu else part.fault or "?"

    return [Reported(what(n), one.at, one.length, one.before, one.after) for n, one in enumerate(segment.parts)]


def truth(connection: IwarpConnection, segment: TcpSegment) -> list[Reported]:
    """What the stretch of the stream is of that the segment carries."""
    end = connection.ends[segment.sender]
    whole = [("MPA", 0, end.operating), *(("FPDU", extent.start, extent.end) for extent in end.extents)]
    found: list[Reported] = []
    for what, start, stop in whole:
        low, high = max(start, segment.at), min(stop, segment.end)
        if low < high:
            found.append(Reported(what, low - segment.at, high - low, low - start, stop - high))
    return found


@QUICK
@given(
    iwarp_faulty(REPAIRED, iwarp_conversations(cm=st.just(True), strangers=False)),
    st.lists(st.integers(0, 1000), max_size=4),
)
def test_every_byte_is_of_what_its_sender_put_it_into(conversation: IwarpConversation, cuts: list[int]) -> None:
    wire = conversation.wire
    found = {one.frame: one for one in listed(wire, conversation.segments, cuts)}
    assert sorted(found) == list(range(1, len(conversation.segments) + 1))
    for frame, segment in enumerate(conversation.segments, 1):
        one = found[frame]
        connection = wire.connections[segment.connection - 1]
        assert isinstance(connection, IwarpConnection)
        assert (one.sender, one.length) == (segment.sender, len(segment.payload))
        if segment.kind == "data":
            assert parts(one) == truth(connection, segment)
        if segment.kind != "rst":
            isn = connection.ends[segment.sender].isn
            assert one.relative_seq == segment.seq - isn
        elif not segment.payload:
            assert one.parts == ()


def simple(cutting: str = "aligned", **options: object) -> IwarpWire:
    wire = IwarpWire(mss=1448, seed=7)
    connection = wire.connect(cutting=cutting, **options)  # type: ignore[arg-type]
    data = wire.random.randbytes(5000)
    reply(call(connection, nfs3.read(0, 5000), writes=[connection.register(5000)]), nfs3.read_reply(data))
    connection.disconnect()
    return wire


def test_plain_tcp_is_left_out() -> None:
    wire = simple()
    wire.connect(port=2049)
    segments = [one if one.connection == 1 else replace(one, payload=bytes(len(one.payload))) for one in wire.sent()]
    assert [one.frame for one in listed(wire, segments)] == [
        frame for frame, one in enumerate(segments, 1) if one.connection == 1
    ]


@pytest.mark.parametrize("markers", [(False, False), (True, True)], ids=["", "markers"])
def test_the_headers_of_a_part(markers: tuple[bool, bool]) -> None:
    wire = simple("merged", markers=markers)
    found = listed(wire)
    fpdus = {part.fpdu.start: part.fpdu for one in found for part in one.parts if part.fpdu}
    opcodes = [one.opcode for one in sorted(fpdus.values(), key=lambda one: (one.first_frame, one.start))]
    assert opcodes == [3, 0, 0, 0, 0, 3]
    send = next(one for one in fpdus.values() if one.opcode == 3)
    assert send.payload() == wire.operations[wire.truth[0].call_operation].data
    for one in found:
        assert (one.position is None) is not markers[one.sender]
        assert one.scaled and one.window in (0x8000, 0x8000 << 7)


def test_a_wrong_crc_and_what_is_not_known() -> None:
    wire = simple()
    before = wire.sent()
    index = [at for at, one in enumerate(before) if one.sender == 1 and len(one.payload) > 1400][1]
    found = listed(wire, tcp_faults.corrupt(wire, before, index, 700))
    assert [one.what for one in parts(found[index])] == ["wrong CRC32C"]
    split = simple("merged", mulpdu=2000)
    before = split.sent()
    index = next(at for at, one in enumerate(before) if one.sender == 1 and len(one.payload) > 1400)
    found = listed(split, faults.drop(before, [index + 1]))
    unknown = [reported for one in found for reported in parts(one) if reported.what == "?"]
    assert unknown and all(reported.before == reported.after == 0 for reported in unknown)


def test_what_is_odd_is_marked() -> None:
    wire = simple()
    before = wire.sent()
    index = next(at for at, one in enumerate(before) if one.sender == 1 and len(one.payload) > 1400)
    marks = [one.mark for one in listed(wire, tcp_faults.lose(wire, before, index, recorded=False))]
    assert marks.count("gap before it") == 1 and "retransmission" in marks
    alive = listed(wire, tcp_faults.keepalive(wire, before, index))
    assert [one.mark for one in alive].count("keep-alive") == 1


def test_the_same_ports_again_are_another_connection() -> None:
    wire = IwarpWire(mss=1448, seed=5)
    for _ in range(3):
        connection = wire.connect(client_port=700)
        reply(call(connection, nfs3.null()), nfs3.null_reply())
        connection.disconnect()
    found = listed(wire)
    numbers = [one.connection.number for one in found]
    assert numbers == [one.connection for one in wire.segments]
