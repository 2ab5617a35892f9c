"""Transport health: what went wrong on the wire, who noticed, what it cost, and where the capture was taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from playbook import Capture, Wire, call, faults, fetch, nfs3, reply
from playbook.capture import frame_batches
from playbook.packets import NAK_ACCESS, NAK_INVALID, NAK_OPERATIONAL, Packet
from rdmascope.captures import open_capture
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.transport.health import TransportHealth
from rdmascope.dissect.transport.retransmissions import Retransmission, Tally

DATA = bytes(range(256)) * 64
CM_FRAMES = 3
SECOND = 1_000_000_000


def talk(acks: str = "message", psn: int | None = None) -> Wire:
    """Three calls: READ into a Write chunk, WRITE from a Read chunk, GETATTR."""
    wire = Wire(mtu=1024, seed=5)
    conn = wire.connect(acks=acks, client_psn=psn, server_psn=psn)
    reply(call(conn, nfs3.read(0, 8192), writes=[conn.register(8192)]), nfs3.read_reply(DATA[:8192]))
    written = call(conn, nfs3.write(0, DATA[:5000]), reads={0: conn.register(5000)})
    fetch(written)
    reply(written, nfs3.write_reply(5000))
    reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    conn.flush_acks()
    return wire


def examine(
    wire: Wire, packets: Sequence[Packet] | None = None, cuts: Sequence[int] = (), icrc: bool = False
) -> tuple[TransportHealth, list[Rpc]]:
    """The health of the first connection, and the Rpcs."""
    analyzer = Analyzer(Options(icrc=icrc))
    capture = Capture(wire, list(wire.packets if packets is None else packets))
    rpcs = [rpc for batch in frame_batches(capture.frames, cuts) for rpc in analyzer.feed(batch)]
    rpcs += analyzer.finish()
    return analyzer.health(1), rpcs


def times(wire: Wire, packets: list[Packet]) -> list[int]:
    return [frame.time for frame in Capture(wire, packets).frames]


def only(health: TransportHealth) -> Retransmission:
    assert health.retransmission_count == len(health.retransmissions) == 1
    return health.retransmissions[0]


def test_a_conversation_without_trouble() -> None:
    wire = talk()
    wire.connections[0].disconnect()
    health, rpcs = examine(wire)
    client, server = health.directions
    sent = [[packet for packet in wire.packets if packet.sender == end and packet.kind != "cm"] for end in (0, 1)]
    assert (client.packets, server.packets) == (len(sent[0]), len(sent[1]))
    assert client.unique_bytes == client.bytes == sum(len(packet.payload) for packet in sent[0])
    assert server.unique_bytes == server.bytes == sum(len(packet.payload) for packet in sent[1])
    assert not health.troubled and not client.causes and not server.causes
    assert [rpc.retransmission_delay for rpc in rpcs] == [0, 0, 0]
    assert health.path_mtu == 1024
    assert health.icrc_checked
    assert health.ended == "DREQ from the client"
    assert client.unanswered == server.unanswered == 0
    assert (server.reads_outstanding, server.read_depth) == (1, 16)


def test_goodput_counts_active_time_only() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    conn.send(0, DATA[:1000])
    conn.send(0, DATA[:1000])
    wire.pause(3 * SECOND)
    conn.send(0, DATA[:1000])
    conn.send(0, DATA[:1000])
    health, _ = examine(wire)
    stamps = [packet.time for packet in wire.packets if packet.kind == "send"]
    active = stamps[1] - stamps[0] + stamps[3] - stamps[2]
    assert health.directions[0].active_time == active
    assert health.directions[0].goodput == pytest.approx(4000 * 8e9 / active)
    assert health.directions[1].goodput is None


# Acknowledgements


def test_each_message_acknowledged_at_once() -> None:
    wire = talk()
    health, _ = examine(wire)
    packets = wire.packets
    delays = []
    for index, packet in enumerate(packets):
        if packet.sender == 0 and packet.kind == "send":
            ack = next(
                one
                for one in packets[index:]
                if one.kind in ("ack", "response") and one.sender == 1 and one.psn == packet.psn
            )
            delays.append(ack.time - packet.time)
    spread = health.directions[1].ack_delay
    assert spread is not None
    assert (spread.count, spread.minimum, spread.maximum) == (len(delays), min(delays), max(delays))
    assert spread.median == sorted(delays)[(len(delays) - 1) // 2]
    assert health.directions[1].requests_per_ack == 1


def test_acknowledgements_are_coalesced() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect(acks="none")
    for _ in range(5):
        conn.send(0, b"x" * 100)
    conn.acknowledge(1)
    conn.send(0, b"x" * 3000)
    conn.acknowledge(1)
    health, _ = examine(wire)
    server = health.directions[1]
    assert (server.acknowledgements, server.requests_acknowledged, server.max_per_ack) == (2, 8, 5)
    assert server.requests_per_ack == 4


def test_reads_outstanding_against_the_depth_agreed() -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    written = call(conn, nfs3.write(0, DATA[:8000]), reads={0: conn.register(8000)})
    fetch(written, split=1000, pipelined=5)
    reply(written, nfs3.write_reply(8000))
    health, _ = examine(wire)
    assert (health.directions[1].reads_outstanding, health.directions[1].read_depth) == (5, 16)
    assert health.directions[0].reads_outstanding == 0
    assert health.directions[0].read_delay is not None and health.directions[0].read_delay.count == 8


# Losses


@pytest.mark.parametrize("psn", [None, (1 << 24) - 6, (1 << 24) - 3])
@pytest.mark.parametrize("recorded", [True, False])
def test_a_lost_write_is_reported_and_retransmitted(recorded: bool, psn: int | None) -> None:
    """WRITE packet 3 of 8 is lost; NAK; 3 to 8 come again."""
    wire = talk(psn=psn)
    index = faults.where(wire.packets, kind="write")[2]
    packets = faults.lose(wire, wire.packets, index, recorded=recorded)
    health, rpcs = examine(wire, packets)
    stamps = times(wire, packets)
    nak = faults.where(packets, kind="nak")[0]
    again = nak + 1
    lost = index  # not recorded: the packet behind it, that shows the gap, has taken its place
    episode = only(health)
    assert (episode.cause, episode.lost, episode.initiator) == ("NAK sequence error", "request", 1)
    assert episode.lost_packet_captured is recorded
    assert episode.psn == wire.packets[index].psn
    assert (episode.lost_frame, episode.nak_frame, episode.retransmission_frame) == (lost + 1, nak + 1, again + 1)
    assert episode.loss_to_nak == stamps[nak] - stamps[lost]
    assert episode.nak_to_retransmission == stamps[again] - stamps[nak]
    assert episode.loss_to_retransmission == stamps[again] - stamps[lost]
    server = health.directions[1]
    repeats = [packet for packet in packets if packet.copy]
    assert (episode.packets, server.retransmitted.packets) == (len(repeats), len(repeats))
    assert server.retransmitted.bytes == sum(len(packet.payload) for packet in repeats)
    assert server.original_missing.packets == (0 if recorded else 1)
    assert server.causes == {"NAK sequence error": server.retransmitted}
    assert health.directions[0].sequence_naks == 1 and server.sequence_naks == 0
    assert health.loss_to_nak is not None and health.loss_to_nak.median == episode.loss_to_nak
    read, write, getattr_ = sorted(rpcs, key=lambda rpc: rpc.number)
    last = max(at for at, packet in enumerate(packets) if packet.copy and packet.kind == "write")
    assert read.retransmission_delay == stamps[last if recorded else again] - stamps[lost]
    assert (write.retransmission_delay, getattr_.retransmission_delay) == (0, 0)


def test_a_lost_call_times_out() -> None:
    wire = talk()
    index = faults.where(wire.packets, kind="send", sender=0)[2]
    packets = faults.lose(wire, wire.packets, index, answer="timeout")
    health, rpcs = examine(wire, packets)
    episode = only(health)
    stamps = times(wire, packets)
    again = next(at for at, packet in enumerate(packets) if packet.copy)
    assert (episode.cause, episode.initiator, episode.lost_packet_captured) == ("timeout", 0, True)
    assert episode.nak_frame is None and episode.loss_to_nak is None
    assert episode.loss_to_retransmission == stamps[again] - stamps[index]
    assert [rpc.retransmission_delay for rpc in sorted(rpcs, key=lambda rpc: rpc.number)][
        2
    ] == episode.loss_to_retransmission


def test_a_lost_acknowledgement_times_out() -> None:
    """The capture shows the ACK; its receiver did not get it."""
    wire = talk()
    send = faults.where(wire.packets, kind="send", sender=0)[2]
    ack = next(at for at in range(send, len(wire.packets)) if wire.packets[at].kind == "ack")
    again = replace(wire.packets[send], time=wire.packets[ack].time + 20_000_000, copy=1)
    rest = [replace(packet, time=packet.time + 30_000_000) for packet in wire.packets[ack + 1 :]]
    health, _ = examine(wire, [*wire.packets[: ack + 1], again, *rest])
    episode = only(health)
    assert (episode.cause, episode.lost, episode.lost_frame) == ("timeout", "acknowledgement", ack + 1)


def test_a_receiver_without_buffers_asks_to_wait() -> None:
    wire = talk()
    index = faults.where(wire.packets, kind="send", sender=0)[2]
    packets = faults.lose(wire, wire.packets, index, answer="rnr")
    health, rpcs = examine(wire, packets)
    episode = only(health)
    assert (episode.cause, episode.lost) == ("RNR NAK", "nothing")
    server = health.directions[1]
    assert server.rnr_count == 1 and server.sequence_naks == 0
    (rnr,) = server.rnr_naks
    assert (rnr.frame, rnr.timer, rnr.name) == (faults.where(packets, kind="nak")[0] + 1, 1_280_000, "RNR NAK, 1.28 ms")
    assert health.loss_to_nak is None  # nothing was lost
    assert rpcs[-1].retransmission_delay == episode.loss_to_retransmission


@pytest.mark.parametrize("recorded", [True, False])
def test_a_lost_read_response_is_requested_again(recorded: bool) -> None:
    """Response 3 of 5 is lost; the Read resumes there: an implied NAK."""
    wire = talk()
    index = faults.where(wire.packets, kind="response")[2]
    packets = faults.lose_response(wire, wire.packets, index, recorded=recorded)
    health, rpcs = examine(wire, packets)
    episode = only(health)
    assert (episode.cause, episode.lost, episode.initiator) == ("implied NAK", "response", 1)
    assert episode.lost_packet_captured is recorded
    assert (episode.psn, episode.lost_frame) == (wire.packets[index].psn, index + 1)
    assert episode.retransmission_frame == 1 + next(at for at, packet in enumerate(packets) if packet.copy)
    assert health.directions[1].causes == {"implied NAK": Tally(1, 0)}
    client = health.directions[0]
    responses = [packet for packet in packets if packet.kind == "response" and packet.copy]
    assert client.retransmitted.packets == len(responses) == 3
    assert client.original_missing.packets == (0 if recorded else 1)
    write = next(rpc for rpc in rpcs if rpc.name == "WRITE")
    stamps = times(wire, packets)
    last = max(at for at, packet in enumerate(packets) if packet.copy and packet.kind == "response")
    until = stamps[last] if recorded else stamps[(episode.retransmission_frame or 0) - 1]
    assert write.retransmission_delay == until - stamps[index]


def test_a_copy_is_no_retransmission() -> None:
    wire = talk()
    index = faults.where(wire.packets, kind="write")[2]
    health, rpcs = examine(wire, faults.ghost(wire.packets, index, 3))
    episode = only(health)
    assert (episode.cause, episode.lost) == ("duplicate", "nothing")
    server = health.directions[1]
    assert server.causes == {"duplicate": Tally(1, 1024)}
    assert server.retransmitted == Tally()
    assert server.unique_bytes == server.bytes - 1024
    assert not any(rpc.retransmission_delay for rpc in rpcs)


@pytest.mark.parametrize(("again", "causes"), [(0, {"duplicate"}), (40_000, {"unknown"})])
@pytest.mark.parametrize("cut", [None, 2, 5, 7])
def test_copies_of_a_burst_up_to_its_end_have_its_ip_identifications(
    again: int, causes: set[str], cut: int | None
) -> None:
    """As a mirror gives them some microseconds later; what a sender sends again from one packet on has others."""
    wire = talk()
    first = faults.where(wire.packets, kind="write")[0]
    packets = list(wire.packets)
    burst = [packet for packet in packets[first : first + 5] if packet.kind == "write"]
    copies = [
        replace(packet, copy=1, time=burst[-1].time + 100 * at, uid=packet.uid + again)
        for at, packet in enumerate(burst, 1)
    ]
    health, _ = examine(
        wire, packets[: first + 5] + copies + packets[first + 5 :], () if cut is None else (first + cut,)
    )
    assert len(burst) == 5 and {episode.cause for episode in health.retransmissions} == causes
    assert health.directions[1].retransmitted.packets == (5 if again else 0)


@pytest.mark.parametrize("cut", [None, 0, 4])
def test_what_its_sender_gave_another_ip_identification_is_no_copy(cut: int | None) -> None:
    """However soon it comes: the NAK that asked for it may be missing from the capture."""
    wire = talk()
    index = faults.where(wire.packets, kind="write")[2]
    packets = faults.ghost(wire.packets, index, 3)
    packets[index + 4] = replace(packets[index + 4], uid=40_000)
    health, _ = examine(wire, packets, () if cut is None else (index + cut,))
    assert (only(health).cause, only(health).lost) == ("unknown", "unknown")
    assert health.directions[1].retransmitted.packets == 1


def test_a_packet_recorded_late_is_no_retransmission() -> None:
    wire = talk()
    health, _ = examine(wire, faults.swap(wire.packets, faults.where(wire.packets, kind="write")[2], 2))
    assert not health.retransmissions and not health.directions[1].causes
    assert health.directions[1].reordered == 1


@pytest.mark.parametrize(("by", "causes"), [(SECOND // 200, []), (SECOND, ["timeout"])])
def test_what_was_acknowledged_before_it_is_recorded_was_not_lost(by: int, causes: list[str]) -> None:
    """It had arrived, unless it is so late that its sender may have sent it again, unaware of the acknowledgement."""
    wire = talk(acks="packet")
    packets = faults.swap(wire.packets, faults.where(wire.packets, kind="write")[2], 4)
    late = faults.where(packets, kind="write")[3]
    packets[late:] = [replace(packet, time=packet.time + by) for packet in packets[late:]]
    health, rpcs = examine(wire, packets)
    assert [one.cause for one in health.retransmissions] == causes and health.directions[1].reordered == (not causes)
    assert any(rpc.retransmission_delay for rpc in rpcs) == bool(causes)


@pytest.mark.parametrize("cut", [None, -1, 0, 1, 2])
def test_two_recorded_late_are_no_retransmission_wherever_a_batch_ends(cut: int | None) -> None:
    wire = talk()
    before = list(wire.packets)
    first, second, third = faults.where(before, kind="write")[1:4]
    assert (second, third) == (first + 1, first + 2)
    before[first : third + 1] = before[third], before[first], before[second]
    health, rpcs = examine(wire, before, () if cut is None else (second + cut,))
    assert health.directions[1].reordered == 2
    assert not health.retransmissions and not any(rpc.retransmissions for rpc in rpcs)


def test_a_packet_not_recorded_is_no_loss_on_the_wire() -> None:
    wire = talk(acks="packet")
    health, _ = examine(wire, faults.drop(wire.packets, faults.where(wire.packets, kind="write")[2:3]))
    assert not health.retransmissions and not health.directions[1].causes
    assert health.directions[1].sequence_naks == 0


# Ends


@pytest.mark.parametrize(
    ("syndrome", "name"),
    [
        (NAK_INVALID, "Invalid Request"),
        (NAK_ACCESS, "Remote Access Error"),
        (NAK_OPERATIONAL, "Remote Operational Error"),
    ],
)
def test_a_fatal_nak_ends_the_connection(syndrome: int, name: str) -> None:
    wire = talk()
    packets = faults.refuse(wire, wire.packets, faults.where(wire.packets, kind="read")[0], syndrome)
    health, _ = examine(wire, packets)
    frame = faults.where(packets, kind="nak")[0] + 1
    (fatal,) = health.directions[0].fatal_naks
    assert (fatal.frame, fatal.name) == (frame, f"NAK, {name}")
    assert health.ended == f"fatal NAK, {name} from the client in frame {frame}"


def test_silence_ends_the_connection() -> None:
    """The client's last call is never answered, while another connection goes on."""
    wire = talk()
    last = faults.where(wire.packets, kind="send", sender=0)[-1]
    packets = wire.packets[: last + 1]
    other = Wire(seed=9, start=packets[-1].time + 5 * SECOND)
    other.connect(client="10.0.0.9").send(0, b"hello, world")
    health, _ = examine(wire, [*packets, *(replace(packet, connection=1) for packet in other.packets)])
    assert health.ended.startswith("silence: 1 request of the client unanswered for 5")
    assert health.ended.endswith("; none of them was retransmitted")
    assert health.directions[0].unanswered == 1


def test_a_capture_without_acknowledgements_shows_no_silence() -> None:
    """One of many calls is retransmitted, but not the first, to which a reply came like to the others."""
    wire = talk()
    lost = faults.where(wire.packets, kind="send", sender=0)[2]
    packets = [packet for packet in faults.ghost(wire.packets, lost, 1) if packet.kind != "ack"]
    other = Wire(seed=9, start=packets[-1].time + 5 * SECOND)
    other.connect(client="10.0.0.9").send(0, b"hello, world")
    health, _ = examine(wire, [*packets, *(replace(packet, connection=1) for packet in other.packets)])
    assert health.ended == "open at the end of the capture"


def test_an_open_connection() -> None:
    health, _ = examine(talk())
    assert health.ended == "open at the end of the capture"


# Congestion and damage


def test_marks_and_notifications() -> None:
    wire = talk()
    packets = wire.packets
    for number in (6, 3, 1):
        packets = faults.mark(wire, packets, faults.where(wire.packets, kind="write")[number])
    health, _ = examine(wire, packets)
    client, server = health.directions
    assert (server.ecn_marked, client.ecn_marked) == (3, 0)
    assert (client.cnps, server.cnps) == (3, 0)
    stamps = times(wire, packets)
    notices = [stamps[at] for at in faults.where(packets, kind="cnp")]
    gaps = [notices[1] - notices[0], notices[2] - notices[1]]
    assert client.cnp_gap is not None and client.cnp_delay is not None
    assert (client.cnp_gap.count, client.cnp_gap.minimum, client.cnp_gap.maximum) == (2, min(gaps), max(gaps))
    assert client.cnp_delay.count == 3 and client.cnp_delay.minimum > 0


@pytest.mark.parametrize("kind", ["write", "send"])
def test_a_damaged_packet_is_named_by_its_frame(kind: str) -> None:
    wire = talk()
    index = faults.where(wire.packets, kind=kind)[2]
    packets = faults.lose(wire, faults.corrupt(wire.packets, index), index)
    sender = packets[index].sender
    health, _ = examine(wire, packets, icrc=True)
    assert health.directions[sender].icrc_failures == (index + 1,)
    assert health.directions[1 - sender].icrc_failures == ()
    assert health.icrc_checked == len(packets)
    if kind == "write":
        episode = only(health)
        assert (episode.lost_packet_captured, episode.lost_frame, episode.cause) == (
            True,
            index + 1,
            "NAK sequence error",
        )


def test_notifications_find_a_connection_that_is_paired_later() -> None:
    """No CM exchange in the capture, one frame a batch."""
    wire = talk()
    packets = faults.mark(wire, wire.packets, faults.where(wire.packets, kind="write")[1])[CM_FRAMES:]
    health, _ = examine(wire, packets, cuts=range(len(packets)))
    assert sorted(one.cnps for one in health.directions) == [0, 1]
    assert sorted(one.ecn_marked for one in health.directions) == [0, 1]


# Where the capture was taken


def beside(ways: tuple[int, int], own: int = 2_000) -> TransportHealth:
    """Both ends send and acknowledge; ``ways``: nanoseconds from the capture point to either."""
    wire = Wire(seed=3)
    conn = wire.connect(acks="none")
    for _ in range(20):
        for sender in (0, 1):
            conn.send(sender, b"x" * 64)
            wire.now += 2 * ways[1 - sender] + own
            conn.acknowledge(1 - sender)
    packets = list(wire.packets)
    for at in faults.where(packets, kind="ack"):
        asked = packets[at - 1]
        packets[at] = replace(packets[at], time=asked.time + 2 * ways[1 - asked.sender] + own)
    return examine(wire, packets)[0]


@pytest.mark.parametrize(
    ("ways", "own", "place"),
    [
        ((100, 40_000), 2_000, "beside the requester"),
        ((40_000, 100), 2_000, "beside the responder"),
        ((12_000, 11_000), 2_000, "between"),
        ((10_000, 20_000), 2_000, "undecidable"),
        ((100, 200), 500_000, "undecidable"),
    ],
)
def test_the_capture_point(ways: tuple[int, int], own: int, place: str) -> None:
    vantage = beside(ways, own).capture_point
    assert vantage.place == place
    assert (vantage.confidence > 0) is (place != "undecidable")


def test_too_few_acknowledgements_tell_no_capture_point() -> None:
    vantage = examine(talk())[0].capture_point
    assert (vantage.place, vantage.confidence) == ("undecidable", 0.0)


# A real loss: both guests' network dropped 0.5 % of what they sent, before it could be recorded

SAMPLE = Path(__file__).parents[4] / "captures" / "samples" / "loss-rxe.pcap.zst"
CLIENT_COUNTERS = {"sent_pkts": 3317, "rcvd_pkts": 1147, "duplicate_request": 183, "out_of_seq_request": 3}
"""Of the client's rxe driver, printed by the guest at the end."""
CLIENT_MADS, SERVER_MADS = 6, 4


def test_the_counts_are_those_of_the_driver() -> None:
    analyzer = Analyzer()
    with open_capture(SAMPLE) as capture:
        for batch in capture.batches():
            analyzer.feed(batch)
    analyzer.finish()
    healths = [analyzer.health(one.number) for one in analyzer.connections]
    clients = [health.directions[0] for health in healths]
    servers = [health.directions[1] for health in healths]
    assert sum(one.sequence_naks for one in clients) == CLIENT_COUNTERS["out_of_seq_request"]

    # What comes behind a gap is recorded, but its receiver drops it: sent again after the NAK it is no duplicate.
    behind_a_gap = 0
    for one in servers:
        after_nak = one.causes.get("NAK sequence error", Tally()).packets
        behind_a_gap += after_nak - one.original_missing.packets if after_nak else 0
    repeated = sum(one.original_captured.packets for one in servers)
    assert repeated - behind_a_gap == CLIENT_COUNTERS["duplicate_request"]

    # What the client's network dropped is not recorded; what of it was missed, was retransmitted, but for ACKs.
    dropped = CLIENT_COUNTERS["sent_pkts"] - CLIENT_MADS - sum(one.packets for one in clients)
    assert dropped == 18
    assert sum(one.original_missing.packets for one in clients) == dropped - 2
    # One more than the driver counted: a retransmission that came for a queue pair no longer there.
    assert sum(one.packets for one in servers) + SERVER_MADS == CLIENT_COUNTERS["rcvd_pkts"] + 1

    assert {episode.lost_packet_captured for health in healths for episode in health.retransmissions} == {False}
    assert {cause for health in healths for cause in health.causes} == {"implied NAK", "NAK sequence error"}
