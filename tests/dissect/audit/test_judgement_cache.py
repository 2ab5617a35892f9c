"""Judging routine messages and RPCs by their class says the same as judging each of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from playbook import Capture, Wire, call, cm, nfs3, nfs4, reply
from playbook.audits import JUDGED, late, play
from playbook.capture import frame_batches
from playbook.rows import decided
from playbook.rpcrdma import NOMSG
from playbook.samples import MANIFEST, SAMPLES
from playbook.strategies import Conversation, faulty, few_xids
from playbook.violations import hello
from playbook.violations.scripts import answer, returned
from playbook.wire import Connection
from rdmascope.captures import open_capture
from rdmascope.dissect.audit.auditor import Auditor, TallyKey
from rdmascope.dissect.audit.listener import RoutineRows
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, drop_contents

Said = tuple[str, tuple[int, ...], int | None, str, str]
Tallies = dict[TallyKey, tuple[int, int, int, int, dict[str, int]]]


def audited(batches: Iterable[FrameBatch], one_by_one: bool, rows: bool = False) -> tuple[Tallies, list[Said], Auditor]:
    """Judgements by rule and end, and what is said of the violations."""
    auditor = Auditor(release=drop_contents, one_by_one=one_by_one)
    analyzer = Analyzer(listener=auditor.listener)
    with decided(rows):
        for batch in batches:
            analyzer.feed(batch)
            if rows:
                auditor.forget(analyzer.last_time or 0)
    analyzer.finish()
    auditor.finish(analyzer.conversations)
    tallies = {
        place: (one.passed, one.violated, one.notes, one.undecidable, dict(one.reasons))
        for place, one in auditor.tallies.items()
        if one.opportunities
    }
    found = [(one.rule.id, one.frames, one.rpc, one.observed, one.required) for one in auditor.findings]
    return tallies, sorted(found), auditor


def compare(batches: list[FrameBatch]) -> Auditor:
    one_by_one = audited(batches, True)
    by_class, in_columns = audited(batches, False), audited(batches, False, True)
    assert by_class[:2] == one_by_one[:2]
    assert in_columns[:2] == one_by_one[:2]
    return in_columns[2]


@pytest.mark.parametrize("name", MANIFEST)
def test_samples_are_judged_alike(name: str) -> None:
    with open_capture(str(SAMPLES / MANIFEST[name]["file"])) as capture:
        compare(list(capture.batches()))


def truncated(batches: Iterable[FrameBatch], snaplen: int) -> list[FrameBatch]:
    """As if they had been captured with this snaplen."""
    cut = []
    for batch in batches:
        rows = batch.rows.copy()
        rows["captured"] = np.minimum(rows["captured"], snaplen)
        cut.append(FrameBatch(batch.data, rows))
    return cut


@pytest.mark.parametrize("snaplen", (106, 160, 256))
@pytest.mark.parametrize("name", ("bidir-rxe", "ipv6-rxe", "krb5-rxe", "loss-rxe", "rxe-nfs-all", "siw-nfs-all"))
def test_truncated_samples_are_judged_alike(name: str, snaplen: int) -> None:
    with open_capture(str(SAMPLES / MANIFEST[name]["file"])) as capture:
        compare(truncated(capture.batches(), snaplen))


@pytest.mark.parametrize(("number", "rule"), [*enumerate(JUDGED)])
def test_truncated_conversations_that_break_a_rule_are_judged_alike(number: int, rule: str) -> None:
    """At two of four snaplens, for all rules have much of their conversations in common."""
    wire, _ = play(rule)
    for _ in range(3):
        hello(wire.connections[0])
    batches = frame_batches(Capture(wire).frames, [])
    for snaplen in (110, 132, 170, 230)[number % 2 :: 2]:
        compare(truncated(batches, snaplen))


@pytest.mark.parametrize(("number", "rule"), [*enumerate(JUDGED)])
def test_conversations_that_break_a_rule_are_judged_alike(number: int, rule: str) -> None:
    """Captured whole or from behind the set-up in turn, for all rules have much of their conversations in common."""
    lacking = number % 2 == 1
    wire, _ = play(rule)
    for _ in range(3):
        hello(wire.connections[0])
    compare(frame_batches(Capture(wire, late(wire) if lacking else wire.packets).frames, []))


@given(st.one_of(faulty(), few_xids()))
def test_conversations_with_faults_are_judged_alike(conversation: Conversation) -> None:
    frames = Capture(conversation.wire, conversation.packets).frames
    compare(frame_batches(frames, range(20, len(frames), 20)))


TURNS = (
    *("through the Reply chunk", "inline", "two segments", "two Writes", "the Reply chunk is not used", "readdir"),
    *("another handle returned", "a handle that persists", "invalidates", "invalidates another", "a late Write"),
    *("more than there is room", "no credits", "fewer credits", "long Send", "not answered", "written elsewhere"),
    *("fewer bytes are returned than written", "more bytes are returned than written"),
)
"""What may happen to a call with a Reply chunk."""


def happens(connection: Connection, turn: str) -> None:
    """A call of NFS version 4 and what becomes of it."""
    sizes = (64, 192) if turn == "two segments" else (256,)
    chunk = connection.register(*sizes, handle=0x77 if turn == "a handle that persists" else None)
    credits = {"no credits": 0, "fewer credits": 1}.get(turn, 32)
    if turn == "readdir":
        rpc = call(connection, nfs3.readdirplus(4096), reply_chunk=connection.register(4096))
        reply(rpc, nfs3.readdirplus_reply([]))
        return
    asked = nfs4.compound(nfs4.sequence(), nfs4.putfh(), nfs4.getattr_(), tag=b"a" * (1200 * (turn == "long Send")))
    rpc = call(connection, asked, reply_chunk=None if turn == "inline" else chunk)
    if turn == "not answered":
        return
    if turn == "another handle returned":
        rpc.reply_chunk = [chunk[0]._replace(handle=chunk[0].handle + 1)]
    if turn == "more than there is room":
        rpc.reply_chunk = [chunk[0]._replace(length=4096)]
    answered = nfs4.compound_reply(nfs4.sequence_done(), nfs4.putfh_done(), nfs4.getattr_done())
    if turn.endswith("than written"):
        data = answer(answered, rpc.true.xid)
        connection.write(1, chunk[0].handle, chunk[0].offset, data)
        length = len(data) + (-4 if turn.startswith("fewer") else 4)
        returned(rpc, answered, reply=[chunk[0]._replace(length=length)], procedure=NOMSG)
        return
    tag = b"b" * 300 if turn == "more than there is room" else b""
    if turn == "written elsewhere":
        rpc.reply_chunk = [chunk[0]._replace(offset=chunk[0].offset + 8)]
    reply(
        rpc,
        nfs4.compound_reply(nfs4.sequence_done(), nfs4.putfh_done(), nfs4.getattr_done(), tag=tag),
        long=False if turn == "the Reply chunk is not used" else None,
        split=40 if turn == "two Writes" else None,
        credits=credits,
        invalidate={"invalidates": chunk[0].handle, "invalidates another": 0x99}.get(turn),
    )
    if turn == "a late Write":
        connection.write(1, chunk[0].handle, chunk[0].offset + 240, bytes(16))


@given(
    st.lists(st.sampled_from(TURNS) | st.just(TURNS[0]), min_size=1, max_size=60),
    st.sampled_from((b"", cm.private_data())),
    st.booleans(),
)
def test_rpcs_with_a_reply_chunk_are_judged_alike(turns: list[str], private: bytes, lacking: bool) -> None:
    wire = Wire()
    connection = wire.connect(client_private=private, server_private=private)
    hello(connection)
    for turn in turns:
        happens(connection, turn)
    hello(connection)
    compare(frame_batches(Capture(wire, late(wire) if lacking else wire.packets).frames, range(40, 400, 40)))


@pytest.mark.parametrize("turn", TURNS)
def test_rpcs_with_a_reply_chunk_that_have_one_thing_in_common_are_judged_alike(turn: str) -> None:
    wire = Wire()
    connection = wire.connect()
    hello(connection)
    for number in range(90):
        happens(connection, TURNS[0] if number % 30 < 20 else turn)
    hello(connection)
    compare(frame_batches(Capture(wire).frames, []))


def test_rpcs_with_a_reply_chunk_are_judged_once_for_all() -> None:
    wire = Wire()
    connection = wire.connect()
    for _ in range(100):
        happens(connection, TURNS[0])
    auditor = compare(frame_batches(Capture(wire).frames, []))
    long = [one for key, one in auditor._classes[1].items() if isinstance(key, tuple) and key[0] == "long"]
    assert sum(sum(tally.passed for tally in one.tallies[:1]) for one in long) > 90
    assert auditor.tally("V1-WRITE-LENGTH-TRUE", 1, 1).passed == 100


def test_routine_rpcs_are_judged_once_for_all() -> None:
    wire = Wire()
    connection = wire.connect()
    for _ in range(400):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply(), credits=8)
    auditor = compare(frame_batches(Capture(wire).frames, []))
    judged = {seat.rule.id for seats in auditor._seats[1].values() for seat in seats}
    assert "V1-CREDIT-EXCEEDED" in judged
    assert auditor.tally("V1-CREDIT-EXCEEDED", 1, 0).passed == 399
    assert len(auditor._classes[1]) == 3


def test_routine_rpcs_are_taken_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    advance = RoutineRows.advance

    def noted(self: RoutineRows, called: int, answered: int) -> None:
        taken.append(called)
        advance(self, called, answered)

    monkeypatch.setattr(RoutineRows, "advance", noted)
    wire = Wire()
    connection = wire.connect()
    for number in range(100):
        rpc = call(connection, nfs3.getattr_(), reply_chunk=None if number % 9 else connection.register(64, 192))
        reply(rpc, nfs3.getattr_reply(), credits=8)
    compare(frame_batches(Capture(wire).frames, []))
    assert len(taken) > 10 and max(taken) > 80


def test_a_routine_call_beyond_the_credits_is_found() -> None:
    wire = Wire()
    connection = wire.connect()
    hello(connection, credits=8)
    calls = [call(connection, nfs3.getattr_()) for _ in range(9)]
    wire.pause(1_000_000)
    for one in calls:
        reply(one, nfs3.getattr_reply(), credits=8)
    hello(connection, credits=8)
    auditor = compare(frame_batches(Capture(wire).frames, []))
    assert [one.rule.id for one in auditor.findings] == ["V1-CREDIT-EXCEEDED"]
