"""Violations of the specification, as the audit finds them in traffic with a fault."""

from __future__ import annotations

from pathlib import Path

from playbook.facts import facts, found, many, silent, speaks
from playbook.samples import SAMPLES
from rdmascope.captures.session.diagnosis_pass import diagnosis_of
from rdmascope.captures.session.session import Session
from rdmascope.cli.main import main
from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.diagnosis.detectors.conformance import TOLERATED
from rdmascope.dissect.diagnosis.facts import Severity


def played(folder: Path, *fault: str) -> Path:
    from click.testing import CliRunner

    path = folder / "played.pcapng"
    CliRunner().invoke(main, ["synth", "v1-chunks", *fault, "-o", str(path)])
    return path


def audited(name: str) -> Auditor:
    auditor = Auditor()
    Session(str(SAMPLES / f"{name}.pcap.zst")).audit(auditor)
    return auditor


def test_a_must_is_a_problem(tmp_path: Path) -> None:
    (said,) = diagnosis_of(
        Session(str(played(tmp_path, "--fault", "grant-nothing"))), ["specification-violated"]
    ).statements
    assert said.severity is Severity.PROBLEM and "V1-CREDIT-ZERO" in said.cause.text
    assert "server" in said.cause.text and said.cause.frames


@speaks("specification-violated")
def test_one_end_that_breaks_a_rule_on_several_connections_is_one_statement() -> None:
    """The server of this sample breaks PD-INVALIDATE-AGREED on each of four connections."""
    auditor = audited("rxe-nfs-all")
    tolerated = TOLERATED.pop("PD-INVALIDATE-AGREED")
    try:
        (said,) = found(facts(many(3), auditor=auditor), "specification-violated")
    finally:
        TOLERATED["PD-INVALIDATE-AGREED"] = tolerated
    assert " on 4 connections: Send With Invalidate" in said.cause.text and said.cause.connections == (3, 7, 10, 11)


def test_rules_that_the_same_messages_violate_are_one_statement() -> None:
    auditor = audited("rxe-nfs-all")
    (first,) = {place.rule for place, tally in auditor.tallies.items() if tally.violated > tally.notes}
    for place, tally in [*auditor.tallies.items()]:
        if place.rule == first:
            auditor.tallies[place._replace(rule="V1-COUNT-MATCH")] = tally
            auditor.tallies[place._replace(rule="V1-WRITE-NO-PAD")] = tally
    (said,) = found(facts(many(3), auditor=auditor), "specification-violated")
    assert "violation by the server 10.77.0.1:20049: V1-COUNT-MATCH (MUST)" in said.cause.text
    assert said.cause.evidence[-1].startswith("the same violates V1-WRITE-NO-PAD (MUST): No pad bytes")


def test_correct_endpoints_violate_nothing(tmp_path: Path) -> None:
    assert not diagnosis_of(Session(str(played(tmp_path)))).statements


@silent("specification-violated")
def test_what_linux_does_every_day_is_left_to_the_audit() -> None:
    """The server of this sample breaks PD-INVALIDATE-AGREED in every reply."""
    auditor = audited("bidir-rxe")
    assert {place.rule for place, tally in auditor.tallies.items() if tally.violated > tally.notes} == set(TOLERATED)
    assert not found(facts(many(3), auditor=auditor), "specification-violated")
