"""iWARP conversations with known contents, and what the observer makes of them."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from playbook.capture import frame_batches
from playbook.segments import (
    ACK,
    ENHANCED,
    FIN,
    REJECT,
    RST,
    SYN,
    Segment,
    Talk,
    pattern,
    read_request,
    response,
    send,
    snapped,
    tagged,
    untagged,
    write,
)
from rdmascope.dissect.addresses import AddressTable
from rdmascope.dissect.analyzer import Analyzer
from rdmascope.dissect.connection import Connection, Registry
from rdmascope.dissect.iwarp.observer import Observer
from rdmascope.dissect.network import locate
from rdmascope.dissect.operations import Kind, Operation

PRIVATE = bytes.fromhex("f6ab0e1801010303")


class Seen(NamedTuple):
    kind: Kind
    initiator: int
    handle: int
    address: int
    data: bytes | None
    """None where bytes are missing."""


def observe(
    talk: Talk,
    segments: Sequence[Segment] | None = None,
    cuts: Sequence[int] = (),
    ports: frozenset[int] = frozenset({20049}),
) -> tuple[Observer, list[Operation]]:
    connections: list[Connection] = []
    observer = Observer(Registry(connections), ports)
    events = []
    for batch in frame_batches(talk.frames(segments), cuts):
        located = locate(batch, AddressTable())
        if located.tcp:
            events += observer.feed(batch, located.tcp)
    events += observer.finish()
    return observer, [operation for _, _, operation in events]


def contents(operation: Operation) -> bytes | None:
    payload = operation.payload
    if not payload.whole:
        return None
    pieces = list(payload.pieces())
    return b"".join(piece.data[piece.offset : piece.offset + piece.captured].tobytes() for piece in pieces)


def seen(operations: Sequence[Operation]) -> list[Seen]:
    return [Seen(one.kind, one.initiator, one.handle, one.address, contents(one)) for one in operations]


CALL, DATA, LONG, REPLY = (pattern(number, length) for number, length in enumerate((90, 5000, 70_000, 101)))


def talk(**how: object) -> Talk:
    """A call, an RDMA Write of 5,000 bytes, an RDMA Read of 70,000, and the reply."""
    made = Talk()
    made.open()
    made.greet(**how)  # type: ignore[arg-type]
    made.say(0, send(1, CALL))
    made.say(1, write(0x11, 0x1000, DATA, 1400))
    made.say(1, read_request(1, (0x77, 0x500), len(LONG), (0x22, 0x9000)))
    for ulpdu in response(0x77, 0x500, LONG, 1400):
        made.say(0, [ulpdu])
    made.say(1, send(1, REPLY, invalidate=0x11))
    made.acknowledge(0)
    return made


WHOLE = [
    Seen(Kind.SEND, 0, 0, 0, CALL),
    Seen(Kind.WRITE, 1, 0x11, 0x1000, DATA),
    Seen(Kind.READ, 1, 0x22, 0x9000, LONG),
    Seen(Kind.SEND, 1, 0, 0, REPLY),
]
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
    assert connection.missing_packets == connection.retransmitted_packets == [0, 0]


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
    assert observer.registry.connections[0].retransmitted_packets == [0, 0]


# Bytes that are not in the capture


def test_a_missing_segment_is_a_hole_and_never_closed_up() -> None:
    made = talk(crc=True)
    index = next(number for number, one in enumerate(made.segments) if one.sender == 0 and len(one.payload) > 1000) + 7
    for cuts in ((), range(len(made.segments))):
        observer, operations = observe(made, [*made.segments[:index], *made.segments[index + 1 :]], cuts)
        read = next(one for one in operations if one.kind is Kind.READ)
        assert read.holes == [(7 * 1400, 8 * 1400)]
        assert [piece.captured for piece in read.payload.pieces() if piece.at == 8 * 1400] == [1400]
        assert seen(operations)[:2] == WHOLE[:2] and seen(operations)[-1] == WHOLE[-1]
        assert observer.registry.connections[0].missing_packets == [1, 0]


def test_a_hole_inside_an_fpdu_does_not_lose_the_next_one() -> None:
    made = Talk()
    made.open()
    made.greet()
    made.say(0, [*send(1, DATA), *send(2, CALL)], sizes=(2000, 1000))
    made.say(1, send(1, REPLY))
    del made.segments[-3]
    _, operations = observe(made)
    assert operations[0].holes == [(1980, 2980)]
    assert seen(operations)[1:] == [Seen(Kind.SEND, 0, 0, 0, CALL), Seen(Kind.SEND, 1, 0, 0, REPLY)]


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
    assert observer.links[1].health.result().directions[0].crc_failures == (7,)


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
def test_cut_frames_tell_lengths_and_headers(snap: int) -> None:
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


# Set-up and end


def test_mpa_revision_2() -> None:
    made = Talk(ports=(40000, 999))
    made.open()
    words = [struct.pack(">HH", 0x8000 | 0x4000 | 16, 0x4000 | 0), struct.pack(">HH", 0x8000 | 0, 0x4000 | 8)]
    private = words[0] + b"hi!" + PRIVATE, words[1] + PRIVATE
    made.greet(revision=2, flags=(ENHANCED, ENHANCED), private=private)
    made.say(0, [b""])
    made.say(0, send(1, CALL))
    observer, operations = observe(made)
    assert seen(operations) == [Seen(Kind.SEND, 0, 0, 0, CALL)]
    active, passive = observer.registry.connections[0].endpoints
    assert (active.responder_resources, active.initiator_depth) == (16, 0)
    assert (passive.responder_resources, passive.initiator_depth) == (0, 8)
    assert active.private_data is not None and active.private_data.offset == 7
    assert passive.private_data is not None and passive.private_data.offset == 4
    assert active.private_data_seen and passive.private_data_seen
    assert observer.registry.connections[0].inline_threshold(0) == (4096, "private data")


@pytest.mark.parametrize("ready", [write(0, 0, b""), untagged(3, 0, 1, b""), read_request(1, (0, 0), 0, (0, 0))])
def test_the_first_message_of_peer_to_peer_set_up_is_none(ready: list[bytes] | bytes) -> None:
    made = Talk()
    made.open()
    made.greet(revision=2, flags=(ENHANCED, ENHANCED), private=(b"\xc0\x10\xc0\x10", b"\xc0\x10\xc0\x10"))
    made.say(0, [ready] if isinstance(ready, bytes) else ready)
    made.say(0, send(2, CALL))
    assert seen(observe(made)[1]) == [Seen(Kind.SEND, 0, 0, 0, CALL)]


def test_a_refused_connection() -> None:
    made = Talk(ports=(40000, 4210))
    made.open()
    made.greet(flags=(0, REJECT), private=(b"", b"no\0"))
    observer, operations = observe(made)
    assert operations == []
    assert observer.registry.connections[0].ended_by == "MPA reject"


@pytest.mark.parametrize(
    ("flags", "sender", "how"),
    [
        (FIN | ACK, 0, "FIN from the active side"),
        (FIN | ACK, 1, "FIN from the passive side"),
        (RST, 1, "RST from the passive side"),
    ],
)
def test_how_it_ended(flags: int, sender: int, how: str) -> None:
    made = talk()
    made.segments.append(Segment(sender, made.sides[sender].next, made.sides[1 - sender].next, b"", flags))
    observer, operations = observe(made)
    assert seen(operations) == WHOLE
    assert observer.registry.connections[0].ended_by == how


def test_a_terminate_names_layer_type_and_code_and_quotes_the_header() -> None:
    made = talk()
    quoted = tagged(0, 0x11, 0x1000, b"")
    made.say(0, [untagged(7, 2, 1, struct.pack(">BBHH", 0x01, 0x00, 0xC000, 1414) + quoted)])
    made.segments.append(Segment(0, made.sides[0].next, made.sides[1].next, b"", FIN | ACK))
    observer, _ = observe(made)
    connection = observer.registry.connections[0]
    assert connection.ended_by == "Terminate (RDMA, Remote Protection Error, Invalid STag) from the active side"
    terminate = observer.links[1].health.terminates[0][0]
    assert (terminate.segment_length, terminate.header) == (1414, quoted)


def test_the_ports_used_again() -> None:
    first, second = talk(), Talk(seqs=(500_000_000, 77))
    second.open()
    second.greet(crc=True, markers=(True, True))
    second.say(0, send(1, CALL))
    observer, operations = observe(first, [*first.segments, *second.segments])
    assert [connection.number for connection in observer.registry.connections] == [1, 2]
    assert sorted(seen(operations)) == sorted([*WHOLE, Seen(Kind.SEND, 0, 0, 0, CALL)])


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


# What is no iWARP


def test_the_exchange_is_recognised_on_any_port() -> None:
    made = talk()
    made.ports = 1234, 5678
    assert seen(observe(made)[1]) == WHOLE


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("ports", [(40000, 80), (40000, 20049)])
def test_other_tcp_is_passed_over(opened: bool, ports: tuple[int, int]) -> None:
    made = Talk(ports=ports)
    if opened:
        made.open()
    for number in range(300):
        made.put(0, pattern(number, 200))
        made.put(1, bytes(700) + b"ACACACAC" * 50)
    observer, operations = observe(made, cuts=range(0, 600, 50))
    assert not operations and not observer.registry.connections and not observer.taken


def test_a_late_exchange_is_found() -> None:
    made = Talk(ports=(40000, 3260))
    made.open()
    for number in range(200):
        made.put(0, pattern(number, 48))
    made.greet(crc=True)
    made.say(0, send(1, CALL))
    assert seen(observe(made, cuts=(100,))[1]) == [Seen(Kind.SEND, 0, 0, 0, CALL)]


def test_a_syn_that_opens_nothing_new_changes_nothing() -> None:
    made = talk()
    again = Segment(0, made.seqs[0], 0, b"", SYN)
    assert seen(observe(made, [*made.segments[:12], again, *made.segments[12:]])[1]) == WHOLE


def test_snapped_to_nothing_is_nothing() -> None:
    made = talk()
    assert seen(observe(made, snapped(made.segments, 0))[1]) == []


# Anything at all


class Said(NamedTuple):
    """A message: who says it, what kind, how long; with a number it is unlike all others."""

    sender: int
    kind: str
    length: int


@dataclass(frozen=True)
class Script:
    markers: tuple[bool, bool]
    crc: bool
    mtu: int
    said: tuple[Said, ...]
    sizes: tuple[int, ...]
    """Of segments, in turn."""

    def play(self) -> tuple[Talk, list[Seen]]:
        made, expected = Talk(seqs=((1 << 32) - 3000, 5)), []
        made.open()
        made.greet(markers=self.markers, crc=self.crc)
        msn, asked = [0, 0], [0, 0]
        for number, (sender, kind, length) in enumerate(self.said, 1):
            data, sizes = pattern(number, length), self.sizes[number % 3 :]
            if kind == "send":
                msn[sender] += 1
                made.say(sender, send(msn[sender], data, self.mtu), sizes)
                expected.append(Seen(Kind.SEND, sender, 0, 0, data))
            elif kind == "write":
                made.say(sender, write(number, number << 32, data, self.mtu), sizes)
                expected.append(Seen(Kind.WRITE, sender, number, number << 32, data))
            else:
                asked[sender] += 1
                made.say(sender, read_request(asked[sender], (7, 0), length, (number, number << 32)))
                made.say(1 - sender, response(7, 0, data, self.mtu), sizes)
                expected.append(Seen(Kind.READ, sender, number, number << 32, data))
            made.acknowledge(1 - sender)
        made.acknowledge(0)
        return made, expected


scripts = st.builds(
    Script,
    markers=st.tuples(st.booleans(), st.booleans()),
    crc=st.booleans(),
    mtu=st.sampled_from([37, 128, 1000, 1 << 16]),
    said=st.lists(
        st.builds(
            Said,
            st.integers(0, 1),
            st.sampled_from(["send", "write", "read"]),
            st.one_of(st.integers(1, 300), st.integers(1, 3000)),
        ),
        min_size=1,
        max_size=12,
    ).map(tuple),
    sizes=st.lists(st.integers(1, 1500), max_size=6).map(tuple),
)
QUICK = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
CUTS = st.lists(st.integers(0, 1000), max_size=3)


@QUICK
@given(scripts, CUTS, st.randoms(use_true_random=False))
def test_what_arrives_late_or_twice_comes_out_whole(script: Script, cuts: list[int], chance: random.Random) -> None:
    made, expected = script.play()
    segments = made.segments[:5]
    for segment in made.segments[5:]:
        segments.append(segment)
        if chance.random() < 0.2:
            segments.append(chance.choice(segments[3:]))
        if chance.random() < 0.2 and len(segments) > 6 and segments[-2].sender == segments[-1].sender:
            segments[-2:] = reversed(segments[-2:])
    _, operations = observe(made, segments, cuts)
    assert sorted(seen(operations)) == sorted(expected)


@QUICK
@given(scripts, CUTS, st.sets(st.integers(0, 200), max_size=12), st.sampled_from([None, None, 40, 200]))
def test_what_the_capture_lacks_is_never_made_up(
    script: Script, cuts: list[int], lost: set[int], snap: int | None
) -> None:
    made, expected = script.play()
    segments = [replace(one, snap=snap) for number, one in enumerate(made.segments) if number not in lost]
    _, operations = observe(made, segments, cuts)
    truth: dict[tuple[Kind, int, int], list[bytes]] = {}
    for one in expected:
        assert one.data is not None
        truth.setdefault((one.kind, one.initiator, one.handle), []).append(one.data)
    for operation in operations:
        key = operation.kind, operation.initiator, operation.handle
        assert key in truth
        place = operation.psn - 1 if operation.kind is Kind.SEND else 0
        data = truth[key][place]
        skipped = operation.address & 0xFFFFFFFF
        for piece in operation.payload.pieces():
            there = piece.data[piece.offset : piece.offset + piece.captured].tobytes()
            assert there == data[skipped + piece.at : skipped + piece.at + piece.captured]


@QUICK
@given(scripts, st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=30), CUTS)
def test_broken_bytes_raise_nothing(script: Script, changes: list[tuple[int, int]], cuts: list[int]) -> None:
    made, _ = script.play()
    frames = made.frames()
    broken = [bytearray(frame.data) for frame in frames]
    for place, value in changes:
        data = broken[place % len(broken)]
        data[14 + place // 7 % (len(data) - 14)] = value
    analyzer = Analyzer()
    shown = [replace(frame, data=bytes(data)) for frame, data in zip(frames, broken, strict=True)]
    for batch in frame_batches(shown, cuts):
        analyzer.feed(batch)
    analyzer.finish()
    for connection in analyzer.connections:
        analyzer.health(connection.number)


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
