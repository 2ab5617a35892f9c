"""A capture divided among workers gives what one process finds: RPCs, numbers, order, and the report."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner, Result

from rdmascope.captures import Limits
from rdmascope.captures.parallel import combine as share
from rdmascope.captures.session.session import Session
from rdmascope.cli.main import main
from rdmascope.dissect.audit.auditor import EARLIER, Auditor, Result as AuditResult
from rdmascope.dissect.records.audit import finding_records, sum_records, verdict_lines
from rdmascope.dissect.records.schema import Record
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.analyzer import Options

SAMPLES = Path(__file__).parents[3] / "captures" / "samples"


def unpacked(name: str, folder: Path) -> Path:
    """A sample as a file that can be mapped."""
    found = folder / name.removesuffix(".zst")
    found.write_bytes(zstandard.ZstdDecompressor().decompressobj().decompress((SAMPLES / name).read_bytes()))
    return found


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


def children() -> set[int]:
    return {int(one) for one in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()}


COMMANDS = ("report", "rpcs", "transport", "files", "transport --credits", "audit", "diagnose")


ALL = ("loss-siw.pcap.zst", "nconnect-rxe.pcap.zst")
"""Samples that get all commands, of iWARP and RoCE; each of the others gets one or two of them."""


@pytest.mark.parametrize(("number", "sample"), [*enumerate(sorted(path.name for path in SAMPLES.glob("*.zst")))])
def test_any_number_of_workers_finds_the_same(number: int, sample: str, tmp_path: Path) -> None:
    capture, output = unpacked(sample, tmp_path), tmp_path / "out.pcapng"
    before = children()
    asked: list[tuple[str | Path, ...]] = [(*command.split(), "--json") for command in COMMANDS]
    asked += [("sql", "--csv", "--query", "; ".join(f"FROM {name}" for name in TABLES)), ("export", "-o", output)]
    if sample not in ALL:
        asked = asked[number % 6 :: 6]
    for turn, words in enumerate(asked, number):
        workers = 2 + turn % 3
        alone, divided = ((run(*words, "--jobs", jobs, capture), written(output)) for jobs in ("1", str(workers)))
        assert divided[0].output == alone[0].output
        assert divided[0].exit_code == alone[0].exit_code
        assert divided[1] == alone[1]
    assert children() == before


def written(path: Path) -> bytes:
    """What was written there, which is removed."""
    found = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    return found


def test_the_rpcs_of_small_batches_come_as_they_end(tmp_path: Path) -> None:
    capture = unpacked("nconnect-rxe.pcap.zst", tmp_path)
    # As many times as large as there are workers.
    ended = [
        [(rpc.number, rpc.connection.number, rpc.xid, rpc.state, rpc.notes) for rpc in session.rpcs()]
        for session in (
            Session(capture, jobs=1, limits=Limits(frames=120)),
            Session(capture, jobs=3, limits=Limits(frames=40)),
        )
    ]
    assert ended[0] == ended[1]


def test_connections_that_are_evicted_were_judged_by_their_worker(tmp_path: Path) -> None:
    capture = unpacked("nconnect-rxe.pcap.zst", tmp_path)
    records: list[list[Record | str]] = []
    for jobs in 1, 3:
        auditor = Auditor()
        session = Session(capture, Options(max_connections=1), jobs=jobs, limits=Limits(frames=120 // jobs))
        rpcs = session.audit(auditor)
        assert EARLIER in {place.connection for place in auditor.tallies}
        result = AuditResult("", auditor, rpcs)
        records.append([*finding_records(result), *verdict_lines(result), *sum_records(result)])
    assert records[0] == records[1]


def test_a_worker_that_is_killed_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = unpacked("rxe-nfs-all.pcap.zst", tmp_path)
    before = children()
    monkeypatch.setattr(share.ShareAnalyzer, "delivery", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    found = run("report", "--jobs", "2", capture)
    assert found.exit_code == 2
    assert "worker 1 of 2 was killed" in found.stderr
    assert len(found.stderr.splitlines()) == 1
    assert children() == before


def test_what_a_worker_raises_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = unpacked("rxe-nfs-all.pcap.zst", tmp_path)

    def fails(*_: object) -> None:
        raise ZeroDivisionError("of a worker")

    monkeypatch.setattr(share.ShareAnalyzer, "delivery", fails)
    with pytest.raises(ZeroDivisionError, match="of a worker"):
        list(Session(capture, jobs=2).rpcs())


def test_an_interrupt_ends_the_reading_and_what_was_read_is_there(tmp_path: Path) -> None:
    capture = unpacked("meta-rxe.pcap.zst", tmp_path)
    before = children()
    batches = 0

    def interrupt(*_: object) -> None:
        nonlocal batches
        batches += 1
        if batches == 2:
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell starts what runs beside it with SIG_IGN.
    # Many small batches: what the pipes hold is a small part of the capture.
    session = Session(capture, jobs=2, limits=Limits(frames=60), progress=interrupt)
    found = list(session.rpcs())
    assert found
    assert session.damage is not None and str(session.damage).endswith("interrupted")
    assert session.analyzer.frames < 25_000
    assert len(session.analyzer.connections) == len({rpc.connection.number for rpc in found})
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert children() == before


def test_damage_comes_behind_what_was_read(tmp_path: Path) -> None:
    capture = unpacked("rxe-nfs-all.pcap.zst", tmp_path)
    capture.write_bytes(capture.read_bytes()[:3_000_000])
    alone, divided = (run("report", "--json", "--jobs", workers, capture) for workers in ("1", "2"))
    assert divided.stdout == alone.stdout
    assert (divided.stderr, divided.exit_code) == (alone.stderr, 2)


def test_what_cannot_be_divided_is_read_by_one_process() -> None:
    sample = SAMPLES / "longcall-rxe.pcap.zst"
    assert run("rpcs", "--json", "--jobs", "2", sample).output == run("rpcs", "--json", sample).output


@pytest.mark.parametrize("command", ["packets", "sessions", "browse"])
def test_commands_of_one_process_say_why(command: str) -> None:
    refused = run(command, "--jobs", "2", SAMPLES / "longcall-rxe.pcap.zst")
    assert refused.exit_code == 2
    assert "by one process" in refused.stderr
