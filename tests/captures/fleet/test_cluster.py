"""Captures of a fleet on a Dask cluster, of which a worker is lost."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import dask
import pytest
from distributed import LocalCluster

from playbook.commands import PROGRAM, objects, run
from playbook.fleets import entries
from playbook.samples import MANIFEST, SAMPLES
from playbook.stores import Files, served
from rdmascope.captures.fleet.batch import on_cluster, units
from rdmascope.dissect.rpcrdma.analyzer import Options

COPIES = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = str(tmp_path_factory.mktemp("workers"))
    with (
        dask.config.set(temporary_directory=folder),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as found,  # type: ignore[no-untyped-call]
    ):
        yield found


def fleet(folder: Path, sample: str = "v2-settles") -> int:
    """The same capture with other times on each of several hosts; returns its RPCs."""
    capture = SAMPLES / MANIFEST[sample]["file"]
    for host in range(COPIES):
        (folder / f"host{host}").mkdir(parents=True)
        shutil.copy(capture, folder / f"host{host}" / "a.pcap.zst")
        # An empty frame of Zstandard that is skipped: the contents differ, and what is in them does not.
        with open(folder / f"host{host}" / "a.pcap.zst", "ab") as file:
            file.write(bytes.fromhex("502a4d18 04000000") + host.to_bytes(4))
    return calls_of(capture)


@cache
def calls_of(sample: Path) -> int:
    return len(objects("rpcs", str(sample)))


def test_nothing_is_lost_or_doubled_when_a_worker_is_killed(cluster: LocalCluster, tmp_path: Path) -> None:
    calls = fleet(tmp_path / "fleet", "nconnect-rxe")
    data_set = tmp_path / "set"
    found = units([str(tmp_path / "fleet")])
    done = on_cluster(found, str(data_set), Options(), cluster.scheduler_address)
    first = next(done)
    os.kill(cluster.workers[0].pid, signal.SIGKILL)
    captures = [first, *done]
    assert sorted(one.unit.host for one in captures) == [f"host{number}" for number in range(COPIES)]
    assert [one.entry.problem for one in captures] == [""] * COPIES
    assert len(entries(str(data_set))) == COPIES
    query = "SELECT host, count(*) AS calls, count(DISTINCT xid) AS distinct FROM rpcs GROUP BY host"
    rows = objects("sql", str(data_set), query)
    assert {row["host"]: row["calls"] for row in rows} == {f"host{number}": calls for number in range(COPIES)}
    again = run("batch", str(tmp_path / "fleet"), "-o", str(data_set), "--scheduler", cluster.scheduler_address)
    assert again.exit_code == 0 and f"{COPIES} captures, {COPIES} known, 0 not read" in again.stdout


def test_workers_have_the_plugins_of_their_client_and_the_next_client_has_not(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    shutil.copy(SAMPLES / MANIFEST["v2-settles"]["file"], tmp_path)
    page = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text()
    text = re.findall(r"```python\n# site_rule.py\n(.*?)```", page, re.DOTALL)[0]
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "site.py").write_text(f"print('a plug-in')\n{text}")
    (tmp_path / "two" / "site.py").write_text(
        text.replace("SITE-CREDITS", "SITE-FAILS").replace("credits = sent", "credits = 1 // 0 + sent")
    )
    given = [f"--plugin={tmp_path / name / 'site.py'}" for name in ("one", "two")]
    words = ["batch", str(tmp_path / "v2-settles.pcap.zst"), "--scheduler", cluster.scheduler_address]
    query = "SELECT count(*) AS found FROM findings WHERE rule LIKE 'SITE-%'"
    found = []
    for plugins in (given, []):
        data_set = str(tmp_path / f"set-{len(plugins)}")
        done = subprocess.run([*PROGRAM, *words, "-o", data_set, *plugins], capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr.count("ZeroDivisionError") == bool(plugins), done.stderr
        found += [row["found"] for row in objects("sql", data_set, query)]
    assert found[0] > 0 == found[1]


def test_nothing_is_lost_or_doubled_when_the_coordinator_is_killed(cluster: LocalCluster, tmp_path: Path) -> None:
    calls = fleet(tmp_path / "fleet", "nconnect-rxe")
    data_set = tmp_path / "set"
    words = ["batch", str(tmp_path / "fleet"), "-o", str(data_set), "--scheduler", cluster.scheduler_address]
    first = subprocess.Popen([*PROGRAM, *words], stdout=subprocess.DEVNULL)
    while not list(data_set.glob("captures/*/*.parquet")):
        assert first.poll() is None
        time.sleep(0.01)
    first.kill()
    first.wait()
    again = run(*words)
    assert again.exit_code == 0 and f"{data_set}: {COPIES} captures, " in again.stdout
    assert len(entries(str(data_set))) == COPIES
    rows = objects("sql", str(data_set), "SELECT host, count(*) AS calls FROM rpcs GROUP BY host")
    assert {row["host"]: row["calls"] for row in rows} == {f"host{number}": calls for number in range(COPIES)}


def test_workers_read_urls(cluster: LocalCluster, tmp_path: Path) -> None:
    calls = fleet(tmp_path / "fleet")
    with served(tmp_path / "fleet", Files) as (url, _):
        found = units([f"{url}/host1/a.pcap.zst", f"{url}/none.pcap"])
        done = on_cluster(found, str(tmp_path / "set"), Options(), cluster.scheduler_address)
        entry = {one.unit.host: one.entry for one in done}
    assert (entry["a"].problem, entry["a"].rpcs) == ("", calls)
    assert entry["none"].problem == f"{url}/none.pcap: no such file"


def test_workers_put_tables_at_a_url(cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # Of the copy that is read, which goes with the process.
    calls = fleet(tmp_path / "fleet")
    stored = f"local://{tmp_path}/stored"
    words = ["batch", str(tmp_path / "fleet"), "-o", stored, "--scheduler", cluster.scheduler_address]
    assert run(*words).stdout.endswith(f"{COPIES} captures, 0 known, 0 not read\n")
    (tmp_path / "fleet" / "host1" / "a.pcap.zst").write_bytes(b"no capture")
    again = run(*words)
    assert (again.exit_code, again.stdout.splitlines()[-1]) == (
        2, f"{stored}: {COPIES} captures, {COPIES - 1} known, 1 not read",
    )  # fmt: skip
    rows = objects("sql", stored, "SELECT host, count(*) AS calls FROM rpcs GROUP BY host")
    assert {row["host"]: row["calls"] for row in rows} == {f"host{host}": calls for host in range(COPIES) if host != 1}
    assert len(entries(stored)) == COPIES


def test_a_scheduler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet(tmp_path / "fleet")
    monkeypatch.setattr("rdmascope.captures.fleet.batch.PATIENCE", 1)
    result = run("batch", str(tmp_path / "fleet"), "-o", str(tmp_path / "set"), "--scheduler", "tcp://127.0.0.1:1")
    assert result.exit_code == 2 and "no Dask scheduler answers" in result.stderr
