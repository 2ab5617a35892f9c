"""However a capture is cut, into files, batches or processes, and from a pipe: the same RPCs with the same numbers."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, example, given, settings, strategies as st

from playbook import Capture, Wire, call, faults, fetch, nfs3, reply
from playbook.capture import frame_batches, write_pcap
from playbook.fragments import fragmented
from playbook.iwarp import IwarpCapture, IwarpConnection, IwarpWire
from playbook.iwarp_strategies import IwarpConversation, iwarp_conversations, iwarp_faulty
from playbook.judge import analyze, judge, judge_whole
from playbook.packets import Frame
from playbook.rpcrdma import Exchange
from playbook.shapes import DATA, read, write
from playbook.strategies import Conversation, conversations, faulty
from playbook.tcp import TcpSegment
from playbook.wire import Connection
from rdmascope.cli.main import main
from rdmascope.dissect.records.connection import transport_record
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options
from rdmascope.dissect.rpcrdma.rpcs import Rpc

QUICK = settings(
    max_examples=6,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a conversation says enough unshrunk, and at once
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
BEGUN = conversations(max_connections=4, cm=st.just(True))
"""Of connections that begin in the capture: of others it shows only after a while who talks with whom."""
IWARP_BEGUN = iwarp_conversations(cm=st.just(True), strangers=False)
IWARP_ALONE = iwarp_conversations(max_connections=1, cm=st.just(True), strangers=False)
FAULTS = "drop", "drop ack", "swap", "nak", "timeout", "rnr", "response"
IWARP_FAULTS = "lost", "lost and more", "reorder", "repeat", "ghost", "keepalive", "duplicate", "drop", "swap"
CUTS = st.lists(st.integers(0, 300), max_size=5)


def described(rpc: Rpc) -> tuple[object, ...]:
    """All but retransmissions, which may come when the RPC was given, and the latency where there are any."""
    connection, damage = rpc.connection.number, [str(one) for one in rpc.damage]
    latency = None if any(ledger.counts or ledger.late for ledger in rpc.connection.ledgers) else rpc.latency
    return (
        rpc.number, connection, rpc.backward, rpc.xid, rpc.name, rpc.status, rpc.state, rpc.call_frame, rpc.reply_frame,
        rpc.contents, damage, rpc.notes, rpc.ambiguous, latency,
    )  # fmt: skip


def analysed(frames: Sequence[Frame], cuts: Sequence[int], mapped: bool = False) -> list[tuple[object, ...]]:
    """The RPCs of the frames in batches, in the order of their numbers."""
    analyzer = Analyzer()
    rpcs = [rpc for batch in frame_batches(frames, cuts, mapped) for rpc in analyzer.feed(batch)] + analyzer.finish()
    return [described(rpc) for rpc in sorted(rpcs, key=lambda one: one.number)]


def in_any_batches(frames: Sequence[Frame], cuts: Sequence[int]) -> None:
    """Calls that are open where a batch of a file ends stay rows, those of a pipe do not."""
    whole = analysed(frames, [])
    for mapped in (False, True):
        assert analysed(frames, cuts, mapped) == whole
        assert analysed(frames, range(1, len(frames)), mapped) == whole


@QUICK
@given(BEGUN, CUTS)
def test_any_batches(conversation: Conversation, cuts: list[int]) -> None:
    in_any_batches(conversation.capture.frames, cuts)


@QUICK
@given(faulty(FAULTS, conversations(max_connections=1, cm=st.just(True), strangers=False)), CUTS)
def test_any_batches_of_a_connection_with_faults(conversation: Conversation, cuts: list[int]) -> None:
    in_any_batches(conversation.capture.frames, cuts)


@pytest.mark.parametrize("cut", [60, 150, 300])
def test_gaps_that_are_proved_long_before_they_are_given_up(cut: int) -> None:
    """The second is given up as soon as the first, for a batch before has proved both."""
    wire = Wire()
    connections = wire.connect(), wire.connect(client="10.0.0.3")
    for _ in range(90):
        for connection in connections:
            reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    first = [at for at in faults.where(wire.packets, kind="send", sender=1) if wire.packets[at].connection == 1]
    frames = Capture(wire, faults.drop(wire.packets, [first[2], first[5]])).frames
    assert analysed(frames, [cut]) == analysed(frames, [])
    assert shown_connections(frames, cut) == shown_connections(frames, len(frames))


@QUICK
@given(IWARP_BEGUN, CUTS)
def test_any_batches_of_iwarp(conversation: IwarpConversation, cuts: list[int]) -> None:
    in_any_batches(conversation.capture.frames, cuts)


@QUICK
@given(iwarp_faulty(IWARP_FAULTS, IWARP_ALONE), CUTS)
def test_any_batches_of_an_iwarp_connection_with_faults(conversation: IwarpConversation, cuts: list[int]) -> None:
    in_any_batches(conversation.capture.frames, cuts)


@settings(QUICK, max_examples=3)
@given(BEGUN, IWARP_BEGUN, st.lists(st.booleans(), min_size=40), CUTS)
def test_any_batches_of_both_transports(
    roce: Conversation, iwarp: IwarpConversation, turns: list[bool], cuts: list[int]
) -> None:
    parts = [*roce.capture.frames], [*iwarp.capture.frames]
    frames = [parts[turn].pop(0) for turn in turns if parts[turn]]
    in_any_batches([*frames, *parts[0], *parts[1]], cuts)


@QUICK
@given(faulty(FAULTS, conversations(max_connections=3, cm=st.just(True), strangers=False)), CUTS)
def test_any_batches_of_several_connections_with_faults(conversation: Conversation, cuts: list[int]) -> None:
    in_any_batches(conversation.capture.frames, cuts)


@QUICK
@given(iwarp_faulty(IWARP_FAULTS, IWARP_BEGUN), CUTS)
def test_any_batches_of_several_iwarp_connections_with_faults(conversation: IwarpConversation, cuts: list[int]) -> None:
    in_any_batches(conversation.capture.frames, cuts)


def everything(wire: Wire) -> list[Any]:
    """The packets, or segments, of a wire."""
    return wire.sent() if isinstance(wire, IwarpWire) else wire.packets


def paused(sent: list[Any], at: int, pause: int = 1_100_000_000) -> list[Any]:
    """Nothing was sent for so many nanoseconds before packet ``at``."""
    return [*sent[:at], *(replace(one, time=one.time + pause) for one in sent[at:])]


def busy(seed: int, wire: Wire) -> tuple[random.Random, list[Any]]:
    """Packets, or segments, of connections that talk and pause together, where some come late, twice or never."""
    rng = random.Random(seed)
    acks = rng.choice(("message", "none"))
    connections = [wire.connect(f"10.0.0.{host}", acks=acks) for host in (2, 3, 4)[: rng.randint(2, 3)]]
    begun = len(everything(wire))
    waiting: list[Any] = []
    for _ in range(rng.randint(12, 40)):
        connection, kind = rng.choice(connections), rng.random()
        if kind < 0.5:
            waiting.append(call(connection, nfs3.getattr_()))
        elif kind < 0.7:
            (read if kind < 0.6 else write)(connection, DATA[: rng.choice((100, 3000))])
        elif waiting:
            reply(waiting.pop(rng.randrange(len(waiting))), nfs3.getattr_reply())
    sent = everything(wire)
    for _ in range(rng.randint(0, 4)):
        sent = paused(sent, rng.randrange(begun, len(sent)), rng.choice((600_000_000, 1_100_000_000)))
    for _ in range(rng.randint(1, 4)):
        at, fault = rng.randrange(begun, len(sent)), rng.random()
        if fault < 0.6:
            sent = faults.swap(sent, at, rng.randint(1, 12))
        elif fault < 0.8:
            sent = faults.drop(sent, [at])
        else:
            sent = faults.duplicate(sent, at, rng.randint(0, 5))
    return rng, sent


@QUICK
@given(st.integers(0, 1 << 20), CUTS)
def test_any_batches_of_busy_connections_with_gaps(seed: int, cuts: list[int]) -> None:
    wire = Wire(seed=seed)
    rng, packets = busy(seed, wire)
    for at in rng.choices(range(min(12, len(packets) - 1), len(packets)), k=rng.randint(0, 2)):
        delay, answer = rng.choice((50_000, 1_200_000_000)), rng.choice(("nak", "timeout"))
        packets = faults.lose(wire, packets, at, answer=answer, recorded=rng.random() < 0.7, delay=delay)
    in_any_batches(Capture(wire, packets).frames, cuts)


@QUICK
@given(st.integers(0, 1 << 20), CUTS)
@example(4635, [])  # A call is shown behind its Write, and what is lost behind its reply.
def test_any_batches_of_busy_iwarp_connections_with_gaps(seed: int, cuts: list[int]) -> None:
    wire = IwarpWire(seed=seed)
    in_any_batches(IwarpCapture(wire, busy(seed, wire)[1]).frames, cuts)


MTUS = st.sampled_from((256, 512, 1024, 2048, 4096))
SIZES = st.lists(st.tuples(st.booleans(), st.integers(1, 12_000)), min_size=1, max_size=3)


@QUICK
@given(st.lists(st.tuples(MTUS, SIZES), min_size=2, max_size=5), st.booleans(), CUTS)
@example([(1024, [(True, 3000)]), (4096, [(False, 9000)]), (256, [(False, 700)])], True, [])
@example([(256, [(True, 700)]), (4096, [(False, 1024), (True, 1024)])], True, [])
@example([(256, [(False, 2049)]), (512, [(False, 355)])], True, [13])
def test_a_path_mtu_that_changes_loses_no_byte(
    stretches: list[tuple[int, list[tuple[bool, int]]]], cm: bool, cuts: list[int]
) -> None:
    wire = Wire(mtu=stretches[0][0])
    connection = wire.connect(cm=cm)
    for connection.mtu, sizes in stretches:
        for reading, size in sizes:
            (read if reading else write)(connection, wire.random.randbytes(size))
    capture = Capture(wire)
    for ends in ([], cuts, range(1, len(capture.frames))):
        judge_whole(capture, analyze(capture, ends))


@QUICK
@given(st.integers(0, 1 << 20))
@example(24).via("responses that waited behind the gap")
@example(26).via("a Read behind the gap, before its first response told the path MTU")
@example(37).via("responses that are placed when the capture is over")
@example(83).via("a response longer than the path MTU was")
@example(480).via("a reply with a PSN that the Read before it, whose response is missing, seemed to take")
def test_any_batches_where_the_path_mtu_changes_and_a_packet_is_missing(seed: int) -> None:
    rng = random.Random(seed)
    wire = Wire(seed=seed, mtu=rng.choice((256, 512, 1024, 2048, 4096)))
    connection = wire.connect(cm=rng.random() < 0.7, acks=rng.choice(("packet", "message", "none")))
    for _ in range(rng.randint(2, 5)):
        connection.mtu = rng.choice((256, 512, 1024, 2048, 4096))
        for _ in range(rng.randint(1, 3)):
            (read if rng.random() < 0.5 else write)(connection, wire.random.randbytes(rng.randint(1, 12_000)))
    kinds = "write", "response", "send", "read"
    lost = rng.choice([at for at, one in enumerate(wire.packets) if one.kind in kinds])
    capture = Capture(wire, faults.drop(wire.packets, [lost]))
    frames = capture.frames
    judge(capture, analyze(capture))
    whole = [row[:-3] for row in analysed(frames, [])]  # But notes: which of two requests reuses a PSN is a guess.
    for step in (1, 2, 3, 7, 64):
        assert [row[:-3] for row in analysed(frames, range(step, len(frames), step))] == whole


def test_batches_that_end_between_a_read_and_its_response_whose_last_psn_is_used_again() -> None:
    """Before its response it is not known how many PSNs the Read took."""
    wire = Wire(mtu=1024)
    connection = wire.connect(cm=False)
    write(connection, DATA[:2400])
    packets = wire.packets
    (reply_,) = faults.where(packets, kind="send", sender=1)
    packets[reply_] = replace(packets[reply_], psn=(packets[reply_].psn - 1) % (1 << 24))
    frames = Capture(wire, packets).frames
    (row,) = analysed(frames, [])
    assert row[6] == "complete" and "its sender's error" in str(row[11])
    in_any_batches(frames, [])
    for cut in range(1, len(frames)):
        in_any_batches(frames, [cut])


@QUICK
@given(BEGUN, st.data(), CUTS)
def test_fragments_of_ip_make_no_byte_wrong(conversation: Conversation, data: st.DataObject, cuts: list[int]) -> None:
    """They are not put together: the frame of the first, which stays in its place, is none of RDMA."""
    capture = conversation.capture
    # Those of the connection manager fit into any path's MTU: without them who is the client is a guess.
    over_ipv4 = [
        at for at, one in enumerate(capture.frames) if one.data[12:15] == b"\x08\x00\x45" and len(one.data) > 400
    ]
    for at in data.draw(st.lists(st.sampled_from(over_ipv4), max_size=9, unique=True)) if over_ipv4 else ():
        capture.frames[at], behind = fragmented(capture.frames[at])
        capture.frames.append(behind)
    judge(capture, analyze(capture, cuts))


def test_batches_that_end_inside_of_an_mpa_request() -> None:
    """Another connection begins before all of it is there, and so has the lower number."""
    wires = IwarpWire(mss=256), IwarpWire(seed=1)
    for host, wire in enumerate(wires, 2):
        connection = wire.connect(f"10.0.0.{host}", client_private=bytes(500 * (3 - host)))
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    slow, quick = (IwarpCapture(wire).frames for wire in wires)
    in_any_batches([*slow[:4], *quick, *slow[4:]], [])


def test_what_waits_behind_a_gap_keeps_its_bytes_where_contents_are_dropped() -> None:
    wire = Wire()
    connection = wire.connect(acks="none")
    for _ in range(8):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    lost = faults.where(wire.packets, kind="send", sender=0)[4]
    capture = Capture(wire, faults.drop(wire.packets, [lost]))
    frames, states = capture.frames, {rpc.number: rpc.state for rpc in analyze(capture)}
    for cut in range(1, len(frames)):
        analyzer = Analyzer(Options(contents=False))
        rpcs = [rpc for batch in frame_batches(frames, [cut]) for rpc in analyzer.feed(batch)] + analyzer.finish()
        assert {rpc.number: rpc.state for rpc in rpcs} == states


def two_connections(cm: bool) -> tuple[Wire, list[Connection]]:
    wire = Wire()
    return wire, [wire.connect(f"10.0.0.{host}", cm=cm, acks="none") for host in (2, 3)]


def test_what_comes_late_of_a_connection_is_not_of_the_next_one_on_its_queue_pairs() -> None:
    """The last reply is captured behind the next REQ."""
    wire = Wire(seed=5)
    for _ in range(2):
        connection = wire.connect(client_qpn=0x11, server_qpn=0x12)
        last, ended = wire.truth[-1:], len(wire.packets)
        for _ in range(3):
            read(connection, wire.random.randbytes(2000))
        connection.disconnect()
    [late] = faults.where(wire.packets[:ended], kind="send", operation=last[0].reply_operation)
    request = faults.where(wire.packets[:ended], kind="cm")[-3]
    capture = Capture(wire, faults.swap(wire.packets, late, request - late))
    judge_whole(capture, analyze(capture))
    in_any_batches(capture.frames, [])


def test_a_call_that_waits_for_more_than_a_second_behind_a_gap_has_its_reply() -> None:
    wire = Wire()
    connection = wire.connect(acks="none")
    call(connection, nfs3.getattr_())
    asked = call(connection, nfs3.getattr_())
    behind = len(wire.packets)
    reply(asked, nfs3.getattr_reply())
    late = faults.where(wire.packets, kind="send", sender=0)[0]
    frames = Capture(wire, faults.swap(paused(wire.packets, behind, 1_200_000_000), late, 3)).frames
    assert [row[6] for row in analysed(frames, [])] == ["complete", "no reply"]
    in_any_batches(frames, [])


def test_batches_of_a_capture_that_begins_between_a_loss_and_its_repetition() -> None:
    """Who talks with whom shows later: by then it is known where requests begin."""
    wire = Wire()
    connection = wire.connect(cm=False, acks="none")
    for one in [call(connection, nfs3.getattr_()) for _ in range(2)]:
        reply(one, nfs3.getattr_reply())
    lost, behind, *others = wire.packets
    packets = [replace(behind, time=lost.time), lost, behind, *others]
    in_any_batches(Capture(wire, packets).frames, [])


@pytest.mark.parametrize("cut", [0, 3])
def test_a_segment_that_begins_with_the_end_of_a_transport_header_is_no_record(cut: int) -> None:
    """Its last word, 0 where there is no Reply chunk, looks like the mark of a record."""
    wire = IwarpWire()
    connection = wire.connect(cm=False)
    for _ in range(3):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    sent = wire.sent()
    at = faults.where(sent, kind="data", sender=0)[1]
    whole = sent[at]
    assert whole.payload[44:48] == bytes(4)
    sent[at : at + 1] = [
        replace(whole, payload=whole.payload[44:], seq=whole.seq + 44, at=whole.at + 44),
        replace(whole, payload=whole.payload[:44]),
    ]
    frames = IwarpCapture(wire, sent).frames
    assert [row[6] for row in analysed(frames, [cut])] == ["complete"] * 3


def test_batches_that_end_between_a_call_its_retransmission_and_its_reply() -> None:
    wire, (connection, _) = two_connections(True)
    read(connection)
    sent = call(connection, nfs3.getattr_())
    [packet] = faults.where(wire.packets, operation=sent.true.call_operation)
    reply(sent, nfs3.getattr_reply())
    sent_again = paused(faults.duplicate(wire.packets, packet), packet + 1, 67_000_000)
    in_any_batches(Capture(wire, sent_again).frames, [])


def test_batches_that_end_where_a_packet_comes_late_while_another_connection_calls() -> None:
    wire, connections = two_connections(cm=True)
    calls = [call(connection, nfs3.getattr_()) for connection in connections * 3]
    for one in calls:
        reply(one, nfs3.getattr_reply())
    late = faults.where(wire.packets, kind="send", sender=0)[0]
    in_any_batches(Capture(wire, faults.swap(wire.packets, late, 2)).frames, [])


def test_batches_that_end_before_what_a_silence_releases_while_another_connection_calls() -> None:
    """Two calls wait, as the one before them came late and copies may follow; another connection shows the silence."""
    wire, (quiet, other) = two_connections(cm=True)
    calls = [call(quiet, nfs3.getattr_()) for _ in range(3)]
    begun = len(wire.packets)
    calls.append(call(other, nfs3.getattr_()))
    for one in calls:
        reply(one, nfs3.getattr_reply())
    late = faults.where(wire.packets, kind="send", sender=0)[0]
    in_any_batches(Capture(wire, faults.swap(paused(wire.packets, begun), late, begun - late - 1)).frames, [])


def test_batches_that_end_where_a_read_response_comes_more_than_a_second_late() -> None:
    wire = Wire()
    connection = wire.connect()
    write(connection, DATA[:3000])
    behind = len(wire.packets)
    for _ in range(2):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    response = faults.where(wire.packets, kind="response")[0]
    packets = faults.swap(paused(wire.packets, behind), response, behind + 6 - response)
    frames = Capture(wire, packets).frames
    assert [rpc.state for rpc in analyze(Capture(wire, packets))] == ["complete"] * 3
    in_any_batches(frames, [])


def test_batches_that_end_where_a_read_response_comes_too_late() -> None:
    wire = Wire()
    connection = wire.connect()
    write(connection, DATA[:3000])
    for _ in range(80):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    response = faults.where(wire.packets, kind="response")[0]
    for at in (240, 300):
        capture = Capture(wire, faults.swap(wire.packets, response, at))
        whole = analysed(capture.frames, [])
        assert analysed(capture.frames, range(1, len(capture.frames))) == whole
        assert (whole[0][6] == "complete") == (at < 256)


def test_batches_that_end_between_a_packet_that_is_retransmitted_late_and_a_copy_of_the_next() -> None:
    wire = Wire()
    connection = wire.connect()
    for one in [call(connection, nfs3.getattr_()) for _ in range(2)]:
        reply(one, nfs3.getattr_reply())
    lost = faults.where(wire.packets, kind="send", sender=1)[0]
    packets = faults.drop(wire.packets, [lost + 1])  # its acknowledgement
    packets = faults.lose(wire, packets, lost, recorded=False, delay=1_200_000_000)
    frames = Capture(wire, packets).frames
    for cut in range(1, len(frames)):
        in_any_batches(frames, [cut])


def test_batches_that_end_where_a_gap_of_iwarp_is_given_up_after_a_pause() -> None:
    wire = IwarpWire()
    connections = [wire.connect(f"10.0.0.{host}") for host in (2, 3)]
    for _ in range(6):
        for connection in connections:
            reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    sent = wire.sent()
    lost = [at for at, one in enumerate(sent) if one.payload and one.connection == 1][4]
    in_any_batches(IwarpCapture(wire, faults.drop(paused(sent, lost + 12), [lost])).frames, [])


def test_batches_that_end_behind_a_segment_of_which_not_all_calls_are_decoded_at_once() -> None:
    """Behind a lost segment FPDUs are decoded a few at a time, so the last call of a segment may stand alone there."""
    wire = IwarpWire(mss=500)
    connection = wire.connect(cutting="merged", crc=False, acks="packet")
    for _ in range(4):
        for one in [call(connection, nfs3.getattr_()) for _ in range(20)]:
            reply(one, nfs3.getattr_reply())
    lost = faults.where(wire.sent(), kind="data", sender=0)[1]
    in_any_batches(IwarpCapture(wire, faults.drop(wire.sent(), [lost])).frames, [])


def talking(wire: IwarpWire, connections: list[IwarpConnection], times: int = 20) -> list[Frame]:
    """Two connections call in turn, and are answered behind the next call, so that the order of both tells."""
    asked = [call(connection, nfs3.getattr_()) for connection in connections]
    for _ in range(times):
        for index, connection in enumerate(connections):
            reply(asked[index], nfs3.getattr_reply())
            asked[index] = call(connection, nfs3.getattr_())
    return IwarpCapture(wire).frames


@pytest.mark.parametrize("sender", [0, 1])
def test_batches_that_end_before_a_request_or_reply_of_mpa_is_known_to_be_missing(sender: int) -> None:
    wire = IwarpWire()
    connections = [wire.connect(f"10.0.0.{host}") for host in (2, 3)]
    talking(wire, connections)
    lost = faults.where(wire.sent(), kind="data", sender=sender, connection=1)[0]
    in_any_batches(IwarpCapture(wire, faults.drop(wire.sent(), [lost])).frames, [])


@pytest.mark.parametrize("sender", [0, 1])
def test_batches_that_end_before_a_request_or_reply_of_mpa_is_sent_again(sender: int) -> None:
    """The connection began before the capture did: by then it is known to be iWARP, or not."""
    wire = IwarpWire()
    connection = wire.connect(acks="packet")
    startup = wire.sent()[faults.where(wire.sent(), kind="data", sender=sender)[0]]
    begun = len(wire.sent())
    for _ in range(3):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    sent = wire.sent()[begun:]
    for at, before in enumerate(sent[:6], 1):
        in_any_batches(IwarpCapture(wire, [*sent[:at], replace(startup, time=before.time), *sent[at:]]).frames, [])


@pytest.mark.parametrize("cutting", ["aligned", "merged"])
@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("begin", [0, 7])
def test_batches_that_end_before_it_is_known_where_markers_stand(begin: int, crc: bool, cutting: str) -> None:
    wire = IwarpWire(mss=536)
    connections = [
        wire.connect(f"10.0.0.{host}", cm=False, markers=(True, True), crc=crc, cutting=cutting) for host in (2, 3)
    ]
    frames = talking(wire, connections, 12)[begin:]
    whole = analysed(frames, [])
    assert any(row[6] == "complete" for row in whole)
    in_any_batches(frames, [])
    assert shown_connections(frames, 1) == shown_connections(frames, len(frames))


def shown_connections(frames: Sequence[Frame], step: int) -> list[tuple[object, ...]]:
    """The connections of the frames in batches of so many, when each was first seen, and what is missing."""
    analyzer = Analyzer()
    for batch in frame_batches(frames, range(step, len(frames), step)):
        analyzer.feed(batch)
    analyzer.finish()
    return [
        (*map(str, one.endpoints), one.first_frame, one.missing_packets, *map(tuple, one.gaps))
        for one in analyzer.connections
    ]


def healths(frames: Sequence[Frame], step: int) -> list[dict[str, Any]]:
    """How the transport of each connection fared, of the frames in batches of so many."""
    analyzer = Analyzer()
    for batch in frame_batches(frames, range(step, len(frames), step)):
        analyzer.feed(batch)
    analyzer.finish()
    return [transport_record(one, analyzer.health(one.connection.number)) for one in analyzer.conversations]


def sent_at_once(acks: str) -> tuple[IwarpWire, list[TcpSegment], list[int]]:
    """Six calls of which each has its own segment, and where those are."""
    wire = IwarpWire()
    connection = wire.connect(acks=acks)
    begun = len(wire.sent())
    for one in [call(connection, nfs3.getattr_()) for _ in range(6)]:
        reply(one, nfs3.getattr_reply())
    sent = wire.sent()
    return wire, sent, [at for at in faults.where(sent, kind="data", sender=0) if at >= begun]


def test_batches_that_end_behind_reads_between_which_a_request_is_missing() -> None:
    """The PSNs that a Read seems to take tell no path MTU."""
    wire = Wire(mtu=1024)
    connection = wire.connect(cm=False)
    rpc = call(connection, nfs3.write(0, bytes(1500)), reads={0: connection.register(1500)})
    fetch(rpc, split=300)
    reply(rpc, nfs3.write_reply(1500))
    second = faults.where(wire.packets, kind="read")[1]
    frames = Capture(wire, faults.drop(wire.packets, [second])).frames
    assert analysed(frames, range(1, len(frames))) == analysed(frames, [])
    assert shown_connections(frames, 1) == shown_connections(frames, len(frames))


def test_batches_that_end_before_connections_become_known_beside_one_that_waited_for_a_retransmission() -> None:
    """All that was said on them until then has one place in the order of events."""
    wire = Wire()
    known = wire.connect(client="10.0.0.9")
    first, second = (wire.connect(client=client, cm=False) for client in ("10.0.0.2", "10.0.0.3"))
    rpc = call(known, nfs3.write(0, bytes(400)), reads={0: known.register(400)})
    beside = call(known, nfs3.getattr_())
    fetch(rpc, split=64, pipelined=2)
    reply(rpc, nfs3.write_reply(400))
    reply(beside, nfs3.getattr_reply())
    for connection in (first, first, second, first) * 4:
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    lost = faults.where(wire.packets, kind="read")[0]
    frames = Capture(wire, faults.lose(wire, wire.packets, lost, recorded=False)).frames
    assert analysed(frames, range(1, len(frames))) == analysed(frames, [])


def test_batches_that_end_between_responses_whose_psns_wrap_before_any_request() -> None:
    wire = Wire(mtu=1024)
    connection = wire.connect(cm=False, server_psn=(1 << 24) - 1)
    for _ in range(2):
        write(connection, bytes(1500))
        read(connection, bytes(1500))
    first = faults.where(wire.packets, kind="read")[0]
    frames = Capture(wire, faults.drop(wire.packets, [first])).frames
    assert healths(frames, 1) == healths(frames, len(frames))


def test_batches_that_end_between_a_damaged_segment_and_an_ack_that_repeats_the_one_before_it() -> None:
    wire, sent, segments = sent_at_once("packet")
    last = segments[-1]
    damaged, again = (
        replace(sent[last], corrupt=30, wrong_checksum=True),
        replace(sent[last - 1], time=sent[last].time + 1000),
    )
    frames = IwarpCapture(wire, [*sent[:last], damaged, again, *sent[last + 1 :]]).frames
    assert healths(frames, 1) == healths(frames, len(frames))


def test_batches_that_end_between_segments_sent_again_of_which_the_first_was_captured_before() -> None:
    wire, sent, segments = sent_at_once("none")
    last = segments[-1] + 1
    again = [replace(sent[at], time=sent[last].time + 1000 * at, copy=1) for at in segments[1:3]]
    frames = IwarpCapture(wire, faults.drop([*sent[:last], *again, *sent[last:]], [segments[2]])).frames
    assert healths(frames, 1) == healths(frames, len(frames))


def test_batches_that_end_before_a_single_octet_that_is_sent_again_behind_others() -> None:
    """It is no keep-alive."""
    wire, sent, segments = sent_at_once("none")
    last = segments[-1]
    one = replace(sent[last], copy=1)
    seq, at, octets = one.seq, one.at, one.payload
    cut = len(octets) - 1
    again = [
        replace(one, time=one.time + 2_000_000, payload=octets[:cut]),
        replace(one, time=one.time + 2_001_000, seq=seq + cut, at=at + cut, payload=octets[cut:]),
    ]
    frames = IwarpCapture(wire, [*sent[: last + 1], *again, *paused(sent[last + 1 :], 0, 3_000_000)]).frames
    assert healths(frames, 1) == healths(frames, len(frames))


def test_batches_that_end_before_it_is_known_where_fpdus_go_on_behind_truncated_segments() -> None:
    """What was read by then waits for nothing."""
    wire = IwarpWire()
    connections = [wire.connect(f"10.0.0.{host}", cutting="merged", acks="none") for host in (2, 3)]
    for _ in range(6):
        for one in [call(connection, nfs3.getattr_()) for connection in connections * 2]:
            reply(one, nfs3.getattr_reply())
    in_any_batches(IwarpCapture(wire, faults.snap(wire.sent(), 96)).frames, [])


def test_batches_that_end_before_enough_markers_are_captured() -> None:
    """What may be before the first two that are is kept till then."""
    wire = IwarpWire(mss=536)
    connection = wire.connect(cm=False, markers=(True, True), crc=False)
    for _ in range(4):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
        write(connection, DATA[:100])
        read(connection, DATA[:100])
    for begin in (4, 8):
        in_any_batches(IwarpCapture(wire, faults.snap(wire.sent()[begin:], 96)).frames, [])


@pytest.mark.parametrize("cm", [False, True])
def test_batches_that_end_between_an_acknowledgement_and_what_it_acknowledges(cm: bool) -> None:
    """The capture shows that behind it: no batch has both in another order."""
    wire = IwarpWire()
    connection = wire.connect(cm=cm)
    talking(wire, [connection], 8)
    sent = wire.sent()
    late = faults.where(sent, kind="data", sender=0)[4]
    frames = IwarpCapture(wire, faults.swap(sent, late, 1)).frames
    shown: list[object] = []
    for step in (1, 5, len(frames)):
        analyzer = Analyzer()
        for batch in frame_batches(frames, range(step, len(frames), step)):
            analyzer.feed(batch)
        analyzer.finish()
        shown.append(analyzer.health(1).directions)
    assert shown == shown[:1] * 3


def test_batches_that_end_before_a_connection_begins_anew_while_a_message_is_not_complete() -> None:
    wire = IwarpWire()
    old, other = wire.connect("10.0.0.2", client_port=50_000), wire.connect("10.0.0.3")
    asked = call(old, nfs3.read(0, 5000), writes=[old.register(5000)])
    reply(asked, nfs3.read_reply(DATA[:5000]))
    call(old, nfs3.write(0, DATA[:3000]))
    talking(wire, [other], 4)
    again = wire.connect("10.0.0.2", client_port=50_000)
    talking(wire, [again, other], 4)
    sent = wire.sent()
    last = faults.where(sent, kind="data", sender=0, connection=1)[-1]
    in_any_batches(IwarpCapture(wire, faults.drop(sent, [last])).frames, [])


def test_batches_that_end_between_the_ends_of_two_gaps_of_a_connection_whose_mpa_reply_is_missing() -> None:
    """An FPDU that what waited behind the second gap shows, is shown where that gap ends."""
    wire = IwarpWire()
    connection = wire.connect(acks="packet", mulpdu=64)
    for _ in range(2):
        call(connection, nfs3.getattr_())
    write(connection, DATA[:1000])
    read(connection, DATA[:600])
    requests, replies = (faults.where(wire.sent(), kind="data", sender=sender) for sender in (0, 1))
    frames = IwarpCapture(wire, faults.drop(wire.sent(), [replies[0], requests[8], requests[15]])).frames
    assert analysed(frames, range(60, len(frames))) == analysed(frames, [])


def test_batches_that_end_before_it_is_known_that_the_end_of_a_call_is_missing() -> None:
    wire = IwarpWire(mss=120)
    connections = [
        wire.connect(f"10.0.0.{host}", crc=False, cutting="merged", mulpdu=1400, client_private=b"") for host in (2, 3)
    ]
    asked: list[Exchange] = []
    for connection in connections:
        asked.append(call(connection, nfs3.getattr_()))
        connection.push()
    for one in asked:
        reply(one, nfs3.getattr_reply())
    talking(wire, connections, 50)
    lost = faults.where(wire.sent(), kind="data", sender=0, connection=1)[2]
    in_any_batches(IwarpCapture(wire, faults.drop(wire.sent(), [lost])).frames, [])


@pytest.mark.parametrize("wire", [Wire, IwarpWire])
@pytest.mark.parametrize(("pause", "between"), [(0, 100), (3_000_000_000, 3)])
def test_batches_that_end_before_an_xid_is_used_again(wire: type[Wire], pause: int, between: int) -> None:
    """Its first RPC, beside a gap, waits for that no longer than a second and no more than some RPCs."""
    made = wire()
    connection = made.connect(acks="none")
    first = call(connection, nfs3.getattr_(), xid=1)
    for xid in (2, 3, 4):
        call(connection, nfs3.getattr_(), xid=xid)
    reply(first, nfs3.getattr_reply())
    begun = len(everything(made))
    for xid in (*range(10, 10 + between), 1, *range(200, 340)):
        reply(call(connection, nfs3.getattr_(), xid=xid), nfs3.getattr_reply())
    sent = everything(made)
    lost = faults.where(sent, kind="data" if isinstance(made, IwarpWire) else "send", sender=0)[-141 - between - 3]
    sent = faults.drop(paused(sent, begun, pause), [lost])
    capture = IwarpCapture(made, sent) if isinstance(made, IwarpWire) else Capture(made, sent)
    in_any_batches(capture.frames, [])


def test_batches_that_end_before_a_request_is_known_to_be_missing_long_behind_a_reply() -> None:
    """It was sent behind the reply, which so is not one to it, though the XID may have been used again."""
    wire = IwarpWire()
    connection = wire.connect(acks="packet")
    for xid in (7, 8, 7, 9):
        reply(call(connection, nfs3.getattr_(), xid=xid), nfs3.getattr_reply())
    behind = len(wire.sent())
    for xid in range(10, 90):
        reply(call(connection, nfs3.getattr_(), xid=xid), nfs3.getattr_reply())
    requests, replies = (faults.where(wire.sent(), kind="data", sender=sender) for sender in (0, 1))
    sent = faults.drop(paused(wire.sent(), behind, 2_000_000_000), [replies[2], requests[7]])
    frames = IwarpCapture(wire, sent).frames
    assert [row[6] for row in analysed(frames, []) if row[3] == 9] == ["complete"]
    in_any_batches(frames, [])


def test_batches_that_end_before_it_is_known_how_long_segments_are() -> None:
    """How many segments were lost at least, is told by the longest before that."""
    wire = IwarpWire(mss=536)
    connection = wire.connect(acks="packet")
    call(connection, nfs3.write(0, DATA[:100]))
    for _ in range(60):
        call(connection, nfs3.getattr_())
    write(connection, DATA)
    lost = faults.where(wire.sent(), kind="data", sender=0)[2:9]
    frames = IwarpCapture(wire, faults.drop(wire.sent(), lost)).frames
    assert shown_connections(frames, 1) == shown_connections(frames, len(frames))


def test_batches_that_end_before_it_is_known_who_talks_with_whom() -> None:
    wire, connections = two_connections(cm=False)
    calls = [call(connection, nfs3.getattr_()) for connection in connections * 2]
    for one in reversed(calls):
        reply(one, nfs3.getattr_reply())
    in_any_batches(Capture(wire).frames, [])


def test_batches_that_end_between_an_inferred_connection_and_one_that_connects() -> None:
    wire = Wire()
    inferred = wire.connect("10.0.0.2", cm=False)
    for _ in range(8):
        reply(call(inferred, nfs3.getattr_()), nfs3.getattr_reply())
    begun = wire.connect("10.0.0.3")
    for connection in (begun, inferred):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    in_any_batches(Capture(wire).frames, [])


def without_calls(wire: Wire) -> list[Frame]:
    """Three clients at once, of whose RPCs some lack the call, and some of these have a second reply."""
    connections = [wire.connect(f"10.0.0.{host}") for host in (2, 3, 4)]
    lost: list[int] = []
    for turn in range(6):
        for index, connection in enumerate(connections):
            if (turn + index) % 3 == 0:
                at = len(wire.packets)
                asked = call(connection, nfs3.getattr_())
                lost += [packet for packet in range(at, len(wire.packets)) if wire.packets[packet].kind == "send"]
                reply(asked, nfs3.getattr_reply())
            (read if turn % 2 else write)(connection, DATA[:3000])
    return Capture(wire, faults.drop(wire.packets, lost)).frames


def unplaced(value: Any) -> Any:
    """A record without the file, and the frame there, that it has of captures of several files."""
    if isinstance(value, list):
        return [unplaced(one) for one in value]
    if isinstance(value, dict):
        return {name: unplaced(one) for name, one in value.items() if name.rpartition("_")[2] != "place"}
    return value


def printed(*words: str | Path) -> list[Any]:
    result = CliRunner().invoke(main, ["rpcs", "--json", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return [unplaced(json.loads(line)) for line in result.output.splitlines()]


def seen_live(capture: Path, size: int) -> list[Any]:
    """The RPCs that ``live`` prints of a capture that comes through a pipe, so many octets at a time."""
    program = "from rdmascope.cli.main import main; main()"
    live = subprocess.Popen(
        [sys.executable, "-c", program, "live", "-", "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert live.stdin is not None and live.stdout is not None
    octets = capture.read_bytes()
    for first in range(0, len(octets), size):
        live.stdin.write(octets[first : first + size])
        live.stdin.flush()
    live.stdin.close()
    with live.stdout as out:
        rows = [json.loads(line) for line in out]
    assert live.wait() == 0
    return sorted((row for row in rows if row["type"] == "rpc"), key=itemgetter("number"))


@pytest.mark.parametrize("seed", range(3))
def test_files_processes_and_a_pipe(seed: int) -> None:
    frames = without_calls(Wire(seed=seed))
    with TemporaryDirectory() as folder:
        whole, first, second = (Path(folder) / name for name in ("whole.pcap", "first.pcap", "second.pcap"))
        half = len(frames) * (seed + 1) // 4
        for path, part in ((whole, frames), (first, frames[:half]), (second, frames[half:])):
            write_pcap(part, path)
        expected = printed(whole)
        assert [row["number"] for row in expected] == [*range(1, len(expected) + 1)]
        assert {row["state"] for row in expected} == {"complete", "no call"}
        assert printed("--jobs", str(2 + seed % 2), whole) == expected
        assert printed(first, second) == expected
        assert seen_live(whole, 1000 * (seed + 1)) == expected


def test_processes_give_the_rows_of_one_in_its_order(tmp_path: Path) -> None:
    """Where a batch ends decides which retransmissions count with an RPC that has ended, and when a reply that waits
    for its call has: workers have the batches of one process."""
    wire = Wire()
    connections = [wire.connect(f"10.0.0.{host}", acks="none") for host in (2, 3)]
    for connection in connections * 550:
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    packets = wire.packets
    for at in range(2050, 2040, -1):
        packets = faults.lose(wire, packets, at, answer="timeout", recorded=True)
    packets = faults.drop(packets, [faults.where(packets, kind="send", sender=0)[at] for at in (975, 1070)])
    path = tmp_path / "retransmitted.pcap"
    write_pcap(Capture(wire, packets).frames, path)
    one, two = (
        CliRunner().invoke(main, ["rpcs", "--json", *words, str(path)]).output for words in ([], ["--jobs", "2"])
    )
    assert one == two and '"retransmitted_packets":1' in one and '"state":"no call"' in one


@QUICK
@given(st.one_of(BEGUN, IWARP_BEGUN), st.data())
def test_any_two_files(conversation: Conversation | IwarpConversation, data: st.DataObject) -> None:
    every = conversation.capture.frames
    cut = data.draw(st.integers(1, len(every)))
    with TemporaryDirectory() as folder:
        whole, first, second = (Path(folder) / name for name in ("whole.pcap", "first.pcap", "second.pcap"))
        for path, part in ((whole, every), (first, every[:cut]), (second, every[cut:])):
            write_pcap(part, path)
        assert printed(first, second) == printed(whole)
