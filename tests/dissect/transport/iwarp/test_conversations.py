"""The analyzer against iWARP conversations whose truth is known: right, or a clear word about what is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from playbook import call, faults, nfs3, nfs4, reply, shapes, tcp as t, tcp_faults
from playbook.capture import frame_batches
from playbook.iwarp import IwarpCapture, IwarpConnection, IwarpWire
from playbook.iwarp_strategies import FATAL, REPAIRED, SPOILED, IwarpConversation, iwarp_conversations, iwarp_faulty
from playbook.judge import analyze, judge, judge_whole
from playbook.shapes import DATA
from playbook.tcp import TcpSegment
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

QUICK = settings(
    max_examples=40,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a conversation says enough unshrunk, and at once
    suppress_health_check=list(HealthCheck),
)

CUTS = st.lists(st.integers(0, 1000), max_size=4)
MANAGED = iwarp_conversations(cm=st.just(True))


def story(connection: IwarpConnection) -> None:
    """One RPC of each simple shape."""
    data = connection.wire.random.randbytes(8190)
    reply(call(connection, nfs3.null()), nfs3.null_reply())
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    shapes.read(connection, data)
    shapes.write(connection, data)
    reply(call(connection, nfs3.readlink()), nfs3.readlink_reply(b"/tmp/target"), invalidate=7)
    rpc = call(connection, nfs3.readdirplus(), reply_chunk=connection.register(12000))
    reply(rpc, nfs3.readdirplus_reply([b"name-%d" % number for number in range(20)]))
    recall = nfs4.callback(nfs4.cb_sequence(), nfs4.cb_recall())
    recalled = nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done())
    reply(call(connection, recall, backward=True), recalled)


def whole(wire: IwarpWire, segments: list[TcpSegment] | None = None) -> None:
    capture = IwarpCapture(wire, segments)
    assert len(judge_whole(capture, analyze(capture))) == len(wire.truth)


@pytest.mark.parametrize("cutting", ["aligned", "merged", "random"])
@pytest.mark.parametrize("crc", [True, False], ids=["crc", "no crc"])
@pytest.mark.parametrize(
    "markers",
    [(False, False), (True, True), (True, False), (False, True)],
    ids=["no markers", "markers", "markers from the client", "markers from the server"],
)
def test_every_agreement_on_markers_and_crcs(markers: tuple[bool, bool], crc: bool, cutting: str) -> None:
    wire = IwarpWire(mss=1448, seed=5)
    story(wire.connect(markers=markers, crc=crc, cutting=cutting))
    whole(wire)


@pytest.mark.parametrize("ready", ["", "F", "W", "R"], ids=["client-server", "FPDU", "RDMA Write", "RDMA Read"])
def test_every_set_up_of_revision_2(ready: str) -> None:
    wire = IwarpWire(mss=1448, seed=5)
    story(wire.connect(revision=2, ready=ready, markers=(True, False)))
    whole(wire)


@pytest.mark.parametrize("port", [20049, 4711])
@pytest.mark.parametrize("before", [0, 100, 9000])
def test_sequence_numbers_wrap_anywhere(port: int, before: int) -> None:
    wire = IwarpWire(mss=1448, seed=5)
    isns = [((1 << 32) - before) % (1 << 32)] * 2
    story(wire.connect(port=port, client_isn=isns[0], server_isn=isns[1], cutting="merged"))
    whole(wire)


@pytest.mark.parametrize("first", [1, 15, 16, 19, 20, 21, 27])
def test_a_set_up_frame_in_two_segments(first: int) -> None:
    wire = IwarpWire(mss=1448, seed=5)
    story(wire.connect(markers=(True, True)))
    segments = wire.sent()
    for index in faults.where(segments, kind="data")[1::-1]:
        one = segments[index]
        parts = (
            replace(one, payload=one.payload[:first]),
            replace(one, payload=one.payload[first:], seq=one.seq + first, at=first),
        )
        segments = [*segments[:index], *parts, *segments[index + 1 :]]
    whole(wire, segments)


def test_the_same_client_port_again() -> None:
    """After a FIN, and after a RST, with other sequence numbers and other agreements."""
    wire = IwarpWire(mss=1448, seed=5)
    for ending, markers in (("FIN", (False, False)), ("RST", (True, False)), ("", (False, True))):
        connection = wire.connect(client_port=700, markers=markers, crc=markers[0])
        story(connection)
        if ending:
            (connection.disconnect if ending == "FIN" else connection.reset)()
    whole(wire)


def test_connections_have_numbers_in_the_order_of_their_first_frames() -> None:
    """Also where two of one batch have the same ports, and others come between; each begins with its SYN."""
    wire = IwarpWire(mss=1448, seed=5)
    for port in (700, 701, 700, 702):
        connection = wire.connect(client_port=port)
        story(connection)
        connection.disconnect()
    segments = wire.sent()
    frames = IwarpCapture(wire, segments).frames
    begins = [number for number, one in enumerate(segments, 1) if one.flags == t.SYN]
    for cuts in ((), range(0, len(frames), 40), range(len(frames))):
        analyzer = Analyzer()
        for batch in frame_batches(frames, cuts):
            analyzer.feed(batch)
        analyzer.finish()
        assert [one.first_frame for one in analyzer.connections] == begins
        clients = [str(one.endpoints[0]) for one in analyzer.connections]
        assert clients == [f"10.0.0.2:{port}" for port in (700, 701, 700, 702)]


def test_a_length_changed_on_the_way_is_no_length() -> None:
    """With CRCs in use the bytes behind it are not shown before they are confirmed."""
    wire = IwarpWire(mss=1448, seed=5)
    story(wire.connect())
    segments = wire.sent()
    for index in [index for index in faults.where(segments, kind="data") if segments[index].at > 200]:
        for at in (0, 1):
            capture = IwarpCapture(wire, tcp_faults.corrupt(wire, segments, index, at))
            judge(capture, analyze(capture))


@pytest.mark.parametrize("mulpdu", [64, 500, 1400])
@pytest.mark.parametrize("gone", [1, 2, 3, 4])
def test_markers_whose_place_is_not_known(mulpdu: int, gone: int) -> None:
    """The Request asked for markers, but where full operation began was not captured, and there are no CRCs."""
    for seed in range(10):
        wire = IwarpWire(mss=1448, seed=seed)
        connection = wire.connect(markers=(False, True), crc=False, cutting="random", mulpdu=mulpdu)
        for _ in range(3):
            data = wire.random.randbytes(700)
            reply(call(connection, nfs3.readlink()), nfs3.readlink_reply(data))
            reply(call(connection, nfs3.symlink(b"name", data)), nfs3.symlink_reply())
        segments = wire.sent()
        capture = IwarpCapture(wire, faults.drop(segments, faults.where(segments, kind="data", sender=1)[:gone]))
        judge(capture, analyze(capture))


@pytest.mark.parametrize("crc", [True, False])
@pytest.mark.parametrize("gone", range(4, 10))
def test_what_is_before_a_gap_soon_behind_a_start_in_mid_stream_is_there(gone: int, crc: bool) -> None:
    """Too little to tell by itself that there are no markers."""
    wire = IwarpWire(mss=1448, seed=5)
    connection = wire.connect(cm=False, crc=crc, acks="none")
    for _ in range(6):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    capture = IwarpCapture(wire, faults.drop(wire.sent(), [gone]))
    judge_whole(capture, analyze(capture))


@pytest.mark.parametrize("snaplen", [54, 64, 66, 80, 96, 128, 256])
def test_frames_truncated_anywhere(snaplen: int) -> None:
    wire = IwarpWire(mss=1448, seed=5)
    story(wire.connect(markers=(True, False)))
    story(wire.connect("fd00::2", "fd00::1", crc=False, cutting="merged"))
    capture = IwarpCapture(wire, faults.snap(wire.sent(), snaplen))
    judge(capture, analyze(capture))


@pytest.mark.parametrize("lost", [0, 1])
def test_a_request_whose_first_bytes_come_last(lost: int) -> None:
    """A segment of the Request is lost before the capture point; batches end before and behind its retransmission."""
    for seed in range(6):
        wire = IwarpWire(mss=256, seed=seed)
        connection = wire.connect(markers=(True, True), crc=False, cutting="random")
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
        segments = wire.sent()
        index = faults.where(segments, kind="data")[lost]
        capture = IwarpCapture(wire, tcp_faults.lose(wire, segments, index, recorded=False, more=True))
        for first in range(index, index + 4):
            for second in range(first, index + 6):
                assert len(judge_whole(capture, analyze(capture, [first, second]))) == 1


@QUICK
@given(MANAGED, CUTS)
def test_a_conversation_without_faults_comes_out_whole(conversation: IwarpConversation, cuts: list[int]) -> None:
    capture = conversation.capture
    findings = judge_whole(capture, analyze(capture, cuts))
    assert len(findings) == len(conversation.wire.truth)


@QUICK
@given(iwarp_faulty(REPAIRED, MANAGED), CUTS)
def test_what_the_endpoints_repaired_comes_out_whole(conversation: IwarpConversation, cuts: list[int]) -> None:
    capture = conversation.capture
    judge_whole(capture, analyze(capture, cuts))


@QUICK
@given(iwarp_faulty(FATAL, MANAGED), CUTS)
def test_what_was_lost_is_never_made_up(conversation: IwarpConversation, cuts: list[int]) -> None:
    capture = conversation.capture
    judge(capture, analyze(capture, cuts))


@QUICK
@given(iwarp_faulty(SPOILED, iwarp_conversations(cm=st.just(True), crc=st.just(True))), CUTS)
def test_what_was_spoiled_is_never_taken_for_right(conversation: IwarpConversation, cuts: list[int]) -> None:
    capture = conversation.capture
    judge(capture, analyze(capture, cuts))


@QUICK
@given(iwarp_faulty(), st.integers(0, 60), CUTS)
def test_a_late_start_and_everything_else_is_never_wrong(
    conversation: IwarpConversation, count: int, cuts: list[int]
) -> None:
    capture = IwarpCapture(conversation.wire, faults.cut(conversation.segments, count))
    judge(capture, analyze(capture, cuts))


@QUICK
@given(iwarp_faulty(), st.sampled_from([64, 80, 96, 128, 160, 256, 600]), CUTS)
def test_truncated_frames_are_never_wrong(conversation: IwarpConversation, snaplen: int, cuts: list[int]) -> None:
    capture = IwarpCapture(conversation.wire, faults.snap(conversation.segments, snaplen))
    judge(capture, analyze(capture, cuts))


@pytest.mark.parametrize("cutting", ["aligned", "merged"])
@pytest.mark.parametrize("snaplen", [148, 212])
def test_a_marker_before_what_is_truncated_is_no_data(snaplen: int, cutting: str) -> None:
    """Nothing in the capture tells of markers but FPDUs that end before their frames do."""
    wire = IwarpWire(mss=256, seed=6)
    connection = wire.connect(cm=False, markers=(True, True), cutting=cutting)
    for size in range(40, 640, 104):
        shapes.write(connection, DATA[:size])
        shapes.read(connection, DATA[:size])
    capture = IwarpCapture(wire, faults.snap(wire.sent(), snaplen))
    judge(capture, analyze(capture))


def test_a_segment_that_begins_inside_a_transport_header_begins_no_record() -> None:
    """The last word of its chunk lists reads as a record mark, and the RPC message follows."""
    wire = IwarpWire(mss=8960, seed=6)
    connection = wire.connect(cm=False)
    connection.next_address = 0x5582F30000
    for _ in range(3):
        chunk = connection.register(12000)
        connection.next_address = 0x5582F30000
        reply(call(connection, nfs3.readdirplus(), reply_chunk=chunk), nfs3.readdirplus_reply([b"name"]))
    cut: list[TcpSegment] = []
    for one in wire.sent():
        at = one.payload.find(b"\x82\xf3\x00\x00") if one.sender == 0 else -1
        if at < 0:
            cut.append(one)
            continue
        parts = one.payload[:at], one.payload[at:]
        cut += [replace(one, payload=parts[0]), replace(one, payload=parts[1], seq=one.seq + at, at=one.at + at)]
    capture = IwarpCapture(wire, cut)
    found = judge_whole(capture, analyze(capture))
    assert len(found) == 3
