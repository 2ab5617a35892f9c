"""What the samples' transports lost and retransmitted, held to what their hosts counted and to the bytes.

Packets and streams are read here by hand, so that a misreading in the product cannot hide behind the same one in its
test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from playbook.samples import MANIFEST, SAMPLES, analyzed
from rdmascope.captures import open_capture
from rdmascope.dissect.records.connection import connection_record, transport_record

READ_REQUEST, RESPONSES_AND_ACK = 12, range(13, 18)


def received_by_the_client(name: str) -> Counter[str]:
    """Requests as their responder takes them (IBA 9.7.1): expected, had already, or ahead of a lost one and dropped."""
    taken: Counter[str] = Counter()
    expected: dict[int, int] = {}
    with open_capture(str(SAMPLES / MANIFEST[name]["file"])) as capture:
        for batch in capture.batches():
            for start, length in zip(batch.rows["offset"].tolist(), batch.rows["captured"].tolist(), strict=True):
                frame = bytes(batch.data[start : start + length])
                if frame[12:14] != b"\x08\x00" or frame[30:34] != b"\x0a\x4d\x00\x02" or frame[36:38] != b"\x12\xb7":
                    continue
                opcode, qpn, psn = frame[42], int.from_bytes(frame[47:50], "big"), int.from_bytes(frame[51:54], "big")
                if qpn == 1 or opcode in RESPONSES_AND_ACK:
                    continue
                ahead = (psn - expected.setdefault(qpn, psn)) % (1 << 24)
                if ahead == 0:
                    length = int.from_bytes(frame[66:70], "big") if opcode == READ_REQUEST else 0
                    expected[qpn] = (psn + max(1, -(-length // 4096))) % (1 << 24)
                taken["new" if ahead == 0 else "ahead" if ahead < 1 << 23 else "duplicate"] += 1
    return taken


def test_retransmissions_are_those_that_the_client_counted() -> None:
    counters = MANIFEST["loss-rxe"]["client_counters"]
    taken = received_by_the_client("loss-rxe")
    assert taken["duplicate"] == counters["duplicate_request"]
    analyzer = analyzed("loss-rxe").analyzer
    health = [analyzer.health(connection.number) for connection in analyzer.connections]
    assert sum(one.directions[0].sequence_naks for one in health) == counters["out_of_seq_request"]
    # What came ahead of a lost packet was dropped, so it was retransmitted as well.
    again = sum(one.directions[1].original_captured.packets for one in health)
    assert again == counters["duplicate_request"] + taken["ahead"]


class FourTuple(NamedTuple):
    """One direction of a TCP connection."""

    source: bytes
    destination: bytes


def segments(name: str) -> Iterator[tuple[int, FourTuple, int, bytes]]:
    """``(frame, direction, sequence number, payload)`` of what TCP port 20049 sent and got: Ethernet, IPv4, TCP."""
    with open_capture(str(SAMPLES / MANIFEST[name]["file"])) as capture:
        for batch in capture.batches():
            columns = (batch.rows[column].tolist() for column in ("number", "offset", "captured"))
            for number, start, length in zip(*columns, strict=True):
                frame = bytes(batch.data[start : start + length])
                if frame[12:15] != b"\x08\x00\x45" or frame[23] != 6 or b"\x4e\x51" not in (frame[34:36], frame[36:38]):
                    continue
                payload = frame[34 + (frame[46] >> 4) * 4 : 14 + int.from_bytes(frame[16:18], "big")]
                direction = FourTuple(frame[26:30] + frame[34:36], frame[30:34] + frame[36:38])
                yield number, direction, int.from_bytes(frame[38:42], "big") + (frame[47] >> 1 & 1), payload


def fpdus(name: str) -> dict[FourTuple, list[bytes]]:
    """The ULPDUs of each direction, behind its MPA Request or Reply (RFC 5044, 4.1 and 7.1.1): no markers."""
    streams: dict[FourTuple, dict[int, bytes]] = {}
    for _, direction, sequence, payload in segments(name):
        if not payload:
            continue
        parts = streams.setdefault(direction, {})
        parts[sequence] = max(parts.get(sequence, b""), payload, key=len)
    found: dict[FourTuple, list[bytes]] = {}
    for direction, parts in streams.items():
        stream, first = b"", min(parts)
        for sequence in sorted(parts):
            behind = len(stream) - (sequence - first)
            assert behind >= 0, "a hole"
            stream += parts[sequence][behind:]
        at = 20 + int.from_bytes(stream[18:20], "big")
        assert stream[:8] == b"MPA ID R" and stream[16] & 0xC0 == 0
        while at < len(stream):
            length = int.from_bytes(stream[at : at + 2], "big")
            found.setdefault(direction, []).append(stream[at + 2 : at + 2 + length])
            at += (length + 5 & ~3) + 4
        assert at == len(stream)
    return found


IWARP = pytest.mark.parametrize("name", ["siw-nfs-all", "loss-siw"])


@IWARP
def test_fpdus_are_those_of_the_streams(name: str) -> None:
    by_hand = Counter({direction: len(ulpdus) for direction, ulpdus in fpdus(name).items()})
    ours: Counter[FourTuple] = Counter()
    for connection in analyzed(name).analyzer.connections:
        if not connection.rdma:
            continue
        ends = [
            bytes(map(int, end.address.split("."))) + (end.port or 0).to_bytes(2, "big") for end in connection.endpoints
        ]
        ours[FourTuple(*ends)] += connection.fpdus[0]
        ours[FourTuple(*ends[::-1])] += connection.fpdus[1]
        assert connection.missing_packets == (0, 0)
    assert ours == by_hand


@IWARP
def test_segments_retransmitted_are_those_of_tshark(name: str) -> None:
    analyzer = analyzed(name).analyzer
    found: list[int] = []
    for connection in analyzer.connections:
        health = analyzer.health(connection.number)
        assert sum(one.reordered for one in health.directions) == 0
        assert sum(one.packets for one in health.retransmissions) == sum(connection.retransmitted_packets)
        assert all(one.packets == 1 for one in health.retransmissions)
        found += [one.retransmission_frame or 0 for one in health.retransmissions]
    assert sorted(found) == MANIFEST[name]["sent_again"]


def test_lost_segments_were_asked_for_and_cost_the_writes_that_waited() -> None:
    seen = analyzed("loss-siw")
    health = seen.analyzer.health(1)
    assert health.causes == {"fast retransmit": 5}
    assert [one.duplicate_acks for one in health.directions] == [0, 14]
    paid = [rpc for rpc in seen.rpcs if rpc.retransmission_delay]
    assert paid and all("WRITE" in rpc.operations for rpc in paid)


@pytest.mark.parametrize("name", ["loss-rxe", "loss-siw", "rxe-nfs-all", "siw-nfs-all"])
def test_nothing_is_captured_behind_its_answer(name: str) -> None:
    """Not even where a Read is resumed behind responses that were lost."""
    assert not any(one.disordered for one in analyzed(name).analyzer.connections)


@pytest.mark.parametrize("name", ["loss-rxe", "loss-siw", "rxe-nfs-all", "siw-nfs-all"])
def test_every_record_gives_one_number_for_what_was_sent(name: str) -> None:
    analyzer = analyzed(name).analyzer
    shared: tuple[str, ...] = ("packets", "segments", "fpdus", "bytes")
    shared += tuple(f"{what}_{unit}" for what in ("retransmitted", "missing") for unit in ("packets", "segments"))
    for conversation in analyzer.conversations:
        health = analyzer.health(conversation.connection.number)
        one, other = connection_record(conversation), transport_record(conversation, health)
        for end, direction in zip(("active", "passive"), health.directions, strict=True):
            assert [one[end][key] for key in shared] == [other[end][key] for key in shared]
            retransmitted = one[end]["retransmitted_packets"], one[end]["retransmitted_segments"]
            assert direction.retransmitted.packets in retransmitted and None in retransmitted
            causes = {cause: tally for cause, tally in direction.causes.items() if cause != "duplicate"}
            assert sum(tally.packets for tally in causes.values()) == direction.retransmitted.packets
