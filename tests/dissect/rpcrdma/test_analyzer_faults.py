"""Sequence numbers, queue pairs, starts, losses, repetitions, cut frames: right, or a clear word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from playbook import Capture, Wire, call, error, faults, fetch, foreign, nfs3, nfs4, reply
from playbook.capture import frame_batch
from playbook.judge import analyze, judge, judge_whole, judge_wire, missing
from playbook.shapes import DATA, read, write
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

CM_FRAMES = 3


# Sequence numbers and queue pairs


@pytest.mark.parametrize("before", range(1, 24))
def test_the_sequence_number_wraps_anywhere(before: int) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect(client_psn=(1 << 24) - before, server_psn=(1 << 24) - before)
    write(conn)
    read(conn)
    reply(call(conn, nfs3.symlink(b"n", DATA[:3000])), nfs3.symlink_reply())
    judge_wire(wire)


def test_equal_queue_pair_numbers_on_every_host() -> None:
    wire = Wire()
    for host in range(2, 6):
        read(wire.connect(client=f"10.0.0.{host}", client_qpn=0x11, server_qpn=0x11 + host), DATA[host:])
    read(wire.connect(client="10.0.0.9", server="10.0.0.8", client_qpn=0x11, server_qpn=0x11))
    judge_wire(wire)
    judge_wire(wire, faults.interleave(wire, wire.packets, wire.random))


def test_a_queue_pair_number_used_again_after_disconnect() -> None:
    wire = Wire()
    for _ in range(3):
        conn = wire.connect(client_qpn=0x11, server_qpn=0x12)
        read(conn)
        write(conn)
        conn.disconnect()
    judge_wire(wire)


@pytest.mark.parametrize("order", ["forward first", "backward first"])
def test_both_directions_use_one_xid_at_one_time(order: str) -> None:
    wire = Wire()
    conn = wire.connect()
    forward = call(conn, nfs3.read(0, 4096), writes=[conn.register(4096)], xid=7)
    recall = nfs4.callback(nfs4.cb_sequence(), nfs4.cb_recall())
    backward = call(conn, recall, backward=True, xid=7)
    recalled = nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done())
    if order == "forward first":
        reply(forward, nfs3.read_reply(DATA[:4096]))
        reply(backward, recalled)
    else:
        reply(backward, recalled)
        reply(forward, nfs3.read_reply(DATA[:4096]))
    assert sorted(finding.rpc.backward for finding in judge_wire(wire)) == [False, True]


def test_an_rdma_error_ends_its_call() -> None:
    wire = Wire()
    conn = wire.connect()
    error(call(conn, nfs3.read(0, 4096), writes=[conn.register(4096)]), 2)
    error(call(conn, nfs3.null()), 1)
    assert [finding.rpc.state for finding in judge_wire(wire)] == ["error", "error"]


# Strangers


@pytest.mark.parametrize("stranger", [foreign.nvme, foreign.perftest, foreign.rping, foreign.zeros])
@pytest.mark.parametrize("start", [0, 3])
def test_strangers_are_never_taken_for_rpcs(stranger: object, start: int) -> None:
    wire = Wire()
    stranger(wire)  # type: ignore[operator]
    capture = Capture(wire, faults.cut(wire.packets, start))
    assert analyze(capture) == []


# Starts in the middle


@pytest.mark.parametrize("start", range(46))
def test_a_start_at_any_packet(start: int) -> None:
    """What is whole behind the cut comes out whole; a call from before it is a reply without a call."""
    wire = Wire(mtu=4096)
    conn = wire.connect()
    for _ in range(3):
        read(conn)
        write(conn)
    reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    capture = Capture(wire, faults.cut(wire.packets, start))
    findings = judge_whole(capture, analyze(capture))
    for finding in findings:
        if finding.rpc.call is None:
            assert finding.rpc.state == "no call"


def test_pairing_without_cm_is_reported_as_inferred() -> None:
    wire = Wire()
    for _ in range(4):
        conn = wire.connect(cm=False)
        for _ in range(3):
            reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
            read(conn)
    packets = faults.interleave(wire, wire.packets, wire.random)
    findings = judge_wire(wire, packets)
    for finding in findings:
        assert finding.rpc.connection.paired_by == "inferred"
        assert 0 < finding.rpc.connection.confidence <= 1
        assert finding.rpc.connection.evidence


def test_with_and_without_cm_between_the_same_hosts() -> None:
    wire = Wire()
    for number in range(6):
        conn = wire.connect(cm=number % 2 == 0)
        read(conn)
        write(conn)
    findings = judge_wire(wire, faults.interleave(wire, wire.packets, wire.random))
    assert {finding.rpc.connection.paired_by for finding in findings} == {"CM", "inferred"}


# Losses


@pytest.mark.parametrize("number", range(8))
def test_a_write_packet_that_was_not_captured_is_a_named_gap(number: int) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect(acks="none")
    read(conn)
    read(conn, bytes(100))
    conn.flush_acks()
    index = faults.where(wire.packets, kind="write")[number]
    capture = Capture(wire, faults.drop(wire.packets, [index]))
    findings = judge_whole(capture, analyze(capture))
    damaged = next(finding for finding in findings if finding.true.index == 0)
    assert damaged.reply is not None
    assert missing(damaged.reply) == capture.missing(wire.truth[0], "reply") != []
    assert damaged.rpc.state == "damaged" and damaged.rpc.damage
    assert sum(damaged.rpc.connection.missing_packets) == 1
    assert sum(damaged.rpc.connection.retransmitted_packets) == 0


def test_a_gap_behind_an_empty_first_packet_of_a_write() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect(acks="none")
    read(conn)
    conn.flush_acks()
    first, missed = faults.where(wire.packets, kind="write")[:2]
    packets = list(wire.packets)
    packets[first] = replace(packets[first], payload=b"")
    capture = Capture(wire, faults.drop(packets, [missed]))
    (finding,) = judge_whole(capture, analyze(capture))
    assert finding.rpc.state == "damaged" and finding.rpc.damage


@pytest.mark.parametrize("number", range(8))
def test_a_read_response_that_was_not_captured_is_a_named_gap(number: int) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    write(conn)
    index = faults.where(wire.packets, kind="response")[number]
    capture = Capture(wire, faults.drop(wire.packets, [index]))
    (finding,) = judge_whole(capture, analyze(capture))
    assert finding.call is not None
    assert missing(finding.call) == capture.missing(wire.truth[0], "call") != []
    assert finding.rpc.state == "damaged" and finding.rpc.damage


@pytest.mark.parametrize("answer", ["nak", "timeout"])
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("number", range(8))
def test_a_write_packet_lost_on_the_wire_comes_once(number: int, recorded: bool, answer: str) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    read(conn)
    index = faults.where(wire.packets, kind="write")[number]
    packets = faults.lose(wire, wire.packets, index, answer=answer, recorded=recorded)
    (finding,) = judge_wire(wire, packets)
    again = sum(packet.copy > 0 for packet in packets)
    shown = recorded or number < 7  # of the last one nothing shows that it was lost
    assert finding.rpc.connection.retransmitted_packets == (0, again if shown else 0)
    assert finding.rpc.connection.missing_packets == (0, 0)


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("number", range(8))
def test_a_read_response_lost_on_the_wire_comes_once(number: int, recorded: bool) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    write(conn)
    index = faults.where(wire.packets, kind="response")[number]
    packets = faults.lose_response(wire, wire.packets, index, recorded=recorded)
    (finding,) = judge_wire(wire, packets)
    (use,) = finding.rpc.chunks[0].segments
    assert use.transferred == 8192
    assert finding.rpc.connection.missing_packets == (0, 0)


def test_a_packet_whose_icrc_fails_is_not_accepted_before_its_retransmission() -> None:
    """A byte changed on the way, the receiver dropped it, the sender sent it again: both are in the capture."""
    wire = Wire(mtu=1024)
    conn = wire.connect()
    read(conn)
    index = faults.where(wire.packets, kind="write")[3]
    judge_wire(wire, faults.lose(wire, faults.corrupt(wire.packets, index), index))


def test_a_reply_without_its_call_is_not_complete_when_chunks_went_with_it() -> None:
    """Nothing says where the Write chunk's bytes belong: that must be said, not left out."""
    wire = Wire()
    conn = wire.connect()
    read(conn)
    capture = Capture(wire, faults.drop(wire.packets, [CM_FRAMES]))
    (finding,) = judge(capture, analyze(capture))
    assert finding.rpc.state == "no call"
    assert finding.reply is None or not finding.reply.complete


@pytest.mark.parametrize("late", range(10, 15))
def test_a_middle_packet_of_a_send_recorded_late(late: int) -> None:
    """It belongs to its own Send, not to the one before."""
    wire = Wire(mtu=256)
    conn = wire.connect()
    reply(call(conn, nfs3.null()), nfs3.null_reply())
    reply(call(conn, nfs3.readlink()), nfs3.readlink_reply(DATA[:1300]))
    judge_wire(wire, faults.swap(wire.packets, late))


@pytest.mark.parametrize("distance", range(8))
def test_a_ghost_of_a_call(distance: int) -> None:
    """The network delivers a call's Send a second time, while a later Send is under way."""
    wire = Wire(mtu=256)
    conn = wire.connect(acks="none")
    first = call(conn, nfs3.symlink(b"name", DATA[:70]), reads={0: conn.register(70)})
    second = call(conn, nfs3.symlink(b"name", DATA[:400]))
    fetch(first)
    reply(first, nfs3.symlink_reply())
    reply(second, nfs3.symlink_reply())
    conn.flush_acks()
    judge_wire(wire, faults.ghost(wire.packets, CM_FRAMES, distance))


# Cut frames


@pytest.mark.parametrize("snaplen", [64, 96, 128, 160, 256])
def test_truncated_frames_say_so(snaplen: int) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    reply(call(conn, nfs3.null()), nfs3.null_reply())
    read(conn)
    write(conn)
    capture = Capture(wire, faults.snap(wire.packets, snaplen))
    judge(capture, analyze(capture))


@pytest.mark.parametrize("snaplen", range(14 + 20 + 8 + 12 + 20, 120))
def test_a_connection_is_recognised_wherever_its_frames_are_cut(snaplen: int) -> None:
    """Within the transport header, between it and the RPC message, within that; no service port is known."""
    wire = Wire()
    connection = wire.connect(cm=False)
    for _ in range(3):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    rpcs = analyze(Capture(wire, faults.snap(wire.packets, snaplen)))
    assert [rpc.call_frame < rpc.reply_frame for rpc in rpcs] == [True] * 3


@pytest.mark.parametrize("snaplen", (90, 98, 105))
def test_the_server_alone_is_recognised_by_what_its_replies_begin_with(snaplen: int) -> None:
    wire = Wire()
    connection = wire.connect(cm=False)
    for _ in range(3):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    replies = [wire.packets[at] for at in faults.where(wire.packets, kind="send", sender=1)]
    assert len(analyze(Capture(wire, faults.snap(replies, snaplen)))) == 3


def test_rpcs_in_truncated_frames_are_matched_timed_and_named() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    read(conn)
    write(conn)
    reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    capture = Capture(wire, faults.snap(wire.packets, 160))
    findings = judge(capture, analyze(capture))
    assert [finding.rpc.name for finding in findings] == ["READ", "WRITE", "GETATTR"]
    assert all(finding.rpc.latency is not None for finding in findings)
    assert [chunk.transferred for finding in findings for chunk in finding.rpc.chunks] == [8192, 8192]
    for finding in findings[:2]:
        assert finding.rpc.contents == "truncated"


def test_batches_of_one_frame_say_the_same_as_one_batch() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    read(conn)
    write(conn)
    capture = Capture(wire, faults.lose(wire, wire.packets, faults.where(wire.packets, kind="write")[2]))
    judge_whole(capture, analyze(capture, range(len(capture.frames))))


def test_what_comes_behind_a_loss_is_taken_where_it_is_sent_again_wherever_a_batch_ends() -> None:
    wire = Wire(mtu=1024)
    read(wire.connect(acks="lazy"))
    lost, *_, final = faults.where(wire.packets, kind="write")[2:] + faults.where(wire.packets, kind="send")[1:]
    capture = Capture(wire, faults.lose(wire, wire.packets, lost, recorded=False))
    *_, again = faults.where(capture.packets, kind="send")
    assert capture.packets[again].copy == 1
    for end in range(lost, len(capture.frames)):
        (rpc,) = analyze(capture, [end])
        assert rpc.reply is not None and rpc.reply.operation.last_frame == again + 1, end
        assert rpc.retransmissions == final - lost


def test_what_was_acknowledged_before_it_is_sent_again_was_taken_before() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect(acks="lazy")
    read(connection)
    connection.flush_acks()
    *before, acknowledgement = wire.packets
    late = before.pop(faults.where(before, kind="write")[2])
    sent = faults.where(before, kind="send")[-1]
    behind = [replace(one, copy=1) for one in before[faults.where(before, kind="write")[2] : sent + 1]]
    behind = faults.put_off(behind, acknowledgement.time)
    capture = Capture(wire, [*before, late, acknowledgement, *behind])
    for end in range(len(before) - 3, len(capture.frames)):
        (rpc,) = analyze(capture, [end])
        assert rpc.reply is not None and rpc.reply.operation.last_frame == sent + 1, end
        assert rpc.retransmissions == len(behind)


def test_foreign_connections_are_known_as_such() -> None:
    wire = Wire()
    foreign.nvme(wire)
    read(wire.connect())
    analyzer = Analyzer()
    analyzer.feed(frame_batch(wire.frames()))
    analyzer.finish()
    assert [one.protocol for one in analyzer.conversations] == ["other", "rpcrdma"]


@pytest.mark.parametrize("cm", [True, False], ids=["by its service ID", "by its contents"])
def test_ip_over_infiniband_has_its_name(cm: bool) -> None:
    wire = Wire()
    foreign.ip_over_infiniband(wire, cm=cm)
    analyzer = Analyzer()
    analyzer.feed(frame_batch(wire.frames()))
    analyzer.finish()
    (conversation,) = analyzer.conversations
    assert (conversation.protocol, conversation.protocol_name) == ("other", "IP over InfiniBand")


@pytest.mark.parametrize("stranger", [foreign.nvme, foreign.perftest, foreign.rping, foreign.zeros])
def test_nothing_else_is_taken_for_ip_over_infiniband(stranger: Callable[[Wire], object]) -> None:
    wire = Wire()
    stranger(wire)
    analyzer = Analyzer()
    analyzer.feed(frame_batch(wire.frames()))
    analyzer.finish()
    assert analyzer.conversations[0].protocol_name != "IP over InfiniBand"


@pytest.mark.parametrize("snaplen", range(64, 200, 4))
def test_a_chunk_list_that_is_truncated_is_not_taken_for_a_whole_one(snaplen: int) -> None:
    """Segments behind the cut are unknown, and with them how long the message is."""
    wire = Wire(mtu=1024)
    conn = wire.connect()
    rpc = call(conn, nfs3.write(0, DATA[:999]), reads={0: conn.register(401, 299, 299)})
    fetch(rpc)
    reply(rpc, nfs3.write_reply(999))
    rpc = call(conn, nfs3.symlink(b"name", DATA[:100]), position_zero=conn.register(100, 56, 100))
    fetch(rpc)
    reply(rpc, nfs3.symlink_reply())
    rpc = call(conn, nfs3.readdirplus(), reply_chunk=conn.register(300, 300, 600))
    reply(rpc, nfs3.readdirplus_reply([b"name"]))
    capture = Capture(wire, faults.snap(wire.packets, snaplen))
    judge(capture, analyze(capture))


@pytest.mark.parametrize("snaplen", range(84, 152, 4))
@pytest.mark.parametrize("chunk", ["reply", "write"])
def test_a_reply_returns_more_segments_than_a_truncated_call_shows(snaplen: int, chunk: str) -> None:
    """The call's frame is cut inside its list of segments, all that follows is whole."""
    wire = Wire()
    conn = wire.connect()
    if chunk == "reply":
        rpc = call(conn, nfs3.readdirplus(), reply_chunk=conn.register(384, 43, 1476, 4000))
        reply(rpc, nfs3.readdirplus_reply([b"name-%d" % number for number in range(20)]))
    else:
        rpc = call(conn, nfs3.read(0, 1900), writes=[conn.register(384, 43, 1476)])
        reply(rpc, nfs3.read_reply(DATA[:1900]))
    behind = CM_FRAMES + 1
    cut = faults.snap(wire.packets[CM_FRAMES:behind], snaplen)
    capture = Capture(wire, [*wire.packets[:CM_FRAMES], *cut, *wire.packets[behind:]])
    (finding,) = judge(capture, analyze(capture))
    assert finding.rpc.contents != "whole"


@pytest.mark.parametrize("hosts", [("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00::1")])
@pytest.mark.parametrize("snaplen", range(64, 260, 4))
def test_a_truncated_reply_does_not_guess_where_its_write_chunk_belongs(snaplen: int, hosts: tuple[str, str]) -> None:
    wire = Wire(mtu=4096)
    conn = wire.connect(*hosts)
    read(conn, DATA[:30])
    rpc = call(conn, nfs3.readlink(), writes=[conn.register(100)])
    reply(rpc, nfs3.readlink_reply(DATA[:99]))
    ops = (nfs4.sequence(), nfs4.putfh(), nfs4.read(0, 33), nfs4.read(0, 44))
    results = (nfs4.sequence_done(), nfs4.putfh_done(), nfs4.read_done(DATA[:33]), nfs4.read_done(DATA[:44]))
    rpc = call(conn, nfs4.compound(*ops), writes=[conn.register(33), conn.register(44)])
    reply(rpc, nfs4.compound_reply(*results))
    capture = Capture(wire, faults.snap(wire.packets, snaplen))
    judge(capture, analyze(capture))


@pytest.mark.parametrize("snaplen", [64, 96])
def test_a_reply_is_not_taken_for_a_call_when_its_rpc_header_is_truncated(snaplen: int) -> None:
    """Without CM nothing but the RPC header tells the direction."""
    wire = Wire()
    conn = wire.connect(cm=False)
    rpc = call(conn, nfs3.read(0, 100), writes=[conn.register(100)])
    reply(rpc, nfs3.read_failed())
    capture = Capture(wire, faults.snap(wire.packets, snaplen))
    judge(capture, analyze(capture))


def test_an_error_is_matched_by_its_xid_alone_where_truncation_leaves_no_message_types() -> None:
    """What the client sends last under this XID is its reply to a callback, and not what the error is about."""
    wire = Wire()
    conn = wire.connect(cm=False)
    forward = call(conn, nfs3.getattr_(), xid=7)
    backward = call(conn, nfs4.callback(nfs4.cb_sequence(), nfs4.cb_recall()), backward=True, xid=7)
    reply(backward, nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done()))
    error(forward)
    capture = Capture(wire, faults.snap(wire.packets, 76))
    judge(capture, analyze(capture))


def test_the_first_request_of_the_server_was_not_captured() -> None:
    """It was a backward call; the RDMA Reads behind it are still in time for their call."""
    wire = Wire(mtu=1024)
    conn = wire.connect()
    recall = nfs4.callback(nfs4.cb_sequence(), nfs4.cb_recall())
    backward = call(conn, recall, backward=True)
    forward = call(conn, nfs3.write(0, DATA), reads={0: conn.register(8192)})
    null = call(conn, nfs3.null())
    reply(backward, nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done()))
    fetch(forward)
    reply(forward, nfs3.write_reply(8192))
    reply(null, nfs3.null_reply())
    capture = Capture(wire, faults.drop(wire.packets, [CM_FRAMES]))
    judge_whole(capture, analyze(capture))


@pytest.mark.parametrize(
    ("snaplen", "program"), [(97, None), (98, (100003, None)), (102, (100003, 3)), (106, (100003, 3))]
)
def test_the_program_of_a_truncated_call_is_known_as_far_as_it_is_there(
    snaplen: int, program: tuple[int, int | None] | None
) -> None:
    wire = Wire()
    connection = wire.connect()
    for _ in range(3):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    packets = [packet for packet in wire.packets if packet.kind != "cm"]
    capture = Capture(wire, faults.snap(packets, snaplen))  # the call's program stands at byte 94
    analyzer = Analyzer()
    rpcs = analyzer.feed(frame_batch(capture.frames)) + analyzer.finish()
    found = {(rpc.program, rpc.version) for rpc in rpcs}
    assert found == {program or (None, None)}
    assert {rpc.name for rpc in rpcs} == {"GETATTR" if snaplen == 106 else ""}
    assert analyzer.truncated_frames == sum(len(frame.data) < frame.original for frame in capture.frames) > 0
