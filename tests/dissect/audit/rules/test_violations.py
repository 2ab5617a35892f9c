"""Every rule: a conversation that breaks it and no other, and one that keeps it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from playbook import Capture, Wire, call, nfs3, reply
from playbook.audits import JUDGED, audit, audit_capture, broken_rules, play, total
from playbook.growth import growth
from playbook.violations import SCRIPTS, Broken, bindings, chunks, hello, opened, positions, proper, proper_second
from playbook.violations.scripts import reading, returned


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


OTHERS: dict[Callable[[Wire], Broken], str] = {
    **{getattr(chunks, name): rule for name, rule in chunks.OTHERS.items()},
    **{getattr(positions, name): rule for name, rule in positions.OTHERS.items()},
    bindings.unknown_program_served: "V1-REPLY-NO-BINDING",
}


@pytest.mark.parametrize("version", (1, 2))
@pytest.mark.parametrize("script", OTHERS, ids=lambda script: script.__name__)
def test_other_ways_to_break_a_rule(script: Callable[[Wire], Broken], version: int) -> None:
    wire = Wire(seed=14)
    wire.version = version
    broken = script(wire)
    hello(wire.connections[0])
    auditor = audit(wire)
    assert broken_rules(auditor) == {OTHERS[script]} | broken.cause
    finding = next(finding for finding in auditor.findings if finding.rule.id == OTHERS[script])
    assert finding.endpoint == broken.endpoint
    assert broken.frame in finding.frames


KEPT_IN = {
    "V1-ERROR-FOR-HEADER": "V1-HEADER-XDR",
    "V1-ERROR-FOR-RESERVED": "V1-PROC-DONE",
    "V1-ERROR-OF-ERROR": "V1-ERROR-CODE",
    "V1-REPLY-NO-BINDING": "V1-DDP-ELIGIBLE",
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


@pytest.mark.parametrize("low_bits", (8, 32))
def test_random_handles_are_not_predictable(low_bits: int) -> None:
    wire, random = Wire(seed=15), Random(low_bits)
    connection = wire.connect()
    hello(connection)
    for number in range(200):
        index = 0 if low_bits == 32 else (number % 5 + 1) << 16
        chunk = connection.register(32, handle=index | random.getrandbits(low_bits))
        rpc = call(connection, nfs3.read(0, 32), writes=[chunk])
        reply(rpc, nfs3.read_reply(bytes(32)))
    assert not total(audit(wire), "V1-HANDLE-PREDICTABLE").violated


def test_the_work_for_rdma_writes_repeated_behind_a_reply_grows_as_they_do() -> None:
    def repeated(count: int) -> Callable[[], object]:
        wire = Wire(seed=16)
        rpc = reading(opened(wire), 4 * count)
        segment = rpc.writes[0][0]
        offsets = range(segment.offset, segment.offset + 4 * count, 4)
        for offset in offsets:
            rpc.connection.write(1, segment.handle, offset, bytes(4))
        returned(rpc, nfs3.read_reply(bytes(4 * count)), writes=[rpc.writes[0]], left_out=[0])
        for offset in offsets:
            rpc.connection.write(1, segment.handle, offset, bytes(4))
        capture = Capture(wire)
        return lambda: audit_capture(capture)

    assert max(growth(repeated, 40)) < 2.5
