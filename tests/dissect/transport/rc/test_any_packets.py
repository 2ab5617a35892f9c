"""Transport health of any conversation, however faulty, and of packets that make none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import HealthCheck, given, settings, strategies as st

from playbook.capture import frame_batches
from playbook.packets import REQUESTS, Packet
from playbook.strategies import WIRE_FAULTS, Conversation, conversations, faulty
from rdmascope.dissect.link.packets import PACKET
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.transport.connection import Connection, Endpoint
from rdmascope.dissect.transport.rc.health import RcHealth

QUICK = settings(suppress_health_check=list(HealthCheck))


def seen_again(packets: Sequence[Packet], connection: int, sender: int, mtu: int) -> int:
    """Packets of one sender that the capture shows a second time."""
    requests: set[int] = set()
    responses: set[int] = set()
    again = 0
    for packet in packets:
        if packet.connection != connection or packet.sender != sender:
            continue
        if packet.kind == "response":
            again += packet.psn in responses
            responses.add(packet.psn)
        elif packet.kind in REQUESTS:
            length = int.from_bytes(packet.extended[12:16], "big") if packet.kind == "read" else 0
            again += packet.psn in requests
            requests.update((packet.psn + step) & 0xFFFFFF for step in range(max(1, -(-length // mtu))))
    return again


@QUICK
@given(
    faulty(
        tuple(kind for kind in WIRE_FAULTS if kind != "corrupt"),
        conversations(cm=st.just(True), max_connections=2, strangers=False),
    ),
    st.lists(st.integers(0, 1000), max_size=4),
)
def test_repetitions_are_counted_however_the_capture_is_cut(conversation: Conversation, cuts: list[int]) -> None:
    capture = conversation.capture
    results = []
    for edges in ([], cuts):
        analyzer = Analyzer()
        for batch in frame_batches(capture.frames, edges):
            analyzer.feed(batch)
        analyzer.finish()
        healths = [analyzer.health(one.number) for one in analyzer.connections]
        results.append(healths)
        for health, connection in zip(healths, analyzer.connections, strict=True):
            (number,) = (
                one.number
                for one in conversation.wire.connections
                if [end.qpn for end in one.ends] == [end.qpn for end in connection.endpoints]
            )
            for end, direction in enumerate(health.directions):
                again = seen_again(conversation.packets, number, end, conversation.wire.mtu)
                assert direction.original_captured.packets == again
                assert connection.retransmitted_packets[end] == direction.retransmitted.packets
                assert direction.packets == connection.packets[end]
                assert direction.bytes == connection.bytes[end]
                assert direction.unique_bytes <= direction.bytes
    for whole, cut in zip(*results, strict=True):
        for one, other in zip(whole.directions, cut.directions, strict=True):
            assert (one.original_captured, one.original_missing, one.reordered) == (
                other.original_captured,
                other.original_missing,
                other.reordered,
            )
            assert (one.ack_delay, one.cnps, one.sequence_naks) == (other.ack_delay, other.cnps, other.sequence_naks)


PSNS = st.one_of(st.integers(0, 12), st.integers(0xFFFFF0, 0xFFFFFF), st.integers(0, 0xFFFFFF))
ROWS = st.lists(
    st.tuples(
        st.sampled_from([0x00, 0x02, 0x04, 0x0A, 0x0C, 0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12, 0x13, 0x15]),
        PSNS,
        st.integers(0, 255),
        st.sampled_from([0, 1, 256, 4096, (1 << 32) - 1]),
        st.integers(-5, 5),
    ),
    max_size=30,
)


@QUICK
@given(st.lists(st.tuples(ROWS, ROWS), max_size=4), st.sampled_from([None, 0, 0xFFFFFE]), st.sampled_from([None, 256]))
def test_no_packets_at_all_make_it_fail(
    batches: list[tuple[list[tuple[int, ...]], list[tuple[int, ...]]]], psn: int | None, mtu: int | None
) -> None:
    connection = Connection(1, "RoCEv2", (Endpoint("a", 1, psn), Endpoint("b", 2, psn)), path_mtu=mtu)
    health = RcHealth(connection)
    frame = total = 0
    for batch in batches:
        sent = []
        for packets in batch:
            rows = np.zeros(len(packets), PACKET)
            for row, (opcode, number, syndrome, length, delta) in zip(rows, packets, strict=True):
                frame += 1
                row["frame"], row["time"] = frame, 1_000_000 * frame + 3_000_000 * delta
                row["opcode"], row["psn"], row["syndrome"] = opcode, number, syndrome
                row["dma_length"], row["length"], row["headers"] = length, min(length, 4096), 1
            sent.append(rows)
        responding = [(rows["opcode"] >= 0x0D) & (rows["opcode"] <= 0x12) for rows in sent]
        split = [(rows[~which], rows[which]) for rows, which in zip(sent, responding, strict=True)]
        health.feed(sent, split)
        total += sum(map(len, sent))
        for one in health.result(now=frame * 1_000_000).directions:
            assert 0 <= one.original_captured.packets + one.original_missing.packets <= one.packets
            assert 0 <= one.unique_bytes <= one.bytes
    assert sum(one.packets for one in health.result().directions) == total
