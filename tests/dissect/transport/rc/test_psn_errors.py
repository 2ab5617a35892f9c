"""New requests with a PSN that an earlier request of the same sender took."""

from __future__ import annotations

from dataclasses import replace

import pytest

from playbook import Wire, call, faults, nfs3, reply
from playbook.capture import Capture, frame_batch
from playbook.judge import analyze, judge_whole
from playbook.shapes import read, write
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options


@pytest.mark.parametrize("cm", [True, False], ids=["with CM", "without CM"])
@pytest.mark.parametrize("repeated", [False, True])
def test_a_reply_inside_the_range_of_a_read_is_kept_and_named_an_error(cm: bool, repeated: bool) -> None:
    wire = Wire(mtu=1024)
    write(wire.connect(cm=cm))
    packets = list(wire.packets)
    reading = faults.where(packets, kind="read")[0]
    reply = [at for at in faults.where(packets, kind="send") if packets[at].sender == 1][-1]
    psn = (packets[reading].psn + 2) & 0xFFFFFF
    packets[reply] = replace(packets[reply], psn=psn)
    packets = packets[: reply + 1]
    if repeated:
        packets.append(replace(packets[reply], time=packets[reply].time + 500_000_000, copy=1))
    analyzer = Analyzer()
    (rpc,) = analyzer.feed(frame_batch(Capture(wire, packets).frames)) + analyzer.finish()
    assert rpc.state == "complete" and rpc.reply is not None and rpc.reply.frame == reply + 1
    (error,) = rpc.connection.reused_psns
    assert error == (reply + 1, 1, psn, "Send", reading + 1, "RDMA Read")
    health = analyzer.health(1)
    assert health.directions[1].retransmitted.packets == int(repeated)
    assert rpc.connection.retransmitted_packets == (0, int(repeated))


@pytest.mark.parametrize("cm", [True, False], ids=["with CM", "without CM"])
@pytest.mark.parametrize("back", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("snaplen", [0, 100])
@pytest.mark.parametrize("together", [True, False])
def test_a_sender_that_steps_back_loses_no_message(cm: bool, back: int, snaplen: int, together: bool) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect(cm=cm, client_psn=0x400000, server_psn=0xFFFFFB)
    for _ in range(3):
        read(conn)
        write(conn)
    count = len(wire.packets)
    conn.ends[0].psn = (conn.ends[0].psn - min(back, 3)) & 0xFFFFFF
    conn.ends[1].psn = (conn.ends[1].psn - back) & 0xFFFFFF
    read(conn)
    write(conn)
    packets = faults.snap(wire.packets, snaplen) if snaplen else wire.packets
    capture = Capture(wire, packets)
    rpcs = analyze(capture, [] if together else range(1, len(packets)))
    assert len(rpcs) == 8
    if not snaplen:
        judge_whole(capture, rpcs)
    connection = rpcs[0].connection
    assert connection.missing_packets == (0, 0)
    assert connection.reused_psns and all(one.frame > count for one in connection.reused_psns)
    assert {one.sender for one in connection.reused_psns} == {0, 1}
    assert connection.retransmitted_packets == (0, 0)
    noted = [rpc for rpc in rpcs if any("has the PSN of the request" in note for note in rpc.notes)]
    assert noted and not set(noted) & set(rpcs[:6])


@pytest.mark.parametrize("back", [1, 2, 5])
def test_what_reused_psns_may_be_retransmitted_itself(back: int) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    for _ in range(3):
        read(conn)
    conn.ends[0].psn = (conn.ends[0].psn - 1) & 0xFFFFFF
    conn.ends[1].psn = (conn.ends[1].psn - back) & 0xFFFFFF
    start = len(wire.packets)
    read(conn)
    packets = list(wire.packets)
    requests = [packet for packet in packets[start:] if packet.kind in ("send", "write")]
    time = packets[-1].time + 500_000_000
    packets += [replace(packet, time=time + index, copy=1) for index, packet in enumerate(requests)]
    capture = Capture(wire, packets)
    rpcs = analyze(capture)
    judge_whole(capture, rpcs)
    sent = [sum(packet.sender == end for packet in requests) for end in (0, 1)]
    assert list(rpcs[0].connection.retransmitted_packets) == sent
    assert len(rpcs) == 4


def test_a_send_of_which_only_later_bytes_differ_is_a_retransmission_and_undecidable() -> None:
    wire = Wire(mtu=1024)
    read(wire.connect())
    packets = list(wire.packets)
    call = faults.where(packets, kind="send")[0]
    payload = packets[call].payload
    packets.insert(call + 1, replace(packets[call], payload=payload[:-4] + b"XXXX", copy=1))
    (rpc,) = analyze(Capture(wire, packets))
    assert rpc.damage == (f"call: frame {call + 2} retransmits a packet of the Send with other bytes",)
    assert rpc.state == "undecidable" and not rpc.connection.reused_psns
    assert rpc.connection.retransmitted_packets == (0, 0)  # a copy, so soon after


def test_a_read_request_with_the_psn_of_a_send_is_answered() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    read(conn)
    conn.ends[1].psn = (conn.ends[1].psn - 1) & 0xFFFFFF
    write(conn)
    capture = Capture(wire, wire.packets)
    rpcs = analyze(capture)
    judge_whole(capture, rpcs)
    errors = [(one.sender, one.verb, one.earlier_verb) for one in rpcs[0].connection.reused_psns]
    assert errors == [(1, "RDMA Read", "Send")]
    assert [any("the RDMA Read in frame" in note for note in rpc.notes) for rpc in rpcs] == [False, True]
    assert rpcs[0].connection.missing_packets == (0, 0)


@pytest.mark.parametrize("batches", ["one", "at the step", "each frame"])
@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_send_of_which_only_later_bytes_differ_is_another_one_behind_an_acknowledgement(
    acknowledged: bool, batches: str
) -> None:
    """What was acknowledged is not retransmitted; before that, memory may have changed under the sender."""
    wire = Wire(mtu=1024)
    read(wire.connect())
    packets = [packet for packet in wire.packets if acknowledged or packet.kind != "ack" or packet.sender == 0]
    call = faults.where(packets, kind="send")[0]
    packets = packets if acknowledged else packets[: call + 1]
    changed = packets[call].payload[:-4] + b"XXXX"
    packets.append(replace(packets[call], payload=changed, time=packets[-1].time + 500_000_000, copy=1))
    cuts = {"one": [], "at the step": [len(packets) - 1], "each frame": range(1, len(packets))}[batches]
    rpcs = analyze(Capture(wire, packets), cuts)
    connection = rpcs[0].connection
    if acknowledged:
        (error,) = connection.reused_psns
        assert error == (len(packets), 0, packets[call].psn, "Send", call + 1, "Send")
        assert [*map(list, connection.contradicted)] == [[], []] and connection.retransmitted_packets == (0, 0)
        assert [rpc.state for rpc in rpcs] == ["complete", "no reply"]
    else:
        assert [*map(list, connection.contradicted)] == [[len(packets)], []] and not connection.reused_psns
        assert [rpc.state for rpc in rpcs] == ["no reply"]


@pytest.mark.parametrize(("calls", "together"), [(400, False), (2200, True)])
def test_a_sender_that_steps_back_far_loses_no_message(calls: int, together: bool) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect(acks="none")
    for _ in range(calls):
        reply(call(conn, nfs3.null()), nfs3.null_reply())
    count = len(wire.packets)
    conn.ends[0].psn = (conn.ends[0].psn - calls) & 0xFFFFFF
    reply(call(conn, nfs3.null()), nfs3.null_reply())
    capture = Capture(wire)
    rpcs = analyze(capture, [] if together else [count])
    judge_whole(capture, rpcs)
    assert len(rpcs) == calls + 1
    (error,) = rpcs[0].connection.reused_psns
    assert (error.frame, error.sender) == (count + 1, 0)


@pytest.mark.parametrize("packet_of_send", ["only", "last"])
@pytest.mark.parametrize("other", [True, False])
def test_other_bytes_are_found_where_contents_are_dropped(packet_of_send: str, other: bool) -> None:
    """Those of the first transmission are here no more when the RPC has ended."""
    wire = Wire(mtu=256)
    conn = wire.connect(acks="none")
    reply(call(conn, nfs3.getattr_()), nfs3.readlink_reply(b"x" * (400 if packet_of_send == "last" else 4)))
    packets = list(wire.packets)
    at = [at for at in faults.where(packets, kind="send") if packets[at].sender == 1][-1]
    payload = packets[at].payload[:-4] + b"YYYY" if other else packets[at].payload
    again = replace(packets[at], payload=payload, time=packets[at].time + 500_000_000, copy=1)
    analyzer = Analyzer(Options(contents=False))
    (rpc,) = analyzer.feed(frame_batch(Capture(wire, packets).frames))
    analyzer.feed(frame_batch(Capture(wire, [*packets, again]).frames[-1:], len(packets) + 1))
    assert [*map(list, rpc.connection.contradicted)] == [[], [len(packets) + 1] if other else []]
    assert not rpc.connection.reused_psns
