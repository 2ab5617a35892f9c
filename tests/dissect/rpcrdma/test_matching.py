"""Replies find their calls: late calls, calls without an end, XIDs that are used again."""

from __future__ import annotations

from collections import Counter

import pytest

from playbook import Capture, Connection, Exchange, Wire, call, fetch, nfs3, reply
from playbook.capture import frame_batches
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.judge import analyze, judge
from playbook.rpc import reduced, reply_parts, whole
from playbook.rpcrdma import MSG, NOMSG, header
from playbook.violations.scripts import message
from rdmascope.dissect.measure.statistics import Statistics
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.matching import DOUBT, MAX_SAME_XID, NOT_OFFERED
from rdmascope.dissect.rpcrdma.pending import MAX_DOUBTFUL
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.rpcrdma.xid_reuse import XID_IN_USE, XID_USED_AGAIN


def analyzed(capture: Capture | IwarpCapture, step: int) -> list[Rpc]:
    """The Rpcs of a capture that comes in batches of ``step`` frames."""
    analyzer = Analyzer()
    found: list[Rpc] = []
    for batch in frame_batches(capture.frames, range(step, len(capture.frames), step)):
        found += analyzer.feed(batch)
    return found + analyzer.finish()


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("step", [7, 100_000])
def test_a_call_whose_last_packets_are_missing_keeps_its_reply(lost: int, elsewhere: bool, step: int) -> None:
    wire = Wire(mtu=1024)
    connection, other = wire.connect(), wire.connect()
    rpc = call(connection, nfs3.write(0, bytes(3000)))
    reply(rpc, nfs3.write_reply(3000))
    for _ in range(400):  # more frames than a capture reorders
        reply(call(other if elsewhere else connection, nfs3.getattr_()), nfs3.getattr_reply())
    packets = [packet for packet in wire.packets if packet.operation == rpc.true.call_operation]
    capture = Capture(wire, [packet for packet in wire.packets if packet not in packets[-lost:]])
    rpcs = analyzed(capture, step)
    judge(capture, rpcs)
    assert Counter(one.state for one in rpcs) == {"complete": 400, "damaged": 1}
    damaged = next(one for one in rpcs if one.state == "damaged")
    assert (damaged.name, damaged.damage) == ("WRITE", ("call: the end of the Send not captured",))


@pytest.mark.parametrize("step", [7, 100_000])
def test_so_does_one_over_iwarp(step: int) -> None:
    wire = IwarpWire(mss=1460)
    connection = wire.connect()
    rpc = call(connection, nfs3.write(0, bytes(3000)))
    reply(rpc, nfs3.write_reply(3000))
    for _ in range(400):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    segments = wire.sent()
    sent = [one for one in segments if one.kind == "data" and not one.sender]
    assert len(sent[1].payload) > 1000
    capture = IwarpCapture(wire, [one for one in segments if one is not sent[2]])
    rpcs = analyzed(capture, step)
    assert Counter(one.state for one in rpcs) == {"complete": 400, "damaged": 1}


# XIDs that are used again

SECOND = 1_000_000_000
UNDECIDABLE = "undecidable which of several calls with its XID a reply answers"


def by_name(capture: Capture) -> dict[str, Rpc]:
    found = {rpc.name: rpc for rpc in analyzed(capture, 100_000)}
    judge(capture, [rpc for rpc in found.values() if not rpc.ambiguous])
    return found


def without_reply(wire: Wire, rpc: Exchange) -> Capture:
    """A capture in which the reply to this call is missing, acknowledged as it was."""
    return Capture(wire, [one for one in wire.packets if one.operation != rpc.true.reply_operation])


def test_two_calls_in_flight_under_one_xid_are_distinguished_by_returned_handles() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    first = call(connection, nfs3.read(0, 4096), writes=[connection.register(4096)], xid=7)
    second = call(connection, nfs3.readlink(), writes=[connection.register(1024)], xid=7)
    reply(second, nfs3.readlink_reply(b"target"))
    reply(first, nfs3.read_reply(bytes(4096)))
    found = by_name(Capture(wire))
    assert {rpc.state for rpc in found.values()} == {"complete"}
    assert any("by the handles that the reply returns" in note for note in found["READLINK"].notes)
    assert XID_USED_AGAIN in found["READ"].notes and XID_IN_USE in found["READLINK"].notes


def test_by_the_version_of_the_reply() -> None:
    """The server's refusal of version 2 is missing from the capture."""
    wire = Wire(mtu=1024)
    connection = wire.connect()
    connection.send(0, header(7, MSG, version=2) + message(nfs3.null(), 7))
    reply(call(connection, nfs3.null(), xid=7), nfs3.null_reply())
    second, first = sorted(analyze(Capture(wire)), key=lambda rpc: rpc.state)
    assert (second.state, first.state) == ("complete", "no reply")
    assert second.call is not None and second.call.header.version == 1


def test_by_the_handle_that_the_reply_invalidates() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    chunks = connection.register(8), connection.register(8)
    first = call(connection, nfs3.write(0, bytes(8)), reads={0: chunks[0]}, xid=7)
    second = call(connection, nfs3.symlink(b"n", bytes(8)), reads={0: chunks[1]}, xid=7)
    for rpc in (first, second):
        fetch(rpc)
    reply(second, nfs3.symlink_reply(), invalidate=chunks[1][0].handle)
    reply(first, nfs3.write_reply(8), invalidate=chunks[0][0].handle)
    assert {rpc.state for rpc in by_name(Capture(wire)).values()} == {"complete"}


def test_by_the_read_chunks_that_were_read() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    first = call(connection, nfs3.write(0, bytes(8)), reads={0: connection.register(8)}, xid=7)
    second = call(connection, nfs3.symlink(b"n", bytes(8)), reads={0: connection.register(8)}, xid=7)
    fetch(second)
    reply(second, nfs3.symlink_reply())
    fetch(first)
    reply(first, nfs3.write_reply(8))
    assert {rpc.state for rpc in by_name(Capture(wire)).values()} == {"complete"}


def test_a_call_of_an_hour_ago_does_not_get_the_reply_to_a_later_one() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    lost = call(connection, nfs3.null(), xid=7)
    reply(lost, nfs3.null_reply())
    wire.pause(3600 * SECOND)
    reply(call(connection, nfs3.getattr_(), xid=7), nfs3.getattr_reply())
    found = by_name(without_reply(wire, lost))
    assert (found["NULL"].state, found["GETATTR"].state) == ("no reply", "complete")
    latency = found["GETATTR"].latency
    assert latency is not None and latency.total < SECOND
    assert XID_USED_AGAIN in found["NULL"].notes
    assert any("the time since the other, 3600 s" in note for note in found["GETATTR"].notes)


def test_nor_does_one_that_the_grant_forbids_to_be_outstanding() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    reply(call(connection, nfs3.null()), nfs3.null_reply(), credits=1)
    lost = call(connection, nfs3.readlink(), xid=7)
    reply(lost, nfs3.readlink_reply(b"target"), credits=1)
    wire.pause(SECOND)
    reply(call(connection, nfs3.getattr_(), xid=7), nfs3.getattr_reply(), credits=1)
    found = by_name(without_reply(wire, lost))
    assert (found["READLINK"].state, found["GETATTR"].state) == ("no reply", "complete")


def test_nor_one_that_many_ordered_replies_have_passed() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    lost = call(connection, nfs3.readlink(), xid=7)
    reply(lost, nfs3.readlink_reply(b"target"))
    for _ in range(20):
        reply(call(connection, nfs3.null()), nfs3.null_reply())
    reply(call(connection, nfs3.getattr_(), xid=7), nfs3.getattr_reply())
    found = by_name(without_reply(wire, lost))
    assert (found["READLINK"].state, found["GETATTR"].state) == ("no reply", "complete")


@pytest.mark.parametrize("answers", [1, 2])
def test_where_nothing_distinguishes_them_all_are_undecidable(answers: int) -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    first = call(connection, nfs3.readlink(), xid=7)
    second = call(connection, nfs3.getattr_(), xid=7)
    reply(second, nfs3.getattr_reply())
    reply(first, nfs3.readlink_reply(b"target"))
    capture = Capture(wire) if answers == 2 else without_reply(wire, first)
    found = by_name(capture)
    assert {rpc.ambiguous for rpc in found.values()} == {True}
    assert all(rpc.damage == (UNDECIDABLE,) and rpc.latency is None for rpc in found.values())
    assert Counter(rpc.state for rpc in found.values()) == {"undecidable": 2}


def test_thousands_of_calls_with_one_xid_take_time_in_proportion() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    for _ in range(300):
        call(connection, nfs3.null(), xid=7)
    analyzer = Analyzer()
    (batch,) = frame_batches(Capture(wire).frames, [])
    ended = analyzer.feed(batch)
    assert {rpc.state for rpc in ended} == {"no reply"} and len(ended) == 300 - MAX_SAME_XID
    assert len(analyzer.finish()) == MAX_SAME_XID


@pytest.mark.parametrize("lost", [False, True])
def test_a_second_reply_is_no_rpc_and_where_packets_are_missing_its_call_may_be(lost: bool) -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    asked = call(connection, nfs3.getattr_(), xid=7)
    reply(asked, nfs3.getattr_reply())
    gap = call(connection, nfs3.readlink())
    connection.send(1, header(7, MSG) + whole(reply_parts(nfs3.getattr_reply(), 7)))
    reply(call(connection, nfs3.null(), xid=7), nfs3.null_reply())
    missing = [one for one in wire.packets if one.operation == gap.true.call_operation]
    found = analyze(Capture(wire, [one for one in wire.packets if not lost or one not in missing]))
    (first,) = [rpc for rpc in found if rpc.name == "GETATTR"]
    (second,) = [rpc for rpc in found if rpc.call is None]
    assert first.state == "complete" and not first.notes
    if lost:
        assert second.state == "no call"
        assert any(note.startswith(f"RPC {first.number} has this XID, and a reply") for note in second.notes)
    else:
        assert (second.state, second.notes) == ("duplicate reply", (f"another reply to RPC {first.number}",))
    assert [(rpc.state, rpc.notes) for rpc in found if rpc.name == "NULL"] == [("complete", ())]
    statistics = Statistics()
    for rpc in found:
        statistics.add_table(RpcTable([rpc]))
    assert (statistics.calls, statistics.duplicate_replies) == ((3, 0) if lost else (3, 1))


@pytest.mark.parametrize("apart", [SECOND // 1000, 200 * SECOND, 400 * SECOND])
def test_two_replies_to_two_calls_of_one_xid_a_minute_apart_are_undecidable(apart: int) -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    first = call(connection, nfs3.getattr_(), xid=7)
    wire.pause(60 * SECOND)
    second = call(connection, nfs3.getattr_(), xid=7)
    wire.pause(SECOND)
    reply(first, nfs3.getattr_reply())
    wire.pause(apart)
    other = call(connection, nfs3.null())
    reply(second, nfs3.getattr_reply())
    reply(other, nfs3.null_reply())
    found = analyzed(Capture(wire), 1)
    earlier, later = sorted((rpc for rpc in found if rpc.name == "GETATTR"), key=lambda rpc: rpc.number)
    assert (earlier.state, earlier.damage, earlier.latency) == ("undecidable", (UNDECIDABLE,), None)
    if apart < DOUBT:
        assert (later.state, later.damage, later.latency) == ("undecidable", (UNDECIDABLE,), None)
        assert not any("the time since the other" in note for note in later.notes)
    else:  # That long nothing waits.
        assert any("the time since the other" in note for note in later.notes)


def test_no_more_than_so_many_wait_for_a_reply_that_contradicts_their_match() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    for xid in range(MAX_DOUBTFUL + 9):
        call(connection, nfs3.getattr_(), xid=xid)
    wire.pause(61 * SECOND)
    for xid in range(MAX_DOUBTFUL + 9):
        reply(call(connection, nfs3.null(), xid=xid), nfs3.null_reply())
    analyzer = Analyzer()
    (batch,) = frame_batches(Capture(wire).frames, [])
    ended = analyzer.feed(batch)
    assert [(rpc.name, rpc.state) for rpc in ended] == [("NULL", "complete")] * 9
    assert Counter(rpc.state for rpc in analyzer.finish()) == {"complete": MAX_DOUBTFUL, "no reply": MAX_DOUBTFUL + 9}


@pytest.mark.parametrize("long", [False, True])
def test_an_rdma_xid_that_is_not_the_xid_of_the_rpc_is_noted(long: bool) -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    chunk = connection.register(4096) if long else None
    first = call(connection, nfs3.getattr_(), xid=7, reply_chunk=chunk)
    message = whole(reply_parts(nfs3.getattr_reply(), 8))
    if chunk:
        connection.write(1, chunk[0].handle, chunk[0].offset, message)
        returned = [chunk[0]._replace(length=len(message))]
        connection.send(1, header(7, NOMSG, reply=returned))
    else:
        connection.send(1, header(7, MSG) + message)
    (rpc,) = analyze(Capture(wire))
    assert rpc.reply is not None and first is not None
    assert rpc.notes == ("the reply's rdma_xid 0x00000007 is not the XID of its RPC message, 0x00000008",)


def two_under_one_xid(connection: Connection) -> tuple[Exchange, Exchange]:
    first = call(connection, nfs3.read(0, 1200), writes=[connection.register(1200)], xid=7)
    second = call(connection, nfs3.read(4096, 1200), writes=[connection.register(1200)], xid=7)
    for one in (second, first):
        reply(one, nfs3.read_reply(bytes(1200)))
    return first, second


@pytest.mark.parametrize("step", [3, 100_000])
def test_a_reply_that_returns_memory_of_another_call_is_not_taken_for_that_of_this_one(step: int) -> None:
    """Packets of the caller are known to be missing, and the second call is one of them."""
    wire = Wire(mtu=1024)
    connection = wire.connect()
    lost = [call(connection, nfs3.getattr_())]
    reply(lost[0], nfs3.getattr_reply())
    for _ in range(100):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    lost.append(two_under_one_xid(connection)[1])
    gone = {one.true.call_operation for one in lost}
    found = analyzed(Capture(wire, [one for one in wire.packets if one.operation not in gone]), step)
    (answered,) = [rpc for rpc in found if rpc.name == "READ"]
    assert (answered.state, answered.chunks[0].transferred) == ("complete", 1200)
    (other,) = [rpc for rpc in found if rpc.call is None and rpc.xid == 7]
    assert other.state == "no call"
    reason = "but did not offer the memory that this reply returns: its call is missing"
    assert other.notes == (f"RPC {answered.number} has this XID, {reason}",)


@pytest.mark.parametrize("step", [3, 100_000])
@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_reply_that_returns_other_memory_leaves_its_call_undecidable_where_no_loss_is_known(
    acknowledged: bool, step: int, more: bool
) -> None:
    """An acknowledgement of the missing call shows the loss."""
    wire = Wire(mtu=1024)
    connection = wire.connect()
    _, missing = two_under_one_xid(connection)
    if more:
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    packets = [one for one in wire.packets if one.operation != missing.true.call_operation]
    if not acknowledged:
        packets = [one for one in packets if one.kind != "ack"]
    (answered,) = [rpc for rpc in analyzed(Capture(wire, packets), step) if rpc.name == "READ"]
    expected = ("complete", 1200) if acknowledged else ("undecidable", 0)
    assert (answered.state, answered.chunks[0].transferred) == expected


def test_where_no_other_reply_comes_the_server_returned_the_wrong_memory() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    call(connection, nfs3.read(0, 1200), writes=[connection.register(1200)], xid=7)
    text = header(7, MSG, writes=[connection.register(1200)])
    connection.send(1, text + reduced(reply_parts(nfs3.read_reply(bytes(1200)), 7), {0})[0])
    (found,) = analyze(Capture(wire))
    assert found.reply is not None and found.state == "damaged"


def test_memory_that_two_calls_share_and_was_written_twice_before_a_reply_is_undecidable() -> None:
    wire = Wire(mtu=512)
    connection = wire.connect()
    chunk = connection.register(1001)
    for xid in (7, 8):
        call(connection, nfs3.read(0, 1001), writes=[chunk], xid=xid)
    for content in (b"a", b"b"):
        connection.write(1, chunk[0].handle, chunk[0].offset, content * 1001)
    for xid in (7, 8):
        text = reduced(reply_parts(nfs3.read_reply(bytes(1001)), xid), {0})[0]
        connection.send(1, header(xid, MSG, writes=[chunk]) + text)
    for rpc in analyze(Capture(wire)):
        assert (rpc.state, rpc.contents) == ("undecidable", "undecidable")
        assert rpc.damage == ("Write chunk 1: bytes 0-1000 undecidable: several open calls share this memory",)
        assert rpc.chunks[0].transferred == 0


@pytest.mark.parametrize("step", [3, 100_000])
@pytest.mark.parametrize("transport", ["RoCE", "iWARP"])
def test_a_reply_to_a_call_before_the_capture_is_not_that_to_a_call_that_did_not_offer_its_memory(
    transport: str, step: int
) -> None:
    wire = IwarpWire(seed=3) if transport == "iWARP" else Wire(mtu=1024)
    connection = wire.connect()
    first = call(connection, nfs3.read(0, 1200), writes=[connection.register(1200)], xid=7)
    begin = len(wire.sent()) if isinstance(wire, IwarpWire) else len(wire.packets)
    call(connection, nfs3.getattr_(), xid=7)
    reply(first, nfs3.read_reply(bytes(1200)))
    capture = (
        IwarpCapture(wire, wire.sent()[begin:]) if isinstance(wire, IwarpWire) else Capture(wire, wire.packets[begin:])
    )
    (found,) = [rpc for rpc in analyzed(capture, step) if rpc.call is not None]
    assert (found.name, found.state, found.notes) == ("GETATTR", "undecidable", (NOT_OFFERED,))


@pytest.mark.parametrize("step", [3, 100_000])
@pytest.mark.parametrize("again", [False, True], ids=["alone", "followed"])
def test_a_reply_to_a_call_before_the_capture_is_not_that_to_a_read_whose_memory_it_does_not_return(
    again: bool, step: int
) -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect()
    first = call(connection, nfs3.getattr_(), xid=7)
    begin = len(wire.packets)
    second = call(connection, nfs3.read(0, 1200), writes=[connection.register(1200)], xid=7)
    reply(first, nfs3.getattr_reply())
    if again:
        reply(second, nfs3.read_reply(bytes(1200)))
    found = next(rpc for rpc in analyzed(Capture(wire, wire.packets[begin:]), step) if rpc.call is not None)
    assert (found.name, found.state) == ("READ", "undecidable")
    assert NOT_OFFERED in found.notes or again
