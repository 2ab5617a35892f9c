"""Every rule: a conversation that breaks it and no other, one that keeps it, and captures that do not tell."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from playbook import Capture, Wire, faults, frame_batch
from playbook.packets import Packet
from playbook.violations import SCRIPTS, SERVER, Broken, hello, proper, proper_second
from rdmascope.dissect.audit.auditor import Auditor, RuleTally
from rdmascope.dissect.audit.page import markdown
from rdmascope.dissect.audit.rule import all_rules
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

ROOT = Path(__file__).parents[3]
RULES = all_rules()
JUDGED = [rule.id for rule in RULES.values() if not rule.unjudgeable]


def audit(wire: Wire, packets: list[Packet] | None = None) -> Auditor:
    auditor = Auditor()
    analyzer = Analyzer(listener=auditor.listener)
    capture = Capture(wire, packets)
    analyzer.feed(frame_batch(capture.frames))
    analyzer.finish()
    auditor.finish(analyzer.conversations)
    return auditor


def total(auditor: Auditor, rule: str) -> RuleTally:
    """Over all endpoints."""
    result = RuleTally()
    for place, tally in auditor.tallies.items():
        if place.rule == rule:
            result.passed += tally.passed
            result.violated += tally.violated
            result.undecidable += tally.undecidable
    return result


def broken_rules(auditor: Auditor) -> set[str]:
    return {place.rule for place, tally in auditor.tallies.items() if tally.violated}


def play(rule: str, version: int = 1) -> tuple[Wire, Broken]:
    wire = Wire(seed=11)
    wire.version = version
    broken = SCRIPTS[rule](wire)
    hello(wire.connections[0])
    return wire, broken


def test_every_judgeable_rule_has_a_script_that_breaks_it() -> None:
    assert sorted(SCRIPTS) == JUDGED


@pytest.mark.parametrize("rule", JUDGED)
def test_a_broken_rule_is_found_where_it_was_broken_and_no_other(rule: str) -> None:
    wire, broken = play(rule)
    auditor = audit(wire)
    assert broken_rules(auditor) == {rule} | broken.cause
    [finding] = [finding for finding in auditor.findings if finding.rule.id == rule]
    assert finding.verdict == "violation"
    assert finding.endpoint == broken.endpoint
    assert broken.frame in finding.frames
    assert finding.observed and finding.required
    assert finding.role in ("requester", "responder")


KEPT_IN = {
    "V1-ERROR-FOR-HEADER": "V1-HEADER-XDR",
    "V1-ERROR-FOR-RESERVED": "V1-PROC-DONE",
}
"""Rules that can only be kept where the other end broke one."""


@pytest.mark.parametrize("rule", JUDGED)
def test_a_rule_that_is_kept_passes(rule: str) -> None:
    if rule in KEPT_IN:
        wire, _ = play(KEPT_IN[rule])
    else:
        wire = Wire(seed=12)
        (proper_second if rule.startswith(("V2", "XC")) else proper)(wire)
    tally = total(audit(wire), rule)
    assert tally.passed and not tally.violated and not tally.undecidable


@pytest.mark.parametrize("script", (proper, proper_second))
def test_a_proper_conversation_breaks_nothing(script: Callable[[Wire], None]) -> None:
    wire = Wire(seed=13)
    script(wire)
    auditor = audit(wire)
    assert auditor.findings == []
    assert sum(tally.undecidable for tally in auditor.tallies.values()) == 0


def late(wire: Wire) -> list[Packet]:
    """The capture began after the connection was made."""
    return wire.packets[3:]


def holed(wire: Wire) -> list[Packet]:
    """A reply is not in the capture."""
    for _ in range(3):
        hello(wire.connections[0])
    replies = faults.where(wire.packets, kind="send", sender=SERVER)
    return faults.drop(wire.packets, [replies[-2]])


def short(wire: Wire) -> list[Packet]:
    """Frames are cut behind the first words of the RPC message, or inside the chunk lists."""
    return faults.snap(wire.packets, 96)


def shorter(wire: Wire) -> list[Packet]:
    return faults.snap(wire.packets, 72)


def longer(wire: Wire) -> list[Packet]:
    return faults.snap(wire.packets, 150)


DAMAGES = (late, holed, shorter, short, longer)
UNDECIDED = {
    late: "PD-AMBIGUOUS PD-INVALIDATE-AGREED PD-LENGTH PD-RESERVED PD-VERSION V1-BACKWARD-SIZE"
    " V1-BACKWARD-UNANNOUNCED V1-CREDIT-FIRST V1-ERROR-XID V1-FIRST-1024 V1-INLINE-EXCEEDED V1-RDMA-OUTSIDE"
    " V1-REPLY-USES-REPLY-CHUNK",
    holed: "V1-BACKWARD-CREDIT-EXCEEDED V1-CREDIT-EXCEEDED V1-ERROR-FOR-HEADER V1-ERROR-FOR-RESERVED V1-ERROR-RETRY"
    " V1-RDMA-AFTER-REPLY V1-WRITE-LENGTH-TRUE V1-WRITE-UNFILLED V1-XID-REUSED",
    short: "PD-INVALIDATE-ROLE PD-INVALIDATE-STAG V1-BACKWARD-CHUNKS V1-BACKWARD-CREDIT-ZERO V1-BACKWARD-PROC"
    " V1-CHUNK-LENGTH-MATCH V1-CREDIT-ZERO V1-DDP-ELIGIBLE V1-ERROR-FOR-VERSION V1-LONG-CALL-POSITION V1-NO-BINDING"
    " V1-NOMSG-CHUNK V1-READ-IN-REPLY V1-READ-POSITION-ALIGN V1-READ-POSITION-RANGE V1-READ-POSITION-SAME"
    " V1-READ-ROUNDUP V1-REDUCE-REQUIRED V1-REPLY-CHUNK-MISSING V1-REPLY-CHUNK-SIZE V1-WRITE-FILL-ORDER"
    " V1-WRITE-NO-PAD V1-WRITE-SEGMENT-COPY V1-WRITE-SEGMENT-COUNT V1-WRITE-SEGMENT-LENGTH V1-WRITE-UNUSED",
    longer: "V1-WRITE-EXTRA",
}
"""What each damage leaves undecidable.  The other rules judge words that are there or not there."""
CASES = [(rule, damage) for damage, rules in UNDECIDED.items() for rule in rules.split()]


@pytest.mark.parametrize("rule, damage", CASES, ids=[f"{rule}-{damage.__name__}" for rule, damage in CASES])
def test_a_capture_that_does_not_tell_is_undecidable(rule: str, damage: Callable[[Wire], list[Packet]]) -> None:
    wire, _ = play(rule)
    auditor = audit(wire, damage(wire))
    tally = total(auditor, rule)
    assert tally.undecidable and not tally.violated
    assert all(reason for one in auditor.tallies.values() for reason in one.reasons)


SAID_OTHERWISE = {"V1-WRITE-UNUSED": {"V1-WRITE-LENGTH-TRUE"}}
"""Where the reply's results cannot be read, an unused chunk is one whose length is not what was written."""


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("rule", JUDGED)
def test_damage_to_a_capture_accuses_nobody(rule: str, damage: Callable[[Wire], list[Packet]]) -> None:
    wire, broken = play(rule)
    allowed = {rule} | broken.cause | SAID_OTHERWISE.get(rule, set())
    assert broken_rules(audit(wire, damage(wire))) <= allowed


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("script", (proper, proper_second))
@pytest.mark.parametrize("seed", range(3))
def test_damage_to_a_proper_conversation_accuses_nobody(
    seed: int, script: Callable[[Wire], None], damage: Callable[[Wire], list[Packet]]
) -> None:
    wire = Wire(seed=seed)
    script(wire)
    assert broken_rules(audit(wire, damage(wire))) == set()


def spoiled(wire: Wire, seed: int) -> list[Packet]:
    """Frames that are lost, out of order, cut short; and perhaps the beginning is missing."""
    draw = random.Random(seed)
    packets = faults.drop(wire.packets, draw.sample(range(len(wire.packets)), draw.choice([1, 2, 3, 6])))
    for _ in range(draw.choice([0, 2, 4])):
        packets = faults.swap(packets, draw.randrange(len(packets)), draw.randrange(1, 4))
    if draw.random() < 0.3:
        packets = faults.snap(packets, draw.randrange(60, 300))
    return packets[draw.randrange(40) :] if draw.random() < 0.2 else packets


@pytest.mark.parametrize("script", (proper, proper_second))
@pytest.mark.parametrize("seed", range(80))
def test_a_spoiled_capture_of_a_proper_conversation_accuses_nobody(seed: int, script: Callable[[Wire], None]) -> None:
    wire = Wire(seed=seed)
    script(wire)
    assert broken_rules(audit(wire, spoiled(wire, seed))) == set()


def test_the_page_of_the_rules_is_fresh() -> None:
    assert (ROOT / "docs" / "rules.md").read_text() == markdown(RULES.values())


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_explains_itself(rule: str) -> None:
    assert set(RULES[rule].paragraphs) == {"What", "Why", "Right", "Wrong"}
