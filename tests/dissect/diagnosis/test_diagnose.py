"""Statements in their order, silence on healthy captures, and what the real ones show."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from playbook.capture import write_pcap
from playbook.commands import objects, unpacked
from playbook.facts import MILLISECOND, SECOND, direction, facts, found, health, kinds, many, retransmitted, rpc
from playbook.packets import encode_frames
from playbook.samples import MANIFEST, SAMPLES
from playbook.troubles import TROUBLES
from playbook.wire import Wire
from rdmascope.captures.diagnosis_pass import diagnosis_of
from rdmascope.captures.saved_session import SavedSession
from rdmascope.captures.session import Session
from rdmascope.cli.main import main
from rdmascope.dissect.diagnosis.detector import all_detectors
from rdmascope.dissect.diagnosis.diagnose import Diagnosis, diagnose
from rdmascope.dissect.diagnosis.statement import Severity

HEALTHY = ["bidir-rxe", "ipv6-rxe", "meta-rxe", "v2-settles", "v2-falls-back", "v2-characteristics"]
ILL = {
    "loss-rxe": ["connection-lost", "calls-hung", "calls-failed", "packets-lost", "server-time"],
    "loss-siw": ["packets-lost", "read-phase", "server-time"],
    "nconnect-rxe": ["connections-refused"],
    "rxe-nfs-all": ["grace-period"],
    "siw-nfs-all": ["grace-period", "retransmissions-unexplained"],
    "longcall-rxe": ["calls-failed"],
    "krb5-rxe": ["calls-failed"],
}
"""Samples, and what is said of them."""


def sample(name: str) -> Diagnosis:
    return diagnosis_of(Session(str(SAMPLES / f"{name}.pcap.zst")))


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_said_of_a_healthy_capture(name: str) -> None:
    diagnosis = sample(name)
    assert diagnosis.statements == () and diagnosis.healthy and diagnosis.not_looked_at == ()


@pytest.mark.parametrize("name", ILL)
def test_what_is_wrong_with_the_others(name: str) -> None:
    assert [one.kind for one in sample(name).statements] == ILL[name]


def test_every_sample_is_healthy_or_not() -> None:
    assert {*HEALTHY, *ILL} == MANIFEST.keys()


@pytest.mark.parametrize("kind", TROUBLES)
def test_what_is_wrong_on_the_wire_is_said_and_nothing_else(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "trouble.pcap"
    write_pcap(encode_frames(TROUBLES[kind](Wire(seed=1))), path)
    assert [one["kind"] for one in objects("diagnose", str(path), "--fail-on", "never") if "kind" in one] == [kind]


def test_a_file_that_ends_within_a_frame(tmp_path: Path) -> None:
    path = tmp_path / "damaged.pcap"
    path.write_bytes(unpacked(str(SAMPLES / "ipv6-rxe.pcap.zst"))[:-10])
    assert [one.kind for one in diagnosis_of(Session(str(path))).statements] == ["capture-damaged"]


def test_every_detector_speaks_of_a_capture() -> None:
    of_samples = {kind for said in ILL.values() for kind in said}
    assert TROUBLES.keys() | of_samples | {"capture-damaged"} == all_detectors().keys()


def test_evidence_leads_back_to_the_capture() -> None:
    by_kind = {one.kind: one.cause for one in sample("loss-rxe").statements}
    assert by_kind["calls-hung"].rpcs == (23, 24, 25, 26, 27) and by_kind["calls-hung"].connections == (1,)
    assert by_kind["packets-lost"].count == 15 and by_kind["packets-lost"].connections == (2, 1)
    assert any("no Read chunk of them was ever read" in line for line in by_kind["calls-hung"].evidence)


def test_problems_come_first_and_the_dearest_of_them() -> None:
    slow = many(30, "WRITE", takes=50 * MILLISECOND)
    hung = [rpc(31, answered=False)]
    marked = [health(1, direction(ecn_marked=500))]
    said = found(facts([*slow, *hung], marked))
    assert [(one.kind, one.rank) for one in said] == [("server-time", 1), ("calls-hung", 2), ("congestion", 3)]
    assert [one.severity for one in said] == [Severity.PROBLEM, Severity.PROBLEM, Severity.WARNING]


def test_what_the_capture_lacks_weakens_the_rest() -> None:
    hung = [*many(5), rpc(6, answered=False)]
    (sure,) = found(facts(hung))
    doubted, note = found(facts(hung, [health(1, direction(missing=100))]))
    assert doubted.kind == "calls-hung" and doubted.cause.confidence < sure.cause.confidence
    assert note.severity is Severity.NOTE and note.cause.text in doubted.cause.weakened_by


def test_notes_alone_leave_a_capture_healthy() -> None:
    diagnosis = diagnose(facts(many(5), [health(1, direction(missing=100))]))
    assert diagnosis.healthy and [one.kind for one in diagnosis.statements] == ["packets-missing"]
    assert diagnosis.worst is Severity.NOTE


def test_only_the_detectors_that_are_asked_for() -> None:
    given = facts([*many(30, takes=50 * MILLISECOND), rpc(31, answered=False)])
    assert [one.kind for one in found(given, "calls-hung")] == ["calls-hung"]


def test_what_was_not_gathered_is_said() -> None:
    needing = {kind for kind, one in all_detectors().items() if one.needs}
    assert set(diagnose(facts(many(3))).not_looked_at) == needing and "hot-file" in needing


def test_a_quiet_capture_with_a_few_retransmissions_is_healthy() -> None:
    one = retransmitted("timeout", 1)
    assert kinds(facts(many(1000, takes=SECOND // 100), [one])) == set()


def test_saved_tables_have_all_but_the_contents_of_files(tmp_path: Path) -> None:
    saved = str(tmp_path / "saved.duckdb")
    done = CliRunner().invoke(main, ["sql", str(SAMPLES / "loss-rxe.pcap.zst"), "--save", saved])
    assert done.exit_code == 0, done.output
    again = diagnosis_of(SavedSession(saved))
    whole = sample("loss-rxe")
    assert [one.cause.text for one in again.statements] == [one.cause.text for one in whole.statements]
    assert "hot-file" in again.not_looked_at and "specification-violated" not in again.not_looked_at
