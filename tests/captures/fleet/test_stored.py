"""A data set at a URL: of fsspec's files of this machine under a name of their own, and of a server that speaks S3."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fsspec
import numpy as np
import pytest

from playbook.commands import objects, run, unpacked
from playbook.fleets import entries
from playbook.samples import MANIFEST, SAMPLES
from playbook.stores import s3_bucket
from rdmascope.captures.fleet.batch import BatchCapture, analyse, divided, prepare, units
from rdmascope.dissect.rpcrdma.analyzer import Options

HOSTS = {"web": "longcall-rxe", "db": "v2-settles"}
CALLS = "SELECT host, count(*) AS calls FROM rpcs GROUP BY host ORDER BY host"


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    for host, name in HOSTS.items():
        (tmp_path / "fleet" / host).mkdir(parents=True)
        shutil.copy(Path(SAMPLES, MANIFEST[name]["file"]), tmp_path / "fleet" / host)
    return tmp_path / "fleet"


@pytest.fixture
def bucket(fleet: Path) -> Iterator[str]:
    """With the captures."""
    with s3_bucket(fleet.parent) as (url, _):
        yield url


def put(fleet: Path | str, url: str) -> dict[str, bool]:
    """As ``batch`` does, without processes: whether each host was known."""
    prepare(url)
    known, others = divided(units([str(fleet)]), url, Options())
    done = [*known, *(BatchCapture(unit, analyse(unit, url, Options()), False) for unit in others)]
    return {one.entry.host: one.known for one in done}


def files(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_data_set_in_a_store_is_filled_once_and_read(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    stored, url = tmp_path / "stored", f"local://{tmp_path}/stored"
    assert put(fleet, url) == {"web": False, "db": False}
    assert not [*(tmp_path / "temporary").iterdir()]
    there = files(stored)
    calls = {host: len(objects("rpcs", str(fleet / host))) for host in sorted(HOSTS)}
    assert {one["host"]: one["calls"] for one in objects("sql", url, CALLS)} == calls
    assert (
        run("report", url).stdout.startswith(f"{url}\n") and f"{sum(calls.values())} RPCs" in run("report", url).stdout
    )
    assert "".join(run("audit", url).stdout.split()).startswith(f"{url}:")
    assert put(fleet, url) == {"web": True, "db": True} and files(stored) == there
    # Contents that others take the place of go.
    lost = next(one for one in entries(url) if one.host == "web")
    shutil.copy(Path(SAMPLES, MANIFEST["krb5-rxe"]["file"]), next((fleet / "web").iterdir()))
    put(fleet, url)
    assert lost.capture not in {one.capture for one in entries(url)}
    calls = {host: len(objects("rpcs", str(fleet / host))) for host in sorted(HOSTS)}
    assert {one["host"]: one["calls"] for one in objects("sql", url, CALLS)} == calls


def test_packets_of_captures_in_a_store_go_back_into_it(
    fleet: Path, tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert put(f"{bucket}/fleet/", f"{bucket}/set") == {"web": False, "db": False}
    said = run("export", "--to", "capture", f"{bucket}/set", "--where", "true", "-o", f"{bucket}/all.pcapng")
    assert said.stdout.startswith(f"{bucket}/all.pcapng: ")
    run("export", "--to", "capture", f"{bucket}/set", "--where", "true", "-o", str(tmp_path / "all.pcapng"))
    with fsspec.open(f"{bucket}/all.pcapng") as file:
        assert file.read() == (tmp_path / "all.pcapng").read_bytes()
    assert run("export", f"{bucket}/set", "--to", "csv", "-o", f"{bucket}/tables").exit_code == 0
    with fsspec.open(f"{bucket}/tables/rpcs.csv") as file:
        assert file.read().count(b"\n") > 40
    (capture,) = (fleet / "web").iterdir()
    fsspec.filesystem("s3").put_file(str(SAMPLES / MANIFEST["krb5-rxe"]["file"]), f"{bucket}/fleet/web/{capture.name}")
    changed = run("packets", f"{bucket}/set")
    assert changed.exit_code == 2 and changed.stderr == (
        f"rdmascope: {bucket}/set: web: {bucket}/fleet/web/{capture.name}: not what was analysed any more\n"
    )


def later(data: bytes, days: int) -> bytes:
    """A pcap, of which each frame comes days later."""
    found, at = bytearray(data), 24
    while at < len(found):
        seconds = int.from_bytes(found[at : at + 4], "little") + days * 86_400
        found[at : at + 4] = seconds.to_bytes(4, "little")
        at += 16 + int.from_bytes(found[at + 8 : at + 12], "little")
    return bytes(found)


def test_filters_choose_the_days_and_the_captures_that_are_read(tmp_path: Path) -> None:
    """And the answers are those of the capture that is meant."""
    data = unpacked(str(SAMPLES / MANIFEST["longcall-rxe"]["file"]))
    for day, host in enumerate(("web1", "web2")):
        (tmp_path / "bucket" / "fleet" / host).mkdir(parents=True)
        (tmp_path / "bucket" / "fleet" / host / "a.pcap").write_bytes(later(data, day))
    with s3_bucket(tmp_path / "bucket") as (url, requests):
        put(f"{url}/fleet/", f"{url}/set")
        first = entries(f"{url}/set")[0]
        filters = "--until", f"{np.datetime64(first.last_time_ns // 10**9 + 1, 's')}Z", "--client", "10.77.0.2"
        own = tmp_path / "bucket" / "fleet" / first.host / "a.pcap"
        for command in ("transport", "transport --credits", "files", "audit --fail-on never", "sessions"):
            requests.clear()
            some = objects(*command.split(), f"{url}/set", *filters)
            asked = {unquote(path).removeprefix("/captures/") for method, path in requests if method == "GET"}
            days = {path.split("day=")[1][:10] for path in asked if "day=" in path and "set/captures/" not in path}
            captures = {path for path in asked if path.endswith(".pcap")}
            assert days == {first.day}, command
            assert captures == (set() if "transport" in command else {f"fleet/{first.host}/a.pcap"}), command
            assert without_origin(some) == without_origin(objects(*command.split(), str(own), *filters)) != []


def without_origin(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in one.items() if name not in ("file", "filter")} for one in records]


def test_what_is_refused(fleet: Path) -> None:
    for url, words in ((f"local://{fleet}", "is no data set"), ("http://127.0.0.1:1/x", "cannot write to a URL")):
        refused = run("batch", str(fleet), "-o", url)
        assert refused.exit_code == 2 and words in refused.stderr and len(refused.stderr.splitlines()) == 1
