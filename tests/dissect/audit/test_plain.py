"""Judging plain messages and RPCs by their class says the same as judging each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given

from playbook import Capture, Wire, call, nfs3, reply
from playbook.audits import JUDGED, late, play
from playbook.capture import frame_batches
from playbook.samples import MANIFEST, SAMPLES
from playbook.strategies import Conversation, faulty
from playbook.violations import hello
from rdmascope.captures import open_capture
from rdmascope.dissect.audit.auditor import Auditor, TallyKey
from rdmascope.dissect.audit.plain_columns import PlainRows
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.rpcrdma import plain
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options, drop_contents
from rdmascope.dissect.transport.rc import assembly


@pytest.fixture(autouse=True, scope="module")
def small_batches() -> Iterator[None]:
    """Columns are made of few Sends, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "MIN_ROWS", 1)
        patch.setattr(plain, "MIN_SHARE", 1 << 30)
        patch.setattr(assembly, "MIN_RUN", 1)
        yield


Said = tuple[str, tuple[int, ...], int | None, str, str]
Tallies = dict[TallyKey, tuple[int, int, int, int, dict[str, int]]]


def audited(
    batches: Iterable[FrameBatch], one_by_one: bool, columns: bool = False
) -> tuple[Tallies, list[Said], Auditor]:
    """Judgements by rule and end, and what is said of the violations."""
    auditor = Auditor(release=drop_contents, one_by_one=one_by_one)
    analyzer = Analyzer(Options(columns=columns), listener=auditor.listener)
    for batch in batches:
        analyzer.feed(batch)
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


@pytest.mark.parametrize("lacking", (False, True))
@pytest.mark.parametrize("rule", JUDGED)
def test_conversations_that_break_a_rule_are_judged_alike(rule: str, lacking: bool) -> None:
    wire, _ = play(rule)
    for _ in range(3):
        hello(wire.connections[0])
    compare(frame_batches(Capture(wire, late(wire) if lacking else wire.packets).frames, []))


@given(faulty())
def test_conversations_with_faults_are_judged_alike(conversation: Conversation) -> None:
    frames = Capture(conversation.wire, conversation.packets).frames
    compare(frame_batches(frames, range(20, len(frames), 20)))


def test_plain_rpcs_are_judged_once_for_all() -> None:
    wire = Wire()
    connection = wire.connect()
    for _ in range(400):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply(), credits=8)
    auditor = compare(frame_batches(Capture(wire).frames, []))
    judged = {seat.rule.id for seats in auditor._seats[1].values() for seat in seats}
    assert "V1-CREDIT-EXCEEDED" in judged
    assert auditor.tally("V1-CREDIT-EXCEEDED", 1, 0).passed == 399
    assert len(auditor._classes[1]) == 3


def test_plain_rpcs_are_taken_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    advance = PlainRows.advance

    def noted(self: PlainRows, called: int, answered: int) -> None:
        taken.append(called)
        advance(self, called, answered)

    monkeypatch.setattr(PlainRows, "advance", noted)
    wire = Wire()
    connection = wire.connect()
    for number in range(100):
        rpc = call(connection, nfs3.getattr_(), reply_chunk=None if number % 9 else connection.register(256))
        reply(rpc, nfs3.getattr_reply(), credits=8)
    compare(frame_batches(Capture(wire).frames, []))
    assert len(taken) > 10 and max(taken) > 80


def test_a_plain_call_beyond_the_credits_is_found() -> None:
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
