"""What is said of a conversation does not depend on where the capture's batches end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from playbook import Capture, Wire, faults, nfs3
from playbook.capture import frame_batches
from playbook.rpcrdma import call, reply
from playbook.shapes import DATA, read, write
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.transport.rc.send_queue import HeldRun, held_already
from rdmascope.dissect.transport.runs import RECENT


def analysed(capture: Capture, cuts: Sequence[int]) -> tuple[Analyzer, list[Rpc]]:
    analyzer = Analyzer()
    rpcs = [rpc for batch in frame_batches(capture.frames, cuts) for rpc in analyzer.feed(batch)]
    return analyzer, rpcs + analyzer.finish()


def ends(capture: Capture) -> list[list[int]]:
    """All frames in one batch, in two, and each in its own."""
    every = range(1, len(capture.frames))
    return [[], *([end] for end in every), [*every]]


def test_a_read_request_that_resumes_is_a_retransmission_of_its_read() -> None:
    wire = Wire(mtu=1024)
    write(wire.connect(), DATA[:8000])
    lost = faults.where(wire.packets, kind="response")[5]
    capture = Capture(wire, faults.lose_response(wire, wire.packets, lost))
    *_, resumed = faults.where(capture.packets, kind="read")
    again = faults.where(capture.packets, kind="response", copy=1)
    assert capture.packets[resumed].psn == wire.packets[lost].psn
    for cuts in ends(capture):
        _, (rpc,) = analysed(capture, cuts)
        assert rpc.retransmissions == 1 + len(again), cuts


def test_a_send_that_the_wire_carries_twice_is_noted_however_many_the_batch_has_behind_it() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    for _ in range(RECENT + 44):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    first = faults.where(wire.packets, kind="send", sender=0)[3]
    capture = Capture(wire, faults.ghost(wire.packets, first, 2))
    for cuts in (range(0), range(1, len(capture.frames))):
        _, rpcs = analysed(capture, cuts)
        assert [rpc.retransmissions for rpc in rpcs] == [0, 0, 0, 1, *[0] * (RECENT + 40)], cuts


@pytest.mark.parametrize("lost", [3, 5])
def test_the_front_of_a_message_that_is_retransmitted_before_its_end_is_noted_once(lost: int) -> None:
    wire = Wire(mtu=1024)
    read(wire.connect(), DATA[:8000])
    writes = [at for at in faults.where(wire.packets, sender=1) if wire.packets[at].kind.startswith("write")]
    packets = faults.ghost(wire.packets, writes[1], 1)
    capture = Capture(wire, faults.ghost(packets, writes[lost] + 1, 1))
    for cuts in ends(capture):
        _, (rpc,) = analysed(capture, cuts)
        (operation,) = rpc.chunks[0].segments[0].operations
        again = [packet.time for packet in capture.packets if packet.copy]
        assert (operation.retransmissions, operation.last_sent) == (2, again[-1]), cuts


@pytest.mark.parametrize("mtu", [256, 1024])
def test_a_read_whose_path_mtu_its_response_tells_is_whole(mtu: int) -> None:
    wire = Wire(mtu=mtu)
    write(wire.connect(cm=False), DATA[:8000])
    capture = Capture(wire)
    for cuts in ends(capture):
        analyzer, (rpc,) = analysed(capture, cuts)
        assert (rpc.state, rpc.damage) == ("complete", ()), cuts
        assert analyzer.conversations[0].connection.missing_packets == (0, 0), cuts


@pytest.mark.parametrize(("before", "behind"), [(1024, 4096), (4096, 1024), (512, 256)])
def test_rpcs_on_both_sides_of_a_change_of_the_path_mtu_are_whole(before: int, behind: int) -> None:
    wire = Wire(mtu=before)
    connection = wire.connect()
    for mtu in (before, behind):
        connection.mtu = mtu
        for _ in range(3):
            write(connection, DATA[:8000])
            read(connection, DATA[:7000])
    capture = Capture(wire)
    for cuts in ([], *([end] for end in range(1, len(capture.frames), 10)), range(1, len(capture.frames))):
        analyzer, rpcs = analysed(capture, cuts)
        assert [(rpc.state, rpc.damage) for rpc in rpcs] == [("complete", ())] * 12, cuts
        known = analyzer.connections[0]
        assert (known.missing_packets, known.path_mtu) == ((0, 0), behind), cuts


def test_a_read_request_that_is_not_captured_is_one_packet_however_its_responses_come() -> None:
    wire = Wire(mtu=1024)
    write(wire.connect(), DATA[:8000])
    capture = Capture(wire, faults.drop(wire.packets, faults.where(wire.packets, kind="read")))
    for cuts in ends(capture):
        analyzer, _ = analysed(capture, cuts)
        assert analyzer.conversations[0].connection.missing_packets == (0, 1), cuts


def test_an_acknowledgement_confirms_what_it_was_not_captured_before() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect(acks="none")
    read(connection, DATA[:4000])
    connection.flush_acks()
    read(connection, DATA[:100])
    *_, final = faults.where(wire.packets, kind="send", sender=1)[:1]
    capture = Capture(wire, faults.drop(wire.packets, [final]))
    for cuts in ends(capture):
        analyzer, _ = analysed(capture, cuts)
        known = analyzer.conversations[0].connection
        assert known.missing_packets == (0, 1), cuts
        assert known.unconfirmed_packets == (0, 0), cuts


def test_what_comes_again_after_a_while_is_retransmitted_though_nothing_was_answered_yet() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect(acks="none")
    read(connection, DATA[:100])
    connection.flush_acks()
    lost = faults.where(wire.packets, kind="send", sender=0)[0]
    capture = Capture(wire, faults.lose(wire, wire.packets, lost, answer="timeout"))
    for cuts in ends(capture):
        analyzer, _ = analysed(capture, cuts)
        known = analyzer.conversations[0].connection
        assert known.retransmitted_packets == (1, 0), cuts
        (one,) = analyzer.health(known.number).retransmissions
        assert one.cause in ("timeout", "unknown"), cuts
        first, again = (capture.frames[at].time for at in (lost, faults.where(capture.packets, copy=1)[0]))
        assert one.loss_to_retransmission == again - first, cuts


def test_responses_to_a_read_that_comes_twice_belong_to_the_request_before_them() -> None:
    wire = Wire(mtu=1024)
    write(wire.connect(), DATA[:2000])
    *_, last = faults.where(wire.packets, kind="response")
    first = faults.where(wire.packets, kind="response")[0]
    packets = faults.lose_response(wire, wire.packets, last)
    resumed = faults.where(packets, kind="read")[1]
    # The network delivers the Read again, and its first response with it, before the Read resumes.
    request = faults.where(packets, kind="read")[0]
    packets = [*packets[:resumed], packets[request], packets[first], *packets[resumed:]]
    capture = Capture(wire, packets)
    for cuts in ends(capture):
        analyzer, _ = analysed(capture, cuts)
        assert analyzer.conversations[0].connection.retransmitted_packets == (1, 1), cuts


def test_runs_that_wait_are_found_by_each_psn_as_by_all() -> None:
    nothing = FrameBatch(np.empty(0, np.uint8), np.empty(0))
    held = [
        HeldRun(at, at + 1 + at % 3, nothing.data, nothing.rows, np.empty(0, np.int64), 1) for at in range(8, 80, 4)
    ]
    psns = np.arange(100)
    singly = [bool(held_already(held, psns[at : at + 1])[0]) for at in range(100)]
    assert singly == held_already(held, psns).tolist()
    assert singly == [any(run.start <= psn < run.end for run in held) for psn in range(100)]


def test_what_had_arrived_and_came_again_behind_a_lost_response_held_up_nothing() -> None:
    """The server goes back to its Read, and on from there: to the reply of another call, that the client had."""
    wire = Wire(mtu=1024)
    connection = wire.connect()
    written = call(connection, nfs3.write(0, DATA[:8000]), reads={0: connection.register(8000)})
    asked = call(connection, nfs3.getattr_())
    ((_, (region,)),) = written.reads
    segment = region.segment
    fetched = connection.read_request(1, segment.handle, segment.offset, DATA[:8000])
    reply(asked, nfs3.getattr_reply())
    connection.read_responses(fetched)
    reply(written, nfs3.write_reply(8000))
    lost = faults.where(wire.packets, kind="response")[4]
    capture = Capture(wire, faults.lose_response(wire, wire.packets, lost))
    assert faults.where(capture.packets, kind="send", sender=1, copy=1)
    for cuts in ends(capture):
        analyzer, rpcs = analysed(capture, cuts)
        (one,) = analyzer.health(1).retransmissions
        delays = {rpc.name: rpc.retransmission_delay for rpc in rpcs}
        # The last response to the Read had come, too, but the client takes none behind a lost one.
        assert one.lost_time is not None
        assert delays == {"WRITE": one.last_time - one.lost_time, "GETATTR": 0}, cuts


def test_a_call_that_comes_again_after_its_reply_did_not_wait() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect(acks="none")
    read(connection, DATA[:100])
    connection.flush_acks()
    read(connection, DATA[:100])
    *_, again = faults.where(wire.packets, kind="send", sender=0)
    late = replace(wire.packets[again], time=wire.packets[-1].time + 20_000_000, copy=1)
    capture = Capture(wire, [*wire.packets, late])
    for cuts in ends(capture):
        analyzer, rpcs = analysed(capture, cuts)
        (one,) = analyzer.health(1).retransmissions
        assert (one.cause, one.lost) == ("timeout", "request"), cuts
        assert [rpc.retransmission_delay for rpc in rpcs] == [0, 0], cuts


@pytest.mark.parametrize("behind", [3, 5, 9])
def test_a_cm_exchange_behind_the_first_packets_of_its_connection(behind: int) -> None:
    wire = Wire()
    connection = wire.connect()
    for _ in range(8):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    exchange, rest = wire.packets[:3], wire.packets[3:]
    capture = Capture(wire, [*rest[:behind], *exchange, *rest[behind:]])
    for cuts in ends(capture)[:-1]:
        analyzer, rpcs = analysed(capture, cuts)
        assert [rpc.state for rpc in rpcs] == ["complete"] * 8, cuts
        assert [known.missing_packets for known in analyzer.connections] == [(0, 0)], cuts
