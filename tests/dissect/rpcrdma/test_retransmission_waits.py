"""What RPCs waited for retransmissions, also for those of losses that the capture does not show."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from playbook import Capture, Wire, call, faults, fetch, nfs3, reply
from playbook.capture import frame_batches
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.packets import Packet
from playbook.reckoning import reckoned
from playbook.rows import decided
from playbook.samples import MANIFEST, SAMPLES, analyzed
from rdmascope.captures import open_capture
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.transport.connection import Connection

MILLISECOND = 1_000_000
ACK_TIMEOUT = 4096 << 19
"""Nanoseconds: 19 is what the playbook's REQ says."""
DATA = bytes(range(256)) * 64


def examine(capture: Capture | IwarpCapture, rows: bool = True) -> tuple[list[Rpc], Connection]:
    analyzer = Analyzer()
    with decided(rows):
        rpcs = [rpc for batch in frame_batches(capture.frames, ()) for rpc in analyzer.feed(batch)]
    rpcs += analyzer.finish()
    for rpc in rpcs:
        if rpc.latency is not None:
            assert sum(rpc.latency[1:]) == rpc.latency.total and min(rpc.latency) >= 0
            assert rpc.latency.retransmission == rpc.retransmission_delay
    return sorted(rpcs, key=lambda rpc: rpc.number), analyzer.connections[0]


def busy(seed: int) -> Wire:
    """Calls that overlap, with and without chunks, and two that are never answered."""
    wire = Wire(mtu=1024, seed=seed)
    connection = wire.connect(acks="lazy")
    calls = []
    for size in (3000, 5000, 2000):
        read = call(connection, nfs3.read(0, size), writes=[connection.register(size)])
        write = call(connection, nfs3.write(0, DATA[:size]), reads={0: connection.register(size)})
        calls.append((read, write, call(connection, nfs3.getattr_()), size))
        if size < 5000:
            call(connection, nfs3.write(0, DATA[:size]), reads={0: connection.register(size)})
    for read, write, getattr_, size in calls:
        fetch(write)
        reply(getattr_, nfs3.getattr_reply())
        reply(read, nfs3.read_reply(DATA[:size]))
        reply(write, nfs3.write_reply(size))
    connection.flush_acks()
    return wire


@given(st.data())
def test_the_waits_are_those_that_raw_frames_show(data: st.DataObject) -> None:
    wire = busy(data.draw(st.integers(0, 9)))
    packets: list[Packet] = list(wire.packets)
    kind = data.draw(st.sampled_from(("nak", "timeout", "rnr", "response")))
    wanted = ("response",) if kind == "response" else ("send", "write")
    # A Read that comes again from its start, at once, and after all its responses, passes for a copy.
    choices = [at for at, one in enumerate(packets) if one.kind in wanted and (one.at or kind != "response")]
    index = data.draw(st.sampled_from(choices))
    if kind == "response":
        packets = faults.lose_response(wire, packets, index)
    else:
        packets = faults.lose(wire, packets, index, answer=kind)
    capture = Capture(wire, packets)
    expected = reckoned(((frame.time, frame.data) for frame in capture.frames), 1024)
    for columns in (True, False):
        rpcs, _ = examine(capture, columns)
        assert {rpc.xid: rpc.retransmission_delay for rpc in rpcs} == {xid: ns for (_, xid), ns in expected.items()}
    assert sum(expected.values())


@pytest.mark.parametrize("answer", ["nak", "timeout", "rnr"])
def test_a_call_that_is_never_answered_waits_for_its_retransmission_too(answer: str) -> None:
    wire = Wire(mtu=1024, seed=4)
    connection = wire.connect()
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    call(connection, nfs3.getattr_())
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    at = faults.where(wire.packets, kind="send", sender=0)[1]
    capture = Capture(wire, faults.lose(wire, wire.packets, at, answer=answer))
    expected = reckoned(((frame.time, frame.data) for frame in capture.frames), 1024)
    rpcs, _ = examine(capture)
    (unanswered,) = [rpc for rpc in rpcs if rpc.reply is None]
    assert unanswered.retransmission_delay == expected[0, unanswered.xid] > 0
    assert unanswered.outstanding is not None and unanswered.outstanding > unanswered.retransmission_delay


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("sender", [0, 1])
def test_what_is_lost_again_is_waited_for_again(sender: int, columns: bool) -> None:
    """A call or a reply comes for the third time when its sender's timer has ended twice."""
    wire = Wire(mtu=1024, seed=4)
    connection = wire.connect()
    for _ in range(3):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    at = faults.where(wire.packets, kind="send", sender=sender)[1]
    lost = wire.packets[at]
    again = [replace(lost, time=lost.time + times * ACK_TIMEOUT, copy=times) for times in (1, 2)]
    later = [replace(one, time=one.time + 2 * ACK_TIMEOUT) for one in wire.packets[at + 1 :]]
    capture = Capture(wire, [*wire.packets[: at + 1], *again, *later])
    rpcs, _ = examine(capture, columns)
    assert [rpc.retransmission_delay for rpc in rpcs] == [0, 2 * ACK_TIMEOUT, 0]
    expected = reckoned(((frame.time, frame.data) for frame in capture.frames), 1024)
    assert {rpc.xid: rpc.retransmission_delay for rpc in rpcs} == {xid: ns for (_, xid), ns in expected.items()}


@pytest.mark.parametrize("sender", [0, 1])
def test_tcp_waits_twice_as_long_each_time(sender: int) -> None:
    wire = IwarpWire(mss=1448, seed=5)
    connection = wire.connect(acks="none")
    for _ in range(3):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    segments = wire.sent()
    at = [index for index, one in enumerate(segments) if one.sender == sender and one.payload][-2]
    lost, rto = segments[at], 200 * MILLISECOND
    again = [replace(lost, time=lost.time + wait) for wait in (rto, 3 * rto)]
    later = [replace(one, time=one.time + 3 * rto) for one in segments[at + 1 :]]
    rpcs, _ = examine(IwarpCapture(wire, [*segments[: at + 1], *again, *later]))
    assert [rpc.retransmission_delay for rpc in rpcs] == [0, 3 * rto, 0]


def test_the_waits_in_a_capture_of_real_kernels() -> None:
    """In three of 78 RPCs it matters which transmission of a Read behind a lost request counts as its first."""
    frames: list[tuple[int, bytes]] = []
    with open_capture(str(SAMPLES / MANIFEST["loss-rxe"]["file"])) as capture:
        for batch in capture.batches():
            starts, sizes = batch.rows["offset"].tolist(), batch.rows["captured"].tolist()
            pieces = [batch.data[start : start + size].tobytes() for start, size in zip(starts, sizes, strict=True)]
            frames += zip(batch.rows["time"].tolist(), pieces, strict=True)
    expected = reckoned(frames)
    rpcs = [rpc for rpc in analyzed("loss-rxe").rpcs if not rpc.backward]
    found = {(rpc.connection.number - 1, rpc.xid): rpc.retransmission_delay for rpc in rpcs}
    assert expected.keys() == found.keys()
    assert sum(found[key] == waited for key, waited in expected.items()) >= len(expected) - 3
    assert sum(found.values()) == pytest.approx(sum(expected.values()), rel=0.03)
    waited = sum(rpc.retransmission_delay for rpc in rpcs)
    assert waited > 500 * MILLISECOND  # 243 ms were only those of the RPCs whose own packets were lost


def late(pause: int, write: bool = False) -> Capture:
    """The last reply's Send was lost before the capture point: only that which comes ``pause`` ns later is there."""
    wire = Wire(mtu=1024, seed=4)
    connection = wire.connect()
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    if write:
        reply(call(connection, nfs3.read(0, 3000), writes=[connection.register(3000)]), nfs3.read_reply(DATA[:3000]))
    else:
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    at = faults.where(wire.packets, kind="send", sender=1)[-1]
    return Capture(wire, [*wire.packets[:at], *(replace(one, time=one.time + pause) for one in wire.packets[at:])])


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_reply_lost_at_the_end_of_a_burst_is_recognised_by_the_ack_timeout(times: int, columns: bool) -> None:
    rpcs, connection = examine(late(times * ACK_TIMEOUT + 9 * MILLISECOND), columns)
    (loss,) = connection.inferred_losses
    assert [rpc.retransmission_delay for rpc in rpcs] == [0, times * ACK_TIMEOUT]
    assert rpcs[1].latency is not None and rpcs[1].latency.server < 10 * MILLISECOND
    assert (loss.sender, loss.rpc, loss.frame) == (1, 2, rpcs[1].reply_frame)
    assert loss.until - loss.since == times * ACK_TIMEOUT and 0.5 < loss.confidence < 0.95
    assert "the local ACK timeout of 2.15 s (4.096 µs × 2^19)" in loss.evidence
    assert (f"{times} times" in loss.evidence) is (times > 1)


def test_timers_of_linux_end_late_each_time() -> None:
    """By 7 % here, as those of rxe do; the rest of the pause counts as server time."""
    rpcs, connection = examine(late(2 * (ACK_TIMEOUT + ACK_TIMEOUT // 14)))
    (loss,) = connection.inferred_losses
    assert rpcs[1].retransmission_delay == 2 * ACK_TIMEOUT and "2 times" in loss.evidence
    (once,) = examine(late(ACK_TIMEOUT + 9 * MILLISECOND))[1].inferred_losses
    assert loss.confidence < once.confidence


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("early", [3, 7, 9])
def test_timers_of_linux_may_end_two_jiffies_early(columns: bool, early: int) -> None:
    rpcs, connection = examine(late(ACK_TIMEOUT - early * MILLISECOND), columns)
    assert len(connection.inferred_losses) == (early < 8)
    assert rpcs[1].latency is not None and (rpcs[1].latency.server < MILLISECOND) is (early < 8)


@pytest.mark.parametrize("columns", [True, False])
def test_the_reply_of_a_call_that_came_twice_may_be_lost_too(columns: bool) -> None:
    wire = Wire(mtu=1024, seed=4)
    connection = wire.connect()
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    at = faults.where(wire.packets, kind="send", sender=0)[-1]
    lost = wire.packets[at]
    again = replace(lost, time=lost.time + ACK_TIMEOUT, copy=1)
    later = [replace(one, time=one.time + 2 * ACK_TIMEOUT + 9 * MILLISECOND) for one in wire.packets[at + 1 :]]
    rpcs, connection_ = examine(Capture(wire, [*wire.packets[: at + 1], again, *later]), columns)
    (loss,) = connection_.inferred_losses
    assert loss.sender == 1 and loss.since >= again.time
    assert rpcs[1].retransmission_delay == 2 * ACK_TIMEOUT
    assert rpcs[1].latency is not None and rpcs[1].latency.server < 10 * MILLISECOND


@pytest.mark.parametrize("columns", [True, False])
def test_between_a_write_and_the_send_posted_with_it_no_server_works(columns: bool) -> None:
    rpcs, connection = examine(late(ACK_TIMEOUT + 9 * MILLISECOND, write=True), columns)
    (loss,) = connection.inferred_losses
    assert rpcs[1].name == "READ" and rpcs[1].retransmission_delay == ACK_TIMEOUT
    assert loss.confidence == 0.95 and "no server works" in loss.evidence


@pytest.mark.parametrize("pause", [1.0, 2.0, 2.5, 3.0, 46.0])
def test_a_slow_server_stays_a_slow_server(pause: float) -> None:
    rpcs, connection = examine(late(int(pause * 1e9)))
    assert not connection.inferred_losses and not any(rpc.retransmission_delay for rpc in rpcs)
    assert rpcs[1].latency is not None and rpcs[1].latency.server >= pause * 1e9


def test_a_server_that_sends_meanwhile_has_lost_nothing() -> None:
    """What it sent behind a lost packet would show the gap."""
    wire = Wire(mtu=1024, seed=4)
    connection = wire.connect()
    slow = call(connection, nfs3.getattr_())
    wire.pause(ACK_TIMEOUT // 2)
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    wire.pause(ACK_TIMEOUT // 2)
    reply(slow, nfs3.getattr_reply())
    _, connection_ = examine(Capture(wire))
    assert not connection_.inferred_losses


def test_without_a_request_for_the_connection_no_timer_is_known() -> None:
    wire = Wire(mtu=1024, seed=4)
    connection = wire.connect(cm=False)
    for _ in range(9):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    slow = call(connection, nfs3.getattr_())
    wire.pause(ACK_TIMEOUT + 1)
    reply(slow, nfs3.getattr_reply())
    rpcs, known = examine(Capture(wire))
    assert not known.inferred_losses and rpcs[-1].retransmission_delay == 0


def test_an_rnr_timer_that_ran_unseen_is_recognised_by_its_length() -> None:
    """The first RNR NAK names the timer; the NAK of a later reply is not in the capture."""
    wire = Wire(mtu=1024, seed=4)
    connection = wire.connect()
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    second = call(connection, nfs3.getattr_())
    reply(second, nfs3.getattr_reply())
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    at = faults.where(wire.packets, kind="send", sender=1)
    packets = faults.lose(wire, wire.packets, at[1], answer="rnr")
    nak = faults.where(packets, kind="nak")[0]
    packets[nak] = replace(packets[nak], extended=bytes([0x20]) + packets[nak].extended[1:])  # 655.36 ms
    again = next(index for index, one in enumerate(packets) if one.copy)
    packets[again:] = [replace(one, time=one.time + 655_360_000) for one in packets[again:]]
    last = faults.where(packets, kind="send", sender=1)[-1]
    packets[last:] = [replace(one, time=one.time + 655_360_000) for one in packets[last:]]
    rpcs, known = examine(Capture(wire, packets))
    assert rpcs[1].retransmission_delay > 655 * MILLISECOND  # the NAK is there
    (loss,) = known.inferred_losses
    assert "the RNR timer of 655 ms" in loss.evidence and loss.rpc == 3
    assert rpcs[2].retransmission_delay == 655_360_000


def late_iwarp(pause: int) -> IwarpCapture:
    wire = IwarpWire(mss=1448, seed=5)
    connection = wire.connect(acks="message")
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    reply(call(connection, nfs3.read(0, 1000), writes=[connection.register(1000)]), nfs3.read_reply(DATA[:1000]))
    segments = wire.sent()
    at = [index for index, one in enumerate(segments) if one.sender == 1 and one.payload][-1]
    return IwarpCapture(wire, [*segments[:at], *(replace(one, time=one.time + pause) for one in segments[at:])])


@pytest.mark.parametrize(("pause", "waited"), [(210, 200), (615, 600), (1420, 1400), (150, 0)])
def test_a_retransmission_timeout_of_tcp_between_a_write_and_its_send(pause: int, waited: int) -> None:
    rpcs, connection = examine(late_iwarp(pause * MILLISECOND))
    assert rpcs[1].retransmission_delay == waited * MILLISECOND
    assert len(connection.inferred_losses) == (waited > 0)
    for loss in connection.inferred_losses:
        assert "TCP's least retransmission timeout" in loss.evidence


@pytest.mark.parametrize("apart", [False, True])
def test_an_acknowledgement_shows_what_was_sent_before_the_capture_point(apart: bool) -> None:
    """Its number is behind the reply that is lost: the server had answered, and what follows is no server's time.  In
    the same batch as what comes again or in one before."""
    wire = IwarpWire(mss=1448, seed=5)
    connection = wire.connect(acks="none")
    for _ in range(3):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    segments = wire.sent()
    at = [index for index, one in enumerate(segments) if one.sender == 1 and one.payload][-1]
    lost = segments[at]
    shown = replace(lost, seq=lost.seq + len(lost.payload), payload=b"", time=lost.time + 100 * MILLISECOND)
    again = [replace(one, time=one.time + 450 * MILLISECOND) for one in segments[at:]]
    capture = IwarpCapture(wire, [*segments[:at], shown, *again])
    analyzer = Analyzer()
    cuts = [len(capture.frames) - len(again)] if apart else []
    rpcs = [rpc for batch in frame_batches(capture.frames, cuts) for rpc in analyzer.feed(batch)] + analyzer.finish()
    assert [rpc.retransmission_delay for rpc in rpcs] == [0, 0, 350 * MILLISECOND]
    assert rpcs[2].latency is not None and rpcs[2].latency.server < 101 * MILLISECOND


def test_an_acknowledgement_whose_number_cannot_be_shows_nothing() -> None:
    wire = IwarpWire(mss=1448, seed=5)
    connection = wire.connect(acks="none")
    for _ in range(3):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    segments = wire.sent()
    at = [index for index, one in enumerate(segments) if one.sender == 1 and one.payload][-1]
    wild = replace(segments[at], seq=segments[at].seq + (1 << 30), payload=b"")
    later = [replace(one, time=one.time + 5 * MILLISECOND) for one in segments[at:]]
    rpcs, _ = examine(IwarpCapture(wire, [*segments[:at], wild, *later]))
    assert not any(rpc.retransmissions or rpc.retransmission_delay for rpc in rpcs)
