"""Many captures into one data set: each once, whatever is stopped, rotated further or broken."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from playbook.commands import PROGRAM, objects, run, unpacked
from playbook.fleets import entries, halves
from playbook.samples import MANIFEST, SAMPLES
from rdmascope.captures.fleet import batch
from rdmascope.captures.fleet.batch import units
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.saved_session import open_saved_session
from rdmascope.captures.tables.saved_tables import CaptureEntry
from rdmascope.dissect.audit.auditor import EARLIER, Auditor
from rdmascope.dissect.rpcrdma.analyzer import Options

HOSTS = {"web1": "rxe-nfs-all", "web2": "nconnect-rxe", "db": "longcall-rxe"}
LAST = "longcall-rxe"


def sample(name: str) -> Path:
    return Path(SAMPLES, MANIFEST[name]["file"])


def copied(folder: Path) -> Path:
    """Captures of three hosts."""
    for host, name in HOSTS.items():
        (folder / "fleet" / host).mkdir(parents=True)
        shutil.copy(sample(name), folder / "fleet" / host)
    return folder / "fleet"


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """That may change."""
    return copied(tmp_path)


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of captures that stay, beside it."""
    folder = tmp_path_factory.mktemp("analysed")
    first = analysed(copied(folder), folder / "set", "-j", "2")
    assert (first["captures"], first["known"], first["unread"], first["status"]) == (3, 0, 0, 0)
    return folder / "set"


def counted(data_set: Path) -> dict[str, int]:
    """RPCs by host."""
    query = "SELECT host, count(*) AS calls, count(DISTINCT number) AS numbers FROM rpcs GROUP BY host"
    rows = objects("sql", str(data_set), query)
    assert all(row["calls"] == row["numbers"] for row in rows)
    return {row["host"]: row["calls"] for row in rows}


@cache
def alone() -> dict[str, int]:
    return {host: len(objects("rpcs", str(sample(name)))) for host, name in HOSTS.items()}


def violations(path: Path) -> list[tuple[str, int]]:
    found = map(json.loads, run("audit", str(path), "--json").stdout.splitlines())
    return [(one["rule"], one["violated"]) for one in found if one["type"] == "verdict" and one["violated"]]


def owners(records: list[dict[str, Any]]) -> list[str]:
    """Of NFSv4 clients."""
    return sorted(str(one["owner"]) for one in records if one["type"] == "nfs_client")


def analysed(fleet: Path, data_set: Path, *options: str) -> dict[str, Any]:
    result = run("batch", str(fleet), "-o", str(data_set), "--json", *options)
    *_, last = map(json.loads, result.stdout.splitlines())
    return {**last, "status": result.exit_code, "errors": result.stderr}


def test_the_tables_are_those_of_each_capture(data_set: Path) -> None:
    assert counted(data_set) == alone()
    order = ";".join(
        f"SELECT {columns} FROM {table} {{where}} ORDER BY ALL"
        for table, columns in {
            "rpcs": "xid, procedure, status, latency_ns, path",
            "packets": "time_ns, info",
            "findings": "rule, time_ns",
            "operations": "operation, name",
        }.items()
    )
    for host, name in HOSTS.items():
        wanted = objects("sql", str(sample(name)), order.format(where=""))
        assert {*wanted[-1]} == {"operation", "name"}
        assert objects("sql", str(data_set), order.format(where=f"WHERE host = '{host}'")) == wanted
    joined = "SELECT count(*) AS n FROM operations JOIN rpcs ON rpc = number AND operations.host = rpcs.host"
    assert objects("sql", str(data_set), joined) == objects(
        "sql", str(data_set), "SELECT count(*) AS n FROM operations"
    )


def test_commands_read_it_as_one_capture(data_set: Path) -> None:
    together = next(one for one in objects("report", str(data_set)) if one["type"] == "capture")
    reports = [objects("report", str(sample(name))) for name in HOSTS.values()]
    each = [next(one for one in report if one["type"] == "capture") for report in reports]
    for name in ("frames", "packets"):
        assert together[name] == sum(one[name] for one in each)
    groups = [one for one in objects("report", str(data_set), "--by", "host") if one["type"] == "group"]
    assert {one["by"]["host"]: one["rpcs"] for one in groups} == alone()
    apart = [verdict for name in HOSTS.values() for verdict in violations(sample(name))]
    assert sorted(violations(data_set)) == sorted(apart)
    assert "problem" in run("diagnose", str(data_set)).stdout
    sessions = [*map(json.loads, run("sessions", str(data_set), "--json").stdout.splitlines())]
    apart_too = [one for name in HOSTS.values() for one in objects("sessions", str(sample(name)))]
    assert owners(sessions) == owners(apart_too) != []
    listed = objects("rpcs", str(data_set))
    assert {one["call_place"]["file"] for one in listed} == {
        str(data_set.parent / "fleet" / host / MANIFEST[name]["file"]) for host, name in HOSTS.items()
    }


def test_two_data_sets_are_two_runs(fleet: Path, tmp_path: Path) -> None:
    for name, host in (("before", "web1"), ("after", "web2")):
        analysed(fleet / host, tmp_path / name, "-j", "1")
    sets = run("compare", str(tmp_path / "before"), str(tmp_path / "after"), "--json")
    captures = run("compare", str(sample(HOSTS["web1"])), str(sample(HOSTS["web2"])), "--json")
    assert (sets.exit_code, sets.stderr) == (0, "")
    found, wanted = ([json.loads(line) for line in one.stdout.splitlines()] for one in (sets, captures))
    assert [one["type"] for one in found] == [one["type"] for one in wanted]
    procedures = [[one for one in records if one["type"] == "runs_procedure"] for records in (found, wanted)]
    assert procedures[0] == procedures[1] != []


def test_what_evicted_connections_broke_is_summed_over_the_captures(fleet: Path, tmp_path: Path) -> None:
    few = Options(max_connections=1, ended=0)
    found = units([str(fleet / "web1"), str(fleet / "web2")])
    assert not any(one.entry.problem for one in batch.batch(found, str(tmp_path / "set"), few, 1))
    counts: list[dict[tuple[str, int], int]] = [{}, {}]
    for sums, sessions in (
        (counts[0], [open_saved_session(str(tmp_path / "set"))]),
        (counts[1], [Session(one.paths, few) for one in found]),
    ):
        for session in sessions:
            auditor = Auditor()
            session.audit(auditor)
            for place, tally in auditor.tallies.items():
                if place.connection == EARLIER:
                    key = place.rule, place.endpoint
                    sums[key] = sums.get(key, 0) + tally.passed + tally.violated
    assert counts[0] == counts[1] != {}


def test_what_is_there_is_not_analysed_again_and_a_broken_file_costs_nothing(
    fleet: Path, data_set: Path, tmp_path: Path
) -> None:
    data_set = shutil.copytree(data_set, tmp_path / "set")
    (fleet / "db" / "broken.pcap").write_bytes(b"no capture at all")
    first = analysed(fleet, data_set)
    assert (first["captures"], first["known"], first["unread"], first["status"]) == (4, 3, 1, 2)
    written = {path: path.stat().st_mtime_ns for path in data_set.rglob("*.parquet")}
    (fleet / "db" / "broken.pcap").unlink()
    shutil.copy(sample(LAST), fleet / "db" / "copy.pcap.zst")
    again = analysed(fleet, data_set)
    assert (again["captures"], again["known"], again["unread"], again["status"]) == (4, 4, 0, 0)
    assert {path: path.stat().st_mtime_ns for path in data_set.rglob("*.parquet")} == written
    assert counted(data_set) == alone()


def test_rotated_files_are_one_capture_that_may_grow(tmp_path: Path) -> None:
    folder, data_set = tmp_path / "fleet" / "web1", tmp_path / "set"
    folder.mkdir(parents=True)
    whole = tmp_path / "whole.pcap"
    whole.write_bytes(unpacked(str(sample("rxe-nfs-all"))))
    data = whole.read_bytes()
    parts = halves(data)
    (folder / "x.pcap").write_bytes(parts[0])
    analysed(tmp_path / "fleet", data_set)
    (folder / "x.pcap1").write_bytes(parts[1])
    last = analysed(tmp_path / "fleet", data_set)
    assert (last["captures"], last["known"]) == (1, 0)
    assert len([one for one in entries(str(data_set)) if not one.problem]) == 1
    assert counted(data_set) == {"web1": len(objects("rpcs", str(whole)))}


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@pytest.mark.parametrize("whom", ["worker", "coordinator"])
def test_nothing_is_lost_or_doubled_when_a_process_is_killed(whom: str, fleet: Path, tmp_path: Path) -> None:
    data_set = tmp_path / "set"
    command = [*PROGRAM, "batch", str(fleet), "-o", str(data_set), "-j", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while not (data_set / "unfinished").is_dir() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    assert process.poll() is None
    if whom == "worker":
        busy = [pid for pid in _children(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(busy[0], signal.SIGKILL)
        process.communicate()
        assert process.returncode == 0
    else:
        process.kill()
        process.communicate()
        last = analysed(fleet, data_set)
        assert (last["captures"], last["unread"], last["status"]) == (3, 0, 0)
    assert counted(data_set) == alone()


def test_an_error_of_the_program_costs_its_capture_only(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def analyse(*arguments: object) -> CaptureEntry:
        raise OverflowError("int too big to convert")

    monkeypatch.setattr(batch, "analyse", analyse)
    (unit, *_) = units([str(fleet)])
    received, given = multiprocessing.Pipe(duplex=False)
    batch._analyse(given, unit, str(tmp_path / "set"), Options())
    entry, said = received.recv()
    assert said == []
    assert entry.problem == (
        f"{unit.paths[0]}: internal error, please report it: OverflowError: int too big to convert"
    )


def test_a_place_that_is_something_else_is_refused(fleet: Path) -> None:
    result = run("batch", str(fleet), "-o", str(fleet))
    assert result.exit_code == 2 and "is no data set" in result.stderr


@pytest.mark.parametrize("content", ["", "[1]", "{}", '{"format": 1, "more": 2}'])
def test_a_snapshot_of_something_else_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "set" / "snapshots").mkdir(parents=True)
    (tmp_path / "set" / "snapshots" / "other.json").write_text(content)
    result = run("report", str(tmp_path / "set"))
    assert result.exit_code == 2 and "other.json: is no snapshot of a data set" in result.stderr


def test_a_data_set_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set" / "manifest").mkdir(parents=True)
    result = run("report", str(tmp_path / "set"))
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1) and "rdmascope batch" in result.stderr


def test_a_ring_is_taken_file_by_file_as_it_rotates(tmp_path: Path) -> None:
    """Each once, also where the ring has dropped it since; the newest when it is quiet."""
    folder, data_set = tmp_path / "ring" / "web1", str(tmp_path / "set")
    folder.mkdir(parents=True)
    parts = halves(unpacked(str(sample("nconnect-rxe"))))
    names = [f"x_0000{number}_20261121100000.pcap" for number in (1, 2, 3)]
    now = [1_000_000.0]

    def write(number: int, data: bytes) -> None:
        (folder / names[number]).write_bytes(data)
        os.utime(folder / names[number], (now[0], now[0]))

    def next_one(seconds: float) -> bool:
        now[0] += 2 * batch.QUIET if steps == ["quiet"] else seconds
        if not steps:
            return True
        step = steps.pop(0)
        if step == "second":
            write(1, parts[1])
        elif step == "third":
            write(2, halves(parts[0])[0])
            (folder / names[0]).unlink()
        return False

    steps = ["second", "third", "quiet"]
    write(0, parts[0])
    taken = [
        (Path(one.unit.paths[0]).name, one.known)
        for one in batch.watched([str(tmp_path / "ring")], data_set, Options(), 1, next_one, lambda: now[0])
    ]
    assert taken == [(name, False) for name in names]
    assert [Path(one.paths[0]).name for one in entries(data_set)] == names
    calls = objects("sql", data_set, "SELECT host, count(DISTINCT capture) AS captures FROM rpcs GROUP BY host")
    assert calls == [{"host": "web1", "captures": 3}]


def test_watching_ends_with_a_signal(tmp_path: Path) -> None:
    (tmp_path / "ring").mkdir()
    command = [*PROGRAM, "batch", str(tmp_path / "ring"), "-o", str(tmp_path / "set"), "--watch"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while not (tmp_path / "set" / "snapshots").is_dir():
        assert process.poll() is None
        time.sleep(0.05)
    process.terminate()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and said.endswith("0 captures, 0 known, 0 not read\n")
