"""Every fault, committed once in a conversation, of which the audit finds its rule broken and no other."""

from __future__ import annotations

import pytest

from playbook.spoken import CLIENT, SIX, analyzed, broken, rules_of, script, settle, undecided, with_occasion
from rdmascope.captures.peer.endpoint import Role
from rdmascope.captures.peer.faults import FAULTS, find_fault
from rdmascope.captures.peer.wire.network import Path
from rdmascope.captures.peer.wire.script import play_script
from rdmascope.dissect.audit.rule import all_rules

NETWORKS = ("rocev2", "iwarp")
LARGE_PACKETS = Path(mtu=4096)
"""A fault is one of messages, and of large packets there are fewer to make."""
CASES = [
    (name, version, NETWORKS[(number + version) % 2])
    for number, (name, fault) in enumerate(FAULTS.items())
    for version in (1, 2)
    if fault.version in (0, version) and not (version == 2 and name in ("error-range", "version-as-header"))
]


@pytest.mark.parametrize("name, version, transport", CASES)
def test_a_fault_breaks_its_rule_and_no_other(name: str, version: int, transport: str) -> None:
    given = with_occasion(name, version, transport, LARGE_PACKETS)
    frames, (played,) = play_script(given)
    assert played.committed[FAULTS[name].by], "no occasion"
    _, auditor, _ = analyzed(frames)
    assert broken(auditor) == rules_of(name)
    for finding in auditor.findings:
        if finding.verdict == "violation" and finding.rule.id == FAULTS[name].rule:
            assert finding.endpoint == FAULTS[name].by


@pytest.mark.parametrize("path", [None, SIX], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("transport", NETWORKS)
@pytest.mark.parametrize("version", (1, 2))
def test_who_speaks_by_the_book_breaks_nothing_and_leaves_nothing_open(
    version: int, transport: str, path: None
) -> None:
    frames, (played,) = play_script(script(version, transport, path))
    assert (played.version, played.answered, played.failed) == (version, played.calls, [])
    _, auditor, _ = analyzed(frames)
    assert (broken(auditor), undecided(auditor)) == (set(), set())


@pytest.mark.parametrize("extension", [True, False])
@pytest.mark.parametrize("transport", NETWORKS)
def test_so_does_a_version_2_client_that_falls_back(transport: str, extension: bool) -> None:
    frames, (played,) = play_script(settle(CLIENT, version=2, extension=extension)(script(1, transport)))
    assert (played.version, played.answered) == (1, played.calls)
    analyzer, auditor, _ = analyzed(frames)
    assert (broken(auditor), undecided(auditor)) == (set(), set())
    assert analyzer.conversations[0].negotiation.settled == 1


def test_there_is_a_fault_for_every_rule_that_can_be_judged() -> None:
    judged = {rule.id for rule in all_rules().values() if not rule.unjudgeable}
    assert {fault.rule for fault in FAULTS.values()} - {""} == judged


def test_a_fault_is_found_by_its_name_and_by_its_rule() -> None:
    for name, fault in FAULTS.items():
        assert find_fault(name) is fault
        assert not fault.rule or find_fault(fault.rule.lower()) is fault
    assert find_fault("no-such-fault") is None


def test_what_gives_the_occasion_is_the_other_end() -> None:
    for fault in FAULTS.values():
        assert not fault.cause or FAULTS[fault.cause].by is Role(1 - fault.by)
