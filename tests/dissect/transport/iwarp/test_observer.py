"""iWARP conversations with known contents, and what the observer makes of them."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from playbook.capture import frame_batches
from playbook.segments import Segment, Talk, pattern, read_request, response, send, snapped, untagged, write
from playbook.streams import CALL, DATA, REPLY, WHOLE, Seen, contents, observe, seen, talk
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.tcp import locate_tcp
from rdmascope.dissect.transport.connection import Registry
from rdmascope.dissect.transport.iwarp.observer import IwarpObserver, TcpRun
from rdmascope.dissect.transport.operations import Kind

ALL_WAYS = pytest.mark.parametrize("markers", [(False, False), (True, False), (False, True), (True, True)])


@ALL_WAYS
@pytest.mark.parametrize("crc", [False, True])
def test_a_conversation_comes_out_whole(markers: tuple[bool, bool], crc: bool) -> None:
    observer, operations = observe(talk(markers=markers, crc=crc))
    assert seen(operations) == WHOLE
    assert operations[-1].invalidate == 0x11
    connection = observer.registry.connections[0]
    assert connection.transport == "iWARP"
    assert [str(end) for end in connection.endpoints] == ["10.0.0.1:40000", "10.0.0.2:20049"]
    assert connection.paired_by == "TCP" and connection.service_port == 20049
    assert connection.missing_packets == connection.retransmitted_packets == (0, 0)


@ALL_WAYS
@pytest.mark.parametrize("size", [23, 100, 511, 1460, 9000])
def test_however_the_bytes_are_cut_into_segments(markers: tuple[bool, bool], size: int) -> None:
    whole = talk(markers=markers, crc=True)
    cut: list[Segment] = []
    for segment in whole.segments:
        if segment.payload.startswith(b"MPA"):
            cut.append(segment)
            continue
        parts = [segment.payload[at : at + size] for at in range(0, len(segment.payload), size)] or [b""]
        for number, part in enumerate(parts):
            cut.append(replace(segment, seq=(segment.seq + number * size) % (1 << 32), payload=part))
    assert seen(observe(whole, cut)[1]) == WHOLE


@ALL_WAYS
def test_batches_may_end_anywhere(markers: tuple[bool, bool]) -> None:
    made = talk(markers=markers, crc=True)
    for step in (1, 2, 5):
        _, operations = observe(made, cuts=range(0, len(made.segments), step))
        assert seen(operations) == WHOLE


def test_sequence_numbers_wrap() -> None:
    made = Talk(seqs=((1 << 32) - 2000, (1 << 32) - 1))
    made.open()
    made.greet(markers=(True, True), crc=True)
    messages = [pattern(number, 900) for number in range(20)]
    for msn, message in enumerate(messages, 1):
        made.say(0, send(msn, message))
        made.say(1, send(msn, message[::-1]))
    for cuts in ((), range(len(made.segments))):
        _, operations = observe(made, cuts=cuts)
        assert [contents(one) for one in operations if one.initiator == 0] == messages
        assert [contents(one) for one in operations if one.initiator == 1] == [one[::-1] for one in messages]


def test_segments_out_of_order_and_twice() -> None:
    made = talk(markers=(True, True), crc=True)
    late = made.segments.copy()
    late[20], late[21], late[24] = late[24], late[20], late[21]
    twice = [*late[:30], *late[10:25], *late[30:]]
    for cuts in ((), (21, 22, 23, 31), range(len(twice))):
        _, operations = observe(made, twice, cuts)
        assert seen(operations) == WHOLE


def test_an_overlapping_retransmission_adds_only_what_is_new() -> None:
    made = talk()
    data = [number for number, one in enumerate(made.segments) if one.sender == 0 and len(one.payload) > 1000]
    first, second, third = (made.segments[number] for number in data[3:6])
    joined = replace(second, seq=second.seq - 500, payload=first.payload[-500:] + second.payload + third.payload[:400])
    segments = made.segments.copy()
    segments[data[4]] = joined
    assert seen(observe(made, segments)[1]) == WHOLE


def test_keep_alives_are_no_data() -> None:
    made = talk()
    end = len(made.segments)
    alive = [
        Segment(side, (made.sides[side].next - 1) % (1 << 32), made.sides[1 - side].next, b"\0") for side in (0, 1)
    ]
    segments = [*made.segments, *alive, *alive]
    made.segments = segments
    made.say(0, send(2, CALL))
    observer, operations = observe(made, cuts=(end,))
    assert seen(operations) == [*WHOLE, Seen(Kind.SEND, 0, 0, 0, CALL)]
    assert observer.registry.connections[0].retransmitted_packets == (0, 0)


def test_data_retransmitted_behind_a_keep_alive_contradict_nothing() -> None:
    """Its octet need not be that of the data, RFC 9293, 3.8.4."""
    for cuts in ((), range(20)):
        made = Talk()
        made.open()
        made.greet(crc=True)
        made.say(0, send(1, CALL))
        sent = made.segments[-1]
        end = made.sides[0].next
        made.segments.append(Segment(0, (end - 1) % (1 << 32), made.sides[1].next, b"\0"))
        made.segments.append(replace(sent, seq=sent.seq + 10, payload=sent.payload[10:]))
        observer, operations = observe(made, cuts=cuts)
        assert [contents(one) for one in operations] == [CALL]
        assert observer.registry.connections[0].contradicted == ([], [])


# Bytes that are not in the capture


def test_a_missing_segment_is_a_gap_and_never_closed_up() -> None:
    made = talk(crc=True)
    index = next(number for number, one in enumerate(made.segments) if one.sender == 0 and len(one.payload) > 1000) + 7
    for cuts in ((), range(len(made.segments))):
        observer, operations = observe(made, [*made.segments[:index], *made.segments[index + 1 :]], cuts)
        read = next(one for one in operations if one.kind is Kind.READ)
        assert read.gaps == [(7 * 1400, 8 * 1400)]
        assert [piece.captured for piece in read.payload.pieces() if piece.at == 8 * 1400] == [1400]
        assert seen(operations)[:2] == WHOLE[:2] and seen(operations)[-1] == WHOLE[-1]
        connection = observer.registry.connections[0]
        assert connection.missing_packets == (1, 0)
        missing = len(made.segments[index].payload)
        assert [gap.end - gap.start for gap in connection.gaps[0]] == [missing] and not connection.gaps[1]


def test_a_gap_inside_an_fpdu_does_not_lose_the_next_one() -> None:
    made = Talk()
    made.open()
    made.greet()
    made.say(0, [*send(1, DATA), *send(2, CALL)], sizes=(2000, 1000))
    made.say(1, send(1, REPLY))
    del made.segments[-3]
    _, operations = observe(made)
    assert operations[0].gaps == [(1980, 2980)]
    assert seen(operations)[1:] == [Seen(Kind.SEND, 0, 0, 0, CALL), Seen(Kind.SEND, 1, 0, 0, REPLY)]


@pytest.mark.parametrize("first", [1, 2, 3])
def test_a_segment_behind_a_gap_may_have_only_a_part_of_the_length_and_control(first: int) -> None:
    made = Talk()
    made.open()
    made.greet(crc=True)
    made.say(0, send(1, DATA[:400]))
    made.say(0, send(2, CALL), sizes=(first, len(CALL) + 100))
    made.say(1, send(1, REPLY))
    del made.segments[-4]
    _, operations = observe(made)
    assert seen(operations) == [Seen(Kind.SEND, 0, 0, 0, CALL), Seen(Kind.SEND, 1, 0, 0, REPLY)]


@ALL_WAYS
@pytest.mark.parametrize("crc", [False, True])
def test_boundaries_are_found_again_behind_a_gap(markers: tuple[bool, bool], crc: bool) -> None:
    made = Talk()
    made.open()
    made.greet(markers=markers, crc=crc)
    messages = {msn: pattern(msn, 300 + 17 * msn) for msn in range(1, 41)}
    for msn, message in messages.items():
        made.say(0, send(msn, message), sizes=(100,))
    made.acknowledge(1)
    # The end of one message, a whole one, and the head of the one behind: nothing says where the next begins.
    lost = made.segments[15:18]
    _, operations = observe(made, [one for one in made.segments if one not in lost])
    found = {one.psn: contents(one) for one in operations}
    assert all(found[msn] in (None, messages[msn]) for msn in found)
    assert [msn for msn in messages if found.get(msn) is None] in ([6, 7], [5, 6, 7], [6, 7, 8], [5, 6])


def test_a_wrong_crc_is_not_delivered() -> None:
    made = Talk()
    made.open()
    made.greet(crc=True)
    made.say(0, send(1, CALL))
    made.say(0, send(2, DATA), wrong_crc=True)
    made.say(0, send(3, REPLY))
    observer, operations = observe(made)
    assert [(one.psn, contents(one)) for one in operations] == [(1, CALL), (3, REPLY)]
    assert observer.connections[1].transport_health().directions[0].crc_failures == (7,)


def test_markers_that_point_elsewhere_make_no_wrong_bytes() -> None:
    made = Talk()
    made.open()
    made.greet(markers=(True, False))
    made.sides[0].base += 4
    made.say(0, send(1, CALL))
    made.say(0, send(2, DATA))
    _, operations = observe(made)
    assert all(contents(one) in (None, CALL) for one in operations)


@pytest.mark.parametrize("snap", [20, 48, 64])
def test_truncated_frames_tell_lengths_and_headers(snap: int) -> None:
    made = Talk()
    made.open()
    made.greet()
    made.say(0, send(1, CALL))
    for ulpdu in [*write(0x11, 0x1000, DATA, 1400), *read_request(1, (0x77, 0x500), 1000, (0x22, 0x9000))]:
        made.say(1, [ulpdu])
    made.say(0, response(0x77, 0x500, pattern(9, 1000)))
    made.say(1, [*send(1, REPLY), *send(2, CALL)])
    segments = [*made.segments[:5], *snapped(made.segments[5:], snap)]
    _, operations = observe(made, segments)
    facts = [(one.kind, one.handle, one.address, one.length, one.payload.seen) for one in operations]
    expected = [(Kind.SEND, 0, 0, 90, 90), (Kind.WRITE, 0x11, 0x1000, 5000, 5000), (Kind.SEND, 0, 0, 101, 101)]
    if snap > 20:
        expected.insert(2, (Kind.READ, 0x22, 0x9000, 1000, 1000))
    assert facts == expected
    assert all(one.payload.truncated for one in operations)


# Starts in mid-stream


@ALL_WAYS
@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("ports", [(40000, 20049), (40000, 7000)])
def test_a_start_in_mid_stream(markers: tuple[bool, bool], crc: bool, ports: tuple[int, int]) -> None:
    made = Talk(ports=ports)
    made.open()
    made.greet(markers=markers, crc=crc)
    messages = {msn: pattern(msn, 150 + 31 * msn) for msn in range(1, 31)}
    for msn, message in messages.items():
        made.say(0, send(msn, message))
        made.say(1, write(5, msn << 20, message))
    observer, operations = observe(made, made.segments[9:])
    assert len(observer.registry.connections) == 1
    connection = observer.registry.connections[0]
    assert [end.port for end in connection.endpoints] == list(ports)
    assert connection.evidence
    sends = {one.psn: contents(one) for one in operations if one.kind is Kind.SEND}
    assert all(messages[msn] == data for msn, data in sends.items())
    writes = {one.address >> 20: contents(one) for one in operations if one.kind is Kind.WRITE}
    assert all(messages[msn] == data for msn, data in writes.items())
    assert len(sends) >= 24 and len(writes) >= 24


@pytest.mark.parametrize("markers", [(False, True), (True, True)])
@pytest.mark.parametrize("left", range(1, 13))
def test_a_start_shortly_before_the_end(markers: tuple[bool, bool], left: int) -> None:
    """One marker is enough where the CRCs fit with it; where it stands differs with each start."""
    made = Talk()
    made.open()
    made.greet(markers=markers, crc=True)
    messages = [pattern(msn, 90 + 13 * (msn % 5)) for msn in range(1, 25)]
    for msn, message in enumerate(messages, 1):
        made.say(1, send(msn, message))
    made.say(0, send(1, CALL))
    last = [index for index, one in enumerate(made.segments) if one.sender == 1 and one.payload][-left]
    segments = made.segments[last:]
    for cuts in ((), range(len(segments))):
        _, operations = observe(made, segments, cuts)
        assert [contents(one) for one in operations] == [*messages[-left:], CALL]
    _, operations = observe(made, snapped(segments, 60))
    assert all(contents(one) in messages or one.payload.truncated for one in operations)


@pytest.mark.parametrize("earlier", range(1, 12))
def test_payload_that_looks_like_a_marker(earlier: int) -> None:
    """It points to the begin of its FPDU, as the marker in the same one does: the CRC covers both, and cannot tell."""
    message = pattern(1, 80) + struct.pack(">I", 2 + 18 + 80) + pattern(2, 360)
    made = Talk()
    made.open()
    made.greet(markers=(False, True), crc=True)
    for msn in range(1, earlier + 1):
        made.say(1, send(msn, pattern(msn, 60)))
    made.say(1, send(earlier + 1, message))
    made.say(0, send(1, CALL))
    _, operations = observe(made, made.segments[-2:])
    assert all(contents(one) in (message, CALL) for one in operations)


def test_a_start_inside_an_fpdu() -> None:
    made = talk(crc=True)
    segments = made.segments.copy()
    middle = next(number for number, one in enumerate(segments) if one.sender == 0 and len(one.payload) > 1000) + 5
    first = segments[middle]
    segments[middle] = replace(first, seq=first.seq + 333, payload=first.payload[333:])
    _, operations = observe(made, segments[middle:])
    assert seen(operations) == [WHOLE[-1]]


def test_one_direction_is_enough() -> None:
    made = talk()
    observer, operations = observe(made, [one for one in made.segments if one.sender == 1])
    assert seen(operations)[0] == WHOLE[1] and seen(operations)[-1] == WHOLE[-1]
    assert observer.registry.connections[0].endpoints[1].port == 20049


# Messages


def test_atomics_and_immediate_data_are_recognised() -> None:
    made = Talk()
    made.open()
    made.greet()
    made.say(0, [untagged(10, 1, 1, struct.pack(">IIIQQQQQ", 0, 9, 0x55, 0x7000, 1, 0, 0, 0))])
    made.say(1, [untagged(11, 3, 1, struct.pack(">IQ", 9, 41))])
    made.say(0, [untagged(8, 0, 1, struct.pack(">Q", 77))])
    _, operations = observe(made)
    assert [(one.kind, one.handle, one.address, one.immediate) for one in operations] == [
        (Kind.ATOMIC, 0x55, 0x7000, None),
        (Kind.SEND, 0, 0, 77),
    ]


def test_reads_of_one_sink_are_answered_in_order() -> None:
    made = Talk()
    made.open()
    made.greet()
    parts = [pattern(number, 3000) for number in range(3)]
    for msn in range(3):
        made.say(1, read_request(msn + 1, (7, 0x4000), 3000, (9, msn << 16)))
    for part in parts:
        made.say(0, response(7, 0x4000, part, 1000))
    _, operations = observe(made)
    assert [contents(one) for one in operations] == parts


def test_a_lost_response_is_not_made_up_of_the_next() -> None:
    """A Send behind the gap tells of it; the response behind that is of the Read that was asked for last."""
    made = Talk()
    made.open()
    made.greet()
    for msn in (1, 2):
        made.say(0, read_request(msn, (7, 0x4000), 900, (9, msn << 16)))
        made.say(1, response(7, 0x4000, pattern(msn, 900)))
        made.say(1, send(msn, CALL))
    made.acknowledge(0)
    segments = [one for number, one in enumerate(made.segments) if number != 6]
    _, operations = observe(made, segments)
    reads = [contents(one) for one in operations if one.kind is Kind.READ]
    assert reads == [None, pattern(2, 900)]


def test_snapped_to_nothing_is_nothing() -> None:
    made = talk()
    assert seen(observe(made, snapped(made.segments, 0))[1]) == []


def test_the_octet_of_a_keep_alive_is_not_taken_for_the_one_that_is_missing() -> None:
    """The segment before it was lost on the way to the capture point, and comes again."""
    for cuts in ((), range(20)):
        made = Talk()
        made.open()
        made.greet(crc=True)
        made.say(0, send(1, CALL))
        lost = made.segments.pop()
        end = made.sides[0].next
        made.segments.append(Segment(0, (end - 1) % (1 << 32), made.sides[1].next, b"\0"))
        made.say(0, send(2, REPLY))
        made.segments.append(lost)
        _, operations = observe(made, cuts=cuts)
        assert [contents(one) for one in operations] == [CALL, REPLY]


def test_messages_between_gaps_are_rows() -> None:
    made = Talk()
    made.open()
    made.greet()
    for msn in range(1, 601):
        for sender in (0, 1):
            made.say(sender, send(msn, pattern(msn, 60 + sender)))
    lost = [place for place in range(101, 1101, 30) if made.segments[place].payload]
    kept = [one for place, one in enumerate(made.segments) if place not in lost]
    (batch,) = frame_batches(made.frames(kept), ())
    observer, runs = IwarpObserver(Registry([]), frozenset({20049})), list[TcpRun]()
    rows = locate_tcp(batch, locate(batch, AddressTable()).tcp, observer.addresses)
    events = [*observer.feed(batch.data, rows, runs), *observer.finish()]
    sent = 1200 - len(lost)
    assert sum(len(run) for _, run in runs) + len(events) == sent
    assert sum(len(run) for _, run in runs) > sent * 3 // 4
    ((_, tcp),) = observer.connections.items()
    assert not any(direction.framing.lost for direction in tcp.directions)
    assert sum(tcp.connection.missing_packets if tcp.connection else ()) == len(lost)
