"""Records over TCP without RDMA: whatever segments carry them, whatever is lost, whenever the capture begins."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from playbook.capture import frame_batches
from playbook.rpc import opaque, u32
from playbook.segments import STEP, SYN, Segment, Talk, pattern
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpcs import Reassembled, Rpc

QUICK = settings(suppress_health_check=list(HealthCheck), deadline=None)
CUTS = st.lists(st.integers(0, 200), max_size=5)
NFS, CALLBACK, READ, WRITE = 100003, 0x40000000, 6, 7
HANDLE = b"handle of a file"


class Exchange(NamedTuple):
    caller: int
    call: bytes
    reply: bytes


def head(xid: int, procedure: int, program: int = NFS) -> bytes:
    return u32(xid, 0, 2, program, 3 if program == NFS else 1, procedure) + u32(0, 0, 0, 0)


def exchange(number: int, size: int, kind: int, caller: int = 0) -> Exchange:
    """A READ or a WRITE of so many bytes that no other has, or a callback."""
    xid, data, fine = 0x1000 + number, pattern(number, size), u32(0x1000 + number, 1, 0, 0, 0, 0, 0)
    if caller:
        return Exchange(1, head(xid, 0, CALLBACK), fine[:-4])
    if kind == READ:
        call = head(xid, READ) + opaque(HANDLE) + struct.pack(">QI", 0, size)
        return Exchange(0, call, fine + u32(0, size, 1) + opaque(data))
    call = head(xid, WRITE) + opaque(HANDLE) + struct.pack(">QII", 0, size, 0) + opaque(data)
    return Exchange(0, call, fine + u32(0, 0, size, 0) + bytes(8))


def record(message: bytes, at: Sequence[int] = ()) -> bytes:
    """In fragments that end at these places, and one with the rest (RFC 5531, 11)."""
    edges = sorted({0, len(message), *(one % len(message) for one in at)})
    parts = [message[a:b] for a, b in pairwise(edges)]
    return b"".join(u32((part is parts[-1]) << 31 | len(part)) + part for part in parts)


class Story(NamedTuple):
    exchanges: list[Exchange]
    segments: list[Segment]

    def true(self, rpc: Rpc) -> bool:
        """No byte of it is wrong."""
        messages = {one.call for one in self.exchanges} | {one.reply for one in self.exchanges}
        found = [one for one in (reassembled_call(rpc), reassembled_reply(rpc)) if one is not None]
        return all(agrees(one, messages) for one in found)

    def complete(self, rpcs: list[Rpc]) -> bool:
        """All that were told, and no other."""
        return sorted(told(rpc) for rpc in rpcs) == sorted((0x1000 + i, *one) for i, one in enumerate(self.exchanges))


def told(rpc: Rpc) -> tuple[int, int, bytes, bytes]:
    call, reply = reassembled_call(rpc), reassembled_reply(rpc)
    assert call is not None and reply is not None and rpc.state == "complete"
    return rpc.xid, int(rpc.backward), call.prefix, reply.prefix


def agrees(message: Reassembled, messages: set[bytes]) -> bool:
    """One of the messages has all of its pieces."""
    same = [
        one for one in messages if len(one) == message.length or (len(one) > message.length and not message.complete)
    ]
    return any(all(one[at : at + len(data)] == data for at, data in message.pieces) for one in same)


@st.composite
def stories(draw: st.DrawFn, port: int = 2049) -> Story:
    sizes = draw(st.lists(st.tuples(st.sampled_from([1, 5, 400, 3000, 9001]), st.sampled_from([READ, WRITE]),
                                    st.sampled_from([0, 0, 0, 1])), min_size=1, max_size=12))  # fmt: skip
    random = Random(draw(st.integers(0, 1 << 30)))
    talk = Talk((draw(st.sampled_from([1000, (1 << 32) - 900])), 9_000_000), (40000, port))
    talk.open()
    exchanges = [
        exchange(number, size, kind, caller if number else 0) for number, (size, kind, caller) in enumerate(sizes)
    ]
    waiting: list[Exchange] = []
    mss = draw(st.sampled_from([64, 700, 1448, 60000]))
    for one in exchanges:
        put(talk, one.caller, [one.call], mss, random)
        waiting.append(one)
        while waiting and random.random() < 0.6:
            answered = waiting.pop(random.randrange(len(waiting)))
            put(talk, 1 - answered.caller, [answered.reply], mss, random)
    for answered in waiting:
        put(talk, 1 - answered.caller, [answered.reply], mss, random)
    return Story(exchanges, talk.segments)


def put(talk: Talk, sender: int, messages: list[bytes], mss: int, random: Random) -> None:
    split = len(talk.segments) > 8 and random.random() < 0.1  # The first ones show that they are records.
    # Behind a gap, the end of a fragment of fewer bytes and the next one look like a call of another size.
    data = b"".join(record(one, [random.randrange(12, len(one))] if split else ()) for one in messages)
    talk.put(sender, data, [mss] * (len(data) // mss))


def analysed(talk: Talk, segments: Sequence[Segment], cuts: Sequence[int] = ()) -> list[Rpc]:
    analyzer = Analyzer()
    rpcs = [rpc for batch in frame_batches(talk.frames(segments), cuts) for rpc in analyzer.feed(batch)]
    rpcs += analyzer.finish()
    assert {one.transport for one in analyzer.connections} <= {"TCP"}
    return sorted(rpcs, key=lambda one: one.number)


def found_of(rpcs: list[Rpc]) -> list[object]:
    """Which bytes of their messages are there."""
    messages = [one for rpc in rpcs for one in (reassembled_call(rpc), reassembled_reply(rpc))]
    return [None if one is None else (one.length, one.pieces) for one in messages]


def described(rpcs: list[Rpc]) -> list[tuple[object, ...]]:
    return [
        (rpc.number, rpc.connection.number, rpc.backward, rpc.xid, rpc.name, rpc.status, rpc.state, rpc.call_frame,
         rpc.reply_frame, rpc.contents, rpc.damage, rpc.notes)
        for rpc in rpcs
    ]  # fmt: skip


@QUICK
@given(stories(), CUTS)
def test_whatever_segments_carry_them(story: Story, cuts: list[int]) -> None:
    assert story.complete(analysed(Talk(ports=(40000, 2049)), story.segments, cuts))


@QUICK
@given(stories(port=5555), st.integers(0, 1 << 30), CUTS)
def test_repeated_overlapping_and_late_segments(story: Story, seed: int, cuts: list[int]) -> None:
    random, segments = Random(seed), list(story.segments)
    for _ in range(6):
        at = random.randrange(3, len(segments))
        one = segments[at]
        if random.random() < 0.5 and len(one.payload) > 2:
            skipped = random.randrange(1, len(one.payload))
            one = replace(one, seq=(one.seq + skipped) % (1 << 32), payload=one.payload[skipped:])
        segments.insert(min(len(segments), at + 1 + random.randrange(4)), one)
    if len(segments) > 8:  # What is later than the next segment; not the first, by which the records are known.
        at = random.randrange(6, len(segments) - 1)
        if segments[at].sender == segments[at + 1].sender:  # A reply before its call may be to another.
            segments[at], segments[at + 1] = segments[at + 1], segments[at]
    assert story.complete(analysed(Talk(ports=(40000, 5555)), segments, cuts))


@QUICK
@given(stories(), st.integers(0, 1 << 30), CUTS)
def test_what_is_lost_makes_no_wrong_bytes(story: Story, seed: int, cuts: list[int]) -> None:
    random = Random(seed)
    kept = [one for one in story.segments if one.flags & SYN or random.random() > 0.1]
    talk = Talk(ports=(40000, 2049))
    rpcs = analysed(talk, kept)
    assert all(story.true(rpc) for rpc in rpcs)
    again = analysed(talk, kept, cuts)
    assert described(rpcs) == described(again) and found_of(rpcs) == found_of(again)


@QUICK
@given(stories(), st.integers(0, 300), CUTS)
def test_a_capture_that_begins_in_the_middle(story: Story, first: int, cuts: list[int]) -> None:
    kept = story.segments[first % len(story.segments) :]
    talk = Talk(ports=(40000, 2049))
    rpcs = analysed(talk, kept)
    assert all(story.true(rpc) for rpc in rpcs)
    assert described(rpcs) == described(analysed(talk, kept, cuts))


@QUICK
@given(stories(), st.sampled_from([0, 40, 100, 500]), CUTS)
def test_truncated_frames(story: Story, snap: int, cuts: list[int]) -> None:
    talk, segments = Talk(ports=(40000, 2049)), [replace(one, snap=snap) for one in story.segments]
    rpcs = analysed(talk, segments)
    assert all(story.true(rpc) for rpc in rpcs)
    assert described(rpcs) == described(analysed(talk, segments, cuts))


@pytest.mark.parametrize("opened", (True, False))
@pytest.mark.parametrize("ends", ((64,), (100, 101), (64, 200, 300)))
def test_what_is_seen_first_of_a_connection_is_a_call_in_several_fragments(ends: Sequence[int], opened: bool) -> None:
    """Of a reply that is, it shows only where the SYN was captured that it follows."""
    talk = Talk((1000, 9_000_000), (40000, 2049))
    talk.open()
    before = len(talk.segments)
    exchanges = [exchange(number, 400, WRITE) for number in range(3)]
    for one in exchanges:
        talk.put(0, record(one.call, ends), [300])
        talk.put(1, record(one.reply, ends if opened else ()), [300])
    segments = talk.segments[0 if opened else before :]
    assert Story(exchanges, segments).complete(analysed(talk, segments))


def test_a_message_whose_end_was_not_captured_has_the_place_of_what_shows_it() -> None:
    talk = Talk(ports=(40000, 2049))
    talk.open()
    for number in range(4):
        one = exchange(number, 400, READ)
        put(talk, 0, [one.call], 1448, Random(1))
        put(talk, 1, [one.reply], 1448, Random(1))
    call, callback = exchange(4, 1, READ), exchange(5, 1, 0, caller=1)
    talk.put(0, record(call.call, [40]), [])
    talk.segments[-1] = replace(talk.segments[-1], snap=40)
    talk.put(1, record(callback.call), [])
    talk.put(1, record(call.reply), [])
    talk.put(0, record(callback.reply), [])
    whole = described(analysed(talk, talk.segments))
    assert [(rpc[3], rpc[6]) for rpc in whole[4:]] == [(0x1005, "complete"), (0x1004, "damaged")]
    for cut in range(len(talk.segments)):
        assert described(analysed(talk, talk.segments, [cut])) == whole


def test_a_lost_segment_costs_the_messages_that_it_carried() -> None:
    talk = Talk(ports=(40000, 2049))
    talk.open()
    exchanges = [exchange(number, 3000, WRITE) for number in range(8)]
    for one in exchanges:
        put(talk, 0, [one.call], 1448, Random(1))
        put(talk, 1, [one.reply], 1448, Random(1))
    lost = next(at for at, one in enumerate(talk.segments) if one.payload == record(exchanges[3].call)[1448:2896])
    rpcs = analysed(talk, [one for at, one in enumerate(talk.segments) if at != lost])
    assert [rpc.state for rpc in rpcs] == [*["complete"] * 3, "damaged", *["complete"] * 4]
    assert rpcs[3].connection.missing_packets == (1, 0)


@pytest.mark.parametrize("ports", [(741, 38717), (50000, 38717)])
@pytest.mark.parametrize("procedures", [(0, 1), (0, 0, 1), (1, 1, 1)])
def test_the_server_calls_on_a_connection_of_its_own_in_version_4_0(
    ports: tuple[int, int], procedures: tuple[int, ...]
) -> None:
    """Its set-up is not in the capture; CB_NULL, and CB_COMPOUND of an empty tag, minor version 0 and no operation."""
    talk = Talk(ports=ports)
    for number, procedure in enumerate(procedures):
        talk.put(0, record(head(number, procedure, CALLBACK) + u32(0, 0, 1, 0) * procedure))
        talk.put(1, record(u32(number, 1, 0, 0, 0, 0) + u32(0, 0, 0) * procedure))
    rpcs = analysed(talk, talk.segments, [])
    assert [(rpc.backward, rpc.connection.endpoints[0].port) for rpc in rpcs] == [(False, ports[0])] * len(procedures)


@pytest.mark.parametrize("ports", [(741, 38717), (50000, 38717)])
@pytest.mark.parametrize("calls", [1, 0])
def test_callbacks_whose_version_is_truncated_are_those_of_later_versions(ports: tuple[int, int], calls: int) -> None:
    """They are taken for callbacks of 4.1 on the client's connection, which a single call of its own proves."""
    talk = Talk(ports=ports)
    for number in range(3):
        talk.put(1, record(head(number, 0, CALLBACK)))
        talk.put(0, record(u32(number, 1, 0, 0, 0, 0)))
    for number in range(10, 10 + calls):
        talk.put(0, record(head(number, 1)))
        talk.put(1, record(u32(number, 1, 0, 0, 0, 0)))
    rpcs = analysed(talk, talk.segments, [])
    assert [rpc.backward for rpc in rpcs] == [True] * 3 + [False] * calls
    assert {rpc.connection.endpoints[0].port for rpc in rpcs} == {ports[0]}


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n" * 9, b"SSH-2.0-OpenSSH_9.2\r\n" * 9, bytes(400)])
def test_other_protocols_are_none(data: bytes) -> None:
    talk = Talk(ports=(40000, 8080))
    talk.open()
    for _ in range(80):
        talk.put(0, data)
        talk.put(1, data)
    analyzer = Analyzer()
    for batch in frame_batches(talk.frames(), [50]):
        assert not analyzer.feed(batch)
    assert not analyzer.finish() and not analyzer.connections


def test_rpc_with_tls_is_encrypted_from_its_handshake_on() -> None:
    """RFC 9289, 4.1: a NULL call with AUTH_TLS, STARTTLS in the reply, then TLS in both directions."""
    talk = Talk(ports=(40000, 2049))
    talk.open()
    talk.put(0, record(u32(7, 0, 2, NFS, 4, 0) + u32(7, 0, 0, 0)))
    talk.put(1, record(u32(7, 1, 0, 0) + opaque(b"STARTTLS") + u32(0)))
    for number in range(100):
        for sender in (0, 1):
            talk.put(sender, (b"\x17" if number else b"\x16") + b"\x03\x03\x01\x00" + pattern(number, 256))
    for cuts in ([], [30, 80]):
        (rpc,) = analysed(talk, talk.segments, cuts)
        assert (rpc.state, rpc.name, rpc.connection.encrypted) == ("complete", "NULL", 6)
        assert not sum(rpc.connection.missing_packets) and not sum(rpc.connection.unread_packets)


@pytest.mark.parametrize("cuts", [[], [1], [2], [3], [1, 2, 3, 4]])
def test_how_far_the_server_is_the_handshake_tells(cuts: list[int]) -> None:
    talk = Talk(ports=(40000, 2049))
    talk.open()
    put(talk, 0, [exchange(0, 5, READ).call], 1448, Random(1))
    put(talk, 1, [exchange(0, 5, READ).reply], 1448, Random(1))
    analyzer = Analyzer()
    for batch in frame_batches(talk.frames(), cuts):
        analyzer.feed(batch)
    health = analyzer.health(1)
    assert health.handshake is not None and health.way_to_server == health.handshake[0] == STEP
    assert health.handshake[1] == (None if cuts == [2] or len(cuts) == 4 else STEP)


def test_a_connection_without_its_beginning_has_no_handshake() -> None:
    talk = Talk(ports=(40000, 2049))
    talk.open()
    put(talk, 0, [exchange(0, 5, READ).call], 1448, Random(1))
    analyzer = Analyzer()
    for batch in frame_batches(talk.frames(talk.segments[1:]), []):
        analyzer.feed(batch)
    analyzer.finish()
    assert (analyzer.health(1).handshake, analyzer.health(1).way_to_server) == (None, None)


@pytest.mark.parametrize("port", [2049, 8443])
@pytest.mark.parametrize("cuts", [[], [1], [1, 2, 3, 40]])
def test_tls_from_the_middle_of_a_stream_is_told_on_the_port_of_nfs(port: int, cuts: list[int]) -> None:
    talk = Talk(ports=(40000, port))
    for number in range(100):
        for sender in (0, 1):
            talk.put(sender, b"\x17\x03\x03\x01\x00" + pattern(number, 256))
    analyzer = Analyzer()
    for batch in frame_batches(talk.frames(), cuts):
        assert not analyzer.feed(batch)
    assert not analyzer.finish()
    found = [(one.transport, one.encrypted, one.service_port) for one in analyzer.connections]
    assert found == ([("TCP", 1, 2049)] if port == 2049 else [])
    assert [one.recognised_by for one in analyzer.conversations] == [("TLS on its port",)] * len(found)
