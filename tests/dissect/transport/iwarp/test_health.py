"""Transport health of iWARP: what TCP sent again, who asked for it, what it cost, and which RPC paid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings, strategies as st

from playbook import call, faults, nfs3, reply, shapes, tcp as t, tcp_faults
from playbook.capture import frame_batches
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.iwarp_strategies import REPAIRED, IwarpConversation, iwarp_conversations, iwarp_faulty
from playbook.tcp import TcpSegment
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.transport.health import DirectionHealth, TransportHealth
from rdmascope.dissect.transport.retransmissions import Retransmission, Tally

QUICK = settings(
    max_examples=40,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
MILLISECOND = 1_000_000
DATA = bytes(range(256)) * 64


def talk(acks: str = "packet", isn: int | None = None) -> IwarpWire:
    """READ into a Write chunk, WRITE from a Read chunk, GETATTR."""
    wire = IwarpWire(mss=1448, seed=5)
    connection = wire.connect(acks=acks, client_isn=isn, server_isn=isn)
    shapes.read(connection, DATA[:8192])
    shapes.write(connection, DATA[:5000])
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    return wire


def examine(
    wire: IwarpWire, segments: Sequence[TcpSegment] | None = None, cuts: Sequence[int] = ()
) -> tuple[TransportHealth, list[Rpc]]:
    """The health of the first connection, and the Rpcs."""
    analyzer = Analyzer()
    capture = IwarpCapture(wire, wire.sent() if segments is None else list(segments))
    rpcs = [rpc for batch in frame_batches(capture.frames, cuts) for rpc in analyzer.feed(batch)]
    rpcs += analyzer.finish()
    return analyzer.health(1), rpcs


def only(health: TransportHealth) -> Retransmission:
    assert health.retransmission_count == len(health.retransmissions) == 1
    return health.retransmissions[0]


def full(segments: Sequence[TcpSegment], sender: int) -> list[int]:
    """The data segments of a sender that are full: those of its RDMA Writes or Read Responses."""
    return [index for index, one in enumerate(segments) if one.sender == sender and len(one.payload) > 1400]


def times(wire: IwarpWire, segments: Sequence[TcpSegment]) -> list[int]:
    return [frame.time for frame in IwarpCapture(wire, list(segments)).frames]


def test_a_conversation_without_trouble() -> None:
    wire = talk()
    wire.connections[0].disconnect()
    health, rpcs = examine(wire)
    for sender, one in enumerate(health.directions):
        mine = [segment for segment in wire.segments if segment.sender == sender]
        assert one.segments == sum(segment.kind == "data" for segment in mine)
        handshake = sender == 0
        assert one.acknowledgements == sum(segment.kind in ("ack", "fin") for segment in mine) - handshake
        assert one.fpdus == len(wire.connections[0].ends[sender].extents)  # type: ignore[attr-defined]
        assert one.original_captured == one.original_missing == Tally() and not one.causes
        assert one.ack_delay is not None
    assert health.directions[1].bytes > 8192
    assert health.ended == "FIN from the client"
    assert (
        not health.troubled
        and health.icrc_checked is None
        and health.crc_checked == sum(one.fpdus or 0 for one in health.directions)
    )
    assert [rpc.retransmission_delay for rpc in rpcs] == [0, 0, 0]


def test_the_acknowledgement_of_the_handshake_is_of_no_data_wherever_a_batch_ends() -> None:
    wire = talk()
    wire.connections[0].disconnect()
    whole, _ = examine(wire)
    for cut in range(1, 8):
        health, _ = examine(wire, cuts=[cut])
        assert [one.acknowledgements for one in health.directions] == [one.acknowledgements for one in whole.directions]


@pytest.mark.parametrize("isn", [None, (1 << 32) - 5000], ids=["", "wrap"])
@pytest.mark.parametrize("recorded", [True, False], ids=["lost behind the capture point", "lost before it"])
def test_duplicate_acknowledgements_ask_for_a_segment(recorded: bool, isn: int | None) -> None:
    wire = talk(isn=isn)
    before = wire.sent()
    index = full(before, 1)[1]
    segments = tcp_faults.lose(wire, before, index, recorded=recorded)
    health, rpcs = examine(wire, segments)
    one = only(health)
    again = [at for at, segment in enumerate(segments) if segment.copy]
    asking = [at for at, one in enumerate(segments) if one.kind == "ack" and one.ack == before[index].seq][1:]
    assert (one.initiator, one.cause, one.lost) == (1, "fast retransmit", "segment")
    assert one.psn == before[index].seq % (1 << 32) and one.end - one.psn == len(before[index].payload)
    assert one.lost_packet_captured is recorded
    lost = index if recorded else next(at for at in range(index, again[0]) if segments[at].kind == "data")
    assert (one.lost_frame, one.retransmission_frame) == (lost + 1, again[0] + 1)
    assert one.nak_frame == next(at for at in asking if at > lost) + 1
    client, server = health.directions
    assert client.duplicate_acks >= 3
    mine = Tally(len(again), len(before[index].payload))
    assert (server.original_captured, server.original_missing) == ((mine, Tally()) if recorded else (Tally(), mine))
    assert server.causes == {"fast retransmit": mine}
    when = times(wire, segments)
    assert one.loss_to_retransmission == when[again[0]] - when[lost]
    assert rpcs[0].name == "READ"
    assert rpcs[0].retransmissions == len(again)
    assert [rpc.retransmission_delay for rpc in rpcs] == [when[again[-1 if recorded else 0]] - when[lost], 0, 0]


def test_what_comes_behind_a_lost_segment_waits_for_it() -> None:
    """The READ's Write is lost, and the reply to the next call waits in the receiver's TCP: both pay."""
    wire = IwarpWire(mss=1448, seed=5)
    connection = wire.connect(acks="none")
    first = call(connection, nfs3.read(0, 1000), writes=[connection.register(1000)])
    second = call(connection, nfs3.getattr_())
    reply(first, nfs3.read_reply(DATA[:1000]))
    reply(second, nfs3.getattr_reply())
    before = wire.sent()
    index = next(at for at, one in enumerate(before) if one.sender == 1 and len(one.payload) > 1000)
    segments = tcp_faults.lose(wire, before, index, delay=30 * MILLISECOND)
    health, rpcs = examine(wire, segments)
    episode = only(health)
    assert (episode.cause, episode.lost) == ("timeout", "unknown")
    when = times(wire, segments)
    waited = max(time for time, segment in zip(when, segments, strict=True) if segment.copy) - when[index]
    paid = {rpc.name: rpc.retransmission_delay for rpc in rpcs}
    assert waited == paid["READ"] > paid["GETATTR"] > 30 * MILLISECOND
    assert {rpc.name: rpc.retransmissions > 0 for rpc in rpcs} == {"READ": True, "GETATTR": False}


def test_one_acknowledgement_that_names_what_came_is_enough() -> None:
    wire = talk("none")
    before = wire.sent()
    indices = full(before, 1)
    lost, next_ = before[indices[1]], before[indices[2]]
    segments = tcp_faults.lose(wire, before, indices[1], delay=2 * MILLISECOND)
    assert health_of(wire, segments).retransmissions[0].cause == "timeout"
    template = next(one for one in before if one.kind == "ack")
    ack = replace(template, seq=next_.ack, ack=lost.seq, options=t.sack((next_.seq, next_.seq + 100)))
    segments.insert(indices[2] + 1, replace(ack, time=next_.time + 100))
    health = health_of(wire, segments)
    assert (only(health).cause, only(health).nak_frame) == ("fast retransmit", indices[2] + 2)
    assert health.directions[0].selective_acks == 1


def health_of(wire: IwarpWire, segments: Sequence[TcpSegment]) -> TransportHealth:
    return examine(wire, segments)[0]


def test_what_had_arrived_costs_nothing() -> None:
    """The receiver says that it has the bytes twice (RFC 2883), or had acknowledged them."""
    wire = talk("none")
    before = wire.sent()
    index = full(before, 1)[-1]
    one = before[index]
    late = tcp_faults.repeat(wire, before, index, 0, 0)
    late = [*late[: index + 1], *faults_later(late[index + 1 :], 5 * MILLISECOND)]
    health, rpcs = examine(wire, late)
    assert only(health).lost == "unknown"
    assert rpcs[0].retransmission_delay > 5 * MILLISECOND
    answer = next(at for at in range(index + 2, len(late)) if late[at].sender == 0)
    reported = replace(
        late[answer], kind="ack", payload=b"", options=t.sack((one.seq, one.seq + 50)), time=late[index + 1].time + 1
    )
    health, rpcs = examine(wire, [*late[: index + 2], reported, *late[index + 2 :]])
    assert only(health).lost == "nothing" and health.directions[0].reported_twice == 1
    assert rpcs[0].retransmission_delay == 0 and rpcs[0].retransmissions == 1


def test_an_old_acknowledgement_takes_nothing_back_wherever_a_batch_ends() -> None:
    wire = talk("none")
    before = wire.sent()
    index = full(before, 1)[-1]
    one = before[index]
    answer = next(segment for segment in before[index:] if segment.sender == 0)
    had = replace(answer, kind="ack", payload=b"", ack=(one.seq + len(one.payload)) % 2**32, time=one.time + 1)
    old = replace(had, ack=one.seq, time=one.time + 2)
    late = faults_later(tcp_faults.repeat(wire, before, index, 0, 0)[index + 1 :], 5 * MILLISECOND)
    segments = [*before[: index + 1], had, old, *late]
    for cut in range(len(segments)):
        health, _ = examine(wire, segments, [cut])
        assert only(health).lost == "nothing"


def faults_later(segments: Sequence[TcpSegment], by: int) -> list[TcpSegment]:
    return [replace(one, time=one.time + by) for one in segments]


def test_out_of_order_is_not_retransmitted() -> None:
    wire = talk("none")
    before = wire.sent()
    health, rpcs = examine(wire, tcp_faults.reorder(before, full(before, 1)[1]))
    assert health.directions[1].reordered == 1
    assert not health.retransmissions and not health.directions[1].causes
    assert [rpc.retransmissions for rpc in rpcs] == [rpc.retransmission_delay for rpc in rpcs] == [0, 0, 0]


def test_what_was_acknowledged_before_it_is_recorded_was_not_lost() -> None:
    wire = talk("packet")
    before = wire.sent()
    index = full(before, 1)[1]
    late = faults.swap(before, index, 3)
    health, rpcs = examine(wire, [*late[: index + 3], *faults_later(late[index + 3 :], 5 * MILLISECOND)])
    assert not health.retransmissions and health.directions[1].reordered == 1
    assert not any(rpc.retransmission_delay for rpc in rpcs)


def test_a_copy_by_the_network_is_seen_twice_and_sent_once() -> None:
    wire = talk("none")
    before = wire.sent()
    health, rpcs = examine(wire, faults.duplicate(before, full(before, 1)[1]))
    assert only(health).cause == "duplicate"
    assert health.directions[1].retransmitted == Tally()
    assert [rpc.retransmission_delay for rpc in rpcs] == [0, 0, 0]


@pytest.mark.parametrize("cut", [None, -1, 0, 1, 2])
def test_two_in_a_row_are_no_copy_wherever_a_batch_ends(cut: int | None) -> None:
    wire = talk("none")
    before = list(wire.sent())
    first, second = full(before, 1)[1:3]
    assert second == first + 1
    before[second + 1 : second + 1] = before[first : second + 1]
    health, _ = examine(wire, before, () if cut is None else (second + 1 + cut,))
    assert only(health).cause == "unknown" and only(health).packets == 2


def test_a_full_receiver_says_so() -> None:
    wire = talk()
    segments = list(wire.sent())
    index = next(at for at, one in enumerate(segments) if one.kind == "ack" and at > 10)
    segments[index] = replace(segments[index], window=0)
    sender = segments[index].sender
    health, _ = examine(wire, segments)
    assert [one.zero_windows for one in health.directions] == [int(sender == 0), int(sender == 1)]
    assert health.troubled


def test_a_damaged_segment_is_the_loss() -> None:
    wire = talk()
    before = wire.sent()
    index = full(before, 1)[2]
    health, _ = examine(wire, tcp_faults.corrupt(wire, before, index, 700, repaired=True))
    assert health.directions[1].damaged_segments == 1
    one = only(health)
    assert (one.lost_packet_captured, one.lost_frame) == (True, index + 1)


def test_a_wrong_crc_is_reported_with_its_frame() -> None:
    wire = talk()
    before = wire.sent()
    index = full(before, 1)[2]
    health, _ = examine(wire, tcp_faults.corrupt(wire, before, index, 700))
    server = health.directions[1]
    assert (server.crc_failure_count, server.crc_failures) == (1, (index + 1,))
    assert [one.name for one in health.directions[0].fatal_naks] == ["LLP, MPA Error, MPA CRC error"]
    assert health.ended.startswith("Terminate (LLP, MPA Error, MPA CRC error) from the client")


def test_what_is_not_in_the_capture_is_missing_and_nothing_was_retransmitted() -> None:
    wire = talk()
    before = wire.sent()
    for number in (1, 2, 3):
        gone = full(before, 1)[1 : 1 + number]
        health, _ = examine(wire, faults.drop(before, gone))
        assert health.directions[1].missing == number
        assert not health.retransmissions and not health.directions[1].causes


def behind(segments: Sequence[TcpSegment], sender: int) -> int:
    """Segments with payload that begin before the furthest byte told of so far, be it by the number of an empty one;
    not what keeps a connection alive."""
    head, found = 0, 0
    for one in segments:
        if one.sender != sender:
            continue
        alive = one.kind == "keepalive" and one.seq + 1 == head
        if one.payload and one.seq < head and not alive:
            found += 1
        head = max(head, one.seq + len(one.payload))
    return found


def counted(one: DirectionHealth) -> int:
    return one.original_captured.packets + one.original_missing.packets + one.reordered


def late_request(port: int = 20049) -> IwarpConversation:
    """The MPA Request is lost before the capture point, what its sender sends next is there, then the Request."""
    wire = IwarpWire(mss=256, seed=3)
    shapes.write(wire.connect(port=port, markers=(True, True)), DATA[:1000])
    before = wire.sent()
    first = next(index for index, one in enumerate(before) if one.kind == "data")
    request = before[first]
    shown = [one for one in before[:first] if one.kind == "ack"][-1]
    beyond = replace(shown, seq=request.seq + len(request.payload), time=(shown.time + request.time) // 2)
    return IwarpConversation(wire, [*before[:first], beyond, *before[first:]])


@QUICK
@given(
    iwarp_faulty(REPAIRED, iwarp_conversations(cm=st.just(True), max_connections=1, strangers=False)),
    st.lists(st.integers(0, 1000), max_size=4),
)
@example(late_request(), [])
@example(late_request(), [4])
@example(late_request(port=4791), [4])
def test_every_segment_that_comes_late_is_counted_once(conversation: IwarpConversation, cuts: list[int]) -> None:
    health, rpcs = examine(conversation.wire, conversation.segments, cuts)
    for sender, one in enumerate(health.directions):
        assert counted(one) == behind(conversation.segments, sender)
        assert sum(tally.packets for tally in one.causes.values()) == counted(one) - one.reordered
        assert one.missing == 0
    whole, same = examine(conversation.wire, conversation.segments)
    assert whole.retransmissions == health.retransmissions and whole.causes == health.causes
    # What comes again after the reply counts with an RPC only where it is in the same batch.
    assert {one.number: one.xid for one in rpcs} == {one.number: one.xid for one in same}
