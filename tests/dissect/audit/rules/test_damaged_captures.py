"""Captures that lack something: what cannot be judged is undecidable, and no end is found guilty."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from playbook import Wire, faults
from playbook.audits import JUDGED, audit, broken_rules, gapped, late, longer, play, short, shorter, total
from playbook.packets import Packet
from playbook.violations import proper, proper_second

DAMAGES = (late, gapped, shorter, short, longer)
UNDECIDED = {
    late: "PD-AMBIGUOUS PD-INVALIDATE-AGREED PD-LENGTH PD-RESERVED PD-VERSION V1-BACKWARD-SIZE"
    " V1-BACKWARD-UNANNOUNCED V1-CREDIT-FIRST V1-ERROR-XID V1-FIRST-1024 V1-INLINE-EXCEEDED V1-RDMA-OUTSIDE"
    " V1-REPLY-USES-REPLY-CHUNK",
    gapped: "V1-BACKWARD-CREDIT-EXCEEDED V1-CREDIT-EXCEEDED V1-ERROR-FOR-HEADER V1-ERROR-FOR-RESERVED V1-ERROR-RETRY"
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
def test_missing_evidence_is_undecidable(rule: str, damage: Callable[[Wire], list[Packet]]) -> None:
    wire, _ = play(rule)
    auditor = audit(wire, damage(wire))
    tally = total(auditor, rule)
    assert tally.undecidable and not tally.violated
    assert all(reason for one in auditor.tallies.values() for reason in one.reasons)


REPORTED_INSTEAD = {"V1-WRITE-UNUSED": {"V1-WRITE-LENGTH-TRUE"}}
"""Where the reply's results cannot be read, an unused chunk is one whose length is not what was written."""


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("rule", JUDGED)
def test_damage_to_a_capture_breaks_no_rule(rule: str, damage: Callable[[Wire], list[Packet]]) -> None:
    wire, broken = play(rule)
    allowed = {rule} | broken.cause | REPORTED_INSTEAD.get(rule, set())
    assert broken_rules(audit(wire, damage(wire))) <= allowed


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("script", (proper, proper_second))
@pytest.mark.parametrize("seed", range(3))
def test_damage_to_a_proper_conversation_breaks_no_rule(
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
def test_a_spoiled_capture_of_a_proper_conversation_breaks_no_rule(seed: int, script: Callable[[Wire], None]) -> None:
    wire = Wire(seed=seed)
    script(wire)
    assert broken_rules(audit(wire, spoiled(wire, seed))) == set()


@pytest.mark.parametrize("script", (proper, proper_second))
@pytest.mark.parametrize("seed", range(60))
def test_one_truncated_frame_of_a_proper_conversation_breaks_no_rule(seed: int, script: Callable[[Wire], None]) -> None:
    """Headers that the frame does not hold are unknown, not zero."""
    wire = Wire(seed=seed)
    script(wire)
    draw = random.Random(seed)
    at = draw.randrange(len(wire.packets))
    packets = list(wire.packets)
    packets[at : at + 1] = faults.snap(packets[at : at + 1], draw.choice([56, 60, 66, 74, 90, 110, 130]))
    assert broken_rules(audit(wire, packets)) == set()
