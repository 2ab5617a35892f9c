"""Where a send queue begins: the Starting PSN of the CM exchange is a hint until the traffic disagrees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from playbook import Wire, call, nfs3, reply
from playbook.capture import Capture, frame_batches
from playbook.judge import analyze, judge_whole
from playbook.shapes import read, write
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpcs import Rpc


@pytest.mark.parametrize("shift", [1, 2, 5, 100])
@pytest.mark.parametrize("cuts", [[], range(1, 60)])
def test_packets_before_the_starting_psn_are_not_lost(shift: int, cuts: list[int]) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    write(conn)
    read(conn)
    packets = [
        packet if packet.kind == "cm" else replace(packet, psn=(packet.psn - shift) & 0xFFFFFF)
        for packet in wire.packets
    ]
    analyzer = Analyzer()
    rpcs = [rpc for batch in frame_batches(Capture(wire, packets).frames, cuts) for rpc in analyzer.feed(batch)]
    rpcs += analyzer.finish()
    assert [rpc.state for rpc in rpcs] == ["complete", "complete"]
    assert rpcs[0].connection.missing_packets == (0, 0)
    assert rpcs[0].connection.retransmitted_packets == (0, 0)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("begin", range(1, 30, 2))
@pytest.mark.parametrize("behind", [1, 2, 4, 9])
@pytest.mark.parametrize("inline", [False, True])
def test_a_capture_that_begins_between_a_loss_and_the_return_to_it(
    inline: bool, apart: bool, begin: int, behind: int
) -> None:
    """The server goes back to a packet ``behind`` requests before the first one of the capture."""
    wire = Wire(mtu=256)
    conn = wire.connect(cm=False)
    for size in (750, 100, 500, 900, 50, 800, 300, 250):
        data = bytes(range(250)) * 4
        if inline:
            reply(call(conn, nfs3.read(0, size)), nfs3.read_reply(data[:size]))
        else:
            read(conn, data[:size])
    requests = [at for at, packet in enumerate(wire.packets) if packet.sender == 1 and packet.kind in ("send", "write")]
    first = behind + begin % (len(requests) - behind - 3)
    until = requests[first + 3] + 1
    again = [replace(wire.packets[at], copy=1) for at in requests[first - behind : first + 4]]
    packets = [*wire.packets[requests[first] : until], *again, *wire.packets[until:]]
    packets = [replace(packet, time=packets[0].time + 1_000 * index) for index, packet in enumerate(packets)]
    capture = Capture(wire, packets)
    rpcs = analyze(capture, range(1, len(packets)) if apart else ())
    judge_whole(capture, rpcs)
    assert rpcs[0].connection.missing_packets[1] == 0
    there = {(packet.operation, packet.psn) for packet in packets}
    whole = {
        true.xid
        for true in wire.truth
        if (sent := wire.operations[true.reply_operation])
        and all((sent.number, sent.psn + index & 0xFFFFFF) in there for index in range(sent.packets))
    }
    replies = [rpc.reply.operation for rpc in rpcs if rpc.reply and rpc.xid in whole]
    assert len(replies) == len(whole)
    assert all(one.start_known and one.end_known and one.payload.whole for one in replies)
    expected = sum(packet.sender == 1 for packet in again)
    assert 0 < rpcs[0].connection.retransmitted_packets[1] <= expected


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("cuts", [[], range(1, 60, 7)])
def test_interfaces_one_after_the_other(first: int, cuts: list[int]) -> None:
    """Each direction was recorded by an interface of its own, and stands in the file as a whole: times tell that all
    of it came after the REQ."""
    wire = Wire(mtu=1024)
    conn = wire.connect()
    write(conn)
    read(conn)
    conn.disconnect()
    capture = Capture(wire, sorted(wire.packets, key=lambda packet: packet.sender != first))
    capture.frames = [
        replace(frame, time=packet.time) for frame, packet in zip(capture.frames, capture.packets, strict=True)
    ]
    rpcs = analyze(capture, cuts)
    judge_whole(capture, rpcs)
    assert [rpc.state for rpc in rpcs] == ["complete", "complete"]
    assert len({rpc.connection.number for rpc in rpcs}) == 1 and rpcs[0].connection.paired_by == "CM"


@pytest.mark.parametrize("cut", range(0, 56, 4))
def test_queue_pairs_that_are_used_again_after_a_connection_that_began_earlier(cut: int) -> None:
    """Of the first connection no CM exchange is in the capture, and it may not be paired yet when the second begins."""
    wire = Wire(mtu=1024)
    for cm in (False, True):
        conn = wire.connect(cm=cm, client_qpn=0x11, server_qpn=0x12)
        write(conn)
        read(conn)
    capture = Capture(wire)
    rpcs = analyze(capture, [cut])
    judge_whole(capture, rpcs)
    assert [rpc.connection.paired_by for rpc in sorted(rpcs, key=call_frame)] == ["inferred"] * 2 + ["CM"] * 2


def call_frame(rpc: Rpc) -> int:
    return rpc.call.frame if rpc.call else 0
