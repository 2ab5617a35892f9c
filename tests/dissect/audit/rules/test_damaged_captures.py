"""Captures that lack something: what cannot be judged is undecidable, and no end is found guilty."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest

from playbook import Capture, Wire, call, error, faults, nfs3, nfs4, reply, rpc
from playbook.audits import (
    JUDGED,
    audit,
    audit_capture,
    audit_segments,
    broken_rules,
    gapped,
    late,
    longer,
    play,
    short,
    shorter,
    total,
)
from playbook.capture import frame_batches
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.packets import Packet
from playbook.rpc import opaque, u32
from playbook.rpcrdma import MSG, NOMSG, REPLY, header, respond, update, wish
from playbook.shapes import read, write
from playbook.tcp import TcpSegment
from playbook.violations import (
    CLIENT,
    SCRIPTS,
    SERVER,
    chunks,
    clients,
    hello,
    more_variations,
    near_misses,
    opened,
    proper,
    proper_second,
    scripts,
    variations,
)
from playbook.violations.characteristics import RBSIZ, reported
from playbook.violations.scripts import (
    big_call,
    callback,
    create_session,
    listing,
    message,
    push,
    reading,
    recalled,
    refuse,
    returned,
    sealed_call,
    session_created,
    sized,
    unreadable,
)
from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

DAMAGES = (late, gapped, shorter, short, longer)
UNDECIDED = {
    late: "PD-AMBIGUOUS PD-INLINE PD-INVALIDATE-AGREED PD-LENGTH PD-RESERVED PD-VERSION V1-BACKWARD-SIZE"
    " V1-BACKWARD-UNANNOUNCED V1-CREDIT-FIRST V1-ERROR-XID V1-FIRST-1024 V1-INLINE-EXCEEDED V1-RDMA-OUTSIDE"
    " V1-REPLY-USES-REPLY-CHUNK",
    short: "PD-INVALIDATE-ROLE PD-INVALIDATE-STAG V1-BACKWARD-CHUNKS V1-BACKWARD-CREDIT-ZERO V1-BACKWARD-PROC"
    " V1-CHUNK-LENGTH-MATCH V1-CREDIT-ZERO V1-DDP-ELIGIBLE V1-ERROR-FOR-VERSION V1-LONG-CALL-POSITION V1-NO-BINDING"
    " V1-NOMSG-CHUNK V1-READ-IN-REPLY V1-READ-POSITION-ALIGN V1-READ-POSITION-RANGE V1-READ-POSITION-SAME"
    " V1-READ-ROUNDUP V1-REDUCE-REQUIRED V1-REPLY-CHUNK-MISSING V1-REPLY-CHUNK-SIZE V1-WRITE-FILL-ORDER"
    " V1-WRITE-NO-PAD V1-WRITE-SEGMENT-COPY V1-WRITE-SEGMENT-COUNT V1-WRITE-SEGMENT-LENGTH V1-WRITE-UNUSED"
    " V1-GARBAGE-ARGS V1-GSS-MATERIAL V1-GSS-NO-REDUCTION V1-HANDLE-PERSISTENT V1-HANDLE-PREDICTABLE V1-NOMSG-PAYLOAD"
    " V1-REPLY-NO-BINDING V1-REPLY-USES-REPLY-CHUNK V1-WRITE-BEFORE-REPLY V1-WRITE-CHUNK-SIZE XC-EXPERIMENTAL"
    " V2-BACKWARD-REQUIRED V2-RECEIVE-4096 XC-NOCHANGE XC-UNKNOWN",
    longer: "V1-GARBAGE-ARGS V1-WRITE-EXTRA",
    shorter: "V1-COUNT-MATCH V1-ERROR-FOR-VERSION V1-ITEM-MOVED V1-MSG-PAYLOAD V1-WRITE-LENGTH-TRUE V1-WRITE-UNFILLED"
    " V1-XID-MATCH",
}
"""What each damage leaves undecidable.  The other rules judge words that are there or not there."""
CASES = [(rule, damage) for damage, rules in UNDECIDED.items() for rule in rules.split()]


@pytest.mark.parametrize("rule, damage", CASES, ids=[f"{rule}-{damage.__name__}" for rule, damage in CASES])
def test_missing_evidence_is_undecidable(rule: str, damage: Callable[[Wire], list[Packet]]) -> None:
    wire, _ = play(rule)
    auditor = audit(wire, damage(wire))
    tally = total(auditor, rule)
    assert tally.undecidable and not tally.violated
    assert all(reason for one in auditor.tallies.values() for reason in one.reasons)


WITHOUT = {
    "V1-BACKWARD-CREDIT-EXCEEDED": 16,
    "V1-BACKWARD-CREDIT-FIRST": 12,
    "V1-COUNT-MATCH": 8,
    "V1-CREDIT-EXCEEDED": 8,
    "V1-CREDIT-FIRST": 4,
    "V1-ERROR-RETRY": 8,
    "V1-FIRST-1024": 8,
    "V1-INLINE-EXCEEDED": 8,
    "V1-RDMA-AFTER-REPLY": 15,
    "V1-REDUCE-REQUIRED": 8,
    "V1-REPLY-USES-REPLY-CHUNK": 8,
    "V1-WRITE-BEFORE-REPLY": 8,
    "V1-WRITE-LENGTH-TRUE": 8,
    "V1-XID-REUSED": 8,
    "XC-SUPPORT": 12,
}
"""A frame that the capture lacks, without which a rule that was broken looks kept."""


@pytest.mark.parametrize("rule", WITHOUT)
def test_what_a_missing_frame_would_show_is_undecidable(rule: str) -> None:
    wire, _ = play(rule)
    tally = total(audit(wire, faults.drop(wire.packets, [WITHOUT[rule] - 1])), rule)
    assert tally.undecidable and not tally.violated


@pytest.mark.parametrize(
    "script, length, rule, verdict",
    [
        (near_misses.failed_read_that_returns_bytes, 130, "V1-WRITE-UNUSED", "undecidable"),
        (near_misses.failed_read_that_returns_bytes, 150, "V1-WRITE-UNUSED", "violation"),
        (chunks.wrong_pad, 150, "V1-WRITE-NO-PAD", "undecidable"),
        (more_variations.rest_of_a_long_call_at_position_4, 150, "V1-LONG-CALL-POSITION", "undecidable"),
    ],
)
def test_truncated_results_show_as_much_as_is_there(
    script: Callable[[Wire], object], length: int, rule: str, verdict: str
) -> None:
    """The status of a READ, without its count, tells that there is no item."""
    wire = Wire(seed=5)
    script(wire)
    hello(wire.connections[0])
    auditor = audit(wire, faults.snap(wire.packets, length))
    assert total(auditor, rule).verdict == verdict
    assert broken_rules(auditor) <= {rule}


def long_reply_under_another_xid(wire: Wire) -> None:
    exchange = listing(opened(wire))
    [place] = exchange.reply_chunk or []
    exchange.connection.write(SERVER, place.handle, place.offset, bytes(256))
    reply_chunk = [place._replace(length=256)]
    exchange.connection.send(SERVER, header(exchange.true.xid ^ 1, NOMSG, direction=REPLY, reply=reply_chunk))


def lowered_by_a_response(wire: Wire) -> None:
    connection = near_misses.asked_for_less(wire)
    respond(connection, SERVER, done=[0], xid=99)
    wire.pause(3_000_000_000)
    big_call(connection, 9000)


def cleared_twice(wire: Wire) -> None:
    connection = near_misses.asked_for_less(wire)
    respond(connection, SERVER, pending=[0], xid=99)
    for xid in (12, 13):
        update(connection, SERVER, RBSIZ, 8192, clear=True, xid=xid)


def request_called_a_bad_header(wire: Wire) -> None:
    refuse(near_misses.asked_for_less(wire), 99)


def reply_refused_in_another_version(wire: Wire) -> None:
    connection = opened(wire)
    refuse(connection, clients.reply_that_can(connection), sender=CLIENT, version=2)


def control_reply_in_a_write_chunk(wire: Wire) -> None:
    """RPCSEC_GSS_INIT, whose token came back in a Write chunk."""
    connection = opened(wire)
    text, [place] = sealed_call(7, 1, 1, b""), connection.register(64)
    connection.send(CLIENT, header(7, MSG, writes=[[place]]) + text[:20] + u32(0) + text[24:])
    connection.write(SERVER, place.handle, place.offset, bytes(64))
    answered = header(7, MSG, direction=REPLY, writes=[[place]]) + rpc.whole(rpc.reply_parts(rpc.Reply(), 7))
    connection.send(SERVER, answered)


LACKING: list[tuple[Callable[[Wire], object], type[Wire], int, str]] = [
    (variations.returned_zero, Wire, -9, "V1-COUNT-MATCH"),
    (more_variations.read_list_in_nomsg, Wire, -7, "V1-BACKWARD-PROC"),
    (more_variations.read_list_in_nomsg, Wire, 100, "V1-READ-IN-REPLY"),
    (long_reply_under_another_xid, IwarpWire, 140, "V1-RDMA-OUTSIDE"),
    (proper_second, IwarpWire, 90, "V1-TRANSFER-MODEL"),
    (lowered_by_a_response, Wire, -11, "XC-RBSIZ"),
    (lowered_by_a_response, Wire, -13, "XC-RBSIZ"),
    (lowered_by_a_response, Wire, -5, "XC-NOCHANGE"),
    (lowered_by_a_response, Wire, -11, "XC-NOCHANGE"),
    (lowered_by_a_response, Wire, 92, "XC-RBSIZ"),
    (cleared_twice, Wire, -15, "XC-UPDATE-PENDING"),
    (request_called_a_bad_header, Wire, 96, "V2-INVAL-OPTION"),
    (SCRIPTS["V1-REPLY-USES-REPLY-CHUNK"], Wire, -7, "V1-INLINE-EXCEEDED"),
    (control_reply_in_a_write_chunk, Wire, 96, "V1-WRITE-UNUSED"),
    (more_variations.read_list_in_nomsg, Wire, -7, "V1-READ-IN-REPLY"),
    (more_variations.four_after_lowering, Wire, -7, "V1-CREDIT-EXCEEDED"),
    (more_variations.four_after_lowering, IwarpWire, -13, "V1-CREDIT-EXCEEDED"),
    (variations.v2_nomsg_reply_dir_call, Wire, -9, "V2-DIRECTION"),
    (SCRIPTS["XC-INIT-SIZE"], Wire, -3, "XC-INIT-SIZE"),
    (reply_refused_in_another_version, Wire, -9, "V1-ERROR-VERSION"),
    (more_variations.read_list_in_nomsg, IwarpWire, -11, "V1-READ-IN-REPLY"),
    (SCRIPTS["V1-BACKWARD-PROC"], Wire, 76, "V1-BACKWARD-PROC"),
    (SCRIPTS["V1-ERROR-RETRY"], Wire, 84, "V1-ERROR-RETRY"),
    (SCRIPTS["V1-ERROR-FOR-HEADER"], Wire, 70, "V1-ERROR-FOR-HEADER"),
    (SCRIPTS["V1-ERROR-OF-ERROR"], Wire, 70, "V1-ERROR-OF-ERROR"),
    (SCRIPTS["XC-RBSIZ-REQUESTED"], Wire, 70, "XC-RBSIZ-REQUESTED"),
    (proper_second, IwarpWire, 90, "V2-DIRECTION"),
    (variations.returned_zero, Wire, 106, "V1-WRITE-LENGTH-TRUE"),
    (variations.v2_read_reply_dir_call, IwarpWire, 142, "V2-DIRECTION"),
]
"""A conversation, the transport, the length of frames or (below 0) the place of a missing packet, and what is open."""
Sent = TypeVar("Sent", Packet, TcpSegment)


def damaged(sent: list[Sent], damage: int) -> list[Sent]:
    return faults.snap(sent, damage) if damage > 0 else faults.drop(sent, [-damage])


@pytest.mark.parametrize(("script", "transport", "damage", "rule"), LACKING)
def test_what_would_tell_two_mistakes_apart_is_undecidable(
    script: Callable[[Wire], object], transport: type[Wire], damage: int, rule: str
) -> None:
    wire = transport(seed=5)
    script(wire)
    hello(wire.connections[0])
    if isinstance(wire, IwarpWire):
        auditor = audit_segments(wire, damaged(wire.sent(), damage))
    else:
        auditor = audit(wire, damaged(wire.packets, damage))
    assert broken_rules(auditor) == set() and total(auditor, rule).undecidable


def bad_headers(wire: Wire) -> None:
    """Ten that nothing answers, and two RDMA_ERRORs of an XID that no message had."""
    connection = opened(wire)
    for xid in range(700, 710):
        connection.send(CLIENT, u32(xid, 1, 32, 0) + u32(2, 0, 0) + message(nfs3.null(), xid))
        hello(connection)
    for _ in range(2):
        refuse(connection, 0x1234567)


def request_refused_under_another_xid(wire: Wire) -> None:
    """Behind an announcement, which asks for no answer."""
    connection = near_misses.asked_for_less(wire)
    update(connection, CLIENT, RBSIZ, 8192, xid=100)
    refuse(connection, 98, code=5)
    hello(connection)


def bad_header_and_request(wire: Wire) -> None:
    connection = reported(wire, server=((RBSIZ, 16384),))
    unreadable(connection)
    wish(connection, CLIENT, (RBSIZ, 8192), xid=99)
    refuse(connection, 98, code=5)


def without_the_second_last_reply(sent: list[Packet], sender: int = SERVER) -> list[Packet]:
    return faults.drop(sent, [faults.where(sent, kind="send", sender=sender)[-2]])


without_the_second_last_call = partial(without_the_second_last_reply, sender=CLIENT)


def unfilled_third(wire: Wire) -> None:
    rpc = scripts.reading(opened(wire), 64, 64, 64, count=128)
    for segment in (0, 1):
        scripts.push(rpc, 0, segment, bytes(64))
    scripts.returned(rpc, nfs3.read_reply(bytes(128)), writes=rpc.writes, left_out=[0])


def callback_answered_by_nothing(wire: Wire) -> None:
    connection = scripts.announced(wire)
    connection.send(CLIENT, header(scripts.callback(connection).true.xid, NOMSG, direction=REPLY))


TOLD = (
    "V1-ERROR-FOR-HEADER V1-BACKWARD-CREDIT-EXCEEDED V1-ERROR-RETRY V1-RDMA-AFTER-REPLY"
    " V1-WRITE-BEFORE-REPLY V1-WRITE-LENGTH-TRUE V1-XID-REUSED"
)
CERTAIN: list[tuple[Callable[[Wire], object], Callable[[list[Packet]], list[Packet]], str, tuple[int, int]]] = [
    (bad_headers, lambda sent: sent, "V1-ERROR-FOR-HEADER", (8, 2)),
    (request_refused_under_another_xid, lambda sent: sent, "XC-RESPONSE-MISSING", (0, 1)),
    (bad_header_and_request, lambda sent: sent, "V1-ERROR-FOR-HEADER", (1, 0)),
    (bad_header_and_request, lambda sent: sent, "XC-RESPONSE-MISSING", (0, 1)),
    (more_variations.read_list_in_nomsg, lambda sent: faults.cut(sent, 8), "V1-BACKWARD-PROC", (0, 1)),
    (variations.reply_vers_word_3, lambda sent: faults.cut(sent, 8), "V1-ERROR-FOR-VERSION", (0, 1)),
    (more_variations.count_in_reply, lambda sent: faults.cut(sent, 8), "V1-ERROR-FOR-HEADER", (0, 1)),
    (near_misses.count_of_what_is_nowhere, without_the_second_last_reply, "V1-COUNT-MATCH", (1, 0)),
    (
        near_misses.long_call_with_nothing_but_a_reply_chunk,
        lambda sent: [*sent[:5], *sent[6:]],
        "V1-NOMSG-CHUNK",
        (1, 0),
    ),
    (SCRIPTS["XC-RESPONSE-MISSING"], lambda sent: sent[:18], "XC-RESPONSE-MISSING", (0, 1)),
    (more_variations.half_late, lambda sent: sent[:14], "V1-WRITE-LENGTH-TRUE", (0, 1)),
    (more_variations.half_late, lambda sent: sent[:14], "V1-WRITE-BEFORE-REPLY", (0, 1)),
    (variations.reply_vers_word_2, lambda sent: faults.snap(sent, 86), "V2-REPLY-VERSION", (0, 2)),
    (request_refused_under_another_xid, without_the_second_last_reply, "XC-INIT-FIRST", (0, 0)),
    (SCRIPTS["V1-CREDIT-EXCEEDED"], without_the_second_last_reply, "V1-CREDIT-EXCEEDED", (1, 1)),
    (variations.compound_readdir, without_the_second_last_reply, "V1-REPLY-CHUNK-PROVIDED", (1, 0)),
    *((SCRIPTS[rule], without_the_second_last_reply, rule, (1, 0)) for rule in TOLD.split()),
    (SCRIPTS["V1-REPLY-CHUNK-MISSING"], without_the_second_last_call, "V1-REPLY-CHUNK-MISSING", (1, 0)),
    (SCRIPTS["V1-XID-REUSED"], without_the_second_last_call, "V1-XID-REUSED", (1, 1)),
    (unfilled_third, lambda sent: faults.drop(sent, [9]), "V1-COUNT-MATCH", (0, 1)),
    (callback_answered_by_nothing, lambda sent: faults.drop(sent, [11]), "V1-NOMSG-CHUNK", (0, 1)),
]
"""A conversation, what the capture lacks of it, and how often a rule is broken or left open."""


@pytest.mark.parametrize(("script", "damage", "rule", "expected"), CERTAIN)
def test_only_what_may_excuse_a_violation_leaves_it_open(
    script: Callable[[Wire], object],
    damage: Callable[[list[Packet]], list[Packet]],
    rule: str,
    expected: tuple[int, int],
) -> None:
    wire = Wire(seed=5)
    script(wire)
    for _ in range(3):
        hello(wire.connections[0])
    tally = total(audit(wire, damage(wire.packets)), rule)
    assert (tally.violated, tally.undecidable) == expected


@pytest.mark.parametrize(("behind_the_end", "expected"), [(8, (0, 1)), (6, (1, 0)), (2, (1, 0))])
def test_what_is_missing_behind_the_next_message_excuses_nothing(
    behind_the_end: int, expected: tuple[int, int]
) -> None:
    """The next call, the reply to it, or the last reply, of which an acknowledgement tells."""
    wire = IwarpWire(seed=11)
    more_variations.read_outside(wire)
    for _ in range(2):
        hello(wire.connections[0])
    sent = wire.sent()
    tally = total(audit_segments(wire, faults.drop(sent, [len(sent) - behind_the_end])), "V1-RDMA-OUTSIDE")
    assert (tally.violated, tally.undecidable) == expected


@pytest.mark.parametrize("rule", JUDGED)
def test_nothing_that_was_broken_passes_where_frames_end_behind_the_version(rule: str) -> None:
    wire, _ = play(rule)
    assert total(audit(wire, faults.snap(wire.packets, 64)), rule).verdict in ("undecidable", "violation")


def test_a_whole_message_that_is_no_rpc_leaves_nothing_open() -> None:
    wire = Wire(seed=5)
    connection = opened(wire)
    connection.send(CLIENT, header(7, MSG))
    refuse(connection, 7)
    auditor = audit(wire)
    assert broken_rules(auditor) == {"V1-MSG-PAYLOAD"}
    assert not any(tally.undecidable for place, tally in auditor.tallies.items() if place.endpoint == CLIENT)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("rule", JUDGED)
def test_damage_to_a_capture_breaks_no_rule(rule: str, damage: Callable[[Wire], list[Packet]]) -> None:
    wire, broken = play(rule)
    assert broken_rules(audit(wire, damage(wire))) <= {rule} | broken.cause


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("script", (proper, proper_second))
@pytest.mark.parametrize("seed", range(3))
def test_damage_to_a_proper_conversation_breaks_no_rule(
    seed: int, script: Callable[[Wire], None], damage: Callable[[Wire], list[Packet]]
) -> None:
    wire = Wire(seed=seed)
    script(wire)
    assert broken_rules(audit(wire, damage(wire))) == set()


def spoiled(sent: list[Sent], seed: int) -> list[Sent]:
    """Frames that are lost, out of order, cut short; and perhaps the beginning is missing."""
    draw = random.Random(seed)
    packets = faults.drop(sent, draw.sample(range(len(sent)), draw.choice([1, 2, 3, 6])))
    for _ in range(draw.choice([0, 2, 4])):
        packets = faults.swap(packets, draw.randrange(len(packets)), draw.randrange(1, 4))
    if draw.random() < 0.3:
        packets = faults.snap(packets, draw.randrange(60, 300))
    return packets[draw.randrange(40) :] if draw.random() < 0.2 else packets


@pytest.mark.parametrize("script", (proper, proper_second))
@pytest.mark.parametrize("seed", range(50))
def test_a_spoiled_capture_of_a_proper_conversation_breaks_no_rule(seed: int, script: Callable[[Wire], None]) -> None:
    wire = Wire(seed=seed)
    script(wire)
    assert broken_rules(audit(wire, spoiled(wire.packets, seed))) == set()


@pytest.mark.parametrize("script", (proper, proper_second))
@pytest.mark.parametrize("seed", range(40))
def test_a_spoiled_iwarp_capture_of_a_proper_conversation_breaks_no_rule(
    seed: int, script: Callable[[Wire], None]
) -> None:
    wire = IwarpWire(seed=seed)
    script(wire)
    assert broken_rules(audit_segments(wire, spoiled(wire.sent(), seed))) == set()


@pytest.mark.parametrize("script", (proper, proper_second))
@pytest.mark.parametrize("seed", range(20))
def test_tcp_segments_out_of_order_break_no_rule(seed: int, script: Callable[[Wire], None]) -> None:
    """What an end sent first is known from its stream, not by the order of the capture."""
    wire = IwarpWire(seed=seed)
    script(wire)
    draw, segments = random.Random(seed), wire.sent()
    for _ in range(30):
        segments = faults.swap(segments, draw.randrange(len(segments)))
    assert broken_rules(audit_segments(wire, segments)) == set()


def out_of_step(sent: list[Sent], seed: int) -> list[Sent]:
    """Frames that are recorded late, or all of one interface."""
    draw = random.Random(seed)
    if seed % 2:
        for _ in range(draw.choice([1, 2, 4])):
            sent = faults.swap(sent, draw.randrange(len(sent)), draw.randrange(1, 31))
        return sent
    by, late = draw.randrange(1, 40), draw.randrange(2)
    order = sorted(range(len(sent)), key=lambda index: index + by * (sent[index].sender == late))
    return [sent[index] for index in order]


@pytest.mark.parametrize("script", (proper, proper_second))
@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("kind", (Wire, IwarpWire))
def test_a_capture_out_of_step_of_a_proper_conversation_breaks_no_rule(
    kind: type[Wire], seed: int, script: Callable[[Wire], None]
) -> None:
    """Also where its times are those of the recording, and far apart."""
    wire = kind(seed=seed)
    script(wire)
    if isinstance(wire, IwarpWire):
        capture: Capture = IwarpCapture(wire, out_of_step(wire.sent(), seed))
    else:
        capture = Capture(wire, out_of_step(wire.packets, seed))
    times = sorted(frame.time for frame in capture.frames)
    capture.frames = [
        replace(frame, time=times[0] + 100 * (time - times[0]))
        for frame, time in zip(capture.frames, times, strict=True)
    ]
    assert broken_rules(audit_capture(capture)) == set()


def test_version_2_may_have_been_settled_by_a_reply_that_is_missing() -> None:
    wire = Wire(seed=5)
    wire.version = 2
    SCRIPTS["V1-READ-ROUNDUP"](wire)
    hello(wire.connections[0])
    first = faults.where(wire.packets, kind="send", sender=1)[0]
    auditor = audit(wire, faults.drop(wire.packets, [first]))
    assert broken_rules(auditor) == {"V1-READ-ROUNDUP"}
    assert total(auditor, "V1-ERROR-FOR-VERSION").undecidable == 1
    wire, _ = play("V2-REPLY-VERSION", 2)
    auditor = audit(wire, faults.drop(wire.packets, [first]))
    assert broken_rules(auditor) == set()
    assert total(auditor, "V2-REPLY-VERSION").undecidable


@pytest.mark.parametrize("version", (1, 2))
def test_a_returned_length_that_its_missing_rdma_write_would_explain_is_undecidable(version: int) -> None:
    wire, _ = play("V1-WRITE-UNFILLED", version)
    auditor = audit(wire, faults.drop(wire.packets, faults.where(wire.packets, kind="write")))
    assert not broken_rules(auditor)
    assert total(auditor, "V1-COUNT-MATCH").undecidable == 1


@pytest.mark.parametrize("rule", ("V1-WRITE-FILL-ORDER", "V1-WRITE-UNFILLED", "V1-WRITE-NO-PAD"))
def test_what_is_in_a_chunk_is_undecidable_where_an_rdma_write_is_missing(rule: str) -> None:
    wire, _ = play(rule)
    last = faults.where(wire.packets, kind="write")[-1]
    operation = wire.packets[last].operation
    auditor = audit(wire, faults.drop(wire.packets, faults.where(wire.packets, operation=operation)))
    tally = total(auditor, rule)
    assert tally.undecidable == 1 and not tally.violated


def test_certain_violations_are_told_beside_what_a_missing_packet_leaves_open() -> None:
    """Segment 3 was written to behind segment 2, which is short, whatever was written there."""
    wire = Wire(seed=5)
    connection = opened(wire)
    hello(connection)
    short = reading(connection, 4096, 4096, 4096)
    for segment in (0, 2):
        push(short, 0, segment, bytes(1000))
    chunk = sized(short.writes[0], 1000, 1000, 1000)
    returned(short, nfs3.read_reply(bytes(3000)), writes=[chunk], left_out=[0])
    hello(connection)
    first = faults.where(wire.packets, kind="send", sender=1)[0]
    auditor = audit(wire, faults.drop(wire.packets, [first]))
    assert total(auditor, "V1-WRITE-FILL-ORDER").violated == 1


def test_what_is_missing_behind_a_refusal_has_settled_nothing_before_it() -> None:
    wire, _ = play("V1-ERROR-FOR-VERSION")
    for _ in range(2):
        hello(wire.connections[0])
    last = faults.where(wire.packets, kind="send", sender=1)[-1]
    assert total(audit(wire, faults.drop(wire.packets, [last])), "V1-ERROR-FOR-VERSION").violated == 1


def test_a_refusal_by_the_client_that_is_truncated_begins_no_version() -> None:
    wire = IwarpWire(seed=5)
    connection = opened(wire)
    refuse(connection, clients.reply_that_cannot_be_read(connection), sender=CLIENT, version=2)
    auditor = audit_segments(wire, faults.snap(wire.sent(), 102))
    assert "V2-FIRST-MESSAGE" not in broken_rules(auditor)


def test_a_lower_backward_grant_that_a_later_frame_shows_to_be_missing_leaves_callbacks_open() -> None:
    wire = IwarpWire(seed=5)
    near_misses.lost_reply_is_one_credit_only(wire)
    hello(wire.connections[0])
    tally = total(audit_segments(wire, faults.drop(wire.sent(), [25])), "V1-BACKWARD-CREDIT-EXCEEDED")
    assert tally.undecidable and not tally.violated


def test_a_count_that_is_wrong_is_told_beside_another_that_a_missing_rdma_write_leaves_open() -> None:
    wire = Wire(seed=5)
    connection = opened(wire)
    hello(connection)
    chunks = [connection.register(4096, 4096), connection.register(4096)]
    two = call(connection, nfs4.compound(nfs4.putfh(), nfs4.read(0, 8192), nfs4.read(8192, 4096)), writes=chunks)
    push(two, 1, 0, bytes(8))
    results = nfs4.compound_reply(nfs4.putfh_done(), nfs4.read_done(bytes(5)), nfs4.read_done(bytes(5)))
    returned(two, results, writes=[sized(chunks[0], 4096, 0), sized(chunks[1], 8)], left_out=[0, 1])
    hello(connection)
    first = faults.where(wire.packets, kind="send", sender=1)[0]
    assert total(audit(wire, faults.drop(wire.packets, [first])), "V1-COUNT-MATCH").violated == 1


@pytest.mark.parametrize("version", (1, 2))
def test_a_reply_in_the_layout_of_another_version_is_read_where_its_call_is_missing(version: int) -> None:
    wire = Wire(seed=5)
    wire.version = version
    connection = opened(wire)
    (variations.reply_vers_word_2 if version == 1 else variations.reply_vers_word_1)(wire)
    hello(connection)
    asked = faults.where(wire.packets, operation=wire.truth[-2].call_operation)
    auditor = audit(wire, faults.drop(wire.packets, asked))
    assert broken_rules(auditor) == set()
    assert total(auditor, "V2-REPLY-VERSION").undecidable


@pytest.mark.parametrize("position", (148, 1 << 21))
def test_a_long_call_that_is_not_all_read_goes_on_only_where_a_chunk_begins_at_its_end(position: int) -> None:
    wire = Wire(seed=5)
    connection = opened(wire)
    reads = [(0, connection.register(1 << 21)), (position, connection.register(4096))]
    connection.send(0, header(7, 1, reads=reads))
    refuse(connection, 7)
    tally = total(audit(wire), "V1-LONG-CALL-POSITION")
    assert (tally.passed, tally.undecidable) == ((1, 0) if position == 148 else (0, 1))


def test_a_pad_in_one_chunk_is_told_beside_another_that_an_rdma_write_may_have_filled() -> None:
    wire = Wire(seed=5)
    connection = opened(wire)
    hello(connection)
    chunks = [connection.register(4096), connection.register(4096)]
    two = call(connection, nfs4.compound(nfs4.putfh(), nfs4.read(0, 4096), nfs4.read(4096, 4096)), writes=chunks)
    push(two, 0, 0, bytes(4))
    push(two, 1, 0, bytes(8))
    results = nfs4.compound_reply(nfs4.putfh_done(), nfs4.read_done(bytes(5)), nfs4.read_done(bytes(5)))
    returned(two, results, writes=[sized(chunk, 5) for chunk in chunks], left_out=[0, 1])
    hello(connection)
    first = faults.where(wire.packets, kind="send", sender=1)[0]
    assert total(audit(wire, faults.drop(wire.packets, [first])), "V1-WRITE-NO-PAD").violated == 1


@pytest.mark.parametrize("snaplen", (58, 70, 82, 98))
def test_a_long_reply_of_the_client_is_no_call_where_the_servers_call_is_truncated(snaplen: int) -> None:
    wire = Wire(seed=5)
    connection = opened(wire)
    hello(connection)
    recall = nfs4.callback(nfs4.cb_sequence(), nfs4.cb_recall())
    called = call(connection, recall, backward=True, reply_chunk=connection.register(4096))
    reply(called, nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done()), long=True)
    packets = list(wire.packets)
    (at,) = faults.where(packets, operation=called.true.call_operation)
    packets[at : at + 1] = faults.snap(packets[at : at + 1], snaplen)
    assert "V1-NOMSG-CHUNK" not in broken_rules(audit(wire, packets))


def test_a_reply_with_success_is_undecidable_where_the_chunks_place_in_the_call_is() -> None:
    wire, _ = play("V1-REPLY-NO-BINDING")
    assert total(audit(wire, shorter(wire)), "V1-REPLY-NO-BINDING").violated == 0
    assert total(audit(wire, faults.snap(wire.packets, 140)), "V1-REPLY-NO-BINDING").undecidable == 1


def test_calls_before_the_first_grant_of_a_capture_are_undecidable() -> None:
    wire = Wire(seed=5)
    connection = opened(wire)
    begun = len(wire.packets)
    calls = [call(connection, nfs3.getattr_()) for _ in range(3)]
    for one in calls:
        reply(one, nfs3.getattr_reply())
    assert total(audit(wire, faults.cut(wire.packets, begun)), "V1-CREDIT-EXCEEDED").undecidable == 2


def test_a_long_send_whose_version_is_truncated_is_judged_by_none() -> None:
    wire = Wire(seed=5)
    wire.version = 2
    connection = opened(wire)
    long = call(connection, nfs3.write(0, bytes(3000)))
    reply(long, nfs3.write_reply(3000))
    hello(connection)
    packets = list(wire.packets)
    for at in faults.where(packets, operation=long.true.call_operation)[:1]:
        packets[at : at + 1] = faults.snap(packets[at : at + 1], 60)
    assert not broken_rules(audit(wire, packets))


@pytest.mark.parametrize("version", (1, 2))
@pytest.mark.parametrize("script", (near_misses.unused_chunk_that_was_written_to,
                                    near_misses.second_read_fails_and_returns_nothing))  # fmt: skip
@pytest.mark.parametrize("snaplen", (120, 140, 200))
def test_whether_a_chunk_was_used_is_undecidable_where_the_reply_is_truncated(
    snaplen: int, script: Callable[[Wire], None], version: int
) -> None:
    wire = Wire(seed=5)
    wire.version = version
    script(wire)
    assert not broken_rules(audit(wire, faults.snap(wire.packets, snaplen)))


def test_where_the_rest_of_a_long_call_is_cannot_be_judged_where_nothing_read_it() -> None:
    wire = Wire(seed=5)
    connection = opened(wire)
    chunks = [(0, connection.register(20)), (20, connection.register(60))]
    connection.send(0, header(7, 1, reads=chunks))
    refuse(connection, 7)
    assert total(audit(wire), "V1-LONG-CALL-POSITION").undecidable == 1


@pytest.mark.parametrize("rule", ("V1-CREDIT-FIRST", "V1-XID-REUSED"))
def test_rules_about_order_are_undecidable_behind_an_answer_that_is_captured_too_early(rule: str) -> None:
    wire = Wire(seed=11)
    SCRIPTS[rule](wire)
    hello(wire.connections[0])
    assert total(audit(wire), rule).violated
    first = faults.where(wire.packets, kind="send", sender=0)[0]
    auditor = audit(wire, faults.swap(wire.packets, first, 2))
    assert total(auditor, rule).undecidable and not broken_rules(auditor)


def test_one_call_at_a_time_is_undecidable_where_the_first_reply_has_an_earlier_time_than_the_next_call() -> None:
    wire = Wire(seed=11)
    connection = wire.connect(acks="none")
    for _ in range(2):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    first = faults.where(wire.packets, kind="send", sender=1)[0]
    capture = Capture(wire)
    frame = capture.frames.pop(first)
    capture.frames.insert(first + 1, frame)
    auditor = audit_capture(capture)
    assert total(auditor, "V1-CREDIT-FIRST").undecidable == 1 and not broken_rules(auditor)


def long_lookup(wire: Wire) -> Auditor:
    """The last packet of a Send is missing: the bytes end early, but not the caller's arguments."""
    connection = opened(wire)
    lookup = nfs4.Op(15, (rpc.opaque(b"n" * 3000),))
    sent = call(connection, nfs4.compound(nfs4.sequence(), nfs4.putfh(), lookup))
    reply(sent, nfs4.compound_reply(nfs4.sequence_done(), nfs4.putfh_done(), nfs4.failed(15, 2)))
    hello(connection)
    if isinstance(wire, IwarpWire):
        segments = wire.sent()
        longest = max(range(len(segments)), key=lambda index: len(segments[index].payload))
        return audit_segments(wire, faults.drop(segments, [longest + 2]))
    last = max(faults.where(wire.packets, operation=sent.true.call_operation))
    return audit(wire, faults.drop(wire.packets, [last]))


def test_arguments_of_an_incomplete_send_are_not_judged() -> None:
    auditor = long_lookup(Wire(seed=2))
    assert broken_rules(auditor) == set()
    assert not total(auditor, "V1-GARBAGE-ARGS").violated


def test_a_write_behind_the_reply_is_undecidable_where_one_before_it_may_be_missing() -> None:
    wire = Wire(seed=3)
    connection = opened(wire)
    sent = call(connection, nfs3.read(0, 512), writes=[connection.register(512)])
    reply(sent, nfs3.read_reply(bytes(512)))
    [segment] = sent.writes[0]
    connection.write(1, segment.handle, segment.offset, bytes(100))
    hello(connection)
    first = faults.where(wire.packets, operation=sent.true.operations[0])
    auditor = audit(wire, faults.drop(wire.packets, first))
    assert total(auditor, "V1-WRITE-BEFORE-REPLY").undecidable
    assert broken_rules(auditor) == set()


def with_its_times(wire: Wire, packets: list[Packet]) -> Capture:
    """Each frame has the time at which its packet was sent, wherever it stands."""
    capture = Capture(wire, packets)
    capture.frames = [replace(frame, time=one.time) for frame, one in zip(capture.frames, packets, strict=True)]
    return capture


def test_memory_of_a_call_is_advertised_before_it_is_used_where_captures_are_appended_in_the_wrong_order() -> None:
    wire = Wire(seed=3)
    connection = opened(wire)
    for _ in range(150):
        hello(connection)
    sent = call(connection, nfs3.read(0, 512), writes=[connection.register(512)])
    half = len(wire.packets)
    reply(sent, nfs3.read_reply(bytes(512)))
    hello(connection)
    appended = [*wire.packets[half:], *wire.packets[:half]]
    assert broken_rules(audit_capture(with_its_times(wire, appended))) == set()


@pytest.mark.parametrize("distance", (10, 70))
@pytest.mark.parametrize("setup", ("captured", "behind", "not captured"))
def test_what_is_left_of_an_rdma_write_goes_nowhere(setup: str, distance: int) -> None:
    """The file begins within it; its first packet and its call are at the end, the rest of it again."""
    wire = Wire(seed=3)
    connection = wire.connect(cm=setup != "not captured")
    begun = 0 if setup == "behind" else len(wire.packets)
    for _ in range(10):
        hello(connection)
    sent = call(connection, nfs3.read(0, 4000), writes=[connection.register(4000)])
    first = len(wire.packets)
    reply(sent, nfs3.read_reply(bytes(4000)))
    for _ in range(distance):
        hello(connection)
    appended = [*wire.packets[:begun], *wire.packets[first + 1 :], *wire.packets[begun : first + 6]]
    assert broken_rules(audit_capture(with_its_times(wire, appended))) == set()


def test_which_end_is_the_server_is_not_known_where_truncated_frames_begin_with_a_reply() -> None:
    wire = Wire(seed=3)
    connection = wire.connect(cm=False)
    for _ in range(8):
        hello(connection)
    reply(call(connection, nfs3.read(0, 512), writes=[connection.register(512)]), nfs3.read_reply(bytes(512)))
    answer = faults.where(wire.packets, kind="send", sender=1)[0]
    packets = faults.snap([wire.packets[answer], *faults.drop(wire.packets, [answer])], 64)
    assert broken_rules(audit(wire, packets)) <= broken_rules(audit(wire))


def test_what_was_written_is_undecidable_where_the_clock_was_set_back_behind_a_truncated_call() -> None:
    wire = Wire(seed=3)
    connection = opened(wire)
    sent = call(connection, nfs3.read(0, 512), writes=[connection.register(512)])
    back = len(wire.packets)
    reply(sent, nfs3.read_reply(bytes(512)))
    hello(connection)
    packets = faults.snap(wire.packets, 116)
    packets[back:] = [replace(one, time=one.time - 90_000_000_000) for one in packets[back:]]
    auditor = audit_capture(with_its_times(wire, packets))
    assert broken_rules(auditor) == set()
    assert total(auditor, "V1-WRITE-LENGTH-TRUE").undecidable


@pytest.mark.parametrize("script", (proper, proper_second))
@pytest.mark.parametrize("seed", range(40))
def test_one_truncated_frame_of_a_proper_conversation_breaks_no_rule(seed: int, script: Callable[[Wire], None]) -> None:
    """Headers that the frame does not hold are unknown, not zero."""
    wire = Wire(seed=seed)
    script(wire)
    draw = random.Random(seed)
    at = draw.randrange(len(wire.packets))
    packets = list(wire.packets)
    packets[at : at + 1] = faults.snap(packets[at : at + 1], draw.choice([56, 60, 66, 74, 90, 110, 130]))
    assert broken_rules(audit(wire, packets)) <= broken_rules(audit(wire))


def test_a_version_may_have_been_settled_before_the_capture() -> None:
    wire = Wire(seed=4)
    wire.version = 2
    connection = opened(wire)
    sent = call(connection, nfs3.getattr_())
    sent.version = 1
    reply(sent, nfs3.getattr_reply())
    hello(connection)
    auditor = audit(
        wire, faults.drop(wire.packets, range(min(faults.where(wire.packets, operation=sent.true.call_operation))))
    )
    assert total(auditor, "V1-ERROR-FOR-VERSION").undecidable
    assert broken_rules(auditor) <= {"V2-REPLY-VERSION"}


def test_where_no_message_shows_the_direction_the_end_that_began_is_the_client() -> None:
    for seed in range(6):
        wire = Wire(seed=seed)
        connection = opened(wire)
        sent = call(connection, nfs3.getattr_())
        connection.send(1, header(sent.true.xid, 3))
        hello(connection)
        auditor = audit(wire, faults.snap(wire.packets[3:], 14 + 20 + 8 + 12 + 16))
        [finding] = [one for one in auditor.findings if one.rule.id == "V1-PROC-DONE"]
        assert finding.endpoint == 1


@pytest.mark.parametrize("version", (1, 2))
def test_what_rpcsec_gss_seals_is_undecidable(version: int) -> None:
    wire = Wire(seed=6)
    wire.version = version
    near_misses.long_listing_that_cannot_be_read(wire)
    assert total(audit(wire), "V1-REPLY-CHUNK-PROVIDED").undecidable == 1


def test_memory_that_a_call_long_behind_in_the_capture_advertised_is_not_outside() -> None:
    """As where captures are appended to each other, and each lacks what the other has."""
    wire = Wire(seed=6, mtu=1024)
    connection = opened(wire)
    for _ in range(300):
        write(connection, bytes(1024))
    sent = wire.truth[100].call_operation
    moved = [packet for packet in wire.packets if packet.operation == sent]
    packets = [packet for packet in wire.packets if packet.operation != sent]
    tally = total(audit(wire, [*packets, *moved]), "V1-RDMA-OUTSIDE")
    assert tally.undecidable and not tally.violated


@pytest.mark.parametrize("first", (0, 1))
def test_nobody_is_accused_where_the_clocks_of_the_two_directions_are_far_apart(first: int) -> None:
    """The capture is sorted by time, so it shows all of one direction before the other one."""
    wire = Wire(seed=6, mtu=1024)
    connection = opened(wire)
    for _ in range(100):
        write(connection, bytes(1024))
        read(connection, bytes(1024))
        two = [connection.register(512), connection.register(512)]
        reply(call(connection, nfs3.read(0, 1024), writes=[[*two[0], *two[1]]]), nfs3.read_reply(bytes(1024)))
    begin = next(at for at, packet in enumerate(wire.packets) if packet.kind != "cm")
    packets = wire.packets[:begin] + sorted(wire.packets[begin:], key=lambda one: one.sender != first)
    assert broken_rules(audit(wire, packets)) <= broken_rules(audit(wire))


def test_where_the_arguments_of_a_truncated_call_begin_is_undecidable() -> None:
    """krb5 protects no more than the header, so the data of a WRITE may be reduced."""
    wire = Wire(seed=6)
    connection = opened(wire)
    data = connection.register(4096)
    text = sealed_call(7, 0, 1, opaque(nfs3.FH) + u32(0, 0, 4096, 2, 4096))
    connection.send(0, header(7, 0, reads=[(len(text), data)]) + text)
    connection.read(1, data[0].handle, data[0].offset, bytes(4096))
    hello(connection)
    rule = "V1-GSS-MATERIAL"
    assert total(audit(wire), rule).passed == 1
    tally = total(audit(wire, faults.snap(wire.packets, 160)), rule)
    assert (tally.undecidable, tally.violated) == (1, 0)


@pytest.mark.parametrize("length", (96, 150, 180))
@pytest.mark.parametrize("second", (False, True), ids=("nfs3", "nfs4"))
@pytest.mark.parametrize("room", (0, 4096))
def test_what_a_truncated_call_asks_for_is_undecidable(room: int, second: bool, length: int) -> None:
    """The capture ends before maxcount, so it may be more than fits inline, or more than the Reply chunk has."""
    wire = Wire(seed=6)
    connection = opened(wire)
    chunk = connection.register(room) if room else None
    listing = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.getattr_()) if second else nfs3.readdirplus(65536)
    answer = nfs4.compound_reply(nfs4.sequence_done()) if second else nfs3.readdirplus_reply([b"name"])
    reply(call(connection, listing, reply_chunk=chunk), answer, long=bool(room))
    tally = total(audit(wire, faults.snap(wire.packets, length)), "V1-REPLY-CHUNK-" + ("SIZE" if room else "PROVIDED"))
    assert tally.undecidable and not tally.violated


@pytest.mark.parametrize("seen", (False, True), ids=("began before", "whole"))
def test_whether_a_short_reply_chunk_matters_is_undecidable_where_the_inline_threshold_is_not_known(seen: bool) -> None:
    wire = Wire(seed=6)
    connection = opened(wire)
    listing = call(connection, nfs3.readdirplus(65536), reply_chunk=connection.register(4096))
    reply(listing, nfs3.readdirplus_reply([b"name"]))
    tally = total(audit(wire, wire.packets[0 if seen else 3 :]), "V1-REPLY-CHUNK-SIZE")
    assert (tally.passed, tally.undecidable, tally.violated) == (0, not seen, seen)


def test_a_truncated_call_that_asks_for_no_bytes_is_not_judged_by_them() -> None:
    wire = Wire(seed=6)
    reply(call(opened(wire), nfs3.getattr_()), nfs3.getattr_reply())
    assert not total(audit(wire, faults.snap(wire.packets, 150)), "V1-REPLY-CHUNK-PROVIDED").opportunities


def test_a_truncated_answer_of_another_version_may_be_an_error() -> None:
    wire = Wire(seed=7)
    connection = opened(wire)
    connection.send(0, header(7, 0, version=3) + bytes(40))
    connection.send(1, struct.pack(">7I", 7, 3, 32, 4, 1, 1, 1))
    hello(connection)
    server = [one for one in audit(wire).findings if one.rule.id == "V1-VERSION" and one.endpoint == 1]
    assert not server
    auditor = audit(wire, faults.snap(wire.packets, 14 + 20 + 8 + 12 + 12))
    assert {place.endpoint for place, tally in auditor.tallies.items() if tally.violated} == {0}
    assert total(auditor, "V1-VERSION").undecidable == 1


@pytest.mark.parametrize("fault", ["the first reply is missing", "a reply behind the next call", "a reply ahead"])
def test_an_xid_used_in_turn_is_not_reused_where_the_capture_may_be_out_of_step(fault: str) -> None:
    wire = Wire(seed=8)
    connection = wire.connect(cm=fault != "the first reply is missing")
    for _ in range(4):
        reply(call(connection, nfs3.getattr_(), xid=7), nfs3.getattr_reply())
    replies = faults.where(wire.packets, kind="send", sender=1)
    if fault == "the first reply is missing":
        packets = faults.drop(wire.packets, [replies[0]])
    elif fault == "a reply behind the next call":
        packets = faults.swap(wire.packets, replies[1], 2)
    else:
        packets = faults.swap(wire.packets, replies[1] - 2, 2)
    auditor = audit(wire, packets)
    assert broken_rules(auditor) == set()
    assert fault == "a reply ahead" or total(auditor, "V1-XID-REUSED").undecidable


def test_a_reply_to_a_call_before_the_capture_is_not_behind_the_error_of_a_later_one() -> None:
    """It waits for its call, and is judged when none came."""
    wire = Wire(seed=8)
    connection = wire.connect(cm=False)
    for _ in range(2):
        error(call(connection, nfs3.getattr_(), xid=7))
    packets = faults.drop(wire.packets, faults.where(wire.packets, kind="send", sender=0)[:1])
    assert broken_rules(audit(wire, packets)) <= broken_rules(audit(wire))


def test_a_reply_that_is_captured_late_leaves_no_two_calls_outstanding() -> None:
    """The next replies, which were sent behind it, are captured before it."""
    wire = Wire(seed=8)
    connection = wire.connect()
    for _ in range(4):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    first = faults.where(wire.packets, kind="send", sender=1)[0]
    auditor = audit(wire, faults.swap(wire.packets, first, 10))
    assert broken_rules(auditor) == set()
    assert total(auditor, "V1-CREDIT-FIRST").undecidable


def test_nor_does_an_error_whose_time_is_before_the_next_call() -> None:
    """Two interfaces, one of which is behind, with right times."""
    wire = Wire(seed=8)
    connection = wire.connect()
    for _ in range(2):
        error(call(connection, nfs3.getattr_()))
        wire.pause(1_000_000)
    answer = faults.where(wire.packets, kind="send", sender=1)[0]
    assert broken_rules(audit_capture(with_its_times(wire, faults.swap(wire.packets, answer, 3)))) == set()


@pytest.mark.parametrize("late", [1, 7])
def test_a_session_that_is_captured_behind_the_first_callback_was_offered_before_it(late: int) -> None:
    wire = Wire(seed=8)
    connection = opened(wire)
    session = call(connection, create_session())
    reply(session, session_created())
    called = callback(connection)
    recalled(called)
    hello(connection)
    (asked,) = faults.where(wire.packets, operation=session.true.call_operation)
    (behind,) = faults.where(wire.packets, operation=called.true.call_operation)
    auditor = audit(wire, faults.swap(wire.packets, asked, behind - asked + late))
    assert broken_rules(auditor) == set()
    assert total(auditor, "V1-BACKWARD-UNANNOUNCED").undecidable


@pytest.mark.parametrize("step", [1, 1000])
def test_a_gap_that_a_late_reply_fills_hides_no_lower_grant(step: int) -> None:
    wire = Wire(seed=2)
    connection = wire.connect(acks="message")
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    calls = [call(connection, nfs3.getattr_()) for _ in range(3)]
    for answered in calls[:2]:
        reply(answered, nfs3.getattr_reply())
    for answered in (calls[2], call(connection, nfs3.getattr_())):
        reply(answered, nfs3.getattr_reply())
    capture = Capture(wire, faults.swap(wire.packets, 15, 2))
    auditor = Auditor()
    analyzer = Analyzer(listener=auditor.listener)
    for batch in frame_batches(capture.frames, range(step, len(capture.frames), step)):
        analyzer.feed(batch)
    analyzer.finish()
    auditor.finish(analyzer.conversations)
    assert (total(auditor, "V1-CREDIT-EXCEEDED").passed, total(auditor, "V1-CREDIT-EXCEEDED").undecidable) == (4, 0)


def test_a_send_without_its_first_packet_fits_no_buffer_for_sure() -> None:
    wire = Wire(seed=5, mtu=4096)
    wire.version = 2
    near_misses.call_of(wire, 1024, 5000)
    hello(wire.connections[0])
    whole, torn = (total(audit(wire, packets), "V2-INLINE-4096") for packets in (None, faults.drop(wire.packets, [7])))
    assert whole.violated == 1 and (torn.violated, torn.undecidable) == (0, 1)
