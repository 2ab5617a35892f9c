"""How iWARP connections are found, set up (RFC 5044, RFC 6581) and ended."""

from __future__ import annotations

import struct

import pytest

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
    send,
    tagged,
    untagged,
    write,
)
from playbook.streams import CALL, WHOLE, Seen, observe, seen, talk
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.transport.operations import Kind

PRIVATE = bytes.fromhex("f6ab0e1801010303")


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
    conversation = Conversation(observer.registry.connections[0])
    active, passive = conversation.connection.endpoints
    assert (active.responder_resources, active.initiator_depth) == (16, 0)
    assert (passive.responder_resources, passive.initiator_depth) == (0, 8)
    found = [conversation.private_data(end) for end in (0, 1)]
    assert [one.offset for one in found if one is not None] == [7, 4]
    assert conversation.private_data_seen
    assert conversation.inline_threshold(0) == (4096, "private data")


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
        (FIN | ACK, 0, "FIN from the client"),
        (FIN | ACK, 1, "FIN from the server"),
        (RST, 1, "RST from the server"),
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
    assert connection.ended_by == "Terminate (RDMA, Remote Protection Error, Invalid STag) from the client"
    terminate = observer.connections[1].health.terminates[0][0]
    assert (terminate.segment_length, terminate.header) == (1414, quoted)


def test_the_ports_used_again() -> None:
    first, second = talk(), Talk(seqs=(500_000_000, 77))
    second.open()
    second.greet(crc=True, markers=(True, True))
    second.say(0, send(1, CALL))
    observer, operations = observe(first, [*first.segments, *second.segments])
    assert [connection.number for connection in observer.registry.connections] == [1, 2]
    assert sorted(seen(operations)) == sorted([*WHOLE, Seen(Kind.SEND, 0, 0, 0, CALL)])


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
    assert not operations and not observer.registry.connections and observer.uncounted() == (0, {})


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
