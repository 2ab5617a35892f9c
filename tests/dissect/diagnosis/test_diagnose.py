"""Statements in their order, silence on healthy captures, and what the real ones show."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from playbook import shapes
from playbook.capture import Capture, write_pcap
from playbook.commands import objects, unpacked
from playbook.facts import (
    FIRST,
    MILLISECOND,
    SECOND,
    connection,
    direction,
    facts,
    found,
    health,
    kinds,
    many,
    retransmitted,
    rpc,
)
from playbook.fragments import fragmented
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.packets import encode_frames
from playbook.samples import MANIFEST, SAMPLES, analyzed
from playbook.troubles import TROUBLES
from playbook.wire import Wire
from rdmascope.captures.session.diagnosis_pass import diagnosis_of
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.saved_session import SavedSession
from rdmascope.cli.main import main
from rdmascope.dissect.diagnosis.facts import Diagnosis, Severity, all_detectors, diagnose
from rdmascope.dissect.rpcrdma.rpcs import Rpc

from .detectors.test_hosts import STARVED

HEALTHY = ["bidir-rxe", "ipv6-rxe", "meta-rxe", "v2-settles", "v2-falls-back", "v2-characteristics"]
ILL = {
    "loss-rxe": ["calls-hung", "server-time", "calls-failed", "packets-lost"],
    "loss-siw": ["read-phase", "server-time", "packets-lost"],
    "nconnect-rxe": ["connections-refused"],
    "rxe-nfs-all": ["grace-period"],
    "siw-nfs-all": ["grace-period", "delayed-acknowledgements", "retransmissions-unexplained"],
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
    said = [one for one in objects("diagnose", str(path), "--fail-on", "never") if "kind" in one]
    assert [one["kind"] for one in said] == [kind]
    assert all(0 <= (one["share"] or 0) <= 1 and (one["share"] is None or one["share_of"]) for one in said)


def test_a_file_that_ends_within_a_frame(tmp_path: Path) -> None:
    path = tmp_path / "damaged.pcap"
    path.write_bytes(unpacked(str(SAMPLES / "ipv6-rxe.pcap.zst"))[:-10])
    assert [one.kind for one in diagnosis_of(Session(str(path))).statements] == ["capture-damaged"]


def said_of_fragments(tmp_path: Path, wire: Wire | IwarpWire, lost: int) -> list[str]:
    """What is said where long packets came in fragments, of which every ``lost``-th is missing, or none."""
    connection = wire.connect()
    for _ in range(3):
        shapes.read(connection)
    capture = IwarpCapture(wire) if isinstance(wire, IwarpWire) else Capture(wire)
    parts = [fragmented(one, (), at) if one.original > 900 else [one] for at, one in enumerate(capture.frames)]
    path = tmp_path / f"fragments{lost}.pcap"
    write_pcap([part for at, one in enumerate(parts) for part in (one[:1] if lost and not at % lost else one)], path)
    statements = diagnosis_of(Session(str(path))).statements
    return [one.cause.text for one in statements if one.kind == "packets-fragmented"]


def test_ip_fragments_are_said_not_to_be_reassembled(tmp_path: Path) -> None:
    (said,) = said_of_fragments(tmp_path, Wire(mtu=1024), 0)
    assert said.endswith("IP fragments not reassembled, contents unknown")
    assert said_of_fragments(tmp_path, IwarpWire(), 0) == []
    (said,) = said_of_fragments(tmp_path, IwarpWire(), 9)
    assert said == "3 IP fragments not reassembled, contents unknown"


def block(kind: int, body: bytes) -> bytes:
    """Of a pcapng file."""
    body += bytes(-len(body) % 4)
    size = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + size + body + size


def test_timestamps_in_milliseconds_are_said_to_be_coarse(tmp_path: Path) -> None:
    wire = Wire()
    shapes.read(wire.connect(), bytes(3000))
    in_milliseconds = struct.pack("<HHIHHBBH", 1, 0, 0, 9, 1, 3, 0, 0) + bytes(2)
    data = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)) + block(1, in_milliseconds)
    for frame in Capture(wire).frames:
        size, time = len(frame.data), frame.time // 1_000_000
        data += block(6, struct.pack("<5I", 0, time >> 32, time & 0xFFFFFFFF, size, size) + frame.data)
    path = tmp_path / "coarse.pcapng"
    path.write_bytes(data)
    (said,) = [one for one in diagnosis_of(Session(str(path))).statements if one.kind == "timestamps-coarse"]
    assert said.cause.text == "timestamps have a resolution of 1 ms; nothing shorter can be measured"


def test_every_detector_speaks_of_a_capture() -> None:
    of_samples = {kind for said in ILL.values() for kind in said}
    said_above = {"capture-dropped", "capture-damaged", "packets-fragmented", "timestamps-coarse"}
    of_traces = STARVED.keys() | {"slow-network", "completion-error", "calls-retransmitted"}
    of_tcp = {"receive-window-closed", "slow-start-after-idle"}
    assert TROUBLES.keys() | of_samples | said_above | of_traces | of_tcp == all_detectors().keys()


def test_evidence_leads_back_to_the_capture() -> None:
    by_kind = {one.kind: one.cause for one in sample("loss-rxe").statements}
    assert by_kind["calls-hung"].rpcs == (23, 24, 25, 26, 27) and by_kind["calls-hung"].connections == (1,)
    delays = [rpc.retransmission_delay for rpc in analyzed("loss-rxe").rpcs]
    assert by_kind["packets-lost"].lost == sum(delays)
    assert by_kind["packets-lost"].count == 15 and by_kind["packets-lost"].connections == (2, 1)
    assert any("Read chunks never read" in line for line in by_kind["calls-hung"].evidence)


def test_the_dearest_comes_first_and_what_cost_nothing_by_its_severity() -> None:
    slow = many(30, "WRITE", takes=50 * MILLISECOND)
    hung = [rpc(31, answered=False)]
    marked = [health(1, direction(ecn_marked=500))]
    said = found(facts([*slow, *hung], marked))
    assert [(one.kind, one.rank) for one in said] == [("calls-hung", 1), ("server-time", 2), ("congestion", 3)]
    assert [one.severity for one in said] == [Severity.PROBLEM, Severity.PROBLEM, Severity.WARNING]


def test_the_rank_is_by_time_and_not_by_shares_of_different_wholes() -> None:
    """One connection of one broke: a share of 100 %, and no RPC waited for it."""
    broken = connection(2, ended_by="RST from the passive side")
    slow = facts(many(30, "WRITE", takes=50 * MILLISECOND), [health(2)], (FIRST, broken))
    said = found(slow)
    assert [one.kind for one in said] == ["server-time", "connection-lost"]
    assert said[0].cause.lost == 1500 * MILLISECOND and said[1].cause.lost == 0


def test_what_follows_from_hung_calls_is_evidence_of_them() -> None:
    broken = connection(1, ended_by="RST from the passive side")
    hung = [*many(5, on=broken), rpc(6, answered=False, on=broken)]
    (said,) = found(facts(hung, (), (broken,)))
    assert said.kind == "calls-hung" and "connection lost" in said.cause.evidence[0]
    (alone,) = found(facts(hung, (), (broken,)), "connection-lost")
    assert alone.kind == "connection-lost"


def slower(name: str, first: int, ms: int = 30) -> list[Rpc]:
    """200 calls that take ``ms``, then 200 that take eight times as long."""
    quick = many(200, name, first, takes=ms * MILLISECOND)
    return quick + [
        rpc(first + 200 + at, name, at=60 * SECOND + at * 50 * MILLISECOND, takes=8 * ms * MILLISECOND)
        for at in range(200)
    ]


def test_a_slow_server_that_became_slower_is_one_statement() -> None:
    (said,) = found(facts(slower("READ", 1)))
    assert said.kind == "server-time" and said.cause.since is not None
    assert said.cause.evidence[0].startswith("Server became slower: NFSv3 READ: mean server time rose from 30.0 ms")


def test_of_two_procedures_each_is_a_statement() -> None:
    said = found(facts([*slower("READ", 1, 2), *many(60, "WRITE", 500, takes=100 * MILLISECOND)]))
    assert {one.kind for one in said} == {"server-time", "slower-since"}


def test_slow_commits_for_every_write_are_one_statement() -> None:
    rpcs = [*many(100, "WRITE"), *many(100, "COMMIT", 101, takes=30 * MILLISECOND)]
    (said,) = found(facts(rpcs))
    assert said.kind == "commit-storm" and said.severity is Severity.PROBLEM
    assert said.cause.evidence[0].startswith("Slow server: NFSv3 COMMIT: 3.00 s of server time")
    assert said.cause.lost == 3000 * MILLISECOND


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
