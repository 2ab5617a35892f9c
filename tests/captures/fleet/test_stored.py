"""A data set at a URL.  The store is that of fsspec for files of this machine under a name of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from playbook.commands import objects, run
from playbook.samples import MANIFEST, SAMPLES
from rdmascope.captures.data_set import entries
from rdmascope.captures.errors import CaptureError
from rdmascope.captures.fleet.stored import copy_of

HOSTS = {"web": "longcall-rxe", "db": "nconnect-rxe"}
CALLS = "SELECT host, count(*) AS calls FROM rpcs GROUP BY host ORDER BY host"


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    for host, name in HOSTS.items():
        (tmp_path / "fleet" / host).mkdir(parents=True)
        shutil.copy(Path(SAMPLES, MANIFEST[name]["file"]), tmp_path / "fleet" / host)
    return tmp_path / "fleet"


def files(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_data_set_in_a_store_is_filled_once_and_read(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    stored, url = tmp_path / "stored", f"local://{tmp_path}/stored"
    assert run("batch", str(fleet), "-o", url).stdout.endswith("2 captures, 0 known, 0 not read\n")
    assert not [*(tmp_path / "temporary").iterdir()]
    there = files(stored)
    calls = {host: len(objects("rpcs", str(fleet / host))) for host in sorted(HOSTS)}
    assert {one["host"]: one["calls"] for one in objects("sql", url, CALLS)} == calls
    assert f"{sum(calls.values())} RPCs" in run("report", url).stdout
    # What was interrupted before its entry was there is repeated; the other capture is not.
    lost = next(one for one in entries(str(stored)) if one.host == "web")
    (stored / "manifest" / f"{lost.capture}.json").unlink()
    assert [one["host"] for one in objects("sql", url, CALLS)] == ["db"]
    assert "1 known, 0 not read" in run("batch", str(fleet), "-o", url).stdout
    again = files(stored)
    assert again.keys() == there.keys()
    assert all(again[name] == there[name] for name in there if "host=db" in name)
    # Contents that others take the place of go.
    shutil.copy(Path(SAMPLES, MANIFEST["rxe-nfs-all"]["file"]), next((fleet / "web").iterdir()))
    run("batch", str(fleet), "-o", url)
    assert lost.capture not in {one.capture for one in entries(str(stored))}
    assert not any(lost.capture in name for name in files(stored))


def test_what_is_refused(fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url, words in ((f"local://{fleet}", "is no data set"), ("http://127.0.0.1:1/x", "cannot write to a URL")):
        refused = run("batch", str(fleet), "-o", url)
        assert refused.exit_code == 2 and words in refused.stderr and len(refused.stderr.splitlines()) == 1
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run("batch", str(fleet / "web"), "-o", f"local://{tmp_path}/stored")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1000, 900, 100))
    with pytest.raises(CaptureError, match="has room for 100 B"):
        copy_of(f"local://{tmp_path}/stored")
